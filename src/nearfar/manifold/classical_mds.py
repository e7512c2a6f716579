"""Classical multidimensional scaling."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Embedding, LearnerTags
from nearfar.manifold.graph_embedding import set_pairwise_tag
from nearfar.parameters import integer, one_of
from nearfar.solvers.spectral_step import (
    distance_axes,
    double_center,
    first_solution,
    leading_spectrum,
    principal_axes,
    warn_about_zero_coordinates,
)
from nearfar.state import State, floats


class ClassicalMDS(Embedding):
    r"""Classical multidimensional scaling: an embedding computed from distances.

    .. math:: \min_Y \|Y Y^T - B\|_F^2, \qquad B = -\tfrac12 H D^{(2)} H ,

    with squared distances :math:`D^{(2)}` and :math:`H = I - \frac1n 1 1^T`. The solution is
    :math:`Y = V_q \Lambda_q^{1/2}` with the largest eigenvalues of B. The loss is the sum of the
    squares of the other eigenvalues.

    Use it on measured or computed distances, with ``metric="precomputed"``. On Euclidean
    distances it returns the scores of PCA. If no set of points in a Euclidean space has the given
    distances, B has negative eigenvalues. The embedding ignores these, and ``negative_share_``
    measures the loss. In contrast, :class:`MDS` fits the distances themselves.

    Cost: for Euclidean distances at most O(n² p + n³) if n < p, and O(n p² + p³) otherwise, without
    an n×n array. For precomputed distances O(n²) for each of about twenty matrix products.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    metric : {"euclidean", "precomputed"}, default="euclidean"
        Distance between samples: "euclidean" if X contains points, "precomputed" if X is an (n, n)
        array of distances (not squared). With "precomputed", ``transform`` expects the distances
        from new points (rows) to training points.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training points.
    eigenvalues_ : ndarray of shape (n_components,)
        Largest eigenvalues of B, in descending order. If an eigenvalue is not positive, the
        corresponding coordinate is zero.
    negative_share_ : float
        Sum of the absolute values of the negative eigenvalues of B, divided by the sum of the
        absolute values of all eigenvalues. The value is estimated if there are more than 1000 rows.

    See Also
    --------
    MDS, Isomap, PCA, EuclideanEmbedding

    References
    ----------
    .. [1] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 4.2;
       new points in section 4.4.
    .. [2] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.1.

    Examples
    --------
    Path lengths in a star with three rays of length 1 are not Euclidean distances:

    >>> import numpy as np
    >>> from nearfar import ClassicalMDS
    >>> star = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]])
    >>> mds = ClassicalMDS(metric="precomputed").fit(star)
    >>> mds.eigenvalues_
    array([2., 2.])
    >>> round(mds.negative_share_, 4)
    0.0588
    """

    learner_tags = LearnerTags(reads="instances", supervised=False)
    renamed: ClassVar = {"dissimilarity": "metric"}
    state = State({"_axes": floats("p", "q"), "_means": floats("p")}, rows="embedding_")
    parameters: ClassVar = {
        "n_components": [integer(1)],
        "metric": [one_of("euclidean", "precomputed")],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        metric: Literal["euclidean", "precomputed"] = "euclidean",
    ) -> None:
        self.n_components = n_components
        self.metric = metric

    def __sklearn_tags__(self) -> Any:
        return set_pairwise_tag(super().__sklearn_tags__(), self.metric == "precomputed")

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Embed the training points, or objects that are given by their distances.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_samples)
            Training points, or their distances if ``metric="precomputed"``.
        y : ignored
            Not used, present for API consistency.

        Returns
        -------
        ClassicalMDS
            Fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        if self.n_components >= len(rows):
            raise ValueError(
                f"n_components={self.n_components} must be less than n_samples={len(rows)}."
            )
        if self.metric == "precomputed":
            coordinates = self._scale(check_distances(rows))
        else:
            coordinates = self._project(rows)
        warn_about_zero_coordinates("ClassicalMDS", self.eigenvalues_)
        self.embedding_ = coordinates.astype(rows.dtype)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map new points with Nyström's formula.

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, x_i), \qquad
            \tilde K(x, x_i) = -\tfrac12 \left( d^2(x, x_i) - \overline{d^2(\cdot, x_i)} -
            \overline{d^2(x, \cdot)} + \overline{d^2} \right) .

        For Euclidean distances this is the projection onto the principal axes. A training point
        gets its own coordinates.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or (n_queries, n_samples)
            Points to map, or their distances to the training points if ``metric="precomputed"``.

        Returns
        -------
        ndarray of shape (n_queries, n_components)
            Coordinates, in the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        exact = np.ascontiguousarray(rows, np.float64)
        if self.metric == "precomputed":
            if (exact < 0).any():
                raise ValueError("X must contain distances, but some entries are negative.")
            new_coordinates = -0.5 * (exact**2 @ self._axes - self._means @ self._axes)
        else:
            new_coordinates = (exact - self._means) @ self._axes
        return np.asarray(new_coordinates, dtype=rows.dtype)

    def _project(self, rows: Floats) -> Matrix:
        """Project points onto principal axes. The result equals classical scaling of distances."""
        q = self.n_components
        exact = np.ascontiguousarray(rows, np.float64)
        self._means = exact.mean(axis=0)
        centered = exact - self._means
        values, axes = principal_axes(centered)
        n_missing = max(0, q - len(values))
        self.eigenvalues_ = np.pad(values[:q], (0, n_missing))
        self.negative_share_ = 0.0
        self._axes = np.pad(axes[:, :q], ((0, 0), (0, n_missing)))
        return np.asarray(centered @ self._axes)

    def _scale(self, distances: Matrix) -> Matrix:
        squared = distances**2
        self._means = squared.mean(axis=0)
        values, vectors, self.negative_share_ = leading_spectrum(
            double_center(squared, in_place=True), self.n_components
        )
        self.eigenvalues_ = values
        self._axes = distance_axes(values, vectors)
        return first_solution(values, vectors)


def check_distances(X: Floats) -> Matrix:
    """Return X as a symmetric float64 array, or raise an error if X is not a distance matrix."""
    D = X.astype(np.float64)
    if D.shape[0] != D.shape[1]:
        raise ValueError(f"X must be a square array of distances. Got shape {D.shape}.")
    size = float(np.abs(D).max())
    if (D < 0).any():
        raise ValueError("X must contain distances, but some entries are negative.")
    rounding = 1e-5 if X.dtype == np.float32 else 1e-8
    if np.abs(D.diagonal()).max() > rounding * size:
        raise ValueError("X must contain distances, but its diagonal is not zero.")
    if np.abs(D - D.T).max() > rounding * size:
        raise ValueError("X must contain distances, but it is not symmetric.")

    D = (D + D.T) / 2
    np.fill_diagonal(D, 0)
    return D
