"""Linear discriminant analysis: the criteria J1 to J4, and solvers for a singular S_w."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, choose_n_mean_directions
from nearfar.discriminant.trace_difference import ZETA, Pair, Zeta, maximize_difference
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import canonical_rows, whitener
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import (
    Shrinkage,
    find_between_axes,
    find_between_range,
    find_total_axes,
    find_total_range,
    find_total_whitener,
    find_within_axes,
    find_within_whitener,
    get_rank_tolerance,
)

Solver = Literal["eigen", "pca", "whiten", "gsvd", "pinv", "null", "qr", "ridge"]


class LDA(StatisticsLearner):
    r"""Linear discriminant analysis: maximize between-class relative to within-class scatter.

    With the between-class, within-class and total scatter :math:`S_b, S_w, S_t`, and with
    :math:`(S_1, S_2)` one of :math:`(S_b, S_w), (S_b, S_t), (S_t, S_w)`, LDA maximizes one of

    ====  ==================================================================  =============
    J1    :math:`\mathrm{tr}((U^T S_2 U)^{-1} U^T S_1 U)`                     free U
    J2    :math:`\log|U^T S_1 U| - \log|U^T S_2 U|`                           free U
    J3    :math:`\mathrm{tr}(U^T S_1 U) - \zeta\,\mathrm{tr}(U^T S_2 U)`      U orthonormal
    J4    :math:`\mathrm{tr}(U^T S_1 U) / \mathrm{tr}(U^T S_2 U)`             U orthonormal
    ====  ==================================================================  =============

    J1 and J2 have the same solution: the leading generalized eigenvectors, which do not depend on
    the units of the features. They are scaled so that the within-class covariance is the
    identity, so Euclidean distances after the transformation are those of the classical LDA
    classifier. J3 and J4 project orthogonally without scaling, and depend on the units.

    Use LDA first whenever there are labels: it is fast, has no parameter that must be tuned, and
    accepts batches through ``partial_fit``. It models each class by its mean and all classes by
    one covariance. If classes have several clusters or differ only in shape, use LMNN. If a few
    classes are far from all others, they dominate the directions and close classes overlap; use
    :class:`APAC` then.

    Cost: one pass of O(n p²), then O(p³), or O(n² p) with fewer rows than features.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. For J1 and J2, the maximum and the default are ``n_classes - 1``.
        J3 and J4 support more. Their default is ``min(n_classes - 1, rank)``.
    criterion : {"J1", "J2", "J3", "J4"}, default="J1"
        Criterion to maximize.
    scatter_pair : {"between_within", "between_total", "total_within"}, default="between_within"
        Scatters S1 and S2. The directions of J1, J2 and J4 are the same for all three pairs. An
        eigenvalue :math:`l` of "between_within" corresponds to :math:`l/(1+l)` of "between_total"
        and to :math:`1+l` of "total_within".
    within_weight : float or {"trace_ratio", "max_eig", "sum_eig"}, default="trace_ratio"
        Weight of the within-class scatter: used by J3. It is a number, "trace_ratio" (the optimum
        of J4, so that J3 equals J4), "max_eig" (the largest generalized eigenvalue) or "sum_eig"
        (the sum of the leading generalized eigenvalues).
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances: a number g (see Notes), or "auto", which changes :math:`S_w`
        only if it is singular. Supported by the solvers "eigen", "pca" and "qr".
    solver : {"eigen", "pca", "whiten", "gsvd", "pinv", "null", "qr", "ridge"}, default="eigen"
        Algorithm for J1 and J2, see Notes. J3 and J4 support only "eigen".
    n_pca_components : int or None, default=None
        Number of principal components kept by the solvers "pca" and "whiten". None keeps
        ``min(rank, n_samples - n_classes)``. Smaller values are often much better, see Notes.
    ridge : float, default=0.001
        Value added to the variances: :math:`\gamma` of the solver "ridge", in squared units of X.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Generalized eigenvalues (J1, J2), or eigenvalues of :math:`S_1 - \zeta S_2` (J3, J4). With
        the solvers "whiten" and "gsvd", eigenvalues are infinite along directions without
        within-class scatter. With "null", the eigenvalues are the variances of the class means.
    objective_ : float
        Value of the criterion at the solution. Scatters are divided by n, and :math:`S_w` includes
        the regularization of the solver.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    DLDA, KernelDA, MGMKLD, PCA

    Notes
    -----
    With fewer rows than features, :math:`S_w` has no inverse: J1 is infinite along directions in
    which all rows of each class coincide. The solvers differ in how they treat these directions.
    While :math:`S_w` is regular, all solvers except "qr" and "ridge" give the same subspace.

    ========  ==================================================================================
    eigen     Generalized eigenvectors with :math:`S_w`, regularized by ``shrinkage``. With a
              number, :math:`S_w` is the common covariance of regularized discriminant analysis.
    pca       PCA first, then LDA (Fisherfaces).
    whiten    PCA first, then whitening by :math:`S_t`, then the directions of smallest
              :math:`S_w`; scaled to unit *total* variance (White+LDA).
    gsvd      The generalized singular value decomposition of the factors of :math:`S_b` and
              :math:`S_w`, which needs no inverse. Scaled to unit total variance.
    pinv      :math:`S_w^+ S_b`. It ignores directions without within-class scatter and thus loses
              the best ones if there are few rows.
    null      Only directions without within-class scatter, and among them those of largest
              :math:`S_b` (discriminative common vectors). The rows are orthonormal, since the
              within-class variance, which scales them otherwise, is zero.
    qr        LDA in the span of the class means, with a basis from a QR decomposition: a fast
              approximation. The subspace is that of :class:`DLDA`.
    ridge     :math:`S_w + \gamma I`. For two classes this is ridge regression on the labels.
    ========  ==================================================================================

    A number g as ``shrinkage`` replaces :math:`S_w` by
    :math:`(1-g) S_w + g (\mathrm{tr} S_w / p) I`. "auto" leaves :math:`S_w` unchanged if it is
    regular on the directions in which the data vary. Otherwise it mixes in 0.1% of :math:`S_t`,
    which makes LDA work with fewer rows than features and does not depend on the units.

    With ``n_pca_components=None``, the solvers "pca" and "whiten" keep the largest number of
    components for which :math:`S_w` can be regular. It is then close to singular, which is why
    fewer components are often better.

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

    With ten rows of 13 features, solver "null" maps each class to a single point:

    >>> import numpy as np
    >>> Z = LDA(solver="null").fit_transform(X[::18], y[::18])
    >>> len(Z), len(np.unique(Z.round(6), axis=0))
    (10, 3)
    """

    learner_tags = LearnerTags(reads="statistics")
    renamed: ClassVar = {
        "n_principal": "n_pca_components",
        "zeta": "within_weight",
        "pair": "scatter_pair",
    }
    settings = ({"shrinkage": 0.1},)
    renamed_values: ClassVar = {
        "scatter_pair": {
            "between-within": "between_within",
            "between-total": "between_total",
            "total-within": "total_within",
        }
    }
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "criterion": [one_of("J1", "J2", "J3", "J4")],
        "scatter_pair": [one_of("between_within", "between_total", "total_within")],
        "within_weight": ZETA,
        "shrinkage": [real(0, 1), one_of("auto")],
        "solver": [one_of("eigen", "pca", "whiten", "gsvd", "pinv", "null", "qr", "ridge")],
        "n_pca_components": [none, integer(1)],
        "ridge": [real(0, open_low=True)],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        criterion: Literal["J1", "J2", "J3", "J4"] = "J1",
        scatter_pair: Pair = "between_within",
        within_weight: Zeta = "trace_ratio",
        shrinkage: Shrinkage = "auto",
        solver: Solver = "eigen",
        n_pca_components: int | None = None,
        ridge: float = 1e-3,
    ) -> None:
        self.n_components = n_components
        self.criterion = criterion
        self.scatter_pair = scatter_pair
        self.within_weight = within_weight
        self.shrinkage = shrinkage
        self.solver = solver
        self.n_pca_components = n_pca_components
        self.ridge = ridge

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the components, computed from the scatter matrices."""
        self.classes_ = statistics.classes
        check_classes("LDA", statistics.classes)
        if self.criterion in ("J1", "J2"):
            return self._solve_quotient(statistics)
        if self.solver != "eigen":
            raise ValueError(
                f"solver={self.solver!r} supports only the criteria J1 and J2, but "
                f"criterion={self.criterion!r}. Use solver='eigen'."
            )
        return self._solve_orthonormal(statistics)

    def _solve_quotient(self, statistics: ClassStatistics) -> Matrix:
        """Solve J1 or J2: eigenvectors of S_b in coordinates where S_w or S_t is the identity."""
        if self.shrinkage != "auto" and self.solver not in _SOLVERS_WITH_SHRINKAGE:
            raise ValueError(
                f"shrinkage={self.shrinkage} is not supported by solver={self.solver!r}. Use "
                "shrinkage='auto', or solver='eigen', 'pca' or 'qr'."
            )
        T = _COORDINATE_FUNCTIONS[self.solver](self, statistics)
        values, axes = find_between_axes(statistics, T)
        n_components = choose_n_mean_directions(
            self.n_components, f"criterion {self.criterion}", statistics, T.shape[1]
        )
        fisher = values[:n_components]
        if self.solver in ("whiten", "gsvd"):
            # These solvers return m = l/(1+l). If m is 1 up to rounding, then l is infinite, but
            # computing m/(1-m) would give a large or even negative number.
            complement = 1 - fisher
            with np.errstate(divide="ignore"):
                fisher = np.where(complement > 1e-12, fisher / np.maximum(complement, 0), np.inf)
        # If class means are equal, log(0) = -inf is a valid value. The sum may also contain
        # infinite eigenvalues.
        with np.errstate(divide="ignore", invalid="ignore"):
            self.eigenvalues_ = _EIGENVALUE_CONVERSIONS[self.scatter_pair](fisher)
            terms = self.eigenvalues_ if self.criterion == "J1" else np.log(self.eigenvalues_)
        self.objective_ = float(terms.sum())
        return canonical_rows(values[:n_components], axes[:n_components] @ T.T)

    def _solve_orthonormal(self, statistics: ClassStatistics) -> Matrix:
        """Solve J3 or J4, which is J3 with ``within_weight="trace_ratio"``."""
        solution = maximize_difference(
            statistics,
            self.n_components,
            "trace_ratio" if self.criterion == "J4" else self.within_weight,
            pair=self.scatter_pair,
            shrinkage=self.shrinkage,
            name=f"criterion {self.criterion}",
        )
        self.eigenvalues_ = solution.eigenvalues
        self.objective_ = (
            solution.within_weight if self.criterion == "J4" else float(solution.eigenvalues.sum())
        )
        return solution.rows


