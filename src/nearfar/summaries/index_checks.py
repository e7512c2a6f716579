"""Checks of row numbers and points that users give, and changes between the two."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from nearfar.arrays import Indices


def check_signs(values: Any, n_pairs: int, name: str) -> NDArray[np.bool_]:
    """Which pairs are similar, of +1 for a similar pair and -1 for a dissimilar one."""
    signs = np.asarray(values)
    if signs.shape != (n_pairs,):
        raise ValueError(
            f"{name} should have shape ({n_pairs},), one entry for each pair; "
            f"got shape {signs.shape}."
        )
    alike = signs == 1
    refuse(
        ~alike & (signs != -1),
        signs,
        name,
        f"{{}} is neither +1 nor -1, for alike and different; of 0 and 1 make 2 * {name} - 1.",
    )
    return np.asarray(alike, bool)


def refuse(bad: NDArray[np.bool_], values: NDArray[Any], name: str, problem: str) -> None:
    """Raise, if there is a bad value, with the row and the value of the first."""
    if bad.any():
        first = np.unravel_index(np.argmax(bad), bad.shape)
        raise ValueError(f"{name} row {first[0]}: {problem.format(values[first])}")


def as_array(values: Any, name: str, shape: str) -> NDArray[Any]:
    """The values as an array."""
    try:
        return np.asarray(values)
    except ValueError as error:
        shapes = [np.asarray(row, dtype=object).shape for row in values]
        row = next((row for row, other in enumerate(shapes) if other != shapes[0]), 0)
        raise ValueError(
            f"{name} row {row}: irregular; {name} should have shape {shape}."
        ) from error


def check_integers(values: Any, name: str, width: int | None = None) -> Indices:
    """A new array of integers of shape (m,) or (m, width)."""
    shape, tail = ("(m,)", ()) if width is None else (f"(m, {width})", (width,))
    array = as_array(values, name, shape)
    if array.size == 0 and array.shape in ((0,), (0, *tail)):  # [] has no width and no integers
        return np.empty((0, *tail), np.intp)
    if array.ndim == 0 or array.shape[1:] != tail:
        raise ValueError(f"{name} should have shape {shape}; got shape {array.shape}.")
    if array.dtype.kind not in "iu":
        # As objects the entries keep their own types: [[0, 1], [2, 2.5]] fails in row 1.
        array = np.asarray(values, dtype=object)
        bad = [not isinstance(v, Integral) or isinstance(v, bool) for v in array.flat]
        refuse(np.reshape(bad, array.shape), array, name, "{!r} is not an integer.")
    limits = np.iinfo(np.intp)
    outside = (array < limits.min) | (array > limits.max)
    refuse(outside.astype(bool), array, name, "{} does not fit a machine integer.")
    return np.array(array, dtype=np.intp)


def check_indices(values: Any, name: str, n_samples: int, width: int | None = None) -> Indices:
    """Integers that are indices of rows."""
    rows = check_integers(values, name, width)
    out = (rows < 0) | (rows >= n_samples)
    refuse(out, rows, name, f"index {{}} is out of range for n_samples={n_samples}.")
    return rows


def check_tuples(values: Any, width: int, name: str, n_samples: int) -> Indices:
    """Tuples of different rows."""
    rows = check_indices(values, name, n_samples, width)
    entries = np.sort(rows, axis=1)
    repeats = entries[:, 1:] == entries[:, :-1]
    refuse(repeats, entries[:, 1:], name, "index {} occurs twice; its points must differ.")
    return rows


def first_repeat(values: Indices) -> tuple[int, int] | None:
    """The places of the first two equal values."""
    order = np.argsort(values, kind="stable")
    equal = np.flatnonzero(values[order[1:]] == values[order[:-1]])
    return (int(order[equal[0]]), int(order[equal[0] + 1])) if equal.size else None


def first_shared(a: Indices, b: Indices) -> tuple[int, int] | None:
    """The first row of ``a`` that is also a row of ``b``, and its place in ``b``."""
    in_a, in_b = _row_numbers(a, b)
    shared = np.flatnonzero(np.isin(in_a, in_b))
    return (int(shared[0]), int(np.argmax(in_b == in_a[shared[0]]))) if shared.size else None


def rows_in_both(a: Indices, b: Indices) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of ``a`` are rows of ``b`` too, and which of ``b`` are of ``a``."""
    in_a, in_b = _row_numbers(a, b)
    return np.isin(in_a, in_b), np.isin(in_b, in_a)


def _row_numbers(a: Indices, b: Indices) -> tuple[Indices, Indices]:
    """A number for each row of both, the same for equal rows."""
    # A product of indices could overflow.
    rows = np.vstack([a, b])
    order = np.lexsort(rows.T)
    new = np.any(rows[order[1:]] != rows[order[:-1]], axis=1)
    number = np.empty(len(rows), np.intp)
    number[order[:1]] = 0
    number[order[1:]] = np.cumsum(new)
    return number[: len(a)], number[len(a) :]


# Changing between points and indices, and between all rows and some.


def finite_points(values: Any, name: str, width: int | None = None) -> NDArray[Any]:
    """Numbers of shape (m, p) or (m, width, p)."""
    shape, middle = ("(m, p)", ()) if width is None else (f"(m, {width}, p)", (width,))
    array = as_array(values, name, shape)
    if array.ndim != 2 + len(middle) or array.shape[1:-1] != middle:
        raise ValueError(f"{name} should have shape {shape}; got shape {array.shape}.")
    points: NDArray[Any] = check_array(
        array, input_name=name, allow_nd=True, ensure_all_finite=False, ensure_min_samples=0
    )
    refuse(~np.isfinite(points), points, name, "{} is not finite.")
    return points


def distinct_points(values: Any, width: int, name: str) -> tuple[NDArray[Any], Indices]:
    """The distinct points of tuples of points, sorted, and the tuples as indices of them."""
    points = finite_points(values, name, width)
    distinct, inverse = np.unique(points.reshape(-1, points.shape[2]), axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1, width)


def rows_of_points(
    distinct: NDArray[Any], codes: Indices, copies: Indices | None = None
) -> tuple[NDArray[Any], Indices]:
    """Rows X for tuples of points, and the tuples as indices of X; points stay sorted.

    Real data repeat rows, but the rows of a tuple must differ: a point that a tuple holds twice
    gets two rows. ``copies`` says which row of its point each entry is, from 0; else it is counted
    within each tuple.
    """
    width = codes.shape[1]
    if copies is None:
        copies = np.zeros_like(codes)
        for place in range(1, width):
            copies[:, place] = np.sum(codes[:, :place] == codes[:, place : place + 1], axis=1)
    present, rows = np.unique(codes * width + copies, return_inverse=True)
    return distinct[present // width], rows.reshape(-1, width)


def renumber(rows: Indices, kept: Indices, n_samples: int) -> Indices:
    """The tuples all of whose rows are kept, as places in ``kept``."""
    place = np.full(n_samples, -1, np.intp)
    place[kept] = np.arange(kept.size)
    renumbered = place[rows]
    return renumbered[(renumbered >= 0).all(axis=1)]
