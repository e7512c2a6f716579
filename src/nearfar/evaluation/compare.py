"""``compare``: which distance should I use on my data, and is it worth it?"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearfar.datasets.tables import Table
from nearfar.evaluation import traps
from nearfar.evaluation.columns import Columns, choose_columns
from nearfar.evaluation.comparison import Comparison, data_line
from nearfar.evaluation.folds import Problem
from nearfar.evaluation.journal import Journal
from nearfar.evaluation.lines import repeat_lines
from nearfar.evaluation.measures import choose_measure
from nearfar.evaluation.methods import Method, Scale, baselines, context_methods, learners
from nearfar.evaluation.progress import PlainProgress, Progress
from nearfar.evaluation.schedule import MAX_REPEATS, TUNING_WORDS, Schedule
from nearfar.evaluation.splits import Scheme, Tuning, make_scheme
from nearfar.evaluation.summary import Summary

DEFAULT_BUDGET = 120.0
#: Rows whose values the report may show.
_SHOWN_ROWS = 2500


def compare(
    X: Any,
    y: ArrayLike,
    *,
    methods: Mapping[str, Any] | Sequence[str] | str | None = None,
    cv: Any = None,
    groups: ArrayLike | None = None,
    time: ArrayLike | None = None,
    test: tuple[Any, ArrayLike] | None = None,
    scoring: Any = None,
    scale: Scale = "auto",
    repeats: int | None = None,
    time_budget: float | None = None,
    tuning: Tuning | None = None,
    min_gain: float = 0.05,
    keep: Sequence[Any] = (),
    drop: Sequence[Any] = (),
    random_state: int = 0,
    context: bool = True,
    n_jobs: int | None = None,
    isolate: bool = True,
    journal: str | os.PathLike[str] | None = None,
    show_rows: bool = True,
    verbose: bool = True,
) -> Comparison:
    """Compare learned distances with the best plain one on your data, and say which to use.

    Every method is tested on the same held-out folds. k and a few settings are tuned inside each
    training fold, for the plain distances as for the learners. The *reference* is the best of four
    plain distances (raw, standardised, cosine, whitened), chosen inside each training fold. A
    learner is recommended only if the corrected resampled interval of its paired difference to the
    reference lies off zero and the gain exceeds ``min_gain``; Holm's p over all learners is given
    beside it.

    Parameters
    ----------
    X : array-like or DataFrame
        Rows and features; images as (n, height, width) or (n, height, width, 3). In a DataFrame
        missing values are imputed and categories encoded inside each fold; identifiers, dates, free
        text and categories of hundreds of levels are left out, and said.
    y : array-like of shape (n_samples,)
        Labels; a continuous target is refused.
    methods : mapping, sequence of names, or None
        ``{"lmnn": LMNN(), "mine": Mine()}``: learners, or classifiers, or lists of up to four of
        them as settings to tune; or names of learners; None is LDA, RCA and LMNN.
    cv : int, splitter or iterable, optional
        Folds of your own; None is repeated, shuffled, stratified 5-fold.
    groups : array-like of shape (n_samples,), optional
        Rows of one group are never both trained on and tested.
    time : array-like of shape (n_samples,), optional
        Train on the past, test on what follows.
    test : (X, y), optional
        A fixed test set instead of folds.
    scoring : str or callable, optional
        A scorer of scikit-learn; None is the error, balanced when classes are unbalanced.
    scale : {"auto", "none", "standard", "unit"}, default="auto"
        Scaling before the learners; "auto" tunes it.
    repeats : int, optional
        How often all rows are split anew; None is as many as the time allows, at most 5.
    time_budget : float, optional
        Seconds; then what still runs is killed. None is 120, or no limit when ``repeats`` is given.
    tuning : {"full", "holdout", "k"}, optional
        How much is tried inside each training fold; None is as much as the time allows.
    min_gain : float, default=0.05
        Least gain that is worth a recommendation, relative to the reference's error.
    keep, drop : sequence of column names
        Columns to use, or not, whatever they look like.
    random_state : int, default=0
        Seed of the folds.
    context : bool, default=True
        Add the majority class, logistic regression and gradient-boosted trees, for context.
    n_jobs : int, optional
        Worker processes at once; None is one for each core.
    isolate : bool, default=True
        Each method in a process of its own with one BLAS thread: it can be killed, its memory is
        measured, and its crash is a row of the table. False runs all in this process.
    journal : path, optional
        Results are kept there as they come; if it exists, the comparison goes on from it.
    show_rows : bool, default=True
        Let the report show values of rows; False keeps them out of the result altogether.
    verbose : bool, default=True
        Print plan and progress to standard error.

    Returns
    -------
    Comparison
        With ``answer``, ``best``, ``table``, ``folds``, ``code``, ``to_html`` and ``to_json``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LDA, compare
    >>> X, y = load_iris(return_X_y=True)
    >>> result = compare(X, y, methods={"lda": LDA()}, repeats=1, isolate=False, verbose=False)
    >>> result.document["answer"]["verdict"]
    'unsure'
    >>> len(result.document["folds"])
    5
    """
    table = _as_table(X, y, groups, time)
    test_table = None if test is None else _as_table(*test, None, None)
    result = compare_tables(
        table,
        test_table,
        methods=methods,
        cv=cv,
        scoring=scoring,
        scale=scale,
        repeats=repeats,
        time_budget=time_budget,
        tuning=tuning,
        min_gain=min_gain,
        keep=keep,
        drop=drop,
        random_state=random_state,
        context=context,
        n_jobs=n_jobs,
        isolate=isolate,
        journal=journal,
        progress=PlainProgress() if verbose else Progress(),
        show_rows=show_rows,
    )
    if journal is not None and result.complete:
        Path(journal).unlink(missing_ok=True)
    return result


def compare_tables(
    table: Table,
    test: Table | None = None,
    *,
    methods: Any = None,
    cv: Any = None,
    scoring: Any = None,
    scale: Scale = "auto",
    repeats: int | None = None,
    time_budget: float | None = None,
    tuning: Tuning | None = None,
    min_gain: float = 0.05,
    keep: Sequence[Any] = (),
    drop: Sequence[Any] = (),
    random_state: int = 0,
    context: bool = True,
    n_jobs: int | None = None,
    isolate: bool = True,
    journal: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    began: float | None = None,
    argv: Sequence[str] | None = None,
    show_rows: bool = True,
) -> Comparison:
    """:func:`compare` for data read from files; the command line calls it."""
    began = monotonic() if began is None else began
    progress = Progress() if progress is None else progress
    _check_numbers(repeats, time_budget, min_gain, tuning)
    if not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(f"random_state={random_state!r} must be a whole number, 0 or more.")
    if time_budget is None and repeats is None:
        time_budget = DEFAULT_BUDGET
    classes, all_codes = traps.check_target(_both(table.y, test), table.target or "y")
    n_test = 0 if test is None else len(all_codes) - len(table.y)  # type: ignore[arg-type]
    columns = choose_columns(table.X, feature_names=table.feature_names, keep=keep, drop=drop)
    rows = _join(table, test)
    measure = choose_measure(scoring, classes, np.bincount(all_codes, minlength=len(classes)))
    problem = Problem(
        columns.select(rows),
        classes,
        all_codes,
        columns.preprocessor(),
        measure,
        _groups(table, test),
        table.time if test is None else None,
        columns.origins,
        len(columns.names),
    )
    compared = [*baselines(), *learners(methods, scale)]
    if context:
        compared += context_methods(random_state)
    scheme_for = partial(_scheme, problem, n_test=n_test, seed=random_state, cv=cv)
    once = scheme_for(1)
    repeated = test is None and problem.time is None and (cv is None or isinstance(cv, int))
    # Few groups are split once, however often it is asked for.
    repeated = repeated and len(scheme_for(2).folds) > len(once.folds)
    if not repeated:
        repeats = 1
    warned = _warnings(problem, columns, once, table)
    names = _class_names(table, classes)
    data = _describe(table, test, columns, names, all_codes)
    for line in [
        data_line(data),
        *table.messages,
        *(_dropped(c, why) for c, why in columns.dropped),
    ]:
        progress.say(line)
    for trap in warned:
        progress.say(f"Warning: {trap.text}")
    for line in [measure.note, *once.notes]:
        progress.say(line)
    settings = (scale, str(scoring), random_state, str(cv), [_identity(m) for m in compared])
    book = _open_journal(journal, problem, settings)
    schedule = Schedule(
        problem,
        compared,
        scheme_for,
        began=began,
        time_budget=time_budget,
        tuning=tuning if book is None or book.tuning is None else book.tuning,  # type: ignore[arg-type]
        repeats=repeats,
        max_repeats=MAX_REPEATS if repeated else 1,
        n_jobs=_n_jobs(n_jobs) if isolate else 1,
        isolate=isolate,
        journal=book,
        progress=progress,
    )
    schedule.run()
    progress.close()
    assert schedule.plan is not None
    summary = Summary(problem, schedule.runs, schedule.scheme, min_gain=min_gain)
    chosen = summary.rows[summary.best].method
    lines = repeat_lines(
        table,
        test,
        columns,
        chosen,
        schedule.scheme,
        schedule.plan.tuning,
        problem,
        seed=random_state,
        keep=keep,
        drop=drop,
    )
    complete = all(run.status != "unfinished" for run in schedule.runs.values())
    document: dict[str, Any] = {
        "format": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if argv is None else shlex.join(argv),
        "seconds": monotonic() - began,
        "status": schedule.status,
        "versions": _versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "data": data,
        "warnings": [{"kind": trap.kind, "text": trap.text} for trap in warned],
        "protocol": {
            "scheme": schedule.scheme.words,
            "n_splits": schedule.scheme.n_splits,
            "repeats": schedule.plan.repeats,
            "seed": random_state,
            "min_gain": min_gain,
            "confidence": summary.confidence,
            "measure": measure.name,
            "measure_note": measure.note,
            "tuning": schedule.plan.tuning,
            "tuning_note": TUNING_WORDS[schedule.plan.tuning],
            "time_budget": time_budget,
            "plan": list(schedule.plan.lines),
            "notes": [
                *schedule.scheme.notes,
                f"The same folds and settings again: repeats={schedule.plan.repeats}, "
                f"tuning={schedule.plan.tuning!r}, random_state={random_state}.",
            ],
        },
        "folds": [
            {
                "repeat": fold.repeat,
                "fold": fold.fold,
                "n_train": len(fold.train),
                "n_test": len(fold.test),
                "test": fold.test.tolist(),
            }
            for fold in schedule.scheme.folds
        ],
        "common_folds": summary.common,
        "methods": summary.table(),
        "nested": summary.nested(),
        "answer": _with_caution(summary.answer(), warned),
        "best": summary.best,
        "code": lines,
        **summary.pictures(),
    }
    document["weights"] = {
        name: {"features": list(columns.names), "folds": shares}
        for name, shares in document["weights"].items()
    }
    document |= _shown(problem.X, columns, table, document) if show_rows else _HIDDEN
    return Comparison(document, complete=complete)


def _with_caution(answer: dict[str, Any], warned: list[traps.Trap]) -> dict[str, Any]:
    """The answer with a word on warnings that could make every error too low."""
    kinds = [trap.kind for trap in warned if trap.kind in ("telling column", "duplicates", "id")]
    if kinds:
        note = "See the warnings first: if they are right, every error above is too low."
        answer["notes"].insert(0, note)
    return answer


_HIDDEN: dict[str, None] = {"rows": None, "images": None}


def _check_numbers(
    repeats: int | None, time_budget: float | None, min_gain: float, tuning: str | None
) -> None:
    if repeats is not None and (not isinstance(repeats, int | np.integer) or repeats < 1):
        raise ValueError(f"repeats={repeats!r} must be a whole number, 1 or more.")
    if time_budget is not None and not (np.isfinite(time_budget) and time_budget > 0):
        raise ValueError(f"time_budget={time_budget!r} must be a number of seconds above 0.")
    if not 0 <= min_gain < 1:
        raise ValueError(f"min_gain={min_gain!r} must be at least 0 and below 1: 0.05 is 5 %.")
    if tuning not in (None, *TUNING_WORDS):
        raise ValueError(f"tuning={tuning!r} must be one of {', '.join(TUNING_WORDS)}.")


def _as_table(X: Any, y: Any, groups: Any, time: Any) -> Table:
    """Arrays or frames as a Table."""
    image_shape = None
    if sparse.issparse(X):
        raise TypeError(
            "X is a sparse matrix, but distances are compared on dense data. Reduce it first, for "
            "example with sklearn.decomposition.TruncatedSVD."
        )
    if not hasattr(X, "iloc"):
        X = np.asarray(X)
        if X.ndim in (3, 4):
            image_shape = X.shape[1:]
            X = X.reshape(len(X), -1)
        if X.ndim != 2:
            raise ValueError(f"X must have rows and columns; got an array of shape {X.shape}.")
    if y is None:
        raise ValueError("y is None: the comparison needs labels.")
    side = {"y": y, "groups": groups, "time": time}
    for name, values in side.items():
        if values is not None and len(values) != len(X):
            raise ValueError(f"X has {len(X)} rows, but {name} has {len(values)}.")
    return Table(
        name="data",
        X=X,
        y=y,
        target=getattr(y, "name", None) and str(y.name),
        groups=None if groups is None else _plain(groups, "groups"),
        groups_name=None if groups is None else str(getattr(groups, "name", None) or "groups"),
        time=None if time is None else _plain(time, "time"),
        time_name=None if time is None else str(getattr(time, "name", None) or "time"),
        feature_names=None,
        class_names=None,
        image_shape=image_shape,
        messages=[],
    )


def _plain(values: Any, name: str) -> NDArray[Any]:
    """Groups or times as an array without missing entries."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional; got shape {array.shape}.")
    missing = (
        array != array
        if array.dtype.kind != "O"
        else np.array([v is None or v != v for v in array])
    )
    if np.any(missing):
        raise ValueError(f"{name} has a missing value in row {int(np.argmax(missing))}.")
    if array.dtype.kind == "O":
        array = array.astype(str)
    return array


