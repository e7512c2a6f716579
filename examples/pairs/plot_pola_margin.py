"""
A margin that is learned pair by pair
=====================================

POLA sees one judged pair at a time: alike or different. It keeps a metric and a threshold b, and
moves both only where a pair comes too near to the threshold: alike pairs should have a squared
distance of at most b - 1, different ones of at least b + 1. After figure 2.21 of Weinberger's
thesis on metric learning.
"""

# %%
# Three kinds of points, told apart by one direction, with a wide spread along the other two. Pairs
# come in as a stream.

import matplotlib.pyplot as plt
import numpy as np

from nearfar import POLA, Pairs

rng = np.random.default_rng(3)
y = rng.integers(0, 3, 300)
X = np.column_stack([y + rng.uniform(-0.2, 0.2, 300), rng.normal(0, 2, 300), rng.normal(0, 2, 300)])
X = X @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
pairs = Pairs.from_labels(y, n_similar=1500, n_dissimilar=1500, random_state=0)
points, sign = pairs.to_arrays(X)
order = rng.permutation(len(sign))
points, sign = points[order], sign[order]

# %%
# Frames of one run: the squared distances of 400 pairs that it has *not* learned from, under the
# metric after so many pairs of the stream. The line is the threshold, the grey band the margin.

held, stream = slice(0, 400), slice(400, None)
moments = [3, 30, 300, 2600]
pola = POLA()
figure, axes = plt.subplots(1, 4, figsize=(11, 3.4), layout="constrained", sharey=True)
done = 0
for ax, count in zip(axes, moments, strict=True):
    pola.partial_fit_pairs(points[stream][done:count], sign[stream][done:count])
    done = count
    squares = pola.pair_distance(points[held]) ** 2
    bins = np.linspace(0, np.quantile(squares, 0.97), 40)
    for s, color, label in ((1, "#0072B2", "alike"), (-1, "#D55E00", "different")):
        ax.hist(squares[sign[held] == s], bins=bins, color=color, alpha=0.6, label=label)
    ax.axvspan(pola.b_ - 1, pola.b_ + 1, color="0.85", zorder=0)
    ax.axvline(pola.b_, color="k", linewidth=1.2)
    wrong = np.mean((squares < pola.b_) != (sign[held] == 1))
    ax.set(title=f"{count} pairs, {pola.n_updates_} updates:\n{wrong:.0%} on the wrong side")
    ax.set(xlabel="squared distance", yticks=[])
axes[0].legend(frameon=False)
plt.show()

# %%
# The metric has found the one direction; the others hardly count any more. Fewer and fewer pairs
# bring an update, and where some metric and threshold separate all pairs by the margin, the sum of
# all losses stays below a bound, however long the stream is.

values = np.linalg.eigvalsh(pola.get_mahalanobis_matrix())[::-1]
print("shares of the eigenvalues of M:", (values / values.sum()).round(3))
print(f"{pola.n_seen_} pairs seen, {pola.n_updates_} updates")
