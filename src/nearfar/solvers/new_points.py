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

# Factor by which the barrier parameter decreases in each round.
_FALL = 0.2
# Last value of the barrier parameter, in units of squared distances. The first value is 1.
_LAST = 1e-11


def place_by_program(neighbors: Matrix, squared: Matrix) -> Matrix:
    """Compute coordinates (n_queries, r) of new points by solving a convex program.

    The relative accuracy is about 1e-9.

    ``neighbors`` are the coordinates (n_queries, k, r) of each query's neighbors, ``squared`` the
    squared distances to them. With k > r neighbors in general position and distances that can be
    met, the result is exact.

    Examples
    --------
    >>> neighbors = np.array([[[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]])
    >>> place_by_program(neighbors, np.array([[2.0, 2.0, 2.0]])).round(6)
    array([[1., 1.]])
    """
    n, k, r = neighbors.shape
    coordinates = np.empty((n, r))
    for block in split_rows(n, 8 * (4 * k * (r + 1) + 4 * (r + 1) ** 2), max_rows=4096):
        coordinates[block] = _solve_program(neighbors[block], squared[block])
    return coordinates


def place_by_stress(
    coordinates: Matrix, neighbors: Matrix, squared: Matrix, max_iter: int = 100
) -> Matrix:
    """Move new points to a local minimum of the stress near the given coordinates.

    The method is Levenberg-Marquardt.

    Examples
    --------
    >>> neighbors = np.array([[[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]])
    >>> place_by_stress(np.array([[0.7, 0.8]]), neighbors, np.array([[2.0, 2.0, 2.0]])).round(6)
    array([[1., 1.]])
    """
    center, size = _choose_frame(neighbors, squared)
    neighbors = (neighbors - center[:, None]) / size[:, None, None]
    y, squared = (coordinates - center) / size[:, None], squared / size[:, None] ** 2
    damping = np.full(len(y), 1e-3)
    delta, residuals, stress = _evaluate_stress(y, neighbors, squared)
    for _ in range(max_iter):
        gradient = 4 * np.einsum("qk,qkr->qr", residuals, delta)
        if np.abs(gradient).max(initial=0.0) <= 1e-14:
            break
        H = 8 * delta.transpose(0, 2, 1) @ delta
        diagonal = np.arange(y.shape[1])
        H[:, diagonal, diagonal] += (np.maximum(4 * residuals.sum(axis=1), 0.0) + damping)[:, None]
        trial = y - np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
        new_delta, new_residuals, new_stress = _evaluate_stress(trial, neighbors, squared)
        better = new_stress <= stress
        y = np.where(better[:, None], trial, y)
        delta = np.where(better[:, None, None], new_delta, delta)
        residuals = np.where(better[:, None], new_residuals, residuals)
        stress = np.where(better, new_stress, stress)
        damping = np.where(better, np.maximum(damping / 5, 1e-12), damping * 5)
    return np.asarray(y * size[:, None] + center)


def _evaluate_stress(
    y: Matrix, neighbors: Matrix, squared: Matrix
) -> tuple[Matrix, Matrix, Matrix]:
    delta = y[:, None] - neighbors
    residuals = np.einsum("qkr,qkr->qk", delta, delta) - squared
    return delta, residuals, np.einsum("qk,qk->q", residuals, residuals)


def _choose_frame(neighbors: Matrix, squared: Matrix) -> tuple[Matrix, Matrix]:
    """Return the mean of each query's neighbors, and a typical length to be used as the unit."""
    center = neighbors.mean(axis=1)
    spread = neighbors - center[:, None]
    size = np.sqrt(squared.mean(axis=1) + np.einsum("qkr,qkr->qk", spread, spread).mean(axis=1))
    return center, np.where(size > 0, size, 1.0)


def _solve_program(neighbors: Matrix, squared: Matrix) -> Matrix:
    """Solve the convex program of all queries together by an interior-point method.

    The barrier for t ≥ |ξ|, minimized over t, is the smooth function
    φ(ξ) = t - μ log(t² - ξ²) with t = μ + √(μ² + ξ²), φ' = ξ / t, φ'' = μ / (t √(μ² + ξ²)).
    """
    center, size = _choose_frame(neighbors, squared)
    neighbors = (neighbors - center[:, None]) / size[:, None, None]
    squared = squared / size[:, None] ** 2
    n, k, r = neighbors.shape
    A = np.concatenate([-2 * neighbors, np.ones((n, k, 1))], axis=2)
    b = squared - np.einsum("qkr,qkr->qk", neighbors, neighbors)
    x = np.zeros((n, r + 1))
    x[:, r] = 1.0  # The last unknown is s, the bound of the squared norm.
    cost = np.zeros(r + 1)
    cost[r] = 1.0

    def measure_gap(x: Matrix) -> Matrix:
        return np.asarray(x[:, r] - np.einsum("qr,qr->q", x[:, :r], x[:, :r]))

    def evaluate(x: Matrix, mu: float) -> Matrix:
        gap = measure_gap(x)
        slack = np.einsum("qkr,qr->qk", A, x) - b
        t = mu + np.sqrt(mu**2 + slack**2)
        with np.errstate(invalid="ignore", divide="ignore"):
            total = x[:, r] + (t - mu * np.log(2 * mu * t)).sum(axis=1) - mu * np.log(gap)
        return np.where(gap > 0, total, np.inf)

    mu = 1.0
    while mu >= _LAST:
        for _ in range(30):
            gap = measure_gap(x)
            slack = np.einsum("qkr,qr->qk", A, x) - b
            root = np.sqrt(mu**2 + slack**2)
            t = mu + root
            g = np.concatenate([-2 * x[:, :r], np.ones((n, 1))], axis=1)  # Gradient of `gap`.
            gradient = cost + np.einsum("qk,qkr->qr", slack / t, A) - (mu / gap)[:, None] * g
            H = (A * (mu / (t * root))[:, :, None]).transpose(0, 2, 1) @ A
            H += (mu / gap**2)[:, None, None] * g[:, :, None] * g[:, None, :]
            diagonal = np.arange(r)
            H[:, diagonal, diagonal] += (2 * mu / gap)[:, None]
            # If neighbors lie on a line, rounding hides the curvature orthogonal to the line. Add a
            # ridge.
            diagonal = np.arange(r + 1)
            H[:, diagonal, diagonal] += 1e-13 * np.trace(H, axis1=1, axis2=2)[:, None]
            step = -np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
            decrement = -np.einsum("qr,qr->q", gradient, step)
            moving = decrement > 1e-6 * mu
            if not moving.any():
                break
            before = evaluate(x, mu)
            length = np.ones(n)
            for _ in range(40):
                too_long = moving & ~(
                    evaluate(x + length[:, None] * step, mu) <= before - 0.1 * length * decrement
                )
                if not too_long.any():
                    break
                length = np.where(too_long, length / 2, length)
            length = np.where(moving & ~too_long, length, 0.0)
            if not length.any():
                break
            x = x + length[:, None] * step
        mu *= _FALL
    return np.asarray(x[:, :r] * size[:, None] + center)
