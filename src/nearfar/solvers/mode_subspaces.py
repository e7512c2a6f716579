"""One subspace for each mode, by turns: the loop that the multilinear methods share.

It knows nothing of data: of each mode it asks for a symmetric matrix, given the subspaces of the
others, and takes the leading eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.eigen import descending_eigh, fix_signs

#: The symmetric matrix of a mode (d_k, d_k), given orthonormal factors (d_j, q_j) of the others;
#: with None in place of factors, that of the modes as they are.
ModeMatrix = Callable[[int, Sequence[Matrix] | None], Matrix]
#: How many eigenvectors to keep in a mode, of eigenvalues in the order in which they are taken.
KeptInMode = Callable[[int, Vector], int]


@dataclass
class ModeSubspaces:
    """What the loop found.

    Parameters
    ----------
    factors : list of ndarray of shape (d_k, q_k)
        Orthonormal columns, for each mode; of each the largest entry is positive.
    objective : list of float
        The sum of the kept eigenvalues after every step of a mode: the trace of the projected
        matrix, which is what all modes maximise together.
    change : list of float
        The sum over modes of the change of projectors, after every sweep.
    seconds : list of float
        Since the start, after every sweep.
    converged : bool
        Whether the last change was small enough; True where no sweep was asked for.
    interrupt : KeyboardInterrupt or None
        What ended the loop before; factors are then those of the last step.
    """

    factors: list[Matrix]
    objective: list[float] = field(default_factory=list)
    change: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    converged: bool = True
    interrupt: KeyboardInterrupt | None = None

    @property
    def n_iter(self) -> int:
        """The number of sweeps over all modes."""
        return len(self.change)


def alternate_modes(
    matrix_of: ModeMatrix,
    start: Sequence[Matrix],
    kept: KeptInMode,
    *,
    max_iter: int,
    tol: float,
    by_magnitude: bool = False,
    bases: Sequence[Matrix] | None = None,
    precision: float = float(np.finfo(np.float64).eps),
    report: Callable[[dict[str, Any]], None] | None = None,
) -> ModeSubspaces:
    r"""Take the leading eigenvectors of each mode's matrix in turn until projectors rest.

    With matrices :math:`M_k` of one objective, :math:`f = \mathrm{tr}(U_k^T M_k U_k)` for every k,
    no step lowers it. Ends when :math:`\sum_k \|U_k U_k^T - V_k V_k^T\|_F` between sweeps is at
    most ``tol``, or after ``max_iter`` sweeps; ``max_iter=0`` leaves the start.

    Parameters
    ----------
    matrix_of : callable
        The matrix of a mode, given the factors of the others (its own is not to be read).
    start : sequence of ndarray of shape (d_k, q_k)
        Orthonormal factors to begin with.
    kept : callable
        How many eigenvectors to keep, from the mode and its eigenvalues. A number that changes
        means that projectors have not come to rest.
    max_iter : int
        Sweeps over all modes.
    tol : float
        Largest change of projectors at which the loop ends.
    by_magnitude : bool, default=False
        Order eigenvalues by their absolute values.
    bases : sequence of ndarray of shape (d_k, r_k), optional
        Orthonormal bases of the directions that count; those off them come last.
    precision : float, default=2.2e-16
        Relative rounding of the matrices. A projector that moves by no more than they determine it
        is at rest, whatever ``tol``.
    report : callable, optional
        Called after each sweep with what is known of it.
    """
    found = ModeSubspaces([np.asarray(U) for U in start], converged=max_iter == 0)
    begun = perf_counter()
    try:
        while found.n_iter < max_iter and not found.converged:
            before = list(found.factors)
            still = True
            for mode in range(len(before)):
                M = matrix_of(mode, found.factors)
                values, vectors = ordered_eigh(M, by_magnitude, bases[mode] if bases else None)
                n = kept(mode, values)
                found.factors[mode] = signed_columns(vectors[:, :n])
                moved = projector_change(before[mode], found.factors[mode])
                still = still and moved <= _rounding(values, n, precision)
                found.objective.append(float(values[:n].sum()))
            pairs = zip(before, found.factors, strict=True)
            found.change.append(sum(projector_change(U, V) for U, V in pairs))
            found.seconds.append(perf_counter() - begun)
            found.converged = found.change[-1] <= tol or still
            if report is not None:
                known = {"objective": found.objective, "step": found.change}
                last = {name: values[-1] for name, values in known.items()}
                report(last | {"seconds": found.seconds[-1]})
    except KeyboardInterrupt as interrupt:
        found.interrupt = interrupt  # for the caller to raise, with the best so far in its place
    return found


def _rounding(values: Vector, n: int, precision: float) -> float:
    """How far rounding may turn the subspace of the first eigenvalues; not far in any case."""
    most = 1e-5
    if n == len(values):
        return most
    gap = float(np.abs(values[:n]).min() - np.abs(values[n:]).max())
    gap = max(gap, float(values[:n].min() - values[n:].max()))
    size = float(np.abs(values).max())
    # A tenth of the bound: errors of many samples cancel for the most part.
    return most if gap <= 0 else min(most, 0.1 * float(np.sqrt(2 * n)) * precision * size / gap)


def ordered_eigh(
    M: Matrix, by_magnitude: bool = False, basis: Matrix | None = None
) -> tuple[Vector, Matrix]:
    """Eigenvalues and vectors (columns) of a symmetric matrix, largest (in magnitude) first.

    With an orthonormal basis (d, r) they are those within its span; then come directions off it,
    with zeros.
    """
    if basis is not None and basis.shape[1] < len(M):
        values, vectors = ordered_eigh(basis.T @ M @ basis, by_magnitude)
        rest = linalg.qr(basis)[0][:, len(values) :]
        return np.append(values, np.zeros(rest.shape[1])), np.hstack([basis @ vectors, rest])
    values, vectors = descending_eigh(M)
    if by_magnitude:
        order = np.argsort(-np.abs(values), kind="stable")
        values, vectors = values[order], vectors[:, order]
    return values, vectors


def signed_columns(U: Matrix) -> Matrix:
    """Columns with their largest entry positive."""
    return np.ascontiguousarray(fix_signs(U.T).T)


def projector_change(U: Matrix, V: Matrix) -> float:
    """:math:`\\|U U^T - V V^T\\|_F` of orthonormal columns; infinite if there are more of one."""
    if U.shape != V.shape:
        return float(np.inf)
    # By what of V is off U: the difference of projectors itself would lose half of the digits.
    return float(np.sqrt(2) * linalg.norm(V - U @ (U.T @ V)))


def n_for_share(values: Vector, share: float) -> int:
    """The least number of leading values, of at least 0, whose sum is this share of all."""
    values = np.maximum(values, 0)
    total = values.sum()
    if not total > 0:
        return 1
    # Rounding must not ask for one more than there is.
    return min(int(np.searchsorted(np.cumsum(values) / total, share - 1e-12)) + 1, len(values))


def random_factors(
    shape: Sequence[int], ranks: Sequence[int], random: np.random.RandomState
) -> list[Matrix]:
    """Orthonormal factors (d_k, q_k) in random directions."""
    return [
        signed_columns(linalg.qr(random.normal(size=(d, q)), mode="economic")[0])
        for d, q in zip(shape, ranks, strict=True)
    ]
