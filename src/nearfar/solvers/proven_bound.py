"""Bound on the unfolding objective from edge weights that are not yet feasible for the dual.

The weights of a descent that has not converged leave some directions unsupported: the Laplacian has
eigenvalues below 0, and no bound follows. A mixture with equal weights, which support all
directions, gives a bound, and this module searches for a mixture with a small bound. The signs of
a factorization's pivots certify each mixture, not an eigenvalue found by iteration.
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

# Lower bounds of λ_2, the smallest eigenvalue on centered vectors, that are tried for the given
# weights.
_ALONE = (1 - 1e-7, 1 - 1e-5, 1 - 1e-4)
# Lower bounds of λ_2 that are tried for mixtures of the given weights and equal weights.
_GOALS = (0.999, 0.99, 0.9, 0.7)
# Number of bisection steps in the search for the smallest possible fraction of equal weights.
_N_BISECTIONS = 6
# Minimum fraction of equal weights in a mixture.
_MIN_FRACTION = 1e-4


def find_mixed_bound(problem: Problem, weights: Vector) -> Bound:
    r"""Return a finite bound from mixtures of the given weights and equal weights.

    Only for maximization of the trace. For inequalities, weights below 0 are set to 0.
    :math:`\lambda_2` is a concave function of the weights, so each goal for it has a smallest
    fraction of equal weights, which bisection finds.
    """
    edges = problem.edges
    clipped = np.maximum(weights, 0.0) if problem.constraints == "inequality" else weights
    equal = np.ones(len(edges))
    equal /= _certify_eigenvalue(edges, equal)
    best = dual_bound(problem, equal, 1.0)
    for goal in (*_ALONE, *_GOALS):
        if exceeds(edges, clipped, goal):
            bound = dual_bound(problem, clipped, goal)
            return bound if bound.value < best.value else best
        if goal in _ALONE:
            continue
        fails, holds = _MIN_FRACTION, 1.0
        for _ in range(_N_BISECTIONS):
            fraction = np.sqrt(fails * holds)
            if exceeds(edges, (1 - fraction) * clipped + fraction * equal, goal):
                holds = fraction
            else:
                fails = fraction
        if holds < 1.0:
            bound = dual_bound(problem, (1 - holds) * clipped + holds * equal, goal)
            best = min(best, bound, key=lambda candidate: candidate.value)
    return best


def exceeds(edges: Edges, weights: Vector, s: float) -> bool:
    r"""Return True if the smallest eigenvalue on centered vectors is proven to be larger than s.

    :math:`L_w - s C` has as many negative pivots as :math:`L_w v = \lambda C v` has eigenvalues
    below s. For s > 0 one of them belongs to the constant vector, whose eigenvalue is 0.
    """
    try:
        pivots = symmetric_factor(edges.laplacian(weights, -s * edges.masses)).U.diagonal()
    except RuntimeError:  # A pivot is exactly zero.
        return False
    return int((pivots < 0).sum()) == (1 if s > 0 else 0)


def _certify_eigenvalue(edges: Edges, weights: Vector) -> float:
    """Return a certified lower bound of λ_2 for positive weights. The bound is close to λ_2."""
    value = float(laplacian_eigenpairs(edges, weights, 1)[0][0])
    for _ in range(60):
        value *= 1 - 1e-6
        if exceeds(edges, weights, value):
            return value
        value /= 2
    raise ValueError("The edges do not connect the points.")
