"""The large-margin loss over a working set of impostors.

Impostors are listed by a full search, and the loss is evaluated on the list. Another search, or a
bound on the change of distances, shows whether an impostor is missing.
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
from nearfar.large_margin.impostors import find_impostors, find_nearest_impostors
from nearfar.large_margin.listed_loss import Screen, compute_listed_loss
from nearfar.large_margin.nearest_table import NearestTable
from nearfar.large_margin.pair_lists import (
    PairList,
    compute_listed_distances,
    compute_target_distances,
    make_pair_list,
    rank_by_distance,
)
from nearfar.large_margin.triplet_loss import (
    Evaluation,
    HingeDistances,
    compute_full_loss,
    measure,
)
from nearfar.solvers.eigen import compute_min_eigenvalue

Structure = Literal["full", "diagonal"]

# These constants were tuned to reduce the time of a whole fit on the digits and letter datasets and
# on generated data. None of them changes the optimum.

# Multiple of the reach within which pairs are listed, even if they are not active.
SLACK = 1.1
# Maximum number of listed pairs per center while the map is coarse.
PAIRS_PER_CENTER = 40
# Ratio of listed impostors to impostors that count, if only the nearest impostors count.
LISTED_PER_NEAREST = 4
# Product of pairs and dimensions up to which a coarse list is never shortened. A shorter list would
# not save time.
COARSE_SIZE = 2 * 10**6
# Minimum number of entries at which a map is treated as wide.
WIDE = 10**4
# Product of pairs and dimensions up to which a coarse list for a wide map is never shortened. Wide
# maps start close to the optimum, so longer lists are useful.
WIDE_COARSE_SIZE = 2 * 10**8
# Minimum product of pairs and dimensions at which compiled kernels are used. Below this size,
# loading the kernels takes longer than the time they save.
MIN_COMPILED_SIZE = 10**6
# Minimum number of dimensions at which a bound is used to skip pairs. With fewer dimensions, it is
# faster to compute their distances.
MIN_SCREENED_DIMENSIONS = 32
# Number of entries up to which a table of impostors is used, even if most entries are empty.
SMALL_TABLE = 10**5
# Maximum number of entries per listed pair in a table with more than SMALL_TABLE entries.
MAX_EMPTY_RATIO = 4
# Number of sampled distances used to estimate the number of pairs within a radius.
SAMPLED_DISTANCES = 6 * 10**5
# Threads save time if the array of points has at least THREADED_ROWS entries. The rows are then
# split into CHUNKS_PER_THREAD chunks per thread.
THREADED_ROWS, CHUNKS_PER_THREAD = 10**6, 2


def is_large(points: Floats) -> bool:
    """Return True if there are enough points for single precision to save time."""
    return points.size > 10**5


class ListedMargin:
    """The large-margin loss over the listed impostor pairs, or over all pairs without a list.

    ``points`` are in the coordinates of the solver. A target of -1 is missing. ``push_weight`` is
    μ. With ``structure="diagonal"``, L is a vector with one factor per coordinate. ``nearest`` is
    the number of nearest impostors per point that count. None means that all count.
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
        # Float32 is twice as fast. It is accurate enough while iterations lower the loss by more
        # than 1e-6.
        self.working = points.astype(np.float32, copy=False) if is_large(points) else points
        self.points, self.codes, self.all_targets = points, codes, targets
        self.push_weight, self.n_threads, self.structure = push_weight, n_threads, structure
        self.nearest = nearest
        n = len(points)
        # If there are more than about n²/4 pairs, dense blocks are faster and smaller than a list.
        self.max_pairs = int(np.clip(n * n // 4, 10**5, 3 * 10**7))
        self.smoothing = 0.0
        self.bound = 0.0
        self.max_rows = points.shape[1]
        self._cached_table: NearestTable | None = None
        #: Compiled kernels, loaded when the number of pairs is large, or None.
        self.compiled: ModuleType | None = None
        #: Columns in which a diagonal map may be nonzero.
        self.columns = np.arange(points.shape[1])
        #: Working points, restricted to the columns in ``columns``.
        self.working_columns = self.working
        self.use_centers(None)

    def use_centers(self, n_centers: int | None) -> None:
        """Use all centers in the loss, or only ``n_centers`` of them to save time."""
        self.targets = self.all_targets
        if n_centers is not None and n_centers < len(self.points):
            # Choose evenly spaced centers from the points sorted by class, so that all classes are
            # represented in proportion.
            order = np.argsort(self.codes, kind="stable")
            sampled = order[np.linspace(0, len(order) - 1, n_centers).astype(np.intp)]
            self.targets = np.full_like(self.all_targets, -1)
            self.targets[sampled] = self.all_targets[sampled]
        self.pairs: PairList | None = make_pair_list([], len(self.points))
        #: Map, radii and mapped points at the last search.
        self._listed_at: tuple[Matrix, Matrix, Floats] | None = None
        self._screen: Screen | None = None

    def compile_for(self, n_numbers: int) -> None:
        """Use compiled kernels if ``n_numbers`` (pairs times dimensions) is large enough."""
        if n_numbers >= MIN_COMPILED_SIZE:
            self.compiled = import_kernels("nearfar.large_margin._kernels")

    def map_points(self, L: Matrix, points: Floats | None = None) -> Floats:
        """Return the mapped points."""
        X = self.working if points is None else points
        if self.structure == "diagonal" and points is None:
            X, L = self._restrict(L)
        narrow = L.astype(X.dtype)
        Z = np.empty(X.shape if self.structure == "diagonal" else (len(X), len(L)), X.dtype)

        def multiply_chunk(chunk: slice) -> None:
            if self.structure == "diagonal":
                np.multiply(X[chunk], narrow, out=Z[chunk])
            else:
                np.matmul(X[chunk], narrow.T, out=Z[chunk])

        self._run_in_chunks(multiply_chunk, X)
        return Z

    def map_exactly(self, L: Matrix) -> Floats:
        """Return the mapped points in double precision."""
        if self.structure == "diagonal":
            columns = find_used_columns(L)
            return np.take(self.points, columns, axis=1) * L[columns]
        if self.points.dtype == np.float64:
            return self.map_points(L, self.points)
        Z = np.empty((len(self.points), len(L)))

        def multiply_chunk(chunk: slice) -> None:
            np.matmul(self.points[chunk].astype(np.float64), L.T, out=Z[chunk])

        self._run_in_chunks(multiply_chunk, self.points)
        return Z

    def select_columns(self, L: Matrix) -> None:
        """Drop the columns in which a diagonal map is zero."""
        self.columns = find_used_columns(L)
        is_complete = len(self.columns) == self.working.shape[1]
        self.working_columns = (
            self.working if is_complete else np.ascontiguousarray(self.working[:, self.columns])
        )

    def _restrict(self, L: Matrix) -> tuple[Floats, Matrix]:
        """Return the points and the factors in the columns where a diagonal map may be nonzero."""
        if np.count_nonzero(L) > np.count_nonzero(L[self.columns]):
            self.select_columns(L)
        return self.working_columns, L[self.columns]

    def compute_gradient(self, laplacian_z: Floats, points: Floats | None = None) -> Matrix:
        """Return the gradient of the loss in L, computed from Lap(W) Z."""
        X = self.working if points is None else points

        def multiply_chunk(chunk: slice) -> Matrix:
            if self.structure == "diagonal":
                return np.asarray(np.einsum("ij,ij->j", laplacian_z[chunk], X[chunk]), np.float64)
            return (laplacian_z[chunk].T @ X[chunk]).astype(np.float64)

        return np.asarray(2 * sum(self._run_in_chunks(multiply_chunk, X)))

    def _run_in_chunks(self, function: Callable[[slice], Any], X: Floats) -> list[Any]:
        """Call a function with slices of the rows. Threads are used if this saves time."""
        is_serial = self.n_threads == 1 or X.size < THREADED_ROWS
        n_chunks = 1 if is_serial else CHUNKS_PER_THREAD * self.n_threads
        slices = split_rows(len(X), 0, max_rows=max(1, -(-len(X) // n_chunks)))
        return list(map_in_order(function, slices, 1 if is_serial else self.n_threads))

    def evaluate(
        self,
        L: Matrix,
        smoothing: float | None = None,
        V: Floats | None = None,
        points: Floats | None = None,
        measured: HingeDistances | None = None,
    ) -> Evaluation:
        """Return the loss. ``smoothing=None`` uses the current smoothing of the hinges."""
        width = self.smoothing if smoothing is None else smoothing
        if measured is not None and V is not None:
            Z = V  # The distances are known, so the points are not needed.
        else:
            Z = self.map_points(L) if points is None else self.map_exactly(L)
        if self.pairs is None:
            return compute_full_loss(
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
        if self.compiled is None and (table := self._get_table()) is not None:
            measured = table.measure(Z, self.n_threads) if measured is None else measured
            return table.loss(
                measured, Z if V is None else V, self.push_weight, width, self.n_threads
            )
        if points is not None or measured is not None or Z.shape[1] < MIN_SCREENED_DIMENSIONS:
            screen = None
        elif self._screen is None or not self._screen.fits(self.pairs, Z):
            screen = self._screen = Screen(self.pairs, Z)
        else:
            screen = self._screen
        return compute_listed_loss(
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

    def _get_table(self) -> NearestTable | None:
        """Return a table of the listed pairs, or None.

        A table is used if only the nearest impostors count and the centers have similar numbers of
        listed impostors.
        """
        pairs, table = self.pairs, self._cached_table
        if table is not None and table.impostors is pairs and table.targets is self.targets:
            return table
        self._cached_table = None
        if self.nearest is not None and pairs is not None:
            width = int(np.diff(pairs.indptr).max(initial=0))
            if width * len(self.points) <= max(SMALL_TABLE, MAX_EMPTY_RATIO * len(pairs.indices)):
                self._cached_table = NearestTable(pairs, self.targets, self.nearest)
        return self._cached_table

    def measure_pairs(self, L: Matrix) -> HingeDistances | None:
        """Return the distances of the listed pairs in double precision.

        Return None if the pairs are not listed.
        """
        if self.pairs is None:
            return None
        return measure(self.map_exactly(L), self.targets, self.pairs, self.n_threads)

    def evaluate_exactly(self, L: Matrix) -> Evaluation:
        """Return the objective without smoothing, in double precision."""
        return self.evaluate(L, smoothing=0.0, points=self.points)

    def compute_zero_map_loss(self) -> float:
        """Return the loss of the zero map, under which every hinge is 1."""
        sizes = np.bincount(self.codes)
        n_others = len(self.codes) - sizes[self.codes]
        n_counted = n_others if self.nearest is None else np.minimum(n_others, self.nearest)
        return self.push_weight * float(((self.targets >= 0).sum(axis=1) * n_counted).sum())

    def rescale(self, L: Matrix) -> Matrix:
        """Return L multiplied by the factor with the lowest loss.

        Without this, if L is much too large, the pull term would shrink L until all hinges are
        active.
        """
        return np.asarray(L * self.find_best_scale(L))

    def find_best_scale(self, L: Matrix) -> float:
        """Return the factor of L with the lowest loss over a sample of centers."""
        pulled, gaps = self._compute_gaps(self.map_points(L))
        # The loss is convex and piecewise linear in the square s of the factor. A hinge with the
        # gap g < 0 is active for s < -1/g, so the slope decreases as s decreases.
        pull = (1 - self.push_weight) * float(pulled.sum())
        pull += self.push_weight * float(gaps[gaps > 0].sum())
        closing = np.sort(gaps[gaps < 0])[::-1]
        slopes = pull + self.push_weight * np.cumsum(closing)
        turning = int(np.searchsorted(-slopes, 0.0, side="right"))
        if turning >= len(closing) or pull <= 0:
            mean = float(pulled.mean())
            return float(1 / np.sqrt(mean)) if mean > 0 else 1.0
        return float(1 / np.sqrt(-closing[turning]))

    def _compute_gaps(self, Z: Floats) -> tuple[Matrix, Matrix]:
        """Return the target distances of sampled centers, and target minus impostor distances."""
        sample = self._sample_centers(10**6)
        sample_targets = self.targets[sample]
        rows, slots = np.nonzero(sample_targets >= 0)
        reach = np.full(sample_targets.shape, -np.inf)
        reach[rows, slots] = compute_listed_distances(Z, sample[rows], sample_targets[rows, slots])
        impostor_distances = self._compute_distances(Z, sample)
        if self.nearest is not None and self.nearest < impostor_distances.shape[1]:
            impostor_distances = np.partition(impostor_distances, self.nearest - 1, axis=1)[
                :, : self.nearest
            ]
        gaps = reach[:, :, None] - impostor_distances[:, None, :]
        return reach[np.isfinite(reach)], gaps[np.isfinite(gaps)]

    def _sample_centers(self, n_distances: int) -> Indices:
        """Return evenly spaced centers with about ``n_distances`` hinges in total."""
        centers = np.flatnonzero((self.targets >= 0).any(axis=1))
        n_requested = max(30, n_distances // self.targets.size)
        return centers[
            np.unique(
                np.linspace(0, len(centers) - 1, min(len(centers), n_requested)).astype(np.intp)
            )
        ]

    def _compute_distances(self, Z: Floats, rows: Indices) -> Matrix:
        """Return squared distances from rows to all points, or infinity within the same class."""
        mean = Z.mean(axis=0, dtype=np.float64)
        centered, distances = Z[rows] - mean, np.empty((len(rows), len(Z)))
        for block in split_rows(len(Z), 16 * Z.shape[1]):
            distances[:, block] = compute_squared_distances(centered, Z[block] - mean)
        distances[self.codes[rows, None] == self.codes] = np.inf
        return distances

    def _find_radius_factor(self, Z: Floats, radius: Matrix, n_pairs: int) -> float:
        """Return the largest factor up to 1 for which the radii contain about ``n_pairs`` pairs."""
        sample = self._sample_centers(SAMPLED_DISTANCES)
        ratios = (self._compute_distances(Z, sample) / radius[sample, None]).ravel()
        n_centers = int((self.targets >= 0).any(axis=1).sum())
        n_allowed = int(n_pairs * len(sample) / n_centers)
        if np.count_nonzero(ratios < 1.0) <= n_allowed:
            return 1.0
        return float(np.partition(ratios, n_allowed)[n_allowed])

    def search(
        self, L: Matrix, *, keep: bool = False, coarse: bool = False, max_listed: int | None = None
    ) -> float:
        """List every pair with an active hinge under L. Return the missing fraction of the loss.

        With ``keep``, previously listed pairs remain, so that repeated searches terminate. Without
        it, the list contains only the pairs that are close under L. With ``coarse``, or with
        ``max_listed`` (a number of pairs), only the nearest pairs are listed if there are too many.
        """
        Z = self.map_points(L)
        reach = 1.0 + compute_target_distances(Z, self.targets).max(axis=1)
        # Pairs slightly beyond the reach are listed too, because they may soon become active.
        radius = np.maximum(SLACK * reach, reach + self.smoothing)
        loss_before = self.evaluate(L).loss
        pairs: PairList | None
        is_full = True
        if self.nearest is not None:
            pairs, radius = find_nearest_impostors(
                Z, self.codes, radius, LISTED_PER_NEAREST * self.nearest, n_threads=self.n_threads
            )
        else:
            if coarse:
                n_centers = int(np.isfinite(reach).sum())
                size = WIDE_COARSE_SIZE if L.size >= WIDE else COARSE_SIZE
                max_listed = max(PAIRS_PER_CENTER * n_centers, size // Z.shape[1])
            if max_listed is not None:
                factor = self._find_radius_factor(Z, radius, max_listed)
                is_full = factor == 1.0
                radius = radius * factor
            pairs = find_impostors(
                Z, self.codes, radius, max_pairs=self.max_pairs, n_threads=self.n_threads
            )
        self.pairs = self._join(self.pairs, pairs) if keep else pairs
        self._listed_at = (L, radius, Z) if is_full else None
        if self.pairs is not None:
            self.compile_for(len(self.pairs.indices) * Z.shape[1])
        loss_after = self.evaluate(L).loss
        return (loss_after - loss_before) / loss_after if loss_after > 0 else 0.0

    def _join(self, first: PairList | None, second: PairList | None) -> PairList | None:
        """Return the union of two lists, or None (all pairs) if the union is too long."""
        if first is None or second is None:
            return None
        lists = [(pairs.centers, pairs.indices) for pairs in (first, second)]
        joined = make_pair_list(lists, len(self.points))
        return joined if len(joined.indices) <= self.max_pairs else None

    def is_complete(self, L: Matrix) -> bool:
        """Return True if a bound proves that the list contains every active pair under L.

        Let M₀ be the metric of the last search. If M ⪰ αM₀, the squared distance of a pair that is
        not listed is at least α times the radius at the last search.
        """
        if self.pairs is None:
            return True
        if self._listed_at is None:
            return False
        L_before, radius, Z_before = self._listed_at
        if L is L_before or np.array_equal(L, L_before):
            return True
        Z = self.map_points(L)
        if (table := self._get_table()) is not None:
            reach, distances = table.measure(Z, self.n_threads)
            reach_needed = reach.max(axis=1) + self.smoothing / 2
            # Impostors beyond the last one that counts can be ignored.
            reach_needed = np.minimum(reach_needed, table.find_last_distances(distances))
        else:
            reach_needed = (
                1.0 + compute_target_distances(Z, self.targets).max(axis=1) + self.smoothing / 2
            )
        centers = np.isfinite(reach_needed)
        if self.nearest is not None and table is None:
            centers_listed = self.pairs.centers
            distances = compute_listed_distances(
                Z, centers_listed, self.pairs.indices, self.n_threads
            )
            is_last = rank_by_distance(centers_listed, distances) == self.nearest - 1
            reach_needed[centers_listed[is_last]] = np.minimum(
                reach_needed[centers_listed[is_last]], distances[is_last]
            )
        min_distances = self._bound_distances(L_before, L, radius, Z_before, Z)
        # The factor allows for rounding in single precision.
        return bool(np.all(min_distances[centers] >= (1 + 1e-5) * reach_needed[centers]))

    def _bound_distances(
        self, L_before: Matrix, L: Matrix, radius: Matrix, Z_before: Floats, Z: Floats
    ) -> Matrix:
        """Return lower bounds on the squared distances from each center to unlisted points."""
        if Z_before.shape == Z.shape:
            # A distance decreases by at most the sum of the displacements of its two points.
            displacements = np.sqrt(np.einsum("ij,ij->i", difference := Z - Z_before, difference))
            lengths = np.sqrt(np.maximum(radius, 0.0)) - displacements - displacements.max()
            min_distances = np.maximum(lengths, 0.0) ** 2
        else:
            min_distances = np.zeros(len(radius))
        # The metric of a map with fewer rows than columns is singular, so its bound would be zero.
        if L_before.ndim > 1 and L_before.shape[0] < L_before.shape[1]:
            return min_distances
        ratio = self.bound_shrinkage(L_before, L)
        # A center without targets has a radius of minus infinity. Multiplied by 0, it would be NaN.
        return np.maximum(min_distances, ratio * radius) if ratio > 0 else min_distances

    def bound_shrinkage(self, previous: Matrix, current: Matrix) -> float:
        """Return a lower bound on the ratio of current to previous squared distances."""
        return compute_map_shrinkage(previous, current)


def find_used_columns(L: Matrix) -> Indices:
    """Return the columns in which a diagonal map is nonzero, or column 0 if there is none."""
    return np.flatnonzero(L) if L.any() else np.zeros(1, dtype=np.intp)


def compute_map_shrinkage(previous: Matrix, current: Matrix) -> float:
    """Return the largest α with M ⪰ αM₀ for two maps, or 0 if it cannot be computed reliably."""
    if previous.ndim == 1:
        is_used = previous != 0
        return float(np.min((current[is_used] / previous[is_used]) ** 2)) if is_used.any() else 0.0
    M_previous = previous.T @ previous
    values = linalg.eigvalsh(M_previous)
    if values[0] <= 1e-10 * values[-1]:
        return 0.0  # M₀ is too close to singular for a reliable ratio.
    return compute_min_eigenvalue(current.T @ current, M_previous)
