"""Search for target neighbours and impostors: the pairs the large-margin loss is made of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import map_in_order, row_blocks
from nearfar.solvers.triplet_loss import PairList, pair_distances
from nearfar.summaries.exact_search import kneighbors

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


def target_neighbors(X: NDArray[np.floating], codes: Indices, n_neighbors: int) -> Indices:
    """The nearest points of the same class, (n, k), nearest first; -1 where a class has fewer."""
    n_neighbors = min(n_neighbors, int(np.bincount(codes).max()) - 1)
    targets = np.full((len(X), n_neighbors), -1, dtype=np.intp)
    for label in np.unique(codes):
        members = np.flatnonzero(codes == label)
        k = min(n_neighbors, len(members) - 1)
        if k > 0:
            _, nearest = kneighbors(X[members], n_neighbors=k)
            targets[members, :k] = members[nearest]
    return targets


def find_impostors(
    Z: Matrix, codes: Indices, reach: Matrix, *, max_pairs: int, n_threads: int = 1
) -> PairList | None:
    """All pairs (i, l) of different classes with squared distance below ``reach[i]``.

    Blocks of float32 products propose, float64 differences decide. Each block of two classes
    serves both directions. None when there are more than ``max_pairs`` candidates.
    """
    order = np.argsort(codes, kind="stable")
    edges = np.concatenate([[0], np.cumsum(np.bincount(codes[order]))])
    points = Z[order] - Z.mean(axis=0)
    # Unit scale keeps float32 away from its limits.
    scale = float(np.sqrt(np.einsum("ij,ij->i", points, points).max())) or 1.0
    points = (points / scale).astype(np.float32)
    squares = np.einsum("ij,ij->i", points, points)
    radius = (reach[order] / scale**2).astype(np.float32)
    radius[~np.isfinite(radius)] = -1.0  # no target, no impostor
    # Rounding of the expanded distance, with room to spare: survivors are decided exactly.
    slack = np.float32(8 * np.finfo(np.float32).eps * np.sqrt(Z.shape[1]))
    radius = np.where(radius < 0, -1.0, radius + slack * (1 + radius)).astype(np.float32)

    def candidates(task: tuple[slice, slice]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        rows, others = task
        distances = points[rows] @ points[others].T
        distances *= -2
        distances += squares[rows, None]
        distances += squares[others]
        i, m = np.nonzero(distances < radius[rows, None])
        j, o = np.nonzero(radius[others, None] > distances.T)
        centre = np.concatenate([rows.start + i, others.start + j])
        other = np.concatenate([others.start + m, rows.start + o])
        return order[centre], order[other]

    found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    n_found = 0
    for centre, other in map_in_order(candidates, _class_blocks(edges), n_threads):
        n_found += len(centre)
        if n_found > max_pairs:
            return None
        near = pair_distances(Z, centre, other) < reach[centre]
        found.append((centre[near].astype(np.int32), other[near].astype(np.int32)))
    return pair_list(found, len(Z))


def pair_list(pairs: list[tuple[NDArray[np.int32], NDArray[np.int32]]], n_samples: int) -> PairList:
    """Distinct pairs, sorted by centre and other."""
    empty = np.zeros(0, dtype=np.int32)
    centres = np.concatenate([empty, *(centre for centre, _ in pairs)])
    others = np.concatenate([empty, *(other for _, other in pairs)])
    keys = np.unique(centres.astype(np.int64) * n_samples + others)
    counts = np.bincount(keys // n_samples, minlength=n_samples)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return PairList(indptr.astype(np.int64), (keys % n_samples).astype(np.int32))


def _class_blocks(edges: NDArray[np.integer]) -> Iterator[tuple[slice, slice]]:
    """Blocks of rows of one class against all rows of later classes."""
    total = int(edges[-1])
    for start, stop in zip(edges[:-2].tolist(), edges[1:-1].tolist(), strict=True):
        for block in row_blocks(stop - start, 16 * (total - stop)):
            yield slice(start + block.start, start + block.stop), slice(stop, total)
