"""The few lines of scikit-learn that repeat a run of the chosen method."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from nearfar.datasets.tables import EMBEDDED, Table
from nearfar.evaluation.columns import Columns
from nearfar.evaluation.folds import MAX_K, Problem
from nearfar.evaluation.methods import Method
from nearfar.evaluation.splits import Scheme, Tuning, inner_splits, inner_splitter

_HOMES = {
    "nearfar": ("Euclidean", "KNNClassifier", "LDA", "LMNN", "PCA", "RCA"),
    "sklearn.compose": ("ColumnTransformer",),
    "sklearn.dummy": ("DummyClassifier",),
    "sklearn.impute": ("SimpleImputer",),
    "sklearn.model_selection": (
        "GridSearchCV",
        "GroupShuffleSplit",
        "KFold",
        "RepeatedStratifiedKFold",
        "ShuffleSplit",
        "StratifiedGroupKFold",
        "StratifiedKFold",
        "StratifiedShuffleSplit",
        "cross_val_score",
    ),
    "sklearn.pipeline": ("Pipeline",),
    "sklearn.preprocessing": ("Normalizer", "OneHotEncoder", "OrdinalEncoder", "StandardScaler"),
}


def repeat_lines(
    table: Table,
    test: Table | None,
    columns: Columns,
    method: Method,
    scheme: Scheme,
    tuning: Tuning,
    problem: Problem,
) -> str:
    """Lines that tune and test the method as the comparison did, and fit it on all rows."""
    settings = (
        method.settings[:1] if tuning == "k" and method.role != "reference" else method.settings
    )
    votes = settings[0].votes
    steps = [("scale", "'passthrough'"), ("learner", "'passthrough'")]
    if not isinstance(columns.preprocessor(), str):
        steps.insert(0, ("prepare", _code(columns.preprocessor())))
    if votes:
        steps.append(("knn", "KNNClassifier()"))
    train = scheme.folds[0].train
    guides = [None if side is None else side[train] for side in (problem.groups, problem.time)]
    inside = inner_splits(tuning, problem.codes[train], *guides)
    most = min([MAX_K, *(len(part) for part, _ in inside)])
    ks = f", 'knn__n_neighbors': list(range(1, {most + 1}))" if votes else ""
    grid = [
        f"    {{'scale': [{_code(s.scale)}], 'learner': [{_code(s.estimator)}]{ks}}},"
        for s in settings
    ]
    body = [
        *_data_lines(table, test, columns),
        "pipeline = Pipeline([",
        *(f"    ({name!r}, {text})," for name, text in steps),
        "], memory=mkdtemp())",
        "settings = [",
        *grid,
        "]",
        *_search_lines(problem, scheme, tuning, train, test is not None),
    ]
    text = "\n".join(body)
    imports = [
        f"from {home} import {', '.join(used)}"
        for home, names in _HOMES.items()
        if (used := [name for name in names if re.search(rf"\b{name}\b", text)])
    ]
    if "np." in text:
        imports.insert(0, "import numpy as np")
    if "pd." in text:
        imports.insert(0, "import pandas as pd")
    return "\n".join(["from tempfile import mkdtemp", *imports, "", text]) + "\n"


def _search_lines(
    problem: Problem, scheme: Scheme, tuning: Tuning, train: Any, fixed_test: bool
) -> list[str]:
    scoring = problem.measure.scoring
    scoring_text = repr(scoring) if isinstance(scoring, str) else "scoring"
    negated = isinstance(scoring, str) and scoring.startswith("neg_")
    error = "-" if negated else "1 - "
    groups = None if problem.groups is None else problem.groups[train]
    search = f"GridSearchCV(pipeline, settings, scoring={scoring_text}, cv="
    if fixed_test:
        inner = repr(inner_splitter(tuning, problem.codes[train]))
        return [
            f"search = {search}{inner}).fit(X, y)",
            f"print({error}search.score(X_test, y_test))",
        ]
    if problem.time is not None or (scheme.code is None and groups is None):
        return [
            "# The folds are those of the JSON file; inside, the last quarter or thirds in time.",
            f"search = {search}3).fit(X, y)",
        ]
    inner = repr(inner_splitter(tuning, problem.codes[train], groups))
    if groups is None:
        return [
            f"search = {search}{inner})",
            f"folds = {scheme.code}",
            f"scores = cross_val_score(search, X, y, cv=folds, scoring={scoring_text})",
            f"print({error}scores.mean())",
            "search.fit(X, y)  # on all rows, for use",
        ]
    n_repeats = len(scheme.folds) // scheme.n_splits
    return [
        f"inner = {inner}",
        "scores = []",
        f"for repeat in range({n_repeats}):",
        f"    folds = StratifiedGroupKFold({scheme.n_splits}, shuffle=True, random_state=repeat)",
        "    for train, test in folds.split(X, y, groups):",
        "        splits = list(inner.split(X[train], y[train], groups[train]))",
        f"        search = {search}splits)",
        "        scores.append(search.fit(X[train], y[train]).score(X[test], y[test]))",
        f"print({error}sum(scores) / len(scores))",
    ]


def _data_lines(table: Table, test: Table | None, columns: Columns) -> list[str]:
    if table.name in EMBEDDED:
        return [
            f"from sklearn.datasets import load_{table.name}",
            "",
            f"X, y = load_{table.name}(return_X_y=True)",
        ]
    if not hasattr(table.X, "iloc"):
        lines = ["# X, y: the rows and labels that were compared"]
    else:
        used = [*columns.numeric, *columns.categorical]
        lines = ["# data, y: the table and the labels that were compared", f"X = data[{used!r}]"]
    return lines if test is None else [*lines, "# X_test, y_test: those of the test file"]


def _code(estimator: Any) -> str:
    """An estimator as Python writes it, on one line and in full."""
    if isinstance(estimator, str):
        return repr(estimator)
    with np.printoptions(threshold=10**6):
        text = estimator.__repr__(N_CHAR_MAX=10**6)
    return re.sub(r"\s*\n\s*", " ", text)
