"""Conversion of labels to class codes, and of regression targets to floats."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import type_of_target

from nearfar.blocks import check_mask
from nearfar.notices import warn

# Integer labels are counted instead of sorted if their range (maximum minus minimum) is smaller
# than this.
_COUNTABLE_RANGE = 1 << 20


def encode_labels(y: Any, *, name: str = "y") -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted distinct labels and the class code of each row.

    Labels can be strings, booleans, integers, pandas categoricals and nullable columns. Missing
    or continuous labels, dates and integers beyond 64 bits raise a ``ValueError``.

    >>> classes, codes = encode_labels(["cat", "dog", "cat"])
    >>> classes.tolist(), codes.tolist()
    (['cat', 'dog'], [0, 1, 0])
    """
    labels = _check_classes(y, name)
    if labels.dtype.kind in "iu" and labels.size:
        low, high = int(labels.min()), int(labels.max())
        if high - low < _COUNTABLE_RANGE and high <= np.iinfo(np.intp).max:
            # Counting is ten times faster than the sort inside np.unique.
            offset = labels.astype(np.intp, copy=False) - low
            present = np.bincount(offset, minlength=high - low + 1) > 0
            classes = (np.flatnonzero(present) + low).astype(labels.dtype)
            return classes, offset if present.all() else (np.cumsum(present) - 1)[offset]
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(
            f"{name} mixes labels of types {', '.join(kinds)}, which have no common order. "
            "Convert them all to strings or all to numbers."
        ) from error
    return classes, codes.astype(np.intp, copy=False).reshape(-1)


