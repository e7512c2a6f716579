"""
Labels, pairs, groups, comparisons, nothing
===========================================

One data set, and five things that somebody may know of it. How far does each of them go, and how
many judged pairs are worth a set of labels?
"""

# %%
# Three classes in ten dimensions, of which two tell them apart; the spread is different in every
# direction, and all is mixed. The error is that of 3-NN on 500 new points, whose neighbours are
# 300 labelled ones: the labels serve to measure, and only LMNN is told them.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import ITML, LMNN, LSML, MMC, PCA, RCA, Chunklets, KNNClassifier, Pairs, Quadruplets

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"]


def draw(rng, n, centers, mixing):
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 10)) * np.geomspace(0.25, 3, 10)
    X[:, :2] += centers[y]
    return X @ mixing, y


def error(learner, train, test):
    near = KNNClassifier(n_neighbors=3).fit(learner.transform(train[0]), train[1])
    return 1 - near.score(learner.transform(test[0]), test[1])


def told(train, seed):
    """Learners, each with what it is told."""
    X, y = train
    pairs = Pairs.from_labels(y, n_similar=150, n_dissimilar=150, random_state=seed)
    groups = Chunklets.from_labels(y, n_chunklets=30, chunklet_size=4, random_state=seed)
    nearer = Quadruplets.from_labels(y, n_quadruplets=300, random_state=seed)
    return {
        "nothing (PCA, whitened)": PCA(whiten=True).fit(X),
        "300 comparisons (LSML)": LSML().fit(X, supervision=nearer),
        "300 pairs (MMC)": MMC().fit(X, supervision=pairs),
        "300 pairs (ITML)": ITML().fit(X, supervision=pairs),
        "30 groups of 4 (RCA)": RCA().fit(X, supervision=groups),
        "300 labels (LMNN)": LMNN().fit(X, y),
    }


n_draws, errors = 10, {}
centers = np.array([[0, 0], [1.2, 0], [0, 1.2]])
for seed in range(n_draws):
    rng = np.random.default_rng(seed)
    centers, mixing = (
        np.array([[0, 0], [1.2, 0], [0, 1.2]]),
        np.linalg.qr(rng.normal(size=(10, 10)))[0],
    )
    train, test = draw(rng, 300, centers, mixing), draw(rng, 500, centers, mixing)
    for name, learner in told(train, seed).items():
        errors.setdefault(name, []).append(error(learner, train, test))

figure, ax = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
names = list(errors)
means = [100 * np.mean(errors[name]) for name in names]
spread = [100 * np.std(errors[name], ddof=1) / np.sqrt(n_draws) for name in names]
ax.barh(names, means, xerr=spread, color=COLORS[0], alpha=0.8, capsize=3)
ax.invert_yaxis()
ax.set(xlabel="3-NN error on new points (%), mean and standard error of ten draws")
plt.show()
for name, mean in zip(names, means, strict=True):
    print(f"{name:<26} {mean:.1f} %")

# %%
# How many pairs? The same data; half of the pairs alike, half different.

counts = [20, 50, 100, 200, 500, 1000]
curves = {"MMC": [], "ITML": []}
for count in counts:
    found = {name: [] for name in curves}
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        mixing = np.linalg.qr(rng.normal(size=(10, 10)))[0]
        train, test = draw(rng, 300, centers, mixing), draw(rng, 500, centers, mixing)
        pairs = Pairs.from_labels(
            train[1], n_similar=count // 2, n_dissimilar=count // 2, random_state=seed
        )
        for name, learner in (("MMC", MMC()), ("ITML", ITML())):
            found[name].append(error(learner.fit(train[0], supervision=pairs), train, test))
    for name, values in found.items():
        curves[name].append(100 * np.mean(values))

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, curve), color, mark in zip(curves.items(), COLORS, "os", strict=False):
    ax.plot(counts, curve, color=color, marker=mark, label=name)
ax.axhline(means[0], color=COLORS[3], linestyle="--", label="nothing known")
ax.axhline(means[-1], color=COLORS[2], linestyle=":", linewidth=2, label="LMNN, 300 labels")
ax.set_xscale("log")
ax.set_xticks(counts, [str(count) for count in counts])
ax.minorticks_off()
ax.set(xlabel="judged pairs", ylabel="3-NN error on new points (%)", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
