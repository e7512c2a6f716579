"""
Which pairs of classes overlap, and what PARDA does about it
============================================================

:class:`~nearfar.PARDA` takes the divergence of every pair of classes for an objective of its own.
All of them cannot be largest in one subspace; they are weighed, and a pair weighs the more, the
closer LDA leaves it. After figures 4.4 and 4.5 of Abou-Moustafa's thesis on metric learning.
"""

# %%
# Two dimensions for three classes
# --------------------------------
# Iris and wine, standardised, by six maps. The errors are those of the nearest class mean in the
# metric of its own covariance, the rule of that thesis, over five folds. (The thesis has new
# thyroid in the place of wine.)

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import scale

from nearfar import DLDA, LDA, MGMKLD, PARDA, PCA, MinimumMahalanobisClassifier
from nearfar.datasets import make_five_classes

maps = {
    "PCA": PCA(2),
    "DLDA": DLDA(2),
    "LDA": LDA(2),
    "PARDA, equal weights (MODA)": PARDA(2, weights="uniform"),
    "PARDA, one-vs-one": PARDA(2),
    "PARDA, one-vs-all": PARDA(2, pairing="one_vs_all"),
}
colors, marks = ["#0072B2", "#D55E00", "#009E73"], ["o", "s", "^"]
folds = StratifiedKFold(5, shuffle=True, random_state=0)
for title, load in {"iris": load_iris, "wine": load_wine}.items():
    X, y = load(return_X_y=True)
    X = scale(X)
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
    for ax, (name, learner) in zip(axes.flat, maps.items(), strict=True):
        scores = cross_val_score(MinimumMahalanobisClassifier(learner), X, y, cv=folds)
        Z = learner.fit(X, y).transform(X)
        for label in range(3):
            own = Z[y == label]
            style = {"c": colors[label], "marker": marks[label], "alpha": 0.6, "linewidths": 0}
            ax.scatter(*own.T, s=16, **style)
        ax.set_title(f"{name}: {1 - scores.mean():.1%}", fontsize=11)
        ax.set(xticks=[], yticks=[])
        print(f"{title} {name:28} {1 - scores.mean():.1%} errors")
    figure.suptitle(title)
    plt.show()

# %%
# PARDA is hardly better than LDA here; the picture of iris shows how little room there is.
#
# Ten pairs of five classes
# -------------------------
# Here every class has a covariance of its own, of large and small variances, and four dimensions
# are kept. The pictures show the divergences J of all pairs: the dark ones are small, where classes
# overlap. They are those of the covariances as they are.

X, y, _, _ = make_five_classes(variances="literal", random_state=0)
even = PARDA(4, weights="uniform", shrinkage=0).fit(X, y)
parda = PARDA(4, shrinkage=0).fit(X, y)
shown = {
    "LDA": parda.initial_divergences_,
    "PARDA, equal weights (MODA)": even.divergences_,
    "PARDA": parda.divergences_,
}
figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
limits = {"vmin": 1, "vmax": np.log10(max(J.max() for J in shown.values()))}
for ax, (name, J) in zip(axes, shown.items(), strict=False):
    np.fill_diagonal(J := J.copy(), np.nan)
    image = ax.imshow(np.log10(J), cmap="cividis", **limits)
    for i, j in np.argwhere(np.isfinite(J)):
        light = np.log10(J[i, j]) > 1.8
        ax.text(j, i, f"{J[i, j]:.0f}", ha="center", va="center", color="k" if light else "w")
    ax.set_title(f"{name}\nleast J: {np.nanmin(J):.1f}", fontsize=10)
    ax.set(xticks=range(5), yticks=range(5), xlabel="class")
axes[0].set_ylabel("class")

names = ["LDA", "equal", "1-vs-1", "1-vs-all", "MGMKLD"]
learners = [
    LDA(4),
    PARDA(4, weights="uniform"),
    PARDA(4),
    PARDA(4, pairing="one_vs_all"),
    MGMKLD(4, n_init=2),
]
draws = [make_five_classes(variances="literal", random_state=seed) for seed in range(5)]


def error(learner, X, y, X_new, y_new):
    return 1 - MinimumMahalanobisClassifier(learner).fit(X, y).score(X_new, y_new)


errors = np.array([[error(learner, *draw) for learner in learners] for draw in draws])
for name, column in zip(names, errors.T, strict=True):
    print(f"{name:8} {column.mean():.1%}")
fill = ["k", "#56B4E9", "#0072B2", "#009E73", "#B2479C"]
axes[3].plot(100 * errors.T, color="0.8", linewidth=1, zorder=0)
axes[3].scatter(range(len(names)), 100 * errors.mean(axis=0), c=fill, s=50)
axes[3].set_xticks(range(len(names)), names, fontsize=8)
axes[3].set_title("errors in % on new points,\nfive draws and their mean", fontsize=10)
axes[3].set_ylim(0, None)
plt.show()

# %%
# LDA leaves two pairs close. A plain sum of divergences enlarges those most that are large already;
# with the weights close pairs come apart too. Errors, with half of each covariance the pooled one,
# are least for pairs of classes, about as for :class:`~nearfar.MGMKLD`. In two dimensions for five
# classes it keeps some of the gain: its weights are those of the subspace it ends in, so that no
# pair is given up.

for learner in LDA(2), PARDA(2):
    mean = np.mean([error(learner, *draw) for draw in draws])
    print(f"two dimensions, {type(learner).__name__:5} {mean:.1%} errors")
