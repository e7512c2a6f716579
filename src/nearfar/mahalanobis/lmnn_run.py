"""LMNN at work on some of the rows: coordinates, a start, and one pass after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base.progress import report_of
from nearfar.base.voter import vote
from nearfar.blocks import blas_for, effective_threads
from nearfar.large_margin.held_out import Watch
from nearfar.large_margin.impostors import target_neighbors
from nearfar.large_margin.problem import LargeMargin, Progress
from nearfar.large_margin.projected_subgradient import projected_subgradient
from nearfar.large_margin.working_set import is_large
from nearfar.mahalanobis.lmnn_defaults import MOST_ASKED
from nearfar.mahalanobis.starts import (
    Spread,
    check_start,
    has_few_rows,
    in_coordinates,
    spread_of,
    start_map,
)
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import descending_eigh
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import moved, unscaled, whitened

# Neighbours listed for each that counts, so that those at the same distance are among them; and in
# how many orders these are taken.
_LISTED, _ORDERS = 6, 5


class Run:
    """A descent over some rows by the settings of an LMNN, which knows where it is.

    A run that may stop ``early`` starts from the plain distance unless told otherwise, and where
    rows are few its coordinates are the plain ones.
    """

    called = "LMNN"
    #: That of the present pass.
    problem: LargeMargin | None = None
    #: Those of the first pass.
    first_targets: Indices | None = None

    def __init__(
        self,
        lmnn: Any,
        rows: Floats,
        codes: Indices,
        start_from: Floats | None,
        *,
        early: bool = False,
        few: bool = False,
    ) -> None:
        self.lmnn, self.rows, self.codes = lmnn, rows, codes
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.arange(codes.max() + 1), codes
        )
        self.mean = statistics.mean.astype(rows.dtype)
        self.white, self.points = self._coordinates(statistics, early and few)
        #: The maps of the passes before this one.
        self.ends: list[Matrix] = []
        start = first_map(lmnn, statistics, self.white, start_from, early=early)
        self.progress = Progress(start, report=report_of(lmnn))

    def _coordinates(self, statistics: ClassStatistics, plain: bool) -> tuple[Matrix, Floats]:
        """A map to coordinates for the solver (factors, for a diagonal structure), and the points.

        They are white unless they should be ``plain``. Many in single precision stay so.
        """
        dtype = np.float32 if self.rows.dtype == np.float32 and is_large(self.rows) else np.float64
        if self.lmnn.structure == "full":
            return (unscaled if plain else whitened)(self.rows, statistics, dtype)
        variances = statistics.total_variances()
        spread = np.where(statistics.varying_features(variances), np.sqrt(variances), 0.0)
        factors = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
        return factors, moved(self.rows, statistics.mean, factors, dtype)

    @property
    def L(self) -> Matrix:
        """The map of the coordinates."""
        return self.progress.L

    def mapped(self, L: Matrix) -> Floats:
        """The points where a map takes them."""
        assert self.problem is not None
        return self.problem.mapped(L, self.points)

    def keep_plain(self) -> Floats:
        """Go to the distance as given, and return it as a map of the rows.

        Its factor for the margin is rounded to a power of two, with which nothing else is rounded:
        among rows of few values many are at the same distance, and stay so.
        """
        assert self.problem is not None
        identity = np.eye(self.rows.shape[1])
        L = in_coordinates(identity, self.white, square=True)
        factor = 2.0 ** np.round(np.log2(self.problem.best_scale(L)))
        self.progress.L = factor * L
        return (factor * identity).astype(self.mean.dtype)

    def errors(self, L: Matrix | None = None) -> float:
        """Rows that their nearest others label wrongly, by a map or by the distance as given."""
        return left_out_errors(
            self.rows if L is None else self.mapped(L),
            self.codes,
            self.lmnn.n_neighbors,
            drawn=L is not None,
            n_threads=effective_threads(self.lmnn.n_jobs),
        )

    def components(self, L: Matrix) -> Floats:
        """A map of the coordinates as one of the rows."""
        if self.lmnn.structure == "diagonal":
            return np.diag(L * self.white).astype(self.mean.dtype)
        return np.asarray((L @ self.white.T).astype(self.mean.dtype))

    def begin(self, targets: Indices | None = None) -> None:
        """A new pass, with targets given or chosen: by the rows at first, then by the map."""
        if targets is None:
            by = self.rows if self.problem is None else self.mapped(self.L)
            targets = target_neighbors(by, self.codes, self.lmnn.n_neighbors)
        if self.problem is None:
            self.first_targets = targets
        else:
            self.ends.append(self.L)
        self.problem = LargeMargin(
            self.points,
            self.codes,
            targets,
            self.lmnn.push_weight,
            n_threads=effective_threads(self.lmnn.n_jobs),
            structure=self.lmnn.structure,
            nearest=self.lmnn.n_impostors_,
        )

    def watch(self, unseen: tuple[Floats, Indices], patience: int) -> Watch:
        """By the errors of rows that are not trained on."""
        rows = moved(unseen[0], self.mean, self.white, self.points.dtype)
        assert self.problem is not None
        error = partial(_knn_error, self.problem, rows, unseen[1], self.lmnn.n_neighbors)
        return Watch(error, patience, keep=True)

    def descend(self, limit: int, tol: float, watch: Watch | None = None) -> bool:
        """From where the last pass ended; False when the limit came first."""
        progress, problem = self.progress, self.problem
        assert problem is not None
        if watch is not None or progress.n_iter > 0 or limit == 0:
            progress.L = problem.rescaled(self.L)  # it may be the best there is
        progress.watch, progress.stopped = watch, False
        if watch is not None:
            watch.look(self.L)
        if limit == 0:
            return True
        with blas_for(2.0 * self.points.size * len(self.L)):
            return problem.solve(progress, max_iter=progress.n_iter + limit, tol=tol)


class SubgradientRun(Run):
    """The algorithm of the work, over the rows as they are."""

    called = "The projected subgradient"

    def __init__(self, lmnn: Any, rows: Floats, codes: Indices) -> None:
        self.lmnn, self.rows, self.codes = lmnn, rows, codes
        self.mean = rows.mean(axis=0).astype(rows.dtype)
        self.white = np.eye(rows.shape[1])
        self.points = (rows - self.mean).astype(np.float64)
        self.ends, self.progress = [], Progress(self.white)

    def descend(self, limit: int, tol: float, watch: Watch | None = None) -> bool:
        """From the identity; False when the limit came first."""
        assert self.first_targets is not None and watch is None
        found = projected_subgradient(
            self.points.astype(np.float64, copy=False),
            self.codes,
            self.first_targets,
            self.lmnn.push_weight,
            max_iter=limit,
            tol=tol,
        )
        self.progress.L, self.progress.history = found.L, found.history
        return found.converged


def _knn_error(
    problem: LargeMargin, unseen: Matrix, truth: Indices, n_neighbors: int, L: Matrix
) -> float:
    points, queries = problem.mapped(L, problem.points), problem.mapped(L, unseen)
    _, nearest = kneighbors(points, queries, n_neighbors=min(n_neighbors, len(points)))
    winners = vote(problem.codes[nearest], int(problem.codes.max()) + 1, "shrink")
    return float(np.mean(winners != truth))


def left_out_errors(
    rows: Floats, codes: Indices, n_neighbors: int, *, drawn: bool, n_threads: int | None = None
) -> float:
    """How many rows their nearest others label wrongly; of many rows some are asked.

    A map of few entries for its rows hardly fits them one by one, so that this tells what new rows
    would meet. Rows of few values have many others at the same distance. Among rows as given the
    first come first, under a map rounding decides, which is chance: then orders are ``drawn``,
    always the same ones, and the mean counts.
    """
    n = len(rows)
    asked = np.linspace(0, n - 1, min(n, MOST_ASKED)).astype(np.intp)
    listed = min(n, (_LISTED if drawn else 1) * n_neighbors + 1)
    D, nearest = kneighbors(rows, rows[asked], n_neighbors=listed, n_threads=n_threads)
    # Without itself, or without the last where twins have crowded it out.
    others = np.argsort(nearest == asked[:, None], axis=1, kind="stable")[:, :-1]
    D, nearest = np.take_along_axis(D, others, axis=1), np.take_along_axis(nearest, others, axis=1)
    orders = [nearest]
    if drawn:
        apart = np.diff(D, axis=1, prepend=0.0) > np.sqrt(np.finfo(rows.dtype).eps) * D[:, -1:]
        level, random = np.cumsum(apart, axis=1), np.random.default_rng(0)
        keys = [level + random.permutation(n)[nearest] / n for _ in range(_ORDERS)]
        orders = [np.take_along_axis(nearest, np.argsort(key, axis=1), axis=1) for key in keys]
    wrong = [
        vote(codes[order[:, :n_neighbors]], int(codes.max()) + 1, "shrink") != codes[asked]
        for order in orders
    ]
    return float(np.sum(np.mean(wrong, axis=0)))


def first_map(
    lmnn: Any,
    statistics: ClassStatistics,
    white: Matrix,
    start_from: Floats | None,
    *,
    early: bool,
) -> Matrix:
    """Where to start, in the coordinates of the solver."""
    p = statistics.n_features
    size = None if lmnn.reduction != "learned" else lmnn.n_components
    if lmnn.n_components is not None and lmnn.n_components > p:
        raise ValueError(f"n_components={lmnn.n_components} is more than the {p} features of X.")
    init = lmnn.init
    if start_from is not None and start_from.shape == (p if size is None else size, p):
        init = start_from
    spread = spread_of(statistics)
    if lmnn.structure == "diagonal":
        return _factors(init, spread, white, lmnn.random_state, early=early)
    few = has_few_rows(statistics.total_weight, statistics.n_classes, white.shape[1])
    auto = "identity" if early else "pca" if few else "within"
    start = start_map(init, spread, size, auto=auto, random_state=lmnn.random_state)
    return in_coordinates(start, white, square=size is None)


def _factors(
    init: str | ArrayLike,
    spread: Spread,
    white: Matrix,
    random_state: int | np.random.RandomState | None,
    *,
    early: bool,
) -> Matrix:
    """One factor for each standardised feature."""
    used = white > 0
    if not isinstance(init, str) or init == "random":
        given = start_map(init, spread, None, auto="", random_state=random_state)
        start = np.where(used, np.diag(given) / np.where(used, white, 1.0), 0.0)
        check_start(start)
        return start
    if init == "lda":
        raise ValueError('init="lda" is no start of structure="diagonal"; use "within".')
    start = used.astype(np.float64)
    if init == "identity" or (init == "auto" and early):
        start[used] = 1 / white[used]
    elif init != "pca":
        assert spread.within is not None
        within = np.diag(spread.within) * white**2
        # A feature that is constant within classes gets a large factor, not an infinite one.
        start[used] = 1 / np.sqrt(np.maximum(within[used], 1e-4))
    return start


def reduced(lmnn: Any, problem: LargeMargin, L: Matrix, white: Matrix) -> Matrix:
    """The square map cut to ``n_components`` rows: U'L for some orthonormal columns U."""
    assert lmnn.n_components is not None
    if lmnn.reduction == "pca":
        Z = problem.mapped(L, problem.points)
        Z = Z - Z.mean(axis=0)
        spread = Z.T @ Z
    else:  # with A = L white' and M = A'A, the leading left singular vectors of A
        spread = L @ white.T @ white @ L.T
    _, axes = descending_eigh(spread, min(lmnn.n_components, len(L)))
    cut = axes.T @ L
    # Rows beyond the rank of the data stay zero.
    return np.vstack([cut, np.zeros((lmnn.n_components - len(cut), L.shape[1]))])
