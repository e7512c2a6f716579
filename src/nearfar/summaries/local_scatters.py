"""Scatters within and between classes around many points at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Mask, Vector
from nearfar.blocks import row_blocks
from nearfar.summaries.local_moments import ClassSums
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows, Window

# A scatter that is less than _DIGITS_LEFT of the squares it is the difference of, or is based on
# distances with a relative error above _ROUNDED, has too few correct digits.
_DIGITS_LEFT = 1e-5
_ROUNDED = 1e-8
# A scatter below this fraction of the squared distances from the point itself is set to zero.
_NO_SCATTER = 1e-14


def choose_window_size(n: int, p: int, n_classes: int) -> int:
    """Return the number of rows, of n, sufficient for a within-class covariance of p features."""
    return min(n, max(n // 5, 50, 10 * (p + n_classes)))


@dataclass(frozen=True)
class LocalScatters:
    """Within and between scatters of the classes around each of b points, in standard units.

    Parameters
    ----------
    within : ndarray of shape (b, p, p)
        Weighted covariances about the class means. They are exactly zero if all rows of each class
        are equal.
    between : ndarray of shape (b, p, p)
        Covariances of the class means, weighted by the fraction of each class.
    """

    within: NDArray[np.float64]
    between: NDArray[np.float64]


def compute_scatters(
    rows: LocalRows,
    queries: LocalQueries,
    metrics: LocalMetrics,
    m: int,
    *,
    window: Window | None = None,
    tricube: bool = True,
) -> LocalScatters:
    """Return the scatters of the m nearest rows under these metrics.

    ``window`` holds the nearest rows if they were found before. All sums are matrix products of
    dense weights with rows centered at zero. If a window is so small that these sums lose too many
    digits, its scatters are computed again from differences to the query.
    """
    if window is None and tricube:
        spread, radius, errors = rows.tricube(queries, metrics, m)
    else:
        window = window or rows.window(queries, metrics, m)
        weights = window.tricube() if tricube else 1.0
        spread = rows.moments.spread(window.found, weights)
        radius, errors = window.radius, window.errors
    sums = rows.moments.class_sums(spread)
    weights = sums.weights.sum(axis=1)
    total = rows.moments.second_moments(spread)
    total /= np.where(weights > 0, weights, 1.0)[:, None, None]
    squares = np.trace(total, axis1=1, axis2=2)
    means = sums.means * np.sqrt(sums.shares())[:, :, None]
    total -= np.matmul(means.transpose(0, 2, 1), means)
    scatters = LocalScatters(total, sums.between())
    left = np.trace(total, axis1=1, axis2=2) / np.where(squares > 0, squares, 1.0)
    doubt = find_inaccurate_windows(weights, radius, errors) | (left < _DIGITS_LEFT)
    for chosen in _chunks(np.flatnonzero(doubt), m * rows.n_features):
        again = queries[chosen], metrics[chosen]
        found = rows.window(*again, m) if window is None else window[chosen]
        anew = compute_exact_scatters(rows, *again, found, tricube=tricube)
        scatters.within[chosen], scatters.between[chosen] = anew.within, anew.between
    return scatters


def find_inaccurate_windows(weights: Vector, radius: Vector, errors: Vector) -> Mask:
    """Return a mask of windows whose distances have too few digits, or whose weights are 0."""
    return np.asarray((errors > _ROUNDED * radius) | (weights <= 0))


def compute_exact_scatters(
    rows: LocalRows,
    queries: LocalQueries,
    metrics: LocalMetrics,
    window: Window,
    *,
    tricube: bool = True,
) -> LocalScatters:
    """Return the scatters of a window from differences to each query, which is exact but slow."""
    b, m = window.found.shape
    owner, found = np.repeat(np.arange(b), m), window.found.ravel()
    weights = np.ones((b, m))
    if tricube:
        exact = rows.measured(queries, metrics, owner, found).reshape(b, m)
        weights = Window(window.found, exact, window.radius, 0 * window.errors).tricube()
    apart = rows.apart(queries, owner, found).reshape(b, m, -1)
    codes = rows.codes[window.found]
    member = np.zeros((b, rows.n_classes, m))
    member[np.arange(b)[:, None], codes, np.arange(m)] = weights
    totals = member.sum(axis=2)
    means = np.matmul(member, apart) / np.where(totals > 0, totals, 1.0)[:, :, None]
    own = apart - means[np.arange(b)[:, None], codes]
    weights = weights / weights.sum(axis=1, keepdims=True)
    within = np.matmul((own * weights[:, :, None]).transpose(0, 2, 1), own)
    far = (weights * np.square(apart).sum(axis=2)).sum(axis=1)
    within[np.trace(within, axis1=1, axis2=2) <= _NO_SCATTER * far] = 0
    return LocalScatters(within, ClassSums(totals, means).between())


def _chunks(chosen: Indices, numbers: int) -> list[Indices]:
    return [chosen[part] for part in row_blocks(len(chosen), 64 * numbers)]


def shrink_scatters(scatters: NDArray[np.float64], shrinkage: float) -> NDArray[np.float64]:
    """Return (1 - s) S + s tr(S) / p I for symmetric matrices S, and I if S is zero."""
    p = scatters.shape[-1]
    traces = np.trace(scatters, axis1=-2, axis2=-1)[..., None]
    found = (1 - shrinkage) * (scatters + np.swapaxes(scatters, -1, -2)) / 2
    diagonal = np.einsum("...jj->...j", found)
    diagonal += shrinkage * traces / p
    diagonal += np.where(traces > 0, 0.0, 1.0)
    return np.asarray(found)


def invert_matrices(matrices: NDArray[np.float64], *, regular: bool) -> NDArray[np.float64]:
    """Return inverses of symmetric matrices.

    Unless ``regular``, eigenvalues below 1e-10 of the largest are raised to this value.
    """
    if regular:
        inverse = np.linalg.inv(matrices)
    else:
        values, axes = np.linalg.eigh(matrices)
        values = np.maximum(values, 1e-10 * values[..., -1:])
        inverse = np.matmul(axes / values[..., None, :], np.swapaxes(axes, -1, -2))
    return np.asarray((inverse + np.swapaxes(inverse, -1, -2)) / 2)


def compute_inverse_roots(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return symmetric roots of inverses.

    Eigenvalues below 1e-10 of the largest are raised to this value.
    """
    values, axes = np.linalg.eigh(matrices)
    values = np.maximum(values, 1e-10 * values[..., -1:])
    return np.asarray(np.matmul(axes / np.sqrt(values)[..., None, :], np.swapaxes(axes, -1, -2)))
