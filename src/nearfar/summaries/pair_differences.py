"""Differences of pairs of rows: their lengths under a map, and sums of their squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearfar.arrays import Indices, Matrix, Vector

# Bytes of differences that are kept as they are; more pairs are summed by row.
_KEPT = 64_000_000


class PairDifferences:
    r"""The differences :math:`d = x_i - x_j` of pairs of rows, never as an (N, p, p) array.

    With more pairs than is good to keep one by one, all sums go through the rows: with the
    Laplacian :math:`\Lambda_w` of the graph of the pairs,
    :math:`\sum_{ij} w_{ij} d d^T = X^T \Lambda_w X`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, n_features)
        Rows, centred by the caller where they are far from zero.
    pairs : array of int of shape (n_pairs, 2)
        Pairs of row numbers.
    """

    def __init__(self, points: Matrix, pairs: ArrayLike) -> None:
        self.points = points
        self.pairs: Indices = np.asarray(pairs, np.intp).reshape(-1, 2)
        self._differences: Matrix | None = None
        self._sides: sparse.csr_array | None = None
        n_pairs, p = len(self.pairs), points.shape[1]
        if 8 * n_pairs * p <= _KEPT or n_pairs <= len(points):
            self._differences = points[self.pairs[:, 0]] - points[self.pairs[:, 1]]
        else:
            numbers = np.arange(n_pairs)
            self._sides = sparse.csr_array(
                (
                    np.r_[np.ones(n_pairs), -np.ones(n_pairs)],
                    (np.r_[numbers, numbers], self.pairs.T.ravel()),
                ),
                shape=(n_pairs, len(points)),
            )

    @property
    def n_pairs(self) -> int:
        """How many there are."""
        return len(self.pairs)

    def mapped(self, L: Matrix) -> Matrix:
        """L d for each pair, (n_pairs, n_components)."""
        if self._differences is not None:
            return np.asarray(self._differences @ L.T)
        assert self._sides is not None
        return np.asarray(self._sides @ (self.points @ L.T))

    def squared(self, L: Matrix) -> Vector:
        """Squared lengths |L d|² of each pair.

        >>> X = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
        >>> PairDifferences(X, [[0, 1], [0, 2]]).squared(np.eye(2)).tolist()
        [25.0, 2.0]
        """
        Z = self.mapped(L)
        return np.einsum("ij,ij->i", Z, Z)

    def scatter(self, weights: Vector | None = None) -> Matrix:
        """The sum of w d dᵀ over the pairs, (p, p).

        >>> X = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
        >>> PairDifferences(X, [[0, 1], [0, 2]]).scatter(np.array([1.0, 0.0])).tolist()
        [[9.0, 12.0], [12.0, 16.0]]
        """
        if self._differences is not None:
            D = self._differences
            return np.asarray(D.T @ (D if weights is None else D * weights[:, None]))
        assert self._sides is not None
        weighted = self._sides if weights is None else self._sides.multiply(weights[:, None])
        laplacian = self._sides.T @ sparse.csr_array(weighted)
        return np.asarray(self.points.T @ (laplacian @ self.points))

    def pulled(self, Z: Matrix, weights: Vector) -> Matrix:
        """The sum of w (L d) dᵀ, (n_components, p), with ``Z = mapped(L)``.

        Twice this is the gradient in L of a sum of functions of |L d|² with slopes w.
        """
        if self._differences is not None:
            return np.asarray((Z * weights[:, None]).T @ self._differences)
        assert self._sides is not None
        return np.asarray((self._sides.T @ (Z * weights[:, None])).T @ self.points)
