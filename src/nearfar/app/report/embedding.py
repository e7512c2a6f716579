"""The page of an embedding: one self-contained HTML file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.compare.shown import FORMAT
from nearfar.app.report import charts
from nearfar.app.report.comparison import is_picture
from nearfar.app.report.ellipses import ellipses_for_script, ellipses_view, packed
from nearfar.app.report.markup import Markup, script_json, tag
from nearfar.app.report.page import figure, frame, render_page, write_page
from nearfar.app.report.words import (
    SPACE,
    cut,
    cut_lines,
    cut_list,
    number,
    percent,
    seconds,
    significant,
    unbroken,
)
from nearfar.words import format_count, format_small_percent

#: Shades from the least number to the largest, as many as the style sheet has.
SHADES = 16
UNKNOWN = 255
LEGEND = 60
# The static picture.
WIDTH, HEIGHT, LOWEST, EDGE = 1000.0, 620.0, 240.0, 22.0
# How the picture in three dimensions is first seen: turned by so much, tilted by so much.
TURN, TILT = 0.6, 0.35
HOVER_BYTES = 3_000_000


def write_embedding_document(
    document: dict[str, Any], path: str | os.PathLike[str], *, force: bool = False
) -> Path:
    """Write the page of what ``nearfar.app.embed.embedding.describe`` returned."""
    return write_page(
        lambda: render_embedding(document), path, force=force, example="embedding.html"
    )


def render_embedding(document: dict[str, Any]) -> str:
    """Draw the page of what ``nearfar.app.embed.embedding.describe`` returned."""
    if document.get("format") != FORMAT or "coordinates" not in document:
        raise ValueError("document should be what describe() of an embedding returned.")
    script = ["embedding.js", *(["ellipses.js"] if document["panel"] else [])]
    return render_page(
        "embedding.html.jinja", _page(document), style="embedding.css", script=script
    )


def _page(document: dict[str, Any]) -> dict[str, Any]:
    """Everything the template asks for."""
    told = document["answer"]
    lead = told["lead"]
    around = frame(document["name"], document["created"], document["versions"], "embed", "picture")
    return around | {
        "answer": {
            "verdict": told["verdict"],
            "word": told["word"],
            "head": unbroken(lead),
            "rest": unbroken(told["text"].removeprefix(lead)),
        },
        "stopped": document["status"] == "interrupted",
        "method": document["method"],
        "figures": _figures(document),
        "picture": picture_view(document),
        "certificate": _certificate(document["certificate"]),
        "quality": _quality(document["quality"]),
        "spectrum": _spectrum(document["spectrum"], document["coordinates"].shape[1]),
        "data": {"facts": _facts(document), "messages": cut_list(document["messages"], 30)},
        "warnings": cut_list(document["warnings"], 12, 600),
        "repeat": {
            "command": cut_lines(document["command"], 2000),
            "code": cut_lines(document["code"], 4000),
            "versions": [(cut(k, 30), cut(v, 30)) for k, v in document["versions"].items()],
        },
    }


def _facts(document: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        (f"{document['unit'].capitalize()}s", f"{document['n_rows']:,}"),
        ("Features", f"{document['n_features']:,}"),
        ("Method", f"{document['method']}({cut(document['parameters'], 200)})"),
    ]
    if document["seconds"] is not None:
        facts.append(("Fit", f"{seconds(document['seconds'])}{SPACE}s"))
    return facts


def _figures(document: dict[str, Any]) -> list[dict[str, str]]:
    """Large numbers below the picture."""
    figures = []
    proof, values, judged = document["certificate"], document["spectrum"], document["quality"]
    if proof["gap"] is not None:
        gap, note = max(proof["gap"], 0.0), f"residual {_fine_percent(proof['residual'])}"
        figures.append(figure("Gap to the best possible", _fine_percent(gap), note))
    if values["drawn"] is not None and values["dimension"] is not None:
        note = f"those drawn hold {percent(min(values['drawn'], 1.0))}"
        figures.append(figure("Dimensions by the spectrum", str(values["dimension"]), note))
    for measure in judged["measures"]:
        label, value = measure["label"], measure["value"]
        if measure["name"] == "intersection":
            note = f"of the {judged['n_neighbors']} nearest"
            figures.append(figure(label, percent(value), note))
        elif measure["name"] in ("trust", "trustworthiness"):
            figures.append(figure(label, f"{value:.3f}", "1 is the best"))
    return figures[:4]


def _fine_percent(share: float) -> str:
    """A share of any size."""
    return format_small_percent(share).replace("less than", "<").replace(" ", SPACE)


def _certificate(proof: dict[str, Any]) -> dict[str, Any]:
    facts = []
    if proof["gap"] is not None:
        facts = [
            ("Gap", _fine_percent(max(proof["gap"], 0.0))),
            ("Residual", _fine_percent(proof["residual"])),
            ("Reached", significant(proof["objective"], 6)),
            ("Proven bound", significant(proof["bound"], 6)),
        ]
    return {"kind": proof["kind"], "text": unbroken(proof["text"]), "facts": facts}


def _quality(judged: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": unbroken(judged["text"]),
        "k": judged["n_neighbors"],
        "rows": [
            {
                "label": measure["label"],
                "text": measure["text"],
                "value": f"{measure['value']:.3f}",
                "bar": charts.bar(
                    measure["value"], 1.0, f"{measure['label']}: {measure['value']:.3f} of 1"
                ),
            }
            for measure in judged["measures"]
        ],
    }


def _spectrum(values: dict[str, Any], n_drawn: int) -> dict[str, Any]:
    known = values["shares"] if values["kind"] == "variance" else values["values"]
    sizes = [abs(number(value) or 0.0) for value in known]
    largest = max(sizes, default=0.0)
    rows = []
    for i, (value, size) in enumerate(zip(values["values"], sizes, strict=True)):
        share = percent(size) if values["kind"] == "variance" else significant(value)
        rows.append(
            {
                "name": f"{i + 1}",
                "drawn": i < n_drawn,
                "last": i + 1 == values["dimension"],
                "value": significant(value),
                "share": share if values["kind"] == "variance" else "",
                "bar": charts.bar(size, largest, f"Coordinate {i + 1}: {share}"),
            }
        )
    return {
        "kind": values["kind"],
        "text": unbroken(values["text"]),
        "rows": rows,
        "more": values["more"],
    }


# The picture


def picture_view(document: dict[str, Any]) -> dict[str, Any]:
    """The static picture, its legend, and what the script needs."""
    places = _unit(np.asarray(document["coordinates"], dtype=np.float64))
    n, q = places.shape
    color = document["color"]
    codes, legend, ramp = _marks(color, n)
    edges = document["edges"]
    total = document["n_rows"]
    by = "" if color is None else f", coloured by {cut(color['name'], 40)}"
    noun = document["unit"]
    label = f"{document['method']}: {format_count(n, noun)} in {q} dimensions{by}"
    return {
        "label": label,
        "flat": q < 3,
        "svg": _static(places, codes, color, label),
        "color": None if color is None else cut(color["name"], 40),
        "legend": legend,
        "ramp": ramp,
        "unknown": bool((codes == UNKNOWN).any()) and color is not None,
        "cycled": len(legend) > charts.COLORS,
        "n_edges": 0 if edges is None else len(edges),
        "n_neighbors": document["n_neighbors"],
        "shown": n,
        "total": total,
        "images": bool(_images(document)),
        "hidden": document["contents"] is None,
        "noun": noun,
        "ellipses": ellipses_view(document["panel"]),
        "data": script_json(_for_script(document, places, codes)),
    }


def _unit(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two or three columns, the middle at 0, the widest from -1 to 1: one unit for all axes."""
    if places.shape[1] == 1:
        places = np.column_stack([places, np.zeros(len(places))])
    low, high = places.min(axis=0), places.max(axis=0)
    half = float((high / 2 - low / 2).max()) or 1.0
    return np.asarray((places - (low / 2 + high / 2)) / half)


