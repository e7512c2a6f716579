"""Smoothed hinge loss of a weight tensor of low rank: values and derivatives in its factors."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from nearfar.arrays import Mask, Matrix, Vector
from nearfar.solvers.alternating_modes import CPWeights, contract_terms

# Maximum fraction of rows near the corner of their hinge at which the other rows are left out of
# the steps. With a larger fraction, leaving rows out would save little time.
_MAX_NEAR_FRACTION = 0.7
# Minimum number of rows per unknown that remain after other rows are left out.
_MIN_ROWS_PER_UNKNOWN = 4


class _LinearTerm(NamedTuple):
    """Sum of the hinges of omitted rows, which is linear in the weight tensor and the intercept."""

    tensor: Matrix | float
    slope: float
    cost: float


class SmoothedHinges:
    r"""Objective of a support tensor machine as a function of one vector of unknowns.

    .. math:: \tfrac12\|W\|^2 + \sum_i c_i\, h(1 - y_i(\langle X_i, W\rangle + b))

    The corner of the hinge h can be rounded over a width. The unknowns are the factors of W times
    ``deviation``, followed by the score at ``center``. This scaling makes them of order one.
    Smoothed values are divided by the sum of the costs, so that tolerances do not depend on the
    costs.

    Parameters
    ----------
    flat : ndarray of shape (n, d)
        Samples, one vectorized tensor per row.
    y, cost : ndarray of shape (n,)
        Labels (1 or -1) and costs of the samples.
    center : ndarray of shape (d,)
        Point whose score replaces the intercept in the vector of unknowns.
    deviation : float
        Factor by which the weight tensor is scaled.
    start : CPWeights
        Initial weights, which define the shapes of the factors.
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
        self.offsets = np.cumsum([0, *(d * rank for d, rank in self.shapes)])
        self.total_cost = float(cost.sum())
        self.linear_term = _LinearTerm(0.0, 0.0, 0.0)
        #: Change of the scores above which omitted rows must be checked again.
        self.reach = np.inf

    def unpack_factors(self, point: Vector) -> list[Matrix]:
        """Return the factors contained in a vector of unknowns."""
        blocks = zip(self.offsets[:-1], self.offsets[1:], self.shapes, strict=True)
        return [point[first:last].reshape(shape) for first, last, shape in blocks]

    def compute_shortfalls(self, point: Vector) -> tuple[Matrix, Vector]:
        """Return the weight tensor, and 1 - y f for each sample with label y and score f."""
        W = sum_terms(self.unpack_factors(point)) / self.deviation
        w = W.ravel()
        return W, 1 - self.y * (self.flat @ w + (point[-1] - self.center @ w))

    def select_near_corner(
        self, short: Vector, width: float, reach: float
    ) -> tuple[SmoothedHinges, Mask, Mask]:
        """Restrict the problem to the samples whose loss is near the corner of the hinge.

        Return the restricted problem and masks of the samples that were left out: those with a
        linear loss, which enter as a linear term, and those without loss. If few samples can be
        left out, return the problem itself and empty masks.
        """
        distance = np.maximum(-short, short - width)
        k = min(len(short) - 1, _MIN_ROWS_PER_UNKNOWN * int(self.offsets[-1] + 1))
        reach = max(reach, float(np.partition(distance, k)[k]))
        is_near = distance <= reach
        if is_near.mean() > _MAX_NEAR_FRACTION:
            empty_mask = np.zeros(len(short), dtype=bool)
            return self, empty_mask, empty_mask
        is_linear = ~is_near & (short > width)
        pull = np.where(is_linear, self.cost * self.y, 0.0)
        slope = -float(pull.sum())
        subset = copy(self)
        subset.flat, subset.y, subset.cost = self.flat[is_near], self.y[is_near], self.cost[is_near]
        tensor = self._differentiate_by_tensor(-pull)
        subset.linear_term = _LinearTerm(tensor, slope, float(self.cost @ is_linear))
        subset.reach = reach
        return subset, is_linear, ~is_near & ~is_linear

    def value(self, point: Vector) -> float:
        """Return the objective with exact hinges. It is not divided by the sum of the costs."""
        return self.total_cost * self.evaluate_smoothed(point, *self.compute_shortfalls(point), 0.0)

    def evaluate_smoothed(self, point: Vector, W: Matrix, short: Vector, width: float) -> float:
        """Return the smoothed objective, divided by the total cost.

        It is computed from the weight tensor and the shortfalls.
        """
        loss = np.maximum(short - width, 0)
        if width:
            loss += np.clip(short, 0, width) ** 2 / (2 * width)
        value = 0.5 * float(np.sum(W**2)) + float(self.cost @ loss)
        tensor, slope, cost = self.linear_term
        linear = float(np.sum(tensor * W)) + slope * point[-1] + cost * (1 - 0.5 * width)
        return float(value + linear) / self.total_cost

    def value_and_gradient(self, point: Vector, width: float) -> tuple[float, Vector]:
        """Return the smoothed objective, divided by the total cost, and its gradient."""
        W, short = self.compute_shortfalls(point)
        slope = -self.cost * self.y * np.clip(short, 0, width) / width
        value = self.evaluate_smoothed(point, W, short, width)
        return value, self.gradient(point, W, slope)[0] / self.total_cost

    def gradient(self, point: Vector, W: Matrix, slope: Vector) -> tuple[Vector, Matrix]:
        """Return the gradients with respect to the unknowns and to the weight tensor.

        ``slope`` contains the derivatives of the losses by the scores.
        """
        G = (W + self._differentiate_by_tensor(slope) + self.linear_term.tensor) / self.deviation
        by_b = slope.sum() + self.linear_term.slope
        return np.concatenate([*compute_factor_gradients(G, self.unpack_factors(point)), [by_b]]), G

    def _differentiate_by_tensor(self, slope: Vector) -> Matrix:
        shape = [d for d, _ in self.shapes]
        return (slope @ self.flat - slope.sum() * self.center).reshape(shape)

    def score_gradients(self, point: Vector, rows: Mask | slice = slice(None)) -> Matrix:
        """Return the derivatives (n, n_unknowns) of the scores with respect to the unknowns."""
        shape, factors = [d for d, _ in self.shapes], self.unpack_factors(point)
        flat = self.flat[rows]
        X, C = flat.reshape(len(flat), *shape), self.center.reshape(1, *shape)
        columns = np.ones((len(X), len(point)))
        for mode in self.modes:
            D = (
                contract_terms(X, factors, mode) - contract_terms(C, factors, mode)
            ) / self.deviation
            first, last = self.offsets[mode], self.offsets[mode + 1]
            columns[:, first:last] = D.reshape(len(X), last - first)
        return columns

    def curvature(self, point: Vector, G: Matrix) -> Matrix:
        """Return the second derivatives of |W|² / 2 + ⟨W, G⟩ with respect to the unknowns.

        G is the gradient with respect to the tensor. It is treated as a constant.
        """
        factors, rank = self.unpack_factors(point), self.rank
        grams, square = [U.T @ U for U in factors], self.deviation**2
        H = np.zeros((len(point), len(point)))
        for j in self.modes:
            rows = slice(self.offsets[j], self.offsets[j + 1])
            gram_product = _multiply_grams(grams, (j,), rank) / square
            H[rows, rows] = np.kron(np.eye(len(factors[j])), gram_product)
            for k in range(j):
                gram_product = _multiply_grams(grams, (j, k), rank) / square
                B = np.einsum("rs,as,br->arbs", gram_product, factors[j], factors[k])
                for r in range(rank):
                    B[:, r, :, r] += _contract_except_pair(G, [U[:, r] for U in factors], k, j).T
                columns = slice(self.offsets[k], self.offsets[k + 1])
                H[rows, columns] = B.reshape(rows.stop - rows.start, -1)
                H[columns, rows] = H[rows, columns].T
        return H


