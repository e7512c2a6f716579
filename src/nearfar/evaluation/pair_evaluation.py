"""How well a learned distance tells pairs apart and keeps comparisons, and folds of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapreplace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from nearfar.arrays import Indices
from nearfar.labels import encode_labels
from nearfar.neighbors.pair_cuts import all_cuts
from nearfar.neighbors.pair_distances import distances_of_pairs
from nearfar.parameters import boolean, check_parameter, integer
from nearfar.parameters import random_state as a_seed
from nearfar.summaries.index_checks import as_array, check_signs, distinct_points, finite_points
from nearfar.summaries.supervision import Pairs, Quadruplets, Triplets


def pair_scores(
    learner: Any, pairs: Pairs | ArrayLike, y: ArrayLike | None = None, *, X: Any = None
) -> dict[str, float]:
    """How well distances tell pairs alike from pairs different, whatever the threshold.

    Parameters
    ----------
    learner : fitted learner, transformer, Pipeline or PairClassifier, or None
        Whose distances; None for the Euclidean one.
    pairs : array-like of shape (n_pairs, 2, n_features), or Pairs
        The two points of each pair; or the numbers of their rows in X.
    y : array-like of shape (n_pairs,)
        +1 for a pair alike, -1 for a pair different; not with ``Pairs``, which say it themselves.
    X : array-like of shape (n_samples, n_features)
        The rows that ``Pairs`` refer to.

    Returns
    -------
    dict of float
        ``roc_auc``: how often a pair alike is nearer than a different one, ties counted half.
        ``average_precision``: the mean share of pairs alike among the nearest, at each of them.
        ``best_accuracy``: the share of pairs told rightly by the best threshold there is for them,
        and so an optimistic figure. ``equal_error_rate``: the error of the threshold that misses
        pairs alike as often as it calls different ones alike.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import pair_scores
    >>> pairs = np.array([[[0.0], [1.0]], [[0.0], [2.0]], [[0.0], [3.0]], [[0.0], [4.0]]])
    >>> pair_scores(None, pairs, [1, -1, 1, -1])["roc_auc"]
    0.75
    """
    if isinstance(pairs, Pairs):
        if y is not None:
            raise ValueError("Pairs say themselves what is alike: give X, and no y.")
        points, signs = pairs.to_arrays(_rows_for(pairs, X))
    else:
        points = finite_points(pairs, "pairs", 2)
        if y is None:
            raise ValueError("y is missing: +1 for each pair alike, -1 for each pair different.")
        signs = np.where(check_signs(y, len(points), "y"), 1, -1)
    alike = signs == 1
    if alike.all() or not alike.any():
        raise ValueError(
            f"There are {np.sum(alike)} pairs alike and {np.sum(~alike)} pairs different; some of "
            "either are needed to see how well they are told apart."
        )
    distances = distances_of_pairs(learner, points)
    cuts = all_cuts(distances, alike)
    return {
        "roc_auc": float(roc_auc_score(alike, -distances)),
        "average_precision": float(average_precision_score(alike, -distances)),
        "best_accuracy": float(cuts.accuracies.max()),
        "equal_error_rate": cuts.equal_error_rate,
    }


def comparison_accuracy(
    learner: Any, comparisons: Triplets | Quadruplets | ArrayLike, *, X: Any = None
) -> float:
    """The share of comparisons that the learned distance keeps, ties counted half.

    Parameters
    ----------
    learner : fitted learner, transformer, Pipeline or PairClassifier, or None
        Whose distances; None for the Euclidean one.
    comparisons : array-like of shape (n, 3, n_features) or (n, 4, n_features), or index-based
        Points (anchor, near, far) of triplets, or (a, b, c, d) of quadruplets, a being nearer to b
        than c to d; or ``Triplets`` or ``Quadruplets``, which need X.
    X : array-like of shape (n_samples, n_features)
        The rows that ``Triplets`` and ``Quadruplets`` refer to.

    Returns
    -------
    float
        From 0 to 1; 0.5 is chance.

    Examples
    --------
    >>> from nearfar import Triplets
    >>> from nearfar.evaluation import comparison_accuracy
    >>> comparison_accuracy(None, Triplets([[0, 1, 2], [2, 0, 1]], n_samples=3), X=[[0], [1], [3]])
    0.5
    """
    if isinstance(comparisons, Triplets | Quadruplets):
        points = comparisons.to_arrays(_rows_for(comparisons, X))
    else:
        array = as_array(comparisons, "comparisons", "(m, 3, p) or (m, 4, p)")
        if array.ndim != 3 or array.shape[1] not in (3, 4):
            raise ValueError(
                "comparisons should have shape (m, 3, p) or (m, 4, p), or be Triplets or "
                f"Quadruplets; got shape {array.shape}."
            )
        points = finite_points(array, "comparisons", array.shape[1])
    if not len(points):
        raise ValueError("comparisons is empty; there is nothing to judge.")
    other = [2, 3] if points.shape[1] == 4 else [0, 2]
    gap = distances_of_pairs(learner, points[:, other]) - distances_of_pairs(learner, points[:, :2])
    return float(np.mean(0.5 + 0.5 * np.sign(gap)))


def _rows_for(supervision: Any, X: Any) -> Any:
    if X is None:
        raise ValueError(
            f"X is missing: {type(supervision).__name__} hold numbers of rows, so give the rows "
            "as X."
        )
    return X


# ---------------------------------------------------------------------- folds


class PairFold(tuple[Indices, Indices]):
    """Row numbers (train, test) of a fold, and how many pairs are in neither.

    >>> import numpy as np
    >>> fold = PairFold(np.array([0, 1]), np.array([2]), 5)
    >>> train, test = fold
    >>> fold.n_dropped
    5
    """

    n_dropped: int

    def __new__(cls, train: Indices, test: Indices, n_dropped: int) -> PairFold:
        """Two arrays as one tuple."""
        fold = super().__new__(cls, (train, test))
        fold.n_dropped = n_dropped
        return fold

    @property
    def train(self) -> Indices:
        """What to train on."""
        return self[0]

    @property
    def test(self) -> Indices:
        """What to test on."""
        return self[1]


class PairKFold(BaseCrossValidator):
    """K folds of pairs in which no point is on both sides.

    Folds over pairs are optimistic: a point of a test pair was seen in training, with what is
    alike to it. Here the points are folded. Pairs of training points train, pairs of test points
    test, and pairs across are in neither; each fold says by ``n_dropped`` how many those are.
    Points that pairs connect stay together where there are few enough of them, so that pairs of
    which no two share a point are all used; where one group connects most of the points, about
    2 (k - 1) / k² of the pairs are dropped in each of k folds.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=True
        Whether points come in random order; else in the order of their rows.
    random_state : int, RandomState or None, default=None
        Seed of the order.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import Pairs
    >>> from nearfar.evaluation import PairKFold
    >>> X, y = load_wine(return_X_y=True)
    >>> pairs = Pairs.from_labels(y, n_similar=500, n_dissimilar=500, random_state=0)
    >>> for fold in PairKFold(3, random_state=0).split(pairs):
    ...     train, test = pairs.restrict(fold.train), pairs.restrict(fold.test)
    ...     print(len(fold.train), len(fold.test), fold.n_dropped)
    118 60 450
    119 59 441
    119 59 433

    With points instead of row numbers it goes where scikit-learn wants a splitter:

    >>> from sklearn.model_selection import cross_val_score
    >>> from nearfar import RCA, PairClassifier
    >>> points, sign = pairs.to_arrays(X)
    >>> folds = PairKFold(3, random_state=0)
    >>> cross_val_score(PairClassifier(RCA()), points, sign, cv=folds).shape
    (3,)
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None
    ) -> None:
        check_parameter("PairKFold", "n_splits", n_splits, [integer(2)])
        check_parameter("PairKFold", "shuffle", shuffle, [boolean])
        check_parameter("PairKFold", "random_state", random_state, [a_seed])
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many folds."""
        return self.n_splits

    def split(
        self, X: Pairs | ArrayLike, y: Any = None, groups: ArrayLike | None = None
    ) -> Iterator[PairFold]:
        """Fold the points of pairs.

        Parameters
        ----------
        X : Pairs, or array-like of shape (n_pairs, 2, n_features)
            Pairs of row numbers, or of points, equal ones being one point.
        y : ignored
            For scikit-learn.
        groups : array-like of shape (n_samples,), optional
            With ``Pairs``: the group of each row, as of copies or of one person's pictures. No
            group is on both sides.

        Yields
        ------
        PairFold
            ``train`` and ``test``: of ``Pairs`` the rows on either side, for ``restrict``, rows in
            no pair being among the training rows; of points the numbers of the pairs. And
            ``n_dropped``.
        """
        if isinstance(X, Pairs):
            pairs = np.vstack([X.similar, X.dissimilar])
            n_points = X.n_samples
        else:
            if groups is not None:
                raise ValueError("groups are for Pairs, one for each row they refer to.")
            distinct, pairs = distinct_points(X, 2, "pairs")
            n_points = len(distinct)
        units = np.arange(n_points) if groups is None else _group_codes(groups, n_points)
        # The side of each point, -1 for points in no pair.
        side = self._fold_of(units[pairs], int(units.max(initial=-1)) + 1)[units]
        for k in range(self.n_splits):
            in_test = side[pairs] == k
            test = in_test.all(axis=1)
            train = ~in_test.any(axis=1)
            n_dropped = int(len(pairs) - test.sum() - train.sum())
            for rows, called in ((test, "held out"), (train, "left to train on")):
                if not rows.any():
                    raise ValueError(
                        f"Fold {k + 1} of n_splits={self.n_splits}: of {len(pairs)} pairs none is "
                        f"{called}, with {n_dropped} across. Take fewer folds, or more pairs."
                    )
            if isinstance(X, Pairs):
                yield PairFold(np.flatnonzero(side != k), np.flatnonzero(side == k), n_dropped)
            else:
                yield PairFold(np.flatnonzero(train), np.flatnonzero(test), n_dropped)

    def _fold_of(self, pairs: Indices, n: int) -> Indices:
        """The fold of each of n units, -1 for one in no pair."""
        used = np.unique(pairs)
        graph = sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n))
        _, part = sparse.csgraph.connected_components(graph, directed=False)
        size = np.bincount(part[used], minlength=n)
        if len(used) < self.n_splits:
            raise ValueError(
                f"n_splits={self.n_splits} is more than the {len(used)} points that pairs have."
            )
        # What connects more than a fold holds is taken apart.
        together = size[part[used]] <= len(used) / self.n_splits
        block = np.where(together, part[used], n + np.arange(len(used)))
        _, block = np.unique(block, return_inverse=True)
        counts = np.bincount(block)
        order = np.arange(len(counts))
        if self.shuffle:
            order = check_random_state(self.random_state).permutation(order)
        folds = np.full(n, -1, np.intp)
        folds[used] = _shared_out(counts, order, self.n_splits)[block]
        return folds


def _shared_out(counts: NDArray[np.intp], order: Indices, n_folds: int) -> Indices:
    """A fold for each block of points: the largest first, each into the smallest fold."""
    fold = np.empty(len(counts), np.intp)
    sizes = [(0, k) for k in range(n_folds)]
    for block in order[np.argsort(-counts[order], kind="stable")].tolist():
        size, fold[block] = sizes[0]
        heapreplace(sizes, (size + int(counts[block]), int(fold[block])))
    return fold


def _group_codes(groups: ArrayLike, n_points: int) -> Indices:
    _, codes = encode_labels(groups, name="groups")
    if len(codes) != n_points:
        raise ValueError(f"groups has {len(codes)} entries for {n_points} rows.")
    return codes
