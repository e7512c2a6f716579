"""
The large-margin loss at work
=============================

LMNN pulls each point's targets, its k nearest of the same class, and pushes away impostors: points
of other classes that are nearer than a target, or less than a margin farther. Here are some moments
of one fit in the plane. After figure 2.2 of Weinberger's thesis on metric learning.
"""

# %%
# Two classes lie in slanting stripes. Along a stripe points of a class are far apart, across it the
# other class is near. The frames come from Weinberger's own solver, stopped after more and more
# steps. It is not the default, for it can stall, but its small steps make good pictures.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import sqrtm
from sklearn.exceptions import ConvergenceWarning

from nearfar import LMNN

rng = np.random.default_rng(1)
y = np.repeat([0, 1, 0, 1], 20)
stripes = np.repeat([0.0, 0.9, 1.8, 2.7], 20)
X = np.column_stack([rng.uniform(-4, 4, len(y)), stripes + rng.normal(0, 0.12, len(y))])
cosine, sine = np.cos(np.deg2rad(25)), np.sin(np.deg2rad(25))
X = (X - X.mean(axis=0)) @ np.array([[cosine, sine], [-sine, cosine]])

frames = []
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # stopped on purpose
    for steps in (1, 200, 300, 1000):
        frames.append(LMNN(solver="projected_subgradient", max_iter=steps).fit(X, y))

# %%
# A map may be followed by any rotation; the symmetric root of M is the one that does not turn the
# picture. One point, the star, stands for all. The solid circle goes through its farthest target,
# the dashed one is the margin: there the squared distance is one more. Every point of the other
# class inside the dashed circle costs something and is pushed.

targets = frames[0].target_neighbors_
far = np.linalg.norm(X - X[targets[:, -1]], axis=1)  # how far the last target is
# In the middle, in one of the two inner stripes, the one with the longest way to its targets.
center = 20 + np.argmax(np.where(np.linalg.norm(X[20:60], axis=1) < 2, far[20:60], 0))
colors, marks = ["#0072B2", "#D55E00"], ["o", "s"]
angle = np.linspace(0, 2 * np.pi, 200)
circle = np.column_stack([np.cos(angle), np.sin(angle)])

figure, axes = plt.subplots(2, 2, figsize=(9.4, 7.6), layout="constrained")
for ax, lmnn in zip(axes.flat, frames, strict=True):
    Z = X @ np.real(sqrtm(lmnn.get_mahalanobis_matrix()))
    Z -= Z[center]
    squares = (Z**2).sum(axis=1)
    targets = lmnn.target_neighbors_[center]
    reach = squares[targets].max()
    impostors = np.flatnonzero((y != y[center]) & (squares < 1 + reach))
    for label in (0, 1):
        own = Z[y == label]
        ax.scatter(*own.T, s=30, c=colors[label], marker=marks[label], alpha=0.55, linewidths=0)
    for row in targets:
        ax.plot(*np.array([[0, 0], Z[row]]).T, color=colors[y[center]], linewidth=2, zorder=1)
    ax.scatter(*Z[targets].T, s=46, c=colors[y[center]], marker=marks[y[center]])
    for row in impostors:
        out = 0.45 * Z[row] / np.linalg.norm(Z[row])
        ax.annotate("", Z[row] + out, Z[row], arrowprops={"arrowstyle": "->", "color": "0.25"})
    others = colors[1 - y[center]]
    ax.scatter(*Z[impostors].T, s=46, c=others, marker=marks[1 - y[center]], edgecolors="k")
    ax.scatter(0, 0, s=190, c="k", marker="*", zorder=4)
    ax.plot(*(np.sqrt(reach) * circle).T, color="0.25", linewidth=1.2)
    ax.plot(*(np.sqrt(1 + reach) * circle).T, color="0.25", linewidth=1.2, linestyle="--")
    ax.set_title(
        f"step {lmnn.n_iter_}: loss {lmnn.objective_:.0f}; {len(impostors)} impostors of the star",
        fontsize=11,
    )
    ax.set(xlim=(-4.4, 4.4), ylim=(-3.5, 3.5), aspect="equal", xticks=[], yticks=[])
handles = [
    plt.Line2D([], [], color="k", marker="*", markersize=12, linestyle="", label="one point"),
    plt.Line2D([], [], color=colors[1], marker="s", linewidth=2, label="its targets, pulled"),
    plt.Line2D(
        [], [], color=colors[0], marker="o", mec="k", linestyle="", label="impostors, pushed"
    ),
    plt.Line2D([], [], color="0.25", label="farthest target"),
    plt.Line2D([], [], color="0.25", linestyle="--", label="margin"),
]
figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
plt.show()

# %%
# The map shrinks the direction of the stripes and stretches the one across. The last frame is the
# optimum, near enough. What is left of the loss is the pull and a few hinges. The default solver
# gets there in a few iterations and proves it: its ``dual_bound_`` is a loss that no map goes
# below.

lmnn = LMNN(n_impostors=None, n_passes=1, validation_fraction=0.0).fit(X, y)
print(f"loss {frames[-1].objective_:.2f} after {frames[-1].n_iter_} steps of the thesis' solver")
print(f"loss {lmnn.objective_:.2f} after {lmnn.n_iter_} iterations of L-BFGS")
print(f"hinges that are left: {lmnn.n_active_}, at first {frames[0].n_active_}")
print(f"no map has a loss below {lmnn.dual_bound_:.2f}")
