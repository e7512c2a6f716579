"""Checks of row indices and points passed by the user, and conversions between them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from nearfar.arrays import Indices
from nearfar.blocks import check_mask


def check_signs(values: Any, n_pairs: int, name: str) -> NDArray[np.bool_]:
    """Return a mask of the similar pairs, given +1 for similar and -1 for dissimilar pairs."""
    check_mask(values, name)
    try:
        signs = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} should be a 1d array of +1 and -1.") from error
    if signs.dtype.names is not None:
        raise ValueError(f"{name} is a structured array; expected an array of +1 and -1.")
    if signs.shape != (n_pairs,):
        raise ValueError(
            f"{name} should have shape ({n_pairs},), one entry per pair; got shape {signs.shape}."
        )
    is_similar = signs == 1
    raise_if_any(
        ~is_similar & (signs != -1),
        signs,
        name,
        f"{{}} is neither +1 nor -1 (similar or dissimilar). Convert 0 and 1 with 2 * {name} - 1.",
    )
    return np.asarray(is_similar, bool)


def raise_if_any(is_bad: NDArray[np.bool_], values: NDArray[Any], name: str, problem: str) -> None:
    """If there are bad values, raise an error that names the first one and its row."""
    if is_bad.any():
        first = np.unravel_index(np.argmax(is_bad), is_bad.shape)
        raise ValueError(f"{name} row {first[0]}: {problem.format(values[first])}")


def convert_to_array(values: Any, name: str, shape: str) -> NDArray[Any]:
    """Return the values as an array. Raise an error if the rows have different shapes."""
    check_mask(values, name)
    try:
        return np.asarray(values)
    except ValueError as error:
        shapes = [np.asarray(row, dtype=object).shape for row in values]
        row = next((row for row, row_shape in enumerate(shapes) if row_shape != shapes[0]), 0)
        raise ValueError(
            f"{name} row {row}: all rows must have the same length; {name} should have shape "
            f"{shape}."
        ) from error


def check_integers(values: Any, name: str, width: int | None = None) -> Indices:
    """Return a new array of integers of shape (m,) or (m, width)."""
    shape, tail = ("(m,)", ()) if width is None else (f"(m, {width})", (width,))
    array = convert_to_array(values, name, shape)
    # An empty list has no width and no integer type.
    if array.size == 0 and array.shape in ((0,), (0, *tail)):
        return np.empty((0, *tail), np.intp)
    if array.ndim == 0 or array.shape[1:] != tail:
        raise ValueError(f"{name} should have shape {shape}; got shape {array.shape}.")
    if array.dtype.kind not in "iu":
        # An object array keeps the type of each entry, so [[0, 1], [2, 2.5]] fails in row 1.
        array = np.asarray(values, dtype=object)
        is_bad = [not isinstance(v, Integral) or isinstance(v, bool) for v in array.flat]
        raise_if_any(np.reshape(is_bad, array.shape), array, name, "{!r} is not an integer.")
    limits = np.iinfo(np.intp)
    is_outside = (array < limits.min) | (array > limits.max)
    raise_if_any(is_outside.astype(bool), array, name, "{} is outside the range of integers.")
    return np.array(array, dtype=np.intp)


def check_indices(values: Any, name: str, n_samples: int, width: int | None = None) -> Indices:
    """Return integers after checking that they are valid row indices."""
    rows = check_integers(values, name, width)
    is_outside = (rows < 0) | (rows >= n_samples)
    raise_if_any(is_outside, rows, name, f"index {{}} is out of range for n_samples={n_samples}.")
    return rows


def check_tuples(values: Any, width: int, name: str, n_samples: int) -> Indices:
    """Return tuples of row indices after checking that no tuple contains a row twice."""
    rows = check_indices(values, name, n_samples, width)
    entries = np.sort(rows, axis=1)
    repeats = entries[:, 1:] == entries[:, :-1]
    raise_if_any(
        repeats, entries[:, 1:], name, "index {} occurs twice; all indices of a row must differ."
    )
    return rows


def find_repeat(values: Indices) -> tuple[int, int] | None:
    """Return the positions of two equal values, or None if all values differ."""
    order = np.argsort(values, kind="stable")
    equal = np.flatnonzero(values[order[1:]] == values[order[:-1]])
    return (int(order[equal[0]]), int(order[equal[0] + 1])) if equal.size else None


def find_shared_row(a: Indices, b: Indices) -> tuple[int, int] | None:
    """Find the first row of ``a`` that is also in ``b``. Return both row indices, or None."""
    in_a, in_b = _number_rows(a, b)
    shared = np.flatnonzero(np.isin(in_a, in_b))
    return (int(shared[0]), int(np.argmax(in_b == in_a[shared[0]]))) if shared.size else None


def mask_shared_rows(a: Indices, b: Indices) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return two masks: rows of ``a`` that are in ``b``, and rows of ``b`` that are in ``a``."""
    in_a, in_b = _number_rows(a, b)
    return np.isin(in_a, in_b), np.isin(in_b, in_a)


