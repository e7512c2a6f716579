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
_MIN_WEIGHT = 1e-6


def check_distinct_rows(rows: Floats, n_components: int) -> tuple[Floats, NDArray[np.intp]]:
    """Return the distinct rows, and an array that maps each row to its distinct row.

    Raises ``ValueError`` if there are at most ``n_components`` distinct rows.
    """
    # Copy to C order, so that results do not depend on the memory layout.
    rows = np.ascontiguousarray(rows)
    check_squares(rows)
    check_spread(rows)
    first_rows, inverse = find_distinct_rows(rows)
    if n_components >= len(first_rows):
        raise ValueError(
            f"n_components={n_components} must be less than the number of distinct rows of X, "
            f"which is {len(first_rows)} (n_samples={len(rows)})."
        )
    return rows[first_rows], inverse


def build_neighbor_graph(points: Floats, n_neighbors: int) -> NeighborGraph:
    """Return the neighbor graph of distinct rows. Raise an error if there are too few rows."""
    if n_neighbors >= len(points):
        raise ValueError(
            f"n_neighbors={n_neighbors} must be less than the number of distinct rows of X, "
            f"which is {len(points)}."
        )
    return NeighborGraph.from_points(points, n_neighbors=n_neighbors)


def compute_edge_scale(lengths: sparse.csr_array) -> float:
    """Return the median of the squared edge lengths, or 1e-290 if the median is smaller."""
    return max(float(np.median(lengths.data**2)), 1e-290)


def compute_affinities(distances: sparse.csr_array, weights: str, width: float) -> sparse.csr_array:
    r"""Compute edge weights from edge lengths d.

    The weights are 1 if ``weights`` is "uniform". Otherwise they are :math:`e^{-d^2/\tau}` with
    the width :math:`\tau`, but at least 1e-6.
    """
    W = distances.copy()
    if weights == "uniform":
        W.data = np.ones_like(W.data)
    else:
        W.data = np.maximum(np.exp(-(W.data**2) / width), _MIN_WEIGHT)
    return W


def build_class_graphs(
    points: Floats, codes: Indices, n_neighbors: int
) -> tuple[NeighborGraph, NeighborGraph]:
    """Return two neighbor graphs: one within the classes and one between the classes.

    Each row is connected to its ``n_neighbors`` nearest rows of the same class, or of other
    classes. If there are fewer rows, it is connected to all of them.

    >>> X = np.array([[0.0], [1.0], [5.0], [6.5]])
    >>> similar, dissimilar = build_class_graphs(X, np.array([0, 0, 1, 1]), 1)
    >>> similar.indices.tolist(), dissimilar.indices.tolist()
    ([1, 0, 3, 2], [2, 2, 1, 1])
    """
    similar: list[tuple[Indices, Indices, Matrix]] = []
    dissimilar: list[tuple[Indices, Indices, Matrix]] = []
    for code in range(int(codes.max()) + 1):
        class_rows, other_rows = np.flatnonzero(codes == code), np.flatnonzero(codes != code)
        if len(class_rows) > 1:
            k = min(n_neighbors, len(class_rows) - 1)
            distances, neighbors = kneighbors(points[class_rows], n_neighbors=k)
            similar.append((class_rows, class_rows[neighbors], distances))
        if len(class_rows) and len(other_rows):
            k = min(n_neighbors, len(other_rows))
            distances, neighbors = kneighbors(points[other_rows], points[class_rows], n_neighbors=k)
            dissimilar.append((class_rows, other_rows[neighbors], distances))
    return _combine_lists(similar, len(points)), _combine_lists(dissimilar, len(points))


def _combine_lists(lists: list[tuple[Indices, Indices, Matrix]], n: int) -> NeighborGraph:
    """Combine (rows, neighbors, distances) of several groups of rows into one graph."""
    rows = [np.repeat(group_rows, neighbors.shape[1]) for group_rows, neighbors, _ in lists]
    row = np.concatenate([np.zeros(0, np.intp), *rows])
    order = np.argsort(row, kind="stable")
    indices = np.concatenate(
        [np.zeros(0, np.intp), *[neighbors.ravel() for _, neighbors, _ in lists]]
    )
    lengths = np.concatenate([np.zeros(0), *[distances.ravel() for *_, distances in lists]])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    return NeighborGraph(indptr, indices[order], lengths[order])
