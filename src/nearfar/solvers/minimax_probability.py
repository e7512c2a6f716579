"""Minimax probability machine, from the means and covariances of two classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.optimize import brentq

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.eigen import factor_definite


class MinimaxDirection(NamedTuple):
    """Direction w with w·d = 1, its kappa, and the standard deviations of the classes along w."""

    w: Vector
    kappa: float
    deviations: tuple[float, float]


def find_minimax_direction(
    d: Vector, positive: Matrix, negative: Matrix, tolerance: float = 1e-12
) -> MinimaxDirection:
    r"""Minimize :math:`\sqrt{w^T\Sigma_+ w} + \sqrt{w^T\Sigma_- w}` subject to w·d = 1.

    The minimizer is proportional to :math:`(\tau\Sigma_+ + (1-\tau)\Sigma_-)^{-1} d` with
    :math:`\tau = \sigma_-/(\sigma_+ + \sigma_-)`. One generalized eigenproblem diagonalizes both
    covariances, and :math:`\tau` is the root of a scalar equation. The cost is O(L³).

    Parameters
    ----------
    d : ndarray of shape (L,)
        Nonzero difference of the class means.
    positive, negative : ndarray of shape (L, L)
        Covariances of the classes. Their sum must be positive definite.
    tolerance : float, default=1e-12
        Reciprocal condition number up to which the sum of covariances is treated as singular. The
        sum is scaled to unit diagonal first. A singular sum raises LinAlgError.

    Returns
    -------
    MinimaxDirection
        The direction. Its kappa is the reciprocal of the minimum.
    """
    # Diagonalize relative to the sum of covariances, so that one class may have zero variance.
    total = positive + negative
    factor_definite(total, tolerance)
    share_plus, V = linalg.eigh(positive, total, check_finite=False)
    share_plus = np.clip(share_plus, 0.0, 1.0)
    share_minus = 1 - share_plus
    g = V.T @ d

    def direction_at(tau: float) -> Vector:
        return np.asarray(g / (tau * share_plus + (1 - tau) * share_minus))

    def excess(tau: float) -> float:
        u = direction_at(tau) ** 2
        plus, minus = np.sqrt(share_plus @ u), np.sqrt(share_minus @ u)
        return float(minus / (plus + minus) - tau)

    low, high = 1e-12, 1 - 1e-12
    if excess(low) <= 0:
        tau = low
    elif excess(high) >= 0:
        tau = high
    else:
        tau = brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16)
    u = direction_at(tau)
    u /= float(u @ g)
    deviations = float(np.sqrt(share_plus @ u**2)), float(np.sqrt(share_minus @ u**2))
    return MinimaxDirection(V @ u, 1 / sum(deviations), deviations)


def compute_worst_case_accuracy(kappa: float) -> float:
    r"""Return the worst-case accuracy :math:`\kappa^2/(1+\kappa^2)`.

    This is the minimum over all distributions with the means and covariances from which kappa was
    computed.
    """
    return float(1 - 1 / (1 + kappa**2))
