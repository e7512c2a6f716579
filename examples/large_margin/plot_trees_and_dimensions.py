"""
Few dimensions, and when a tree pays
====================================

A map to few dimensions makes every search cheaper, and below some dimension a tree finds neighbours
faster than comparing everything with everything. How few dimensions can the classifier bear, and
where does the tree begin to pay? After figures 2.13, 2.16 and 2.17 of Weinberger's thesis on metric
learning.
"""

# %%
# How few dimensions?
# -------------------
# Three ways to r dimensions, on half of the digits: principal components, a square map of LMNN cut
# to its principal components (``reduction="pca"`` does the same), and LMNN that optimises a map
# with r rows. The error is that of 3-NN on the other half.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from nearfar import LMNN, PCA, KNNClassifier
from nearfar.large_margin.impostors import find_impostors, find_target_neighbors
from nearfar.search.exact_search import kneighbors

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
# The problem of the thesis: all impostors count, one pass, to the end.
published = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
square = LMNN(**published).fit(X, y)
mapped, mapped_test = square.transform(X), square.transform(X_test)

dimensions = [4, 6, 10, 20]
errors = {"PCA": [], "LMNN, square, then cut": [], "LMNN, r rows learned": []}
for r in dimensions:
    for name, learner, train, test in (
        ("PCA", PCA(n_components=r), X, X_test),
        ("LMNN, square, then cut", PCA(n_components=r), mapped, mapped_test),
        ("LMNN, r rows learned", LMNN(n_components=r, **published), X, X_test),
    ):
        knn = KNNClassifier(learner, n_neighbors=3).fit(train, y)
        errors[name].append(1 - knn.score(test, y_test))
plain = 1 - KNNClassifier(n_neighbors=3).fit(X, y).score(X_test, y_test)

print(f"{'r':>24}", *(f"{r:6d}" for r in dimensions))
for name, values in errors.items():
    print(f"{name:>24}", *(f"{value:6.1%}" for value in values))
print(f"{'all 64 pixels':>24} {plain:6.1%}")

# %%
# When does a tree pay?
# ---------------------
# Gaussian classes in p dimensions, 8,000 points. Two searches: 3-NN of 2,000 queries, and the
# impostor search of LMNN, which wants everything of another class within a radius of each point.
# Each is done by matrix products in blocks and by k-d trees (for impostors one a class), with the
# same result. Shown is how many times faster the trees are, in CPU time on the machine that made
# this page.


def seconds(work, *data, **options):
    """CPU time, the better of two runs."""
    times = []
    for _ in range(2):
        began = time.process_time()
        work(*data, **options)
        times.append(time.process_time() - began)
    return min(times)


rng = np.random.default_rng(0)
features = [2, 3, 4, 6, 8, 10]
speed_up = {"3-NN": [], "impostors": []}
for p in features:
    centers = rng.normal(size=(10, p))
    codes = rng.integers(0, 10, 10_000)
    points = rng.normal(size=(10_000, p)) + centers[codes]
    Z, queries, codes = points[:8_000], points[8_000:], codes[:8_000]
    last = find_target_neighbors(Z, codes, 3)[:, -1]
    reach = ((Z - Z[last]) ** 2).sum(axis=1)
    times = [
        seconds(kneighbors, Z, queries, n_neighbors=3, search=search)
        for search in ("blocks", "tree")
    ]
    speed_up["3-NN"].append(times[0] / times[1])
    if p <= 4:  # slower and slower from there on
        times = [
            seconds(find_impostors, Z, codes, reach, max_pairs=10_000_000, method=method)
            for method in ("blocks", "tree")
        ]
        speed_up["impostors"].append(times[0] / times[1])

# %%

blue, orange, green = "#0072B2", "#D55E00", "#009E73"
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained")
for (name, values), color, mark, line in zip(
    errors.items(), (orange, green, blue), "s^o", ("--", ":", "-"), strict=True
):
    left.plot(dimensions, 100 * np.array(values), c=color, marker=mark, ls=line, label=name)
left.axhline(100 * plain, color="0.4", linewidth=1)
left.text(4, 100 * plain, "all 64 pixels", va="bottom", color="0.3")
left.set(xscale="log", yscale="log", xlabel="dimensions r", ylabel="3-NN error on test digits (%)")
left.set_xticks(dimensions, [str(r) for r in dimensions])
left.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
left.minorticks_off()
left.legend(frameon=False)
for (name, values), color, mark in zip(speed_up.items(), (blue, orange), "os", strict=True):
    right.plot(features[: len(values)], values, c=color, marker=mark, label=name)
right.axhline(1, color="0.4", linewidth=1)
right.text(features[-1], 1.05, "trees are faster above", ha="right", va="bottom", color="0.3")
right.set(yscale="log", xlabel="dimensions p", ylabel="speed-up by trees (times)")
right.set_xticks(features, [str(p) for p in features])
right.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], ["0.1", "0.2", "0.5", "1", "2", "5"])
right.minorticks_off()
right.legend(frameon=False)
plt.show()

# %%
# Where few dimensions are wanted, learn them: up to six, the learned rectangle makes half the
# errors of PCA. With twenty, PCA is better here, and nothing beats the plain distance of all
# pixels: a cut saves time, not errors.
#
# For neighbours a tree pays below six or eight dimensions, the more the more points there are: 20
# times at 60,000 points of MNIST in two dimensions, twice in eight. Beyond that it looks at nearly
# all points, in a slower way. For impostors, of which a point may have many, it pays from 60,000
# points on and in two or three dimensions only. The thesis' gains are larger because its naïve
# search compares point by point; matrix products are many times faster than that. nearfar chooses
# by itself. The measurements, with more sizes, MNIST, ball trees and early abandon, are in
# ``benchmarks/results/search.md``.
