"""What was compared, and how: the data, the protocol, the folds."""

from __future__ import annotations

import hashlib
from statistics import median
from typing import Any

from nearfar.app.report import charts
from nearfar.app.report.columns import columns_view
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.words import (
    NONE,
    SPACE,
    cut,
    cut_lines,
    cut_list,
    listed,
    moment,
    number,
    percent,
    seconds,
    whole,
)
from nearfar.words import format_count, format_tested

View = dict[str, Any]

COUNTED = 12  # classes whose sizes are drawn
BARS = 120  # of sizes of many classes
LINES = 50
FOLDS = 50
ROW_NUMBERS = 20_000  # written out in all folds together


def data_view(comparison: Comparison) -> View:
    """Size, columns left out, messages and warnings."""
    data, noun = comparison.data, comparison.noun
    groups, test, shape = data["groups"], data["test"], data["image_shape"]
    facts = [
        (f"{noun.capitalize()}s", whole(data["n_rows"])),
        *((cut(title), cut(value)) for title, value in data["facts"]),
        ("Features", whole(data["n_features"])),
        ("Classes", whole(len(data["classes"]) or None)),
        ("Target", cut(data["target"])),
        ("Groups", groups and f"{cut(groups['name'])} ({whole(groups['n'])})"),
        ("Time", cut(data["time"])),
        ("Test file", test and f"{cut(test['name'])} ({whole(test['n_rows'])} {noun}s)"),
        ("Images", shape and " × ".join(str(size) for size in shape[:3])),
    ]
    dropped, warned = data["dropped"], comparison["warnings"]
    return {
        "facts": _known(facts),
        "classes": _class_sizes(comparison),
        "classes_more": max(0, len(data["class_counts"]) - COUNTED),
        "all_sizes": _all_sizes(comparison),
        "columns": columns_view(comparison),
        "features": listed([cut(name, 40) for name in data["features"]], 30),
        "n_features": len(data["features"]),
        "messages": cut_list(data["messages"], LINES),
        "warnings": [
            {"kind": cut(warning.get("kind"), 40), "text": cut(warning.get("text"), 600)}
            for warning in warned[:LINES]
        ],
        "warnings_more": max(0, len(warned) - LINES),
        "dropped": [(cut(name, 60), cut(reason, 300)) for name, reason in dropped[:LINES]],
        "dropped_more": max(0, len(dropped) - LINES),
    }


def _class_sizes(comparison: Comparison) -> list[View]:
    """The classes, or the largest of many."""
    counts = [number(size) or 0.0 for size in comparison.data["class_counts"]]
    shown = sorted(range(len(counts)), key=lambda code: -counts[code])[:COUNTED]
    largest, total = max(counts, default=0.0), sum(counts) or 1.0
    rows = []
    for code in sorted(shown) if len(counts) <= COUNTED else shown:
        name, size = comparison.class_name(code), counts[code]
        said = f"{name}: {format_count(int(size), comparison.noun)}"
        row = {"name": name, "rows": f"{size:,.0f}", "share": percent(size / total)}
        rows.append(row | {"bar": charts.bar(size, largest, said)})
    return rows


def _all_sizes(comparison: Comparison) -> View | None:
    """The sizes of many classes side by side, the largest first."""
    counts = sorted((number(size) or 0.0 for size in comparison.data["class_counts"]), reverse=True)
    if len(counts) <= COUNTED:
        return None
    step = -(-len(counts) // BARS)
    middle = median(counts)
    words = f"{counts[0]:,.0f} in the largest, {middle:,.0f} in the middle one, {counts[-1]:,.0f}"
    said = f"{words} in the smallest of {len(counts):,} classes"
    return {"chart": charts.columns(counts[::step], f"Class sizes: {said}"), "said": said}


def _known(facts: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(title, value) for title, value in facts if value and value != NONE]


def protocol_view(comparison: Comparison) -> View:
    """How it was done, and how to do it again."""
    protocol, noun, fixed = comparison.protocol, comparison.noun, comparison.fixed
    gain, budget = number(protocol["min_gain"]), number(protocol["time_budget"])
    shared = f"corrected for folds that share training {noun}s"
    over = f"over the {format_tested(noun)}" if fixed else shared
    tuning = [cut(protocol[key], 400) for key in ("tuning", "tuning_note")]
    facts = [
        ("Test" if fixed else "Folds", cut(protocol["scheme"], 200)),
        ("Seed", whole(protocol["seed"])),
        ("Measure", cut(protocol["measure"], 80)),
        ("Intervals", f"{comparison.confidence}, {over}"),
        ("Smallest gain that counts", gain is not None and f"{percent(gain)} of the error"),
        ("Tuning", ": ".join(filter(None, tuning))),
        ("Units", cut(protocol["units"], 400)),
        ("Time budget", "none" if budget is None else _with_unit(budget)),
        ("Time used", _with_unit(comparison["seconds"])),
        ("Status", cut(comparison["status"], 80)),
        ("Machine", cut(comparison["machine"], 120)),
        ("Made", moment(comparison["created"])),
    ]
    versions = list(comparison["versions"].items())[:20]
    return {
        "noun": noun,
        "tested": format_tested(noun),
        "facts": _known(facts),
        "versions": [(cut(name, 40), cut(version, 40)) for name, version in versions],
        "notes": cut_list(protocol["notes"], LINES),
        "plan": cut_list(protocol["plan"], LINES),
        "command": cut_lines(comparison["command"], 4000).strip(),
        "code": cut_lines(comparison["code"]).strip("\n"),
        "folds": _folds(comparison),
        "folds_more": max(0, len(comparison["folds"]) - FOLDS),
    }


def _with_unit(value: Any) -> str:
    text = seconds(value)
    return text if text == NONE else f"{text}{SPACE}s"


def _folds(comparison: Comparison) -> list[View]:
    """Sizes and a fingerprint of each fold; row numbers too, where they are few."""
    folds = comparison["folds"]
    few = sum(len(fold.get("test") or []) for fold in folds) <= ROW_NUMBERS
    views = []
    for index, fold in enumerate(folds[:FOLDS]):
        listing = " ".join(map(str, sorted(fold.get("test") or [])))
        views.append(
            {
                "repeat": (fold.get("repeat") or 0) + 1,
                "fold": (fold.get("fold") or 0) + 1,
                "train": whole(fold.get("n_train")),
                "test": whole(fold.get("n_test")),
                "common": index in comparison["common_folds"],
                "print": hashlib.sha256(listing.encode()).hexdigest()[:12] if listing else NONE,
                "rows": listing if few else "",
            }
        )
    return views
