"""What maps of tensors look like: factors, eigen-tensors, and what is kept of a few images."""

from __future__ import annotations

from typing import Any

from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison, is_picture
from nearfar.app.report.words import number, percent

View = dict[str, Any]

PANELS = 6
#: Of each panel, at most: eigen-tensors, samples, modes, and columns of a factor.
EIGEN, SAMPLES, MODES, CURVES = 8, 6, 5, 4


def tensors_view(comparison: Comparison) -> View | None:
    """A panel for each map of tensors, the best first; None where there is none."""
    found = comparison["tensors"]
    methods = sorted(comparison.learners, key=lambda method: method is not comparison.best)
    names = [method["name"] for method in methods if found.get(method["name"])]
    if not names:
        return None
    return {
        "panels": [_panel(comparison, name, found[name]) for name in names[:PANELS]],
        "more": max(0, len(names) - PANELS),
        "hidden": not comparison.shows_rows,
    }


def _panel(comparison: Comparison, name: str, found: View) -> View:
    shape, kept = (_sizes(found.get(key)) for key in ("shape", "kept"))
    share, n_features = number(found.get("share")), number(found.get("n_features"))
    samples = found.get("samples") if comparison.shows_rows else None
    return {
        "label": comparison.label(name),
        "shape": shape,
        "kept": kept,
        "n_features": "" if n_features is None else f"{n_features:,.0f}",
        "share": "" if share is None else percent(share),
        "eigen": [
            {"image": one.get("picture"), "share": percent(number(one.get("share")))}
            for one in (found.get("eigen") or [])[:EIGEN]
            if is_picture(one.get("picture"))
        ],
        "samples": [
            {
                "row": comparison.row_name(one.get("row")) or one.get("row"),
                "original": one.get("original"),
                "rebuilt": one.get("rebuilt"),
            }
            for one in (samples or [])[:SAMPLES]
            if is_picture(one.get("original")) and is_picture(one.get("rebuilt"))
        ],
        "modes": [
            _mode(place, one) for place, one in enumerate((found.get("factors") or [])[:MODES], 1)
        ],
    }


def _mode(place: int, found: View) -> View:
    """One mode: its lengths, and the first columns of its factor as curves."""
    curves = []
    for column, line in enumerate((found.get("columns") or [])[:CURVES], 1):
        values = [number(value) or 0.0 for value in line]
        if values:
            curves.append(charts.sparkline(values, f"Mode {place}, column {column} of the factor"))
    return {
        "place": place,
        "length": f"{number(found.get('length')) or 0:,.0f}",
        "kept": f"{number(found.get('n_columns')) or 0:,.0f}",
        "curves": curves,
    }


def _sizes(values: Any) -> str:
    """Lengths of modes.

    >>> _sizes([32, 32])
    '32 × 32'
    """
    return " × ".join(f"{number(value) or 0:.0f}" for value in (values or [])[:MODES])