# Each function returns a matrix T (p, r). A solver diagonalizes S_b in the coordinates X @ T.


def _make_eigen_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    return find_within_whitener(statistics, lda.shrinkage)


def _make_pca_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    _, V = _select_principal_axes(lda, statistics)
    return V @ find_within_whitener(statistics.project(V), lda.shrinkage)


def _make_whiten_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    variances, V = _select_principal_axes(lda, statistics)
    return V / np.sqrt(variances)


def _make_gsvd_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    # For the stacked factors K = [H_b; H_w] = P R Q', the coordinates T = Q inv(R) make K T = P
    # orthonormal, and H_b T is the upper part of P.
    return find_total_whitener(statistics)


def _make_pinv_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    variances, V, _ = find_within_axes(statistics)
    if not variances.size:
        raise ValueError(
            "solver='pinv' needs within-class scatter, but it is zero. Use solver='eigen'."
        )
    return V / np.sqrt(variances)  # T T' is the pseudo-inverse of S_w.


def _make_null_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    _, _, N = find_within_axes(statistics)
    if N.size:
        values, axes = find_between_axes(statistics, N)
        # Drop directions in which the class means differ only by rounding errors.
        differs = values > get_rank_tolerance(statistics) * find_between_axes(statistics)[0][0]
        N = N @ axes[differs].T
    if not N.size:
        raise ValueError(
            "solver='null' needs directions in which the class means differ and the classes have "
            "no scatter, but there are none. They exist only with fewer rows than features. Use "
            "solver='eigen'."
        )
    return N