def encode_known_labels(
    y: Any, unknown: Any = None, *, name: str = "y"
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the class code of each row, and a mask of the rows with a known label.

    Rows with the label ``unknown`` have no known label, and their codes are meaningless. If
    ``unknown`` is None, all labels are known.

    >>> codes, known = encode_known_labels(["b", -1, "a"], unknown=-1)
    >>> codes[known].tolist(), known.tolist()
    ([1, 0], [True, False, True])
    """
    if unknown is None:
        codes = encode_labels(y, name=name)[1]
        return codes, np.ones(codes.size, bool)
    # Objects keep the types of the labels. NumPy would convert "1" and -1 to two strings.
    labels = _flatten(y if hasattr(y, "dtype") else np.asarray(y, dtype=object), name)
    if labels.dtype.kind in "iuf" and isinstance(unknown, Real) and not is_na(unknown):
        is_known = labels != unknown
    else:
        is_known = ~np.fromiter(
            (_is_same_label(label, unknown) for label in labels), bool, labels.size
        )
    if labels.size and not is_known.any():
        raise ValueError(
            f"Every label of {name} is {unknown!r}, the value of unknown labels. At least one "
            "label must be known."
        )
    # Replace unknown labels by a known one instead of removing rows, so that errors name the
    # original row numbers.
    filled = labels.copy()
    filled[~is_known] = next((label for label in labels[is_known] if not is_na(label)), unknown)
    return encode_labels(filled, name=name)[1], is_known


def encode_values(y: Any, *, name: str = "y") -> NDArray[np.float64]:
    """Return regression targets as floats.

    Targets can be numbers, booleans and nullable columns. Text, dates and missing or infinite
    values raise a ``ValueError``.

    >>> encode_values([1, 2.5]).tolist()
    [1.0, 2.5]
    """
    values = _check_complete(y, name, "a number")
    if values.dtype.kind == "c":
        raise ValueError(f"{name} contains complex numbers; a value to predict must be real.")
    try:
        if values.dtype.kind in "mMUS":
            raise ValueError(f"{str(values[0])!r} is not a number")
        numbers = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must contain numbers to predict ({error}). If {name} contains classes, use an "
            "estimator that learns from labels."
        ) from error
    if not np.isfinite(numbers).all():
        first = int(np.argmin(np.isfinite(numbers)))
        problem = "NaN" if np.isnan(numbers[first]) else "infinity"
        raise ValueError(
            f"Input {name} contains {problem} (row {first}); every row needs a number."
        )
    return numbers


def _is_same_label(label: Any, unknown: Any) -> bool:
    """Return True if two labels are equal, or both missing."""
    if is_na(label) or is_na(unknown):
        return is_na(label) and is_na(unknown)
    is_equal = label == unknown
    return bool(is_equal) if np.ndim(is_equal) == 0 else False


def _check_classes(y: Any, name: str) -> NDArray[Any]:
    """Return labels as a 1-d NumPy array; raise if entries are missing or continuous."""
    if y is None:
        raise ValueError(
            f"This learner requires {name} to be passed, but the target {name} is None."
        )
    labels = _check_complete(y, name)
    if labels.dtype.kind == "O":
        labels = _unify(labels, name)
    has_dates = labels.dtype.kind in "mM" or (
        labels.dtype.kind == "O" and labels.size > 0 and hasattr(labels[0], "isoformat")
    )
    if has_dates:
        raise ValueError(
            f"{name} contains dates, but labels must be classes. Convert them to classes first, "
            "for example to the year or the weekday, or to strings to make each date a class."
        )
    if labels.dtype.kind == "c":
        raise ValueError(f"{name} contains complex numbers; labels must be classes.")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            first = int(np.argmin(np.isfinite(labels)))
            problem = "NaN" if np.isnan(labels[first]) else "infinity"
            raise ValueError(
                f"Input {name} contains {problem} (row {first}); every row needs a label."
            )
        with np.errstate(invalid="ignore"):  # Huge labels do not fit integers.
            is_continuous = type_of_target(labels).startswith("continuous")
        if is_continuous:
            raise ValueError(
                f"{name} is continuous: Unknown label type. Labels must be classes. Convert a "
                f"regression target {name} to classes first, for example with "
                "sklearn.preprocessing.KBinsDiscretizer."
            )
    return labels


def _check_complete(y: Any, name: str, noun: str = "a label") -> NDArray[Any]:
    """Return y as a 1-d array; raise if an entry is missing."""
    if hasattr(y, "isna") and bool(np.any(y.isna())):
        raise ValueError(
            _describe_missing(name, int(np.argmax(np.asarray(y.isna()).ravel())), noun)
        )
    entries = _flatten(y, name)
    if entries.dtype.kind == "O":
        bad = np.fromiter((is_na(entry) for entry in entries), bool, entries.size)
        if bad.any():
            raise ValueError(_describe_missing(name, int(np.argmax(bad)), noun))
    return entries


def _flatten(y: Any, name: str) -> NDArray[Any]:
    """Return labels as a 1-d array."""
    check_mask(y, name)
    # Nullable and categorical columns become object arrays here. `_unify` converts these later.
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise ValueError(
            f"{name} should be a 1d array; its entries have unequal lengths."
        ) from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        warn(
            f"A column-vector {name} was passed when a 1d array was expected; it is flattened.",
            DataConversionWarning,
        )
        labels = labels[:, 0]
    if labels.dtype.names is not None:
        raise ValueError(
            f"{name} is a structured array with the fields {', '.join(labels.dtype.names)}. Pass "
            f"one field, for example {name}[{labels.dtype.names[0]!r}]."
        )
    if labels.ndim != 1:
        raise ValueError(f"{name} should be a 1d array; got shape {labels.shape}.")
    return labels


def is_na(label: Any) -> bool:
    """Return True for None, NaN, NaT and pandas.NA."""
    # NaN is not equal to itself. Comparing pandas.NA returns NA, which has no truth value.
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):
        return True


def _describe_missing(name: str, row: int, noun: str = "a label") -> str:
    return f"Input {name} contains NaN or a missing value (row {row}); every row needs {noun}."


def make_label_array(labels: list[Any], name: str = "y") -> NDArray[Any]:
    """Return labels as an array. Integers stay integers, even if NumPy would use floats.

    >>> make_label_array([5, 2**63 + 1]).dtype, make_label_array([5, -1]).dtype
    (dtype('uint64'), dtype('int64'))
    """
    if not all(type(label) is int for label in labels) or not labels:
        return np.array(labels)
    low, high = min(labels), max(labels)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return np.array(labels, dtype=dtype)
    example = high if high > np.iinfo(np.int64).max else low
    raise ValueError(
        f"{name} contains integers that do not fit into one 64-bit type, for example {example}. "
        f"Convert them to strings to use them as labels: [str(label) for label in {name}]."
    )


def _unify(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Convert objects of one type to an array of this type, which is faster to sort."""
    kinds = {type(label) for label in labels.tolist()}
    if kinds <= {bool}:
        return labels.astype(bool)
    if kinds <= {int, bool}:
        return make_label_array([int(label) for label in labels.tolist()], name)
    if kinds <= {int, float, bool}:
        return labels.astype(np.float64)
    if kinds <= {str}:
        return labels.astype(str)
    return labels
