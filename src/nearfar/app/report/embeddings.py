"""The report of embeddings: leaderboard, pictures side by side, spectra."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.report import charts, sections
from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.markup import Markup, tag
from nearfar.app.report.words import (
    NONE,
    cut,
    interval,
    listed,
    megabytes,
    number,
    p_value,
    pair,
    percent,
    points,
    seconds,
)

View = dict[str, Any]

PICTURES = 12
LEGEND = 20
SIZE = 240.0
EDGE = 10.0
STEPS = 9
SPECTRA = 6

VERDICTS = {
    "use": "Use this embedding",
    "keep": "Keep PCA",
    "unsure": "Cannot tell",
}


def embeddings_view(comparison: Comparison) -> View:
    """Everything the template of embeddings asks for."""
    return {
        "answer": _answer(comparison),
        "data": sections.data_view(comparison),
        "scaling": cut(comparison.protocol["scaling"], 300),
        "leaderboard": leaderboard_view(comparison),
        "pictures": pictures_view(comparison),
        "counts": counts_view(comparison),
        "spectra": spectra_view(comparison),
        "protocol": _protocol(comparison),
    }


def _answer(comparison: Comparison) -> View:
    view = sections.answer_view(comparison)
    return view | {"word": VERDICTS[view["verdict"]], "figures": _figures(comparison)}


def _figures(comparison: Comparison) -> list[View]:
    """Up to four numbers: the best, PCA, the difference, and chance."""
    level = comparison.confidence
    named = comparison.by_name.get(comparison["answer"]["method"])
    reference = comparison.reference
    figures = []
    for method in dict.fromkeys(m["name"] for m in (named, reference) if m is not None):
        found = comparison.by_name[method]
        if number(found.get("kept")) is not None:
            ends = interval(found["interval"])
            figures.append(
                {
                    "title": f"{comparison.label(method)} keeps",
                    "value": percent(found["kept"]),
                    "note": f"{level} interval {ends}" if ends else "no interval yet",
                }
            )
    if named is not None and named is not reference and number(named["difference"]) is not None:
        ends = interval(named["difference_interval"], points)
        known = number(named["p_holm"]) is not None
        figures.append(
            {
                "title": "Difference",
                "value": points(named["difference"], unit=True),
                "note": (f"{level} interval {ends}" if ends else "no interval yet")
                + (f"; p {p_value(named['p_holm'])} after Holm" if known else ""),
            }
        )
    if number(comparison.protocol["chance"]) is not None:
        figures.append(
            {
                "title": "By chance",
                "value": percent(comparison.protocol["chance"]),
                "note": "what rows thrown at random would keep",
            }
        )
    return figures


def leaderboard_view(comparison: Comparison) -> View:
    """All methods, finished or not, what keeps most first."""
    if not comparison.methods:
        return {"empty": "No method was run."}
    shown = comparison.methods[: sections.METHODS]
    others = [m for m in shown if m["role"] == "learner"] or shown
    values = [end for m in others for end in pair(m["difference_interval"]) or ()]
    values += [m["difference"] for m in others if number(m["difference"]) is not None]
    scale = charts.difference_scale(values)
    reference = comparison.reference
    gain = number(comparison.protocol["min_gain"])
    lost = number(reference["error"]) if reference else None
    threshold = None if gain is None or lost is None else gain * lost
    return {
        "rows": [_row(comparison, m, scale, threshold) for m in shown],
        "more": len(comparison.methods) - len(shown),
        "axis": charts.axis(scale, 3),
        "measure_note": cut(comparison.protocol["measure_note"], 600),
        "confidence": comparison.confidence,
        "threshold": None if threshold is None else points(threshold, unit=True),
        "certified": any(number(m.get("gap")) is not None for m in shown),
        "neighbours": comparison.protocol["n_neighbors"],
    }


def _row(
    comparison: Comparison, method: Method, scale: charts.Scale, threshold: float | None
) -> View:
    label = comparison.label(method["name"])
    value, ends = number(method["difference"]), pair(method["difference_interval"])
    kind = "unclear"
    if ends is not None:
        kind = "better" if ends[0] > 0 else "worse" if ends[1] < 0 else "unclear"
    forest = None
    if method["role"] == "reference":
        forest = charts.forest(scale, None, None, "", f"{label}: the reference", threshold)
    elif value is not None and method["status"] != "failed":
        said = f"{label}: {points(value, unit=True)}, interval {interval(ends, points)}"
        forest = charts.forest(scale, value, ends, kind, said, threshold)
    planned = len(comparison["folds"]) or method["folds_done"]
    numbers = {
        key: number(method.get(key))
        for key in ("kept", "kept_fitted", "trust", "continuity", "rank_trust", "gap")
    }
    return {
        "label": label,
        "role": method["role"],
        "status": method["status"],
        "reason": cut(method["reason"], 400),
        "setting": cut(method.get("setting"), 80),
        "recommended": bool(method["recommended"]),
        "kept": percent(numbers["kept"]),
        "interval": interval(method["interval"]),
        "difference": points(value),
        "difference_interval": interval(ends, points),
        "kind": kind,
        "forest": forest,
        "fitted": percent(numbers["kept_fitted"]),
        "trust": _decimals(numbers["trust"]),
        "continuity": _decimals(numbers["continuity"]),
        "unstretched": _decimals(number(method.get("continuity_without_stretched"))),
        "ranks": _decimals(numbers["rank_trust"]),
        "gap": _gap(numbers["gap"]),
        "folds": f"{method['folds_done']:,} of {planned:,}",
        "fit": seconds(method["fit_seconds"]),
        "mb": megabytes(method["peak_mb"]),
        "not_converged": method["not_converged"] or 0,
        "sort": {
            "label": label.casefold(),
            **{key: "" if value is None else repr(value) for key, value in numbers.items()},
            "difference": "" if value is None else repr(value),
            "folds": repr(method["folds_done"]),
            "fit": _sortable(method["fit_seconds"]),
            "mb": _sortable(method["peak_mb"]),
        },
    }


def _decimals(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _gap(value: float | None) -> str:
    """How far below the best possible variance, at most."""
    if value is None:
        return ""
    return "< 0.01 %" if value < 1e-4 else f"≤ {100 * value:.2g} %"


def _sortable(value: Any) -> str:
    found = number(value)
    return "" if found is None else repr(found)


# Pictures


def pictures_view(comparison: Comparison) -> View:
    """The same rows as each method places them, turned alike."""
    found = comparison["pictures"]
    names = [m["name"] for m in comparison.methods if m["name"] in found["methods"]][:PICTURES]
    if not names:
        return {"empty": "There is no picture: no method placed the rows of the first fold."}
    colour = comparison["colour"]
    n_rows = len(found["rows"])
    codes = (list(colour["codes"]) + [None] * n_rows)[:n_rows]
    first: Any = None
    pictures = []
    for name in names:
        spots = _spots(found["methods"][name], n_rows)
        if spots is None:
            continue
        first = spots if first is None else first
        method = comparison.by_name[name]
        label = comparison.label(name)
        turned = _turned(spots, first)
        pictures.append(
            {
                "label": label,
                "role": method["role"],
                "recommended": bool(method["recommended"]),
                "kept": percent(method.get("kept")),
                "svg": _picture(turned, codes, colour["kind"], n_rows - found["held_out"], label),
            }
        )
    return {
        "pictures": pictures,
        "left_out": len(found["methods"]) - len(pictures),
        "chosen": "among the best" if comparison["answer"]["verdict"] == "unsure" else "chosen",
        "rows": n_rows,
        "held_out": found["held_out"],
        "total": comparison.data["n_rows"],
        "flat": comparison.protocol["n_components"] in (None, 1, 2),
        "colour": cut(colour["name"], 40),
        "legend": _legend(colour),
        "scale": colour["kind"] == "scale",
        "ends": [f"{end:.4g}" for end in pair(colour["ends"]) or ()],
    }


def _spots(places: Any, n_rows: int) -> Any:
    xs, ys = places.get("x") or [], places.get("y") or []
    values = [[number(x), number(y)] for x, y in zip(xs, ys, strict=False)]
    if len(values) != n_rows or any(None in pair_ for pair_ in values):
        return None
    spots = np.array(values, dtype=np.float64)
    return spots - spots.mean(axis=0)


def _turned(spots: Any, model: Any) -> Any:
    """Rotated or mirrored to lie as the model does, as near as may be."""
    left, _, right = np.linalg.svd(spots.T @ model)
    return spots @ (left @ right)


def _picture(spots: Any, codes: list[Any], kind: str, n_fitted: int, label: str) -> Markup:
    low, high = spots.min(axis=0), spots.max(axis=0)
    # One unit on both axes: distances are what the picture shows.
    span = float((high - low).max()) or 1.0
    spots = (spots - (low + high) / 2) / span * (SIZE - 2 * EDGE) + SIZE / 2
    radius = 2.4 if len(spots) > 200 else 3.2
    marks = []
    for i, (x, y) in enumerate(spots.tolist()):
        code = codes[i]
        name = "none" if not isinstance(code, int) else f"{_prefix(kind)}{code % _wheel(kind)}"
        held = " held" if i >= n_fitted else ""
        marks.append(
            tag("circle", class_=name + held, cx=round(x, 1), cy=round(SIZE - y, 1), r=radius)
        )
    said = f"{label}: where it places {len(spots):,} rows"
    return tag(
        "svg",
        *marks,
        class_="picture",
        viewBox=f"0 0 {SIZE:g} {SIZE:g}",
        role="img",
        aria_label=said,
    )


def _prefix(kind: str) -> str:
    return "q" if kind == "scale" else "c"


def _wheel(kind: str) -> int:
    return STEPS if kind == "scale" else charts.COLOURS


def _legend(colour: View) -> list[View]:
    if colour["kind"] == "scale":
        return []
    return [
        {"name": cut(name, 30) or "(empty)", "swatch": charts.swatch(code % charts.COLOURS)}
        for code, name in enumerate(colour["names"][:LEGEND])
    ]


# Numbers of neighbours, spectra, protocol


def counts_view(comparison: Comparison) -> View:
    """Neighbours kept for several numbers of neighbours."""
    counts = [str(c) for c in comparison.protocol["looked_at"]]
    methods = [m for m in comparison.methods if m.get("by_neighbors") and m["status"] != "failed"]
    if len(counts) < 2 or not methods:
        return {"empty": "One number of neighbours was counted only: there are too few rows."}
    best = {c: max(m["by_neighbors"].get(c) or 0.0 for m in methods) for c in counts}
    return {
        "counts": counts,
        "ranks": str(comparison.protocol["n_neighbors"]),
        "rows": [
            {
                "label": comparison.label(m["name"]),
                "role": m["role"],
                "cells": [
                    {
                        "value": percent(m["by_neighbors"].get(c)),
                        "best": (m["by_neighbors"].get(c) or 0.0) >= best[c],
                        "bar": charts.bar(
                            number(m["by_neighbors"].get(c)) or 0.0,
                            1.0,
                            f"{comparison.label(m['name'])}, {c} neighbours",
                        ),
                    }
                    for c in counts
                ],
            }
            for m in methods[: sections.LEARNERS]
        ],
    }


def spectra_view(comparison: Comparison) -> View:
    """Shares of the variance along the axes, of methods that learn more than they show."""
    spectra = comparison["spectra"]
    names = [m["name"] for m in comparison.methods if spectra.get(m["name"])][:SPECTRA]
    if not names:
        return {"empty": "No method has a spectrum."}
    panels = []
    for name in names:
        shares = [number(share) or 0.0 for share in spectra[name]]
        while len(shares) > 3 and shares[-1] < 0.0005:  # nothing is seen of it
            shares.pop()
        panels.append(
            {
                "label": comparison.label(name),
                "of": "the data themselves"
                if comparison.by_name[name]["role"] == "reference"
                else "after unfolding",
                "two": percent(sum(shares[:2])),
                "rows": [
                    {
                        "axis": i + 1,
                        "share": percent(share),
                        "bar": charts.bar(share, max(shares) or 1.0, f"axis {i + 1}"),
                    }
                    for i, share in enumerate(shares)
                ],
            }
        )
    return {"panels": panels}


def _protocol(comparison: Comparison) -> View:
    view = sections.protocol_view(comparison)
    gain = number(comparison.protocol["min_gain"])
    settings = [
        f"{comparison.label(m['name'])} {m['setting']}"
        for m in comparison.methods
        if m.get("setting")
    ]
    own = {
        "Tuning": "nothing is tuned; every method has one setting",
        "Smallest gain that counts": NONE
        if gain is None
        else f"{percent(gain)} of the neighbours that PCA loses",
    }
    facts = [(title, own.get(title, value)) for title, value in view["facts"]]
    if settings:
        facts.append(("Settings", listed([cut(text, 60) for text in settings], 12)))
    return view | {"facts": facts}
