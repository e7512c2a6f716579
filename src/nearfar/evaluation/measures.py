"""What is counted as an error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import check_scoring, get_scorer_names

from nearfar.arrays import Indices
from nearfar.words import amount, listed

#: The largest class may be so many times the smallest before errors are balanced.
BALANCED_UP_TO = 3.0


@dataclass(frozen=True)
class Measure:
    """An error to be made small: its name, what scikit-learn calls it, and why this one."""

    name: str
    scoring: Any
    note: str

    def error(
        self,
        classes: NDArray[Any],
        true: Indices,
        predicted: Indices,
        shares: Callable[[], NDArray[np.float64]],
        X: Any = None,
    ) -> float:
        """Error of predicted codes; scorers may ask for probabilities and for the rows."""
        if self.scoring == "accuracy":
            return 1.0 - float(np.mean(true == predicted))
        if self.scoring == "balanced_accuracy":
            hits = np.bincount(true, true == predicted, minlength=len(classes))
            totals = np.bincount(true, minlength=len(classes))
            return 1.0 - float(np.mean(hits[totals > 0] / totals[totals > 0]))
        score = self._score(_Answers(classes, predicted, shares), X, classes[true])
        if not np.isfinite(score):
            raise ValueError(f"scoring gave {score} on a fold of {len(true)} rows.")
        return 1.0 - score

    def _score(self, answers: _Answers, X: Any, labels: NDArray[Any]) -> float:
        rows = np.zeros((len(labels), 1)) if X is None else X
        return float(check_scoring(answers, scoring=self.scoring)(answers, rows, labels))

    @property
    def by_rows(self) -> bool:
        """Whether it is a mean over rows, or over the classes' means of rows."""
        return self.scoring in ("accuracy", "balanced_accuracy")

    def written(self, score: str) -> str:
        """The error in a line of code, from that of scikit-learn's score."""
        return f"1 - {score}"


