"""Search for target neighbours and impostors: the pairs the large-margin loss is made of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import map_in_order, row_blocks, squared_distances
from nearfar.large_margin.impostor_trees import find_impostors_tree
from nearfar.large_margin.triplet_loss import (
    PairList,
    listed_distances,
    order_of_nearness,
    pair_list,
)
from nearfar.notices import warn
from nearfar.search.exact_search import choose_search, kneighbors

# Products of so many terms take longer than starting threads and limiting those of BLAS.
_WORTH_THREADS = 2 * 10**9
# So many points are all held against all at once, where a good part of them is within reach.
_FEW_POINTS = 1000


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


def check_class_sizes(codes: Indices, classes: NDArray[Any], n_neighbors: int, owner: str) -> None:
    """A learner of this name must have targets, and may have fewer than it asked for."""
    sizes = np.bincount(codes, minlength=len(classes))
    if sizes.max() < 2:
        raise ValueError(
            f"{owner} needs a class with at least two points; each class of y has only 1 sample."
        )
    if sizes.min() <= n_neighbors:
        label = classes.tolist()[int(np.argmin(sizes))]
        warn(
            f"Class {label!r} has {sizes.min()} points: fewer than n_neighbors + 1 = "
            f"{n_neighbors + 1}. Its points get as many targets as there are.",
        )


def chosen_targets(
    X: NDArray[np.floating],
    codes: Indices,
    classes: NDArray[Any],
    n_neighbors: int,
    owner: str,
) -> Indices:
    """`target_neighbors` for a learner of this name, which must have some and may have fewer."""
    check_class_sizes(codes, classes, n_neighbors, owner)
    return target_neighbors(X, codes, n_neighbors)


def check_targets(targets: ArrayLike, codes: Indices) -> Indices:
    """Targets given by the user, (n, k): row numbers of the same class, or -1."""
    found = np.asarray(targets)
    n = len(codes)
    if found.ndim != 2 or len(found) != n or found.dtype.kind not in "iu":
        raise ValueError(
            f"target_neighbors must be row numbers in an array of shape ({n}, k); got shape "
            f"{found.shape} of {found.dtype}."
        )
    found = found.astype(np.intp)
    if found.min(initial=0) < -1 or found.max(initial=-1) >= n:
        raise ValueError(f"target_neighbors names rows outside 0 to {n - 1}; -1 stands for none.")
    rows, slots = np.nonzero(found >= 0)
    if not len(rows):
        raise ValueError("target_neighbors holds no target.")
    others = found[rows, slots]
    for wrong, what in (
        (others == rows, "itself"),
        (codes[others] != codes[rows], "of another class"),
    ):
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(f"target_neighbors: row {rows[i]} has row {others[i]}, {what}.")
    return found


def find_impostors(
    Z: NDArray[np.floating[Any]],
    codes: Indices,
    reach: Matrix,
    *,
    max_pairs: int,
    n_threads: int = 1,
    method: str = "auto",
    among: Indices | None = None,
) -> PairList | None:
    """All pairs (i, l) of different classes with squared distance below ``reach[i]``.

    Blocks of float32 products propose, float64 differences decide. Each block of two classes
    serves both directions. None when there are more than ``max_pairs`` candidates. ``method`` is
    "blocks", "tree" (one tree per class, see :mod:`nearfar.large_margin.impostor_trees`; it uses
    one thread) or "auto" (see :func:`nearfar.search.exact_search.choose_search`). ``among`` names
    the only rows that may be impostors.
    """
    if method == "auto":
        chosen = choose_search(*Z.shape, work="impostors", n_threads=n_threads)
        method = "blocks" if among is not None else chosen
    if method == "tree":
        return find_impostors_tree(Z, codes, reach, max_pairs=max_pairs, among=among)
    if method != "blocks":
        raise ValueError(f'method must be "auto", "blocks" or "tree"; got {method!r}.')
    order, edges = _by_class(codes, np.arange(len(codes)))
    points = Z[order] - Z.mean(axis=0)
    # Unit scale keeps float32 away from its limits.
    scale = float(np.sqrt(np.einsum("ij,ij->i", points, points).max())) or 1.0
    points = (points / scale).astype(np.float32)
    squares = np.einsum("ij,ij->i", points, points)[:, None]
    ones = np.ones_like(squares)
    # One product gives the squared distances: (-2x, |x|², 1) · (x, 1, |x|²).
    left = np.hstack([-2 * points, squares, ones])
    right = np.hstack([points, ones, squares])
    radius = (reach[order] / scale**2).astype(np.float32)
    radius[~np.isfinite(radius)] = -1.0  # no target, no impostor
    # Rounding of the expanded distance, with room to spare: survivors are decided exactly.
    slack = np.float32(8 * np.finfo(np.float32).eps * np.sqrt(Z.shape[1]))
    radius = np.where(radius < 0, -1.0, radius + slack * (1 + radius)).astype(np.float32)
    centers = np.flatnonzero(radius >= 0)
    # Where most rows are centres, each product of two classes serves both directions.
    both = among is None and 2 * len(centers) > len(order)
    facing, facing_edges = order, edges
    if among is not None:
        facing, facing_edges = _by_class(codes, among)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        right = right[place[facing]]

    def impostors(task: _Task) -> tuple[int, NDArray[np.int32], NDArray[np.int32]]:
        rows, others = task
        distances = left[rows] @ right[others].T
        close = distances < radius[rows, None]
        if both:
            close |= distances < radius[others]
        flat = np.flatnonzero(close)
        i, m = np.divmod(flat, close.shape[1])
        center, other = rows[i], others.start + m
        if both:
            values = distances.ravel()[flat]
            forth, back = values < radius[center], values < radius[other]
            center, other = (
                np.concatenate([center[forth], other[back]]),
                np.concatenate([other[forth], center[back]]),
            )
        center, other = order[center], facing[other]
        # The product rounds: what it found is measured again.
        near = listed_distances(Z, center, other) < reach[center]
        return len(center), center[near].astype(np.int32), other[near].astype(np.int32)

    if Z.size * len(centers) < _WORTH_THREADS:
        n_threads = 1
    found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    n_found = 0
    tasks = _class_blocks(edges, facing_edges, None if both else centers)
    for n_candidates, center, other in map_in_order(impostors, tasks, n_threads):
        n_found += n_candidates
        if n_found > max_pairs:
            return None
        found.append((center, other))
    return pair_list(found, len(Z))


def nearest_impostors(
    Z: NDArray[np.floating[Any]],
    codes: Indices,
    reach: Matrix,
    n_nearest: int,
    *,
    n_threads: int = 1,
) -> tuple[PairList, Matrix]:
    """The ``n_nearest`` points of other classes of each point, of those below its ``reach``.

    Also returns the squared radii within which nothing is left out: where there were more, that of
    the last.
    """
    centers = np.flatnonzero(np.isfinite(reach))
    # All below the reach are found faster than the nearest, if they are not too many.
    few = len(Z) <= _FEW_POINTS
    each = min(10 * n_nearest, len(Z) // 8) if few else 10 * n_nearest
    found = find_impostors(Z, codes, reach, max_pairs=each * len(centers), n_threads=n_threads)
    if found is None and few:
        return _nearest_of_few(Z, codes, reach, n_nearest)
    if found is None:
        lists = []
        for label in np.unique(codes[centers]):
            others, mine = np.flatnonzero(codes != label), centers[codes[centers] == label]
            wanted = min(n_nearest, len(others))
            distances, nearest = kneighbors(Z[others], Z[mine], n_neighbors=wanted)
            rows, slots = np.nonzero(distances**2 < reach[mine, None])
            pairs = mine[rows], others[nearest[rows, slots]]
            lists.append((pairs[0].astype(np.int32), pairs[1].astype(np.int32)))
        found = pair_list(lists, len(Z))
    owners = found.centers
    distances = listed_distances(Z, owners, found.indices)
    rank = order_of_nearness(owners, distances)
    kept, last = rank < n_nearest, rank == n_nearest - 1
    radius = reach.copy()
    radius[owners[last]] = distances[last]
    return pair_list([(owners[kept], found.indices[kept])], len(Z)), radius


def _nearest_of_few(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, n_nearest: int
) -> tuple[PairList, Matrix]:
    """`nearest_impostors` where the distances of all points to all are few numbers."""
    points = (Z - Z.mean(axis=0)).astype(np.float64)
    distances = squared_distances(points, points)
    distances[codes[:, None] == codes] = np.inf
    n, wanted = len(Z), min(n_nearest, len(Z))
    # One more than wanted, as what was rounded is measured again.
    others = np.argpartition(distances, min(wanted, n - 1), axis=1)[:, : wanted + 1]
    centers = np.repeat(np.arange(n), others.shape[1])
    apart = listed_distances(Z, centers, others.ravel()).reshape(others.shape)
    apart[codes[others] == codes[:, None]] = np.inf
    order = apart.argsort(axis=1, kind="stable")[:, :wanted]
    apart, others = np.take_along_axis(apart, order, 1), np.take_along_axis(others, order, 1)
    rows, slots = np.nonzero(apart < reach[:, None])
    pairs = rows.astype(np.int32), others[rows, slots].astype(np.int32)
    radius = np.minimum(reach, apart[:, -1]) if wanted == n_nearest else reach.copy()
    return pair_list([pairs], n), radius


# Rows, and a slice of those that they are held against.
_Task = tuple[NDArray[np.intp], slice]


def _by_class(codes: Indices, rows: Indices) -> tuple[Indices, NDArray[np.int64]]:
    """Some rows in the order of classes, and where each class begins among them."""
    edges = np.cumsum(np.bincount(codes[rows], minlength=int(codes.max()) + 1))
    return rows[np.argsort(codes[rows], kind="stable")], np.concatenate([[0], edges])


def _class_blocks(
    edges: NDArray[np.int64], facing: NDArray[np.int64], centers: Indices | None
) -> Iterator[_Task]:
    """Blocks of centres of one class, or of all its rows, against rows of other classes.

    Without centres only later classes face the rows: each pair of classes comes once.
    """
    total = int(facing[-1])
    for c, (start, stop) in enumerate(pairwise(edges.tolist())):
        before, after = slice(0, int(facing[c])), slice(int(facing[c + 1]), total)
        rows = np.arange(start, stop)
        if centers is not None:
            rows = centers[(centers >= start) & (centers < stop)]
        for others in [after] if centers is None else [before, after]:
            width = others.stop - others.start
            if width == 0:
                continue
            # About 2 million distances at once stay in cache.
            for block in row_blocks(len(rows), 16 * width, at_most=max(16, 2**21 // width)):
                yield rows[block], others
