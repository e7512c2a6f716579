"""The search that the methods without closed solution share: starts, solver, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.notices import warn
from nearfar.parameters import Allowed, array, boolean, integer, one_of, random_state, real
from nearfar.solvers.eigen import canonical_rows, descending_eigh
from nearfar.solvers.subspaces import (
    Interrupted,
    Objective,
    SubspaceSearch,
    best_of_starts,
    climb_subspace,
    orthonormal,
    search_subspace,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import between_axes

Init = Literal["auto", "lda", "random"]

#: What the parameters of a search may be.
SEARCH_PARAMETERS: dict[str, Sequence[Allowed]] = {
    "init": [one_of("auto", "lda", "random"), array],
    "n_init": [integer(1)],
    "solver": [one_of("lbfgs", "steepest")],
    "max_iter": [integer(1)],
    "tol": [real(0)],
    "random_state": [random_state],
    "verbose": [boolean, integer(0)],
}
# Step and stopping of the published loop (table 2.5 of the thesis).
_KAPPA, _STEADY = 1e-4, 1e-6


class Searching(Protocol):
    """A learner with the parameters of a search, and what it keeps of one."""

    init: Init | ArrayLike
    n_init: int
    solver: Literal["lbfgs", "steepest"]
    max_iter: int
    tol: float
    random_state: int | np.random.RandomState | None
    verbose: int
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
    maximise: bool = True,
    invariant: bool = True,
    keep: Callable[[Matrix], None] | None = None,
) -> Matrix:
    """Components (q, n_features) of the best subspace, from the starts that the learner asks for.

    Sets ``objective_``, ``objectives_per_init_``, ``history_`` and ``n_iter_``; warns when the best
    search did not converge; after Ctrl-C leaves all that of the best so far.

    Parameters
    ----------
    learner : learner
        With the parameters of :data:`SEARCH_PARAMETERS`.
    statistics : ClassStatistics
        Of the features.
    basis : ndarray of shape (n_features, r)
        T: the search goes over the coordinates xT, where the pooled covariance is the identity.
    objective : callable
        From U (r, q) to a value and its gradient.
    n_components : int
        q.
    maximise : bool, default=True
        False minimises.
    invariant : bool, default=True
        Whether UB gives the same value as U for every invertible B. If not, U stays orthonormal.
    keep : callable, optional
        Called with the U found, to set further attributes.

    Returns
    -------
    ndarray of shape (q, n_features)
        Principal axes of the class means in the subspace, with pooled within-class covariance I.
    """
    starts = _starts(learner, statistics, basis, n_components)
    solver: Callable[..., SubspaceSearch] = search_subspace
    options: dict[str, Any] = {"max_iter": learner.max_iter}
    if learner.solver == "lbfgs":
        options |= {"tol": learner.tol, "verbose": bool(learner.verbose)}
    else:  # the published loop: fixed steps of a free matrix that starts with norm one
        if invariant:
            starts = (start / np.linalg.norm(start) for start in starts)
        solver = climb_subspace
        options |= {"step": _KAPPA, "tol": _STEADY, "shrink": 1.0}
        options |= {"normalise": False, "orthonormalise": not invariant}

    def kept(found: SubspaceSearch) -> Matrix:
        learner.objective_ = found.objective
        learner.objectives_per_init_ = np.array(found.objectives)
        learner.history_, learner.n_iter_ = found.history, found.n_iter
        U = orthonormal(found.U)
        if keep is not None:
            keep(U)
        return subspace_components(statistics, basis, U)

    try:
        found = best_of_starts(objective, starts, maximise=maximise, solver=solver, **options)
    except Interrupted as stop:
        stop.components = kept(stop.found)
        raise
    if not found.converged:
        warn(
            f"{type(learner).__name__} did not converge in {learner.max_iter} iterations, its "
            "limit; raise max_iter, or tol to be content with less.",
            ConvergenceWarning,
        )
    return kept(found)


def subspace_components(statistics: ClassStatistics, basis: Matrix, U: Matrix) -> Matrix:
    """The rows (q, n_features) that stand for the span of U in the coordinates ``X @ basis``.

    Any basis of the span would do; this one does not depend on how it was found. Its first row
    separates the class means most.
    """
    between = statistics.between_factor() @ (basis @ U)
    total = np.eye(U.shape[1]) + between.T @ between / statistics.total_weight
    values, axes = descending_eigh(total)
    return canonical_rows(values, (basis @ U @ axes).T)


def _starts(
    learner: Searching, statistics: ClassStatistics, basis: Matrix, n_components: int
) -> Iterator[Matrix]:
    random = check_random_state(learner.random_state)
    frame = random_frame(statistics, basis)
    n_random = learner.n_init
    if not isinstance(learner.init, str):
        yield given_start(learner.init, basis, n_components)
        n_random -= 1
    elif learner.init != "random":
        yield fisher_start(statistics, basis, frame, n_components, random)
        n_random = 0 if learner.init == "lda" else n_random - 1
    for _ in range(n_random):
        yield orthonormal(frame @ random.normal(size=(frame.shape[1], n_components)))


def random_frame(statistics: ClassStatistics, basis: Matrix) -> Matrix:
    """Orthonormal rows (r, n_features) that take a random matrix to the coordinates X @ basis.

    Another basis of the same coordinates gives the same subspaces: so rounding, which may turn the
    basis, does not change where a search starts.
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
    """The LDA subspace in whitened coordinates, filled up at random beyond its dimension."""
    values, axes = between_axes(statistics, basis)
    n_known = min(n_components, int((values > 1e-12 * values[0]).sum()))
    known = axes[:n_known].T
    fill = frame @ random.normal(size=(frame.shape[1], n_components - n_known))
    return orthonormal(np.hstack([known, fill - known @ (known.T @ fill)]))


def given_start(init: ArrayLike, basis: Matrix, n_components: int) -> Matrix:
    """The subspace of given components (q, n_features), in the coordinates ``X @ basis``."""
    rows = np.asarray(init, dtype=np.float64)
    wanted = (n_components, len(basis))
    if rows.shape != wanted:
        raise ValueError(f"init must have shape {wanted}, like components_; got {rows.shape}.")
    if not np.isfinite(rows).all():
        raise ValueError("init contains NaN or infinity.")
    U = linalg.lstsq(basis, rows.T)[0]
    if np.linalg.matrix_rank(U) < n_components:
        raise ValueError("init must have independent rows where the data vary.")
    return np.asarray(U)
