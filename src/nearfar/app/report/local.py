"""Rules with a metric for each row: which features matter where, and why a row gets its label."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.report.comparison import Comparison
from nearfar.app.report.explanation import explained_view
from nearfar.app.report.words import cut, unbroken
from nearfar.base.relevance import format_fraction

View = dict[str, Any]

#: Of the section, at most: rules, and of each classes and features of its table.
PANELS, CLASSES, FEATURES = 5, 10, 15
#: Features with less in every class are left out, but not the first few.
LEAST, FEWEST = 0.01, 5


def local_view(comparison: Comparison) -> View | None:
    """Panels of rules with a metric for each row, the best first; None where there is none."""
    found = comparison["local"]
    methods = sorted(comparison.methods, key=lambda method: method is not comparison.best)
    names = [method["name"] for method in methods if found.get(method["name"])]
    if not names:
        return None
    return {
        "panels": [
            _panel(comparison, name, found[name], place)
            for place, name in enumerate(names[:PANELS])
        ],
        "more": [comparison.label(name) for name in names[PANELS:]],
        "hidden": not comparison.shows_rows,
    }


def _panel(comparison: Comparison, name: str, found: View, place: int) -> View:
    classes = sorted(found["classes"], key=lambda one: -one["n"])[:CLASSES]
    classes = sorted(classes, key=lambda one: one["code"])
    shares = np.array([found["overall"], *(one["shares"] for one in classes)], dtype=float)
    most = shares.max(axis=0)
    n_shown = min(FEATURES, max(FEWEST, int((most >= LEAST).sum())))
    order = np.argsort(-most, kind="stable")[:n_shown]
    # Those of most relevance over all first.
    order = order[np.argsort(-shares[0, order], kind="stable")]
    largest = float(shares.max(initial=0.0)) or 1.0
    rows = found["rows"] if comparison.shows_rows else []
    truth = dict(zip(comparison["held_out"]["rows"], comparison["held_out"]["true"], strict=False))
    return {
        "place": place,
        "label": comparison.label(name),
        "said": f"k = {found['k']}",
        "n_rows": f"{found['n_rows']:,}",
        "classes": [
            {"name": comparison.class_name(one["code"]), "n": f"{one['n']:,}"} for one in classes
        ],
        "more_classes": len(found["classes"]) - len(classes),
        "features": [
            {
                "name": cut(found["features"][j], 60),
                "cells": [_cell(share, largest) for share in shares[:, j].tolist()],
            }
            for j in order.tolist()
        ],
        "more_features": len(found["features"]) - len(order),
        "rows": [_row(comparison, one, truth) for one in rows],
    }


def _cell(share: float, largest: float) -> View:
    depth = round(85 * share / largest)
    return {"text": format_fraction(share), "shade": depth, "strong": depth > 55}


def _row(comparison: Comparison, found: View, truth: dict[int, int]) -> View:
    true = truth.get(found["row"])
    names = [_name(comparison, voter["row"]) for voter in found["voters"]]
    label = comparison.class_name(found["predicted"])
    return {
        "name": _name(comparison, found["row"]),
        "predicted": label,
        "right": true == found["predicted"],
        "true_label": comparison.class_name(true),
        "vote": cut(found["vote"], 100),
        "metric": unbroken(cut(found["metric"], 300)),
        "one": explained_view(found | {"names": names}),
    }


def _name(comparison: Comparison, row: int) -> str:
    return comparison.row_name(row) or f"{comparison.noun} {row}"
