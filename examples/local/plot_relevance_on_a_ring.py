"""
Which feature matters where
===========================

Six features of which two matter, and each of them only in some places: the class says whether the
first two lie outside of a circle. Left and right of the middle the boundary is crossed along the
first feature, above and below along the second. No single metric can say so; the rules of Friedman
and ADAMENN can.
"""

# %%
# Friedman's machete begins with all rows. It looks along which feature alone the shares of classes
# at the query differ most from those in the region, and keeps the seven tenths of the region that
# are nearest along it; then it looks again. So the region is a box, drawn for one query (the
# cross) after every second cut; points that are left are dark. The first cut is along the second
# feature, the next five along the first. By then 70 rows are left, and which feature they take for
# the most relevant is mostly chance: later cuts go along features that say nothing.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, Rectangle

from nearfar import ADAMENNClassifier, FriedmanClassifier
from nearfar.datasets import make_few_relevant

X, outside = make_few_relevant("ring", n_samples=600, random_state=1)
query = np.array([[1.15, 0.1, 0, 0, 0, 0]])

machete = FriedmanClassifier(variant="machete").fit(X, outside)
steps = range(0, len(machete.region_sizes()) - 1, 2)
figure, frames = plt.subplots(1, len(steps), figsize=(2.4 * len(steps), 2.8), layout="constrained")
for axes, step in zip(frames, steps, strict=True):
    low, high = machete.regions_at(query, step=step)[0].T
    inside = ((low <= X) & (high >= X)).all(axis=1)
    shades = np.where(outside, "tab:blue", "tab:orange")
    axes.scatter(*X[~inside, :2].T, s=4, color=shades[~inside], alpha=0.2)
    axes.scatter(*X[inside, :2].T, s=10, color=shades[inside])
    axes.add_patch(Circle((0, 0), 1.4**0.5, fill=False, color="tab:gray"))
    low, high = np.clip(low, -2.9, None), np.clip(high, None, 2.9)
    axes.add_patch(Rectangle(low[:2], *(high - low)[:2], fill=False, lw=2))
    axes.plot(*query[0, :2], "kx")
    axes.set(title=f"cut {step + 1}: {inside.sum()} left", aspect="equal")
    axes.set(xlim=(-3, 3), ylim=(-3, 3), xticks=[], yticks=[])
plt.show()

# %%
# The weights of all features over the plane of the first two, the others being zero: the first
# feature, the second, and the other four together, which should count nothing. The scythe cuts
# along all features at once. Its first cut sees each feature alone, over all rows, and where the
# classes there are mixed as everywhere (near 1 and -1) it finds nothing. The mean over its cuts,
# which is what ``explain`` shows, has no such holes; in the middle of the circle, where one class
# is soon all that is left, most of it is chance. ADAMENN looks at the rows around the query from
# the start.

ticks = np.linspace(-2.4, 2.4, 41)
plane = np.zeros((41 * 41, 6))
plane[:, :2] = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
scythe = FriedmanClassifier().fit(X, outside)
adamenn = ADAMENNClassifier(weight_scale=20.0).fit(X, outside)
maps = {
    "scythe, first cut": scythe.relevance_at(plane),
    "scythe, all cuts": scythe.explain(plane).relevance,
    "ADAMENN": adamenn.weights_at(plane),
}
names = ["first feature", "second feature", "the other four"]
figure, grid = plt.subplots(3, 3, figsize=(8.4, 8), layout="constrained")
for row, (method, weights) in zip(grid, maps.items(), strict=True):
    shares = np.c_[weights[:, :2], weights[:, 2:].sum(axis=1)].reshape(41, 41, 3)
    for axes, share in zip(row, np.moveaxis(shares, 2, 0), strict=True):
        extent = (-2.4, 2.4, -2.4, 2.4)
        drawn = axes.imshow(share, origin="lower", extent=extent, vmin=0, vmax=1, cmap="viridis")
        axes.add_patch(Circle((0, 0), 1.4**0.5, fill=False, color="white"))
        axes.set(xticks=[], yticks=[])
    row[0].set_ylabel(method)
for axes, name in zip(grid[0], names, strict=True):
    axes.set_title(name)
figure.colorbar(drawn, ax=grid, shrink=0.6, label="share of the weight")
plt.show()
