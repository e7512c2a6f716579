"""Clustering tables and sets of vectors made again: on tiny data, and against committed pages."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from nearfar import Sets

ROOT = Path(__file__).parents[2]
SCRIPTS, PAGES = ROOT / "benchmarks" / "reproduce", ROOT / "docs" / "reproduction"
pytestmark = [
    pytest.mark.skipif(not SCRIPTS.exists(), reason="the scripts are not installed"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(module, page, *options):
        out = tmp_path / "page" / page
        given = ["script", "--data", str(tmp_path), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", given)
        module.main()
        return out.read_text(), out.with_suffix(".jsonl").read_text().splitlines()

    return run


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("clustering_tables_5", "clustering-tables-5.rst"),
        ("sets_of_vectors", "sets-of-vectors.rst"),
    ],
)
def test_the_committed_page_is_that_of_the_committed_results(script, run, name, page, tmp_path):
    there = tmp_path / "page"
    there.mkdir()
    for path in PAGES.glob(Path(page).stem + "*"):
        shutil.copy(path, there)
    text, _ = run(script(name), page, "--page-only")
    assert text == (PAGES / page).read_text()


# ---------------------------------------------------------------------- clustering


@pytest.fixture
def blobs(script, monkeypatch):
    """Three blobs far apart, called iris, in units in which the ridge is small."""
    tables = script("clustering_tables_5")
    y = np.repeat([0, 1, 2], 20)
    X = 100 * np.eye(3)[y] + np.random.default_rng(0).normal(size=(60, 3))
    case = tables.SETS["iris"]._replace(load=lambda _: (X, y))
    monkeypatch.setattr(tables, "SETS", {"iris": case})
    monkeypatch.setattr(tables, "N_STARTS", 3)
    tables.loaded.cache_clear()
    yield tables
    tables.loaded.cache_clear()


@pytest.mark.slow
def test_blobs_are_clustered_and_stand_beside_the_thesis(blobs, run, monkeypatch):
    text, lines = run(blobs, "c.rst", "--neighbors", "8")
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 2 * (1 + 2) + 2  # baselines do not know of the small ridge
    for row in rows:
        for kernel in blobs.MEASURES if row["form"] else ("K_E",):
            assert max(found[2] for found in row[kernel] if found) == 100
    at = text.index("* - K_BR, 5.2\n     - 96.6 (0.1)")
    assert "100.0; m 8, q 0." in text[at : at + 200]
    # What is in the journal is not run again.
    monkeypatch.setattr(blobs, "baselines", None)
    monkeypatch.setattr(blobs, "augmented", None)
    assert run(blobs, "c.rst", "--neighbors", "8") == (text, lines)


def test_clusters_may_have_any_names(script):
    tables = script("clustering_tables_5")
    y = np.array([0, 0, 1, 1, 2, 2])
    assert tables.accuracy(y, np.array([5, 5, 3, 3, 4, 4])) == 100
    assert tables.accuracy(y, np.array([5, 5, 3, 3, 3, 3])) == pytest.approx(400 / 6)


def test_numbers_of_the_thesis_are_read_from_their_columns(script):
    tables = script("clustering_tables_5")
    assert tables.thesis("wine", "smoothed", "K_BR") == (95.2, 0.2)
    assert tables.thesis("wine", "raw", "K_J") == (91.0, 0.01)
    assert tables.thesis("wine", "raw", "k-means") == (66.4, 5.9)
    means = [
        np.mean([tables.thesis(name, *column)[0] for name in tables.SETS])
        for column in tables.COLUMNS
    ]
    # As the means of the printed columns were added up elsewhere.
    assert np.round(means, 1).tolist() == [
        62.1, 64.4, 64.9, 67.1, 66.5, 71.7, 64.1, 65.3, 62.9, 69.5,
    ]  # fmt: skip


def test_verdicts_take_the_mean_the_tightest_run_and_what_lies_between(script):
    tables = script("clustering_tables_5")
    found = [tables.Best(80.0, 9.0, 90.0, 8, None)]
    said = {theirs: tables.word(found, theirs) for theirs in (77.9, 78.1, 85, 91.9, 92.1)}
    assert tables.word([], 80.0) == "-"
    assert list(said.values()) == ["higher", *["same"] * 3, "lower"]


# ---------------------------------------------------------------------- sets of vectors


def spread_sets(n=40, seed=0):
    """Two classes that differ in covariance, by a little."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    spread = np.array([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0]])
    return Sets.from_list([random.normal(size=(12, 3)) * spread[k] for k in y]), y


@pytest.mark.slow
def test_labels_of_sets_to_be_tested_choose_nothing(script):
    sov = script("sets_of_vectors")
    sets, y = spread_sets()
    split = np.arange(30), np.arange(30, 40)
    data = sov.Data(sets, y, None, [split])
    wrong = y.copy()
    wrong[30:] = 1 - wrong[30:]
    matrices, _ = sov.measured(data, 0)
    assert list(matrices) == list(sov.RIDGES)
    # Some of the ridges and of the dissimilarities are enough to choose among.
    matrices = {ridge: dict(list(matrices[ridge].items())[::3]) for ridge in list(sov.RIDGES)[::2]}

    def choices(labels):
        rows = sov.honest(data._replace(y=labels), 0, matrices, list(sov.CLASSIFIERS))
        free = ("error", "by_ridge")
        return [{key: value for key, value in row.items() if key not in free} for row in rows]

    assert choices(y) == choices(wrong)


def test_sets_to_be_tested_set_no_scale_and_no_ridge(script):
    sov = script("sets_of_vectors")
    sets, y = spread_sets()
    split = np.arange(30), np.arange(30, 40)
    data = sov.Data(sets, y, None, [split])
    changed = Sets(np.concatenate([sets[:30].X, 50 * sets[30:].X]), sets.offsets)
    for one, other in zip(
        sov.measured(data, 0)[0].values(),
        sov.measured(data._replace(sets=changed), 0)[0].values(),
        strict=True,
    ):
        for measure in one:
            known = np.ix_(split[0], split[0])
            np.testing.assert_allclose(one[measure][known], other[measure][known], rtol=1e-11)
            assert not np.allclose(one[measure], other[measure])


def test_the_ridge_is_that_of_the_fewest_errors_among_training_sets(script):
    sov = script("sets_of_vectors")
    y = np.arange(40) % 2
    data = sov.Data(None, y, None, [(np.arange(30), np.arange(30, 40))])
    good = np.abs(y[:, None] - y) + 0.1 * (1 - np.eye(40))
    bad = 1.2 - good - 1.2 * np.eye(40) + 0.1 * np.eye(40)
    np.fill_diagonal(bad, 0)
    matrices = {ridge: {"riemann": bad} for ridge in sov.RIDGES}
    matrices[0.1] = {"riemann": good}
    for row in sov.honest(data, 0, matrices, ["k-NN", "k-NN, embedded"]):
        assert row["ridge"] == 0.1 and row["error"] == 0
        assert row["by_ridge"]["10.0"] > 0
