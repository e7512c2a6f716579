"""Errors by which Pareto discriminant analysis compares subspaces, on rows or on drawn points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Matrix
from nearfar.blocks import split_rows
from nearfar.discriminant.pareto_objectives import ClassObjectives
from nearfar.labels import encode_labels
from nearfar.neighbors.minimum_mahalanobis import MinimumMahalanobisClassifier

#: Number of points, over all classes, drawn to compare the starts if no rows are in memory.
N_DRAWN = 10_000


def error_on_rows(
    gaussians: ClassObjectives, rows: NDArray[Any], y: Any, sample_weight: ArrayLike | None
) -> Callable[[Matrix], float]:
    """Return a function of U (r, q): the training error of MinimumMahalanobisClassifier.

    The classifier is fitted from the projected statistics, so the rows are only used to predict.
    """
    statistics = gaussians.statistics
    classes, codes = encode_labels(y)
    labels = classes[codes]
    weight = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, float)

    def error(U: Matrix) -> float:
        mapping = gaussians.basis @ U
        rule = MinimumMahalanobisClassifier.from_statistics(statistics.project(mapping))
        wrong = np.empty(len(labels), dtype=bool)
        for block in split_rows(len(labels), 8 * rows.shape[1], max_rows=8192):
            wrong[block] = rule.predict(rows[block] @ mapping) != labels[block]
        return float(weight @ wrong / weight.sum())

    return error


def error_on_samples(
    gaussians: ClassObjectives, q: int, random: np.random.RandomState
) -> Callable[[Matrix], float]:
    """Return a function of U (r, q): the error on points drawn from the class Gaussians.

    The errors of the classes are weighted by their frequencies.
    """
    statistics = gaussians.statistics
    c = statistics.n_classes
    drawn = random.normal(size=(max(100, N_DRAWN // c), q))
    shares = statistics.weights / statistics.total_weight

    def error(U: Matrix) -> float:
        rule = MinimumMahalanobisClassifier.from_statistics(statistics.project(gaussians.basis @ U))
        # A projected Gaussian is a Gaussian, so points are drawn directly in q dimensions.
        factors = gaussians.family.project(U).factors
        wrong = np.empty(c)
        for k, label in enumerate(rule.classes_):
            wrong[k] = np.mean(rule.predict(rule.means_[k] + drawn @ factors[k].T) != label)
        return float(shares @ wrong)

    return error
