"""Base classes of nearest-neighbor estimators, and the majority vote with its tie rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from copy import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Indices, Matrix
from nearfar.base.estimator import Estimator
from nearfar.blocks import split_rows
from nearfar.parameters import AllowedValues, integer, one_of
from nearfar.state import Sizes, State, indices, labels

#: Allowed values of the parameters of a vote.
VOTE_PARAMETERS: dict[str, list[AllowedValues]] = {
    "n_neighbors": [integer(1)],
    "ties": [one_of("shrink", "first")],
}


class NeighborsBase(Estimator):
    """Base class of estimators that search for the nearest training objects.

    A subclass implements ``_nearest`` and ``_n_training``, the number of stored training objects.
    """

    #: The noun for one object in messages.
    noun = "point"
    #: Whether the k nearest neighbors are also the first k results of a search for more neighbors.
    #: This is False if the metric depends on ``n_neighbors``.
    nested = True

    n_neighbors: int

    @property
    @abstractmethod
    def _n_training(self) -> int:
        """Number of training objects."""

    @abstractmethod
    def _nearest(self, X: Any, k: int) -> tuple[Matrix, Indices]:
        """Return distances and indices of the k nearest training objects.

        If X is None, search for each training object among all others.
        """

    def _check_neighbors(self, n_objects: int) -> None:
        # If n_neighbors is None, the subclass chooses a valid number.
        if (self.n_neighbors or 0) > n_objects:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is larger than the number of training "
                f"{self.noun}s (n_samples={n_objects})."
            )

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        self._check_neighbors(sizes["n"])

    def _n_voters(self) -> int:
        return self.n_neighbors

    def kneighbors(self, X: Any, n_neighbors: int | None = None) -> tuple[Matrix, Indices]:
        """Return distances and indices of the nearest training objects, nearest first.

        Training objects at equal distance are sorted by index.

        Parameters
        ----------
        X : as in ``fit``
            New objects.
        n_neighbors : int, optional
            Number of neighbors. None uses the same number as ``predict``.

        Returns
        -------
        distances, indices : ndarray of shape (n_objects, n_neighbors)
        """
        check_is_fitted(self)
        k, n = self._n_voters() if n_neighbors is None else n_neighbors, self._n_training
        if not 1 <= k <= n:
            raise ValueError(
                f"n_neighbors={k} must be from 1 to {n}, the number of training {self.noun}s."
            )
        return self._nearest(X, k)

    def kneighbors_by_k(self, X: Any, max_neighbors: int) -> list[Indices]:
        """Return the neighbors for each ``n_neighbors`` from 1 to ``max_neighbors``.

        The result for each k is that of a model fitted with ``n_neighbors=k``.

        Parameters
        ----------
        X : as in ``fit``
            New objects.
        max_neighbors : int
            Largest ``n_neighbors``.

        Returns
        -------
        list of ndarray of shape (n_objects, k)
            Indices of the nearest training objects, for k from 1 to
            ``max_neighbors``.
        """
        if self.nested:
            neighbors = self.kneighbors(X, max_neighbors)[1]
            return [neighbors[:, :k] for k in range(1, max_neighbors + 1)]
        model, by_k = copy(self), []
        for k in range(1, max_neighbors + 1):
            model.n_neighbors = k
            by_k.append(model.kneighbors(X)[1])
        return by_k


class NeighborsClassifier(ClassifierMixin, NeighborsBase):
    """Base class of classifiers that use a majority vote of the nearest training objects.

    Subclasses implement the distances.

    ``fit`` sets ``classes_`` and ``_codes``, the class index of each training object.
    """

    state = State({"classes_": labels("c"), "_codes": indices("n", below="c")}, fitted="classes_")
    #: Whether predictions are decided by a vote. Subclasses may also predict in other ways.
    votes = True

    ties: Literal["shrink", "first"]
    classes_: NDArray[Any]
    _codes: Indices

    @abstractmethod
    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        """Return the number of objects and an iterator over blocks of distances.

        Each block has the distances to all training objects. If X is None, the rows of each block
        are training objects.
        """

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    @property
    def _n_training(self) -> int:
        return len(self._codes)

    def _keep_labels(self, y: ArrayLike | None, n_objects: int) -> None:
        """Check the labels and ``n_neighbors``, and store the classes."""
        classes, self._codes = self._check_labels(y, n_objects, min_classes=1)
        self._check_neighbors(n_objects)
        self.classes_ = classes

    def _nearest(self, X: Any, k: int) -> tuple[Matrix, Indices]:
        n, blocks = self._distance_blocks(X)
        distances, indices = np.empty((n, k)), np.empty((n, k), dtype=np.intp)
        for block, D in blocks:
            if X is None:
                leave_out(D, np.arange(n)[block])
            distances[block], indices[block] = find_nearest(D, k)
        return distances, indices

    @available_if(lambda self: self.votes)
    def predict_proba(self, X: Any) -> Matrix:
        """Return the fraction of votes per class.

        If ties reduced k, only the remaining neighbors are counted.

        Parameters
        ----------
        X : as in ``fit``
            New objects.

        Returns
        -------
        ndarray of shape (n_objects, n_classes)
            Fractions of votes. Each row sums to one.
        """
        _, neighbors = self.kneighbors(X)
        return compute_vote_fractions(self._codes[neighbors], len(self.classes_), self.ties)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict labels by a majority vote of the nearest training objects.

        Parameters
        ----------
        X : as in ``fit``
            New objects.

        Returns
        -------
        ndarray of shape (n_objects,)
            Predicted labels.
        """
        _, neighbors = self.kneighbors(X)
        winners = vote(self._codes[neighbors], len(self.classes_), self.ties)
        return np.asarray(self.classes_[winners])

    def leave_one_out_error(self) -> float:
        """Return the error rate on the training objects. Each object is classified by the others.

        The metric is not refitted without the left-out object. For a metric that was learned from
        the labels, this training error is optimistic.

        Returns
        -------
        float
            Fraction of misclassified training objects.
        """
        check_is_fitted(self)
        k, n = self._n_voters(), self._n_training
        if k >= n:
            raise ValueError(
                f"The leave-one-out error needs n_neighbors below the number of training "
                f"{self.noun}s ({n}); n_neighbors is {k}."
            )
        return compute_vote_error(
            self._nearest(None, k)[1], self._codes, len(self.classes_), self.ties
        )


