"""
Alignment before and after centring
===================================

Alignment says how much a kernel looks like the labels. Where one class is rare, the labels
themselves look like a constant, and so does every kernel without contrast: it seems aligned.
"""

# %%
# Two features tell the classes apart and two are noise. The kernels: one of the two features, and
# two of the noise, of which one is so wide that it is nearly constant. 200 points; more and more of
# them are of the first class.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from nearfar.kernels import alignment_weights, target_alignment

shares = np.linspace(0.5, 0.95, 10)
names = ["two features", "noise", "noise, nearly constant"]
plain, centered = (np.zeros((len(shares), 3)) for _ in range(2))
noise = np.random.default_rng(0).standard_normal((200, 4))


def kernels_and_labels(share):
    """Three kernels of 200 points, of which a share is of the first class."""
    y = (np.arange(200) >= 200 * share).astype(int)
    X = noise + 2 * np.outer(y, [1, 1, 0, 0])
    kernels = [rbf_kernel(X[:, :2], gamma=0.5)]
    return kernels + [rbf_kernel(X[:, 2:], gamma=gamma) for gamma in (0.5, 1e-3)], y


for i, share in enumerate(shares):
    kernels, y = kernels_and_labels(share)
    plain[i] = [target_alignment(K, y) for K in kernels]
    centered[i] = [target_alignment(K, y, centered=True) for K in kernels]

# %%
# As they are, both kernels of noise are aligned with classes of unequal size, and where nine of ten
# rows are of one class the one without any contrast overtakes the one that tells them apart.
# Centred, what is noise stays at zero.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for panel, values, title in zip(panels, (plain, centered), ("as it is", "centred"), strict=True):
    for k, style in enumerate(("o-", "s--", "^:")):
        panel.plot(100 * shares, values[:, k], style, label=names[k])
    panel.set(xlabel="rows of the larger class, %", title=title, ylim=(-0.02, 1))
panels[0].set_ylabel("alignment with the labels")
panels[0].legend()
plt.show()

# %%
# What that does to weights, as shares of the trace, with nine rows of ten in one class:

kernels, y = kernels_and_labels(0.9)
for centre in (False, True):
    found = alignment_weights(kernels, y, centered=centre).weights  # all kernels have one trace
    shown = ", ".join(f"{name} {w:.0%}" for name, w in zip(names, found / found.sum(), strict=True))
    print(f"{'centred' if centre else 'as they are'}: {shown}")
