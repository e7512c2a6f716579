"""Exact distances and ranking of candidates, and bounds on the rounding error."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats, Indices, Mask, Matrix
from nearfar.blocks import split_rows

# Number of candidates in addition to the k nearest. The distance of the farthest candidate shows
# whether a closer row may have been missed because of rounding.
SPARE = 8
# Maximum number of entries per block of differences, so that the block stays in the cache.
_MAX_ENTRIES_PER_BLOCK = 1 << 16
# Approximate number of rows whose median is used as the center.
_N_CENTER_ROWS = 250


def check_n_neighbors(n_neighbors: int, n_samples: int, *, excludes_self: bool) -> None:
    """Raise a ValueError unless n_neighbors is an integer between 1 and the number of rows."""
    maximum = n_samples - excludes_self
    if maximum < 1:
        raise ValueError(
            f"n_neighbors={n_neighbors!r} needs at least 2 rows, because a row is not its own "
            f"neighbor; X has {n_samples} row(s)."
        )
    is_integer = isinstance(n_neighbors, Integral) and not isinstance(n_neighbors, bool)
    if not is_integer or not 1 <= n_neighbors <= maximum:
        described = "rows of X minus the row itself" if excludes_self else "rows of X"
        raise ValueError(
            f"n_neighbors must be an integer from 1 to {maximum} (the number of {described}); "
            f"got {n_neighbors!r}."
        )


def rank_candidates(X: Floats, Q: Floats, candidates: Indices) -> tuple[Matrix, Indices]:
    """Sort each query's candidates by exact distance, then by index."""
    indices = np.sort(candidates, axis=1)
    distances = np.empty(indices.shape)
    n_candidates, p = indices.shape[1], X.shape[1]
    block_size = max(1, _MAX_ENTRIES_PER_BLOCK // max(1, n_candidates * p))
    for block in split_rows(len(Q), 16 * n_candidates * p, max_rows=block_size):
        difference = np.subtract(X[indices[block]], Q[block][:, None], dtype=np.float64)
        distances[block] = _compute_lengths(difference.reshape(-1, p)).reshape(-1, n_candidates)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1)


