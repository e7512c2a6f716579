"""Processes of a comparison are killed at random moments; in the end its numbers are the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nearfar.app.cli import main

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the system who started whom")
# Fresh: what warm processes are forked from would be killed, too.
pytestmark = [linux, pytest.mark.usefixtures("default_signals", "fresh_processes")]

OPTIONS = ["--methods", "lda,rca", "--repeats", "2", "--tuning", "k", "--no-context"]
OPTIONS += ["--jobs", "2", "--seed", "3", "--out", "a.html", "--json", "a.json"]
# So long nothing takes, however busy the machine is.
PATIENCE = 300


def command(*more):
    return [sys.executable, "-m", "nearfar", "compare", "data.npz", *OPTIONS, *more]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    np.savez("data.npz", X=rng.normal(size=(600, 12)) + 0.4 * y[:, None], y=y)
    return tmp_path


def numbers(folder):
    """All that depends neither on the clock nor on memory."""
    document = json.loads((folder / "a.json").read_text())

    def untold(key):
        return key.endswith("_seconds") or key in ("peak_mb", "times_plain")

    def told(entry):
        kept = {key: value for key, value in entry.items() if not untold(key)}
        if "results" in kept:
            kept["results"] = [told(result) for result in kept["results"]]
        return kept

    methods = sorted((told(method) for method in document["methods"]), key=lambda m: m["name"])
    keys = ("status", "folds", "common_folds", "nested", "best")
    held = document["held_out"]["predicted"]
    return methods, {key: document[key] for key in keys}, held, document["answer"]["verdict"]


def children(pid):
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def processes(parent, kind):
    """The parent itself, the templates it started, or the workers these started."""
    templates = children(parent)
    if kind == "parent":
        return [parent]
    return (
        templates if kind == "template" else [one for each in templates for one in children(each)]
    )


def n_lines(journal):
    try:
        return journal.read_bytes().count(b"\n")
    except OSError:
        return 0


def strike(process, kind, rng, journal):
    """Kill one of a kind at some moment; False if the comparison was over before."""
    wanted = n_lines(journal) + int(rng.integers(0, 4))
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and n_lines(journal) < wanted and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(float(rng.uniform(0, 0.05)))
    while process.poll() is None and time.monotonic() < deadline:
        found = processes(process.pid, kind)
        if found:
            try:
                os.kill(found[int(rng.integers(len(found)))], signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        time.sleep(0.002)
    return False


def in_peace(*more):
    """The command without a process of its own, which need not be started; it has workers."""
    return main(["compare", "data.npz", *OPTIONS, *more])


def storm(here, kinds, seed):
    """Kill one process after another; how many runs came to their end meanwhile."""
    rng, journal = np.random.default_rng(seed), here / "a.journal"
    left, ended, process = list(kinds), 0, None
    assert in_peace("--force") == 0
    expected = numbers(here)
    assert expected[1]["status"] == "complete" and not journal.exists()
    while left or process is not None:
        if process is None:
            # Nothing to go on with: it came to its end, or was killed before it had begun.
            more = "--resume" if journal.exists() else "--force"
            process = subprocess.Popen(
                command(more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        if left and strike(process, left[0], rng, journal):
            left.pop(0)
            if process.poll() is None and left:
                continue
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, -signal.SIGKILL), out
        assert "Traceback" not in out, out
        complete = process.returncode == 0 and not journal.exists()
        if complete:
            assert numbers(here) == expected
            ended += 1
        # At the end of the storm what is unfinished is gone on with, in peace.
        process = None
        if not left and not complete:
            assert in_peace("--resume" if journal.exists() else "--force") == 0
            assert numbers(here) == expected and not journal.exists()
            ended += 1
    return ended


def test_after_three_kills_the_numbers_are_those_of_an_undisturbed_run(here):
    assert storm(here, ["worker", "template", "parent"], seed=0) > 0


@pytest.mark.slow
def test_after_fifty_kills_the_numbers_are_those_of_an_undisturbed_run(here):
    kinds = np.random.default_rng(1).choice(["worker", "template", "parent"], 50).tolist()
    assert storm(here, kinds, seed=2) > 0
