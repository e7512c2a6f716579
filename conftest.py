"""Settings of all tests: lanes, signals, and time budgets.

With the environment variable NEARFAR_BUDGET set, the run ends with a list of the time budgets that
were exceeded: 8 minutes for all tests, 15 seconds per estimator in the common suite. An exceeded
budget never fails a test, because another machine may be slower or busy. The snippets of the guide
(``docs/guide``) run as tests, too.
"""

import gc
import os
import re
import signal
import sys
import time
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parent / "docs"
collect_ignore_glob = ["docs/conf.py", "docs/_*", "docs/api/*", "docs/gallery/*", "docs/guide/*.py"]
if find_spec("numba") is None:  # the extra "fast"
    collect_ignore_glob += ["src/**/_kernels.py"]
# Where own_learners.py, shown on the page about extending, is imported from.
sys.path.insert(0, str(DOCS / "guide"))

#: Seconds of wall time for all tests.
TOTAL_BUDGET = 480.0
LEARNER_BUDGET = 15.0
SLOWEST = 10
# What the fast lane leaves out besides browsers, processes and near twins: the longest tests, until
# the rest takes so many seconds on one core. `make lanes` measures anew.
LENGTHY = Path(__file__).parent / "tests" / "lengthy.txt"
FAST_BUDGET = 130.0
_started = time.monotonic()
_seconds_by_learner: dict[str, float] = defaultdict(float)
_seconds_by_test: dict[str, float] = defaultdict(float)
_work_by_test: dict[str, float] = defaultdict(float)


@pytest.fixture
def default_signals():
    """Ctrl-C and requests to end are heard, also in the children that a test starts.

    Who was started in the background by a shell ignores Ctrl-C, and so does all it starts.
    """
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# While tests are collected hardly anything becomes garbage, and afterwards what there is stays.
gc.disable()


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    began = time.process_time()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_seconds", time.process_time() - began))


def pytest_runtest_logreport(report):
    # Of both clocks the lesser: other programs, or threads that wait, are no work of ours.
    called = report.when == "call"
    busy = dict(report.user_properties).get("cpu_seconds") if called else None
    work = report.duration if busy is None else min(report.duration, busy)
    _seconds_by_test[report.nodeid] += report.duration
    _work_by_test[report.nodeid] += work
    name = re.search(r"test_common\.py::\w+\[(\w+)", report.nodeid)
    if name and called:
        _seconds_by_learner[name[1]] += work


def _overdrawn():
    total = time.monotonic() - _started
    if total > TOTAL_BUDGET:
        yield f"the tests took {total:.0f} s; the budget is {TOTAL_BUDGET:.0f} s. The slowest:"
        for name in sorted(_seconds_by_test, key=_seconds_by_test.get, reverse=True)[:SLOWEST]:
            yield f"  {_seconds_by_test[name]:6.1f} s  {name}"
    for name, seconds in _seconds_by_learner.items():
        if seconds > LEARNER_BUDGET:
            allowed = f"the budget is {LEARNER_BUDGET:.0f} s"
            yield f"{name} took {seconds:.1f} s in the common suite; {allowed}"


def _write_lengthy():
    seconds = defaultdict(float)
    for name, taken in _work_by_test.items():
        seconds[name.partition("[")[0]] += taken
    left, names = sum(seconds.values()), []
    for name in sorted(seconds, key=seconds.get, reverse=True):
        if left <= FAST_BUDGET:
            break
        left -= seconds[name]
        names.append(name)
    LENGTHY.write_text("".join(f"{name}\n" for name in sorted(names)))


def pytest_unconfigure(config):
    if os.environ.get("NEARFAR_LANES") and not hasattr(config, "workerinput"):
        _write_lengthy()
    # Printed after pytest's own summary. Workers of xdist know only their own tests.
    if os.environ.get("NEARFAR_BUDGET") and not hasattr(config, "workerinput"):
        for line in _overdrawn():
            print(f"OVER BUDGET: {line}", file=sys.stderr)
