"""
A few groups of alike points
============================

Nobody knows the labels, but somebody can say of a few small groups that their points are alike:
frames of one film shot, answers of one speaker, parts from one machine. Such groups are called
chunklets. They show how points vary that should count as equal, and RCA takes that variation out
of the distance.
"""

# %%
# Three classes lie side by side. The noise is the same in all of them, and strong along a direction
# that says nothing of the class.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_spd_matrix

from nearfar import RCA, Chunklets, KNNClassifier

colors = ["#0072B2", "#D55E00", "#009E73"]  # told apart by all kinds of eyes
marks = ["o", "s", "^"]


def draw(n_samples, mixing, rng):
    """Three classes, one unit apart along the last coordinate before mixing."""
    p = len(mixing)
    y = rng.integers(0, 3, size=n_samples)
    noise = rng.normal(size=(n_samples, p))
    noise[:, -1] *= 0.22
    noise[:, -1] += y
    return noise @ mixing, y


rng = np.random.default_rng(1)
X, y = draw(90, np.array([[5, 3.6], [-0.58, 0.81]]), rng)
chunklets = Chunklets.from_labels(y, n_chunklets=6, chunklet_size=3, random_state=7)
print(chunklets)

# %%
# Six chunklets of three points each are all that RCA is told; the colours are for us. On the left
# the lines within the chunklets run along the noise. On the right the same points after the map:
# the noise is round, and the classes have come apart. Class 3 has no chunklet at all and comes
# apart as well, since its noise is that of the others.

rca = RCA().fit(X, supervision=chunklets)

figure, axes = plt.subplots(1, 2, figsize=(9.5, 5), layout="constrained")
for ax, points, title in [
    (axes[0], X, "before"),
    (axes[1], rca.transform(X), "after RCA"),
]:
    for members in chunklets.to_arrays(points):
        ring = np.vstack([members, members[:1]])
        ax.plot(*ring.T, color="k", linewidth=1, zorder=3)
    for c, (color, mark) in enumerate(zip(colors, marks, strict=True)):
        ax.scatter(*points[y == c].T, s=22, c=color, marker=mark, label=f"class {c + 1}", zorder=2)
    error = KNNClassifier(n_neighbors=3).fit(points, y).leave_one_out_error()
    ax.set_title(f"{title}: 3-NN leave-one-out error {error:.0%}", fontsize=11)
    ax.set(xlabel="first coordinate", ylabel="second coordinate")
    ax.set_aspect("equal", adjustable="datalim")
axes[0].plot([], [], color="k", linewidth=1, label="chunklet")
handles, labels = axes[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
plt.show()

# %%
# How many groups does it take? The same kind of data with ten features, mixed at random, and 3-NN
# on 400 points that took no part; means and standard errors over twenty draws. Each chunklet of
# three points adds two degrees of freedom, so five of them are just enough to see all ten
# directions. From a dozen on the error is close to that of RCA with every label.

n_features, n_draws = 10, 20
counts = [2, 4, 6, 8, 12, 16, 24, 32, 48]
curve = np.empty((n_draws, len(counts)))
plain, full = np.empty(n_draws), np.empty(n_draws)


def error(learner_map, train, test):
    knn = KNNClassifier(n_neighbors=3).fit(learner_map(train[0]), train[1])
    return 1 - knn.score(learner_map(test[0]), test[1])


for d in range(n_draws):
    rng = np.random.default_rng(d)
    mixing = make_spd_matrix(n_features, random_state=d)
    train, test = draw(200, mixing, rng), draw(400, mixing, rng)
    plain[d] = error(lambda points: points, train, test)
    full[d] = error(RCA().fit(*train).transform, train, test)
    for k, n_chunklets in enumerate(counts):
        known = Chunklets.from_labels(
            train[1], n_chunklets=n_chunklets, chunklet_size=3, random_state=d
        )
        curve[d, k] = error(RCA().fit(train[0], supervision=known).transform, train, test)

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
mean, spread = 100 * curve.mean(axis=0), 100 * curve.std(axis=0, ddof=1) / np.sqrt(n_draws)
blue, orange, green = colors
everything = 100 * full.mean()
ax.axhline(100 * plain.mean(), color=orange, linestyle="--", label="Euclidean")
ax.errorbar(counts, mean, spread, color=blue, marker="o", capsize=3, label="RCA, chunklets of 3")
ax.axhline(everything, color=green, linestyle=":", linewidth=2, label="RCA, all 200 labels")
ax.set(xlabel="number of chunklets", ylabel="3-NN error on new points (%)", ylim=(0, None))
ax.set_xscale("log", base=2)
ax.set_xticks(counts, [str(count) for count in counts])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

print(f"Euclidean {plain.mean():.1%}, all labels {full.mean():.1%}")
for n_chunklets, value in zip(counts, mean, strict=True):
    print(f"{n_chunklets:>2} chunklets {value:.1f}%")
