"""Divergences between all pairs of projected Gaussians, and their gradients in the projection U.

A family of Gaussians N(m_k, Σ_k) in p dimensions is projected by U (p, q) to N(U'm_k, U'Σ_kU). A
divergence is a function of these small moments. For weights w of the ordered pairs, the gradient of
Σ w_ij D(i||j) is first accumulated *per Gaussian*, in q×q matrices, and then mapped back to U:

    family = GaussianFamily(means, covariances)          # or a function U -> Σ_k U
    projected = family.project(U)                        # Σ_k U, U'Σ_kU and its Cholesky factors
    D = kullback_leibler.values(projected)               # (c, c): D[i, j] = KL(i||j)
    G = kullback_leibler.gradient(projected, weights)    # (p, q)

The values and the gradient together cost c p² q for the products Σ_k U (less if the covariances are
factored) and c p q² + c² q² + c q³ for the rest. No p×p matrix is formed for any pair.
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

#: Function that maps U, of shape (p, q), to the products Σ_k U, of shape (c, p, q).
SigmaDot = Callable[[Matrix], Matrix]

# Maximum number of array elements per block of a computation in blocks.
_MAX_ELEMENTS = 2**22


class GaussianFamily:
    """Gaussians in p dimensions, given by their means and covariances.

    ``covariances`` is an array of shape (c, p, p), or a function that maps U, of shape (p, q), to
    the products Σ_k U, of shape (c, p, q). With a function, covariances of low rank do not need p×p
    matrices.
    """

    def __init__(self, means: ArrayLike, covariances: ArrayLike | SigmaDot) -> None:
        self.means = np.asarray(means, dtype=np.float64)
        # Divergences depend only on differences of means. These lose fewer digits if the means are
        # centered.
        self._centered = self.means - self.means.mean(axis=0)
        self._dense: Matrix | None = None
        if callable(covariances):
            self.dot: SigmaDot = covariances
        else:
            self._dense = np.ascontiguousarray(covariances, dtype=np.float64)
            self.dot = _make_dense_dot(self._dense)

    def project(self, U: Matrix) -> ProjectedGaussians:
        """Return the Gaussians projected by U, of shape (p, q)."""
        return ProjectedGaussians(self._centered @ U, self.dot(U), U, self._centered)

    def compute_traces(self) -> Matrix:
        """Return the traces tr Σ_k as an array of shape (c,)."""
        if self._dense is not None:
            return np.einsum("kii->k", self._dense)
        return sum(
            (np.einsum("kii->k", images[:, block]) for block, images in self._iter_columns()),
            start=np.zeros(len(self.means)),
        )

    def combine(self, by_means: Matrix, by_covariances: Matrix) -> tuple[Matrix, Matrix]:
        """Return Σ a_k m_k m_k' and Σ b_k Σ_k, each of shape (p, p), with centered means m_k.

        ``by_means`` contains the coefficients a_k, ``by_covariances`` the coefficients b_k.
        """
        means = (self._centered.T * by_means) @ self._centered
        if self._dense is not None:
            covariances = np.tensordot(by_covariances, self._dense, axes=1)
        else:
            blocks = [
                np.tensordot(by_covariances, block, axes=1) for _, block in self._iter_columns()
            ]
            covariances = np.hstack(blocks)
        return means, (covariances + covariances.T) / 2

    def _iter_columns(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield slices of columns, each with these columns of all Σ_k as an array (c, p, block)."""
        c, p = self.means.shape
        unit = np.eye(p)
        size = max(1, _MAX_ELEMENTS // max(1, c * p))
        for start in range(0, p, size):
            block = slice(start, min(start + size, p))
            yield block, self.dot(unit[:, block])


def _make_dense_dot(covariances: Matrix) -> SigmaDot:
    c, p, _ = covariances.shape
    stacked = covariances.reshape(c * p, p)
    return lambda U: (stacked @ U).reshape(c, p, U.shape[1])


@dataclass(frozen=True)
class ProjectedGaussians:
    """Gaussians projected to q dimensions by U.

    ``means`` contains the U'm_k, ``images`` the Σ_k U, and ``full_means`` the m_k up to a common
    shift.
    """

    means: Matrix
    images: Matrix
    U: Matrix
    full_means: Matrix

    @property
    def n_components(self) -> int:
        """Number q of dimensions."""
        return int(self.U.shape[1])

    @cached_property
    def covariances(self) -> Matrix:
        """Symmetric projected covariances P_k = U'Σ_kU, of shape (c, q, q)."""
        P = self.U.T @ self.images
        return (P + P.transpose(0, 2, 1)) / 2

    @cached_property
    def factors(self) -> Matrix:
        """Lower Cholesky factors of the projected covariances P_k, of shape (c, q, q)."""
        return cholesky_stack(self.covariances)

    @cached_property
    def inverses(self) -> Matrix:
        """Inverses of the projected covariances P_k, of shape (c, q, q)."""
        roots = np.linalg.inv(self.factors)
        return np.asarray(roots.transpose(0, 2, 1) @ roots)

    @cached_property
    def log_dets(self) -> Matrix:
        """Log-determinants of the projected covariances P_k, of shape (c,)."""
        return 2 * np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(axis=1)

    def iter_differences(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield slices of j, each with the differences U'(m_i - m_j), of shape (block, c, q).

        The first axis of the differences is j, the second is i.
        """
        c, q = self.means.shape
        size = max(1, _MAX_ELEMENTS // max(1, c * q))
        for start in range(0, c, size):
            block = slice(start, min(start + size, c))
            yield block, self.means[None] - self.means[block, None]

    def pull_back(self, by_covariances: Matrix, by_means: Matrix) -> Matrix:
        """Convert derivatives with respect to the projected moments to the gradient (p, q) in U.

        ``by_covariances`` contains the symmetric derivatives in the P_k, ``by_means`` the
        derivatives in the U'm_k.
        """
        c, p, q = self.images.shape
        # Sum 2 Σ_k U P̄_k + m_k m̄_k' over k in blocks, so that no second array of shape (c, p, q)
        # is needed.
        gradient = self.full_means.T @ by_means
        for start in range(0, c, max(1, _MAX_ELEMENTS // (p * q))):
            block = slice(start, min(start + max(1, _MAX_ELEMENTS // (p * q)), c))
            gradient += 2 * np.tensordot(
                self.images[block], by_covariances[block], axes=([0, 2], [0, 1])
            )
        return np.asarray(gradient)


class Divergence(Protocol):
    """Divergence between projected Gaussians, with values for all pairs and a gradient.

    ``invariant`` is True if UB gives the same values as U for every invertible B. If it is False,
    the values are equal only for rotations B, and U must stay orthonormal.
    """

    invariant: bool

    def values(self, projected: ProjectedGaussians) -> Matrix:
        """Return the divergences D[i, j] = D(i||j), of shape (c, c), with a zero diagonal."""

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Return the gradient (p, q) in U of the sum of all weights[i, j] D(i||j)."""


#: Function that maps a matrix of divergences to a number and to a matrix of its derivatives. Both
#: matrices have shape (c, c), and the derivatives are zero on the diagonal.
Average = Callable[[Matrix], tuple[float, Matrix]]


def make_averaged_objective(
    family: GaussianFamily, divergence: Divergence, average: Average
) -> Callable[[Matrix], tuple[float, Matrix]]:
    """Return a function that maps U to the average of the divergences and its gradient."""

    def objective(U: Matrix) -> tuple[float, Matrix]:
        projected = family.project(U)
        value, weights = average(divergence.values(projected))
        return value, divergence.gradient(projected, weights)

    return objective


class KullbackLeibler:
    r"""Kullback-Leibler divergence of Gaussians.

    .. math::
        KL(i||j) = \tfrac12 [\log|P_j| - \log|P_i| + \mathrm{tr}(P_j^{-1} P_i)
        + \delta_{ij}^T P_j^{-1} \delta_{ij} - q], \qquad \delta_{ij} = U^T(m_i - m_j)

    With ``convention="unnormalized"`` the divergence is 2 KL + q, as in equation 2.36 of Tao's
    thesis and most likely in its experiments. The gradients agree up to a factor of two, but under
    a logarithm the minimum q instead of zero leads to another optimum.
    """

    invariant = True

    def __init__(self, convention: str = "exact") -> None:
        if convention not in ("exact", "unnormalized"):
            raise ValueError(f"convention must be 'exact' or 'unnormalized'; got {convention!r}.")
        self.convention = convention

    def values(self, projected: ProjectedGaussians) -> Matrix:
        """Return the divergences D[i, j] = D(i||j), of shape (c, c)."""
        c, q = projected.means.shape
        P, inverses, log_dets = projected.covariances, projected.inverses, projected.log_dets
        # The traces of inv(P_j) P_i.
        doubled = P.reshape(c, -1) @ inverses.reshape(c, -1).T
        doubled += log_dets[None, :] - log_dets[:, None] - q
        for block, difference in projected.iter_differences():
            doubled[:, block] += np.sum((difference @ inverses[block]) * difference, axis=2).T
        np.fill_diagonal(doubled, 0.0)
        np.maximum(doubled, 0.0, out=doubled)  # Rounding can make small values negative.
        if self.convention == "exact":
            return doubled / 2
        doubled += q
        np.fill_diagonal(doubled, 0.0)
        return doubled

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Return the gradient (p, q) in U of the sum of all weights[i, j] D(i||j)."""
        if self.convention == "unnormalized":
            weights = 2 * weights
        return projected.pull_back(*_compute_kl_derivatives(projected, weights))


def _compute_kl_derivatives(
    projected: ProjectedGaussians, weights: Matrix
) -> tuple[Matrix, Matrix]:
    r"""Return the derivatives of Σ w_ij KL(i||j) with respect to the projected moments.

    With :math:`Q_k = \sum_i w_{ik} (P_i + \delta_{ik}\delta_{ik}^T)`,

    .. math::
        \bar P_k = \tfrac12 [ \sum_j w_{kj} P_j^{-1} + (\sum_i w_{ik} - \sum_j w_{kj}) P_k^{-1}
        - P_k^{-1} Q_k P_k^{-1} ], \qquad
        \bar m_k = \sum_j w_{kj} P_j^{-1} \delta_{kj} - \sum_i w_{ik} P_k^{-1} \delta_{ik} .
    """
    c, q = projected.means.shape
    P, inverses = projected.covariances, projected.inverses
    incoming, outgoing = weights.sum(axis=0), weights.sum(axis=1)
    Q = (weights.T @ P.reshape(c, -1)).reshape(c, q, q)
    by_means = np.zeros((c, q))
    for block, difference in projected.iter_differences():
        # The products w_ij δ_ij. The first axis is j.
        weighted = weights.T[block, :, None] * difference
        Q[block] += weighted.transpose(0, 2, 1) @ difference
        pulls = weighted @ inverses[block]
        by_means += pulls.sum(axis=0)
        by_means[block] -= pulls.sum(axis=1)
    by_covariances = (weights @ inverses.reshape(c, -1)).reshape(c, q, q)
    by_covariances += (incoming - outgoing)[:, None, None] * inverses
    by_covariances -= inverses @ Q @ inverses
    return by_covariances / 2, by_means


class SquaredDifference:
    r"""Half the integral of the squared difference of two Gaussian densities.

    .. math::
        D(i||j) = \tfrac12 \int (p_i - p_j)^2 = \tfrac12 [ N(0; 0, 2P_i) + N(0; 0, 2P_j)
        - 2 N(\delta_{ij}; 0, P_i + P_j) ]

    This is the Bregman divergence of the generator x²/2. It has the unit of a density, so it
    changes when U is scaled.
    """

    invariant = False

    def values(self, projected: ProjectedGaussians) -> Matrix:
        """Return the divergences D[i, j] = D(i||j), of shape (c, c)."""
        self_overlaps = self._compute_self_overlaps(projected)
        D = (self_overlaps[:, None] + self_overlaps[None, :]) / 2
        for i, sums in self._iter_overlaps(projected):
            D[i] -= sums[0]
        np.fill_diagonal(D, 0.0)
        return np.maximum(D, 0.0)

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Return the gradient (p, q) in U of the sum of all weights[i, j] D(i||j)."""
        weights = np.where(np.eye(len(weights), dtype=bool), 0.0, weights)
        # The derivative of N(0; 0, 2P) in P is -N/2 inv(P).
        total = weights.sum(axis=0) + weights.sum(axis=1)
        by_covariances = (
            -(total * self._compute_self_overlaps(projected) / 4)[:, None, None]
            * projected.inverses
        )
        by_means = np.zeros_like(projected.means)
        for i, (density, inverses, solved) in self._iter_overlaps(projected):
            # With s = inv(S) δ, the derivatives of N(δ; 0, S) are N/2 (s s' - inv(S)) in S and -N s
            # in δ.
            weight = weights[i] * density
            derivative = solved[:, :, None] * solved[:, None, :] - inverses
            derivative *= (weight / 2)[:, None, None]
            by_covariances[i] -= derivative.sum(axis=0)
            by_covariances -= derivative
            pull = weight[:, None] * solved
            by_means[i] += pull.sum(axis=0)
            by_means -= pull
        return projected.pull_back(by_covariances, by_means)

    @staticmethod
    def _compute_self_overlaps(projected: ProjectedGaussians) -> Matrix:
        """Return the densities N(0; 0, 2P_k), of shape (c,)."""
        q = projected.n_components
        return np.asarray(np.exp(-0.5 * (q * np.log(4 * np.pi) + projected.log_dets)))

    @staticmethod
    def _iter_overlaps(
        projected: ProjectedGaussians,
    ) -> Iterator[tuple[int, tuple[Matrix, Matrix, Matrix]]]:
        """Yield the densities N(δ_ij; 0, S) for each i, with inv(S) and inv(S) δ_ij.

        S is P_i + P_j, and the arrays contain all j.
        """
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
    r"""Bregman divergence of any convex generator, computed by quadrature.

    For a convex function G (``generator``) and :math:`\xi = (G')^{-1}` (``link``), the divergence
    is

    .. math::
        D(i||j) = \int G(\xi(p_j)) - G(\xi(p_i)) - p_i\,(\xi(p_j) - \xi(p_i)) .

    The integral of each of the first two terms is an expectation under the density in this term.
    The integral of the third term is an expectation under :math:`p_i`. Each expectation is a sum
    over fixed nodes of a standard normal distribution. In one or two dimensions these are
    Gauss-Hermite nodes (``n_nodes`` per axis, 40 by default). In more dimensions they are
    quasi-random (Sobol) nodes and their negatives (``n_nodes`` of each, 1024 by default). The
    values therefore have a quadrature error, which is small unless one Gaussian is much narrower
    than the others. In three or more dimensions the values also depend on the basis of the
    subspace, by an amount of the same size.
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
        """Return the divergences D[i, j] = D(i||j), of shape (c, c)."""
        nodes, mass = make_normal_nodes(projected.n_components, self.n_nodes)
        c = len(projected.means)
        D, self_terms = np.empty((c, c)), np.empty(c)
        for i in range(c):
            density, _ = _evaluate_densities(projected, i, nodes)
            links = self.link(density)
            # The integral of G(ξ(p)) is the expectation of G(ξ(p)) / p under p.
            self_terms[i] = mass @ (self.generator(links[i]) / density[i])
            expected = links @ mass
            D[i] = expected[i] - expected
        D += self_terms[None, :] - self_terms[:, None]
        np.fill_diagonal(D, 0.0)
        return D

    def gradient(self, projected: ProjectedGaussians, weights: Matrix) -> Matrix:
        """Return the gradient (p, q) in U of the sum of all weights[i, j] D(i||j).

        This is the exact gradient of the quadrature sums that :meth:`values` returns.
        """
        nodes, mass = make_normal_nodes(projected.n_components, self.n_nodes)
        c, q = projected.means.shape
        off_diagonal = np.where(np.eye(c, dtype=bool), 0.0, weights)
        by_covariances, by_means = np.zeros((c, q, q)), np.zeros((c, q))
        by_log_dets = np.zeros(c)
        for i in range(c):
            density, solved = _evaluate_densities(projected, i, nodes)
            links = self.link(density)
            # Derivatives of ξ(p) in log p.
            slopes = self.link_derivative(density) * density

            # Terms that depend on p_i only: the expectation of G(ξ)/p has the weight Σ_k w_ki - Σ_j
            # w_ij, and the expectation of ξ has the weight Σ_j w_ij.
            outgoing = off_diagonal[i].sum()
            level = slopes[i] - self.generator(links[i]) / density[i]
            by_log_dets[i] -= (off_diagonal[:, i].sum() - outgoing) * (mass @ level) / 2
            by_log_dets[i] -= outgoing * (mass @ slopes[i]) / 2
            # In the term -E_i[ξ(p_j)], log p_j depends on the moments of p_j and on the nodes m_i +
            # C_i z.
            coefficients = -off_diagonal[i][:, None] * slopes * mass
            weighted = coefficients[:, :, None] * solved
            by_means += weighted.sum(axis=1)
            by_means[i] -= weighted.sum(axis=(0, 1))
            by_covariances += (weighted.transpose(0, 2, 1) @ solved) / 2
            by_log_dets -= coefficients.sum(axis=1) / 2
            # Derivative in the Cholesky factor C_i.
            by_factor = -(weighted.sum(axis=0).T @ nodes)
            by_covariances[i] += _differentiate_through_cholesky(projected.factors[i], by_factor)
        by_covariances += by_log_dets[:, None, None] * projected.inverses
        return projected.pull_back(by_covariances, by_means)


def _evaluate_densities(
    projected: ProjectedGaussians, i: int, nodes: Matrix
) -> tuple[Matrix, Matrix]:
    """Return the densities p_j(x) at the nodes x = m_i + C_i z, and inv(P_j)(x - m_j).

    The shapes are (c, n) and (c, n, q).
    """
    q = projected.n_components
    constants = -0.5 * (q * np.log(2 * np.pi) + projected.log_dets)
    points = projected.means[i] + nodes @ projected.factors[i].T
    difference = points[None] - projected.means[:, None]
    solved = difference @ projected.inverses
    logs = constants[:, None] - 0.5 * np.sum(difference * solved, axis=2)
    return np.exp(np.maximum(logs, -700.0)), solved


def _differentiate_through_cholesky(factor: Matrix, by_factor: Matrix) -> Matrix:
    """Return the symmetric derivative in P = CC' from the derivative in the Cholesky factor C."""
    inner = np.tril(factor.T @ by_factor)
    inner[np.diag_indices(len(inner))] /= 2
    root = np.linalg.inv(factor)
    outer = root.T @ inner @ root
    return np.asarray((outer + outer.T) / 2)


def make_normal_nodes(n_components: int, n_nodes: int | None = None) -> tuple[Matrix, Matrix]:
    """Return nodes and weights of a quadrature for the standard normal density.

    The shapes are (n, q) and (n,).
    """
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
    # The first two moments are exact, because each node occurs with both signs and the covariance
    # is scaled to the identity.
    nodes = np.concatenate([half, -half])
    root = np.linalg.cholesky(nodes.T @ nodes / len(nodes))
    return nodes @ np.linalg.inv(root).T, np.full(len(nodes), 1.0 / len(nodes))


kullback_leibler = KullbackLeibler()
squared_difference = SquaredDifference()


def cholesky_stack(P: Matrix) -> Matrix:
    """Return lower Cholesky factors of a stack of matrices, of shape (c, q, q).

    If a matrix is singular, a small ridge is added and a warning is issued.
    """
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
        "A projected covariance is singular, so a ridge was added to it. Divergences that involve "
        "this covariance are meaningless. Use shrinkage.",
        RuntimeWarning,
    )
    return factors
