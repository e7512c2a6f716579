"""LDA as a weighted sum over pairs of classes, shared by methods with different weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist, squareform

from nearfar.arrays import Matrix
from nearfar.discriminant.checks import check_classes, choose_n_mean_directions
from nearfar.solvers.eigen import canonical_rows, compute_pair_scatter, descending_eigh
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, whiten_means

#: Maximum value of the parameter ``power``. With larger powers, the weights of close classes would
#: overflow.
MAX_POWER = 50
# Lower limit of the distances between classes, as a fraction of the largest distance.
_MIN_RELATIVE_DISTANCE = 0.01


def solve_weighted_pairs(
    name: str,
    statistics: ClassStatistics,
    n_components: int | None,
    shrinkage: Shrinkage,
    compute_weights: Callable[[Matrix], Matrix],
) -> tuple[Matrix, Matrix]:
    r"""Return the leading eigenvalues and eigenvectors (rows) of a weighted between-class scatter.

    .. math:: \sum_{i<j} q_i q_j\, \omega(d_{ij}) (m_i - m_j)(m_i - m_j)^T

    The coordinates are those in which S_w is the identity. ``compute_weights`` returns
    :math:`\omega` for the matrix of distances (n_classes, n_classes) in these coordinates.
    """
    check_classes(name, statistics.classes)
    # Work in the span of the class means, so that n_classes - 1 directions span exactly the LDA
    # subspace.
    T, means = whiten_means(statistics, shrinkage)
    n_directions = choose_n_mean_directions(n_components, name, statistics, T.shape[1])
    priors = statistics.weights / statistics.total_weight
    weights = np.outer(priors, priors) * compute_weights(compute_class_distances(means))
    values, axes = descending_eigh(compute_pair_scatter(means, weights), n_directions)
    return values, canonical_rows(values, (T @ axes).T)


def compute_class_distances(means: Matrix) -> Matrix:
    """Return the Euclidean distances between class means, of shape (n_classes, n_classes)."""
    return np.asarray(squareform(pdist(means)))


def compute_distance_weights(distances: Matrix, power: float) -> Matrix:
    """Return the weights d^-power of pairs of classes at distance d, with zeros on the diagonal.

    Distances below 1% of the largest distance are raised to this limit. Otherwise the term
    d^(2-power) of nearly equal means would dominate the sum.
    """
    largest = distances.max()
    if largest == 0:
        return np.zeros_like(distances)
    weights = np.maximum(distances, _MIN_RELATIVE_DISTANCE * largest) ** -power
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights)
