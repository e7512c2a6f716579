"""Oriented discriminant analysis: the sum of divergences between Gaussian classes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes
from nearfar.discriminant.gada import solve_averaged
from nearfar.discriminant.searching import SEARCH_PARAMETERS, Init, Searching
from nearfar.parameters import one_of
from nearfar.solvers.gaussian_divergences import Average, kullback_leibler
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class ODA(Searching, StatisticsLearner):
    r"""Oriented discriminant analysis: classes far apart as Gaussians, in sum.

    .. math::
        J = \mathrm{tr} \sum_i (U^T \Sigma_i U)^{-1} U^T \left( \sum_{j \ne i} \Sigma_j +
        (m_i - m_j)(m_i - m_j)^T \right) U - c(c-1) q = 2 \sum_{i \ne j} KL_U(i\|j)

    for c classes and q components: the logarithms of the Kullback-Leibler divergences cancel.
    With ``priors="empirical"`` each pair has the weight :math:`q_i q_j`, which is the average
    divergence of Decell and Mayekar. With one covariance for all classes it is LDA (with equal
    priors, unless ``priors="empirical"``).

    Use it when classes differ in shape and LDA, which knows one covariance, has too few
    directions; there may be more than ``n_classes - 1``. Its failure is that of any plain sum: the
    largest divergences decide, classes that are close fall onto one another. See :class:`MGMKLD`
    for the remedy. A single class with little variance along a direction makes huge divergences:
    with hardly more rows than features in a class it overfits, so raise ``shrinkage``.

    Cost: one pass of O(n p²), then O(c p² q) for each of some 50 steps from each start.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to the number of features; None is ``n_classes - 1`` or the
        number of features if that is less.
    priors : {"uniform", "empirical"}, default="uniform"
        All pairs of classes alike, or weighted by the shares of the classes (Decell-Mayekar).
    shrinkage : float in [0, 1] or "auto", default="auto"
        What is mixed into covariances. A number g replaces each covariance by
        :math:`(1-g) \Sigma_i + g (\mathrm{tr} S_w / p) I`. "auto" changes nothing while all of them
        are regular; else it mixes 30 % of :math:`S_w` into each. A class of one row has the
        covariance :math:`S_w`.
    init : {"auto", "lda", "random"} or array of shape (n_components, n_features), default="auto"
        Where to start. "auto" starts from LDA, then from directions in which the classes differ,
        drawn by chance; "lda" is the first alone; "random" starts anywhere; an array is a first
        start of your own.
    n_init : int, default=3
        Number of starts; the best is kept.
    solver : {"lbfgs", "steepest"}, default="lbfgs"
        "steepest" takes fixed steps along the gradient.
    max_iter : int, default=500
        Steps at most: from each start.
    tol : float, default=1e-6
        L-BFGS stops when the projector on the subspace moves by less.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the random starts.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map: principal axes of the class means in the subspace, scaled so that the pooled
        within-class covariance is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    objective_ : float
        J at the solution; with ``priors="empirical"`` the weighted sum.
    objectives_per_init_ : ndarray of shape (n_init,)
        Where each start ended.
    divergences_ : ndarray of shape (n_classes, n_classes)
        Kullback-Leibler divergences at the solution, class i (row) from class j (column).
    priors_ : ndarray of shape (n_classes,)
        The priors used.
    shrinkage_ : float
        What was mixed into the class covariances.
    history_ : dict of lists
        "objective", "step" and "seconds" of the best start.
    n_iter_ : int
        Its steps.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    statistics_ : ClassStatistics
        What was accumulated.

    See Also
    --------
    MODA, HDA, MGMKLD

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2.1,
       equation 2.12. The published iterative majorisation is replaced by L-BFGS.

    Examples
    --------
    Two classes about one mean, one of them long in the second feature:

    >>> import numpy as np
    >>> from nearfar import ODA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> X = rng.normal(size=(1000, 3))
    >>> X[y == 1, 1] *= 5
    >>> direction = ODA(1).fit(X, y).components_[0]
    >>> abs(direction / np.linalg.norm(direction)).round(1)
    array([0., 1., 0.])
    """

    learner_tags = LearnerTags(reads="statistics")
    pooled_statistics = False
    settings = ({"priors": "empirical"}, {"shrinkage": 0.1})
    parameters: ClassVar = {
        "priors": [one_of("uniform", "empirical")],
        **SEARCH_PARAMETERS,
    }

    divergences_: Matrix
    priors_: Matrix

    def __init__(
        self,
        n_components: int | None = None,
        *,
        priors: Literal["uniform", "empirical"] = "uniform",
        shrinkage: Shrinkage = "auto",
        init: Init | ArrayLike = "auto",
        n_init: int = 3,
        solver: Literal["lbfgs", "steepest"] = "lbfgs",
        max_iter: int = 500,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.priors = priors
        self.shrinkage = shrinkage
        self.init = init
        self.n_init = n_init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Components of the subspace with the largest sum of divergences."""
        check_classes("ODA", statistics.classes)
        q = statistics.weights / statistics.total_weight
        weights = np.outer(q, q) if self.priors == "empirical" else np.ones((len(q), len(q)))
        return solve_averaged(self, statistics, kullback_leibler, weighted_sum(2 * weights))


def weighted_sum(weights: Matrix) -> Average:
    """Σ w_ij D_ij over ordered pairs of different classes, and its derivatives."""
    weights = weights.copy()
    np.fill_diagonal(weights, 0.0)
    return lambda D: (float(np.sum(weights * D)), weights)
