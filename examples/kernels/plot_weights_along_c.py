"""
Weights of kernels along C, and how far from the optimum
========================================================

Seven widths of an rbf kernel, mixed for the widest margin. The larger C, the more each point on the
wrong side costs, and the narrower the kernels that are taken. Each run says how far from the best
mixture it may be.
"""

# %%
# 150 rows of breast cancer. A share is what a kernel's part of the sum has of the trace, so that
# the shares of all add up to one.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import scale

from nearfar.kernels import margin_weights

X, y = load_breast_cancer(return_X_y=True)
X, y = scale(X)[:150], y[:150]
gammas = 10.0 ** np.linspace(-4, 0.5, 7)
kernels = [rbf_kernel(X, gamma=gamma) for gamma in gammas]
prices = 10.0 ** np.linspace(-1.5, 3, 19)
runs = [margin_weights(kernels, y, C=C) for C in prices]
shares = np.array([run.weights for run in runs])  # each kernel has trace n, as the sum

# %%
# The program takes few kernels at a time. Below, the gap between the margin functional that is
# reached and the bound that no mixture undercuts, after each support vector machine; all stop below
# 1e-3. For a large C half of the sum is a kernel by which no point is like another: it separates
# any training rows, and says nothing of new ones.

figure, (above, below) = plt.subplots(
    2, 1, figsize=(7.5, 6), layout="constrained", height_ratios=(3, 2)
)
colors = plt.colormaps["viridis"](np.linspace(0, 1, len(gammas)))
above.stackplot(prices, shares.T, colors=colors, labels=[f"γ = {g:.2g}" for g in gammas])
above.set(xscale="log", xlabel="C", ylabel="share of the kernel", ylim=(0, 1))
above.set_xlim(prices[0], prices[-1])
above.legend(title="wide to narrow", loc="center left", bbox_to_anchor=(1, 0.5))
for k in (2, 8, 14):
    gaps = [step["gap"] for step in runs[k].history]
    below.plot(range(1, len(gaps) + 1), gaps, "o-", label=f"C = {prices[k]:.3g}")
below.axhline(1e-3, color="tab:gray", lw=0.8)
below.set(yscale="log", xlabel="support vector machines solved", ylabel="proven gap")
below.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
