r"""Unfolding of points that are combinations of a few functions, :math:`K = B Z B^T`.

With B orthonormal (with respect to the masses) and centred, the trace of K is that of Z, and the
squared length of an edge is :math:`q_e^T Z q_e`, :math:`q_e = B_i - B_j`. So it is the same problem
with other edges: :class:`Spanned` has their rows q where :class:`Edges` has differences of points,
and the solvers take either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import row_blocks
from nearfar.solvers.eigen import some_eigh
from nearfar.solvers.unfolding import Edges

# Functions of less than this share of the largest variance are rounding.
EMPTY = 1e-12


@dataclass(frozen=True)
class Spanned(Edges):
    """Edges as rows q of functions, ``n_points`` of them: an edge joins no two, it mixes all."""

    rows: Matrix = field(default_factory=lambda: np.ones((0, 0)))

    @classmethod
    def of(cls, rows: Matrix, squared: Vector) -> Spanned:
        """For orthonormal functions, whose masses are 1."""
        number = np.arange(len(rows))
        return cls(rows.shape[1], number, number, squared, np.ones(rows.shape[1]), rows)

    @property
    def incidence(self) -> Any:
        """The rows: what differences of points are for other edges."""
        return self.rows

    @property
    def dimension(self) -> int:
        """The rank that factors may have."""
        return self.n_points

    def differences(self, Y: Matrix) -> Matrix:
        """:math:`q_e^T Y` of each edge."""
        return np.asarray(self.rows @ Y)

    def centered(self, Y: Matrix) -> Matrix:
        """Y itself, as the functions are centred."""
        return Y

    def moment(self, weights: Vector) -> Matrix:
        r""":math:`\sum_e w_e q_e q_e^T`, which is the Laplacian of the weights within the span."""
        total = np.zeros((self.n_points, self.n_points))
        for block in row_blocks(len(self), 16 * self.n_points, at_most=4096):
            q = self.rows[block]
            total += q.T @ (weights[block, None] * q)
        return (total + total.T) / 2

    def eigenpairs(self, weights: Vector, count: int) -> tuple[Vector, Matrix]:
        """Smallest eigenvalues of the moment of the weights, and vectors."""
        return some_eigh(self.moment(weights), 0, min(count, self.n_points) - 1)


class DenseSystem:
    """The matrix of a step where every edge mixes all functions, by Cholesky."""

    def __init__(self, edges: Spanned, n_columns: int) -> None:
        self.edges, self.r = edges, n_columns

    def factor(self, weights: Vector, stiffness: Vector, delta: Matrix, diagonal: Vector) -> bool:
        """Factor ``2 L_w ⊗ I + Σ 4 k (q ⊗ δ)(q ⊗ δ)'`` and a multiple of I for each function.

        False if it is not definite.
        """
        m, r = self.edges.n_points, self.r
        M = np.zeros((m * r, m * r))
        stretch = delta * (2 * np.sqrt(stiffness))[:, None]
        for block in row_blocks(len(self.edges), 16 * m * r, at_most=4096):
            J = self.edges.rows[block, :, None] * stretch[block, None, :]
            J = J.reshape(-1, m * r)
            M += J.T @ J
        own = 2 * self.edges.moment(weights) + np.diag(diagonal)
        for column in range(r):
            M[column::r, column::r] += own
        try:
            self._factor = linalg.cho_factor(M, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return False
        return True

    def solve(self, right: Matrix) -> Matrix:
        """The solution for a right-hand side with a row for each function."""
        solution = linalg.cho_solve(self._factor, right.ravel(), check_finite=False)
        return np.asarray(solution).reshape(right.shape)
