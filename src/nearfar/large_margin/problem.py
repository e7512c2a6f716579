"""Solver of LMNN and related learners: L-BFGS over a working set of impostors, and a dual bound.

The loss is convex in M = L'L and is minimized over L. Its hinges are smoothed, and the smoothing is
reduced during the descent, because quasi-Newton steps stall at kinks. The slopes of the smoothed
hinges are fractional multipliers, which give a good dual bound. The solver converges only if no
impostor is missing from the working set. A square map with many columns starts with few rows, and
rows are added where the gradient in M shows that they lower the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
from scipy import linalg, optimize

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import use_one_blas_thread
from nearfar.large_margin.descent_progress import Progress
from nearfar.large_margin.descent_variables import Entries, Squares
from nearfar.large_margin.pair_lists import compute_listed_distances
from nearfar.large_margin.sampled_descent import prune_factors, run_sampled_descent
from nearfar.large_margin.triplet_loss import (
    Evaluation,
    HingeDistances,
    Laplacian,
    compute_triplet_loss,
    multiply_pull_laplacian,
    sum_pair_columns,
    weigh_hinges,
)
from nearfar.large_margin.working_set import WIDE, WIDE_COARSE_SIZE, ListedMargin, Structure
from nearfar.solvers.eigen import compute_min_eigenvalue, partial_eigh

# These constants were tuned to reduce the time of a whole fit on the digits and letter datasets and
# on generated data. None of them changes the optimum.

# Number of iterations between two full impostor searches at the start of a fit.
FIRST_CHECK = 5
# Maximum number of iterations between two full impostor searches.
LAST_CHECK = 20
# Maximum number of listed pairs before the descent has converged.
MAX_PAIRS = 10**7
# Maximum number of listed pairs per center if the map is wide.
MAX_PAIRS_PER_WIDE_CENTER = 120
# Number of searches over a sample of centers that may find most of the loss missing and still
# replace the list of pairs. Later searches only add pairs to the list.
FREE_ROUNDS = 2
# Minimum number of centers in the first stage.
FIRST_STAGE_CENTERS = 2000
# Initial number of rows of a square map that has at least twice as many columns.
FIRST_ROWS = 64
# Maximum number of rows that are added to a map at once.
MORE_ROWS = 32
# Minimum length of a row, relative to the longest row. Shorter rows are replaced by new rows.
SHORT_ROW = 1e-3
# Minimum number of factors at which a diagonal map is treated as wide.
WIDE_DIAGONAL = 128
# Minimum number of centers for which a wide map is first fitted to random samples of centers. Each
# step uses a new sample, because a wide map would overfit a single sample.
MIN_SAMPLED_CENTERS = 2000
# Factor by which ``tol`` is increased for wide maps with fewer rows than columns. Their problem is
# not convex, and with the original ``tol`` the second half of the iterations would lower the loss
# by less than 0.1%.
WIDE_TOL = 10
# Widths of the smoothed hinge, in the order of use. The solution for each width is the start for
# the next width.
WIDTHS = (0.1, 0.01, 1e-3, 1e-4, 1e-5)


class LargeMargin(ListedMargin):
    """The large-margin loss over the listed impostor pairs, with a solver and a dual bound."""

    def solve(self, progress: Progress, *, max_iter: int, tol: float) -> bool:
        """Minimize the loss. Return False if ``max_iter`` was reached before convergence."""
        shape = progress.L.shape
        if self._may_be_thin(progress.L):
            # The optimum usually has a low rank, so start with few rows. More rows are added if
            # needed.
            _, singular, axes = np.linalg.svd(progress.L)
            rank = int(np.count_nonzero(singular > SHORT_ROW * singular[0]))
            has_begun = progress.n_iter > 0 or 2 * rank < len(singular)
            progress.L = (singular[:, None] * axes)[: max(FIRST_ROWS, rank * has_begun)]
        self.max_rows = shape[0]
        if self._is_sampled(progress.L) and progress.L.ndim == 2 and shape[0] < shape[1]:
            tol = max(tol, min(WIDE_TOL * tol, 1e-4))
        try:
            # The rows are divided among threads, which threads of BLAS would slow down.
            with use_one_blas_thread() if self.n_threads > 1 else nullcontext():
                return self._solve(progress, max_iter, tol)
        finally:
            progress.pad(shape[0])

    def _may_be_thin(self, L: Matrix) -> bool:
        """Return True if a square map may start with few rows."""
        return (
            self._is_sampled(L)
            and self.structure == "full"
            and L.shape[0] == L.shape[1] >= 2 * FIRST_ROWS
        )

    def _solve(self, progress: Progress, max_iter: int, tol: float) -> bool:
        self.smoothing = WIDTHS[0]
        if progress.n_iter == 0 and self._is_sampled(progress.L):
            run_sampled_descent(self, progress, max_iter)
            if progress.stopped or progress.n_iter >= max_iter:
                return progress.stopped
            if progress.L.ndim == 1:
                progress.L = prune_factors(progress.L)
                self.select_columns(progress.L)
        for n_centers_used in self._plan_stages(progress.L):
            self.use_centers(n_centers_used)
            final = n_centers_used is None
            progress.L = self.rescale(progress.L)
            is_thin = final and progress.L.ndim == 2 and len(progress.L) < self.max_rows
            for rough in (1e-3, 1e-4, 1e-5) if is_thin else ():  # Low accuracy adds rows early.
                if rough > tol and not self._settle(progress, max_iter, rough, False):
                    return False
            if not self._settle(progress, max_iter, tol if final else 1e-3, not final):
                return False
            if progress.stopped:
                return True
        for width in WIDTHS[1:]:
            if progress.stopped or self._measure_rounding(progress.L) <= 100 * tol:
                break
            if progress.L.ndim != 2 or self.max_rows == progress.L.shape[1]:
                # The problem is convex. At the solution for each width, the slopes are nearly
                # feasible multipliers.
                self.bound = max(self.bound, self.compute_dual_bound(progress.L))
            self.smoothing = width
            if not self._settle(progress, max_iter, tol, False):
                return False
        if not self.is_complete(progress.L):
            self.search(progress.L)
        return True

    def _is_sampled(self, L: Matrix) -> bool:
        """Return True if the map is wide enough to overfit a single sample of centers."""
        n_centers = int((self.all_targets >= 0).any(axis=1).sum())
        wide = WIDE_DIAGONAL if self.structure == "diagonal" else WIDE
        return L.size >= wide and n_centers >= MIN_SAMPLED_CENTERS

    def _plan_stages(self, L: Matrix) -> list[int | None]:
        """Return the number of centers in the loss for each stage. None means all centers."""
        if self._is_sampled(L) and L.ndim == 2:
            return [None]
        n_centers = int((self.all_targets >= 0).any(axis=1).sum())
        n_first = max(FIRST_STAGE_CENTERS, n_centers // 8)
        return [n_first, None] if 2 * n_first <= n_centers else [None]

    def _measure_rounding(self, L: Matrix) -> float:
        """Return the fraction of the loss that is due to the smoothing of the hinges."""
        rounded, sharp = self.evaluate(L).loss, self.evaluate(L, smoothing=0.0).loss
        return (rounded - sharp) / rounded if rounded > 0 else 0.0

    def _settle(self, progress: Progress, max_iter: int, tol: float, coarse: bool) -> bool:
        """Alternate descent and impostor search until both have converged.

        Return False if ``max_iter`` was reached before convergence.
        """
        if not self.is_complete(progress.L):
            self.search(progress.L, coarse=True)
        keep, check, rounds = False, FIRST_CHECK, 0
        # The map with the lowest full loss so far, and the pairs that were listed at that map.
        best, best_state = np.inf, (progress.L, self.pairs, self._listed_at)
        while True:
            missing_found = self._descend(progress, max_iter, tol, check, keep, coarse)
            missing = 0.0 if missing_found is None else missing_found
            if missing_found is None and not coarse and not self.is_complete(progress.L):
                missing = self.search(progress.L, keep=keep)
            objective = self.evaluate(progress.L).loss
            if progress.stopped:
                return True
            if progress.n_iter >= max_iter:
                return False
            is_settled = missing_found is None and missing <= tol
            if is_settled and (coarse or not self._escape(progress, tol)):
                return True
            if coarse:
                # Losses over incomplete lists cannot be compared. If new lists make the descent
                # oscillate, join the lists and search again after a few iterations.
                rounds += missing > 0.5
                keep = rounds >= FREE_ROUNDS
                check = FIRST_CHECK if missing > 0.5 else min(2 * check, LAST_CHECK)
            elif objective < best:
                best, best_state = objective, (progress.L, self.pairs, self._listed_at)
                check = min(2 * check, LAST_CHECK)
            else:
                # The loss increased because pairs were missing. Return to the best map with both
                # lists, and search more often. From now on, pairs are only added, so that the loop
                # terminates.
                progress.L, best_pairs, self._listed_at = best_state
                self.pairs = self._join(best_pairs, self.pairs)
                keep, check = True, max(2, check // 4)

    def _descend(
        self, progress: Progress, max_iter: int, tol: float, check: int, keep: bool, coarse: bool
    ) -> float | None:
        """Run L-BFGS until it converges or a search finds that pairs are missing.

        Return the missing fraction of the loss, or None if the descent was not stopped by a search.
        """
        checked = progress.n_iter
        missing: float | None = None
        last: Evaluation | None = None
        max_listed = MAX_PAIRS
        if self._is_sampled(progress.L):
            n_centers = int((self.targets >= 0).any(axis=1).sum())
            max_listed = min(
                max_listed,
                max(MAX_PAIRS_PER_WIDE_CENTER * n_centers, WIDE_COARSE_SIZE // len(progress.L)),
            )
        variables = (Squares if self.structure == "diagonal" else Entries)(self, progress.L)

        def objective(flat: Matrix) -> tuple[float, Matrix]:
            nonlocal last
            last, slope = variables.evaluate(flat)
            return last.loss, slope

        def record(flat: Matrix) -> None:
            nonlocal checked, missing, check
            assert last is not None
            L = variables.to_map(flat)
            if progress.note(L, last.loss, last.n_active):
                raise StopIteration
            # Search again if no list was made: there may now be few enough pairs for a list.
            has_list = self.pairs is not None
            if progress.n_iter - checked < check or (has_list and self.is_complete(L)):
                return
            checked = progress.n_iter
            fraction = self.search(L, keep=keep, coarse=coarse, max_listed=max_listed)
            # L-BFGS can continue if the missing fraction of the loss is small.
            if fraction > 10 * tol:
                missing = fraction
                raise StopIteration
            # If almost nothing is missing, the search at the end is sufficient.
            check = 4 * check if fraction < tol else min(2 * check, LAST_CHECK)

        optimize.minimize(
            objective,
            variables.start,
            jac=True,
            method="L-BFGS-B",
            bounds=variables.bounds,
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
        """Leave a stationary point of the loss in L that is not an optimum in M = L'L.

        Return False if no direction of descent exists. If L has lost rank, its gradient 2LG can
        be zero although G, the gradient in M, has negative eigenvalues. The convex problem still
        decreases along their eigenvectors.
        """
        L = progress.L
        if self.structure == "diagonal":
            return self._add_columns(progress, tol)
        # Rotate L so that its last rows are the shortest. New rows replace them.
        _, singular, axes = np.linalg.svd(L, full_matrices=False)
        rows = singular[:, None] * axes
        n_kept = int(np.count_nonzero(singular > SHORT_ROW * singular[0]))
        if self.max_rows < L.shape[1] and n_kept == self.max_rows:
            return False
        n_kept = min(n_kept, self.max_rows - 1)
        loss = self.evaluate(L).loss
        slope, _ = self._compute_slope(L, self.smoothing)
        values, vectors = partial_eigh(slope, 0, min(MORE_ROWS, self.max_rows - n_kept) - 1)
        values = values[values < 0]
        if not len(values):
            return False
        new_rows = np.sqrt(values / values[0])[:, None] * vectors.T[: len(values)]
        trials = [
            np.vstack([rows[:n_kept], length * singular[0] * new_rows])
            for length in (0.3, 0.1, 0.03, 0.01)
        ]
        losses = [self.evaluate(trial).loss for trial in trials]
        best = int(np.argmin(losses))
        # Require only a small gain, because the following descent lowers the loss further.
        min_gain = 3 * tol if len(L) < self.max_rows else 10 * tol
        if losses[best] >= loss * (1 - min_gain):
            return False
        progress.L = trials[best]
        return True

    def _add_columns(self, progress: Progress, tol: float) -> bool:
        """Give a positive factor to unused columns if this lowers the loss."""
        L = progress.L
        unused = np.flatnonzero(L == 0)
        if not len(unused):
            return False
        slope, _ = self._compute_slope(L, self.smoothing)
        min_slope = slope[unused].min()
        if min_slope >= 0:
            return False
        loss = self.evaluate(L).loss
        new_squares = np.zeros(len(L))
        new_squares[unused] = np.maximum(slope[unused] / min_slope, 0.0) * ((L**2).max() or 1.0)
        trials = [np.sqrt(L**2 + length * new_squares) for length in (1e-1, 1e-2, 1e-3, 1e-4)]
        best = trials[int(np.argmin([self.evaluate(trial).loss for trial in trials]))]
        max_loss = loss * (1 - 3 * tol)
        if self.evaluate(best).loss < max_loss and not self.is_complete(best):
            self.search(best, keep=True)
        if self.evaluate(best).loss >= max_loss:
            return False
        progress.L = best
        return True

    def _compute_slope(
        self, L: Matrix, smoothing: float, measured: HingeDistances | None = None
    ) -> tuple[Matrix, float]:
        """Return the gradient with respect to M, and the sum of the slopes of all hinges.

        If L is diagonal, only the diagonal of the gradient is returned.
        """
        X, slopes = self.points, 0.0
        if measured is None:
            measured = self.measure_pairs(L)
        if measured is not None and self.pairs is not None:
            weighing = weigh_hinges(
                measured.reach,
                self.targets,
                self.pairs,
                measured.distances,
                self.push_weight,
                smoothing,
                np.float64,
                self.nearest,
            )
            if self.structure == "diagonal":
                return sum_pair_columns(
                    [weighing.push, weighing.pull], X, self.n_threads
                ), weighing.slopes
            weights = Laplacian(weighing.push + weighing.pull, self.n_threads)
            return self._multiply_by_columns(weights.dot), weighing.slopes

        def multiply(V: Matrix) -> Floats:
            nonlocal slopes
            weighing = self.evaluate(L, smoothing, V=V, points=X, measured=measured)
            slopes = weighing.slopes
            return weighing.laplacian_v

        return self._multiply_by_columns(multiply), slopes

    def _compute_pull(self) -> Matrix:
        """Return the gradient of the pull term with respect to M. Hinges do not affect it."""
        return self._multiply_by_columns(
            lambda V: multiply_pull_laplacian(self.targets, self.push_weight, V)
        )

    def _multiply_by_columns(self, multiply: Callable[[Matrix], Floats]) -> Matrix:
        """Return X' Lap(W) X, or its diagonal if L is diagonal.

        The product is computed for a few columns of X at a time.
        """
        X = self.points
        n, d = X.shape
        width = int(np.clip(2**23 // n, 32, 256))
        G = np.empty(d if self.structure == "diagonal" else (d, d))
        for start in range(0, d, width):
            columns = slice(start, start + width)
            V = X[:, columns].astype(np.float64)
            laplacian_v = multiply(V)
            if self.structure == "diagonal":
                G[columns] = np.einsum("ij,ij->j", laplacian_v, V)
                continue
            for other_start in range(0, start + 1, width):
                other_columns = slice(other_start, other_start + width)
                G[other_columns, columns] = (
                    X[:, other_columns].astype(np.float64, copy=False).T @ laplacian_v
                )
                G[columns, other_columns] = G[other_columns, columns].T
        return np.asarray((G + G.T) / 2)

    def compute_dual_bound(self, L: Matrix) -> float:
        r"""Return a lower bound on the loss over all M ⪰ 0, from the slopes of the hinges at L.

        Let P be the gradient of the pull term. For multipliers :math:`0 \le \gamma \le 1` of the
        triplets with :math:`S(\gamma) = P + \mu \sum \gamma_t (C_{ij} - C_{il}) \succeq 0`, the
        dual value :math:`\mu \sum \gamma_t` is a lower bound. At a good L, the slopes of smoothed
        hinges nearly satisfy the condition, and a common factor makes them satisfy it.
        """
        P = self._compute_pull()
        best, measured = self.bound, self.measure_pairs(L)
        # If L has fewer rows than columns, the bound is not tight for any width.
        rectangular = L.ndim == 2 and self.max_rows < L.shape[1]
        for width in self.smoothing * np.array([1.0] if rectangular else [1.0, 0.3, 3.0]):
            S, slopes = self._compute_slope(L, width, measured)
            lowest = compute_min_form_ratio(S - P, P)
            factor = 1.0 if lowest >= -1.0 else -1.0 / lowest
            best = max(best, factor * self.push_weight * slopes)
        return best


class FixedTriplets(LargeMargin):
    """The large-margin loss over fixed triplets (center, target, impostor)."""

    def __init__(
        self,
        points: Floats,
        triplets: Indices,
        push_weight: float,
        *,
        structure: Structure = "full",
    ) -> None:
        self.triplets = triplets
        no_targets = np.full((len(points), 1), -1, dtype=np.intp)
        codes = np.zeros(len(points), dtype=np.intp)
        super().__init__(points, codes, no_targets, push_weight, structure=structure)

    def evaluate(
        self,
        L: Matrix,
        smoothing: float | None = None,
        V: Floats | None = None,
        points: Floats | None = None,
        measured: HingeDistances | None = None,
    ) -> Evaluation:
        """Return the loss over the triplets."""
        width = self.smoothing if smoothing is None else smoothing
        return compute_triplet_loss(
            self.map_points(L, points), self.triplets, self.push_weight, width, V
        )

    def search(
        self, L: Matrix, *, keep: bool = False, coarse: bool = False, max_listed: int | None = None
    ) -> float:
        """Do nothing and return 0, because the triplets are fixed."""
        return 0.0

    def measure_pairs(self, L: Matrix) -> None:
        """Return None, because distances are not stored."""

    def is_complete(self, L: Matrix) -> bool:
        """Return True, because the triplets are fixed."""
        return True

    def _plan_stages(self, L: Matrix) -> list[int | None]:
        return [None]

    def _is_sampled(self, L: Matrix) -> bool:
        return False

    def _compute_gaps(self, Z: Floats) -> tuple[Matrix, Matrix]:
        target_distances = compute_listed_distances(Z, self.triplets[:, 0], self.triplets[:, 1])
        return target_distances, target_distances - compute_listed_distances(
            Z, self.triplets[:, 0], self.triplets[:, 2]
        )

    def _compute_pull(self) -> Matrix:
        # The pull term is the loss when all hinges are inactive.
        pairs = np.unique(self.triplets[:, :2], axis=0)
        difference = self.points[pairs[:, 0]] - self.points[pairs[:, 1]]
        difference = difference.astype(np.float64)
        if self.structure == "diagonal":
            return np.asarray((1 - self.push_weight) * (difference**2).sum(axis=0))
        return np.asarray((1 - self.push_weight) * difference.T @ difference)


def compute_min_form_ratio(Q: Matrix, P: Matrix) -> float:
    """Return the minimum of v'Qv / v'Pv over all v. A small ridge is added to P."""
    if P.ndim == 1:
        return float(np.min(Q / (P + 1e-12 * P.mean())))
    ridged = P + 1e-12 * np.trace(P) / len(P) * np.eye(len(P))
    try:
        return compute_min_eigenvalue(Q, ridged)
    except linalg.LinAlgError:  # P contains only rounding errors.
        return -np.inf


def compute_duality_gap(bound: float, objective: float) -> float:
    """Return the gap between objective and bound, relative to the objective.

    The gap is 0 if the objective is 0.
    """
    return 1.0 - bound / objective if objective > 0 else 0.0
