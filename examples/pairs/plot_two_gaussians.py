"""
Variance, groups, labels: one data set under PCA, RCA and LDA
=============================================================

A thousand points of two classes that lie side by side, each drawn out along the same direction.
PCA is told nothing, RCA a few groups of alike points, LDA every label. After figure 2.20 of
Weinberger's thesis on metric learning.
"""

# %%
# The two classes have one covariance, and their means differ across the direction of its largest
# variance. RCA is told what the thesis tells it: a tenth of the points, in chunklets of ten.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import LDA, PCA, RCA, Chunklets, KNNClassifier

rng = np.random.default_rng(0)
y = np.repeat([0, 1], 500)
turn = np.deg2rad(35)
axes = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
X = (rng.normal(size=(1000, 2)) * [4.0, 0.5] + np.outer(2 * y - 1, [0.0, 1.2])) @ axes
known = Chunklets.from_labels(y, n_chunklets=10, chunklet_size=10, random_state=0)
print(known)

# %%
# The first direction of PCA is the one that says nothing of the class. RCA makes the spread within
# chunklets round, and what is left is the way from one class to the other: with a tenth of the
# points and no label it comes to what LDA finds with all of them. (The prose of the thesis says
# that RCA amplifies the variance within classes. Its formula, and the picture, do the opposite.)

learners = {
    "PCA, told nothing": PCA(n_components=1),
    "RCA, told 10 groups of 10": RCA(n_components=1),
    "LDA, told all labels": LDA(n_components=1),
}
colors, marks = ["#0072B2", "#D55E00"], ["o", "s"]
figure, grid = plt.subplots(2, 3, figsize=(10.5, 6.4), layout="constrained", height_ratios=[1.5, 1])
for (above, below), (title, learner) in zip(grid.T, learners.items(), strict=True):
    guide = {"supervision": known} if isinstance(learner, RCA) else {"y": y}
    z = learner.fit(X, **guide).transform(X)[:, 0]
    error = KNNClassifier(n_neighbors=3).fit(z[:, None], y).leave_one_out_error()
    for label in (0, 1):
        own = X[y == label]
        above.scatter(*own.T, s=5, c=colors[label], marker=marks[label], alpha=0.35, linewidths=0)
        below.hist(
            z[y == label], bins=np.linspace(z.min(), z.max(), 45), color=colors[label], alpha=0.6
        )
    # Where distances are measured along: the row of the map.
    along = 5 * learner.components_[0] / np.linalg.norm(learner.components_[0])
    above.annotate("", along, -along, arrowprops={"arrowstyle": "<->", "linewidth": 2})
    above.set(title=title, aspect="equal", xticks=[], yticks=[])
    below.set(xlabel=f"the one direction kept: 3-NN error {error:.1%}", yticks=[])
plt.show()

# %%
# The map of RCA before it is cut to one direction: within the chunklets the covariance of the
# mapped points is the identity.

rca = RCA().fit(X, supervision=known)
groups = known.to_arrays(rca.transform(X))
inside = np.vstack([group - group.mean(axis=0) for group in groups])
print((inside.T @ inside / len(inside)).round(6) + 0.0)
