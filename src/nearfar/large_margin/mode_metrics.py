"""The large-margin loss with one metric per tensor mode."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.large_margin.problem import LargeMargin, Progress
from nearfar.large_margin.triplet_loss import Evaluation
from nearfar.large_margin.working_set import compute_map_shrinkage
from nearfar.solvers.descent import escape
from nearfar.solvers.tensor_algebra import mode_scatter, project_stack


class ModeMetrics(LargeMargin):
    r"""The large-margin loss with one linear map per tensor mode.

    The distance is :math:`\|(X - Y) \times_1 W_1 \cdots \times_M W_M\|^2`. As a metric of flattened
    tensors, this is the Kronecker product of :math:`\Sigma_k = W_k^T W_k`. The loss is convex in
    each :math:`\Sigma_k`, but not in all of them jointly. A joint descent over all modes does not
    stall at kinks of the hinges that would stop an alternating descent.

    L is the concatenation of all flattened :math:`W_k`, which have shape (q_k, d_k). The gradient
    in :math:`W_k` is the sum over samples of the unfolded :math:`2 Lap(W) Z` times the unfolded
    samples mapped in all other modes. Neither pairs nor a matrix with (prod d)² entries are formed.
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

    def split_modes(self, L: Vector) -> list[Matrix]:
        """Return the matrix :math:`W_k` of each mode."""
        sizes = list(zip(self.ranks, self.shape, strict=True))
        edges = np.cumsum([0, *(q * d for q, d in sizes)])
        return [L[a:b].reshape(size) for (a, b), size in zip(pairwise(edges), sizes, strict=True)]

    def _reshape(self, points: Floats | None) -> Floats:
        X = self.working if points is None else points
        return X.reshape(-1, *self.shape)

    def map_points(self, L: Vector, points: Floats | None = None) -> Floats:
        """Return the mapped tensors, flattened."""
        stack = self._reshape(points)
        return project_stack(stack, [W.T for W in self.split_modes(L)]).reshape(len(stack), -1)

    def map_exactly(self, L: Vector) -> Floats:
        """Return the mapped tensors, flattened, in double precision."""
        return self.map_points(L, self.points.astype(np.float64, copy=False))

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
        """Return the loss. If V is None, ``laplacian_v`` of the result is the gradient in L."""
        evaluation = super().evaluate(L, smoothing, V, points, measured)
        if V is not None:
            return evaluation
        slopes = evaluation.laplacian_v.reshape(-1, *self.ranks)
        stack, factors = self._reshape(points), [W.T for W in self.split_modes(L)]
        gradient = [
            2 * mode_scatter(slopes, k, project_stack(stack, factors, skip=k)).ravel()
            for k in range(len(factors))
        ]
        return evaluation._replace(laplacian_v=np.concatenate(gradient))

    def compute_gradient(self, laplacian_z: Any, points: Any = None) -> Matrix:
        """Return the gradient that `evaluate` has already computed."""
        return np.asarray(laplacian_z)

    def rescale(self, L: Vector) -> Vector:
        """Return the map multiplied by the best factor, distributed equally over the modes."""
        return np.asarray(L * self.find_best_scale(L) ** (1 / len(self.shape)))

    def bound_shrinkage(self, previous: Vector, current: Vector) -> float:
        """Return the product of the lower bounds of all modes.

        Kronecker products preserve the order of positive semi-definite matrices.
        """
        pairs = zip(self.split_modes(previous), self.split_modes(current), strict=True)
        return prod(compute_map_shrinkage(a, b) for a, b in pairs)

    def compute_mode_slope(self, L: Vector, mode: int, smoothing: float | None = None) -> Matrix:
        r"""Return the gradient in :math:`\Sigma_k` for one mode, with all other modes fixed."""
        X = self.points
        projected = project_stack(self._reshape(X), [W.T for W in self.split_modes(L)], skip=mode)
        V = projected.reshape(len(projected), -1)
        evaluation = self.evaluate(L, smoothing, V=V, points=X)
        G = mode_scatter(projected, mode, evaluation.laplacian_v.reshape(projected.shape))
        return (G + G.T) / 2

    def _escape(self, progress: Progress, tol: float) -> bool:
        """Replace a row in the map of one mode, if this lowers the loss at a stationary point."""
        matrices = self.split_modes(progress.L)
        for mode, W in enumerate(matrices):
            if len(W) < W.shape[1]:
                continue

            def evaluate_mode(trial: Matrix, mode: int = mode) -> float:
                return self.evaluate(self._replace_mode(progress.L, mode, trial)).loss

            better = escape(
                evaluate_mode, W, self.compute_mode_slope(progress.L, mode), min_decrease=10 * tol
            )
            if better is not None:
                progress.L = self._replace_mode(progress.L, mode, better)
                return True
        return False

    def _replace_mode(self, L: Vector, mode: int, W: Matrix) -> Vector:
        matrices = self.split_modes(L)
        matrices[mode] = W
        return np.concatenate([matrix.ravel() for matrix in matrices])

    def compute_dual_bound(self, L: Vector) -> float:
        """Return the trivial bound 0, because the problem is not jointly convex in all modes."""
        return 0.0
