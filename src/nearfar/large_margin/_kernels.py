"""Compiled kernels (extra ``fast``), equivalent to the NumPy code that is used without numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Sums may be computed in any order, as in BLAS. Infinity and NaN are still handled exactly.
_ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}
#: Mode in which no pair is skipped and no length is stored.
NO_SCREEN = 0
#: Mode in which the lengths of all pairs are computed and stored.
NOTES = 1
#: Mode in which pairs are skipped if the stored lengths prove that they are far apart.
SCREENS = 2


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _compute_distance(Z: Any, first: int, second: int) -> Any:
    total = Z.dtype.type(0)
    for j in range(Z.shape[1]):
        difference = Z[second, j] - Z[first, j]
        total += difference * difference
    return total


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _weigh(
    V: Any, first: int, second: int, weight: float, center_row: Any, laplacian_v: Any
) -> None:
    """Add the terms of one pair to the product Lap(W) V.

    The term of the first point is added to ``center_row``, that of the second to ``laplacian_v``.
    """
    factor = V.dtype.type(weight)
    for j in range(V.shape[1]):
        part = factor * (V[first, j] - V[second, j])
        center_row[j] += part
        laplacian_v[second, j] -= part


@njit(nogil=True, cache=True)
def _evaluate_hinge(margin: float, smoothing: float) -> tuple[float, float]:
    """Return max(0, margin) and its slope, smoothed within ``smoothing`` / 2 of the kink."""
    if margin <= -0.5 * smoothing:
        return 0.0, 0.0
    if margin >= 0.5 * smoothing:
        return margin, 1.0
    slope = margin / smoothing + 0.5
    return 0.5 * smoothing * slope * slope, slope


@njit(nogil=True, cache=True)
def evaluate_listed_rows(
    first: int,
    last: int,
    Z: Any,
    V: Any,
    targets: Any,
    indptr: Any,
    indices: Any,
    push_weight: float,
    smoothing: float,
    nearest: int,
    screening: int,
    lengths: Any,
    displacements: Any,
    laplacian_v: Any,
) -> tuple[float, int, float, int, int]:
    """Evaluate the hinges of the centers ``first`` to ``last``, and add their terms to Lap(W) V.

    Return the loss, the number of active hinges, the sum of their slopes, the number of computed
    distances and the number of close pairs. Only the ``nearest`` nearest impostors of each center
    count. 0 means that all count.
    """
    k = targets.shape[1]
    reach, pushes = np.empty(k), np.empty(k)
    center_row = np.empty(V.shape[1], V.dtype)
    max_kept = nearest if nearest > 0 else np.max(indptr[first + 1 : last + 1] - indptr[first:last])
    distances, kept_impostors = np.empty(max_kept), np.empty(max_kept, np.int64)
    loss, slopes = 0.0, 0.0
    n_active, n_measured, n_near = 0, 0, 0
    for i in range(first, last):
        edge = -np.inf
        for slot in range(k):
            if targets[i, slot] >= 0:
                distance = _compute_distance(Z, i, targets[i, slot])
                loss += (1 - push_weight) * distance
                reach[slot] = 1.0 + distance
                edge = max(edge, reach[slot])
            else:
                reach[slot] = -np.inf
        if edge == -np.inf:
            continue
        edge += 0.5 * smoothing
        limit = np.float32(np.sqrt(max(edge, 0.0)) * (1 + 1e-5))
        if screening == SCREENS:
            limit += displacements[i]
        n_kept = 0
        for pair in range(indptr[i], indptr[i + 1]):
            impostor = indices[pair]
            if screening == SCREENS and not lengths[pair] < limit + displacements[impostor]:
                continue
            distance = _compute_distance(Z, i, impostor)
            n_measured += 1
            if screening == NOTES:
                lengths[pair] = np.sqrt(distance)
            if not distance < edge:
                continue
            n_near += 1
            place = n_kept
            # Insert in order of distance. Impostors at the same distance keep the order of the
            # list.
            if nearest > 0:
                if n_kept == nearest:
                    if not distance < distances[nearest - 1]:
                        continue
                    place -= 1
                while place > 0 and distance < distances[place - 1]:
                    distances[place], kept_impostors[place] = (
                        distances[place - 1],
                        kept_impostors[place - 1],
                    )
                    place -= 1
            distances[place], kept_impostors[place] = distance, impostor
            n_kept = min(n_kept + 1, max_kept)
        center_row[:] = 0
        pushes[:] = 0
        for place in range(n_kept):
            weight = 0.0
            for slot in range(k):
                value, slope = _evaluate_hinge(reach[slot] - distances[place], smoothing)
                loss += push_weight * value
                pushes[slot] += slope
                weight += slope
                n_active += slope > 0
            slopes += weight
            _weigh(V, i, kept_impostors[place], -push_weight * weight, center_row, laplacian_v)
        for slot in range(k):
            if targets[i, slot] >= 0:
                weight = (1 - push_weight) + push_weight * pushes[slot]
                _weigh(V, i, targets[i, slot], weight, center_row, laplacian_v)
        for j in range(V.shape[1]):
            laplacian_v[i, j] += center_row[j]
    return loss, n_active, slopes, n_measured, n_near


@njit(nogil=True, cache=True)
def evaluate_dense_rows(
    distances: Any,
    codes: Any,
    impostor_codes: Any,
    reach: Any,
    edge: Any,
    push_weight: float,
    smoothing: float,
    pushes: Any,
) -> tuple[float, int, float]:
    """Compute the hinges of a block of centers, and overwrite the distances with pair weights.

    The slopes of the hinges of each target are summed in ``pushes``. Return the sum of the hinges,
    the number of active hinges, and the sum of their slopes.
    """
    loss, slopes, n_active = 0.0, 0.0, 0
    for i in range(distances.shape[0]):
        pushes[i] = 0
        for impostor in range(distances.shape[1]):
            distance = distances[i, impostor]
            distances[i, impostor] = 0
            if not distance < edge[i] or codes[i] == impostor_codes[impostor]:
                continue
            weight = 0.0
            for slot in range(reach.shape[1]):
                value, slope = _evaluate_hinge(reach[i, slot] - distance, smoothing)
                loss += value
                pushes[i, slot] += slope
                weight += slope
                n_active += slope > 0
            slopes += weight
            distances[i, impostor] = -push_weight * weight
    return loss, n_active, slopes
