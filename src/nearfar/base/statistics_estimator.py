"""What solves from class statistics: in one go, in batches, on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Floats
from nearfar.base.estimator import Estimator
from nearfar.blocks import blas_for
from nearfar.labels import encode_labels
from nearfar.solvers.subspaces import Interrupted
from nearfar.state import Sizes, State, float_type, labels, list_of, need, object_of, optional, text
from nearfar.summaries.class_statistics import ClassStatistics, check_weight
from nearfar.summaries.distributed import is_dask, statistics_of_blocks, without_rows


class StatisticsEstimator(Estimator, ABC):
    """An estimator that solves from :class:`~nearfar.ClassStatistics` alone.

    Subclasses write :meth:`_learn`; fitting in one go or in batches comes with it. ``partial_fit``
    only accumulates: the solve runs once, when something learned is first asked for. Where what
    was seen so far cannot be solved, asking raises the solve's error (``hasattr`` too).

    Of dask arrays and dataframes (``pip install 'nearfar[dask]'``) the statistics are computed
    block by block where dask computes; only they come here, and the solve runs here.
    """

    state = State(
        {
            "statistics_": object_of(ClassStatistics),
            "_dtype": float_type,
            "_learned": optional(list_of(text, "learned")),
            "_known_classes": optional(labels("known")),
        },
        fitted="statistics_",
    )
    #: One scatter for all classes; False keeps one for each.
    pooled_statistics: ClassVar[bool] = True
    #: Parameters with which batches give what one fit gives, where the default looks at rows too.
    same_in_batches: ClassVar[dict[str, Any]] = {}
    statistics_: ClassStatistics

    @abstractmethod
    def _learn(self, statistics: ClassStatistics) -> None:
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
        # Rows are seen once: float64 products, as their condition shows only later.
        self._accumulate(rows, y, sample_weight, exact=True, known=known)
        if known is not None:
            self._known_classes = known
        return self

    def _check_classes(self, classes: ArrayLike | None) -> NDArray[Any] | None:
        """The labels that may come, sorted; None for any."""
        before: NDArray[Any] | None = vars(self).get("_known_classes")
        if classes is None or not self.learner_tags.supervised:
            return before
        known, _ = encode_labels(classes, name="classes")
        if before is not None and known.tolist() != before.tolist():
            raise ValueError(
                f"classes must be the same in every batch: {before.tolist()} before, now "
                f"{known.tolist()}."
            )
        if before is None and self.__sklearn_is_fitted__():
            _check_among(self.statistics_.classes, known)
        return known

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
            if not (isinstance(error, Interrupted) and error.components is not None):
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
            _check_among(classes, known)
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
        _check_among(found.classes, known)
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
        return self._keep(statistics.add(rows, classes, codes, weight), rows.dtype)

    def _keep(self, statistics: ClassStatistics, dtype: np.dtype[Any]) -> Self:
        """Only when all went well: rows that were refused must leave no trace."""
        if not self.__sklearn_is_fitted__():
            self._dtype = dtype
        self._unsolve()
        self.statistics_ = statistics
        return self

    def _forget(self) -> None:
        self._drop_statistics()
        super()._forget()

    def _drop_statistics(self) -> None:
        self._unsolve()
        self.__dict__.pop("statistics_", None)
        self.__dict__.pop("_known_classes", None)

    def _unsolve(self) -> None:
        for name in self.__dict__.pop("_learned", ()):
            self.__dict__.pop(name, None)

    def _solved(self) -> Self:
        if self.statistics_.n_classes == 0:
            raise ValueError(
                "There is no row to learn from: every sample_weight is zero, or supervision puts "
                "no point into a chunklet."
            )
        before = set(vars(self))
        interrupt = None
        try:
            with blas_for(10.0 * self.statistics_.n_features**3):
                self._learn(self.statistics_)
        except BaseException as error:
            if not (isinstance(error, Interrupted) and error.components is not None):
                for name in set(vars(self)) - before:  # half a solution must not look like one
                    del self.__dict__[name]
                raise
            interrupt = error
        self._learned = sorted(set(vars(self)) - before)
        if interrupt is not None:
            raise interrupt  # Ctrl-C as usual, after the best so far was left here
        return self

    def __getattr__(self, name: str) -> Any:
        # Reached only when the attribute is missing: solve if that could bring it.
        learned = name.endswith("_") and not name.startswith("_") and name not in _NOT_LEARNED
        if learned and "statistics_" in vars(self):
            with _SOLVING:
                if "_learned" not in vars(self):
                    self._solved()
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return "statistics_" in vars(self)

    def _bring_up_to_date(self) -> dict[str, str]:
        names = super()._bring_up_to_date()
        if "_learned" in vars(self):
            self._learned = [names.get(name, name) for name in self._learned]
        return names

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        need({*vars(self).get("_learned", ())} <= vars(self).keys(), "what it learned is missing.")
        fits = self.statistics_.n_features in (0, sizes.get("p"))
        need(fits, "statistics_ do not fit the number of features.")


def _check_among(found: NDArray[Any], known: NDArray[Any] | None) -> None:
    """Raise for labels that were not announced."""
    if known is None:
        return
    allowed = set(known.tolist())
    strange = [label for label in found.tolist() if label not in allowed]
    if strange:
        raise ValueError(
            f"y has the label {strange[0]!r}, which is not among classes={known.tolist()}. Name "
            "all labels in the first batch, or give no classes."
        )


# Set by input checks or by accumulating, never by the solve.
_NOT_LEARNED = frozenset({"statistics_", "n_features_in_", "feature_names_in_"})
# Threads that share a learner must not solve at once; one lock for all keeps learners picklable.
_SOLVING = RLock()
