"""Removal of likely shortcuts: edges whose ends random walks rarely connect."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from nearfar.arrays import Vector
from nearfar.blocks import split_rows
from nearfar.summaries.neighbor_graph import NeighborGraph


def prune_graph(graph: NeighborGraph, *, n_steps: int = 7, scale: float = 1.0) -> NeighborGraph:
    r"""Remove likely shortcuts, that is, edges between rows that random walks rarely connect.

    An edge is removed, from both lists, if the logarithm of its score is a low outlier, that is,
    below :math:`Q_1 - 1.5\,(Q_3 - Q_1)` for the quartiles :math:`Q_1` and :math:`Q_3` of all edges.
    :func:`compute_hitting_scores` defines the score. Edges whose removal would split the graph into
    more components are kept. See Weinberger, K. Q., "Metric Learning with Convex Optimization",
    2007, section 3.1.12.

    Examples
    --------
    Walks within two blocks of points do not need the bridge between the blocks:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> blocks = np.vstack([rng.normal(0, 1, (30, 2)), rng.normal(0, 1, (30, 2)) + [7, 0]])
    >>> bridge = [[2.5, 0], [4.5, 0]]
    >>> graph = NeighborGraph.from_points(np.vstack([blocks, bridge]), n_neighbors=6)
    >>> len(prune_graph(graph).indices) < len(graph.indices)
    True
    """
    lengths = graph.symmetrized()
    upper = sparse.triu(lengths, format="coo")
    ends = np.stack([upper.row, upper.col], axis=1)
    scores = np.log(np.maximum(compute_hitting_scores(graph, ends, n_steps, scale), 1e-300))
    lower_quartile, upper_quartile = np.quantile(scores, [0.25, 0.75])
    is_cut = scores < lower_quartile - 1.5 * (upper_quartile - lower_quartile)
    is_cut[_find_connecting_edges(ends, is_cut, scores, graph.n_samples)] = False
    n = graph.n_samples
    removed_codes = ends[is_cut, 0] * n + ends[is_cut, 1]
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    codes = np.minimum(rows, graph.indices) * n + np.maximum(rows, graph.indices)
    is_kept = ~np.isin(codes, removed_codes)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[is_kept], minlength=n))])
    return NeighborGraph(
        indptr, graph.indices[is_kept], graph.distances[is_kept], is_exact=graph.is_exact
    )


def compute_hitting_scores(
    graph: NeighborGraph, ends: NDArray[np.integer], n_steps: int = 7, scale: float = 1.0
) -> Vector:
    r"""Return the probability that a random walk from one end of an edge reaches the other end.

    There is one value per edge. The walk has ``n_steps`` steps, and the probabilities of both
    directions are added. Steps follow the edges of the symmetrized graph with probabilities
    :math:`p_{ij} \propto e^{-d_{ij}/\sigma}`, where rows sum to one and σ is ``scale`` times the
    median length. The probability of a first visit of j after s steps satisfies :math:`F_1 = P, \;
    F_{s+1} = P F_s^0`, where :math:`F_s^0` is :math:`F_s` with a zero diagonal. Columns are
    independent, so targets are processed in blocks.
    """
    n = graph.n_samples
    P = graph.symmetrized()
    sigma = max(scale * float(np.median(P.data)), np.finfo(float).tiny)
    # The added constant prevents rows of zeros, which could occur if all edges of a row are long.
    P.data = np.exp(-P.data / sigma) + 1e-300
    sums = np.asarray(P.sum(axis=1)).ravel()
    P = sparse.csr_array(sparse.diags_array(1 / np.maximum(sums, 1e-300)) @ P)
    scores = np.zeros(len(ends))
    directions = [(ends[:, 0], ends[:, 1]), (ends[:, 1], ends[:, 0])]
    for block in split_rows(n, 24 * n):
        targets = np.arange(n)[block]
        columns = np.arange(len(targets))
        F = P[:, block].toarray()
        hits = F.copy()
        for _ in range(n_steps - 1):
            F[targets, columns] = 0.0
            F = P @ F
            hits += F
        for start, stop in directions:
            in_block = (stop >= block.start) & (stop < block.stop)
            scores[in_block] += hits[start[in_block], stop[in_block] - block.start]
    return scores


def _find_connecting_edges(
    ends: NDArray[np.integer], is_cut: NDArray[np.bool_], scores: Vector, n: int
) -> NDArray[np.intp]:
    """Return the removed edges that must be restored, so that no component is split.

    Edges with high scores are preferred.
    """
    kept_edges = ends[~is_cut]
    graph = sparse.coo_array((np.ones(len(kept_edges)), kept_edges.T), shape=(n, n)).tocsr()
    _, labels = csgraph.connected_components(graph, directed=False)
    connecting_edges = []
    for edge in np.flatnonzero(is_cut)[np.argsort(-scores[is_cut], kind="stable")]:
        first_label, second_label = labels[ends[edge]]
        if first_label != second_label:
            labels[labels == second_label] = first_label
            connecting_edges.append(edge)
    return np.array(connecting_edges, np.intp)