def _both(y: Any, test: Table | None) -> Any:
    return y if test is None else np.concatenate([np.asarray(y), np.asarray(test.y)])


def _join(table: Table, test: Table | None) -> Any:
    if test is None:
        return table.X
    if not hasattr(table.X, "iloc"):
        if hasattr(test.X, "iloc") or test.X.shape[1:] != table.X.shape[1:]:
            raise ValueError(
                f"The test data have {test.X.shape[1]} features, the training data "
                f"{table.X.shape[1]}."
            )
        return np.concatenate([table.X, test.X])
    from nearfar.extras import require

    pandas = require("pandas", "app")
    missing = [str(column) for column in table.X.columns if column not in test.X.columns]
    if missing:
        raise ValueError(f"The test data lack the column(s) {', '.join(missing[:10])}.")
    return pandas.concat([table.X, test.X[list(table.X.columns)]], ignore_index=True)


def _groups(table: Table, test: Table | None) -> NDArray[Any] | None:
    """Groups of all rows; those of a test file without any are one of their own."""
    if table.groups is None or test is None:
        return table.groups
    if test.groups is not None:
        both = np.concatenate([table.groups.astype(str), test.groups.astype(str)])
        return np.unique(both, return_inverse=True)[1]
    codes = np.unique(table.groups, return_inverse=True)[1]
    return np.concatenate([codes, np.full(len(test.X), -1)])


