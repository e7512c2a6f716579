"""
Weights that are tensors of low rank
====================================

A linear classifier of images has a weight for each pixel. Tensor classifiers make these weights a
sum of ``rank`` products of a column and a row: fewer numbers to learn, and less that they can say.
Here are such weights for telling the digits 3 and 8 apart, what they cost and gain, and why hinges
need more than one mode at a time.
"""

# %%
# Ten images of each digit. Rank one is one column times one row; rank eight, the full rank of 8 × 8
# pixels, is ridge regression of the labels on all pixels, whose weights are on the right. Blue
# speaks for an 8, red for a 3.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from nearfar import LSSTM, STM

digits = load_digits()
pair = np.isin(digits.target, [3, 8])
images, y = digits.images[pair] / 16, digits.target[pair]


def split(size, seed):
    order = np.random.default_rng(seed).permutation(len(y))
    known = np.concatenate([order[y[order] == label][:size] for label in (3, 8)])
    return known, np.setdiff1d(order, known)


known, _ = split(10, 0)
ranks = [1, 2, 3, 8]
weights = [LSSTM(rank=rank).fit(images[known], y[known]).coef_[0] for rank in ranks]
flat = images[known].reshape(len(known), -1)
weights.append(Ridge(1.0).fit(flat, np.where(y[known] == 8, 1, -1)).coef_)

figure, row = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
largest = np.abs(weights).max()
for axes, weight, name in zip(row, weights, [f"rank {r}" for r in ranks] + ["ridge"], strict=True):
    axes.imshow(weight.reshape(8, 8), cmap="RdBu", vmin=-largest, vmax=largest)
    axes.set_title(name)
    axes.set_axis_off()
plt.show()

# %%
# Errors on all other images, means of ten draws. Nothing is gained here by the tensor form: rank
# two is about as good as ridge regression on the pixels, rank one worse. Digits are small and
# alike; the ridge alone makes do with few of them.

sizes = [5, 10, 20, 30]
machines = {"rank 1": LSSTM(), "rank 2": LSSTM(rank=2), "all pixels (rank 8)": LSSTM(rank=8)}
fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, machine in machines.items():
    errors = []
    for size in sizes:
        draws = [split(size, seed) for seed in range(10)]
        right = [machine.fit(images[a], y[a]).score(images[b], y[b]) for a, b in draws]
        errors.append(100 * (1 - np.mean(right)))
    axes.plot(sizes, errors, "o-", label=name)
axes.set(xlabel="images of each digit", ylabel="errors on new images, %", xticks=sizes)
axes.set_ylim(0, None)
axes.legend()
plt.show()

# %%
# A support tensor machine has hinges, and hinges have corners. Alternation, one mode at a time,
# stops where no mode alone can leave a corner: each thin line is a start of its own, and each ends
# elsewhere. All factors together, under hinges that are rounded at first, go on to the dashed line,
# the best value that is known of these made-up tensors of shape 5 × 4 × 3.

random = np.random.default_rng(3)
side = np.where(np.arange(60) % 2, -1, 1)
X = random.standard_normal((60, 5, 4, 3))
X += 0.5 * side[:, None, None, None] * random.standard_normal((5, 4, 3))

fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for seed in range(8):
    alone = STM(init="random", refine=None, random_state=seed).fit(X, side)
    steps = alone.history_["objective"]
    axes.plot(range(1, len(steps) + 1), steps, color="tab:gray", lw=1)
    axes.plot(len(steps), steps[-1], "o", color="tab:gray", ms=4)
together = STM().fit(X, side)
axes.axhline(together.objective_, ls="--", label="all factors together, then alternation")
axes.plot([], [], "o-", color="tab:gray", lw=1, ms=4, label="alternation, eight starts")
axes.set(yscale="log", xlabel="steps of one mode", ylabel="objective")
axes.legend()
plt.show()
