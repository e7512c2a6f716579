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

#: Total number of random points on which the starts are compared if no training rows are in memory.
N_SAMPLES = 10_000


def make_row_error(
    gaussians: ClassObjectives, rows: NDArray[Any], y: Any, sample_weight: ArrayLike | None
) -> Callable[[Matrix], float]:
    """Return a function that computes the training error after projection onto a subspace U (r, q).

    The error is that of MinimumMahalanobisClassifier. It is fitted from the projected statistics,
    so the rows are only used to predict.
    """
    statistics = gaussians.statistics
    classes, codes = encode_labels(y)
    labels = classes[codes]
    weight = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, float)

    def compute_error(U: Matrix) -> float:
        projection = gaussians.basis @ U
        classifier = MinimumMahalanobisClassifier.from_statistics(statistics.project(projection))
        is_wrong = np.empty(len(labels), dtype=bool)
        for block in split_rows(len(labels), 8 * rows.shape[1], max_rows=8192):
            is_wrong[block] = classifier.predict(rows[block] @ projection) != labels[block]
        return float(weight @ is_wrong / weight.sum())

    return compute_error


def make_sample_error(
    gaussians: ClassObjectives, q: int, random: np.random.RandomState
) -> Callable[[Matrix], float]:
    """Return a function that computes the error on random points in a subspace U (r, q).

    The points are drawn from the class Gaussians. The errors of the classes are weighted by the
    class frequencies.
    """
    statistics = gaussians.statistics
    c = statistics.n_classes
    normal_samples = random.normal(size=(max(100, N_SAMPLES // c), q))
    priors = statistics.weights / statistics.total_weight

    def compute_error(U: Matrix) -> float:
        classifier = MinimumMahalanobisClassifier.from_statistics(
            statistics.project(gaussians.basis @ U)
        )
        # A projection of a Gaussian is Gaussian, so the points are drawn directly in q dimensions.
        factors = gaussians.family.project(U).factors
        error_rates = np.empty(c)
        for k, label in enumerate(classifier.classes_):
            error_rates[k] = np.mean(
                classifier.predict(classifier.means_[k] + normal_samples @ factors[k].T) != label
            )
        return float(priors @ error_rates)

    return compute_error
