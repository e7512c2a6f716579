"""IdealizedMetric: a linear metric that approximates an idealized kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags, PairLearner
from nearfar.base.guided import PAIR_PARAMETERS, scale_rows
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, array, none, one_of, real
from nearfar.solvers.idealized_program import solve_idealized_program
from nearfar.solvers.projections import project_psd, psd_factor
from nearfar.state import State, floats, number
from nearfar.summaries.supervision import Pairs

# Maximum number of unknowns. There is one unknown per pair or per entry of B, whichever are fewer.
# With more unknowns, each step of the solver takes minutes.
_MAX_UNKNOWNS = 6000
# Number of similar pairs, and also of dissimilar pairs, that are drawn if B has more than
# _MAX_UNKNOWNS entries.
_N_PAIRS_IF_WIDE = 1000
# An eigenvalue of B is treated as zero if it is at most this fraction of the sum of alpha |d|² over
# the pairs, where alpha is the dual variable and d the difference of a pair.
_MIN_EIGENVALUE = 1e-6
# Negative eigenvalues are ignored if their absolute value is at most this fraction of the largest
# absolute eigenvalue. They are caused by rounding and by the tolerance of the solver.
_ROUNDING = 1e-5

#: Allowed values of the parameters that IdealizedMetric and KernelIdealizedMetric share.
PROGRAM_PARAMETERS: dict[str, list[AllowedValues]] = {
    "C_similar": [real(0, open_low=True)],
    "C_dissimilar": [real(0, open_low=True)],
    "nu": [real(0, 1, open_low=True)],
    "psd": [one_of("project", "constrain", "raise", "none")],
    **PAIR_PARAMETERS,
    "tol": [real(0, open_low=True)],
}


class IdealizedMetric(PairLearner):
    r"""Linear metric that keeps similar pairs close and moves dissimilar pairs apart by a margin.

    The idealized kernel adds :math:`\tfrac{\gamma}{2}` to a kernel where two labels agree. It
    increases squared distances between classes by γ and does not change those within a class. The
    linear metric :math:`\hat d^2 = d^T B d` approximates this. It minimizes, over the :math:`N_S`
    similar pairs S and the :math:`N_D` dissimilar pairs D with original squared distances
    :math:`d_0^2`,

    .. math::
        \min_{B, \gamma \ge 0} \; \tfrac12 |B|_F^2
        + \frac{C_S}{N_S} \sum_S (\hat d^2 - d_0^2)_+
        + C_D \Bigl( \frac{1}{N_D} \sum_D (\gamma + d_0^2 - \hat d^2)_+ - \nu\gamma \Bigr) ,

    where :math:`C_S` is ``C_similar`` and :math:`C_D` is ``C_dissimilar``. This convex program is
    solved by an interior point method, whose duality gap is reported. If γ > 0, at most the
    fraction ν of the dissimilar pairs misses the margin.

    Use it with few features and a few thousand pairs. B grows with C and with the fourth power of
    the scale of X, so scale the features first. The program optimizes over symmetric matrices, and
    its solution B can have negative eigenvalues, contrary to [1]_; ``psd`` controls how they are
    treated.

    Cost: about 20 steps of O(N m²) for N pairs and m = p(p+1)/2, or O(N³) if N < m.

    Parameters
    ----------
    C_similar : float, default=1.0
        Penalty for similar pairs whose distance increases.
    C_dissimilar : float, default=1.0
        Penalty for dissimilar pairs that miss the margin, and weight of the margin.
    nu : float, default=0.5
        Upper bound on the fraction of margin errors. A margin error is a dissimilar pair that
        misses the margin. ``nu`` must be above 0 and at most 1.
    base_metric : array of shape (p, p) or None, default=None
        Positive semi-definite matrix of the original distance :math:`d_0`. None uses the identity,
        that is, the Euclidean distance.
    psd : {"project", "constrain", "raise", "none"}, default="project"
        Treatment of negative eigenvalues of B: "project" sets them to zero, "constrain" excludes
        them in the program (at most 109 features), "raise" raises an error, and "none" keeps them.
    n_similar : int or None, default=None
        Maximum number of similar pairs drawn from labels. None uses the limit of
        ``Pairs.from_labels`` or, with more than 109 features, 1,000.
    n_dissimilar : int or None, default=None
        Maximum number of dissimilar pairs drawn from labels. None has the same meaning as for
        ``n_similar``.
    tol : float, default=1e-8
        Stop at this duality gap, relative to the objective at B or at B = 0, whichever is larger.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The generator is used to draw pairs from labels.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Matrix of the linear map, with one row per positive eigenvalue of ``matrix_``. Negative
        eigenvalues are left out for every value of ``psd``.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    matrix_ : ndarray of shape (n_features, n_features)
        Matrix B, after its negative eigenvalues were treated according to ``psd``.
    ideal_weight_ : float
        Margin γ by which squared distances of dissimilar pairs should increase.
    alpha_ : ndarray of shape (n_pairs,)
        Dual variables of the pairs with nonzero length: first the similar pairs, then the
        dissimilar pairs. Up to the tolerance, the solution is :math:`B = \sum_D \alpha dd^T -
        \sum_S \alpha dd^T`, or the positive part of this matrix with ``psd="constrain"``.
    objective_ : float
        Objective at the solution B, before its negative eigenvalues are treated.
    duality_gap_ : float
        Upper bound on the difference between the objective and its optimum, divided by the
        objective at B or at B = 0, whichever is larger.
    negative_share_ : float
        Sum of the absolute negative eigenvalues of the solution B, divided by the sum of all
        absolute eigenvalues.
    n_iter_ : int
        Number of steps of the solver.

    See Also
    --------
    KernelIdealizedMetric, MMC, POLA

    References
    ----------
    .. [1] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 6.4.
       It states that B is always a valid metric.
    .. [2] J. T. Kwok, I. W. Tsang, "Learning with idealized kernels", Proceedings of the 20th
       International Conference on Machine Learning, 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from nearfar import IdealizedMetric, KNNClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> metric = IdealizedMetric(C_similar=0.01, C_dissimilar=0.01).fit(scale(X), y)
    >>> bool(metric.duality_gap_ < 1e-7)
    True
    >>> knn = KNNClassifier(metric).fit(scale(X), y)
    >>> bool(knn.leave_one_out_error() < 0.05)
    True
    """

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "pairs"))
    renamed: ClassVar = {"C_S": "C_similar", "C_D": "C_dissimilar", "base": "base_metric"}
    settings = ({"C_similar": 0.01, "C_dissimilar": 0.01}, {"nu": 0.2})
    state = State({"matrix_": floats("p", "p"), "ideal_weight_": number(0)})
    parameters: ClassVar = {**PROGRAM_PARAMETERS, "base_metric": [none, array]}

    def __init__(
        self,
        C_similar: float = 1.0,
        *,
        C_dissimilar: float = 1.0,
        nu: float = 0.5,
        base_metric: ArrayLike | None = None,
        psd: Literal["project", "constrain", "raise", "none"] = "project",
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        tol: float = 1e-8,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.C_similar = C_similar
        self.C_dissimilar = C_dissimilar
        self.nu = nu
        self.base_metric = base_metric
        self.psd = psd
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.tol = tol
        self.random_state = random_state

    def _draw_supervision(self, y: Any) -> Pairs:
        is_wide = _count_entries(self.n_features_in_) > _MAX_UNKNOWNS
        n_similar, n_dissimilar = (
            _N_PAIRS_IF_WIDE if is_wide and n_pairs is None else n_pairs
            for n_pairs in (self.n_similar, self.n_dissimilar)
        )
        return Pairs.from_labels(
            y,
            n_similar=n_similar,
            n_dissimilar=n_dissimilar,
            random_state=self.random_state,
        )

    def _learn(self, rows: Floats, supervision: Pairs) -> None:
        frame, p = scale_rows(rows), rows.shape[1]
        base = _check_base(self.base_metric, p)
        similar_pairs, dissimilar_pairs = self._select_usable_pairs(frame.points, supervision)
        self._check_size(len(similar_pairs) + len(dissimilar_pairs), p)
        pairs = np.vstack([similar_pairs, dissimilar_pairs])
        is_similar = np.arange(len(pairs)) < len(similar_pairs)
        differences = frame.points[pairs[:, 0]] - frame.points[pairs[:, 1]]
        # The factor frame.unit**2 compensates for the division of the points by frame.unit.
        price = (
            np.where(
                is_similar,
                self.C_similar / len(similar_pairs),
                self.C_dissimilar / len(dissimilar_pairs),
            )
            * frame.unit**2
        )
        squared = np.einsum("ij,ij->i", differences @ base, differences)
        with np.errstate(over="ignore", invalid="ignore"):
            solution = solve_idealized_program(
                differences,
                is_similar,
                squared,
                price,
                float(self.nu),
                cone=self.psd == "constrain",
                tol=float(self.tol),
            )
        if not np.isfinite([solution.objective, solution.bound]).all():
            raise ValueError(
                "IdealizedMetric: the program overflows, because B grows with C_dissimilar and "
                "with the fourth power of the scale of X. Rescale the features of X, or decrease "
                "C_similar and C_dissimilar."
            )
        size = float(solution.alpha @ np.einsum("ij,ij->i", differences, differences))
        self._repair(solution.matrix, _MIN_EIGENVALUE * size)
        zero_objective = float(price[~is_similar] @ squared[~is_similar])
        self.ideal_weight_ = solution.gamma * frame.unit**2
        self.alpha_ = solution.alpha / frame.unit**2
        self.objective_, self.n_iter_ = solution.objective, solution.n_iter
        self.duality_gap_ = max(0.0, solution.objective - solution.bound) / max(
            abs(solution.objective), zero_objective, np.finfo(float).tiny
        )
        self._keep(psd_factor(self.matrix_) * frame.unit, frame, rows.dtype)
        if self.duality_gap_ > 10 * self.tol:
            warn(
                f"IdealizedMetric stopped at a duality gap of {self.duality_gap_:.1g}, above "
                f"tol={self.tol:g}, because of rounding errors. Increase tol to accept this gap.",
                ConvergenceWarning,
            )

    def _check_size(self, n_pairs: int, p: int) -> None:
        n_entries = _count_entries(p)
        if self.psd == "constrain" and n_entries > _MAX_UNKNOWNS:
            raise ValueError(
                f"psd='constrain' solves for all {n_entries} entries of a {p} x {p} matrix, which "
                'is possible for at most 109 features. Use psd="project", or reduce X to fewer '
                "features first."
            )
        if min(n_pairs, n_entries) > _MAX_UNKNOWNS:
            raise ValueError(
                f"{n_pairs} pairs of rows with {p} features are too many for IdealizedMetric. It "
                f"solves for one unknown per pair, or for the {n_entries} entries of B. Use at "
                f"most {_MAX_UNKNOWNS} pairs (n_similar, n_dissimilar), or reduce X to fewer "
                "features first."
            )

    def _repair(self, B: Matrix, min_eigenvalue: float) -> None:
        values = linalg.eigvalsh(B)
        self.negative_share_ = float(-values[values < 0].sum() / np.abs(values).sum())
        is_indefinite = values[0] < -_ROUNDING * np.abs(values).max()
        if self.psd == "raise" and is_indefinite:
            raise ValueError(
                f"psd='raise': B has the negative eigenvalue {values[0]:.3g} (the largest is "
                f'{values[-1]:.3g}), so B does not define a metric. Use psd="constrain" for the '
                'best B without negative eigenvalues, or psd="project" to set them to zero.'
            )
        if not values[-1] > min_eigenvalue:
            raise ValueError(
                "IdealizedMetric: B has no positive eigenvalue, so all distances would be zero. "
                "Similar pairs differ more than dissimilar ones in every direction. Increase "
                "C_dissimilar or nu, or decrease C_similar."
            )
        self.matrix_ = B if self.psd == "none" else project_psd(B)


def _count_entries(p: int) -> int:
    """Return the number of free entries of a symmetric p x p matrix."""
    return p * (p + 1) // 2


def _check_base(base: ArrayLike | None, p: int) -> Matrix:
    """Return the matrix of the original distance. Raises a ValueError if it is not valid."""
    if base is None:
        return np.eye(p)
    M = np.asarray(base, np.float64)
    if M.shape != (p, p) or not np.isfinite(M).all():
        raise ValueError(
            f"base_metric must be a finite matrix of shape ({p}, {p}), with one row per feature; "
            f"got shape {M.shape}."
        )
    size = float(np.abs(M).max())
    if not np.allclose(M, M.T, rtol=0, atol=1e-8 * size):
        raise ValueError("base_metric must be symmetric.")
    values = linalg.eigvalsh(M)
    if values[0] < -1e-8 * size or size == 0:
        raise ValueError(
            "base_metric must be positive semi-definite and not zero; its smallest eigenvalue is "
            f"{values[0]:.3g}."
        )
    return np.asarray((M + M.T) / 2)
