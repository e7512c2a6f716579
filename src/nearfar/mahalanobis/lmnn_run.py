"""One LMNN fit on a set of rows: coordinates, initial map, and one pass after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base.progress import get_reporter
from nearfar.base.voter import vote
from nearfar.blocks import limit_blas_for, resolve_n_threads
from nearfar.large_margin.held_out import Watch
from nearfar.large_margin.impostors import find_target_neighbors
from nearfar.large_margin.problem import LargeMargin, Progress
from nearfar.large_margin.projected_subgradient import run_projected_subgradient
from nearfar.large_margin.working_set import is_large
from nearfar.mahalanobis.lmnn_defaults import MAX_ROWS_COMPARED
from nearfar.mahalanobis.starts import (
    Spread,
    check_start,
    compute_spread,
    convert_start,
    has_few_rows,
    make_start_map,
)
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.eigen import descending_eigh
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import center_and_map, scale_uniformly, whiten_rows

# The search returns this many neighbors for each neighbor that votes. The additional neighbors are
# needed to find ties.
_LISTED_PER_VOTER = 6
# Ties are broken in this many random orders, and the errors are averaged.
_N_ORDERS = 5


class Run:
    """State of one LMNN fit: solver coordinates, current map and passes.

    With ``stops_early=True`` the fit starts from the Euclidean distance unless ``init`` is given.
    If ``has_few`` is also True, the solver works in the original coordinates instead of whitened
    ones.
    """

    solver_name = "LMNN"
    #: Optimization problem of the current pass.
    problem: LargeMargin | None = None
    #: Targets of the first pass.
    first_targets: Indices | None = None

    def __init__(
        self,
        lmnn: Any,
        rows: Floats,
        codes: Indices,
        previous_map: Floats | None,
        *,
        stops_early: bool = False,
        has_few: bool = False,
    ) -> None:
        self.lmnn, self.rows, self.codes = lmnn, rows, codes
        statistics = ClassStatistics(pooled=True, exact=True).add(
            rows, np.arange(codes.max() + 1), codes
        )
        self.mean = statistics.mean.astype(rows.dtype)
        self.white, self.points = self._make_coordinates(statistics, stops_early and has_few)
        #: Final maps of the previous passes.
        self.ends: list[Matrix] = []
        start = make_initial_map(
            lmnn, statistics, self.white, previous_map, stops_early=stops_early
        )
        self.progress = Progress(start, report=get_reporter(lmnn))

    def _make_coordinates(
        self, statistics: ClassStatistics, uses_original: bool
    ) -> tuple[Matrix, Floats]:
        """Return the map to the solver's coordinates, and the mapped points.

        The map is a vector of factors if the structure is diagonal. The coordinates are white
        unless ``uses_original`` is True. Large float32 data stay in float32.
        """
        dtype = np.float32 if self.rows.dtype == np.float32 and is_large(self.rows) else np.float64
        if self.lmnn.structure == "full":
            return (scale_uniformly if uses_original else whiten_rows)(self.rows, statistics, dtype)
        variances = statistics.total_variances()
        spread = np.where(statistics.varying_features(variances), np.sqrt(variances), 0.0)
        factors = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
        return factors, center_and_map(self.rows, statistics.mean, factors, dtype)

    @property
    def L(self) -> Matrix:
        """The current map, in the coordinates of the solver."""
        return self.progress.L

    def map_points(self, L: Matrix) -> Floats:
        """Return the points mapped by L."""
        assert self.problem is not None
        return self.problem.map_points(L, self.points)

    def set_euclidean(self) -> Floats:
        """Replace the current map by a scaled Euclidean distance. Return the map for X.

        The scale that fits the margin is rounded to a power of two, so that multiplication is
        exact. Rows at equal distances, which are common in discrete data, then stay at equal
        distances.
        """
        assert self.problem is not None
        identity = np.eye(self.rows.shape[1])
        L = convert_start(identity, self.white, square=True)
        factor = 2.0 ** np.round(np.log2(self.problem.find_best_scale(L)))
        self.progress.L = factor * L
        return (factor * identity).astype(self.mean.dtype)

    def count_errors(self, L: Matrix | None = None) -> float:
        """Return the number of leave-one-out k-NN errors under L. None means Euclidean distance."""
        return count_leave_one_out_errors(
            self.rows if L is None else self.map_points(L),
            self.codes,
            self.lmnn.n_neighbors,
            randomizes_ties=L is not None,
            n_threads=resolve_n_threads(self.lmnn.n_jobs),
        )

    def to_components(self, L: Matrix) -> Floats:
        """Convert a map of the solver's coordinates to a map of X."""
        if self.lmnn.structure == "diagonal":
            return np.diag(L * self.white).astype(self.mean.dtype)
        return np.asarray((L @ self.white.T).astype(self.mean.dtype))

    def begin_pass(self, targets: Indices | None = None) -> None:
        """Start a new pass.

        If ``targets`` is None, the first pass chooses them by the Euclidean distance of the rows,
        and later passes by the current map.
        """
        if targets is None:
            metric_rows = self.rows if self.problem is None else self.map_points(self.L)
            targets = find_target_neighbors(metric_rows, self.codes, self.lmnn.n_neighbors)
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
            nearest=min(self.lmnn.n_impostors_ or 0, len(self.points)) or None,
        )

    def make_watch(self, validation_set: tuple[Floats, Indices], patience: int) -> Watch:
        """Return a Watch that checks the k-NN error on held-out rows."""
        rows = center_and_map(validation_set[0], self.mean, self.white, self.points.dtype)
        assert self.problem is not None
        error = partial(
            _compute_knn_error, self.problem, rows, validation_set[1], self.lmnn.n_neighbors
        )
        return Watch(error, patience, keeps_maps=True)

    def descend(self, limit: int, tol: float, watch: Watch | None = None) -> bool:
        """Run the solver from the current map. Return False if the iteration limit stopped it."""
        progress, problem = self.progress, self.problem
        assert problem is not None
        if watch is not None or progress.n_iter > 0 or limit == 0:
            # Rescale the initial map, because it may remain the best map.
            progress.L = problem.rescale(self.L)
        progress.watch, progress.stopped = watch, False
        if watch is not None:
            watch.check(self.L)
        if limit == 0:
            return True
        with limit_blas_for(2.0 * self.points.size * len(self.L)):
            return problem.solve(progress, max_iter=progress.n_iter + limit, tol=tol)


