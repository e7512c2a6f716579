"""
How many useless columns a rule bears
=====================================

k-NN counts every feature alike, and columns of noise drown those that matter. Here the class says
whether two features lie outside of a circle; more and more columns of noise come with them. LMNN
learns one metric for all rows, the others one for each query.
"""

# %%
# 200 rows train, 400 test, means of three draws, all at their defaults.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import (
    LMNN,
    ADAMENNClassifier,
    DANNClassifier,
    DANNSubspace,
    FriedmanClassifier,
    KNNClassifier,
    LFMSVMClassifier,
    QuasiconformalClassifier,
    ShortFukunagaClassifier,
)
from nearfar.datasets import make_few_relevant

rules = {
    "5-NN": KNNClassifier(n_neighbors=5),
    "LMNN, 3-NN": KNNClassifier(LMNN(), 3),
    "DANN": DANNClassifier(),
    "sub-DANN": DANNClassifier(DANNSubspace()),
    "Short-Fukunaga": ShortFukunagaClassifier(),
    "ADAMENN": ADAMENNClassifier(),
    "scythe": FriedmanClassifier(),
    "machete": FriedmanClassifier(variant="machete"),
    "quasiconformal": QuasiconformalClassifier(),
    "LFM-SVM": LFMSVMClassifier(),
}
columns = [0, 1, 2, 4, 8, 16, 32]
errors = np.zeros((len(rules), len(columns), 3))
for seed in range(3):
    width = 2 + max(columns)
    X, outside = make_few_relevant("ring", n_samples=600, n_features=width, random_state=seed)
    for j, n_noise in enumerate(columns):
        known, new = X[:200, : 2 + n_noise], X[200:, : 2 + n_noise]
        for i, rule in enumerate(rules.values()):
            errors[i, j, seed] = 1 - rule.fit(known, outside[:200]).score(new, outside[200:])

# %%
# The machete and the scythe weigh features one by one and bear most. sub-DANN finds the plane of
# the two features as long as there are rows enough for the covariance of all; DANN alone needs such
# a covariance at each query. Quasiconformal neighbours are found by posteriors that k-NN estimates,
# and do worse than k-NN itself wherever it does badly.

figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
places = np.arange(len(columns))
for (name, _), line in zip(rules.items(), 100 * errors.mean(axis=2), strict=True):
    plain = name in ("5-NN", "LMNN, 3-NN")
    axes.plot(places, line, "o--" if plain else "o-", lw=2.5 if plain else 1.5, label=name)
axes.axhline(50, color="tab:gray", lw=0.8)
axes.set_xticks(places, columns)
axes.set(xlabel="columns of noise beside two that matter", ylabel="errors on new rows, %")
axes.set_ylim(0, None)
axes.legend(ncols=2, fontsize="small")
plt.show()
