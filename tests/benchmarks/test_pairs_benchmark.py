"""The objectives by which benchmarks/pairs.py judges all contenders are those of the learners."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

from nearfar import ITML, LSML, MMC, SCML, Pairs, Quadruplets, Triplets

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="no benchmarks are installed")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("pairs")


@pytest.fixture
def wine():
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def test_pairs(script, wine):
    X, y = wine
    pairs = Pairs.from_labels(y, n_similar=100, n_dissimilar=100, random_state=0)
    given = {
        "X": X,
        "pairs": np.concatenate([pairs.similar, pairs.dissimilar]),
        "sign": np.repeat([1, -1], 100),
        "prior": script.prior_of(X),
        "bounds": np.array([5.0, 30.0]),
    }
    mmc = MMC().fit(X, supervision=pairs)
    # At any multiple of the map.
    assert script.mmc_objective(3 * mmc.components_, given) == pytest.approx(mmc.objective_)
    itml = ITML(bounds=(5.0, 30.0)).fit(X, supervision=pairs)
    assert script.itml_objective(itml.components_, given) == pytest.approx(itml.objective_)


def test_comparisons(script, wine):
    X, y = wine
    quadruplets = Quadruplets.from_labels(y, n_quadruplets=100, random_state=0)
    lsml = LSML().fit(X, supervision=quadruplets)
    given = {"X": X, "tuples": quadruplets.indices, "prior": script.prior_of(X)}
    assert script.lsml_objective(lsml.components_, given) == pytest.approx(lsml.objective_)
    triplets = Triplets.from_neighbors(X, y, n_near=1, n_far=2)
    directions = X[:40] / np.linalg.norm(X[:40], axis=1)[:, None]
    scml = SCML(basis=directions).fit(X, supervision=triplets)
    given = {"X": X, "tuples": triplets.indices}
    assert script.scml_objective(scml.components_, given) == pytest.approx(scml.objective_)


def test_the_row_that_names_an_error_is_found(script):
    contenders = importlib.import_module("contenders")
    said = "Traceback:\n  line 3\nValueError: Complex data not supported\n[[1+0j\n  2.j]]\n"
    assert contenders.last_error(said) == "ValueError: Complex data not supported"
    assert contenders.last_error("Killed\n") == "Killed"
    assert contenders.fault_of(np.array([[1j]])) == "the map is complex"
    assert contenders.fault_of(np.array([[np.nan]])) == "the map has NaN"
    assert contenders.fault_of(np.eye(2)) == ""


def test_who_was_late_on_a_smaller_set_is_not_tried_on_larger_ones(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    peers = importlib.import_module("peers")
    late = {"set": "wine", "method": "NCA", "who": "pyDML", "remark": "not done after 30 CPU s"}
    raised = late | {"method": "RCA", "remark": "ValueError: no"}
    results = [late, raised]
    assert peers.too_slow_before(results, "digits", "NCA", "pyDML") == "wine 178×13"
    assert peers.too_slow_before(results, "wine", "NCA", "pyDML") is None
    assert peers.too_slow_before(results, "digits", "NCA", "mlpack") is None
    assert peers.too_slow_before(results, "digits", "RCA", "pyDML") is None
    assert "pyDML on wine 178×13: LMNN, MMC, ITML" in peers.not_run(results)
    assert "scikit-learn on wine 178×13: NCA" in peers.not_run(results)
