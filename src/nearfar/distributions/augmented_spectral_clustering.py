"""Spectral clustering of points through the augmented space."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.base import LearnerTags
from nearfar.distributions.objects import POINT_PARAMETERS
from nearfar.distributions.spectral_clusters import CLUSTER_PARAMETERS, SpectralClusters


class AugmentedSpectralClustering(SpectralClusters):
    r"""Spectral clustering of points by the Gaussians of their neighbourhoods.

    Each point goes to the augmented space of pairs of a point and a covariance,
    :math:`x_i \mapsto \mathcal G_i = (\hat\mu_i, \hat\Sigma_i + \gamma I)`, mean and covariance of
    the point and its nearest neighbours (:meth:`nearfar.Gaussians.from_neighborhoods`). With
    :math:`K_{ij} = \exp(-d(\mathcal G_i, \mathcal G_j) / \sigma)` and :math:`D = \mathrm{diag}(K
    1)`, the relaxed normalised cut

    .. math:: \max_U \mathrm{tr}(U^T D^{-1/2} K D^{-1/2} U), \qquad U^T U = I ,

    whose rows are brought to unit length; k-means then finds the clusters.

    Use it where clusters cross or touch but differ in the shape of their neighbourhoods. Scale the
    features first: the distance of neighbours and the ridge follow their units. (Where it does
    better than ordinary spectral clustering in the works, much of the difference is scaling.)

    Cost: :math:`O(n^2 p)` for neighbours, :math:`n (n-1) / 2` dissimilarities of :math:`O(p^3)` for
    the default, eigenvectors of an n×n array, and k-means.

    Parameters
    ----------
    n_clusters : int, default=2
        How many clusters.
    n_neighbors : int, default=8
        Neighbours of each row; itself is not counted. The works take 5 to 16.
    form : {"smoothed", "raw"}, default="smoothed"
        Of the Gaussians of points: about the mean of the neighbourhood, or about the point.
    metric : str, default="bhattacharyya_riemann"
        The dissimilarity: d, one of those of :class:`EuclideanEmbedding`, but not "precomputed".
    width : float or None, default=None
        Width of the kernel: :math:`\sigma`; None takes a quantile of the dissimilarities.
    quantile : float from 0 to 1, default=0.5
        Which quantile of the dissimilarities the width is.
    ridge : float or "auto", default="auto"
        What is added to variances: :math:`\gamma`, in squared units of X; the works take 1.
    standardize : bool, default=False
        Divide each feature by its standard deviation first.
    recognize : bool, default=True
        Whether new points that equal a training point are taken for it; they are then not their own
        neighbours.
    n_init : int, default=10
        Number of starts; the best is kept. They are those of k-means.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the starts of k-means.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. They compute dissimilarities.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The cluster of each training point, numbered from 0.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Their places, of unit length.
    eigenvalues_ : ndarray of shape (n_clusters,)
        Of the normalised kernel, the largest first, at most 1.
    cluster_centers_ : ndarray of shape (n_clusters, n_clusters)
        In the coordinates of ``transform``.
    width_ : float
        :math:`\sigma`.
    gaussians_ : Gaussians
        Of the training points.

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
    parameters: ClassVar = {
        **{name: kinds for name, kinds in CLUSTER_PARAMETERS.items() if name != "shrinkage"},
        **POINT_PARAMETERS,
    }

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        n_neighbors: int = 8,
        form: Literal["smoothed", "raw"] = "smoothed",
        metric: str = "bhattacharyya_riemann",
        width: float | None = None,
        quantile: float = 0.5,
        ridge: float | Literal["auto"] = "auto",
        standardize: bool = False,
        recognize: bool = True,
        n_init: int = 10,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.form = form
        self.metric = metric
        self.width = width
        self.quantile = quantile
        self.ridge = ridge
        self.standardize = standardize
        self.recognize = recognize
        self.n_init = n_init
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Find clusters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : ignored
            For the API.

        Returns
        -------
        AugmentedSpectralClustering
            Itself.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        return self._fit_clusters(rows, len(rows))

    def _checked(self, X: Any) -> Any:
        return self._check_X(X, reset=False)
