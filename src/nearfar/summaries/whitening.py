"""Coordinates in which scatter matrices are well behaved, shared by the statistics methods."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.solvers.eigen import whitener
from nearfar.summaries.class_statistics import ClassStatistics

Matrix = NDArray[np.float64]
Shrinkage = float | Literal["auto"]

#: Share of the total covariance mixed into a singular within-class covariance by "auto".
AUTO_SHRINKAGE = 1e-3
NO_WITHIN_SCATTER = (
    "All points of a class are equal: there is no within-class scatter. Use shrinkage='auto'."
)


def rank_tolerance(statistics: ClassStatistics) -> float:
    """Relative eigenvalue below which a direction is empty: 1e-12, after rounded products 1e-6."""
    return 1e-6 if statistics.is_rounded else 1e-12


def total_range(
    statistics: ClassStatistics, *, standardise: bool
) -> tuple[Matrix, ClassStatistics]:
    """Coordinates B (p, r) that leave out what never varies, and the statistics of ``X @ B``.

    Constant features are dropped; with fewer rows than features so are all directions in which
    the data do not vary at all. With ``standardise`` the features are brought to unit variance
    first; else the columns of B are orthonormal.
    """
    deviation = np.sqrt(statistics.total_variances())
    if not np.isfinite(deviation).all():
        raise ValueError("The squares of some values of X overflow: rescale the features of X.")
    used = statistics.varying_features()
    if not used.any():
        raise ValueError("Every feature of X is constant: there is no distance to learn.")
    unit = 1.0 / deviation[used] if standardise else np.ones(int(used.sum()))
    B = np.zeros((statistics.n_features, len(unit)))
    B[used, np.arange(len(unit))] = unit
    if statistics.is_factored:
        _, singular, axes = linalg.svd(
            statistics.total_factor()[:, used] * unit, full_matrices=False
        )
        kept = axes[singular**2 > rank_tolerance(statistics) * singular[0] ** 2]
        B = np.zeros((statistics.n_features, len(kept)))
        B[used] = unit[:, None] * kept.T
    elif not standardise and used.all():
        return B, statistics
    return B, statistics.project(B)


def regularised_within(
    statistics: ClassStatistics, shrinkage: Shrinkage, *, standardise: bool
) -> tuple[Matrix, ClassStatistics, Matrix, Matrix]:
    r"""Coordinates B, the statistics in them, and a regular within-class covariance C in them.

    With ``shrinkage`` a number g, :math:`C = (1-g) S_w + g\,(tr\,S_w / p)\,I`. With "auto" the
    covariance is used as it is where it is regular on the range of the total scatter; where it is
    not, :math:`C = (1-g) S_w + g S_t` with g = 0.001, which no linear change of the features
    affects. Only with "auto" may the coordinates be standardised (see :func:`total_range`).

    Last comes T with ``T.T @ C @ T = I``.
    """
    weight, tolerance = statistics.total_weight, rank_tolerance(statistics)
    B, image = total_range(statistics, standardise=standardise and shrinkage == "auto")
    within = image.within_scatter() / weight
    if shrinkage != "auto":
        level = np.trace(within) / statistics.n_features
        within = (1 - shrinkage) * within + shrinkage * level * np.eye(len(within))
    T = whitener(within, tolerance)
    if shrinkage == "auto" and T.shape[1] < len(within):
        total = image.total_scatter() / weight
        if T.shape[1] < whitener(total, tolerance).shape[1]:
            within = (1 - AUTO_SHRINKAGE) * within + AUTO_SHRINKAGE * total
            T = whitener(within, tolerance)
    return B, image, within, T


def within_whitener(statistics: ClassStatistics, shrinkage: Shrinkage) -> Matrix:
    """T (p, r) with ``T.T @ C @ T = I`` for the regularised within-class covariance C."""
    B, _, _, T = regularised_within(statistics, shrinkage, standardise=True)
    if not T.size:
        raise ValueError(NO_WITHIN_SCATTER)
    return B @ T
