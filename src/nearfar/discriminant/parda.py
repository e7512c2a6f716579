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
from nearfar.base.progress import get_reporter
from nearfar.discriminant.checks import check_classes, choose_n_components
from nearfar.discriminant.pareto_objectives import (
    ClassObjectives,
    Pairing,
    PowerMean,
    Scalarization,
    choose_n_axes,
    compute_inverse_power_weights,
    make_class_objectives,
    warn_about_dominant_weight,
)
from nearfar.discriminant.searching import check_user_start, make_fisher_start, make_random_frame
from nearfar.discriminant.subspace_errors import make_row_error, make_sample_error
from nearfar.notices import warn_not_converged
from nearfar.parameters import array, boolean, integer, none, one_of, random_state, real
from nearfar.solvers.eigen import fix_signs
from nearfar.solvers.subspaces import (
    Interrupted,
    SubspaceSearch,
    climb_subspace,
    find_orthonormal_basis,
    search_from_starts,
    search_subspace,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.distributed import is_dask

# Number of starts if n_init=None and there are fewer than n_classes - 1 components. In this case,
# close classes may overlap in the Fisher subspace.
_N_STARTS = 3
# Maximum number of iterations per start if max_iter=None.
_MAX_ITERATIONS = {"lbfgs": 1000, "gradient": 100}


class PARDA(StatisticsLearner):
    r"""Pareto discriminant analysis: maximize the divergences of all pairs of classes together.

    Each class is a Gaussian. After projection by U, with :math:`\Phi_i = (U^T \Sigma_i U)^{-1}` and
    :math:`u_{ij} = m_i - m_j`, the objective of classes i and j is twice Jeffreys' divergence,

    .. math::
        J_{ij}(U) = \mathrm{tr}\,\Phi_i U^T (\Sigma_j + u_{ij} u_{ij}^T) U +
        \mathrm{tr}\,\Phi_j U^T (\Sigma_i + u_{ij} u_{ij}^T) U - 2q .

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
        Pairs that define the objectives: all pairs of classes ("one_vs_one"), or each class and all
        other classes together ("one_vs_all").
    scalarization : {"weighted_sum", "l_delta"}, default="weighted_sum"
        How the objectives are combined: by their weighted sum ("weighted_sum"), or by the weighted
        squared distance to the target ("l_delta").
    weights : {"auto", "adaptive", "inverse_power", "uniform"} or array, default="auto"
        Weights of the objectives, see Notes. They are divided by their sum.
    weight_power : float, default=2
        Exponent s of the weights.
    target : {"thesis", "full", "ideal"}, float or array, default="thesis"
        Target of "l_delta": a name (see Notes), one number for all pairs, or an array of the same
        shape as ``weights``.
    include_constant : bool, default=False
        If True, the weights and the published target use :math:`J + 2q` instead of J. Equation 4.11
        of [1]_ prints the divergence as :math:`J + 2q`.
    shrinkage : float in [0, 1], default=0.5
        Shrinkage of the covariances: the fraction of the pooled within-class covariance in each
        class covariance. The published method uses 0. See Notes.
    ridge : float, default=1e-3
        Value added to the variances: ``ridge`` is added to the diagonals of all covariances. The
        data are first scaled to unit total variance, so that the ridge does not depend on units.
        With 0, ``fit`` raises an error if a covariance is singular.
    n_pca_components : int, "auto" or None, default="auto"
        Number of principal components to project X onto before learning. None keeps all. For
        "auto" see Notes. The components depend on the units of the features.
    init : {"lda", "random"} or array of shape (n_components, n_features), default="lda"
        Starting point. The first start is the Fisher subspace ("lda") or the array. The other
        starts add noise to the first. With "random", all starts are random.
    init_noise : float, default=0.3
        Size of the noise added to the first start: the root mean square of the column lengths.
    n_init : int or None, default=None
        Number of starts. None means 1, or 3 if there are fewer than ``n_classes - 1`` components,
        because close classes may then overlap in the Fisher subspace. [1]_ uses 10.
    selection : {"objective", "error"}, default="objective"
        Criterion that selects the best start: the objective, or the training error of
        :class:`MinimumMahalanobisClassifier` ("error", as published). See Notes.
    solver : {"lbfgs", "gradient"}, default="lbfgs"
        Optimization algorithm: L-BFGS, or the published gradient steps, which are shortened by the
        golden ratio if the objective becomes worse.
    step : float, default=0.01
        Step size of the solver "gradient".
    normalize_step : bool, default=True
        If True, gradient steps have the length ``step``. If False, the gradient is multiplied by
        ``step``, as published.
    max_iter : int or None, default=None
        Maximum number of iterations. The limit applies to each start. None means 1000 for "lbfgs"
        and 100 for "gradient". Only "lbfgs" warns if it does not converge. With "gradient", the
        limit is part of the published method.
    tol : float, default=1e-6
        Tolerance of the solver. "gradient" stops when the relative change of the weighted sum of
        divergences is below ``tol``. "lbfgs" stops when the projector onto the subspace changes by
        less than ``sqrt(tol)``. The sum then changes by a fraction of about ``tol``.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the starts, and the points that are
        drawn for ``selection``.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix: the principal axes of the class means in the subspace, scaled so that
        the pooled within-class covariance (with the ridge) is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    n_pca_components_ : int or None
        Number of principal components that were kept. None means all.
    selection_ : {"rows", "samples", "objective"}
        Criterion that selected the best start: the errors on the training rows ("rows"), the errors
        on points drawn from the class Gaussians ("samples"), or the objectives ("objective").
    divergences_, initial_divergences_ : ndarray
        Divergences J at the solution, and in the Fisher subspace. The shape is (n_classes,
        n_classes), or (n_classes,) with ``pairing="one_vs_all"``.
    weights_ : ndarray of the same shape as ``divergences_``
        Weights of the objectives. With ``weights="adaptive"``, they are the weights at the
        solution. The weights of all pairs i < j sum to 1.
    targets_ : ndarray of the same shape as ``divergences_``
        Targets of the divergences. They exist only with ``scalarization="l_delta"``.
    objective_ : float
        Combined objective at the solution. With adaptive weights, it is the power mean of the
        divergences.
    objectives_per_init_, errors_per_init_ : ndarray of shape (n_init,)
        Final objective and error of each start. Errors are set only with ``selection="error"``.
    best_init_ : int
        Index of the start that was kept.
    history_ : dict of lists
        Progress of the best start per accepted step, with the keys "objective", "step" and
        "seconds".
    n_iter_ : int
        Number of accepted steps of the best start.
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
    weights, both scalarizations give the same subspace. With equal weights, the targets "full" and
    "ideal" do not make the divergences similar: the pairs that can be farthest apart dominate the
    squares, and close classes may overlap. To obtain similar divergences, use adaptive weights with
    a larger ``weight_power``. For large powers, the smallest divergence is maximized.

    "inverse_power" and "thesis" always use the Fisher subspace, whatever ``init`` is.

    Less ``shrinkage`` may be better if classes have many rows and differ much in shape (shuttle:
    3.9% error with 0.25, 5.4% with 0.5), and worse otherwise (yeast: 51.4% and 49.4%). A class
    with a single row gets the pooled covariance.

    ``n_pca_components="auto"`` keeps all components if there are at least three rows per feature.
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
    renamed: ClassVar = {"n_principal": "n_pca_components", "n_principal_": "n_pca_components_"}
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
        "n_pca_components": [none, one_of("auto"), integer(1)],
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
        n_pca_components: int | Literal["auto"] | None = "auto",
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
        self.n_pca_components = n_pca_components
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
        """Fit the model to all rows, and discard the result of earlier fits.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points. With ``selection="error"``, the starts are compared by the error on
            these points if they are in memory.
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
            self._training_data = rows, y, sample_weight
        try:
            return self._fit_with(partial(self._accumulate, rows, y, sample_weight))
        finally:
            self.__dict__.pop("_training_data", None)

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the components of the best subspace of all starts."""
        check_classes("PARDA", statistics.classes)
        self.classes_ = statistics.classes
        self.n_pca_components_ = (
            None if isinstance(self.n_pca_components, str) else self.n_pca_components
        )
        if self.n_pca_components == "auto":
            self.n_pca_components_ = choose_n_axes(statistics, self.n_components)
        gaussians = make_class_objectives(
            statistics,
            self.pairing,
            self.ridge,
            self.n_pca_components_,
            allow_fewer=self.n_pca_components == "auto",
            shrinkage=self.shrinkage,
        )
        rank = gaussians.basis.shape[1]
        reason = f"the {rank} directions in which X varies"
        default = min(statistics.n_classes - 1, max(rank - 1, 1))
        n_components = choose_n_components(self.n_components, default, rank, "PARDA", reason)
        random = check_random_state(self.random_state)
        # Use separate random streams, so that the starts do not depend on ``selection``.
        start_seed, draw_seed = random.randint(2**31 - 1, size=2)
        starts = self._generate_starts(gaussians, n_components, start_seed)
        fisher = next(starts)
        scalarization = self._make_scalarization(gaussians, fisher)
        self.initial_divergences_ = gaussians.arrange_by_class(
            gaussians.compute_divergences(fisher)
        )
        compute_error = self._make_error_function(gaussians, n_components, draw_seed)
        searches: list[SubspaceSearch] = []
        errors: list[float] = []

        def score_start(search: SubspaceSearch) -> float:
            error = (
                None if compute_error is None else compute_error(find_orthonormal_basis(search.U))
            )
            searches.append(search)
            errors.extend([] if error is None else [error])
            return -scalarization.sign * search.objective if error is None else error

        def store_results(search: SubspaceSearch) -> Matrix:
            U = find_orthonormal_basis(search.U)
            J = gaussians.compute_divergences(U)
            self.divergences_ = gaussians.arrange_by_class(J)
            self.objective_ = scalarization.compute_value(J)
            self.weights_ = gaussians.arrange_by_class(scalarization.compute_weights(J))
            if scalarization.targets is not None:
                self.targets_ = gaussians.arrange_by_class(scalarization.targets)
            self.objectives_per_init_ = np.array(search.objectives)
            if errors:
                self.errors_per_init_ = np.array(errors)
            self.best_init_ = next(k for k, candidate in enumerate(searches) if candidate is search)
            self.history_, self.n_iter_ = search.history, search.n_iter
            return gaussians.make_components(U)

        try:
            search = search_from_starts(
                scalarization.make_objective(gaussians),
                starts,
                maximize=scalarization.sign > 0,
                solver=self._make_solver(scalarization),
                loss=score_start,
            )
        except Interrupted as stop:
            stop.components = store_results(stop.search)
            raise
        if self.solver == "lbfgs" and not search.converged:
            warn_not_converged("PARDA", self._max_iter)
        return store_results(search)

    @property
    def _max_iter(self) -> int:
        return _MAX_ITERATIONS[self.solver] if self.max_iter is None else self.max_iter

    def _generate_starts(self, gaussians: ClassObjectives, q: int, seed: int) -> Iterator[Matrix]:
        """Yield the Fisher subspace and then each start."""
        random = np.random.RandomState(seed)
        statistics, basis = gaussians.statistics, gaussians.basis
        frame = make_random_frame(statistics, basis)
        start = make_fisher_start(statistics, basis, frame, q, random)
        yield start
        if not isinstance(self.init, str):
            start = find_orthonormal_basis(check_user_start(self.init, basis, q))
        # With noise, the result depends on the signs of the columns. Fix the signs in a way that
        # does not depend on the order or the units of the features.
        rows = (basis @ start).T * np.sqrt(statistics.total_variances())
        start = start * np.sign(np.sum(rows * fix_signs(rows), axis=1))
        noise_scale = self.init_noise / np.sqrt(basis.shape[1])
        for number in range(self._count_starts(statistics, q)):
            noise = frame @ random.normal(size=(frame.shape[1], q))
            if isinstance(self.init, str) and self.init == "random":
                yield find_orthonormal_basis(noise)
            else:
                yield start if number == 0 else find_orthonormal_basis(start + noise_scale * noise)

    def _count_starts(self, statistics: ClassStatistics, q: int) -> int:
        if self.n_init is not None:
            return self.n_init
        return 1 if q >= statistics.n_classes - 1 else _N_STARTS

    def _make_scalarization(self, gaussians: ClassObjectives, fisher: Matrix) -> Scalarization:
        """Return the combined objective. Its weights and targets come from the Fisher subspace."""
        J = gaussians.compute_divergences(fisher)
        constant = 2.0 * fisher.shape[1] if self.include_constant else 0.0
        is_weighted_sum = self.scalarization == "weighted_sum"
        weights_kind = self.weights
        if isinstance(weights_kind, str) and weights_kind == "auto":
            weights_kind = "adaptive" if is_weighted_sum else "inverse_power"
        if isinstance(weights_kind, str) and weights_kind == "adaptive":
            if not is_weighted_sum:
                raise ValueError(
                    "weights='adaptive' needs scalarization='weighted_sum', but scalarization is "
                    "'l_delta', which needs fixed weights. Use weights='inverse_power'."
                )
            return PowerMean(self.weight_power, len(J), constant)
        if isinstance(weights_kind, str):
            power = self.weight_power if weights_kind == "inverse_power" else 0.0
            weights = compute_inverse_power_weights(J + constant, power)
            warn_about_dominant_weight(weights)
        else:
            weights = gaussians.read_pair_values(weights_kind, "weights")
            if (weights < 0).any() or weights.sum() <= 0:
                raise ValueError(
                    "weights must not contain negative values, and at least one must be positive."
                )
            weights = weights / weights.sum()
        targets = (
            None if is_weighted_sum else self._compute_targets(gaussians, fisher, J + constant)
        )
        return Scalarization(weights, targets)

    def _compute_targets(
        self, gaussians: ClassObjectives, fisher: Matrix, divergences: Matrix
    ) -> Matrix:
        if not isinstance(self.target, str):
            targets = gaussians.read_pair_values(self.target, "target")
            if (targets <= 0).any():
                raise ValueError("target must be positive, because divergences are positive.")
            return targets
        if self.target == "thesis":
            return np.full(len(divergences), (2 * divergences.max()) ** 2)
        if self.target == "full":
            return np.full(
                len(divergences), gaussians.compute_divergences(np.eye(len(fisher))).max()
            )
        return np.array(
            [
                search_subspace(
                    Scalarization(unit_weights, None).make_objective(gaussians),
                    fisher,
                    max_iter=200,
                    tol=1e-4,
                ).objective
                for unit_weights in np.eye(len(divergences))
            ]
        )

    def _make_solver(self, scalarization: Scalarization) -> Callable[..., SubspaceSearch]:
        report = get_reporter(self)
        if self.solver == "lbfgs":
            return partial(
                search_subspace,
                max_iter=self._max_iter,
                tol=np.sqrt(float(self.tol)),
                report=report,
            )
        # Check convergence on the weighted sum of divergences. The squared distance to a distant
        # target has a large offset that hides changes.
        return partial(
            climb_subspace,
            step=self.step,
            normalize=self.normalize_step,
            max_iter=self._max_iter,
            tol=self.tol,
            monitor=lambda: scalarization.weighted_sum,
            report=report,
        )

    def _make_error_function(
        self, gaussians: ClassObjectives, q: int, seed: int
    ) -> Callable[[Matrix], float] | None:
        """Return a function that computes the error in a subspace, or None if it is not needed."""
        if self.selection == "objective":
            self.selection_ = "objective"
            return None
        training_data = vars(self).get("_training_data")
        if training_data is None:
            self.selection_ = "samples"
            return make_sample_error(gaussians, q, np.random.RandomState(seed))
        self.selection_ = "rows"
        return make_row_error(gaussians, *training_data)
