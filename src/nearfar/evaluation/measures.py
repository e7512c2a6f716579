"""Error measures of classification and regression, and their selection."""

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
from nearfar.words import format_number, join_names

#: Balanced error is used when the largest class is more than this many times the smallest.
BALANCED_UP_TO = 3.0


@dataclass(frozen=True)
class Measure:
    """An error to minimize: its name, its scikit-learn scorer, and a note for the report."""

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
        """Return the error of predicted class codes.

        A scorer may also request probabilities (``shares``) and the rows (``X``).
        """
        if self.scoring == "accuracy":
            return 1.0 - float(np.mean(true == predicted))
        if self.scoring == "balanced_accuracy":
            hits = np.bincount(true, true == predicted, minlength=len(classes))
            totals = np.bincount(true, minlength=len(classes))
            return 1.0 - float(np.mean(hits[totals > 0] / totals[totals > 0]))
        score = self._score(_Answers(classes, predicted, shares), X, classes[true])
        if not np.isfinite(score):
            raise ValueError(
                f"scoring returned {score} on a fold of {len(true)} rows; expected a finite number."
            )
        return 1.0 - score

    def _score(self, answers: _Answers, X: Any, labels: NDArray[Any]) -> float:
        rows = np.zeros((len(labels), 1)) if X is None else X
        return float(check_scoring(answers, scoring=self.scoring)(answers, rows, labels))

    @property
    def by_rows(self) -> bool:
        """Whether the measure is a mean over rows, or a mean of the classes' means."""
        return self.scoring in ("accuracy", "balanced_accuracy")

    def written(self, score: str) -> str:
        """Return Python code for the error, given the code of scikit-learn's score."""
        return f"1 - {score}"


