"""The command line, as a user runs it."""

import argparse
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import nearfar
from nearfar.app import cli
from nearfar.app.cli import main
from nearfar.app.compare.pool import ProcessPool
from nearfar.app.compare.schedule import Schedule

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


def parsed(*words):
    """The options of a command, as it gets them."""
    options = cli._parser().parse_args(words)
    options.argv = ["nearfar", *words]
    return options


def test_compare_prints_the_answer_and_writes_report_and_numbers(table, here, capsys):
    assert run("compare", "wine.csv", "--target", "kind", *QUICK, "--json", "all.json") == 0
    out, err = capsys.readouterr()
    for part in (
        "wine.csv: 178 rows, 14 features, 3 classes",
        "Left out: column 'id'",
        "Plan: 1 × 5-fold, stratified, shuffled, seed 0",
    ):
        assert part in err and part not in out
    for part in ("Standardized Euclidean", "Report: report.html", "Numbers: all.json"):
        assert part in out
    document = json.loads((here / "all.json").read_text())
    assert document["command"].startswith("nearfar compare wine.csv")
    assert document["versions"]["nearfar"] == nearfar.__version__
    assert sorted(row for fold in document["folds"] for row in fold["test"]) == list(range(178))
    assert document["answer"]["text"] in out
    sentence = document["answer"]["text"].split("(")[0].partition(": ")[2]
    page = (here / "report.html").read_text().replace("\xa0", " ").replace("&nbsp;", " ")
    assert sentence in page