class SubgradientRun(Run):
    """LMNN fit by the projected subgradient algorithm of Weinberger (2007), without whitening."""

    solver_name = "The projected subgradient"

    def __init__(self, lmnn: Any, rows: Floats, codes: Indices) -> None:
        self.lmnn, self.rows, self.codes = lmnn, rows, codes
        self.mean = rows.mean(axis=0).astype(rows.dtype)
        self.white = np.eye(rows.shape[1])
        self.points = (rows - self.mean).astype(np.float64)
        self.ends, self.progress = [], Progress(self.white)

    def descend(self, limit: int, tol: float, watch: Watch | None = None) -> bool:
        """Run the algorithm from the identity. Return False if the iteration limit stopped it."""
        assert self.first_targets is not None and watch is None
        result = run_projected_subgradient(
            self.points.astype(np.float64, copy=False),
            self.codes,
            self.first_targets,
            self.lmnn.push_weight,
            max_iter=limit,
            tol=tol,
        )
        self.progress.L, self.progress.history = result.L, result.history
        return result.converged


def _compute_knn_error(
    problem: LargeMargin, queries: Matrix, truth: Indices, n_neighbors: int, L: Matrix
) -> float:
    Z, Z_queries = problem.map_points(L, problem.points), problem.map_points(L, queries)
    _, nearest = kneighbors(Z, Z_queries, n_neighbors=min(n_neighbors, len(Z)))
    winners = vote(problem.codes[nearest], int(problem.codes.max()) + 1, "shrink")
    return float(np.mean(winners != truth))


