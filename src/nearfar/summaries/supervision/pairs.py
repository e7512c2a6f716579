"""Pairs of rows that are similar or dissimilar."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Indices
from nearfar.parameters import check_parameter, integer, none, one_of
from nearfar.state import Sizes
from nearfar.summaries.drawing import draw_between, draw_within, limit_draws, sort_by_class
from nearfar.summaries.index_checks import (
    check_signs,
    check_tuples,
    find_distinct_points,
    find_shared_row,
    make_rows,
    mask_shared_rows,
    renumber,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision

#: How to treat a pair that is given both as similar and as dissimilar.
Conflicts = Literal["raise", "drop", "keep"]


class Pairs(Supervision):
    """Supervision by pairs of rows that are similar or dissimilar.

    The object is immutable. It has no length and cannot be sliced, because its indices refer to all
    rows of X. Use `restrict` to keep some of the rows.

    Parameters
    ----------
    similar : array-like of int of shape (n_similar, 2)
        Each row holds the indices of two similar rows of X. May be empty.
    dissimilar : array-like of int of shape (n_dissimilar, 2)
        Each row holds the indices of two dissimilar rows of X. May be empty.
    n_samples : int
        The number of rows of X.
    conflicts : {"raise", "drop", "keep"}, default="raise"
        How to treat a pair that is both in ``similar`` and in ``dissimilar``, for example because
        annotators disagree. "raise" raises an error, "drop" removes all copies of the pair, and
        "keep" keeps them, for methods that allow violated constraints.

    Attributes
    ----------
    similar, dissimilar : ndarray of shape (n_similar, 2) and (n_dissimilar, 2)
        The pairs, read-only.
    n_samples : int
        The number of rows of X.

    Notes
    -----
    The order of the two points of a pair has no meaning. A pair that is given several times counts
    several times. A pair of a row with itself raises an error. Two objects are equal if they hold
    the same pairs in the same order.

    Examples
    --------
    >>> from nearfar.summaries.supervision import Pairs
    >>> pairs = Pairs(similar=[[0, 1]], dissimilar=[[0, 2], [1, 3]], n_samples=4)
    >>> pairs
    Pairs(1 similar, 2 dissimilar, n_samples=4)

    Without row 0, its pairs are removed and the other rows are renumbered:

    >>> pairs.restrict([1, 2, 3]).dissimilar.tolist()
    [[0, 2]]

    From labels, with a seed and at most 3 dissimilar pairs:

    >>> Pairs.from_labels(["a", "a", "b", "b"], n_dissimilar=3, random_state=0)
    Pairs(2 similar, 3 dissimilar, n_samples=4)

    Two annotators who disagree about rows 0 and 1:

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
        similar_pairs = check_tuples(similar, 2, "similar", n_samples)
        dissimilar_pairs = check_tuples(dissimilar, 2, "dissimilar", n_samples)
        if conflicts == "raise":
            clash = find_shared_row(
                np.sort(similar_pairs, axis=1), np.sort(dissimilar_pairs, axis=1)
            )
            if clash is not None:
                i, j = similar_pairs[clash[0]]
                raise ValueError(
                    f"similar row {clash[0]} and dissimilar row {clash[1]}: the pair ({i}, {j}) "
                    "cannot be both similar and dissimilar; "
                    f"{_CONFLICTS_HINT.format('Pairs')}"
                )
        if conflicts == "drop":
            is_conflicting = _find_conflicts(similar_pairs, dissimilar_pairs)
            similar_pairs, dissimilar_pairs = (
                similar_pairs[~is_conflicting[0]],
                dissimilar_pairs[~is_conflicting[1]],
            )
        self._set_fields(
            similar=similar_pairs, dissimilar=dissimilar_pairs, n_samples=int(n_samples)
        )

    def _check_state(self, _: Sizes) -> None:
        Pairs(**vars(self), conflicts="keep")

    @property
    def n_conflicts(self) -> int:
        """Number of distinct pairs that are both similar and dissimilar.

        It is 0 unless the object was created with ``conflicts="keep"``.
        """
        conflicts = self.similar[_find_conflicts(self.similar, self.dissimilar)[0]]
        return len(np.unique(np.sort(conflicts, axis=1), axis=0))

    def without_conflicts(self) -> Self:
        """Return a copy without the pairs that are both similar and dissimilar."""
        is_conflicting = _find_conflicts(self.similar, self.dissimilar)
        return self._from_fields(
            similar=self.similar[~is_conflicting[0]],
            dissimilar=self.dissimilar[~is_conflicting[1]],
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
        """Draw similar pairs within the classes and dissimilar pairs between the classes.

        Pairs of each kind are drawn uniformly without replacement from all pairs of this kind.
        The pairs are never enumerated, so time and memory are linear in the number of rows plus
        the number of drawn pairs.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any type.
        n_similar, n_dissimilar : int or None, default=None
            Maximum number of pairs of each kind. If there are fewer, all of them are returned.
            ``None`` means ``20 * c * (c - 1)`` for ``c`` classes, but at least 1,000 and at most
            100,000.
        unknown : label, optional
            Label of rows whose class is unknown, for example -1. No pair contains them.
        random_state : int, RandomState or None, default=None
            Seed of the random draw.

        Returns
        -------
        Pairs
            The pairs. They are in random order, or sorted by class if all pairs are returned.
        """
        check_parameter("Pairs.from_labels", "n_similar", n_similar, [integer(0), none])
        check_parameter("Pairs.from_labels", "n_dissimilar", n_dissimilar, [integer(0), none])
        rng = check_random_state(random_state)
        blocks = sort_by_class(y, unknown)
        return cls._from_fields(
            similar=draw_within(blocks, limit_draws(n_similar, blocks), rng),
            dissimilar=draw_between(blocks, limit_draws(n_dissimilar, blocks), rng),
            n_samples=blocks.n_samples,
        )

    @classmethod
    def from_arrays(
        cls, pairs: ArrayLike, sign: ArrayLike, *, conflicts: Conflicts = "raise"
    ) -> tuple[NDArray[Any], Self]:
        """Store the distinct points in an array X. Return X and pairs of row indices.

        Two equal points of one pair become two rows.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            The two points of each pair.
        sign : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.
        conflicts : {"raise", "drop", "keep"}, default="raise"
            How to treat two points that are both similar and dissimilar; see :class:`Pairs`.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted. A point that is paired with itself gets two rows.
        supervision : Pairs
            The pairs as row indices of X.
        """
        check_parameter("Pairs.from_arrays", "conflicts", conflicts, _CONFLICTS)
        points, codes = find_distinct_points(pairs, 2, "pairs")
        X, rows = make_rows(points, codes)
        is_similar = check_signs(sign, len(rows), "sign")
        unordered = np.sort(rows, axis=1)
        clash = find_shared_row(unordered[is_similar], unordered[~is_similar])
        if clash is not None and conflicts == "raise":
            raise ValueError(
                f"pairs rows {np.flatnonzero(is_similar)[clash[0]]} (sign +1) and "
                f"{np.flatnonzero(~is_similar)[clash[1]]} (sign -1) are the same two points, "
                "which cannot be both similar and dissimilar; "
                f"{_CONFLICTS_HINT.format('Pairs.from_arrays')}"
            )
        return X, cls(rows[is_similar], rows[~is_similar], n_samples=len(X), conflicts=conflicts)

    def to_arrays(self, X: ArrayLike) -> tuple[NDArray[Any], Indices]:
        """Return the points of the pairs and their signs, similar pairs first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows that the indices refer to.

        Returns
        -------
        pairs : ndarray of shape (n_similar + n_dissimilar, 2, n_features)
            The two points of each pair.
        sign : ndarray of shape (n_similar + n_dissimilar,)
            +1 for a similar pair, -1 for a dissimilar one.
        """
        points = self._check_X(X)[np.vstack([self.similar, self.dissimilar])]
        sign = np.repeat(np.array([1, -1], np.intp), [len(self.similar), len(self.dissimilar)])
        return points, sign

    def restrict(self, indices: ArrayLike) -> Self:
        """Return the pairs whose two rows are both in ``indices``, with renumbered rows.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep. ``restrict(indices)`` is the supervision for ``X[indices]``.

        Returns
        -------
        Pairs
            The remaining pairs, with ``n_samples = len(indices)``.
        """
        rows = self._check_row_selection(indices)
        return self._from_fields(
            similar=renumber(self.similar, rows, self.n_samples),
            dissimilar=renumber(self.dissimilar, rows, self.n_samples),
            n_samples=rows.size,
        )


_CONFLICTS = [one_of("raise", "drop", "keep")]
_CONFLICTS_HINT = 'pass conflicts="drop" to {} to omit such pairs, or "keep" to keep both.'


def _find_conflicts(
    similar: Indices, dissimilar: Indices
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return two masks that mark the conflicting pairs in ``similar`` and in ``dissimilar``."""
    return mask_shared_rows(np.sort(similar, axis=1), np.sort(dissimilar, axis=1))
