"""What the relatives of LMNN share: the LMNN that they fit, and what they have of it."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.lmnn_defaults import PUBLISHED

#: What relatives of LMNN have of the one they fitted.
TAKEN_OVER = ("target_neighbors_", "n_impostors_", "objective_", "dual_bound_", "duality_gap_")


class OverLMNN:
    """A learner that fits LMNN to something: what it has of it, for the energy rule too."""

    estimator: LMNN | None

    @property
    def n_neighbors(self) -> int:
        """That of LMNN, for the energy rule."""
        return lmnn_of(self.estimator).n_neighbors

    @property
    def push_weight(self) -> float:
        """That of LMNN, for the energy rule."""
        return lmnn_of(self.estimator).push_weight

    def _take_over(self, lmnn: LMNN) -> None:
        for name in TAKEN_OVER:
            setattr(self, name, getattr(lmnn, name))


def lmnn_of(estimator: LMNN | None) -> LMNN:
    """A copy of the LMNN that a relative of it was given; with None, one of the defaults."""
    if estimator is None:
        return LMNN()
    if not isinstance(estimator, LMNN):
        raise TypeError(f"estimator must be an LMNN; got {type(estimator).__name__}.")
    return clone(estimator)


def lmnn_of_the_work(estimator: LMNN | None, owner: Any) -> LMNN:
    """The same where "auto" is what the work does: all impostors, one pass, to the end."""
    lmnn = lmnn_of(estimator)
    if lmnn.n_passes not in ("auto", 1):
        raise ValueError(
            f"{type(owner).__name__}: its LMNN makes one pass; got n_passes={lmnn.n_passes} "
            'inside, 1 or "auto" would do.'
        )
    return as_in_the_work(lmnn)


def as_in_the_work(lmnn: LMNN) -> LMNN:
    """The same LMNN, with what was "auto" as the work has it."""
    auto = [name for name in PUBLISHED if getattr(lmnn, name) == "auto"]
    return lmnn.set_params(**{name: PUBLISHED[name] for name in auto})
