"""What classifiers of tensors share: problems of two sides, starts, and what is kept of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix, Vector
from nearfar.base import TensorInput, report_of
from nearfar.base.linear_classifier import (
    MULTI_CLASS,
    LinearClassifier,
    RidgeMode,
    TwoClassProblem,
    for_each_problem,
    one_or_list,
    two_class_problems,
    votes_of,
)
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.blocks import effective_threads, map_in_order, row_blocks
from nearfar.notices import warn, warn_of_limit
from nearfar.parameters import Allowed, integer, none, one_of, real
from nearfar.parameters import random_state as seed
from nearfar.solvers.alternating_modes import (
    Alternation,
    CPWeights,
    alternate,
    random_start,
    rank_start,
)
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.label_ridge import label_ridge
from nearfar.state import Sizes, State, Word, flag, number, whole
from nearfar.summaries.class_statistics import check_weight

TensorStart = Literal["mean_difference", "least_squares", "random"] | Sequence[ArrayLike]

#: Parameters that all of them have.
TENSOR_CLASSIFIER_PARAMETERS: dict[str, list[Allowed]] = {
    "rank": [integer(1)],
    "init": [
        one_of("mean_difference", "least_squares", "random"),
        Allowed(
            lambda value: isinstance(value, list | tuple) and len(value) > 0,
            "a list of vectors, one for each mode (of matrices of rank columns)",
        ),
    ],
    "n_init": [integer(1)],
    "max_iter": [integer(1)],
    "tol": [real(0)],
    **MULTI_CLASS,
    **TENSOR_PARAMETERS,
    "random_state": [seed],
    "n_jobs": [none, integer()],
}
_SHARE_OF_VARIANCE = 0.1  # the ridge of a start by least squares

_matrices = Word(
    lambda value, _: (
        type(value) is list
        and all(isinstance(U, np.ndarray) and U.ndim == 2 and U.dtype == np.float64 for U in value)
    ),
    "a list of matrices",
)
_stage_table = Word(
    lambda value, _: (
        isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype == np.float64
    ),
    "a table of numbers",
)
_history = Word(
    lambda value, _: (
        type(value) is dict
        and all(
            type(name) is str and type(values) is list and all(type(v) is float for v in values)
            for name, values in value.items()
        )
    ),
    "lists of numbers by name",
)


class BinaryTask(NamedTuple):
    """One problem of two sides from one start."""

    X: Matrix
    y: Vector
    weight: Vector
    start: int
    random: np.random.RandomState


class Fitted(NamedTuple):
    """What was learned of a problem: ``extra`` by the names of attributes."""

    weights: CPWeights
    b: float
    objective: float
    history: dict[str, list[float]]
    stages: list[tuple[CPWeights, float]]
    converged: bool
    collapsed: bool
    extra: dict[str, Any]


class TensorClassifier(TensorInput, LinearClassifier):
    """Hyperplanes whose normal tensor is a sum of ``rank`` rank-one tensors.

    A subclass writes :meth:`_learner`, a learner of vectors, and may write :meth:`_run`, which
    lifts it to tensors by alternation over the modes.
    """

    state = State(
        {
            "factors_": for_each_problem(_matrices),
            "objective_": for_each_problem(number()),
            "history_": for_each_problem(_history),
            "n_iter_": for_each_problem(whole()),
            "converged_": for_each_problem(flag),
            "_stages": for_each_problem(_stage_table),
        }
    )
    #: Whether the objective is to be large.
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
    def _learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        """The learner of one mode; ``weight`` is that of each sample."""

    def fit(self, X: ArrayLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the hyperplanes.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dM) or (n_samples, n_features)
            Tensors; or rows, which are flat tensors where ``tensor_shape`` is given and tensors of
            order one else.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights of the samples.

        Returns
        -------
        object
            The classifier itself.
        """
        self._check_parameters()
        T = self._check_tensors(X, reset=True, min_samples=2)
        try:
            return self._fit_checked(T, y, sample_weight)
        except BaseException:
            self._forget()
            raise

    def _fit_checked(self, T: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        classes, codes = self._check_labels(y, len(T))
        T = np.ascontiguousarray(T, dtype=np.float64)
        weight = np.ones(len(T))
        if sample_weight is not None:
            weight = check_weight(sample_weight, len(T))
            if not weight.any():
                raise ValueError(f"{type(self).__name__}: every sample_weight is zero.")
            present = np.unique(codes[weight > 0])
            if len(present) < 2:
                raise ValueError(
                    f"{type(self).__name__} needs at least 2 classes; of those in y only "
                    f"{len(present)} have samples of positive sample_weight: one class or none."
                )
            if len(present) < len(classes):  # a class of no weight is none
                place = np.full(len(classes), -1)
                place[present] = np.arange(len(present))
                classes, codes = classes[present], place[codes]
        weight = self._weight_of(np.asarray(classes)[np.maximum(codes, 0)], weight)
        problems = two_class_problems(len(classes), self.multi_class)
        rows = [self._rows_of(problem, codes, weight) for problem in problems]
        fitted = self._solve_all(T, rows, weight)
        self.classes_ = classes
        self.coef_ = np.array([one.weights.tensor().ravel() for one in fitted])
        self.intercept_ = np.array([one.b for one in fitted])
        self.factors_ = one_or_list([_scaled(one.weights) for one in fitted])
        self.objective_ = one_or_list([float(one.objective) for one in fitted])
        self.history_ = one_or_list([one.history for one in fitted])
        self.n_iter_ = one_or_list([max(len(one.stages), 1) for one in fitted])
        self.converged_ = one_or_list([one.converged for one in fitted])
        self._stages = one_or_list([_packed(one) for one in fitted])
        for name in fitted[0].extra:
            setattr(self, name, one_or_list([one.extra[name] for one in fitted]))
        self._warn(fitted)
        return self

    def _weight_of(self, labels: NDArray[Any], weight: Vector) -> Vector:
        """What samples weigh in the criterion."""
        return weight

    def _rows_of(
        self, problem: TwoClassProblem, codes: NDArray[Any], weight: Vector
    ) -> tuple[NDArray[np.intp], Vector]:
        """Numbers of the samples that take part, and their signs."""
        signs = problem.signs(np.maximum(codes, 0)) * (codes >= 0)
        taking_part = np.flatnonzero((signs != 0) & (weight > 0))
        return taking_part, signs[taking_part]

    def _solve_all(
        self, T: Matrix, rows: list[tuple[NDArray[np.intp], Vector]], weight: Vector
    ) -> list[Fitted]:
        """Every problem from every start, in threads that share X; the best of each problem."""
        random = check_random_state(self.random_state)
        seeds = random.randint(2**31, size=(len(rows), self.n_init))
        parts = [T if len(part) == len(T) else T[part] for part, _ in rows]

        def solve(task: tuple[int, int]) -> Fitted:
            k, start = task
            part, y = rows[k]
            own = np.random.RandomState(seeds[k, start])
            return self._run(BinaryTask(parts[k], y, weight[part], start, own))

        tasks = [(k, start) for k in range(len(rows)) for start in range(self.n_init)]
        found = list(map_in_order(solve, tasks, min(effective_threads(self.n_jobs), len(tasks))))
        best = []
        for k, (part, _) in enumerate(rows):
            own = found[k * self.n_init : (k + 1) * self.n_init]
            # A start that collapsed loses against any that did not.
            sign = -1 if self.maximizes else 1
            one = min(own, key=lambda f: (f.collapsed, sign * f.objective))
            if "support_" in one.extra:
                one.extra["support_"] = part[one.extra["support_"]]
            best.append(one)
        return best

    # ------------------------------------------------------------------ one problem from one start

    def _run(self, task: BinaryTask) -> Fitted:
        """Alternation from a start; where it collapses once more from the difference of means."""
        learn = self._learner(task.X, task.y, task.weight)
        found = self._alternate(task.X, learn, self._start(task))
        if found.collapsed:
            found = self._alternate(task.X, learn, self._mean_difference(task))
        return self._fitted(task, found)

    def _alternate(self, X: Matrix, learn: VectorLearner, start: Sequence[Matrix]) -> Alternation:
        report = report_of(self)
        began = perf_counter()

        def tell(sweep: int, objective: float) -> None:
            if report is not None:
                report({"objective": objective, "seconds": perf_counter() - began})

        return alternate(X, learn, start, max_iter=self.max_iter, tol=self.tol, report=tell)

    def _fitted(
        self, task: BinaryTask, found: Alternation, extra: dict[str, Any] | None = None
    ) -> Fitted:
        """What is kept of an alternation; of one that collapsed the majority."""
        history = {"objective": [float(value) for value in found.objectives]}
        if not found.collapsed:
            plane = found.plane
            return Fitted(
                found.weights,
                plane.b,
                plane.objective,
                history,
                found.stages,
                found.converged,
                False,
                extra or {},
            )
        heavier = float(task.weight @ task.y)
        weights = found.weights._replace(scales=np.zeros(found.weights.rank))
        b, objective = 1.0 if heavier > 0 else -1.0, float(found.plane.objective)
        stages = [(weights, b)]
        return Fitted(weights, b, objective, history, stages, False, True, extra or {})

    # ------------------------------------------------------------------ starts

    def _start(self, task: BinaryTask) -> list[Matrix]:
        """Factors to start from; only the first start is as ``init`` says, others are random."""
        shape = task.X.shape[1:]
        if task.start > 0 or (isinstance(self.init, str) and self.init == "random"):
            return random_start(shape, self.rank, task.random)
        if not isinstance(self.init, str):
            return _given_factors(self.init, shape, self.rank, type(self).__name__)
        if self.init == "mean_difference":
            return self._mean_difference(task)
        found = self._least_squares(task, self._start_gamma(task))
        return self._mean_difference(task) if found.collapsed else found.weights.factors

    def _mean_difference(self, task: BinaryTask) -> list[Matrix]:
        sums = [np.where(task.y == sign, task.weight, 0.0) for sign in (1, -1)]
        means = [v @ task.X.reshape(len(task.X), -1) / v.sum() for v in sums]
        D = (means[0] - means[1]).reshape(task.X.shape[1:])
        return rank_start(D, self.rank, task.random)

    def _least_squares(self, task: BinaryTask, gamma: float) -> Alternation:
        """A few sweeps of the least-squares machine."""

        def learn(Z: Matrix) -> Hyperplane:
            return label_ridge(Z, task.y, gamma, task.weight)

        return alternate(task.X, learn, self._mean_difference(task), max_iter=30, tol=1e-4)

    def _start_gamma(self, task: BinaryTask) -> float:
        """Of the start by least squares: a ridge of a tenth of the variance within classes."""
        level = (
            _SHARE_OF_VARIANCE
            * float(task.weight.sum())
            * variance_within(task.X, task.y, task.weight)
        )
        return 1 / level if level > 0 else 1.0

    # ------------------------------------------------------------------ use

    def _warn(self, fitted: list[Fitted]) -> None:
        name = type(self).__name__
        if any(one.collapsed for one in fitted):
            warn(
                f"{name}: two classes are not told apart: no direction is better than none here, "
                "and all samples go to the larger class. converged_ is False."
            )
        elif not all(one.converged for one in fitted):
            warn_of_limit(name, self.max_iter)

    def _check_rows_of(self, X: ArrayLike) -> Matrix:
        T = self._check_tensors(X, reset=False)
        return np.asarray(T.reshape(len(T), -1), dtype=np.float64)

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Matrix]:
        """Decisions after every sweep over the modes, as in ``decision_function``.

        Parameters
        ----------
        X : as in ``fit``
            Samples.

        Yields
        ------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            As many as the longest of the problems has sweeps; those that ended keep their last.
        """
        check_is_fitted(self)
        rows = self._check_rows_of(X)
        tables = self._stages if isinstance(self._stages, list) else [self._stages]
        for sweep in range(max(len(table) for table in tables)):
            stages = [table[min(sweep, len(table) - 1)] for table in tables]
            planes = [_unpacked(stage, self.tensor_shape_, self.rank) for stage in stages]
            scores = np.column_stack([rows @ W.tensor().ravel() + b for W, b in planes])
            yield votes_of(scores, len(self.classes_), self.multi_class)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        width = (sum(self.tensor_shape_) + 1) * self.rank + 1
        tables = self._stages if isinstance(self._stages, list) else [self._stages]
        if any(table.shape[1] != width or not len(table) for table in tables):
            raise ValueError("_stages do not fit the shape of the tensors.")


