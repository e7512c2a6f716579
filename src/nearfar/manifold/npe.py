"""Neighborhood preserving embedding."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from scipy import sparse

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS
from nearfar.manifold.linear_embedding import PCA_PARAMETER, _LinearEmbedding
from nearfar.parameters import real
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph


class NPE(_LinearEmbedding):
    r"""Neighborhood preserving embedding: a linear map that preserves the weights of LLE.

    .. math:: \min_a \tfrac1n a^T X^T (I-W)^T (I-W) X a, \qquad \tfrac1n a^T X^T X a = 1 ,

    with the weights :math:`W_{ij}` of :class:`LLE`, which reconstruct each row from its neighbors.
    The solutions are generalized eigenvectors of the smallest eigenvalues, on centered rows after
    PCA. NPE is the linear form of LLE, as :class:`LPP` is that of :class:`LaplacianEigenmaps`.

    Use it if new points must be mapped by a cheap linear map. Every component has unit variance.
    Directions in which the rows are smooth along the graph come first, noise last.

    Cost: O(n² p) for the neighbors, O(n k³ + n k² p) for the weights, O(n p² + p³) for the rest.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row.
    reg : float, default=1e-3
        Regularization of the LLE weights.
    pca : float, "auto" or None, default="auto"
        Fraction of the variance that the initial PCA keeps. None keeps every direction in which X
        varies. See Notes for "auto".
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection directions a, as rows.
    mean_ : ndarray of shape (n_features,)
        Mean of the distinct training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Fraction of each component's variance that the neighbors of a row do not explain, in
        ascending order.

    See Also
    --------
    LLE, LPP

    Notes
    -----
    ``pca="auto"`` is None if there are at least five rows per direction in which X varies, and 0.99
    otherwise. With fewer rows, directions of little variance fit noise.

    References
    ----------
    .. [1] He, X., D. Cai, S. Yan, H.-J. Zhang, "Neighborhood preserving embedding", International
       Conference on Computer Vision, 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import NPE
    >>> npe = NPE(n_neighbors=15).fit(load_wine().data)
    >>> npe.components_.shape
    (2, 13)
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    settings = ({"n_neighbors": 15},)
    parameters: ClassVar = {
        **GRAPH_PARAMETERS,
        **PCA_PARAMETER,
        "reg": [real(0, open_low=True)],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        reg: float = 1e-3,
        pca: float | Literal["auto"] | None = "auto",
        on_disconnected: Disconnected = "link",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.pca = pca
        self.on_disconnected = on_disconnected

    def _build_forms(self, points: Floats, graph: NeighborGraph) -> tuple[sparse.csr_array, Matrix]:
        weights = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        n = len(points)
        return reconstruction_matrix(weights) / n, np.full(n, 1 / n)
