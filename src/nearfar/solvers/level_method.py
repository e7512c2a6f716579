"""Minimization of convex functions of weights by the level method, a cutting plane method.

At each point, an oracle returns an upper bound of the function's value there, and a plane that lies
below the function everywhere. The minimum of the maximum of all planes bounds the function's
minimum from below. The next point is the point nearest to the best one so far at which no plane
exceeds a level between that bound and the best value.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog, nnls

from nearfar.arrays import Matrix, Vector

# Position of the level between the bound and the best value. 0 is the bound and 1 is the best
# value.
_LEVEL = 0.3


#: Function that is called with the history entry of each step.
StepReport = Callable[[dict[str, Any]], None]


class Answer(NamedTuple):
    """Result of an oracle call.

    Attributes
    ----------
    point : ndarray of shape (m,)
        Point at which ``value`` was computed. It differs from the requested point if the requested
        point is not feasible.
    value : float
        Upper bound of the function at ``point``.
    intercept, slope : float, ndarray of shape (m,)
        Coefficients of a plane below the function: ``intercept - slope @ x``.
    allowed : ndarray of shape (k, m)
        New constraints: rows h with ``h @ x >= 0`` at all feasible points.
    """

    point: Vector
    value: float
    intercept: float
    slope: Vector
    allowed: Matrix


class Multipliers(NamedTuple):
    """Multipliers of the planes (with sum 1), of the constraints and of the sum of x."""

    planes: Vector
    allowed: Vector
    total: float


class LevelSolution(NamedTuple):
    """The best point with its value, a lower bound, and the history with one dict per step."""

    point: Vector
    value: float
    bound: float
    history: list[dict[str, Any]]
    #: The KeyboardInterrupt that stopped the method early, or None.
    interrupt: KeyboardInterrupt | None = None


def report_step(report: StepReport | None, state: dict[str, Any]) -> KeyboardInterrupt | None:
    """Call ``report`` with the state of a step. Ctrl-C during the call is caught and returned."""
    try:
        if report is not None:
            report(state)
    except KeyboardInterrupt as interrupt:
        return interrupt
    return None


def run_level_method(
    oracle: Callable[[Vector], Answer],
    certify: Callable[[Multipliers, Model], float],
    start: Vector,
    *,
    limits: Vector | None = None,
    tol: float = 1e-3,
    max_iter: int = 200,
    report: StepReport | None = None,
) -> LevelSolution:
    r"""Minimize a convex function of x with :math:`\sum_i x_i = 1`.

    Parameters
    ----------
    oracle : callable
        Function of a point that returns an `Answer`.
    certify : callable
        Function of the multipliers and the model that returns a proven lower bound. It may add
        planes to the model.
    start : ndarray of shape (m,)
        A feasible point.
    limits : ndarray of shape (m,), optional
        Upper bounds of :math:`|x_i|` at feasible points. By default, all x are nonnegative.
    tol : float
        Gap between value and bound, relative to the value, at which the method stops.
    max_iter : int
        Maximum number of oracle calls.
    report : callable, optional
        Called with the history entry of each step. Ctrl-C during the call stops the method.

    Returns
    -------
    LevelSolution
        The best point, with its value and a lower bound.

    Notes
    -----
    [1]_ shows that about :math:`1/\text{tol}^2` steps suffice. In practice, about twelve steps
    suffice.

    References
    ----------
    .. [1] C. Lemaréchal, A. Nemirovskii and Y. Nesterov, "New variants of bundle methods",
       Mathematical Programming 69, 1995.
    """
    model = Model(len(start), limits)
    best, value, bound = start, np.inf, -np.inf
    history: list[dict[str, Any]] = []
    start_time, point, interrupt = perf_counter(), start, None
    for _ in range(max_iter):
        answer = oracle(point)
        model.add(answer)
        if answer.value < value:
            best, value = answer.point, answer.value
        lowest, multipliers = model.find_lowest_point()
        bound = max(bound, certify(multipliers, model))
        gap = (value - bound) / abs(value) if np.isfinite(value) else np.inf
        history.append(
            {"value": value, "bound": bound, "gap": gap, "seconds": perf_counter() - start_time}
        )
        interrupt = report_step(report, history[-1])
        if gap <= tol or interrupt:
            break
        point = model.project_on_level(best, lowest, bound + _LEVEL * (value - bound))
    return LevelSolution(best, value, bound, history, interrupt)


class Model:
    """Planes below a function, and linear constraints on feasible points."""

    def __init__(self, m: int, limits: Vector | None) -> None:
        self.intercepts, self.slopes = np.empty(0), np.empty((0, m))
        self.limits = limits
        self.allowed = np.eye(m) if limits is None else np.empty((0, m))

    def add(self, answer: Answer) -> None:
        """Add the plane and the constraints of an oracle's answer."""
        self.add_plane(answer.intercept, answer.slope)
        self.allowed = np.vstack([self.allowed, answer.allowed])

    def add_plane(self, intercept: float, slope: Vector) -> None:
        """Add a plane to the model."""
        self.intercepts = np.append(self.intercepts, intercept)
        self.slopes = np.vstack([self.slopes, slope])

    def find_lowest_point(self) -> tuple[Vector, Multipliers]:
        """Return the point that minimizes the maximum of the planes, and the multipliers."""
        m, scale = self.slopes.shape[1], self._scale()
        n_planes = len(self.slopes)
        signed = self.limits is not None
        allowed = self.allowed if signed else self.allowed[m:]
        # The unknowns are x and the maximum t of the planes, with t >= intercept - slope x.
        A = np.zeros((n_planes + len(allowed), m + 1))
        A[:n_planes, :m], A[:n_planes, m] = -self.slopes / scale, -1.0
        A[n_planes:, :m] = -allowed
        right = np.append(-self.intercepts / scale, np.zeros(len(allowed)))
        bounds = [(-limit, limit) for limit in self.limits] if signed else [(0, None)] * m  # type: ignore[union-attr]
        solution = linprog(
            np.append(np.zeros(m), 1.0),
            A_ub=A,
            b_ub=right,
            A_eq=np.append(np.ones(m), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[*bounds, (None, None)],
            method="highs",
        )
        if solution.x is None:  # The solver failed because of rounding errors.
            last = np.zeros(n_planes)
            last[-1] = 1.0
            return np.full(m, 1 / m), Multipliers(last, np.zeros(len(allowed)), 0.0)
        marginals = np.maximum(-solution.ineqlin.marginals, 0)
        weights = marginals[:n_planes]
        weights = weights / weights.sum() if weights.sum() > 0 else np.full(n_planes, 1 / n_planes)
        return solution.x[:m], Multipliers(
            weights, scale * marginals[n_planes:], -scale * float(solution.eqlin.marginals[0])
        )

    def evaluate(self, x: Vector) -> float:
        """Return the maximum of the planes at x."""
        return float(np.max(self.intercepts - self.slopes @ x))

    def project_on_level(self, center: Vector, lowest: Vector, level: float) -> Vector:
        """Return the point nearest to ``center`` at which no plane is above the level.

        If the projection fails, return a point on the segment from ``center`` to ``lowest``
        instead.
        """
        m = len(center)
        scale = self._scale()
        A = np.vstack([self.slopes / scale, self.allowed])
        right = np.append((self.intercepts - level) / scale, np.zeros(len(self.allowed)))
        basis = null_space(np.ones((1, m))) if m > 1 else np.empty((1, 0))
        point = center + basis @ _find_shortest_move(A @ basis, right - A @ center)
        if self.limits is None:
            point = np.maximum(point, 0)
            point = point / point.sum() if point.sum() > 0 else center
        high, low, height = self.evaluate(center), self.evaluate(lowest), self.evaluate(point)
        if not np.isfinite(height) or height > level + 1e-3 * abs(high - level):
            fraction = min(1.0, (high - level) / (high - low)) if high > low else 1.0
            point = (1 - fraction) * center + fraction * lowest
        return np.asarray(point)

    def _scale(self) -> float:
        return max(float(np.abs(self.slopes).max()), float(np.abs(self.intercepts).max()), 1e-300)


def _find_shortest_move(A: Matrix, right: Vector) -> Vector:
    """Return the shortest z with ``A z >= right``, found with the method of Lawson and Hanson."""
    lengths = np.linalg.norm(A, axis=1)
    rows = lengths > 0
    A, right = A[rows] / lengths[rows, None], right[rows] / lengths[rows]
    size = max(float(right.max(initial=0.0)), 0.0)
    if size == 0:
        return np.zeros(A.shape[1])
    E = np.vstack([A.T, right / size])
    f = np.append(np.zeros(A.shape[1]), 1.0)
    try:
        u = nnls(E, f, maxiter=50 * E.shape[1])[0]
    except RuntimeError:
        return np.full(A.shape[1], np.nan)
    residual = E @ u - f
    if not -residual[-1] > 0:
        return np.full(A.shape[1], np.nan)
    return np.asarray(residual[:-1] / -residual[-1] * size)
