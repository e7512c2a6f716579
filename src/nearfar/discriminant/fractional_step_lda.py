"""Fractional-step LDA: removal of one dimension at a time, in small steps."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, choose_n_mean_directions
from nearfar.discriminant.pairwise import (
    MAX_POWER,
    compute_class_distances,
    compute_distance_weights,
)
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import compute_pair_scatter, descending_eigh, fix_signs
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
        Dimension of the output. None uses the maximum, which is the number of directions that the
        class means span. This is at most ``n_classes - 1``.
    power : float, default=8
        Exponent a of the weights, at most 50.
    n_steps : int, default=30
        Number of steps in which a dimension is shrunk before it is removed.
    step_factor : float, default=0.5
        Factor by which each step shrinks a dimension, above 0 and at most 1. [1]_ does not state
        its value.
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
    renamed: ClassVar = {"alpha": "step_factor"}
    settings = ({"power": 3.0}, {"shrinkage": 0.1})
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "power": [real(0, MAX_POWER)],
        "n_steps": [integer(1)],
        "step_factor": [real(0, 1, open_low=True)],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        power: float = 8.0,
        n_steps: int = 30,
        step_factor: float = 0.5,
        shrinkage: Shrinkage = "auto",
    ) -> None:
        self.n_components = n_components
        self.power = power
        self.n_steps = n_steps
        self.step_factor = step_factor
        self.shrinkage = shrinkage

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the components that remain after the other dimensions are removed one by one."""
        self.classes_ = statistics.classes
        check_classes("FractionalStepLDA", statistics.classes)
        # Work in the span of the class means. Shrinking any other direction would not change the
        # means.
        T, means = whiten_means(statistics, self.shrinkage)
        n_components = choose_n_mean_directions(
            self.n_components, "FractionalStepLDA", statistics, T.shape[1]
        )
        U = remove_dimensions(means, n_components, self.power, self.n_steps, self.step_factor)
        return fix_signs((T @ U).T)


def remove_dimensions(
    means: Matrix, n_components: int, power: float, n_steps: int, step_factor: float
) -> Matrix:
    """Return ``n_components`` orthonormal axes (columns), given c class means of shape (c, r).

    The most important axis is the first.
    """
    U = compute_weighted_axes(means, power)
    while U.shape[1] > n_components:
        scale = np.ones(U.shape[1])
        for step in range(n_steps):
            scale[-1] = step_factor**step
            U = U @ compute_weighted_axes((means @ U) * scale, power)
        U = U[:, :-1]
    return U @ compute_weighted_axes(means @ U, power)


def compute_weighted_axes(means: Matrix, power: float) -> Matrix:
    """Return the eigenvectors (columns) of the weighted scatter of the class means.

    The eigenvalues are in descending order.
    """
    weights = compute_distance_weights(compute_class_distances(means), power)
    return descending_eigh(compute_pair_scatter(means, weights))[1]
