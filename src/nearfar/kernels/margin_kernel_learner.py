"""MarginKernelLearner: a weighted sum of kernels with the largest margin."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags, get_reporter
from nearfar.kernels.kernel_combination import COMBINATION_PARAMETERS
from nearfar.kernels.kernel_program import KernelProgram
from nearfar.kernels.margin_value import encode_one_vs_rest
from nearfar.kernels.margin_weights import MarginMode, MarginWeights, margin_weights
from nearfar.parameters import integer, none, one_of, real


class MarginKernelLearner(KernelProgram):
    r"""Weighted sum of kernels that maximizes the margin of a support vector machine.

    It solves the multiple kernel learning problem

    .. math:: \min_\mu\; w_{C,\tau}\Bigl(\sum_i \mu_i K_i\Bigr), \qquad
        \sum_i \mu_i\, \mathrm{tr}\, K_i = c,

    where w is twice the optimal objective of the SVM (the margin functional). Each SVM that is
    solved gives a linear lower bound of w. Together they bound the optimum, and ``duality_gap_``
    reports how far the weights can be from the best ones. See
    :func:`nearfar.kernels.margin_weights`.

    Use it to select kernels or views by the margin. Narrow kernels, even those of noise features,
    separate any training rows and therefore get large weights. Evaluate the result on other rows,
    and compare it with ``AlignmentKernelLearner``. With ``norm=2``, every kernel gets a positive
    weight.

    Cost: about ten rounds. A round computes one sum of the m kernels, O(m n²), and one SVM, or one
    per class with more than two classes; then O(m n) for the kernel values of a new point. The
    fitted learner stores the training points. Fitting needs two n × n matrices in addition to the
    memory of the SVM.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        Base kernels: the set "auto", one RBF kernel per feature ("features"), or a list. Each entry
        of the list is a name or a pair such as ``("rbf", {"gamma": 0.1, "columns": [0, 1]})``. See
        Notes.
    C : float or None, default=1.0
        Penalty parameter of the SVM. ``C=None`` with ``dual_ridge=0`` requires a hard margin.
    dual_ridge : float, default=0.0
        Ridge τ added to the kernel in the SVM dual. With ``C=None`` it gives the squared hinge loss
        with weight :math:`1/\tau`.
    kernel_family : {"nonneg", "signed", "rank_one", "free"}, default="nonneg"
        Set of kernels over which the objective is optimized. See Notes.
    trace : float or None, default=None
        Trace c of the learned kernel if ``norm`` is 1. None uses the number of rows.
    norm : float, default=1.0
        Norm p of the constraint. With p > 1, which needs ``kernel_family="nonneg"``, the constraint
        is :math:`\|(\mu_i \mathrm{tr} K_i)_i\|_p = c`, and no weight is exactly 0.
    n_directions : int, "auto" or None, default="auto"
        Number of leading directions of kernel PCA. "auto" uses a tenth of the number of rows, but
        at least 10 and at most 50. None uses all nonzero directions, so that ``transform`` keeps
        the kernel's distances. See Notes for ``kernel_family="rank_one"``.
    tol : float, default=1e-3
        Stop at this gap between the objective and its bound, relative to the objective.
    max_iter : int, default=200
        Maximum number of iterations. An iteration is a round of SVMs.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Weights of the kernels, or of the eigenvectors with ``kernel_family="rank_one"``.
    shares_ : ndarray of shape (n_kernels,)
        Fraction of the trace of the learned kernel that comes from each kernel. Unlike
        ``weights_``, these are comparable between kernels.
    kernel_names_ : list of str
        Names of the kernels.
    objective_ : float
        Upper bound on the margin functional at ``weights_``.
    bound_ : float
        Lower bound on the margin functional for any choice of weights.
    duality_gap_ : float
        Difference between the objective and the bound, divided by the objective.
    alpha_ : ndarray of shape (n_samples,), or (n_classes, n_samples) for more than two classes
        Dual variables that prove the bound. With more than two classes, row k
        belongs to the SVM of class k against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts of the SVMs with the learned kernel and the dual variables ``alpha_``.
    history_ : dict of lists
        Lists ``objective``, ``bound``, ``gap`` and ``seconds``, with one entry per round.
    n_iter_ : int
        Number of rounds.
    n_directions_ : int
        Number of kernel PCA directions that were used.
    transduction_ : ndarray of shape (n_others,)
        Predicted labels of the rows in ``unlabeled``. This attribute exists only if ``unlabeled``
        was passed to ``fit`` and ``kernel_family`` is not "free".

    See Also
    --------
    AlignmentKernelLearner, EasyMKL, MKLClassifier

    Notes
    -----
    The base kernels can be passed as

    - "auto": a linear kernel, polynomial kernels of degree 2 and 3, and RBF kernels with seven
      widths around the median distance between rows;
    - "features": one RBF kernel per feature;
    - a list of names ("linear", "poly", "rbf", "laplacian", "cosine") and of pairs of a name and
      its options. The option ``columns`` selects features by index or name. See
      ``nearfar.kernels.BaseKernels``.

    The kernel families are

    - "nonneg": weights :math:`\mu \ge 0`;
    - "signed": any weights for which the sum is positive semi-definite on the training rows. On new
      rows it need not be;
    - "rank_one": weights of the leading eigenvectors of the mean of the kernels, extended to new
      points by Nyström's formula. ``n_directions`` is the number of eigenvectors; "auto" uses at
      most 100;
    - "free": any positive semi-definite matrix, for two classes. It depends only on the labels
      and has no kernel values for new points.

    References
    ----------
    .. [1] G. Lanckriet et al., "Learning the kernel matrix with semidefinite programming", JMLR 5,
       2004.
    .. [2] M. Kloft et al., "lp-norm multiple kernel learning", JMLR 12,
       2011.
    .. [3] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 5.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from nearfar import MarginKernelLearner
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = MarginKernelLearner().fit(X, y)
    >>> learner.duality_gap_ <= 1e-3
    True
    >>> SVC(kernel=learner.kernel).fit(X, y).score(X, y) > 0.95
    True
    """

    learner_tags = LearnerTags(reads="instances", role="kernel")
    renamed: ClassVar = {"mode": "kernel_family", "tau": "dual_ridge"}
    parameters: ClassVar = {
        **COMBINATION_PARAMETERS,
        "C": [none, real(0, open_low=True)],
        "dual_ridge": [real(0, 1e100)],
        "kernel_family": [one_of("nonneg", "signed", "rank_one", "free")],
        "trace": [none, real(0, 1e100, open_low=True)],
        "norm": [real(1)],
        "tol": [real(0, open_low=True)],
        "max_iter": [integer(1)],
    }

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        C: float | None = 1.0,
        dual_ridge: float = 0.0,
        kernel_family: MarginMode = "nonneg",
        trace: float | None = None,
        norm: float = 1.0,
        n_directions: int | Literal["auto"] | None = "auto",
        tol: float = 1e-3,
        max_iter: int = 200,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.dual_ridge = dual_ridge
        self.kernel_family = kernel_family
        self.trace = trace
        self.norm = norm
        self.n_directions = n_directions
        self.tol = tol
        self.max_iter = max_iter

    def _solve(self, kernels: Any, codes: NDArray[np.intp], **options: Any) -> MarginWeights:
        report = get_reporter(self)
        result = margin_weights(
            kernels,
            codes,
            C=self.C,
            dual_ridge=self.dual_ridge,
            trace=self.trace,
            kernel_family=self.kernel_family,
            norm=self.norm,
            tol=self.tol,
            max_iter=self.max_iter,
            report=None if report is None else lambda state: report(_rename_keys(state)),
            **options,
        )
        self.alpha_, self.intercept_ = result.alpha, np.atleast_1d(result.intercept)
        steps = [_rename_keys(state) for state in result.history]
        self.history_ = {name: [step[name] for step in steps] for name in steps[0]}
        self.n_iter_ = len(steps)
        if result._interrupt is not None:
            self._interrupt = result._interrupt
        return result

    def _learn(self, points: Matrix, codes: NDArray[np.intp]) -> None:
        super()._learn(points, codes)
        interrupt = self.__dict__.pop("_interrupt", None)
        if interrupt is not None:
            # The best weights so far are stored, so the KeyboardInterrupt can be raised again.
            raise interrupt

    def _scale_weights(self, weights: Vector, factor: float) -> Vector:
        return weights  # The parameter ``trace`` has already set the scale.

    def _transduce(self, points: Matrix, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        labeled, unlabeled = points[: len(codes)], points[len(codes) :]
        beta = encode_one_vs_rest(codes) * self.alpha_
        decisions = self._values(unlabeled, labeled) @ beta.T + self.intercept_
        if decisions.shape[1] == 1:
            return (decisions[:, 0] > 0).astype(np.intp)
        return np.asarray(decisions.argmax(axis=1))


def _rename_keys(state: dict[str, Any]) -> dict[str, Any]:
    """Return a history entry with the key names that all estimators use."""
    return {"objective": state["value"], **{k: v for k, v in state.items() if k != "value"}}
