"""The rows nearest to each query by the flat search of faiss, the extra ``ann``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Vector
from nearfar.extras import require
from nearfar.search.placed_rows import PlacedRows

# Rows that have to be placed first are searched in parts of so many bytes.
_BYTES_AT_ONCE = 2**23


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[Any]:
    """The module faiss on so many threads, in the thread that calls it and only inside."""
    faiss = require("faiss", "ann")
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)


def nearest_by_faiss(
    rows: PlacedRows, queries: PlacedRows, where: slice | Indices, n_wanted: int
) -> tuple[Vector, Indices]:
    """As :func:`~nearfar.search.block_search.nearest_by_blocks` in float32, on one thread.

    Float32 rows about the origin are read where they are.
    """
    n, p = rows.X.shape
    asked = queries.block(where, np.dtype(np.float32))
    as_they_are = rows.is_placed and rows.X.dtype == np.float32
    size = n if as_they_are else max(2 * n_wanted, _BYTES_AT_ONCE // (4 * p), 1)
    values: NDArray[Any] = np.empty((len(asked), 0), np.float32)
    candidates = np.empty((len(asked), 0), np.intp)
    with faiss_threads(1) as faiss:
        for begin in range(0, n, size):
            part = rows.block(slice(begin, min(begin + size, n)), np.dtype(np.float32))
            near, place = faiss.knn(asked, part, min(n_wanted, len(part)))
            values = np.hstack([values, near])
            candidates = np.hstack([candidates, place + begin])
            best = np.argpartition(values, n_wanted - 1, axis=1)[:, :n_wanted]
            values = np.take_along_axis(values, best, axis=1)
            candidates = np.take_along_axis(candidates, best, axis=1)
    return values.max(axis=1).astype(np.float64), candidates
