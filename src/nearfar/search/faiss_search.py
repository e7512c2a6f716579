"""Nearest rows to each query by the flat search of faiss, from the extra ``ann``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Vector
from nearfar.extras import import_optional
from nearfar.search.placed_rows import PlacedRows

# Maximum number of bytes per block of rows, if the rows must be converted before the search.
_MAX_BYTES_PER_BLOCK = 2**23


@contextmanager
def set_faiss_threads(n_threads: int) -> Iterator[Any]:
    """Limit faiss to ``n_threads`` threads in the calling thread, and yield the faiss module."""
    faiss = import_optional("faiss", "ann")
    previous = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(previous)


def find_nearest_by_faiss(
    rows: PlacedRows, queries: PlacedRows, query_index: slice | Indices, n_requested: int
) -> tuple[Vector, Indices]:
    """Find the nearest rows to each query with faiss, in float32 and on one thread.

    Returns the same arrays as ``find_nearest_by_blocks``. Float32 rows that need neither centering
    nor scaling are used without a copy.
    """
    n, p = rows.X.shape
    query_block = queries.block(query_index, np.dtype(np.float32))
    is_used_directly = rows.is_unchanged and rows.X.dtype == np.float32
    size = n if is_used_directly else max(2 * n_requested, _MAX_BYTES_PER_BLOCK // (4 * p), 1)
    values: NDArray[Any] = np.empty((len(query_block), 0), np.float32)
    candidates = np.empty((len(query_block), 0), np.intp)
    with set_faiss_threads(1) as faiss:
        for begin in range(0, n, size):
            row_block = rows.block(slice(begin, min(begin + size, n)), np.dtype(np.float32))
            block_values, positions = faiss.knn(
                query_block, row_block, min(n_requested, len(row_block))
            )
            values = np.hstack([values, block_values])
            candidates = np.hstack([candidates, positions + begin])
            best = np.argpartition(values, n_requested - 1, axis=1)[:, :n_requested]
            values = np.take_along_axis(values, best, axis=1)
            candidates = np.take_along_axis(candidates, best, axis=1)
    return values.max(axis=1).astype(np.float64), candidates
