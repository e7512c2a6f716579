"""Base class of estimators that are solved from class statistics: arrays, batches or dask."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Floats
from nearfar.base.accumulating import IncrementalEstimator, check_known_classes
from nearfar.base.estimator import Estimator
from nearfar.blocks import check_magnitudes, limit_blas_for
from nearfar.state import Sizes, State, check_that, object_of
from nearfar.summaries.class_statistics import ClassStatistics, check_weight
from nearfar.summaries.distributed import compute_block_statistics, is_dask, make_empty_like


class StatisticsEstimator(IncrementalEstimator, Estimator):
    """Estimator that is computed from :class:`~nearfar.ClassStatistics` alone.

    Subclasses implement :meth:`_learn_from` and inherit ``fit`` and ``partial_fit``.
    ``partial_fit`` only accumulates. The solver runs once, on the first access to a fitted
    attribute.

    For dask arrays and data frames (``pip install 'nearfar[dask]'``), the dask workers compute the
    statistics block by block. Only the statistics are sent to the calling process, which solves.
    """

    state = State({"statistics_": object_of(ClassStatistics)}, fitted="statistics_")
    #: Whether one scatter matrix is stored for all classes together. False stores one per class.
    pooled_statistics: ClassVar[bool] = True
    #: Parameters with which batches give the same result as one fit. They are needed only if the
    #: solution with default parameters also depends on the rows themselves.
    batch_parameters: ClassVar[dict[str, Any]] = {}
    statistics_: ClassStatistics

    @abstractmethod
    def _learn_from(self, statistics: ClassStatistics) -> None:
        """Compute the solution from the statistics, and set the fitted attributes.

        On Ctrl-C, this method may set the best solution so far and then raise
        :class:`~nearfar.solvers.subspaces.Interrupted` with components. The estimator is then
        fitted, and the interrupt propagates.
        """

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit to all rows at once, and discard earlier results.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points.
        y : array-like, dask array or dask series of shape (n_samples,)
            Labels. Ignored by unsupervised learners.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        object
            The fitted learner.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=True, min_samples=2)
        return self._fit_with(partial(self._accumulate, rows, y, sample_weight))

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Accumulate a batch of rows.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points of this batch.
        y : array-like, dask array or dask series of shape (n_samples,)
            Labels. Ignored by unsupervised learners.
        classes : array-like of shape (n_classes,), optional
            All labels that batches may contain, as in scikit-learn. Other labels then raise an
            error. None allows new labels in any batch. Classes without rows are ignored.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        object
            The learner, which solves on the first access to a fitted attribute.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=not self.__sklearn_is_fitted__())
        known_classes = self._check_classes(classes)
        # Each row is read only once, so use float64 products until the statistics show that
        # float32 products are accurate enough.
        self._accumulate(rows, y, sample_weight, exact=True, known_classes=known_classes)
        if known_classes is not None:
            self._known_classes = known_classes
        return self

    def _check_rows(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        """Validate rows. For dask, check only properties that are known before the computation."""
        if not is_dask(X):
            return self._check_X(X, reset=reset, min_samples=min_samples, finite=False)
        self._check_X(make_empty_like(X), reset=reset, min_samples=0)
        return X

    def _fit_with(self, accumulate: Callable[..., Self]) -> Self:
        """Accumulate new statistics and solve. A failed fit leaves the learner unfitted."""
        self._drop_statistics()
        try:
            accumulate(exact=False)
            if self.statistics_.is_ill_conditioned():
                # The features are nearly collinear, so float32 products are not accurate enough.
                self._drop_statistics()
                accumulate(exact=True)
            return self._run_solve()
        except BaseException as error:
            if not self._has_solution(error):
                self._drop_statistics()
            raise

    def _accumulate(
        self,
        rows: Floats,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        *,
        exact: bool,
        known_classes: NDArray[Any] | None = None,
    ) -> Self:
        if is_dask(rows):
            return self._accumulate_blocks(rows, y, sample_weight, known_classes)
        if self.learner_tags.supervised:
            classes, codes = self._check_labels(y, len(rows), min_classes=1)
            check_known_classes(classes, known_classes)
        else:
            classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.intp)
        return self._add(rows, classes, codes, sample_weight, exact=exact)

    def _accumulate_blocks(
        self, X: Any, y: Any, sample_weight: Any, known_classes: NDArray[Any] | None
    ) -> Self:
        if self.learner_tags.supervised and y is None:
            self._check_labels(None, 0)
        labels = y if self.learner_tags.supervised else None
        statistics = compute_block_statistics(
            X, labels, sample_weight, pooled=self.pooled_statistics
        )
        check_known_classes(statistics.classes, known_classes)
        dtype = np.float32 if statistics.precision > np.finfo(np.float64).eps else np.float64
        is_fitted = self.__sklearn_is_fitted__()
        return self._keep(
            self.statistics_.merge(statistics) if is_fitted else statistics, np.dtype(dtype)
        )

    def _add(
        self,
        rows: Floats,
        classes: NDArray[Any],
        codes: NDArray[np.intp],
        sample_weight: ArrayLike | None,
        *,
        exact: bool,
    ) -> Self:
        weight = None if sample_weight is None else check_weight(sample_weight, len(rows))
        statistics = (
            self.statistics_
            if self.__sklearn_is_fitted__()
            else ClassStatistics(pooled=self.pooled_statistics, exact=exact)
        )
        statistics.add(rows, classes, codes, weight, sparing=True)
        return self._keep(statistics, rows.dtype)

    def _solve_statistics(self) -> None:
        if self.statistics_.n_classes == 0:
            raise ValueError(
                "X contains no rows to learn from: every sample_weight is zero, or supervision "
                "puts no point into a chunklet."
            )
        check_magnitudes(self._estimate_magnitudes(), "X")
        with limit_blas_for(10.0 * self.statistics_.n_features**3):
            self._learn_from(self.statistics_)

    def _estimate_magnitudes(self) -> Floats:
        """Return the root mean square of each feature, or its largest mean if this is larger."""
        statistics = self.statistics_
        with np.errstate(over="ignore", invalid="ignore"):
            deviations = np.sqrt(statistics.total_variances())
        size = np.maximum(np.abs(statistics.means).max(axis=0), np.nan_to_num(deviations))
        return size.astype(self._dtype)

    def __sklearn_is_fitted__(self) -> bool:
        return self._has_statistics

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        matches = self.statistics_.n_features in (0, sizes.get("p"))
        check_that(matches, "statistics_ do not match the number of features.")
