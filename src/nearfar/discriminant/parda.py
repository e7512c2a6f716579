"""Pareto discriminant analysis: many divergences between classes as objectives of one map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.base.progress import report_of
from nearfar.blocks import row_blocks
from nearfar.discriminant.checks import check_classes, n_kept
from nearfar.discriminant.searching import (
    fisher_start,
    given_start,
    random_frame,
    subspace_components,
)
from nearfar.labels import encode_labels
from nearfar.neighbors.minimum_mahalanobis import MinimumMahalanobisClassifier
from nearfar.notices import warn, warn_of_limit
from nearfar.parameters import array, boolean, integer, none, one_of, random_state, real
from nearfar.solvers.descent import Objective
from nearfar.solvers.eigen import fix_signs
from nearfar.solvers.gaussian_divergences import (
    GaussianFamily,
    SigmaDot,
    averaged,
    kullback_leibler,
)
from nearfar.solvers.subspaces import (
    Interrupted,
    SubspaceSearch,
    best_of_starts,
    climb_subspace,
    orthonormal,
    search_subspace,
)
from nearfar.summaries.class_gaussians import (
    class_covariances,
    divisors,
    first_below,
    is_thin,
    thin_dot,
    without_scatter,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.distributed import is_dask
from nearfar.summaries.whitening import total_whitener

Pairing = Literal["one_vs_one", "one_vs_all"]

#: Divergences below this share of the largest count as that where weights are made of them.
LEAST_SHARE = 1e-6
#: Points drawn, from all classes together, to compare the starts when there are no rows.
N_DRAWN = 10_000
# Of a weight above this the other objectives notice nothing.
_ALL_THE_WEIGHT = 0.999
# An eigenvalue below this, total variance being one, is zero but for rounding.
_SINGULAR = 1e-10


class PARDA(StatisticsLearner):
    r"""Pareto discriminant analysis: every pair of classes is an objective of its own.

    Each class is a Gaussian. After projection by U, with :math:`\Phi_i = (U^T \Sigma_i U)^{-1}` and
    :math:`u_{ij} = m_i - m_j`, classes i and j are apart by twice Jeffreys' divergence,

    .. math::
        J_{ij}(U) = \mathrm{tr}\,\Phi_i U^T (\Sigma_j + u_{ij} u_{ij}^T) U +
        \mathrm{tr}\,\Phi_j U^T (\Sigma_i + u_{ij} u_{ij}^T) U - 2q ,

    and of these :math:`c(c-1)/2` objectives one number is made: their weighted sum, which is
    maximised, or their weighted squared distance to a target, which is minimised,

    .. math::
        \sum_{i<j} w_{ij} J_{ij}(U) \qquad \text{or} \qquad
        \sum_{i<j} w_{ij}\,(J_{ij}(U) - t_{ij})^2 , \qquad w_{ij} \propto J_{ij}(U_0)^{-2} .

    The weights favour pairs that the Fisher subspace :math:`U_0` leaves close. With
    ``pairing="one_vs_all"`` each class is paired with all others as one Gaussian, which makes c
    objectives.

    *The two scalarisations.* The published target, :math:`t = (2 \max J(U_0))^2` for all pairs,
    lies so far above anything in reach that :math:`J - t \approx -t`: the squared distance then
    falls in the direction in which the weighted sum grows (the cosine of the two directions is
    above 0.9999 on all data tried), and since steps and stopping do not depend on the scale here,
    both give the same subspace. For one that really evens out the divergences, choose
    ``target="full"`` or a moderate number, best with ``weights="uniform"``.

    Use it when classes differ in shape, and some are close while others are far away. Steps are
    few and short on purpose: the divergences, followed to their optimum, feed on the noise in the
    covariances, and errors rise again. Its failure: the weights follow the closest pair. With fewer
    than ``n_classes - 1`` components they may merge another pair instead (a warning says
    when one pair has all the weight). See :class:`MGMKLD` for a mean that merges none.

    Cost: one pass of O(n p²), then for each step from each start O(c p² q), or O(n p q) where
    classes have fewer rows than features, and O(c² q² + c q³). No p×p matrix is made for a pair.

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
    ridge : float, default=1e-3
        What is added to variances: those of every covariance, where the total variance is
        one in all directions; so it depends on no units. 0 raises where a covariance is singular. A
        class of one row has the pooled covariance.
    init : {"lda", "random"} or array of shape (n_components, n_features), default="lda"
        Where to start: from the Fisher subspace, or your own; the other starts are that one with
        noise added. "random" draws all of them. Weights and targets come from the Fisher subspace
        always.
    init_noise : float, default=0.3
        Standard deviation of that noise for a whole column.
    n_init : int, default=10
        Number of starts.
    selection : {"error", "objective"}, default="error"
        Which start is kept: the one with the least error of :class:`MinimumMahalanobisClassifier`
        on the training rows; or with the best objective. After ``partial_fit``, or from dask,
        there are no rows: points drawn from the class Gaussians take their place.
    solver : {"gradient", "lbfgs"}, default="gradient"
        Steps along the gradient, shortened by the golden ratio when one is for the worse; or
        L-BFGS to the optimum.
    step : float, default=0.01
        Length of a step along the gradient.
    normalize_step : bool, default=True
        Steps have the length ``step``; with False the gradient is multiplied by it, as published.
    max_iter : int, default=100
        Steps at most: from each start. Along the gradient, to stop there is part of the method.
    tol : float, default=1e-6
        The gradient solver stops when the weighted sum of the divergences changes by less,
        relatively; L-BFGS when the projector on the subspace does.
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
    selection_ : {"rows", "samples", "objective"}
        What the starts were compared by: errors on the training rows, errors on points drawn from
        the class Gaussians, or objectives.
    divergences_, initial_divergences_ : ndarray
        J at the solution and in the Fisher subspace: (n_classes, n_classes) for pairs, (n_classes,)
        for each class against the rest.
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
    >>> parda.transform(X).shape, parda.selection_
    ((150, 2), 'rows')
    >>> bool(parda.weights_[1, 2] > 0.9)  # versicolor and virginica are the closest
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    pooled_statistics = False
    settings = ({"pairing": "one_vs_all"}, {"weights": "uniform"})
    same_in_batches: ClassVar = {"selection": "objective"}
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
        "ridge": [real(0)],
        "init": [one_of("lda", "random"), array],
        "init_noise": [real(0)],
        "n_init": [integer(1)],
        "selection": [one_of("error", "objective")],
        "solver": [one_of("gradient", "lbfgs")],
        "step": [real(0, open_low=True)],
        "normalize_step": [boolean],
        "max_iter": [integer(1)],
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
        ridge: float = 1e-3,
        init: Literal["lda", "random"] | ArrayLike = "lda",
        init_noise: float = 0.3,
        n_init: int = 10,
        selection: Literal["error", "objective"] = "error",
        solver: Literal["gradient", "lbfgs"] = "gradient",
        step: float = 0.01,
        normalize_step: bool = True,
        max_iter: int = 100,
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
            Training points. Rows in memory also choose among the starts.
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
        gaussians = class_objectives(statistics, self.pairing, self.ridge)
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
            warn_of_limit("PARDA", self.max_iter)
        return keep(found)

    def _starts(self, gaussians: ClassObjectives, q: int, seed: int) -> Iterator[Matrix]:
        """First the Fisher subspace itself, then as many starts as are asked for."""
        random = np.random.RandomState(seed)
        statistics, basis = gaussians.statistics, gaussians.basis
        frame = random_frame(statistics, basis)
        first = fisher_start(statistics, basis, frame, q, random)
        yield first
        if not isinstance(self.init, str):
            first = orthonormal(given_start(self.init, basis, q))
        # The sum with noise depends on the signs of the columns, which must not depend on the order
        # of the classes or on units.
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
        if len(weights) > 1 and weights.max() > _ALL_THE_WEIGHT and isinstance(self.weights, str):
            warn(
                f"One of {len(weights)} objectives has {weights.max():.2%} of the weight: the "
                "others are hardly looked at, and classes may fall onto one another. Use "
                "weights='uniform' or a smaller weight_power.",
                UserWarning,
            )
        self.initial_divergences_ = gaussians.table(J)
        self.weights_ = gaussians.table(weights)
        if self.scalarization == "weighted_sum":
            return Scalarized(weights, None)
        targets = self._targets(gaussians, fisher, shown)
        self.targets_ = gaussians.table(targets)
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
            return partial(search_subspace, max_iter=self.max_iter, tol=self.tol, report=report)
        # Watched is what has no offset: of a squared distance to a target far away, the first
        # step already changes too little to be seen.
        return partial(
            climb_subspace,
            step=self.step,
            normalize=self.normalize_step,
            max_iter=self.max_iter,
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


# ---------------------------------------------------------------------- the objectives


@dataclass(frozen=True)
class ClassObjectives:
    """The classes as Gaussians, and which of them are paired.

    In the coordinates xT of the ``basis`` T the total covariance is the identity; ``image`` has the
    statistics there, and ``family`` the classes, for each class against the rest followed by the
    rests. ``first`` and ``second`` are the members of each pair; ``ridge`` is what covariances have
    on their diagonals besides.
    """

    statistics: ClassStatistics
    basis: Matrix
    image: ClassStatistics
    family: GaussianFamily
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    ridge: float

    @property
    def by_pairs(self) -> bool:
        """Whether classes are paired with one another, and not with their rests."""
        return len(self.family.means) == self.statistics.n_classes

    def divergences(self, U: Matrix) -> Matrix:
        """J of each pair."""
        return self.of_pairs(kullback_leibler.values(self.family.project(U)))

    def of_pairs(self, D: Matrix) -> Matrix:
        """J of each pair from all Kullback-Leibler divergences: twice their symmetric sum."""
        return np.asarray(2 * (D[self.first, self.second] + D[self.second, self.first]))

    def table(self, values: Matrix) -> Matrix:
        """Values of the pairs as users see them: (c, c) symmetric, or (c,)."""
        if not self.by_pairs:
            return values.copy()
        shown = np.zeros((self.statistics.n_classes,) * 2)
        shown[self.first, self.second] = shown[self.second, self.first] = values
        return shown

    def vector(self, given: Any, name: str) -> Matrix:
        """What a user gave for the pairs, as one value for each."""
        values = np.asarray(given, dtype=np.float64)
        c = self.statistics.n_classes
        wanted = (c, c) if self.by_pairs else (c,)
        if values.ndim and values.shape != wanted:
            raise ValueError(f"{name} must have shape {wanted}; got {values.shape}.")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} contains NaN or infinity.")
        if not values.ndim:
            return np.full(len(self.first), float(values))
        if values.ndim == 2:
            if not np.allclose(values, values.T):
                raise ValueError(f"{name} must be symmetric: a pair has no order.")
            return values[self.first, self.second]
        return values

    def components(self, U: Matrix) -> Matrix:
        """Rows (q, n_features) that stand for the span of U."""
        within = U.T @ self.image.within_dot(U) / self.image.total_weight
        within += max(self.ridge, _SINGULAR) * np.eye(U.shape[1])
        root = linalg.cholesky((within + within.T) / 2, lower=True)
        white = linalg.solve_triangular(root, (self.basis @ U).T, lower=True).T
        return subspace_components(self.statistics, white, np.eye(U.shape[1]))


