"""One channel for what a long fit does: lines when it is verbose, and a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from nearfar.blocks import Result, Task, map_in_order

#: What a solver calls at each iteration, with what is known of it; the numbers are those that it
#: notes in its history.
Report = Callable[[dict[str, Any]], None]
#: What a user may set as ``callback`` of an estimator.
Callback = Callable[[int, dict[str, Any]], Any]


class Channel:
    """Numbers the iterations of one fit, whatever its starts and stages, and tells of each.

    ``callback`` is called with the number of the iteration, from 1, and what is known of it. What
    it raises ends the fit; a KeyboardInterrupt leaves the best so far.
    """

    def __init__(self, name: str, verbose: int, callback: Callback | None) -> None:
        self.name, self.verbose, self.callback = name, verbose, callback
        self.iteration = 0

    def __call__(self, state: dict[str, Any]) -> None:
        """Tell of one more iteration."""
        self.iteration += 1
        if self.verbose:
            print(f"{self.name}: iteration {self.iteration}, {_line(state)}")
        if self.callback is not None:
            self.callback(self.iteration, state)


# Beside the estimators, not on them: copies, pickles and model files stay plain.
_OPEN: WeakKeyDictionary[Any, Channel] = WeakKeyDictionary()


def open_channel(estimator: Any, verbose: int) -> None:
    """Begin a fit: iterations count from 1 again."""
    _OPEN.pop(estimator, None)
    if verbose or estimator.callback is not None:
        _OPEN[estimator] = Channel(type(estimator).__name__, int(verbose), estimator.callback)


def report_of(estimator: Any) -> Report | None:
    """What its solver is to call at each iteration; None where nobody listens."""
    return _OPEN.get(estimator)


@contextmanager
def lent_channel(estimator: Any, inner: Any) -> Iterator[None]:
    """While an inner learner is fitted its iterations count as those of the estimator."""
    report = report_of(estimator)
    if report is None:
        yield
        return
    inner.callback = lambda _, state: report(state)
    try:
        yield
    finally:
        del inner.callback


def told_in_order(
    work: Callable[[Task, Report], tuple[Result, KeyboardInterrupt | None]],
    tasks: Sequence[Task],
    n_threads: int,
    report: Report | None,
) -> tuple[list[Result | None], KeyboardInterrupt | None]:
    """Several tasks of one fit in threads, whose iterations are told in the order of the tasks.

    ``work`` gets a task and what to call at each iteration; it returns its result, and the Ctrl-C
    that ended it early, if one did. Only this thread tells: with several, of a task when it is
    done. Ctrl-C ends all tasks at their next iteration; those without a result have None.
    """
    stops: list[KeyboardInterrupt] = []

    def run(task: Task) -> tuple[Result | None, list[dict[str, Any]]]:
        kept: list[dict[str, Any]] = []

        def tell(state: dict[str, Any]) -> None:
            if stops:
                raise KeyboardInterrupt
            if n_threads > 1:
                kept.append(state)
            elif report is not None:
                report(state)

        if stops:
            return None, kept
        found: Result | None = None
        try:
            found, stop = work(task, tell)
        except KeyboardInterrupt as error:
            stop = error
        if stop is not None:
            stops.append(stop)
        return found, kept

    results: list[Result | None] = [None] * len(tasks)
    with closing(map_in_order(run, tasks, n_threads)) as running:
        try:
            for k, (found, kept) in enumerate(running):
                results[k] = found
                if report is not None and not stops:
                    for state in kept:
                        report(state)
        except KeyboardInterrupt as error:
            stops.append(error)
    return results, stops[0] if stops else None


def _line(state: dict[str, Any]) -> str:
    stage = f"{state['stage']}: " if "stage" in state else ""
    told = ("objective", "trace", "gap", "residual", "step", "active")
    numbers = [f"{name} {state[name]:.6g}" for name in told if name in state]
    return stage + ", ".join([*numbers, f"{state['seconds']:.1f} s"])
