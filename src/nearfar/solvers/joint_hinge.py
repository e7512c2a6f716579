"""Joint optimization of all factors of a support tensor machine, with smoothed hinges."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import lsq_linear, minimize

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.alternating_modes import CPWeights, contract_terms, make_cp_weights
from nearfar.solvers.joint_newton import minimize_smoothed_hinges, solve_exact_hinges
from nearfar.solvers.smoothed_hinges import SmoothedHinges, compute_factor_gradients

#: Widths of the rounded corner of the hinge, in the order of use. After the last width, the exact
#: solution is attempted.
CORNER_WIDTHS = (1.0, 0.1)
#: Further widths, used if the exact solution was not found or if there are too many unknowns.
NARROW_WIDTHS = (0.01, 1e-3, 1e-4)
# Maximum number of unknowns for which Newton's method is used instead of L-BFGS.
_MAX_NEWTON_UNKNOWNS = 600
# Maximum distance from the corner of the hinge at which a sample is used by L-BFGS. Other samples
# are left out.
_LBFGS_REACH = 0.3


class JointPoint(NamedTuple):
    """Result of :func:`descend_jointly`, with the weight tensor, the intercept and the history.

    ``objectives`` contains the objective with exact hinges after each entry of ``widths``, the
    widths of the rounded corner (0 for exact hinges). ``interrupt`` is the KeyboardInterrupt that
    ended the optimization, if any. The weights are then those of the last width.
    """

    weights: CPWeights
    b: float
    objectives: list[float]
    widths: list[float]
    interrupt: KeyboardInterrupt | None = None


def descend_jointly(
    X: Matrix,
    y: Vector,
    cost: Vector,
    start: CPWeights,
    b: float,
    *,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> JointPoint:
    r"""Find a stationary point of the support tensor machine.

    .. math:: \min_{W, b}\; \tfrac12\|W\|^2 + \sum_i c_i (1 - y_i(\langle X_i, W\rangle + b))_+

    All factors are optimized together, because alternation over modes stalls at corners that no
    single mode can leave. The corner of the hinge is rounded over a width that decreases. With up
    to 600 unknowns, Newton's method is used for each width, followed by an interior point method
    for the exact hinges. No smaller width is used once this method has converged. With more
    unknowns, L-BFGS is used, and the width decreases to 1e-4.

    The loss of samples far from their margin is linear or zero. Most steps therefore use only the
    other samples, typically a few hundred.

    Parameters
    ----------
    X : ndarray of shape (n, d1, ..., dM)
        Samples.
    y, cost : ndarray of shape (n,)
        Labels, 1 or -1, and costs of the hinges.
    start : CPWeights
        Initial weights. The result has the same rank.
    b : float
        Initial intercept.
    report : callable, optional
        Called after every width with a dict of the objective and the seconds.

    Returns
    -------
    JointPoint
        Weights, intercept and history.
    """
    flat = X.reshape(len(X), -1)
    center = cost @ flat / cost.sum()
    deviation = _compute_spread(flat, center)
    # Scale the tensor by the size of the samples, and replace the intercept by the score at the
    # center. All unknowns are then of order one.
    unit = deviation ** (1 / len(start.factors))
    problem = SmoothedHinges(flat, y, cost, center, deviation, start)
    point = np.concatenate([(U * unit).ravel() for U in start.balance_factors()] + [[0.0]])
    point[-1] = b + center @ start.tensor().ravel()
    objectives, widths = list[float](), list[float]()
    interrupt, start_time = None, perf_counter()
    uses_newton = len(point) <= _MAX_NEWTON_UNKNOWNS

    def record(width: float) -> None:
        objectives.append(problem.value(point))
        widths.append(width)
        if report is not None:
            report({"objective": objectives[-1], "seconds": perf_counter() - start_time})

    try:
        for width in CORNER_WIDTHS + NARROW_WIDTHS:
            if uses_newton:
                # The tolerance must be tight enough for the next width or the exact hinges.
                point = minimize_smoothed_hinges(
                    problem, point, width, tol=1e-3 if width == 1 else 1e-4
                )
            else:
                point = _minimize_lbfgs(problem, point, width, is_last=width == NARROW_WIDTHS[-1])
            record(width)
            if uses_newton and width <= CORNER_WIDTHS[-1]:
                exact_point = solve_exact_hinges(problem, point, width)
                if exact_point is not None:
                    point = exact_point
                    record(0.0)
                    break
    except KeyboardInterrupt as error:
        interrupt = error
    factors = [U / unit for U in problem.unpack_factors(point)]
    weights = make_cp_weights(factors)
    b = float(point[-1] - center @ weights.tensor().ravel())
    return JointPoint(weights, b, objectives, widths, interrupt)


def _minimize_lbfgs(
    problem: SmoothedHinges, point: Vector, width: float, *, is_last: bool
) -> Vector:
    """Minimize the objective by L-BFGS, with hinges whose corner is rounded over ``width``."""
    subset = problem
    if width < 1:
        subset, *_ = problem.select_near_corner(
            problem.compute_shortfalls(point)[1], width, max(2 * width, _LBFGS_REACH)
        )
    result = minimize(
        subset.value_and_gradient,
        point,
        args=(width,),
        jac=True,
        method="L-BFGS-B",
        # Only the result of the last width must be a stationary point.
        options={
            "maxiter": 200,
            "ftol": 1e-14 if is_last else 1e-8,
            "gtol": 1e-9,
            "maxcor": 20,
        },
    )
    return np.asarray(result.x)


def stationarity_gap(
    X: Matrix, y: Vector, cost: Vector, weights: CPWeights, b: float, *, active: float = 1e-5
) -> float:
    """Return the norm of the shortest subgradient with respect to all factors and the intercept.

    The factors are scaled to equal length in all modes. A hinge whose argument is within ``active``
    of its corner can have any slope between zero and its cost. The shortest subgradient is
    therefore the solution of a least-squares problem with bounds.
    """
    factors = weights.balance_factors()
    scores = X.reshape(len(X), -1) @ weights.tensor().ravel() + b
    short = 1 - y * scores
    is_at_corner = np.abs(short) <= active
    fixed_pulls = np.where((short > 0) & ~is_at_corner, cost, 0.0) * y
    W = weights.tensor()
    by_tensor = W - (fixed_pulls @ X.reshape(len(X), -1)).reshape(W.shape)
    gradient = np.concatenate([*compute_factor_gradients(by_tensor, factors), [-fixed_pulls.sum()]])
    if not is_at_corner.any():
        return float(np.linalg.norm(gradient))
    modes = range(len(factors))
    rows = [
        contract_terms(X[is_at_corner], factors, mode).reshape(int(is_at_corner.sum()), -1)
        for mode in modes
    ]
    pulls = (np.column_stack([*rows, np.ones(int(is_at_corner.sum()))]) * y[is_at_corner, None]).T
    # Divide the slopes by the costs, so that the bounds are 0 and 1.
    best = lsq_linear(pulls * cost[is_at_corner], gradient, (0.0, 1.0), tol=1e-14, max_iter=500)
    return float(np.linalg.norm(pulls @ (cost[is_at_corner] * best.x) - gradient))


def _compute_spread(flat: Matrix, center: Vector) -> float:
    """Return the root mean square distance from the center. The samples are not copied.

    If all samples are equal, return their largest absolute entry, or 1 if all entries are zero.
    """
    squares = np.einsum("ij,ij->i", flat, flat).mean() - 2 * center @ flat.mean(axis=0)
    square = float(squares + center @ center)
    size = float(np.abs(flat).max())
    return np.sqrt(square) if square > 1e-12 * size**2 else (size or 1.0)
