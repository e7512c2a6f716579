"""What classifiers share that let the nearest training objects vote."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Indices, Matrix
from nearfar.base import Checked
from nearfar.neighbors.knn import vote, vote_shares


class Votes(ClassifierMixin, Checked):
    """Majority vote; subclasses say how far new objects are from the training objects."""

    #: What one object is called.
    called = "object"

    n_neighbors: int
    ties: Literal["shrink", "first"]
    classes_: NDArray[Any]
    _codes: Indices

    @abstractmethod
    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        """How many new objects there are, and blocks of distances to all training objects."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def _check_neighbors(self, n_objects: int) -> None:
        if self.n_neighbors > n_objects:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than there are training {self.called}s "
                f"(n_samples={n_objects})."
            )

    def kneighbors(self, X: Any) -> tuple[Matrix, Indices]:
        """Distances and numbers of the nearest training objects, nearest first.

        Of training objects equally far those with the smaller number come first.

        Parameters
        ----------
        X : as in ``fit``
            New objects.

        Returns
        -------
        distances, indices : ndarray of shape (n_objects, n_neighbors)
        """
        check_is_fitted(self)
        n, blocks = self._distance_blocks(X)
        distances = np.empty((n, self.n_neighbors))
        indices = np.empty((n, self.n_neighbors), dtype=np.intp)
        for block, D in blocks:
            distances[block], indices[block] = nearest(D, self.n_neighbors)
        return distances, indices

    def predict_proba(self, X: Any) -> Matrix:
        """Shares of the votes that decided: of the k neighbours left after ties shrank k.

        Parameters
        ----------
        X : as in ``fit``
            New objects.

        Returns
        -------
        ndarray of shape (n_objects, n_classes)
        """
        _, neighbors = self.kneighbors(X)
        return vote_shares(self._codes[neighbors], len(self.classes_), self.ties)

    def predict(self, X: Any) -> NDArray[Any]:
        """The label that wins the vote.

        Parameters
        ----------
        X : as in ``fit``
            New objects.

        Returns
        -------
        ndarray of shape (n_objects,)
        """
        _, neighbors = self.kneighbors(X)
        winners = vote(self._codes[neighbors], len(self.classes_), self.ties)
        return np.asarray(self.classes_[winners])


def left_out_errors(
    D: Matrix, own: Indices, codes: Indices, k: int, n_classes: int, ties: Any
) -> int:
    """How many objects others outvote; row i of D is object ``own[i]`` itself, left out."""
    D[np.arange(len(D)), own] = np.inf
    winners = vote(codes[nearest(D, k)[1]], n_classes, ties)
    return int(np.count_nonzero(winners != codes[own]))


def nearest(D: Matrix, k: int) -> tuple[Matrix, Indices]:
    """The k smallest entries of each row, ascending, and their columns; ties by column."""
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(D, order, axis=1), order.astype(np.intp)
