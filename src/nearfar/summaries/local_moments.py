"""Weights, means and scatters of classes around many points at once.

A point gives a weight to each training row, most of them 0. Neither neighbours nor their features
are gathered: with rows sorted by class, all sums are matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import row_blocks

# So much memory for products of the features of rows.
_PRODUCTS = 2**25


@dataclass(frozen=True)
class ClassSums:
    """What b points see of c classes.

    Parameters
    ----------
    weights : ndarray of shape (b, c)
        Sums of the weights of rows.
    means : ndarray of shape (b, c, p)
        Weighted means; zero for a class without weight.
    """

    weights: Matrix
    means: NDArray[np.float64]

    def shares(self) -> Matrix:
        """Shares of the classes, of shape (b, c)."""
        totals = self.weights.sum(axis=1, keepdims=True)
        return np.asarray(self.weights / np.where(totals > 0, totals, 1.0))

    def between(self) -> NDArray[np.float64]:
        """Scatters of the class means about their own mean, by shares, of shape (b, p, p)."""
        apart = self.apart()
        return np.matmul(apart.transpose(0, 2, 1), apart)

    def apart(self) -> NDArray[np.float64]:
        """Means less their own mean, times roots of shares: factors of their scatter."""
        shares = self.shares()
        apart = self.means - np.matmul(shares[:, None, :], self.means)
        apart *= np.sqrt(shares)[:, :, None]
        return apart


class LocalMoments:
    """Sums over training rows, by class, for weights that change from point to point.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
        Training rows, about zero.
    codes : ndarray of shape (n,)
        Numbers of their classes.
    n_classes : int
        How many classes there are.
    """

    def __init__(self, rows: Matrix, codes: Indices, n_classes: int) -> None:
        #: The rows sorted by class, and where each of them stands then.
        self.order = np.argsort(codes, kind="stable")
        self.places = np.argsort(self.order)
        self._rows = np.ascontiguousarray(rows[self.order])
        self._ends = np.cumsum(np.bincount(codes, minlength=n_classes))

    def spread(self, found: Indices, weights: Matrix | float) -> Matrix:
        """Weights of the rows that each point has found as (b, n), the rows of a class in turn."""
        spread = np.zeros((len(found), len(self._rows)))
        spread[np.arange(len(found))[:, None], self.places[found]] = weights
        return spread

    def class_sums(self, ordered: Matrix) -> ClassSums:
        """Of weights that are spread."""
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
        """Rows beside a column of ones, so that one product sums weights too."""
        return np.column_stack([self._rows, np.ones(len(self._rows))])

    def second_moments(self, ordered: Matrix) -> NDArray[np.float64]:
        """Weighted sums of x x', of shape (b, p, p)."""
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
    """Products of two features of each row, each pair once, of shape (n, p (p + 1) / 2)."""
    upper = np.triu_indices(rows.shape[1])
    return rows[:, upper[0]] * rows[:, upper[1]]
