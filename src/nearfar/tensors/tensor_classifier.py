"""Base class of tensor classifiers: two-class problems, starts, and fitted attributes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from math import prod
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix, Vector
from nearfar.base import TensorEstimator
from nearfar.base.linear_classifier import (
    MULTI_CLASS,
    LinearClassifier,
    RidgeMode,
    TwoClassProblem,
    check_each_problem,
    compute_votes,
    two_class_problems,
    unwrap_single,
)
from nearfar.base.progress import Report, get_reporter, map_with_reports
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.blocks import resolve_n_threads
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import AllowedValues, integer, none, one_of, real
from nearfar.parameters import random_state as seed
from nearfar.solvers.alternating_modes import (
    Alternation,
    CPWeights,
    alternate,
    draw_random_start,
    find_low_rank_start,
)
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.label_ridge import label_ridge
from nearfar.state import Condition, Sizes, State, flag, integer_value, number
from nearfar.summaries.class_statistics import check_weight

TensorStart = Literal["mean_difference", "least_squares", "random"] | Sequence[ArrayLike]

#: Conditions on the parameters that all tensor classifiers have.
TENSOR_CLASSIFIER_PARAMETERS: dict[str, list[AllowedValues]] = {
    "rank": [integer(1)],
    "init": [
        one_of("mean_difference", "least_squares", "random"),
        AllowedValues(
            lambda value: isinstance(value, list | tuple) and len(value) > 0,
            "a list with one vector per mode, or one array of shape (d_k, rank) per mode",
        ),
    ],
    "n_init": [integer(1)],
    "max_iter": [integer(1)],
    "tol": [real(0)],
    **MULTI_CLASS,
    **TENSOR_PARAMETERS,
    "random_state": [seed],
    "n_jobs": [none, integer()],
    "verbose": [integer(0)],
}
# Ridge for init="least_squares", as a fraction of the within-class variance.
_RIDGE_FRACTION = 0.1

_MATRIX_LIST = Condition(
    lambda value, _: (
        type(value) is list
        and all(isinstance(U, np.ndarray) and U.ndim == 2 and U.dtype == np.float64 for U in value)
    ),
    "a list of matrices",
)
_FLOAT_TABLE = Condition(
    lambda value, _: (
        isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype == np.float64
    ),
    "a two-dimensional array of float64",
)
_HISTORY_DICT = Condition(
    lambda value, _: (
        type(value) is dict
        and all(
            type(name) is str and type(values) is list and all(type(v) is float for v in values)
            for name, values in value.items()
        )
    ),
    "a dict of lists of floats",
)


#: Additional entries of ``history_``.
HistoryEntries = dict[str, list[float]]


class BinaryTask(NamedTuple):
    """A two-class problem, and the starting point from which it is solved."""

    X: Matrix
    y: Vector
    weight: Vector
    start: int
    random: np.random.RandomState
    #: Function that receives the state after each iteration.
    report: Report | None = None


class BinarySolution(NamedTuple):
    """The solution of a two-class problem. ``extra`` is a dict of additional attributes."""

    weights: CPWeights
    b: float
    objective: float
    history: dict[str, list[float]]
    stages: list[tuple[CPWeights, float]]
    converged: bool
    collapsed: bool
    extra: dict[str, Any]


class TensorClassifier(TensorEstimator, LinearClassifier):
    """Base class of linear classifiers whose weight tensor is a sum of rank-one tensors.

    A subclass implements :meth:`_make_mode_learner`, which returns a learner of the factor of one
    mode. It may override :meth:`_solve_task`, which alternates over the modes, and
    :meth:`_compute_extra_attributes`.
    """

    state = State(
        {
            "factors_": check_each_problem(_MATRIX_LIST),
            "objective_": check_each_problem(number()),
            "history_": check_each_problem(_HISTORY_DICT),
            "n_iter_": check_each_problem(integer_value()),
            "converged_": check_each_problem(flag),
            "_stages": check_each_problem(_FLOAT_TABLE),
        }
    )
    #: Whether the objective is maximized.
    maximizes: ClassVar[bool] = False
    rank: int
    init: TensorStart
    n_init: int
    max_iter: int
    tol: float
    random_state: Any
    n_jobs: int | None
    factors_: Any
    objective_: Any
    history_: Any
    n_iter_: Any
    converged_: Any
    _stages: Any

    @abstractmethod
    def _make_mode_learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        """Return a function that learns the factor of one mode from weighted samples."""

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the classifier to labeled tensors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dM) or (n_samples, n_features)
            Tensors, or rows. Rows are flat tensors if ``tensor_shape`` is set, and tensors of
            order one otherwise.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights of the samples.

        Returns
        -------
        object
            The classifier itself.
        """
        self._check_parameters()
        T = self._check_tensors(X, reset=True, min_samples=2)
        try:
            interrupt = self._fit_checked(T, y, sample_weight)
        except BaseException:
            self._forget()
            raise
        if interrupt is not None:
            raise interrupt  # The attributes contain the best result before Ctrl-C.
        return self

    def _fit_checked(
        self, T: Any, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> KeyboardInterrupt | None:
        classes, codes = self._check_labels(y, len(T))
        shape = T.shape[1:]
        max_rank = prod(shape) // max(shape)
        if self.rank > max_rank:
            raise ValueError(
                f"{type(self).__name__}: rank={self.rank} is too large: tensors of shape {shape} "
                f"have at most rank {max_rank}. Use a smaller rank."
            )
        T = np.ascontiguousarray(T, dtype=np.float64)
        weight = np.ones(len(T))
        if sample_weight is not None:
            weight = check_weight(sample_weight, len(T))
            if not weight.any():
                raise ValueError(
                    f"{type(self).__name__}: every sample_weight is zero. At least one sample per "
                    "class needs a positive weight."
                )
            present = np.unique(codes[weight > 0])
            if len(present) < 2:
                raise ValueError(
                    f"{type(self).__name__} needs at least 2 classes that have samples with "
                    f"positive sample_weight; found {len(present)}."
                )
            if len(present) < len(classes):  # Drop classes whose total weight is zero.
                new_codes = np.full(len(classes), -1)
                new_codes[present] = np.arange(len(present))
                classes, codes = classes[present], new_codes[codes]
        weight = self._apply_class_weight(np.asarray(classes)[np.maximum(codes, 0)], weight)
        problems = two_class_problems(len(classes), self.multi_class)
        rows = [self._select_samples(problem, codes, weight) for problem in problems]
        solutions, interrupt = self._solve_problems(T, rows, weight)
        self.classes_ = classes
        self.coef_ = np.array([solution.weights.tensor().ravel() for solution in solutions])
        self.intercept_ = np.array([solution.b for solution in solutions])
        self.factors_ = unwrap_single(
            [_scale_last_factor(solution.weights) for solution in solutions]
        )
        self.objective_ = unwrap_single([float(solution.objective) for solution in solutions])
        self.history_ = unwrap_single([solution.history for solution in solutions])
        self.n_iter_ = unwrap_single([len(solution.history["step"]) for solution in solutions])
        self.converged_ = unwrap_single([solution.converged for solution in solutions])
        self._stages = unwrap_single([_pack_stages(solution) for solution in solutions])
        for name in solutions[0].extra:
            setattr(self, name, unwrap_single([solution.extra[name] for solution in solutions]))
        if interrupt is None:
            self._warn_about_solutions(solutions)
        return interrupt

    def _apply_class_weight(self, labels: NDArray[Any], weight: Vector) -> Vector:
        """Return the weights of the samples in the objective."""
        return weight

    def _select_samples(
        self, problem: TwoClassProblem, codes: NDArray[Any], weight: Vector
    ) -> tuple[NDArray[np.intp], Vector]:
        """Return the indices and the signs (+1 or -1) of the samples of a two-class problem."""
        signs = problem.signs(np.maximum(codes, 0)) * (codes >= 0)
        indices = np.flatnonzero((signs != 0) & (weight > 0))
        return indices, signs[indices]

    def _solve_problems(
        self, T: Matrix, rows: list[tuple[NDArray[np.intp], Vector]], weight: Vector
    ) -> tuple[list[BinarySolution], KeyboardInterrupt | None]:
        """Solve every two-class problem from all starts, and return the best solution of each.

        After Ctrl-C, problems without a result run one sweep, so that the classifier is usable.
        """
        random = check_random_state(self.random_state)
        seeds = random.randint(2**31, size=(len(rows), self.n_init))
        tensors = [T if len(indices) == len(T) else T[indices] for indices, _ in rows]
        started = perf_counter()

        def make_task(k: int, start: int, report: Report | None = None) -> BinaryTask:
            indices, y = rows[k]
            generator = np.random.RandomState(seeds[k, start])
            return BinaryTask(tensors[k], y, weight[indices], start, generator, report)

        def solve(
            problem_and_start: tuple[int, int], report: Report
        ) -> tuple[BinarySolution, KeyboardInterrupt | None]:
            def report_problem(state: dict[str, Any]) -> None:
                state["seconds"] = perf_counter() - started
                if len(rows) > 1:
                    stage = f", {state['stage']}" if "stage" in state else ""
                    state["stage"] = f"problem {problem_and_start[0] + 1} of {len(rows)}{stage}"
                report(state)

            task = make_task(*problem_and_start, report_problem)
            alternation, extra_history = self._solve_task(task)
            return self._make_solution(task, alternation, extra_history), alternation.interrupt

        tasks = [(k, start) for k in range(len(rows)) for start in range(self.n_init)]
        threads = min(resolve_n_threads(self.n_jobs), len(tasks))
        results, interrupt = map_with_reports(solve, tasks, threads, get_reporter(self))
        best_solutions = []
        for k, (indices, _) in enumerate(rows):
            solutions = [
                solution
                for solution in results[k * self.n_init : (k + 1) * self.n_init]
                if solution is not None
            ]
            if not solutions:
                solutions = [self._run_single_sweep(make_task(k, 0), interrupt)]
            # Use a solution with W = 0 only if all starts ended with W = 0.
            sign = -1 if self.maximizes else 1
            best = min(solutions, key=lambda f: (f.collapsed, sign * f.objective))
            if "support_" in best.extra:
                best.extra["support_"] = indices[best.extra["support_"]]
            best_solutions.append(best)
        return best_solutions, interrupt

    # ------------------------------------------------------------------ solution of one problem

    def _solve_task(self, task: BinaryTask) -> tuple[Alternation, HistoryEntries]:
        """Solve a task by alternating over the modes. Return also additional history entries."""
        return self._alternate_with_retry(task, self._make_start(task)), {}

    def _alternate_with_retry(self, task: BinaryTask, start: Sequence[Matrix]) -> Alternation:
        """Alternate over the modes. If W becomes 0, restart from the difference of class means."""
        learn = self._make_mode_learner(task.X, task.y, task.weight)
        alternation = self._alternate_modes(task, learn, start)
        if alternation.collapsed and alternation.interrupt is None:
            alternation = self._alternate_modes(task, learn, self._start_from_mean_difference(task))
        return alternation

    def _compute_extra_attributes(
        self, task: BinaryTask, alternation: Alternation, solution: BinarySolution
    ) -> dict[str, Any]:
        """Return a dict of additional fitted attributes."""
        return {}

    def _alternate_modes(
        self,
        task: BinaryTask,
        learn: VectorLearner,
        start: Sequence[Matrix],
        *,
        start_is_converged: bool = False,
    ) -> Alternation:
        return alternate(
            task.X,
            learn,
            start,
            max_iter=self.max_iter,
            tol=self.tol,
            start_is_converged=start_is_converged,
            report=task.report,
        )

    def _run_single_sweep(
        self, task: BinaryTask, interrupt: KeyboardInterrupt | None
    ) -> BinarySolution:
        """Run one sweep after Ctrl-C. If the sweep fails, raise the KeyboardInterrupt."""
        try:
            learn = self._make_mode_learner(task.X, task.y, task.weight)
            alternation = alternate(
                task.X, learn, self._start_from_mean_difference(task), max_iter=1, tol=self.tol
            )
            return self._make_solution(task, alternation, {})
        except Exception as error:
            raise (interrupt or error) from error

    def _make_solution(
        self, task: BinaryTask, alternation: Alternation, extra_history: HistoryEntries
    ) -> BinarySolution:
        """Convert the result to a solution. If W = 0, the solution predicts the larger class."""
        history = {
            "objective": [float(value) for value in alternation.objectives],
            "step": [float(value) for value in alternation.steps],
            "seconds": alternation.seconds,
        } | extra_history
        weights, b, stages = alternation.weights, alternation.plane.b, alternation.stages
        if alternation.collapsed:
            weights = weights._replace(scales=np.zeros(weights.rank))
            b = 1.0 if float(task.weight @ task.y) > 0 else -1.0
            stages = [(weights, b)]
        objective, collapsed = float(alternation.plane.objective), alternation.collapsed
        solution = BinarySolution(
            weights, b, objective, history, stages, alternation.converged, collapsed, {}
        )
        return solution._replace(extra=self._compute_extra_attributes(task, alternation, solution))

    # ------------------------------------------------------------------ starting points

    def _make_start(self, task: BinaryTask) -> list[Matrix]:
        """Return the initial factors. Only the first start uses ``init``; the others are random."""
        shape = task.X.shape[1:]
        if task.start > 0 or (isinstance(self.init, str) and self.init == "random"):
            return draw_random_start(shape, self.rank, task.random)
        if not isinstance(self.init, str):
            return _check_user_factors(self.init, shape, self.rank, type(self).__name__)
        if self.init == "mean_difference":
            return self._start_from_mean_difference(task)
        alternation = self._start_from_least_squares(task, self._choose_start_gamma(task))
        return (
            self._start_from_mean_difference(task)
            if alternation.collapsed
            else alternation.weights.factors
        )

    def _start_from_mean_difference(self, task: BinaryTask) -> list[Matrix]:
        class_weights = [np.where(task.y == sign, task.weight, 0.0) for sign in (1, -1)]
        means = [v @ task.X.reshape(len(task.X), -1) / v.sum() for v in class_weights]
        D = (means[0] - means[1]).reshape(task.X.shape[1:])
        return find_low_rank_start(D, self.rank, task.random)

    def _start_from_least_squares(self, task: BinaryTask, gamma: float) -> Alternation:
        """Run up to 30 sweeps of the least-squares support tensor machine."""

        def learn(Z: Matrix) -> Hyperplane:
            return label_ridge(Z, task.y, gamma, task.weight)

        alternation = alternate(
            task.X, learn, self._start_from_mean_difference(task), max_iter=30, tol=1e-4
        )
        if alternation.interrupt is not None:
            raise alternation.interrupt
        return alternation

    def _choose_start_gamma(self, task: BinaryTask) -> float:
        """Return the parameter gamma of the LSSTM that runs if ``init`` is "least_squares"."""
        ridge = (
            _RIDGE_FRACTION
            * float(task.weight.sum())
            * compute_within_variance(task.X, task.y, task.weight)
        )
        return 1 / ridge if ridge > 0 else 1.0

    # ------------------------------------------------------------------ warnings and prediction

    def _warn_about_solutions(self, solutions: list[BinarySolution]) -> None:
        name = type(self).__name__
        if any(solution.collapsed for solution in solutions):
            warn(
                f"{name}: the optimum of at least one two-class problem is W = 0, so this problem "
                "assigns all samples to the larger class, and its converged_ is False. Change the "
                "regularization, or check that the classes differ."
            )
        elif not all(solution.converged for solution in solutions):
            warn_not_converged(name, self.max_iter)

    def _check_rows_of(self, X: ArrayLike) -> Matrix:
        T = self._check_tensors(X, reset=False)
        return np.asarray(T.reshape(len(T), -1), dtype=np.float64)

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Matrix]:
        """Yield the values of ``decision_function`` after each sweep over the modes.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dM) or (n_samples, n_features)
            Samples, in the same form as in ``fit``.

        Yields
        ------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            One array per sweep of the problem with the most sweeps. Problems that stopped earlier
            keep their last weights.
        """
        check_is_fitted(self)
        rows = self._check_rows_of(X)
        tables = self._stages if isinstance(self._stages, list) else [self._stages]
        for sweep in range(max(len(table) for table in tables)):
            stages = [table[min(sweep, len(table) - 1)] for table in tables]
            planes = [_unpack_stage(stage, self.tensor_shape_, self.rank) for stage in stages]
            scores = np.column_stack([rows @ W.tensor().ravel() + b for W, b in planes])
            yield compute_votes(scores, len(self.classes_), self.multi_class)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        width = (sum(self.tensor_shape_) + 1) * self.rank + 1
        tables = self._stages if isinstance(self._stages, list) else [self._stages]
        if any(table.shape[1] != width or not len(table) for table in tables):
            raise ValueError("_stages do not match tensor_shape_ and rank.")


