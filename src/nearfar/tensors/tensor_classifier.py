"""Base class of tensor classifiers: two-class problems, starts, and fitted attributes."""

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
from nearfar.base import TensorInput
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
from nearfar.base.progress import Report, report_of, told_in_order
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.blocks import resolve_n_threads
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import AllowedValues, integer, none, one_of, real
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
# Ridge of the start "least_squares", as a fraction of the variance within classes.
_SHARE_OF_VARIANCE = 0.1

_matrices = Condition(
    lambda value, _: (
        type(value) is list
        and all(isinstance(U, np.ndarray) and U.ndim == 2 and U.dtype == np.float64 for U in value)
    ),
    "a list of matrices",
)
_stage_table = Condition(
    lambda value, _: (
        isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype == np.float64
    ),
    "a two-dimensional array of float64",
)
_history = Condition(
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
Notes = dict[str, list[float]]


class BinaryTask(NamedTuple):
    """A two-class problem and the number of its start."""

    X: Matrix
    y: Vector
    weight: Vector
    start: int
    random: np.random.RandomState
    #: Called after each iteration.
    report: Report | None = None


class Fitted(NamedTuple):
    """The solution of a problem. ``extra`` contains further attributes by name."""

    weights: CPWeights
    b: float
    objective: float
    history: dict[str, list[float]]
    stages: list[tuple[CPWeights, float]]
    converged: bool
    collapsed: bool
    extra: dict[str, Any]


class TensorClassifier(TensorInput, LinearClassifier):
    """Base class of linear classifiers whose weight tensor is a sum of rank-one tensors.

    A subclass implements :meth:`_learner`, which learns the factor of one mode. It may override
    :meth:`_search`, which alternates over the modes, and :meth:`_extra`, which computes further
    attributes.
    """

    state = State(
        {
            "factors_": for_each_problem(_matrices),
            "objective_": for_each_problem(number()),
            "history_": for_each_problem(_history),
            "n_iter_": for_each_problem(integer_value()),
            "converged_": for_each_problem(flag),
            "_stages": for_each_problem(_stage_table),
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
    def _learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        """Return the learner of one mode. ``weight`` contains the sample weights."""

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
            if len(present) < len(classes):  # Drop classes without weight.
                place = np.full(len(classes), -1)
                place[present] = np.arange(len(present))
                classes, codes = classes[present], place[codes]
        weight = self._weight_of(np.asarray(classes)[np.maximum(codes, 0)], weight)
        problems = two_class_problems(len(classes), self.multi_class)
        rows = [self._rows_of(problem, codes, weight) for problem in problems]
        fitted, interrupt = self._solve_all(T, rows, weight)
        self.classes_ = classes
        self.coef_ = np.array([one.weights.tensor().ravel() for one in fitted])
        self.intercept_ = np.array([one.b for one in fitted])
        self.factors_ = one_or_list([_scaled(one.weights) for one in fitted])
        self.objective_ = one_or_list([float(one.objective) for one in fitted])
        self.history_ = one_or_list([one.history for one in fitted])
        self.n_iter_ = one_or_list([len(one.history["step"]) for one in fitted])
        self.converged_ = one_or_list([one.converged for one in fitted])
        self._stages = one_or_list([_packed(one) for one in fitted])
        for name in fitted[0].extra:
            setattr(self, name, one_or_list([one.extra[name] for one in fitted]))
        if interrupt is None:
            self._warn(fitted)
        return interrupt

    def _weight_of(self, labels: NDArray[Any], weight: Vector) -> Vector:
        """Return the weights of the samples in the objective."""
        return weight

    def _rows_of(
        self, problem: TwoClassProblem, codes: NDArray[Any], weight: Vector
    ) -> tuple[NDArray[np.intp], Vector]:
        """Return the indices of the samples in a problem, and their signs."""
        signs = problem.signs(np.maximum(codes, 0)) * (codes >= 0)
        taking_part = np.flatnonzero((signs != 0) & (weight > 0))
        return taking_part, signs[taking_part]

    def _solve_all(
        self, T: Matrix, rows: list[tuple[NDArray[np.intp], Vector]], weight: Vector
    ) -> tuple[list[Fitted], KeyboardInterrupt | None]:
        """Solve every problem from every start in threads; return the best of each problem.

        After Ctrl-C, problems without a result run one sweep, so that the classifier is usable.
        """
        random = check_random_state(self.random_state)
        seeds = random.randint(2**31, size=(len(rows), self.n_init))
        parts = [T if len(part) == len(T) else T[part] for part, _ in rows]
        began = perf_counter()

        def task_of(k: int, start: int, report: Report | None = None) -> BinaryTask:
            part, y = rows[k]
            own = np.random.RandomState(seeds[k, start])
            return BinaryTask(parts[k], y, weight[part], start, own, report)

        def solve(
            numbers: tuple[int, int], tell: Report
        ) -> tuple[Fitted, KeyboardInterrupt | None]:
            def told(state: dict[str, Any]) -> None:
                state["seconds"] = perf_counter() - began
                if len(rows) > 1:
                    stage = f", {state['stage']}" if "stage" in state else ""
                    state["stage"] = f"problem {numbers[0] + 1} of {len(rows)}{stage}"
                tell(state)

            task = task_of(*numbers, told)
            found, notes = self._search(task)
            return self._fitted(task, found, notes), found.interrupt

        tasks = [(k, start) for k in range(len(rows)) for start in range(self.n_init)]
        threads = min(resolve_n_threads(self.n_jobs), len(tasks))
        found, interrupt = told_in_order(solve, tasks, threads, report_of(self))
        best = []
        for k, (part, _) in enumerate(rows):
            own = [one for one in found[k * self.n_init : (k + 1) * self.n_init] if one is not None]
            if not own:
                own = [self._one_sweep(task_of(k, 0), interrupt)]
            # Starts that ended with W = 0 are used only if all of them did.
            sign = -1 if self.maximizes else 1
            one = min(own, key=lambda f: (f.collapsed, sign * f.objective))
            if "support_" in one.extra:
                one.extra["support_"] = part[one.extra["support_"]]
            best.append(one)
        return best, interrupt

    # ------------------------------------------------------------------ one problem from one start

    def _search(self, task: BinaryTask) -> tuple[Alternation, Notes]:
        """Return the alternation from a start, and further entries of the history."""
        return self._from(task, self._start(task)), {}

    def _from(self, task: BinaryTask, start: Sequence[Matrix]) -> Alternation:
        """Alternate from a start. If W becomes 0, try again from the difference of means."""
        learn = self._learner(task.X, task.y, task.weight)
        found = self._alternate(task, learn, start)
        if found.collapsed and found.interrupt is None:
            found = self._alternate(task, learn, self._mean_difference(task))
        return found

    def _extra(self, task: BinaryTask, found: Alternation, fitted: Fitted) -> dict[str, Any]:
        """Return further attributes by name."""
        return {}

    def _alternate(
        self,
        task: BinaryTask,
        learn: VectorLearner,
        start: Sequence[Matrix],
        *,
        settled: bool = False,
    ) -> Alternation:
        return alternate(
            task.X,
            learn,
            start,
            max_iter=self.max_iter,
            tol=self.tol,
            settled=settled,
            report=task.report,
        )

    def _one_sweep(self, task: BinaryTask, interrupt: KeyboardInterrupt | None) -> Fitted:
        """Run one sweep after Ctrl-C. If it fails, raise the KeyboardInterrupt."""
        try:
            learn = self._learner(task.X, task.y, task.weight)
            found = alternate(task.X, learn, self._mean_difference(task), max_iter=1, tol=self.tol)
            return self._fitted(task, found, {})
        except Exception as error:
            raise (interrupt or error) from error

    def _fitted(self, task: BinaryTask, found: Alternation, notes: Notes) -> Fitted:
        """Convert an alternation to a solution. If W is 0, predict the larger class."""
        history = {
            "objective": [float(value) for value in found.objectives],
            "step": [float(value) for value in found.steps],
            "seconds": found.seconds,
        } | notes
        weights, b, stages = found.weights, found.plane.b, found.stages
        if found.collapsed:
            weights = weights._replace(scales=np.zeros(weights.rank))
            b = 1.0 if float(task.weight @ task.y) > 0 else -1.0
            stages = [(weights, b)]
        objective, collapsed = float(found.plane.objective), found.collapsed
        fitted = Fitted(weights, b, objective, history, stages, found.converged, collapsed, {})
        return fitted._replace(extra=self._extra(task, found, fitted))

    # ------------------------------------------------------------------ starts

    def _start(self, task: BinaryTask) -> list[Matrix]:
        """Return the initial factors. ``init`` applies to start 0, all others are random."""
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
        """Run up to 30 sweeps of the least-squares support tensor machine."""

        def learn(Z: Matrix) -> Hyperplane:
            return label_ridge(Z, task.y, gamma, task.weight)

        found = alternate(task.X, learn, self._mean_difference(task), max_iter=30, tol=1e-4)
        if found.interrupt is not None:
            raise found.interrupt
        return found

    def _start_gamma(self, task: BinaryTask) -> float:
        """Return gamma of the start "least_squares"."""
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
                f"{name}: the optimum of at least one two-class problem is W = 0, so that it "
                "assigns all samples to the larger class. converged_ is False there. Change the "
                "regularization, or check that the classes differ."
            )
        elif not all(one.converged for one in fitted):
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
            planes = [_unpacked(stage, self.tensor_shape_, self.rank) for stage in stages]
            scores = np.column_stack([rows @ W.tensor().ravel() + b for W, b in planes])
            yield votes_of(scores, len(self.classes_), self.multi_class)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        width = (sum(self.tensor_shape_) + 1) * self.rank + 1
        tables = self._stages if isinstance(self._stages, list) else [self._stages]
        if any(table.shape[1] != width or not len(table) for table in tables):
            raise ValueError("_stages do not match tensor_shape_ and rank.")


def _scaled(weights: CPWeights) -> list[Matrix]:
    """Return factors with unit columns, except in the last mode, which contains the scales."""
    return [*weights.factors[:-1], weights.factors[-1] * weights.scales]


def _packed(fitted: Fitted) -> Matrix:
    """Return one row per sweep with scales, factors and the intercept."""
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
    """Check and return the factors passed as ``init``."""
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
        raise ValueError(f"{name}: init must be {wanted}; got shapes {found}.")
    for k, U in enumerate(factors):
        if not np.isfinite(U).all() or not np.linalg.norm(U, axis=0).all():
            raise ValueError(f"{name}: init[{k}] must be finite and must not have a zero column.")
    return factors


def ridge_of(ridge: float, mode: RidgeMode, X: Matrix, y: Vector, weight: Vector) -> float:
    """Return the number that is added to the variances in all modes and sweeps."""
    return ridge * variance_within(X, y, weight) if mode == "relative" else ridge


def variance_within(X: Matrix, y: Vector, weight: Vector) -> float:
    """Return the mean variance of an entry within the two classes.

    If it is zero, return the mean variance between the classes. Constant entries are ignored.
    """
    flat, total = X.reshape(len(X), -1), float(weight.sum())
    sums = [np.where(y > 0, weight, 0.0), np.where(y > 0, 0.0, weight)]
    sizes = np.array([v.sum() for v in sums])
    means = np.array([v @ flat / n for v, n in zip(sums, sizes, strict=True)])
    alike = bool((weight == weight[0]).all())
    squares = (
        weight[0] * np.einsum("ij,ij->j", flat, flat)
        if alike
        else np.einsum("i,ij,ij->j", weight, flat, flat)
    )
    inside = squares - sizes @ means**2
    # The difference above loses digits for entries whose variance is small relative to their mean:
    # compute these from centered values.
    little, sides = np.flatnonzero(inside < 1e-6 * squares), (y <= 0).astype(np.intp)
    for first in range(0, len(little), 64):
        some = little[first : first + 64]
        inside[some] = weight @ (flat[:, some] - means[:, some][sides]) ** 2
    between = sizes[0] * sizes[1] / total**2 * (means[0] - means[1]) ** 2
    varies = np.sqrt(inside / total + between) > 16 * np.finfo(float).eps * np.abs(means).max(0)
    if not varies.any():
        return 0.0
    inner, outer = float(inside.sum()) / total, float(between.sum())
    return (inner if inner > 1e-14 * outer else outer) / int(varies.sum())
