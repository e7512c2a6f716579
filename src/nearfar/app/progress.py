"""Progress of a comparison or a fit, as text."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from time import monotonic
from typing import Any, TextIO

# Errors of a closed pipe, a closed terminal, and a closed pipe on Windows.
_GONE = (errno.EPIPE, errno.EIO, errno.EINVAL)


class Steady:
    """A text stream that ignores writes once its reader has gone, so that the work continues."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, unless the reader has gone."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush, unless the reader has gone."""
        self._try(self._stream.flush)

    def _try(self, action: Callable[..., Any], *arguments: str) -> None:
        try:
            action(*arguments)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            silence(self._stream)


def silence(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that Python does not fail to flush it at exit."""
    with suppress(OSError):  # a stream without a file descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class Progress:
    """Progress of a comparison that shows nothing, the base of the others."""

    #: Seconds between calls of ``tick``.
    every = 1.0
    #: Name of the number that is averaged over the folds; lower is better.
    measure = "error"

    def say(self, line: str) -> None:
        """Show a line about the data, a warning or the plan."""

    def begin(self, methods: list[tuple[str, str, str]], n_folds: int) -> None:
        """Start: names, labels and roles of the methods, and the number of folds of each."""

    def more(self, n_folds: int) -> None:
        """Increase the number of folds."""

    def working(self, method: str) -> None:
        """Note that a method has started a task."""

    def fold_done(self, method: str, n_done: int, error: float) -> None:
        """Note that a method has finished a fold, with its mean error so far."""

    def ended(self, method: str, status: str, reason: str | None) -> None:
        """Note that a method is done, has failed or was stopped."""

    def tick(self) -> None:
        """Update the time; called every ``every`` seconds."""

    def close(self) -> None:
        """End the progress."""


class PlainProgress(Progress):
    """Progress as plain lines: all messages, and a line after each tenth of the folds.

    Parameters
    ----------
    stream : text stream, optional
        Stream to print to; None is standard error.
    budget : float, optional
        Seconds from now after which the comparison stops.
    """

    def __init__(self, stream: TextIO | None = None, budget: float | None = None) -> None:
        self._stream = stream
        self._end = None if budget is None else monotonic() + budget
        self._labels: dict[str, str] = {}
        self._done: dict[str, int] = {}
        self._over: set[str] = set()
        self._n_folds = self._shown = 0
        #: Start of the work, and the number of folds that a journal had finished before it.
        self._since: tuple[float, int] | None = None
        self._last = ""

    def say(self, line: str) -> None:
        """Print the line."""
        stream = self._stream or sys.stderr
        if stream is not None:  # a program without a console has none
            print(line, file=Steady(stream), flush=True)

    def begin(self, methods: list[tuple[str, str, str]], n_folds: int) -> None:
        """Store the methods and the number of folds."""
        self._labels = {name: label for name, label, _ in methods}
        self._done = dict.fromkeys(self._labels, 0)
        self._n_folds, self._since = n_folds, None

    def more(self, n_folds: int) -> None:
        """Update the number of folds."""
        self._n_folds = n_folds
        self._shown = self._tenth()

    def working(self, method: str) -> None:
        """Start the clock with the first task."""
        if self._labels and self._since is None:
            self._since = (monotonic(), self._n_done())

    def fold_done(self, method: str, n_done: int, error: float) -> None:
        """Print a line after each tenth of the folds."""
        self._done[method] = self._done.get(method, 0) + 1
        label = self._labels.get(method, method)
        self._last = f"last: {label}, fold {n_done}, mean {self.measure} so far {100 * error:.1f}%"
        self._show()

    def ended(self, method: str, status: str, reason: str | None) -> None:
        """Print failures immediately."""
        self._over.add(method)
        if status == "failed":
            self.say(f"  {self._labels.get(method, method)} failed: {reason}")

    def _show(self) -> None:
        if self._tenth() > self._shown:
            self._shown = self._tenth()
            self.say(f"  {self._line()}")

    def _line(self) -> str:
        left = self.seconds_left()
        time = "" if left is None else f", about {duration(left)} left"
        return f"{self._n_done()}/{self._n_done() + self._n_left()} folds{time}; {self._last}"

    def seconds_left(self) -> float | None:
        """Return the estimated time left, at most the rest of the budget.

        None before the first fold of this run is done.
        """
        if self._since is None or not self._n_left():
            return None
        began, before = self._since
        now, new = monotonic(), self._n_done() - before
        if new < 1:
            return None
        left = self._n_left() * (now - began) / new
        return max(0.0, left if self._end is None else min(left, self._end - now))

    def _n_done(self) -> int:
        return sum(self._done.values())

    def _n_left(self) -> int:
        """Return the number of folds to run, without those of methods that have ended."""
        return sum(max(0, self._n_folds - n) for m, n in self._done.items() if m not in self._over)

    def _tenth(self) -> int:
        return 10 * self._n_done() // max(1, self._n_done() + self._n_left())


