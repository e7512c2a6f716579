"""Symmetric matrices as vectors, and step lengths in the cone of positive definite matrices."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Indices, Matrix, Vector


def svec_entries(m: int) -> tuple[Indices, Indices, Vector]:
    """Return the row index, the column index and the factor of each entry of :func:`svec`."""
    first, second = np.triu_indices(m)
    return first, second, np.where(first == second, 1.0, np.sqrt(2.0))


def svec(M: Matrix) -> Vector:
    """Return the scaled upper triangle of a symmetric matrix as a vector.

    The scaling preserves inner products: svec(A)'svec(B) = tr(AB).

    >>> svec(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3).tolist()
    [1.0, 2.828, 3.0]
    """
    first, second, factor = svec_entries(len(M))
    return np.asarray(M[first, second] * factor)


def smat(v: Vector, m: int) -> Matrix:
    """Return the symmetric m×m matrix M with svec(M) = v."""
    first, second, factor = svec_entries(m)
    M = np.empty((m, m))
    M[first, second] = M[second, first] = v / factor
    return M


def svec_of_squares(rows: Matrix) -> Matrix:
    """Return a matrix whose rows are svec(r r') for each row r."""
    first, second, factor = svec_entries(rows.shape[1])
    return np.asarray(rows[:, first] * rows[:, second] * factor)


def symmetric_kronecker(P: Matrix, S: Matrix) -> Matrix:
    """Return the matrix that maps svec(dZ) to svec(sym(P dZ S))."""
    a, b, factor = svec_entries(len(P))
    aa, ab = np.ix_(a, a), np.ix_(a, b)
    ba, bb = np.ix_(b, a), np.ix_(b, b)
    M = P[aa] * S[bb] + P[ab] * S[ba] + P[ba] * S[ab] + P[bb] * S[aa]
    return np.asarray((M + M.T) * np.outer(factor, factor) / 8)


def sym(M: Matrix) -> Matrix:
    """Return the symmetric part of a matrix."""
    return np.asarray((M + M.T) / 2)


def inverse(M: Matrix) -> Matrix:
    """Return the inverse of a positive definite matrix.

    Raises LinAlgError if the matrix is not positive definite.
    """
    return sym(linalg.cho_solve(linalg.cho_factor(M), np.eye(len(M))))


def longest_step(M: Matrix, dM: Matrix) -> float:
    """Return the largest t, possibly infinite, for which M + t dM is positive semi-definite."""
    lower = linalg.cholesky(M, lower=True)
    half = linalg.solve_triangular(lower, dM, lower=True)
    min_eigenvalue = float(
        linalg.eigvalsh(sym(linalg.solve_triangular(lower, half.T, lower=True)))[0]
    )
    return -1 / min_eigenvalue if min_eigenvalue < 0 else np.inf
