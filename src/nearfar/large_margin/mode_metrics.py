"""The large-margin loss with a metric for each mode of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.large_margin.problem import LargeMargin, Progress
from nearfar.large_margin.triplet_loss import Evaluation
from nearfar.large_margin.working_set import shrinkage_of
from nearfar.solvers.descent import escape
from nearfar.solvers.tensor_algebra import mode_scatter, project_stack


class ModeMetrics(LargeMargin):
    r"""The large-margin loss of :math:`\|(X - Y) \times_1 W_1 \cdots \times_M W_M\|^2`.

    As a metric of flat rows it is the Kronecker product of :math:`\Sigma_k = W_k^T W_k`. The loss
    is convex in each of them and not in all together; one descent over all does not stall where the
    kinks of the hinges stop a descent over one after another.

    L is the flat vector of all :math:`W_k`, of shape (q_k, d_k), one after another. The gradient in
    :math:`W_k` is the sum over samples of the unfolded :math:`2 Lap(W) Z` times that of the samples
    mapped in all other modes: no pair is formed, and no matrix of prod d squared entries.
    """

    def __init__(
        self,
        stack: Floats,
        ranks: Sequence[int],
        codes: Indices,
        targets: Indices,
        push_weight: float,
    ) -> None:
        self.shape, self.ranks = stack.shape[1:], tuple(ranks)
        super().__init__(stack.reshape(len(stack), -1), codes, targets, push_weight)

    def parts(self, L: Vector) -> list[Matrix]:
        """The matrices of the modes."""
        sizes = list(zip(self.ranks, self.shape, strict=True))
        edges = np.cumsum([0, *(q * d for q, d in sizes)])
        return [L[a:b].reshape(size) for (a, b), size in zip(pairwise(edges), sizes, strict=True)]

    def _stack(self, points: Floats | None) -> Floats:
        X = self.working if points is None else points
        return X.reshape(-1, *self.shape)

    def mapped(self, L: Vector, points: Floats | None = None) -> Floats:
        """Flat tensors under the map."""
        stack = self._stack(points)
        return project_stack(stack, [W.T for W in self.parts(L)]).reshape(len(stack), -1)

    def exact(self, L: Vector) -> Floats:
        """Flat tensors under the map in full precision."""
        return self.mapped(L, self.points.astype(np.float64, copy=False))

    def _is_sampled(self, L: Matrix) -> bool:
        return False

    def evaluate(
        self,
        L: Vector,
        smoothing: float | None = None,
        V: Floats | None = None,
        points: Floats | None = None,
        measured: Any = None,
    ) -> Evaluation:
        """The loss; without V the gradient stands in for Lap(W) V."""
        found = super().evaluate(L, smoothing, V, points, measured)
        if V is not None:
            return found
        slopes = found.laplacian_v.reshape(-1, *self.ranks)
        stack, factors = self._stack(points), [W.T for W in self.parts(L)]
        gradient = [
            2 * mode_scatter(slopes, k, project_stack(stack, factors, skip=k)).ravel()
            for k in range(len(factors))
        ]
        return found._replace(laplacian_v=np.concatenate(gradient))

    def gradient(self, laplacian_z: Any, points: Any = None) -> Matrix:
        """As it is."""
        return np.asarray(laplacian_z)

    def rescaled(self, L: Vector) -> Vector:
        """The best multiple of the map, shared by all modes."""
        return np.asarray(L * self.best_scale(L) ** (1 / len(self.shape)))

    def shrinkage(self, before: Vector, now: Vector) -> float:
        """Bounds of the modes multiply, as Kronecker products of ordered metrics are ordered."""
        pairs = zip(self.parts(before), self.parts(now), strict=True)
        return prod(shrinkage_of(a, b) for a, b in pairs)

    def mode_slope(self, L: Vector, mode: int, smoothing: float | None = None) -> Matrix:
        r"""The gradient in :math:`\Sigma_k` of a mode, all others being as they are."""
        X = self.points
        other = project_stack(self._stack(X), [W.T for W in self.parts(L)], skip=mode)
        V = other.reshape(len(other), -1)
        found = self.evaluate(L, smoothing, V=V, points=X)
        G = mode_scatter(other, mode, found.laplacian_v.reshape(other.shape))
        return (G + G.T) / 2

    def _escape(self, progress: Progress, tol: float) -> bool:
        """Leave a point where some map has lost rank although its metric could gain by another."""
        matrices = self.parts(progress.L)
        for mode, W in enumerate(matrices):
            if len(W) < W.shape[1]:
                continue

            def value(trial: Matrix, mode: int = mode) -> float:
                return self.evaluate(self._with(progress.L, mode, trial)).loss

            better = escape(value, W, self.mode_slope(progress.L, mode), min_decrease=10 * tol)
            if better is not None:
                progress.L = self._with(progress.L, mode, better)
                return True
        return False

    def _with(self, L: Vector, mode: int, W: Matrix) -> Vector:
        matrices = self.parts(L)
        matrices[mode] = W
        return np.concatenate([part.ravel() for part in matrices])

    def dual_bound(self, L: Vector) -> float:
        """Nothing is known: the problem is not convex in all modes together."""
        return 0.0
