"""The few lines of scikit-learn that repeat a run of the chosen method."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer

from nearfar.app.compare.folds import MAX_K, Problem
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.methods import Method
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.splits import N_SPLITS, Scheme, Tuning, inner_splits, inner_splitter
from nearfar.datasets.builtin import find_sklearn_loader

# What the lines use besides the estimators of the method.
_TOOLS = {
    "nearfar": ("KNNClassifier", "KNNRegressor"),
    "nearfar.datasets": ("read_pairs", "read_sets", "read_table"),
    "nearfar.evaluation": ("held_out_quality",),
    "nearfar.app.tables.columns": ("choose_columns",),
    "nearfar.app.tables.copies": ("same_rows",),
    "nearfar.app.tables.numeric_target": ("check_numbers",),
    "nearfar.app.compare.pair_folds": ("fit_to_pairs", "pair_distances", "restricted"),
    "nearfar.app.compare.pair_splits": ("inner_pair_splits", "pair_scheme"),
    "nearfar.app.compare.value_folds": ("drawing_codes",),
    "nearfar.app.compare.splits": ("inner_splits", "make_scheme", "sample_rows"),
    "sklearn.base": ("clone",),
    "sklearn.metrics": ("roc_auc_score",),
    "sklearn.model_selection": (
        "GridSearchCV",
        "GroupShuffleSplit",
        "KFold",
        "RepeatedKFold",
        "RepeatedStratifiedKFold",
        "ShuffleSplit",
        "StratifiedGroupKFold",
        "StratifiedKFold",
        "StratifiedShuffleSplit",
        "cross_val_score",
    ),
    "sklearn.pipeline": ("Pipeline", "make_pipeline"),
}


def repeat_lines(kind: Kind, problem: Problem, method: Method, schedule: Schedule) -> str:
    """Lines that tune and test the method as the comparison did, and fit it on all rows.

    None for a reference without a plain distance that could be run.
    """
    if not method.settings:
        return ""
    assert schedule.plan is not None
    scheme, tuning = schedule.scheme, schedule.plan.tuning
    settings = method.tried(tuning)
    votes = settings[0].votes and not settings[0].neighbors
    reduces = any(not isinstance(one.reduce, str) for one in settings)
    steps = [("scale", "'passthrough'"), ("learner", "'passthrough'")]
    if reduces:
        steps.insert(1, ("reduce", "'passthrough'"))
    follows = any(not isinstance(one.after, str) for one in settings)
    if follows:
        steps.append(("after", "'passthrough'"))
    prepare = problem.prepare
    if not isinstance(prepare, str):
        steps.insert(0, ("prepare", _prepare(prepare)))
    if votes:
        steps.append(("knn", f"{problem.voter.__name__}()"))
    train = scheme.folds[0].train
    if kind.test is not None or scheme.code is not None:
        groups = None if problem.groups is None else problem.groups[train]
        codes = problem.codes[train]
        inside = inner_splits(tuning, codes, groups, stratified=problem.stratified)
        most = min([MAX_K, *(len(part) for part, _ in inside)])
        k_values = f"list(range(1, {most + 1}))"
    else:
        k_values = "list(range(1, most + 1))"  # in each fold as many as its smallest part has rows
    own = "knn" if votes else "learner"
    ks = f", '{own}__n_neighbors': {k_values}" if settings[0].votes else ""
    grid = [
        "settings = [",
        *(
            f"    {{'scale': [{code_of(s.scale)}], "
            + f"'reduce': [{code_of(s.reduce)}], " * reduces
            + f"'learner': [{code_of(s.estimator)}]"
            + f", 'after': [{code_of(s.after)}]" * follows
            + f"{ks}}},"
            for s in settings
        ),
        "]",
    ]
    body = [
        *_data_lines(kind),
        *kind.target_lines,
        *_sample_lines(kind, problem, scheme),
        *_given_lines(problem, scheme),
        "pipeline = Pipeline([",
        *(f"    ({name!r}, {text})," for name, text in steps),
        "], memory=mkdtemp())",
        *_search_lines(kind, problem, scheme, tuning, grid),
    ]
    parts = [(s.scale, s.reduce, s.estimator, s.after) for s in settings]
    used = [prepare, *(part for each in parts for part in each)]
    return "from tempfile import mkdtemp\n\n" + _with_imports(body, used)


def embedding_lines(
    kind: Kind, method: Method, schedule: Schedule, *, n_neighbors: int, measured: int
) -> str:
    """Lines that measure an embedding as the comparison did, and fit it to all rows."""
    table, scheme = kind.table, schedule.scheme
    setting, prepare = method.settings[0], kind.columns.preprocessor()
    steps = [] if isinstance(prepare, str) else [_prepare(prepare)]
    steps += [] if isinstance(setting.scale, str) else [code_of(setting.scale)]
    framed = hasattr(table.X, "iloc") and kind.columns.feature_names is None
    rows = "X.iloc" if framed else "X"
    ready, every = [], "X"
    inputs = [f"    known, new = {rows}[train], {rows}[test]"]
    if steps:
        ready = ["inputs = make_pipeline(", *(f"    {step}," for step in steps), ")"]
        inputs = [
            f"    known = inputs.fit_transform({rows}[train])",
            f"    new = inputs.transform({rows}[test])",
        ]
        every = "inputs.fit_transform(X)"
    most = max(len(fold.test) for fold in scheme.folds)
    if most > measured:
        # As evenly() chooses them.
        inputs.append(
            f"    new = new[np.unique(np.linspace(0, len(new) - 1, min(len(new), {measured}))"
            ".astype(int))]"
        )
    own, of = _own_folds(scheme), "all rows"
    drawn = []
    if scheme.rows is not None:
        size, seed, of = kind.drawn, kind.question.random_state, "the rows drawn"
        drawn = [f"X = {rows}[sample_rows(np.zeros(len(X), int), {size}, seed={seed})]"]
    body = [
        *_data_lines(kind, labels=False),
        *drawn,
        *(["# cv: the folds that were given, as pairs of row numbers"] if own else []),
        *ready,
        "shares = []",
        f"for train, test in {'cv' if own else f'{scheme.code}.split(X)'}:",
        *inputs,
        f"    learner = {code_of(setting.estimator)}",
        "    there = learner.fit_transform(known)",
        f"    found = held_out_quality(known, there, new, learner.transform(new), {n_neighbors})",
        "    shares.append(found['intersection'])",
        "print(np.mean(shares))  # the share of neighbors kept",
        f"embedding = {code_of(setting.estimator)}.fit_transform({every})  # of {of}, for use",
    ]
    return _with_imports(body, [prepare, setting.scale, setting.estimator])


def pair_lines(
    kind: Kind,
    prepare: Any,
    pairs: str,
    method: Method,
    schedule: Schedule,
    *,
    copies: bool = False,
) -> str:
    """Lines that tune and test a distance on pairs as the comparison did, and fit it to all.

    ``pairs`` is the call that reads them, or empty where they were given; ``copies`` says whether
    rows have copies, which stay on one side.
    """
    if not method.settings:
        return ""
    assert schedule.plan is not None
    plan, settings = schedule.plan, method.tried(schedule.plan.tuning)
    first = [] if isinstance(prepare, str) else [("prepare", "prepare")]
    own = "" if kind.question.cv is None else f", cv={kind.question.cv}"
    own += "" if plan.rows is None else f", sample={plan.rows}"
    own += ", same=same" if copies else ""
    inner = ", same" if copies else ""
    rows = "X.iloc[rows]" if hasattr(kind.table.X, "iloc") else "X[rows]"
    body = [
        *_data_lines(kind, labels=False),
        f"pairs = {pairs}" if pairs else "# pairs: those that were given",
        *(["same = same_rows(X)  # copies of rows stay on one side"] if copies else []),
        f"scheme = pair_scheme(pairs, repeats={plan.repeats}, "
        f"seed={kind.question.random_state}{own})",
        "ends = np.vstack([pairs.similar, pairs.dissimilar])",
        "alike = np.repeat([1, 0], [len(pairs.similar), len(pairs.dissimilar)])",
        "free = np.setdiff1d(np.arange(pairs.n_samples), ends)  # rows in no pair",
        *([f"prepare = {_prepare(prepare)}"] if first else []),
        "chains = [",
    ]
    for one in settings:
        steps = [*first, ("scale", code_of(one.scale))]
        steps += [] if isinstance(one.reduce, str) else [("reduce", code_of(one.reduce))]
        steps += [("learner", code_of(one.estimator))]
        inside = ", ".join(f"({name!r}, {text})" for name, text in steps)
        body.append(f"    Pipeline([{inside}]),")
    body += [
        "]",
        "",
        "",
        "def area(chain, train, test):",
        "    rows, known = restricted(ends, alike, train, free)",
        f"    chain = fit_to_pairs(clone(chain), {rows}, known)",
        "    rows, places = np.unique(ends[test], return_inverse=True)",
        f"    distances = pair_distances(chain, {rows}, places.reshape(-1, 2))",
        "    return roc_auc_score(alike[test], -distances)",
        "",
        "",
        "def best(train):",
        f"    inside = inner_pair_splits({plan.tuning!r}, ends[train], alike[train]{inner})",
        "    means = [np.mean([area(c, train[a], train[b]) for a, b in inside]) for c in chains]",
        "    return chains[np.argmax(means)]",
        "",
        "",
        "areas = [area(best(fold.train), fold.train, fold.test) for fold in scheme.folds]",
        "print(np.mean(areas))",
        "chain = fit_to_pairs(clone(best(np.arange(len(ends)))), X, pairs)  # to all, for use",
    ]
    used = [prepare, *(part for s in settings for part in (s.scale, s.reduce, s.estimator))]
    return _with_imports(body, used)


def _with_imports(body: list[str], estimators: list[Any]) -> str:
    """Lines, behind those that import what they use."""
    text = "\n".join(body)
    homes: dict[str, set[str]] = {
        home: {name for name in names if re.search(rf"\b{name}\b", text)}
        for home, names in _TOOLS.items()
    }
    for part in estimators:
        for name, home in _homes(part):
            homes.setdefault(home, set()).add(name)
    imports = ["import numpy as np"] * ("np." in text)
    imports += [
        f"from {home} import {', '.join(sorted(homes[home]))}"
        for home in sorted(homes)
        if homes[home]
    ]
    return "\n".join([*imports, "", text]) + "\n"


def _homes(value: Any) -> list[tuple[str, str]]:
    """Names that the code of an estimator uses, each with the module it comes from."""
    if isinstance(value, list | tuple):
        return [found for item in value for found in _homes(item)]
    if _has_name(value):
        home = getattr(value, "__module__", None) or "numpy"  # ufuncs have none
        return [] if home == "builtins" else [(value.__name__, home)]
    if not _is_estimator(value):
        return []
    # sklearn.preprocessing._data is sklearn.preprocessing to the public.
    home = re.split(r"\._", type(value).__module__)[0]
    if home.startswith("nearfar.") and hasattr(import_module("nearfar"), type(value).__name__):
        home = "nearfar"
    inside = _homes(list(_changed(value).values()))
    return [(type(value).__name__, home), *inside]


def _sample_lines(kind: Kind, problem: Problem, scheme: Scheme) -> list[str]:
    """Lines that draw the rows of the plan."""
    if scheme.rows is None:
        return []
    seed, n_test = kind.question.random_state, problem.n_test_rows
    n = len(problem.codes)
    size = kind.drawn or n
    drawn = {"": round(size * (n - n_test) / n)}
    if n_test:
        drawn["_test"] = round(size * n_test / n)
    guides = [name for name in ("groups", "time") if getattr(problem, name) is not None]
    lines = ["X_all, y_all = X, y"] if not n_test else []
    for end, size in drawn.items():
        groups = ", groups=groups" if "groups" in guides and not end else ""
        X = f"X{end}.iloc" if hasattr(kind.table.X, "iloc") else f"X{end}"
        lines.append(
            f"rows = sample_rows({problem.codes_of_y.format(y=f'y{end}')}, {size}{groups}, "
            f"seed={seed})"
        )
        names = [f"X{end}", f"y{end}", *(guides if not end else ())]
        values = [f"{X}[rows]", f"y{end}[rows]", *(f"{g}[rows]" for g in guides if not end)]
        lines.append(f"{', '.join(names)} = {', '.join(values)}")
    return lines


def _given_lines(problem: Problem, scheme: Scheme) -> list[str]:
    """What the lines take from the user as it is, and cannot write down."""
    lines = []
    if not isinstance(problem.measure.scoring, str):
        lines.append(f"# scoring: the scorer that was given, {_one_line(problem.measure.scoring)}")
    if _own_folds(scheme):
        lines.append("# cv: the folds that were given")
    if problem.pairs is not None and scheme.units_differ is not None:
        lines += [
            "# Scale and ridge of Gaussians come from the sets that are fitted here, from all sets",
            "# in the comparison: a close choice, or the label of a set, may fall otherwise.",
        ]
    elif problem.pairs is not None:
        lines += [
            "# Inside, scale and ridge of Gaussians come from the inner part here, from the whole",
            "# training fold in the comparison: a close choice may fall otherwise.",
        ]
    return lines


def _own_folds(scheme: Scheme) -> bool:
    return scheme.words.startswith("the folds given")


def _search_lines(
    kind: Kind, problem: Problem, scheme: Scheme, tuning: Tuning, grid: list[str]
) -> list[str]:
    seed = kind.question.random_state
    train = scheme.folds[0].train
    scoring = problem.measure.scoring
    scoring_text = repr(scoring) if isinstance(scoring, str) else "scoring"
    search = f"GridSearchCV(pipeline, settings, scoring={scoring_text}, cv="
    every = "X, y" if scheme.rows is None else "X_all, y_all"
    fit = f"search.fit({every})  # on all {problem.noun}s, for use"
    if kind.test is not None:
        groups = None if problem.groups is None else problem.groups[train]
        inner = code_of(_inner(problem, tuning, train, groups))
        also = "" if groups is None else ", groups=groups"
        return [
            *grid,
            f"search = {search}{inner}).fit(X, y{also})",
            f"print({problem.measure.format_error_expression('search.score(X_test, y_test)')})",
        ]
    if scheme.code is not None:
        return [
            *grid,
            f"search = {search}{code_of(_inner(problem, tuning, train))})",
            f"folds = {scheme.code}",
            f"scores = cross_val_score(search, X, y, cv=folds, scoring={scoring_text})",
            f"print({problem.measure.format_error_expression('scores.mean()')})",
            fit,
        ]
    # Folds by group, in time or of the user's own: scikit-learn's search must be told its splits.
    guides = [
        (name, side)
        for name, side in (("groups", problem.groups), ("time", problem.time))
        if side is not None
    ]
    outer = "".join(f", {name}={name}" for name, _ in guides)
    inner = "".join(f", {name}={name}[fold.train]" for name, _ in guides)
    plainly = "" if problem.stratified else ", stratified=False"
    n_repeats = len(scheme.folds) // scheme.n_splits
    own = ""
    if _own_folds(scheme):
        own = ", cv=cv, X=X"
    elif (n_folds := scheme.n_asked or scheme.n_splits) != N_SPLITS:
        own = f", cv={n_folds}"
    rows = "X.iloc" if hasattr(problem.X, "iloc") else "X"
    return [
        f"codes = {problem.codes_of_y.format(y='y')}",
        f"scheme = make_scheme(codes, repeats={n_repeats}, seed={seed}{outer}{own}{plainly})",
        "scores = []",
        "for fold in scheme.folds:",
        f"    splits = inner_splits({tuning!r}, codes[fold.train]{inner}{plainly})",
        f"    most = min([{MAX_K}, *(len(part) for part, _ in splits)])",
        *(f"    {line}" for line in grid),
        f"    search = {search}splits)",
        f"    search.fit({rows}[fold.train], y[fold.train])",
        f"    scores.append(search.score({rows}[fold.test], y[fold.test]))",
        f"print({problem.measure.format_error_expression('np.mean(scores)')})",
    ]


def _inner(problem: Problem, tuning: Tuning, train: Any, groups: Any = None) -> Any:
    return inner_splitter(tuning, problem.codes[train], groups, stratified=problem.stratified)


def _data_lines(kind: Kind, *, labels: bool = True) -> list[str]:
    """Lines that bring X, y and what goes with them; without ``labels`` X alone."""
    table, test, keep, drop = kind.table, kind.test, kind.keep, kind.drop
    loader = find_sklearn_loader(table)
    if loader is not None and not drop:
        load = f"{loader}(return_X_y=True)"
        return [
            f"from sklearn.datasets import {loader}",
            "",
            f"X, y = {load}" if labels else f"X, _ = {load}",
        ]
    sides = [name for name in ("groups", "time") if labels and getattr(table, name) is not None]
    if table.source is None:
        given = ", ".join(["X", "y", *sides]) + (", X_test, y_test" if test is not None else "")
        lines = [f"# {given}: what was compared, labels as a NumPy array"]
        lines = lines if labels else ["# X: what was compared"]
        source, rows, tested = "X", "X", "X_test"
    else:
        names = ", ".join(["y", *sides])
        values = ", ".join(f"table.{name}" for name in ["y", *sides])
        lines = [f"table = {table.source}", *([f"{names} = {values}"] if labels else [])]
        source, rows, tested = "table.X", "table.X", "test.X"
    if not hasattr(table.X, "iloc") and not drop:
        lines += [] if table.source is None else [f"X = {rows}"]
        select = "{}"
    else:
        asked = "".join(
            f", {name}={list(values)!r}"
            for name, values in (("keep", keep), ("drop", drop))
            if values
        )
        if table.feature_names is not None and not hasattr(table.X, "iloc"):
            asked = f", feature_names=table.feature_names{asked}"
        lines += [f"columns = choose_columns({source}{asked})", f"X = columns.select({rows})"]
        select = "columns.select({})"
    if test is not None:
        if test.source is not None:
            lines += [f"test = {test.source}", "y_test = test.y"]
        lines.append(f"X_test = {select.format(tested)}")
    return lines


def _prepare(prepare: Any) -> str:
    """The first step; columns stay behind their names, since there may be thousands."""
    if not isinstance(prepare, ColumnTransformer):
        return code_of(prepare)
    parts = [
        f"({name!r}, {code_of(step)}, list(columns.{name}))"
        for name, step, _ in prepare.transformers
    ]
    return f"ColumnTransformer([{', '.join(parts)}])"


def code_of(value: Any) -> str:
    """An estimator as Python writes it, on one line and in full: its own text cuts long lists.

    >>> from nearfar import PCA
    >>> code_of(PCA(2))
    'PCA(n_components=2)'
    """
    if _is_estimator(value):
        parts = [f"{name}={code_of(given)}" for name, given in _changed(value).items()]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, list | tuple):
        inside = ", ".join(code_of(item) for item in value)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, np.ndarray):
        return f"np.array({value.tolist()!r})"
    if isinstance(value, np.generic):
        return repr(value.item())
    if _has_name(value):
        return str(value.__name__)
    return _one_line(value)


def _has_name(value: Any) -> bool:
    """Whether it is a function or a class that can be imported."""
    return callable(value) and str(getattr(value, "__name__", "")).isidentifier()


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


def _changed(estimator: Any) -> dict[str, Any]:
    """Its parameters that differ from the defaults."""
    defaults = signature(type(estimator).__init__).parameters
    found = {}
    for name, value in estimator.get_params(deep=False).items():
        if name not in defaults or repr(value) != repr(defaults[name].default):
            found[name] = value
    return found


def _one_line(value: Any) -> str:
    """What it says of itself, without the place where it lies in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))
