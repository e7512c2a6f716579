"""Base class of learners that accumulate statistics over batches and solve on first use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.base.estimator import Estimator
from nearfar.labels import encode_labels
from nearfar.solvers.subspaces import Interrupted
from nearfar.state import Sizes, State, check_that, float_type, labels, list_of, optional, text


class IncrementalEstimator(Estimator, ABC):
    """Learner that accumulates batches in ``statistics_`` and computes the solution on first use.

    Subclasses call :meth:`_keep` in ``partial_fit`` and implement :meth:`_solve_statistics`. The
    solver runs once, on the first access to a fitted attribute. If the batches so far are not
    sufficient, this access raises the solver's error, and so does ``hasattr``.
    """

    state = State(
        {
            "_dtype": optional(float_type),
            "_learned": optional(list_of(text, "learned")),
            "_known_classes": optional(labels("known")),
        }
    )
    statistics_: Any
    _dtype: np.dtype[Any]

    @abstractmethod
    def _solve_statistics(self) -> None:
        """Compute the solution from ``statistics_`` and set the fitted attributes.

        On Ctrl-C, this method may set the best components so far and then raise
        :class:`~nearfar.solvers.subspaces.Interrupted` with these components.
        """

    def _keep(self, statistics: Any, dtype: np.dtype[Any]) -> Self:
        """Store the updated statistics.

        Call this method last, because a rejected batch must not change the learner.
        """
        if not self._has_statistics:
            self._dtype = dtype
        self._unsolve()
        self.statistics_ = statistics
        return self

    @property
    def _has_statistics(self) -> bool:
        return "statistics_" in vars(self)

    def _check_classes(self, classes: ArrayLike | None) -> NDArray[Any] | None:
        """Return the sorted labels that batches may contain, or None if any label is allowed."""
        earlier_classes: NDArray[Any] | None = vars(self).get("_known_classes")
        if classes is None or not self.learner_tags.supervised:
            return earlier_classes
        new_classes, _ = encode_labels(classes, name="classes")
        if earlier_classes is not None and new_classes.tolist() != earlier_classes.tolist():
            raise ValueError(
                "classes must be the same in every batch: earlier batches had "
                f"{earlier_classes.tolist()}, this batch has {new_classes.tolist()}."
            )
        if earlier_classes is None and self._has_statistics:
            check_known_classes(self.statistics_.classes, new_classes)
        return new_classes

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

    def _run_solve(self) -> Self:
        names_before = set(vars(self))
        interrupt = None
        try:
            self._solve_statistics()
        except BaseException as error:
            if not self._has_solution(error):
                # Remove a partial solution, so that the learner does not look fitted.
                for name in set(vars(self)) - names_before:
                    del self.__dict__[name]
                raise
            interrupt = error
        self._learned = sorted(set(vars(self)) - names_before)
        if interrupt is not None:
            # The best solution so far is already stored.
            raise interrupt
        return self

    def _has_solution(self, error: BaseException) -> bool:
        """Return True if ``error`` is an interrupt and the best solution so far is stored."""
        return isinstance(error, Interrupted) and error.components is not None

    def __getattr__(self, name: str) -> Any:
        # Python calls __getattr__ only for missing attributes. If the solver sets this attribute,
        # run the solver now.
        learned = name.endswith("_") and not name.startswith("_") and name not in _NOT_LEARNED
        if learned and "statistics_" in vars(self):
            with _SOLVING:
                if "_learned" not in vars(self):
                    self._run_solve()
            return object.__getattribute__(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _bring_up_to_date(self) -> dict[str, str]:
        names = super()._bring_up_to_date()
        if "_learned" in vars(self):
            self._learned = [names.get(name, name) for name in self._learned]
        return names

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        check_that(
            {*vars(self).get("_learned", ())} <= vars(self).keys(), "fitted attributes are missing."
        )
        check_that(not self._has_statistics or "_dtype" in vars(self), "_dtype is missing.")


def check_known_classes(labels: NDArray[Any], known_classes: NDArray[Any] | None) -> None:
    """Raise a ValueError if ``labels`` contains a label that is not in ``known_classes``.

    If ``known_classes`` is None, any label is allowed.
    """
    if known_classes is None:
        return
    allowed = set(known_classes.tolist())
    unknown = [label for label in labels.tolist() if label not in allowed]
    if unknown:
        raise ValueError(
            f"y has the label {unknown[0]!r}, which is not among classes={known_classes.tolist()}. "
            "Pass all labels as classes with the first batch, or omit classes."
        )


# Attributes that are set by input checks or by partial_fit, never by the solver.
_NOT_LEARNED = frozenset({"statistics_", "n_features_in_", "feature_names_in_", "tensor_shape_"})
# Threads that share a learner must not solve it at the same time. The lock is global because a
# lock on each learner could not be pickled.
_SOLVING = RLock()
