"""Sparse distance metric learning."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize

from nearfar.arrays import Floats, Indices, Mask, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.guided import PAIR_PARAMETERS, PairLearner, ScaledRows, scale_rows
from nearfar.base.progress import Report, get_reporter
from nearfar.mahalanobis.priors import PRIORS, factor_prior
from nearfar.notices import warn_not_converged
from nearfar.parameters import integer, one_of, real
from nearfar.solvers.descent import Descent, descend_with_proof
from nearfar.solvers.eigen import compute_min_eigenvalue, whitener
from nearfar.state import State, number, optional
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# Value of balance="auto", unless the data require a smaller value.
_BALANCE = 0.5
# Maximum of balance="auto", as a fraction of the largest balance for which the problem has an
# optimum.
_FRACTION_OF_LARGEST = 0.9
# An entry of M is set to zero if its dual variable is farther from the bound than this fraction of
# the bound.
_INSIDE = 1e-3


class SDML(PairLearner):
    r"""Sparse distance metric learning: a sparse metric from pairs, close to a prior metric.

    On standardized features, let K be the mean of :math:`s\,d d^T` over the differences d of the
    pairs, with s = 1 for similar and s = -1 for dissimilar pairs. SDML minimizes over metrics M

    .. math::
        \langle M, M_0^{-1} + \eta K \rangle - \log\det M + \rho \sum_{i \ne j} |M_{ij}| ,

    where :math:`M_0` is the prior metric. This is the graphical lasso with
    :math:`M_0^{-1} + \eta K` in place of a covariance matrix. The dual problem maximizes
    :math:`\log\det W + p` over all W that differ from this matrix by at most ρ off the diagonal and
    not at all on it. It is solved by L-BFGS with these bounds, and then :math:`M = W^{-1}`. Every
    W on the way gives a proven bound.

    Use it with many features and few pairs. Entries of M that the pairs do not support are zero, so
    M shows which features interact.

    Cost: O(N p²) once for N pairs, then O(p³) per iteration.

    Parameters
    ----------
    balance : float or "auto", default="auto"
        Weight η of the pairs relative to the prior. If it is too large, the problem has no optimum,
        and an error reports the largest value that works for any ``sparsity``. "auto" is the
        smaller of 0.5 and 0.9 times this largest value.
    sparsity : float, default=0.01
        Weight ρ of the off-diagonal entries. Larger values give more zeros. With 0, the solution
        has a closed form.
    prior : {"isotropic", "identity", "covariance"} or array of shape (n_features, n_features)
        Prior metric: the identity on standardized features ("isotropic"), the Euclidean distance
        of X ("identity"), the inverse covariance of X ("covariance"), or a given matrix
        of full rank.
    n_similar : int or None, default=None
        Maximum number of similar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Maximum number of dissimilar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-6
        Stop when two successive iterations change the objective by less than this fraction and the
        duality gap is at most ``50 * tol``. If the gap stays larger, the solver continues with a
        tenth of the tolerance. This is repeated at most three times.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to draw pairs from labels.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map L with M = LᵀL. It has one row per feature that varies; constant features
        have zero weight.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    balance_ : float
        Value of ``balance`` used in the fit.
    objective_ : float
        Value of the objective at the solution, for standardized features.
    dual_bound_ : float
        Lower bound on the objective that holds for every metric.
    duality_gap_ : float
        ``objective_ - dual_bound_``, divided by the absolute value of the objective or by 1,
        whichever is larger.
    n_iter_ : int
        Number of iterations.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds". The objective is the
        negative dual objective plus a constant.

    Notes
    -----
    The prior "isotropic" is the identity on standardized features, divided by their mean variance
    over the directions in which they vary. This differs from 1 only if features are collinear.

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

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "pairs"))
    needs_both_kinds = False
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

    def _learn(self, rows: Floats, supervision: Pairs) -> None:
        frame = scale_rows(rows)
        deviations = frame.points.std(axis=0)
        varies = deviations > 0
        points = frame.points[:, varies] / deviations[varies]
        K = _average_signed_scatter(points, *self._select_usable_pairs(points, supervision))
        inverse = self._invert_prior(points, frame.unit * deviations[varies], varies)
        self.balance_ = self._choose_balance(inverse, K)
        S = inverse + self.balance_ * K
        if self.sparsity == 0:
            T = whitener(S, 1e-12)
            self._keep_metric(T.T, deviations, frame, rows)
            self.objective_ = self.dual_bound_ = float(T.shape[1] - np.linalg.slogdet(T.T @ T)[1])
            self.duality_gap_, self.n_iter_ = 0.0, 0
            self.history_: dict[str, list[float]] = Descent(T).history
            return
        lasso = _Lasso(S, float(self.sparsity))
        descent = Descent(lasso.make_start())
        try:
            lasso.solve(descent, self.max_iter, self.tol, get_reporter(self))
        finally:
            # The estimator keeps the best metric found so far, also after Ctrl-C.
            solution = lasso.compute_solution(descent.point)
            L = linalg.cholesky(solution.M, lower=True).T
            self._keep_metric(L, deviations, frame, rows)
            self.history_, self.n_iter_ = descent.history, descent.n_iter
            self.objective_, self.dual_bound_ = solution.objective, solution.bound
            self.duality_gap_ = solution.gap
        if not descent.converged:
            warn_not_converged("SDML", self.max_iter)

    def _invert_prior(self, points: Matrix, unit: Vector, varies: Mask) -> Matrix:
        if isinstance(self.prior, str) and self.prior == "covariance":
            return np.asarray(points.T @ points / len(points))
        prior: Any = self.prior
        if not isinstance(prior, str):
            prior = np.asarray(prior, np.float64)
            if prior.shape != (len(varies),) * 2:
                raise ValueError(f"prior must have shape {(len(varies),) * 2}; got {prior.shape}.")
            prior = prior[np.ix_(varies, varies)]
        W = factor_prior(prior, points, unit)
        if len(W) < points.shape[1]:
            raise ValueError(
                f"SDML needs a prior of full rank; got rank {len(W)} for {points.shape[1]} "
                "features that vary."
            )
        inverse = np.linalg.inv(W)
        return np.asarray(inverse @ inverse.T)

    def _choose_balance(self, inverse: Matrix, K: Matrix) -> float:
        T = whitener(inverse, 1e-12)
        min_eigenvalue = compute_min_eigenvalue(T.T @ K @ T)
        max_balance = -1 / min_eigenvalue if min_eigenvalue < 0 else np.inf
        if isinstance(self.balance, str):
            return float(min(_BALANCE, _FRACTION_OF_LARGEST * max_balance))
        if self.balance >= (1 - 1e-9) * max_balance:
            digits = 10.0 ** (2 - np.floor(np.log10(max_balance)))
            raise ValueError(
                f"SDML: with balance={self.balance:g} the problem is unbounded, because dissimilar "
                "pairs outweigh the prior in some direction. The largest balance that works here "
                f"is {np.floor(max_balance * (1 - 1e-6) * digits) / digits:g}."
            )
        return float(self.balance)

    def _keep_metric(self, L: Matrix, deviations: Vector, frame: ScaledRows, rows: Floats) -> None:
        varies = deviations > 0
        full = np.zeros((len(L), len(deviations)))
        full[:, varies] = L / deviations[varies]
        self._keep(full, frame, rows.dtype)


