"""The leaderboard as a file of comma-separated values, inside the page."""

from __future__ import annotations

import csv
import io
import re
from typing import Any
from urllib.parse import quote

from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.words import cut, number, pair

HEADS = (
    "method role status error error_low error_high gain gain_low gain_high p_holm recommended "
    "folds_used folds_planned fit_seconds predict_seconds peak_mb reason"
)


def csv_text(comparison: Comparison, methods: list[Method]) -> str:
    """A line for each method, numbers in full; fractions, not percentages."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = HEADS.split()
    measured = {"embeddings": "kept", "pairs": "auc"}.get(comparison["kind"], "error")
    heads[heads.index("error") : heads.index("gain")] = [
        measured,
        f"{measured}_low",
        f"{measured}_high",
    ]
    writer.writerow(heads)
    for method in methods:
        ends, gains = (
            pair(method["interval"]) or ("", ""),
            pair(method["gain_interval"]) or ("", ""),
        )
        writer.writerow(
            [
                _text(comparison.label_inside(method["name"])),
                _text(method["role"]),
                _text(method["status"]),
                _number(method.get(measured)),
                *ends,
                _number(method["gain"]),
                *gains,
                _number(method["p_holm"]),
                "yes" if method["recommended"] else "no",
                _number(method["folds_used"]),
                len(comparison["folds"]),
                *(_number(method[key]) for key in ("fit_seconds", "predict_seconds", "peak_mb")),
                _text(method["reason"]),
            ]
        )
    return file.getvalue()


def csv_address(comparison: Comparison, methods: list[Method]) -> str:
    """The address of that text, which asks nothing of a network."""
    return "data:text/csv;charset=utf-8," + quote(csv_text(comparison, methods))


def csv_name(comparison: Comparison) -> str:
    """The name of its file."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", cut(comparison.data["name"], 40)).strip("-")
    return f"{name or 'data'}-leaderboard.csv"


def _number(value: Any) -> Any:
    found = number(value)
    return "" if found is None else int(found) if isinstance(value, int) else found


def _text(value: Any) -> str:
    """Text that a spreadsheet does not take for a formula."""
    text = cut(value, 200)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
