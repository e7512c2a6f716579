"""Divergences between projected Gaussians, all pairs at once, and their gradients in U.

A family of Gaussians N(m_k, Σ_k) in p dimensions is projected by U (p, q) to N(U'm_k, U'Σ_kU). A
divergence is a function of these small moments; for weights w of the ordered pairs, the gradient of
Σ w_ij D(i||j) is collected *for each Gaussian* first, in q×q matrices, and pulled back at the end:

    family = GaussianFamily(means, covariances)          # or a function U -> Σ_k U
    projected = family.project(U)                        # Σ_k U, U'Σ_kU and its Cholesky factors
    D = kullback_leibler.values(projected)               # (c, c): D[i, j] = KL(i||j)
    G = kullback_leibler.gradient(projected, weights)    # (p, q)

Cost of both: c p² q for the products Σ_k U (less where they are factored), then
c p q² + c² q² + c q³. No p×p matrix of a pair is ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from nearfar.arrays import Matrix
from nearfar.notices import warn

#: From U (p, q) to the products Σ_k U (c, p, q).
SigmaDot = Callable[[Matrix], Matrix]

# Elements of the largest array over pairs.
_BLOCK = 2**22


class GaussianFamily:
    """Gaussians in p dimensions, known by their means and by what their covariances do to U.

    Instead of covariances (c, p, p) a function may give the products Σ_k U, of shape (c, p, q), for
    a U of shape (p, q), so that covariances known by a few rows need no p×p matrix.
    """

    def __init__(self, means: ArrayLike, covariances: ArrayLike | SigmaDot) -> None:
        self.means = np.asarray(means, dtype=np.float64)
        # Differences are all that counts; about zero they lose no digits to a common offset.
        self._centered = self.means - self.means.mean(axis=0)
        self._dense: Matrix | None = None
        if callable(covariances):
            self.dot: SigmaDot = covariances
        else:
            self._dense = np.ascontiguousarray(covariances, dtype=np.float64)
            self.dot = _dense_dot(self._dense)

    def project(self, U: Matrix) -> ProjectedGaussians:
        """The family seen through U (p, q)."""
        return ProjectedGaussians(self._centered @ U, self.dot(U), U, self._centered)

    def traces(self) -> Matrix:
        """tr Σ_k, of shape (c,)."""
        if self._dense is not None:
            return np.einsum("kii->k", self._dense)
        return sum(
            (np.einsum("kii->k", images[:, block]) for block, images in self._columns()),
            start=np.zeros(len(self.means)),
        )

    def combination(self, by_means: Matrix, by_covariances: Matrix) -> tuple[Matrix, Matrix]:
        """Σ a_k m_k m_k' and Σ b_k Σ_k, each (p, p); means about their centre."""
        means = (self._centered.T * by_means) @ self._centered
        if self._dense is not None:
            covariances = np.tensordot(by_covariances, self._dense, axes=1)
        else:
            parts = [np.tensordot(by_covariances, part, axes=1) for _, part in self._columns()]
            covariances = np.hstack(parts)
        return means, (covariances + covariances.T) / 2

    def _columns(self) -> Iterator[tuple[slice, Matrix]]:
        """Blocks of columns of the Σ_k, (c, p, block)."""
        c, p = self.means.shape
        unit = np.eye(p)
        size = max(1, _BLOCK // max(1, c * p))
        for start in range(0, p, size):
            block = slice(start, min(start + size, p))
            yield block, self.dot(unit[:, block])


def _dense_dot(covariances: Matrix) -> SigmaDot:
    c, p, _ = covariances.shape
    stacked = covariances.reshape(c * p, p)
    return lambda U: (stacked @ U).reshape(c, p, U.shape[1])


@dataclass(frozen=True)
class ProjectedGaussians:
    """Gaussians in q dimensions, and the way back to gradients in U.

    ``means`` are U'm_k, ``images`` Σ_k U, and ``full_means`` m_k up to a common shift.
    """

    means: Matrix
    images: Matrix
    U: Matrix
    full_means: Matrix

    @property
    def n_components(self) -> int:
        """q."""
        return int(self.U.shape[1])

    @cached_property
    def covariances(self) -> Matrix:
        """P_k = U'Σ_kU, of shape (c, q, q), symmetric."""
        P = self.U.T @ self.images
        return (P + P.transpose(0, 2, 1)) / 2

    @cached_property
    def factors(self) -> Matrix:
        """Lower Cholesky factors of the P_k."""
        return cholesky_stack(self.covariances)

    @cached_property
    def inverses(self) -> Matrix:
        """inv(P_k)."""
        roots = np.linalg.inv(self.factors)
        return np.asarray(roots.transpose(0, 2, 1) @ roots)

    @cached_property
    def log_dets(self) -> Matrix:
        """log |P_k|."""
        return 2 * np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(axis=1)

    def differences(self) -> Iterator[tuple[slice, Matrix]]:
        """Blocks of j with U'(m_i - m_j), each of shape (block, c, q): j first, then i."""
        c, q = self.means.shape
        size = max(1, _BLOCK // max(1, c * q))
        for start in range(0, c, size):
            block = slice(start, min(start + size, c))
            yield block, self.means[None] - self.means[block, None]

    def pull_back(self, by_covariances: Matrix, by_means: Matrix) -> Matrix:
        """The gradient (p, q) in U, from the symmetric ones in the P_k and those in U'm_k."""
        c, p, q = self.images.shape
        # Σ_k 2 Σ_k U P̄_k + m_k m̄_k', without an array of (c, p, q) besides the images.
        gradient = self.full_means.T @ by_means
        for start in range(0, c, max(1, _BLOCK // (p * q))):
            block = slice(start, min(start + max(1, _BLOCK // (p * q)), c))
            gradient += 2 * np.tensordot(
                self.images[block], by_covariances[block], axes=([0, 2], [0, 1])
            )
        return np.asarray(gradient)


class Divergence(Protocol):
    """All pairwise divergences of projected Gaussians, and the gradient of a weighted sum.

    ``invariant`` says whether UB gives the same values as U for every invertible B; if not they
    are equal for rotations B only, and U has to be kept orthonormal.
    """

    invariant: bool

    def values(self, projected: ProjectedGaussians) -> Matrix:
        """D[i, j] = D(i||j), of shape (c, c), with a zero diagonal."""

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Gradient (p, q) in U of the sum of weights[i, j] D(i||j)."""


#: From all divergences (c, c) to a number and its derivatives (c, c), zero on the diagonal.
Average = Callable[[Matrix], tuple[float, Matrix]]


def averaged(
    family: GaussianFamily, divergence: Divergence, average: Average
) -> Callable[[Matrix], tuple[float, Matrix]]:
    """The objective U ↦ average of the divergences, with its gradient."""

    def objective(U: Matrix) -> tuple[float, Matrix]:
        projected = family.project(U)
        value, weights = average(divergence.values(projected))
        return value, divergence.gradient(projected, weights)

    return objective


class KullbackLeibler:
    r"""Kullback-Leibler divergences of Gaussians.

    .. math::
        KL(i||j) = \tfrac12 [\log|P_j| - \log|P_i| + \mathrm{tr}(P_j^{-1} P_i)
        + \delta_{ij}^T P_j^{-1} \delta_{ij} - q], \qquad \delta_{ij} = U^T(m_i - m_j)

    The convention "unnormalized" is 2 KL + q, as equation 2.36 of Tao's thesis prints it and as its
    experiments most likely ran. The gradients agree up to the factor two, but under a logarithm the
    floor q instead of zero makes another optimum.
    """

    invariant = True

    def __init__(self, convention: str = "exact") -> None:
        if convention not in ("exact", "unnormalized"):
            raise ValueError(f"convention must be 'exact' or 'unnormalized'; got {convention!r}.")
        self.convention = convention

    def values(self, projected: ProjectedGaussians) -> Matrix:
        """D[i, j] = D(i||j), of shape (c, c)."""
        c, q = projected.means.shape
        P, inverses, log_dets = projected.covariances, projected.inverses, projected.log_dets
        twice = P.reshape(c, -1) @ inverses.reshape(c, -1).T  # tr(inv(P_j) P_i)
        twice += log_dets[None, :] - log_dets[:, None] - q
        for block, difference in projected.differences():
            twice[:, block] += np.sum((difference @ inverses[block]) * difference, axis=2).T
        np.fill_diagonal(twice, 0.0)
        np.maximum(twice, 0.0, out=twice)  # rounding may fall below
        if self.convention == "exact":
            return twice / 2
        twice += q
        np.fill_diagonal(twice, 0.0)
        return twice

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Gradient (p, q) in U of the sum of weights[i, j] D(i||j)."""
        if self.convention == "unnormalized":
            weights = 2 * weights
        return projected.pull_back(*_kl_derivatives(projected, weights))


def _kl_derivatives(projected: ProjectedGaussians, weights: Matrix) -> tuple[Matrix, Matrix]:
    r"""Derivatives of Σ w_ij KL(i||j) in the covariances and in the means.

    With :math:`Q_k = \sum_i w_{ik} (P_i + \delta_{ik}\delta_{ik}^T)`,

    .. math::
        \bar P_k = \tfrac12 [ \sum_j w_{kj} P_j^{-1} + (\sum_i w_{ik} - \sum_j w_{kj}) P_k^{-1}
        - P_k^{-1} Q_k P_k^{-1} ], \qquad
        \bar m_k = \sum_j w_{kj} P_j^{-1} \delta_{kj} - \sum_i w_{ik} P_k^{-1} \delta_{ik} .
    """
    c, q = projected.means.shape
    P, inverses = projected.covariances, projected.inverses
    received, given = weights.sum(axis=0), weights.sum(axis=1)
    Q = (weights.T @ P.reshape(c, -1)).reshape(c, q, q)
    by_means = np.zeros((c, q))
    for block, difference in projected.differences():
        weighted = weights.T[block, :, None] * difference  # w_ij δ_ij, j first
        Q[block] += weighted.transpose(0, 2, 1) @ difference
        pulls = weighted @ inverses[block]
        by_means += pulls.sum(axis=0)
        by_means[block] -= pulls.sum(axis=1)
    by_covariances = (weights @ inverses.reshape(c, -1)).reshape(c, q, q)
    by_covariances += (received - given)[:, None, None] * inverses
    by_covariances -= inverses @ Q @ inverses
    return by_covariances / 2, by_means


class SquaredDifference:
    r"""Half the integral of the squared difference of two Gaussian densities.

    .. math::
        D(i||j) = \tfrac12 \int (p_i - p_j)^2 = \tfrac12 [ N(0; 0, 2P_i) + N(0; 0, 2P_j)
        - 2 N(\delta_{ij}; 0, P_i + P_j) ]

    The Bregman divergence of the generator x²/2. It has the unit of a density: it changes when U
    is scaled.
    """

    invariant = False

    def values(self, projected: ProjectedGaussians) -> Matrix:
        """D[i, j] = D(i||j), of shape (c, c)."""
        own = self._own(projected)
        D = (own[:, None] + own[None, :]) / 2
        for i, sums in self._overlaps(projected):
            D[i] -= sums[0]
        np.fill_diagonal(D, 0.0)
        return np.maximum(D, 0.0)

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Gradient (p, q) in U of the sum of weights[i, j] D(i||j)."""
        weights = np.where(np.eye(len(weights), dtype=bool), 0.0, weights)
        # d N(0; 0, 2P) / dP = -N/2 inv(P)
        total = weights.sum(axis=0) + weights.sum(axis=1)
        by_covariances = -(total * self._own(projected) / 4)[:, None, None] * projected.inverses
        by_means = np.zeros_like(projected.means)
        for i, (density, inverses, solved) in self._overlaps(projected):
            # d N(δ; 0, S) / dS = N/2 (s s' - inv(S)), dN/dδ = -N s, with s = inv(S) δ
            weight = weights[i] * density
            part = solved[:, :, None] * solved[:, None, :] - inverses
            part *= (weight / 2)[:, None, None]
            by_covariances[i] -= part.sum(axis=0)
            by_covariances -= part
            pull = weight[:, None] * solved
            by_means[i] += pull.sum(axis=0)
            by_means -= pull
        return projected.pull_back(by_covariances, by_means)

    @staticmethod
    def _own(projected: ProjectedGaussians) -> Matrix:
        """N(0; 0, 2P_k)."""
        q = projected.n_components
        return np.asarray(np.exp(-0.5 * (q * np.log(4 * np.pi) + projected.log_dets)))

    @staticmethod
    def _overlaps(
        projected: ProjectedGaussians,
    ) -> Iterator[tuple[int, tuple[Matrix, Matrix, Matrix]]]:
        """For each i: N(δ_ij; 0, S), inv(S) and inv(S) δ_ij with S = P_i + P_j, for all j."""
        q = projected.n_components
        for i in range(len(projected.means)):
            roots = np.linalg.inv(cholesky_stack(projected.covariances[i] + projected.covariances))
            difference = projected.means[i] - projected.means
            white = (roots @ difference[:, :, None])[:, :, 0]
            log_det = -2 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
            density = np.exp(-0.5 * (q * np.log(2 * np.pi) + log_det + np.sum(white**2, axis=1)))
            transposed = roots.transpose(0, 2, 1)
            yield i, (density, transposed @ roots, (transposed @ white[:, :, None])[:, :, 0])


class Bregman:
    r"""The Bregman divergence of any convex generator, by quadrature.

    For a convex G, the ``generator``, with :math:`\xi = (G')^{-1}`, the ``link``,

    .. math::
        D(i||j) = \int G(\xi(p_j)) - G(\xi(p_i)) - p_i\,(\xi(p_j) - \xi(p_i)) .

    The first two integrals are expectations under the density itself, the third under :math:`p_i`;
    each is a sum over fixed nodes of a standard normal: those of Gauss and Hermite in up to two
    dimensions (``n_nodes`` on each axis, 40 by default), quasi-random ones (Sobol) above (1024
    altogether). So the values carry the error of the quadrature, small while no Gaussian is much
    narrower than the others; with three dimensions and more they depend on the basis of the
    subspace by as much.
    """

    invariant = False

    def __init__(
        self,
        generator: Callable[[Matrix], Matrix],
        link: Callable[[Matrix], Matrix],
        link_derivative: Callable[[Matrix], Matrix],
        n_nodes: int | None = None,
    ) -> None:
        self.generator, self.link, self.link_derivative = generator, link, link_derivative
        self.n_nodes = n_nodes

    def values(self, projected: ProjectedGaussians) -> Matrix:
        """D[i, j] = D(i||j), of shape (c, c)."""
        nodes, mass = normal_nodes(projected.n_components, self.n_nodes)
        c = len(projected.means)
        D, own = np.empty((c, c)), np.empty(c)
        for i in range(c):
            density, _ = _densities_at(projected, i, nodes)
            links = self.link(density)
            # The generator at ξ(p) is an expectation under p as G(ξ(p)) / p.
            own[i] = mass @ (self.generator(links[i]) / density[i])
            expected = links @ mass
            D[i] = expected[i] - expected
        D += own[None, :] - own[:, None]
        np.fill_diagonal(D, 0.0)
        return D

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Gradient (p, q) in U of the sum of weights[i, j] D(i||j): exactly that of the values."""
        nodes, mass = normal_nodes(projected.n_components, self.n_nodes)
        c, q = projected.means.shape
        given = np.where(np.eye(c, dtype=bool), 0.0, weights)
        by_covariances, by_means = np.zeros((c, q, q)), np.zeros((c, q))
        by_log_dets = np.zeros(c)
        for i in range(c):
            density, solved = _densities_at(projected, i, nodes)
            links = self.link(density)
            slopes = self.link_derivative(density) * density  # in log p
            # Under p_i itself: E[G(ξ)/p] of weight Σ_k w_ki - Σ_j w_ij, and E[ξ] of Σ_j w_ij.
            sent = given[i].sum()
            level = slopes[i] - self.generator(links[i]) / density[i]
            by_log_dets[i] -= (given[:, i].sum() - sent) * (mass @ level) / 2
            by_log_dets[i] -= sent * (mass @ slopes[i]) / 2
            # -E_i[ξ(p_j)]: log p_j changes with its moments and with the nodes m_i + C_i z.
            share = -given[i][:, None] * slopes * mass
            weighted = share[:, :, None] * solved  # (c, n_nodes, q)
            by_means += weighted.sum(axis=1)
            by_means[i] -= weighted.sum(axis=(0, 1))
            by_covariances += (weighted.transpose(0, 2, 1) @ solved) / 2
            by_log_dets -= share.sum(axis=1) / 2
            moved = -(weighted.sum(axis=0).T @ nodes)  # derivative in the factor C_i
            by_covariances[i] += _through_cholesky(projected.factors[i], moved)
        by_covariances += by_log_dets[:, None, None] * projected.inverses
        return projected.pull_back(by_covariances, by_means)


def _densities_at(projected: ProjectedGaussians, i: int, nodes: Matrix) -> tuple[Matrix, Matrix]:
    """All densities p_j (c, n) at the nodes x = m_i + C_i z, and inv(P_j)(x - m_j), (c, n, q)."""
    q = projected.n_components
    constants = -0.5 * (q * np.log(2 * np.pi) + projected.log_dets)
    points = projected.means[i] + nodes @ projected.factors[i].T
    difference = points[None] - projected.means[:, None]
    solved = difference @ projected.inverses
    logs = constants[:, None] - 0.5 * np.sum(difference * solved, axis=2)
    return np.exp(np.maximum(logs, -700.0)), solved


def _through_cholesky(factor: Matrix, by_factor: Matrix) -> Matrix:
    """The symmetric derivative in P = CC' of a function with a given derivative in C."""
    inner = np.tril(factor.T @ by_factor)
    inner[np.diag_indices(len(inner))] /= 2
    root = np.linalg.inv(factor)
    outer = root.T @ inner @ root
    return np.asarray((outer + outer.T) / 2)


def normal_nodes(n_components: int, n_nodes: int | None = None) -> tuple[Matrix, Matrix]:
    """Nodes (n, q) and weights (n,) that integrate against the standard normal density."""
    if n_components <= 2:
        axis, weight = np.polynomial.hermite_e.hermegauss(40 if n_nodes is None else n_nodes)
        weight = weight / weight.sum()
        if n_components == 1:
            return axis[:, None], weight
        grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        return grid, np.outer(weight, weight).ravel()
    n = 1024 if n_nodes is None else n_nodes
    shift = np.random.default_rng(0).uniform(size=n_components)
    uniform = (stats.qmc.Sobol(n_components, scramble=False).random(n) + shift) % 1
    half = stats.norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-12))
    # Both signs, and unit covariance: first and second moments are then exact.
    nodes = np.concatenate([half, -half])
    root = np.linalg.cholesky(nodes.T @ nodes / len(nodes))
    return nodes @ np.linalg.inv(root).T, np.full(len(nodes), 1.0 / len(nodes))


kullback_leibler = KullbackLeibler()
squared_difference = SquaredDifference()


def cholesky_stack(P: Matrix) -> Matrix:
    """Lower Cholesky factors of a stack; a singular member gets a small ridge, and a warning."""
    try:
        return np.asarray(np.linalg.cholesky(P))
    except np.linalg.LinAlgError:
        pass
    factors = np.empty_like(P)
    for k, matrix in enumerate(P):
        level = max(float(np.trace(matrix)) / len(matrix), np.finfo(float).tiny)
        ridge = 0.0
        while True:
            try:
                factors[k] = np.linalg.cholesky(matrix + ridge * level * np.eye(len(matrix)))
                break
            except np.linalg.LinAlgError:
                if not np.isfinite(matrix).all():
                    raise
                ridge = 1e-12 if ridge == 0 else 10 * ridge
    warn(
        "A projected covariance is singular: a ridge was added to it. Divergences from it are "
        "meaningless; use shrinkage.",
        RuntimeWarning,
    )
    return factors
