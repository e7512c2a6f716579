"""Classifiers that are one or several hyperplanes: two classes at a time."""

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
from nearfar.parameters import Allowed, one_of
from nearfar.state import Sizes, State, Word, floats, labels, need

MultiClass = Literal["ovo", "ovr"]
#: The unit of a ridge: the variance within classes, or that of X squared.
RidgeMode = Literal["relative", "absolute"]
#: What the parameter ``multi_class`` may be.
MULTI_CLASS: dict[str, list[Allowed]] = {"multi_class": [one_of("ovo", "ovr")]}


class TwoClassProblem(NamedTuple):
    """Codes of the classes on either side of a hyperplane."""

    negative: tuple[int, ...]
    positive: tuple[int, ...]

    def signs(self, codes: Indices) -> Vector:
        """1 and -1 of the rows that take part, 0 of the others."""
        of_class = np.zeros(int(codes.max()) + 1)
        of_class[[k for k in self.negative if k < len(of_class)]] = -1
        of_class[[k for k in self.positive if k < len(of_class)]] = 1
        return np.asarray(of_class[codes])


def two_class_problems(n_classes: int, multi_class: MultiClass) -> list[TwoClassProblem]:
    """All pairs of classes, or each class against the rest; of two classes one problem."""
    if n_classes == 2 or multi_class == "ovo":
        return [TwoClassProblem((i,), (j,)) for i, j in combinations(range(n_classes), 2)]
    everyone = range(n_classes)
    return [TwoClassProblem(tuple(k for k in everyone if k != j), (j,)) for j in everyone]


def one_or_list(values: Sequence[Any]) -> Any:
    """What a single problem has learned as it is, of several a list."""
    return values[0] if len(values) == 1 else list(values)


def for_each_problem(word: Word) -> Word:
    """A word for what :func:`one_or_list` returns."""

    def fits(value: Any, sizes: Sizes) -> bool:
        n = sizes.get("problems", 1)
        several = n > 1 and type(value) is list
        if several:
            return len(value) == n and all(word.fits(item, sizes) for item in value)
        return n == 1 and word.fits(value, sizes)

    return word._replace(
        fits=fits, description=f"{word.description}, for several problems a list of such"
    )


class LinearClassifier(ClassifierMixin, Estimator):
    """A classifier whose decisions are the signs of ``X @ coef_.T + intercept_``.

    Of two classes the second is on the positive side. Of more there is one hyperplane for each pair
    of classes (``multi_class="ovo"``), which vote, or one for each class against all others
    ("ovr"), of which the largest wins.
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
            wanted = len(two_class_problems(sizes["c"], self.multi_class))
            need(sizes["problems"] == wanted, "coef_ does not fit the number of classes.")

    @abstractmethod
    def _check_rows_of(self, X: ArrayLike) -> Matrix:
        """New samples as rows."""

    def _scores(self, X: ArrayLike) -> Matrix:
        """Signed values of the hyperplanes, (n, n_problems)."""
        check_is_fitted(self)
        rows = self._check_rows_of(X)
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def decision_function(self, X: ArrayLike) -> Matrix:
        """How far on the side of each class samples are.

        Parameters
        ----------
        X : as in ``fit``
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes the signed value of the one hyperplane, positive for the second. With
            more, of "ovr" the values of all hyperplanes; of "ovo" the votes of the pairs plus less
            than half a vote by how clear they were, as in scikit-learn.
        """
        return votes_of(self._scores(X), len(self.classes_), self.multi_class)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the side, of the most votes or of the largest value.

        Parameters
        ----------
        X : as in ``fit``
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        decisions = self.decision_function(X)
        if decisions.ndim == 1:
            return np.asarray(self.classes_[(decisions > 0).astype(np.intp)])
        return np.asarray(self.classes_[decisions.argmax(axis=1)])


def votes_of(scores: Matrix, n_classes: int, multi_class: MultiClass) -> Matrix:
    """Decisions (n,) or (n, n_classes) from the values (n, n_problems) of all hyperplanes."""
    if n_classes == 2:
        return np.asarray(scores[:, 0])
    if multi_class == "ovr":
        return scores
    votes, clearness = np.zeros((len(scores), n_classes)), np.zeros((len(scores), n_classes))
    for score, (i, j) in zip(scores.T, combinations(range(n_classes), 2), strict=True):
        votes[:, i] += score <= 0
        votes[:, j] += score > 0
        clearness[:, i] -= score
        clearness[:, j] += score
    # Less than half a vote: it decides between equals only.
    return votes + clearness / (3 * (np.abs(clearness) + 1))
