"""Least margin functionals over non-negative weights in the unit ball of an l_p norm."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Protocol

import numpy as np
from scipy.optimize import minimize

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.level_method import Answer, LevelSolution, StepReport, report_step

# Mixtures are sought among so many of the last multipliers, and those the best bound uses.
_MIXED = 20


class Program(Protocol):
    """What the method asks of a function; see `nearfar.kernels.margin_program`."""

    linear: Vector
    ridge: Matrix
    forms: Matrix

    def ask(self, x: Vector) -> Answer:
        """A value and a plane below the function."""

    def prove(self, mix: Vector) -> float:
        """The bound of a mixture of the multipliers found so far."""


def norm_ball_method(
    program: Program,
    p: float,
    m: int,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    report: StepReport | None = None,
) -> LevelSolution:
    r"""The minimum of :math:`F(x) = \max_\alpha a(\alpha) - \sum_i x_i q_i(\alpha)` in a ball.

    Over :math:`x \ge 0, \|x\|_p \le 1` with p > 1; a is concave and each q a convex quadratic form.

    Each α bounds the minimum by :math:`a(\alpha) - \|q(\alpha)\|_{p^*}`, :math:`1/p + 1/p^* = 1`,
    and so does every mixture of them: the best one is sought. The next point is the closed form of
    [1]_, :math:`x_i \propto (x_i^2 q_i)^{1/(p+1)}`; where that gains little, the x that answers the
    best mixture, :math:`x_i \propto q_i^{p^*-1}`.

    Parameters
    ----------
    program : Program
        The function.
    p : float
        Above 1.
    m : int
        Number of weights.
    tol : float
        Gap between value and bound, relative to the value, at which to stop.
    max_iter : int
        Most points.
    report : callable, optional
        Called with each step of the history. Ctrl-C from it ends the steps.

    Returns
    -------
    LevelSolution

    References
    ----------
    .. [1] M. Kloft et al., "lp-norm multiple kernel learning", JMLR 12,
       2011.
    """
    x = np.full(m, m ** (-1 / p))
    best, value, bound, gap = x, np.inf, -np.inf, np.inf
    mix = np.empty(0)
    history: list[dict[str, Any]] = []
    begun, interrupt = perf_counter(), None
    for _ in range(max_iter):
        answer = program.ask(x)
        if answer.value < value:
            best, value = x, answer.value
        mix = _best_mixture(program, np.append(mix, 0.0), p)
        bound = max(bound, program.prove(mix))
        before, gap = gap, (value - bound) / abs(value) if np.isfinite(value) else np.inf
        history.append(
            {"value": value, "bound": bound, "gap": gap, "seconds": perf_counter() - begun}
        )
        interrupt = report_step(report, history[-1])
        if gap <= tol or interrupt:
            break
        if gap < 0.5 * before:
            x = _unit((x**2 * np.maximum(answer.slope, 0)) ** (1 / (p + 1)), p)
        else:
            x = _answer_to(mixed_forms(program.forms, mix), p)
    return LevelSolution(best, value, bound, history, interrupt)


def mixed_forms(forms: Matrix, mix: Vector) -> Vector:
    """The quadratic forms at a mixture."""
    return np.asarray(np.einsum("ijk,j,k->i", forms, mix, mix, optimize=True))


def dual_norm(q: Vector, p: float) -> float:
    """The largest ``x @ q`` of x >= 0 with a p-norm of 1 at most; for p = 1, of sum 1."""
    if p == 1:
        return float(q.max())
    q = np.maximum(q, 0)
    size = float(q.max())
    dual = p / (p - 1)
    return size * float(((q / size) ** dual).sum() ** (1 / dual)) if size > 0 else 0.0


def _answer_to(q: Vector, p: float) -> Vector:
    """The x of the unit ball with the largest product with q."""
    q = np.maximum(q, 0)
    return _unit((q / max(float(q.max()), 1e-300)) ** (1 / (p - 1)), p)


def _unit(x: Vector, p: float) -> Vector:
    size = float(x.max())
    if not size > 0:
        return np.full(len(x), len(x) ** (-1 / p))
    x = x / size
    return np.asarray(x / (x**p).sum() ** (1 / p))


def _best_mixture(program: Program, start: Vector, p: float) -> Vector:
    """The mixture that proves most; it begins from one known, with one more to mix in."""
    number = len(program.linear)
    start = start if start.sum() > 0 else np.eye(1, number, number - 1)[0]
    used = np.flatnonzero((start > 1e-9) | (np.arange(number) >= number - _MIXED))
    linear, ridge = program.linear[used], program.ridge[np.ix_(used, used)]
    forms = program.forms[np.ix_(np.arange(len(program.forms)), used, used)]
    scale = max(float(np.abs(linear).max()), 1e-300)

    def negative(mix: Vector) -> tuple[float, Vector]:
        images = forms @ mix
        q = np.maximum(images @ mix, 0)
        x = _answer_to(q, p) if q.max() > 0 else np.zeros(len(q))
        value = linear @ mix - mix @ ridge @ mix - x @ q
        slope = linear - 2 * ridge @ mix - 2 * x @ images
        return float(-value / scale), -slope / scale

    candidates = [start[used], np.eye(1, len(used), len(used) - 1)[0]]
    first = min(candidates, key=lambda mix: negative(mix)[0])
    found = minimize(
        negative,
        0.9 * first + 0.1 / len(used),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * len(used),
        constraints={"type": "eq", "fun": lambda mix: mix.sum() - 1, "jac": np.ones_like},
        options={"maxiter": 200, "ftol": 1e-12},
    ).x
    found = np.maximum(np.nan_to_num(found), 0)
    if found.sum() > 0:
        candidates.append(found / found.sum())
    mix = np.zeros(number)
    mix[used] = min(candidates, key=lambda one: negative(one)[0])
    return mix
