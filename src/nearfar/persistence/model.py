"""Functions that list the components of a model, compare two models and check a model."""

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
from nearfar.persistence.archive import (
    ITEM_SIZES,
    MAX_DEPTH,
    ModelFileError,
    describe_error,
    format_value,
    join_place,
)
from nearfar.persistence.schema import NODES
from nearfar.persistence.types import (
    HINT,
    LIBRARY_CHECKS,
    SCALAR_TYPES,
    Types,
    get_full_name,
    get_listed_types,
)
from nearfar.state import check_state, check_that, count_stored_rows

# Maximum absolute value of n_jobs in a file, so that a file cannot start thousands of threads.
_MAX_JOBS = 256


def walk_components(component: Any, types: Types, place: str, depth: int = 1) -> Iterator[Any]:
    """Yield the attribute path and value of each component of a model, except scalars.

    An example of an attribute path is "model.estimator_".
    """
    if depth > MAX_DEPTH:
        raise ModelFileError(
            f"{place} is nested more than {MAX_DEPTH} levels deep, or it contains itself."
        )
    yield place, component
    for key, value in _list_items(component, types, place):
        if type(value) not in SCALAR_TYPES:
            yield from walk_components(value, types, join_place(place, key), depth + 1)


def _list_items(component: Any, types: Types, place: str = "") -> Iterable[tuple[Any, Any]]:
    """Return the keys and values inside a component. Raises if it cannot be saved."""
    kind = type(component)
    if kind is dict:
        invalid_keys = [key for key in component if type(key) not in (str, int)]
        if invalid_keys:
            raise ModelFileError(
                f"{place} has the key {invalid_keys[0]!r}; keys must be str or int."
            )
        return component.items()
    if kind in (list, tuple):
        return enumerate(component)
    if _is_column_list(component):
        return enumerate(component.data)
    if kind is slice:
        return [("start", component.start), ("stop", component.stop), ("step", component.step)]
    if kind is np.random.RandomState:
        return [("state", component.get_state(legacy=False))]
    if kind in types.values():
        state = component.__getstate__()
        if state is not None and not isinstance(state, dict):
            raise ModelFileError(f"{place}: the state of a {kind.__name__} must be a dict.")
        return (state or {}).items()
    if kind is np.ndarray and component.dtype == object and component.ndim:
        return enumerate(component.ravel().tolist())
    if kind is np.ndarray or isinstance(component, np.generic):
        if not _is_supported(component.dtype):
            raise ModelFileError(
                f"{place} is an array of {component.dtype}, which a model file cannot store."
            )
    elif not isinstance(component, np.dtype) and not (
        isinstance(component, type) and _get_scalar_name(component)
    ):
        description = (
            f"{format_value(component.__name__)}, a" if hasattr(component, "__name__") else "a"
        )
        raise ModelFileError(f"{place} is {description} {get_full_name(kind)}. {HINT}")
    return ()


def _is_column_list(component: Any) -> bool:
    """Return True if the component is a list of remainder columns of a ColumnTransformer.

    scikit-learn up to version 1.8 stores these columns in a UserList that warns on access.
    """
    return isinstance(component, UserList) and type(component).__module__.startswith(
        "sklearn.compose."
    )


def _is_supported(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "US" or dtype.itemsize in ITEM_SIZES.get(dtype.kind, ())


def _get_scalar_name(kind: type) -> str | None:
    """Return the name that files use for a scalar type, or None if the type is not scalar.

    NumPy 2 renamed its boolean type, but files keep the old name.
    """
    name = "numpy.bool_" if kind is np.bool_ else get_full_name(kind)
    return name if name in (NODES["TypeNode"][0] or ()) else None


def check_equal(model: Any, restored_model: Any, types: Types) -> None:
    """Raise a ModelFileError if two models differ. The message names the first difference."""
    name = type(model).__name__
    pairs = zip_longest(
        walk_components(model, types, name),
        walk_components(restored_model, types, name),
        fillvalue=("", None),
    )
    for (place, a), (other_place, b) in pairs:
        if not _is_equal(a, b, types):
            raise ModelFileError(f"{place or other_place} differs after loading.")


def _is_equal(a: Any, b: Any, types: Types) -> bool:
    """Return True if two components have the same type and contain the same scalars."""
    if type(a) is not type(b) and not _is_column_list(a):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype != object:
            return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, np.generic | np.dtype | type):
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    items, other_items = list(_list_items(a, types)), list(_list_items(b, types))
    return len(items) == len(other_items) and all(
        key == other_key and _is_equal_scalar(x, y)
        for (key, x), (other_key, y) in zip(items, other_items, strict=True)
    )


