"""Principal axes before an iteration: what ``n_principal`` means to learners that descend."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.arrays import Floats, Matrix
from nearfar.base.learner import LinearLearner
from nearfar.parameters import Allowed, integer, none, one_of
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import leading_axes, moved

#: What the parameter ``n_principal`` may be.
N_PRINCIPAL: list[Allowed] = [none, one_of("auto"), integer(1)]
#: Of more columns than this "auto" keeps so many axes.
WIDE, KEPT = 128, 64


class OnAxes(LinearLearner):
    """A learner that may go along the leading principal axes of the rows alone.

    With axes V (p, q) it is fitted to ``(X - mean) @ V``, as it would be behind a PCA, and the map
    found is composed with them: ``components_`` stays a map of X.
    """

    n_principal: int | str | None

    def _fitted_on_axes(
        self, rows: Floats, start_from: Floats | None, *supervision: Any, **more: Any
    ) -> bool:
        """Fit along the axes that ``n_principal`` asks for; False where it asks for none.

        ``start_from`` is the map of the last fit, where it is to be gone on from.
        """
        self.n_principal_ = self._n_axes(*rows.shape)
        if self.n_principal_ is None:
            return False
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.zeros(1, np.intp), np.zeros(len(rows), np.intp)
        )
        axes = leading_axes(statistics, self.n_principal_, at_most=self.n_principal == "auto")
        self.n_principal_ = axes.shape[1]
        along = moved(rows, statistics.mean, axes).astype(rows.dtype)
        inner = self._along(axes, start_from)
        try:
            inner.fit(along, *supervision, **more)
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            if hasattr(inner, "components_"):
                self._take(inner, statistics.mean, axes, rows.dtype)
        return True

    def _n_axes(self, n: int, p: int) -> int | None:
        """How many axes are wanted; None for all that there is."""
        asked, size = self.n_principal, getattr(self, "n_components", None)
        if asked == "auto":
            # As many as the map has rows at least, and no more than half of the rows of X.
            few = min(KEPT, max(1, n // 2 - 1))
            return None if p <= WIDE else max(few, size or 1)
        assert asked is None or not isinstance(asked, str)
        if asked is not None and size is not None and size > asked:
            raise ValueError(
                f"n_components={size} is more than n_principal={asked}: the map has no more rows "
                "than there are axes."
            )
        return asked

    def _along(self, axes: Matrix, start_from: Floats | None) -> LinearLearner:
        """A learner of the same settings for rows along the axes."""
        settings = self.get_params(deep=False) | {"n_principal": None}
        init = settings.get("init", "")
        if not isinstance(init, str):
            given = np.asarray(init, dtype=np.float64)
            if given.ndim != 2 or given.shape[1] != len(axes):
                raise ValueError(
                    f"init must be a map of the {len(axes)} features of X; got shape {given.shape}."
                )
            settings["init"] = given @ axes
        inner = type(self)(**settings)
        if start_from is not None and start_from.shape[1] == len(axes):
            inner.components_ = start_from @ axes.astype(start_from.dtype)
        return inner

    def _take(self, inner: LinearLearner, mean: Matrix, axes: Matrix, dtype: Any) -> None:
        """What was learned along the axes, as a map of X."""
        for name, value in vars(inner).items():
            if name.endswith("_") and name not in ("n_features_in_", "n_principal_"):
                setattr(self, name, value)
        self.components_ = (inner.components_ @ axes.T).astype(dtype)
        self.mean_ = (mean + axes @ inner.mean_).astype(dtype)
