"""LDA with pairs of classes weighted by a power of their distance."""

from __future__ import annotations

from typing import ClassVar

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.pairwise import MAX_POWER, compute_distance_weights, solve_weighted_pairs
from nearfar.parameters import integer, none, one_of, real
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class WeightedLDA(StatisticsLearner):
    r"""LDA with pairs of classes weighted by an inverse power of the distance between their means.

    .. math::
        \max_{U^T S_w U = I} \mathrm{tr}\left( U^T \sum_{i<j} q_i q_j\, d_{ij}^{-a} D_{ij}\, U
        \right), \qquad D_{ij} = (m_i - m_j)(m_i - m_j)^T ,

    where :math:`m_i` and :math:`q_i` are the mean and the fraction of class i, :math:`S_w` is the
    within-class covariance, :math:`d_{ij}` is the Mahalanobis distance between the means under
    :math:`S_w`, and a is ``power``. With a = 0 it is LDA. With a = 2, every pair has the same
    influence. With a = 8, as in [1]_, the closest pairs determine the result. Distances below 1%
    of the largest distance are replaced by 1% of it, so that equal class means do not get an
    infinite weight.

    Use it if you keep fewer than ``n_classes - 1`` directions and the closest classes matter most.
    With all directions it equals LDA. It fails in the opposite way from LDA: two classes that
    overlap completely attract all directions, and the other classes merge. Try ``power=3``, or
    :class:`APAC`, whose weights have no parameter.

    Cost: one pass of O(n p²), then O(p³ + c² p) for c classes, or O(n² p) with fewer rows than
    features.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None uses the maximum, which is the number of directions that the
        class means span. This is at most ``n_classes - 1``.
    power : float, default=8
        Exponent a of the weights, at most 50.
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
    APAC, FractionalStepLDA, LDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.6.
       (K. T. Abou-Moustafa, 2011, uses the abbreviation WLDA for another method, White+LDA,
       which is ``LDA(solver="whiten")``.)

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import WeightedLDA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2], 100)
    >>> X = rng.normal(size=(300, 2)) + np.array([[0, -2], [0, 2], [15, 0]])[y]
    >>> abs(WeightedLDA(1).fit(X, y).components_).round(1)
    array([[0., 1.]])
    """

    learner_tags = LearnerTags(reads="statistics")
    settings = ({"power": 3.0}, {"shrinkage": 0.1})
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "power": [real(0, MAX_POWER)],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        power: float = 8.0,
        shrinkage: Shrinkage = "auto",
    ) -> None:
        self.n_components = n_components
        self.power = power
        self.shrinkage = shrinkage

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the leading eigenvectors of the weighted between-class scatter."""
        self.classes_ = statistics.classes
        self.eigenvalues_, components = solve_weighted_pairs(
            "WeightedLDA",
            statistics,
            self.n_components,
            self.shrinkage,
            lambda distances: compute_distance_weights(distances, self.power),
        )
        return components
