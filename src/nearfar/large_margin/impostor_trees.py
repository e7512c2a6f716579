"""Impostor search with one tree per class, for maps to few dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KDTree

from nearfar.blocks import split_rows
from nearfar.large_margin.pair_lists import PairList, compute_listed_distances, make_pair_list


def find_impostors_tree(
    Z: NDArray[np.floating[Any]],
    codes: NDArray[np.integer[Any]],
    reach: NDArray[np.floating[Any]],
    *,
    max_pairs: int,
    among: NDArray[np.integer[Any]] | None = None,
) -> PairList | None:
    """Return all pairs (i, l) of different classes with squared distance below ``reach[i]``.

    The result is that of :func:`~nearfar.large_margin.impostors.find_impostors`. It is computed
    with k-d trees of the mapped points, which must be built for each map and are fast in few
    dimensions. A point whose reach is not finite has no impostors. With ``among``, only these rows
    can be impostors. Return None if there are more than ``max_pairs`` candidates.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> found = find_impostors_tree(Z, np.array([0, 0, 1, 1]), np.full(4, 4.5), max_pairs=9)
    >>> found.centers, found.indices
    (array([1, 2], dtype=int32), array([2, 1], dtype=int32))
    """
    # Trees compare distances, but the final test below compares squared distances. The radius is
    # therefore increased by the rounding error.
    rounding = 4 * (Z.shape[1] + 4) * float(np.finfo(Z.dtype).eps)
    centers = np.flatnonzero(np.isfinite(reach) & (reach > 0))
    lengths = np.sqrt(reach[centers].astype(np.float64)) * (1 + rounding)
    rows = np.arange(len(Z)) if among is None else np.unique(among)
    chunks: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    n_candidates = 0
    for label in np.unique(codes[rows]):
        members = rows[codes[rows] == label]
        tree = KDTree(Z[members])
        queries = np.flatnonzero(codes[centers] != label)
        # The block size assumes the worst case, in which all points of the class are within reach.
        for block in split_rows(len(queries), 40 * len(members)):
            block_queries = queries[block]
            hits_per_query = tree.query_radius(Z[centers[block_queries]], lengths[block_queries])
            counts = [len(hits) for hits in hits_per_query]
            n_candidates += sum(counts)
            if n_candidates > max_pairs:
                return None
            center = np.repeat(centers[block_queries], counts)
            impostor = members[np.concatenate(hits_per_query)]
            is_impostor = compute_listed_distances(Z, center, impostor) < reach[center]
            chunks.append(
                (center[is_impostor].astype(np.int32), impostor[is_impostor].astype(np.int32))
            )
    return make_pair_list(chunks, len(Z))
