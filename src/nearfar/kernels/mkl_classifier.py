"""MKLClassifier: a support vector machine on a learned kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from nearfar.arrays import Matrix, Vector
from nearfar.base import KernelLearner, LearnerTags
from nearfar.base.kernel_learner import exact
from nearfar.kernels.alignment_kernel_learner import AlignmentKernelLearner
from nearfar.kernels.kernel_svm import KernelSVM, fit_svc
from nearfar.parameters import instance, none, real
from nearfar.state import Sizes, State, check_that, none_or, object_of


class MKLClassifier(KernelSVM):
    r"""Support vector machine on a learned sum of kernels (multiple kernel learning).

    The learner provides weights :math:`\mu` of base kernels, and the SVM dual variables
    :math:`\alpha`. The decision function is

    .. math:: f(x) = \sum_j \alpha_j y_j \sum_i \mu_i k_i(x_j, x) + b.

    Use it if it is not known which kernel, kernel width or view of the data separates the classes.
    By default, the kernel is the one with the largest alignment with the labels. With
    ``MarginKernelLearner``, the kernel and the SVM optimize the same objective, but narrow kernels
    of noise columns can get large weights, because they separate the training rows.

    Cost: the fit of the learner, and one SVM per pair of classes. The fitted classifier stores the
    training points.

    Parameters
    ----------
    estimator : kernel learner or None, default=None
        Kernel learner that is fitted first. None uses ``AlignmentKernelLearner()``. The mean
        diagonal of the learned kernel is 1, unless ``trace`` or ``norm`` of the learner is set.
    C : float, default=1.0
        Penalty parameter of the SVM.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    estimator_ : KernelLearner or None
        Fitted learner, or None if y has one class.
    weights_ : ndarray of shape (n_kernels,)
        Kernel weights of the learner.
    kernel_names_ : list of str
        Names of the learner's kernels.
    support_ : ndarray of shape (n_support,)
        Row indices of the support vectors.
    dual_coef_ : ndarray of shape (n_support, n_pairs)
        Coefficients of the support vectors in the SVM of each pair of classes, in the order (0, 1),
        (0, 2), ..., (1, 2), .... Decision values are positive for the second class of the pair.
    intercept_ : ndarray of shape (n_pairs,)
        Intercepts of the SVMs.

    See Also
    --------
    AlignmentKernelLearner, AverageKernelLearner, ConformalSVC, EasyMKL, MarginKernelLearner

    References
    ----------
    .. [1] G. Lanckriet et al., "Learning the kernel matrix with semidefinite programming", JMLR 5,
       2004.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> from nearfar import MKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> float(cross_val_score(MKLClassifier(), X / X.std(axis=0), y).mean()) > 0.95
    True
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    renamed: ClassVar = {"learner": "estimator", "learner_": "estimator_"}
    state = State({"estimator_": none_or(object_of(KernelLearner, p="p", n="n"))}, rows=0)
    parameters: ClassVar = {
        "estimator": [
            none,
            instance(KernelLearner, description="a kernel learner such as MarginKernelLearner()"),
        ],
        "C": [real(0, open_low=True)],
    }
    settings = ({"C": 10.0}, {"C": 100.0})

    estimator_: Any

    def __init__(self, estimator: Any = None, *, C: float = 1.0) -> None:
        self.estimator = estimator
        self.C = C

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the kernel learner, then the SVM.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        MKLClassifier
            The fitted classifier.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True)
        self.classes_, codes = self._check_labels(y, len(rows), min_classes=1)
        if len(self.classes_) == 1:
            self.estimator_ = None
            self._store_empty()
            return self
        learner = AlignmentKernelLearner() if self.estimator is None else clone(self.estimator)
        self.estimator_ = learner.fit(X, y)
        points = exact(rows)
        self._store_svm(fit_svc(learner._values(points, points), codes, self.C))
        return self

    @property
    def weights_(self) -> Vector:
        """Kernel weights of the learner."""
        return np.asarray(self.estimator_.weights_)

    @property
    def kernel_names_(self) -> list[str]:
        """Names of the learner's kernels."""
        return list(self.estimator_.kernel_names_)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        check_that(
            (self.estimator_ is None) == (sizes["c"] == 1),
            "estimator_ must be None only for one class.",
        )

    def _values(self, rows: Matrix) -> Matrix:
        return np.asarray(self.estimator_._values(rows, self.estimator_._rows[self.support_]))
