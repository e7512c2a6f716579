r"""The spectral step that embeddings share: from a matrix to coordinates, and to new points.

An embedding method makes a symmetric n×n matrix :math:`\tilde K` of its data and takes eigenpairs
:math:`(\lambda_t, v_t)`. Then

* solution 1, :math:`e_{it} = \sqrt{\lambda_t} v_{it}`: inner products are the best approximation
  of :math:`\tilde K` of that rank;
* solution 2, :math:`y_{it} = v_{it}`;
* a new point with values :math:`\tilde K(x, x_i)` gets :math:`y_t(x) = \frac{1}{\lambda_t} \sum_i
  v_{it} \tilde K(x, x_i)` and :math:`e_t(x) = \sqrt{\lambda_t} y_t(x)` (Nyström's formula), which
  gives training points their own coordinates.

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
from nearfar.solvers.eigen import fix_signs, least_eigenvalue, some_eigh, whitener

# Up to so many rows all eigenvalues are found, by a dense solver.
_DENSE = 1000
# Up to so many, a dense solver helps out where the sparse one fails.
_DENSE_AT_MOST = 6000
# Of sparse matrices, up to so many rows dense ones are as fast.
_SPARSE_FROM = 300
#: Eigenvalues below this share of the largest are not inverted.
TINY = 1e-10
# Numbers whose squares can be summed.
_LARGEST = 1e150
# For the share of negative eigenvalues: random vectors, and steps of Lanczos's method.
_PROBES, _STEPS = 4, 24


class Eigenpairs(NamedTuple):
    """Eigenvalues and unit eigenvectors (columns), with the sign that makes the largest entry
    positive."""

    values: Matrix
    vectors: Matrix


class Spectrum(NamedTuple):
    """The leading eigenpairs of a matrix, and the share of its negative eigenvalues."""

    values: Matrix
    vectors: Matrix
    negative_share: float


# ---------------------------------------------------------------------- distances


def double_centered(squared: Matrix, *, in_place: bool = False) -> Matrix:
    r""":math:`-\frac12 H D H` with :math:`H = I - \frac1n 11^T`, of squared distances D (n, n).

    The Gram matrix of centred points, if there are points with these distances.

    >>> double_centered(np.array([[0.0, 4.0], [4.0, 0.0]]))
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    B = squared if in_place else squared.copy()
    means = B.mean(axis=0)
    B -= means
    B -= B.mean(axis=1, keepdims=True)
    B *= -0.5
    return B


# ---------------------------------------------------------------------- eigenpairs


def leading_spectrum(K: Matrix, n_largest: int, *, positive: bool = False) -> Spectrum:
    r"""The largest eigenvalues of a dense symmetric matrix, and how much the negative ones weigh.

    ``negative_share`` is :math:`\sum_{\lambda<0} |\lambda| \,/ \sum |\lambda|`; exact up to 1000
    rows, estimated beyond (Lanczos quadrature from four random vectors of a fixed seed, mostly
    within a tenth), as all eigenvalues of a large matrix would cost more than all the rest.
    ``positive`` says that there are no negative ones, so that none are looked for.
    """
    n = len(K)
    if not K.any():
        return Spectrum(np.zeros(n_largest), np.eye(n)[:, :n_largest], 0.0)
    if n <= max(_SPARSE_FROM if positive else _DENSE, 4 * n_largest):
        values, vectors = linalg.eigh(K)
        share = share_of_negative(values)
    else:
        values, vectors = _lanczos(K, n_largest)
        share = 0.0 if positive else _estimated_share(K)
    values, vectors = values[::-1][:n_largest], vectors[:, ::-1][:, :n_largest]
    return Spectrum(values, fix_signs(vectors.T).T, share)


def smallest_eigenvalue(K: Matrix) -> float:
    """Of a dense symmetric matrix."""
    if len(K) <= _DENSE:
        return least_eigenvalue(K)
    try:
        return float(eigsh(K, 1, which="SA", v0=_start(len(K)), return_eigenvectors=False)[0])
    except ArpackError:
        return least_eigenvalue(K)


def share_of_negative(values: Matrix) -> float:
    """The share of all eigenvalues, by absolute value, that the negative ones have."""
    size = np.abs(values)
    # What rounding makes of eigenvalues zero is no evidence.
    negative = float(size[values < -len(values) * np.finfo(np.float64).eps * size.max()].sum())
    return negative / float(size.sum())


def _lanczos(K: Matrix, n_largest: int) -> tuple[Matrix, Matrix]:
    """Ascending, as ``eigh``."""
    try:
        return eigsh(K, n_largest, which="LA", v0=_start(len(K)))
    except ArpackError:
        return some_eigh(K, len(K) - n_largest, len(K) - 1)


