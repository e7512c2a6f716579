r"""LogDet divergence from the identity: its value, its gradient and a dual bound.

The divergence of an r×r metric A from the identity is :math:`\mathrm{tr} A - \log\det A - r`. It is
convex, zero at A = I, and infinite if A is singular.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg, optimize

from nearfar.arrays import Matrix


def log_det_divergence(B: Matrix) -> tuple[float, Matrix]:
    r"""Return the LogDet divergence of :math:`B^T B` from I, and its gradient in B.

    B must be square.

    >>> import numpy as np
    >>> value, gradient = log_det_divergence(np.diag([2.0, 1.0]))
    >>> round(value, 4), gradient.tolist()
    (1.6137, [[3.0, 0.0], [0.0, 0.0]])
    """
    sign, logarithm = np.linalg.slogdet(B)
    if sign == 0 or not np.isfinite(logarithm):
        return np.inf, np.zeros_like(B)
    value = float(np.sum(B * B) - 2 * logarithm - len(B))
    return value, 2 * (B - np.linalg.inv(B).T)


def log_det_bound(K: Matrix, dual_term: Callable[[float], float] | None = None) -> float:
    r"""Maximize :math:`\log\det(I + \theta K) + \mathrm{dual\_term}(\theta)` over θ from 0 to 1.

    Let loss(A) be a convex function of the squared distances :math:`v^T A v`, and w the slopes of
    the loss. With :math:`K = \sum w v v^T`, the maximum is a lower bound of
    :math:`\mathrm{LogDet}(A, I) + \mathrm{loss}(A)` over all A. ``dual_term`` is the negative
    conjugate of the loss at θ times the slopes. It is concave with ``dual_term(0) = 0``. Before the
    optimum is reached, :math:`I + K` can be indefinite. The slopes multiplied by a smaller θ still
    give a bound.

    >>> import numpy as np
    >>> round(log_det_bound(np.diag([1.0, 0.0])), 4)
    0.6931
    """
    values = linalg.eigvalsh((K + K.T) / 2)
    max_theta = 1.0 if values[0] > -1 + 1e-12 else -(1 - 1e-9) / values[0]

    def negative_bound(theta: float) -> float:
        offset = 0.0 if dual_term is None else dual_term(theta)
        return -float(np.sum(np.log1p(theta * values))) - offset

    result = optimize.minimize_scalar(negative_bound, bounds=(0.0, max_theta), method="bounded")
    return max(0.0, -negative_bound(max_theta), -float(result.fun))
