"""Classical multidimensional scaling."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Embedding, LearnerTags
from nearfar.manifold.graph_embedding import pairwise_tags
from nearfar.parameters import integer, one_of
from nearfar.solvers.spectral_step import (
    distance_axes,
    double_centered,
    first_solution,
    leading_spectrum,
    principal_axes,
    warn_of_empty,
)
from nearfar.state import State, floats


class ClassicalMDS(Embedding):
    r"""Classical multidimensional scaling: coordinates from distances.

    .. math:: \min_Y \|Y Y^T - B\|_F^2, \qquad B = -\tfrac12 H D^{(2)} H ,

    with squared distances :math:`D^{(2)}` and :math:`H = I - \frac1n 1 1^T`; solved by
    :math:`Y = V_q \Lambda_q^{1/2}` with the largest eigenvalues of B. The loss is the sum of the
    squares of the others.

    Use it on distances that were measured or computed in some way, with
    ``dissimilarity="precomputed"``. Of Euclidean distances it gives the scores of PCA. Not all
    distances are those of points in space: B then has negative eigenvalues, which no coordinates
    can show. They are left out, and ``negative_share_`` says how much is lost. This is not
    :class:`MDS`, which fits the distances themselves.

    Cost: O(n² p + n³) at most for Euclidean distances of n < p rows, O(n p² + p³) else, without
    any n×n array; O(n²) for each of some twenty products with given distances.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    dissimilarity : {"euclidean", "precomputed"}, default="euclidean"
        What X is: points, or an (n, n) array of distances, not squared. For ``transform`` the
        latter are those of new points (rows) to the training points.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training points.
    eigenvalues_ : ndarray of shape (n_components,)
        Of B, the largest first. Where one is not positive the coordinate is zero.
    negative_share_ : float
        The share of the negative eigenvalues of B in the sum of the absolute values of all.
        Estimated beyond 1000 rows.

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
    The lengths of ways in a star with three rays of length 1 are no distances in space:

    >>> import numpy as np
    >>> from nearfar import ClassicalMDS
    >>> star = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]])
    >>> mds = ClassicalMDS(dissimilarity="precomputed").fit(star)
    >>> mds.eigenvalues_
    array([2., 2.])
    >>> round(mds.negative_share_, 4)
    0.0588
    """

    learner_tags = LearnerTags(reads="instances", supervised=False)
    state = State({"_axes": floats("p", "q"), "_means": floats("p")}, rows="embedding_")
    parameters: ClassVar = {
        "n_components": [integer(1)],
        "dissimilarity": [one_of("euclidean", "precomputed")],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        dissimilarity: Literal["euclidean", "precomputed"] = "euclidean",
    ) -> None:
        self.n_components = n_components
        self.dissimilarity = dissimilarity

    def __sklearn_tags__(self) -> Any:
        return pairwise_tags(super().__sklearn_tags__(), self.dissimilarity == "precomputed")

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Embed points, or what has the given distances.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, n_samples) of distances
            Training points.
        y : ignored
            For the API.

        Returns
        -------
        ClassicalMDS
            Itself.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        if self.n_components >= len(rows):
            raise ValueError(
                f"n_components={self.n_components} must be less than n_samples={len(rows)}."
            )
        if self.dissimilarity == "precomputed":
            places = self._scale(checked_distances(rows))
        else:
            places = self._project(rows)
        warn_of_empty("ClassicalMDS", self.eigenvalues_)
        self.embedding_ = places.astype(rows.dtype)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points, or their distances to the training points, by Nyström's formula,

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, x_i), \qquad
            \tilde K(x, x_i) = -\tfrac12 \left( d^2(x, x_i) - \overline{d^2(\cdot, x_i)} -
            \overline{d^2(x, \cdot)} + \overline{d^2} \right) .

        Of Euclidean distances that is the projection on the principal axes. Training points get
        their own coordinates.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or (n_queries, n_samples) of distances
            Points.

        Returns
        -------
        ndarray of shape (n_queries, n_components)
            In the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        exact = np.ascontiguousarray(rows, np.float64)
        if self.dissimilarity == "precomputed":
            if (exact < 0).any():
                raise ValueError("X must hold distances, but some are negative.")
            placed = -0.5 * (exact**2 @ self._axes - self._means @ self._axes)
        else:
            placed = (exact - self._means) @ self._axes
        return np.asarray(placed, dtype=rows.dtype)

    def _project(self, rows: Floats) -> Matrix:
        """Principal axes: B is the Gram matrix of the centred rows."""
        q = self.n_components
        exact = np.ascontiguousarray(rows, np.float64)
        self._means = exact.mean(axis=0)
        centered = exact - self._means
        values, axes = principal_axes(centered)
        empty = max(0, q - len(values))
        self.eigenvalues_ = np.pad(values[:q], (0, empty))
        self.negative_share_ = 0.0
        self._axes = np.pad(axes[:, :q], ((0, 0), (0, empty)))
        return np.asarray(centered @ self._axes)

    def _scale(self, distances: Matrix) -> Matrix:
        squared = distances**2
        self._means = squared.mean(axis=0)
        values, vectors, self.negative_share_ = leading_spectrum(
            double_centered(squared, in_place=True), self.n_components
        )
        self.eigenvalues_ = values
        self._axes = distance_axes(values, vectors)
        return first_solution(values, vectors)


def checked_distances(X: Floats) -> Matrix:
    """A symmetric matrix of distances in float64; raises if it is none."""
    D = X.astype(np.float64)
    if D.shape[0] != D.shape[1]:
        raise ValueError(f"X must be a square array of distances; got shape {D.shape}.")
    size = float(np.abs(D).max())
    if (D < 0).any():
        raise ValueError("X must hold distances, but some are negative.")
    rounding = 1e-5 if X.dtype == np.float32 else 1e-8
    if np.abs(D.diagonal()).max() > rounding * size:
        raise ValueError("X must hold distances, but those on the diagonal are not zero.")
    if np.abs(D - D.T).max() > rounding * size:
        raise ValueError("X must hold distances, but the array is not symmetric.")
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0)
    return D
