"""LDA with pairs of classes weighted by their approximate accuracy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import erf

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.pairwise import solve_weighted_pairs
from nearfar.parameters import integer, none, one_of, real
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class APAC(StatisticsLearner):
    r"""Approximate pairwise accuracy criterion: LDA with larger weights for pairs of close classes.

    LDA maximizes a sum over pairs of classes, :math:`S_b = \sum_{i<j} q_i q_j D_{ij}`, where
    :math:`D_{ij} = (m_i - m_j)(m_i - m_j)^T`, with class means :math:`m_i` and class frequencies
    :math:`q_i`. The most distant pairs have the largest terms, although they are easy to separate.
    APAC weights each pair by its accuracy instead,

    .. math::
        \max_{U^T S_w U = I} \mathrm{tr}\left( U^T \sum_{i<j} q_i q_j\, \omega(d_{ij}) D_{ij}\, U
        \right), \qquad \omega(d) = \frac{1}{2 d^2} \mathrm{erf}\left(\frac{d}{2\sqrt2}\right) ,

    where :math:`d_{ij}` is the Mahalanobis distance of the means under :math:`S_w`. Then
    :math:`\omega(d) d^2` is one half minus the Bayes error of two Gaussians at this distance.

    Use it instead of LDA if you keep fewer than ``n_classes - 1`` directions and some classes are
    far from the others. With all ``n_classes - 1`` directions it equals LDA, since the span does
    not depend on the weights. The weights use only class means, so they are wrong for classes of
    different shapes. As the criterion is a sum, it may still merge one close pair to separate many
    others.

    Cost: one pass of O(n p²), then O(p³ + c² p) for c classes, or O(n² p) with fewer rows than
    features.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None uses the maximum, which is the number of directions that the
        class means span. This is at most ``n_classes - 1``.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances: see :class:`LDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix, scaled so that the within-class covariance of the output is the
        identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Contribution of each component to the criterion.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    LDA, WeightedLDA, FractionalStepLDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2.3,
       equation 2.17.
    .. [2] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011, section 4.4.3. It prints
       :math:`1/(2d)`; the correct factor is :math:`1/(2d^2)`.

    Examples
    --------
    Four classes in a row and one far away. LDA finds only the direction of the far class:

    >>> import numpy as np
    >>> from nearfar import APAC, LDA
    >>> means = np.array([[0, -4.5], [0, -1.5], [0, 1.5], [0, 4.5], [30, 0]])
    >>> y = np.repeat(np.arange(5), 100)
    >>> X = np.random.default_rng(0).normal(size=(500, 2)) + means[y]
    >>> abs(LDA(1).fit(X, y).components_).round(1)
    array([[1., 0.]])
    >>> abs(APAC(1).fit(X, y).components_).round(1)
    array([[0., 1.]])
    """

    learner_tags = LearnerTags(reads="statistics")
    settings = ({"shrinkage": 0.1},)
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    def __init__(self, n_components: int | None = None, *, shrinkage: Shrinkage = "auto") -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the leading eigenvectors of the weighted between-class scatter."""
        self.classes_ = statistics.classes
        self.eigenvalues_, components = solve_weighted_pairs(
            "APAC", statistics, self.n_components, self.shrinkage, compute_accuracy_weights
        )
        return components


def compute_accuracy_weights(distances: Matrix) -> Matrix:
    """Return the weights ω(d) = erf(d / 2√2) / 2d² for distances d. The weight of d = 0 is 0.

    >>> compute_accuracy_weights(np.array([0.0, 1.0, 2.0])).round(7)
    array([0.       , 0.1914625, 0.0853362])
    """
    d = np.where(distances > 0, distances, 1.0)
    # For small z, use erf(z) ≈ 2z/√π, which avoids dividing two tiny numbers.
    limit = 1 / (2 * np.sqrt(2 * np.pi) * d)
    omega = np.where(d < 1e-4, limit, erf(d / (2 * np.sqrt(2))) / (2 * np.maximum(d, 1e-4) ** 2))
    return np.where(distances > 0, omega, 0.0)
