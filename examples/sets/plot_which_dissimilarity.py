"""
Sets of vectors: which dissimilarity sees what
==============================================

Sets of vectors can differ in where their vectors lie, in how they spread, or in both. Each measure
of :func:`~nearfar.distributions.dissimilarity` sees its part of that, and each has a situation that
breaks it.
"""

# %%
# Six situations, each of three classes. Sketched in two dimensions, a set is its mean and an
# ellipse; here are five of each class, which differ more than in what follows.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from nearfar import Gaussians, Sets
from nearfar.datasets import make_sets
from nearfar.distributions import dissimilarity


def moved(sets, by, random):
    """Each set at a place of its own."""
    shifts = by * random.normal(size=sets.shape)
    return Sets.from_list([rows + shift for rows, shift in zip(sets, shifts, strict=True)])


def with_outliers(sets, random):
    """Each set with one vector in twenty far away, in a direction of its own."""
    arrays = []
    for rows in sets:
        far = random.uniform(size=len(rows)) < 0.05
        arrays.append(np.where(far[:, None], 15 * random.normal(size=sets.n_features), rows))
    return Sets.from_list(arrays)


# Means, covariances: how much they differ between classes. Vectors in a set.
situations = {
    "means differ": (0.5, 0.0, (15, 40)),
    "covariances differ": (0.0, 0.25, (15, 40)),
    "both differ": (0.3, 0.2, (15, 40)),
    "both, sets at places of their own": (0.3, 0.5, (15, 40)),
    "both, one vector in twenty far off": (0.4, 0.5, (15, 40)),
    "both, fewer vectors than features": (0.15, 0.12, (8, 14)),
}


def draw(situation, seed):
    means, covariances, sizes = situations[situation]
    sets = make_sets(
        n_features=20 if "fewer" in situation else 6,
        means=means,
        covariances=covariances,
        sizes=sizes,
        random_state=seed,
    )
    return changed(sets, situation, seed), sets.labels


def changed(sets, situation, seed):
    random = np.random.default_rng([seed, 1])
    if "places" in situation:
        return moved(sets, 1.5, random)
    return with_outliers(sets, random) if "far off" in situation else sets


def sketched(situation):
    """Five sets of each class, in two dimensions."""
    random = np.random.default_rng(2)
    means, covariances, _ = situations[situation]
    arrays = []
    for k in range(15):
        angle = 2 * np.pi * (k % 3) / 3
        place = (means > 0) * 2.2 * np.array([np.cos(angle), np.sin(angle)])
        long = np.array([[np.cos(angle / 2), np.sin(angle / 2)], [0, 0]])
        root = 1.6 * long + 0.4 * np.eye(2) if covariances else np.eye(2)
        rows = random.normal(size=(3 if "fewer" in situation else 30, 2))
        arrays.append(rows @ root + place + 0.2 * random.normal(size=2))
    return changed(Sets.from_list(arrays), situation, 0), np.arange(15) % 3


colors, styles = ["#0072B2", "#E69F00", "#009E73"], ["-", "--", ":"]
figure, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
for ax, situation in zip(axes.flat, situations, strict=True):
    sets, y = sketched(situation)
    for (mean, covariance), label in zip(Gaussians.from_sets(sets, ridge=0.01), y, strict=True):
        variances, V = np.linalg.eigh(covariance)
        ax.add_patch(
            Ellipse(
                mean,
                *(2 * np.sqrt(variances)),
                angle=np.degrees(np.arctan2(V[1, 0], V[0, 0])),
                fill=False,
                color=colors[label],
                linestyle=styles[label],
            )
        )
        ax.plot(*mean, ".", color=colors[label], markersize=4)
    ax.set(xlim=(-5, 5), ylim=(-5, 5), aspect="equal", xticks=[], yticks=[])
    ax.set_title(situation, fontsize=10)
plt.show()

# %%
# Three nearest neighbours, each set left out in turn, over ten draws of 60 sets in six dimensions
# (20 in the last situation, with 8 to 14 vectors in each set). A dot is a draw, a bar the mean; by
# chance two of three are wrong.

measures = {
    "mean": "means only",
    "riemann": "$d_R$",
    "bhattacharyya_riemann": "$d_{BR}$",
    "jeffreys_riemann": "$d_{JR}$",
    "bhattacharyya": "$d_B$",
    "hellinger": "$d_H$",
    "jeffreys": "$d_J$",
}


