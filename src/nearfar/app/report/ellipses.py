"""Marks that stand for many vectors: the ellipse of a chosen one beside its neighbors'."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.report.words import cut, percent

#: Marks whose ellipses a page stores at most, in the order drawn: 5 numbers of 4 bytes each.
MOST_ELLIPSES = 20_000


def ellipses_view(panel: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the panel says; None where marks have none."""
    if panel is None:
        return None
    n = len(panel["sizes"])
    stored = 0 if panel["ellipses"] is None else min(n, MOST_ELLIPSES)
    neighbors = np.asarray(panel["neighbors"])
    return {
        **panel["words"],
        "n_neighbors": int(neighbors.shape[1]) if neighbors.ndim == 2 else 0,
        "stored": stored,
        "drawn": n,
        "hidden": panel["ellipses"] is None,
    }


def ellipses_for_script(panel: dict[str, Any] | None) -> dict[str, Any]:
    """What the script needs: names, sizes, ellipses and neighbors of the marks drawn."""
    if panel is None:
        return {}
    ellipses, names = panel["ellipses"], panel["names"]
    neighbors = np.asarray(panel["neighbors"])
    found: dict[str, Any] = {
        "titles": None if names is None else [cut(name, 40) for name in names],
        "sizes": packed(np.asarray(panel["sizes"]).astype("<u4")),
        "n_neighbors": int(neighbors.shape[1]) if neighbors.ndim == 2 else 0,
        "axes": [f"direction {i + 1} ({percent(share)})" for i, share in enumerate(panel["plane"])],
        "metric": panel["words"]["metric"],
    }
    if ellipses is not None:
        found |= {
            "ellipses": packed(np.asarray(ellipses)[:MOST_ELLIPSES].astype("<f4")),
            "neighbors": packed(neighbors.astype("<u4")),
            "dissimilarities": packed(np.asarray(panel["dissimilarities"]).astype("<f4")),
        }
    return found


def pairs_of(neighbors: NDArray[Any]) -> NDArray[Any]:
    """Edges from each mark to its neighbors, each once."""
    n, k = neighbors.shape
    ends = np.column_stack([np.repeat(np.arange(n), k), neighbors.ravel()])
    return np.asarray(np.unique(np.sort(ends, axis=1), axis=0))


def packed(array: NDArray[Any]) -> str:
    """An array as text for a script."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