def _scale_last_factor(weights: CPWeights) -> list[Matrix]:
    """Return the factors, after multiplying the factor of the last mode by the scales."""
    return [*weights.factors[:-1], weights.factors[-1] * weights.scales]


def _pack_stages(solution: BinarySolution) -> Matrix:
    """Return one row per sweep, which contains the scales, the factors and the intercept."""
    return np.array(
        [
            np.concatenate([W.scales, *(U.ravel() for U in W.factors), [b]])
            for W, b in solution.stages
        ]
    )


def _unpack_stage(stage: Vector, shape: Sequence[int], rank: int) -> tuple[CPWeights, float]:
    ends = np.cumsum([rank, *(d * rank for d in shape)])
    factors = [
        stage[first:last].reshape(d, rank)
        for first, last, d in zip(ends[:-1], ends[1:], shape, strict=True)
    ]
    return CPWeights(stage[:rank], factors), float(stage[-1])


def _check_user_factors(
    init: Sequence[ArrayLike], shape: Sequence[int], rank: int, name: str
) -> list[Matrix]:
    """Check and return the factors passed as ``init``."""
    expected = f"{len(shape)} vectors of lengths {tuple(shape)}"
    if rank > 1:
        expected = f"{len(shape)} matrices of shapes {[(d, rank) for d in shape]}"
    factors = []
    for array in init:
        try:
            U = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{name}: init must be {expected}; got {array!r}.") from None
        factors.append(U[:, None] if U.ndim == 1 else U)
    shapes = [U.shape for U in factors]
    if shapes != [(d, rank) for d in shape]:
        raise ValueError(f"{name}: init must be {expected}; got shapes {shapes}.")
    for k, U in enumerate(factors):
        if not np.isfinite(U).all() or not np.linalg.norm(U, axis=0).all():
            raise ValueError(f"{name}: init[{k}] must be finite and must not have a zero column.")
    return factors


