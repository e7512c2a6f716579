"""Marks that no test has to write: what starts a browser, a process, or goes over near twins."""

from collections import defaultdict
from pathlib import Path

import pytest
from near_twins import near_twins

# Who uses one of these starts a process; a comparison has workers.
STARTERS = {
    *("subprocess", "Popen", "multiprocessing", "LocalCluster", "Client", "pty"),
    *("compare", "answer", "main"),
}
# A test over so many estimators goes over all.
BATTERY = 20
# Tests that took longest when the lanes were last measured; see the conftest.py above.
LENGTHY = set((Path(__file__).parent / "lengthy.txt").read_text().split())


def pytest_collection_modifyitems(items):
    batteries = defaultdict(set)
    for item in items:
        batteries[_function(item)] |= _estimators(item)
    for item in items:
        if item.path.stem.endswith("_browser"):
            item.add_marker(pytest.mark.browser)
        if isinstance(item, pytest.Function) and _starts_a_process(item):
            item.add_marker(pytest.mark.process)
        if item.nodeid.partition("[")[0] in LENGTHY:
            item.add_marker(pytest.mark.lengthy)
        goes_over_all = len(batteries[_function(item)]) >= BATTERY
        if goes_over_all and _estimators(item) & set(near_twins()):
            item.add_marker(pytest.mark.twins)


def _function(item):
    return getattr(item, "obj", item)


def _estimators(item):
    """Names of the estimators among the parameters of a test."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    kinds = (value if isinstance(value, type | str) else type(value) for value in values)
    return {kind if isinstance(kind, str) else kind.__name__ for kind in kinds}


def _starts_a_process(item):
    """Whether the test, its fixtures or the functions of its module that it calls do."""
    fixtures = item._fixtureinfo.name2fixturedefs
    waiting = [item.function, *(found[-1].func for found in fixtures.values())]
    seen = set()
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        names = _names(code)
        if names & STARTERS:
            return True
        own = vars(item.module)
        waiting += [own[name] for name in names if getattr(own.get(name), "__code__", None)]
    return False


def _names(code):
    """Names that a function uses, within functions of its own too."""
    inner = [_names(part) for part in code.co_consts if hasattr(part, "co_names")]
    return set(code.co_names).union(*inner)
