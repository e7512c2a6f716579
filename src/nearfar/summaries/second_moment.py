"""Second moments about a fixed shift, stored as rows or as a matrix."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from nearfar.arrays import Floats, Matrix
from nearfar.state import (
    Sizes,
    State,
    check_conditions,
    choice,
    flag,
    floats,
    indices,
    integer_value,
    none_or,
    optional,
)
from nearfar.summaries.row_moments import Products

# Minimum number of features for which only the upper triangle of the symmetric matrix is computed.
# It is copied to the lower triangle only when the matrix is read, because copying takes as long as
# computing the triangle.
_MIN_TRIANGLE_FEATURES = 256
# Number of rows and columns of a block when the upper triangle is copied to the lower triangle.
_MIRROR_BLOCK = 64


class SecondMoment(Products):
    """Sum of w (x-s)(x-s)ᵀ over rows x with weights w and class shifts s.

    The rows are from one class or from all classes. They are stored while there are fewer rows than
    features. Afterwards, the matrix is stored.
    """

    state: ClassVar = State(
        {
            "n_features": integer_value("p"),
            "storage": choice("auto", "dense"),
            "dense": none_or(floats("p", "p")),
            "half": optional(flag),
        }
    )
    #: Whether only the upper triangle of the matrix is valid.
    half = False

    def __init__(self, n_features: int, storage: str) -> None:
        self.n_features = n_features
        self.storage = storage
        self.dense: NDArray[np.float64] | None = None
        # Batches of rows minus their shifts, x - s.
        self.rows: list[NDArray[np.float64]] = []
        # Square root of the weight of each row.
        self.roots: list[NDArray[np.float64]] = []
        # Class index of each row.
        self.slots: list[NDArray[np.intp]] = []

    def _check_state(self, sizes: Sizes) -> None:
        conditions = {"rows": floats("m", "p"), "roots": floats("m"), "slots": indices("m")}
        for batch in zip(self.rows, self.roots, self.slots, strict=True):
            check_conditions(dict(zip(conditions, batch, strict=True)), conditions, dict(sizes))

    def compute_block_products(self, rows: Floats) -> NDArray[Any]:
        """Return Σ x xᵀ over a block of rows, to be passed to :meth:`add_block`.

        For many features, only the upper triangle is computed.
        """
        if self.n_features < _MIN_TRIANGLE_FEATURES:
            return self.compute_products(rows)
        (syrk,) = get_blas_funcs(("syrk",), (rows,))
        return np.asarray(syrk(1.0, rows.T, lower=1).T)

    def compute_cross_products(self, rows: Floats, other_rows: Floats) -> Floats:
        """Return Σ (x zᵀ + z xᵀ) over corresponding rows x and z of the two arrays."""
        cross = rows.T @ other_rows
        return cross + cross.T

    @property
    def n_entries(self) -> int:
        """Number of entries of the matrix."""
        return self.n_features**2

    @property
    def n_rows(self) -> int:
        """Number of stored rows."""
        return sum(len(rows) for rows in self.rows)

    def stores_rows(self, n_new: int) -> bool:
        """Return True if ``n_new`` more rows can be stored, so that no matrix is needed yet."""
        is_few = self.n_rows + n_new < self.n_features
        return self.storage == "auto" and self.dense is None and is_few

    def append(self, rows: Floats, roots: Floats, slots: NDArray[np.intp]) -> None:
        """Store more rows x - s, with sqrt(w) and the class of each row."""
        self.rows.append(np.asarray(rows, dtype=np.float64))
        self.roots.append(np.asarray(roots, dtype=np.float64))
        self.slots.append(slots)

    def snapshot(self) -> SecondMoment:
        """Return a copy that shares the matrix, but has its own lists of rows."""
        snapshot = copy(self)
        snapshot.rows, snapshot.roots, snapshot.slots = self.rows[:], self.roots[:], self.slots[:]
        return snapshot

    def convert_to_dense(self) -> None:
        """Compute the matrix from the stored rows, and delete the rows."""
        if self.dense is None:
            self.dense = self.compute_products(self.factor(np.zeros((1, self.n_features))))
            self.rows, self.roots, self.slots = [], [], []

    def add_block(self, moment: Floats) -> None:
        """Add the result of :meth:`compute_block_products` for more rows."""
        assert self.dense is not None
        self.dense += moment
        self.half = self.n_features >= _MIN_TRIANGLE_FEATURES

    @property
    def matrix(self) -> Matrix:
        """The symmetric matrix, with both triangles filled."""
        assert self.dense is not None
        if self.half:
            _mirror(self.dense)
            self.half = False
        return self.dense

    def absorb(self, other: SecondMoment, slots: NDArray[np.intp]) -> None:
        """Add another second moment that has the same shifts.

        ``slots`` holds the new index of each class of ``other``.
        """
        if other.dense is None and self.stores_rows(other.n_rows):
            for rows, roots, old in zip(other.rows, other.roots, other.slots, strict=True):
                self.append(rows, roots, slots[old])
            return
        self.convert_to_dense()
        other.convert_to_dense()
        self.dense = self.matrix + other.matrix

    def renumber(self, kept_slots: NDArray[np.intp], n_slots: int) -> None:
        """Keep only the rows of the classes ``kept_slots``, and number these classes from 0."""
        new = np.full(n_slots, -1, dtype=np.intp)
        new[kept_slots] = np.arange(len(kept_slots))
        for k, slots in enumerate(self.slots):
            is_kept = new[slots] >= 0
            self.rows[k], self.roots[k] = self.rows[k][is_kept], self.roots[k][is_kept]
            self.slots[k] = new[slots[is_kept]]

    def shift(self, delta: Floats, first: Floats, weight: Floats) -> SecondMoment:
        """Return the second moment about new shifts, which are the old shifts minus ``delta``."""
        shifted = copy(self)
        if self.dense is None:
            shifted.rows, shifted.roots, shifted.slots = [], [], []
            for rows, roots, slots in zip(self.rows, self.roots, self.slots, strict=True):
                # If delta has a single row, all rows belong to one class.
                offset = delta if len(delta) == 1 else delta[slots]
                shifted.append(rows + offset, roots, slots)
        else:
            shifted.dense = self.matrix + self.compute_cross_products(first, delta)
            shifted.half = False
            shifted.dense += self.compute_products(np.sqrt(weight)[:, None] * delta)
        return shifted

    def scatter(self, first: Matrix, weight: Floats) -> NDArray[np.float64]:
        """Return Σ w (x-m)(x-m)ᵀ, given the first moments and weights of the classes."""
        return self.read(lambda matrix: matrix, self.compute_products, first, weight)

    def read(
        self,
        of_matrix: Callable[[Matrix], NDArray[Any]],
        of_rows: Callable[[Matrix], NDArray[Any]],
        first: Matrix,
        weight: Floats,
    ) -> Matrix:
        """Return f(S) for a linear function f and the scatter S, without forming S.

        ``of_matrix`` is the function f. ``of_rows`` takes a matrix H and returns f(HᵀH).
        """
        if self.dense is None:
            return of_rows(self.factor(first / weight[:, None]))
        return of_matrix(self.matrix) - of_rows(first / np.sqrt(weight)[:, None])

    def dot(self, B: Floats, first: Floats, weight: Floats) -> NDArray[np.float64]:
        """Return the product of the scatter and a matrix B with few columns."""
        if self.dense is None:
            factor = self.factor(first / weight[:, None])
            return factor.T @ (factor @ B)
        return self.matrix @ B - first.T @ ((first @ B) / weight[:, None])

    def diagonal(self, first: Floats, weight: Floats) -> NDArray[np.float64]:
        """Return the diagonal of the scatter."""
        if self.dense is None:
            return (self.factor(first / weight[:, None]) ** 2).sum(axis=0)
        return self.get_squares(self.dense) - (1 / weight) @ first**2

    def trace(self, first: Floats, weight: Floats) -> float:
        """Return the trace of the scatter."""
        return float(self.diagonal(first, weight).sum())

    def factor(self, means: Floats) -> NDArray[np.float64]:
        """Return a matrix with rows sqrt(w) (x-m). The means m are relative to the shifts."""
        if not self.rows:
            return np.zeros((0, self.n_features))
        rows, roots = np.concatenate(self.rows), np.concatenate(self.roots)
        slots = np.concatenate(self.slots)
        centers = means if len(means) == 1 else means[slots]
        return roots[:, None] * (rows - centers)

    def project(self, B: Floats) -> SecondMoment:
        """Return the second moment of the projected rows ``x @ B``."""
        projected = SecondMoment(B.shape[1], self.storage)
        if self.dense is not None:
            projected.dense = B.T @ self.matrix @ B
            return projected
        projected.rows = [rows @ B for rows in self.rows]
        projected.roots, projected.slots = list(self.roots), list(self.slots)
        return projected


def _mirror(matrix: Matrix) -> None:
    """Copy the upper triangle to the lower one, in place."""
    for start in range(0, len(matrix), _MIRROR_BLOCK):
        span, later = slice(start, start + _MIRROR_BLOCK), slice(start + _MIRROR_BLOCK, None)
        matrix[later, span] = matrix[span, later].T
        corner = np.triu(matrix[span, span])
        matrix[span, span] = corner + np.triu(corner, 1).T
