"""Chunklets: groups of rows that have the same, unknown class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from nearfar.arrays import Indices
from nearfar.labels import encode_known_labels
from nearfar.parameters import check_parameter, integer, none
from nearfar.state import Sizes, check_that
from nearfar.summaries.index_checks import (
    check_indices,
    check_integers,
    check_points,
    find_repeat,
    raise_if_any,
)
from nearfar.summaries.supervision.index_based import DrawSeed, Supervision
from nearfar.summaries.supervision.pairs import Pairs


class Chunklets(Supervision):
    """Supervision by disjoint groups of similar rows, whose classes are unknown.

    The object is immutable and has no length. Learners also accept the vector ``labels`` instead of
    the object. The vector holds the same information and can be sliced together with X, like class
    labels.

    Parameters
    ----------
    labels : array-like of int of shape (n_samples,)
        Chunklet number of each row, or -1 if the row is in no chunklet. The numbers may have gaps.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
        Chunklet number of each row, read-only.
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
        numbers = _check_numbers(labels, "labels")
        self._set(labels=numbers, n_samples=numbers.size)

    def _check_state(self, _: Sizes) -> None:
        check_that(
            Chunklets(self.labels).n_samples == self.n_samples,
            "n_samples does not match the labels.",
        )

    def __repr__(self) -> str:
        members = self.labels[self.labels >= 0]
        return (
            f"Chunklets({np.unique(members).size} chunklets of {members.size} rows, "
            f"n_samples={self.n_samples})"
        )

    @classmethod
    def from_groups(cls, groups: Iterable[ArrayLike], *, n_samples: int) -> Self:
        """Create chunklets from the row indices of each chunklet.

        Parameters
        ----------
        groups : iterable of array-like of int
            The row indices of each chunklet. No index may occur twice.
        n_samples : int
            The number of rows of X.

        Returns
        -------
        Chunklets
            The chunklets, numbered in the order of ``groups``.
        """
        check_parameter("Chunklets.from_groups", "n_samples", n_samples, [integer(0)])
        members = [
            check_indices(group, f"groups[{number}]", n_samples)
            for number, group in enumerate(groups)
        ]
        sizes = [group.size for group in members]
        _raise_if_empty(sizes, "groups")
        rows = np.concatenate([np.empty(0, np.intp), *members])
        numbers = np.repeat(np.arange(len(members)), sizes)
        repeat = find_repeat(rows)
        if repeat is not None:
            first, second = numbers[list(repeat)]
            raise ValueError(
                f"groups: index {rows[repeat[0]]} is in chunklet {first} and again in chunklet "
                f"{second}; each row can be in one chunklet only."
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

        Every class is split at random into as many chunklets of ``chunklet_size`` rows as possible.
        Then ``n_chunklets`` of all these chunklets are drawn.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class labels of any type.
        n_chunklets : int or None, default=None
            Maximum number of chunklets. There are fewer if the classes are too small. ``None``
            makes one chunklet of every class, whatever its size.
        chunklet_size : int, default=2
            Number of rows per chunklet. Not used if ``n_chunklets`` is None.
        unknown : label, optional
            Label of rows whose class is unknown, for example -1. No chunklet contains them.
        random_state : int, RandomState or None, default=None
            Seed of the random draw.

        Returns
        -------
        Chunklets
        """
        check_parameter("Chunklets.from_labels", "n_chunklets", n_chunklets, [integer(0), none])
        check_parameter("Chunklets.from_labels", "chunklet_size", chunklet_size, [integer(2)])
        rng = check_random_state(random_state)
        all_codes, is_known = encode_known_labels(y, unknown)
        if n_chunklets is None:
            return cls(np.where(is_known, all_codes, -1))
        codes = all_codes[is_known]
        sizes = np.bincount(codes)
        n_chunks = sizes // chunklet_size
        # Sort the rows by class, in random order within each class. The rows of a class that do not
        # fill a chunklet are not used.
        rows = np.lexsort((rng.random_sample(codes.size), codes))
        positions = np.arange(codes.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        chunks = rows[positions < np.repeat(n_chunks * chunklet_size, sizes)].reshape(
            -1, chunklet_size
        )
        drawn_chunks = chunks[rng.permutation(len(chunks))[:n_chunklets]]
        labels = np.full(is_known.size, -1, np.intp)
        labels[np.flatnonzero(is_known)[drawn_chunks]] = np.arange(len(drawn_chunks))[:, np.newaxis]
        return cls(labels)

    @classmethod
    def from_pairs(cls, pairs: Pairs) -> Self:
        """Create one chunklet from each group of rows that are connected by similar pairs.

        Dissimilar pairs are ignored.

        Parameters
        ----------
        pairs : Pairs
            Pairs of rows.

        Returns
        -------
        Chunklets
            The chunklets, numbered in the order of their first rows.

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
        """Stack the points of chunklets into one array X, and return X and the chunklets.

        Parameters
        ----------
        chunklets : list of array-like of shape (n_points, n_features)
            The points of each chunklet. Equal points remain distinct rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            All points, chunklet after chunklet.
        supervision : Chunklets
            The chunklets of the rows of X, numbered in the order given.
        """
        members = [
            check_points(points, f"chunklets[{number}]") for number, points in enumerate(chunklets)
        ]
        if not members:
            raise ValueError("chunklets is empty; pass at least one array of points.")
        for number, points in enumerate(members):
            if points.shape[1] != members[0].shape[1]:
                raise ValueError(
                    f"chunklets[{number}] has {points.shape[1]} features, but chunklets[0] has "
                    f"{members[0].shape[1]}; they must match."
                )
        sizes = [len(points) for points in members]
        _raise_if_empty(sizes, "chunklets")
        return np.vstack(members), cls(np.repeat(np.arange(len(members)), sizes))

    def to_arrays(self, X: ArrayLike) -> list[NDArray[Any]]:
        """Return the points of each chunklet, in the order of the chunklet numbers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows that the chunklets refer to.

        Returns
        -------
        list of ndarray of shape (n_points, n_features)
            One array per chunklet.
        """
        points = self._check_X(X)
        rows = np.argsort(self.labels, kind="stable")
        rows = rows[self.labels[rows] >= 0]
        starts = np.flatnonzero(np.diff(self.labels[rows], prepend=-1))
        return [points[chunk] for chunk in np.split(rows, starts)[1:]]

    def restrict(self, indices: ArrayLike) -> Self:
        """Return the chunklets restricted to the rows in ``indices``.

        Parameters
        ----------
        indices : array-like of distinct int, or boolean mask of shape (n_samples,)
            The rows to keep. ``restrict(indices)`` is the supervision for ``X[indices]``.

        Returns
        -------
        Chunklets
            Chunklets with ``labels[indices]``. They keep their numbers, and a chunklet may be left
            with a single row.
        """
        return type(self)(self.labels[self._check_row_selection(indices)])


def as_chunklets(supervision: Chunklets | ArrayLike) -> Chunklets:
    """Convert an integer vector to Chunklets, where -1 means no chunklet.

    Chunklets are returned unchanged.

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
    return Chunklets(_check_numbers(supervision, "supervision"))


def _check_numbers(labels: ArrayLike, name: str) -> Indices:
    """Return the chunklet numbers after checking that they are integers of at least -1."""
    numbers = check_integers(labels, name)
    raise_if_any(
        numbers < -1,
        numbers,
        name,
        "{} is below -1; chunklets are numbered from 0, and -1 marks a row in no chunklet.",
    )
    return numbers


def _raise_if_empty(sizes: list[int], name: str) -> None:
    """Raise if a chunklet has no rows."""
    if 0 in sizes:
        raise ValueError(f"{name}[{sizes.index(0)}] is empty; a chunklet needs at least one row.")
