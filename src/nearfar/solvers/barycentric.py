"""Points as affine combinations of their neighbours: the weights of locally linear embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Matrix
from nearfar.blocks import split_rows


def barycentric_weights(
    points: NDArray[Any], queries: NDArray[Any], neighbors: NDArray[np.intp], reg: float = 1e-3
) -> Matrix:
    r"""Weights (m, k) that rebuild each query best from given points, and sum to one.

    .. math:: \min_w \|x - \sum_j w_j x_j\|^2 + \text{reg} \cdot \mathrm{tr}(G) \|w\|^2,
        \qquad \sum_j w_j = 1 ,

    :math:`G_{jk} = (x - x_j)^T (x - x_k)`: the solution of :math:`(G + \text{reg}\, \mathrm{tr}(G)
    I) w = 1`, brought to sum one. It does not change when query and points are moved, turned or
    scaled together. With more neighbours (m, k) than dimensions G alone is singular. Negative
    weights are for queries outside the hull of their points.

    Examples
    --------
    >>> points = np.array([[1.0, 0.0], [3.0, 0.0]])
    >>> barycentric_weights(points, np.array([[2.0, 1.0]]), np.array([[0, 1]]))
    array([[0.5, 0.5]])
    """
    m, k = neighbors.shape
    weights = np.empty((m, k))
    for block in split_rows(m, 8 * k * (2 * points.shape[1] + 3 * k), max_rows=2048):
        G = local_grams(points, queries[block], neighbors[block])
        size = np.trace(G, axis1=1, axis2=2)
        # Relative to the trace, so that tiny units do not underflow.
        G /= np.where(size > 0, size, 1.0)[:, None, None]
        G[:, np.arange(k), np.arange(k)] += reg
        w = np.linalg.solve(G, np.ones((len(G), k, 1)))[:, :, 0]
        weights[block] = w / w.sum(axis=1, keepdims=True)
    return weights


def interpolating_weights(
    points: NDArray[Any], queries: NDArray[Any], neighbors: NDArray[np.intp], reg: float = 1e-3
) -> Matrix:
    r"""The same for new points, with a penalty that grows with the distance.

    .. math:: \min_w \|x - \sum_j w_j x_j\|^2 + \text{reg} \cdot k \sum_j w_j^2 \|x - x_j\|^2,
        \qquad \sum_j w_j = 1 .

    Where all distances are equal that is the problem above. But a point that comes near one of the
    points, all different, gets, continuously, all weight there, and so its coordinates: the problem
    above would rebuild it from the others too, whenever these are more than dimensions.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [3.0]])
    >>> interpolating_weights(points, np.array([[1.0]]), np.array([[1, 0, 2]]))
    array([[1., 0., 0.]])
    """
    m, k = neighbors.shape
    weights = np.empty((m, k))
    for block in split_rows(m, 8 * k * (2 * points.shape[1] + 3 * k), max_rows=2048):
        G = local_grams(points, queries[block], neighbors[block])
        lengths = np.sqrt(np.einsum("ijj->ij", G))
        # With w_j = u_j / d_j the matrix is that of cosines; lengths count only relative.
        least = lengths.min(axis=1, keepdims=True)
        at = lengths == 0
        inverse = np.where(at.any(axis=1, keepdims=True), at, least / np.where(at, 1.0, lengths))
        unit = 1 / np.where(at, 1.0, lengths)
        C = G * unit[:, :, None] * unit[:, None]
        C[:, np.arange(k), np.arange(k)] = 1 + reg * k
        w = inverse * np.linalg.solve(C, inverse[:, :, None])[:, :, 0]
        weights[block] = w / w.sum(axis=1, keepdims=True)
    return weights


def local_grams(points: NDArray[Any], origins: NDArray[Any], neighbors: NDArray[np.intp]) -> Matrix:
    """Gram matrices (m, k, k) of the neighbours of each origin, seen from there."""
    differences = np.subtract(points[neighbors], origins[:, None], dtype=np.float64)
    return np.asarray(differences @ differences.transpose(0, 2, 1))


def weight_matrix(
    points: NDArray[Any], indptr: NDArray[np.intp], indices: NDArray[np.intp], reg: float = 1e-3
) -> sparse.csr_array:
    """The weights of all points on their neighbours in lists (CSR) that may differ in length."""
    n = len(points)
    data = np.empty(len(indices))
    counts = np.diff(indptr)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        places = indptr[rows, None] + np.arange(count)
        data[places] = barycentric_weights(points, points[rows], indices[places], reg)
    return sparse.csr_array((data, indices, indptr), shape=(n, n))


def reconstruction_matrix(weights: sparse.csr_array) -> sparse.csr_array:
    """E = (I - W)'(I - W), symmetric with ``E @ 1 = 0``."""
    residual = sparse.eye_array(weights.shape[0], format="csr") - weights
    return sparse.csr_array(residual.T @ residual)
