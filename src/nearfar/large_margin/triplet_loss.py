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

With ``nearest`` m only the m nearest impostors of each centre count. Theirs are the m largest of
its hinges, and the sum of the m largest of convex functions is convex: the loss stays so.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import compute_squared_distances, map_in_order, split_rows
from nearfar.large_margin.pair_lists import (
    PARTS,
    THREADED_SIZE,
    Integers,
    PairList,
    listed_distances,
    order_of_nearness,
    target_distances,
)


class Evaluation(NamedTuple):
    """Loss, ``Lap(W) @ V``, number of active hinges and the sum of their slopes.

    V is Z unless another is given. Sums are in float64 whatever the precision of Z.
    """

    loss: float
    laplacian_v: Floats
    n_active: int
    slopes: float


class Measured(NamedTuple):
    """1 plus the distance of each target (n, k), and the distance of each listed impostor."""

    reach: NDArray[np.float64]
    distances: NDArray[np.float64]


def measure(Z: Floats, targets: Integers, impostors: PairList, n_threads: int = 1) -> Measured:
    """What the loss needs to know of Z."""
    distances = listed_distances(Z, impostors.centers, impostors.indices, n_threads)
    return Measured(1.0 + target_distances(Z, targets), distances)


class Weighing(NamedTuple):
    """The loss, and the weights W of impostor pairs (``push``) and target pairs (``pull``)."""

    loss: float
    push: sparse.csr_array
    pull: sparse.csr_array
    n_active: int
    slopes: float
    n_near: int


def weigh_hinges(
    reach: NDArray[np.float64],
    targets: Integers,
    impostors: PairList,
    distances: NDArray[np.float64],
    push_weight: float,
    smoothing: float,
    dtype: Any,
    nearest: int | None = None,
    n_points: int | None = None,
) -> Weighing:
    """Loss and weights from squared distances, whatever metric they are of.

    ``reach`` (n, k) is 1 plus the distance of each target, ``distances`` is that of each listed
    impostor pair. The centres may be some of ``n_points``.
    """
    n, k = targets.shape
    n_points = n if n_points is None else n_points
    centers = impostors.centers
    # Few listed pairs are active at a good map: the rest of the work is on them alone.
    near = np.flatnonzero(reach.max(axis=1)[centers] - distances > -smoothing / 2)
    n_near = len(near)
    if nearest is not None:
        near = near[order_of_nearness(centers[near], distances[near]) < nearest]
    distances, centers = distances[near], centers[near]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(centers, minlength=n))])
    pushed, n_active = 0.0, 0
    pushes = np.empty((n, k))
    weights = np.zeros(len(near))
    for slot in range(k):
        hinges = reach[centers, slot] - distances
        losses, slopes = hinge(hinges, smoothing)
        pushed += float(losses.sum())
        n_active += int(np.count_nonzero(slopes))
        sums = np.concatenate([[0.0], np.cumsum(slopes)])
        pushes[:, slot] = sums[indptr[1:]] - sums[indptr[:-1]]
        weights += slopes
    push = sparse.csr_array(
        ((-push_weight * weights).astype(dtype), impostors.indices[near], indptr), (n, n_points)
    )
    pull = _target_weights(targets, pushes, push_weight, dtype, n_points)
    pulled = (1 - push_weight) * float((reach[targets >= 0] - 1.0).sum())
    loss, slope_sum = pulled + push_weight * pushed, float(weights.sum())
    return Weighing(loss, push, pull, n_active, slope_sum, n_near)


