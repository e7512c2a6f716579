"""Approximate neighbours: hnswlib proposes, exact distances decide among what it proposes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Indices, Matrix
from nearfar.extras import require
from nearfar.search.candidates import (
    center_of,
    centered,
    check_n_neighbors,
    ranked,
    without_self,
)


def approximate_kneighbors(
    X: NDArray[Any], n_neighbors: int, random_state: int | np.random.RandomState | None
) -> tuple[Matrix, Indices]:
    """As :func:`~nearfar.search.exact_search.kneighbors` without queries, of what hnswlib finds."""
    hnswlib = require("hnswlib", "ann")
    n, p = X.shape
    check_n_neighbors(n_neighbors, n, without_self=True)
    X = np.ascontiguousarray(X)
    # hnswlib knows float32 only: centre the data, and bring them to a scale whose squares fit.
    Z = centered(X, center_of(X), X.dtype)
    Z = (Z / max(np.abs(Z).max(), np.finfo(X.dtype).tiny)).astype(np.float32)
    n_candidates = min(n_neighbors + 1 + 8, n)
    index = hnswlib.Index(space="l2", dim=p)
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    index.init_index(n, M=16, ef_construction=200, random_seed=int(seed))
    # Several threads would insert in an order of their own.
    index.add_items(Z, num_threads=1)
    index.set_ef(max(100, 2 * n_candidates))
    try:
        candidates, _ = index.knn_query(Z, k=n_candidates, num_threads=1)
    except RuntimeError as error:
        raise ValueError(
            f"The approximate search did not reach n_neighbors={n_neighbors} neighbours of every "
            f"row ({error}); identical rows are a likely cause. Set approximate=False."
        ) from error
    distances, indices = ranked(X, X, candidates.astype(np.intp))
    return without_self(distances[:, : n_neighbors + 1], indices[:, : n_neighbors + 1])
