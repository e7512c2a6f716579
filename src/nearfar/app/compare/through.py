"""Rows through the steps of a fitted chain."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline


def map_through(chain: Pipeline, X: Any) -> Any:
    """Rows through all steps, also where the last one keeps nothing that it learnt.

    Pipeline.transform would call such a one not fitted.
    """
    for _, step in chain.steps:
        if isinstance(step, Pipeline):
            X = map_through(step, X)
        elif not isinstance(step, str) and step is not None:  # "passthrough"
            X = step.transform(X)
    return X
