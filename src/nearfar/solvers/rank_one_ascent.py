"""One rank-one tensor by turns: each vector the best one, given those of the other modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from nearfar.arrays import Vector
from nearfar.solvers.mode_subspaces import random_factors, signed_columns

#: Of unit vectors and a mode: the best value over the vector of this mode, and that vector.
ModeStep = Callable[[Sequence[Vector], int], tuple[float, Vector]]


class Atom(NamedTuple):
    """A rank-one tensor of norm one: its vectors, and the objective after every mode step.

    After every sweep, ``steps`` has the largest turn of a vector, and ``times`` the clock.
    """

    vectors: list[Vector]
    objectives: list[float]
    steps: list[float]
    times: list[float]
    converged: bool

    @property
    def n_sweeps(self) -> int:
        """Sweeps over the modes."""
        return len(self.steps)

    @property
    def objective(self) -> float:
        """Where it came to."""
        return self.objectives[-1]


class AscentInterrupted(KeyboardInterrupt):
    """Ctrl-C after a sweep at least; ``atom`` is that of the last whole one."""

    def __init__(self, atom: Atom) -> None:
        super().__init__("interrupted; the best rank-one tensor so far was kept")
        self.atom = atom


def ascend_modes(
    step: ModeStep,
    vectors: Sequence[Vector],
    *,
    max_iter: int,
    tolerances: Sequence[float],
    least: float = -np.inf,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> Atom:
    """Replace each vector in turn by the best one, until they rest.

    With steps that maximise one objective over one block none lowers it.

    Parameters
    ----------
    step : callable
        The best vector of a mode.
    vectors : sequence of ndarray of shape (d_k,)
        Unit vectors to begin with. The first one is not used.
    max_iter : int
        Sweeps over all modes.
    tolerances : sequence of float
        For each mode, the :math:`1 - |u^T v|` of its vector and the one before at which it rests.
    least : float, optional
        An objective at which there is nothing to be found: it ends there.
    report : callable, optional
        Called after every sweep with what is known of it.

    Returns
    -------
    Atom
        Of each vector the largest entry is positive.

    Raises
    ------
    AscentInterrupted
        At Ctrl-C, with what was found in whole sweeps, if there was one.
    """
    atom = Atom(list(vectors), [], [], [], False)
    begun = perf_counter()
    try:
        while atom.n_sweeps < max_iter and not atom.converged:
            atom = _sweep(step, atom, tolerances, least)
            if report is not None:
                seconds = atom.times[-1] - begun
                report({"objective": atom.objective, "step": atom.steps[-1], "seconds": seconds})
    except KeyboardInterrupt as interrupt:
        if not atom.n_sweeps:
            raise
        raise AscentInterrupted(_signed(atom)) from interrupt
    return atom if atom.objective <= least else _signed(atom)


def best_atom(attempts: Iterable[Callable[[], Atom]]) -> Atom:
    """The best atom of several attempts; at Ctrl-C the best that there is so far."""
    best: Atom | None = None
    for attempt in attempts:
        try:
            atom = attempt()
        except KeyboardInterrupt as error:
            found = [error.atom] if isinstance(error, AscentInterrupted) else []
            found += [best] if best is not None else []
            if not found:
                raise
            raise AscentInterrupted(max(found, key=lambda one: one.objective)) from error
        if best is None or atom.objective > best.objective:
            best = atom
    assert best is not None
    return best


def _sweep(step: ModeStep, atom: Atom, tolerances: Sequence[float], least: float) -> Atom:
    """Every vector once."""
    vectors, objectives = list(atom.vectors), list(atom.objectives)
    largest, rests = 0.0, True
    for mode, tolerance in enumerate(tolerances):
        objective, u = step(vectors, mode)
        objectives.append(objective)
        if objective <= least:
            rests = True
            break
        turn = 1 - abs(float(u @ vectors[mode]))
        largest, rests = max(largest, turn), rests and turn <= tolerance
        vectors[mode] = u
    # With one mode there is nothing that a second sweep could change.
    done = rests or len(vectors) == 1
    return Atom(vectors, objectives, [*atom.steps, largest], [*atom.times, perf_counter()], done)


def random_vectors(shape: Sequence[int], random: np.random.RandomState) -> list[Vector]:
    """Unit vectors in random directions, one for each mode."""
    return [U[:, 0] for U in random_factors(shape, [1] * len(shape), random)]


def _signed(atom: Atom) -> Atom:
    return atom._replace(vectors=[signed_columns(u[:, None])[:, 0] for u in atom.vectors])
