"""Distinct rows, their neighbour graph, and weights of its edges: what methods of graphs share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Floats
from nearfar.solvers.spectral_step import check_spread, check_squares
from nearfar.summaries.neighbor_graph import NeighborGraph, distinct_rows

# No weight of an edge is less: the graph would fall apart where exp(-d²/width) underflows.
_LEAST_WEIGHT = 1e-6


def distinct(rows: Floats, n_components: int) -> tuple[Floats, NDArray[np.intp]]:
    """Rows without repetition, and which of them each row is; raises if they are too few."""
    rows = np.ascontiguousarray(rows)  # equal rows in another order of memory give equal bits
    check_squares(rows)
    check_spread(rows)
    kept, where = distinct_rows(rows)
    if n_components >= len(kept):
        raise ValueError(
            f"n_components={n_components} must be less than the number of distinct rows of X, "
            f"{len(kept)} of n_samples={len(rows)}."
        )
    return rows[kept], where


def neighbor_graph(points: Floats, n_neighbors: int) -> NeighborGraph:
    """The graph of distinct rows; raises if they are too few."""
    if n_neighbors >= len(points):
        raise ValueError(
            f"n_neighbors={n_neighbors} must be less than the number of distinct rows of X, "
            f"{len(points)}."
        )
    return NeighborGraph.from_points(points, n_neighbors=n_neighbors)


def edge_scale(lengths: sparse.csr_array) -> float:
    """The median squared length of an edge."""
    return max(float(np.median(lengths.data**2)), 1e-290)


def affinities(distances: sparse.csr_array, weights: str, width: float) -> sparse.csr_array:
    r"""Weights of edges from their lengths: 1, or :math:`e^{-d^2/\tau}` but at least 1e-6."""
    W = distances.copy()
    if weights == "uniform":
        W.data = np.ones_like(W.data)
    else:
        W.data = np.maximum(np.exp(-(W.data**2) / width), _LEAST_WEIGHT)
    return W
