r"""Projections onto convex sets, and the algorithms built on them.

The projection :math:`P_C(p)` is the point of a closed convex set :math:`C` nearest to :math:`p`.
It brings p nearer to every point of the set: for :math:`q \in C`

.. math:: \|p - q\|^2 \ge \|p - P_C(p)\|^2 + \|P_C(p) - q\|^2 .

Projecting onto several sets in turn therefore converges to a point in their intersection: to an
arbitrary one (:func:`alternating_projection`) or, with Dykstra's corrections, to the nearest one
(:func:`dykstra`). With gradient steps in between, a convex function is minimized over the
intersection (:func:`gradient_alternating_projection`). Points may be vectors, with the Euclidean
norm, or matrices, with the Frobenius norm.

References
----------
.. [1] K. Q. Weinberger, "Metric learning with convex optimization", PhD thesis, University of
   Pennsylvania, 2007, section 1.3.4.
.. [2] E. G. Birgin and M. Raydan, "Robust stopping criteria for Dykstra's algorithm", SIAM Journal
   on Scientific Computing 26, 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.solvers.eigen import descending_eigh, fix_signs

Projection = Callable[[Matrix], Matrix]

# Fraction of the largest eigenvalue below which an eigenvalue is treated as zero.
_RANK_TOLERANCE = 1e-12


class ProjectionResult(NamedTuple):
    """Result of a projection algorithm: the last or the best point, and how the algorithm ended.

    ``converged`` is True if the algorithm stopped by ``tol``, not by ``max_iter``. ``violation`` is
    the largest distance of the point from one of the sets. If ``violation`` is not small after many
    rounds, the sets may have no common point.
    """

    point: Matrix
    n_iter: int
    converged: bool
    violation: float


def project_psd(M: ArrayLike) -> Matrix:
    """Return the positive semi-definite matrix nearest to ``M`` in Frobenius norm.

    Its eigenvalues are those of the symmetric part of ``M``, with negative ones set to 0. The
    result is exactly symmetric.

    Examples
    --------
    >>> project_psd([[1, 0], [0, -2]])
    array([[1., 0.],
           [0., 0.]])
    """
    values, vectors = descending_eigh(_check_square(M))
    n_positive = int(np.searchsorted(-values, 0.0))
    nearest = (vectors[:, :n_positive] * values[:n_positive]) @ vectors[:, :n_positive].T
    return np.asarray((nearest + nearest.T) / 2)


def psd_factor(M: ArrayLike) -> Matrix:
    """Return L such that ``L.T @ L`` is the positive semi-definite matrix nearest to ``M``.

    The rows of L are the eigenvectors times the square roots of their eigenvalues: orthogonal, with
    the longest first. Eigenvalues below 1e-12 times the largest count as 0 and have no row.

    Examples
    --------
    >>> psd_factor([[4, 0], [0, 0]])
    array([[2., 0.]])
    """
    values, vectors = descending_eigh(_check_square(M))
    mask = (values > 0) & (values >= _RANK_TOLERANCE * values[0])
    return fix_signs(np.sqrt(values[mask])[:, None] * vectors[:, mask].T)


def project_halfspace(p: ArrayLike, w: ArrayLike, c: float) -> Matrix:
    """Return the point of ``{x : w'x <= c}`` nearest to ``p``.

    If ``p`` is in the set, the result is ``p``.

    For matrices the product is ``trace(w.T @ x)``.

    Examples
    --------
    >>> project_halfspace([3.0, 1.0], [1.0, 0.0], 2.0)
    array([2., 1.])
    """
    point, normal = _check_point_and_normal(p, w)
    excess = float(np.vdot(normal, point)) - c
    return point - (excess / np.vdot(normal, normal)) * normal if excess > 0 else point


def project_hyperplane(p: ArrayLike, w: ArrayLike, c: float) -> Matrix:
    """Return the point of ``{x : w'x = c}`` nearest to ``p``.

    For matrices the product is ``trace(w.T @ x)``.

    Examples
    --------
    >>> project_hyperplane([1.0, 1.0], [1.0, 0.0], 2.0)
    array([2., 1.])
    """
    point, normal = _check_point_and_normal(p, w)
    excess = float(np.vdot(normal, point)) - c
    return np.asarray(point - (excess / np.vdot(normal, normal)) * normal)


def alternating_projection(
    p: ArrayLike, projections: Sequence[Projection], *, tol: float = 1e-10, max_iter: int = 1000
) -> ProjectionResult:
    """Find a common point of convex sets by projecting onto them in turn.

    The algorithm stops after a round in which neither the round as a whole nor any of its
    projections moved the point by more than ``tol``. The first condition alone is not sufficient:
    if the sets have no common point, the projections cycle between the nearest points of the sets,
    and a round as a whole does not move the point. In that case the algorithm stops at
    ``max_iter``, and ``violation`` is not small.

    Examples
    --------
    >>> from functools import partial
    >>> left = partial(project_halfspace, w=np.array([1.0, 0.0]), c=1.0)
    >>> low = partial(project_halfspace, w=np.array([0.0, 1.0]), c=1.0)
    >>> alternating_projection([3.0, 2.0], [left, low]).point
    array([1., 1.])
    """
    return _project_in_rounds(p, projections, tol, max_iter, uses_corrections=False)


def dykstra(
    p: ArrayLike, projections: Sequence[Projection], *, tol: float = 1e-10, max_iter: int = 1000
) -> ProjectionResult:
    """Find the common point of convex sets nearest to ``p`` by Dykstra's algorithm.

    As :func:`alternating_projection`, but the change made by the last projection onto a set, its
    correction, is undone before the next projection onto that set. The stopping rule is the same,
    where the move of a projection is the change of its correction. A round may leave the point in
    place while corrections still grow, and the algorithm then continues.

    Examples
    --------
    >>> from functools import partial
    >>> left = partial(project_halfspace, w=np.array([1.0, 0.0]), c=0.0)
    >>> below = partial(project_halfspace, w=np.array([1.0, 1.0]), c=0.0)
    >>> alternating_projection([1.0, 0.5], [below, left]).point
    array([ 0.  , -0.25])
    >>> dykstra([1.0, 0.5], [below, left]).point.round(6) + 0.0
    array([0., 0.])
    """
    return _project_in_rounds(p, projections, tol, max_iter, uses_corrections=True)


def gradient_alternating_projection(
    p: ArrayLike,
    projections: Sequence[Projection],
    gradient: Callable[[Matrix], Matrix],
    *,
    step: float,
    tol: float = 1e-8,
    max_iter: int = 1000,
    objective: Callable[[Matrix], float] | None = None,
) -> ProjectionResult:
    r"""Minimize a convex function over the intersection of convex sets.

    The algorithm alternates a step along the negative gradient (or a subgradient) with one round of
    projections. With a constant step it would only reach a neighborhood of the optimum, so step t
    has length :math:`step / \sqrt t`. A good first step is about the inverse of the curvature. The
    algorithm stops when a step and its round together move the point by at most ``tol``. A point
    within this distance of every set counts as feasible.

    If ``objective`` is passed, the result is the feasible iterate with the lowest objective.
    Otherwise it is the last iterate. The last iterate is projected onto the intersection first,
    since the rounds only approach it.

    Examples
    --------
    The point of the unit simplex nearest to (2, 1):

    >>> from functools import partial
    >>> total = partial(project_hyperplane, w=np.ones(2), c=1.0)
    >>> positive = partial(np.maximum, 0.0)
    >>> result = gradient_alternating_projection(
    ...     np.zeros(2), [total, positive], lambda p: p - np.array([2.0, 1.0]), step=0.5
    ... )
    >>> result.point.round(4)
    array([1., 0.])
    """
    if not step > 0:
        raise ValueError(f"step must be a number above 0; got {step!r}.")
    point = _check_start(p, max_iter)
    best, best_value = None, np.inf
    converged, n_iter = False, 0
    while not converged and n_iter < max_iter:
        n_iter += 1
        old = point
        point = point - step / np.sqrt(n_iter) * gradient(point)
        for projection in projections:
            point = projection(point)
        converged = _distance(point, old) <= tol
        if objective is not None:
            value = objective(point)
            # Measuring the violation takes another round of projections. Measure it only if the
            # value is the best so far.
            if value < best_value and _measure_violation(point, projections) <= tol:
                best, best_value = point, value
    # Among all feasible points, the one nearest to the last iterate changes the value least.
    point = dykstra(point, projections, tol=tol, max_iter=max_iter).point
    if objective is not None and best is not None and best_value <= objective(point):
        point = best
    return ProjectionResult(point, n_iter, converged, _measure_violation(point, projections))


def _project_in_rounds(
    p: ArrayLike,
    projections: Sequence[Projection],
    tol: float,
    max_iter: int,
    *,
    uses_corrections: bool,
) -> ProjectionResult:
    point = _check_start(p, max_iter)
    corrections = [np.zeros_like(point) for _ in projections]
    converged, n_iter = False, 0
    while not converged and n_iter < max_iter:
        n_iter += 1
        start, largest_move = point, 0.0
        for index, projection in enumerate(projections):
            old, shifted = point, point + corrections[index]
            point = projection(shifted)
            if uses_corrections:
                corrections[index] = shifted - point
            largest_move = max(largest_move, _distance(point, old))
        converged = max(largest_move, _distance(point, start)) <= tol
    return ProjectionResult(point, n_iter, converged, _measure_violation(point, projections))


def _measure_violation(p: Matrix, projections: Sequence[Projection]) -> float:
    """Return the distance of p from the set that is farthest away."""
    return max((_distance(projection(p), p) for projection in projections), default=0.0)


def _distance(p: Matrix, q: Matrix) -> float:
    return float(np.linalg.norm(p - q))


def _check_start(p: ArrayLike, max_iter: int) -> Matrix:
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1; got {max_iter!r}.")
    point = np.array(p, dtype=np.float64)
    if not np.isfinite(point).all():
        raise ValueError("p contains NaN or infinite values. Pass a finite point to start from.")
    return point


def _check_square(M: ArrayLike) -> Matrix:
    matrix = np.asarray(M, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"M must be a square matrix; got an array of shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("M contains NaN or infinite values. Pass a finite matrix.")
    return matrix


def _check_point_and_normal(p: ArrayLike, w: ArrayLike) -> tuple[Matrix, Matrix]:
    point, normal = np.asarray(p, dtype=np.float64), np.asarray(w, dtype=np.float64)
    if point.shape != normal.shape:
        raise ValueError(f"p and w must have the same shape; got {point.shape} and {normal.shape}.")
    if not normal.any():
        raise ValueError("w is zero, but a normal vector must be nonzero.")
    return point, normal
