"""First and second moments of rows about fixed shifts: the one pass over the data.

Rows are brought into blocks that stay in cache, centred there and multiplied; X is never copied as
a whole. For scatters by class the rows of a class are gathered; a pooled scatter takes rows as they
come. float32 rows are multiplied in float32 and the blocks summed in float64.
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
from nearfar.blocks import blas_threads

# Own threads pay up to so many features, from so many numbers on; tasks handed over together.
_THREADED_FEATURES, _THREADED_SIZE, _LOT = 256, 2**18, 16
# From so many rows of a class on, BLAS takes its shift off and sums them.
_SHORT_RUN = 32

Moments = tuple[NDArray[np.float64], NDArray[np.float64]]


class Products:
    """What is summed over rows beside the rows themselves: all products of two features."""

    def products(self, rows: Floats) -> NDArray[Any]:
        """Σ x xᵀ."""
        return rows.T @ rows

    def of_block(self, rows: Floats) -> NDArray[Any]:
        """What is summed over blocks; the products, or what they can be made of."""
        return self.products(rows)

    def squares(self, products: Floats) -> Floats:
        """Σ x² of each feature, as the products have it."""
        return products.diagonal()

    def block_rows(self, X: Floats) -> int:
        """Rows at once: half a megabyte, more where a p×p addition needs more work before it."""
        in_cache = 2**19 // (X.shape[1] * X.itemsize)
        return min(max(in_cache, X.shape[1], 1024), 4096)


_ALL = Products()


class Workspace:
    """A block of rows and as many ones, kept for the next task: memory in use is in cache."""

    def __init__(self) -> None:
        self._block: NDArray[Any] = np.empty((0, 0))
        self._ones: NDArray[Any] = np.empty(0)

    def of(self, n_rows: int, n_features: int, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """For so many rows at least."""
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
    second: Products = _ALL,
    exact: bool = False,
    space: Workspace | None = None,
) -> Moments:
    """Σ w (x-s), of shape (1, p), and products of w (x-s)(x-s)ᵀ over some rows of X.

    ``root`` is sqrt(w) of every row of X, None for weights of one; ``exact`` asks for float64
    products of float32 rows too.
    """

    def work(dtype: np.dtype[Any]) -> Moments:
        first: NDArray[np.float64] = np.zeros((1, X.shape[1]))
        total: NDArray[np.float64] | None = None
        own, size = shift.astype(dtype), second.block_rows(X)
        for chosen, block, factor in _gathered(X, rows, own, size, space or Workspace()):
            if root is not None:
                factor = root[chosen]
                block *= factor[:, None]
            total = _sum(total, second.of_block(block))
            first += factor @ block
        assert total is not None, "there are rows"
        return first, total

    def constant(features: Mask) -> bool:
        return bool((X[np.ix_(rows, features)] == shift[features]).all())

    return _in_best_dtype(work, constant, X, shift, root, second, exact)


def compute_pooled_moments(
    X: Floats,
    rows: Indices,
    slots: Indices,
    shifts: Floats,
    root: Floats | None,
    *,
    size: int,
    second: Products = _ALL,
    exact: bool = False,
    space: Workspace | None = None,
) -> tuple[Indices, Moments]:
    """The same for rows of many classes, sorted for the most part: classes, and one second moment.

    ``slots`` gives the class of every row of X, ``size`` the rows of a block. The line k of the
    first moment is that of the k-th class among the rows.
    """
    classes = slots[rows]
    seen = np.bincount(classes) > 0
    present = np.flatnonzero(seen)
    lines = (np.cumsum(seen) - 1)[classes]

    def work(dtype: np.dtype[Any]) -> Moments:
        first: NDArray[np.float64] = np.zeros((len(present), X.shape[1]))
        total: NDArray[np.float64] | None = None
        own = shifts[present].astype(dtype)
        buffer, ones = (space or Workspace()).of(min(size, len(rows)), X.shape[1], dtype)
        for start in range(0, len(rows), size):
            chosen, some = rows[start : start + size], lines[start : start + size]
            block, factor = buffer[: len(chosen)], ones[: len(chosen)]
            runs = _runs(some)
            _center(X, chosen, own, some, runs, block, factor)
            if root is not None:
                factor = root[chosen]
                block *= factor[:, None]
            total = _sum(total, second.of_block(block))
            if len(runs) * _SHORT_RUN <= len(block):
                for at, end in runs:
                    first[some[at]] += factor[at:end] @ block[at:end]
            else:
                starts = [at for at, _ in runs]
                weighed = block if root is None else factor[:, None] * block
                np.add.at(first, some[starts], np.add.reduceat(weighed, starts))
        assert total is not None, "there are rows"
        return first, total

    def constant(features: Mask) -> bool:
        return bool((X[np.ix_(rows, features)] == shifts[:, features][classes]).all())

    return present, _in_best_dtype(work, constant, X, shifts[present], root, second, exact)


def _gathered(
    X: Floats, rows: Indices, shift: NDArray[Any], size: int, space: Workspace
) -> Iterator[tuple[Indices, NDArray[Any], NDArray[Any]]]:
    """Row numbers, the rows less a shift, and as many ones, block by block in one buffer."""
    size = balance_block_size(len(rows), size)
    buffer, ones = space.of(size, X.shape[1], shift.dtype)
    for start in range(0, len(rows), size):
        chosen = rows[start : start + size]
        block = buffer[: len(chosen)]
        if chosen[-1] - chosen[0] == len(chosen) - 1 and (np.diff(chosen) == 1).all():  # a slice
            np.subtract(X[chosen[0] : chosen[-1] + 1], shift, out=block)
        else:
            _center(X, chosen, shift[None], None, [(0, len(chosen))], block, ones)
        yield chosen, block, ones[: len(chosen)]


def _center(
    X: Floats,
    rows: Indices,
    shifts: NDArray[Any],
    lines: Indices | None,
    runs: list[tuple[int, int]],
    out: NDArray[Any],
    ones: NDArray[Any],
) -> None:
    """Rows less the lines of ``shifts`` that belong to them, of which those of a run are one."""
    if X.flags.c_contiguous and X.dtype == out.dtype:
        # mode="clip" lets take write into the buffer without one of its own.
        np.take(X, rows, axis=0, out=out, mode="clip")
    else:
        out[:] = X[rows]  # take would copy all of X first
    if lines is not None and len(runs) * _SHORT_RUN > len(rows):
        out -= shifts[lines]
        return
    ger = _ger(out.dtype)
    for start, end in runs:
        # By BLAS: NumPy's loop begins anew with every row.
        shift = shifts[0 if lines is None else lines[start]]
        ger(-1, shift, ones[: end - start], a=out[start:end].T, overwrite_a=True)


def _runs(lines: Indices) -> list[tuple[int, int]]:
    """Where rows of one class begin and end."""
    cuts = np.flatnonzero(lines[1:] != lines[:-1]) + 1
    return list(pairwise([0, *cuts.tolist(), len(lines)]))


@cache
def _ger(dtype: np.dtype[Any]) -> Any:
    return get_blas_funcs("ger", dtype=dtype)


def _in_best_dtype(
    work: Callable[[np.dtype[Any]], Moments],
    constant: Callable[[Mask], bool],
    X: Floats,
    shifts: Floats,
    root: Floats | None,
    second: Products,
    exact: bool,
) -> Moments:
    """In float32 where rows, shifts and weights are float32 and their squares stay in its range."""
    wide = np.dtype(np.float64)
    # A rounded shift would move the mean; weights may lie outside the range of float32.
    if exact or X.dtype == wide or root is not None or np.any(shifts.astype(X.dtype) != shifts):
        return work(wide)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        first, total = work(X.dtype)
    squares = second.squares(total)
    limits = np.finfo(X.dtype)
    faint = squares <= limits.tiny / limits.eps
    # What is faint but not constant has lost digits, if not all of them.
    right = np.isfinite(squares).all() and (not faint.any() or constant(faint))
    return (first, total) if right else work(wide)


def _sum(total: NDArray[np.float64] | None, term: Floats) -> NDArray[np.float64]:
    """In float64, and without adding to zeros: a batch is often one block."""
    return term.astype(np.float64, copy=False) if total is None else np.add(total, term, out=total)


# ---------------------------------------------------------------------- tasks


def balance_block_size(n_rows: int, size: int) -> int:
    """Rows of a block, so many or some more: a last one of few would take nearly as long."""
    return -(-n_rows // max(1, n_rows // size))


def sort_rows(codes: Indices, n_codes: int, window: int) -> Iterator[tuple[Indices, Indices]]:
    """Row numbers sorted by class, and the size of each class, window by window.

    What is taken from one window after the other is brought into cache only once.
    """
    # NumPy sorts small integers by radix; rows of a class keep their order.
    kind = np.uint8 if n_codes <= 2**8 else np.uint16 if n_codes <= 2**16 else np.intp
    narrow = codes.astype(kind)
    for start in range(0, len(codes), window):
        some = slice(start, start + window)
        order = np.argsort(narrow[some], kind="stable") + start
        yield order, np.bincount(codes[some], minlength=n_codes)


def split_by_class(
    codes: Indices, left: Mask, window: int, size: int
) -> Iterator[tuple[int, Indices]]:
    """Tasks: the classes to be multiplied, each with up to ``size`` rows of a window."""
    for order, sizes in sort_rows(codes, len(left), window):
        ends = np.cumsum(sizes)
        for slot in np.flatnonzero(left & (sizes > 0)).tolist():
            for at in range(ends[slot] - sizes[slot], ends[slot], size):
                yield slot, order[at : min(at + size, ends[slot])]


def split_pooled(codes: Indices, n_codes: int, block: int, size: int) -> Iterator[Indices]:
    """Tasks of ``size`` rows of all classes, sorted where blocks have long runs of a class."""
    window = block if block >= 2 * _SHORT_RUN * n_codes else len(codes)
    order = np.concatenate([order for order, _ in sort_rows(codes, n_codes, window)])
    for start in range(0, len(order), size):
        yield order[start : start + size]


def group_tasks(
    tasks: Iterable[tuple[int, Indices]], size: int
) -> Iterator[list[tuple[int, NDArray[np.intp]]]]:
    """Small tasks together: to hand over one takes as long as the sums of a hundred rows."""
    lot: list[tuple[int, NDArray[np.intp]]] = []
    rows = 0
    for task in tasks:
        lot.append(task)
        rows += len(task[1])
        if rows >= size or len(lot) == _LOT:
            yield lot
            lot, rows = [], 0
    if lot:
        yield lot


def choose_n_threads(X: Floats, n_tasks: int) -> int:
    """Own threads, while the products are too small for BLAS to thread well."""
    if X.shape[1] > _THREADED_FEATURES or X.size < _THREADED_SIZE:
        return 1
    return min(n_tasks, blas_threads())
