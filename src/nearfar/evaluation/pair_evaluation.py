"""Scores of a learned distance on pairs and comparisons, and cross-validation folds of pairs."""

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
from nearfar.neighbors.pair_cuts import find_cuts
from nearfar.neighbors.pair_distances import compute_learned_distances
from nearfar.parameters import boolean, check_parameter, integer
from nearfar.parameters import random_state as a_seed
from nearfar.summaries.index_checks import (
    check_points,
    check_signs,
    convert_to_array,
    find_distinct_points,
)
from nearfar.summaries.supervision import Pairs, Quadruplets, Triplets


def pair_scores(
    learner: Any, pairs: Pairs | ArrayLike, y: ArrayLike | None = None, *, X: Any = None
) -> dict[str, float]:
    """Score how well distances separate similar from dissimilar pairs, without a threshold.

    Parameters
    ----------
    learner : fitted learner, transformer, Pipeline or PairClassifier, or None
        Estimator that defines the distance. None means the Euclidean distance.
    pairs : array-like of shape (n_pairs, 2, n_features), or Pairs
        The two points of each pair, or a ``Pairs`` object with their row indices in ``X``.
    y : array-like of shape (n_pairs,)
        +1 for a similar pair, -1 for a dissimilar pair. Required if ``pairs`` is an array. Not
        allowed with ``Pairs``, which contain the signs.
    X : array-like of shape (n_samples, n_features)
        The rows that ``Pairs`` refer to. Required with ``Pairs``.

    Returns
    -------
    dict of float
        ``roc_auc``
            Probability that a similar pair is closer than a dissimilar pair, ties counted half.
        ``average_precision``
            Precision (the fraction of similar pairs among the closest pairs), averaged over the
            ranks of the similar pairs.
        ``best_accuracy``
            Accuracy of the threshold that is best for these pairs. It is optimistic, because the
            threshold is selected on the same pairs.
        ``equal_error_rate``
            Error rate at the threshold where the fraction of similar pairs called dissimilar equals
            the fraction of dissimilar pairs called similar.

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
            raise ValueError(
                "y must not be passed with Pairs, which contain the signs. Pass X and omit y."
            )
        points, signs = pairs.to_arrays(_require_rows(pairs, X))
    else:
        points = check_points(pairs, "pairs", 2)
        if y is None:
            raise ValueError(
                "y is missing. Pass +1 for each similar pair and -1 for each dissimilar pair."
            )
        signs = np.where(check_signs(y, len(points), "y"), 1, -1)
    is_similar = signs == 1
    if is_similar.all() or not is_similar.any():
        raise ValueError(
            f"Found {np.sum(is_similar)} similar and {np.sum(~is_similar)} dissimilar pairs; the "
            "scores need at least one pair of each kind."
        )
    distances = compute_learned_distances(learner, points)
    cuts = find_cuts(distances, is_similar)
    return {
        "roc_auc": float(roc_auc_score(is_similar, -distances)),
        "average_precision": float(average_precision_score(is_similar, -distances)),
        "best_accuracy": float(cuts.accuracies.max()),
        "equal_error_rate": cuts.equal_error_rate,
    }


def comparison_accuracy(
    learner: Any, comparisons: Triplets | Quadruplets | ArrayLike, *, X: Any = None
) -> float:
    """Return the fraction of comparisons that a distance satisfies. A tie counts as one half.

    Parameters
    ----------
    learner : fitted learner, transformer, Pipeline or PairClassifier, or None
        Estimator that defines the distance. None means the Euclidean distance.
    comparisons : array-like of shape (n, 3, n_features) or (n, 4, n_features), or index-based
        Points (anchor, near, far) of triplets, or points (a, b, c, d) of quadruplets, where a is
        closer to b than c is to d. ``Triplets`` and ``Quadruplets`` hold row indices of ``X``.
    X : array-like of shape (n_samples, n_features)
        The rows that ``Triplets`` or ``Quadruplets`` refer to. Required only with these two types.

    Returns
    -------
    float
        A number from 0 to 1. The expected value for random distances is 0.5.

    Examples
    --------
    >>> from nearfar import Triplets
    >>> from nearfar.evaluation import comparison_accuracy
    >>> comparison_accuracy(None, Triplets([[0, 1, 2], [2, 0, 1]], n_samples=3), X=[[0], [1], [3]])
    0.5
    """
    if isinstance(comparisons, Triplets | Quadruplets):
        points = comparisons.to_arrays(_require_rows(comparisons, X))
    else:
        array = convert_to_array(comparisons, "comparisons", "(m, 3, p) or (m, 4, p)")
        if array.ndim != 3 or array.shape[1] not in (3, 4):
            raise ValueError(
                "comparisons should have shape (m, 3, p) or (m, 4, p), or be Triplets or "
                f"Quadruplets; got shape {array.shape}."
            )
        points = check_points(array, "comparisons", array.shape[1])
    if not len(points):
        raise ValueError("comparisons is empty; pass at least one triplet or quadruplet.")
    far_pair = [2, 3] if points.shape[1] == 4 else [0, 2]
    gap = compute_learned_distances(learner, points[:, far_pair]) - compute_learned_distances(
        learner, points[:, :2]
    )
    return float(np.mean(0.5 + 0.5 * np.sign(gap)))


def _require_rows(supervision: Any, X: Any) -> Any:
    if X is None:
        raise ValueError(
            f"X is missing. {type(supervision).__name__} hold row indices; pass the rows they "
            "refer to as X."
        )
    return X


class PairFold(tuple[Indices, Indices]):
    """Tuple (train, test) of index arrays. The attribute ``n_dropped`` counts the dropped pairs.

    A pair is dropped if one of its points is a training point and the other a test point.

    >>> import numpy as np
    >>> fold = PairFold(np.array([0, 1]), np.array([2]), 5)
    >>> train, test = fold
    >>> fold.n_dropped
    5
    """

    n_dropped: int

    def __new__(cls, train: Indices, test: Indices, n_dropped: int) -> PairFold:
        """Create a fold from its training indices, test indices and number of dropped pairs."""
        fold = super().__new__(cls, (train, test))
        fold.n_dropped = n_dropped
        return fold

    @property
    def train(self) -> Indices:
        """Indices of the training set."""
        return self[0]

    @property
    def test(self) -> Indices:
        """Indices of the test set."""
        return self[1]


class PairKFold(BaseCrossValidator):
    """K-fold cross-validator for pairs in which training and test pairs share no point.

    Splitting the pairs themselves gives optimistic scores, because the points of a test pair also
    occur in training pairs. This cross-validator splits the points. A fold trains on the pairs of
    two training points and tests on the pairs of two test points. Pairs with one point on each side
    are dropped; the attribute ``n_dropped`` of the fold counts them.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    shuffle : bool, default=True
        Whether to assign points to folds in random order instead of the order of their rows.
    random_state : int, RandomState or None, default=None
        Seed of the random order. It has no effect if ``shuffle=False``.

    Notes
    -----
    Points that are connected by pairs form a group. A group with at most ``1 / n_splits`` of the
    points is kept in one fold. If no two pairs share a point, no pair is therefore dropped. If a
    single group contains most of the points, each of the k folds drops about 2 (k - 1) / k² of the
    pairs.

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

    With points instead of row indices, it can be passed to scikit-learn as ``cv``:

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
        """Return the number of folds."""
        return self.n_splits

    def split(
        self, X: Pairs | ArrayLike, y: Any = None, groups: ArrayLike | None = None
    ) -> Iterator[PairFold]:
        """Split the points of the pairs into folds.

        Parameters
        ----------
        X : Pairs, or array-like of shape (n_pairs, 2, n_features)
            Pairs of row indices, or pairs of points. Equal points count as the same point.
        y : ignored
            Not used, present for API consistency.
        groups : array-like of shape (n_samples,), optional
            Group of each row, for example the person shown in an image. Rows of the same group are
            in the same fold. Allowed only if ``X`` is ``Pairs``.

        Yields
        ------
        PairFold
            Index arrays ``train`` and ``test``, and ``n_dropped``. For ``Pairs`` the indices are
            rows, to be passed to ``Pairs.restrict``; rows that are in no pair are training rows.
            For an array of points they are indices of pairs.
        """
        if isinstance(X, Pairs):
            pairs = np.vstack([X.similar, X.dissimilar])
            n_points = X.n_samples
        else:
            if groups is not None:
                raise ValueError(
                    "groups can only be used with Pairs, with one entry per row; X is an array of "
                    "points. Omit groups, or pass Pairs."
                )
            distinct, pairs = find_distinct_points(X, 2, "pairs")
            n_points = len(distinct)
        units = np.arange(n_points) if groups is None else _encode_groups(groups, n_points)
        # Fold number of each point, or -1 for points that are in no pair.
        fold_of_point = self._assign_folds(units[pairs], int(units.max(initial=-1)) + 1)[units]
        for k in range(self.n_splits):
            in_test = fold_of_point[pairs] == k
            test = in_test.all(axis=1)
            train = ~in_test.any(axis=1)
            n_dropped = int(len(pairs) - test.sum() - train.sum())
            for rows, set_name in ((test, "test set"), (train, "training set")):
                if not rows.any():
                    raise ValueError(
                        f"Fold {k + 1} of n_splits={self.n_splits}: none of the {len(pairs)} pairs "
                        f"is in the {set_name}, and {n_dropped} pairs have one point in each set. "
                        "Decrease n_splits, or use more pairs."
                    )
            if isinstance(X, Pairs):
                yield PairFold(
                    np.flatnonzero(fold_of_point != k),
                    np.flatnonzero(fold_of_point == k),
                    n_dropped,
                )
            else:
                yield PairFold(np.flatnonzero(train), np.flatnonzero(test), n_dropped)

    def _assign_folds(self, pairs: Indices, n: int) -> Indices:
        """Return the fold of each of n units, or -1 for units that are in no pair."""
        used = np.unique(pairs)
        graph = sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n))
        _, group = sparse.csgraph.connected_components(graph, directed=False)
        size = np.bincount(group[used], minlength=n)
        if len(used) < self.n_splits:
            raise ValueError(
                f"n_splits={self.n_splits} is more than the {len(used)} points in pairs. Decrease "
                "n_splits."
            )
        # A connected group that is larger than a fold is split into single points.
        is_kept = size[group[used]] <= len(used) / self.n_splits
        blocks = np.where(is_kept, group[used], n + np.arange(len(used)))
        _, blocks = np.unique(blocks, return_inverse=True)
        counts = np.bincount(blocks)
        order = np.arange(len(counts))
        if self.shuffle:
            order = check_random_state(self.random_state).permutation(order)
        folds = np.full(n, -1, np.intp)
        folds[used] = _distribute_blocks(counts, order, self.n_splits)[blocks]
        return folds


def _distribute_blocks(counts: NDArray[np.intp], order: Indices, n_folds: int) -> Indices:
    """Return the fold of each block of points.

    The blocks are assigned in order of descending size, each to the fold with the fewest points so
    far.
    """
    fold = np.empty(len(counts), np.intp)
    sizes = [(0, k) for k in range(n_folds)]
    for block in order[np.argsort(-counts[order], kind="stable")].tolist():
        size, fold[block] = sizes[0]
        heapreplace(sizes, (size + int(counts[block]), int(fold[block])))
    return fold


def _encode_groups(groups: ArrayLike, n_points: int) -> Indices:
    _, codes = encode_labels(groups, name="groups")
    if len(codes) != n_points:
        raise ValueError(
            f"groups has {len(codes)} entries for {n_points} rows; expected one entry per row."
        )
    return codes
