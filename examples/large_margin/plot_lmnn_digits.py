"""
Digits whose neighbour changed
==============================

What does a learned distance change? Here are handwritten digits whose nearest neighbour is of
another class before or after LMNN: those that it put right, and those that it spoilt. Figure 2.8 of
Weinberger's thesis on metric learning shows the first kind.
"""

# %%
# Half of the 1797 digits are learned from, the others look for their nearest neighbour among these.
# As in the thesis, the images are first cut to the principal components that hold 95 % of the
# variance.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from nearfar import LMNN, PCA, KNNClassifier

X, y = load_digits(return_X_y=True)
images, queries, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
pca = PCA(n_components=0.95).fit(images)
train, test = pca.transform(images), pca.transform(queries)
# The problem of the thesis: all impostors count, one pass, to the end.
published = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
lmnn = LMNN(n_neighbors=3, **published).fit(train, y_train)


def nearest(points, others):
    knn = KNNClassifier(n_neighbors=1).fit(points, y_train)
    return knn.kneighbors(others)[1][:, 0]


before = nearest(train, test)
after = nearest(lmnn.transform(train), lmnn.transform(test))
was_right, is_right = y_train[before] == y_test, y_train[after] == y_test
mended = np.flatnonzero(~was_right & is_right)
spoilt = np.flatnonzero(was_right & ~is_right)

print(f"{train.shape[1]} principal components, {len(train)} digits to learn from")
print(f"nearest neighbour changed: {np.mean(before != after):.0%} of {len(test)} digits")
print(f"errors before: {np.sum(~was_right)}, after: {np.sum(~is_right)}")
print(f"put right: {len(mended)}, spoilt: {len(spoilt)}")

# %%
# Each column is a digit with its nearest neighbour before and after. A frame in blue is a neighbour
# of the right class, one in orange, dashed, of a wrong class.


def draw(axes, pixels, title, right=None):
    axes.imshow(pixels.reshape(8, 8), cmap="gray_r", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10, pad=3)
    for spine in axes.spines.values():
        spine.set(linewidth=1 if right is None else 3)
        if right is not None:
            spine.set(color="#0072B2" if right else "#D55E00", linestyle="-" if right else "--")


def show(rows, what):
    rows = rows[:10]
    figure, axes = plt.subplots(
        3, len(rows), figsize=(1.05 * len(rows) + 0.9, 4.1), squeeze=False, layout="constrained"
    )
    figure.suptitle(what)
    for column, row in zip(axes.T, rows, strict=True):
        draw(column[0], queries[row], str(y_test[row]))
        for ax, found in ((column[1], before[row]), (column[2], after[row])):
            draw(ax, images[found], str(y_train[found]), y_train[found] == y_test[row])
    for ax, name in zip(axes[:, 0], ("query", "nearest\nbefore", "nearest\nafter"), strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
    plt.show()


show(mended, "put right by LMNN")

# %%

show(spoilt, "spoilt by LMNN")

# %%
# A new distance moves neighbours both ways. Most changes are between neighbours of the right class
# and do not show in the error. Where the plain distance is good to begin with, as here, the two
# kinds may balance, and a gallery of those put right would tell nothing. Count both, and compare
# them by a test for paired answers such as McNemar's.
