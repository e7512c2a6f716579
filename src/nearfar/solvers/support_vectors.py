"""Linear support vector machines with a free intercept: C-SVM and nu-SVM."""

from __future__ import annotations

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.hinge_program import solve_hinge_program, solve_hinge_program_locally
from nearfar.solvers.hyperplanes import (
    Hyperplane,
    center_rows,
    lift_to_features,
    reduce_to_row_space,
)

# An objective of a nu-SVM, on samples of length 1, that is nothing but rounding.
_COLLAPSED = 1e-9


def c_svm(
    Z: Matrix, y: Vector, cost: Vector, *, scores: Vector | None = None, tol: float = 1e-11
) -> Hyperplane:
    r"""The C-SVM, :math:`\min_{w,b} \tfrac12|w|^2 + \sum_i c_i (1 - y_i(w^T z_i + b))_+`.

    By an interior point method in the dual, O(n L²) a step, O(n³) where there are fewer samples
    than features. The intercept is not penalised.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1, both of them.
    cost : ndarray of shape (n,)
        C times the weight of each sample; samples that cost nothing take no part.
    scores : ndarray of shape (n,), optional
        w·z + b of a point near the optimum, which tells what samples to begin with.
    tol : float
        Duality gap, relative to the objective.

    Returns
    -------
    Hyperplane
        With the duality gap and the multipliers, :math:`w = \sum_i \alpha_i y_i z_i`.
    """
    counts = cost > 0
    rows, labels = Z[counts], y[counts]
    coordinates, basis, mean, scale = _standard(rows)
    # With z = scale * z', w = w' / scale the objective is 1/scale² times that of costs scale² c.
    solution = solve_hinge_program_locally(
        np.column_stack([labels[:, None] * coordinates, labels]),
        np.ones(len(rows)),
        cost[counts] * scale**2,
        np.append(np.ones(coordinates.shape[1]), 0.0),
        np.zeros(coordinates.shape[1] + 1),
        None if scores is None else 1 - labels * scores[counts],
        tol=tol,
    )
    w = lift_to_features(basis, solution.x[:-1]) / scale
    dual = np.zeros(len(Z))
    dual[counts] = solution.dual / scale**2
    sums = [float(cost[y == sign].sum()) * scale**2 for sign in (1, -1)]
    # No better than the majority, and pulls of the samples that cancel one another.
    no_better = 2 * min(sums) <= solution.objective * (1 + 1e-9) + 10 * solution.gap
    pulls = solution.dual @ np.linalg.norm(coordinates, axis=1)
    cancels = bool(np.linalg.norm(solution.x[:-1]) <= 1e-3 * pulls)
    return Hyperplane(
        w,
        float(solution.x[-1] - mean @ w),
        solution.objective / scale**2,
        solution.gap / scale**2,
        dual,
        collapsed=no_better and cancels,
    )


def nu_svm(
    Z: Matrix, y: Vector, nu: float, weight: Vector | None = None, *, tol: float = 1e-11
) -> Hyperplane:
    r"""The nu-SVM, :math:`\min \tfrac12|w|^2 + \sum_i v_i (\rho - y_i(w^T z_i + b))_+ - \nu\rho`.

    The :math:`v_i` are the weights over their sum, 1/n without weights, and :math:`\rho \ge 0`.
    Where nu lies below what the overlap of the classes allows, w and rho are zero.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1.
    nu : float
        Bound on the share of margin errors; at most `largest_nu`, which see.
    weight : ndarray of shape (n,), optional
        Weights of the samples.
    tol : float
        Duality gap, relative to the objective.

    Returns
    -------
    Hyperplane
        With rho as ``margin``.
    """
    weight = np.ones(len(Z)) if weight is None else weight
    most = largest_nu(y, weight)
    if nu > most * (1 + 1e-12):
        raise ValueError(
            f"nu={nu:g} is infeasible: with these class sizes it must be at most {most:g}, twice "
            "the share of the smaller class."
        )
    counts = weight > 0
    rows, labels = Z[counts], y[counts]
    coordinates, basis, mean, scale = _standard(rows)
    if not coordinates.any():  # all samples are one point
        return Hyperplane(np.zeros(Z.shape[1]), 0.0, 0.0, margin=0.0, collapsed=True)
    m = coordinates.shape[1]
    solution = solve_hinge_program(
        np.column_stack([labels[:, None] * coordinates, labels, -np.ones(len(rows))]),
        np.zeros(len(rows)),
        weight[counts] / weight.sum(),
        np.append(np.ones(m), [0.0, 0.0]),
        np.append(np.zeros(m + 1), -nu),
        positive_last=True,
        tol=tol,
        floor=_COLLAPSED,
    )
    # All unknowns grow with the scale of the samples: w = scale w', the objective by its square.
    w = scale * lift_to_features(basis, solution.x[:-2])
    b = scale**2 * solution.x[-2] - mean @ w
    dual = np.zeros(len(Z))
    dual[counts] = solution.dual
    return Hyperplane(
        w,
        float(b),
        solution.objective * scale**2,
        solution.gap * scale**2,
        dual,
        float(solution.x[-1]) * scale**2,
        collapsed=bool(solution.x[-1] <= _COLLAPSED),
    )


def largest_nu(y: Vector, weight: Vector | None = None) -> float:
    """Twice the share of the smaller class: beyond it the nu-SVM is unbounded."""
    weight = np.ones(len(y)) if weight is None else weight
    return float(2 * min(weight[y > 0].sum(), weight[y < 0].sum()) / weight.sum())


def _standard(rows: Matrix) -> tuple[Matrix, Matrix | None, Vector, float]:
    """Centred rows in as few coordinates as they need, of mean square length 1."""
    offsets, mean = center_rows(rows)
    coordinates, basis = reduce_to_row_space(offsets)
    scale = float(np.sqrt(np.mean(np.einsum("ij,ij->i", coordinates, coordinates))))
    scale = scale if scale > 0 else 1.0
    return coordinates / scale, basis, mean, scale
