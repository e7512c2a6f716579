"""Differences of pairs of rows: their lengths under a linear map, and their scatter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearfar.arrays import Floats, Indices, Mask, Matrix, Vector

# If the array of differences is larger than this number of bytes and there are more pairs than
# rows, the array is not stored. Sums over pairs are then computed from the rows.
_MAX_STORED_BYTES = 64_000_000


class PairDifferences:
    r"""Differences :math:`d = x_i - x_j` of pairs of rows, and sums over these differences.

    If there are too many pairs to store their differences, sums are computed from the rows: with
    the Laplacian :math:`\Lambda_w` of the graph of the pairs,
    :math:`\sum_{ij} w_{ij} d d^T = X^T \Lambda_w X`.

    Parameters
    ----------
    points : ndarray of shape (n_samples, n_features)
        The rows. The caller should center them if they are far from zero.
    pairs : array of int of shape (n_pairs, 2)
        Pairs of row indices.
    """

    def __init__(self, points: Matrix, pairs: ArrayLike) -> None:
        self.points = points
        self.pairs: Indices = np.asarray(pairs, np.intp).reshape(-1, 2)
        self._differences: Matrix | None = None
        self._incidence: sparse.csr_array | None = None
        n_pairs, p = len(self.pairs), points.shape[1]
        if 8 * n_pairs * p <= _MAX_STORED_BYTES or n_pairs <= len(points):
            self._differences = points[self.pairs[:, 0]] - points[self.pairs[:, 1]]
        else:
            numbers = np.arange(n_pairs)
            self._incidence = sparse.csr_array(
                (
                    np.r_[np.ones(n_pairs), -np.ones(n_pairs)],
                    (np.r_[numbers, numbers], self.pairs.T.ravel()),
                ),
                shape=(n_pairs, len(points)),
            )

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.pairs)

    def map_differences(self, L: Matrix) -> Matrix:
        """Return the mapped difference L d of each pair, of shape (n_pairs, n_components)."""
        if self._differences is not None:
            return np.asarray(self._differences @ L.T)
        assert self._incidence is not None
        return np.asarray(self._incidence @ (self.points @ L.T))

    def compute_squared_lengths(self, L: Matrix) -> Vector:
        """Return the squared length |L d|² of each pair.

        >>> X = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
        >>> PairDifferences(X, [[0, 1], [0, 2]]).compute_squared_lengths(np.eye(2)).tolist()
        [25.0, 2.0]
        """
        Z = self.map_differences(L)
        return np.einsum("ij,ij->i", Z, Z)

    def scatter(self, weights: Vector | None = None) -> Matrix:
        """Return the sum of w d dᵀ over the pairs, of shape (p, p).

        >>> X = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
        >>> PairDifferences(X, [[0, 1], [0, 2]]).scatter(np.array([1.0, 0.0])).tolist()
        [[9.0, 12.0], [12.0, 16.0]]
        """
        if self._differences is not None:
            D = self._differences
            return np.asarray(D.T @ (D if weights is None else D * weights[:, None]))
        assert self._incidence is not None
        weighted = (
            self._incidence if weights is None else self._incidence.multiply(weights[:, None])
        )
        laplacian = self._incidence.T @ sparse.csr_array(weighted)
        return np.asarray(self.points.T @ (laplacian @ self.points))

    def compute_half_gradient(self, Z: Matrix, weights: Vector) -> Matrix:
        """Return the sum of w (L d) dᵀ over the pairs, given ``Z = map_differences(L)``.

        The result has shape (n_components, p). Twice the result is the gradient with respect to L
        of a sum of functions of |L d|² whose derivatives are w.
        """
        if self._differences is not None:
            return np.asarray((Z * weights[:, None]).T @ self._differences)
        assert self._incidence is not None
        return np.asarray((self._incidence.T @ (Z * weights[:, None])).T @ self.points)


def mask_distinct_pairs(points: Floats, pairs: Indices, rounding: float = 0.0) -> Mask:
    """Return a mask of the pairs whose two points are not equal.

    With ``rounding``, two centered points count as equal if their distance is at most ``rounding``
    times the largest norm of a point.
    """
    if rounding == 0:
        return np.asarray((points[pairs[:, 0]] != points[pairs[:, 1]]).any(axis=1))
    differences = points[pairs[:, 0]] - points[pairs[:, 1]]
    longest = np.einsum("ij,ij->i", points, points).max(initial=0.0)
    return np.asarray(np.einsum("ij,ij->i", differences, differences) > rounding**2 * longest)