class QuietProgress(PlainProgress):
    """Progress that prints warnings and failures only."""

    def say(self, line: str) -> None:
        """Print the line if it is a warning."""
        if line.startswith("Warning"):
            super().say(line)

    def ended(self, method: str, status: str, reason: str | None) -> None:
        """Print failures as warnings."""
        if status == "failed":
            self.say(f"Warning: {self._labels.get(method, method)} failed: {reason}")


class NotebookProgress(PlainProgress):
    """Progress in a notebook: all messages, and one line that is updated after each fold."""

    def __init__(self, stream: TextIO | None = None, budget: float | None = None) -> None:
        super().__init__(stream, budget)
        self._handle: Any = None

    def tick(self) -> None:
        """Update the time left."""
        if self._handle is not None:
            self._show()

    def close(self) -> None:
        """Keep the line. A later run shows its own."""
        self._handle = None

    def _show(self) -> None:
        shown = {"text/plain": self._line()}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def python_progress(budget: float | None) -> PlainProgress:
    """Return the progress for this Python session: plain lines, or the line of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    notebook = getattr(shell, "kernel", None) is not None
    return NotebookProgress(budget=budget) if notebook else PlainProgress(budget=budget)


def duration(seconds: float) -> str:
    """Return a rounded time in words.

    >>> [duration(seconds) for seconds in (0.2, 42, 200, 8000)]
    ['1 s', '40 s', '3 min', '2.2 h']
    """
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 100:
        return f"{5 * round(seconds / 5)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class FitProgress:
    """Progress of one fit that shows nothing, the base of the others."""

    def say(self, line: str) -> None:
        """Show a line about the data."""

    def begin(self, label: str, n_rows: int, tol: float | None, noun: str = "row") -> None:
        """Start the fit of a learner, which stops at a gap of ``tol`` if that is not None."""

    def step(self, row: dict[str, Any]) -> None:
        """Show the state after a step: "seconds", "residual", and "gap" or a "stage"."""

    def close(self) -> None:
        """End the progress."""


class PlainFitProgress(FitProgress):
    """Progress as plain lines, each after twice the time of the one before."""

    #: Seconds before the first line about a step.
    first = 2.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = Steady(stream)
        self._next = 0.0
        self._began = 0.0

    def say(self, line: str) -> None:
        """Print the line."""
        print(line, file=self._stream, flush=True)

    def begin(self, label: str, n_rows: int, tol: float | None, noun: str = "row") -> None:
        """Print the name of the learner and the number of rows."""
        self.say(f"Fitting {label} to {n_rows:,} {noun}s.")
        self._began, self._next = monotonic(), self.first

    def step(self, row: dict[str, Any]) -> None:
        """Print a line if twice the time has passed."""
        spent = monotonic() - self._began
        if spent >= self._next:
            self._next = 2 * max(spent, self.first)
            self.say(f"  {spent:.0f} s: {step_words(row)}")


def step_words(row: dict[str, Any]) -> str:
    """Return the state of a fit in words.

    >>> step_words({"gap": 0.0123, "residual": 0.00042, "seconds": 3.0})
    'gap 1.2%, residual 4.2e-04'
    >>> step_words({"stage": "unfolding", "n_iter": 3, "of": 100, "residual": 0.1})
    'unfolding, step 3 of at most 100, residual 1.0e-01'
    """
    parts = []
    if "stage" in row:
        parts += [str(row["stage"]), f"step {row['n_iter']} of at most {row['of']}"]
    gap = row.get("gap")
    if gap is not None:
        known = gap < 10
        text = f"{100 * gap:.1f}%" if gap >= 1e-3 else f"{gap:.1e}"
        parts.append(f"gap {text}" if known else "gap unknown")
    parts.append(f"residual {row['residual']:.1e}")
    return ", ".join(parts)
