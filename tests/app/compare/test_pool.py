"""Workers: how they end is told truly, and what a learner does to its process stays there."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris
from threadpoolctl import threadpool_info, threadpool_limits

from nearfar import LDA, compare
from nearfar.app.compare import pool as pools
from nearfar.app.compare.folds import Problem
from nearfar.app.compare.methods import Method, Setting, learners
from nearfar.app.compare.pool import LocalPool, ProcessPool
from nearfar.app.compare.worker import reason
from nearfar.evaluation.measures import choose_measure

X, Y = load_iris(return_X_y=True)
TRAIN, TEST = np.arange(0, 150, 2), np.arange(1, 150, 2)
FOLD = {"train": TRAIN, "test": TEST, "tuning": "k"}


def problem():
    classes, codes = np.unique(Y, return_inverse=True)
    return Problem(
        X, classes, codes, "passthrough", choose_measure(None, classes, np.bincount(codes))
    )


def of(learner):
    return Method("it", "it", "learner", (Setting("", "passthrough", learner),))


class Ends(LDA):
    """Ends its process in the way its name says."""

    def __init__(self, way="exit"):
        self.way = way

    def fit(self, X, y=None):
        if self.way == "exit":
            os._exit(3)
        if self.way == "ask":
            input()
        if self.way == "leave":
            sys.exit(4)
        if self.way == "deaf":
            os.closerange(3, 100)
            time.sleep(60)
        if self.way == "mute":
            raise Mute
        if self.way in ("boast", "stutter"):
            for number in range(3, 100):  # one of these is the way to those who wait
                with suppress(OSError):
                    os.write(number, b"\xff" * 8 if self.way == "boast" else b"\x09")
            time.sleep(600)
        os.kill(os.getpid(), getattr(signal, self.way))


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


pytestmark = pytest.mark.usefixtures("default_signals")


@pytest.fixture(scope="module")
def pool():
    opened = ProcessPool(problem())
    yield opened
    opened.close()


def answer(pool, learner, kind="fold"):
    pool.start(of(learner))
    assert pool.next_event(60)[1]["kind"] == "ready"
    pool.give("it", kind, FOLD)
    event = pool.next_event(60)[1]
    end(pool, "it", event)
    return event


def end(pool, name, event):
    pool.stop(name)
    if event["kind"] != "died":
        assert pool.next_event(60)[1]["kind"] == "died"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("exit", "its process ended with exit code 3"),
        ("SIGSEGV", "its process was ended by SIGSEGV"),
        ("SIGABRT", "its process was ended by SIGABRT"),
        ("SIGTERM", "its process was ended by SIGTERM"),
        ("SIGKILL", "its process was ended by SIGKILL; out of memory?"),
    ],
)
def test_how_a_worker_ended_is_told_truly(pool, way, words):
    event = answer(pool, Ends(way))
    assert event["kind"] == "died" and event["reason"].startswith(words)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("leave", "SystemExit: 4"),
        ("mute", "Mute: its message cannot be shown"),
    ],
)
def test_what_a_learner_raises_or_asks_for_is_a_reason(pool, way, words):
    assert answer(pool, Ends(way))["reason"] == words


def test_a_worker_that_can_no_longer_be_heard_is_not_called_killed(pool, monkeypatch):
    monkeypatch.setattr(pools, "_LAST_WORDS", 0.2)
    event = answer(pool, Ends("deaf"))
    assert event["reason"] == "its process closed the connection"


def test_an_answer_of_absurd_length_is_refused(pool):
    event = answer(pool, Ends("boast"))
    assert event["kind"] == "died"
    assert event["reason"].startswith("its answer cannot be read: a message of 18,446,")


def test_nobody_waits_for_ever_for_the_rest_of_an_answer(pool, monkeypatch):
    monkeypatch.setattr(pools, "_WHOLE_ANSWER", 0.2)
    event = answer(pool, Ends("stutter"))
    assert event == {"kind": "died", "reason": "its answer stopped in the middle"}


class Stateless(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X[:, 2:]


class Forks(Stateless):
    def fit(self, X, y=None):
        os.fork()
        return self


def test_a_learner_that_forks_answers_once(pool):
    assert answer(pool, Forks())["kind"] == "done"


def test_a_late_answer_is_not_taken_for_that_to_the_next_task(pool):
    pool.start(learners("lda")[0])
    assert pool.next_event(60)[1]["kind"] == "ready"
    pool.give("lda", "fold", FOLD)
    pool.give("lda", "pilot", {"train": TRAIN, "test": TEST, "size": 75})
    event = pool.next_event(60)[1]
    assert isinstance(event["value"], float)
    end(pool, "lda", event)


ASKS = """
import sys
from sklearn.datasets import load_iris
from nearfar import LDA, compare

class Asks(LDA):
    def fit(self, X, y=None):
        raise ValueError("read " + repr(sys.stdin.readline()))

result = compare(*load_iris(return_X_y=True), methods={"asks": Asks()}, repeats=1, tuning="k",
                 context=False, verbose=False)
