"""The solver behind LMNN and its relatives: L-BFGS over a working set of impostors, and a bound.

The convex loss in M = L'L is minimised over L. Its hinges are rounded at first and sharpened on
the way, because quasi-Newton steps stall at kinks; the slopes of rounded hinges then are the
fractional multipliers of a good dual bound. Impostors are listed by a full search, the loss is
evaluated on the list, and nothing is called converged before a search, or a bound on how far
distances can have moved, shows that none is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

import numpy as np
from scipy import linalg, optimize

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import squared_distances
from nearfar.large_margin.impostors import find_impostors, nearest_impostors
from nearfar.large_margin.triplet_loss import (
    Evaluation,
    Measured,
    PairList,
    full_loss,
    listed_distances,
    listed_loss,
    measure,
    order_of_nearness,
    pair_list,
    pull_laplacian,
    target_distances,
    triplet_loss,
)
from nearfar.solvers.eigen import least_eigenvalue, some_eigh

Structure = Literal["full", "diagonal"]

# Tuned for the time of a whole fit on digits, letter and generated sets; none moves the optimum.
SLACK = 1.1  # pairs up to this multiple of the reach are listed with the active ones
FIRST_CHECK, LAST_CHECK = 5, 20  # iterations between full searches, at first and later
MANY_PAIRS = 10**7  # listed at most before it has settled
FREE_ROUNDS = 2  # on a sample of centres that find most of the loss missing; then lists are joined
FEW_CENTERS = 2000  # centres of the first stage
PAIRS_PER_CENTER = 40  # listed at most while the map is still coarse
SPARE_IMPOSTORS = 4  # where only the nearest impostors count, so many times as many are listed
FEW_NUMBERS = 2 * 10**6  # pairs times dimensions, below which it is not worth listing fewer
# Widths over which the kink of the hinge is rounded, each solved from the one before.
WIDTHS = (0.1, 0.01, 1e-3, 1e-4, 1e-5)


@dataclass
class Progress:
    """Where the solver is, kept up to date so that an interrupted fit leaves it behind."""

    L: Matrix
    history: dict[str, list[float]] = field(
        default_factory=lambda: {"objective": [], "step": [], "active": [], "seconds": []}
    )
    began: float = field(default_factory=perf_counter)
    #: Called after each iteration with what the history notes of it.
    report: Callable[[dict[str, float]], None] | None = None
    #: Called with L after each iteration; returns True to stop (early stopping).
    watch: Callable[[Matrix], bool] | None = None
    stopped: bool = False

    @property
    def n_iter(self) -> int:
        """Iterations so far."""
        return len(self.history["objective"])


class LargeMargin:
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
        self.points, self.codes, self.all_targets = points, codes, targets
        self.push_weight, self.n_threads, self.structure = push_weight, n_threads, structure
        self.nearest = nearest
        n = len(points)
        # Beyond about n²/4 pairs the dense blocks are faster than the list, and smaller.
        self.max_pairs = int(np.clip(n * n // 4, 10**5, 3 * 10**7))
        # Float32 is enough while iterations gain more than a millionth, and twice as fast.
        self.working = points.astype(np.float32) if points.size > 10**5 else points
        self.smoothing = 0.0
        self.bound = 0.0
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
        self._listed_at: tuple[Matrix, Matrix] | None = None

    # Maps

    def mapped(self, L: Matrix, points: Floats | None = None) -> Floats:
        """Points under the map."""
        X = self.working if points is None else points
        narrow = L.astype(X.dtype)
        return X * narrow if self.structure == "diagonal" else X @ narrow.T

    def gradient(self, laplacian_z: Floats) -> Matrix:
        """Of the loss in L, from Lap(W) Z."""
        if self.structure == "diagonal":
            parts = np.einsum("ij,ij->j", laplacian_z, self.working, dtype=np.float64)
        else:
            parts = (laplacian_z.T @ self.working).astype(np.float64)
        return 2 * parts

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
        Z = self.mapped(L, points)
        if self.pairs is None:
            return full_loss(Z, self.codes, self.targets, self.push_weight, width, V)
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
        )

    def measured(self, L: Matrix) -> Measured | None:
        """Distances under L in full precision, to be evaluated more than once; None for all."""
        if self.pairs is None:
            return None
        return measure(self.mapped(L, self.points), self.targets, self.pairs, self.n_threads)

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
        pulled, gaps = self._gaps(self.mapped(L, self.points))
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
        reach = target_distances(Z, self.targets)[sample]
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
        centered = Z.astype(np.float64) - Z.mean(axis=0)
        distances = squared_distances(centered[rows], centered)
        distances[self.codes[rows, None] == self.codes] = np.inf
        return np.asarray(distances, dtype=np.float64)

    def _affordable(self, Z: Floats, radius: Matrix, n_pairs: int) -> float:
        """The largest factor up to 1 of the radii that lists about ``n_pairs`` pairs."""
        sample = self._sample(3 * 10**6)
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
        Z = self.mapped(L, self.points)
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
                at_most = max(PAIRS_PER_CENTER * n_centers, FEW_NUMBERS // Z.shape[1])
            if at_most is not None:
                factor = self._affordable(Z, radius, at_most)
                complete = factor == 1.0
                radius = radius * factor
            pairs = find_impostors(
                Z, self.codes, radius, max_pairs=self.max_pairs, n_threads=self.n_threads
            )
        self.pairs = self._joined(self.pairs, pairs) if keep else pairs
        self._listed_at = (L, radius) if complete else None
        after = self.evaluate(L).loss
        return (after - before) / after if after > 0 else 0.0

    def is_complete(self, L: Matrix) -> bool:
        """Whether the list surely holds every active pair under L, without a search.

        With M ⪰ αM₀, M₀ being the metric of the last search, unlisted pairs are at least α times
        their radius then.
        """
        if self.pairs is None:
            return True
        if self._listed_at is None:
            return False
        before, radius = self._listed_at
        if L is before or np.array_equal(L, before):
            return True
        alpha = self.shrinkage(before, L)
        Z = self.mapped(L, self.points)
        needed = 1.0 + target_distances(Z, self.targets).max(axis=1) + self.smoothing / 2
        centers = np.isfinite(needed)
        if self.nearest is not None:
            # Beyond the last that counts nothing does.
            listed = self.pairs.centers
            distances = listed_distances(Z, listed, self.pairs.indices, self.n_threads)
            last = order_of_nearness(listed, distances) == self.nearest - 1
            needed[listed[last]] = np.minimum(needed[listed[last]], distances[last])
        return bool(np.all(alpha * radius[centers] >= needed[centers]))

    def shrinkage(self, before: Matrix, now: Matrix) -> float:
        """At least so many times the squared distances before are those now."""
        return shrinkage_of(before, now)

    # Descent

    def solve(self, progress: Progress, *, max_iter: int, tol: float) -> bool:
        """Minimise; False when ``max_iter`` came first."""
        for few in self._stages():
            self.use_centers(few)
            self.smoothing = WIDTHS[0]
            final = few is None
            if progress.n_iter == 0:
                progress.L = self.rescaled(progress.L)
            if not self._settle(progress, max_iter, tol if final else 1e-3, not final):
                return False
            if progress.stopped:
                return True
        for width in WIDTHS[1:]:
            if progress.stopped or self._rounding(progress.L) <= 100 * tol:
                break
            # Where each width settles its slopes are nearly feasible multipliers.
            self.bound = max(self.bound, self.dual_bound(progress.L))
            self.smoothing = width
            if not self._settle(progress, max_iter, tol, False):
                return False
        if not self.is_complete(progress.L):
            self.search(progress.L)
        return True

    def _stages(self) -> list[int | None]:
        """How many centres to sum over, one stage after the other; None for all."""
        n_centers = int((self.all_targets >= 0).any(axis=1).sum())
        few = max(FEW_CENTERS, n_centers // 8)
        return [few, None] if 2 * few <= n_centers else [None]

    def _rounding(self, L: Matrix) -> float:
        """By what share rounded hinges raise the loss: what sharper ones could still gain."""
        rounded, sharp = self.evaluate(L).loss, self.evaluate(L, smoothing=0.0).loss
        return (rounded - sharp) / rounded if rounded > 0 else 0.0

    def _settle(self, progress: Progress, max_iter: int, tol: float, coarse: bool) -> bool:
        """Descend and search until neither changes anything; False when iterations ran out."""
        if not self.is_complete(progress.L):
            self.search(progress.L, coarse=True)
        keep, check, rounds = False, FIRST_CHECK, 0
        # The best map so far by its whole loss, and what was listed there.
        best, there = np.inf, (progress.L, self.pairs, self._listed_at)
        while True:
            found = self._descend(progress, max_iter, tol, check, keep, coarse)
            missing = 0.0 if found is None else found
            if found is None and not coarse and not self.is_complete(progress.L):
                missing = self.search(progress.L, keep=keep)
            objective = self.evaluate(progress.L).loss
            if progress.stopped:
                return True
            if progress.n_iter >= max_iter:
                return False
            settled = found is None and missing <= tol
            if settled and (coarse or not self._escape(progress, tol)):
                return True
            if coarse:
                # Losses over lists that are not whole cannot be compared. Where new lists would
                # lead it to and fro they are joined, and it looks soon again.
                rounds += missing > 0.5
                keep = rounds >= FREE_ROUNDS
                check = FIRST_CHECK if missing > 0.5 else min(2 * check, LAST_CHECK)
            elif objective < best:
                best, there = objective, (progress.L, self.pairs, self._listed_at)
                check = min(2 * check, LAST_CHECK)
            else:
                # What was missing led astray: back, with both lists, and look sooner. From now on
                # the list only grows, so that the rounds come to an end.
                progress.L, listed, self._listed_at = there
                self.pairs = self._joined(listed, self.pairs)
                keep, check = True, max(2, check // 4)

    def _joined(self, one: PairList | None, other: PairList | None) -> PairList | None:
        """Two lists in one; None, for all pairs, where it would be too long."""
        if one is None or other is None:
            return None
        lists = [(pairs.centers, pairs.indices) for pairs in (one, other)]
        joined = pair_list(lists, len(self.points))
        return joined if len(joined.indices) <= self.max_pairs else None

    def _descend(
        self, progress: Progress, max_iter: int, tol: float, check: int, keep: bool, coarse: bool
    ) -> float | None:
        """L-BFGS; the share of the loss that a check on the way found missing, if one did."""
        shape = progress.L.shape
        checked = progress.n_iter
        missing: float | None = None
        last: Evaluation | None = None

        def objective(flat: Matrix) -> tuple[float, Matrix]:
            nonlocal last
            last = self.evaluate(flat.reshape(shape))
            return last.loss, self.gradient(last.laplacian_v).ravel()

        def record(flat: Matrix) -> None:
            nonlocal checked, missing
            assert last is not None
            new = flat.reshape(shape).copy()
            history = progress.history
            history["objective"].append(last.loss)
            history["step"].append(float(np.linalg.norm(new - progress.L)))
            history["active"].append(last.n_active)
            history["seconds"].append(perf_counter() - progress.began)
            progress.L = new
            if progress.report is not None:
                progress.report({name: values[-1] for name, values in history.items()})
            if progress.watch is not None and progress.watch(new):
                progress.stopped = True
                raise StopIteration
            listed = self.pairs is not None  # if not, they may have become few enough
            if progress.n_iter - checked < check or (listed and self.is_complete(new)):
                return
            checked = progress.n_iter
            share = self.search(new, keep=keep, coarse=coarse, at_most=MANY_PAIRS)
            # A little more loss than L-BFGS knows of does not mislead it.
            if share > 10 * tol:
                missing = share
                raise StopIteration

        optimize.minimize(
            objective,
            progress.L.ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=record,
            options={
                "maxiter": max_iter - progress.n_iter,
                "ftol": tol,
                "gtol": 0.0,
                "maxcor": 20,
            },
        )
        return missing

    def _escape(self, progress: Progress, tol: float) -> bool:
        """Leave a stationary point of L that is no optimum of M = L'L; False if there is no way.

        Where L has lost rank its gradient 2LG vanishes although G, the gradient in M, may have a
        negative eigenvalue; along that eigenvector the convex problem still descends.
        """
        L = progress.L
        if self.structure == "diagonal" or L.shape[0] < L.shape[1]:
            return False
        here = self.evaluate(L).loss
        values, vectors = some_eigh(self._slope(L, self.smoothing)[0], 0, 0)
        if values[0] >= 0:
            return False
        # Rotated so that the last row carries the weakest direction, which the new one replaces.
        _, singular, axes = np.linalg.svd(L, full_matrices=False)
        rows = singular[:, None] * axes
        for length in singular[0] * np.array([0.3, 0.1, 0.03, 0.01]):
            rows[-1] = length * vectors[:, 0]
            if self.evaluate(rows).loss < here * (1 - 10 * tol):
                progress.L = rows
                return True
        return False

    # The bound

    def _slope(
        self, L: Matrix, smoothing: float, measured: Measured | None = None
    ) -> tuple[Matrix, float]:
        """The gradient in M (its diagonal when L is one) and the sum of slopes."""
        X = self.points
        d = X.shape[1]
        if measured is None:
            measured = self.measured(L)
        G = np.empty(d if self.structure == "diagonal" else (d, d))
        for start in range(0, d, 256):
            part = slice(start, start + 256)
            V = np.ascontiguousarray(X[:, part])
            found = self.evaluate(L, smoothing, V=V, points=X, measured=measured)
            if self.structure == "diagonal":
                G[part] = np.einsum("ij,ij->j", found.laplacian_v, V)
            else:
                G[:, part] = X.T @ found.laplacian_v
        return (G + G.T) / 2, found.slopes

    def _pull(self) -> Matrix:
        """The pull term's gradient in M, which no hinge changes."""
        laplacian_x = pull_laplacian(self.targets, self.push_weight, self.points)
        if self.structure == "diagonal":
            return np.asarray(np.einsum("ij,ij->j", laplacian_x, self.points))
        P = self.points.T @ laplacian_x
        return np.asarray((P + P.T) / 2)

    def dual_bound(self, L: Matrix) -> float:
        r"""A lower bound on the least loss over all M ⪰ 0, from the slopes of the hinges at L.

        For multipliers :math:`0 \le \gamma \le 1` of the triplets with
        :math:`S(\gamma) = P + \mu \sum \gamma_t (C_{ij} - C_{il}) \succeq 0`, P being the pull
        term's, the dual value :math:`\mu \sum \gamma_t` is such a bound. The slopes of rounded
        hinges nearly satisfy it at a good L; a common factor makes sure.
        """
        P = self._pull()
        best, measured = self.bound, self.measured(L)
        for width in self.smoothing * np.array([1.0, 0.3, 3.0]):
            S, slopes = self._slope(L, width, measured)
            lowest = least_ratio(S - P, P)
            factor = 1.0 if lowest >= -1.0 else -1.0 / lowest
            best = max(best, factor * self.push_weight * slopes)
        return best