def _marks(
    color: dict[str, Any] | None, n: int
) -> tuple[NDArray[np.uint8], list[dict[str, Any]], dict[str, Any] | None]:
    """A code for each row, the legend of classes, and the scale of numbers."""
    if color is None:
        return np.zeros(n, np.uint8), [], None
    if color["kind"] == "classes":
        codes = np.where(color["codes"] < 0, UNKNOWN, color["codes"]).astype(np.uint8)
        sizes = np.bincount(codes, minlength=256)
        legend = [
            {
                "code": code,
                "name": cut(name, 40) or "(empty)",
                "swatch": charts.swatch(code),
                "rows": f"{sizes[code]:,}",
            }
            for code, name in enumerate(color["classes"][:LEGEND])
            if sizes[code]
        ]
        return codes, legend, None
    values = np.asarray(color["values"], dtype=np.float64)
    known = np.isfinite(values)
    codes = np.full(n, UNKNOWN, np.uint8)
    if not known.any():
        return codes, [], None
    low, high = float(values[known].min()), float(values[known].max())
    least, most = np.percentile(values[known], [2, 98]).tolist()
    # A few far values would leave one shade for all others.
    outside = high - low > 5 * (most - least) > 0
    if outside:
        low, high = least, most
    span = high - low
    shares = np.clip((values[known] - low) / span, 0, 1) if span > 0 else np.full(known.sum(), 0.5)
    codes[known] = np.minimum((shares * SHADES).astype(np.int64), SHADES - 1)
    ends = [significant(value) for value in (low, (low + high) / 2, high)]
    if outside:
        ends[0], ends[2] = f"≤ {ends[0]}", f"≥ {ends[2]}"
    return codes, [], {"ends": ends, "svg": _ramp(ends)}