def errors(D, y, k=3):
    """Share of sets that the majority of k others misses."""
    D = D + np.diag(np.full(len(D), np.inf))
    votes = y[np.argsort(D, axis=1, kind="stable")[:, :k]]
    counts = np.array([[np.sum(row == label) for label in np.unique(y)] for row in votes])
    counts = counts + 0.5 * (np.unique(y) == votes[:, :1])  # ties to the nearest
    return np.mean(counts.argmax(axis=1) != y)


found = {}
for situation in situations:
    for seed in range(10):
        sets, y = draw(situation, seed)
        D = dissimilarity(Gaussians.from_sets(sets), metric=list(measures))
        for measure in measures:
            found.setdefault((situation, measure), []).append(100 * errors(D[measure], y))

figure, axes = plt.subplots(2, 3, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
for ax, situation in zip(axes.flat, situations, strict=True):
    for place, measure in enumerate(measures):
        values = found[situation, measure]
        ax.plot(values, np.full(10, place), "o", color="0.6", markersize=3)
        ax.plot(np.mean(values), place, "|", color="#D55E00", markersize=16, markeredgewidth=2.5)
    ax.axvline(200 / 3, color="0.8", linewidth=1, zorder=0)
    ax.set_title(situation, fontsize=10)
    ax.set(xlim=(0, 75), yticks=range(len(measures)), yticklabels=measures.values())
axes[0, 0].invert_yaxis()
for ax in axes[1]:
    ax.set_xlabel("errors (%)")
plt.show()

width = max(map(len, situations))
print(" " * width, *(f"{measure[:10]:>11}" for measure in measures))
for situation in situations:
    means = [np.mean(found[situation, measure]) for measure in measures]
    print(f"{situation:{width}}", *(f"{mean:11.0f}" for mean in means))

# %%
# * Means alone, and covariances alone (:math:`d_R`), are best where only these differ, and blind
#   where they do not. All others see both.
# * Sets at places of their own are what most recordings and clips are: speakers and cameras move
#   the means, and what was said or done shapes the covariances. There :math:`d_R` is right, and
#   every measure that adds the means to it pays.
# * Vectors far off make variances large, and with them the ridge, which is the typical variance:
#   little is left of the covariances, and no measure does well.
# * With fewer vectors than features the ridge is part of every covariance, and decides.
#
# How much ridge?
# ---------------
# The last situation again, with a ridge in units of the typical variance. The default is 1.

shares = np.array([0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10])
shown = {
    "riemann": ("$d_R$", "#009E73", "s"),
    "bhattacharyya_riemann": ("$d_{BR}$", "#0072B2", "o"),
    "hellinger": ("$d_H$", "#E69F00", "^"),
    "jeffreys": ("$d_J$", "#CC79A7", "D"),
}
curves = {measure: np.zeros(len(shares)) for measure in shown}
level = 0.0
draws = [draw("both, fewer vectors than features", seed) for seed in range(6)]
for sets, y in draws:
    typical = Gaussians.from_sets(sets).added_ridge
    level += errors(dissimilarity(Gaussians.from_sets(sets), metric="mean"), y) / len(draws)
    for k, share in enumerate(shares):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # above 1 it says that covariances hardly count
            gaussians = Gaussians.from_sets(sets, ridge=share * typical)
        for measure, D in dissimilarity(gaussians, metric=list(shown)).items():
            curves[measure][k] += errors(D, y) / len(draws)

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for measure, (name, color, mark) in shown.items():
    ax.plot(shares, 100 * curves[measure], color=color, marker=mark, label=name)
ax.axhline(100 * level, color="0.4", linestyle="--", label="means only")
ax.axvline(1, color="0.8", linewidth=1, zorder=0)
ax.set(xscale="log", xlabel="ridge / typical variance", ylabel="errors (%)", ylim=(0, 67))
ax.legend(frameon=False, ncols=5, loc="lower center")
plt.show()

for measure, curve in curves.items():
    print(f"{measure:22}", *(f"{100 * error:4.0f}" for error in curve))

# %%
# The default, a ridge as large as the variances themselves, is right here: it leaves of the
# covariances what so few vectors can tell. Beyond, the measures come down to the distance of the
# means. With many vectors, and with outliers, less is better: choose it by cross-validation.
