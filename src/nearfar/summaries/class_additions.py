"""Moments of new rows, which are added to class statistics."""

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
from nearfar.blocks import limit_blas_for, map_in_order
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

# Maximum number of rows per task.
_MAX_TASK_ROWS = 32_768
# Maximum number of features for which the rows are split into parts that fit in the cache. Each
# part is sorted by class separately, and BLAS uses one thread.
_MAX_NARROW_FEATURES = 256
# Minimum number of blocks of rows in a task, because starting a task takes time.
_MIN_TASK_BLOCKS = 2
# Rows with few features are split into parts before each part is sorted by class. The number of
# rows in a part is this factor times the block size times the number of classes. Smaller parts
# would be slower.
_WINDOW_BLOCKS = 8
# Maximum ratio of a feature's variance in new rows to its variance in earlier rows. If the ratio is
# larger, the new rows are multiplied in float64.
_MAX_VARIANCE_RATIO = 4.0


class ClassAdditions(ClassReadings):
    """Base class of `ClassStatistics` with the methods that add rows."""

    #: Total weight of the rows when the accuracy of float32 was last tested.
    _asked = 0.0
    #: Whether float32 was accurate enough in the last test.
    _bears = False

    def _sum_rows(
        self, X: Floats, codes: NDArray[np.intp], root: Floats | None, *, exact: bool
    ) -> tuple[Matrix, dict[int, Matrix]]:
        """Return the first and second moments of new rows. The caller adds them to the totals."""
        firsts, seconds = np.zeros_like(self._firsts), dict[int, Matrix]()
        for slots, (first, second) in self._iterate_moments(X, codes, root, exact=exact):
            k = 0 if self.pooled else int(slots[0])
            firsts[slots] += first
            if k in seconds:
                seconds[k] += second
            else:
                seconds[k] = second
        return firsts, seconds

    def _allows_float32(self) -> bool:
        """Return True if the scatter exceeds float32 rounding errors in all directions.

        New rows can only increase the scatter. The test is repeated when the total weight has
        doubled.
        """
        weight = float(self._weights.sum())
        if weight and weight >= 2 * self._asked:
            dense = all(second.dense is not None for second in self._seconds)
            self._asked = weight
            self._bears = dense and self.exceeds_rounding(np.sqrt(self._sum_squares()))
        return self._bears

    def _sum_squares(self) -> Matrix:
        """Return Σ w (x-s)² for each feature, summed over classes that store a scatter matrix."""
        dense = [(second, second.dense) for second in self._seconds]
        return _add_terms(second.get_squares(sums) for second, sums in dense if sums is not None)

    def _is_typical(self, seconds: dict[int, Matrix], n_rows: int) -> bool:
        """Return True if the new rows do not vary much more than the earlier rows."""
        new = _add_terms(self._seconds[k].get_squares(sums) for k, sums in seconds.items())
        before = self._sum_squares() / (self._weights.sum() - n_rows)
        return bool((new <= _MAX_VARIANCE_RATIO * n_rows * before).all())

    def _iterate_moments(
        self, X: Floats, codes: NDArray[np.intp], root: Floats | None, *, exact: bool
    ) -> Iterator[tuple[NDArray[np.intp], Moments]]:
        """Split new rows into tasks, and yield the class indices and the moments of each task.

        The rows of small classes are stored instead of summed.
        """
        # Second moments are computed in the same way for all classes, so use the options of the
        # first class.
        second = self._seconds[0]
        block = balance_block_size(len(X), second.choose_block_rows(X))
        # The task size does not depend on the number of threads, so that rounding errors are the
        # same for any number of threads.
        size = min(max(_MIN_TASK_BLOCKS * block, -(-len(X) // 8)), _MAX_TASK_ROWS)
        is_multiplied = self._keep_small_classes(X, codes, root)
        task_groups: list[list[tuple[int, NDArray[np.intp]]]] = []
        if self.pooled and is_multiplied.any():
            size = -(-size // block) * block
            tasks = split_pooled(codes, self.n_classes, block, size)
            task_groups = [[(-1, rows)] for rows in tasks]
        elif is_multiplied.any():
            # Rows with few features are sorted in parts that fit in the cache. Rows with many
            # features are sorted all at once, because each row fills many cache lines.
            window = (
                _WINDOW_BLOCKS * block * int(is_multiplied.sum())
                if X.shape[1] <= _MAX_NARROW_FEATURES
                else len(X)
            )
            task_groups = list(
                group_tasks(split_by_class(codes, is_multiplied, window, size), size)
            )
        options: dict[str, Any] = {"second": second, "exact": exact}
        workspaces = defaultdict[int, Workspace](Workspace)  # one workspace per thread

        def compute_group(
            tasks: list[tuple[int, NDArray[np.intp]]],
        ) -> list[tuple[NDArray[np.intp], Moments]]:
            arguments: Any = options | {"space": workspaces[get_ident()]}
            return [
                compute_pooled_moments(X, rows, codes, self._shifts, root, size=block, **arguments)
                if slot < 0
                else (
                    np.array([slot]),
                    compute_moments(X, rows, self._shifts[slot], root, **arguments),
                )
                for slot, rows in tasks
            ]

        is_float32 = X.dtype == np.float32 and root is None and not exact
        self._rounded = self._rounded or (is_float32 and bool(task_groups))
        threads = choose_n_threads(X, len(task_groups))
        # Limit BLAS to one thread if there are few features, because more BLAS threads would only
        # wait. If tasks run in several threads, `map_in_order` sets this limit.
        flops = 2.0 * block * X.shape[1] ** 2 if X.shape[1] > _MAX_NARROW_FEATURES else 0.0
        flops = np.inf if threads > 1 else flops
        with limit_blas_for(flops):
            for group in map_in_order(compute_group, task_groups, threads):
                yield from group

    def _keep_small_classes(
        self, X: Floats, codes: NDArray[np.intp], root: Floats | None
    ) -> NDArray[np.bool_]:
        """Store the rows of small classes, and return a mask of the other classes in ``codes``."""
        sizes = np.bincount(codes, minlength=self.n_classes)
        if self.pooled:
            is_kept = np.full(len(sizes), self._seconds[0].stores_rows(len(X)))
        else:
            n_rows = zip(self._seconds, sizes.tolist(), strict=True)
            is_kept = np.array([second.stores_rows(n) for second, n in n_rows])
        is_kept &= sizes > 0
        is_multiplied: NDArray[np.bool_] = ~is_kept & (sizes > 0)
        for slot in (
            [0] if self.pooled and is_multiplied.any() else np.flatnonzero(is_multiplied).tolist()
        ):
            self._seconds[slot].convert_to_dense()
        if is_kept.any():
            rows = np.flatnonzero(is_kept[codes])
            rows = rows[np.argsort(codes[rows], kind="stable")]
            ends = [len(rows)] if self.pooled else np.cumsum(sizes[is_kept]).tolist()
            slots = [0] if self.pooled else np.flatnonzero(is_kept).tolist()
            for slot, (start, end) in zip(slots, pairwise([0, *ends]), strict=True):
                self._keep_rows(slot, X, rows[start:end], codes, root)
        return is_multiplied

    def _keep_rows(
        self,
        k: int,
        X: Floats,
        rows: NDArray[np.intp],
        codes: NDArray[np.intp],
        root: Floats | None,
    ) -> None:
        """Store rows that are sorted by class, and add them to the first moments."""
        slots = codes[rows]
        deviations = X[rows] - self._shifts[slots]
        roots = np.ones(len(rows)) if root is None else root[rows]
        self._seconds[k].append(deviations, roots, slots)
        starts = np.flatnonzero(np.diff(slots, prepend=-1))
        weighted = deviations if root is None else (roots**2)[:, None] * deviations
        self._firsts[slots[starts]] += np.add.reduceat(weighted, starts)


def _add_terms(terms: Iterator[Floats]) -> Matrix:
    """Add arrays one by one, because stacking them first would need more memory."""
    return np.asarray(reduce(np.add, terms))
