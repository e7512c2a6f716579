"""A bound on unfolding from edge weights that are not yet right everywhere.

Weights of a descent that has not come to its end leave a few places where they hold nothing: there
the Laplacian has eigenvalues below 0, and no bound follows. Mixed with equal weights, which hold
everywhere, they give one, and a mixture is sought that gives a small one. What each mixture holds
is proven by the signs of a factor's pivots, not by an eigenvalue found by iteration.
"""

from __future__ import annotations

import numpy as np

from nearfar.arrays import Vector
from nearfar.solvers.unfolding import (
    Bound,
    Edges,
    Problem,
    dual_bound,
    laplacian_eigenpairs,
    symmetric_factor,
)

# Eigenvalues to be reached by the weights alone, and by mixtures; halvings of the share for each.
_ALONE = (1 - 1e-7, 1 - 1e-5, 1 - 1e-4)
_GOALS = (0.999, 0.99, 0.9, 0.7)
_HALVINGS = 6
_LEAST_SHARE = 1e-4


def mixed_bound(problem: Problem, weights: Vector) -> Bound:
    r"""A small bound among mixtures of the weights with equal ones; never infinite.

    For problems of largest trace; for inequalities weights below 0 count as 0. :math:`\lambda_2` is
    a concave function of weights, so that for each value it may reach there is a least share of
    equal weights, which is sought.
    """
    edges = problem.edges
    own = np.maximum(weights, 0.0) if problem.constraints == "inequality" else weights
    equal = np.ones(len(edges))
    equal /= _eigenvalue(edges, equal)
    best = dual_bound(problem, equal, 1.0)
    for goal in (*_ALONE, *_GOALS):
        if exceeds(edges, own, goal):
            bound = dual_bound(problem, own, goal)
            return bound if bound.value < best.value else best
        if goal in _ALONE:
            continue
        fails, holds = _LEAST_SHARE, 1.0
        for _ in range(_HALVINGS):
            share = np.sqrt(fails * holds)
            if exceeds(edges, (1 - share) * own + share * equal, goal):
                holds = share
            else:
                fails = share
        if holds < 1.0:
            bound = dual_bound(problem, (1 - holds) * own + holds * equal, goal)
            best = min(best, bound, key=lambda found: found.value)
    return best


def exceeds(edges: Edges, weights: Vector, s: float) -> bool:
    r"""Whether the least eigenvalue on centred vectors is proven to exceed s.

    :math:`L_w - s C` has as many negative pivots as :math:`L_w v = \lambda C v` has eigenvalues
    below s. For s > 0 one of them is the constant vector's, whose eigenvalue is 0.
    """
    try:
        pivots = symmetric_factor(edges.laplacian(weights, -s * edges.masses)).U.diagonal()
    except RuntimeError:  # a pivot of zero
        return False
    return int((pivots < 0).sum()) == (1 if s > 0 else 0)


def _eigenvalue(edges: Edges, weights: Vector) -> float:
    """λ_2 of positive weights, a little less than what was found, and that proven."""
    value = float(laplacian_eigenpairs(edges, weights, 1)[0][0])
    for _ in range(60):
        value *= 1 - 1e-6
        if exceeds(edges, weights, value):
            return value
        value /= 2
    raise ValueError("The edges do not connect the points.")
