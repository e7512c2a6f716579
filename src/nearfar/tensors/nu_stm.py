"""Nu support tensor machine."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, check_each_problem
from nearfar.parameters import real
from nearfar.solvers.alternating_modes import Alternation
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.support_vectors import compute_max_nu, nu_svm
from nearfar.state import State, number
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    BinarySolution,
    BinaryTask,
    HistoryEntries,
    TensorClassifier,
    TensorStart,
)

# Number of values of nu that are used one after another if W becomes 0. They decrease from the
# largest feasible value to the requested value.
_PATH_LENGTH = 8


class NuSTM(TensorClassifier):
    r"""Nu support tensor machine: a nu-SVM whose weight tensor has low rank.

    The margin :math:`\rho` is optimized, and nu bounds the fraction of samples within it:

    .. math::
        \min_{W, b, \rho \ge 0}\; \tfrac12\|W\|^2 - \nu\rho +
        \tfrac1n \sum_i (\rho - y_i(\langle X_i, W\rangle + b))_+,
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr} .

    If :math:`\rho` is positive, at most the fraction nu of the samples lies within the margin. The
    algorithm alternates over the modes. For fixed factors of the other modes, the factor of a mode
    is the solution of a nu-SVM, computed by an interior point method. No step increases the
    objective. The alternation may stall at a point that is not stationary, see :class:`STM`.

    If the classes overlap too much for nu, the optimum of a mode is W = 0, and the mode keeps its
    factor. If this happens in all modes, nu is decreased in steps from the largest feasible value
    to the requested one, each step starting from the weights of the previous one.

    Cost: with M modes, a sweep reads X M times and adds about fifteen times O(n d_k²) for mode k
    of length d_k.

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound on the fraction of margin errors. It must be at most twice the fraction of
        samples in the smaller class.
    rank : int, default=1
        Number of rank-one terms of the weight tensor W, at most the largest possible rank.
    init : {"mean_difference", "least_squares", "random"} or list, default="mean_difference"
        Starting point: "mean_difference" fits rank-one tensors to the difference of class means,
        "least_squares" runs a few sweeps of :class:`LSSTM`, "random" uses random factors. A list
        has one array of shape (d_k,) or (d_k, rank) per mode. All further starts are random.
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
        value per sweep.
    n_iter_ : int
        Number of sweeps.
    converged_ : bool
        Whether ``tol`` was reached. If the optimum is W = 0, this attribute is False, ``fit``
        warns, and all samples are assigned to the larger class.
    rho_ : float
        The margin :math:`\rho`.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    STM

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 4.3.1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import NuSTM
    >>> digits = load_digits()
    >>> X, y = digits.images / 16, digits.target
    >>> machine = NuSTM().fit(X[:600], y[:600])
    >>> round(machine.score(X[600:], y[600:]), 2)
    0.85
    """

    learner_tags = LearnerTags(reads="supervision", role="classifier", input="tensors")
    state = State({"rho_": check_each_problem(number(0))})
    parameters: ClassVar = {
        "nu": [real(0, 1, open_low=True)],
        **TENSOR_CLASSIFIER_PARAMETERS,
    }

    def __init__(
        self,
        nu: float = 0.5,
        *,
        rank: int = 1,
        init: TensorStart = "mean_difference",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        multi_class: MultiClass = "ovo",
        tensor_shape: tuple[int, ...] | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.nu = nu
        self.rank = rank
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.multi_class = multi_class
        self.tensor_shape = tensor_shape
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _make_mode_learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        max_nu = compute_max_nu(y, weight)
        if self.nu > max_nu * (1 + 1e-12):
            raise ValueError(
                f"{type(self).__name__}: nu={self.nu:g} is infeasible: with these class sizes it "
                f"must be at most {max_nu:g}, twice the fraction of samples in the smaller class."
            )
        return self._make_learner_for_nu(self.nu, y, weight)

    def _make_learner_for_nu(self, nu: float, y: Vector, weight: Vector) -> VectorLearner:
        def learn(Z: Matrix) -> Hyperplane:
            return nu_svm(Z, y, nu, weight)

        return learn

    def _solve_task(self, task: BinaryTask) -> tuple[Alternation, HistoryEntries]:
        learn = self._make_mode_learner(task.X, task.y, task.weight)
        alternation = self._alternate_modes(task, learn, self._make_start(task))
        if alternation.collapsed and alternation.interrupt is None:
            factors = self._start_from_mean_difference(task)
            for nu in np.geomspace(compute_max_nu(task.y, task.weight), self.nu, _PATH_LENGTH):
                learn = self._make_learner_for_nu(float(nu), task.y, task.weight)
                alternation = self._alternate_modes(task, learn, factors)
                factors = alternation.weights.factors
                if alternation.interrupt is not None:
                    break
        return alternation, {}

    def _compute_extra_attributes(
        self, task: BinaryTask, alternation: Alternation, solution: BinarySolution
    ) -> dict[str, Any]:
        return {"rho_": 0.0 if solution.collapsed else float(alternation.plane.margin)}
