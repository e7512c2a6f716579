"""The table of learners: its arithmetic on made-up results, and a run on a tiny set."""

import importlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGES = Path(__file__).parents[2] / "docs" / "reproduction"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="no benchmarks are installed")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS / "reproduce"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("learners_table")


@pytest.fixture
def run(script, tmp_path, monkeypatch):
    def run(*options):
        out = tmp_path / "page" / "learners-table.rst"
        (out.parent / "figures").mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr("sys.argv", ["learners_table.py", "--out", str(out), *options])
        script.main()
        return out.read_text()

    return run


def test_sets_alternate_between_choice_and_judgement(script):
    groups = script.parts(["a", "b", "c", "d", "e"])
    assert groups == {"judged": ["b", "d"], "chosen on": ["a", "c", "e"]}


def test_holm_and_ranks(script):
    # By hand: 0.01 x 3, then 0.03 x 2, and never below the one before.
    np.testing.assert_allclose(script.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    assert script.holm([0.9, 0.8]) == [1.0, 1.0]
    ranks = script.ranks_of(np.array([[3.0, 1.0, np.nan, 1.0], [1.0, 2.0, 3.0, 4.0]]))
    np.testing.assert_array_equal(ranks, [[3, 1.5, 4, 1.5], [1, 2, 3, 4]])
    a, b = np.array([3.0, 1, 4, 1, 5, np.nan]), np.array([2.0, 7, 1, 8, 2, 8])
    assert script.difference(a, b) == stats.wilcoxon(a[:5], b[:5]).pvalue
    assert script.difference(a, a) == 1.0


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_broken_off(run, tmp_path, capsys):
    X, y = load_iris(return_X_y=True)
    (tmp_path / "uci").mkdir()
    for name, noise in (("first", 0.0), ("second", 0.5)):
        rows = X + noise * np.random.default_rng(0).normal(size=X.shape)
        np.savez(tmp_path / "uci" / f"{name}.npz", X=rows, y=y)
    methods = ["--data", str(tmp_path), "--methods", "Euclidean;LMNN;LDA"]
    run(*methods, "--sets", "first")
    capsys.readouterr()
    text = run(*methods)
    printed = capsys.readouterr().out
    assert "'set': 'second'" in printed and "'set': 'first'" not in printed
    assert "Sets that took no part in the choice" in text and "LMNN better : worse" in text
    assert "* NCA was not run on first, second." in text
    assert (tmp_path / "page" / "figures" / "learners-table.svg").exists()


def test_the_committed_page_is_that_of_the_committed_results(run, tmp_path):
    (tmp_path / "page").mkdir()
    shutil.copy(PAGES / "learners-table.jsonl", tmp_path / "page")
    assert run("--page-only") == (PAGES / "learners-table.rst").read_text()
