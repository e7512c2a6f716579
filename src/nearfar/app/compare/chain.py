"""From a raw table to neighbours in one fitted Pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from nearfar.app.compare.folds import Problem, map_through, tune
from nearfar.app.compare.methods import Method, Scale, baselines, learners
from nearfar.app.tables.columns import choose_columns, columns_of
from nearfar.app.tables.traps import check_target
from nearfar.datasets.tables import Table
from nearfar.evaluation.measures import choose_measure
from nearfar.neighbors.knn import KNNClassifier
from nearfar.summaries.sets import Sets
from nearfar.words import listed, percent


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
    X = columns.select(table.X)
    measure = choose_measure(None, classes, np.bincount(codes))
    prepare = columns.preprocessor()
    problem = Problem(X, classes, codes, prepare, measure, table.groups, table.time)
    choice = tune(problem, chosen, np.arange(len(codes)), "full")
    steps = choice.setting.steps(problem.prepare)
    chain = Pipeline([*steps, ("knn", KNNClassifier(n_neighbors=choice.k or 1))])
    notes = [f"Left out: column {column!r}: {why}." for column, why in columns.dropped]
    error = "" if choice.error is None else f"; {measure.name} inside {percent(choice.error)}"
    notes.append(f"{chosen.label}: {choice.setting.label}, k = {choice.k}{error}.")
    return chain.fit(X, classes[codes]), notes


def takes_sets(chain: Pipeline) -> bool:
    """Whether what is mapped are sets of vectors."""
    learner = chain.named_steps.get("learner")
    return getattr(getattr(learner, "learner_tags", None), "input", "vectors") == "sets"


def map_rows(chain: Pipeline, table: Table, name: str) -> NDArray[np.floating[Any]]:
    """Rows of a table in the space of the learned distance."""
    if isinstance(table.X, Sets):
        if table.X.n_features != chain.n_features_in_:
            raise ValueError(
                f"{name} has vectors of {table.X.n_features} features; the model was fitted on "
                f"{chain.n_features_in_}."
            )
        return np.asarray(map_through(chain, table.X))
    prepare = chain.named_steps.get("prepare")
    is_table = isinstance(prepare, ColumnTransformer) and hasattr(prepare, "feature_names_in_")
    if is_table and not hasattr(table.X, "iloc"):
        raise ValueError(
            f"{name} has no column names; the model was fitted on a table with "
            f"{listed(prepare.feature_names_in_)}."
        )
    try:
        X = columns_of(prepare).select(table.X) if is_table else np.asarray(table.X, np.float64)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if X.shape[1] != chain.n_features_in_:
        raise ValueError(
            f"{name} has {X.shape[1]} columns; the model was fitted on {chain.n_features_in_}."
        )
    # An embedding has no vote of neighbours at its end.
    return np.asarray(map_through(chain[:-1] if "knn" in chain.named_steps else chain, X))
