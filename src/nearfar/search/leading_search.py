"""Exact neighbors in the leading coordinates of rows, for several numbers of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.blocks import map_in_order, split_rows
from nearfar.search.block_search import kth_at_most
from nearfar.search.candidates import (
    center_of,
    centered,
    check_n_neighbors,
    first_of_pairs,
    pair_distances,
)

# Maximum number of queries per block.
_AT_ONCE = 128


def leading_neighbors(
    X: Floats, numbers: Sequence[int], asked: Indices, *, n_neighbors: int, n_threads: int = 1
) -> list[Indices]:
    """Return the nearest other rows of each row in ``asked``, for each number q of coordinates.

    The result for each q in ``numbers``, which ascend, equals
    ``kneighbors(X[:, :q], n_neighbors=k)[1][asked]``. All are found in one pass: squared distances
    in single precision are extended by the added coordinates, and every row that may be among the
    nearest is measured in float64.

    Cost: O(n (q + m)) for each row in ``asked`` and m numbers up to q, in matrix products. Memory
    in addition to the result: a copy of the data, and blocks within scikit-learn's
    ``working_memory``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [1.0, 5.0], [2.0, 0.0]])
    >>> one, both = leading_neighbors(X, [1, 2], np.arange(3), n_neighbors=1)
    >>> one.ravel(), both.ravel()
    (array([1, 0, 1]), array([2, 0, 0]))
    """
    check_n_neighbors(n_neighbors, len(X), without_self=True)
    Z = np.asarray(centered(X, center_of(X), np.dtype(np.float64)), np.float64)
    Z /= np.abs(Z).max(initial=0) or 1.0
    growth = [_Growth(Z, *ends) for ends in zip([0, *numbers[:-1]], numbers, strict=True)]
    leading = [X[:, :q] for q in numbers]

    def work(block: slice) -> list[Indices]:
        own = asked[block]
        squares = np.zeros((len(own), len(X)), np.float32)
        squares[np.arange(len(own)), own] = np.inf
        found = []
        for rows, grown in zip(leading, growth, strict=True):
            grown.add(squares, own)
            near = kth_at_most(squares, n_neighbors).astype(np.float64)
            # Round up and compare in float32: comparing two precisions takes twice as long.
            reach = np.nextafter(
                (near + 2 * grown.errors(near, own)).astype(np.float32), np.inf, dtype=np.float32
            )
            owner, columns = np.divmod(np.flatnonzero(squares <= reach[:, None]), len(X))
            distances = pair_distances(rows, rows[own], columns, owner)
            counts = np.bincount(owner, minlength=len(own))
            found.append(first_of_pairs(owner, columns, distances, counts, n_neighbors)[1])
        return found

    blocks = split_rows(len(asked), 24 * len(X), max_rows=_AT_ONCE)
    parts = zip(*map_in_order(work, blocks, n_threads), strict=True)
    return [np.concatenate(part) for part in parts]


class _Growth:
    """Contribution of coordinates ``start`` to ``end`` to squared distances, as a product."""

    def __init__(self, Z: Matrix, start: int, end: int) -> None:
        some = Z[:, start:end]
        lengths, ones = np.square(some).sum(axis=1), np.ones(len(Z))
        self._asked = np.column_stack([-2 * some, lengths, ones]).astype(np.float32)
        self._rows = np.vstack([some.T, ones, lengths]).astype(np.float32)
        self._norms = np.sqrt(np.square(Z[:, :end]).sum(axis=1))
        self._n_terms = 3 * end + 8  # upper limit over all steps

    def add(self, squares: NDArray[np.float32], own: Indices) -> None:
        """Add the contribution to the squared distances of a block of rows, in place."""
        sgemm(1.0, self._rows.T, self._asked[own].T, 1.0, squares.T, overwrite_c=1)

    def errors(self, squares: Vector, own: Indices) -> Vector:
        """Bound the accumulated error of squared distances of this size."""
        eps = float(np.finfo(np.float32).eps)
        reach = 2 * self._norms[own] + np.sqrt(np.maximum(squares, 0))
        return np.asarray(8 * self._n_terms * eps * np.maximum(reach, 1e-15) ** 2)