def sum_terms(factors: Sequence[Matrix]) -> Matrix:
    """Return the sum of R rank-one tensors, given one factor (d_k, R) per mode."""
    if len(factors) == 2:
        return np.asarray(factors[0] @ factors[1].T)
    return CPWeights(np.ones(factors[0].shape[1]), list(factors)).tensor()


def compute_factor_gradients(G: Matrix, factors: Sequence[Matrix]) -> list[Vector]:
    """Convert the gradient G with respect to the tensor to one flat gradient for all factors."""
    if len(factors) == 2:
        return [(G @ factors[1]).ravel(), (G.T @ factors[0]).ravel()]
    return [contract_terms(G[None], factors, mode)[0].ravel() for mode in range(len(factors))]


def _multiply_grams(grams: Sequence[Matrix], skipped_modes: tuple[int, ...], rank: int) -> Matrix:
    """Return the elementwise product of the Gram matrices of all modes that are not skipped."""
    product = np.ones((rank, rank))
    for mode, gram in enumerate(grams):
        if mode not in skipped_modes:
            product = product * gram
    return product


def _contract_except_pair(G: Matrix, vectors: Sequence[Vector], k: int, j: int) -> Matrix:
    """Contract a tensor with vectors in all modes except k and j, where k < j.

    The result has shape (d_k, d_j).
    """
    for mode in reversed(range(len(vectors))):
        if mode not in (k, j):
            G = np.tensordot(G, vectors[mode], (mode, 0))
    return G
