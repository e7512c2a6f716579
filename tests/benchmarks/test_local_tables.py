"""The tables of local rules: on tiny sets, and the committed page."""

import importlib
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
FEW = ("5-NN", "machete")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("local_tables")


@pytest.fixture
def problems(script):
    return importlib.import_module("local_problems")


@pytest.fixture
def run(script, tmp_path, monkeypatch):
    def run(*options):
        out = tmp_path / "page" / "local-tables.rst"
        given = ["local_tables.py", "--data", str(tmp_path), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", given)
        script.main()
        return out.read_text(), out.with_suffix(".jsonl").read_text().splitlines()

    return run


@pytest.fixture
def tiny(script, problems, tmp_path, monkeypatch):
    """Two classes along one of four columns, a value missing, and a set that is too large."""
    (tmp_path / "uci").mkdir()
    random = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = random.normal(size=(60, 4))
    X[:, 0] += 4 * y
    X[3, 1] = np.nan
    np.savez(tmp_path / "uci" / "small.npz", X=X, y=y)
    large = random.normal(size=(2501, 1))
    np.savez(tmp_path / "uci" / "large.npz", X=large, y=large[:, 0] > 0)
    np.savez(tmp_path / "uci" / "letter.npz", X=large, y=large[:, 0] > 0)
    few = {name: method for name, method in script.methods().items() if name in FEW}
    monkeypatch.setattr(script, "methods", lambda: few)
    monkeypatch.setattr(script, "WINDOWS", {"all rows": lambda n, p, c: n})
    monkeypatch.setattr(script, "N_SETTINGS", 2)
    monkeypatch.setattr(problems, "N_SEEDS", 2)
    monkeypatch.setattr(problems, "REPEATS", {"defaults": {1500: 1}, "tuned": {1000: 1}})


@pytest.mark.slow
def test_a_run_is_kept_line_by_line_and_shown(run, tiny, script, monkeypatch):
    text, lines = run("--sets", "small;ring")
    rows = [json.loads(line) for line in lines]
    # Two protocols of three parts, and windows of DANN with the defaults.
    assert len(rows) == 2 * 3 * len(FEW) + 1
    assert {row["part"] for row in rows} == set(script.PARTS)
    means = {(r["part"], r["protocol"], r["method"]): np.mean(r["errors"]) for r in rows}
    assert means["plain", "defaults", "machete"] < 12
    assert means["noisy", "defaults", "machete"] < means["noisy", "defaults", "5-NN"]
    assert {len(row["errors"]) for row in rows} == {5, 2}  # folds and draws
    assert {row["p"] for row in rows if row["part"] == "noisy"} == {8}
    assert all(len(row.get("chosen", row["errors"])) == len(row["errors"]) for row in rows)
    assert "small (60 × 8, 2)" in text and "has no experiments" in " ".join(text.split())
    # What is in the journal is not run again, and nothing is renewed that answers alike.
    monkeypatch.setattr(script, "run", None)
    assert run("--sets", "small;ring") == (text, lines)
    assert run("--sets", "small;ring", "--renew") == (text, lines)


def test_what_answers_otherwise_is_run_anew(run, tiny, script):
    wanted = ("--sets", "small", "--parts", "plain", "--protocols", "defaults")
    _, lines = run(*wanted)
    place = script.methods()
    place["5-NN"] = script.Method(lambda: script.SVC(C=1e-3), script.fixed())
    text, renewed = run(*wanted, "--renew")
    assert renewed[: len(lines)] == lines and len(renewed) == len(lines) + 1
    last = json.loads(renewed[-1])
    assert last["method"] == "5-NN" and f"{np.mean(last['errors']):.1f}" in text


def test_sets_are_those_that_are_small_and_some_letters(tiny, problems, tmp_path):
    assert problems.sets(tmp_path) == ["small", "letter"]
    assert len(problems.stored(tmp_path, "letter")[0]) == problems.LETTERS
    X, _, Q, _ = next(problems.splits(tmp_path, "plain", "small", "defaults"))
    assert len(X) == 48 and len(Q) == 12
    # Medians and deviations are those of training rows.
    assert np.isfinite(X).all() and np.isfinite(Q).all()
    np.testing.assert_allclose(X.std(axis=0), 1)
    assert not np.allclose(Q.std(axis=0), 1)


def test_verdicts_allow_for_folds_that_share_rows(script):
    random = np.random.default_rng(1)
    plain = {"part": "plain", "n": 200, "test_share": 0.25, "errors": random.uniform(20, 30, 10)}
    spread = 4.0  # more than one test row is worth

    def word(shift, part="plain"):
        errors = plain["errors"] + shift + random.normal(scale=spread, size=10)
        low, high = script.difference(plain | {"errors": errors, "part": part}, plain).interval()
        return "better" if high < 0 else "worse" if low > 0 else ""

    assert word(-15) == "better" and word(15) == "worse" and word(0) == ""
    # Draws are independent: the interval is that of Student's t, and shorter.
    errors = plain["errors"] - 2 + random.normal(scale=spread, size=10)
    folds = script.difference(plain | {"errors": errors}, plain)
    draws = script.difference(plain | {"errors": errors, "part": "simulations"}, plain)
    t = np.std(errors - plain["errors"], ddof=1) / 10**0.5
    assert draws.standard_error == pytest.approx(t)
    assert folds.standard_error == pytest.approx(t * (1 + 10 * 0.25) ** 0.5)


def test_unknown_names_are_refused(run, tiny, capsys):
    with pytest.raises(SystemExit):
        run("--methods", "Mars")
    assert "no ['Mars']" in capsys.readouterr().err


def test_the_committed_page_is_that_of_the_committed_results(run, tmp_path):
    (tmp_path / "page").mkdir()
    for path in PAGES.glob("local-tables*"):
        shutil.copy(path, tmp_path / "page")
    text, _ = run("--page-only")
    assert text == (PAGES / "local-tables.rst").read_text()
