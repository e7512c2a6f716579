"""Fisher's direction between two classes, and intercepts for it."""

from __future__ import annotations

from math import log
from typing import Literal, NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.eigen import factor_definite

Bias = Literal["least_squares", "midpoint", "bayes", "literal"]


def find_fisher_direction(
    d: Vector, scatter: Matrix, tolerance: float = 1e-12
) -> tuple[Vector, float]:
    r"""Return the w that maximizes :math:`(w^T d)^2 / w^T S w`, and the maximum.

    The maximizer is :math:`w = S^{-1}d`. It is not normalized, so that w·d is the maximum of the
    ratio. The cost is one Cholesky factorization, O(L³).

    Parameters
    ----------
    d : ndarray of shape (L,)
        Difference of the class means.
    scatter : ndarray of shape (L, L)
        Positive definite within-class scatter S.
    tolerance : float, default=1e-12
        Reciprocal condition number up to which the scatter is treated as singular. The scatter is
        scaled to unit diagonal first. A singular scatter raises LinAlgError.

    Returns
    -------
    ndarray of shape (L,), float
        The direction w and the maximum of the ratio.
    """
    R, scale = factor_definite(scatter, tolerance)
    w = linalg.cho_solve((R, False), d / scale, check_finite=False) / scale
    ratio = float(w @ d)
    if d.any() and ratio * ratio == 0:
        raise ValueError("ridge is too large: the weights underflow to zero. Use a smaller ridge.")
    return w, ratio


class Scores(NamedTuple):
    """Statistics of the scores w·x of two classes: weights, means and variances.

    The positive class comes first. The divisor of a variance is the weight of the class.
    """

    weights: tuple[float, float]
    means: tuple[float, float]
    variances: tuple[float, float]


def compute_scale_and_intercept(scores: Scores, bias: Bias, length: float) -> tuple[float, float]:
    r"""Return a factor a for w and an intercept b of the classifier sign(a w·x + b).

    Parameters
    ----------
    scores : Scores
        Statistics of the scores w·x, where w is not normalized.
    bias : {"least_squares", "midpoint", "bayes", "literal"}
        Rule for the intercept. See Notes.
    length : float
        The length of w.

    Returns
    -------
    float, float
        The factor a and the intercept b.

    Notes
    -----
    * "least_squares" regresses the labels ±1 on the scores;
    * "midpoint" places the threshold halfway between the class means;
    * "bayes" is the Bayes classifier of two Gaussians of equal variance, with the class fractions
      as priors;
    * "literal" is equation (4.50) of the thesis for w of unit length, with its wrong sign of the
      prior.
    """
    (n_plus, n_minus), (m_plus, m_minus) = scores.weights, scores.means
    n = n_plus + n_minus
    mean = (n_plus * m_plus + n_minus * m_minus) / n
    within = (n_plus * scores.variances[0] + n_minus * scores.variances[1]) / n
    gap = m_plus - m_minus
    if bias == "midpoint":
        return 1.0, -(m_plus + m_minus) / 2
    if bias == "literal":
        return 1 / length, (n_minus - n_plus) / n - mean / length
    class_product = n_plus * n_minus / n**2
    if bias == "least_squares":
        total = within + class_product * gap**2
        a = 2 * class_product * gap / total
        return a, (n_plus - n_minus) / n - a * mean
    # If the classes have no variance, use a large slope, so that posteriors are close to 0 or 1.
    a = gap / max(within, np.finfo(float).eps * gap**2)
    return a, -a * (m_plus + m_minus) / 2 + log(n_plus / n_minus)
