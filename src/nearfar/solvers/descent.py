"""Descent of a smooth objective of a matrix by L-BFGS, with a history and the best so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from scipy import optimize

from nearfar.arrays import Matrix
from nearfar.solvers.eigen import partial_eigh

#: Of a matrix (or a vector): the value to be lowered, and its gradient.
Objective = Callable[[Matrix], tuple[float, Matrix]]
# Line searches of one step at most, and past steps that L-BFGS keeps.
_LINE_SEARCHES = 30
_MEMORY = 20
# A proven gap of so many times the tolerance is content; else the tolerance is lowered, and so
# many times at most.
_CONTENT = 50
_FINER = 3
# Lengths of a new row, over that of the longest.
_LENGTHS = (0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass
class Descent:
    """Where a descent has come to; made by the caller, so that Ctrl-C leaves the best so far.

    ``converged`` says whether it stopped by itself. The history has the objective, the step (the
    relative change of the point) and the seconds since the start of each iteration.
    """

    point: Matrix
    objective: float = np.inf
    converged: bool = False
    history: dict[str, list[float]] = field(
        default_factory=lambda: {"objective": [], "step": [], "seconds": []}
    )

    @property
    def n_iter(self) -> int:
        """Iterations done."""
        return len(self.history["objective"])


def descend(
    objective: Objective,
    found: Descent,
    *,
    max_iter: int,
    tol: float,
    bounds: optimize.Bounds | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Descent:
    """Lower an objective from ``found.point`` on, by L-BFGS.

    It stops when two iterations one after the other lower the objective by less than ``tol`` of
    its absolute value each, or when no step lowers it any more; ``found.converged`` is then true.
    ``max_iter`` counts the iterations that ``found`` has behind it, so that a descent in stages
    has one limit.

    Parameters
    ----------
    objective : callable
        Of a matrix of the shape of ``found.point``: value and gradient. A value that is not finite
        is a step too far; it may not be so at the start.
    found : Descent
        The start; brought up to date at each iteration.
    max_iter : int
        Iterations at most.
    tol : float
        Relative decrease at which it stops.
    bounds : scipy.optimize.Bounds, optional
        For the entries, row by row.
    report : callable, optional
        Called at each iteration with what the history notes of it.

    Returns
    -------
    Descent
        ``found``.

    Examples
    --------
    >>> import numpy as np
    >>> found = Descent(np.ones((2, 2)))
    >>> descend(lambda M: (float((M**2).sum()), 2 * M), found, max_iter=50, tol=1e-9).converged
    True
    >>> bool(abs(found.point).max() < 1e-6)
    True
    """
    shape, began = found.point.shape, perf_counter()
    before = found.history["seconds"][-1] if found.n_iter else 0.0
    value, gradient = objective(found.point)
    if not np.isfinite(value):
        raise ValueError(f"The objective is {value} at the start: there is no step from there.")
    # In units of the first value: the solver has absolute tolerances of its own.
    unit = abs(value) if value != 0 else 1.0
    found.objective, found.converged = value, False
    small = 0
    # The present point and the last one looked at, each with its value and gradient.
    here = last = (found.point.ravel(), value / unit, gradient.ravel() / unit)

    def scaled(flat: Matrix) -> tuple[float, Matrix]:
        nonlocal last
        value, gradient = objective(flat.reshape(shape))
        if not np.isfinite(value):
            # As far above as the slope promised below: the line search then takes about the half.
            start, height, slope = here
            return height + abs(float(slope @ (flat - start))), -slope
        last = flat.copy(), value / unit, gradient.ravel() / unit
        return last[1], last[2]

    def note(intermediate_result: optimize.OptimizeResult) -> None:
        nonlocal small, here
        here = last
        point = np.array(intermediate_result.x).reshape(shape)
        value = float(intermediate_result.fun) * unit
        change = np.linalg.norm(point - found.point) / max(
            np.linalg.norm(point), np.finfo(float).tiny
        )
        less = found.objective - value
        found.point, found.objective = point, value
        notes = {
            "objective": value,
            "step": float(change),
            "seconds": before + perf_counter() - began,
        }
        for name, number in notes.items():
            found.history[name].append(number)
        if report is not None:
            report(notes)
        small = small + 1 if less <= tol * abs(value) else 0
        if small > 1:
            found.converged = True
            raise StopIteration
        if found.n_iter >= max_iter:
            raise StopIteration

    if found.n_iter >= max_iter:
        return found
    optimize.minimize(
        scaled,
        found.point.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=note,
        options={
            "maxiter": max_iter,
            "maxfun": 100 * max_iter,
            "maxls": _LINE_SEARCHES,
            "maxcor": _MEMORY,
            "ftol": 0.0,
            "gtol": 0.0,
        },
    )
    if not found.n_iter:  # the start is as low as it gets: one look was needed to know that
        note(optimize.OptimizeResult(x=here[0], fun=here[1]))
    # Where no step leads down any more, it has arrived as far as rounding lets it.
    if found.n_iter < max_iter:
        found.converged = True
    return found


def descend_with_proof(
    objective: Objective,
    found: Descent,
    prove: Callable[[Matrix], tuple[float, Matrix | None]],
    *,
    max_iter: int,
    tol: float,
    bounds: optimize.Bounds | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Descent:
    """As `descend`, for convex problems that can say how far from the optimum a point is.

    Parameters
    ----------
    objective, found, max_iter, tol, bounds, report
        As in `descend`.
    prove : callable
        Of a point: its relative gap to a proven bound, and a better point if it is a trap of the
        factor (see `escape`), else None. Where the gap is more than 50 times ``tol`` the descent
        goes on from the better point, or with a finer tolerance.

    Returns
    -------
    Descent
        ``found``.
    """
    finer = 0
    while True:
        descend(
            objective,
            found,
            max_iter=max_iter,
            tol=tol * 0.1**finer,
            bounds=bounds,
            report=report,
        )
        if not found.converged:
            return found
        gap, better = prove(found.point)
        if gap <= _CONTENT * tol or (better is None and finer == _FINER):
            return found
        if better is None:
            finer += 1
        else:
            found.point = better


def escape(
    value: Callable[[Matrix], float], L: Matrix, slope: Matrix, *, least: float = 0.0
) -> Matrix | None:
    """Leave a stationary point of L that is no optimum of M = LᵀL; None if there is no way.

    Where L has lost rank its gradient 2LG vanishes although G, the gradient in M, may have a
    negative eigenvalue; along that eigenvector a convex objective still descends.

    Parameters
    ----------
    value : callable
        The objective.
    L : ndarray of shape (n_components, n_features) or (n_features,)
        The map; a vector is the diagonal of one.
    slope : ndarray of shape (n_features, n_features) or (n_features,)
        The gradient G in M, or its diagonal.
    least : float, default=0
        By what share of it the objective must become less.

    Examples
    --------
    >>> import numpy as np
    >>> def value(L):
    ...     return float(((L.T @ L - np.eye(2)) ** 2).sum())
    >>> L = np.array([[1.0, 0.0], [0.0, 0.0]])
    >>> bool(value(escape(value, L, 2 * (L.T @ L - np.eye(2)))) < value(L))
    True
    """
    here = value(L)
    enough = here - least * abs(here)
    if L.ndim == 1:
        direction = np.zeros(len(L))
        direction[np.argmin(slope)] = 1.0
        lowest, longest, rows = slope.min(), np.abs(L).max(), L
    else:
        values, vectors = partial_eigh(slope, 0, 0)
        lowest, direction = values[0], vectors[:, 0]
        # Rotated so that the last row is the weakest, which the new one replaces.
        _, singular, axes = np.linalg.svd(L, full_matrices=False)
        longest, rows = singular[0], singular[:, None] * axes
    if lowest >= 0:
        return None
    for length in _LENGTHS:
        if L.ndim == 1:
            trial = np.where(direction > 0, length * longest, rows)
        else:
            trial = np.vstack([rows[:-1], length * longest * direction])
        if value(trial) < enough:
            return np.asarray(trial)
    return None
