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
from nearfar.search.candidates import center_of, middle, squared_norms

# Maximum number of entries per block of squared norms, so that the block stays in the cache.
_NUMBERS_AT_ONCE = 1 << 16
# Range of squared norms that need no scaling in float32.
_SAFE = 2.0**-60, 2.0**100


@dataclass(frozen=True)
class PlacedRows:
    """The rows ``(X - center) / scale``, computed on demand, with their squared norms ``squares``.

    If ``center`` is None, it is the origin. The scale is a power of two, so scaling is exact.
    """

    X: Floats
    center: Vector | None
    scale: float
    squares: Vector

    @property
    def is_placed(self) -> bool:
        """Whether the rows equal X, so that no conversion is needed."""
        return self.center is None and self.scale == 1

    def fill(self, where: slice | Indices, out: NDArray[Any]) -> None:
        """Write some of the rows to ``out``, rounding each entry once."""
        part = self.X[where]
        if self.scale != 1:
            exact = np.subtract(part, 0 if self.center is None else self.center, dtype=np.float64)
            np.multiply(exact, 1 / self.scale, out=out, casting="same_kind")
        elif self.center is None:
            out[...] = part
        else:
            dtype = np.result_type(part, out)
            center = self.center.astype(dtype, copy=False)
            np.subtract(part, center, out=out, dtype=dtype, casting="same_kind")

    def block(self, where: slice | Indices, dtype: np.dtype[Any]) -> Floats:
        """Return some of the rows. If no conversion is needed, they are taken from ``X``."""
        part = self.X[where]
        if self.is_placed and part.dtype == dtype:
            return np.ascontiguousarray(part)
        out: Floats = np.empty(part.shape, dtype)
        self.fill(where, out)
        return out


def placed(X: Floats, Q: Floats, n_threads: int = 1) -> tuple[PlacedRows, PlacedRows]:
    """Return rows and queries with a common center and scale.

    Raises a ``ValueError`` if squared distances would overflow.
    """
    center = _center(X)
    squares = _squares(X, center, n_threads)
    asked = squares if Q is X else _squares(Q, center, n_threads)
    largest = max(squares.max(initial=0), asked.max(initial=0))
    if not largest < np.finfo(np.float64).max / 16:
        found = max(np.abs(rows).max() for rows in (X, Q))
        raise ValueError(
            f"Squared distances overflow float64: the largest value found is {found:.3g}. Divide "
            "the data by a constant."
        )
    scale = 1.0
    if largest > 0 and not _SAFE[0] <= largest <= _SAFE[1]:
        scale = 2.0 ** round(np.log2(largest) / 2)
    with np.errstate(under="ignore"):
        squares, asked = squares / scale / scale, asked / scale / scale
    rows = PlacedRows(X, center, scale, squares)
    return rows, rows if Q is X else PlacedRows(Q, center, scale, asked)


def _center(X: Floats) -> Vector | None:
    """Return a point in the middle of the data, in their precision, or None for the origin."""

    center = center_of(X)
    if X.dtype != np.float64:
        center = center.astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        some = X[:: 1 + len(X) // 100].astype(np.float64)
        near = center @ center <= middle(squared_norms(some - center))
    return None if near else center


def _squares(X: Floats, center: Vector | None, n_threads: int) -> Vector:
    shift: Any = 0.0 if center is None else center

    def of(block: slice) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return squared_norms(np.subtract(X[block], shift, dtype=np.float64))

    size = max(1, _NUMBERS_AT_ONCE // max(1, X.shape[1]))
    blocks = split_rows(len(X), 8 * X.shape[1], max_rows=size)
    if len(X) <= size:
        return of(slice(None))
    return np.concatenate([*map_in_order(of, blocks, n_threads)])
