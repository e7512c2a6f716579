"""Hinges with rounded corners of a weight tensor of low rank: values and derivatives by factors."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from nearfar.arrays import Mask, Matrix, Vector
from nearfar.solvers.alternating_modes import CPWeights, contract_terms

# Rows far from their margin are left out of steps, if so many of them at most stay.
_SPARES = 0.7
# But at least so many rows for each unknown stay.
_ROWS = 4


class _Pulling(NamedTuple):
    """Rows left out that pull with all their cost: what they add is linear in the tensor."""

    tensor: Matrix | float
    slope: float
    cost: float


class SmoothedHinges:
    r"""The support tensor machine of scaled factors and the intercept at the centre, as one vector.

    .. math:: \tfrac12\|W\|^2 + \sum_i c_i\, h(1 - y_i(\langle X_i, W\rangle + b))

    with the hinge h, whose corner may be rounded over a width. Values are over the sum of the
    costs, so that tolerances mean something.

    Parameters
    ----------
    flat : ndarray of shape (n, d)
        Samples, as rows.
    y, cost : ndarray of shape (n,)
        Labels ±1, and costs of the hinges.
    center, deviation : ndarray of shape (d,), float
        With the tensor times the deviation and the intercept at the centre as unknowns these are of
        order one.
    start : CPWeights
        Of the shape of the unknowns.
    """

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
        self.modes = range(len(self.shapes))
        self.rank = self.shapes[0][1]
        self.ends = np.cumsum([0, *(d * rank for d, rank in self.shapes)])
        self.level = float(cost.sum())
        self.pulling = _Pulling(0.0, 0.0, 0.0)
        #: How far scores may move before the rows left out must be looked at again.
        self.reach = np.inf

    def factors(self, point: Vector) -> list[Matrix]:
        """The factors that a vector of unknowns holds."""
        parts = zip(self.ends[:-1], self.ends[1:], self.shapes, strict=True)
        return [point[first:last].reshape(shape) for first, last, shape in parts]

    def shortfalls(self, point: Vector) -> tuple[Matrix, Vector]:
        """The tensor, and how far each sample is short of its margin."""
        W = sum_of_terms(self.factors(point)) / self.deviation
        w = W.ravel()
        return W, 1 - self.y * (self.flat @ w + (point[-1] - self.center @ w))

    def near(self, short: Vector, width: float, reach: float) -> tuple[SmoothedHinges, Mask, Mask]:
        """Only samples near the corner, which steps may move; those that pull; and the others.

        All samples, where that spares little.
        """
        distance = np.maximum(-short, short - width)
        k = min(len(short) - 1, _ROWS * int(self.ends[-1] + 1))
        reach = max(reach, float(np.partition(distance, k)[k]))
        kept = distance <= reach
        if kept.mean() > _SPARES:
            nobody = np.zeros(len(short), dtype=bool)
            return self, nobody, nobody
        pulls = ~kept & (short > width)
        pull = np.where(pulls, self.cost * self.y, 0.0)
        slope = -float(pull.sum())
        part = copy(self)
        part.flat, part.y, part.cost = self.flat[kept], self.y[kept], self.cost[kept]
        tensor = self._by_tensor(-pull)
        part.pulling = _Pulling(tensor, slope, float(self.cost @ pulls))
        part.reach = reach
        return part, pulls, ~kept & ~pulls

    def value(self, point: Vector) -> float:
        """The objective with true hinges."""
        return self.level * self.smoothed(point, *self.shortfalls(point), 0.0)

    def smoothed(self, point: Vector, W: Matrix, short: Vector, width: float) -> float:
        """The objective over its level, from the tensor and the shortfalls of a point."""
        loss = np.maximum(short - width, 0)
        if width:
            loss += np.clip(short, 0, width) ** 2 / (2 * width)
        value = 0.5 * float(np.sum(W**2)) + float(self.cost @ loss)
        tensor, slope, cost = self.pulling
        linear = float(np.sum(tensor * W)) + slope * point[-1] + cost * (1 - 0.5 * width)
        return float(value + linear) / self.level

    def value_and_gradient(self, point: Vector, width: float) -> tuple[float, Vector]:
        """The smoothed objective over its level."""
        W, short = self.shortfalls(point)
        slope = -self.cost * self.y * np.clip(short, 0, width) / width
        value = self.smoothed(point, W, short, width)
        return value, self.gradient(point, W, slope)[0] / self.level

    def gradient(self, point: Vector, W: Matrix, slope: Vector) -> tuple[Vector, Matrix]:
        """By the unknowns and by the tensor, where the hinges have this slope by the scores."""
        G = (W + self._by_tensor(slope) + self.pulling.tensor) / self.deviation
        by_b = slope.sum() + self.pulling.slope
        return np.concatenate([*by_factors(G, self.factors(point)), [by_b]]), G

    def _by_tensor(self, slope: Vector) -> Matrix:
        shape = [d for d, _ in self.shapes]
        return (slope @ self.flat - slope.sum() * self.center).reshape(shape)

    def score_gradients(self, point: Vector, rows: Mask | slice = slice(None)) -> Matrix:
        """Derivatives of the scores of samples by the unknowns, (n, number of unknowns)."""
        shape, factors = [d for d, _ in self.shapes], self.factors(point)
        flat = self.flat[rows]
        X, C = flat.reshape(len(flat), *shape), self.center.reshape(1, *shape)
        columns = np.ones((len(X), len(point)))
        for mode in self.modes:
            D = (
                contract_terms(X, factors, mode) - contract_terms(C, factors, mode)
            ) / self.deviation
            first, last = self.ends[mode], self.ends[mode + 1]
            columns[:, first:last] = D.reshape(len(X), last - first)
        return columns

    def curvature(self, point: Vector, G: Matrix) -> Matrix:
        """Second derivatives of the squared length, and of the tensor times its gradient G."""
        factors, rank = self.factors(point), self.rank
        grams, square = [U.T @ U for U in factors], self.deviation**2
        H = np.zeros((len(point), len(point)))
        for j in self.modes:
            rows = slice(self.ends[j], self.ends[j + 1])
            others = _product(grams, (j,), rank) / square
            H[rows, rows] = np.kron(np.eye(len(factors[j])), others)
            for k in range(j):
                others = _product(grams, (j, k), rank) / square
                B = np.einsum("rs,as,br->arbs", others, factors[j], factors[k])
                for r in range(rank):
                    B[:, r, :, r] += _pair(G, [U[:, r] for U in factors], k, j).T
                columns = slice(self.ends[k], self.ends[k + 1])
                H[rows, columns] = B.reshape(rows.stop - rows.start, -1)
                H[columns, rows] = H[rows, columns].T
        return H


def sum_of_terms(factors: Sequence[Matrix]) -> Matrix:
    """The tensor of factors (d_k, R) of any length."""
    if len(factors) == 2:
        return np.asarray(factors[0] @ factors[1].T)
    return CPWeights(np.ones(factors[0].shape[1]), list(factors)).tensor()


def by_factors(G: Matrix, factors: Sequence[Matrix]) -> list[Vector]:
    """The gradient by every factor, flat, from the gradient G by the tensor."""
    if len(factors) == 2:
        return [(G @ factors[1]).ravel(), (G.T @ factors[0]).ravel()]
    return [contract_terms(G[None], factors, mode)[0].ravel() for mode in range(len(factors))]


def _product(grams: Sequence[Matrix], without: tuple[int, ...], rank: int) -> Matrix:
    """The elementwise product of Gram matrices but for some."""
    found = np.ones((rank, rank))
    for mode, gram in enumerate(grams):
        if mode not in without:
            found = found * gram
    return found


def _pair(G: Matrix, vectors: Sequence[Vector], k: int, j: int) -> Matrix:
    """A tensor contracted with vectors in all modes but k < j, (d_k, d_j)."""
    for mode in reversed(range(len(vectors))):
        if mode not in (k, j):
            G = np.tensordot(G, vectors[mode], (mode, 0))
    return G
