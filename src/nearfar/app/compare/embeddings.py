"""Embeddings of rows without labels: what is fitted, and what is measured of it on one fold.

A fold is fitted to its training rows and places the held-out ones by ``transform``. What ranks is
the share of *neighbors kept*: of the training rows nearest to a held-out row in the data, those
that are also among the nearest in the embedding. The methods have not seen these rows, so none
gains by having kept the very neighbors that are counted. How good the picture is to look at is
measured beside it (:mod:`nearfar.app.compare.picture`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import product
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from nearfar.app.compare.fold_rows import FoldRows
from nearfar.app.compare.folds import some_of, texts_of
from nearfar.app.compare.methods import (
    Method,
    Role,
    Scale,
    Setting,
    by_name,
    label_of,
    of_rows,
    refuse_class,
    takes_tensors,
)
from nearfar.app.compare.picture import picture_quality
from nearfar.app.compare.plan import FAR_POWER
from nearfar.app.compare.through import map_through
from nearfar.arrays import Indices, Matrix
from nearfar.base import Estimator
from nearfar.evaluation.quality import compute_intersections, held_out_quality

REFERENCE = "pca"
BASELINE = "random-projection"
#: Fewer rows leave nothing to hold out.
LEAST_ROWS = 20
#: Rows of a fold that are measured, at most.
MEASURED = 1000
#: Rows of a picture, at most.
DRAWN = 600
SPECTRUM = 8
#: Columns whose spreads differ by more than this are standardized.
UNEQUAL = 10.0
# Up to so many training rows; what they need beyond grows with their square or worse.
_DENSE_ROWS = 5000
_SLOW_ROWS = 1500
#: Rows that are embedded at most in a limited time.
MOST_ROWS = 5000


# What is compared


def default_names(n_train: int) -> list[str]:
    """Embeddings that suit so many training rows, besides PCA.

    Classical MDS of Euclidean distances is PCA, and so it is not among them.

    >>> default_names(500)[:3]
    ['Isomap', 'MVU', 'VariationalMVU']
    >>> default_names(20_000)
    ['LandmarkIsomap', 'VariationalMVU', 'LLE', 'LaplacianEigenmaps']
    """
    names = ["Isomap" if n_train <= _DENSE_ROWS else "LandmarkIsomap"]
    names += ["MVU"] if n_train <= _SLOW_ROWS else []
    names += ["VariationalMVU", "LLE"]
    names += ["HessianLLE"] if n_train <= _DENSE_ROWS else []
    names += ["LaplacianEigenmaps"]
    names += ["KernelPCA"] if n_train <= _DENSE_ROWS else []
    return names + (["MDS"] if n_train <= _SLOW_ROWS else [])


def embedding_methods(
    methods: Any = None,
    *,
    n_train: int,
    n_components: int = 2,
    seed: int = 0,
    scaler: Any = "passthrough",
    baseline: bool = True,
    tensor_shape: tuple[int, ...] | None = None,
) -> list[Method]:
    """PCA, a random projection, and the embeddings to compare with them.

    Parameters
    ----------
    methods : mapping, sequence, str, learner or None
        As in :func:`nearfar.app.compare.methods.learners`; what is given as an object keeps its own
        parameters, and each of a list is a method of its own. None is :func:`default_names`.
    n_train : int
        Training rows of a fold.
    n_components, seed : int
        For what is only named.
    scaler : transformer or "passthrough"
        Before every method, and before what is measured.
    baseline : bool
        Add the random projection.
    tensor_shape : tuple of int, optional
        Shape of a row, for embeddings of tensors.
    """
    made = partial(_made, n_components=n_components, seed=seed)
    given = default_names(n_train) if methods is None else methods
    found = dict(given) if isinstance(given, Mapping) else by_name(given, made)
    if not found:
        raise ValueError("methods is empty: name an embedding at least, or give None.")
    plain = ["PCA"] + ["RandomProjection"] * baseline
    # A base line that is named is compared all the same.
    rows = {name: each for name, each in found.items() if name not in (REFERENCE, BASELINE)}
    for name in (REFERENCE, BASELINE):
        if isinstance(given, Mapping) and name in found:
            raise ValueError(f"methods has the name {name!r}, which is taken; choose another.")
        if name in found and not isinstance(found[name], tuple):
            rows[f"{name} 2"] = found[name]
    result = [
        _method(one, estimator, scaler, "reference" if one == REFERENCE else "baseline")
        for one, (estimator,) in by_name(plain, made).items()
    ]
    for name, each in rows.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"methods has the name {name!r}; names must be text.")
        several = list(each) if isinstance(each, list | tuple) else [each]
        if not several:
            raise ValueError(f"methods[{name!r}] is an empty list.")
        for i, estimator in enumerate(several):
            own = name if len(several) == 1 else f"{name} {i + 1}"
            estimator = of_rows(own, estimator, tensor_shape)
            if isinstance(each, tuple) and takes_tensors(estimator):
                assert tensor_shape is not None
                estimator.set_params(n_components=in_modes(n_components, tensor_shape)[0])
            result.append(_method(own, estimator, scaler, "learner"))
    return result


def in_modes(n_components: int, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """How many components each mode may have, so that there are so many in all.

    >>> in_modes(2, (32, 24)), in_modes(6, (2, 9, 3))
    ([(2, 1), (1, 2)], [(2, 3, 1), (2, 1, 3), (1, 6, 1), (1, 3, 2), (1, 2, 3)])
    """
    every = product(*(range(min(n_components, size), 0, -1) for size in shape))
    found = [sizes for sizes in every if prod(sizes) == n_components]
    if not found:
        by = "×".join(map(str, shape))
        raise ValueError(
            f"n_components={n_components} cannot be shared out among the modes of {by}: it is no "
            "product of numbers up to these."
        )
    return found


def _made(learner: type[Estimator], *, n_components: int, seed: int) -> tuple[Estimator]:
    """A learner that was only named; a tuple, to be told from one that was given."""
    known = signature(learner.__init__).parameters
    given = {"n_components": n_components, "random_state": seed}
    return (learner(**{name: value for name, value in given.items() if name in known}),)


def _method(name: str, estimator: Any, scaler: Any, role: Role) -> Method:
    refuse_class(name, estimator)
    if not hasattr(estimator, "fit") or not hasattr(estimator, "transform"):
        raise ValueError(
            f"methods[{name!r}] is {estimator!r}, which has no fit with a transform for new rows."
        )
    tags = getattr(estimator, "learner_tags", None)
    if tags is not None and tags.supervised:
        raise ValueError(
            f"methods[{name!r}] learns from labels, and there are none. Give labels, or name "
            "embeddings only (see: nearfar methods)."
        )
    setting = Setting(_words(estimator), scaler, estimator)
    return Method(name, label_of(name, estimator), role, (setting,))


def _words(estimator: Any) -> str:
    """Its parameters that matter, in words."""
    if not hasattr(estimator, "get_params"):
        return ""
    known = signature(type(estimator).__init__).parameters
    parts = []
    for name, value in estimator.get_params(deep=False).items():
        if name == "n_neighbors":
            parts.append("k from the dimensions" if value is None else f"k = {value}")
        elif name not in ("n_components", "random_state", "verbose") and (
            name not in known or repr(value) != repr(known[name].default)
        ):
            parts.append(f"{name}={value!r}")
    return ", ".join(parts)[:80]


def choose_scaler(inputs: Matrix, scale: Scale, image: bool) -> tuple[Any, str]:
    """How columns are scaled before all methods and before the measure, and why in words.

    Nothing can be tuned without labels. "auto" standardizes columns of very unequal spread.

    >>> import numpy as np
    >>> choose_scaler(np.random.default_rng(0).normal(size=(50, 2)) * [1, 100], "auto", False)
    (StandardScaler(), "Columns are standardized: ...
    """
    from sklearn.preprocessing import Normalizer, StandardScaler

    spreads = inputs.std(axis=0)
    spreads = spreads[spreads > 1e-12 * max(1e-300, np.abs(inputs).max())]
    factor = float(spreads.max() / spreads.min()) if len(spreads) else 1.0
    if scale == "auto":
        scale = "standard" if factor > UNEQUAL and not image else "none"
        why = (
            f": their spreads differ by a factor of {factor:,.0f} (scale 'none' leaves them)"
            if scale == "standard"
            else ": pixels have one unit"
            if image
            else f": their spreads differ by a factor of {factor:.1f} only"
        )
    else:
        why = ", as asked"
    texts = {
        "none": ("passthrough", "Columns are as they are"),
        "standard": (StandardScaler(), "Columns are standardized"),
        "unit": (Normalizer(), "Rows are scaled to unit norm"),
    }
    if scale not in texts:
        raise ValueError(f"scale={scale!r} must be one of auto, none, standard, unit.")
    scaler, text = texts[scale]
    return scaler, f"{text}{why}."


# What is measured


def neighbors_counted(n_train: int) -> tuple[int, tuple[int, ...]]:
    """How many neighbors rank, and how many are looked at besides.

    2% of the training rows, from 5 to 15: more would reach beyond what is near in a small set.

    >>> neighbors_counted(240), neighbors_counted(4000)
    ((5, (5, 15)), (15, (5, 15, 50)))
    """
    counted = min(15, max(5, n_train // 50), n_train - 1)
    others = {count for count in (5, 15, 50) if count <= n_train // 10}
    return counted, tuple(sorted(others | {counted}))


@dataclass
class Embeddings(FoldRows):
    """The rows, and how they become inputs: the :class:`nearfar.app.compare.folds.Work` to do."""

    X: Any
    prepare: Any
    scaler: Any
    n_neighbors: int
    looked_at: tuple[int, ...]
    noun: str = "row"
    pilot_rows: int = 1000
    least_rows: int = MOST_ROWS
    tunes_k: bool = False
    drawn_by: str = "at random"
    far_power: float = FAR_POWER

    def parts(self, train: Indices, test: Indices) -> tuple[Matrix, Matrix]:
        """Both parts as numbers, prepared by what the training rows tell."""
        steps = Setting("", self.scaler, "passthrough").steps(self.first_step)
        parts = [self.inputs(train), self.inputs(test)]
        if steps:
            chain = Pipeline(steps).fit(parts[0])
            parts = [map_through(chain, part) for part in parts]
        known, new = (np.asarray(part, dtype=np.float64) for part in parts)
        return known, new

    def run_fold(self, method: Method, **task: Any) -> dict[str, Any]:
        """Fit, place the held-out rows, and measure."""
        return run_fold(self, method, task["train"], task["test"], draw=task.get("draw", False))

    def pilot(self, method: Method, **task: Any) -> float:
        """Seconds of one fit and placing on so many rows."""
        train, test, size = task["train"], task["test"], task["size"]
        some = some_of(train, size)
        known, new = self.parts(some, test[: max(1, len(test) * len(some) // len(train))])
        began = perf_counter()
        place(method, known, new[:MEASURED])
        return perf_counter() - began

    def warm_up(self) -> None:
        """Do once what all do, so that its memory is no method's own."""
        every = np.arange(len(self.X))
        some = evenly(len(every), 400)  # enough to fill a block
        with suppress(Exception):  # it is not asked for anything
            known, new = self.parts(every, some)
            there, placed = known[:, :2], new[:, :2]
            held_out_quality(known, there, new, placed, n_neighbors=self.n_neighbors)
            compute_intersections(known, there, self.looked_at, some)

    def share_in(self, folder: str) -> None:
        """Nothing is shared."""


@dataclass
class Placed:
    """Where a fitted method put the rows."""

    fitted: Any
    known: Matrix
    new: Matrix
    fit_seconds: float
    place_seconds: float
    caught: list[str]


def place(method: Method, known: Matrix, new: Matrix) -> Placed:
    """Fit the method to some rows and place others."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = perf_counter()
        fitted = clone(method.settings[0].estimator)
        # Of a learner of ours fit_transform returns embedding_, exactly.
        if hasattr(fitted, "fit_transform"):
            there = fitted.fit_transform(known)
        else:
            there = fitted.fit(known).transform(known)
        fit_seconds = perf_counter() - began
        placed = fitted.transform(new)
        place_seconds = perf_counter() - began - fit_seconds
    idle = DeprecationWarning | FutureWarning | ImportWarning
    texts = texts_of([w for w in caught if not issubclass(w.category, idle)])
    there, placed = _checked(there, known), _checked(placed, new)
    return Placed(fitted, there, placed, fit_seconds, place_seconds, texts)


def _checked(points: Any, rows: Matrix) -> Matrix:
    points = np.asarray(points)
    if points.ndim != 2 or len(points) != len(rows):
        raise ValueError(
            f"transform gave an array of shape {points.shape} for {len(rows)} rows; it must have "
            "a row for each."
        )
    points = points.astype(np.float64)
    if not np.isfinite(points).all():
        raise ValueError("transform gave NaN or infinity.")
    return points


def run_fold(
    problem: Embeddings, method: Method, train: Indices, test: Indices, *, draw: bool = False
) -> dict[str, Any]:
    """All measures of one method on one fold, as plain data."""
    known, new = problem.parts(train, test)
    measured = evenly(len(new), MEASURED)
    shown = drawn_rows(len(train), len(test))
    everywhere = np.union1d(measured, shown[1]) if draw else measured
    placed = place(method, known, new[everywhere])
    there = placed.new[np.searchsorted(everywhere, measured)]
    quality = held_out_quality(
        known, placed.known, new[measured], there, n_neighbors=problem.n_neighbors
    )
    counts = problem.looked_at
    kept = compute_intersections(known, placed.known, counts, (new[measured], there))
    some = evenly(len(known), MEASURED)
    fitted = compute_intersections(known, placed.known, counts, some)
    share = kept[problem.n_neighbors]
    every = np.concatenate([placed.known, placed.new])
    drawn = evenly(len(known), DRAWN)
    picture = picture_quality(known[drawn], placed.known[drawn], every, problem.n_neighbors)
    result: dict[str, Any] = {
        "error": 1.0 - share,
        "kept": share,
        "kept_fitted": fitted[problem.n_neighbors],
        **{name: _finite(value) for name, value in quality.items() if name != "intersection"},
        **picture,
        "by_neighbors": {str(count): value for count, value in kept.items()},
        "setting": method.settings[0].label,
        "n_components": placed.known.shape[1],
        "fit_seconds": placed.fit_seconds,
        "predict_seconds": placed.place_seconds,
        "tune_seconds": 0.0,
        "gap": _finite(getattr(placed.fitted, "duality_gap_", None)),
        "residual": _finite(getattr(placed.fitted, "primal_residual_", None)),
        "warnings": placed.caught[:5],
    }
    if draw:
        points = np.concatenate(
            [placed.known[shown[0]], placed.new[np.searchsorted(everywhere, shown[1])]]
        )
        result["map"] = _flat(points)
        result["spectrum"] = _spectrum(placed.fitted, known, method.role)
    return result


def evenly(n: int, most: int) -> Indices:
    """All of n rows, or so many of them, evenly chosen."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def drawn_rows(n_train: int, n_test: int) -> tuple[Indices, Indices]:
    """Which training and which held-out rows a picture shows."""
    share = min(1.0, DRAWN / (n_train + n_test))
    return (
        evenly(n_train, max(1, round(share * n_train))),
        evenly(n_test, max(1, round(share * n_test))),
    )


def _flat(points: Matrix) -> dict[str, list[float]]:
    """The first two coordinates about their mean, in units of their largest spread."""
    flat = np.pad(points[:, :2], ((0, 0), (0, max(0, 2 - points.shape[1]))))
    flat = flat - flat.mean(axis=0)
    flat = flat / (np.abs(flat).max() or 1.0)
    return {axis: [round(float(value), 4) for value in flat[:, i]] for i, axis in enumerate("xy")}


def _spectrum(fitted: Any, inputs: Matrix, role: Role) -> list[float] | None:
    """Shares of the variance along the axes; only of methods that know more than they show."""
    if role == "reference":
        some = inputs[evenly(len(inputs), _DENSE_ROWS)]
        some = some - some.mean(axis=0)
        wide = some.shape[1] > len(some)
        values = np.linalg.eigvalsh(some @ some.T if wide else some.T @ some)
    elif hasattr(fitted, "duality_gap_"):  # unfolding learns the whole Gram matrix
        values = np.asarray(fitted.eigenvalues_, dtype=np.float64)
    else:
        return None
    values = np.sort(np.maximum(values, 0.0))[::-1]
    total = values.sum()
    if not (np.isfinite(total) and total > 0):
        return None
    return [round(float(value), 5) for value in values[:SPECTRUM] / total]


def _finite(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
