"""Pairs of sets, compared once a fold for all methods that look at the same Gaussians.

Most methods of sets differ in what they do with dissimilarities; what is dear is the terms of pairs
of Gaussians, eigenvalues above all. So of every fold, and of every way to make Gaussians of sets,
the terms of all training sets with one another and of test sets with training sets are computed
once, by whichever processes need them, and read by all.

Scale and ridge of a fold are those of its training sets, so what is said of the test sets is to the
last digit what each method would say alone (but for rounding, where covariances are of low rank, or
so different that singular values must do, or where a test set is a training set too). The splits
inside, which choose k and settings, see the same scale and ridge: they come from the whole training
fold, not from its part. No label has a hand in either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from numbers import Integral, Real
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from nearfar.app.compare.methods import Method, Setting
from nearfar.app.compare.pair_shelf import MAX_BYTES, Block, FolderShelf, MemoryShelf, Shelf
from nearfar.arrays import Floats, Indices, Matrix
from nearfar.distributions.bag_of_words import BagOfWords
from nearfar.distributions.dissimilarities import (
    METRICS,
    CostlyPairs,
    costly_terms,
    dissimilarity,
    from_costly,
    is_turned,
)
from nearfar.distributions.objects import fingerprints, found_again
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.distributions.set_k_neighbors_classifier import SetKNeighborsClassifier
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import Sets

# Terms that come of one factorisation, and are computed together.
_GROUPS = (("riemann",), ("quad_mean", "log_mean"))
# Pairs of a block: a fraction of a second, which is the longest that one waits for another.
_PAIRS = 16_000


class Way(NamedTuple):
    """How Gaussians are made of sets."""

    standardize: bool
    ridge: Any
    shrinkage: Any


def way_of(setting: Setting) -> Way | None:
    """The way of a setting that begins with Gaussians of sets; None where it does not."""
    first = _first(setting)
    return None if first is None else Way(first.standardize, first.ridge, first.shrinkage)


def shares_pairs(settings: Iterable[Setting]) -> bool:
    """Whether the first of the settings looks at what is dear of the pairs.

    >>> from nearfar import SetKNeighborsClassifier
    >>> [
    ...     shares_pairs([Setting("", "passthrough", SetKNeighborsClassifier(metric=metric))])
    ...     for metric in ("riemann", "mean")
    ... ]
    [True, False]
    """
    first = next((_first(setting) for setting in settings), None)
    return first is not None and bool(costly_terms(first.metric))


class Side(NamedTuple):
    """Rows and columns of a matrix, as numbers of sets; ``same`` if they are the same sets."""

    name: str
    rows: Indices
    columns: Indices
    same: bool = False

    @property
    def turned(self) -> bool:
        """Whether terms are those of columns and rows."""
        return not self.same and is_turned(len(self.rows), len(self.columns))


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
    """

    def __init__(self, X: Sets) -> None:
        self._X = X
        self._shelf: Shelf = MemoryShelf()
        self._firsts: Indices | None = None
        self._whole: frozenset[Way | None] = frozenset()

    def expect(self, methods: Iterable[Method]) -> None:
        """Say what will be compared: what is embedded needs all pairs of training sets."""
        settings = [setting for method in methods for setting in method.settings]
        embedded = [s for s in settings if isinstance(_first(s), SetEmbedding)]
        self._whole = frozenset(map(way_of, embedded))

    def share_in(self, folder: str) -> None:
        """Share with other processes, through files in a folder."""
        if FolderShelf.possible:
            self._shelf = FolderShelf(folder)

    def fold(
        self, train: Indices, test: Indices, settings: Iterable[Setting], n_splits: int = 3
    ) -> FoldPairs | None:
        """The pairs of a fold, split so often inside; None where they would take too much room."""
        n, p = len(train) + len(test), self._X.n_features
        numbers = 3 * n * len(train) + n * p * min(p, int(self._X.sizes.max()))
        if 8 * numbers > MAX_BYTES:
            return None
        return self._made(self._shelf, train, test, settings, n_splits)

    def alone(self, train: Indices, test: Indices, settings: Iterable[Setting]) -> FoldPairs:
        """The same with nothing of what others have done, for one split inside."""
        return self._made(MemoryShelf(), train, test, settings, 1)

    def _made(
        self,
        shelf: Shelf,
        train: Indices,
        test: Indices,
        settings: Iterable[Setting],
        n_splits: int,
    ) -> FoldPairs:
        # Of one split inside, neighbours need the pairs of held-out sets with the others alone.
        whole = None if n_splits > 1 else self._whole
        return FoldPairs(self._X, shelf, self._equals(), train, test, settings, whole)

    def _equals(self) -> Indices:
        """For each set the first that is equal to it."""
        if self._firsts is None:
            prints = fingerprints(self._X)
            self._firsts = found_again(prints, prints)
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
    ) -> None:
        self._X, self._shelf, self._firsts, self._whole = X, shelf, firsts, whole
        self._among, self._asked = Side("train", train, train, True), Side("test", test, train)
        self._train, self._test = train, test
        self._name = _digest(train, test)
        self._places = np.full(len(X), -1, dtype=np.intp)
        self._places[train] = np.arange(len(train))
        self._widest: dict[str, SetEmbedding] = {}
        for setting in settings:
            first = _first(setting)
            if isinstance(first, SetEmbedding) and _nests(first):
                widest = self._widest.setdefault(_key(first), first)
                if int(first.n_components) > int(widest.n_components):
                    self._widest[_key(first)] = first
        self._placed: dict[tuple[str, bytes, bytes], tuple[Floats, Floats]] = {}
        self._counts: dict[tuple[str, bytes, bytes], tuple[Floats, Floats, float, float]] = {}
        self._last: tuple[Any, Matrix] | None = None
        #: Seconds that each shared part took whoever computed it,
        self.charged: dict[Any, float] = {}
        #: and those that went by here until they were there.
        self.passed = 0.0

    def given(self, setting: Setting, train: Indices, test: Indices) -> Given:
        """What a setting needs of a split: of the fold itself, or of one inside its training sets.

        A setting that begins with a codebook gets the histograms, and one that begins with neither
        gets the sets.
        """
        first = _first(setting)
        if first is None:
            words = _words(setting)
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
            found = Given(replace(setting, estimator=_rest(setting.estimator)), known, new)
        own = perf_counter() - began - (self.passed - passed)
        way = Way(first.standardize, first.ridge, first.shrinkage)
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
        rest = replace(setting, estimator=_rest(setting.estimator))
        return Given(rest, counts, new, None, fitted, placed)

    def _seconds(self, way: Way, metric: str, side: str) -> float:
        """Seconds of the shared parts of a matrix."""
        wanted = costly_terms(metric)
        groups = [group for group in _GROUPS if wanted & set(group)]
        return sum(self.charged.get((way, side, group), 0.0) for group in groups)

    # ------------------------------------------------------------------ distances and coordinates

    def _between(
        self, first: Any, outer: bool, train: Indices, test: Indices, apart: bool = False
    ) -> Matrix:
        """Dissimilarities of test sets (rows) to training sets; ``apart``, of no more sets."""
        if outer:
            return self._matrix(first, self._asked)
        if apart:
            return self._matrix(first, Side(f"inside-{_digest(train, test)}", test, train))
        rows, columns = self._places[test], self._places[train]
        return self._matrix(first, self._among)[np.ix_(rows, columns)]

    def _embedded(
        self, first: SetEmbedding, outer: bool, train: Indices, test: Indices
    ) -> tuple[Floats, Floats, float]:
        """Coordinates of both sides, and the seconds that it took to find the first."""
        nests = _nests(first) and not outer
        split = (_key(first), train.tobytes(), test.tobytes())
        fitted = 0.0
        if nests and split in self._placed:
            known, new = self._placed[split]
        else:
            kind = self._widest.get(split[0], first) if nests else first
            learner = kind._embedder().set_params(metric="precomputed")
            places = self._places[train]
            among = self._matrix(first, self._among)
            if not outer:
                among = among[np.ix_(places, places)]
            began = perf_counter()
            known = learner.fit_transform(among).astype(self._X.X.dtype)
            fitted = perf_counter() - began
            new = learner.transform(self._between(first, outer, train, test))
            new = new.astype(self._X.X.dtype)
            if nests:
                self._placed[split] = (known, new)
        if nests:
            # The first coordinates of an embedding in more dimensions are that in fewer.
            q = int(first.n_components)
            known, new = known[:, :q], new[:, :q]
        return known, new, fitted

    def _matrix(self, first: Any, side: Side) -> Matrix:
        """All dissimilarities of a side; read-only."""
        way, metric = Way(first.standardize, first.ridge, first.shrinkage), first.metric
        if self._last is not None and self._last[0] == (way, metric, side.name):
            return self._last[1]
        self._last = None
        wanted = costly_terms(metric)
        if wanted:
            terms = self._terms(way, side, wanted)
            D = from_costly(metric, terms, same=side.same, turned=side.turned)
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

    def _gaussians(self, way: Way, side: Side) -> tuple[Gaussians, Gaussians | None]:
        """Of the rows and columns of a side, made as the classifier makes them."""

        def make() -> tuple[Gaussians, Gaussians]:
            maker = SetKNeighborsClassifier(1, **way._asdict())
            known = self._X[self._train]
            maker.fit(known, np.zeros(len(known), dtype=int))
            return maker.gaussians_, maker._gaussians_of(maker._new_objects(self._X[self._test]))

        began = perf_counter()
        found: tuple[Gaussians, Gaussians]
        found, self.charged[way, "gaussians"] = self._shelf.once(self._box(way), make)
        self.passed += perf_counter() - began
        known, new = found
        if side.same:
            return known, None
        if side is self._asked:
            return new, known
        return known[self._places[side.rows]], known[self._places[side.columns]]

    def _terms(self, way: Way, side: Side, wanted: frozenset[str]) -> dict[str, Matrix]:
        """The terms of all pairs of a side, as far as they are wanted."""
        shape = (len(side.rows), len(side.columns))
        shape = shape[::-1] if side.turned else shape
        pairs: list[CostlyPairs] = []
        found: dict[str, Matrix] = {}
        for group in _GROUPS:
            if not wanted & set(group):
                continue

            if (way, "gaussians") not in self.charged:
                self._gaussians(way, side)

            def work(rows: slice, group: tuple[str, ...] = group) -> list[Matrix]:
                if not pairs:  # only who has work to do needs them
                    pairs.append(CostlyPairs(*self._gaussians(way, side)))
                terms = pairs[0].terms(rows, frozenset(group))
                return [terms[name] for name in group]

            began, passed = perf_counter(), self.passed
            name, blocks = f"{side.name}-{group[0]}", _blocks(shape, side.same)
            arrays, seconds = self._shelf.blocks(
                self._box(way), name, (len(group), *shape), blocks, work
            )
            # Gaussians that were made on the way have counted themselves.
            self.passed = passed + perf_counter() - began
            self.charged[way, side.name, group] = seconds
            found |= dict(zip(group, arrays, strict=True))
        return found

    def _box(self, way: Way) -> str:
        return f"{self._name}-{blake2b(repr(way).encode(), digest_size=8).hexdigest()}"


