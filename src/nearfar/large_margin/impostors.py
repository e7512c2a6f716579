"""Search for target neighbors and impostors, the pairs in the large-margin loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import compute_squared_distances
from nearfar.large_margin.impostor_blocks import find_impostors_blocks, shorten_reach
from nearfar.large_margin.impostor_trees import find_impostors_tree
from nearfar.large_margin.pair_lists import (
    PairList,
    compute_listed_distances,
    make_pair_list,
    rank_by_distance,
)
from nearfar.notices import warn
from nearfar.search.exact_search import choose_search, kneighbors

# Maximum number of points for which all distances may be computed at once.
_FEW_POINTS = 1000
# Maximum ratio of impostors within reach to impostors that count. Above this ratio, the reach is
# shortened.
_MANY = 10
# Maximum ratio of impostors within the shortened reach to impostors that count. Above this ratio, a
# nearest-neighbor search is used instead.
_TOO_MANY = 64
# Number of centers used to estimate the number of impostors.
_PILOTS = 100


def find_target_neighbors(X: NDArray[np.floating], codes: Indices, n_neighbors: int) -> Indices:
    """Return the k nearest points of the same class, nearest first, as an array (n, k).

    Missing neighbors have the index -1.
    """
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
    """Raise ValueError if no class has two points. Warn if a class is too small for all targets."""
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
    """Check the class sizes, then find the target neighbors.

    ``owner`` is the name of the learner for messages.
    """
    check_class_sizes(codes, classes, n_neighbors, owner)
    return find_target_neighbors(X, codes, n_neighbors)


def check_targets(targets: ArrayLike, codes: Indices) -> Indices:
    """Check the target neighbors passed by the user: rows of the same class, or -1."""
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
    """Return all pairs (i, l) of different classes with squared distance below ``reach[i]``.

    Return None if there are more than ``max_pairs`` candidates. ``method`` is "blocks" (see
    :mod:`nearfar.large_margin.impostor_blocks`), "tree" (one tree per class, see
    :mod:`nearfar.large_margin.impostor_trees`; it uses one thread) or "auto" (see
    :func:`nearfar.search.exact_search.choose_search`). With ``among``, only these rows can be
    impostors.
    """
    if method == "auto":
        choice = choose_search(*Z.shape, task="impostors", n_threads=n_threads)
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
    """Return the ``n_nearest`` nearest points of other classes within the reach of each point.

    Also return the squared radii within which the list is complete: the reach, or the squared
    distance of the last listed impostor if more impostors are within reach.
    """
    centers = np.flatnonzero(np.isfinite(reach) & (reach > 0))
    search = partial(find_impostors, Z, codes, n_threads=n_threads)
    # Unless there are many impostors, finding all of them within reach is faster than finding the
    # nearest ones.
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
    if pairs is None:  # Too many pairs are left if almost all distances are equal.
        pairs = _find_nearest_by_class(Z, codes, reach, centers, n_nearest)
    pair_centers = pairs.centers
    distances = compute_listed_distances(Z, pair_centers, pairs.indices)
    rank = rank_by_distance(pair_centers, distances)
    is_nearest, is_last = rank < n_nearest, rank == n_nearest - 1
    radius = reach.copy()
    radius[pair_centers[is_last]] = distances[is_last]
    return make_pair_list([(pair_centers[is_nearest], pairs.indices[is_nearest])], len(Z)), radius


def _find_nearest_densely(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, n_nearest: int
) -> PairList:
    """Find the nearest points of other classes from a dense matrix of all distances.

    All points at the same distance as the last one, up to rounding, are listed. The caller breaks
    these ties by row index.
    """
    points = Z.astype(np.float64)
    points -= points.mean(axis=0)
    distances = compute_squared_distances(points, points)
    distances[codes[:, None] == codes] = np.inf
    column = min(n_nearest, len(Z)) - 1
    last_distance = np.partition(distances, column, axis=1)[:, column]
    # Allow for a rounding error of 10,000 units in the last place of the largest square.
    slack = 1e4 * np.finfo(np.float64).eps * np.einsum("ij,ij->i", points, points).max()
    limit = np.minimum(np.minimum(last_distance, reach) + slack, np.finfo(np.float64).max)
    centers, impostors = np.nonzero(distances <= limit[:, None])
    is_near = compute_listed_distances(Z, centers, impostors) < reach[centers]
    pairs = centers[is_near].astype(np.int32), impostors[is_near].astype(np.int32)
    return make_pair_list([pairs], len(Z))


def _has_few_impostors(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, centers: Indices, max_mean: int
) -> bool:
    """Return True if sampled centers have at most ``max_mean`` impostors on average."""
    pilots = centers[:: 1 + len(centers) // _PILOTS]
    pilot_reach = np.full_like(reach, -np.inf)
    pilot_reach[pilots] = reach[pilots]
    return find_impostors(Z, codes, pilot_reach, max_pairs=max_mean * len(pilots)) is not None


def _find_nearest_by_class(
    Z: NDArray[np.floating[Any]], codes: Indices, reach: Matrix, centers: Indices, n_nearest: int
) -> PairList:
    """Find the nearest points of other classes, with one neighbor search per class."""
    lists = []
    for label in np.unique(codes[centers]):
        candidates, class_centers = np.flatnonzero(codes != label), centers[codes[centers] == label]
        n_requested = min(n_nearest, len(candidates))
        distances, nearest = kneighbors(Z[candidates], Z[class_centers], n_neighbors=n_requested)
        rows, slots = np.nonzero(distances**2 < reach[class_centers, None])
        pairs = class_centers[rows], candidates[nearest[rows, slots]]
        lists.append((pairs[0].astype(np.int32), pairs[1].astype(np.int32)))
    return make_pair_list(lists, len(Z))