def _estimated_share(K: Matrix) -> float:
    r"""Sums of negative eigenvalues by quadrature: :math:`n\, q^T f(K) q` with random signs q."""
    n = len(K)
    V = np.random.RandomState(0).choice([-1.0, 1.0], (n, _PROBES)) / np.sqrt(n)
    before, beta = np.zeros_like(V), np.zeros(_PROBES)
    diagonal, beside = [], []
    for _ in range(_STEPS):
        W = K @ V - beta * before
        alpha = np.einsum("ij,ij->j", V, W)
        W -= alpha * V
        beta = np.linalg.norm(W, axis=0)
        diagonal.append(alpha)
        beside.append(beta)
        before, V = V, W / np.maximum(beta, np.finfo(np.float64).tiny)
    negative = 0.0
    for a, b in zip(np.transpose(diagonal), np.transpose(beside), strict=True):
        nodes, axes = linalg.eigh_tridiagonal(a, b[:-1])
        negative += float(np.maximum(-nodes, 0) @ axes[0] ** 2) * n / _PROBES
    return negative / (float(np.trace(K)) + 2 * negative)


def smallest_eigenpairs(S: sparse.csr_array, n_smallest: int, null: Matrix) -> Eigenpairs:
    """The smallest eigenvalues, ascending, of a sparse positive semi-definite matrix.

    Its size is about 1. The unit vector ``null``, with ``S @ null = 0``, is left out. By shift and
    invert, with a sparse LU factorisation whose fill is small for graphs of low dimension; up to
    300 rows, or where that fails, by a dense solver.
    """
    n = S.shape[0]
    if n > max(_SPARSE_FROM, 4 * n_smallest):
        try:
            vectors = _inverted(S, n_smallest, null)
        except (ArpackError, RuntimeError):  # of splu: exactly singular, or out of memory
            if n > _DENSE_AT_MOST:
                raise ValueError(
                    f"The {n_smallest} smallest eigenvectors of the graph's matrix were not found: "
                    "its graph is nearly disconnected. Raise n_neighbors, or remove outliers of X."
                ) from None
            vectors = _dense_smallest(S, n_smallest, null)
    else:
        vectors = _dense_smallest(S, n_smallest, null)
    # Rayleigh quotients are exact to more digits than inverted eigenvalues.
    values = np.maximum(np.einsum("ij,ij->j", vectors, S @ vectors), 0.0)
    order = np.argsort(values, kind="stable")
    return Eigenpairs(values[order], fix_signs(vectors[:, order].T).T)


def _inverted(S: sparse.csr_array, n_smallest: int, null: Matrix) -> Matrix:
    n = S.shape[0]
    shift = 1e-13 * float(S.diagonal().max())
    # Without pivots off the diagonal the fill stays low; the shift makes that safe.
    factors = splu(
        (S + shift * sparse.eye_array(n)).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        panel_size=8,  # graphs of low dimension fill little: wider panels are mostly empty
        options={"SymmetricMode": True},
    )

    def without_null(x: Matrix) -> Matrix:
        return x - null * (null @ x)

    def inverse(x: Matrix) -> Matrix:
        return without_null(factors.solve(without_null(x.reshape(-1))))

    operator = LinearOperator((n, n), matvec=inverse, dtype=np.float64)
    start = without_null(_start(n))
    _, vectors = eigsh(operator, n_smallest, which="LA", v0=start)
    vectors = vectors - np.outer(null, null @ vectors)
    # Within their span exactly: one step of Rayleigh and Ritz.
    vectors, _ = np.linalg.qr(vectors)
    _, axes = linalg.eigh(vectors.T @ (S @ vectors))
    return np.asarray(vectors @ axes)


def _dense_smallest(S: sparse.csr_array, n_smallest: int, null: Matrix) -> Matrix:
    A = S.toarray()
    # The null vector goes to the far end of the spectrum.
    A += (2 * np.abs(A).sum(axis=1).max() + 1) * np.outer(null, null)
    _, vectors = some_eigh(A, 0, n_smallest - 1)
    return np.asarray(vectors)


def _start(n: int) -> Matrix:
    return np.random.RandomState(0).uniform(-1, 1, n)


def check_spread(X: NDArray[np.floating[Any]]) -> None:
    """Raise if squares of the differences of rows would all but vanish."""
    spread = float(np.ptp(X.astype(np.float64), axis=0).max(initial=0))
    if 0 < spread < 1 / _LARGEST:
        raise ValueError(
            f"Squares of differences in X underflow: the largest is {spread:.3g}; multiply the "
            "data by a constant."
        )


