"""The sections of a comparison where the target is a number: predictions, errors by size, rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.compare.shown import chosen_points, map_names
from nearfar.app.report import charts
from nearfar.app.report.answer import answer_view
from nearfar.app.report.board import cost_view, leaderboard_view
from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.data import data_view, protocol_view
from nearfar.app.report.markup import tag
from nearfar.app.report.paired import paired_view
from nearfar.app.report.weights import weights_view
from nearfar.app.report.words import cut, listed, number, percent, points, significant
from nearfar.words import format_count

View = dict[str, Any]

DOTS = 1500  # held-out rows drawn, in each panel
WORST = 12  # rows that all predict worst
COLUMNS = 4  # of each of them
SHADES = 10  # of the target in maps
#: What the parts of the target are called where their ends are not to be shown.
_ORDER = ("lowest", "low", "middle", "high", "highest")


def values_view(comparison: Comparison) -> View:
    """Everything the template of numbers asks for."""
    return {
        "noun": comparison.noun,
        "target": cut(comparison["values"]["target"], 40) or "the target",
        "answer": answer_view(comparison),
        "data": data_view(comparison),
        "leaderboard": leaderboard_view(comparison),
        "paired": paired_view(comparison),
        "against": against_view(comparison),
        "sizes": sizes_view(comparison),
        "worst": worst_view(comparison),
        "maps": value_maps_view(comparison),
        "weights": weights_view(comparison),
        "cost": cost_view(comparison),
        "protocol": protocol_view(comparison),
    }


def _pair(comparison: Comparison) -> list[Method]:
    """Return the baseline and the learner that the answer names."""
    return [m for m in (comparison.reference, comparison.best) if m is not None]


def _of(comparison: Comparison) -> str:
    return "the test set" if comparison.fixed else "the first repeat"


# Predicted against true


def against_view(comparison: Comparison) -> View:
    """A square of held-out rows for the baseline, and one for the learner."""
    if not comparison.shows_rows:
        return {"empty": "Values of single rows are not shown, as asked (--no-rows)."}
    held = comparison.held_out
    rows = dict(zip(held["rows"], held["true"], strict=False))
    found = []
    for method in _pair(comparison):
        said = comparison.predicted(method["name"])
        pairs = [
            (number(true), number(said[row]))
            for row, true in rows.items()
            if row in said and number(true) is not None and number(said[row]) is not None
        ]
        if pairs:
            found.append((method, np.array(pairs, dtype=np.float64)))
    if not found:
        return {"empty": "No predictions are known: no fold of the first repeat was finished."}
    both = np.concatenate([pairs for _, pairs in found])
    scale = charts.Scale(float(both.min()), float(both.max()))
    panels = []
    for method, known in found:
        label = comparison.label(method["name"])
        drawn = known
        if len(known) > DOTS:
            some = comparison.random().choice(len(known), DOTS, replace=False)
            drawn = known[np.sort(some)]
        said_of = (
            f"{label}: predicted against true values of "
            f"{format_count(len(drawn), 'held-out row')}; on the diagonal they are equal"
        )
        panels.append(
            {
                "label": label,
                "role": method["role"],
                "error": percent(method["error"]),
                "slope": _slope(known),
                "chart": charts.diagonal(scale, drawn.tolist(), said_of),
                "shown": len(drawn),
                "total": len(known),
            }
        )
    return {
        "panels": panels,
        "of": _of(comparison),
        "some": any(panel["shown"] < panel["total"] for panel in panels),
    }


def _slope(pairs: Any) -> str:
    """The slope of the line of predicted over true values; "" where these are all equal."""
    true, said = pairs.T
    spread = float(true.var())
    if not spread > 0:
        return ""
    return significant(float(np.mean((true - true.mean()) * (said - said.mean()))) / spread, 2)


# Errors by the size of the target


def sizes_view(comparison: Comparison) -> View:
    """Relative RMSE and mean deviation, for each fifth of the target."""
    found = comparison["values"]
    parts, methods = found["sizes"], _pair(comparison)
    known = [m for m in methods if any(found["by_size"].get(m["name"]) or [])]
    if not parts or not known:
        return {"empty": "Nothing is known of single rows: no fold of the first repeat was done."}
    best = known[-1]
    first = known[0]
    levels = [
        one["error"]
        for m in (first, best)
        for one in found["by_size"][m["name"]]
        if one is not None
    ]
    scale = charts.Scale(0.0, max([*levels, 0.01]))
    rows = []
    for place, part in enumerate(parts):
        before, after = (found["by_size"][m["name"]][place] for m in (first, best))
        if before is None or after is None:
            continue
        name = _part_name(part, place, len(parts))
        said = f"{name}: from {percent(before['error'])} to {percent(after['error'])}"
        rows.append(
            {
                "name": name,
                "n": f"{part['n']:,}",
                "before": percent(before["error"]),
                "after": percent(after["error"]),
                "bias_before": points(before["bias"]),
                "bias_after": points(after["bias"]),
                "kind": _kind(before["error"], after["error"]),
                "chart": charts.dumbbell(scale, before["error"], after["error"], said),
                "sort": {
                    "name": place,
                    "before": before["error"],
                    "after": after["error"],
                    "bias_before": before["bias"],
                    "bias_after": after["bias"],
                },
            }
        )
    if not rows:
        return {"empty": "No fold of the first repeat was finished by both."}
    return {
        "rows": rows,
        "both": first is not best,
        "reference": comparison.label(first["name"]),
        "best": comparison.label(best["name"]),
        "largest": percent(scale.high),
        "of": _of(comparison),
        "unit": significant(found["unit"]),
        "hidden": not comparison.shows_rows,
    }


def _kind(before: float, after: float) -> str:
    return "better" if after < before else "worse" if after > before else "even"


def _part_name(part: View, place: int, total: int) -> str:
    low, high = number(part["low"]), number(part["high"])
    if low is None or high is None:
        return _ORDER[place] if total == len(_ORDER) else f"part {place + 1} of {total}"
    return significant(low) if low == high else f"{significant(low)} to {significant(high)}"


# Rows that every method predicts worst


def worst_view(comparison: Comparison) -> View:
    """The rows that even the nearest prediction misses by most."""
    found = comparison["values"]
    if not int(found["n_tested"] or 0):
        return {"empty": "Nothing is known of single rows: no fold of the first repeat was done."}
    if not comparison.shows_rows:
        return {"empty": "Single rows are not shown, as asked (--no-rows)."}
    if not found["worst"]:
        return {"empty": "No row is missed by every distance."}
    columns = comparison.telling_columns(COLUMNS)
    named = comparison["rows"]["columns"]
    asked = _pair(comparison)
    unit = number(found["unit"]) or 1.0
    rows = []
    for one in found["worst"][:WORST]:
        near = min(abs(value - one["true"]) for value in one["predicted"].values())
        rows.append(
            {
                "row": comparison.row_name(one["row"]) or f"{one['row']:,}",
                "label": significant(one["true"], 4),
                "true": significant(one["true"], 4),
                "said": [significant(number(one["predicted"].get(m["name"])), 4) for m in asked],
                "off": f"{significant(near / unit, 2)} ×",
                "values": comparison.row_values(one["row"], columns) or [""] * len(columns),
                "image": comparison.row_image(one["row"]),
            }
        )
    return {
        "rows": rows,
        "n": f"{int(found['n_tested']):,}",
        "methods": listed([cut(name, 40) for name in found["judged_by"]], 12),
        "several": len(found["judged_by"]) > 1,
        "asked": [comparison.label(m["name"]) for m in asked],
        "columns": [comparison.column_name(named[c]) for c in columns],
        "numbered": not comparison["rows"]["names"],
        "head": "Id" if comparison["rows"]["names"] else "Row",
        "unit": significant(unit),
    }


# Maps


def value_maps_view(comparison: Comparison) -> View:
    """Held-out rows in the first two principal axes of each map, shaded by the target."""
    names, rows = map_names(comparison), comparison["maps"]["rows"]
    if not names or not rows:
        return {"empty": "There is no map: no method gave positions of held-out rows."}
    parts = comparison["maps"]["classes"]
    most = max((part for part in parts if isinstance(part, int)), default=0) or 1
    chosen = chosen_points(comparison)
    maps = []
    for place, name in enumerate(names):
        spots = comparison["maps"]["methods"][name]
        known = [
            (i, x, y)
            for i in chosen
            if i < min(len(spots.get("x") or []), len(spots.get("y") or []))
            and (x := number(spots["x"][i])) is not None
            and (y := number(spots["y"][i])) is not None
        ]
        if not known:
            continue
        size = 300.0
        at = charts.fitted(np.array([(x, y) for _, x, y in known]), size)
        marks = [
            tag(
                "circle",
                class_=f"v{_shade(parts[i], most)}",
                cx=round(x, 1),
                cy=round(y, 1),
                r=3,
            )
            for (i, _, _), (x, y) in zip(known, at.tolist(), strict=True)
        ]
        label = comparison.label(name)
        said = f"{label}: map of {format_count(len(marks), 'held-out row')}, shaded by the target"
        method = comparison.by_name.get(name, {})
        maps.append(
            {
                "label": label,
                "role": method.get("role", "learner"),
                "error": percent(method.get("error")),
                "svg": charts.scatter(marks, said, place, size),
            }
        )
    if not maps:
        return {"empty": "There is no map: no method gave positions of held-out rows."}
    return {
        "rule": cut(comparison["maps"]["rule"], 300),
        "maps": maps,
        "shades": list(range(SHADES)),
        "shown": len(chosen),
        "total": len(rows),
        "left_out": len(comparison["maps"]["methods"]) - len(names),
    }


def _shade(part: Any, most: int) -> int:
    """The shade of a part of the target, of parts from 0 to ``most``."""
    if not isinstance(part, int):
        return 0
    return round((SHADES - 1) * min(max(part, 0), most) / most)
