"""The Euclidean distance as an estimator, for comparison with learned metrics."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base import LearnerTags, LinearLearner
from nearfar.state import State, float_type
from nearfar.summaries.distributed import is_dask, make_empty_like


class Euclidean(LinearLearner):
    r"""Euclidean distance as an estimator that learns nothing.

    The distance is :math:`\|x - y\|`, and the map is the identity matrix.

    Use it in place of a metric learner to measure what learning improves.

    Cost: none.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        The identity matrix, created on access.

    See Also
    --------
    PCA, KNNClassifier

    Examples
    --------
    >>> from nearfar import Euclidean
    >>> Euclidean().fit([[0.0, 0.0], [3.0, 4.0]]).pair_distance([[[0, 0], [3, 4]]])
    array([5.])
    """

    learner_tags = LearnerTags(reads="statistics", supervised=False)
    state = State({"_dtype": float_type}, fitted="n_features_in_")
    parameters: ClassVar = {}

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Store the number of features.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points.
        y : ignored
            Present for API consistency.

        Returns
        -------
        Euclidean
            The fitted estimator.
        """
        self._dtype = self._check_features(X, reset=True).dtype
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, classes: ArrayLike | None = None
    ) -> Self:
        """Check that the batch has the same features as the first batch.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            More training points.
        y, classes : ignored
            Present for API consistency.

        Returns
        -------
        Euclidean
            The fitted estimator.
        """
        if not hasattr(self, "n_features_in_"):
            return self.fit(X)
        self._check_features(X, reset=False)
        return self

    def _check_features(self, X: ArrayLike, *, reset: bool) -> Floats:
        if is_dask(X):  # The values of X are not used, so they are not computed.
            return self._check_X(make_empty_like(X), reset=reset, min_samples=0)
        return self._check_X(X, reset=reset)

    def transform(self, X: ArrayLike) -> Floats:
        """Return the points unchanged.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            A copy in the dtype of X.
        """
        check_is_fitted(self)
        return self._check_X(X, reset=False).copy()

    @property
    def components_(self) -> Floats:  # type: ignore[override]
        """The identity matrix."""
        check_is_fitted(self)
        return np.eye(self.n_features_in_, dtype=self._dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")