print({m["name"]: m["reason"] for m in result.document["methods"]}["asks"])
print(input())
"""


def test_a_learner_does_not_read_what_the_user_types():
    command = [sys.executable, "-c", ASKS]
    done = subprocess.run(command, input="secret\n", capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["ValueError: read ''", "secret"], done.stderr


def test_a_spawned_worker_has_nothing_to_read_either(monkeypatch):
    monkeypatch.setattr(pools, "_FORKS", False)
    opened = ProcessPool(problem())
    try:
        assert answer(opened, Ends("ask"))["reason"].startswith("EOFError")
    finally:
        opened.close()


def test_spawned_workers_do_the_same_and_end_as_truly(monkeypatch, fresh_processes):
    monkeypatch.setattr(pools, "_FORKS", False)
    opened, local = ProcessPool(problem()), LocalPool(problem())
    lda, crash = learners("lda")[0], of(Ends("SIGSEGV"))
    try:
        for method in (lda, crash):
            opened.start(method)
        events = [opened.next_event(60) for _ in range(2)]
        assert {name: event["kind"] for name, event in events} == {"lda": "ready", "it": "ready"}
        for method in (lda, crash):
            opened.give(method.name, "fold", FOLD | {"details": True})
        found = dict(opened.next_event(60) for _ in range(2))
    finally:
        opened.close()
    local.start(lda)
    local.next_event(60)
    local.give("lda", "fold", FOLD | {"details": True})
    here = local.next_event(60)[1]["value"]
    assert here["error"] < 0.1 and found["lda"]["value"]["error"] == here["error"]
    assert found["lda"]["value"]["predicted"] == here["predicted"]
    assert found["it"]["reason"].startswith("its process was ended by SIGSEGV")


def test_in_this_process_a_learner_cannot_end_the_comparison():
    options = {"repeats": 1, "tuning": "k", "context": False, "isolate": False, "verbose": False}
    result = compare(X, Y, methods={"ends": Ends("leave")}, **options)
    rows = {method["name"]: method for method in result.document["methods"]}
    assert rows["ends"]["reason"] == "SystemExit: 4" and rows["raw"]["status"] == "done"


def test_ctrl_c_in_this_process_is_still_heard():
    local = LocalPool(problem())
    local.start(of(Ends("SIGINT")))
    with pytest.raises(KeyboardInterrupt):
        local.give("it", "fold", FOLD)


def test_an_interrupt_that_a_learner_makes_the_best_of_ends_the_comparison():
    class Content(LDA):
        def fit(self, X, y=None):
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            return super().fit(X, y)

    options = {"repeats": 2, "tuning": "k", "context": False, "isolate": False, "verbose": False}
    result = compare(X, Y, methods={"it": Content()}, **options)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert result.document["status"] == "interrupted" and not result.complete


def test_in_this_process_a_learner_has_one_thread_as_in_a_worker():
    seen = []

    class Looks(LDA):
        def fit(self, X, y=None):
            seen.append({pool["num_threads"] for pool in threadpool_info()})
            return super().fit(X, y)

    options = {"repeats": 1, "tuning": "k", "context": False, "isolate": False, "verbose": False}
    with threadpool_limits(2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        compare(X, Y, methods={"it": Looks()}, **options)
        assert [pool["num_threads"] for pool in threadpool_info()][: len(before)] == before
    assert seen and set.union(*seen) == {1}


@pytest.mark.parametrize("isolate", [True, False])
def test_what_scikit_learn_warns_of_is_not_shown_as_it_is(isolate):
    labels = np.repeat(np.arange(40), 2)
    rows = np.random.default_rng(0).normal(size=(80, 3)) + labels[:, None]
    options = {"repeats": 1, "tuning": "full", "isolate": isolate, "n_jobs": 1, "verbose": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compare(rows, labels, methods=["lda"], context=False, **options)
    assert not [str(warning) for warning in caught if "sklearn" in warning.filename]


def test_a_reason_needs_no_words():
    assert reason(Mute()) == "Mute: its message cannot be shown"
    assert reason(ValueError("a\n  b")) == "ValueError: a b" and reason(KeyError()) == "KeyError"


def test_memory_common_to_all_is_no_methods_own(pool):
    pool.start(learners("lda")[0])
    pool.next_event(60)
    pool.give("lda", "fold", FOLD)
    event = pool.next_event(60)[1]
    end(pool, "lda", event)
    # A fold of iris needs some kilobytes; libraries loaded on the way made it ten megabytes.
    assert event["peak"] is None or event["peak"] < 8


SCRIPT = """
import sys, time
from sklearn.datasets import load_iris
from nearfar import LDA, compare

begun = sys.argv[1]

class Slow(LDA):
    def fit(self, X, y=None):
        open(begun, "w").close()
        time.sleep(60)

compare(*load_iris(return_X_y=True), methods={"slow": Slow()}, repeats=1, tuning="k", n_jobs=9)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing can be killed so")
def test_nothing_is_left_of_one_who_was_killed(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, tmp_path / "begun"],
        env=os.environ | {"TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
    )
    assert _soon((tmp_path / "begun").exists)
    assert len(list(temporary.iterdir())) == 1
    process.kill()
    process.wait(100)
    assert _soon(lambda: not list(temporary.iterdir()))


def _soon(condition):
    end = time.monotonic() + 100
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_a_transformer_that_learns_nothing_is_fitted_all_the_same():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    options = {"repeats": 1, "tuning": "k", "context": False, "isolate": False, "verbose": False}
    methods = {"own": Stateless(), "piped": make_pipeline(StandardScaler(), Stateless())}
    result = compare(X, Y, methods=methods, **options)
    rows = {method["name"]: method for method in result.document["methods"]}
    assert rows["own"]["error"] < 0.1 and rows["piped"]["error"] < 0.1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are spawned here")
def test_a_process_without_a_group_of_its_own_is_killed_all_the_same():
    # Killed right after the fork it had no group yet, and whoever read its answer waited for ever.
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = pools._Forked(child.pid, ours, None)  # in our group: killpg finds no such group
    reader = threading.Thread(target=lambda: process.stdout.read(1), daemon=True)
    reader.start()
    time.sleep(0.1)
    pools._kill(process)
    reader.join(30)  # the child sleeps for 60
    assert not reader.is_alive()
    assert child.wait(30) == -signal.SIGKILL
    theirs.close()
