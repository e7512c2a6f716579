"""Parts of a model: list them, compare two models, and check a model for consistency."""

from __future__ import annotations

import inspect
from collections import UserList
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer

from nearfar.base import Estimator, Learner
from nearfar.persistence.archive import ITEM_SIZES, MAX_DEPTH, ModelFileError, below, shown, told
from nearfar.persistence.schema import NODES
from nearfar.persistence.types import FOREIGN_CHECKS, HINT, PLAIN, Types, full_name, listed_types
from nearfar.state import check_state, check_that, count_training_rows

# Maximum absolute value of n_jobs in a file, so that a file cannot start thousands of threads.
_MAX_JOBS = 256


def walk(item: Any, types: Types, where: str, depth: int = 1) -> Iterator[Any]:
    """Yield the place and the object of each part of a model that is not a scalar."""
    if depth > MAX_DEPTH:
        raise ModelFileError(
            f"{where}: it is nested more than {MAX_DEPTH} levels deep, or contains itself."
        )
    yield where, item
    for key, value in _inner(item, types, where):
        if type(value) not in PLAIN:
            yield from walk(value, types, below(where, key), depth + 1)


def _inner(item: Any, types: Types, where: str = "") -> Iterable[tuple[Any, Any]]:
    """Return the keys and values inside a part; raise if a file cannot store the part."""
    kind = type(item)
    if kind is dict:
        odd = [key for key in item if type(key) not in (str, int)]
        if odd:
            raise ModelFileError(f"{where} has the key {odd[0]!r}; keys must be str or int.")
        return item.items()
    if kind in (list, tuple):
        return enumerate(item)
    if _is_columns(item):
        return enumerate(item.data)
    if kind is slice:
        return [("start", item.start), ("stop", item.stop), ("step", item.step)]
    if kind is np.random.RandomState:
        return [("state", item.get_state(legacy=False))]
    if kind in types.values():
        state = item.__getstate__()
        if state is not None and not isinstance(state, dict):
            raise ModelFileError(f"{where}: the state of a {kind.__name__} must be a dict.")
        return (state or {}).items()
    if kind is np.ndarray and item.dtype == object and item.ndim:
        return enumerate(item.ravel().tolist())
    if kind is np.ndarray or isinstance(item, np.generic):
        if not _is_plain(item.dtype):
            raise ModelFileError(
                f"{where} is an array of {item.dtype}, which a model file cannot store."
            )
    elif not isinstance(item, np.dtype) and not (isinstance(item, type) and _scalar_name(item)):
        what = f"{shown(item.__name__)}, a" if hasattr(item, "__name__") else "a"
        raise ModelFileError(f"{where} is {what} {full_name(kind)}. {HINT}")
    return ()


def _is_columns(item: Any) -> bool:
    """Return True for the list of remainder columns in scikit-learn up to 1.8.

    That class is a UserList which warns on access.
    """
    return isinstance(item, UserList) and type(item).__module__.startswith("sklearn.compose.")


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "US" or dtype.itemsize in ITEM_SIZES.get(dtype.kind, ())


def _scalar_name(kind: type) -> str | None:
    """Return the name of a scalar type in files, or None. NumPy 2 renamed its boolean type."""
    name = "numpy.bool_" if kind is np.bool_ else full_name(kind)
    return name if name in (NODES["TypeNode"][0] or ()) else None


def check_same(model: Any, read: Any, types: Types) -> None:
    """Raise a ModelFileError that names the first part in which two models differ."""
    name = type(model).__name__
    pairs = zip_longest(walk(model, types, name), walk(read, types, name), fillvalue=("", None))
    for (where, a), (other, b) in pairs:
        if not _equal(a, b, types):
            raise ModelFileError(f"{where or other} differs after loading.")


def _equal(a: Any, b: Any, types: Types) -> bool:
    """Return True if two parts have the same type and the same scalars."""
    if type(a) is not type(b) and not _is_columns(a):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype != object:
            return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, np.generic | np.dtype | type):
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    mine, theirs = list(_inner(a, types)), list(_inner(b, types))
    return len(mine) == len(theirs) and all(
        key == other and _same_value(x, y)
        for (key, x), (other, y) in zip(mine, theirs, strict=True)
    )


def _same_value(x: Any, y: Any) -> bool:
    if type(x) not in PLAIN:  # walk() yields x as a part of its own, which is compared there.
        return type(y) not in PLAIN
    return type(x) is type(y) and bool(x == y or (x != x and y != y))


def training_rows(parts: list[tuple[str, Any]]) -> dict[str, int]:
    """Return the number of stored training rows, by the place of the part that stores them."""
    rows = {}
    for where, part in parts:
        n = count_training_rows(part)
        keeps = isinstance(part, Learner) and part.learner_tags.reads == "instances"
        if n is None and keeps and "n_features_in_" in vars(part):
            # The class does not declare the attribute: use the length of the longest array.
            arrays = [value for value in vars(part).values() if isinstance(value, np.ndarray)]
            n = max([1, *(len(array) for array in arrays if array.ndim > 1)])
        if n:
            rows[where] = n
    return rows


def bring_up_to_date(part: Any, other_sklearn: bool) -> None:
    """Rename old attributes, and add parameters that are newer than the file."""
    if isinstance(part, Estimator):
        part._bring_up_to_date()
    if type(part) in listed_types().values() and isinstance(part, BaseEstimator):
        for name, parameter in inspect.signature(type(part)).parameters.items():
            if name not in vars(part) and parameter.default is not inspect.Parameter.empty:
                setattr(part, name, parameter.default)
    if other_sklearn and isinstance(part, SimpleImputer) and "_fit_dtype" in vars(part):
        # scikit-learn 1.6 used one attribute for both purposes.
        vars(part).setdefault("_fill_dtype", vars(part)["_fit_dtype"])


def check_parts(parts: list[tuple[str, Any]]) -> None:
    """Raise if a part of a model is inconsistent. Some inconsistent parts would crash in use."""
    for where, part in reversed(parts):  # Inner parts come before those that contain them.
        try:
            if isinstance(part, BaseEstimator):
                _check_estimator(part)
            check_state(part)
            for kind, check in FOREIGN_CHECKS.items():
                if isinstance(part, kind):
                    check(part)
        except Exception as error:
            reason = told(error).removeprefix("ValueError: ")
            raise ModelFileError(f"{where}: {reason}") from error


def _check_estimator(part: BaseEstimator) -> None:
    state, kind = vars(part), type(part)
    if kind in listed_types().values():
        hidden = [name for name in state if hasattr(kind, name)]
        check_that(not hidden, f"an attribute must not hide {hidden} of {kind.__name__}.")
    part.get_params(deep=False)  # Raises if a parameter is missing.
    if isinstance(part, Estimator):
        part._check_parameters()
    jobs, n = state.get("n_jobs"), state.get("n_features_in_")
    check_that(
        jobs is None or (type(jobs) in (int, np.int64) and abs(jobs) <= _MAX_JOBS),
        f"n_jobs must be None or an integer from -{_MAX_JOBS} to {_MAX_JOBS}; got {shown(jobs)}.",
    )
    check_that(
        n is None or (type(n) is int and 0 <= n < 2**31),
        f"n_features_in_ must be a nonnegative integer; got {shown(n)}.",
    )