def compute_ridge(ridge: float, mode: RidgeMode, X: Matrix, y: Vector, weight: Vector) -> float:
    """Return the ridge that is added to the variances in all modes and sweeps."""
    return ridge * compute_within_variance(X, y, weight) if mode == "relative" else ridge


def compute_within_variance(X: Matrix, y: Vector, weight: Vector) -> float:
    """Return the mean variance of an entry within the two classes.

    If this variance is zero, return the mean variance between the classes. Constant entries are
    ignored.
    """
    flat, total = X.reshape(len(X), -1), float(weight.sum())
    class_weights = [np.where(y > 0, weight, 0.0), np.where(y > 0, 0.0, weight)]
    sizes = np.array([v.sum() for v in class_weights])
    means = np.array([v @ flat / n for v, n in zip(class_weights, sizes, strict=True)])
    has_equal_weights = bool((weight == weight[0]).all())
    squares = (
        weight[0] * np.einsum("ij,ij->j", flat, flat)
        if has_equal_weights
        else np.einsum("i,ij,ij->j", weight, flat, flat)
    )
    within = squares - sizes @ means**2
    # The difference above loses digits if the variance of an entry is small relative to its mean.
    # Compute these entries again from centered values.
    imprecise, sides = np.flatnonzero(within < 1e-6 * squares), (y <= 0).astype(np.intp)
    for first in range(0, len(imprecise), 64):
        block = imprecise[first : first + 64]
        within[block] = weight @ (flat[:, block] - means[:, block][sides]) ** 2
    between = sizes[0] * sizes[1] / total**2 * (means[0] - means[1]) ** 2
    is_varying = np.sqrt(within / total + between) > 16 * np.finfo(float).eps * np.abs(means).max(0)
    if not is_varying.any():
        return 0.0
    within_mean, between_mean = float(within.sum()) / total, float(between.sum())
    return (within_mean if within_mean > 1e-14 * between_mean else between_mean) / int(
        is_varying.sum()
    )
