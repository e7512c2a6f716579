"""What colours a picture: a column, the labels, or the place in the data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.tables.inputs import is_missing
from nearfar.datasets.table import Table
from nearfar.datasets.tables import TARGET_NAMES
from nearfar.words import join_names, suggest_name

#: Categories that marks can tell apart, and numbers that are rather numbers than names.
MOST_CLASSES = 60
FEW_NUMBERS = 10
#: Steps of a scale of colours.
STEPS = 9
#: Numbers with more values than this are a scale.
FEW = 12
#: Classes with colours of their own.
CLASSES = 40

Found = tuple[Any, str | None, str | None]


# Of one embedding


def colors(
    values: Any, name: str, classes: Sequence[str] | None = None, *, few: int = FEW_NUMBERS
) -> dict[str, Any]:
    """What to colour by: classes, or numbers.

    Parameters
    ----------
    values : array-like of shape (n,)
        Text, booleans and few different whole numbers are classes, other numbers are numbers.
    name : str
        Of the values.
    classes : sequence of str, optional
        Names of the sorted values.
    few : int, default=10
        How many whole numbers are few.

    Returns
    -------
    dict
        "name", "kind" ("classes" or "numbers"), "classes", "codes" (-1 for unknown) or "values".

    Examples
    --------
    >>> colors(["b", "a", None, "b"], "kind")
    {'name': 'kind', 'kind': 'classes', 'classes': ['a', 'b'], 'codes': array([ 1,  0, -1,  1])}
    >>> colors([0.5, 2.0, float("nan")], "size")["values"]
    array([0.5, 2. , nan])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"The colour must have one value a row; got shape {array.shape}.")
    known = np.array([is_known(value) for value in array.tolist()], dtype=bool)
    if array.dtype.kind == "O":
        array = _numbers_if_all(array, known)
    if array.dtype.kind in "fiu":
        numbers = array.astype(np.float64)
        known &= np.isfinite(numbers)
        different = np.unique(numbers[known])
        whole = np.all(different == np.floor(different))
        if not whole or len(different) > few:
            return {"name": name, "kind": "numbers", "values": np.where(known, numbers, np.nan)}
        array = numbers.astype(np.int64, copy=False) if known.all() else numbers
    texts = np.array([_text(value) for value in array.tolist()], dtype=object)
    present = list(dict.fromkeys(texts[known].tolist()))
    present.sort(key=_natural)
    if len(present) > MOST_CLASSES:
        raise ValueError(
            f"Colour by '{name}': it has {len(present):,} different texts, but marks can tell "
            f"{MOST_CLASSES} apart. Take a column of numbers or of fewer categories."
        )
    place = {text: code for code, text in enumerate(present)}
    codes = np.array([place[t] if ok else -1 for t, ok in zip(texts, known, strict=True)])
    names = present
    if classes is not None and len(classes) == len(present):
        names = [str(given) for given in classes]
    return {"name": name, "kind": "classes", "classes": names, "codes": codes}


def check_colors(color: dict[str, Any] | None, n: int, what: str) -> None:
    """Refuse a colour that has not one value for each of n, which are ``what``."""
    if color is not None:
        size = len(color["codes"] if color["kind"] == "classes" else color["values"])
        if size != n:
            raise ValueError(f"color has {size} values for {what}.")


def colors_of(color: dict[str, Any], drawn: NDArray[np.intp]) -> dict[str, Any]:
    """The colours of some rows."""
    return {
        key: value[drawn] if isinstance(value, np.ndarray) else value
        for key, value in color.items()
    }


def column_names(table: Table) -> list[str] | None:
    """Names of the columns of a table, where they have any."""
    if hasattr(table.X, "iloc"):
        return [str(name) for name in table.X.columns]
    return None if table.feature_names is None else list(table.feature_names)


def column_at(table: Table, place: int) -> NDArray[Any]:
    """The values of a column."""
    return np.asarray(table.X.iloc[:, place] if hasattr(table.X, "iloc") else table.X[:, place])


def is_known(value: Any) -> bool:
    """Whether a cell holds a value."""
    try:
        return value is not None and value != "" and bool(value == value)
    except (TypeError, ValueError):  # pandas.NA
        return False


def _numbers_if_all(array: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
    """Floats where every known value is a number."""
    plain = [v for v in array[known].tolist() if not isinstance(v, int | float)]
    booleans = any(isinstance(v, bool) for v in array[known].tolist())
    if plain or booleans or not known.any():
        return array
    return np.array([float(v) if ok else np.nan for v, ok in zip(array, known, strict=True)])


def _text(value: Any) -> str:
    if isinstance(value, float) and value == int(value if value == value else 0):
        return str(int(value))
    return str(value)[:60]


def _natural(text: str) -> tuple[Any, ...]:
    """Numbers in texts sort as numbers."""
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p.lower()) for p in parts if p)


