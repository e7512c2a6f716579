"""Triplets of rows: an anchor, a near point and a far one."""

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
    cap_on,
    cap_on_comparisons,
    class_blocks,
    draw_joined,
    draw_triplets,
)
from nearfar.summaries.index_checks import (
    check_tuples,
    distinct_points,
    first_shared,
    renumber,
    rows_of_points,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision
from nearfar.summaries.supervision.pairs import Pairs
from nearfar.words import listed


class Triplets(Supervision):
    """Triplets of rows: an anchor is nearer to one point than to another.

    The object is immutable. It has no length and cannot be sliced, since its indices have a
    meaning only beside all the rows of X: use `restrict` to keep some rows.

    Parameters
    ----------
    indices : array-like of int of shape (n_triplets, 3)
        Each row holds the indices (anchor, near, far) of three rows of X, the anchor being
        nearer to near than to far. May be empty.
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
    A triplet given several times counts several times. A triplet that repeats an index raises,
    and so do (a, b, c) and (a, c, b) together. Two objects are equal when they hold the same
    triplets in the same order.

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
        _refuse_opposites(rows, "indices")
        self._set(indices=rows, n_samples=int(n_samples))

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
        """Draw distinct triplets from labels: near shares the anchor's class, far does not.

        They are drawn uniformly without replacement from all such triplets, which are counted but
        never listed: time and memory grow with the number of rows and of triplets drawn. The row
        of a class of one can be far only.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any kind.
        n_triplets : int or None, default=None
            At most so many triplets. When there are no more than that, all are taken. ``None``
            means ``20 * c * (c - 1)`` for ``c`` classes, but at least 1,000 and at most 100,000.
        unknown : label, optional
            The label of rows of which nothing is known, such as -1; they are in no triplet.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Triplets
            In random order when drawn, in the order of the classes when all are taken.
        """
        check_parameter("Triplets.from_labels", "n_triplets", n_triplets, [integer(0), none])
        rng = check_random_state(random_state)
        blocks = class_blocks(y, unknown)
        triplets = draw_triplets(blocks, cap_on(n_triplets, blocks), rng)
        return cls._of(indices=triplets, n_samples=blocks.n_samples)

    @classmethod
    def from_neighbors(
        cls, X: ArrayLike, y: ArrayLike, *, n_near: int = 3, n_far: int = 10
    ) -> Self:
        """Take for each row the nearest of its own class, each with the nearest of others.

        Neighbours are Euclidean, exact and searched in blocks: O(n² p) time, and memory for the
        result.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.
        y : array-like of shape (n_samples,)
            Class labels of any kind.
        n_near, n_far : int, default=3, 10
            How many neighbours of the own class, and of all others together. Where there are not
            so many all are taken, with a warning.

        Returns
        -------
        Triplets
            Up to ``n_near * n_far`` for each row, row after row; the far points of each near one
            come together, nearest first.

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
            raise ValueError(f"X has {len(points)} rows and y has {len(codes)} labels.")
        _warn_of_small_classes(classes, np.bincount(codes), n_near, n_far)
        triplets = [
            _triplets_of_class(points, codes == c, n_near, n_far) for c in range(len(classes))
        ]
        rows = np.concatenate([np.empty((0, 3), np.intp), *triplets])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return cls._of(indices=rows, n_samples=len(points))

    @classmethod
    def from_pairs(
        cls, pairs: Pairs, *, n_triplets: int | None = None, random_state: DrawSeed = None
    ) -> Self:
        """Take a row of a similar and a dissimilar pair for the anchor of the two others.

        Parameters
        ----------
        pairs : Pairs
            Pairs of rows; those both similar and dissimilar are not used.
        n_triplets : int or None, default=None
            At most so many triplets, drawn uniformly; when there are no more, all are taken.
            ``None`` means 20 for each pair of the rarer kind, but at least 1,000 and at most
            100,000.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Triplets
            None where no row is in pairs of both kinds.

        Examples
        --------
        >>> from nearfar import Pairs, Triplets
        >>> pairs = Pairs([[0, 1]], [[1, 2], [0, 3], [2, 3]], n_samples=4)
        >>> Triplets.from_pairs(pairs).indices.tolist()
        [[0, 1, 3], [1, 0, 2]]
        """
        check_parameter("Triplets.from_pairs", "n_triplets", n_triplets, [integer(0), none])
        rng = check_random_state(random_state)
        clear = pairs.without_conflicts()
        cap = cap_on_comparisons(n_triplets, min(len(clear.similar), len(clear.dissimilar)))
        rows = draw_joined(clear.similar, clear.dissimilar, pairs.n_samples, cap, rng)
        return cls._of(indices=rows, n_samples=pairs.n_samples)

    @classmethod
    def from_arrays(cls, triplets: ArrayLike) -> tuple[NDArray[Any], Self]:
        """Turn triplets of points into their distinct points and triplets of indices.

        Equal points of one triplet stay different rows.

        Parameters
        ----------
        triplets : array-like of shape (n_triplets, 3, n_features)
            The points anchor, near and far of each triplet.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted; several times those that a triplet repeats.
        supervision : Triplets
            The triplets as indices of rows of X.
        """
        points, codes = distinct_points(triplets, 3, "triplets")
        X, rows = rows_of_points(points, codes)
        _refuse_opposites(rows, "triplets")
        return X, cls._of(indices=rows, n_samples=len(X))

    def to_arrays(self, X: ArrayLike) -> NDArray[Any]:
        """Return the points of the triplets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All the rows the indices refer to.

        Returns
        -------
        ndarray of shape (n_triplets, 3, n_features)
            The points anchor, near and far of each triplet.
        """
        return self._points(X)[self.indices]

    def restrict(self, indices: ArrayLike) -> Self:
        """Keep the triplets whose three points are all among ``indices``, renumbered.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep; ``restrict(indices)`` belongs to ``X[indices]``.

        Returns
        -------
        Triplets
            With ``n_samples = len(indices)``.
        """
        kept = self._kept_rows(indices)
        rows = renumber(self.indices, kept, self.n_samples)
        return self._of(indices=rows, n_samples=kept.size)


def _refuse_opposites(rows: Indices, name: str) -> None:
    """Raise if a triplet says the opposite of another."""
    clash = first_shared(rows, rows[:, [0, 2, 1]])
    if clash is not None:
        raise ValueError(
            f"{name} rows {clash[0]} and {clash[1]} contradict each other: they have the same "
            "anchor, and near and far exchanged."
        )


def _triplets_of_class(
    points: NDArray[Any], member: NDArray[np.bool_], n_near: int, n_far: int
) -> Indices:
    """Triplets of neighbours whose anchors are the members of one class."""
    own, others = np.flatnonzero(member), np.flatnonzero(~member)
    n_near, n_far = min(n_near, len(own) - 1), min(n_far, len(others))
    if n_near == 0 or n_far == 0:
        return np.empty((0, 3), np.intp)
    near = own[kneighbors(points[own], n_neighbors=n_near)[1]]
    far = others[kneighbors(points[others], points[own], n_neighbors=n_far)[1]]
    each = np.broadcast_arrays(own[:, None, None], near[:, :, None], far[:, None, :])
    return np.stack(each, axis=-1).reshape(-1, 3)


def _warn_of_small_classes(
    classes: NDArray[Any], counts: NDArray[np.intp], n_near: int, n_far: int
) -> None:
    """One warning of all classes that have fewer neighbours than asked for."""
    few = counts - 1 < n_near
    if few.any():
        warn(
            f"n_near={n_near}, but rows of {_named(classes[few])} have fewer others of their "
            "class: all of them are taken, and the row of a class of one is no anchor."
        )
    rare = counts.sum() - counts < n_far
    if rare.any():
        warn(
            f"n_far={n_far}, but there are only {int((counts.sum() - counts[rare]).min())} rows of "
            f"other classes than {_named(classes[rare])}: all of them are taken."
        )


def _named(classes: NDArray[Any]) -> str:
    return listed(classes.tolist(), limit=5, quoted=False)
