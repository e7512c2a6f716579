"""``compare``: which distance should I use on my data, and is it worth it?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.app.compare.comparison import Comparison, data_line
from nearfar.app.compare.document import contents, describe, make_document, versions
from nearfar.app.compare.folds import Problem
from nearfar.app.compare.journal import Journal, identity, traits
from nearfar.app.compare.lines import repeat_lines
from nearfar.app.compare.methods import Scale, baselines, context_methods, learners
from nearfar.app.compare.schedule import MAX_REPEATS, Schedule
from nearfar.app.compare.set_comparison import (
    all_sets,
    facts_of_sets,
    set_columns,
    set_warnings,
    shown_dissimilarity,
)
from nearfar.app.compare.set_methods import (
    plain_setting,
    set_baselines,
    set_context,
    set_learners,
)
from nearfar.app.compare.set_pictures import picture_of_sets
from nearfar.app.compare.splits import TUNINGS, Scheme, Tuning, make_scheme
from nearfar.app.compare.summary import Summary
from nearfar.app.compare.unlabelled import compare_embeddings
from nearfar.app.progress import PlainProgress, Progress
from nearfar.app.tables import traps
from nearfar.app.tables.columns import Columns, choose_columns, names_asked
from nearfar.app.tables.inputs import (
    all_groups,
    all_labels,
    all_rows,
    as_table,
    check_numbers,
    fixed_test,
    folds_given,
    noun_of,
)
from nearfar.datasets.tables import Table
from nearfar.evaluation.measures import choose_measure
from nearfar.summaries.sets import Sets

DEFAULT_BUDGET = 120.0


def compare(
    X: Any,
    y: ArrayLike | None = None,
    *,
    methods: Any = None,
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
    keep: Sequence[Any] | None = None,
    drop: Sequence[Any] | None = None,
    random_state: int = 0,
    context: bool = True,
    n_jobs: int | None = None,
    isolate: bool = True,
    journal: str | os.PathLike[str] | None = None,
    show_rows: bool = True,
    n_components: int = 2,
    color: Any = None,
    verbose: bool = True,
) -> Comparison:
    """Compare learned distances with the best plain one on your data, and say which to use.

    Without labels it compares embeddings: by the neighbours of held-out rows that they keep, PCA
    being the reference. See the guide, "Without labels".

    Of sets of vectors it compares dissimilarities of their Gaussians, embeddings and bags of words,
    neighbours by the means alone being the reference. See the guide, "Sets of vectors".

    Every method is tested on the same held-out folds. k and a few settings are tuned inside each
    training fold, for the plain distances as for the learners. The *reference* is the best of four
    plain distances (raw, standardised, cosine, whitened), chosen inside each training fold. A
    learner is recommended only if the corrected resampled interval of its paired difference to the
    reference lies off zero and the gain exceeds ``min_gain``; Holm's p over all learners is given
    beside it.

    Parameters
    ----------
    X : array-like, DataFrame or Sets
        Rows and features; images as (n, height, width) or (n, height, width, 3). In a DataFrame
        missing values are imputed and categories encoded inside each fold; identifiers, dates, free
        text and categories of hundreds of levels are left out, and said. Of ``Sets`` each set is
        what below is called a row.
    y : array-like of shape (n_samples,), optional
        Labels; a continuous target is refused. None compares embeddings; for ``Sets`` it takes
        their own labels.
    methods : mapping, sequence, str, learner or None
        ``{"lmnn": LMNN(), "mine": Mine()}``: learners, or classifiers, or lists of up to four of
        them as settings to tune; or learners and names of learners, as in ``[LMNN(), "rca"]``, or
        of a family, as in ``"discriminant"``; None is LDA, RCA and LMNN. Without labels,
        embeddings with a ``transform`` for new rows; None chooses by the number of rows. For
        ``Sets``, the names that ``nearfar methods`` lists under "sets of vectors", or estimators
        that take ``Sets``.
    cv : int, splitter or iterable, optional
        Folds of your own: how many, a splitter of scikit-learn, or pairs of row numbers to train on
        and to test; None is repeated, shuffled, stratified 5-fold.
    groups : array-like of shape (n_samples,), optional
        Rows of one group are never both trained on and tested.
    time : array-like of shape (n_samples,), optional
        Numbers or dates: train on the past, test on what follows.
    test : (X, y), optional
        A fixed test set instead of folds.
    scoring : str or callable, optional
        A scorer of scikit-learn whose best value is 1; None is the error, balanced when classes
        are unbalanced.
    scale : {"auto", "none", "standard", "unit"}, default="auto"
        Scaling before the learners; "auto" tunes it. Without labels it is also the scaling of
        what is measured, and "auto" standardises columns of very unequal spread. For ``Sets``
        "standard" divides features by their standard deviations over all training vectors.
    repeats : int, optional
        How often all rows are split anew; None is as many as the time allows, at most 5.
    time_budget : float, optional
        Seconds; then what still runs is killed. None is 120, or no limit when ``repeats`` is given.
    tuning : {"full", "holdout", "k"}, optional
        How much is tried inside each training fold; None is as much as the time allows.
    min_gain : float, default=0.05
        Least gain that is worth a recommendation, relative to the reference's error.
    keep, drop : sequence of column names, optional
        Columns to use, or not, whatever they look like.
    random_state : int, default=0
        Seed of the folds.
    context : bool, default=True
        Add the majority class, logistic regression and gradient-boosted trees, for context;
        without labels, a random projection.
    n_jobs : int, optional
        Worker processes at once; None is one for each core.
    isolate : bool, default=True
        Each method in a process of its own with one BLAS thread: it can be killed, its memory is
        measured, and its crash is a row of the table. False runs all in this process.
    journal : path, optional
        Results are kept there as they come; if it exists, the comparison goes on from it.
    show_rows : bool, default=True
        Let the report show values of rows; False keeps them out of the result altogether.
    n_components : int, default=2
        Dimensions of the embeddings that are only named; without labels only.
    color : str or array-like of shape (n_samples,), optional
        What colours the pictures of the report: a column, which then is no feature, or values;
        without labels only.
    verbose : bool, default=True
        Print plan and progress to standard error.

    Returns
    -------
    Comparison
        With ``answer``, ``best``, ``table``, ``folds``, ``code``, ``to_html`` and ``to_json``;
        without labels an :class:`nearfar.app.compare.embedding_comparison.EmbeddingComparison`.

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
    >>> compare(X, methods="isomap", repeats=1, isolate=False, verbose=False).best
    'pca'
    """
    progress = PlainProgress() if verbose else Progress()
    if isinstance(X, Sets) and y is None:
        if X.labels is None:
            raise ValueError("y is None, and the sets have no labels: sets are compared by them.")
        y = X.labels
    if y is None:
        for name, given in {
            "groups": groups,
            "time": time,
            "test": test,
            "scoring": scoring,
            "tuning": tuning,
        }.items():
            if given is not None:
                raise ValueError(f"{name} needs labels, and y is None.")
        result = compare_unlabelled(
            as_table(X, None),
            methods=methods,
            cv=cv,
            scale=scale,
            repeats=repeats,
            time_budget=time_budget,
            min_gain=min_gain,
            keep=keep,
            drop=drop,
            color=color,
            n_components=n_components,
            random_state=random_state,
            context=context,
            n_jobs=n_jobs,
            isolate=isolate,
            journal=journal,
            progress=progress,
            show_rows=show_rows,
        )
        if journal is not None and result.complete:
            Path(journal).unlink(missing_ok=True)
        return result
    if color is not None or n_components != 2:
        raise ValueError("color and n_components are for data without labels, and y is given.")
    result = compare_tables(
        as_table(X, y, groups, time),
        fixed_test(test),
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
        progress=progress,
        show_rows=show_rows,
    )
    if journal is not None and result.complete:
        Path(journal).unlink(missing_ok=True)
    return result


def compare_unlabelled(
    table: Table,
    *,
    repeats: int | None = None,
    time_budget: float | None = None,
    context: bool = True,
    n_jobs: int | None = None,
    isolate: bool = True,
    **options: Any,
) -> Comparison:
    """:func:`nearfar.app.compare.unlabelled.compare_embeddings` with the defaults of here."""
    if time_budget is None and repeats is None:
        time_budget = DEFAULT_BUDGET
    return compare_embeddings(
        table,
        repeats=repeats,
        time_budget=time_budget,
        baseline=context,
        n_jobs=_n_jobs(n_jobs) if isolate else 1,
        isolate=isolate,
        **options,
    )


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
    keep: Sequence[Any] | None = None,
    drop: Sequence[Any] | None = None,
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
    check_numbers(
        repeats=repeats,
        time_budget=time_budget,
        min_gain=min_gain,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    if tuning not in (None, *TUNINGS):
        raise ValueError(f"tuning={tuning!r} must be one of {', '.join(TUNINGS)}.")
    if time_budget is None and repeats is None:
        time_budget = DEFAULT_BUDGET
    seed, cv = int(random_state), folds_given(cv)
    keep, drop = names_asked(keep), names_asked(drop)
    of_sets = isinstance(table.X, Sets)
    if of_sets:
        columns = set_columns(table, keep, drop)
        compared = [*set_baselines(), *set_learners(methods, scale, seed)]
        compared += set_context(seed) if context else []
    else:
        columns = choose_columns(
            table.X, feature_names=table.feature_names, keep=keep, drop=drop, show_cells=show_rows
        )
        compared = [*baselines(), *learners(methods, scale)]
        compared += context_methods(seed) if context else []
    problem, columns = _problem(table, test, columns, scoring)
    n_test = 0 if test is None else len(test.X)
    scheme_for = partial(_scheme, problem, n_test=n_test, seed=seed, cv=cv)
    once = scheme_for(1)
    if cv is not None and not isinstance(cv, int):
        scheme_for = partial(_same, once)  # a splitter without a seed would give others
    # Few groups are split once, however often it is asked for.
    repeated = test is None and len(scheme_for(2).folds) > len(once.folds)
    if not repeated:
        repeats = 1
    warned = _warnings(problem, columns, once, table, show_rows)
    data = describe(table, test, columns, _class_names(table, problem.classes), problem.codes)
    data["unit"] = problem.noun
    data["sets"] = facts_of_sets(problem.X) if of_sets else None
    left_out = [f"Left out: column {column!r}: {why}." for column, why in columns.dropped]
    for line in [
        data_line(data),
        *data["messages"],
        *left_out,
        *(f"Warning: {trap.text}" for trap in warned),
        problem.measure.note,
        *once.notes,
    ]:
        progress.say(line)
    book = None
    if journal is not None:
        cuts = [(fold.train, fold.test) for fold in once.folds]
        methods_run = [identity(method) for method in compared]
        settings = (scale, traits(scoring), seed, cuts, methods_run, versions())
        book = _open_journal(journal, problem, settings)
    schedule = Schedule(
        problem,
        compared,
        scheme_for,
        began=began,
        time_budget=None if time_budget is None else float(time_budget),
        tuning=tuning if book is None else book.agreed(tuning),  # type: ignore[arg-type]
        repeats=None if repeats is None else int(repeats),
        max_repeats=MAX_REPEATS if repeated else 1,
        n_jobs=_n_jobs(n_jobs) if isolate else 1,
        isolate=isolate,
        journal=book,
        progress=progress,
    )
    schedule.run()
    progress.close()
    assert schedule.plan is not None
    summary = Summary(problem, schedule.runs, schedule.scheme, min_gain=float(min_gain))
    lines = repeat_lines(
        table,
        test,
        columns,
        summary.rows[summary.best].method,
        schedule.scheme,
        schedule.plan.tuning,
        problem,
        seed=seed,
        keep=keep,
        drop=drop,
    )
    document = make_document(
        data,
        warned,
        schedule,
        summary,
        code=lines,
        seed=seed,
        seconds=monotonic() - began,
        argv=argv,
    )
    if show_rows:
        document |= contents(document, problem.X, columns, table.image_shape)
    if of_sets:
        document["sets"] = _picture(problem, summary, seed, show_rows, document["warnings"])
    complete = all(run.status != "unfinished" for run in schedule.runs.values())
    return Comparison(document, complete=complete)


def _picture(
    problem: Problem, summary: Summary, seed: int, show_rows: bool, warned: list[dict[str, str]]
) -> dict[str, Any] | None:
    """The picture of sets, by the dissimilarity of the method that the answer speaks of."""
    told = summary.rows[summary.judgement.method or summary.best]
    shown = shown_dissimilarity(told.method, told.results)
    try:
        found = picture_of_sets(problem.X, shown, seed, show_rows=show_rows)
    except (ValueError, np.linalg.LinAlgError, MemoryError) as error:
        # What was compared stands, with or without a picture.
        warned.append({"kind": "picture", "text": f"The sets could not be drawn: {error}"})
        return None
    return found | {"method": None if shown is None else told.method.label}


def _problem(
    table: Table, test: Table | None, columns: Columns, scoring: Any
) -> tuple[Problem, Columns]:
    """The rows of training and test set, prepared for comparison."""
    classes, codes = traps.check_target(
        all_labels(table, test), table.target or "y", noun=noun_of(table.X)
    )
    if isinstance(table.X, Sets):
        rows = all_sets(table, test)
    else:
        rows = all_rows(table, test, columns)
        columns = columns.knowing(rows)
    # Two rows of each class, to try the scorer on.
    firsts = np.unique(codes, return_index=True)[1]
    lasts = len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1]
    some = np.concatenate([firsts, lasts])
    measure = choose_measure(
        scoring,
        classes,
        np.bincount(codes, minlength=len(classes)),
        (rows.iloc[some] if hasattr(rows, "iloc") else rows[some], codes[some]),
        noun=noun_of(rows),
    )
    problem = Problem(
        rows,
        classes,
        codes,
        "passthrough" if isinstance(rows, Sets) else columns.preprocessor(),
        measure,
        all_groups(table, test),
        table.time if test is None else None,
        columns.origins,
        len(columns.names),
    )
    if isinstance(rows, Sets):
        problem.plainest = plain_setting()
    return problem, columns


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
        noun=problem.noun,
    )


def _same(scheme: Scheme, repeats: int) -> Scheme:
    return scheme


def _warnings(
    problem: Problem, columns: Columns, scheme: Scheme, table: Table, show_rows: bool
) -> list[traps.Trap]:
    if isinstance(problem.X, Sets):
        return set_warnings(problem, scheme, show_rows=show_rows)
    classes = problem.classes.tolist()
    counts = np.bincount(problem.codes, minlength=len(classes))
    folds = [(fold.train, fold.test) for fold in scheme.folds]
    found = [
        *traps.duplicates(problem.X, problem.codes, folds),
        *traps.telling_columns(problem.X, columns, problem.codes),
        *traps.small_classes(classes, counts.tolist(), scheme.n_splits),
        *traps.untrained_classes(classes, problem.codes, folds),
    ]
    if not hasattr(problem.X, "iloc"):
        found += traps.id_like(problem.X, table.feature_names)
    return found


def _class_names(table: Table, classes: NDArray[Any]) -> list[str]:
    if table.class_names is not None and len(table.class_names) == len(classes):
        return [str(name) for name in table.class_names]
    return [str(label) for label in classes.tolist()]


def _open_journal(path: Any, problem: Problem, settings: Any) -> Journal:
    sides = (problem.X, problem.codes, problem.groups, problem.time, settings)
    book = Journal(Path(path), str(joblib.hash(sides)))
    return book.read()


def _n_jobs(n_jobs: int | None) -> int:
    return max(1, int(joblib.effective_n_jobs(-1 if n_jobs is None else n_jobs)))
