"""Pareto discriminant analysis: one objective per pair of classes, combined into one number."""

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
from nearfar.notices import warn_not_converged
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

# Number of starts with n_init=None if there are fewer than n_classes - 1 components, because close
# classes may then overlap in the Fisher subspace.
_STARTS = 3
# Maximum number of iterations per start with max_iter=None.
_STEPS = {"lbfgs": 1000, "gradient": 100}


class PARDA(StatisticsLearner):
    r"""Pareto discriminant analysis: the divergence of each pair of classes is an objective.

    Each class is a Gaussian. After projection by U, with :math:`\Phi_i = (U^T \Sigma_i U)^{-1}` and
    :math:`u_{ij} = m_i - m_j`, the objective of classes i and j is twice Jeffreys' divergence,

    .. math::
        J_{ij}(U) = \mathrm{tr}\,\Phi_i U^T (\Sigma_j + u_{ij} u_{ij}^T) U +
        \mathrm{tr}\,\Phi_j U^T (\Sigma_i + u_{ij} u_{ij}^T) U - 2q ,

    PARDA combines these :math:`c(c-1)/2` objectives into one number: their weighted sum, which is
    maximized, or their weighted squared distance to a target, which is minimized,

    .. math::
        \sum_{i<j} w_{ij} J_{ij}(U) \qquad \text{or} \qquad
        \sum_{i<j} w_{ij}\,(J_{ij}(U) - t_{ij})^2 , \qquad w_{ij} \propto J_{ij}(U_0)^{-s} .

    The weights favor close pairs. In the published method, they are computed in the Fisher
    subspace :math:`U_0`. By default, they are those of the solution itself,
    :math:`w_{ij} \propto J_{ij}(U)^{-s}`, so that pairs which are distant in :math:`U_0` are not
    neglected. Such a U maximizes the power mean :math:`(\mathrm{mean}\,J^{1-s})^{1/(1-s)}`, which
    for s = 2 is the harmonic mean of the divergences. With ``pairing="one_vs_all"``, each class is
    paired with all other classes as one Gaussian, which gives c objectives.

    Use it if classes differ in shape, and some are close while others are distant. Divergences
    have no upper bound and are inflated by small variances that are noise: without shrinkage, the
    optimum mostly has larger errors than LDA. So by default each covariance is mixed half and half
    with the pooled one (``shrinkage``). The published loop (``solver="gradient"``) stops early
    instead. If classes mask one another, use ``pairing="one_vs_one"``, since in "one_vs_all" the
    other classes are one wide Gaussian.

    Cost: one pass of O(n p²). Then O(c p² q) per iteration, or O(n p q) if classes have fewer rows
    than features, plus O(c² q² + c q³), with 10 to 300 iterations in most cases. No p×p matrix is
    computed per pair.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to n_features. None means
        ``min(n_classes - 1, n_features - 1)``, and at least 1.
    pairing : {"one_vs_one", "one_vs_all"}, default="one_vs_one"
        Pairs that define the objectives: pairs of classes, or each class against the rest.
    scalarization : {"weighted_sum", "l_delta"}, default="weighted_sum"
        How the objectives are combined: weighted sum, or weighted squared distance to the target.
    weights : {"auto", "adaptive", "inverse_power", "uniform"} or array, default="auto"
        Weights of the objectives, see Notes. They are divided by their sum.
    weight_power : float, default=2
        Exponent s of the weights.
    target : {"thesis", "full", "ideal"}, float or array, default="thesis"
        Target of "l_delta": a name, see Notes, one number for all pairs, or an array of the same
        shape as ``weights``.
    include_constant : bool, default=False
        If True, the weights and the published target use :math:`J + 2q` instead of J, which is how
        equation 4.11 of [1]_ prints the divergence.
    shrinkage : float in [0, 1], default=0.5
        Shrinkage of the covariances: fraction of the pooled within-class covariance in each class
        covariance. 0 is as published. See Notes.
    ridge : float, default=1e-3
        Value added to the variances: of all covariances, after scaling to unit total variance, so
        that it does not depend on units. 0 raises if a covariance is singular.
    n_principal : int, "auto" or None, default="auto"
        Number of principal components to project X onto before learning. None keeps all. For
        "auto" see Notes. The components depend on the units of the features.
    init : {"lda", "random"} or array of shape (n_components, n_features), default="lda"
        Starting point. The first start is the Fisher subspace ("lda") or the array, the others add
        noise to it. "random" draws all starts.
    init_noise : float, default=0.3
        Standard deviation of the noise added to a whole column of the first start.
    n_init : int or None, default=None
        Number of starts. None means 1, or 3 with fewer than ``n_classes - 1`` components, where
        close classes may overlap in the Fisher subspace. [1]_ uses 10.
    selection : {"objective", "error"}, default="objective"
        Criterion that selects the best start: the objective, or, as published, the training error
        of :class:`MinimumMahalanobisClassifier`. See Notes.
    solver : {"lbfgs", "gradient"}, default="lbfgs"
        Optimization algorithm: L-BFGS, or the published gradient steps, which are shortened by the
        golden ratio if the objective becomes worse.
    step : float, default=0.01
        Step size of the solver "gradient".
    normalize_step : bool, default=True
        If True, gradient steps have the length ``step``. If False, the gradient is multiplied by
        ``step``, as published.
    max_iter : int or None, default=None
        Maximum number of iterations. It applies to each start. None means 1000 for "lbfgs", which
        warns if it did not converge, and 100 for "gradient", where the limit is part of the method.
    tol : float, default=1e-6
        Tolerance of the solver. "gradient" stops when the weighted sum of divergences changes
        relatively by less, "lbfgs" when the projector onto the subspace changes by less than
        ``sqrt(tol)``, which has about the same effect on the sum.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It draws the starts and the points of ``selection``.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix: the principal axes of the class means in the subspace, scaled so that
        the pooled within-class covariance (with the ridge) is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    n_principal_ : int or None
        Number of principal components that were kept. None means all.
    selection_ : {"rows", "samples", "objective"}
        Criterion that selected the start: errors on the training rows, errors on points drawn from
        the class Gaussians, or objectives.
    divergences_, initial_divergences_ : ndarray
        J at the solution and in the Fisher subspace, of shape (n_classes, n_classes), or
        (n_classes,) with ``pairing="one_vs_all"``.
    weights_ : ndarray of the same shape
        Weights of the objectives ("adaptive": at the solution). Over all pairs i < j, they sum
        to 1.
    targets_ : ndarray of the same shape
        Targets, only with ``scalarization="l_delta"``.
    objective_ : float
        Combined objective at the solution. With adaptive weights, it is the power mean.
    objectives_per_init_, errors_per_init_ : ndarray of shape (n_init,)
        Final objective and error of each start. Errors only with ``selection="error"``.
    best_init_ : int
        Index of the start that was kept.
    history_ : dict of lists
        Progress of this start per accepted step, with the keys "objective", "step" and "seconds".
    n_iter_ : int
        Number of accepted steps of this start.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    MGMKLD, MODA, LDA

    Notes
    -----
    The values of ``weights`` are:

    - "adaptive": :math:`J^{-s}` of the solution. It needs ``scalarization="weighted_sum"``.
    - "inverse_power": :math:`J^{-s}` of the Fisher subspace, as published.
    - "uniform": equal weights. The weighted sum is then MODA with one cluster per class.
    - "auto": "adaptive" for the weighted sum, "inverse_power" for the distance to a target.
    - an array: symmetric and of shape (n_classes, n_classes), or of shape (n_classes,) with
      ``pairing="one_vs_all"``.

    The values of ``target`` are:

    - "thesis": :math:`(2 \max J(U_0))^2` for all pairs, as published.
    - "full": the largest divergence without a projection, which is an upper limit. Costs O(c p³).
    - "ideal": for each pair, the largest divergence that a projection reaches. Costs one search
      per pair.

    The published target is far above all reachable divergences, so that :math:`J - t \approx -t`.
    The squared distance then decreases in the direction in which the weighted sum increases: the
    cosine of the two directions is above 0.9999 on all datasets that were tried. With the same
    weights, both scalarizations give the same subspace. To obtain similar divergences for all
    pairs, use ``target="full"`` or a moderate number, with ``weights="uniform"``.

    "inverse_power" and "thesis" always use the Fisher subspace, whatever ``init`` is.

    Less ``shrinkage`` may be better if classes have many rows and differ much in shape (shuttle:
    3.9% error with 0.25, 5.4% with 0.5), and worse otherwise (yeast: 51.4% and 49.4%). A class
    with a single row gets the pooled covariance.

    ``n_principal="auto"`` keeps all components if there are at least three rows per feature.
    Otherwise it keeps a tenth of the number of rows, and at least three per output dimension.
    Whitening would scale the noise in the other components up to the size of the signal.

    With ``selection="error"``, ties go to the first start. After ``partial_fit`` and with dask
    data, no rows are in memory, and the error is measured on points drawn from the class Gaussians.

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
    >>> bool(parda.weights_[1, 2] > 0.9)  # Versicolor and virginica are the closest pair.
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
        """Fit the model to all rows. Earlier fits are discarded.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points. With ``selection="error"``, the starts are compared by the error on
            these rows if they are in memory.
        y : array-like, dask array or dask series of shape (n_samples,)
            Labels.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        PARDA
            The fitted learner.
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
        """Return the components of the best subspace found from the starts."""
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
        # Separate random streams, so that the starts do not depend on ``selection``.
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
            warn_not_converged("PARDA", self._max_iter)
        return keep(found)

    @property
    def _max_iter(self) -> int:
        return _STEPS[self.solver] if self.max_iter is None else self.max_iter

    def _starts(self, gaussians: ClassObjectives, q: int, seed: int) -> Iterator[Matrix]:
        """Yield the Fisher subspace, then the starts."""
        random = np.random.RandomState(seed)
        statistics, basis = gaussians.statistics, gaussians.basis
        frame = random_frame(statistics, basis)
        first = fisher_start(statistics, basis, frame, q, random)
        yield first
        if not isinstance(self.init, str):
            first = orthonormal(given_start(self.init, basis, q))
        # Adding noise makes the signs of the columns matter. Fix them in a way that does not depend
        # on the order or the units of the features.
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
        """Return the combined objective. Its fixed weights and targets use the Fisher subspace."""
        J = gaussians.divergences(fisher)
        constant = 2.0 * fisher.shape[1] if self.include_constant else 0.0
        summed = self.scalarization == "weighted_sum"
        kind = self.weights
        if isinstance(kind, str) and kind == "auto":
            kind = "adaptive" if summed else "inverse_power"
        if isinstance(kind, str) and kind == "adaptive":
            if not summed:
                raise ValueError(
                    "weights='adaptive' needs scalarization='weighted_sum', but scalarization is "
                    "'l_delta', which needs fixed weights. Use weights='inverse_power'."
                )
            return PowerMean(self.weight_power, len(J), constant)
        if isinstance(kind, str):
            power = self.weight_power if kind == "inverse_power" else 0.0
            weights = inverse_power_weights(J + constant, power)
            warn_of_one_weight(weights)
        else:
            weights = gaussians.vector(kind, "weights")
            if (weights < 0).any() or weights.sum() <= 0:
                raise ValueError(
                    "weights must not contain negative values, and at least one must be positive."
                )
            weights = weights / weights.sum()
        targets = None if summed else self._targets(gaussians, fisher, J + constant)
        return Scalarized(weights, targets)

    def _targets(self, gaussians: ClassObjectives, fisher: Matrix, shown: Matrix) -> Matrix:
        if not isinstance(self.target, str):
            targets = gaussians.vector(self.target, "target")
            if (targets <= 0).any():
                raise ValueError("target must be positive, because divergences are positive.")
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
        # Convergence is checked on the weighted sum, since the squared distance to a distant target
        # has a large offset that hides changes.
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
        """Return the function that computes a subspace's error, or None to use the objective."""
        if self.selection == "objective":
            self.selection_ = "objective"
            return None
        held = vars(self).get("_rows")
        if held is None:
            self.selection_ = "samples"
            return error_on_samples(gaussians, q, np.random.RandomState(seed))
        self.selection_ = "rows"
        return error_on_rows(gaussians, *held)
