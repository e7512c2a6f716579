r"""The program of the idealised kernel: a metric that leaves similar pairs where they are.

Over symmetric B, or B in the cone, and :math:`\gamma \ge 0`, with d the differences of pairs and
:math:`d_0^2` their squared distances before,

.. math::
    \min \tfrac12 |B|_F^2 + \sum_S c_i (d^T B d - d_0^2)_+
    + \sum_D c_i (\gamma + d_0^2 - d^T B d)_+ - \nu \gamma \sum_D c_i ,

a sum of hinges in the entries of B. The multipliers of its dual,

.. math::
    \max_{0 \le \alpha \le c} \; \sum_i s_i d_{0i}^2 \alpha_i - \tfrac12 |T|_F^2, \qquad
    T = \sum_i s_i \alpha_i d_i d_i^T, \qquad \sum_D \alpha_i \ge \nu \sum_D c_i ,

with s = -1 on S and 1 on D, give B = T; in the cone T counts by its positive part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.arrays import Mask, Matrix, Vector
from nearfar.solvers.eigen import descending_eigh
from nearfar.solvers.hinge_program import solve_hinge_program
from nearfar.solvers.projections import project_psd
from nearfar.solvers.symmetric_vectors import smat, svec_of_squares

# Relative eigenvalue of the products of pairs below which a coordinate is empty.
_EMPTY = 1e-13


class Idealized(NamedTuple):
    """B, the multipliers, gamma; the objective there, and a value below which no B comes."""

    matrix: Matrix
    alpha: Vector
    gamma: float
    objective: float
    bound: float
    n_iter: int


def idealized_program(
    differences: Matrix,
    similar: Mask,
    squared: Vector,
    cost: Vector,
    nu: float,
    *,
    cone: bool = False,
    tol: float = 1e-8,
) -> Idealized:
    """The optimum by an interior point method.

    Each of some twenty steps costs O(N m²) with N pairs and m = p(p+1)/2 entries of B; without the
    cone O(N³) where pairs are fewer than entries.

    Parameters
    ----------
    differences : ndarray of shape (n_pairs, p)
        Of the pairs.
    similar : ndarray of bool of shape (n_pairs,)
        Which pairs are similar; there are some of each kind.
    squared : ndarray of shape (n_pairs,)
        Squared distances before.
    cost : ndarray of shape (n_pairs,)
        What a unit of slack costs, positive.
    nu : float
        Above 0, at most 1.
    cone : bool
        Whether B must be positive semi-definite.
    tol : float
        Duality gap, relative to the objective or to that of B = 0, whichever is larger.

    Returns
    -------
    Idealized
    """
    n_pairs, p = differences.shape
    signs = np.where(similar, -1.0, 1.0)
    few = n_pairs < p * (p + 1) // 2 and not cone
    rows, lift = _coordinates(differences) if few else (svec_of_squares(differences), None)
    m = rows.shape[1]
    # In units in which the longest square is 1, and the largest distance or, where costs are so
    # large that B grows with them, what B then makes of it.
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
    else:  # gamma is as large as it takes, and every dissimilar pair short of it
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
    alpha = _feasible(alpha * level / size**2, similar, cost, lower)
    x = solution.x[:m] * level / size
    matrix = smat(x, p) if lift is None else (differences * (lift @ x)[:, None]).T @ differences
    gamma, objective = value_at(matrix, differences, similar, squared, cost, lower)
    T = (differences * (signs * alpha)[:, None]).T @ differences
    push = project_psd(T) if cone else T
    bound = float(alpha @ (signs * squared)) - 0.5 * float(np.vdot(push, push))
    return Idealized(matrix, alpha, gamma, objective, bound, solution.n_iter)


def value_at(
    B: Matrix, differences: Matrix, similar: Mask, squared: Vector, cost: Vector, lower: float
) -> tuple[float, float]:
    """The best gamma for B, and the objective there."""
    gains = np.einsum("ij,ij->i", differences @ B, differences) - squared
    apart = np.sort(gains[~similar])
    each = cost[~similar][0]
    last = int(np.ceil(lower / each - 1e-9)) - 1
    gamma = max(0.0, float(apart[min(max(last, 0), len(apart) - 1)]))
    slack = np.maximum(np.where(similar, gains, gamma - gains), 0.0)
    return gamma, float(0.5 * np.vdot(B, B) + cost @ slack - lower * gamma)


def _coordinates(differences: Matrix) -> tuple[Matrix, Matrix]:
    r"""Rows whose products are those of the svec(dd'), (d'e)², as many columns as pairs at most.

    A vector x of these coordinates is the matrix :math:`\sum_i \beta_i d_i d_i^T`, β = lift @ x,
    with the second of what is returned.
    """
    products = (differences @ differences.T) ** 2
    values, vectors = descending_eigh(products)
    kept = values > _EMPTY * max(values[0], np.finfo(float).tiny)
    roots = np.sqrt(values[kept])
    return np.asarray(vectors[:, kept] * roots), np.asarray(vectors[:, kept] / roots)


def _feasible(alpha: Vector, similar: Mask, cost: Vector, lower: float) -> Vector:
    """Multipliers within their bounds, that of the sum too; rounding leaves them just outside."""
    alpha = np.clip(alpha, 0.0, cost)
    room = np.where(similar, 0.0, cost - alpha)
    short = lower - float(alpha[~similar].sum())
    if short > 0 and room.sum() > 0:
        alpha = alpha + room * min(1.0, short / float(room.sum()))
    return np.asarray(alpha)
