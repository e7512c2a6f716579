"""Exact neighbors in the leading coordinates of rows, for several numbers of coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.blocks import map_in_order, split_rows
from nearfar.search.block_search import bound_kth_smallest
from nearfar.search.candidates import (
    check_n_neighbors,
    compute_center,
    compute_pair_distances,
    select_first_pairs,
    subtract_center,
)

# Maximum number of queries per block.
_MAX_QUERIES_PER_BLOCK = 128


def find_leading_neighbors(
    X: Floats, numbers: Sequence[int], query_ids: Indices, *, n_neighbors: int, n_threads: int = 1
) -> list[Indices]:
    """Find the nearest neighbors in the first q coordinates, for several values of q.

    For each number q in ``numbers``, which must be ascending, the result equals
    ``kneighbors(X[:, :q], n_neighbors=k)[1][query_ids]``. All numbers are processed in one pass:
    squared distances in single precision are extended by the added coordinates, and every row that
    may be among the nearest is measured in float64.

    Cost: O(n (q + m)) for each row in ``query_ids`` and m numbers up to q, in matrix products. In
    addition to the result, memory is needed for a copy of the data, and for blocks within
    scikit-learn's ``working_memory``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [1.0, 5.0], [2.0, 0.0]])
    >>> first, second = find_leading_neighbors(X, [1, 2], np.arange(3), n_neighbors=1)
    >>> first.ravel(), second.ravel()
    (array([1, 0, 1]), array([2, 0, 0]))
    """
    check_n_neighbors(n_neighbors, len(X), excludes_self=True)
    Z = np.asarray(subtract_center(X, compute_center(X), np.dtype(np.float64)), np.float64)
    Z /= np.abs(Z).max(initial=0) or 1.0
    contributions = [
        _Contribution(Z, *ends) for ends in zip([0, *numbers[:-1]], numbers, strict=True)
    ]
    leading = [X[:, :q] for q in numbers]

    def process_block(block: slice) -> list[Indices]:
        block_ids = query_ids[block]
        squares = np.zeros((len(block_ids), len(X)), np.float32)
        squares[np.arange(len(block_ids)), block_ids] = np.inf
        neighbors = []
        for rows, contribution in zip(leading, contributions, strict=True):
            contribution.add(squares, block_ids)
            kth_bound = bound_kth_smallest(squares, n_neighbors).astype(np.float64)
            # Round up, and compare in float32: comparing arrays of two precisions takes twice as
            # long.
            reach = np.nextafter(
                (kth_bound + 2 * contribution.bound_errors(kth_bound, block_ids)).astype(
                    np.float32
                ),
                np.inf,
                dtype=np.float32,
            )
            query, columns = np.divmod(np.flatnonzero(squares <= reach[:, None]), len(X))
            distances = compute_pair_distances(rows, rows[block_ids], columns, query)
            counts = np.bincount(query, minlength=len(block_ids))
            neighbors.append(select_first_pairs(query, columns, distances, counts, n_neighbors)[1])
        return neighbors

    blocks = split_rows(len(query_ids), 24 * len(X), max_rows=_MAX_QUERIES_PER_BLOCK)
    results = zip(*map_in_order(process_block, blocks, n_threads), strict=True)
    return [np.concatenate(blocks_of_number) for blocks_of_number in results]


class _Contribution:
    """Contribution of the coordinates ``start:end`` to squared distances, stored as two factors."""

    def __init__(self, Z: Matrix, start: int, end: int) -> None:
        coordinates = Z[:, start:end]
        lengths, ones = np.square(coordinates).sum(axis=1), np.ones(len(Z))
        self._query_factor = np.column_stack([-2 * coordinates, lengths, ones]).astype(np.float32)
        self._row_factor = np.vstack([coordinates.T, ones, lengths]).astype(np.float32)
        self._norms = np.sqrt(np.square(Z[:, :end]).sum(axis=1))
        self._n_terms = 3 * end + 8  # Upper bound on the number of terms.

    def add(self, squares: NDArray[np.float32], query_ids: Indices) -> None:
        """Add this contribution to the squared distances of a block of queries, in place."""
        sgemm(
            1.0, self._row_factor.T, self._query_factor[query_ids].T, 1.0, squares.T, overwrite_c=1
        )

    def bound_errors(self, squares: Vector, query_ids: Indices) -> Vector:
        """Bound the accumulated rounding errors of the squared distances ``squares``."""
        eps = float(np.finfo(np.float32).eps)
        reach = 2 * self._norms[query_ids] + np.sqrt(np.maximum(squares, 0))
        return np.asarray(8 * self._n_terms * eps * np.maximum(reach, 1e-15) ** 2)
