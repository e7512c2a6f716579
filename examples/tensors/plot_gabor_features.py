"""
Gabor functions, and what they see of a gait
============================================

A Gabor function is a wave under a bell: it answers where an image has structure of its length and
direction. Five lengths and eight directions make a bank of forty. This draws figures 3.11 to 3.14
of Tao's thesis, on drawn walkers.
"""

# %%
# The bank
# --------
# Real parts of the forty functions (figure 3.11). Each row is twice as long as the one above; the
# last two do not fit on the mask of 64 pixels any more, which holds 71 and 27 % of their energy.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import GaborFeatures
from nearfar.datasets import make_walkers
from nearfar.tensors import averaged_gait_images, gabor_bank

bank = gabor_bank()


def show(ax, image, **settings):
    ax.imshow(image, **({"cmap": "gray"} | settings))
    ax.set(xticks=[], yticks=[])


figure, axes = plt.subplots(5, 8, figsize=(8, 5.2), layout="constrained")
for (scale, direction), ax in np.ndenumerate(axes):
    kernel = bank[scale, direction].real
    size = np.abs(kernel).max()
    show(ax, kernel, vmin=-size, vmax=size)
for scale, ax in enumerate(axes[:, 0]):
    ax.set_ylabel(f"s = {scale}")
for direction, ax in enumerate(axes[0]):
    ax.set_title(f"{22.5 * direction:g}°", fontsize=9)
plt.show()

wide = np.linalg.norm(gabor_bank(n_orientations=1, mask_size=401)[:, 0], axis=(1, 2)) ** 2
held = np.linalg.norm(bank[:, 0], axis=(1, 2)) ** 2 / wide
print("energy on the mask:", ", ".join(f"{share:.0%}" for share in held))

# %%
# Forty answers to one image
# --------------------------
# Magnitudes of the responses to an averaged gait image (figure 3.12): fine scales see outlines,
# coarse ones the body; legs that swing answer to slanting waves.

walks, ids, periods = make_walkers(4, 2, random_state=3, conditions=["", "briefcase"])
images = np.array([averaged_gait_images(walk)[0] for walk in walks])
full = GaborFeatures(flatten=False).fit(images).transform(images)
print("one image becomes", full.shape[1:])

figure, axes = plt.subplots(5, 8, figsize=(8, 7.6), layout="constrained")
for (scale, direction), ax in np.ndenumerate(axes):
    show(ax, full[0, :, :, scale, direction])
plt.show()

# %%
# Fewer numbers
# -------------
# 112,640 numbers for one image of 64×44 pixels are many. The kernels may be summed over directions
# (GaborD), over scales (GaborS) or over both (GaborSD), and the magnitude taken of the sum (figure
# 3.13):


def box(ax, x, y, text):
    style = {"boxstyle": "round", "facecolor": "white", "edgecolor": "#0072B2"}
    ax.text(x, y, text, ha="center", va="center", bbox=style, fontsize=9)


figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
ways = {
    3: (r"$\psi_{s,d}$", "Gabor\n64 × 44 × 5 × 8"),
    2: (r"$\sum_d \psi_{s,d}$", "GaborD\n64 × 44 × 5"),
    1: (r"$\sum_s \psi_{s,d}$", "GaborS\n64 × 44 × 8"),
    0: (r"$\sum_{s,d} \psi_{s,d}$", "GaborSD\n64 × 44"),
}
for y, (kernel, name) in ways.items():
    for start, end in (((0.5, 1.5), (1.55, y)), ((2.45, y), (3.3, y)), ((4.2, y), (5.0, y))):
        ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.4"})
    box(ax, 2, y, kernel)
    box(ax, 3.75, y, r"$|\,I * \cdot\,|$")
    box(ax, 5.6, y, name)
box(ax, 0.2, 1.5, "averaged\ngait image")
ax.set(xlim=(-0.3, 6.3), ylim=(-0.5, 3.5))
ax.axis("off")
plt.show()

# %%
# Four walkers, each without and with a briefcase (figure 3.14): the image, GaborD (five), GaborS
# (eight) and GaborSD (one). A sum of magnitudes would be another thing: it has no directions left
# that cancel.

kinds = {
    kind: GaborFeatures(kind, flatten=False).fit_transform(images)
    for kind in ("orientations", "scales", "both")
}
figure, axes = plt.subplots(8, 15, figsize=(9, 7.6), layout="constrained")
for row, image in enumerate(images):
    show(axes[row, 0], image)
    for k in range(5):
        show(axes[row, 1 + k], kinds["orientations"][row, :, :, k])
    for k in range(8):
        show(axes[row, 6 + k], kinds["scales"][row, :, :, k])
    show(axes[row, 14], kinds["both"][row])
for column, title in ((0, "image"), (3, "GaborD"), (9, "GaborS"), (14, "SD")):
    axes[0, column].set_title(title, fontsize=9)
for row in range(0, 8, 2):
    axes[row, 0].set_ylabel("gallery", fontsize=7)
    axes[row + 1, 0].set_ylabel("case", fontsize=7)
plt.show()

magnitudes = full.sum(axis=4)
off = np.abs(kinds["orientations"] - magnitudes).max() / magnitudes.max()
print(f"sums of magnitudes differ from GaborD by up to {off:.0%} of their largest")
