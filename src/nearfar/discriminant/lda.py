"""Linear discriminant analysis: the criteria J1 to J4, and what is done about few rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, n_between
from nearfar.discriminant.trace_difference import ZETA, Pair, Zeta, largest_difference
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import canonical_rows, whitener
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import (
    Shrinkage,
    between_axes,
    between_range,
    rank_tolerance,
    total_axes,
    total_range,
    total_whitener,
    within_axes,
    within_whitener,
)

Solver = Literal["eigen", "pca", "whiten", "gsvd", "pinv", "null", "qr", "ridge"]


class LDA(StatisticsLearner):
    r"""Linear discriminant analysis: classes apart, each class together.

    With the between, within and total scatter :math:`S_b, S_w, S_t` and
    :math:`(S_1, S_2)` one of :math:`(S_b, S_w), (S_b, S_t), (S_t, S_w)`, it maximises one of

    ====  ==================================================================  =============
    J1    :math:`\mathrm{tr}((U^T S_2 U)^{-1} U^T S_1 U)`                     free U
    J2    :math:`\log|U^T S_1 U| - \log|U^T S_2 U|`                           free U
    J3    :math:`\mathrm{tr}(U^T S_1 U) - \zeta\,\mathrm{tr}(U^T S_2 U)`      U orthonormal
    J4    :math:`\mathrm{tr}(U^T S_1 U) / \mathrm{tr}(U^T S_2 U)`             U orthonormal
    ====  ==================================================================  =============

    J1 and J2 share their solution, the leading generalised eigenvectors; they are scaled so that
    the within-class covariance is the identity, hence Euclidean distances after the map are those
    of the classical classifier. They do not depend on the units of the features. J3 and J4 rotate
    only, and depend on them.

    Use it first whenever there are labels: it is fast, has no parameter that must be tuned, and
    works in batches. It sees one mean for each class and one covariance for all; where classes
    have several clusters, or differ in shape only, use LMNN. Where some classes are far away from
    the others they take the directions, and close classes fall onto one another: see
    :class:`APAC`.

    With fewer rows than features :math:`S_w` has no inverse: J1 is infinite along directions in
    which every class is a point. ``solver`` says what is done about it. While :math:`S_w` is
    regular all solvers but "qr" and "ridge" give the same subspace.

    ========  ==================================================================================
    eigen     :math:`S_w` as it is if it is regular where the data vary, else shrunk: see
              ``shrinkage``. RDA's common covariance, for a number.
    pca       PCA first, then LDA (Fisherfaces).
    whiten    PCA first, then the data whitened by :math:`S_t`, then the directions of least
              :math:`S_w`; scaled to unit *total* variance (White+LDA).
    gsvd      The generalised singular value decomposition of the factors of :math:`S_b` and
              :math:`S_w`: no inverse is needed. Scaled to unit total variance.
    pinv      :math:`S_w^+ S_b`. Directions in which every class is a point are ignored, so the
              best ones for few rows are lost.
    null      Only such directions, and among them the largest :math:`S_b` (discriminative common
              vectors). Rows are orthonormal: there is no within-class variance to scale them by.
    qr        LDA in the span of the class means, whose basis comes from a QR decomposition: a
              fast approximation. The subspace is that of :class:`DLDA`.
    ridge     :math:`S_w + \gamma I`. For two classes this is ridge regression on the labels.
    ========  ==================================================================================

    Cost: one pass of O(n p²), then O(p³); with fewer rows than features O(n² p).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output; at most ``n_classes - 1`` for J1 and J2; None takes as many as
        possible there, and ``min(n_classes - 1, rank)`` for J3 and J4, which may take more.
    criterion : {"J1", "J2", "J3", "J4"}, default="J1"
        What is maximised.
    pair : {"between_within", "between_total", "total_within"}, default="between_within"
        The scatters S1 and S2. The directions of J1, J2 and J4 are the same for all three; the
        eigenvalues are :math:`l`, :math:`l/(1+l)` and :math:`1+l`.
    zeta : float or {"trace_ratio", "max_eig", "sum_eig"}, default="trace_ratio"
        Weight of the scatter within classes: in J3, a number, or chosen as the trace ratio at its
        optimum (J3 then equals J4), the largest generalised eigenvalue, or the sum of the leading
        ones.
    shrinkage : float in [0, 1] or "auto", default="auto"
        What is mixed into covariances. A number g replaces :math:`S_w` by
        :math:`(1-g) S_w + g (\mathrm{tr} S_w / p) I`. "auto" changes nothing while :math:`S_w` is
        regular where the data vary; else it mixes in 0.1 % of :math:`S_t`, which makes n < p work
        and depends on no units. For the solvers "eigen", "pca" and "qr".
    solver : {"eigen", "pca", "whiten", "gsvd", "pinv", "null", "qr", "ridge"}, default="eigen"
        How J1 and J2 are solved, as in the table. J3 and J4 have "eigen" only.
    n_principal : int or None, default=None
        Principal components that the solvers "pca" and "whiten" keep. None is as many as there
        are, at most n_samples - n_classes, so that :math:`S_w` is regular among them: barely so,
        and fewer are often far better.
    ridge : float, default=0.001
        What is added to variances: :math:`\gamma` of the solver "ridge", in the unit of a variance.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Generalised eigenvalues (J1, J2), or those of :math:`S_1 - \zeta S_2` (J3, J4). The
        solvers "whiten" and "gsvd" have infinite ones where every class is a point; those of
        "null" are the variances of the class means.
    objective_ : float
        The criterion at the solution: scatters are divided by n, :math:`S_w` as the solver has
        regularised it.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    statistics_ : ClassStatistics
        What was accumulated.

    See Also
    --------
    DLDA, KernelDA, MGMKLD, PCA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2
       (criteria J1 to J4; the solvers in 2.2.4) and section 3.6 (the difference form and its
       weight).
    .. [2] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011,
       sections 4.3 and 4.4.2.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LDA, KNNClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> LDA().fit_transform(X, y).shape
    (178, 2)
    >>> KNNClassifier(LDA()).fit(X, y).leave_one_out_error() < 0.02
    True

    Ten rows of 13 features: there are directions in which every class is a point.

    >>> import numpy as np
    >>> Z = LDA(solver="null").fit_transform(X[::18], y[::18])
    >>> len(Z), len(np.unique(Z.round(6), axis=0))
    (10, 3)
    """

    learner_tags = LearnerTags(reads="statistics")
    settings = ({"shrinkage": 0.1},)
    renamed_values: ClassVar = {
        "pair": {
            "between-within": "between_within",
            "between-total": "between_total",
            "total-within": "total_within",
        }
    }
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "criterion": [one_of("J1", "J2", "J3", "J4")],
        "pair": [one_of("between_within", "between_total", "total_within")],
        "zeta": ZETA,
        "shrinkage": [real(0, 1), one_of("auto")],
        "solver": [one_of("eigen", "pca", "whiten", "gsvd", "pinv", "null", "qr", "ridge")],
        "n_principal": [none, integer(1)],
        "ridge": [real(0, open_low=True)],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        criterion: Literal["J1", "J2", "J3", "J4"] = "J1",
        pair: Pair = "between_within",
        zeta: Zeta = "trace_ratio",
        shrinkage: Shrinkage = "auto",
        solver: Solver = "eigen",
        n_principal: int | None = None,
        ridge: float = 1e-3,
    ) -> None:
        self.n_components = n_components
        self.criterion = criterion
        self.pair = pair
        self.zeta = zeta
        self.shrinkage = shrinkage
        self.solver = solver
        self.n_principal = n_principal
        self.ridge = ridge

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Components from the scatter matrices."""
        self.classes_ = statistics.classes
        check_classes("LDA", statistics.classes)
        if self.criterion in ("J1", "J2"):
            return self._solve_quotient(statistics)
        if self.solver != "eigen":
            raise ValueError(
                f"solver={self.solver!r} is for the criteria J1 and J2, but criterion is "
                f"{self.criterion!r}: use solver='eigen'."
            )
        return self._solve_orthonormal(statistics)

    def _solve_quotient(self, statistics: ClassStatistics) -> Matrix:
        """J1, J2: eigenvectors of S_b in coordinates where S_w, or S_t, is the identity."""
        if self.shrinkage != "auto" and self.solver not in _SHRINKING:
            raise ValueError(
                f"shrinkage={self.shrinkage} has no meaning with solver={self.solver!r}; use "
                "'auto'."
            )
        T = _COORDINATES[self.solver](self, statistics)
        values, axes = between_axes(statistics, T)
        kept = n_between(self.n_components, f"criterion {self.criterion}", statistics, T.shape[1])
        fisher = values[:kept]
        if self.solver in ("whiten", "gsvd"):
            # Of l/(1+l); rounding must not make a large number, or a negative one, of infinity.
            rest = 1 - fisher
            with np.errstate(divide="ignore"):
                fisher = np.where(rest > 1e-12, fisher / np.maximum(rest, 0), np.inf)
        # The logarithm of equal class means is minus infinity, and infinity has its share too.
        with np.errstate(divide="ignore", invalid="ignore"):
            self.eigenvalues_ = _PAIRS[self.pair](fisher)
            terms = self.eigenvalues_ if self.criterion == "J1" else np.log(self.eigenvalues_)
        self.objective_ = float(terms.sum())
        return canonical_rows(values[:kept], axes[:kept] @ T.T)

    def _solve_orthonormal(self, statistics: ClassStatistics) -> Matrix:
        """J3, J4: eigenvectors of S_1 - zeta S_2; J4 is J3 with the trace ratio for zeta."""
        found = largest_difference(
            statistics,
            self.n_components,
            "trace_ratio" if self.criterion == "J4" else self.zeta,
            pair=self.pair,
            shrinkage=self.shrinkage,
            name=f"criterion {self.criterion}",
        )
        self.eigenvalues_ = found.eigenvalues
        self.objective_ = found.zeta if self.criterion == "J4" else float(found.eigenvalues.sum())
        return found.rows


