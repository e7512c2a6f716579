"""Base class of multilinear learners that need only mode scatters: arrays, batches or dask."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.base.accumulating import IncrementalEstimator, check_known_classes
from nearfar.base.multilinear import AlternatingLearner, factor_check
from nearfar.state import (
    Sizes,
    State,
    check_that,
    flag,
    get_state,
    integer_value,
    list_of,
    object_of,
    optional,
)
from nearfar.summaries.block_scatters import BlockScatters
from nearfar.summaries.distributed import Blocks, is_dask, make_empty_like
from nearfar.summaries.mode_scatters import ModeScatters, StackScatters, UncenteredScatters
from nearfar.summaries.mode_statistics import FULL_SIZE, ModeStatistics


class ModeStatisticsLearner(IncrementalEstimator, AlternatingLearner):
    """Multilinear learner that needs only the scatter matrices of each mode.

    Subclasses implement :meth:`_learn`. ``fit`` reads an array in blocks, once per step of a mode.
    For a dask array, each step is one reduction over its blocks. ``partial_fit`` only accumulates
    :class:`~nearfar.ModeStatistics`. The solver runs on the first access to a fitted attribute.

    Subclasses have a parameter ``max_iter``. If they have a parameter ``center`` that is False,
    scatters are taken around zero instead of around the mean.
    """

    state = State(
        {
            "statistics_": optional(object_of(ModeStatistics)),
            "factors_": optional(list_of(factor_check, "modes")),
            "n_iter_": optional(integer_value()),
            "converged_": optional(flag),
        },
        fitted="tensor_shape_",
    )
    statistics_: ModeStatistics

    @abstractmethod
    def _learn(self, scatters: ModeScatters, classes: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Compute the solution from the scatters of each mode, and set the fitted attributes.

        ``classes`` are the sorted labels, or a single 0 for unsupervised learners.
        """

    def _needs_digits(self) -> bool:
        """Return True if products of float32 data must be computed in float64."""
        return False

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit to all tensors at once, and discard earlier results.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or flat rows. ``tensor_shape`` is the tensor shape of each flat row. If
            ``tensor_shape`` is None, flat rows are vectors.
        y : array-like or dask array of shape (n_samples,)
            Labels. Ignored by unsupervised learners.

        Returns
        -------
        object
            The fitted learner.
        """
        self._check_parameters()
        try:
            return self._fit(X, y)
        except BaseException as error:
            if not self._has_solution(error):
                self._forget()
            raise

    def _fit(self, X: Any, y: Any) -> Self:
        is_supervised, is_centered = self.learner_tags.supervised, getattr(self, "center", True)
        min_samples = 2 if is_centered else 1
        scatters: ModeScatters
        if is_dask(X):
            self._check_tensors(make_empty_like(X), reset=True, min_samples=0)
            if is_supervised and y is None:
                self._check_labels(None, 0)
            blocks = BlockScatters(X, y if is_supervised else None, shape=self.tensor_shape_)
            self._check_counts(blocks.statistics, min_samples)
            scatters = self._select_center(blocks, blocks.total_weight)
            classes, dtype = blocks.statistics.classes, _get_dtype(blocks.statistics)
        else:
            T = self._check_tensors(X, reset=True, min_samples=min_samples)
            classes, codes = np.zeros(1, np.int64), None
            if is_supervised:
                classes, codes = self._check_labels(y, len(T))
            exact = self._needs_digits()
            scatters, dtype = StackScatters(T, codes, center=is_centered, exact=exact), T.dtype
        self._learn(scatters, classes, dtype)
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, classes: ArrayLike | None = None
    ) -> Self:
        """Accumulate a batch of tensors.

        The result after all batches equals that of one ``fit``. Therefore the learner stores the
        second moment of all tensor entries, which limits tensors to 4,096 entries. Tensors of any
        size are allowed with ``max_iter=0``.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or flat rows.
        y : array-like or dask array of shape (n_samples,)
            Labels. Ignored by unsupervised learners.
        classes : array-like of shape (n_classes,), optional
            All labels that batches may contain, as in scikit-learn. Other labels then raise an
            error. None allows new labels in any batch. Classes without tensors are ignored.

        Returns
        -------
        object
            The learner, which solves on the first access to a fitted attribute.
        """
        self._check_parameters()
        if "factors_" in vars(self) and not self._has_statistics:
            raise ValueError(
                f"{type(self).__name__} was fitted with fit, which does not store the "
                "statistics that partial_fit needs. Call partial_fit on an unfitted clone instead."
            )
        is_new, is_lazy = not self._has_statistics, is_dask(X)
        T = self._check_tensors(
            make_empty_like(X) if is_lazy else X, reset=is_new, min_samples=0 if is_lazy else 1
        )
        self._check_size(self.statistics_ if not is_new else None)
        known_classes = self._check_classes(classes)
        supervised = self.learner_tags.supervised
        if supervised and y is None:
            self._check_labels(None, len(T))
        if is_lazy:
            new_statistics = Blocks(
                X, y if supervised else None, shape=self.tensor_shape_
            ).compute_statistics(self._new_statistics())
            check_known_classes(new_statistics.classes, known_classes)
            self._keep(
                new_statistics if is_new else self.statistics_.merge(new_statistics),
                _get_dtype(new_statistics),
            )
        else:
            labels, codes = np.zeros(1, np.int64), np.zeros(len(T), np.intp)
            if supervised:
                labels, codes = self._check_labels(y, len(T), min_classes=1)
                check_known_classes(labels, known_classes)
            statistics = self._new_statistics() if is_new else self.statistics_
            self._keep(statistics.add(T, labels, codes), T.dtype)
        if known_classes is not None:
            self._known_classes = known_classes
        return self

    def _new_statistics(self) -> ModeStatistics:
        # With max_iter=0, the per-mode scatters are enough.
        storage = "auto" if self.max_iter else "modes"
        return ModeStatistics(storage=storage, exact=self._needs_digits())

    def _check_size(self, statistics: ModeStatistics | None) -> None:
        """Raise if ``max_iter`` > 0 requires statistics that ``partial_fit`` cannot store."""
        shape = self.tensor_shape_
        if not self.max_iter or len(shape) == 1:
            return
        name, size = type(self).__name__, prod(shape)
        if size > FULL_SIZE:
            raise ValueError(
                f"{name}: tensors of shape {shape} have {size:,} entries, but partial_fit with "
                f"max_iter > 0 supports at most {FULL_SIZE:,}, because it stores the second "
                "moment of all entries. Set max_iter=0, which needs only one small matrix per "
                "mode. Alternatively, reduce the tensors with a GTA fitted to a sample. You can "
                "also call fit with a dask array, which is read again at every step."
            )
        if statistics is not None and not statistics.is_full:
            raise ValueError(
                f"{name}: earlier batches were accumulated with max_iter=0, and their statistics "
                f"are not sufficient for max_iter={self.max_iter}. Set max_iter=0, or accumulate "
                "all batches again on an unfitted clone."
            )

    def _solve_statistics(self) -> None:
        statistics = self.statistics_
        self._check_size(statistics)
        self._check_counts(statistics, 1)
        scatters = self._select_center(statistics, statistics.total_weight)
        self._learn(scatters, statistics.classes, self._dtype)

    def _select_center(self, scatters: ModeScatters, n_samples: float) -> ModeScatters:
        center = getattr(self, "center", True)
        return scatters if center else UncenteredScatters(scatters, n_samples)

    def _check_counts(self, statistics: ModeStatistics, min_samples: int) -> None:
        """Raise the same errors as for arrays if there are too few samples or classes."""
        name, n = type(self).__name__, int(statistics.total_weight)
        if n < min_samples:
            raise ValueError(
                f"X has {n} sample(s) while a minimum of {min_samples} is required by {name}."
            )
        if self.learner_tags.supervised and statistics.n_classes < 2:
            single_class = statistics.classes.tolist()[0]
            raise ValueError(
                f"{name} needs at least 2 classes; y has only one class ({single_class!r})."
            )

    def _has_solution(self, error: BaseException) -> bool:
        return isinstance(error, KeyboardInterrupt) and "factors_" in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._has_statistics or "factors_" in vars(self)

    def _check_state(self, sizes: Sizes) -> None:
        is_unsolved = self._has_statistics and "_learned" not in vars(self)
        if self._has_statistics:
            shape = tuple(self.tensor_shape_)
            check_that(
                self.statistics_.tensor_shape == shape, "statistics_ do not match tensor_shape_."
            )
            check_that("_dtype" in vars(self), "_dtype is missing.")
        if not is_unsolved:
            checks = (get_state(type(self)) or self.state).conditions
            required = {name for name in checks if name.endswith("_")} - _OPTIONAL
            missing = sorted(required - vars(self).keys())
            check_that(not missing, f"{missing} are missing.")
            super()._check_state(sizes)


# Attributes that the solver may leave unset. The solver must set all other attributes.
_OPTIONAL = {"statistics_", "components_", "mean_"}


def _get_dtype(statistics: ModeStatistics) -> np.dtype[Any]:
    is_single_precision = statistics.precision > np.finfo(np.float64).eps
    return np.dtype(np.float32 if is_single_precision else np.float64)
