"""Sums over more rows for class statistics: in which precision, in which tasks, or as rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import blas_for, map_in_order
from nearfar.summaries.class_readings import ClassReadings
from nearfar.summaries.row_moments import (
    Moments,
    Workspace,
    balance_block_size,
    choose_n_threads,
    compute_moments,
    compute_pooled_moments,
    group_tasks,
    split_by_class,
    split_pooled,
)

_TASK_ROWS = 32_768
_NARROW = 256
# Blocks of a task at least, and of a class in a window: to begin either takes its time.
_FEW, _DEEP = 2, 8
# Variances of a batch, of those before it, up to which it is no surprise.
_ALIKE = 4.0


class ClassAdditions(ClassReadings):
    """What rows add to the moments of their classes."""

    #: The weight at which it was last asked whether float32 products would do, and the answer.
    _asked, _bears = 0.0, False

    def _held_back(
        self, X: Floats, codes: NDArray[np.intp], root: Floats | None, *, exact: bool
    ) -> tuple[Matrix, dict[int, Matrix]]:
        """The sums of some rows, to be looked at before they are added."""
        firsts, seconds = np.zeros_like(self._firsts), dict[int, Matrix]()
        for slots, (first, second) in self._moments(X, codes, root, exact=exact):
            k = 0 if self.pooled else int(slots[0])
            firsts[slots] += first
            if k in seconds:
                seconds[k] += second
            else:
                seconds[k] = second
        return firsts, seconds

    def _bears_float32(self) -> bool:
        """Whether the scatter so far is larger, in all directions, than products are rounded.

        More rows can only add to it. Asked again whenever the rows have doubled.
        """
        weight = float(self._weights.sum())
        if weight and weight >= 2 * self._asked:
            dense = all(second.dense is not None for second in self._seconds)
            self._asked = weight
            self._bears = dense and self.exceeds_rounding(np.sqrt(self._squares()))
        return self._bears

    def _squares(self) -> Matrix:
        """Σ w (x-s)² over all classes; of dense sums only."""
        dense = [(second, second.dense) for second in self._seconds]
        return _sum(second.squares(sums) for second, sums in dense if sums is not None)

    def _is_like(self, seconds: dict[int, Matrix], n_rows: int) -> bool:
        """Whether sums over new rows are of the size of those before."""
        new = _sum(self._seconds[k].squares(sums) for k, sums in seconds.items())
        before = self._squares() / (self._weights.sum() - n_rows)
        return bool((new <= _ALIKE * n_rows * before).all())

    def _moments(
        self, X: Floats, codes: NDArray[np.intp], root: Floats | None, *, exact: bool
    ) -> Iterator[tuple[NDArray[np.intp], Moments]]:
        """Classes, and the sums of their rows, task by task; few rows are kept."""
        second = self._seconds[0]  # which all are like
        block = balance_block_size(len(X), second.block_rows(X))
        # Enough for some threads, whose number decides on none of the sums.
        size = min(max(_FEW * block, -(-len(X) // 8)), _TASK_ROWS)
        left = self._keep_few(X, codes, root)
        together: list[list[tuple[int, NDArray[np.intp]]]] = []
        if self.pooled and left.any():
            size = -(-size // block) * block
            tasks = split_pooled(codes, self.n_classes, block, size)
            together = [[(-1, rows)] for rows in tasks]
        elif left.any():
            # Of wide rows each is long enough to be fetched alone.
            window = _DEEP * block * int(left.sum()) if X.shape[1] <= _NARROW else len(X)
            together = list(group_tasks(split_by_class(codes, left, window, size), size))
        how: dict[str, Any] = {"second": second, "exact": exact}
        spaces = defaultdict[int, Workspace](Workspace)  # one for each thread

        def moments(
            tasks: list[tuple[int, NDArray[np.intp]]],
        ) -> list[tuple[NDArray[np.intp], Moments]]:
            kept: Any = how | {"space": spaces[get_ident()]}
            return [
                compute_pooled_moments(X, rows, codes, self._shifts, root, size=block, **kept)
                if slot < 0
                else (np.array([slot]), compute_moments(X, rows, self._shifts[slot], root, **kept))
                for slot, rows in tasks
            ]

        narrow = X.dtype == np.float32 and root is None and not exact
        self._rounded = self._rounded or (narrow and bool(together))
        threads = choose_n_threads(X, len(together))
        # Own threads limit BLAS themselves; those of BLAS would wait for narrow rows.
        flops = 2.0 * block * X.shape[1] ** 2 if X.shape[1] > _NARROW else 0.0
        flops = np.inf if threads > 1 else flops
        with blas_for(flops):
            for found in map_in_order(moments, together, threads):
                yield from found

    def _keep_few(
        self, X: Floats, codes: NDArray[np.intp], root: Floats | None
    ) -> NDArray[np.bool_]:
        """Keep rows as they are where they are few; which classes are to be multiplied."""
        sizes = np.bincount(codes, minlength=self.n_classes)
        if self.pooled:
            keep = np.full(len(sizes), self._seconds[0].keeps_rows(len(X)))
        else:
            n_rows = zip(self._seconds, sizes.tolist(), strict=True)
            keep = np.array([second.keeps_rows(n) for second, n in n_rows])
        keep &= sizes > 0
        left: NDArray[np.bool_] = ~keep & (sizes > 0)
        for slot in [0] if self.pooled and left.any() else np.flatnonzero(left).tolist():
            self._seconds[slot].make_dense()
        if keep.any():
            rows = np.flatnonzero(keep[codes])
            rows = rows[np.argsort(codes[rows], kind="stable")]
            ends = [len(rows)] if self.pooled else np.cumsum(sizes[keep]).tolist()
            slots = [0] if self.pooled else np.flatnonzero(keep).tolist()
            for slot, (start, end) in zip(slots, pairwise([0, *ends]), strict=True):
                self._keep_rows(slot, X, rows[start:end], codes, root)
        return left

    def _keep_rows(
        self,
        k: int,
        X: Floats,
        rows: NDArray[np.intp],
        codes: NDArray[np.intp],
        root: Floats | None,
    ) -> None:
        """Keep rows, sorted by class, as they are."""
        slots = codes[rows]
        deviations = X[rows] - self._shifts[slots]
        roots = np.ones(len(rows)) if root is None else root[rows]
        self._seconds[k].append(deviations, roots, slots)
        starts = np.flatnonzero(np.diff(slots, prepend=-1))
        weighed = deviations if root is None else (roots**2)[:, None] * deviations
        self._firsts[slots[starts]] += np.add.reduceat(weighed, starts)


def _sum(terms: Iterator[Floats]) -> Matrix:
    """Without an array of all terms: there is often one."""
    return np.asarray(reduce(np.add, terms))
