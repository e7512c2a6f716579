"""Weights, means and scatters of classes around many points at once.

Each point assigns a weight to every training row; most weights are 0. With rows sorted by class,
all sums are matrix products, and neither neighbors nor their features have to be gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import split_rows

# Maximum size, in bytes, of a stored array with the products of all pairs of features for each row.
# A larger array is computed in blocks each time it is needed.
_MAX_PRODUCT_BYTES = 2**25


@dataclass(frozen=True)
class ClassSums:
    """Weight and weighted mean of each class, computed around each of b points.

    Parameters
    ----------
    weights : ndarray of shape (b, c)
        Sum of the row weights of each class.
    means : ndarray of shape (b, c, p)
        Weighted class means. The mean of a class without weight is zero.
    """

    weights: Matrix
    means: NDArray[np.float64]

    def compute_fractions(self) -> Matrix:
        """Return each class weight as a fraction of the total weight, of shape (b, c)."""
        totals = self.weights.sum(axis=1, keepdims=True)
        return np.asarray(self.weights / np.where(totals > 0, totals, 1.0))

    def compute_between_scatters(self) -> NDArray[np.float64]:
        """Return the weighted scatters of the class means about their mean, of shape (b, p, p)."""
        factors = self.compute_between_factors()
        return np.matmul(factors.transpose(0, 2, 1), factors)

    def compute_between_factors(self) -> NDArray[np.float64]:
        """Return b matrices H of shape (c, p) such that each ``H.T @ H`` is a between scatter.

        The rows of H are the centered class means times the square roots of the class fractions.
        """
        fractions = self.compute_fractions()
        factors = self.means - np.matmul(fractions[:, None, :], self.means)
        factors *= np.sqrt(fractions)[:, :, None]
        return factors


class LocalMoments:
    """Weighted sums over the training rows of each class, with separate weights for each point.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
        Centered training rows.
    codes : ndarray of shape (n,)
        Class code of each row.
    n_classes : int
        Number of classes.
    """

    def __init__(self, rows: Matrix, codes: Indices, n_classes: int) -> None:
        #: Row indices, sorted by class.
        self.order = np.argsort(codes, kind="stable")
        #: Position of each row in ``order``.
        self.places = np.argsort(self.order)
        self._rows = np.ascontiguousarray(rows[self.order])
        self._ends = np.cumsum(np.bincount(codes, minlength=n_classes))

    def make_dense_weights(self, indices: Indices, weights: Matrix | float) -> Matrix:
        """Return an array (b, n) with the weights of the rows ``indices``, and 0 for other rows.

        The columns are the rows, sorted by class.
        """
        dense = np.zeros((len(indices), len(self._rows)))
        dense[np.arange(len(indices))[:, None], self.places[indices]] = weights
        return dense

    def compute_class_sums(self, weights: Matrix) -> ClassSums:
        """Return class weights and class means for weights from :meth:`make_dense_weights`."""
        sums = np.empty((len(weights), len(self._ends), self._rows.shape[1] + 1))
        start = 0
        for code, end in enumerate(self._ends):
            sums[:, code] = weights[:, start:end] @ self._augmented_rows[start:end]
            start = end
        totals = np.ascontiguousarray(sums[:, :, -1])
        means = sums[:, :, :-1] / np.where(totals > 0, totals, 1.0)[:, :, None]
        return ClassSums(totals, means)

    @cached_property
    def _augmented_rows(self) -> Matrix:
        """Rows with an additional column of ones, which is used to sum the weights."""
        return np.column_stack([self._rows, np.ones(len(self._rows))])

    def compute_second_moments(self, weights: Matrix) -> NDArray[np.float64]:
        """Return the sum of w x x' over the rows x for each of b points, of shape (b, p, p)."""
        b, p = len(weights), self._rows.shape[1]
        upper = np.triu_indices(p)
        flat = np.zeros((b, len(upper[0])))
        for block, products in self._iterate_products():
            flat += weights[:, block] @ products
        moments = np.empty((b, p, p))
        moments[:, upper[0], upper[1]] = flat
        moments[:, upper[1], upper[0]] = flat
        return moments

    def _iterate_products(self) -> Iterator[tuple[slice, Matrix]]:
        n, p = self._rows.shape
        size = p * (p + 1) // 2
        if 8 * n * size <= _MAX_PRODUCT_BYTES:
            yield slice(0, n), self._cached_products
            return
        for block in split_rows(n, 1, max_rows=_MAX_PRODUCT_BYTES // (16 * size) + 1):
            yield block, _compute_products(self._rows[block])

    @cached_property
    def _cached_products(self) -> Matrix:
        return _compute_products(self._rows)


def _compute_products(rows: Matrix) -> Matrix:
    """Multiply all pairs of features in each row. The result has shape (n, p (p + 1) / 2)."""
    upper = np.triu_indices(rows.shape[1])
    return rows[:, upper[0]] * rows[:, upper[1]]
