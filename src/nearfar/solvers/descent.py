"""Descent of a smooth objective of a matrix by L-BFGS, with a history and the best so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from scipy import optimize

from nearfar.arrays import Matrix

#: Of a matrix (or a vector): the value to be lowered, and its gradient.
Objective = Callable[[Matrix], tuple[float, Matrix]]
# Line searches of one step at most, and past steps that L-BFGS keeps.
_LINE_SEARCHES = 30
_MEMORY = 20


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
        Of a matrix of the shape of ``found.point``: value and gradient. An infinite value is a step
        too far.
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
    value, _ = objective(found.point)
    # In units of the first value: the solver has absolute tolerances of its own.
    unit = abs(value) if np.isfinite(value) and value != 0 else 1.0
    found.objective = value
    small = 0

    def scaled(flat: Matrix) -> tuple[float, Matrix]:
        value, gradient = objective(flat.reshape(shape))
        if not np.isfinite(value):
            # The line search interpolates between values: a step too far is one that is high.
            return (found.objective + abs(found.objective)) / unit + 1.0, np.zeros(flat.shape)
        return value / unit, gradient.ravel() / unit

    def note(intermediate_result: optimize.OptimizeResult) -> None:
        nonlocal small
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

    found.converged = False
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
    # Where no step leads down any more, it has arrived as far as rounding lets it.
    if found.n_iter < max_iter:
        found.converged = True
    return found