@dataclass(frozen=True)
class RelativeRMSE(Measure):
    """Root of the mean squared error over one standard deviation, that of the target.

    ``unit`` is the standard deviation (divided by n) of the target over the rows that may be
    tested: those of a fixed test set, or else all rows. It is one number for all folds and all
    methods, and whoever predicts the mean of these rows has a relative RMSE of 1 on them.

    >>> measure = RelativeRMSE.of(np.array([1.0, 2.0, 3.0, 6.0]))
    >>> round(float(measure.relative(np.array([1.0, 2.0, 3.0, 6.0]), np.full(4, 3.0))), 12)
    1.0
    """

    unit: float = 1.0

    @classmethod
    def of(cls, values: NDArray[np.float64], what: str = "all rows") -> RelativeRMSE:
        """The measure for these values, ``what`` says of which rows they are."""
        # As large or small as they may be, no square overflows.
        size = float(np.abs(values).max()) or 1.0
        unit = float((values / size).std()) * size
        note = (
            "Relative RMSE: the root mean squared error of held-out rows over the standard "
            f"deviation of the target, {amount(unit)} in {what}; 100 % is what predicting the mean "
            f"of {what} reaches on them."
        )
        return cls("relative RMSE", "neg_root_mean_squared_error", note, unit)

    def relative(
        self, true: NDArray[np.float64], predicted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Of each column of predictions, or of the only one."""
        missed = (true if predicted.ndim == 1 else true[:, None]) / self.unit
        missed = missed - predicted / self.unit
        return np.asarray(np.sqrt(np.mean(missed**2, axis=0)))

    @property
    def by_rows(self) -> bool:
        """To first order: see :meth:`losses`."""
        return True

    def losses(
        self, true: NDArray[np.float64], predicted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """A loss for each row: their mean is the relative RMSE, and they vary as it does.

        Of r = sqrt(mean e²) these are r + (e² − r²) / 2r: the root, to first order in the rows.

        >>> measure = RelativeRMSE("relative RMSE", "", "", 2.0)
        >>> measure.losses(np.array([0.0, 0.0]), np.array([2.0, 6.0])).round(3).tolist()
        [1.342, 3.13]
        >>> round(float(np.mean([1.342, 3.13])), 3), round(float(np.sqrt(5)), 3)
        (2.236, 2.236)
        """
        squares = (true / self.unit - predicted / self.unit) ** 2
        root = float(np.sqrt(squares.mean()))
        return np.asarray((root**2 + squares) / (2 * root) if root > 0 else squares)

    def written(self, score: str) -> str:
        """The error in a line of code, from that of scikit-learn's score."""
        return f"-{score} / {self.unit!r}"


def choose_measure(
    scoring: Any,
    classes: NDArray[Any],
    counts: NDArray[np.intp],
    sample: tuple[Any, Indices] | None = None,
    *,
    noun: str = "row",
) -> Measure:
    """The user's measure, or the error: balanced where one class outnumbers another threefold.

    A scorer of the user's is tried once, on a ``sample`` with some rows of every class, so that one
    that cannot judge these classes is refused before anything runs. ``noun`` is what a row is
    called.
    """
    if scoring is None:
        small, large = int(counts.argmin()), int(counts.argmax())
        if counts[large] > BALANCED_UP_TO * counts[small]:
            return Measure(
                "balanced error",
                "balanced_accuracy",
                f"Balanced error (mean of the classes' own error rates), because the classes are "
                f"unbalanced: {classes[large]} has {counts[large]} {noun}s, {classes[small]} has "
                f"{counts[small]}.",
            )
        return Measure(
            "error", "accuracy", f"Error: the fraction of held-out {noun}s that are misclassified."
        )
    if not isinstance(scoring, str) and not callable(scoring):
        raise ValueError(
            f"scoring={scoring!r} is of type {type(scoring).__name__}; give one scorer: a name "
            "such as 'balanced_accuracy' or 'f1_macro', or a callable scorer(estimator, X, y)."
        )
    if scoring in ("accuracy", "error"):
        return Measure("error", "accuracy", "Error, as asked for.")
    if scoring in ("balanced_accuracy", "balanced error", "balanced_error"):
        return Measure("balanced error", "balanced_accuracy", "Balanced error, as asked for.")
    if isinstance(scoring, str) and scoring not in get_scorer_names():
        raise ValueError(
            f"scoring={scoring!r} is not a scorer of scikit-learn: give a name such as "
            "'balanced_accuracy' or 'f1_macro', or a callable scorer(estimator, X, y)."
        )
    if isinstance(scoring, str) and scoring.startswith("neg_"):
        raise ValueError(
            f"scoring={scoring!r} is minus a loss. Errors here are 1 minus a score: give a scorer "
            "whose best value is 1, such as 'f1_macro' or 'roc_auc_ovr'."
        )
    name = f"1 - {_name(scoring)}"
    measure = Measure(name, scoring, f"{name}, as asked for.")
    _try(measure, classes, sample)
    return measure


def _name(scoring: Any) -> str:
    if isinstance(scoring, str):
        return scoring
    made = re.match(r"make_scorer\((\w+)", repr(scoring))
    return made[1] if made else getattr(scoring, "__name__", "score")


def _try(measure: Measure, classes: NDArray[Any], sample: tuple[Any, Indices] | None) -> None:
    """Let the scorer judge perfect answers; refuse it if it cannot, or does not give them 1."""
    X, codes = (None, np.repeat(np.arange(len(classes)), 2)) if sample is None else sample
    answers = _Answers(classes, codes, lambda: np.eye(len(classes))[codes])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score = measure._score(answers, X, classes[codes])
    except Exception as error:  # whatever a scorer of the user's own may raise
        reason = " ".join(str(error).split()).replace("_Answers", "The vote of neighbours")
        raise ValueError(
            f"scoring={measure.scoring!r} cannot judge the {len(classes)} classes "
            f"{listed(classes.tolist(), limit=5)}: {reason[:300].rstrip('.')}."
            f"{_advice(measure.scoring, classes)}"
        ) from error
    if not np.isclose(score, 1.0, atol=1e-6):
        raise ValueError(
            f"scoring={measure.scoring!r} gives perfect answers {score:.4g}. Errors here are 1 "
            "minus a score: give a scorer whose best value is 1, such as 'f1_macro'."
        )


def _advice(scoring: Any, classes: NDArray[Any]) -> str:
    if not isinstance(scoring, str):
        return ""
    same = [f"{scoring}_macro", f"{scoring}_ovr"]
    known = next((name for name in same if name in get_scorer_names()), "f1_macro")
    if len(classes) == 2 and hasattr(classes[0], "lower"):
        return f" Give scoring={known!r}, or make_scorer with pos_label={classes.tolist()[1]!r}."
    return f" Give scoring={known!r}."


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
        self._check(X)
        return np.asarray(self.classes[self.predicted])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        self._check(X)
        return np.asarray(self.shares())

    def _check(self, X: Any) -> None:
        if len(X) != len(self.predicted):
            raise ValueError(
                f"the scorer asks for answers on {len(X)} rows; only those on all "
                f"{len(self.predicted)} rows it was given are known"
            )
