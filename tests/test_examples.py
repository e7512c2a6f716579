"""Examples that the gallery shows without running them."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_folder_of_recordings_becomes_a_report(monkeypatch, capsys):
    pytest.importorskip("soundfile")
    pytest.importorskip("kaldi_native_fbank")
    monkeypatch.setattr(sys, "argv", ["sets_of_vectors.py", "--players", "4"])
    found = runpy.run_path(str(EXAMPLES / "sets" / "sets_of_vectors.py"))
    printed = capsys.readouterr().out
    assert "Sets(n_sets=80, n_features=13" in printed and "4 labels, 4 groups" in printed
    assert "rows: true, columns: found" in printed
    # The group that is judged took no part in the choice.
    chosen = found["search"].best_estimator_.named_steps["setembedding"].gaussians_
    assert not any("player4" in name for name in chosen.names) and len(chosen) == 60
    assert (found["found"] == found["y"]).mean() > 0.6  # by chance 0.25
