"""Nearest neighbors of sets by distances that know the vectors themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, NeighborsClassifier
from nearfar.distributions import dtw_distances, emd_distances
from nearfar.distributions.objects import disable_table_checks
from nearfar.parameters import boolean, integer, none, one_of
from nearfar.summaries.sets import Sets, as_sets


class VectorDistanceNeighbors(NeighborsClassifier):
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

    learner_tags = LearnerTags(reads="instances", role="classifier", input="sets")
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "distance": [one_of("emd", "dtw")],
        "standardize": [boolean],
        "n_clusters": [integer(1), none],
    }
    noun = "set"
    ties = "shrink"

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
        return disable_table_checks(super().__sklearn_tags__())

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Keep the training sets.

        Parameters
        ----------
        X : Sets, or list of arrays (t_i, p)
            The sets.
        y : array-like of shape (n_sets,)
            Their labels.
        """
        self._check_parameters()
        self._forget()
        sets = as_sets(X)
        self._check_neighbors(len(sets))
        classes, self._codes = self._check_labels(y, len(sets), min_classes=1)
        spread = np.asarray(sets.X, np.float64).std(axis=0)
        self._scale = np.where(self.standardize & (spread > 0), spread, 1.0)
        self._sets = self._scaled(sets)
        self.classes_ = classes
        return self

    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        sets = self._sets if X is None else self._scaled(as_sets(X))
        if self.distance == "emd":
            D = emd_distances(sets, self._sets, n_clusters=self.n_clusters, random_state=0)
        else:
            D = dtw_distances(sets, self._sets)
        return len(sets), iter([(slice(None), D)])

    def _scaled(self, sets: Sets) -> Sets:
        return Sets(np.asarray(sets.X, np.float64) / self._scale, sets.offsets)
