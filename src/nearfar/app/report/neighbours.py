"""Neighbours of held-out rows before and after learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.words import percent, points
from nearfar.words import count

NEIGHBOURS = 5
SAMPLE = 6  # rows of each kind
COLUMNS = 3


@dataclass(frozen=True)
class Change:
    """A held-out row and its neighbours with both distances, as (row, class code)."""

    row: int
    label: int
    before: list[tuple[int, int]]
    after: list[tuple[int, int]]

    def share(self, found: list[tuple[int, int]]) -> float:
        """The share of neighbours with the row's own label."""
        return sum(code == self.label for _, code in found) / len(found)

    @property
    def gain(self) -> float:
        """By how much that share grew."""
        return self.share(self.after) - self.share(self.before)


def neighbours_view(comparison: Comparison) -> dict[str, Any]:
    """Totals of rows that improved and worsened, and a sample of both."""
    reference, best, noun = comparison.reference, comparison.best, comparison.noun
    if reference is None or best is None:
        return {"empty": "No learner has results to set beside the reference."}
    changes = find_changes(comparison)
    if not changes:
        return {"empty": f"The neighbours of held-out {noun}s, or their labels, were not recorded."}
    kinds = _by_kind(changes)
    before = sum(change.share(change.before) for change in changes) / len(changes)
    after = sum(change.share(change.after) for change in changes) / len(changes)
    totals: list[dict[str, Any]] = [
        {"kind": kind, "rows": len(kinds[kind]), "share": percent(len(kinds[kind]) / len(changes))}
        for kind in ("improved", "same", "worsened")
    ]
    said = ", ".join(f"{total['rows']:,} {total['kind']}" for total in totals)
    view: dict[str, Any] = {
        "reference": comparison.label(reference["name"]),
        "best": comparison.label(best["name"]),
        "totals": totals,
        "bar": charts.stacked(
            [(total["kind"], total["rows"]) for total in totals],
            f"Of {count(len(changes), f'held-out {noun}')}: {said}",
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


def find_changes(comparison: Comparison) -> list[Change]:
    """Held-out rows whose neighbours, and their labels, are known for both distances."""
    reference, best = comparison.reference, comparison.best
    held_out = comparison.held_out
    if reference is None or best is None:
        return []
    before = held_out["neighbors"].get(reference["name"]) or []
    after = held_out["neighbors"].get(best["name"]) or []
    # Every row is held out once in k folds; "labels" names rows that never are.
    labels = {int(row): code for row, code in held_out["labels"].items()}
    labels |= dict(zip(held_out["rows"], held_out["true"], strict=False))
    changes = []
    for row, label, old, new in zip(
        held_out["rows"], held_out["true"], before, after, strict=False
    ):
        known_old, known_new = _with_labels(old, labels), _with_labels(new, labels)
        if label is not None and known_old and known_new:
            changes.append(Change(row, label, known_old, known_new))
    return changes


def sample(comparison: Comparison, changes: Sequence[Change]) -> list[Change]:
    """A seeded sample; rows whose contents the document holds come first."""
    shuffled = [changes[i] for i in comparison.random().permutation(len(changes))]
    if not comparison.shows_rows:
        return shuffled[:SAMPLE]
    known = {**comparison["rows"]["values"], **(comparison["images"] or {})}
    whole = (c for c in shuffled if all(str(row) in known for row in _rows_of(c)))
    chosen = list(islice(whole, SAMPLE))
    if len(chosen) < SAMPLE:
        others = [c for c in shuffled if c not in chosen]
        chosen += others[: SAMPLE - len(chosen)]
    return chosen


def sampled_rows(comparison: Comparison) -> list[int]:
    """The rows that the sample shows, neighbours included."""
    kinds = _by_kind(find_changes(comparison))
    chosen = [*sample(comparison, kinds["improved"]), *sample(comparison, kinds["worsened"])]
    return sorted({row for change in chosen for row in _rows_of(change)})


def _by_kind(changes: list[Change]) -> dict[str, list[Change]]:
    kinds: dict[str, list[Change]] = {"improved": [], "same": [], "worsened": []}
    for change in changes:
        gain = change.gain
        kind = "improved" if gain > 1e-9 else "worsened" if gain < -1e-9 else "same"
        kinds[kind].append(change)
    return kinds


def _with_labels(found: Any, labels: dict[int, int]) -> list[tuple[int, int]]:
    """Neighbours with their labels; none at all when one is unknown, which would mislead."""
    rows = (found or [])[:NEIGHBOURS]
    return [(row, labels[row]) for row in rows] if all(row in labels for row in rows) else []


def _rows_of(change: Change) -> list[int]:
    return [change.row, *(row for row, _ in change.before), *(row for row, _ in change.after)]


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
