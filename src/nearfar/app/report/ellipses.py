"""Sets of vectors on a page: what the picture and the panel of ellipses need."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.report.words import cut, percent
from nearfar.words import percent as with_space

#: Sets whose ellipses a page stores at most, in the order drawn: 5 numbers of 4 bytes each.
MOST_ELLIPSES = 20_000
_METRICS = {
    "kl": "the Kullback-Leibler divergence, the mean of both ways",
    "jeffreys": "Jeffreys' divergence",
    "bhattacharyya": "the Bhattacharyya distance",
    "hellinger": "the Hellinger distance",
    "riemann": "the Riemannian distance of covariances",
    "jeffreys_riemann": "d_JR (Jeffreys and Riemann)",
    "bhattacharyya_riemann": "d_BR (Bhattacharyya and Riemann)",
    "mean": "the distance of the means alone",
}


def metric_words(metric: str) -> str:
    """A dissimilarity by name."""
    name = metric.removeprefix("sqrt_")
    words = _METRICS.get(name, metric)
    return f"the root of {words}" if name != metric else words


def plane_words(shares: list[float], standardized: bool) -> str:
    """What plane the ellipses lie in."""
    units = "standardised " if standardized else ""
    return (
        "Ellipses are those of the sets' Gaussians, at two standard deviations, ridge included, in "
        f"the plane of the first two principal directions of all {units}vectors, which hold "
        f"{with_space(sum(shares))} of their variance."
    )


def ellipses_view(panel: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the panel says; None of rows."""
    if panel is None:
        return None
    n = len(panel["sizes"])
    stored = 0 if panel["ellipses"] is None else min(n, MOST_ELLIPSES)
    neighbors = np.asarray(panel["neighbors"])
    return {
        "rule": plane_words(list(panel["plane"]), bool(panel["standardized"])),
        "metric": metric_words(panel["metric"]),
        "n_neighbors": int(neighbors.shape[1]) if neighbors.ndim == 2 else 0,
        "stored": stored,
        "drawn": n,
        "hidden": panel["ellipses"] is None,
    }


def ellipses_for_script(panel: dict[str, Any] | None) -> dict[str, Any]:
    """What the script needs: names, sizes, ellipses and neighbours of the sets drawn."""
    if panel is None:
        return {}
    ellipses, names = panel["ellipses"], panel["names"]
    neighbors = np.asarray(panel["neighbors"])
    found: dict[str, Any] = {
        "titles": None if names is None else [cut(name, 40) for name in names],
        "sizes": packed(np.asarray(panel["sizes"]).astype("<u4")),
        "n_neighbors": int(neighbors.shape[1]) if neighbors.ndim == 2 else 0,
        "axes": [f"direction {i + 1} ({percent(share)})" for i, share in enumerate(panel["plane"])],
        "metric": metric_words(panel["metric"]),
    }
    if ellipses is not None:
        found |= {
            "ellipses": packed(np.asarray(ellipses)[:MOST_ELLIPSES].astype("<f4")),
            "neighbors": packed(neighbors.astype("<u4")),
            "dissimilarities": packed(np.asarray(panel["dissimilarities"]).astype("<f4")),
        }
    return found


def pairs_of(neighbors: NDArray[Any]) -> NDArray[Any]:
    """Edges from each set to its neighbours, each once."""
    n, k = neighbors.shape
    ends = np.column_stack([np.repeat(np.arange(n), k), neighbors.ravel()])
    return np.asarray(np.unique(np.sort(ends, axis=1), axis=0))


def packed(array: NDArray[Any]) -> str:
    """An array as text for a script."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
