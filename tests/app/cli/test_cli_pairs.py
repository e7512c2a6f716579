"""``nearfar compare``, ``fit`` and ``predict`` with pairs of rows in files."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import nearfar
from nearfar import Pairs
from nearfar.app.cli import main

pytest.importorskip("skops", reason="model files need skops")

QUICK = ["--repeats", "1", "--tuning", "k", "--methods", "rca", "--in-process"]
BY_ID = ["wine.csv", "--pairs", "pairs.csv", "--id", "bottle"]


@pytest.fixture(scope="module")
def made():
    """A messy table whose rows have ids, and pairs of them in the order of a file."""
    frame, y = load_wine(return_X_y=True, as_frame=True)
    frame.insert(0, "bottle", [f"w{i:03d}" for i in range(len(frame))])
    frame["colour"] = np.where(frame["hue"] > 1, "red", "white")
    frame.loc[3, "alcohol"] = None
    pairs = Pairs.from_labels(y, n_similar=300, n_dissimilar=300, random_state=0)
    ends = np.vstack([pairs.similar, pairs.dissimilar])
    order = np.random.default_rng(0).permutation(len(ends))
    return frame, ends[order], np.repeat([1, 0], 300)[order]


@pytest.fixture
def here(tmp_path, monkeypatch, made):
    monkeypatch.chdir(tmp_path)
    frame, ends, same = made
    frame.to_csv("wine.csv", index=False)
    ids = frame["bottle"].to_numpy()
    table = pd.DataFrame({"left": ids[ends[:, 0]], "right": ids[ends[:, 1]], "same": same})
    table.to_csv("pairs.csv", index=False)
    words = np.where(same == 1, "same", "different")
    numbered = pd.DataFrame({"a": ends[:, 0], "b": ends[:, 1], "judged": words})
    numbered.to_csv("numbers.csv", index=False)
    table.iloc[:40].drop(columns="same").to_csv("new.csv", index=False)
    return table


def run(*words):
    return main([str(word) for word in words])


def refused(capsys, *words):
    assert run(*words) == 2
    return capsys.readouterr().err


def read(text):
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.slow
def test_ids_and_row_numbers_say_the_same(here, capsys):
    assert run("compare", *BY_ID, *QUICK, "--json", "a.json") == 0
    words = ["wine.csv", "--pairs", "numbers.csv", "--drop", "bottle"]
    assert run("compare", *words, *QUICK, "--json", "b.json") == 0
    areas = [
        {m["name"]: m["auc"] for m in json.loads(Path(name).read_text())["methods"]}
        for name in ("a.json", "b.json")
    ]
    assert areas[0] == areas[1]
    out = capsys.readouterr().err
    assert "wine.csv: 600 pairs of" in out and "(300 alike, 300 different), 14 features." in out


@pytest.mark.slow
def test_the_commands_after_an_answer_can_be_typed(here, capsys):
    assert run("compare", *BY_ID, *QUICK, "--json", "a.json", "--min-gain", "0") == 0
    document = json.loads(Path("a.json").read_text())
    fit, predict = (shlex.split(step["command"])[1:] for step in document["next"])
    capsys.readouterr()
    assert run(*fit) == 0
    assert "Threshold: pairs up to a distance of" in capsys.readouterr().out
    assert predict[:5] == ["predict", "model.nf", "NEW.csv", "--pairs", "PAIRS.csv"]
    known = {"NEW.csv": "wine.csv", "PAIRS.csv": "new.csv"}
    assert run(*(known.get(word, word) for word in predict)) == 0
    assert len(read(capsys.readouterr().out)) == 40
    assert fit[:4] == ["fit", "wine.csv", "--pairs", "pairs.csv"]
    assert "pairs.csv" not in predict


def test_a_model_says_same_or_different_by_its_threshold(here, capsys):
    assert run("fit", *BY_ID, "--method", "rca", "--scale", "standard", "--save", "m.nf") == 0
    found = capsys.readouterr()
    assert "RCA: " in found.err and "On held-out pairs, " in found.out
    model = nearfar.load("m.nf")
    threshold = model[-1].threshold_
    assert f"up to a distance of {threshold:.4g} are predicted as same" in found.out
    assert run("predict", "m.nf", "wine.csv", "--pairs", "new.csv", "--id", "bottle") == 0
    rows = read(capsys.readouterr().out)
    assert [row["left"] for row in rows] == here["left"][:40].tolist()  # in the file's order
    frame = pd.read_csv("wine.csv").set_index("bottle")
    points = np.asarray(model[:-1].transform(frame))
    mapped = dict(zip(frame.index, model[-1].estimator_.transform(points), strict=True))
    for row in rows:
        distance = np.linalg.norm(mapped[row["left"]] - mapped[row["right"]])
        assert float(row["distance"]) == pytest.approx(distance, rel=1e-4)
        assert row["answer"] == ("same" if distance <= threshold else "different")
        assert float(row["threshold"]) == pytest.approx(threshold, rel=1e-4)
    words = ["predict", "m.nf", "wine.csv", "--pairs", "pairs.csv", "--id", "bottle"]
    assert run(*words, "--out", "out.csv") == 0
    out = capsys.readouterr().out
    answers = pd.read_csv("out.csv")["answer"].to_numpy()
    wrong = int(((answers == "same") != (here["same"] == 1)).sum())
    assert f"{wrong} of 600 predictions differ from the file" in out and "AUC" in out
    assert run("show", "m.nf") == 0
    told = capsys.readouterr().out
    assert "Threshold:" in told and "Classes" not in told
    assert run("transform", "m.nf", "wine.csv", "--out", "t.npy") == 0
    assert np.load("t.npy").shape[0] == 178


def test_unjudged_pairs_get_no_word_of_errors(here, capsys):
    assert run("fit", *BY_ID, "--method", "standardized", "--save", "m.nf") == 0
    words = ["predict", "m.nf", "wine.csv", "--pairs", "new.csv", "--id", "bottle"]
    assert run(*words, "--out", "out.csv") == 0
    assert "differ from the file" not in capsys.readouterr().out


def test_models_and_pairs_must_fit(here, capsys):
    assert run("fit", *BY_ID, "--method", "raw", "--save", "m.nf") == 0
    assert "with --pairs FILE" in refused(capsys, "predict", "m.nf", "wine.csv")
    # Of rows without a first step the raw distance is the vote alone.
    assert run("fit", "wine", "--method", "raw", "-k", "3", "--save", "labels.nf") == 0
    text = refused(capsys, "predict", "labels.nf", "wine", "--pairs", "numbers.csv")
    assert "labels.nf was not fitted to pairs" in text
    text = refused(capsys, "fit", *BY_ID, "--method", "rca", "-k", "3", "--save", "k.nf")
    assert "-k 3: of RCA no neighbors vote" in text


def test_files_of_pairs_that_cannot_be_used_are_refused_by_line(here, capsys):
    def compared(*words):
        return refused(capsys, "compare", "wine.csv", *words, *QUICK)

    text = compared("--pairs", "pairs.csv")
    assert "is not a row number" in text and "wine.csv with --id COL" in text
    text = compared("--pairs", "numbers.csv", "--id", "bottle")
    assert "no row has the ID" in text and "Without --id, rows are numbered from 0" in text
    wrong = here.copy()
    wrong.loc[7, "right"] = "w999"
    wrong.to_csv("wrong.csv", index=False)
    text = compared("--pairs", "wrong.csv", "--id", "bottle")
    assert "wrong.csv, line 9: no row has the ID 'w999'" in text
    far = pd.read_csv("numbers.csv")
    far.loc[2, "b"] = 178
    far.to_csv("far.csv", index=False)
    text = compared("--pairs", "far.csv")
    assert "far.csv, line 4: row 178 does not exist: wine.csv has 178 rows" in text
    here[here["same"] == 1].to_csv("alike.csv", index=False)
    text = compared("--pairs", "alike.csv", "--id", "bottle")
    assert "All 300 pairs are alike" in text
    here.iloc[:5].to_csv("few.csv", index=False)
    assert "are too few for 2 folds" in compared("--pairs", "few.csv", "--id", "bottle")
    assert "The file none.csv does not exist" in compared("--pairs", "none.csv", "--id", "bottle")
    text = compared("--pairs", "pairs.csv", "--id", "bottle", "--groups", "colour")
    assert "--groups is for labels or embeddings" in text
    text = compared("--pairs", "pairs.csv", "--id", "bottle", "--unlabeled")
    assert "leave it out, or --pairs" in text
    text = compared("--pairs", "pairs.csv", "--id", "bottle", "--json", "pairs.csv", "--force")
    assert "is also the pairs file" in text


@pytest.mark.slow
def test_contradictions_are_refused_dropped_or_kept(here, capsys):
    again = here.iloc[:3].assign(same=1 - here["same"][:3])
    pd.concat([here, again]).to_csv("both.csv", index=False)
    words = ["wine.csv", "--pairs", "both.csv", "--id", "bottle", *QUICK]
    text = refused(capsys, "compare", *words)
    assert "both.csv, line 603" in text and "--conflicts drop" in text
    assert run("compare", *words, "--conflicts", "drop") == 0
    assert "597 pairs" in capsys.readouterr().err
    assert run("compare", *words, "--conflicts", "keep", "--methods", "mmc") == 0
    out = capsys.readouterr().err
    assert "603 pairs" in out and "3 pairs are said to be alike and to be different" in out
