"""Learners that take batches: they only accumulate, and solve when something learned is needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.base.estimator import Estimator
from nearfar.labels import encode_labels
from nearfar.solvers.subspaces import Interrupted
from nearfar.state import Sizes, State, float_type, labels, list_of, need, optional, text


class Accumulating(Estimator, ABC):
    """A learner with a summary in ``statistics_``, to which batches are added.

    Subclasses add to it in ``partial_fit``, by :meth:`_keep`, and write :meth:`_solve_statistics`,
    which runs once, when something learned is first asked for. Where what was seen so far cannot
    be solved, asking raises the solve's error (``hasattr`` too).
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
        """Solve from ``statistics_``, and set what was learned in attributes.

        On Ctrl-C it may raise :class:`~nearfar.solvers.subspaces.Interrupted` with the best
        components so far, after it has set them.
        """

    def _keep(self, statistics: Any, dtype: np.dtype[Any]) -> Self:
        """Only when all went well: rows that were refused must leave no trace."""
        if not self._has_statistics:
            self._dtype = dtype
        self._unsolve()
        self.statistics_ = statistics
        return self

    @property
    def _has_statistics(self) -> bool:
        return "statistics_" in vars(self)

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
        if before is None and self._has_statistics:
            check_among(self.statistics_.classes, known)
        return known

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
        before = set(vars(self))
        interrupt = None
        try:
            self._solve_statistics()
        except BaseException as error:
            if not self._left_a_solution(error):
                for name in set(vars(self)) - before:  # half a solution must not look like one
                    del self.__dict__[name]
                raise
            interrupt = error
        self._learned = sorted(set(vars(self)) - before)
        if interrupt is not None:
            raise interrupt  # Ctrl-C as usual, after the best so far was left on the learner
        return self

    def _left_a_solution(self, error: BaseException) -> bool:
        """Whether it is an interrupt, after which the best so far was set."""
        return isinstance(error, Interrupted) and error.components is not None

    def __getattr__(self, name: str) -> Any:
        # Reached only when the attribute is missing: solve if that could bring it.
        learned = name.endswith("_") and not name.startswith("_") and name not in _NOT_LEARNED
        if learned and "statistics_" in vars(self):
            with _SOLVING:
                if "_learned" not in vars(self):
                    self._solved()
            return object.__getattribute__(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _bring_up_to_date(self) -> dict[str, str]:
        names = super()._bring_up_to_date()
        if "_learned" in vars(self):
            self._learned = [names.get(name, name) for name in self._learned]
        return names

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        need({*vars(self).get("_learned", ())} <= vars(self).keys(), "what it learned is missing.")
        need(not self._has_statistics or "_dtype" in vars(self), "_dtype is missing.")


def check_among(found: NDArray[Any], known: NDArray[Any] | None) -> None:
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
_NOT_LEARNED = frozenset({"statistics_", "n_features_in_", "feature_names_in_", "tensor_shape_"})
# Threads that share a learner must not solve at once; one lock for all keeps learners picklable.
_SOLVING = RLock()
