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

# Maximum number of bytes per block of rows that have to be converted first.
_BYTES_AT_ONCE = 2**23


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[Any]:
    """Yield the module faiss, set to ``n_threads`` in the calling thread inside the context."""
    faiss = import_optional("faiss", "ann")
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(before)


def nearest_by_faiss(
    rows: PlacedRows, queries: PlacedRows, where: slice | Indices, n_wanted: int
) -> tuple[Vector, Indices]:
    """Return the same as ``nearest_by_blocks`` in float32, computed by faiss on one thread.

    Float32 rows that are centered at the origin are used without a copy.
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
