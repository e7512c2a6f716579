"""General averaged divergences analysis: maximize a generalized mean of class divergences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, choose_n_varying_directions
from nearfar.discriminant.searching import (
    SEARCH_PARAMETERS,
    Init,
    SubspaceSearchLearner,
    search_components,
)
from nearfar.parameters import AllowedValues, object_with, one_of, real
from nearfar.solvers.gaussian_divergences import (
    Average,
    Divergence,
    KullbackLeibler,
    SquaredDifference,
    make_averaged_objective,
)
from nearfar.summaries.class_gaussians import fit_class_gaussians
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage

Convention = Literal["exact", "unnormalized"]
Priors = Literal["empirical", "uniform"]
Phi = tuple[Callable[[Matrix], Matrix], Callable[[Matrix], Matrix], Callable[[Matrix], Matrix]]

#: Divergences are raised to this lower limit before a logarithm or a negative power is taken. If
#: the largest divergence is below 1, the limit is relative to the largest divergence.
MIN_RELATIVE_DIVERGENCE = 1e-12
_MEAN_POWERS = {"arithmetic": 1.0, "geometric": 0.0, "harmonic": -1.0}


class GADA(SubspaceSearchLearner, StatisticsLearner):
    r"""General averaged divergences analysis: maximize a generalized mean of class divergences.

    Each class is a Gaussian. With :math:`D_U(i||j)` the divergence of classes i and j after
    projection by U, and priors :math:`\pi`, GADA maximizes a generalized mean over ordered pairs,

    .. math::
        V_\varphi(U) = \varphi^{-1}\left( \sum_{i \ne j}
        \frac{\pi_i \pi_j}{\sum_{m \ne n} \pi_m \pi_n}\, \varphi(D_U(i||j)) \right) .

    The arithmetic mean of Kullback-Leibler divergences with one covariance for all classes is LDA.
    The geometric and the harmonic mean depend more on the smallest divergences, so they avoid
    merging close classes to separate distant ones.

    Use :class:`MGMKLD` first. GADA generalizes it to other means and divergences.

    The objective has local maxima, so the search uses several starts. GADA fails if a class
    consists of several clusters (see :class:`MultimodalMGMKLD`), and overfits if classes have
    hardly more rows than features; increase ``shrinkage`` then.

    Cost: one pass of O(n p²), then O(c p² q) per iteration for c classes and q components, with
    about 50 iterations per start. A Bregman divergence by quadrature takes in addition c² q² times
    the number of nodes.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to n_features. None means
        ``min(n_classes - 1, n_features)``. Solutions are not nested: the first k components of a
        fit differ from a fit with k components.
    mean : {"arithmetic", "geometric", "harmonic"}, float or tuple, default="geometric"
        Mean of the divergences: a name, the exponent of a power mean, or a tuple of three
        functions. The exponents 1, 0 and -1 are equivalent to the three names. The functions take
        arrays: a strictly increasing :math:`\varphi`, its derivative and its inverse.
    divergence : {"kl", "l2"} or Bregman, default="kl"
        Divergence between classes: Kullback-Leibler ("kl"), half the integrated squared difference
        of the densities ("l2"), or a :class:`~nearfar.solvers.gaussian_divergences.Bregman` with
        your own convex generator. See Notes.
    kl_convention : {"exact", "unnormalized"}, default="exact"
        Scale of the divergence: "exact" is KL, and "unnormalized" is 2 KL + q, as printed in [1]_
        and probably used in its experiments.
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
        Mean divergence at the solution.
    objectives_per_init_ : ndarray of shape (n_init,)
        Final objective of each start.
    divergences_ : ndarray of shape (n_classes, n_classes)
        Divergences at the solution. Entry (i, j) is the divergence of class i from class j.
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
    MGMD, MGMKLD

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

    A Bregman divergence is integrated numerically. All divergences except "kl" depend on the scale
    of the densities. They are computed in coordinates in which the pooled within-class covariance
    is the identity.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.3.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import GADA
    >>> X, y = load_wine(return_X_y=True)
    >>> GADA(n_components=2, mean="harmonic").fit(X, y).divergences_.shape
    (3, 3)
    """

    learner_tags = LearnerTags(reads="statistics")
    pooled_statistics = False
    settings = ({"mean": "harmonic"}, {"shrinkage": 0.1})
    renamed_values: ClassVar = {"kl_convention": {"unnormalised": "unnormalized"}}
    parameters: ClassVar = {
        "mean": [
            one_of(*_MEAN_POWERS),
            real(),
            AllowedValues(
                lambda value: (
                    isinstance(value, tuple) and [callable(f) for f in value] == 3 * [True]
                ),
                "three functions: phi, its derivative and its inverse",
            ),
        ],
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
        mean: str | float | Phi = "geometric",
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
        self.mean = mean
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
        """Return the components of the subspace with the largest mean divergence."""
        check_classes("GADA", statistics.classes)
        average = make_generalized_mean(compute_pair_weights(statistics, self.priors), self.mean)
        divergence = make_divergence(self.divergence, self.kl_convention)
        return solve_averaged(self, statistics, divergence, average)


def solve_averaged(
    learner: Any, statistics: ClassStatistics, divergence: Divergence, average: Average
) -> Matrix:
    """Return the components of the subspace that maximizes an average of the divergences.

    Sets the attributes ``classes_`` and ``priors_`` in addition to those of
    ``search_averaged``.
    """
    learner.classes_ = statistics.classes
    learner.priors_ = compute_class_priors(statistics, learner.priors)
    return search_averaged(learner, statistics, statistics.n_classes, divergence, average)


def search_averaged(
    learner: Any,
    statistics: ClassStatistics,
    n_classes: int,
    divergence: Divergence,
    average: Average,
) -> Matrix:
    """Return the components, given the statistics of classes or of clusters.

    Sets ``shrinkage_``, ``divergences_`` and the attributes that ``search_components`` sets.
    """
    group_name = "class" if statistics.n_classes == n_classes else "cluster"
    gaussians = fit_class_gaussians(statistics, learner.shrinkage, group_name)
    learner.shrinkage_ = gaussians.shrinkage
    name = type(learner).__name__
    n_components = choose_n_varying_directions(
        learner.n_components, name, n_classes, gaussians.rank
    )

    def store_divergences(U: Matrix) -> None:
        learner.divergences_ = divergence.values(gaussians.family.project(U))

    objective = make_averaged_objective(gaussians.family, divergence, average)
    return search_components(
        learner,
        statistics,
        gaussians.basis,
        objective,
        n_components,
        family=gaussians.family,
        invariant=divergence.invariant,
        store_results=store_divergences,
    )


def make_divergence(
    divergence: Literal["kl", "l2"] | Divergence, convention: Convention
) -> Divergence:
    """Return the divergence for a value of the parameter ``divergence``."""
    if not isinstance(divergence, str):
        return divergence
    return SquaredDifference() if divergence == "l2" else KullbackLeibler(convention)


def compute_class_priors(statistics: ClassStatistics, priors: Priors) -> Matrix:
    """Return the class frequencies, or 1 / n_classes for each class."""
    if priors == "uniform":
        return np.full(statistics.n_classes, 1 / statistics.n_classes)
    return statistics.weights / statistics.total_weight


def compute_pair_weights(statistics: ClassStatistics, priors: Priors) -> Matrix:
    """Return a matrix (c, c) of pair weights π_i π_j with zero diagonal and sum 1."""
    pi = compute_class_priors(statistics, priors)
    weights = np.outer(pi, pi)
    np.fill_diagonal(weights, 0.0)
    return weights / weights.sum()


def limit_divergences(D: Matrix) -> Matrix:
    """Return the divergences, raised to a positive lower limit so that logarithms are finite."""
    return np.maximum(D, MIN_RELATIVE_DIVERGENCE * min(1.0, max(float(D.max()), 1e-30)))


def make_generalized_mean(weights: Matrix, mean: str | float | Phi) -> Average:
    r"""Return a function that computes a generalized mean of divergences and its derivatives.

    The mean is :math:`V = \varphi^{-1}(\sum w \varphi(D))`, with the derivatives
    :math:`w_{ij}\,\varphi'(D_{ij}) / \varphi'(V)`. For the power r they are
    :math:`w_{ij} (D_{ij}/V)^{r-1}`, where r = 0 is the geometric mean.
    """
    if isinstance(mean, tuple):
        phi, derivative, inverse = mean

        def compute_custom_mean(D: Matrix) -> tuple[float, Matrix]:
            D = limit_divergences(D)
            V = np.asarray(inverse(np.asarray(np.sum(weights * phi(D)))))
            return float(V), weights * derivative(D) / derivative(V)

        return compute_custom_mean
    power = _MEAN_POWERS[mean] if isinstance(mean, str) else float(mean)

    def compute_power_mean(D: Matrix) -> tuple[float, Matrix]:
        D = limit_divergences(D)
        # Scale the divergences so that large positive or negative powers do not overflow.
        scale = float(D.max() if power >= 0 else D[weights > 0].min())
        D = np.where(weights > 0, D / scale, 1.0)
        if power == 0:
            V = float(np.exp(np.sum(weights * np.log(D))))
        else:
            V = float(np.sum(weights * D**power) ** (1 / power))
        return scale * V, weights * (D / V) ** (power - 1)

    return compute_power_mean
