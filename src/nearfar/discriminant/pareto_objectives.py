"""Objectives of Pareto discriminant analysis: divergences of pairs of classes and their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.arrays import Matrix
from nearfar.discriminant.searching import subspace_components
from nearfar.notices import warn
from nearfar.solvers.descent import Objective
from nearfar.solvers.gaussian_divergences import (
    GaussianFamily,
    SigmaDot,
    averaged,
    kullback_leibler,
)
from nearfar.summaries.class_gaussians import (
    compute_class_covariances,
    compute_divisors,
    find_constant_classes,
    find_singular_covariance,
    is_thin,
    make_covariance_product,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import find_leading_axes, find_total_whitener

Pairing = Literal["one_vs_one", "one_vs_all"]

#: Lower limit of divergences when weights are computed, as a fraction of the largest divergence.
LEAST_SHARE = 1e-6
# n_principal="auto" keeps all axes if there are at least _ROWS_PER_FEATURE rows per feature.
# Otherwise it keeps one axis per _ROWS_PER_AXIS rows, and at least _AXES_PER_COMPONENT axes per
# component.
_ROWS_PER_FEATURE, _ROWS_PER_AXIS, _AXES_PER_COMPONENT = 3, 10, 3
# If one weight is above this, the other objectives have no effect, and a warning is issued.
_ALL_THE_WEIGHT = 0.999
# Eigenvalues below this count as zero, in coordinates of unit total variance.
_SINGULAR = 1e-10


@dataclass(frozen=True)
class ClassObjectives:
    """Class Gaussians and the pairs of them that are compared.

    In the coordinates xT of the ``basis`` T, the total covariance is the identity, and ``image``
    holds the statistics. ``means`` and ``dot`` are the means and covariances of the Gaussians in
    these coordinates. With one-vs-all pairing, the classes are followed by their complements.
    ``first`` and ``second`` are the members of each pair. ``ridge`` is added to the diagonal of
    the covariances.
    """

    statistics: ClassStatistics
    basis: Matrix
    image: ClassStatistics
    means: Matrix
    dot: SigmaDot
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    ridge: float

    @cached_property
    def family(self) -> GaussianFamily:
        """Gaussians, with the ridge added to their covariances."""
        return GaussianFamily(self.means, lambda U: self.dot(U) + self.ridge * U)

    @property
    def by_pairs(self) -> bool:
        """True for pairs of classes, False for each class against the rest."""
        return len(self.means) == self.statistics.n_classes

    def divergences(self, U: Matrix) -> Matrix:
        """Return J of each pair after projection by U."""
        return self.of_pairs(kullback_leibler.values(self.family.project(U)))

    def of_pairs(self, D: Matrix) -> Matrix:
        """Return J of each pair: twice the sum of both Kullback-Leibler divergences."""
        return np.asarray(2 * (D[self.first, self.second] + D[self.second, self.first]))

    def table(self, values: Matrix) -> Matrix:
        """Return the values of the pairs as a symmetric matrix (c, c), or a vector (c,)."""
        if not self.by_pairs:
            return values.copy()
        shown = np.zeros((self.statistics.n_classes,) * 2)
        shown[self.first, self.second] = shown[self.second, self.first] = values
        return shown

    def vector(self, given: Any, name: str) -> Matrix:
        """Return one value per pair from a user's number or array."""
        values = np.asarray(given, dtype=np.float64)
        c = self.statistics.n_classes
        wanted = (c, c) if self.by_pairs else (c,)
        if values.ndim and values.shape != wanted:
            raise ValueError(f"{name} must have shape {wanted}, but has {values.shape}.")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} contains NaN or infinity. Pass finite numbers.")
        if not values.ndim:
            return np.full(len(self.first), float(values))
        if values.ndim == 2:
            if not np.allclose(values, values.T):
                raise ValueError(
                    f"{name} must be symmetric, because pairs of classes are not ordered."
                )
            return values[self.first, self.second]
        return values

    def components(self, U: Matrix) -> Matrix:
        """Return rows (q, n_features) that span the subspace U."""
        within = U.T @ self.image.within_dot(U) / self.image.total_weight
        within += max(self.ridge, _SINGULAR) * np.eye(U.shape[1])
        root = linalg.cholesky((within + within.T) / 2, lower=True)
        white = linalg.solve_triangular(root, (self.basis @ U).T, lower=True).T
        return subspace_components(self.statistics, white, np.eye(U.shape[1]))