def compute_pair_distances(X: Floats, Q: Floats, columns: Indices, rows: Indices) -> Matrix:
    """Return ``||X[columns[m]] - Q[rows[m]]||`` for each pair ``m``, from float64 differences."""
    p = X.shape[1]
    distances = np.empty(len(rows))
    for pairs in split_rows(len(rows), 24 * p, max_rows=max(1, _MAX_ENTRIES_PER_BLOCK // p)):
        difference = np.subtract(X[columns[pairs]], Q[rows[pairs]], dtype=np.float64)
        distances[pairs] = _compute_lengths(difference)
    return distances


def select_first_pairs(
    rows: Indices, columns: Indices, distances: Matrix, counts: Indices, k: int
) -> tuple[Matrix, Indices]:
    """Return the ``k`` nearest pairs of each query, sorted by distance, then by column.

    Pairs are sorted by ``rows``, then columns. Query ``i`` has ``counts[i]`` pairs, at least k.
    """
    starts = np.cumsum(counts) - counts
    width = int(counts.max(initial=0))
    if width * len(counts) <= 4 * len(rows):
        # Use a table with one row per query, because many short sorts are faster than one long
        # sort.
        table = np.full((len(counts), width), np.inf)
        table[rows, np.arange(len(rows)) - starts[rows]] = distances
        order = np.argsort(table, axis=1, kind="stable")[:, :k] + starts[:, None]
    else:
        order = np.lexsort((distances, rows))[starts[:, None] + np.arange(k)]
    return distances[order], columns[order]


def _compute_lengths(difference: Matrix) -> Matrix:
    difference *= difference
    # Use ``sum``, because it adds the entries of every row in the same order. einsum does not.
    return np.sqrt(difference.sum(axis=1))


def compute_reach(norms: Matrix, radius: Matrix, p: int, dtype: np.dtype[Any]) -> Matrix:
    """Return an upper bound on the computed squared distance of any row within ``radius``."""
    with np.errstate(over="ignore"):
        return radius**2 + bound_rounding(norms, radius, p, dtype)


def bound_rounding(norms: Matrix, radius: Matrix, p: int, dtype: np.dtype[Any]) -> Matrix:
    r"""Bound the rounding error of squared distances computed as ``||x||^2 - 2 x·q + ||q||^2``.

    The bound holds for all rows x within ``radius`` of the query q.

    Let u be half the spacing of floating-point numbers at 1. For a query q and a row x whose
    entries were each rounded once, their squares and twice their product, summed in any order, have
    an error of at most

    .. math:: (p + 8) u (\|x\| + \|q\|)^2

    (p products and sums, the rounding of the entries and of the squared norms, and all terms of
    second order). The squared distance from differences has the same bound in float64. Here
    :math:`\|x\| \le \|q\| + r`. The last term covers squares that underflow.
    """
    limits, exact = np.finfo(dtype), np.finfo(np.float64)
    with np.errstate(over="ignore"):
        factor = 1.1 * (p + 8) * (float(limits.eps) / 2 + float(exact.eps))
        return factor * (2 * np.sqrt(norms) + radius) ** 2 + 4 * p * float(limits.tiny)


def compute_reach_of_nearest(
    norms: Matrix, squared: Matrix, p: int, dtype: np.dtype[Any]
) -> Matrix:
    r"""Return an upper bound on the computed squared distances of the k nearest rows.

    For k rows, the expanded form gives ``squared`` or less. Let e be the error bound
    (:func:`bound_rounding`) of a row whose distance r is the square root of ``squared``. This bound
    is at most a twentieth of :math:`(2\|q\| + r)^2`. Then k rows are within a squared distance of
    squared + 2.3 e, and for rows within that radius the expanded form adds at most another 2.3 e.
    """
    squared = np.maximum(squared, 0)
    return squared + 5 * bound_rounding(norms, np.sqrt(squared), p, dtype)


def compute_center(X: Floats) -> Matrix:
    """Return a point in the middle of the data. With this origin, rounding errors are small.

    The point is a median, because a single distant row would move the mean away from all others. A
    sample of rows suffices, because any point close to the data works.
    """
    sample = X[:: 1 + len(X) // _N_CENTER_ROWS].T.astype(np.float64, order="C")
    return compute_upper_median(sample)


def compute_upper_median(values: Matrix) -> Matrix:
    """Return the upper median along the last axis, faster than NumPy's median for small arrays."""
    position = values.shape[-1] // 2
    return np.asarray(np.partition(values, position, axis=-1)[..., position])


def subtract_center(X: Floats, center: Matrix, dtype: np.dtype[Any]) -> Floats:
    """Return ``X - center``, computed in float64 and rounded once to ``dtype``."""
    with np.errstate(over="ignore", invalid="ignore"):
        Z = np.empty(X.shape, dtype)
        np.subtract(X, center, out=Z, dtype=np.float64, casting="same_kind")
        if not compute_squared_norms(Z).max(initial=0) < np.finfo(dtype).max / 16:
            raise ValueError(
                f"Squared distances overflow {dtype}: the largest absolute value is "
                f"{np.abs(X).max():.3g}. Divide the data by a constant."
            )
    return Z


def compute_squared_norms(Z: Floats) -> Matrix:
    """Return the squared norms of rows, in float64."""
    return np.einsum("ij,ij->i", Z, Z, dtype=np.float64)


def remove_self(distances: Matrix, indices: Indices) -> tuple[Matrix, Indices]:
    """Remove each row from its own neighbors. If it is not listed, remove its last neighbor."""
    n, k = indices.shape
    mask = indices != np.arange(n)[:, None]
    mask[mask.all(axis=1), -1] = False
    return distances[mask].reshape(n, k - 1), indices[mask].reshape(n, k - 1)


def view_rows_as_bytes(X: Floats) -> NDArray[np.void]:
    """Return a view of X in which each item consists of the bytes of one row.

    Rows that differ only in the sign of a zero have different bytes.
    """
    return X.view(np.dtype((np.void, X.itemsize * X.shape[1])))[:, 0]


def find_identical_rows(X: Floats) -> tuple[Indices, Mask]:
    """Sort rows so that identical rows are adjacent, and mark the first row of each set.

    Returns the sorting order and a mask of the first rows.

    Within a set, indices are in ascending order. Rows that differ only in the sign of a zero are
    not identical. The function sorts hashes instead of copies of rows, and then compares rows with
    equal hashes.
    """
    hashes = np.empty(len(X), np.uint64)
    weights = np.random.default_rng(0).integers(2**64, size=X.shape[1], dtype=np.uint64)
    size = max(1, _MAX_ENTRIES_PER_BLOCK // X.shape[1])
    for block in split_rows(len(X), 16 * X.shape[1], max_rows=size):
        bits = _view_as_bits(X[block]).astype(np.uint64)
        # Mix the leading bits into the trailing bits. In most floats, the trailing bits are zero
        # and would stay zero in a product.
        bits ^= bits >> np.uint64(8 * X.itemsize // 2)
        hashes[block] = bits @ weights
    order = np.argsort(hashes, kind="stable")
    starts = np.ones(len(X), bool)
    starts[1:] = hashes[order[1:]] != hashes[order[:-1]]
    same_hash = np.flatnonzero(~starts)
    for block in split_rows(len(same_hash), 16 * X.shape[1], max_rows=size):
        positions = same_hash[block]
        starts[positions] = (
            _view_as_bits(X[order[positions]]) != _view_as_bits(X[order[positions - 1]])
        ).any(axis=1)
    return order, starts


def _view_as_bits(rows: Floats) -> NDArray[np.unsignedinteger[Any]]:
    return np.ascontiguousarray(rows).view(f"u{rows.itemsize}")
