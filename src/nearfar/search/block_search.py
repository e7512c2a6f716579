"""Nearest rows to each query by matrix products, filtered by a running threshold.

A block of queries is compared with the rows block by block. One comparison discards all rows beyond
the best found so far. The number of rows that pass grows with the logarithm of the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Vector
from nearfar.search.candidates import rounding_of
from nearfar.search.placed_rows import PlacedRows

# Maximum number of rows per block, and of bytes they may take.
_ROWS_AT_ONCE = 1024
_BYTES_AT_ONCE = 2**22
# Number of rows, spread over all, that give the first threshold: at least, and per neighbor.
_SAMPLE, _SAMPLE_OF_EACH = 256, 8
# Size of the buffer of the best rows: per neighbor, and at least.
_ROOM, _LEAST_ROOM = 4, 96
# Minimum number of parts of a row whose minima bound the k-th value.
_LEAST_PARTS = 64


class BlockProducts:
    """Squared distances of queries to blocks of rows, minus the squared norms of the queries.

    They are one matrix product: ``(-2q, 1) · (x, ||x||^2) = ||x - q||^2 - ||q||^2``. If ``whole``,
    the term ``||q||^2 · 1`` is added. Each block overwrites the one before.
    """

    def __init__(
        self,
        rows: PlacedRows,
        queries: PlacedRows,
        where: slice | Indices,
        dtype: np.dtype[Any],
        at_least: int = 1,
        *,
        whole: bool = False,
    ) -> None:
        n, p = rows.X.shape
        self.norms: Vector = queries.squares[where]
        self.at_once = rows_at_once(n, p, dtype, at_least)
        self._rows = rows
        self._left = np.empty((len(self.norms), p + 1 + whole), dtype)
        queries.fill(where, self._left[:, :p])
        self._left[:, :p] *= -2
        self._left[:, p] = 1
        if whole:
            self._left[:, p + 1] = self.norms
        self._right: NDArray[Any] | None = None
        self._room = np.empty(len(self._left) * self.at_once, dtype)

    def of(self, block: slice | Indices) -> NDArray[Any]:
        """Return the values of all queries against one block of at most ``at_once`` rows."""
        if self._right is None:
            self._right = np.empty((self.at_once, self._left.shape[1]), self._left.dtype)
        return self.against(facing(self._rows, block, self._right))

    def against(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the values against rows that :func:`facing` has prepared."""
        shape = len(self._left), len(rows)
        return np.matmul(self._left, rows.T, out=self._room[: shape[0] * shape[1]].reshape(shape))

    def __iter__(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the first row of each block, and the values of the block."""
        n = len(self._rows.X)
        for begin in range(0, n, self.at_once):
            yield begin, self.of(slice(begin, min(begin + self.at_once, n)))


def facing(rows: PlacedRows, block: slice | Indices, out: NDArray[Any]) -> NDArray[Any]:
    """Write the right factor of :class:`BlockProducts` (rows, squared norms, ones) into ``out``."""
    squares = rows.squares[block]
    p = rows.X.shape[1]
    out = out[: len(squares)]
    rows.fill(block, out[:, :p])
    out[:, p] = squares
    out[:, p + 1 :] = 1
    return out


def rows_at_once(n: int, p: int, dtype: np.dtype[Any], at_least: int = 1) -> int:
    """Return the number of rows per block."""
    few = max(32, _BYTES_AT_ONCE // ((p + 1) * dtype.itemsize))
    return min(n, max(at_least, min(_ROWS_AT_ONCE, few)))


def nearest_by_blocks(
    rows: PlacedRows,
    queries: PlacedRows,
    where: slice | Indices,
    n_wanted: int,
    dtype: np.dtype[Any],
) -> tuple[Vector, Indices]:
    """Return the ``n_wanted`` rows nearest to some queries, by products in ``dtype``.

    Also returns a squared distance per query, by the same products, below which no other row lies.
    It is in the units of the placed rows. The candidates are not sorted.
    """
    n, p = rows.X.shape
    products = BlockProducts(rows, queries, where, dtype, at_least=2 * n_wanted)
    norms = products.norms
    if products.at_once == n:
        values, candidates = _smallest(products.of(slice(n)), n_wanted)
        return values.max(axis=1) + norms, candidates

    # The k-th distance in a sample is at least the k-th of all rows. The rounding error is added,
    # so that the sampled rows pass again in their own blocks.
    n_sample = min(products.at_once, max(_SAMPLE, _SAMPLE_OF_EACH * n_wanted))
    sample = products.of(slice(None, None, -(-n // n_sample)))
    start = np.partition(sample, n_wanted - 1, axis=1)[:, n_wanted - 1]
    radius = np.sqrt(np.maximum(start + norms, 0))
    best = _Best(start + 4 * rounding_of(norms, radius, p, dtype), n_wanted, dtype)
    passed = np.empty((len(norms), products.at_once), bool)
    for begin, values in products:
        below = np.less(values, best.threshold[:, None], out=passed[:, : values.shape[1]])
        best.take(values, np.flatnonzero(below), begin)
    values, candidates = best.chosen()
    return values.max(axis=1) + norms, candidates


def kth_at_most(values: NDArray[Any], k: int) -> NDArray[Any]:
    """Return an upper bound on the k-th smallest value of each row, with few values below it.

    Any k parts of a row contain k values that do not exceed the largest of their minima. Minima of
    many narrow parts are fast to compute, so four times as many parts are reduced first.
    """
    b, n = values.shape
    parts = max(_LEAST_PARTS, 1 << (4 * k - 1).bit_length())
    together = 4 if n >= 8 * parts else 1
    size = n // (together * parts)
    if size > 1:
        # Ignoring the values after the last part can only increase the bound.
        least = values[:, : size * together * parts].reshape(b, size, together * parts)
        values = least.min(axis=1).reshape(b, together, parts).min(axis=1)
    return np.asarray(np.partition(values, k - 1, axis=1)[:, k - 1])


class _Best:
    """Buffer of the smallest values of each query, reduced to the best when it is full."""

    def __init__(self, threshold: Vector, n_wanted: int, dtype: np.dtype[Any]) -> None:
        up = np.asarray(np.inf, dtype)
        self.threshold = np.nextafter(threshold.astype(dtype), up)
        self._n_wanted = n_wanted
        self._values = np.full((len(threshold), max(_LEAST_ROOM, _ROOM * n_wanted)), up)
        self._indices = np.zeros(self._values.shape, np.intp)
        self._counts = np.zeros(len(threshold), np.intp)

    def take(self, values: NDArray[Any], flat: Indices, begin: int) -> None:
        """Add the values below the threshold of a block that starts at row ``begin``."""
        if not len(flat):
            return
        width, room = values.shape[1], self._values.shape[1]
        query = flat // width
        new = np.bincount(query, minlength=len(values))
        full = np.flatnonzero(self._counts + new > room)
        if len(full):
            self._choose(full)
            many = full[self._counts[full] + new[full] > room]
            if len(many):
                # The buffer cannot hold them all, so add only the smallest of this block.
                few, columns = _smallest(values[many], self._n_wanted)
                places = slice(self._n_wanted, 2 * self._n_wanted)
                self._values[many, places], self._indices[many, places] = few, columns + begin
                self._counts[many] += self._n_wanted
                new[many] = 0
                kept = new[query] > 0
                flat, query = flat[kept], query[kept]
        place = self._counts[query] + np.arange(len(query)) - (np.cumsum(new) - new)[query]
        self._values[query, place] = values.ravel()[flat]
        self._indices[query, place] = flat - query * width + begin
        self._counts += new

    def chosen(self) -> tuple[NDArray[Any], Indices]:
        """Return the smallest values of all queries and their rows."""
        self._choose(np.arange(len(self._counts)))
        return self._values[:, : self._n_wanted], self._indices[:, : self._n_wanted]

    def _choose(self, which: Indices) -> None:
        values, places = _smallest(self._values[which], self._n_wanted)
        self._indices[which, : self._n_wanted] = np.take_along_axis(
            self._indices[which], places, axis=1
        )
        self._values[which, : self._n_wanted] = values
        self._values[which, self._n_wanted :] = np.inf
        self._counts[which] = self._n_wanted
        self.threshold[which] = np.minimum(self.threshold[which], values.max(axis=1))


def _smallest(values: NDArray[Any], n_wanted: int) -> tuple[NDArray[Any], Indices]:
    """Return the smallest values of each row, unsorted, and their positions."""
    if n_wanted == values.shape[1]:
        return values, np.broadcast_to(np.arange(n_wanted), values.shape)
    places = np.argpartition(values, n_wanted - 1, axis=1)[:, :n_wanted]
    return np.take_along_axis(values, places, axis=1), places
