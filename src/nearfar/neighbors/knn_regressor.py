"""k-nearest-neighbor regression in the space of a fitted learner."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base import AfterLearner, LearnerTags, NeighborsBase
from nearfar.base.mapping import A_LEARNER
from nearfar.parameters import integer
from nearfar.search.exact_search import kneighbors
from nearfar.state import State, floats, table


class KNNRegressor(RegressorMixin, AfterLearner, NeighborsBase):
    r"""k-nearest-neighbor regressor for points transformed by a learner.

    .. math:: \hat y(x) = \tfrac1k \sum_{i \in N_k(x)} y_i

    where :math:`N_k(x)` are the k training points nearest to x. The search is exact and processes
    the queries in blocks. Among equally distant points, those with the smallest row number are
    taken.

    Use the regressor alone, as the last step of a Pipeline, or around a learner, which is cloned
    and fitted on the same rows and target values. The learner may use the values, use pairs or
    other supervision, or be unsupervised.

    Cost: the learner's fit, then O(n q) per query in q dimensions. The regressor stores the
    transformed training points. Without a learner, float16, float32 and memory-mapped rows are
    stored in their own type.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. None uses X without a transformation.
    n_neighbors : int, default=5
        Number of neighbors whose values are averaged.

    Attributes
    ----------
    estimator_ : object or None
        Fitted learner.

    See Also
    --------
    KNNClassifier, MLKR

    References
    ----------
    .. [1] T. M. Cover, "Estimation by the nearest neighbor rule", IEEE Transactions on Information
       Theory 14, 1968.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import KNNRegressor
    >>> X = np.arange(10.0)[:, None]
    >>> KNNRegressor(n_neighbors=2).fit(X, X[:, 0] ** 2).predict([[4.4], [0.0]]).tolist()
    [20.5, 0.5]
    """

    learner_tags = LearnerTags(reads="instances", role="regressor", supervision=("values",))
    state = State({"_points": table("n", "q", half=True), "_values": floats("n")}, rows="_points")
    parameters: ClassVar = {"estimator": A_LEARNER, "n_neighbors": [integer(1)]}
    half = True

    def __init__(self, estimator: Any = None, n_neighbors: int = 5) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Fit the learner and store the transformed training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Target values. They are averaged over neighbors and passed to the learner.
        supervision : Pairs, Triplets, Quadruplets, Chunklets or array-like, optional
            Supervision passed to the learner's ``fit``.

        Returns
        -------
        KNNRegressor
            The fitted regressor.
        """
        learner, points = self._fit_map(X, y, supervision)
        values = self._check_values(y, len(points), constant=True)
        self._check_neighbors(len(points))
        self.estimator_, self._points, self._values = learner, points, values
        return self

    def predict(self, X: ArrayLike) -> Vector:
        """Return the mean target value of the nearest training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New points.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        _, neighbors = self.kneighbors(X)
        return np.asarray(self._values[neighbors].mean(axis=1))

    @property
    def _n_training(self) -> int:
        return len(self._values)

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[Matrix, Indices]:
        queries = None if X is None else self._queries(X)
        return kneighbors(self._points, queries, n_neighbors=k)
