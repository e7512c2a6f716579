"""Normalized spectral clustering that assigns new points."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Learner, LearnerTags
from nearfar.blocks import split_rows
from nearfar.manifold.graph_embedding import (
    AFFINITY_PARAMETERS,
    find_neighbor_radii,
    normalize_affinity,
)
from nearfar.parameters import integer, one_of, random_state
from nearfar.solvers.eigen import fix_signs
from nearfar.solvers.spectral_step import (
    check_spread,
    second_axes,
    smallest_eigenpairs,
    unit_rows,
)
from nearfar.state import State, floats, indices, integer_value, number, table
from nearfar.summaries.neighbor_graph import (
    Disconnected,
    connect_queries,
    find_distinct_rows,
    link_components,
)
from nearfar.summaries.weighted_graph import (
    build_neighbor_graph,
    compute_affinities,
    compute_edge_scale,
)


class SpectralClustering(ClassNamePrefixFeaturesOutMixin, ClusterMixin, Learner):
    r"""Normalized spectral clustering: k-means on the leading eigenvectors of a graph.

    Let W be the edge weights of the neighbor graph, with zeros on the diagonal, and
    :math:`D_{ii} = \sum_j W_{ij}`. The relaxed normalized cut is

    .. math:: \max_V \mathrm{tr}(V^T D^{-1/2} W D^{-1/2} V), \qquad V^T V = I .

    The rows of V, which have ``n_clusters`` entries, are scaled to unit length and clustered by
    k-means.

    Use it for clusters of any shape that are connected within and separated from each other. It
    does not find clusters of a few rows next to large ones. The number of clusters must be known: a
    gap after the last of ``eigenvalues_`` indicates a suitable number.

    Cost: O(n² p) for the neighbors, a sparse factorization as in :class:`LaplacianEigenmaps`, and
    k-means. It needs no n×n array.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    n_neighbors : int, default=10
        Number of neighbors per row.
    weights : {"heat", "uniform"}, default="heat"
        Edge weights: "heat" uses :math:`e^{-d^2/\tau}`, with a lower limit of 1e-6 so that rounding
        does not remove an edge; "uniform" uses 1.
    width : float or None, default=None
        Width of the kernel: :math:`\tau` in the edge weights. None uses the median squared edge
        length.
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected. Up to ``n_clusters`` components are accepted. If there
        are more components, "link" adds the shortest edges that connect the graph and warns,
        "raise" raises an error.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It determines the ten starts of k-means.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, numbered from 0.
    eigenvalues_ : ndarray of shape (n_clusters,)
        Largest eigenvalues of the normalized weights, in descending order. They are at most 1.
    cluster_centers_ : ndarray of shape (n_clusters, n_clusters)
        Cluster centers, in the coordinates of ``transform``.
    width_ : float
        Kernel width that the fit used.

    See Also
    --------
    LaplacianEigenmaps, AugmentedSpectralClustering, SetSpectralClustering

    References
    ----------
    .. [1] Ng, A. Y., M. I. Jordan, Y. Weiss, "On spectral clustering: Analysis and an algorithm",
       Advances in Neural Information Processing Systems 14, 2001.
    .. [2] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 4.4.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from nearfar import SpectralClustering
    >>> X, y = make_moons(400, noise=0.05, random_state=0)
    >>> clusters = SpectralClustering(n_clusters=2).fit(X[::2])
    >>> labels = clusters.predict(X[1::2])
    >>> bool(max((labels == y[1::2]).mean(), (labels != y[1::2]).mean()) > 0.99)
    True
    """

    learner_tags = LearnerTags(reads="graph", role="clusterer", supervised=False)
    state = State(
        {
            "_points": table("n", "p"),
            "_vectors": floats("n", "q"),
            "eigenvalues_": floats("q"),
            "cluster_centers_": floats("clusters", "q"),
            "labels_": indices("samples", below="clusters"),
            "_reach": floats("n"),
            "_roots": floats("n"),
            "_n_neighbors": integer_value(low=1, max_size="n"),
            "width_": number(0, open_low=True),
        },
        fitted="labels_",
        rows="_points",
    )
    renamed: ClassVar = {"tau": "width", "tau_": "width_", "_listed": "_n_neighbors"}
    parameters: ClassVar = {
        "n_clusters": [integer(1)],
        "n_neighbors": [integer(1)],
        "on_disconnected": [one_of("link", "raise")],
        "random_state": [random_state],
        **AFFINITY_PARAMETERS,
    }

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        n_neighbors: int = 10,
        weights: Literal["heat", "uniform"] = "heat",
        width: float | None = None,
        on_disconnected: Disconnected = "link",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.width = width
        self.on_disconnected = on_disconnected
        self.random_state = random_state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Cluster the training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points. Identical rows are merged before the fit.
        y : ignored
            Not used, present for API consistency.

        Returns
        -------
        SpectralClustering
            Fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        check_spread(rows)
        first_rows, inverse = find_distinct_rows(rows)
        if self.n_clusters >= len(first_rows):
            raise ValueError(
                f"n_clusters={self.n_clusters} must be less than the number of distinct rows of "
                f"X ({len(first_rows)} of n_samples={len(rows)})."
            )
        points = rows[first_rows]
        # With few rows, use all other rows as neighbors instead of raising an error.
        k = min(self.n_neighbors, len(points) - 1)
        graph = build_neighbor_graph(points, k)
        n_graph_components, component_labels = graph.connected_components()
        if n_graph_components > self.n_clusters:
            graph = link_components(graph, points, on_disconnected=self.on_disconnected)
            component_labels = np.zeros_like(component_labels)
        self._points, self._reach, self._n_neighbors = points, find_neighbor_radii(graph, k), k
        lengths = graph.symmetrized()
        self.width_ = compute_edge_scale(lengths) if self.width is None else float(self.width)
        W = compute_affinities(lengths, self.weights, self.width_)
        A, self._roots = normalize_affinity(W)
        self.eigenvalues_, self._vectors = find_leading_eigenpairs(
            A, self._roots, component_labels, self.n_clusters
        )
        kmeans = KMeans(self.n_clusters, n_init=10, random_state=self.random_state)
        labels = kmeans.fit_predict(unit_rows(self._vectors))
        self.cluster_centers_ = kmeans.cluster_centers_
        self.labels_ = labels[inverse].astype(np.intp)
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.intp]:
        """Cluster the training points and return ``labels_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : ignored
            Not used, present for API consistency.

        Returns
        -------
        ndarray of shape (n_samples,)
            Cluster of each row.
        """
        return self.fit(X).labels_.copy()

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Assign each point to the cluster with the nearest center after ``transform``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points to assign.

        Returns
        -------
        ndarray of shape (n_samples,)
            Cluster of each point.
        """
        check_is_fitted(self)
        coordinates = self._place(self._check_X(X, reset=False))
        labels = pairwise_distances_argmin(coordinates, self.cluster_centers_)
        return np.asarray(labels, dtype=np.intp)

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points with Nyström's formula, then scale them to unit length.

        .. math:: y_t(x) = \frac{1}{\lambda_t} \sum_i v_{it} \frac{K(x, x_i)}
            {\sqrt{\sum_j K(x, x_j) \sum_j K(x_i, x_j)}} ,

        Here K contains the weights that the graph would give to the edges between x and training
        rows. The coordinate of an eigenvalue that is not positive is zero. A point equal to a
        training row gets the coordinates of that row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points to map.

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            Coordinates, in the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        return self._place(rows).astype(rows.dtype)

    def _place(self, queries: Floats) -> Matrix:
        new_coordinates = np.empty((len(queries), self._vectors.shape[1]))
        axes = second_axes(self.eigenvalues_, self._vectors) / self._roots[:, None]
        training_coordinates = unit_rows(self._vectors)
        for block in split_rows(len(queries), 16 * len(self._points)):
            lengths = connect_queries(
                self._points, queries[block], n_neighbors=self._n_neighbors, reach=self._reach
            )
            # Do not divide by the square root of the point's own sum, because unit_rows would
            # cancel this factor.
            new_coordinates[block] = unit_rows(
                compute_affinities(lengths, self.weights, self.width_) @ axes
            )
            rows = np.repeat(np.arange(lengths.shape[0]), np.diff(lengths.indptr))
            is_training_row = lengths.data == 0
            new_coordinates[block.start + rows[is_training_row]] = training_coordinates[
                lengths.indices[is_training_row]
            ]
        return new_coordinates

    @property
    def _n_features_out(self) -> int:
        return int(self._vectors.shape[1])


