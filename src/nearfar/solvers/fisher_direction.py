"""Fisher's direction between two classes, and the intercepts that go with it."""

from __future__ import annotations

from math import log
from typing import Literal, NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.eigen import factor_definite

Bias = Literal["least_squares", "midpoint", "bayes", "literal"]


def fisher_direction(d: Vector, scatter: Matrix, tolerance: float = 1e-12) -> tuple[Vector, float]:
    r"""The maximiser of :math:`(w^T d)^2 / w^T S w`, and the ratio: :math:`w = S^{-1}d`.

    One Cholesky factorisation, O(L³). The length of w is that of the solution; w·d is the ratio.

    Parameters
    ----------
    d : ndarray of shape (L,)
        Difference of the means.
    scatter : ndarray of shape (L, L)
        Positive definite.
    tolerance : float, default=1e-12
        Where one over its condition number is no more, at unit diagonal, it is singular: a
        LinAlgError.

    Returns
    -------
    ndarray of shape (L,), float
    """
    R, scale = factor_definite(scatter, tolerance)
    w = linalg.cho_solve((R, False), d / scale, check_finite=False) / scale
    return w, float(w @ d)


class Scores(NamedTuple):
    """What is known of the scores w·x of two classes: weights, means, variances (divisor: weight).

    The positive class comes first.
    """

    weights: tuple[float, float]
    means: tuple[float, float]
    variances: tuple[float, float]


def scale_and_intercept(scores: Scores, bias: Bias, length: float) -> tuple[float, float]:
    r"""Factor a for w and intercept b, such that the rule is sign(a w·x + b).

    * "least_squares" regresses the labels ±1 on the scores;
    * "midpoint" cuts halfway between the class means;
    * "bayes" is the rule of two Gaussians of equal variance with the shares of the classes as
      priors;
    * "literal" is (4.50) of the thesis with w of unit length, with its wrong sign of the prior.

    Parameters
    ----------
    scores : Scores
        Of w as it is.
    bias : str
        Which.
    length : float
        The length of w.

    Returns
    -------
    float, float
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
    share = n_plus * n_minus / n**2
    if bias == "least_squares":
        total = within + share * gap**2
        a = 2 * share * gap / total
        return a, (n_plus - n_minus) / n - a * mean
    # Classes without spread: as good as certain on either side.
    a = gap / max(within, np.finfo(float).eps * gap**2)
    return a, -a * (m_plus + m_minus) / 2 + log(n_plus / n_minus)
