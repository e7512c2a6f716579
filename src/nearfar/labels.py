"""Labels of every kind users have, turned into codes; values to predict, into numbers."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import type_of_target

from nearfar.notices import warn

# Integer labels within such a range are counted instead of sorted.
_COUNTABLE_RANGE = 1 << 20


def encode_labels(y: Any, *, name: str = "y") -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted distinct labels and the code of each row.

    Strings, booleans, integers, pandas categoricals and nullable columns are taken; missing or
    continuous labels, dates and integers beyond 64 bits raise a ``ValueError``.

    >>> classes, codes = encode_labels(["cat", "dog", "cat"])
    >>> classes.tolist(), codes.tolist()
    (['cat', 'dog'], [0, 1, 0])
    """
    labels = _plain_array(y, name)
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
            f"{name} mixes labels of types {', '.join(kinds)}, which have no common order; "
            "make them all strings or all numbers."
        ) from error
    return classes, codes.astype(np.intp, copy=False).reshape(-1)


def known_codes(
    y: Any, unknown: Any = None, *, name: str = "y"
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The code of each row, and which rows have a known label.

    Codes count the known labels; those of rows with the label ``unknown`` mean nothing. None says
    that all are known.

    >>> codes, known = known_codes(["b", -1, "a"], unknown=-1)
    >>> codes[known].tolist(), known.tolist()
    ([1, 0], [True, False, True])
    """
    if unknown is None:
        codes = encode_labels(y, name=name)[1]
        return codes, np.ones(codes.size, bool)
    # As objects the labels keep their own types: of "1" and -1 NumPy would make two texts.
    labels = _flat(y if hasattr(y, "dtype") else np.asarray(y, dtype=object), name)
    if labels.dtype.kind in "iuf" and isinstance(unknown, Real) and not is_na(unknown):
        known = labels != unknown
    else:
        known = ~np.fromiter((_same(label, unknown) for label in labels), bool, labels.size)
    if labels.size and not known.any():
        raise ValueError(
            f"every label of {name} is {unknown!r}, the label of rows of which nothing is known."
        )
    # With another label in its place a row can stay, and errors name the rows as they are.
    filled = labels.copy()
    filled[~known] = next((label for label in labels[known] if not is_na(label)), unknown)
    return encode_labels(filled, name=name)[1], known


def encode_values(y: Any, *, name: str = "y") -> NDArray[np.float64]:
    """Numbers to predict as floats.

    Whole numbers, booleans and nullable columns are taken; text, dates and missing or infinite
    values raise a ``ValueError``.

    >>> encode_values([1, 2.5]).tolist()
    [1.0, 2.5]
    """
    values = _without_gaps(y, name, "a number")
    if values.dtype.kind == "c":
        raise ValueError(f"{name} holds complex numbers; a value to predict must be real.")
    try:
        if values.dtype.kind in "mMUS":
            raise ValueError(f"{str(values[0])!r} is none")
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must hold numbers to predict ({error}); for classes use a learner of labels."
        ) from error
    if not np.isfinite(numbers).all():
        first = int(np.argmin(np.isfinite(numbers)))
        what = "NaN" if np.isnan(numbers[first]) else "infinity"
        raise ValueError(f"Input {name} contains {what} (row {first}); every row needs a number.")
    return numbers


def _same(label: Any, unknown: Any) -> bool:
    """Whether two labels are one; missing ones are."""
    if is_na(label) or is_na(unknown):
        return is_na(label) and is_na(unknown)
    same = label == unknown
    return bool(same) if np.ndim(same) == 0 else False


def _plain_array(y: Any, name: str) -> NDArray[Any]:
    """A 1-d NumPy array without missing or continuous entries."""
    if y is None:
        raise ValueError(
            f"This learner requires {name} to be passed, but the target {name} is None."
        )
    labels = _without_gaps(y, name)
    if labels.dtype.kind == "O":
        labels = _unify(labels, name)
    dates = labels.dtype.kind in "mM" or (
        labels.dtype.kind == "O" and labels.size > 0 and hasattr(labels[0], "isoformat")
    )
    if dates:
        raise ValueError(
            f"{name} holds dates, and labels must be classes. Make classes of them first, such as "
            "the year or the day of the week; or make them text to take each date for a class."
        )
    if labels.dtype.kind == "c":
        raise ValueError(f"{name} holds complex numbers; labels must be classes.")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            first = int(np.argmin(np.isfinite(labels)))
            what = "NaN" if np.isnan(labels[first]) else "infinity"
            raise ValueError(
                f"Input {name} contains {what} (row {first}); every row needs a label."
            )
        if type_of_target(labels).startswith("continuous"):
            raise ValueError(
                f"{name} is continuous: Unknown label type. Labels must be classes; for a "
                f"regression target cut {name} into classes first, for example with "
                "sklearn.preprocessing.KBinsDiscretizer."
            )
    return labels


def _without_gaps(y: Any, name: str, what: str = "a label") -> NDArray[Any]:
    """A 1-d array; raises if an entry of a column or a list is missing."""
    if hasattr(y, "isna") and bool(np.any(y.isna())):
        raise ValueError(_missing(name, int(np.argmax(np.asarray(y.isna()).ravel())), what))
    entries = _flat(y, name)
    if entries.dtype.kind == "O":
        bad = np.fromiter((is_na(entry) for entry in entries), bool, entries.size)
        if bad.any():
            raise ValueError(_missing(name, int(np.argmax(bad)), what))
    return entries


def _flat(y: Any, name: str) -> NDArray[Any]:
    """Labels as a 1-d array."""
    # Nullable and categorical columns come out as objects here, which are unified later.
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        warn(
            f"A column-vector {name} was passed when a 1d array was expected; it is flattened.",
            DataConversionWarning,
        )
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"{name} should be a 1d array; got shape {labels.shape}.")
    return labels


def is_na(label: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas.NA."""
    # NaN is not equal to itself; pandas.NA gives NA, which has no truth value.
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):
        return True


def _missing(name: str, row: int, what: str = "a label") -> str:
    return f"Input {name} contains NaN or a missing value (row {row}); every row needs {what}."


def label_array(labels: list[Any], name: str = "y") -> NDArray[Any]:
    """Labels as an array; whole numbers stay whole, which NumPy may turn into floats.

    >>> label_array([5, 2**63 + 1]).dtype, label_array([5, -1]).dtype
    (dtype('uint64'), dtype('int64'))
    """
    if not all(type(label) is int for label in labels) or not labels:
        return np.array(labels)
    low, high = min(labels), max(labels)
    for kind in (np.int64, np.uint64):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.array(labels, dtype=kind)
    far = high if high > np.iinfo(np.int64).max else low
    raise ValueError(
        f"{name} holds whole numbers that do not fit into 64 bits together, {far} for one; make "
        f"them text to use them as names of classes: [str(label) for label in {name}]."
    )


def _unify(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Objects of one kind become an array of that kind, so that they sort and compare fast."""
    kinds = {type(label) for label in labels.tolist()}
    if kinds <= {bool}:
        return labels.astype(bool)
    if kinds <= {int, bool}:
        return label_array([int(label) for label in labels.tolist()], name)
    if kinds <= {int, float, bool}:
        return labels.astype(np.float64)
    if kinds <= {str}:
        return labels.astype(str)
    return labels
