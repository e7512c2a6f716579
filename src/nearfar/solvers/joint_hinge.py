"""All factors of a weight tensor at once, under smoothed hinges; how stationary a point is."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import lsq_linear, minimize

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.alternating_modes import CPWeights, contract_terms, make_cp_weights
from nearfar.solvers.joint_newton import exact_end, rounded_newton
from nearfar.solvers.smoothed_hinges import SmoothedHinges, by_factors

#: Widths of the rounded corner of the hinge, one after the other, before the exact end.
CORNER_WIDTHS = (1.0, 0.1)
#: Further ones, where the exact end is not found from there or there are too many unknowns for it.
NARROW_WIDTHS = (0.01, 1e-3, 1e-4)
# Unknowns up to which steps are Newton's.
_NEWTON = 600
# Of more, samples so far beyond their margin are left out of steps.
_BEYOND = 0.3


class JointPoint(NamedTuple):
    """Weights and intercept, and the objective (with true hinges) after each width and the end.

    The widths are those of the corner, 0 with true hinges. ``interrupt`` is the Ctrl-C that ended
    it early; the point is then that of the last width.
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
    r"""A stationary point of the support tensor machine.

    .. math:: \min_{W, b}\; \tfrac12\|W\|^2 + \sum_i c_i (1 - y_i(\langle X_i, W\rangle + b))_+

    All factors move at once, with the corner of the hinge rounded over a width that shrinks:
    alternation over modes stalls at corners that no single mode can leave. Up to 600 unknowns the
    steps are Newton's, and the end is exact, by an interior point method; it takes over from the
    first width from which it arrives. Beyond, L-BFGS follows the width down to 1e-4.

    Samples far from their margin pull with all their cost or not at all, so that most steps read
    the others only, some hundreds.

    Parameters
    ----------
    X : ndarray of shape (n, d1, ..., dM)
        Samples.
    y, cost : ndarray of shape (n,)
        Labels ±1, and costs of the hinges.
    start : CPWeights
        Where to start; its rank stays.
    b : float
        The intercept there.
    report : callable, optional
        Called after every width with what is known of it.

    Returns
    -------
    JointPoint
        With factors of equal length in all modes.
    """
    flat = X.reshape(len(X), -1)
    center = cost @ flat / cost.sum()
    deviation = _spread(flat, center)
    # Unknowns of order one: the tensor times the size of the samples, the intercept at the centre.
    unit = deviation ** (1 / len(start.factors))
    problem = SmoothedHinges(flat, y, cost, center, deviation, start)
    point = np.concatenate([(U * unit).ravel() for U in start.balance_factors()] + [[0.0]])
    point[-1] = b + center @ start.tensor().ravel()
    objectives, widths = list[float](), list[float]()
    interrupt, began = None, perf_counter()
    by_newton = len(point) <= _NEWTON

    def told(width: float) -> None:
        objectives.append(problem.value(point))
        widths.append(width)
        if report is not None:
            report({"objective": objectives[-1], "seconds": perf_counter() - began})

    try:
        for width in CORNER_WIDTHS + NARROW_WIDTHS:
            if by_newton:
                # The next width, or the end, must lie near.
                point = rounded_newton(problem, point, width, tol=1e-3 if width == 1 else 1e-4)
            else:
                point = _by_lbfgs(problem, point, width, last=width == NARROW_WIDTHS[-1])
            told(width)
            if by_newton and width <= CORNER_WIDTHS[-1]:
                end = exact_end(problem, point, width)
                if end is not None:
                    point = end
                    told(0.0)
                    break
    except KeyboardInterrupt as error:
        interrupt = error
    factors = [U / unit for U in problem.factors(point)]
    weights = make_cp_weights(factors)
    b = float(point[-1] - center @ weights.tensor().ravel())
    return JointPoint(weights, b, objectives, widths, interrupt)


def _by_lbfgs(problem: SmoothedHinges, point: Vector, width: float, *, last: bool) -> Vector:
    """Many unknowns under hinges rounded over a width."""
    near = problem
    if width < 1:
        near, *_ = problem.near(problem.shortfalls(point)[1], width, max(2 * width, _BEYOND))
    found = minimize(
        near.value_and_gradient,
        point,
        args=(width,),
        jac=True,
        method="L-BFGS-B",
        # The last must be a stationary point; those before only lead to it.
        options={
            "maxiter": 200,
            "ftol": 1e-14 if last else 1e-8,
            "gtol": 1e-9,
            "maxcor": 20,
        },
    )
    return np.asarray(found.x)


def stationarity_gap(
    X: Matrix, y: Vector, cost: Vector, weights: CPWeights, b: float, *, active: float = 1e-5
) -> float:
    """The length of the shortest subgradient of all factors and the intercept together.

    Factors are of equal length in all modes. Hinges whose argument is within ``active`` of their
    corner may pull with any share of their cost: a least-squares problem with bounds.
    """
    factors = weights.balance_factors()
    scores = X.reshape(len(X), -1) @ weights.tensor().ravel() + b
    short = 1 - y * scores
    corner = np.abs(short) <= active
    pulling = np.where((short > 0) & ~corner, cost, 0.0) * y
    W = weights.tensor()
    by_tensor = W - (pulling @ X.reshape(len(X), -1)).reshape(W.shape)
    gradient = np.concatenate([*by_factors(by_tensor, factors), [-pulling.sum()]])
    if not corner.any():
        return float(np.linalg.norm(gradient))
    modes = range(len(factors))
    rows = [
        contract_terms(X[corner], factors, mode).reshape(int(corner.sum()), -1) for mode in modes
    ]
    pulls = (np.column_stack([*rows, np.ones(int(corner.sum()))]) * y[corner, None]).T
    # In units of the costs, so that the bounds are 0 and 1.
    best = lsq_linear(pulls * cost[corner], gradient, (0.0, 1.0), tol=1e-14, max_iter=500)
    return float(np.linalg.norm(pulls @ (cost[corner] * best.x) - gradient))


def _spread(flat: Matrix, center: Vector) -> float:
    """The root mean square distance from the centre, without a copy of the samples."""
    squares = np.einsum("ij,ij->i", flat, flat).mean() - 2 * center @ flat.mean(axis=0)
    square = float(squares + center @ center)
    size = float(np.abs(flat).max())
    return np.sqrt(square) if square > 1e-12 * size**2 else (size or 1.0)
