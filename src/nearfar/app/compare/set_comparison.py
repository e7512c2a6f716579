"""What a comparison does otherwise where its rows are sets of vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from nearfar.app.compare.folds import Problem
from nearfar.app.compare.methods import Method
from nearfar.app.compare.splits import Scheme
from nearfar.app.tables.columns import Columns
from nearfar.app.tables.traps import Trap, duplicates, small_classes, untrained_classes
from nearfar.datasets.tables import Table
from nearfar.distributions.objects import fingerprints
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.distributions.set_k_neighbors_classifier import SetKNeighborsClassifier
from nearfar.summaries.sets import Sets
from nearfar.words import count


def set_columns(table: Table, keep: Sequence[Any], drop: Sequence[Any]) -> Columns:
    """The features of the vectors, all in use."""
    for name, given in (("keep", keep), ("drop", drop)):
        if given:
            raise ValueError(
                f"{name}={list(given)!r}: features of sets are chosen when they are made; see "
                "nearfar.datasets.read_sets and Sets.from_frame."
            )
    p = table.X.n_features
    names = table.feature_names or [f"column {i}" for i in range(p)]
    return Columns(tuple(range(p)), (), (), False, tuple(names))


def all_sets(table: Table, test: Table | None) -> Sets:
    """The sets to train on, and after them those of the test set."""
    if test is None:
        return table.X
    if not isinstance(test.X, Sets):
        raise ValueError(f"{test.name} holds rows, but {table.name} sets of vectors.")
    if test.X.n_features != table.X.n_features:
        raise ValueError(
            f"The test data have {test.X.n_features} features, the training data "
            f"{table.X.n_features}."
        )
    return Sets.concatenate([table.X, test.X])


def facts_of_sets(sets: Sets) -> dict[str, Any]:
    """What is known of the sizes of sets."""
    sizes = sets.sizes
    return {
        "n_vectors": sets.n_vectors,
        "least": int(sizes.min()),
        "median": float(np.median(sizes)),
        "most": int(sizes.max()),
    }


def set_warnings(problem: Problem, scheme: Scheme, *, show_rows: bool = True) -> list[Trap]:
    """What would make the comparison of sets meaningless or too good to be true.

    ``show_rows`` says whether sets may be called by their names.
    """
    classes = problem.classes.tolist()
    counts = np.bincount(problem.codes, minlength=len(classes)).tolist()
    folds = [(fold.train, fold.test) for fold in scheme.folds]
    found = [
        *duplicates(
            fingerprints(problem.X),
            problem.codes,
            folds,
            noun=problem.noun,
            names=problem.X.names if show_rows else None,
        ),
        *small_classes(classes, counts, scheme.n_splits, noun=problem.noun),
        *untrained_classes(classes, problem.codes, folds, noun=problem.noun),
    ]
    sizes, p = problem.X.sizes, problem.X.n_features
    few = int((sizes < 2).sum())
    if few:
        found.append(
            Trap(
                "small sets",
                f"{count(few, 'set')} of {len(sizes):,} "
                f"{'has' if few == 1 else 'have'} a single vector: of these only the place counts, "
                "no covariance.",
            )
        )
    thin = int((sizes <= p).sum())
    if thin > len(sizes) / 2:
        found.append(
            Trap(
                "small sets",
                f"{count(thin, 'set')} of {len(sizes):,} have no more vectors than the {p} "
                "features: their covariances are singular but for the ridge, which then decides. "
                "Fewer features, or longer sets, would say more.",
            )
        )
    return found


def contents_of_sets(sets: Sets, chosen: Sequence[int]) -> dict[str, Any]:
    """Names and sizes of the sets that the report shows."""
    values = {str(row): [f"{sets.sizes[row]:,}"] for row in chosen}
    names = {}
    if sets.names is not None:
        names = {str(row): str(sets.names[row])[:60] for row in chosen}
    return {"rows": {"columns": ["vectors"], "values": values, "names": names}, "images": None}


def shown_dissimilarity(
    method: Method, results: dict[int, dict[str, Any]]
) -> dict[str, Any] | None:
    """Metric, ridge and scaling of a method as most folds chose them; None where it has no such."""
    labels = Counter(result["setting"] for result in results.values())
    most = labels.most_common(1)[0][0] if labels else None
    settings = [s for s in method.settings if s.label == most] or list(method.settings)
    if not settings:
        return None
    parts = [settings[0].estimator, *_steps(settings[0].estimator)]
    for part in parts:
        if isinstance(part, SetKNeighborsClassifier | SetEmbedding):
            keys = ("metric", "ridge", "shrinkage", "standardize")
            return {key: getattr(part, key) for key in keys}
    return None


def _steps(estimator: Any) -> list[Any]:
    if not isinstance(estimator, BaseEstimator):
        return []
    return [v for v in estimator.get_params(deep=True).values() if isinstance(v, BaseEstimator)]
