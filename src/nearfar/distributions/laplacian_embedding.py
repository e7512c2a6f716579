"""Laplacian embedding: leading eigenvectors of a normalised kernel between distributions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from scipy.sparse import csgraph, csr_array

from nearfar.arrays import Floats, Mask, Matrix
from nearfar.distributions.distribution_embedding import _DistributionEmbedding
from nearfar.distributions.objects import POINT_PARAMETERS, SHARED_PARAMETERS
from nearfar.notices import warn
from nearfar.parameters import Allowed, boolean, integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh, fix_signs
from nearfar.solvers.kernel_repair import quantile_width
from nearfar.solvers.spectral_step import (
    is_positive,
    leading_spectrum,
    second_axes,
    unit_rows,
    warn_of_empty,
)
from nearfar.state import State, floats, number

Graph = Literal["full", "knn", "radius"]

#: What the parameters of the kernel may be.
WIDTH_PARAMETERS: dict[str, list[Allowed]] = {
    "width": [none, real(0, open_low=True)],
    "quantile": [real(0, 1)],
}
# The last neighbour is as far as the reach, but for rounding.
_ROUNDING = 1e-9


class LaplacianEmbedding(_DistributionEmbedding):
    r"""Coordinates of distributions from the leading eigenvectors of their kernel.

    With :math:`K_{ij} = \exp(-d(\mathcal G_i, \mathcal G_j) / \sigma)` on the edges of a graph, one
    on the diagonal, and :math:`D = \mathrm{diag}(K 1)`,

    .. math:: \max_U \mathrm{tr}(U^T D^{-1/2} K D^{-1/2} U), \qquad U^T U = I ;

    row i of U is the place of object i. d is one of
    :func:`~nearfar.distributions.dissimilarity`, by default :math:`d_{BR}`.

    Use it for clusters of Gaussians, of sets of vectors or of points (by the Gaussians of their
    neighbourhoods), and with ``drop_first=True`` and ``graph="knn"`` to unroll a manifold. The
    first column belongs to the eigenvalue 1 and says only how central an object is; spectral
    clustering needs it. The embedding follows the width: one too small leaves each object alone,
    with all eigenvalues near 1.

    Cost: :math:`n (n-1) / 2` dissimilarities, of :math:`O(p^3)` each for the default; then
    :math:`O(n^3)` up to 1000 objects and some twenty products of :math:`O(n^2)` beyond. Memory:
    three n×n arrays.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    metric : str, default="bhattacharyya_riemann"
        The dissimilarity: as in :class:`EuclideanEmbedding`.
    width : float or None, default=None
        Width of the kernel: :math:`\sigma`; None takes a quantile of the dissimilarities. (The
        works give "bhattacharyya" the width 1, with which its kernel is positive definite.)
    quantile : float from 0 to 1, default=0.5
        Which quantile of the dissimilarities the width is; 0.1, 0.5 and 0.9 are what to try.
    graph : {"full", "knn", "radius"}, default="full"
        Edges between all objects; between each and its nearest, in one direction or the other; or
        between those not farther apart than ``radius``.
    n_graph_neighbors : int, default=10
        How many are nearest, for "knn".
    radius : float or None, default=None
        For "radius".
    zero_diagonal : bool, default=False
        Zeros on the diagonal of K, as spectral clustering had them first. Training objects that
        are recognised still get their own places; a new object as good as equal to one counts its
        similarity to it, and comes near, no nearer the closer it is.
    drop_first : bool, default=False
        Leave the first eigenvector out, and divide the others by it: the coordinates of Laplacian
        eigenmaps, :math:`\sqrt{\sum_j D_{jj}} \, u_{it} / \sqrt{D_{ii}}`.
    normalize : bool, default=False
        Bring the place of each object to length 1, as for spectral clustering.
    ridge : float or "auto", default="auto"
        What is added to variances: those of sets or points; see
        :meth:`nearfar.Gaussians.from_sets`.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        What is mixed into covariances: those of sets; see :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first: that of sets or points over all
        training vectors.
    n_neighbors : int, default=8
        Neighbours of each row; only if X holds points.
    form : {"smoothed", "raw"}, default="smoothed"
        Of the Gaussians of points: about the mean of the neighbourhood, or about the point.
    recognize : bool, default=True
        Whether new points that equal a training point are taken for it; they are then not their own
        neighbours.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. They compute dissimilarities.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_objects, n_components)
        The training objects.
    eigenvalues_ : ndarray of shape (n_components,)
        The largest first, at most 1. Where one is not positive the coordinate is zero.
    degrees_ : ndarray of shape (n_objects,)
        The diagonal of D.
    width_ : float
        :math:`\sigma`.
    gaussians_ : Gaussians
        Of the training objects, unless dissimilarities were given.

    See Also
    --------
    EuclideanEmbedding, SetEmbedding, LaplacianEigenmaps

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       sections 5.7 and 5.9 (with the means over training objects in the extension).
    .. [2] Y. Bengio et al., "Out-of-sample extensions for LLE, Isomap, MDS, Eigenmaps, and Spectral
       Clustering", Advances in Neural Information Processing Systems 16, 2004.

    Examples
    --------
    Two groups of Gaussians, which differ in their covariances alone:

    >>> import numpy as np
    >>> from nearfar import Gaussians, LaplacianEmbedding
    >>> flat, round_ = np.diag([9.0, 1.0]), np.diag([3.0, 3.0])
    >>> gaussians = Gaussians(np.zeros((5, 2)), [flat, 1.1 * flat, round_, 1.1 * round_, round_])
    >>> places = LaplacianEmbedding(quantile=0.2).fit_transform(gaussians)
    >>> np.sign(places[:, 1]).astype(int).tolist()
    [1, 1, -1, -1, -1]
    """

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
        form: Literal["smoothed", "raw"] = "smoothed",
        recognize: bool = True,
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
        self.form = form
        self.recognize = recognize
        self.n_jobs = n_jobs

    def _embed(self, D: Matrix) -> Matrix:
        n = len(D)
        self.width_ = self._chosen_width(D)
        self._reach = self._reaches(D)
        edges = self._edges(D, self._reach)
        n_parts = 1 if edges is None else self._parts(edges)
        K = np.exp(D / -self.width_)
        if edges is not None:
            K[~edges] = 0.0
        np.fill_diagonal(K, 0.0 if self.zero_diagonal else 1.0)
        self.degrees_ = K.sum(axis=1)
        self._check_degrees()
        roots = np.sqrt(self.degrees_)
        K /= roots
        K /= roots[:, None]
        # Lanczos's method may miss one of several eigenvalues 1.
        wanted = min(self.n_components + self.drop_first, n)
        if n_parts > 1:
            values, vectors = descending_eigh(K, wanted)
            vectors = fix_signs(vectors.T).T
        else:
            values, vectors, _ = leading_spectrum(K, wanted, positive=True)
        skipped = slice(int(self.drop_first), None)
        values, vectors = self._padded(values[skipped], vectors[:, skipped])
        warn_of_empty("LaplacianEmbedding", values)
        self.eigenvalues_ = values
        self._axes = second_axes(values, vectors) / roots[:, None]
        places = np.where(is_positive(values), vectors, 0.0)
        if self.drop_first:
            places *= np.sqrt(self.degrees_.sum()) / roots[:, None]
        return unit_rows(places) if self.normalize else places

    def transform(self, X: Any) -> Floats:
        r"""Map new objects by Nyström's formula,

        .. math:: y_t(x) = \frac{1}{\lambda_t} \sum_i u_{it} \frac{K(x, i)}
            {\sqrt{\sum_j K(x, j)} \sqrt{\sum_j K(i, j)}} ,

        all sums being over training objects, so that the place of an object does not depend on the
        others that come with it. On a graph a new object has the edges that it would have as a
        training object. Training objects get their own places. An object without edges gets zeros.

        Parameters
        ----------
        X : as in ``fit``, or Gaussians
            New objects; given dissimilarities are theirs (rows) to the training objects.

        Returns
        -------
        ndarray of shape (n_new, n_components)
            In the dtype of X.
        """
        return self._transform(X)

    def _place(self, D: Matrix) -> Matrix:
        rows, nearest = np.arange(len(D)), D.argmin(axis=1)
        same = D[rows, nearest] == 0
        edges = self._edges(D, self._reaches(D, same))
        exponents = D / -self.width_
        if edges is not None:
            exponents[~edges] = -np.inf
        if self.zero_diagonal:
            exponents[rows[same], nearest[same]] = -np.inf
        # Far objects have similarities that underflow, but not beside the largest of them.
        largest = exponents.max(axis=1, keepdims=True)
        largest[~np.isfinite(largest)] = 0.0
        K = np.exp(exponents - largest)
        degrees = K.sum(axis=1, keepdims=True)
        degrees[degrees == 0] = 1.0
        placed = K @ self._axes
        if self.normalize:
            return unit_rows(placed)
        if self.drop_first:
            return np.asarray(placed * (np.sqrt(self.degrees_.sum()) / degrees))
        return np.asarray(placed * (np.exp(largest / 2) / np.sqrt(degrees)))

    # ------------------------------------------------------------------ kernel and graph

    def _chosen_width(self, D: Matrix) -> float:
        if self.width is not None:
            return float(self.width)
        if not D.any():
            return 1.0  # all objects are the same, at any width
        return quantile_width(D, self.quantile)

    def _reaches(self, D: Matrix, same: Mask | None = None) -> Matrix:
        """How far the edges go that each row of D asks for itself.

        One zero of a row is the object itself: in all rows, or where ``same`` says so.
        """
        if self.graph == "full":
            return np.zeros(len(D))
        if self.graph == "radius":
            if self.radius is None:
                raise ValueError('LaplacianEmbedding: graph="radius" needs a radius; got None.')
            return np.full(len(D), float(self.radius))
        k = min(self.n_graph_neighbors, self._n_objects - 1)
        ordered = np.partition(D, [k - 1, k], axis=1)
        itself = np.ones(len(D), dtype=bool) if same is None else same
        return np.where(itself, ordered[:, k], ordered[:, k - 1])

    def _edges(self, D: Matrix, reach: Matrix) -> Mask | None:
        """Whether either end of a pair asks for its edge; None if all have one."""
        if self.graph == "full":
            return None
        most = np.maximum(reach[:, None], self._reach) * (1 + _ROUNDING)
        return np.asarray(most >= D)

    def _parts(self, edges: Mask) -> int:
        n_parts = int(csgraph.connected_components(csr_array(edges), directed=False)[0])
        if n_parts > 1:
            how = "n_graph_neighbors" if self.graph == "knn" else "radius"
            warn(
                f"LaplacianEmbedding: the graph falls into {n_parts} parts, each with an "
                f"eigenvalue 1 of its own. Raise {how} unless these are the clusters sought.",
            )
        return n_parts

    def _check_degrees(self) -> None:
        alone = self.degrees_ == 0
        if alone.any():
            raise ValueError(
                f"Object {int(np.argmax(alone))} is similar to no other: all its edges are zero. "
                "Give a larger width or radius, or zero_diagonal=False."
            )
