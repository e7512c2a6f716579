"""Symmetric matrices as vectors, and steps of interior point methods in their cone."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Indices, Matrix, Vector


def places(m: int) -> tuple[Indices, Indices, Vector]:
    """Rows, columns and factors of the entries that `svec` keeps."""
    first, second = np.triu_indices(m)
    return first, second, np.where(first == second, 1.0, np.sqrt(2.0))


def svec(M: Matrix) -> Vector:
    """The upper triangle with products kept: svec(A)'svec(B) = tr(AB).

    >>> svec(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3).tolist()
    [1.0, 2.828, 3.0]
    """
    first, second, factor = places(len(M))
    return np.asarray(M[first, second] * factor)


def smat(v: Vector, m: int) -> Matrix:
    """The matrix of which v is the `svec`."""
    first, second, factor = places(m)
    M = np.empty((m, m))
    M[first, second] = M[second, first] = v / factor
    return M


def svec_of_squares(rows: Matrix) -> Matrix:
    """svec(r r') of each row r."""
    first, second, factor = places(rows.shape[1])
    return np.asarray(rows[:, first] * rows[:, second] * factor)


def symmetric_kronecker(P: Matrix, S: Matrix) -> Matrix:
    """The matrix of dZ ↦ sym(P dZ S) on svec."""
    a, b, factor = places(len(P))
    aa, ab = np.ix_(a, a), np.ix_(a, b)
    ba, bb = np.ix_(b, a), np.ix_(b, b)
    M = P[aa] * S[bb] + P[ab] * S[ba] + P[ba] * S[ab] + P[bb] * S[aa]
    return np.asarray((M + M.T) * np.outer(factor, factor) / 8)


def sym(M: Matrix) -> Matrix:
    """The symmetric part."""
    return np.asarray((M + M.T) / 2)


def inverse(M: Matrix) -> Matrix:
    """Of a positive definite matrix; a LinAlgError if it is not."""
    return sym(linalg.cho_solve(linalg.cho_factor(M), np.eye(len(M))))


def longest_step(M: Matrix, dM: Matrix) -> float:
    """The t at which M + t dM leaves the cone of positive definite matrices; perhaps never."""
    lower = linalg.cholesky(M, lower=True)
    half = linalg.solve_triangular(lower, dM, lower=True)
    least = float(linalg.eigvalsh(sym(linalg.solve_triangular(lower, half.T, lower=True)))[0])
    return -1 / least if least < 0 else np.inf
