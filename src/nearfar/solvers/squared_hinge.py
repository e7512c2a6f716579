"""The support vector machine of squared hinges, by Newton's method on its active rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Mask, Matrix, Vector

# Steps that a start near the solution takes are two or three; from nowhere, about ten.
_MAX_STEPS = 100
# From nowhere, every so many-th row is solved first, while that leaves so many rows.
_THIN, _FEW = 4, 100
# Down to this share of the mean diagonal, a ridge is seen in single precision.
_SEEN = 1e-2
# While more than this share of the rows change sides.
_MOVING = 0.02


class SquaredHinge(NamedTuple):
    """Coefficients beta = y * alpha of the rows, and the intercept."""

    beta: Vector
    intercept: float


def squared_hinge(
    K: Matrix, y: Vector, tau: float, start: tuple[Vector, float] | None = None
) -> SquaredHinge:
    r"""The minimiser of :math:`\beta^T K \beta + \tfrac1\tau \sum_i (1 - y_i(K\beta + b)_i)_+^2`.

    Its dual is :math:`\max 2 e^T\alpha - \alpha^T(Y K Y + \tau I)\alpha` over
    :math:`\alpha \ge 0, y^T\alpha = 0`, with :math:`\beta = y\alpha`. While the rows with a loss,
    the active ones, stay the same, the problem is a linear system,
    :math:`(K_{aa} + \tau I)\beta_a + b = y_a,\; e^T\beta_a = 0`: each Newton step solves it and
    goes along as far as pays, exactly. It ends when the active rows stay. O(a³) a step for a active
    rows; one matrix of a×a beside K. Without a start it begins at the solution for a quarter of the
    rows, which costs little and knows most of the active ones, and seeks the others in single
    precision, in half the time; the steps at the end are in double precision always.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semi-definite.
    y : ndarray of shape (n,)
        Labels, 1 and -1, both of them.
    tau : float
        Positive.
    start : (beta, intercept), optional
        Where to begin: the solution for a kernel nearby.

    Returns
    -------
    SquaredHinge
    """
    beta, b = _start(K, y, tau) if start is None else start
    Kb = K @ beta if beta.any() else np.zeros(len(y))
    active = 1 - y * (Kb + b) > 0
    rough = start is None and tau >= _SEEN * float(np.mean(K.diagonal()))
    for _ in range(_MAX_STEPS):
        # Without a loss, less of all coefficients is better.
        goal, goal_b = np.zeros(len(y)), b
        if active.any():
            goal, goal_b = _on_active(K, y, tau, active, np.float32 if rough else np.float64)
        K_goal = K @ goal
        move, K_move, move_b = goal - beta, K_goal - Kb, goal_b - b
        slack, fall = 1 - y * (Kb + b), -y * (K_move + move_b)
        t = _best_length(float(beta @ K_move), float(move @ K_move), slack, fall, tau)
        beta, Kb, b = beta + t * move, Kb + t * K_move, b + t * move_b
        now = 1 - y * (Kb + b) > 0
        if rough:
            rough, active = np.mean(now != active) > _MOVING, now
            continue
        if t == 1.0 and np.array_equal(now, active):
            break
        if t * np.abs(move).max() <= 1e-14 * np.abs(beta).max() and np.array_equal(now, active):
            break
        active = now
    return SquaredHinge(beta, b)


def _start(K: Matrix, y: Vector, tau: float) -> tuple[Vector, float]:
    """The solution for some of the rows, whose losses count for all; or nothing, of a few rows."""
    beta, few = np.zeros(len(y)), y[::_THIN]
    if len(few) < _FEW or abs(few.sum()) == len(few):
        return beta, float(np.mean(y))
    some = squared_hinge(K[::_THIN, ::_THIN], few, tau / _THIN)
    beta[::_THIN] = some.beta
    return beta, some.intercept


def _on_active(
    K: Matrix, y: Vector, tau: float, active: Mask, dtype: type[np.floating[Any]] = np.float64
) -> tuple[Vector, float]:
    """The solution if exactly these rows have a loss."""
    rows = np.flatnonzero(active)
    A = K.copy() if len(rows) == len(K) else K[np.ix_(rows, rows)]
    A = A.astype(dtype, copy=False)
    A.flat[:: len(rows) + 1] += dtype(tau)
    # The transpose of a symmetric matrix is the same one in the order of LAPACK: no other copy.
    (potrf,) = linalg.get_lapack_funcs(("potrf",), (A,))
    factor, info = potrf(A.T, lower=True, overwrite_a=True)
    right = np.column_stack([np.ones(len(rows)), y[rows]]).astype(dtype, copy=False)
    if info == 0:
        ones, own = linalg.cho_solve((factor, True), right, check_finite=False).T
    else:  # rounding has eaten tau
        A = K[np.ix_(rows, rows)]
        A.flat[:: len(rows) + 1] += tau
        ones, own = linalg.lstsq(A, right, check_finite=False)[0].T
    b = float(own.sum() / ones.sum())
    beta = np.zeros(len(y))
    beta[rows] = own - b * ones
    return beta, b


def _best_length(bKm: float, mKm: float, slack: Vector, fall: Vector, tau: float) -> float:
    """The step t from 0 to 1 of the least objective; exactly 1 where that is as good as any.

    The objective is a sum of pieces of parabolas in t: its derivative grows, and is a straight
    line between the t at which a slack passes zero.
    """

    def slope(t: float) -> float:
        left = np.maximum(slack + t * fall, 0)
        return 2 * (bKm + t * mKm) + 2 * float(left @ fall) / tau

    if slope(1.0) <= 1e-12 * (abs(bKm) + mKm + float(np.abs(slack) @ np.abs(fall)) / tau):
        return 1.0
    crossing = np.divide(-slack, fall, out=np.full(len(fall), 2.0), where=fall != 0)
    knots = np.unique(np.concatenate([[0.0, 1.0], crossing[(crossing > 0) & (crossing < 1)]]))
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if slope(knots[middle]) < 0 else (low, middle)
    at, to = slope(knots[low]), slope(knots[high])
    if at >= 0:
        return float(knots[low])
    return float(knots[low] + (knots[high] - knots[low]) * at / (at - to))
