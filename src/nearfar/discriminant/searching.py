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
from nearfar.base.progress import report_of
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
    best_of_starts,
    climb_subspace,
    orthonormal,
    search_subspace,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, find_between_axes

Init = Literal["auto", "lda", "random"]

#: Allowed values of the parameters of a search.
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
# Step size and stopping tolerance of solver="steepest" (Tao, 2006, table 2.5).
_KAPPA, _STEADY = 1e-4, 1e-6
# For each random start, this many candidates are drawn among the axes of class differences, and as
# many as random mixtures of these axes. Each runs for _SCOUTING iterations and the best becomes the
# start. On 15 folds of wine the results equal those of uniformly random starts: better in one fold,
# worse in one. Without the random mixtures, seven folds were worse.
_CANDIDATES, _SCOUTING = 4, 8
# Weight of the random term that breaks ties between directions in which the classes do not differ:
# above rounding errors, below any difference in the data. _NOISE is the norm below which a
# difference of classes counts as noise.
_TIE, _NOISE = 1e-6, 1e-3


class Searching:
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
    learner: Searching,
    statistics: ClassStatistics,
    basis: Matrix,
    objective: Objective,
    n_components: int,
    *,
    family: GaussianFamily,
    maximize: bool = True,
    invariant: bool = True,
    keep: Callable[[Matrix], None] | None = None,
) -> Matrix:
    """Return the components (q, n_features) of the best subspace over the learner's starts.

    The components are the principal axes of the class means in the subspace, scaled so that the
    pooled within-class covariance is the identity. The function sets ``objective_``,
    ``objectives_per_init_``, ``history_`` and ``n_iter_``. ``keep`` is called with the final U and
    may set more attributes. If the best search did not converge, it warns. After Ctrl-C, it keeps
    the results of the best start so far.

    The search uses the coordinates xT of the ``basis`` T, in which the pooled covariance is the
    identity. ``family`` holds the class Gaussians in these coordinates, which determine the random
    starts. ``invariant`` means that the objective is the same for U and UB with any invertible B.
    Otherwise U stays orthonormal.
    """
    steps = min(_SCOUTING, learner.max_iter) if learner.solver == "lbfgs" else 0
    scout = partial(search_subspace, objective, maximize=maximize, max_iter=steps, polish=False)
    rank = partial(_scouted, scout, maximize=maximize)
    starts = _starts(learner, statistics, basis, n_components, family, rank)
    solver: Callable[..., SubspaceSearch] = search_subspace
    options: dict[str, Any] = {"max_iter": learner.max_iter, "report": report_of(learner)}
    if learner.solver == "lbfgs":
        options |= {"tol": learner.tol}
    else:  # The published loop: fixed steps of an unconstrained matrix with an initial norm of 1.
        if invariant:
            starts = (start / np.linalg.norm(start) for start in starts)
        solver = climb_subspace
        options |= {"step": _KAPPA, "tol": _STEADY, "shrink": 1.0}
        options |= {"normalize": False, "orthonormalize": not invariant}

    def kept(found: SubspaceSearch) -> Matrix:
        learner.objective_ = found.objective
        learner.objectives_per_init_ = np.array(found.objectives)
        learner.history_, learner.n_iter_ = found.history, found.n_iter
        U = orthonormal(found.U)
        if keep is not None:
            keep(U)
        return subspace_components(statistics, basis, U)

    try:
        found = best_of_starts(objective, starts, maximize=maximize, solver=solver, **options)
    except Interrupted as stop:
        stop.components = kept(stop.found)
        raise
    if not found.converged:
        warn_not_converged(type(learner).__name__, learner.max_iter)
    return kept(found)


def subspace_components(statistics: ClassStatistics, basis: Matrix, U: Matrix) -> Matrix:
    """Return rows (q, n_features) that span the subspace U of the coordinates ``X @ basis``.

    Among all bases of the subspace, this one does not depend on how U was found. Its first row
    separates the class means most.
    """
    between = statistics.between_factor() @ (basis @ U)
    total = np.eye(U.shape[1]) + between.T @ between / statistics.total_weight
    values, axes = descending_eigh(total)
    return canonical_rows(values, (basis @ U @ axes).T)


def _starts(
    learner: Searching,
    statistics: ClassStatistics,
    basis: Matrix,
    n_components: int,
    family: GaussianFamily,
    best_of: Callable[[Iterable[Matrix]], Matrix | None],
) -> Iterator[Matrix]:
    random = check_random_state(learner.random_state)
    frame = random_frame(statistics, basis)
    if isinstance(learner.init, str) and learner.init == "random":
        for _ in range(learner.n_init):
            yield orthonormal(frame @ random.normal(size=(frame.shape[1], n_components)))
        return
    drawn = class_directions(family, frame, random)
    n_drawn = learner.n_init - 1
    if not isinstance(learner.init, str):
        yield given_start(learner.init, basis, n_components)
    else:
        yield _fisher_start_filled(statistics, basis, n_components, drawn)
        n_drawn = 0 if learner.init == "lda" else n_drawn
    for _ in range(n_drawn):
        sizes, axes = next(drawn)
        # Draw axes at random with probabilities proportional to their sizes (Gumbel trick). Along
        # axes of size zero, the classes do not differ.
        odds = np.log(np.maximum(sizes, np.finfo(float).tiny))
        orders = [np.argsort(-(odds + random.gumbel(size=len(odds)))) for _ in range(_CANDIDATES)]
        anywhere = random.normal(size=(_CANDIDATES, len(odds), n_components))
        start = best_of(
            [
                *(axes[:, order[:n_components]] for order in orders),
                *(orthonormal(axes @ mix) for mix in anywhere),
            ]
        )
        if start is None:  # The objective is not finite at any candidate.
            start = orthonormal(frame @ random.normal(size=(frame.shape[1], n_components)))
        yield start


