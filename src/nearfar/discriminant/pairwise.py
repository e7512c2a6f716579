"""LDA as a weighted sum over pairs of classes, for the methods that choose the weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist, squareform

from nearfar.arrays import Matrix
from nearfar.discriminant.checks import check_classes, n_between
from nearfar.solvers.eigen import canonical_rows, descending_eigh, pair_scatter
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, whitened_means

#: Of a larger power the weights of close classes would overflow.
MOST_POWER = 50
# Distances between classes below this share of the largest count as that.
_CLOSEST = 0.01


def solve_weighted_pairs(
    name: str,
    statistics: ClassStatistics,
    n_components: int | None,
    shrinkage: Shrinkage,
    pair_weights: Callable[[Matrix], Matrix],
) -> tuple[Matrix, Matrix]:
    r"""Leading eigenvalues and eigenvectors (rows) of a weighted between scatter.

    .. math:: \sum_{i<j} q_i q_j\, \omega(d_{ij}) (m_i - m_j)(m_i - m_j)^T

    in coordinates where S_w is the identity; ``pair_weights`` gives :math:`\omega` for the
    distances (n_classes, n_classes) there.
    """
    check_classes(name, statistics.classes)
    # In the span of the means, so that all n_classes - 1 directions are exactly LDA's span.
    T, means = whitened_means(statistics, shrinkage)
    kept = n_between(n_components, name, statistics, T.shape[1])
    priors = statistics.weights / statistics.total_weight
    weights = np.outer(priors, priors) * pair_weights(distances_between(means))
    values, axes = descending_eigh(pair_scatter(means, weights), kept)
    return values, canonical_rows(values, (T @ axes).T)


def distances_between(means: Matrix) -> Matrix:
    """Euclidean distances of class means, (n_classes, n_classes)."""
    return np.asarray(squareform(pdist(means)))


def inverse_power(distances: Matrix, power: float) -> Matrix:
    """d^-power, zero on the diagonal.

    Distances below a hundredth of the largest are lifted to it: of equal means, d^(2-power) would
    be the only thing left.
    """
    largest = distances.max()
    if largest == 0:
        return np.zeros_like(distances)
    weights = np.maximum(distances, _CLOSEST * largest) ** -power
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights)
