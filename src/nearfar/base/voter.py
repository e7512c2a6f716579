"""Estimators that ask the nearest training objects, classifiers that let them vote, and ties."""

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
from nearfar.blocks import row_blocks
from nearfar.parameters import Allowed, integer, one_of
from nearfar.state import Sizes, State, indices, labels

#: What the parameters of a vote may be.
VOTE_PARAMETERS: dict[str, list[Allowed]] = {
    "n_neighbors": [integer(1)],
    "ties": [one_of("shrink", "first")],
}


class NearestObjects(Estimator):
    """An estimator that asks the nearest training objects.

    A subclass writes `_nearest`, and says by ``_n_training`` how many training objects it has kept.
    """

    #: What one object is called.
    called = "point"
    #: Whether the k nearest are the first k of more; not where ``n_neighbors`` decides who is near.
    nested = True

    n_neighbors: int

    @property
    @abstractmethod
    def _n_training(self) -> int:
        """How many training objects there are."""

    @abstractmethod
    def _nearest(self, X: Any, k: int) -> tuple[Matrix, Indices]:
        """Distances and numbers of the k nearest; each training object, if X is None, of others."""

    def _check_neighbors(self, n_objects: int) -> None:
        if (self.n_neighbors or 0) > n_objects:  # None is for whom it says how many that is
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than there are training {self.called}s "
                f"(n_samples={n_objects})."
            )

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        self._check_neighbors(sizes["n"])

    def _n_voters(self) -> int:
        return self.n_neighbors

    def kneighbors(self, X: Any, n_neighbors: int | None = None) -> tuple[Matrix, Indices]:
        """Distances and numbers of the nearest training objects, nearest first.

        Of training objects equally far those with the smaller number come first.

        Parameters
        ----------
        X : as in ``fit``
            New objects.
        n_neighbors : int, optional
            How many; None is as many as vote.

        Returns
        -------
        distances, indices : ndarray of shape (n_objects, n_neighbors)
        """
        check_is_fitted(self)
        k, n = self._n_voters() if n_neighbors is None else n_neighbors, self._n_training
        if not 1 <= k <= n:
            raise ValueError(f"n_neighbors={k} must be from 1 to the {n} training {self.called}s.")
        return self._nearest(X, k)

    def kneighbors_by_k(self, X: Any, most: int) -> list[Indices]:
        """Numbers of the nearest for each ``n_neighbors`` from 1, as if ``fit`` had been with it.

        Parameters
        ----------
        X : as in ``fit``
            New objects.
        most : int
            The largest number.

        Returns
        -------
        list of ndarray of shape (n_objects, k)
            For k from 1 to ``most``.
        """
        if self.nested:
            found = self.kneighbors(X, most)[1]
            return [found[:, :k] for k in range(1, most + 1)]
        each, by_k = copy(self), []
        for k in range(1, most + 1):
            each.n_neighbors = k
            by_k.append(each.kneighbors(X)[1])
        return by_k


class NeighborVoter(ClassifierMixin, NearestObjects):
    """Majority vote of the nearest; subclasses write how far objects are from training objects.

    ``fit`` sets ``classes_`` and ``_codes``, the number of the class of each training object.
    """

    state = State({"classes_": labels("c"), "_codes": indices("n", below="c")}, fitted="classes_")
    #: Whether the label is that of the vote; a subclass may have other rules too.
    votes = True

    ties: Literal["shrink", "first"]
    classes_: NDArray[Any]
    _codes: Indices

    @abstractmethod
    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        """How many objects there are, and blocks of distances to all training objects.

        X is None for the training objects themselves.
        """

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    @property
    def _n_training(self) -> int:
        return len(self._codes)

    def _keep_labels(self, y: ArrayLike | None, n_objects: int) -> None:
        """Check labels and n_neighbors, and keep the classes: the end of most fits."""
        classes, self._codes = self._check_labels(y, n_objects, min_classes=1)
        self._check_neighbors(n_objects)
        self.classes_ = classes

    def _nearest(self, X: Any, k: int) -> tuple[Matrix, Indices]:
        n, blocks = self._distance_blocks(X)
        distances, indices = np.empty((n, k)), np.empty((n, k), dtype=np.intp)
        for block, D in blocks:
            if X is None:
                leave_out(D, np.arange(n)[block])
            distances[block], indices[block] = nearest(D, k)
        return distances, indices

    @available_if(lambda self: self.votes)
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

    def leave_one_out_error(self) -> float:
        """Error on the training objects, each classified by all others.

        What was learned from them is not learned again: this is the training error of the works,
        an optimistic figure for anything that learned from the labels.
        """
        check_is_fitted(self)
        k, n = self._n_voters(), self._n_training
        if k >= n:
            raise ValueError(
                f"n_neighbors={k} must be below the number of training {self.called}s, {n}, to "
                "leave one out."
            )
        return vote_error(self._nearest(None, k)[1], self._codes, len(self.classes_), self.ties)