def test_a_terminal_without_a_minus_sign_loses_nothing(here, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert run("compare", "iris", *QUICK, "--out", "a.html") == 0
    assert (here / "a.html").exists() and b"?" in written.getvalue()


def test_without_a_reader_the_comparison_goes_on_in_silence(here, monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert run("compare", "iris", *QUICK, "--out", "b.html") == 0
    err = capsys.readouterr().err
    assert err.startswith("iris: 150 rows") and "nearfar" not in err and "Traceback" not in err
    assert (here / "b.html").exists() and not (here / "b.journal").exists()


def test_a_reader_who_goes_after_a_line_is_not_missed(here):
    command = [sys.executable, "-m", "nearfar", "compare", "iris", *QUICK, "--out", "b.html"]
    reader, writer = os.pipe()
    process = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.readline()
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0 and b"Broken" not in err and b"Traceback" not in err
    assert (here / "b.html").exists() and not (here / "b.journal").exists()


def test_a_short_output_without_a_reader_ends_in_silence(fresh_processes):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "nearfar", "methods"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_is_overwritten_without_force(here, capsys):
    (here / "mine.html").write_text("precious")
    (here / "mine.json").write_text("precious")
    assert run("compare", "iris", *QUICK, "--out", "mine.html") == 2
    assert run("compare", "iris", *QUICK, "--json", "mine.json") == 2
    assert (here / "mine.html").read_text() == (here / "mine.json").read_text() == "precious"
    assert "mine.html exists. Choose another --out, or add --force" in capsys.readouterr().err
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
        (["compare", "iris", "--methods", "lmn"], "Did you mean lmnn, "),
        (["compare", "iris", "--out", "report.txt"], "its name must end with .html"),
        (["compare", "iris", "--out", "no/such/report.html"], "does not exist"),
        (["compare", "iris", "--json", "no/such/all.json"], "does not exist"),
        (["compare", "iris", "--resume"], "nothing to resume"),
        (["compare", "iris", "--resume", "--out", "a.html"], "nothing to resume"),
        (["compare", "iris", "--scoring", "nonsense"], "is not a scikit-learn scorer"),
        (["compare", "iris", "--min-gain", "7"], "min_gain"),
        (["compare", "wine.csv"], "--target"),
        (["compare", "wine.csv", "--target", "knd"], "kind"),
        (["compare", "wine.csv", "--target", "alcohol"], "alcohol"),
        (["compare", "iris", "--out", "folder.html"], "is a folder"),
        (["compare", "iris", "--json", "folder.html"], "is a folder"),
        (["compare", "iris", "--json", "a.html", "--out", "a.html"], "is also the report"),
        (["compare", "iris", "--json", "./report.html"], "is also the report"),
        (["compare", "iris", "--json", "a.journal", "--out", "a.html"], "is also the journal"),
        (["compare", "wine.csv", "--json", "wine.csv", "--force"], "is also the data"),
        (["fit", "iris", "--method", "lmn", "--save", "m.nf"], "Did you mean lmnn, "),
        (["fit", "iris", "--method", "", "--save", "m.nf"], "name one method"),
        (["fit", "iris", "--method", "lda,rca", "--save", "m.nf"], "name one method"),
        (
            ["fit", "nowhere.csv", "--method", "lda", "--save", "no/m.nf"],
            "the folder no does not exist",
        ),
        (["fit", "nowhere.csv", "--method", "lda", "--save", "folder.html"], "is a folder"),
        (["transform", "m.nf", "wine.csv", "--out", "a.xlsx"], ".parquet, .csv, .tsv or"),
        (["neighbors", "m.nf", "a", "--out", "a.npy"], ".tsv or .parquet"),
        (["transform", "nowhere.nf", "wine.csv", "--out", "a.csv"], "nowhere.nf"),
        (["transform", "wine.csv", "wine.csv", "--out", "a.csv"], "wine.csv"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(table, here, words, message, capsys):
    (here / "folder.html").mkdir()
    before = sorted(here.iterdir())
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"nearfar {words[0]}: error: ") and message in err
    assert "Traceback" not in err and len(err.strip().splitlines()) <= 3
    assert sorted(here.iterdir()) == before  # nothing is left, no claim either


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "nowhere.csv", "--out", "locked/a.html"],
        ["compare", "nowhere.csv", "--json", "locked/a.json"],
        ["fit", "nowhere.csv", "--method", "lda", "--save", "locked/m.nf"],
        ["compare", "nowhere.csv"],
    ],
)
def test_where_nothing_can_be_written_is_found_before_the_work(here, words, capsys, monkeypatch):
    import builtins

    real = builtins.open

    def locked(path, mode="r", *rest, **options):
        if ("locked" in str(path) or len(words) == 2) and set(mode) & set("awx"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, mode, *rest, **options)

    (here / "locked").mkdir()
    monkeypatch.setattr(builtins, "open", locked)
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert "cannot be written (Permission denied). Choose a file" in err


def test_two_runs_in_one_folder_take_different_names(here, capsys, monkeypatch):
    record, runs = Schedule._record, []

    def meanwhile(self, *rest):
        record(self, *rest)
        if not runs:  # the first is in the middle of its work
            runs.append(None)
            runs[0] = run("compare", "iris", *QUICK)
            assert {path.name for path in here.iterdir()} == {"report.journal", "report-2.html"}

    monkeypatch.setattr(Schedule, "_record", meanwhile)
    assert run("compare", "iris", *QUICK) == 0 and runs == [0]
    said = capsys.readouterr().out
    assert "Report: report.html" in said and "Report: report-2.html" in said
    assert {path.name for path in here.iterdir()} == {"report.html", "report-2.html"}


