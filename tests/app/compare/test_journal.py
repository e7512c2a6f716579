"""Results on disk: what is damaged costs a fold, what is another's is refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LDA, compare
from nearfar.app.compare import journal as journals
from nearfar.app.compare.journal import Journal, claim, in_use, traits, unclaim
from nearfar.app.compare.plan import Plan


def result_of(fold, error=0.25):
    return {
        "fold": fold,
        "error": error,
        "setting": "",
        "fit_seconds": 0.5,
        "predict_seconds": 0.5,
        "tune_seconds": 0.0,
        "warnings": [],
        "peak_mb": 1.5 + fold,
        "weights": [0.1, 1 / 3],
    }


@pytest.fixture
def path(tmp_path):
    journal = Journal(tmp_path / "a.journal", "mine")
    journal.begin(Plan("k", 1))
    for fold in range(4):
        journal.add("lda", result_of(fold))
    journal.close()
    return journal.path


def reread(path, fingerprint="mine"):
    journal = Journal(path, fingerprint).read()
    journal.close()
    return journal


def test_what_was_written_comes_back(path):
    journal = reread(path)
    assert journal.results == {"lda": {fold: result_of(fold) for fold in range(4)}}
    assert journal.plan == Plan("k", 1) and not journal.notes


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: b"\xff\xfe\x00garbage",
        lambda line: line[:30],
        lambda line: b"[1, 2]",
        lambda line: b"null",
        lambda line: b'{"check": 1}',
        lambda line: line.replace(b"0.25", b"0.26"),  # a number that was never found
        lambda line: line.replace(b'"fold": 2', b'"fold": "2"'),
        lambda line: line.replace(b'"error": 0.25, ', b""),
        lambda line: b"[" * 100_000,
    ],
)
def test_a_damaged_line_costs_its_fold_only(path, damage):
    lines = path.read_bytes().splitlines()
    lines[3] = damage(lines[3])
    path.write_bytes(b"\n".join(lines) + b"\n")
    journal = reread(path)
    assert sorted(journal.results["lda"]) == [0, 1, 3]
    assert journal.notes == ["a.journal: damaged lines left out: 1; what they held is run again."]
    journal.begin(Plan("k", 1))
    journal.close()
    assert not reread(path).notes  # written anew without it


def _header(changed):
    plan = Plan("k", 1, 4000, ("lmnn",)).kept() | changed
    return json.dumps({"nearfar_journal": 2, "fingerprint": "mine", "plan": plan}).encode()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"hello", "not a journal"),
        (b"\x89PNG\r\n", "not a journal"),
        (b"[]", "not a journal"),
        (b'{"nearfar_journal": 1}', "not a journal"),
        (b"[" * 100_000, "not a journal"),
        (b'{"nearfar_journal": 1, "fingerprint": "mine", "tuning": "k"}', "another version"),
        (b'{"nearfar_journal": 2, "fingerprint": "x", "plan": {}}', "another comparison"),
        (b'{"nearfar_journal": 2, "fingerprint": "mine"}', "plan that cannot be read"),
        (_header({"tuning": ["k"]}), "plan that cannot be read"),
        (_header({"tuning": "deep"}), "plan that cannot be read: .*deep"),
        (_header({"repeats": 0}), "plan that cannot be read"),
        (_header({"rows": "all"}), "plan that cannot be read"),
        (_header({"left_out": [1]}), "plan that cannot be read"),
        (_header({"more": 1}), "plan that cannot be read"),
    ],
)
def test_a_file_that_is_no_journal_of_ours_is_refused(path, header, message):
    path.write_bytes(header + b"\n")
    with pytest.raises(ValueError, match=message):
        Journal(path, "mine").read()
    assert not in_use(path) and path.read_bytes() == header + b"\n"


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("lda", lambda result: [result]),
        ("lda", lambda result: "text"),
        ("lda", lambda result: None),
        ("lda", lambda result: result | {"fold": "2"}),
        ("lda", lambda result: result | {"fold": 2.0}),
        ("lda", lambda result: result | {"fold": True}),
        ("lda", lambda result: result | {"fold": -1}),
        ("lda", lambda result: result | {"error": "0.25"}),
        ("lda", lambda result: result | {"error": None}),
        ("lda", lambda result: result | {"error": float("nan")}),
        ("lda", lambda result: result | {"peak_mb": "1"}),
        ("lda", lambda result: result | {"warnings": [1]}),
        ("lda", lambda result: result | {"weights": 3}),
        ("lda", lambda result: result | {"predicted": [0, "1"]}),
        ("lda", lambda result: {"fold": 2}),
        (7, lambda result: result),
        (None, lambda result: result),
        ("nobody", lambda result: result),
    ],
)
def test_a_sound_line_of_another_form_costs_its_fold_only(path, method, change):
    lines = path.read_bytes().splitlines()
    lines[3] = journals._line(method, change(result_of(2))).rstrip()
    path.write_bytes(b"\n".join(lines) + b"\n")
    journal = Journal(path, "mine").read({"lda", "rca"})
    journal.close()
    assert sorted(journal.results) == ["lda"] and sorted(journal.results["lda"]) == [0, 1, 3]
    (note,) = journal.notes
    assert ("'nobody'" if method == "nobody" else "of another form left out: 1") in note


def test_what_was_known_is_on_the_disk_at_every_moment(path, monkeypatch):
    before = path.read_bytes()
    journal = Journal(path, "mine").read()

    def fail(*_):
        assert path.read_bytes() == before
        raise OSError("the disk is full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"os.{name}", fail)
            with pytest.raises(OSError, match="full"):
                journal.begin(Plan("k", 3))
        assert path.read_bytes() == before and in_use(path)
    journal.begin(Plan("k", 3))
    assert in_use(path)  # the new file is held as the old one was
    journal.add("lda", result_of(4))
    journal.begin(Plan("k", 4))  # the plan grew
    journal.close()
    found = reread(path)
    assert sorted(found.results["lda"]) == [0, 1, 2, 3, 4] and found.plan.repeats == 4
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_name_taken_anew_keeps_the_old_journal_until_there_is_a_new_one(path):
    pytest.importorskip("fcntl")
    before = path.read_bytes()
    assert not claim(path) and claim(path, anew=True) and in_use(path)
    assert path.read_bytes() == before
    unclaim(path)  # the comparison came to nothing
    assert path.read_bytes() == before and not in_use(path)
    assert claim(path, anew=True)
    journal = Journal(path, "another").read()
    assert not journal.results and in_use(path) and path.read_bytes() == before
    journal.begin(Plan("k", 1))
    journal.close()
    assert not reread(path, "another").results


def test_a_journal_that_runs_is_not_taken_anew(path):
    pytest.importorskip("fcntl")
    journal = Journal(path, "mine").read()
    assert not claim(path, anew=True)
    journal.close()
    assert claim(path, anew=True)
    unclaim(path)


def test_one_that_was_replaced_meanwhile_is_not_taken_for_the_one_of_that_name(path, monkeypatch):
    pytest.importorskip("fcntl")
    lock, other = journals._lock, path.with_name("other")
    other.write_bytes(path.read_bytes())

    def slow(file):
        if other.exists():
            os.replace(other, path)  # by one that has just ended
        return lock(file)

    monkeypatch.setattr(journals, "_lock", slow)
    journal = Journal(path, "mine").read()
    assert os.path.samestat(os.fstat(journal._file.fileno()), path.stat())
    journal.close()


def test_results_of_one_tuning_do_not_go_on_with_another(path):
    journal = reread(path)
    journal.agree({"tuning": None, "rows": None})
    journal.agree({"tuning": "k"})
    with pytest.raises(ValueError, match="tuning 'k'; they cannot go on with 'full'"):
        journal.agree({"tuning": "full"})
    with pytest.raises(ValueError, match="rows None; they cannot go on with 500"):
        journal.agree({"tuning": None, "rows": 500})


def test_a_name_is_claimed_once_and_given_back_if_unused(tmp_path):
    path = tmp_path / "a.journal"
    assert claim(path) and not claim(path)
    assert reread(path).results == {} and not path.exists()  # of an empty one nothing is left
    claim(path)
    unclaim(path)
    assert not path.exists()
    path.write_text("x")
    unclaim(path)
    assert path.exists()


def test_a_journal_belongs_to_one_run(path):
    pytest.importorskip("fcntl")
    journal = Journal(path, "mine").read()
    assert in_use(path)
    with pytest.raises(ValueError, match="still running"):
        Journal(path, "mine").read()
    journal.close()
    assert not in_use(path) and reread(path).results


QUICK = {"tuning": "k", "context": False, "isolate": False, "verbose": False}


def test_going_on_keeps_memory_and_ignores_folds_that_are_not_planned(tmp_path, monkeypatch):
    from nearfar.app.compare.schedule import Schedule

    X, y = load_iris(return_X_y=True)
    path = tmp_path / "a.journal"
    record = Schedule._record

    def stop(self, run, fold, value):
        run.peak = 77.0
        record(self, run, fold, value)
        if sum(len(r.results) for r in self.runs.values()) == 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(Schedule, "_record", stop)
    compare(X, y, methods=["lda"], repeats=2, journal=path, **QUICK)
    monkeypatch.setattr(Schedule, "_record", record)
    header, *lines = path.read_text().splitlines()
    assert len(lines) == 12
    journal = Journal(path, json.loads(header)["fingerprint"]).read()
    journal.begin(Plan("k", 1))
    journal.add("lda", result_of(99) | {"peak_mb": 1.0})
    journal.add("nobody", result_of(0))
    journal.close()
    result = compare(X, y, methods=["lda"], repeats=2, journal=path, **QUICK)
    rows = {method["name"]: method for method in result.document["methods"]}
    assert rows["lda"]["folds_done"] == 10 and rows["lda"]["peak_mb"] == 77.0
    assert "nobody" not in rows and not path.exists()


class Doubled(TransformerMixin, BaseEstimator):
    def __init__(self, weights=None):
        self.weights = weights

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X * 2.0


def changed(factor):
    """The same class, to its name and parameters, with other code."""

    class Doubled(TransformerMixin, BaseEstimator):
        def __init__(self, weights=None):
            self.weights = weights

        def fit(self, X, y=None):
            return self

    if factor == 2:
        Doubled.transform = lambda self, X: X * 2.0
    else:
        Doubled.transform = lambda self, X: X * 3.0
    return Doubled


def test_a_learner_that_was_changed_is_another():
    assert traits(changed(2)()) == traits(changed(2)()) != traits(changed(3)())
    nested = [make_pipeline(StandardScaler(), changed(factor)()) for factor in (2, 3)]
    assert traits(nested[0]) != traits(nested[1])
    # Long arrays look the same when printed.
    some, other = np.zeros(5000), np.zeros(5000)
    other[2500] = 1.0
    assert repr(Doubled(some)) == repr(Doubled(other))
    assert traits(Doubled(some)) != traits(Doubled(other))
    assert traits(LDA()) != traits(LDA(n_components=1))


def test_scorers_are_told_apart_by_their_code():
    def scorer(change):
        if change:
            return lambda estimator, X, y: float((estimator.predict(X) != y).mean())
        return lambda estimator, X, y: float((estimator.predict(X) == y).mean())

    assert traits(scorer(True)) == traits(scorer(True)) != traits(scorer(False))
    assert traits(make_scorer(accuracy_score)) == traits(make_scorer(accuracy_score))
    assert traits(make_scorer(accuracy_score)) != traits(
        make_scorer(accuracy_score, greater_is_better=False)
    )
    assert traits(None) != traits("f1")


SCRIPT = """
from sklearn.base import BaseEstimator, TransformerMixin
from nearfar import LMNN
from nearfar.app.compare.journal import traits

class Mine(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self
    def transform(self, X):
        return X if "a" in {"a", "b", "c"} else None

print(traits(Mine()), traits(LMNN()), traits(lambda e, X, y: 1.0))
"""


@pytest.mark.slow
def test_the_next_process_finds_the_same(fresh_processes):
    found = {
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(found) == 1 and len(found.pop().split()) == 6
