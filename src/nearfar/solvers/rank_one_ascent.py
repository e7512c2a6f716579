"""Optimization of a rank-one tensor: one vector at a time, with the other modes fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from nearfar.arrays import Vector
from nearfar.solvers.mode_subspaces import draw_random_factors, fix_column_signs

#: Function of unit vectors and a mode. It finds the best vector for this mode, and returns the
#: objective and the vector.
ModeStep = Callable[[Sequence[Vector], int], tuple[float, Vector]]


class Atom(NamedTuple):
    """Rank-one tensor of norm one, and the history of its optimization.

    ``vectors`` contains one unit vector per mode, and ``objectives`` the objective after every mode
    step. For every sweep, ``steps`` contains the largest turn of a vector and ``times`` the clock
    time at its end.
    """

    vectors: list[Vector]
    objectives: list[float]
    steps: list[float]
    times: list[float]
    converged: bool

    @property
    def n_sweeps(self) -> int:
        """Number of sweeps over the modes."""
        return len(self.steps)

    @property
    def objective(self) -> float:
        """Final objective."""
        return self.objectives[-1]


class AscentInterrupted(KeyboardInterrupt):
    """KeyboardInterrupt after at least one sweep. ``atom`` is the result of the last full sweep."""

    def __init__(self, atom: Atom) -> None:
        super().__init__("interrupted: the best rank-one tensor so far is kept")
        self.atom = atom


def ascend_modes(
    step: ModeStep,
    vectors: Sequence[Vector],
    *,
    max_iter: int,
    tolerances: Sequence[float],
    min_objective: float = -np.inf,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> Atom:
    """Optimize the vector of one mode at a time until the vectors no longer change.

    If every step maximizes the same objective over one vector, no step decreases it.

    Parameters
    ----------
    step : callable
        Function that returns the best objective and the best vector for a mode.
    vectors : sequence of ndarray of shape (d_k,)
        Initial unit vectors. The first vector is ignored.
    max_iter : int
        Maximum number of sweeps over all modes.
    tolerances : sequence of float
        Tolerance per mode. A mode is converged if :math:`1 - |u^T v|` of its vectors before and
        after a sweep is at most its tolerance.
    min_objective : float, optional
        Stop if the objective is at most this value.
    report : callable, optional
        Function called after every sweep with a dict that contains the objective, the step and the
        seconds.

    Returns
    -------
    Atom
        Best tensor. The largest entry of each vector is positive.

    Raises
    ------
    AscentInterrupted
        On Ctrl-C after at least one complete sweep.
    """
    atom = Atom(list(vectors), [], [], [], False)
    start_time = perf_counter()
    try:
        while atom.n_sweeps < max_iter and not atom.converged:
            atom = _run_sweep(step, atom, tolerances, min_objective)
            if report is not None:
                seconds = atom.times[-1] - start_time
                report({"objective": atom.objective, "step": atom.steps[-1], "seconds": seconds})
    except KeyboardInterrupt as interrupt:
        if not atom.n_sweeps:
            raise
        raise AscentInterrupted(_fix_signs(atom)) from interrupt
    return atom if atom.objective <= min_objective else _fix_signs(atom)


def find_best_atom(attempts: Iterable[Callable[[], Atom]]) -> Atom:
    """Run the ascent from several starts and return the result with the largest objective.

    On Ctrl-C, raise :class:`AscentInterrupted` with the best atom so far.
    """
    best: Atom | None = None
    for attempt in attempts:
        try:
            atom = attempt()
        except KeyboardInterrupt as error:
            candidates = [error.atom] if isinstance(error, AscentInterrupted) else []
            candidates += [best] if best is not None else []
            if not candidates:
                raise
            raise AscentInterrupted(
                max(candidates, key=lambda candidate: candidate.objective)
            ) from error
        if best is None or atom.objective > best.objective:
            best = atom
    assert best is not None
    return best


def _run_sweep(
    step: ModeStep, atom: Atom, tolerances: Sequence[float], min_objective: float
) -> Atom:
    """Update the vector of every mode once."""
    vectors, objectives = list(atom.vectors), list(atom.objectives)
    max_turn, is_converged = 0.0, True
    for mode, tolerance in enumerate(tolerances):
        objective, u = step(vectors, mode)
        objectives.append(objective)
        if objective <= min_objective:
            is_converged = True
            break
        turn = 1 - abs(float(u @ vectors[mode]))
        max_turn, is_converged = max(max_turn, turn), is_converged and turn <= tolerance
        vectors[mode] = u
    # With a single mode, a second sweep would not change the vector.
    converged = is_converged or len(vectors) == 1
    return Atom(
        vectors, objectives, [*atom.steps, max_turn], [*atom.times, perf_counter()], converged
    )


def draw_random_vectors(shape: Sequence[int], random: np.random.RandomState) -> list[Vector]:
    """Return one unit vector per mode, with random directions."""
    return [U[:, 0] for U in draw_random_factors(shape, [1] * len(shape), random)]


def _fix_signs(atom: Atom) -> Atom:
    return atom._replace(vectors=[fix_column_signs(u[:, None])[:, 0] for u in atom.vectors])
