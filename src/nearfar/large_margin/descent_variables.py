"""Variables of a quasi-Newton descent over maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.large_margin.triplet_loss import Evaluation


class Entries:
    """Optimization variables for a full map: the entries of the map."""

    bounds: optimize.Bounds | None = None

    def __init__(self, problem: Any, L: Matrix) -> None:
        self._problem, self._shape = problem, L.shape
        self.start: Vector = L.ravel()

    def to_map(self, flat: Vector) -> Matrix:
        """Return the map that belongs to the values of the variables."""
        return flat.reshape(self._shape).copy()

    def evaluate(self, flat: Vector) -> tuple[Evaluation, Vector]:
        """Return the loss and its gradient with respect to the variables."""
        evaluation = self._problem.evaluate(flat.reshape(self._shape))
        return evaluation, self._problem.compute_gradient(evaluation.laplacian_v).ravel()


class Squares:
    """Optimization variables for a diagonal map: the squares of its factors.

    The loss is convex in these variables. A factor that is zero remains zero.
    """

    def __init__(self, problem: Any, L: Vector) -> None:
        problem.select_columns(L)
        self._problem, self._size, self._columns = problem, len(L), problem.columns
        squares = L[self._columns] ** 2
        # Each variable is divided by its unit. The first step of the descent is then longer for
        # larger factors.
        unit = 0.05 * np.sqrt(len(squares)) * (squares + squares.mean())
        self._unit = unit if squares.any() else np.ones(len(squares))
        self.start = squares / self._unit
        self.bounds = optimize.Bounds(0.0, np.inf)

    def to_map(self, flat: Vector) -> Vector:
        """Return the map that belongs to the values of the variables."""
        L = np.zeros(self._size)
        L[self._columns] = np.sqrt(self._unit * flat)
        return L

    def evaluate(self, flat: Vector) -> tuple[Evaluation, Vector]:
        """Return the loss and its gradient with respect to the variables."""
        X = self._problem.working_columns
        evaluation = self._problem.evaluate(self.to_map(flat), V=X)
        slope = np.zeros(len(flat))
        for block in split_rows(len(X), 0, max_rows=1024):  # Long sums lose digits in float32.
            slope += np.einsum("ij,ij->j", evaluation.laplacian_v[block], X[block])
        return evaluation, self._unit * slope