def class_objectives(
    statistics: ClassStatistics,
    pairing: Pairing,
    ridge: float,
    n_principal: int | None = None,
    *,
    at_most: bool = False,
    shrinkage: float = 0.0,
) -> ClassObjectives:
    """Return the class Gaussians in coordinates of unit total covariance, with divisors n_i - 1.

    ``n_principal`` is the number of leading principal axes that are kept. If there are fewer, it
    raises, or with ``at_most`` keeps all. ``shrinkage`` is the fraction of the pooled covariance in
    each covariance.
    """
    if n_principal is None:
        T = find_total_whitener(statistics)
    else:
        axes = find_leading_axes(statistics, n_principal, truncate=at_most)
        T = axes @ find_total_whitener(statistics.project(axes))
    image = statistics.project(T)
    ddof = image.weights - compute_divisors(image.weights, image.counts)
    # Weights of the class covariances in the pooled covariance. They sum to 1, so that equal
    # covariances are not changed.
    shares = np.where(find_constant_classes(image), 0.0, image.weights - ddof)
    shares /= max(float(shares.sum()), np.finfo(float).tiny)

    def shrunk(products: Matrix, of_classes: Matrix) -> Matrix:
        if shrinkage == 0:
            return products
        pooled = np.tensordot(shares, of_classes, axes=1)
        return np.asarray((1 - shrinkage) * products + shrinkage * pooled)

    own: SigmaDot
    if is_thin(image):
        own = make_covariance_product(image, ddof=ddof)
    else:
        covariances = compute_class_covariances(image, ddof=ddof)
        own = GaussianFamily(image.means, covariances).dot
    if ridge == 0:
        if is_thin(image):  # These covariances are regular only by the matrix that is mixed in.
            suspects = shrinkage * image.within_scatter()[None] / image.total_weight
        else:
            suspects = shrunk(covariances, covariances)
        if (singular := find_singular_covariance(suspects, _SINGULAR)) is not None:
            raise ValueError(
                f"The covariance of class {statistics.classes.tolist()[singular]!r} is singular, "
                "so the divergence from it is infinite. Use a ridge above 0."
            )
    # Subtract the common mean, so that an offset of the data does not cause cancellation.
    means = image.between_factor() / np.sqrt(image.weights)[:, None]
    c = image.n_classes
    first, second = np.triu_indices(c, 1)
    if pairing == "one_vs_all":
        means, with_rests = against_rest(image, means)
        first, second = np.arange(c), np.arange(c) + c

    def dot(U: Matrix) -> Matrix:
        products = own(U)
        return shrunk(products if pairing == "one_vs_one" else with_rests(U, products), products)

    return ClassObjectives(statistics, T, image, means, dot, first, second, ridge)


