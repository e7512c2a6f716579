"""By what Pareto discriminant analysis may compare subspaces: errors on rows, or drawn points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Matrix
from nearfar.blocks import row_blocks
from nearfar.discriminant.pareto_objectives import ClassObjectives
from nearfar.labels import encode_labels
from nearfar.neighbors.minimum_mahalanobis import MinimumMahalanobisClassifier

#: Points drawn, from all classes together, to compare the starts when there are no rows.
N_DRAWN = 10_000


def error_on_rows(
    gaussians: ClassObjectives, rows: NDArray[Any], y: Any, sample_weight: ArrayLike | None
) -> Callable[[Matrix], float]:
    """For U (r, q) the training error of the nearest class mean, each class with its own metric.

    The moments of the mapped classes are those of the statistics: rows are only mapped.
    """
    statistics = gaussians.statistics
    classes, codes = encode_labels(y)
    labels = classes[codes]
    weight = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, float)

    def error(U: Matrix) -> float:
        mapping = gaussians.basis @ U
        rule = MinimumMahalanobisClassifier.from_statistics(statistics.project(mapping))
        wrong = np.empty(len(labels), dtype=bool)
        for block in row_blocks(len(labels), 8 * rows.shape[1], at_most=8192):
            wrong[block] = rule.predict(rows[block] @ mapping) != labels[block]
        return float(weight @ wrong / weight.sum())

    return error


def error_on_samples(
    gaussians: ClassObjectives, q: int, random: np.random.RandomState
) -> Callable[[Matrix], float]:
    """The same for points drawn from the class Gaussians, classes weighted by their shares."""
    statistics = gaussians.statistics
    c = statistics.n_classes
    drawn = random.normal(size=(max(100, N_DRAWN // c), q))
    shares = statistics.weights / statistics.total_weight

    def error(U: Matrix) -> float:
        rule = MinimumMahalanobisClassifier.from_statistics(statistics.project(gaussians.basis @ U))
        # Of a projected Gaussian, points can be drawn in q dimensions.
        factors = gaussians.family.project(U).factors
        wrong = np.empty(c)
        for k, label in enumerate(rule.classes_):
            wrong[k] = np.mean(rule.predict(rule.means_[k] + drawn @ factors[k].T) != label)
        return float(shares @ wrong)

    return error