# ---------------------------------------------------------------------- coordinates of the solvers


def _eigen(lda: LDA, statistics: ClassStatistics) -> Matrix:
    return within_whitener(statistics, lda.shrinkage)


def _pca(lda: LDA, statistics: ClassStatistics) -> Matrix:
    _, V = _principal(lda, statistics)
    return V @ within_whitener(statistics.project(V), lda.shrinkage)


def _whiten(lda: LDA, statistics: ClassStatistics) -> Matrix:
    variances, V = _principal(lda, statistics)
    return V / np.sqrt(variances)


def _gsvd(lda: LDA, statistics: ClassStatistics) -> Matrix:
    # K = [H_b; H_w] = P R Q' gives T = Q inv(R): KT = P is orthonormal, H_b T its upper part.
    return total_whitener(statistics)


def _pinv(lda: LDA, statistics: ClassStatistics) -> Matrix:
    variances, V, _ = within_axes(statistics)
    if not variances.size:
        raise ValueError("The within-class scatter is zero: use another solver than 'pinv'.")
    return V / np.sqrt(variances)  # T T' is the pseudo-inverse


def _null(lda: LDA, statistics: ClassStatistics) -> Matrix:
    _, _, N = within_axes(statistics)
    if N.size:
        values, axes = between_axes(statistics, N)
        # What rounding leaves of the class means is no direction.
        seen = values > rank_tolerance(statistics) * between_axes(statistics)[0][0]
        N = N @ axes[seen].T
    if not N.size:
        raise ValueError(
            "There is no direction in which the class means differ and every class is a point: "
            "solver='null' is for fewer rows than features; use solver='eigen'."
        )
    return N


