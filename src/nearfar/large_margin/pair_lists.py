"""Pairs of rows: lists of them by centre, their distances, and which of a centre come first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats
from nearfar.blocks import map_in_order, split_rows

Integers = NDArray[np.integer[Any]]

# Pairs times features from which threads pay, and parts of the work that each of them gets.
THREADED_SIZE, PARTS = 4 * 10**6, 4


class PairList(NamedTuple):
    """Pairs (centre, other) in compressed rows: the others of centre i are
    ``indices[indptr[i]:indptr[i + 1]]``."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    @property
    def centers(self) -> NDArray[np.int32]:
        """Centre of each pair."""
        n = len(self.indptr) - 1
        return np.repeat(np.arange(n, dtype=np.int32), np.diff(self.indptr))


def pair_list(pairs: list[tuple[NDArray[np.int32], NDArray[np.int32]]], n_samples: int) -> PairList:
    """Distinct pairs, sorted by centre and other."""
    empty = np.zeros(0, dtype=np.int32)
    centers = np.concatenate([empty, *(center for center, _ in pairs)])
    others = np.concatenate([empty, *(other for _, other in pairs)])
    keys = np.sort(centers.astype(np.int64) * n_samples + others)
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    counts = np.bincount(keys // n_samples, minlength=n_samples)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return PairList(indptr.astype(np.int64), (keys % n_samples).astype(np.int32))


def target_distances(Z: Floats, targets: Integers, first: int = 0) -> NDArray[np.float64]:
    """Squared distances to the targets, (n, k); -inf where there is none (index -1).

    With -inf every hinge of an absent target is inactive. Targets may be those of some points, from
    the ``first`` on.
    """
    distances = np.full(targets.shape, -np.inf)
    rows, slots = np.nonzero(targets >= 0)
    distances[rows, slots] = listed_distances(Z, rows + first, targets[rows, slots])
    return distances


def listed_distances(
    Z: Floats, first: Integers, second: Integers, n_threads: int = 1
) -> NDArray[np.float64]:
    """Squared distances of pairs of rows, from their differences."""
    n_features = Z.shape[1]

    def measured(part: slice) -> NDArray[np.float64]:
        left, right = first[part], second[part]
        distances = np.empty(len(left))
        # Blocks that stay in cache: the gathered rows are read once and forgotten.
        for block in split_rows(len(left), 24 * n_features, max_rows=max(256, 2**17 // n_features)):
            difference = np.take(Z, right[block], axis=0)
            difference -= np.take(Z, left[block], axis=0)
            distances[block] = np.einsum("ij,ij->i", difference, difference)
        return distances

    if n_threads == 1 or len(first) * n_features < THREADED_SIZE:
        return measured(slice(None))
    parts = split_rows(len(first), 0, max_rows=-(-len(first) // (PARTS * n_threads)))
    return np.concatenate(list(map_in_order(measured, parts, n_threads)))


def order_of_nearness(centers: Integers, distances: NDArray[Any]) -> NDArray[np.intp]:
    """Of each pair, how many of the same centre are nearer; centres must be ascending."""
    starts = np.flatnonzero(np.diff(centers, prepend=-1))
    counts = np.diff(starts, append=len(centers))
    place = np.arange(len(centers)) - np.repeat(starts, counts)
    width = int(counts.max(initial=0))
    rank = np.empty(len(centers), dtype=np.intp)
    if width * len(starts) > 4 * len(centers):
        rank[np.lexsort((distances, centers))] = place
        return rank
    # A row for each centre: many short sorts are faster than a long one.
    rows = np.repeat(np.arange(len(starts)), counts)
    table = np.full((len(starts), width), np.inf)
    table[rows, place] = distances
    ranks = np.empty(table.shape, dtype=np.intp)
    np.put_along_axis(ranks, table.argsort(axis=1, kind="stable"), np.arange(width)[None], axis=1)
    return np.asarray(ranks[rows, place])