def _ramp(ends: list[str]) -> Markup:
    size = {"y": 0, "width": 10.5, "height": 12, "fill": "currentColor"}
    cells = [tag("rect", class_=f"n{i}", x=float(i * 10), **size) for i in range(SHADES)]
    return tag(
        "svg",
        *cells,
        class_="ramp",
        viewBox=f"0 0 {SHADES * 10} 12",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"Colours from {ends[0]} to {ends[2]}",
    )


def mark_size(n: int) -> float:
    """The radius of a mark, in pixels of a picture 1000 wide."""
    return float(np.clip(28 / max(n, 1) ** 0.3, 1.5, 6.0))


def _static(
    places: NDArray[np.float64], codes: NDArray[np.uint8], color: dict[str, Any] | None, label: str
) -> Markup:
    """The picture without script: one path for each colour, so that thousands of points are few."""
    if places.shape[1] == 3:
        places = _turned(places)
    spread = np.maximum(np.ptp(places[:, :2], axis=0), 1e-12)
    middle = (places[:, :2].min(axis=0) + places[:, :2].max(axis=0)) / 2
    # Lower where the picture is long and thin.
    height = float(np.clip(WIDTH * spread[1] / spread[0] + 4 * EDGE, LOWEST, HEIGHT))
    scale = float(((np.array([WIDTH, height]) - 2 * EDGE) / spread).min())
    at = (places[:, :2] - middle) * [scale, -scale] + [WIDTH / 2, height / 2]
    size = mark_size(len(places))
    numbers = color is not None and color["kind"] == "numbers"
    paths = []
    for code in np.unique(codes).tolist():
        spots = np.round(at[codes == code], 1).tolist()
        name = "unknown" if code == UNKNOWN else f"n{code}" if numbers else f"s{code % 10}"
        shape = charts.SHAPES[code // charts.COLORS % len(charts.SHAPES)]
        if numbers or code == UNKNOWN or not shape:
            d = "".join(f"M{x:g} {y:g}h0" for x, y in spots)
            paths.append(tag("path", class_=f"dot {name}", d=d, stroke_width=2 * size))
        else:
            d = "".join(f"M{x:g} {y:g}{shape}" for x, y in spots)
            paths.append(tag("path", class_=f"shape {name}", d=d))
    return tag(
        "svg",
        *paths,
        class_="still",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=label,
    )


def _turned(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """As the script first shows three dimensions: turned about the upright, then tilted."""
    turn = np.array([[np.cos(TURN), 0, np.sin(TURN)], [0, 1, 0], [-np.sin(TURN), 0, np.cos(TURN)]])
    tilt = np.array([[1, 0, 0], [0, np.cos(TILT), -np.sin(TILT)], [0, np.sin(TILT), np.cos(TILT)]])
    return np.asarray(places @ (tilt @ turn).T)


def _for_script(
    document: dict[str, Any], places: NDArray[np.float64], codes: NDArray[np.uint8]
) -> dict[str, Any]:
    """Numbers as base64, texts as lists."""
    color, drawn = document["color"], document["drawn"]
    n = len(places)
    edges = document["edges"]
    found: dict[str, Any] = {
        "n": n,
        "q": places.shape[1],
        "turn": [TURN, TILT],
        "size": mark_size(n),
        "places": packed(places.astype("<f4")),
        "codes": packed(codes),
        "rows": None if n == document["n_rows"] else packed(drawn.astype("<u4")),
        "numbers": color is not None and color["kind"] == "numbers",
        "color": None if color is None else cut(color["name"], 40),
        "names": [],
        "values": None,
        "edges": None if edges is None else packed(np.asarray(edges).astype("<u4")),
        "columns": [],
        "cells": [],
        "n_ids": (document["contents"] or {}).get("n_ids", 0),
        "images": _images(document),
        "shapes": list(charts.SHAPES),
        "noun": document["unit"].capitalize(),
        "titles": None,
        "ellipses": None,
        **ellipses_for_script(document["panel"]),
    }
    if color is not None and color["kind"] == "classes":
        found["names"] = [cut(name, 40) for name in color["classes"]]
    elif color is not None:
        found["values"] = packed(np.asarray(color["values"]).astype("<f4"))
    if document["contents"] is not None and "columns" in document["contents"]:
        used = 0
        for name, cells in document["contents"]["columns"].items():
            texts = [cut(cell, 24) for cell in cells]
            used += sum(map(len, texts)) + 3 * n
            if used > HOVER_BYTES and found["columns"]:
                break
            found["columns"].append(cut(name, 30) or "(no name)")
            found["cells"].append(texts)
    return found


def _images(document: dict[str, Any]) -> list[str | None]:
    contents = document["contents"]
    if contents is None:
        return []
    images = contents.get("images") or []
    return [image if is_picture(image) else None for image in images]
