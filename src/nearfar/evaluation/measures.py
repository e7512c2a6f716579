"""What is counted as an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import check_scoring

Codes = NDArray[np.intp]
#: The largest class may be so many times the smallest before errors are balanced.
BALANCED_UP_TO = 3.0


@dataclass(frozen=True)
class Measure:
    """An error to be made small: its name, and what it is of predictions.

    Parameters
    ----------
    name : str
        For the tables: "error", "balanced error", "1 - f1_macro".
    scoring : str or callable
        What scikit-learn calls it.
    note : str
        Why this one.
    """

    name: str
    scoring: Any
    note: str

    def error(
        self,
        classes: NDArray[Any],
        true: Codes,
        predicted: Codes,
        shares: Callable[[], NDArray[np.float64]],
    ) -> float:
        """Error of predicted codes; ``shares`` gives class probabilities to scorers that ask."""
        if self.scoring == "accuracy":
            return 1.0 - float(np.mean(true == predicted))
        if self.scoring == "balanced_accuracy":
            hits = np.bincount(true, true == predicted, minlength=len(classes))
            totals = np.bincount(true, minlength=len(classes))
            return 1.0 - float(np.mean(hits[totals > 0] / totals[totals > 0]))
        answers = _Answers(classes, predicted, shares)
        scorer = check_scoring(answers, scoring=self.scoring)
        score = float(scorer(answers, np.zeros((len(true), 1)), classes[true]))
        if not np.isfinite(score):
            raise ValueError(f"scoring gave {score} on a fold of {len(true)} rows.")
        return 1.0 - score

    @property
    def by_rows(self) -> bool:
        """Whether it is a mean over rows, or over the classes' means of rows."""
        return self.scoring in ("accuracy", "balanced_accuracy")


def choose_measure(scoring: Any, classes: NDArray[Any], counts: NDArray[np.intp]) -> Measure:
    """The user's measure, or the error: balanced where one class outnumbers another threefold."""
    if scoring is None:
        small, large = int(counts.argmin()), int(counts.argmax())
        if counts[large] > BALANCED_UP_TO * counts[small]:
            return Measure(
                "balanced error",
                "balanced_accuracy",
                f"Balanced error (mean of the classes' own error rates), because the classes are "
                f"unbalanced: {classes[large]} has {counts[large]} rows, {classes[small]} has "
                f"{counts[small]}.",
            )
        return Measure("error", "accuracy", "Error: the share of held-out rows that are mistaken.")
    if scoring in ("accuracy", "error"):
        return Measure("error", "accuracy", "Error, as asked for.")
    if scoring in ("balanced_accuracy", "balanced error", "balanced_error"):
        return Measure("balanced error", "balanced_accuracy", "Balanced error, as asked for.")
    try:
        check_scoring(_Answers(classes, np.zeros(0, np.intp), None), scoring=scoring)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"scoring={scoring!r} is not a scorer of scikit-learn: give a name such as "
            "'balanced_accuracy' or 'f1_macro', or a callable scorer(estimator, X, y)."
        ) from error
    if isinstance(scoring, str) and scoring.startswith("neg_"):
        raise ValueError(
            f"scoring={scoring!r} is minus a loss. Errors here are 1 minus a score: give a scorer "
            "whose best value is 1, such as 'f1_macro' or 'roc_auc_ovr'."
        )
    name = f"1 - {scoring if isinstance(scoring, str) else getattr(scoring, '__name__', 'score')}"
    return Measure(name, scoring, f"{name}, as asked for.")


class _Answers(ClassifierMixin, BaseEstimator):
    """A classifier whose answers are known: lets any scorer judge predictions made elsewhere."""

    def __init__(self, classes: Any, predicted: Any, shares: Any) -> None:
        self.classes, self.predicted, self.shares = classes, predicted, shares

    @property
    def classes_(self) -> NDArray[Any]:
        return np.asarray(self.classes)

    def fit(self, X: Any, y: Any = None) -> _Answers:
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.classes[self.predicted])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self.shares())
