"""Differential scatter discriminant criterion: between-class minus within-class scatter."""

from __future__ import annotations

from typing import ClassVar

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes
from nearfar.discriminant.trace_difference import ZETA, Zeta, maximize_difference
from nearfar.parameters import integer, none
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class DSDC(StatisticsLearner):
    r"""Differential scatter discriminant criterion: LDA with a difference instead of a ratio.

    .. math:: \max_{U^T U = I}\; \mathrm{tr}(U^T S_b U) - \zeta\,\mathrm{tr}(U^T S_w U) .

    The solution is the leading eigenvectors of :math:`S_b - \zeta S_w`. This is the criterion J3
    of :class:`LDA`, which :class:`GTDA` applies to each mode of a tensor. If :math:`\zeta` is a
    number, no matrix is inverted, so DSDC also works with fewer rows than features.

    Use it instead of LDA if :math:`S_w` is poorly estimated, the features share a unit, and the
    output should keep the scale of distances. The result depends on the units of the features, so
    standardize them if they differ.

    A small :math:`\zeta` orders directions by the distances of the class means, a large one by
    small within-class scatter. Numbers from 0.1 to 1 are safe. The automatic choices fail if
    there are few rows, or if some directions hardly vary, such as pixels at the border of an
    image: these directions cost little and fill the output after the few useful directions. From
    :math:`\zeta = \lambda_{\max}(S_w^{-1} S_b)` on, which is "max_eig", no eigenvalue of the
    difference is positive, so every further direction reduces the criterion.

    Cost: one pass of O(n p²), then O(p³), or O(n² p) with fewer rows than features.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: at most the number of directions in which X varies. None uses the
        smaller of ``n_classes - 1`` and the number of directions in which X varies.
    within_weight : float or {"trace_ratio", "max_eig", "sum_eig"}, default="trace_ratio"
        Weight of the within-class scatter: a number, "trace_ratio" (the largest ratio
        :math:`\mathrm{tr}(U^T S_b U) / \mathrm{tr}(U^T S_w U)`), "max_eig" (the largest eigenvalue
        of :math:`S_w^{-1} S_b`) or "sum_eig" (the sum of the leading eigenvalues of this matrix).
        See Notes.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix with orthonormal rows.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    within_weight_ : float
        Value of :math:`\zeta` used in the fit.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of :math:`S_b - \zeta S_w`, where both scatters are divided by n. The sum of the
        eigenvalues is the value of the criterion.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    GTDA, LDA

    Notes
    -----
    "trace_ratio", "max_eig" and "sum_eig" need a regular :math:`S_w`. If it is singular, 0.1% of
    the total covariance is mixed into :math:`S_w`, for the choice of :math:`\zeta` and for the
    criterion.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 3.6.1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import DSDC, KNNClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> dsdc = DSDC(within_weight=0.1).fit(X, y)
    >>> dsdc.components_.shape
    (9, 64)
    >>> KNNClassifier(DSDC(within_weight=0.1)).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.95
    True

    The default "trace_ratio" prefers pixels that are nearly constant:

    >>> KNNClassifier(DSDC()).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) < 0.75
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    renamed: ClassVar = {"zeta": "within_weight", "zeta_": "within_weight_"}
    settings = ({"within_weight": 0.1}, {"within_weight": 1.0})
    parameters: ClassVar = {"n_components": [none, integer(1)], "within_weight": ZETA}

    def __init__(
        self, n_components: int | None = None, *, within_weight: Zeta = "trace_ratio"
    ) -> None:
        self.n_components = n_components
        self.within_weight = within_weight

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the leading eigenvectors of S_b - within_weight S_w."""
        self.classes_ = statistics.classes
        check_classes("DSDC", statistics.classes)
        # If within_weight is a number, S_w is not inverted and needs no regularization.
        shrinkage: Shrinkage = "auto" if isinstance(self.within_weight, str) else 0.0
        solution = maximize_difference(
            statistics, self.n_components, self.within_weight, shrinkage=shrinkage, name="DSDC"
        )
        self.eigenvalues_, self.within_weight_ = solution.eigenvalues, solution.within_weight
        return solution.rows
