"""Support vector machines of kernel values, as model files can hold them."""

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
from nearfar.base.linear_classifier import votes_of
from nearfar.blocks import row_blocks
from nearfar.state import Sizes, State, floats, indices, labels, need, whole


class KernelSVM(ClassifierMixin, Estimator):
    """A classifier by scikit-learn's ``SVC`` on kernel values; write ``fit`` and `_values`.

    ``fit`` calls `_keep_machine`. There is one machine for each two classes, positive for the
    second; what is kept are its support vectors and their coefficients.
    """

    state = State(
        {
            "classes_": labels("c"),
            "_n_rows": whole("n"),
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
        need(sizes["pairs"] == pairs, "there must be a machine for each two classes.")
        finite = np.isfinite(self.dual_coef_).all() and np.isfinite(self.intercept_).all()
        need(finite, "dual_coef_ and intercept_ must be finite.")

    @abstractmethod
    def _values(self, rows: Matrix) -> Matrix:
        """Kernel values of rows with the support vectors."""

    def decision_function(self, X: ArrayLike) -> Matrix:
        """How far on the side of each class points are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes positive for the second. With more the votes of the machines for each
            two plus less than half a vote by how clear they were, as in scikit-learn.
        """
        check_is_fitted(self)
        rows = exact(self._check_X(X, reset=False))
        if len(self.classes_) == 1:
            return np.zeros((len(rows), 1))
        scores = np.empty((len(rows), len(self.intercept_)))
        for block in row_blocks(len(rows), 32 * max(1, len(self.support_))):
            scores[block] = self._values(rows[block]) @ self.dual_coef_ + self.intercept_
        return votes_of(scores, len(self.classes_), "ovo")

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the side, or of the most votes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        decisions = self.decision_function(X)
        if decisions.ndim == 1:
            return np.asarray(self.classes_[(decisions > 0).astype(np.intp)])
        return np.asarray(self.classes_[decisions.argmax(axis=1)])

    def _keep_machine(self, machine: SVC) -> None:
        """Take over the machines, fitted to codes of classes."""
        self._n_rows = int(machine.shape_fit_[0])
        self.support_ = machine.support_.astype(np.intp)
        n_classes = len(self.classes_)
        if n_classes == 2:
            self.dual_coef_ = machine.dual_coef_.T.copy()
            self.intercept_ = machine.intercept_.astype(float)
            return
        # In libsvm's layout row j - (j > i) of a vector of class i is for its machine against j.
        ends = np.cumsum([0, *machine.n_support_])
        pairs = list(combinations(range(n_classes), 2))
        self.dual_coef_ = np.zeros((ends[-1], len(pairs)))
        for k, (i, j) in enumerate(pairs):
            own, other = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            # libsvm is positive for the first of two.
            self.dual_coef_[own, k] = -machine.dual_coef_[j - 1, own]
            self.dual_coef_[other, k] = -machine.dual_coef_[i, other]
        self.intercept_ = -machine.intercept_.astype(float)

    def _keep_nothing(self) -> None:
        """Of one class: there is nothing to decide."""
        self._n_rows = 0
        self.support_ = np.empty(0, dtype=np.intp)
        self.dual_coef_, self.intercept_ = np.empty((0, 0)), np.empty(0)


def fitted_svc(K: Matrix, codes: NDArray[np.intp], C: float) -> SVC:
    """The machines of a kernel matrix."""
    return SVC(C=C, kernel="precomputed").fit(K, codes)
