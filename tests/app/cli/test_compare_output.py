"""What ``nearfar compare`` prints, where, and which exit code it returns."""

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from nearfar.app.cli import compare as command
from nearfar.app.cli import main
from nearfar.app.cli.output import open_page
from nearfar.app.compare.schedule import Schedule

QUICK = ["--repeats", "1", "--tuning", "k", "--methods", "lda", "--no-context", "--in-process"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return main([str(word) for word in words])


def test_the_answer_comes_last_above_the_next_commands(here, capsys):
    words = ["compare", "wine", *QUICK, "--json", "a.json", "--save", "m.nf"]
    assert run(*words, "--time-budget", "600") == 0
    out, err = capsys.readouterr()
    document = json.loads((here / "a.json").read_text())
    parts = [
        "Raw Euclidean",
        "\n\nReport: report.html\nNumbers: a.json\nSaved: m.nf",
        f"\n\n{document['answer']['text']}\n",
        "\n\nNext:\n",
    ]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)
    steps = out[places[-1] :].strip().splitlines()[1:]
    assert len(steps) == 2 * 2 and all(line.startswith("    nearfar ") for line in steps[1::2])
    assert "GridSearchCV" not in out and "GridSearchCV" in document["code"]
    assert "Plan: " in err and "Plan: " not in out and document["answer"]["text"] not in err


def test_next_has_at_most_three_commands(here, capsys):
    assert run("compare", "iris", *QUICK, "--time-budget", "600") == 0
    steps = capsys.readouterr().out.partition("\nNext:\n")[2].splitlines()
    assert [line.split()[1] for line in steps[1::2]] == ["fit", "predict", "compare"]


def test_code_is_printed_on_request(here, capsys):
    assert run("compare", "iris", *QUICK, "--code") == 0
    out = capsys.readouterr().out
    assert out.index("GridSearchCV") < out.index("Report: ")


def test_quiet_prints_the_answer_alone_and_warnings(here, capsys):
    words = [*QUICK, "-q", "--json", "a.json", "--save", "m.nf"]
    assert run("compare", "wine", *words) == 0
    out, err = capsys.readouterr()
    answer = json.loads((here / "a.json").read_text())["answer"]["text"]
    assert (out, err) == (f"{answer}\n", "")
    assert (here / "report.html").exists() and (here / "m.nf").exists()
    # Iris has a copied row.
    assert run("compare", "iris", *QUICK, "-q") == 0
    err = capsys.readouterr().err
    assert err.startswith("Warning: ") and err.count("\n") == 1


def test_quiet_warns_of_failed_methods_and_unfinished_runs(here, capsys, monkeypatch):
    import nearfar

    def fails(*_, **__):
        raise ValueError("enough")

    monkeypatch.setattr(nearfar.LDA, "fit", fails)
    assert run("compare", "wine", *QUICK, "--quiet") == 0
    assert "Warning: LDA failed: ValueError: enough" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(here)
    interrupt_after(monkeypatch, 1)
    assert run("compare", "wine", *QUICK, "--quiet") == 130
    assert "Warning: the comparison is not finished. To resume: nearfar " in capsys.readouterr().err


def test_json_on_standard_output_is_alone_there(here, capsys):
    assert run("compare", "wine", *QUICK, "--json", "-") == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["data"]["n_rows"] == 178
    assert "Report: report.html" in err and document["answer"]["text"] in err
    assert not (here / "-").exists()
    assert run("compare", "wine", *QUICK, "--json", "-", "--quiet") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "complete" and err == ""


# ---------------------------------------------------------------------- exit codes


def interrupt_after(monkeypatch, n):
    record, count = Schedule._record, []

    def stop(self, *rest):
        record(self, *rest)
        count.append(1)
        if len(count) == n:
            raise KeyboardInterrupt

    monkeypatch.setattr(Schedule, "_record", stop)


@pytest.mark.parametrize(("verdict", "code"), [("use", 0), ("keep", 10), ("inconclusive", 11)])
def test_the_exit_code_is_the_answer(here, capsys, monkeypatch, verdict, code):
    write = command._print_summary

    def with_verdict(options, result):
        write(options, result)
        result.document["answer"]["verdict"] = verdict

    monkeypatch.setattr(command, "_print_summary", with_verdict)
    assert run("compare", "iris", *QUICK, "--exit-code") == code
    assert run("compare", "iris", *QUICK) == 0


def test_the_exit_code_of_an_unfinished_comparison(here, capsys, monkeypatch):
    interrupt_after(monkeypatch, 1)
    assert run("compare", "iris", *QUICK, "--exit-code") == 130
    monkeypatch.undo()
    monkeypatch.chdir(here)
    # The time is up after some folds.
    record = Schedule._record

    def late(self, *rest):
        record(self, *rest)
        self.budget = 0.001

    monkeypatch.setattr(Schedule, "_record", late)
    words = ["compare", "iris", *QUICK, "--time-budget", "600"]
    assert run(*words, "--exit-code") == 12
    assert "To resume: nearfar compare iris" in capsys.readouterr().out
    assert run(*words) == 0
    assert run("compare", "nowhere.csv", "--exit-code") == 2


# ---------------------------------------------------------------------- the browser


