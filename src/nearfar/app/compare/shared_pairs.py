"""Pairs of sets, compared once for all methods that look at the same Gaussians.

Most methods of sets differ in what they do with dissimilarities; what is dear is the terms of pairs
of Gaussians, eigenvalues above all. So for every way to make Gaussians of sets the terms of pairs
are computed once, by whichever processes need them, and read by all: once for all folds where the
Gaussians are the same in all of them, and else once a fold, of its training sets with one another
and of its test sets with training sets. ``set_ways.py`` says which is which.

Scale and ridge of a fold are those of its training sets, so what is said of the test sets is what
each method would say alone: to the last digit, but for rounding where pairs serve all folds, where
covariances are of low rank, or so different that singular values must do, or where a test set is a
training set too. The splits inside, which choose k and settings, see the same scale and ridge: they
come from the whole training fold, not from its part. Of many sets both may come from all of them
(``set_units.py``): what is said is then what each method would say in these units. No label has a
hand in either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from nearfar.app.compare.methods import Method, Setting
from nearfar.app.compare.pair_shelf import (
    FOR_ALL,
    MAX_BYTES,
    Block,
    FolderShelf,
    MemoryShelf,
    Shelf,
)
from nearfar.app.compare.set_ways import (
    Way,
    first_of,
    key_of,
    nests,
    rest_of,
    way_of,
    words_of,
)
from nearfar.arrays import Floats, Indices, Matrix
from nearfar.distributions.bag_of_words import BagOfWords
from nearfar.distributions.dissimilarities import (
    CostlyPairs,
    combine_costly_terms,
    dissimilarity,
    get_costly_terms,
    should_transpose,
)
from nearfar.distributions.objects import SYMMETRIC, compute_fingerprints, find_equal
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.distributions.set_k_neighbors_classifier import SetKNeighborsClassifier
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import Sets

# Terms that come of one factorisation, and are computed together.
_GROUPS = (("riemann",), ("quad_mean", "log_mean"))
# Pairs of a block: a fraction of a second, which is the longest that one waits for another;
_PAIRS = 16_000
# and so many times that where pairs are cheap, for which all sets are made ready in each block.
_CHEAPER = 50


class Side(NamedTuple):
    """Rows and columns of a matrix, as numbers of sets; ``same`` if they are the same sets."""

    name: str
    rows: Indices
    columns: Indices
    same: bool = False

    @property
    def turned(self) -> bool:
        """Whether terms are those of columns and rows."""
        return not self.same and should_transpose(len(self.rows), len(self.columns))


@dataclass
class Given:
    """What a setting gets in place of sets, and the seconds it would have taken for it alone."""

    setting: Setting
    known: Any
    new: Any
    #: Of new sets to known ones, where that is all the setting asks for.
    distances: Matrix | None = None
    fit_seconds: float = 0.0
    predict_seconds: float = 0.0


class SharedPairs:
    """The pairs of all folds of a comparison.

    Parameters
    ----------
    X : Sets
        All sets.
    n_threads : int, default=1
        That compute them, where they are not shared with other processes.
    """

    def __init__(self, X: Sets, n_threads: int = 1) -> None:
        self._X = X
        self._shelf: Shelf = MemoryShelf(n_threads)
        self._firsts: Indices | None = None
        self._whole: frozenset[Way | None] = frozenset()
        self._folded = True

    def expect(self, methods: Iterable[Method], n_folds: int = 2) -> None:
        """Say what will be compared, and on how many folds.

        What is embedded needs all pairs of training sets; of a single fold, pairs of test sets with
        one another are for nobody.
        """
        settings = [setting for method in methods for setting in method.settings]
        embedded = [s for s in settings if isinstance(first_of(s), SetEmbedding)]
        self._whole = frozenset(map(way_of, embedded))
        self._folded = n_folds > 1

    def share_in(self, folder: str) -> None:
        """Share with other processes, through files in a folder."""
        if FolderShelf.possible:
            self._shelf = FolderShelf(folder)

    def lasts(self, n: int) -> bool:
        """Whether there is room for all pairs of so many sets, for all folds to read."""
        return self._bytes(n, n) <= MAX_BYTES

    def _bytes(self, n: int, m: int) -> int:
        """Of terms of pairs of n sets with m of them, and of the n Gaussians."""
        p = self._X.n_features
        return 8 * n * (3 * m + p * min(p, int(self._X.sizes.max())))

    def fold(
        self,
        train: Indices,
        test: Indices,
        settings: Iterable[Setting],
        n_splits: int = 3,
        common_units: bool = False,
    ) -> FoldPairs | None:
        """The pairs of a fold, split so often inside; None where they would take too much room.

        With ``common_units`` scale and ridge are those of all its sets, which :meth:`lasts`.
        """
        n = len(train) + len(test)
        if self._bytes(n, len(train)) > MAX_BYTES:
            return None
        folded = common_units or (self._folded and self.lasts(n))
        return self._made(self._shelf, train, test, settings, n_splits, folded, common_units)

    def alone(self, train: Indices, test: Indices, settings: Iterable[Setting]) -> FoldPairs:
        """The same with nothing of what others have done, for one split inside."""
        return self._made(MemoryShelf(), train, test, settings, 1, False)

    def _made(
        self,
        shelf: Shelf,
        train: Indices,
        test: Indices,
        settings: Iterable[Setting],
        n_splits: int,
        folded: bool,
        common_units: bool = False,
    ) -> FoldPairs:
        # Of one split inside, neighbors need the pairs of held-out sets with the others alone.
        whole = None if n_splits > 1 else self._whole
        sides = (train, test, settings, whole, folded, common_units)
        return FoldPairs(self._X, shelf, self._equals(), *sides)

    def _equals(self) -> Indices:
        """For each set the first that is equal to it."""
        if self._firsts is None:
            prints = compute_fingerprints(self._X)
            self._firsts = find_equal(prints, prints)
        return self._firsts


class FoldPairs:
    """The pairs of one fold, for one method.

    Parameters
    ----------
    X : Sets
        All sets.
    shelf : Shelf
        Where terms are kept.
    firsts : ndarray of shape (n_sets,)
        For each set the first that is equal to it.
    train, test : ndarray of int
        The sets of the fold.
    settings : iterable of Setting
        Those to be tried: of embeddings that differ in their dimension only the widest is made.
    whole : set of Way, default=None
        Of what Gaussians all pairs of training sets are needed anyway; None means of all.
    folded : bool, default=True
        Whether other folds of these sets follow, which read the pairs that last.
    common_units : bool, default=False
        Whether scale and ridge are those of all sets of the fold: then all pairs last.
    """

    def __init__(
        self,
        X: Sets,
        shelf: Shelf,
        firsts: Indices,
        train: Indices,
        test: Indices,
        settings: Iterable[Setting],
        whole: frozenset[Way | None] | None = None,
        folded: bool = True,
        common_units: bool = False,
    ) -> None:
        self._X, self._shelf, self._firsts, self._whole = X, shelf, firsts, whole
        self._common_units = common_units
        self._among, self._asked = Side("train", train, train, True), Side("test", test, train)
        self._train, self._test = train, test
        every = np.union1d(train, test)
        self._every = Side(FOR_ALL, every, every, True) if folded else None
        self._name = _digest(train, test)
        self._places = np.full(len(X), -1, dtype=np.intp)
        self._places[train] = np.arange(len(train))
        self._widest: dict[str, SetEmbedding] = {}
        for setting in settings:
            first = first_of(setting)
            if isinstance(first, SetEmbedding) and nests(first):
                widest = self._widest.setdefault(key_of(first), first)
                if int(first.n_components) > int(widest.n_components):
                    self._widest[key_of(first)] = first
        self._placed: dict[tuple[str, bytes, bytes], tuple[Floats, Floats]] = {}
        self._counts: dict[tuple[str, bytes, bytes], tuple[Floats, Floats, float, float]] = {}
        self._last: tuple[Any, Matrix] | None = None
        self._whole_seconds: dict[tuple[Way, tuple[str, ...]], float] = {}
        #: Seconds that each shared part took whoever computed it,
        self.charged: dict[Any, float] = {}
        #: and those that went by here until they were there.
        self.passed = 0.0

    def given(self, setting: Setting, train: Indices, test: Indices) -> Given:
        """What a setting needs of a split: of the fold itself, or of one inside its training sets.

        A setting that begins with a codebook gets the histograms, and one that begins with neither
        gets the sets.
        """
        first = first_of(setting)
        if first is None:
            words = words_of(setting)
            if words is not None:
                return self._counted(setting, words, train, test)
            return Given(setting, self._X[train], self._X[test])
        outer = np.array_equal(train, self._train) and np.array_equal(test, self._test)
        began, passed = perf_counter(), self.passed
        if isinstance(first, SetKNeighborsClassifier):
            apart = self._whole is not None and way_of(setting) not in self._whole
            found = Given(setting, None, None, self._between(first, outer, train, test, apart))
            fitted = 0.0
        else:
            known, new, fitted = self._embedded(first, outer, train, test)
            found = Given(replace(setting, estimator=rest_of(setting.estimator)), known, new)
        own = perf_counter() - began - (self.passed - passed)
        way = Way.of(first)
        found.fit_seconds = fitted + self.charged.get((way, "gaussians"), 0.0)
        found.predict_seconds = own - fitted + self._seconds(way, first.metric, "test")
        if isinstance(first, SetEmbedding):
            found.fit_seconds += self._seconds(way, first.metric, "train")
        return found

    def _counted(self, setting: Setting, words: BagOfWords, train: Indices, test: Indices) -> Given:
        """Histograms over a codebook, which is found once for all classifiers behind it."""
        split = (repr(words.get_params()), train.tobytes(), test.tobytes())
        if split not in self._counts:
            began = perf_counter()
            known, new = self._X[train], self._X[test]
            learner = clone(words)
            counts = learner.fit_transform(known)
            fitted = perf_counter() - began
            new = learner.transform(new)
            self._counts[split] = (counts, new, fitted, perf_counter() - began - fitted)
        counts, new, fitted, placed = self._counts[split]
        rest = replace(setting, estimator=rest_of(setting.estimator))
        return Given(rest, counts, new, None, fitted, placed)

    def _seconds(self, way: Way, metric: str, side: str) -> float:
        """Seconds of the shared parts of a matrix."""
        return sum(self.charged.get((way, side, group), 0.0) for group in _groups(metric))

    # ------------------------------------------------------------------ distances and coordinates

    def _between(
        self, first: Any, outer: bool, train: Indices, test: Indices, apart: bool = False
    ) -> Matrix:
        """Dissimilarities of test sets (rows) to training sets; ``apart``, of no more sets."""
        if outer:
            return self._matrix(first, self._asked)
        if apart:
            return self._matrix(first, Side(f"inside-{_digest(train, test)}", test, train))
        return self._matrix(first, self._among, test, train)

    def _embedded(
        self, first: SetEmbedding, outer: bool, train: Indices, test: Indices
    ) -> tuple[Floats, Floats, float]:
        """Coordinates of both sides, and the seconds that it took to find the first."""
        nested = nests(first) and not outer
        split = (key_of(first), train.tobytes(), test.tobytes())
        fitted = 0.0
        if nested and split in self._placed:
            known, new = self._placed[split]
        else:
            kind = self._widest.get(split[0], first) if nested else first
            learner = kind._make_embedder().set_params(metric="precomputed")
            inside = () if outer else (train, train)
            among = self._matrix(first, self._among, *inside)
            began = perf_counter()
            known = learner.fit_transform(among).astype(self._X.X.dtype)
            fitted = perf_counter() - began
            new = learner.transform(self._between(first, outer, train, test))
            new = new.astype(self._X.X.dtype)
            if nested:
                self._placed[split] = (known, new)
        if nested:
            # The first coordinates of an embedding in more dimensions are that in fewer.
            q = int(first.n_components)
            known, new = known[:, :q], new[:, :q]
        return known, new, fitted

    def _matrix(
        self, first: Any, side: Side, rows: Indices | None = None, columns: Indices | None = None
    ) -> Matrix:
        """Dissimilarities of a side, or of some of its sets; read-only."""
        way, metric = Way.of(first), first.metric
        every = self._lasting(way)
        if every is None or metric == "mean":  # which costs no more than to be read
            D = self._whole_matrix(way, metric, side)
            if rows is None or columns is None:
                return D
            return D[np.ix_(self._places[rows], self._places[columns])]
        D = self._whole_matrix(way, metric, every)
        # As if the fold had been alone, and had compared its own pairs only.
        n, m = len(side.rows), len(side.columns)
        share = (n * (n - 1) / 2 if side.same else n * m) / (len(D) * (len(D) - 1) / 2)
        for group in _groups(metric):
            self.charged[way, side.name, group] = share * self._whole_seconds[way, group]
        if rows is None or columns is None:
            rows, columns = side.rows, side.columns
        return D[np.ix_(np.searchsorted(every.rows, rows), np.searchsorted(every.rows, columns))]

    def _whole_matrix(self, way: Way, metric: str, side: Side) -> Matrix:
        """All dissimilarities of a side; read-only."""
        if self._last is not None and self._last[0] == (way, metric, side.name):
            return self._last[1]
        self._last = None
        if get_costly_terms(metric):
            terms = self._terms(way, side, metric)
            D = combine_costly_terms(metric, terms, b_is_a=side.same, is_transposed=side.turned)
        elif side is self._every:
            D = np.array(self._terms(way, side, metric)[metric])
            if metric in SYMMETRIC:
                D = (D + D.T) / 2  # but for rounding it was
            np.fill_diagonal(D, 0.0)
        else:
            D = dissimilarity(*self._gaussians(way, side), metric)
        self._zero_equals(D, side)
        D.flags.writeable = False
        self._last = ((way, metric, side.name), D)
        return D

    def _zero_equals(self, D: Matrix, side: Side) -> None:
        """Of equal sets exactly, whatever rounding says."""
        mine, theirs = self._firsts[side.rows], self._firsts[side.columns]
        for first in np.flatnonzero(np.bincount(self._firsts) > 1):
            D[np.ix_(np.flatnonzero(mine == first), np.flatnonzero(theirs == first))] = 0.0

    # ------------------------------------------------------------------ what is shared

    def _lasting(self, way: Way) -> Side | None:
        """All sets, if their Gaussians are the same in all folds; else None."""
        return self._every if self._common_units or way.lasting else None

    def _gaussians(self, way: Way, side: Side) -> tuple[Gaussians, Gaussians | None]:
        """Of the rows and columns of a side, made as the classifier makes them."""
        every = self._lasting(way)

        def make() -> tuple[Gaussians, Gaussians | None]:
            maker = SetKNeighborsClassifier(1, **way._asdict())
            known = self._X[self._train if every is None else every.rows]
            maker.fit(known, np.zeros(len(known), dtype=int))
            if every is not None:
                return maker.gaussians_, None
            return maker.gaussians_, maker._get_gaussians(
                maker._check_new_objects(self._X[self._test])
            )

        began = perf_counter()
        found: tuple[Gaussians, Gaussians | None]
        box = self._box(way, every or side)
        found, self.charged[way, "gaussians"] = self._shelf.once(box, make)
        self.passed += perf_counter() - began
        known, new = found
        if every is not None:
            rows, columns = (np.searchsorted(every.rows, one) for one in (side.rows, side.columns))
            return known[rows], None if side.same else known[columns]
        if side.same or new is None:
            return known, None
        if side is self._asked:
            return new, known
        return known[self._places[side.rows]], known[self._places[side.columns]]

    def _terms(self, way: Way, side: Side, metric: str) -> dict[str, Matrix]:
        """The terms of all pairs of a side, as far as a dissimilarity needs them.

        Of one that needs none that are dear, itself; then both sides are the same.
        """
        shape = (len(side.rows), len(side.columns))
        shape = shape[::-1] if side.turned else shape
        dear = bool(get_costly_terms(metric))
        blocks = _blocks(shape, side.same) if dear else _blocks(shape, False, _CHEAPER * _PAIRS)
        pairs: list[Any] = []
        found: dict[str, Matrix] = {}
        making = Lock()
        for group in _groups(metric):
            if (way, "gaussians") not in self.charged:
                self._gaussians(way, side)

            def work(rows: slice, group: tuple[str, ...] = group) -> list[Matrix]:
                with making:
                    if not pairs:  # only who has work to do needs them
                        known = self._gaussians(way, side)
                        pairs.append(CostlyPairs(*known) if dear else known[0])
                if not dear:
                    return [dissimilarity(pairs[0][rows], pairs[0], metric)]
                terms = pairs[0].compute_terms(rows, frozenset(group))
                return [terms[name] for name in group]

            began, passed = perf_counter(), self.passed
            name = f"{side.name}-{group[0]}"
            arrays, seconds = self._shelf.blocks(
                self._box(way, side), name, (len(group), *shape), blocks, work
            )
            # Gaussians that were made on the way have counted themselves.
            self.passed = passed + perf_counter() - began
            if side is self._every:
                self._whole_seconds[way, group] = seconds
            else:
                self.charged[way, side.name, group] = seconds
            found |= dict(zip(group, arrays, strict=True))
        return found

    def _box(self, way: Way, side: Side) -> str:
        """Of this fold; or of all folds that are made of these sets."""
        whose = self._name
        if side is self._every:
            whose = FOR_ALL + _digest(side.rows, side.rows[:0])
        return f"{whose}-{blake2b(repr(way).encode(), digest_size=8).hexdigest()}"


def _groups(metric: str) -> list[tuple[str, ...]]:
    """What is computed together of the terms a dissimilarity needs; or itself, if none is dear.

    >>> _groups("riemann"), _groups("jeffreys")
    ([('riemann',)], [('jeffreys',)])
    """
    return [group for group in _GROUPS if get_costly_terms(metric) & set(group)] or [(metric,)]


def _digest(train: Indices, test: Indices) -> str:
    return blake2b(train.tobytes() + b"|" + test.tobytes(), digest_size=8).hexdigest()


def _blocks(shape: tuple[int, int], same: bool, size: int | None = None) -> list[Block]:
    """Rows, and the first of the columns, in parts of some :data:`_PAIRS` pairs, or so many.

    >>> [(rows.start, rows.stop, first) for rows, first in _blocks((300, 300), True)]
    [(0, 60, 0), (60, 141, 60), (141, 300, 141)]
    """
    n, m = shape
    found: list[Block] = []
    start = pairs = 0
    most = size or _PAIRS
    for row in range(n):
        pairs += m - row - 1 if same else m
        if pairs >= most or row == n - 1:
            found.append((slice(start, row + 1), start if same else 0))
            start, pairs = row + 1, 0
    return found
