"""Running methods fold by fold within a time budget: pilot, plan, round-robin, deadline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal

import numpy as np

from nearfar.app.compare.folds import Work
from nearfar.app.compare.interrupts import Interrupts
from nearfar.app.compare.journal import Journal
from nearfar.app.compare.methods import Method
from nearfar.app.compare.pool import LocalPool, ProcessPool
from nearfar.app.compare.question import Question
from nearfar.app.compare.splits import INNER_SPLITS, Scheme, Tuning
from nearfar.app.progress import Progress
from nearfar.words import seconds_text

Status = Literal["done", "unfinished", "failed"]
#: Share of the budget that the pilot may take.
PILOT_SHARE = 0.4
PILOT_ROWS = 1000
MAX_REPEATS = 5
#: How often a process may be killed at one task before its method is given up.
MOST_DEATHS = 1


@dataclass
class Run:
    """How far a method has come."""

    method: Method
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    status: Status = "unfinished"
    reason: str | None = None
    peak: float | None = None
    #: Seconds of one fit and prediction on the training rows of a fold, foretold.
    fit_seconds: float | None = None
    stage: Literal["waiting", "starting", "pilot", "ready", "busy", "over"] = "waiting"
    pilots: list[tuple[int, float]] = field(default_factory=list)
    fold: int | None = None
    #: Foretold not to finish in time.
    late: bool = False
    #: How often its process died since it last finished something.
    deaths: int = 0
    #: Given up because its process died: another try may do better.
    lost: bool = False

    @property
    def alive(self) -> bool:
        """Whether more may come of it."""
        return self.stage != "over"


@dataclass(frozen=True)
class Plan:
    """What will be run."""

    tuning: Tuning
    repeats: int
    lines: tuple[str, ...]


class Schedule:
    """Gives tasks to workers, at most ``n_jobs`` at once, all methods keeping step.

    Parameters
    ----------
    scheme_for : callable
        Folds for a number of repeats; fewer repeats are the first folds of more.
    question : Question
        Its ``budget`` in seconds from ``began``, when what runs is killed; its ``repeats``,
        ``workers`` and ``isolate``.
    tuning : str or None
        As the user fixed it; otherwise the pilot decides, as for the repeats.
    """

    def __init__(
        self,
        problem: Work,
        methods: list[Method],
        scheme_for: Callable[[int], Scheme],
        question: Question,
        *,
        tuning: Tuning | None,
        began: float,
        journal: Journal | None,
        progress: Progress,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.problem, self.scheme_for = problem, scheme_for
        self.runs = {method.name: Run(method) for method in methods}
        self.began, self.budget = began, question.budget
        self.scheme = scheme_for(1)
        # Few groups are split once, however often it is asked for.
        anew = len(scheme_for(2).folds) > len(self.scheme.folds)
        self.tuning, self.max_repeats = tuning, MAX_REPEATS if anew else 1
        self.repeats = question.repeats if anew else 1
        self.n_jobs = question.workers
        pool = ProcessPool if question.isolate else LocalPool
        self.pool: ProcessPool | LocalPool = pool(problem)
        self.journal, self.progress = journal, progress
        self.interrupts = Interrupts() if interrupts is None else interrupts
        if journal is not None:
            for name, run in self.runs.items():
                run.results = dict(journal.results.get(name, {}))
                peaks = [result["peak_mb"] for result in run.results.values()]
                run.peak = max((peak for peak in peaks if peak is not None), default=None)
            for line in journal.notes:
                progress.say(line)
        self.plan: Plan | None = None
        self.status = "complete"

    def run(self) -> None:
        """Run until all is done, the time is up or the user interrupts."""
        try:
            self._run()
        finally:
            if self.journal is not None:
                self.journal.close()

    def _run(self) -> None:
        try:
            self._loop()
            self.interrupts.ignore()
        except KeyboardInterrupt:
            self.interrupts.ignore()
            self.status = "interrupted"
        finally:
            for run in self.runs.values():
                if run.alive:
                    whole = self.plan is not None and self._task(run) is None
                    self._end(run, "done" if whole else "unfinished", None)
            self.pool.close()
        if self.plan is None:  # interrupted before there was one
            self._make_plan()

    def _loop(self) -> None:
        if self.budget is None or (self.tuning is not None and self.repeats is not None):
            self._make_plan()  # nothing to find out
        while True:
            self._give_tasks()
            if self._n_working() == 0 and not self._extend():
                return
            left = None if self.budget is None else self.began + self.budget - monotonic()
            if left is not None and left <= 0:
                self.status = "time budget reached"
                return
            if self.interrupts.heard:  # by a learner in this process that made the best of it
                raise KeyboardInterrupt
            event = self.pool.next_event(self._patience(left))
            if event is not None:
                self._take(*event)
            if self.plan is None and self._pilots_over():
                self._make_plan()
            self.progress.tick()

    def _patience(self, left: float | None) -> float | None:
        if self.plan is None and self.budget is not None and left is not None:
            left = min(left, max(0.05, self._pilot_end() - monotonic()))
        return self.progress.every if left is None else min(left, self.progress.every)

    # Tasks

    def _give_tasks(self) -> None:
        while self._n_working() < self.n_jobs:
            run = self._next()
            if run is None:
                return
            self._give(run)

    def _n_working(self) -> int:
        return sum(run.stage in ("starting", "pilot", "busy") for run in self.runs.values())

    def _next(self) -> Run | None:
        """The idle method that is furthest behind."""
        idle = [
            run
            for run in self.runs.values()
            if run.stage in ("waiting", "ready") and self._task(run) is not None
        ]
        # What cannot finish in time anyway must not hold up what can.
        return min(
            idle,
            key=lambda run: (
                self.plan is None and run.stage == "waiting",  # pilots first
                run.late,
                len(run.results),
            ),
            default=None,
        )

    def _task(self, run: Run) -> tuple[str, int] | None:
        if self.plan is None:
            sizes = [size for size in self._pilot_sizes() if size not in dict(run.pilots)]
            return ("pilot", sizes[0]) if sizes else None
        todo = (i for i in range(len(self.scheme.folds)) if i not in run.results)
        fold = next(todo, None)
        return None if fold is None else ("fold", fold)

    def _give(self, run: Run) -> None:
        name = run.method.name
        if run.stage == "waiting":
            run.stage = "starting"
            self.pool.start(run.method)
            return
        task = self._task(run)
        assert task is not None
        kind, number = task
        fold = self.scheme.folds[0 if kind == "pilot" else number]
        arguments: dict[str, Any] = {"train": fold.train, "test": fold.test}
        if kind == "pilot":
            run.stage, run.fold = "pilot", number
            arguments["size"] = number
        else:
            assert self.plan is not None
            run.stage, run.fold = "busy", number
            arguments |= {
                "tuning": self.plan.tuning,
                "details": fold.repeat == 0,
                "draw": number == 0,
            }
        self.progress.working(run.method.name)
        self.pool.give(name, kind, arguments)

    # Events

    def _take(self, name: str, event: dict[str, Any]) -> None:
        run = self.runs[name]
        if not run.alive:
            return
        kind = event["kind"]
        if event.get("peak") is not None:
            run.peak = max(run.peak or 0.0, event["peak"])
        if kind == "failed":
            self._end(run, "failed", event["reason"])
        elif kind == "died":
            self._bury(run, event)
        elif kind == "ready":
            run.stage = "ready"
        elif run.stage == "pilot":
            assert run.fold is not None
            run.pilots.append((run.fold, event["value"]))
            run.stage, run.deaths = "ready", 0
        else:
            assert run.fold is not None
            self._record(run, run.fold, event["value"])
            run.stage, run.deaths = "ready", 0

    def _bury(self, run: Run, event: dict[str, Any]) -> None:
        """Run what a killed process was at once more in a fresh one; twice is enough."""
        run.deaths += not event.get("orphan", False)
        if run.deaths > MOST_DEATHS:
            run.lost = True
            self._end(run, "failed", f"{event['reason']} (tried twice)")
            if self.status == "complete":
                self.status = "a worker died"
            return
        peak = self.pool.stop(run.method.name)
        run.peak = run.peak if peak is None else max(run.peak or 0.0, peak)
        run.stage = "waiting"

    def _record(self, run: Run, fold: int, value: dict[str, Any]) -> None:
        result = {"fold": fold, **value, "peak_mb": run.peak}
        run.results[fold] = result
        if self.journal is not None:
            self.journal.add(run.method.name, result)
        self.progress.fold_done(run.method.name, len(run.results), _mean_error(run))

    def _end(self, run: Run, status: Status, reason: str | None) -> None:
        peak = self.pool.stop(run.method.name)
        if peak is not None:
            run.peak = max(run.peak or 0.0, peak)
        run.stage, run.status, run.reason = "over", status, reason
        self.progress.ended(run.method.name, status, reason)

    # The plan

    def _pilot_sizes(self) -> list[int]:
        n = len(self.scheme.folds[0].train)
        return [n] if n <= PILOT_ROWS else [PILOT_ROWS // 2, PILOT_ROWS]

    def _pilot_end(self) -> float:
        assert self.budget is not None
        return self.began + PILOT_SHARE * self.budget

    def _pilots_over(self) -> bool:
        runs = [run for run in self.runs.values() if run.alive]
        wanted = len(self._pilot_sizes())
        if all(len(run.pilots) >= wanted for run in runs):
            return True
        return self.budget is not None and monotonic() >= self._pilot_end()

    def _make_plan(self) -> None:
        sizes = len(self._pilot_sizes())
        n_train = len(self.scheme.folds[0].train)
        for run in self.runs.values():
            if len(run.pilots) >= sizes:
                run.fit_seconds = foretell(run.pilots, n_train)
        known = [run.fit_seconds for run in self.runs.values() if run.fit_seconds is not None]
        for run in self.runs.values():
            if known and run.fit_seconds is None and run.stage in ("waiting", "starting", "ready"):
                run.fit_seconds = float(np.median(known))  # it had no turn: a guess
        tuning, repeats = self.tuning, self.repeats
        if tuning is None or repeats is None:
            tuning, repeats = self._fit_into_budget()
        if self.repeats is None:  # what was begun before is gone on with
            last = max((max(run.results, default=0) for run in self.runs.values()), default=0)
            repeats = max(repeats, min(self.max_repeats, last // self.scheme.n_splits + 1))
        self.scheme = self.scheme_for(repeats)
        for run in self.runs.values():  # a journal may hold more than is asked for now
            run.results = {i: r for i, r in run.results.items() if i < len(self.scheme.folds)}
        self.plan = Plan(tuning, repeats, tuple(self._plan_lines(tuning)))
        if self.journal is not None:
            self.journal.begin({"tuning": tuning, "repeats": repeats})
        for line in self.plan.lines:
            self.progress.say(line)
        self._planned = monotonic()
        self.progress.begin(
            [(run.method.name, run.method.label, run.method.role) for run in self.runs.values()],
            len(self.scheme.folds),
        )
        for run in self.runs.values():
            for result in run.results.values():
                self.progress.fold_done(run.method.name, result["fold"] + 1, _mean_error(run))

    def _extend(self) -> bool:
        """One more repeat, if the time left allows it."""
        if self.plan is None or self.repeats is not None or self.budget is None:
            return False
        if self.plan.repeats >= self.max_repeats or not self._n_alive():
            return False
        now = monotonic()
        if 1.2 * (now - self._planned) / self.plan.repeats > self.began + self.budget - now:
            return False
        repeats = self.plan.repeats + 1
        line = f"Time is left: repeat {repeats}."
        self.plan = Plan(self.plan.tuning, repeats, (*self.plan.lines, line))
        self.scheme = self.scheme_for(repeats)
        self.progress.say(line)
        self.progress.more(len(self.scheme.folds))
        return True

    def _fit_into_budget(self) -> tuple[Tuning, int]:
        """How careful tuning may be, and how many repeats, in the time left."""
        most = self.repeats if self.repeats is not None else self.max_repeats
        levels: list[Tuning] = ["full", "holdout", "k"] if self.tuning is None else [self.tuning]
        if self.budget is None:
            return levels[0], most
        left = 0.9 * (self.began + self.budget - monotonic())
        least = levels[-1]
        # A method that cannot finish whatever is done must not lower the standard for the others.
        able = [r for r in self.runs.values() if r.alive and self._round(r, least) <= left]
        capacity = left * max(1, self.n_jobs - (len(able) < self._n_alive()))
        rounds = {level: self._rounds(able, level, capacity, left) for level in levels}
        # The interval is two thirds as long with three repeats as with one: they come first.
        for enough in (min(3, most), 2, 1):
            for level in levels:
                if rounds[level] >= enough:
                    return level, max(1, min(most, math.floor(rounds[level])))
        return least, 1 if self.repeats is None else self.repeats

    def _rounds(self, runs: list[Run], tuning: Tuning, capacity: float, left: float) -> float:
        """How many repeats there is time for."""
        costs = [self._round(run, tuning) for run in runs]
        if not costs:
            return 0.0
        return min(capacity / max(sum(costs), 1e-9), left / max(*costs, 1e-9))

    def _n_alive(self) -> int:
        return sum(run.alive for run in self.runs.values())

    def _round(self, run: Run, tuning: Tuning) -> float:
        """Seconds for every fold of one repeat."""
        if run.fit_seconds is None:
            return math.inf
        settings = run.method.settings[:1] if tuning == "k" else run.method.settings
        tuned = len(settings) > 1 or settings[0].votes
        fits = 1 + 0.8 * INNER_SPLITS[tuning] * len(settings) * tuned
        return fits * run.fit_seconds * self.scheme.n_splits

    def _plan_lines(self, tuning: Tuning) -> list[str]:
        folds = len(self.scheme.folds)
        plan = (
            f"Plan: {self.scheme.words} ({folds} fold{'s' * (folds > 1)}); {TUNING_WORDS[tuning]}."
        )
        lines = [without_folds(plan, folds == 1, self.problem.noun)]
        rounds = folds / self.scheme.n_splits
        known = {
            run.method.label: rounds * self._round(run, tuning)
            for run in self.runs.values()
            if run.fit_seconds is not None and run.method.role != "baseline"
        }
        if known and self.budget is not None:
            slowest = sorted(known.items(), key=lambda item: -item[1])[:4]
            parts = ", ".join(f"{label} {seconds_text(cost)}" for label, cost in slowest)
            lines.append(
                f"Foretold by the pilot, on one core: {parts}; budget {self.budget:g} s on "
                f"{self.n_jobs} core{'s' * (self.n_jobs > 1)}."
            )
        for run in self.runs.values():
            left = math.inf if self.budget is None else self.began + self.budget - monotonic()
            run.late = bool(known) and run.alive and rounds * self._round(run, tuning) > left
        late = [run.method.label for run in self.runs.values() if run.late]
        if late:
            lines.append(f"Will hardly finish in time: {', '.join(late)}.")
        return lines


TUNING_WORDS: dict[Tuning, str] = {
    "full": "k from 1 to 15 and up to 4 settings a method tuned by 3 folds inside each training "
    "fold",
    "holdout": "k from 1 to 15 and up to 4 settings a method tuned on a quarter held out of each "
    "training fold",
    "k": "k from 1 to 15 tuned on a quarter held out of each training fold, first setting only",
    "none": "nothing is tuned",
}


def without_folds(text: str, fixed: bool, noun: str = "row") -> str:
    """The text as it is, or in words for a fixed test set, which has no folds."""
    if not fixed:
        return text
    return text.replace(" (1 fold)", "").replace("each training fold", f"the training {noun}s")


def foretell(pilots: list[tuple[int, float]], n_train: int) -> float:
    """Seconds at ``n_train`` rows from times at fewer, by the power law through the last two.

    >>> round(foretell([(500, 0.1), (1000, 0.4)], 4000), 2)
    6.4
    """
    size, seconds = pilots[-1]
    if size >= n_train or len(pilots) < 2:
        return seconds
    (half, before), _ = pilots[-2:]
    power = math.log(max(seconds, 1e-6) / max(before, 1e-6)) / math.log(size / half)
    return seconds * (n_train / size) ** min(max(power, 1.0), 2.0)


def _mean_error(run: Run) -> float:
    return float(np.mean([result["error"] for result in run.results.values()]))
