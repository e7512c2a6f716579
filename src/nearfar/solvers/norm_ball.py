"""Minimization over nonnegative weights in the unit ball of an l_p norm."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Protocol

import numpy as np
from scipy.optimize import minimize

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.level_method import Answer, LevelSolution, StepReport, report_step

# Number of most recent multipliers from which a mixture is built. The multipliers of the best bound
# are always included.
_MIXED = 20


class Program(Protocol):
    """Interface of the function to minimize; see `nearfar.kernels.margin_program`."""

    linear: Vector
    ridge: Matrix
    forms: Matrix

    def evaluate(self, x: Vector) -> Answer:
        """Return the value at x, and a linear lower bound of the function."""

    def prove(self, mix: Vector) -> float:
        """Return a lower bound from a mixture of all multipliers found so far."""


def run_norm_ball_method(
    program: Program,
    p: float,
    m: int,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    report: StepReport | None = None,
) -> LevelSolution:
    r"""Minimize :math:`F(x) = \max_\alpha a(\alpha) - \sum_i x_i q_i(\alpha)` in a norm ball.

    The domain is :math:`x \ge 0, \|x\|_p \le 1` with p > 1. The function a is concave, and each
    :math:`q_i` is a convex quadratic form.

    Each α gives the lower bound :math:`a(\alpha) - \|q(\alpha)\|_{p^*}`, :math:`1/p + 1/p^* = 1`,
    and so does every mixture of several α. The method searches for the best mixture. The next point
    is the closed form of [1]_, :math:`x_i \propto (x_i^2 q_i)^{1/(p+1)}`. If that reduces the gap
    too little, it is the maximizer for the best mixture, :math:`x_i \propto q_i^{p^*-1}`.

    Parameters
    ----------
    program : Program
        The function to minimize.
    p : float
        Exponent of the norm, greater than 1.
    m : int
        Number of weights.
    tol : float
        Gap between value and bound, relative to the value, at which the method stops.
    max_iter : int
        Maximum number of points at which the function is evaluated.
    report : callable, optional
        Called with the history entry of each step. Ctrl-C during the call stops the method.

    Returns
    -------
    LevelSolution
        The best point, with its value and a lower bound.

    References
    ----------
    .. [1] M. Kloft et al., "lp-norm multiple kernel learning", JMLR 12,
       2011.
    """
    x = np.full(m, m ** (-1 / p))
    best, value, bound, gap = x, np.inf, -np.inf, np.inf
    mix = np.empty(0)
    history: list[dict[str, Any]] = []
    start_time, interrupt = perf_counter(), None
    for _ in range(max_iter):
        answer = program.evaluate(x)
        if answer.value < value:
            best, value = x, answer.value
        mix = _find_best_mixture(program, np.append(mix, 0.0), p)
        bound = max(bound, program.prove(mix))
        previous_gap, gap = gap, (value - bound) / abs(value) if np.isfinite(value) else np.inf
        history.append(
            {"value": value, "bound": bound, "gap": gap, "seconds": perf_counter() - start_time}
        )
        interrupt = report_step(report, history[-1])
        if gap <= tol or interrupt:
            break
        if gap < 0.5 * previous_gap:
            x = _normalize((x**2 * np.maximum(answer.slope, 0)) ** (1 / (p + 1)), p)
        else:
            x = _find_maximizer(mix_forms(program.forms, mix), p)
    return LevelSolution(best, value, bound, history, interrupt)


def mix_forms(forms: Matrix, mix: Vector) -> Vector:
    """Return the values of the quadratic forms for a mixture of multipliers."""
    return np.asarray(np.einsum("ijk,j,k->i", forms, mix, mix, optimize=True))


def compute_dual_norm(q: Vector, p: float) -> float:
    """Return the maximum of ``x @ q`` over all x >= 0 with p-norm at most 1.

    For p = 1, the sum of x is exactly 1.
    """
    if p == 1:
        return float(q.max())
    q = np.maximum(q, 0)
    size = float(q.max())
    dual = p / (p - 1)
    return size * float(((q / size) ** dual).sum() ** (1 / dual)) if size > 0 else 0.0


def _find_maximizer(q: Vector, p: float) -> Vector:
    """Return the x in the unit ball that maximizes ``x @ q``."""
    q = np.maximum(q, 0)
    return _normalize((q / max(float(q.max()), 1e-300)) ** (1 / (p - 1)), p)


def _normalize(x: Vector, p: float) -> Vector:
    size = float(x.max())
    if not size > 0:
        return np.full(len(x), len(x) ** (-1 / p))
    x = x / size
    return np.asarray(x / (x**p).sum() ** (1 / p))


def _find_best_mixture(program: Program, start: Vector, p: float) -> Vector:
    """Return the mixture of multipliers with the largest bound.

    The search starts from the last best mixture.
    """
    n_multipliers = len(program.linear)
    start = start if start.sum() > 0 else np.eye(1, n_multipliers, n_multipliers - 1)[0]
    indices = np.flatnonzero((start > 1e-9) | (np.arange(n_multipliers) >= n_multipliers - _MIXED))
    linear, ridge = program.linear[indices], program.ridge[np.ix_(indices, indices)]
    forms = program.forms[np.ix_(np.arange(len(program.forms)), indices, indices)]
    scale = max(float(np.abs(linear).max()), 1e-300)

    def evaluate_negative(mix: Vector) -> tuple[float, Vector]:
        images = forms @ mix
        q = np.maximum(images @ mix, 0)
        x = _find_maximizer(q, p) if q.max() > 0 else np.zeros(len(q))
        value = linear @ mix - mix @ ridge @ mix - x @ q
        slope = linear - 2 * ridge @ mix - 2 * x @ images
        return float(-value / scale), -slope / scale

    candidates = [start[indices], np.eye(1, len(indices), len(indices) - 1)[0]]
    first = min(candidates, key=lambda mix: evaluate_negative(mix)[0])
    result = minimize(
        evaluate_negative,
        0.9 * first + 0.1 / len(indices),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * len(indices),
        constraints={"type": "eq", "fun": lambda mix: mix.sum() - 1, "jac": np.ones_like},
        options={"maxiter": 200, "ftol": 1e-12},
    ).x
    result = np.maximum(np.nan_to_num(result), 0)
    if result.sum() > 0:
        candidates.append(result / result.sum())
    mix = np.zeros(n_multipliers)
    mix[indices] = min(candidates, key=lambda mix: evaluate_negative(mix)[0])
    return mix
