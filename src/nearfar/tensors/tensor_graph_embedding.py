"""Tensor graph embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import AlternatingLearner, LearnerTags
from nearfar.base.tensor_input import N_COMPONENTS_OF_MODES, TENSOR_PARAMETERS
from nearfar.blocks import split_rows
from nearfar.parameters import boolean, integer, one_of, real
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.solvers.mode_subspaces import (
    count_leading_values,
    fix_column_signs,
    ordered_eigh,
    select_varying_axes,
)
from nearfar.solvers.shortest_paths import compute_all_shortest_paths
from nearfar.solvers.spectral_step import check_spread, double_center
from nearfar.solvers.tensor_algebra import graph_mode_scatter, project_stack
from nearfar.summaries.mode_scatters import StackScatters
from nearfar.summaries.neighbor_graph import find_distinct_rows, link_components
from nearfar.summaries.weighted_graph import (
    build_class_graphs,
    build_neighbor_graph,
    compute_affinities,
    compute_edge_scale,
)

# Fraction of the energy that each mode keeps if n_components is None, as in GTA.
_ENERGY_FRACTION = 0.97


class TensorGraphEmbedding(AlternatingLearner):
    r"""Tensor graph embedding: one projection per tensor mode that preserves a graph of samples.

    .. math:: \max_{U_k^T U_k = I}\; \sum_{ij} (b_{ij} - \zeta s_{ij})\,
        \|(X_i - X_j) \times_1 U_1^T \cdots \times_K U_K^T\|^2 ,

    where :math:`s_{ij}` are the weights of pairs that should stay close, and :math:`b_{ij}` the
    weights of pairs that should be far apart. For fixed factors of the other modes, :math:`U_k`
    contains the leading eigenvectors of :math:`2 \sum_{ij} L_{ij} T_{i(k)} T_{j(k)}^T`, where
    :math:`T_i` is :math:`X_i` projected in all modes except k, and L is the Laplacian of
    :math:`b - \zeta s`. The algorithm solves one mode after another. No step decreases the
    objective.

    ========  ===========================================  =======================================
    graph     s                                            b
    ========  ===========================================  =======================================
    lpp       heat kernel of neighbors, as in LPP          degrees, :math:`d_i d_j / \sum_l d_l`
    npe       :math:`W + W^T - W^T W`, W the weights that  1/n: the variance
              reconstruct a sample from its neighbors
    isomap    :math:`-\frac12 H D_G^{(2)} H` of the path   1/n: the variance
              lengths, scaled to mean diagonal 1
    mfa       1 for neighbors of the same class            1 for neighbors of another class
    lda       :math:`1/n_c` within class c                 1/n, minus :math:`1/n_c` within class c
    given     passed to ``fit``                            passed to ``fit``
    ========  ===========================================  =======================================

    With "lda" it is equal to :class:`GTDA`. Neighbors are found by the Euclidean distance of the
    flat tensors. Two samples are connected if either is among the nearest neighbors of the other.

    Use it on images or clips with meaningful neighborhoods, such as poses, frames, or shapes that
    change gradually, and with "mfa" if a class consists of several clusters. The projection is
    linear, so it does not unfold a curved manifold. With a small :math:`\zeta` it keeps the
    directions with the largest variance, like :class:`GTA`. With a large :math:`\zeta` it keeps the
    directions that vary least between neighbors. The thesis [1]_ proposes the method without
    experiments.

    Cost: O(n² p) for the neighbors of n samples with p entries. Each sweep over the modes takes
    O(n p q), where q is the largest number of components of a mode, plus O(n k d q) for k neighbors
    and a mode of length d. Only "isomap" stores an n × n array.

    Parameters
    ----------
    n_components : int, tuple of int or None, default=None
        Dimension of the output: number of components per mode. An integer applies to every mode, up
        to the mode's length. A tuple has one entry per mode. None keeps 97% of the energy of each
        mode.
    graph : {"lpp", "npe", "isomap", "mfa", "lda", "given"}, default="lpp"
        Type of graph, which determines the weights b and s (see the table). "mfa" and "lda" need
        labels, and "given" needs ``graphs``.
    within_weight : float, default=0.1
        Weight of the graph s, which connects samples that should stay close.
    n_neighbors : int, default=5
        Number of neighbors per row. "mfa" uses this number of neighbors from the sample's own
        class, and the same number from all other classes together.
    max_iter : int, default=50
        Maximum number of iterations. Each iteration is a sweep over the modes. With 0, the result
        is the starting point, for which each mode is solved without projecting the other modes.
    tol : float, default=1e-6
        Stop when a sweep changes the projectors by less than ``tol``, summed over the modes.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).
    flatten : bool, default=True
        Whether ``transform`` returns flat rows. If False, it returns tensors.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, q_k)
        Factor of each mode, with orthonormal columns.
    components_ : ndarray of shape (n_features_out, n_features)
        Projection matrix for flat rows: the Kronecker product of the factors. It is computed on
        access.
    mean_ : ndarray of shape (n_features,)
        Mean of the training tensors, as a flat row. If the graph is based on neighbors, identical
        tensors count only once.
    n_components_ : tuple of int
        Number of components in each mode.
    tensor_shape_ : tuple of int
        Shape of a sample.
    history_ : dict
        Lists of progress values. "objective" has one value per update of a mode. "step" (the change
        of the projectors) and "seconds" have one value per sweep.
    n_iter_ : int
        Number of sweeps.
    converged_ : bool
        Whether the last sweep changed the projectors by less than ``tol``.

    See Also
    --------
    GTDA, LPP, NPE

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 3.7.
    .. [2] Yan, S., D. Xu, B. Zhang, H.-J. Zhang, Q. Yang, S. Lin, "Graph embedding and extensions:
       a general framework for dimensionality reduction", IEEE Transactions on Pattern Analysis and
       Machine Intelligence 29, 2007 (marginal Fisher analysis).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import TensorGraphEmbedding
    >>> images, y = load_digits(return_X_y=True)
    >>> images = images.reshape(-1, 8, 8)
    >>> lpp = TensorGraphEmbedding(n_components=4).fit(images[:300])
    >>> lpp.transform(images).shape
    (1797, 16)
    >>> mfa = TensorGraphEmbedding(n_components=4, graph="mfa").fit(images[:300], y[:300])
    >>> [U.shape for U in mfa.factors_]
    [(8, 4), (8, 4)]
    """

    learner_tags = LearnerTags(reads="graph", input="tensors", supervised=False)
    renamed: ClassVar = {"zeta": "within_weight"}
    settings = ({"within_weight": 1.0}, {"graph": "npe"})
    parameters: ClassVar = {
        "n_components": N_COMPONENTS_OF_MODES,
        "graph": [one_of("lpp", "npe", "isomap", "mfa", "lda", "given")],
        "within_weight": [real()],
        "n_neighbors": [integer(1)],
        "max_iter": [integer(0)],
        "tol": [real(0)],
        **TENSOR_PARAMETERS,
        "flatten": [boolean],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        n_components: int | tuple[int, ...] | None = None,
        *,
        graph: Literal["lpp", "npe", "isomap", "mfa", "lda", "given"] = "lpp",
        within_weight: float = 0.1,
        n_neighbors: int = 5,
        max_iter: int = 50,
        tol: float = 1e-6,
        tensor_shape: tuple[int, ...] | None = None,
        flatten: bool = True,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.graph = graph
        self.within_weight = within_weight
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.tol = tol
        self.tensor_shape = tensor_shape
        self.flatten = flatten
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, graphs: tuple[Any, Any] | None = None
    ) -> Self:
        """Learn the projections from tensors, and from labels or graphs if ``graph`` needs them.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or rows. Rows are flat tensors if ``tensor_shape`` is set, and vectors
            otherwise.
        y : array-like of shape (n_samples,), optional
            Labels for the graphs "mfa" and "lda". The other graphs ignore them.
        graphs : tuple of two arrays or sparse arrays of shape (n_samples, n_samples), optional
            The weights (b, s) for ``graph="given"``. Each array is replaced by the mean of the
            array and its transpose. Diagonal elements have no effect.

        Returns
        -------
        object
            The learner itself.
        """
        self._check_parameters()
        # A contiguous copy makes the result independent of the memory layout of X.
        T = np.ascontiguousarray(self._check_tensors(X, reset=True, min_samples=2))
        if (graphs is not None) != (self.graph == "given"):
            raise ValueError(
                "graph='given' needs graphs=(b, s), two arrays of shape (n_samples, n_samples)."
                if graphs is None
                else f"graphs needs graph='given'; got graph={self.graph!r}."
            )
        codes = None
        if self.graph in ("mfa", "lda"):
            _, codes = self._check_labels(y, len(T))
        T, codes = self._remove_duplicates(T, codes)
        between, within = self._compute_laplacians(T.reshape(len(T), -1), codes, graphs)
        return self._learn(T, between + (-float(self.within_weight)) * within)

    def _remove_duplicates(self, T: Floats, codes: Indices | None) -> tuple[Floats, Indices | None]:
        """Remove duplicate samples if the graph is based on neighbors."""
        if self.graph in ("lda", "given"):
            return T, codes
        rows = T.reshape(len(T), -1)
        check_spread(rows)
        if codes is not None:  # Keep equal samples of different classes.
            rows = np.column_stack([rows, codes])
        indices, _ = find_distinct_rows(rows)
        if len(indices) == len(T):
            return T, codes
        return T[indices], None if codes is None else codes[indices]

    def _learn(self, T: Floats, laplacian: LinearOperator) -> Self:
        scatters = StackScatters(T)
        shape = T.shape[1:]
        n_requested = self._resolve_n_components(shape)
        totals = [scatters.within_scatter(mode) for mode in range(len(shape))]
        spectra = [ordered_eigh(total) for total in totals]
        if not spectra[0][0][0] > 0:
            raise ValueError(
                "TensorGraphEmbedding: all samples in X are equal. At least two must differ."
            )
        n_components = n_requested or [
            count_leading_values(values, _ENERGY_FRACTION) for values, _ in spectra
        ]
        # The bases exclude directions without variance. The eigenvalue 0 of these directions would
        # rank above all negative eigenvalues.
        bases = [
            select_varying_axes(total, *spectrum, T.dtype)
            for total, spectrum in zip(totals, spectra, strict=True)
        ]

        def compute_matrix(mode: int, factors: Sequence[Matrix] | None) -> Matrix:
            projected = _project_except(T, scatters.mean, factors, mode)
            return 2 * graph_mode_scatter(projected, mode, laplacian)

        initial_factors = []
        for mode, q in enumerate(n_components):
            _, V = ordered_eigh(compute_matrix(mode, None), basis=bases[mode])
            initial_factors.append(fix_column_signs(V[:, :q]))
        self._learn_modes(
            compute_matrix,
            initial_factors,
            lambda mode, _: n_components[mode],
            scatters.mean,
            T.dtype,
            bases=bases,
        )
        return self

    # ------------------------------------------------------------------ construction of the graphs

    def _compute_laplacians(
        self, rows: Floats, codes: Indices | None, graphs: tuple[Any, Any] | None
    ) -> tuple[LinearOperator, LinearOperator]:
        """Return the Laplacians of the graphs b and s as operators, to avoid n × n arrays."""
        n = len(rows)
        if self.graph == "given":
            b, s = _check_graphs(graphs, n)
            return _make_laplacian(b), _make_laplacian(s)
        if codes is not None and self.graph == "lda":
            indicator = sparse.csr_array((np.ones(n), (np.arange(n), codes)))
            classes = _make_outer_product(
                indicator @ sparse.diags_array(np.bincount(codes) ** -0.5)
            )
            return classes + (-1.0) * _make_mean_operator(n), _make_identity(n) + (-1.0) * classes
        if codes is not None:
            similar_graph, dissimilar_graph = build_class_graphs(rows, codes, self.n_neighbors)
            edges = [
                compute_affinities(g.symmetrized(), "uniform", 1.0)
                for g in (dissimilar_graph, similar_graph)
            ]
            return _make_laplacian(edges[0]), _make_laplacian(edges[1])
        graph = build_neighbor_graph(rows, self.n_neighbors)
        if self.graph == "lpp":
            lengths = graph.symmetrized()
            s = compute_affinities(lengths, "heat", compute_edge_scale(lengths))
            degrees = np.asarray(s.sum(axis=1)).reshape(-1)
            scaled_degrees = (degrees / np.sqrt(degrees.sum()))[:, None]
            degree_laplacian = aslinearoperator(sparse.diags_array(degrees)) + (
                -1.0
            ) * _make_outer_product(scaled_degrees)
            return degree_laplacian, _make_laplacian(s)
        variance = _make_identity(n) + (-1.0) * _make_mean_operator(n)
        if self.graph == "npe":
            weights = weight_matrix(rows, graph.indptr, graph.indices)
            return variance, aslinearoperator(reconstruction_matrix(weights))
        graph = link_components(graph, rows)
        paths, order = compute_all_shortest_paths(graph.symmetrized())
        inverse_order = np.argsort(order)
        inner_products = double_center(paths[inverse_order][:, inverse_order] ** 2, in_place=True)
        # The inner products depend on the unit of X, but the weights b do not. So scale the inner
        # products such that the mean of the diagonal is 1.
        return variance, (-n / np.trace(inner_products)) * aslinearoperator(inner_products)


def _project_except(T: Floats, mean: Matrix, factors: Sequence[Matrix] | None, mode: int) -> Floats:
    """Center tensors and project all modes except one. If ``factors`` is None, return T."""
    if factors is None:
        return T
    blocks = [
        project_stack(T[block].astype(np.float64) - mean, factors, skip=mode)
        for block in split_rows(len(T), 16 * T[0].size, max_rows=1024)
    ]
    return np.concatenate(blocks)


def _make_laplacian(weights: Any) -> LinearOperator:
    """Return the graph Laplacian: the diagonal matrix of degrees minus symmetrized weights."""
    symmetric = (weights + weights.T) / 2
    degrees = np.asarray(symmetric.sum(axis=1)).reshape(-1)
    if sparse.issparse(symmetric):
        return aslinearoperator(sparse.csr_array(sparse.diags_array(degrees) - symmetric))
    symmetric *= -1
    symmetric.flat[:: len(degrees) + 1] += degrees
    return aslinearoperator(symmetric)


def _make_outer_product(F: Any) -> LinearOperator:
    """Return the operator F F' for a matrix F with few columns."""
    return aslinearoperator(F) @ aslinearoperator(F.T)


