r"""The large-margin loss over triplets (center, target, impostor) and its gradient.

.. math::
    \varepsilon = (1-\mu) \sum_{i, j \leadsto i} D_{ij}
        + \mu \sum_{i, j \leadsto i} \sum_{l} [1 + D_{ij} - D_{il}]_+ ,
    \qquad D_{ij} = \|z_i - z_j\|^2

For a weight matrix W on pairs, :math:`\sum_{ab} W_{ab} (z_a - z_b)(z_a - z_b)^T = Z^T Lap(W) Z`
with :math:`Lap(W) = diag(W1 + W^T1) - W - W^T`. With :math:`Z = X L^T`, the gradient in L is
therefore :math:`2\, (Lap(W) Z)^T X`, and the gradient in :math:`M = L^T L` is
:math:`X^T Lap(W) X`. No outer product of a pair is formed. The weight of a target pair is
:math:`1-\mu` plus :math:`\mu` for each of its active hinges, and the weight of an impostor pair is
:math:`-\mu` for each of its active hinges.

The hinge has a kink, at which quasi-Newton steps stall. With ``smoothing`` :math:`\delta > 0`, the
hinge is replaced by a parabola on :math:`[-\delta/2, \delta/2]`, which increases it by at most
:math:`\delta/8`. The slope of the hinge then increases from 0 to 1 over this interval.

With ``nearest`` m, only the m nearest impostors of each center count. They have the m largest
hinges, and the sum of the m largest convex functions is convex, so the loss remains convex.
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
    CHUNKS_PER_THREAD,
    THREADED_SIZE,
    Integers,
    PairList,
    compute_listed_distances,
    compute_target_distances,
    rank_by_distance,
)


class Evaluation(NamedTuple):
    """Loss, ``Lap(W) @ V``, number of active hinges and the sum of their slopes.

    V is Z unless it is passed. Sums are computed in float64 for any precision of Z.
    """

    loss: float
    laplacian_v: Floats
    n_active: int
    slopes: float


class HingeDistances(NamedTuple):
    """Distances from which the hinges are computed.

    They are 1 plus the distance of each target, of shape (n, k), and the distance of each listed
    impostor.
    """

    reach: NDArray[np.float64]
    distances: NDArray[np.float64]


def measure(
    Z: Floats, targets: Integers, impostors: PairList, n_threads: int = 1
) -> HingeDistances:
    """Compute the distances between rows of Z that the loss depends on."""
    distances = compute_listed_distances(Z, impostors.centers, impostors.indices, n_threads)
    return HingeDistances(1.0 + compute_target_distances(Z, targets), distances)


class HingeWeights(NamedTuple):
    """The loss, and the weights of impostor pairs (``push``) and of target pairs (``pull``)."""

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
) -> HingeWeights:
    """Return the loss and the weights of all pairs, from squared distances under any metric.

    ``reach`` (n, k) is 1 plus the distance of each target. ``distances`` contains the distance of
    each listed impostor pair. The n centers may be a subset of ``n_points`` points.
    """
    n, k = targets.shape
    n_points = n if n_points is None else n_points
    centers = impostors.centers
    # Keep only pairs that may be active. At a good map, these are few.
    near = np.flatnonzero(reach.max(axis=1)[centers] - distances > -smoothing / 2)
    n_near = len(near)
    if nearest is not None:
        near = near[rank_by_distance(centers[near], distances[near]) < nearest]
    distances, centers = distances[near], centers[near]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(centers, minlength=n))])
    pushed, n_active = 0.0, 0
    pushes = np.empty((n, k))
    weights = np.zeros(len(near))
    for slot in range(k):
        hinges = reach[centers, slot] - distances
        losses, slopes = evaluate_rounded_hinge(hinges, smoothing)
        pushed += float(losses.sum())
        n_active += int(np.count_nonzero(slopes))
        sums = np.concatenate([[0.0], np.cumsum(slopes)])
        pushes[:, slot] = sums[indptr[1:]] - sums[indptr[:-1]]
        weights += slopes
    push = sparse.csr_array(
        ((-push_weight * weights).astype(dtype), impostors.indices[near], indptr), (n, n_points)
    )
    pull = _compute_target_weights(targets, pushes, push_weight, dtype, n_points)
    pulled = (1 - push_weight) * float((reach[targets >= 0] - 1.0).sum())
    loss, slope_sum = pulled + push_weight * pushed, float(weights.sum())
    return HingeWeights(loss, push, pull, n_active, slope_sum, n_near)


def compute_full_loss(
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
    """Return the loss over all points of other classes, computed in blocks of centers.

    With ``among``, only these rows are impostors, and their hinges are multiplied by ``weight``.
    ``compiled`` is the module of compiled kernels, or None for NumPy.
    """
    n, k = targets.shape
    V = Z if V is None else V
    reach = 1.0 + compute_target_distances(Z, targets)
    furthest = (reach.max(axis=1) + smoothing / 2).astype(Z.dtype)
    # Centering makes squared distances that are computed from products more accurate.
    centered = Z - Z.mean(axis=0)
    impostor_rows = slice(None) if among is None else among
    impostor_points, impostor_codes, impostor_v = (
        centered[impostor_rows],
        codes[impostor_rows],
        V[impostor_rows],
    )
    squares = np.einsum("ij,ij->i", impostor_points, impostor_points)
    centers = np.flatnonzero(np.isfinite(reach).any(axis=1))

    def evaluate_block(part: slice) -> tuple[float, int, float, Floats, Floats, Floats]:
        block = centers[part]
        distances = compute_squared_distances(centered[block], impostor_points, squares)
        if compiled is None or nearest is not None:
            distances[codes[block, None] == impostor_codes] = np.inf
        edge = furthest[block]
        if nearest is not None and nearest < len(impostor_points):
            last = np.partition(distances, nearest - 1, axis=1)[:, nearest - 1]
            edge = np.minimum(edge, np.nextafter(last, np.inf))
        pushes = np.empty((len(block), k))
        W: Any = distances
        if compiled is not None:
            loss, n_active, slope_sum = compiled.evaluate_dense_rows(
                W,
                codes[block],
                impostor_codes,
                reach[block],
                edge,
                push_weight * weight,
                smoothing,
                pushes,
            )
        else:
            W, loss, n_active, slope_sum = evaluate_by_arrays(distances, reach[block], edge, pushes)
        ones = np.ones(max(W.shape), dtype=V.dtype)
        center_part = (W @ ones[: W.shape[1]])[:, None] * V[block] - W @ impostor_v
        impostor_part = (W.T @ ones[: W.shape[0]])[:, None] * impostor_v - W.T @ V[block]
        return loss, n_active, slope_sum, pushes, center_part, impostor_part

    def evaluate_by_arrays(
        distances: Floats, reach: Matrix, edge: Floats, pushes: Matrix
    ) -> tuple[Any, float, int, float]:
        # Most pairs are far apart, so hinges are computed for close pairs only.
        flat = np.flatnonzero(distances < edge[:, None])
        rows, columns = np.divmod(flat, len(impostor_points))
        near = distances.ravel()[flat]
        loss, n_active, total = 0.0, 0, np.zeros_like(near)
        for slot in range(k):
            losses, slopes = evaluate_rounded_hinge(
                reach[:, slot].astype(Z.dtype)[rows] - near, smoothing
            )
            loss += float(losses.sum(dtype=np.float64))
            n_active += int(np.count_nonzero(slopes))
            pushes[:, slot] = np.bincount(rows, slopes, len(reach))
            total += slopes
        ends = np.cumsum(np.bincount(rows, minlength=len(reach)))
        W: Any = sparse.csr_array(
            (-push_weight * weight * total, columns, np.concatenate([[0], ends])), distances.shape
        )
        if 8 * len(near) > distances.size:  # Products of dense blocks are faster.
            W = W.toarray()
        return W, loss, n_active, float(total.sum(dtype=np.float64))

    # Memory per pair in the worst case: distance, weight, row, column, and the hinges of one slot.
    size = max(16, 2**19 // len(impostor_points))
    blocks = list(split_rows(len(centers), 8 * 12 * len(impostor_points), max_rows=size))
    loss, n_active, slope_sum = 0.0, 0, 0.0
    pushes_by_center, laplacian_v = np.zeros((n, k)), np.zeros_like(V)
    impostor_laplacian = np.zeros_like(impostor_v)
    for block, result in zip(blocks, map_in_order(evaluate_block, blocks, n_threads), strict=True):
        loss += result[0]
        n_active += result[1]
        slope_sum += result[2]
        pushes_by_center[centers[block]] = result[3]
        laplacian_v[centers[block]] += result[4]
        impostor_laplacian += result[5]
    laplacian_v[impostor_rows] += impostor_laplacian
    pull = _compute_target_weights(targets, weight * pushes_by_center, push_weight, V.dtype)
    laplacian_v += multiply_laplacian(pull, V)
    pulled = (1 - push_weight) * float((reach[targets >= 0] - 1.0).sum())
    return Evaluation(
        pulled + push_weight * weight * loss, laplacian_v, n_active, weight * slope_sum
    )


def compute_triplet_loss(
    Z: Floats,
    triplets: Integers,
    push_weight: float,
    smoothing: float = 0.0,
    V: Floats | None = None,
) -> Evaluation:
    """Return the loss over given triplets (center, target, impostor).

    Each distinct pair (center, target) enters the pull term once.
    """
    n = len(Z)
    V = Z if V is None else V
    near, pulls = _find_distinct_pairs(triplets[:, 0], triplets[:, 1], n)
    distances = compute_listed_distances(Z, *near)
    hinges = 1.0 + distances[pulls] - compute_listed_distances(Z, triplets[:, 0], triplets[:, 2])
    losses, slopes = evaluate_rounded_hinge(hinges, smoothing)
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
    return Evaluation(loss, multiply_laplacian(W, V), n_active, float(slopes.sum()))


def _find_distinct_pairs(
    first: Integers, second: Integers, n: int
) -> tuple[tuple[Integers, Integers], Integers]:
    """Return the distinct pairs of rows, and the index of each given pair among them."""
    keys, positions = np.unique(first.astype(np.int64) * n + second, return_inverse=True)
    return (keys // n, keys % n), positions


def multiply_pull_laplacian(targets: Integers, push_weight: float, V: Floats) -> Floats:
    """Return Lap(W) V for the weights of the pull term only."""
    pushes = np.zeros(targets.shape)
    return multiply_laplacian(_compute_target_weights(targets, pushes, push_weight, V.dtype), V)


def evaluate_rounded_hinge(margins: Floats, smoothing: float) -> tuple[Floats, Floats]:
    """Return the hinge [z]_+ and its slope, both smoothed within ``smoothing`` / 2 of the kink.

    A parabola replaces the kink.
    """
    if smoothing == 0:
        return np.maximum(margins, 0.0), (margins > 0).astype(margins.dtype)
    slopes = np.clip(margins / smoothing + 0.5, 0.0, 1.0)
    rounded = 0.5 * smoothing * slopes**2
    return np.where(margins < smoothing / 2, rounded, margins), slopes


def _compute_target_weights(
    targets: Integers,
    pushes: NDArray[np.float64],
    push_weight: float,
    dtype: Any,
    n_points: int | None = None,
) -> sparse.csr_array:
    """Return the weights of the target pairs as a sparse matrix."""
    n = len(targets)
    present = targets >= 0
    weights = ((1 - push_weight) + push_weight * pushes)[present].astype(dtype)
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    shape = (n, n if n_points is None else n_points)
    return sparse.csr_array((weights, targets[present], indptr), shape)


def sum_pair_columns(
    weights: list[sparse.csr_array], X: Floats, n_threads: int = 1
) -> NDArray[np.float64]:
    """Return the diagonal of X' Lap(W) X, where W is the sum of the ``weights``."""
    n_features = X.shape[1]
    pairs = [PairList(W.indptr.astype(np.int64), W.indices) for W in weights]
    first = np.concatenate([chunk.centers for chunk in pairs])
    second = np.concatenate([chunk.indices for chunk in pairs])
    values = np.concatenate([W.data for W in weights])

    def sum_chunk(chunk: slice) -> NDArray[np.float64]:
        total = np.zeros(n_features)
        for block in split_rows(chunk.stop - chunk.start, 0, max_rows=max(64, 2**17 // n_features)):
            rows = slice(chunk.start + block.start, chunk.start + block.stop)
            difference = np.take(X, second[rows], axis=0)
            difference -= np.take(X, first[rows], axis=0)
            difference *= difference
            total += values[rows].astype(X.dtype) @ difference
        return total

    is_serial = n_threads == 1 or len(first) * n_features < THREADED_SIZE
    chunk_size = len(first) if is_serial else -(-len(first) // (CHUNKS_PER_THREAD * n_threads))
    chunks = split_rows(len(first), 0, max_rows=max(1, chunk_size))
    return np.asarray(sum(map_in_order(sum_chunk, chunks, n_threads), np.zeros(n_features)))


class Laplacian:
    """The matrix Lap(W), for repeated multiplication by blocks of columns."""

    def __init__(self, W: sparse.csr_array, n_threads: int = 1) -> None:
        self._degrees, self._symmetric, self._n_threads = (
            _compute_degrees(W),
            sparse.csr_array(W + W.T),
            n_threads,
        )

    def dot(self, V: Floats) -> Floats:
        """Return Lap(W) V."""
        result = np.empty_like(V)
        degrees = self._degrees.astype(V.dtype)[:, None]

        def multiply_chunk(chunk: slice) -> None:
            rows = self._symmetric if chunk == slice(0, len(V)) else self._symmetric[chunk]
            np.subtract(degrees[chunk] * V[chunk], rows @ V, out=result[chunk])

        is_serial = self._n_threads == 1 or self._symmetric.nnz * V.shape[1] < 2 * THREADED_SIZE
        chunk_size = len(V) if is_serial else -(-len(V) // (CHUNKS_PER_THREAD * self._n_threads))
        chunks = split_rows(len(V), 0, max_rows=chunk_size)
        list(map_in_order(multiply_chunk, chunks, self._n_threads))
        return result


def multiply_laplacian(W: sparse.csr_array, V: Floats, n_threads: int = 1) -> Floats:
    """Return Lap(W) V."""
    if n_threads > 1 and W.nnz * V.shape[1] >= THREADED_SIZE:
        return Laplacian(W, n_threads).dot(V)
    result = W @ V
    result += W.T @ V
    return np.asarray(_compute_degrees(W).astype(V.dtype)[:, None] * V - result)


def _compute_degrees(W: sparse.csr_array) -> NDArray[np.float64]:
    # A degree is a row sum plus a column sum. For small matrices, this is faster than the sum
    # methods of sparse arrays.
    n = len(W.indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(W.indptr))
    return np.asarray(np.bincount(rows, W.data, n) + np.bincount(W.indices, W.data, n))
