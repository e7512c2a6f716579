"""Early stopping of a fit by the error on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from nearfar.arrays import Indices, Matrix

#: Number of iterations between two validation checks.
CHECK_INTERVAL = 10


class Watch:
    """Early stopping: checks the validation error every 10 iterations and stores the best map.

    The fit should stop after ``patience`` checks without a lower error. With ``keeps_maps=True``,
    the maps of all checks are stored.
    """

    def __init__(
        self, compute_error: Callable[[Matrix], float], patience: int, *, keeps_maps: bool = False
    ) -> None:
        self._compute_error, self._patience, self._keeps_maps = compute_error, patience, keeps_maps
        self.errors: list[float] = []
        self.maps: list[Matrix] = []
        self.best_map: Matrix | None = None
        self.best_iteration = 0
        self._n_iterations = 0

    def __call__(self, L: Matrix) -> bool:
        """Check the validation error in every tenth iteration. Return True to stop the fit."""
        self._n_iterations += 1
        return self._n_iterations % CHECK_INTERVAL == 0 and self.check(L)

    def check(self, L: Matrix) -> bool:
        """Compute the validation error of a map. Return True if the fit should stop."""
        error = self._compute_error(L)
        if not self.errors or error < min(self.errors):
            self.best_map, self.best_iteration = L.copy(), self._n_iterations
        self.errors.append(error)
        if self._keeps_maps:
            self.maps.append(L.copy())
        return len(self.errors) - int(np.argmin(self.errors)) > self._patience


def average_errors(watches: Sequence[Watch]) -> list[float]:
    """Return the mean validation error after each check.

    A run that has stopped keeps its last error.
    """
    max_checks = max(len(watch.errors) for watch in watches)
    padded_errors = [w.errors + w.errors[-1:] * (max_checks - len(w.errors)) for w in watches]
    return [float(error) for error in np.mean(padded_errors, axis=0)]


def hold_out(codes: Indices, fraction: float, seed: Any) -> tuple[Indices, Indices]:
    """Return training rows and validation rows, stratified by class if possible."""
    class_sizes = np.bincount(codes)
    n_validation = round(fraction * len(codes))
    if n_validation < 1 or len(codes) - n_validation < 2:
        raise ValueError(
            f"validation_fraction={fraction} of {len(codes)} rows leaves too few rows for training "
            "(at least 2) or for validation (at least 1). Choose another validation_fraction, or "
            "0 for no validation."
        )
    is_stratified = (
        class_sizes.min() >= 2 and n_validation >= len(class_sizes) <= len(codes) - n_validation
    )
    training_rows, validation_rows = train_test_split(
        np.arange(len(codes)),
        test_size=n_validation,
        stratify=codes if is_stratified else None,
        random_state=seed,
    )
    if len(np.unique(codes[training_rows])) < 2:
        raise ValueError(
            f"With validation_fraction={fraction}, the training rows contain only one class. "
            "Reduce validation_fraction."
        )
    return np.sort(training_rows), np.sort(validation_rows)
