"""
Two close classes, and one far away
===================================

LDA maximises a sum over pairs of classes, in which a pair counts by the square of its distance.
With fewer directions than classes less one it looks where the farthest class is, though that one is
told apart anyway, and lets the close ones fall onto one another. After figures 2.2 and 2.7 of Tao's
thesis on subspace methods.
"""

# %%
# Three round classes are to be seen along one line. On the left the lines that the learners choose,
# on the right the classes along each. Errors are those of a Gaussian for each class, on new points.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nearfar import (
    APAC,
    LDA,
    MGMKLD,
    FractionalStepLDA,
    KNNClassifier,
    MinimumMahalanobisClassifier,
    WeightedLDA,
)
from nearfar.datasets import make_class_separation, make_five_classes

X, y = make_class_separation(random_state=0)
X_new, y_new = make_class_separation(2000, random_state=1)
learners = {
    "LDA": (LDA(1), "k", "-"),
    "APAC": (APAC(1), "0.45", "--"),
    "WeightedLDA": (WeightedLDA(1), "#E69F00", "-."),
    "FractionalStepLDA": (FractionalStepLDA(1), "#56B4E9", "--"),
    "MGMKLD, eta=0": (MGMKLD(1, equality_weight=0), "#B2479C", ":"),
    "MGMKLD": (MGMKLD(1), "#B2479C", "-"),
}
colors, marks = ["#0072B2", "#D55E00", "#009E73"], ["o", "s", "^"]

figure = plt.figure(figsize=(10.5, 6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1.15])
plane = left.subplots()
strips = right.subplots(len(learners), 1)
center = X.mean(axis=0)
for label in range(3):
    own, style = X[y == label], {"c": colors[label], "marker": marks[label]}
    plane.scatter(*own.T, s=12, alpha=0.6, linewidths=0, **style)
for (name, (learner, color, line)), strip in zip(learners.items(), strips, strict=True):
    rule = MinimumMahalanobisClassifier(learner, rule="gaussian").fit(X, y)
    error = 1 - rule.score(X_new, y_new)
    print(f"{name:18} {error:6.1%} errors")
    direction = rule.estimator_.components_[0]
    direction = direction / np.linalg.norm(direction)
    plane.axline(center, center + direction, color=color, linestyle=line, label=name)
    along = X @ direction * np.sign(direction[0])
    bins = np.linspace(along.min(), along.max(), 50)
    for label in range(3):
        strip.hist(along[y == label], bins, color=colors[label], alpha=0.6)
    strip.set_title(f"{name}: {error:.0%} errors", fontsize=10, loc="left")
    strip.set(xticks=[], yticks=[])
    strip.spines[["top", "left", "right"]].set_visible(False)
plane.set(xlim=(-5, 18), ylim=(-11, 11), aspect="equal", xticks=[], yticks=[])
left.legend(loc="outside lower center", ncols=2, frameon=False)
plt.show()

# %%
# * LDA goes for the far class, and two classes lie upon each other.
# * :class:`~nearfar.APAC` lets a pair count no more than its errors are worth. Then all three pairs
#   count nearly alike, and two of them want to see the far class.
# * :class:`~nearfar.WeightedLDA` lets the closest pair decide nearly alone, and goes past the
#   best line to the other extreme.
# * :class:`~nearfar.FractionalStepLDA` weighs anew while the other direction fades, and finds a
#   good line. That it leans to the other side than MGMKLD's is chance: both sides are alike.
# * :class:`~nearfar.MGMKLD` maximises the mean *logarithm* of the divergences between classes: to
#   lose a small one costs more than a large one gains. With ``eta`` it also asks for equal ones.
#
# Five classes in 20 dimensions
# -----------------------------
# Differences between draws of these data are far larger than those between methods. So here is what
# each gains over LDA on the same draw, in the mean of eight, with standard errors. The class means
# span three dimensions: from there on there is no masking, and nothing to gain.

n_draws, dimensions = 8, np.arange(1, 5)
family = {
    "APAC": (APAC(), "0.45", "D"),
    "WeightedLDA": (WeightedLDA(), "#E69F00", "s"),
    "FractionalStepLDA": (FractionalStepLDA(), "#56B4E9", "^"),
    "MGMKLD": (MGMKLD(n_init=2), "#B2479C", "o"),
}


def errors(learner, X, y, X_new, y_new):
    """Of the Gaussian rule, in each number of dimensions."""
    rule = MinimumMahalanobisClassifier(learner, rule="gaussian")
    fits = (rule.set_params(estimator__n_components=int(q)).fit(X, y) for q in dimensions)
    return [100 * (1 - fit.score(X_new, y_new)) for fit in fits]


draws = [make_five_classes(random_state=seed) for seed in range(n_draws)]
lda = np.array([errors(LDA(), *draw) for draw in draws])
print("LDA, errors in %:", lda.mean(axis=0).round(1).tolist())

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.axhline(0, color="k", linewidth=1)
ax.text(1.5, 0.15, "LDA", ha="center", va="bottom")
shifts = np.linspace(-0.09, 0.09, len(family))  # beside each other
for shift, (name, (learner, color, mark)) in zip(shifts, family.items(), strict=True):
    gain = lda - np.array([errors(learner, *draw) for draw in draws])
    spread = gain.std(axis=0, ddof=1) / np.sqrt(n_draws)
    ax.errorbar(
        dimensions + shift, gain.mean(axis=0), spread, c=color, marker=mark, capsize=3, label=name
    )
ax.set(xlabel="dimensions kept", ylabel="gain over LDA (points)", xticks=dimensions)
ax.legend(frameon=False)
plt.show()

# %%
# Ten digits in two dimensions
# ----------------------------
# Real data, with ten classes where two dimensions have room for three. Half of the rows are
# learned from, and the others are classified by their three nearest neighbours.

X, y = load_digits(return_X_y=True)
palette = plt.get_cmap("tab10").colors
figure, axes = plt.subplots(1, 2, figsize=(10.5, 5), layout="constrained")
for ax, learner in zip(axes, [LDA(2), MGMKLD(2)], strict=True):
    knn = KNNClassifier(learner).fit(X[::2], y[::2])
    error = 1 - knn.score(X[1::2], y[1::2])
    print(f"{type(learner).__name__:7} {error:.1%} errors")
    Z = knn.estimator_.transform(X[1::2])
    for digit in range(10):
        own = Z[y[1::2] == digit]
        ax.scatter(*own.T, s=8, color=palette[digit], alpha=0.5, linewidths=0)
        ax.text(*np.median(own, axis=0), str(digit), fontsize=15, weight="bold", ha="center")
    ax.set_title(f"{type(learner).__name__}: {error:.0%} errors on new digits", fontsize=11)
    ax.set(xticks=[], yticks=[])
plt.show()
