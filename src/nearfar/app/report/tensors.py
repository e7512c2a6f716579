"""Estimators of tensors: factors, eigen-tensors and what maps keep; weights of classifiers."""

from __future__ import annotations

from typing import Any

from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison, is_picture
from nearfar.app.report.words import cut, number, percent

View = dict[str, Any]

PANELS = 6
#: Of each panel, at most: eigen-tensors, samples, modes, columns of a factor, and weight tensors.
EIGEN, SAMPLES, MODES, CURVES, WEIGHTS = 8, 6, 5, 4, 12


def tensors_view(comparison: Comparison) -> View | None:
    """Panels of maps of tensors, the best first, and of classifiers; None where there is none."""
    found = comparison["tensors"]
    methods = sorted(comparison.methods, key=lambda method: method is not comparison.best)
    names = [method["name"] for method in methods if found.get(method["name"])]
    machines = [name for name in names if "weights" in found[name]]
    names = [name for name in names if "weights" not in found[name]]
    if not names and not machines:
        return None
    return {
        "panels": [_panel(comparison, name, found[name]) for name in names[:PANELS]],
        "more": max(0, len(names) - PANELS),
        "machines": [_machine(comparison, name, found[name]) for name in machines[:PANELS]],
        "more_machines": max(0, len(machines) - PANELS),
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


def _machine(comparison: Comparison, name: str, found: View) -> View:
    """A classifier: the weight tensor of each of its problems, and who is on which side."""
    weights = [one for one in found.get("weights") or [] if is_picture(one.get("picture"))]
    shown = weights[:WEIGHTS]
    n_problems = int(number(found.get("n_problems")) or len(weights))
    return {
        "label": comparison.label(name),
        "shape": _sizes(found.get("shape")),
        "rank": f"{number(found.get('rank')) or 1:.0f}",
        "n_problems": f"{n_problems:,}",
        "several": n_problems > 1,
        "weights": [
            {
                "image": one["picture"],
                "light": cut(str(one.get("light")), 20),
                "rest": one.get("dark") is None,
                "dark": "the rest" if one.get("dark") is None else cut(str(one["dark"]), 20),
            }
            for one in shown
        ],
        "more": max(0, n_problems - len(shown)) if shown else 0,
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
