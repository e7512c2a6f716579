"""
LDA from a stream
=================

LDA needs of its data only the class means and one scatter matrix. So it can read them batch by
batch and forget every row; new classes may turn up at any time. What comes out is what one fit on
everything would have given.
"""

# %%
# Handwritten digits arrive in batches of 60: at first only zeros to threes, later fours to sixes
# among them, in the end all ten.

import pickle

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from nearfar import LDA, ClassStatistics

X, y = load_digits(return_X_y=True)
X = np.sqrt(X)  # pixels are counts: the root makes their noise even
X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)

rng = np.random.default_rng(1)
appears = np.array([0, 0, 0, 0, 0.5, 0.5, 0.5, 0.75, 0.75, 0.75])[y]
order = np.argsort(rng.uniform(appears, 1))
X, y = X[order], y[order]
batches = [slice(start, start + 60) for start in range(0, len(X), 60)]

# %%
# ``partial_fit`` only accumulates; the eigenproblem is solved when something learned is asked for.
# The statistics also hold the class means, and the nearest mean after the map is Fisher's
# classifier: a classifier that keeps no row.


def nearest_mean(lda, points):
    means = lda.transform(lda.statistics_.means)
    return lda.classes_[cdist(lda.transform(points), means).argmin(axis=1)]


lda = LDA()
rows, n_classes, errors, known_errors, kept = [], [], [], [], []
for batch in batches:
    lda.partial_fit(X[batch], y[batch])
    predicted = nearest_mean(lda, X_test)
    known = np.isin(y_test, lda.classes_)
    rows.append(int(lda.statistics_.counts.sum()))
    n_classes.append(len(lda.classes_))
    errors.append(np.mean(predicted != y_test))
    known_errors.append(np.mean(predicted[known] != y_test[known]))
    kept.append(len(pickle.dumps(lda.statistics_)))

whole = LDA().fit(X, y)
gap = np.abs(pdist(lda.transform(X_test)) / pdist(whole.transform(X_test)) - 1).max()
print(f"largest relative difference of a distance to that of one fit: {gap:.0e}")
assert gap < 1e-10
print(f"error on all ten digits after the last batch: {errors[-1]:.1%}")

# %%
# A class that has not come yet cannot be predicted, so the error on all digits falls in steps as
# the classes appear. The memory holds a 64×64 matrix and one mean for each class, however many
# rows went by.

blue, orange, green = "#0072B2", "#D55E00", "#009E73"
figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(7.5, 6), sharex=True, layout="constrained", height_ratios=[3, 2]
)
every, known = 100 * np.array(errors), 100 * np.array(known_errors)
top.plot(rows, every, color=orange, marker="o", markersize=4, label="all ten digits")
top.plot(rows, known, color=blue, marker="s", markersize=4, label="digits seen so far")
top.set(ylabel="error on test digits (%)", ylim=(0, 80))
top.legend(frameon=False, loc="upper right")
for count in np.unique(n_classes):
    start = rows[n_classes.index(count)]
    for ax in (top, bottom):
        ax.axvline(start, color="0.75", linewidth=1, zorder=0)
    top.text(start, 81, f"{count} classes", ha="center", va="bottom", color="0.3")
gone = np.array(rows) * X[0].nbytes / 1e3
bottom.plot(rows, gone, color=orange, linestyle="--", label="rows gone by")
bottom.plot(rows, np.array(kept) / 1e3, color=green, label="statistics kept")
bottom.set(xlabel="rows seen", ylabel="size (kB)", ylim=(0, None))
bottom.legend(facecolor="white", edgecolor="none", framealpha=1, loc="upper left")
plt.show()

print(f"rows gone by: {gone[-1]:.0f} kB; statistics kept: {kept[-1] / 1e3:.0f} kB")

# %%
# Two machines, or two files, each make their own statistics. Merged, they are those of all rows,
# and a learner solves from them without seeing any data.

half = len(X) // 2
one = ClassStatistics(pooled=True).partial_fit(X[:half], y[:half])
two = ClassStatistics(pooled=True).partial_fit(X[half:], y[half:])
merged = one.merge(two)
components = LDA().solve(merged)
print(merged)
print(f"largest difference of a component: {np.abs(components - whole.components_).max():.0e}")
