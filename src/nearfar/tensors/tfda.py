"""Tensor Fisher discriminant analysis."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MultiClass, RidgeMode
from nearfar.parameters import one_of, real
from nearfar.solvers.fisher_direction import Bias, compute_scale_and_intercept
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.two_sides import fda, summarize_scores
from nearfar.tensors.tensor_classifier import (
    TENSOR_CLASSIFIER_PARAMETERS,
    TensorClassifier,
    TensorStart,
    compute_ridge,
)


class TFDA(TensorClassifier):
    r"""Tensor Fisher discriminant analysis: :class:`FDA` with a low-rank weight tensor.

    .. math::
        \max_W\; \frac{\langle M_+ - M_-, W\rangle^2}
        {\sum_i \langle X_i - M, W\rangle^2 + n \rho \|W\|^2},
        \qquad W = \sum_{r=1}^R u_{1r} \otimes \cdots \otimes u_{Mr},

    with the class means :math:`M_\pm` and the mean M of all samples. The algorithm alternates over
    the modes. For fixed factors of the other modes, the factor of a mode is computed by one
    Cholesky factorization. No step decreases the ratio. The optima are those of :class:`LSSTM` with
    :math:`\gamma = 1 / (n \rho)`, up to the length of W. :class:`GTDA` with one component per mode
    maximizes the corresponding difference of scatters.

    Cost: with M modes, a sweep reads X M times and adds O(n d_k² + d_k³) for mode k of length d_k.

    Parameters
    ----------
    ridge : float, default=0.1
        Value added to the variances: the ridge :math:`\rho`. With few samples, 0.001 leads to far
        more errors than 0.1.
    rank : int, default=1
        Number of rank-one terms of the weight tensor W, at most the largest possible rank.
    ridge_mode : {"relative", "absolute"}, default="relative"
        Unit of ``ridge``: "relative" multiplies ``ridge`` by the mean within-class variance of an
        entry. "absolute" uses ``ridge`` unchanged, in units of X squared. All modes use the same
        value, so that the objective cannot decrease.
    bias : {"least_squares", "midpoint", "bayes", "literal"}, default="least_squares"
        How the intercept is chosen: see Notes for the four rules.
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
        Final value of the maximized ratio.
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
    FDA, GTDA, LSSTM

    Notes
    -----
    Values of ``bias``:

    - "least_squares": the intercept of the regression of the labels ±1 on the scores.
    - "midpoint": halfway between the class means.
    - "bayes": the optimal threshold for Gaussian scores with equal variances.
    - "literal": equation (4.53) of [1]_ for W of unit length. Its prior term has the wrong sign. It
      is provided for comparison only.

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

    def _make_mode_learner(self, X: Matrix, y: Vector, weight: Vector) -> VectorLearner:
        rho = compute_ridge(self.ridge, self.ridge_mode, X, y, weight)

        def learn(Z: Matrix) -> Hyperplane:
            plane = fda(Z, y, rho, weight)
            if plane.collapsed:
                return plane
            scores = summarize_scores(Z @ plane.w, y, weight)
            a, b = compute_scale_and_intercept(scores, self.bias, float(np.linalg.norm(plane.w)))
            return plane._replace(w=a * plane.w, b=b)

        return learn
