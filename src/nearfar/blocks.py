"""Computation in blocks of rows, and in several threads."""

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
    """Split ``range(n_rows)`` into slices whose arrays fit scikit-learn's ``working_memory``.

    A block never exceeds 64 MB, because larger blocks are not faster.
    """
    budget = int(min(get_config()["working_memory"], 64) * 2**20)
    size = max(1, budget // max(1, bytes_per_row))
    if at_most is not None:
        size = min(size, at_most)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def check_finite_samples(rows: NDArray[Any]) -> None:
    """Raise a ValueError that names the first sample with NaN or infinity."""
    for block in row_blocks(len(rows), rows.itemsize * rows.shape[1], at_most=4096):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(rows[block].sum()):
                continue  # A finite sum proves that all values are finite, and is faster to check.
        finite = np.isfinite(rows[block]).all(axis=1)
        if not finite.all():
            bad = int(np.argmin(finite))
            found = "NaN" if np.isnan(rows[block][bad]).any() else "infinity"
            raise ValueError(
                f"Input X contains {found}: sample {block.start + bad}, counted from 0."
            )


def blas_threads() -> int:
    """Return the number of threads that BLAS currently uses, including limits set by the user."""
    return max((library.get_num_threads() for library in _blas()), default=1)


def map_in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], n_threads: int
) -> Generator[Result, None, None]:
    """Apply a function to tasks in threads, and yield the results in the order of the tasks.

    BLAS is limited to one thread per task. With ``n_threads=1``, this is the built-in ``map``, and
    the number of BLAS threads does not change.
    """
    if n_threads <= 1 or current_thread().name.startswith(_POOL):
        yield from map(function, tasks)
        return
    todo = list(tasks)
    with one_blas_thread():
        futures = [_pool(n_threads - 1, os.getpid()).submit(function, task) for task in todo]
        # The calling thread runs tasks that no worker has started. Waiting for a worker instead
        # would take as long as a small task.
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
    # Reuse the pool, because starting threads takes as long as a small batch. The process id is
    # part of the key, because a forked process does not inherit its parent's threads.
    return ThreadPoolExecutor(n_threads, thread_name_prefix=_POOL)


def blas_for(flops: float) -> AbstractContextManager[object]:
    """Limit BLAS to one thread if there are fewer than 1e8 operations, too few for threads."""
    return one_blas_thread() if flops < 1e8 else nullcontext()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread.

    This does the same as ``threadpoolctl.threadpool_limits``, which also queries other properties
    of each library and so takes as long as a small batch.
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
    # Cached, because the search takes 2 ms. SciPy has its own BLAS, so search again once it is
    # imported.
    controllers = ThreadpoolController().lib_controllers
    return [library for library in controllers if library.user_api == "blas"]


def effective_threads(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs``: None means 1, -1 all cores of this process.

    >>> effective_threads(None), effective_threads(3)
    (1, 3)
    """
    from joblib import effective_n_jobs

    return 1 if n_jobs is None else int(effective_n_jobs(n_jobs))


def squared_distances(
    queries: NDArray[Any], points: NDArray[Any], squares: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return squared distances of all pairs by the expanded form |a|² + |b|² - 2ab.

    Center both arguments first, to avoid cancellation. ``squares`` are the squared norms of the
    points, if known.
    """
    distances: NDArray[Any] = queries @ points.T
    distances *= -2
    distances += np.einsum("ij,ij->i", points, points) if squares is None else squares
    distances += np.einsum("ij,ij->i", queries, queries)[:, None]
    return np.maximum(distances, 0, out=distances)
