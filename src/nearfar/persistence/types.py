"""Types that a model file may contain, by name, and checks of classes from other libraries.

A file may contain nearfar's public classes that declare their state, the classes named in such a
declaration, and the scikit-learn classes listed here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from nearfar.base import Estimator
from nearfar.base.registry import public_classes
from nearfar.state import (
    Condition,
    Sizes,
    State,
    check_conditions,
    check_that,
    choice,
    flag,
    floats,
    get_state,
    indices,
    integer_value,
    matches_size,
    none_or,
    object_of,
    optional,
)

#: Classes by the names that model files use for them.
Types = dict[str, type]

# A type added here must not store functions and must not index memory without a bounds check. It
# may need an entry in LIBRARY_CHECKS.
_SKLEARN_TYPES = (
    "sklearn.compose.ColumnTransformer",
    "sklearn.decomposition.PCA",
    "sklearn.decomposition.TruncatedSVD",
    "sklearn.impute.MissingIndicator",
    "sklearn.impute.SimpleImputer",
    "sklearn.pipeline.Pipeline",
    "sklearn.preprocessing.FunctionTransformer",  # ColumnTransformer uses it for "passthrough".
    "sklearn.preprocessing.MaxAbsScaler",
    "sklearn.preprocessing.MinMaxScaler",
    "sklearn.preprocessing.Normalizer",
    "sklearn.preprocessing.OneHotEncoder",
    "sklearn.preprocessing.OrdinalEncoder",
    "sklearn.preprocessing.RobustScaler",
    "sklearn.preprocessing.StandardScaler",
)
#: Scalar types of NumPy and Python.
NUMPY_SCALARS = tuple(
    f"numpy.{name}"
    for name in (
        *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "str_", "bytes_"),
    )
)
PYTHON_SCALARS = ("builtins.bool", "builtins.float", "builtins.int", "builtins.str")
SCALAR_TYPES = (type(None), bool, int, float, str)

TRUST_HINT = (
    "For a class of your own whose code you trust, pass trusted=[ThatClass] to save and to load."
)
HINT = (
    "A file can store nearfar's learners and classifiers, scikit-learn's Pipeline, "
    "ColumnTransformer, imputers, encoders and scalers, numbers, text and arrays. "
    f"{TRUST_HINT}"
)


@cache
def get_listed_types() -> Types:
    """Return the types that a file may contain even if ``trusted`` is empty."""
    types = {f"nearfar.{name}": kind for name, kind in public_classes().items() if get_state(kind)}
    pending = list(types.values())
    while pending:
        state = get_state(pending.pop()) or State()
        for kind in chain.from_iterable(condition.types for condition in state.conditions.values()):
            # Skip base classes of estimators, because files contain concrete classes only.
            if kind not in types.values() and not issubclass(kind, Estimator):
                types[get_full_name(kind)] = kind
                pending.append(kind)
    for name in _SKLEARN_TYPES:
        module, last = split_name(name)
        types[name] = getattr(importlib.import_module(module), last)
    return types


def map_former_names(types: Types) -> dict[str, str]:
    """Return a dict from former class names, as used in older files, to current class names."""
    return {
        old if "." in old else f"nearfar.{old}": name
        for name, kind in types.items()
        for old in vars(kind).get("former_names", ())
    }


def collect_types(trusted: Sequence[type]) -> Types:
    """Return the types that a file may contain, including the classes that the user trusts."""
    types = dict(get_listed_types())
    for trusted_type in trusted:
        if not isinstance(trusted_type, type):
            raise TypeError(
                f"trusted must contain classes, not names or objects; got {trusted_type!r}."
            )
        name = get_full_name(trusted_type)
        if (
            getattr(sys.modules.get(trusted_type.__module__), trusted_type.__qualname__, None)
            is not trusted_type
        ):
            raise ValueError(
                f"trusted: {name} cannot be imported by its name. Define it at the top of a module."
            )
        if trusted_type not in types.values():
            types[name] = trusted_type
    return types


def split_name(name: str) -> tuple[str, str]:
    """Split a dotted name into its module and its last part."""
    module, _, last = name.rpartition(".")
    return module, last


def get_full_name(kind: type) -> str:
    """Return the module and the qualified name of a class, joined by a dot."""
    return f"{kind.__module__}.{kind.__qualname__}"


# ---------------------------------------------------------------------- checks of other classes


def _check_one_hot(component: OneHotEncoder) -> None:
    # OneHotEncoder.transform builds a sparse matrix without a bounds check of the column numbers.
    # So compute the column numbers of all categories here in the same way, and check them.
    state = vars(component)
    if "categories_" not in state:
        return
    _check_encoder(component)
    categories, widths = state["categories_"], state.get("_n_features_outs")
    drops, has_infrequent = state.get("_drop_idx_after_grouping"), state.get("_infrequent_enabled")
    check_that(
        isinstance(categories, list) and isinstance(widths, list),
        "categories_ and _n_features_outs must be lists.",
    )
    assert isinstance(widths, list)
    n = len(categories)
    check_that(
        len(widths) == n == state.get("n_features_in_", n),
        "categories_ and _n_features_outs must have one entry per feature.",
    )
    is_valid = isinstance(drops, np.ndarray) and drops.shape == (n,)
    check_that(
        drops is None or is_valid,
        "_drop_idx_after_grouping must be None or an array with one entry per feature.",
    )
    for i, (names, width) in enumerate(zip(categories, widths, strict=True)):
        check_that(_is_ordered(names), "categories_ must be in ascending order.")
        codes = np.arange(len(names))
        if has_infrequent:
            rare, mappings = (
                state["_infrequent_indices"][i],
                state["_default_to_infrequent_mappings"],
            )
            if rare is not None:
                codes = np.append(codes, rare[0])
            if mappings[i] is not None:
                codes = np.take(mappings[i], codes)
        if drops is not None and drops[i] is not None:
            codes = codes[codes != drops[i]]
            codes = codes - (codes > drops[i])
        category_numbers = np.unique(codes)
        check_that(
            category_numbers.dtype.kind == "i" and type(width) is int,
            "the category numbers must be integers.",
        )
        is_valid_range = category_numbers.size == width and (
            not width or (category_numbers[0] == 0 and category_numbers[-1] == width - 1)
        )
        check_that(
            is_valid_range, "the category numbers must range from 0 to _n_features_outs - 1."
        )


def _check_encoder(component: OneHotEncoder | OrdinalEncoder) -> None:
    """Check the attributes that OneHotEncoder and OrdinalEncoder have in common."""
    state = vars(component)
    categories, has_infrequent = state.get("categories_"), state.get("_infrequent_enabled")
    if "categories_" not in state:
        return
    check_that(isinstance(categories, list), "categories_ must be a list.")
    assert isinstance(categories, list)
    n = len(categories)
    check_that(n == state.get("n_features_in_", n), "categories_ must have one entry per feature.")
    for names in categories:
        check_that(
            isinstance(names, np.ndarray) and names.ndim == 1,
            "categories_ must contain one-dimensional arrays.",
        )
    check_that(type(has_infrequent) is bool, "_infrequent_enabled must be True or False.")
    for name in ("_infrequent_indices", "_default_to_infrequent_mappings"):
        lists = state.get(name)
        is_valid = isinstance(lists, list) and len(lists) == n
        check_that(
            is_valid if has_infrequent else name not in state or is_valid,
            f"{name} must be a list with one entry per feature.",
        )
    check_that(isinstance(component.handle_unknown, str), "handle_unknown must be a string.")
    is_numeric = (
        isinstance(component.dtype, type | np.dtype) and np.dtype(component.dtype).kind in "fiu"
    )
    check_that(is_numeric, "dtype must be a numeric type.")


def _check_ordinal(component: OrdinalEncoder) -> None:
    _check_encoder(component)
    state = vars(component)
    n = len(state.get("categories_", ()))
    check_that(
        all(len(names) for names in state.get("categories_", ())),
        "each feature must have at least one category.",
    )
    missing_indices = state.get("_missing_indices", {})
    check_that(isinstance(missing_indices, dict), "_missing_indices must be a dict.")
    for feature, category in missing_indices.items():
        is_valid = type(feature) is int and isinstance(category, int | np.integer)
        check_that(is_valid and 0 <= feature < n, "_missing_indices must map features to integers.")
        check_that(
            0 <= category < len(state["categories_"][feature]),
            "_missing_indices must be below the number of categories.",
        )


def _check_columns(component: ColumnTransformer) -> None:
    state = vars(component)
    weights = state.get("transformer_weights")
    check_that(weights is None or isinstance(weights, dict), "transformer_weights must be a dict.")
    if "transformers_" not in state:
        return
    fitted = state["transformers_"]
    check_that(isinstance(fitted, list), "transformers_ must be a list.")
    has_sparse = False
    for entry in fitted:
        check_that(
            type(entry) is tuple and len(entry) == 3 and type(entry[0]) is str,
            "transformers_ must contain tuples of name, transformer and columns.",
        )
        is_keyword = isinstance(entry[1], str) and entry[1] in ("drop", "passthrough")
        check_that(
            is_keyword or hasattr(entry[1], "transform"),
            f"the transformer {entry[0]!r:.60} has no transform method.",
        )
        last = entry[1].steps[-1][1] if isinstance(entry[1], Pipeline) else entry[1]
        has_sparse |= isinstance(last, OneHotEncoder) and last.sparse_output is True
    is_sparse = state.get("sparse_output_")
    check_that(
        type(is_sparse) is bool and (has_sparse or not is_sparse),
        "sparse_output_ must be a bool, and False if no transformer has sparse output.",
    )
    inputs, n = state.get("_transformer_to_input_indices"), state.get("n_features_in_")
    check_that(isinstance(inputs, dict), "_transformer_to_input_indices must be a dict.")
    assert isinstance(inputs, dict)
    for entry in fitted:
        columns = inputs.get(entry[0])
        check_that(
            isinstance(columns, list) and type(n) is int,
            f"the columns of the transformer {entry[0]!r:.60} are missing.",
        )
        assert isinstance(columns, list) and n is not None
        check_that(
            all(type(k) is int and 0 <= k < n for k in columns),
            "column numbers must be below n_features_in_.",
        )


def _is_ordered(names: NDArray[Any]) -> bool:
    """Return True if categories are strings or in ascending order, with missing values last.

    The order matters because scikit-learn uses binary search for categories that are not strings.
    """
    present = [name for name in names.tolist() if name is not None and name == name]
    if present != names.tolist()[: len(present)]:
        return False
    if names.dtype == object and all(isinstance(name, str) for name in present):
        return True
    return all(a < b for a, b in pairwise(present))


def _check_pipeline(component: Pipeline) -> None:
    # scikit-learn reads its cache folder with pickle, so a model file must not contain the path of
    # a cache folder.
    check_that(
        component.memory is None, "memory must be None, because a file cannot name a cache folder."
    )
    steps = component.steps
    check_that(
        isinstance(steps, list) and len(steps) > 0, "steps must be a list that is not empty."
    )
    for step in steps:
        check_that(
            type(step) is tuple and len(step) == 2 and type(step[0]) is str,
            "steps must contain tuples of name and estimator.",
        )
    for name, step in steps[:-1]:
        is_passthrough = step is None or (isinstance(step, str) and step == "passthrough")
        check_that(
            is_passthrough or hasattr(step, "transform"),
            f"the step {name!r:.60} has no transform method.",
        )


def _check_function(component: FunctionTransformer) -> None:
    is_empty = (
        component.func is None and component.inverse_func is None and component.kw_args is None
    )
    check_that(
        is_empty, "a FunctionTransformer in a file must not have func, inverse_func or kw_args."
    )


def _check_random(component: np.random.RandomState) -> None:
    state: Any = component.get_state(legacy=False)
    # NumPy uses the position "pos" in a table of 624 numbers without a bounds check.
    is_valid = state["bit_generator"] == "MT19937" and 0 <= state["state"]["pos"] <= 624
    check_that(is_valid, "the state of a RandomState is invalid. Use an integer as random_state.")


_OPTIONAL_FLOATS = none_or(floats("p"))
_ONE_PER_FEATURE = Condition(
    lambda value, sizes: (
        isinstance(value, np.ndarray) and value.ndim == 1 and matches_size(len(value), "p", sizes)
    ),
    "an array with one value per feature",
)
_DTYPE = Condition(lambda value, _: isinstance(value, np.dtype), "a NumPy dtype")
#: Conditions on the attributes of fitted scikit-learn estimators. The name before the conditions is
#: the attribute that exists only in a fitted estimator.
_SKLEARN_STATES: dict[type, tuple[str, dict[str, Condition]]] = {
    StandardScaler: (
        "scale_",
        {
            "with_mean": flag,
            "with_std": flag,
            **dict.fromkeys(("mean_", "scale_"), _OPTIONAL_FLOATS),
        },
    ),
    MinMaxScaler: ("scale_", {"scale_": floats("p"), "min_": floats("p"), "clip": flag}),
    MaxAbsScaler: ("scale_", {"scale_": floats("p")}),
    RobustScaler: (
        "scale_",
        {
            "with_centering": flag,
            "with_scaling": flag,
            **dict.fromkeys(("center_", "scale_"), _OPTIONAL_FLOATS),
        },
    ),
    PCA: (
        "components_",
        {
            "components_": floats("q", "p"),
            "mean_": floats("p"),
            "explained_variance_": floats("q"),
            "whiten": flag,
        },
    ),
    TruncatedSVD: ("components_", {"components_": floats("q", "p")}),
    SimpleImputer: (
        "statistics_",
        {
            "statistics_": _ONE_PER_FEATURE,
            "_fit_dtype": optional(_DTYPE),
            "_fill_dtype": optional(_DTYPE),
            "indicator_": optional(none_or(object_of(MissingIndicator))),
        },
    ),
    MissingIndicator: (
        "features_",
        {
            "_n_features": integer_value("p"),
            "features_": indices("missing", below="p"),
            "features": choice("missing-only", "all"),
        },
    ),
}
# Parameters and attributes of scikit-learn classes: if the parameter is true, the attribute must
# not be None.
_REQUIRED_IF_TRUE = {
    StandardScaler: {"with_mean": "mean_", "with_std": "scale_"},
    RobustScaler: {"with_centering": "center_", "with_scaling": "scale_"},
    SimpleImputer: {"add_indicator": "indicator_"},
}


def check_sklearn_state(component: Any) -> None:
    """Raise a ``ValueError`` if an attribute of a scikit-learn estimator is missing or invalid."""
    attributes, kind = vars(component), type(component)
    if kind in _SKLEARN_STATES and _SKLEARN_STATES[kind][0] in attributes:
        sizes = Sizes()
        if type(attributes.get("n_features_in_")) is int:
            sizes["p"] = attributes["n_features_in_"]
        check_conditions(attributes, _SKLEARN_STATES[kind][1], sizes)
        for parameter, name in _REQUIRED_IF_TRUE.get(kind, {}).items():
            check_that(
                not attributes.get(parameter) or attributes.get(name) is not None,
                f"{parameter} is true, but {name} is None or missing.",
            )
    output = attributes.get("_sklearn_output_config")
    check_that(
        "_sklearn_output_config" not in attributes or isinstance(output, dict),
        "_sklearn_output_config must be a dict.",
    )
    names = attributes.get("feature_names_in_")
    if "feature_names_in_" in attributes:
        is_valid = isinstance(names, np.ndarray) and names.ndim == 1 and names.dtype.kind in "OU"
        check_that(is_valid, "feature_names_in_ must be an array of names.")
        check_that(
            len(names) == attributes.get("n_features_in_", len(names)),
            "feature_names_in_ must have one entry per feature.",
        )
        check_that(
            all(isinstance(name, str) for name in names.tolist()),
            "feature_names_in_ must contain strings.",
        )


#: Functions that check objects of other libraries, whose classes do not declare their state.
LIBRARY_CHECKS: dict[type, Any] = {
    BaseEstimator: check_sklearn_state,
    ColumnTransformer: _check_columns,
    Pipeline: _check_pipeline,
    FunctionTransformer: _check_function,
    OneHotEncoder: _check_one_hot,
    OrdinalEncoder: _check_ordinal,
    np.random.RandomState: _check_random,
}
