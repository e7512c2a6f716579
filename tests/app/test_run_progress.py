"""What is shown while a comparison runs, and how long it will take."""

import io
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

from nearfar.app import progress as module
from nearfar.app.progress import NotebookProgress, PlainProgress, python_progress

METHODS = [("raw", "Euclidean, raw", "baseline"), ("lda", "LDA", "learner")]


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(module, "monotonic", lambda: now.seconds)
    return now


def fold(progress, clock, method, seconds, n_done=1):
    progress.working(method)
    clock.seconds += seconds
    progress.fold_done(method, n_done, 0.125)


def test_lines_say_how_far_and_how_long(clock):
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.begin(METHODS, 10)
    for i in range(5):
        fold(progress, clock, "raw", 2, i + 1)
        fold(progress, clock, "lda", 2, i + 1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == ("  2/20 folds, about 35 s left; last: LDA, fold 1, mean error so far 12.5%")
    assert len(lines) == 5 and lines[-1].startswith("  10/20 folds, about 20 s left; ")
    for i in range(5, 10):
        fold(progress, clock, "raw", 2, i + 1)
        fold(progress, clock, "lda", 2, i + 1)
    assert stream.getvalue().splitlines()[-1].startswith("  20/20 folds; last")


def test_folds_of_a_journal_do_not_count_as_fast(clock):
    progress = PlainProgress(io.StringIO())
    progress.begin(METHODS, 10)
    for i in range(9):  # as the schedule tells of what is known: at once, and without work
        progress.fold_done("raw", i + 1, 0.1)
    assert progress.seconds_left() is None
    fold(progress, clock, "raw", 3, 10)
    assert progress.seconds_left() == pytest.approx(30)


def test_what_has_failed_is_not_waited_for(clock):
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.begin(METHODS, 5)
    fold(progress, clock, "raw", 1)
    progress.ended("lda", "failed", "ValueError: no")
    assert progress.seconds_left() == pytest.approx(4)
    fold(progress, clock, "raw", 1, 2)
    assert "  2/5 folds, about 3 s left" in stream.getvalue()
    assert "  LDA failed: ValueError: no" in stream.getvalue()
    for i in range(2, 5):
        fold(progress, clock, "raw", 1, i + 1)
    assert progress.seconds_left() is None
    progress.more(10)
    assert progress.seconds_left() == pytest.approx(5)


def test_time_left_is_never_negative_and_never_more_than_the_budget(clock):
    progress = PlainProgress(io.StringIO(), budget=30)
    progress.begin(METHODS, 50)
    fold(progress, clock, "raw", 10)
    assert progress.seconds_left() == pytest.approx(20)
    clock.seconds += 100
    assert progress.seconds_left() == 0
    assert not re.search(r"-\d", progress._line())


def test_a_notebook_gets_one_line_that_keeps_up(clock, monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown[-1] = data["text/plain"]

    def display(data, raw, display_id):
        assert raw and display_id
        shown.append(data["text/plain"])
        return Handle()

    shell = SimpleNamespace(kernel=object())
    python, output = ModuleType("IPython"), ModuleType("IPython.display")
    python.get_ipython, output.display = lambda: shell, display
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", output)
    progress = python_progress(None)
    assert isinstance(progress, NotebookProgress)
    progress.say("Plan: 5 folds.")
    progress.begin(METHODS, 5)
    progress.tick()
    for i in range(3):
        fold(progress, clock, "lda", 2, i + 1)
    assert shown == ["3/10 folds, about 15 s left; last: LDA, fold 3, mean error so far 12.5%"]
    clock.seconds += 60
    progress.tick()
    assert len(shown) == 1 and "min left" in shown[0]
    progress.close()
    assert capsys.readouterr().err == "Plan: 5 folds.\n"
    shell.kernel = None  # a terminal
    assert type(python_progress(None)) is PlainProgress
    monkeypatch.delitem(sys.modules, "IPython")
    assert type(python_progress(None)) is PlainProgress
