"""The large-margin loss over listed impostor pairs: with NumPy, or by a compiled kernel."""

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
    compute_pair_distances,
    compute_target_distances,
)
from nearfar.large_margin.triplet_loss import Evaluation, Measured, weigh_hinges


class Screen:
    """Tells which listed pairs may have an active hinge without measuring them.

    No distance becomes less by more than its two points move; so most pairs that were far when all
    were measured, under the points ``Z``, are known to be far. Once as many were measured in vain
    as all of them are, it is ``worn``, and they are better measured again.
    """

    def __init__(self, impostors: PairList, Z: Floats) -> None:
        self.impostors, self.Z = impostors, Z
        self.lengths = np.empty(len(impostors.indices), dtype=np.float32)
        self.n_near = self.in_vain = 0
        #: How far each point has moved; None while the lengths are not known.
        self.moved: NDArray[np.float32] | None = None

    def serves(self, impostors: PairList, Z: Floats) -> bool:
        """Whether it is one of these pairs, and of points like these."""
        return self.impostors is impostors and self.Z.shape == Z.shape and not self.worn

    @property
    def worn(self) -> bool:
        """Whether it pays to measure all again."""
        return self.moved is not None and self.in_vain >= len(self.lengths) - self.n_near

    def move(self, Z: Floats) -> None:
        """Points are now here."""
        difference = Z - self.Z
        moved = np.sqrt(np.einsum("ij,ij->i", difference, difference))
        # What rounding may have added to a length is small beside this share of it.
        self.moved = (moved * (1 + 1e-5)).astype(np.float32)

    def near(self, pairs: slice, centers: Integers, edge: NDArray[np.float64]) -> Integers:
        """Those of some pairs that may be nearer than ``edge``, the length for each point."""
        assert self.moved is not None
        room = (edge * (1 + 1e-5)).astype(np.float32) + self.moved
        others = self.impostors.indices[pairs]
        return np.flatnonzero(self.lengths[pairs] < room[centers] + self.moved[others])


class _Part(NamedTuple):
    """What some centres give: their share of an evaluation, and what it took."""

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
    measured: Measured | None = None,
    screen: Screen | None = None,
    compiled: ModuleType | None = None,
) -> Evaluation:
    """The loss with hinges over the listed impostor pairs only.

    ``measured`` are the distances under Z, where they are known. A ``screen`` of these pairs saves
    measuring most of them, and is brought up to date. Centres are shared out to threads, and go
    through the kernels of this room where these are given.
    """
    V = Z if V is None else V
    screens = screen is not None and screen.moved is not None
    if screen is not None and screens:
        screen.move(Z)
    indptr = impostors.indptr

    def by_arrays(rows: slice) -> _Part:
        pairs = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
        mine, counts = targets[rows], np.diff(indptr[rows.start : rows.stop + 1])
        centers = np.repeat(np.arange(rows.start, rows.stop, dtype=np.int32), counts)
        others = impostors.indices[pairs]
        if measured is not None:
            reach, distances = measured.reach[rows], measured.distances[pairs]
        else:
            reach = 1.0 + compute_target_distances(Z, mine, rows.start)
            edge = np.full(len(Z), -np.inf)
            edge[rows] = reach.max(axis=1, initial=-np.inf) + smoothing / 2
            if screen is not None and screens:
                kept = screen.near(pairs, centers, np.sqrt(np.maximum(edge, 0.0)))
                centers, others = centers[kept], others[kept]
            distances = compute_pair_distances(Z, centers, others)
            if screen is not None and not screens:
                screen.lengths[pairs] = np.sqrt(distances)
        ends = np.cumsum(np.bincount(centers - rows.start, minlength=len(mine)))
        part = PairList(np.concatenate([[0], ends]), others)
        found = weigh_hinges(
            reach, mine, part, distances, push_weight, smoothing, V.dtype, nearest, len(Z)
        )
        laplacian_v = _laplacian_of_rows([found.push, found.pull], V, rows)
        return _Part(
            found.loss, laplacian_v, found.n_active, found.slopes, len(centers), found.n_near
        )

    def by_kernel(rows: slice) -> _Part:
        assert compiled is not None
        laplacian_v, nothing = np.zeros_like(V), np.empty(0, np.float32)
        screening, lengths, moved = compiled.NO_SCREEN, nothing, nothing
        if screen is not None:
            screening = compiled.SCREENS if screens else compiled.NOTES
            lengths, moved = screen.lengths, nothing if screen.moved is None else screen.moved
        loss, *counts = compiled.listed_rows(
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
            moved,
            laplacian_v,
        )
        return _Part(loss, laplacian_v, *counts)

    few = n_threads == 1 or len(impostors.indices) * Z.shape[1] < THREADED_SIZE
    parts = [slice(0, len(Z))] if few else _even_parts(indptr, n_threads)
    evaluated = by_arrays if compiled is None or measured is not None else by_kernel
    total: _Part | None = None
    for part in map_in_order(evaluated, parts, 1 if few else n_threads):
        # Of arrays, which are sums as the numbers are, the first is added to in place.
        total = part if total is None else _Part(*map(operator.iadd, total, part))
    assert total is not None
    if screen is not None:
        if screens:
            screen.in_vain += total.n_measured - screen.n_near
        else:
            screen.n_near = total.n_near
            screen.move(Z)
    return Evaluation(*total[:4])


def _even_parts(indptr: NDArray[np.int64], n_parts: int) -> list[slice]:
    """Rows in parts with about as many pairs each."""
    wanted = np.linspace(0, indptr[-1], n_parts + 1)[1:-1]
    edges = [0, *np.searchsorted(indptr, wanted).tolist(), len(indptr) - 1]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def _laplacian_of_rows(weights: list[sparse.csr_array], V: Floats, rows: slice) -> Floats:
    """Lap(W) V, W being a sum, of the pairs of some rows."""
    n, mine = rows.stop - rows.start, V[rows]
    degrees, others = np.zeros(n), np.zeros(len(V))
    for W in weights:
        degrees += np.bincount(np.repeat(np.arange(n), np.diff(W.indptr)), W.data, n)
        others += np.bincount(W.indices, W.data, len(V))
    own = degrees.astype(V.dtype)[:, None] * mine
    result: Floats = others.astype(V.dtype)[:, None] * V
    for W in weights:
        own -= W @ V
        result -= W.T @ mine
    result[rows] += own
    return result
