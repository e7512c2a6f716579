"""Isomap: classical scaling of distances along the neighbour graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.blocks import row_blocks
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS, _GraphEmbedding
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import fix_signs
from nearfar.solvers.shortest_paths import all_shortest_paths
from nearfar.solvers.spectral_step import (
    distance_axes,
    double_centered,
    first_solution,
    leading_spectrum,
    warn_of_empty,
)
from nearfar.state import State, floats, object_of
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph

# The residual variance is that of the distances from so many rows to all.
_JUDGED = 200


class _GeodesicEmbedding(_GraphEmbedding):
    """Isomap, with or without landmarks: new points by the same formula."""

    state = State({"_graph": object_of(NeighborGraph, n="n"), "_shift": floats("q")})

    n_neighbors: int
    eigenvalues_: Matrix
    negative_share_: float
    residual_variance_: float
    _graph: NeighborGraph
    _axes: Matrix
    _shift: Matrix
    # Up to this share of the landmarks, paths from queries are the quicker.
    _few: ClassVar[float] = 1.0

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points by Nyström's formula for squared distances along the graph,

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, x_i), \qquad
            \tilde K(x, x_i) = -\tfrac12 \left( d^2(x, x_i) - \overline{d^2(\cdot, x_i)} -
            \overline{d^2(x, \cdot)} + \overline{d^2} \right) ,

        with :math:`d(x, x_i) = \min_{j \in N(x)} \|x - x_j\| + d(x_j, x_i)`, paths leading through
        training rows only. Training rows get their own coordinates. With landmarks i runs over
        these.

        The distances along the graph are not kept, but found again: for a few points in the time
        of the shortest paths from so many rows, for many in that of the fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the dtype of X.
        """
        return self._transform(X)

    def _landmark_rows(self) -> Indices:
        return np.arange(len(self._points))

    def _place(self, queries: Floats) -> Matrix:
        distances, indices = kneighbors(self._points, queries, n_neighbors=self._listed)
        landmarks = self._landmark_rows()
        if len(queries) < self._few * len(landmarks):
            products = self._from_queries(distances, indices, landmarks)
        else:
            products = self._from_landmarks(distances, indices, landmarks)
        return -0.5 * products - self._shift

    def _from_queries(self, distances: Matrix, indices: Indices, landmarks: Indices) -> Matrix:
        """Squared distances times the axes, by the shortest paths from each query."""
        products = np.empty((len(indices), self._axes.shape[1]))
        for block, paths in query_paths(self._graph, distances, indices):
            products[block] = paths[:, landmarks] ** 2 @ self._axes
        return products

    def _from_landmarks(self, distances: Matrix, indices: Indices, landmarks: Indices) -> Matrix:
        """The same by the shortest paths from each landmark."""
        m = len(indices)
        lengths = self._graph.symmetrized()
        products = np.zeros((m, self._axes.shape[1]))
        for block in row_blocks(len(landmarks), 8 * (3 * m + 2 * len(self._points))):
            paths = csgraph.dijkstra(lengths, directed=True, indices=landmarks[block])
            products += _through_neighbors(paths.T, distances, indices) ** 2 @ self._axes[block]
        return products


