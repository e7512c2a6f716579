"""Neighbourhood preserving embedding."""

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
    r"""Neighbourhood preserving embedding: the linear map that is rebuilt by the weights of LLE.

    .. math:: \min_a \tfrac1n a^T X^T (I-W)^T (I-W) X a, \qquad \tfrac1n a^T X^T X a = 1 ,

    with the weights :math:`W_{ij}` of :class:`LLE` that rebuild each row from its neighbours:
    generalised eigenvectors of the smallest eigenvalues, on centred rows after PCA. It is to LLE
    what :class:`LPP` is to :class:`LaplacianEigenmaps`.

    Use it where a map to new points must be linear and cheap; every component has unit variance.
    Directions in which the rows are smooth along the graph come first, noise last.

    Cost: O(n² p) for the neighbours, O(n k³ + n k² p) for the weights, O(n p² + p³) for the rest.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row.
    reg : float, default=1e-3
        Regularisation of the weights of LLE.
    pca : float, "auto" or None, default="auto"
        Share of the variance that is kept first; None keeps every direction that has any. "auto"
        is None where there are five rows and more for each direction in which X varies, else 0.99:
        with few rows, directions of little variance can be fitted to anything.
    on_disconnected : {"link", "raise"}, default="link"
        What to do if the graph is not connected: add the shortest edges that connect it, with a
        warning, or raise.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The directions a as rows.
    mean_ : ndarray of shape (n_features,)
        Mean of the distinct training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        The share of the variance of each component that neighbours do not explain, ascending.

    See Also
    --------
    LLE, LPP

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

    def _forms(self, points: Floats, graph: NeighborGraph) -> tuple[sparse.csr_array, Matrix]:
        weights = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        n = len(points)
        return reconstruction_matrix(weights) / n, np.full(n, 1 / n)