class GivenTriplets(LargeMargin):
    """The loss over given triplets (centre, target, impostor): nothing is searched for."""

    def __init__(
        self,
        points: Floats,
        triplets: Indices,
        push_weight: float,
        *,
        structure: Structure = "full",
    ) -> None:
        self.triplets = triplets
        nothing = np.full((len(points), 1), -1, dtype=np.intp)
        codes = np.zeros(len(points), dtype=np.intp)
        super().__init__(points, codes, nothing, push_weight, structure=structure)

    def evaluate(
        self,
        L: Matrix,
        smoothing: float | None = None,
        V: Floats | None = None,
        points: Floats | None = None,
        measured: Measured | None = None,
    ) -> Evaluation:
        """The loss over the triplets."""
        width = self.smoothing if smoothing is None else smoothing
        return triplet_loss(self.mapped(L, points), self.triplets, self.push_weight, width, V)

    def search(
        self, L: Matrix, *, keep: bool = False, coarse: bool = False, at_most: int | None = None
    ) -> float:
        """Nothing to search."""
        return 0.0

    def measured(self, L: Matrix) -> None:
        """Nothing is kept."""

    def is_complete(self, L: Matrix) -> bool:
        """Always."""
        return True

    def _stages(self) -> list[int | None]:
        return [None]

    def _gaps(self, Z: Floats) -> tuple[Matrix, Matrix]:
        near = listed_distances(Z, self.triplets[:, 0], self.triplets[:, 1])
        return near, near - listed_distances(Z, self.triplets[:, 0], self.triplets[:, 2])

    def _pull(self) -> Matrix:
        # Of hinges that are all inactive only the pull is left.
        pairs = np.unique(self.triplets[:, :2], axis=0)
        difference = self.points[pairs[:, 0]] - self.points[pairs[:, 1]]
        difference = difference.astype(np.float64)
        if self.structure == "diagonal":
            return np.asarray((1 - self.push_weight) * (difference**2).sum(axis=0))
        return np.asarray((1 - self.push_weight) * difference.T @ difference)


def shrinkage_of(before: Matrix, now: Matrix) -> float:
    """The largest α with M ⪰ αM₀ for two maps, as far as it is easily known; 0 is always right."""
    if before.ndim == 1:
        return float(np.min((now / before) ** 2)) if before.all() else 0.0
    first = before.T @ before
    values = linalg.eigvalsh(first)
    if values[0] <= 1e-10 * values[-1]:
        return 0.0  # too near to singular for the ratio to be trusted
    return least_eigenvalue(now.T @ now, first)


def least_ratio(Q: Matrix, P: Matrix) -> float:
    """The least of v'Qv / v'Pv, with a ridge where P is empty."""
    if P.ndim == 1:
        return float(np.min(Q / (P + 1e-12 * P.mean())))
    ridged = P + 1e-12 * np.trace(P) / len(P) * np.eye(len(P))
    try:
        return least_eigenvalue(Q, ridged)
    except linalg.LinAlgError:  # P is nothing but rounding
        return -np.inf


def duality_gap(bound: float, objective: float) -> float:
    """Relative to the objective; 0 where there is nothing left."""
    return 1.0 - bound / objective if objective > 0 else 0.0
