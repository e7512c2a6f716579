"""Lists of pairs of rows, sorted by center, and their distances and ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats
from nearfar.blocks import map_in_order, split_rows

Integers = NDArray[np.integer[Any]]

# Minimum product of pairs and features at which threads are used. Below this size, threads do not
# save time.
THREADED_SIZE = 4 * 10**6
# Number of chunks of pairs per thread.
CHUNKS_PER_THREAD = 4


class PairList(NamedTuple):
    """Pairs (center, impostor) in compressed sparse row format.

    The impostors of center i are ``indices[indptr[i]:indptr[i + 1]]``.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    @property
    def centers(self) -> NDArray[np.int32]:
        """Center of each pair."""
        n = len(self.indptr) - 1
        return np.repeat(np.arange(n, dtype=np.int32), np.diff(self.indptr))


def make_pair_list(
    pairs: list[tuple[NDArray[np.int32], NDArray[np.int32]]], n_samples: int
) -> PairList:
    """Return the distinct pairs, sorted by center and impostor."""
    empty = np.zeros(0, dtype=np.int32)
    centers = np.concatenate([empty, *(center for center, _ in pairs)])
    impostors = np.concatenate([empty, *(impostor for _, impostor in pairs)])
    keys = np.sort(centers.astype(np.int64) * n_samples + impostors)
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    counts = np.bincount(keys // n_samples, minlength=n_samples)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return PairList(indptr.astype(np.int64), (keys % n_samples).astype(np.int32))


def compute_target_distances(Z: Floats, targets: Integers, first: int = 0) -> NDArray[np.float64]:
    """Return squared distances to the targets, of shape (n, k).

    A missing target (index -1) has the distance -inf.

    With -inf, every hinge of a missing target is inactive. Row 0 of ``targets`` belongs to row
    ``first`` of Z.
    """
    distances = np.full(targets.shape, -np.inf)
    rows, slots = np.nonzero(targets >= 0)
    distances[rows, slots] = compute_listed_distances(Z, rows + first, targets[rows, slots])
    return distances


def compute_listed_distances(
    Z: Floats, first: Integers, second: Integers, n_threads: int = 1
) -> NDArray[np.float64]:
    """Return the squared distances of pairs of rows, computed from their differences."""
    n_features = Z.shape[1]

    def measure_chunk(chunk: slice) -> NDArray[np.float64]:
        first_rows, second_rows = first[chunk], second[chunk]
        distances = np.empty(len(first_rows))
        # Blocks are small enough for the gathered rows to stay in the processor's cache.
        for block in split_rows(
            len(first_rows), 24 * n_features, max_rows=max(256, 2**17 // n_features)
        ):
            difference = np.take(Z, second_rows[block], axis=0)
            difference -= np.take(Z, first_rows[block], axis=0)
            distances[block] = np.einsum("ij,ij->i", difference, difference)
        return distances

    if n_threads == 1 or len(first) * n_features < THREADED_SIZE:
        return measure_chunk(slice(None))
    chunks = split_rows(len(first), 0, max_rows=-(-len(first) // (CHUNKS_PER_THREAD * n_threads)))
    return np.concatenate(list(map_in_order(measure_chunk, chunks, n_threads)))


def rank_by_distance(centers: Integers, distances: NDArray[Any]) -> NDArray[np.intp]:
    """Rank the pairs with the same center by distance. Return the rank of each pair.

    The closest pair has rank 0. Centers must be sorted.
    """
    starts = np.flatnonzero(np.diff(centers, prepend=-1))
    counts = np.diff(starts, append=len(centers))
    position = np.arange(len(centers)) - np.repeat(starts, counts)
    width = int(counts.max(initial=0))
    rank = np.empty(len(centers), dtype=np.intp)
    if width * len(starts) > 4 * len(centers):
        rank[np.lexsort((distances, centers))] = position
        return rank
    # Sort one row per center: many short sorts are faster than one long sort.
    rows = np.repeat(np.arange(len(starts)), counts)
    table = np.full((len(starts), width), np.inf)
    table[rows, position] = distances
    ranks = np.empty(table.shape, dtype=np.intp)
    np.put_along_axis(ranks, table.argsort(axis=1, kind="stable"), np.arange(width)[None], axis=1)
    return np.asarray(ranks[rows, position])
