"""Search for a subspace from several starts, shared by methods without a closed-form solution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.base.progress import get_reporter
from nearfar.notices import warn_not_converged
from nearfar.parameters import (
    AllowedValues,
    array,
    boolean,
    integer,
    none,
    one_of,
    random_state,
    real,
)
from nearfar.solvers.descent import Objective
from nearfar.solvers.eigen import canonical_rows, descending_eigh
from nearfar.solvers.gaussian_divergences import GaussianFamily
from nearfar.solvers.subspaces import (
    Interrupted,
    SubspaceSearch,
    climb_subspace,
    find_orthonormal_basis,
    search_from_starts,
    search_subspace,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, find_between_axes

Init = Literal["auto", "lda", "random"]

#: Allowed values of the search parameters.
SEARCH_PARAMETERS: dict[str, Sequence[AllowedValues]] = {
    "n_components": [none, integer(1)],
    "shrinkage": [real(0, 1), one_of("auto")],
    "init": [one_of("auto", "lda", "random"), array],
    "n_init": [integer(1)],
    "solver": [one_of("lbfgs", "steepest")],
    "max_iter": [integer(1)],
    "tol": [real(0)],
    "random_state": [random_state],
    "verbose": [boolean, integer(0)],
}
# Step size of solver="steepest" (Tao, 2006, table 2.5).
_STEEPEST_STEP = 1e-4
# Stopping tolerance of solver="steepest" (Tao, 2006, table 2.5).
_STEEPEST_TOLERANCE = 1e-6
# Number of candidates per random start that are axes of class differences. The same number of
# candidates are random mixtures of these axes. On 15 folds of wine, the results were as good as
# with uniformly random starts: better in one fold and worse in one. Without the random mixtures,
# they were worse in seven folds.
_N_CANDIDATES = 4
# Number of iterations for which each candidate is optimized. The best candidate becomes the start.
_PILOT_ITERATIONS = 8
# Weight of the random term that breaks ties between directions in which the classes do not differ.
# It is larger than rounding errors and smaller than any difference in the data.
_TIE_WEIGHT = 1e-6
# Norm below which a difference between classes is treated as noise.
_MIN_NORM = 1e-3


class SubspaceSearchLearner:
    """Base class of learners that search for a subspace: parameters and fitted attributes."""

    n_components: int | None
    shrinkage: Shrinkage
    init: Init | ArrayLike
    n_init: int
    solver: Literal["lbfgs", "steepest"]
    max_iter: int
    tol: float
    random_state: int | np.random.RandomState | None
    verbose: int
    classes_: NDArray[np.generic]
    shrinkage_: float
    objective_: float
    objectives_per_init_: Matrix
    history_: dict[str, list[float]]
    n_iter_: int


def search_components(
    learner: SubspaceSearchLearner,
    statistics: ClassStatistics,
    basis: Matrix,
    objective: Objective,
    n_components: int,
    *,
    family: GaussianFamily,
    maximize: bool = True,
    invariant: bool = True,
    store_results: Callable[[Matrix], None] | None = None,
) -> Matrix:
    """Search from all starts of a learner, and return the components (q, n_features) of the best.

    The components are the principal axes of the class means in the subspace, scaled so that the
    pooled within-class covariance is the identity. The function sets ``objective_``,
    ``objectives_per_init_``, ``history_`` and ``n_iter_``. ``store_results`` is called with the
    final U and may set more attributes. The function warns if the best search did not converge.
    After Ctrl-C, it keeps the results of the best start so far.

    The search uses the coordinates xT of the ``basis`` T, in which the pooled covariance is the
    identity. ``family`` holds the class Gaussians in these coordinates, which determine the random
    starts. ``invariant`` means that the objective is the same for U and UB with any invertible B.
    Otherwise U stays orthonormal.
    """
    n_pilot_iterations = (
        min(_PILOT_ITERATIONS, learner.max_iter) if learner.solver == "lbfgs" else 0
    )
    run_pilot = partial(
        search_subspace, objective, maximize=maximize, max_iter=n_pilot_iterations, polish=False
    )
    select_best = partial(_select_best_candidate, run_pilot, maximize=maximize)
    starts = _generate_starts(learner, statistics, basis, n_components, family, select_best)
    solver: Callable[..., SubspaceSearch] = search_subspace
    options: dict[str, Any] = {"max_iter": learner.max_iter, "report": get_reporter(learner)}
    if learner.solver == "lbfgs":
        options |= {"tol": learner.tol}
    else:
        # The published algorithm takes steps of fixed size. The matrix is not constrained, and its
        # initial norm is 1.
        if invariant:
            starts = (start / np.linalg.norm(start) for start in starts)
        solver = climb_subspace
        options |= {"step": _STEEPEST_STEP, "tol": _STEEPEST_TOLERANCE, "shrink": 1.0}
        options |= {"normalize": False, "orthonormalize": not invariant}

    def store_search(search: SubspaceSearch) -> Matrix:
        learner.objective_ = search.objective
        learner.objectives_per_init_ = np.array(search.objectives)
        learner.history_, learner.n_iter_ = search.history, search.n_iter
        U = find_orthonormal_basis(search.U)
        if store_results is not None:
            store_results(U)
        return compute_components(statistics, basis, U)

    try:
        search = search_from_starts(objective, starts, maximize=maximize, solver=solver, **options)
    except Interrupted as stop:
        stop.components = store_search(stop.search)
        raise
    if not search.converged:
        warn_not_converged(type(learner).__name__, learner.max_iter)
    return store_search(search)


def compute_components(statistics: ClassStatistics, basis: Matrix, U: Matrix) -> Matrix:
    """Return a matrix (q, n_features) whose rows span the subspace U of ``X @ basis``.

    Among all bases of the subspace, this one does not depend on how U was found. Its first row
    separates the class means most.
    """
    between = statistics.between_factor() @ (basis @ U)
    total = np.eye(U.shape[1]) + between.T @ between / statistics.total_weight
    values, axes = descending_eigh(total)
    return canonical_rows(values, (basis @ U @ axes).T)


def _generate_starts(
    learner: SubspaceSearchLearner,
    statistics: ClassStatistics,
    basis: Matrix,
    n_components: int,
    family: GaussianFamily,
    select_best: Callable[[Iterable[Matrix]], Matrix | None],
) -> Iterator[Matrix]:
    random = check_random_state(learner.random_state)
    frame = make_random_frame(statistics, basis)
    if isinstance(learner.init, str) and learner.init == "random":
        for _ in range(learner.n_init):
            yield find_orthonormal_basis(frame @ random.normal(size=(frame.shape[1], n_components)))
        return
    directions = draw_class_directions(family, frame, random)
    n_random_starts = learner.n_init - 1
    if not isinstance(learner.init, str):
        yield check_user_start(learner.init, basis, n_components)
    else:
        yield _make_filled_fisher_start(statistics, basis, n_components, directions)
        n_random_starts = 0 if learner.init == "lda" else n_random_starts
    for _ in range(n_random_starts):
        sizes, axes = next(directions)
        # Draw axes at random with probabilities proportional to their sizes (Gumbel trick). Along
        # axes of size zero, the classes do not differ.
        log_sizes = np.log(np.maximum(sizes, np.finfo(float).tiny))
        orders = [
            np.argsort(-(log_sizes + random.gumbel(size=len(log_sizes))))
            for _ in range(_N_CANDIDATES)
        ]
        mixtures = random.normal(size=(_N_CANDIDATES, len(log_sizes), n_components))
        start = select_best(
            [
                *(axes[:, order[:n_components]] for order in orders),
                *(find_orthonormal_basis(axes @ mixture) for mixture in mixtures),
            ]
        )
        if start is None:  # The objective is not finite at any candidate.
            start = find_orthonormal_basis(
                frame @ random.normal(size=(frame.shape[1], n_components))
            )
        yield start


def _select_best_candidate(
    run_pilot: Callable[[Matrix], SubspaceSearch], candidates: Iterable[Matrix], *, maximize: bool
) -> Matrix | None:
    """Optimize all candidates for a few iterations. Return the best, or None if all fail."""
    best: SubspaceSearch | None = None
    for candidate in candidates:
        try:
            search = run_pilot(candidate)
        except ValueError:  # The objective is not finite at this candidate.
            continue
        if best is None or (search.objective > best.objective) == maximize:
            best = search
    return None if best is None else best.U


def draw_class_directions(
    family: GaussianFamily, frame: Matrix, random: np.random.RandomState
) -> Iterator[tuple[Matrix, Matrix]]:
    """Yield the orthonormal axes (columns) of random class differences, and the size of each axis.

    The generator is infinite. The axes are eigenvectors of randomly weighted sums of the class
    covariances and of the outer products of the class means. They depend on the classes only: other
    coordinates of the same space, for example those of a linear kernel, or another order of the
    classes give the same axes.
    """
    mean_sizes = np.sum((family.means - family.means.mean(axis=0)) ** 2, axis=1)
    traces = family.compute_traces()
    # Order the classes by their statistics, not by their labels. The key is rounded, so that
    # rounding errors do not swap classes with equal statistics.
    key = mean_sizes / max(mean_sizes.max(), _MIN_NORM) + traces / traces.max()
    order = np.argsort(key.round(6), kind="stable")
    while True:
        by_mean, by_covariance = np.empty(len(order)), np.empty(len(order))
        by_mean[order], by_covariance[order] = random.normal(size=(2, len(order)))
        by_covariance -= by_covariance.mean()
        combinations = family.combine(by_mean, by_covariance)
        B, C = (
            combination / max(float(np.linalg.norm(combination)), _MIN_NORM)
            for combination in combinations
        )
        covariance_fraction = random.uniform()
        ties = (frame * random.normal(size=frame.shape[1])) @ frame.T
        values, axes = linalg.eigh(
            covariance_fraction * C + (1 - covariance_fraction) * B + _TIE_WEIGHT * ties
        )
        # Also use the class differences to fix the signs of the axes relative to the largest axis,
        # because mixtures of axes depend on these signs.
        signs = np.sign(axes.T @ (C @ (B + _TIE_WEIGHT * ties)) @ axes[:, -1])
        yield np.abs(values), axes * np.where(signs == 0, 1.0, signs)


def _make_filled_fisher_start(
    statistics: ClassStatistics,
    basis: Matrix,
    n_components: int,
    directions: Iterator[tuple[Matrix, Matrix]],
) -> Matrix:
    """Return the LDA subspace in whitened coordinates, extended by axes of class differences."""
    fisher = compute_fisher_axes(statistics, basis, n_components)
    if fisher.shape[1] == n_components:
        return fisher
    sizes, axes = next(directions)
    # After projection onto the complement, the axes may be linearly dependent. Therefore project a
    # weighted sum of the axes.
    complement = np.eye(len(axes)) - fisher @ fisher.T
    _, complement_axes = linalg.eigh(
        complement @ (axes * sizes) @ axes.T @ complement - fisher @ fisher.T
    )
    return find_orthonormal_basis(
        np.hstack([fisher, complement_axes[:, ::-1][:, : n_components - fisher.shape[1]]])
    )


def make_random_frame(statistics: ClassStatistics, basis: Matrix) -> Matrix:
    """Return a matrix (r, n_features) with orthonormal rows.

    Multiplied by the rows, a random matrix gives a random start in the coordinates ``X @ basis``.

    A rotated basis gives the same subspaces. Rounding errors, which may rotate the basis, thus do
    not change the starting points.
    """
    deviations = np.sqrt(statistics.total_variances())
    left_vectors, _, right_vectors = linalg.svd(basis.T * deviations, full_matrices=False)
    return np.asarray(left_vectors @ right_vectors)


def make_fisher_start(
    statistics: ClassStatistics,
    basis: Matrix,
    frame: Matrix,
    n_components: int,
    random: np.random.RandomState,
) -> Matrix:
    """Return the LDA subspace in whitened coordinates, extended by random directions."""
    fisher = compute_fisher_axes(statistics, basis, n_components)
    fill = frame @ random.normal(size=(frame.shape[1], n_components - fisher.shape[1]))
    return find_orthonormal_basis(np.hstack([fisher, fill - fisher @ (fisher.T @ fill)]))


def compute_fisher_axes(statistics: ClassStatistics, basis: Matrix, n_components: int) -> Matrix:
    """Return at most ``n_components`` LDA axes (columns) in whitened coordinates."""
    values, axes = find_between_axes(statistics, basis)
    return axes[: min(n_components, int((values > 1e-12 * values[0]).sum()))].T


def check_user_start(init: ArrayLike, basis: Matrix, n_components: int) -> Matrix:
    """Check ``init`` (q, n_features), and return its span in the coordinates ``X @ basis``."""
    rows = np.asarray(init, dtype=np.float64)
    expected_shape = (n_components, len(basis))
    if rows.shape != expected_shape:
        raise ValueError(
            f"init must have shape {expected_shape}, like components_, but has {rows.shape}."
        )
    if not np.isfinite(rows).all():
        raise ValueError("init contains NaN or infinity. Pass finite numbers.")
    U = linalg.lstsq(basis, rows.T)[0]
    if np.linalg.matrix_rank(U) < n_components:
        raise ValueError(
            "The rows of init are linearly dependent in the directions in which X varies. Pass "
            "linearly independent rows."
        )
    return np.asarray(U)
