"""Minimax probability and Fisher's direction of labelled rows."""

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

# Means that differ by less than this share of the rows' own size differ by rounding.
_ROUNDING = 1e-13


class LabelledSide(NamedTuple):
    """Weight, mean and rows about it, each times the root of its share of the weight."""

    weight: float
    mean: Vector
    rows: Matrix


def labelled_sides(
    Z: Matrix, y: Vector, weight: Vector | None = None
) -> tuple[LabelledSide, LabelledSide]:
    """The rows of label 1, then those of -1; ``rows.T @ rows`` is the covariance of a side."""
    sides = []
    for sign in (1, -1):
        own = np.flatnonzero(y == sign)
        rows = Z[own]  # a copy, and the only one
        if weight is None:
            total = float(len(rows))
            mean = np.full(len(rows), 1 / total) @ rows
            rows -= mean
            rows *= 1 / np.sqrt(total)
        else:
            total = float(weight[own].sum())
            shares = weight[own] / total
            mean = shares @ rows
            rows -= mean
            rows *= np.sqrt(shares)[:, None]
        sides.append(LabelledSide(total, mean, rows))
    return sides[0], sides[1]


def mpm(Z: Matrix, y: Vector, rho: float, weight: Vector | None = None) -> Hyperplane:
    r"""The minimax probability machine of rows, with :math:`\rho` added to both covariances.

    O(n L²) for the covariances and O(L³); in the span of the rows where they are fewer than
    features. The objective is kappa, to be maximised.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1.
    rho : float
        The ridge.
    weight : ndarray of shape (n,), optional
        Weights of the samples.

    Returns
    -------
    Hyperplane
        With w·d = 1 for the difference d of the means.
    """
    short, basis, center = _coordinates(Z)
    plus, minus = labelled_sides(short, y, weight)
    d = plus.mean - minus.mean
    if np.linalg.norm(d) <= _ROUNDING * max(Z.max(), -Z.min()):
        return Hyperplane(np.zeros(Z.shape[1]), 0.0, 0.0, collapsed=True)
    ridge = np.diag(np.full(len(d), rho))
    found = find_minimax_direction(
        d, plus.rows.T @ plus.rows + ridge, minus.rows.T @ minus.rows + ridge
    )
    w = lift_to_features(basis, found.w)
    b = found.kappa * found.deviations[0] - found.w @ plus.mean - w @ center
    return Hyperplane(w, float(b), found.kappa)


def fda(Z: Matrix, y: Vector, rho: float, weight: Vector | None = None) -> Hyperplane:
    r"""Fisher's direction of rows, :math:`(S_t + n\rho I)^{-1} d`, without an intercept.

    O(n L²) for the scatter and O(L³); in the span of the rows where they are fewer than features.
    The objective is :math:`(w^T d)^2 / w^T (S_t + n\rho I) w`, to be maximised.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 and -1.
    rho : float
        The ridge, added to variances.
    weight : ndarray of shape (n,), optional
        Weights of the samples.

    Returns
    -------
    Hyperplane
    """
    short, basis, _ = _coordinates(Z)
    plus, minus = labelled_sides(short, y, weight)
    d, n = plus.mean - minus.mean, plus.weight + minus.weight
    if np.linalg.norm(d) <= _ROUNDING * max(Z.max(), -Z.min()):
        return Hyperplane(np.zeros(Z.shape[1]), 0.0, 0.0, collapsed=True)
    total = plus.weight * minus.weight / n**2 * np.outer(d, d)
    for side in (plus, minus):
        total += side.weight / n * (side.rows.T @ side.rows)
    total.flat[:: len(d) + 1] += rho
    w, ratio = find_fisher_direction(d, total)
    return Hyperplane(lift_to_features(basis, w), 0.0, ratio / n)


def _coordinates(Z: Matrix) -> tuple[Matrix, Matrix | None, Vector]:
    """Rows in their span about a centre, where they are fewer than features; the basis, the centre.

    Else the rows themselves: what follows takes the means of the sides off in any case.
    """
    if len(Z) >= Z.shape[1]:
        return Z, None, np.zeros(Z.shape[1])
    offsets, center = center_rows(Z)
    return *reduce_to_row_space(offsets), center


def scores_of(scores: Vector, y: Vector, weight: Vector | None = None) -> Scores:
    """Weights, means and variances of the scores of both sides."""
    plus, minus = labelled_sides(scores[:, None], y, weight)
    return Scores(
        (plus.weight, minus.weight),
        (float(plus.mean[0]), float(minus.mean[0])),
        (float(np.sum(plus.rows**2)), float(np.sum(minus.rows**2))),
    )
