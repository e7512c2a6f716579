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
from nearfar.summaries.weighted_graph import compute_affinities, compute_edge_scale


class LPP(_LinearEmbedding):
    r"""Locality preserving projections: a linear map that keeps neighbors close to each other.

    .. math::
        \min_a \tfrac12 \sum_{ij} W_{ij} (a^T x_i - a^T x_j)^2 = a^T X^T L X a, \qquad
        a^T X^T D X a = 1 ,

    with the weights W, degrees D and Laplacian L of :class:`LaplacianEigenmaps`. The solutions are
    generalized eigenvectors of the smallest eigenvalues, on centered rows after PCA. The constant
    vector is not a linear function of centered rows, so no eigenvector is dropped.

    Use it if new points must be mapped by a cheap linear map, or as a metric that matches the
    clusters of the data. It cannot unfold surfaces.

    Cost: O(n² p) for the neighbors, O(n p² + p³) for the rest.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row.
    weights : {"heat", "uniform"}, default="heat"
        Edge weights: "heat" uses :math:`e^{-d^2/\tau}`, with a lower limit of 1e-6 so that rounding
        does not remove an edge; "uniform" uses 1.
    width : float or None, default=None
        Width of the kernel: :math:`\tau` in the edge weights. None uses the median squared edge
        length.
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
        Smallest eigenvalues, in ascending order. They are between 0 and 2.
    width_ : float
        Kernel width that the fit used.

    See Also
    --------
    LaplacianEigenmaps, NPE

    Notes
    -----
    ``pca="auto"`` is None if there are at least five rows per direction in which X varies, and 0.99
    otherwise. With fewer rows, directions of little variance fit noise.

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

    def _build_forms(self, points: Floats, graph: NeighborGraph) -> tuple[sparse.csr_array, Matrix]:
        lengths = graph.symmetrized()
        self.width_ = compute_edge_scale(lengths) if self.width is None else float(self.width)
        W = compute_affinities(lengths, self.weights, self.width_)
        degrees = np.asarray(W.sum(axis=1)).reshape(-1)
        return sparse.csr_array(sparse.diags_array(degrees) - W), degrees
