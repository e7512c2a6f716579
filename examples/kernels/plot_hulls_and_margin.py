"""
Convex hulls and the margin
===========================

A hard margin is half the distance between the convex hulls of two classes, and a kernel is learned
by making that distance as large as it can be. The multipliers of the program say where the hulls
come nearest; a bound C on them is what shrinks the hulls until they part.
"""

# %%
# On the left classes that a line parts: the nearest points of the hulls are weighted means of few
# points, those with a multiplier. The functional that kernels are learned by is one over the
# squared margin. On the right the classes overlap and have no margin. No point may then have more
# than a share of the weight, here C = 1, and what is left of the hulls is parted.

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

from nearfar.kernels import margin_value, margin_weights

random = np.random.default_rng(3)
y = np.repeat([0, 1], 16)
noise = random.standard_normal((32, 2))
figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for panel, apart, C in zip(panels, (4.2, 1.8), (None, 1.0), strict=True):
    X = noise + apart * np.outer(y, [1, 0.4])
    K = X @ X.T
    found = margin_weights([K], y, C=C, trace=np.trace(K))
    nearest = []
    for label, color in enumerate(["tab:blue", "tab:orange"]):
        own, weight = X[y == label], found.alpha[y == label]
        corners = ConvexHull(own).vertices
        panel.fill(*own[corners].T, color=color, alpha=0.15)
        panel.scatter(*own.T, s=18, color=color)
        panel.scatter(*own.T, s=260 * weight / weight.max(), facecolors="none", edgecolors=color)
        nearest.append(weight @ own / weight.sum())
    panel.plot(*np.array(nearest).T, "k.-", lw=1.5)
    # Where the machine's function is 0, and -1 and 1.
    w = X.T @ (np.where(y == 1, 1, -1) * found.alpha)
    middle = -found.intercept * w / (w @ w)
    along = np.array([-w[1], w[0]]) / np.linalg.norm(w)
    for level, style in ((0, "-"), (-1, ":"), (1, ":")):
        line = middle + level * w / (w @ w) + np.outer([-9, 9], along)
        panel.plot(*line.T, style, color="tab:gray", lw=1)
    distance = np.linalg.norm(nearest[0] - nearest[1])
    value = margin_value(K, y, C)
    if C is None:
        panel.set_title(f"hulls {distance:.2f} apart: margin {value**-0.5:.2f}")
    else:
        panel.set_title(f"hulls meet; shrunken, C = {C:g}, {distance:.2f} apart")
    low, high = X.min(axis=0) - 0.6, X.max(axis=0) + 0.6
    panel.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
plt.show()