def _scaled(weights: CPWeights) -> list[Matrix]:
    """Unit columns, but for the last mode, which holds the scales."""
    return [*weights.factors[:-1], weights.factors[-1] * weights.scales]


def _packed(fitted: Fitted) -> Matrix:
    """One row for each sweep: scales, factors and the intercept."""
    return np.array(
        [np.concatenate([W.scales, *(U.ravel() for U in W.factors), [b]]) for W, b in fitted.stages]
    )


def _unpacked(stage: Vector, shape: Sequence[int], rank: int) -> tuple[CPWeights, float]:
    ends = np.cumsum([rank, *(d * rank for d in shape)])
    factors = [
        stage[first:last].reshape(d, rank)
        for first, last, d in zip(ends[:-1], ends[1:], shape, strict=True)
    ]
    return CPWeights(stage[:rank], factors), float(stage[-1])


def _given_factors(
    init: Sequence[ArrayLike], shape: Sequence[int], rank: int, name: str
) -> list[Matrix]:
    """The user's start, checked."""
    wanted = f"{len(shape)} vectors of lengths {tuple(shape)}"
    if rank > 1:
        wanted = f"{len(shape)} matrices of shapes {[(d, rank) for d in shape]}"
    factors = []
    for given in init:
        try:
            U = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{name}: init must be {wanted}; got {given!r}.") from None
        factors.append(U[:, None] if U.ndim == 1 else U)
    found = [U.shape for U in factors]
    if found != [(d, rank) for d in shape]:
        raise ValueError(f"{name}: init must be {wanted}; found shapes {found}.")
    for k, U in enumerate(factors):
        if not np.isfinite(U).all() or not np.linalg.norm(U, axis=0).all():
            raise ValueError(f"{name}: init[{k}] must be finite, and no vector of it zero.")
    return factors


