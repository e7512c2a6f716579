"""Locality preserving projections."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from scipy import sparse

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.graph_embedding import AFFINITY_PARAMETERS, GRAPH_PARAMETERS
from nearfar.manifold.linear_embedding import PCA_PARAMETER, _LinearEmbedding
from nearfar.summaries.neighbor_graph import Disconnected, NeighborGraph
from nearfar.summaries.weighted_graph import affinities, edge_scale


class LPP(_LinearEmbedding):
    r"""Locality preserving projections: the linear map that keeps neighbours near each other.

    .. math::
        \min_a \tfrac12 \sum_{ij} W_{ij} (a^T x_i - a^T x_j)^2 = a^T X^T L X a, \qquad
        a^T X^T D X a = 1 ,

    with the weights W, degrees D and Laplacian L of :class:`LaplacianEigenmaps`: generalised
    eigenvectors of the smallest eigenvalues, on centred rows after PCA. The constant vector is no
    linear function of centred rows, so that none is left out.

    Use it where a map to new points must be linear and cheap, or as the metric that goes with the
    clusters of the data. It cannot unfold anything.

    Cost: O(n² p) for the neighbours, O(n p² + p³) for the rest.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row.
    weights : {"heat", "uniform"}, default="heat"
        Weights of the edges: :math:`e^{-d^2/\tau}`, never below 1e-6 so that no edge is lost to
        rounding; or 1.
    width : float or None, default=None
        Width of the kernel: :math:`\tau`; None is the median squared length of an edge.
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
        Ascending, from 0 to 2.
    width_ : float
        The width used.

    See Also
    --------
    LaplacianEigenmaps, NPE

    References
    ----------
    .. [1] He, X., P. Niyogi, "Locality preserving projections", Advances in Neural Information
       Processing Systems 16, 2003.
    .. [2] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 4.1.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LPP
    >>> lpp = LPP(n_neighbors=15).fit(load_wine().data)
    >>> lpp.components_.shape
    (2, 13)
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    settings = ({"n_neighbors": 15},)
    renamed: ClassVar = {"tau": "width", "tau_": "width_"}
    parameters: ClassVar = {**GRAPH_PARAMETERS, **AFFINITY_PARAMETERS, **PCA_PARAMETER}

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        weights: Literal["heat", "uniform"] = "heat",
        width: float | None = None,
        pca: float | Literal["auto"] | None = "auto",
        on_disconnected: Disconnected = "link",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.width = width
        self.pca = pca
        self.on_disconnected = on_disconnected

    def _forms(self, points: Floats, graph: NeighborGraph) -> tuple[sparse.csr_array, Matrix]:
        lengths = graph.symmetrized()
        self.width_ = edge_scale(lengths) if self.width is None else float(self.width)
        W = affinities(lengths, self.weights, self.width_)
        degrees = np.asarray(W.sum(axis=1)).reshape(-1)
        return sparse.csr_array(sparse.diags_array(degrees) - W), degrees