def _average_signed_scatter(points: Matrix, similar: Indices, dissimilar: Indices) -> Matrix:
    n = len(similar) + len(dissimilar)
    sign = np.where(np.arange(n) < len(similar), 1.0, -1.0)
    return PairDifferences(points, np.vstack([similar, dissimilar])).scatter(sign / n)


class _Solution(NamedTuple):
    M: Matrix
    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """Duality gap, divided by the absolute objective or by 1, whichever is larger."""
        return max(0.0, self.objective - self.bound) / max(1.0, abs(self.objective))


class _Lasso:
    """Graphical lasso of S, solved in the dual: W = S + U, where U is off-diagonal and bounded."""

    def __init__(self, S: Matrix, sparsity: float) -> None:
        self.S, self.sparsity = (S + S.T) / 2, sparsity
        self.upper = np.triu_indices(len(S), 1)
        # This is an upper bound on log det W, by Hadamard's inequality.
        self.log_det_limit = float(np.sum(np.log(np.diag(S))))

    def make_start(self) -> Vector:
        """Return an initial U that moves the off-diagonal entries of W toward 0.

        W is then regular if S is positive semi-definite.
        """
        off = self.S[self.upper]
        return np.asarray(-off * min(1.0, self.sparsity / np.abs(off).max(initial=1e-300)))

    def form_dual_matrix(self, U: Vector) -> Matrix:
        """Return W = S + U."""
        W = self.S.copy()
        W[self.upper] += U
        W.T[self.upper] = W[self.upper]
        return W

    def solve(self, descent: Descent, max_iter: int, tol: float, report: Report | None) -> None:
        """Run the descent from ``descent.point``."""
        if not len(descent.point):  # A single feature has no off-diagonal entries.
            descent.objective, descent.converged = float(len(self.S)), True
            return
        box = optimize.Bounds(-self.sparsity, self.sparsity)
        descend_with_proof(
            self._evaluate_dual,
            descent,
            lambda U: (self.compute_solution(U).gap, None),
            max_iter=max_iter,
            tol=tol,
            bounds=box,
            report=report,
        )

    def _evaluate_dual(self, U: Vector) -> tuple[float, Vector]:
        """Return the negative log det W plus a constant, and its gradient.

        The constant makes the value at least p.
        """
        try:
            factor = linalg.cho_factor(self.form_dual_matrix(U), lower=True)
        except linalg.LinAlgError:
            return np.inf, np.zeros_like(U)
        value = self.log_det_limit - 2 * float(np.sum(np.log(np.diag(factor[0])))) + len(self.S)
        M = linalg.cho_solve(factor, np.eye(len(self.S)))
        return value, -2 * M[self.upper]

    def compute_solution(self, U: Vector) -> _Solution:
        """Return M = W⁻¹, its objective and the lower bound.

        Entries that are zero according to the dual are set to zero, unless this raises the
        objective.
        """
        W = self.form_dual_matrix(np.clip(U, -self.sparsity, self.sparsity))
        bound = float(np.linalg.slogdet(W)[1]) + len(W)
        M = np.linalg.inv(W)
        M = (M + M.T) / 2
        is_zero = np.zeros(M.shape, bool)
        is_zero[self.upper] = np.abs(U) < (1 - _INSIDE) * self.sparsity
        sparse = np.where(is_zero | is_zero.T, 0.0, M)
        value, sparse_value = self._evaluate_objective(M), self._evaluate_objective(sparse)
        return (
            _Solution(sparse, sparse_value, bound)
            if sparse_value <= value
            else _Solution(M, value, bound)
        )

    def _evaluate_objective(self, M: Matrix) -> float:
        try:
            factor = linalg.cholesky(M, lower=True)
        except linalg.LinAlgError:
            return np.inf
        size = float(np.abs(M).sum() - np.abs(np.diag(M)).sum())
        logarithm = 2 * float(np.sum(np.log(np.diag(factor))))
        return float(np.sum(M * self.S)) - logarithm + self.sparsity * size
