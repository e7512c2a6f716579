"""The metric of an idealised kernel: similar pairs stay, dissimilar ones go."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags, PairLearner
from nearfar.base.guided import PAIR_PARAMETERS, scaled
from nearfar.notices import warn
from nearfar.parameters import Allowed, array, none, one_of, real
from nearfar.solvers.idealized_program import idealized_program
from nearfar.solvers.projections import project_psd, psd_factor
from nearfar.state import State, floats, number
from nearfar.summaries.supervision import Pairs

# Entries of B, or pairs where these are fewer, beyond which steps of the solver take minutes.
_MOST = 6000
# Pairs of each kind that are drawn where rows are too wide for a program in the entries of B.
_WIDE = 1000
# Eigenvalues of B, as a share of what pairs pull at it, that are zero to the solver.
_EMPTY = 1e-6
# Negative eigenvalues, as a share of the largest, that are rounding and the solver's tolerance.
_ROUNDING = 1e-5

#: What the parameters of the program may be, also of its form in a feature space.
PROGRAM_PARAMETERS: dict[str, list[Allowed]] = {
    "C_S": [real(0, open_low=True)],
    "C_D": [real(0, open_low=True)],
    "nu": [real(0, 1, open_low=True)],
    "psd": [one_of("project", "constrain", "raise", "none")],
    **PAIR_PARAMETERS,
    "tol": [real(0, open_low=True)],
}


class IdealizedMetric(PairLearner):
    r"""A metric by which similar pairs come no farther apart and dissimilar ones by a margin.

    Adding :math:`\tfrac{\gamma}{2}` to a kernel where labels agree, the idealised kernel, moves
    points of different classes apart by γ in squared distance and leaves those of one class. This
    is the linear metric :math:`\hat d^2 = d^T B d` that does so as far as it can: over the N_S
    similar pairs S and the N_D dissimilar pairs D, with :math:`d_0^2` their squared distances
    before,

    .. math::
        \min_{B, \gamma \ge 0} \; \tfrac12 |B|_F^2
        + \frac{C_S}{N_S} \sum_S (\hat d^2 - d_0^2)_+
        + C_D \Bigl( \frac{1}{N_D} \sum_D (\gamma + d_0^2 - \hat d^2)_+ - \nu\gamma \Bigr) ,

    a convex program, solved by an interior point method whose gap is reported. At most a share ν
    of the dissimilar pairs misses the margin where γ > 0.

    Use it with few features and some thousand pairs. B grows with C and with the fourth power of
    the units of X: scale the features first. The program over symmetric B may end in one that is
    no metric, against what the works say; ``psd`` says what then.

    Cost: some twenty steps of O(N m²) for N pairs and m = p(p+1)/2, or O(N³) if N < m.

    Parameters
    ----------
    C_S : float, default=1.0
        Price of similar pairs that come farther apart.
    C_D : float, default=1.0
        Price of dissimilar pairs that miss the margin, and worth of the margin.
    nu : float, default=0.5
        Bound on the share of margin errors: of dissimilar pairs that miss the margin. Above 0, at
        most 1.
    base : array of shape (p, p) or None, default=None
        Matrix of the distance before, positive semi-definite; None is the Euclidean one.
    psd : {"project", "constrain", "raise", "none"}, default="project"
        What to do with negative eigenvalues of B: set them to zero, ask for B without any in the
        program (features are at most 108 then), raise an error, or leave them in ``matrix_``. The
        map ``components_`` is always that of the positive part.
    n_similar : int or None, default=None
        Similar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``, and at
        most 1,000 where p(p+1)/2 is above 6,000.
    n_dissimilar : int or None, default=None
        Dissimilar pairs drawn from labels at most; None likewise.
    tol : float, default=1e-8
        Stops at this duality gap, relative to the objective or to that of B = 0, the larger.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: pairs from labels; the default gives the same every time.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map, of the positive part of ``matrix_``: one row for each positive eigenvalue.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    matrix_ : ndarray of shape (n_features, n_features)
        B, repaired as ``psd`` says.
    ideal_weight_ : float
        The margin γ.
    alpha_ : ndarray of shape (n_pairs,)
        Multipliers of the similar pairs, then of the dissimilar ones that differ at all; before
        repairs :math:`B = \sum_D \alpha dd^T - \sum_S \alpha dd^T` to the tolerance, with
        "constrain" its positive part.
    objective_ : float
        Of the program, before repairs.
    duality_gap_ : float
        How much lower the optimum may be, over the objective or that of B = 0, the larger.
    negative_share_ : float
        Sum of the negative eigenvalues of B before repairs, over that of all without signs.
    n_iter_ : int
        Steps of the solver.

    See Also
    --------
    KernelIdealizedMetric, MMC, POLA

    References
    ----------
    .. [1] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 6.4.
       It calls B always a valid metric.
    .. [2] J. T. Kwok, I. W. Tsang, "Learning with idealized kernels", Proceedings of the 20th
       International Conference on Machine Learning, 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from nearfar import IdealizedMetric, KNNClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> metric = IdealizedMetric(C_S=0.01, C_D=0.01).fit(scale(X), y)
    >>> bool(metric.duality_gap_ < 1e-7)
    True
    >>> knn = KNNClassifier(metric).fit(scale(X), y)
    >>> bool(knn.leave_one_out_error() < 0.05)
    True
    """

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "pairs"))
    settings = ({"C_S": 0.01, "C_D": 0.01}, {"nu": 0.2})
    state = State({"matrix_": floats("p", "p"), "ideal_weight_": number(0)})
    parameters: ClassVar = {**PROGRAM_PARAMETERS, "base": [none, array]}

    def __init__(
        self,
        C_S: float = 1.0,
        *,
        C_D: float = 1.0,
        nu: float = 0.5,
        base: ArrayLike | None = None,
        psd: Literal["project", "constrain", "raise", "none"] = "project",
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        tol: float = 1e-8,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.C_S = C_S
        self.C_D = C_D
        self.nu = nu
        self.base = base
        self.psd = psd
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.tol = tol
        self.random_state = random_state

    def _drawn(self, y: Any) -> Pairs:
        wide = _n_entries(self.n_features_in_) > _MOST
        n_similar, n_dissimilar = (
            _WIDE if wide and given is None else given
            for given in (self.n_similar, self.n_dissimilar)
        )
        return Pairs.from_labels(
            y,
            n_similar=n_similar,
            n_dissimilar=n_dissimilar,
            random_state=self.random_state,
        )

    def _learn(self, rows: Floats, guide: Pairs) -> None:
        frame, p = scaled(rows), rows.shape[1]
        base = _checked_base(self.base, p)
        alike, unlike = self._usable(frame.points, guide)
        self._check_size(len(alike) + len(unlike), p)
        pairs = np.vstack([alike, unlike])
        similar = np.arange(len(pairs)) < len(alike)
        differences = frame.points[pairs[:, 0]] - frame.points[pairs[:, 1]]
        # In units of X: B is the same for points over a unit if prices are times its square.
        price = np.where(similar, self.C_S / len(alike), self.C_D / len(unlike)) * frame.unit**2
        squared = np.einsum("ij,ij->i", differences @ base, differences)
        with np.errstate(over="ignore", invalid="ignore"):
            found = idealized_program(
                differences,
                similar,
                squared,
                price,
                float(self.nu),
                cone=self.psd == "constrain",
                tol=float(self.tol),
            )
        if not np.isfinite([found.objective, found.bound]).all():
            raise ValueError(
                "IdealizedMetric: the program overflows, as B grows with C_D and the fourth power "
                "of the units of X: rescale the features of X, or lower C_S and C_D."
            )
        pulls = float(found.alpha @ np.einsum("ij,ij->i", differences, differences))
        self._repair(found.matrix, _EMPTY * pulls)
        floor = float(price[~similar] @ squared[~similar])
        self.ideal_weight_ = found.gamma * frame.unit**2
        self.alpha_ = found.alpha / frame.unit**2
        self.objective_, self.n_iter_ = found.objective, found.n_iter
        self.duality_gap_ = max(0.0, found.objective - found.bound) / max(
            abs(found.objective), floor, np.finfo(float).tiny
        )
        self._keep(psd_factor(self.matrix_) * frame.unit, frame, rows.dtype)
        if self.duality_gap_ > 10 * self.tol:
            warn(
                f"IdealizedMetric stopped at a duality gap of {self.duality_gap_:.1g}, above "
                f"tol={self.tol:g}, as rounding allows no better.",
                ConvergenceWarning,
            )

    def _check_size(self, n_pairs: int, p: int) -> None:
        n_entries = _n_entries(p)
        if self.psd == "constrain" and n_entries > _MOST:
            raise ValueError(
                f"psd='constrain' solves for all {n_entries} entries of a {p} x {p} matrix, which "
                'is for at most 108 features: take psd="project", or map X to fewer features first.'
            )
        if min(n_pairs, n_entries) > _MOST:
            raise ValueError(
                f"{n_pairs} pairs of {p} features are too many for IdealizedMetric, which needs a "
                f"matrix of pairs by pairs or of {n_entries} entries of B: give at most {_MOST} "
                "pairs (n_similar, n_dissimilar), or map X to fewer features first."
            )

    def _repair(self, B: Matrix, empty: float) -> None:
        values = linalg.eigvalsh(B)
        self.negative_share_ = float(-values[values < 0].sum() / np.abs(values).sum())
        indefinite = values[0] < -_ROUNDING * np.abs(values).max()
        if self.psd == "raise" and indefinite:
            raise ValueError(
                f"psd='raise': B has the eigenvalue {values[0]:.3g} beside {values[-1]:.3g}, and "
                'is no metric. Take psd="constrain" for the best B that is one, or "project".'
            )
        if not values[-1] > empty:
            raise ValueError(
                "IdealizedMetric: B has no positive eigenvalue, so that all distances would be "
                "zero: similar pairs differ more than dissimilar ones in every direction. Raise "
                "C_D or nu, or lower C_S."
            )
        self.matrix_ = B if self.psd == "none" else project_psd(B)


def _n_entries(p: int) -> int:
    """Of a symmetric matrix."""
    return p * (p + 1) // 2


def _checked_base(base: ArrayLike | None, p: int) -> Matrix:
    """The matrix of the distance before."""
    if base is None:
        return np.eye(p)
    M = np.asarray(base, np.float64)
    if M.shape != (p, p) or not np.isfinite(M).all():
        raise ValueError(
            f"base must be a finite matrix of shape ({p}, {p}), one row for each feature; got "
            f"shape {M.shape}."
        )
    size = float(np.abs(M).max())
    if not np.allclose(M, M.T, rtol=0, atol=1e-8 * size):
        raise ValueError("base must be symmetric.")
    values = linalg.eigvalsh(M)
    if values[0] < -1e-8 * size or size == 0:
        raise ValueError(
            "base must be positive semi-definite and not zero; its smallest eigenvalue is "
            f"{values[0]:.3g}."
        )
    return np.asarray((M + M.T) / 2)
