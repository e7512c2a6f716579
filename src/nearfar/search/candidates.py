"""From candidates to neighbours: exact distances, ranks, and how far rounding may mislead."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats, Indices, Mask, Matrix
from nearfar.blocks import row_blocks

# Candidates beyond the k-th; the farthest of them says whether the cut at k is safe.
SPARE = 8
# Differences are taken for so many numbers at once, which stay in the cache.
_NUMBERS_AT_ONCE = 1 << 16
_ROWS_FOR_A_CENTER = 250


def check_n_neighbors(n_neighbors: int, n_samples: int, *, without_self: bool) -> None:
    """Refuse a number of neighbours that is none, or more than there are rows."""
    most = n_samples - without_self
    if most < 1:
        raise ValueError(
            f"n_neighbors={n_neighbors!r}, but X has {n_samples} row, which has no other row for "
            "a neighbour; give at least 2 rows."
        )
    whole = isinstance(n_neighbors, Integral) and not isinstance(n_neighbors, bool)
    if not whole or not 1 <= n_neighbors <= most:
        of = "rows of X, less the row itself" if without_self else "rows of X"
        raise ValueError(
            f"n_neighbors must be an integer from 1 to {most} (the number of {of}); "
            f"got {n_neighbors!r}."
        )


def ranked(X: Floats, Q: Floats, candidates: Indices) -> tuple[Matrix, Indices]:
    """Each query's candidates by exact distance, then index."""
    indices = np.sort(candidates, axis=1)
    distances = np.empty(indices.shape)
    n_candidates, p = indices.shape[1], X.shape[1]
    few = max(1, _NUMBERS_AT_ONCE // max(1, n_candidates * p))
    for block in row_blocks(len(Q), 16 * n_candidates * p, at_most=few):
        difference = np.subtract(X[indices[block]], Q[block][:, None], dtype=np.float64)
        distances[block] = _lengths(difference.reshape(-1, p)).reshape(-1, n_candidates)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1)


