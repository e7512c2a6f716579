r"""The LogDet divergence from the identity, as an objective of a factor and as a dual bound.

Between metrics A and I it is :math:`\mathrm{tr} A - \log\det A - r`; convex, zero at A = I, and
infinite where A is singular.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg, optimize

from nearfar.arrays import Matrix


def log_det_divergence(B: Matrix) -> tuple[float, Matrix]:
    r"""The divergence of :math:`B^T B` from the identity, and its gradient in a square B.

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


def log_det_bound(K: Matrix, rest: Callable[[float], float] | None = None) -> float:
    r"""The largest :math:`\log\det(I + \theta K) + \mathrm{rest}(\theta)` for θ from 0 to 1.

    With slopes of a convex loss of A, :math:`K = \sum w v v^T` over its differences, this is what
    no A can fall below in :math:`\mathrm{LogDet}(A, I) + \mathrm{loss}(A)`; ``rest`` is what the
    conjugate of the loss takes away, concave with ``rest(0) = 0``. Slopes that are not yet those of
    the optimum may leave :math:`I + K` indefinite, and a share θ of them still gives a bound.

    >>> import numpy as np
    >>> round(log_det_bound(np.diag([1.0, 0.0])), 4)
    0.6931
    """
    values = linalg.eigvalsh((K + K.T) / 2)
    last = 1.0 if values[0] > -1 + 1e-12 else -(1 - 1e-9) / values[0]

    def below(share: float) -> float:
        taken = 0.0 if rest is None else rest(share)
        return -float(np.sum(np.log1p(share * values))) - taken

    inner = optimize.minimize_scalar(below, bounds=(0.0, last), method="bounded")
    return max(0.0, -below(last), -float(inner.fun))
