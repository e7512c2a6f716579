"""Linear classifiers of vectors with labels ±1, as returned by the learner of one tensor mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector


class Hyperplane(NamedTuple):
    """The classifier sign(w·z + b), with its objective.

    Parameters
    ----------
    w : ndarray of shape (n_features,)
        Normal vector.
    b : float
        Intercept.
    objective : float
        Value of the function that the learner minimizes or maximizes.
    gap : float
        Upper bound on the difference between the objective and the optimum.
    dual : ndarray of shape (n_samples,), optional
        Multipliers of the samples, if the learner computes multipliers.
    margin : float
        The margin rho of the nu-SVM, or 1 for learners with a fixed margin.
    collapsed : bool
        True if w is numerically zero. The samples then do not determine a direction.
    """

    w: Vector
    b: float
    objective: float
    gap: float = 0.0
    dual: Vector | None = None
    margin: float = 1.0
    collapsed: bool = False


#: Function that fits a hyperplane to projected samples of shape (n, L).
VectorLearner = Callable[[Matrix], Hyperplane]


def reduce_to_row_space(Z: Matrix) -> tuple[Matrix, Matrix | None]:
    """Return the rows in an orthonormal basis of their span, and the basis, of shape (L, n).

    If the penalty depends only on the length of w, the optimum is in the span of the rows. Then n
    coordinates suffice for n rows. If Z has no more features than rows, Z itself and None are
    returned.
    """
    n, L = Z.shape
    if n >= L:
        return Z, None
    basis, triangle = linalg.qr(Z.T, mode="economic", check_finite=False)
    return triangle.T, basis


def lift_to_features(basis: Matrix | None, w: Vector) -> Vector:
    """Map a vector from the coordinates of `reduce_to_row_space` back to the features."""
    return w if basis is None else basis @ w


def center_rows(Z: Matrix, weight: Vector | None = None) -> tuple[Matrix, Vector]:
    """Return the rows minus their (weighted) mean, and the mean."""
    mean = Z.mean(axis=0) if weight is None else weight @ Z / weight.sum()
    return Z - mean, np.asarray(mean)
