"""Support vector machine with squared hinge loss, by Newton's method on its active rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Mask, Matrix, Vector

# Maximum number of Newton steps. A warm start typically needs two or three, a cold start about ten.
_MAX_STEPS = 100
# In a cold start, the problem is first solved on every n-th row, where n is this number.
_THIN = 4
# Minimum number of rows in the smaller problem that a cold start solves first.
_MIN_ROWS = 100
# Minimum ridge, relative to the mean diagonal of K, for which single precision is accurate enough.
_MIN_RIDGE = 1e-2
# Single precision is used while more than this fraction of the rows becomes active or inactive in a
# step.
_MAX_CHANGED = 0.02


class SquaredHingeSolution(NamedTuple):
    """Coefficients beta = y * alpha of the training rows, and the intercept."""

    beta: Vector
    intercept: float


def solve_squared_hinge(
    K: Matrix, y: Vector, tau: float, start: tuple[Vector, float] | None = None
) -> SquaredHingeSolution:
    r"""Minimize :math:`\beta^T K \beta + \tfrac1\tau \sum_i (1 - y_i(K\beta + b)_i)_+^2`.

    The dual is :math:`\max 2 e^T\alpha - \alpha^T(Y K Y + \tau I)\alpha` over
    :math:`\alpha \ge 0, y^T\alpha = 0`, with :math:`\beta = y\alpha`. For a fixed set of active
    rows, which are those with a loss, the problem is the linear system
    :math:`(K_{aa} + \tau I)\beta_a + b = y_a,\; e^T\beta_a = 0`. Each Newton step solves this
    system, with an exact line search. The method stops when the active rows no longer change. A
    step costs O(a³) for a active rows, and the memory is one a×a matrix in addition to K.

    Without ``start``, the method first solves the problem for every 4th row, which is cheap and
    finds most of the active rows. It then finds the other active rows in single precision, which
    takes half the time. The last steps always use double precision.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semi-definite kernel matrix.
    y : ndarray of shape (n,)
        Labels 1 and -1. Both must occur.
    tau : float
        Positive regularization, added to the diagonal of K in the dual.
    start : (beta, intercept), optional
        Warm start, for example the solution for a similar kernel.

    Returns
    -------
    SquaredHingeSolution
        The coefficients and the intercept.
    """
    beta, b = _compute_start(K, y, tau) if start is None else start
    Kb = K @ beta if beta.any() else np.zeros(len(y))
    active = 1 - y * (Kb + b) > 0
    is_rough = start is None and tau >= _MIN_RIDGE * float(np.mean(K.diagonal()))
    for _ in range(_MAX_STEPS):
        # If no row has a loss, smaller coefficients reduce the objective, so step towards zero.
        goal, goal_b = np.zeros(len(y)), b
        if active.any():
            goal, goal_b = _solve_on_active(
                K, y, tau, active, np.float32 if is_rough else np.float64
            )
        K_goal = K @ goal
        move, K_move, move_b = goal - beta, K_goal - Kb, goal_b - b
        slack, slack_change = 1 - y * (Kb + b), -y * (K_move + move_b)
        t = _find_best_length(float(beta @ K_move), float(move @ K_move), slack, slack_change, tau)
        beta, Kb, b = beta + t * move, Kb + t * K_move, b + t * move_b
        new_active = 1 - y * (Kb + b) > 0
        if is_rough:
            is_rough, active = np.mean(new_active != active) > _MAX_CHANGED, new_active
            continue
        if t == 1.0 and np.array_equal(new_active, active):
            break
        if t * np.abs(move).max() <= 1e-14 * np.abs(beta).max() and np.array_equal(
            new_active, active
        ):
            break
        active = new_active
    return SquaredHingeSolution(beta, b)


def _compute_start(K: Matrix, y: Vector, tau: float) -> tuple[Vector, float]:
    """Return the solution for every 4th row, or zero coefficients if there are too few rows."""
    beta, labels = np.zeros(len(y)), y[::_THIN]
    if len(labels) < _MIN_ROWS or abs(labels.sum()) == len(labels):
        return beta, float(np.mean(y))
    solution = solve_squared_hinge(K[::_THIN, ::_THIN], labels, tau / _THIN)
    beta[::_THIN] = solution.beta
    return beta, solution.intercept


def _solve_on_active(
    K: Matrix, y: Vector, tau: float, active: Mask, dtype: type[np.floating[Any]] = np.float64
) -> tuple[Vector, float]:
    """Return the solution under the assumption that exactly the active rows have a loss."""
    rows = np.flatnonzero(active)
    A = K.copy() if len(rows) == len(K) else K[np.ix_(rows, rows)]
    A = A.astype(dtype, copy=False)
    A.flat[:: len(rows) + 1] += dtype(tau)
    # The transpose of a symmetric C-ordered array is in LAPACK's order, which avoids a copy.
    (potrf,) = linalg.get_lapack_funcs(("potrf",), (A,))
    factor, info = potrf(A.T, lower=True, overwrite_a=True)
    right = np.column_stack([np.ones(len(rows)), y[rows]]).astype(dtype, copy=False)
    if info == 0:
        from_ones, from_labels = linalg.cho_solve((factor, True), right, check_finite=False).T
    else:  # The matrix is numerically singular, because tau is too small.
        A = K[np.ix_(rows, rows)]
        A.flat[:: len(rows) + 1] += tau
        from_ones, from_labels = linalg.lstsq(A, right, check_finite=False)[0].T
    b = float(from_labels.sum() / from_ones.sum())
    beta = np.zeros(len(y))
    beta[rows] = from_labels - b * from_ones
    return beta, b


def _find_best_length(
    bKm: float, mKm: float, slack: Vector, slack_change: Vector, tau: float
) -> float:
    """Return the step t in [0, 1] that minimizes the objective. It is exactly 1 if 1 is optimal.

    The objective is piecewise quadratic in t. Its derivative is increasing, and linear between the
    values of t at which a slack changes its sign.
    """

    def slope(t: float) -> float:
        remaining = np.maximum(slack + t * slack_change, 0)
        return 2 * (bKm + t * mKm) + 2 * float(remaining @ slack_change) / tau

    if slope(1.0) <= 1e-12 * (abs(bKm) + mKm + float(np.abs(slack) @ np.abs(slack_change)) / tau):
        return 1.0
    crossing = np.divide(
        -slack, slack_change, out=np.full(len(slack_change), 2.0), where=slack_change != 0
    )
    knots = np.unique(np.concatenate([[0.0, 1.0], crossing[(crossing > 0) & (crossing < 1)]]))
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if slope(knots[middle]) < 0 else (low, middle)
    slope_low, slope_high = slope(knots[low]), slope(knots[high])
    if slope_low >= 0:
        return float(knots[low])
    return float(knots[low] + (knots[high] - knots[low]) * slope_low / (slope_low - slope_high))
