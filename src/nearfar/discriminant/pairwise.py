"""LDA as a weighted sum over pairs of classes, shared by methods with different weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist, squareform

from nearfar.arrays import Matrix
from nearfar.discriminant.checks import check_classes, n_between
from nearfar.solvers.eigen import canonical_rows, descending_eigh, pair_scatter
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, whiten_means

#: Upper limit of the parameter ``power``. Above it, the weights of close classes would overflow.
MOST_POWER = 50
# Lower limit of the distances between classes, as a fraction of the largest distance.
_CLOSEST = 0.01


def solve_weighted_pairs(
    name: str,
    statistics: ClassStatistics,
    n_components: int | None,
    shrinkage: Shrinkage,
    pair_weights: Callable[[Matrix], Matrix],
) -> tuple[Matrix, Matrix]:
    r"""Return the leading eigenvalues and eigenvectors (rows) of a weighted between-class scatter.

    .. math:: \sum_{i<j} q_i q_j\, \omega(d_{ij}) (m_i - m_j)(m_i - m_j)^T

    The coordinates are those in which S_w is the identity. ``pair_weights`` returns :math:`\omega`
    for the matrix of distances (n_classes, n_classes) in these coordinates.
    """
    check_classes(name, statistics.classes)
    # Work in the span of the means, so that n_classes - 1 directions span exactly LDA's subspace.
    T, means = whiten_means(statistics, shrinkage)
    kept = n_between(n_components, name, statistics, T.shape[1])
    priors = statistics.weights / statistics.total_weight
    weights = np.outer(priors, priors) * pair_weights(distances_between(means))
    values, axes = descending_eigh(pair_scatter(means, weights), kept)
    return values, canonical_rows(values, (T @ axes).T)


def distances_between(means: Matrix) -> Matrix:
    """Return the Euclidean distances between class means, of shape (n_classes, n_classes)."""
    return np.asarray(squareform(pdist(means)))


def inverse_power(distances: Matrix, power: float) -> Matrix:
    """Return d^-power, with zeros on the diagonal.

    Distances below 1% of the largest one are raised to 1% of it. Otherwise the term d^(2-power) of
    nearly equal means would dominate the sum.
    """
    largest = distances.max()
    if largest == 0:
        return np.zeros_like(distances)
    weights = np.maximum(distances, _CLOSEST * largest) ** -power
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights)
