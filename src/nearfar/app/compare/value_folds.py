"""Where the target is a number: what neighbors say of it, and how far off that is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.compare.folds import Answers, Predictions, Problem
from nearfar.arrays import Indices, Vector
from nearfar.evaluation.measures import RelativeRMSE
from nearfar.neighbors.knn_regressor import KNNRegressor

#: Parts of the target that a sample has in equal shares.
PARTS = 10


@dataclass
class ValueProblem(Problem):
    """Rows with a number each; the k nearest say their mean.

    ``codes`` are parts of the target by size, which only say how rows are drawn.
    """

    measure: RelativeRMSE
    values: Vector = field(default_factory=lambda: np.empty(0))
    voter: type = KNNRegressor
    drawn_by: str = "by the size of the target"
    codes_of_y: str = "drawing_codes({y})"
    stratified: bool = False

    def labels(self, rows: Indices) -> NDArray[Any]:
        """The values of some rows."""
        return np.asarray(self.values[rows])

    def answers(self, found: Any) -> NDArray[Any]:
        """What was predicted for some rows, as numbers."""
        numbers = np.asarray(found, np.float64)
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise ValueError("predict gave something else than a finite number for each row.")
        return numbers

    def answers_by_k(self, neighbors: Indices) -> Answers:
        """Means of the first k neighbors."""
        values = self.values[neighbors]
        # About the first, so that k equal values have exactly their mean.
        first = values[:, :1]
        sums = np.cumsum(values - first, axis=1)
        means = first + sums / np.arange(1, values.shape[1] + 1)
        return Answers(means, _no_shares, None)

    def errors_by_k(self, predictions: Predictions, test: Indices) -> NDArray[np.float64]:
        """The relative RMSE for each k."""
        return self.measure.compute_relative_error(self.values[test], predictions.codes)


def _no_shares(column: int) -> NDArray[np.float64]:
    raise NotImplementedError("Numbers have no shares of votes.")


def drawing_codes(values: Any) -> Indices:
    """The tenth of the values that each is in, by size; equal values are in one.

    >>> np.bincount(drawing_codes(np.arange(100.0) ** 2)).tolist()
    [10, 10, 10, 10, 10, 10, 10, 10, 10, 10]
    >>> drawing_codes([1.0, 1.0, 5.0]).tolist()
    [0, 0, 1]
    """
    numbers = np.asarray(values, np.float64)
    cuts = np.unique(np.quantile(numbers, np.arange(1, PARTS) / PARTS, method="inverted_cdf"))
    parts = np.searchsorted(cuts, numbers, side="left")
    return np.unique(parts, return_inverse=True)[1].astype(np.intp)
