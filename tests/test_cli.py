"""The command line, as a user runs it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import nearfar
from nearfar.cli import main

QUICK = ["--repeats", "1", "--tuning", "k", "--methods", "lda", "--no-context", "--in-process"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def table(here):
    frame = load_wine(as_frame=True).frame.rename(columns={"target": "kind"})
    frame.insert(0, "id", np.arange(len(frame)) + 1000)
    frame["colour"] = np.where(frame["hue"] > 1, "red", "white")
    frame.loc[3, "alcohol"] = None
    frame.to_csv("wine.csv", index=False)
    return frame


def run(*words):
    return main([str(word) for word in words])


def test_compare_prints_the_answer_and_writes_report_and_numbers(table, here, capsys):
    assert run("compare", "wine.csv", "--target", "kind", *QUICK, "--json", "all.json") == 0
    out = capsys.readouterr().out
    for part in (
        "wine.csv: 178 rows, 14 features, 3 classes",
        "Left out: column 'id'",
        "Plan: 1 × 5-fold, stratified, shuffled, seed 0",
        "Euclidean, standardised",
        "Report: report.html",
        "Numbers: all.json",
        "GridSearchCV",
    ):
        assert part in out
    document = json.loads((here / "all.json").read_text())
    assert document["command"].startswith("nearfar compare wine.csv")
    assert document["versions"]["nearfar"] == nearfar.__version__
    assert sorted(row for fold in document["folds"] for row in fold["test"]) == list(range(178))
    assert document["answer"]["text"] in out
    sentence = document["answer"]["text"].split("(")[0].partition(": ")[2]
    assert sentence in (here / "report.html").read_text()


def test_a_terminal_without_a_minus_sign_or_without_a_reader_loses_nothing(here):
    command = f"{sys.executable} -m nearfar compare iris {' '.join(QUICK)}"
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(
        f"{command} --out a.html > a.txt", shell=True, env=environment, capture_output=True
    )
    assert done.returncode == 0 and (here / "a.html").exists()
    subprocess.run(f"{command} --out b.html | head -1", shell=True, capture_output=True)
    assert (here / "b.html").exists() or (here / "b.journal").exists()


def test_nothing_is_overwritten_without_force(here, capsys):
    (here / "mine.html").write_text("precious")
    (here / "mine.json").write_text("precious")
    assert run("compare", "iris", *QUICK, "--out", "mine.html") == 2
    assert run("compare", "iris", *QUICK, "--json", "mine.json") == 2
    assert (here / "mine.html").read_text() == (here / "mine.json").read_text() == "precious"
    assert "mine.html exists; choose another --out, or add --force" in capsys.readouterr().err
    assert run("compare", "iris", *QUICK, "--out", "mine.html", "--force") == 0
    assert "precious" not in (here / "mine.html").read_text()


def test_the_default_report_takes_a_free_name(here, capsys):
    (here / "report.html").write_text("precious")
    assert run("compare", "iris", *QUICK) == 0
    assert (here / "report.html").read_text() == "precious"
    assert (here / "report-2.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "nowhere.csv"], "nowhere.csv"),
        (["compare", "iris", "--methods", "lmn"], "Did you mean lmnn"),
        (["compare", "iris", "--out", "report.txt"], "end its name with .html"),
        (["compare", "iris", "--out", "no/such/report.html"], "no folder"),
        (["compare", "iris", "--json", "no/such/all.json"], "no folder"),
        (["compare", "iris", "--resume"], "nothing to resume"),
        (["compare", "iris", "--resume", "--out", "a.html"], "nothing to resume"),
        (["compare", "iris", "--scoring", "nonsense"], "not a scorer"),
        (["compare", "iris", "--min-gain", "7"], "min_gain"),
        (["compare", "wine.csv"], "--target"),
        (["compare", "wine.csv", "--target", "knd"], "kind"),
        (["compare", "wine.csv", "--target", "alcohol"], "alcohol"),
        (["fit", "iris", "--method", "lmn", "--save", "m.nf"], "Did you mean lmnn"),
        (["transform", "nowhere.nf", "--input", "wine.csv", "-o", "a.csv"], "nowhere.nf"),
        (["transform", "wine.csv", "--input", "wine.csv", "-o", "a.csv"], "wine.csv"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(table, words, message, capsys):
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("nearfar: error: ") and message in err
    assert "Traceback" not in err and len(err.strip().splitlines()) <= 3


@pytest.mark.parametrize(
    "words", [["compare"], ["compare", "iris", "--repeats", "0"], ["dance"], []]
)
def test_wrong_usage_is_explained(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: nearfar" in capsys.readouterr().err


def test_fit_transform_and_neighbors_make_a_chain(table, here, capsys):
    assert run("fit", "wine.csv", "--target", "kind", "--method", "lda", "--save", "m.nf") == 0
    assert "Left out: column 'id'" in capsys.readouterr().out
    assert run("fit", "wine.csv", "--target", "kind", "--method", "lda", "--save", "m.nf") == 2
    new = table.drop(columns=["kind"]).iloc[::-1]
    new.to_csv("new.csv", index=False)
    assert run("transform", "m.nf", "--input", "new.csv", "-o", "out.parquet") == 0
    mapped = pd.read_parquet("out.parquet")
    assert mapped.shape == (178, 2)
    for name in ("out.csv", "out.tsv", "out.npy"):
        assert run("transform", "m.nf", "--input", "new.csv", "-o", name) == 0
    np.testing.assert_array_equal(np.load("out.npy"), mapped.to_numpy())
    capsys.readouterr()
    assert run("neighbors", "m.nf", "--index", "wine.csv", "--query", "new.csv", "-k", "3") == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 178 * 3
    # The queries are the index in reverse: each is its own nearest, at distance zero.
    first = [row for row in rows if row["rank"] == "1"]
    assert [int(row["row"]) for row in first] == list(range(177, -1, -1))
    assert {float(row["distance"]) for row in first} == {0.0}
    model = nearfar.load("m.nf")
    distances, _ = model[-1].kneighbors(mapped.to_numpy()[:1])
    assert distances[0, 0] == 0
    assert model.score(table.drop(columns=["kind"]), table["kind"]) > 0.95


def test_a_table_that_lacks_a_column_is_refused_by_name(table, here, capsys):
    run("fit", "wine.csv", "--target", "kind", "--method", "rca", "--save", "m.nf")
    table.drop(columns=["hue", "alcohol"]).to_csv("less.csv", index=False)
    capsys.readouterr()
    assert run("transform", "m.nf", "--input", "less.csv", "-o", "out.npy") == 2
    err = capsys.readouterr().err
    assert "lacks the column(s) alcohol, hue" in err or "hue" in err
    assert run("neighbors", "m.nf", "--index", "wine.csv", "--query", "wine.csv", "-k", "500") == 2
    assert "from 1 to the 178 rows" in capsys.readouterr().err


def test_arrays_go_through_the_chain_too(here, capsys):
    X, y = load_wine(return_X_y=True)
    np.savez("wine.npz", X=X, y=y)
    assert run("fit", "wine.npz", "--method", "standardised", "--save", "m.nf") == 0
    np.save("new.npy", X[:5])
    assert run("transform", "m.nf", "--input", "new.npy", "-o", "out.npy") == 0
    expected = (X[:5] - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=1e-10)
    np.save("wrong.npy", X[:5, :3])
    assert run("transform", "m.nf", "--input", "wrong.npy", "-o", "out2.npy") == 2
    assert "has 3 columns; the model was fitted on 13" in capsys.readouterr().err


def test_methods_are_listed_by_room(capsys):
    assert run("methods") == 0
    out = capsys.readouterr().out
    assert out.startswith("Start here")
    for name in nearfar.all_learners():
        assert re.search(rf"^  {name.lower()} .*\[.*\]$", out, re.MULTILINE)
    assert out.index("mahalanobis:") > out.index("Start here")


def test_a_test_file_is_used(table, here, capsys):
    table.iloc[::2].to_csv("train.csv", index=False)
    table.iloc[1::2].to_csv("test.csv", index=False)
    words = ["compare", "train.csv", "--test", "test.csv", "--target", "kind", *QUICK]
    assert run(*words, "--json", "a.json") == 0
    document = json.loads((here / "a.json").read_text())
    assert document["data"]["test"] == {"name": "test.csv", "n_rows": 89}
    assert document["folds"][0]["n_train"] == 89


def test_groups_and_time_are_columns(table, here, capsys):
    table["batch"] = np.arange(178) // 6
    table["when"] = pd.date_range("2020-01-01", periods=178).strftime("%Y-%m-%d")
    table = table.sample(frac=1, random_state=0)
    table.to_csv("g.csv", index=False)
    assert run("compare", "g.csv", "--target", "kind", "--groups", "batch", *QUICK) == 0
    out = capsys.readouterr().out
    assert "Groups: 30; none is on both sides of any of the 5 folds (checked)." in out
    assert run("compare", "g.csv", "--target", "kind", "--time", "when", *QUICK) in (0, 2)
    captured = capsys.readouterr()
    # Wine comes sorted by class: in time, the first fold may know a single one.
    assert "folds in time" in captured.out or "single class" in captured.err


def test_ctrl_c_writes_what_there_is_and_resume_goes_on(here):
    command = [sys.executable, "-m", "nearfar", "compare", "digits", "--methods", "lda"]
    command += ["--repeats", "4", "--tuning", "k", "--no-context", "--out", "d.html"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    journal = here / "d.journal"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if journal.exists() and len(journal.read_text().splitlines()) > 12:
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "Report: d.html" in out and "--resume" in out and "Traceback" not in out
    partial = (here / "d.html").read_text()
    n_before = len(journal.read_text().splitlines()) - 1
    words = re.search(r"To go on: nearfar (.*)", out)[1].split()
    again = subprocess.run(
        [sys.executable, "-m", "nearfar", *words, "--json", "d.json"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert again.returncode == 0, again.stderr
    document = json.loads((here / "d.json").read_text())
    assert document["status"] == "complete" and n_before > 10
    assert all(m["folds_done"] == 20 for m in document["methods"])
    assert not journal.exists() and (here / "d.html").read_text() != partial


def test_an_unfinished_comparison_is_not_thrown_away(here, capsys):
    (here / "a.journal").write_text("{}")
    assert run("compare", "iris", *QUICK, "--out", "a.html") == 2
    assert "--resume to go on, or --force to start anew" in capsys.readouterr().err


def test_a_budget_of_seconds_is_kept(here, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 5000)
    np.savez("big.npz", X=rng.normal(size=(5000, 30)) + y[:, None] * 0.3, y=y)
    began = time.monotonic()
    assert run("compare", "big.npz", "--time-budget", "12", "--json", "a.json") == 0
    assert time.monotonic() - began < 17
    document = json.loads((here / "a.json").read_text())
    assert document["answer"]["verdict"] in ("use", "keep", "unsure")
    statuses = {m["name"]: m["status"] for m in document["methods"]}
    assert statuses["lmnn"] == "unfinished"
    assert (here / "report.html").stat().st_size < 5_000_000


CORE_ONLY = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "rich", "jinja2", "skops", "pyarrow"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def test_the_core_install_compares_and_prints_plain_text(here):
    script = CORE_ONLY + (
        "from nearfar import compare\n"
        "from sklearn.datasets import load_iris\n"
        "result = compare(*load_iris(return_X_y=True), methods=['lda'], repeats=1, tuning='k',\n"
        "                 context=False, isolate=False)\n"
        "print(result)\n"
        "try: result.table\n"
        "except ImportError as error: print(error)\n"
        "try: result.to_html('a.html')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Best plain distance" in done.stdout
    assert "pandas is not installed; run: pip install 'nearfar[app]'" in done.stdout
    assert "jinja2 is not installed; run: pip install 'nearfar[app]'" in done.stdout


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_live_table(here):
    pytest.importorskip("rich")
    import pty

    main_end, worker_end = pty.openpty()
    command = [sys.executable, "-m", "nearfar", "compare", "iris", *QUICK[:-1]]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50"}
    process = subprocess.Popen(
        command, stdout=worker_end, stderr=worker_end, stdin=worker_end, env=environment
    )
    os.close(worker_end)
    chunks = []
    while True:
        try:
            data = os.read(main_end, 65536)
        except OSError:
            break
        if not data:
            break
        chunks.append(data)
    assert process.wait(timeout=60) == 0
    text = b"".join(chunks).decode()
    assert "\x1b[" in text and "━" in text and "5/5" in text
    assert "Best plain distance" in text and "Report: report.html" in text
