"""The picture that a kind of data has in place of maps: each mark one of them, none held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.report.comparison import Comparison
from nearfar.app.report.ellipses import pairs_of
from nearfar.app.report.embedding import picture_view

# Codes of marks go from 0 to 254.
_MOST_CLASSES = 254


def kind_picture(comparison: Comparison) -> dict[str, Any] | None:
    """Marks, and what is shown of a chosen one; None where the document has maps."""
    found = comparison["picture"]
    if not found:
        return None
    rows, parts = found["rows"], found["words"]["parts"]
    classes = comparison.data["classes"]
    codes = np.array([comparison.labels.get(row, -1) for row in rows])
    columns = {parts: [f"{size:,}" for size in found["sizes"]], **_predicted(comparison, rows)}
    color = None
    if len(classes) <= _MOST_CLASSES:
        name = comparison.data["target"] or "label"
        color = {"name": name, "kind": "classes", "classes": classes, "codes": codes}
    neighbors = np.asarray(found["neighbors"])
    document = {
        "method": found["short"],
        "unit": comparison.noun,
        "coordinates": np.asarray(found["coordinates"]),
        "color": color,
        "edges": pairs_of(neighbors),
        "n_neighbors": int(neighbors.shape[1]),
        "n_rows": found["n_rows"],
        "drawn": np.asarray(rows),
        "contents": {"columns": columns, "n_ids": 0} if comparison.shows_rows else None,
        "panel": found,
    }
    heads = {key: found[key] for key in ("title", "short", "rule")}
    return heads | {"view": picture_view(document)}


def _predicted(comparison: Comparison, rows: list[int]) -> dict[str, list[str]]:
    """What each was taken for when held out, by the baseline and by the best method."""
    found = {}
    for method in (comparison.reference, comparison.best):
        guesses = {} if method is None else comparison.predicted(method["name"])
        if method is not None and guesses:
            texts = [comparison.class_name(guesses.get(row)) for row in rows]
            found[f"by {comparison.label(method['name'])}"] = texts
    return found
