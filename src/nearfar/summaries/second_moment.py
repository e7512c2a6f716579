"""Second moments about a fixed shift, as rows while they are few, else as a matrix."""

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
    check_words,
    choice,
    flag,
    floats,
    indices,
    none_or,
    optional,
    whole,
)
from nearfar.summaries.row_moments import Products

# From so many features on, NumPy takes as long to mirror the triangle of a batch's products as to
# compute it: triangles are summed, and mirrored when the sum is read.
_WIDE = 256
_MIRRORED = 64


class SecondMoment(Products):
    """Σ w (x-s)(x-s)ᵀ of one class or of all: as rows while they are few, else as a matrix."""

    state: ClassVar = State(
        {
            "n_features": whole("p"),
            "storage": choice("auto", "dense"),
            "dense": none_or(floats("p", "p")),
            "half": optional(flag),
        }
    )
    #: Whether the matrix is right above the diagonal only.
    half = False

    def __init__(self, n_features: int, storage: str) -> None:
        self.n_features = n_features
        self.storage = storage
        self.dense: NDArray[np.float64] | None = None
        self.rows: list[NDArray[np.float64]] = []  # x - s
        self.roots: list[NDArray[np.float64]] = []  # sqrt(w)
        self.slots: list[NDArray[np.intp]] = []  # class of each row

    def _check_state(self, sizes: Sizes) -> None:
        words = {"rows": floats("m", "p"), "roots": floats("m"), "slots": indices("m")}
        for batch in zip(self.rows, self.roots, self.slots, strict=True):
            check_words(dict(zip(words, batch, strict=True)), words, dict(sizes))

    def of_block(self, rows: Floats) -> NDArray[Any]:
        """Σ x xᵀ, of many features above the diagonal only: for :meth:`add_block`."""
        if self.n_features < _WIDE:
            return self.products(rows)
        (syrk,) = get_blas_funcs(("syrk",), (rows,))
        return np.asarray(syrk(1.0, rows.T, lower=1).T)

    def crossed(self, rows: Floats, others: Floats) -> Floats:
        """Σ x zᵀ + z xᵀ over rows x and others z."""
        cross = rows.T @ others
        return cross + cross.T

    @property
    def n_entries(self) -> int:
        """Numbers in the matrix."""
        return self.n_features**2

    @property
    def n_rows(self) -> int:
        """Rows kept."""
        return sum(len(rows) for rows in self.rows)

    def keeps_rows(self, n_more: int) -> bool:
        """Whether so many more rows would still be kept as rows."""
        few = self.n_rows + n_more < self.n_features
        return self.storage == "auto" and self.dense is None and few

    def append(self, rows: Floats, roots: Floats, slots: NDArray[np.intp]) -> None:
        """Keep more rows x - s, with sqrt(w) and the class of each."""
        self.rows.append(np.asarray(rows, dtype=np.float64))
        self.roots.append(np.asarray(roots, dtype=np.float64))
        self.slots.append(slots)

    def snapshot(self) -> SecondMoment:
        """What is kept now, to go back to. It shares the matrix, but not the lists of rows."""
        image = copy(self)
        image.rows, image.roots, image.slots = self.rows[:], self.roots[:], self.slots[:]
        return image

    def make_dense(self) -> None:
        """From rows to the matrix, for good."""
        if self.dense is None:
            self.dense = self.products(self.factor(np.zeros((1, self.n_features))))
            self.rows, self.roots, self.slots = [], [], []

    def add_block(self, moment: Floats) -> None:
        """Add what :meth:`of_block` has of some rows."""
        assert self.dense is not None
        self.dense += moment
        self.half = self.n_features >= _WIDE

    @property
    def matrix(self) -> Matrix:
        """The whole matrix."""
        assert self.dense is not None
        if self.half:
            _mirror(self.dense)
            self.half = False
        return self.dense

    def absorb(self, other: SecondMoment, slots: NDArray[np.intp]) -> None:
        """Add another moment about the same shifts; ``slots`` renumbers its classes."""
        if other.dense is None and self.keeps_rows(other.n_rows):
            for rows, roots, old in zip(other.rows, other.roots, other.slots, strict=True):
                self.append(rows, roots, slots[old])
            return
        self.make_dense()
        other.make_dense()
        self.dense = self.matrix + other.matrix

    def renumber(self, kept: NDArray[np.intp], n_slots: int) -> None:
        """Keep the rows of some classes, which become classes 0, 1, … in the order given."""
        new = np.full(n_slots, -1, dtype=np.intp)
        new[kept] = np.arange(len(kept))
        for k, slots in enumerate(self.slots):
            stay = new[slots] >= 0
            self.rows[k], self.roots[k] = self.rows[k][stay], self.roots[k][stay]
            self.slots[k] = new[slots[stay]]

    def moved(self, delta: Floats, first: Floats, weight: Floats) -> SecondMoment:
        """The moment about shifts that lie ``delta`` lower."""
        image = copy(self)
        if self.dense is None:
            image.rows, image.roots, image.slots = [], [], []
            for rows, roots, slots in zip(self.rows, self.roots, self.slots, strict=True):
                # One row of delta: this moment is of one class, whatever its slot.
                offset = delta if len(delta) == 1 else delta[slots]
                image.append(rows + offset, roots, slots)
        else:
            image.dense = self.matrix + self.crossed(first, delta)
            image.half = False
            image.dense += self.products(np.sqrt(weight)[:, None] * delta)
        return image

    def scatter(self, first: Matrix, weight: Floats) -> NDArray[np.float64]:
        """Σ w (x-m)(x-m)ᵀ, given the first moments and weights of its classes."""
        return self.read(lambda matrix: matrix, self.products, first, weight)

    def read(
        self,
        of_matrix: Callable[[Matrix], NDArray[Any]],
        of_rows: Callable[[Matrix], NDArray[Any]],
        first: Matrix,
        weight: Floats,
    ) -> Matrix:
        """A linear function of the scatter: of a matrix, and of HᵀH for rows H."""
        if self.dense is None:
            return of_rows(self.factor(first / weight[:, None]))
        return of_matrix(self.matrix) - of_rows(first / np.sqrt(weight)[:, None])

    def dot(self, B: Floats, first: Floats, weight: Floats) -> NDArray[np.float64]:
        """The scatter times a thin matrix."""
        if self.dense is None:
            factor = self.factor(first / weight[:, None])
            return factor.T @ (factor @ B)
        return self.matrix @ B - first.T @ ((first @ B) / weight[:, None])

    def diagonal(self, first: Floats, weight: Floats) -> NDArray[np.float64]:
        """Diagonal of the scatter."""
        if self.dense is None:
            return (self.factor(first / weight[:, None]) ** 2).sum(axis=0)
        return self.squares(self.dense) - (1 / weight) @ first**2

    def trace(self, first: Floats, weight: Floats) -> float:
        """Trace of the scatter."""
        return float(self.diagonal(first, weight).sum())

    def factor(self, means: Floats) -> NDArray[np.float64]:
        """Rows sqrt(w) (x-m); ``means`` are relative to the shifts."""
        if not self.rows:
            return np.zeros((0, self.n_features))
        rows, roots = np.concatenate(self.rows), np.concatenate(self.roots)
        slots = np.concatenate(self.slots)
        centers = means if len(means) == 1 else means[slots]
        return roots[:, None] * (rows - centers)

    def project(self, B: Floats) -> SecondMoment:
        """The moment of the rows times B."""
        image = SecondMoment(B.shape[1], self.storage)
        if self.dense is not None:
            image.dense = B.T @ self.matrix @ B
            return image
        image.rows = [rows @ B for rows in self.rows]
        image.roots, image.slots = list(self.roots), list(self.slots)
        return image


def _mirror(matrix: Matrix) -> None:
    """What is above the diagonal also below it."""
    for start in range(0, len(matrix), _MIRRORED):
        here, after = slice(start, start + _MIRRORED), slice(start + _MIRRORED, None)
        matrix[after, here] = matrix[here, after].T
        corner = np.triu(matrix[here, here])
        matrix[here, here] = corner + np.triu(corner, 1).T
