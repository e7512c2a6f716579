r"""The spectral step of embedding methods: from a matrix to coordinates, also of new points.

An embedding method computes a symmetric n×n matrix :math:`\tilde K` from its data, and eigenpairs
:math:`(\lambda_t, v_t)` of that matrix. The coordinates are one of two solutions:

* solution 1 is :math:`e_{it} = \sqrt{\lambda_t} v_{it}`. Its inner products are the best
  approximation of :math:`\tilde K` of that rank;
* solution 2 is :math:`y_{it} = v_{it}`.

Nyström's formula maps a new point with values :math:`\tilde K(x, x_i)` to :math:`y_t(x) =
\frac{1}{\lambda_t} \sum_i v_{it} \tilde K(x, x_i)` and :math:`e_t(x) = \sqrt{\lambda_t} y_t(x)`.
For a training point it returns the coordinates of that point.

L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 4.4; Y. Bengio et
al., "Out-of-sample extensions for LLE, Isomap, MDS, Eigenmaps, and Spectral Clustering", Advances
in Neural Information Processing Systems 16, 2004.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

from nearfar.arrays import Matrix
from nearfar.notices import warn
from nearfar.solvers.eigen import compute_min_eigenvalue, fix_signs, partial_eigh, whitener

# Maximum number of rows for which a dense solver computes all eigenvalues.
_DENSE = 1000
# Maximum number of rows for which a dense solver is used after the sparse solver has failed.
_MAX_DENSE_FALLBACK = 6000
# Number of rows above which the sparse solver is used. For fewer rows, a dense solver is as fast.
_SPARSE_FROM = 300
#: Fraction of the largest eigenvalue below which an eigenvalue is not inverted.
TINY = 1e-10
# Largest absolute value whose squares can be summed without overflow.
_MAX_ABS = 1e150
# Number of random vectors used to estimate the weight of negative eigenvalues.
_PROBES = 4
# Number of Lanczos steps per random vector.
_STEPS = 24


class Eigenpairs(NamedTuple):
    """Eigenvalues and unit eigenvectors (columns). The largest entry of each vector is positive."""

    values: Matrix
    vectors: Matrix


class Spectrum(NamedTuple):
    """Leading eigenpairs of a matrix, and the relative weight of its negative eigenvalues."""

    values: Matrix
    vectors: Matrix
    negative_share: float


def double_center(squared: Matrix, *, in_place: bool = False) -> Matrix:
    r"""Return :math:`-\frac12 H D H`, :math:`H = I - \frac1n 11^T`, for squared distances D (n, n).

    If points with these distances exist, the result is the Gram matrix of the centered points.

    >>> double_center(np.array([[0.0, 4.0], [4.0, 0.0]]))
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    B = squared if in_place else squared.copy()
    means = B.mean(axis=0)
    B -= means
    B -= B.mean(axis=1, keepdims=True)
    B *= -0.5
    return B


def leading_spectrum(K: Matrix, n_largest: int, *, positive: bool = False) -> Spectrum:
    r"""Return the largest eigenpairs of a dense symmetric matrix.

    Also return the relative weight of its negative eigenvalues.

    ``negative_share`` is :math:`\sum_{\lambda<0} |\lambda| \,/ \sum |\lambda|`. It is exact up to
    1000 rows. For more rows, computing all eigenvalues would dominate the cost, so it is estimated
    by Lanczos quadrature from four random vectors with a fixed seed, mostly to within 10%. With
    ``positive=True``, the matrix is assumed to have no negative eigenvalues.
    """
    n = len(K)
    if not K.any():
        return Spectrum(np.zeros(n_largest), np.eye(n)[:, :n_largest], 0.0)
    if n <= max(_SPARSE_FROM if positive else _DENSE, 4 * n_largest):
        values, vectors = linalg.eigh(K)
        negative_share = compute_negative_share(values)
    else:
        values, vectors = _solve_by_lanczos(K, n_largest)
        negative_share = 0.0 if positive else _estimate_negative_share(K)
    values, vectors = values[::-1][:n_largest], vectors[:, ::-1][:, :n_largest]
    return Spectrum(values, fix_signs(vectors.T).T, negative_share)


def smallest_eigenvalue(K: Matrix) -> float:
    """Return the smallest eigenvalue of a dense symmetric matrix."""
    if len(K) <= _DENSE:
        return compute_min_eigenvalue(K)
    try:
        return float(eigsh(K, 1, which="SA", v0=_draw_start(len(K)), return_eigenvectors=False)[0])
    except ArpackError:
        return compute_min_eigenvalue(K)


def compute_negative_share(values: Matrix) -> float:
    """Return the sum of |λ| over negative eigenvalues, divided by the sum over all eigenvalues."""
    size = np.abs(values)
    # Ignore negative eigenvalues that are zero up to rounding.
    negative = float(size[values < -len(values) * np.finfo(np.float64).eps * size.max()].sum())
    return negative / float(size.sum())