def _is_equal_scalar(x: Any, y: Any) -> bool:
    # Values that are not scalars are separate components, which check_equal compares one by one.
    if type(x) not in SCALAR_TYPES:
        return type(y) not in SCALAR_TYPES
    return type(x) is type(y) and bool(x == y or (x != x and y != y))


def count_training_rows(components: list[tuple[str, Any]]) -> dict[str, int]:
    """Return the number of training rows in each component, with attribute paths as keys."""
    row_counts = {}
    for place, component in components:
        n = count_stored_rows(component)
        stores_instances = (
            isinstance(component, Learner) and component.learner_tags.reads == "instances"
        )
        if n is None and stores_instances and "n_features_in_" in vars(component):
            # The class does not declare which attribute stores the rows, so use the longest array.
            arrays = [value for value in vars(component).values() if isinstance(value, np.ndarray)]
            n = max([1, *(len(array) for array in arrays if array.ndim > 1)])
        if n:
            row_counts[place] = n
    return row_counts


def update_component(component: Any, is_from_other_sklearn: bool) -> None:
    """Update a component from an older file: rename attributes and add new parameters."""
    if isinstance(component, Estimator):
        component._bring_up_to_date()
    if type(component) in get_listed_types().values() and isinstance(component, BaseEstimator):
        for name, parameter in inspect.signature(type(component)).parameters.items():
            if name not in vars(component) and parameter.default is not inspect.Parameter.empty:
                setattr(component, name, parameter.default)
    if (
        is_from_other_sklearn
        and isinstance(component, SimpleImputer)
        and "_fit_dtype" in vars(component)
    ):
        # scikit-learn 1.6 has no _fill_dtype and uses _fit_dtype instead.
        vars(component).setdefault("_fill_dtype", vars(component)["_fit_dtype"])


def check_components(components: list[tuple[str, Any]]) -> None:
    """Raise if a component is inconsistent. Methods of such a component could crash."""
    # Check inner components before the components that contain them.
    for place, component in reversed(components):
        try:
            if isinstance(component, BaseEstimator):
                _check_estimator(component)
            check_state(component)
            for kind, check in LIBRARY_CHECKS.items():
                if isinstance(component, kind):
                    check(component)
        except Exception as error:
            reason = describe_error(error).removeprefix("ValueError: ")
            raise ModelFileError(f"{place}: {reason}") from error


def _check_estimator(component: BaseEstimator) -> None:
    state, kind = vars(component), type(component)
    if kind in get_listed_types().values():
        hidden_names = [name for name in state if hasattr(kind, name)]
        check_that(not hidden_names, f"attributes must not hide {hidden_names} of {kind.__name__}.")
    component.get_params(deep=False)  # This call raises if a parameter is missing.
    if isinstance(component, Estimator):
        component._check_parameters()
    n_jobs, n_features = state.get("n_jobs"), state.get("n_features_in_")
    check_that(
        n_jobs is None or (type(n_jobs) in (int, np.int64) and abs(n_jobs) <= _MAX_JOBS),
        f"n_jobs must be None or an integer from -{_MAX_JOBS} to {_MAX_JOBS}; got "
        f"{format_value(n_jobs)}.",
    )
    check_that(
        n_features is None or (type(n_features) is int and 0 <= n_features < 2**31),
        f"n_features_in_ must be a nonnegative integer; got {format_value(n_features)}.",
    )
