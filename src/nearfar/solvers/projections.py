r"""Projections onto convex sets, and the algorithms built on them.

The projection :math:`P_C(p)` is the point of a closed convex set :math:`C` nearest to :math:`p`.
It brings p nearer to every point of the set: for :math:`q \in C`

.. math:: \|p - q\|^2 \ge \|p - P_C(p)\|^2 + \|P_C(p) - q\|^2 .

So projecting onto several sets in turn leads into their intersection, to some point of it
(:func:`alternating_projection`) or, with Dykstra's corrections, to the nearest one
(:func:`dykstra`); with gradient steps in between it minimises a convex function over the
intersection (:func:`gradient_alternating_projection`). Points may be vectors or matrices; norms
are Euclidean and Frobenius.

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

# Eigenvalues below this share of the largest are rounding, not rank.
_RANK_TOLERANCE = 1e-12


class Projected(NamedTuple):
    """Where an algorithm ended: at the last point, or the best one found.

    ``converged`` says whether it stopped by ``tol`` and not by ``max_iter``. ``violation`` is the
    largest distance of the point from one of the sets; not small after many rounds, the sets have
    perhaps no common point.
    """

    point: Matrix
    n_iter: int
    converged: bool
    violation: float


def project_psd(M: ArrayLike) -> Matrix:
    """The positive semi-definite matrix nearest to ``M`` in Frobenius norm, exactly symmetric.

    Its eigenvalues are those of the symmetric part of ``M``, the negative ones set to 0.

    Examples
    --------
    >>> project_psd([[1, 0], [0, -2]])
    array([[1., 0.],
           [0., 0.]])
    """
    values, vectors = descending_eigh(_square(M))
    kept = int(np.searchsorted(-values, 0.0))
    nearest = (vectors[:, :kept] * values[:kept]) @ vectors[:, :kept].T
    return np.asarray((nearest + nearest.T) / 2)


def psd_factor(M: ArrayLike) -> Matrix:
    """L with ``L.T @ L`` the positive semi-definite matrix nearest to ``M``.

    Its rows are orthogonal, the longest first: the eigenvectors times the square roots of their
    eigenvalues. Eigenvalues below 1e-12 of the largest count as 0 and give no row.

    Examples
    --------
    >>> psd_factor([[4, 0], [0, 0]])
    array([[2., 0.]])
    """
    values, vectors = descending_eigh(_square(M))
    kept = (values > 0) & (values >= _RANK_TOLERANCE * values[0])
    return fix_signs(np.sqrt(values[kept])[:, None] * vectors[:, kept].T)


def project_halfspace(p: ArrayLike, w: ArrayLike, c: float) -> Matrix:
    """The point of ``{x : w'x <= c}`` nearest to ``p``; ``p`` itself if it is one.

    Of matrices the product is ``trace(w.T @ x)``.

    Examples
    --------
    >>> project_halfspace([3.0, 1.0], [1.0, 0.0], 2.0)
    array([2., 1.])
    """
    point, normal = _point_and_normal(p, w)
    excess = float(np.vdot(normal, point)) - c
    return point - (excess / np.vdot(normal, normal)) * normal if excess > 0 else point


def project_hyperplane(p: ArrayLike, w: ArrayLike, c: float) -> Matrix:
    """The point of ``{x : w'x = c}`` nearest to ``p``; products as in :func:`project_halfspace`.

    Examples
    --------
    >>> project_hyperplane([1.0, 1.0], [1.0, 0.0], 2.0)
    array([2., 1.])
    """
    point, normal = _point_and_normal(p, w)
    excess = float(np.vdot(normal, point)) - c
    return np.asarray(point - (excess / np.vdot(normal, normal)) * normal)


def alternating_projection(
    p: ArrayLike, projections: Sequence[Projection], *, tol: float = 1e-10, max_iter: int = 1000
) -> Projected:
    """Some common point of convex sets, by projecting onto one after the other.

    It ends after a full round in which neither the round nor any projection of it moved the point
    by more than ``tol``. The round alone does not tell: if the sets have no common point, the
    rounds settle into a cycle between their nearest points and move nothing. That case ends at
    ``max_iter``, with the ``violation`` that remains.

    Examples
    --------
    >>> from functools import partial
    >>> left = partial(project_halfspace, w=np.array([1.0, 0.0]), c=1.0)
    >>> low = partial(project_halfspace, w=np.array([0.0, 1.0]), c=1.0)
    >>> alternating_projection([3.0, 2.0], [left, low]).point
    array([1., 1.])
    """
    return _in_rounds(p, projections, tol, max_iter, corrected=False)


def dykstra(
    p: ArrayLike, projections: Sequence[Projection], *, tol: float = 1e-10, max_iter: int = 1000
) -> Projected:
    """The common point of convex sets nearest to ``p``: Dykstra's algorithm.

    As :func:`alternating_projection`, but before a set is projected onto again, what its last
    projection took away is given back. The rule for stopping is the same; here the move of a
    projection is the change of its correction, and a round may stand still while corrections still
    grow, which is no end either.

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
    return _in_rounds(p, projections, tol, max_iter, corrected=True)


def gradient_alternating_projection(
    p: ArrayLike,
    projections: Sequence[Projection],
    gradient: Callable[[Matrix], Matrix],
    *,
    step: float,
    tol: float = 1e-8,
    max_iter: int = 1000,
    objective: Callable[[Matrix], float] | None = None,
) -> Projected:
    r"""Minimise a convex function over the intersection of convex sets.

    A step against the gradient, or a subgradient, then one round of projections, again and again.
    With a constant step this only reaches a neighbourhood of the optimum, so step t has length
    :math:`step / \sqrt t`; the first is best about the inverse of the curvature. It ends when a
    step and its round together move the point by at most ``tol``; within this distance of every set
    a point counts as feasible.

    With an ``objective`` the best feasible point met is returned, else the last, which has been
    projected onto the intersection, as the rounds in between only approach it.

    Examples
    --------
    The point of the unit simplex nearest to (2, 1):

    >>> from functools import partial
    >>> total = partial(project_hyperplane, w=np.ones(2), c=1.0)
    >>> positive = partial(np.maximum, 0.0)
    >>> found = gradient_alternating_projection(
    ...     np.zeros(2), [total, positive], lambda p: p - np.array([2.0, 1.0]), step=0.5
    ... )
    >>> found.point.round(4)
    array([1., 0.])
    """
    if not step > 0:
        raise ValueError(f"step must be a number above 0; got {step!r}.")
    point = _start(p, max_iter)
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
            # Measuring the violation costs a second round: only where the value is the best.
            if value < best_value and _violation(point, projections) <= tol:
                best, best_value = point, value
    # From the last iterate to the nearest feasible point: the value changes least.
    point = dykstra(point, projections, tol=tol, max_iter=max_iter).point
    if objective is not None and best is not None and best_value <= objective(point):
        point = best
    return Projected(point, n_iter, converged, _violation(point, projections))


def _in_rounds(
    p: ArrayLike, projections: Sequence[Projection], tol: float, max_iter: int, *, corrected: bool
) -> Projected:
    point = _start(p, max_iter)
    corrections = [np.zeros_like(point) for _ in projections]
    converged, n_iter = False, 0
    while not converged and n_iter < max_iter:
        n_iter += 1
        start, largest_move = point, 0.0
        for index, projection in enumerate(projections):
            old, shifted = point, point + corrections[index]
            point = projection(shifted)
            if corrected:
                corrections[index] = shifted - point
            largest_move = max(largest_move, _distance(point, old))
        converged = max(largest_move, _distance(point, start)) <= tol
    return Projected(point, n_iter, converged, _violation(point, projections))


def _violation(p: Matrix, projections: Sequence[Projection]) -> float:
    """The largest distance from one of the sets."""
    return max((_distance(projection(p), p) for projection in projections), default=0.0)


def _distance(p: Matrix, q: Matrix) -> float:
    return float(np.linalg.norm(p - q))


def _start(p: ArrayLike, max_iter: int) -> Matrix:
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1; got {max_iter!r}.")
    point = np.array(p, dtype=np.float64)
    if not np.isfinite(point).all():
        raise ValueError("p holds NaN or infinite values; give a finite point to start from.")
    return point


def _square(M: ArrayLike) -> Matrix:
    matrix = np.asarray(M, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"M must be a square matrix; got an array of shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("M holds NaN or infinite values; give a finite matrix.")
    return matrix


def _point_and_normal(p: ArrayLike, w: ArrayLike) -> tuple[Matrix, Matrix]:
    point, normal = np.asarray(p, dtype=np.float64), np.asarray(w, dtype=np.float64)
    if point.shape != normal.shape:
        raise ValueError(f"p and w must have the same shape; got {point.shape} and {normal.shape}.")
    if not normal.any():
        raise ValueError("w is zero, which bounds nothing; give a normal that is not.")
    return point, normal
