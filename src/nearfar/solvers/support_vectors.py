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

# Objective of a nu-SVM below which the solution consists of rounding errors. The limit is for
# samples with mean squared length 1.
_COLLAPSED_OBJECTIVE = 1e-9


def c_svm(
    Z: Matrix, y: Vector, cost: Vector, *, scores: Vector | None = None, tol: float = 1e-11
) -> Hyperplane:
    r"""Fit a C-SVM: :math:`\min_{w,b} \tfrac12|w|^2 + \sum_i c_i (1 - y_i(w^T z_i + b))_+`.

    The dual is solved by an interior point method. A step costs O(n L²), or O(n³) if there are
    fewer samples than features. The intercept is not penalized.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1. Both must occur.
    cost : ndarray of shape (n,)
        Costs :math:`c_i`: C times the weight of each sample. Samples with cost 0 are ignored.
    scores : ndarray of shape (n,), optional
        Scores w·z + b of a hyperplane near the optimum, used to select the initial samples.
    tol : float
        Tolerance of the duality gap, relative to the objective.

    Returns
    -------
    Hyperplane
        Hyperplane with the duality gap and the multipliers :math:`\alpha_i`, for which
        :math:`w = \sum_i \alpha_i y_i z_i`.
    """
    is_used = cost > 0
    rows, labels = Z[is_used], y[is_used]
    coordinates, basis, mean, scale = _standardize(rows)
    # With z = scale * z' and w = w' / scale, the objective is 1/scale² times the objective of the
    # scaled problem, whose costs are scale² c.
    solution = solve_hinge_program_locally(
        np.column_stack([labels[:, None] * coordinates, labels]),
        np.ones(len(rows)),
        cost[is_used] * scale**2,
        np.append(np.ones(coordinates.shape[1]), 0.0),
        np.zeros(coordinates.shape[1] + 1),
        None if scores is None else 1 - labels * scores[is_used],
        tol=tol,
    )
    w = lift_to_features(basis, solution.x[:-1]) / scale
    dual = np.zeros(len(Z))
    dual[is_used] = solution.dual / scale**2
    sums = [float(cost[y == sign].sum()) * scale**2 for sign in (1, -1)]
    # The solution has collapsed if it has no lower objective than always predicting the larger
    # class, and the contributions of the samples to w cancel.
    is_no_better = 2 * min(sums) <= solution.objective * (1 + 1e-9) + 10 * solution.gap
    pulls = solution.dual @ np.linalg.norm(coordinates, axis=1)
    has_cancelling_pulls = bool(np.linalg.norm(solution.x[:-1]) <= 1e-3 * pulls)
    return Hyperplane(
        w,
        float(solution.x[-1] - mean @ w),
        solution.objective / scale**2,
        solution.gap / scale**2,
        dual,
        collapsed=is_no_better and has_cancelling_pulls,
    )


def nu_svm(
    Z: Matrix, y: Vector, nu: float, weight: Vector | None = None, *, tol: float = 1e-11
) -> Hyperplane:
    r"""Fit a nu-SVM: :math:`\min \tfrac12|w|^2 + \sum_i v_i (\rho - y_i(w^T z_i + b))_+ - \nu\rho`.

    The :math:`v_i` are the weights divided by their sum (1/n without weights), and
    :math:`\rho \ge 0`. If nu is too small for the overlap of the classes, w and rho are zero.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1.
    nu : float
        Upper bound of the fraction of margin errors. It must be at most :func:`compute_max_nu`.
    weight : ndarray of shape (n,), optional
        Weights of the samples.
    tol : float
        Tolerance of the duality gap, relative to the objective.

    Returns
    -------
    Hyperplane
        Hyperplane with rho as ``margin``.
    """
    weight = np.ones(len(Z)) if weight is None else weight
    max_nu = compute_max_nu(y, weight)
    if nu > max_nu * (1 + 1e-12):
        raise ValueError(
            f"nu={nu:g} is infeasible: with these class sizes it must be at most {max_nu:g}, twice "
            "the fraction of the smaller class."
        )
    is_used = weight > 0
    rows, labels = Z[is_used], y[is_used]
    coordinates, basis, mean, scale = _standardize(rows)
    if not coordinates.any():  # All samples coincide.
        return Hyperplane(np.zeros(Z.shape[1]), 0.0, 0.0, margin=0.0, collapsed=True)
    m = coordinates.shape[1]
    solution = solve_hinge_program(
        np.column_stack([labels[:, None] * coordinates, labels, -np.ones(len(rows))]),
        np.zeros(len(rows)),
        weight[is_used] / weight.sum(),
        np.append(np.ones(m), [0.0, 0.0]),
        np.append(np.zeros(m + 1), -nu),
        positive_last=True,
        tol=tol,
        floor=_COLLAPSED_OBJECTIVE,
    )
    # With z = scale * z', the solution is w = scale * w', and the objective is scale² times that of
    # the scaled problem.
    w = scale * lift_to_features(basis, solution.x[:-2])
    b = scale**2 * solution.x[-2] - mean @ w
    dual = np.zeros(len(Z))
    dual[is_used] = solution.dual
    return Hyperplane(
        w,
        float(b),
        solution.objective * scale**2,
        solution.gap * scale**2,
        dual,
        float(solution.x[-1]) * scale**2,
        collapsed=bool(solution.x[-1] <= _COLLAPSED_OBJECTIVE),
    )


def compute_max_nu(y: Vector, weight: Vector | None = None) -> float:
    """Return the largest feasible nu: twice the fraction of the smaller class.

    For larger values the nu-SVM is unbounded.
    """
    weight = np.ones(len(y)) if weight is None else weight
    return float(2 * min(weight[y > 0].sum(), weight[y < 0].sum()) / weight.sum())


def _standardize(rows: Matrix) -> tuple[Matrix, Matrix | None, Vector, float]:
    """Center the rows and scale them to mean squared length 1.

    If there are fewer rows than features, the rows are coordinates in their span. The other results
    are the basis of the span (or None), the mean and the scale.
    """
    offsets, mean = center_rows(rows)
    coordinates, basis = reduce_to_row_space(offsets)
    scale = float(np.sqrt(np.mean(np.einsum("ij,ij->i", coordinates, coordinates))))
    scale = scale if scale > 0 else 1.0
    return coordinates / scale, basis, mean, scale
