"""Search for target neighbours and impostors: the pairs the large-margin loss is made of."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import squared_distances
from nearfar.large_margin.impostor_blocks import find_impostors_blocks, shorten_reach
from nearfar.large_margin.impostor_trees import find_impostors_tree
from nearfar.large_margin.pair_lists import (
    PairList,
    compute_pair_distances,
    make_pair_list,
    rank_by_distance,
)
from nearfar.notices import warn
from nearfar.search.exact_search import choose_search, kneighbors

# So many points are all held against all at once, where a good part of them is within reach.
_FEW_POINTS = 1000
# So many times the nearest that count are listed; of more the nearest are looked for, with a
# shorter reach, and of yet more by a search for neighbours.
_MANY, _TOO_MANY = 10, 64
# How many there are is judged by so many centres.
_PILOTS = 100


def find_target_neighbors(X: NDArray[np.floating], codes: Indices, n_neighbors: int) -> Indices:
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


def find_checked_targets(
    X: NDArray[np.floating],
    codes: Indices,
    classes: NDArray[Any],
    n_neighbors: int,
    owner: str,
) -> Indices:
    """`target_neighbors` for a learner of this name, which must have some and may have fewer."""
    check_class_sizes(codes, classes, n_neighbors, owner)
    return find_target_neighbors(X, codes, n_neighbors)


def check_targets(targets: ArrayLike, codes: Indices) -> Indices:
    """Targets given by the user, (n, k): row numbers of the same class, or -1."""
    checked = np.asarray(targets)
    n = len(codes)
    if checked.ndim != 2 or len(checked) != n or checked.dtype.kind not in "iu":
        raise ValueError(
            f"target_neighbors must be an integer array of shape ({n}, k) with row indices; got "
            f"shape {checked.shape} and dtype {checked.dtype}."
        )
    checked = checked.astype(np.intp)
    if checked.min(initial=0) < -1 or checked.max(initial=-1) >= n:
        raise ValueError(
            f"target_neighbors must contain row indices from 0 to {n - 1}, or -1 for missing "
            f"targets; got values from {checked.min()} to {checked.max()}."
        )
    rows, slots = np.nonzero(checked >= 0)
    if not len(rows):
        raise ValueError("target_neighbors must contain at least one target; all entries are -1.")
    target_rows = checked[rows, slots]
    for is_wrong, reason in (
        (target_rows == rows, "itself"),
        (codes[target_rows] != codes[rows], "of another class"),
    ):
        if is_wrong.any():
            i = int(np.argmax(is_wrong))
            raise ValueError(
                "target_neighbors must be other rows of the same class: the target of row "
                f"{rows[i]} is row {target_rows[i]}, {reason}."
            )
    return checked


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
        choice = choose_search(*Z.shape, work="impostors", n_threads=n_threads)
        method = "blocks" if among is not None else choice
    if method == "tree":
        return find_impostors_tree(Z, codes, reach, max_pairs=max_pairs, among=among)
    if method != "blocks":
        raise ValueError(f'method must be "auto", "blocks" or "tree"; got {method!r}.')
    return find_impostors_blocks(
        Z, codes, reach, max_pairs=max_pairs, n_threads=n_threads, among=among
    )


def find_nearest_impostors(
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
    is_small = len(Z) <= _FEW_POINTS
    max_per_center = min(_MANY * n_nearest, len(Z) // 8) if is_small else _MANY * n_nearest
    pairs = None
    if is_small or _has_few_impostors(Z, codes, reach, centers, max_per_center):
        pairs = search(reach, max_pairs=max_per_center * len(centers))
    if pairs is None and is_small:
        pairs = _find_nearest_densely(Z, codes, reach, n_nearest)
    if pairs is None:
        shorter_reach = shorten_reach(Z, codes, reach, n_nearest, n_threads=n_threads)
        pairs = search(shorter_reach, max_pairs=_TOO_MANY * n_nearest * len(centers))
    if pairs is None:  # nearly all are as near as each other
        pairs = _find_nearest_by_class(Z, codes, reach, centers, n_nearest)
    pair_centers = pairs.centers
    distances = compute_pair_distances(Z, pair_centers, pairs.indices)
    rank = rank_by_distance(pair_centers, distances)
    is_nearest, is_last = rank < n_nearest, rank == n_nearest - 1
    radius = reach.copy()
    radius[pair_centers[is_last]] = distances[is_last]
    return make_pair_list([(pair_centers[is_nearest], pairs.indices[is_nearest])], len(Z)), radius


def _find_nearest_densely(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, n_nearest: int
) -> PairList:
    """The nearest points of other classes where the distances of all to all are few numbers.

    All that rounding cannot tell from the last of them are listed: which of equal ones count is
    for the caller, who goes by row.
    """
    points = Z.astype(np.float64)
    points -= points.mean(axis=0)
    distances = squared_distances(points, points)
    distances[codes[:, None] == codes] = np.inf
    column = min(n_nearest, len(Z)) - 1
    last_distance = np.partition(distances, column, axis=1)[:, column]
    # Ten thousand roundings of the largest square.
    slack = 1e4 * np.finfo(np.float64).eps * np.einsum("ij,ij->i", points, points).max()
    limit = np.minimum(np.minimum(last_distance, reach) + slack, np.finfo(np.float64).max)
    centers, impostors = np.nonzero(distances <= limit[:, None])
    is_near = compute_pair_distances(Z, centers, impostors) < reach[centers]
    pairs = centers[is_near].astype(np.int32), impostors[is_near].astype(np.int32)
    return make_pair_list([pairs], len(Z))


def _has_few_impostors(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, centers: Indices, max_mean: int
) -> bool:
    """Whether some centres, evenly drawn, have at most so many impostors on the average."""
    pilots = centers[:: 1 + len(centers) // _PILOTS]
    pilot_reach = np.full_like(reach, -np.inf)
    pilot_reach[pilots] = reach[pilots]
    return find_impostors(Z, codes, pilot_reach, max_pairs=max_mean * len(pilots)) is not None


def _find_nearest_by_class(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, centers: Indices, n_nearest: int
) -> PairList:
    """The nearest points of other classes, by a search for the centres of each class."""
    lists = []
    for label in np.unique(codes[centers]):
        candidates, class_centers = np.flatnonzero(codes != label), centers[codes[centers] == label]
        n_requested = min(n_nearest, len(candidates))
        distances, nearest = kneighbors(Z[candidates], Z[class_centers], n_neighbors=n_requested)
        rows, slots = np.nonzero(distances**2 < reach[class_centers, None])
        pairs = class_centers[rows], candidates[nearest[rows, slots]]
        lists.append((pairs[0].astype(np.int32), pairs[1].astype(np.int32)))
    return make_pair_list(lists, len(Z))
