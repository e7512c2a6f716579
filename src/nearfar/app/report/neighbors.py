"""Neighbors of held-out rows before and after learning."""

from __future__ import annotations

from typing import Any

from nearfar.app.compare.shown import Change, by_kind, find_changes, sample
from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.words import percent, points
from nearfar.words import format_count

COLUMNS = 3


def neighbors_view(comparison: Comparison) -> dict[str, Any]:
    """Totals of rows that improved and worsened, and a sample of both."""
    reference, best, noun = comparison.reference, comparison.best, comparison.noun
    if reference is None or best is None:
        return {"empty": "No learner has results to compare with the baseline."}
    changes = find_changes(comparison)
    if not changes:
        return {"empty": f"The neighbors of held-out {noun}s, or their labels, were not recorded."}
    kinds = by_kind(changes)
    before = sum(change.share(change.before) for change in changes) / len(changes)
    after = sum(change.share(change.after) for change in changes) / len(changes)
    totals: list[dict[str, Any]] = [
        {"kind": kind, "rows": len(kinds[kind]), "share": percent(len(kinds[kind]) / len(changes))}
        for kind in ("improved", "same", "worsened")
    ]
    said = ", ".join(f"{total['rows']:,} {total['kind']}" for total in totals)
    view: dict[str, Any] = {
        "reference": comparison.label_inside(reference["name"]),
        "best": comparison.label(best["name"]),
        "totals": totals,
        "bar": charts.stacked(
            [(total["kind"], total["rows"]) for total in totals],
            f"Of {format_count(len(changes), f'held-out {noun}')}: {said}",
        ),
        "n": len(changes),
        "missing": len(comparison.held_out["rows"]) - len(changes),
        "before": percent(before),
        "after": percent(after),
        "change": points(after - before, unit=True),
        "hidden": not comparison.shows_rows,
        "groups": [],
        "columns_note": "",
    }
    if not comparison.shows_rows:
        return view
    columns = comparison.telling_columns(COLUMNS)
    heavy = comparison.heaviest_features()[:COLUMNS]
    if columns and heavy and not comparison["images"]:
        view["columns_note"] = f"The columns are those that {view['best']} weighs most."
    for kind in ("improved", "worsened"):
        chosen = sample(comparison, kinds[kind])
        view["groups"].append(
            {
                "kind": kind,
                "total": len(kinds[kind]),
                "cards": [_card(comparison, change, columns) for change in chosen],
            }
        )
    return view


def _card(comparison: Comparison, change: Change, columns: list[int]) -> dict[str, Any]:
    def entry(row: int, code: int) -> dict[str, Any]:
        return {
            "row": comparison.row_name(row) or row,
            "label": comparison.class_name(code),
            "agrees": code == change.label,
            "values": comparison.row_values(row, columns) or [""] * len(columns),
            "image": comparison.row_image(row),
        }

    names = comparison["rows"]["columns"]
    query = entry(change.row, change.label)
    name = comparison.row_name(change.row)
    sides = [
        {
            "title": title,
            "agree": sum(code == change.label for _, code in found),
            "of": len(found),
            "rows": [entry(row, code) for row, code in found],
        }
        for title, found in (("Before", change.before), ("After", change.after))
    ]
    return {
        "title": name or f"{comparison.noun.capitalize()} {change.row}",
        "query": query,
        "sides": sides,
        "columns": [comparison.column_name(names[c]) for c in columns],
    }
