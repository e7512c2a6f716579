"""The nearest class by the Mahalanobis distance to its mean, and the Gaussian scores beside it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, ThroughLearner
from nearfar.base.mapping import A_LEARNER
from nearfar.blocks import row_blocks
from nearfar.parameters import one_of, real
from nearfar.solvers.eigen import whitener
from nearfar.state import State, floats, labels
from nearfar.summaries.class_gaussians import divisors
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import (
    AUTO_SHRINKAGE,
    Shrinkage,
    rank_tolerance,
    regularized_within,
    total_range,
)


class MinimumMahalanobisClassifier(ClassifierMixin, ThroughLearner):
    r"""The class whose mean is nearest in the Mahalanobis distance of its own covariance.

    With the means :math:`m_i` and covariances :math:`\Sigma_i` of the classes after the learner's
    map, a point y gets the label of the least

    ===========  =================================================================================
    mahalanobis  :math:`\sqrt{(y - m_i)^T \Sigma_i^{-1} (y - m_i)}`
    gaussian     :math:`(y - m_i)^T \Sigma_i^{-1} (y - m_i) + \log|\Sigma_i|`
    posterior    the same :math:`{} - 2 \log(n_i/n)`
    ===========  =================================================================================

    "mahalanobis" is the rule that judges the projections of [1], "gaussian" the one of [2] (which
    calls it linear, though it is quadratic). Neither has priors. "posterior" is the Bayes rule for
    Gaussian classes; with ``pooling`` :math:`\lambda` and ``shrinkage`` :math:`\gamma` it is
    regularised discriminant analysis (RDA), with

    .. math::
        C_i = \frac{(1-\lambda) W_i + \lambda W}{(1-\lambda) n_i + \lambda n}, \qquad
        \Sigma_i = (1-\gamma) C_i + \gamma \frac{\mathrm{tr}\, C_i}{q} I

    for the scatter sums :math:`W_i` of the classes and W of all.

    Use "mahalanobis" to reproduce published numbers, since nothing outweighs it on classes of
    unequal volume: a wide class swallows points of narrow ones, as all its distances are small.
    That is its failure; "gaussian" corrects it. Any of them looks at the span of the map only, not
    at its scale: a linear change of the space alters nothing while all covariances are regular.

    Cost: the learner's fit; O(n q²) to fit and O(c q²) for each query in q dimensions, c being the
    number of classes.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Cloned and fitted first; moments are those after its ``transform``. None takes X itself.
    rule : {"mahalanobis", "gaussian", "posterior"}, default="mahalanobis"
        What is to be least.
    pooling : float in [0, 1], default=0
        The share :math:`\lambda` of all classes in the covariance of each.
    shrinkage : float in [0, 1] or "auto", default="auto"
        What is mixed into covariances: the number :math:`\gamma`. "auto" changes nothing but
        covariances that are singular: a class of one row has the pooled one, 0.1 % of which is
        mixed into other singular ones.
    ddof : float, default=1
        Taken off the count of each class in the divisors: 1 as in [1], 0 as in [2].

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    estimator_ : object or None
        The fitted learner.
    means_ : ndarray of shape (n_classes, q)
        Class means after the map.
    precisions_ : ndarray of shape (n_classes, q, q)
        Inverse covariances. Where the training points do not vary they are zero.

    See Also
    --------
    KNNClassifier, EnergyClassifier

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011, section 4.7.3. It prints the
       distance without the inverse.
    .. [2] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.6; RDA
       in section 2.2.4.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LDA, MinimumMahalanobisClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> rule = MinimumMahalanobisClassifier(LDA()).fit(X[::2], y[::2])
    >>> round(rule.score(X[1::2], y[1::2]), 2)
    0.97
    """

    learner_tags = LearnerTags(reads="statistics", role="classifier")
    state = State(
        {
            "classes_": labels("c"),
            "means_": floats("c", "q"),
            "_factors": floats("c", "q", "r"),
            "_log_dets": floats("c"),
            "_log_priors": floats("c"),
        },
        fitted="means_",
    )
    parameters: ClassVar = {
        "estimator": A_LEARNER,
        "rule": [one_of("mahalanobis", "gaussian", "posterior")],
        "pooling": [real(0, 1)],
        "shrinkage": [real(0, 1), one_of("auto")],
        "ddof": [real(0, 1)],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        rule: Literal["mahalanobis", "gaussian", "posterior"] = "mahalanobis",
        pooling: float = 0.0,
        shrinkage: Shrinkage = "auto",
        ddof: float = 1.0,
    ) -> None:
        self.estimator = estimator
        self.rule = rule
        self.pooling = pooling
        self.shrinkage = shrinkage
        self.ddof = ddof

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "means_")

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Fit the learner, then the moments of the mapped classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels, for the rule and for the learner.
        supervision : Pairs, Triplets, Chunklets or array-like, optional
            Handed to the learner.

        Returns
        -------
        MinimumMahalanobisClassifier
            Itself.
        """
        self.__dict__.pop("means_", None)
        learner, points, classes, codes = self._fit_learner(X, y, supervision)
        if len(points) < 2:
            raise ValueError(
                f"X has {len(points)} sample(s), while {type(self).__name__} needs at least 2."
            )
        # Dense: a covariance for each class is wanted anyway.
        statistics = ClassStatistics(storage="dense", exact=True).add(points, classes, codes)
        self.estimator_ = learner
        return self._learn(statistics)

    @classmethod
    def from_statistics(cls, statistics: ClassStatistics, **parameters: Any) -> Self:
        """The rule for points as they are, from the statistics of their classes alone.

        With a statistics learner no row is needed: those of the mapped classes are
        ``learner.statistics_.project(learner.components_.T)``, for points that are mapped without
        the learner's mean.

        Parameters
        ----------
        statistics : ClassStatistics
            By class, not pooled.
        **parameters
            Of the classifier, but for the estimator.

        Returns
        -------
        MinimumMahalanobisClassifier
            Fitted.
        """
        rule = cls(None, **parameters)
        rule._check_parameters()
        rule.estimator_, rule.n_features_in_ = None, statistics.n_features
        return rule._learn(statistics)

    def _learn(self, statistics: ClassStatistics) -> Self:
        self.classes_ = statistics.classes
        T, covariances = self._covariances(statistics)
        roots, self._log_dets = _inverse_roots(covariances, statistics)
        self._factors = T @ roots
        self._log_priors = np.log(statistics.weights / statistics.total_weight)
        self.means_ = statistics.means
        return self

    def _covariances(self, statistics: ClassStatistics) -> tuple[Matrix, Matrix]:
        """Coordinates T (q, r), and the covariances (c, r, r) in them."""
        if self.shrinkage == "auto":
            B, image, _, W = regularized_within(statistics, "auto", standardize=True)
            T, image = B @ W, image.project(W)
            C = pooled_covariances(image, self.pooling, self.ddof)
            # The pooled covariance is the identity here; to mix it in depends on no units.
            single = (image.counts == 1) & (self.pooling == 0)
            C[single] = np.eye(T.shape[1])
            tolerance = rank_tolerance(statistics)
            for k in range(len(C)):
                if whitener(C[k], tolerance).shape[1] < T.shape[1]:
                    C[k] = (1 - AUTO_SHRINKAGE) * C[k] + AUTO_SHRINKAGE * np.eye(T.shape[1])
            return T, C
        T, image = total_range(statistics, standardize=True)
        C = pooled_covariances(image, self.pooling, self.ddof)
        # Features of unit variance: the identity of the mapped space is TT here.
        units = np.asarray(np.sum(T**2, axis=0))
        for k in range(len(C)):
            level = np.sum(C[k].diagonal() / units) / statistics.n_features
            C[k] = (1 - self.shrinkage) * C[k] + np.diag(self.shrinkage * level * units)
        return T, C

    @property
    def precisions_(self) -> Matrix:
        """Inverse covariances, (n_classes, q, q)."""
        check_is_fitted(self)
        return np.asarray(self._factors @ self._factors.transpose(0, 2, 1))

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Negative scores: the largest wins.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            With two classes one number for each point, as in scikit-learn: the score of the first
            label minus that of the second. "gaussian" and "posterior" are known up to a constant
            that all classes share.
        """
        scores = self._scores(X)
        if scores.shape[1] == 2:
            return scores[:, 0] - scores[:, 1]
        return -scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the least score; of equal ones the smaller label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        winners = self._scores(X).argmin(axis=1)
        return np.asarray(self.classes_[winners])

    def _scores(self, X: ArrayLike) -> Matrix:
        check_is_fitted(self)
        points = self._queries(X)
        squares = np.empty((len(points), len(self.classes_)))
        for block in row_blocks(len(points), 32 * points.shape[1], at_most=4096):
            for k, (mean, factor) in enumerate(zip(self.means_, self._factors, strict=True)):
                white = (points[block] - mean) @ factor
                squares[block, k] = np.einsum("ij,ij->i", white, white)
        if self.rule == "mahalanobis":
            return np.sqrt(squares)
        squares += self._log_dets
        return squares if self.rule == "gaussian" else squares - 2 * self._log_priors


def pooled_covariances(statistics: ClassStatistics, pooling: float, ddof: float = 0) -> Matrix:
    r"""Covariances (c, p, p) between those of the classes and the pooled one.

    .. math:: \frac{(1-\lambda) W_i + \lambda W}{(1-\lambda)(n_i - d) + \lambda (n - c d)}

    They are zero for a class whose divisor is. From weights of less than one a row no d is taken.
    """
    total = statistics.within_scatter()
    mass = divisors(statistics.weights, statistics.counts, ddof)
    stack = np.zeros((statistics.n_classes, *total.shape))
    for k, label in enumerate(statistics.classes.tolist()):
        divisor = (1 - pooling) * mass[k] + pooling * mass.sum()
        if divisor > 0:
            stack[k] = ((1 - pooling) * statistics.scatter(label) + pooling * total) / divisor
    return stack


def _inverse_roots(covariances: Matrix, statistics: ClassStatistics) -> tuple[Matrix, Matrix]:
    """R with RR' = inv(Σ) for each, and log |Σ|."""
    roots = np.empty_like(covariances)
    log_dets = np.empty(len(covariances))
    for k, covariance in enumerate(covariances):
        R = whitener(covariance, rank_tolerance(statistics))
        if R.shape[1] < len(covariance):
            label = statistics.classes.tolist()[k]
            raise ValueError(
                f"The covariance of class {label!r} is singular: it has "
                f"{int(statistics.counts[k])} rows in {len(covariance)} dimensions. Use "
                "shrinkage='auto' or a number above 0, or pooling."
            )
        roots[k] = R
        log_dets[k] = -2 * np.linalg.slogdet(R)[1]
    return roots, log_dets
