"""Work in blocks: how many rows at once, and several blocks at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import current_thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from threadpoolctl import ThreadpoolController

Task = TypeVar("Task")
Result = TypeVar("Result")
_POOL = "nearfar-pool"


def row_blocks(n_rows: int, bytes_per_row: int, *, at_most: int | None = None) -> Iterator[slice]:
    """Slices of ``range(n_rows)`` whose work arrays fit scikit-learn's ``working_memory``.

    Never more than 64 MB: larger blocks gain nothing.
    """
    budget = int(min(get_config()["working_memory"], 64) * 2**20)
    size = max(1, budget // max(1, bytes_per_row))
    if at_most is not None:
        size = min(size, at_most)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def check_finite_samples(rows: NDArray[Any]) -> None:
    """Raise for NaN and infinity, and name the first sample that has one."""
    for block in row_blocks(len(rows), rows.itemsize * rows.shape[1], at_most=4096):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(rows[block].sum()):
                continue  # the usual case, in a fraction of the time
        finite = np.isfinite(rows[block]).all(axis=1)
        if not finite.all():
            bad = int(np.argmin(finite))
            found = "NaN" if np.isnan(rows[block][bad]).any() else "infinity"
            raise ValueError(
                f"Input X contains {found}: sample {block.start + bad}, counted from 0."
            )


def blas_threads() -> int:
    """The number of threads BLAS would use now; honours the user's limits."""
    return max((library.get_num_threads() for library in _blas()), default=1)


def map_in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], n_threads: int
) -> Generator[Result, None, None]:
    """``map`` over threads with BLAS limited to one thread each; results in the order of tasks.

    With one thread it is the built-in ``map`` and BLAS keeps its own threads.
    """
    if n_threads <= 1 or current_thread().name.startswith(_POOL):
        yield from map(function, tasks)
        return
    todo = list(tasks)
    with one_blas_thread():
        futures = [_pool(n_threads - 1, os.getpid()).submit(function, task) for task in todo]
        # This thread takes tasks that no other has begun: to sleep and be woken takes as long as a
        # small one.
        own: dict[int, Result] = {}
        free = iter(range(len(todo)))
        try:
            for k, future in enumerate(futures):
                while k not in own and not future.done():
                    taken = next((j for j in free if futures[j].cancel()), None)
                    if taken is None:
                        break
                    own[taken] = function(todo[taken])
                yield own.pop(k) if k in own else future.result()
        finally:
            for future in futures:
                future.cancel()


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    # Kept: new threads take as long as a small batch. A forked process has lost its parent's.
    return ThreadPoolExecutor(n_threads, thread_name_prefix=_POOL)


def blas_for(flops: float) -> AbstractContextManager[object]:
    """BLAS on one thread while its products are of so few operations that threads only wait."""
    return one_blas_thread() if flops < 1e8 else nullcontext()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread.

    As threadpoolctl's own limits, which ask each library for more than its number of threads: that
    takes as long as a small batch.
    """
    libraries = [(library, library.get_num_threads()) for library in _blas()]
    libraries = [(library, before) for library, before in libraries if before != 1]
    try:
        for library, _ in libraries:
            library.set_num_threads(1)
        yield
    finally:
        for library, before in libraries:
            library.set_num_threads(before)


def _blas() -> list[Any]:
    return _found_blas("scipy.linalg" in sys.modules)


@cache
def _found_blas(with_scipy: bool) -> list[Any]:
    # To look for them takes 2 ms. NumPy's BLAS is loaded; SciPy has one of its own.
    controllers = ThreadpoolController().lib_controllers
    return [library for library in controllers if library.user_api == "blas"]


def effective_threads(n_jobs: int | None) -> int:
    """Threads meant by ``n_jobs``: ``None`` is 1, -1 is every core this process may use.

    >>> effective_threads(None), effective_threads(3)
    (1, 3)
    """
    from joblib import effective_n_jobs

    return 1 if n_jobs is None else int(effective_n_jobs(n_jobs))


def squared_distances(
    queries: NDArray[Any], points: NDArray[Any], squares: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Squared distances of all pairs by their expanded form; both sides should lie about zero.

    ``squares`` are the squared lengths of the points, if known.
    """
    distances: NDArray[Any] = queries @ points.T
    distances *= -2
    distances += np.einsum("ij,ij->i", points, points) if squares is None else squares
    distances += np.einsum("ij,ij->i", queries, queries)[:, None]
    return np.maximum(distances, 0, out=distances)
