"""From a raw table to neighbours in one fitted Pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from nearfar.app.compare.folds import Problem, tune
from nearfar.app.compare.methods import Method, Scale, baselines, learners
from nearfar.app.tables.columns import as_floats, choose_columns
from nearfar.app.tables.traps import check_target
from nearfar.datasets.tables import Table
from nearfar.evaluation.measures import choose_measure
from nearfar.neighbors.knn import KNNClassifier
from nearfar.words import percent


def find_method(name: str, scale: Scale = "auto") -> Method:
    """One learner or plain distance by its name.

    >>> find_method("lda").label
    'LDA'
    """
    plain = {one.name: one for one in baselines()}
    every = tuple(setting for one in plain.values() for setting in one.settings)
    plain["reference"] = Method("reference", "Best plain distance", "reference", every)
    name = name.strip()
    if not name or "," in name:
        raise ValueError(f"--method {name!r}: name one method; nearfar methods lists them.")
    found = plain[name] if name in plain else learners(name, scale)[0]
    if hasattr(found.settings[0].estimator, "predict"):
        raise ValueError(f"--method {name}: {found.label} gives labels, and fit keeps a map.")
    return found


def fit_chain(
    table: Table,
    method: str,
    *,
    scale: Scale = "auto",
    keep: Sequence[Any] = (),
    drop: Sequence[Any] = (),
) -> tuple[Pipeline, list[str]]:
    """Tune a method as the comparison does inside a fold, and fit it on all rows.

    The method is a learner, or one of the plain distances ``raw``, ``standardised``, ``cosine`` and
    ``whitened``; ``reference`` takes the best of these.

    Returns
    -------
    Pipeline
        Steps ``prepare`` (for tables), ``scale``, ``learner``, ``knn``, as far as they do
        something.
    list of str
        What was left out and chosen.
    """
    chosen = find_method(method, scale)
    classes, codes = check_target(table.y, table.target or "y")
    columns = choose_columns(table.X, feature_names=table.feature_names, keep=keep, drop=drop)
    X = as_floats(columns.select(table.X))
    measure = choose_measure(None, classes, np.bincount(codes))
    prepare = columns.preprocessor()
    problem = Problem(X, classes, codes, prepare, measure, table.groups, table.time)
    choice = tune(problem, chosen, np.arange(len(codes)), "full")
    steps = choice.setting.steps(problem.prepare)
    chain = Pipeline([*steps, ("knn", KNNClassifier(n_neighbors=choice.k or 1))])
    notes = [*columns.notes]
    notes += [f"Left out: column {column!r}: {why}." for column, why in columns.dropped]
    error = "" if choice.error is None else f"; {measure.name} inside {percent(choice.error)}"
    notes.append(f"{chosen.label}: {choice.setting.label}, k = {choice.k}{error}.")
    return chain.fit(X, classes[codes]), notes