def compute_vote_error(neighbors: Indices, codes: Indices, n_classes: int, ties: str) -> float:
    """Return the fraction of training objects that the vote of their neighbors misclassifies."""
    return float(np.mean(vote(codes[neighbors], n_classes, ties) != codes))


def leave_out(D: Matrix, own_indices: Indices) -> None:
    """Set the distance of each object to itself to infinity, in place.

    Row i of D belongs to the training object with index ``own_indices[i]``.
    """
    D[np.arange(len(D)), own_indices] = np.inf


def find_nearest(D: Matrix, k: int) -> tuple[Matrix, Indices]:
    """Return the k smallest entries of each row in ascending order, and their columns.

    Equal entries are sorted by column.
    """
    if 4 * k > D.shape[1]:
        order = np.argsort(D, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(D, order, axis=1), order.astype(np.intp)
    candidates = np.sort(np.argpartition(D, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(np.take_along_axis(D, candidates, axis=1), axis=1, kind="stable")
    columns = np.take_along_axis(candidates, order, axis=1)
    values = np.take_along_axis(D, columns, axis=1)
    # If several entries of a row equal the k-th smallest, argpartition picks arbitrary columns.
    # Sort these rows in full, so that the columns with the smallest indices are used.
    for row in np.flatnonzero(np.count_nonzero(values[:, -1:] >= D, axis=1) != k):
        columns[row] = np.argsort(D[row], kind="stable")[:k]
        values[row] = D[row, columns[row]]
    return values, columns.astype(np.intp)


def compute_vote_fractions(
    codes: NDArray[np.intp], n_classes: int, ties: str
) -> NDArray[np.float64]:
    """Return the fraction of votes per class.

    Each row of ``codes`` contains the class codes of the k nearest neighbors, nearest first.
    """
    n, k = codes.shape
    fractions = np.empty((n, n_classes))
    for block in split_rows(n, 24 * n_classes):
        undecided = np.arange(block.start, block.stop)
        for n_voters in range(k, 0, -1):
            votes = _count_votes(codes[undecided, :n_voters], n_classes)
            n_leaders = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1)
            is_decided = (n_leaders == 1) | (ties == "first")
            fractions[undecided[is_decided]] = votes[is_decided] / n_voters
            undecided = undecided[~is_decided]
            if not len(undecided):
                break
    return fractions


def vote(codes: NDArray[np.intp], n_classes: int, ties: str) -> NDArray[np.intp]:
    """Return the class code that wins the vote in each row.

    Each row of ``codes`` contains the class codes of the k nearest neighbors, nearest first.
    """
    winners = np.empty(len(codes), dtype=np.intp)
    for block in split_rows(len(codes), 32 * n_classes):
        winners[block] = compute_vote_fractions(codes[block], n_classes, ties).argmax(axis=1)
    return winners


def vote_by_k(codes: NDArray[np.intp], n_classes: int) -> NDArray[np.intp]:
    """Return the winning class codes for each number of neighbors, with ties="shrink".

    Column j of the result is the vote of the nearest j + 1 neighbors.
    """
    winners = np.empty_like(codes)
    for block in split_rows(len(codes), 24 * n_classes):
        block_codes, rows = codes[block], np.arange(block.stop - block.start)
        votes, current_winners = np.zeros((len(rows), n_classes), np.intp), block_codes[:, 0]
        for j in range(codes.shape[1]):
            votes[rows, block_codes[:, j]] += 1
            has_winner = np.count_nonzero(votes == votes.max(axis=1, keepdims=True), axis=1) == 1
            current_winners = np.where(has_winner, votes.argmax(axis=1), current_winners)
            winners[block, j] = current_winners
    return winners


def _count_votes(codes: NDArray[np.intp], n_classes: int) -> NDArray[np.float64]:
    """Return the number of votes per class, of shape (n, n_classes)."""
    n, k = codes.shape
    flat_indices = np.repeat(np.arange(n) * n_classes, k) + codes.ravel()
    return np.bincount(flat_indices, minlength=n * n_classes).reshape(n, n_classes).astype(float)
