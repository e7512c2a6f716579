"""What the columns in use hold."""

from __future__ import annotations

from typing import Any

from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.words import cut, listed, number, pair, percent, significant
from nearfar.words import format_count

View = dict[str, Any]

COLUMNS = 60
NAMED = 3  # levels


def columns_view(comparison: Comparison) -> View | None:
    """A small distribution for each column; None where the document has none."""
    profile = comparison.data["profile"]
    if not profile or not profile.get("columns"):
        return None
    found = profile["columns"]
    n_rows, unit = number(profile.get("n_rows")), cut(profile.get("unit") or comparison.noun, 20)
    return {
        "cards": [_card(comparison, column) for column in found[:COLUMNS]],
        "more": (profile.get("more") or 0) + max(0, len(found) - COLUMNS),
        "sampled": format_count(int(n_rows), unit) if profile.get("sampled") and n_rows else "",
        "hidden": not comparison.shows_rows and comparison["kind"] != "embeddings",
    }


def _card(comparison: Comparison, column: View) -> View:
    name, levels = comparison.column_name(column.get("name")), column.get("kind") == "levels"
    counts = [number(size) or 0.0 for size in column.get("counts") or []]
    others = number(column.get("others")) or 0.0
    drawn = [*counts, others] if others else counts
    missing = number(column.get("missing")) or 0.0
    facts = _levels(column, drawn) if levels else _range(column)
    gaps = f"{_share(missing)} missing" if missing else ""
    said = ", ".join(filter(None, (facts, gaps))) or "its shape"
    return {
        "name": name,
        "kind": format_count(int(column["n_levels"]), "level") if levels else "",
        "chart": charts.columns(drawn, f"{name}: {said}", rest=bool(others)) if drawn else "",
        "facts": facts,
        "middle": f"median {significant(column['median'])}" if "median" in column else "",
        "missing": gaps,
        "treated": cut(column.get("treated"), 120),
    }


def _share(share: float) -> str:
    """A share that is not nothing is not written as nothing.

    >>> _share(0.0001).replace("\u00a0", " "), _share(0.25).replace("\u00a0", " ")
    ('< 0.1%', '25.0%')
    """
    return "<\u00a00.1%" if 0 < share < 0.0005 else percent(share)


def _range(column: View) -> str:
    ends = pair(column.get("range"))
    if ends is None:
        return ""
    return f"{significant(ends[0])} to {significant(ends[1])}"


def _levels(column: View, counts: list[float]) -> str:
    names, total = column.get("levels"), sum(counts) or 1.0
    if not names:
        return ""
    named = [
        f"{cut(name, 18) or '(empty)'} {percent(size / total)}"
        for name, size in zip(names[:NAMED], counts, strict=False)
    ]
    more = int(column["n_levels"]) - len(named)
    return listed(named) if more <= 0 else f"{', '.join(named)} and {more:,} more"