@dataclass(frozen=True)
class RelativeRMSE(Measure):
    """Root mean squared error divided by the standard deviation of the target.

    ``unit`` is this standard deviation (with divisor n), computed over the rows that may be tested:
    the fixed test set, or all rows. It is the same number for all folds and all methods.
    Predicting the mean of these rows has a relative RMSE of 1 on them.

    >>> measure = RelativeRMSE.of(np.array([1.0, 2.0, 3.0, 6.0]))
    >>> round(float(measure.relative(np.array([1.0, 2.0, 3.0, 6.0]), np.full(4, 3.0))), 12)
    1.0
    """

    unit: float = 1.0

    @classmethod
    def of(cls, values: NDArray[np.float64], what: str = "all rows") -> RelativeRMSE:
        """Return the measure for these target values; ``what`` names the rows they belong to."""
        # Dividing by the largest absolute value prevents overflow and underflow of the squares.
        size = float(np.abs(values).max()) or 1.0
        unit = float((values / size).std()) * size
        note = (
            "Relative RMSE: the root mean squared error of held-out rows divided by the standard "
            f"deviation of the target ({format_number(unit)} in {what}). Predicting the mean of "
            f"{what} would reach 100% on them."
        )
        return cls("relative RMSE", "neg_root_mean_squared_error", note, unit)

    def relative(
        self, true: NDArray[np.float64], predicted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the relative RMSE of the predictions, one per column if there are several."""
        missed = (true if predicted.ndim == 1 else true[:, None]) / self.unit
        missed = missed - predicted / self.unit
        return np.asarray(np.sqrt(np.mean(missed**2, axis=0)))

    @property
    def by_rows(self) -> bool:
        """Whether the measure is a mean over rows: true to first order, see :meth:`losses`."""
        return True

    def losses(
        self, true: NDArray[np.float64], predicted: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return one loss per row, whose mean is the relative RMSE.

        With r = sqrt(mean e²), the losses are r + (e² − r²) / 2r, a first-order expansion of the
        root. The variance of their mean therefore approximates the variance of r.

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
        """Return Python code for the error, given the code of scikit-learn's score."""
        return f"-{score} / {self.unit!r}"


def choose_measure(
    scoring: Any,
    classes: NDArray[Any],
    counts: NDArray[np.intp],
    sample: tuple[Any, Indices] | None = None,
    *,
    noun: str = "row",
) -> Measure:
    """Return the requested measure; by default the error, or the balanced error.

    The default is the balanced error if the largest class has more than ``BALANCED_UP_TO`` times as
    many rows as the smallest. A custom scorer is tried once on ``sample``, which has some rows of
    every class, so that a scorer that fails for these classes is rejected before any fit. ``noun``
    is the noun for one row in messages.
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
            f"scoring={scoring!r} is of type {type(scoring).__name__}; expected one scorer: a name "
            "such as 'balanced_accuracy' or 'f1_macro', or a callable scorer(estimator, X, y)."
        )
    if scoring in ("accuracy", "error"):
        return Measure("error", "accuracy", "Error, as requested.")
    if scoring in ("balanced_accuracy", "balanced error", "balanced_error"):
        return Measure("balanced error", "balanced_accuracy", "Balanced error, as requested.")
    if isinstance(scoring, str) and scoring not in get_scorer_names():
        raise ValueError(
            f"scoring={scoring!r} is not a scikit-learn scorer. Pass a name such as "
            "'balanced_accuracy' or 'f1_macro', or a callable scorer(estimator, X, y)."
        )
    if isinstance(scoring, str) and scoring.startswith("neg_"):
        raise ValueError(
            f"scoring={scoring!r} is a negated loss, but the error is 1 minus the score. Pass a "
            "scorer whose best value is 1, such as 'f1_macro' or 'roc_auc_ovr'."
        )
    name = f"1 - {_name(scoring)}"
    measure = Measure(name, scoring, f"{name}, as requested.")
    _try(measure, classes, sample)
    return measure


def _name(scoring: Any) -> str:
    if isinstance(scoring, str):
        return scoring
    made = re.match(r"make_scorer\((\w+)", repr(scoring))
    return made[1] if made else getattr(scoring, "__name__", "score")


def _try(measure: Measure, classes: NDArray[Any], sample: tuple[Any, Indices] | None) -> None:
    """Raise unless the scorer returns 1 for perfect predictions."""
    X, codes = (None, np.repeat(np.arange(len(classes)), 2)) if sample is None else sample
    answers = _Answers(classes, codes, lambda: np.eye(len(classes))[codes])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score = measure._score(answers, X, classes[codes])
    except Exception as error:  # a custom scorer may raise any exception
        reason = " ".join(str(error).split()).replace("_Answers", "The nearest-neighbor classifier")
        raise ValueError(
            f"scoring={measure.scoring!r} failed for the {len(classes)} classes "
            f"{join_names(classes.tolist(), limit=5)}: {reason[:300].rstrip('.')}."
            f"{_advice(measure.scoring, classes)}"
        ) from error
    if not np.isclose(score, 1.0, atol=1e-6):
        raise ValueError(
            f"scoring={measure.scoring!r} returns {score:.4g} for perfect predictions, but the "
            "error is 1 minus the score. Pass a scorer whose best value is 1, such as 'f1_macro'."
        )


def _advice(scoring: Any, classes: NDArray[Any]) -> str:
    if not isinstance(scoring, str):
        return ""
    same = [f"{scoring}_macro", f"{scoring}_ovr"]
    known = next((name for name in same if name in get_scorer_names()), "f1_macro")
    if len(classes) == 2 and hasattr(classes[0], "lower"):
        return f" Pass scoring={known!r}, or make_scorer with pos_label={classes.tolist()[1]!r}."
    return f" Pass scoring={known!r}."


class _Answers(ClassifierMixin, BaseEstimator):
    """A classifier that returns stored predictions, so that any scorer can evaluate them."""

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
                f"the scorer requested predictions for {len(X)} rows, but they exist only for "
                f"all {len(self.predicted)} rows it received"
            )
