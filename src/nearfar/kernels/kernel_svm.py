"""Base class of support vector machines that are fitted on kernel values."""

from __future__ import annotations

from abc import abstractmethod
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base import Estimator
from nearfar.base.kernel_learner import exact
from nearfar.base.linear_classifier import compute_votes
from nearfar.blocks import split_rows
from nearfar.state import Sizes, State, check_that, floats, indices, integer_value, labels


class KernelSVM(ClassifierMixin, Estimator):
    """Base class of classifiers that fit scikit-learn's ``SVC`` on kernel values.

    Subclasses implement ``fit``, which calls `_store_svm`, and `_values`. There is one SVM per
    pair of classes, with positive decision values for the second class. The support vectors and
    their coefficients are stored.
    """

    state = State(
        {
            "classes_": labels("c"),
            "_n_rows": integer_value("n"),
            "support_": indices("s", below="n"),
            "dual_coef_": floats("s", "pairs"),
            "intercept_": floats("pairs"),
        },
        fitted="dual_coef_",
    )

    C: float
    classes_: NDArray[Any]
    support_: Indices
    _n_rows: int
    dual_coef_: Matrix
    intercept_: Vector

    def __sklearn_is_fitted__(self) -> bool:
        return "dual_coef_" in vars(self)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        pairs = sizes["c"] * (sizes["c"] - 1) // 2
        check_that(sizes["pairs"] == pairs, "intercept_ must have one value per pair of classes.")
        finite = np.isfinite(self.dual_coef_).all() and np.isfinite(self.intercept_).all()
        check_that(finite, "dual_coef_ and intercept_ must be finite.")

    @abstractmethod
    def _values(self, rows: Matrix) -> Matrix:
        """Return the kernel values between rows and the support vectors."""

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return the decision values of points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points to classify.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the value is positive for the second class. With more, it is the
            number of votes for each class among the SVMs of all pairs, plus a confidence term of
            less than half a vote, as in scikit-learn.
        """
        check_is_fitted(self)
        rows = exact(self._check_X(X, reset=False))
        if len(self.classes_) == 1:
            return np.zeros((len(rows), 1))
        scores = np.empty((len(rows), len(self.intercept_)))
        for block in split_rows(len(rows), 32 * max(1, len(self.support_))):
            scores[block] = self._values(rows[block]) @ self.dual_coef_ + self.intercept_
        return compute_votes(scores, len(self.classes_), "ovo")

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the predicted label of each point.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points to classify.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        decisions = self.decision_function(X)
        if decisions.ndim == 1:
            return np.asarray(self.classes_[(decisions > 0).astype(np.intp)])
        return np.asarray(self.classes_[decisions.argmax(axis=1)])

    def _store_svm(self, machine: SVC) -> None:
        """Store the support vectors and coefficients of an SVC that was fitted to class codes."""
        self._n_rows = int(machine.shape_fit_[0])
        self.support_ = machine.support_.astype(np.intp)
        n_classes = len(self.classes_)
        if n_classes == 2:
            self.dual_coef_ = machine.dual_coef_.T.copy()
            self.intercept_ = machine.intercept_.astype(float)
            return
        # For the SVM of classes i and j, libsvm stores the coefficients of the support vectors of
        # class i in row j - (j > i).
        ends = np.cumsum([0, *machine.n_support_])
        pairs = list(combinations(range(n_classes), 2))
        self.dual_coef_ = np.zeros((ends[-1], len(pairs)))
        for k, (i, j) in enumerate(pairs):
            first_vectors, second_vectors = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            # The decision values of libsvm are positive for the first class of a pair.
            self.dual_coef_[first_vectors, k] = -machine.dual_coef_[j - 1, first_vectors]
            self.dual_coef_[second_vectors, k] = -machine.dual_coef_[i, second_vectors]
        self.intercept_ = -machine.intercept_.astype(float)

    def _store_empty(self) -> None:
        """Store empty arrays. No SVM is fitted if all training rows have the same class."""
        self._n_rows = 0
        self.support_ = np.empty(0, dtype=np.intp)
        self.dual_coef_, self.intercept_ = np.empty((0, 0)), np.empty(0)


def fit_svc(K: Matrix, codes: NDArray[np.intp], C: float) -> SVC:
    """Return an SVC fitted on a kernel matrix."""
    return SVC(C=C, kernel="precomputed", random_state=0).fit(K, codes)