def test_a_name_is_claimed_when_it_is_chosen(here, monkeypatch):
    from nearfar.app.cli import compare as cli
    from nearfar.app.compare.journal import unclaim

    def options(**more):
        rest = {
            "out": None,
            "json": None,
            "save": None,
            "resume": False,
            "force": False,
            "data": "iris",
        }
        return argparse.Namespace(**rest | more)

    assert cli.places(options())[0] == Path("report.html")
    assert cli.places(options())[0] == Path("report-2.html")
    # A run that ends just now: its journal goes when its report has come.
    (here / "report.journal").unlink()
    (here / "report.html").touch()
    assert cli.places(options())[0] == Path("report-3.html")
    assert not (here / "report.journal").exists()
    with pytest.raises(ValueError, match="unfinished or still running"):
        cli.places(options(out=Path("report-3.html")))
    for number in ("", "-2", "-3"):
        unclaim(here / f"report{number}.journal")
    (here / "report-3.journal").write_text("what was found before")
    assert cli.places(options(out=Path("report-3.html"), force=True))[0].stem == "report-3"
    # Held, and not yet thrown away.
    assert (here / "report-3.journal").read_text() == "what was found before"
    with pytest.raises(ValueError, match="still running"):
        cli.places(options(out=Path("report-3.html"), force=True))
    unclaim(here / "report-3.journal")


def test_another_tuning_is_not_mixed_into_what_is_there(here, capsys, monkeypatch):
    record = Schedule._record

    def stop(self, run, fold, value):
        record(self, run, fold, value)
        raise KeyboardInterrupt

    monkeypatch.setattr(Schedule, "_record", stop)
    assert run("compare", "iris", *QUICK) == 130
    monkeypatch.undo()
    monkeypatch.chdir(here)
    capsys.readouterr()
    others = [word if word != "k" else "full" for word in QUICK]
    assert run("compare", "iris", *others, "--resume") == 2
    assert "tuning 'k'; they cannot go on with 'full'" in capsys.readouterr().err
    assert (here / "report.journal").exists()
    assert run("compare", "iris", *QUICK, "--resume") == 0


