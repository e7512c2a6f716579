"""The large-margin loss over listed impostor pairs, with NumPy or a compiled kernel."""

from __future__ import annotations

import operator
from itertools import pairwise
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Floats
from nearfar.blocks import map_in_order
from nearfar.large_margin.pair_lists import (
    THREADED_SIZE,
    Integers,
    PairList,
    compute_listed_distances,
    compute_target_distances,
)
from nearfar.large_margin.triplet_loss import Evaluation, HingeDistances, weigh_hinges


class Screen:
    """Selects the listed pairs that may have an active hinge, without computing distances.

    A distance decreases by at most the sum of the displacements of its two points. All distances
    are computed once, at the points ``Z``. Most pairs that were far apart then must still be far
    apart. ``is_worn`` is True if the number of unnecessary distances has reached the number of
    pairs. Computing all distances again is then faster.
    """

    def __init__(self, impostors: PairList, Z: Floats) -> None:
        self.impostors, self.Z = impostors, Z
        self.lengths = np.empty(len(impostors.indices), dtype=np.float32)
        self.n_near = self.n_wasted = 0
        #: Displacement of each point from ``Z``, or None before the lengths are known.
        self.displacements: NDArray[np.float32] | None = None

    def fits(self, impostors: PairList, Z: Floats) -> bool:
        """Return True if the screen belongs to these pairs and to points of this shape."""
        return self.impostors is impostors and self.Z.shape == Z.shape and not self.is_worn

    @property
    def is_worn(self) -> bool:
        """True if it is now faster to compute all distances again."""
        return self.displacements is not None and self.n_wasted >= len(self.lengths) - self.n_near

    def update(self, Z: Floats) -> None:
        """Compute the displacements of the points."""
        difference = Z - self.Z
        displacements = np.sqrt(np.einsum("ij,ij->i", difference, difference))
        # The factor is larger than the relative rounding error of a length.
        self.displacements = (displacements * (1 + 1e-5)).astype(np.float32)

    def find_near(self, pairs: slice, centers: Integers, edge: NDArray[np.float64]) -> Integers:
        """Return the positions of pairs that may be closer than the ``edge`` of their center."""
        assert self.displacements is not None
        limits = (edge * (1 + 1e-5)).astype(np.float32) + self.displacements
        impostors = self.impostors.indices[pairs]
        return np.flatnonzero(self.lengths[pairs] < limits[centers] + self.displacements[impostors])


class _Partial(NamedTuple):
    """Result for a chunk of centers, with the number of measured pairs and of close pairs."""

    loss: float
    laplacian_v: Floats
    n_active: int
    slopes: float
    n_measured: int
    n_near: int


