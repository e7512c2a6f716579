"""
A comparison, fold by fold
==========================

``nearfar.compare`` tests all methods on the same folds, so that their errors can be subtracted fold
by fold. This example draws these differences, and shows what happens to them when rows that belong
together are not kept together.
"""

# %%
# Thirty measurements of a tumour, for 150 patients of scikit-learn's breast cancer set. Let each of
# them be measured three times, with an error of a fifth of each feature's standard deviation. So
# there are 450 rows, but only 150 patients.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from nearfar import compare

rng = np.random.default_rng(0)
X, y = load_breast_cancer(return_X_y=True)
patient = np.repeat(rng.permutation(len(y))[:150], 3)
rows = X[patient] + 0.2 * X.std(axis=0) * rng.normal(size=(450, 30))
labels = y[patient]

# %%
# The comparison is done twice: once with random folds, once with folds that keep the rows of a
# patient together. ``isolate=False`` runs it in this process; without it each method has a process
# of its own, which can be killed when the time is up.

quick = {"methods": ["lda", "rca"], "repeats": 2, "context": False, "isolate": False}
results = {
    "random folds": compare(rows, labels, verbose=False, **quick),
    "patients kept together": compare(rows, labels, groups=patient, verbose=False, **quick),
}
for name, result in results.items():
    print(f"{name}:\n{result.answer}\n")

# %%
# The baseline is the best standard distance, selected within each training fold. A point is one of
# the ten folds (twice five): the error of the learner minus that of the baseline on the same rows.
# The bar is the 95% CI of their mean, corrected for folds that share training rows.


def by_method(result):
    """Entries of the table by name."""
    return {method["name"]: method for method in result.document["methods"]}


figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True, sharey=True, layout="constrained")
for ax, (name, result) in zip(axes, results.items(), strict=True):
    methods = by_method(result)
    reference = np.array([fold["error"] for fold in methods["reference"]["results"]])
    for height, learner in enumerate(["rca", "lda"]):
        errors = np.array([fold["error"] for fold in methods[learner]["results"]])
        spread = height + 0.25 + 0.05 * (np.arange(len(errors)) % 5)
        ax.scatter(100 * (errors - reference), spread, s=22, c="#0072B2", alpha=0.6, linewidths=0)
        low, high = methods[learner]["difference_interval"]
        ax.plot([100 * low, 100 * high], [height, height], c="k", lw=2, solid_capstyle="butt")
        ax.plot(100 * methods[learner]["difference"], height, "o", c="k", ms=7)
    ax.axvline(0, c="0.6", lw=1, zorder=0)
    ax.set_title(f"{name}: standard distance {methods['reference']['error']:.1%}", fontsize=11)
    ax.set(yticks=[0, 1], yticklabels=["RCA", "LDA"], ylim=(-0.4, 1.8))
    ax.set_xlabel("error minus that of the standard distance, in points")
axes[0].text(0.02, 0.96, "← better", transform=axes[0].transAxes, va="top", fontsize=9)
plt.show()

# %%
# With random folds the standard distance makes no errors: the nearest row is another measurement of
# the same patient. Both learners look harmful, since a distance that learns what matters for the
# diagnosis forgets who the patient is. With patients kept together the error is that of a new
# patient, and the differences turn round, though 150 patients are too few to be sure. So a leak
# does not only make errors too low. It can change the answer.
