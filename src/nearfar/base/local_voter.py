"""Classifiers whose metric changes from query to query."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.explanation import LocalExplanation
from nearfar.base.mapping import A_LEARNER, ThroughLearner
from nearfar.base.relevance import names_of_features, relevance_of
from nearfar.base.tags import LearnerTags
from nearfar.base.voter import NeighborVoter, vote
from nearfar.blocks import effective_threads, map_in_order, row_blocks
from nearfar.parameters import Allowed, boolean, integer, none, one_of
from nearfar.state import Sizes, State, floats, need, table
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows

#: What the parameters may be that all local rules share.
LOCAL_PARAMETERS: dict[str, list[Allowed]] = {
    "estimator": A_LEARNER,
    "n_neighbors": [integer(1)],
    "standardize": [boolean],
    "ties": [one_of("shrink", "first")],
    "n_jobs": [none, integer(1), integer(high=-1)],
}


class LocalVoter(ThroughLearner, NeighborVoter):
    """Vote of the nearest training rows under a metric of its own for each query.

    A subclass writes `_metrics`: the metrics of a block of queries, in standard units. What it
    learns beyond the rows goes into `_learn`. One whose rule is no metric writes `_found`, and
    `_explained` for its explanations.
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    state = State({"_points": table("n", "q"), "deviations_": floats("q")}, rows="_points")

    standardize: bool
    n_jobs: int | None
    deviations_: Vector
    _points: Matrix

    #: Queries that are worked on at once, at most; memory may allow fewer.
    at_once: ClassVar[int] = 256

    @abstractmethod
    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        """The metric at each query; training rows (``queries.own``) must not see themselves."""

    def _learn(self, rows: LocalRows) -> None:
        """Check and learn what a rule needs beyond the rows; the last step of a fit."""

    def _found(self, rows: LocalRows, queries: LocalQueries, k: int) -> tuple[Matrix, Indices]:
        """Distances and numbers of the k nearest rows of each query, nearest first."""
        return rows.nearest(queries, self._metrics(rows, queries), k)

    def _explained(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, NDArray[np.float64], Matrix, Indices]:
        """Relevances, contributions, distances and numbers of the k nearest rows."""
        metrics = self._metrics(rows, queries)
        distances, found = rows.nearest(queries, metrics, k)
        owner = np.repeat(np.arange(len(queries)), k)
        parts = metrics.parts(rows.apart(queries, owner, found.ravel()), owner)
        return self._relevance(rows, metrics), parts.reshape(*found.shape, -1), distances, found

    def _relevance(self, rows: LocalRows, metrics: LocalMetrics) -> Matrix:
        """Shares of a step of one deviation along each feature."""
        return relevance_of(metrics.diagonals(), self.deviations_ / rows.scale)

    # ------------------------------------------------------------------ fit

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Fit the learner, if any, and keep the mapped training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels, for the vote, the metrics and the learner.
        supervision : Pairs, Triplets, Quadruplets, Chunklets or array-like, optional
            Handed to the learner.

        Returns
        -------
        LocalVoter
            Itself.
        """
        learner, mapped, classes, codes = self._fit_learner(X, y, supervision)
        self._check_neighbors(len(mapped))
        points = np.ascontiguousarray(mapped, np.float64)
        self.deviations_ = deviations_of(points)
        rows = LocalRows(points, codes, len(classes), self._scale())
        self._learn(rows)
        self.estimator_, self.classes_ = learner, classes
        self._points, self._codes = points, codes
        return self

    def _scale(self) -> Vector:
        """By what features are divided."""
        divided = bool(self.standardize) & (self.deviations_ > 0)
        return np.where(divided, self.deviations_, 1.0)

    def _rows(self) -> LocalRows:
        check_is_fitted(self)
        return LocalRows(self._points, self._codes, len(self.classes_), self._scale())

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        need((self.deviations_ >= 0).all(), "deviations_ must not be negative.")

    @classmethod
    def grid(cls, X: ArrayLike, y: ArrayLike) -> dict[str, list[Any]]:
        """Parameters worth trying on such data, for ``GridSearchCV``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        dict
            Values of parameters by name. Sizes suit training folds of at least half of the rows.
        """
        n, p = np.shape(X)
        return cls._grid(n // 2, p, len(np.unique(np.asarray(y))))

    @classmethod
    @abstractmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        """Parameters worth trying, for at least n rows."""

    def _check_size(self, name: str, n_rows: int) -> None:
        """Refuse a number of rows, the parameter of that name, that there are not."""
        size = getattr(self, name)
        if size is not None and size > n_rows:
            raise ValueError(
                f"{name}={size} is more than there are training {self.called}s "
                f"(n_samples={n_rows})."
            )

    # ------------------------------------------------------------------ queries

    def _blocks(
        self, rows: LocalRows, X: ArrayLike | None, own: Indices | None = None
    ) -> Iterator[LocalQueries]:
        """Blocks of queries; training rows themselves if X is None."""
        if X is None:
            own = np.arange(len(rows)) if own is None else own
            given = rows.given[own]
        else:
            given = np.ascontiguousarray(self._queries(X), np.float64)
        n, p = rows.given.shape
        for block in row_blocks(len(given), 48 * n + 48 * p * p, at_most=self.at_once):
            yield rows.queries(given[block], None if X is not None or own is None else own[block])

    def _by_block(
        self,
        rows: LocalRows,
        X: ArrayLike | None,
        work: Callable[[LocalQueries], tuple[NDArray[Any], ...]],
    ) -> tuple[NDArray[Any], ...]:
        """What work makes of blocks of queries, put together, by several threads."""
        done = list(map_in_order(work, self._blocks(rows, X), effective_threads(self.n_jobs)))
        return tuple(np.concatenate(parts) for parts in zip(*done, strict=True))

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[Matrix, Indices]:
        rows = self._rows()
        distances, found = self._by_block(rows, X, lambda block: self._found(rows, block, k))
        return distances, found

    def metric_at(self, X: ArrayLike) -> NDArray[np.float64]:
        """The metric at each point, for differences of points (of mapped ones after a learner).

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_queries, p, p)
            Symmetric matrices M: the squared distance is (x - x0)' M (x - x0).
        """
        rows = self._rows()
        units = np.outer(rows.scale, rows.scale)
        (found,) = self._by_block(
            rows, X, lambda block: (self._metrics(rows, block).matrices() / units,)
        )
        return found

    def explain(self, X: ArrayLike, *, overall: bool = True) -> LocalExplanation:
        """Which features mattered at each point, and how its voters come to be near.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Points.
        overall : bool, default=True
            Find the mean relevance over all training rows, too, each by the metric built without
            it; takes as long as the leave-one-out error.

        Returns
        -------
        LocalExplanation
            Of the features after the learner's map, if there is a learner.
        """
        rows, k = self._rows(), self._n_voters()
        relevance, contributions, distances, found = self._by_block(
            rows, X, lambda block: self._explained(rows, block, k)
        )
        mean = None
        if overall and len(rows) > k:
            (shares,) = self._by_block(
                rows, None, lambda block: (self._explained(rows, block, 1)[0],)
            )
            mean = shares.mean(axis=0)
        winners = vote(self._codes[found], len(self.classes_), self.ties)
        return LocalExplanation(
            relevance=relevance,
            contributions=contributions,
            neighbors=found,
            distances=distances,
            neighbor_labels=self.classes_[self._codes[found]],
            labels=self.classes_[winners],
            feature_names=self._feature_names(rows.n_features),
            overall=mean,
            ties=self.ties,
        )

    def _feature_names(self, n_features: int) -> list[str]:
        if self.estimator_ is None:
            return names_of_features(self, n_features)
        try:
            names = [str(name) for name in self.estimator_.get_feature_names_out()]
        except (AttributeError, ValueError):
            names = []
        return names if len(names) == n_features else names_of_features(None, n_features)


def deviations_of(points: Matrix) -> Vector:
    """Deviations of columns, divisor n; exactly 0 for constant ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = np.std(points, axis=0)
    if not np.isfinite(deviations).all():
        raise ValueError(
            f"Squares of X overflow float64: the largest value found is "
            f"{np.abs(points).max():.3g}; divide the data by a constant."
        )
    return np.where(np.ptp(points, axis=0) > 0, deviations, 0.0)
