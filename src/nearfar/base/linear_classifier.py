"""Base class of linear classifiers: one hyperplane, or several for more than two classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.estimator import Estimator
from nearfar.parameters import AllowedValues, one_of
from nearfar.state import Condition, Sizes, State, check_that, floats, labels

MultiClass = Literal["ovo", "ovr"]
#: Unit of a ridge: "relative" to the within-class variance, or "absolute" in squared units of X.
RidgeMode = Literal["relative", "absolute"]
#: Allowed values of the parameter ``multi_class``.
MULTI_CLASS: dict[str, list[AllowedValues]] = {"multi_class": [one_of("ovo", "ovr")]}


class TwoClassProblem(NamedTuple):
    """Class codes on the negative and the positive side of a hyperplane."""

    negative: tuple[int, ...]
    positive: tuple[int, ...]

    def signs(self, codes: Indices) -> Vector:
        """Return +1 for each row of a positive class, -1 for a negative class, and 0 otherwise."""
        class_signs = np.zeros(int(codes.max()) + 1)
        class_signs[[k for k in self.negative if k < len(class_signs)]] = -1
        class_signs[[k for k in self.positive if k < len(class_signs)]] = 1
        return np.asarray(class_signs[codes])


def two_class_problems(n_classes: int, multi_class: MultiClass) -> list[TwoClassProblem]:
    """Return one problem per pair of classes ("ovo"), or one per class against the rest ("ovr").

    With two classes, there is only one problem.
    """
    if n_classes == 2 or multi_class == "ovo":
        return [TwoClassProblem((i,), (j,)) for i, j in combinations(range(n_classes), 2)]
    codes = range(n_classes)
    return [TwoClassProblem(tuple(k for k in codes if k != j), (j,)) for j in codes]


def unwrap_single(values: Sequence[Any]) -> Any:
    """Return the only item of a sequence, or a list if there are several items."""
    return values[0] if len(values) == 1 else list(values)


def check_each_problem(item_check: Condition) -> Condition:
    """Return a condition that applies ``item_check`` to the item of each two-class problem.

    The checked value is a result of :func:`unwrap_single`.
    """

    def fits(value: Any, sizes: Sizes) -> bool:
        n = sizes.get("problems", 1)
        is_list = n > 1 and type(value) is list
        if is_list:
            return len(value) == n and all(item_check.fits(item, sizes) for item in value)
        return n == 1 and item_check.fits(value, sizes)

    return item_check._replace(
        fits=fits, description=f"{item_check.description}, or a list of these for several problems"
    )


class LinearClassifier(ClassifierMixin, Estimator):
    """Linear classifier with the decision values ``X @ coef_.T + intercept_``.

    With two classes, there is one hyperplane, with the second class on its positive side. With more
    classes, ``multi_class="ovo"`` uses one hyperplane per pair of classes, and the pairs vote.
    ``multi_class="ovr"`` uses one hyperplane per class, and the largest decision value wins.
    """

    state = State(
        {
            "classes_": labels("c"),
            "coef_": floats("problems", "p"),
            "intercept_": floats("problems"),
        },
        fitted="coef_",
    )
    multi_class: MultiClass
    classes_: NDArray[Any]
    coef_: Matrix
    intercept_: Vector

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        if "coef_" in vars(self):
            n_problems = len(two_class_problems(sizes["c"], self.multi_class))
            check_that(
                sizes["problems"] == n_problems, "coef_ does not match the number of classes."
            )

    @abstractmethod
    def _check_rows_of(self, X: ArrayLike) -> Matrix:
        """Validate new samples and return them as rows."""

    def _scores(self, X: ArrayLike) -> Matrix:
        """Return the decision values of all hyperplanes, of shape (n, n_problems)."""
        check_is_fitted(self)
        rows = self._check_rows_of(X)
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return decision values, which measure how strongly samples are assigned to each class.

        Parameters
        ----------
        X : as in ``fit``
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the decision value of the hyperplane, which is positive for the second
            class. With more classes, "ovr" returns the decision values of all hyperplanes, and
            "ovo" returns the votes of the pairs, plus less than half a vote for their confidence,
            as in scikit-learn.
        """
        return compute_votes(self._scores(X), len(self.classes_), self.multi_class)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the labels of samples.

        Parameters
        ----------
        X : as in ``fit``
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels with the largest decision value.
        """
        decisions = self.decision_function(X)
        if decisions.ndim == 1:
            return np.asarray(self.classes_[(decisions > 0).astype(np.intp)])
        return np.asarray(self.classes_[decisions.argmax(axis=1)])


def compute_votes(scores: Matrix, n_classes: int, multi_class: MultiClass) -> Matrix:
    """Return decision values per class.

    ``scores`` contains the decision values of all hyperplanes, of shape (n, n_problems).
    """
    if n_classes == 2:
        return np.asarray(scores[:, 0])
    if multi_class == "ovr":
        return scores
    votes, confidence = np.zeros((len(scores), n_classes)), np.zeros((len(scores), n_classes))
    for score, (i, j) in zip(scores.T, combinations(range(n_classes), 2), strict=True):
        votes[:, i] += score <= 0
        votes[:, j] += score > 0
        confidence[:, i] -= score
        confidence[:, j] += score
    # The confidence adds less than half a vote, so it only breaks ties.
    return votes + confidence / (3 * (np.abs(confidence) + 1))
