"""Fisher discriminant analysis as a linear classifier with an intercept."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nearfar.base import LearnerTags
from nearfar.base.linear_classifier import MULTI_CLASS, MultiClass, RidgeMode
from nearfar.discriminant.two_classes import Sides, TwoSidedClassifier
from nearfar.parameters import one_of, real
from nearfar.solvers.fisher_direction import (
    Bias,
    Scores,
    compute_scale_and_intercept,
    find_fisher_direction,
)
from nearfar.solvers.hyperplanes import Hyperplane


class FDA(TwoSidedClassifier):
    r"""Fisher discriminant analysis as a linear classifier.

    .. math:: \max_w\; \frac{(w^T (m_+ - m_-))^2}{w^T (S_t + n \rho I) w}, \qquad
        w \propto (S_t + n \rho I)^{-1} (m_+ - m_-),

    with the total scatter :math:`S_t` (the within-class scatter gives the same direction) and the
    ridge :math:`\rho`. With ``bias="least_squares"`` and without a ridge, it is the least-squares
    regression of labels ±1.

    Use it as a fast two-class baseline. Standardize the features unless they share a unit, since
    the ridge is the same for all. :class:`LDA` is the corresponding transformer.

    Cost: one pass of O(n p²), then O(p³) per problem. With fewer rows than features O(n² p),
    without any p×p matrix.

    Parameters
    ----------
    ridge : float, default=0.1
        Value added to the variances: the ridge :math:`\rho`. With 0, ``fit`` raises an error if the
        total scatter is singular within the span of the rows. If n_samples is close to n_features,
        the classification error is much larger with ``ridge=0.001`` than with the default.
    ridge_mode : {"relative", "absolute"}, default="relative"
        Unit of ``ridge``: the mean within-class variance of a feature ("relative"), or the squared
        unit of X ("absolute").
    bias : {"least_squares", "midpoint", "bayes", "literal"}, default="least_squares"
        How the intercept is chosen: by regression of the labels ±1 on the scores ("least_squares"),
        at the midpoint of the class means ("midpoint"), by the Bayes rule for Gaussian scores of
        equal variance ("bayes"), or as printed in [1]_ ("literal", for comparison only, see Notes).
    multi_class : {"ovo", "ovr"}, default="ovo"
        Strategy for more than two classes: "ovo" solves one problem per pair of classes and takes a
        vote. "ovr" solves one problem per class against all other classes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Normal vectors of the hyperplanes. With two classes, there is one problem, and the second
        class is on the positive side.
    intercept_ : ndarray of shape (n_problems,)
        Intercepts.
    objective_ : float or list of float
        Maximum of the ratio above, one number per problem. It is 0 if the class means are equal.
    statistics_ : ClassStatistics
        Means and scatters of the training rows.

    See Also
    --------
    LDA, MPM

    Notes
    -----
    ``bias="literal"`` is equation (4.50) of [1]_ for w of unit length, which has the wrong sign of
    the prior.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.3.3. It
       calls the total scatter the within-class scatter.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from nearfar import FDA
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> classifier = make_pipeline(StandardScaler(), FDA()).fit(X[::2], y[::2])
    >>> round(classifier.score(X[1::2], y[1::2]), 2)
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

    def _solve_sides(self, sides: Sides) -> Hyperplane:
        d, (negative, positive) = sides.difference, sides[:2]
        n = negative.weight + positive.weight
        class_product = negative.weight * positive.weight / n**2
        within = (negative.weight * negative.covariance + positive.weight * positive.covariance) / n
        total = within + class_product * np.outer(d, d)
        total.flat[:: len(d) + 1] += sides.compute_ridge(self.ridge, self.ridge_mode)
        w, ratio = find_fisher_direction(d, total, sides.tolerance)
        scores = Scores(
            (positive.weight, negative.weight),
            (float(w @ positive.mean), float(w @ negative.mean)),
            (float(w @ positive.covariance @ w), float(w @ negative.covariance @ w)),
        )
        a, b = compute_scale_and_intercept(scores, self.bias, float(np.linalg.norm(w)))
        return Hyperplane(a * w, b, ratio / n)
