"""Impostor search by matrix products of blocks of rows, for maps to many dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Vector
from nearfar.blocks import map_in_order, split_rows
from nearfar.large_margin.pair_lists import PairList, compute_listed_distances, make_pair_list
from nearfar.search.block_search import (
    BlockProducts,
    bound_kth_smallest,
    choose_block_size,
    fill_right_factor,
)
from nearfar.search.candidates import compute_reach, compute_reach_of_nearest
from nearfar.search.placed_rows import PlacedRows, place_rows

# Minimum number of multiplications at which threads are used. With fewer multiplications, starting
# the threads takes longer than the time they save.
_WORTH_THREADS = 2 * 10**9
# Maximum number of rows per task.
_ROWS = 2048
# Maximum number of rows in a group of small classes that share a task.
_MAX_GROUPED_ROWS = 256
# Maximum size in bytes at which all rows are converted to single precision in advance. Larger
# arrays are converted block by block.
_MAX_BYTES_CONVERTED = 2**23
# Number of distances per block if all rows are converted in advance.
_DISTANCES = 2**20
# Maximum step between sampled rows. The sample gives upper bounds on the distances of the nearest
# impostors.
_SAMPLE_STEP = 16
# Minimum number of rows in the sample. With at most this number of rows in total, all are used.
_MANY_ROWS = 2048
_FLOAT32 = np.dtype(np.float32)


def find_impostors_blocks(
    Z: NDArray[np.floating[Any]],
    codes: Indices,
    reach: Vector,
    *,
    max_pairs: int,
    n_threads: int = 1,
    among: Indices | None = None,
) -> PairList | None:
    """Return all pairs (i, l) of different classes with squared distance below ``reach[i]``.

    Candidates are selected by float32 products of rows, sorted by class. Their distances are then
    computed from differences. If most rows are centers, each product is used for both directions. A
    point whose reach is not finite has no impostors. If ``among`` is given, only these rows can be
    impostors. Return None if there are more than ``max_pairs`` candidates.

    Cost: O(n² d) in matrix products, or half of this if they are used for both directions. In
    addition to the result, blocks within scikit-learn's ``working_memory`` are stored. The points
    are not copied.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> found = find_impostors_blocks(Z, np.array([0, 0, 1, 1]), np.full(4, 4.5), max_pairs=9)
    >>> found.centers, found.indices
    (array([1, 2], dtype=int32), array([2, 1], dtype=int32))
    """
    rows, _ = place_rows(Z, Z, n_threads)
    limits = _compute_limits(rows, reach)
    centers = np.flatnonzero(limits >= 0)
    is_symmetric = among is None and 2 * len(centers) > len(Z)
    centers_by_class = _sort_by_class(codes, np.arange(len(Z)) if is_symmetric else centers)
    candidates = (
        centers_by_class
        if is_symmetric
        else _sort_by_class(codes, np.arange(len(Z)) if among is None else among)
    )
    converted = None
    if 4 * Z.size <= _MAX_BYTES_CONVERTED:
        converted = fill_right_factor(
            rows, candidates.rows, np.empty((len(candidates.rows), Z.shape[1] + 2), np.float32)
        )

    def search_task(task: _Task) -> tuple[int, NDArray[np.int32], NDArray[np.int32]]:
        task_rows = centers_by_class.rows[task.centers]
        min_columns = 1 if converted is None else _DISTANCES // len(task_rows)
        products = BlockProducts(
            rows, rows, task_rows, _FLOAT32, min_rows=min_columns, adds_query_norms=True
        )
        row_limits = limits[task_rows, None]
        masks = np.empty((2, len(task_rows) * products.block_size), bool)
        chunks = [(np.zeros(0, np.int32), np.zeros(0, np.int32))]
        n_candidates = 0
        for block in _split_slices(task.candidates, products.block_size):
            block_rows = candidates.rows[block]
            squared = (
                products.compute_block(block_rows)
                if converted is None
                else products.compute_products(converted[block])
            )
            is_close, is_close_back = masks[:, : squared.size].reshape(2, *squared.shape)
            np.less(squared, row_limits, out=is_close)
            if is_symmetric:
                np.less(squared, limits[block_rows], out=is_close_back)
                is_close |= is_close_back
            flat = np.flatnonzero(is_close)
            if not len(flat):
                continue
            i, l = np.divmod(flat, len(block_rows))  # noqa: E741
            center, impostor = task_rows[i], block_rows[l]
            if task.has_several_classes:
                # The rows of the task are also candidates, so count each pair only once.
                is_counted_once = (
                    codes[center] < codes[impostor]
                    if is_symmetric
                    else codes[center] != codes[impostor]
                )
                center, impostor, flat = (
                    center[is_counted_once],
                    impostor[is_counted_once],
                    flat[is_counted_once],
                )
            if is_symmetric:
                close_values = squared.ravel()[flat]
                is_close_forth, is_close_back = (
                    close_values < limits[center],
                    close_values < limits[impostor],
                )
                center, impostor = (
                    np.concatenate([center[is_close_forth], impostor[is_close_back]]),
                    np.concatenate([impostor[is_close_forth], center[is_close_back]]),
                )
            n_candidates += len(center)
            if n_candidates > max_pairs:
                break
            # Distances from products have rounding errors, so compute them again from differences.
            is_near = compute_listed_distances(Z, center, impostor) < reach[center]
            chunks.append((center[is_near].astype(np.int32), impostor[is_near].astype(np.int32)))
        task_centers, task_impostors = (np.concatenate(part) for part in zip(*chunks, strict=True))
        return n_candidates, task_centers, task_impostors

    if Z.size * len(centers) < _WORTH_THREADS:
        n_threads = 1
    chunks: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    n_total = 0
    bytes_per_row = n_threads * (
        6 * choose_block_size(len(Z), Z.shape[1], _FLOAT32) + 12 * Z.shape[1]
    )
    tasks = _make_tasks(
        centers_by_class, candidates, later_only=is_symmetric, bytes_per_row=bytes_per_row
    )
    for n_candidates, center, impostor in map_in_order(search_task, tasks, n_threads):
        n_total += n_candidates
        if n_total > max_pairs:
            return None
        chunks.append((center, impostor))
    return make_pair_list(chunks, len(Z))


def shorten_reach(
    Z: NDArray[np.floating[Any]],
    codes: Indices,
    reach: Vector,
    n_nearest: int,
    *,
    n_threads: int = 1,
) -> Vector:
    """Reduce the reach of each point, but keep its ``n_nearest`` nearest impostors within reach.

    With many rows, only a sample of impostors is searched. The distances of the nearest sampled
    impostors are upper bounds on the distances of the nearest impostors.
    """
    n, p = Z.shape
    rows, _ = place_rows(Z, Z, n_threads)
    sample = _sort_by_class(codes, np.arange(n)).rows[
        :: 1 if n <= _MANY_ROWS else min(_SAMPLE_STEP, n // _MANY_ROWS)
    ]
    converted = fill_right_factor(rows, sample, np.empty((len(sample), p + 2), np.float32))
    shorter = reach.copy()

    def shorten(centers: Indices) -> None:
        products = BlockProducts(
            rows, rows, centers, _FLOAT32, min_rows=len(sample), adds_query_norms=True
        )
        squared = products.compute_products(converted)
        squared[codes[centers, None] == codes[sample]] = np.inf
        kth_distance = bound_kth_smallest(squared, n_nearest).astype(np.float64)
        kth_distance = compute_reach_of_nearest(products.norms, kth_distance, p, _FLOAT32)
        shorter[centers] = np.minimum(shorter[centers], kth_distance * rows.scale**2)

    if n_nearest <= len(sample):
        centers = np.flatnonzero(np.isfinite(reach) & (reach > 0))
        blocks = split_rows(len(centers), n_threads * 6 * len(sample), max_rows=_MAX_GROUPED_ROWS)
        for _ in map_in_order(shorten, [centers[block] for block in blocks], n_threads):
            pass
    return shorter


def _compute_limits(rows: PlacedRows, reach: Vector) -> NDArray[np.float32]:
    """Return upper bounds on the squared distances, in float32, of pairs within reach.

    The bound is -1 for points without a positive finite reach.
    """
    p = rows.X.shape[1]
    counts = np.isfinite(reach) & (reach > 0)
    # Distances computed from differences also have rounding errors.
    radius = np.sqrt(np.where(counts, reach, 0)) * (1 + (p + 4) * float(np.finfo(rows.X.dtype).eps))
    limits = compute_reach(rows.squares, radius / rows.scale, p, _FLOAT32)
    with np.errstate(over="ignore"):
        rounded = np.nextafter(limits.astype(np.float32), np.float32(np.inf))
    return np.where(counts, rounded, np.float32(-1))


class _Ordered(NamedTuple):
    """Row indices sorted by class, and the position of the first row of each class."""

    rows: Indices
    edges: Indices


class _Task(NamedTuple):
    """Centers of one or several classes (a slice) and their candidates (a list of slices)."""

    centers: slice
    candidates: list[slice]
    has_several_classes: bool


def _sort_by_class(codes: Indices, rows: Indices) -> _Ordered:
    edges = np.cumsum(np.bincount(codes[rows], minlength=int(codes.max()) + 1))
    return _Ordered(rows[np.argsort(codes[rows], kind="stable")], np.concatenate([[0], edges]))


def _make_tasks(
    centers: _Ordered, candidates: _Ordered, *, later_only: bool, bytes_per_row: int
) -> Iterator[_Task]:
    """Yield tasks with the centers of one class or of several small classes.

    Candidates are the rows of other classes. With ``later_only=True``, they are the rows of later
    classes only, so that each pair of classes occurs once. If a task has several classes, its
    candidates include the rows of these classes.
    """
    end = len(candidates.rows)
    for first, last in _group_classes(np.diff(centers.edges)):
        before = slice(0, candidates.edges[first])
        after = slice(candidates.edges[first + 1 if later_only else last + 1], end)
        group_slice = slice(before.stop, after.start)
        slices = (
            [after]
            if later_only
            else [before, after]
            if first == last
            else [before, group_slice, after]
        )
        start, stop = centers.edges[first], centers.edges[last + 1]
        for block in split_rows(int(stop - start), bytes_per_row, max_rows=_ROWS):
            yield _Task(slice(start + block.start, start + block.stop), slices, first != last)


def _group_classes(sizes: Indices) -> Iterator[tuple[int, int]]:
    """Yield the first and last class of each group of classes that share a task."""
    first, n_rows = 0, 0
    for label, size in enumerate(sizes.tolist()):
        if n_rows and n_rows + size > _MAX_GROUPED_ROWS:
            yield first, label - 1
            first, n_rows = label, 0
        n_rows += size
    if n_rows:
        yield first, len(sizes) - 1


def _split_slices(slices: list[slice], size: int) -> Iterator[slice]:
    for section in slices:
        for start in range(section.start, section.stop, size):
            yield slice(start, min(start + size, section.stop))
