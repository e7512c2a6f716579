"""Whitening and other well-conditioned coordinates, for methods based on class statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import linalg

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import split_rows
from nearfar.solvers.eigen import descending_eigh, exceeds_rounding, whitener
from nearfar.summaries.class_statistics import ClassStatistics

Shrinkage = float | Literal["auto"]

#: Weight of the total covariance that shrinkage="auto" mixes into a singular within covariance.
AUTO_SHRINKAGE = 1e-3
# Smallest nonzero variance that is accepted. Computations with a smaller variance would underflow.
_MIN_VARIANCE = 1e-290
# Minimum ratio of the smallest to the largest eigenvalue in use for which axes are computed from
# the Gram matrix of the rows. With a smaller ratio, fewer than half of the digits would be correct.
_MIN_EIGENVALUE = 1e-8
NO_WITHIN_SCATTER = (
    "The points of each class are equal, so X has no within-class scatter. Use shrinkage='auto'."
)


def get_rank_tolerance(statistics: ClassStatistics) -> float:
    """Return the relative tolerance below which eigenvalues are treated as zero.

    A direction is constant if its eigenvalue is below this fraction of the largest eigenvalue.
    The fraction is 1e-12, or 1e-6 if products were rounded to float32.
    """
    return 1e-6 if statistics.is_rounded else 1e-12


def _is_direction(
    statistics: ClassStatistics,
    variances: Matrix,
    axes: Matrix,
    diagonal: Matrix,
    *,
    by_svd: bool = False,
) -> NDArray[np.bool_]:
    """Return a mask of the axes (columns of ``axes``) along which the data vary."""
    eps = float(np.finfo(np.float64).eps)
    rounding = len(diagonal) * eps**2 if by_svd else eps
    tolerance = get_rank_tolerance(statistics)
    return exceeds_rounding(variances, axes, diagonal, tolerance, rounding)


def _check_variances(statistics: ClassStatistics) -> Matrix:
    variances = statistics.total_variances()
    if not np.isfinite(variances).all():
        raise ValueError("The squares of some values of X overflow: rescale the features of X.")
    if ((variances > 0) & (variances < _MIN_VARIANCE)).any():
        raise ValueError("The squares of some values of X underflow: rescale the features of X.")
    return variances


def find_total_range(
    statistics: ClassStatistics, *, standardize: bool
) -> tuple[Matrix, ClassStatistics]:
    """Return a matrix B (p, r) that drops constant features, and the statistics of ``X @ B``.

    If there are fewer rows than features, all directions in which the data do not vary are dropped
    as well. With ``standardize``, the features are scaled to unit variance first. Without it, the
    columns of B are orthonormal.
    """
    variances = _check_variances(statistics)
    deviation, varies = np.sqrt(variances), statistics.varying_features(variances)
    if not varies.any():
        raise ValueError("Every feature of X is constant, so no distance can be learned.")
    unit = 1.0 / deviation[varies] if standardize else np.ones(int(varies.sum()))
    if statistics.is_factored:
        factor = statistics.total_factor()[:, varies] * unit
        _, singular, axes = linalg.svd(factor, full_matrices=False)
        # The sums of squares do not depend on the unit if the features are standardized.
        squares = (
            np.full(len(unit), singular[0] ** 2)
            if standardize
            else np.einsum("ij,ij->j", factor, factor)
        )
        kept_axes = axes[_is_direction(statistics, singular**2, axes.T, squares, by_svd=True)]
        B = np.zeros((statistics.n_features, len(kept_axes)))
        B[varies] = unit[:, None] * kept_axes.T
        return B, statistics.project(B)
    B = np.zeros((statistics.n_features, len(unit)))
    B[varies, np.arange(len(unit))] = unit
    if not standardize and varies.all():
        return B, statistics
    return B, statistics.project(B)


def regularize_within(
    statistics: ClassStatistics, shrinkage: Shrinkage, *, standardize: bool
) -> tuple[Matrix, ClassStatistics, Matrix, Matrix]:
    r"""Regularize the within covariance, and return a matrix that whitens it.

    Return the matrix B of :func:`find_total_range`, the statistics of ``X @ B``, the regularized
    within covariance C of ``X @ B``, and a matrix T such that ``T.T @ C @ T = I``. If ``shrinkage``
    is a number g, :math:`C = (1-g) S_w + g\,(tr\,S_w / p)\,I`. With "auto", C is :math:`S_w` if it
    is regular on the range of the total scatter, else :math:`C = (1-g) S_w + g S_t` with g = 0.001
    (:func:`find_mixed_whitener`). ``standardize`` has an effect only with "auto".
    """
    weight, tolerance = statistics.total_weight, get_rank_tolerance(statistics)
    B, image = find_total_range(statistics, standardize=standardize and shrinkage == "auto")
    within = image.within_scatter() / weight
    if shrinkage == "auto":
        within, T = find_mixed_whitener(within, lambda: image.total_scatter() / weight, tolerance)
    else:
        level = np.trace(within) / statistics.n_features
        within = (1 - shrinkage) * within + shrinkage * level * np.eye(len(within))
        T = whitener(within, tolerance)
    return B, image, within, T


def find_mixed_whitener(
    within: Matrix, total: Callable[[], Matrix], tolerance: float
) -> tuple[Matrix, Matrix]:
    """Return a regularized within covariance C, and T such that ``T.T @ C @ T = I``.

    If ``within`` has the same rank as the total covariance, C is ``within`` (the same array).
    Otherwise 0.1% of the total covariance is mixed in, which is invariant to linear transformations
    of the features.
    """
    T = whitener(within, tolerance)
    if T.shape[1] < len(within):
        total_covariance = total()
        if T.shape[1] < whitener(total_covariance, tolerance).shape[1]:
            within = (1 - AUTO_SHRINKAGE) * within + AUTO_SHRINKAGE * total_covariance
            T = whitener(within, tolerance)
    return within, T


def find_within_whitener(statistics: ClassStatistics, shrinkage: Shrinkage) -> Matrix:
    """Return T (p, r) such that ``T.T @ C @ T = I`` for the regularized within covariance C."""
    B, _, _, T = regularize_within(statistics, shrinkage, standardize=True)
    if not T.size:
        raise ValueError(NO_WITHIN_SCATTER)
    return B @ T


def compute_within_covariance(statistics: ClassStatistics, shrinkage: Shrinkage) -> Matrix:
    """Return the regularized within covariance C used by :func:`find_within_whitener`."""
    within = statistics.within_scatter() / statistics.total_weight
    if shrinkage != "auto":
        level = np.trace(within) / statistics.n_features
        return (1 - shrinkage) * within + shrinkage * level * np.eye(len(within))
    _, image, C, _ = regularize_within(statistics, "auto", standardize=True)
    if np.array_equal(C, image.within_scatter() / statistics.total_weight):
        return within
    total = statistics.total_scatter() / statistics.total_weight
    return (1 - AUTO_SHRINKAGE) * within + AUTO_SHRINKAGE * total


def find_leading_axes(
    statistics: ClassStatistics, n_pca_components: int, *, truncate: bool = False
) -> Matrix:
    """Return the leading orthonormal axes (p, n_pca_components) of the total covariance.

    If there are fewer axes, raise ``ValueError``, or return all of them with ``truncate``.
    """
    if statistics.is_factored:
        F = statistics.total_factor()
        # If only a few axes are needed, compute them from eigenvectors of the Gram matrix.
        if 2 * n_pca_components <= min(F.shape):
            values, eigenvectors = descending_eigh(F @ F.T, n_pca_components)
            if values[-1] > _MIN_EIGENVALUE * values[0]:
                return np.asarray(linalg.qr(F.T @ eigenvectors, mode="economic")[0])
    _, V = find_total_axes(statistics)
    if n_pca_components > V.shape[1] and not truncate:
        raise ValueError(
            f"n_pca_components={n_pca_components} is more than the {V.shape[1]} directions in "
            "which X varies. Decrease n_pca_components."
        )
    return V[:, :n_pca_components]


def find_total_whitener(statistics: ClassStatistics) -> Matrix:
    """Return T (p, r) such that ``T.T @ S_t @ T = I`` for the total covariance S_t of rank r.

    The columns of T lie in the range of S_t.
    """
    if not statistics.is_factored:
        B, image = find_total_range(statistics, standardize=True)
        total = image.total_scatter() / statistics.total_weight
        T = whitener(total, get_rank_tolerance(statistics))
        if T.shape[1] == B.shape[1]:
            return B @ T
    variances, V = find_total_axes(statistics)
    return V / np.sqrt(variances)


def find_total_axes(statistics: ClassStatistics) -> tuple[Matrix, Matrix]:
    """Return nonzero eigenvalues, largest first, and eigenvectors (p, r) of the total covariance.

    The eigenvectors are orthonormal.
    """
    B, image = find_total_range(statistics, standardize=False)
    total = image.total_scatter() / statistics.total_weight
    variances, axes = descending_eigh(total)
    is_direction = _is_direction(statistics, variances, axes, total.diagonal())
    return variances[is_direction], B @ axes[:, is_direction]


def find_within_axes(statistics: ClassStatistics) -> tuple[Matrix, Matrix, Matrix]:
    """Return eigenvectors of the within covariance, separately for nonzero and zero eigenvalues.

    The results are the nonzero eigenvalues, their eigenvectors (p, r), and the eigenvectors of
    eigenvalue 0. All eigenvectors are orthonormal and lie in the range of the total covariance,
    which :func:`find_total_range` computes.
    """
    B, image = find_total_range(statistics, standardize=False)
    within = image.within_scatter() / statistics.total_weight
    variances, axes = descending_eigh(within)
    # If the within covariance is zero, rounding errors must not be counted as axes.
    noise = np.finfo(float).eps * np.trace(image.between_scatter()) / statistics.total_weight
    is_direction = _is_direction(statistics, variances, axes, within.diagonal())
    is_direction &= variances > noise
    return variances[is_direction], B @ axes[:, is_direction], B @ axes[:, ~is_direction]


def find_between_axes(
    statistics: ClassStatistics, T: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """Return eigenvalues, largest first, and eigenvectors (rows) of the between covariance.

    With T, the between covariance of ``X @ T`` is used. The decomposition uses a factor of the
    covariance with one row per class.
    """
    factor = statistics.between_factor()
    _, singular, axes = linalg.svd(factor if T is None else factor @ T, full_matrices=False)
    return singular**2 / statistics.total_weight, axes


def find_between_range(statistics: ClassStatistics, *, by_qr: bool = False) -> Matrix:
    """Return an orthonormal basis (p, r) of the space that the centered class means span."""
    variance = float(_check_variances(statistics).sum())
    factor = statistics.between_factor()
    if by_qr:
        Q, R, _ = linalg.qr(factor.T, mode="economic", pivoting=True)
        values, axes = np.diag(R) ** 2 / statistics.total_weight, Q.T
    else:
        values, axes = find_between_axes(statistics)
    if values[0] <= np.finfo(float).eps ** 1.5 * variance:
        raise ValueError("The class means are equal, so X has no direction that separates classes.")
    squares = np.einsum("ij,ij->j", factor, factor) / statistics.total_weight
    is_direction = _is_direction(statistics, values, axes.T, squares, by_svd=True)
    return axes[is_direction][: statistics.n_classes - 1].T


def whiten_means(statistics: ClassStatistics, shrinkage: Shrinkage) -> tuple[Matrix, Matrix]:
    """Return a matrix T (p, r) that whitens S_w, and the centered class means multiplied by T.

    T has at most ``n_classes - 1`` columns. They span all differences of class means after S_w is
    whitened, so the omitted directions do not separate the classes.
    """
    T = find_within_whitener(statistics, shrinkage)
    _, axes = find_between_axes(statistics, T)
    T = T @ axes[: statistics.n_classes - 1].T
    deviations = statistics.between_factor() / np.sqrt(statistics.weights)[:, None]
    return T, deviations @ T


def whiten_rows(
    rows: Floats, statistics: ClassStatistics, dtype: DTypeLike = np.float64
) -> tuple[Matrix, Any]:
    """Return a whitening matrix of shape (p, rank), and the centered rows multiplied by it.

    Whitening does not change the optimum of a solver, but it changes the speed. The rows are
    returned in the given dtype.
    """
    basis, image = find_total_range(statistics, standardize=True)
    matrix = basis @ whitener(
        image.total_scatter() / statistics.total_weight, get_rank_tolerance(statistics)
    )
    points = center_and_map(rows, statistics.mean, matrix, dtype)
    if matrix.shape[1] < np.count_nonzero(matrix.any(axis=1)):
        # The training rows do not vary in directions outside their span, so the matrix must ignore
        # these directions in new points. The columns of X'Y form a basis of the span.
        products = np.zeros(matrix.shape)
        for block in split_rows(len(rows), 16 * rows.shape[1]):
            products += (rows[block] - statistics.mean).T @ points[block]
        span, _ = np.linalg.qr(products)
        matrix = span @ (span.T @ matrix)
    return matrix, points


def center_and_map(
    rows: Floats, mean: Floats, matrix: Matrix, dtype: DTypeLike = np.float64
) -> Any:
    """Return ``(rows - mean) @ matrix``, computed in float64 without a copy of all rows.

    If ``matrix`` is a vector, it holds one factor per feature.
    """
    points = np.empty((len(rows), matrix.shape[-1]), dtype)
    for block in split_rows(len(rows), 16 * rows.shape[1]):
        centered = (rows[block] - mean).astype(np.float64)
        points[block] = centered * matrix if matrix.ndim == 1 else centered @ matrix
    return points


def standardize_rows(
    rows: Floats, statistics: ClassStatistics, dtype: DTypeLike = np.float64
) -> tuple[Matrix, Any]:
    """Return a matrix that scales features to unit variance, and the centered, scaled rows.

    In whitened coordinates, directions in which the data hardly vary have the same weight as all
    others, and a nonconvex objective may fit the noise in these directions.
    """
    matrix, _ = find_total_range(statistics, standardize=True)
    return matrix, center_and_map(rows, statistics.mean, matrix, dtype)


def scale_uniformly(
    rows: Floats, statistics: ClassStatistics, dtype: DTypeLike = np.float64
) -> tuple[Matrix, Any]:
    """Return a matrix that scales the data to mean variance 1, and the centered, scaled rows.

    All features are scaled by the same number, so the shape of the data is kept. Descent is slower,
    but early iterates stay close to the original distance. In coordinates whitened with few rows,
    the noise is as large as the signal, and the first steps already fit the noise.
    """
    basis, image = find_total_range(statistics, standardize=False)
    matrix = basis / np.sqrt(image.total_variances().mean())
    return matrix, center_and_map(rows, statistics.mean, matrix, dtype)
