"""The nu support tensor machine."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, for_each_problem
from nearfar.parameters import real
from nearfar.solvers.alternating_modes import Alternation
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.support_vectors import largest_nu, nu_svm
from nearfar.state import State, number
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    BinaryTask,
    Fitted,
    Notes,
    TensorClassifier,
    TensorStart,
)

# Values of nu on the way down from the largest feasible one.
_PATH = 8


class NuSTM(TensorClassifier):
    r"""nu support tensor machine: the margin is an unknown, nu bounds the share within it.

    .. math::
        \min_{W, b, \rho \ge 0}\; \tfrac12\|W\|^2 - \nu\rho +
        \tfrac1n \sum_i (\rho - y_i(\langle X_i, W\rangle + b))_+,
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr} .

    Where rho is positive at most a share nu of the samples lies within the margin. One mode is
    learned at a time, a nu-SVM by an interior point method; the objective never rises. As with
    :class:`STM`, alternation may stall at corners.

    Where the classes overlap too much for nu, W = 0 is the optimum of a mode, which is then passed
    over; if all collapse nu is lowered from the largest feasible one in steps, each from the
    weights of the last.

    Cost: a sweep passes M times over X and adds some fifteen times O(n d_k²) for each mode.

    Parameters
    ----------
    nu : float, default=0.5
        Bound on the share of margin errors: at most twice the share of the smaller class.
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
    rho_ : float
        The margin.
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
    state = State({"rho_": for_each_problem(number(0))})
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

    def _learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        most = largest_nu(y, weight)
        if self.nu > most * (1 + 1e-12):
            raise ValueError(
                f"{type(self).__name__}: nu={self.nu:g} is infeasible: with these class sizes it "
                f"must be at most {most:g}, twice the share of the smaller class."
            )
        return self._learner_of(self.nu, y, weight)

    def _learner_of(self, nu: float, y: Vector, weight: Vector) -> VectorLearner:
        def learn(Z: Matrix) -> Hyperplane:
            return nu_svm(Z, y, nu, weight)

        return learn

    def _search(self, task: BinaryTask) -> tuple[Alternation, Notes]:
        learn = self._learner(task.X, task.y, task.weight)
        found = self._alternate(task, learn, self._start(task))
        if found.collapsed and found.interrupt is None:
            factors = self._mean_difference(task)
            for nu in np.geomspace(largest_nu(task.y, task.weight), self.nu, _PATH):
                learn = self._learner_of(float(nu), task.y, task.weight)
                found = self._alternate(task, learn, factors)
                factors = found.weights.factors
                if found.interrupt is not None:
                    break
        return found, {}

    def _extra(self, task: BinaryTask, found: Alternation, fitted: Fitted) -> dict[str, Any]:
        return {"rho_": 0.0 if fitted.collapsed else float(found.plane.margin)}
