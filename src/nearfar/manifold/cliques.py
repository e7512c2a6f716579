"""Pairs of rows whose distances fix the lengths and angles around each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import split_rows
from nearfar.summaries.neighbor_graph import NeighborGraph

# After each clique is scaled to norm 1, singular values up to this limit are treated as zero.
_DEPENDENT = 1e-10


def list_clique_pairs(
    graph: NeighborGraph, *, angles: bool = True, n_neighbors: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Pair each row with its neighbors. By default, also pair its neighbors with each other.

    ``angles=False`` omits the pairs of neighbors, whose distances fix the angles at the row. Each
    pair appears once, with the smaller index first, and the pairs are sorted. ``n_neighbors`` is
    the number of neighbors of each row (by default the length of the shortest list). Further
    entries of a row were added to link the graph. Each of them gives one pair.

    Examples
    --------
    >>> graph = NeighborGraph([0, 2, 3, 4], [1, 2, 0, 0], [1.0, 1.0, 1.0, 1.0])
    >>> list_clique_pairs(graph).tolist()
    [[0, 1], [0, 2]]
    >>> graph = NeighborGraph.from_points([[0.0], [1.0], [2.5], [4.5]], n_neighbors=2)
    >>> list_clique_pairs(graph, angles=False).tolist(), list_clique_pairs(graph).tolist()
    ([[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]], [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]])
    """
    n = graph.n_samples
    counts = np.diff(graph.indptr)
    rows = np.repeat(np.arange(n), counts)
    codes = [_encode_pairs(rows, graph.indices, n)]
    lengths = np.full(n, counts.min()) if n_neighbors is None else n_neighbors
    for k in np.unique(lengths[lengths > 1]) if angles else ():
        starts = graph.indptr[:-1][lengths == k]
        first, second = np.triu_indices(k, 1)
        for block in split_rows(len(starts), 16 * len(first)):
            neighbors = graph.indices[starts[block, None] + np.arange(k)]
            codes.append(
                _encode_pairs(neighbors[:, first].ravel(), neighbors[:, second].ravel(), n)
            )
    return np.stack(np.divmod(np.unique(np.concatenate(codes)), n), axis=1)


def find_clique_dependencies(
    points: NDArray[Any], graph: NeighborGraph, n_neighbors: NDArray[np.intp]
) -> sparse.csr_array:
    """Return the linear dependencies among the points of each clique, as columns of weights.

    A clique is a row and its neighbors. The weights of a column sum to 0, and so do the points of
    the clique multiplied by these weights. The columns are orthonormal within each clique. If a
    row has fewer neighbors than dimensions and these are in general position, its clique has none.

    Examples
    --------
    Four points on a line, each with two neighbors, have one column per clique of three:

    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> graph = NeighborGraph.from_points(X, n_neighbors=2)
    >>> N = find_clique_dependencies(X, graph, np.full(4, 2))
    >>> N.shape, bool(abs(N.T @ np.column_stack([X, np.ones(4)])).max() < 1e-12)
    ((4, 4), True)
    """
    n = graph.n_samples
    blocks = [sparse.csr_array((n, 0))]
    for k in np.unique(n_neighbors[n_neighbors > 1]):
        rows = np.flatnonzero(n_neighbors == k)
        for block in split_rows(len(rows), 16 * (k + 1) * (points.shape[1] + k)):
            neighbors = graph.indices[graph.indptr[rows[block]][:, None] + np.arange(k)]
            cliques = np.column_stack([rows[block], neighbors])
            P = points[cliques].astype(np.float64)
            P -= P.mean(axis=1, keepdims=True)
            size = np.linalg.norm(P, axis=(1, 2), keepdims=True)
            size[size == 0] = 1.0
            # Because of the added column of ones, each vector of weights sums to zero.
            P = np.concatenate([P / size, np.ones((len(P), k + 1, 1))], axis=2)
            U, s, _ = np.linalg.svd(P, full_matrices=True)
            ranks = (s > _DEPENDENT).sum(axis=1)
            clique_indices, vector_indices = np.nonzero(np.arange(k + 1) >= ranks[:, None])
            columns = np.repeat(np.arange(len(clique_indices)), k + 1)
            entries = (
                U[clique_indices, :, vector_indices].ravel(),
                (cliques[clique_indices].ravel(), columns),
            )
            blocks.append(sparse.csr_array(entries, shape=(n, len(clique_indices))))
    return sparse.hstack(blocks, format="csr")


def compute_squared_lengths(X: NDArray[Any], pairs: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the squared distance between the two rows of each pair, computed in float64."""
    lengths = np.empty(len(pairs))
    for block in split_rows(len(pairs), 24 * X.shape[1]):
        first, second = pairs[block].T
        delta = np.subtract(X[first], X[second], dtype=np.float64)
        lengths[block] = np.einsum("ij,ij->i", delta, delta)
    return lengths


def _encode_pairs(first: NDArray[np.intp], second: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    return np.unique(np.minimum(first, second) * n + np.maximum(first, second))