def class_objectives(
    statistics: ClassStatistics, pairing: Pairing, ridge: float
) -> ClassObjectives:
    """Gaussians of the classes in coordinates of unit total covariance, divisors n_i - 1."""
    T = total_whitener(statistics)
    image = statistics.project(T)
    ddof = image.weights - divisors(image.weights, image.counts)
    dot: SigmaDot
    if is_thin(image):
        dot = thin_dot(image, ddof=ddof)
    else:
        covariances = class_covariances(image, ddof=ddof)
        dot = GaussianFamily(image.means, covariances).dot
    if ridge == 0:
        singular = 0 if is_thin(image) else first_below(covariances, _SINGULAR)
        if singular is not None:
            raise ValueError(
                f"The covariance of class {statistics.classes.tolist()[singular]!r} is singular: "
                "the divergence from it is infinite. Use a ridge above 0."
            )
    # About the common mean, so that an offset of the data costs no digits.
    means = image.between_factor() / np.sqrt(image.weights)[:, None]
    c = image.n_classes
    first, second = np.triu_indices(c, 1)
    if pairing == "one_vs_all":
        means, dot = against_rest(image, means, dot)
        first, second = np.arange(c), np.arange(c) + c
    family = GaussianFamily(means, lambda U: dot(U) + ridge * U)
    return ClassObjectives(statistics, T, image, family, first, second, ridge)


