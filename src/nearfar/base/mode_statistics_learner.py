"""Multilinear learners that solve from scatters of the modes: at once, in batches, on a cluster."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.base.accumulating import Accumulating, check_among
from nearfar.base.multilinear import AlternatingLearner, factor_word
from nearfar.state import Sizes, State, flag, list_of, need, object_of, optional, state_of, whole
from nearfar.summaries.block_scatters import BlockScatters
from nearfar.summaries.distributed import Blocks, is_dask, without_rows
from nearfar.summaries.mode_scatters import ModeScatters, StackScatters, UncenteredScatters
from nearfar.summaries.mode_statistics import FULL_SIZE, ModeStatistics


class ModeStatisticsLearner(Accumulating, AlternatingLearner):
    """A multilinear learner that needs the scatters of each mode alone.

    Subclasses write :meth:`_learn`. ``fit`` passes over an array in blocks at every step of a mode;
    of a dask array each step is one reduction over its blocks. ``partial_fit`` only accumulates
    :class:`~nearfar.ModeStatistics`, and the solve runs when something learned is first asked for.

    It has a parameter ``max_iter``; a parameter ``center`` that is False counts from zero.
    """

    state = State(
        {
            "statistics_": optional(object_of(ModeStatistics)),
            "factors_": optional(list_of(factor_word, "modes")),
            "n_iter_": optional(whole()),
            "converged_": optional(flag),
        },
        fitted="tensor_shape_",
    )
    statistics_: ModeStatistics

    @abstractmethod
    def _learn(self, scatters: ModeScatters, classes: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Solve from whatever knows the scatters of each mode, and set what was learned.

        ``classes`` are the sorted labels, a single 0 for learners that need none.
        """

    def _needs_digits(self) -> bool:
        """Whether float32 is to be multiplied in float64."""
        return False

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from all tensors at once; forgets what was learned before.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or flat rows: with ``tensor_shape`` of such tensors, without of vectors.
        y : array-like or dask array of shape (n_samples,)
            Labels; ignored by learners that need none.

        Returns
        -------
        object
            The learner itself.
        """
        self._check_parameters()
        try:
            return self._fit(X, y)
        except BaseException as error:
            if not self._left_a_solution(error):
                self._forget()
            raise

    def _fit(self, X: Any, y: Any) -> Self:
        supervised, centered = self.learner_tags.supervised, getattr(self, "center", True)
        least = 2 if centered else 1
        scatters: ModeScatters
        if is_dask(X):
            self._check_tensors(without_rows(X), reset=True, min_samples=0)
            if supervised and y is None:
                self._check_labels(None, 0)
            blocks = BlockScatters(X, y if supervised else None, shape=self.tensor_shape_)
            self._check_counts(blocks.statistics, least)
            scatters = self._from_center(blocks, blocks.total_weight)
            classes, dtype = blocks.statistics.classes, _dtype_of(blocks.statistics)
        else:
            T = self._check_tensors(X, reset=True, min_samples=least)
            classes, codes = np.zeros(1, np.int64), None
            if supervised:
                classes, codes = self._check_labels(y, len(T))
            exact = self._needs_digits()
            scatters, dtype = StackScatters(T, codes, center=centered, exact=exact), T.dtype
        self._learn(scatters, classes, dtype)
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, classes: ArrayLike | None = None
    ) -> Self:
        """Accumulate more tensors; new classes may appear unless ``classes`` were given.

        Batches give what one fit gives. The second moment of all entries is kept for it, which is
        possible up to 4,096 entries of a tensor; with ``max_iter=0`` there is no limit.

        Parameters
        ----------
        X : array-like or dask array of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            More tensors, or flat rows.
        y : array-like or dask array of shape (n_samples,)
            Their labels; ignored by learners that need none.
        classes : array-like of shape (n_classes,), optional
            All labels that may come, as in scikit-learn; once given, others raise. Those without
            tensors so far take no part in the solve.

        Returns
        -------
        object
            The learner itself; the solve waits until it is needed.
        """
        self._check_parameters()
        if "factors_" in vars(self) and not self._has_statistics:
            raise ValueError(
                f"{type(self).__name__} was fitted at once and kept no statistics of X, to which "
                "batches could be added. Begin with partial_fit, on a clone of it."
            )
        new, lazy = not self._has_statistics, is_dask(X)
        T = self._check_tensors(
            without_rows(X) if lazy else X, reset=new, min_samples=0 if lazy else 1
        )
        self._check_size(self.statistics_ if not new else None)
        known = self._check_classes(classes)
        supervised = self.learner_tags.supervised
        if supervised and y is None:
            self._check_labels(None, len(T))
        if lazy:
            found = Blocks(X, y if supervised else None, shape=self.tensor_shape_).statistics(
                self._new_statistics()
            )
            check_among(found.classes, known)
            self._keep(found if new else self.statistics_.merge(found), _dtype_of(found))
        else:
            labels, codes = np.zeros(1, np.int64), np.zeros(len(T), np.intp)
            if supervised:
                labels, codes = self._check_labels(y, len(T), min_classes=1)
                check_among(labels, known)
            statistics = self._new_statistics() if new else self.statistics_
            self._keep(statistics.add(T, labels, codes), T.dtype)
        if known is not None:
            self._known_classes = known
        return self

    def _new_statistics(self) -> ModeStatistics:
        # The direct form needs no more than the modes.
        storage = "auto" if self.max_iter else "modes"
        return ModeStatistics(storage=storage, exact=self._needs_digits())

    def _check_size(self, statistics: ModeStatistics | None) -> None:
        """Raise where sweeps would need more than is kept of batches."""
        shape = self.tensor_shape_
        if not self.max_iter or len(shape) == 1:
            return
        name, size = type(self).__name__, prod(shape)
        if size > FULL_SIZE:
            raise ValueError(
                f"{name}: tensors of shape {shape} have {size:,} entries. In batches, sweeps over "
                "the modes need the second moment of all entries, which is kept up to "
                f"{FULL_SIZE:,}. Take max_iter=0, the direct form, for which one small matrix for "
                "each mode is enough; or reduce the tensors first, by GTA fitted on a sample of "
                "them; or fit a dask array, which is read anew at every step."
            )
        if statistics is not None and not statistics.is_full:
            raise ValueError(
                f"{name}: batches came while max_iter was 0, and what was kept of them is not "
                f"enough for sweeps over the modes (max_iter={self.max_iter}). Take max_iter=0, or "
                "begin again with partial_fit."
            )

    def _solve_statistics(self) -> None:
        statistics = self.statistics_
        self._check_size(statistics)
        self._check_counts(statistics, 1)
        scatters = self._from_center(statistics, statistics.total_weight)
        self._learn(scatters, statistics.classes, self._dtype)

    def _from_center(self, scatters: ModeScatters, n_samples: float) -> ModeScatters:
        center = getattr(self, "center", True)
        return scatters if center else UncenteredScatters(scatters, n_samples)

    def _check_counts(self, statistics: ModeStatistics, least: int) -> None:
        """Raise for too few samples or classes, as for arrays."""
        name, n = type(self).__name__, int(statistics.total_weight)
        if n < least:
            raise ValueError(
                f"X has {n} sample(s) while a minimum of {least} is required by {name}."
            )
        if self.learner_tags.supervised and statistics.n_classes < 2:
            only = statistics.classes.tolist()[0]
            raise ValueError(f"{name} needs at least 2 classes; y has only one class ({only!r}).")

    def _left_a_solution(self, error: BaseException) -> bool:
        return isinstance(error, KeyboardInterrupt) and "factors_" in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._has_statistics or "factors_" in vars(self)

    def _check_state(self, sizes: Sizes) -> None:
        unsolved = self._has_statistics and "_learned" not in vars(self)
        if self._has_statistics:
            shape = tuple(self.tensor_shape_)
            need(self.statistics_.tensor_shape == shape, "statistics_ do not fit tensor_shape_.")
            need("_dtype" in vars(self), "_dtype is missing.")
        if not unsolved:
            words = (state_of(type(self)) or self.state).words
            learned = {name for name in words if name.endswith("_")} - _NOT_ALWAYS
            missing = sorted(learned - vars(self).keys())
            need(not missing, f"{missing} are missing.")
            super()._check_state(sizes)


# Words of what a solve need not leave; all others are optional only until then.
_NOT_ALWAYS = {"statistics_", "components_", "mean_"}


def _dtype_of(statistics: ModeStatistics) -> np.dtype[Any]:
    narrow = statistics.precision > np.finfo(np.float64).eps
    return np.dtype(np.float32 if narrow else np.float64)
