"""Linear discriminant analysis: the criteria J1 to J4 from class statistics."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import canonical_rows, descending_eigh, trace_ratio, whitener
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import (
    NO_WITHIN_SCATTER,
    Shrinkage,
    rank_tolerance,
    regularised_within,
    within_whitener,
)

Matrix = NDArray[np.float64]


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
    have several clusters, or differ in shape only, use LMNN.

    Cost: one pass of O(n p²), then O(p³); with fewer rows than features O(n² p).

    Parameters
    ----------
    n_components : int or None, default=None
        At most ``n_classes - 1`` for J1 and J2; None takes as many as possible there, and
        ``min(n_classes - 1, rank)`` for J3 and J4, which may take more.
    criterion : {"J1", "J2", "J3", "J4"}, default="J1"
        What is maximised.
    pair : {"between-within", "between-total", "total-within"}, default="between-within"
        The scatters S1 and S2. The directions of J1, J2 and J4 are the same for all three; the
        eigenvalues are :math:`l`, :math:`l/(1+l)` and :math:`1+l`.
    zeta : float or {"trace_ratio", "max_eig", "sum_eig"}, default="trace_ratio"
        Weight in J3: a number, or chosen as the trace ratio at its optimum (J3 then equals J4),
        the largest generalised eigenvalue, or the sum of the leading ones.
    shrinkage : float in [0, 1] or "auto", default="auto"
        A number g replaces :math:`S_w` by :math:`(1-g) S_w + g (\mathrm{tr} S_w / p) I`. "auto"
        changes nothing while :math:`S_w` is regular where the data vary; else it mixes in 0.1 % of
        :math:`S_t`, which makes n < p work and depends on no units.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Generalised eigenvalues (J1, J2), or those of :math:`S_1 - \zeta S_2` (J3, J4).
    objective_ : float
        The criterion at the solution, scatters divided by n.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    statistics_ : ClassStatistics
        What was accumulated.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2
       (criteria J1 to J4) and section 3.6 (the difference form and its weight).
    .. [2] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011,
       section 4.3.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LDA, KNNClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> LDA().fit_transform(X, y).shape
    (178, 2)
    >>> KNNClassifier(LDA()).fit(X, y).leave_one_out_error() < 0.02
    True
    """

    learner_tags = LearnerTags(kind="statistics")
    settings = ({"shrinkage": 0.1},)
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "criterion": [one_of("J1", "J2", "J3", "J4")],
        "pair": [one_of("between-within", "between-total", "total-within")],
        "zeta": [real(), one_of("trace_ratio", "max_eig", "sum_eig")],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    classes_: NDArray[np.generic]
    eigenvalues_: Matrix
    objective_: float

    def __init__(
        self,
        n_components: int | None = None,
        *,
        criterion: Literal["J1", "J2", "J3", "J4"] = "J1",
        pair: Literal["between-within", "between-total", "total-within"] = "between-within",
        zeta: float | Literal["trace_ratio", "max_eig", "sum_eig"] = "trace_ratio",
        shrinkage: Shrinkage = "auto",
    ) -> None:
        self.n_components = n_components
        self.criterion = criterion
        self.pair = pair
        self.zeta = zeta
        self.shrinkage = shrinkage

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Components from the scatter matrices."""
        self.classes_ = statistics.classes
        if statistics.n_classes < 2:
            label = self.classes_.tolist()[0]
            raise ValueError(f"LDA needs at least 2 classes; y has only one class ({label!r}).")
        if self.criterion in ("J1", "J2"):
            return self._solve_quotient(statistics)
        return self._solve_orthonormal(statistics)

    def _solve_quotient(self, statistics: ClassStatistics) -> Matrix:
        """J1, J2: generalised eigenvectors, in coordinates where S_w is the identity."""
        T = within_whitener(statistics, self.shrinkage)
        limit = statistics.n_classes - 1
        reason = f"n_classes - 1 = {limit} directions"
        if T.shape[1] < limit:
            limit = T.shape[1]
            reason = f"the {limit} directions in which the classes vary"
        kept = self._n_kept(limit, reason)
        # Eigenvectors of the between scatter, from its few rows.
        _, singular, axes = linalg.svd(statistics.between_factor() @ T, full_matrices=False)
        fisher = singular[:kept] ** 2 / statistics.total_weight
        self.eigenvalues_ = _PAIRS[self.pair](fisher)
        if self.criterion == "J1":
            self.objective_ = float(self.eigenvalues_.sum())
        else:
            with np.errstate(divide="ignore"):  # equal class means: minus infinity is the value
                self.objective_ = float(np.log(self.eigenvalues_).sum())
        return canonical_rows(fisher, axes[:kept] @ T.T)

    def _solve_orthonormal(self, statistics: ClassStatistics) -> Matrix:
        """J3, J4: eigenvectors of S_1 - zeta S_2 in an orthonormal basis of the data's range."""
        basis, image, within, W = regularised_within(statistics, self.shrinkage, standardise=False)
        between = image.between_scatter() / statistics.total_weight
        tolerance = rank_tolerance(statistics)
        T = whitener(between + within, tolerance)
        if T.shape[1] < len(T):
            # Collinear features: a direction without any variance would win as one with no S_w.
            Q, _ = linalg.qr((between + within) @ T, mode="economic")
            basis, between, within = basis @ Q, Q.T @ between @ Q, Q.T @ within @ Q
        rank = basis.shape[1]
        kept = min(statistics.n_classes - 1, rank)
        if self.n_components is not None:
            kept = self._n_kept(rank, f"the {rank} directions in which X varies")
        scatters = {"between": between, "within": within, "total": between + within}
        S1, S2 = (scatters[name] for name in self.pair.split("-"))
        if self.criterion == "J4" or self.zeta == "trace_ratio":
            if W.shape[1] < rank:
                raise ValueError(
                    "The within-class scatter is singular, the trace ratio unbounded: use "
                    "shrinkage='auto', or a number above 0 if that scatter is not zero altogether."
                )
            # The optimum is the same for all three pairs.
            U = trace_ratio(between, within, kept)
            zeta = float(np.sum(U * (S1 @ U)) / np.sum(U * (S2 @ U)))
        else:
            zeta = self._zeta(S1, S2, kept, tolerance)
        self.eigenvalues_, U = descending_eigh(S1 - zeta * S2, kept)
        self.objective_ = zeta if self.criterion == "J4" else float(self.eigenvalues_.sum())
        return canonical_rows(self.eigenvalues_, (basis @ U).T)

    def _zeta(self, S1: Matrix, S2: Matrix, n_components: int, tolerance: float) -> float:
        if not isinstance(self.zeta, str):
            return float(self.zeta)
        T = whitener(S2, tolerance)
        if not T.size:
            raise ValueError(NO_WITHIN_SCATTER)
        values, _ = descending_eigh(T.T @ S1 @ T, n_components)
        return float(values[0] if self.zeta == "max_eig" else values.sum())

    def _n_kept(self, limit: int, reason: str) -> int:
        if self.n_components is None:
            return limit
        if self.n_components > limit:
            raise ValueError(
                f"n_components={self.n_components} is too large: criterion {self.criterion} gives "
                f"at most {reason}."
            )
        return self.n_components


# Eigenvalues of each pair in terms of those of (S_b, S_w).
_PAIRS = {
    "between-within": lambda fisher: fisher,
    "between-total": lambda fisher: fisher / (1 + fisher),
    "total-within": lambda fisher: 1 + fisher,
}
