"""Checks for the groups, IDs and times of a table's rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.table import Table, find_missing, tidy_labels
from nearfar.extras import import_optional
from nearfar.words import format_count


def check_groups(table: Table, row_numbers: NDArray[np.intp]) -> None:
    """Check that every row has a group, and add a message about the groups.

    `row_numbers` contains the number of each row in the file, for the error message.
    """
    if table.groups is None:
        return
    groups, missing = table.groups, find_missing(table.groups)
    if missing.any():
        raise ValueError(
            f"{table.name}: the groups '{table.groups_name}' are missing in "
            f"{format_count(int(missing.sum()), 'row')} (first: row "
            f"{row_numbers[np.argmax(missing)]}). Every row needs a group."
        )
    table.groups = tidy_labels(groups) if groups.dtype.kind != "O" else groups.astype(str)
    n = len(np.unique(table.groups))
    table.messages.append(f"Groups: '{table.groups_name}', {n} groups, not used as a feature.")


def check_ids(table: Table, row_numbers: NDArray[np.intp]) -> None:
    """Check that every row has a unique ID, and add a message about the IDs."""
    if table.ids is None:
        return
    missing = find_missing(table.ids)
    if missing.any():
        raise ValueError(
            f"{table.name}: the ID '{table.id_name}' is missing in "
            f"{format_count(int(missing.sum()), 'row')} (first: row "
            f"{row_numbers[np.argmax(missing)]}). Every row needs a unique ID."
        )
    table.ids = tidy_labels(table.ids)
    if table.ids.dtype.kind == "O":
        table.ids = table.ids.astype(str)
    values, first, counts = np.unique(table.ids, return_index=True, return_counts=True)
    if len(values) < len(table.ids):
        repeated = int(np.argmax(counts))
        second = np.flatnonzero(table.ids == values[repeated])[1]
        raise ValueError(
            f"{table.name}: the ID '{table.id_name}' must be unique, but '{values[repeated]}' "
            f"occurs in rows {row_numbers[first[repeated]]} and {row_numbers[second]}."
        )
    table.messages.append(f"ID: '{table.id_name}', not used as a feature.")


def parse_times(
    values: NDArray[Any], description: str, row_numbers: NDArray[np.intp], messages: list[str]
) -> NDArray[Any]:
    """Convert times to numbers. Dates become microseconds since 1970."""
    missing = find_missing(values)
    if missing.any():
        raise ValueError(
            f"{description} is missing in {format_count(int(missing.sum()), 'row')} (first: row "
            f"{row_numbers[np.argmax(missing)]}). Every row needs a time."
        )
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]").astype(np.int64)
    if values.dtype.kind == "m":
        return values.astype("timedelta64[us]").astype(np.int64)
    if values.dtype.kind == "f":
        numbers, is_bad = values.astype(np.float64), ~np.isfinite(values)
    else:
        numbers, is_bad = _parse_dates(values, messages)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise ValueError(
            f"{description} is not a number or date in row {row_numbers[row]}: "
            f"{str(values[row])!r}. Use dates such as 2024-03-31 or 2024-03-31 17:00."
        )
    return numbers


def _parse_dates(
    values: NDArray[Any], messages: list[str]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Convert strings or dates to numbers. Also return a mask of values that cannot be parsed.

    Dates become microseconds since 1970.
    """
    pd = import_optional("pandas", "app")
    column = pd.Series([str(value) for value in values])
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    if np.isfinite(numbers).all():
        return numbers, np.zeros(len(numbers), bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns about date formats that it cannot infer.
        dates = pd.to_datetime(column, errors="coerce", utc=True)
        day_first = pd.to_datetime(column, errors="coerce", utc=True, dayfirst=True)
        if not dates.isna().any() and not day_first.isna().any() and not dates.equals(day_first):
            example = column[(dates != day_first).idxmax()]
            messages.append(f"Ambiguous dates such as '{example}' are read as month first.")
        if dates.isna().any():
            mixed = pd.to_datetime(column, errors="coerce", utc=True, format="mixed")
            dates = min((dates, day_first, mixed), key=lambda parsed: int(parsed.isna().sum()))
    is_bad = dates.isna().to_numpy()
    return dates.dt.tz_localize(None).to_numpy("datetime64[us]").astype(np.int64), is_bad
