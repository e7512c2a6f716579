"""Locally linear embedding."""

from __future__ import annotations

from typing import ClassVar

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS, _LocalEmbedding
from nearfar.parameters import real
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.summaries.neighbor_graph import Disconnected


class LLE(_LocalEmbedding):
    r"""Locally linear embedding, which preserves the weights that reconstruct rows from neighbors.

    The weights :math:`W_{ij}` of each row's neighbors minimize :math:`\sum_i \|x_i -
    \sum_j W_{ij} x_j\|^2` subject to :math:`\sum_j W_{ij} = 1`. The embedding then solves

    .. math::
        \min_Y \sum_i \|y_i - \sum_j W_{ij} y_j\|^2 = \mathrm{tr}(Y^T (I-W)^T (I-W) Y), \qquad
        \sum_i y_i = 0, \quad \tfrac1n Y^T Y = I .

    The solution consists of the eigenvectors of the smallest eigenvalues, without the constant one.

    Use LLE to see the shape of a smooth surface in many dimensions at low cost. The surface need
    not be convex. LLE does not preserve scale: every coordinate has unit variance, so a long
    surface becomes a square. It fails on clusters (the embedding then shows little more than the
    cluster of each row) and if the noise is as large as the neighborhoods. More neighbors help
    against noise, fewer against shortcuts.

    Cost: O(n² p) for the neighbors, O(n k³ + n k² p) for the weights, and a sparse factorization
    of a matrix with about :math:`n k^2` entries: O(n^1.5) for surfaces, more in higher dimensions.
    It needs no n×n array.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row.
    reg : float, default=1e-3
        Regularization of the LLE weights. This fraction of the trace is added to the diagonal of
        each local Gram matrix, which makes the weights unique if there are more neighbors than
        dimensions.
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    eigenvalues_ : ndarray of shape (n_components,)
        Smallest eigenvalues of :math:`(I-W)^T(I-W)`, in ascending order. The eigenvalue 0 of the
        constant vector is omitted.

    See Also
    --------
    HessianLLE, NPE, LaplacianEigenmaps

    References
    ----------
    .. [1] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section
       4.3.1.
    .. [2] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.2.

    Examples
    --------
    LLE unrolls a spiral:

    >>> import numpy as np
    >>> from nearfar import LLE
    >>> t = np.linspace(3, 12, 200)
    >>> spiral = np.column_stack([t * np.cos(t), t * np.sin(t)])
    >>> Y = LLE(n_components=1).fit_transform(spiral)
    >>> steps = np.diff(Y[:, 0])
    >>> bool((steps > 0).all() or (steps < 0).all())
    True
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    settings = ({"n_neighbors": 10},)
    parameters: ClassVar = {**GRAPH_PARAMETERS, "reg": [real(0, open_low=True)]}

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        reg: float = 1e-3,
        on_disconnected: Disconnected = "link",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.on_disconnected = on_disconnected

    def _embed(self, points: Floats) -> Matrix:
        graph = self._build_connected_graph(points, self.n_neighbors)
        W = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        self.eigenvalues_, Y = self._find_smallest_eigenpairs(reconstruction_matrix(W))
        return Y
