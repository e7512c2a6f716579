"""The page of one row: its label in a sentence, its metric, its voters and their distances."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearfar.app.compare.explaining import SAME_PLACE, distance_words
from nearfar.app.report import charts
from nearfar.app.report.charts import figure
from nearfar.app.report.markup import Markup, tag
from nearfar.app.report.page import frame, render_page, write_page
from nearfar.app.report.words import cut, significant, unbroken, whole
from nearfar.base.relevance import format_fraction

View = dict[str, Any]

#: Colours there are for features; what comes after is grey, as all others are.
COLORS = 8


def write_explanation(
    document: dict[str, Any], path: str | os.PathLike[str], *, force: bool = False
) -> Path:
    """Write the page of an explained row.

    Parameters
    ----------
    document : dict
        What ``nearfar explain`` found.
    path : path-like
        Where the page goes.
    force : bool, default=False
        Replace a file that is there. Otherwise that raises ``FileExistsError``.

    Returns
    -------
    Path
        Where the page is.
    """
    return write_page(lambda: render_explanation(document), path, force=force, example="why.html")


def render_explanation(document: dict[str, Any]) -> str:
    """The page of an explained row, which needs no network."""
    head, _, rest = str(document["sentence"]).partition("; ")
    around = frame(document["name"], document["created"], document["versions"], "explain", "answer")
    true, label = document["true"], document["explained"]["label"]
    verdict = "" if true is None else "right" if true == label else "wrong"
    view = {
        "head": cut(head[:1].upper() + head[1:], 300),
        "rest": unbroken(cut(rest, 600)),
        "verdict": {"right": "use", "wrong": "inconclusive"}.get(verdict, "keep"),
        "word": {"right": "As the file says", "wrong": "Not as the file says"}.get(
            verdict, "Label not known"
        ),
        "file_label": cut(true) if verdict == "wrong" else "",
        "one": explained_view(document["explained"]),
        "facts": _facts(document),
        "line": cut(document["command"], 400),
    }
    return render_page("explanation.html.jinja", around | view, style="explanation.css", script=[])


def _facts(document: dict[str, Any]) -> list[tuple[str, str]]:
    fitted = cut(document["fitted_to"])
    if document["n_rows"] is not None:
        fitted = f"{fitted}, {whole(document['n_rows'])} rows"
    found = [
        ("Model", cut(document["model"])),
        ("Method", cut(document["method"])),
        ("Setting", cut(document["setting"], 200)),
        ("Fitted to", fitted),
        ("Target", cut(document["target"])),
    ]
    return [(title, text) for title, text in found if text]


def explained_view(explained: dict[str, Any]) -> View:
    """What a template needs of an explained row: bars of the metric, and of each voter."""
    names = [cut(name, 60) for name in explained["features"]]
    here = explained["here"]
    overall = None if explained["one_metric"] else explained["overall"]
    largest = max([*here, *(overall or [])], default=0.0)
    others = explained["others"]
    features = []
    for j, name in enumerate(names):
        against = None if overall is None else overall[j]
        features.append(
            {
                "name": name,
                "here": format_fraction(here[j]),
                "overall": None if against is None else format_fraction(against),
                "swatch": _swatch(j, others),
                "chart": _relevance_bar(j, others, name, here[j], against, largest),
            }
        )
    voters = explained["voters"]
    low = min((sum(min(part, 0.0) for part in one["parts"]) for one in voters), default=0.0)
    high = max((sum(max(part, 0.0) for part in one["parts"]) for one in voters), default=0.0)
    rows = []
    for i, (name, voter) in enumerate(zip(explained["names"], voters, strict=True)):
        square = sum(voter["parts"])
        rows.append(
            {
                "name": cut(name, 40),
                "label": cut(voter["label"], 40),
                "agrees": voter["agrees"],
                "decides": i < explained["n_deciding"],
                "distance": significant(voter["distance"]),
                "chart": _parts_bar(names, others, voter["parts"], low, high),
                "tip": _tip(names, voter["parts"]),
                "adds_up": abs(square - voter["distance"] ** 2)
                <= 1e-6 * max(voter["distance"] ** 2, high - low),
            }
        )
    return {
        "label": cut(explained["label"], 40),
        "features": features,
        "one_metric": explained["one_metric"],
        "overall": overall is not None,
        "voters": rows,
        "shrunk": explained["n_deciding"] < len(voters),
        "adds_up": all(row["adds_up"] for row in rows),
        "same_place": SAME_PLACE if voters and not any(voters[0]["parts"]) else "",
        "negative": low < -1e-9 * max(high, 1e-300),
    }


# ---------------------------------------------------------------------- charts


def _shade(j: int, others: int | None) -> str:
    return "f-rest" if j == others or j >= COLORS else f"f{j}"


def _swatch(j: int, others: int | None) -> Markup:
    square = tag("rect", class_=_shade(j, others), width=10, height=10, rx=2)
    return tag("svg", square, class_="swatch", viewBox="0 0 10 10", width=11, height=11)


def _relevance_bar(
    j: int, others: int | None, name: str, here: float, overall: float | None, largest: float
) -> Markup:
    """A bar for the share at the row, and a line across it for that over all rows."""
    width = 0.0 if largest <= 0 else 100 * here / largest
    shape = {"y": 4, "height": 12, "rx": 2}
    pieces = [tag("rect", class_=_shade(j, others), x="0", width=f"{width:.2f}%", **shape)]
    label = f"{name}: {format_fraction(here)} here"
    if overall is not None and largest > 0:
        x = f"{100 * overall / largest:.2f}%"
        pieces.append(tag("line", class_="over-all", x1=x, x2=x, y1=0, y2=20))
        label += f", {format_fraction(overall)} over all rows"
    return figure(pieces, 20, label, class_="bars relevance")


def _parts_bar(
    names: Sequence[str], others: int | None, parts: Sequence[float], low: float, high: float
) -> Markup:
    """Parts of a squared distance side by side; what takes away lies left of zero."""
    scale = charts.Scale(min(low, 0.0), max(high, 1e-300))
    pieces, above, below = [], 0.0, 0.0
    for j, part in enumerate(parts):
        start, end = (above, above + part) if part >= 0 else (below + part, below)
        above, below = (end, below) if part >= 0 else (above, start)
        left, right = scale.percent(start), scale.percent(end)
        if right - left >= 0.02:
            place = {"x": f"{left:.2f}%", "width": f"{right - left:.2f}%"}
            pieces.append(tag("rect", class_=_shade(j, others), y=2, height=14, **place))
    if low < 0:
        zero = scale.at(0.0)
        pieces.append(tag("line", class_="zero", x1=zero, x2=zero, y1=0, y2=18))
    return figure(pieces, 18, _tip(names, parts), class_="bars parts")


def _tip(names: Sequence[str], parts: Sequence[float]) -> str:
    """The largest parts of a distance in words."""
    return distance_words(names, parts, 4) or "at the same place"
