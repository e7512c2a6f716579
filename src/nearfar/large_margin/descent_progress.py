"""State of a descent over maps, which remains available after an interrupted fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from nearfar.arrays import Matrix


@dataclass
class Progress:
    """Current map, history and callbacks of a descent.

    The state is updated after each iteration, so that an interrupted fit can return it.
    """

    L: Matrix
    history: dict[str, list[float]] = field(
        default_factory=lambda: {"objective": [], "step": [], "active": [], "seconds": []}
    )
    began: float = field(default_factory=perf_counter)
    #: Function that is called after each iteration with the new entries of the history.
    report: Callable[[dict[str, float]], None] | None = None
    #: Function for early stopping. It is called with L after each iteration, and returns True to
    #: stop the descent.
    watch: Callable[[Matrix], bool] | None = None
    stopped: bool = False

    @property
    def n_iter(self) -> int:
        """Number of iterations so far."""
        return len(self.history["objective"])

    def note(self, L: Matrix, loss: float, n_active: int) -> bool:
        """Record the map of one iteration. Return True if the descent should stop."""
        history = self.history
        history["objective"].append(loss)
        history["step"].append(float(np.linalg.norm(L - self.L)))
        history["active"].append(n_active)
        history["seconds"].append(perf_counter() - self.began)
        self.L = L
        if self.report is not None:
            self.report({name: values[-1] for name, values in history.items()})
        self.stopped = self.watch is not None and self.watch(L)
        return self.stopped

    def pad(self, n_rows: int) -> None:
        """Append zero rows to the current map and to the best map found by early stopping.

        Both then have at least ``n_rows`` rows.
        """
        self.L = pad_map_rows(self.L, n_rows)
        best = getattr(self.watch, "best_map", None)
        if best is not None:
            self.watch.best_map = pad_map_rows(best, n_rows)  # type: ignore[union-attr]


def pad_map_rows(L: Matrix, n_rows: int) -> Matrix:
    """Return a map with zero rows appended, so that it has at least ``n_rows`` rows."""
    if len(L) >= n_rows:
        return L
    return np.concatenate([L, np.zeros((n_rows - len(L), *L.shape[1:]))])
