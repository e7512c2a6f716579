"""Base class of nearest-neighbor classifiers with a separate metric for each query."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.explanation import LocalExplanation
from nearfar.base.mapping import A_LEARNER, AfterLearner
from nearfar.base.relevance import compute_relevance, get_feature_names
from nearfar.base.tags import LearnerTags
from nearfar.base.voter import NeighborsClassifier, vote
from nearfar.blocks import map_in_order, resolve_n_threads, split_rows
from nearfar.parameters import AllowedValues, boolean, integer, none, one_of
from nearfar.state import Sizes, State, check_that, floats, table
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows

#: Allowed values of the parameters that all local classifiers share.
LOCAL_PARAMETERS: dict[str, list[AllowedValues]] = {
    "estimator": A_LEARNER,
    "n_neighbors": [integer(1)],
    "standardize": [boolean],
    "ties": [one_of("shrink", "first")],
    "n_jobs": [none, integer(1), integer(high=-1)],
}


class LocalClassifier(AfterLearner, NeighborsClassifier):
    """Nearest-neighbor classifier with a separate metric for each query.

    A subclass implements ``_metrics``, which returns the metrics of a block of queries, in units
    of the (standardized) features. It implements ``_learn`` if it learns more than the rows. A
    classifier without a metric implements ``_find_neighbors`` and ``_explain_block`` instead.
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    state = State({"_points": table("n", "q"), "deviations_": floats("q")}, rows="_points")

    standardize: bool
    n_jobs: int | None
    deviations_: Vector
    _points: Matrix

    #: Maximum number of queries per block. The memory limit can make blocks smaller.
    max_queries_per_block: ClassVar[int] = 256

    @abstractmethod
    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        """Return the metric at each query.

        The metric must not use the rows in ``queries.excluded``, for example the query itself.
        """

    def _learn(self, rows: LocalRows) -> None:
        """Check the rows and set further fitted attributes. This is the last step of a fit."""

    def _find_neighbors(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, Indices]:
        """Return distances and indices of the k nearest rows of each query, nearest first."""
        return rows.find_nearest(queries, self._metrics(rows, queries), k)

    def _explain_block(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, NDArray[np.float64], Matrix, Indices]:
        """Return the data for the explanation of a block of queries.

        The data are the relevance of each feature, and for the k nearest rows of each query the
        contributions of the features, the distances and the indices.
        """
        metrics = self._metrics(rows, queries)
        distances, neighbors = rows.find_nearest(queries, metrics, k)
        owner = np.repeat(np.arange(len(queries)), k)
        contributions = metrics.split_by_feature(
            rows.compute_differences(queries, owner, neighbors.ravel()), owner
        )
        return (
            self._relevance(rows, metrics),
            contributions.reshape(*neighbors.shape, -1),
            distances,
            neighbors,
        )

    def _relevance(self, rows: LocalRows, metrics: LocalMetrics) -> Matrix:
        """Return the relevance of each feature, as defined in `LocalExplanation`."""
        return compute_relevance(metrics.get_diagonals(), self.deviations_ / rows.scale)

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Fit ``estimator``, if any, and store the mapped training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels. They are used for the vote, for the metrics and to fit ``estimator``.
        supervision : Pairs, Triplets, Quadruplets, Chunklets or array-like, optional
            Supervision passed to the ``fit`` of ``estimator``.

        Returns
        -------
        LocalClassifier
            The fitted classifier.
        """
        learner, mapped, classes, codes = self._fit_learner(X, y, supervision)
        self._check_neighbors(len(mapped))
        points = np.ascontiguousarray(mapped, np.float64)
        self.deviations_ = compute_deviations(points)
        rows = LocalRows(points, codes, len(classes), self._scale())
        self._learn(rows)
        self.estimator_, self.classes_ = learner, classes
        self._points, self._codes = points, codes
        return self

    def _scale(self) -> Vector:
        """Return the divisor of each feature: its standard deviation, or 1 if it is not scaled."""
        is_divided = bool(self.standardize) & (self.deviations_ > 0)
        return np.where(is_divided, self.deviations_, 1.0)

    def _rows(self) -> LocalRows:
        check_is_fitted(self)
        return LocalRows(self._points, self._codes, len(self.classes_), self._scale())

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        check_that((self.deviations_ >= 0).all(), "deviations_ must not be negative.")

    @classmethod
    def grid(cls, X: ArrayLike, y: ArrayLike) -> dict[str, list[Any]]:
        """Return a parameter grid for ``GridSearchCV`` that suits the size of the data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        dict
            Lists of values by parameter name. All values are valid for training folds with at
            least half of the rows.
        """
        n, p = np.shape(X)
        return cls._grid(n // 2, p, len(np.unique(np.asarray(y))))

    @classmethod
    @abstractmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        """Return a parameter grid for training sets of at least n rows."""

    def _check_size(self, name: str, n_rows: int) -> None:
        """Raise if the parameter ``name`` is larger than the number of rows."""
        size = getattr(self, name)
        if size is not None and size > n_rows:
            raise ValueError(
                f"{name}={size} is larger than the number of training {self.noun}s "
                f"(n_samples={n_rows})."
            )

    def _blocks(
        self, rows: LocalRows, X: ArrayLike | None, own: Indices | None = None
    ) -> Iterator[LocalQueries]:
        """Yield blocks of queries. If X is None, the training rows are the queries."""
        if X is None:
            own = np.arange(len(rows)) if own is None else own
            points = rows.X[own]
        else:
            points = np.ascontiguousarray(self._queries(X), np.float64)
        n, p = rows.X.shape
        for block in split_rows(
            len(points), 48 * n + 48 * p * p, max_rows=self.max_queries_per_block
        ):
            yield rows.make_queries(
                points[block], None if X is not None or own is None else own[block]
            )

    def _by_block(
        self,
        rows: LocalRows,
        X: ArrayLike | None,
        work: Callable[[LocalQueries], tuple[NDArray[Any], ...]],
    ) -> tuple[NDArray[Any], ...]:
        """Apply ``work`` to blocks of queries in threads, and concatenate the results."""
        results = list(map_in_order(work, self._blocks(rows, X), resolve_n_threads(self.n_jobs)))
        return tuple(np.concatenate(arrays) for arrays in zip(*results, strict=True))

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[Matrix, Indices]:
        rows = self._rows()
        distances, neighbors = self._by_block(
            rows, X, lambda block: self._find_neighbors(rows, block, k)
        )
        return distances, neighbors

    def metric_at(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the metric at each point.

        If ``estimator`` is set, the metric applies to the mapped points.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_queries, p, p)
            Symmetric matrices M. The squared distance from x to the point x0 is
            (x - x0)' M (x - x0), with M the matrix of x0.
        """
        rows = self._rows()
        units = np.outer(rows.scale, rows.scale)
        (matrices,) = self._by_block(
            rows, X, lambda block: (self._metrics(rows, block).to_matrices() / units,)
        )
        return matrices

    def explain(self, X: ArrayLike, *, overall: bool = True) -> LocalExplanation:
        """Explain the prediction at each point: relevant features, neighbors and distances.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Points.
        overall : bool, default=True
            Whether to compute the mean relevance over all training rows. The metric at a training
            row does not use this row. The computation takes as long as that of the leave-one-out
            error.

        Returns
        -------
        LocalExplanation
            Explanation of all points. If ``estimator`` is set, the features are those of the mapped
            points.
        """
        rows, k = self._rows(), self._n_voters()
        relevance, contributions, distances, neighbors = self._by_block(
            rows, X, lambda block: self._explain_block(rows, block, k)
        )
        mean = None
        if overall and len(rows) > k:
            (training_relevance,) = self._by_block(
                rows, None, lambda block: (self._explain_block(rows, block, 1)[0],)
            )
            mean = training_relevance.mean(axis=0)
        winners = vote(self._codes[neighbors], len(self.classes_), self.ties)
        return LocalExplanation(
            relevance=relevance,
            contributions=contributions,
            neighbors=neighbors,
            distances=distances,
            neighbor_labels=self.classes_[self._codes[neighbors]],
            labels=self.classes_[winners],
            feature_names=self._feature_names(rows.n_features),
            overall=mean,
            ties=self.ties,
        )

    def _feature_names(self, n_features: int) -> list[str]:
        if self.estimator_ is None:
            return get_feature_names(self, n_features)
        try:
            names = [str(name) for name in self.estimator_.get_feature_names_out()]
        except (AttributeError, ValueError):
            names = []
        return names if len(names) == n_features else get_feature_names(None, n_features)


def compute_deviations(points: Matrix) -> Vector:
    """Return the standard deviations (divisor n) of columns. Constant columns give exactly 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = np.std(points, axis=0)
    if not np.isfinite(deviations).all():
        raise ValueError(
            f"Squares of X overflow float64: the largest absolute value is "
            f"{np.abs(points).max():.3g}. Divide X by a constant."
        )
    return np.where(np.ptp(points, axis=0) > 0, deviations, 0.0)
