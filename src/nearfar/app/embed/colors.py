"""What colours a picture: classes, or numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Categories that marks can tell apart, and numbers that are rather numbers than names.
MOST_CLASSES = 60
FEW_NUMBERS = 10


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
