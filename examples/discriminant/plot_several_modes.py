"""
Classes of several clusters
===========================

A class that lies on both sides of another one has its mean where it has no point. Methods with one
Gaussian for each class see a wide class there. Others cut each class into clusters, and ask only
that clusters of *different* classes be apart. After figure 2.6 of Tao's thesis on subspace methods.
"""

# %%
# Two classes of two clusters each, and one direction to keep. On the right the clusters along the
# lines that the learners choose; the two clusters of a class have the same colour. Errors are those
# of three nearest neighbours, on new points.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_circles

from nearfar import (
    LDA,
    MGMKLD,
    MODA,
    KernelDA,
    KernelMGMKLD,
    KNNClassifier,
    MultimodalKernelMGMKLD,
    MultimodalMGMKLD,
)
from nearfar.datasets import make_multimodal

X, y = make_multimodal(random_state=0)
X_new, y_new = make_multimodal(1000, random_state=1)
learners = {
    "LDA": (LDA(1), "k", "-"),
    "MGMKLD": (MGMKLD(1), "0.5", "--"),
    "MODA, n_clusters=2": (MODA(1, n_clusters=2), "#009E73", "-"),
    "MultimodalMGMKLD": (MultimodalMGMKLD(1), "#B2479C", "--"),
}
colors, marks = ["#0072B2", "#D55E00"], ["o", "s"]

figure = plt.figure(figsize=(10.5, 4.6), layout="constrained")
left, right = figure.subfigures(1, 2)
plane = left.subplots()
strips = right.subplots(len(learners), 1)
center = X.mean(axis=0)
for label in (0, 1):
    own = X[y == label]
    plane.scatter(*own.T, s=14, c=colors[label], marker=marks[label], alpha=0.7, linewidths=0)
for (name, (learner, color, line)), strip in zip(learners.items(), strips, strict=True):
    knn = KNNClassifier(learner).fit(X, y)
    error = 1 - knn.score(X_new, y_new)
    print(f"{name:18} {error:5.1%} errors")
    direction = knn.estimator_.components_[0] / np.linalg.norm(knn.estimator_.components_[0])
    plane.axline(center, center + direction, color=color, linestyle=line, linewidth=2, label=name)
    along = X @ direction
    bins = np.linspace(along.min(), along.max(), 45)
    for label in (0, 1):
        strip.hist(along[y == label], bins, color=colors[label], alpha=0.6)
    strip.set_title(f"{name}: {error:.1%} errors", fontsize=10, loc="left")
    strip.set(xticks=[], yticks=[])
    strip.spines[["top", "left", "right"]].set_visible(False)
plane.set(xlim=(-11, 11), ylim=(-4, 10), aspect="equal", xticks=[], yticks=[])
left.legend(loc="outside lower center", ncols=2, frameon=False)
plt.show()

found = learners["MultimodalMGMKLD"][0].fit(X, y)
print("clusters found in each class:", found.n_clusters_.tolist())

# %%
# LDA and MGMKLD look up and down, where the *means* of the classes differ.
# :class:`~nearfar.MODA` is told how many clusters there are,
# :class:`~nearfar.MultimodalMGMKLD` finds their number.
#
# Even and odd digits
# -------------------
# Two classes, each of five digits: at least as many clusters. LDA has one direction for two classes
# and no more. Three nearest neighbours, half of the rows to learn from and half to be classified.

X, y = load_digits(return_X_y=True)
odd = y % 2
dimensions = [1, 2, 3, 5, 8]
family = {
    "MGMKLD": (MGMKLD(n_init=2), "0.5", "s"),
    "MODA, n_clusters=5": (MODA(n_clusters=5, n_init=1), "#009E73", "^"),
    "MultimodalMGMKLD": (MultimodalMGMKLD(n_init=1), "#B2479C", "o"),
}
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")


def error(learner):
    return 100 * (1 - KNNClassifier(learner).fit(X[::2], odd[::2]).score(X[1::2], odd[1::2]))


euclidean, lda = error(None), error(LDA())
print(f"Euclidean, 64 pixels: {euclidean:.1f} %; LDA, one direction: {lda:.1f} %")
ax.axhline(euclidean, color="k", linewidth=1)
ax.text(1, euclidean + 0.3, "all 64 pixels")
ax.plot(1, lda, "D", color="k", label="LDA")
for name, (learner, color, mark) in family.items():
    values = [error(learner.set_params(n_components=q)) for q in dimensions]
    print(f"{name:18}", "  ".join(f"{value:4.1f}" for value in values))
    ax.plot(dimensions, values, color=color, marker=mark, label=name)
ax.set(xlabel="dimensions kept", ylabel="errors on new digits (%)", ylim=(0, None))
ax.legend(frameon=False)
plt.show()

# %%
# No line at all
# --------------
# Where no linear map will do, a kernel bends the space first. Each picture shows one learned
# coordinate, from low (dark) to high (light), of two rings. For the multimodal variant the classes
# are quarters of a plane, two for each class, as in the exclusive or.

rings, side = make_circles(300, noise=0.1, factor=0.45, random_state=0)
rng = np.random.default_rng(0)
corners = rng.uniform(-1.2, 1.2, size=(300, 2))
xor = (corners[:, 0] * corners[:, 1] > 0).astype(int)
panels = [
    (LDA(1), rings, side),
    (KernelDA(1), rings, side),
    (KernelMGMKLD(estimator=MGMKLD(1)), rings, side),
    (MultimodalKernelMGMKLD(estimator=MultimodalMGMKLD(1)), corners, xor),
]
ticks = np.linspace(-1.5, 1.5, 80)
grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 4, figsize=(11.4, 3.3), layout="constrained")
for ax, (learner, points, labels) in zip(axes, panels, strict=True):
    knn = KNNClassifier(learner).fit(points[::2], labels[::2])
    wrong = 1 - knn.score(points[1::2], labels[1::2])
    heights = knn.estimator_.transform(grid).reshape(80, 80)
    ax.contourf(ticks, ticks, heights, 14, cmap="Greys_r", alpha=0.7)
    for label in (0, 1):
        own = points[labels == label]
        ax.scatter(*own.T, s=16, c=colors[label], marker=marks[label], edgecolors="w", lw=0.5)
    ax.set_title(f"{type(learner).__name__}: {wrong:.0%} errors", fontsize=10)
    ax.set(xticks=[], yticks=[], aspect="equal")
plt.show()
