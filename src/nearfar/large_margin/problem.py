"""The solver behind LMNN and its relatives: L-BFGS over a working set of impostors, and a bound.

The convex loss in M = L'L is minimised over L. Its hinges are rounded at first and sharpened on
the way, because quasi-Newton steps stall at kinks; the slopes of rounded hinges then are the
fractional multipliers of a good dual bound. Nothing is called converged before no impostor is
missing from the working set. Square maps of many columns begin with few rows, and get more where
the gradient in M asks for them.
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
from nearfar.large_margin.pair_lists import listed_distances
from nearfar.large_margin.sampled_descent import pruned, sampled_descent
from nearfar.large_margin.triplet_loss import (
    Evaluation,
    Laplacian,
    Measured,
    column_sums,
    pull_laplacian,
    triplet_loss,
    weigh_hinges,
)
from nearfar.large_margin.working_set import COARSE_NUMBERS, WIDE, ListedMargin, Structure
from nearfar.solvers.eigen import least_eigenvalue, some_eigh

# Tuned for the time of a whole fit on digits, letter and generated sets; none moves the optimum.
FIRST_CHECK, LAST_CHECK = 5, 20  # iterations between full searches, at first and later
MANY_PAIRS = 10**7  # listed at most before it has settled
MANY_OF_WIDE = 120  # of each centre under wide maps
FREE_ROUNDS = 2  # on a sample of centres that find most of the loss missing; then lists are joined
FEW_CENTERS = 2000  # centres of the first stage
# Square maps of twice as many columns begin with so many rows, and get as many more at once where
# the problem asks for them; rows shorter than that share of the longest are left out then.
FEW_ROWS, MORE_ROWS, SHORT_ROW = 64, 32, 1e-3
WIDE_DIAGONAL = 128  # factors from which a diagonal map does
FEW_SAMPLED = 2000  # centres from which wide maps begin with samples: they would fit a single one
# Wide maps of fewer rows than columns, no convex problem, are content with so many times ``tol``:
# the second half of their iterations would gain less than a thousandth.
WIDE_TOL = 10
# Widths over which the kink of the hinge is rounded, each solved from the one before.
WIDTHS = (0.1, 0.01, 1e-3, 1e-4, 1e-5)


class LargeMargin(ListedMargin):
    """The loss over the impostor pairs listed so far, and how it is minimised."""

    # Descent

    def solve(self, progress: Progress, *, max_iter: int, tol: float) -> bool:
        """Minimise; False when ``max_iter`` came first."""
        shape = progress.L.shape
        if self._may_be_thin(progress.L):
            # Its optimum is as a rule of much lower rank: rows are added where it is not.
            _, singular, axes = np.linalg.svd(progress.L)
            rank = int(np.count_nonzero(singular > SHORT_ROW * singular[0]))
            begun = progress.n_iter > 0 or 2 * rank < len(singular)
            progress.L = (singular[:, None] * axes)[: max(FEW_ROWS, rank * begun)]
        self.max_rows = shape[0]
        if self._is_sampled(progress.L) and progress.L.ndim == 2 and shape[0] < shape[1]:
            tol = max(tol, min(WIDE_TOL * tol, 1e-4))
        try:
            # Our own threads take the rows in parts; those of BLAS would wait beside them.
            with use_one_blas_thread() if self.n_threads > 1 else nullcontext():
                return self._solve(progress, max_iter, tol)
        finally:
            progress.pad(shape[0])

    def _may_be_thin(self, L: Matrix) -> bool:
        """Whether a few rows of a square map will do for a beginning."""
        return (
            self._is_sampled(L)
            and self.structure == "full"
            and L.shape[0] == L.shape[1] >= 2 * FEW_ROWS
        )

    def _solve(self, progress: Progress, max_iter: int, tol: float) -> bool:
        self.smoothing = WIDTHS[0]
        if progress.n_iter == 0 and self._is_sampled(progress.L):
            sampled_descent(self, progress, max_iter)
            if progress.stopped or progress.n_iter >= max_iter:
                return progress.stopped
            if progress.L.ndim == 1:
                progress.L = pruned(progress.L)
                self.keep_columns(progress.L)
        for few in self._stages(progress.L):
            self.use_centers(few)
            final = few is None
            progress.L = self.rescaled(progress.L)
            thin = final and progress.L.ndim == 2 and len(progress.L) < self.max_rows
            for rough in (1e-3, 1e-4, 1e-5) if thin else ():  # rows are added early
                if rough > tol and not self._settle(progress, max_iter, rough, False):
                    return False
            if not self._settle(progress, max_iter, tol if final else 1e-3, not final):
                return False
            if progress.stopped:
                return True
        for width in WIDTHS[1:]:
            if progress.stopped or self._rounding(progress.L) <= 100 * tol:
                break
            if progress.L.ndim != 2 or self.max_rows == progress.L.shape[1]:  # convex
                # Where each width settles its slopes are nearly feasible multipliers.
                self.bound = max(self.bound, self.dual_bound(progress.L))
            self.smoothing = width
            if not self._settle(progress, max_iter, tol, False):
                return False
        if not self.is_complete(progress.L):
            self.search(progress.L)
        return True

    def _is_sampled(self, L: Matrix) -> bool:
        """Whether the map has so many entries that it would fit a single sample."""
        n_centers = int((self.all_targets >= 0).any(axis=1).sum())
        wide = WIDE_DIAGONAL if self.structure == "diagonal" else WIDE
        return L.size >= wide and n_centers >= FEW_SAMPLED

    def _stages(self, L: Matrix) -> list[int | None]:
        """How many centres to sum over, one stage after the other; None for all."""
        if self._is_sampled(L) and L.ndim == 2:
            return [None]
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

    def _descend(
        self, progress: Progress, max_iter: int, tol: float, check: int, keep: bool, coarse: bool
    ) -> float | None:
        """L-BFGS; the share of the loss that a check on the way found missing, if one did."""
        checked = progress.n_iter
        missing: float | None = None
        last: Evaluation | None = None
        at_most = MANY_PAIRS
        if self._is_sampled(progress.L):
            n_centers = int((self.targets >= 0).any(axis=1).sum())
            at_most = min(at_most, max(MANY_OF_WIDE * n_centers, COARSE_NUMBERS // len(progress.L)))
        variables = (Squares if self.structure == "diagonal" else Entries)(self, progress.L)

        def objective(flat: Matrix) -> tuple[float, Matrix]:
            nonlocal last
            last, slope = variables.evaluated(flat)
            return last.loss, slope

        def record(flat: Matrix) -> None:
            nonlocal checked, missing, check
            assert last is not None
            new = variables.map_of(flat)
            if progress.note(new, last.loss, last.n_active):
                raise StopIteration
            listed = self.pairs is not None  # if not, they may have become few enough
            if progress.n_iter - checked < check or (listed and self.is_complete(new)):
                return
            checked = progress.n_iter
            share = self.search(new, keep=keep, coarse=coarse, at_most=at_most)
            # A little more loss than L-BFGS knows of does not mislead it.
            if share > 10 * tol:
                missing = share
                raise StopIteration
            # Where next to nothing is missing, the look at the end will do.
            check = 4 * check if share < tol else min(2 * check, LAST_CHECK)

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
        """Leave a stationary point of L that is no optimum of M = L'L; False if there is no way.

        Where L has lost rank its gradient 2LG vanishes although G, the gradient in M, may have
        negative eigenvalues; along their eigenvectors the convex problem still descends.
        """
        L = progress.L
        if self.structure == "diagonal":
            return self._add_columns(progress, tol)
        # Turned so that the last rows carry the weakest directions, which new ones replace.
        _, singular, axes = np.linalg.svd(L, full_matrices=False)
        rows = singular[:, None] * axes
        kept = int(np.count_nonzero(singular > SHORT_ROW * singular[0]))
        if self.max_rows < L.shape[1] and kept == self.max_rows:
            return False
        kept = min(kept, self.max_rows - 1)
        here = self.evaluate(L).loss
        slope, _ = self._slope(L, self.smoothing)
        values, vectors = some_eigh(slope, 0, min(MORE_ROWS, self.max_rows - kept) - 1)
        values = values[values < 0]
        if not len(values):
            return False
        new = np.sqrt(values / values[0])[:, None] * vectors.T[: len(values)]
        trials = [
            np.vstack([rows[:kept], length * singular[0] * new])
            for length in (0.3, 0.1, 0.03, 0.01)
        ]
        losses = [self.evaluate(trial).loss for trial in trials]
        best = int(np.argmin(losses))
        # A descent gains more by new rows than they do at first.
        enough = 3 * tol if len(L) < self.max_rows else 10 * tol
        if losses[best] >= here * (1 - enough):
            return False
        progress.L = trials[best]
        return True

    def _add_columns(self, progress: Progress, tol: float) -> bool:
        """Give factors to columns that have none and along which the loss descends."""
        L = progress.L
        without = np.flatnonzero(L == 0)
        if not len(without):
            return False
        slope, _ = self._slope(L, self.smoothing)
        most = slope[without].min()
        if most >= 0:
            return False
        here = self.evaluate(L).loss
        new = np.zeros(len(L))
        new[without] = np.maximum(slope[without] / most, 0.0) * ((L**2).max() or 1.0)
        trials = [np.sqrt(L**2 + length * new) for length in (1e-1, 1e-2, 1e-3, 1e-4)]
        best = trials[int(np.argmin([self.evaluate(trial).loss for trial in trials]))]
        enough = here * (1 - 3 * tol)
        if self.evaluate(best).loss < enough and not self.is_complete(best):
            self.search(best, keep=True)
        if self.evaluate(best).loss >= enough:
            return False
        progress.L = best
        return True

    # The bound

    def _slope(
        self, L: Matrix, smoothing: float, measured: Measured | None = None
    ) -> tuple[Matrix, float]:
        """The gradient in M (its diagonal when L is one) and the sum of slopes."""
        X, slopes = self.points, 0.0
        if measured is None:
            measured = self.measured(L)
        if measured is not None and self.pairs is not None:
            found = weigh_hinges(
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
                return column_sums([found.push, found.pull], X, self.n_threads), found.slopes
            weights = Laplacian(found.push + found.pull, self.n_threads)
            return self._in_columns(weights.dot), found.slopes

        def laplacian(V: Matrix) -> Floats:
            nonlocal slopes
            found = self.evaluate(L, smoothing, V=V, points=X, measured=measured)
            slopes = found.slopes
            return found.laplacian_v

        return self._in_columns(laplacian), slopes

    def _pull(self) -> Matrix:
        """The pull term's gradient in M, which no hinge changes."""
        return self._in_columns(lambda V: pull_laplacian(self.targets, self.push_weight, V))

    def _in_columns(self, laplacian: Callable[[Matrix], Floats]) -> Matrix:
        """X' Lap(W) X (its diagonal where L is one) from Lap(W) V of some columns V at a time."""
        X = self.points
        n, d = X.shape
        width = int(np.clip(2**23 // n, 32, 256))
        G = np.empty(d if self.structure == "diagonal" else (d, d))
        for start in range(0, d, width):
            part = slice(start, start + width)
            V = X[:, part].astype(np.float64)
            laplacian_v = laplacian(V)
            if self.structure == "diagonal":
                G[part] = np.einsum("ij,ij->j", laplacian_v, V)
                continue
            for first in range(0, start + 1, width):
                other = slice(first, first + width)
                G[other, part] = X[:, other].astype(np.float64, copy=False).T @ laplacian_v
                G[part, other] = G[other, part].T
        return np.asarray((G + G.T) / 2)

    def dual_bound(self, L: Matrix) -> float:
        r"""A lower bound on the least loss over all M ⪰ 0, from the slopes of the hinges at L.

        For multipliers :math:`0 \le \gamma \le 1` of the triplets with
        :math:`S(\gamma) = P + \mu \sum \gamma_t (C_{ij} - C_{il}) \succeq 0`, P being the pull
        term's, the dual value :math:`\mu \sum \gamma_t` is such a bound. The slopes of rounded
        hinges nearly satisfy it at a good L; a common factor makes sure.
        """
        P = self._pull()
        best, measured = self.bound, self.measured(L)
        # Of fewer rows than columns it is no near bound, by whatever hinges.
        rectangular = L.ndim == 2 and self.max_rows < L.shape[1]
        for width in self.smoothing * np.array([1.0] if rectangular else [1.0, 0.3, 3.0]):
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

    def _stages(self, L: Matrix) -> list[int | None]:
        return [None]

    def _is_sampled(self, L: Matrix) -> bool:
        return False

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
