"""Base class of linear classifiers that use only the means and covariances of two classes."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base import StatisticsEstimator
from nearfar.base.linear_classifier import (
    LinearClassifier,
    RidgeMode,
    TwoClassProblem,
    check_each_problem,
    two_class_problems,
    unwrap_single,
)
from nearfar.discriminant.checks import check_classes
from nearfar.notices import warn
from nearfar.solvers.hyperplanes import Hyperplane
from nearfar.state import State, number
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import find_total_range, get_rank_tolerance


class Side(NamedTuple):
    """Weight, mean and covariance of the classes on one side of a two-class problem.

    The divisor of the covariance is the weight.
    """

    weight: float
    mean: Vector
    covariance: Matrix


class Sides(NamedTuple):
    """Both sides of a two-class problem, restricted to the directions in which the samples vary.

    Eigenvalues of the covariances count as zero if they are below ``tolerance`` times the largest.
    """

    negative: Side
    positive: Side
    n_features: int
    tolerance: float

    @property
    def difference(self) -> Vector:
        """Difference of the means. It is exactly zero if the means are equal up to rounding."""
        d = self.positive.mean - self.negative.mean
        level = max(np.abs(self.positive.mean).max(), np.abs(self.negative.mean).max())
        return d if np.abs(d).max() > 16 * np.finfo(float).eps * level else np.zeros_like(d)

    def compute_ridge(self, ridge: float, mode: RidgeMode) -> float:
        """Return the value to add to the variances.

        With mode "relative", ``ridge`` is a multiple of the mean within-class variance.
        """
        if mode == "absolute":
            return ridge
        sides = self.negative, self.positive
        total = sum(side.weight for side in sides)
        within = sum(side.weight * float(np.trace(side.covariance)) for side in sides) / total
        gap = float(self.difference @ self.difference)
        between = sides[0].weight * sides[1].weight / total**2 * gap
        # If each class has only one sample, the within-class variance is zero. Use the variance
        # between the classes.
        level = within if within > 1e-14 * between else between
        return ridge * level / self.n_features


class TwoSidedClassifier(StatisticsEstimator, LinearClassifier):
    """Linear classifier that uses the means and covariances of both sides of a two-class problem.

    With fewer samples than features, each problem is solved in the span of the samples, which
    contains the optimum of any criterion with a ridge.
    """

    state = State({"objective_": check_each_problem(number())})
    pooled_statistics = False
    ridge: float
    objective_: float | list[float]

    @abstractmethod
    def _solve_sides(self, sides: Sides) -> Hyperplane:
        """Return the hyperplane for a two-class problem. The means of both sides must differ."""

    def _learn_from(self, statistics: ClassStatistics) -> None:
        check_classes(type(self).__name__, statistics.classes)
        problems = two_class_problems(statistics.n_classes, self.multi_class)
        planes = [self._solve_problem(statistics, problem) for problem in problems]
        self.classes_ = statistics.classes
        self.coef_ = np.array([plane.w for plane in planes])
        self.intercept_ = np.array([plane.b for plane in planes])
        self.objective_ = unwrap_single([plane.objective for plane in planes])

    def _solve_problem(self, statistics: ClassStatistics, problem: TwoClassProblem) -> Hyperplane:
        is_member = np.isin(np.arange(statistics.n_classes), problem.negative + problem.positive)
        subset = statistics if is_member.all() else statistics.select(is_member)
        positions = np.cumsum(is_member) - 1
        if not subset.varying_features().any():
            return self._make_majority_plane(subset, problem, positions)
        B, image = find_total_range(subset, standardize=False)
        negative, positive = (
            _summarize_side(image, positions[list(codes)].tolist()) for codes in problem
        )
        n_varying = int(subset.varying_features().sum())
        sides = Sides(negative, positive, n_varying, get_rank_tolerance(subset))
        if not sides.difference.any():
            return self._make_majority_plane(subset, problem, positions)
        try:
            plane = self._solve_sides(sides)
        except linalg.LinAlgError as error:
            raise ValueError(
                f"{type(self).__name__}: with ridge={self.ridge:g} the covariances are singular, "
                "because X has too few rows or linearly dependent features. Use a larger ridge."
            ) from error
        return plane._replace(w=B @ plane.w)

    def _make_majority_plane(
        self, statistics: ClassStatistics, problem: TwoClassProblem, positions: Indices
    ) -> Hyperplane:
        """Return a hyperplane that assigns all samples to the side with the larger weight.

        Ties go to the negative side.
        """
        warn(
            f"{type(self).__name__}: two classes have the same mean and cannot be separated by a "
            "hyperplane. All samples are assigned to the larger class."
        )
        negative, positive = (statistics.weights[positions[list(codes)]].sum() for codes in problem)
        b = 1.0 if positive > negative else -1.0
        return Hyperplane(np.zeros(statistics.n_features), b, 0.0)

    def _check_rows_of(self, X: ArrayLike) -> Matrix:
        return np.asarray(self._check_X(X, reset=False), dtype=np.float64)


def _summarize_side(statistics: ClassStatistics, codes: list[int]) -> Side:
    """Return the joint weight, mean and covariance of several classes."""
    weights, means, labels = statistics.weights, statistics.means, statistics.classes.tolist()
    weight = float(weights[codes].sum())
    # Subtract one of the means, so that a large common offset does not cause cancellation.
    offsets = means[codes] - means[codes[0]]
    mean = weights[codes] @ offsets / weight
    rows = np.sqrt(weights[codes])[:, None] * (offsets - mean)
    scatter = rows.T @ rows
    for k in codes:
        scatter += statistics.scatter(labels[k])
    return Side(weight, means[codes[0]] + mean, scatter / weight)
