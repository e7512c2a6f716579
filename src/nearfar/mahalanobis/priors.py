"""Prior metrics, shared by all learners with a ``prior`` parameter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix, Vector
from nearfar.parameters import AllowedValues, array, one_of
from nearfar.solvers.eigen import descending_eigh, whitener

#: Allowed values of the parameter ``prior``.
PRIORS: list[AllowedValues] = [one_of("isotropic", "identity", "covariance"), array]
# The prior is scaled to a unit diagonal. Eigenvalues below this fraction of the largest eigenvalue
# are then treated as zero.
_RANK = 1e-12


def factor_prior(prior: str | ArrayLike, points: Matrix, unit: float | Vector = 1.0) -> Matrix:
    """Return a factor W of shape (r, p) of the prior metric :math:`M_0 = W^T W`.

    * "isotropic": the identity divided by the mean variance of the points. The mean is taken over
      the directions in which they vary, so constant columns and a rotation into more dimensions
      change nothing.
    * "identity": the Euclidean distance of X as given.
    * "covariance": the inverse covariance of the points, on their range.
    * an array: a symmetric positive semi-definite metric of X.

    Parameters
    ----------
    prior : str or array
        One of the names above, or an array.
    points : ndarray of shape (n_samples, p)
        Points as the solver receives them: centered and divided by ``unit``.
    unit : float or ndarray of shape (p,), default=1
        The number (or one number per feature) by which X was divided.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 3.0], [0.0, -3.0]])
    >>> W = factor_prior("covariance", points)
    >>> (W.T @ W).round(3).tolist()
    [[2.0, 0.0], [0.0, 0.222]]
    """
    p = points.shape[1]
    if not isinstance(prior, str):
        return _factor_prior_array(prior, np.broadcast_to(np.asarray(unit, np.float64), (p,)))
    if prior == "identity":
        return np.diag(np.broadcast_to(np.asarray(unit, np.float64), (p,)))
    covariance = points.T @ points / len(points)
    T = whitener(covariance, _RANK)
    if prior == "isotropic":
        return np.eye(p) * np.sqrt(T.shape[1] / np.trace(covariance))
    return np.ascontiguousarray(T.T)


def _factor_prior_array(prior: ArrayLike, unit: Vector) -> Matrix:
    p = len(unit)
    M = np.asarray(prior, dtype=np.float64)
    if M.shape != (p, p):
        raise ValueError(f"prior must have shape {(p, p)}; got {M.shape}.")
    if not np.isfinite(M).all():
        raise ValueError("prior contains NaN or infinity.")
    max_entry = np.abs(M).max()
    if max_entry == 0:
        raise ValueError("prior is zero, so all distances are zero. Pass a nonzero matrix.")
    if np.abs(M - M.T).max() > 1e-8 * max_entry:
        raise ValueError("prior must be symmetric.")
    scale = np.sqrt(np.maximum(np.diag(M), 0.0))
    is_positive_scale = scale > 0
    values, axes = descending_eigh(
        M
        / np.where(is_positive_scale, scale, 1.0)[:, None]
        / np.where(is_positive_scale, scale, 1.0)
    )
    if values[-1] < -1e-8 * values[0]:
        raise ValueError(
            "prior must be positive semi-definite, but scaled to a unit diagonal it has the "
            f"eigenvalue {values[-1]:.3g}."
        )
    is_positive = values > _RANK * values[0]
    return np.asarray((axes[:, is_positive] * np.sqrt(values[is_positive])).T * (scale * unit))
