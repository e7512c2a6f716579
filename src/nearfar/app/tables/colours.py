"""What colours the pictures of embeddings: a column, the labels, or the place in the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.tables.inputs import is_missing
from nearfar.datasets.tables import TARGET_NAMES, Table
from nearfar.words import did_you_mean, listed

#: Steps of a scale of colours.
STEPS = 9
#: Numbers with more values than this are a scale.
FEW = 12
#: Classes with colours of their own.
CLASSES = 40

Found = tuple[Any, str | None, str | None]


def colour_column(table: Table, color: Any) -> Found:
    """Values, their name, and the column to leave out of the features."""
    if color is None:
        return (table.y, table.target or "labels", None) if table.y is not None else (None,) * 3
    n = len(table.X)
    if isinstance(color, str):
        if hasattr(table.X, "iloc"):
            names = [str(name) for name in table.X.columns]
        else:
            names = list(table.feature_names or [])
        if color not in names:
            if color in table.others:
                return table.others[color], color, None
            if color in (table.target, "y", "target", "labels") and table.y is not None:
                return table.y, color, None
            raise ValueError(
                f"color={color!r}: there is no such column.{did_you_mean(color, names)} "
                f"It has {listed([*names, *table.others]) or 'no names'}."
            )
        place = names.index(color)
        column = table.X.iloc[:, place] if hasattr(table.X, "iloc") else table.X[:, place]
        return np.asarray(column), color, color
    values = np.asarray(color)
    if values.ndim != 1 or len(values) != n:
        raise ValueError(f"color must have a value for each of {n} rows; got shape {values.shape}.")
    return values, str(getattr(color, "name", None) or "color"), None


def set_aside(table: Table, keep: list[Any], drop: list[Any], messages: list[str]) -> Found:
    """A column that is named like labels: it colours, and is no feature unless it is kept."""
    if table.y is not None:
        messages.append("The labels colour the pictures and are not used otherwise.")
        return colour_column(table, None)
    if not hasattr(table.X, "iloc"):
        return None, None, None
    named = [str(name) for name in table.X.columns if str(name).lower() in TARGET_NAMES]
    named = [name for name in named if name not in [str(c) for c in (*keep, *drop)]]
    if len(named) != 1:
        return None, None, None
    messages.append(
        f"Column '{named[0]}' is taken for labels: it colours the pictures and is no feature "
        f"(--keep '{named[0]}' makes it one)."
    )
    return colour_column(table, named[0])


def colours(
    values: Any, name: str | None, rows: list[int], inputs: NDArray[Any], *, show_values: bool
) -> dict[str, Any]:
    """A code for each drawn row, and a legend.

    Without values, rows are coloured by their place along the first principal axis of the data, so
    that pictures can be held against each other.
    """
    if values is None:
        sample = inputs[:: max(1, len(inputs) // 5000)]
        centre, spread = sample.mean(axis=0), sample.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        axis = np.linalg.svd((sample - centre) / spread, full_matrices=False)[2][0]
        axis = axis * np.sign(axis[np.abs(axis).argmax()])
        codes, _ = _steps((inputs[rows] - centre) / spread @ axis)
        return {"name": None, "kind": "scale", "codes": codes, "names": [], "ends": None}
    shown = np.asarray(values)[rows]
    numbers = _numbers(shown)
    if numbers is not None and len(np.unique(numbers[np.isfinite(numbers)])) > FEW:
        codes, ends = _steps(numbers)
        ends = ends if show_values else None
        return {"name": name, "kind": "scale", "codes": codes, "names": [], "ends": ends}
    texts = np.array([_text(value) for value in shown.tolist()], dtype=object)
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


def _numbers(values: NDArray[Any]) -> NDArray[np.float64] | None:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    if is_missing(value):
        return "(missing)"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:40]
