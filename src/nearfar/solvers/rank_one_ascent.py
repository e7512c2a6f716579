"""One rank-one tensor by turns: each vector the best one, given those of the other modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nearfar.arrays import Vector
from nearfar.solvers.mode_subspaces import random_factors, signed_columns

#: Of unit vectors and a mode: the best value over the vector of this mode, and that vector.
ModeStep = Callable[[Sequence[Vector], int], tuple[float, Vector]]


class Atom(NamedTuple):
    """A rank-one tensor of norm one: its vectors, and the objective after every mode step."""

    vectors: list[Vector]
    objectives: list[float]
    n_sweeps: int
    converged: bool

    @property
    def objective(self) -> float:
        """Where it came to."""
        return self.objectives[-1]


def ascend_modes(
    step: ModeStep,
    vectors: Sequence[Vector],
    *,
    max_iter: int,
    tolerances: Sequence[float],
    least: float = -np.inf,
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

    Returns
    -------
    Atom
        Of each vector the largest entry is positive.
    """
    vectors, objectives = list(vectors), list[float]()
    for sweep in range(1, max_iter + 1):
        rests = True
        for mode, tolerance in enumerate(tolerances):
            objective, u = step(vectors, mode)
            objectives.append(objective)
            if objective <= least:
                return Atom(vectors, objectives, sweep, True)
            rests = rests and 1 - abs(float(u @ vectors[mode])) <= tolerance
            vectors[mode] = u
        # With one mode there is nothing that a second sweep could change.
        if rests or len(vectors) == 1:
            return Atom(_signed(vectors), objectives, sweep, True)
    return Atom(_signed(vectors), objectives, max_iter, False)


def random_vectors(shape: Sequence[int], random: np.random.RandomState) -> list[Vector]:
    """Unit vectors in random directions, one for each mode."""
    return [U[:, 0] for U in random_factors(shape, [1] * len(shape), random)]


def _signed(vectors: Sequence[Vector]) -> list[Vector]:
    return [signed_columns(u[:, None])[:, 0] for u in vectors]