def against_rest(image: ClassStatistics, means: Matrix, dot: SigmaDot) -> tuple[Matrix, SigmaDot]:
    r"""Means and covariances of the classes, and then of all other classes as one Gaussian.

    Taken off the total, not summed anew: with class scatter :math:`W_i` and the total covariance
    :math:`I`,

    .. math::
        m_i' = -\frac{n_i}{n - n_i} m_i , \qquad
        (n - n_i - 1)\, \Sigma_i' = n I - W_i - \frac{n_i (n - n_i)}{n} \delta \delta^T , \qquad
        \delta = m_i - m_i' .
    """
    n, weights = image.total_weight, image.weights
    rest = n - weights
    rest_means = -(weights / rest)[:, None] * means
    gaps = np.sqrt(weights * rest / n)[:, None] * (means - rest_means)
    others_count = image.counts.sum() - image.counts
    alone = others_count == 1  # the rest is one row
    rest_divisors = np.where(alone, rest, divisors(rest, others_count))
    scatter_factors = np.where(without_scatter(image), 0.0, divisors(weights, image.counts))

    def both(U: Matrix) -> Matrix:
        own = dot(U)
        others = n * U - scatter_factors[:, None, None] * own
        others -= gaps[:, :, None] * (gaps @ U)[:, None, :]
        others /= rest_divisors[:, None, None]
        if alone.any():
            others[alone] = image.within_dot(U) / n
        return np.concatenate([own, others])

    return np.concatenate([means, rest_means]), both