def ridge_of(ridge: float, mode: RidgeMode, X: Matrix, y: Vector, weight: Vector) -> float:
    """The one number that is added to variances in all modes and sweeps."""
    return ridge * variance_within(X, y, weight) if mode == "relative" else ridge


def variance_within(X: Matrix, y: Vector, weight: Vector) -> float:
    """The mean variance of an entry within the two classes; of all samples where that is zero.

    Entries that never vary do not count.
    """
    flat = X.reshape(len(X), -1)
    total = float(weight.sum())
    sides = (y < 0).astype(np.intp)
    sums = [np.where(sides == k, weight, 0.0) for k in (0, 1)]
    means = np.array([v @ flat / v.sum() for v in sums])
    squares = np.zeros(flat.shape[1])
    for block in row_blocks(len(flat), 16 * flat.shape[1], at_most=4096):
        offsets = flat[block] - means[sides[block]]
        squares += np.einsum("i,ij,ij->j", weight[block], offsets, offsets)
    share = float(sums[0].sum() * sums[1].sum()) / total**2
    between = share * (means[0] - means[1]) ** 2
    varies = np.sqrt(squares / total + between) > 16 * np.finfo(float).eps * np.abs(means).max(0)
    if not varies.any():
        return 0.0
    inner, outer = float(squares.sum()) / total, float(between.sum())
    return (inner if inner > 1e-14 * outer else outer) / int(varies.sum())
