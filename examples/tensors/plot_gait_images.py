"""
Gait: from silhouettes to averaged images
=========================================

Walkers that are drawn, since silhouettes of people may not be passed on. A gait cycle, two steps,
is found by how much the legs cover, and the mean of its frames is an *averaged gait image*: it has
the shape of the body where nothing moves, and how the limbs swing around it. This is figure 3.10 of
Tao's thesis, on drawings.
"""

# %%
# One walk, every third frame. The area of the legs, in the lower half of the frames, rises and
# falls with each step; where it repeats best is a step, and two steps are a cycle.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import GaitRecognizer
from nearfar.datasets import make_walkers
from nearfar.tensors import averaged_gait_images, gait_period, rank_k_rates

conditions = ["", "shoe", "briefcase", "clothing+shoe"]
walks, ids, periods = make_walkers(9, 4, n_frames=90, random_state=0, conditions=conditions)
walks = walks.reshape(9, 4, *walks.shape[1:])

figure, axes = plt.subplots(1, 10, figsize=(9, 1.6), layout="constrained")
for ax, frame in zip(axes, walks[0, 0, ::3], strict=False):
    ax.imshow(frame, cmap="gray")
    ax.axis("off")
plt.show()

frames = walks[0, 0]
period = gait_period(frames)
figure, ax = plt.subplots(figsize=(9, 2.5), layout="constrained")
ax.plot(100 * frames[:, 32:].mean(axis=(1, 2)), color="#0072B2")
for start in range(0, len(frames), period):
    ax.axvline(start, color="#D55E00", linewidth=1)
ax.set(xlabel="frame", ylabel="legs (% of the half)", title=f"a cycle has {period} frames")
plt.show()

# %%
# Averaged gait images of nine walkers: the gallery, and three probes in which something is
# otherwise, as in the sets B (other shoes), H (a briefcase) and K (other clothes and shoes, at
# another time) of the database of the thesis.

titles = ["gallery", "B: shoe", "H: briefcase", "K: clothing"]
figure, axes = plt.subplots(4, 9, figsize=(9, 6.2), layout="constrained")
for column in range(9):
    for row in range(4):
        image = averaged_gait_images(walks[column, row])[0]
        axes[row, column].imshow(image, cmap="gray", vmin=0, vmax=1)
        axes[row, column].set(xticks=[], yticks=[])
for row, title in enumerate(titles):
    axes[row, 0].set_ylabel(title)
plt.show()

# %%
# Who is it? A recogniser learns from the gallery and ranks its subjects for each probe. Nine
# subjects that are drawn are easy; a coat is harder than a shoe.

subjects = np.arange(9)
recognizer = GaitRecognizer().fit(walks[:, 0], subjects)
for probe in (1, 2, 3):
    rates = rank_k_rates(recognizer.distances(walks[:, probe]), subjects, recognizer.classes_)
    print(f"{titles[probe]:14} rank one {rates[0]:4.0%}   rank five {rates[1]:4.0%}")
