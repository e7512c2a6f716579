"""The minimax probability machine from the means and covariances of two classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.optimize import brentq

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.eigen import factor_definite


class MinimaxDirection(NamedTuple):
    """Direction w with w·d = 1, kappa, and the deviations of the two classes along w."""

    w: Vector
    kappa: float
    deviations: tuple[float, float]


def minimax_direction(
    d: Vector, positive: Matrix, negative: Matrix, tolerance: float = 1e-12
) -> MinimaxDirection:
    r"""The minimiser of :math:`\sqrt{w^T\Sigma_+ w} + \sqrt{w^T\Sigma_- w}` with w·d = 1.

    It is proportional to :math:`(\tau\Sigma_+ + (1-\tau)\Sigma_-)^{-1} d` with
    :math:`\tau = \sigma_-/(\sigma_+ + \sigma_-)`: one generalised eigenproblem makes both
    covariances diagonal, and the root of one equation in :math:`\tau` does the rest. O(L³).

    Parameters
    ----------
    d : ndarray of shape (L,)
        Difference of the means, not zero.
    positive, negative : ndarray of shape (L, L)
        Covariances, whose sum is positive definite.
    tolerance : float, default=1e-12
        Where one over the condition number of the sum is no more, at unit diagonal, it is singular:
        a LinAlgError.

    Returns
    -------
    MinimaxDirection
        kappa is one over the minimum.
    """
    # Against their sum instead of one of them, so that one class may have no spread of its own.
    total = positive + negative
    factor_definite(total, tolerance)
    spread, V = linalg.eigh(positive, total, check_finite=False)
    spread = np.clip(spread, 0.0, 1.0)
    rest = 1 - spread
    g = V.T @ d

    def along(tau: float) -> Vector:
        return np.asarray(g / (tau * spread + (1 - tau) * rest))

    def excess(tau: float) -> float:
        u = along(tau) ** 2
        plus, minus = np.sqrt(spread @ u), np.sqrt(rest @ u)
        return float(minus / (plus + minus) - tau)

    low, high = 1e-12, 1 - 1e-12
    if excess(low) <= 0:
        tau = low
    elif excess(high) >= 0:
        tau = high
    else:
        tau = brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16)
    u = along(tau)
    u /= float(u @ g)
    deviations = float(np.sqrt(spread @ u**2)), float(np.sqrt(rest @ u**2))
    return MinimaxDirection(V @ u, 1 / sum(deviations), deviations)


def worst_case_accuracy(kappa: float) -> float:
    r"""The accuracy :math:`\kappa^2/(1+\kappa^2)` that no law of these moments falls below."""
    return float(1 - 1 / (1 + kappa**2))
