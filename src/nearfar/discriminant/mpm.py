"""Minimax probability machine: the linear classifier with the best worst-case accuracy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import (
    MULTI_CLASS,
    MultiClass,
    RidgeMode,
    check_each_problem,
    unwrap_single,
)
from nearfar.discriminant.two_classes import Sides, TwoSidedClassifier
from nearfar.parameters import one_of, real
from nearfar.solvers.hyperplanes import Hyperplane
from nearfar.solvers.minimax_probability import compute_worst_case_accuracy, find_minimax_direction
from nearfar.state import State, number
from nearfar.summaries.class_statistics import ClassStatistics


class MPM(TwoSidedClassifier):
    r"""Minimax probability machine: linear classifier with the largest worst-case accuracy.

    The worst case is taken over all distributions that have the means :math:`m_\pm` and
    covariances :math:`\Sigma_\pm` of the two classes:

    .. math:: \max_{w, b}\; \min_\pm\; \inf_{x \sim (m_\pm, \Sigma_\pm)}
        P\{\pm(w^T x + b) \ge 0\} = \frac{\kappa^2}{1 + \kappa^2}, \qquad
        \frac1\kappa = \min_{w^T(m_+ - m_-) = 1} \sqrt{w^T\Sigma_+ w} + \sqrt{w^T\Sigma_- w} .

    :math:`\kappa` is the distance of both means from the boundary in standard deviations. The
    minimum is found by one generalized eigenproblem and the root of one equation.

    Use it for classes with different covariances. The worst-case accuracy holds for the true means
    and covariances, so with estimated ones it is only approximate. The ridge matters: without it
    and with few rows, :math:`\kappa` is infinite and the direction arbitrary.

    Cost: one pass of O(n p²), then O(p³) per problem. With fewer rows than features O(n² p),
    without any p×p matrix.

    Parameters
    ----------
    ridge : float, default=0.1
        Value added to the variances: ``ridge`` is added to the diagonals of both covariances. With
        0, ``fit`` raises an error if both covariances are singular. Values from 0.3 to 1 are
        slightly better with fewer samples than features, and worse with many samples.
    ridge_mode : {"relative", "absolute"}, default="relative"
        Unit of ``ridge``: the mean within-class variance of a feature ("relative"), or the squared
        unit of X ("absolute").
    multi_class : {"ovo", "ovr"}, default="ovo"
        Strategy for more than two classes: "ovo" solves one problem per pair of classes and takes a
        vote. "ovr" solves one problem per class against all other classes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Normal vectors of the hyperplanes, with :math:`w^T(m_+ - m_-) = 1`. With two classes, there
        is one problem, and the second class is on the positive side.
    intercept_ : ndarray of shape (n_problems,)
        Intercepts.
    kappa_ : float or list of float
        Value of :math:`\kappa` for each problem, also available as ``objective_``. It is 0 if the
        class means are equal.
    worst_case_accuracy_ : float or list of float
        Worst-case accuracy :math:`\kappa^2 / (1 + \kappa^2)` of each problem.
    statistics_ : ClassStatistics
        Means and scatters of the training rows.

    See Also
    --------
    FDA, LDA, MinimumMahalanobisClassifier

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.2.
       Its equation (4.42) prints the intercept with the opposite sign.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from nearfar import MPM
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> machine = MPM().fit(X[::2], y[::2])
    >>> round(machine.worst_case_accuracy_, 2), round(machine.score(X[1::2], y[1::2]), 2)
    (0.62, 0.89)
    """

    learner_tags = LearnerTags(reads="statistics", role="classifier")
    state = State(
        {
            "kappa_": check_each_problem(number(0)),
            "worst_case_accuracy_": check_each_problem(number(0, 1)),
        }
    )
    parameters: ClassVar = {
        "ridge": [real(0)],
        "ridge_mode": [one_of("relative", "absolute")],
        **MULTI_CLASS,
    }

    kappa_: float | list[float]
    worst_case_accuracy_: float | list[float]

    def __init__(
        self,
        ridge: float = 0.1,
        *,
        ridge_mode: RidgeMode = "relative",
        multi_class: MultiClass = "ovo",
    ) -> None:
        self.ridge = ridge
        self.ridge_mode = ridge_mode
        self.multi_class = multi_class

    def _learn_from(self, statistics: ClassStatistics) -> None:
        super()._learn_from(statistics)
        self.kappa_ = self.objective_
        kappas = np.atleast_1d(self.objective_)
        self.worst_case_accuracy_ = unwrap_single(
            [compute_worst_case_accuracy(kappa) for kappa in kappas]
        )

    def _solve_sides(self, sides: Sides) -> Hyperplane:
        rho = sides.compute_ridge(self.ridge, self.ridge_mode)
        ridge = np.diag(np.full(len(sides.difference), rho))
        solution = find_minimax_direction(
            sides.difference,
            sides.positive.covariance + ridge,
            sides.negative.covariance + ridge,
            sides.tolerance,
        )
        b = solution.kappa * solution.deviations[0] - solution.w @ sides.positive.mean
        return Hyperplane(solution.w, float(b), solution.kappa)