# Of embeddings side by side


def color_column(table: Table, color: Any) -> Found:
    """Values, their name, and the column to leave out of the features."""
    if color is None:
        return (table.y, table.target or "labels", None) if table.y is not None else (None,) * 3
    n = len(table.X)
    if isinstance(color, str):
        names = column_names(table) or []
        if color not in names:
            if color in table.unused:
                return table.unused[color], color, None
            if color in (table.target, "y", "target", "labels") and table.y is not None:
                return table.y, color, None
            raise ValueError(
                f"color={color!r}: there is no such column.{suggest_name(color, names)} "
                f"It has {join_names([*names, *table.unused]) or 'no names'}."
            )
        return column_at(table, names.index(color)), color, color
    values = np.asarray(color)
    if values.ndim != 1 or len(values) != n:
        raise ValueError(f"color must have a value for each of {n} rows; got shape {values.shape}.")
    return values, str(getattr(color, "name", None) or "color"), None


def set_aside(table: Table, keep: list[Any], drop: list[Any], messages: list[str]) -> Found:
    """A column that is named like labels: it colours, and is no feature unless it is kept."""
    if table.y is not None:
        messages.append("The labels colour the pictures and are not used otherwise.")
        return color_column(table, None)
    if not hasattr(table.X, "iloc"):
        return None, None, None
    asked = {str(name) for name in (*keep, *drop)}
    named = [n for n in column_names(table) or () if n.lower() in TARGET_NAMES and n not in asked]
    if len(named) != 1:
        return None, None, None
    messages.append(
        f"Column '{named[0]}' is taken for labels: it colours the pictures and is no feature "
        f"(--keep '{named[0]}' makes it one)."
    )
    return color_column(table, named[0])


def step_colors(
    values: Any, name: str | None, rows: list[int], inputs: NDArray[Any], *, show_values: bool
) -> dict[str, Any]:
    """A code for each drawn row, and a legend.

    Without values, rows are coloured by their place along the first principal axis of the data, so
    that pictures can be held against each other.
    """
    if values is None:
        sample = inputs[:: max(1, len(inputs) // 5000)]
        center, spread = sample.mean(axis=0), sample.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        axis = np.linalg.svd((sample - center) / spread, full_matrices=False)[2][0]
        axis = axis * np.sign(axis[np.abs(axis).argmax()])
        codes, _ = _steps((inputs[rows] - center) / spread @ axis)
        return {"name": None, "kind": "scale", "codes": codes, "names": [], "ends": None}
    shown = np.asarray(values)[rows]
    numbers = _as_numbers(shown)
    if numbers is not None and len(np.unique(numbers[np.isfinite(numbers)])) > FEW:
        codes, ends = _steps(numbers)
        ends = ends if show_values else None
        return {"name": name, "kind": "scale", "codes": codes, "names": [], "ends": ends}
    texts = np.array([_class_text(value) for value in shown.tolist()], dtype=object)
    every, counts = np.unique(texts.astype(str), return_counts=True)
    if len(every) > CLASSES:  # the commonest; the others have one colour
        kept = set(every[np.argsort(-counts, kind="stable")[: CLASSES - 1]].tolist())
        texts = np.array([text if text in kept else "other" for text in texts.tolist()])
        every = np.unique(texts.astype(str))
    codes = np.searchsorted(every, texts.astype(str)).tolist()
    names = [str(text) if show_values else f"{i + 1}" for i, text in enumerate(every)]
    return {"name": name, "kind": "classes", "codes": codes, "names": names, "ends": None}


def _steps(values: NDArray[np.float64]) -> tuple[list[int | None], list[float] | None]:
    """Steps of a scale from the 2nd to the 98th percentile; None for what is missing."""
    finite = np.isfinite(values)
    if not finite.any():
        return [None] * len(values), None
    low, high = np.quantile(values[finite], [0.02, 0.98])
    shares = np.where(finite, (values - low) / ((high - low) or 1.0), 0.0)
    codes = np.clip((STEPS * shares).astype(int), 0, STEPS - 1)
    marked = [int(code) if known else None for code, known in zip(codes, finite, strict=True)]
    return marked, [float(low), float(high)]


def _as_numbers(values: NDArray[Any]) -> NDArray[np.float64] | None:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _class_text(value: Any) -> str:
    if is_missing(value):
        return "(missing)"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:40]
