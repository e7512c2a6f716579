"""Minimization of a smooth function of a matrix by L-BFGS, with a history of the iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from scipy import optimize

from nearfar.arrays import Matrix
from nearfar.solvers.eigen import partial_eigh

#: Function of a matrix (or a vector) that returns the value to minimize and its gradient.
Objective = Callable[[Matrix], tuple[float, Matrix]]
# Maximum number of evaluations of the objective per line search.
_MAX_LINE_SEARCH_EVALUATIONS = 30
# Number of past steps that L-BFGS stores.
_N_STORED_STEPS = 20
# Relative gap at which `descend_with_proof` stops, in units of ``tol``.
_ACCEPTED_GAP = 50
# Maximum number of times that `descend_with_proof` divides the tolerance by 10.
_MAX_REFINEMENTS = 3
# Lengths of the new row of L that `escape` tries, relative to the longest row of L.
_RELATIVE_ROW_LENGTHS = (0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass
class Descent:
    """State of a descent. The caller creates it, so that the best point is available after Ctrl-C.

    ``converged`` is True if the descent stopped because the objective hardly decreased any more.
    For each iteration, the history has the objective, the step (the relative change of the point)
    and the seconds since the start.
    """

    point: Matrix
    objective: float = np.inf
    converged: bool = False
    history: dict[str, list[float]] = field(
        default_factory=lambda: {"objective": [], "step": [], "seconds": []}
    )

    @property
    def n_iter(self) -> int:
        """Number of completed iterations."""
        return len(self.history["objective"])


def descend(
    objective: Objective,
    state: Descent,
    *,
    max_iter: int,
    tol: float,
    bounds: optimize.Bounds | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Descent:
    """Minimize an objective by L-BFGS, starting from ``state.point``.

    The descent stops when two consecutive iterations each reduce the objective by less than ``tol``
    times its absolute value, or when no step reduces it. ``state.converged`` is then True.
    ``max_iter`` includes the iterations that ``state`` already has, so that a descent in several
    stages has one limit.

    Parameters
    ----------
    objective : callable
        Function of a matrix with the shape of ``state.point`` that returns the value and the
        gradient. The value must be finite at the start. A later step to a value that is not finite
        is rejected.
    state : Descent
        The starting point. It is updated at each iteration.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Relative decrease of the objective below which the descent stops.
    bounds : scipy.optimize.Bounds, optional
        Bounds of the entries in row-major order.
    report : callable, optional
        Called at each iteration with the new entries of the history.

    Returns
    -------
    Descent
        The updated ``state``.

    Examples
    --------
    >>> import numpy as np
    >>> state = Descent(np.ones((2, 2)))
    >>> descend(lambda M: (float((M**2).sum()), 2 * M), state, max_iter=50, tol=1e-9).converged
    True
    >>> bool(abs(state.point).max() < 1e-6)
    True
    """
    shape, start_time = state.point.shape, perf_counter()
    seconds_before = state.history["seconds"][-1] if state.n_iter else 0.0
    value, gradient = objective(state.point)
    if not np.isfinite(value):
        raise ValueError(
            f"The objective is {value} at the start, but it must be finite. Rescale "
            "the features of X, or remove rows of X with extreme values."
        )
    # Divide by the first value, because the solver also has absolute tolerances.
    unit = abs(value) if value != 0 else 1.0
    state.objective, state.converged = value, False
    n_small_decreases = 0
    # The current point and the point evaluated last, each with its value and gradient.
    current_evaluation = latest_evaluation = (
        state.point.ravel(),
        value / unit,
        gradient.ravel() / unit,
    )

    def evaluate_scaled(flat_point: Matrix) -> tuple[float, Matrix]:
        nonlocal latest_evaluation
        value, gradient = objective(flat_point.reshape(shape))
        if not np.isfinite(value):
            # Report an increase that is as large as the decrease predicted by the gradient. The
            # line search then halves the step.
            current_point, current_value, current_gradient = current_evaluation
            increase = abs(float(current_gradient @ (flat_point - current_point)))
            return current_value + increase, -current_gradient
        latest_evaluation = flat_point.copy(), value / unit, gradient.ravel() / unit
        return latest_evaluation[1], latest_evaluation[2]

    def record(intermediate_result: optimize.OptimizeResult) -> None:
        nonlocal n_small_decreases, current_evaluation
        current_evaluation = latest_evaluation
        point = np.array(intermediate_result.x).reshape(shape)
        value = float(intermediate_result.fun) * unit
        change = np.linalg.norm(point - state.point) / max(
            np.linalg.norm(point), np.finfo(float).tiny
        )
        decrease = state.objective - value
        state.point, state.objective = point, value
        entries = {
            "objective": value,
            "step": float(change),
            "seconds": seconds_before + perf_counter() - start_time,
        }
        for name, number in entries.items():
            state.history[name].append(number)
        if report is not None:
            report(entries)
        n_small_decreases = n_small_decreases + 1 if decrease <= tol * abs(value) else 0
        if n_small_decreases > 1:
            state.converged = True
            raise StopIteration
        if state.n_iter >= max_iter:
            raise StopIteration

    if state.n_iter >= max_iter:
        return state
    optimize.minimize(
        evaluate_scaled,
        state.point.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=record,
        options={
            "maxiter": max_iter,
            "maxfun": 100 * max_iter,
            "maxls": _MAX_LINE_SEARCH_EVALUATIONS,
            "maxcor": _N_STORED_STEPS,
            "ftol": 0.0,
            "gtol": 0.0,
        },
    )
    if not state.n_iter:
        # The start is a minimum. Record its value, so that the history is not empty.
        record(optimize.OptimizeResult(x=current_evaluation[0], fun=current_evaluation[1]))
    # If no step reduces the objective, the descent has converged up to rounding.
    if state.n_iter < max_iter:
        state.converged = True
    return state


def descend_with_proof(
    objective: Objective,
    state: Descent,
    compute_gap: Callable[[Matrix], tuple[float, Matrix | None]],
    *,
    max_iter: int,
    tol: float,
    bounds: optimize.Bounds | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Descent:
    """Minimize a convex objective with `descend` until the gap to a lower bound is small.

    Parameters
    ----------
    objective, state, max_iter, tol, bounds, report
        As in `descend`.
    compute_gap : callable
        Function of a point that returns the relative gap to a proven lower bound, and a better
        point or None. There can be a better point if the point is a factor L of M = LᵀL, which can
        be stationary although M is not optimal (see `escape`). If the gap exceeds 50 times ``tol``,
        the descent continues from the better point, or with a smaller tolerance if there is none.

    Returns
    -------
    Descent
        The updated ``state``.
    """
    n_refinements = 0
    while True:
        descend(
            objective,
            state,
            max_iter=max_iter,
            tol=tol * 0.1**n_refinements,
            bounds=bounds,
            report=report,
        )
        if not state.converged:
            return state
        gap, better_point = compute_gap(state.point)
        if gap <= _ACCEPTED_GAP * tol or (
            better_point is None and n_refinements == _MAX_REFINEMENTS
        ):
            return state
        if better_point is None:
            n_refinements += 1
        else:
            state.point = better_point


def escape(
    objective: Callable[[Matrix], float], L: Matrix, gradient: Matrix, *, min_decrease: float = 0.0
) -> Matrix | None:
    """Find a better map than L, if L is a stationary point but M = LᵀL is not optimal.

    If L has lost rank, the gradient 2LG can vanish although G, the gradient in M, has a negative
    eigenvalue. A convex objective still decreases along the eigenvector of this eigenvalue.

    Parameters
    ----------
    objective : callable
        The objective as a function of L.
    L : ndarray of shape (n_components, n_features) or (n_features,)
        The linear map. A vector is the diagonal of a diagonal map.
    gradient : ndarray of shape (n_features, n_features) or (n_features,)
        The gradient G in M, or its diagonal.
    min_decrease : float, default=0
        Minimum relative decrease of the objective.

    Returns
    -------
    ndarray of the shape of L, or None
        A map with a lower objective, or None if none was found.

    Examples
    --------
    >>> import numpy as np
    >>> def value(L):
    ...     return float(((L.T @ L - np.eye(2)) ** 2).sum())
    >>> L = np.array([[1.0, 0.0], [0.0, 0.0]])
    >>> bool(value(escape(value, L, 2 * (L.T @ L - np.eye(2)))) < value(L))
    True
    """
    start_value = objective(L)
    threshold = start_value - min_decrease * abs(start_value)
    if L.ndim == 1:
        direction = np.zeros(len(L))
        direction[np.argmin(gradient)] = 1.0
        lowest_eigenvalue, max_length, rows = gradient.min(), np.abs(L).max(), L
    else:
        eigenvalues, vectors = partial_eigh(gradient, 0, 0)
        lowest_eigenvalue, direction = eigenvalues[0], vectors[:, 0]
        # Rotate L so that the last row is the shortest. The new row replaces the last row.
        _, singular_values, axes = np.linalg.svd(L, full_matrices=False)
        max_length, rows = singular_values[0], singular_values[:, None] * axes
    if lowest_eigenvalue >= 0:
        return None
    for length in _RELATIVE_ROW_LENGTHS:
        if L.ndim == 1:
            trial = np.where(direction > 0, length * max_length, rows)
        else:
            trial = np.vstack([rows[:-1], length * max_length * direction])
        if objective(trial) < threshold:
            return np.asarray(trial)
    return None
