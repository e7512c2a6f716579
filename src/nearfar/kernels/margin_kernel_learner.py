"""A sum of kernels with the widest margin."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags, report_of
from nearfar.kernels.kernel_combination import COMBINATION_PARAMETERS
from nearfar.kernels.kernel_program import KernelProgram
from nearfar.kernels.margin_value import one_against_rest
from nearfar.kernels.margin_weights import MarginMode, MarginWeights, margin_weights
from nearfar.parameters import integer, none, one_of, real


class MarginKernelLearner(KernelProgram):
    r"""The sum of kernels on which a support vector machine has the widest margin.

    .. math:: \min_\mu\; w_{C,\tau}\Bigl(\sum_i \mu_i K_i\Bigr), \qquad
        \sum_i \mu_i\, \mathrm{tr}\, K_i = c,

    where w is twice the optimum of the machine: multiple kernel learning. Each machine that is
    solved gives a plane below w; their minimum is a bound, so that ``duality_gap_`` tells how far
    from the best weights these may be. See :func:`nearfar.kernels.margin_weights`.

    Use it to choose among views or kernels with an eye on the margin. Narrow kernels, also those of
    noise, separate any training rows and get weight for it: judge the result on other rows, and
    compare with ``AlignmentKernelLearner``. With ``norm=2`` no kernel is left out.

    Cost: some ten rounds of one sum of the m kernels, O(m n²), and one SVM for two classes or each
    of more; O(m n) for the kernel values of a new point. It keeps the training points, and two
    matrices of n×n and what the SVM takes while it fits.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        The base kernels. "auto" is linear, polynomials of degree 2 and 3, and rbf at seven widths
        about the median of the distances; "features" is one rbf for each feature. A list has names
        ("linear", "poly", "rbf", "laplacian", "cosine") and pairs such as ``("rbf", {"gamma": 0.1,
        "columns": [0, 1]})``, with columns by index or name; see ``nearfar.kernels.BaseKernels``.
    C : float or None, default=1.0
        Cost of errors of the SVM. None with ``tau=0`` is a hard margin.
    tau : float, default=0.0
        Ridge of the margin: with ``C=None``, squared hinges with weight :math:`1/\tau`.
    mode : {"nonneg", "signed", "rank_one", "free"}, default="nonneg"
        What weights may be. "nonneg" is :math:`\mu \ge 0`. "signed" takes any weights whose sum is
        positive semi-definite on the training rows; for new ones it need not be. "rank_one" weighs
        the leading eigenvectors of the mean of the kernels, which new points get by Nyström's
        formula. "free" is any matrix: it repeats the labels, and there is no kernel for new points.
    trace : float or None, default=None
        The trace of the learned kernel, c. None is the number of rows.
    norm : float, default=1.0
        With p > 1 (mode "nonneg" alone) the constraint is
        :math:`\|(\mu_i \mathrm{tr} K_i)_i\|_p = c`: no weight becomes 0.
    n_directions : int, "auto" or None, default="auto"
        Leading directions of kernel PCA. "auto" is a tenth of the rows, from 10 to 50; None is all
        that are not empty: distances after the map are then those of the kernel. In mode "rank_one"
        the eigenvectors that are weighted, with "auto" at most 100.
    tol : float, default=1e-3
        Stops at this gap between the objective and its bound, relative to the objective.
    max_iter : int, default=200
        Steps at most: rounds of SVMs.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Of the kernels, or of the eigenvectors.
    shares_ : ndarray of shape (n_kernels,)
        What each kernel has of the trace of the sum; these can be compared.
    kernel_names_ : list of str
        What the kernels are called.
    objective_ : float
        The margin functional at the weights is no more.
    bound_ : float
        No weights have less.
    duality_gap_ : float
        The objective less the bound, relative to the objective.
    alpha_ : ndarray of shape (n_samples,), or (n_classes, n_samples) for more than two
        Multipliers that prove the bound; of each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Of the machine with these multipliers on the learned kernel.
    history_ : dict of lists
        ``objective``, ``bound``, ``gap`` and ``seconds`` after each round.
    n_iter_ : int
        Rounds.
    n_directions_ : int
        Directions used.
    transduction_ : ndarray of shape (n_others,)
        Labels of the rows in ``unlabeled``, if there were any; mode "free" has none to give.

    See Also
    --------
    AlignmentKernelLearner, EasyMKL, MKLClassifier

    References
    ----------
    .. [1] G. Lanckriet et al., "Learning the kernel matrix with semidefinite programming", JMLR 5,
       2004.
    .. [2] M. Kloft et al., "lp-norm multiple kernel learning", JMLR 12,
       2011.
    .. [3] L. Yang, "Distance Metric Learning: A Comprehensive Survey", 2006,
       section 5.3.

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
    parameters: ClassVar = {
        **COMBINATION_PARAMETERS,
        "C": [none, real(0, open_low=True)],
        "tau": [real(0)],
        "mode": [one_of("nonneg", "signed", "rank_one", "free")],
        "trace": [none, real(0, open_low=True)],
        "norm": [real(1)],
        "tol": [real(0, open_low=True)],
        "max_iter": [integer(1)],
    }

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        C: float | None = 1.0,
        tau: float = 0.0,
        mode: MarginMode = "nonneg",
        trace: float | None = None,
        norm: float = 1.0,
        n_directions: int | Literal["auto"] | None = "auto",
        tol: float = 1e-3,
        max_iter: int = 200,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.tau = tau
        self.mode = mode
        self.trace = trace
        self.norm = norm
        self.n_directions = n_directions
        self.tol = tol
        self.max_iter = max_iter

    def _solve(self, kernels: Any, codes: NDArray[np.intp], **options: Any) -> MarginWeights:
        report = report_of(self)
        found = margin_weights(
            kernels,
            codes,
            C=self.C,
            tau=self.tau,
            trace=self.trace,
            mode=self.mode,
            norm=self.norm,
            tol=self.tol,
            max_iter=self.max_iter,
            report=None if report is None else lambda state: report(_told(state)),
            **options,
        )
        self.alpha_, self.intercept_ = found.alpha, np.atleast_1d(found.intercept)
        steps = [_told(state) for state in found.history]
        self.history_ = {name: [step[name] for step in steps] for name in steps[0]}
        self.n_iter_ = len(steps)
        if found._interrupt is not None:
            self._stopped = found._interrupt
        return found

    def _learn(self, points: Matrix, codes: NDArray[np.intp]) -> None:
        super()._learn(points, codes)
        stopped = self.__dict__.pop("_stopped", None)
        if stopped is not None:  # the best weights so far are left
            raise stopped

    def _scaled(self, weights: Vector, factor: float) -> Vector:
        return weights  # the program has a trace of its own

    def _transduce(self, points: Matrix, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        labeled, others = points[: len(codes)], points[len(codes) :]
        beta = one_against_rest(codes) * self.alpha_
        decisions = self._values(others, labeled) @ beta.T + self.intercept_
        if decisions.shape[1] == 1:
            return (decisions[:, 0] > 0).astype(np.intp)
        return np.asarray(decisions.argmax(axis=1))


def _told(state: dict[str, Any]) -> dict[str, Any]:
    """A step of the history under the names that all estimators use."""
    return {"objective": state["value"], **{k: v for k, v in state.items() if k != "value"}}
