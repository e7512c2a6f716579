"""The steps of a comparison, in their order, whatever is compared."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import joblib

from nearfar.app.compare.chain import chosen_by_folds
from nearfar.app.compare.comparison import Comparison
from nearfar.app.compare.document import make_document, versions
from nearfar.app.compare.interrupts import Interrupts
from nearfar.app.compare.journal import Journal, identity, traits
from nearfar.app.compare.kinds.choice import kind_of
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.methods import Method
from nearfar.app.compare.plan import row_steps
from nearfar.app.compare.question import Question
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.second_stage import confirm
from nearfar.app.compare.splits import Scheme
from nearfar.app.progress import Progress
from nearfar.app.tables.traps import Trap
from nearfar.words import normalize_name, suggest_names


def answer(
    question: Question,
    *,
    progress: Progress | None = None,
    began: float | None = None,
    argv: Sequence[str] | None = None,
) -> Comparison:
    """What is asked, answered."""
    return compared(question, progress=progress, began=began, argv=argv)[0]


def compared(
    question: Question,
    *,
    progress: Progress | None = None,
    began: float | None = None,
    argv: Sequence[str] | None = None,
    interrupts: Interrupts | None = None,
) -> tuple[Comparison, Kind]:
    """The result, and the data it was found on.

    ``interrupts`` are those of a caller who still has to write what is returned.
    """
    if interrupts is None:
        with Interrupts() as interrupts:
            return compared(
                question, progress=progress, began=began, argv=argv, interrupts=interrupts
            )
    with warnings.catch_warnings():
        # What scikit-learn warns of when it splits rows is said in words of ours, or not at all.
        warnings.filterwarnings("ignore", module=r"sklearn\.")
        return _compared(question, progress, began, argv, interrupts)


def _compared(
    question: Question,
    progress: Progress | None,
    began: float | None,
    argv: Sequence[str] | None,
    interrupts: Interrupts,
) -> tuple[Comparison, Kind]:
    """All steps of a comparison, in their order, whatever is compared."""
    began = monotonic() if began is None else began
    progress = Progress() if progress is None else progress
    prepared = _prepare(question)
    kind, methods, warned, data = prepared.kind, prepared.methods, prepared.warned, prepared.data
    for line in kind.lines(data, warned, prepared.scheme):
        progress.say(line)
    progress.measure = kind.progress_measure
    book = _journal(kind, methods, prepared.scheme)
    schedule = prepared.schedule(began, book, progress, interrupts)
    try:
        schedule.run()
        kind.drawn = None if schedule.plan is None else schedule.plan.rows
        found = kind.answer(schedule)
        found.confirm(confirm(schedule, found.finalists()))
    finally:
        schedule.close()
    progress.close()
    document = make_document(
        kind,
        schedule,
        found,
        data=data,
        warned=[*warned, *found.warnings()],
        seconds=monotonic() - began,
        argv=argv,
    )
    complete = not any(run.status == "unfinished" or run.lost for run in schedule.runs.values())
    result = kind.result(document, complete=complete)
    chosen = chosen_by_folds(document, methods)
    result.chain = None if chosen is None else kind.chain(chosen)
    return result, kind


@dataclass(frozen=True)
class PreparedComparison:
    """A comparison before its first fit: the data, methods and folds, and their warnings."""

    kind: Kind
    methods: list[Method]
    scheme: Scheme
    warned: list[Trap]
    data: dict[str, Any]

    def schedule(
        self,
        began: float,
        journal: Journal | None,
        progress: Progress,
        interrupts: Interrupts | None = None,
    ) -> Schedule:
        """Return the schedule that runs it."""
        kind, question = self.kind, self.kind.question
        return Schedule(
            kind.problem,
            self.methods,
            kind.splits if question.draws_folds else lambda repeats, sample: self.scheme,
            question,
            tuning=kind.tuning or question.tuning,
            sample=kind.sample,
            began=began,
            journal=journal,
            progress=progress,
            interrupts=interrupts,
        )


def _prepare(question: Question) -> PreparedComparison:
    """Read the data, choose the columns, the methods and the folds, and look for traps."""
    kind = kind_of(question)
    kind.read()
    kind.prepare()
    once = kind.splits(1, kind.sample)
    methods = _without(kind.methods(once), question.without)
    warned = kind.warnings(once)
    return PreparedComparison(kind, methods, once, warned, kind.describe())


def outline(question: Question) -> tuple[PreparedComparison, Schedule, list[str]]:
    """Take all steps of a comparison before its first fit, for ``--dry-run``.

    Returns
    -------
    prepared : PreparedComparison
        The data, methods and folds.
    schedule : Schedule
        It was not run. Its ``plan`` is set if the options fix it.
    undecided : list of str
        The parts of the plan that a pilot run would decide.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"sklearn\.")
        # A pool of processes would write the data into a temporary file.
        prepared = _prepare(replace(question, isolate=False, journal=None))
        schedule = prepared.schedule(monotonic(), None, Progress())
    undecided: list[str] = []
    if schedule.budget is not None:
        more_rows = len(row_steps(schedule.n_rows, schedule.problem.least_rows)) > 1
        if schedule.repeats is None:
            undecided.append("the number of repeats")
        if schedule.cuts_rows and more_rows:
            undecided.append(f"the number of {schedule.problem.noun}s")
        if schedule.tuning is None:
            undecided.append("the tuning")
    if not undecided:
        schedule._make_plan()
    return prepared, schedule, undecided


def _without(methods: list[Method], names: Sequence[str]) -> list[Method]:
    """The methods but those that the user will not have."""
    may_go = {
        normalize_name(one.name): one.name for one in methods if one.role in ("learner", "context")
    }
    for name in names:
        if normalize_name(str(name)) not in may_go:
            hint = suggest_names(str(name), may_go.values())
            raise ValueError(f"without={name!r}: that is none of what is compared.{hint}")
    gone = {normalize_name(str(name)) for name in names}
    left = [one for one in methods if normalize_name(one.name) not in gone]
    if gone and not any(one.role == "learner" for one in left):
        raise ValueError("Without these, nothing is left to compare with the standard distances.")
    return left


def _journal(kind: Kind, methods: list[Method], scheme: Scheme) -> Journal | None:
    asked = kind.question
    if asked.journal is None:
        return None
    cuts = [(fold.train, fold.test) for fold in scheme.folds]
    settings = (asked.scale, traits(asked.scoring), asked.random_state, cuts)
    compared = [identity(method) for method in methods]
    fingerprint = joblib.hash((kind.identity(), settings, compared, versions()))
    book = Journal(Path(asked.journal), str(fingerprint)).read({one.name for one in methods})
    if book.plan is not None:
        given = {
            "tuning": kind.tuning or asked.tuning,
            "rows": None if asked.sample in ("auto", None) else asked.sample,
        }
        try:
            book.agree(given)
        except ValueError:
            book.close()
            raise
    return book
