"""The large-margin loss over a working set of impostors.

Impostors are listed by a full search and the loss is evaluated on the list. Whether one is missing
shows a search, or a bound on how far distances can have moved.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import numpy as np
from scipy import linalg

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import compute_squared_distances, map_in_order, split_rows
from nearfar.extras import import_kernels
from nearfar.large_margin.impostors import find_impostors, nearest_impostors
from nearfar.large_margin.listed_loss import Screen, listed_loss
from nearfar.large_margin.nearest_table import NearestTable
from nearfar.large_margin.pair_lists import (
    PairList,
    listed_distances,
    order_of_nearness,
    pair_list,
    target_distances,
)
from nearfar.large_margin.triplet_loss import (
    Evaluation,
    Measured,
    full_loss,
    measure,
)
from nearfar.solvers.eigen import least_eigenvalue

Structure = Literal["full", "diagonal"]

# Tuned for the time of a whole fit on digits, letter and generated sets; none moves the optimum.
SLACK = 1.1  # pairs up to this multiple of the reach are listed with the active ones
PAIRS_PER_CENTER = 40  # listed at most while the map is still coarse
SPARE_IMPOSTORS = 4  # where only the nearest impostors count, so many times as many are listed
FEW_NUMBERS = 2 * 10**6  # pairs times dimensions, below which it is not worth listing fewer
# Maps of so many entries begin near to the optimum, and more pairs times dimensions are listed.
WIDE, COARSE_NUMBERS = 10**4, 2 * 10**8
# Pairs times dimensions from which compiled kernels save more than it takes to load them.
COMPILED = 10**6
SCREENED = 32  # dimensions from which to measure a pair takes longer than to see that it is far
# A table of impostors may have so many places, or so many for each that is listed.
SMALL_TABLE, MOST_EMPTY = 10**5, 4
SAMPLED = 6 * 10**5  # distances by which it is judged how many pairs a radius lists
THREADED_ROWS, PARTS = 10**6, 2  # numbers of rows from which threads pay, and parts for each


def is_large(points: Floats) -> bool:
    """Whether points are so many that single precision pays."""
    return points.size > 10**5


class ListedMargin:
    """The loss over the impostor pairs listed so far, or over all when these are too many.

    Points are in coordinates that suit the solver; a target of -1 is none; ``push_weight`` is μ.
    With the structure "diagonal" L is a vector of factors, one a coordinate. Of the impostors of a
    point so many count, the ``nearest``; None is all.
    """

    def __init__(
        self,
        points: Floats,
        codes: Indices,
        targets: Indices,
        push_weight: float,
        *,
        n_threads: int = 1,
        structure: Structure = "full",
        nearest: int | None = None,
    ) -> None:
        # Float32 is enough while iterations gain more than a millionth, and twice as fast.
        self.working = points.astype(np.float32, copy=False) if is_large(points) else points
        self.points, self.codes, self.all_targets = points, codes, targets
        self.push_weight, self.n_threads, self.structure = push_weight, n_threads, structure
        self.nearest = nearest
        n = len(points)
        # Beyond about n²/4 pairs the dense blocks are faster than the list, and smaller.
        self.max_pairs = int(np.clip(n * n // 4, 10**5, 3 * 10**7))
        self.smoothing = 0.0
        self.bound = 0.0
        self.max_rows = points.shape[1]
        self._made: NearestTable | None = None
        #: For the rest of a fit, once there was much to do.
        self.compiled: ModuleType | None = None
        #: Of a diagonal map: columns that may have a factor, and the working points there.
        self.columns, self.cut = np.arange(points.shape[1]), self.working
        self.use_centers(None)

    def use_centers(self, n_centers: int | None) -> None:
        """Sum over all centres, or over so many, evenly drawn: a cheaper, similar loss."""
        self.targets = self.all_targets
        if n_centers is not None and n_centers < len(self.points):
            # In the order of classes, so that each gives its share.
            order = np.argsort(self.codes, kind="stable")
            drawn = order[np.linspace(0, len(order) - 1, n_centers).astype(np.intp)]
            self.targets = np.full_like(self.all_targets, -1)
            self.targets[drawn] = self.all_targets[drawn]
        self.pairs: PairList | None = pair_list([], len(self.points))
        #: Where the list was made: the map, the radii, and the points under the map.
        self._listed_at: tuple[Matrix, Matrix, Floats] | None = None
        self._screen: Screen | None = None

    def compile_for(self, n_numbers: int) -> None:
        """Take compiled kernels from now on, if so many pairs times dimensions are worth it."""
        if n_numbers >= COMPILED:
            self.compiled = import_kernels("nearfar.large_margin._kernels")

    # Maps

    def mapped(self, L: Matrix, points: Floats | None = None) -> Floats:
        """Points under the map."""
        X = self.working if points is None else points
        if self.structure == "diagonal" and points is None:
            X, L = self._seen(L)
        narrow = L.astype(X.dtype)
        Z = np.empty(X.shape if self.structure == "diagonal" else (len(X), len(L)), X.dtype)

        def multiply(part: slice) -> None:
            if self.structure == "diagonal":
                np.multiply(X[part], narrow, out=Z[part])
            else:
                np.matmul(X[part], narrow.T, out=Z[part])

        self._in_parts(multiply, X)
        return Z

    def exact(self, L: Matrix) -> Floats:
        """Points under the map in full precision."""
        if self.structure == "diagonal":
            kept = used_columns(L)
            return np.take(self.points, kept, axis=1) * L[kept]
        if self.points.dtype == np.float64:
            return self.mapped(L, self.points)
        Z = np.empty((len(self.points), len(L)))

        def multiply(part: slice) -> None:
            np.matmul(self.points[part].astype(np.float64), L.T, out=Z[part])

        self._in_parts(multiply, self.points)
        return Z

    def keep_columns(self, L: Matrix) -> None:
        """Leave the columns out to which a diagonal map gives no factor."""
        self.columns = used_columns(L)
        whole = len(self.columns) == self.working.shape[1]
        self.cut = self.working if whole else np.ascontiguousarray(self.working[:, self.columns])

    def _seen(self, L: Matrix) -> tuple[Floats, Matrix]:
        """The columns that a diagonal map sees, and its factors there."""
        if np.count_nonzero(L) > np.count_nonzero(L[self.columns]):
            self.keep_columns(L)
        return self.cut, L[self.columns]

    def gradient(self, laplacian_z: Floats, points: Floats | None = None) -> Matrix:
        """Of the loss in L, from Lap(W) Z."""
        X = self.working if points is None else points

        def multiplied(part: slice) -> Matrix:
            if self.structure == "diagonal":
                return np.asarray(np.einsum("ij,ij->j", laplacian_z[part], X[part]), np.float64)
            return (laplacian_z[part].T @ X[part]).astype(np.float64)

        return np.asarray(2 * sum(self._in_parts(multiplied, X)))

    def _in_parts(self, function: Callable[[slice], Any], X: Floats) -> list[Any]:
        """A function of some rows, over all of them, in threads where it pays."""
        few = self.n_threads == 1 or X.size < THREADED_ROWS
        parts = 1 if few else PARTS * self.n_threads
        slices = split_rows(len(X), 0, max_rows=max(1, -(-len(X) // parts)))
        return list(map_in_order(function, slices, 1 if few else self.n_threads))

    def evaluate(
        self,
        L: Matrix,
        smoothing: float | None = None,
        V: Floats | None = None,
        points: Floats | None = None,
        measured: Measured | None = None,
    ) -> Evaluation:
        """The loss with hinges of the present roundness, or another."""
        width = self.smoothing if smoothing is None else smoothing
        if measured is not None and V is not None:
            Z = V  # all that is asked of the points is known
        else:
            Z = self.mapped(L) if points is None else self.exact(L)
        if self.pairs is None:
            return full_loss(
                Z,
                self.codes,
                self.targets,
                self.push_weight,
                width,
                V,
                nearest=self.nearest,
                n_threads=self.n_threads,
                compiled=self.compiled,
            )
        if self.compiled is None and (table := self._table()) is not None:
            measured = table.measure(Z, self.n_threads) if measured is None else measured
            return table.loss(
                measured, Z if V is None else V, self.push_weight, width, self.n_threads
            )
        if points is not None or measured is not None or Z.shape[1] < SCREENED:
            screen = None
        elif self._screen is None or not self._screen.serves(self.pairs, Z):
            screen = self._screen = Screen(self.pairs, Z)
        else:
            screen = self._screen
        return listed_loss(
            Z,
            self.targets,
            self.pairs,
            self.push_weight,
            width,
            V,
            self.nearest,
            self.n_threads,
            measured,
            screen,
            self.compiled,
        )

    def _table(self) -> NearestTable | None:
        """Of the listed pairs, where the nearest count and no centre has many more than others."""
        pairs, made = self.pairs, self._made
        if made is not None and made.impostors is pairs and made.targets is self.targets:
            return made
        self._made = None
        if self.nearest is not None and pairs is not None:
            width = int(np.diff(pairs.indptr).max(initial=0))
            if width * len(self.points) <= max(SMALL_TABLE, MOST_EMPTY * len(pairs.indices)):
                self._made = NearestTable(pairs, self.targets, self.nearest)
        return self._made

    def measured(self, L: Matrix) -> Measured | None:
        """Distances under L in full precision, to be evaluated more than once; None for all."""
        if self.pairs is None:
            return None
        return measure(self.exact(L), self.targets, self.pairs, self.n_threads)

    def objective(self, L: Matrix) -> Evaluation:
        """The objective itself, with sharp hinges and in full precision."""
        return self.evaluate(L, smoothing=0.0, points=self.points)

    def loss_of_nothing(self) -> float:
        """That of the zero map, under which every hinge is 1."""
        sizes = np.bincount(self.codes)
        others = len(self.codes) - sizes[self.codes]
        counted = others if self.nearest is None else np.minimum(others, self.nearest)
        return self.push_weight * float(((self.targets >= 0).sum(axis=1) * counted).sum())

    # The working set

    def rescaled(self, L: Matrix) -> Matrix:
        """L times the number that is best for it.

        Far above it the pull drives L down past the margin, where every hinge is active at once.
        """
        return np.asarray(L * self.best_scale(L))

    def best_scale(self, L: Matrix) -> float:
        """The best factor for the mapped points, judged by a sample of centres."""
        pulled, gaps = self._gaps(self.mapped(L))
        # In the square s of the factor the loss is convex and piecewise linear. A hinge of gap
        # g < 0 is active while s < -1/g; from large s down, the slope loses what these add.
        pull = (1 - self.push_weight) * float(pulled.sum())
        pull += self.push_weight * float(gaps[gaps > 0].sum())
        closing = np.sort(gaps[gaps < 0])[::-1]
        slopes = pull + self.push_weight * np.cumsum(closing)
        turning = int(np.searchsorted(-slopes, 0.0, side="right"))
        if turning >= len(closing) or pull <= 0:
            mean = float(pulled.mean())
            return float(1 / np.sqrt(mean)) if mean > 0 else 1.0
        return float(1 / np.sqrt(-closing[turning]))

    def _gaps(self, Z: Floats) -> tuple[Matrix, Matrix]:
        """Of a sample of centres: target distances, and by how much they exceed the impostors'."""
        sample = self._sample(10**6)
        near = self.targets[sample]
        rows, slots = np.nonzero(near >= 0)
        reach = np.full(near.shape, -np.inf)
        reach[rows, slots] = listed_distances(Z, sample[rows], near[rows, slots])
        others = self._distances(Z, sample)
        if self.nearest is not None and self.nearest < others.shape[1]:
            others = np.partition(others, self.nearest - 1, axis=1)[:, : self.nearest]
        gaps = reach[:, :, None] - others[:, None, :]
        return reach[np.isfinite(reach)], gaps[np.isfinite(gaps)]

    def _sample(self, n_distances: int) -> Indices:
        """Some centres, evenly chosen, with about so many distances to all points."""
        centers = np.flatnonzero((self.targets >= 0).any(axis=1))
        wanted = max(30, n_distances // self.targets.size)
        return centers[
            np.unique(np.linspace(0, len(centers) - 1, min(len(centers), wanted)).astype(np.intp))
        ]

    def _distances(self, Z: Floats, rows: Indices) -> Matrix:
        """Squared distances of some rows to all of other classes; infinite to their own."""
        mean = Z.mean(axis=0, dtype=np.float64)
        mine, distances = Z[rows] - mean, np.empty((len(rows), len(Z)))
        for block in split_rows(len(Z), 16 * Z.shape[1]):
            distances[:, block] = compute_squared_distances(mine, Z[block] - mean)
        distances[self.codes[rows, None] == self.codes] = np.inf
        return distances

    def _affordable(self, Z: Floats, radius: Matrix, n_pairs: int) -> float:
        """The largest factor up to 1 of the radii that lists about ``n_pairs`` pairs."""
        sample = self._sample(SAMPLED)
        shares = (self._distances(Z, sample) / radius[sample, None]).ravel()
        n_centers = int((self.targets >= 0).any(axis=1).sum())
        allowed = int(n_pairs * len(sample) / n_centers)
        if np.count_nonzero(shares < 1.0) <= allowed:
            return 1.0
        return float(np.partition(shares, allowed)[allowed])

    def search(
        self, L: Matrix, *, keep: bool = False, coarse: bool = False, at_most: int | None = None
    ) -> float:
        """List every pair with an active hinge under L; the share of the loss that was missing.

        ``keep`` retains the pairs listed before, which makes the rounds end; without it the list
        stays as short as the map is good. ``coarse`` lists the nearest pairs only, where they are
        too many; so does ``at_most``, a number of pairs.
        """
        Z = self.mapped(L)
        reach = 1.0 + target_distances(Z, self.targets).max(axis=1)
        # Pairs a little outside come along: they are the next to become active.
        radius = np.maximum(SLACK * reach, reach + self.smoothing)
        before = self.evaluate(L).loss
        pairs: PairList | None
        complete = True
        if self.nearest is not None:
            pairs, radius = nearest_impostors(
                Z, self.codes, radius, SPARE_IMPOSTORS * self.nearest, n_threads=self.n_threads
            )
        else:
            if coarse:
                n_centers = int(np.isfinite(reach).sum())
                numbers = COARSE_NUMBERS if L.size >= WIDE else FEW_NUMBERS
                at_most = max(PAIRS_PER_CENTER * n_centers, numbers // Z.shape[1])
            if at_most is not None:
                factor = self._affordable(Z, radius, at_most)
                complete = factor == 1.0
                radius = radius * factor
            pairs = find_impostors(
                Z, self.codes, radius, max_pairs=self.max_pairs, n_threads=self.n_threads
            )
        self.pairs = self._joined(self.pairs, pairs) if keep else pairs
        self._listed_at = (L, radius, Z) if complete else None
        if self.pairs is not None:
            self.compile_for(len(self.pairs.indices) * Z.shape[1])
        after = self.evaluate(L).loss
        return (after - before) / after if after > 0 else 0.0

    def _joined(self, one: PairList | None, other: PairList | None) -> PairList | None:
        """Two lists in one; None, for all pairs, where it would be too long."""
        if one is None or other is None:
            return None
        lists = [(pairs.centers, pairs.indices) for pairs in (one, other)]
        joined = pair_list(lists, len(self.points))
        return joined if len(joined.indices) <= self.max_pairs else None

    def is_complete(self, L: Matrix) -> bool:
        """Whether the list surely holds every active pair under L, without a search.

        With M ⪰ αM₀, M₀ being the metric of the last search, unlisted pairs are at least α times
        their radius then.
        """
        if self.pairs is None:
            return True
        if self._listed_at is None:
            return False
        before, radius, there = self._listed_at
        if L is before or np.array_equal(L, before):
            return True
        Z = self.mapped(L)
        if (table := self._table()) is not None:
            reach, distances = table.measure(Z, self.n_threads)
            needed = reach.max(axis=1) + self.smoothing / 2
            # Beyond the last that counts nothing does.
            needed = np.minimum(needed, table.furthest(distances))
        else:
            needed = 1.0 + target_distances(Z, self.targets).max(axis=1) + self.smoothing / 2
        centers = np.isfinite(needed)
        if self.nearest is not None and table is None:
            listed = self.pairs.centers
            distances = listed_distances(Z, listed, self.pairs.indices, self.n_threads)
            last = order_of_nearness(listed, distances) == self.nearest - 1
            needed[listed[last]] = np.minimum(needed[listed[last]], distances[last])
        least = self._least_distances(before, L, radius, there, Z)
        # A little more than needed, for what single precision rounds.
        return bool(np.all(least[centers] >= (1 + 1e-5) * needed[centers]))

    def _least_distances(
        self, before: Matrix, now: Matrix, radius: Matrix, there: Floats, here: Floats
    ) -> Matrix:
        """How far at least from each centre all are that were beyond its radius."""
        if there.shape == here.shape:
            # No distance can have become less by more than its two points have moved.
            moved = np.sqrt(np.einsum("ij,ij->i", difference := here - there, difference))
            lengths = np.sqrt(np.maximum(radius, 0.0)) - moved - moved.max()
            least = np.maximum(lengths, 0.0) ** 2
        else:
            least = np.zeros(len(radius))
        # Within 10 % none can be left if all are; the bound of the metrics takes longer.
        if before.ndim > 1 and before.shape[0] < before.shape[1]:
            return least
        share = self.shrinkage(before, now)
        # A centre without targets has a radius of minus infinity, of which 0 times is no number.
        return np.maximum(least, share * radius) if share > 0 else least

    def shrinkage(self, before: Matrix, now: Matrix) -> float:
        """At least so many times the squared distances before are those now."""
        return shrinkage_of(before, now)


def used_columns(L: Matrix) -> Indices:
    """Columns to which a diagonal map gives a factor: at least one."""
    return np.flatnonzero(L) if L.any() else np.zeros(1, dtype=np.intp)


def shrinkage_of(before: Matrix, now: Matrix) -> float:
    """The largest α with M ⪰ αM₀ for two maps, as far as it is easily known; 0 is always right."""
    if before.ndim == 1:
        used = before != 0
        return float(np.min((now[used] / before[used]) ** 2)) if used.any() else 0.0
    first = before.T @ before
    values = linalg.eigvalsh(first)
    if values[0] <= 1e-10 * values[-1]:
        return 0.0  # too near to singular for the ratio to be trusted
    return least_eigenvalue(now.T @ now, first)
