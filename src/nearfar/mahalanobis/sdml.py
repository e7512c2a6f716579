"""Sparse distance metric learning."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize

from nearfar.arrays import Floats, Indices, Mask, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.guided import PAIR_PARAMETERS, PairLearner, Scaled, scaled
from nearfar.base.progress import Report, report_of
from nearfar.mahalanobis.priors import PRIORS, prior_factor
from nearfar.notices import warn_of_limit
from nearfar.parameters import integer, one_of, real
from nearfar.solvers.descent import Descent, descend_with_proof
from nearfar.solvers.eigen import least_eigenvalue, whitener
from nearfar.state import State, number, optional
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# The balance of "auto", and the share of the largest that it takes where that is less.
_BALANCE = 0.5
_SHARE_OF_LARGEST = 0.9
# Entries of the dual further than this share from the edge of their box belong to zeros.
_INSIDE = 1e-3


class SDML(PairLearner):
    r"""Sparse distance metric learning: near a prior, few pairs of features that play together.

    On standardised features, with K the mean of :math:`s\,d d^T` over the differences d of pairs, s
    being 1 for similar and -1 for dissimilar ones, it minimises over metrics M

    .. math::
        \langle M, M_0^{-1} + \eta K \rangle - \log\det M + \rho \sum_{i \ne j} |M_{ij}| ,

    the graphical lasso with :math:`M_0^{-1} + \eta K` in the place of a covariance. It is solved in
    its dual, :math:`\max \log\det W + p` over W within ρ of that matrix off the diagonal and equal
    to it on the diagonal, by L-BFGS within these bounds; then :math:`M = W^{-1}`. Every W on the
    way is a proven bound.

    Use it with many features and few pairs: entries of M that the pairs do not ask for are zero, so
    that it can be read which features are weighed together.

    Cost: O(N p²) once for N pairs, then O(p³) an iteration.

    Parameters
    ----------
    balance : float or "auto", default="auto"
        Weight η of the pairs beside the prior. With too large a one dissimilar pairs could be
        driven apart without end, and an error names the largest that is safe whatever
        ``sparsity``. "auto" is 0.5, or 0.9 of the largest where that is less.
    sparsity : float, default=0.01
        Weight ρ of the entries off the diagonal; 0 has a closed form.
    prior : {"isotropic", "identity", "covariance"} or array of shape (n_features, n_features)
        The metric to stay near: the identity over the mean variance of X (over the directions in
        which it varies), the Euclidean distance, the inverse covariance on the range of X, or any
        metric. Here the first is that of standardised features; an array must have full rank.
    n_similar : int or None, default=None
        Similar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Dissimilar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    max_iter : int, default=1000
        Steps at most.
    tol : float, default=1e-6
        Stops when an iteration changes the objective by less than this share, twice, and the gap
        is at most 50 times it, or finer steps do not close it.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: pairs from labels.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map L with M = LᵀL; one row for each feature that varies, the others get no weight.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    balance_ : float
        The weight of the pairs.
    objective_ : float
        What is minimised, at the solution; of standardised features.
    dual_bound_ : float
        No metric has a lower objective than this.
    duality_gap_ : float
        ``objective_ - dual_bound_`` as a share of the objective's size, or of 1 if that is less.
    n_iter_ : int
        Iterations.
    history_ : dict of lists
        "objective", "step" and "seconds" of each iteration; the objective is that of the dual, to
        be minimised, but for a constant.

    See Also
    --------
    ITML, RCA

    References
    ----------
    .. [1] G.-J. Qi, J. Tang, Z.-J. Zha, T.-S. Chua, H.-J. Zhang, "An Efficient Sparse Metric
       Learning in High-Dimensional Space via L1-Penalized Log-Determinant Regularization",
       ICML 2009, section 3.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import SDML
    >>> X, y = load_wine(return_X_y=True)
    >>> sdml = SDML(sparsity=0.1).fit(X, y)
    >>> M = sdml.get_mahalanobis_matrix()
    >>> bool((abs(M) < 1e-12).mean() > 0.3)
    True
    """

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "pairs"))
    needs_both = False
    state = State(
        {
            "balance_": number(0, open_low=True),
            "objective_": number(),
            "dual_bound_": optional(number()),
            "duality_gap_": optional(number()),
        }
    )
    parameters: ClassVar = {
        "balance": [real(0, open_low=True), one_of("auto")],
        "sparsity": [real(0)],
        "prior": PRIORS,
        **PAIR_PARAMETERS,
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        balance: float | Literal["auto"] = "auto",
        *,
        sparsity: float = 0.01,
        prior: str | ArrayLike = "isotropic",
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.balance = balance
        self.sparsity = sparsity
        self.prior = prior
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, rows: Floats, guide: Pairs) -> None:
        frame = scaled(rows)
        deviations = frame.points.std(axis=0)
        varies = deviations > 0
        points = frame.points[:, varies] / deviations[varies]
        K = _signed_mean(points, *self._usable(points, guide))
        inverse = self._inverse_prior(points, frame.unit * deviations[varies], varies)
        self.balance_ = self._balance(inverse, K)
        S = inverse + self.balance_ * K
        if self.sparsity == 0:
            T = whitener(S, 1e-12)
            self._keep_metric(T.T, deviations, frame, rows)
            self.objective_ = self.dual_bound_ = float(T.shape[1] - np.linalg.slogdet(T.T @ T)[1])
            self.duality_gap_, self.n_iter_ = 0.0, 0
            self.history_: dict[str, list[float]] = Descent(T).history
            return
        lasso = _Lasso(S, float(self.sparsity))
        found = Descent(lasso.start())
        try:
            lasso.solve(found, self.max_iter, self.tol, report_of(self))
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            solved = lasso.solution(found.point)
            L = linalg.cholesky(solved.M, lower=True).T
            self._keep_metric(L, deviations, frame, rows)
            self.history_, self.n_iter_ = found.history, found.n_iter
            self.objective_, self.dual_bound_ = solved.objective, solved.bound
            self.duality_gap_ = solved.gap
        if not found.converged:
            warn_of_limit("SDML", self.max_iter)

    def _inverse_prior(self, points: Matrix, unit: Vector, varies: Mask) -> Matrix:
        if isinstance(self.prior, str) and self.prior == "covariance":
            return np.asarray(points.T @ points / len(points))
        prior: Any = self.prior
        if not isinstance(prior, str):
            prior = np.asarray(prior, np.float64)
            if prior.shape != (len(varies),) * 2:
                raise ValueError(f"prior must have shape {(len(varies),) * 2}; got {prior.shape}.")
            prior = prior[np.ix_(varies, varies)]
        W = prior_factor(prior, points, unit)
        if len(W) < points.shape[1]:
            raise ValueError(
                f"SDML needs a prior of full rank; it has rank {len(W)} on {points.shape[1]} "
                "features that vary."
            )
        inverse = np.linalg.inv(W)
        return np.asarray(inverse @ inverse.T)

    def _balance(self, inverse: Matrix, K: Matrix) -> float:
        T = whitener(inverse, 1e-12)
        least = least_eigenvalue(T.T @ K @ T)
        largest = -1 / least if least < 0 else np.inf
        if isinstance(self.balance, str):
            return float(min(_BALANCE, _SHARE_OF_LARGEST * largest))
        if self.balance >= (1 - 1e-9) * largest:
            digits = 10.0 ** (2 - np.floor(np.log10(largest)))
            raise ValueError(
                f"SDML: with balance={self.balance:g} the program is unbounded: dissimilar pairs "
                "outweigh the prior in some direction. The largest balance that works here is "
                f"{np.floor(largest * (1 - 1e-6) * digits) / digits:g}."
            )
        return float(self.balance)

    def _keep_metric(self, L: Matrix, deviations: Vector, frame: Scaled, rows: Floats) -> None:
        varies = deviations > 0
        full = np.zeros((len(L), len(deviations)))
        full[:, varies] = L / deviations[varies]
        self._keep(full, frame, rows.dtype)


def _signed_mean(points: Matrix, similar: Indices, dissimilar: Indices) -> Matrix:
    n = len(similar) + len(dissimilar)
    sign = np.where(np.arange(n) < len(similar), 1.0, -1.0)
    return PairDifferences(points, np.vstack([similar, dissimilar])).scatter(sign / n)


class _Solution(NamedTuple):
    M: Matrix
    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """As a share of the objective's size, or of 1: the objective may be 0."""
        return max(0.0, self.objective - self.bound) / max(1.0, abs(self.objective))


