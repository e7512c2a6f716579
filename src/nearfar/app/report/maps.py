"""Maps of held-out rows, drawn in the same way for the baseline and every learner."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from nearfar.app.compare.shown import chosen_points, confused_pairs, map_names
from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.markup import Markup, script_json
from nearfar.app.report.words import cut, number, percent
from nearfar.words import format_count

LEGEND = 40
# Where there are more classes than in the legend, so many have colours of their own.
COLORED = charts.COLORS
# Columns and characters that a hover shows, the first pair that fits into so many bytes.
HOVER = ((8, 24), (6, 18), (4, 12), (2, 10))
HOVER_BYTES = 900_000
IMAGE_BYTES = 900_000


def maps_view(comparison: Comparison) -> dict[str, Any]:
    """Small multiples, a legend, and what a hover shows."""
    names = map_names(comparison)
    rows = comparison["maps"]["rows"]
    if not names or not rows:
        return {
            "empty": f"There is no map: no method gave positions of held-out {comparison.noun}s."
        }
    chosen = chosen_points(comparison)
    classes = [comparison["maps"]["classes"][i] for i in chosen]
    predicted = {name: comparison.predicted(name) for name in names}
    colors = _colors(comparison, classes)
    size = 220.0 if len(chosen) <= 100 else 300.0 if len(chosen) <= 600 else 400.0
    maps, hover_maps = [], []
    for position, name in enumerate(names):
        guesses = [predicted[name].get(rows[i]) for i in chosen]
        method = comparison.by_name.get(name, {})
        label = comparison.label(name)
        places = comparison["maps"]["methods"][name]
        marks = _marks(places, chosen, classes, guesses, colors, size)
        said = f"{label}: map of {format_count(len(marks), f'held-out {comparison.noun}')}"
        maps.append(
            {
                "label": label,
                "role": method.get("role", "learner"),
                "error": percent(method.get("error")),
                "svg": charts.scatter(marks, said, position, size),
                "points": len(marks),
            }
        )
        hover_maps.append(guesses)
    # Every class that a point has or was taken for; the script knows a class by its place here.
    codes = sorted({c for part in [classes, *hover_maps] for c in part if isinstance(c, int)})
    order = sorted({code for code in classes if isinstance(code, int)})
    legend = [
        {
            "place": codes.index(code),
            "name": comparison.class_name(code),
            "swatch": charts.swatch(colors[code]),
        }
        for code in sorted(order, key=lambda code: (colors[code], code))
        if colors[code] != charts.REST
    ]
    rest = len(order) - len(legend)
    return {
        "rule": cut(comparison["maps"]["rule"], 300),
        "maps": maps,
        "left_out": len(comparison["maps"]["methods"]) - len(names),
        "legend": legend,
        "legend_more": rest,
        "rest_swatch": charts.swatch(charts.REST),
        "shown": len(chosen),
        "total": len(rows),
        "cycled": not rest and max((_code(code) for code in order), default=0) >= charts.COLORS,
        "predictions": any(predicted.values()),
        "hidden": not comparison.shows_rows,
        "hover": _hover(comparison, [rows[i] for i in chosen], codes, classes, hover_maps),
    }


def _colors(comparison: Comparison, classes: list[Any]) -> dict[Any, int]:
    """The code that each class is drawn by; of many only the most confused have one of their own.

    Then come the largest: with as many colours as classes nothing could be told apart.
    """
    sizes = Counter(code for code in classes if isinstance(code, int))
    if len(sizes) <= LEGEND:
        return {code: _code(code) for code in classes}
    confused = Counter[int]()
    for pair in confused_pairs(comparison):
        confused.update({code: len(pair.rows) for code in (pair.label, pair.taken_for)})
    first = sorted(sizes, key=lambda code: (-confused[code], -sizes[code], code))[:COLORED]
    return dict.fromkeys(classes, charts.REST) | {code: i for i, code in enumerate(first)}


def _marks(
    places: dict[str, Any],
    chosen: list[int],
    classes: list[Any],
    guesses: list[Any],
    colors: dict[Any, int],
    size: float,
) -> list[Markup]:
    """One mark a point."""
    xs, ys = places.get("x") or [], places.get("y") or []
    found = [
        (index, x, y)
        for index, i in enumerate(chosen)
        if i < min(len(xs), len(ys))
        and (x := number(xs[i])) is not None
        and (y := number(ys[i])) is not None
    ]
    if not found:
        return []
    spots = charts.fitted(np.array([(x, y) for _, x, y in found]), size)
    marks = []
    for (index, _, _), (x, y) in zip(found, spots.tolist(), strict=True):
        wrong = guesses[index] is not None and guesses[index] != classes[index]
        color = colors[classes[index]]
        rank = (color != charts.REST, wrong)
        marks.append((rank, charts.marker(color, x, y, index, wrong)))
    # Rows with colours above those without, and misclassified ones on top.
    return [mark for _, mark in sorted(marks, key=lambda pair: pair[0])]


def _hover(
    comparison: Comparison,
    rows: list[int],
    codes: list[int],
    classes: list[Any],
    guesses: list[list[Any]],
) -> Markup:
    """What the script shows for a point; every class name is stored once."""
    place = {code: i for i, code in enumerate(codes)}
    hover: dict[str, Any] = {
        "rows": rows,
        "noun": comparison.noun.capitalize(),
        "names": [cut(comparison.class_name(code), 24) for code in codes],
        "true": [place.get(code) for code in classes],
        "predicted": [[place.get(code) for code in part] for part in guesses],
        "columns": [],
        "values": [],
        "images": [],
    }
    if comparison.shows_rows:
        if comparison["rows"]["names"]:
            hover["titles"] = [comparison.row_name(row) for row in rows]
        hover["images"] = _images(comparison, rows)
        if not any(hover["images"]):
            hover |= _values(comparison, rows)
    return script_json(hover)


def _values(comparison: Comparison, rows: list[int]) -> dict[str, Any]:
    names = comparison["rows"]["columns"]
    for width, length in HOVER:
        columns = comparison.telling_columns(width)
        values = [comparison.row_values(row, columns, length) for row in rows]
        if len(script_json(values).encode()) <= HOVER_BYTES:
            return {
                "columns": [comparison.column_name(names[c]) for c in columns],
                "values": values,
            }
    return {}


def _images(comparison: Comparison, rows: list[int]) -> list[str | None]:
    images: list[str | None] = []
    used = 0
    for row in rows:
        images.append(comparison.row_image(row) if used < IMAGE_BYTES else None)
        used += len(images[-1] or "")
    return images


def _code(code: Any) -> int:
    return code if isinstance(code, int) and code >= 0 else 0
