"""By what Pareto discriminant analysis compares subspaces and ridges: errors on rows, or drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Mask, Matrix
from nearfar.blocks import row_blocks
from nearfar.discriminant.pareto_objectives import ClassObjectives, Pairing, class_objectives
from nearfar.labels import encode_labels
from nearfar.neighbors.minimum_mahalanobis import MinimumMahalanobisClassifier
from nearfar.summaries.class_statistics import ClassStatistics

#: Points drawn, from all classes together, to compare the starts when there are no rows.
N_DRAWN = 10_000
# One row of so many is left out.
_PARTS = 4


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


def left_out(
    rows: NDArray[Any],
    y: Any,
    sample_weight: ArrayLike | None,
    pairing: Pairing,
    n_principal: int | None,
    seed: int,
) -> tuple[ClassObjectives, Callable[[Matrix], float]] | None:
    """The objectives of three quarters of the rows, and the error on the others; None if too few.

    Their ridge is for the caller to give, and no error depends on it.
    """
    classes, codes = encode_labels(y)
    weight = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, float)
    out = left_out_rows(codes, seed)
    if not weight[out].any():
        return None
    kept = ClassStatistics().add(rows[~out], classes, codes[~out], weight[~out])
    gaussians = class_objectives(kept, pairing, 1.0, n_principal, at_most=True)
    return gaussians, error_on_rows(gaussians, rows[out], classes[codes[out]], weight[out])


def left_out_rows(codes: Indices, seed: int) -> Mask:
    """One row of four of each class, drawn alike in all of them: their order does not matter.

    >>> left_out_rows(np.repeat([0, 1], [8, 3]), 0).sum()
    np.int64(2)
    """
    out = np.zeros(len(codes), dtype=bool)
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        drawn = np.random.RandomState(seed).permutation(len(members))
        out[members[drawn[: len(members) // _PARTS]]] = True
    return out