def full_loss(
    Z: Floats,
    codes: Integers,
    targets: Integers,
    push_weight: float,
    smoothing: float = 0.0,
    V: Floats | None = None,
    *,
    among: Integers | None = None,
    weight: float = 1.0,
    nearest: int | None = None,
    n_threads: int = 1,
    compiled: ModuleType | None = None,
) -> Evaluation:
    """The loss with hinges over all points of other classes, in blocks of centres.

    With ``among`` only these rows are impostors, each of them for ``weight`` of them. Hinges go
    through the kernels of this room where these are given.
    """
    n, k = targets.shape
    V = Z if V is None else V
    reach = 1.0 + target_distances(Z, targets)
    furthest = (reach.max(axis=1) + smoothing / 2).astype(Z.dtype)
    # Centring keeps digits in the expanded squared distance.
    centered = Z - Z.mean(axis=0)
    facing = slice(None) if among is None else among
    others, other_codes, other_v = centered[facing], codes[facing], V[facing]
    squares = np.einsum("ij,ij->i", others, others)
    centers = np.flatnonzero(np.isfinite(reach).any(axis=1))

    def pushed(part: slice) -> tuple[float, int, float, Floats, Floats, Floats]:
        block = centers[part]
        distances = compute_squared_distances(centered[block], others, squares)
        if compiled is None or nearest is not None:
            distances[codes[block, None] == other_codes] = np.inf
        edge = furthest[block]
        if nearest is not None and nearest < len(others):
            last = np.partition(distances, nearest - 1, axis=1)[:, nearest - 1]
            edge = np.minimum(edge, np.nextafter(last, np.inf))
        pushes = np.empty((len(block), k))
        W: Any = distances
        if compiled is not None:
            loss, n_active, slope_sum = compiled.dense_rows(
                W,
                codes[block],
                other_codes,
                reach[block],
                edge,
                push_weight * weight,
                smoothing,
                pushes,
            )
        else:
            W, loss, n_active, slope_sum = by_arrays(distances, reach[block], edge, pushes)
        ones = np.ones(max(W.shape), dtype=V.dtype)
        mine = (W @ ones[: W.shape[1]])[:, None] * V[block] - W @ other_v
        theirs = (W.T @ ones[: W.shape[0]])[:, None] * other_v - W.T @ V[block]
        return loss, n_active, slope_sum, pushes, mine, theirs

    def by_arrays(
        distances: Floats, reach: Matrix, edge: Floats, pushes: Matrix
    ) -> tuple[Any, float, int, float]:
        # Even here most pairs are far apart: the hinges are those of the near ones.
        flat = np.flatnonzero(distances < edge[:, None])
        rows, columns = np.divmod(flat, len(others))
        near = distances.ravel()[flat]
        loss, n_active, total = 0.0, 0, np.zeros_like(near)
        for slot in range(k):
            losses, slopes = hinge(reach[:, slot].astype(Z.dtype)[rows] - near, smoothing)
            loss += float(losses.sum(dtype=np.float64))
            n_active += int(np.count_nonzero(slopes))
            pushes[:, slot] = np.bincount(rows, slopes, len(reach))
            total += slopes
        ends = np.cumsum(np.bincount(rows, minlength=len(reach)))
        W: Any = sparse.csr_array(
            (-push_weight * weight * total, columns, np.concatenate([[0], ends])), distances.shape
        )
        if 8 * len(near) > distances.size:  # products of dense blocks are faster
            W = W.toarray()
        return W, loss, n_active, float(total.sum(dtype=np.float64))

    # Of each pair, at worst: distance, weight, row, column, and what the hinges of a slot take.
    size = max(16, 2**19 // len(others))
    blocks = list(split_rows(len(centers), 8 * 12 * len(others), max_rows=size))
    loss, n_active, slope_sum = 0.0, 0, 0.0
    all_pushes, laplacian_v = np.zeros((n, k)), np.zeros_like(V)
    laplacian_others = np.zeros_like(other_v)
    for part, found in zip(blocks, map_in_order(pushed, blocks, n_threads), strict=True):
        loss += found[0]
        n_active += found[1]
        slope_sum += found[2]
        all_pushes[centers[part]] = found[3]
        laplacian_v[centers[part]] += found[4]
        laplacian_others += found[5]
    laplacian_v[facing] += laplacian_others
    pull = _target_weights(targets, weight * all_pushes, push_weight, V.dtype)
    laplacian_v += laplacian_dot(pull, V)
    pulled = (1 - push_weight) * float((reach[targets >= 0] - 1.0).sum())
    return Evaluation(
        pulled + push_weight * weight * loss, laplacian_v, n_active, weight * slope_sum
    )


def triplet_loss(
    Z: Floats,
    triplets: Integers,
    push_weight: float,
    smoothing: float = 0.0,
    V: Floats | None = None,
) -> Evaluation:
    """The loss over given triplets (centre, target, impostor), no others.

    Each distinct pair (centre, target) is pulled once.
    """
    n = len(Z)
    V = Z if V is None else V
    near, pulls = _distinct_pairs(triplets[:, 0], triplets[:, 1], n)
    distances = listed_distances(Z, *near)
    hinges = 1.0 + distances[pulls] - listed_distances(Z, triplets[:, 0], triplets[:, 2])
    losses, slopes = hinge(hinges, smoothing)
    weights = (1 - push_weight) + push_weight * np.bincount(pulls, slopes, minlength=len(distances))
    W = sparse.csr_array(
        (
            np.concatenate([weights, -push_weight * slopes]).astype(V.dtype),
            (
                np.concatenate([near[0], triplets[:, 0]]),
                np.concatenate([near[1], triplets[:, 2]]),
            ),
        ),
        (n, n),
    )
    loss = (1 - push_weight) * float(distances.sum()) + push_weight * float(losses.sum())
    n_active = int(np.count_nonzero(slopes))
    return Evaluation(loss, laplacian_dot(W, V), n_active, float(slopes.sum()))


def _distinct_pairs(
    first: Integers, second: Integers, n: int
) -> tuple[tuple[Integers, Integers], Integers]:
    """Distinct pairs of rows, and which of them each given pair is."""
    keys, which = np.unique(first.astype(np.int64) * n + second, return_inverse=True)
    return (keys // n, keys % n), which


def pull_laplacian(targets: Integers, push_weight: float, V: Floats) -> Floats:
    """Lap(W) V of the pull term alone."""
    pushes = np.zeros(targets.shape)
    return laplacian_dot(_target_weights(targets, pushes, push_weight, V.dtype), V)


def hinge(margins: Floats, smoothing: float) -> tuple[Floats, Floats]:
    """[z]_+ and its slope, rounded by a parabola within ``smoothing`` / 2 of the kink."""
    if smoothing == 0:
        return np.maximum(margins, 0.0), (margins > 0).astype(margins.dtype)
    slopes = np.clip(margins / smoothing + 0.5, 0.0, 1.0)
    rounded = 0.5 * smoothing * slopes**2
    return np.where(margins < smoothing / 2, rounded, margins), slopes


def _target_weights(
    targets: Integers,
    pushes: NDArray[np.float64],
    push_weight: float,
    dtype: Any,
    n_points: int | None = None,
) -> sparse.csr_array:
    """The weight of each target pair."""
    n = len(targets)
    present = targets >= 0
    weights = ((1 - push_weight) + push_weight * pushes)[present].astype(dtype)
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    shape = (n, n if n_points is None else n_points)
    return sparse.csr_array((weights, targets[present], indptr), shape)


def column_sums(
    weights: list[sparse.csr_array], X: Floats, n_threads: int = 1
) -> NDArray[np.float64]:
    """The diagonal of X' Lap(W) X, W being a sum: weighted squared differences of all pairs."""
    n_features = X.shape[1]
    pairs = [PairList(W.indptr.astype(np.int64), W.indices) for W in weights]
    first = np.concatenate([part.centers for part in pairs])
    second = np.concatenate([part.indices for part in pairs])
    values = np.concatenate([W.data for W in weights])

    def summed(part: slice) -> NDArray[np.float64]:
        total = np.zeros(n_features)
        for block in split_rows(part.stop - part.start, 0, max_rows=max(64, 2**17 // n_features)):
            some = slice(part.start + block.start, part.start + block.stop)
            difference = np.take(X, second[some], axis=0)
            difference -= np.take(X, first[some], axis=0)
            difference *= difference
            total += values[some].astype(X.dtype) @ difference
        return total

    few = n_threads == 1 or len(first) * n_features < THREADED_SIZE
    at_most = len(first) if few else -(-len(first) // (PARTS * n_threads))
    parts = split_rows(len(first), 0, max_rows=max(1, at_most))
    return np.asarray(sum(map_in_order(summed, parts, n_threads), np.zeros(n_features)))


class Laplacian:
    """Lap(W), to be multiplied by many columns, some at a time."""

    def __init__(self, W: sparse.csr_array, n_threads: int = 1) -> None:
        self._degrees, self._both, self._n_threads = (
            _degrees(W),
            sparse.csr_array(W + W.T),
            n_threads,
        )

    def dot(self, V: Floats) -> Floats:
        """Lap(W) V."""
        result = np.empty_like(V)
        degrees = self._degrees.astype(V.dtype)[:, None]

        def multiplied(part: slice) -> None:
            rows = self._both if part == slice(0, len(V)) else self._both[part]
            np.subtract(degrees[part] * V[part], rows @ V, out=result[part])

        few = self._n_threads == 1 or self._both.nnz * V.shape[1] < 2 * THREADED_SIZE
        at_most = len(V) if few else -(-len(V) // (PARTS * self._n_threads))
        parts = split_rows(len(V), 0, max_rows=at_most)
        list(map_in_order(multiplied, parts, self._n_threads))
        return result


def laplacian_dot(W: sparse.csr_array, V: Floats, n_threads: int = 1) -> Floats:
    """Lap(W) V."""
    if n_threads > 1 and W.nnz * V.shape[1] >= THREADED_SIZE:
        return Laplacian(W, n_threads).dot(V)
    result = W @ V
    result += W.T @ V
    return np.asarray(_degrees(W).astype(V.dtype)[:, None] * V - result)


def _degrees(W: sparse.csr_array) -> NDArray[np.float64]:
    # Sums over rows and over columns: those of sparse arrays take longer than small products.
    n = len(W.indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(W.indptr))
    return np.asarray(np.bincount(rows, W.data, n) + np.bincount(W.indices, W.data, n))
