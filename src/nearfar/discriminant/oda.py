"""Oriented discriminant analysis: maximize the sum of divergences between Gaussian classes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes
from nearfar.discriminant.gada import solve_averaged
from nearfar.discriminant.searching import SEARCH_PARAMETERS, Init, SubspaceSearchLearner
from nearfar.parameters import one_of
from nearfar.solvers.gaussian_divergences import Average, kullback_leibler
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class ODA(SubspaceSearchLearner, StatisticsLearner):
    r"""Oriented discriminant analysis: maximize the sum of divergences between Gaussian classes.

    .. math::
        J = \mathrm{tr} \sum_i (U^T \Sigma_i U)^{-1} U^T \left( \sum_{j \ne i} \Sigma_j +
        (m_i - m_j)(m_i - m_j)^T \right) U - c(c-1) q = 2 \sum_{i \ne j} KL_U(i\|j)

    for c classes and q components. The logarithms of the Kullback-Leibler divergences cancel in
    the sum. With ``priors="empirical"``, each pair has the weight :math:`q_i q_j`, the product of
    the class frequencies; this is the average divergence of Decell and Mayekar. If all classes
    have the same covariance, ODA is LDA (with equal priors, unless ``priors="empirical"``).

    Use it if classes differ in shape and LDA, which has one common covariance, has too few
    directions: ODA may have more than ``n_classes - 1``. As in any unweighted sum, the largest
    divergences dominate and close classes may overlap. :class:`MGMKLD` avoids this. A single class
    with little variance along a direction causes huge divergences, so ODA overfits if a class has
    hardly more rows than features; increase ``shrinkage`` then.

    Cost: one pass of O(n p²), then O(c p² q) per iteration, with about 50 iterations per start.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to n_features. None means
        ``min(n_classes - 1, n_features)``.
    priors : {"uniform", "empirical"}, default="uniform"
        Weights of the pairs of classes: equal weights ("uniform"), or the product of both class
        frequencies as in the method of Decell and Mayekar ("empirical").
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances. A number g replaces each class covariance by
        :math:`(1-g) \Sigma_i + g (\mathrm{tr} S_w / p) I`. "auto" changes the covariances only if
        one of them is nearly singular, see Notes.
    init : {"auto", "lda", "random"} or array of shape (n_components, n_features), default="auto"
        Starting point. "auto" starts from LDA and from random class differences, see Notes.
    n_init : int, default=3
        Number of starts. The result with the best objective is kept.
    solver : {"lbfgs", "steepest"}, default="lbfgs"
        Optimizer: L-BFGS, or gradient ascent with a fixed step size ("steepest").
    max_iter : int, default=500
        Maximum number of iterations. The limit applies to each start.
    tol : float, default=1e-6
        L-BFGS stops when the projector onto the subspace changes by less than ``tol``. "steepest"
        ignores this parameter.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the random starts.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix: the principal axes of the class means in the subspace, scaled so that
        the pooled within-class covariance is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    objective_ : float
        Objective J at the solution. With ``priors="empirical"``, it is the weighted sum of the
        divergences.
    objectives_per_init_ : ndarray of shape (n_init,)
        Final objective of each start.
    divergences_ : ndarray of shape (n_classes, n_classes)
        Kullback-Leibler divergences at the solution. Entry (i, j) is the divergence of class i from
        class j.
    priors_ : ndarray of shape (n_classes,)
        Class priors used in the fit.
    shrinkage_ : float
        Shrinkage used in the fit. With "auto", it is the fraction of :math:`S_w` that was mixed
        into each covariance.
    history_ : dict of lists
        Progress of the best start per iteration, with the keys "objective", "step" and "seconds".
    n_iter_ : int
        Number of iterations of the best start.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    MODA, HDA, MGMKLD

    Notes
    -----
    ``shrinkage="auto"`` leaves the class covariances unchanged if none has an eigenvalue below
    0.001 relative to the pooled within-class covariance :math:`S_w`. Otherwise it mixes 30% of
    :math:`S_w` into each, because divergences from a singular covariance are infinite. A class
    whose rows are all equal gets :math:`S_w`.

    ``init`` sets the starting points:

    - "auto": the first start is the LDA subspace. The others are random combinations of the
      directions in which the classes differ.
    - "lda": a single start from the LDA subspace.
    - "random": all starts are random subspaces.
    - an array: the first start is this matrix, the others are drawn as for "auto".

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2.1,
       equation 2.12. L-BFGS replaces the published iterative majorization.

    Examples
    --------
    Two classes with the same mean, one of them elongated along the second feature:

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
        """Return the components of the subspace with the largest sum of divergences."""
        check_classes("ODA", statistics.classes)
        q = statistics.weights / statistics.total_weight
        weights = np.outer(q, q) if self.priors == "empirical" else np.ones((len(q), len(q)))
        return solve_averaged(self, statistics, kullback_leibler, make_weighted_sum(2 * weights))


def make_weighted_sum(weights: Matrix) -> Average:
    """Return a function that computes Σ w_ij D_ij over pairs i ≠ j, and its derivatives."""
    weights = weights.copy()
    np.fill_diagonal(weights, 0.0)
    return lambda D: (float(np.sum(weights * D)), weights)
