"""The plain Euclidean distance as a learner: the baseline of every comparison."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base import LearnerTags, LinearLearner
from nearfar.state import State, float_type
from nearfar.summaries.distributed import is_dask, without_rows


class Euclidean(LinearLearner):
    r"""The Euclidean distance, :math:`L = I`.

    Learns nothing: put it where a learner is expected, to see what learning gains.

    Cost: none.

    Attributes
    ----------
    components_ : ndarray of shape (n_features, n_features)
        The identity, made when asked for.

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
        """Note the number of features.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points.
        y : ignored
            For the API.

        Returns
        -------
        Euclidean
            Itself.
        """
        self._dtype = self._check_features(X, reset=True).dtype
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, classes: ArrayLike | None = None
    ) -> Self:
        """Check that the batch has the same features.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            More points.
        y, classes : ignored
            For the API.

        Returns
        -------
        Euclidean
            Itself.
        """
        if not hasattr(self, "n_features_in_"):
            return self.fit(X)
        self._check_features(X, reset=False)
        return self

    def _check_features(self, X: ArrayLike, *, reset: bool) -> Floats:
        if is_dask(X):  # nothing is learned from the rows: they need not be computed
            return self._check_X(without_rows(X), reset=reset, min_samples=0)
        return self._check_X(X, reset=reset)

    def transform(self, X: ArrayLike) -> Floats:
        """The points as they are.

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
