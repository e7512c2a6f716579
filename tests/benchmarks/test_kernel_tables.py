"""The tables of learned kernels: on a tiny set, and the committed page."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS, PAGES = ROOT / "benchmarks" / "reproduce", ROOT / "docs" / "reproduction"
pytestmark = [
    pytest.mark.skipif(not SCRIPTS.exists(), reason="the scripts are not installed"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = importlib.import_module("kernel_tables")

    def run(*options):
        out = tmp_path / "page" / "kernel-tables.rst"
        given = ["kernel_tables.py", "--data", str(tmp_path), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", given)
        script.main()
        lines = out.with_suffix(".jsonl").read_text().splitlines()
        return out.read_text(), [json.loads(line) for line in lines]

    return run


@pytest.mark.slow
def test_a_tiny_set_in_both_parts(run, tmp_path, monkeypatch):
    (tmp_path / "uci").mkdir()
    random = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = random.normal(size=(60, 21))
    X[:, 0] += 6 * y
    np.savez(tmp_path / "uci" / "small.npz", X=X, y=y)
    chosen = ("--methods", "5-NN;idealised, 3-NN;mean;alignment")
    text, rows = run(*chosen)
    found = {(row["part"], row["method"]): row for row in rows}
    assert {name for part, name in found if part == "labels"} == {
        *("5-NN", "mean", "alignment")  # of so many features nothing is idealised
    }
    assert ("half", "alignment + rows") in found and ("half", "5-NN + rows") not in found
    one = found["labels", "alignment"]
    assert len(one["errors"]) == len(one["C"]) == 10 and np.mean(one["errors"]) < 15
    assert sum(one["shares"]) == pytest.approx(1, abs=0.01)
    assert len(found["half", "mean"]["errors"]) == 5
    assert "small (60 × 21, 2)" in text and "alignment + rows" in text
    assert "EasyMKL + rows on small with half of the labels." in " ".join(text.split())
    assert len(run(*chosen)[1]) == len(rows)  # nothing is run again
    assert len(run(*chosen, "--renew")[1]) == len(rows)  # nor is anything that answers alike
    script = sys.modules["kernel_tables"]
    other = script.Method(lambda C: script.AverageKernelLearner(["linear"]))
    monkeypatch.setitem(script.METHODS, "mean", other)
    text, renewed = run("--methods", "mean;alignment", "--renew")
    new = renewed[len(rows) :]
    assert renewed[: len(rows)] == rows
    assert {row["method"] for row in new} == {"mean", "mean + rows"}
    assert f"{np.mean(new[0]['errors']):.1f}" in text


def test_the_committed_page_is_that_of_the_committed_results(run, tmp_path):
    (tmp_path / "page").mkdir()
    for path in PAGES.glob("kernel-tables*"):
        shutil.copy(path, tmp_path / "page")
    assert run("--page-only")[0] == (PAGES / "kernel-tables.rst").read_text()
