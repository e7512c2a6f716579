"""Coordinates in which scatter matrices are well behaved, shared by the statistics methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import row_blocks
from nearfar.solvers.eigen import descending_eigh, whitener
from nearfar.summaries.class_statistics import ClassStatistics

Shrinkage = float | Literal["auto"]

#: Share of the total covariance mixed into a singular within-class covariance by "auto".
AUTO_SHRINKAGE = 1e-3
# Smaller ones have lost digits, or will.
_LEAST_VARIANCE = 1e-290
# Below this share of the largest, products of rows know an axis to fewer than half of the digits.
_LEAST_PRODUCT = 1e-8
NO_WITHIN_SCATTER = (
    "In every class all points are equal: there is no within-class scatter. Use shrinkage='auto'."
)


def rank_tolerance(statistics: ClassStatistics) -> float:
    """Relative eigenvalue below which a direction is empty: 1e-12, after rounded products 1e-6."""
    return 1e-6 if statistics.is_rounded else 1e-12


def _finite_variances(statistics: ClassStatistics) -> Matrix:
    variances = statistics.total_variances()
    if not np.isfinite(variances).all():
        raise ValueError("The squares of some values of X overflow: rescale the features of X.")
    if ((variances > 0) & (variances < _LEAST_VARIANCE)).any():
        raise ValueError("The squares of some values of X underflow: rescale the features of X.")
    return variances


def total_range(
    statistics: ClassStatistics, *, standardize: bool
) -> tuple[Matrix, ClassStatistics]:
    """Coordinates B (p, r) that leave out what never varies, and the statistics of ``X @ B``.

    Constant features are dropped; with fewer rows than features so are all directions in which
    the data do not vary at all. With ``standardize`` the features are brought to unit variance
    first; else the columns of B are orthonormal.
    """
    variances = _finite_variances(statistics)
    deviation, used = np.sqrt(variances), statistics.varying_features(variances)
    if not used.any():
        raise ValueError("Every feature of X is constant: there is no distance to learn.")
    unit = 1.0 / deviation[used] if standardize else np.ones(int(used.sum()))
    if statistics.is_factored:
        _, singular, axes = linalg.svd(
            statistics.total_factor()[:, used] * unit, full_matrices=False
        )
        kept = axes[singular**2 > rank_tolerance(statistics) * singular[0] ** 2]
        B = np.zeros((statistics.n_features, len(kept)))
        B[used] = unit[:, None] * kept.T
        return B, statistics.project(B)
    B = np.zeros((statistics.n_features, len(unit)))
    B[used, np.arange(len(unit))] = unit
    if not standardize and used.all():
        return B, statistics
    return B, statistics.project(B)


def regularized_within(
    statistics: ClassStatistics, shrinkage: Shrinkage, *, standardize: bool
) -> tuple[Matrix, ClassStatistics, Matrix, Matrix]:
    r"""Coordinates B, the statistics in them, and a regular within-class covariance C in them.

    With ``shrinkage`` a number g, :math:`C = (1-g) S_w + g\,(tr\,S_w / p)\,I`. With "auto" the
    covariance is used as it is where it is regular on the range of the total scatter; where it is
    not, :math:`C = (1-g) S_w + g S_t` with g = 0.001 (:func:`mixed_whitener`). Only with "auto" may
    the coordinates be standardised (see :func:`total_range`).

    Last comes T with ``T.T @ C @ T = I``.
    """
    weight, tolerance = statistics.total_weight, rank_tolerance(statistics)
    B, image = total_range(statistics, standardize=standardize and shrinkage == "auto")
    within = image.within_scatter() / weight
    if shrinkage == "auto":
        within, T = mixed_whitener(within, lambda: image.total_scatter() / weight, tolerance)
    else:
        level = np.trace(within) / statistics.n_features
        within = (1 - shrinkage) * within + shrinkage * level * np.eye(len(within))
        T = whitener(within, tolerance)
    return B, image, within, T


def mixed_whitener(
    within: Matrix, total: Callable[[], Matrix], tolerance: float
) -> tuple[Matrix, Matrix]:
    """A covariance C that is regular where the data vary, and T with ``T.T @ C @ T = I``.

    It is ``within`` itself, the very array, while that has the rank of the total covariance; else
    0.1 % of the total is mixed in, which no linear change of the features affects.
    """
    T = whitener(within, tolerance)
    if T.shape[1] < len(within):
        everything = total()
        if T.shape[1] < whitener(everything, tolerance).shape[1]:
            within = (1 - AUTO_SHRINKAGE) * within + AUTO_SHRINKAGE * everything
            T = whitener(within, tolerance)
    return within, T


def within_whitener(statistics: ClassStatistics, shrinkage: Shrinkage) -> Matrix:
    """T (p, r) with ``T.T @ C @ T = I`` for the regularised within-class covariance C."""
    B, _, _, T = regularized_within(statistics, shrinkage, standardize=True)
    if not T.size:
        raise ValueError(NO_WITHIN_SCATTER)
    return B @ T


def within_covariance(statistics: ClassStatistics, shrinkage: Shrinkage) -> Matrix:
    """The regularised covariance that :func:`within_whitener` whitens, (p, p), in units of X."""
    within = statistics.within_scatter() / statistics.total_weight
    if shrinkage != "auto":
        level = np.trace(within) / statistics.n_features
        return (1 - shrinkage) * within + shrinkage * level * np.eye(len(within))
    _, image, C, _ = regularized_within(statistics, "auto", standardize=True)
    if np.array_equal(C, image.within_scatter() / statistics.total_weight):
        return within
    total = statistics.total_scatter() / statistics.total_weight
    return (1 - AUTO_SHRINKAGE) * within + AUTO_SHRINKAGE * total


def leading_axes(statistics: ClassStatistics, n_principal: int, *, at_most: bool = False) -> Matrix:
    """The leading orthonormal axes (p, n_principal) of the total covariance.

    Where there are not so many it raises, or with ``at_most`` returns all.
    """
    if statistics.is_factored:
        F = statistics.total_factor()
        if 2 * n_principal <= min(F.shape):  # of few of many, from the products of the rows
            values, left = descending_eigh(F @ F.T, n_principal)
            if values[-1] > _LEAST_PRODUCT * values[0]:
                return np.asarray(linalg.qr(F.T @ left, mode="economic")[0])
    _, V = total_axes(statistics)
    if n_principal > V.shape[1] and not at_most:
        raise ValueError(
            f"n_principal={n_principal} is more than the {V.shape[1]} directions in which X varies."
        )
    return V[:, :n_principal]


def total_whitener(statistics: ClassStatistics) -> Matrix:
    """T (p, r) with ``T.T @ S_t @ T = I`` on the range of the total covariance.

    Its columns lie in that range, unless it is all of the features that vary.
    """
    if not statistics.is_factored:
        B, image = total_range(statistics, standardize=True)
        total = image.total_scatter() / statistics.total_weight
        T = whitener(total, rank_tolerance(statistics))
        if T.shape[1] == B.shape[1]:
            return B @ T
    variances, V = total_axes(statistics)
    return V / np.sqrt(variances)


def total_axes(statistics: ClassStatistics) -> tuple[Matrix, Matrix]:
    """Variances and orthonormal axes (p, r), largest first, of the total covariance."""
    B, image = total_range(statistics, standardize=False)
    variances, axes = descending_eigh(image.total_scatter() / statistics.total_weight)
    rank = int((variances > rank_tolerance(statistics) * variances[0]).sum())
    return variances[:rank], B @ axes[:, :rank]


def within_axes(statistics: ClassStatistics) -> tuple[Matrix, Matrix, Matrix]:
    """Of the within-class covariance: variances, their axes (p, r), and axes of variance zero.

    All axes are orthonormal and lie where the data vary, as far as that is known exactly.
    """
    B, image = total_range(statistics, standardize=False)
    variances, axes = descending_eigh(image.within_scatter() / statistics.total_weight)
    # A covariance that is zero has no axes, and rounding of the total must not look like some.
    noise = np.finfo(float).eps * np.trace(image.between_scatter()) / statistics.total_weight
    rank = int((variances > max(rank_tolerance(statistics) * variances[0], noise)).sum())
    return variances[:rank], B @ axes[:, :rank], B @ axes[:, rank:]


def between_axes(statistics: ClassStatistics, T: Matrix | None = None) -> tuple[Matrix, Matrix]:
    """Eigenvalues, largest first, and eigenvectors (rows) of the between covariance of ``X @ T``.

    From its few rows: as many as there are classes, or columns of T if these are fewer.
    """
    factor = statistics.between_factor()
    _, singular, axes = linalg.svd(factor if T is None else factor @ T, full_matrices=False)
    return singular**2 / statistics.total_weight, axes


def between_range(statistics: ClassStatistics, *, by_qr: bool = False) -> Matrix:
    """An orthonormal basis (p, r) of the span of the differences of the class means."""
    variance = float(_finite_variances(statistics).sum())
    if by_qr:
        Q, R, _ = linalg.qr(statistics.between_factor().T, mode="economic", pivoting=True)
        values, axes = np.diag(R) ** 2 / statistics.total_weight, Q.T
    else:
        values, axes = between_axes(statistics)
    if values[0] <= np.finfo(float).eps ** 1.5 * variance:
        raise ValueError("The class means are all equal: they span no direction.")
    rank = int((values > rank_tolerance(statistics) * values[0]).sum())
    return axes[: min(rank, statistics.n_classes - 1)].T


def whitened_means(statistics: ClassStatistics, shrinkage: Shrinkage) -> tuple[Matrix, Matrix]:
    """Coordinates T (p, r) of the class means in which S_w is the identity, and the means there.

    The r columns, at most ``n_classes - 1``, span all differences of class means once S_w is
    whitened; what lies beside them tells no class from another.
    """
    T = within_whitener(statistics, shrinkage)
    _, axes = between_axes(statistics, T)
    T = T @ axes[: statistics.n_classes - 1].T
    deviations = statistics.between_factor() / np.sqrt(statistics.weights)[:, None]
    return T, deviations @ T


def whitened(
    rows: Floats, statistics: ClassStatistics, dtype: DTypeLike = np.float64
) -> tuple[Matrix, Any]:
    """A map (p, rank) to whitened coordinates, and the centred rows under it, in this precision.

    The optimum does not depend on the coordinates, the speed of the solver does.
    """
    basis, image = total_range(statistics, standardize=True)
    white = basis @ whitener(
        image.total_scatter() / statistics.total_weight, rank_tolerance(statistics)
    )
    points = moved(rows, statistics.mean, white, dtype)
    if white.shape[1] < np.count_nonzero(white.any(axis=1)):
        # What a new point has outside the span of the rows, nothing was learned about: the map
        # must not see it. The columns of X'Y span the rows.
        products = np.zeros(white.shape)
        for block in row_blocks(len(rows), 16 * rows.shape[1]):
            products += (rows[block] - statistics.mean).T @ points[block]
        span, _ = np.linalg.qr(products)
        white = span @ (span.T @ white)
    return white, points


def moved(rows: Floats, mean: Floats, into: Matrix, dtype: DTypeLike = np.float64) -> Any:
    """``(rows - mean) @ into``, computed in double precision, without a copy of all rows.

    A vector ``into`` is a factor for each feature.
    """
    points = np.empty((len(rows), into.shape[-1]), dtype)
    for block in row_blocks(len(rows), 16 * rows.shape[1]):
        centered = (rows[block] - mean).astype(np.float64)
        points[block] = centered * into if into.ndim == 1 else centered @ into
    return points


def standardized(
    rows: Floats, statistics: ClassStatistics, dtype: DTypeLike = np.float64
) -> tuple[Matrix, Any]:
    """The same with each feature brought to unit variance, and no more.

    Whitened, directions in which the data hardly vary are as easy to reach as any other, and an
    objective that is not convex is led to fit the noise there.
    """
    into, _ = total_range(statistics, standardize=True)
    return into, moved(rows, statistics.mean, into, dtype)


def unscaled(
    rows: Floats, statistics: ClassStatistics, dtype: DTypeLike = np.float64
) -> tuple[Matrix, Any]:
    """The same with coordinates that keep the shape of the data; their mean variance is 1.

    Slower to descend in, but early iterates stay near the distance as given. Whitened by few rows,
    noise is as large as signal, and the first steps already fit it.
    """
    basis, image = total_range(statistics, standardize=False)
    into = basis / np.sqrt(image.total_variances().mean())
    return into, moved(rows, statistics.mean, into, dtype)
