"""Support tensor machine."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, for_each_problem
from nearfar.parameters import AllowedValues, none, one_of, real
from nearfar.solvers.alternating_modes import Alternation, alternate, cp_weights
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
    BinaryTask,
    Fitted,
    Notes,
    TensorClassifier,
    TensorStart,
)

# Margins within this distance of 1 are treated as exactly 1 in the stationarity gap.
_CORNER = 1e-5
# Multipliers up to this fraction of their upper bound are treated as zero.
_SUPPORT = 1e-6

_support = Condition(
    lambda value, _: isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i",
    "a vector of sample indices",
)


class STM(TensorClassifier):
    r"""Support tensor machine: a linear SVM whose weight tensor has low rank.

    .. math::
        \min_{W, b}\; \tfrac12\|W\|^2 + C \sum_i (1 - y_i(\langle X_i, W\rangle + b))_+,
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr} .

    For fixed factors of all other modes, the factor of a mode is the solution of a linear SVM,
    which an interior point method solves to a proven duality gap. Vectors, and matrices with full
    ``rank``, give the SVM itself. Otherwise the solution is a local optimum (see Notes).

    Use it if the samples have many entries, there are few of them, and the classes differ by a
    tensor of low rank. C has the same unit as in an SVM: standardize X, or choose C by
    cross-validation.

    Cost: with D unknowns and k samples near the margin, a few dozen passes over X and as many
    steps of O(k D² + D³); then one or two sweeps. A sweep reads X M times and solves, for each
    mode, an SVM with d_k features on the samples near the margin.

    Parameters
    ----------
    C : float, default=1.0
        Cost of a margin error, in units of 1 / X².
    rank : int, default=1
        Number of rank-one terms of W.
    class_weight : dict, "balanced" or None, default=None
        Factor of C for each label. "balanced" uses factors inversely proportional to class sizes.
    init : {"mean_difference", "least_squares", "random"} or list, default="least_squares"
        Starting point: rank-one tensors that approximate the difference of class means one after
        another, a few sweeps of :class:`LSSTM`, random factors, or your own list with one array of
        shape (d_k,) or (d_k, rank) per mode. All further starts are random.
    refine : {"joint"} or None, default="joint"
        "joint" minimizes over all factors together before alternating over the modes. None only
        alternates, as in [1]_.
    n_init : int, default=1
        Number of starts. The result with the best objective is kept.
    max_iter : int, default=100
        Maximum number of iterations: sweeps over the modes per start.
    tol : float, default=1e-6
        Stop when a sweep turns the factors so little that :math:`1 - |\cos|` of the angle is at
        most this in every mode.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Strategy for more than two classes: "ovo" solves one problem per pair of classes and votes,
        "ovr" solves one problem per class against the rest. With rank 1, "ovo" is far better.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest).
    random_state : int, RandomState or None, default=0
        Seed of the random number generator.
    n_jobs : int or None, default=None
        Number of threads. They solve problems and starts in parallel and share X. None means 1,
        -1 all cores.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    coef_ : ndarray of shape (n_problems, n_features)
        The weight tensors W as flat rows in C order. Two classes have one problem, in which
        ``classes_[1]`` is the positive class.
    intercept_ : ndarray of shape (n_problems,)
        Intercept of each problem.
    factors_ : list of ndarray of shape (d_k, rank)
        Factors of W, one matrix per mode. Columns have unit length except in the last mode, which
        contains the scales. With several problems, this attribute and those below, except
        ``tensor_shape_``, are lists with one entry per problem.
    objective_ : float
        Final value of the minimized objective.
    history_ : dict
        Lists: "objective" after each step of a mode; "step", the largest :math:`1 - |\cos|` of a
        turn, and "seconds" since the start, after each sweep; "width" of the rounded hinge in the
        joint minimization (0 for the exact hinge) and "joint", the objective after each width.
    n_iter_ : int
        Number of sweeps.
    converged_ : bool
        Whether ``tol`` was reached. False also for a problem whose optimum is W = 0: it assigns all
        samples to the larger class, and ``fit`` warns.
    stationarity_gap_ : float
        Norm of the smallest subgradient with respect to all factors, scaled to equal length in all
        modes, and the intercept. It is near 0 at a stationary point.
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
            "stationarity_gap_": for_each_problem(number(0)),
            "support_": for_each_problem(_support),
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

    def _weight_of(self, labels: NDArray[Any], weight: Vector) -> Vector:
        """Multiply the sample weights by the class weights."""
        if self.class_weight is None:
            return weight
        if isinstance(self.class_weight, dict):
            known = set(labels.tolist())
            for label, value in self.class_weight.items():
                if label not in known or not real(0, open_low=True).accepts(value):
                    raise ValueError(
                        f"{type(self).__name__}: class_weight must map labels of y, "
                        f"{sorted(known, key=str)}, to positive numbers; got {label!r}: {value!r}."
                    )
        return np.asarray(weight * compute_sample_weight(self.class_weight, labels))

    def _learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        return _svm_steps(y, self.C * weight)

    def _start_gamma(self, task: BinaryTask) -> float:
        return self.C

    def _search(self, task: BinaryTask) -> tuple[Alternation, Notes]:
        convex = self.rank == 1 and sum(d > 1 for d in task.X.shape[1:]) <= 1
        if self.refine is None or convex:
            return super()._search(task)
        start, joint = self._refined(task)
        notes = {"joint": joint.objectives, "width": joint.widths}
        scores = task.X.reshape(len(task.X), -1) @ joint.weights.tensor().ravel() + joint.b
        learn = _svm_steps(task.y, self.C * task.weight, scores)
        if joint.interrupt is None:
            found = self._alternate(task, learn, start, settled=0.0 in joint.widths)
            return (self._from(task, start) if found.collapsed else found), notes
        # One sweep from the interrupted point computes the intercept and the multipliers.
        found = alternate(task.X, learn, start, max_iter=1)
        return found._replace(interrupt=joint.interrupt), notes

    def _extra(self, task: BinaryTask, found: Alternation, fitted: Fitted) -> dict[str, Any]:
        cost = self.C * task.weight
        exact = 0.0 in fitted.history.get("width", [0.0])
        active = _CORNER if exact else 2 * NARROW_WIDTHS[-1]
        gap = stationarity_gap(task.X, task.y, cost, fitted.weights, fitted.b, active=active)
        dual = np.zeros(len(cost)) if found.plane.dual is None else found.plane.dual
        return {"stationarity_gap_": gap, "support_": np.flatnonzero(dual > _SUPPORT * cost)}

    def _refined(self, task: BinaryTask) -> tuple[list[Matrix], JointPoint]:
        """Return the factors after the joint minimization, and its last point."""
        by_squares = isinstance(self.init, str) and self.init == "least_squares"
        if task.start == 0 and by_squares:
            first = self._least_squares(task, self._start_gamma(task))
            weights, b = first.weights, first.plane.b
            if first.collapsed:
                weights, b = cp_weights(self._mean_difference(task)), 0.0
        else:
            weights, b = cp_weights(self._start(task)), 0.0

        def told(state: dict[str, Any]) -> None:
            if task.report is not None:
                task.report(state | {"stage": "all factors at once"})

        cost = self.C * task.weight
        point = descend_jointly(task.X, task.y, cost, weights, b, report=told)
        # A rank-one term with scale 0 has no direction: use the direction it started with.
        alive = point.weights.scales > 0
        pairs = zip(point.weights.factors, weights.factors, strict=True)
        return [np.where(alive, U, V) for U, V in pairs], point


def _svm_steps(y: Vector, cost: Vector, scores: Vector | None = None) -> VectorLearner:
    """Return a learner that warm-starts each SVM with the scores of the previous one.

    This is valid across modes because the scores do not depend on the mode.
    """
    known = [scores]

    def learn(Z: Matrix) -> Hyperplane:
        plane = c_svm(Z, y, cost, scores=known[0])
        known[0] = Z @ plane.w + plane.b
        return plane

    return learn
