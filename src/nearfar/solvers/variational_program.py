r"""Unfolding within a basis: a small semidefinite program over many edges.

If :math:`K = Q Z Q^T` with few columns in Q, the squared length of an edge is
:math:`q_e^T Z q_e` with :math:`q_e = Q_i - Q_j`, and unfolding becomes

.. math::
    \max_{Z \succeq 0} \; \mathrm{tr}(C Z) - c \sum_e (q_e^T Z q_e - D_e)^2
    \qquad\text{or}\qquad
    \max_{Z \succeq 0} \; \mathrm{tr}(C Z), \quad q_e^T Z q_e \le D_e .

Squared slack is solved by a primal-dual interior-point method with the dual slack

.. math:: S = \sum_e w_e q_e q_e^T - C \succeq 0 .

Z determines w, and a step solves for the m (m + 1) / 2 entries of Z. With
:math:`a_e = \mathrm{svec}(q_e q_e^T)` and Z S = μ I linearized as
:math:`dS = \mu Z^{-1} - S - \mathrm{sym}(Z^{-1} dZ \, S)`,

.. math:: \Bigl( 2c \sum_e a_e a_e^T + \mathrm{sym}(Z^{-1} \cdot S) \Bigr) dZ = \cdots

The sum is built once, in O(E m⁴ / 4). The steps do not use the edges again and cost O(m⁶) each, so
this suits few functions.

Inequalities are solved for a factor with few columns, Z = Y Y', by ``unfolding_low_rank`` with the
edges of ``unfolding_span``: O(E m² r²) for each of about 30 steps, with r from 3 to 12. This uses
all edges and needs no Schur complement of their size. S certifies the optimum among all Z.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.solvers.eigen import whitener
from nearfar.solvers.symmetric_vectors import inverse as inverse_of
from nearfar.solvers.symmetric_vectors import (
    longest_step,
    smat,
    svec,
    svec_of_squares,
    sym,
    symmetric_kronecker,
)
from nearfar.solvers.unfolding import Problem
from nearfar.solvers.unfolding_low_rank import solve_low_rank
from nearfar.solvers.unfolding_span import EMPTY, SpannedEdges

# Maximum number of steps of each solver.
_MAX_STEPS = 200
# Number of functions in the default starting point for inequalities.
_SMOOTH = 4


class BasisSolution(NamedTuple):
    """Solution within a basis: matrix Z, edge weights, objective, bound and number of steps."""

    Z: Matrix
    weights: Vector
    value: float
    bound: float
    n_iter: int

    @property
    def gap(self) -> float:
        """Relative gap between the objective and its bound within the basis."""
        return (self.bound - self.value) / max(abs(self.bound), np.finfo(float).tiny)


def unfold_with_slack(
    rows: Matrix, squared: Vector, C: Matrix, price: float, tol: float = 1e-9
) -> BasisSolution:
    """Maximize the trace minus the cost of squared slack.

    The solver stops when the relative gap is at most ``tol``.

    ``rows`` are the :math:`q_e`. D has a mean of about 1. C is the identity for an orthonormal,
    centered basis.
    """
    R, C_ = _balance(rows, C)
    q = rows @ R
    m = q.shape[1]
    G, h = 2 * price * _sum_moments(q), 2 * price * svec(q.T @ (squared[:, None] * q))
    constant = price * float(squared @ squared)
    c = svec(C_)
    Z = squared.sum() / max(float(np.sum(q * q)), np.finfo(float).tiny) * np.eye(m)
    S = max(float(np.linalg.norm(C_)), np.finfo(float).tiny) * np.eye(m)
    best, n_iter = Z, 0
    while n_iter < _MAX_STEPS:
        n_iter += 1
        z = svec(Z)
        pull = G @ z - h  # This is svec of sum_e w_e q_e q_e' with w = 2c (q'Zq - D).
        gap = float(np.sum(Z * S))
        residual = float(np.linalg.norm(c - pull + svec(S)))
        best = Z
        if gap <= tol * float(c @ z) and residual <= 1e-7 * float(np.linalg.norm(c)):
            break
        try:
            inverse = inverse_of(Z)
            newton = linalg.cho_factor(G + symmetric_kronecker(inverse, S))
            dZ, dS = _compute_slack_direction(newton, c - pull, inverse, S, 0.0, np.zeros((m, m)))
            step = min(_choose_step(Z, dZ), _choose_step(S, dS))
            after = float(np.sum((Z + step * dZ) * (S + step * dS)))
            target = gap / m * min(1.0, max(after, 0.0) / gap) ** 2
            second = sym(inverse @ dZ @ dS)
            dZ, dS = _compute_slack_direction(newton, c - pull, inverse, S, target, second)
            # Use the same step length for Z and S, because S depends on Z through the slack.
            step = min(_choose_step(Z, dZ), _choose_step(S, dS))
        except linalg.LinAlgError:  # Rounding prevents further progress.
            break
        Z, S = Z + step * dZ, S + step * dS
        if step < 1e-8:
            break
    Z = R @ best @ R.T
    weights = 2 * price * (_compute_lengths(rows, Z) - squared)
    z = svec(best)
    value = float(c @ z - (z @ G @ z) / 2 + h @ z) - constant
    bound = _compute_slack_bound(rows, squared, C, price, weights)
    return BasisSolution(Z, weights, value, bound, n_iter)


def _compute_slack_direction(
    newton: tuple[Matrix, bool],
    residual: Vector,
    inverse: Matrix,
    S: Matrix,
    mu: float,
    second: Matrix,
) -> tuple[Matrix, Matrix]:
    """Return the steps of Z and S towards Z S = μ I.

    ``second`` is the second-order correction.
    """
    dZ = smat(linalg.cho_solve(newton, residual + svec(mu * inverse - second)), len(S))
    return dZ, mu * inverse - S - sym(inverse @ dZ @ S) - second


def unfold_with_inequalities(
    rows: Matrix, squared: Vector, C: Matrix, start: Matrix | None = None, tol: float = 1e-6
) -> BasisSolution:
    r"""Maximize the trace under the constraint that no edge is too long.

    The solver stops when the relative gap is at most ``tol``.

    Requires D > 0. ``rows`` are the :math:`q_e`, which must be nonzero in every direction in which
    C is. ``start`` is a factor of an initial Z. The result is feasible: the remaining violations
    are repaired by shrinking.
    """
    R = whitener(C, EMPTY)
    edges = SpannedEdges.from_rows(rows @ R, squared)
    Y = _create_smooth_start(edges) if start is None else R.T @ C @ start
    solution = solve_low_rank(Problem(edges, "inequality"), start=Y, tol=tol, max_iter=_MAX_STEPS)
    weights = _scale_to_feasible(edges, solution.weights)
    return BasisSolution(
        R @ solution.factor @ solution.factor.T @ R.T,
        weights,
        edges.trace(solution.factor),
        float(weights @ squared),
        solution.n_iter,
    )


def _create_smooth_start(edges: SpannedEdges) -> Matrix:
    """Return the functions that change least along edges, scaled up as far as the edges allow."""
    _, smooth = edges.eigenpairs(np.ones(len(edges)), _SMOOTH)
    slope = np.max(edges.differences(smooth) ** 2 / edges.squared[:, None], axis=0)
    return smooth / np.sqrt(len(slope) * slope)


def _scale_to_feasible(edges: SpannedEdges, weights: Vector) -> Vector:
    """Scale weights so that their moment minus I is positive definite despite rounding errors."""
    for fraction in (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1.0):
        moment = edges.moment(weights + fraction * float(weights.max()))
        rounding = 8 * np.finfo(float).eps * float(np.linalg.norm(moment))
        min_eigenvalue = float(linalg.eigvalsh(moment)[0]) - rounding
        if min_eigenvalue > rounding:
            return np.asarray((weights + fraction * float(weights.max())) / min_eigenvalue)
    return np.full(len(weights), np.inf)


def _balance(rows: Matrix, C: Matrix) -> tuple[Matrix, Matrix]:
    """Return a matrix R, and the product R'CR.

    The second moment of ``rows @ R`` is the identity.

    For eigenvectors of the graph Laplacian this divides by the square roots of the eigenvalues.
    Directions in which all edges have length zero are dropped: they are unconstrained, and C is
    zero there.
    """
    moment = rows.T @ rows / max(len(rows), 1)
    values, vectors = linalg.eigh(moment)
    mask = values > 1e-13 * values[-1]
    R = vectors[:, mask] / np.sqrt(values[mask])
    return R, sym(R.T @ C @ R)


def _compute_slack_bound(
    rows: Matrix, squared: Vector, C: Matrix, price: float, weights: Vector
) -> float:
    """Return the bound w'D + |w|²/4c within the basis.

    The weights w are scaled so that their moment minus C is positive definite.
    """
    R, C_ = _balance(rows, C)
    q = rows @ R
    moment = sym(q.T @ (weights[:, None] * q))
    values = linalg.eigvalsh(moment)
    if values[0] <= 0:
        return np.inf
    min_scale = float(linalg.eigvalsh(C_, moment)[-1])
    linear, square = float(weights @ squared), float(weights @ weights) / (4 * price)
    scale = min_scale if square == 0 else max(min_scale, -linear / (2 * square))
    return scale * linear + scale**2 * square


def _compute_lengths(rows: Matrix, Z: Matrix) -> Vector:
    return np.einsum("ea,ea->e", rows @ Z, rows)


def _sum_moments(rows: Matrix) -> Matrix:
    r"""Return :math:`\sum_e a_e a_e^T` with :math:`a_e = svec(q_e q_e^T)`."""
    size = rows.shape[1] * (rows.shape[1] + 1) // 2
    total = np.zeros((size, size))
    for block in split_rows(len(rows), 16 * size, max_rows=4096):
        a = svec_of_squares(rows[block])
        total += a.T @ a
    return total


def _choose_step(M: Matrix, dM: Matrix) -> float:
    """Return a step t, at most 1, that keeps M + t dM positive definite with a margin."""
    return min(1.0, 0.95 * longest_step(M, dM))