def _scheme(problem: Problem, repeats: int, *, n_test: int, seed: int, cv: Any) -> Scheme:
    return make_scheme(
        problem.codes,
        repeats=repeats,
        seed=seed,
        groups=problem.groups,
        time=problem.time,
        n_test_rows=n_test,
        cv=cv,
        X=problem.X,
    )


def _warnings(problem: Problem, columns: Columns, scheme: Scheme, table: Table) -> list[traps.Trap]:
    counts = np.bincount(problem.codes, minlength=len(problem.classes))
    folds = [(fold.train, fold.test) for fold in scheme.folds]
    found = [
        *traps.duplicates(problem.X, problem.codes, folds),
        *traps.telling_columns(problem.X, columns, problem.codes),
        *traps.small_classes(problem.classes.tolist(), counts.tolist(), scheme.n_splits),
    ]
    if not hasattr(problem.X, "iloc"):
        found += traps.id_like(problem.X, table.feature_names)
    return found


def _describe(
    table: Table, test: Table | None, columns: Columns, names: list[str], codes: NDArray[np.intp]
) -> dict[str, Any]:
    return {
        "name": table.name,
        "n_rows": len(codes),
        "n_features": len(columns.names),
        "features": list(columns.names),
        "target": table.target,
        "classes": names,
        "class_counts": np.bincount(codes, minlength=len(names)).tolist(),
        "dropped": [[str(column), reason] for column, reason in columns.dropped],
        "groups": None
        if table.groups is None
        else {"name": table.groups_name, "n": len(np.unique(table.groups))},
        "time": table.time_name,
        "test": None if test is None else {"name": test.name, "n_rows": len(test.X)},
        "image_shape": None if table.image_shape is None else list(table.image_shape),
        "messages": list(table.messages),
    }


