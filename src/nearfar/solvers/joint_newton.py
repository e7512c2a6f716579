"""Newton's method and an interior point method for all factors of a support tensor machine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.hinge_program import HingePoint, compute_centered_move
from nearfar.solvers.smoothed_hinges import SmoothedHinges

# Distance from the corner of the hinge beyond which samples are left out of the steps. If the
# rounded corner is wider, its width is used instead.
_REACH = 0.3
# Maximum number of rounds per width. All steps of a round use the same subset of the samples.
_MAX_ROUNDS = 50
# Initial damping, in units of the mean curvature.
_INITIAL_DAMPING = 1e-3
# Minimum damping, in units of the mean curvature.
_MIN_DAMPING = 1e-8
# Maximum damping, in units of the mean curvature. No step is attempted with larger damping.
_MAX_DAMPING = 1e8
# Length of an interior-point step, as a fraction of the distance to the boundary.
_STEP = 0.99
# Tolerance of the interior-point method for products of slacks and multipliers, relative to the
# mean cost.
_COMPLEMENTARITY_RTOL = 1e-10
# Tolerance of the interior-point method for residuals. Residuals of the equations are absolute, the
# residual of the gradient is relative to the total cost.
_RESIDUAL_RTOL = 1e-8


def minimize_smoothed_hinges(
    problem: SmoothedHinges, point: Vector, width: float, *, tol: float = 1e-4, max_iter: int = 100
) -> Vector:
    """Find a stationary point for hinges whose corner is rounded over ``width``.

    The method takes damped Newton steps on the samples near the corner of their hinge. The loss of
    the other samples is linear or zero. These samples are checked again once the scores have
    changed enough for one of them to reach its corner. Steps that increase the objective over all
    samples are undone.

    Parameters
    ----------
    problem : SmoothedHinges
        Problem with all samples.
    point : ndarray
        Initial vector of unknowns.
    width : float
        Width of the rounded corner.
    tol : float
        Norm of the gradient, relative to the total cost, at which to stop.
    max_iter : int
        Maximum number of steps.

    Returns
    -------
    ndarray
        Vector of unknowns.
    """
    damping, previous, n_steps = _INITIAL_DAMPING, (point, np.inf), 0
    for _ in range(_MAX_ROUNDS):
        W, short = problem.compute_shortfalls(point)
        value = problem.evaluate_smoothed(point, W, short, width)
        if value > previous[1]:
            if damping > _MAX_DAMPING:
                return previous[0]
            point, damping = previous[0], 30 * damping
            W, short = problem.compute_shortfalls(point)
            value = previous[1]
        previous = point, value
        subset, is_linear, is_zero = problem.select_near_corner(short, width, max(_REACH, width))
        steps = _take_damped_steps(subset, point, width, damping, tol, max_iter - n_steps)
        damping, n_steps = steps.damping, n_steps + steps.n_iter
        has_moved, point = point is not steps.point, steps.point
        if steps.is_finished or not has_moved or n_steps >= max_iter:
            W, short = problem.compute_shortfalls(point)
            has_crossed = (short[is_linear] < width).any() or (short[is_zero] > 0).any()
            if not has_crossed:
                return point
            if n_steps >= max_iter:
                is_better = problem.evaluate_smoothed(point, W, short, width) < value
                return point if is_better else previous[0]
    return previous[0]


class _Steps(NamedTuple):
    point: Vector
    damping: float
    n_iter: int
    #: True if the gradient is small, or if no further progress is possible. False if the steps
    #: stopped because the samples that were left out must be checked again.
    is_finished: bool


def _take_damped_steps(
    problem: SmoothedHinges,
    point: Vector,
    width: float,
    damping: float,
    tol: float,
    max_iter: int,
) -> _Steps:
    """Take damped Newton steps on a subset of the samples.

    The steps also stop when a score has changed by more than the reach. The samples that were left
    out must then be checked again.
    """
    W, short = problem.compute_shortfalls(point)
    value, initial_short = problem.evaluate_smoothed(point, W, short, width), short
    for n_iter in range(max_iter):
        slope = -problem.cost * problem.y * np.clip(short, 0, width) / width
        g, G = problem.gradient(point, W, slope)
        g /= problem.total_cost
        if np.linalg.norm(g) <= tol:
            return _Steps(point, damping, n_iter, is_finished=True)
        inside = (short > 0) & (short < width)
        J = problem.score_gradients(point, inside)
        J *= np.sqrt(problem.cost[inside] / width)[:, None]
        H = (problem.curvature(point, G) + J.T @ J) / problem.total_cost
        mean = float(np.abs(np.diag(H)).mean())
        while damping <= _MAX_DAMPING:
            step = _solve_cholesky(H, damping * mean, -g)
            if step is not None:
                new = point + step
                W_new, short_new = problem.compute_shortfalls(new)
                value_new = problem.evaluate_smoothed(new, W_new, short_new, width)
                predicted_decrease = -float(g @ step + 0.5 * step @ H @ step)
                gain_ratio = (
                    (value - value_new) / predicted_decrease if predicted_decrease > 0 else 0.0
                )
                if gain_ratio > 1e-4:
                    break
                # A smaller decrease cannot be distinguished from rounding errors.
                if predicted_decrease <= 1e-15 * abs(value):
                    return _Steps(point, damping, n_iter, is_finished=True)
            damping = max(6 * damping, _MIN_DAMPING)
        else:
            return _Steps(point, _INITIAL_DAMPING, n_iter, is_finished=True)
        point, W, short, value = new, W_new, short_new, value_new
        if gain_ratio > 0.7:
            damping = max(damping / 8, _MIN_DAMPING)
        elif gain_ratio < 0.25:
            damping *= 3
        if np.abs(short - initial_short).max() > problem.reach:
            return _Steps(point, damping, n_iter + 1, is_finished=False)
    return _Steps(point, damping, max_iter, is_finished=True)


def solve_exact_hinges(
    problem: SmoothedHinges, point: Vector, width: float, *, max_iter: int = 25
) -> Vector | None:
    r"""Find a stationary point for exact hinges, starting from a solution for rounded hinges.

    The program with slacks,

    .. math:: \min \tfrac12\|W\|^2 + \sum_i c_i \xi_i, \qquad
        y_i f_i + \xi_i - r_i = 1,\quad \xi, r \ge 0,

    is solved in the factors by the interior-point method of :mod:`nearfar.solvers.hinge_program`.
    At every step the scores are linearized in the factors, and the curvature of the Lagrangian
    replaces the quadratic term. The method does not use a line search or a trust region, because
    solutions for rounded hinges are close enough to the result.

    Parameters
    ----------
    problem : SmoothedHinges
        Problem with all samples.
    point : ndarray
        Solution for hinges rounded over ``width``.
    width : float
        Width of the rounded corner for which ``point`` was computed.
    max_iter : int
        Maximum number of steps.

    Returns
    -------
    ndarray or None
        Vector of unknowns, or None if no solution was found.
    """
    _, short = problem.compute_shortfalls(point)
    subset, is_linear, is_zero = problem.select_near_corner(short, 0.0, _REACH)
    solution = _solve_interior(subset, point, width, max_iter)
    if solution is None:
        return None
    W, new_short = problem.compute_shortfalls(solution)
    if (new_short[is_linear] < 0).any() or (new_short[is_zero] > 0).any():
        return None
    initial_value = problem.value(point)
    new_value = problem.total_cost * problem.evaluate_smoothed(solution, W, new_short, 0.0)
    return solution if new_value <= initial_value else None


def _solve_interior(
    problem: SmoothedHinges, point: Vector, width: float, max_iter: int
) -> Vector | None:
    state = _InteriorPoint(problem, point, width)
    for _ in range(max_iter):
        state.update_residuals()
        if state.is_solved():
            return state.x
        if not state.factor():
            return None
        move, length = compute_centered_move(state, fraction=_STEP, min_centering=1e-3)
        if not (np.isfinite(move.x).all() and length > 1e-8):
            return None
        state = state.take_step(move, length).clip_to_interior()
    return None


class _InteriorPoint(HingePoint):
    """Iterate of the interior-point method. The scores are linearized at the iterate."""

    def __init__(self, problem: SmoothedHinges, point: Vector, width: float) -> None:
        cost, n = problem.cost, len(problem.cost)
        zeros = np.zeros(len(point))
        super().__init__(np.zeros((n, len(point))), np.ones(n), cost, zeros, zeros, False)
        self.problem, self.x, self.damping = problem, point, 0.0
        # Start each sample on its central path: c = t/xi + t/r, where xi - r is the shortfall.
        short, t = problem.compute_shortfalls(point)[1], 0.25 * width * cost
        half = short / 2 + t / cost
        self.xi = half + np.sqrt(half**2 - t * short / cost)
        self.r = self.xi - short
        self.a = np.clip(t / self.r, 1e-12 * cost, (1 - 1e-12) * cost)

    def update_residuals(self) -> None:
        """Compute the shortfalls and the gradient of the Lagrangian at the iterate."""
        W, self.short = self.problem.compute_shortfalls(self.x)
        self.amiss, self.by_tensor = self.problem.gradient(self.x, W, -self.a * self.problem.y)

    def is_solved(self) -> bool:
        """Return True if the iterate satisfies all conditions of a stationary point."""
        equations = np.abs(self.short - self.xi + self.r).max(initial=0.0)
        return bool(
            self.complementarity() <= _COMPLEMENTARITY_RTOL * float(self.problem.cost.mean())
            and equations <= _RESIDUAL_RTOL
            and np.linalg.norm(self.amiss) <= _RESIDUAL_RTOL * self.problem.total_cost
        )

    def factor(self) -> bool:
        """Factorize the matrix of the next step. If necessary, add damping.

        Return False if the maximum damping is not enough.
        """
        problem = self.problem
        J = problem.score_gradients(self.x) * problem.y[:, None]
        self.program = J, *self.program[1:]
        self.s = problem.cost - self.a
        self.D = self.xi / self.s + self.r / self.a
        B = J / np.sqrt(self.D)[:, None]
        curvature = problem.curvature(self.x, self.by_tensor)
        H = curvature + B.T @ B
        mean, max_diagonal = np.abs(np.diag(curvature)).mean(), np.abs(np.diag(H)).max()
        self.damping /= 4
        while self.damping <= _MAX_DAMPING:
            self.cholesky = _factor_cholesky(H, float(self.damping * mean + 1e-12 * max_diagonal))
            if self.cholesky is not None:
                return True
            self.damping = max(4 * self.damping, 1e-5)
        return False


def _factor_cholesky(H: Matrix, ridge: float) -> Matrix | None:
    """Return the Cholesky factor of H plus a ridge, or None if the sum is not positive definite."""
    shifted = H.copy()
    shifted.flat[:: len(H) + 1] += ridge
    factor, failed = lapack.dpotrf(shifted, lower=1)
    return None if failed else factor


def _solve_cholesky(H: Matrix, ridge: float, right: Vector) -> Vector | None:
    factor = _factor_cholesky(H, ridge)
    return None if factor is None else np.asarray(lapack.dpotrs(factor, right, lower=1)[0])
