"""Isomap: classical scaling of distances along the neighbor graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS, _GraphEmbedding
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import fix_signs
from nearfar.solvers.shortest_paths import compute_all_shortest_paths
from nearfar.solvers.spectral_step import (
    distance_axes,
    double_center,
    first_solution,
    leading_spectrum,
    warn_about_zero_coordinates,
)
from nearfar.state import State, floats, object_of
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph

# Maximum number of sampled rows. The residual variance is computed from their distances to all
# rows.
_N_SAMPLED_ROWS = 200


class _GeodesicEmbedding(_GraphEmbedding):
    """Base class of the Isomap variants, which map new points by the same formula."""

    state = State({"_graph": object_of(NeighborGraph, n="n"), "_shift": floats("q")})

    n_neighbors: int
    eigenvalues_: Matrix
    negative_share_: float
    residual_variance_: float
    _graph: NeighborGraph
    _axes: Matrix
    _shift: Matrix
    # Paths are searched from the queries if the number of queries is less than this fraction of the
    # number of landmarks. With more queries, paths are searched from the landmarks.
    _max_query_fraction: ClassVar[float] = 1.0

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points with Nyström's formula for squared distances along the graph.

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, x_i), \qquad
            \tilde K(x, x_i) = -\tfrac12 \left( d^2(x, x_i) - \overline{d^2(\cdot, x_i)} -
            \overline{d^2(x, \cdot)} + \overline{d^2} \right) ,

        Here :math:`d(x, x_i) = \min_{j \in N(x)} \|x - x_j\| + d(x_j, x_i)`, with paths through
        training rows only, and i runs over the training rows (over the landmarks in
        :class:`LandmarkIsomap`). A training row gets its own coordinates.

        The distances along the graph are not stored but computed again. A few points cost one
        shortest-path search each. Many points cost as much as the fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points to map.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Coordinates, in the dtype of X.
        """
        return self._transform(X)

    def _get_landmarks(self) -> Indices:
        return np.arange(len(self._points))

    def _place(self, queries: Floats) -> Matrix:
        distances, indices = kneighbors(self._points, queries, n_neighbors=self._n_neighbors)
        landmarks = self._get_landmarks()
        if len(queries) < self._max_query_fraction * len(landmarks):
            products = self._multiply_from_queries(distances, indices, landmarks)
        else:
            products = self._multiply_from_landmarks(distances, indices, landmarks)
        return -0.5 * products - self._shift

    def _multiply_from_queries(
        self, distances: Matrix, indices: Indices, landmarks: Indices
    ) -> Matrix:
        """Multiply squared path lengths by the axes. Run one shortest-path search per query."""
        products = np.empty((len(indices), self._axes.shape[1]))
        for block, paths in iterate_query_paths(self._graph, distances, indices):
            products[block] = paths[:, landmarks] ** 2 @ self._axes
        return products

    def _multiply_from_landmarks(
        self, distances: Matrix, indices: Indices, landmarks: Indices
    ) -> Matrix:
        """Multiply squared path lengths by the axes. Run one shortest-path search per landmark."""
        m = len(indices)
        lengths = self._graph.symmetrized()
        products = np.zeros((m, self._axes.shape[1]))
        for block in split_rows(len(landmarks), 8 * (3 * m + 2 * len(self._points))):
            paths = csgraph.dijkstra(lengths, directed=True, indices=landmarks[block])
            products += (
                _find_paths_through_neighbors(paths.T, distances, indices) ** 2 @ self._axes[block]
            )
        return products


