"""The report of embeddings: leaderboard, pictures side by side, spectra."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.report import charts
from nearfar.app.report.answer import answer_view, gain_figure
from nearfar.app.report.board import LEARNERS, METHODS, board, sort_keys
from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.data import data_view, protocol_view
from nearfar.app.report.markup import Markup, tag
from nearfar.app.report.page import figure
from nearfar.app.report.words import NONE, cut, listed, number, pair, percent

View = dict[str, Any]

PICTURES = 12
LEGEND = 20
SIZE = 240.0
STEPS = 9
SPECTRA = 6

VERDICTS = {"use": "Use this embedding", "keep": "Keep PCA", "inconclusive": "Inconclusive"}


def embeddings_view(comparison: Comparison) -> View:
    """Everything the template of embeddings asks for."""
    return {
        "answer": _answer(comparison),
        "data": data_view(comparison),
        "scaling": cut(comparison.protocol["scaling"], 300),
        "leaderboard": leaderboard_view(comparison),
        "pictures": pictures_view(comparison),
        "counts": counts_view(comparison),
        "spectra": spectra_view(comparison),
        "protocol": _protocol(comparison),
    }


def _answer(comparison: Comparison) -> View:
    view = answer_view(comparison)
    return view | {"word": VERDICTS[view["verdict"]], "figures": _figures(comparison)}


def _figures(comparison: Comparison) -> list[View]:
    """Up to four numbers: the best, PCA, the gain, and chance."""
    named = comparison.by_name.get(comparison["answer"]["method"])
    reference = comparison.reference
    figures = [
        figure(
            f"{comparison.label(method['name'])} keeps",
            percent(method["kept"]),
            comparison.said_interval(method["interval"]),
        )
        for method in ((named,) if named is reference else (named, reference))
        if method is not None and number(method.get("kept")) is not None
    ]
    if named is not reference:
        figures += gain_figure(comparison, named)
    chance = comparison.protocol["chance"]
    if number(chance) is not None:
        note = "what rows thrown at random would keep"
        figures.append(figure("By chance", percent(chance), note))
    return figures


def leaderboard_view(comparison: Comparison) -> View:
    """All methods, finished or not, what keeps most first."""
    if not comparison.methods:
        return {"empty": "No method was run."}
    shown = comparison.methods[:METHODS]
    return board(comparison, _cells, ticks=3, note=600) | {
        "certified": any(number(m.get("gap")) is not None for m in shown),
        "neighbors": comparison.protocol["n_neighbors"],
    }


def _cells(comparison: Comparison, method: Method) -> View:
    return {
        "setting": cut(method.get("setting"), 80),
        "kept": percent(method.get("kept")),
        "fitted": percent(method.get("kept_fitted")),
        "trust": _decimals(method.get("trust")),
        "continuity": _decimals(method.get("continuity")),
        "unstretched": _decimals(method.get("continuity_without_stretched")),
        "ranks": _decimals(method.get("rank_trust")),
        "gap": _gap(number(method.get("gap"))),
        "sort": sort_keys(
            method, "kept", "kept_fitted", "trust", "continuity", "rank_trust", "gap"
        ),
    }


def _decimals(value: Any) -> str:
    found = number(value)
    return NONE if found is None else f"{found:.3f}"


def _gap(value: float | None) -> str:
    """How far below the best possible variance, at most."""
    if value is None:
        return ""
    return "< 0.01%" if value < 1e-4 else f"≤ {100 * value:.2g}%"


# Pictures


def pictures_view(comparison: Comparison) -> View:
    """The same rows as each method places them, turned alike."""
    found = comparison["pictures"]
    names = [m["name"] for m in comparison.methods if m["name"] in found["methods"]][:PICTURES]
    if not names:
        return {"empty": "There is no picture: no method placed the rows of the first fold."}
    color = comparison["colour"]
    n_rows = len(found["rows"])
    codes = (list(color["codes"]) + [None] * n_rows)[:n_rows]
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
                "fault": cut(method.get("picture_fault"), 200),
                "svg": _picture(turned, codes, color["kind"], n_rows - found["held_out"], label),
            }
        )
    verdict = comparison["answer"]["verdict"]
    return {
        "pictures": pictures,
        "left_out": len(found["methods"]) - len(pictures),
        "chosen": "among the best" if verdict == "inconclusive" else "chosen",
        "rows": n_rows,
        "held_out": found["held_out"],
        "total": comparison.data["n_rows"],
        "flat": comparison.protocol["n_components"] in (None, 1, 2),
        "colour": cut(color["name"], 40),
        "legend": _legend(color),
        "scale": color["kind"] == "scale",
        "ends": [f"{end:.4g}" for end in pair(color["ends"]) or ()],
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
    spots = charts.fitted(spots, SIZE)
    radius = 2.4 if len(spots) > 200 else 3.2
    prefix, wheel = ("q", STEPS) if kind == "scale" else ("c", charts.COLORS)
    marks = []
    for i, (x, y) in enumerate(spots.tolist()):
        code = codes[i]
        name = "none" if not isinstance(code, int) else f"{prefix}{code % wheel}"
        held = " held" if i >= n_fitted else ""
        marks.append(tag("circle", class_=name + held, cx=round(x, 1), cy=round(y, 1), r=radius))
    said = f"{label}: where it places {len(spots):,} rows"
    return tag(
        "svg",
        *marks,
        class_="picture",
        viewBox=f"0 0 {SIZE:g} {SIZE:g}",
        role="img",
        aria_label=said,
    )


def _legend(color: View) -> list[View]:
    if color["kind"] == "scale":
        return []
    return [
        {"name": cut(name, 30) or "(empty)", "swatch": charts.swatch(code % charts.COLORS)}
        for code, name in enumerate(color["names"][:LEGEND])
    ]


# Numbers of neighbors, spectra, protocol


def counts_view(comparison: Comparison) -> View:
    """Neighbors kept for several numbers of neighbors."""
    counts = [str(c) for c in comparison.protocol["looked_at"]]
    methods = [m for m in comparison.methods if m.get("by_neighbors") and m["status"] != "failed"]
    if len(counts) < 2 or not methods:
        return {"empty": "One number of neighbors was counted only: there are too few rows."}
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
                        "best": (share := number(m["by_neighbors"].get(c)) or 0.0) >= best[c],
                        "bar": charts.bar(
                            share, 1.0, f"{comparison.label(m['name'])}, {c} neighbors"
                        ),
                    }
                    for c in counts
                ],
            }
            for m in methods[:LEARNERS]
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
    view = protocol_view(comparison)
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
        else f"{percent(gain)} of the neighbors that PCA loses",
    }
    facts = [(title, own.get(title, value)) for title, value in view["facts"]]
    if settings:
        facts.append(("Settings", listed([cut(text, 60) for text in settings], 12)))
    return view | {"facts": facts}
