"""Direct linear discriminant analysis: LDA among the differences of the class means."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, n_between
from nearfar.parameters import integer, none
from nearfar.solvers.eigen import canonical_rows
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import between_axes, between_range, within_whitener


class DLDA(StatisticsLearner):
    r"""Direct LDA: the span of the class means first, then little scatter within it.

    With the between covariance :math:`S_b = Y \Lambda Y^T`, its empty directions dropped, and
    :math:`Z = Y \Lambda^{-1/2}`,

    .. math:: Z^T S_w Z = V E V^T, \qquad U = Z V E^{-1/2},

    with the smallest entries of E: LDA where only directions :math:`Y a` are allowed. So it never
    inverts the p×p matrix :math:`S_w`, and it works for any number of features.

    Use it for far more features than rows, when they share a unit. Its failure: the best
    directions of LDA are *not* combinations of class means when features are correlated, and
    these it cannot find. With all ``n_classes - 1`` directions its span is that of the differences
    of the means, whatever the covariances. Another unit of one feature changes the result.

    Cost: one pass of O(n p²), then O(c p²) for c classes; with fewer rows than features O(n p)
    and O(n p c).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output; at most ``n_classes - 1``. None takes as many as possible.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map; within-class covariance is the identity after it. Where some directions have no
        variance within the classes, 0.1 % of the total covariance is mixed in.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Between-class variance along each row: :math:`1/E`.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    statistics_ : ClassStatistics
        What was accumulated.

    See Also
    --------
    LDA

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011,
       section 4.7.
    .. [2] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.2.4.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import DLDA, KNNClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> DLDA().fit_transform(X, y).shape
    (1797, 9)
    >>> KNNClassifier(DLDA()).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    parameters: ClassVar = {"n_components": [none, integer(1)]}

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components

    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """LDA in an orthonormal basis of the range of S_b."""
        self.classes_ = statistics.classes
        check_classes("DLDA", statistics.classes)
        Y = between_range(statistics)
        T = Y @ within_whitener(statistics.project(Y), "auto")
        kept = n_between(self.n_components, "DLDA", statistics, T.shape[1])
        values, axes = between_axes(statistics, T)
        self.eigenvalues_ = values[:kept]
        return canonical_rows(self.eigenvalues_, axes[:kept] @ T.T)
