"""Xing's experiment and soft neighbours beside LMNN: on tiny sets, and the committed page."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import rand_score

ROOT = Path(__file__).parents[2]
SCRIPTS, PAGES = ROOT / "benchmarks" / "reproduce", ROOT / "docs" / "reproduction"
pytestmark = [
    pytest.mark.skipif(not SCRIPTS.exists(), reason="the scripts are not installed"),
    pytest.mark.filterwarnings("ignore"),
]
Y = np.repeat([0, 1, 2], 15)


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("pairs_clustering")


@pytest.fixture
def run(script, tmp_path, monkeypatch):
    def run(*options):
        out = tmp_path / "page" / "pairs-clustering.rst"
        given = ["script", "--data", str(tmp_path), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", given)
        script.main()
        return out.read_text(), out.with_suffix(".jsonl").read_text().splitlines()

    return run


@pytest.fixture
def tiny(tmp_path):
    """Three blobs along one axis, and a second axis that is loud and says nothing."""
    (tmp_path / "uci").mkdir()
    noise = np.random.default_rng(0).normal(size=(45, 2))
    np.savez(tmp_path / "uci" / "iris.npz", X=noise * [1, 100] + 8.0 * Y[:, None] * [1, 0], y=Y)


@pytest.mark.slow
def test_blobs_are_found_after_a_metric_and_not_before(run, tiny, script, monkeypatch):
    text, lines = run("--sets", "iris", "--runs", "2")
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 2 * 2 * len(script.MAPS) + 2 * len(script.LEARNERS)
    much = {
        method: np.mean(
            [row["plain"] for row in rows if (row["method"], row.get("amount")) == (method, "much")]
        )
        for method in script.MAPS
    }
    assert much["k-means"] < 70
    assert min(much["MMC"], much["RCA"], much["MMC, diagonal"]) > 95
    assert "- iris\n     - LMNN\n     - 4.08" in text
    # What is in the journal is not run again.
    monkeypatch.setattr(script, "one_draw", None)
    monkeypatch.setattr(script, "one_split", None)
    assert run("--sets", "iris", "--runs", "2") == (text, lines)


def test_the_committed_page_is_that_of_the_committed_results(run, tmp_path):
    (tmp_path / "page").mkdir()
    for path in PAGES.glob("pairs-clustering*"):
        shutil.copy(path, tmp_path / "page")
    text, _ = run("--page-only")
    assert text == (PAGES / "pairs-clustering.rst").read_text()


def test_unknown_sets_are_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("--sets", "nothing")
    assert "no ['nothing']" in capsys.readouterr().err


@pytest.mark.parametrize("amount", ["little", "much"])
def test_pairs_are_drawn_until_so_many_components_are_left(script, amount):
    known = script.draw(Y, amount, 3)
    similar, dissimilar = known.pairs.similar, known.pairs.dissimilar
    assert (Y[similar[:, 0]] == Y[similar[:, 1]]).all()
    assert (Y[dissimilar[:, 0]] != Y[dissimilar[:, 1]]).all()
    left = len(np.unique(known.components))
    assert left <= script.AMOUNTS[amount] * 45 < left + 1
    assert (known.components[similar[:, 0]] == known.components[similar[:, 1]]).all()
    rest = script.rest_is_different(known)
    assert len(rest.dissimilar) == 45 * 44 / 2 - len(similar)


def test_the_accuracy_is_that_of_pairs(script):
    random = np.random.default_rng(0)
    two, found = random.integers(2, size=30), random.integers(2, size=30)
    assert script.balanced_accuracy(two, found) == pytest.approx(100 * rand_score(two, found))
    # With more classes, pairs within and between clusters have half the weight each.
    three, found = random.integers(3, size=30), random.integers(3, size=30)
    i, j = np.triu_indices(30, 1)
    together = found[i] == found[j]
    right = (three[i] == three[j]) == together
    halves = right[together].mean(), right[~together].mean()
    assert script.balanced_accuracy(three, found) == pytest.approx(100 * np.mean(halves))
    assert script.balanced_accuracy(three, three + 5) == 100


def test_constrained_k_means_keeps_components_together_and_is_k_means_without(script):
    Z = np.random.default_rng(1).normal(size=(40, 2))
    pairs = np.arange(40) // 2
    labels = script.clusters(Z, 3, pairs, 0)
    assert (labels[::2] == labels[1::2]).all()
    alone = script.clusters(Z, 3, np.arange(40), 0)
    plain = script.clusters(Z, 3, None, 0)
    assert rand_score(alone, plain) == 1