def compute_listed_loss(
    Z: Floats,
    targets: Integers,
    impostors: PairList,
    push_weight: float,
    smoothing: float = 0.0,
    V: Floats | None = None,
    nearest: int | None = None,
    n_threads: int = 1,
    measured: HingeDistances | None = None,
    screen: Screen | None = None,
    compiled: ModuleType | None = None,
) -> Evaluation:
    """Return the loss over the listed impostor pairs.

    ``measured`` contains the distances of Z if they are known. A ``screen`` of these pairs makes
    most distances unnecessary. It is updated. The centers are divided among threads. ``compiled``
    is the module of compiled kernels, or None for NumPy.
    """
    V = Z if V is None else V
    is_screening = screen is not None and screen.displacements is not None
    if screen is not None and is_screening:
        screen.update(Z)
    indptr = impostors.indptr

    def evaluate_by_arrays(rows: slice) -> _Partial:
        pairs = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
        row_targets, counts = targets[rows], np.diff(indptr[rows.start : rows.stop + 1])
        centers = np.repeat(np.arange(rows.start, rows.stop, dtype=np.int32), counts)
        impostor_rows = impostors.indices[pairs]
        if measured is not None:
            reach, distances = measured.reach[rows], measured.distances[pairs]
        else:
            reach = 1.0 + compute_target_distances(Z, row_targets, rows.start)
            edge = np.full(len(Z), -np.inf)
            edge[rows] = reach.max(axis=1, initial=-np.inf) + smoothing / 2
            if screen is not None and is_screening:
                near_pairs = screen.find_near(pairs, centers, np.sqrt(np.maximum(edge, 0.0)))
                centers, impostor_rows = centers[near_pairs], impostor_rows[near_pairs]
            distances = compute_listed_distances(Z, centers, impostor_rows)
            if screen is not None and not is_screening:
                screen.lengths[pairs] = np.sqrt(distances)
        ends = np.cumsum(np.bincount(centers - rows.start, minlength=len(row_targets)))
        partial = PairList(np.concatenate([[0], ends]), impostor_rows)
        weighing = weigh_hinges(
            reach, row_targets, partial, distances, push_weight, smoothing, V.dtype, nearest, len(Z)
        )
        laplacian_v = _multiply_laplacian_of_rows([weighing.push, weighing.pull], V, rows)
        return _Partial(
            weighing.loss,
            laplacian_v,
            weighing.n_active,
            weighing.slopes,
            len(centers),
            weighing.n_near,
        )

    def evaluate_by_kernel(rows: slice) -> _Partial:
        assert compiled is not None
        laplacian_v, no_lengths = np.zeros_like(V), np.empty(0, np.float32)
        screening, lengths, displacements = compiled.NO_SCREEN, no_lengths, no_lengths
        if screen is not None:
            screening = compiled.SCREENS if is_screening else compiled.NOTES
            lengths, displacements = (
                screen.lengths,
                no_lengths if screen.displacements is None else screen.displacements,
            )
        loss, *counts = compiled.evaluate_listed_rows(
            rows.start,
            rows.stop,
            Z,
            V,
            targets,
            indptr,
            impostors.indices,
            push_weight,
            smoothing,
            nearest or 0,
            screening,
            lengths,
            displacements,
            laplacian_v,
        )
        return _Partial(loss, laplacian_v, *counts)

    is_serial = n_threads == 1 or len(impostors.indices) * Z.shape[1] < THREADED_SIZE
    chunks = [slice(0, len(Z))] if is_serial else _split_evenly(indptr, n_threads)
    evaluate = (
        evaluate_by_arrays if compiled is None or measured is not None else evaluate_by_kernel
    )
    total: _Partial | None = None
    for partial in map_in_order(evaluate, chunks, 1 if is_serial else n_threads):
        # Sum the numbers and arrays of all chunks. Arrays are summed in place.
        total = partial if total is None else _Partial(*map(operator.iadd, total, partial))
    assert total is not None
    if screen is not None:
        if is_screening:
            screen.n_wasted += total.n_measured - screen.n_near
        else:
            screen.n_near = total.n_near
            screen.update(Z)
    return Evaluation(*total[:4])


def _split_evenly(indptr: NDArray[np.int64], n_chunks: int) -> list[slice]:
    """Split the rows into slices with about the same number of pairs."""
    targets = np.linspace(0, indptr[-1], n_chunks + 1)[1:-1]
    edges = [0, *np.searchsorted(indptr, targets).tolist(), len(indptr) - 1]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def _multiply_laplacian_of_rows(weights: list[sparse.csr_array], V: Floats, rows: slice) -> Floats:
    """Return Lap(W) V for the pairs of ``rows``, where W is the sum of the ``weights``."""
    n, V_rows = rows.stop - rows.start, V[rows]
    degrees, column_degrees = np.zeros(n), np.zeros(len(V))
    for W in weights:
        degrees += np.bincount(np.repeat(np.arange(n), np.diff(W.indptr)), W.data, n)
        column_degrees += np.bincount(W.indices, W.data, len(V))
    row_part = degrees.astype(V.dtype)[:, None] * V_rows
    result: Floats = column_degrees.astype(V.dtype)[:, None] * V
    for W in weights:
        row_part -= W @ V
        result -= W.T @ V_rows
    result[rows] += row_part
    return result
