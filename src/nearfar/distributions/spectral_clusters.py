"""Base class of spectral clustering of sets and of points: k-means on a Laplacian embedding."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix
from nearfar.base import Learner
from nearfar.distributions.laplacian_embedding import WIDTH_PARAMETERS, LaplacianEmbedding
from nearfar.distributions.objects import SHARED_PARAMETERS, SYMMETRIC
from nearfar.parameters import AllowedValues, integer, one_of, random_state
from nearfar.state import State, floats, indices, object_of
from nearfar.summaries.gaussians import Gaussians

#: Allowed values of the parameters that both clustering estimators have.
CLUSTER_PARAMETERS: dict[str, list[AllowedValues]] = {
    "n_clusters": [integer(1)],
    "n_init": [integer(1)],
    "random_state": [random_state],
    **WIDTH_PARAMETERS,
    **SHARED_PARAMETERS,
    "metric": [one_of(*SYMMETRIC)],
}


class SpectralClusters(ClassNamePrefixFeaturesOutMixin, ClusterMixin, Learner):
    """Base class of spectral clustering: k-means on unit-length rows of a Laplacian embedding."""

    # The training objects are stored in `laplacian_`.
    state = State(
        {
            "laplacian_": object_of(LaplacianEmbedding, n="n", q="q"),
            "cluster_centers_": floats("clusters", "q"),
            "labels_": indices("n", below="clusters"),
        },
        fitted="labels_",
        rows=0,
    )

    n_clusters: int
    n_init: int
    random_state: int | np.random.RandomState | None

    labels_: NDArray[np.intp]
    cluster_centers_: Matrix
    laplacian_: LaplacianEmbedding

    def _make_laplacian(self) -> LaplacianEmbedding:
        """Return an unfitted embedding with the parameters of this estimator."""
        embedding = LaplacianEmbedding(self.n_clusters, normalize=True)
        shared = embedding.get_params().keys() & self.get_params().keys()
        return embedding.set_params(**{name: getattr(self, name) for name in shared})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")

    def _fit_clusters(self, X: Any, n_objects: int) -> Self:
        if self.n_clusters > n_objects:
            raise ValueError(
                f"n_clusters={self.n_clusters} must be at most the number of objects, "
                f"n_samples={n_objects}."
            )
        laplacian = self._make_laplacian().fit(X)
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        labels = kmeans.fit_predict(laplacian.embedding_.astype(np.float64))
        self.laplacian_, self.cluster_centers_ = laplacian, kmeans.cluster_centers_
        self.labels_ = labels.astype(np.intp)
        return self

    @abstractmethod
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Cluster the training objects."""

    def fit_predict(self, X: Any, y: ArrayLike | None = None) -> NDArray[np.intp]:
        """Cluster the training objects and return their cluster indices, ``labels_``.

        Parameters
        ----------
        X : as in ``fit``
            Training objects.
        y : ignored
            Present for API consistency.

        Returns
        -------
        ndarray of shape (n_objects,)
            Cluster of each training object, from 0.
        """
        return self.fit(X).labels_.copy()

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the index of the cluster whose center is nearest to each object.

        Distances are computed after ``transform``.

        Parameters
        ----------
        X : as in ``fit``
            Objects.

        Returns
        -------
        ndarray of shape (n_objects,)
            Cluster of each object, from 0.
        """
        coordinates = self.transform(X).astype(np.float64)
        return np.asarray(
            pairwise_distances_argmin(coordinates, self.cluster_centers_), dtype=np.intp
        )

    def fit_transform(self, X: Any, y: ArrayLike | None = None) -> Floats:
        """Cluster the training objects and return their coordinates, ``embedding_``.

        Parameters
        ----------
        X : as in ``fit``
            Training objects.
        y : ignored
            Present for API consistency.

        Returns
        -------
        ndarray of shape (n_objects, n_clusters)
            Coordinates of the training objects, scaled to unit length.
        """
        return self.fit(X).embedding_.copy()

    def transform(self, X: Any) -> Floats:
        """Embed objects by Nyström's formula and scale the result to unit length.

        See the ``transform`` of :class:`~nearfar.LaplacianEmbedding`. For a training object, the
        result is its row of ``embedding_``.

        Parameters
        ----------
        X : as in ``fit``
            Objects.

        Returns
        -------
        ndarray of shape (n_objects, n_clusters)
            Coordinates of the objects, in the dtype of X.
        """
        check_is_fitted(self)
        return self.laplacian_.transform(self._check_input(X))

    def _check_input(self, X: Any) -> Any:
        return X

    @property
    def embedding_(self) -> Floats:
        """Coordinates of the training objects, scaled to unit length."""
        return self.laplacian_.embedding_

    @property
    def eigenvalues_(self) -> Matrix:
        """Eigenvalues of the normalized kernel, in descending order."""
        return self.laplacian_.eigenvalues_

    @property
    def width_(self) -> float:
        """Width of the kernel."""
        return self.laplacian_.width_

    @property
    def gaussians_(self) -> Gaussians:
        """Gaussians of the training objects."""
        return self.laplacian_.gaussians_

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[1])