def _qr(lda: LDA, statistics: ClassStatistics) -> Matrix:
    Q = between_range(statistics, by_qr=True)
    return Q @ within_whitener(statistics.project(Q), lda.shrinkage)


def _ridge(lda: LDA, statistics: ClassStatistics) -> Matrix:
    B, image = total_range(statistics, standardize=False)
    within = image.within_scatter() / statistics.total_weight
    within.flat[:: len(within) + 1] += lda.ridge
    return B @ whitener(within, rank_tolerance(statistics))


def _principal(lda: LDA, statistics: ClassStatistics) -> tuple[Matrix, Matrix]:
    """Variances and axes of the principal components that are kept."""
    variances, V = total_axes(statistics)
    rank = len(variances)
    if lda.n_principal is not None and lda.n_principal > rank:
        raise ValueError(
            f"n_principal={lda.n_principal} is more than the {rank} directions in which X varies."
        )
    kept = lda.n_principal
    if kept is None:
        kept = min(rank, int(statistics.counts.sum()) - statistics.n_classes)
    if kept < 1:
        raise ValueError(
            f"Every class has one row only: solver={lda.solver!r} leaves no principal component. "
            "Use solver='eigen', or give n_principal."
        )
    return variances[:kept], V[:, :kept]


_COORDINATES: dict[str, Callable[[LDA, ClassStatistics], Matrix]] = {
    "eigen": _eigen,
    "pca": _pca,
    "whiten": _whiten,
    "gsvd": _gsvd,
    "pinv": _pinv,
    "null": _null,
    "qr": _qr,
    "ridge": _ridge,
}
_SHRINKING = ("eigen", "pca", "qr")

# Eigenvalues of each pair in terms of those of (S_b, S_w), which may be infinite.
_PAIRS: dict[str, Callable[[Matrix], Matrix]] = {
    "between_within": lambda fisher: fisher,
    "between_total": lambda fisher: np.where(np.isinf(fisher), 1.0, fisher / (1 + fisher)),
    "total_within": lambda fisher: 1 + fisher,
}
