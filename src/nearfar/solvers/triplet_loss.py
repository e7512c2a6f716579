r"""The large-margin loss over triplets (centre, target, impostor) and its gradient.

.. math::
    \varepsilon = (1-\mu) \sum_{i, j \leadsto i} D_{ij}
        + \mu \sum_{i, j \leadsto i} \sum_{l} [1 + D_{ij} - D_{il}]_+ ,
    \qquad D_{ij} = \|z_i - z_j\|^2

For a weight matrix W on pairs, :math:`\sum_{ab} W_{ab} (z_a - z_b)(z_a - z_b)^T = Z^T Lap(W) Z`
with :math:`Lap(W) = diag(W1 + W^T1) - W - W^T`; so with :math:`Z = X L^T` the gradient in L is
:math:`2\, (Lap(W) Z)^T X` and in :math:`M = L^T L` it is :math:`X^T Lap(W) X`; no outer product
of a pair is ever formed. Here W is :math:`1-\mu` plus :math:`\mu` for each active hinge on a
target pair, and :math:`-\mu` for each active hinge on an impostor pair.

The hinge has a kink at which quasi-Newton steps stall. With ``smoothing`` :math:`\delta > 0` it is
rounded by a parabola on :math:`[-\delta/2, \delta/2]`, which raises it by at most
:math:`\delta/8`; the weight :math:`\mu` of a hinge then fades from 1 to 0 over that interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import row_blocks

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


class Evaluation(NamedTuple):
    """Loss, ``Lap(W) @ V`` and the number of active hinges. V is Z unless another is given."""

    loss: float
    laplacian_v: Matrix
    n_active: int


class PairList(NamedTuple):
    """Pairs (centre, other) in compressed rows: the others of centre i are
    ``indices[indptr[i]:indptr[i + 1]]``."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    @property
    def centres(self) -> NDArray[np.int32]:
        """Centre of each pair."""
        n = len(self.indptr) - 1
        return np.repeat(np.arange(n, dtype=np.int32), np.diff(self.indptr))


def target_distances(Z: Matrix, targets: Indices) -> Matrix:
    """Squared distances to the targets, (n, k); -inf where there is none (index -1).

    With -inf every hinge of an absent target is inactive.
    """
    distances = np.empty(targets.shape)
    for slot in range(targets.shape[1]):
        difference = Z - Z[targets[:, slot]]
        distances[:, slot] = np.einsum("ij,ij->i", difference, difference)
    distances[targets < 0] = -np.inf
    return distances


def pair_distances(Z: Matrix, first: NDArray[np.integer], second: NDArray[np.integer]) -> Matrix:
    """Squared distances of pairs of rows, from their differences."""
    distances = np.empty(len(first))
    # Blocks that stay in cache: the gathered rows are read once and forgotten.
    for block in row_blocks(len(first), 24 * Z.shape[1], at_most=max(256, 2**17 // Z.shape[1])):
        difference = Z[first[block]]
        difference -= Z[second[block]]
        distances[block] = np.einsum("ij,ij->i", difference, difference)
    return distances


def listed_loss(
    Z: Matrix,
    targets: Indices,
    impostors: PairList,
    push_weight: float,
    smoothing: float = 0.0,
    V: Matrix | None = None,
) -> Evaluation:
    """The loss with hinges over the listed impostor pairs only."""
    n, k = targets.shape
    V = Z if V is None else V
    reach = 1.0 + target_distances(Z, targets)
    centres = impostors.centres
    distances = pair_distances(Z, centres, impostors.indices)
    pushed, n_active = 0.0, 0
    pushes = np.zeros((n, k))
    weights = np.zeros(len(distances))
    for slot in range(k):
        hinges = reach[centres, slot] - distances
        # Few listed pairs are active at a good map: the rest of the work is on them alone.
        active = np.flatnonzero(hinges > -smoothing / 2)
        losses, slopes = _hinge(hinges[active], smoothing)
        pushed += float(losses.sum())
        n_active += len(active)
        pushes[:, slot] = np.bincount(centres[active], weights=slopes, minlength=n)
        weights[active] -= slopes
    used = np.flatnonzero(weights)
    rows, columns, pulls = _target_weights(targets, pushes, push_weight)
    laplacian_v = _laplacian_dot(
        np.concatenate([rows, centres[used]]),
        np.concatenate([columns, impostors.indices[used]]),
        np.concatenate([pulls, push_weight * weights[used]]),
        V,
    )
    pulled = (1 - push_weight) * float((reach[targets >= 0] - 1.0).sum())
    return Evaluation(pulled + push_weight * pushed, laplacian_v, n_active)


def full_loss(
    Z: Matrix,
    codes: Indices,
    targets: Indices,
    push_weight: float,
    smoothing: float = 0.0,
    V: Matrix | None = None,
) -> Evaluation:
    """The loss with hinges over all points of other classes, in blocks of centres."""
    n, k = targets.shape
    V = Z if V is None else V
    reach = 1.0 + target_distances(Z, targets)
    # Centring keeps digits in the expanded squared distance.
    centred = Z - Z.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    pushed, n_active = 0.0, 0
    pushes = np.zeros((n, k))
    laplacian_v = np.zeros_like(V)
    for block in row_blocks(n, 8 * 6 * n):
        distances = squares[block, None] + squares - 2 * centred[block] @ centred.T
        np.maximum(distances, 0, out=distances)
        distances[codes[block, None] == codes] = np.inf
        weights = np.zeros_like(distances)
        for slot in range(k):
            hinges = reach[block, slot, None] - distances
            losses, slopes = _hinge(hinges, smoothing)
            pushed += float(losses.sum())
            n_active += int((hinges > -smoothing / 2).sum())
            pushes[block, slot] = slopes.sum(axis=1)
            weights -= slopes
        weights *= push_weight
        laplacian_v[block] += weights.sum(axis=1)[:, None] * V[block] - weights @ V
        laplacian_v += weights.sum(axis=0)[:, None] * V - weights.T @ V[block]
    laplacian_v += _laplacian_dot(*_target_weights(targets, pushes, push_weight), V)
    pulled = (1 - push_weight) * float((reach[targets >= 0] - 1.0).sum())
    return Evaluation(pulled + push_weight * pushed, laplacian_v, n_active)


def _hinge(margins: Matrix, smoothing: float) -> tuple[Matrix, Matrix]:
    """[z]_+ and its slope, rounded by a parabola within ``smoothing`` / 2 of the kink."""
    if smoothing == 0:
        return np.maximum(margins, 0.0), (margins > 0).astype(float)
    slopes = np.clip(margins / smoothing + 0.5, 0.0, 1.0)
    rounded = 0.5 * smoothing * slopes**2
    return np.where(margins < smoothing / 2, rounded, margins), slopes


def _target_weights(
    targets: Indices, pushes: Matrix, push_weight: float
) -> tuple[Indices, Indices, Matrix]:
    """Centre, target and weight of each target pair."""
    rows, slots = np.nonzero(targets >= 0)
    return rows, targets[rows, slots], (1 - push_weight) + push_weight * pushes[rows, slots]


def _laplacian_dot(rows: Indices, columns: Indices, weights: Matrix, V: Matrix) -> Matrix:
    """Lap(W) V for the pairs (row, column) of the given weights."""
    n = len(V)
    W = sparse.csr_array((weights, (rows, columns)), (n, n))
    degrees = np.bincount(rows, weights, n) + np.bincount(columns, weights, n)
    return np.asarray(degrees[:, None] * V - W @ V - W.T @ V)
