"""Laplacian eigenmaps."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.blocks import row_blocks
from nearfar.manifold.graph_embedding import (
    AFFINITY_PARAMETERS,
    GRAPH_PARAMETERS,
    _GraphEmbedding,
    normalized_affinity,
    reach,
)
from nearfar.solvers.spectral_step import TINY, smallest_eigenpairs
from nearfar.state import State, floats, number
from nearfar.summaries.neighbor_graph import Disconnected, joined_rows
from nearfar.summaries.weighted_graph import affinities, edge_scale


class LaplacianEigenmaps(_GraphEmbedding):
    r"""Laplacian eigenmaps: neighbours in the graph stay near each other.

    .. math::
        \min_Y \tfrac12 \sum_{ij} W_{ij} \|y_i - y_j\|^2 = \mathrm{tr}(Y^T L Y), \qquad
        Y^T D Y = I, \quad Y^T D 1 = 0 ,

    with :math:`D_{ii} = \sum_j W_{ij}`, :math:`L = D - W`: the eigenvectors of :math:`L f = \lambda
    D f` with the smallest eigenvalues above the zero of the constant vector. W joins rows of which
    either is among the nearest of the other, with weight :math:`e^{-d^2/\tau}` or 1.

    Use it to see groups and their connections: it is the relaxed normalised cut, and the map
    behind :class:`SpectralClustering`. It does not keep lengths: ends of a strip are pressed
    together, and a strip ten times as long as wide shows its length twice before its width.

    Cost: O(n² p) for the neighbours and a sparse factorisation of a matrix with some :math:`2nk`
    entries. No array of n×n.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row.
    weights : {"heat", "uniform"}, default="heat"
        Weights of the edges: :math:`e^{-d^2/\tau}`, never below 1e-6 so that no edge is lost to
        rounding; or 1.
    width : float or None, default=None
        Width of the kernel: :math:`\tau`; None is the median squared length of an edge.
    on_disconnected : {"link", "raise"}, default="link"
        What to do if the graph is not connected: add the shortest edges that connect it, with a
        warning, or raise.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training rows. Identical rows count as one.
    eigenvalues_ : ndarray of shape (n_components,)
        :math:`\lambda`, ascending, from 0 to 2.
    width_ : float
        The width used.

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
        r"""Map points by Nyström's formula,

        .. math:: f_t(x) = \frac{1}{1 - \lambda_t} \frac{\sum_i K(x, x_i) f_t(x_i)}
            {\sum_i K(x, x_i)} ,

        K being the weights that the graph would give to the edges of x with training rows. A point
        equal to a training row gets the coordinates of that row, as the formula promises.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the dtype of X.

        Raises
        ------
        ValueError
            If some :math:`\lambda_t` is not below 1, so that the formula does not hold. That is so
            only for components of little meaning, in graphs that are nearly complete.
        """
        return self._transform(X)

    def _embed(self, points: Floats) -> Matrix:
        graph = self._connected(points, self.n_neighbors)
        self._reach = reach(graph, self.n_neighbors)
        lengths = graph.symmetrized()
        self.width_ = edge_scale(lengths) if self.width is None else float(self.width)
        W = affinities(lengths, self.weights, self.width_)
        self.eigenvalues_, F = eigenmaps(W, self.n_components)
        return F

    def _place(self, queries: Floats) -> Matrix:
        placed = np.empty((len(queries), self._places.shape[1]))
        for block in row_blocks(len(queries), 16 * len(self._points)):
            placed[block] = self._placed(queries[block])
        return placed

    def _placed(self, queries: Floats) -> Matrix:
        lengths = joined_rows(self._points, queries, n_neighbors=self._listed, reach=self._reach)
        K = affinities(lengths, self.weights, self.width_)
        sums = np.asarray(K.sum(axis=1)).reshape(-1, 1)
        rows = np.repeat(np.arange(len(queries)), np.diff(lengths.indptr))
        same = lengths.data == 0
        keep = 1 - self.eigenvalues_
        if len(np.unique(rows[same])) < len(queries):
            _check_invertible(keep)
        placed = (K @ self._places) / sums / np.where(keep > TINY, keep, 1.0)
        placed[rows[same]] = self._places[lengths.indices[same]]
        return np.asarray(placed)


def eigenmaps(W: sparse.csr_array, n_components: int) -> tuple[Matrix, Matrix]:
    r"""The smallest eigenvalues of :math:`L f = \lambda D f` and their vectors, without f = 1."""
    A, roots = normalized_affinity(W)
    normalized = sparse.csr_array(sparse.eye_array(len(roots), format="csr") - A)
    values, vectors = smallest_eigenpairs(normalized, n_components, roots / np.linalg.norm(roots))
    return values, vectors / roots[:, None]


def _check_invertible(keep: Matrix) -> None:
    good = int(np.argmin(keep > TINY)) if (keep <= TINY).any() else len(keep)
    if good < len(keep):
        raise ValueError(
            f"New points cannot be mapped with n_components={len(keep)}: the eigenvalue of "
            f"component {good} is {1 - keep[good]:.4g}, and must be below 1. "
            f"Fit with n_components={max(good, 1)} at most, or with fewer neighbours."
        )
