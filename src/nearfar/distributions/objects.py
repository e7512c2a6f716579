"""Base class of estimators of distributions: from input objects to dissimilarities.

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
from nearfar.blocks import check_range, split_rows
from nearfar.distributions.dissimilarities import METRICS, dissimilarity
from nearfar.distributions.held_pairs import compute_pairwise
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, boolean, integer, none, one_of, real
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.kernel_repair import check_dissimilarities, check_square_dissimilarities
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
from nearfar.summaries.gaussians import Gaussians, is_copy
from nearfar.summaries.sets import Sets, as_sets
from nearfar.words import format_count

Kind = Literal["gaussians", "sets", "points", "precomputed"]

#: Names of the symmetric dissimilarities.
SYMMETRIC = tuple(name for name in METRICS if not name.endswith("kl"))
#: Allowed values of the parameters that all estimators of distributions have.
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
    "gaussian_center": [one_of("mean", "point")],
    "match_training_points": [boolean],
}

# A warning is issued if more than this fraction of the Hellinger distances is at the upper limit.
_MAX_SATURATED = 0.75
_KIND_NAMES = {
    "gaussians": "Gaussians",
    "sets": "sets of vectors",
    "points": "points",
    "precomputed": "dissimilarities",
}


# Attributes that store the training objects. They are missing if dissimilarities are precomputed.
_OBJECTS: dict[str, Condition] = {
    "gaussians_": object_of(Gaussians, n="n", p="p"),
    "_prints": unsigned("n", 2),
    "_firsts": indices("n", below="n"),
}


class NewObjects(NamedTuple):
    """New objects, matched with equal training objects.

    ``equal_to`` contains the index of a training object that is equal to each new object, or -1.
    ``dtype`` is the dtype of the output.
    """

    kind: Kind
    objects: Any
    equal_to: Indices
    dtype: np.dtype[Any]

    def select(self, mask: Mask) -> NewObjects:
        """Return the objects selected by a mask."""
        return self._replace(objects=self.objects[mask], equal_to=self.equal_to[mask])


class DistributionEstimator(Estimator):
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
    #: Whether the estimator accepts a table of points, which are represented by the Gaussians of
    #: their neighborhoods.
    accepts_points: ClassVar[bool] = False

    metric: str
    ridge: float | Literal["auto"]
    shrinkage: float | Literal["ledoit_wolf", "oas"] | None
    standardize: bool
    n_jobs: int | None
    n_neighbors: int
    gaussian_center: Literal["mean", "point"]
    match_training_points: bool

    n_features_in_: int
    gaussians_: Gaussians
    scale_: Matrix
    _kind: Kind
    _n_objects: int
    _points: Matrix
    _prints: NDArray[np.uint64]
    # For each training object, the index of the first training object that is equal to it.
    _firsts: NDArray[np.intp]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.two_d_array = self.accepts_points
        return tags

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        if self._kind == "precomputed":
            is_square = sizes["n"] == sizes.get("p")
            check_that(is_square, "there must be one dissimilarity for each training object.")
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

    def _fit_pairs(self, X: Any, *, min_objects: int = 2) -> tuple[Matrix, np.dtype[Any]]:
        """Return the dissimilarities of all training objects and the output dtype.

        Attributes that are needed for new objects are stored.
        """
        self._check_parameters()
        if self.metric != "precomputed":
            dtype = self._fit_objects(X, min_objects=min_objects)
            D = compute_pairwise(self.gaussians_, self.metric, self.n_jobs)
            # The dissimilarity of equal objects must be exactly zero, without rounding errors.
            for first in np.flatnonzero(np.bincount(self._firsts) > 1):
                equal = np.flatnonzero(self._firsts == first)
                D[np.ix_(equal, equal)] = 0.0
            if self.metric == "hellinger":
                _warn_if_saturated(type(self).__name__, D)
            return D, dtype
        rows = self._fit_precomputed(X, min_objects=min_objects)
        return check_square_dissimilarities(rows), rows.dtype

    def _fit_precomputed(self, X: Any, *, min_objects: int) -> Floats:
        """Check and return precomputed dissimilarities, and store the number of objects."""
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=min_objects)
        self._kind, self._n_objects = "precomputed", len(rows)
        return rows

    def _fit_objects(self, X: Any, *, min_objects: int) -> np.dtype[Any]:
        """Store the training objects and return the output dtype."""
        self._forget()
        self._check_parameters()
        kind = self._get_kind(X)
        dtype: np.dtype[Any] = np.dtype(np.float64)
        if kind == "points":
            table = self._check_X(X, reset=True, min_samples=min_objects)
            gaussians, dtype = (
                self._make_gaussians_of_points(self._scale(table, reset=True)),
                table.dtype,
            )
            self._prints = compute_fingerprints(table)
        elif kind == "sets":
            sets = self._check_count(as_sets(X), "set", min_objects)
            check_range(sets.X, "X")
            if self.standardize:
                self.scale_ = compute_scale(sets.X)
            gaussians, dtype = self._make_gaussians_of_sets(sets, self.ridge), sets.X.dtype
            self._prints = compute_fingerprints(sets)
        else:
            gaussians = self._check_count(X, "Gaussian", min_objects)
            self._prints = compute_fingerprints(gaussians)
        self._firsts = find_equal(self._prints, self._prints)
        self.n_features_in_ = gaussians.n_features
        self.gaussians_ = gaussians
        self._kind, self._n_objects = kind, len(gaussians)
        return dtype

    def _get_kind(self, X: Any) -> Kind:
        if self.metric == "precomputed":
            return "precomputed"
        if isinstance(X, Gaussians):
            return "gaussians"
        return "points" if self.accepts_points and _is_table(X) else "sets"

    def _check_count(self, objects: Any, noun: str, min_count: int) -> Any:
        if len(objects) < min_count:
            raise ValueError(
                f"X has {len(objects)} {noun}(s), but {type(self).__name__} needs at least "
                f"{min_count}."
            )
        return objects

    def _scale(self, rows: Floats, *, reset: bool = False) -> Matrix:
        """Return vectors in float64. If ``standardize`` is True, divide them by ``scale_``."""
        if reset and self.standardize:
            self.scale_ = compute_scale(rows)
        rows64 = np.ascontiguousarray(rows, np.float64)
        return rows64 / self.scale_ if self.standardize else rows64

    def _make_gaussians_of_sets(
        self, sets: Sets, ridge: float | Literal["auto"], **options: Any
    ) -> Gaussians:
        if self.standardize:
            sets = Sets(self._scale(sets.X), sets.offsets, names=sets.names)
        return Gaussians.from_sets(sets, ridge, shrinkage=self.shrinkage, **options)

    def _make_gaussians_of_points(self, rows: Matrix) -> Gaussians:
        """Return the Gaussians of the neighborhoods of training points."""
        if self.shrinkage is not None:
            raise ValueError(
                "shrinkage is only for sets of vectors, but X contains points. Use ridge instead."
            )
        # With center="mean", the neighborhoods of all points must not be the same.
        max_neighbors = len(rows) - 1 - (self.gaussian_center == "mean")
        if self.n_neighbors > max_neighbors:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is too large for X with "
                f"{format_count(len(rows), 'sample')} and gaussian_center="
                f"{self.gaussian_center!r}. Use at most {max_neighbors}, or more samples."
            )
        self._points = rows
        return Gaussians.from_neighborhoods(
            rows, self.n_neighbors, self.ridge, self.gaussian_center
        )

    def _check_new_objects(self, X: Any) -> NewObjects:
        """Check new objects, and find the training objects that are equal to them."""
        kind = self._get_kind(X)
        if self._kind == "sets" and kind == "points":
            # as_sets raises a more specific error.
            kind = "sets"
        if kind not in (self._kind, "gaussians"):
            raise ValueError(
                f"{type(self).__name__} was fitted on {_KIND_NAMES[self._kind]}, but X contains "
                f"{_KIND_NAMES[kind]}. Pass data of the same type as in fit, or Gaussians."
            )
        if kind in ("points", "precomputed"):
            rows = self._check_X(X, reset=False)
            equal_to = np.full(len(rows), -1, dtype=np.intp)
            if kind == "points" and self.match_training_points:
                distances, near = kneighbors(
                    self._points, self._scale(rows), n_neighbors=self.n_neighbors + 1
                )
                equal_to = np.where(is_copy(distances), near[:, 0], -1)
            return NewObjects(kind, rows, equal_to, rows.dtype)
        objects: Any = X if kind == "gaussians" else as_sets(X)
        if not len(objects):
            raise ValueError("X is empty. At least one Gaussian is needed.")
        if objects.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {format_count(objects.n_features, 'feature')}, but {type(self).__name__} "
                f"is expecting {format_count(self.n_features_in_, 'feature')} as input."
            )
        if kind == "gaussians":
            equal_to = find_equal(
                compute_fingerprints(objects), compute_fingerprints(self.gaussians_)
            )
            return NewObjects(kind, objects, equal_to, np.dtype(np.float64))
        equal_to = find_equal(compute_fingerprints(objects), self._prints)
        return NewObjects(kind, objects, equal_to, objects.X.dtype)

    def _iterate_pair_blocks(self, new: NewObjects) -> Iterator[tuple[slice, Matrix]]:
        """Yield blocks of dissimilarities of new objects (rows) to training objects (columns).

        A dissimilarity is exactly zero if the new object is equal to the training object.
        """
        if new.kind == "precomputed":
            yield slice(0, len(new.equal_to)), check_dissimilarities(new.objects, "X")
            return
        gaussians = self._get_gaussians(new)
        for block in split_rows(len(gaussians), 16 * self._n_objects):
            D = dissimilarity(gaussians[block], self.gaussians_, self.metric, n_jobs=self.n_jobs)
            for row in np.flatnonzero(new.equal_to[block] >= 0):
                D[row, self._firsts == self._firsts[new.equal_to[block][row]]] = 0.0
            yield block, D

    def _get_gaussians(self, new: NewObjects) -> Gaussians:
        """Return the new objects as Gaussians."""
        if new.kind == "gaussians":
            gaussians: Gaussians = new.objects
            return gaussians
        if new.kind == "points":
            return Gaussians.from_neighborhoods(
                self._points,
                self.n_neighbors,
                self._get_added_ridge(),
                self.gaussian_center,
                queries=self._scale(new.objects),
                match_training_points=self.match_training_points,
                storage=self._get_storage(),
            )
        with warnings.catch_warnings():
            # The warning about the ridge was already issued for the training sets.
            warnings.simplefilter("ignore", UserWarning)
            return self._make_gaussians_of_sets(
                new.objects, self._get_added_ridge(), storage=self._get_storage()
            )

    def _get_added_ridge(self) -> float:
        assert self.gaussians_.added_ridge is not None
        return self.gaussians_.added_ridge

    def _get_storage(self) -> Literal["dense", "low_rank"]:
        """Return the storage type of the training objects.

        New objects use the same type, so that results do not depend on the batch.
        """
        return "low_rank" if self.gaussians_.is_low_rank else "dense"


def disable_table_checks(tags: Tags) -> Tags:
    """Disable scikit-learn's checks in the tags, because these checks cannot generate sets."""
    tags.input_tags.two_d_array = False
    tags.no_validation = True
    return tags