def pair_distances(X: Floats, Q: Floats, columns: Indices, rows: Indices) -> Matrix:
    """``||X[columns[m]] - Q[rows[m]]||`` of each pair ``m``, from differences in float64."""
    p = X.shape[1]
    distances = np.empty(len(rows))
    for pairs in row_blocks(len(rows), 24 * p, at_most=max(1, _NUMBERS_AT_ONCE // p)):
        difference = np.subtract(X[columns[pairs]], Q[rows[pairs]], dtype=np.float64)
        distances[pairs] = _lengths(difference)
    return distances


def first_of_pairs(
    rows: Indices, columns: Indices, distances: Matrix, counts: Indices, k: int
) -> tuple[Matrix, Indices]:
    """The first ``k`` pairs of each query by distance, then column.

    Pairs come in the order of ``rows``, then columns; query ``i`` has ``counts[i]``, at least k.
    """
    starts = np.cumsum(counts) - counts
    width = int(counts.max(initial=0))
    if width * len(counts) <= 4 * len(rows):
        # A line for each query: many short sorts are faster than a long one.
        table = np.full((len(counts), width), np.inf)
        table[rows, np.arange(len(rows)) - starts[rows]] = distances
        order = np.argsort(table, axis=1, kind="stable")[:, :k] + starts[:, None]
    else:
        order = np.lexsort((distances, rows))[starts[:, None] + np.arange(k)]
    return distances[order], columns[order]


def _lengths(difference: Matrix) -> Matrix:
    difference *= difference
    # A plain sum adds each row in the same order wherever it stands; einsum does not.
    return np.sqrt(difference.sum(axis=1))


def reach_of(norms: Matrix, radius: Matrix, p: int, dtype: np.dtype[Any]) -> Matrix:
    """The largest squared distance the expanded form may give a row that is within ``radius``."""
    with np.errstate(over="ignore"):
        return radius**2 + rounding_of(norms, radius, p, dtype)


def rounding_of(norms: Matrix, radius: Matrix, p: int, dtype: np.dtype[Any]) -> Matrix:
    r"""By how much the expanded form may miss the squared distance of a row within ``radius``.

    A query q and a row x, each number rounded once, with u half the spacing of numbers at 1: their
    squares and twice their product, summed in any order, err by at most

    .. math:: (p + 8) u (\|x\| + \|q\|)^2

    (p products and sums, the roundings of the numbers and of the squared lengths, and all terms of
    second order), and the squared distance from differences by as much in float64. Here
    :math:`\|x\| \le \|q\| + r`. The last term is for squares that underflow.
    """
    limits, exact = np.finfo(dtype), np.finfo(np.float64)
    with np.errstate(over="ignore"):
        share = 1.1 * (p + 8) * (float(limits.eps) / 2 + float(exact.eps))
        return share * (2 * np.sqrt(norms) + radius) ** 2 + 4 * p * float(limits.tiny)


def reach_of_nearest(norms: Matrix, squared: Matrix, p: int, dtype: np.dtype[Any]) -> Matrix:
    r"""What the expanded form may give for the k nearest rows, if it gives k ``squared`` or less.

    With e the :func:`rounding_of` a row at the root of
    ``squared``, which is at most a twentieth of :math:`(2\|q\| + r)^2`, k rows lie within
    :math:`r^2 \le squared + 2.3 e`, and what lies there is given at most 2.3 e more.
    """
    squared = np.maximum(squared, 0)
    return squared + 5 * rounding_of(norms, np.sqrt(squared), p, dtype)


def center_of(X: Floats) -> Matrix:
    """A point amid the data: the expanded form rounds relative to the distance from it.

    A median, as one far row would carry the mean away from all others; of some rows, as any point
    near the data serves.
    """
    some = X[:: 1 + len(X) // _ROWS_FOR_A_CENTER].T.astype(np.float64, order="C")
    return middle(some)


def middle(values: Matrix) -> Matrix:
    """A median along the last axis, the upper one; far quicker than NumPy's for few numbers."""
    place = values.shape[-1] // 2
    return np.asarray(np.partition(values, place, axis=-1)[..., place])


def centered(X: Floats, center: Matrix, dtype: np.dtype[Any]) -> Floats:
    """``X - centre``, computed in float64 and rounded once to ``dtype``."""
    with np.errstate(over="ignore", invalid="ignore"):
        Z = np.empty(X.shape, dtype)
        np.subtract(X, center, out=Z, dtype=np.float64, casting="same_kind")
        if not squared_norms(Z).max(initial=0) < np.finfo(dtype).max / 16:
            raise ValueError(
                f"Squared distances overflow {dtype}: the largest value found is "
                f"{np.abs(X).max():.3g}; divide the data by a constant."
            )
    return Z


def squared_norms(Z: Floats) -> Matrix:
    """Squared lengths of rows, in float64."""
    return np.einsum("ij,ij->i", Z, Z, dtype=np.float64)


def without_self(distances: Matrix, indices: Indices) -> tuple[Matrix, Indices]:
    """Leave row ``i`` out of its own neighbours, or the last one where it is not among them."""
    n, k = indices.shape
    other = indices != np.arange(n)[:, None]
    other[other.all(axis=1), -1] = False
    return distances[other].reshape(n, k - 1), indices[other].reshape(n, k - 1)


def row_bytes(X: Floats) -> NDArray[np.void]:
    """Each row as one item. Rows that differ in the sign of a zero count as different."""
    return X.view(np.dtype((np.void, X.itemsize * X.shape[1])))[:, 0]


def identical_rows(X: Floats) -> tuple[Indices, Mask]:
    """All rows in an order in which identical ones follow each other, and where each set starts.

    Within a set they ascend. Rows that differ in the sign of a zero count as different. Hashes are
    sorted, not rows, of which no copy is made; rows of equal hash are then compared.
    """
    hashes = np.empty(len(X), np.uint64)
    weights = np.random.default_rng(0).integers(2**64, size=X.shape[1], dtype=np.uint64)
    size = max(1, _NUMBERS_AT_ONCE // X.shape[1])
    for block in row_blocks(len(X), 16 * X.shape[1], at_most=size):
        bits = _bits(X[block]).astype(np.uint64)
        # The trailing bits of most numbers are zero, and would stay so.
        bits ^= bits >> np.uint64(8 * X.itemsize // 2)
        hashes[block] = bits @ weights
    order = np.argsort(hashes, kind="stable")
    starts = np.ones(len(X), bool)
    starts[1:] = hashes[order[1:]] != hashes[order[:-1]]
    alike = np.flatnonzero(~starts)
    for block in row_blocks(len(alike), 16 * X.shape[1], at_most=size):
        here = alike[block]
        starts[here] = (_bits(X[order[here]]) != _bits(X[order[here - 1]])).any(axis=1)
    return order, starts


def _bits(rows: Floats) -> NDArray[np.unsignedinteger[Any]]:
    return np.ascontiguousarray(rows).view(f"u{rows.itemsize}")
