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
from nearfar.discriminant.searching import compute_components
from nearfar.notices import warn
from nearfar.solvers.descent import Objective
from nearfar.solvers.gaussian_divergences import (
    GaussianFamily,
    SigmaDot,
    kullback_leibler,
    make_averaged_objective,
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

#: Lower limit of the divergences from which weights are computed, as a fraction of the largest
#: divergence.
MIN_DIVERGENCE_FRACTION = 1e-6
# With at least this many rows per feature, n_pca_components="auto" keeps all principal axes.
_ROWS_PER_FEATURE = 3
# If n_pca_components="auto" does not keep all principal axes, it keeps one axis for every 10 rows.
_ROWS_PER_AXIS = 10
# n_pca_components="auto" keeps at least this many principal axes per component of the output.
_AXES_PER_COMPONENT = 3
# A warning is issued if a single weight exceeds this fraction of the sum of all weights, because
# the other objectives then have no effect.
_DOMINANT_WEIGHT = 0.999
# Eigenvalues below this limit are treated as zero. They are computed after scaling to unit total
# variance.
_MIN_EIGENVALUE = 1e-10


@dataclass(frozen=True)
class ClassObjectives:
    """Gaussian model of each class, and the pairs of Gaussians that are compared.

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
        """Gaussians of the classes, with the ridge added to their covariances."""
        return GaussianFamily(self.means, lambda U: self.dot(U) + self.ridge * U)

    @property
    def is_pairwise(self) -> bool:
        """Whether pairs of classes are compared, instead of each class with all other classes."""
        return len(self.means) == self.statistics.n_classes

    def compute_divergences(self, U: Matrix) -> Matrix:
        """Return the divergence J of each pair after projection onto U."""
        return self.sum_directions(kullback_leibler.values(self.family.project(U)))

    def sum_directions(self, D: Matrix) -> Matrix:
        """Return the divergence J of each pair, given the matrix D of Kullback-Leibler divergences.

        J is twice the sum of the divergences in both directions.
        """
        return np.asarray(2 * (D[self.first, self.second] + D[self.second, self.first]))

    def arrange_by_class(self, values: Matrix) -> Matrix:
        """Return the values of the pairs as a symmetric matrix (c, c), or as a vector (c,)."""
        if not self.is_pairwise:
            return values.copy()
        matrix = np.zeros((self.statistics.n_classes,) * 2)
        matrix[self.first, self.second] = matrix[self.second, self.first] = values
        return matrix

    def read_pair_values(self, user_values: Any, name: str) -> Matrix:
        """Convert a number or an array passed by the user to one value per pair."""
        values = np.asarray(user_values, dtype=np.float64)
        c = self.statistics.n_classes
        expected_shape = (c, c) if self.is_pairwise else (c,)
        if values.ndim and values.shape != expected_shape:
            raise ValueError(f"{name} must have shape {expected_shape}, but has {values.shape}.")
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

    def make_components(self, U: Matrix) -> Matrix:
        """Return a matrix (q, n_features) whose rows span the subspace U."""
        within = U.T @ self.image.within_dot(U) / self.image.total_weight
        within += max(self.ridge, _MIN_EIGENVALUE) * np.eye(U.shape[1])
        root = linalg.cholesky((within + within.T) / 2, lower=True)
        whitened_basis = linalg.solve_triangular(root, (self.basis @ U).T, lower=True).T
        return compute_components(self.statistics, whitened_basis, np.eye(U.shape[1]))


def make_class_objectives(
    statistics: ClassStatistics,
    pairing: Pairing,
    ridge: float,
    n_pca_components: int | None = None,
    *,
    allow_fewer: bool = False,
    shrinkage: float = 0.0,
) -> ClassObjectives:
    """Return the class Gaussians in coordinates in which the total covariance is the identity.

    Class covariances have the divisor n_i - 1.

    ``n_pca_components`` is the number of leading principal axes that are kept. If there are fewer
    axes, the function raises, or keeps all of them if ``allow_fewer`` is True. ``shrinkage`` is the
    fraction of the pooled covariance in each covariance.
    """
    if n_pca_components is None:
        T = find_total_whitener(statistics)
    else:
        axes = find_leading_axes(statistics, n_pca_components, truncate=allow_fewer)
        T = axes @ find_total_whitener(statistics.project(axes))
    image = statistics.project(T)
    ddof = image.weights - compute_divisors(image.weights, image.counts)
    # Weights of the class covariances in the pooled covariance. They sum to 1, so that equal
    # covariances are not changed.
    fractions = np.where(find_constant_classes(image), 0.0, image.weights - ddof)
    fractions /= max(float(fractions.sum()), np.finfo(float).tiny)

    def shrink(products: Matrix, class_products: Matrix) -> Matrix:
        if shrinkage == 0:
            return products
        pooled = np.tensordot(fractions, class_products, axes=1)
        return np.asarray((1 - shrinkage) * products + shrinkage * pooled)

    class_dot: SigmaDot
    if is_thin(image):
        class_dot = make_covariance_product(image, ddof=ddof)
    else:
        covariances = compute_class_covariances(image, ddof=ddof)
        class_dot = GaussianFamily(image.means, covariances).dot
    if ridge == 0:
        if is_thin(image):  # With few rows, only the pooled covariance is nonsingular.
            checked_covariances = shrinkage * image.within_scatter()[None] / image.total_weight
        else:
            checked_covariances = shrink(covariances, covariances)
        if (singular := find_singular_covariance(checked_covariances, _MIN_EIGENVALUE)) is not None:
            raise ValueError(
                f"The covariance of class {statistics.classes.tolist()[singular]!r} is singular, "
                "so the divergence from it is infinite. Use a ridge above 0."
            )
    # Subtract the common mean, so that an offset of the data does not cause cancellation.
    means = image.between_factor() / np.sqrt(image.weights)[:, None]
    c = image.n_classes
    first, second = np.triu_indices(c, 1)
    if pairing == "one_vs_all":
        means, compute_with_complements = add_complements(image, means)
        first, second = np.arange(c), np.arange(c) + c

    def dot(U: Matrix) -> Matrix:
        products = class_dot(U)
        return shrink(
            products if pairing == "one_vs_one" else compute_with_complements(U, products), products
        )

    return ClassObjectives(statistics, T, image, means, dot, first, second, ridge)


def choose_n_axes(statistics: ClassStatistics, n_components: int | None) -> int | None:
    """Return the number of principal axes for n_pca_components="auto", or None for all axes."""
    n, p = int(statistics.counts.sum()), statistics.n_features
    q = n_components or statistics.n_classes - 1
    axes = max(n // _ROWS_PER_AXIS, _AXES_PER_COMPONENT * q)
    return None if n >= _ROWS_PER_FEATURE * p or axes >= min(n - 1, p) else axes


def add_complements(
    image: ClassStatistics, means: Matrix
) -> tuple[Matrix, Callable[[Matrix, Matrix], Matrix]]:
    r"""Return the means and covariances of each class and of its complement.

    The complement of a class is one Gaussian of all other classes. The covariances are a function
    of U and of the products of the class covariances with U. The complements are computed by
    subtraction from the total: with class scatter :math:`W_i` and the total covariance :math:`I`,

    .. math::
        m_i' = -\frac{n_i}{n - n_i} m_i , \qquad
        (n - n_i - 1)\, \Sigma_i' = n I - W_i - \frac{n_i (n - n_i)}{n} \delta \delta^T , \qquad
        \delta = m_i - m_i' .
    """
    n, weights = image.total_weight, image.weights
    complement_weights = n - weights
    complement_means = -(weights / complement_weights)[:, None] * means
    gaps = np.sqrt(weights * complement_weights / n)[:, None] * (means - complement_means)
    complement_counts = image.counts.sum() - image.counts
    has_single_row = complement_counts == 1
    complement_divisors = np.where(
        has_single_row, complement_weights, compute_divisors(complement_weights, complement_counts)
    )
    scatter_factors = np.where(
        find_constant_classes(image), 0.0, compute_divisors(weights, image.counts)
    )

    def compute_products(U: Matrix, class_products: Matrix) -> Matrix:
        complement_products = n * U - scatter_factors[:, None, None] * class_products
        complement_products -= gaps[:, :, None] * (gaps @ U)[:, None, :]
        complement_products /= complement_divisors[:, None, None]
        if has_single_row.any():
            complement_products[has_single_row] = image.within_dot(U) / n
        return np.concatenate([class_products, complement_products])

    return np.concatenate([means, complement_means]), compute_products


def compute_inverse_power_weights(divergences: Matrix, power: float) -> Matrix:
    """Return weights proportional to J^-power, with sum 1, for divergences J.

    J is limited from below by a fraction of its maximum.
    """
    largest = divergences.max()
    if largest == 0:
        return np.full(len(divergences), 1 / len(divergences))
    fractions = np.maximum(divergences / largest, MIN_DIVERGENCE_FRACTION)
    # The largest ratio is 1, so that powers do not overflow.
    weights = (fractions.min() / fractions) ** power
    return np.asarray(weights / weights.sum())


def warn_about_dominant_weight(weights: Matrix) -> None:
    """Warn if one weight is almost as large as the sum of all weights."""
    if len(weights) > 1 and weights.max() > _DOMINANT_WEIGHT:
        warn(
            f"One of {len(weights)} objectives has {weights.max():.2%} of the weight. The others "
            "have almost no effect, and classes may overlap. Use weights='adaptive' or 'uniform', "
            "or a smaller weight_power.",
            UserWarning,
        )


class Scalarization:
    """Combination of all divergences J: their weighted sum, or their squared distance to targets.

    Without targets, it is the weighted sum, which is maximized. With targets, it is the weighted
    squared distance, which is minimized. The attribute ``weighted_sum`` is the weighted sum at the
    last point evaluated.
    """

    def __init__(self, weights: Matrix, targets: Matrix | None) -> None:
        self.weights, self.targets = weights, targets
        self.weighted_sum = np.nan

    @property
    def sign(self) -> float:
        """Direction of the optimization: 1 to maximize the value, -1 to minimize it."""
        return 1.0 if self.targets is None else -1.0

    def compute_value(self, J: Matrix) -> float:
        """Return the combined value of the divergences J."""
        if self.targets is None:
            return float(self.weights @ J)
        return float(self.weights @ (J - self.targets) ** 2)

    def compute_derivatives(self, J: Matrix) -> Matrix:
        """Return the derivatives with respect to J."""
        return self.weights if self.targets is None else 2 * self.weights * (J - self.targets)

    def compute_weights(self, J: Matrix) -> Matrix:
        """Return the weights of the divergences, given their values J."""
        return self.weights

    def make_objective(self, gaussians: ClassObjectives) -> Objective:
        """Return a function that computes the combined value and its gradient for a subspace U."""

        def compute_average(D: Matrix) -> tuple[float, Matrix]:
            J = gaussians.sum_directions(D)
            self.weighted_sum = float(self.compute_weights(J) @ J)
            by_divergences = np.zeros(D.shape)
            by_divergences[gaussians.first, gaussians.second] = 2 * self.compute_derivatives(J)
            # J is twice the sum of the divergences in both directions, hence the factor 2.
            return self.compute_value(J), by_divergences + by_divergences.T

        return make_averaged_objective(gaussians.family, kullback_leibler, compute_average)


class PowerMean(Scalarization):
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

    def compute_value(self, J: Matrix) -> float:
        """Return the power mean."""
        limited = self._limit_divergences(J)
        min_divergence, s = float(limited.min()), self.power
        if s == 1:
            return float(np.exp(np.mean(np.log(limited))))
        return float(
            min_divergence * np.mean((min_divergence / limited) ** (s - 1)) ** (1 / (1 - s))
        )

    def compute_derivatives(self, J: Matrix) -> Matrix:
        """Return the derivatives with respect to J."""
        return np.asarray(
            (self.compute_value(J) / self._limit_divergences(J)) ** self.power / len(J)
        )

    def compute_weights(self, J: Matrix) -> Matrix:
        """Return the weights of the divergences, given their values J."""
        return compute_inverse_power_weights(J + self.constant, self.power)

    def _limit_divergences(self, J: Matrix) -> Matrix:
        limited = J + self.constant
        return np.maximum(
            limited, max(MIN_DIVERGENCE_FRACTION * float(limited.max()), np.finfo(float).tiny)
        )
