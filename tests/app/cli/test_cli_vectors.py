"""Files of embeddings on the command line: a vector in each row, and ids."""

import json

import numpy as np
import pandas as pd
import pytest

import nearfar
from nearfar.app.cli import main

N = 60
RNG = np.random.default_rng(0)
Y = np.resize(["ah", "oh", "uh"], N)
X = (RNG.normal(size=(N, 6)) + 3 * np.eye(6)[np.unique(Y, return_inverse=True)[1]]).astype("f4")
IDS = [f"n{i:03d}" for i in range(N)]
QUICK = ["--repeats", "1", "--tuning", "k", "--in-process", "--no-context", "--methods", "lda"]


def run(*words):
    return main([str(word) for word in words])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"id": IDS, "word": "w", "label": Y, "emb": list(X)})
    frame.to_parquet("a.parquet")
    frame.assign(emb=[str(row.tolist()) for row in X]).to_csv("a.csv", index=False)
    frame.assign(other=list(2 * X)).to_parquet("two.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_compare_takes_a_column_of_vectors(here, capsys, name):
    assert run("compare", name, *QUICK, "--id", "id", "--json", "all.json") == 0
    out = capsys.readouterr().err
    assert (
        "Vectors: column 'emb', 6 numbers per row, the only column of lists; 'word' is not" in out
    )
    document = json.loads((here / "all.json").read_text())
    assert document["data"]["features"][:2] == ["emb 0", "emb 1"]
    shown = document["rows"]
    assert shown["columns"][0] == "id"
    assert all(cells[0] == IDS[int(row)] for row, cells in shown["values"].items())
    assert f"read_table({name!r}, ids='id')" in document["code"]


def test_the_code_of_a_comparison_reads_the_vectors_again(here, capsys):
    assert run("compare", "two.parquet", "--vector", "other", *QUICK, "--json", "all.json") == 0
    code = json.loads((here / "all.json").read_text())["code"]
    space = {}
    exec(code, space)
    assert space["X"].shape == (N, 6)


def test_which_of_two_is_asked(here, capsys):
    assert run("compare", "two.parquet", *QUICK) == 2
    assert "Use --vector to name the column that contains the vectors." in capsys.readouterr().err
    assert run("compare", "a.parquet", *QUICK, "--vector", "emb", "--drop", "emb") == 2
    assert "--vector emb and --drop emb say opposite things" in capsys.readouterr().err


def test_a_dropped_column_of_vectors_leaves_the_other_columns(here, capsys):
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=Y, emb=list(X[:, :2]))
    frame.to_parquet("b.parquet")
    assert run("compare", "b.parquet", *QUICK, "--drop", "emb", "--json", "all.json") == 0
    assert json.loads((here / "all.json").read_text())["data"]["n_features"] == 6


def test_compare_without_labels_and_a_colour_beside_the_vectors(here, capsys):
    words = ["--repeats", "1", "--in-process", "--methods", "pca,lle", "--json", "all.json"]
    assert run("compare", "a.parquet", "--unlabeled", "--color", "label", *words) == 0
    document = json.loads((here / "all.json").read_text())
    assert document["colour"]["name"] == "label" and document["data"]["n_features"] == 6


def test_embed_writes_ids_and_labels(here, capsys):
    words = ["--method", "pca", "--vector", "emb", "--id", "id"]
    assert run("embed", "a.parquet", *words, "--csv", "c.csv") == 0
    table = pd.read_csv("c.csv")
    assert list(table.columns) == ["id", "label", "component_0", "component_1"]
    assert table["id"].tolist() == IDS and table["label"].tolist() == Y.tolist()
    assert "n000" in (here / "embedding.html").read_text()
    assert run("embed", "a.parquet", *words, "--csv", "c.npy") == 2
    assert "the name must end with .csv, .tsv or .parquet" in capsys.readouterr().err
    assert run("embed", "a.parquet", "--method", "pca", "--color", "word", "--force") == 0


def test_without_ids_coordinates_are_as_before(here):
    assert run("embed", "a.parquet", "--method", "pca", "--csv", "c.csv") == 0
    assert list(pd.read_csv("c.csv").columns) == ["component_0", "component_1"]


