"""SetSpectralClustering: spectral clustering of sets of vectors."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags

from nearfar.base import LearnerTags
from nearfar.distributions.objects import disable_table_checks
from nearfar.distributions.spectral_clusters import CLUSTER_PARAMETERS, SpectralClusters
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import as_sets


class SetSpectralClustering(SpectralClusters):
    r"""Spectral clustering of sets of vectors, or of Gaussians.

    Each set is described by the Gaussian :math:`\mathcal G_i` of its vectors. With the kernel
    :math:`K_{ij} = \exp(-d(\mathcal G_i, \mathcal G_j) / \sigma)` and
    :math:`D = \mathrm{diag}(K 1)`, the relaxed normalized cut is

    .. math:: \max_U \mathrm{tr}(U^T D^{-1/2} K D^{-1/2} U), \qquad U^T U = I .

    Each row of U, with ``n_clusters`` numbers per set, is scaled to unit length. Then k-means
    assigns the rows to clusters.

    Use it to group clips, utterances or patients without labels. The number of clusters must be
    known. A gap in the spectrum after the last entry of ``eigenvalues_`` supports the chosen
    number. The width has a larger effect than the dissimilarity: try the quantiles 0.1, 0.5 and
    0.9.

    Cost: that of :class:`LaplacianEmbedding`, plus k-means.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    metric : str, default="bhattacharyya_riemann"
        Dissimilarity d: any value that :class:`EuclideanEmbedding` accepts, except "precomputed".
    width : float or None, default=None
        Width of the kernel: :math:`\sigma`. None uses a quantile of the dissimilarities.
    quantile : float from 0 to 1, default=0.5
        Quantile of the dissimilarities that is used as the width if ``width=None``.
    ridge : float or "auto", default="auto"
        Value added to the variances: :math:`\gamma`, in squared units of the vectors. See
        :meth:`nearfar.Gaussians.from_sets`. [1]_ uses 1.
    shrinkage : float, "ledoit_wolf", "oas" or None, default=None
        Shrinkage of the covariances. See :meth:`nearfar.Gaussians.from_sets`.
    standardize : bool, default=False
        Divide each feature by its standard deviation first. The standard deviation is computed over
        all training vectors. The ridge is added after the division.
    n_init : int, default=10
        Number of starts. k-means keeps the best result.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The starts of k-means are random.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The threads compute the
        dissimilarities.

    Attributes
    ----------
    labels_ : ndarray of shape (n_sets,)
        Cluster index of each training set, counted from 0.
    embedding_ : ndarray of shape (n_sets, n_clusters)
        Coordinates of the training sets, scaled to unit length.
    eigenvalues_ : ndarray of shape (n_clusters,)
        Leading eigenvalues of the normalized kernel, in descending order. All are at most 1.
    cluster_centers_ : ndarray of shape (n_clusters, n_clusters)
        Cluster centers in the coordinates of ``transform``.
    width_ : float
        The width :math:`\sigma`.
    gaussians_ : Gaussians
        Gaussians of the training sets.

    See Also
    --------
    SetEmbedding, SetKNeighborsClassifier, SpectralClustering

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       sections 5.7 and 6.4.
    .. [2] A. Y. Ng, M. I. Jordan, Y. Weiss, "On spectral clustering: Analysis and an algorithm",
       Advances in Neural Information Processing Systems 14, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import SetSpectralClustering
    >>> random = np.random.default_rng(0)
    >>> spread = [[3.0, 1.0], [1.0, 3.0]]
    >>> sets = [random.normal(size=(30, 2)) * spread[k % 2] for k in range(40)]
    >>> labels = SetSpectralClustering(n_clusters=2).fit_predict(sets)
    >>> len(set(labels[::2])), len(set(labels[1::2])), bool(labels[0] != labels[1])
    (1, 1, True)
    """

    learner_tags = LearnerTags(reads="instances", role="clusterer", input="sets", supervised=False)
    parameters: ClassVar = {**CLUSTER_PARAMETERS}

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        metric: str = "bhattacharyya_riemann",
        width: float | None = None,
        quantile: float = 0.5,
        ridge: float | Literal["auto"] = "auto",
        shrinkage: float | Literal["ledoit_wolf", "oas"] | None = None,
        standardize: bool = False,
        n_init: int = 10,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.metric = metric
        self.width = width
        self.quantile = quantile
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.n_init = n_init
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Tags:
        return disable_table_checks(super().__sklearn_tags__())

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Cluster the training sets.

        Parameters
        ----------
        X : Sets, list of arrays (t_i, p), array of shape (n, t, p), or Gaussians
            The training sets, or their Gaussians.
        y : ignored
            Present for API consistency.

        Returns
        -------
        SetSpectralClustering
            The fitted estimator.
        """
        self._forget()
        self._check_parameters()
        sets = self._check_input(X)
        self._fit_clusters(sets, len(sets))
        self.n_features_in_ = self.laplacian_.n_features_in_
        return self

    def _check_input(self, X: Any) -> Any:
        return X if isinstance(X, Gaussians) else as_sets(X)
