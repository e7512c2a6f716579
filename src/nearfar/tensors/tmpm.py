"""Tensor minimax probability machine."""

from __future__ import annotations

from typing import Any, ClassVar

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, RidgeMode, check_each_problem
from nearfar.parameters import one_of, real
from nearfar.solvers.alternating_modes import Alternation
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.minimax_probability import compute_worst_case_accuracy
from nearfar.solvers.two_sides import mpm
from nearfar.state import State, number
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    BinarySolution,
    BinaryTask,
    TensorClassifier,
    TensorStart,
    compute_ridge,
)


class TMPM(TensorClassifier):
    r"""Tensor minimax probability machine: :class:`MPM` with a low-rank weight tensor.

    .. math::
        \max_{W}\; \kappa = \frac{\langle M_+ - M_-, W\rangle}
        {\sqrt{\mathrm{Var}_+ + \rho\|W\|^2} + \sqrt{\mathrm{Var}_- + \rho\|W\|^2}},
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr},

    with the class means :math:`M_\pm` and the variances :math:`\mathrm{Var}_\pm` of the scores
    :math:`\langle X, W\rangle` within the classes. The algorithm alternates over the modes. For
    fixed factors of the other modes, the factor of a mode is computed from one generalized
    eigenproblem and a scalar root. No step decreases :math:`\kappa`.

    Each step is convex, but the whole problem is not. Contrary to [1]_, it has several local
    optima, so ``n_init`` affects the result. The ridge affects the result more: without a ridge and
    with few samples, :math:`\kappa` is infinite in every mode. Compared with :class:`MPM` with its
    own ridge, the gain is small or zero.

    Cost: with M modes, a sweep reads X M times and adds O(n d_k² + d_k³) for mode k of length d_k.

    Parameters
    ----------
    ridge : float, default=0.1
        Value added to the variances: the ridge :math:`\rho`. With few samples, 0.3 to 1 is often
        better than the default.
    rank : int, default=1
        Number of rank-one terms of the weight tensor W, at most the largest possible rank.
    ridge_mode : {"relative", "absolute"}, default="relative"
        Unit of ``ridge``: "relative" multiplies ``ridge`` by the mean within-class variance of an
        entry. "absolute" uses ``ridge`` unchanged, in units of X squared. All modes use the same
        value, so that the objective cannot decrease.
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
        Final value of :math:`\kappa`.
    history_ : dict
        Lists of progress values. "objective" has one value per update of a mode. "step" (the
        largest :math:`1 - |\cos|`, see ``tol``) and "seconds" (the time since the start) have one
        value per sweep.
    n_iter_ : int
        Number of sweeps.
    converged_ : bool
        Whether ``tol`` was reached. If the optimum is W = 0, this attribute is False, ``fit``
        warns, and all samples are assigned to the larger class.
    kappa_ : float
        Distance of both class means from the decision boundary, in standard deviations. It is equal
        to ``objective_``, or 0 if W = 0.
    worst_case_accuracy_ : float
        Lower bound :math:`\kappa^2 / (1 + \kappa^2)` on the accuracy, valid for all distributions
        with the given class means and regularized covariances.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    MPM, TFDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.2.
       Equation (4.42) has the intercept with the opposite sign.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import TMPM
    >>> digits = load_digits()
    >>> X, y = digits.images / 16, digits.target
    >>> machine = TMPM().fit(X[:600], y[:600])
    >>> round(machine.score(X[600:], y[600:]), 2)
    0.89
    """

    learner_tags = LearnerTags(reads="supervision", role="classifier", input="tensors")
    state = State(
        {
            "kappa_": check_each_problem(number(0)),
            "worst_case_accuracy_": check_each_problem(number(0, 1)),
        }
    )
    maximizes: ClassVar[bool] = True
    parameters: ClassVar = {
        "ridge": [real(0)],
        "ridge_mode": [one_of("relative", "absolute")],
        **TENSOR_CLASSIFIER_PARAMETERS,
    }

    def __init__(
        self,
        ridge: float = 0.1,
        *,
        rank: int = 1,
        ridge_mode: RidgeMode = "relative",
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
        self.ridge = ridge
        self.rank = rank
        self.ridge_mode = ridge_mode
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
        rho = compute_ridge(self.ridge, self.ridge_mode, X, y, weight)
        has_equal_weights = bool((weight == weight[0]).all())

        def learn(Z: Matrix) -> Hyperplane:
            return mpm(Z, y, rho, None if has_equal_weights else weight)

        return learn

    def _compute_extra_attributes(
        self, task: BinaryTask, alternation: Alternation, solution: BinarySolution
    ) -> dict[str, Any]:
        kappa = 0.0 if solution.collapsed else solution.objective
        return {"kappa_": kappa, "worst_case_accuracy_": compute_worst_case_accuracy(kappa)}