def vote_error(neighbors: Indices, codes: Indices, n_classes: int, ties: str) -> float:
    """The share of training objects that their neighbours outvote."""
    return float(np.mean(vote(codes[neighbors], n_classes, ties) != codes))


def leave_out(D: Matrix, own: Indices) -> None:
    """Make the objects of a block, row i being object ``own[i]``, no neighbours of themselves."""
    D[np.arange(len(D)), own] = np.inf


def nearest(D: Matrix, k: int) -> tuple[Matrix, Indices]:
    """The k smallest entries of each row, ascending, and their columns; ties by column."""
    if 4 * k > D.shape[1]:
        order = np.argsort(D, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(D, order, axis=1), order.astype(np.intp)
    some = np.sort(np.argpartition(D, k - 1, axis=1)[:, :k], axis=1)
    order = np.argsort(np.take_along_axis(D, some, axis=1), axis=1, kind="stable")
    found = np.take_along_axis(some, order, axis=1)
    values = np.take_along_axis(D, found, axis=1)
    # Which of those that are equally far is last in the list is for the columns to say.
    for row in np.flatnonzero(np.count_nonzero(values[:, -1:] >= D, axis=1) != k):
        found[row] = np.argsort(D[row], kind="stable")[:k]
        values[row] = D[row, found[row]]
    return values, found.astype(np.intp)


def vote_shares(codes: NDArray[np.intp], n_classes: int, ties: str) -> NDArray[np.float64]:
    """Shares of the votes of (n, k) neighbour codes, nearest first, after ties shrank k."""
    n, k = codes.shape
    shares = np.empty((n, n_classes))
    for block in row_blocks(n, 24 * n_classes):
        undecided = np.arange(block.start, block.stop)
        for voters in range(k, 0, -1):
            votes = _count(codes[undecided, :voters], n_classes)
            leaders = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1)
            decided = (leaders == 1) | (ties == "first")
            shares[undecided[decided]] = votes[decided] / voters
            undecided = undecided[~decided]
            if not len(undecided):
                break
    return shares


def vote(codes: NDArray[np.intp], n_classes: int, ties: str) -> NDArray[np.intp]:
    """Winning code of each row of (n, k) neighbour codes, nearest first."""
    winners = np.empty(len(codes), dtype=np.intp)
    for block in row_blocks(len(codes), 32 * n_classes):
        winners[block] = vote_shares(codes[block], n_classes, ties).argmax(axis=1)
    return winners


def votes_by_k(codes: NDArray[np.intp], n_classes: int) -> NDArray[np.intp]:
    """Winning codes (n, k) of the nearest voter, the nearest two, ..., where ties shrink k."""
    winners = np.empty_like(codes)
    for block in row_blocks(len(codes), 24 * n_classes):
        some, rows = codes[block], np.arange(block.stop - block.start)
        votes, winner = np.zeros((len(rows), n_classes), np.intp), some[:, 0]
        for k in range(codes.shape[1]):
            votes[rows, some[:, k]] += 1
            leads = np.count_nonzero(votes == votes.max(axis=1, keepdims=True), axis=1) == 1
            winner = np.where(leads, votes.argmax(axis=1), winner)
            winners[block, k] = winner
    return winners


def _count(codes: NDArray[np.intp], n_classes: int) -> NDArray[np.float64]:
    """Votes for each class, (n, n_classes)."""
    n, k = codes.shape
    cells = np.repeat(np.arange(n) * n_classes, k) + codes.ravel()
    return np.bincount(cells, minlength=n * n_classes).reshape(n, n_classes).astype(float)
