"""Progress of a long fit: printed lines if verbose, and calls of a callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from nearfar.blocks import Result, Task, map_in_order

#: A function that a solver calls at each iteration with the values that it adds to its history.
Report = Callable[[dict[str, Any]], None]
#: A function that a user can set as ``callback`` of an estimator.
Callback = Callable[[int, dict[str, Any]], Any]


class ProgressReporter:
    """Progress reporter that numbers the iterations of one fit across all starts and stages.

    ``callback`` is called with the iteration number, from 1, and a dict of values. An exception in
    the callback stops the fit. After a KeyboardInterrupt, the best solution so far is kept.
    """

    def __init__(self, name: str, verbose: int, callback: Callback | None) -> None:
        self.name, self.verbose, self.callback = name, verbose, callback
        self.iteration = 0

    def __call__(self, state: dict[str, Any]) -> None:
        """Report one more iteration."""
        self.iteration += 1
        if self.verbose:
            print(f"{self.name}: iteration {self.iteration}, {_format_line(state)}")
        if self.callback is not None:
            self.callback(self.iteration, state)


# Reporters are stored here and not on the estimators, so that clones, pickles and model files do
# not contain them.
_REPORTERS: WeakKeyDictionary[Any, ProgressReporter] = WeakKeyDictionary()


def open_channel(estimator: Any, verbose: int) -> None:
    """Start the progress report of a new fit, with iteration numbers from 1."""
    _REPORTERS.pop(estimator, None)
    if verbose or estimator.callback is not None:
        _REPORTERS[estimator] = ProgressReporter(
            type(estimator).__name__, int(verbose), estimator.callback
        )


def get_reporter(estimator: Any) -> Report | None:
    """Return the function that a solver calls at each iteration, or None if progress is off."""
    return _REPORTERS.get(estimator)


@contextmanager
def forward_progress(estimator: Any, inner: Any) -> Iterator[None]:
    """Report the iterations of an inner learner as iterations of the estimator."""
    report = get_reporter(estimator)
    if report is None:
        yield
        return
    inner.callback = lambda _, state: report(state)
    try:
        yield
    finally:
        del inner.callback


def map_with_reports(
    work: Callable[[Task, Report], tuple[Result, KeyboardInterrupt | None]],
    tasks: Sequence[Task],
    n_threads: int,
    report: Report | None,
) -> tuple[list[Result | None], KeyboardInterrupt | None]:
    """Run several tasks of one fit in threads, and report their iterations in task order.

    ``work`` receives a task and a function to call at each iteration. It returns its result, and
    either None or the KeyboardInterrupt that stopped the task early. All reports are made in the
    calling thread. With several threads, a task is reported when it is done. Ctrl-C stops all tasks
    at their next iteration. The result of a task that did not return is None.
    """
    stops: list[KeyboardInterrupt] = []

    def run(task: Task) -> tuple[Result | None, list[dict[str, Any]]]:
        states: list[dict[str, Any]] = []

        def report_state(state: dict[str, Any]) -> None:
            if stops:
                raise KeyboardInterrupt
            if n_threads > 1:
                states.append(state)
            elif report is not None:
                report(state)

        if stops:
            return None, states
        result: Result | None = None
        try:
            result, stop = work(task, report_state)
        except KeyboardInterrupt as error:
            stop = error
        if stop is not None:
            stops.append(stop)
        return result, states

    results: list[Result | None] = [None] * len(tasks)
    with closing(map_in_order(run, tasks, n_threads)) as running:
        try:
            for k, (result, states) in enumerate(running):
                results[k] = result
                if report is not None and not stops:
                    for state in states:
                        report(state)
        except KeyboardInterrupt as error:
            stops.append(error)
    return results, stops[0] if stops else None


def _format_line(state: dict[str, Any]) -> str:
    stage = f"{state['stage']}: " if "stage" in state else ""
    names = ("objective", "trace", "gap", "residual", "step", "active")
    numbers = [f"{name} {state[name]:.6g}" for name in names if name in state]
    return stage + ", ".join([*numbers, f"{state['seconds']:.1f} s"])
