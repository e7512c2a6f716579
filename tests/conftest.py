"""Marks that no test has to write: what starts a browser or a process, repeats, or is lengthy."""

import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from warm_processes import WarmPopen

# Who uses one of these starts a process; a comparison has workers.
STARTERS = {
    *("subprocess", "Popen", "multiprocessing", "LocalCluster", "Client", "pty"),
    *("compare", "answer", "main"),
}
# A test over so many estimators goes over all.
BATTERY = 20
# Tests that took longest when the lanes were last measured; see the conftest.py above.
LENGTHY = set((Path(__file__).parent / "lengthy.txt").read_text().split())


APPLICATION = Path(__file__).parent / "app"
FRESH = subprocess.Popen
# What may differ between near twins, who inherit all but a function, though nothing else says so.
OWN = ("contract/test_common.py", "persistence/test_state.py", "test_docs.py", "test_surface.py")


@pytest.fixture(scope="module", autouse=True)
def warm_processes(request):
    """In the tests of the application, Python processes begin with the library imported."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.is_relative_to(APPLICATION):
            patch.setattr("subprocess.Popen", WarmPopen)
        yield


@pytest.fixture
def fresh_processes(monkeypatch):
    """As users start them, for tests of what a process imports and how it begins."""
    monkeypatch.setattr("subprocess.Popen", FRESH)


@pytest.fixture
def gaussians_made(monkeypatch):
    """How many Gaussians were made of sets, each time."""
    from nearfar import Gaussians

    made, from_sets = [], Gaussians.from_sets.__func__

    def counted(cls, sets, *given, **options):
        made.append(len(sets))
        return from_sets(cls, sets, *given, **options)

    monkeypatch.setattr(Gaussians, "from_sets", classmethod(counted))
    return made


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """Started once in each process of the tests: that takes longer than most tests of a page."""
    import browsing  # here: it skips the module that imports it where selenium is missing

    driver = browsing.started(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def driver(chromium):
    """The browser; no page of one module is left to work in the next."""
    yield chromium
    chromium.get("about:blank")


def pytest_collection_modifyitems(items):
    from near_twins import near_twins  # here: the process that only hands out tests needs none

    batteries = defaultdict(set)
    places = _places(items)
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
            if not str(item.path).endswith(OWN):
                item.add_marker(pytest.mark.slow)
        turns = item.get_closest_marker("by_turns")
        if turns and sum(places(item).values()) % turns.args[0]:
            item.add_marker(pytest.mark.slow)
        # The first seed is tried always; the others repeat it with other numbers.
        if places(item).get("seed"):
            item.add_marker(pytest.mark.slow)


def _places(items):
    """Of an item the place of each parameter's value among the values it has in its test.

    Pytest's own indices count all combinations where decorators are stacked.
    """
    values = defaultdict(list)

    def place(item, name, value):
        known = values[_function(item), name]
        for number, other in enumerate(known):
            if other is value:
                return number
        known.append(value)
        return len(known) - 1

    def params(item):
        return item.callspec.params if hasattr(item, "callspec") else {}

    found = {item: {k: place(item, k, v) for k, v in params(item).items()} for item in items}
    return found.__getitem__


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
    functions = item.function, *(found[-1].func for found in fixtures.values())
    return _start_a_process(item.module, functions)


@cache  # a function has many parameters
def _start_a_process(module, functions):
    waiting, seen = list(functions), set()
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        names = _names(code)
        if names & STARTERS:
            return True
        own = vars(module)
        waiting += [own[name] for name in names if getattr(own.get(name), "__code__", None)]
    return False


def _names(code):
    """Names that a function uses, within functions of its own too."""
    inner = [_names(part) for part in code.co_consts if hasattr(part, "co_names")]
    return set(code.co_names).union(*inner)
