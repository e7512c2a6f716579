"""
Classes that differ in shape only
=================================

LDA knows a mean for each class, and one covariance for all. Two classes about the same mean it
cannot tell apart, however different they look. Other methods give each class a covariance of its
own. After figures 2.4 and 2.5 of Tao's thesis on subspace methods.
"""

# %%
# A round class and a long one, with one mean. A single direction is to be kept. On the left the
# lines that the learners choose; on the right the error that each direction has on new points, with
# a Gaussian for each class. Four learners choose the same.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import HDA, HLDA, LDA, MGMKLD, ODA, MinimumMahalanobisClassifier
from nearfar.datasets import make_unequal_covariances

X, y = make_unequal_covariances(random_state=0)
X_new, y_new = make_unequal_covariances(10_000, random_state=1)
blue, orange = "#0072B2", "#D55E00"
learners = {
    "LDA": (LDA(1), "k", 9),
    "HDA, Jelinek": (HDA(1), "0.5", 9),
    "HDA, Kumar-Andreou": (HDA(1, criterion="kumar_andreou"), "#E69F00", 20),
    "HLDA": (HLDA(1), "#56B4E9", 15),
    "ODA": (ODA(1), "#009E73", 10),
    "MGMKLD": (MGMKLD(1), "#B2479C", 5),
}


def error_along(angle):
    """Error of the Gaussian rule when only this direction is kept."""
    direction = np.array([[np.cos(angle)], [np.sin(angle)]])
    rule = MinimumMahalanobisClassifier(rule="gaussian").fit(X @ direction, y)
    return 1 - rule.score(X_new @ direction, y_new)


def angle_of(direction):
    return np.arctan2(direction[1], direction[0]) % np.pi


angles = np.linspace(0, np.pi, 91)
figure, (plane, ax) = plt.subplots(
    1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=[1, 1.3]
)
plane.scatter(*X[y == 1].T, s=9, c=orange, marker="s", alpha=0.5, linewidths=0, label="long")
plane.scatter(*X[y == 0].T, s=9, c=blue, marker="o", alpha=0.5, linewidths=0, label="round")
plane.set(aspect="equal", xlim=(-9, 9), ylim=(-9, 9), xticks=[], yticks=[])
ax.plot(np.degrees(angles), [100 * error_along(angle) for angle in angles], color="0.6", zorder=0)
for name, (learner, color, size) in learners.items():
    direction = learner.fit(X, y).components_[0]
    angle = angle_of(direction)
    error = error_along(angle)
    print(f"{name:18} {np.degrees(angle):5.0f}°  {error:.1%} errors")
    plane.axline((0, 0), direction, color=color, linewidth=size / 3)
    ax.plot(np.degrees(angle), 100 * error, "o", c=color, markersize=size, label=name)
ax.set(xlabel="angle of the direction (degrees)", ylabel="errors (%)", xticks=range(0, 181, 30))
ax.legend(frameon=False, labelspacing=1)
plane.legend(loc="lower center", ncols=2, frameon=False, markerscale=2)
plt.show()

# %%
# What differs between the sample means is chance, and LDA follows it. HDA in Jelinek's reading also
# begins from the means. The others look at the shapes: along the ellipse they differ most.
#
# How much equality?
# ------------------
# MGMKLD subtracts ``equality_weight`` times the logarithm of the mean divergence, which asks for
# equal divergences. Two classes have two, of the one from the other and back. With
# ``equality_weight=2``, the largest value that two classes allow, nothing but equality counts, and
# equal they are where they vanish: the classes are merged. nearfar's default for two classes is 1.

covariances = [np.cov(X[y == label].T, bias=True) for label in (0, 1)]
directions = np.stack([np.cos(angles), np.sin(angles)])
variances = [np.einsum("ik,ij,jk->k", directions, S, directions) for S in covariances]
ratio = variances[0] / variances[1]
there, back = (ratio - 1 - np.log(ratio)) / 2, (1 / ratio - 1 + np.log(ratio)) / 2

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
degrees = np.degrees(angles)
axes[0].plot(degrees, there, color=blue, label="round from long")
axes[0].plot(degrees, back, color=orange, linestyle="--", label="long from round")
axes[0].set(title="Kullback-Leibler divergences", yscale="log", xlabel="angle (degrees)")
for weight, line in zip((0, 1, 2), ("-", "--", ":"), strict=True):
    L = np.log(there) + np.log(back) - weight * np.log((there + back) / 4)
    best = np.argmax(L)
    axes[1].plot(degrees, L, color="#B2479C", linestyle=line, label=f"equality_weight={weight}")
    axes[1].plot(degrees[best], L[best], "o", color="#B2479C")
    errors = error_along(angles[best])
    print(f"equality_weight={weight}: best at {degrees[best]:.0f}°, {errors:.0%} errors")
axes[1].set(title="what MGMKLD maximises", xlabel="angle (degrees)")
for ax in axes:
    ax.set_xticks(range(0, 181, 30))
    ax.legend(frameon=False)
plt.show()
