"""One LMNN fit on a set of rows: coordinates, initial map, and one pass after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base.progress import report_of
from nearfar.base.voter import vote
from nearfar.blocks import limit_blas_for, resolve_n_threads
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
from nearfar.summaries.whitening import center_and_map, scale_uniformly, whiten_rows

# Number of neighbors searched per neighbor that votes, so that ties are included, and number of
# random orders in which ties are broken.
_LISTED, _ORDERS = 6, 5


class Run:
    """A descent over some rows with the settings of an LMNN.

    With ``early=True`` (early stopping) it starts from the Euclidean distance unless ``init`` is
    given. If the rows are also ``few``, it works in the original coordinates instead of whitened
    ones.
    """

    called = "LMNN"
    #: The problem of the current pass.
    problem: LargeMargin | None = None
    #: The targets of the first pass.
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
        #: Final maps of the previous passes.
        self.ends: list[Matrix] = []
        start = first_map(lmnn, statistics, self.white, start_from, early=early)
        self.progress = Progress(start, report=report_of(lmnn))

    def _coordinates(self, statistics: ClassStatistics, plain: bool) -> tuple[Matrix, Floats]:
        """Return the map to the solver's coordinates and the points in them.

        The map is a vector of factors if the structure is diagonal. The coordinates are white
        unless ``plain`` is True. Large float32 data stay in float32.
        """
        dtype = np.float32 if self.rows.dtype == np.float32 and is_large(self.rows) else np.float64
        if self.lmnn.structure == "full":
            return (scale_uniformly if plain else whiten_rows)(self.rows, statistics, dtype)
        variances = statistics.total_variances()
        spread = np.where(statistics.varying_features(variances), np.sqrt(variances), 0.0)
        factors = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
        return factors, center_and_map(self.rows, statistics.mean, factors, dtype)

    @property
    def L(self) -> Matrix:
        """The current map, in the coordinates of the solver."""
        return self.progress.L

    def mapped(self, L: Matrix) -> Floats:
        """Return the points mapped by L."""
        assert self.problem is not None
        return self.problem.mapped(L, self.points)

    def keep_plain(self) -> Floats:
        """Set the map to a scaled Euclidean distance and return it as a map of the rows.

        The scale, which fits the margin, is rounded to a power of two. Multiplying by it is exact,
        so rows at equal distances, which are common among discrete data, remain at equal distances.
        """
        assert self.problem is not None
        identity = np.eye(self.rows.shape[1])
        L = in_coordinates(identity, self.white, square=True)
        factor = 2.0 ** np.round(np.log2(self.problem.best_scale(L)))
        self.progress.L = factor * L
        return (factor * identity).astype(self.mean.dtype)

    def errors(self, L: Matrix | None = None) -> float:
        """Return the leave-one-out k-NN errors under L, or under the Euclidean distance."""
        return left_out_errors(
            self.rows if L is None else self.mapped(L),
            self.codes,
            self.lmnn.n_neighbors,
            drawn=L is not None,
            n_threads=resolve_n_threads(self.lmnn.n_jobs),
        )

    def components(self, L: Matrix) -> Floats:
        """Return a map in the coordinates of the solver as a map of the rows."""
        if self.lmnn.structure == "diagonal":
            return np.diag(L * self.white).astype(self.mean.dtype)
        return np.asarray((L @ self.white.T).astype(self.mean.dtype))

    def begin(self, targets: Indices | None = None) -> None:
        """Start a new pass.

        Targets that are not given are chosen by the rows in the first pass, later by the map.
        """
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
            n_threads=resolve_n_threads(self.lmnn.n_jobs),
            structure=self.lmnn.structure,
            nearest=self.lmnn.n_impostors_,
        )

    def watch(self, unseen: tuple[Floats, Indices], patience: int) -> Watch:
        """Return a Watch of the k-NN error on rows that are not used for training."""
        rows = center_and_map(unseen[0], self.mean, self.white, self.points.dtype)
        assert self.problem is not None
        error = partial(_knn_error, self.problem, rows, unseen[1], self.lmnn.n_neighbors)
        return Watch(error, patience, keep=True)

    def descend(self, limit: int, tol: float, watch: Watch | None = None) -> bool:
        """Continue from the end of the last pass. Return False if the limit was reached first."""
        progress, problem = self.progress, self.problem
        assert problem is not None
        if watch is not None or progress.n_iter > 0 or limit == 0:
            # The rescaled start may turn out to be the best map.
            progress.L = problem.rescaled(self.L)
        progress.watch, progress.stopped = watch, False
        if watch is not None:
            watch.look(self.L)
        if limit == 0:
            return True
        with limit_blas_for(2.0 * self.points.size * len(self.L)):
            return problem.solve(progress, max_iter=progress.n_iter + limit, tol=tol)


class SubgradientRun(Run):
    """The projected subgradient algorithm of Weinberger (2007), on the rows as given."""

    called = "The projected subgradient"

    def __init__(self, lmnn: Any, rows: Floats, codes: Indices) -> None:
        self.lmnn, self.rows, self.codes = lmnn, rows, codes
        self.mean = rows.mean(axis=0).astype(rows.dtype)
        self.white = np.eye(rows.shape[1])
        self.points = (rows - self.mean).astype(np.float64)
        self.ends, self.progress = [], Progress(self.white)

    def descend(self, limit: int, tol: float, watch: Watch | None = None) -> bool:
        """Start from the identity. Return False if the limit was reached first."""
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
    """Return the number of rows that their nearest other rows misclassify.

    At most 5,000 rows are classified. If the map has few entries for the number of rows, it hardly
    fits single rows, so this estimates the error on new rows. Discrete data have many rows at the
    same distance. Among the original rows, ties go to the first row. Under a map, rounding would
    break ties arbitrarily. With ``drawn=True`` ties are therefore broken by a fixed set of random
    orders, and the mean number of errors is returned.
    """
    n = len(rows)
    asked = np.linspace(0, n - 1, min(n, MOST_ASKED)).astype(np.intp)
    listed = min(n, (_LISTED if drawn else 1) * n_neighbors + 1)
    D, nearest = kneighbors(rows, rows[asked], n_neighbors=listed, n_threads=n_threads)
    # Drop the row itself, or the last neighbor if duplicates have displaced the row.
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
    """Return the initial map in the coordinates of the solver."""
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
    """Return one initial factor per standardized feature."""
    used = white > 0
    if not isinstance(init, str) or init == "random":
        given = start_map(init, spread, None, auto="", random_state=random_state)
        start = np.where(used, np.diag(given) / np.where(used, white, 1.0), 0.0)
        check_start(start)
        return start
    if init == "lda":
        raise ValueError(
            'init="lda" cannot be combined with structure="diagonal". Use init="within".'
        )
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
    """Return the square map reduced to ``n_components`` rows.

    The result is U'L for a matrix U with orthonormal columns.
    """
    assert lmnn.n_components is not None
    if lmnn.reduction == "pca":
        Z = problem.mapped(L, problem.points)
        Z = Z - Z.mean(axis=0)
        spread = Z.T @ Z
    else:  # With A = L white' and M = A'A, these are the leading left singular vectors of A.
        spread = L @ white.T @ white @ L.T
    _, axes = descending_eigh(spread, min(lmnn.n_components, len(L)))
    cut = axes.T @ L
    # Rows beyond the rank of the data stay zero.
    return np.vstack([cut, np.zeros((lmnn.n_components - len(cut), L.shape[1]))])