def _make_qr_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    Q = find_between_range(statistics, by_qr=True)
    return Q @ find_within_whitener(statistics.project(Q), lda.shrinkage)


def _make_ridge_coordinates(lda: LDA, statistics: ClassStatistics) -> Matrix:
    B, image = find_total_range(statistics, standardize=False)
    within = image.within_scatter() / statistics.total_weight
    within.flat[:: len(within) + 1] += lda.ridge
    return B @ whitener(within, get_rank_tolerance(statistics))


def _select_principal_axes(lda: LDA, statistics: ClassStatistics) -> tuple[Matrix, Matrix]:
    """Return the variances and axes of the principal components to keep."""
    variances, V = find_total_axes(statistics)
    rank = len(variances)
    if lda.n_pca_components is not None and lda.n_pca_components > rank:
        raise ValueError(
            f"n_pca_components={lda.n_pca_components} is more than the {rank} directions in which "
            "X varies. Use a smaller n_pca_components, or None."
        )
    n_pca_components = lda.n_pca_components
    if n_pca_components is None:
        n_pca_components = min(rank, int(statistics.counts.sum()) - statistics.n_classes)
    if n_pca_components < 1:
        raise ValueError(
            f"Every class has only one row, so solver={lda.solver!r} keeps no principal component. "
            "Use solver='eigen', or set n_pca_components."
        )
    return variances[:n_pca_components], V[:, :n_pca_components]


_COORDINATE_FUNCTIONS: dict[str, Callable[[LDA, ClassStatistics], Matrix]] = {
    "eigen": _make_eigen_coordinates,
    "pca": _make_pca_coordinates,
    "whiten": _make_whiten_coordinates,
    "gsvd": _make_gsvd_coordinates,
    "pinv": _make_pinv_coordinates,
    "null": _make_null_coordinates,
    "qr": _make_qr_coordinates,
    "ridge": _make_ridge_coordinates,
}
_SOLVERS_WITH_SHRINKAGE = ("eigen", "pca", "qr")

# Functions that convert eigenvalues of (S_b, S_w) to eigenvalues of each scatter pair. The
# eigenvalues may be infinite.
_EIGENVALUE_CONVERSIONS: dict[str, Callable[[Matrix], Matrix]] = {
    "between_within": lambda fisher: fisher,
    "between_total": lambda fisher: np.where(np.isinf(fisher), 1.0, fisher / (1 + fisher)),
    "total_within": lambda fisher: 1 + fisher,
}
