"""Triplets of rows: an anchor, a near point and a far point."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state

from nearfar.arrays import Indices
from nearfar.labels import encode_labels
from nearfar.notices import warn
from nearfar.parameters import check_parameter, integer, none
from nearfar.search.exact_search import kneighbors
from nearfar.summaries.drawing import (
    draw_joined_triplets,
    draw_triplets,
    limit_comparisons,
    limit_draws,
    sort_by_class,
)
from nearfar.summaries.index_checks import (
    check_tuples,
    find_distinct_points,
    find_shared_row,
    make_rows,
    renumber,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision
from nearfar.summaries.supervision.pairs import Pairs
from nearfar.words import join_names


class Triplets(Supervision):
    """Supervision by triplets of rows: the anchor is closer to one row than to another.

    The object is immutable. It has no length and cannot be sliced, because its indices refer to all
    rows of X. Use `restrict` to keep some of the rows.

    Parameters
    ----------
    indices : array-like of int of shape (n_triplets, 3)
        Each row holds the indices (anchor, near, far) of three rows of X, where the anchor is
        closer to near than to far. May be empty.
    n_samples : int
        The number of rows of X.

    Attributes
    ----------
    indices : ndarray of shape (n_triplets, 3)
        The triplets, read-only.
    n_samples : int
        The number of rows of X.

    Notes
    -----
    A triplet that is given several times counts several times. A triplet that repeats an index
    raises an error, and so do contradictory triplets (a, b, c) and (a, c, b). Two objects are equal
    if they hold the same triplets in the same order.

    Examples
    --------
    >>> from nearfar.summaries.supervision import Triplets
    >>> triplets = Triplets([[0, 1, 2], [3, 2, 1]], n_samples=4)
    >>> triplets
    Triplets(2 triplets, n_samples=4)
    >>> triplets.restrict([3, 2, 1]).indices.tolist()
    [[0, 1, 2]]
    >>> Triplets.from_labels(["a", "a", "b"]).indices.tolist()
    [[0, 1, 2], [1, 0, 2]]
    """

    indices: Indices

    def __init__(self, indices: ArrayLike, *, n_samples: int) -> None:
        check_parameter("Triplets", "n_samples", n_samples, [integer(0)])
        rows = check_tuples(indices, 3, "indices", n_samples)
        _raise_if_opposite(rows, "indices")
        self._set_fields(indices=rows, n_samples=int(n_samples))

    def __repr__(self) -> str:
        return f"Triplets({len(self.indices)} triplets, n_samples={self.n_samples})"

    @classmethod
    def from_labels(
        cls,
        y: Any,
        *,
        n_triplets: int | None = None,
        unknown: Any = None,
        random_state: DrawSeed = None,
    ) -> Self:
        """Draw triplets: the first two rows have the same class, and the third has another class.

        Triplets are drawn uniformly without replacement from all such triplets. The triplets are
        never enumerated, so time and memory are linear in the number of rows plus the number of
        drawn triplets. A row that is alone in its class can occur only as the third row.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any type.
        n_triplets : int or None, default=None
            Maximum number of triplets. If there are fewer, all of them are returned. ``None``
            means ``20 * c * (c - 1)`` for ``c`` classes, but at least 1,000 and at most 100,000.
        unknown : label, optional
            Label of rows whose class is unknown, for example -1. No triplet contains them.
        random_state : int, RandomState or None, default=None
            Seed of the random draw.

        Returns
        -------
        Triplets
            The triplets. They are in random order, or sorted by class if all are returned.
        """
        check_parameter("Triplets.from_labels", "n_triplets", n_triplets, [integer(0), none])
        rng = check_random_state(random_state)
        blocks = sort_by_class(y, unknown)
        triplets = draw_triplets(blocks, limit_draws(n_triplets, blocks), rng)
        return cls._from_fields(indices=triplets, n_samples=blocks.n_samples)

    @classmethod
    def from_neighbors(
        cls, X: ArrayLike, y: ArrayLike, *, n_near: int = 3, n_far: int = 10
    ) -> Self:
        """Create triplets from the nearest rows of the same class and of other classes.

        Each row is an anchor, near is one of its ``n_near`` nearest neighbors in its class, and far
        one of its ``n_far`` nearest neighbors in other classes. The neighbor search is Euclidean
        and exact. It takes O(n² p) time, and little memory besides the result.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data.
        y : array-like of shape (n_samples,)
            Class labels of any type.
        n_near, n_far : int, default=3, 10
            Number of neighbors of each row in its own class (``n_near``) and in all other classes
            together (``n_far``). If there are fewer, all of them are used, and a warning is issued.

        Returns
        -------
        Triplets
            Up to ``n_near * n_far`` triplets per row, ordered by anchor, then by the distance of
            near, then by the distance of far.

        Examples
        --------
        >>> from nearfar import Triplets
        >>> X = [[0.0], [1.0], [5.0], [7.0]]
        >>> Triplets.from_neighbors(X, ["a", "a", "b", "b"], n_near=1, n_far=1).indices.tolist()
        [[0, 1, 2], [1, 0, 2], [2, 3, 1], [3, 2, 1]]
        """
        check_parameter("Triplets.from_neighbors", "n_near", n_near, [integer(1)])
        check_parameter("Triplets.from_neighbors", "n_far", n_far, [integer(1)])
        points = check_array(X, dtype=[np.float64, np.float32], input_name="X")
        classes, codes = encode_labels(y)
        if len(codes) != len(points):
            raise ValueError(
                f"X has {len(points)} rows but y has {len(codes)} labels; they must match."
            )
        _warn_small_classes(classes, np.bincount(codes), n_near, n_far)
        triplets = [
            _find_class_triplets(points, codes == c, n_near, n_far) for c in range(len(classes))
        ]
        rows = np.concatenate([np.empty((0, 3), np.intp), *triplets])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return cls._from_fields(indices=rows, n_samples=len(points))

    @classmethod
    def from_pairs(
        cls, pairs: Pairs, *, n_triplets: int | None = None, random_state: DrawSeed = None
    ) -> Self:
        """Create triplets by combining similar and dissimilar pairs that share a row.

        The shared row is the anchor.

        Parameters
        ----------
        pairs : Pairs
            Pairs of rows. Pairs that are both similar and dissimilar are not used.
        n_triplets : int or None, default=None
            Maximum number of triplets, drawn uniformly. If there are fewer, all of them are
            returned. ``None`` means 20 times the number of similar or of dissimilar pairs,
            whichever is smaller, but at least 1,000 and at most 100,000.
        random_state : int, RandomState or None, default=None
            Seed of the random draw.

        Returns
        -------
        Triplets
            The triplets. There are none if no row is in both a similar and a dissimilar pair.

        Examples
        --------
        >>> from nearfar import Pairs, Triplets
        >>> pairs = Pairs([[0, 1]], [[1, 2], [0, 3], [2, 3]], n_samples=4)
        >>> Triplets.from_pairs(pairs).indices.tolist()
        [[0, 1, 3], [1, 0, 2]]
        """
        check_parameter("Triplets.from_pairs", "n_triplets", n_triplets, [integer(0), none])
        rng = check_random_state(random_state)
        consistent = pairs.without_conflicts()
        cap = limit_comparisons(
            n_triplets, min(len(consistent.similar), len(consistent.dissimilar))
        )
        rows = draw_joined_triplets(
            consistent.similar, consistent.dissimilar, pairs.n_samples, cap, rng
        )
        return cls._from_fields(indices=rows, n_samples=pairs.n_samples)

    @classmethod
    def from_arrays(cls, triplets: ArrayLike) -> tuple[NDArray[Any], Self]:
        """Store the distinct points in an array X. Return X and triplets of row indices.

        Equal points of one triplet become different rows.

        Parameters
        ----------
        triplets : array-like of shape (n_triplets, 3, n_features)
            Three points per triplet: the anchor, the near point and the far point.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted. A point that occurs more than once in a triplet gets
            several rows.
        supervision : Triplets
            The triplets as row indices of X.
        """
        points, codes = find_distinct_points(triplets, 3, "triplets")
        X, rows = make_rows(points, codes)
        _raise_if_opposite(rows, "triplets")
        return X, cls._from_fields(indices=rows, n_samples=len(X))

    def to_arrays(self, X: ArrayLike) -> NDArray[Any]:
        """Return the points of the triplets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows that the indices refer to.

        Returns
        -------
        ndarray of shape (n_triplets, 3, n_features)
            Three points per triplet: the anchor, the near point and the far point.
        """
        return self._check_X(X)[self.indices]

    def restrict(self, indices: ArrayLike) -> Self:
        """Return the triplets whose three rows are all in ``indices``, with renumbered rows.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep. ``restrict(indices)`` is the supervision for ``X[indices]``.

        Returns
        -------
        Triplets
            The remaining triplets, with ``n_samples = len(indices)``.
        """
        kept_rows = self._check_row_selection(indices)
        rows = renumber(self.indices, kept_rows, self.n_samples)
        return self._from_fields(indices=rows, n_samples=kept_rows.size)


def _raise_if_opposite(rows: Indices, name: str) -> None:
    """Raise if two triplets contradict each other."""
    clash = find_shared_row(rows, rows[:, [0, 2, 1]])
    if clash is not None:
        raise ValueError(
            f"{name} rows {clash[0]} and {clash[1]} contradict each other: they have the same "
            "anchor, but near and far are exchanged. Remove one of them."
        )


def _find_class_triplets(
    points: NDArray[Any], member: NDArray[np.bool_], n_near: int, n_far: int
) -> Indices:
    """Return the neighbor triplets whose anchors are the rows of one class."""
    class_rows, other_rows = np.flatnonzero(member), np.flatnonzero(~member)
    n_near, n_far = min(n_near, len(class_rows) - 1), min(n_far, len(other_rows))
    if n_near == 0 or n_far == 0:
        return np.empty((0, 3), np.intp)
    near = class_rows[kneighbors(points[class_rows], n_neighbors=n_near)[1]]
    far = other_rows[kneighbors(points[other_rows], points[class_rows], n_neighbors=n_far)[1]]
    columns = np.broadcast_arrays(class_rows[:, None, None], near[:, :, None], far[:, None, :])
    return np.stack(columns, axis=-1).reshape(-1, 3)


def _warn_small_classes(
    classes: NDArray[Any], counts: NDArray[np.intp], n_near: int, n_far: int
) -> None:
    """Warn once about all classes that have fewer neighbors than requested."""
    is_small = counts - 1 < n_near
    if is_small.any():
        warn(
            f"n_near={n_near}, but rows of {_join_classes(classes[is_small])} have fewer neighbors "
            "in their class. All of these neighbors are used, and a class with a single row gets "
            "no triplets."
        )
    has_few_others = counts.sum() - counts < n_far
    if has_few_others.any():
        warn(
            f"n_far={n_far}, but only {int((counts.sum() - counts[has_few_others]).min())} rows "
            f"are in classes other than {_join_classes(classes[has_few_others])}. All of these "
            "rows are used."
        )


def _join_classes(classes: NDArray[Any]) -> str:
    return join_names(classes.tolist(), limit=5, quoted=False)
