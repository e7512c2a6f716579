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
    r"""Locally linear embedding: coordinates that are rebuilt by the weights that rebuild the rows.

    With weights :math:`W_{ij}` on the neighbours of each row that minimise :math:`\sum_i \|x_i -
    \sum_j W_{ij} x_j\|^2`, :math:`\sum_j W_{ij} = 1`,

    .. math::
        \min_Y \sum_i \|y_i - \sum_j W_{ij} y_j\|^2 = \mathrm{tr}(Y^T (I-W)^T (I-W) Y), \qquad
        \sum_i y_i = 0, \quad \tfrac1n Y^T Y = I ,

    solved by the eigenvectors of the smallest eigenvalues, the constant one left out.

    Use it to see the shape of a smooth surface in many dimensions, at little cost; it need not be
    convex. It knows no scale: every coordinate has unit variance, and long surfaces are squeezed to
    squares. It fails on clusters (the embedding then shows little but which cluster a row is of)
    and where noise is as large as the neighbourhoods; more neighbours help against noise, fewer
    against short cuts.

    Cost: O(n² p) for the neighbours, O(n k³ + n k² p) for the weights, and a sparse factorisation
    of a matrix with some :math:`n k^2` entries, O(n^1.5) for surfaces, more in more dimensions. No
    array of n×n.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row.
    reg : float, default=1e-3
        Regularisation of the weights of LLE: what is added to the diagonal of the local Gram
        matrices, as a share of their trace. With more neighbours than dimensions the weights would
        not be unique without.
    on_disconnected : {"link", "raise"}, default="link"
        What to do if the graph is not connected: add the shortest edges that connect it, with a
        warning, or raise.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training rows. Identical rows count as one.
    eigenvalues_ : ndarray of shape (n_components,)
        Of :math:`(I-W)^T(I-W)`, ascending, without the zero of the constant vector.

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
    A spiral is drawn out:

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
        graph = self._connected(points, self.n_neighbors)
        W = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        self.eigenvalues_, Y = self._bottom(reconstruction_matrix(W))
        return Y
