"""What is shown while a comparison runs."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TextIO

# A closed pipe, a terminal that was hung up, a closed pipe on Windows.
_GONE = (errno.EPIPE, errno.EIO, errno.EINVAL)


class Steady:
    """A text stream that falls silent when its reader has gone: the work behind it goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, if there is still a reader."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush, if there is still a reader."""
        self._try(self._stream.flush)

    def _try(self, action: Callable[..., Any], *arguments: str) -> None:
        try:
            action(*arguments)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            silence(self._stream)


def silence(stream: TextIO) -> None:
    """Lead a stream nowhere, what it still holds included: else Python complains at its end."""
    with suppress(OSError):  # one without a file behind it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


class Progress:
    """Shows nothing; what shows something derives from it."""

    #: Seconds between ticks.
    every = 1.0
    #: What is averaged over the folds; the lower, the better.
    measure = "error"

    def say(self, line: str) -> None:
        """A line about the data, a warning or the plan."""

    def begin(self, methods: list[tuple[str, str, str]], n_folds: int) -> None:
        """Names, labels and roles of the methods, and how many folds each will run."""

    def more(self, n_folds: int) -> None:
        """There will be more folds than was said."""

    def working(self, method: str) -> None:
        """A method has begun a task."""

    def fold_done(self, method: str, n_done: int, error: float) -> None:
        """A method has finished a fold; its mean error so far."""

    def ended(self, method: str, status: str, reason: str | None) -> None:
        """A method is done, failed or was stopped."""

    def tick(self) -> None:
        """Called about once a second."""

    def close(self) -> None:
        """Nothing more will come."""


class PlainProgress(Progress):
    """Plain lines: what was said, and a line whenever a tenth of the folds is done."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._labels: dict[str, str] = {}
        self._total = self._done = self._shown = 0

    def say(self, line: str) -> None:
        """Print the line."""
        stream = self._stream or sys.stderr
        if stream is not None:  # a program without a console has none
            print(line, file=Steady(stream), flush=True)

    def begin(self, methods: list[tuple[str, str, str]], n_folds: int) -> None:
        """Remember how much there is to do."""
        self._labels = {name: label for name, label, _ in methods}
        self._total = n_folds * len(methods)

    def more(self, n_folds: int) -> None:
        """Count anew."""
        self._total = n_folds * len(self._labels)
        self._shown = 10 * self._done // max(1, self._total)

    def fold_done(self, method: str, n_done: int, error: float) -> None:
        """Print a line now and then."""
        self._done += 1
        tenth = 10 * self._done // max(1, self._total)
        if tenth > self._shown:
            self._shown = tenth
            label = self._labels.get(method, method)
            self.say(
                f"  {self._done}/{self._total} folds; last: {label}, fold {n_done}, mean "
                f"{self.measure} so far {100 * error:.1f} %"
            )

    def ended(self, method: str, status: str, reason: str | None) -> None:
        """Print failures at once."""
        if status == "failed":
            self.say(f"  {self._labels.get(method, method)} failed: {reason}")


class FitProgress:
    """What is shown while one learner is fitted; this one shows nothing."""

    def say(self, line: str) -> None:
        """A line about the data."""

    def begin(self, label: str, n_rows: int, tol: float | None, noun: str = "row") -> None:
        """A learner is about to be fitted; it stops at a gap of ``tol``, if it has such."""

    def step(self, row: dict[str, Any]) -> None:
        """What is known after a step: "seconds", "residual", and "gap" or a "stage"."""

    def close(self) -> None:
        """The fit has ended."""


class PlainFitProgress(FitProgress):
    """Plain lines: a first one, and more the longer it takes, ever fewer."""

    #: Seconds until the first line about a step.
    first = 2.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = Steady(stream)
        self._next = 0.0
        self._began = 0.0

    def say(self, line: str) -> None:
        """Print the line."""
        print(line, file=self._stream, flush=True)

    def begin(self, label: str, n_rows: int, tol: float | None, noun: str = "row") -> None:
        """Say what begins."""
        self.say(f"Fitting {label} to {n_rows:,} {noun}s.")
        self._began, self._next = monotonic(), self.first

    def step(self, row: dict[str, Any]) -> None:
        """Print a line when twice the time has passed."""
        spent = monotonic() - self._began
        if spent >= self._next:
            self._next = 2 * max(spent, self.first)
            self.say(f"  {spent:.0f} s: {step_words(row)}")


def step_words(row: dict[str, Any]) -> str:
    """How far a fit has come.

    >>> step_words({"gap": 0.0123, "residual": 0.00042, "seconds": 3.0})
    'gap 1.2 %, residual 4.2e-04'
    >>> step_words({"stage": "unfolding", "n_iter": 3, "of": 100, "residual": 0.1})
    'unfolding, step 3 of at most 100, residual 1.0e-01'
    """
    parts = []
    if "stage" in row:
        parts += [str(row["stage"]), f"step {row['n_iter']} of at most {row['of']}"]
    gap = row.get("gap")
    if gap is not None:
        known = gap < 10
        text = f"{100 * gap:.1f} %" if gap >= 1e-3 else f"{gap:.1e}"
        parts.append(f"gap {text}" if known else "gap not yet known")
    parts.append(f"residual {row['residual']:.1e}")
    return ", ".join(parts)
