"""Base classes of the graph embeddings, and interpolation of new points."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Embedding
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, integer, none, one_of, real
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.barycentric import compute_interpolating_weights
from nearfar.solvers.spectral_step import smallest_eigenpairs
from nearfar.state import State, floats, integer_value, optional, table
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph, link_components
from nearfar.summaries.weighted_graph import build_neighbor_graph, check_distinct_rows

#: Allowed parameter values of every graph embedding.
GRAPH_PARAMETERS: dict[str, list[AllowedValues]] = {
    "n_components": [integer(1)],
    "n_neighbors": [integer(1)],
    "on_disconnected": [one_of("link", "raise")],
}
#: Allowed parameter values of the methods that weight the edges.
AFFINITY_PARAMETERS: dict[str, list[AllowedValues]] = {
    "weights": [one_of("heat", "uniform")],
    "width": [none, real(0, open_low=True)],
}
# Eigenvalues up to this multiple of the largest diagonal entry are treated as zero.
_ZERO = 1e-16


class _Embedding(Embedding):
    """Base class of estimators that compute training coordinates and can map new points.

    Subclasses implement ``_embed``, which receives distinct rows, and ``_place``.
    """

    state = State({"_points": table("n", "p"), "_coordinates": floats("n", "q")}, rows="_points")
    renamed: ClassVar = {"_places": "_coordinates"}

    n_components: int
    _points: Floats
    _coordinates: Matrix

    @abstractmethod
    def _embed(self, points: Floats) -> Matrix:
        """Return the coordinates of distinct rows, of shape (n, n_components).

        Implementations may also set fitted attributes.
        """

    @abstractmethod
    def _place(self, queries: Floats) -> Matrix:
        """Return the coordinates of new points."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Embed the training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points. Identical rows are merged and get the same coordinates.
        y : ignored
            Not used, present for API consistency.

        Returns
        -------
        object
            Fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        points, inverse = check_distinct_rows(rows, self.n_components)
        self._points = points
        self._coordinates = self._embed(points)
        self.embedding_ = self._coordinates[inverse].astype(rows.dtype)
        return self

    def _transform(self, X: ArrayLike) -> Floats:
        """Return the coordinates of new points, in the dtype of X."""
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        return self._place(rows).astype(rows.dtype)


class _GraphEmbedding(_Embedding):
    """Base class of embeddings that use the graph of nearest neighbors."""

    state = State({"_n_neighbors": optional(integer_value(low=1, max_size="n"))})
    renamed: ClassVar = {"_listed": "_n_neighbors"}

    on_disconnected: Disconnected
    _n_neighbors: int  # Number of neighbors per row that the fit used.

    def _build_connected_graph(self, points: Floats, n_neighbors: int) -> NeighborGraph:
        self._n_neighbors = n_neighbors
        graph = build_neighbor_graph(points, n_neighbors)
        return link_components(graph, points, on_disconnected=self.on_disconnected)


class _LocalEmbedding(_GraphEmbedding):
    r"""Base class of embeddings that map new points by interpolation between training rows."""

    reg: float

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points by interpolation between training rows: :math:`y(x) = \sum_i w_i y_i`.

        This is the limit form of Nyström's formula for LLE. The weights w reconstruct the point
        from its nearest training rows and sum to one. They minimize :math:`\|x - \sum_j w_j x_j\|^2
        + \text{reg} \cdot k \sum_j w_j^2 \|x - x_j\|^2`. The penalty grows with the distance. A
        point close to a training row is therefore mapped close to that row's coordinates, and a
        training row gets its own coordinates.

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

    def _find_smallest_eigenpairs(self, S: sparse.csr_array) -> tuple[Matrix, Matrix]:
        """Return the smallest eigenvalues, and their eigenvectors scaled to unit variance.

        Warns if the embedding is not unique.
        """
        n, q = S.shape[0], self.n_components
        n_eigenpairs = min(q + 1, n - 1)
        values, vectors = smallest_eigenpairs(S, n_eigenpairs, np.full(n, 1 / np.sqrt(n)))
        if n_eigenpairs > q and values[q] <= _ZERO * S.diagonal().max():
            warn(
                f"{type(self).__name__}: the embedding is not unique, because more than "
                f"n_components={q} eigenvalues are zero. Some groups of rows have only each other "
                "as neighbors. Increase n_neighbors, or remove outliers.",
            )
        return values[:q], np.sqrt(n) * vectors[:, :q]

    def _place(self, queries: Floats) -> Matrix:
        return interpolate_new_points(
            self._points, self._coordinates, queries, self._n_neighbors, self.reg
        )


def interpolate_new_points(
    points: Floats, coordinates: Matrix, queries: Floats, n_neighbors: int, reg: float
) -> Matrix:
    """Return coordinates of new points as weighted sums of their neighbors' coordinates."""
    _, indices = kneighbors(points, queries, n_neighbors=n_neighbors)
    weights = compute_interpolating_weights(points, queries, indices, reg)
    return np.einsum("ij,ijk->ik", weights, coordinates[indices])


def find_neighbor_radii(graph: NeighborGraph, n_neighbors: int) -> Matrix:
    """Return the distance of each row to its farthest neighbor.

    Edges that were added to link the graph are ignored.
    """
    return graph.distances[graph.indptr[:-1] + n_neighbors - 1]


def normalize_affinity(W: sparse.csr_array) -> tuple[sparse.csr_array, Matrix]:
    """Return the normalized weights D^(-1/2) W D^(-1/2), and the square roots of the degrees D."""
    roots = np.sqrt(np.asarray(W.sum(axis=1)).reshape(-1))
    scale = sparse.diags_array(1 / roots)
    return sparse.csr_array(scale @ W @ scale), roots


def set_pairwise_tag(tags: Any, is_pairwise: bool) -> Any:
    """Set the tag ``pairwise``, which means that X contains distances, and return the tags."""
    tags.input_tags.pairwise = is_pairwise
    return tags
