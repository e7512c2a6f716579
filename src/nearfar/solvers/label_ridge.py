"""Ridge regression of labels with a free intercept: the least-squares support vector machine."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.hyperplanes import Hyperplane, center_rows


def label_ridge(Z: Matrix, y: Vector, gamma: float, weight: Vector | None = None) -> Hyperplane:
    r"""Minimize :math:`\tfrac12|w|^2 + \tfrac\gamma2\sum_i v_i (y_i - w^T z_i - b)^2`.

    The cost is O(n L²) plus one Cholesky factorization of an L×L matrix. If there are fewer samples
    than features, an n×n matrix is factorized instead.

    Parameters
    ----------
    Z : ndarray of shape (n, L)
        Samples.
    y : ndarray of shape (n,)
        Labels, 1 or -1. Other numbers are also accepted.
    gamma : float
        Positive weight of the squared errors.
    weight : ndarray of shape (n,), optional
        Weights :math:`v_i` of the samples.

    Returns
    -------
    Hyperplane
        Hyperplane with normal w and intercept b.
    """
    rows, mean = center_rows(Z, weight)
    level = float(np.mean(y) if weight is None else weight @ y / weight.sum())
    target = y - level
    root = None if weight is None else np.sqrt(weight)
    if root is not None:
        rows, target = root[:, None] * rows, root * target
    n, L = rows.shape
    if n >= L:
        K = rows.T @ rows
        K.flat[:: L + 1] += 1 / gamma
        w = _solve(K, rows.T @ target)
    else:
        K = rows @ rows.T
        K.flat[:: n + 1] += 1 / gamma
        w = rows.T @ _solve(K, target)
    errors = target - rows @ w
    objective = 0.5 * float(w @ w) + 0.5 * gamma * float(errors @ errors)
    # If the samples and the labels are not correlated, their products consist of rounding errors.
    pull, max_pull = np.linalg.norm(rows.T @ target), np.linalg.norm(rows) * np.linalg.norm(target)
    collapsed = bool(pull <= 1e-14 * max_pull)
    return Hyperplane(w, level - float(mean @ w), objective, collapsed=collapsed)


def _solve(K: Matrix, right: Vector) -> Vector:
    try:
        factor = linalg.cho_factor(K, check_finite=False)
    except linalg.LinAlgError:
        # The ridge is below the rounding errors of K, so raise it to their size.
        K = K.copy()
        K.flat[:: len(K) + 1] += 4 * len(K) * np.finfo(np.float64).eps * K.diagonal().max()
        factor = linalg.cho_factor(K, check_finite=False)
    return np.asarray(linalg.cho_solve(factor, right, check_finite=False))
