r"""Placement of new points by their distances to points with known coordinates, in batches.

Given coordinates :math:`y_i` and squared distances :math:`d_i`, find a point y with

.. math:: \|y_i\|^2 - 2 y_i^T y + s = d_i , \qquad s = \|y\|^2 .

:func:`place_by_program` solves the convex problem

.. math:: \min_{y, s} \sum_i | \|y_i\|^2 - 2 y_i^T y + s - d_i | + s , \qquad s \ge \|y\|^2 .

This is the semidefinite program of maximum variance unfolding for new points, with its r × r block
fixed to the identity (Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section
3.1.10, fixes only the diagonal, which gives wrong coordinates). The last term pulls towards the
origin, which is therefore placed at the mean of the known points. If all distances can be met, the
solution meets them. :func:`place_by_stress` descends from given coordinates to a local minimum of
:math:`\sum_i (\|y - y_i\|^2 - d_i)^2`.
"""

from __future__ import annotations

import numpy as np

from nearfar.arrays import Matrix
from nearfar.blocks import split_rows

# The barrier parameter decreases from 1 to _LAST by this factor, in units of squared distances.
_FALL = 0.2
_LAST = 1e-11


def place_by_program(known: Matrix, squared: Matrix) -> Matrix:
    """Return coordinates (n_queries, r) by the convex program, to about 1e-9 of its optimum.

    ``known`` are the coordinates (n_queries, k, r) of each query's neighbors, ``squared`` the
    squared distances to them. With k > r neighbors in general position and distances that can be
    met, the result is exact.

    Examples
    --------
    >>> known = np.array([[[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]])
    >>> place_by_program(known, np.array([[2.0, 2.0, 2.0]])).round(6)
    array([[1., 1.]])
    """
    n, k, r = known.shape
    places = np.empty((n, r))
    for block in split_rows(n, 8 * (4 * k * (r + 1) + 4 * (r + 1) ** 2), max_rows=4096):
        places[block] = _program(known[block], squared[block])
    return places


def place_by_stress(places: Matrix, known: Matrix, squared: Matrix, max_iter: int = 100) -> Matrix:
    """Return the local minimum of the stress next to given places, by Levenberg-Marquardt.

    Examples
    --------
    >>> known = np.array([[[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]])
    >>> place_by_stress(np.array([[0.7, 0.8]]), known, np.array([[2.0, 2.0, 2.0]])).round(6)
    array([[1., 1.]])
    """
    middle, size = _frame(known, squared)
    known = (known - middle[:, None]) / size[:, None, None]
    y, squared = (places - middle) / size[:, None], squared / size[:, None] ** 2
    damping = np.full(len(y), 1e-3)
    delta, left, stress = _stress(y, known, squared)
    for _ in range(max_iter):
        gradient = 4 * np.einsum("qk,qkr->qr", left, delta)
        if np.abs(gradient).max(initial=0.0) <= 1e-14:
            break
        H = 8 * delta.transpose(0, 2, 1) @ delta
        own = np.arange(y.shape[1])
        H[:, own, own] += (np.maximum(4 * left.sum(axis=1), 0.0) + damping)[:, None]
        trial = y - np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
        new_delta, new_left, new_stress = _stress(trial, known, squared)
        better = new_stress <= stress
        y = np.where(better[:, None], trial, y)
        delta = np.where(better[:, None, None], new_delta, delta)
        left = np.where(better[:, None], new_left, left)
        stress = np.where(better, new_stress, stress)
        damping = np.where(better, np.maximum(damping / 5, 1e-12), damping * 5)
    return np.asarray(y * size[:, None] + middle)


def _stress(y: Matrix, known: Matrix, squared: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    delta = y[:, None] - known
    left = np.einsum("qkr,qkr->qk", delta, delta) - squared
    return delta, left, np.einsum("qk,qk->q", left, left)


def _frame(known: Matrix, squared: Matrix) -> tuple[Matrix, Matrix]:
    """Return the mean of the known points, and a typical length as the unit."""
    middle = known.mean(axis=1)
    spread = known - middle[:, None]
    size = np.sqrt(squared.mean(axis=1) + np.einsum("qkr,qkr->qk", spread, spread).mean(axis=1))
    return middle, np.where(size > 0, size, 1.0)


def _program(known: Matrix, squared: Matrix) -> Matrix:
    """Follow the central path by Newton's method, for all queries together.

    The barrier for t ≥ |ξ|, minimized over t, is the smooth function
    φ(ξ) = t - μ log(t² - ξ²) with t = μ + √(μ² + ξ²), φ' = ξ / t, φ'' = μ / (t √(μ² + ξ²)).
    """
    middle, size = _frame(known, squared)
    known = (known - middle[:, None]) / size[:, None, None]
    squared = squared / size[:, None] ** 2
    n, k, r = known.shape
    A = np.concatenate([-2 * known, np.ones((n, k, 1))], axis=2)
    b = squared - np.einsum("qkr,qkr->qk", known, known)
    x = np.zeros((n, r + 1))
    x[:, r] = 1.0  # s
    cost = np.zeros(r + 1)
    cost[r] = 1.0

    def inside(x: Matrix) -> Matrix:
        return np.asarray(x[:, r] - np.einsum("qr,qr->q", x[:, :r], x[:, :r]))

    def value(x: Matrix, mu: float) -> Matrix:
        room = inside(x)
        slack = np.einsum("qkr,qr->qk", A, x) - b
        t = mu + np.sqrt(mu**2 + slack**2)
        with np.errstate(invalid="ignore", divide="ignore"):
            total = x[:, r] + (t - mu * np.log(2 * mu * t)).sum(axis=1) - mu * np.log(room)
        return np.where(room > 0, total, np.inf)

    mu = 1.0
    while mu >= _LAST:
        for _ in range(30):
            room = inside(x)
            slack = np.einsum("qkr,qr->qk", A, x) - b
            root = np.sqrt(mu**2 + slack**2)
            t = mu + root
            g = np.concatenate([-2 * x[:, :r], np.ones((n, 1))], axis=1)  # gradient of `room`
            gradient = cost + np.einsum("qk,qkr->qr", slack / t, A) - (mu / room)[:, None] * g
            H = (A * (mu / (t * root))[:, :, None]).transpose(0, 2, 1) @ A
            H += (mu / room**2)[:, None, None] * g[:, :, None] * g[:, None, :]
            own = np.arange(r)
            H[:, own, own] += (2 * mu / room)[:, None]
            # If neighbors lie on a line, the Hessian across it is below rounding: add a ridge.
            own = np.arange(r + 1)
            H[:, own, own] += 1e-13 * np.trace(H, axis1=1, axis2=2)[:, None]
            step = -np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
            decrement = -np.einsum("qr,qr->q", gradient, step)
            moving = decrement > 1e-6 * mu
            if not moving.any():
                break
            before = value(x, mu)
            length = np.ones(n)
            for _ in range(40):
                short = moving & ~(
                    value(x + length[:, None] * step, mu) <= before - 0.1 * length * decrement
                )
                if not short.any():
                    break
                length = np.where(short, length / 2, length)
            length = np.where(moving & ~short, length, 0.0)
            if not length.any():
                break
            x = x + length[:, None] * step
        mu *= _FALL
    return np.asarray(x[:, :r] * size[:, None] + middle)
