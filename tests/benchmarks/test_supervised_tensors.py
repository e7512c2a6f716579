"""The script of classifiers of tensors: on tiny sets, and against the committed page."""

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
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import supervised_tensors

    supervised_tensors.stored.cache_clear()
    return supervised_tensors


@pytest.fixture
def run(script, tmp_path, monkeypatch):
    def run(*options):
        out = tmp_path / "page" / "supervised-tensors.rst"
        given = ["supervised_tensors.py", "--data", str(tmp_path), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", given)
        script.main()
        return out.read_text(), out.with_suffix(".jsonl").read_text().splitlines()

    return run


@pytest.fixture
def tiny(script, tmp_path, monkeypatch):
    """One set of two classes of small images, by objects; few sizes, splits and methods."""
    rng = np.random.default_rng(0)
    y = np.repeat(["cow", "dog"], 24)
    X = 2 * rng.normal(size=(2, 4, 3))[(y == "dog").astype(int)] + rng.normal(size=(48, 4, 3))
    shown = np.tile(np.repeat(np.arange(1, 9), 3), 2)
    np.savez(tmp_path / "small.npz", X=X.reshape(48, 12), y=y, object=shown)
    absent = script.Pairs("absent", (4, 3), 2, (5,), 1)
    small = script.Pairs("small", (4, 3), 2, (6,), 1, True)
    monkeypatch.setattr(script, "PAIRS", {"Small": small, "Absent": absent})
    few = {name: script.METHODS[name] for name in ("nearest mean", "ridge", "LSSTM", "MPM", "TMPM")}
    short = {name: of._replace(grid=of.grid[:2]) for name, of in few.items()}
    monkeypatch.setattr(script, "METHODS", short)
    started = {name: script.STARTED[name] for name in ("TMPM, 10 sweeps", "LSSTM")}
    monkeypatch.setattr(script, "STARTED", started)
    for name, value in {
        "SIZES": (20,),
        "MIXES": (0.0,),
        "N_SETS": 2,
        "N_TEST": 400,
        "N_SPLITS": 2,
        "PER_CLASS": (5,),
        "N_STARTS": 3,
        "MIN_SPLITS": 2,
        "DIMS": (5,),
        "ZETAS": (0.1,),
    }.items():
        monkeypatch.setattr(script, name, value)


@pytest.mark.slow
def test_a_run_is_kept_line_by_line_and_shown(run, tiny, script, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(script, "save", lambda figure, path: drawn.append(path.stem))
    text, lines = run()
    assert sorted(drawn) == [f"supervised-tensors-4-{number}" for number in (16, 17, 18)]
    assert all(f"figures/{name}.png" in text for name in drawn)
    rows = [json.loads(line) for line in lines]
    assert {row["part"] for row in rows} == {
        *("digits", "tr1da", "starts", "convergence", "bases", "figure-4.1", "pairs", "rank-one")
    }
    assert {row["pair"] for row in rows if row["part"] == "pairs"} == {"cow-dog"}
    assert all(0 <= row["error"] <= 100 for row in rows if "error" in row)
    fixed = [r for r in rows if r["part"] == "figure-4.1"]
    assert len(fixed) == 2 * 5
    assert np.mean([r["error"] for r in fixed]) < 30
    starts = [row for row in rows if row["part"] == "starts"]
    assert all(len(row["objectives"]) == 3 for row in starts)
    assert "as the prototype" in text and "Small" in text and "Absent" not in text
    again, same = run()
    assert (again, same) == (text, lines)  # what is there is not run again


def test_objects_are_on_one_side_and_in_one_fold(script, tiny, tmp_path):
    X, y, _, _, shown = script.pair_of(tmp_path, "Small", (0, 1), 6, 0)
    all_X, all_y, all_shown, names = script.stored(tmp_path, "Small")
    assert names == ["cow", "dog"] and X.shape == (12, 4, 3)
    train, test = script.drawn_by_object(all_y, all_shown, 6, 0)
    for code in (0, 1):
        sides = [set(all_shown[part][all_y[part] == code]) for part in (train, test)]
        assert len(sides[1]) == 4 and not sides[0] & sides[1]
    for inside, outside in script.folds(y, shown):
        assert len(inside) + len(outside) == len(y)
        for code in (0, 1):
            parts = [set(shown[part][y[part] == code]) for part in (inside, outside)]
            assert not parts[0] & parts[1]
    assert len(all_X) == 48


def test_a_cost_means_the_same_to_twins(script):
    """Of vectors, ridge and LSSTM with one value of the grid are one classifier, as SVC and STM."""
    rng = np.random.default_rng(1)
    y = np.arange(40) % 2
    X = 3 * rng.normal(size=(40, 5)) + y[:, None]
    for vector, tensor in (("ridge", "LSSTM"), ("SVC", "STM")):
        for value in script.COSTS:
            a, b = (script.made(script.METHODS[k], value, X).fit(X, y) for k in (vector, tensor))
            u, v = np.ravel(a.coef_), np.ravel(b.coef_)
            assert u == pytest.approx(v, rel=1e-2, abs=1e-2 * np.linalg.norm(v))


def test_a_bad_name_is_refused(run, tiny):
    with pytest.raises(SystemExit):
        run("--parts", "Mars")


def test_the_page_is_what_its_results_make(script, tmp_path, monkeypatch):
    for name in ("supervised-tensors.jsonl", "supervised-tensors-notes.inc"):
        if (PAGES / name).exists():
            shutil.copy(PAGES / name, tmp_path / name)
    out = tmp_path / "supervised-tensors.rst"
    monkeypatch.setattr(sys, "argv", ["supervised_tensors.py", "--page-only", "--out", str(out)])
    script.main()
    text = (PAGES / "supervised-tensors.rst").read_text()
    assert out.read_text() == text
    for line in text.splitlines():
        if line.startswith(".. figure:: "):
            assert (PAGES / line.removeprefix(".. figure:: ")).exists()