def test_open_needs_a_display_and_never_fails(here, monkeypatch):
    opened = []

    def fail(address):
        opened.append(address)
        raise OSError("no browser")

    monkeypatch.setattr("webbrowser.open", fail)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert run("compare", "iris", *QUICK, "--open") == 0
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert run("compare", "iris", *QUICK, "--open", "-o", "a b.html") == 0
    assert opened == [(here / "a b.html").as_uri()]
    monkeypatch.delenv("DISPLAY")
    monkeypatch.setattr(sys, "platform", "darwin")
    open_page(here / "x.html")
    assert len(opened) == 2
    assert run("compare", "iris", *QUICK) == 0 and len(opened) == 2


# ---------------------------------------------------------------------- --dry-run


@pytest.fixture
def table(here):
    frame = load_wine(as_frame=True).frame.rename(columns={"target": "kind"})
    frame.insert(0, "bottle", np.arange(178) + 1000)
    frame["colour"] = np.where(frame["hue"] > 1, "red", "white")
    frame["batch"] = np.arange(178) // 6
    frame["leak"] = frame["kind"] * 7.5
    frame["empty"] = 1
    frame.to_csv("wine.csv", index=False)
    return frame


def test_a_dry_run_shows_the_columns_and_the_methods_and_runs_nothing(
    table, here, capsys, monkeypatch
):
    def fail(*_, **__):
        raise AssertionError("a dry run ran")

    monkeypatch.setattr(Schedule, "run", fail)
    before = sorted(here.iterdir())
    words = ["compare", "wine.csv", "--target", "kind", "--id", "bottle", "--groups", "batch"]
    assert run(*words, "--dry-run", "--out", "a.html", "--json", "a.json") == 0
    out, err = capsys.readouterr()
    assert err == "" and sorted(here.iterdir()) == before
    uses = dict(line.split(None, 1) for line in block(out, "Columns:"))
    wanted = {"kind": "target", "bottle": "row ID", "batch": "groups", "colour": "categorical"}
    assert uses | wanted | {"hue": "numeric"} == uses
    assert uses["empty"].startswith("dropped: ") and len(uses) == 19
    assert "wine.csv: 178 rows, 15 features, 3 classes" in out
    assert "Warning: " in out and "'leak'" in out
    methods = block(out, "Methods:")
    assert any(line.split() == ["LDA", "up", "to", "4", "settings"] for line in methods)
    assert any(line.split()[-2:] == ["1", "setting"] for line in methods)
    assert "A pilot run decides the number of repeats and the tuning" in out
    assert "ends within 120 s" in out and "Use --repeats and --tuning" in out


def test_a_dry_run_shows_the_protocol_of_the_run(table, here, capsys):
    words = ["compare", "wine.csv", "--target", "kind", *QUICK]
    assert run(*words, "--dry-run") == 0
    out = capsys.readouterr().out
    (plan,) = [line for line in out.splitlines() if line.startswith("Plan: ")]
    assert "pilot" not in out and re.search(r"LDA +1 setting\n", out)
    assert run(*words) == 0
    err = capsys.readouterr().err
    assert plan in err.splitlines()
    # All that is said of the data is the same.
    for line in err.partition("Plan: ")[0].splitlines():
        assert line in out or line.startswith("Left out: column ")


def test_a_dry_run_names_only_what_is_open(here, capsys):
    words = ["compare", "iris", "--dry-run", "--time-budget", "9"]
    assert run(*words, "--repeats", "2") == 0
    out = capsys.readouterr().out
    assert "Protocol: 2 × 5-fold" in out and "decides the tuning, so" in out
    assert run(*words, "--tuning", "k") == 0
    out = capsys.readouterr().out
    assert "Protocol: 5-fold" in out and "decides the number of repeats, so" in out
    assert run(*words, "--repeats", "2", "--tuning", "k") == 0
    out = capsys.readouterr().out
    assert "pilot" not in out and "It stops after 9 s." in out
    rng = np.random.default_rng(0)
    np.savez("big.npz", X=rng.normal(size=(5000, 40)), y=rng.integers(0, 2, 5000))
    assert run("compare", "big.npz", *words[2:], "--repeats", "1", "--tuning", "k") == 0
    out = capsys.readouterr().out
    assert "decides the number of rows, so" in out and "Use --sample to fix" in out
    assert "and 10 more  numeric" in out


def test_a_dry_run_refuses_what_the_run_refuses(table, here, capsys):
    for words in (["--target", "knd"], ["--target", "kind", "--methods", "lmn"]):
        assert run("compare", "wine.csv", *words, "--dry-run") == 2
        assert "Did you mean" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--unlabeled"], ["--set-id", "batch", "--target", "site"]])
def test_dry_runs_of_other_data(here, capsys, words):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(240, 3)), columns=list("abc"))
    frame["batch"] = np.arange(240) // 6
    frame["site"] = np.array(["x", "y"])[np.arange(240) // 6 % 2]
    frame.to_csv("rows.csv", index=False)
    assert run("compare", "rows.csv", *words, "--dry-run") == 0
    uses = dict(line.split(None, 1) for line in block(capsys.readouterr().out, "Columns:"))
    assert uses["a"] == "numeric" and ("--set-id" not in words or uses["batch"] == "set ID")


def block(text, title):
    return text.partition(f"\n{title}\n")[2].partition("\n\n")[0].splitlines()
