"""The support tensor machine."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, for_each_problem
from nearfar.parameters import Allowed, none, one_of, real
from nearfar.solvers.alternating_modes import Alternation, alternate, cp_weights
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.joint_hinge import (
    NARROW_WIDTHS,
    JointPoint,
    descend_jointly,
    stationarity_gap,
)
from nearfar.solvers.support_vectors import c_svm
from nearfar.state import State, Word, number
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    BinaryTask,
    Fitted,
    Notes,
    TensorClassifier,
    TensorStart,
)

# Margins so near to their corner are on it, and multipliers of so small a share of C are none.
_CORNER = 1e-5
_SUPPORT = 1e-6

_support = Word(
    lambda value, _: isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i",
    "numbers of samples",
)


class STM(TensorClassifier):
    r"""Support tensor machine: the largest margin of a weight tensor of low rank.

    .. math::
        \min_{W, b}\; \tfrac12\|W\|^2 + C \sum_i (1 - y_i(\langle X_i, W\rangle + b))_+,
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr} .

    With all modes but one held it is a linear SVM, solved by an interior point method to a proven
    gap. Alternation alone, the procedure of [1], stalls: hinges have corners that no single mode
    can leave though all together could. So by default all factors first descend together under
    hinges whose corners are rounded less and less (``refine="joint"``): up to 600 unknowns by
    Newton's steps and an exact end, an interior point method in all factors, beyond by L-BFGS.
    Alternation polishes what they find. ``stationarity_gap_`` tells how far from a stationary
    point of the whole it ends: after an exact end nothing but rounding. The optimum is local;
    matrices of full rank, and vectors, give the SVM itself.

    Use it where samples are few for their size and classes differ by a tensor of low rank. C has
    the unit that it has in an SVM: standardise, or choose it by cross-validation.

    Cost: some dozens of passes over X and as many steps of O(k D² + D³) with D unknowns and k
    samples near their margin, then a sweep or two of M passes and an SVM of d_k features on the
    samples near their margin for each mode.

    Parameters
    ----------
    C : float, default=1.0
        Cost of a margin error, in the unit of one over X squared.
    rank : int, default=1
        Number of rank-one terms of W.
    class_weight : dict, "balanced" or None, default=None
        Factors of C by label: "balanced" is inverse to the class sizes.
    init : {"mean_difference", "least_squares", "random"} or list, default="least_squares"
        Where to start: from the rank-one tensors nearest to the difference of the class means, from
        a few sweeps of :class:`LSSTM`, at random, or your own: one vector for each mode, of a
        higher rank matrices with a column for each term. Further starts are random.
    refine : {"joint"} or None, default="joint"
        Whether all factors descend together first. None is plain alternation, as in [1].
    n_init : int, default=1
        Number of starts; the best is kept.
    max_iter : int, default=100
        Steps at most: sweeps over the modes, from each start.
    tol : float, default=1e-6
        Sweeps stop when in every mode :math:`1 - |\cos|` of the turn is at most this.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Which problems of two sides are solved for more than two classes: all pairs, which vote, or
        each class against the rest. At rank one pairs are far better.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample, where X comes as flat rows, the last mode fastest.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the random starts.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores. Problems and starts run side by side and share X.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    coef_ : ndarray of shape (n_problems, n_features)
        The tensors W as rows, the last mode fastest; with two classes there is one problem, whose
        positive side is the second.
    intercept_ : ndarray of shape (n_problems,)
        Intercepts.
    factors_ : list of ndarray of shape (d_k, rank)
        The vectors of W, one matrix for each mode; columns have unit length but for the last mode,
        which holds the scales. For several problems a list of such lists, as for what follows.
    objective_ : float
        What was minimised.
    history_ : dict
        "objective" after every mode step; after every sweep "step", the largest :math:`1 - |\cos|`
        of a turn, and "seconds" since the start; "joint", the objective after every "width" of
        the rounded corners, which is 0 after the exact end.
    n_iter_ : int
        Sweeps.
    converged_ : bool
        Whether ``tol`` was reached; False for a problem without any direction, whose samples all go
        to the larger class, with a warning.
    stationarity_gap_ : float
        Length of the shortest subgradient in all factors, of equal length in all modes, and the
        intercept; near 0 at a stationary point.
    support_ : ndarray of int
        Training samples with a multiplier in the last mode: at or within the margin.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    LSSTM, NuSTM

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.1.
       Its theorem 4.1 shows that the objective converges, not that the point is stationary.

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
            Allowed(lambda value: isinstance(value, dict), "a dict of factors by label"),
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
        """Sample weights times those of the classes."""
        if self.class_weight is None:
            return weight
        if isinstance(self.class_weight, dict):
            known = set(labels.tolist())
            for label, value in self.class_weight.items():
                if label not in known or not real(0, open_low=True).accepts(value):
                    raise ValueError(
                        f"{type(self).__name__}: class_weight must give a number above 0 to labels "
                        f"of y, {sorted(known, key=str)}; found {label!r}: {value!r}."
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
        # One sweep from there has the intercept and the multipliers.
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
        """Factors after the joint descent, and where it ended."""
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
        # A term that vanished has no direction left; its own from before may be used again.
        alive = point.weights.scales > 0
        pairs = zip(point.weights.factors, weights.factors, strict=True)
        return [np.where(alive, U, V) for U, V in pairs], point


def _svm_steps(y: Vector, cost: Vector, scores: Vector | None = None) -> VectorLearner:
    """Mode steps, each of which begins with the samples near their margin after the one before.

    Scores do not depend on the mode in which they are looked at.
    """
    known = [scores]

    def learn(Z: Matrix) -> Hyperplane:
        plane = c_svm(Z, y, cost, scores=known[0])
        known[0] = Z @ plane.w + plane.b
        return plane

    return learn
