"""First and second moments of rows about fixed shifts, computed in one pass over the data.

Rows are copied to blocks that stay in cache, where they are centered and multiplied. There is never
a copy of all of X. For one scatter per class, the rows of each class are gathered; for a pooled
scatter, blocks hold rows of all classes. float32 rows are multiplied in float32, and the blocks are
summed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from nearfar.arrays import Floats, Indices, Mask
from nearfar.blocks import count_blas_threads

# Maximum number of features for which tasks run in parallel threads. With more features, BLAS uses
# its own threads.
_MAX_THREADED_FEATURES = 256
# Minimum number of values of X for which tasks run in parallel threads.
_MIN_THREADED_SIZE = 2**18
# Maximum number of small tasks that one thread runs as a group.
_MAX_GROUP = 16
# Minimum mean number of consecutive rows of the same class for which BLAS subtracts the class
# shifts. If the number is smaller, NumPy subtracts the shifts.
_MIN_RUN = 32

Moments = tuple[NDArray[np.float64], NDArray[np.float64]]


class Products:
    """Second moments of rows: sums of the products of all pairs of features."""

    def compute_products(self, rows: Floats) -> NDArray[Any]:
        """Return Σ x xᵀ over the rows x."""
        with np.errstate(over="ignore", invalid="ignore"):  # The caller checks the sums.
            return rows.T @ rows

    def compute_block_products(self, rows: Floats) -> NDArray[Any]:
        """Return Σ x xᵀ over a block of rows, which is added to the sum over all blocks."""
        return self.compute_products(rows)

    def get_squares(self, products: Floats) -> Floats:
        """Return Σ x² of each feature, the diagonal of Σ x xᵀ."""
        return products.diagonal()

    def choose_block_rows(self, X: Floats) -> int:
        """Return the number of rows per block.

        Blocks of 512 KB are preferred. For p features, a block has at least 1024 and at least p
        rows, but at most 4096 rows.
        """
        in_cache = 2**19 // (X.shape[1] * X.itemsize)
        return min(max(in_cache, X.shape[1], 1024), 4096)


_ALL_PRODUCTS = Products()


class Workspace:
    """Buffers for a block of rows and a vector of ones, reused so that they stay in cache."""

    def __init__(self) -> None:
        self._block: NDArray[Any] = np.empty((0, 0))
        self._ones: NDArray[Any] = np.empty(0)

    def get_buffers(
        self, n_rows: int, n_features: int, dtype: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return buffers for at least ``n_rows`` rows."""
        block = self._block
        if len(block) < n_rows or block.shape[1] != n_features or block.dtype != dtype:
            self._block, self._ones = np.empty((n_rows, n_features), dtype), np.ones(n_rows, dtype)
        return self._block, self._ones


def compute_moments(
    X: Floats,
    rows: Indices,
    shift: Floats,
    root: Floats | None,
    *,
    second: Products = _ALL_PRODUCTS,
    exact: bool = False,
    space: Workspace | None = None,
) -> Moments:
    """Return Σ w (x-s), of shape (1, p), and Σ w (x-s)(x-s)ᵀ over the given rows of X.

    ``root`` is sqrt(w) of every row of X, or None if all weights are 1. With ``exact``, float32
    rows are multiplied in float64.
    """

    def sum_blocks(dtype: np.dtype[Any]) -> Moments:
        first: NDArray[np.float64] = np.zeros((1, X.shape[1]))
        total: NDArray[np.float64] | None = None
        rounded_shift, size = shift.astype(dtype), second.choose_block_rows(X)
        for block_rows, block, factor in _gather_blocks(
            X, rows, rounded_shift, size, space or Workspace()
        ):
            if root is not None:
                factor = root[block_rows]
                block *= factor[:, None]
            total = _add_term(total, second.compute_block_products(block))
            first += factor @ block
        assert total is not None, "there are rows"
        return first, total

    def is_constant(features: Mask) -> bool:
        return bool((X[np.ix_(rows, features)] == shift[features]).all())

    return _sum_in_best_dtype(sum_blocks, is_constant, X, shift, root, second, exact)


