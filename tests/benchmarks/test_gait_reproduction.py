"""The script of tables 3.9 and 3.10: on a few walkers, on a folder, and its committed page."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from nearfar.datasets import make_walkers

ROOT = Path(__file__).parents[2]
SCRIPTS, PAGES = ROOT / "benchmarks" / "reproduce", ROOT / "docs" / "reproduction"
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="the scripts are not installed")


@pytest.fixture
def gait(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import gait

    few = ("averaged images (H)", "GTDA", "GTDA+LDA (H)")
    monkeypatch.setattr(gait, "METHODS", {name: gait.METHODS[name] for name in few})
    small = {
        "N_DRAWS": 2,
        "N_SUBJECTS": 3,
        "N_FRAMES": 60,
        "SHAPES": {"H": (16, 11), "full": (32, 22)},
    }
    for name, value in small.items():
        monkeypatch.setattr(gait, name, value)
    return gait


@pytest.fixture
def run(gait, tmp_path, monkeypatch):
    def run(*options):
        out = tmp_path / "page" / "gait.rst"
        monkeypatch.setattr(sys, "argv", ["gait.py", "--out", str(out), *options])
        gait.main()
        rows = [json.loads(line) for line in out.with_suffix(".jsonl").read_text().splitlines()]
        return out.read_text(), rows

    return run


@pytest.mark.slow
def test_drawn_walkers_fill_both_tables(run, gait):
    text, rows = run()
    assert len(rows) == 2 * 3
    assert all(list(row["rates"]) == list("ABCDEFGHIJKL") for row in rows)
    assert all(cells[0] == 3 and cells[2] == 100 for row in rows for cells in row["rates"].values())
    assert "Table 3.9: rank one" in text and "Table 3.10: rank five" in text
    averages = [
        np.mean([cells[1] for cells in row["rates"].values()])
        for row in rows
        if row["method"] == "GTDA+LDA (H)"
    ]
    assert f"{np.mean(averages):.1f} ± {np.std(averages, ddof=1):.1f}\n     - 54.6" in text
    # What is there is not run again.
    assert run() == run("--page-only") == (text, rows)


def test_a_folder_of_ones_own_gives_the_same_layout(run, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    walks, ids, _ = make_walkers(3, 3, 60, (32, 22), conditions=["", "shoe", "briefcase"])
    for k, name in enumerate(("gallery", "B", "H")):
        stored = np.transpose(walks[k::3], (2, 3, 1, 0))
        savemat(data / f"{name}.mat", {"fea3D": stored, "gnd": ids[k::3, None] + (k == 2)})
    text, rows = run("--data", str(data))
    assert len(rows) == 3 and list(rows[0]["rates"]) == ["B", "H"]
    # The third subject of H is not in the gallery.
    assert rows[0]["rates"]["B"][0] == 3 and rows[0]["rates"]["H"][0] == 2
    assert "Probes in each set: B 3, H 2." in text and "drawn walkers" not in text
    with pytest.raises(SystemExit, match="no gallery"):
        (data / "gallery.mat").unlink()
        (data.parent / "page" / "gait.jsonl").unlink()
        run("--data", str(data))


def test_the_committed_page_is_made_of_the_committed_results(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import gait

    for name in ("gait.jsonl", "gait-notes.inc"):
        shutil.copy(PAGES / name, tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["gait.py", "--page-only", "--out", str(tmp_path / "gait.rst")]
    )
    gait.main()
    assert (tmp_path / "gait.rst").read_text() == (PAGES / "gait.rst").read_text()


def test_unknown_methods_are_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("--methods", "nonsense")
    assert "no such methods" in capsys.readouterr().err
