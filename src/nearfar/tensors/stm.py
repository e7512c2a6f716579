"""Support tensor machine."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_sample_weight

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, check_each_problem
from nearfar.parameters import AllowedValues, none, one_of, real
from nearfar.solvers.alternating_modes import Alternation, alternate, make_cp_weights
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.joint_hinge import (
    NARROW_WIDTHS,
    JointPoint,
    descend_jointly,
    stationarity_gap,
)
from nearfar.solvers.support_vectors import c_svm
from nearfar.state import Condition, State, number
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    BinarySolution,
    BinaryTask,
    HistoryEntries,
    TensorClassifier,
    TensorStart,
)

# Margins within this distance of 1 are treated as exactly 1 in the stationarity gap.
_CORNER_TOLERANCE = 1e-5
# Multipliers up to this fraction of their upper bound are treated as zero. The corresponding
# samples are not support vectors.
_SUPPORT_FRACTION = 1e-6

_INDEX_VECTOR = Condition(
    lambda value, _: isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i",
    "a vector of sample indices",
)

# Range of C in the units of X. Outside, rounding errors determine the hyperplanes.
_MIN_COST, _MAX_COST = 1e-30, 1e50


class STM(TensorClassifier):
    r"""Support tensor machine: a linear SVM whose weight tensor has low rank.

    .. math::
        \min_{W, b}\; \tfrac12\|W\|^2 + C \sum_i (1 - y_i(\langle X_i, W\rangle + b))_+,
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr} .

    For fixed factors of all other modes, the factor of a mode is the solution of a linear SVM,
    which an interior point method solves to a proven duality gap. Vectors, and matrices with full
    ``rank``, give the SVM itself. Otherwise the solution is a local optimum (see Notes).

    Use it if there are few samples with many entries, and the classes differ by a tensor of low
    rank. C has the same unit as in an SVM: standardize X, or choose C by cross-validation.

    Cost: with D unknowns and k samples near the margin, the joint minimization takes a few dozen
    passes over X and as many steps of O(k D² + D³). Then one or two sweeps follow. With M modes, a
    sweep reads X M times and solves, for each mode, an SVM with d_k features on the samples near
    the margin.

    Parameters
    ----------
    C : float, default=1.0
        Cost of a margin error, in units of 1 / X².
    rank : int, default=1
        Number of rank-one terms of the weight tensor W, at most the largest possible rank.
    class_weight : dict, "balanced" or None, default=None
        Factor of C for each label. "balanced" uses factors inversely proportional to class sizes.
    init : {"mean_difference", "least_squares", "random"} or list, default="least_squares"
        Starting point: "mean_difference" fits rank-one tensors to the difference of class means,
        "least_squares" runs a few sweeps of :class:`LSSTM`, "random" uses random factors. A list
        has one array of shape (d_k,) or (d_k, rank) per mode. All further starts are random.
    refine : {"joint"} or None, default="joint"
        Optimization before the alternation over the modes: "joint" minimizes the objective over all
        factors together. None only alternates, as in [1]_.
    n_init : int, default=1
        Number of starts. The result with the best objective is kept.
    max_iter : int, default=100
        Maximum number of iterations. Each iteration is a sweep over the modes. The limit applies to
        each start separately.
    tol : float, default=1e-6
        Stop when a sweep hardly changes the factors. In every mode, :math:`1 - |\cos|` of the angle
        between the old and the new factor must be at most ``tol``.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Strategy for more than two classes: "ovo" solves one problem per pair of classes and votes,
        "ovr" solves one problem per class against the rest. With rank 1, "ovo" is far better.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).
    random_state : int, RandomState or None, default=0
        Seed of the random number generator.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads solve the two-class
        problems from all starts in parallel and share X.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    coef_ : ndarray of shape (n_problems, n_features)
        Weight tensors W as flat rows in C order, one row per two-class problem. With two classes,
        there is one problem, in which ``classes_[1]`` is the positive class.
    intercept_ : ndarray of shape (n_problems,)
        Intercept of each two-class problem.
    factors_ : list of ndarray of shape (d_k, rank)
        Factors of W, one matrix per mode. Columns have unit length except in the last mode, which
        contains the scales. With several problems, this attribute is a list with one entry per
        problem, and so are all attributes below except ``tensor_shape_``.
    objective_ : float
        Final value of the minimized objective.
    history_ : dict
        Lists of progress values. "objective" has one value per update of a mode. "step" (the
        largest :math:`1 - |\cos|`, see ``tol``) and "seconds" (the time since the start) have one
        value per sweep. The joint minimization adds "width", the widths of the rounded hinge (0 is
        the exact hinge), and "joint", the objective for each width.
    n_iter_ : int
        Number of sweeps.
    converged_ : bool
        Whether ``tol`` was reached. If the optimum is W = 0, this attribute is False, ``fit``
        warns, and all samples are assigned to the larger class.
    stationarity_gap_ : float
        Norm of the smallest subgradient with respect to the intercept and all factors, which are
        scaled to equal length in all modes. The norm is near 0 at a stationary point.
    support_ : ndarray of int
        Indices of the support vectors: training samples on or within the margin, which have a
        positive multiplier in the SVM of the last mode.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    LSSTM, NuSTM

    Notes
    -----
    The procedure of [1]_ alternates over the modes. It can stall at a point where the hinge loss is
    not differentiable and no single mode can decrease the objective, although a joint change of
    all factors could. With ``refine="joint"``, all factors are therefore first optimized together,
    with hinges whose corners are rounded over a decreasing width:

    - Up to 600 unknowns: Newton steps, then an interior point method for the exact hinge.
    - More unknowns: L-BFGS.

    Alternation then polishes the result. ``stationarity_gap_`` measures how far the result is from
    a stationary point of the whole problem. After the interior point method it is only a rounding
    error.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.1.
       Theorem 4.1 shows that the objective converges, not that the limit is stationary.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import STM
    >>> digits = load_digits()
    >>> X, y = digits.images / 16, digits.target
    >>> machine = STM().fit(X[:600], y[:600])
    >>> round(machine.score(X[600:], y[600:]), 2)
    0.89
    """

    learner_tags = LearnerTags(reads="supervision", role="classifier", input="tensors")
    state = State(
        {
            "stationarity_gap_": check_each_problem(number(0)),
            "support_": check_each_problem(_INDEX_VECTOR),
        }
    )
    parameters: ClassVar = {
        "C": [real(0, open_low=True)],
        "class_weight": [
            none,
            one_of("balanced"),
            AllowedValues(lambda value: isinstance(value, dict), "a dict of factors by label"),
        ],
        "refine": [one_of("joint"), none],
        **TENSOR_CLASSIFIER_PARAMETERS,
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        rank: int = 1,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        init: TensorStart = "least_squares",
        refine: Literal["joint"] | None = "joint",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        multi_class: MultiClass = "ovo",
        tensor_shape: tuple[int, ...] | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.rank = rank
        self.class_weight = class_weight
        self.init = init
        self.refine = refine
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.multi_class = multi_class
        self.tensor_shape = tensor_shape
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _apply_class_weight(self, labels: NDArray[Any], weight: Vector) -> Vector:
        """Multiply the sample weights by the class weights of the samples."""
        if self.class_weight is None:
            return weight
        if isinstance(self.class_weight, dict):
            valid_labels = set(labels.tolist())
            for label, value in self.class_weight.items():
                if label not in valid_labels or not real(0, open_low=True).accepts(value):
                    raise ValueError(
                        f"{type(self).__name__}: class_weight must map labels of y, "
                        f"{sorted(valid_labels, key=str)}, to positive numbers; got "
                        f"{label!r}: {value!r}."
                    )
        return np.asarray(weight * compute_sample_weight(self.class_weight, labels))

    def _fit_checked(
        self, T: Any, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> KeyboardInterrupt | None:
        size = float(np.abs(T - T.mean(axis=0, dtype=np.float64)).max())
        if size and not _MIN_COST <= self.C * size**2 <= _MAX_COST:
            raise ValueError(
                f"STM: C={self.C:g} does not match the units of X, whose values differ from their "
                f"mean by up to {size:.3g}. C times the square of this number must be from "
                f"{_MIN_COST:g} to {_MAX_COST:g}. Rescale X, or change C."
            )
        return super()._fit_checked(T, y, sample_weight)

    def _make_mode_learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        return _make_svm_learner(y, self.C * weight)

    def _choose_start_gamma(self, task: BinaryTask) -> float:
        return self.C

    def _solve_task(self, task: BinaryTask) -> tuple[Alternation, HistoryEntries]:
        is_convex = self.rank == 1 and sum(d > 1 for d in task.X.shape[1:]) <= 1
        if self.refine is None or is_convex:
            return super()._solve_task(task)
        start, joint = self._minimize_jointly(task)
        extra_history = {"joint": joint.objectives, "width": joint.widths}
        scores = task.X.reshape(len(task.X), -1) @ joint.weights.tensor().ravel() + joint.b
        learn = _make_svm_learner(task.y, self.C * task.weight, scores)
        if joint.interrupt is None:
            alternation = self._alternate_modes(
                task, learn, start, start_is_converged=0.0 in joint.widths
            )
            return (
                self._alternate_with_retry(task, start) if alternation.collapsed else alternation
            ), extra_history
        # One sweep from the interrupted point computes the intercept and the multipliers.
        alternation = alternate(task.X, learn, start, max_iter=1)
        return alternation._replace(interrupt=joint.interrupt), extra_history

    def _compute_extra_attributes(
        self, task: BinaryTask, alternation: Alternation, solution: BinarySolution
    ) -> dict[str, Any]:
        cost = self.C * task.weight
        is_exact = 0.0 in solution.history.get("width", [0.0])
        corner_tolerance = _CORNER_TOLERANCE if is_exact else 2 * NARROW_WIDTHS[-1]
        gap = stationarity_gap(
            task.X, task.y, cost, solution.weights, solution.b, active=corner_tolerance
        )
        dual = np.zeros(len(cost)) if alternation.plane.dual is None else alternation.plane.dual
        return {
            "stationarity_gap_": gap,
            "support_": np.flatnonzero(dual > _SUPPORT_FRACTION * cost),
        }

    def _minimize_jointly(self, task: BinaryTask) -> tuple[list[Matrix], JointPoint]:
        """Minimize the objective over all factors together. Return the factors and the solution."""
        uses_least_squares = isinstance(self.init, str) and self.init == "least_squares"
        if task.start == 0 and uses_least_squares:
            initial = self._start_from_least_squares(task, self._choose_start_gamma(task))
            weights, b = initial.weights, initial.plane.b
            if initial.collapsed:
                weights, b = make_cp_weights(self._start_from_mean_difference(task)), 0.0
        else:
            weights, b = make_cp_weights(self._make_start(task)), 0.0

        def report_stage(state: dict[str, Any]) -> None:
            if task.report is not None:
                task.report(state | {"stage": "all factors at once"})

        cost = self.C * task.weight
        point = descend_jointly(task.X, task.y, cost, weights, b, report=report_stage)
        # A rank-one term with scale 0 has no direction. Use its initial direction instead.
        has_scale = point.weights.scales > 0
        pairs = zip(point.weights.factors, weights.factors, strict=True)
        return [np.where(has_scale, U, V) for U, V in pairs], point


def _make_svm_learner(y: Vector, cost: Vector, scores: Vector | None = None) -> VectorLearner:
    """Return a function that trains an SVM, warm-started with the scores of the previous SVM.

    The scores of one mode are valid for the next mode, because the weight tensor is the same.
    """
    previous_scores = [scores]

    def learn(Z: Matrix) -> Hyperplane:
        plane = c_svm(Z, y, cost, scores=previous_scores[0])
        previous_scores[0] = Z @ plane.w + plane.b
        return plane

    return learn
