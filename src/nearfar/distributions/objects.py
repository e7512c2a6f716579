"""From what learners over distributions are given to dissimilarities, old and new.

One object is a Gaussian, a set of vectors (by its Gaussian), a point (by the Gaussian of its
neighbourhood among the training points: the augmented space), or a row of given dissimilarities.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Tags

from nearfar.arrays import Floats, Indices, Mask, Matrix
from nearfar.base import Estimator
from nearfar.blocks import row_blocks
from nearfar.distributions.dissimilarities import METRICS, dissimilarity
from nearfar.distributions.held_pairs import pairs_of
from nearfar.notices import warn
from nearfar.parameters import Allowed, boolean, integer, none, one_of, real
from nearfar.solvers.kernel_repair import checked_dissimilarities, checked_square
from nearfar.state import (
    Sizes,
    State,
    Word,
    check_words,
    choice,
    floats,
    indices,
    need,
    object_of,
    unsigned,
    whole,
)
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import Sets, as_sets
from nearfar.words import count

Kind = Literal["gaussians", "sets", "points", "precomputed"]

#: The dissimilarities that do not change when both objects change places.
SYMMETRIC = tuple(name for name in METRICS if not name.endswith("kl"))
#: What the parameters may be that all of them have,
SHARED_PARAMETERS: dict[str, list[Allowed]] = {
    "metric": [one_of(*SYMMETRIC, "precomputed")],
    "ridge": [one_of("auto"), real(0)],
    "shrinkage": [none, real(0, 1), one_of("ledoit_wolf", "oas")],
    "standardize": [boolean],
    "n_jobs": [none, integer(1), integer(high=-1)],
}
#: and those that take points.
POINT_PARAMETERS: dict[str, list[Allowed]] = {
    "n_neighbors": [integer(1)],
    "form": [one_of("smoothed", "raw")],
    "recognize": [boolean],
}

# So many distances at their limit deserve a word.
_SATURATED = 0.75
_CALLED = {
    "gaussians": "Gaussians",
    "sets": "sets of vectors",
    "points": "points",
    "precomputed": "dissimilarities",
}


# What is kept of training objects that are not given by their dissimilarities alone.
_OBJECTS: dict[str, Word] = {
    "gaussians_": object_of(Gaussians, n="n", p="p"),
    "_prints": unsigned("n", 2),
    "_firsts": indices("n", below="n"),
}


class NewObjects(NamedTuple):
    """New objects, which training object each is (-1 for none), and the dtype of results."""

    kind: Kind
    objects: Any
    same: Indices
    dtype: np.dtype[Any]

    def only(self, which: Mask) -> NewObjects:
        """Some of them."""
        return self._replace(objects=self.objects[which], same=self.same[which])


class OverDistributions(Estimator):
    """What learners over distributions share: training objects, and dissimilarities to them."""

    # One Gaussian a set or point; that of a set of one vector is the vector.
    state = State(
        {
            "_kind": choice("gaussians", "sets", "points", "precomputed"),
            "_n_objects": whole("n", low=1),
        },
        fitted="_kind",
        rows="_n_objects",
    )
    #: Whether a table of points is taken, through the augmented space.
    takes_points: ClassVar[bool] = False

    metric: str
    ridge: float | Literal["auto"]
    shrinkage: float | Literal["ledoit_wolf", "oas"] | None
    standardize: bool
    n_jobs: int | None
    n_neighbors: int
    form: Literal["smoothed", "raw"]
    recognize: bool

    n_features_in_: int
    gaussians_: Gaussians
    scale_: Matrix
    _kind: Kind
    _n_objects: int
    _points: Matrix
    _prints: NDArray[np.uint64]
    _firsts: NDArray[np.intp]  # of equal training objects the first

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.two_d_array = self.takes_points
        return tags

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        if self._kind == "precomputed":
            fits = sizes["n"] == sizes.get("p")
            need(fits, "there is not one dissimilarity for each training object.")
            return
        check_words(vars(self), _OBJECTS, sizes)
        if self._kind != "gaussians":
            need(self.gaussians_.added_ridge is not None, "no ridge for new objects.")
            if self.standardize:
                check_words(vars(self), {"scale_": floats("p", above=0)}, sizes)
        if self._kind == "points":
            check_words(vars(self), {"_points": floats("n", "p")}, sizes)

    # ------------------------------------------------------------------ training objects

    def _fit_pairs(self, X: Any, *, min_objects: int = 2) -> tuple[Matrix, np.dtype[Any]]:
        """Dissimilarities of all training objects, and the dtype of results.

        Keeps what new objects need.
        """
        if self.metric != "precomputed":
            dtype = self._fit_objects(X, min_objects=min_objects)
            D = pairs_of(self.gaussians_, self.metric, self.n_jobs)
            # Of equal objects exactly, whatever rounding says.
            for first in np.flatnonzero(np.bincount(self._firsts) > 1):
                equal = np.flatnonzero(self._firsts == first)
                D[np.ix_(equal, equal)] = 0.0
            if self.metric == "hellinger":
                _warn_if_saturated(type(self).__name__, D)
            return D, dtype
        rows = self._fit_given(X, min_objects=min_objects)
        return checked_square(rows), rows.dtype

    def _fit_given(self, X: Any, *, min_objects: int) -> Floats:
        """The given dissimilarities of all training objects; only their number is kept."""
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=min_objects)
        self._kind, self._n_objects = "precomputed", len(rows)
        return rows

    def _fit_objects(self, X: Any, *, min_objects: int) -> np.dtype[Any]:
        """Keep training objects; the dtype of results."""
        self._forget()
        self._check_parameters()
        kind = self._kind_of(X)
        dtype: np.dtype[Any] = np.dtype(np.float64)
        if kind == "points":
            table = self._check_X(X, reset=True, min_samples=min_objects)
            gaussians, dtype = self._of_points(self._scaled(table, reset=True)), table.dtype
            self._prints = fingerprints(table)
        elif kind == "sets":
            sets = self._checked_count(as_sets(X), "set", min_objects)
            if self.standardize:
                self.scale_ = deviations(sets.X)
            gaussians, dtype = self._of_sets(sets, self.ridge), sets.X.dtype
            self._prints = fingerprints(sets)
        else:
            gaussians = self._checked_count(X, "Gaussian", min_objects)
            self._prints = fingerprints(gaussians)
        self._firsts = found_again(self._prints, self._prints)
        self.n_features_in_ = gaussians.n_features
        self.gaussians_ = gaussians
        self._kind, self._n_objects = kind, len(gaussians)
        return dtype

    def _kind_of(self, X: Any) -> Kind:
        if self.metric == "precomputed":
            return "precomputed"
        if isinstance(X, Gaussians):
            return "gaussians"
        return "points" if self.takes_points and _is_table(X) else "sets"

    def _checked_count(self, objects: Any, what: str, at_least: int) -> Any:
        if len(objects) < at_least:
            raise ValueError(
                f"X has {len(objects)} {what}(s), but {type(self).__name__} needs at least "
                f"{at_least}."
            )
        return objects

    def _scaled(self, rows: Floats, *, reset: bool = False) -> Matrix:
        """Vectors in float64, divided by the deviations of the training vectors if asked for."""
        if reset and self.standardize:
            self.scale_ = deviations(rows)
        exact = np.ascontiguousarray(rows, np.float64)
        return exact / self.scale_ if self.standardize else exact

    def _of_sets(self, sets: Sets, ridge: float | Literal["auto"], **options: Any) -> Gaussians:
        if self.standardize:
            sets = Sets(self._scaled(sets.X), sets.offsets, names=sets.names)
        return Gaussians.from_sets(sets, ridge, shrinkage=self.shrinkage, **options)

    def _of_points(self, rows: Matrix) -> Gaussians:
        """The Gaussians of the neighbourhoods of training points."""
        if self.shrinkage is not None:
            raise ValueError("shrinkage is for sets of vectors; X holds points. Use ridge.")
        self._points = rows
        # Of few rows all others are neighbours: their number is no reason to refuse them.
        m = min(self.n_neighbors, len(rows) - 1)
        return Gaussians.from_neighborhoods(rows, m, self.ridge, self.form)

    # ------------------------------------------------------------------ new objects

    def _new_objects(self, X: Any) -> NewObjects:
        """New objects, as they were given, and which of them are training objects."""
        kind = self._kind_of(X)
        if self._kind == "sets" and kind == "points":
            kind = "sets"  # which says what is wrong with it
        if kind not in (self._kind, "gaussians"):
            raise ValueError(
                f"{type(self).__name__} was fitted on {_CALLED[self._kind]}; X holds "
                f"{_CALLED[kind]}. Give new {_CALLED[self._kind]}, or Gaussians."
            )
        if kind in ("points", "precomputed"):
            rows = self._check_X(X, reset=False)
            same = np.full(len(rows), -1, dtype=np.intp)
            if kind == "points" and self.recognize:
                same = found_again(fingerprints(rows), self._prints)
            return NewObjects(kind, rows, same, rows.dtype)
        objects: Any = X if kind == "gaussians" else as_sets(X)
        if not len(objects):
            raise ValueError("X has 0 Gaussians; at least one is needed.")
        if objects.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {count(objects.n_features, 'feature')}, but {type(self).__name__} is "
                f"expecting {count(self.n_features_in_, 'feature')} as input."
            )
        if kind == "gaussians":
            same = found_again(fingerprints(objects), fingerprints(self.gaussians_))
            return NewObjects(kind, objects, same, np.dtype(np.float64))
        same = found_again(fingerprints(objects), self._prints)
        return NewObjects(kind, objects, same, objects.X.dtype)

    def _pair_blocks(self, new: NewObjects) -> Iterator[tuple[slice, Matrix]]:
        """Dissimilarities in blocks: a row a new object, a column a training object.

        They are exactly zero where a training object was recognised.
        """
        if new.kind == "precomputed":
            yield slice(0, len(new.same)), checked_dissimilarities(new.objects, "X")
            return
        gaussians = self._gaussians_of(new)
        for block in row_blocks(len(gaussians), 16 * self._n_objects):
            D = dissimilarity(gaussians[block], self.gaussians_, self.metric, n_jobs=self.n_jobs)
            for row in np.flatnonzero(new.same[block] >= 0):
                D[row, self._firsts == self._firsts[new.same[block][row]]] = 0.0
            yield block, D

    def _gaussians_of(self, new: NewObjects) -> Gaussians:
        """New objects as Gaussians."""
        if new.kind == "gaussians":
            found: Gaussians = new.objects
            return found
        if new.kind == "points":
            return Gaussians.from_neighborhoods(
                self._points,
                min(self.n_neighbors, len(self._points) - 1),
                self._added_ridge(),
                self.form,
                queries=self._scaled(new.objects),
                recognize=self.recognize,
                storage=self._storage(),
            )
        with warnings.catch_warnings():
            # Of the ridge: that was said of the training sets.
            warnings.simplefilter("ignore", UserWarning)
            return self._of_sets(new.objects, self._added_ridge(), storage=self._storage())

    def _added_ridge(self) -> float:
        assert self.gaussians_.added_ridge is not None
        return self.gaussians_.added_ridge

    def _storage(self) -> Literal["dense", "low_rank"]:
        """As that of the training objects, so that new ones do not depend on their batch."""
        return "low_rank" if self.gaussians_.is_low_rank else "dense"


def without_tables(tags: Tags) -> Tags:
    """Tags of an estimator of sets: scikit-learn has no input to check it with."""
    tags.input_tags.two_d_array = False
    tags.no_validation = True
    return tags


# ---------------------------------------------------------------------- recognition


def fingerprints(objects: Sets | Gaussians | Floats) -> NDArray[np.uint64]:
    """128 bits for each set, Gaussian or row: equal numbers give equal bits."""
    if isinstance(objects, Gaussians):
        stack = objects.covariances if objects.factors is None else objects.factors
        parts: Sequence[tuple[Any, ...]] = list(zip(objects.means, stack, strict=True))
    else:
        parts = [(rows,) for rows in objects]
    prints = np.empty((len(parts), 2), dtype=np.uint64)
    for k, arrays in enumerate(parts):
        digest = blake2b(digest_size=16)
        for array in arrays:
            # Zero added: minus zero is zero.
            digest.update((np.asarray(array, np.float64) + 0.0).tobytes())
        prints[k] = np.frombuffer(digest.digest(), dtype=np.uint64)
    return prints


def found_again(new: NDArray[np.uint64], old: NDArray[np.uint64]) -> NDArray[np.intp]:
    """For each new fingerprint the first equal old one, or -1."""
    first: dict[bytes, int] = {}
    for k, key in enumerate(old):
        first.setdefault(key.tobytes(), k)
    return np.array([first.get(key.tobytes(), -1) for key in new], dtype=np.intp)


# ---------------------------------------------------------------------- checks


def _is_table(X: Any) -> bool:
    """Whether X looks like an array of points rather than a list of arrays."""
    if isinstance(X, Sets):
        return False
    if sparse.issparse(X) or hasattr(X, "columns"):
        return True
    if isinstance(X, list | tuple):
        return not len(X) or np.ndim(X[0]) < 2
    array = np.asarray(X)
    if array.ndim == 1 and array.dtype == object and len(array):
        return np.ndim(array[0]) < 2  # an array of arrays
    return array.ndim != 3


def _warn_if_saturated(name: str, D: Matrix) -> None:
    """Of Hellinger distances: at their upper limit they say nothing."""
    pairs = D[np.triu_indices_from(D, 1)]
    share = float(np.mean(pairs > 0.999 * np.sqrt(2)))
    if share > _SATURATED:
        warn(
            f"{name}: {share:.0%} of the Hellinger distances are at their upper limit, the root of "
            "2, where they tell no objects apart. Give a larger ridge, fewer features, or another "
            "metric.",
        )


def deviations(rows: Floats) -> Matrix:
    """Standard deviations of the columns; 1 where a column is constant."""
    deviations = rows.std(axis=0, dtype=np.float64)
    size = np.abs(rows).max(axis=0).astype(np.float64)
    real = deviations > 1e-12 * size  # what is left of a constant column is rounding
    return np.asarray(np.where(real, deviations, 1.0))
