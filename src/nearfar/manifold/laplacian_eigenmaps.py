"""Laplacian eigenmaps."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.manifold.graph_embedding import (
    AFFINITY_PARAMETERS,
    GRAPH_PARAMETERS,
    _GraphEmbedding,
    find_neighbor_radii,
    normalize_affinity,
)
from nearfar.solvers.spectral_step import TINY, smallest_eigenpairs
from nearfar.state import State, floats, number
from nearfar.summaries.neighbor_graph import Disconnected, connect_queries
from nearfar.summaries.weighted_graph import compute_affinities, compute_edge_scale


class LaplacianEigenmaps(_GraphEmbedding):
    r"""Laplacian eigenmaps: an embedding that keeps neighbors in the graph close to each other.

    .. math::
        \min_Y \tfrac12 \sum_{ij} W_{ij} \|y_i - y_j\|^2 = \mathrm{tr}(Y^T L Y), \qquad
        Y^T D Y = I, \quad Y^T D 1 = 0 ,

    with :math:`D_{ii} = \sum_j W_{ij}` and :math:`L = D - W`. The solutions are the eigenvectors of
    :math:`L f = \lambda D f` with the smallest eigenvalues, without the constant vector's zero. W
    has an entry :math:`e^{-d^2/\tau}` or 1 for two rows if either is a neighbor of the other.

    Use it to see groups and their connections: it is the relaxed normalized cut, and the map
    behind :class:`SpectralClustering`. It does not preserve lengths. The ends of a strip are
    compressed, and for a strip ten times as long as wide, the first two coordinates both describe
    its length.

    Cost: O(n² p) for the neighbors and a sparse factorization of a matrix with about :math:`2nk`
    entries. It needs no n×n array.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row.
    weights : {"heat", "uniform"}, default="heat"
        Edge weights: "heat" uses :math:`e^{-d^2/\tau}`, with a lower limit of 1e-6 so that rounding
        does not remove an edge; "uniform" uses 1.
    width : float or None, default=None
        Width of the kernel: :math:`\tau` in the edge weights. None uses the median squared edge
        length.
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    eigenvalues_ : ndarray of shape (n_components,)
        Smallest eigenvalues :math:`\lambda`, in ascending order. They are between 0 and 2.
    width_ : float
        Kernel width that the fit used.

    See Also
    --------
    SpectralClustering, LPP, LLE, LaplacianEmbedding

    References
    ----------
    .. [1] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section
       4.3.3; new points in section 4.4.
    .. [2] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LaplacianEigenmaps
    >>> X, y = load_iris(return_X_y=True)
    >>> maps = LaplacianEigenmaps(n_neighbors=15).fit(X[::2])
    >>> maps.transform(X[1::2]).shape
    (75, 2)
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    state = State(
        {
            "_reach": floats("n"),
            "width_": number(0, open_low=True),
            "eigenvalues_": floats("q"),
        }
    )
    settings = ({"n_neighbors": 10},)
    renamed: ClassVar = {"tau": "width", "tau_": "width_"}
    parameters: ClassVar = {**GRAPH_PARAMETERS, **AFFINITY_PARAMETERS}

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        weights: Literal["heat", "uniform"] = "heat",
        width: float | None = None,
        on_disconnected: Disconnected = "link",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.width = width
        self.on_disconnected = on_disconnected

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points with Nyström's formula.

        .. math:: f_t(x) = \frac{1}{1 - \lambda_t} \frac{\sum_i K(x, x_i) f_t(x_i)}
            {\sum_i K(x, x_i)} ,

        Here K contains the weights that the graph would give to the edges between x and training
        rows. A point equal to a training row gets the coordinates of that row.

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
            If some :math:`\lambda_t` is not below 1, where the formula does not hold. This happens
            only for components of little meaning, in almost complete graphs.
        """
        return self._transform(X)

    def _embed(self, points: Floats) -> Matrix:
        graph = self._build_connected_graph(points, self.n_neighbors)
        self._reach = find_neighbor_radii(graph, self.n_neighbors)
        lengths = graph.symmetrized()
        self.width_ = compute_edge_scale(lengths) if self.width is None else float(self.width)
        W = compute_affinities(lengths, self.weights, self.width_)
        self.eigenvalues_, F = compute_eigenmaps(W, self.n_components)
        return F

    def _place(self, queries: Floats) -> Matrix:
        new_coordinates = np.empty((len(queries), self._coordinates.shape[1]))
        for block in split_rows(len(queries), 16 * len(self._points)):
            new_coordinates[block] = self._place_block(queries[block])
        return new_coordinates

    def _place_block(self, queries: Floats) -> Matrix:
        lengths = connect_queries(
            self._points, queries, n_neighbors=self._n_neighbors, reach=self._reach
        )
        K = compute_affinities(lengths, self.weights, self.width_)
        sums = np.asarray(K.sum(axis=1)).reshape(-1, 1)
        rows = np.repeat(np.arange(len(queries)), np.diff(lengths.indptr))
        is_training_row = lengths.data == 0
        denominators = 1 - self.eigenvalues_
        if len(np.unique(rows[is_training_row])) < len(queries):
            _check_invertible(denominators)
        new_coordinates = (
            (K @ self._coordinates) / sums / np.where(denominators > TINY, denominators, 1.0)
        )
        new_coordinates[rows[is_training_row]] = self._coordinates[lengths.indices[is_training_row]]
        return np.asarray(new_coordinates)


def compute_eigenmaps(W: sparse.csr_array, n_components: int) -> tuple[Matrix, Matrix]:
    r"""Solve :math:`L f = \lambda D f` for the smallest eigenvalues, except for constant f."""
    A, roots = normalize_affinity(W)
    normalized = sparse.csr_array(sparse.eye_array(len(roots), format="csr") - A)
    values, vectors = smallest_eigenpairs(normalized, n_components, roots / np.linalg.norm(roots))
    return values, vectors / roots[:, None]


def _check_invertible(denominators: Matrix) -> None:
    n_valid = (
        int(np.argmin(denominators > TINY)) if (denominators <= TINY).any() else len(denominators)
    )
    if n_valid < len(denominators):
        raise ValueError(
            f"Cannot map new points with n_components={len(denominators)}: the eigenvalue of "
            f"component {n_valid} is {1 - denominators[n_valid]:.4g}, but must be below 1. "
            f"Fit with n_components={max(n_valid, 1)} or less, or with a smaller n_neighbors."
        )
