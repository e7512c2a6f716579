"""What every learner shares: parameter checks, tags, input checks, the linear map.

A learner derives from one of

* :class:`StatisticsLearner`: solves from ``ClassStatistics`` alone; write ``solve``;
* :class:`LinearLearner`: reads X and a supervision or a graph; write ``fit``, set ``components_``;
* :class:`Learner`: anything else; write ``fit`` and ``transform``.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfar.arrays import Floats
from nearfar.blocks import blas_for, row_blocks
from nearfar.labels import encode_labels
from nearfar.parameters import Allowed, check_parameter
from nearfar.solvers.subspaces import Interrupted
from nearfar.summaries.class_statistics import ClassStatistics, check_weight
from nearfar.summaries.distributed import is_dask, statistics_of_blocks, without_rows

__all__ = [
    "Learner",
    "LearnerTags",
    "LinearLearner",
    "StatisticsLearner",
    "all_learners",
    "check_learner",
]


@dataclass(frozen=True)
class LearnerTags:
    """What kind of method a learner is.

    Parameters
    ----------
    kind : {"statistics", "graph", "supervision", "instance"}
        What it learns from: ``ClassStatistics`` alone; a neighbour graph, or labels, pairs,
        triplets or chunklets, together with X; or training rows that it keeps.
    input : {"vectors", "tensors", "sets"}
        What one sample is.
    supervised : bool
        Whether it needs labels or another supervision.
    linear : bool
        Whether the map is ``components_``.
    out_of_sample : bool
        Whether ``transform`` takes new points.
    """

    kind: Literal["statistics", "graph", "supervision", "instance"]
    input: Literal["vectors", "tensors", "sets"] = "vectors"
    supervised: bool = True
    linear: bool = True
    out_of_sample: bool = True


class Checked(BaseEstimator):
    """An estimator with declared parameters."""

    #: For each parameter of ``__init__`` the kinds of values it may take.
    parameters: ClassVar[dict[str, Sequence[Allowed]]] = {}

    def _check_parameters(self) -> None:
        for name, allowed in self.parameters.items():
            check_parameter(type(self).__name__, name, getattr(self, name), allowed)

    def _forget(self) -> None:
        """Drop what was learned."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            del self.__dict__[name]

    def _check_X(
        self, X: ArrayLike, *, reset: bool, min_samples: int = 1, finite: bool = True
    ) -> Floats:
        """X as a finite float array.

        ``reset`` is for ``fit``: what was learned before is forgotten, so that a fit that fails
        leaves no old map behind, and ``n_features_in_`` and feature names are set.

        ``finite=False`` leaves NaN and infinity to whoever reads the rows next.
        """
        if reset:
            self._forget()
        elif not finite and self._fits_as_it_is(X):
            return X  # type: ignore[return-value]
        if sparse.issparse(X):
            raise TypeError(
                f"{type(self).__name__} takes dense data, but X is a sparse matrix. Reduce it "
                "first, for example with sklearn.decomposition.TruncatedSVD."
            )
        name = type(self).__name__
        try:
            rows: Floats = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32],
                ensure_min_samples=0,
                ensure_all_finite=finite,
            )
        except ValueError as error:
            if "X" in str(error):
                raise
            raise ValueError(f"X: {error}") from error
        if len(rows) < min_samples:
            if reset:
                self._forget()
            raise ValueError(
                f"X has {len(rows)} sample(s) (shape={rows.shape}) while a minimum of "
                f"{min_samples} is required by {name}."
            )
        return rows

    def _fits_as_it_is(self, X: object) -> bool:
        """Whether X is like the rows before, with nothing to convert or to say about names.

        Checking a small batch in full takes longer than to learn from it.
        """
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and len(X) > 0
            and X.dtype in (np.float64, np.float32)
            and X.shape[1] == getattr(self, "n_features_in_", -1)
            and not hasattr(self, "feature_names_in_")
        )

    def _check_labels(
        self, y: ArrayLike | None, n_samples: int, *, min_classes: int = 2
    ) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Sorted classes and the code of each row."""
        name = type(self).__name__
        if y is None:
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None: it learns from labels."
            )
        classes, codes = encode_labels(y)
        if len(codes) != n_samples:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {n_samples} "
                f"rows and y has {len(codes)} labels."
            )
        if len(classes) < min_classes:
            raise ValueError(
                f"{name} needs at least {min_classes} classes; y has only one class "
                f"({classes.tolist()[0]!r})."
            )
        return classes, codes


class Learner(TransformerMixin, Checked):
    """A method that learns a map in which near means alike."""

    learner_tags: ClassVar[LearnerTags]
    #: Parameters worth trying beside the defaults when nothing is known of the data; up to three.
    settings: ClassVar[Sequence[dict[str, Any]]] = ()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = self.learner_tags.supervised
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LinearLearner(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""A learner whose map is :math:`x \mapsto L (x - m)`, with ``components_`` for L.

    Distances after the map are :math:`d(x, z)^2 = (x-z)^T L^T L (x-z)`; the mean :math:`m` only
    keeps digits and plays no part in them.
    """

    components_: Floats
    mean_: Floats

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: ArrayLike) -> Floats:
        """Map points: ``(X - mean_) @ components_.T``, or without the mean if there is none.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        components = self.components_.astype(rows.dtype, copy=False)
        if not hasattr(self, "mean_"):
            return np.asarray(rows @ components.T)
        # The mean is rounded like X: a common shift changes no distance.
        mean = self.mean_.astype(rows.dtype, copy=False)
        mapped = np.empty((len(rows), len(components)), dtype=rows.dtype)
        for block in row_blocks(len(rows), rows.itemsize * rows.shape[1], at_most=8192):
            np.matmul(rows[block] - mean, components.T, out=mapped[block])
        return mapped

    def get_mahalanobis_matrix(self) -> Floats:
        """The matrix M of the learned distance, ``components_.T @ components_``."""
        check_is_fitted(self)
        return np.asarray(self.components_.T @ self.components_)

    def pair_distance(self, pairs: ArrayLike) -> NDArray[np.float64]:
        """Learned distance between the two points of each pair.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        check_is_fitted(self)
        points = check_array(pairs, dtype=np.float64, allow_nd=True, input_name="pairs")
        if points.ndim != 3 or points.shape[1] != 2 or points.shape[2] != self.n_features_in_:
            raise ValueError(
                f"pairs must have shape (n_pairs, 2, {self.n_features_in_}); got {points.shape}."
            )
        differences = (points[:, 0] - points[:, 1]) @ self.components_.T.astype(np.float64)
        return np.sqrt(np.einsum("ij,ij->i", differences, differences))

    def pair_score(self, pairs: ArrayLike) -> NDArray[np.float64]:
        """How alike the points of each pair are: minus their distance.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return -self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """A function ``metric(u, v, squared=False)`` of two points, free of the learner.

        For neighbours it is many times faster to transform all points once and to use the
        Euclidean distance.
        """
        check_is_fitted(self)
        components = self.components_.astype(np.float64)

        def metric(u: ArrayLike, v: ArrayLike, squared: bool = False) -> float:
            difference = components @ (np.asarray(u, np.float64) - np.asarray(v, np.float64))
            square = float(difference @ difference)
            return square if squared else square**0.5

        return metric


class StatisticsLearner(LinearLearner, ABC):
    """A linear learner that solves from :class:`~nearfar.ClassStatistics` alone.

    Subclasses write :meth:`solve`; fitting in one go or in batches comes with it. ``partial_fit``
    only accumulates: the solve runs once, when something learned is first asked for. Where what
    was seen so far cannot be solved, asking raises the solve's error (``hasattr`` too).

    Of dask arrays and dataframes (``pip install 'nearfar[dask]'``) the statistics are computed
    block by block where dask computes; only they come here, and the solve runs here.
    """

    #: One scatter for all classes; False keeps one for each.
    pooled_statistics: ClassVar[bool] = True
    #: Parameters with which batches give what one fit gives, where the default looks at rows too.
    same_in_batches: ClassVar[dict[str, Any]] = {}
    statistics_: ClassStatistics

    @abstractmethod
    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """Components (n_components, n_features) from the statistics.

        May set further attributes that end in an underscore. On Ctrl-C it may raise
        :class:`~nearfar.solvers.subspaces.Interrupted` with the best components so far: the learner
        is then fitted with these, and the interrupt goes on.
        """

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from all rows at once; forgets what was learned before.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            Training points.
        y : array-like, dask array or dask series of shape (n_samples,)
            Labels; ignored by learners that need none.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        object
            The learner itself.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=True, min_samples=2)
        return self._fit_with(partial(self._accumulate, rows, y, sample_weight))

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Accumulate more rows; new classes may appear.

        Parameters
        ----------
        X : array-like, dask array or dask dataframe of shape (n_samples, n_features)
            More training points.
        y : array-like, dask array or dask series of shape (n_samples,)
            Their labels.
        sample_weight : array-like, dask array or dask series of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        object
            The learner itself; the solve waits until it is needed.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=not self.__sklearn_is_fitted__())
        # Rows are seen once: float64 products, as their condition shows only later.
        return self._accumulate(rows, y, sample_weight, exact=True)

    def _check_rows(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        """Rows to accumulate; of dask's, only what is known before computing is checked here."""
        if not is_dask(X):
            return self._check_X(X, reset=reset, min_samples=min_samples, finite=False)
        self._check_X(without_rows(X), reset=reset, min_samples=0)
        return X

    def _fit_with(self, accumulate: Callable[..., Self]) -> Self:
        """Accumulate anew and solve; a fit that fails leaves the learner unfitted."""
        self._drop_statistics()
        try:
            accumulate(exact=False)
            if self.statistics_.is_ill_conditioned():
                # Features so nearly collinear that float32 products lose what tells them apart.
                self._drop_statistics()
                accumulate(exact=True)
            return self._solved()
        except BaseException as error:
            if not (isinstance(error, Interrupted) and error.components is not None):
                self._drop_statistics()
            raise

    def _accumulate(
        self, rows: Floats, y: ArrayLike | None, sample_weight: ArrayLike | None, *, exact: bool
    ) -> Self:
        if is_dask(rows):
            return self._accumulate_blocks(rows, y, sample_weight)
        if self.learner_tags.supervised:
            classes, codes = self._check_labels(y, len(rows), min_classes=1)
        else:
            classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.intp)
        return self._add(rows, classes, codes, sample_weight, exact=exact)

    def _accumulate_blocks(self, X: Any, y: Any, sample_weight: Any) -> Self:
        if self.learner_tags.supervised and y is None:
            self._check_labels(None, 0)
        labels = y if self.learner_tags.supervised else None
        found = statistics_of_blocks(X, labels, sample_weight, pooled=self.pooled_statistics)
        dtype = np.float32 if found.precision > np.finfo(np.float64).eps else np.float64
        fitted = self.__sklearn_is_fitted__()
        return self._keep(self.statistics_.merge(found) if fitted else found, np.dtype(dtype))

    def _add(
        self,
        rows: Floats,
        classes: NDArray[Any],
        codes: NDArray[np.intp],
        sample_weight: ArrayLike | None,
        *,
        exact: bool,
    ) -> Self:
        weight = None if sample_weight is None else check_weight(sample_weight, len(rows))
        statistics = (
            self.statistics_
            if self.__sklearn_is_fitted__()
            else ClassStatistics(pooled=self.pooled_statistics, exact=exact)
        )
        return self._keep(statistics.add(rows, classes, codes, weight), rows.dtype)

    def _keep(self, statistics: ClassStatistics, dtype: np.dtype[Any]) -> Self:
        """Only when all went well: rows that were refused must leave no trace."""
        if not self.__sklearn_is_fitted__():
            self._dtype = dtype
        self._unsolve()
        self.statistics_ = statistics
        return self

    def _forget(self) -> None:
        self._drop_statistics()
        super()._forget()

    def _drop_statistics(self) -> None:
        self._unsolve()
        self.__dict__.pop("statistics_", None)

    def _unsolve(self) -> None:
        for name in self.__dict__.pop("_learned", ()):
            self.__dict__.pop(name, None)

    def _solved(self) -> Self:
        if self.statistics_.n_classes == 0:
            raise ValueError(
                "There is no row to learn from: every sample_weight is zero, or supervision puts "
                "no point into a chunklet."
            )
        before = set(vars(self))
        interrupt = None
        try:
            with blas_for(10.0 * self.statistics_.n_features**3):
                components = self.solve(self.statistics_)
        except BaseException as error:
            if not (isinstance(error, Interrupted) and error.components is not None):
                for name in set(vars(self)) - before:  # half a solution must not look like one
                    del self.__dict__[name]
                raise
            components, interrupt = error.components, error
        self.components_ = components.astype(self._dtype)
        self.mean_ = self.statistics_.mean.astype(self._dtype)
        self._learned = sorted(set(vars(self)) - before)
        if interrupt is not None:
            raise interrupt  # Ctrl-C as usual, after the best so far was left on the learner
        return self

    def __getattr__(self, name: str) -> Any:
        # Reached only when the attribute is missing: solve if that could bring it.
        learned = name.endswith("_") and not name.startswith("_") and name not in _NOT_LEARNED
        if learned and "statistics_" in vars(self):
            with _SOLVING:
                if "_learned" not in vars(self):
                    self._solved()
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return "statistics_" in vars(self)