def _make_identity(n: int) -> LinearOperator:
    return aslinearoperator(sparse.eye_array(n, format="csr"))


def _make_mean_operator(n: int) -> LinearOperator:
    """Return the operator that replaces each element of a vector by the mean of all elements."""
    return _make_outer_product(np.full((n, 1), n**-0.5))


def _check_graphs(graphs: Any, n: int) -> tuple[Any, Any]:
    if not isinstance(graphs, tuple | list) or len(graphs) != 2:
        raise ValueError(
            "graphs must be a pair (b, s) of arrays of shape (n_samples, n_samples); got "
            f"{type(graphs).__name__}."
        )
    checked = []
    for name, weights in zip("bs", graphs, strict=True):
        if sparse.issparse(weights):
            W: Any = sparse.csr_array(weights, dtype=np.float64)
            values = W.data
        else:
            try:
                W = values = np.array(weights, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"graphs: {name} must contain numbers: {error}") from error
        if W.shape != (n, n):
            raise ValueError(
                f"graphs: {name} has shape {W.shape}, but must have shape {(n, n)} because X has "
                f"{n} samples."
            )
        if not np.isfinite(values).all():
            raise ValueError(f"graphs: {name} contains NaN or infinity.")
        checked.append(W)
    return checked[0], checked[1]
