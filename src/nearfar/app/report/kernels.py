"""What base kernels have of a learned one, and how stable that is."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.compare.kernel_shares import SHOWN, gap_words
from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.words import cut, number, percent

View = dict[str, Any]

PANELS = 8


def kernels_view(comparison: Comparison) -> View | None:
    """A panel for each method that learns a kernel; None where there is none."""
    found = comparison["kernels"]
    names = [m["name"] for m in comparison.methods if _table(found.get(m["name"])) is not None]
    if not names:
        return None
    return {
        "panels": [_panel(comparison.label(name), found[name]) for name in names[:PANELS]],
        "more": max(0, len(names) - PANELS),
    }


def _table(found: Any) -> Any:
    """Shares by fold and kernel; None where they are no numbers."""
    if not isinstance(found, dict) or not isinstance(found.get("names"), list):
        return None
    try:
        table = np.array(found.get("shares"), dtype=float)
    except (TypeError, ValueError):
        return None
    fits = table.ndim == 2 and len(table) and table.shape[1] == len(found["names"]) > 0
    return table if fits and np.isfinite(table).all() else None


def _panel(label: str, found: View) -> View:
    table = _table(found)
    mean, low, high = table.mean(axis=0), table.min(axis=0), table.max(axis=0)
    largest = float(max(high.max(), 1e-9))
    shown = range(len(mean))
    if len(mean) > SHOWN:  # the largest, in their order
        shown = np.sort(np.argsort(-mean, kind="stable")[:SHOWN]).tolist()
    rows = []
    for i in shown:
        name, share = cut(found["names"][i], 60), percent(mean[i])
        ends: tuple[float, float] | None = (max(low[i], 0.0), max(high[i], 0.0))
        span = f"{100 * low[i]:.0f} to {100 * high[i]:.0f}"
        if len(table) == 1 or high[i] - low[i] < 0.005:
            span, ends = "", None
        chart = charts.bar(max(mean[i], 0.0), largest, f"{name}: {share}", ends)
        rows.append({"name": name, "share": share, "span": span, "chart": chart})
    return {
        "label": label,
        "rows": rows,
        "gap": gap_words(number(found.get("gap"))).removeprefix("; "),
        "folds": len(table),
        "more": len(mean) - len(rows),
    }
