"""
The modes of an image
=====================

A map of tensors has one small matrix for the rows of an image and one for its columns. It has
little to learn, and so needs few images; it also can do less than a map of all pixels, and so is
overtaken where there are many. Both are seen here on digits of 8 × 8 pixels.
"""

# %%
# Each column of a factor is a curve along its mode. The product of two, one from each mode, is an
# eigen-tensor: what an image has of it is one of the numbers that :class:`~nearfar.GTA` keeps. On
# the right images that took no part in learning, and what sixteen numbers keep of them.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nearfar import GTA, PCA

images = load_digits().images
gta = GTA(4).fit(images[:400])
held_out = images[1000:1005]
rebuilt = gta.inverse_transform(gta.transform(held_out))

figure = plt.figure(figsize=(11, 5), layout="constrained")
left, middle, right = figure.subfigures(1, 3, width_ratios=[1.1, 1.4, 1])
for place, (axes, name) in enumerate(zip(left.subplots(2, 1), ("rows", "columns"), strict=True)):
    axes.plot(gta.factors_[place])
    axes.set(title=f"factor of the {name}", xticks=range(8), yticks=[])
for number, axes in enumerate(middle.subplots(4, 4).ravel()):
    axes.imshow(gta.components_[number].reshape(8, 8), cmap="gray")
    axes.set_axis_off()
middle.suptitle("16 eigen-tensors")
for row, pair in zip(right.subplots(5, 2), zip(held_out, rebuilt, strict=True), strict=True):
    for axes, image in zip(row, pair, strict=True):
        axes.imshow(image, cmap="gray_r")
        axes.set_axis_off()
right.suptitle("as it is, and rebuilt")
plt.show()

# %%
# How much of new images is lost with sixteen numbers, by how many images there were to learn from?
# PCA looks for sixteen directions among 64 pixels, GTA for four among eight rows and four among
# eight columns. With twenty images GTA loses less. From thirty on it is overtaken: sixteen free
# pictures hold more of a digit than sixteen products do.

sizes, lost = [15, 20, 30, 40, 60, 100, 200], {"PCA(16)": [], "GTA(4)": []}
flat = images.reshape(len(images), -1)
for size in sizes:
    shares = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(images))
        known, new = flat[order[:size]], flat[order[-1000:]]
        total = ((new - new.mean(axis=0)) ** 2).sum()
        for learner in (PCA(min(16, size - 1)), GTA(4, tensor_shape=(8, 8))):
            found = learner.fit(known).transform(new) @ learner.components_ + learner.mean_
            shares.append(((new - found) ** 2).sum() / total)
    for name, values in zip(lost, np.reshape(shares, (10, 2)).T, strict=True):
        lost[name].append(100 * values.mean())

fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in lost.items():
    axes.plot(sizes, values, "o-", label=name)
axes.set(xscale="log", xticks=sizes, xticklabels=sizes, ylim=(0, None))
axes.set(xlabel="images to learn from", ylabel="variance of new images lost, %")
axes.minorticks_off()
axes.legend()
plt.show()
