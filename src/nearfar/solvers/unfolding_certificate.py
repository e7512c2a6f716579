"""Certificate of an unfolding: a feasible point, a bound, and the gap between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.proven_bound import exceeds, find_mixed_bound
from nearfar.solvers.unfolding import (
    Bound,
    Edges,
    Face,
    Problem,
    dual_bound,
    laplacian_eigenpairs,
    relative_gap,
    repair_factor,
    symmetric_factor,
)

#: Maximum relative error of a squared edge length at which an equality is treated as satisfied.
EQUALITY_TOLERANCE = 1e-6
# Relative gap above which mixtures with equal weights are tried, to find a better bound.
_POOR_GAP = 1e-2
# Maximum number of Newton steps used to restore the lengths of the edges.
_MAX_STEPS = 8


class Certificate(NamedTuple):
    """A feasible factor, with certified bounds of its quality.

    ``value`` is the objective of a feasible point, ``bound`` an upper bound on the objective and
    ``gap`` their relative difference. ``residual`` belongs to the factor before the repair, and
    ``is_feasible`` is True if the repaired factor is feasible (equalities to 1e-6).
    """

    factor: Matrix
    value: float
    bound: Bound
    gap: float
    residual: float
    is_feasible: bool


def certify(
    problem: Problem,
    Y: Matrix,
    weights: Vector,
    feasible_value: float = float("-inf"),
    face: Face | None = None,
) -> Certificate:
    """Make a factor feasible, bound the optimum with the edge weights, and compute the gap.

    Any weights are valid; those of a solver give a tight bound. The signs of pivots certify the
    eigenvalue of their Laplacian. If the bound is poor, they are mixed with equal weights. If
    equalities do not hold to 1e-6, the factor is not feasible, and ``feasible_value`` is used: the
    objective of a point known to be feasible, such as the data. If all feasible points lie on a
    ``face``, the weights need to be valid only there.
    """
    Y = problem.edges.centered(Y)
    residual = problem.residual(Y)
    factor, is_feasible = repair_factor(problem, Y), True
    if problem.constraints == "equality":
        factor = restore_lengths(problem.edges, Y)
        is_feasible = problem.residual(factor) <= EQUALITY_TOLERANCE
    if face is None:
        weights, eigenvalue = certify_weights(problem, weights)
    else:
        eigenvalue = certify_eigenvalue_on_face(face, problem.edges, weights)
    bound = dual_bound(problem, weights, eigenvalue)
    value = max(feasible_value, problem.value(factor)) if is_feasible else feasible_value
    if problem.objective == "max" and not relative_gap(value, bound.value) <= _POOR_GAP:
        mixed = find_mixed_bound(problem, weights)
        bound = mixed if mixed.value < bound.value else bound
    if problem.constraints == "equality" and is_feasible:
        # The remaining errors of the lengths may increase the objective. Subtract the largest
        # possible increase, computed from the weights.
        slack = np.abs(problem.edges.squared_lengths(factor) - problem.edges.squared)
        max_gain = float(np.abs(bound.weights) @ slack)
        value = max(feasible_value, problem.value(factor) - max_gain)
    return Certificate(
        factor, value, bound, relative_gap(value, bound.value), residual, is_feasible
    )


def restore_lengths(edges: Edges, Y: Matrix) -> Matrix:
    r"""Move points as little as possible to restore the lengths of the edges.

    Newton's method for :math:`\|y_i - y_j\|^2 / D_e = 1`, where each step is the shortest that
    solves the linearized equations. It stops when a step does not reduce the largest error.
    """
    best, min_error = Y, np.inf
    for _ in range(_MAX_STEPS):
        error = edges.squared_lengths(Y) / edges.squared - 1
        largest = float(np.abs(error).max(initial=0.0))
        if not largest < min_error:
            break
        best, min_error = Y, largest
        if largest < 1e-14:
            break
        J = _compute_length_derivatives(edges, Y)
        normal = (J @ J.T).tocsc()
        ridge = 1e-13 * float(normal.diagonal().mean())
        try:
            factor = symmetric_factor(normal + ridge * sparse.eye_array(len(edges), format="csc"))
        except RuntimeError:  # The system is numerically singular.
            break
        Y = edges.centered(Y - (J.T @ factor.solve(error)).reshape(Y.shape))
    return best


def _compute_length_derivatives(edges: Edges, Y: Matrix) -> sparse.csr_array:
    """Return the derivatives of relative squared edge lengths with respect to coordinates."""
    m, r = len(edges), Y.shape[1]
    delta = 2 * edges.differences(Y) / edges.squared[:, None]
    offsets = np.arange(r)
    columns = np.hstack([r * edges.first[:, None] + offsets, r * edges.second[:, None] + offsets])
    entries = np.hstack([delta, -delta])
    return sparse.csr_array(
        (entries.ravel(), columns.ravel(), 2 * r * np.arange(m + 1)), shape=(m, Y.size)
    )


def certify_weights(problem: Problem, weights: Vector) -> tuple[Vector, float]:
    """Return the clipped edge weights, and a certified lower bound of the smallest eigenvalue.

    The weights are clipped to the bounds of the dual problem.
    """
    if problem.constraints == "inequality":
        weights = np.maximum(weights, 0.0)
    if problem.constraints == "l1":
        weights = np.clip(weights, -problem.price, problem.price)
    return weights, certify_eigenvalue(problem.edges, weights)


def certify_eigenvalue_on_face(face: Face, edges: Edges, weights: Vector) -> float:
    """Return a lower bound of the smallest eigenvalue on the face.

    It is the computed eigenvalue minus bounds of the rounding errors and of the errors of the face.
    """
    rows = edges.differences(face.basis)
    moment = rows.T @ (weights[:, None] * rows)
    size = float(np.linalg.norm(rows.T @ (np.abs(weights)[:, None] * rows)))
    error = face.bound_error(edges, weights) + 8 * np.finfo(float).eps * size
    return float(linalg.eigvalsh((moment + moment.T) / 2)[0]) - error


def certify_eigenvalue(edges: Edges, weights: Vector) -> float:
    """Return a certified lower bound of the smallest eigenvalue on centered vectors.

    The signs of pivots certify it. The margin grows until they agree.
    """
    value = float(laplacian_eigenpairs(edges, weights, 1)[0][0])
    for margin in (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5):
        lower_bound = value - margin * abs(value)
        if exceeds(edges, weights, lower_bound):
            return lower_bound
    return 0.0 if value > 0 else 10 * value
