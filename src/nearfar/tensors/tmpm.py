"""The tensor minimax probability machine."""

from __future__ import annotations

from typing import Any, ClassVar

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, RidgeMode, for_each_problem
from nearfar.parameters import one_of, real
from nearfar.solvers.alternating_modes import Alternation
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.minimax_probability import worst_case_accuracy
from nearfar.solvers.two_sides import mpm
from nearfar.state import State, number
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    BinaryTask,
    Fitted,
    TensorClassifier,
    TensorStart,
    ridge_of,
)


class TMPM(TensorClassifier):
    r"""Tensor minimax probability machine: :class:`MPM` with a weight tensor of low rank.

    .. math::
        \max_{W}\; \kappa = \frac{\langle M_+ - M_-, W\rangle}
        {\sqrt{\mathrm{Var}_+ + \rho\|W\|^2} + \sqrt{\mathrm{Var}_- + \rho\|W\|^2}},
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr},

    with the class means :math:`M_\pm` and the variances of the scores
    :math:`\langle X, W\rangle` in the classes. One mode is learned at a time, by one generalised
    eigenproblem and a scalar root; kappa never falls.

    Each step is convex, the whole is not: there are several optima, against what [1] says, and
    ``n_init`` matters. The ridge matters more: without, few samples make kappa infinite in every
    mode. Against :class:`MPM` with its own ridge the gain is small where there is one.

    Cost: a sweep passes M times over X and adds O(n d_k² + d_k³) for each mode.

    Parameters
    ----------
    ridge : float, default=0.1
        What is added to variances: :math:`\rho`. Of few samples 0.3 to 1 is often better.
    rank : int, default=1
        Number of rank-one terms of W.
    ridge_mode : {"relative", "absolute"}, default="relative"
        The unit of ``ridge``: the mean variance of an entry within the two classes, or that of X
        squared. It is one number for all modes: with one for each the objective may fall.
    init : {"mean_difference", "least_squares", "random"} or list, default="mean_difference"
        Where to start: from the rank-one tensors nearest to the difference of the class means, from
        a few sweeps of :class:`LSSTM`, at random, or your own: one vector for each mode, of a
        higher rank matrices with a column for each term. Further starts are random.
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
        kappa.
    history_ : dict
        "objective" after every mode step; after every sweep "step", the largest :math:`1 - |\cos|`
        of a turn, and "seconds" since the start.
    n_iter_ : int
        Sweeps.
    converged_ : bool
        Whether ``tol`` was reached; False for a problem without any direction, whose samples all go
        to the larger class, with a warning.
    kappa_ : float
        How many standard deviations both means lie from the boundary; ``objective_`` is the same.
    worst_case_accuracy_ : float
        :math:`\kappa^2 / (1 + \kappa^2)`.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    MPM, TFDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.2.
       Its equation (4.42) prints the intercept with the opposite sign.

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
            "kappa_": for_each_problem(number(0)),
            "worst_case_accuracy_": for_each_problem(number(0, 1)),
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

    def _learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        rho = ridge_of(self.ridge, self.ridge_mode, X, y, weight)
        alike = bool((weight == weight[0]).all())

        def learn(Z: Matrix) -> Hyperplane:
            return mpm(Z, y, rho, None if alike else weight)

        return learn

    def _extra(self, task: BinaryTask, found: Alternation, fitted: Fitted) -> dict[str, Any]:
        kappa = 0.0 if fitted.collapsed else fitted.objective
        return {"kappa_": kappa, "worst_case_accuracy_": worst_case_accuracy(kappa)}
