"""
Two views, one of them noise
============================

Kernels of several views of the same rows, such as a spectrum and a picture, are weighted to be
added. Here one view tells two classes apart, as far as they can be told apart, and the other is
noise. Which learners of kernels find out?
"""

# %%
# Two half-moons, blurred, beside two columns of noise; and two Gaussians in five columns beside
# five of noise. Each view has three rbf kernels, from wide to narrow. 150 rows train, 400 test a
# support vector machine on the learned kernel; means of eight draws, with standard errors.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from nearfar import AlignmentKernelLearner, AverageKernelLearner, EasyMKL, MarginKernelLearner


def half_moons(seed):
    """Two columns that matter, and the classes."""
    return make_moons(550, noise=0.35, random_state=seed)


def gaussians(seed):
    """Five columns that matter, and the classes."""
    y = np.arange(550) % 2
    return np.random.default_rng(seed).standard_normal((550, 5)) + y[:, None], y


def learners_of(kernels):
    """What is compared; the first knows which view is noise."""
    return {
        "mean, without noise": AverageKernelLearner(kernels[:3]),
        "mean of all": AverageKernelLearner(kernels),
        "EasyMKL": EasyMKL(kernels),
        "margin, C = 10": MarginKernelLearner(kernels, C=10.0),
        "margin, C = 0.1": MarginKernelLearner(kernels, C=0.1),
        "alignment": AlignmentKernelLearner(kernels),
    }


def shares_and_errors(make, gammas, n_draws=8):
    """Shares of the six kernels, and errors in percent, for each learner and draw."""
    shares, errors = np.zeros((6, 6)), np.zeros((6, n_draws))
    for draw in range(n_draws):
        X, y = make(draw)
        p = X.shape[1]
        X = np.hstack([X, np.random.default_rng(100 + draw).standard_normal(X.shape)])
        views = list(range(p)), list(range(p, 2 * p))
        kernels = [("rbf", {"gamma": g, "columns": view}) for view in views for g in gammas]
        for i, learner in enumerate(learners_of(kernels).values()):
            learner.fit(X[:150], y[:150])
            share = learner.weights_ / learner.weights_.sum()
            shares[i, : len(share)] += share / n_draws
            machine = SVC(kernel=learner.kernel).fit(X[:150], y[:150])
            errors[i, draw] = 100 * (1 - machine.score(X[150:], y[150:]))
    return shares, errors


# %%
# The margin program sees that a narrow kernel, of noise or not, parts any training rows; with a
# large C it gives up to half of the weight to noise, and EasyMKL does too. To alignment noise is
# noise. But weights are not errors: a kernel by which no row is like another adds much the same to
# all machines, which then err little more; and alignment takes wide kernels, which tells the
# Gaussians apart and not the moons.

figure, panels = plt.subplots(
    2, 2, figsize=(9, 6), layout="constrained", sharey=True, width_ratios=(3, 2)
)
sets = {"half-moons": (half_moons, (0.1, 1, 10)), "Gaussians": (gaussians, (0.02, 0.2, 2))}
colors = [*plt.colormaps["Blues"]([0.35, 0.6, 0.9]), *plt.colormaps["Oranges"]([0.35, 0.6, 0.9])]
widths = [
    f"{view}, {width}" for view in ("view", "noise") for width in ("wide", "medium", "narrow")
]
names = list(learners_of([]))
places = np.arange(len(names))
for (title, (make, gammas)), (left, right) in zip(sets.items(), panels, strict=True):
    shares, errors = shares_and_errors(make, gammas)
    starts = np.cumsum(shares, axis=1) - shares
    for k in range(6):
        left.barh(places, shares[:, k], left=starts[:, k], color=colors[k], label=widths[k])
    left.set_yticks(places, names)
    left.set(title=title, xlabel="share of the learned kernel", xlim=(0, 1))
    spread = errors.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
    right.errorbar(errors.mean(axis=1), places, xerr=spread, fmt="ko", capsize=3)
    right.set(title=title, xlabel="errors on new rows, %")
    right.grid(axis="x", lw=0.4)
panels[0, 0].invert_yaxis()
figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()
