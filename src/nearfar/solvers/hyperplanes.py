"""Linear classifiers of vectors with labels of ±1: what a learner of one mode must return."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector


class Hyperplane(NamedTuple):
    """The rule sign(w·z + b), with what it is worth.

    Parameters
    ----------
    w : ndarray of shape (n_features,)
        Normal vector.
    b : float
        Intercept.
    objective : float
        What the learner minimises or maximises.
    gap : float
        How far from its optimum the objective may be.
    dual : ndarray of shape (n_samples,), optional
        Multipliers of the samples, where the learner has them.
    margin : float
        rho of the nu-SVM; 1 where the margin is no unknown.
    collapsed : bool
        Whether w is zero but for rounding: there is no direction to be had from these samples.
    """

    w: Vector
    b: float
    objective: float
    gap: float = 0.0
    dual: Vector | None = None
    margin: float = 1.0
    collapsed: bool = False


#: A learner of vectors: from the projected samples, (n, L), to its hyperplane.
VectorLearner = Callable[[Matrix], Hyperplane]


def row_space(Z: Matrix) -> tuple[Matrix, Matrix | None]:
    """Coordinates of the rows in an orthonormal basis of their span, where that is smaller.

    Whatever penalises only the length of w has its optimum in the span of the rows, so that n
    coordinates do for n rows of more features. Returns the coordinates and the basis (L, n), or Z
    itself and None.
    """
    n, L = Z.shape
    if n >= L:
        return Z, None
    basis, triangle = linalg.qr(Z.T, mode="economic", check_finite=False)
    return triangle.T, basis


def lifted(basis: Matrix | None, w: Vector) -> Vector:
    """A vector of the coordinates of `row_space` among the features."""
    return w if basis is None else basis @ w


def about_mean(Z: Matrix, weight: Vector | None = None) -> tuple[Matrix, Vector]:
    """Rows about their (weighted) mean, which is second."""
    mean = Z.mean(axis=0) if weight is None else weight @ Z / weight.sum()
    return Z - mean, np.asarray(mean)
