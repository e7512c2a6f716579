"""After a comparison on a sample: fit the learner and the standard distance to all rows.

Setting and k are those that most folds chose. One split says little of chance; it is there to see
that what the sample showed holds with all rows to train on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearfar.app.compare.methods import Method
from nearfar.app.compare.plan import foretell
from nearfar.app.compare.schedule import Schedule
from nearfar.words import format_seconds

#: Seconds kept for the page.
_FOR_THE_PAGE = 3.0


@dataclass(frozen=True)
class Finalist:
    """A method as most folds chose it."""

    role: str
    method: Method
    setting: str
    k: int | None


def confirm(schedule: Schedule, finalists: Sequence[Finalist]) -> dict[str, Any] | None:
    """Errors of the finalists on one split of all rows; None where the folds had all rows.

    Where there is no time for it, the reason.
    """
    plan = schedule.plan
    drawn = schedule.scheme.rows is not None and schedule.cuts_rows
    if plan is None or not drawn or not finalists or schedule.status != "complete":
        return None
    fold = schedule.scheme_for(1, None).folds[0]
    sizes = {"n_train": len(fold.train), "n_test": len(fold.test)}
    foretold = max(_seconds(schedule, one.method, len(fold.train)) for one in finalists)
    foretold *= 1 if schedule.n_jobs > 1 else len(finalists)
    left = schedule.seconds_left() - _FOR_THE_PAGE
    if foretold > left:
        return sizes | {
            "reason": f"it would take about {format_seconds(foretold)}, and {left:.0f} s are left"
        }
    noun = schedule.problem.noun
    schedule.progress.say(
        f"Once more on all {noun}s: {' and '.join(one.method.label for one in finalists)}."
    )
    task = {"train": fold.train, "test": fold.test, "tuning": plan.tuning}
    found = _run(schedule, finalists, task)
    failed = [one.method.label for one in finalists if "error" not in found[one.role]]
    if failed:
        return sizes | {"reason": f"{' and '.join(failed)} did not end in time"}
    return sizes | {"results": found}


def _run(
    schedule: Schedule, finalists: Sequence[Finalist], task: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    # Names of their own: the end of the processes that ran the folds may still be told.
    methods = {
        f"{one.method.name}, all rows": replace(one.method, name=f"{one.method.name}, all rows")
        for one in finalists
    }
    waiting = dict(zip(methods, finalists, strict=True))
    found: dict[str, dict[str, Any]] = {
        one.role: {"method": one.method.name, "label": one.method.label} for one in finalists
    }
    todo = list(waiting)
    busy: set[str] = set()
    while waiting and schedule.seconds_left() > _FOR_THE_PAGE:
        while todo and len(busy) < schedule.n_jobs:
            name = todo.pop(0)
            busy.add(name)
            schedule.pool.start(methods[name])
        schedule.pool.share_cores(schedule.n_jobs // max(1, len(busy)))
        event = schedule.pool.next_event(min(1.0, schedule.seconds_left()))
        schedule.progress.tick()
        if event is None or event[0] not in waiting:
            continue
        name, told = event
        one = waiting[name]
        if told["kind"] == "ready":
            fixed = {"fixed": (one.setting, one.k)}
            schedule.pool.give(name, "fold", task | fixed)
            continue
        if told["kind"] == "done":
            kept = ("error", "setting", "k", "fit_seconds", "predict_seconds")
            found[one.role] |= {key: told["value"][key] for key in kept}
        schedule.pool.stop(name)
        del waiting[name]
        busy.discard(name)
    for name in busy:
        schedule.pool.stop(name)
    return found


def _seconds(schedule: Schedule, method: Method, n_train: int) -> float:
    """Seconds on so many rows, by the pilots and by what the folds took."""
    run = schedule.runs[method.name]
    spent = [each["fit_seconds"] + each["predict_seconds"] for each in run.results.values()]
    size = len(schedule.scheme.folds[0].train)
    pilots = [pilot for pilot in run.pilots if pilot[0] < size]
    pilots.append((size, float(np.median(spent))))
    return foretell(pilots, n_train, schedule.problem.far_power)
