"""Rows that are near along one feature alone: class counts in slabs about queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.blocks import row_blocks
from nearfar.summaries.local_rows import LocalRows

#: Counts, which single precision holds exactly.
Singles = NDArray[np.float32]
#: Distances along a feature that differ by this share are equal, but for rounding: values of few
#: digits tie all the time, and 0.5 - 0.4 is not 0.4 - 0.3 in double precision.
EQUAL = 1e-10
# Slabs are cut for so many rows times features at once, whose masks stay in the cache.
_NUMBERS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class FeatureColumns:
    """Training rows feature by feature.

    Differences are taken before anything is divided by other than powers of two: integers equally
    far on either side of a query are so exactly.

    Parameters
    ----------
    columns : ndarray of shape (p, n)
        Features in units that are powers of two, near the deviations.
    unit : ndarray of shape (p,)
        These units.
    stretch : ndarray of shape (p,)
        By what squared differences are multiplied to be in standard units.
    codes : ndarray of shape (n,)
        Numbers of the classes.
    n_classes : int
        How many there are.
    """

    columns: Matrix
    unit: Vector
    stretch: Vector
    codes: Indices
    n_classes: int

    @classmethod
    def of(cls, rows: LocalRows) -> FeatureColumns:
        """Columns of training rows."""
        unit = np.exp2(np.round(np.log2(rows.scale)))
        columns = np.ascontiguousarray((rows.given / unit).T)
        return cls(columns, unit, (unit / rows.scale) ** 2, rows.codes, rows.n_classes)

    @cached_property
    def indicators(self) -> Singles:
        """Which class each row is of, (n, n_classes)."""
        return np.eye(self.n_classes, dtype=np.float32)[self.codes]

    def apart(self, given: Matrix, region: Indices) -> NDArray[np.float64]:
        """Differences of rows, ``region`` of shape (b, m), and b queries: (p, b, m)."""
        apart = np.take(self.columns, region, axis=1)
        apart -= (given / self.unit).T[:, :, None]
        return apart

    def lengths(self, given: Matrix, region: Indices, weights: Matrix) -> Matrix:
        """As :meth:`squares` of :meth:`apart`, under ``weights`` (b, p), feature by feature."""
        queries, total = given / self.unit, np.zeros(region.shape)
        for i, column in enumerate(self.columns):
            part = np.take(column, region, mode="clip")
            part -= queries[:, i, None]
            part *= part
            part *= (self.stretch[i] * weights[:, i])[:, None]
            total += part
        return total

    def slabs(
        self, given: Matrix, region: Indices, sizes: list[int]
    ) -> tuple[NDArray[np.float64], Singles]:
        """How far slabs of so many rows reach, and how many rows of each class are in them.

        Of shapes (s, b, p) and (s, b, p, n_classes) for s sizes; rows ``region`` (b, m) about b
        queries, of which those at the distance of the last count too.
        """
        (b, m), p, queries = region.shape, len(self.columns), given / self.unit
        last = np.asarray(sizes) - 1
        reach = np.empty((len(sizes), b, p))
        counts = np.empty((len(sizes), b, p, self.n_classes), np.float32)
        for block in row_blocks(b, 8 * len(sizes) * m * p, at_most=_NUMBERS_AT_ONCE // (m * p) + 1):
            rows = region[block]
            within = np.empty((len(sizes), len(rows), p, m), np.float32)
            for i, column in enumerate(self.columns):
                far = np.take(column, rows, mode="clip")
                far -= queries[block, i, None]
                np.abs(far, out=far)
                reach[:, block, i] = np.partition(far, last, axis=1)[:, last].T
                np.less_equal(far, reach[:, block, i, None] * (1 + EQUAL), out=within[:, :, i])
            counts[:, block] = np.matmul(within, self.indicators[rows])
        return reach, counts

    def squares(self, apart: NDArray[np.float64], weights: Matrix | None = None) -> Matrix:
        """Squared distances from differences (p, ...), under weights (p, ...) of features.

        Features are added one after the other, so that equal parts make equal sums.
        """
        factors = self.stretch.reshape(-1, *[1] * (apart.ndim - 1))
        factors = factors if weights is None else factors * weights
        total = np.zeros(apart.shape[1:])
        for along, factor in zip(apart, factors, strict=True):
            part = along * along
            part *= factor
            total += part
        return total


def slab_counts(far: NDArray[np.float64], size: int, indicators: Singles) -> Singles:
    """Rows of each class among the ``size`` nearest along each feature, (b, p, n_classes).

    ``far`` are distances along features, or their squares, (p, b, m); rows at the distance of the
    last count too. ``indicators`` of shape (b, m, n_classes) say which class the rows are of.
    """
    last = np.partition(far, size - 1, axis=2)[:, :, size - 1]
    return counts_within(far, last, indicators)


def counts_within(far: NDArray[np.float64], last: Matrix, indicators: Singles) -> Singles:
    """Rows of each class up to the distance ``last`` (p, b) along each feature."""
    within = (far <= last[:, :, None] * (1 + EQUAL)).astype(np.float32).transpose(1, 0, 2)
    return np.asarray(np.matmul(within, indicators))


def smallest(values: Matrix, k: int, equal: float = 0.0) -> Mask:
    """Which k of each row are smallest; of those about equal to the last, the first ones.

    ``equal`` is the share by which values may differ that are about equal.
    """
    cut = np.partition(values, k - 1, axis=1)[:, k - 1 : k]
    inside: Mask = values <= cut * (1 + equal)
    extra = np.count_nonzero(inside, axis=1) - k
    some = np.flatnonzero(extra)
    if some.size:
        last = inside[some] & (values[some] >= cut[some] * (1 - equal))
        left = np.count_nonzero(last, axis=1) - extra[some]
        inside[some] &= ~last | (np.cumsum(last, axis=1) <= left[:, None])
    return inside
