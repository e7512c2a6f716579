"""Distance matrices of sets from a function that computes one pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.blocks import map_in_order, resolve_n_threads
from nearfar.summaries.sets import Sets, as_sets


def two_sides(A: Any, B: Any) -> tuple[Sets, Sets | None]:
    """Return A and B as Sets. Raises if their numbers of features differ."""
    left = as_sets(A)
    right = None if B is None else as_sets(B)
    if right is not None and right.n_features != left.n_features:
        raise ValueError(
            f"B has vectors with {right.n_features} features, but A has {left.n_features}. Both "
            "must have the same number of features."
        )
    return left, right


def all_pairs(
    distance: Callable[[int, int], float], n: int, m: int | None, n_jobs: int | None
) -> NDArray[np.float64]:
    """Return the matrix of ``distance(i, j)``, symmetric with zero diagonal if m is None."""
    found: NDArray[np.float64] = np.zeros((n, n if m is None else m))

    def row(i: int) -> None:
        for j in range(i + 1 if m is None else 0, found.shape[1]):
            found[i, j] = distance(i, j)

    for _ in map_in_order(row, range(n), resolve_n_threads(n_jobs)):
        pass
    return found + found.T if m is None else found
