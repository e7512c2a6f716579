"""
Clusters that cross: points through the augmented space
=======================================================

Where two clusters cross, points of both are neighbours, and no distance between points can tell
them apart. :class:`~nearfar.AugmentedSpectralClustering` gives each point the covariance of its
neighbourhood, and compares these Gaussians. After chapter 5 of Abou-Moustafa's thesis on metric
learning.
"""

# %%
# Four pairs of clusters and four ways to find them; black rings are errors, and the numbers their
# share. ``metric="riemann"`` compares the covariances alone.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from nearfar import AugmentedSpectralClustering, SpectralClustering


def crossing_lines(noise, n=150, seed=0):
    random = np.random.default_rng(seed)
    t = random.uniform(-1, 1, size=2 * n)
    side = np.repeat([1, -1], n)
    return np.column_stack([t, side * t]) + noise * random.normal(size=(2 * n, 2)), side > 0


def round_clusters(n=150, seed=0):
    random = np.random.default_rng(seed)
    side = np.repeat([1, -1], n)
    return np.column_stack([2.2 * side, 0 * side]) + random.normal(size=(2 * n, 2)), side > 0


data = {
    "crossing lines": crossing_lines(0.02),
    "the same, more noise": crossing_lines(0.08),
    "round clusters": round_clusters(),
    "moons": make_moons(300, noise=0.08, random_state=0),
}
ways = {
    "spectral clustering": SpectralClustering(2),
    "augmented,\n8 neighbours": AugmentedSpectralClustering(2),
    "augmented,\n20 neighbours": AugmentedSpectralClustering(2, n_neighbors=20),
    'augmented, 20,\nmetric="riemann"': AugmentedSpectralClustering(
        2, n_neighbors=20, metric="riemann"
    ),
}
colors, marks = ["#0072B2", "#E69F00"], ["o", "s"]
figure, axes = plt.subplots(4, 4, figsize=(9.5, 9), layout="constrained")
for row, (title, (X, y)) in zip(axes, data.items(), strict=True):
    print(title)
    for ax, (name, way) in zip(row, ways.items(), strict=True):
        found = way.fit(X).labels_
        if np.mean(found == y) < 0.5:
            found = 1 - found  # clusters have no names
        wrong = found != y
        for cluster in (0, 1):
            points = X[found == cluster].T
            ax.scatter(*points, s=7, c=colors[cluster], marker=marks[cluster], linewidths=0)
        ax.scatter(*X[wrong].T, s=22, facecolors="none", edgecolors="k", linewidths=0.6)
        ax.set(xticks=[], yticks=[])
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_xlabel(f"{wrong.mean():.0%} errors")
        if ax in axes[0]:
            ax.set_title(name, fontsize=10)
        print(f"  {' '.join(name.split()):34}{wrong.mean():.0%}")
    row[0].set_ylabel(title)
plt.show()

# %%
# Neighbourhoods along a line are long in its direction, so points of the two lines are far apart
# even where they meet. That needs neighbourhoods that are longer than the noise is wide, with more
# points than the default of 8. Where the noise is as wide, covariances say nothing, and what is
# left of them does harm.
#
# ``metric="riemann"`` forgets where points are. That is right for lines that cross, and wrong for
# clusters that differ in place only: round ones are cut into middle and rim. The last row shows the
# price of shapes: a moon changes its direction along its way, and points at its ends count as far
# apart. There ordinary spectral clustering is the method.
