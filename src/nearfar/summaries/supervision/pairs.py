"""Pairs of rows that are alike or different."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Indices
from nearfar.parameters import check_parameter, integer, none, one_of
from nearfar.state import Sizes
from nearfar.summaries.drawing import cap_on, class_blocks, draw_between, draw_within
from nearfar.summaries.index_checks import (
    check_signs,
    check_tuples,
    distinct_points,
    first_shared,
    renumber,
    rows_in_both,
    rows_of_points,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision

#: What becomes of a pair said both ways.
Conflicts = Literal["raise", "drop", "keep"]


class Pairs(Supervision):
    """Pairs of rows that are similar, and pairs that are dissimilar.

    The object is immutable. It has no length and cannot be sliced, since its indices have a
    meaning only beside all the rows of X: use `restrict` to keep some rows.

    Parameters
    ----------
    similar : array-like of int of shape (n_similar, 2)
        Each row holds the indices of two rows of X that are alike. May be empty.
    dissimilar : array-like of int of shape (n_dissimilar, 2)
        Each row holds the indices of two rows of X that are different. May be empty.
    n_samples : int
        The number of rows of X.
    conflicts : {"raise", "drop", "keep"}, default="raise"
        What becomes of a pair said to be both similar and dissimilar, as happens when people
        disagree: an error; the pair left out, however often either was said; or both kept, for
        methods with slack.

    Attributes
    ----------
    similar, dissimilar : ndarray of shape (n_similar, 2) and (n_dissimilar, 2)
        The pairs, read-only.
    n_samples : int
        The number of rows of X.

    Notes
    -----
    The order of the two points of a pair has no meaning. A pair given several times counts
    several times. A pair of a row with itself raises. Two objects are equal when they hold the
    same pairs in the same order.

    Examples
    --------
    >>> from nearfar.summaries.supervision import Pairs
    >>> pairs = Pairs(similar=[[0, 1]], dissimilar=[[0, 2], [1, 3]], n_samples=4)
    >>> pairs
    Pairs(1 similar, 2 dissimilar, n_samples=4)

    Without row 0, the pairs of row 0 go and the other rows move up:

    >>> pairs.restrict([1, 2, 3]).dissimilar.tolist()
    [[0, 2]]

    From labels, with a seed and a cap:

    >>> Pairs.from_labels(["a", "a", "b", "b"], n_dissimilar=3, random_state=0)
    Pairs(2 similar, 3 dissimilar, n_samples=4)

    Two people who disagree about rows 0 and 1:

    >>> Pairs([[0, 1], [2, 3]], [[1, 0]], n_samples=4, conflicts="drop")
    Pairs(1 similar, 0 dissimilar, n_samples=4)
    """

    similar: Indices
    dissimilar: Indices

    def __init__(
        self,
        similar: ArrayLike,
        dissimilar: ArrayLike,
        *,
        n_samples: int,
        conflicts: Conflicts = "raise",
    ) -> None:
        check_parameter("Pairs", "n_samples", n_samples, [integer(0)])
        check_parameter("Pairs", "conflicts", conflicts, _CONFLICTS)
        alike = check_tuples(similar, 2, "similar", n_samples)
        different = check_tuples(dissimilar, 2, "dissimilar", n_samples)
        if conflicts == "raise":
            clash = first_shared(np.sort(alike, axis=1), np.sort(different, axis=1))
            if clash is not None:
                i, j = alike[clash[0]]
                raise ValueError(
                    f"similar row {clash[0]} and dissimilar row {clash[1]}: the pair ({i}, {j}) "
                    "cannot be both similar and dissimilar; "
                    f"{_INSTEAD.format('Pairs')}"
                )
        if conflicts == "drop":
            in_both = _said_both_ways(alike, different)
            alike, different = alike[~in_both[0]], different[~in_both[1]]
        self._set(similar=alike, dissimilar=different, n_samples=int(n_samples))

    def _check_state(self, _: Sizes) -> None:
        Pairs(**vars(self), conflicts="keep")

    @property
    def n_conflicts(self) -> int:
        """How many different pairs are both similar and dissimilar: 0 unless kept."""
        alike = self.similar[_said_both_ways(self.similar, self.dissimilar)[0]]
        return len(np.unique(np.sort(alike, axis=1), axis=0))

    def without_conflicts(self) -> Self:
        """The pairs that are not both similar and dissimilar."""
        in_both = _said_both_ways(self.similar, self.dissimilar)
        return self._of(
            similar=self.similar[~in_both[0]],
            dissimilar=self.dissimilar[~in_both[1]],
            n_samples=self.n_samples,
        )

    def __repr__(self) -> str:
        return (
            f"Pairs({len(self.similar)} similar, {len(self.dissimilar)} dissimilar, "
            f"n_samples={self.n_samples})"
        )

    @classmethod
    def from_labels(
        cls,
        y: Any,
        *,
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        unknown: Any = None,
        random_state: DrawSeed = None,
    ) -> Self:
        """Draw distinct pairs from labels: similar within a class, dissimilar between two.

        Each kind is drawn uniformly without replacement from all its pairs, which are counted but
        never listed: time and memory grow with the number of rows and of pairs drawn.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any kind.
        n_similar, n_dissimilar : int or None, default=None
            At most so many pairs of each kind. When there are no more than that, all are taken.
            ``None`` means ``20 * c * (c - 1)`` for ``c`` classes, but at least 1,000 and at most
            100,000.
        unknown : label, optional
            The label of rows of which nothing is known, such as -1; they are in no pair.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Pairs
            In random order when drawn, in the order of the classes when all are taken.
        """
        check_parameter("Pairs.from_labels", "n_similar", n_similar, [integer(0), none])
        check_parameter("Pairs.from_labels", "n_dissimilar", n_dissimilar, [integer(0), none])
        rng = check_random_state(random_state)
        blocks = class_blocks(y, unknown)
        return cls._of(
            similar=draw_within(blocks, cap_on(n_similar, blocks), rng),
            dissimilar=draw_between(blocks, cap_on(n_dissimilar, blocks), rng),
            n_samples=blocks.n_samples,
        )

    @classmethod
    def from_arrays(
        cls, pairs: ArrayLike, sign: ArrayLike, *, conflicts: Conflicts = "raise"
    ) -> tuple[NDArray[Any], Self]:
        """Turn pairs of points into their distinct points and pairs of indices.

        Two equal points of one pair stay two rows.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            The two points of each pair.
        sign : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.
        conflicts : {"raise", "drop", "keep"}, default="raise"
            What becomes of two points said to be both similar and dissimilar; see the class.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted; twice those that are in a pair with themselves.
        supervision : Pairs
            The pairs as indices of rows of X.
        """
        check_parameter("Pairs.from_arrays", "conflicts", conflicts, _CONFLICTS)
        points, codes = distinct_points(pairs, 2, "pairs")
        X, rows = rows_of_points(points, codes)
        alike = check_signs(sign, len(rows), "sign")
        unordered = np.sort(rows, axis=1)
        clash = first_shared(unordered[alike], unordered[~alike])
        if clash is not None and conflicts == "raise":
            raise ValueError(
                f"pairs rows {np.flatnonzero(alike)[clash[0]]} (sign +1) and "
                f"{np.flatnonzero(~alike)[clash[1]]} (sign -1) hold the same two points, which "
                f"cannot be both similar and dissimilar; {_INSTEAD.format('Pairs.from_arrays')}"
            )
        return X, cls(rows[alike], rows[~alike], n_samples=len(X), conflicts=conflicts)

    def to_arrays(self, X: ArrayLike) -> tuple[NDArray[Any], Indices]:
        """Return the points of the pairs and their signs, similar pairs first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All the rows the indices refer to.

        Returns
        -------
        pairs : ndarray of shape (n_similar + n_dissimilar, 2, n_features)
            The two points of each pair.
        sign : ndarray of shape (n_similar + n_dissimilar,)
            +1 for a similar pair, -1 for a dissimilar one.
        """
        points = self._points(X)[np.vstack([self.similar, self.dissimilar])]
        sign = np.repeat(np.array([1, -1], np.intp), [len(self.similar), len(self.dissimilar)])
        return points, sign

    def restrict(self, indices: ArrayLike) -> Self:
        """Keep the pairs whose two points are both among ``indices``, renumbered.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep; ``restrict(indices)`` belongs to ``X[indices]``.

        Returns
        -------
        Pairs
            With ``n_samples = len(indices)``.
        """
        kept = self._kept_rows(indices)
        return self._of(
            similar=renumber(self.similar, kept, self.n_samples),
            dissimilar=renumber(self.dissimilar, kept, self.n_samples),
            n_samples=kept.size,
        )


_CONFLICTS = [one_of("raise", "drop", "keep")]
_INSTEAD = '{}(..., conflicts="drop") leaves such pairs out, "keep" keeps both.'


def _said_both_ways(
    similar: Indices, dissimilar: Indices
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which pairs of either kind are among the other kind too."""
    return rows_in_both(np.sort(similar, axis=1), np.sort(dissimilar, axis=1))
