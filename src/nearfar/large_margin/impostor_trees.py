"""Impostor search with one tree per class, for maps to few dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KDTree

from nearfar.blocks import split_rows
from nearfar.large_margin.pair_lists import PairList, listed_distances, pair_list


def find_impostors_tree(
    Z: NDArray[np.floating[Any]],
    codes: NDArray[np.integer[Any]],
    reach: NDArray[np.floating[Any]],
    *,
    max_pairs: int,
    among: NDArray[np.integer[Any]] | None = None,
) -> PairList | None:
    """All pairs (i, l) of different classes with squared distance below ``reach[i]``.

    The same as :func:`~nearfar.large_margin.impostors.find_impostors`, found by k-d trees of the
    mapped points: the trees hold for one map only, and are quick where it has few dimensions. A
    point whose reach is not finite has no impostors; with ``among`` only those rows may be
    impostors. None when there are more than ``max_pairs`` candidates.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> found = find_impostors_tree(Z, np.array([0, 0, 1, 1]), np.full(4, 4.5), max_pairs=9)
    >>> found.centers, found.indices
    (array([1, 2], dtype=int32), array([2, 1], dtype=int32))
    """
    # Trees compare lengths. Survivors are decided from the squares, as elsewhere: a little more.
    rounding = 4 * (Z.shape[1] + 4) * float(np.finfo(Z.dtype).eps)
    centers = np.flatnonzero(np.isfinite(reach) & (reach > 0))
    lengths = np.sqrt(reach[centers].astype(np.float64)) * (1 + rounding)
    rows = np.arange(len(Z)) if among is None else np.unique(among)
    found: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    n_found = 0
    for label in np.unique(codes[rows]):
        members = rows[codes[rows] == label]
        tree = KDTree(Z[members])
        asked = np.flatnonzero(codes[centers] != label)
        # Memory for the case that all members are near.
        for block in split_rows(len(asked), 40 * len(members)):
            queries = asked[block]
            near = tree.query_radius(Z[centers[queries]], lengths[queries])
            counts = [len(hits) for hits in near]
            n_found += sum(counts)
            if n_found > max_pairs:
                return None
            center = np.repeat(centers[queries], counts)
            other = members[np.concatenate(near)]
            kept = listed_distances(Z, center, other) < reach[center]
            found.append((center[kept].astype(np.int32), other[kept].astype(np.int32)))
    return pair_list(found, len(Z))
