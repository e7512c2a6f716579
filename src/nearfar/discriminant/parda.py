"""Pareto discriminant analysis: many divergences between classes as objectives of one map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.base.progress import report_of
from nearfar.discriminant.checks import check_classes, n_kept
from nearfar.discriminant.pareto_objectives import (
    ClassObjectives,
    Pairing,
    PowerMean,
    Scalarized,
    class_objectives,
    inverse_power_weights,
    n_axes_for,
    warn_of_one_weight,
)
from nearfar.discriminant.searching import fisher_start, given_start, random_frame
from nearfar.discriminant.subspace_errors import error_on_rows, error_on_samples
from nearfar.notices import warn_of_limit
from nearfar.parameters import array, boolean, integer, none, one_of, random_state, real
from nearfar.solvers.eigen import fix_signs
from nearfar.solvers.subspaces import (
    Interrupted,
    SubspaceSearch,
    best_of_starts,
    climb_subspace,
    orthonormal,
    search_subspace,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.distributed import is_dask

# Starts where the Fisher subspace may lay close classes upon each other, and steps at most.
_STARTS = 3
_STEPS = {"lbfgs": 1000, "gradient": 100}


class PARDA(StatisticsLearner):
    r"""Pareto discriminant analysis: every pair of classes is an objective of its own.

    Each class is a Gaussian. After projection by U, with :math:`\Phi_i = (U^T \Sigma_i U)^{-1}` and
    :math:`u_{ij} = m_i - m_j`, classes i and j are apart by twice Jeffreys' divergence,

    .. math::
        J_{ij}(U) = \mathrm{tr}\,\Phi_i U^T (\Sigma_j + u_{ij} u_{ij}^T) U +
        \mathrm{tr}\,\Phi_j U^T (\Sigma_i + u_{ij} u_{ij}^T) U - 2q ,

    and of these :math:`c(c-1)/2` objectives one number is made: their weighted sum, to be
    maximised, or their weighted squared distance to a target, to be minimised,

    .. math::
        \sum_{i<j} w_{ij} J_{ij}(U) \qquad \text{or} \qquad
        \sum_{i<j} w_{ij}\,(J_{ij}(U) - t_{ij})^2 , \qquad w_{ij} \propto J_{ij}(U_0)^{-s} .

    The weights favour pairs that are close: as published, in the Fisher subspace :math:`U_0`. By
    default they are those of the solution itself, :math:`w_{ij} \propto J_{ij}(U)^{-s}`, so that no
    pair is given up that was far apart in :math:`U_0`. Such a U maximises the power mean
    :math:`(\mathrm{mean}\,J^{1-s})^{1/(1-s)}`, for s = 2 the harmonic mean of the divergences.
    With ``pairing="one_vs_all"`` each class is paired with all others as one Gaussian, which makes
    c objectives.

    *The two scalarisations.* The published target, :math:`t = (2 \max J(U_0))^2` for all pairs,
    lies so far above anything in reach that :math:`J - t \approx -t`: the squared distance then
    falls in the direction in which the weighted sum grows (the cosine of the two directions is
    above 0.9999 on all data tried), and both give the same subspace, with equal weights. For one
    that really evens out the divergences, choose ``target="full"`` or a moderate number, with
    ``weights="uniform"``.

    Use it when classes differ in shape, and some are close while others are far away. Divergences
    have no upper bound, and feed on small variances that are noise: at the optimum for the
    covariances as they are, errors are mostly larger than under LDA. So half of each covariance is
    the pooled one (``shrinkage``); the published loop (``solver="gradient"``) stops early instead.
    Classes that mask one another need pairs: with one against all, the rest is one wide Gaussian.

    Cost: one pass of O(n p²); then for each step O(c p² q), or O(n p q) where classes have fewer
    rows than features, and O(c² q² + c q³); mostly 10 to 300 steps. No p×p matrix is made for a
    pair.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to the number of features; None is ``n_classes - 1``, or one
        less than the number of features if that is less.
    pairing : {"one_vs_one", "one_vs_all"}, default="one_vs_one"
        What the objectives are: pairs of classes, or each class against the rest.
    scalarization : {"weighted_sum", "l_delta"}, default="weighted_sum"
        The weighted sum, or the weighted squared distance to the target.
    weights : {"auto", "adaptive", "inverse_power", "uniform"} or array, default="auto"
        :math:`J^{-s}` of the solution ("adaptive", for a weighted sum only), that of the Fisher
        subspace ("inverse_power", as published), all alike (the weighted sum is then the unimodal
        MODA), or your own: (n_classes, n_classes), symmetric, for pairs, or (n_classes,) for each
        class against the rest. They are divided by their sum. "auto" is "adaptive" for the
        weighted sum, and "inverse_power" for the distance to a target.
    weight_power : float, default=2
        s of the weights.
    target : {"thesis", "full", "ideal"}, float or array, default="thesis"
        For "l_delta": as published, see above; the largest divergence without any projection,
        which none can exceed (O(c p³)); for each pair the largest that a projection reaches (one
        search for each of them); or your own, shaped as ``weights``.
    include_constant : bool, default=False
        Whether weights and the published target are made of :math:`J + 2q`, as equation 4.11
        prints the divergence.
    shrinkage : float in [0, 1], default=0.5
        What is mixed into covariances: this share of each is the pooled within-class one; 0 is as
        published. Where classes of many rows differ much in shape less may be better (shuttle:
        errors of 3.9 % with 0.25, 5.4 with 0.5), elsewhere worse (yeast: 51.4 and 49.4).
    ridge : float, default=1e-3
        What is added to variances: those of every covariance, where the total variance is
        one in all directions; so it depends on no units. 0 raises where a covariance is singular.
        A class of one row has the pooled covariance.
    n_principal : int, "auto" or None, default="auto"
        Principal components that are kept before anything is whitened: None is all. "auto" is None,
        or where rows are fewer than three times the features a tenth of the number of rows (three
        for each component at least): the others would be noise made as large as the rest. They
        depend on the units of the features.
    init : {"lda", "random"} or array of shape (n_components, n_features), default="lda"
        Where to start: from the Fisher subspace, or your own; the other starts are that one with
        noise added. "random" draws all of them. Weights and targets come from the Fisher subspace
        always.
    init_noise : float, default=0.3
        Standard deviation of that noise for a whole column.
    n_init : int or None, default=None
        Number of starts. None is one, or three with fewer than ``n_classes - 1`` components: then
        close classes may lie upon each other in the Fisher subspace. (The thesis has 10.)
    selection : {"objective", "error"}, default="objective"
        Which start is kept: the one with the best objective; or with the least error of
        :class:`MinimumMahalanobisClassifier` on the training rows (of equal ones, the first), as
        published. After ``partial_fit``, or from dask, there are no rows: points drawn from the
        class Gaussians take their place.
    solver : {"lbfgs", "gradient"}, default="lbfgs"
        L-BFGS to an optimum; or steps along the gradient, shortened by the golden ratio when one is
        for the worse, as published.
    step : float, default=0.01
        Length of a step along the gradient.
    normalize_step : bool, default=True
        Steps have the length ``step``; with False the gradient is multiplied by it, as published.
    max_iter : int or None, default=None
        Steps at most: from each start; None is 1000, after which a warning says that L-BFGS did not
        converge, or 100 along the gradient, where to stop is part of the method.
    tol : float, default=1e-6
        The gradient solver stops when the weighted sum of the divergences changes by less,
        relatively; L-BFGS when the projector on the subspace moves by less than its root, which
        changes the sum by about as much.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the starts, and points from the class Gaussians.
    verbose : int, default=0
        Print the progress: one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map: principal axes of the class means in the subspace, scaled so that the pooled
        within-class covariance (with its ridge) is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    n_principal_ : int or None
        What "auto" was, or what was given.
    selection_ : {"rows", "samples", "objective"}
        What the starts were compared by: errors on the training rows, errors on points drawn from
        the class Gaussians, or objectives.
    divergences_, initial_divergences_ : ndarray
        J at the solution and in the Fisher subspace: (n_classes, n_classes), or (n_classes,) for
        each class against the rest.
    weights_ : ndarray of the same shape
        Weights, "adaptive" ones those at the solution; those of all pairs i < j sum to one.
    targets_ : ndarray of the same shape
        Targets; for "l_delta" only.
    objective_ : float
        The scalarised objective at the solution; with adaptive weights the power mean.
    objectives_per_init_, errors_per_init_ : ndarray of shape (n_init,)
        Where each start ended; the errors with ``selection="error"`` only.
    best_init_ : int
        Which start was kept.
    history_ : dict of lists
        "objective", "step" and "seconds" of that start; only steps that were taken.
    n_iter_ : int
        Their number.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    MGMKLD, MODA, LDA

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011,
       section 4.6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import PARDA
    >>> X, y = load_iris(return_X_y=True)
    >>> parda = PARDA().fit(X, y)
    >>> parda.transform(X).shape, parda.selection_
    ((150, 2), 'objective')
    >>> bool(parda.weights_[1, 2] > 0.9)  # versicolor and virginica are the closest
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    pooled_statistics = False
    settings = ({"pairing": "one_vs_all"}, {"weights": "uniform"})
    renamed_values: ClassVar = {
        "pairing": {"one-vs-one": "one_vs_one", "one-vs-all": "one_vs_all"},
        "scalarization": {"weighted-sum": "weighted_sum", "l-delta": "l_delta"},
        "weights": {"inverse-power": "inverse_power"},
    }
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "pairing": [one_of("one_vs_one", "one_vs_all")],
        "scalarization": [one_of("weighted_sum", "l_delta")],
        "weights": [one_of("auto", "adaptive", "inverse_power", "uniform"), array],
        "weight_power": [real(0)],
        "target": [one_of("thesis", "full", "ideal"), real(0, open_low=True), array],
        "include_constant": [boolean],
        "shrinkage": [real(0, 1)],
        "ridge": [real(0)],
        "n_principal": [none, one_of("auto"), integer(1)],
        "init": [one_of("lda", "random"), array],
        "init_noise": [real(0)],
        "n_init": [none, integer(1)],
        "selection": [one_of("objective", "error")],
        "solver": [one_of("lbfgs", "gradient")],
        "step": [real(0, open_low=True)],
        "normalize_step": [boolean],
        "max_iter": [none, integer(1)],
        "tol": [real(0)],
        "random_state": [random_state],
        "verbose": [boolean, integer(0)],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        pairing: Pairing = "one_vs_one",
        scalarization: Literal["weighted_sum", "l_delta"] = "weighted_sum",
        weights: Literal["auto", "adaptive", "inverse_power", "uniform"] | ArrayLike = "auto",
        weight_power: float = 2.0,
        target: Literal["thesis", "full", "ideal"] | float | ArrayLike = "thesis",
        include_constant: bool = False,
        shrinkage: float = 0.5,
        ridge: float = 1e-3,
        n_principal: int | Literal["auto"] | None = "auto",
        init: Literal["lda", "random"] | ArrayLike = "lda",
        init_noise: float = 0.3,
        n_init: int | None = None,
        selection: Literal["objective", "error"] = "objective",
        solver: Literal["lbfgs", "gradient"] = "lbfgs",
        step: float = 0.01,
        normalize_step: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.pairing = pairing
        self.scalarization = scalarization
        self.weights = weights
        self.weight_power = weight_power
        self.target = target
        self.include_constant = include_constant
        self.shrinkage = shrinkage
        self.ridge = ridge
        self.n_principal = n_principal
        self.init = init
        self.init_noise = init_noise
        self.n_init = n_init
        self.selection = selection
        self.solver = solver
        self.step = step
        self.normalize_step = normalize_step
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from all rows at once; forgets what was learned before.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points. With ``selection="error"``, rows in memory choose among the starts.
        y : array-like, dask array or dask series of shape (n_samples,)
            Labels.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        PARDA
            Itself.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=True, min_samples=2)
        if self.selection == "error" and not is_dask(rows):
            self._rows = rows, y, sample_weight
        try:
            return self._fit_with(partial(self._accumulate, rows, y, sample_weight))
        finally:
            self.__dict__.pop("_rows", None)

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Components of the best subspace that the starts led to."""
        check_classes("PARDA", statistics.classes)
        self.classes_ = statistics.classes
        self.n_principal_ = None if isinstance(self.n_principal, str) else self.n_principal
        if self.n_principal == "auto":
            self.n_principal_ = n_axes_for(statistics, self.n_components)
        gaussians = class_objectives(
            statistics,
            self.pairing,
            self.ridge,
            self.n_principal_,
            at_most=self.n_principal == "auto",
            shrinkage=self.shrinkage,
        )
        rank = gaussians.basis.shape[1]
        reason = f"the {rank} directions in which X varies"
        default = min(statistics.n_classes - 1, max(rank - 1, 1))
        kept = n_kept(self.n_components, default, rank, "PARDA", reason)
        random = check_random_state(self.random_state)
        # Streams of their own: the starts do not depend on how one of them is chosen.
        start_seed, draw_seed = random.randint(2**31 - 1, size=2)
        starts = self._starts(gaussians, kept, start_seed)
        fisher = next(starts)
        scalarized = self._scalarized(gaussians, fisher)
        self.initial_divergences_ = gaussians.table(gaussians.divergences(fisher))
        error_of = self._error_of(gaussians, kept, draw_seed)
        ends: list[SubspaceSearch] = []
        errors: list[float] = []

        def judge(found: SubspaceSearch) -> float:
            error = None if error_of is None else error_of(orthonormal(found.U))
            ends.append(found)
            errors.extend([] if error is None else [error])
            return -scalarized.sign * found.objective if error is None else error

        def keep(found: SubspaceSearch) -> Matrix:
            U = orthonormal(found.U)
            J = gaussians.divergences(U)
            self.divergences_ = gaussians.table(J)
            self.objective_ = scalarized.value(J)
            self.weights_ = gaussians.table(scalarized.weights_at(J))
            if scalarized.targets is not None:
                self.targets_ = gaussians.table(scalarized.targets)
            self.objectives_per_init_ = np.array(found.objectives)
            if errors:
                self.errors_per_init_ = np.array(errors)
            self.best_init_ = next(k for k, end in enumerate(ends) if end is found)
            self.history_, self.n_iter_ = found.history, found.n_iter
            return gaussians.components(U)

        try:
            found = best_of_starts(
                scalarized.objective(gaussians),
                starts,
                maximize=scalarized.sign > 0,
                solver=self._solver(scalarized),
                judge=judge,
            )
        except Interrupted as stop:
            stop.components = keep(stop.found)
            raise
        if self.solver == "lbfgs" and not found.converged:
            warn_of_limit("PARDA", self._max_iter)
        return keep(found)

    @property
    def _max_iter(self) -> int:
        return _STEPS[self.solver] if self.max_iter is None else self.max_iter

    def _starts(self, gaussians: ClassObjectives, q: int, seed: int) -> Iterator[Matrix]:
        """First the Fisher subspace itself, then as many starts as are asked for."""
        random = np.random.RandomState(seed)
        statistics, basis = gaussians.statistics, gaussians.basis
        frame = random_frame(statistics, basis)
        first = fisher_start(statistics, basis, frame, q, random)
        yield first
        if not isinstance(self.init, str):
            first = orthonormal(given_start(self.init, basis, q))
        # The sum with noise depends on the signs of the columns, and they on no order or unit.
        rows = (basis @ first).T * np.sqrt(statistics.total_variances())
        first = first * np.sign(np.sum(rows * fix_signs(rows), axis=1))
        size = self.init_noise / np.sqrt(basis.shape[1])
        for number in range(self._n_starts(statistics, q)):
            noise = frame @ random.normal(size=(frame.shape[1], q))
            if isinstance(self.init, str) and self.init == "random":
                yield orthonormal(noise)
            else:
                yield first if number == 0 else orthonormal(first + size * noise)

    def _n_starts(self, statistics: ClassStatistics, q: int) -> int:
        if self.n_init is not None:
            return self.n_init
        return 1 if q >= statistics.n_classes - 1 else _STARTS

    def _scalarized(self, gaussians: ClassObjectives, fisher: Matrix) -> Scalarized:
        """What is made of the divergences; weights and target of the Fisher subspace stay fixed."""
        J = gaussians.divergences(fisher)
        constant = 2.0 * fisher.shape[1] if self.include_constant else 0.0
        summed = self.scalarization == "weighted_sum"
        kind = self.weights
        if isinstance(kind, str) and kind == "auto":
            kind = "adaptive" if summed else "inverse_power"
        if isinstance(kind, str) and kind == "adaptive":
            if not summed:
                raise ValueError(
                    "weights='adaptive' needs scalarization='weighted_sum': the weights of a "
                    "distance to targets are fixed. Use weights='inverse_power'."
                )
            return PowerMean(self.weight_power, len(J), constant)
        if isinstance(kind, str):
            power = self.weight_power if kind == "inverse_power" else 0.0
            weights = inverse_power_weights(J + constant, power)
            warn_of_one_weight(weights)
        else:
            weights = gaussians.vector(kind, "weights")
            if (weights < 0).any() or weights.sum() <= 0:
                raise ValueError("weights must not be negative, and some must be above zero.")
            weights = weights / weights.sum()
        targets = None if summed else self._targets(gaussians, fisher, J + constant)
        return Scalarized(weights, targets)

    def _targets(self, gaussians: ClassObjectives, fisher: Matrix, shown: Matrix) -> Matrix:
        if not isinstance(self.target, str):
            targets = gaussians.vector(self.target, "target")
            if (targets <= 0).any():
                raise ValueError("target must be positive: divergences are.")
            return targets
        if self.target == "thesis":
            return np.full(len(shown), (2 * shown.max()) ** 2)
        if self.target == "full":
            return np.full(len(shown), gaussians.divergences(np.eye(len(fisher))).max())
        return np.array(
            [
                search_subspace(
                    Scalarized(alone, None).objective(gaussians), fisher, max_iter=200, tol=1e-4
                ).objective
                for alone in np.eye(len(shown))
            ]
        )

    def _solver(self, scalarized: Scalarized) -> Callable[..., SubspaceSearch]:
        report = report_of(self)
        if self.solver == "lbfgs":
            return partial(
                search_subspace, max_iter=self._max_iter, tol=np.sqrt(self.tol), report=report
            )
        # Watched is what has no offset, as the squared distance to a target far away has.
        return partial(
            climb_subspace,
            step=self.step,
            normalize=self.normalize_step,
            max_iter=self._max_iter,
            tol=self.tol,
            watched=lambda: scalarized.weighted_sum,
            report=report,
        )

    def _error_of(
        self, gaussians: ClassObjectives, q: int, seed: int
    ) -> Callable[[Matrix], float] | None:
        """The error of a subspace, by which the starts are compared; None for their objective."""
        if self.selection == "objective":
            self.selection_ = "objective"
            return None
        held = vars(self).get("_rows")
        if held is None:
            self.selection_ = "samples"
            return error_on_samples(gaussians, q, np.random.RandomState(seed))
        self.selection_ = "rows"
        return error_on_rows(gaussians, *held)
