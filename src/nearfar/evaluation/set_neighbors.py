"""Nearest neighbours of sets by distances that know the vectors themselves."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from nearfar.distributions import dtw_distances, emd_distances
from nearfar.distributions.objects import without_tables
from nearfar.distributions.set_k_neighbors_classifier import nearest
from nearfar.labels import encode_labels
from nearfar.neighbors.knn import vote, vote_shares
from nearfar.summaries.sets import Sets, as_sets


class VectorDistanceNeighbors(ClassifierMixin, BaseEstimator):
    """Majority vote of the k training sets that are nearest by their vectors.

    The earth mover's distance (needs POT) or dynamic time warping (needs tslearn), which no
    Gaussian stands for. Costs a distance to every training set for each new one.

    Parameters
    ----------
    n_neighbors : int, default=3
        How many sets vote.
    distance : {"emd", "dtw"}, default="emd"
        Which.
    standardize : bool, default=True
        Divide each feature by its standard deviation over all training vectors first.
    n_clusters : int, default=None
        For "emd": reduce sets of more vectors to so many centres.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    """

    classes_: NDArray[Any]

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        distance: Literal["emd", "dtw"] = "emd",
        standardize: bool = True,
        n_clusters: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.distance = distance
        self.standardize = standardize
        self.n_clusters = n_clusters

    def __sklearn_tags__(self) -> Tags:
        return without_tables(super().__sklearn_tags__())

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Keep the training sets.

        Parameters
        ----------
        X : Sets, or list of arrays (t_i, p)
            The sets.
        y : array-like of shape (n_sets,)
            Their labels.
        """
        sets = as_sets(X)
        if self.n_neighbors > len(sets):
            raise ValueError(f"n_neighbors={self.n_neighbors} is more than {len(sets)} sets.")
        spread = np.asarray(sets.X, np.float64).std(axis=0)
        self._scale = np.where(self.standardize & (spread > 0), spread, 1.0)
        self._sets = self._scaled(sets)
        self.classes_, self._codes = encode_labels(y, name="y")
        return self

    def kneighbors(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Distances and numbers of the nearest training sets, nearest first.

        Parameters
        ----------
        X : Sets, or list of arrays (t_i, p)
            New sets.
        """
        sets = self._scaled(as_sets(X))
        if self.distance == "emd":
            options = {"n_clusters": self.n_clusters, "random_state": 0}
            D = emd_distances(sets, self._sets, **options)  # type: ignore[arg-type]
        else:
            D = dtw_distances(sets, self._sets)
        return nearest(D, self.n_neighbors)

    def predict(self, X: Any) -> NDArray[Any]:
        """The label that wins the vote.

        Parameters
        ----------
        X : Sets, or list of arrays (t_i, p)
            New sets.
        """
        voters = self._codes[self.kneighbors(X)[1]]
        return np.asarray(self.classes_[vote(voters, len(self.classes_), "shrink")])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Shares of the votes that decided.

        Parameters
        ----------
        X : Sets, or list of arrays (t_i, p)
            New sets.
        """
        voters = self._codes[self.kneighbors(X)[1]]
        return vote_shares(voters, len(self.classes_), "shrink")

    def _scaled(self, sets: Sets) -> Sets:
        return Sets(np.asarray(sets.X, np.float64) / self._scale, sets.offsets)
