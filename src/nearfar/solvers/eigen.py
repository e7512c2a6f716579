"""Symmetric eigenproblems with the safeguards every spectral method needs."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector


def partial_eigh(
    A: Matrix, first: int, last: int, B: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """Eigenvalues number ``first`` to ``last``, ascending, and their vectors (columns).

    LAPACK's driver for a few of them gives up on some clusters of equal eigenvalues, on some
    processors; that for all of them is slower and does not.
    """
    try:
        return linalg.eigh(A, B, subset_by_index=[first, last])
    except linalg.LinAlgError:
        values, vectors = linalg.eigh(A, B, driver="evd" if B is None else "gvd")
        return values[first : last + 1], vectors[:, first : last + 1]


def min_eigenvalue(A: Matrix, B: Matrix | None = None) -> float:
    """The least eigenvalue of a symmetric matrix, or of a pencil."""
    try:
        return float(linalg.eigh(A, B, eigvals_only=True, subset_by_index=[0, 0])[0])
    except linalg.LinAlgError:
        return float(linalg.eigh(A, B, eigvals_only=True, driver="evd" if B is None else "gvd")[0])


def descending_eigh(S: Matrix, n_largest: int | None = None) -> tuple[Matrix, Matrix]:
    """Eigenvalues and eigenvectors (columns) of a symmetric matrix, largest first."""
    size = len(S)
    keep = size if n_largest is None else min(n_largest, size)
    values, vectors = partial_eigh((S + S.T) / 2, size - keep, size - 1)
    return values[::-1], vectors[:, ::-1]


def fix_signs(components: Matrix) -> Matrix:
    """Rows with their largest entry positive, so that equal data give equal components."""
    # Entries within rounding of the largest count as equal; the first of them decides.
    size = np.abs(components)
    decisive = np.argmax(size >= (1 - 1e-6) * size.max(axis=1, keepdims=True), axis=1)
    signs = np.sign(components[np.arange(len(components)), decisive])
    return components * np.where(signs == 0, 1.0, signs)[:, None]


def canonical_rows(values: Matrix, rows: Matrix, tolerance: float = 1e-6) -> Matrix:
    """Rows of equal value, free up to a rotation, made orthogonal with the longest first.

    Signs are fixed too, so that equal data give equal components on any machine.
    """
    rows = rows.copy()
    start = 0
    for stop in range(1, len(values) + 1):
        same = stop < len(values) and abs(values[stop] - values[start]) <= tolerance * abs(
            values[start]
        )
        if not same:
            if stop - start > 1:
                _, lengths, axes = linalg.svd(rows[start:stop], full_matrices=False)
                rows[start:stop] = lengths[:, None] * axes
            start = stop
    return fix_signs(rows)


def whitener(S: Matrix, tolerance: float) -> Matrix:
    """T (p, r) with ``T.T @ S @ T = I`` on the range of a positive semi-definite S.

    S is brought to unit diagonal first, so that the rank does not depend on the units of the
    features; directions with an eigenvalue below ``tolerance`` times the largest are dropped.
    """
    scale = np.sqrt(np.maximum(np.diag(S), 0.0))
    used = scale > 0
    if not used.any():
        return np.zeros((len(S), 0))
    inverse = 1.0 / scale[used]
    values, vectors = descending_eigh(S[np.ix_(used, used)] * inverse[:, None] * inverse)
    good = values > tolerance * values[0]
    T = np.zeros((len(S), int(good.sum())))
    T[used] = inverse[:, None] * (vectors[:, good] / np.sqrt(values[good]))
    return T


def definite_factor(S: Matrix, tolerance: float) -> tuple[Matrix, Vector]:
    """Triangular R (upper) and scales s with ``S = diag(s) @ R.T @ R @ diag(s)``.

    A LinAlgError if S is singular: if at unit diagonal one over its condition number, as LAPACK
    estimates it, is at most ``tolerance``. Whether a factorisation fails is a matter of rounding,
    and differs between processors.
    """
    scale = np.sqrt(np.maximum(np.diag(S), 0.0))
    if scale.all():
        unit = S / scale[:, None] / scale
        R, failed = linalg.lapack.dpotrf(unit)
        inverse_condition, _ = linalg.lapack.dpocon(R, np.abs(unit).sum(axis=0).max())
        if not failed and inverse_condition > tolerance:
            return R, scale
    raise linalg.LinAlgError("The covariances are singular but for rounding. Use a larger ridge.")


def range_whitener(S: Matrix, tolerance: float) -> tuple[Matrix, Matrix]:
    """`whitener` with columns in the range of S, and U = S T, (p, r) both.

    ``U @ T.T`` leaves vectors of the range as they are and ``T @ U.T`` projects onto it, so that a
    map of white coordinates sees nothing of what is off the range.
    """
    T = whitener(S, tolerance)
    U = S @ T
    if T.shape[1] < len(S):
        axes = linalg.qr(U, mode="economic")[0]
        T = axes @ (axes.T @ T)
    return T, U


def trace_ratio(S1: Matrix, S2: Matrix, n_components: int, max_iter: int = 100) -> Matrix:
    r"""Orthonormal U (p, q) that maximises :math:`tr(U^T S_1 U) / tr(U^T S_2 U)`.

    Iterates :math:`\zeta \leftarrow` ratio, U ← leading eigenvectors of :math:`S_1 - \zeta S_2`,
    which never lowers the ratio (Newton's method on a convex function of :math:`\zeta`). LDA and
    DSDC take it for vectors, GTDA for each mode of a tensor.
    """
    ratio = -np.inf
    _, U = descending_eigh(S1, n_components)
    for _ in range(max_iter):
        new = quotient_of_traces(U, S1, S2)
        if new <= ratio + 1e-14 * abs(ratio):
            break
        ratio = new
        _, U = descending_eigh(S1 - ratio * S2, n_components)
    return U


def quotient_of_traces(U: Matrix, S1: Matrix, S2: Matrix) -> float:
    """``trace(U.T @ S1 @ U) / trace(U.T @ S2 @ U)``."""
    return float(np.sum(U * (S1 @ U)) / np.sum(U * (S2 @ U)))


def difference_weight(
    rule: float | str, S1: Matrix, S2: Matrix, n_components: int, tolerance: float
) -> float:
    r"""The weight :math:`\zeta` of the difference :math:`S_1 - \zeta S_2` by a rule.

    Parameters
    ----------
    rule : float or {"trace_ratio", "max_eig", "sum_eig"}
        The number itself; the largest ratio of traces (:func:`trace_ratio`), for which :math:`S_2`
        must be regular; the largest eigenvalue of :math:`S_2^{-1} S_1`, which leaves no eigenvalue
        of the difference above 0; or the sum of its ``n_components`` largest, never below the ratio
        of traces.
    S1, S2 : ndarray of shape (p, p)
        Symmetric, positive semi-definite.
    n_components : int
        How many directions are sought.
    tolerance : float
        Relative eigenvalue below which :math:`S_2` is empty: the eigenvalues are those in its
        range. If there is none, the weight is infinite.
    """
    if not isinstance(rule, str):
        return float(rule)
    if rule == "trace_ratio":
        return quotient_of_traces(trace_ratio(S1, S2, n_components), S1, S2)
    T = whitener(S2, tolerance)
    if not T.size:
        return np.inf
    values, _ = descending_eigh(T.T @ S1 @ T, n_components)
    return float(values[0] if rule == "max_eig" else values.sum())


def pair_scatter(points: Matrix, weights: Matrix) -> Matrix:
    r""":math:`\sum_{i<j} w_{ij} (x_i - x_j)(x_i - x_j)^T` for symmetric weights (n, n)."""
    centered = points - points.mean(axis=0)
    return centered.T @ (weights.sum(axis=1)[:, None] * centered - weights @ centered)