def test_going_on_is_advised_with_time_enough(here, capsys, monkeypatch):
    options = parsed("compare", "a b", "--time-budget=2")
    from nearfar.app.cli.compare import resume_command

    out = Path("report.html")
    same = "nearfar compare 'a b' --time-budget=2 --out report.html --resume"
    assert resume_command(options, out, None) == same
    more = "nearfar compare 'a b' --out report.html --time-budget 60 --resume"
    assert resume_command(options, out, 2.0) == more
    options = parsed("compare", "x", "--time-budget", "100", "--force")
    assert "x --out report.html --time-budget 400 --resume" in resume_command(options, out, 100)
    start = ProcessPool.start

    def late(self, method):
        time.sleep(1.1)  # all the time there is, before the first fold
        start(self, method)

    monkeypatch.setattr(ProcessPool, "start", late)
    assert run("compare", "iris", "--methods", "lda", "--time-budget", "1") == 0
    assert "--time-budget 60 --resume" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["compare"], ["compare", "iris", "--repeats", "0"], ["dance"], ["--dance"]]
)
def test_wrong_usage_is_explained(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: nearfar" in capsys.readouterr().err


def test_fit_transform_and_neighbors_make_a_chain(table, here, capsys):
    assert run("fit", "wine.csv", "--target", "kind", "--method", "lda", "--save", "m.nf") == 0
    assert "Left out: column 'id'" in capsys.readouterr().err
    assert run("fit", "wine.csv", "--target", "kind", "--method", "lda", "--save", "m.nf") == 2
    new = table.drop(columns=["kind"]).iloc[::-1]
    new.to_csv("new.csv", index=False)
    assert run("transform", "m.nf", "new.csv", "--out", "out.parquet") == 0
    mapped = pd.read_parquet("out.parquet")
    assert mapped.shape == (178, 2)
    for name in ("out.csv", "out.tsv", "out.npy"):
        assert run("transform", "m.nf", "new.csv", "--out", name) == 0
    for name, separator in (("out.csv", ","), ("out.tsv", "\t")):
        read = pd.read_csv(name, sep=separator, float_precision="round_trip")
        np.testing.assert_array_equal(read, mapped)
    np.testing.assert_array_equal(np.load("out.npy"), mapped.to_numpy())
    capsys.readouterr()
    assert run("neighbors", "m.nf", "new.csv", "--index", "wine.csv", "-k", "3") == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 178 * 3
    # The queries are the index in reverse: each is its own nearest, at distance zero.
    first = [row for row in rows if row["rank"] == "1"]
    assert [int(row["row"]) for row in first] == list(range(177, -1, -1))
    assert max(float(row["distance"]) for row in first) < 1e-12
    found = pd.DataFrame(rows).astype(float)
    words = ["neighbors", "m.nf", "new.csv", "--index", "wine.csv", "-k", "3"]
    for name in ("n.parquet", "n.csv", "n.tsv"):
        assert run(*words, "--out", name) == 0
    for read in (pd.read_parquet("n.parquet"), pd.read_csv("n.csv"), pd.read_table("n.tsv")):
        pd.testing.assert_frame_equal(read.astype(float), found, rtol=1e-5)
    model = nearfar.load("m.nf")
    distances, _ = model[-1].kneighbors(mapped.to_numpy()[:1])
    assert distances[0, 0] < 1e-12
    assert model.score(table.drop(columns=["kind"]), table["kind"]) > 0.95


def test_a_table_that_lacks_a_column_is_refused_by_name(table, here, capsys):
    run("fit", "wine.csv", "--target", "kind", "--method", "rca", "--save", "m.nf")
    table.drop(columns=["hue", "alcohol"]).to_csv("less.csv", index=False)
    capsys.readouterr()
    assert run("transform", "m.nf", "less.csv", "--out", "out.npy") == 2
    err = capsys.readouterr().err
    assert "less.csv lacks 'alcohol', 'hue', which the model was fitted on" in err
    assert run("neighbors", "m.nf", "wine.csv", "--index", "wine.csv", "-k", "500") == 2
    assert "must be at most 178, the number of rows" in capsys.readouterr().err


def test_arrays_go_through_the_chain_too(here, capsys):
    X, y = load_wine(return_X_y=True)
    np.savez("wine.npz", X=X, y=y)
    # The British spelling was the name in earlier versions.
    assert run("fit", "wine.npz", "--method", "standardised", "--save", "m.nf") == 0
    assert "Standardized Euclidean" in capsys.readouterr().err
    np.save("new.npy", X[:5])
    assert run("transform", "m.nf", "new.npy", "--out", "out.npy") == 0
    expected = (X[:5] - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=1e-10)
    np.save("wrong.npy", X[:5, :3])
    assert run("transform", "m.nf", "wrong.npy", "--out", "out2.npy") == 2
    assert "has 3 columns; the model was fitted on 13" in capsys.readouterr().err


def test_a_name_is_the_same_however_it_is_written_and_an_unknown_one_has_three_near(capsys):
    from nearfar.app.compare.embeddings import embedding_methods
    from nearfar.app.compare.methods import learners
    from nearfar.app.embed.methods import find_embedder

    for name in ("Laplacian-Eigenmaps", "laplacian_eigenmaps", "LaplacianEigenmaps"):
        assert [one.name for one in learners(name)] == ["laplacian-eigenmaps"]
        assert embedding_methods(name, n_train=50)[-1].name == "laplacian-eigenmaps"
        assert find_embedder(name) is nearfar.LaplacianEigenmaps
    assert learners("laplacian eigenmaps")[0].label == "LaplacianEigenmaps"
    for ask in (learners, find_embedder):
        with pytest.raises(ValueError, match="Did you mean") as told:
            ask("laplacian")
        said = str(told.value)
        assert "laplacian-eigenmaps" in said and len(said) < 130 and said.count(",") <= 2


def test_a_failed_method_and_a_narrow_terminal(capsys, monkeypatch):
    from nearfar import LDA, compare
    from nearfar.app.compare.comparison import NARROW

    X, y = load_wine(return_X_y=True)
    methods = {
        "one with quite a long name of its own": LDA(),
        "late": FailsLate(),
        "never": Never(),
    }
    FailsLate.fits = 0
    options = {"repeats": 2, "tuning": "k", "isolate": False, "verbose": False}
    result = compare(X, y, methods=methods, **options)
    text = str(result)
    head, *blocks, _, answer = text.split("\n\n")[2:]
    assert re.split(r"(?<=\)) +|  +|(?<=p) ", head) == [
        "method",
        "error (95% CI)",
        "gain (95% CI)",
        "adj. p",
        "folds",
    ]
    table = [line for block in blocks[:3] for line in block.splitlines()]
    n_rows = 1 + 4 + 1 + 3  # the baseline, standard distances, the learner that works, context
    assert len(table) == 3 + n_rows and all(len(line) <= NARROW for line in table)
    assert [block.splitlines()[0] for block in blocks[:3]] == [
        "Learned distances",
        "Standard distances",
        "Other classifiers (for context)",
    ]
    assert "one with quite a long .." in text or "one with quite a l.." in text
    assert answer == result.answer
    assert "late failed after 3 of 10 folds: ValueError: enough" in text
    assert "Never failed: ValueError: never" in text
    assert "late" not in "".join(line[:25] for line in table)
    assert "Fit time: " in text and "late failed after 3" in result._repr_html_()
    pytest.importorskip("rich")
    from nearfar.app.live import show, show_answer

    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        show(result)
        shown = capsys.readouterr().out
        lines = shown.splitlines()
        assert max(map(len, lines)) <= width and ("fit s" in shown) == (width > 80)
        assert "late failed after 3 of 10 folds" in shown
        # Each method on one line, each number with its interval.
        (row,) = [line for line in lines if line.startswith("Raw Euclidean")]
        assert row.count("(") == 2 and "10/10" in row
        assert result.answer not in " ".join(shown.split())
    show_answer(result)
    assert " ".join(capsys.readouterr().out.split()) == result.answer


class FailsLate(nearfar.LDA):
    fits = 0

    def fit(self, X, y=None):
        FailsLate.fits += 1
        if FailsLate.fits > 6:  # two fits a fold
            raise ValueError("enough")
        return super().fit(X, y)


class Never(nearfar.LDA):
    def fit(self, X, y=None):
        raise ValueError("never")


def test_a_test_file_is_used(table, here, capsys):
    table.iloc[::2].to_csv("train.csv", index=False)
    table.iloc[1::2].to_csv("test.csv", index=False)
    words = ["compare", "train.csv", "--test", "test.csv", "--target", "kind", *QUICK]
    assert run(*words, "--json", "a.json") == 0
    document = json.loads((here / "a.json").read_text())
    assert document["data"]["test"] == {"name": "test.csv", "n_rows": 89}
    assert document["folds"][0]["n_train"] == 89


def test_what_is_wrong_in_a_test_file_names_it(table, here, capsys):
    table["batch"] = np.arange(178.0) // 6
    table.iloc[::2].to_csv("train.csv", index=False)
    table.loc[5, "batch"] = None
    table.iloc[1::2].to_csv("test.csv", index=False)
    words = ["compare", "train.csv", "--test", "test.csv", "--target", "kind", *QUICK]
    assert run(*words, "--groups", "batch") == 2
    assert "--test: test.csv: the groups 'batch' are missing in 1 row (first: row 2" in (
        capsys.readouterr().err
    )
    table["kind"] = table["kind"].astype(object)
    table.loc[7, "kind"] = None
    table.drop(columns="batch").iloc[1::2].to_csv("test.csv", index=False)
    table.drop(columns="batch").iloc[::2].to_csv("train.csv", index=False)
    assert run(*words) == 0
    assert "test.csv: Dropped 1 row without a label (row 3)" in capsys.readouterr().err


def test_errors_are_reported_by_a_column(here, capsys):
    random = np.random.default_rng(0)
    y = np.arange(90) % 3
    frame = pd.DataFrame({"a": y + random.normal(size=90), "b": random.normal(size=90)})
    frame = frame.assign(site=np.repeat(["x", "y"], 45), label=np.array(list("pqr"))[y])
    frame.to_csv("sites.csv", index=False)
    words = ["compare", "sites.csv", "--report-by", "site", *QUICK]
    assert run(*words, "--out", "g.html", "--json", "g.json") == 0
    document = json.loads(Path("g.json").read_text())
    assert document["data"]["features"] == ["a", "b"]
    found = document["by_group"]
    assert found["name"] == "site" and {g["group"] for g in found["groups"]} == {"x", "y"}
    assert "Errors by site" in Path("g.html").read_text("utf-8")
    # The lines that repeat it leave the column out, too.
    assert "drop=['site']" in document["code"]
    np.savez("sites.npz", X=frame[["a", "b"]], y=y, site=frame["site"].to_numpy(str))
    words[1] = "sites.npz"
    assert run(*words, "--out", "n.html", "--json", "n.json") == 0
    again = json.loads(Path("n.json").read_text())["by_group"]
    assert {g["group"]: g["n"] for g in again["groups"]} == {"x": 45, "y": 45}
    capsys.readouterr()
    words[3] = "sit"
    assert run(*words, "--out", "w.html") != 0
    assert "no such column. Did you mean 'site'?" in capsys.readouterr().err


def test_groups_and_time_are_columns(table, here, capsys):
    table["batch"] = np.arange(178) // 6
    table["when"] = pd.date_range("2020-01-01", periods=178).strftime("%Y-%m-%d")
    table = table.sample(frac=1, random_state=0)
    table.to_csv("g.csv", index=False)
    assert run("compare", "g.csv", "--target", "kind", "--groups", "batch", *QUICK) == 0
    out = capsys.readouterr().err
    assert "Groups: 30; none is on both sides of any of the 5 folds (checked)." in out
    assert run("compare", "g.csv", "--target", "kind", "--time", "when", *QUICK) in (0, 2)
    err = capsys.readouterr().err
    # Wine comes sorted by class: in time, the first fold may know a single one.
    assert "folds in time" in err or "single class" in err


# The command, which sends itself a signal when so many folds are done: no clock decides.
SIGNALLED = """
import os, signal, sys
from nearfar.app.cli import main
from nearfar.app.compare.schedule import Schedule
from nearfar.words import format_method_name

number, count, record = getattr(signal, sys.argv[1]), int(sys.argv[2]), Schedule._record
def then(self, *rest):
    record(self, *rest)
    if sum(len(run.results) for run in self.runs.values()) == count:
        os.kill(os.getpid(), number)
Schedule._record = then
sys.exit(main(sys.argv[3:]))
"""


def test_ctrl_c_writes_what_there_is_and_resume_goes_on(here, default_signals):
    command = [sys.executable, "-c", SIGNALLED, "SIGINT", "12", "compare", "iris"]
    command += ["--methods", "lda", "--repeats", "2", "--tuning", "k", "--no-context"]
    done = subprocess.run([*command, "--out", "d.html"], capture_output=True, text=True)
    out, journal = done.stdout + done.stderr, here / "d.journal"
    assert done.returncode == 130, out
    assert "Report: d.html" in out and "--resume" in out and "Traceback" not in out
    partial = (here / "d.html").read_text()
    n_before = len(journal.read_text().splitlines()) - 1
    words = re.search(r"To resume: nearfar (.*)", out)[1].split()
    assert run(*words, "--json", "d.json", "--in-process") == 0
    document = json.loads((here / "d.json").read_text())
    assert document["status"] == "complete" and 12 <= n_before < 50
    assert all(m["folds_done"] == 10 for m in document["methods"])
    assert not journal.exists() and (here / "d.html").read_text() != partial


def test_a_request_to_end_writes_what_there_is(here, default_signals):
    temporary = here / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-c", SIGNALLED, "SIGTERM", "2", "compare", "iris"]
    command += ["--methods", "lmnn", "--tuning", "full", "--no-context", "--out", "d.html"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment)
    assert done.returncode == 130
    assert (here / "d.html").exists() and (here / "d.journal").exists()
    assert not list(temporary.iterdir())


SLOW_PAGE = """
import os, signal, sys, time
from nearfar.app import report
from nearfar.app.cli import main
write = report.write

def slow(*args, **kwargs):
    for number in (signal.SIGINT, signal.SIGTERM):  # while the report is written
        os.kill(os.getpid(), number)
    return write(*args, **kwargs)

report.write = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "first",
    # Both are sent, again and again; which is the first hardly matters.
    ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)],
)
def test_who_asks_again_to_end_gets_the_report_all_the_same(here, default_signals, first):
    command = [sys.executable, "-c", SLOW_PAGE, "compare", "digits", "--methods", "lmnn"]
    command += ["--repeats", "4", "--tuning", "full", "--no-context", "--out", "d.html"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    journal, deadline = here / "d.journal", time.monotonic() + 100
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if journal.exists() and len(journal.read_text().splitlines()) > 2:
            break
    process.send_signal(getattr(signal, first))
    while process.poll() is None and not (here / "d.html").exists():
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 130 and "Traceback" not in out, out
    assert "Report: d.html" in out and "--resume" in out
    assert (here / "d.html").exists() and journal.exists()


def test_an_unfinished_comparison_is_not_thrown_away(here, capsys):
    (here / "a.journal").write_text("{}")
    assert run("compare", "iris", *QUICK, "--out", "a.html") == 2
    assert "Add --resume to continue it, or --force to start again" in capsys.readouterr().err


def test_a_budget_of_seconds_is_kept(here, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 5000)
    np.savez("big.npz", X=rng.normal(size=(5000, 30)) + y[:, None] * 0.3, y=y)
    began = time.monotonic()
    assert run("compare", "big.npz", "--time-budget", "5", "--jobs", "1", "--json", "a.json") == 0
    # Many times the budget: only what does not look at the clock takes longer.
    assert time.monotonic() - began < 300
    document = json.loads((here / "a.json").read_text())
    assert document["answer"]["verdict"] in ("use", "keep", "inconclusive")
    statuses = {m["name"]: m["status"] for m in document["methods"]}
    assert statuses["lmnn"] in ("unfinished", "left out", "done")
    assert (here / "report.html").stat().st_size < 5_000_000


CORE_ONLY = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "rich", "jinja2", "skops", "pyarrow"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def test_the_core_install_compares_and_prints_plain_text(here, fresh_processes):
    script = CORE_ONLY + (
        "from nearfar import compare\n"
        "from sklearn.datasets import load_iris\n"
        "result = compare(*load_iris(return_X_y=True), methods=['lda'], repeats=1, tuning='k',\n"
        "                 cv=2, context=False, isolate=False)\n"
        "print(result)\n"
        "try: result.table\n"
        "except ImportError as error: print(error)\n"
        "try: result.to_html('a.html')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "Baseline, first setting" in done.stdout
    assert "pandas is not installed; run: pip install 'nearfar[app]'" in done.stdout
    assert "jinja2 is not installed; run: pip install 'nearfar[app]'" in done.stdout


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_live_table(here, monkeypatch):
    pytest.importorskip("rich")
    import pty

    main_end, worker_end = pty.openpty()
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50"}.items():
        monkeypatch.setenv(name, value)
    chunks = []

    def read():
        with suppress(OSError):  # the other end is closed
            while data := os.read(main_end, 65536):
                chunks.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with open(worker_end, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)
        assert run("compare", "iris", *QUICK[:-1]) == 0
    reader.join(60)
    os.close(main_end)
    text = b"".join(chunks).decode()
    assert "\x1b[" in text and "━" in text and "5/5" in text
    assert "Baseline, first setting" in text and "Report: report.html" in text