def find_leading_eigenpairs(
    A: sparse.csr_array, roots: Matrix, component_labels: NDArray[Any], n_largest: int
) -> tuple[Matrix, Matrix]:
    """Return the largest eigenvalues of normalized edge weights, and eigenvectors as columns.

    Each eigenvector is nonzero only within one connected component. If Lanczos's method were
    applied to all rows, it could mix or miss the eigenvalues 1 of several components.
    """
    n = len(roots)
    eigenpairs: list[tuple[float, Matrix]] = []
    for label in range(int(component_labels.max()) + 1):
        rows = np.flatnonzero(component_labels == label)
        vector = np.zeros(n)
        vector[rows] = roots[rows] / np.linalg.norm(roots[rows])
        eigenpairs.append((1.0, vector))
        n_further = min(n_largest - 1, len(rows) - 1)
        if n_further:
            block = A[rows][:, rows]
            normalized = sparse.csr_array(sparse.eye_array(len(rows), format="csr") - block)
            values, vectors = smallest_eigenpairs(normalized, n_further, vector[rows])
            for value, component_vector in zip(values, vectors.T, strict=True):
                vector = np.zeros(n)
                vector[rows] = component_vector
                eigenpairs.append((1 - float(value), vector))
    eigenpairs.sort(key=lambda pair: -pair[0])
    leading = eigenpairs[:n_largest]
    return np.array([value for value, _ in leading]), fix_signs(
        np.array([vector for _, vector in leading])
    ).T