# Set by input checks or by accumulating, never by the solve.
_NOT_LEARNED = frozenset({"statistics_", "n_features_in_", "feature_names_in_"})
# Threads that share a learner must not solve at once; one lock for all keeps learners picklable.
_SOLVING = RLock()


#: Packages whose modules hold learners.
ROOMS = (
    "mahalanobis",
    "discriminant",
    "manifold",
    "distributions",
    "tensors",
    "local",
    "kernels",
)


def all_learners() -> dict[str, type[Learner]]:
    """Every learner of the library by name, found by scanning the rooms.

    >>> "LMNN" in all_learners()
    True
    """
    found: dict[str, type[Learner]] = {}
    package = importlib.import_module("nearfar")
    rooms = {module.name for module in pkgutil.iter_modules(package.__path__)}
    for room in ROOMS:
        if room not in rooms:
            continue
        path = importlib.import_module(f"nearfar.{room}").__path__
        for module in pkgutil.iter_modules(path, f"nearfar.{room}."):
            for name, item in vars(importlib.import_module(module.name)).items():
                is_learner = isinstance(item, type) and issubclass(item, Learner)
                if is_learner and item.__module__ == module.name and not name.startswith("_"):
                    found[name] = item
    return dict(sorted(found.items()))


def check_learner(learner: Learner) -> None:
    """Run the whole contract on a learner of your own; raises where it fails.

    Parameters
    ----------
    learner : Learner
        An unfitted learner of vectors or of sets.

    Examples
    --------
    >>> from nearfar import Euclidean
    >>> check_learner(Euclidean())
    """
    contract = importlib.import_module("nearfar.contract")
    contract.check(learner)
