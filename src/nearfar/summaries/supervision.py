"""Which points are alike or different: pairs, triplets and chunklets of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state

from nearfar.arrays import Indices
from nearfar.labels import encode_labels
from nearfar.parameters import check_parameter, integer, none
from nearfar.state import Sizes, State, need
from nearfar.summaries.drawing import cap_on, class_blocks, draw_between, draw_triplets, draw_within
from nearfar.summaries.immutable import Immutable
from nearfar.summaries.index_checks import (
    as_array,
    check_indices,
    check_integers,
    check_tuples,
    distinct_points,
    finite_points,
    first_repeat,
    first_shared,
    refuse,
    refuse_empty,
    refuse_opposite_triplets,
    renumber,
)

_Seed = int | np.random.RandomState | None


class Supervision(Immutable):
    """What the three share: immutable fields, checks against rows of X.

    There is no ``__len__``, ``shape``, ``__getitem__``, ``__iter__`` or ``__array__`` on purpose:
    an object with one of them is array-like to scikit-learn, which would slice it row by row.
    """

    state: ClassVar = State()

    n_samples: int

    def _set(self, **fields: Any) -> None:
        for value in fields.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        vars(self).update(fields)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays come writeable out of pickle and deepcopy.
        self._set(**state)

    def _check_state(self, _: Sizes) -> None:
        type(self)(**vars(self))

    def check_n_samples(self, n: int) -> None:
        """Raise a ``ValueError`` unless the supervision was made for ``n`` rows."""
        if n != self.n_samples:
            raise ValueError(
                f"supervision was made for {self.n_samples} samples but X has {n} rows; "
                "scikit-learn's own cross-validation does not restrict index-based supervision: "
                "use nearfar.evaluation.cross_validate(..., supervision=...) or "
                "supervision.restrict(indices)."
            )

    def _points(self, X: ArrayLike) -> NDArray[Any]:
        """X as an array with as many rows as the supervision was made for."""
        points: NDArray[Any] = check_array(X, input_name="X", ensure_min_samples=0)
        self.check_n_samples(points.shape[0])
        return points

    def _kept_rows(self, indices: ArrayLike) -> Indices:
        """The rows meant by a mask or by distinct indices, in their order."""
        mask = as_array(indices, "indices", "(m,)")
        if mask.dtype == bool:
            if mask.shape != (self.n_samples,):
                raise ValueError(
                    f"indices is a boolean mask of shape {mask.shape}; it should have shape "
                    f"({self.n_samples},), one entry for each sample."
                )
            return np.flatnonzero(mask)
        rows = check_indices(indices, "indices", self.n_samples)
        repeat = first_repeat(rows)
        if repeat is not None:
            raise ValueError(
                f"indices rows {repeat[0]} and {repeat[1]}: index {rows[repeat[0]]} is given "
                "twice; indices must be distinct."
            )
        return rows


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

    Attributes
    ----------
    similar, dissimilar : ndarray of shape (n_similar, 2) and (n_dissimilar, 2)
        The pairs, read-only.
    n_samples : int
        The number of rows of X.

    Notes
    -----
    The order of the two points of a pair has no meaning. A pair given several times counts
    several times. A pair of a row with itself, and a pair both similar and dissimilar, raise.
    Two objects are equal when they hold the same pairs in the same order.

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
    """

    similar: Indices
    dissimilar: Indices

    def __init__(self, similar: ArrayLike, dissimilar: ArrayLike, *, n_samples: int) -> None:
        check_parameter("Pairs", "n_samples", n_samples, [integer(0)])
        alike = check_tuples(similar, 2, "similar", n_samples)
        different = check_tuples(dissimilar, 2, "dissimilar", n_samples)
        clash = first_shared(np.sort(alike, axis=1), np.sort(different, axis=1))
        if clash is not None:
            i, j = alike[clash[0]]
            raise ValueError(
                f"similar row {clash[0]} and dissimilar row {clash[1]}: the pair ({i}, {j}) "
                "cannot be both similar and dissimilar."
            )
        self._set(similar=alike, dissimilar=different, n_samples=int(n_samples))

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
        random_state: _Seed = None,
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
        blocks = class_blocks(y)
        return cls(
            draw_within(blocks, cap_on(n_similar, blocks), rng),
            draw_between(blocks, cap_on(n_dissimilar, blocks), rng),
            n_samples=blocks.rows.size,
        )

    @classmethod
    def from_arrays(cls, pairs: ArrayLike, sign: ArrayLike) -> tuple[NDArray[Any], Self]:
        """Turn pairs of points into their distinct points and pairs of indices.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            The two points of each pair.
        sign : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted.
        supervision : Pairs
            The pairs as indices of rows of X.
        """
        X, rows = distinct_points(pairs, 2, "pairs")
        signs = np.asarray(sign)
        if signs.shape != (len(rows),):
            raise ValueError(
                f"sign should have shape ({len(rows)},), one entry for each pair; "
                f"got shape {signs.shape}."
            )
        alike = signs == 1
        refuse(~alike & (signs != -1), signs, "sign", "{} is neither +1 nor -1.")
        unordered = np.sort(rows, axis=1)
        clash = first_shared(unordered[alike], unordered[~alike])
        if clash is not None:
            raise ValueError(
                f"pairs rows {np.flatnonzero(alike)[clash[0]]} (sign +1) and "
                f"{np.flatnonzero(~alike)[clash[1]]} (sign -1) hold the same two points, which "
                "cannot be both similar and dissimilar."
            )
        return X, cls(rows[alike], rows[~alike], n_samples=len(X))

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
        return type(self)(
            renumber(self.similar, kept, self.n_samples),
            renumber(self.dissimilar, kept, self.n_samples),
            n_samples=kept.size,
        )


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
        refuse_opposite_triplets(rows, "indices")
        self._set(indices=rows, n_samples=int(n_samples))

    def __repr__(self) -> str:
        return f"Triplets({len(self.indices)} triplets, n_samples={self.n_samples})"

    @classmethod
    def from_labels(
        cls, y: Any, *, n_triplets: int | None = None, random_state: _Seed = None
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
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Triplets
            In random order when drawn, in the order of the classes when all are taken.
        """
        check_parameter("Triplets.from_labels", "n_triplets", n_triplets, [integer(0), none])
        rng = check_random_state(random_state)
        blocks = class_blocks(y)
        triplets = draw_triplets(blocks, cap_on(n_triplets, blocks), rng)
        return cls(triplets, n_samples=blocks.rows.size)

    @classmethod
    def from_arrays(cls, triplets: ArrayLike) -> tuple[NDArray[Any], Self]:
        """Turn triplets of points into their distinct points and triplets of indices.

        Parameters
        ----------
        triplets : array-like of shape (n_triplets, 3, n_features)
            The points anchor, near and far of each triplet.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The distinct points, sorted.
        supervision : Triplets
            The triplets as indices of rows of X.
        """
        X, rows = distinct_points(triplets, 3, "triplets")
        refuse_opposite_triplets(rows, "triplets")
        return X, cls(rows, n_samples=len(X))

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
        return type(self)(rows, n_samples=kept.size)


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
        numbers = check_integers(labels, "labels")
        refuse(
            numbers < -1,
            numbers,
            "labels",
            "{} is below -1; chunklets are numbered from 0, -1 marks a row in no chunklet.",
        )
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
        refuse_empty(sizes, "groups")
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
        random_state: _Seed = None,
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
        random_state : int, RandomState or None, default=None
            Seed of the draw.

        Returns
        -------
        Chunklets
        """
        check_parameter("Chunklets.from_labels", "n_chunklets", n_chunklets, [integer(0), none])
        check_parameter("Chunklets.from_labels", "chunklet_size", chunklet_size, [integer(2)])
        rng = check_random_state(random_state)
        _, codes = encode_labels(y)
        if n_chunklets is None:
            return cls(codes)
        sizes = np.bincount(codes)
        room = sizes // chunklet_size
        # Rows by class, at random within it; each class's leftover rows stay out.
        rows = np.lexsort((rng.random_sample(codes.size), codes))
        place = np.arange(codes.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        chunks = rows[place < np.repeat(room * chunklet_size, sizes)].reshape(-1, chunklet_size)
        drawn = chunks[rng.permutation(len(chunks))[:n_chunklets]]
        labels = np.full(codes.size, -1, np.intp)
        labels[drawn] = np.arange(len(drawn))[:, np.newaxis]
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
        refuse_empty(sizes, "chunklets")
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
    return Chunklets(supervision)
