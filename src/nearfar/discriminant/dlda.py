"""Direct linear discriminant analysis: LDA within the span of the class means."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, choose_n_mean_directions
from nearfar.parameters import integer, none
from nearfar.solvers.eigen import canonical_rows
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import find_between_axes, find_between_range, find_within_whitener


class DLDA(StatisticsLearner):
    r"""Direct LDA: linear discriminant analysis within the span of the class means.

    With the between-class covariance :math:`S_b = Y \Lambda Y^T`, without its zero eigenvalues,
    and :math:`Z = Y \Lambda^{-1/2}`,

    .. math:: Z^T S_w Z = V E V^T, \qquad U = Z V E^{-1/2},

    where the smallest entries of E are kept. This is LDA restricted to directions :math:`Y a`. It
    never inverts the p×p matrix :math:`S_w` and works for any number of features.

    Use it for many more features than rows, if the features share a unit. If features are
    correlated, the best directions of LDA are *not* combinations of class means, and DLDA cannot
    find them. With all ``n_classes - 1`` directions, its span is that of the differences of the
    class means, whatever the covariances are. Changing the unit of one feature changes the result.

    Cost: one pass of O(n p²), then O(c p²) for c classes, or O(n p) and O(n p c) with fewer rows
    than features.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None uses the maximum, which is the number of directions that the
        class means span. This is at most ``n_classes - 1``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix, scaled so that the within-class covariance of the output is the identity.
        If some directions have no within-class variance, 0.1% of the total covariance is added to
        the within-class covariance.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Between-class variance :math:`1/E` along each component.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

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
        """Return the components of LDA within the span of the class means."""
        self.classes_ = statistics.classes
        check_classes("DLDA", statistics.classes)
        Y = find_between_range(statistics)
        T = Y @ find_within_whitener(statistics.project(Y), "auto")
        n_components = choose_n_mean_directions(self.n_components, "DLDA", statistics, T.shape[1])
        values, axes = find_between_axes(statistics, T)
        self.eigenvalues_ = values[:n_components]
        return canonical_rows(self.eigenvalues_, axes[:n_components] @ T.T)
