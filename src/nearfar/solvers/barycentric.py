"""Reconstruction weights of locally linear embedding: points as combinations of neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Matrix
from nearfar.blocks import split_rows


def compute_barycentric_weights(
    points: NDArray[Any], queries: NDArray[Any], neighbors: NDArray[np.intp], reg: float = 1e-3
) -> Matrix:
    r"""Return the weights, with sum one, that best reconstruct each query from its neighbors.

    The result has shape (m, k).

    For a query x with neighbors :math:`x_j`, the weights solve

    .. math:: \min_w \|x - \sum_j w_j x_j\|^2 + \text{reg} \cdot \mathrm{tr}(G) \|w\|^2,
        \qquad \sum_j w_j = 1 ,

    with :math:`G_{jk} = (x - x_j)^T (x - x_k)`. The weights are the solution of
    :math:`(G + \text{reg}\, \mathrm{tr}(G) I) w = 1`, scaled to sum one. They do not change if the
    query and the points are translated, rotated or scaled together. With more neighbors than
    dimensions, G alone is singular. Queries outside the convex hull of their neighbors have
    negative weights.

    Examples
    --------
    >>> points = np.array([[1.0, 0.0], [3.0, 0.0]])
    >>> compute_barycentric_weights(points, np.array([[2.0, 1.0]]), np.array([[0, 1]]))
    array([[0.5, 0.5]])
    """
    m, k = neighbors.shape
    weights = np.empty((m, k))
    for block in split_rows(m, 8 * k * (2 * points.shape[1] + 3 * k), max_rows=2048):
        G = compute_local_grams(points, queries[block], neighbors[block])
        size = np.trace(G, axis1=1, axis2=2)
        # Divide by the trace, so that tiny values do not underflow.
        G /= np.where(size > 0, size, 1.0)[:, None, None]
        G[:, np.arange(k), np.arange(k)] += reg
        w = _solve(G, np.ones((len(G), k, 1)), reg)
        weights[block] = w / w.sum(axis=1, keepdims=True)
    return weights


def compute_interpolating_weights(
    points: NDArray[Any], queries: NDArray[Any], neighbors: NDArray[np.intp], reg: float = 1e-3
) -> Matrix:
    r"""Return reconstruction weights for new points. Distant neighbors have a larger penalty.

    .. math:: \min_w \|x - \sum_j w_j x_j\|^2 + \text{reg} \cdot k \sum_j w_j^2 \|x - x_j\|^2,
        \qquad \sum_j w_j = 1 .

    If all distances are equal, this is the problem of `compute_barycentric_weights`. As a query
    approaches one of its (distinct) neighbors, that neighbor's weight tends continuously to one,
    so the query gets the coordinates of the neighbor. The weights of `compute_barycentric_weights`
    do not have this property: with more neighbors than dimensions, the other neighbors keep some
    weight.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [3.0]])
    >>> compute_interpolating_weights(points, np.array([[1.0]]), np.array([[1, 0, 2]]))
    array([[1., 0., 0.]])
    """
    m, k = neighbors.shape
    weights = np.empty((m, k))
    for block in split_rows(m, 8 * k * (2 * points.shape[1] + 3 * k), max_rows=2048):
        G = compute_local_grams(points, queries[block], neighbors[block])
        lengths = np.sqrt(np.einsum("ijj->ij", G))
        # With w_j = u_j / d_j, G becomes a matrix of cosines, and only relative lengths matter.
        min_length = lengths.min(axis=1, keepdims=True)
        is_zero = lengths == 0
        inverse = np.where(
            is_zero.any(axis=1, keepdims=True),
            is_zero,
            min_length / np.where(is_zero, 1.0, lengths),
        )
        unit = 1 / np.where(is_zero, 1.0, lengths)
        C = G * unit[:, :, None] * unit[:, None]
        C[:, np.arange(k), np.arange(k)] = 1 + reg * k
        w = inverse * _solve(C, inverse[:, :, None], reg)
        weights[block] = w / w.sum(axis=1, keepdims=True)
    return weights


def _solve(G: Matrix, right: Matrix, reg: float) -> Matrix:
    try:
        return np.asarray(np.linalg.solve(G, right)[:, :, 0])
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"reg={reg:g} is too small: the neighbors of a point are linearly dependent, so their "
            "weights are not determined. Increase reg."
        ) from error


def compute_local_grams(
    points: NDArray[Any], origins: NDArray[Any], neighbors: NDArray[np.intp]
) -> Matrix:
    """Return Gram matrices of the differences between neighbors and origin, of shape (m, k, k)."""
    differences = np.subtract(points[neighbors], origins[:, None], dtype=np.float64)
    return np.asarray(differences @ differences.transpose(0, 2, 1))


def weight_matrix(
    points: NDArray[Any], indptr: NDArray[np.intp], indices: NDArray[np.intp], reg: float = 1e-3
) -> sparse.csr_array:
    """Return the reconstruction weights of all points as a sparse matrix.

    ``indptr`` and ``indices`` are the neighbor lists in CSR format. The lists may differ in length.
    """
    n = len(points)
    data = np.empty(len(indices))
    counts = np.diff(indptr)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        positions = indptr[rows, None] + np.arange(count)
        data[positions] = compute_barycentric_weights(points, points[rows], indices[positions], reg)
    return sparse.csr_array((data, indices, indptr), shape=(n, n))


def reconstruction_matrix(weights: sparse.csr_array) -> sparse.csr_array:
    """Return E = (I - W)'(I - W), a symmetric matrix with ``E @ 1 = 0``."""
    residual = sparse.eye_array(weights.shape[0], format="csr") - weights
    return sparse.csr_array(residual.T @ residual)
