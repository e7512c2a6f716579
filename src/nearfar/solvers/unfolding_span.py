r"""Unfolding of points that are combinations of a few functions, :math:`K = B Z B^T`.

With B centered and orthonormal (with respect to the masses), the trace of K is that of Z, and the
squared length of an edge is :math:`q_e^T Z q_e` with :math:`q_e = B_i - B_j`. This is the same
problem with other edges: :class:`SpannedEdges` has their rows q where :class:`Edges` has
differences of points. The solvers accept both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.solvers.eigen import partial_eigh
from nearfar.solvers.unfolding import Edges

# Fraction of the largest variance below which a function is treated as a rounding error.
EMPTY = 1e-12


@dataclass(frozen=True)
class SpannedEdges(Edges):
    """Edges in a basis of ``n_points`` functions.

    An edge is a row q with one entry per function.
    """

    rows: Matrix = field(default_factory=lambda: np.ones((0, 0)))

    @classmethod
    def from_rows(cls, rows: Matrix, squared: Vector) -> SpannedEdges:
        """Create edges in a basis of orthonormal functions. All masses are 1."""
        numbers = np.arange(len(rows))
        return cls(rows.shape[1], numbers, numbers, squared, np.ones(rows.shape[1]), rows)

    @property
    def incidence(self) -> Any:
        """The rows of the edges, which are used instead of an incidence matrix of points."""
        return self.rows

    @property
    def dimension(self) -> int:
        """Maximum rank of a factor."""
        return self.n_points

    def differences(self, Y: Matrix) -> Matrix:
        """Return :math:`q_e^T Y`, the difference of the end points of each edge."""
        return np.asarray(self.rows @ Y)

    def centered(self, Y: Matrix) -> Matrix:
        """Return Y itself, since the functions are centered."""
        return Y

    def moment(self, weights: Vector) -> Matrix:
        r"""Return the moment :math:`\sum_e w_e q_e q_e^T`, the Laplacian in this basis."""
        total = np.zeros((self.n_points, self.n_points))
        for block in split_rows(len(self), 16 * self.n_points, max_rows=4096):
            q = self.rows[block]
            total += q.T @ (weights[block, None] * q)
        return (total + total.T) / 2

    def eigenpairs(self, weights: Vector, count: int) -> tuple[Vector, Matrix]:
        """Return the smallest eigenpairs of the moment for the given weights."""
        return partial_eigh(self.moment(weights), 0, min(count, self.n_points) - 1)


class DenseSystem:
    """Dense linear system of a step, solved by Cholesky factorization.

    It is used if the edges involve all functions.
    """

    def __init__(self, edges: SpannedEdges, n_columns: int) -> None:
        self.edges, self.r = edges, n_columns

    def factor(self, weights: Vector, stiffness: Vector, delta: Matrix, diagonal: Vector) -> bool:
        """Factorize ``2 L_w ⊗ I + Σ 4 k (q ⊗ δ)(q ⊗ δ)'`` plus a multiple of I for each function.

        Returns False if the matrix is not definite.
        """
        m, r = self.edges.n_points, self.r
        M = np.zeros((m * r, m * r))
        stretch = delta * (2 * np.sqrt(stiffness))[:, None]
        for block in split_rows(len(self.edges), 16 * m * r, max_rows=4096):
            J = self.edges.rows[block, :, None] * stretch[block, None, :]
            J = J.reshape(-1, m * r)
            M += J.T @ J
        diagonal_block = 2 * self.edges.moment(weights) + np.diag(diagonal)
        for column in range(r):
            M[column::r, column::r] += diagonal_block
        try:
            self._factor = linalg.cho_factor(M, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return False
        return True

    def solve(self, right: Matrix) -> Matrix:
        """Return the solution for a right-hand side with one row per function."""
        solution = linalg.cho_solve(self._factor, right.ravel(), check_finite=False)
        return np.asarray(solution).reshape(right.shape)