def inverse_power_weights(divergences: Matrix, power: float) -> Matrix:
    """J^-power over its sum; no J counts as less than a millionth of the largest."""
    largest = divergences.max()
    if largest == 0:
        return np.full(len(divergences), 1 / len(divergences))
    shares = np.maximum(divergences / largest, LEAST_SHARE)
    weights = (shares.min() / shares) ** power  # the largest is one, whatever the power
    return np.asarray(weights / weights.sum())


class Scalarized:
    """One number for all divergences J: their weighted sum, or squared distance to targets.

    Without targets it is the weighted sum, which is to be maximised; distances are to be minimised.
    ``weighted_sum`` is that of the point seen last.
    """

    def __init__(self, weights: Matrix, targets: Matrix | None) -> None:
        self.weights, self.targets = weights, targets
        self.weighted_sum = np.nan

    @property
    def sign(self) -> float:
        """1 if it is to be maximised, else -1."""
        return 1.0 if self.targets is None else -1.0

    def value(self, J: Matrix) -> float:
        """The number."""
        if self.targets is None:
            return float(self.weights @ J)
        return float(self.weights @ (J - self.targets) ** 2)

    def slopes(self, J: Matrix) -> Matrix:
        """Its derivatives in J."""
        return self.weights if self.targets is None else 2 * self.weights * (J - self.targets)

    def objective(self, gaussians: ClassObjectives) -> Objective:
        """The same as a function of U, with its gradient."""

        def average(D: Matrix) -> tuple[float, Matrix]:
            J = gaussians.of_pairs(D)
            self.weighted_sum = float(self.weights @ J)
            by_divergences = np.zeros(D.shape)
            by_divergences[gaussians.first, gaussians.second] = 2 * self.slopes(J)
            # J is twice the sum of both directions.
            return self.value(J), by_divergences + by_divergences.T

        return averaged(gaussians.family, kullback_leibler, average)


# ---------------------------------------------------------------------- which start is best


def error_on_rows(
    gaussians: ClassObjectives, rows: NDArray[Any], y: Any, sample_weight: ArrayLike | None
) -> Callable[[Matrix], float]:
    """For U (r, q) the training error of the nearest class mean, each class with its own metric.

    The moments of the mapped classes are those of the statistics: rows are only mapped.
    """
    statistics = gaussians.statistics
    classes, codes = encode_labels(y)
    labels = classes[codes]
    weight = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, float)

    def error(U: Matrix) -> float:
        mapping = gaussians.basis @ U
        rule = MinimumMahalanobisClassifier.from_statistics(statistics.project(mapping))
        wrong = np.empty(len(labels), dtype=bool)
        for block in row_blocks(len(labels), 8 * rows.shape[1], at_most=8192):
            wrong[block] = rule.predict(rows[block] @ mapping) != labels[block]
        return float(weight @ wrong / weight.sum())

    return error


def error_on_samples(
    gaussians: ClassObjectives, q: int, random: np.random.RandomState
) -> Callable[[Matrix], float]:
    """The same for points drawn from the class Gaussians, classes weighted by their shares."""
    statistics = gaussians.statistics
    c = statistics.n_classes
    drawn = random.normal(size=(max(100, N_DRAWN // c), q))
    shares = statistics.weights / statistics.total_weight

    def error(U: Matrix) -> float:
        rule = MinimumMahalanobisClassifier.from_statistics(statistics.project(gaussians.basis @ U))
        # Of a projected Gaussian, points can be drawn in q dimensions.
        factors = gaussians.family.project(U).factors
        wrong = np.empty(c)
        for k, label in enumerate(rule.classes_):
            wrong[k] = np.mean(rule.predict(rule.means_[k] + drawn @ factors[k].T) != label)
        return float(shares @ wrong)

    return error
