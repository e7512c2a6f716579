"""The scripts that make published tables again: on tiny sets, and against the committed page."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from nearfar import MVU, PCA

ROOT = Path(__file__).parents[2]
SCRIPTS, PAGES = ROOT / "benchmarks" / "reproduce", ROOT / "docs" / "reproduction"
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="the scripts are not installed")
RNG = np.random.default_rng(0)


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import mvu_tables

    return mvu_tables


@pytest.fixture
def run(tables, tmp_path, monkeypatch):
    def run(*options):
        out = tmp_path / "page" / "mvu-tables.rst"
        given = ["mvu_tables.py", "--data", str(tmp_path), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", given)
        tables.main()
        journal = out.with_suffix(".jsonl")
        return out.read_text(), journal.read_text().splitlines() if journal.exists() else []

    return run


@pytest.fixture
def tiny(tables, tmp_path, monkeypatch):
    """A ring of teapots and blobs of digits, no faces; two methods; few splits."""
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    ring = np.cos(angle[:, None] - np.linspace(0, 2 * np.pi, 38 * 50))
    np.savez(tmp_path / "teapots100_38x50.npz", X=ring)
    y = np.repeat([1, 2], 30)
    np.savez(tmp_path / "usps.npz", X=RNG.normal(size=(60, 4)) + y[:, None], y=y)
    few = {name: of for name, of in tables.SETS.items() if name in ("teapots", "Frey faces")}
    monkeypatch.setattr(tables, "SETS", few)
    methods = {"PCA": lambda r, k: PCA(r), "MVU (≤)": lambda r, k: MVU(r, n_neighbors=4)}
    monkeypatch.setattr(tables, "METHODS", methods)
    small = {"PAIRS": ((1, 2),), "N_DIGITS": 60, "N_TEST": 20, "N_SPLITS": 2, "PRICES": (1.0, 10.0)}
    for name, value in small.items():
        monkeypatch.setattr(tables, name, value)


@pytest.mark.slow
def test_tables_of_tiny_sets_stand_beside_the_thesis(run, tiny):
    text, lines = run("--parts", "3.2,3.3")
    assert len(lines) == 2 + 4
    # A ring in the plane is kept by PCA whatever the teapots of the thesis were.
    first = text.index("Table 3.2, local trust")
    assert "- 0.479 / 1.000, better" in text[first:]
    assert "- 0.748 / not at hand" in text[first:]
    assert "0.59 / " in text and "within" in text


def test_what_is_in_the_journal_is_not_run_again(run, tiny, tables, monkeypatch):
    text, lines = run("--parts", "3.2,3.3")
    broken = dict.fromkeys(tables.METHODS, None)
    monkeypatch.setattr(tables, "METHODS", broken)
    assert run("--parts", "3.2,3.3") == (text, lines)
    assert run("--page-only") == (text, lines)


def test_data_that_are_not_there_are_said(run, tiny, tables):
    text, lines = run("--parts", "3.25")
    assert not lines and text.count("Not made") == len(tables.FIGURES)
    assert "Not made: mnist.npz is not at hand." in text


def test_unknown_parts_are_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("--parts", "9.9")
    assert "['9.9'] is not there" in capsys.readouterr().err


def test_larger_measures_are_better(tables):
    assert tables.word(0.9, 0.5) == "better"
    assert tables.word(0.5, 0.9) == "worse"
    assert tables.word(0.52, 0.5) == "as the thesis"


def test_what_is_not_proven_is_said(tables, tmp_path):
    near = {"table": "3.2", "data": "teapots", "method": "MVU", "bound": 1e-6, "residual": 0.004}
    near |= {f"{measure} {near_by}": 0.97 for measure in tables.MEASURES for near_by in (5, 15)}
    for row, words in (
        (near, "0.974 / 0.970, as the thesis"),
        (near | {"bound": 0.4}, "0.974 / 0.970, as the thesis, not proven"),
        (near | {"bound": -0.4}, "0.974 / 0.970, as the thesis, not proven"),
        (near | {"residual": 0.08}, "0.974 / 0.970, as the thesis, not proven"),
        (near | {"bound": None}, "0.974 / 0.970, as the thesis, not proven"),
    ):
        results = tables.Results(tmp_path / "rows.jsonl")
        results.rows = [row]
        assert f"     - {words}" in tables.embedding_tables(results)


def test_work_is_broken_off_in_time(tables):
    assert tables.ended_in(None, lambda: 1) and tables.ended_in(10, lambda: 1)

    def endless():
        while True:
            pass

    assert not tables.ended_in(0.001, endless)


@pytest.mark.slow
def test_a_picture_is_fitted_once_and_drawn_small(run, tables, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    fits = []

    def fit(_):
        fits.append(1)
        roll = RNG.normal(size=(50, 3))
        spectrum = np.array([0.6, 0.4, 0, 0])
        return {"said": 7}, {
            "X": roll,
            "Y": roll[:, :2],
            "colour": roll[:, 0],
            "PCA": spectrum,
            "MVU": spectrum,
        }

    made = tables.FIGURES["3.5"]._replace(fit=fit, seen=lambda row: f"seven is {row['said']}")
    monkeypatch.setattr(tables, "FIGURES", {"3.5": made})
    keep = ("--parts", "3.5", "--keep", str(tmp_path / "keep"))
    text, _ = run(*keep)
    picture = tmp_path / "page" / "figures" / "mvu-3-5.png"
    assert ".. figure:: figures/mvu-3-5.png" in text and "seven is 7" in text
    assert 1_000 < picture.stat().st_size < 150_000
    picture.unlink()
    run(*keep)
    assert picture.exists() and len(fits) == 1  # drawn from what was kept


def test_the_committed_page_is_that_of_the_committed_results(run, tmp_path):
    there = tmp_path / "page"
    there.mkdir()
    for path in PAGES.glob("mvu-tables*"):
        shutil.copy(path, there)
    shutil.copytree(PAGES / "figures", there / "figures")
    text, _ = run("--page-only")
    assert text == (PAGES / "mvu-tables.rst").read_text()
    sizes = [path.stat().st_size for path in (PAGES / "figures").glob("mvu-*.png")]
    assert max(sizes) < 150_000 and sum(sizes) < 1_200_000


def test_the_roll_knows_its_length(tables):
    roll = tables.swiss_roll(200, seed=0)
    fine = np.linspace(0, roll.angle[0], 20_001)
    spiral = np.stack([fine * np.cos(fine), fine * np.sin(fine)])
    walked = np.linalg.norm(np.diff(spiral, axis=1), axis=0).sum()
    assert roll.arc[0] == pytest.approx(walked, rel=1e-6)
    np.testing.assert_allclose(np.hypot(roll.X[:, 0], roll.X[:, 2]), roll.angle)


def test_the_comb_has_300_points_one_apart(tables):
    import mvu_figures

    X, part = mvu_figures.comb()
    gaps = np.linalg.norm(X[:, None] - X, axis=2) + 9 * np.eye(len(X))
    assert len(X) == 300 and set(part) == set(range(7))
    np.testing.assert_allclose(gaps.min(axis=1), 1)
