"""Exact neighbors by partial sums: a pair is skipped as soon as it is known to be too far.

A squared distance is a sum over coordinates, and any partial sum is a lower bound. After rotation
to principal axes, which does not change distances, the first few coordinates contribute most.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import split_rows
from nearfar.search.block_search import nearest_by_blocks, rows_at_once
from nearfar.search.candidates import (
    SPARE,
    center_of,
    centered,
    check_n_neighbors,
    pair_distances,
    ranked,
    reach_of,
    squared_norms,
    without_self,
)
from nearfar.search.placed_rows import placed
from nearfar.solvers.eigen import descending_eigh

# Fraction of the variance in the leading axes, which one matrix product handles first.
_LEADING_SHARE = 0.9
_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)


def early_abandon_kneighbors(
    X: Floats, queries: Floats | None = None, *, n_neighbors: int, n_leading: int | None = None
) -> tuple[Matrix, Indices]:
    """Find the nearest rows of ``X`` to each query exactly, skipping distant pairs early.

    The result equals that of :func:`~nearfar.search.exact_search.kneighbors`, bit by bit.
    ``n_leading`` is the number of principal axes in the first sum, by default those with 90% of the
    variance.

    The method is usually described pair by pair. This implementation has three steps instead. It
    first measures the nearest rows by the leading axes alone; the k-th of these distances is an
    upper bound on the true one. A float32 product over the leading axes then removes all pairs
    beyond that bound. The remaining pairs get further coordinates in steps of doubling length,
    and each step removes more. This is worth it if a few axes have most of the variance of many
    features: it is twice as fast as blocks on the 784 pixels of MNIST, and slower on up to 164 of
    its principal components (``benchmarks/results/search.md``).

    Cost: O(n_queries n_samples n_leading), twice, and O(n_features) for each remaining pair.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [3.0, 0.1]])
    >>> early_abandon_kneighbors(X, n_neighbors=2)[1]
    array([[1, 2],
           [2, 0],
           [1, 0],
           [1, 2]])
    """
    check_n_neighbors(n_neighbors, len(X), without_self=queries is None)
    p = X.shape[1]
    if n_leading is not None and not 1 <= n_leading <= p:
        raise ValueError(
            f"n_leading must be from 1 to {p} (the number of features); got {n_leading!r}."
        )
    X = np.ascontiguousarray(X)
    if queries is None:
        return without_self(*_nearest(X, X, n_neighbors + 1, n_leading))
    return _nearest(X, np.ascontiguousarray(queries), n_neighbors, n_leading)


def _nearest(X: Floats, Q: Floats, k: int, n_leading: int | None) -> tuple[Matrix, Indices]:
    center = center_of(X)
    points = centered(X, center, _FLOAT64)
    variances, axes = descending_eigh(points.T @ points)
    if n_leading is None:
        share = np.cumsum(variances) >= _LEADING_SHARE * variances.sum()
        n_leading = 1 + int(np.argmax(share))
    points = points @ axes
    queries = points if Q is X else centered(Q, center, _FLOAT64) @ axes

    # Scale, so that squares neither overflow nor underflow in float32.
    scale = float(np.sqrt(max(squared_norms(points).max(), squared_norms(queries).max()))) or 1.0
    leading = (points[:, :n_leading] / scale).astype(np.float32)
    asked = (queries[:, :n_leading] / scale).astype(np.float32)
    near_points, near_queries = placed(leading, asked)
    radius = np.empty(len(Q))
    for block in split_rows(len(Q), 24 * rows_at_once(len(X), n_leading, _FLOAT32), max_rows=2048):
        n_candidates = min(k + SPARE, len(X))
        _, candidates = nearest_by_blocks(near_points, near_queries, block, n_candidates, _FLOAT32)
        radius[block] = ranked(X, Q[block], candidates)[0][:, k - 1]
    reach = _largest_sum(squared_norms(queries), radius, X.shape[1])
    reach_leading = reach_of(squared_norms(asked), np.sqrt(reach) / scale, n_leading, _FLOAT32)

    distances = np.empty((len(Q), k))
    indices = np.empty((len(Q), k), np.intp)
    # (-2q, 1) · (x, ||x||^2) = ||x - q||^2 - ||q||^2, so one matrix product suffices.
    right = np.column_stack([leading, squared_norms(leading).astype(np.float32)]).T
    # A block of about 2 million sums stays in the cache.
    for block in split_rows(len(Q), 24 * len(X), max_rows=max(16, 2**21 // len(X))):
        left = np.column_stack([-2 * asked[block], np.ones(len(asked[block]), np.float32)])
        most = (reach_leading[block] - squared_norms(asked[block])).astype(np.float32)
        # Round up: the conversion to float32 must not remove a pair.
        near = left @ right <= np.nextafter(most, np.float32(np.inf))[:, None]
        rows, columns = np.divmod(np.flatnonzero(near), len(X))
        rows, columns = _survivors(points, queries[block], reach[block], rows, columns, n_leading)
        measured = pair_distances(X, Q[block], columns, rows)
        # Pairs are sorted by column within each row, and the sort is stable.
        order = np.lexsort((measured, rows))
        first = np.searchsorted(rows, np.arange(block.stop - block.start))
        nearest = order[first[:, None] + np.arange(k)]
        distances[block], indices[block] = measured[nearest], columns[nearest]
    return distances, indices


def _survivors(
    points: NDArray[Any],
    queries: NDArray[Any],
    reach: Matrix,
    rows: Indices,
    columns: Indices,
    n_leading: int,
) -> tuple[Indices, Indices]:
    """Return the pairs whose sum of squares stays within ``reach`` as coordinates are added."""
    sums = np.zeros(len(rows))
    start, stop = 0, n_leading
    while start < points.shape[1] and len(rows):
        part = pair_distances(points[:, start:stop], queries[:, start:stop], columns, rows)
        sums += part * part
        kept = np.flatnonzero(sums <= reach[rows])
        rows, columns, sums = rows[kept], columns[kept], sums[kept]
        start, stop = stop, 2 * stop
    return rows, columns


def _largest_sum(norms: Matrix, radius: Matrix, p: int) -> Matrix:
    """Return the largest sum of squares of rotated coordinates of a row within ``radius``.

    The errors of centering, rotation (by axes that are orthogonal up to rounding) and summation are
    a multiple of ``p eps (||x|| + ||q||)^2``, like that of the expanded form. Four times the bound
    of the latter is sufficient.
    """
    return reach_of(norms, radius, 4 * p, _FLOAT64)
