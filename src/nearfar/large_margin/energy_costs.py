"""Costs of a point as a center and as an impostor: the terms of the energy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.blocks import split_rows


def compute_center_costs(
    distances: Matrix,
    edges: Indices,
    n_neighbors: int,
    push_weight: float,
    n_impostors: int | None = None,
) -> Matrix:
    """Return the cost of each query as a center for each label, as an array (b, n_classes).

    The cost has a pull and a push term. ``distances`` (b, n) contains squared distances from
    queries to training points, sorted by class: class c has the columns ``edges[c]`` to
    ``edges[c + 1]``. A distance of inf excludes the point, and a class without points has the cost
    inf. ``n_impostors`` is the number of nearest impostors of the query that count. None means that
    all count.
    """
    # Select the smallest distances once, for both neighbors and impostors.
    smallest = _find_nearest_distances(distances, edges, max(n_neighbors, n_impostors or 1))
    nearest = _select_smallest(smallest, n_neighbors)
    present = np.isfinite(nearest)
    pulls = np.where(present, nearest, 0).sum(axis=2)
    # Set the reach of missing neighbors to 0, so that their hinges are zero.
    reach = np.where(present, 1 + nearest, 0)
    if n_impostors is None:
        pushes = _sum_all_hinges(distances, edges, reach)
    else:
        pushes = _sum_nearest_hinges(_select_smallest(smallest, n_impostors), reach)
    costs = (1 - push_weight) * pulls + push_weight * pushes
    return np.where(present.any(axis=2), costs, np.inf)


def _find_nearest_distances(distances: Matrix, edges: Indices, n_nearest: int) -> Matrix:
    """Return the ``n_nearest`` smallest distances from each query to each class.

    The result has shape (b, n_classes, n_nearest). The distances are in any order.
    """
    nearest = np.full((len(distances), len(edges) - 1, n_nearest), np.inf)
    for c, (start, stop) in enumerate(pairwise(edges.tolist())):
        k = min(n_nearest, stop - start)
        nearest[:, c, :k] = np.partition(distances[:, start:stop], k - 1, axis=1)[:, :k]
    return nearest


def _select_smallest(values: Matrix, n_selected: int) -> Matrix:
    """Return the ``n_selected`` smallest values along the last axis, in any order."""
    if n_selected == values.shape[-1]:
        return values
    return np.partition(values, n_selected - 1, axis=-1)[..., :n_selected]


def _sum_nearest_hinges(nearest: Matrix, reach: Matrix) -> Matrix:
    """For each class, sum the hinges of the nearest points of all other classes."""
    b, n_classes, m = nearest.shape
    pushes = np.empty((b, n_classes))
    for c in range(n_classes):
        other_distances = np.delete(nearest, c, axis=1).reshape(b, -1)
        other_distances = (
            np.partition(other_distances, m - 1, axis=1)[:, :m]
            if n_classes > 2
            else other_distances
        )
        pushes[:, c] = np.maximum(reach[:, c, :, None] - other_distances[:, None], 0).sum(
            axis=(1, 2)
        )
    return pushes


def _sum_all_hinges(distances: Matrix, edges: Indices, reach: Matrix) -> Matrix:
    """For each class, sum the hinges of all points of all other classes."""
    b, n_classes, n_neighbors = reach.shape
    pushes = np.empty((b, n_classes))
    limit = reach.max(axis=(1, 2))[:, None]
    for part, near in _split_pairs_below(distances, limit, edges, n_classes * n_neighbors):
        levels = reach[part].reshape(-1, n_classes * n_neighbors)
        all_sums = _sum_hinges(near.distances, near.starts[::n_classes], levels)
        class_sums = all_sums.reshape(-1, n_neighbors).sum(axis=1)
        own_sums = _sum_own_hinges(near.distances, near.starts, levels.reshape(-1, n_neighbors))
        pushes[part] = (class_sums - own_sums).reshape(-1, n_classes)
    return np.maximum(pushes, 0)  # Rounding may make differences negative.


def compute_impostor_costs(
    distances: Matrix, edges: Indices, reach: Matrix, beyond: Matrix | None = None
) -> Matrix:
    """Return the cost of each query as an impostor for each class, as an array (b, n_classes).

    ``distances`` is as in :func:`compute_center_costs`. ``reach`` (n, k) is 1 plus the squared
    distance of each training point to its targets, with -inf for missing targets. If only the
    nearest impostors count, ``beyond``, of shape (n,) or (b, n), is the squared distance of the
    last impostor that counts. A closer query replaces this impostor.
    """
    n_classes = len(edges) - 1
    costs = np.empty((len(distances), n_classes))
    limit = reach.max(axis=1, initial=0)
    if beyond is not None:
        limit, beyond = np.minimum(limit, beyond), np.broadcast_to(beyond, distances.shape)
    slots = np.ascontiguousarray(reach.T)
    for part, near in _split_pairs_below(distances, limit, edges):
        rows = np.repeat(np.arange(part.start, part.stop), np.diff(near.starts[::n_classes]))
        columns = near.cells - (rows - part.start) * distances.shape[1]
        hinges = np.zeros(len(rows))
        last = None if beyond is None else beyond[rows, columns]
        for slot in slots:
            hinges += _subtract_and_clip(slot[columns], near.distances)
            if last is not None:
                hinges -= _subtract_and_clip(slot[columns], last)
        costs[part] = _sum_runs(hinges, near.starts).reshape(-1, n_classes)
    return costs


class _Near(NamedTuple):
    """Pairs of queries and close points, sorted by query and by class of the point."""

    cells: Indices  #: Positions of the pairs in the flattened distance matrix.
    distances: Vector
    #: Index of the first pair of each query and class. The last entry is the number of pairs.
    starts: Indices


def _split_pairs_below(
    distances: Matrix, limit: Matrix, edges: Indices, n_levels: int = 0
) -> Iterator[tuple[slice, _Near]]:
    """Split the rows into slices, and yield each slice with its pairs closer than a limit.

    The limit is given per row (b, 1), per column (n,) or per pair. The slices are small enough for
    the caller to store a few numbers per pair and a few dozen numbers per level. There are
    ``n_levels`` levels per row.
    """
    n = distances.shape[1]
    limit = np.broadcast_to(limit, distances.shape)
    for part in split_rows(len(distances), 64 * n + 384 * n_levels):
        cells = np.flatnonzero(distances[part] < limit[part])
        classes = np.add.outer(n * np.arange(part.stop - part.start), edges[:-1])
        starts = np.append(np.searchsorted(cells, classes.ravel()), len(cells))
        yield part, _Near(cells, distances[part].ravel()[cells], starts)


def _sum_own_hinges(distances: Vector, starts: Indices, levels: Matrix) -> Vector:
    """For each run r of distances, sum ``[levels[r, m] - distance]_+`` over the run and over m.

    Few distances are below the highest level of their run. Only these are compared with all levels
    of the run.
    """
    below = np.flatnonzero(distances < np.repeat(levels.max(axis=1), np.diff(starts)))
    distances, starts = distances[below], np.searchsorted(below, starts)
    hinges = np.zeros(len(distances))
    for level in levels.T:
        hinges += _subtract_and_clip(np.repeat(level, np.diff(starts)), distances)
    return _sum_runs(hinges, starts)


def _sum_hinges(distances: Vector, starts: Indices, levels: Matrix) -> Matrix:
    """For each run r of distances and each m, sum ``[levels[r, m] - distance]_+`` over the run.

    The distances are sorted. From one level to the next, the sum increases by the difference of the
    levels for each distance below the lower level. For each distance between the two levels, it
    increases by the upper level minus the distance.
    """
    sizes = np.diff(starts)
    width = int(sizes.max(initial=0)) + 1
    near = np.full((len(sizes), width), np.inf)  # The last entry of each row stays infinite.
    near[np.arange(width) < sizes[:, None]] = distances
    near.sort(axis=1)
    order = np.argsort(levels, axis=1)
    levels = np.take_along_axis(levels, order, axis=1)
    # Subtract the smallest distance, so that the differences do not lose digits. A row may be
    # empty.
    nearest = np.minimum(near[:, :1], levels[:, -1:])
    near -= nearest
    levels -= nearest
    below = _count_below(near, levels)
    first = width * np.arange(len(sizes))[:, None]
    edges = np.append(np.hstack([first, first + below]), near.size)
    sums = _sum_runs(near.ravel(), edges).reshape(len(sizes), -1)[:, :-1]
    between = np.diff(below, axis=1, prepend=0)
    steps = np.diff(levels, axis=1, prepend=0)  # The first step is multiplied by 0.
    growth = (below - between) * steps + (between * levels - sums)
    hinges = np.empty_like(levels)
    np.put_along_axis(hinges, order, np.cumsum(growth, axis=1), axis=1)
    return hinges


def _count_below(rising: Matrix, levels: Matrix) -> Indices:
    """Count the entries of each row below each level. Each row is sorted and ends with inf."""
    rows, last = np.arange(len(rising))[:, None], rising.shape[1] - 1
    counts = np.zeros(levels.shape, dtype=np.intp)
    # This is a bisection for all rows and levels at once.
    for step in (1 << bit for bit in reversed(range(last.bit_length()))):
        counts += step * (rising[rows, np.minimum(counts + step - 1, last)] < levels)
    return counts


def _subtract_and_clip(levels: Vector, distances: Vector) -> Vector:
    """Return ``[level - distance]_+``. The result overwrites ``levels``."""
    levels -= distances
    return np.maximum(levels, 0, out=levels)


def _sum_runs(values: Vector, starts: Indices) -> Vector:
    """Return the sum of each run of values. A run ends where the next one starts."""
    sums = np.zeros(len(starts) - 1)
    filled = starts[1:] > starts[:-1]
    if filled.any():
        sums[filled] = np.add.reduceat(values[: starts[-1]], starts[:-1][filled])
    return sums
