"""Maximization of the geometric mean of divergences between classes."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes
from nearfar.discriminant.gada import (
    Convention,
    Priors,
    compute_class_priors,
    limit_divergences,
    make_divergence,
    solve_averaged,
)
from nearfar.discriminant.searching import SEARCH_PARAMETERS, Init, SubspaceSearchLearner
from nearfar.parameters import none, object_with, one_of, real
from nearfar.solvers.gaussian_divergences import Average, Divergence
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class MGMD(SubspaceSearchLearner, StatisticsLearner):
    r"""Subspace with the maximum geometric mean of divergences between classes.

    With :math:`D_{ij} = D_U(i||j)` the divergences of the class Gaussians after projection by U,
    and priors :math:`\pi`, MGMD maximizes over ordered pairs

    .. math::
        L_\eta(U) = \sum_{i \ne j} \log D_{ij}
        - \eta \log \left( \sum_{i \ne j} \pi_i \pi_j D_{ij} \right), \qquad
        0 \le \eta \le c(c-1) .

    Because of the logarithm, a small divergence costs more than a large one gains. Unlike LDA,
    MGMD does not merge two close classes to separate a distant one. The second term favors equal
    divergences. L combines two criteria: the geometric mean of the divergences (``alpha=0``), and
    that of the normalized divergences
    :math:`E_{ij} = \pi_i\pi_j D_{ij} / \sum \pi_m\pi_n D_{mn}` (``alpha=1``). The latter alone is
    not useful, since equal divergences may all be tiny.

    Use :class:`MGMKLD`, which is MGMD with the Kullback-Leibler divergence, unless you need another
    divergence. MGMD has the same limitations.

    Cost: one pass of O(n p²), then O(c p² q) per iteration for c classes and q components, with
    about 50 iterations per start.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to n_features. None means
        ``min(n_classes - 1, n_features)``. Solutions are not nested: the first k components of a
        fit differ from a fit with k components.
    equality_weight : float or None, default=None
        Weight of the term that favors equal divergences. None means ``min(2c, c(c-1) - 1)``, as in
        all experiments of [1]_.
    alpha : float in [0, 1] or None, default=None
        Alternative to ``equality_weight``: the weight of the equality criterion in a convex
        combination with the geometric mean, see Notes.
    divergence : {"kl", "l2"} or Bregman, default="kl"
        Divergence between classes: Kullback-Leibler ("kl"), half the integrated squared difference
        of the densities ("l2"), or a :class:`~nearfar.solvers.gaussian_divergences.Bregman` with
        your own convex generator. See Notes.
    kl_convention : {"exact", "unnormalized"}, default="exact"
        Scale of the divergence: "exact" is KL, and "unnormalized" is 2 KL + q, as printed in [1]_
        and probably used in its experiments. With "unnormalized", the logarithm penalizes merged
        classes less.
    priors : {"empirical", "uniform"}, default="empirical"
        Class priors: the class frequencies ("empirical"), or equal priors ("uniform").
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances. A number g replaces each class covariance by
        :math:`(1-g) \Sigma_i + g (\mathrm{tr} S_w / p) I`. "auto" changes the covariances only if
        one of them is nearly singular, see Notes.
    init : {"auto", "lda", "random"} or array of shape (n_components, n_features), default="auto"
        Starting point. "auto" starts from LDA and from random class differences, see Notes. An
        array may be the ``components_`` of an earlier fit.
    n_init : int, default=5
        Number of starts. The result with the best objective is kept.
    solver : {"lbfgs", "steepest"}, default="lbfgs"
        Optimizer: L-BFGS, or gradient ascent with a fixed step size ("steepest"), as published.
        "steepest" is slow and stops far from the optimum.
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
        Objective L at the solution.
    objectives_per_init_ : ndarray of shape (n_init,)
        Final objective of each start.
    divergences_ : ndarray of shape (n_classes, n_classes)
        Divergences at the solution. Entry (i, j) is the divergence of class i from class j.
    equality_weight_ : float
        Value of ``equality_weight`` used in the fit. If ``alpha`` is set, this is the equivalent
        value for equal priors.
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
    MGMKLD, GADA

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

    With ``alpha``, the objective is
    :math:`L_\alpha = \sum w_{ij} \log D_{ij} - \alpha \log \sum \pi_i\pi_j D_{ij}` with
    :math:`w_{ij} = \alpha/(c(c-1)) + (1-\alpha)\,\pi_i\pi_j/\sum\pi_m\pi_n`. For equal priors it
    is :math:`L_\eta/(c(c-1))` with :math:`\eta = \alpha c(c-1)`. The relation printed in [1]_ is
    correct only for :math:`\alpha` = 0 and 1.

    A Bregman divergence is integrated numerically. All divergences except "kl" depend on the scale
    of the densities. They are computed in coordinates in which the pooled within-class covariance
    is the identity.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.4.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import MGMD
    >>> X, y = load_wine(return_X_y=True)
    >>> MGMD(n_components=2, divergence="l2").fit(X, y).equality_weight_
    5.0
    """

    learner_tags = LearnerTags(reads="statistics")
    renamed: ClassVar = {"eta": "equality_weight", "eta_": "equality_weight_"}
    pooled_statistics = False
    settings = ({"shrinkage": 0.1}, {"equality_weight": 0.0})
    renamed_values: ClassVar = {"kl_convention": {"unnormalised": "unnormalized"}}
    parameters: ClassVar = {
        "equality_weight": [none, real(0)],
        "alpha": [none, real(0, 1)],
        "divergence": [
            one_of("kl", "l2"),
            object_with("values", "gradient", "invariant", description="a Bregman divergence"),
        ],
        "kl_convention": [one_of("exact", "unnormalized")],
        "priors": [one_of("empirical", "uniform")],
        **SEARCH_PARAMETERS,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        equality_weight: float | None = None,
        alpha: float | None = None,
        divergence: Literal["kl", "l2"] | Divergence = "kl",
        kl_convention: Convention = "exact",
        priors: Priors = "empirical",
        shrinkage: Shrinkage = "auto",
        init: Init | ArrayLike = "auto",
        n_init: int = 5,
        solver: Literal["lbfgs", "steepest"] = "lbfgs",
        max_iter: int = 500,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.equality_weight = equality_weight
        self.alpha = alpha
        self.divergence = divergence
        self.kl_convention = kl_convention
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
        """Return the components of the subspace with the largest objective L."""
        check_classes(type(self).__name__, statistics.classes)
        pairs = ~np.eye(statistics.n_classes, dtype=bool)
        self.equality_weight_, average = make_log_average(
            self, statistics.n_classes, compute_class_priors(statistics, self.priors), pairs
        )
        divergence = make_divergence(self.divergence, self.kl_convention)
        return solve_averaged(self, statistics, divergence, average)


class HasEta(Protocol):
    """Interface of a learner with the parameters equality_weight and alpha."""

    equality_weight: float | None
    alpha: float | None


def make_log_average(
    learner: HasEta, n_classes: int, priors: Matrix, pairs: NDArray[np.bool_]
) -> tuple[float, Average]:
    """Return the equality weight, and a function that computes the objective L from divergences.

    The weight of the second term depends on the ``equality_weight`` or ``alpha`` of the learner.
    """
    n_pairs = int(pairs.sum())
    name = type(learner).__name__
    if learner.alpha is not None:
        if learner.equality_weight is not None:
            raise ValueError(
                f"{name}: equality_weight and alpha are both set. Set only one of them."
            )
        return learner.alpha * n_pairs, make_convex_combination(priors, pairs, learner.alpha)
    eta = (
        float(min(2 * n_classes, n_pairs - 1))
        if learner.equality_weight is None
        else float(learner.equality_weight)
    )
    if eta > n_pairs:
        raise ValueError(
            f"{name}: equality_weight={eta:g} is above {n_pairs}, the number of ordered pairs of "
            "different classes, so small divergences would be preferred. Use a smaller "
            "equality_weight, or None."
        )
    return eta, make_difference_of_logs(priors, pairs, eta)


def make_difference_of_logs(priors: Matrix, pairs: NDArray[np.bool_], eta: float) -> Average:
    r"""Return a function that computes the objective L and its derivatives from divergences.

    The derivatives are :math:`1/D_{ij} - \eta\,\pi_i \pi_j / \sum \pi_m \pi_n D_{mn}`.
    """
    return _make_log_objective(
        pairs.astype(float), np.where(pairs, np.outer(priors, priors), 0.0), eta
    )


def make_convex_combination(priors: Matrix, pairs: NDArray[np.bool_], alpha: float) -> Average:
    """Return a function that computes the convex combination of both terms of the objective.

    ``alpha`` is the weight of the normalized divergences.
    """
    products = np.where(pairs, np.outer(priors, priors), 0.0)
    weights = alpha * pairs / pairs.sum() + (1 - alpha) * products / products.sum()
    return _make_log_objective(weights, products, alpha)


def _make_log_objective(weights: Matrix, products: Matrix, eta: float) -> Average:
    def compute_average(D: Matrix) -> tuple[float, Matrix]:
        D = np.where(weights > 0, limit_divergences(D), 1.0)
        total = float(np.sum(products * D))
        value = float(np.sum(weights * np.log(D)) - eta * np.log(total))
        return value, weights / D - (eta / total) * products

    return compute_average
