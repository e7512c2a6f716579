"""What a point costs as a centre and as an impostor: the pushes and pulls of the energy rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.blocks import split_rows


def center_costs(
    distances: Matrix,
    edges: Indices,
    n_neighbors: int,
    push_weight: float,
    n_impostors: int | None = None,
) -> Matrix:
    """What each query costs as a centre under each label, pull and push, (b, n_classes).

    ``distances`` (b, n) are squared ones from queries to training points, which are in the order
    of classes: class c is ``edges[c]`` to ``edges[c + 1]``. A distance of inf means that the point
    is not there; the cost is inf for a class without points. So many impostors of the query count,
    the nearest; None is all.
    """
    # One look at all distances serves neighbours and impostors.
    found = _nearest_of_classes(distances, edges, max(n_neighbors, n_impostors or 1))
    nearest = _least(found, n_neighbors)
    present = np.isfinite(nearest)
    pulls = np.where(present, nearest, 0).sum(axis=2)
    # A reach of 0 makes no hinge.
    reach = np.where(present, 1 + nearest, 0)
    if n_impostors is None:
        pushes = _all_pushes(distances, edges, reach)
    else:
        pushes = _nearest_pushes(_least(found, n_impostors), reach)
    costs = (1 - push_weight) * pulls + push_weight * pushes
    return np.where(present.any(axis=2), costs, np.inf)


def _nearest_of_classes(distances: Matrix, edges: Indices, n_nearest: int) -> Matrix:
    """The least distances to each class, (b, n_classes, n_nearest), in no order; inf for none."""
    nearest = np.full((len(distances), len(edges) - 1, n_nearest), np.inf)
    for c, (start, stop) in enumerate(pairwise(edges.tolist())):
        k = min(n_nearest, stop - start)
        nearest[:, c, :k] = np.partition(distances[:, start:stop], k - 1, axis=1)[:, :k]
    return nearest


def _least(values: Matrix, n_least: int) -> Matrix:
    """So many of the last axis, in no order."""
    if n_least == values.shape[-1]:
        return values
    return np.partition(values, n_least - 1, axis=-1)[..., :n_least]


def _nearest_pushes(nearest: Matrix, reach: Matrix) -> Matrix:
    """Hinges of the nearest points of other classes, from those of each class, (b, n_classes)."""
    b, n_classes, m = nearest.shape
    pushes = np.empty((b, n_classes))
    for c in range(n_classes):
        others = np.delete(nearest, c, axis=1).reshape(b, -1)
        others = np.partition(others, m - 1, axis=1)[:, :m] if n_classes > 2 else others
        pushes[:, c] = np.maximum(reach[:, c, :, None] - others[:, None], 0).sum(axis=(1, 2))
    return pushes


def _all_pushes(distances: Matrix, edges: Indices, reach: Matrix) -> Matrix:
    """Hinges of all points of other classes, (b, n_classes)."""
    b, n_classes, n_neighbors = reach.shape
    pushes = np.empty((b, n_classes))
    limit = reach.max(axis=(1, 2))[:, None]
    for part, near in _pairs_below(distances, limit, edges, n_classes * n_neighbors):
        levels = reach[part].reshape(-1, n_classes * n_neighbors)
        of_all = _hinge_sums(near.distances, near.starts[::n_classes], levels)
        of_classes = of_all.reshape(-1, n_neighbors).sum(axis=1)
        own = _own_hinges(near.distances, near.starts, levels.reshape(-1, n_neighbors))
        pushes[part] = (of_classes - own).reshape(-1, n_classes)
    return np.maximum(pushes, 0)  # what is left after taking hinges away may be rounding


def impostor_costs(
    distances: Matrix, edges: Indices, reach: Matrix, beyond: Matrix | None = None
) -> Matrix:
    """What each query costs the training points of each class as their impostor, (b, n_classes).

    ``distances`` as in :func:`center_costs`; ``reach`` (n, k) is 1 plus the squared distance of
    each training point to its targets, -inf where there is none. Where only the nearest impostors
    count ``beyond``, (n,) or (b, n), is the squared distance of the last of them: a query that is
    nearer takes its place.
    """
    n_classes = len(edges) - 1
    costs = np.empty((len(distances), n_classes))
    limit = reach.max(axis=1, initial=0)
    if beyond is not None:
        limit, beyond = np.minimum(limit, beyond), np.broadcast_to(beyond, distances.shape)
    slots = np.ascontiguousarray(reach.T)
    for part, near in _pairs_below(distances, limit, edges):
        rows = np.repeat(np.arange(part.start, part.stop), np.diff(near.starts[::n_classes]))
        columns = near.cells - (rows - part.start) * distances.shape[1]
        hinges = np.zeros(len(rows))
        last = None if beyond is None else beyond[rows, columns]
        for slot in slots:
            hinges += _hinges(slot[columns], near.distances)
            if last is not None:
                hinges -= _hinges(slot[columns], last)
        costs[part] = _sums_of_runs(hinges, near.starts).reshape(-1, n_classes)
    return costs


class _Near(NamedTuple):
    """Pairs of some queries and points that are near, query by query, class by class."""

    cells: Indices  #: where they are in the distances of these queries, flattened
    distances: Vector
    starts: Indices  #: where those of each query with each class begin, and the end of the last


def _pairs_below(
    distances: Matrix, limit: Matrix, edges: Indices, n_levels: int = 0
) -> Iterator[tuple[slice, _Near]]:
    """Pairs whose distance is below a limit for each row (b, 1), column (n,) or pair.

    In parts of the rows so small that the caller may hold a few numbers for each pair, and some
    dozens for each of so many levels of a row.
    """
    n = distances.shape[1]
    limit = np.broadcast_to(limit, distances.shape)
    for part in split_rows(len(distances), 64 * n + 384 * n_levels):
        cells = np.flatnonzero(distances[part] < limit[part])
        classes = np.add.outer(n * np.arange(part.stop - part.start), edges[:-1])
        starts = np.append(np.searchsorted(cells, classes.ravel()), len(cells))
        yield part, _Near(cells, distances[part].ravel()[cells], starts)


def _own_hinges(distances: Vector, starts: Indices, levels: Matrix) -> Vector:
    """The sum of ``[levels[r, m] - distance]_+`` over m and the run r of distances, for each r.

    Few are below the levels of their own run: each is compared with all of these.
    """
    below = np.flatnonzero(distances < np.repeat(levels.max(axis=1), np.diff(starts)))
    distances, starts = distances[below], np.searchsorted(below, starts)
    hinges = np.zeros(len(distances))
    for level in levels.T:
        hinges += _hinges(np.repeat(level, np.diff(starts)), distances)
    return _sums_of_runs(hinges, starts)


def _hinge_sums(distances: Vector, starts: Indices, levels: Matrix) -> Matrix:
    """The sum of ``[levels[r, m] - distance]_+`` over the run r of distances, for each r and m.

    Sorted, the distances between two levels follow one another. From each level to the next, sums
    grow by what those between the two lack, and by the step for each that was below already.
    """
    sizes = np.diff(starts)
    width = int(sizes.max(initial=0)) + 1
    near = np.full((len(sizes), width), np.inf)  # the last of each row stays infinite
    near[np.arange(width) < sizes[:, None]] = distances
    near.sort(axis=1)
    order = np.argsort(levels, axis=1)
    levels = np.take_along_axis(levels, order, axis=1)
    # Numbers far above their differences would lose digits of these; a row may be empty.
    nearest = np.minimum(near[:, :1], levels[:, -1:])
    near -= nearest
    levels -= nearest
    below = _counts_below(near, levels)
    first = width * np.arange(len(sizes))[:, None]
    edges = np.append(np.hstack([first, first + below]), near.size)
    sums = _sums_of_runs(near.ravel(), edges).reshape(len(sizes), -1)[:, :-1]
    between = np.diff(below, axis=1, prepend=0)
    steps = np.diff(levels, axis=1, prepend=0)  # nothing is below the first
    growth = (below - between) * steps + (between * levels - sums)
    hinges = np.empty_like(levels)
    np.put_along_axis(hinges, order, np.cumsum(growth, axis=1), axis=1)
    return hinges


def _counts_below(rising: Matrix, levels: Matrix) -> Indices:
    """How many of each rising row, whose last is infinite, are below each level of the row."""
    rows, last = np.arange(len(rising))[:, None], rising.shape[1] - 1
    counts = np.zeros(levels.shape, dtype=np.intp)
    # All by bisection at once.
    for step in (1 << bit for bit in reversed(range(last.bit_length()))):
        counts += step * (rising[rows, np.minimum(counts + step - 1, last)] < levels)
    return counts


def _hinges(levels: Vector, distances: Vector) -> Vector:
    """``[level - distance]_+``, in the place of the levels."""
    levels -= distances
    return np.maximum(levels, 0, out=levels)


def _sums_of_runs(values: Vector, starts: Indices) -> Vector:
    """Sums of runs that follow one another: each begins where it starts, and may be empty."""
    sums = np.zeros(len(starts) - 1)
    filled = starts[1:] > starts[:-1]
    if filled.any():
        sums[filled] = np.add.reduceat(values[: starts[-1]], starts[:-1][filled])
    return sums
