"""Code shared by the estimators that fit an inner LMNN."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.lmnn_defaults import PUBLISHED

#: Fitted attributes that are copied from the inner LMNN.
COPIED_ATTRIBUTES = (
    "target_neighbors_",
    "n_impostors_",
    "objective_",
    "dual_bound_",
    "duality_gap_",
)


class InnerLMNNMixin:
    """Mixin for learners that fit an inner LMNN and copy its fitted attributes."""

    estimator: LMNN | None

    @property
    def n_neighbors(self) -> int:
        """The ``n_neighbors`` of the inner LMNN, read by `EnergyClassifier`."""
        return copy_lmnn(self.estimator).n_neighbors

    @property
    def push_weight(self) -> float:
        """The ``push_weight`` of the inner LMNN, read by `EnergyClassifier`."""
        return copy_lmnn(self.estimator).push_weight

    def _copy_fitted(self, lmnn: LMNN) -> None:
        for name in COPIED_ATTRIBUTES:
            setattr(self, name, getattr(lmnn, name))


def copy_lmnn(estimator: LMNN | None) -> LMNN:
    """Return a copy of the given LMNN, or a default LMNN if None is given."""
    if estimator is None:
        return LMNN()
    if not isinstance(estimator, LMNN):
        raise TypeError(f"estimator must be an LMNN; got {type(estimator).__name__}.")
    return clone(estimator)


def copy_published_lmnn(estimator: LMNN | None, owner: Any) -> LMNN:
    """Return a copy of the LMNN with "auto" settings replaced by those of the thesis.

    These are all impostors, one pass and no early stopping. Raise ValueError if ``n_passes`` is
    more than 1.
    """
    lmnn = copy_lmnn(estimator)
    if lmnn.n_passes not in ("auto", 1):
        raise ValueError(
            f"{type(owner).__name__}: the LMNN passed as estimator must make one pass; got "
            f'n_passes={lmnn.n_passes}. Set its n_passes to 1 or "auto".'
        )
    return use_published_settings(lmnn)


def use_published_settings(lmnn: LMNN) -> LMNN:
    """Replace the "auto" settings of an LMNN by those of the thesis (Weinberger, 2007)."""
    auto = [name for name in PUBLISHED if getattr(lmnn, name) == "auto"]
    return lmnn.set_params(**{name: PUBLISHED[name] for name in auto})
