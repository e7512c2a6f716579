"""The picture of sets in the report of a comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.report.comparison import Comparison
from nearfar.app.report.ellipses import metric_words, pairs_of
from nearfar.app.report.embedding import picture_view
from nearfar.words import count

# Codes of marks go from 0 to 254.
_MOST_CLASSES = 254


def sets_view(comparison: Comparison) -> dict[str, Any] | None:
    """Each set a mark, and the ellipses; None where no sets were compared."""
    found = comparison["sets"]
    if not found:
        return None
    rows = found["rows"]
    classes = comparison.data["classes"]
    codes = np.array([comparison.labels.get(row, -1) for row in rows])
    columns = {"vectors": [f"{size:,}" for size in found["sizes"]], **_predicted(comparison, rows)}
    color = None
    if len(classes) <= _MOST_CLASSES:
        name = comparison.data["target"] or "label"
        color = {"name": name, "kind": "classes", "classes": classes, "codes": codes}
    neighbors = np.asarray(found["neighbors"])
    document = {
        "method": "Sets",
        "unit": comparison.noun,
        "coordinates": np.asarray(found["coordinates"]),
        "color": color,
        "edges": pairs_of(neighbors),
        "n_neighbors": int(neighbors.shape[1]),
        "n_rows": found["n_sets"],
        "drawn": np.asarray(rows),
        "contents": {"columns": columns, "n_ids": 0} if comparison.shows_rows else None,
        "sets": found,
    }
    whose = f", the dissimilarity of {found['method']}" if found.get("method") else ""
    rule = (
        f"Each mark is a set, placed so that distances in the picture are near to {_by(found)}"
        f"{whose}. Labels colour it and place nothing; no error of this report was measured on it."
    )
    few = len(rows) < found["n_sets"]
    if few:
        rule += f" A random {len(rows):,} of {count(found['n_sets'], 'set')} are drawn."
    return {"rule": rule, "picture": picture_view(document)}


def _by(found: dict[str, Any]) -> str:
    units = " of standardised vectors" if found["standardized"] else ""
    return metric_words(found["metric"]) + units


def _predicted(comparison: Comparison, rows: list[int]) -> dict[str, list[str]]:
    """What held-out sets were taken for, by the reference and by the best method."""
    found = {}
    for method in (comparison.reference, comparison.best):
        guesses = {} if method is None else comparison.predicted(method["name"])
        if method is not None and guesses:
            texts = [comparison.class_name(guesses.get(row)) for row in rows]
            found[f"by {comparison.label(method['name'])}"] = texts
    return found
