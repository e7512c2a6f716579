"""How good an unfolding is, proven: a feasible point, a bound, and the gap between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.solvers.proven_bound import exceeds
from nearfar.solvers.unfolding import (
    Bound,
    Edges,
    Matrix,
    Problem,
    Vector,
    dual_bound,
    relative_gap,
    repaired,
    smallest_eigenpairs,
)

#: The largest relative error of an edge with which equalities count as met.
MET = 1e-6


class Certificate(NamedTuple):
    """A repaired factor and what is proven of it.

    ``value`` is the objective of a feasible point, ``bound`` what no point exceeds and ``gap``
    their relative difference; ``residual`` is that of the factor as it was given.
    """

    factor: Matrix
    value: float
    bound: Bound
    gap: float
    residual: float


def certify(
    problem: Problem, Y: Matrix, weights: Vector, feasible_value: float = float("-inf")
) -> Certificate:
    """Repair a factor, bound the optimum with edge weights, and compare.

    Parameters
    ----------
    problem : Problem
        The problem.
    Y : ndarray of shape (n_points, r)
        A factor of the Gram matrix; need not be feasible.
    weights : ndarray of shape (n_edges,)
        Any edge weights; those of a solver give a close bound. Their Laplacian's eigenvalue is
        proven by the signs of pivots.
    feasible_value : float
        The objective of a point that is known to be feasible, such as the data themselves. Where
        equalities are not met to 1e-6 the factor proves nothing, and this counts.
    """
    Y = problem.edges.centred(Y)
    residual = problem.residual(Y)
    factor = repaired(problem, Y)
    value = feasible_value
    if problem.constraints != "equality" or residual <= MET:
        value = max(value, problem.value(factor))
    bound = dual_bound(problem, *proven_weights(problem, weights))
    return Certificate(factor, value, bound, relative_gap(value, bound.value), residual)


def proven_weights(problem: Problem, weights: Vector) -> tuple[Vector, float]:
    """The weights, clipped to what the dual allows, and a proven bound below their eigenvalue."""
    if problem.constraints == "inequality":
        weights = np.maximum(weights, 0.0)
    if problem.constraints == "l1":
        weights = np.clip(weights, -problem.price, problem.price)
    return weights, proven_eigenvalue(problem.edges, weights)


def proven_eigenvalue(edges: Edges, weights: Vector) -> float:
    """A little less than the smallest eigenvalue on centred vectors.

    A positive one is proven by the signs of pivots, with more taken away until they agree.
    """
    value = float(smallest_eigenpairs(edges, weights, 1)[0][0])
    if value <= 0:
        return value * (1 + 1e-8)
    for margin in (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5):
        if exceeds(edges, weights, value * (1 - margin)):
            return value * (1 - margin)
    return 0.0
