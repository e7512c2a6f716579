"""All factors of a weight tensor at once, under smoothed hinges; how stationary a point is."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear, minimize

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.alternating_modes import CPWeights, contracted, cp_weights

#: Widths of the smoothed corner of the hinge, one after the other.
CORNER_WIDTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)
# Samples that are so far beyond their margin are left out of steps, if few enough stay.
_BEYOND = 0.3
_SPARES = 0.8


class JointPoint(NamedTuple):
    """Weights and intercept, and the objective (with true hinges) after each width."""

    weights: CPWeights
    b: float
    objectives: list[float]


def descend_jointly(
    X: Matrix,
    y: Vector,
    cost: Vector,
    start: CPWeights,
    b: float,
    *,
    widths: Sequence[float] = CORNER_WIDTHS,
    max_iter: int = 200,
) -> JointPoint:
    r"""A stationary point of the support tensor machine.

    .. math:: \min_{W, b}\; \tfrac12\|W\|^2 + \sum_i c_i (1 - y_i(\langle X_i, W\rangle + b))_+

    All factors move at once, by L-BFGS, with the corner of the hinge rounded over a width that
    shrinks: alternation over modes stalls at corners that no single mode can leave.

    A step is two products with the n × d matrix of the samples, whatever the rank: the scores, and
    the gradient by the tensor, of which those by the factors are contractions.

    Parameters
    ----------
    X : ndarray of shape (n, d1, ..., dM)
        Samples.
    y, cost : ndarray of shape (n,)
        Labels ±1, and costs of the hinges.
    start : CPWeights
        Where to start; its rank stays.
    b : float
        The intercept there.
    widths : sequence of float
        Of the corner.
    max_iter : int
        Most steps for each width.

    Returns
    -------
    JointPoint
        With factors of equal length in all modes.
    """
    flat = X.reshape(len(X), -1)
    center = cost @ flat / cost.sum()
    deviation = _spread(flat, center)
    # Unknowns of order one: the tensor times the size of the samples, the intercept at the centre.
    unit = deviation ** (1 / len(start.factors))
    problem = SmoothedHinges(flat, y, cost, center, deviation, start)
    point = np.concatenate([(U * unit).ravel() for U in start.balanced()] + [[0.0]])
    point[-1] = b + center @ start.tensor().ravel()
    objectives = []
    for width in widths:
        near = problem.near(point, max(2 * width, _BEYOND)) if width < 1 else problem
        found = minimize(
            near.value_and_gradient,
            point,
            args=(width,),
            jac=True,
            method="L-BFGS-B",
            # The last must be a stationary point; those before only lead to it.
            options={
                "maxiter": max_iter,
                "ftol": 1e-14 if width == widths[-1] else 1e-8,
                "gtol": 1e-9,
                "maxcor": 20,
            },
        )
        point = found.x
        objectives.append(problem.value(point))
    factors = [U / unit for U in problem.factors(point)]
    weights = cp_weights(factors)
    return JointPoint(weights, float(point[-1] - center @ weights.tensor().ravel()), objectives)


class SmoothedHinges:
    """The objective of scaled factors and the intercept at the centre, as one vector."""

    def __init__(
        self,
        flat: Matrix,
        y: Vector,
        cost: Vector,
        center: Vector,
        deviation: float,
        start: CPWeights,
    ) -> None:
        self.flat, self.y, self.cost = flat, y, cost
        self.center, self.deviation = center, deviation
        self.shapes = [U.shape for U in start.factors]
        # In units of the costs of all samples, so that tolerances mean something.
        self.level = float(cost.sum())

    def factors(self, point: Vector) -> list[Matrix]:
        """The factors that a vector of unknowns holds."""
        parts, first = [], 0
        for shape in self.shapes:
            size = shape[0] * shape[1]
            parts.append(point[first : first + size].reshape(shape))
            first += size
        return parts

    def _shortfalls(self, factors: list[Matrix], b: float) -> tuple[Matrix, Vector]:
        """The tensor, and how far each sample is short of its margin."""
        W = _sum_of_terms(factors) / self.deviation
        w = W.ravel()
        return W, 1 - self.y * (self.flat @ w + (b - self.center @ w))

    def near(self, point: Vector, reach: float) -> SmoothedHinges:
        """Only samples that a step may bring to their margin; all where that spares little."""
        _, short = self._shortfalls(self.factors(point), point[-1])
        kept = short > -reach
        if kept.mean() > _SPARES:
            return self
        part = copy(self)
        part.flat, part.y, part.cost = self.flat[kept], self.y[kept], self.cost[kept]
        return part

    def value(self, point: Vector) -> float:
        """The objective with true hinges."""
        W, short = self._shortfalls(self.factors(point), point[-1])
        return float(0.5 * np.sum(W**2) + self.cost @ np.maximum(short, 0))

    def value_and_gradient(self, point: Vector, width: float) -> tuple[float, Vector]:
        """The smoothed objective over its level."""
        factors = self.factors(point)
        W, short = self._shortfalls(factors, point[-1])
        inside = np.clip(short, 0, width)
        loss = inside**2 / (2 * width) + np.maximum(short - width, 0)
        slope = -self.cost * self.y * inside / width
        value = 0.5 * float(np.sum(W**2)) + float(self.cost @ loss)
        by_tensor = slope @ self.flat - slope.sum() * self.center
        G = (W + by_tensor.reshape(W.shape)) / self.deviation
        gradient = np.concatenate([*_by_factors(G, factors), [slope.sum()]])
        return value / self.level, gradient / self.level


def stationarity_gap(
    X: Matrix, y: Vector, cost: Vector, weights: CPWeights, b: float, *, active: float = 1e-5
) -> float:
    """The length of the shortest subgradient of all factors and the intercept together.

    Factors are of equal length in all modes. Hinges whose argument is within ``active`` of their
    corner may pull with any share of their cost: a least-squares problem with bounds.
    """
    factors = weights.balanced()
    scores = X.reshape(len(X), -1) @ weights.tensor().ravel() + b
    short = 1 - y * scores
    corner = np.abs(short) <= active
    pulling = np.where((short > 0) & ~corner, cost, 0.0) * y
    W = weights.tensor()
    by_tensor = W - (pulling @ X.reshape(len(X), -1)).reshape(W.shape)
    gradient = np.concatenate([*_by_factors(by_tensor, factors), [-pulling.sum()]])
    if not corner.any():
        return float(np.linalg.norm(gradient))
    modes = range(len(factors))
    rows = [contracted(X[corner], factors, mode).reshape(int(corner.sum()), -1) for mode in modes]
    pulls = (np.column_stack([*rows, np.ones(int(corner.sum()))]) * y[corner, None]).T
    # In units of the costs, so that the bounds are 0 and 1.
    best = lsq_linear(pulls * cost[corner], gradient, (0.0, 1.0), tol=1e-14, max_iter=500)
    return float(np.linalg.norm(pulls @ (cost[corner] * best.x) - gradient))


def _sum_of_terms(factors: list[Matrix]) -> Matrix:
    """The tensor of factors (d_k, R) of any length."""
    if len(factors) == 2:
        return np.asarray(factors[0] @ factors[1].T)
    return CPWeights(np.ones(factors[0].shape[1]), factors).tensor()


def _by_factors(G: Matrix, factors: list[Matrix]) -> list[Vector]:
    """The gradient by every factor, flat, from the gradient G by the tensor."""
    if len(factors) == 2:
        return [(G @ factors[1]).ravel(), (G.T @ factors[0]).ravel()]
    return [contracted(G[None], factors, mode)[0].ravel() for mode in range(len(factors))]


def _spread(flat: Matrix, center: Vector) -> float:
    """The root mean square distance from the centre, without a copy of the samples."""
    squares = np.einsum("ij,ij->i", flat, flat).mean() - 2 * center @ flat.mean(axis=0)
    square = float(squares + center @ center)
    size = float(np.abs(flat).max())
    return np.sqrt(square) if square > 1e-12 * size**2 else (size or 1.0)
