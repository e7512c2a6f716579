"""The contenders of benchmarks/tensors.py solve the same problem."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from nearfar import GTA

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="no benchmarks are installed")


def test_the_loop_of_multilinear_pca_keeps_what_gta_keeps(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("tensors")
    X, y = script.images(200, 8, n_classes=4)
    assert X.shape == (200, 8, 8) and X.dtype == np.float32 and set(y) == {0, 1, 2, 3}
    _, kept = script.multilinear_pca(X, 3, max_iter=20)
    gta = GTA((3, 3)).fit(X)
    energy = gta.history_["objective"][-1]
    assert (kept.astype(float) ** 2).sum() == pytest.approx(energy, rel=1e-5)