def compute_pooled_moments(
    X: Floats,
    rows: Indices,
    slots: Indices,
    shifts: Floats,
    root: Floats | None,
    *,
    size: int,
    second: Products = _ALL_PRODUCTS,
    exact: bool = False,
    space: Workspace | None = None,
) -> tuple[Indices, Moments]:
    """Return the classes of the rows, a first moment per class, and one second moment.

    ``slots`` holds the class of every row of X, and ``size`` is the number of rows per block. Row k
    of the first moments belongs to the k-th returned class. The rows should be nearly sorted by
    class. The other arguments are as in :func:`compute_moments`.
    """
    classes = slots[rows]
    is_present = np.bincount(classes) > 0
    present = np.flatnonzero(is_present)
    lines = (np.cumsum(is_present) - 1)[classes]

    def sum_blocks(dtype: np.dtype[Any]) -> Moments:
        first: NDArray[np.float64] = np.zeros((len(present), X.shape[1]))
        total: NDArray[np.float64] | None = None
        rounded_shifts = shifts[present].astype(dtype)
        buffer, ones = (space or Workspace()).get_buffers(min(size, len(rows)), X.shape[1], dtype)
        for start in range(0, len(rows), size):
            block_rows, block_lines = rows[start : start + size], lines[start : start + size]
            block, factor = buffer[: len(block_rows)], ones[: len(block_rows)]
            runs = _find_runs(block_lines)
            _center(X, block_rows, rounded_shifts, block_lines, runs, block, factor)
            if root is not None:
                factor = root[block_rows]
                block *= factor[:, None]
            total = _add_term(total, second.compute_block_products(block))
            if len(runs) * _MIN_RUN <= len(block):
                for begin, end in runs:
                    first[block_lines[begin]] += factor[begin:end] @ block[begin:end]
            else:
                starts = [begin for begin, _ in runs]
                weighted = block if root is None else factor[:, None] * block
                np.add.at(first, block_lines[starts], np.add.reduceat(weighted, starts))
        assert total is not None, "there are rows"
        return first, total

    def is_constant(features: Mask) -> bool:
        return bool((X[np.ix_(rows, features)] == shifts[:, features][classes]).all())

    return present, _sum_in_best_dtype(
        sum_blocks, is_constant, X, shifts[present], root, second, exact
    )


def _gather_blocks(
    X: Floats, rows: Indices, shift: NDArray[Any], size: int, space: Workspace
) -> Iterator[tuple[Indices, NDArray[Any], NDArray[Any]]]:
    """For each block, yield the row indices, the rows minus the shift, and a vector of ones.

    All blocks use the same buffer.
    """
    size = balance_block_size(len(rows), size)
    buffer, ones = space.get_buffers(size, X.shape[1], shift.dtype)
    for start in range(0, len(rows), size):
        block_rows = rows[start : start + size]
        block = buffer[: len(block_rows)]
        if (
            block_rows[-1] - block_rows[0] == len(block_rows) - 1
            and (np.diff(block_rows) == 1).all()
        ):  # consecutive rows
            np.subtract(X[block_rows[0] : block_rows[-1] + 1], shift, out=block)
        else:
            _center(X, block_rows, shift[None], None, [(0, len(block_rows))], block, ones)
        yield block_rows, block, ones[: len(block_rows)]


def _center(
    X: Floats,
    rows: Indices,
    shifts: NDArray[Any],
    lines: Indices | None,
    runs: list[tuple[int, int]],
    out: NDArray[Any],
    ones: NDArray[Any],
) -> None:
    """Subtract the shift of its class from each row, and write the result to ``out``."""
    if X.flags.c_contiguous and X.dtype == out.dtype:
        # `np.take` with mode="clip" writes to the buffer without a temporary array.
        np.take(X, rows, axis=0, out=out, mode="clip")
    else:
        out[:] = X[rows]  # np.take would copy all of X first
    if lines is not None and len(runs) * _MIN_RUN > len(rows):
        out -= shifts[lines]
        return
    ger = _get_ger(out.dtype)
    for start, end in runs:
        # Subtract with BLAS, because NumPy starts a new loop for every row.
        shift = shifts[0 if lines is None else lines[start]]
        ger(-1, shift, ones[: end - start], a=out[start:end].T, overwrite_a=True)


def _find_runs(lines: Indices) -> list[tuple[int, int]]:
    """Return the start and end of each sequence of rows that have the same class."""
    cuts = np.flatnonzero(lines[1:] != lines[:-1]) + 1
    return list(pairwise([0, *cuts.tolist(), len(lines)]))


@cache
def _get_ger(dtype: np.dtype[Any]) -> Any:
    return get_blas_funcs("ger", dtype=dtype)