def _solve_by_lanczos(K: Matrix, n_largest: int) -> tuple[Matrix, Matrix]:
    """Return the largest eigenpairs in ascending order, as ``eigh`` does."""
    try:
        return eigsh(K, n_largest, which="LA", v0=_draw_start(len(K)))
    except ArpackError:
        return partial_eigh(K, len(K) - n_largest, len(K) - 1)


def _estimate_negative_share(K: Matrix) -> float:
    r"""Estimate the weight of negative eigenvalues: :math:`n\, q^T f(K) q` with random signs q."""
    n = len(K)
    V = np.random.RandomState(0).choice([-1.0, 1.0], (n, _PROBES)) / np.sqrt(n)
    previous, beta = np.zeros_like(V), np.zeros(_PROBES)
    diagonal, off_diagonal = [], []
    for _ in range(_STEPS):
        W = K @ V - beta * previous
        alpha = np.einsum("ij,ij->j", V, W)
        W -= alpha * V
        beta = np.linalg.norm(W, axis=0)
        diagonal.append(alpha)
        off_diagonal.append(beta)
        previous, V = V, W / np.maximum(beta, np.finfo(np.float64).tiny)
    negative = 0.0
    for a, b in zip(np.transpose(diagonal), np.transpose(off_diagonal), strict=True):
        nodes, axes = linalg.eigh_tridiagonal(a, b[:-1])
        negative += float(np.maximum(-nodes, 0) @ axes[0] ** 2) * n / _PROBES
    return negative / (float(np.trace(K)) + 2 * negative)


def smallest_eigenpairs(S: sparse.csr_array, n_smallest: int, null: Matrix) -> Eigenpairs:
    """Return the smallest eigenpairs of a sparse positive semi-definite matrix in ascending order.

    The entries of ``S`` should have a magnitude of about 1. The unit vector ``null``, with
    ``S @ null = 0``, is excluded. The solver uses shift-invert with a sparse LU factorization,
    whose fill-in is small for graphs of low-dimensional data. Up to 300 rows, or if that fails, it
    uses a dense solver.
    """
    n = S.shape[0]
    if n > max(_SPARSE_FROM, 4 * n_smallest):
        try:
            vectors = _solve_shift_invert(S, n_smallest, null)
        except (ArpackError, RuntimeError):
            # splu raises RuntimeError if the matrix is exactly singular or memory is exhausted.
            if n > _MAX_DENSE_FALLBACK:
                raise ValueError(
                    f"Could not compute the {n_smallest} smallest eigenvectors, because the "
                    "neighborhood graph is nearly disconnected. Increase n_neighbors, or remove "
                    "outliers from X."
                ) from None
            vectors = _solve_dense(S, n_smallest, null)
    else:
        vectors = _solve_dense(S, n_smallest, null)
    # Rayleigh quotients are more accurate than the inverses of the computed eigenvalues.
    values = np.maximum(np.einsum("ij,ij->j", vectors, S @ vectors), 0.0)
    order = np.argsort(values, kind="stable")
    return Eigenpairs(values[order], fix_signs(vectors[:, order].T).T)


def _solve_shift_invert(S: sparse.csr_array, n_smallest: int, null: Matrix) -> Matrix:
    n = S.shape[0]
    shift = 1e-13 * float(S.diagonal().max())
    # Pivots on the diagonal keep the fill-in low, and the shift makes them stable.
    factors = splu(
        (S + shift * sparse.eye_array(n)).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        panel_size=8,  # With little fill-in, wider panels would consist mostly of zeros.
        options={"SymmetricMode": True},
    )

    def remove_null(x: Matrix) -> Matrix:
        return x - null * (null @ x)

    def apply_inverse(x: Matrix) -> Matrix:
        return remove_null(factors.solve(remove_null(x.reshape(-1))))

    operator = LinearOperator((n, n), matvec=apply_inverse, dtype=np.float64)
    start = remove_null(_draw_start(n))
    _, vectors = eigsh(operator, n_smallest, which="LA", v0=start)
    vectors = vectors - np.outer(null, null @ vectors)
    # One Rayleigh-Ritz step gives the exact eigenvectors within their span.
    vectors, _ = np.linalg.qr(vectors)
    _, axes = linalg.eigh(vectors.T @ (S @ vectors))
    return np.asarray(vectors @ axes)


def _solve_dense(S: sparse.csr_array, n_smallest: int, null: Matrix) -> Matrix:
    A = S.toarray()
    # Shift the null vector to the other end of the spectrum.
    A += (2 * np.abs(A).sum(axis=1).max() + 1) * np.outer(null, null)
    _, vectors = partial_eigh(A, 0, n_smallest - 1)
    return np.asarray(vectors)


def _draw_start(n: int) -> Matrix:
    return np.random.RandomState(0).uniform(-1, 1, n)