def _class_names(table: Table, classes: NDArray[Any]) -> list[str]:
    if table.class_names is not None and len(table.class_names) == len(classes):
        return [str(name) for name in table.class_names]
    return [str(label) for label in classes.tolist()]


def _dropped(column: Any, reason: str) -> str:
    return f"Left out: column {column!r}: {reason}."


def _identity(method: Method) -> str:
    return f"{method.name}: {[(s.label, repr(s.estimator)) for s in method.settings]}"


def _open_journal(path: Any, problem: Problem, settings: Any) -> Journal | None:
    if path is None:
        return None
    sides = (problem.X, problem.codes, problem.groups, problem.time, settings)
    book = Journal(Path(path), str(joblib.hash(sides)))
    return book.read() if book.path.exists() else book


def _n_jobs(n_jobs: int | None) -> int:
    return max(1, int(joblib.effective_n_jobs(-1 if n_jobs is None else n_jobs)))


def _versions() -> dict[str, str]:
    import nearfar

    names = ("numpy", "scipy", "scikit-learn")
    found = {"nearfar": nearfar.__version__, "python": platform.python_version()}
    return found | {name: version(name) for name in names}


def _shown(rows: Any, columns: Columns, table: Table, document: dict[str, Any]) -> dict[str, Any]:
    """Values and images of the rows that the report may show."""
    wanted = set(document["maps"]["rows"])
    rng = np.random.default_rng(0)
    held = document["held_out"]
    order = rng.permutation(len(held["rows"]))
    for position in order:
        if len(wanted) >= _SHOWN_ROWS:
            break
        wanted.add(held["rows"][position])
        for lists in held["neighbors"].values():
            wanted.update(lists[position] or ())
    chosen = sorted(wanted)
    if table.image_shape is not None:
        pixels = np.asarray(rows, dtype=np.float64)
        low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
        scaled = np.nan_to_num((pixels[chosen] - low) / max(high - low, 1e-300) * 255)
        images = scaled.round().astype(int).reshape(len(chosen), *table.image_shape)
        return {
            "rows": {"columns": [], "values": {}},
            "images": {str(row): images[i].tolist() for i, row in enumerate(chosen)},
        }
    names = [str(name) for name in columns.names[:50]]
    if hasattr(rows, "iloc"):
        cells = rows.iloc[chosen].to_numpy(object)[:, :50]
    else:
        cells = rows[chosen][:, list(columns.numeric[:50])]
    values = [[_text(value) for value in row] for row in cells.tolist()]
    return {
        "rows": {
            "columns": names,
            "values": {str(row): cells for row, cells in zip(chosen, values, strict=True)},
        },
        "images": None,
    }


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)[:60]