def compute_fingerprints(objects: Sets | Gaussians | Floats) -> NDArray[np.uint64]:
    """Return a 128-bit hash of each set, Gaussian or row. Equal objects have equal hashes."""
    if isinstance(objects, Gaussians):
        stack = objects.covariances if objects.factors is None else objects.factors
        arrays_per_object: Sequence[tuple[Any, ...]] = list(zip(objects.means, stack, strict=True))
    else:
        arrays_per_object = [(rows,) for rows in objects]
    prints = np.empty((len(arrays_per_object), 2), dtype=np.uint64)
    for k, arrays in enumerate(arrays_per_object):
        digest = blake2b(digest_size=16)
        for array in arrays:
            # Adding zero converts -0.0 to 0.0.
            digest.update((np.asarray(array, np.float64) + 0.0).tobytes())
        prints[k] = np.frombuffer(digest.digest(), dtype=np.uint64)
    return prints


def find_equal(new: NDArray[np.uint64], old: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the index of the first old fingerprint that equals each new one, or -1."""
    first: dict[bytes, int] = {}
    for k, key in enumerate(old):
        first.setdefault(key.tobytes(), k)
    return np.array([first.get(key.tobytes(), -1) for key in new], dtype=np.intp)


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
        # X is an array of arrays.
        return np.ndim(array[0]) < 2
    return array.ndim != 3


def _warn_if_saturated(name: str, D: Matrix) -> None:
    """Warn if most Hellinger distances are at their upper limit."""
    pairs = D[np.triu_indices_from(D, 1)]
    fraction = float(np.mean(pairs > 0.999 * np.sqrt(2)))
    if fraction > _MAX_SATURATED:
        warn(
            f"{name}: {fraction:.0%} of the Hellinger distances are at their upper limit, the "
            "square root of 2, and do not distinguish objects. Use a larger ridge, fewer features "
            "or another metric.",
        )


def compute_scale(rows: Floats) -> Matrix:
    """Return the standard deviations of the columns, and 1 for constant columns."""
    deviations = rows.std(axis=0, dtype=np.float64)
    size = np.abs(rows).max(axis=0).astype(np.float64)
    # Deviations up to this limit are rounding errors of constant columns.
    varies = deviations > 1e-12 * size
    return np.asarray(np.where(varies, deviations, 1.0))
