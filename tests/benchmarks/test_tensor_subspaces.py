"""The script of tensors with few images a class: on a tiny set, and against the committed page."""

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
    import tensor_subspaces

    tensor_subspaces.images.cache_clear()
    return tensor_subspaces


@pytest.fixture
def run(script, tmp_path, monkeypatch):
    def run(*options):
        out = tmp_path / "page" / "tensor-subspaces.rst"
        given = ["tensor_subspaces.py", "--data", str(tmp_path), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", given)
        script.main()
        return out.read_text(), out.with_suffix(".jsonl").read_text().splitlines()

    return run


@pytest.fixture
def tiny(script, tmp_path, monkeypatch):
    """Two sets of four classes of small images, one of them by objects."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 12)
    X = 3 * rng.normal(size=(4, 6, 5))[y] + rng.normal(size=(48, 6, 5))
    shown = np.tile(np.repeat(np.arange(1, 7), 2), 4)
    np.savez(tmp_path / "small.npz", X=X.reshape(48, 30), y=y, object=shown)
    of = script.Set("small", (6, 5), 6, 1, 3, 2, (2, 3))
    monkeypatch.setattr(script, "SETS", {"S": of, "S-objects": of._replace(by_object=True)})
    monkeypatch.setattr(script, "PROTOTYPE", {("S", "GTA + LDA"): 3.0})
    for name, value in {"N_OBJECTS": 3, "N_ATOMS": 4, "ATOMS": (2, 4)}.items():
        monkeypatch.setattr(script, name, value)


@pytest.mark.slow
def test_a_run_is_kept_line_by_line_and_shown(run, tiny):
    text, lines = run()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 2 * (13 + 5)
    assert {row["n_train"] for row in rows} == {24} and {row["n_test"] for row in rows} == {24}
    assert all(0 <= row["error"] <= 100 for row in rows)
    raw = np.mean([r["error"] for r in rows if r["method"] == "raw" and r["set"] == "S"])
    assert raw < 20  # three sd apart in thirty pixels
    assert "GTA + LDA" in text and "S-objects" in text
    again, same = run()
    assert (again, same) == (text, lines)  # what is there is not run again


def test_objects_are_on_one_side_and_choices_see_no_test_image(script, tiny, tmp_path):
    X, y, shown = script.images(tmp_path, "S-objects")
    of = script.SETS["S-objects"]
    train, test = script.split(y, shown, of, 0)
    for code in range(4):
        sides = [set(shown[part][y[part] == code]) for part in (train, test)]
        assert len(sides[0]) == 3 and not sides[0] & sides[1]
    for inside, outside in script.folds(y[train], shown[train], of):
        assert not set(inside) & set(outside) and len(inside) + len(outside) == len(train)
        for code in range(4):
            own = y[train] == code
            objects = [set(shown[train][part][own[part]]) for part in (inside, outside)]
            assert not objects[0] & objects[1]
    assert len(X) == 48


def test_a_bad_name_is_refused(run, tiny):
    with pytest.raises(SystemExit):
        run("--sets", "Mars")


def test_the_page_is_what_its_results_make(script, tmp_path, monkeypatch):
    for name in ("tensor-subspaces.jsonl", "tensor-subspaces-notes.inc"):
        if (PAGES / name).exists():
            shutil.copy(PAGES / name, tmp_path / name)
    out = tmp_path / "tensor-subspaces.rst"
    monkeypatch.setattr(sys, "argv", ["tensor_subspaces.py", "--page-only", "--out", str(out)])
    script.main()
    assert out.read_text() == (PAGES / "tensor-subspaces.rst").read_text()
