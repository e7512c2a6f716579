"""How much each raw column counts in a linear map of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

# Numbers of a linear map that are looked at for its weights, at most.
_MOST_CELLS = 20_000_000


def column_shares(
    chain: Pipeline | None,
    rows: Any,
    origins: Callable[[Any], list[int]] | None,
    n_columns: int,
) -> list[float] | None:
    """Share of each raw column in the squared distance of two random rows, each on its own.

    For a linear chain with map A, fitted to these rows: (A'A)_jj times the variance of column j,
    summed over the columns that a category became, scaled to sum to one.
    """
    if chain is None or "learner" not in chain.named_steps:
        return None
    learner = chain.named_steps["learner"]
    if getattr(learner, "_n_features_out", 0) * getattr(learner, "n_features_in_", 0) > _MOST_CELLS:
        return None  # of tensors the map of flat rows is made only to be asked for
    components = getattr(learner, "components_", None)
    scaler = chain.named_steps.get("scale")
    if not isinstance(components, np.ndarray) or components.ndim != 2:
        return None
    if scaler is not None and not hasattr(scaler, "scale_"):
        return None  # not linear
    prepare = chain.named_steps.get("prepare")
    X = np.asarray(rows if prepare is None else prepare.transform(rows))
    reduce = chain.named_steps.get("reduce")
    if reduce is not None:
        components = components @ reduce.components_
    after = chain.named_steps.get("after")
    if after is not None:
        components = after.components_ @ components
    if X.shape[1] != components.shape[1]:
        return None
    spread = X.astype(np.float64).std(axis=0)
    if scaler is not None:
        spread = spread / scaler.scale_
    parts = (components.astype(np.float64) ** 2).sum(axis=0) * spread**2
    if prepare is not None and origins is not None:
        parts = np.bincount(origins(prepare), parts, minlength=n_columns)
    total = parts.sum()
    if not (np.isfinite(total) and total > 0):
        return None
    return [float(part) for part in parts / total]
