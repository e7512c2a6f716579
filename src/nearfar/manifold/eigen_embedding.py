"""Common framework of the spectral embeddings."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.manifold.graph_embedding import (
    AFFINITY_PARAMETERS,
    GRAPH_PARAMETERS,
    _GraphEmbedding,
    find_neighbor_radii,
    interpolate_new_points,
)
from nearfar.manifold.isomap import compute_squared_geodesics, iterate_query_paths
from nearfar.parameters import integer, none, one_of, real
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.barycentric import (
    reconstruction_matrix,
    weight_matrix,
)
from nearfar.solvers.eigen import descending_eigh, fix_signs
from nearfar.solvers.spectral_step import (
    compute_negative_share,
    double_center,
    first_axes,
    first_solution,
    is_positive,
    second_axes,
    warn_about_zero_coordinates,
)
from nearfar.state import Sizes, State, check_that, floats, none_or, number, object_of, optional
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph, connect_queries
from nearfar.summaries.weighted_graph import compute_affinities, compute_edge_scale

SpectralMethod = Literal["mds", "isomap", "spectral_clustering", "laplacian_eigenmaps", "lle"]

_DISTANCE_METHODS = ("mds", "isomap")


class EigenEmbedding(_GraphEmbedding):
    r"""Spectral embedding by one of five methods, in a common framework.

    Each method computes an n×n matrix H from its data, normalizes it, and computes eigenpairs
    :math:`(\lambda_t, v_t)`:

    ===================  ====================  =================================  ============  ==
    method               H                     normalized                         eigenvectors  \
    ===================  ====================  =================================  ============  ==
    mds                  squared distances     :math:`-\frac12 H_c H H_c`         largest       1
    isomap               squared geodesics     :math:`-\frac12 H_c H H_c`         largest       1
    spectral_clustering  affinities            :math:`H_{ij} / \sqrt{S_i S_j}`    largest       2
    laplacian_eigenmaps  affinities            :math:`H_{ij} / \sqrt{S_i S_j}`    from second   2
    lle                  :math:`(I-W)^T(I-W)`  none                               smallest      2
    ===================  ====================  =================================  ============  ==

    Here :math:`H_c = I - \frac1n 1 1^T` and :math:`S_i = \sum_j H_{ij}`. The last column is the
    usual solution. Solution 1 is :math:`e_{it} = \sqrt{\lambda_t} v_{it}`, whose inner products are
    the best approximation of the normalized matrix of that rank. Solution 2 is
    :math:`y_{it} = v_{it}`. Afterwards, spectral clustering scales rows to unit length (solution 2
    only), Laplacian eigenmaps divide them by :math:`\sqrt{S_i}`, and LLE multiplies by
    :math:`\sqrt n`.

    Use it to compare methods and solutions. :class:`ClassicalMDS`, :class:`Isomap`,
    :class:`SpectralClustering`, :class:`LaplacianEigenmaps` and :class:`LLE` return the same
    results faster, and use dense n×n matrices only where necessary.

    Cost: O(n³) time and several n×n arrays for every method.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    method : str, default="laplacian_eigenmaps"
        Name of the method, from the table above.
    solution : {1, 2} or "auto", default="auto"
        Number of the solution to compute. "auto" uses the last column of the table above. LLE does
        not support solution 1, because the eigenvalues of LLE do not represent inner products.
    n_neighbors : int or None, default=5
        Number of neighbors per row. None uses all other rows. The method "mds" does not use
        neighbors.
    weights : {"heat", "uniform"}, default="heat"
        Edge weights: "heat" uses :math:`e^{-d^2/\tau}`, with a lower limit of 1e-6 so that rounding
        does not remove an edge; "uniform" uses 1. The weight matrix has a zero diagonal.
    width : float or None, default=None
        Width of the kernel: :math:`\tau` in the edge weights. None uses the median squared edge
        length.
    reg : float, default=1e-3
        Regularization of the LLE weights.
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of the normalized matrix. :class:`LaplacianEigenmaps` reports 1 minus these
        eigenvalues.
    eigenvectors_ : ndarray of shape (n_distinct_rows, n_components)
        Unit eigenvectors of the normalized matrix, as columns.
    negative_share_ : float
        Sum of the absolute values of the negative eigenvalues, divided by the sum of the absolute
        values of all eigenvalues.

    See Also
    --------
    ClassicalMDS, Isomap, SpectralClustering, LaplacianEigenmaps, LLE

    References
    ----------
    .. [1] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 4.4.
    .. [2] Bengio, Y., et al., "Out-of-sample extensions for LLE, Isomap, MDS, Eigenmaps, and
       Spectral Clustering", Advances in Neural Information Processing Systems 16, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import EigenEmbedding
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> first = EigenEmbedding(method="mds").fit(X)
    >>> second = EigenEmbedding(method="mds", solution=2).fit(X)
    >>> np.allclose(first.embedding_, second.embedding_ * np.sqrt(first.eigenvalues_))
    True
    >>> np.allclose(first.transform(X), first.embedding_)
    True
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    state = State(
        {
            "_graph": none_or(object_of(NeighborGraph, n="n")),
            "_sums": none_or(floats("n")),
            "_means": optional(floats("n")),
            "_reach": optional(floats("n")),
            "_width": optional(number(0, open_low=True)),
            "eigenvalues_": floats("q"),
            "eigenvectors_": floats("n", "q"),
        }
    )
    renamed: ClassVar = {"tau": "width", "_tau": "_width"}
    renamed_values: ClassVar = {
        "method": {
            "spectral-clustering": "spectral_clustering",
            "laplacian-eigenmaps": "laplacian_eigenmaps",
        }
    }
    parameters: ClassVar = {
        **GRAPH_PARAMETERS,
        **AFFINITY_PARAMETERS,
        "method": [
            one_of("mds", "isomap", "spectral_clustering", "laplacian_eigenmaps", "lle"),
        ],
        "solution": [integer(1, 2), one_of("auto")],
        "n_neighbors": [none, integer(1)],
        "reg": [real(0, open_low=True)],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        method: SpectralMethod = "laplacian_eigenmaps",
        solution: Literal["auto", 1, 2] = "auto",
        n_neighbors: int | None = 5,
        weights: Literal["heat", "uniform"] = "heat",
        width: float | None = None,
        reg: float = 1e-3,
        on_disconnected: Disconnected = "link",
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.solution = solution
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.width = width
        self.reg = reg
        self.on_disconnected = on_disconnected

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points with Nyström's formula.

        .. math:: y_t(x) = \frac{1}{\lambda_t} \sum_i v_{it} \tilde K(x, x_i), \qquad
            e_t(x) = \sqrt{\lambda_t} y_t(x) ,

        Here :math:`\tilde K(x, x_i)` is the entry of the normalized matrix for x. Distances are
        centered by the means of the training rows. Affinities belong to the edges that the graph
        would give to x, and are divided by the square roots of their sums. LLE uses the limit form
        :math:`y(x) = \sum_i w_i y_i` with the weights that reconstruct x from its neighbors. By
        these formulas a training row gets its own coordinates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points to map.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Coordinates, in the dtype of X.

        Raises
        ------
        ValueError
            If an eigenvalue of solution 2 is not positive, since the formula divides by it.
        """
        return self._transform(X)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        attributes = vars(self)
        uses_affinities = self.method in ("spectral_clustering", "laplacian_eigenmaps")
        check_that(
            (self._graph is None) == (self.method == "mds"),
            "_graph must be None for method mds and set for other methods.",
        )
        check_that(
            (self._sums is None) != uses_affinities, "_sums must be set for affinity methods only."
        )
        required = {"_means"} if self.method in _DISTANCE_METHODS else set()
        required |= {"_reach", "_width"} if uses_affinities else set()
        required |= set() if self.method == "mds" else {"_n_neighbors"}
        check_that(
            required <= attributes.keys(),
            f"method {self.method} needs {', '.join(sorted(required))}.",
        )
        check_that(attributes.get("_solution") in (1, 2), "_solution must be 1 or 2.")

    def _embed(self, points: Floats) -> Matrix:
        n = len(points)
        self._solution = self._resolve_solution()
        self._graph, self._sums = None, None
        if self.method != "mds":
            self._graph = self._build_connected_graph(points, self.n_neighbors or n - 1)
        H = self._compute_matrix(points)
        if self.method in _DISTANCE_METHODS:
            self._means = H.mean(axis=0)
            H = double_center(H)
        elif self.method != "lle":
            self._sums = H.sum(axis=1)
            H = H / np.sqrt(np.outer(self._sums, self._sums))
        values, vectors, self.negative_share_ = self._compute_eigenpairs(H)
        self.eigenvalues_ = values.copy()
        self.eigenvectors_ = fix_signs(vectors.T).T
        if self._solution == 1:
            warn_about_zero_coordinates("EigenEmbedding", values)
        return self._scale_solution(self._compute_solution(), self._sums)

    def _compute_eigenpairs(self, H: Matrix) -> tuple[Matrix, Matrix, float]:
        """Return the eigenvalues and eigenvectors that the method uses, and ``negative_share_``."""
        q = self.n_components
        if self.method == "lle":
            # Move the eigenvalue of the constant vector from 0 to the other end of the spectrum.
            # Dropping the first eigenvector is not enough, because the solver mixes the constant
            # vector with the eigenvectors of other eigenvalues near zero.
            values, vectors = descending_eigh(H + np.trace(H) / len(H))
            return values[::-1][:q], vectors[:, ::-1][:, :q], 0.0
        if self.method == "laplacian_eigenmaps":
            assert self._sums is not None
            # The trivial eigenvector has eigenvalue 1. Subtracting 3 times its projector lowers the
            # eigenvalue to -2, which is below all other eigenvalues.
            trivial = np.sqrt(self._sums / self._sums.sum())
            values, vectors = descending_eigh(H - 3 * np.outer(trivial, trivial))
            return values[:q], vectors[:, :q], compute_negative_share(np.append(values[:-1], 1.0))
        values, vectors = descending_eigh(H)
        return values[:q], vectors[:, :q], compute_negative_share(values)

    def _resolve_solution(self) -> int:
        if self.solution == "auto":
            return 1 if self.method in _DISTANCE_METHODS else 2
        if self.method == "lle" and self.solution == 1:
            raise ValueError('method="lle" does not support solution=1. Use solution=2 or "auto".')
        return int(self.solution)

    def _compute_matrix(self, points: Floats) -> Matrix:
        """Return the n×n matrix H of the method, as listed in the class docstring."""
        if self._graph is None:
            exact = points.astype(np.float64)
            return np.asarray(cdist(exact, exact, "sqeuclidean"))
        if self.method == "isomap":
            return compute_squared_geodesics(self._graph, np.arange(len(points)))
        if self.method == "lle":
            W = weight_matrix(points, self._graph.indptr, self._graph.indices, self.reg)
            return np.asarray(reconstruction_matrix(W).toarray())
        lengths = self._graph.symmetrized()
        self._reach = find_neighbor_radii(self._graph, self._n_neighbors)
        self._width = compute_edge_scale(lengths) if self.width is None else float(self.width)
        return np.asarray(compute_affinities(lengths, self.weights, self._width).toarray())

    def _compute_solution(self) -> Matrix:
        if self._solution == 1:
            return first_solution(self.eigenvalues_, self.eigenvectors_)
        return self.eigenvectors_

    def _scale_solution(self, Y: Matrix, sums: Matrix | None) -> Matrix:
        """Apply the method's final scaling to the solution."""
        if self.method == "lle":
            return np.asarray(np.sqrt(len(self._points)) * Y)
        if self.method == "laplacian_eigenmaps":
            assert sums is not None
            return np.asarray(Y / np.sqrt(sums)[:, None])
        if self.method == "spectral_clustering" and self._solution == 2:
            lengths = np.linalg.norm(Y, axis=1, keepdims=True)
            return np.asarray(Y / np.where(lengths > 0, lengths, 1.0))
        return Y

    def _place(self, queries: Floats) -> Matrix:
        if self.method == "lle":
            return interpolate_new_points(
                self._points, self._coordinates, queries, self._n_neighbors, self.reg
            )
        values = self.eigenvalues_
        if self._solution == 2 and not is_positive(values).all():
            raise ValueError(
                f"Cannot map new points: some of the eigenvalues {values} are not positive. "
                "Fit with a smaller n_components."
            )
        axes = (first_axes if self._solution == 1 else second_axes)(values, self.eigenvectors_)
        new_coordinates = np.empty((len(queries), len(values)))
        for block in split_rows(len(queries), 64 * len(self._points)):
            if self.method in _DISTANCE_METHODS:
                squared = self._compute_squared_distances(queries[block])
                means = squared.mean(axis=1, keepdims=True)
                K = -0.5 * (squared - self._means - means + self._means.mean())
                new_coordinates[block] = self._scale_solution(K @ axes, None)
            else:
                assert self._sums is not None
                H = self._compute_affinities(queries[block])
                sums = H.sum(axis=1)
                K = H / np.sqrt(np.outer(sums, self._sums))
                new_coordinates[block] = self._scale_solution(K @ axes, sums)
        return new_coordinates

    def _compute_squared_distances(self, queries: Floats) -> Matrix:
        """Return squared distances from new points to training rows.

        Method "isomap" measures them along the graph, "mds" directly.
        """
        if self._graph is None:
            a, b = queries.astype(np.float64), self._points.astype(np.float64)
            return np.asarray(cdist(a, b, "sqeuclidean"))
        distances, indices = kneighbors(self._points, queries, n_neighbors=self._n_neighbors)
        paths = [
            block_paths for _, block_paths in iterate_query_paths(self._graph, distances, indices)
        ]
        return np.concatenate(paths) ** 2

    def _compute_affinities(self, queries: Floats) -> Matrix:
        """Return the affinities between new points and training rows.

        A point equal to a training row gets the edges of that row in the graph.
        """
        assert self._graph is not None
        lengths = connect_queries(
            self._points, queries, n_neighbors=self._n_neighbors, reach=self._reach
        )
        H = compute_affinities(lengths, self.weights, self._width).toarray()
        nearest_distances, nearest_rows = kneighbors(self._points, queries, n_neighbors=1)
        is_training_row = nearest_distances[:, 0] == 0
        training_affinities = compute_affinities(
            self._graph.symmetrized(), self.weights, self._width
        )
        H[is_training_row] = training_affinities[nearest_rows[is_training_row, 0]].toarray()
        return np.asarray(H)
