"""Groups of rows that are alike, of a class that nobody needs to name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from nearfar.arrays import Indices
from nearfar.labels import known_codes
from nearfar.parameters import check_parameter, integer, none
from nearfar.state import Sizes, need
from nearfar.summaries.index_checks import (
    check_indices,
    check_integers,
    finite_points,
    first_repeat,
    refuse,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision
from nearfar.summaries.supervision.pairs import Pairs


class Chunklets(Supervision):
    """Disjoint groups of rows known to be alike, with labels otherwise unknown.

    The object is immutable and has no length. The plain vector ``labels`` says the same and can
    be sliced along with X, as labels are; learners take both.

    Parameters
    ----------
    labels : array-like of int of shape (n_samples,)
        The number of each row's chunklet, -1 for a row in no chunklet. Numbers may have gaps.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
        The number of each row's chunklet, read-only.
    n_samples : int
        The number of rows of X.

    Examples
    --------
    >>> from nearfar.summaries.supervision import Chunklets
    >>> chunklets = Chunklets.from_groups([[0, 1], [3, 4, 5]], n_samples=6)
    >>> chunklets
    Chunklets(2 chunklets of 5 rows, n_samples=6)
    >>> chunklets.labels.tolist()
    [0, 0, -1, 1, 1, 1]
    >>> chunklets.restrict([5, 4, 2]).labels.tolist()
    [1, 1, -1]
    """

    labels: Indices

    def __init__(self, labels: ArrayLike) -> None:
        numbers = _numbers(labels, "labels")
        self._set(labels=numbers, n_samples=numbers.size)

    def _check_state(self, _: Sizes) -> None:
        need(Chunklets(self.labels).n_samples == self.n_samples, "n_samples does not fit.")

    def __repr__(self) -> str:
        members = self.labels[self.labels >= 0]
        return (
            f"Chunklets({np.unique(members).size} chunklets of {members.size} rows, "
            f"n_samples={self.n_samples})"
        )

    @classmethod
    def from_groups(cls, groups: Iterable[ArrayLike], *, n_samples: int) -> Self:
        """Make chunklets from the indices of their rows.

        Parameters
        ----------
        groups : iterable of array-like of int
            The indices of each chunklet's rows; no index may occur twice.
        n_samples : int
            The number of rows of X.

        Returns
        -------
        Chunklets
            Numbered in the order of ``groups``.
        """
        check_parameter("Chunklets.from_groups", "n_samples", n_samples, [integer(0)])
        members = [
            check_indices(group, f"groups[{number}]", n_samples)
            for number, group in enumerate(groups)
        ]
        sizes = [group.size for group in members]
        _refuse_empty(sizes, "groups")
        rows = np.concatenate([np.empty(0, np.intp), *members])
        numbers = np.repeat(np.arange(len(members)), sizes)
        repeat = first_repeat(rows)
        if repeat is not None:
            first, second = numbers[list(repeat)]
            raise ValueError(
                f"groups: index {rows[repeat[0]]} is in chunklet {first} and again in chunklet "
                f"{second}; a row can be in one chunklet only, once."
            )
        labels = np.full(n_samples, -1, np.intp)
        labels[rows] = numbers
        return cls(labels)

    @classmethod
    def from_labels(
        cls,
        y: Any,
        *,
        n_chunklets: int | None = None,
        chunklet_size: int = 2,
        unknown: Any = None,
        random_state: DrawSeed = None,
    ) -> Self:
        """Draw disjoint chunklets from labels, each within one class.

        Every class is cut at random into as many chunklets as it has room for, and of all these
        ``n_chunklets`` are drawn.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any kind.
        n_chunklets : int or None, default=None
            At most so many chunklets; fewer when the classes have no room for more. ``None``
            makes every class one chunklet, whatever its size.
        chunklet_size : int, default=2
            Rows in each chunklet. Not used when ``n_chunklets`` is None.
        unknown : label, optional
            The label of rows of which nothing is known, such as -1; they are in no chunklet.
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Chunklets
        """
        check_parameter("Chunklets.from_labels", "n_chunklets", n_chunklets, [integer(0), none])
        check_parameter("Chunklets.from_labels", "chunklet_size", chunklet_size, [integer(2)])
        rng = check_random_state(random_state)
        all_codes, known = known_codes(y, unknown)
        if n_chunklets is None:
            return cls(np.where(known, all_codes, -1))
        codes = all_codes[known]
        sizes = np.bincount(codes)
        room = sizes // chunklet_size
        # Rows by class, at random within it; each class's leftover rows stay out.
        rows = np.lexsort((rng.random_sample(codes.size), codes))
        place = np.arange(codes.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        chunks = rows[place < np.repeat(room * chunklet_size, sizes)].reshape(-1, chunklet_size)
        drawn = chunks[rng.permutation(len(chunks))[:n_chunklets]]
        labels = np.full(known.size, -1, np.intp)
        labels[np.flatnonzero(known)[drawn]] = np.arange(len(drawn))[:, np.newaxis]
        return cls(labels)

    @classmethod
    def from_pairs(cls, pairs: Pairs) -> Self:
        """Take rows for one chunklet that a chain of similar pairs connects.

        Of dissimilar pairs chunklets know nothing.

        Parameters
        ----------
        pairs : Pairs
            Pairs of rows.

        Returns
        -------
        Chunklets
            Numbered in the order of their first rows.

        Examples
        --------
        >>> from nearfar import Chunklets, Pairs
        >>> Chunklets.from_pairs(Pairs([[0, 3], [3, 1]], [[1, 2]], n_samples=5)).labels.tolist()
        [0, 0, -1, 0, -1]
        """
        n, similar = pairs.n_samples, pairs.similar
        graph = sparse.coo_array((np.ones(len(similar)), similar.T), shape=(n, n))
        _, group = sparse.csgraph.connected_components(graph, directed=False)
        labels = np.full(n, -1, np.intp)
        rows = np.unique(similar)
        names, first, number = np.unique(group[rows], return_index=True, return_inverse=True)
        order = np.empty(len(names), np.intp)
        order[np.argsort(first)] = np.arange(len(names))
        labels[rows] = order[number]
        return cls(labels)

    @classmethod
    def from_arrays(cls, chunklets: Sequence[ArrayLike]) -> tuple[NDArray[Any], Self]:
        """Stack the points of chunklets.

        Parameters
        ----------
        chunklets : list of array-like of shape (n_points, n_features)
            The points of each chunklet. Equal points stay distinct rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            All points, chunklet after chunklet.
        supervision : Chunklets
            Which rows belong together.
        """
        members = [
            finite_points(points, f"chunklets[{number}]") for number, points in enumerate(chunklets)
        ]
        if not members:
            raise ValueError("chunklets is empty; give at least one array of points.")
        for number, points in enumerate(members):
            if points.shape[1] != members[0].shape[1]:
                raise ValueError(
                    f"chunklets[{number}] has {points.shape[1]} features, chunklets[0] has "
                    f"{members[0].shape[1]}; they must agree."
                )
        sizes = [len(points) for points in members]
        _refuse_empty(sizes, "chunklets")
        return np.vstack(members), cls(np.repeat(np.arange(len(members)), sizes))

    def to_arrays(self, X: ArrayLike) -> list[NDArray[Any]]:
        """Return the points of each chunklet, in the order of their numbers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All the rows the chunklets refer to.

        Returns
        -------
        list of ndarray of shape (n_points, n_features)
            One for each chunklet.
        """
        points = self._points(X)
        rows = np.argsort(self.labels, kind="stable")
        rows = rows[self.labels[rows] >= 0]
        starts = np.flatnonzero(np.diff(self.labels[rows], prepend=-1))
        return [points[chunk] for chunk in np.split(rows, starts)[1:]]

    def restrict(self, indices: ArrayLike) -> Self:
        """Keep the rows among ``indices``; what remains of a chunklet stays together.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep; ``restrict(indices)`` belongs to ``X[indices]``.

        Returns
        -------
        Chunklets
            With ``labels[indices]``: chunklets keep their numbers, and one of which a single row
            is left is a chunklet of one.
        """
        return type(self)(self.labels[self._kept_rows(indices)])


def as_chunklets(supervision: Chunklets | ArrayLike) -> Chunklets:
    """Chunklets, or those of an integer vector in which -1 marks a row in no chunklet.

    Examples
    --------
    >>> from nearfar.summaries.supervision import as_chunklets
    >>> as_chunklets([0, 0, -1, 1, 1])
    Chunklets(2 chunklets of 4 rows, n_samples=5)
    """
    if isinstance(supervision, Chunklets):
        return supervision
    if isinstance(supervision, Supervision):
        raise ValueError(
            f"supervision should be Chunklets or an integer vector; got {supervision!r}."
        )
    return Chunklets(_numbers(supervision, "supervision"))


def _numbers(labels: ArrayLike, name: str) -> Indices:
    """Numbers of chunklets, and -1."""
    numbers = check_integers(labels, name)
    refuse(
        numbers < -1,
        numbers,
        name,
        "{} is below -1; chunklets are numbered from 0, -1 marks a row in no chunklet.",
    )
    return numbers


def _refuse_empty(sizes: list[int], name: str) -> None:
    """Raise if a chunklet has no rows."""
    if 0 in sizes:
        raise ValueError(f"{name}[{sizes.index(0)}] is empty; a chunklet needs at least one row.")
