"""Compiled kernels (extra ``fast``): tested against the NumPy forms, which serve without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Sums of products may be made in any order, as BLAS does; infinity and NaN keep their meaning.
_ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}
#: What a screen does: nothing, note the lengths of all pairs, or leave out those known to be far.
NO_SCREEN, NOTES, SCREENS = 0, 1, 2


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _squared_distance(Z: Any, first: int, second: int) -> Any:
    total = Z.dtype.type(0)
    for j in range(Z.shape[1]):
        difference = Z[second, j] - Z[first, j]
        total += difference * difference
    return total


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _weigh(
    V: Any, first: int, second: int, weight: float, center_row: Any, laplacian_v: Any
) -> None:
    """Add a pair's part of Lap(W) V: that of the first point to ``own``."""
    factor = V.dtype.type(weight)
    for j in range(V.shape[1]):
        part = factor * (V[first, j] - V[second, j])
        center_row[j] += part
        laplacian_v[second, j] -= part


@njit(nogil=True, cache=True)
def _hinge(margin: float, smoothing: float) -> tuple[float, float]:
    """[z]_+ and its slope, rounded within ``smoothing`` / 2 of the kink."""
    if margin <= -0.5 * smoothing:
        return 0.0, 0.0
    if margin >= 0.5 * smoothing:
        return margin, 1.0
    slope = margin / smoothing + 0.5
    return 0.5 * smoothing * slope * slope, slope


@njit(nogil=True, cache=True)
def listed_rows(
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
    """Add what the centres ``first`` to ``last`` give to Lap(W) V, pair by pair.

    Returns the loss, active hinges, the sum of their slopes, pairs measured and pairs that were
    near. Of each centre the ``nearest`` impostors count; 0 is all.
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
                distance = _squared_distance(Z, i, targets[i, slot])
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
            distance = _squared_distance(Z, i, impostor)
            n_measured += 1
            if screening == NOTES:
                lengths[pair] = np.sqrt(distance)
            if not distance < edge:
                continue
            n_near += 1
            place = n_kept
            if nearest > 0:  # in order, of equals the first that was listed
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
                value, slope = _hinge(reach[slot] - distances[place], smoothing)
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
def dense_rows(
    distances: Any,
    codes: Any,
    impostor_codes: Any,
    reach: Any,
    edge: Any,
    push_weight: float,
    smoothing: float,
    pushes: Any,
) -> tuple[float, int, float]:
    """Hinges of a block of centres with all others, whose distances become weights.

    The slopes of each target's hinges go to ``pushes``. Returns the sum of the hinges, how many
    are active, and the sum of their slopes.
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
                value, slope = _hinge(reach[i, slot] - distance, smoothing)
                loss += value
                pushes[i, slot] += slope
                weight += slope
                n_active += slope > 0
            slopes += weight
            distances[i, impostor] = -push_weight * weight
    return loss, n_active, slopes
