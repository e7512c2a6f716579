"""Pareto discriminant analysis: many divergences between classes as objectives of one map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
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
    Scalarized,
    class_objectives,
    inverse_power_weights,
    n_axes_for,
)
from nearfar.discriminant.searching import fisher_start, given_start, random_frame
from nearfar.discriminant.subspace_errors import error_on_rows, error_on_samples, left_out
from nearfar.notices import warn, warn_of_limit
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

#: The ridges that "auto" tries, largest first; the last where there are no rows to try them on.
RIDGES = (10.0, 1.0, 0.1, 0.01, 0.001)
# Steps for each of them at most, and in a search by default.
_TRIAL_STEPS = 50
_STEPS = {"lbfgs": 500, "gradient": 100}
# Of a weight above this the other objectives notice nothing.
_ALL_THE_WEIGHT = 0.999


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
        \sum_{i<j} w_{ij}\,(J_{ij}(U) - t_{ij})^2 , \qquad w_{ij} \propto J_{ij}(U_0)^{-2} .

    The weights favour pairs that the Fisher subspace :math:`U_0` leaves close. With
    ``pairing="one_vs_all"`` each class is paired with all others as one Gaussian, which makes c
    objectives.

    *The two scalarisations.* The published target, :math:`t = (2 \max J(U_0))^2` for all pairs,
    lies so far above anything in reach that :math:`J - t \approx -t`: the squared distance then
    falls in the direction in which the weighted sum grows (the cosine of the two directions is
    above 0.9999 on all data tried), and both give the same subspace. For one that really evens out
    the divergences, choose ``target="full"`` or a moderate number, with ``weights="uniform"``.

    Use it when classes differ in shape, and some are close while others are far away. Divergences
    have no upper bound, and feed on small variances that are noise: by default rows left out choose
    the ridge, from one that leaves little but the distances of the means (nearly the Fisher
    subspace) to a small one; the published loop (``solver="gradient"``) stops early instead. Its
    failure: the weights follow the closest pair. With fewer than ``n_classes - 1`` components they
    may merge another pair (a warning says when one has all the weight); see :class:`MGMKLD`.

    Cost: one pass of O(n p²), and another for the rows left in; then for each step from each start
    O(c p² q), or O(n p q) where classes have fewer rows than features, and O(c² q² + c q³). No p×p
    matrix is made for a pair.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to the number of features; None is ``n_classes - 1``, or one
        less than the number of features if that is less.
    pairing : {"one_vs_one", "one_vs_all"}, default="one_vs_one"
        What the objectives are: pairs of classes, or each class against the rest.
    scalarization : {"weighted_sum", "l_delta"}, default="weighted_sum"
        The weighted sum, or the weighted squared distance to the target.
    weights : {"inverse_power", "uniform"} or array, default="inverse_power"
        :math:`J(U_0)` to the power ``-weight_power``, all alike (the weighted sum is then the
        unimodal MODA), or your own: (n_classes, n_classes), symmetric, for pairs, or (n_classes,)
        for each class against the rest. They are divided by their sum.
    weight_power : float, default=2
        See ``weights``.
    target : {"thesis", "full", "ideal"}, float or array, default="thesis"
        For "l_delta": as published, see above; the largest divergence without any projection,
        which none can exceed (O(c p³)); for each pair the largest that a projection reaches (one
        search for each of them); or your own, shaped as ``weights``.
    include_constant : bool, default=False
        Whether weights and the published target are made of :math:`J + 2q`, as equation 4.11
        prints the divergence.
    ridge : float or "auto", default="auto"
        What is added to variances: those of every covariance, where the total variance is one in
        all directions; so it depends on no units. 0 raises where a covariance is singular. A class
        of one row has the pooled covariance. "auto" takes the one of 10, 1, 0.1, 0.01 and 0.001
        with the least error on a quarter of the rows, left out, after a search on the others; 0.001
        after ``partial_fit``, or from dask.
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
    n_init : int, default=3
        Number of starts. (The thesis has 10.)
    selection : {"error", "objective"}, default="error"
        Which start is kept: the one with the least error of :class:`MinimumMahalanobisClassifier`
        on the training rows (of equal ones, the first); or with the best objective. After
        ``partial_fit``, or from dask, there are no rows: points drawn from the class Gaussians take
        their place.
    solver : {"lbfgs", "gradient"}, default="lbfgs"
        L-BFGS to an optimum; or steps along the gradient, shortened by the golden ratio when one is
        for the worse, as published.
    step : float, default=0.01
        Length of a step along the gradient.
    normalize_step : bool, default=True
        Steps have the length ``step``; with False the gradient is multiplied by it, as published.
    max_iter : int or None, default=None
        Steps at most: from each start; None is 500, or 100 along the gradient, where to stop is
        part of the method.
    tol : float, default=1e-6
        The gradient solver stops when the weighted sum of the divergences changes by less,
        relatively; L-BFGS when the projector on the subspace moves by less than its root, which
        changes the sum by about as much.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the starts, and points from the class Gaussians.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map: principal axes of the class means in the subspace, scaled so that the pooled
        within-class covariance (with its ridge) is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    ridge_, n_principal_ : float, and int or None
        What "auto" was, or what was given.
    selection_ : {"rows", "samples", "objective"}
        What the starts were compared by: errors on the training rows, errors on points drawn from
        the class Gaussians, or objectives.
    divergences_, initial_divergences_ : ndarray
        J at the solution and in the Fisher subspace: (n_classes, n_classes), or (n_classes,) for
        each class against the rest.
    weights_ : ndarray of the same shape
        Weights; those of all pairs i < j sum to one.
    targets_ : ndarray of the same shape
        Targets; for "l_delta" only.
    objective_ : float
        The scalarised objective at the solution.
    objectives_per_init_, errors_per_init_ : ndarray of shape (n_init,)
        Where each start ended; the errors unless ``selection="objective"``.
    best_init_ : int
        Which start was kept.
    history_ : dict of lists
        "objective", "step" and "seconds" of that start; only steps that were taken.
    n_iter_ : int
        Their number.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    statistics_ : ClassStatistics
        What was accumulated.

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
    >>> parda.transform(X).shape, parda.selection_, parda.ridge_
    ((150, 2), 'rows', 10.0)
    >>> bool(parda.weights_[1, 2] > 0.5)  # versicolor and virginica are the closest
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    pooled_statistics = False
    settings = ({"pairing": "one_vs_all"}, {"weights": "uniform"})
    same_in_batches: ClassVar = {"selection": "objective", "ridge": 1e-3}
    renamed_values: ClassVar = {
        "pairing": {"one-vs-one": "one_vs_one", "one-vs-all": "one_vs_all"},
        "scalarization": {"weighted-sum": "weighted_sum", "l-delta": "l_delta"},
        "weights": {"inverse-power": "inverse_power"},
    }
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "pairing": [one_of("one_vs_one", "one_vs_all")],
        "scalarization": [one_of("weighted_sum", "l_delta")],
        "weights": [one_of("inverse_power", "uniform"), array],
        "weight_power": [real(0)],
        "target": [one_of("thesis", "full", "ideal"), real(0, open_low=True), array],
        "include_constant": [boolean],
        "ridge": [real(0), one_of("auto")],
        "n_principal": [none, one_of("auto"), integer(1)],
        "init": [one_of("lda", "random"), array],
        "init_noise": [real(0)],
        "n_init": [integer(1)],
        "selection": [one_of("error", "objective")],
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
        weights: Literal["inverse_power", "uniform"] | ArrayLike = "inverse_power",
        weight_power: float = 2.0,
        target: Literal["thesis", "full", "ideal"] | float | ArrayLike = "thesis",
        include_constant: bool = False,
        ridge: float | Literal["auto"] = "auto",
        n_principal: int | Literal["auto"] | None = "auto",
        init: Literal["lda", "random"] | ArrayLike = "lda",
        init_noise: float = 0.3,
        n_init: int = 3,
        selection: Literal["error", "objective"] = "error",
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
            Training points. Rows in memory also choose the ridge, and among the starts.
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
        if not is_dask(rows):
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
        ridge = RIDGES[-1] if self.ridge == "auto" else self.ridge
        axes, at_most = self.n_principal_, self.n_principal == "auto"
        gaussians = class_objectives(statistics, self.pairing, ridge, axes, at_most=at_most)
        rank = gaussians.basis.shape[1]
        reason = f"the {rank} directions in which X varies"
        default = min(statistics.n_classes - 1, max(rank - 1, 1))
        kept = n_kept(self.n_components, default, rank, "PARDA", reason)
        random = check_random_state(self.random_state)
        # Streams of their own: the starts do not depend on how one of them is chosen.
        start_seed, draw_seed, split_seed = random.randint(2**31 - 1, size=3)
        if self.ridge == "auto" and "_rows" in vars(self):
            gaussians = replace(gaussians, ridge=self._left_out_ridge(kept, start_seed, split_seed))
        self.ridge_ = gaussians.ridge
        starts = self._starts(gaussians, kept, start_seed)
        fisher = next(starts)
        scalarized = self._scalarized(gaussians, fisher)
        self._keep_weights(gaussians, scalarized)
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

    def _left_out_ridge(self, q: int, start_seed: int, split_seed: int) -> float:
        """The ridge with the least error on rows left out; each search begins where one ended."""
        split = left_out(*self._rows, self.pairing, self.n_principal_, split_seed)
        if split is None or split[0].basis.shape[1] < q:  # they vary in too few directions
            return RIDGES[-1]
        gaussians, error = split
        fisher = U = next(self._starts(gaussians, q, start_seed))
        errors = []
        for ridge in RIDGES:
            gaussians = replace(gaussians, ridge=ridge)
            scalarized = self._scalarized(gaussians, fisher)
            U = search_subspace(
                scalarized.objective(gaussians),
                U,
                maximize=scalarized.sign > 0,
                max_iter=min(self._max_iter, _TRIAL_STEPS),
                tol=np.sqrt(self.tol),
                polish=False,
            ).U
            errors.append(error(orthonormal(U)))
        return RIDGES[int(np.argmin(errors))]

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
        for number in range(self.n_init):
            noise = frame @ random.normal(size=(frame.shape[1], q))
            if isinstance(self.init, str) and self.init == "random":
                yield orthonormal(noise)
            else:
                yield first if number == 0 else orthonormal(first + size * noise)

    def _scalarized(self, gaussians: ClassObjectives, fisher: Matrix) -> Scalarized:
        """Weights and target, fixed for all starts: to change them would change the problem."""
        J = gaussians.divergences(fisher)
        shown = J + 2 * fisher.shape[1] if self.include_constant else J
        if isinstance(self.weights, str):
            power = self.weight_power if self.weights == "inverse_power" else 0.0
            weights = inverse_power_weights(shown, power)
        else:
            weights = gaussians.vector(self.weights, "weights")
            if (weights < 0).any() or weights.sum() <= 0:
                raise ValueError("weights must not be negative, and some must be above zero.")
            weights = weights / weights.sum()
        if self.scalarization == "weighted_sum":
            return Scalarized(weights, None)
        return Scalarized(weights, self._targets(gaussians, fisher, shown))

    def _keep_weights(self, gaussians: ClassObjectives, chosen: Scalarized) -> None:
        """Show weights and targets; warn where one weight is all."""
        weights = chosen.weights
        if len(weights) > 1 and weights.max() > _ALL_THE_WEIGHT and isinstance(self.weights, str):
            warn(
                f"One of {len(weights)} objectives has {weights.max():.2%} of the weight: the "
                "others are hardly looked at, and classes may fall onto one another. Use "
                "weights='uniform' or a smaller weight_power.",
                UserWarning,
            )
        self.weights_ = gaussians.table(weights)
        if chosen.targets is not None:
            self.targets_ = gaussians.table(chosen.targets)

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
