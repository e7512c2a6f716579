"""What a quasi-Newton descent over maps varies."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.large_margin.triplet_loss import Evaluation


class Entries:
    """The entries of the map."""

    bounds: optimize.Bounds | None = None

    def __init__(self, problem: Any, L: Matrix) -> None:
        self._problem, self._shape = problem, L.shape
        self.start: Vector = L.ravel()

    def map_of(self, flat: Vector) -> Matrix:
        """The map of these variables."""
        return flat.reshape(self._shape).copy()

    def evaluated(self, flat: Vector) -> tuple[Evaluation, Vector]:
        """The loss, and its gradient."""
        found = self._problem.evaluate(flat.reshape(self._shape))
        return found, self._problem.gradient(found.laplacian_v).ravel()


class Squares:
    """The squares of the factors of a diagonal map, none below zero: in them the loss is convex.

    A factor that is zero stays so.
    """

    def __init__(self, problem: Any, L: Vector) -> None:
        problem.keep_columns(L)
        self._problem, self._size, self._columns = problem, len(L), problem.columns
        squares = L[self._columns] ** 2
        # Larger ones move farther. The first step of a descent is as long as its unit.
        unit = 0.05 * np.sqrt(len(squares)) * (squares + squares.mean())
        self._unit = unit if squares.any() else np.ones(len(squares))
        self.start = squares / self._unit
        self.bounds = optimize.Bounds(0.0, np.inf)

    def map_of(self, flat: Vector) -> Vector:
        """The map of these variables."""
        L = np.zeros(self._size)
        L[self._columns] = np.sqrt(self._unit * flat)
        return L

    def evaluated(self, flat: Vector) -> tuple[Evaluation, Vector]:
        """The loss, and its gradient."""
        X = self._problem.cut
        found = self._problem.evaluate(self.map_of(flat), V=X)
        slope = np.zeros(len(flat))
        for block in split_rows(len(X), 0, max_rows=1024):  # many in single precision lose digits
            slope += np.einsum("ij,ij->j", found.laplacian_v[block], X[block])
        return found, self._unit * slope
