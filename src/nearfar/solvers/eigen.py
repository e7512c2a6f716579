"""Symmetric eigenproblems with safeguards that all spectral methods share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.arrays import Matrix, Vector


def partial_eigh(
    A: Matrix, first: int, last: int, B: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """Return the eigenvalues ``first`` to ``last`` in ascending order, and their eigenvectors.

    The eigenvectors are columns. On some processors, LAPACK's driver for a subset of the
    eigenvalues fails if several eigenvalues are equal. All eigenvalues are then computed with a
    slower driver that does not fail.
    """
    try:
        return linalg.eigh(A, B, subset_by_index=[first, last])
    except linalg.LinAlgError:
        values, vectors = linalg.eigh(A, B, driver="evd" if B is None else "gvd")
        return values[first : last + 1], vectors[:, first : last + 1]


def compute_min_eigenvalue(A: Matrix, B: Matrix | None = None) -> float:
    """Return the smallest eigenvalue of a symmetric matrix A, or of the pencil (A, B)."""
    try:
        return float(linalg.eigh(A, B, eigvals_only=True, subset_by_index=[0, 0])[0])
    except linalg.LinAlgError:
        return float(linalg.eigh(A, B, eigvals_only=True, driver="evd" if B is None else "gvd")[0])


def descending_eigh(S: Matrix, n_largest: int | None = None) -> tuple[Matrix, Matrix]:
    """Return eigenvalues and eigenvectors (columns) of a symmetric matrix, largest first."""
    size = len(S)
    n_pairs = size if n_largest is None else min(n_largest, size)
    values, vectors = partial_eigh((S + S.T) / 2, size - n_pairs, size - 1)
    return values[::-1], vectors[:, ::-1]


def fix_signs(components: Matrix) -> Matrix:
    """Flip the signs of rows so that the largest entry of each row is positive.

    Equal data then give equal components.
    """
    # If several entries equal the largest up to rounding, the first of them is used.
    size = np.abs(components)
    decisive = np.argmax(size >= (1 - 1e-6) * size.max(axis=1, keepdims=True), axis=1)
    signs = np.sign(components[np.arange(len(components)), decisive])
    return components * np.where(signs == 0, 1.0, signs)[:, None]


def canonical_rows(values: Matrix, rows: Matrix, tolerance: float = 1e-6) -> Matrix:
    """Return rows with unique signs, and a unique rotation of rows with equal values.

    Rows of equal value are determined only up to a rotation. They are made orthogonal, with the
    longest first. Equal data then give equal components on any machine.
    """
    rows = rows.copy()
    start = 0
    for stop in range(1, len(values) + 1):
        is_equal = stop < len(values) and abs(values[stop] - values[start]) <= tolerance * abs(
            values[start]
        )
        if not is_equal:
            if stop - start > 1:
                _, lengths, axes = linalg.svd(rows[start:stop], full_matrices=False)
                rows[start:stop] = lengths[:, None] * axes
            start = stop
    return fix_signs(rows)


def exceeds_rounding(
    values: Vector,
    vectors: Matrix,
    diagonal: Vector,
    tolerance: float,
    rounding: float = float(np.finfo(np.float64).eps),
) -> NDArray[np.bool_]:
    """Return a mask of the eigenvalues of a scatter, largest first, that exceed rounding errors.

    The scatter of a feature has errors relative to the feature's own scatter, which is an entry of
    the diagonal: in the direction v, ``tolerance`` times the mean of the diagonal with weights v².
    A feature in a small unit is therefore not dropped. The decomposition has errors relative to
    the largest eigenvalue: ``rounding`` per feature.
    """
    noise = tolerance * (diagonal @ vectors**2)
    return np.asarray(values > np.maximum(noise, len(diagonal) * rounding * values[0]))


def whitener(S: Matrix, tolerance: float) -> Matrix:
    """Return a matrix T with ``T.T @ S @ T = I`` for a positive semi-definite S of rank r.

    T has shape (p, r). S is scaled to unit diagonal first, so that its rank does not depend on the
    units of the features. Directions with an eigenvalue below ``tolerance`` times the largest are
    dropped.
    """
    scale = np.sqrt(np.maximum(np.diag(S), 0.0))
    is_used = scale > 0
    if not is_used.any():
        return np.zeros((len(S), 0))
    inverse = 1.0 / scale[is_used]
    values, vectors = descending_eigh(S[np.ix_(is_used, is_used)] * inverse[:, None] * inverse)
    is_large = values > tolerance * values[0]
    T = np.zeros((len(S), int(is_large.sum())))
    T[is_used] = inverse[:, None] * (vectors[:, is_large] / np.sqrt(values[is_large]))
    return T


def factor_definite(S: Matrix, tolerance: float) -> tuple[Matrix, Vector]:
    """Return an upper triangular R and scales s with ``S = diag(s) @ R.T @ R @ diag(s)``.

    Raises LinAlgError if S is singular. S is scaled to unit diagonal, and is singular if LAPACK's
    estimate of the reciprocal condition number is at most ``tolerance``. A failed factorization
    alone would not be a reliable test, because it depends on rounding and differs between
    processors.
    """
    scale = np.sqrt(np.maximum(np.diag(S), 0.0))
    if scale.all():
        unit = S / scale[:, None] / scale
        R, failed = linalg.lapack.dpotrf(unit)
        inverse_condition, _ = linalg.lapack.dpocon(R, np.abs(unit).sum(axis=0).max())
        if not failed and inverse_condition > tolerance:
            return R, scale
    raise linalg.LinAlgError("The covariances are numerically singular. Use a larger ridge.")


def range_whitener(S: Matrix, tolerance: float) -> tuple[Matrix, Matrix]:
    """Return a whitening matrix T with columns in the range of S, and U = S T, both (p, r).

    T is as in `whitener`. ``U @ T.T`` does not change vectors in the range of S, and ``T @ U.T``
    projects onto the range. A map of white coordinates therefore ignores components outside the
    range.
    """
    T = whitener(S, tolerance)
    U = S @ T
    if T.shape[1] < len(S):
        axes = linalg.qr(U, mode="economic")[0]
        T = axes @ (axes.T @ T)
    return T, U


def trace_ratio(S1: Matrix, S2: Matrix, n_components: int, max_iter: int = 100) -> Matrix:
    r"""Return the U with orthonormal columns that maximizes :math:`tr(U^T S_1 U) / tr(U^T S_2 U)`.

    The iteration sets :math:`\zeta` to the ratio and U to the leading eigenvectors of
    :math:`S_1 - \zeta S_2`. It is Newton's method on a convex function of :math:`\zeta` and never
    decreases the ratio. LDA and DSDC use it for vectors, GTDA for each mode of a tensor.
    """
    ratio = -np.inf
    _, U = descending_eigh(S1, n_components)
    for _ in range(max_iter):
        new_ratio = compute_trace_quotient(U, S1, S2)
        if new_ratio <= ratio + 1e-14 * abs(ratio):
            break
        ratio = new_ratio
        _, U = descending_eigh(S1 - ratio * S2, n_components)
    return U


def compute_trace_quotient(U: Matrix, S1: Matrix, S2: Matrix) -> float:
    """Return ``trace(U.T @ S1 @ U) / trace(U.T @ S2 @ U)``."""
    return float(np.sum(U * (S1 @ U)) / np.sum(U * (S2 @ U)))


def difference_weight(
    rule: float | str, S1: Matrix, S2: Matrix, n_components: int, tolerance: float
) -> float:
    r"""Return the weight :math:`\zeta` of the difference :math:`S_1 - \zeta S_2`.

    Parameters
    ----------
    rule : float or {"trace_ratio", "max_eig", "sum_eig"}
        The weight, or a rule for the weight. See Notes.
    S1, S2 : ndarray of shape (p, p)
        Symmetric positive semi-definite matrices.
    n_components : int
        Number of directions.
    tolerance : float
        Eigenvalues of :math:`S_2` are treated as zero below this fraction of the largest. The rules
        use only the range of :math:`S_2`. If the range is empty, the weight is infinite.

    Notes
    -----
    * "trace_ratio" is the largest ratio of traces (:func:`trace_ratio`). :math:`S_2` must be
      regular.
    * "max_eig" is the largest eigenvalue of :math:`S_2^{-1} S_1`. No eigenvalue of the difference
      is then above 0.
    * "sum_eig" is the sum of the ``n_components`` largest eigenvalues of :math:`S_2^{-1} S_1`,
      which is never below the ratio of traces.
    """
    if not isinstance(rule, str):
        return float(rule)
    if rule == "trace_ratio":
        return compute_trace_quotient(trace_ratio(S1, S2, n_components), S1, S2)
    T = whitener(S2, tolerance)
    if not T.size:
        return np.inf
    values, _ = descending_eigh(T.T @ S1 @ T, n_components)
    return float(values[0] if rule == "max_eig" else values.sum())


def compute_pair_scatter(points: Matrix, weights: Matrix) -> Matrix:
    r"""Return :math:`\sum_{i<j} w_{ij} (x_i - x_j)(x_i - x_j)^T` for symmetric weights (n, n)."""
    centered = points - points.mean(axis=0)
    return centered.T @ (weights.sum(axis=1)[:, None] * centered - weights @ centered)
