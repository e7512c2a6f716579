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
from nearfar.search.block_search import choose_block_size, find_nearest_by_blocks
from nearfar.search.candidates import (
    SPARE,
    check_n_neighbors,
    compute_center,
    compute_pair_distances,
    compute_reach,
    compute_squared_norms,
    rank_candidates,
    remove_self,
    subtract_center,
)
from nearfar.search.placed_rows import place_rows
from nearfar.solvers.eigen import descending_eigh

# The leading axes are the first principal axes that together explain this fraction of the variance.
_LEADING_FRACTION = 0.9
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
    check_n_neighbors(n_neighbors, len(X), excludes_self=queries is None)
    p = X.shape[1]
    if n_leading is not None and not 1 <= n_leading <= p:
        raise ValueError(
            f"n_leading must be from 1 to {p} (the number of features); got {n_leading!r}."
        )
    X = np.ascontiguousarray(X)
    if queries is None:
        return remove_self(*_find_nearest(X, X, n_neighbors + 1, n_leading))
    return _find_nearest(X, np.ascontiguousarray(queries), n_neighbors, n_leading)


def _find_nearest(X: Floats, Q: Floats, k: int, n_leading: int | None) -> tuple[Matrix, Indices]:
    center = compute_center(X)
    points = subtract_center(X, center, _FLOAT64)
    variances, axes = descending_eigh(points.T @ points)
    if n_leading is None:
        is_enough = np.cumsum(variances) >= _LEADING_FRACTION * variances.sum()
        n_leading = 1 + int(np.argmax(is_enough))
    points = points @ axes
    queries = points if Q is X else subtract_center(Q, center, _FLOAT64) @ axes

    # Scale the data, so that squares neither overflow nor underflow in float32.
    scale = (
        float(
            np.sqrt(max(compute_squared_norms(points).max(), compute_squared_norms(queries).max()))
        )
        or 1.0
    )
    leading = (points[:, :n_leading] / scale).astype(np.float32)
    leading_queries = (queries[:, :n_leading] / scale).astype(np.float32)
    placed_points, placed_queries = place_rows(leading, leading_queries)
    radius = np.empty(len(Q))
    for block in split_rows(
        len(Q), 24 * choose_block_size(len(X), n_leading, _FLOAT32), max_rows=2048
    ):
        n_candidates = min(k + SPARE, len(X))
        _, candidates = find_nearest_by_blocks(
            placed_points, placed_queries, block, n_candidates, _FLOAT32
        )
        radius[block] = rank_candidates(X, Q[block], candidates)[0][:, k - 1]
    reach = _bound_sum(compute_squared_norms(queries), radius, X.shape[1])
    reach_leading = compute_reach(
        compute_squared_norms(leading_queries), np.sqrt(reach) / scale, n_leading, _FLOAT32
    )

    distances = np.empty((len(Q), k))
    indices = np.empty((len(Q), k), np.intp)
    # (-2q, 1) · (x, ||x||^2) = ||x - q||^2 - ||q||^2, so one matrix product suffices.
    row_factor = np.column_stack([leading, compute_squared_norms(leading).astype(np.float32)]).T
    # A block of about 2 million sums stays in the cache.
    for block in split_rows(len(Q), 24 * len(X), max_rows=max(16, 2**21 // len(X))):
        query_factor = np.column_stack(
            [-2 * leading_queries[block], np.ones(len(leading_queries[block]), np.float32)]
        )
        limit = (reach_leading[block] - compute_squared_norms(leading_queries[block])).astype(
            np.float32
        )
        # Round up, so that the conversion to float32 does not remove a pair.
        is_near = query_factor @ row_factor <= np.nextafter(limit, np.float32(np.inf))[:, None]
        rows, columns = np.divmod(np.flatnonzero(is_near), len(X))
        rows, columns = _drop_distant_pairs(
            points, queries[block], reach[block], rows, columns, n_leading
        )
        measured = compute_pair_distances(X, Q[block], columns, rows)
        # The sort is stable, so pairs at the same distance stay sorted by column.
        order = np.lexsort((measured, rows))
        first = np.searchsorted(rows, np.arange(block.stop - block.start))
        nearest = order[first[:, None] + np.arange(k)]
        distances[block], indices[block] = measured[nearest], columns[nearest]
    return distances, indices


def _drop_distant_pairs(
    points: NDArray[Any],
    queries: NDArray[Any],
    reach: Matrix,
    rows: Indices,
    columns: Indices,
    n_leading: int,
) -> tuple[Indices, Indices]:
    """Add coordinates step by step, and drop pairs whose sum of squares exceeds ``reach``."""
    sums = np.zeros(len(rows))
    start, stop = 0, n_leading
    while start < points.shape[1] and len(rows):
        partial_distances = compute_pair_distances(
            points[:, start:stop], queries[:, start:stop], columns, rows
        )
        sums += partial_distances * partial_distances
        surviving = np.flatnonzero(sums <= reach[rows])
        rows, columns, sums = rows[surviving], columns[surviving], sums[surviving]
        start, stop = stop, 2 * stop
    return rows, columns


def _bound_sum(norms: Matrix, radius: Matrix, p: int) -> Matrix:
    """Return an upper bound on computed squared distances of rotated rows within ``radius``.

    The errors of centering, rotation (by axes that are orthogonal up to rounding) and summation are
    a multiple of ``p eps (||x|| + ||q||)^2``, like the error of the expanded form. Four times the
    bound for the expanded form is sufficient.
    """
    return compute_reach(norms, radius, 4 * p, _FLOAT64)
