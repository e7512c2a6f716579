"""
Neighbourhoods along a curved boundary
======================================

k-NN asks the points in a circle. Near a boundary half of the circle lies on the other side. DANN
makes an ellipse of it, long where the shares of the classes stay as they are and short where they
change; the boundary is curved, and so the ellipse turns from query to query. LFM-SVM has no
ellipses that turn: it looks for the nearest point of a support vector machine's boundary, and
weighs each feature by the direction in which the boundary is crossed there.
"""

# %%
# Two classes on the two sides of a wave, and six queries on it. Each curve is the neighbourhood of
# the 15 points that vote. The ellipse comes from ``metric_at``: all points at the distance of the
# last voter.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import DANNClassifier, KNNClassifier, LFMSVMClassifier

random = np.random.default_rng(0)
X = random.uniform([-3, -2], [3, 2], size=(1000, 2))
above = X[:, 1] > np.sin(1.5 * X[:, 0])
at = np.linspace(-2.4, 2.4, 6)
queries = np.c_[at, np.sin(1.5 * at)]
circle = np.array([np.cos(t := np.linspace(0, 2 * np.pi, 100)), np.sin(t)])


def draw(axes, title):
    axes.scatter(*X[above].T, s=5, color="tab:blue", alpha=0.6)
    axes.scatter(*X[~above].T, s=5, color="tab:orange", alpha=0.6)
    wave = np.linspace(-3, 3, 200)
    axes.plot(wave, np.sin(1.5 * wave), color="tab:gray", lw=1)
    axes.set(title=title, aspect="equal", xlim=(-3.05, 3.05), ylim=(-2.05, 2.05))
    axes.set_axis_off()


figure, row = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
draw(row[0], "15-NN: circles")
radii = KNNClassifier(n_neighbors=15).fit(X, above).kneighbors(queries)[0][:, -1]
for query, radius in zip(queries, radii, strict=True):
    row[0].plot(*(query[:, None] + radius * circle), color="black")

draw(row[1], "DANN: ellipses along the boundary")
dann = DANNClassifier(n_neighbors=15, n_metric_neighbors=60, standardize=False).fit(X, above)
radii = dann.kneighbors(queries)[0][:, -1]
for query, metric, radius in zip(queries, dann.metric_at(queries), radii, strict=True):
    outline = np.linalg.solve(np.linalg.cholesky(metric).T, radius * circle)
    row[1].plot(*(query[:, None] + outline), color="black")
plt.show()

# %%
# LFM-SVM walks from each query to a point of the boundary (``boundary_points``), drawn as a line.
# What the gradient says there is drawn as an ellipse again, upright, since features are weighed
# and not mixed. Far from the boundary, as at the query on top, all features count alike.

figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
draw(axes, "LFM-SVM: a point of the boundary, and weights of features")
lfm = LFMSVMClassifier(n_neighbors=15, C=10.0, standardize=False).fit(X, above)
plane = np.stack(np.meshgrid(np.linspace(-3, 3, 121), np.linspace(-2, 2, 81)), axis=-1)
side = lfm.svc_.decision_function(plane.reshape(-1, 2)).reshape(plane.shape[:2])
axes.contour(plane[..., 0], plane[..., 1], side, levels=[0], colors="tab:green")
queries = np.array([[-2.2, -0.3], [-1, -1.35], [0, 0.4], [1.1, 0.6], [2.1, -0.4], [-0.6, 1.5]])
points, found = lfm.boundary_points(queries)
radii = lfm.kneighbors(queries)[0][:, -1]
for query, point, metric, radius in zip(
    queries, points, lfm.metric_at(queries), radii, strict=True
):
    axes.plot(*np.c_[query, point], "o-", color="tab:green", ms=3)
    axes.plot(*(query[:, None] + radius * circle / np.sqrt(np.diag(metric))[:, None]), "k")
plt.show()
