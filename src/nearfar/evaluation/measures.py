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

#: Maximum ratio of the largest to the smallest class size for which the default measure is the
#: error. For larger ratios, the default measure is the balanced error.
MAX_BALANCED_RATIO = 3.0


@dataclass(frozen=True)
class Measure:
    """An error to minimize: its name, its scikit-learn scorer, and a note for the report."""

    name: str
    scoring: Any
    note: str

    def compute_error(
        self,
        classes: NDArray[Any],
        true_codes: Indices,
        predicted_codes: Indices,
        get_probabilities: Callable[[], NDArray[np.float64]],
        X: Any = None,
    ) -> float:
        """Return the error of predicted class codes.

        ``get_probabilities`` returns class probabilities for scorers that need them. ``X`` contains
        the rows, which a custom scorer may use.
        """
        if self.scoring == "accuracy":
            return 1.0 - float(np.mean(true_codes == predicted_codes))
        if self.scoring == "balanced_accuracy":
            hits = np.bincount(true_codes, true_codes == predicted_codes, minlength=len(classes))
            totals = np.bincount(true_codes, minlength=len(classes))
            return 1.0 - float(np.mean(hits[totals > 0] / totals[totals > 0]))
        score = self._score(
            _StoredPredictions(classes, predicted_codes, get_probabilities), X, classes[true_codes]
        )
        if not np.isfinite(score):
            raise ValueError(
                f"scoring returned {score} on a fold of {len(true_codes)} rows; expected a finite "
                "number."
            )
        return 1.0 - score

    def _score(self, predictions: _StoredPredictions, X: Any, labels: NDArray[Any]) -> float:
        rows = np.zeros((len(labels), 1)) if X is None else X
        return float(check_scoring(predictions, scoring=self.scoring)(predictions, rows, labels))

    @property
    def is_mean_over_rows(self) -> bool:
        """True if the measure is a mean over rows, or the average of one such mean per class."""
        return self.scoring in ("accuracy", "balanced_accuracy")

    def format_error_expression(self, score_expression: str) -> str:
        """Return Python code that computes the error, given Python code that computes the score."""
        return f"1 - {score_expression}"


