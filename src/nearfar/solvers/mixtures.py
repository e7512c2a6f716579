"""Gaussian mixtures that choose the number of their components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nearfar.arrays import Matrix

CovarianceType = Literal["full", "diagonal", "spherical"]

# Share of the mean variance added to each variance of a component. Without it, components of three
# or four rows that happen to lie on a line make the shortest messages.
_FLOOR = 1e-2
# Largest logarithm of a density over that of its row's maximum before both are rescaled.
_DRIFT = 300.0


@dataclass
class Mixture:
    """A mixture of k Gaussians, its message length in nats, and the posteriors (n, k) of the rows.

    ``fallback`` says that no component survived and one Gaussian was taken instead.
    """

    weights: Matrix
    means: Matrix
    covariances: Matrix
    message_length: float
    responsibilities: Matrix
    fallback: bool = False

    @property
    def n_components(self) -> int:
        """k."""
        return len(self.weights)


def n_parameters(d: int, covariance_type: CovarianceType) -> int:
    """Free parameters of one component in d dimensions."""
    return {"full": d + d * (d + 1) // 2, "diagonal": 2 * d, "spherical": d + 1}[covariance_type]


def figueiredo_jain(
    X: Matrix,
    *,
    max_components: int = 10,
    min_components: int = 1,
    covariance_type: CovarianceType = "full",
    tol: float = 1e-5,
    max_iter: int = 500,
    random_state: np.random.RandomState,
) -> Mixture:
    r"""The mixture of minimum message length, after Figueiredo and Jain (2002).

    With N free parameters for each component the message length is

    .. math::
        \tfrac{N}{2} \sum_m \log(n a_m) + \tfrac{k}{2} \log n - \log p(X) ,

    a_m being the mixing weights. (The paper has further constants in k, for the best lattice of
    parameters; its program leaves them out, and finds the number of clusters more often.)

    It starts with ``max_components`` at randomly chosen rows. Components are updated one after the
    other; one whose responsibilities sum to less than N/2 rows is annihilated. When the relative
    change of the message length is below ``tol``, or after ``max_iter`` sweeps, the weakest is
    removed and the rest goes on, down to ``min_components``, and the shortest message on the way
    wins.

    In d dimensions a component with full covariance needs more than (d² + 3d)/4 rows to survive;
    where none can, one Gaussian is returned and ``fallback`` says so. Reduce the dimension first.
    """
    n, d = X.shape
    half = n_parameters(d, covariance_type) / 2
    spread = float(X.var(axis=0).sum()) / d
    if spread == 0 or n <= half + 1:
        return _one_gaussian(X, half)
    fit = _Fit(X, half, covariance_type, _FLOOR * spread)
    fit.start(min(max_components, n), spread / 10, random_state)
    best: Mixture | None = None
    while len(fit.weights):
        length = np.inf
        for _ in range(max_iter):
            fit.sweep()
            if not len(fit.weights):
                break
            before, length = length, fit.message_length()
            if abs(before - length) < tol * abs(length):
                break
        if not len(fit.weights):
            break
        if best is None or length < best.message_length:
            best = fit.mixture(length)
        if len(fit.weights) <= min_components:
            break
        fit.remove(int(np.argmin(fit.weights)))
    return _one_gaussian(X, half) if best is None else best


class _Fit:
    """The components that are still there, and their densities at the rows."""

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
            _log_density(self.X, *one) for one in zip(self.means, self.covariances, strict=True)
        ]
        self.logs = np.stack(logs, axis=1)
        self._rescale()

    def sweep(self) -> None:
        """Update or annihilate each component in turn."""
        self._rescale()
        m = 0
        while m < len(self.weights):
            scaled = self.densities / (self.densities @ self.weights)[:, None]
            masses = np.maximum(self.weights * scaled.sum(axis=0) - self.half, 0.0)
            if not masses.any():
                self.weights = masses[:0]
                return
            share = self.weights[m] * scaled[:, m]
            self.weights[m] = masses[m] / masses.sum()
            self.weights /= self.weights.sum()
            if masses[m] == 0:
                self.remove(m)
                continue
            self._update(m, share)
            m += 1

    def remove(self, m: int) -> None:
        keep = np.arange(len(self.weights)) != m
        self.weights, self.means = self.weights[keep], self.means[keep]
        self.covariances, self.logs = self.covariances[keep], self.logs[:, keep]
        if len(self.weights):
            self.weights = self.weights / self.weights.sum()
            self._rescale()

    def message_length(self) -> float:
        n, k = len(self.X), len(self.weights)
        likelihood = float(np.sum(np.log(self.densities @ self.weights) + self.tops))
        return _message_length(self.weights, n, k, self.half, likelihood)

    def mixture(self, length: float) -> Mixture:
        responsibilities = self.densities * self.weights
        responsibilities /= responsibilities.sum(axis=1, keepdims=True)
        return Mixture(
            self.weights.copy(),
            self.means.copy(),
            self.covariances.copy(),
            length,
            responsibilities,
        )

    def _update(self, m: int, share: Matrix) -> None:
        mass = share.sum()
        self.means[m] = share @ self.X / mass
        self.covariances[m] = self._covariance(self.X - self.means[m], share, mass)
        self.logs[:, m] = _log_density(self.X, self.means[m], self.covariances[m])
        relative = self.logs[:, m] - self.tops
        if relative.max() > _DRIFT:
            self._rescale()
        else:
            self.densities[:, m] = np.exp(relative)

    def _covariance(self, centered: Matrix, share: Matrix, mass: float) -> Matrix:
        d = centered.shape[1]
        if self.covariance_type == "full":
            covariance = (centered.T * share) @ centered / mass
        else:
            variances = share @ centered**2 / mass
            if self.covariance_type == "spherical":
                variances = np.full(d, variances.mean())
            covariance = np.diag(variances)
        return np.asarray(covariance + self.floor * np.eye(d))

    def _rescale(self) -> None:
        """Densities over the largest of each row: no row has zeros only."""
        self.tops = self.logs.max(axis=1)
        self.densities = np.exp(self.logs - self.tops[:, None])


def _one_gaussian(X: Matrix, half: float) -> Mixture:
    n, d = X.shape
    centered = X - X.mean(axis=0)
    covariance = centered.T @ centered / n
    ridge = _FLOOR * max(float(np.trace(covariance)) / d, np.finfo(float).tiny)
    covariance += ridge * np.eye(d)
    likelihood = float(_log_density(X, X.mean(axis=0), covariance).sum())
    length = _message_length(np.ones(1), n, 1, half, likelihood)
    return Mixture(
        np.ones(1), X.mean(axis=0)[None], covariance[None], length, np.ones((n, 1)), fallback=True
    )


def _message_length(weights: Matrix, n: int, k: int, half: float, likelihood: float) -> float:
    return float(half * np.sum(np.log(n * weights)) + k / 2 * np.log(n) - likelihood)


def _log_density(X: Matrix, mean: Matrix, covariance: Matrix) -> Matrix:
    factor = np.linalg.cholesky(covariance)
    white = (X - mean) @ np.linalg.inv(factor).T
    constant = len(mean) * np.log(2 * np.pi) / 2 + np.log(np.diag(factor)).sum()
    return np.asarray(-0.5 * np.einsum("ij,ij->i", white, white) - constant)
