"""Maps of tensors as embeddings: so many coordinates in all, shared out among the modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from nearfar.app.compare.embeddings import in_modes
from nearfar.base import Learner
from nearfar.datasets.table import Table
from nearfar.words import format_method_name


def told(learner: Learner, table: Table) -> Learner:
    """The learner, told the shape of the rows; refused where they have none, or no labels."""
    name = format_method_name(type(learner).__name__)
    if table.tensor_shape is None:
        raise ValueError(
            f"--method {name} takes tensors, and the rows of {table.name} have no shape: say it "
            "with --images HxW."
        )
    if learner.learner_tags.supervised and table.y is None:
        raise ValueError(f"--method {name} learns from labels: name their column with --target.")
    return learner.set_params(tensor_shape=table.tensor_shape)


def fit_best(
    learner: Learner, asked: int, fit: Callable[[Learner], tuple[list[str], bool]]
) -> tuple[Learner, list[str], bool, str]:
    """The learner with so many coordinates, in the modes where its objective is largest.

    Parameters
    ----------
    learner : Learner
        Not fitted; it knows the shape.
    asked : int
        Coordinates in all.
    fit : callable
        Fits a learner; what was warned of, and whether it was stopped.

    Returns
    -------
    learner, warned, stopped, note
        The best, fitted, with what ``fit`` returned, and how the coordinates are shared out.
    """
    allowed = type(learner).parameters["n_components"]
    if not any(kind.accepts((1, 1)) for kind in allowed):  # one number for all modes
        return learner.set_params(n_components=asked), *fit(learner), ""
    best, largest = None, -np.inf
    for sizes in in_modes(asked, learner.get_params()["tensor_shape"]):
        one = clone(learner).set_params(n_components=sizes)
        found = fit(one)
        reached = _objective(one)
        if best is None or reached > largest:
            best, largest = (one, *found), reached
        if found[1]:
            break
    assert best is not None
    said = " × ".join(map(str, best[0].get_params()["n_components"]))
    return *best, f"The modes keep {said} coordinates: so its objective is largest."


def _objective(learner: Any) -> float:
    values = (getattr(learner, "history_", None) or {}).get("objective", ())
    return float(values[-1]) if len(values) else -np.inf
