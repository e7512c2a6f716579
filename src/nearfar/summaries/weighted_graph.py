"""Distinct rows, their neighbor graph and its edge weights, for graph-based methods."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.spectral_step import check_spread, check_squares
from nearfar.summaries.neighbor_graph import NeighborGraph, find_distinct_rows

# Lower limit of edge weights, so that the graph stays connected if exp(-d²/width) underflows.
_LEAST_WEIGHT = 1e-6


def check_distinct_rows(rows: Floats, n_components: int) -> tuple[Floats, NDArray[np.intp]]:
    """Return the distinct rows and the distinct row of each row, or raise if there are too few."""
    rows = np.ascontiguousarray(rows)  # results must not depend on the memory layout
    check_squares(rows)
    check_spread(rows)
    kept, where = find_distinct_rows(rows)
    if n_components >= len(kept):
        raise ValueError(
            f"n_components={n_components} must be less than the number of distinct rows of X, "
            f"{len(kept)} of n_samples={len(rows)}."
        )
    return rows[kept], where


def build_neighbor_graph(points: Floats, n_neighbors: int) -> NeighborGraph:
    """Return the neighbor graph of distinct rows, or raise if there are too few."""
    if n_neighbors >= len(points):
        raise ValueError(
            f"n_neighbors={n_neighbors} must be less than the number of distinct rows of X, "
            f"{len(points)}."
        )
    return NeighborGraph.from_points(points, n_neighbors=n_neighbors)


def compute_edge_scale(lengths: sparse.csr_array) -> float:
    """Return the median squared length of the edges, at least 1e-290."""
    return max(float(np.median(lengths.data**2)), 1e-290)


def compute_affinities(distances: sparse.csr_array, weights: str, width: float) -> sparse.csr_array:
    r"""Return edge weights from edge lengths: 1, or :math:`e^{-d^2/\tau}` but at least 1e-6."""
    W = distances.copy()
    if weights == "uniform":
        W.data = np.ones_like(W.data)
    else:
        W.data = np.maximum(np.exp(-(W.data**2) / width), _LEAST_WEIGHT)
    return W


def build_class_graphs(
    points: Floats, codes: Indices, n_neighbors: int
) -> tuple[NeighborGraph, NeighborGraph]:
    """Return the graphs of the nearest rows of the same class, and of all other classes.

    If a row has fewer than ``n_neighbors`` such rows, it is connected to all of them.

    >>> X = np.array([[0.0], [1.0], [5.0], [6.5]])
    >>> alike, different = build_class_graphs(X, np.array([0, 0, 1, 1]), 1)
    >>> alike.indices.tolist(), different.indices.tolist()
    ([1, 0, 3, 2], [2, 2, 1, 1])
    """
    alike: list[tuple[Indices, Indices, Matrix]] = []
    different: list[tuple[Indices, Indices, Matrix]] = []
    for code in range(int(codes.max()) + 1):
        mine, others = np.flatnonzero(codes == code), np.flatnonzero(codes != code)
        if len(mine) > 1:
            k = min(n_neighbors, len(mine) - 1)
            distances, found = kneighbors(points[mine], n_neighbors=k)
            alike.append((mine, mine[found], distances))
        if len(mine) and len(others):
            k = min(n_neighbors, len(others))
            distances, found = kneighbors(points[others], points[mine], n_neighbors=k)
            different.append((mine, others[found], distances))
    return _from_lists(alike, len(points)), _from_lists(different, len(points))


def _from_lists(lists: list[tuple[Indices, Indices, Matrix]], n: int) -> NeighborGraph:
    """Combine (rows, neighbors, distances) of several groups of rows into one graph."""
    rows = [np.repeat(mine, found.shape[1]) for mine, found, _ in lists]
    row = np.concatenate([np.zeros(0, np.intp), *rows])
    order = np.argsort(row, kind="stable")
    indices = np.concatenate([np.zeros(0, np.intp), *[found.ravel() for _, found, _ in lists]])
    lengths = np.concatenate([np.zeros(0), *[distances.ravel() for *_, distances in lists]])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    return NeighborGraph(indptr, indices[order], lengths[order])
