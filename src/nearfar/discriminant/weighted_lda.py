"""LDA weighted by a power of the distance between classes."""

from __future__ import annotations

from typing import ClassVar

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.pairwise import MOST_POWER, inverse_power, solve_weighted_pairs
from nearfar.parameters import integer, none, one_of, real
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class WeightedLDA(StatisticsLearner):
    r"""LDA in which a pair of classes weighs the more, the closer they are.

    .. math::
        \max_{U^T S_w U = I} \mathrm{tr}\left( U^T \sum_{i<j} q_i q_j\, d_{ij}^{-a} D_{ij}\, U
        \right), \qquad D_{ij} = (m_i - m_j)(m_i - m_j)^T ,

    where :math:`d_{ij}` is the Mahalanobis distance of the means under :math:`S_w` and a is
    ``power``. With a = 0 it is LDA, with a = 2 every pair counts alike, and with the 8 of the work
    the closest pairs decide alone.

    Use it when you keep fewer than ``n_classes - 1`` directions and care for the closest classes;
    with all of them it is LDA. Its failure is the opposite of LDA's: two classes that cannot be
    told apart at all draw all directions to themselves, and the others merge. Try a power of 3, or
    :class:`APAC`, whose weights have no parameter.

    Cost: one pass of O(n p²), then O(p³ + c² p) for c classes; with fewer rows than features
    O(n² p).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output; at most ``n_classes - 1``. None takes as many as possible.
    power : float, default=8
        The exponent a, at most 50.
    shrinkage : float in [0, 1] or "auto", default="auto"
        What is mixed into covariances: as in :class:`LDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map; the within-class covariance is the identity after it.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        What each row adds to the criterion. Distances below a hundredth of the largest one count
        as that, so that equal class means weigh no infinity.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    statistics_ : ClassStatistics
        What was accumulated.

    See Also
    --------
    APAC, FractionalStepLDA, LDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.6.
       (K. T. Abou-Moustafa, 2011, has White+LDA under the same short name: that is
       ``LDA(solver="whiten")``.)

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
        "power": [real(0, MOST_POWER)],
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
        """Leading eigenvectors of the weighted scatter of whitened class means."""
        self.classes_ = statistics.classes
        self.eigenvalues_, components = solve_weighted_pairs(
            "WeightedLDA",
            statistics,
            self.n_components,
            self.shrinkage,
            lambda distances: inverse_power(distances, self.power),
        )
        return components