@dataclass(frozen=True)
class RelativeRMSE(Measure):
    """Root mean squared error divided by the standard deviation of the target.

    ``unit`` is this standard deviation (with divisor n), computed over the rows used for testing:
    the fixed test set if there is one, otherwise all rows. It is the same number for all folds and
    all methods. On these rows, predicting their mean gives a relative RMSE of 1.

    >>> y = np.array([1.0, 2.0, 3.0, 6.0])
    >>> measure = RelativeRMSE.from_targets(y)
    >>> round(float(measure.compute_relative_error(y, np.full(4, 3.0))), 12)
    1.0
    """

    unit: float = 1.0

    @classmethod
    def from_targets(cls, values: NDArray[np.float64], rows: str = "all rows") -> RelativeRMSE:
        """Return the measure for these target values.

        ``rows`` describes the rows of these values in the note, such as "all rows".
        """
        # Divide by the largest absolute value, so that squares neither overflow nor underflow.
        max_abs = float(np.abs(values).max()) or 1.0
        unit = float((values / max_abs).std()) * max_abs
        note = (
            "Relative RMSE: the root mean squared error of held-out rows divided by the standard "
            f"deviation of the target ({format_number(unit)} in {rows}). Predicting the mean of "
            f"{rows} would reach 100% on them."
        )
        return cls("relative RMSE", "neg_root_mean_squared_error", note, unit)

    def compute_relative_error(
        self, true_values: NDArray[np.float64], predicted_values: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the relative RMSE, or one value per column of ``predicted_values``."""
        residuals = (
            true_values if predicted_values.ndim == 1 else true_values[:, None]
        ) / self.unit
        residuals = residuals - predicted_values / self.unit
        return np.asarray(np.sqrt(np.mean(residuals**2, axis=0)))

    @property
    def is_mean_over_rows(self) -> bool:
        """Whether the measure is a mean over rows. To first order it is; see `compute_losses`."""
        return True

    def compute_losses(
        self, true_values: NDArray[np.float64], predicted_values: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return one loss per row. The mean of these losses is the relative RMSE.

        With r = sqrt(mean e²), the losses are r + (e² − r²) / 2r, a first-order expansion of the
        root. The variance of their mean therefore approximates the variance of r.

        >>> measure = RelativeRMSE("relative RMSE", "", "", 2.0)
        >>> measure.compute_losses(np.array([0.0, 0.0]), np.array([2.0, 6.0])).round(3).tolist()
        [1.342, 3.13]
        >>> round(float(np.mean([1.342, 3.13])), 3), round(float(np.sqrt(5)), 3)
        (2.236, 2.236)
        """
        squares = (true_values / self.unit - predicted_values / self.unit) ** 2
        rmse = float(np.sqrt(squares.mean()))
        return np.asarray((rmse**2 + squares) / (2 * rmse) if rmse > 0 else squares)

    def format_error_expression(self, score_expression: str) -> str:
        """Return Python code that computes the error, given Python code that computes the score."""
        return f"-{score_expression} / {self.unit!r}"


def choose_measure(
    scoring: Any,
    classes: NDArray[Any],
    counts: NDArray[np.intp],
    sample: tuple[Any, Indices] | None = None,
    *,
    noun: str = "row",
) -> Measure:
    """Return the requested measure, or the default measure for these class sizes.

    The default is the error, or the balanced error if the largest class has more than
    ``MAX_BALANCED_RATIO`` times as many rows as the smallest. A custom scorer is tried once on
    ``sample``, which has some rows of every class, so that a scorer that fails for these classes is
    rejected before any fit. ``noun`` is the noun for one row in messages.
    """
    if scoring is None:
        smallest_class, largest_class = int(counts.argmin()), int(counts.argmax())
        if counts[largest_class] > MAX_BALANCED_RATIO * counts[smallest_class]:
            return Measure(
                "balanced error",
                "balanced_accuracy",
                f"Balanced error (mean of the classes' own error rates), because the classes are "
                f"unbalanced: {classes[largest_class]} has {counts[largest_class]} {noun}s, "
                f"{classes[smallest_class]} has {counts[smallest_class]}.",
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
    name = f"1 - {_get_scorer_name(scoring)}"
    measure = Measure(name, scoring, f"{name}, as requested.")
    _check_scorer(measure, classes, sample)
    return measure


def _get_scorer_name(scoring: Any) -> str:
    if isinstance(scoring, str):
        return scoring
    match = re.match(r"make_scorer\((\w+)", repr(scoring))
    return match[1] if match else getattr(scoring, "__name__", "score")


def _check_scorer(
    measure: Measure, classes: NDArray[Any], sample: tuple[Any, Indices] | None
) -> None:
    """Raise unless the scorer returns 1 for perfect predictions."""
    X, codes = (None, np.repeat(np.arange(len(classes)), 2)) if sample is None else sample
    predictions = _StoredPredictions(classes, codes, lambda: np.eye(len(classes))[codes])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score = measure._score(predictions, X, classes[codes])
    except Exception as error:  # A custom scorer may raise any exception.
        reason = " ".join(str(error).split()).replace(
            "_StoredPredictions", "The nearest-neighbor classifier"
        )
        raise ValueError(
            f"scoring={measure.scoring!r} failed for the {len(classes)} classes "
            f"{join_names(classes.tolist(), limit=5)}: {reason[:300].rstrip('.')}."
            f"{_suggest_scorer(measure.scoring, classes)}"
        ) from error
    if not np.isclose(score, 1.0, atol=1e-6):
        raise ValueError(
            f"scoring={measure.scoring!r} returns {score:.4g} for perfect predictions, but the "
            "error is 1 minus the score. Pass a scorer whose best value is 1, such as 'f1_macro'."
        )


def _suggest_scorer(scoring: Any, classes: NDArray[Any]) -> str:
    if not isinstance(scoring, str):
        return ""
    candidates = [f"{scoring}_macro", f"{scoring}_ovr"]
    suggestion = next((name for name in candidates if name in get_scorer_names()), "f1_macro")
    if len(classes) == 2 and hasattr(classes[0], "lower"):
        return (
            f" Pass scoring={suggestion!r}, or make_scorer with pos_label={classes.tolist()[1]!r}."
        )
    return f" Pass scoring={suggestion!r}."


class _StoredPredictions(ClassifierMixin, BaseEstimator):
    """A classifier that returns stored predictions, so that any scorer can evaluate them."""

    def __init__(self, classes: Any, predicted: Any, get_probabilities: Any) -> None:
        self.classes, self.predicted, self.get_probabilities = classes, predicted, get_probabilities

    @property
    def classes_(self) -> NDArray[Any]:
        return np.asarray(self.classes)

    def fit(self, X: Any, y: Any = None) -> _StoredPredictions:
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        self._check_n_rows(X)
        return np.asarray(self.classes[self.predicted])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        self._check_n_rows(X)
        return np.asarray(self.get_probabilities())

    def _check_n_rows(self, X: Any) -> None:
        if len(X) != len(self.predicted):
            raise ValueError(
                f"the scorer requested predictions for {len(X)} rows, but predictions "
                f"exist only for the {len(self.predicted)} rows that it received"
            )
