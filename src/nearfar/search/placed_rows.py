"""Rows, centered and scaled block by block so that their squares fit into float32.

No copy of all rows is made: float16, memory-mapped and float64 rows are converted to the precision
of a matrix product only for the block that is multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.blocks import map_in_order, split_rows
from nearfar.search.candidates import compute_center, compute_squared_norms, compute_upper_median

# Maximum number of entries per block of squared norms, so that the block stays in the cache.
_MAX_ENTRIES_PER_BLOCK = 1 << 16
# Rows whose squared norms are in this range need no scaling in float32.
_SAFE_RANGE = 2.0**-60, 2.0**100


@dataclass(frozen=True)
class PlacedRows:
    """Rows ``(X - center) / scale``, computed on demand, with their squared norms ``squares``.

    If ``center`` is None, it is the origin. The scale is a power of two, so scaling is exact.
    """

    X: Floats
    center: Vector | None
    scale: float
    squares: Vector

    @property
    def is_unchanged(self) -> bool:
        """Whether the rows equal X, so that no conversion is needed."""
        return self.center is None and self.scale == 1

    def fill(self, index: slice | Indices, out: NDArray[Any]) -> None:
        """Write the rows at ``index`` to ``out``, rounding each entry once."""
        rows = self.X[index]
        if self.scale != 1:
            exact = np.subtract(rows, 0 if self.center is None else self.center, dtype=np.float64)
            np.multiply(exact, 1 / self.scale, out=out, casting="same_kind")
        elif self.center is None:
            out[...] = rows
        else:
            dtype = np.result_type(rows, out)
            center = self.center.astype(dtype, copy=False)
            np.subtract(rows, center, out=out, dtype=dtype, casting="same_kind")

    def block(self, index: slice | Indices, dtype: np.dtype[Any]) -> Floats:
        """Return the rows at ``index``, centered, scaled and converted to ``dtype``."""
        rows = self.X[index]
        if self.is_unchanged and rows.dtype == dtype:
            return np.ascontiguousarray(rows)
        out: Floats = np.empty(rows.shape, dtype)
        self.fill(index, out)
        return out


def place_rows(X: Floats, Q: Floats, n_threads: int = 1) -> tuple[PlacedRows, PlacedRows]:
    """Return rows and queries, centered and scaled in the same way.

    Raises a ``ValueError`` if squared distances would overflow.
    """
    center = _choose_center(X)
    squares = _compute_squares(X, center, n_threads)
    query_squares = squares if Q is X else _compute_squares(Q, center, n_threads)
    largest = max(squares.max(initial=0), query_squares.max(initial=0))
    if not largest < np.finfo(np.float64).max / 16:
        max_abs = max(np.abs(rows).max() for rows in (X, Q))
        raise ValueError(
            f"Squared distances overflow float64: the largest absolute value is {max_abs:.3g}. "
            "Divide the data by a constant."
        )
    scale = 1.0
    if largest > 0 and not _SAFE_RANGE[0] <= largest <= _SAFE_RANGE[1]:
        scale = 2.0 ** round(np.log2(largest) / 2)
    with np.errstate(under="ignore"):
        squares, query_squares = squares / scale / scale, query_squares / scale / scale
    rows = PlacedRows(X, center, scale, squares)
    return rows, rows if Q is X else PlacedRows(Q, center, scale, query_squares)


def _choose_center(X: Floats) -> Vector | None:
    """Return a point in the middle of the data, or None if the origin is close enough.

    The point is rounded to the precision of the data.
    """

    center = compute_center(X)
    if X.dtype != np.float64:
        center = center.astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sample = X[:: 1 + len(X) // 100].astype(np.float64)
        is_near_origin = center @ center <= compute_upper_median(
            compute_squared_norms(sample - center)
        )
    return None if is_near_origin else center


def _compute_squares(X: Floats, center: Vector | None, n_threads: int) -> Vector:
    shift: Any = 0.0 if center is None else center

    def compute_block(block: slice) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return compute_squared_norms(np.subtract(X[block], shift, dtype=np.float64))

    size = max(1, _MAX_ENTRIES_PER_BLOCK // max(1, X.shape[1]))
    blocks = split_rows(len(X), 8 * X.shape[1], max_rows=size)
    if len(X) <= size:
        return compute_block(slice(None))
    return np.concatenate([*map_in_order(compute_block, blocks, n_threads)])
