"""Fractional-step LDA: removal of one dimension at a time, in small steps."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, n_between
from nearfar.discriminant.pairwise import MOST_POWER, distances_between, inverse_power
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh, fix_signs, pair_scatter
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, whiten_means


class FractionalStepLDA(StatisticsLearner):
    r"""Fractional-step LDA: LDA that removes one dimension at a time, in small steps.

    In coordinates where :math:`S_w` is the identity, the last dimension is removed repeatedly. It
    is not dropped at once, but multiplied by :math:`1, \alpha, \alpha^2, \ldots` in ``n_steps``
    steps. After each step, the axes are rotated to the eigenvectors of

    .. math:: \sum_{i<j} d_{ij}^{-a} (\mu_i - \mu_j)(\mu_i - \mu_j)^T , \qquad
              d_{ij} = \|\mu_i - \mu_j\| ,

    with the class means :math:`\mu_i` in the *shrunken* space and a = ``power``. Classes that
    approach each other as the dimension shrinks get a larger weight, so the axes rotate to keep
    them separated.

    Use it if distant classes mask close ones and you keep fewer than ``n_classes - 1`` directions.
    With all directions it equals LDA. The method is greedy, does not optimize an objective, and
    assumes one common covariance. Two classes that overlap completely attract the axes.

    Cost: one pass of O(n p²), then O(p³) to whiten, and :math:`O(s\,c^4)` for c classes and s
    steps, because the steps transform only the class means.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. At most ``n_classes - 1``, which is the default if the class means
        span as many directions.
    power : float, default=8
        Exponent a of the weights, at most 50.
    n_steps : int, default=30
        Number of steps in which a dimension is shrunk before it is removed.
    alpha : float, default=0.5
        Factor of each step, above 0 and at most 1. [1]_ does not state its value.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances: see :class:`LDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix, scaled so that the within-class covariance of the output is the
        identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    WeightedLDA, APAC, LDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2.3,
       table 2.1. It prints the distances of the original means, with which the steps would have no
       effect on the weights.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import FractionalStepLDA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2], 100)
    >>> X = rng.normal(size=(300, 2)) + np.array([[0, -2], [0, 2], [12, 0]])[y]
    >>> z = FractionalStepLDA(1).fit_transform(X, y)[:, 0]
    >>> means = np.sort([z[y == c].mean() for c in range(3)])
    >>> bool(np.diff(means).min() > 2)
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    settings = ({"power": 3.0}, {"shrinkage": 0.1})
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "power": [real(0, MOST_POWER)],
        "n_steps": [integer(1)],
        "alpha": [real(0, 1, open_low=True)],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        power: float = 8.0,
        n_steps: int = 30,
        alpha: float = 0.5,
        shrinkage: Shrinkage = "auto",
    ) -> None:
        self.n_components = n_components
        self.power = power
        self.n_steps = n_steps
        self.alpha = alpha
        self.shrinkage = shrinkage

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the components left after removing dimensions one by one."""
        self.classes_ = statistics.classes
        check_classes("FractionalStepLDA", statistics.classes)
        # Work in the span of the class means. Shrinking other directions would not move the means.
        T, means = whiten_means(statistics, self.shrinkage)
        kept = n_between(self.n_components, "FractionalStepLDA", statistics, T.shape[1])
        U = fractional_steps(means, kept, self.power, self.n_steps, self.alpha)
        return fix_signs((T @ U).T)


def fractional_steps(means: Matrix, kept: int, power: float, n_steps: int, alpha: float) -> Matrix:
    """Return an orthonormal U (r, kept) for class means (c, r), the most important axis first."""
    U = weighted_axes(means, power)
    while U.shape[1] > kept:
        scale = np.ones(U.shape[1])
        for step in range(n_steps):
            scale[-1] = alpha**step
            U = U @ weighted_axes((means @ U) * scale, power)
        U = U[:, :-1]
    return U @ weighted_axes(means @ U, power)


def weighted_axes(means: Matrix, power: float) -> Matrix:
    """Return the eigenvectors (columns) of the weighted scatter of the means, largest first."""
    weights = inverse_power(distances_between(means), power)
    return descending_eigh(pair_scatter(means, weights))[1]
