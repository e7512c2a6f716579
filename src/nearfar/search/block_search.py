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
from nearfar.search.candidates import bound_rounding
from nearfar.search.placed_rows import PlacedRows

# Maximum number of rows per block.
_MAX_ROWS_PER_BLOCK = 1024
# Maximum number of bytes per block of rows.
_MAX_BYTES_PER_BLOCK = 2**22
# The first threshold is computed from about this number of evenly spaced rows.
_MIN_SAMPLE = 256
# For many neighbors, the first threshold is computed from this number of rows per neighbor.
_SAMPLE_PER_NEIGHBOR = 8
# The buffer of the best rows has space for at least this number of rows per requested neighbor.
_CAPACITY_PER_NEIGHBOR = 4
# The buffer of the best rows has space for at least this number of rows.
_MIN_CAPACITY = 96
# Minimum number of chunks into which a row is divided to bound its k-th smallest value.
_MIN_CHUNKS = 64


class BlockProducts:
    """Squared distances of queries to blocks of rows, minus the squared norms of the queries.

    These values are one matrix product: ``(-2q, 1) · (x, ||x||^2) = ||x - q||^2 - ||q||^2``. With
    ``adds_query_norms``, the term ``||q||^2 · 1`` is added. Each block overwrites the one before.
    """

    def __init__(
        self,
        rows: PlacedRows,
        queries: PlacedRows,
        query_index: slice | Indices,
        dtype: np.dtype[Any],
        min_rows: int = 1,
        *,
        adds_query_norms: bool = False,
    ) -> None:
        n, p = rows.X.shape
        self.norms: Vector = queries.squares[query_index]
        self.block_size = choose_block_size(n, p, dtype, min_rows)
        self._rows = rows
        self._query_factor = np.empty((len(self.norms), p + 1 + adds_query_norms), dtype)
        queries.fill(query_index, self._query_factor[:, :p])
        self._query_factor[:, :p] *= -2
        self._query_factor[:, p] = 1
        if adds_query_norms:
            self._query_factor[:, p + 1] = self.norms
        self._row_factor: NDArray[Any] | None = None
        self._buffer = np.empty(len(self._query_factor) * self.block_size, dtype)

    def compute_block(self, block: slice | Indices) -> NDArray[Any]:
        """Return ``||x - q||^2 - ||q||^2`` for each query q and each row x of a block.

        The block has at most ``block_size`` rows. With ``adds_query_norms``, ``||q||^2`` is added.
        """
        if self._row_factor is None:
            self._row_factor = np.empty(
                (self.block_size, self._query_factor.shape[1]), self._query_factor.dtype
            )
        return self.compute_products(fill_right_factor(self._rows, block, self._row_factor))

    def compute_products(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Multiply all queries by a right factor from :func:`fill_right_factor`."""
        shape = len(self._query_factor), len(rows)
        return np.matmul(
            self._query_factor, rows.T, out=self._buffer[: shape[0] * shape[1]].reshape(shape)
        )

    def __iter__(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the index of the first row of each block, and the result of ``compute_block``."""
        n = len(self._rows.X)
        for begin in range(0, n, self.block_size):
            yield begin, self.compute_block(slice(begin, min(begin + self.block_size, n)))


def fill_right_factor(rows: PlacedRows, block: slice | Indices, out: NDArray[Any]) -> NDArray[Any]:
    """Write the right factor of :class:`BlockProducts` to ``out``: rows, squared norms and ones."""
    squares = rows.squares[block]
    p = rows.X.shape[1]
    out = out[: len(squares)]
    rows.fill(block, out[:, :p])
    out[:, p] = squares
    out[:, p + 1 :] = 1
    return out


def choose_block_size(n: int, p: int, dtype: np.dtype[Any], min_rows: int = 1) -> int:
    """Return the number of rows per block."""
    n_cached = max(32, _MAX_BYTES_PER_BLOCK // ((p + 1) * dtype.itemsize))
    return min(n, max(min_rows, min(_MAX_ROWS_PER_BLOCK, n_cached)))


def find_nearest_by_blocks(
    rows: PlacedRows,
    queries: PlacedRows,
    query_index: slice | Indices,
    n_requested: int,
    dtype: np.dtype[Any],
) -> tuple[Vector, Indices]:
    """Find the ``n_requested`` rows nearest to each query by matrix products in ``dtype``.

    Returns a squared distance per query and the nearest rows, which are not sorted. All other rows
    are at least at this squared distance, computed by the same products. The unit is that of the
    scaled rows.
    """
    n, p = rows.X.shape
    products = BlockProducts(rows, queries, query_index, dtype, min_rows=2 * n_requested)
    norms = products.norms
    if products.block_size == n:
        values, candidates = _find_smallest(products.compute_block(slice(n)), n_requested)
        return values.max(axis=1) + norms, candidates

    # The k-th smallest distance in a sample is at least the k-th smallest distance of all rows. The
    # rounding error is added, so that sampled rows pass the threshold again in their own blocks.
    n_sample = min(products.block_size, max(_MIN_SAMPLE, _SAMPLE_PER_NEIGHBOR * n_requested))
    sample = products.compute_block(slice(None, None, -(-n // n_sample)))
    start = np.partition(sample, n_requested - 1, axis=1)[:, n_requested - 1]
    radius = np.sqrt(np.maximum(start + norms, 0))
    best = _Best(start + 4 * bound_rounding(norms, radius, p, dtype), n_requested, dtype)
    passed = np.empty((len(norms), products.block_size), bool)
    for begin, values in products:
        below = np.less(values, best.threshold[:, None], out=passed[:, : values.shape[1]])
        best.add(values, np.flatnonzero(below), begin)
    values, candidates = best.select()
    return values.max(axis=1) + norms, candidates


def bound_kth_smallest(values: NDArray[Any], k: int) -> NDArray[Any]:
    """Return a tight upper bound on the k-th smallest value of each row.

    Any k chunks of a row contain k values that do not exceed the largest of the chunks' minima.
    Minima of many narrow chunks are fast to compute, so the function first computes four times as
    many minima and then merges them.
    """
    b, n = values.shape
    n_chunks = max(_MIN_CHUNKS, 1 << (4 * k - 1).bit_length())
    n_merged = 4 if n >= 8 * n_chunks else 1
    size = n // (n_merged * n_chunks)
    if size > 1:
        # Ignoring the values after the last chunk can only increase the bound.
        chunks = values[:, : size * n_merged * n_chunks].reshape(b, size, n_merged * n_chunks)
        values = chunks.min(axis=1).reshape(b, n_merged, n_chunks).min(axis=1)
    return np.asarray(np.partition(values, k - 1, axis=1)[:, k - 1])


class _Best:
    """Buffer of the smallest values of each query. If it is full, the larger values are removed."""

    def __init__(self, threshold: Vector, n_requested: int, dtype: np.dtype[Any]) -> None:
        up = np.asarray(np.inf, dtype)
        self.threshold = np.nextafter(threshold.astype(dtype), up)
        self._n_requested = n_requested
        self._values = np.full(
            (len(threshold), max(_MIN_CAPACITY, _CAPACITY_PER_NEIGHBOR * n_requested)), up
        )
        self._indices = np.zeros(self._values.shape, np.intp)
        self._counts = np.zeros(len(threshold), np.intp)

    def add(self, values: NDArray[Any], flat: Indices, begin: int) -> None:
        """Add a block's values that are below the threshold. The block starts at row ``begin``."""
        if not len(flat):
            return
        width, capacity = values.shape[1], self._values.shape[1]
        query = flat // width
        n_new = np.bincount(query, minlength=len(values))
        full = np.flatnonzero(self._counts + n_new > capacity)
        if len(full):
            self._reduce(full)
            overfull = full[self._counts[full] + n_new[full] > capacity]
            if len(overfull):
                # The buffer cannot hold all new values, so add only the smallest ones of this
                # block.
                smallest, columns = _find_smallest(values[overfull], self._n_requested)
                columns_to_fill = slice(self._n_requested, 2 * self._n_requested)
                (
                    self._values[overfull, columns_to_fill],
                    self._indices[overfull, columns_to_fill],
                ) = smallest, columns + begin
                self._counts[overfull] += self._n_requested
                n_new[overfull] = 0
                mask = n_new[query] > 0
                flat, query = flat[mask], query[mask]
        position = self._counts[query] + np.arange(len(query)) - (np.cumsum(n_new) - n_new)[query]
        self._values[query, position] = values.ravel()[flat]
        self._indices[query, position] = flat - query * width + begin
        self._counts += n_new

    def select(self) -> tuple[NDArray[Any], Indices]:
        """Return the smallest values of each query, and the indices of their rows."""
        self._reduce(np.arange(len(self._counts)))
        return self._values[:, : self._n_requested], self._indices[:, : self._n_requested]

    def _reduce(self, query_index: Indices) -> None:
        values, positions = _find_smallest(self._values[query_index], self._n_requested)
        self._indices[query_index, : self._n_requested] = np.take_along_axis(
            self._indices[query_index], positions, axis=1
        )
        self._values[query_index, : self._n_requested] = values
        self._values[query_index, self._n_requested :] = np.inf
        self._counts[query_index] = self._n_requested
        self.threshold[query_index] = np.minimum(self.threshold[query_index], values.max(axis=1))


def _find_smallest(values: NDArray[Any], n_requested: int) -> tuple[NDArray[Any], Indices]:
    """Return the smallest values of each row, and their positions. The values are not sorted."""
    if n_requested == values.shape[1]:
        return values, np.broadcast_to(np.arange(n_requested), values.shape)
    positions = np.argpartition(values, n_requested - 1, axis=1)[:, :n_requested]
    return np.take_along_axis(values, positions, axis=1), positions
