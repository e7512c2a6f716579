"""Base class of estimators over distributions: from input objects to dissimilarities.

An object is a Gaussian, a set of vectors (represented by its Gaussian), a point (represented by the
Gaussian of its neighborhood among the training points: the augmented space), or a row of
precomputed dissimilarities.
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
from nearfar.blocks import split_rows
from nearfar.distributions.dissimilarities import METRICS, dissimilarity
from nearfar.distributions.held_pairs import pairs_of
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, boolean, integer, none, one_of, real
from nearfar.solvers.kernel_repair import checked_dissimilarities, checked_square
from nearfar.state import (
    Condition,
    Sizes,
    State,
    check_conditions,
    check_that,
    choice,
    floats,
    indices,
    integer_value,
    object_of,
    unsigned,
)
from nearfar.summaries.gaussians import Gaussians
from nearfar.summaries.sets import Sets, as_sets
from nearfar.words import format_count

Kind = Literal["gaussians", "sets", "points", "precomputed"]

#: Names of the symmetric dissimilarities.
SYMMETRIC = tuple(name for name in METRICS if not name.endswith("kl"))
#: Allowed values of the parameters that all estimators over distributions have.
SHARED_PARAMETERS: dict[str, list[AllowedValues]] = {
    "metric": [one_of(*SYMMETRIC, "precomputed")],
    "ridge": [one_of("auto"), real(0)],
    "shrinkage": [none, real(0, 1), one_of("ledoit_wolf", "oas")],
    "standardize": [boolean],
    "n_jobs": [none, integer(1), integer(high=-1)],
}
#: Allowed values of the parameters that only estimators for points have.
POINT_PARAMETERS: dict[str, list[AllowedValues]] = {
    "n_neighbors": [integer(1)],
    "form": [one_of("smoothed", "raw")],
    "recognize": [boolean],
}

# Fraction of Hellinger distances at their upper limit above which a warning is issued.
_SATURATED = 0.75
_CALLED = {
    "gaussians": "Gaussians",
    "sets": "sets of vectors",
    "points": "points",
    "precomputed": "dissimilarities",
}


# Stored attributes of training objects, except for precomputed dissimilarities.
_OBJECTS: dict[str, Condition] = {
    "gaussians_": object_of(Gaussians, n="n", p="p"),
    "_prints": unsigned("n", 2),
    "_firsts": indices("n", below="n"),
}


class NewObjects(NamedTuple):
    """New objects, the training object that each is equal to (or -1), and the output dtype."""

    kind: Kind
    objects: Any
    same: Indices
    dtype: np.dtype[Any]

    def only(self, which: Mask) -> NewObjects:
        """Return the objects selected by a mask."""
        return self._replace(objects=self.objects[which], same=self.same[which])


class OverDistributions(Estimator):
    """Base class that stores training objects and computes dissimilarities to them."""

    # Each set or point is stored as one Gaussian. The Gaussian of a set with one vector contains
    # this vector as its mean.
    state = State(
        {
            "_kind": choice("gaussians", "sets", "points", "precomputed"),
            "_n_objects": integer_value("n", low=1),
        },
        fitted="_kind",
        rows="_n_objects",
    )
    #: True if the estimator accepts a table of points, by the Gaussians of their neighborhoods.
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
    _firsts: NDArray[np.intp]  # index of the first training object that is equal to each one

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.two_d_array = self.takes_points
        return tags

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        if self._kind == "precomputed":
            fits = sizes["n"] == sizes.get("p")
            check_that(fits, "there must be one dissimilarity for each training object.")
            return
        check_conditions(vars(self), _OBJECTS, sizes)
        if self._kind != "gaussians":
            check_that(
                self.gaussians_.added_ridge is not None, "the ridge for new objects is missing."
            )
            if self.standardize:
                check_conditions(vars(self), {"scale_": floats("p", above=0)}, sizes)
        if self._kind == "points":
            check_conditions(vars(self), {"_points": floats("n", "p")}, sizes)

    # ------------------------------------------------------------------ training objects

    def _fit_pairs(self, X: Any, *, min_objects: int = 2) -> tuple[Matrix, np.dtype[Any]]:
        """Return the dissimilarities of all training objects and the output dtype.

        Stores the attributes that new objects need.
        """
        if self.metric != "precomputed":
            dtype = self._fit_objects(X, min_objects=min_objects)
            D = pairs_of(self.gaussians_, self.metric, self.n_jobs)
            # The dissimilarity of equal objects must be exactly zero, without rounding errors.
            for first in np.flatnonzero(np.bincount(self._firsts) > 1):
                equal = np.flatnonzero(self._firsts == first)
                D[np.ix_(equal, equal)] = 0.0
            if self.metric == "hellinger":
                _warn_if_saturated(type(self).__name__, D)
            return D, dtype
        rows = self._fit_given(X, min_objects=min_objects)
        return checked_square(rows), rows.dtype

    def _fit_given(self, X: Any, *, min_objects: int) -> Floats:
        """Return precomputed dissimilarities of all training objects. Stores only their number."""
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=min_objects)
        self._kind, self._n_objects = "precomputed", len(rows)
        return rows

    def _fit_objects(self, X: Any, *, min_objects: int) -> np.dtype[Any]:
        """Store the training objects and return the output dtype."""
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
        """Return vectors in float64, standardized by the training vectors if requested."""
        if reset and self.standardize:
            self.scale_ = deviations(rows)
        exact = np.ascontiguousarray(rows, np.float64)
        return exact / self.scale_ if self.standardize else exact

    def _of_sets(self, sets: Sets, ridge: float | Literal["auto"], **options: Any) -> Gaussians:
        if self.standardize:
            sets = Sets(self._scaled(sets.X), sets.offsets, names=sets.names)
        return Gaussians.from_sets(sets, ridge, shrinkage=self.shrinkage, **options)

    def _of_points(self, rows: Matrix) -> Gaussians:
        """Return the Gaussians of the neighborhoods of training points."""
        if self.shrinkage is not None:
            raise ValueError(
                "shrinkage is only for sets of vectors, but X contains points. Use ridge instead."
            )
        self._points = rows
        # With few rows, all other rows are neighbors.
        m = min(self.n_neighbors, len(rows) - 1)
        return Gaussians.from_neighborhoods(rows, m, self.ridge, self.form)

    # ------------------------------------------------------------------ new objects

    def _new_objects(self, X: Any) -> NewObjects:
        """Return the new objects, with the training objects that they are equal to."""
        kind = self._kind_of(X)
        if self._kind == "sets" and kind == "points":
            kind = "sets"  # as_sets raises the more specific error
        if kind not in (self._kind, "gaussians"):
            raise ValueError(
                f"{type(self).__name__} was fitted on {_CALLED[self._kind]}, but X contains "
                f"{_CALLED[kind]}. Pass the type of the training data, or Gaussians."
            )
        if kind in ("points", "precomputed"):
            rows = self._check_X(X, reset=False)
            same = np.full(len(rows), -1, dtype=np.intp)
            if kind == "points" and self.recognize:
                same = found_again(fingerprints(rows), self._prints)
            return NewObjects(kind, rows, same, rows.dtype)
        objects: Any = X if kind == "gaussians" else as_sets(X)
        if not len(objects):
            raise ValueError("X is empty. At least one Gaussian is needed.")
        if objects.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {format_count(objects.n_features, 'feature')}, but {type(self).__name__} "
                f"is expecting {format_count(self.n_features_in_, 'feature')} as input."
            )
        if kind == "gaussians":
            same = found_again(fingerprints(objects), fingerprints(self.gaussians_))
            return NewObjects(kind, objects, same, np.dtype(np.float64))
        same = found_again(fingerprints(objects), self._prints)
        return NewObjects(kind, objects, same, objects.X.dtype)

    def _pair_blocks(self, new: NewObjects) -> Iterator[tuple[slice, Matrix]]:
        """Yield blocks of dissimilarities: one row per new, one column per training object.

        They are exactly zero if a new object is equal to a training object.
        """
        if new.kind == "precomputed":
            yield slice(0, len(new.same)), checked_dissimilarities(new.objects, "X")
            return
        gaussians = self._gaussians_of(new)
        for block in split_rows(len(gaussians), 16 * self._n_objects):
            D = dissimilarity(gaussians[block], self.gaussians_, self.metric, n_jobs=self.n_jobs)
            for row in np.flatnonzero(new.same[block] >= 0):
                D[row, self._firsts == self._firsts[new.same[block][row]]] = 0.0
            yield block, D

    def _gaussians_of(self, new: NewObjects) -> Gaussians:
        """Return the new objects as Gaussians."""
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
            # The warning about the ridge was already issued for the training sets.
            warnings.simplefilter("ignore", UserWarning)
            return self._of_sets(new.objects, self._added_ridge(), storage=self._storage())

    def _added_ridge(self) -> float:
        assert self.gaussians_.added_ridge is not None
        return self.gaussians_.added_ridge

    def _storage(self) -> Literal["dense", "low_rank"]:
        """Return the storage of training objects, so that results do not depend on the batch."""
        return "low_rank" if self.gaussians_.is_low_rank else "dense"


def without_tables(tags: Tags) -> Tags:
    """Set the tags of an estimator for sets, which scikit-learn's checks cannot generate."""
    tags.input_tags.two_d_array = False
    tags.no_validation = True
    return tags


