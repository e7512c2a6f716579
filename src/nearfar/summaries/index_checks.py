"""Checks of row numbers and points that users give, and changes between the two."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from nearfar.arrays import Indices


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
    refuse(*_repeats(rows), name, "index {} occurs twice; its points must differ.")
    return rows


def _repeats(rows: Indices) -> tuple[NDArray[np.bool_], Indices]:
    """Where the sorted entries of a row repeat the one before, and these entries."""
    entries = np.sort(rows, axis=1)
    return entries[:, 1:] == entries[:, :-1], entries[:, 1:]


def refuse_opposite_triplets(rows: Indices, name: str) -> None:
    """Raise if a triplet says the opposite of another."""
    clash = first_shared(rows, rows[:, [0, 2, 1]])
    if clash is not None:
        raise ValueError(
            f"{name} rows {clash[0]} and {clash[1]} contradict each other: they have the same "
            "anchor, and near and far exchanged."
        )


def refuse_empty(sizes: list[int], name: str) -> None:
    """Raise if a chunklet has no rows."""
    if 0 in sizes:
        raise ValueError(f"{name}[{sizes.index(0)}] is empty; a chunklet needs at least one row.")


def first_repeat(values: Indices) -> tuple[int, int] | None:
    """The places of the first two equal values."""
    order = np.argsort(values, kind="stable")
    equal = np.flatnonzero(values[order[1:]] == values[order[:-1]])
    return (int(order[equal[0]]), int(order[equal[0] + 1])) if equal.size else None


def first_shared(a: Indices, b: Indices) -> tuple[int, int] | None:
    """The first row of ``a`` that is also a row of ``b``, and its place in ``b``."""
    # Equal rows get equal numbers; a product of indices could overflow instead.
    rows = np.vstack([a, b])
    order = np.lexsort(rows.T)
    new = np.any(rows[order[1:]] != rows[order[:-1]], axis=1)
    number = np.empty(len(rows), np.intp)
    number[order[:1]] = 0
    number[order[1:]] = np.cumsum(new)
    in_a, in_b = number[: len(a)], number[len(a) :]
    shared = np.flatnonzero(np.isin(in_a, in_b))
    return (int(shared[0]), int(np.argmax(in_b == in_a[shared[0]]))) if shared.size else None


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
    """The distinct points of tuples of points, and the tuples as indices of them."""
    points = finite_points(values, name, width)
    X, inverse = np.unique(points.reshape(-1, points.shape[2]), axis=0, return_inverse=True)
    rows = inverse.reshape(-1, width)
    refuse(*_repeats(rows), name, "two of its points are equal.")
    return X, rows


def renumber(rows: Indices, kept: Indices, n_samples: int) -> Indices:
    """The tuples all of whose rows are kept, as places in ``kept``."""
    place = np.full(n_samples, -1, np.intp)
    place[kept] = np.arange(kept.size)
    renumbered = place[rows]
    return renumbered[(renumbered >= 0).all(axis=1)]
