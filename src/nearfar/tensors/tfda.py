"""Fisher's discriminant of tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, RidgeMode
from nearfar.parameters import one_of, real
from nearfar.solvers.fisher_direction import Bias, scale_and_intercept
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.two_sides import fda, scores_of
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    TensorClassifier,
    TensorStart,
    ridge_of,
)


class TFDA(TensorClassifier):
    r"""Tensor Fisher discriminant analysis: :class:`FDA` with a weight tensor of low rank.

    .. math::
        \max_W\; \frac{\langle M_+ - M_-, W\rangle^2}
        {\sum_i \langle X_i - M, W\rangle^2 + n \rho \|W\|^2},
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr},

    with the class means :math:`M_\pm` and the mean M of all. One mode is learned at a time by one
    Cholesky factorisation; the ratio never falls. It is :class:`LSSTM` with an infinite weight of
    errors, and :class:`GTDA` with one direction in each mode.

    Cost: a sweep passes M times over X and adds O(n d_k² + d_k³) for each mode.

    Parameters
    ----------
    ridge : float, default=0.1
        What is added to variances: :math:`\rho`. A thousandth errs far more on few samples.
    rank : int, default=1
        Number of rank-one terms of W.
    ridge_mode : {"relative", "absolute"}, default="relative"
        The unit of ``ridge``: the mean variance of an entry within the two classes, or that of X
        squared. It is one number for all modes: with one for each the objective may fall.
    bias : {"least_squares", "midpoint", "bayes", "literal"}, default="least_squares"
        How the intercept is chosen: by the regression of labels ±1 on the scores, halfway between
        the class means, by the rule of Bayes for scores that are Gaussian with one variance, or as
        (4.53) of [1] prints it for W of unit length: with the wrong sign of the prior, for
        comparison only.
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
        The ratio.
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
    FDA, GTDA, LSSTM

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 4.3.3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import TFDA
    >>> digits = load_digits()
    >>> X, y = digits.images / 16, digits.target
    >>> machine = TFDA().fit(X[:600], y[:600])
    >>> round(machine.score(X[600:], y[600:]), 2)
    0.9
    """

    learner_tags = LearnerTags(reads="supervision", role="classifier", input="tensors")
    maximizes: ClassVar[bool] = True
    parameters: ClassVar = {
        "ridge": [real(0)],
        "ridge_mode": [one_of("relative", "absolute")],
        "bias": [one_of("least_squares", "midpoint", "bayes", "literal")],
        **TENSOR_CLASSIFIER_PARAMETERS,
    }

    def __init__(
        self,
        ridge: float = 0.1,
        *,
        rank: int = 1,
        ridge_mode: RidgeMode = "relative",
        bias: Bias = "least_squares",
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
        self.bias = bias
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

        def learn(Z: Matrix) -> Hyperplane:
            plane = fda(Z, y, rho, weight)
            if plane.collapsed:
                return plane
            scores = scores_of(Z @ plane.w, y, weight)
            a, b = scale_and_intercept(scores, self.bias, float(np.linalg.norm(plane.w)))
            return plane._replace(w=a * plane.w, b=b)

        return learn