# ---------------------------------------------------------------------- equal objects


def fingerprints(objects: Sets | Gaussians | Floats) -> NDArray[np.uint64]:
    """Return a 128-bit hash of each set, Gaussian or row. Equal objects have equal hashes."""
    if isinstance(objects, Gaussians):
        stack = objects.covariances if objects.factors is None else objects.factors
        parts: Sequence[tuple[Any, ...]] = list(zip(objects.means, stack, strict=True))
    else:
        parts = [(rows,) for rows in objects]
    prints = np.empty((len(parts), 2), dtype=np.uint64)
    for k, arrays in enumerate(parts):
        digest = blake2b(digest_size=16)
        for array in arrays:
            # Adding zero converts -0.0 to 0.0.
            digest.update((np.asarray(array, np.float64) + 0.0).tobytes())
        prints[k] = np.frombuffer(digest.digest(), dtype=np.uint64)
    return prints


def found_again(new: NDArray[np.uint64], old: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the index of the first equal old fingerprint for each new one, or -1."""
    first: dict[bytes, int] = {}
    for k, key in enumerate(old):
        first.setdefault(key.tobytes(), k)
    return np.array([first.get(key.tobytes(), -1) for key in new], dtype=np.intp)


# ---------------------------------------------------------------------- checks


def _is_table(X: Any) -> bool:
    """Return True if X looks like an array of points rather than a list of arrays."""
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
    """Warn if most Hellinger distances are at their upper limit."""
    pairs = D[np.triu_indices_from(D, 1)]
    share = float(np.mean(pairs > 0.999 * np.sqrt(2)))
    if share > _SATURATED:
        warn(
            f"{name}: {share:.0%} of the Hellinger distances are at their upper limit, the square "
            "root of 2, and do not distinguish objects. Use a larger ridge, fewer features or "
            "another metric.",
        )


def deviations(rows: Floats) -> Matrix:
    """Return the standard deviations of the columns, and 1 for constant columns."""
    deviations = rows.std(axis=0, dtype=np.float64)
    size = np.abs(rows).max(axis=0).astype(np.float64)
    real = deviations > 1e-12 * size  # smaller deviations of a constant column are rounding errors
    return np.asarray(np.where(real, deviations, 1.0))
