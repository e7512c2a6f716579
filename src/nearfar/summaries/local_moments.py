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
from nearfar.blocks import row_blocks

# Maximum memory, in bytes, for the products of features of all rows.
_PRODUCTS = 2**25


@dataclass(frozen=True)
class ClassSums:
    """Weighted sums of c classes around each of b points.

    Parameters
    ----------
    weights : ndarray of shape (b, c)
        Sums of the row weights.
    means : ndarray of shape (b, c, p)
        Weighted means. They are zero for a class without weight.
    """

    weights: Matrix
    means: NDArray[np.float64]

    def shares(self) -> Matrix:
        """Return the fraction of the total weight of each class, of shape (b, c)."""
        totals = self.weights.sum(axis=1, keepdims=True)
        return np.asarray(self.weights / np.where(totals > 0, totals, 1.0))

    def between(self) -> NDArray[np.float64]:
        """Return the weighted scatters of the class means about their mean, of shape (b, p, p)."""
        apart = self.apart()
        return np.matmul(apart.transpose(0, 2, 1), apart)

    def apart(self) -> NDArray[np.float64]:
        """Return factors of the scatter: centered means times the root of the class fractions."""
        shares = self.shares()
        apart = self.means - np.matmul(shares[:, None, :], self.means)
        apart *= np.sqrt(shares)[:, :, None]
        return apart


class LocalMoments:
    """Sums over training rows by class, for weights that differ between points.

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
        #: Order that sorts the rows by class, and the position of each row in this order.
        self.order = np.argsort(codes, kind="stable")
        self.places = np.argsort(self.order)
        self._rows = np.ascontiguousarray(rows[self.order])
        self._ends = np.cumsum(np.bincount(codes, minlength=n_classes))

    def spread(self, found: Indices, weights: Matrix | float) -> Matrix:
        """Return the weights of the found rows as a dense array (b, n), sorted by class."""
        spread = np.zeros((len(found), len(self._rows)))
        spread[np.arange(len(found))[:, None], self.places[found]] = weights
        return spread

    def class_sums(self, ordered: Matrix) -> ClassSums:
        """Return the class sums for weights returned by :meth:`spread`."""
        sums = np.empty((len(ordered), len(self._ends), self._rows.shape[1] + 1))
        start = 0
        for code, end in enumerate(self._ends):
            sums[:, code] = ordered[:, start:end] @ self._with_ones[start:end]
            start = end
        totals = np.ascontiguousarray(sums[:, :, -1])
        means = sums[:, :, :-1] / np.where(totals > 0, totals, 1.0)[:, :, None]
        return ClassSums(totals, means)

    @cached_property
    def _with_ones(self) -> Matrix:
        """Rows with an additional column of ones, so that one product also sums the weights."""
        return np.column_stack([self._rows, np.ones(len(self._rows))])

    def second_moments(self, ordered: Matrix) -> NDArray[np.float64]:
        """Return the weighted sums of x x', of shape (b, p, p)."""
        b, p = len(ordered), self._rows.shape[1]
        upper = np.triu_indices(p)
        flat = np.zeros((b, len(upper[0])))
        for block, products in self._products():
            flat += ordered[:, block] @ products
        moments = np.empty((b, p, p))
        moments[:, upper[0], upper[1]] = flat
        moments[:, upper[1], upper[0]] = flat
        return moments

    def _products(self) -> Iterator[tuple[slice, Matrix]]:
        n, p = self._rows.shape
        size = p * (p + 1) // 2
        if 8 * n * size <= _PRODUCTS:
            yield slice(0, n), self._all_products
            return
        for block in row_blocks(n, 1, at_most=_PRODUCTS // (16 * size) + 1):
            yield block, _products(self._rows[block])

    @cached_property
    def _all_products(self) -> Matrix:
        return _products(self._rows)


def _products(rows: Matrix) -> Matrix:
    """Return the products of all pairs of features of each row, of shape (n, p (p + 1) / 2)."""
    upper = np.triu_indices(rows.shape[1])
    return rows[:, upper[0]] * rows[:, upper[1]]
