"""The loops of benchmarks/local_loops.py find what the rules find."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from nearfar import ADAMENNClassifier, FriedmanClassifier, LFMSVMClassifier

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="no benchmarks are installed")


def test_loops_find_the_same_neighbours(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    loops = importlib.import_module("local_loops")
    random = np.random.default_rng(0)
    y = np.arange(240) % 2
    X = random.normal(size=(240, 4)) + np.outer(y, [1.5, 0, 0, 1])
    X, y, queries = loops.two_classes(X, y, 0, 1)
    assert len(X) == 160 and len(queries) == 80
    for rule, loop in (
        (ADAMENNClassifier(n_average_neighbors=20, n_region_neighbors=40), loops.adamenn_loop),
        (FriedmanClassifier(), loops.scythe_loop),
        (LFMSVMClassifier(), loops.lfm_svm_loop),
    ):
        sizes = {"K0": 20, "K2": 40} if loop is loops.adamenn_loop else {}
        wanted = loop(X, y, queries[:20], **sizes)
        np.testing.assert_array_equal(rule.fit(X, y).kneighbors(queries[:20])[1], wanted)
