"""First and second moments of rows about fixed shifts: the one pass over the data.

Rows are gathered in blocks that stay in cache, centred there and multiplied; X is never copied as
a whole. float32 rows are multiplied in float32 and the blocks summed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats, Indices
from nearfar.blocks import blas_threads

# Own threads pay up to so many features, from so many numbers on; tasks handed over together.
_THREADED_FEATURES, _THREADED_SIZE, _LOT = 256, 2**18, 16
# From so many rows of a class on, its shift is taken off them together.
_SHORT_RUN = 8

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
        """Rows at once: a megabyte, more where each p×p addition needs more work before it."""
        in_cache = 2**20 // (X.shape[1] * X.itemsize)
        return min(max(in_cache, X.shape[1], 1024), 4096)


_ALL = Products()


def moments_about(
    X: Floats,
    rows: Indices,
    shift: Floats,
    root: Floats | None,
    *,
    second: Products = _ALL,
    exact: bool = False,
) -> Moments:
    """Σ w (x-s), of shape (1, p), and products of w (x-s)(x-s)ᵀ over some rows of X.

    ``root`` is sqrt(w) of every row of X, None for weights of one; ``exact`` asks for float64
    products of float32 rows too.
    """

    def work(dtype: np.dtype[Any]) -> Moments:
        first: NDArray[np.float64] = np.zeros((1, X.shape[1]))
        total: NDArray[np.float64] | None = None
        size = second.block_rows(X)
        ones = np.ones(size, dtype)
        for chosen, block in _centered(X, rows, shift[None].astype(dtype), None, size):
            factor = ones[: len(block)]
            if root is not None:
                factor = root[chosen]
                block *= factor[:, None]
            total = _sum(total, second.of_block(block))
            first += factor @ block
        assert total is not None, "there are rows"
        return first, total

    return _in_best_dtype(work, X, rows, shift[None], None, root, second, exact)


def mixed_moments(
    X: Floats,
    rows: Indices,
    slots: Indices,
    shifts: Floats,
    root: Floats | None,
    *,
    second: Products = _ALL,
    exact: bool = False,
) -> tuple[Indices, Moments]:
    """The same for rows of many classes, sorted by class: the classes, and one second moment.

    ``slots`` gives the class of every row of X. The line k of the first moment is that of the k-th
    class among the rows.
    """
    present = slots[rows]
    present = present[np.flatnonzero(np.diff(present, prepend=-1))]

    def work(dtype: np.dtype[Any]) -> Moments:
        first: NDArray[np.float64] = np.zeros((len(present), X.shape[1]))
        total: NDArray[np.float64] | None = None
        line, size = 0, second.block_rows(X)
        for chosen, block in _centered(X, rows, shifts.astype(dtype, copy=False), slots, size):
            classes = slots[chosen]
            starts = np.flatnonzero(np.diff(classes, prepend=-1))
            if root is not None:
                block *= root[chosen, None]
            total = _sum(total, second.of_block(block))
            if root is not None:
                block *= root[chosen, None]
            line += int(present[line] != classes[0])  # or the class went on from the last block
            first[line : line + len(starts)] += np.add.reduceat(block, starts)
            line += len(starts) - 1
        assert total is not None, "there are rows"
        return first, total

    return present, _in_best_dtype(work, X, rows, shifts, slots, root, second, exact)


def _centered(
    X: Floats, rows: Indices, shifts: NDArray[Any], slots: Indices | None, size: int
) -> Iterator[tuple[Indices, NDArray[Any]]]:
    """Row numbers, and the rows less their shifts, block by block in one buffer."""
    dtype = shifts.dtype
    buffer = np.empty((min(size, len(rows)), X.shape[1]), dtype)
    direct = X.flags.c_contiguous and X.dtype == dtype
    for start in range(0, len(rows), max(1, len(buffer))):
        chosen = rows[start : start + len(buffer)]
        block = buffer[: len(chosen)]
        if chosen[-1] - chosen[0] == len(chosen) - 1 and (np.diff(chosen) == 1).all():  # a slice
            source = X[chosen[0] : chosen[-1] + 1]
        else:
            # take would copy all of X first, for every block, where it is not as wanted
            source = _taken(X, chosen, block) if direct else X[chosen]
        if slots is None:
            np.subtract(source, shifts, out=block)
        else:
            _subtract_by_class(source, shifts, slots[chosen], block)
        yield chosen, block


def _subtract_by_class(
    source: Floats, shifts: NDArray[Any], classes: Indices, out: NDArray[Any]
) -> None:
    """Rows less the shifts of their classes, which follow each other."""
    starts = np.flatnonzero(np.diff(classes, prepend=-1))
    if _SHORT_RUN * len(starts) > len(classes):
        np.subtract(source, shifts[classes], out=out)
        return
    for start, end in pairwise([*starts.tolist(), len(classes)]):
        np.subtract(source[start:end], shifts[classes[start]], out=out[start:end])


def _taken(X: Floats, rows: Indices, out: NDArray[Any]) -> NDArray[Any]:
    # mode="clip" lets take write into the buffer without one of its own.
    return np.take(X, rows, axis=0, out=out, mode="clip")


def _in_best_dtype(
    work: Callable[[np.dtype[Any]], Moments],
    X: Floats,
    rows: Indices,
    shifts: Floats,
    slots: Indices | None,
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
    if faint.any():
        centers = shifts if slots is None else shifts[slots[rows]]
        constant = bool((X[np.ix_(rows, faint)] == centers[:, faint]).all())
    else:
        constant = True
    return (first, total) if np.isfinite(squares).all() and constant else work(wide)


def _sum(total: NDArray[np.float64] | None, term: Floats) -> NDArray[np.float64]:
    """In float64, and without adding to zeros: a batch is often one block."""
    return term.astype(np.float64, copy=False) if total is None else np.add(total, term, out=total)


# ---------------------------------------------------------------------- tasks


def parts(rows: NDArray[np.intp], size: int) -> Iterator[NDArray[np.intp]]:
    """Rows in tasks of a size."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def lots(
    tasks: list[tuple[int, NDArray[np.intp]]], size: int
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


def threads_for(X: Floats, n_tasks: int) -> int:
    """Own threads, while the products are too small for BLAS to thread well."""
    if X.shape[1] > _THREADED_FEATURES or X.size < _THREADED_SIZE:
        return 1
    return min(n_tasks, blas_threads())
