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
else:
    from nearfar import LFDA, NCA

X, y = load_wine(return_X_y=True)
for learner in (NCA(n_components=5, random_state=0), LFDA(n_components=2)):
    chain = make_pipeline(StandardScaler(), learner, KNeighborsClassifier(3))
    error = 1 - cross_val_score(chain, X, y, cv=5).mean()
    print(f"{type(learner).__name__}: {error:.1%} errors")

    fitted = learner.fit(X, y)
    metric, pairs = fitted.get_metric(), np.stack([X[:5], X[5:10]], axis=1)
    one_by_one = [metric(a, b) for a, b in pairs]
    assert np.allclose(fitted.pair_distance(pairs), one_by_one)
    assert np.allclose(-fitted.pair_score(pairs), one_by_one)
    M = fitted.get_mahalanobis_matrix()
    assert np.allclose(M, fitted.components_.T @ fitted.components_)
