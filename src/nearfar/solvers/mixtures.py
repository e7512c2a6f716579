"""Gaussian mixtures whose number of components is selected by minimum message length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nearfar.arrays import Matrix

CovarianceType = Literal["full", "diagonal", "spherical"]

# Fraction of the mean variance that is added to each variance of a component. Without this floor,
# components of three or four rows that happen to lie on a line give the shortest messages.
_VARIANCE_FLOOR = 1e-2
# Maximum log ratio of a density to the scale of its row. With a larger ratio, all densities are
# rescaled.
_MAX_LOG_RATIO = 300.0


@dataclass
class Mixture:
    """A mixture of k Gaussians, with its message length in nats and the posteriors of the rows.

    ``fallback`` is True if no component survived, and a single Gaussian was fitted instead.
    """

    weights: Matrix
    means: Matrix
    covariances: Matrix
    message_length: float
    responsibilities: Matrix
    fallback: bool = False

    @property
    def n_components(self) -> int:
        """Number of components k."""
        return len(self.weights)


def count_parameters(d: int, covariance_type: CovarianceType) -> int:
    """Return the number of free parameters of one component in d dimensions."""
    return {"full": d + d * (d + 1) // 2, "diagonal": 2 * d, "spherical": d + 1}[covariance_type]


def fit_figueiredo_jain(
    X: Matrix,
    *,
    max_components: int = 10,
    min_components: int = 1,
    covariance_type: CovarianceType = "full",
    tol: float = 1e-5,
    max_iter: int = 500,
    random_state: np.random.RandomState,
) -> Mixture:
    r"""Fit the Gaussian mixture with the minimum message length (Figueiredo and Jain, 2002).

    With n rows, k components and N free parameters per component, the message length is

    .. math::
        \tfrac{N}{2} \sum_m \log(n a_m) + \tfrac{k}{2} \log n - \log p(X) ,

    where the :math:`a_m` are the mixing weights. (The paper adds constants that depend on k, for
    the optimal quantization of the parameters. The authors' program omits these constants, and
    finds the true number of clusters more often.)

    The algorithm starts with ``max_components`` components centered at random rows. It updates them
    in turn, and removes a component whose responsibilities sum to less than N/2 rows. When the
    relative change of the message length is below ``tol``, or after ``max_iter`` sweeps, it removes
    the component with the smallest weight and continues, down to ``min_components``. The mixture
    with the shortest message is returned.

    In d dimensions, a component with full covariance needs more than (d² + 3d)/4 rows to survive.
    If no component survives, a single Gaussian is returned, and ``fallback`` is True. In that case,
    reduce the dimension first.
    """
    n, d = X.shape
    half_parameters = count_parameters(d, covariance_type) / 2
    spread = float(X.var(axis=0).sum()) / d
    if spread == 0 or n <= half_parameters + 1:
        return _fit_one_gaussian(X, half_parameters)
    fit = _Fit(X, half_parameters, covariance_type, _VARIANCE_FLOOR * spread)
    fit.start(min(max_components, n), spread / 10, random_state)
    best: Mixture | None = None
    while len(fit.weights):
        length = np.inf
        for _ in range(max_iter):
            fit.sweep()
            if not len(fit.weights):
                break
            previous_length, length = length, fit.message_length()
            if abs(previous_length - length) < tol * abs(length):
                break
        if not len(fit.weights):
            break
        if best is None or length < best.message_length:
            best = fit.to_mixture(length)
        if len(fit.weights) <= min_components:
            break
        fit.remove(int(np.argmin(fit.weights)))
    return _fit_one_gaussian(X, half_parameters) if best is None else best


class _Fit:
    """Components that remain during the fit, and their densities at the rows."""

    def __init__(
        self, X: Matrix, half: float, covariance_type: CovarianceType, floor: float
    ) -> None:
        self.X, self.half, self.covariance_type, self.floor = X, half, covariance_type, floor

    def start(self, k: int, variance: float, random_state: np.random.RandomState) -> None:
        n, d = self.X.shape
        self.means = self.X[random_state.choice(n, k, replace=False)]
        self.covariances = np.tile(variance * np.eye(d), (k, 1, 1))
        self.weights = np.full(k, 1 / k)
        logs = [
            _compute_log_density(self.X, *parameters)
            for parameters in zip(self.means, self.covariances, strict=True)
        ]
        self.logs = np.stack(logs, axis=1)
        self._rescale()

    def sweep(self) -> None:
        """Update or remove each component in turn."""
        self._rescale()
        m = 0
        while m < len(self.weights):
            scaled = self.densities / (self.densities @ self.weights)[:, None]
            masses = np.maximum(self.weights * scaled.sum(axis=0) - self.half, 0.0)
            if not masses.any():
                self.weights = masses[:0]
                return
            responsibilities = self.weights[m] * scaled[:, m]
            self.weights[m] = masses[m] / masses.sum()
            self.weights /= self.weights.sum()
            if masses[m] == 0:
                self.remove(m)
                continue
            self._update(m, responsibilities)
            m += 1

    def remove(self, m: int) -> None:
        mask = np.arange(len(self.weights)) != m
        self.weights, self.means = self.weights[mask], self.means[mask]
        self.covariances, self.logs = self.covariances[mask], self.logs[:, mask]
        if len(self.weights):
            self.weights = self.weights / self.weights.sum()
            self._rescale()

    def message_length(self) -> float:
        n, k = len(self.X), len(self.weights)
        likelihood = float(np.sum(np.log(self.densities @ self.weights) + self.tops))
        return _compute_message_length(self.weights, n, k, self.half, likelihood)

    def to_mixture(self, length: float) -> Mixture:
        responsibilities = self.densities * self.weights
        responsibilities /= responsibilities.sum(axis=1, keepdims=True)
        return Mixture(
            self.weights.copy(),
            self.means.copy(),
            self.covariances.copy(),
            length,
            responsibilities,
        )

    def _update(self, m: int, responsibilities: Matrix) -> None:
        mass = responsibilities.sum()
        self.means[m] = responsibilities @ self.X / mass
        self.covariances[m] = self._compute_covariance(
            self.X - self.means[m], responsibilities, mass
        )
        self.logs[:, m] = _compute_log_density(self.X, self.means[m], self.covariances[m])
        relative = self.logs[:, m] - self.tops
        if relative.max() > _MAX_LOG_RATIO:
            self._rescale()
        else:
            self.densities[:, m] = np.exp(relative)

    def _compute_covariance(
        self, centered: Matrix, responsibilities: Matrix, mass: float
    ) -> Matrix:
        d = centered.shape[1]
        if self.covariance_type == "full":
            covariance = (centered.T * responsibilities) @ centered / mass
        else:
            variances = responsibilities @ centered**2 / mass
            if self.covariance_type == "spherical":
                variances = np.full(d, variances.mean())
            covariance = np.diag(variances)
        return np.asarray(covariance + self.floor * np.eye(d))

    def _rescale(self) -> None:
        """Divide the densities of each row by the largest one, so that not all underflow to 0."""
        self.tops = self.logs.max(axis=1)
        self.densities = np.exp(self.logs - self.tops[:, None])


def _fit_one_gaussian(X: Matrix, half: float) -> Mixture:
    n, d = X.shape
    centered = X - X.mean(axis=0)
    covariance = centered.T @ centered / n
    ridge = _VARIANCE_FLOOR * max(float(np.trace(covariance)) / d, np.finfo(float).tiny)
    covariance += ridge * np.eye(d)
    likelihood = float(_compute_log_density(X, X.mean(axis=0), covariance).sum())
    length = _compute_message_length(np.ones(1), n, 1, half, likelihood)
    return Mixture(
        np.ones(1), X.mean(axis=0)[None], covariance[None], length, np.ones((n, 1)), fallback=True
    )


def _compute_message_length(
    weights: Matrix, n: int, k: int, half: float, likelihood: float
) -> float:
    return float(half * np.sum(np.log(n * weights)) + k / 2 * np.log(n) - likelihood)


def _compute_log_density(X: Matrix, mean: Matrix, covariance: Matrix) -> Matrix:
    factor = np.linalg.cholesky(covariance)
    white = (X - mean) @ np.linalg.inv(factor).T
    constant = len(mean) * np.log(2 * np.pi) / 2 + np.log(np.diag(factor)).sum()
    return np.asarray(-0.5 * np.einsum("ij,ij->i", white, white) - constant)
