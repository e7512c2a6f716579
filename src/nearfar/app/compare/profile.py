"""What the columns of a table hold: a small distribution of each, what is missing, how it is used.

Where rows are not to be shown there are shapes and shares only: no value, level or range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.tables.columns import Columns
from nearfar.words import format_count

#: Columns that are described; of the others only how many there are is said.
MOST_COLUMNS = 60
#: Rows that a distribution is drawn from.
MOST_ROWS = 5000
_BINS = 16
_LEVELS = 6


def profile(rows: Any, columns: Columns, *, show_values: bool, seed: int = 0) -> dict[str, Any]:
    """The columns in use, those of numbers first.

    Parameters
    ----------
    rows : DataFrame or array
        What ``columns.select`` gave.
    columns : Columns
        The columns in use.
    show_values : bool
        Whether ranges and names of levels may be kept.
    seed : int
        Of the rows that distributions are drawn from.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.app.tables.columns import choose_columns
    >>> X = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, 5.0], [2.0, 6.0]])
    >>> found = profile(X, choose_columns(X), show_values=True)["columns"][1]
    >>> found["name"], found["missing"], found["range"]
    ('column 1', 0.25, [3.0, 6.0])
    """
    n = len(rows)
    some: Any = slice(None)
    if n > MOST_ROWS:
        some = np.sort(np.random.default_rng(seed).choice(n, MOST_ROWS, replace=False))
    framed = hasattr(rows, "iloc")
    found = []
    names = list(columns.names)
    for place, name in enumerate(names[:MOST_COLUMNS]):
        numeric = place < len(columns.numeric)
        values = rows[name].to_numpy() if framed else rows[:, columns.numeric[place]]
        known = ~_missing(values)
        missing = float(np.mean(~known))
        part = values[some]
        part = part[~_missing(part)]
        one: dict[str, Any] = {"name": str(name), "missing": missing}
        if numeric:
            one |= _of_numbers(part.astype(np.float64), show_values)
            one["treated"] = "filled with the median of the training rows" if missing else ""
        else:
            one |= _of_levels(part, show_values)
            # Of all rows: a rare level need not be among those drawn.
            one["n_levels"] = len(set(values[known].tolist()))
            levels = one["n_levels"] + bool(missing)
            one["treated"] = f"{format_count(levels, 'column')} of zeros and ones"
            one["treated"] += ", one of them for missing" if missing else ""
        found.append(one)
    return {
        "columns": found,
        "more": max(0, len(names) - MOST_COLUMNS),
        "n_rows": min(n, MOST_ROWS),
        "sampled": n > MOST_ROWS,
    }


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind == "f":
        return np.isnan(values)
    return np.array([value is None or value != value for value in values], dtype=bool)


def _of_numbers(values: NDArray[np.float64], show_values: bool) -> dict[str, Any]:
    """Counts between the smallest and the largest; the range where it may be shown."""
    if not len(values):
        return {"kind": "numbers", "counts": []}
    low, high = float(values.min()), float(values.max())
    different = len(np.unique(values[: 10 * _BINS])) if low < high else 1
    bins = max(1, min(_BINS, different))
    span = high - low
    # Places along the range; a histogram of its own would not bear a range that overflows.
    places = np.zeros(len(values)) if not np.isfinite(span) or span <= 0 else (values - low) / span
    counts = np.bincount(np.minimum((places * bins).astype(int), bins - 1), minlength=bins)
    found: dict[str, Any] = {"kind": "numbers", "counts": counts.tolist()}
    if show_values:
        found |= {"range": [low, high], "median": float(np.median(values))}
    return found


def _of_levels(values: NDArray[Any], show_values: bool) -> dict[str, Any]:
    """The largest levels, and what is left."""
    texts, counts = np.unique(values.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    first = order[:_LEVELS]
    return {
        "kind": "levels",
        "counts": counts[first].tolist(),
        "others": int(counts[order[_LEVELS:]].sum()),
        "levels": [texts[i][:40] for i in first] if show_values else None,
    }