def _scouted(
    scout: Callable[[Matrix], SubspaceSearch], candidates: Iterable[Matrix], *, maximize: bool
) -> Matrix | None:
    """Return the best candidate after a few iterations, or None if all of them fail."""
    best: SubspaceSearch | None = None
    for candidate in candidates:
        try:
            found = scout(candidate)
        except ValueError:  # The objective is not finite at this candidate.
            continue
        if best is None or (found.objective > best.objective) == maximize:
            best = found
    return None if best is None else best.U


def class_directions(
    family: GaussianFamily, frame: Matrix, random: np.random.RandomState
) -> Iterator[tuple[Matrix, Matrix]]:
    """Yield sizes and orthonormal axes (columns) of random class differences, without end.

    The axes are eigenvectors of randomly weighted sums of the class covariances and of the outer
    products of the class means. They depend on the classes only: other coordinates of the same
    space, for example those of a linear kernel, or another order of the classes give the same
    axes.
    """
    means = np.sum((family.means - family.means.mean(axis=0)) ** 2, axis=1)
    traces = family.traces()
    # Order the classes by their statistics, not by their labels. The key is rounded, so that
    # rounding errors do not swap classes with equal statistics.
    key = means / max(means.max(), _NOISE) + traces / traces.max()
    order = np.argsort(key.round(6), kind="stable")
    while True:
        by_mean, by_covariance = np.empty(len(order)), np.empty(len(order))
        by_mean[order], by_covariance[order] = random.normal(size=(2, len(order)))
        by_covariance -= by_covariance.mean()
        parts = family.combination(by_mean, by_covariance)
        B, C = (part / max(float(np.linalg.norm(part)), _NOISE) for part in parts)
        share = random.uniform()
        ties = (frame * random.normal(size=frame.shape[1])) @ frame.T
        values, axes = linalg.eigh(share * C + (1 - share) * B + _TIE * ties)
        # Fix the signs relative to the largest axis by the class differences as well, because
        # mixtures of axes depend on them.
        signs = np.sign(axes.T @ (C @ (B + _TIE * ties)) @ axes[:, -1])
        yield np.abs(values), axes * np.where(signs == 0, 1.0, signs)


def _fisher_start_filled(
    statistics: ClassStatistics,
    basis: Matrix,
    n_components: int,
    drawn: Iterator[tuple[Matrix, Matrix]],
) -> Matrix:
    """Return the LDA subspace in whitened coordinates, extended by the largest drawn axes."""
    known = fisher_axes(statistics, basis, n_components)
    if known.shape[1] == n_components:
        return known
    sizes, axes = next(drawn)
    # Project the weighted sum of the axes, not the axes themselves: projected onto the complement,
    # these may be linearly dependent.
    rest = np.eye(len(axes)) - known @ known.T
    _, left = linalg.eigh(rest @ (axes * sizes) @ axes.T @ rest - known @ known.T)
    return orthonormal(np.hstack([known, left[:, ::-1][:, : n_components - known.shape[1]]]))


def random_frame(statistics: ClassStatistics, basis: Matrix) -> Matrix:
    """Return orthonormal rows (r, n_features) that map a random matrix to coordinates X @ basis.

    A rotated basis gives the same subspaces. Rounding errors, which may rotate the basis, thus do
    not change the starting points.
    """
    deviations = np.sqrt(statistics.total_variances())
    left, _, right = linalg.svd(basis.T * deviations, full_matrices=False)
    return np.asarray(left @ right)


def fisher_start(
    statistics: ClassStatistics,
    basis: Matrix,
    frame: Matrix,
    n_components: int,
    random: np.random.RandomState,
) -> Matrix:
    """Return the LDA subspace in whitened coordinates, extended by random directions."""
    known = fisher_axes(statistics, basis, n_components)
    fill = frame @ random.normal(size=(frame.shape[1], n_components - known.shape[1]))
    return orthonormal(np.hstack([known, fill - known @ (known.T @ fill)]))


def fisher_axes(statistics: ClassStatistics, basis: Matrix, n_components: int) -> Matrix:
    """Return at most ``n_components`` LDA axes (columns) in whitened coordinates."""
    values, axes = find_between_axes(statistics, basis)
    return axes[: min(n_components, int((values > 1e-12 * values[0]).sum()))].T


def given_start(init: ArrayLike, basis: Matrix, n_components: int) -> Matrix:
    """Return the subspace of given components (q, n_features) in the coordinates ``X @ basis``."""
    rows = np.asarray(init, dtype=np.float64)
    wanted = (n_components, len(basis))
    if rows.shape != wanted:
        raise ValueError(f"init must have shape {wanted}, like components_, but has {rows.shape}.")
    if not np.isfinite(rows).all():
        raise ValueError("init contains NaN or infinity. Pass finite numbers.")
    U = linalg.lstsq(basis, rows.T)[0]
    if np.linalg.matrix_rank(U) < n_components:
        raise ValueError(
            "The rows of init are linearly dependent in the directions in which X varies. Pass "
            "linearly independent rows."
        )
    return np.asarray(U)
