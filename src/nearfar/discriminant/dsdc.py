"""Differential scatter discriminant criterion: class means apart, less what classes scatter."""

from __future__ import annotations

from typing import ClassVar

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes
from nearfar.discriminant.trace_difference import ZETA, Zeta, largest_difference
from nearfar.parameters import integer, none
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class DSDC(StatisticsLearner):
    r"""Differential scatter discriminant criterion: LDA by a difference, without an inverse.

    .. math:: \max_{U^T U = I}\; \mathrm{tr}(U^T S_b U) - \zeta\,\mathrm{tr}(U^T S_w U),

    solved by the leading eigenvectors of :math:`S_b - \zeta S_w`: the criterion J3 of
    :class:`LDA`, and what :class:`GTDA` does to each mode of a tensor. Nothing is inverted while
    :math:`\zeta` is a number, so that fewer rows than features are no special case.

    Use it in place of LDA where :math:`S_w` is poorly known, features share a unit, and a rotation
    is wanted: distances keep their scale. It depends on units; standardise where they differ.

    A small :math:`\zeta` orders directions by the distances of the class means, a large one by how
    little anything scatters; numbers from 0.1 to 1 are safe. The rules are not, where some
    directions hardly vary at all, such as the pixels at the border of a picture, or with few rows:
    such directions are cheap, and fill the map beside the few that pay. From
    :math:`\lambda_{\max}(S_w^{-1} S_b)` on, the rule "max_eig", no eigenvalue of the difference is
    above 0: every further direction counts as a loss.

    Cost: one pass of O(n p²), then O(p³); with fewer rows than features O(n² p).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: at most the number of directions in which X varies. None takes
        ``n_classes - 1`` if there are so many.
    zeta : float or {"trace_ratio", "max_eig", "sum_eig"}, default="trace_ratio"
        Weight of the scatter within classes: a number, or chosen as the largest ratio
        :math:`\mathrm{tr}(U^T S_b U) / \mathrm{tr}(U^T S_w U)`, as the largest eigenvalue of
        :math:`S_w^{-1} S_b`, or as the sum of the leading ones. The rules need a regular
        :math:`S_w`; where it is singular they, and the difference, take it with 0.1 % of the total
        covariance mixed in.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map; rows are orthonormal.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    zeta_ : float
        The weight that was used.
    eigenvalues_ : ndarray of shape (n_components,)
        Those of :math:`S_b - \zeta S_w`, scatters divided by n; their sum is the criterion.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    statistics_ : ClassStatistics
        What was accumulated.

    See Also
    --------
    GTDA, LDA

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 3.6.1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import DSDC, KNNClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> dsdc = DSDC(zeta=0.1).fit(X, y)
    >>> dsdc.components_.shape
    (9, 64)
    >>> KNNClassifier(DSDC(zeta=0.1)).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.95
    True

    Pixels that are nearly always white draw the rules:

    >>> KNNClassifier(DSDC()).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) < 0.75
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    settings = ({"zeta": 0.1}, {"zeta": 1.0})
    parameters: ClassVar = {"n_components": [none, integer(1)], "zeta": ZETA}

    def __init__(self, n_components: int | None = None, *, zeta: Zeta = "trace_ratio") -> None:
        self.n_components = n_components
        self.zeta = zeta

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """The leading eigenvectors of S_b - zeta S_w."""
        self.classes_ = statistics.classes
        check_classes("DSDC", statistics.classes)
        # A number needs no inverse of S_w, which is then left as it is.
        shrinkage: Shrinkage = "auto" if isinstance(self.zeta, str) else 0.0
        found = largest_difference(
            statistics, self.n_components, self.zeta, shrinkage=shrinkage, name="DSDC"
        )
        self.eigenvalues_, self.zeta_ = found.eigenvalues, found.zeta
        return found.rows
