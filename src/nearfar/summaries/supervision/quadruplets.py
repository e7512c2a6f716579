"""Quadruplets of rows: two points are closer to each other than two others."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Indices
from nearfar.parameters import check_parameter, integer, none
from nearfar.summaries.drawing import (
    draw_quadruplets,
    draw_ranks,
    limit_comparisons,
    limit_draws,
    sort_by_class,
)
from nearfar.summaries.index_checks import (
    check_indices,
    find_distinct_points,
    find_shared_row,
    make_rows,
    raise_if_any,
    renumber,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision
from nearfar.summaries.supervision.pairs import Pairs


class Quadruplets(Supervision):
    """Supervision by quadruplets of rows (a, b, c, d): a is closer to b than c is to d.

    The object is immutable. It has no length and cannot be sliced, because its indices refer to all
    rows of X. Use `restrict` to keep some of the rows.

    Parameters
    ----------
    indices : array-like of int of shape (n_quadruplets, 4)
        Each row holds the indices (a, b, c, d) of rows of X, where a is closer to b than c is to d.
        The two pairs may share a row: (a, b, a, d) is the triplet (a, b, d). May be empty.
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
    The order of the two points of a pair has no meaning. A quadruplet that is given several times
    counts several times. An error is raised if a row is paired with itself, if a pair is compared
    with itself, or if two quadruplets contradict each other. Two objects are equal if they hold the
    same quadruplets in the same order.

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
        raise_if_any(
            rows[:, ::2] == rows[:, 1::2],
            rows[:, ::2],
            "indices",
            "index {} is paired with itself; the two points of a pair must differ.",
        )
        _check_consistent(rows, "indices")
        self._set_fields(indices=rows, n_samples=int(n_samples))

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
        """Draw quadruplets (a, b, c, d), where a and b have the same class, but c and d do not.

        Quadruplets are drawn uniformly without replacement from all such quadruplets. The
        quadruplets are never enumerated, so time and memory are linear in the number of rows plus
        the number of drawn quadruplets.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any type.
        n_quadruplets : int or None, default=None
            Maximum number of quadruplets. If there are fewer, all of them are returned. ``None``
            means ``20 * c * (c - 1)`` for ``c`` classes, but at least 1,000 and at most 100,000.
        unknown : label, optional
            Label of rows whose class is unknown, for example -1. No quadruplet contains them.
        random_state : int, RandomState or None, default=None
            Seed of the random draw.

        Returns
        -------
        Quadruplets
            The quadruplets. They are in random order, or sorted by class if all are returned.
        """
        check_parameter(
            "Quadruplets.from_labels", "n_quadruplets", n_quadruplets, [integer(0), none]
        )
        rng = check_random_state(random_state)
        blocks = sort_by_class(y, unknown)
        quadruplets = draw_quadruplets(blocks, limit_draws(n_quadruplets, blocks), rng)
        return cls._from_fields(indices=quadruplets, n_samples=blocks.n_samples)

    @classmethod
    def from_pairs(
        cls, pairs: Pairs, *, n_quadruplets: int | None = None, random_state: DrawSeed = None
    ) -> Self:
        """Create quadruplets by combining each similar pair with each dissimilar pair.

        Parameters
        ----------
        pairs : Pairs
            Pairs of rows. Pairs that are both similar and dissimilar are not used.
        n_quadruplets : int or None, default=None
            Maximum number of quadruplets, drawn uniformly. If there are fewer, all of them are
            returned. ``None`` means 20 times the number of similar or of dissimilar pairs,
            whichever is smaller, but at least 1,000 and at most 100,000.
        random_state : int, RandomState or None, default=None
            Seed of the random draw.

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
        consistent = pairs.without_conflicts()
        near, far = consistent.similar, consistent.dissimilar
        cap = limit_comparisons(n_quadruplets, min(len(near), len(far)))
        first, second = np.divmod(draw_ranks(len(near) * len(far), cap, rng), max(len(far), 1))
        rows = np.hstack([near[first], far[second]])
        return cls._from_fields(indices=rows, n_samples=pairs.n_samples)

    @classmethod
    def from_arrays(cls, quadruplets: ArrayLike) -> tuple[NDArray[Any], Self]:
        """Store the distinct points in an array X. Return X and quadruplets of row indices.

        Two equal points of one pair become two rows. Two equal pairs of one quadruplet become two
        pairs of rows.

        Parameters
        ----------
        quadruplets : array-like of shape (n_quadruplets, 4, n_features)
            The points a, b, c and d of each quadruplet.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted. A point that occurs twice in a pair, or in two equal pairs
            of a quadruplet, gets several rows.
        supervision : Quadruplets
            The quadruplets as row indices of X.
        """
        points, codes = find_distinct_points(quadruplets, 4, "quadruplets")
        # A point that occurs in both pairs becomes one row, unless the two pairs would be equal.
        copies = np.zeros_like(codes)
        copies[:, 1::2] = codes[:, ::2] == codes[:, 1::2]
        pairs = _sort_pairs(codes)
        copies[:, 2:] += 2 * (pairs[:, :2] == pairs[:, 2:]).all(axis=1, keepdims=True)
        X, rows = make_rows(points, codes, copies)
        _check_consistent(rows, "quadruplets")
        return X, cls._from_fields(indices=rows, n_samples=len(X))

    def to_arrays(self, X: ArrayLike) -> NDArray[Any]:
        """Return the points of the quadruplets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows that the indices refer to.

        Returns
        -------
        ndarray of shape (n_quadruplets, 4, n_features)
            The points a, b, c and d of each quadruplet.
        """
        return self._check_X(X)[self.indices]

    def restrict(self, indices: ArrayLike) -> Self:
        """Return the quadruplets whose four rows are all in ``indices``, with renumbered rows.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep. ``restrict(indices)`` is the supervision for ``X[indices]``.

        Returns
        -------
        Quadruplets
            The remaining quadruplets, with ``n_samples = len(indices)``.
        """
        kept_rows = self._check_row_selection(indices)
        rows = renumber(self.indices, kept_rows, self.n_samples)
        return self._from_fields(indices=rows, n_samples=kept_rows.size)


def _sort_pairs(rows: Indices) -> Indices:
    """Return the quadruplets with the two rows of each pair sorted."""
    return np.hstack([np.sort(rows[:, :2], axis=1), np.sort(rows[:, 2:], axis=1)])


def _check_consistent(rows: Indices, name: str) -> None:
    """Raise if a pair is compared with itself, or if two quadruplets contradict each other."""
    pairs = _sort_pairs(rows)
    is_self = (pairs[:, :2] == pairs[:, 2:]).all(axis=1)
    if is_self.any():
        row = int(np.argmax(is_self))
        i, j = pairs[row, :2]
        raise ValueError(
            f"{name} row {row}: the pair ({i}, {j}) is compared with itself; a quadruplet (a, b, "
            "c, d) means that a is closer to b than c is to d, so the two pairs must differ."
        )
    clash = find_shared_row(pairs, pairs[:, [2, 3, 0, 1]])
    if clash is not None:
        raise ValueError(
            f"{name} rows {clash[0]} and {clash[1]} contradict each other: they compare the same "
            "two pairs in opposite order. Remove one of them."
        )