def _number_rows(a: Indices, b: Indices) -> tuple[Indices, Indices]:
    """Number the rows of both arrays so that equal rows have equal numbers."""
    # Sort the rows instead of encoding each row as one integer, which could overflow.
    rows = np.vstack([a, b])
    order = np.lexsort(rows.T)
    new = np.any(rows[order[1:]] != rows[order[:-1]], axis=1)
    number = np.empty(len(rows), np.intp)
    number[order[:1]] = 0
    number[order[1:]] = np.cumsum(new)
    return number[: len(a)], number[len(a) :]


def check_points(values: Any, name: str, width: int | None = None) -> NDArray[Any]:
    """Return the points as an array of shape (m, p) or (m, width, p). They must be finite."""
    shape, middle = ("(m, p)", ()) if width is None else (f"(m, {width}, p)", (width,))
    array = convert_to_array(values, name, shape)
    if array.ndim != 2 + len(middle) or array.shape[1:-1] != middle:
        raise ValueError(f"{name} should have shape {shape}; got shape {array.shape}.")
    try:
        points: NDArray[Any] = check_array(
            array, input_name=name, allow_nd=True, ensure_all_finite=False, ensure_min_samples=0
        )
    except OverflowError as error:
        raise ValueError(f"{name}: {error}.") from error
    raise_if_any(~np.isfinite(points), points, name, "{} is not finite.")
    return points


def find_distinct_points(values: Any, width: int, name: str) -> tuple[NDArray[Any], Indices]:
    """Return the sorted distinct points and, for each tuple, the indices of its points."""
    points = check_points(values, name, width)
    distinct, inverse = np.unique(points.reshape(-1, points.shape[2]), axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1, width)


def make_rows(
    distinct: NDArray[Any], codes: Indices, copies: Indices | None = None
) -> tuple[NDArray[Any], Indices]:
    """Store the points of all tuples in X. Return X and, for each tuple, the row indices in X.

    The rows of a tuple must differ, so a point that occurs twice in a tuple gets two rows of X.
    ``copies`` holds the number of the copy, from 0, for each entry of ``codes``. By default, copies
    are counted within each tuple. X is sorted like ``distinct``.
    """
    width = codes.shape[1]
    if copies is None:
        copies = np.zeros_like(codes)
        for place in range(1, width):
            copies[:, place] = np.sum(codes[:, :place] == codes[:, place : place + 1], axis=1)
    present, rows = np.unique(codes * width + copies, return_inverse=True)
    return distinct[present // width], rows.reshape(-1, width)


def renumber(rows: Indices, kept_rows: Indices, n_samples: int) -> Indices:
    """Keep the tuples whose rows are all in ``kept_rows``, and renumber their rows."""
    positions = np.full(n_samples, -1, np.intp)
    positions[kept_rows] = np.arange(kept_rows.size)
    renumbered = positions[rows]
    return renumbered[(renumbered >= 0).all(axis=1)]
