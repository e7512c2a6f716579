"""``compare`` without labels: which embedding keeps the neighbours, and is it worth it?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from nearfar.app.compare.comparison import data_line
from nearfar.app.compare.document import describe, run_facts, versions
from nearfar.app.compare.embedding_comparison import EmbeddingComparison
from nearfar.app.compare.embeddings import (
    LEAST_ROWS,
    MEASURED,
    Embeddings,
    choose_scaler,
    embedding_methods,
    neighbours_counted,
)
from nearfar.app.compare.journal import Journal, identity
from nearfar.app.compare.lines import embedding_lines
from nearfar.app.compare.methods import Scale
from nearfar.app.compare.ranking import Ranking
from nearfar.app.compare.schedule import MAX_REPEATS, Schedule
from nearfar.app.compare.splits import Scheme, make_unlabelled_scheme
from nearfar.app.progress import Progress
from nearfar.app.tables import traps
from nearfar.app.tables.colours import colour_column, colours, set_aside
from nearfar.app.tables.columns import Columns, choose_columns, names_asked
from nearfar.app.tables.inputs import check_numbers, folds_given
from nearfar.app.tables.traps import Trap
from nearfar.arrays import Matrix
from nearfar.datasets.tables import Table
from nearfar.summaries.neighbor_graph import distinct_rows
from nearfar.words import count, percent

KEPT = "neighbours kept"


def compare_embeddings(
    table: Table,
    *,
    methods: Any = None,
    cv: Any = None,
    scale: Scale = "auto",
    repeats: int | None = None,
    time_budget: float | None = None,
    min_gain: float = 0.05,
    keep: Sequence[Any] | None = None,
    drop: Sequence[Any] | None = None,
    color: Any = None,
    n_components: int = 2,
    random_state: int = 0,
    baseline: bool = True,
    n_jobs: int = 1,
    isolate: bool = True,
    journal: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    began: float | None = None,
    argv: Sequence[str] | None = None,
    show_rows: bool = True,
) -> EmbeddingComparison:
    """:func:`nearfar.compare` without labels, for data in a table.

    ``color`` is the name of a column, which then is no feature, or a value for each row; the labels
    of the table, if it has any, colour the pictures otherwise, and do nothing else.
    """
    began = monotonic() if began is None else began
    progress = Progress() if progress is None else progress
    check_numbers(
        repeats=repeats,
        time_budget=time_budget,
        min_gain=min_gain,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    if isinstance(n_components, bool) or not isinstance(n_components, int) or n_components < 1:
        raise ValueError(f"n_components={n_components!r} must be a whole number, 1 or more.")
    seed, cv = int(random_state), folds_given(cv)
    keep, drop = names_asked(keep), names_asked(drop)
    messages = list(table.messages)
    values, name, aside = colour_column(table, color)
    if aside is None and color is None:
        values, name, aside = set_aside(table, keep, drop, messages)
    drop = [*drop, *([aside] if aside is not None else [])]
    columns = choose_columns(
        table.X, feature_names=table.feature_names, keep=keep, drop=drop, show_cells=show_rows
    )
    rows = columns.select(table.X)
    columns = columns.knowing(rows)
    inputs, distinct = _checked_inputs(rows, columns)
    n = len(inputs)
    scheme_for = partial(_scheme, n, rows, seed, cv)
    once = scheme_for(1)
    if cv is not None and not isinstance(cv, int):
        scheme_for = partial(_same, once)
    n_train = min(len(fold.train) for fold in once.folds)
    if n_train <= 5:
        raise ValueError(
            f"A fold has {n_train} training rows; embeddings need more than 5. Ask for fewer folds."
        )
    scaler, scaled = choose_scaler(inputs, scale, table.image_shape is not None)
    counted, looked_at = neighbours_counted(n_train)
    problem = Embeddings(rows, columns.preprocessor(), scaler, counted, looked_at)
    compared = embedding_methods(
        methods,
        n_train=n_train,
        n_components=n_components,
        seed=seed,
        scaler=scaler,
        baseline=baseline,
    )
    if inputs.shape[1] < n_components:
        raise ValueError(
            f"The data have {count(inputs.shape[1], 'column')} to use: there is nothing to embed "
            f"in {n_components} dimensions. Ask for fewer (n_components, --components)."
        )
    note = (
        f"Neighbours kept: of the {counted} training rows nearest to a held-out row in the data, "
        f"the share that is among its {counted} nearest in the embedding, where transform places "
        f"it; by chance {percent(counted / n_train)}. This number ranks. Far distances and shape "
        "are not judged by it."
    )
    warned = _warnings(rows, inputs, distinct, scaler, columns, n_components, table)
    data = describe(table, None, columns, [], np.zeros(n, dtype=np.intp))
    data |= {"class_counts": [], "target": None, "messages": messages}
    data |= {"groups": None, "time": None}
    data["dropped"] = [
        [column, "colours the pictures" if column == aside else why]
        for column, why in data["dropped"]
    ]
    left_out = [
        f"Left out: column {column!r}: {why}."
        for column, why in data["dropped"]
        if column != aside or color is not None  # else a message has said it
    ]
    for line in [
        f"{data_line(data)} No labels are used: embeddings are compared.",
        *messages,
        *left_out,
        *(f"Warning: {trap.text}" for trap in warned),
        scaled,
        note,
    ]:
        progress.say(line)
    progress.measure = "neighbours lost"
    book = None
    if journal is not None:
        cuts = [(fold.train, fold.test) for fold in once.folds]
        settings = (scaled, counted, seed, cuts, [identity(m) for m in compared], versions())
        book = Journal(Path(journal), str(joblib.hash(("embeddings", rows, settings)))).read()
    schedule = Schedule(
        problem,
        compared,
        scheme_for,
        began=began,
        time_budget=None if time_budget is None else float(time_budget),
        tuning="none",
        repeats=None if repeats is None else int(repeats),
        max_repeats=MAX_REPEATS if len(scheme_for(2).folds) > len(once.folds) else 1,
        n_jobs=n_jobs,
        isolate=isolate,
        journal=book,
        progress=progress,
    )
    schedule.run()
    progress.close()
    assert schedule.plan is not None
    ranking = Ranking(problem, schedule.runs, schedule.scheme, min_gain=float(min_gain))
    warned += _learners_warnings(ranking)
    best = ranking.rows[ranking.best or "pca"].method
    lines = embedding_lines(
        table,
        columns,
        best,
        schedule.scheme,
        n_neighbors=counted,
        measured=MEASURED,
        keep=keep,
        drop=drop,
    )
    found = ranking.pictures()
    shown = found["pictures"]["rows"]
    again = f"repeats={schedule.plan.repeats}, random_state={seed}"
    document = {
        **run_facts(data, warned, schedule, seconds=monotonic() - began, argv=argv),
        "kind": "embeddings",
        "protocol": {
            "scheme": schedule.scheme.words,
            "n_splits": schedule.scheme.n_splits,
            "repeats": schedule.plan.repeats,
            "seed": seed,
            "min_gain": ranking.min_gain,
            "confidence": ranking.confidence,
            "measure": KEPT,
            "measure_note": note,
            "n_neighbors": counted,
            "looked_at": list(looked_at),
            "chance": counted / n_train,
            "n_components": n_components,
            "scaling": scaled,
            "tuning": "none",
            "time_budget": schedule.budget,
            "plan": list(schedule.plan.lines),
            "notes": [*schedule.scheme.notes, f"The same folds again: {again}."],
        },
        "common_folds": ranking.common,
        "methods": ranking.table(),
        "nested": None,
        "answer": ranking.answer(),
        "best": ranking.best,
        "code": lines,
        **found,
        "colour": colours(values, name, shown, inputs, show_values=show_rows),
    }
    complete = all(run.status != "unfinished" for run in schedule.runs.values())
    return EmbeddingComparison(document, complete=complete)


def _scheme(n: int, rows: Any, seed: int, cv: Any, repeats: int) -> Scheme:
    return make_unlabelled_scheme(n, repeats=repeats, seed=seed, cv=cv, X=rows)


def _same(scheme: Scheme, repeats: int) -> Scheme:
    return scheme


def _checked_inputs(rows: Any, columns: Columns) -> tuple[Matrix, int]:
    """All rows as numbers, and how many are different; refuses what has no neighbours."""
    n = len(rows)
    if n < LEAST_ROWS:
        raise ValueError(
            f"There are {count(n, 'row')}; embeddings are compared on {LEAST_ROWS} or more."
        )
    prepare = columns.preprocessor()
    made = rows if isinstance(prepare, str) else prepare.fit_transform(rows)
    inputs = np.asarray(made, dtype=np.float64)
    distinct = len(distinct_rows(inputs)[0])
    if distinct == 1:
        raise ValueError("All rows are equal: none has neighbours that an embedding could keep.")
    if distinct < LEAST_ROWS:
        raise ValueError(
            f"Only {distinct} of the {n:,} rows are different; embeddings are compared on "
            f"{LEAST_ROWS} or more."
        )
    return inputs, distinct


def _warnings(
    rows: Any,
    inputs: Matrix,
    distinct: int,
    scaler: Any,
    columns: Columns,
    n_components: int,
    table: Table,
) -> list[Trap]:
    found = []
    n, p = inputs.shape
    if n - distinct > 0.01 * n:
        found.append(
            Trap(
                "duplicates",
                f"{count(n - distinct, 'row')} of {n:,} are copies of others: which of equally "
                "near rows is a neighbour is then arbitrary, and every share is too low.",
            )
        )
    if columns.missing:
        found.append(
            Trap(
                "missing values",
                "Missing values are filled with the median: rows with many of them look nearer to "
                "one another than they are.",
            )
        )
    if p <= n_components:
        found.append(
            Trap(
                "dimensions",
                f"The data have {count(p, 'column')} and the embeddings {n_components}: PCA loses "
                "nothing, and there is nothing to choose.",
            )
        )
    spreads: NDArray[np.float64] = inputs.var(axis=0)
    if isinstance(scaler, str) and p > 1 and spreads.max() > 0.9 * spreads.sum():
        origins = columns.origins(columns.preprocessor()) if not columns.categorical else None
        which = int(spreads.argmax())
        name = columns.names[origins[which]] if origins else f"number {which}"
        found.append(
            Trap(
                "scale",
                f"Column '{name}' alone makes {percent(float(spreads.max() / spreads.sum()))} of "
                "the variance, and so nearly all of each distance. Is that its due? Scale "
                "'standard' weighs all columns alike.",
            )
        )
    if not hasattr(rows, "iloc"):
        found += traps.id_like(rows, table.feature_names)
    return found


def _learners_warnings(ranking: Ranking) -> list[Trap]:
    """What the learners warned of, each text once with who said it."""
    said: dict[str, list[str]] = {}
    for row in ranking.rows.values():
        texts = dict.fromkeys(text for r in row.results.values() for text in r["warnings"])
        for text in list(texts)[:1]:
            kind, _, rest = text.partition(": ")
            words = rest if kind.endswith("Warning") and rest else text
            label = row.method.label
            words = words.removeprefix(f"{label}: ")
            said.setdefault(words, []).append(label)
    return [Trap(", ".join(labels), text) for text, labels in said.items()]
