"""Distance matrices of sets from a function that computes one pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import map_in_order, resolve_n_threads
from nearfar.summaries.sets import Sets, as_sets


def convert_sides(A: Any, B: Any) -> tuple[Sets, Sets | None]:
    """Return A and B as Sets, and raise if their numbers of features differ."""
    row_sets = as_sets(A)
    column_sets = None if B is None else as_sets(B)
    if column_sets is not None and column_sets.n_features != row_sets.n_features:
        raise ValueError(
            f"B has vectors with {column_sets.n_features} features, but A has "
            f"{row_sets.n_features}. Both must have the same number of features."
        )
    return row_sets, column_sets


def compute_distance_matrix(
    distance: Callable[[int, int], float], n: int, m: int | None, n_jobs: int | None
) -> NDArray[np.float64]:
    """Return the n×m matrix with the entries ``distance(i, j)``.

    If m is None, the matrix is n×n and symmetric, with a zero diagonal.
    """
    distances: NDArray[np.float64] = np.zeros((n, n if m is None else m))

    def fill_row(i: int) -> None:
        for j in range(i + 1 if m is None else 0, distances.shape[1]):
            distances[i, j] = distance(i, j)

    for _ in map_in_order(fill_row, range(n), resolve_n_threads(n_jobs)):
        pass
    return distances + distances.T if m is None else distances
