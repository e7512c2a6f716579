"""Running methods fold by fold within a time budget: pilot, plan, round-robin, deadline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal

import numpy as np

from nearfar.app.compare.folds import Work
from nearfar.app.compare.interrupts import Interrupts
from nearfar.app.compare.journal import Journal
from nearfar.app.compare.methods import OWN_SHARE, Method
from nearfar.app.compare.plan import Plan, choose_plan, foretell, row_steps
from nearfar.app.compare.pool import LocalPool, ProcessPool
from nearfar.app.compare.question import Question
from nearfar.app.compare.splits import INNER_SPLITS, Scheme, Tuning
from nearfar.app.progress import Progress
from nearfar.words import format_seconds

Status = Literal["done", "unfinished", "left out", "failed"]
#: Share of the budget that the pilot may take.
PILOT_SHARE = 0.4
#: Share of the time left that a plan may fill: foretelling is rough, and time left over is used.
FILLED = 0.8
MAX_REPEATS = 5
# Seconds of a fit of which nothing is known.
_UNKNOWN = 0.1
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
    stage: Literal["waiting", "starting", "pilot", "ready", "busy", "over"] = "waiting"
    pilots: list[tuple[int, float]] = field(default_factory=list)
    fold: int | None = None
    #: How often its process died since it last finished something.
    deaths: int = 0
    #: Given up because its process died: another try may do better.
    lost: bool = False

    @property
    def alive(self) -> bool:
        """Whether more may come of it."""
        return self.stage != "over"


class Schedule:
    """Gives tasks to workers, at most ``n_jobs`` at once, all methods keeping step.

    Parameters
    ----------
    scheme_for : callable
        Folds for a number of repeats and of rows, None being all; fewer repeats are the first
        folds of more.
    question : Question
        Its ``budget`` in seconds from ``began``, when what runs is killed; its ``repeats``,
        ``sample``, ``workers`` and ``isolate``.
    tuning : str or None
        As the user fixed it; otherwise the pilot decides, as for repeats and rows.
    sample : int, optional
        Rows to draw from the start.
    """

    def __init__(
        self,
        problem: Work,
        methods: list[Method],
        scheme_for: Callable[[int, int | None], Scheme],
        question: Question,
        *,
        tuning: Tuning | None,
        sample: int | None = None,
        began: float,
        journal: Journal | None,
        progress: Progress,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.problem, self.scheme_for = problem, scheme_for
        self.runs = {method.name: Run(method) for method in methods}
        self.began, self.budget = began, question.budget
        #: Rows to draw, where it is not for the plan to say.
        self.sample = sample
        self.cuts_rows = question.sample == "auto" and sample is None and question.draws_folds
        self.scheme = scheme_for(1, sample)
        self.n_rows = self.scheme.n_rows
        # Few groups are split once, however often it is asked for.
        anew = len(scheme_for(2, sample).folds) > len(self.scheme.folds)
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
        #: Seconds kept free for what comes after the folds.
        self.reserve = 0.0

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
        if self.plan is None:  # interrupted before there was one
            self._make_plan()

    def close(self) -> None:
        """End all processes."""
        self.pool.close()

    def seconds_left(self) -> float:
        """Until the budget is spent."""
        return math.inf if self.budget is None else self.began + self.budget - monotonic()

    def _loop(self) -> None:
        said = self.tuning is not None and self.repeats is not None and not self.cuts_rows
        begun = self.journal is not None and self.journal.plan is not None
        if self.budget is None or said or begun:
            self._make_plan()  # nothing to find out
        while True:
            self._give_tasks()
            self.pool.share_cores(self.n_jobs // max(1, self._n_working()))
            if self._n_working() == 0 and not self._extend():
                return
            left = None if self.budget is None else self.seconds_left()
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
        return min(
            idle,
            key=lambda run: (
                self.plan is None and run.stage == "waiting",  # pilots first
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
                **self.scheme.told,
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
            # One that ends itself will do so again; one that was killed may come further.
            run.lost = not event.get("ended_itself", False)
            self._end(run, "failed", f"{event['reason']} (tried twice)")
            if run.lost and self.status == "complete":
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
        n, most = len(self.scheme.folds[0].train), self.problem.pilot_rows
        return [n] if n <= most else [most // 2, most]

    def _pilot_end(self) -> float:
        assert self.budget is not None
        return self.began + PILOT_SHARE * self.budget

    def _pilots_over(self) -> bool:
        runs = [run for run in self.runs.values() if run.alive]
        wanted = len(self._pilot_sizes())
        if all(len(run.pilots) >= wanted for run in runs):
            return True
        if self.budget is None or monotonic() < self._pilot_end():
            return False
        # On a busy machine even the start takes long: something must be known, if it can be.
        known = sum(bool(run.pilots) for run in runs)
        return 2 * known >= len(runs) or monotonic() >= self._pilot_end() + 0.2 * self.budget

    def _make_plan(self) -> None:
        agreed = None if self.journal is None else self.journal.plan
        plan = self._choose_plan() if agreed is None else agreed
        if self.repeats is not None:
            plan = replace(plan, repeats=self.repeats)
        else:  # what was begun before is gone on with
            last = max((max(run.results, default=0) for run in self.runs.values()), default=0)
            begun = min(self.max_repeats, last // self.scheme.n_splits + 1)
            plan = replace(plan, repeats=max(plan.repeats, begun))
        self.scheme = self.scheme_for(plan.repeats, plan.rows)
        for run in self.runs.values():  # a journal may hold more than is asked for now
            run.results = {i: r for i, r in run.results.items() if i < len(self.scheme.folds)}
        self.plan = replace(plan, lines=tuple(self._plan_lines(plan)))
        for name in plan.left_out:
            run = self.runs[name]
            if run.alive:
                self._end(run, "left out", self._why_left_out(run, plan))
        if plan.rows is not None and self.budget is not None:
            self.reserve = self._for_all_rows()
        if self.journal is not None:
            self.journal.begin(self.plan)
        for line in self.plan.lines:
            self.progress.say(line)
        self._planned = monotonic()
        self.progress.begin(
            [
                (run.method.name, run.method.label, run.method.role)
                for run in self.runs.values()
                if run.method.name not in plan.left_out
            ],
            len(self.scheme.folds),
        )
        for run in self.runs.values():
            for result in run.results.values():
                self.progress.fold_done(run.method.name, result["fold"] + 1, _mean_error(run))

    def _choose_plan(self) -> Plan:
        """What fits into the time left, as far as the user has not said it."""
        most = self.repeats if self.repeats is not None else self.max_repeats
        if self.budget is None:
            return Plan(self.tuning or "full", most, self.sample)
        repeats = [most] if self.repeats is not None else list(range(most, 0, -1))
        rows = row_steps(self.n_rows, self.problem.least_rows) if self.cuts_rows else [self.sample]
        tunings: list[Tuning] = ["full", "holdout", "k"] if self.tuning is None else [self.tuning]
        if len(repeats) == len(rows) == len(tunings) == 1:
            return Plan(tunings[0], repeats[0], rows[0])
        known = {run.method.name: run for run in self.runs.values() if run.alive}
        schemes = {n: self.scheme_for(1, n) for n in rows}

        def seconds(name: str, n: int | None, tuning: Tuning) -> float:
            return self._round(known[name], tuning, schemes[n])

        learners = [name for name, run in known.items() if run.method.role == "learner"]
        learners.sort(key=lambda name: seconds(name, rows[-1], tunings[-1]))
        beside = [name for name, run in known.items() if run.method.role == "context"]
        return choose_plan(
            list(known),
            seconds,
            left=FILLED * self.seconds_left(),
            n_jobs=self.n_jobs,
            repeats=repeats,
            rows=rows,
            tunings=tunings,
            may_go={*learners[1:], *beside},  # one learner at least is compared
            families=lambda name: known[name].method.shares,
        )

    def _extend(self) -> bool:
        """One more repeat, if the time left allows it."""
        if self.plan is None or self.repeats is not None or self.budget is None:
            return False
        alive = any(run.alive for run in self.runs.values())
        if self.plan.repeats >= self.max_repeats or not alive:
            return False
        now = monotonic()
        left = self.seconds_left() - self.reserve
        if 1.2 * (now - self._planned) / self.plan.repeats > left:
            return False
        repeats = self.plan.repeats + 1
        line = f"There is time for repeat {repeats}."
        self.plan = replace(self.plan, repeats=repeats, lines=(*self.plan.lines, line))
        self.scheme = self.scheme_for(repeats, self.plan.rows)
        if self.journal is not None:
            self.journal.begin(self.plan)
        self.progress.say(line)
        self.progress.more(len(self.scheme.folds))
        return True

    def seconds(self, run: Run, n_train: int) -> float:
        """Seconds of one fit and prediction on so many training rows, foretold."""
        if run.pilots:
            return foretell(run.pilots, n_train, self.problem.far_power)
        if run.stage == "pilot":
            return math.inf  # it still runs
        power = self.problem.far_power
        known = [other.pilots for other in self.runs.values() if other.pilots]
        guesses = [foretell(pilots, n_train, power) for pilots in known]
        return float(np.median(guesses)) if guesses else _UNKNOWN  # it had no turn

    def _round(self, run: Run, tuning: Tuning, scheme: Scheme) -> float:
        """Seconds for every fold of one repeat."""
        settings = run.method.tried(tuning)
        tuned = len(settings) > 1 or settings[0].votes
        fits = 1 + 0.8 * INNER_SPLITS[tuning] * len(settings) * tuned
        if run.method.shares is not None:  # the pilot has split inside, and was alone
            parts = 1 if tuning == "k" else run.method.n_parts
            lasting = parts if scheme.told else sum(i < parts for i in run.method.lasting)
            fits = OWN_SHARE * (fits - parts) + parts - lasting + lasting / scheme.n_splits
        return fits * self.seconds(run, len(scheme.folds[0].train)) * scheme.n_splits

    def _for_all_rows(self) -> float:
        """Seconds to keep for a fit on all rows, if that can be afforded."""
        n_train = round(len(self.scheme.folds[0].train) * self.n_rows / max(1, self._n_used()))
        learners = [run for run in self.runs.values() if run.method.role == "learner"]
        each = [self.seconds(run, n_train) for run in learners if run.alive]
        able = [cost for cost in each if cost <= 0.3 * (self.budget or 0.0)]
        return 1.5 * max(able, default=0.0)

    def _n_used(self) -> int:
        rows = self.scheme.rows
        return self.n_rows if rows is None else len(rows)

    def _plan_lines(self, plan: Plan) -> list[str]:
        folds = len(self.scheme.folds)
        text = (
            f"Plan: {self.scheme.words} ({folds} fold{'s' * (folds > 1)}); "
            f"{tuning_words(plan.tuning, self.problem.tunes_k)}."
        )
        lines = [without_folds(text, folds == 1, self.problem.noun)]
        if self.budget is None or not any(run.pilots for run in self.runs.values()):
            return lines
        used = [run for run in self.runs.values() if run.method.name not in plan.left_out]
        known = {
            run.method.label: self._cost(run, plan)
            for run in used
            if run.pilots and run.method.role != "baseline"
        }
        slowest = sorted(known.items(), key=lambda item: -item[1])[:4]
        if slowest:
            parts = ", ".join(f"{label} {format_seconds(cost)}" for label, cost in slowest)
            lines.append(
                f"Estimated from a short pilot run (one core): {parts}; budget "
                f"{self.budget:g} s on {self.n_jobs} core{'s' * (self.n_jobs > 1)}."
            )
        if plan.rows is not None and self.cuts_rows:
            lines.append(
                f"{plan.rows:,} of {self.n_rows:,} {self.problem.noun}s are drawn, "
                f"{self.problem.drawn_by}, for all to be tested in time; more with a larger "
                "--time-budget, all with --sample none."
            )
        if plan.tuning == "k" and self.tuning is None:
            lines.append("There is no time to tune: everything runs at its first setting.")
        lines += [
            f"Left out: {self.runs[name].method.label}: {self._why_left_out(self.runs[name], plan)}"
            for name in plan.left_out
        ]
        return lines

    def _cost(self, run: Run, plan: Plan) -> float:
        """Seconds of the whole plan, whose rows the scheme has by now."""
        return plan.repeats * self._round(run, plan.tuning, self.scheme)

    def _why_left_out(self, run: Run, plan: Plan) -> str:
        cost = self._cost(run, plan)
        if not math.isfinite(cost):
            return "not even its pilot ended in time."
        seconds = format_seconds(cost)
        return f"it would take about {seconds} on one core, which exceeds the time budget."


def tuning_words(tuning: Tuning, tunes_k: bool = True) -> str:
    """What is tried inside a training fold.

    >>> tuning_words("holdout", tunes_k=False)
    'up to 4 settings per method tuned on a quarter held out of each training fold'
    """
    k = "k from 1 to 15" * tunes_k
    settings = " and ".join(filter(None, [k, "up to 4 settings per method"]))
    quarter = "on a quarter held out of each training fold"
    first = f"{k} tuned {quarter}, first setting only" if k else "first setting only"
    return {
        "full": f"{settings} tuned by 3 folds inside each training fold",
        "holdout": f"{settings} tuned {quarter}",
        "k": first,
        "none": "nothing is tuned",
    }[tuning]


def without_folds(text: str, fixed: bool, noun: str = "row") -> str:
    """The text as it is, or in words for a fixed test set, which has no folds."""
    if not fixed:
        return text
    return text.replace(" (1 fold)", "").replace("each training fold", f"the training {noun}s")


def _mean_error(run: Run) -> float:
    return float(np.mean([result["error"] for result in run.results.values()]))
