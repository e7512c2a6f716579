"""Classification by the Mahalanobis distance to class means, or by Gaussian class scores."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix
from nearfar.base import AfterLearner, LearnerTags
from nearfar.base.mapping import A_LEARNER
from nearfar.blocks import split_rows
from nearfar.parameters import one_of, real
from nearfar.solvers.eigen import whitener
from nearfar.state import State, floats, labels
from nearfar.summaries.class_gaussians import compute_divisors
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import (
    AUTO_SHRINKAGE,
    Shrinkage,
    find_total_range,
    get_rank_tolerance,
    regularize_within,
)


class MinimumMahalanobisClassifier(ClassifierMixin, AfterLearner):
    r"""Nearest class mean classifier with one Mahalanobis distance per class.

    With the means :math:`m_i` and covariances :math:`\Sigma_i` of the classes after the learner's
    transformation, a point y is assigned to the class with the smallest score:

    ===========  =================================================================================
    mahalanobis  :math:`\sqrt{(y - m_i)^T \Sigma_i^{-1} (y - m_i)}`
    gaussian     :math:`(y - m_i)^T \Sigma_i^{-1} (y - m_i) + \log|\Sigma_i|`
    posterior    the same :math:`{} - 2 \log(n_i/n)`
    ===========  =================================================================================

    [1]_ evaluates its projections with "mahalanobis". [2]_ uses "gaussian" and calls it linear,
    although it is quadratic. Both ignore class priors. "posterior" is the Bayes classifier for
    Gaussian classes. With ``pooling`` :math:`\lambda` and ``shrinkage`` :math:`\gamma`, it is
    regularized discriminant analysis (RDA), with

    .. math::
        C_i = \frac{(1-\lambda) W_i + \lambda W}{(1-\lambda) n_i + \lambda n}, \qquad
        \Sigma_i = (1-\gamma) C_i + \gamma \frac{\mathrm{tr}\, C_i}{q} I

    where :math:`W_i` is the scatter sum of class i and W the sum over all classes.

    Use "mahalanobis" to reproduce published results. It misclassifies points when classes differ
    in volume: the distances to a wide class are all small, so it takes points of narrow classes.
    "gaussian" corrects this. All three scores depend only on the span of the learner's output, not
    on its scale: an invertible linear transformation changes no prediction while all covariances
    are regular.

    Cost: the learner's fit, O(n q²) to fit, and O(c q²) per query in q dimensions, where c is the
    number of classes.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before means and covariances are computed. It is cloned
        and fitted first. None uses X itself.
    rule : {"mahalanobis", "gaussian", "posterior"}, default="mahalanobis"
        Score to minimize, see the table above.
    pooling : float in [0, 1], default=0
        Weight :math:`\lambda` of the pooled covariance in the covariance of each class.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances: the number :math:`\gamma` above. "auto" regularizes singular
        covariances only, see Notes.
    ddof : float, default=1
        Number subtracted from each class size in the divisor of its covariance: 1 as in [1]_, 0 as
        in [2]_.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    estimator_ : object or None
        Fitted learner.
    means_ : ndarray of shape (n_classes, q)
        Class means of the transformed points.
    precisions_ : ndarray of shape (n_classes, q, q)
        Inverse covariances. They are zero along directions in which the training points do not
        vary.

    Notes
    -----
    ``shrinkage="auto"`` treats each class separately:

    - A regular covariance is used unchanged.
    - A class with a single row gets the pooled covariance (if ``pooling=0``).
    - Any other singular covariance is mixed with 0.1% of the pooled covariance.

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
    >>> classifier = MinimumMahalanobisClassifier(LDA()).fit(X[::2], y[::2])
    >>> round(classifier.score(X[1::2], y[1::2]), 2)
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
        """Fit the learner, then compute the class means and covariances of the transformed points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels, used by the classifier and by the learner.
        supervision : Pairs, Triplets, Chunklets or array-like, optional
            Supervision passed to the learner's ``fit``.

        Returns
        -------
        MinimumMahalanobisClassifier
            The fitted classifier.
        """
        self.__dict__.pop("means_", None)
        learner, points, classes, codes = self._fit_learner(X, y, supervision)
        if len(points) < 2:
            raise ValueError(
                f"X has {len(points)} sample(s), but {type(self).__name__} needs at least 2."
            )
        # Dense storage costs nothing extra, since every class needs its full covariance anyway.
        statistics = ClassStatistics(storage="dense", exact=True).add(points, classes, codes)
        self.estimator_ = learner
        return self._learn(statistics)

    @classmethod
    def from_statistics(cls, statistics: ClassStatistics, **parameters: Any) -> Self:
        """Return a classifier fitted from class statistics, without training rows.

        The classifier has no learner: it uses points in the space of the statistics. For the
        space of a statistics learner, pass
        ``learner.statistics_.project(learner.components_.T)``, and transform new points with
        ``X @ learner.components_.T``, without subtracting the learner's mean.

        Parameters
        ----------
        statistics : ClassStatistics
            Statistics of each class, which must not be pooled.
        **parameters
            Parameters of the classifier, except ``estimator``.

        Returns
        -------
        MinimumMahalanobisClassifier
            The fitted classifier.
        """
        classifier = cls(None, **parameters)
        classifier._check_parameters()
        classifier.estimator_, classifier.n_features_in_ = None, statistics.n_features
        return classifier._learn(statistics)

    def _learn(self, statistics: ClassStatistics) -> Self:
        self.classes_ = statistics.classes
        T, covariances = self._compute_covariances(statistics)
        roots, self._log_dets = _compute_inverse_roots(covariances, statistics)
        self._factors = T @ roots
        self._log_priors = np.log(statistics.weights / statistics.total_weight)
        self.means_ = statistics.means
        return self

    def _compute_covariances(self, statistics: ClassStatistics) -> tuple[Matrix, Matrix]:
        """Return a matrix T (q, r) and the class covariances (c, r, r) in the coordinates X @ T."""
        if self.shrinkage == "auto":
            B, image, _, W = regularize_within(statistics, "auto", standardize=True)
            T, image = B @ W, image.project(W)
            C = pool_covariances(image, self.pooling, self.ddof)
            # In the coordinates X @ T, the pooled covariance is the identity matrix. Adding a
            # multiple of the identity therefore does not depend on the units of the features.
            single = (image.counts == 1) & (self.pooling == 0)
            C[single] = np.eye(T.shape[1])
            tolerance = get_rank_tolerance(statistics)
            for k in range(len(C)):
                if whitener(C[k], tolerance).shape[1] < T.shape[1]:
                    C[k] = (1 - AUTO_SHRINKAGE) * C[k] + AUTO_SHRINKAGE * np.eye(T.shape[1])
            return T, C
        T, image = find_total_range(statistics, standardize=True)
        C = pool_covariances(image, self.pooling, self.ddof)
        # In the coordinates X @ T, the identity matrix becomes T'T, because find_total_range scales
        # the features to unit variance. Only the diagonal of T'T is used.
        units = np.asarray(np.sum(T**2, axis=0))
        for k in range(len(C)):
            level = np.sum(C[k].diagonal() / units) / statistics.n_features
            C[k] = (1 - self.shrinkage) * C[k] + np.diag(self.shrinkage * level * units)
        return T, C

    @property
    def precisions_(self) -> Matrix:
        """Inverse covariances of the classes, of shape (n_classes, q, q)."""
        check_is_fitted(self)
        return np.asarray(self._factors @ self._factors.transpose(0, 2, 1))

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return the negative class scores. The largest value belongs to the predicted class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            With two classes, one number per point, as in scikit-learn: the score of the first
            class minus the score of the second, which is positive if the second class is
            predicted. "gaussian" and "posterior" omit a constant that is equal for all classes.
        """
        scores = self._compute_scores(X)
        if scores.shape[1] == 2:
            return scores[:, 0] - scores[:, 1]
        return -scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class with the smallest score. Ties go to the smaller label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        winners = self._compute_scores(X).argmin(axis=1)
        return np.asarray(self.classes_[winners])

    def _compute_scores(self, X: ArrayLike) -> Matrix:
        check_is_fitted(self)
        points = self._queries(X)
        squares = np.empty((len(points), len(self.classes_)))
        for block in split_rows(len(points), 32 * points.shape[1], max_rows=4096):
            for k, (mean, factor) in enumerate(zip(self.means_, self._factors, strict=True)):
                white = (points[block] - mean) @ factor
                squares[block, k] = np.einsum("ij,ij->i", white, white)
        if self.rule == "mahalanobis":
            return np.sqrt(squares)
        squares += self._log_dets
        return squares if self.rule == "gaussian" else squares - 2 * self._log_priors


def pool_covariances(statistics: ClassStatistics, pooling: float, ddof: float = 0) -> Matrix:
    r"""Return one covariance per class, each mixed with the pooled covariance.

    .. math:: \frac{(1-\lambda) W_i + \lambda W}{(1-\lambda)(n_i - d) + \lambda (n - c d)}

    A class whose divisor is zero gets a zero matrix. If the weights are below one per row, d is
    not subtracted.
    """
    total = statistics.within_scatter()
    mass = compute_divisors(statistics.weights, statistics.counts, ddof)
    stack = np.zeros((statistics.n_classes, *total.shape))
    for k, label in enumerate(statistics.classes.tolist()):
        divisor = (1 - pooling) * mass[k] + pooling * mass.sum()
        if divisor > 0:
            stack[k] = ((1 - pooling) * statistics.scatter(label) + pooling * total) / divisor
    return stack


def _compute_inverse_roots(
    covariances: Matrix, statistics: ClassStatistics
) -> tuple[Matrix, Matrix]:
    """Return R with RR' = inv(Σ) for each covariance Σ, and log |Σ|."""
    roots = np.empty_like(covariances)
    log_dets = np.empty(len(covariances))
    for k, covariance in enumerate(covariances):
        R = whitener(covariance, get_rank_tolerance(statistics))
        if R.shape[1] < len(covariance):
            label = statistics.classes.tolist()[k]
            raise ValueError(
                f"The covariance of class {label!r} is singular: the class has "
                f"{int(statistics.counts[k])} rows in {len(covariance)} dimensions. Use "
                "shrinkage='auto', shrinkage above 0, or pooling above 0."
            )
        roots[k] = R
        log_dets[k] = -2 * np.linalg.slogdet(R)[1]
    return roots, log_dets