def _digest(train: Indices, test: Indices) -> str:
    return blake2b(train.tobytes() + b"|" + test.tobytes(), digest_size=8).hexdigest()


def _blocks(shape: tuple[int, int], same: bool) -> list[Block]:
    """Rows, and the first of the columns, in parts of some :data:`_PAIRS` pairs.

    >>> [(rows.start, rows.stop, first) for rows, first in _blocks((300, 300), True)]
    [(0, 60, 0), (60, 141, 60), (141, 300, 141)]
    """
    n, m = shape
    found: list[Block] = []
    start = pairs = 0
    for row in range(n):
        pairs += m - row - 1 if same else m
        if pairs >= _PAIRS or row == n - 1:
            found.append((slice(start, row + 1), start if same else 0))
            start, pairs = row + 1, 0
    return found


def _first(setting: Setting) -> SetKNeighborsClassifier | SetEmbedding | None:
    """What a setting begins with, if that is Gaussians of sets, and nothing else comes before."""
    first = setting.estimator
    if isinstance(first, Pipeline):
        first = first.steps[0][1]
        if type(first) is SetKNeighborsClassifier:
            return None
    if not isinstance(setting.scale, str):
        return None
    if type(first) is not SetKNeighborsClassifier and type(first) is not SetEmbedding:
        return None
    given = (first.standardize, first.ridge, first.shrinkage)
    if first.metric not in METRICS or not all(isinstance(v, str | Real | None) for v in given):
        return None  # for it to refuse by itself
    return first


def _words(setting: Setting) -> BagOfWords | None:
    """The codebook that a setting begins with, if another gets the same from the same seed."""
    first = setting.estimator
    if not isinstance(first, Pipeline) or not isinstance(setting.scale, str):
        return None
    first = first.steps[0][1]
    fixed = type(first) is BagOfWords and isinstance(first.random_state, Integral)
    return first if fixed else None


def _nests(embedding: SetEmbedding) -> bool:
    """Whether an embedding in fewer dimensions is the first part of this one."""
    return embedding.embedding == "euclidean" and isinstance(embedding.n_components, Integral)


def _rest(estimator: Any) -> Any:
    if isinstance(estimator, Pipeline) and len(estimator.steps) > 1:
        return Pipeline(estimator.steps[1:])
    return "passthrough"


def _key(embedding: SetEmbedding) -> str:
    """All that its coordinates depend on but their number."""
    given = embedding.get_params(deep=False)
    return repr(sorted((name, given[name]) for name in given if name != "n_components"))
