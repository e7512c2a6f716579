"""Class counts in slabs. A slab holds the rows that are close to a query along one feature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.summaries.local_rows import LocalRows

#: Type of class counts. float32 represents integers up to 2**24 exactly.
Singles = NDArray[np.float32]
#: Maximum relative difference at which two distances along a feature are treated as equal. Values
#: with few digits often have ties, but rounding hides them: 0.5 - 0.4 is not 0.4 - 0.3 in float64.
EQUAL = 1e-10
# Maximum number of mask entries (rows times features) computed at once, so that they stay in cache.
_MAX_MASK_ENTRIES = 1 << 20


@dataclass(frozen=True)
class FeatureColumns:
    """Training rows stored by feature.

    Features are divided only by powers of two before differences are taken. Integers at equal
    distance on both sides of a query therefore have exactly equal differences.

    Parameters
    ----------
    columns : ndarray of shape (p, n)
        Features, divided by powers of two close to their standard deviations.
    unit : ndarray of shape (p,)
        Power of two by which each feature was divided.
    stretch : ndarray of shape (p,)
        Factors that convert squared differences to standard units.
    codes : ndarray of shape (n,)
        Class code of each row.
    n_classes : int
        Number of classes.
    """

    columns: Matrix
    unit: Vector
    stretch: Vector
    codes: Indices
    n_classes: int

    @classmethod
    def from_rows(cls, rows: LocalRows) -> FeatureColumns:
        """Create the columns from training rows."""
        unit = np.exp2(np.round(np.log2(rows.scale)))
        columns = np.ascontiguousarray((rows.X / unit).T)
        return cls(columns, unit, (unit / rows.scale) ** 2, rows.codes, rows.n_classes)

    @cached_property
    def indicators(self) -> Singles:
        """One-hot encoded classes, of shape (n, n_classes)."""
        return np.eye(self.n_classes, dtype=np.float32)[self.codes]

    def compute_differences(self, queries: Matrix, region: Indices) -> NDArray[np.float64]:
        """Return the differences between b queries and m rows per query, of shape (p, b, m).

        ``region`` holds the indices of the rows and has the shape (b, m).
        """
        differences = np.take(self.columns, region, axis=1)
        differences -= (queries / self.unit).T[:, :, None]
        return differences

    def compute_weighted_squares(self, queries: Matrix, region: Indices, weights: Matrix) -> Matrix:
        """Return weighted squared distances, of shape (b, m), for feature weights of shape (b, p).

        Features are added one after the other, which needs little memory.
        """
        scaled_queries, total = queries / self.unit, np.zeros(region.shape)
        for i, column in enumerate(self.columns):
            squares = np.take(column, region, mode="clip")
            squares -= scaled_queries[:, i, None]
            squares *= squares
            squares *= (self.stretch[i] * weights[:, i])[:, None]
            total += squares
        return total

    def find_slabs(
        self, queries: Matrix, region: Indices, sizes: list[int]
    ) -> tuple[NDArray[np.float64], Singles]:
        """Find slabs around the queries, and return their half-widths and class counts.

        There is one slab per size, query and feature. A slab of size k holds the k rows that are
        closest to the query along the feature, and all rows tied with the last of these rows.
        ``region`` of shape (b, m) holds the indices of the rows considered for each of b queries.
        For s sizes, the results have the shapes (s, b, p) and (s, b, p, n_classes).
        """
        (b, m), p, scaled_queries = region.shape, len(self.columns), queries / self.unit
        last = np.asarray(sizes) - 1
        reach = np.empty((len(sizes), b, p))
        counts = np.empty((len(sizes), b, p, self.n_classes), np.float32)
        for block in split_rows(
            b, 8 * len(sizes) * m * p, max_rows=_MAX_MASK_ENTRIES // (m * p) + 1
        ):
            rows = region[block]
            within = np.empty((len(sizes), len(rows), p, m), np.float32)
            for i, column in enumerate(self.columns):
                distances = np.take(column, rows, mode="clip")
                distances -= scaled_queries[block, i, None]
                np.abs(distances, out=distances)
                reach[:, block, i] = np.partition(distances, last, axis=1)[:, last].T
                np.less_equal(
                    distances, reach[:, block, i, None] * (1 + EQUAL), out=within[:, :, i]
                )
            counts[:, block] = np.matmul(within, self.indicators[rows])
        return reach, counts

    def compute_squares(
        self, differences: NDArray[np.float64], weights: Matrix | None = None
    ) -> Matrix:
        """Compute squared distances from feature differences and optional feature weights.

        Both arrays have the shape (p, ...). Features are added one after the other, so that equal
        terms give exactly equal sums.
        """
        factors = self.stretch.reshape(-1, *[1] * (differences.ndim - 1))
        factors = factors if weights is None else factors * weights
        total = np.zeros(differences.shape[1:])
        for difference, factor in zip(differences, factors, strict=True):
            square = difference * difference
            square *= factor
            total += square
        return total


def count_in_slabs(distances: NDArray[np.float64], size: int, indicators: Singles) -> Singles:
    """Count the rows of each class among the ``size`` nearest rows along each feature.

    Rows tied with the last of these rows are counted as well. ``distances`` of shape (p, b, m)
    holds the distances along each feature, or their squares. ``indicators`` of shape
    (b, m, n_classes) holds the one-hot encoded classes of the rows. The counts have the shape
    (b, p, n_classes).
    """
    last = np.partition(distances, size - 1, axis=2)[:, :, size - 1]
    return count_within(distances, last, indicators)


def count_within(distances: NDArray[np.float64], last: Matrix, indicators: Singles) -> Singles:
    """Count the rows of each class within a maximum distance along each feature.

    ``last`` of shape (p, b) holds the maximum distances. The other arguments are as in
    :func:`count_in_slabs`.
    """
    within = (distances <= last[:, :, None] * (1 + EQUAL)).astype(np.float32).transpose(1, 0, 2)
    return np.asarray(np.matmul(within, indicators))


def mask_smallest(values: Matrix, k: int, tolerance: float = 0.0) -> Mask:
    """Return a mask of the k smallest values of each row. Ties are broken by position.

    Values count as tied if their relative difference is at most ``tolerance``.
    """
    cut = np.partition(values, k - 1, axis=1)[:, k - 1 : k]
    inside: Mask = values <= cut * (1 + tolerance)
    n_extra = np.count_nonzero(inside, axis=1) - k
    rows = np.flatnonzero(n_extra)
    if rows.size:
        is_last = inside[rows] & (values[rows] >= cut[rows] * (1 - tolerance))
        n_kept = np.count_nonzero(is_last, axis=1) - n_extra[rows]
        inside[rows] &= ~is_last | (np.cumsum(is_last, axis=1) <= n_kept[:, None])
    return inside
