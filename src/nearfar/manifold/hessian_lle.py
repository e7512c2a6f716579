"""Hessian locally linear embedding."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS, _LocalEmbedding
from nearfar.parameters import integer, none, real
from nearfar.solvers.barycentric import compute_local_grams
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph


class HessianLLE(_LocalEmbedding):
    r"""Hessian eigenmaps: an embedding whose coordinates are as linear as possible on the surface.

    .. math:: \min_Y \sum_i \sum_t \|H_i\, y^{(t)}_{N(i)}\|^2, \qquad
        \sum_i y_i = 0, \quad \tfrac1n Y^T Y = I ,

    where :math:`H_i` estimates the second derivatives of a function from its values on the
    neighbors of row i. In tangent coordinates t from local PCA, :math:`H_i` is the component of the
    quadratic monomials :math:`t_a t_b` orthogonal to 1 and t. On a surface that can be flattened,
    the functions without curvature are its coordinates, which the method recovers.

    Use it instead of :class:`LLE` for surfaces that can be flattened without stretching, with or
    without holes, densely sampled and with little noise. There it is exact up to a linear map. It
    needs more than :math:`q(q+3)/2` neighbors for q components. Second derivatives are hard to
    estimate, so noise and few rows harm it more than other methods.

    Cost: O(n² p) for the neighbors, O(n (k² p + k³ + k q⁴)) for the estimators, and a sparse
    factorization as in LLE. It needs no n×n array.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output: q. The tangent spaces have the same dimension.
    n_neighbors : int or None, default=None
        Number of neighbors per row. None uses :math:`q(q+3)/2 + 5`, which is 10 for two components,
        or fewer if there are not enough rows.
    reg : float, default=1e-3
        Regularization of the LLE weights. ``transform`` uses these weights to place new points.
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    eigenvalues_ : ndarray of shape (n_components,)
        Smallest eigenvalues of the sum of :math:`H_i^T H_i`, in ascending order. The eigenvalue 0
        of the constant vector is omitted.
    n_neighbors_ : int
        Number of neighbors that the fit used.

    See Also
    --------
    LLE, Isomap

    References
    ----------
    .. [1] Donoho, D. L., C. Grimes, "Hessian eigenmaps: Locally linear embedding techniques for
       high-dimensional data", PNAS 100, 2003.
    .. [2] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.9.

    Examples
    --------
    HessianLLE flattens a rolled sheet: a linear map takes the embedding to the true coordinates.

    >>> import numpy as np
    >>> from nearfar import HessianLLE
    >>> sheet = np.random.default_rng(0).uniform(size=(500, 2)) * [3, 1]
    >>> rolled = np.column_stack([np.cos(sheet[:, 0]), np.sin(sheet[:, 0]), sheet[:, 1]])
    >>> Y = HessianLLE().fit_transform(rolled)
    >>> flat = sheet - sheet.mean(axis=0)
    >>> residual = flat - Y @ np.linalg.lstsq(Y, flat, rcond=None)[0]
    >>> bool(np.linalg.norm(residual) < 0.01 * np.linalg.norm(flat))
    True
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    parameters: ClassVar = {
        **GRAPH_PARAMETERS,
        "n_neighbors": [none, integer(2)],
        "reg": [real(0, open_low=True)],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int | None = None,
        reg: float = 1e-3,
        on_disconnected: Disconnected = "link",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.on_disconnected = on_disconnected

    def _embed(self, points: Floats) -> Matrix:
        q, n = self.n_components, len(points)
        min_neighbors = q * (q + 3) // 2
        k = min_neighbors + 5 if self.n_neighbors is None else self.n_neighbors
        if k <= min_neighbors:
            raise ValueError(
                f"n_neighbors={k} is too small: HessianLLE needs more than q(q+3)/2 = "
                f"{min_neighbors} neighbors for n_components={q}. Increase n_neighbors."
            )
        if self.n_neighbors is None:
            k = max(min(k, n - 1), min_neighbors + 1)
        self.n_neighbors_ = k
        graph = self._build_connected_graph(points, k)
        self.eigenvalues_, Y = self._find_smallest_eigenpairs(
            build_hessian_matrix(points, graph, q)
        )
        return Y


def build_hessian_matrix(points: Floats, graph: NeighborGraph, q: int) -> sparse.csr_array:
    r"""Return the sparse matrix S, which is the sum of :math:`H_i^T H_i` over all rows i.

    S maps the constant vector to zero. The tangent spaces have q dimensions.
    """
    n, n_pairs = len(points), q * (q + 1) // 2
    counts = np.diff(graph.indptr)
    blocks = []
    # Edges that were added to link the graph make some neighbor lists longer than others.
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        neighbors = graph.indices[graph.indptr[rows, None] + np.arange(count)]
        H = np.empty((len(rows), n_pairs, count))
        size = 8 * count * (2 * points.shape[1] + 4 * count)
        for block in split_rows(len(rows), size, max_rows=2048):
            H[block] = _estimate_local_hessians(points, neighbors[block], q)
        columns = np.broadcast_to(neighbors[:, None], H.shape)
        indptr = count * np.arange(len(rows) * n_pairs + 1)
        blocks.append(
            sparse.csr_array((H.ravel(), columns.ravel(), indptr), (len(rows) * n_pairs, n))
        )
    stacked = sparse.vstack(blocks, format="csr")
    return sparse.csr_array(stacked.T @ stacked)


def _estimate_local_hessians(points: Floats, neighbors: NDArray[np.intp], q: int) -> Matrix:
    """Return, for each neighborhood, a matrix that estimates second derivatives.

    The result has shape (m, q(q+1)/2, k) for m neighborhoods of k rows. Each matrix is applied to
    the k values of a function. The rows of each matrix are orthonormal.
    """
    m, k = neighbors.shape
    centers = np.asarray(points[neighbors].mean(axis=1, dtype=np.float64))
    G = compute_local_grams(points, centers, neighbors)
    size = np.trace(G, axis1=1, axis2=2)
    _, axes = np.linalg.eigh(G / np.where(size > 0, size, 1.0)[:, None, None])
    tangent = axes[:, :, : -q - 1 : -1]
    first, second = np.triu_indices(q)
    quadratic = tangent[:, :, first] * tangent[:, :, second]
    basis, _ = np.linalg.qr(np.concatenate([np.ones((m, k, 1)), tangent, quadratic], axis=2))
    return np.asarray(basis[:, :, q + 1 :].transpose(0, 2, 1))
