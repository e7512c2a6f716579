"""Orthonormal directions that maximize a difference of scatters: the criteria J3 and J4."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix
from nearfar.discriminant.checks import choose_n_components
from nearfar.parameters import AllowedValues, one_of, real
from nearfar.solvers.eigen import (
    compute_trace_quotient,
    descending_eigh,
    difference_weight,
    fix_signs,
    trace_ratio,
    whitener,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import (
    NO_WITHIN_SCATTER,
    Shrinkage,
    get_rank_tolerance,
    regularize_within,
)

Pair = Literal["between_within", "between_total", "total_within"]
Zeta = float | Literal["trace_ratio", "max_eig", "sum_eig"]

#: Allowed values of the parameter ``within_weight``.
ZETA: list[AllowedValues] = [real(), one_of("trace_ratio", "max_eig", "sum_eig")]


class Difference(NamedTuple):
    """Rows U that maximize tr(U (S_1 - w S_2) U^T), the eigenvalues, and the weight w."""

    rows: Matrix
    eigenvalues: Matrix
    within_weight: float


def maximize_difference(
    statistics: ClassStatistics,
    n_components: int | None,
    within_weight: Zeta,
    *,
    pair: Pair = "between_within",
    shrinkage: Shrinkage = "auto",
    name: str,
) -> Difference:
    """Return the leading eigenvectors of S_1 - w S_2 within the span of the rows of X.

    ``name`` is the name of the method in error messages.
    """
    basis, image, within, W = regularize_within(statistics, shrinkage, standardize=False)
    between = image.between_scatter() / statistics.total_weight
    tolerance = get_rank_tolerance(statistics)
    T = whitener(between + within, tolerance)
    if T.shape[1] < len(T):
        # With collinear features, some directions have no variance. Remove these directions.
        # Otherwise, they would be selected because their within-class scatter is zero.
        Q, _ = linalg.qr((between + within) @ T, mode="economic")
        basis, between, within = basis @ Q, Q.T @ between @ Q, Q.T @ within @ Q
    rank = basis.shape[1]
    reason = f"the {rank} directions in which X varies"
    n_directions = choose_n_components(n_components, statistics.n_classes - 1, rank, name, reason)
    scatters = {"between": between, "within": within, "total": between + within}
    S1, S2 = (scatters[scatter] for scatter in pair.split("_"))
    if within_weight == "trace_ratio":
        if W.shape[1] < rank:
            raise ValueError(
                "The within-class scatter is singular, so the trace ratio is unbounded. Use "
                "shrinkage='auto', or shrinkage above 0 if the within-class scatter is not zero."
            )
        # The optimal directions are the same for all three scatter pairs.
        weight = compute_trace_quotient(trace_ratio(between, within, n_directions), S1, S2)
    else:
        weight = difference_weight(within_weight, S1, S2, n_directions, tolerance)
        if np.isinf(weight):
            raise ValueError(NO_WITHIN_SCATTER)
    values, U = descending_eigh(S1 - weight * S2, n_directions)
    scale = np.trace(S1) + abs(weight) * np.trace(S2)
    return Difference(fix_signs((basis @ _resolve_ties(values, U, S1, scale)).T), values, weight)


def _resolve_ties(values: Matrix, U: Matrix, S1: Matrix, scale: float) -> Matrix:
    """Rotate directions with equal eigenvalues, and sort them by descending scatter S_1.

    Directions with equal eigenvalues are determined only up to a rotation. This happens if the
    rows of each class coincide: S_w is then only the multiple of S_t that shrinkage mixed in, and
    all directions have the same trace ratio.
    """
    U = U.copy()
    start = 0
    for stop in range(1, len(values) + 1):
        if stop < len(values) and values[start] - values[stop] <= 1e-10 * scale:
            continue
        if stop - start > 1:
            tied = U[:, start:stop]
            U[:, start:stop] = tied @ descending_eigh(tied.T @ S1 @ tied)[1]
        start = stop
    return U