class Isomap(_GeodesicEmbedding):
    r"""Isomap: coordinates whose distances are those along the surface.

    .. math:: \min_Y \|Y Y^T - B\|_F^2, \qquad B = -\tfrac12 H D_G^{(2)} H ,

    where :math:`D_G^{(2)}` holds the squared lengths of the shortest paths in the neighbour graph,
    :math:`H = I - \frac1n 1 1^T`; solved by :math:`Y = V \Lambda^{1/2}` with the largest
    eigenvalues of B (classical scaling).

    Use it to unroll a surface that can be laid flat and whose rows fill a convex region there:
    lengths are then right, and the number of large eigenvalues is its dimension. It fails on
    holes, which it stretches, and on short cuts: one wrong edge spoils many paths, so prefer few
    neighbours and look at ``residual_variance_``. Distances along a graph are in general not those
    of any points in space: ``negative_share_`` says how far from it they are (a ring has more than
    two coordinates).

    Cost: O(n² p) for the neighbours, O(n² (k + log n)) at most for the paths (on surfaces several
    times less), O(n²) for each of some twenty products that find the eigenvectors. One array of
    n×n numbers is needed, and not kept; :class:`LandmarkIsomap` does without.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row; rows are joined if either is among the nearest of the other.
    on_disconnected : {"link", "raise"}, default="link"
        What to do if the graph is not connected: add the shortest edges that connect it, with a
        warning, or raise.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training rows. Identical rows count as one.
    eigenvalues_ : ndarray of shape (n_components,)
        Of B, the largest first.
    negative_share_ : float
        The share of the negative eigenvalues of B in the sum of the absolute values of all: 0 for
        distances between points in space. Estimated beyond 1000 rows.
    residual_variance_ : float
        1 - r², r being the correlation of distances along the graph with those in the embedding,
        from 200 rows to all.

    See Also
    --------
    LandmarkIsomap, MVU, ClassicalMDS

    References
    ----------
    .. [1] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section
       4.3.2; new points in section 4.4.
    .. [2] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import Isomap
    >>> X, t = make_swiss_roll(800, random_state=0)
    >>> isomap = Isomap(n_neighbors=8).fit(X)
    >>> bool(isomap.residual_variance_ < 0.01)
    True
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    state = State({"_axes": floats("n", "q")})
    settings = ({"n_neighbors": 10},)
    parameters: ClassVar = {**GRAPH_PARAMETERS}
    _few = 0.2  # from there on all paths are found at once

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        on_disconnected: Disconnected = "link",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.on_disconnected = on_disconnected

    def _from_landmarks(self, distances: Matrix, indices: Indices, landmarks: Indices) -> Matrix:
        """By all shortest paths."""
        paths, order = all_shortest_paths(self._graph.symmetrized())
        place = np.argsort(order)[indices]
        products = np.empty((len(indices), self._axes.shape[1]))
        for block in row_blocks(len(indices), 24 * len(paths), at_most=256):
            shortest = _through_neighbors(paths, distances[block], place[block])
            products[block] = shortest**2 @ self._axes[order]
        return products

    def _embed(self, points: Floats) -> Matrix:
        n = len(points)
        self._graph = self._connected(points, self.n_neighbors)
        paths, order = all_shortest_paths(self._graph.symmetrized())
        judged = np.linspace(0, n - 1, min(n, _JUDGED)).astype(np.intp)
        some = paths[judged]
        paths *= paths  # one array of this size, from here on another thing each time
        means = np.empty(n)
        means[order] = paths.mean(axis=0)
        B = double_centered(paths, in_place=True)
        values, ordered, self.negative_share_ = leading_spectrum(B, self.n_components)
        vectors = np.empty_like(ordered)
        vectors[order] = ordered
        vectors = fix_signs(vectors.T).T
        warn_of_empty("Isomap", values)
        self.eigenvalues_ = values
        self._axes = distance_axes(values, vectors)
        # Vectors sum to zero: of the means only those of the columns count.
        self._shift = -0.5 * means @ self._axes
        places = first_solution(values, vectors)
        self.residual_variance_ = residual_variance(some, places[order], judged)
        return places


def squared_geodesics(graph: NeighborGraph, sources: Indices) -> Matrix:
    """Squared lengths (n_sources, n) of shortest paths, in one array of that size."""
    n = graph.n_samples
    lengths = graph.symmetrized()
    squared = np.empty((len(sources), n))
    for block in row_blocks(len(sources), 16 * n, at_most=512):
        squared[block] = csgraph.dijkstra(lengths, directed=True, indices=sources[block])
    squared *= squared
    return squared


def query_paths(
    graph: NeighborGraph, distances: Matrix, indices: Indices
) -> Iterator[tuple[slice, Matrix]]:
    """Lengths of the shortest paths from queries, given their neighbours, to all rows; in blocks.

    Paths lead through rows only, not through other queries.
    """
    n, k = graph.n_samples, indices.shape[1]
    lengths = graph.symmetrized()
    for block in row_blocks(len(indices), 24 * n):
        m = block.stop - block.start
        edges = sparse.csr_array(
            (distances[block].ravel(), indices[block].ravel(), k * np.arange(m + 1)), (m, n)
        )
        # Edges lead from queries to rows, and none back.
        whole = _stacked(lengths, edges)
        paths = csgraph.dijkstra(whole, directed=True, indices=n + np.arange(m))
        yield block, np.asarray(paths[:, :n])


def _through_neighbors(paths: Matrix, distances: Matrix, neighbors: Indices) -> Matrix:
    """From each query by its nearest way, over one of its neighbours, along the rows of paths."""
    shortest = np.full((len(neighbors), paths.shape[1]), np.inf)
    for j in range(neighbors.shape[1]):
        np.minimum(shortest, paths[neighbors[:, j]] + distances[:, j, None], out=shortest)
    return shortest


def residual_variance(paths: Matrix, places: Matrix, rows: Indices) -> float:
    """1 - r² of the lengths of paths from some rows to all, and the distances of their places."""
    distances = np.sqrt(((places[rows, None] - places) ** 2).sum(axis=2))
    if not distances.any():
        return 1.0
    r = np.corrcoef(paths.ravel(), distances.ravel())[0, 1]
    return max(0.0, 1 - float(r) ** 2)


def _stacked(lengths: sparse.csr_array, edges: sparse.csr_array) -> sparse.csr_array:
    """A graph of rows and queries; built from its lists, as other ways would drop zeros."""
    n, m = lengths.shape[0], edges.shape[0]
    return sparse.csr_array(
        (
            np.concatenate([lengths.data, edges.data]),
            np.concatenate([lengths.indices, edges.indices]).astype(lengths.indices.dtype),
            np.concatenate([lengths.indptr, lengths.nnz + edges.indptr[1:]]).astype(
                lengths.indptr.dtype
            ),
        ),
        shape=(n + m, n + m),
    )
