"""What goes with the rows of a table: groups, ids and times, checked and said."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.table import Table, missing_among, tidy_labels
from nearfar.extras import require
from nearfar.words import count


def take_groups(table: Table, kept: NDArray[np.intp]) -> None:
    """Refuse groups with a gap, and say what they are; ``kept`` are the rows' numbers."""
    if table.groups is None:
        return
    groups, missing = table.groups, missing_among(table.groups)
    if missing.any():
        raise ValueError(
            f"{table.name}: the groups '{table.groups_name}' are missing in "
            f"{count(int(missing.sum()), 'row')} (first: row {kept[np.argmax(missing)]}); every "
            "row needs its group."
        )
    table.groups = tidy_labels(groups) if groups.dtype.kind != "O" else groups.astype(str)
    n = len(np.unique(table.groups))
    table.messages.append(f"Groups: '{table.groups_name}', {n} groups; not a feature.")


def take_ids(table: Table, kept: NDArray[np.intp]) -> None:
    """Refuse ids with a gap or two alike, and say what they are."""
    if table.ids is None:
        return
    missing = missing_among(table.ids)
    if missing.any():
        raise ValueError(
            f"{table.name}: the id '{table.id_name}' is missing in "
            f"{count(int(missing.sum()), 'row')} (first: row {kept[np.argmax(missing)]}); every "
            "row needs its own."
        )
    table.ids = tidy_labels(table.ids)
    if table.ids.dtype.kind == "O":
        table.ids = table.ids.astype(str)
    values, first, counts = np.unique(table.ids, return_index=True, return_counts=True)
    if len(values) < len(table.ids):
        again = int(np.argmax(counts))
        second = np.flatnonzero(table.ids == values[again])[1]
        raise ValueError(
            f"{table.name}: the id '{table.id_name}' must be different in every row; "
            f"'{values[again]}' stands in rows {kept[first[again]]} and {kept[second]}."
        )
    table.messages.append(f"Id: '{table.id_name}'; not a feature.")


def as_time(
    values: NDArray[Any], where: str, kept: NDArray[np.intp], messages: list[str]
) -> NDArray[Any]:
    """Numbers that sort as the times do."""
    missing = missing_among(values)
    if missing.any():
        raise ValueError(
            f"{where} is missing in {count(int(missing.sum()), 'row')} (first: row "
            f"{kept[np.argmax(missing)]}); every row needs its time."
        )
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]").astype(np.int64)
    if values.dtype.kind == "m":
        return values.astype("timedelta64[us]").astype(np.int64)
    if values.dtype.kind == "f":
        numbers, bad = values.astype(np.float64), ~np.isfinite(values)
    else:
        numbers, bad = _parse_dates(values, messages)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{where} has no number or date in row {kept[row]}: {str(values[row])!r}. "
            "Dates such as 2024-03-31 or 2024-03-31 17:00 do."
        )
    return numbers


def _parse_dates(
    values: NDArray[Any], messages: list[str]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Microseconds of texts or date objects, and where there are none."""
    pd = require("pandas", "app")
    column = pd.Series([str(value) for value in values])
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    if np.isfinite(numbers).all():
        return numbers, np.zeros(len(numbers), bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about formats it could not infer
        dates = pd.to_datetime(column, errors="coerce", utc=True)
        by_day = pd.to_datetime(column, errors="coerce", utc=True, dayfirst=True)
        if not dates.isna().any() and not by_day.isna().any() and not dates.equals(by_day):
            example = column[(dates != by_day).idxmax()]
            messages.append(f"Dates such as '{example}' are read month first.")
        if dates.isna().any():
            mixed = pd.to_datetime(column, errors="coerce", utc=True, format="mixed")
            dates = min((dates, by_day, mixed), key=lambda tried: int(tried.isna().sum()))
    bad = dates.isna().to_numpy()
    return dates.dt.tz_localize(None).to_numpy("datetime64[us]").astype(np.int64), bad
