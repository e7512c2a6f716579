"""Nearest-neighbour classification after any learner."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.blocks import row_blocks
from nearfar.neighbors.mapped import A_LEARNER, MappedClassifier
from nearfar.parameters import integer, one_of
from nearfar.search.exact_search import kneighbors


class KNNClassifier(MappedClassifier):
    r"""Majority vote of the k nearest training points, after a learner's map.

    The search is exact and works in blocks. Ties between classes shrink k: the vote is repeated
    with k-1, k-2, … nearest points until one class leads.

    Use it alone, as the last step of a Pipeline, or around a learner. The learner is cloned and
    fitted on the same rows and labels.

    Cost: the learner's fit; then O(n q) for each query in q dimensions.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Fitted first; neighbours are searched after its ``transform``. None searches X itself.
    n_neighbors : int, default=3
        How many points vote.
    ties : {"shrink", "first"}, default="shrink"
        "first" lets the smallest label win, as scikit-learn's classifier does.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    estimator_ : object or None
        The fitted learner.

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007, sections 2.1.1 and
       2.1.6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import KNNClassifier, LDA
    >>> X, y = load_iris(return_X_y=True)
    >>> knn = KNNClassifier(LDA(), n_neighbors=5).fit(X, y)
    >>> knn.predict(X[:2]).tolist()
    [0, 0]
    >>> round(knn.leave_one_out_error(), 3)
    0.04
    """

    parameters: ClassVar = {
        "estimator": A_LEARNER,
        "n_neighbors": [integer(1)],
        "ties": [one_of("shrink", "first")],
    }

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 3,
        ties: Literal["shrink", "first"] = "shrink",
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.ties = ties

    def fit(self, X: ArrayLike, y: ArrayLike, *, supervision: Any = None) -> Self:
        """Fit the learner and keep the mapped training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels, for the vote and for the learner.
        supervision : Pairs, Triplets, Chunklets or array-like, optional
            Handed to the learner.

        Returns
        -------
        KNNClassifier
            Itself.
        """
        learner, points, classes, codes = self._fit_learner(X, y, supervision)
        if self.n_neighbors > len(points):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than there are training points "
                f"(n_samples={len(points)})."
            )
        self.estimator_, self.classes_ = learner, classes
        self._points, self._codes = points, codes
        return self

    def kneighbors(self, X: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Distances and training rows of the nearest points, nearest first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Queries.

        Returns
        -------
        distances, indices : ndarray of shape (n_samples, n_neighbors)
        """
        check_is_fitted(self)
        return kneighbors(self._points, self._queries(X), n_neighbors=self.n_neighbors)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Shares of the votes that decided: of the k neighbours left after ties shrank k.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Queries.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        _, neighbors = self.kneighbors(X)
        return vote_shares(self._codes[neighbors], len(self.classes_), self.ties)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label that wins the vote.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Queries.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        _, neighbors = self.kneighbors(X)
        winners = vote(self._codes[neighbors], len(self.classes_), self.ties)
        return np.asarray(self.classes_[winners])

    def leave_one_out_error(self) -> float:
        """Error on the training points, each classified by all others.

        The learner is not fitted again: this is the training error of the works, an optimistic
        figure for anything that learned from the labels.
        """
        check_is_fitted(self)
        _, neighbors = kneighbors(self._points, n_neighbors=self.n_neighbors)
        winners = vote(self._codes[neighbors], len(self.classes_), self.ties)
        return float(np.mean(winners != self._codes))


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


def _count(codes: NDArray[np.intp], n_classes: int) -> NDArray[np.float64]:
    """Votes for each class, (n, n_classes)."""
    n, k = codes.shape
    cells = np.repeat(np.arange(n) * n_classes, k) + codes.ravel()
    return np.bincount(cells, minlength=n * n_classes).reshape(n, n_classes).astype(float)
