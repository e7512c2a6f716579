"""Newton's method for all factors of a support tensor machine at once, and its exact end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.hinge_program import HingePoint, compute_centered_move
from nearfar.solvers.smoothed_hinges import SmoothedHinges

# Rows so far from the corner, in widths of it and at least, are left out of steps.
_REACH = 0.3
# Rounds of steps on the rows left, for one width.
_ROUNDS = 50
# Damping in shares of the mean curvature: at first, at least, and where all is given up.
_DAMPING = 1e-3
_LEAST = 1e-8
_MOST = 1e8
# How much of the way to the boundary an interior step goes.
_STEP = 0.99
# The end: products of slacks and multipliers over the costs, equations and gradient over theirs.
_PRODUCTS = 1e-10
_EQUATIONS = 1e-8


def rounded_newton(
    problem: SmoothedHinges, point: Vector, width: float, *, tol: float = 1e-4, max_iter: int = 100
) -> Vector:
    """A stationary point under hinges whose corner is rounded over a width.

    Damped Newton steps on the samples near their corner. The others pull with all or nothing; they
    are looked at when scores have moved so far that one of them might have come to its corner, and
    steps that all samples together do not like are taken back.

    Parameters
    ----------
    problem : SmoothedHinges
        Of all samples.
    point : ndarray
        Where to start.
    width : float
        Of the corner.
    tol : float
        Length of the gradient, in units of the problem, at which to stop.
    max_iter : int
        Most steps.

    Returns
    -------
    ndarray
    """
    damping, before, spent = _DAMPING, (point, np.inf), 0
    for _ in range(_ROUNDS):
        W, short = problem.shortfalls(point)
        value = problem.smoothed(point, W, short, width)
        if value > before[1]:
            if damping > _MOST:
                return before[0]
            point, damping = before[0], 30 * damping
            W, short = problem.shortfalls(point)
            value = before[1]
        before = point, value
        near, pulls, rest = problem.near(short, width, max(_REACH, width))
        found = _damped_steps(near, point, width, damping, tol, max_iter - spent)
        damping, spent = found.damping, spent + found.n_iter
        moved, point = point is not found.point, found.point
        if found.ended or not moved or spent >= max_iter:
            W, short = problem.shortfalls(point)
            aside = (short[pulls] < width).any() or (short[rest] > 0).any()
            if not aside:
                return point
            if spent >= max_iter:
                better = problem.smoothed(point, W, short, width) < value
                return point if better else before[0]
    return before[0]


class _Steps(NamedTuple):
    point: Vector
    damping: float
    n_iter: int
    #: Whether the gradient is small, or rounding allows no more; False where scores moved far.
    ended: bool


def _damped_steps(
    problem: SmoothedHinges,
    point: Vector,
    width: float,
    damping: float,
    tol: float,
    max_iter: int,
) -> _Steps:
    """Newton steps on some samples, until their scores have moved too far for the others."""
    W, short = problem.shortfalls(point)
    value, first = problem.smoothed(point, W, short, width), short
    for step in range(max_iter):
        slope = -problem.cost * problem.y * np.clip(short, 0, width) / width
        g, G = problem.gradient(point, W, slope)
        g /= problem.level
        if np.linalg.norm(g) <= tol:
            return _Steps(point, damping, step, ended=True)
        inside = (short > 0) & (short < width)
        J = problem.score_gradients(point, inside)
        J *= np.sqrt(problem.cost[inside] / width)[:, None]
        H = (problem.curvature(point, G) + J.T @ J) / problem.level
        mean = float(np.abs(np.diag(H)).mean())
        while damping <= _MOST:
            move = _solved(H, damping * mean, -g)
            if move is not None:
                new = point + move
                W_new, short_new = problem.shortfalls(new)
                value_new = problem.smoothed(new, W_new, short_new, width)
                foreseen = -float(g @ move + 0.5 * move @ H @ move)
                share = (value - value_new) / foreseen if foreseen > 0 else 0.0
                if share > 1e-4:
                    break
                if foreseen <= 1e-15 * abs(value):  # no more than rounding
                    return _Steps(point, damping, step, ended=True)
            damping = max(6 * damping, _LEAST)
        else:
            return _Steps(point, _DAMPING, step, ended=True)
        point, W, short, value = new, W_new, short_new, value_new
        if share > 0.7:
            damping = max(damping / 8, _LEAST)
        elif share < 0.25:
            damping *= 3
        if np.abs(short - first).max() > problem.reach:
            return _Steps(point, damping, step + 1, ended=False)
    return _Steps(point, damping, max_iter, ended=True)


def exact_end(
    problem: SmoothedHinges, point: Vector, width: float, *, max_iter: int = 25
) -> Vector | None:
    r"""A stationary point with true hinges near one of rounded hinges.

    An interior point method for the program with slacks,

    .. math:: \min \tfrac12\|W\|^2 + \sum_i c_i \xi_i, \qquad
        y_i f_i + \xi_i - r_i = 1,\quad \xi, r \ge 0,

    in the factors: `solve_hinge_program`, with the scores linear in them at every step and the
    curvature of the Lagrangian in place of the quadratic term. It has no globalisation, and needs
    none from where rounded hinges end.

    Parameters
    ----------
    problem : SmoothedHinges
        Of all samples.
    point : ndarray
        Of the hinges rounded over ``width``.
    width : float
        Of the corner there.
    max_iter : int
        Most steps.

    Returns
    -------
    ndarray or None
        None where it was not found.
    """
    _, short = problem.shortfalls(point)
    near, pulls, rest = problem.near(short, 0.0, _REACH)
    found = _interior(near, point, width, max_iter)
    if found is None:
        return None
    W, after = problem.shortfalls(found)
    if (after[pulls] < 0).any() or (after[rest] > 0).any():
        return None
    begun = problem.value(point)
    return found if problem.level * problem.smoothed(found, W, after, 0.0) <= begun else None


def _interior(problem: SmoothedHinges, point: Vector, width: float, max_iter: int) -> Vector | None:
    state = _Interior(problem, point, width)
    for _ in range(max_iter):
        state.look()
        if state.solved():
            return state.x
        if not state.factor():
            return None
        move, length = compute_centered_move(state, fraction=_STEP, min_centering=1e-3)
        if not (np.isfinite(move.x).all() and length > 1e-8):
            return None
        state = state.take_step(move, length).clip_to_interior()
    return None


class _Interior(HingePoint):
    """An iterate; its program is that of the scores as they change with the unknowns here."""

    def __init__(self, problem: SmoothedHinges, point: Vector, width: float) -> None:
        cost, n = problem.cost, len(problem.cost)
        nothing = np.zeros(len(point))
        super().__init__(np.zeros((n, len(point))), np.ones(n), cost, nothing, nothing, False)
        self.problem, self.x, self.damping = problem, point, 0.0
        # On the central path of each sample by itself: c = t/xi + t/r with xi - r its shortfall.
        short, t = problem.shortfalls(point)[1], 0.25 * width * cost
        half = short / 2 + t / cost
        self.xi = half + np.sqrt(half**2 - t * short / cost)
        self.r = self.xi - short
        self.a = np.clip(t / self.r, 1e-12 * cost, (1 - 1e-12) * cost)

    def look(self) -> None:
        """Shortfalls and the gradient of the Lagrangian here."""
        W, self.short = self.problem.shortfalls(self.x)
        self.amiss, self.by_tensor = self.problem.gradient(self.x, W, -self.a * self.problem.y)

    def solved(self) -> bool:
        """Whether all conditions of a stationary point hold."""
        equations = np.abs(self.short - self.xi + self.r).max(initial=0.0)
        return bool(
            self.complementarity() <= _PRODUCTS * float(self.problem.cost.mean())
            and equations <= _EQUATIONS
            and np.linalg.norm(self.amiss) <= _EQUATIONS * self.problem.level
        )

    def factor(self) -> bool:
        """Factorise the matrix of the step from here, damped where it is not positive definite."""
        problem = self.problem
        J = problem.score_gradients(self.x) * problem.y[:, None]
        self.program = J, *self.program[1:]
        self.s = problem.cost - self.a
        self.D = self.xi / self.s + self.r / self.a
        B = J / np.sqrt(self.D)[:, None]
        curvature = problem.curvature(self.x, self.by_tensor)
        H = curvature + B.T @ B
        mean, most = np.abs(np.diag(curvature)).mean(), np.abs(np.diag(H)).max()
        self.damping /= 4
        while self.damping <= _MOST:
            self.cholesky = _factor(H, float(self.damping * mean + 1e-12 * most))
            if self.cholesky is not None:
                return True
            self.damping = max(4 * self.damping, 1e-5)
        return False


def _factor(H: Matrix, ridge: float) -> Matrix | None:
    """Cholesky of H with a ridge, None if that is not positive definite."""
    shifted = H.copy()
    shifted.flat[:: len(H) + 1] += ridge
    factor, failed = lapack.dpotrf(shifted, lower=1)
    return None if failed else factor


def _solved(H: Matrix, ridge: float, right: Vector) -> Vector | None:
    factor = _factor(H, ridge)
    return None if factor is None else np.asarray(lapack.dpotrs(factor, right, lower=1)[0])
