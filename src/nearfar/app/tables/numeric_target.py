"""A target that is a number: what it must hold, and what would mislead."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeRegressor

from nearfar.app.tables.columns import MIN_ROWS_FOR_ID, Columns, is_date
from nearfar.app.tables.traps import Trap, coded_columns, scaled_column
from nearfar.app.tables.written_numbers import numbers_of, writing_of
from nearfar.arrays import Vector
from nearfar.extras import import_optional
from nearfar.labels import is_na
from nearfar.words import format_number, format_percent

#: Whole numbers of so few different values may name classes.
FEW_VALUES = 10
#: Rows, as a share, that may not carry more of the variance than the other share.
_FEW_ROWS, _MOST_VARIANCE = 0.01, 0.5
#: Share of the variance that a single column predicts only if it is a copy, or nearly.
_TELLING = 0.99
_TELLING_ROWS = 2000
_TELLING_TRIED = 30


def check_numbers(y: Any, name: str = "target") -> tuple[Vector, list[str]]:
    """The values of a target, and what is to be said of how they were read.

    Refused are: what is missing or infinite; text that is no number, dates, and true and false; and
    one value in all rows. Text that people write for numbers, such as "$1,200", is read.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        The target.
    name : str, default="target"
        What to call it in errors.

    Returns
    -------
    values : ndarray of shape (n_samples,)
    notes : list of str

    Examples
    --------
    >>> check_numbers([1, 2.5, 4])[0].tolist()
    [1.0, 2.5, 4.0]
    >>> check_numbers(["$1,200", "$95.50"], "price")
    (array([1200. ,   95.5]), ["The target 'price' is read as numbers: '$1,200' as 1200."])
    """
    cells = np.asarray(y)
    if cells.ndim != 1:
        raise ValueError(f"The target '{name}' must be one number a row; got shape {cells.shape}.")
    first = cells.flat[0] if cells.size else None
    dates = hasattr(first, "isoformat") or (isinstance(first, str) and is_date(first))
    if cells.dtype.kind in "mM" or dates:
        raise ValueError(
            f"The target '{name}' holds dates, but numbers are needed: count the days, or seconds, "
            "since one of them."
        )
    if cells.dtype.kind == "b" or isinstance(first, bool | np.bool_):
        raise ValueError(_classes(name, "true and false"))
    notes: list[str] = []
    if cells.dtype.kind in "iuf":
        values = cells.astype(np.float64)
    else:
        values, notes = _read(cells.astype(object), name)
    for wrong, words in ((np.isnan(values), "missing"), (np.isinf(values), "infinite")):
        if wrong.any():
            row = int(np.argmax(wrong))
            many = f"{wrong.sum():,} such row{'s' * bool(wrong.sum() > 1)}"
            raise ValueError(f"The target '{name}' is {words} in row {row}; leave {many} out.")
    if values.size and values.min() == values.max():
        only = format_number(values[0], 6)
        raise ValueError(
            f"The target '{name}' is {only} in every row: there is nothing to predict."
        )
    return values, notes


def _read(cells: NDArray[Any], name: str) -> tuple[Vector, list[str]]:
    """Numbers from objects, or from their text."""
    if all(isinstance(cell, Real | Decimal) or is_na(cell) for cell in cells):
        return np.array([np.nan if is_na(cell) else float(cell) for cell in cells]), []
    filled = [cell for cell in cells if not is_na(cell)]
    writing = writing_of(filled)
    if writing is None:
        row = next(i for i, cell in enumerate(cells) if not is_na(cell) and not _is_plain(cell))
        raise ValueError(_classes(name, f"text, {str(cells[row])[:60]!r} in row {row}"))
    if writing.decimal is None:
        raise ValueError(f"The target '{name}': {writing.doubt}.")
    column = import_optional("pandas", "app").Series(cells, dtype=object)
    values, odd = numbers_of(column, writing.decimal)
    if odd.any():
        row = int(np.argmax(odd))
        raise ValueError(
            f"The target '{name}' should hold numbers; row {row} has {str(cells[row])[:60]!r}."
        )
    if _is_plain(writing.example):
        return values, []
    return values, [f"The target '{name}' is read as numbers: {writing.read}."]


def _is_plain(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _classes(name: str, found: str) -> str:
    return (
        f"The target '{name}' holds {found}, but regression needs numbers. If these are classes, "
        "leave the task out (--task regression, or task= in Python)."
    )


# What would mislead


def few_values(values: Vector, name: str) -> list[Trap]:
    """Whole numbers of few different values, which may name classes.

    >>> few_values(np.arange(60.0) % 3, "kind")[0].text[:60]
    "The target 'kind' has only 3 different values, all of them w"
    >>> few_values(np.arange(60.0) % 3 + 0.5, "kind")
    []
    """
    found = np.unique(values)
    if len(found) > FEW_VALUES or np.any(found != np.floor(found)):
        return []
    text = (
        f"The target '{name}' has only {len(found)} different values, all of them whole numbers: "
        "if they name classes, leave the task out (--task regression, or task= in Python)."
    )
    return [Trap("few values", text)]


def far_values(values: Vector, name: str) -> list[Trap]:
    """Few rows that carry most of the variance, and so decide about every error.

    >>> far_values(np.append(np.arange(199.0), 5000.0), "price")[0].text[:19]
    '2 of 200 rows carry'
    >>> far_values(np.arange(200.0), "price")
    []
    """
    most = max(1, int(_FEW_ROWS * len(values)))
    size = float(np.abs(values).max()) or 1.0
    squares = np.sort(((values - values.mean()) / size) ** 2)[::-1]
    share = float(squares[:most].sum() / squares.sum())
    if len(values) < MIN_ROWS_FOR_ID or share <= _MOST_VARIANCE:
        return []
    one = most == 1
    text = (
        f"{most:,} of {len(values):,} rows {'carries' if one else 'carry'} {format_percent(share)} "
        "of the "
        f"variance of '{name}': {'it decides' if one else 'they decide'} about every error here. "
        f"Look at {'it' if one else 'them'} first."
    )
    if (values > 0).all():
        text += " The logarithm of the target may be what to predict."
    return [Trap("far values", text)]


def telling_numbers(X: Any, columns: Columns, values: Vector, seed: int = 0) -> list[Trap]:
    """Columns that alone predict the target, like a copy of it.

    A decision tree on the single column, cross-validated on at most 2,000 rows, must explain 99%
    of the variance. Only columns in whose order the target changes little are tried.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The rows.
    columns : Columns
        The columns in use.
    values : ndarray of shape (n_samples,)
        The target.
    seed : int, default=0
        For the rows drawn and the folds.

    Returns
    -------
    list of Trap
        One warning, or none.

    Examples
    --------
    >>> from nearfar.app.tables.columns import choose_columns
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=400)
    >>> X = np.column_stack([rng.normal(size=400), 3 * y])
    >>> [trap.text[:49] for trap in telling_numbers(X, choose_columns(X), y)]
    ["Column 'column 1' (99.8%) alone predicts the targ"]
    """
    rows = np.random.default_rng(seed).permutation(len(values))[:_TELLING_ROWS]
    if len(rows) < MIN_ROWS_FOR_ID:
        return []
    table, target = coded_columns(X, columns, rows), values[rows] / np.abs(values).max()
    variance = float(target.var())
    if variance == 0:
        return []
    ordered = target[np.argsort(table, axis=0, kind="stable")]
    # Of rows in no order the mean squared step is twice the variance.
    steps = np.mean(np.diff(ordered, axis=0) ** 2, axis=0) / (2 * variance)
    likely = np.flatnonzero(steps <= 0.1)
    likely = likely[np.argsort(steps[likely], kind="stable")][:_TELLING_TRIED]
    folds = KFold(5, shuffle=True, random_state=seed)
    found = []
    for column in likely:
        feature = scaled_column(table[:, column])[:, None]
        tree = DecisionTreeRegressor(random_state=seed)
        said = cross_val_predict(tree, feature, target, cv=folds)
        explained = 1.0 - float(np.mean((said - target) ** 2)) / variance
        if explained >= _TELLING:
            found.append((columns.names[column], explained))
    if not found:
        return []
    named = ", ".join(f"'{name}' ({100 * share:.3g}%)" for name, share in found[:5])
    named += f" and {len(found) - 5} more" if len(found) > 5 else ""
    start = f"Column {named} alone predicts" if len(found) == 1 else f"Each of {named} predicts"
    text = (
        f"{start} the target (share of its variance that a decision tree on nothing else explains, "
        "cross-validated). What is a copy of the target, or not known for new rows, should be "
        f"left out: --drop '{found[0][0]}'."
    )
    return [Trap("telling column", text)]
