"""The parameter ``n_pca_components``: iterative learners fitted on leading principal axes only."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.arrays import Floats, Matrix
from nearfar.base.learner import LinearLearner
from nearfar.parameters import AllowedValues, integer, none, one_of
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import center_and_map, find_leading_axes

#: Allowed values of the parameter ``n_pca_components``.
N_PRINCIPAL: list[AllowedValues] = [none, one_of("auto"), integer(1)]
#: With n_pca_components="auto", principal axes are used if X has more than this number of columns.
AUTO_WIDTH = 128
#: Maximum number of axes with n_pca_components="auto", unless n_components is larger.
AUTO_AXES = 64


class AxisLearner(LinearLearner):
    """Linear learner that can be fitted on the leading principal axes of the rows.

    With axes V (p, q), the learner is fitted to ``(X - mean) @ V``, as in a pipeline after PCA.
    The learned map is then multiplied with the axes, so that ``components_`` is a map of X.
    """

    n_pca_components: int | str | None

    def _fitted_on_axes(
        self, rows: Floats, start_from: Floats | None, *supervision: Any, **fit_params: Any
    ) -> bool:
        """Fit on principal axes and return True. Return False if X must be fitted directly.

        ``start_from`` is the map of the last fit, for a warm start.
        """
        self.n_pca_components_ = self._n_axes(*rows.shape)
        if self.n_pca_components_ is None:
            return False
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.zeros(1, np.intp), np.zeros(len(rows), np.intp)
        )
        axes = find_leading_axes(
            statistics, self.n_pca_components_, truncate=self.n_pca_components == "auto"
        )
        self.n_pca_components_ = axes.shape[1]
        projected = center_and_map(rows, statistics.mean, axes).astype(rows.dtype)
        inner = self._make_inner(axes, start_from)
        try:
            inner.fit(projected, *supervision, **fit_params)
        finally:
            # Keep the best solution so far, even after Ctrl-C.
            if hasattr(inner, "components_"):
                self._take(inner, statistics.mean, axes, rows.dtype)
        return True

    def _n_axes(self, n: int, p: int) -> int | None:
        """Return the number of axes, or None to fit X directly."""
        n_requested, size = self.n_pca_components, getattr(self, "n_components", None)
        if n_requested == "auto":
            # Use fewer axes than half the number of rows of X, but at least n_components.
            n_axes = min(AUTO_AXES, max(1, n // 2 - 1))
            return None if p <= AUTO_WIDTH else max(n_axes, size or 1)
        assert n_requested is None or not isinstance(n_requested, str)
        if n_requested is not None and size is not None and size > n_requested:
            raise ValueError(
                f"n_components={size} is larger than n_pca_components={n_requested}. Set "
                "n_components to at most n_pca_components."
            )
        return n_requested

    def _make_inner(self, axes: Matrix, start_from: Floats | None) -> LinearLearner:
        """Return a learner with the same parameters for rows projected on the axes."""
        settings = self.get_params(deep=False) | {"n_pca_components": None}
        init = settings.get("init", "")
        if not isinstance(init, str):
            matrix = np.asarray(init, dtype=np.float64)
            if matrix.ndim != 2 or matrix.shape[1] != len(axes):
                raise ValueError(
                    f"init must have shape (n_components, {len(axes)}), because X has {len(axes)} "
                    f"features; got shape {matrix.shape}."
                )
            settings["init"] = matrix @ axes
        inner = type(self)(**settings)
        if start_from is not None and start_from.shape[1] == len(axes):
            inner.components_ = start_from @ axes.astype(start_from.dtype)
        return inner

    def _take(self, inner: LinearLearner, mean: Matrix, axes: Matrix, dtype: Any) -> None:
        """Copy the fitted attributes of the inner learner, and convert its map to a map of X."""
        for name, value in vars(inner).items():
            if name.endswith("_") and name not in ("n_features_in_", "n_pca_components_"):
                setattr(self, name, value)
        self.components_ = (inner.components_ @ axes.T).astype(dtype)
        self.mean_ = (mean + axes @ inner.mean_).astype(dtype)
