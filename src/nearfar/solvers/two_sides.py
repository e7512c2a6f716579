"""Minimax probability machine and Fisher's discriminant for rows of two classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.fisher_direction import Scores, find_fisher_direction
from nearfar.solvers.hyperplanes import (
    Hyperplane,
    center_rows,
    lift_to_features,
    reduce_to_row_space,
)
from nearfar.solvers.minimax_probability import find_minimax_direction

# Class means are treated as equal if they differ by less than this fraction of the largest entry of
# the data.
_MEAN_RTOL = 1e-13


class CenteredClass(NamedTuple):
    """Weight, mean and centered rows of one class.

    Each row is multiplied by the square root of its fraction of the weight of the class, so that
    ``rows.T @ rows`` is the covariance.
    """

    weight: float
    mean: Vector
    rows: Matrix


def center_classes(
    Z: Matrix, y: Vector, weight: Vector | None = None
) -> tuple[CenteredClass, CenteredClass]:
    """Center both classes. Return the class with label 1 and the class with label -1."""
    classes = []
    for sign in (1, -1):
        members = np.flatnonzero(y == sign)
        rows = Z[members]  # This makes the only copy. The following operations are done in place.
        if weight is None:
            total = float(len(rows))
            mean = np.full(len(rows), 1 / total) @ rows
            rows -= mean
            rows *= 1 / np.sqrt(total)
        else:
            total = float(weight[members].sum())
            fractions = weight[members] / total
            mean = fractions @ rows
            rows -= mean
            rows *= np.sqrt(fractions)[:, None]
        classes.append(CenteredClass(total, mean, rows))
    return classes[0], classes[1]


def mpm(Z: Matrix, y: Vector, rho: float, weight: Vector | None = None) -> Hyperplane:
    r"""Fit a minimax probability machine, with a ridge :math:`\rho` added to both covariances.

    The cost is O(n L²) for the covariances and O(L³) for the solution. If there are fewer rows than
    features, the problem is solved in the span of the rows. The objective is kappa, which is
    maximized.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1.
    rho : float
        Ridge :math:`\rho`.
    weight : ndarray of shape (n,), optional
        Weights of the samples.

    Returns
    -------
    Hyperplane
        Hyperplane, scaled such that w·d = 1 for the difference d of the class means.
    """
    short, basis, center = _reduce_rows(Z)
    plus, minus = center_classes(short, y, weight)
    d = plus.mean - minus.mean
    if np.linalg.norm(d) <= _MEAN_RTOL * max(Z.max(), -Z.min()):
        return Hyperplane(np.zeros(Z.shape[1]), 0.0, 0.0, collapsed=True)
    ridge = np.diag(np.full(len(d), rho))
    solution = find_minimax_direction(
        d, plus.rows.T @ plus.rows + ridge, minus.rows.T @ minus.rows + ridge
    )
    w = lift_to_features(basis, solution.w)
    b = solution.kappa * solution.deviations[0] - solution.w @ plus.mean - w @ center
    return Hyperplane(w, float(b), solution.kappa)


def fda(Z: Matrix, y: Vector, rho: float, weight: Vector | None = None) -> Hyperplane:
    r"""Compute Fisher's direction :math:`(S_t + n\rho I)^{-1} d`, without an intercept.

    d is the difference of the class means and :math:`S_t` the total scatter. The cost is O(n L²)
    for the scatter and O(L³) for the solution. If there are fewer rows than features, the problem
    is solved in the span of the rows. The objective is
    :math:`(w^T d)^2 / w^T (S_t + n\rho I) w`, which is maximized.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1.
    rho : float
        Ridge :math:`\rho`, added to the variances.
    weight : ndarray of shape (n,), optional
        Weights of the samples.

    Returns
    -------
    Hyperplane
        Fisher's direction, with intercept 0.
    """
    short, basis, _ = _reduce_rows(Z)
    plus, minus = center_classes(short, y, weight)
    d, n = plus.mean - minus.mean, plus.weight + minus.weight
    if np.linalg.norm(d) <= _MEAN_RTOL * max(Z.max(), -Z.min()):
        return Hyperplane(np.zeros(Z.shape[1]), 0.0, 0.0, collapsed=True)
    total = plus.weight * minus.weight / n**2 * np.outer(d, d)
    for group in (plus, minus):
        total += group.weight / n * (group.rows.T @ group.rows)
    total.flat[:: len(d) + 1] += rho
    w, ratio = find_fisher_direction(d, total)
    return Hyperplane(lift_to_features(basis, w), 0.0, ratio / n)


def _reduce_rows(Z: Matrix) -> tuple[Matrix, Matrix | None, Vector]:
    """Return the coordinates of the rows, their basis, and the center of the rows.

    If there are fewer rows than features, the coordinates are those of the centered rows in their
    span. Otherwise the rows are returned with a basis of None and a center of zeros. Centering is
    not necessary then, because the callers subtract the class means.
    """
    if len(Z) >= Z.shape[1]:
        return Z, None, np.zeros(Z.shape[1])
    offsets, center = center_rows(Z)
    return *reduce_to_row_space(offsets), center


def summarize_scores(scores: Vector, y: Vector, weight: Vector | None = None) -> Scores:
    """Return the weights, means and variances of the scores of both classes."""
    plus, minus = center_classes(scores[:, None], y, weight)
    return Scores(
        (plus.weight, minus.weight),
        (float(plus.mean[0]), float(minus.mean[0])),
        (float(np.sum(plus.rows**2)), float(np.sum(minus.rows**2))),
    )
