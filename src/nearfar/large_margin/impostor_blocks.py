"""Impostor search by matrix products of blocks of rows, for maps to many dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Vector
from nearfar.blocks import map_in_order, split_rows
from nearfar.large_margin.pair_lists import PairList, listed_distances, pair_list
from nearfar.search.block_search import BlockProducts, facing, kth_at_most, rows_at_once
from nearfar.search.candidates import reach_of, reach_of_nearest
from nearfar.search.placed_rows import PlacedRows, placed

# Products of so many terms take longer than starting threads and limiting those of BLAS.
_WORTH_THREADS = 2 * 10**9
# Rows that meet the blocks of others at once. Classes of together fewer than the second do so too.
_ROWS, _FEW_ROWS = 2048, 256
# Rows of so few bytes are brought to single precision once, others for each block. Few rows may
# then meet many others: so many distances at once.
_BYTES_HELD, _DISTANCES = 2**23, 2**20
# Every so many-th row says how near the nearest impostors are at most, if there are many.
_SPARSE, _MANY = 16, 2048
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
    """All pairs (i, l) of different classes with squared distance below ``reach[i]``.

    Float32 products of rows in the order of classes propose, differences decide. Where most rows
    are centres each product serves both directions. A point whose reach is not finite has no
    impostors; with ``among`` only those rows may be impostors. None when there are more than
    ``max_pairs`` candidates.

    Cost O(n² d) in matrix products, half of it where they serve both directions. Memory beyond the
    result are blocks within scikit-learn's ``working_memory``, no copy of the points.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> found = find_impostors_blocks(Z, np.array([0, 0, 1, 1]), np.full(4, 4.5), max_pairs=9)
    >>> found.centers, found.indices
    (array([1, 2], dtype=int32), array([2, 1], dtype=int32))
    """
    rows, _ = placed(Z, Z, n_threads)
    limits = _limits(rows, reach)
    centers = np.flatnonzero(limits >= 0)
    both = among is None and 2 * len(centers) > len(Z)
    asked = _by_class(codes, np.arange(len(Z)) if both else centers)
    faced = asked if both else _by_class(codes, np.arange(len(Z)) if among is None else among)
    held = None
    if 4 * Z.size <= _BYTES_HELD:
        held = facing(rows, faced.rows, np.empty((len(faced.rows), Z.shape[1] + 2), np.float32))

    def impostors(task: _Task) -> tuple[int, NDArray[np.int32], NDArray[np.int32]]:
        where = asked.rows[task.asked]
        wide = 1 if held is None else _DISTANCES // len(where)
        products = BlockProducts(rows, rows, where, _FLOAT32, at_least=wide, whole=True)
        own = limits[where, None]
        room = np.empty((2, len(where) * products.at_once), bool)
        found = [(np.zeros(0, np.int32), np.zeros(0, np.int32))]
        n_candidates = 0
        for block in _steps(task.faced, products.at_once):
            others = faced.rows[block]
            squared = products.of(others) if held is None else products.against(held[block])
            close, back = room[:, : squared.size].reshape(2, *squared.shape)
            np.less(squared, own, out=close)
            if both:
                np.less(squared, limits[others], out=back)
                close |= back
            flat = np.flatnonzero(close)
            if not len(flat):
                continue
            i, l = np.divmod(flat, len(others))  # noqa: E741
            center, other = where[i], others[l]
            if task.mixed:
                # The rows themselves stand among those that they face: each pair once.
                once = codes[center] < codes[other] if both else codes[center] != codes[other]
                center, other, flat = center[once], other[once], flat[once]
            if both:
                values = squared.ravel()[flat]
                forth, back = values < limits[center], values < limits[other]
                center, other = (
                    np.concatenate([center[forth], other[back]]),
                    np.concatenate([other[forth], center[back]]),
                )
            n_candidates += len(center)
            if n_candidates > max_pairs:
                break
            # The product rounds: what it found is measured again.
            near = listed_distances(Z, center, other) < reach[center]
            found.append((center[near].astype(np.int32), other[near].astype(np.int32)))
        one, two = (np.concatenate(part) for part in zip(*found, strict=True))
        return n_candidates, one, two

    if Z.size * len(centers) < _WORTH_THREADS:
        n_threads = 1
    found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    n_found = 0
    needed = n_threads * (6 * rows_at_once(len(Z), Z.shape[1], _FLOAT32) + 12 * Z.shape[1])
    tasks = _tasks(asked, faced, later=both, needed=needed)
    for n_candidates, center, other in map_in_order(impostors, tasks, n_threads):
        n_found += n_candidates
        if n_found > max_pairs:
            return None
        found.append((center, other))
    return pair_list(found, len(Z))


def closer_reach(
    Z: NDArray[np.floating[Any]],
    codes: Indices,
    reach: Vector,
    n_nearest: int,
    *,
    n_threads: int = 1,
) -> Vector:
    """Reaches made shorter as far as the ``n_nearest`` impostors of each point stay within.

    Where there are many rows only some are looked at, of which the nearest bound those of all.
    """
    n, p = Z.shape
    rows, _ = placed(Z, Z, n_threads)
    few = _by_class(codes, np.arange(n)).rows[:: 1 if n <= _MANY else min(_SPARSE, n // _MANY)]
    held = facing(rows, few, np.empty((len(few), p + 2), np.float32))
    closer = reach.copy()

    def shorten(centers: Indices) -> None:
        products = BlockProducts(rows, rows, centers, _FLOAT32, at_least=len(few), whole=True)
        squared = products.against(held)
        squared[codes[centers, None] == codes[few]] = np.inf
        near = kth_at_most(squared, n_nearest).astype(np.float64)
        near = reach_of_nearest(products.norms, near, p, _FLOAT32)
        closer[centers] = np.minimum(closer[centers], near * rows.scale**2)

    if n_nearest <= len(few):
        centers = np.flatnonzero(np.isfinite(reach) & (reach > 0))
        blocks = split_rows(len(centers), n_threads * 6 * len(few), max_rows=_FEW_ROWS)
        for _ in map_in_order(shorten, [centers[block] for block in blocks], n_threads):
            pass
    return closer


def _limits(rows: PlacedRows, reach: Vector) -> NDArray[np.float32]:
    """What products in float32 may give for a pair below the reach; -1 where there is none."""
    p = rows.X.shape[1]
    counts = np.isfinite(reach) & (reach > 0)
    # Differences decide, and round too.
    radius = np.sqrt(np.where(counts, reach, 0)) * (1 + (p + 4) * float(np.finfo(rows.X.dtype).eps))
    limits = reach_of(rows.squares, radius / rows.scale, p, _FLOAT32)
    with np.errstate(over="ignore"):
        rounded = np.nextafter(limits.astype(np.float32), np.float32(np.inf))
    return np.where(counts, rounded, np.float32(-1))


class _Ordered(NamedTuple):
    """Row numbers in the order of classes, and where each class begins among them."""

    rows: Indices
    edges: Indices


class _Task(NamedTuple):
    """Some of the rows that ask, of several classes or one, and the parts of all that they face."""

    asked: slice
    faced: list[slice]
    mixed: bool


def _by_class(codes: Indices, rows: Indices) -> _Ordered:
    edges = np.cumsum(np.bincount(codes[rows], minlength=int(codes.max()) + 1))
    return _Ordered(rows[np.argsort(codes[rows], kind="stable")], np.concatenate([[0], edges]))


def _tasks(asked: _Ordered, faced: _Ordered, *, later: bool, needed: int) -> Iterator[_Task]:
    """Rows of one class, or of several small ones, against those of other classes.

    Only those of ``later`` classes, if each pair of classes is to come once. Rows of several
    classes face their own ones too.
    """
    end = len(faced.rows)
    for first, last in _groups(np.diff(asked.edges)):
        before = slice(0, faced.edges[first])
        after = slice(faced.edges[first + 1 if later else last + 1], end)
        own = slice(before.stop, after.start)
        parts = [after] if later else [before, after] if first == last else [before, own, after]
        start, stop = asked.edges[first], asked.edges[last + 1]
        for block in split_rows(int(stop - start), needed, max_rows=_ROWS):
            yield _Task(slice(start + block.start, start + block.stop), parts, first != last)


def _groups(sizes: Indices) -> Iterator[tuple[int, int]]:
    """First and last of classes that go together."""
    first, n_rows = 0, 0
    for label, size in enumerate(sizes.tolist()):
        if n_rows and n_rows + size > _FEW_ROWS:
            yield first, label - 1
            first, n_rows = label, 0
        n_rows += size
    if n_rows:
        yield first, len(sizes) - 1


def _steps(parts: list[slice], size: int) -> Iterator[slice]:
    for part in parts:
        for start in range(part.start, part.stop, size):
            yield slice(start, min(start + size, part.stop))