def test_models_take_vectors_and_write_ids(here, capsys):
    assert run("fit", "a.parquet", "--method", "lda", "--save", "m.nf", "--id", "id") == 0
    assert run("transform", "m.nf", "a.csv", "--out", "t.csv", "--id", "id") == 0
    table = pd.read_csv("t.csv")
    assert list(table.columns[:2]) == ["id", "label"] and table["id"].tolist() == IDS
    capsys.readouterr()
    words = ["a.csv", "--index", "a.parquet", "-k", "2"]
    assert run("neighbors", "m.nf", *words, "--id", "id") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "query,rank,row,distance,query_label,row_label"
    assert lines[1].split(",")[:3] == ["n000", "1", "n000"] and lines[1].endswith("ah,ah")
    assert run("neighbors", "m.nf", *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "query,rank,row,distance" and lines[1].startswith("0,1,0,")


def test_tables_of_columns_have_ids_too(here, capsys):
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=Y, number=np.arange(N) + 100)
    frame.to_csv("rows.csv", index=False)
    assert run("fit", "rows.csv", "--method", "lda", "--save", "m.nf", "--id", "number") == 0
    assert run("transform", "m.nf", "rows.csv", "--out", "t.csv", "--id", "number") == 0
    assert pd.read_csv("t.csv")["number"].tolist() == list(range(100, 100 + N))
    frame.assign(number=7).to_csv("same.csv", index=False)
    capsys.readouterr()
    assert run("transform", "m.nf", "same.csv", "--out", "u.csv", "--id", "number") == 2
    assert "must be unique, but '7' occurs in rows 0 and 1" in capsys.readouterr().err
    assert run("transform", "m.nf", "rows.csv", "--out", "u.csv", "--id", "numbr") == 2
    assert "--id numbr: rows.csv has no such column. Did you mean" in capsys.readouterr().err


def test_sets_have_no_ids(here, capsys):
    nearfar.Sets.from_list([X[:5], X[5:9], X[9:15], X[15:20]], labels=list("abab")).save("s.npz")
    assert run("embed", "s.npz", "--id", "name") == 2
    assert "--id is for rows of a table, and the data are sets" in capsys.readouterr().err


@pytest.mark.slow
def test_frames_with_vectors_in_python():
    frame = pd.DataFrame({"word": "w", "emb": list(X)})
    how = {"methods": "lda", "repeats": 1, "isolate": False, "context": False, "verbose": False}
    result = nearfar.compare(frame, Y, **how)
    plain = nearfar.compare(X, Y, **how)
    np.testing.assert_allclose(result.table["error"], plain.table["error"])
    assert "Vectors: column 'emb', 6 numbers per row" in str(result.document["data"]["messages"])
    assert result.document["data"]["dropped"] == [["word", "beside the vectors in 'emb'"]]
    tested = nearfar.compare(frame[:40], Y[:40], test=(frame[40:], Y[40:]), **how)
    assert tested.document["data"]["n_rows"] == N


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("labelled", [True, False])
def test_float16_is_compared_as_float32(labelled):
    how = {"repeats": 1, "isolate": False, "context": False, "verbose": False}
    how["methods"] = "lda" if labelled else "lle"
    tables = [
        nearfar.compare(X.astype(first).astype(second), Y if labelled else None, **how).table
        for first, second in (("f2", "f2"), ("f2", "f4"))
    ]
    name = "error" if labelled else tables[0].columns[1]
    assert tables[0][name].tolist() == tables[1][name].tolist()


def test_a_test_file_has_its_vectors_too(here, capsys):
    words = ["--test", "a.csv", "--id", "id", *QUICK[2:]]
    assert run("compare", "a.parquet", *words, "--json", "all.json") == 0
    assert json.loads((here / "all.json").read_text())["data"]["n_rows"] == 2 * N


def test_a_folder_of_parquet_files_is_compared(here, capsys):
    (here / "parts").mkdir()
    frame = pd.read_parquet("a.parquet")
    for part in range(3):
        frame[part::3].to_parquet(here / "parts" / f"{part}.parquet")
    assert run("compare", "parts", *QUICK, "--json", "all.json") == 0
    assert json.loads((here / "all.json").read_text())["data"]["n_rows"] == N


def test_near_copies_are_said_before_the_run(here, capsys):
    twice = np.vstack([X, X + 1e-6 * RNG.normal(size=X.shape)])
    np.savez("a.npz", X=twice, y=np.tile(Y, 2))
    assert run("compare", "a.npz", *QUICK) == 0
    said = capsys.readouterr()
    assert "nearly exact copy among their training rows" in said.err
    assert "Read the warnings first" in said.out
