"""AugmentedSpectralClustering: spectral clustering of points by their neighborhoods."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.base import LearnerTags
from nearfar.distributions.objects import POINT_PARAMETERS
from nearfar.distributions.spectral_clusters import CLUSTER_PARAMETERS, SpectralClusters


class AugmentedSpectralClustering(SpectralClusters):
    r"""Spectral clustering of points that compares the Gaussians of their neighborhoods.

    Each point is mapped to the "augmented space" of means and covariances,
    :math:`x_i \mapsto \mathcal G_i = (\hat\mu_i, \hat\Sigma_i + \gamma I)`: the mean and covariance
    of the point and its nearest neighbors (:meth:`nearfar.Gaussians.from_neighborhoods`). With the
    kernel :math:`K_{ij} = \exp(-d(\mathcal G_i, \mathcal G_j) / \sigma)` and
    :math:`D = \mathrm{diag}(K 1)`, the relaxed normalized cut is

    .. math:: \max_U \mathrm{tr}(U^T D^{-1/2} K D^{-1/2} U), \qquad U^T U = I .

    The rows of U are scaled to unit length. Then k-means assigns them to clusters.

    Use it if clusters cross or touch, but differ in the shape of their neighborhoods. Scale the
    features first, because the neighbors and the ridge depend on their units. (In [1]_, much of
    the improvement over ordinary spectral clustering is due to scaling.)

    Cost: :math:`O(n^2 p)` for the neighbors, :math:`n (n-1) / 2` dissimilarities of :math:`O(p^3)`
    each for the default, eigenvectors of an n×n array, and k-means.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    n_neighbors : int, default=8
        Number of neighbors per row. The row itself is not counted. At most n_samples - 2, or
        n_samples - 1 with ``gaussian_center="point"``. [1]_ uses 5 to 16.
    gaussian_center : {"mean", "point"}, default="mean"
        Center of each point's Gaussian: "mean" uses the mean of the neighborhood, and "point" uses
        the point itself.
    metric : str, default="bhattacharyya_riemann"
        Dissimilarity d: any value that :class:`EuclideanEmbedding` accepts, except "precomputed".
    width : float or None, default=None
        Width of the kernel: :math:`\sigma`. None uses a quantile of the dissimilarities.
    quantile : float from 0 to 1, default=0.5
        Quantile of the dissimilarities that is used as the width if ``width=None``.
    ridge : float or "auto", default="auto"
        Value added to the variances: :math:`\gamma`, in squared units of X. [1]_ uses 1.
    standardize : bool, default=False
        Divide each feature by its standard deviation first.
    match_training_points : bool, default=True
        If True, a new point that is equal to a training point, up to rounding, is treated as that
        training point, so that it is not its own neighbor.
    n_init : int, default=10
        Number of starts. k-means keeps the best result.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The starts of k-means are random.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads compute the
        dissimilarities.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster index of each training point, counted from 0.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Coordinates of the training points, scaled to unit length.
    eigenvalues_ : ndarray of shape (n_clusters,)
        Leading eigenvalues of the normalized kernel, in descending order. All are at most 1.
    cluster_centers_ : ndarray of shape (n_clusters, n_clusters)
        Cluster centers in the coordinates of ``transform``.
    width_ : float
        The width :math:`\sigma`.
    gaussians_ : Gaussians
        Gaussians of the training points.

    See Also
    --------
    SpectralClustering, SetSpectralClustering, MVEMClassifier

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       sections 5.3, 5.7 and 5.11.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import AugmentedSpectralClustering
    >>> X, y = load_wine(return_X_y=True)
    >>> clusters = AugmentedSpectralClustering(n_clusters=3, standardize=True).fit(X)
    >>> matched = [max((clusters.labels_[y == k] == c).sum() for c in range(3)) for k in range(3)]
    >>> bool(sum(matched) / len(y) > 0.94)
    True
    """

    learner_tags = LearnerTags(reads="instances", role="clusterer", supervised=False)
    renamed_values: ClassVar = {"gaussian_center": {"smoothed": "mean", "raw": "point"}}
    renamed: ClassVar = {"recognize": "match_training_points", "form": "gaussian_center"}
    parameters: ClassVar = {
        **{name: kinds for name, kinds in CLUSTER_PARAMETERS.items() if name != "shrinkage"},
        **POINT_PARAMETERS,
    }

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        n_neighbors: int = 8,
        gaussian_center: Literal["mean", "point"] = "mean",
        metric: str = "bhattacharyya_riemann",
        width: float | None = None,
        quantile: float = 0.5,
        ridge: float | Literal["auto"] = "auto",
        standardize: bool = False,
        match_training_points: bool = True,
        n_init: int = 10,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.gaussian_center = gaussian_center
        self.metric = metric
        self.width = width
        self.quantile = quantile
        self.ridge = ridge
        self.standardize = standardize
        self.match_training_points = match_training_points
        self.n_init = n_init
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Cluster the training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : ignored
            Present for API consistency.

        Returns
        -------
        AugmentedSpectralClustering
            The fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        return self._fit_clusters(rows, len(rows))

    def _check_input(self, X: Any) -> Any:
        return self._check_X(X, reset=False)
