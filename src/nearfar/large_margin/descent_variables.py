"""What a quasi-Newton descent over maps varies."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import row_blocks
from nearfar.large_margin.triplet_loss import Evaluation


class Entries:
    """The entries of the map."""

    bounds: optimize.Bounds | None = None

    def __init__(self, problem: Any, L: Matrix) -> None:
        self._problem, self._shape = problem, L.shape
        self.start: Vector = L.ravel()

    def to_map(self, flat: Vector) -> Matrix:
        """The map of these variables."""
        return flat.reshape(self._shape).copy()

    def evaluate(self, flat: Vector) -> tuple[Evaluation, Vector]:
        """The loss, and its gradient."""
        evaluation = self._problem.evaluate(flat.reshape(self._shape))
        return evaluation, self._problem.compute_gradient(evaluation.laplacian_v).ravel()


class Squares:
    """The squares of the factors of a diagonal map, none below zero: in them the loss is convex.

    A factor that is zero stays so.
    """

    def __init__(self, problem: Any, L: Vector) -> None:
        problem.select_columns(L)
        self._problem, self._size, self._columns = problem, len(L), problem.columns
        squares = L[self._columns] ** 2
        # Larger ones move farther. The first step of a descent is as long as its unit.
        unit = 0.05 * np.sqrt(len(squares)) * (squares + squares.mean())
        self._unit = unit if squares.any() else np.ones(len(squares))
        self.start = squares / self._unit
        self.bounds = optimize.Bounds(0.0, np.inf)

    def to_map(self, flat: Vector) -> Vector:
        """The map of these variables."""
        L = np.zeros(self._size)
        L[self._columns] = np.sqrt(self._unit * flat)
        return L

    def evaluate(self, flat: Vector) -> tuple[Evaluation, Vector]:
        """The loss, and its gradient."""
        X = self._problem.cut
        evaluation = self._problem.evaluate(self.to_map(flat), V=X)
        slope = np.zeros(len(flat))
        for block in row_blocks(len(X), 0, at_most=1024):  # many in single precision lose digits
            slope += np.einsum("ij,ij->j", evaluation.laplacian_v[block], X[block])
        return evaluation, self._unit * slope