def count_leave_one_out_errors(
    rows: Floats,
    codes: Indices,
    n_neighbors: int,
    *,
    randomizes_ties: bool,
    n_threads: int | None = None,
) -> float:
    """Return the number of leave-one-out errors of the k-NN classifier.

    At most 5,000 rows are classified. If the map has few entries compared with the number of rows,
    it hardly adapts to single rows, and the result estimates the error on new rows. Discrete data
    have many rows at the same distance. Among the original rows, ties go to the first row. Under a
    map, rounding would break ties arbitrarily. With ``randomizes_ties=True``, ties are therefore
    broken by a fixed set of random orders, and the mean number of errors is returned.
    """
    n = len(rows)
    queries = np.linspace(0, n - 1, min(n, MAX_ROWS_COMPARED)).astype(np.intp)
    n_listed = min(n, (_LISTED_PER_VOTER if randomizes_ties else 1) * n_neighbors + 1)
    D, nearest = kneighbors(rows, rows[queries], n_neighbors=n_listed, n_threads=n_threads)
    # Remove each row from its own list of neighbors. If duplicates displaced the row from its list,
    # remove the last neighbor.
    kept_order = np.argsort(nearest == queries[:, None], axis=1, kind="stable")[:, :-1]
    D, nearest = (
        np.take_along_axis(D, kept_order, axis=1),
        np.take_along_axis(nearest, kept_order, axis=1),
    )
    orders = [nearest]
    if randomizes_ties:
        is_apart = np.diff(D, axis=1, prepend=0.0) > np.sqrt(np.finfo(rows.dtype).eps) * D[:, -1:]
        level, random = np.cumsum(is_apart, axis=1), np.random.default_rng(0)
        keys = [level + random.permutation(n)[nearest] / n for _ in range(_N_ORDERS)]
        orders = [np.take_along_axis(nearest, np.argsort(key, axis=1), axis=1) for key in keys]
    is_wrong = [
        vote(codes[neighbors[:, :n_neighbors]], int(codes.max()) + 1, "shrink") != codes[queries]
        for neighbors in orders
    ]
    return float(np.sum(np.mean(is_wrong, axis=0)))


def make_initial_map(
    lmnn: Any,
    statistics: ClassStatistics,
    white: Matrix,
    previous_map: Floats | None,
    *,
    stops_early: bool,
) -> Matrix:
    """Return the initial map in the coordinates of the solver."""
    p = statistics.n_features
    size = None if lmnn.reduction != "learned" else lmnn.n_components
    if lmnn.n_components is not None and lmnn.n_components > p:
        raise ValueError(f"n_components={lmnn.n_components} is more than the {p} features of X.")
    init = lmnn.init
    if previous_map is not None and previous_map.shape == (p if size is None else size, p):
        init = previous_map
    spread = compute_spread(statistics)
    if lmnn.structure == "diagonal":
        return _make_factors(init, spread, white, lmnn.random_state, stops_early=stops_early)
    has_few = has_few_rows(statistics.total_weight, statistics.n_classes, white.shape[1])
    auto = "identity" if stops_early else "pca" if has_few else "within"
    start = make_start_map(init, spread, size, auto=auto, random_state=lmnn.random_state)
    return convert_start(start, white, square=size is None)


def _make_factors(
    init: str | ArrayLike,
    spread: Spread,
    white: Matrix,
    random_state: int | np.random.RandomState | None,
    *,
    stops_early: bool,
) -> Matrix:
    """Return the initial map for ``structure="diagonal"``: one factor per standardized feature."""
    varies = white > 0
    if not isinstance(init, str) or init == "random":
        L = make_start_map(init, spread, None, auto="", random_state=random_state)
        start = np.where(varies, np.diag(L) / np.where(varies, white, 1.0), 0.0)
        check_start(start)
        return start
    if init == "lda":
        raise ValueError(
            'init="lda" cannot be combined with structure="diagonal". Use init="within".'
        )
    start = varies.astype(np.float64)
    if init == "identity" or (init == "auto" and stops_early):
        start[varies] = 1 / white[varies]
    elif init != "pca":
        assert spread.within is not None
        within = np.diag(spread.within) * white**2
        # A feature that is constant within classes gets a large but finite factor.
        start[varies] = 1 / np.sqrt(np.maximum(within[varies], 1e-4))
    return start


def reduce_map_rows(lmnn: Any, problem: LargeMargin, L: Matrix, white: Matrix) -> Matrix:
    """Return the square map reduced to ``n_components`` rows.

    The result is U'L for a matrix U with orthonormal columns.
    """
    assert lmnn.n_components is not None
    if lmnn.reduction == "pca":
        Z = problem.map_points(L, problem.points)
        Z = Z - Z.mean(axis=0)
        spread = Z.T @ Z
    else:
        # With A = L white', M is A'A. The eigenvectors of AA' are the left singular vectors of A.
        spread = L @ white.T @ white @ L.T
    _, axes = descending_eigh(spread, min(lmnn.n_components, len(L)))
    rows = axes.T @ L
    # Rows beyond the rank of the data stay zero.
    return np.vstack([rows, np.zeros((lmnn.n_components - len(rows), L.shape[1]))])
