"""The contenders of benchmarks/tensor_classifiers.py solve the same problems."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="no benchmarks are installed")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("tensor_classifiers")


def test_both_solvers_of_a_mode_step_reach_one_objective(script, monkeypatch):
    small = script.made(120, 6)
    monkeypatch.setattr(script, "samples", lambda name: small)
    found = []
    for prepare in (script.mode_step, script.svc_of_mode):
        work, noted = prepare("made")
        found.append(noted(work())["objective"])
    assert found[0] <= found[1] * (1 + 1e-9)
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_every_case_of_small_data_tells_what_the_table_shows(script, monkeypatch):
    small = script.made(80, 5)
    monkeypatch.setattr(script, "samples", lambda name: small)
    for prepare in (
        lambda: script.ours("STM", "made", C=0.05),
        lambda: script.ours("LSSTM", "made"),
        lambda: script.ours("TMPM", "made"),
        lambda: script.svc("made", 0.05),
        lambda: script.ridge("made"),
    ):
        work, noted = prepare()
        assert noted(work())["error"] < 40  # a quarter, or less


def test_pairs_of_digits_are_read_in_order(script, tmp_path, monkeypatch):
    X = np.arange(60 * 4, dtype=np.uint8).reshape(60, 4)
    np.savez(tmp_path / "mnist.npz", X=X, y=np.arange(60) % 10, n_train=40)
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    X, y, Q, q = script.digits((3, 8), 5)
    assert X.shape == (5, 2, 2) and list(y) == [-1, 1, -1, 1, -1]
    assert Q.shape == (4, 2, 2) and list(q) == [-1, 1, -1, 1]
    assert X[0].ravel() == pytest.approx(np.arange(12, 16) / 255)


def test_the_table_shows_what_was_stored(script):
    stored = json.loads((BENCHMARKS / "results" / "tensor_classifiers.json").read_text())
    assert set(stored) <= set(script.CASES)
    text = (BENCHMARKS / "results" / "tensor_classifiers.md").read_text()
    for case, rows in stored.items():
        assert set(rows) == set(script.CASES[case].contenders)
        for who, row in rows.items():
            assert f"| {case} | `{who}` | {row['CPU s']} |" in text
