"""The parameter ``n_principal``: iterative learners fitted on leading principal axes only."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.arrays import Floats, Matrix
from nearfar.base.learner import LinearLearner
from nearfar.parameters import AllowedValues, integer, none, one_of
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import center_and_map, find_leading_axes

#: Allowed values of the parameter ``n_principal``.
N_PRINCIPAL: list[AllowedValues] = [none, one_of("auto"), integer(1)]
#: With more than WIDE columns, n_principal="auto" keeps KEPT axes.
WIDE, KEPT = 128, 64


class OnAxes(LinearLearner):
    """Linear learner that can be fitted on the leading principal axes of the rows.

    With axes V (p, q), the learner is fitted to ``(X - mean) @ V``, as in a pipeline after PCA.
    The learned map is then multiplied with the axes, so that ``components_`` is a map of X.
    """

    n_principal: int | str | None

    def _fitted_on_axes(
        self, rows: Floats, start_from: Floats | None, *supervision: Any, **more: Any
    ) -> bool:
        """Fit on principal axes and return True, or return False if ``n_principal`` selects none.

        ``start_from`` is the map of the last fit, for a warm start.
        """
        self.n_principal_ = self._n_axes(*rows.shape)
        if self.n_principal_ is None:
            return False
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.zeros(1, np.intp), np.zeros(len(rows), np.intp)
        )
        axes = find_leading_axes(statistics, self.n_principal_, truncate=self.n_principal == "auto")
        self.n_principal_ = axes.shape[1]
        along = center_and_map(rows, statistics.mean, axes).astype(rows.dtype)
        inner = self._along(axes, start_from)
        try:
            inner.fit(along, *supervision, **more)
        finally:
            # After Ctrl-C, too, keep the best solution so far.
            if hasattr(inner, "components_"):
                self._take(inner, statistics.mean, axes, rows.dtype)
        return True

    def _n_axes(self, n: int, p: int) -> int | None:
        """Return the number of axes; None to fit X directly."""
        asked, size = self.n_principal, getattr(self, "n_components", None)
        if asked == "auto":
            # At most half of the number of rows of X, but at least the number of rows of the map.
            few = min(KEPT, max(1, n // 2 - 1))
            return None if p <= WIDE else max(few, size or 1)
        assert asked is None or not isinstance(asked, str)
        if asked is not None and size is not None and size > asked:
            raise ValueError(
                f"n_components={size} is larger than n_principal={asked}. Set n_components to at "
                "most n_principal."
            )
        return asked

    def _along(self, axes: Matrix, start_from: Floats | None) -> LinearLearner:
        """Return a learner with the same parameters for rows projected on the axes."""
        settings = self.get_params(deep=False) | {"n_principal": None}
        init = settings.get("init", "")
        if not isinstance(init, str):
            given = np.asarray(init, dtype=np.float64)
            if given.ndim != 2 or given.shape[1] != len(axes):
                raise ValueError(
                    f"init must have shape (n_components, {len(axes)}), because X has {len(axes)} "
                    f"features; got shape {given.shape}."
                )
            settings["init"] = given @ axes
        inner = type(self)(**settings)
        if start_from is not None and start_from.shape[1] == len(axes):
            inner.components_ = start_from @ axes.astype(start_from.dtype)
        return inner

    def _take(self, inner: LinearLearner, mean: Matrix, axes: Matrix, dtype: Any) -> None:
        """Copy the fitted attributes of the inner learner, and convert its map to a map of X."""
        for name, value in vars(inner).items():
            if name.endswith("_") and name not in ("n_features_in_", "n_principal_"):
                setattr(self, name, value)
        self.components_ = (inner.components_ @ axes.T).astype(dtype)
        self.mean_ = (mean + axes @ inner.mean_).astype(dtype)
