"""Fisher's discriminant of two classes, with an intercept."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MULTI_CLASS, MultiClass, RidgeMode
from nearfar.discriminant.two_classes import Sides, TwoSidedClassifier
from nearfar.parameters import one_of, real
from nearfar.solvers.fisher_direction import Bias, Scores, fisher_direction, scale_and_intercept
from nearfar.solvers.hyperplanes import Hyperplane


class FDA(TwoSidedClassifier):
    r"""Fisher discriminant analysis as a classifier: a direction and an intercept.

    .. math:: \max_w\; \frac{(w^T (m_+ - m_-))^2}{w^T (S_t + n \rho I) w}, \qquad
        w \propto (S_t + n \rho I)^{-1} (m_+ - m_-),

    with the total scatter :math:`S_t` (that within classes gives the same direction) and the ridge
    :math:`\rho`. With the intercept "least_squares" and without a ridge it is the regression of
    labels ±1.

    Use it as a fast baseline of two classes, on features of one unit or standardised ones, since
    the ridge is one for all; :class:`LDA` is the map that goes with it.

    Cost: one pass of O(n p²), then O(p³) for each problem; with fewer rows than features O(n² p),
    and no p×p matrix.

    Parameters
    ----------
    ridge : float, default=0.1
        What is added to variances: :math:`\rho`. 0 raises where the total scatter is singular in
        the span of the rows; a thousandth errs far more near as many samples as features.
    ridge_mode : {"relative", "absolute"}, default="relative"
        The unit of ``ridge``: the mean variance of a feature within the two classes, or that of X
        squared.
    bias : {"least_squares", "midpoint", "bayes", "literal"}, default="least_squares"
        How the intercept is chosen: by the regression of labels ±1 on the scores, halfway between
        the class means, by the rule of Bayes for scores that are Gaussian with one variance, or as
        (4.50) of [1] prints it for w of unit length: with the wrong sign of the prior, for
        comparison only.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Which problems of two sides are solved for more than two classes: all pairs, which vote, or
        each class against the rest.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Normal vectors; with two classes there is one problem, whose positive side is the second.
    intercept_ : ndarray of shape (n_problems,)
        Intercepts.
    objective_ : float or list of float
        The largest ratio; for several problems a list; 0 where the means are the same.
    statistics_ : ClassStatistics
        Means and scatters of the training rows.

    See Also
    --------
    LDA, MPM

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.3. It
       calls the total scatter that within classes.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nearfar import FDA
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> rule = make_pipeline(StandardScaler(), FDA()).fit(X[::2], y[::2])
    >>> round(rule.score(X[1::2], y[1::2]), 2)
    0.93
    """

    learner_tags = LearnerTags(reads="statistics", role="classifier")
    parameters: ClassVar = {
        "ridge": [real(0)],
        "ridge_mode": [one_of("relative", "absolute")],
        "bias": [one_of("least_squares", "midpoint", "bayes", "literal")],
        **MULTI_CLASS,
    }

    def __init__(
        self,
        ridge: float = 0.1,
        *,
        ridge_mode: RidgeMode = "relative",
        bias: Bias = "least_squares",
        multi_class: MultiClass = "ovo",
    ) -> None:
        self.ridge = ridge
        self.ridge_mode = ridge_mode
        self.bias = bias
        self.multi_class = multi_class

    def _between(self, sides: Sides) -> Hyperplane:
        d, (negative, positive) = sides.difference, sides[:2]
        n = negative.weight + positive.weight
        share = negative.weight * positive.weight / n**2
        within = (negative.weight * negative.covariance + positive.weight * positive.covariance) / n
        total = within + share * np.outer(d, d)
        total.flat[:: len(d) + 1] += sides.ridge(self.ridge, self.ridge_mode)
        w, ratio = fisher_direction(d, total, sides.tolerance)
        scores = Scores(
            (positive.weight, negative.weight),
            (float(w @ positive.mean), float(w @ negative.mean)),
            (float(w @ positive.covariance @ w), float(w @ negative.covariance @ w)),
        )
        a, b = scale_and_intercept(scores, self.bias, float(np.linalg.norm(w)))
        return Hyperplane(a * w, b, ratio / n)