def check_squares(X: NDArray[np.floating[Any]]) -> None:
    """Raise if sums of squares of such numbers would overflow."""
    largest = largest_size(X)
    if not largest < _LARGEST:
        raise ValueError(
            f"Squares of X overflow: the largest value found is {largest:.3g}; divide the data by "
            "a constant."
        )


def largest_size(X: NDArray[np.floating[Any]]) -> float:
    """The largest absolute value, without a copy of them all; 0 of nothing."""
    return max(float(X.max(initial=0)), -float(X.min(initial=0)))


def principal_axes(centered: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues and axes (p, r) of the scatter of centred rows (n, p), largest first.

    From the smaller of the two matrices of products; directions without variance are left out.
    """
    n, p = centered.shape
    check_squares(centered)
    size = largest_size(centered)
    if size == 0:
        return np.zeros(0), np.zeros((p, 0))
    Z = centered / size  # squares must neither overflow nor underflow
    values, axes = linalg.eigh(Z.T @ Z if p <= n else Z @ Z.T)
    values, axes = values[::-1], axes[:, ::-1]
    real = values > max(n, p) * np.finfo(np.float64).eps * values[0]
    values, axes = values[real], axes[:, real]
    if p > n:
        axes = Z.T @ axes / np.sqrt(values)
    return values * size**2, fix_signs(axes.T).T


def smallest_directions(A: Matrix, B: Matrix, n_smallest: int) -> tuple[Matrix, Matrix]:
    r"""The least :math:`\lambda` of :math:`A a = \lambda B a` with :math:`a^T B a = 1`.

    Both (p, p) and positive semi-definite. Returns eigenvalues and the directions as rows, on the
    range of B: fewer than asked for where its rank is less.
    """
    T = whitener(B, len(B) * np.finfo(np.float64).eps * 10)
    kept = min(n_smallest, T.shape[1])
    if kept == 0:
        return np.zeros(0), np.zeros((0, len(B)))
    reduced = T.T @ A @ T
    values, axes = some_eigh((reduced + reduced.T) / 2, 0, kept - 1)
    return np.maximum(values, 0.0), fix_signs((T @ axes).T)


# ---------------------------------------------------------------------- solutions and new points


def first_solution(values: Matrix, vectors: Matrix) -> Matrix:
    r"""Solution 1: :math:`\sqrt{\lambda_t} v_{it}`; zero where the eigenvalue is not positive."""
    return vectors * np.sqrt(np.where(is_positive(values), values, 0.0))


def first_axes(values: Matrix, vectors: Matrix) -> Matrix:
    r"""A with :math:`e(x) = A^T \tilde K(x, \cdot)`: Nyström's formula for solution 1."""
    good = is_positive(values)
    return vectors * np.where(good, 1 / np.sqrt(np.where(good, values, 1.0)), 0.0)


def distance_axes(values: Matrix, vectors: Matrix) -> Matrix:
    r"""A with :math:`e(x) = -\frac12 A^T (d^2(x, \cdot) - \overline{d^2})`, for distances.

    The eigenvectors of a double-centred matrix sum to zero, so that the mean of the distances of x
    plays no part. Here they do so to the last digit, since that mean may be large.
    """
    A = first_axes(values, vectors)
    return np.asarray(A - A.mean(axis=0))


def second_axes(values: Matrix, vectors: Matrix) -> Matrix:
    r"""A with :math:`y(x) = A^T \tilde K(x, \cdot)`: Nyström's formula for solution 2."""
    good = is_positive(values)
    return vectors * np.where(good, 1 / np.where(good, values, 1.0), 0.0)


def is_positive(values: Matrix) -> NDArray[np.bool_]:
    """Which eigenvalues may be inverted."""
    return np.asarray(values > TINY * max(float(np.abs(values).max(initial=0)), 1e-290))


def warn_of_empty(name: str, values: Matrix) -> None:
    """Coordinates with eigenvalues that are not positive are zero, and that is said."""
    empty = int((~is_positive(values)).sum())
    if empty:
        warn(
            f"{name}: only {len(values) - empty} of n_components={len(values)} have a positive "
            "eigenvalue; the other coordinates are zero.",
        )


def unit_rows(V: Matrix) -> Matrix:
    """Rows of unit length; zero stays zero."""
    lengths = np.linalg.norm(V, axis=1, keepdims=True)
    return np.asarray(V / np.where(lengths > 0, lengths, 1.0))
