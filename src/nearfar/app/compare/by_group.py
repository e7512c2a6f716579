"""Errors by group: whether what is better on the whole is worse for some.

Rows are grouped by a column that is no feature, or by values that the user gives. Errors are those
of held-out rows of the first repeat, each of them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from nearfar.app.compare.question import Question
from nearfar.app.compare.shown import Document
from nearfar.app.tables.inputs import is_missing
from nearfar.datasets.table import Table
from nearfar.datasets.tables import open_data_file
from nearfar.evaluation.inference import adjust_p_values
from nearfar.words import format_adjusted_p, format_count, format_percent, join_names, suggest_name

#: Number of rows of a group below which no difference is called clear.
LEAST_ROWS = 20
#: Groups that a document holds, those with most errors first.
MOST_GROUPS = 100
#: Numbers with more different values than this are cut at their quartiles.
MOST_NUMBERS = 12
MISSING = "(missing)"
Values = NDArray[Any]


def reported_values(
    asked: Question, table: Table, test: Table | None
) -> tuple[str, Values, bool] | None:
    """What rows are reported by: its name, a value for each row, and whether it is a column.

    Values of a test set come last. None where nothing is asked.
    """
    by = asked.report_by
    if by is None:
        return None
    if not isinstance(by, str):
        name = str(getattr(by, "name", None) or "report_by")
        return name, _given(by, table, test), False
    if by == table.target:
        raise ValueError(f"report_by={by!r} is the target; errors by class are in every report.")
    parts, is_column = [], False
    for side, source in ((table, asked.X), (test, asked.test)):
        if side is not None:
            values, is_column = _named(by, side, source if asked.from_file else None)
            parts.append(values)
    return by, np.concatenate(parts), is_column


def _given(by: Any, table: Table, test: Table | None) -> Values:
    """Values as they were given, for all rows or, of a fixed test set, for its own."""
    values = np.asarray(by, dtype=object)
    n, n_test = len(table.X), 0 if test is None else len(test.X)
    if values.ndim == 1 and test is not None and len(values) == n_test:
        return np.concatenate([np.full(n, None, dtype=object), values])
    if values.ndim != 1 or len(values) != n + n_test:
        raise ValueError(
            f"report_by must be a column's name, or hold a value for each of {n + n_test:,} "
            f"{table.noun}s; got shape {values.shape}."
        )
    return values


def _named(name: str, table: Table, source: Any) -> tuple[Values, bool]:
    """The values of a column or key, and whether it would be a feature."""
    if name == table.groups_name and table.groups is not None:
        return table.groups.astype(object), False
    if hasattr(table.X, "iloc"):
        names = [str(column) for column in table.X.columns]
        if name in names:
            return np.asarray(table.X.iloc[:, names.index(name)], dtype=object), True
    else:
        names = list(table.feature_names or []) if table.noun == "row" else []
        if name in names:
            return table.X[:, names.index(name)].astype(object), True
        arrays = (open_data_file(source).arrays if source is not None else None) or {}
        if name in arrays and np.shape(arrays[name]) == (len(table.X),):
            return np.asarray(arrays[name], dtype=object), False
        names += [key for key in arrays if np.shape(arrays[key]) == (len(table.X),)]
    known = f" There are {join_names(names)}." if names else ""
    raise ValueError(
        f"report_by={name!r}: {table.name} has no such column.{suggest_name(name, names)}{known}"
    )


def group_names(values: Sequence[Any]) -> list[str]:
    """The group of each row as text; many numbers are cut at their quartiles.

    >>> group_names(["b", "a", None])
    ['b', 'a', '(missing)']
    >>> group_names(list(range(100)))[::30]
    ['below 24.75', '24.75 to 49.5', '49.5 to 74.25', '74.25 or more']
    """
    known = [value for value in values if not is_missing(value)]
    try:
        numbers = np.array([float(value) for value in known])
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if len(set(numbers.tolist())) <= MOST_NUMBERS or not np.isfinite(numbers).all():
        return [MISSING if is_missing(value) else str(value)[:60] for value in values]
    cuts = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))
    ends = [f"{cut:.4g}" for cut in cuts]
    names = [f"below {ends[0]}"]
    names += [f"{low} to {high}" for low, high in pairwise(ends)]
    names.append(f"{ends[-1]} or more")
    return [
        MISSING if is_missing(value) else names[int(np.searchsorted(cuts, float(value), "right"))]
        for value in values
    ]


def errors_by_group(found: dict[str, Any], name: str, groups: Sequence[str]) -> dict[str, Any]:
    """Return the errors of the baseline and of the learner that the answer names, per group.

    Parameters
    ----------
    found : dict
        The document, with ``held_out``.
    name : str
        What the rows are reported by.
    groups : sequence of str
        The group of each row of the data.
    """
    document = Document(found)
    best, reference = document.best, document.reference
    after = {} if best is None else document.predicted(best["name"])
    before = {} if reference is None else document.predicted(reference["name"])
    rows = [row for row in document.held_out["rows"] if row in after and row in before]
    labels = document.labels
    # Wrong before, wrong after.
    wrong = np.array([[before[r] != labels[r], after[r] != labels[r]] for r in rows], dtype=bool)
    wrong = wrong.reshape(-1, 2)
    own = np.array([groups[row] for row in rows], dtype=object)
    entries = [_entry(group, wrong[own == group]) for group in sorted(set(own.tolist()))]
    confidence = float(document.protocol["confidence"])
    large = [entry for entry in entries if entry["n"] >= LEAST_ROWS]
    for entry, p in zip(large, adjust_p_values([entry["p"] for entry in large]), strict=True):
        entry["p_holm"] = float(p)
        if p <= 1 - confidence:
            entry["clear"] = "worse" if entry["gain"] < 0 else "better"
    # What a recommendation makes clearly worse is never cut off.
    entries.sort(key=lambda entry: (entry["clear"] != "worse", *_worst_first(entry)))
    return {
        "name": name,
        "method": None if best is None else best["name"],
        "groups": sorted(entries[:MOST_GROUPS], key=_worst_first),
        "more": max(0, len(entries) - MOST_GROUPS),
        "tested": len(large),
        "least_rows": LEAST_ROWS,
    }


def _worst_first(entry: dict[str, Any]) -> tuple[float, float, int]:
    return -entry["learner"], entry["gain"], -entry["n"]


def _entry(group: str, wrong: NDArray[np.bool_]) -> dict[str, Any]:
    """One group; p is that of the exact test of McNemar, two-sided."""
    before, after = wrong[:, 0], wrong[:, 1]
    mended, broken = int((before & ~after).sum()), int((after & ~before).sum())
    p = 1.0 if mended + broken == 0 else float(binomtest(broken, mended + broken).pvalue)
    return {
        "group": group,
        "n": len(wrong),
        "reference": float(before.mean()),
        "learner": float(after.mean()),
        "gain": float(before.mean() - after.mean()),
        "mended": mended,
        "broken": broken,
        "p": p,
        "p_holm": None,
        "clear": None,
    }


def group_notes(by_group: dict[str, Any], label: str, noun: str) -> list[str]:
    """Return a note for each group in which the recommended learner is clearly worse."""
    tested = format_count(by_group["tested"], "group")
    return [
        f"{label} is clearly worse where {by_group['name']} is {entry['group']!r}: "
        f"{format_percent(entry['learner'])} error vs {format_percent(entry['reference'])} on "
        f"{format_count(entry['n'], noun)} (McNemar's exact test, "
        f"{format_adjusted_p(entry['p_holm'])} over {tested})."
        for entry in by_group["groups"]
        if entry["clear"] == "worse"
    ]
