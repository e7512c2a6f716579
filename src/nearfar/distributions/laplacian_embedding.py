"""LaplacianEmbedding: leading eigenvectors of a normalized kernel between distributions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from scipy.sparse import csgraph, csr_array

from nearfar.arrays import Floats, Mask, Matrix
from nearfar.distributions.distribution_embedding import _DistributionEmbedding
from nearfar.distributions.objects import POINT_PARAMETERS, SHARED_PARAMETERS
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, boolean, integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh, fix_signs
from nearfar.solvers.kernel_repair import quantile_width
from nearfar.solvers.spectral_step import (
    is_positive,
    leading_spectrum,
    second_axes,
    unit_rows,
    warn_about_zero_coordinates,
)
from nearfar.state import State, floats, number

Graph = Literal["full", "knn", "radius"]

#: Allowed values of the parameters ``width`` and ``quantile``.
WIDTH_PARAMETERS: dict[str, list[AllowedValues]] = {
    "width": [none, real(0, open_low=True)],
    "quantile": [real(0, 1)],
}
# Relative tolerance for the lengths of edges. The farthest neighbor of an object is at the largest
# allowed distance, up to rounding errors.
_ROUNDING = 1e-9


class LaplacianEmbedding(_DistributionEmbedding):
    r"""Coordinates of distributions from the leading eigenvectors of a normalized kernel.

    With the kernel :math:`K_{ij} = \exp(-d(\mathcal G_i, \mathcal G_j) / \sigma)` on the edges of a
    graph, ones on its diagonal, and :math:`D = \mathrm{diag}(K 1)`, the embedding U solves

    .. math:: \max_U \mathrm{tr}(U^T D^{-1/2} K D^{-1/2} U), \qquad U^T U = I .

    Row i of U contains the coordinates of object i. d is one of
    :func:`~nearfar.distributions.dissimilarity`, by default :math:`d_{BR}`.

    Use it to find clusters of Gaussians, of sets of vectors or of points (by the Gaussians of their
    neighborhoods), and with ``drop_first=True`` and ``graph="knn"`` to unfold a manifold. The first
    column belongs to the eigenvalue 1 and depends only on the degrees of the objects, but spectral
    clustering needs it. The embedding depends on the width: with a width that is too small, each
    object is isolated and all eigenvalues are near 1.

    Cost: :math:`n (n-1) / 2` dissimilarities, of :math:`O(p^3)` each for the default, then
    :math:`O(n^3)` for up to 1000 objects, and about twenty products of :math:`O(n^2)` for more.
    Memory: three n×n arrays.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    metric : str, default="bhattacharyya_riemann"
        Dissimilarity d: any value that :class:`EuclideanEmbedding` accepts.
    width : float or None, default=None
        Width of the kernel: :math:`\sigma`. None uses a quantile of the dissimilarities. [1]_ uses
        1 for "bhattacharyya", for which the kernel is positive definite.
    quantile : float from 0 to 1, default=0.5
        Quantile of the dissimilarities that is used as the width if ``width=None``. Useful values
        to try are 0.1, 0.5 and 0.9.
    graph : {"full", "knn", "radius"}, default="full"
        Edges: "full" connects all objects, "knn" connects two objects if one is among the nearest
        neighbors of the other, and "radius" connects objects that are at most `radius` apart.
    n_graph_neighbors : int, default=10
        Number of nearest neighbors for ``graph="knn"``.
    radius : float or None, default=None
        Maximum dissimilarity of connected objects. Required for ``graph="radius"``.
    zero_diagonal : bool, default=False
        If True, the diagonal of K is zero, as in the original spectral clustering. See Notes for
        the effect on new objects.
    drop_first : bool, default=False
        If True, drop the first eigenvector and divide the other eigenvectors by it. The results are
        the coordinates of Laplacian eigenmaps, :math:`\sqrt{\sum_j D_{jj}} \, u_{it} /
        \sqrt{D_{ii}}`.
    normalize : bool, default=False
        If True, scale the coordinates of each object to unit length, as in spectral clustering.
    ridge : float or "auto", default="auto"
        Value added to the variances. It is used for sets and points, in squared units of X. See
        :meth:`nearfar.Gaussians.from_sets`.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        Shrinkage of the covariances. Only used for sets. See :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first. The standard deviation is computed over
        all training points, or over the vectors of all training sets.
    n_neighbors : int, default=8
        Number of neighbors per row. Only used if X contains points. At most n_samples - 2, or
        n_samples - 1 with ``gaussian_center="point"``.
    gaussian_center : {"mean", "point"}, default="mean"
        Center of each point's Gaussian: "mean" uses the mean of the neighborhood, and "point" uses
        the point itself.
    match_training_points : bool, default=True
        If True, a new point that is equal to a training point, up to rounding, is treated as that
        training point, so that it is not its own neighbor.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads compute the
        dissimilarities.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_objects, n_components)
        Coordinates of the training objects.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues in descending order. All are at most 1. Coordinates for eigenvalues that are not
        positive are zero.
    degrees_ : ndarray of shape (n_objects,)
        The diagonal of D.
    width_ : float
        The width :math:`\sigma`.
    gaussians_ : Gaussians
        Gaussians of the training objects. Not available for ``metric="precomputed"``.

    See Also
    --------
    EuclideanEmbedding, SetEmbedding, LaplacianEigenmaps

    Notes
    -----
    With ``zero_diagonal=True``, a training object keeps its coordinates in ``transform``. For a new
    object that is almost equal to a training object, the formula includes the similarity between
    the two objects. For the training object, it does not include the similarity of the object to
    itself. Therefore the coordinates of the two objects are close, but do not become equal in the
    limit.

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       sections 5.7 and 5.9 (with the means over training objects in the extension).
    .. [2] Y. Bengio et al., "Out-of-sample extensions for LLE, Isomap, MDS, Eigenmaps, and Spectral
       Clustering", Advances in Neural Information Processing Systems 16, 2004.

    Examples
    --------
    Two groups of Gaussians that differ only in their covariances:

    >>> import numpy as np
    >>> from nearfar import Gaussians, LaplacianEmbedding
    >>> flat, round_ = np.diag([9.0, 1.0]), np.diag([3.0, 3.0])
    >>> gaussians = Gaussians(np.zeros((5, 2)), [flat, 1.1 * flat, round_, 1.1 * round_, round_])
    >>> coordinates = LaplacianEmbedding(quantile=0.2).fit_transform(gaussians)
    >>> np.sign(coordinates[:, 1]).astype(int).tolist()
    [1, 1, -1, -1, -1]
    """

    renamed_values: ClassVar = {"gaussian_center": {"smoothed": "mean", "raw": "point"}}
    renamed: ClassVar = {"recognize": "match_training_points", "form": "gaussian_center"}
    state = State(
        {"_reach": floats("n"), "degrees_": floats("n"), "width_": number(0, open_low=True)}
    )
    parameters: ClassVar = {
        "n_components": [integer(1)],
        "graph": [one_of("full", "knn", "radius")],
        "n_graph_neighbors": [integer(1)],
        "radius": [none, real(0, open_low=True)],
        "zero_diagonal": [boolean],
        "drop_first": [boolean],
        "normalize": [boolean],
        **WIDTH_PARAMETERS,
        **SHARED_PARAMETERS,
        **POINT_PARAMETERS,
    }

    n_components: int

    def __init__(
        self,
        n_components: int = 2,
        *,
        metric: str = "bhattacharyya_riemann",
        width: float | None = None,
        quantile: float = 0.5,
        graph: Graph = "full",
        n_graph_neighbors: int = 10,
        radius: float | None = None,
        zero_diagonal: bool = False,
        drop_first: bool = False,
        normalize: bool = False,
        ridge: float | Literal["auto"] = "auto",
        shrinkage: float | Literal["ledoit_wolf", "oas"] | None = None,
        standardize: bool = False,
        n_neighbors: int = 8,
        gaussian_center: Literal["mean", "point"] = "mean",
        match_training_points: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.metric = metric
        self.width = width
        self.quantile = quantile
        self.graph = graph
        self.n_graph_neighbors = n_graph_neighbors
        self.radius = radius
        self.zero_diagonal = zero_diagonal
        self.drop_first = drop_first
        self.normalize = normalize
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.n_neighbors = n_neighbors
        self.gaussian_center = gaussian_center
        self.match_training_points = match_training_points
        self.n_jobs = n_jobs

    def _embed(self, D: Matrix) -> Matrix:
        n = len(D)
        self.width_ = self._select_width(D)
        self._reach = self._compute_reach(D)
        edges = self._find_edges(D, self._reach)
        n_graph_components = 1 if edges is None else self._count_graph_components(edges)
        K = np.exp(D / -self.width_)
        if edges is not None:
            K[~edges] = 0.0
        np.fill_diagonal(K, 0.0 if self.zero_diagonal else 1.0)
        self.degrees_ = K.sum(axis=1)
        self._check_degrees()
        roots = np.sqrt(self.degrees_)
        K /= roots
        K /= roots[:, None]
        # With several connected components, the eigenvalue 1 is repeated, and the Lanczos method
        # may miss one of its eigenvectors.
        n_eigenvalues = min(self.n_components + self.drop_first, n)
        if n_graph_components > 1:
            values, vectors = descending_eigh(K, n_eigenvalues)
            vectors = fix_signs(vectors.T).T
        else:
            values, vectors, _ = leading_spectrum(K, n_eigenvalues, positive=True)
        selected = slice(int(self.drop_first), None)
        values, vectors = self._pad_with_zeros(values[selected], vectors[:, selected])
        warn_about_zero_coordinates("LaplacianEmbedding", values)
        self.eigenvalues_ = values
        self._axes = second_axes(values, vectors) / roots[:, None]
        coordinates = np.where(is_positive(values), vectors, 0.0)
        if self.drop_first:
            coordinates *= np.sqrt(self.degrees_.sum()) / roots[:, None]
        return unit_rows(coordinates) if self.normalize else coordinates

    def transform(self, X: Any) -> Floats:
        r"""Embed new objects by Nyström's formula.

        .. math:: y_t(x) = \frac{1}{\lambda_t} \sum_i u_{it} \frac{K(x, i)}
            {\sqrt{\sum_j K(x, j)} \sqrt{\sum_j K(i, j)}} .

        All sums are over training objects, so the coordinates of an object do not depend on the
        other objects in X. In a graph, a new object has the edges that it would have as a training
        object. For a training object, the result is its row of ``embedding_``. The coordinates of
        an object without edges are zero.

        Parameters
        ----------
        X : as in ``fit``, or Gaussians
            New objects. With ``metric="precomputed"``, X contains the dissimilarities of new
            objects (rows) to training objects (columns).

        Returns
        -------
        ndarray of shape (n_new, n_components)
            Coordinates of the objects, in the dtype of X.
        """
        return self._transform(X)

    def _embed_new(self, D: Matrix) -> Matrix:
        rows, nearest = np.arange(len(D)), D.argmin(axis=1)
        is_training = D[rows, nearest] == 0
        edges = self._find_edges(D, self._compute_reach(D, is_training))
        exponents = D / -self.width_
        if edges is not None:
            exponents[~edges] = -np.inf
        if self.zero_diagonal:
            exponents[rows[is_training], nearest[is_training]] = -np.inf
        # Similarities to distant objects can underflow, so the similarities of each row are divided
        # by the largest one.
        largest = exponents.max(axis=1, keepdims=True)
        largest[~np.isfinite(largest)] = 0.0
        K = np.exp(exponents - largest)
        degrees = K.sum(axis=1, keepdims=True)
        degrees[degrees == 0] = 1.0
        coordinates = K @ self._axes
        if self.normalize:
            return unit_rows(coordinates)
        if self.drop_first:
            return np.asarray(coordinates * (np.sqrt(self.degrees_.sum()) / degrees))
        return np.asarray(coordinates * (np.exp(largest / 2) / np.sqrt(degrees)))

    def _select_width(self, D: Matrix) -> float:
        if self.width is not None:
            return float(self.width)
        if not D.any():
            # All objects are equal, so the width has no effect.
            return 1.0
        return quantile_width(D, self.quantile)

    def _compute_reach(self, D: Matrix, is_training: Mask | None = None) -> Matrix:
        """Return the reach of the object in each row of D: the largest dissimilarity of its edges.

        If `is_training` is None, or True for a row, this row contains the dissimilarity of the
        object to itself.
        """
        if self.graph == "full":
            return np.zeros(len(D))
        if self.graph == "radius":
            if self.radius is None:
                raise ValueError(
                    'LaplacianEmbedding: graph="radius" needs a number for radius; got None.'
                )
            return np.full(len(D), float(self.radius))
        k = min(self.n_graph_neighbors, self._n_objects - 1)
        ordered = np.partition(D, [k - 1, k], axis=1)
        includes_self = np.ones(len(D), dtype=bool) if is_training is None else is_training
        return np.where(includes_self, ordered[:, k], ordered[:, k - 1])

    def _find_edges(self, D: Matrix, reach: Matrix) -> Mask | None:
        """Return a mask of the pairs that are within the reach of either object.

        The result is None for a full graph.
        """
        if self.graph == "full":
            return None
        max_dissimilarities = np.maximum(reach[:, None], self._reach) * (1 + _ROUNDING)
        return np.asarray(max_dissimilarities >= D)

    def _count_graph_components(self, edges: Mask) -> int:
        n_graph_components = int(csgraph.connected_components(csr_array(edges), directed=False)[0])
        if n_graph_components > 1:
            parameter = "n_graph_neighbors" if self.graph == "knn" else "radius"
            warn(
                f"LaplacianEmbedding: the graph has {n_graph_components} connected components, "
                f"each with its own eigenvalue 1. Increase {parameter} unless these components "
                "are the clusters.",
            )
        return n_graph_components

    def _check_degrees(self) -> None:
        is_isolated = self.degrees_ == 0
        if is_isolated.any():
            raise ValueError(
                f"Object {int(np.argmax(is_isolated))} has zero similarity to all other objects. "
                "Pass a larger width or radius, or zero_diagonal=False."
            )