class Isomap(_GeodesicEmbedding):
    r"""Isomap embedding, which preserves distances along the neighbor graph.

    .. math:: \min_Y \|Y Y^T - B\|_F^2, \qquad B = -\tfrac12 H D_G^{(2)} H ,

    where :math:`D_G^{(2)}` holds the squared lengths of the shortest paths in the neighbor graph
    and :math:`H = I - \frac1n 1 1^T`. The solution is :math:`Y = V \Lambda^{1/2}` with the largest
    eigenvalues of B (classical scaling).

    Use Isomap to unroll a surface that can be flattened and whose rows then fill a convex region.
    Lengths are then correct, and the number of large eigenvalues is the dimension of the surface.
    Isomap stretches holes. It also fails on shortcuts: one wrong edge changes many paths, so
    prefer few neighbors and check ``residual_variance_``. In general, no set of points in a
    Euclidean space has exactly the distances along a graph (for a ring, more than two eigenvalues
    are large). ``negative_share_`` measures this deviation.

    Cost: O(n² p) for the neighbors, at most O(n² (k + log n)) for the paths (several times less on
    surfaces), and O(n²) for each of about twenty matrix products that find the eigenvectors. The
    fit needs one n×n array and does not keep it. :class:`LandmarkIsomap` does not need one.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row. An edge joins two rows if either is a neighbor of the other.
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    eigenvalues_ : ndarray of shape (n_components,)
        Largest eigenvalues of B, in descending order.
    negative_share_ : float
        Sum of the absolute values of the negative eigenvalues of B, divided by the sum of the
        absolute values of all eigenvalues. The value is 0 for Euclidean distances. It is estimated
        if there are more than 1000 rows.
    residual_variance_ : float
        Residual variance 1 - r², where r is the correlation between distances along the graph and
        distances in the embedding. It is computed from the distances of up to 200 rows to all rows.

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
    # If the number of queries is at least this fraction of the number of rows, it is faster to
    # compute all shortest paths in one call.
    _max_query_fraction = 0.2

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

    def _multiply_from_landmarks(
        self, distances: Matrix, indices: Indices, landmarks: Indices
    ) -> Matrix:
        """Multiply squared path lengths by the axes. Compute all shortest paths in one call."""
        paths, order = compute_all_shortest_paths(self._graph.symmetrized())
        ordered_indices = np.argsort(order)[indices]
        products = np.empty((len(indices), self._axes.shape[1]))
        for block in split_rows(len(indices), 24 * len(paths), max_rows=256):
            shortest = _find_paths_through_neighbors(
                paths, distances[block], ordered_indices[block]
            )
            products[block] = shortest**2 @ self._axes[order]
        return products

    def _embed(self, points: Floats) -> Matrix:
        n = len(points)
        self._graph = self._build_connected_graph(points, self.n_neighbors)
        paths, order = compute_all_shortest_paths(self._graph.symmetrized())
        sampled = np.linspace(0, n - 1, min(n, _N_SAMPLED_ROWS)).astype(np.intp)
        sampled_paths = paths[sampled]
        paths *= paths  # Square in place, because a second array may not fit into memory.
        means = np.empty(n)
        means[order] = paths.mean(axis=0)
        B = double_center(paths, in_place=True)
        values, ordered_vectors, self.negative_share_ = leading_spectrum(B, self.n_components)
        vectors = np.empty_like(ordered_vectors)
        vectors[order] = ordered_vectors
        vectors = fix_signs(vectors.T).T
        warn_about_zero_coordinates("Isomap", values)
        self.eigenvalues_ = values
        self._axes = distance_axes(values, vectors)
        # The eigenvectors sum to zero, so only the column means contribute.
        self._shift = -0.5 * means @ self._axes
        coordinates = first_solution(values, vectors)
        self.residual_variance_ = compute_residual_variance(
            sampled_paths, coordinates[order], sampled
        )
        return coordinates


def compute_squared_geodesics(graph: NeighborGraph, sources: Indices) -> Matrix:
    """Return the squared lengths of the shortest paths from the sources to all rows.

    The result has shape (n_sources, n). No second array of this size is allocated.
    """
    n = graph.n_samples
    lengths = graph.symmetrized()
    squared = np.empty((len(sources), n))
    for block in split_rows(len(sources), 16 * n, max_rows=512):
        squared[block] = csgraph.dijkstra(lengths, directed=True, indices=sources[block])
    squared *= squared
    return squared


def iterate_query_paths(
    graph: NeighborGraph, distances: Matrix, indices: Indices
) -> Iterator[tuple[slice, Matrix]]:
    """Yield blocks of queries with the lengths of their shortest paths to all rows.

    ``distances`` and ``indices`` list each query's neighbors. Paths go through rows only, never
    through other queries.
    """
    n, k = graph.n_samples, indices.shape[1]
    lengths = graph.symmetrized()
    for block in split_rows(len(indices), 24 * n):
        m = block.stop - block.start
        edges = sparse.csr_array(
            (distances[block].ravel(), indices[block].ravel(), k * np.arange(m + 1)), (m, n)
        )
        # Edges go from queries to rows and not back, so that no path crosses another query.
        combined_graph = _stack_graphs(lengths, edges)
        paths = csgraph.dijkstra(combined_graph, directed=True, indices=n + np.arange(m))
        yield block, np.asarray(paths[:, :n])


def _find_paths_through_neighbors(paths: Matrix, distances: Matrix, neighbors: Indices) -> Matrix:
    """Return the lengths of the shortest paths from each query, via its neighbors, to all rows."""
    shortest = np.full((len(neighbors), paths.shape[1]), np.inf)
    for j in range(neighbors.shape[1]):
        np.minimum(shortest, paths[neighbors[:, j]] + distances[:, j, None], out=shortest)
    return shortest


def compute_residual_variance(paths: Matrix, coordinates: Matrix, rows: Indices) -> float:
    """Return 1 - r², where r is the correlation between path lengths and embedded distances.

    ``paths`` contains the lengths of the paths from ``rows`` to all rows.
    """
    distances = np.sqrt(((coordinates[rows, None] - coordinates) ** 2).sum(axis=2))
    if not distances.any():
        return 1.0
    r = np.corrcoef(paths.ravel(), distances.ravel())[0, 1]
    return max(0.0, 1 - float(r) ** 2)


def _stack_graphs(lengths: sparse.csr_array, edges: sparse.csr_array) -> sparse.csr_array:
    """Return one graph of rows and queries. Edges of length zero are kept."""
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
