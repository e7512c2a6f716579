"""Quadruplets of rows: two points are nearer to each other than two others."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Indices
from nearfar.parameters import check_parameter, integer, none
from nearfar.summaries.drawing import (
    cap_on,
    cap_on_comparisons,
    class_blocks,
    draw_quadruplets,
    draw_ranks,
)
from nearfar.summaries.index_checks import (
    check_indices,
    distinct_points,
    first_shared,
    refuse,
    renumber,
    rows_of_points,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision
from nearfar.summaries.supervision.pairs import Pairs


class Quadruplets(Supervision):
    """Quadruplets of rows (a, b, c, d): a is nearer to b than c is to d.

    The object is immutable. It has no length and cannot be sliced, since its indices have a
    meaning only beside all the rows of X: use `restrict` to keep some rows.

    Parameters
    ----------
    indices : array-like of int of shape (n_quadruplets, 4)
        Each row holds the indices (a, b, c, d) of rows of X, a being nearer to b than c to d. The
        two pairs may share a row, (a, b, a, d) being the triplet (a, b, d). May be empty.
    n_samples : int
        The number of rows of X.

    Attributes
    ----------
    indices : ndarray of shape (n_quadruplets, 4)
        The quadruplets, read-only.
    n_samples : int
        The number of rows of X.

    Notes
    -----
    The order of the two points of a pair has no meaning. A quadruplet given several times counts
    several times. A pair of a row with itself, a pair compared with itself, and a comparison and
    its opposite raise. Two objects are equal when they hold the same quadruplets in the same order.

    Examples
    --------
    >>> from nearfar.summaries.supervision import Quadruplets
    >>> quadruplets = Quadruplets([[0, 1, 2, 3], [3, 2, 3, 1]], n_samples=4)
    >>> quadruplets
    Quadruplets(2 quadruplets, n_samples=4)
    >>> quadruplets.restrict([3, 2, 1]).indices.tolist()
    [[0, 1, 0, 2]]
    >>> Quadruplets.from_labels(["a", "a", "b"]).indices.tolist()
    [[0, 1, 0, 2], [0, 1, 1, 2]]
    """

    indices: Indices

    def __init__(self, indices: ArrayLike, *, n_samples: int) -> None:
        check_parameter("Quadruplets", "n_samples", n_samples, [integer(0)])
        rows = check_indices(indices, "indices", n_samples, 4)
        refuse(
            rows[:, ::2] == rows[:, 1::2],
            rows[:, ::2],
            "indices",
            "index {} is paired with itself; the two points of a pair must differ.",
        )
        _refuse_senseless(rows, "indices")
        self._set(indices=rows, n_samples=int(n_samples))

    def __repr__(self) -> str:
        return f"Quadruplets({len(self.indices)} quadruplets, n_samples={self.n_samples})"

    @classmethod
    def from_labels(
        cls,
        y: Any,
        *,
        n_quadruplets: int | None = None,
        unknown: Any = None,
        random_state: DrawSeed = None,
    ) -> Self:
        """Draw distinct quadruplets from labels: a and b of one class, c and d of two.

        They are drawn uniformly without replacement from all such quadruplets, which are counted
        but never listed: time and memory grow with the number of rows and of quadruplets drawn.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any kind.
        n_quadruplets : int or None, default=None
            At most so many quadruplets. When there are no more than that, all are taken. ``None``
            means ``20 * c * (c - 1)`` for ``c`` classes, but at least 1,000 and at most 100,000.
        unknown : label, optional
            The label of rows of which nothing is known, such as -1; they are in no quadruplet.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Quadruplets
            In random order when drawn, in the order of the classes when all are taken.
        """
        check_parameter(
            "Quadruplets.from_labels", "n_quadruplets", n_quadruplets, [integer(0), none]
        )
        rng = check_random_state(random_state)
        blocks = class_blocks(y, unknown)
        quadruplets = draw_quadruplets(blocks, cap_on(n_quadruplets, blocks), rng)
        return cls._of(indices=quadruplets, n_samples=blocks.n_samples)

    @classmethod
    def from_pairs(
        cls, pairs: Pairs, *, n_quadruplets: int | None = None, random_state: DrawSeed = None
    ) -> Self:
        """Compare similar pairs with dissimilar ones.

        Parameters
        ----------
        pairs : Pairs
            Pairs of rows; those both similar and dissimilar are not used.
        n_quadruplets : int or None, default=None
            At most so many comparisons, drawn uniformly; when there are no more, all are taken.
            ``None`` means 20 for each pair of the rarer kind, but at least 1,000 and at most
            100,000.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Quadruplets

        Examples
        --------
        >>> from nearfar import Pairs, Quadruplets
        >>> pairs = Pairs([[0, 1]], [[1, 2], [0, 3]], n_samples=4)
        >>> Quadruplets.from_pairs(pairs).indices.tolist()
        [[0, 1, 1, 2], [0, 1, 0, 3]]
        """
        check_parameter(
            "Quadruplets.from_pairs", "n_quadruplets", n_quadruplets, [integer(0), none]
        )
        rng = check_random_state(random_state)
        clear = pairs.without_conflicts()
        near, far = clear.similar, clear.dissimilar
        cap = cap_on_comparisons(n_quadruplets, min(len(near), len(far)))
        first, second = np.divmod(draw_ranks(len(near) * len(far), cap, rng), max(len(far), 1))
        rows = np.hstack([near[first], far[second]])
        return cls._of(indices=rows, n_samples=pairs.n_samples)

    @classmethod
    def from_arrays(cls, quadruplets: ArrayLike) -> tuple[NDArray[Any], Self]:
        """Turn quadruplets of points into their distinct points and quadruplets of indices.

        Two equal points of one pair stay two rows, and so do two equal pairs of points.

        Parameters
        ----------
        quadruplets : array-like of shape (n_quadruplets, 4, n_features)
            The points a, b, c and d of each quadruplet.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted; several times those that a pair or a comparison repeats.
        supervision : Quadruplets
            The quadruplets as indices of rows of X.
        """
        points, codes = distinct_points(quadruplets, 4, "quadruplets")
        # A point in both pairs is one row, unless it were the same pair twice.
        copies = np.zeros_like(codes)
        copies[:, 1::2] = codes[:, ::2] == codes[:, 1::2]
        pairs = _unordered(codes)
        copies[:, 2:] += 2 * (pairs[:, :2] == pairs[:, 2:]).all(axis=1, keepdims=True)
        X, rows = rows_of_points(points, codes, copies)
        _refuse_senseless(rows, "quadruplets")
        return X, cls._of(indices=rows, n_samples=len(X))

    def to_arrays(self, X: ArrayLike) -> NDArray[Any]:
        """Return the points of the quadruplets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All the rows the indices refer to.

        Returns
        -------
        ndarray of shape (n_quadruplets, 4, n_features)
            The points a, b, c and d of each quadruplet.
        """
        return self._points(X)[self.indices]

    def restrict(self, indices: ArrayLike) -> Self:
        """Keep the quadruplets whose four points are all among ``indices``, renumbered.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep; ``restrict(indices)`` belongs to ``X[indices]``.

        Returns
        -------
        Quadruplets
            With ``n_samples = len(indices)``.
        """
        kept = self._kept_rows(indices)
        rows = renumber(self.indices, kept, self.n_samples)
        return self._of(indices=rows, n_samples=kept.size)


def _unordered(rows: Indices) -> Indices:
    """The same quadruplets with the points of each pair in ascending order."""
    return np.hstack([np.sort(rows[:, :2], axis=1), np.sort(rows[:, 2:], axis=1)])


def _refuse_senseless(rows: Indices, name: str) -> None:
    """Raise if a pair is compared with itself, or a comparison says the opposite of another."""
    pairs = _unordered(rows)
    same = (pairs[:, :2] == pairs[:, 2:]).all(axis=1)
    if same.any():
        row = int(np.argmax(same))
        i, j = pairs[row, :2]
        raise ValueError(
            f"{name} row {row}: the pair ({i}, {j}) is compared with itself; a quadruplet (a, b, "
            "c, d) says that a is nearer to b than c to d."
        )
    clash = first_shared(pairs, pairs[:, [2, 3, 0, 1]])
    if clash is not None:
        raise ValueError(
            f"{name} rows {clash[0]} and {clash[1]} contradict each other: they compare the same "
            "two pairs the opposite way."
        )
