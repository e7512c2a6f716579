"""Heteroscedastic discriminant analysis, with the two criteria known by this name."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import (
    check_classes,
    choose_n_mean_directions,
    choose_n_varying_directions,
)
from nearfar.discriminant.searching import (
    SEARCH_PARAMETERS,
    Init,
    SubspaceSearchLearner,
    search_components,
)
from nearfar.parameters import one_of
from nearfar.solvers.descent import Objective
from nearfar.solvers.gaussian_divergences import GaussianFamily
from nearfar.summaries.class_gaussians import fit_class_gaussians
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, find_between_axes, get_rank_tolerance


class HDA(SubspaceSearchLearner, StatisticsLearner):
    r"""Heteroscedastic discriminant analysis: LDA with one covariance per class.

    With class covariances :math:`\Sigma_i` and class frequencies :math:`q_i`, HDA maximizes

    .. math:: \log|U^T S U| - \sum_i q_i \log|U^T \Sigma_i U|

    where ``criterion`` selects S:

    * "jelinek" uses the between-class covariance :math:`S_b`: the class means span a large volume
      and each class a small one. There are at most as many directions as the means span.
    * "kumar_andreou" uses the total covariance :math:`S_t`. It is maximum likelihood for Gaussian
      classes that have their own means and covariances within the subspace and share both outside
      of it. The published objective has a square matrix :math:`[U\ V]`,
      :math:`n \log|V^T S_t V| + \sum_i n_i \log|U^T \Sigma_i U| - 2n \log|\det [U\ V]|`. For given
      U, the best V has a closed form, which leads to the criterion above.

    If all covariances are equal, both give the subspace of LDA. "jelinek" is the "HDA" of the
    tables in [1]_. Reduced-rank RDA is "kumar_andreou" with ``shrinkage``.

    Use it if classes differ in size or shape. "kumar_andreou" also helps if LDA has too few
    directions, because it can separate classes that differ only in covariance. The average of
    logarithms favors subspaces in which a class collapses to a point, so HDA overfits if a class
    has hardly more rows than features; increase ``shrinkage`` then. As in LDA, distant classes
    mask close ones. "jelinek" ignores differences that do not show in the class means.

    Cost: one pass of O(n p²), then O(c p² q) per iteration for c classes and q components, with
    about 50 iterations per start.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None means ``n_classes - 1``, or fewer if the class means or the
        data span fewer directions. "kumar_andreou" supports up to n_features components.
    criterion : {"jelinek", "kumar_andreou"}, default="jelinek"
        Criterion to maximize.
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
        Value of the criterion at the solution.
    objectives_per_init_ : ndarray of shape (n_init,)
        Final objective of each start.
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
    HLDA, ODA, LDA

    Notes
    -----
    ``shrinkage="auto"`` leaves the class covariances unchanged if none has an eigenvalue below
    0.001 relative to the pooled within-class covariance :math:`S_w`. Otherwise it mixes 30% of
    :math:`S_w` into each. A class whose rows are all equal gets :math:`S_w`.

    ``init`` sets the starting points:

    - "auto": the first start is the LDA subspace. The others are random combinations of the
      directions in which the classes differ.
    - "lda": a single start from the LDA subspace.
    - "random": all starts are random subspaces.
    - an array: the first start is this matrix, the others are drawn as for "auto".

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2.1,
       equations 2.13 (printed as a maximization, but it must be minimized) and 2.14.
    .. [2] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011,
       section 4.4.1.

    Examples
    --------
    Two classes with the same mean, which only "kumar_andreou" can separate:

    >>> import numpy as np
    >>> from nearfar import HDA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> X = rng.normal(size=(1000, 3))
    >>> X[y == 1, 1] *= 5
    >>> direction = HDA(1, criterion="kumar_andreou").fit(X, y).components_[0]
    >>> abs(direction / np.linalg.norm(direction)).round(1)
    array([0., 1., 0.])
    """

    learner_tags = LearnerTags(reads="statistics")
    pooled_statistics = False
    settings = ({"criterion": "kumar_andreou"}, {"shrinkage": 0.1})
    parameters: ClassVar = {
        "criterion": [one_of("jelinek", "kumar_andreou")],
        **SEARCH_PARAMETERS,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        criterion: Literal["jelinek", "kumar_andreou"] = "jelinek",
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
        self.criterion = criterion
        self.shrinkage = shrinkage
        self.init = init
        self.n_init = n_init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the components of the best subspace of all starts."""
        self.classes_ = statistics.classes
        check_classes("HDA", statistics.classes)
        gaussians = fit_class_gaussians(statistics, self.shrinkage)
        self.shrinkage_ = gaussians.shrinkage
        rank = gaussians.rank
        if self.criterion == "jelinek":
            values, _ = find_between_axes(statistics, gaussians.basis)
            mean_rank = int((values > get_rank_tolerance(statistics) * values[0]).sum())
            if values[0] <= np.finfo(float).eps:
                raise ValueError(
                    "All class means are equal, so criterion='jelinek' cannot separate the "
                    "classes. Use criterion='kumar_andreou'."
                )
            n_components = choose_n_mean_directions(
                self.n_components, "HDA", statistics, min(mean_rank, rank)
            )
        else:
            n_components = choose_n_varying_directions(
                self.n_components, "HDA", statistics.n_classes, rank
            )
        objective = make_volume_objective(
            gaussians.family, gaussians.priors, includes_within=self.criterion == "kumar_andreou"
        )
        family = gaussians.family
        return search_components(
            self, statistics, gaussians.basis, objective, n_components, family=family
        )


def make_volume_objective(
    family: GaussianFamily, priors: Matrix, *, includes_within: bool
) -> Objective:
    r"""Return the objective :math:`\log|U^T S U| - \sum_i q_i \log|U^T \Sigma_i U|`.

    The returned function computes the value and the gradient. S is the covariance of the means,
    plus the mean covariance if ``includes_within`` is True.
    """
    deviations = family.means - priors @ family.means
    factor = np.sqrt(priors)[:, None] * deviations
    no_means = np.zeros_like(family.means)

    def compute_objective(U: Matrix) -> tuple[float, Matrix]:
        projected = family.project(U)
        SU = factor.T @ (factor @ U)
        if includes_within:
            SU += np.tensordot(priors, projected.images, axes=1)
        root = linalg.cho_factor(U.T @ SU, lower=True)
        log_det = 2 * np.log(np.diag(root[0])).sum()
        value = float(log_det - priors @ projected.log_dets)
        gradient = 2 * linalg.cho_solve(root, SU.T).T
        by_covariances = priors[:, None, None] * projected.inverses
        gradient -= projected.pull_back(by_covariances, no_means[:, : U.shape[1]])
        return value, gradient

    return compute_objective
