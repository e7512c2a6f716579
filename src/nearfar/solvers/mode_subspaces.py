"""Alternating optimization of one subspace per tensor mode, shared by the multilinear methods.

The loop does not use the data directly. A callable returns the symmetric matrix of a mode, given
the subspaces of the other modes, and the loop takes its leading eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.eigen import descending_eigh, exceeds_rounding, fix_signs

#: Function that returns the symmetric matrix (d_k, d_k) of a mode, given orthonormal factors
#: (d_j, q_j) of the other modes. If None is passed instead of factors, the modes are not projected.
ModeMatrix = Callable[[int, Sequence[Matrix] | None], Matrix]
#: Function that returns the number of eigenvectors to keep in a mode, given the mode and its sorted
#: eigenvalues.
ModeRank = Callable[[int, Vector], int]


@dataclass
class ModeSubspaces:
    """Result of :func:`alternate_modes`.

    Parameters
    ----------
    factors : list of ndarray of shape (d_k, q_k)
        Factor of each mode, with orthonormal columns. The largest entry of each column is positive.
    objective : list of float
        Sum of the kept eigenvalues after every mode step. This is the trace of the projected
        matrix, which the steps of all modes maximize.
    change : list of float
        Change of the projectors, summed over the modes, in every sweep.
    seconds : list of float
        Seconds since the start, after every sweep.
    converged : bool
        True if the last change was small enough, or if ``max_iter`` was 0.
    interrupt : KeyboardInterrupt or None
        Interrupt that ended the loop. The factors are then the result of the last step.
    """

    factors: list[Matrix]
    objective: list[float] = field(default_factory=list)
    change: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    converged: bool = True
    interrupt: KeyboardInterrupt | None = None

    @property
    def n_iter(self) -> int:
        """Number of sweeps over all modes."""
        return len(self.change)


def alternate_modes(
    matrix_of: ModeMatrix,
    start: Sequence[Matrix],
    rank_of: ModeRank,
    *,
    max_iter: int,
    tol: float,
    by_magnitude: bool = False,
    bases: Sequence[Matrix] | None = None,
    precision: float = float(np.finfo(np.float64).eps),
    report: Callable[[dict[str, Any]], None] | None = None,
) -> ModeSubspaces:
    r"""Replace the factor of each mode in turn by the leading eigenvectors of the mode's matrix.

    If the matrices :math:`M_k` belong to one objective, that is,
    :math:`f = \mathrm{tr}(U_k^T M_k U_k)` for every k, no step decreases f. The loop stops when
    :math:`\sum_k \|U_k U_k^T - V_k V_k^T\|_F` for the factors U and V of consecutive sweeps is at
    most ``tol``, or after ``max_iter`` sweeps. With ``max_iter=0`` the start is returned.

    Parameters
    ----------
    matrix_of : callable
        Function that returns the matrix of a mode, given all factors. It must not use the factor of
        the mode itself.
    start : sequence of ndarray of shape (d_k, q_k)
        Initial orthonormal factors.
    rank_of : callable
        Function that returns the number of eigenvectors to keep, given the mode and its
        eigenvalues. If this number changes, the loop continues.
    max_iter : int
        Maximum number of sweeps over all modes.
    tol : float
        Change of the projectors below which the loop stops.
    by_magnitude : bool, default=False
        If True, sort eigenvalues by their absolute values.
    bases : sequence of ndarray of shape (d_k, r_k), optional
        Orthonormal basis of the relevant directions of each mode. Directions outside the span of
        the basis are sorted last.
    precision : float, default=2.2e-16
        Relative rounding error of the matrices. A change of a projector that this error can explain
        is ignored, for any ``tol``.
    report : callable, optional
        Called after each sweep with a dict of the objective, the step and the seconds.

    Returns
    -------
    ModeSubspaces
        Factors and the history of the loop.
    """
    result = ModeSubspaces([np.asarray(U) for U in start], converged=max_iter == 0)
    start_time = perf_counter()
    try:
        while result.n_iter < max_iter and not result.converged:
            previous = list(result.factors)
            is_unchanged = True
            for mode in range(len(previous)):
                M = matrix_of(mode, result.factors)
                values, vectors = ordered_eigh(M, by_magnitude, bases[mode] if bases else None)
                n = rank_of(mode, values)
                result.factors[mode] = fix_column_signs(vectors[:, :n])
                change = projector_change(previous[mode], result.factors[mode])
                is_unchanged = is_unchanged and change <= _estimate_rounding(values, n, precision)
                result.objective.append(float(values[:n].sum()))
            pairs = zip(previous, result.factors, strict=True)
            result.change.append(sum(projector_change(U, V) for U, V in pairs))
            result.seconds.append(perf_counter() - start_time)
            result.converged = result.change[-1] <= tol or is_unchanged
            if report is not None:
                traces = {"objective": result.objective, "step": result.change}
                last = {name: values[-1] for name, values in traces.items()}
                report(last | {"seconds": result.seconds[-1]})
    except KeyboardInterrupt as interrupt:
        result.interrupt = interrupt  # The caller stores the factors, then raises the interrupt.
    return result


def _estimate_rounding(values: Vector, n: int, precision: float) -> float:
    """Estimate how much rounding can change the projector onto the first n eigenvectors.

    The estimate is at most 1e-5.
    """
    max_change = 1e-5
    if n == len(values):
        return max_change
    gap = float(np.abs(values[:n]).min() - np.abs(values[n:]).max())
    gap = max(gap, float(values[:n].min() - values[n:].max()))
    size = float(np.abs(values).max())
    # Use a tenth of the theoretical bound, because the errors of many samples mostly cancel.
    return (
        max_change
        if gap <= 0
        else min(max_change, 0.1 * float(np.sqrt(2 * n)) * precision * size / gap)
    )


def ordered_eigh(
    M: Matrix, by_magnitude: bool = False, basis: Matrix | None = None
) -> tuple[Vector, Matrix]:
    """Return eigenvalues and eigenvectors (columns) of a symmetric matrix, largest first.

    With ``by_magnitude``, the largest absolute eigenvalue is first. If an orthonormal basis of
    shape (d, r) is given, eigenvectors in its span come first. A basis of the complement comes
    last, with eigenvalues of zero.
    """
    if basis is not None and basis.shape[1] < len(M):
        values, vectors = ordered_eigh(basis.T @ M @ basis, by_magnitude)
        complement = linalg.qr(basis)[0][:, len(values) :]
        return np.append(values, np.zeros(complement.shape[1])), np.hstack(
            [basis @ vectors, complement]
        )
    values, vectors = descending_eigh(M)
    if by_magnitude:
        order = np.argsort(-np.abs(values), kind="stable")
        values, vectors = values[order], vectors[:, order]
    return values, vectors


def select_varying_axes(
    scatter: Matrix, values: Vector, axes: Matrix, dtype: np.dtype[Any]
) -> Matrix:
    """Return the eigenvectors of a mode scatter along which samples of this dtype vary."""
    # The rounding errors of float32 products increase with the number of entries. They were
    # measured to be below 7e-7 for 64 to 200 entries.
    float32_tolerance = max(1e-6, len(values) * float(np.finfo(np.float32).eps))
    tolerance = 1e-12 if dtype == np.float64 else float32_tolerance
    return axes[:, exceeds_rounding(values, axes, scatter.diagonal(), tolerance)]


def fix_column_signs(U: Matrix) -> Matrix:
    """Flip the signs of columns so that the largest entry of each column is positive."""
    return np.ascontiguousarray(fix_signs(U.T).T)


def projector_change(U: Matrix, V: Matrix) -> float:
    """Return :math:`\\|U U^T - V V^T\\|_F` for matrices U and V with orthonormal columns.

    The result is infinite if U and V have different shapes.
    """
    if U.shape != V.shape:
        return float(np.inf)
    # Compute the norm from the part of V outside the span of U. The difference of the projectors
    # would lose half of the digits.
    return float(np.sqrt(2) * linalg.norm(V - U @ (U.T @ V)))


def count_leading_values(values: Vector, fraction: float) -> int:
    """Return the smallest number of leading values whose sum is at least a fraction of the total.

    Negative values count as zero.
    """
    values = np.maximum(values, 0)
    total = values.sum()
    if not total > 0:
        return 1
    # Because of rounding, the result could exceed the number of values.
    return min(int(np.searchsorted(np.cumsum(values) / total, fraction - 1e-12)) + 1, len(values))


def draw_random_factors(
    shape: Sequence[int], ranks: Sequence[int], random: np.random.RandomState
) -> list[Matrix]:
    """Return orthonormal factors (d_k, q_k) with random directions."""
    return [
        fix_column_signs(linalg.qr(random.normal(size=(d, q)), mode="economic")[0])
        for d, q in zip(shape, ranks, strict=True)
    ]
