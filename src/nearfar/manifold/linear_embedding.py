"""Base class of the linear embeddings LPP and NPE."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearfar.arrays import Floats, Matrix
from nearfar.base import LinearLearner
from nearfar.parameters import AllowedValues, none, one_of, real
from nearfar.solvers.spectral_step import principal_axes, smallest_directions
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph, link_components
from nearfar.summaries.weighted_graph import build_neighbor_graph, check_distinct_rows

#: Allowed values of the parameter ``pca``.
PCA_PARAMETER: dict[str, list[AllowedValues]] = {
    "pca": [none, real(0, 1, open_low=True), one_of("auto")],
}
# With pca="auto", PCA is used if the number of rows is less than this multiple of the rank of the
# centered X.
_MIN_ROWS_PER_DIRECTION = 5
# Fraction of the variance that PCA keeps if pca="auto".
_VARIANCE_FRACTION = 0.99


class _LinearEmbedding(LinearLearner):
    """Base class of linear embeddings, which minimize a quadratic form of the neighbor graph.

    Subclasses implement ``_build_forms``.
    """

    n_components: int
    n_neighbors: int
    pca: float | Literal["auto"] | None
    on_disconnected: Disconnected
    eigenvalues_: Matrix

    @abstractmethod
    def _build_forms(self, points: Floats, graph: NeighborGraph) -> tuple[sparse.csr_array, Matrix]:
        """Return the sparse matrix of the quadratic form, and row weights that fix the scale."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the linear map.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points. Identical rows are merged before the fit.
        y : ignored
            Not used, present for API consistency.

        Returns
        -------
        object
            Fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        points, _ = check_distinct_rows(rows, 0)
        mean = points.mean(axis=0, dtype=np.float64)
        axes = find_axes(points, mean, self.pca, self.n_components)
        if self.n_components > axes.shape[1]:
            raise ValueError(
                f"n_components={self.n_components} is too large: X has {rows.shape[1]} feature(s) "
                f"but varies in only {axes.shape[1]} direction(s). Decrease n_components."
            )
        graph = build_neighbor_graph(points, self.n_neighbors)
        graph = link_components(graph, points, on_disconnected=self.on_disconnected)
        form, weights = self._build_forms(points, graph)
        Z = (points - mean) @ axes
        self.eigenvalues_, directions = smallest_directions(
            Z.T @ (form @ Z), Z.T @ (weights[:, None] * Z), self.n_components
        )
        self.mean_ = mean.astype(rows.dtype)
        self.components_ = (directions @ axes.T).astype(rows.dtype)
        return self


def find_axes(
    points: Floats, mean: Matrix, pca: float | Literal["auto"] | None, min_axes: int
) -> Matrix:
    """Return a (p, r) matrix whose columns span the space in which the eigenproblem is solved.

    Without PCA, the columns are all directions in which the rows vary, computed after scaling each
    feature to unit variance so that units do not matter. With PCA, the columns are the leading
    directions that have the fraction ``pca`` of the variance. There are at least ``min_axes``
    columns if the rows vary in that many directions.
    """
    centered = points - mean
    deviations = np.sqrt((centered**2).mean(axis=0))
    # The computed deviation of a constant column is a rounding error instead of zero.
    varies = deviations > 10 * np.finfo(np.float64).eps * np.abs(points).max(axis=0, initial=0)
    inverse_deviations = np.where(varies, 1 / np.where(varies, deviations, 1.0), 0.0)
    variances, axes = principal_axes(centered * inverse_deviations)
    if pca == "auto":
        pca = (
            None if len(points) >= _MIN_ROWS_PER_DIRECTION * len(variances) else _VARIANCE_FRACTION
        )
    if pca is None or pca == 1 or not len(variances):
        return np.asarray(inverse_deviations[:, None] * axes)
    variances, axes = principal_axes(np.where(varies, centered, 0.0))
    n_axes = int(np.searchsorted(np.cumsum(variances) / variances.sum(), pca - 1e-12)) + 1
    # Dividing by the largest standard deviation gives coordinates of about unit size for any data.
    return axes[:, : max(n_axes, min_axes)] / np.sqrt(variances[0] / len(points))
