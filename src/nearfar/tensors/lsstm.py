"""Least-squares support tensor machine."""

from __future__ import annotations

from typing import Any, ClassVar

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass
from nearfar.parameters import real
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.label_ridge import label_ridge
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    TensorClassifier,
    TensorStart,
)


class LSSTM(TensorClassifier):
    r"""Least-squares support tensor machine: ridge regression with a weight tensor of low rank.

    The weight tensor W, not X, has low rank:

    .. math::
        \min_{W, b}\; \tfrac12\|W\|^2 +
        \tfrac\gamma2 \sum_i (y_i - \langle X_i, W\rangle - b)^2,
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr},

    with labels :math:`y_i = \pm 1`. The algorithm alternates over the modes. For fixed factors of
    the other modes, the factor of a mode is the solution of a ridge regression, computed by one
    Cholesky factorization. No step increases the objective. With two or more modes the solution is
    a local optimum; ``n_init`` tries more starts. Vectors, and matrices with full ``rank``, give
    ridge regression itself.

    Try it first among the tensor classifiers: it is the fastest. Its objective is smooth, so the
    alternation does not stall. A well-regularized linear classifier of flat rows is often as good.
    The tensor form helps if there are few samples and the classes differ by a tensor of low rank.

    Cost: with M modes, a sweep reads X M times and adds O(n d_k²) for mode k of length d_k.

    Parameters
    ----------
    gamma : float, default=1.0
        Weight of the squared errors relative to the norm of W, in units of 1 / X².
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
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    STM, TFDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.1.
       The thesis covers rank 1 only.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import LSSTM
    >>> digits = load_digits()
    >>> X, y = digits.images / 16, digits.target
    >>> machine = LSSTM().fit(X[:600], y[:600])
    >>> round(machine.score(X[600:], y[600:]), 2)
    0.9
    """

    learner_tags = LearnerTags(reads="supervision", role="classifier", input="tensors")
    parameters: ClassVar = {
        "gamma": [real(0, open_low=True)],
        **TENSOR_CLASSIFIER_PARAMETERS,
    }

    def __init__(
        self,
        gamma: float = 1.0,
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
        self.gamma = gamma
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
        def learn(Z: Matrix) -> Hyperplane:
            return label_ridge(Z, y, self.gamma, weight)

        return learn
