"""Search for target neighbours and impostors: the pairs the large-margin loss is made of."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import compute_squared_distances
from nearfar.large_margin.impostor_blocks import closer_reach, find_impostors_blocks
from nearfar.large_margin.impostor_trees import find_impostors_tree
from nearfar.large_margin.pair_lists import PairList, listed_distances, order_of_nearness, pair_list
from nearfar.notices import warn
from nearfar.search.exact_search import choose_search, kneighbors

# So many points are all held against all at once, where a good part of them is within reach.
_FEW_POINTS = 1000
# So many times the nearest that count are listed; of more the nearest are looked for, with a
# shorter reach, and of yet more by a search for neighbours.
_MANY, _TOO_MANY = 10, 64
# How many there are is judged by so many centres.
_PILOTS = 100


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
            f"{owner} needs a class with at least two points, but each class of y has only 1 "
            "sample."
        )
    if sizes.min() <= n_neighbors:
        label = classes.tolist()[int(np.argmin(sizes))]
        warn(
            f"Class {label!r} has {sizes.min()} points, fewer than n_neighbors + 1 = "
            f"{n_neighbors + 1}. Its points have fewer target neighbors. Reduce n_neighbors to "
            "avoid this.",
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
            f"target_neighbors must be an integer array of shape ({n}, k) with row indices; got "
            f"shape {found.shape} and dtype {found.dtype}."
        )
    found = found.astype(np.intp)
    if found.min(initial=0) < -1 or found.max(initial=-1) >= n:
        raise ValueError(
            f"target_neighbors must contain row indices from 0 to {n - 1}, or -1 for missing "
            f"targets; got values from {found.min()} to {found.max()}."
        )
    rows, slots = np.nonzero(found >= 0)
    if not len(rows):
        raise ValueError("target_neighbors must contain at least one target; all entries are -1.")
    others = found[rows, slots]
    for wrong, what in (
        (others == rows, "itself"),
        (codes[others] != codes[rows], "of another class"),
    ):
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                "target_neighbors must be other rows of the same class: the target of row "
                f"{rows[i]} is row {others[i]}, {what}."
            )
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

    None when there are more than ``max_pairs`` candidates. ``method`` is "blocks" (see
    :mod:`nearfar.large_margin.impostor_blocks`), "tree" (one tree per class, see
    :mod:`nearfar.large_margin.impostor_trees`; it uses one thread) or "auto" (see
    :func:`nearfar.search.exact_search.choose_search`). ``among`` names the only rows that may be
    impostors.
    """
    if method == "auto":
        chosen = choose_search(*Z.shape, work="impostors", n_threads=n_threads)
        method = "blocks" if among is not None else chosen
    if method == "tree":
        return find_impostors_tree(Z, codes, reach, max_pairs=max_pairs, among=among)
    if method != "blocks":
        raise ValueError(f'method must be "auto", "blocks" or "tree"; got {method!r}.')
    return find_impostors_blocks(
        Z, codes, reach, max_pairs=max_pairs, n_threads=n_threads, among=among
    )


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
    centers = np.flatnonzero(np.isfinite(reach) & (reach > 0))
    search = partial(find_impostors, Z, codes, n_threads=n_threads)
    # All below the reach are found faster than the nearest, if they are not too many.
    few = len(Z) <= _FEW_POINTS
    each = min(_MANY * n_nearest, len(Z) // 8) if few else _MANY * n_nearest
    found = None
    if few or _few_impostors(Z, codes, reach, centers, each):
        found = search(reach, max_pairs=each * len(centers))
    if found is None and few:
        found = _nearest_of_few(Z, codes, reach, n_nearest)
    if found is None:
        closer = closer_reach(Z, codes, reach, n_nearest, n_threads=n_threads)
        found = search(closer, max_pairs=_TOO_MANY * n_nearest * len(centers))
    if found is None:  # nearly all are as near as each other
        found = _nearest_of_each_class(Z, codes, reach, centers, n_nearest)
    owners = found.centers
    distances = listed_distances(Z, owners, found.indices)
    rank = order_of_nearness(owners, distances)
    kept, last = rank < n_nearest, rank == n_nearest - 1
    radius = reach.copy()
    radius[owners[last]] = distances[last]
    return pair_list([(owners[kept], found.indices[kept])], len(Z)), radius


def _nearest_of_few(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, n_nearest: int
) -> PairList:
    """The nearest points of other classes where the distances of all to all are few numbers.

    All that rounding cannot tell from the last of them are listed: which of equal ones count is
    for the caller, who goes by row.
    """
    points = Z.astype(np.float64)
    points -= points.mean(axis=0)
    distances = compute_squared_distances(points, points)
    distances[codes[:, None] == codes] = np.inf
    place = min(n_nearest, len(Z)) - 1
    last = np.partition(distances, place, axis=1)[:, place]
    # Ten thousand roundings of the largest square.
    slack = 1e4 * np.finfo(np.float64).eps * np.einsum("ij,ij->i", points, points).max()
    limit = np.minimum(np.minimum(last, reach) + slack, np.finfo(np.float64).max)
    centers, others = np.nonzero(distances <= limit[:, None])
    nearer = listed_distances(Z, centers, others) < reach[centers]
    pairs = centers[nearer].astype(np.int32), others[nearer].astype(np.int32)
    return pair_list([pairs], len(Z))


def _few_impostors(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, centers: Indices, most: int
) -> bool:
    """Whether some centres, evenly drawn, have at most so many impostors on the average."""
    pilots = centers[:: 1 + len(centers) // _PILOTS]
    alone = np.full_like(reach, -np.inf)
    alone[pilots] = reach[pilots]
    return find_impostors(Z, codes, alone, max_pairs=most * len(pilots)) is not None


def _nearest_of_each_class(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, centers: Indices, n_nearest: int
) -> PairList:
    """The nearest points of other classes, by a search for the centres of each class."""
    lists = []
    for label in np.unique(codes[centers]):
        others, mine = np.flatnonzero(codes != label), centers[codes[centers] == label]
        wanted = min(n_nearest, len(others))
        distances, nearest = kneighbors(Z[others], Z[mine], n_neighbors=wanted)
        rows, slots = np.nonzero(distances**2 < reach[mine, None])
        pairs = mine[rows], others[nearest[rows, slots]]
        lists.append((pairs[0].astype(np.int32), pairs[1].astype(np.int32)))
    return pair_list(lists, len(Z))
