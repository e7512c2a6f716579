"""Convex functions over a simplex or a cone of weights, by cutting planes and level steps.

An oracle says at a point what the function is at most there, and gives planes below the function
everywhere. The least value of all planes together bounds the minimum from below; the next point is
the one nearest to the best so far at which no plane exceeds a level between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog, nnls

from nearfar.arrays import Matrix, Vector

# The level, between the bound (0) and the best value (1).
_LEVEL = 0.3


#: What is called with each step.
StepReport = Callable[[dict[str, Any]], None]


class Answer(NamedTuple):
    """What an oracle says.

    Attributes
    ----------
    point : ndarray of shape (m,)
        Where ``value`` was taken; another point than asked where that is not allowed.
    value : float
        The function is no more there.
    intercept, slope : float, ndarray of shape (m,)
        It is at least ``intercept - slope @ x`` everywhere.
    allowed : ndarray of shape (k, m)
        Rows h with ``h @ x >= 0`` at all points that are allowed, of which the oracle learned now.
    """

    point: Vector
    value: float
    intercept: float
    slope: Vector
    allowed: Matrix


class Multipliers(NamedTuple):
    """Of the planes (they sum to 1), of the rows of ``allowed``, and of the sum of x."""

    planes: Vector
    allowed: Vector
    total: float


class LevelSolution(NamedTuple):
    """The best point, its value, the bound, and what happened; ``history`` has a dict a step."""

    point: Vector
    value: float
    bound: float
    history: list[dict[str, Any]]
    #: Ctrl-C that ended it early.
    interrupt: KeyboardInterrupt | None = None


def told_of_step(report: StepReport | None, state: dict[str, Any]) -> KeyboardInterrupt | None:
    """Tell of a step; Ctrl-C meanwhile is returned."""
    try:
        if report is not None:
            report(state)
    except KeyboardInterrupt as interrupt:
        return interrupt
    return None


def level_method(
    oracle: Callable[[Vector], Answer],
    certify: Callable[[Multipliers, Model], float],
    start: Vector,
    *,
    limits: Vector | None = None,
    tol: float = 1e-3,
    max_iter: int = 200,
    report: StepReport | None = None,
) -> LevelSolution:
    r"""The minimum of a convex function of x with :math:`\sum_i x_i = 1`.

    Parameters
    ----------
    oracle : callable
        Of a point, see `Answer`.
    certify : callable
        The bound that multipliers of the planes prove; it may add planes to the model.
    start : ndarray of shape (m,)
        An allowed point.
    limits : ndarray of shape (m,), optional
        No :math:`|x_i|` is larger at any allowed point. By default all x are at least 0.
    tol : float
        Gap between value and bound, relative to the value, at which to stop.
    max_iter : int
        Most questions to the oracle.
    report : callable, optional
        Called with each step of the history. Ctrl-C from it ends the steps.

    Returns
    -------
    LevelSolution

    Notes
    -----
    [1]_ shows that some :math:`1/\text{tol}^2` steps suffice; in practice it is a dozen.

    References
    ----------
    .. [1] C. Lemaréchal, A. Nemirovskii and Y. Nesterov, "New variants of bundle methods",
       Mathematical Programming 69, 1995.
    """
    model = Model(len(start), limits)
    best, value, bound = start, np.inf, -np.inf
    history: list[dict[str, Any]] = []
    begun, point, interrupt = perf_counter(), start, None
    for _ in range(max_iter):
        answer = oracle(point)
        model.add(answer)
        if answer.value < value:
            best, value = answer.point, answer.value
        lowest, multipliers = model.lowest()
        bound = max(bound, certify(multipliers, model))
        gap = (value - bound) / abs(value) if np.isfinite(value) else np.inf
        history.append(
            {"value": value, "bound": bound, "gap": gap, "seconds": perf_counter() - begun}
        )
        interrupt = told_of_step(report, history[-1])
        if gap <= tol or interrupt:
            break
        point = model.level_point(best, lowest, bound + _LEVEL * (value - bound))
    return LevelSolution(best, value, bound, history, interrupt)


class Model:
    """Planes below a function, and rows that tell what points are allowed."""

    def __init__(self, m: int, limits: Vector | None) -> None:
        self.intercepts, self.slopes = np.empty(0), np.empty((0, m))
        self.limits = limits
        self.allowed = np.eye(m) if limits is None else np.empty((0, m))

    def add(self, answer: Answer) -> None:
        """One plane, and what is known of allowed points."""
        self.add_plane(answer.intercept, answer.slope)
        self.allowed = np.vstack([self.allowed, answer.allowed])

    def add_plane(self, intercept: float, slope: Vector) -> None:
        """A plane alone."""
        self.intercepts = np.append(self.intercepts, intercept)
        self.slopes = np.vstack([self.slopes, slope])

    def lowest(self) -> tuple[Vector, Multipliers]:
        """Where the largest plane is least, and the multipliers that show it."""
        m, scale = self.slopes.shape[1], self._scale()
        planes = len(self.slopes)
        signed = self.limits is not None
        rows = self.allowed if signed else self.allowed[m:]
        # Unknowns x and the height t of all planes: t >= intercept - slope x.
        A = np.zeros((planes + len(rows), m + 1))
        A[:planes, :m], A[:planes, m] = -self.slopes / scale, -1.0
        A[planes:, :m] = -rows
        right = np.append(-self.intercepts / scale, np.zeros(len(rows)))
        bounds = [(-limit, limit) for limit in self.limits] if signed else [(0, None)] * m  # type: ignore[union-attr]
        found = linprog(
            np.append(np.zeros(m), 1.0),
            A_ub=A,
            b_ub=right,
            A_eq=np.append(np.ones(m), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[*bounds, (None, None)],
            method="highs",
        )
        if found.x is None:  # rounding
            last = np.zeros(planes)
            last[-1] = 1.0
            return np.full(m, 1 / m), Multipliers(last, np.zeros(len(rows)), 0.0)
        marginals = np.maximum(-found.ineqlin.marginals, 0)
        weights = marginals[:planes]
        weights = weights / weights.sum() if weights.sum() > 0 else np.full(planes, 1 / planes)
        return found.x[:m], Multipliers(
            weights, scale * marginals[planes:], -scale * float(found.eqlin.marginals[0])
        )

    def height(self, x: Vector) -> float:
        """The largest plane at x."""
        return float(np.max(self.intercepts - self.slopes @ x))

    def level_point(self, center: Vector, lowest: Vector, level: float) -> Vector:
        """The point nearest to ``center`` where no plane exceeds the level.

        Without an answer from the projection, the point of the way to ``lowest`` that does.
        """
        m = len(center)
        scale = self._scale()
        A = np.vstack([self.slopes / scale, self.allowed])
        right = np.append((self.intercepts - level) / scale, np.zeros(len(self.allowed)))
        basis = null_space(np.ones((1, m))) if m > 1 else np.empty((1, 0))
        point = center + basis @ _least_move(A @ basis, right - A @ center)
        if self.limits is None:
            point = np.maximum(point, 0)
            point = point / point.sum() if point.sum() > 0 else center
        high, low, at = self.height(center), self.height(lowest), self.height(point)
        if not np.isfinite(at) or at > level + 1e-3 * abs(high - level):
            share = min(1.0, (high - level) / (high - low)) if high > low else 1.0
            point = (1 - share) * center + share * lowest
        return np.asarray(point)

    def _scale(self) -> float:
        return max(float(np.abs(self.slopes).max()), float(np.abs(self.intercepts).max()), 1e-300)


def _least_move(A: Matrix, right: Vector) -> Vector:
    """The shortest z with ``A z >= right`` (Lawson and Hanson's least distance program)."""
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
    left = E @ u - f
    if not -left[-1] > 0:
        return np.full(A.shape[1], np.nan)
    return np.asarray(left[:-1] / -left[-1] * size)