class _Lasso:
    """The graphical lasso of S, by its dual: W = S + U with U in a box off the diagonal."""

    def __init__(self, S: Matrix, sparsity: float) -> None:
        self.S, self.sparsity = (S + S.T) / 2, sparsity
        self.upper = np.triu_indices(len(S), 1)
        self.most = float(np.sum(np.log(np.diag(S))))  # of log det W, by Hadamard

    def start(self) -> Vector:
        """Entries drawn towards 0: W is then regular if S is at least semi-definite."""
        off = self.S[self.upper]
        return np.asarray(-off * min(1.0, self.sparsity / np.abs(off).max(initial=1e-300)))

    def at(self, U: Vector) -> Matrix:
        """W."""
        W = self.S.copy()
        W[self.upper] += U
        W.T[self.upper] = W[self.upper]
        return W

    def solve(self, found: Descent, max_iter: int, tol: float, report: Report | None) -> None:
        """Descend from where ``found`` is."""
        if not len(found.point):  # one feature: nothing is free
            found.objective, found.converged = float(len(self.S)), True
            return
        box = optimize.Bounds(-self.sparsity, self.sparsity)
        descend_with_proof(
            self._dual,
            found,
            lambda U: (self.solution(U).gap, None),
            max_iter=max_iter,
            tol=tol,
            bounds=box,
            report=report,
        )

    def _dual(self, U: Vector) -> tuple[float, Vector]:
        """Minus log det W, plus what makes it at least p."""
        try:
            factor = linalg.cho_factor(self.at(U), lower=True)
        except linalg.LinAlgError:
            return np.inf, np.zeros_like(U)
        value = self.most - 2 * float(np.sum(np.log(np.diag(factor[0])))) + len(self.S)
        M = linalg.cho_solve(factor, np.eye(len(self.S)))
        return value, -2 * M[self.upper]

    def solution(self, U: Vector) -> _Solution:
        """M = W⁻¹ with zeros where the dual says so, if that is no worse."""
        W = self.at(np.clip(U, -self.sparsity, self.sparsity))
        bound = float(np.linalg.slogdet(W)[1]) + len(W)
        M = np.linalg.inv(W)
        M = (M + M.T) / 2
        zero = np.zeros(M.shape, bool)
        zero[self.upper] = np.abs(U) < (1 - _INSIDE) * self.sparsity
        sparse = np.where(zero | zero.T, 0.0, M)
        value, rounded = self._objective(M), self._objective(sparse)
        return _Solution(sparse, rounded, bound) if rounded <= value else _Solution(M, value, bound)

    def _objective(self, M: Matrix) -> float:
        try:
            factor = linalg.cholesky(M, lower=True)
        except linalg.LinAlgError:
            return np.inf
        size = float(np.abs(M).sum() - np.abs(np.diag(M)).sum())
        logarithm = 2 * float(np.sum(np.log(np.diag(factor))))
        return float(np.sum(M * self.S)) - logarithm + self.sparsity * size
