"""Runs with metric-learn and with nearfar: only the imports differ."""

import sys

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

if "--metric-learn" in sys.argv:
    from metric_learn import LFDA, NCA
    from metric_learn import ITML_Supervised as ITML
    from metric_learn import LSML_Supervised as LSML
else:
    from nearfar import ITML, LFDA, LSML, NCA

X, y = load_wine(return_X_y=True)
learners = {
    "NCA": NCA(n_components=5, random_state=0),
    "LFDA": LFDA(n_components=2),
    "ITML": ITML(gamma=1.0, random_state=0),
    "LSML": LSML(random_state=0),
}
for name, learner in learners.items():
    chain = make_pipeline(StandardScaler(), learner, KNeighborsClassifier(3))
    error = 1 - cross_val_score(chain, X, y, cv=5).mean()
    print(f"{name}: {error:.1%} errors")

    fitted = learner.fit(X, y)
    metric, pairs = fitted.get_metric(), np.stack([X[:5], X[5:10]], axis=1)
    one_by_one = [metric(a, b) for a, b in pairs]
    assert np.allclose(fitted.pair_distance(pairs), one_by_one)
    assert np.allclose(-fitted.pair_score(pairs), one_by_one)
    M = fitted.get_mahalanobis_matrix()
    assert np.allclose(M, fitted.components_.T @ fitted.components_)
