"""The least-squares support tensor machine."""

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
    r"""Least-squares support tensor machine: ridge regression of labels on tensors.

    .. math::
        \min_{W, b}\; \tfrac12\|W\|^2 +
        \tfrac\gamma2 \sum_i (y_i - \langle X_i, W\rangle - b)^2,
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr},

    with labels :math:`y_i = \pm 1`. One mode is learned at a time with the others held, a ridge
    regression with one Cholesky factorisation, until no direction moves; the objective never
    rises. The optimum is local for two modes and more; ``n_init`` tries more starts. Matrices of
    full rank, and vectors, give ridge regression itself.

    Use it as the first of the tensor classifiers: it is the fastest, and smooth, so that
    alternation does not stall. With a sensible ridge a classifier of flat rows is often as good;
    the tensor form pays where samples are few and the difference of the classes is of low rank.

    Cost: a sweep passes M times over X and adds O(n d_k²) for each mode.

    Parameters
    ----------
    gamma : float, default=1.0
        Weight of the errors against the length of W; in the unit of one over X squared.
    rank : int, default=1
        Number of rank-one terms of W.
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
        What was minimised.
    history_ : dict
        "objective" after every mode step; after every sweep "step", the largest :math:`1 - |\cos|`
        of a turn, and "seconds" since the start.
    n_iter_ : int
        Sweeps.
    converged_ : bool
        Whether ``tol`` was reached; False for a problem without any direction, whose samples all go
        to the larger class, with a warning.
    tensor_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    STM, TFDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.1.
       Sums of rank-one tensors are not in it.

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

    def _learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        def learn(Z: Matrix) -> Hyperplane:
            return label_ridge(Z, y, self.gamma, weight)

        return learn