def _sum_in_best_dtype(
    sum_blocks: Callable[[np.dtype[Any]], Moments],
    is_constant: Callable[[Mask], bool],
    X: Floats,
    shifts: Floats,
    root: Floats | None,
    second: Products,
    exact: bool,
) -> Moments:
    """Return the moments, computed in float32 if it is accurate enough, or else in float64."""
    float64 = np.dtype(np.float64)
    # A rounded shift would change the mean, and weights may lie outside the range of float32.
    if exact or X.dtype == float64 or root is not None or np.any(shifts.astype(X.dtype) != shifts):
        return sum_blocks(float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        first, total = sum_blocks(X.dtype)
    squares = second.get_squares(total)
    limits = np.finfo(X.dtype)
    underflows = squares <= limits.tiny / limits.eps
    # A feature whose squares underflow has lost digits, unless it is constant.
    is_accurate = np.isfinite(squares).all() and (not underflows.any() or is_constant(underflows))
    return (first, total) if is_accurate else sum_blocks(float64)


def _add_term(total: NDArray[np.float64] | None, term: Floats) -> NDArray[np.float64]:
    """Add a term to the total in float64. If the total is None, return the term."""
    return term.astype(np.float64, copy=False) if total is None else np.add(total, term, out=total)


# ---------------------------------------------------------------------- tasks


def balance_block_size(n_rows: int, size: int) -> int:
    """Return a block size that splits the rows into blocks of nearly equal size.

    Blocks have at least ``size`` rows if there are enough rows. A small last block would take
    nearly as long as a full one.
    """
    return -(-n_rows // max(1, n_rows // size))


def sort_rows(codes: Indices, n_codes: int, window: int) -> Iterator[tuple[Indices, Indices]]:
    """Split the rows into parts of ``window`` consecutive rows, and sort each part by class.

    Yield the sorted row indices of each window, and its number of rows per class. Rows that are
    read window by window are loaded into the cache only once.
    """
    # For small integers, NumPy uses radix sort, which is fast and keeps the order of equal codes.
    dtype = np.uint8 if n_codes <= 2**8 else np.uint16 if n_codes <= 2**16 else np.intp
    narrow_codes = codes.astype(dtype)
    for start in range(0, len(codes), window):
        span = slice(start, start + window)
        order = np.argsort(narrow_codes[span], kind="stable") + start
        yield order, np.bincount(codes[span], minlength=n_codes)


def split_by_class(
    codes: Indices, is_multiplied: Mask, window: int, size: int
) -> Iterator[tuple[int, Indices]]:
    """Split the rows into tasks of one class each, and yield the class and the row indices.

    A task has at most ``size`` rows, all from the same ``window`` consecutive rows. Classes outside
    the mask are skipped.
    """
    for order, sizes in sort_rows(codes, len(is_multiplied), window):
        ends = np.cumsum(sizes)
        for slot in np.flatnonzero(is_multiplied & (sizes > 0)).tolist():
            for start in range(ends[slot] - sizes[slot], ends[slot], size):
                yield slot, order[start : min(start + size, ends[slot])]


def split_pooled(codes: Indices, n_codes: int, block: int, size: int) -> Iterator[Indices]:
    """Split the rows of all classes into tasks of up to ``size`` rows, and yield the row indices.

    The rows are sorted by class within each block, or all together if there are many classes.
    """
    window = block if block >= 2 * _MIN_RUN * n_codes else len(codes)
    order = np.concatenate([order for order, _ in sort_rows(codes, n_codes, window)])
    for start in range(0, len(order), size):
        yield order[start : start + size]


def group_tasks(
    tasks: Iterable[tuple[int, Indices]], size: int
) -> Iterator[list[tuple[int, NDArray[np.intp]]]]:
    """Group small tasks, because starting a task takes as long as summing a hundred rows."""
    group: list[tuple[int, NDArray[np.intp]]] = []
    n_rows = 0
    for task in tasks:
        group.append(task)
        n_rows += len(task[1])
        if n_rows >= size or len(group) == _MAX_GROUP:
            yield group
            group, n_rows = [], 0
    if group:
        yield group


def choose_n_threads(X: Floats, n_tasks: int) -> int:
    """Return the number of threads for the tasks.

    The number is 1 if X is small, or if X is wide enough for BLAS to use its own threads well.
    """
    if X.shape[1] > _MAX_THREADED_FEATURES or X.size < _MIN_THREADED_SIZE:
        return 1
    return min(n_tasks, count_blas_threads())
