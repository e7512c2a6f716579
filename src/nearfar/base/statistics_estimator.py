"""What solves from class statistics: in one go, in batches, on a cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Floats
from nearfar.base.accumulating import Accumulating, check_among
from nearfar.base.estimator import Estimator
from nearfar.blocks import blas_for
from nearfar.state import Sizes, State, need, object_of
from nearfar.summaries.class_statistics import ClassStatistics, check_weight
from nearfar.summaries.distributed import is_dask, statistics_of_blocks, without_rows


class StatisticsEstimator(Accumulating, Estimator):
    """An estimator that solves from :class:`~nearfar.ClassStatistics` alone.

    Subclasses write :meth:`_learn_from`; fitting in one go or in batches comes with it.
    ``partial_fit`` only accumulates: the solve runs once, when something learned is first asked
    for.

    Of dask arrays and dataframes (``pip install 'nearfar[dask]'``) the statistics are computed
    block by block where dask computes; only they come here, and the solve runs here.
    """

    state = State({"statistics_": object_of(ClassStatistics)}, fitted="statistics_")
    #: One scatter for all classes; False keeps one for each.
    pooled_statistics: ClassVar[bool] = True
    #: Parameters with which batches give what one fit gives, where the default looks at rows too.
    same_in_batches: ClassVar[dict[str, Any]] = {}
    statistics_: ClassStatistics

    @abstractmethod
    def _learn_from(self, statistics: ClassStatistics) -> None:
        """Set what was learned, in attributes that end in an underscore.

        On Ctrl-C it may raise :class:`~nearfar.solvers.subspaces.Interrupted` with components, once
        the best so far is set: the estimator is then fitted, and the interrupt goes on.
        """

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from all rows at once; forgets what was learned before.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points.
        y : array-like, dask array or dask series of shape (n_samples,)
            Labels; ignored by learners that need none.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        object
            The learner itself.
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
        """Accumulate more rows; new classes may appear unless ``classes`` were given.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            More training points.
        y : array-like, dask array or dask series of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), optional
            All labels that may come, as in scikit-learn; once given, others raise. Those without
            rows so far take no part in the solve.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        object
            The learner itself; the solve waits until it is needed.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=not self.__sklearn_is_fitted__())
        known = self._check_classes(classes)
        # Rows are seen once: float64 products, until those before show that float32 will do.
        self._accumulate(rows, y, sample_weight, exact=True, known=known)
        if known is not None:
            self._known_classes = known
        return self

    def _check_rows(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        """Rows to accumulate; of dask's, only what is known before computing is checked here."""
        if not is_dask(X):
            return self._check_X(X, reset=reset, min_samples=min_samples, finite=False)
        self._check_X(without_rows(X), reset=reset, min_samples=0)
        return X

    def _fit_with(self, accumulate: Callable[..., Self]) -> Self:
        """Accumulate anew and solve; a fit that fails leaves the learner unfitted."""
        self._drop_statistics()
        try:
            accumulate(exact=False)
            if self.statistics_.is_ill_conditioned():
                # Features so nearly collinear that float32 products lose what tells them apart.
                self._drop_statistics()
                accumulate(exact=True)
            return self._solved()
        except BaseException as error:
            if not self._left_a_solution(error):
                self._drop_statistics()
            raise

    def _accumulate(
        self,
        rows: Floats,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        *,
        exact: bool,
        known: NDArray[Any] | None = None,
    ) -> Self:
        if is_dask(rows):
            return self._accumulate_blocks(rows, y, sample_weight, known)
        if self.learner_tags.supervised:
            classes, codes = self._check_labels(y, len(rows), min_classes=1)
            check_among(classes, known)
        else:
            classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.intp)
        return self._add(rows, classes, codes, sample_weight, exact=exact)

    def _accumulate_blocks(
        self, X: Any, y: Any, sample_weight: Any, known: NDArray[Any] | None
    ) -> Self:
        if self.learner_tags.supervised and y is None:
            self._check_labels(None, 0)
        labels = y if self.learner_tags.supervised else None
        found = statistics_of_blocks(X, labels, sample_weight, pooled=self.pooled_statistics)
        check_among(found.classes, known)
        dtype = np.float32 if found.precision > np.finfo(np.float64).eps else np.float64
        fitted = self.__sklearn_is_fitted__()
        return self._keep(self.statistics_.merge(found) if fitted else found, np.dtype(dtype))

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
                "There is no row to learn from: every sample_weight is zero, or supervision puts "
                "no point into a chunklet."
            )
        with blas_for(10.0 * self.statistics_.n_features**3):
            self._learn_from(self.statistics_)

    def __sklearn_is_fitted__(self) -> bool:
        return self._has_statistics

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        fits = self.statistics_.n_features in (0, sizes.get("p"))
        need(fits, "statistics_ do not fit the number of features.")
