"""Base class of learners with soft neighbors: coordinates, initial maps and the descent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base.on_axes import AxisLearner
from nearfar.base.progress import get_reporter
from nearfar.blocks import limit_blas_for, resolve_n_threads
from nearfar.mahalanobis.starts import Spread, compute_spread, convert_start, make_start_map
from nearfar.solvers.descent import Descent
from nearfar.solvers.soft_neighbors import SoftNeighbors
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import whiten_rows

#: Maximum number of rows for which double precision is used. With few rows, double precision takes
#: little extra time.
MAX_ROWS_IN_DOUBLE = 500
# Maximum mean squared distance between points under the initial map. In many dimensions, a larger
# map gives each point a single soft neighbor, and the nearest local optimum is poor.
_MAX_MEAN_DISTANCE = 25.0


class SolverFrame(NamedTuple):
    """Points in the solver's coordinates, their statistics, and the map ``into`` these coordinates.

    The points are ``(X - mean) @ into``.
    """

    points: Matrix
    into: Matrix
    statistics: ClassStatistics


class _SoftLearner(AxisLearner):
    """Base class of learners that optimize one of the objectives of `SoftNeighbors`.

    ``_sign`` is -1 if the objective is maximized.
    """

    n_components: int | None
    init: str | ArrayLike
    max_iter: int
    random_state: Any
    n_jobs: int | None
    _sign: float = 1.0
    #: Function that computes the solver's coordinates. A global optimum does not depend on the
    #: coordinates. The speed of the descent depends on them, and so does the local optimum that it
    #: finds.
    _coordinates = staticmethod(whiten_rows)

    def _make_frame(self, rows: Floats, codes: Indices) -> SolverFrame:
        """Return the points in the solver's coordinates, and set ``mean_``."""
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.arange(codes.max() + 1), codes
        )
        self.mean_ = statistics.mean.astype(rows.dtype)
        into, points = self._coordinates(rows, statistics)
        return SolverFrame(points, into, statistics)

    def _check_sizes(self, codes: Indices) -> None:
        if np.bincount(codes).max() < 2:
            raise ValueError(
                f"{type(self).__name__} needs a class with at least two points; each class of y "
                "has only 1 sample."
            )

    def _make_engine(self, points: Matrix, y: NDArray[Any], objective: Any) -> SoftNeighbors:
        return SoftNeighbors(
            points,
            y,
            objective,
            precision="double" if len(points) <= MAX_ROWS_IN_DOUBLE else "single",
            n_threads=resolve_n_threads(self.n_jobs),
        )

    def _make_start(
        self,
        frame: SolverFrame,
        auto: str,
        previous_map: Floats | None,
        *,
        init: str | None = None,
        seed: Any = None,
        square: bool = False,
    ) -> Matrix:
        """Return the initial map in the solver's coordinates."""
        p, size = frame.statistics.n_features, None if square else self._n_rows
        source = self.init if init is None else init
        if previous_map is not None and previous_map.shape == (p if size is None else size, p):
            source = previous_map
        spread = compute_spread(frame.statistics)
        if frame.statistics.n_classes < 2:  # y contains numeric targets, not classes.
            spread = Spread(spread.total)
        seed = self.random_state if seed is None else seed
        start = make_start_map(source, spread, size, auto=auto, random_state=seed)
        L = convert_start(start, frame.into, square=size is None)
        return shrink_start(L, frame) if isinstance(source, str) else L

    def _make_random_start(self, frame: SolverFrame, number: int) -> Matrix:
        seed = self.random_state
        if isinstance(seed, int | np.integer):
            seed = np.random.RandomState([int(seed), number])
        return self._make_start(frame, "random", None, init="random", seed=seed)

    @property
    def _n_rows(self) -> int | None:
        """Number of rows of the map that is optimized; None means a square map."""
        return self.n_components

    @contextmanager
    def _keep_best(self, runs: list[Descent], frame: SolverFrame) -> Iterator[None]:
        """Keep the best map found so far, also after Ctrl-C or an error."""
        try:
            with limit_blas_for(2.0 * frame.points.size * frame.into.shape[1]):
                yield
        finally:
            if runs:
                self._keep(find_best_descent(runs), frame)

    def _keep(self, descent: Descent, frame: SolverFrame) -> None:
        self.components_ = (descent.point @ frame.into.T).astype(self.mean_.dtype)
        self.n_iter_ = descent.n_iter
        scale = self._sign * len(frame.points)
        self.history_ = descent.history | {
            "objective": [scale * value for value in descent.history["objective"]]
        }

    def _make_report(self, n: int) -> Callable[[dict[str, float]], None] | None:
        report = get_reporter(self)
        if report is None:
            return None
        scale = self._sign * n
        return lambda notes: report(notes | {"objective": scale * notes["objective"]})


def shrink_start(L: Matrix, frame: SolverFrame) -> Matrix:
    """Return the initial map, scaled down if points would have a single soft neighbor."""
    distance = 2 * float((frame.points @ L.T).var(axis=0).sum())
    return L * min(1.0, np.sqrt(_MAX_MEAN_DISTANCE / distance))


def find_best_descent(runs: list[Descent]) -> Descent:
    """Return the run with the lowest objective."""
    return min(runs, key=lambda run: run.objective)
