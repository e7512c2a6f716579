"""Computation in blocks of rows and in several threads, and checks of values."""

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

#: Largest accepted absolute value of X in float64. Products of three such values are finite.
MAX_MAGNITUDE = 1e100
#: Largest accepted absolute value of X in float32, whose maximum is 3e38.
MAX_FLOAT32_MAGNITUDE = 1e30

Task = TypeVar("Task")
Result = TypeVar("Result")
_POOL_NAME = "nearfar-pool"


def split_rows(n_rows: int, bytes_per_row: int, *, max_rows: int | None = None) -> Iterator[slice]:
    """Split ``range(n_rows)`` into slices whose arrays fit scikit-learn's ``working_memory``.

    A block never exceeds 64 MB, because larger blocks are not faster.
    """
    budget = int(min(get_config()["working_memory"], 64) * 2**20)
    size = max(1, budget // max(1, bytes_per_row))
    if max_rows is not None:
        size = min(size, max_rows)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def check_finite_samples(rows: NDArray[Any]) -> None:
    """Raise a ValueError that names the first sample with NaN or infinity."""
    for block in split_rows(len(rows), rows.itemsize * rows.shape[1], max_rows=4096):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(rows[block].sum()):
                continue  # A finite sum proves that all values are finite, and is faster to check.
        finite = np.isfinite(rows[block]).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            value = "NaN" if np.isnan(rows[block][row]).any() else "infinity"
            raise ValueError(
                f"Input X contains {value} in sample {block.start + row} (counted from 0)."
            )


def check_mask(values: Any, name: str) -> None:
    """Raise a ValueError if values are masked, because NumPy would use the hidden numbers."""
    items = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(item, np.ma.MaskedArray) and np.ma.is_masked(item) for item in items):
        raise ValueError(
            f"{name} is a masked array with masked entries, but missing values are not supported. "
            "Remove the samples with masked entries, or impute these entries first."
        )


def check_range(values: NDArray[Any], name: str, *, small: bool = True) -> None:
    """Raise a ValueError if finite values are too large, or a column has only tiny values.

    ``small=False`` accepts tiny values, for example in queries. Columns of zeros are accepted.
    """
    if not values.size or values.dtype.kind != "f" or values.dtype == np.float16:
        return
    limit = get_max_magnitude(values.dtype)
    flat = values.ravel(order="K")
    with np.errstate(over="ignore"):
        # One pass that is four times as fast as the largest and the smallest value.
        is_moderate = np.einsum("i,i->", flat, flat) <= limit
    # Most columns have a value that is not tiny among the first rows.
    is_unclear = np.abs(values[:256]).max(axis=0) < 1 / limit
    if not is_moderate or (small and is_unclear.any()):
        check_magnitudes(np.abs(values).max(axis=0), name, small=small)


def get_max_magnitude(dtype: np.dtype[Any]) -> float:
    """Return the largest accepted absolute value of X. Its reciprocal is the smallest."""
    return MAX_FLOAT32_MAGNITUDE if dtype == np.float32 else MAX_MAGNITUDE


def check_magnitudes(size: NDArray[Any], name: str, *, small: bool = True) -> None:
    """Raise a ValueError like `check_range`, given the largest absolute value of each column."""
    limit = get_max_magnitude(size.dtype)
    hint = " or convert it to float64" if size.dtype == np.float32 else ""
    largest = float(size.max())
    if largest > limit:
        raise ValueError(
            f"{name}: the largest absolute value is {largest:.3g}, but at most {limit:g} is "
            f"accepted, because products of larger numbers overflow. Rescale {name}{hint}."
        )
    is_tiny = (size > 0) & (size < 1 / limit)
    if small and is_tiny.any():
        tiny = int(np.argmax(is_tiny))
        column = f" in column {tiny}" if size.ndim else ""
        raise ValueError(
            f"{name}: the largest absolute value{column} is {np.ravel(size)[tiny]:.3g}, but at "
            f"least {1 / limit:g} is required, because products of smaller numbers underflow. "
            f"Rescale {name}{hint}."
        )


def count_blas_threads() -> int:
    """Return the number of threads that BLAS currently uses, including limits set by the user."""
    return max((library.get_num_threads() for library in _get_blas()), default=1)


def map_in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], n_threads: int
) -> Generator[Result, None, None]:
    """Apply a function to tasks in threads, and yield the results in the order of the tasks.

    BLAS is limited to one thread per task. With ``n_threads=1``, this is the built-in ``map``, and
    the number of BLAS threads does not change.
    """
    if n_threads <= 1 or current_thread().name.startswith(_POOL_NAME):
        yield from map(function, tasks)
        return
    task_list = list(tasks)
    with use_one_blas_thread():
        futures = [
            _get_pool(n_threads - 1, os.getpid()).submit(function, task) for task in task_list
        ]
        # The calling thread runs tasks that no worker has started. Waiting for a worker instead
        # would take as long as a small task.
        own_results: dict[int, Result] = {}
        unstarted = iter(range(len(task_list)))
        try:
            for k, future in enumerate(futures):
                while k not in own_results and not future.done():
                    task_number = next((j for j in unstarted if futures[j].cancel()), None)
                    if task_number is None:
                        break
                    own_results[task_number] = function(task_list[task_number])
                yield own_results.pop(k) if k in own_results else future.result()
        finally:
            for future in futures:
                future.cancel()


@cache
def _get_pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    # Reuse the pool, because starting threads takes as long as a small batch. The process id is
    # part of the key, because a forked process does not inherit its parent's threads.
    return ThreadPoolExecutor(n_threads, thread_name_prefix=_POOL_NAME)


def limit_blas_for(flops: float) -> AbstractContextManager[object]:
    """Limit BLAS to one thread for fewer than 1e8 operations, where more threads are slower."""
    return use_one_blas_thread() if flops < 1e8 else nullcontext()


@contextmanager
def use_one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread.

    The effect is the same as that of ``threadpoolctl.threadpool_limits``. That function also
    queries other properties of each library, which takes as long as a small batch.
    """
    libraries = [(library, library.get_num_threads()) for library in _get_blas()]
    libraries = [(library, n_threads) for library, n_threads in libraries if n_threads != 1]
    try:
        for library, _ in libraries:
            library.set_num_threads(1)
        yield
    finally:
        for library, n_threads in libraries:
            library.set_num_threads(n_threads)


def _get_blas() -> list[Any]:
    return _find_blas("scipy.linalg" in sys.modules)


@cache
def _find_blas(with_scipy: bool) -> list[Any]:
    # The result is cached, because the search takes 2 ms. SciPy has its own BLAS, so the search is
    # repeated after SciPy is imported.
    controllers = ThreadpoolController().lib_controllers
    return [library for library in controllers if library.user_api == "blas"]


def resolve_n_threads(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs``. None means 1 and -1 means all cores.

    >>> resolve_n_threads(None), resolve_n_threads(3)
    (1, 3)
    """
    from joblib import effective_n_jobs

    return 1 if n_jobs is None else int(effective_n_jobs(n_jobs))


def compute_squared_distances(
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