def n_axes_for(statistics: ClassStatistics, n_components: int | None) -> int | None:
    """Return the number of principal axes for n_principal="auto". None means all."""
    n, p = int(statistics.counts.sum()), statistics.n_features
    q = n_components or statistics.n_classes - 1
    axes = max(n // _ROWS_PER_AXIS, _AXES_PER_COMPONENT * q)
    return None if n >= _ROWS_PER_FEATURE * p or axes >= min(n - 1, p) else axes


def against_rest(
    image: ClassStatistics, means: Matrix
) -> tuple[Matrix, Callable[[Matrix, Matrix], Matrix]]:
    r"""Return the means and covariances of the classes and of their complements.

    The complement of a class is one Gaussian of all other classes. The covariances are a function
    of U and of the products of the class covariances with U. The complements are computed by
    subtraction from the total: with class scatter :math:`W_i` and the total covariance :math:`I`,

    .. math::
        m_i' = -\frac{n_i}{n - n_i} m_i , \qquad
        (n - n_i - 1)\, \Sigma_i' = n I - W_i - \frac{n_i (n - n_i)}{n} \delta \delta^T , \qquad
        \delta = m_i - m_i' .
    """
    n, weights = image.total_weight, image.weights
    rest = n - weights
    rest_means = -(weights / rest)[:, None] * means
    gaps = np.sqrt(weights * rest / n)[:, None] * (means - rest_means)
    others_count = image.counts.sum() - image.counts
    alone = others_count == 1  # The complement has a single row.
    rest_divisors = np.where(alone, rest, compute_divisors(rest, others_count))
    scatter_factors = np.where(
        find_constant_classes(image), 0.0, compute_divisors(weights, image.counts)
    )

    def both(U: Matrix, own: Matrix) -> Matrix:
        others = n * U - scatter_factors[:, None, None] * own
        others -= gaps[:, :, None] * (gaps @ U)[:, None, :]
        others /= rest_divisors[:, None, None]
        if alone.any():
            others[alone] = image.within_dot(U) / n
        return np.concatenate([own, others])

    return np.concatenate([means, rest_means]), both


def inverse_power_weights(divergences: Matrix, power: float) -> Matrix:
    """Return J^-power divided by its sum. J is at least ``LEAST_SHARE`` times the largest J."""
    largest = divergences.max()
    if largest == 0:
        return np.full(len(divergences), 1 / len(divergences))
    shares = np.maximum(divergences / largest, LEAST_SHARE)
    weights = (shares.min() / shares) ** power  # The largest is 1, so no power overflows.
    return np.asarray(weights / weights.sum())


def warn_of_one_weight(weights: Matrix) -> None:
    """Warn if one weight is nearly the sum of all weights."""
    if len(weights) > 1 and weights.max() > _ALL_THE_WEIGHT:
        warn(
            f"One of {len(weights)} objectives has {weights.max():.2%} of the weight. The others "
            "have almost no effect, and classes may overlap. Use weights='adaptive' or 'uniform', "
            "or a smaller weight_power.",
            UserWarning,
        )


class Scalarized:
    """Combination of all divergences J: a weighted sum, or a squared distance to targets.

    Without targets, it is the weighted sum, which is maximized. With targets, it is the weighted
    squared distance, which is minimized. The attribute ``weighted_sum`` is the weighted sum at the
    last point evaluated.
    """

    def __init__(self, weights: Matrix, targets: Matrix | None) -> None:
        self.weights, self.targets = weights, targets
        self.weighted_sum = np.nan

    @property
    def sign(self) -> float:
        """1 if the value is to be maximized, -1 if it is to be minimized."""
        return 1.0 if self.targets is None else -1.0

    def value(self, J: Matrix) -> float:
        """Return the combined value."""
        if self.targets is None:
            return float(self.weights @ J)
        return float(self.weights @ (J - self.targets) ** 2)

    def slopes(self, J: Matrix) -> Matrix:
        """Return the derivatives with respect to J."""
        return self.weights if self.targets is None else 2 * self.weights * (J - self.targets)

    def weights_at(self, J: Matrix) -> Matrix:
        """Return the weights of the divergences at J."""
        return self.weights

    def objective(self, gaussians: ClassObjectives) -> Objective:
        """Return the combined value as a function of U, with its gradient."""

        def average(D: Matrix) -> tuple[float, Matrix]:
            J = gaussians.of_pairs(D)
            self.weighted_sum = float(self.weights_at(J) @ J)
            by_divergences = np.zeros(D.shape)
            by_divergences[gaussians.first, gaussians.second] = 2 * self.slopes(J)
            # J is twice the sum of the divergences in both directions, hence the factor 2.
            return self.value(J), by_divergences + by_divergences.T

        return averaged(gaussians.family, kullback_leibler, average)


class PowerMean(Scalarized):
    r"""Power mean of all divergences (plus a constant), with exponent 1 - s.

    .. math::
        M = \Bigl( \frac1K \sum_k J_k^{1-s} \Bigr)^{1/(1-s)} , \qquad
        \partial M / \partial J_k = \frac1K (M / J_k)^s .

    Its gradient is that of a weighted sum with the weights :math:`J^{-s}` of the current point. It
    is the arithmetic mean for s = 0, the geometric mean for s = 1 and the harmonic mean for s = 2.
    For large s it tends to the minimum.
    """

    def __init__(self, power: float, n_pairs: int, constant: float = 0.0) -> None:
        super().__init__(np.full(n_pairs, 1 / n_pairs), None)
        self.power, self.constant = power, constant

    def value(self, J: Matrix) -> float:
        """Return the power mean."""
        shown = self._shown(J)
        least, s = float(shown.min()), self.power
        if s == 1:
            return float(np.exp(np.mean(np.log(shown))))
        return float(least * np.mean((least / shown) ** (s - 1)) ** (1 / (1 - s)))

    def slopes(self, J: Matrix) -> Matrix:
        """Return the derivatives with respect to J."""
        return np.asarray((self.value(J) / self._shown(J)) ** self.power / len(J))

    def weights_at(self, J: Matrix) -> Matrix:
        """Return the weights of the divergences at J."""
        return inverse_power_weights(J + self.constant, self.power)

    def _shown(self, J: Matrix) -> Matrix:
        shown = J + self.constant
        return np.maximum(shown, max(LEAST_SHARE * float(shown.max()), np.finfo(float).tiny))
