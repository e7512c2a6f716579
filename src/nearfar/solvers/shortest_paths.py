r"""Lengths of the shortest paths between all nodes of a sparse graph.

The method is Gaussian elimination with :math:`(\min, +)` in place of :math:`(+, \times)`. Before a
node is removed, each pair of its remaining neighbors is joined by an edge with the length of the
path through the node. Then the nodes are visited in reverse order: the distance from a node to a
node that was removed later is the minimum, over the neighbors it had when it was removed, of the
edge to the neighbor plus the distance from there.

For graphs of low-dimensional data, a fill-reducing order adds few edges, and all operations are on
long rows. This is about five times as fast as Dijkstra's algorithm from each node, which is used
for all other graphs.

B. A. Carré, "An algebra for network routing problems", Journal of the Institute of Mathematics and
its Applications 7, 1971.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import splu

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import split_rows

# Minimum number of nodes for which elimination is used. On smaller graphs, Dijkstra's algorithm is
# fast enough.
_MIN_NODES = 300
# Maximum mean bandwidth of the adjacency matrix at which elimination is considered, as a fraction
# of the number of nodes.
_MAX_WIDTH = 0.1
# Maximum mean number of neighbors of a node when it is eliminated. With more neighbors, Dijkstra's
# algorithm is used.
_MAX_FILL = 150


def compute_all_shortest_paths(lengths: sparse.csr_array) -> tuple[Matrix, Indices]:
    """Return a matrix (n, n) of shortest path lengths, and the node of each row and column.

    The stored entries of ``lengths``, which must be symmetric, are edges, including those of length
    0. The result is symmetric up to rounding, and ``inf`` for nodes that are not connected. It is
    not reordered to the original node order, because that would need a second array of this size.

    Examples
    --------
    >>> lengths = sparse.csr_array([[0, 1.0, 0], [1.0, 0, 2.0], [0, 2.0, 0]])
    >>> compute_all_shortest_paths(lengths)
    (array([[0., 1., 3.],
           [1., 0., 2.],
           [3., 2., 0.]]), array([0, 1, 2]))
    """
    n = lengths.shape[0]
    plan = _plan_elimination(lengths) if n >= _MIN_NODES else None
    if plan is None:
        paths = np.empty((n, n))
        for block in split_rows(n, 16 * n, max_rows=512):
            sources = np.arange(block.start, block.stop)
            paths[block] = csgraph.dijkstra(lengths, directed=True, indices=sources)
        return paths, np.arange(n)
    order, starts, later = plan
    return _eliminate(lengths, order, starts, later), order


def _plan_elimination(lengths: sparse.csr_array) -> tuple[Indices, Indices, Indices] | None:
    """Return the order in which nodes are eliminated, and the neighbors of each node at that time.

    The lists of neighbors have the layout of a CSR matrix.

    Returns None if the lists would be too long.
    """
    n = lengths.shape[0]
    pattern = sparse.csr_array(
        (np.ones(lengths.nnz), lengths.indices, lengths.indptr), lengths.shape
    )
    narrow = csgraph.reverse_cuthill_mckee(pattern, symmetric_mode=True)
    position = np.empty(n, np.intp)
    position[narrow] = np.arange(n)
    rows = np.repeat(np.arange(n), np.diff(pattern.indptr))
    reach = np.arange(n)
    np.minimum.at(reach, position[rows], position[pattern.indices])
    if (np.arange(n) - reach).mean() > _MAX_WIDTH * n:
        return None
    # Factorize a diagonally dominant matrix with the sparsity pattern of the graph. The pattern of
    # the factors gives the lists of neighbors.
    degrees = np.asarray(pattern.sum(axis=1)).reshape(-1)
    factors = splu(
        sparse.csc_array(sparse.diags_array(degrees + 1.0) - pattern),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    if factors.L.nnz > _MAX_FILL * n or not np.array_equal(factors.perm_r, factors.perm_c):
        return None
    L = sparse.csc_array(factors.L)
    L.sort_indices()
    order = np.argsort(factors.perm_c)
    return order, L.indptr.astype(np.intp), L.indices.astype(np.intp)


def _eliminate(
    lengths: sparse.csr_array, order: Indices, starts: Indices, neighbors_later: Indices
) -> Matrix:
    n = len(order)
    position = np.empty(n, np.intp)
    position[order] = np.arange(n)
    rows = np.repeat(position, np.diff(lengths.indptr))
    paths = np.full((n, n), np.inf)
    paths[rows, position[lengths.indices]] = lengths.data
    # Each list begins with the node itself, which is skipped.
    lists = [neighbors_later[starts[k] + 1 : starts[k + 1]] for k in range(n)]
    edges = []
    for k, neighbors in enumerate(lists):
        edge = paths[neighbors, k]
        edges.append(edge)
        square = neighbors[:, None], neighbors
        paths[square] = np.minimum(paths[square], edge[:, None] + edge)
    paths[-1, -1] = 0.0
    for k in range(n - 2, -1, -1):
        lengths_via = paths[lists[k], k + 1 :]
        lengths_via += edges[k][:, None]
        shortest = lengths_via.min(axis=0, initial=np.inf)
        paths[k, k + 1 :] = shortest
        paths[k + 1 :, k] = shortest
        paths[k, k] = 0.0
    return paths
