"""Processes that are killed: what they were at is run again, and what is lost is said."""

import os
import signal

import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris

from nearfar import compare
from nearfar.app.compare import pool as pools
from nearfar.app.compare.methods import Method, Setting, baselines

X, Y = load_iris(return_X_y=True)
QUICK = {"repeats": 1, "tuning": "k", "context": False, "verbose": False, "n_jobs": 1}

pytestmark = [
    pytest.mark.usefixtures("default_signals"),
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing can be killed so"),
]


class Fragile(TransformerMixin, BaseEstimator):
    """Killed so many times, as the system does when memory runs out; then it works."""

    def __init__(self, tally="", times=1):
        self.tally = tally
        self.times = times

    def fit(self, X, y=None):
        with open(self.tally, "a+") as file:
            file.seek(0)
            if len(file.read()) < self.times:
                file.write("x")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return self

    def transform(self, X):
        return X[:, 2:]


def rows_of(result):
    return {method["name"]: method for method in result.document["methods"]}


def errors_of(result):
    return {
        method["name"]: [(one["fold"], one["error"], one["k"]) for one in method["results"]]
        for method in result.document["methods"]
    }


def numbers(result):
    """All that does not depend on the clock or on memory."""
    return errors_of(result), result.document["answer"]["verdict"], result.document["best"]


def fragile(tmp_path, times):
    return Fragile(str(tmp_path / "tally"), times)


def test_what_a_killed_process_was_at_is_run_once_more(tmp_path):
    result = compare(X, Y, methods={"it": fragile(tmp_path, 1)}, **QUICK)
    assert rows_of(result)["it"]["status"] == "done" and result.complete
    assert result.document["status"] == "complete"
    assert rows_of(result)["it"]["folds_done"] == 5


def test_one_that_is_killed_twice_is_lost_and_its_journal_stays(tmp_path):
    journal = tmp_path / "a.journal"
    methods = {"it": fragile(tmp_path, 2)}
    first = compare(X, Y, methods=methods, journal=journal, **QUICK)
    row = rows_of(first)["it"]
    assert row["status"] == "failed"
    assert row["reason"].startswith("its process was ended by SIGKILL; out of memory?")
    assert first.document["status"] == "a worker died" and not first.complete
    assert journal.exists()
    again = compare(X, Y, methods=methods, journal=journal, **QUICK)
    assert rows_of(again)["it"]["folds_done"] == 5 and again.complete and not journal.exists()
    assert errors_of(again)["raw"] == errors_of(first)["raw"]


def test_without_one_of_the_plain_distances_there_is_no_verdict(tmp_path, monkeypatch):
    def dying():
        first, second, *others = baselines()
        setting = second.settings[0]
        return [
            first,
            Method(
                second.name,
                second.label,
                second.role,
                (Setting(setting.label, setting.scale, fragile(tmp_path, 2)),),
            ),
            *others,
        ]

    monkeypatch.setattr("nearfar.app.compare.kinds.rows.baselines", dying)
    lost = dying()[1]
    journal = tmp_path / "a.journal"
    result = compare(X, Y, methods=["lda"], journal=journal, **QUICK)
    answer = result.document["answer"]
    assert answer["verdict"] == "inconclusive" and result.best == "reference"
    assert lost.label in answer["text"] and "SIGKILL" in answer["text"]
    assert not any(method["recommended"] for method in result.document["methods"])
    assert result.document["nested"] is None
    assert result.to_html(tmp_path / "report.html").stat().st_size > 1000
    again = compare(X, Y, methods=["lda"], journal=journal, **QUICK)
    assert again.complete and "lost" not in again.document["answer"]["text"]


def test_without_the_reference_no_embedding_is_recommended(tmp_path, monkeypatch):
    from nearfar.app.compare import embeddings

    made = embeddings.embedding_methods

    def dying(*args, **kwargs):
        return [
            Method(
                one.name,
                one.label,
                one.role,
                (Setting("", one.settings[0].scale, fragile(tmp_path, 2)),),
            )
            if one.role == "reference"
            else one
            for one in made(*args, **kwargs)
        ]

    monkeypatch.setattr("nearfar.app.compare.kinds.embeddings.embedding_methods", dying)
    result = compare(X, methods="isomap", repeats=1, verbose=False, n_jobs=1)
    assert result.document["answer"]["verdict"] == "inconclusive"
    assert "SIGKILL" in result.answer and result.document["best"] is None


@pytest.fixture(scope="module")
def whole():
    return compare(X, Y, methods=["lda"], isolate=False, **QUICK)


@pytest.mark.skipif(not pools._FORKS, reason="there is no template")
class TestTemplate:
    """The process that starts the workers may be killed as well."""

    def kill_templates(self, monkeypatch, times):
        """Kill the template before each of the first forks."""
        fork, left = pools._Template.fork, [times]

        def killing(self, log):
            if left[0]:
                left[0] -= 1
                self._process.kill()
                self._process.wait()
            return fork(self, log)

        monkeypatch.setattr(pools._Template, "fork", killing)

    def test_a_new_one_goes_on(self, monkeypatch, whole):
        self.kill_templates(monkeypatch, 2)
        result = compare(X, Y, methods=["lda"], **QUICK)
        assert result.complete and numbers(result) == numbers(whole)

    def test_in_the_end_there_is_a_report_of_what_there_is(self, monkeypatch, tmp_path):
        self.kill_templates(monkeypatch, 10**6)
        result = compare(X, Y, methods=["lda"], journal=tmp_path / "a.journal", **QUICK)
        assert not result.complete and result.document["status"] == "a worker died"
        assert "process that starts the workers was killed" in rows_of(result)["lda"]["reason"]
        assert result.document["answer"]["verdict"] == "inconclusive"

    def test_its_workers_are_not_to_blame(self, monkeypatch, whole):
        """They end with it; what they were at is run again, however often."""
        give, left = pools.ProcessPool.give, [2]

        def killing(self, name, kind, arguments):
            if left[0] and name == "lda":
                left[0] -= 1
                process = self._processes[name]
                os.kill(process.pid, signal.SIGSTOP)  # it does not answer before it ends
                self._template._process.kill()
                self._template._process.wait()
                os.kill(process.pid, signal.SIGKILL)
            give(self, name, kind, arguments)

        monkeypatch.setattr(pools.ProcessPool, "give", killing)
        result = compare(X, Y, methods=["lda"], **QUICK)
        assert left == [0] and result.complete and numbers(result) == numbers(whole)
