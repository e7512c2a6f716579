"""Removal of edges that random walks rarely cross, which are likely shortcuts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from nearfar.arrays import Vector
from nearfar.blocks import split_rows
from nearfar.summaries.neighbor_graph import NeighborGraph


def pruned_graph(graph: NeighborGraph, *, n_steps: int = 7, scale: float = 1.0) -> NeighborGraph:
    r"""Return the graph without the edges that a random walk along the others rarely crosses.

    An edge is removed, from both lists, if the logarithm of its :func:`hitting_scores` is a low
    outlier, below :math:`Q_1 - 1.5\,(Q_3 - Q_1)` of the quartiles of all edges. Edges whose removal
    would split the graph into more components are kept. See Weinberger, K. Q., "Metric Learning
    with Convex Optimization", 2007, section 3.1.12.

    Examples
    --------
    Walks within two blocks of points do not need the bridge between the blocks:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> blocks = np.vstack([rng.normal(0, 1, (30, 2)), rng.normal(0, 1, (30, 2)) + [7, 0]])
    >>> bridge = [[2.5, 0], [4.5, 0]]
    >>> graph = NeighborGraph.from_points(np.vstack([blocks, bridge]), n_neighbors=6)
    >>> len(pruned_graph(graph).indices) < len(graph.indices)
    True
    """
    lengths = graph.symmetrized()
    upper = sparse.triu(lengths, format="coo")
    ends = np.stack([upper.row, upper.col], axis=1)
    scores = np.log(np.maximum(hitting_scores(graph, ends, n_steps, scale), 1e-300))
    low, high = np.quantile(scores, [0.25, 0.75])
    cut = scores < low - 1.5 * (high - low)
    cut[_needed(ends, cut, scores, graph.n_samples)] = False
    n = graph.n_samples
    gone = ends[cut, 0] * n + ends[cut, 1]
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    codes = np.minimum(rows, graph.indices) * n + np.maximum(rows, graph.indices)
    kept = ~np.isin(codes, gone)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=n))])
    return NeighborGraph(
        indptr, graph.indices[kept], graph.distances[kept], is_exact=graph.is_exact
    )


def hitting_scores(
    graph: NeighborGraph, ends: NDArray[np.integer], n_steps: int = 7, scale: float = 1.0
) -> Vector:
    r"""Return the probability that a walk from one end of each edge hits the other end.

    The walk has ``n_steps`` steps, and the probabilities of both directions are added. Steps follow
    the edges of the symmetrized graph with probabilities :math:`p_{ij} \propto e^{-d_{ij}/\sigma}`,
    where rows sum to one and σ is ``scale`` times the median length. The probability of a first
    visit of j after s steps satisfies :math:`F_1 = P, \; F_{s+1} = P F_s^0`, where :math:`F_s^0` is
    :math:`F_s` with a zero diagonal. Columns are independent, so targets are processed in blocks.
    """
    n = graph.n_samples
    P = graph.symmetrized()
    sigma = max(scale * float(np.median(P.data)), np.finfo(float).tiny)
    P.data = np.exp(-P.data / sigma) + 1e-300  # Keeps steps possible from a row of long edges.
    sums = np.asarray(P.sum(axis=1)).ravel()
    P = sparse.csr_array(sparse.diags_array(1 / np.maximum(sums, 1e-300)) @ P)
    scores = np.zeros(len(ends))
    both = [(ends[:, 0], ends[:, 1]), (ends[:, 1], ends[:, 0])]
    for block in split_rows(n, 24 * n):
        targets = np.arange(n)[block]
        own = np.arange(len(targets))
        F = P[:, block].toarray()
        total = F.copy()
        for _ in range(n_steps - 1):
            F[targets, own] = 0.0
            F = P @ F
            total += F
        for start, stop in both:
            here = (stop >= block.start) & (stop < block.stop)
            scores[here] += total[start[here], stop[here] - block.start]
    return scores


def _needed(
    ends: NDArray[np.integer], cut: NDArray[np.bool_], scores: Vector, n: int
) -> NDArray[np.intp]:
    """Return the cut edges needed to keep the components connected, in order of score."""
    kept = ends[~cut]
    graph = sparse.coo_array((np.ones(len(kept)), kept.T), shape=(n, n)).tocsr()
    _, labels = csgraph.connected_components(graph, directed=False)
    needed = []
    for edge in np.flatnonzero(cut)[np.argsort(-scores[cut], kind="stable")]:
        here, there = labels[ends[edge]]
        if here != there:
            labels[labels == there] = here
            needed.append(edge)
    return np.array(needed, np.intp)
