"""Scatters within and between classes around many points at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Mask, Vector
from nearfar.blocks import split_rows
from nearfar.summaries.local_moments import ClassSums
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows, Window

# A scatter about class means is computed by subtracting the squared means from a sum of squares. If
# less than this fraction of the sum is left, too few digits are correct, and the scatter is
# computed again from differences.
_MIN_FRACTION_LEFT = 1e-5
# Maximum error of the squared distances from a query, as a fraction of the largest squared
# distance. If the error is larger, the scatters of the query are computed again from differences.
_MAX_RELATIVE_ERROR = 1e-8
# A scatter is set to zero if its trace is at most this fraction of the mean squared distance
# between the rows and the query.
_ZERO_SCATTER = 1e-14


def choose_window_size(n: int, p: int, n_classes: int) -> int:
    """Choose how many of n rows to use for estimating a local within-class covariance."""
    return min(n, max(n // 5, 50, 10 * (p + n_classes)))


@dataclass(frozen=True)
class LocalScatters:
    """Within-class and between-class scatters around each of b points, in standard units.

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
    """Compute scatters from the m nearest rows of each query, found with the query's metric.

    ``window`` can be passed if the nearest rows are already known. All sums are matrix products of
    dense weights and centered rows. If a window is so small that these sums lose too many digits,
    its scatters are computed again from the differences between its rows and the query.
    """
    if window is None and tricube:
        dense_weights, radius, errors = rows.compute_tricube_weights(queries, metrics, m)
    else:
        window = window or rows.find_window(queries, metrics, m)
        weights = window.compute_tricube_weights() if tricube else 1.0
        dense_weights = rows.moments.make_dense_weights(window.indices, weights)
        radius, errors = window.radius, window.errors
    sums = rows.moments.compute_class_sums(dense_weights)
    weights = sums.weights.sum(axis=1)
    total = rows.moments.compute_second_moments(dense_weights)
    total /= np.where(weights > 0, weights, 1.0)[:, None, None]
    squares = np.trace(total, axis1=1, axis2=2)
    means = sums.means * np.sqrt(sums.compute_fractions())[:, :, None]
    total -= np.matmul(means.transpose(0, 2, 1), means)
    scatters = LocalScatters(total, sums.compute_between_scatters())
    fractions_left = np.trace(total, axis1=1, axis2=2) / np.where(squares > 0, squares, 1.0)
    is_inaccurate = find_inaccurate_windows(weights, radius, errors) | (
        fractions_left < _MIN_FRACTION_LEFT
    )
    for chunk in _split_chunks(np.flatnonzero(is_inaccurate), m * rows.n_features):
        arguments = queries[chunk], metrics[chunk]
        near = rows.find_window(*arguments, m) if window is None else window[chunk]
        exact = compute_exact_scatters(rows, *arguments, near, tricube=tricube)
        scatters.within[chunk], scatters.between[chunk] = exact.within, exact.between
    return scatters


def find_inaccurate_windows(weights: Vector, radius: Vector, errors: Vector) -> Mask:
    """Return a mask of the queries with inaccurate distances, or with a total weight of 0."""
    return np.asarray((errors > _MAX_RELATIVE_ERROR * radius) | (weights <= 0))


def compute_exact_scatters(
    rows: LocalRows,
    queries: LocalQueries,
    metrics: LocalMetrics,
    window: Window,
    *,
    tricube: bool = True,
) -> LocalScatters:
    """Compute scatters from differences between rows and queries, which is accurate but slow."""
    b, m = window.indices.shape
    owner, indices = np.repeat(np.arange(b), m), window.indices.ravel()
    weights = np.ones((b, m))
    if tricube:
        exact = rows.measure(queries, metrics, owner, indices).reshape(b, m)
        weights = Window(
            window.indices, exact, window.radius, 0 * window.errors
        ).compute_tricube_weights()
    differences = rows.compute_differences(queries, owner, indices).reshape(b, m, -1)
    codes = rows.codes[window.indices]
    member = np.zeros((b, rows.n_classes, m))
    member[np.arange(b)[:, None], codes, np.arange(m)] = weights
    totals = member.sum(axis=2)
    means = np.matmul(member, differences) / np.where(totals > 0, totals, 1.0)[:, :, None]
    deviations = differences - means[np.arange(b)[:, None], codes]
    weights = weights / weights.sum(axis=1, keepdims=True)
    within = np.matmul((deviations * weights[:, :, None]).transpose(0, 2, 1), deviations)
    squares = (weights * np.square(differences).sum(axis=2)).sum(axis=1)
    within[np.trace(within, axis1=1, axis2=2) <= _ZERO_SCATTER * squares] = 0
    return LocalScatters(within, ClassSums(totals, means).compute_between_scatters())


def _split_chunks(rows: Indices, n_entries: int) -> list[Indices]:
    return [rows[block] for block in split_rows(len(rows), 64 * n_entries)]


def shrink_scatters(scatters: NDArray[np.float64], shrinkage: float) -> NDArray[np.float64]:
    """Return (1 - s) S + s (tr(S) / p) I for each symmetric matrix S, or I if S is zero."""
    p = scatters.shape[-1]
    traces = np.trace(scatters, axis1=-2, axis2=-1)[..., None]
    shrunk_scatters = (1 - shrinkage) * (scatters + np.swapaxes(scatters, -1, -2)) / 2
    diagonal = np.einsum("...jj->...j", shrunk_scatters)
    diagonal += shrinkage * traces / p
    diagonal += np.where(traces > 0, 0.0, 1.0)
    return np.asarray(shrunk_scatters)


def invert_matrices(matrices: NDArray[np.float64], *, regular: bool) -> NDArray[np.float64]:
    """Return inverses of symmetric matrices.

    If ``regular`` is False, eigenvalues are raised to at least 1e-10 times the largest eigenvalue.
    """
    if regular:
        inverse = np.linalg.inv(matrices)
    else:
        values, axes = np.linalg.eigh(matrices)
        values = np.maximum(values, 1e-10 * values[..., -1:])
        inverse = np.matmul(axes / values[..., None, :], np.swapaxes(axes, -1, -2))
    return np.asarray((inverse + np.swapaxes(inverse, -1, -2)) / 2)


def compute_inverse_roots(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric square roots of the inverses of symmetric matrices.

    Eigenvalues are raised to at least 1e-10 times the largest eigenvalue.
    """
    values, axes = np.linalg.eigh(matrices)
    values = np.maximum(values, 1e-10 * values[..., -1:])
    return np.asarray(np.matmul(axes / np.sqrt(values)[..., None, :], np.swapaxes(axes, -1, -2)))
