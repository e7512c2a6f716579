r"""The idealized kernel program: a metric that separates dissimilar pairs but not similar ones.

The unknowns are :math:`\gamma \ge 0` and a symmetric matrix B, optionally positive semi-definite
("in the cone"). Let d be the differences of the pairs and :math:`d_0^2` their original squared
distances. For similar pairs S and dissimilar pairs D, the program is

.. math::
    \min \tfrac12 |B|_F^2 + \sum_S c_i (d^T B d - d_0^2)_+
    + \sum_D c_i (\gamma + d_0^2 - d^T B d)_+ - \nu \gamma \sum_D c_i .

It is a quadratic term plus hinges in the entries of B. Its dual is

.. math::
    \max_{0 \le \alpha \le c} \; \sum_i s_i d_{0i}^2 \alpha_i - \tfrac12 |T|_F^2, \qquad
    T = \sum_i s_i \alpha_i d_i d_i^T, \qquad \sum_D \alpha_i \ge \nu \sum_D c_i ,

with s = -1 on S and 1 on D. The solution is B = T. In the cone, T is replaced by its positive
semi-definite part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.arrays import Mask, Matrix, Vector
from nearfar.solvers.eigen import descending_eigh
from nearfar.solvers.hinge_program import solve_hinge_program
from nearfar.solvers.projections import project_psd
from nearfar.solvers.symmetric_vectors import smat, svec_of_squares

# Eigenvalues of the matrix of pair products are treated as zero below this fraction of the largest.
_EMPTY = 1e-13


class IdealizedSolution(NamedTuple):
    """Solution of the idealized kernel program, with a lower bound on the optimum."""

    matrix: Matrix
    alpha: Vector
    gamma: float
    objective: float
    bound: float
    n_iter: int


def solve_idealized_program(
    differences: Matrix,
    similar: Mask,
    squared: Vector,
    cost: Vector,
    nu: float,
    *,
    cone: bool = False,
    tol: float = 1e-8,
) -> IdealizedSolution:
    """Solve the idealized kernel program by an interior point method.

    Each of about twenty steps costs O(N m²) for N pairs and m = p(p+1)/2 entries of B. If there are
    fewer pairs than entries and B is not restricted to the cone, a step costs O(N³).

    Parameters
    ----------
    differences : ndarray of shape (n_pairs, p)
        Differences of the pairs.
    similar : ndarray of bool of shape (n_pairs,)
        Mask of the similar pairs. There must be similar and dissimilar pairs.
    squared : ndarray of shape (n_pairs,)
        Original squared distances of the pairs.
    cost : ndarray of shape (n_pairs,)
        Positive cost per unit of slack.
    nu : float
        Weight of the margin gamma, greater than 0 and at most 1.
    cone : bool
        Whether B must be positive semi-definite.
    tol : float
        Relative duality gap at which the solver stops. The gap is divided by the objective or by
        the objective of B = 0, whichever is larger.

    Returns
    -------
    IdealizedSolution
        The solution with its multipliers and a lower bound on the optimum.
    """
    n_pairs, p = differences.shape
    signs = np.where(similar, -1.0, 1.0)
    has_few_pairs = n_pairs < p * (p + 1) // 2 and not cone
    rows, lift = (
        _compute_coordinates(differences) if has_few_pairs else (svec_of_squares(differences), None)
    )
    m = rows.shape[1]
    # Scale the rows so that the longest has length 1. Divide distances by the largest distance, or
    # by the largest distance that B can produce if costs are large.
    size = float(np.max(np.einsum("ij,ij->i", rows, rows))) ** 0.5
    level = max(float(np.max(squared)), float(cost.sum()) * size**2)
    prices = cost * (size**2 / level)
    A, h = signs[:, None] * rows / size, signs * squared / level
    floor = float(prices[~similar] @ squared[~similar]) / level
    dimension = p if cone else 0
    if nu < 1:
        solution = solve_hinge_program(
            np.column_stack([A, -(~similar * 1.0)]),
            h,
            prices,
            np.append(np.ones(m), 0.0),
            np.append(np.zeros(m), -nu * prices[~similar].sum()),
            positive_last=True,
            cone=dimension,
            tol=tol,
            floor=floor,
        )
        alpha = solution.dual
    else:  # With nu = 1, gamma can be so large that every dissimilar pair has a positive slack.
        solution = solve_hinge_program(
            A[similar],
            h[similar],
            prices[similar],
            np.ones(m),
            -(prices[~similar] @ A[~similar]),
            cone=dimension,
            tol=tol,
            floor=floor,
        )
        alpha = prices.copy()
        alpha[similar] = solution.dual
    lower = float(nu * cost[~similar].sum())
    alpha = _clip_to_feasible(alpha * level / size**2, similar, cost, lower)
    x = solution.x[:m] * level / size
    matrix = smat(x, p) if lift is None else (differences * (lift @ x)[:, None]).T @ differences
    gamma, objective = evaluate_matrix(matrix, differences, similar, squared, cost, lower)
    T = (differences * (signs * alpha)[:, None]).T @ differences
    T_cone = project_psd(T) if cone else T
    bound = float(alpha @ (signs * squared)) - 0.5 * float(np.vdot(T_cone, T_cone))
    return IdealizedSolution(matrix, alpha, gamma, objective, bound, solution.n_iter)


def evaluate_matrix(
    B: Matrix, differences: Matrix, similar: Mask, squared: Vector, cost: Vector, lower: float
) -> tuple[float, float]:
    """Return the optimal gamma for a matrix B, and the objective."""
    gains = np.einsum("ij,ij->i", differences @ B, differences) - squared
    dissimilar_gains = np.sort(gains[~similar])
    pair_cost = cost[~similar][0]
    rank = int(np.ceil(lower / pair_cost - 1e-9)) - 1
    gamma = max(0.0, float(dissimilar_gains[min(max(rank, 0), len(dissimilar_gains) - 1)]))
    slack = np.maximum(np.where(similar, gains, gamma - gains), 0.0)
    return gamma, float(0.5 * np.vdot(B, B) + cost @ slack - lower * gamma)


def _compute_coordinates(differences: Matrix) -> tuple[Matrix, Matrix]:
    r"""Return coordinates of the matrices dd' that preserve inner products, and ``lift``.

    The inner product of two pairs with differences d and e is (d'e)². The vectors, one per row,
    have at most as many entries as there are pairs. A vector x in these coordinates represents the
    matrix :math:`\sum_i \beta_i d_i d_i^T` with β = lift @ x.
    """
    products = (differences @ differences.T) ** 2
    values, vectors = descending_eigh(products)
    mask = values > _EMPTY * max(values[0], np.finfo(float).tiny)
    roots = np.sqrt(values[mask])
    return np.asarray(vectors[:, mask] * roots), np.asarray(vectors[:, mask] / roots)


def _clip_to_feasible(alpha: Vector, similar: Mask, cost: Vector, lower: float) -> Vector:
    """Correct rounding errors of multipliers: enforce their bounds and the bound of their sum."""
    alpha = np.clip(alpha, 0.0, cost)
    slack = np.where(similar, 0.0, cost - alpha)
    missing = lower - float(alpha[~similar].sum())
    if missing > 0 and slack.sum() > 0:
        alpha = alpha + slack * min(1.0, missing / float(slack.sum()))
    return np.asarray(alpha)