def check_spread(X: NDArray[np.floating[Any]]) -> None:
    """Raise an error if squared differences between rows of X would underflow."""
    max_range = float(np.ptp(X.astype(np.float64), axis=0).max(initial=0))
    if 0 < max_range < 1 / _MAX_ABS:
        raise ValueError(
            f"Squared differences in X underflow: the largest difference is {max_range:.3g}. "
            "Multiply the data by a constant."
        )


def check_squares(X: NDArray[np.floating[Any]]) -> None:
    """Raise an error if sums of squares of the values of X would overflow."""
    largest = max_abs_value(X)
    if not largest < _MAX_ABS:
        raise ValueError(
            f"Squares of X overflow: the largest absolute value is {largest:.3g}. Divide the data "
            "by a constant."
        )


def max_abs_value(X: NDArray[np.floating[Any]]) -> float:
    """Return the largest absolute value without copying X, or 0 if X is empty."""
    return max(float(X.max(initial=0)), -float(X.min(initial=0)))


def principal_axes(centered: Matrix) -> tuple[Matrix, Matrix]:
    """Return the r largest eigenvalues and the axes (p, r) of the scatter of centered rows (n, p).

    They are computed from the smaller of the scatter and the Gram matrix. Directions without
    variance are dropped.
    """
    n, p = centered.shape
    check_squares(centered)
    size = max_abs_value(centered)
    if size == 0:
        return np.zeros(0), np.zeros((p, 0))
    Z = centered / size  # The squares of scaled values neither overflow nor underflow.
    values, axes = linalg.eigh(Z.T @ Z if p <= n else Z @ Z.T)
    values, axes = values[::-1], axes[:, ::-1]
    real = values > max(n, p) * np.finfo(np.float64).eps * values[0]
    values, axes = values[real], axes[:, real]
    if p > n:
        axes = Z.T @ axes / np.sqrt(values)
    return values * size**2, fix_signs(axes.T).T


def smallest_directions(A: Matrix, B: Matrix, n_smallest: int) -> tuple[Matrix, Matrix]:
    r"""Return the smallest eigenpairs of :math:`A a = \lambda B a` with :math:`a^T B a = 1`.

    A and B have shape (p, p) and are positive semi-definite. Returns the eigenvalues, and the
    directions in the range of B as rows. There are fewer than ``n_smallest`` if the rank of B is
    lower.
    """
    T = whitener(B, len(B) * np.finfo(np.float64).eps * 10)
    n_kept = min(n_smallest, T.shape[1])
    if n_kept == 0:
        return np.zeros(0), np.zeros((0, len(B)))
    reduced = T.T @ A @ T
    values, axes = partial_eigh((reduced + reduced.T) / 2, 0, n_kept - 1)
    return np.maximum(values, 0.0), fix_signs((T @ axes).T)


def first_solution(values: Matrix, vectors: Matrix) -> Matrix:
    r"""Return the coordinates :math:`\sqrt{\lambda_t} v_{it}`, or 0 for nonpositive eigenvalues."""
    return vectors * np.sqrt(np.where(is_positive(values), values, 0.0))


def first_axes(values: Matrix, vectors: Matrix) -> Matrix:
    r"""Return the matrix A of Nyström's formula :math:`e(x) = A^T \tilde K(x, \cdot)`."""
    positive = is_positive(values)
    return vectors * np.where(positive, 1 / np.sqrt(np.where(positive, values, 1.0)), 0.0)


def distance_axes(values: Matrix, vectors: Matrix) -> Matrix:
    r"""Return A such that :math:`e(x) = -\frac12 A^T (d^2(x, \cdot) - \overline{d^2})`.

    The eigenvectors of a double-centered matrix sum to zero, so the mean distance of x does not
    affect the result. The columns of A are centered again because rounding errors in their sums
    would be multiplied by that mean, which may be large.
    """
    A = first_axes(values, vectors)
    return np.asarray(A - A.mean(axis=0))


def second_axes(values: Matrix, vectors: Matrix) -> Matrix:
    r"""Return the matrix A of Nyström's formula :math:`y(x) = A^T \tilde K(x, \cdot)`."""
    positive = is_positive(values)
    return vectors * np.where(positive, 1 / np.where(positive, values, 1.0), 0.0)


def is_positive(values: Matrix) -> NDArray[np.bool_]:
    """Return a mask of the eigenvalues that are large enough to be inverted."""
    return np.asarray(values > TINY * max(float(np.abs(values).max(initial=0)), 1e-290))


def warn_about_zero_coordinates(name: str, values: Matrix) -> None:
    """Warn if some coordinates are zero because their eigenvalues are not positive."""
    n_zero = int((~is_positive(values)).sum())
    if n_zero:
        warn(
            f"{name}: only {len(values) - n_zero} of n_components={len(values)} have a positive "
            "eigenvalue; the other coordinates are zero.",
        )


def unit_rows(V: Matrix) -> Matrix:
    """Return the rows scaled to unit length. Rows of zeros are not changed."""
    lengths = np.linalg.norm(V, axis=1, keepdims=True)
    return np.asarray(V / np.where(lengths > 0, lengths, 1.0))
