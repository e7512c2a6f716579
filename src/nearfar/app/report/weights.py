"""Which features the learned distances weigh, and how stable that is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import rankdata

from nearfar.app.report import charts
from nearfar.app.report.board import LEARNERS
from nearfar.app.report.comparison import Comparison, shares_by_fold
from nearfar.app.report.words import MINUS, cut, listed, percent
from nearfar.app.tables.images import data_uri

View = dict[str, Any]

FEATURES = 20


def weights_view(comparison: Comparison) -> View:
    """A panel for each learner that weighs features, the best first."""
    methods = sorted(comparison.learners, key=lambda method: method is not comparison.best)
    names = [method["name"] for method in methods]
    tables = {name: shares_by_fold(comparison["weights"].get(name)) for name in names}
    weighing = [name for name in names if tables[name] is not None]
    if not weighing:
        return {"empty": "No learner gives weights of features."}
    without = [comparison.label(name) for name in names if tables[name] is None]
    return {
        "panels": [_weights_panel(comparison, name, tables[name]) for name in weighing[:LEARNERS]],
        "without": listed(without),
        "without_many": len(without) > 1,
    }


def _weights_panel(comparison: Comparison, name: str, table: Any) -> View:
    features = comparison["weights"][name]["features"]
    mean, low, high = table.mean(axis=0), table.min(axis=0), table.max(axis=0)
    order = np.argsort(-mean, kind="stable")[:FEATURES]
    ranks = rankdata(-table, axis=1, method="average")
    largest = float(high[order].max())
    rows = []
    for i in order.tolist():
        feature, share = cut(features[i], 60), percent(mean[i])
        rows.append(
            {
                "feature": feature,
                "share": share,
                "ranks": _rank_range(ranks[:, i]),
                "chart": charts.bar(mean[i], largest, f"{feature}: {share}", (low[i], high[i])),
            }
        )
    return {
        "label": comparison.label(name),
        "rows": rows,
        "more": len(features) - len(rows),
        "rest": percent(max(0.0, 1.0 - float(mean[order].sum()))),
        "folds": len(table),
        "stability": _stability(ranks),
        "image": _weight_image(comparison, mean),
    }


def _rank_range(ranks: Any) -> str:
    low, high = round(ranks.min()), round(ranks.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _stability(ranks: Any) -> View | None:
    """Mean rank correlation (Spearman) between folds."""
    folds, width = ranks.shape
    if folds < 2 or width < 2 or not np.ptp(ranks, axis=1).all():
        return None
    mean = float(np.corrcoef(ranks)[np.triu_indices(folds, 1)].mean())
    words = [(0.9, "very stable"), (0.7, "stable"), (0.4, "partly stable"), (-1.1, "unstable")]
    word = next(word for bound, word in words if mean >= bound)
    return {"value": f"{mean:.2f}".replace("-", MINUS), "word": word}


def _weight_image(comparison: Comparison, mean: Any) -> str | None:
    """Weights of pixels as a picture, dark to light."""
    shape = comparison.data["image_shape"]
    if not shape or math.prod(shape) != mean.size or not comparison.shows_rows:
        return None
    pixels = mean.reshape(shape)
    pixels = pixels.sum(axis=2) if pixels.ndim == 3 else pixels
    return data_uri(255 * pixels / (pixels.max() or 1.0))
