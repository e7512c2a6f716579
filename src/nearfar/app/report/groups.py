"""Errors by group, most errors first."""

from __future__ import annotations

from typing import Any

from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.words import cut, number, p_value, percent, points

View = dict[str, Any]

GROUPS = 100
SIDES = ("better", "worse")


def groups_view(comparison: Comparison) -> View | None:
    """A row for each group; None where nothing was asked by group."""
    asked = comparison["by_group"]
    if not asked:
        return None
    name, best = cut(asked.get("name"), 60), comparison.by_name.get(asked.get("method"))
    groups = asked.get("groups") or []
    if best is None or not groups or comparison.reference is None:
        return {"name": name, "empty": "No learner has predictions to report by group."}
    rates = [number(group[key]) or 0.0 for group in groups for key in ("reference", "learner")]
    scale = charts.Scale(0.0, max(*rates, 0.01))
    rows = []
    for group in groups[:GROUPS]:
        before, after = number(group["reference"]) or 0.0, number(group["learner"]) or 0.0
        label = cut(group["group"], 40) or "(empty)"
        said = f"{label}: from {percent(before)} to {percent(after)}"
        rows.append(
            {
                "group": label,
                "n": f"{group['n']:,}",
                "before": percent(before),
                "after": percent(after),
                "gain": points(group["gain"]),
                "p": p_value(group.get("p_holm")),
                "verdict": said_of if (said_of := group.get("clear")) in SIDES else "",
                "chart": charts.dumbbell(scale, before, after, said),
                "sort": {"before": before, "after": after, "gain": group["gain"]},
            }
        )
    return {
        "name": name,
        "reference": comparison.label(comparison.reference["name"]),
        "best": comparison.label(best["name"]),
        "of": "the test set" if comparison.fixed else "the first repeat",
        "rows": rows,
        "largest": percent(scale.high),
        "more": (asked.get("more") or 0) + max(0, len(groups) - GROUPS),
        "least": asked.get("least_rows"),
        "confidence": comparison.confidence,
    }
