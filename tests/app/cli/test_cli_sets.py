"""Sets of vectors on the command line: compare, embed, transform and neighbors."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nearfar import Sets
from nearfar.app.cli import main
from nearfar.datasets import make_sets, read_sets
from nearfar.distributions import dissimilarity, held_pairs

QUICK = ["--repeats", "1", "--tuning", "k", "--in-process", "--no-context"]
FEW = [*QUICK, "--methods", "riemann"]
LONG = ["long.csv", "--set-id", "utterance", "--target", "kind"]


def run(*words):
    return main([str(word) for word in words])


def frame_of(sets, n_speakers=9):
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    frame = pd.DataFrame(sets.X, columns=[f"f{i}" for i in range(sets.n_features)])
    frame["utterance"] = [f"u{i:02d}" for i in owner]
    frame["kind"] = np.array(["ah", "eh", "oh"])[sets.labels[owner]]
    frame["speaker"] = [f"s{i % n_speakers}" for i in owner]
    return frame


def said_by(page):
    """The text of a page, and of the attributes that are read aloud, without its command."""
    body = re.sub(r"<(style|script).*?</\1>", "", page[page.index("<body") :], flags=re.DOTALL)
    spoken = re.findall(r'(?:aria-label|alt|title)="(.*?)"', body)
    return "\n".join([re.sub(r"<[^>]*>", "", body), *spoken])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sets():
    return make_sets(12, 3, 3, sizes=(8, 20), means=0.6, random_state=0)


@pytest.fixture
def long(here, sets):
    # Sets do not follow one another.
    frame = frame_of(sets).sample(frac=1, random_state=0)
    frame.to_csv("long.csv", index=False)
    return frame


def test_compare_takes_a_long_table_and_keeps_speakers_on_one_side(long, here, capsys):
    words = ["--groups", "speaker", "--json", "all.json", "--out", "a.html"]
    assert run("compare", *LONG, *words, *QUICK, "--code") == 0
    out = "".join(capsys.readouterr())
    for part in (
        "long.csv: 36 sets of 8 to 20 vectors",
        "3 features, 3 classes (12 sets each)",
        "Groups: 9; none is on both sides of any of the 5 folds (checked).",
        "Error: the fraction of held-out sets that are misclassified.",
        "Error on held-out sets in percent",
        "Standardized means",
        "k-NN, d_BR",
        "SetEmbedding + SVM",
        "SetEmbedding + MVEM",
        "Bag of words + SVM",
        "read_sets('long.csv', by='utterance', target='kind', groups='speaker')",
        "Report: a.html",
    ):
        assert part in out, part
    document = json.loads((here / "all.json").read_text())
    order = list(dict.fromkeys(long["utterance"]))
    speaker = long.drop_duplicates("utterance").set_index("utterance")["speaker"][order].to_numpy()
    tested = sorted(row for fold in document["folds"] for row in fold["test"])
    assert tested == list(range(36))
    for fold in document["folds"]:
        trained = np.setdiff1d(np.arange(36), fold["test"])
        assert not set(speaker[fold["test"]]) & set(speaker[trained])
    assert document["data"]["features"] == ["f0", "f1", "f2"]
    assert document["data"]["unit"] == "set"
    page = (here / "a.html").read_text()
    # Rows are those of the leaderboard; all else is said of sets, by their names.
    for text in (out, said_by(page)):
        kept = ("own row is a little too good", "Rows “for context”")
        left = [line for line in text.splitlines() if not any(part in line for part in kept)]
        assert not re.search(r"\brows?\b", "\n".join(left), re.IGNORECASE)
    cards = re.findall(r'<h4 title="(.*?)">', page)
    assert cards and set(cards) <= set(order)
    assert "<dt>Sets</dt><dd>36</dd>" in page and "<dt>Of a set</dt><dd>8 to 20</dd>" in page
    assert 'id="ellipse-panel"' in page and "The page stores 36 ellipses" in page
    assert "u07" in page and 'href="#maps">Sets<' in page
    points = json.loads(re.search(r'id="points">(.*?)</script>', page)[1])
    assert points["titles"] == order and points["noun"] == "Set"
    assert points["columns"][0] == "vectors" and points["n_neighbors"] == 5


def test_no_rows_keeps_names_and_ellipses_out(long, here):
    assert run("compare", *LONG, "--drop", "speaker", *FEW, "--no-rows", "--out", "a.html") == 0
    page = (here / "a.html").read_text()
    assert "Ellipses are not shown, as asked" in page and "u07" not in page
    words = ["--drop", "speaker", "--no-rows", "--out", "e.html"]
    assert run("embed", *LONG, *words) == 0
    page = (here / "e.html").read_text()
    assert "Ellipses are not shown, as asked" in page and "u07" not in page


def test_the_three_kinds_of_files_say_the_same(long, here, sets, capsys):
    ordered = read_sets("long.csv", by="utterance", target="kind", groups="speaker")
    long.to_parquet("long.parquet")
    for other in (
        read_sets("long.parquet", by="utterance", target="kind", groups="speaker"),
        read_sets("long.csv", by="utterance", target="kind", groups="speaker", drop=()),
    ):
        assert other.y.tolist() == ordered.y.tolist()
        assert other.X.offsets.tolist() == ordered.X.offsets.tolist()
        np.testing.assert_allclose(other.X.X, ordered.X.X, rtol=0, atol=1e-14)  # text may round
    X = ordered.X
    np.savez("s.npz", X=X.X, offsets=X.offsets, labels=ordered.y, names=X.names, g=ordered.groups)
    Sets(X.X, X.offsets, ordered.y, X.names).save("lists.parquet")
    errors = []
    for words in (LONG + ["--drop", "speaker"], ["s.npz"], ["lists.parquet"]):
        assert run("compare", *words, *FEW, "--json", "n.json", "--force") == 0
        document = json.loads((here / "n.json").read_text())
        errors.append({m["name"]: m["error"] for m in document["methods"]})
    assert errors[0] == errors[1] == errors[2]
    assert run("compare", "s.npz", "--groups", "g", *FEW) == 0
    assert "Groups: 9; none is on both sides" in capsys.readouterr().err


def test_a_test_file_of_sets_is_used(long, here, capsys):
    first = long["utterance"] < "u30"
    long[first].to_csv("train.csv", index=False)
    long[~first].to_csv("test.csv", index=False)
    words = ["train.csv", "--set-id", "utterance", "--target", "kind", "--drop", "speaker"]
    assert run("compare", *words, "--test", "test.csv", *FEW, "--json", "t.json") == 0
    document = json.loads((here / "t.json").read_text())
    assert len(document["folds"]) == 1 and document["folds"][0]["test"] == list(range(30, 36))
    out = "".join(capsys.readouterr())
    assert "one fixed test set of 6 sets" in out and "at their first setting" in out
    assert not re.search(r"\brows?\b", out)


def broken(frame, column, rows, value):
    frame = frame.reset_index(drop=True).copy()
    frame[column] = frame[column].astype(object)
    frame.loc[rows(frame), column] = value
    return frame


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (None, ["--set-id", "utterence", "--target", "kind"], "Did you mean 'utterance'?"),
        (None, ["--set-id", "kind", "--target", "kind"], "cannot be both --set-id and --target"),
        (
            None,
            ["--set-id", "utterance", "--target", "sort"],
            "--target sort: long.csv has no such",
        ),
        (None, [*LONG[1:], "--groups", "who"], "--groups who: long.csv has no such column"),
        (
            None,
            LONG[1:],
            "'speaker' holds text. Use --drop speaker to drop columns that are not features",
        ),
        (None, ["--set-id", "utterance", "--drop", "speaker"], "must be numbers, but 'kind' holds"),
        (
            None,
            ["--set-id", "utterance", "--drop", "speaker", "--drop", "kind"],
            "long.csv: the column that contains the labels of the sets is not known.",
        ),
        (None, ["--target", "kind"], "looks like sets of vectors: 36 values of 'utterance'"),
        (None, [*LONG[1:], "--drop", "nothing"], "--drop nothing: long.csv has no such column"),
        (None, [*LONG[1:], "--drop", "speaker", "--time", "f0"], "--time is for rows of a table"),
        (None, [*LONG[1:], "--drop", "speaker", "--keep", "f0"], "--keep is for rows of a table"),
        (None, [*LONG[1:], "--drop", "speaker", "--unlabeled"], "nearfar embed"),
        (None, [*LONG[1:], "--drop", "speaker", "--methods", "lmnn"], "LMNN takes vectors"),
        (None, [*LONG[1:], "--drop", "speaker", "--methods", "rieman"], "Did you mean riemann,"),
        (None, [*LONG[1:], "--drop", "speaker", "--scale", "unit"], "auto, none or standard"),
        (
            lambda f: broken(f, "kind", lambda g: g.index[g["utterance"] == "u07"][:1], "oh"),
            LONG[1:] + ["--groups", "speaker"],
            "('u07') has more than one label in column 'kind': ",
        ),
        (
            lambda f: broken(f, "kind", lambda g: g.index[g["utterance"] == "u07"][:1], None),
            LONG[1:] + ["--groups", "speaker"],
            "'none'",
        ),
        (
            lambda f: broken(f, "speaker", lambda g: g.index[g["utterance"] == "u03"][:1], "x"),
            LONG[1:] + ["--groups", "speaker"],
            "('u03') has more than one group in column 'speaker': ",
        ),
        (
            lambda f: f.assign(speaker="all"),
            LONG[1:] + ["--groups", "speaker"],
            "All sets are of one group",
        ),
        (
            lambda f: f[(f["utterance"] != "u05") | ~f.duplicated("utterance")],
            LONG[1:] + ["--groups", "speaker"],
            "('u05') has 1 vector. Found 1 set with fewer than 2 vectors",
        ),
        (
            lambda f: broken(f, "utterance", lambda g: [4], None),
            LONG[1:] + ["--groups", "speaker"],
            "must name the set of each row, but row 4 has no value",
        ),
        (
            lambda f: broken(f, "f1", lambda g: g.index[g["utterance"] == "u02"][:1], np.nan),
            LONG[1:] + ["--groups", "speaker"],
            "('u02') holds nan",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(here, sets, change, words, message, capsys):
    frame = frame_of(sets)
    (frame if change is None else change(frame)).to_csv("long.csv", index=False)
    assert run("compare", "long.csv", *words, *QUICK) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and "Traceback" not in err
    assert not list(here.glob("*.html")) and not list(here.glob("*.journal"))


def test_files_that_know_their_sets_are_refused_by_what_is_wrong(here, sets, capsys):
    np.savez("no.npz", X=sets.X, y=np.zeros(len(sets.X)))
    sets.save("s.npz")
    np.savez("bad.npz", X=sets.X, offsets=[0, 5], labels=[0])
    for words, message in (
        (["no.npz", "--set-id", "u"], "no.npz has no key 'offsets'"),
        (["s.npz", "--set-id", "u"], "in its key 'offsets'"),
        (["bad.npz"], "bad.npz: offsets must run from 0 to the number of rows of X"),
        (["iris", "--set-id", "u"], "the built-in dataset 'iris' contains rows"),
    ):
        assert run("compare", *words, *QUICK) == 2
        assert message in capsys.readouterr().err
    assert run("fit", "s.npz", "--method", "lda", "--save", "m.nf") == 2
    assert "LDA takes vectors, and these are sets" in capsys.readouterr().err


def test_few_groups_make_few_folds_and_small_sets_can_be_asked_for(here, sets, capsys):
    frame = frame_of(sets, n_speakers=4)
    one = frame[(frame["utterance"] != "u05") | ~frame.duplicated("utterance")]
    one.to_csv("long.csv", index=False)
    assert run("compare", *LONG, "--groups", "speaker", "--min-vectors", "1", *FEW) == 0
    out = capsys.readouterr().err
    assert "Only 4 groups: 4 folds instead of 5." in out
    assert "1 set of 36 has a single vector" in out


def test_sets_without_a_label_are_left_out(here, sets, capsys):
    frame = frame_of(sets)
    frame.loc[frame["utterance"] == "u01", "kind"] = None
    frame.to_csv("long.csv", index=False)
    assert run("compare", *LONG, "--groups", "speaker", *FEW) == 0
    out = capsys.readouterr().err
    assert "Dropped 1 set without a label (first: Set 1 ('u01'))." in out and "35 sets" in out


def test_a_file_of_labels_has_one_for_each_set(long, here, capsys):
    order = list(dict.fromkeys(long["utterance"]))
    kinds = long.drop_duplicates("utterance").set_index("utterance")["kind"][order]
    (here / "kinds.txt").write_text("\n".join(kinds) + "\n")
    words = ["long.csv", "--set-id", "utterance", "--labels", "kinds.txt"]
    assert run("compare", *words, "--drop", "speaker", "--drop", "kind", *FEW) == 0
    assert "36 sets" in capsys.readouterr().err


def test_embed_compares_all_pairs_once_with_all_cores(long, here, monkeypatch):
    asked = []

    def counted(gaussians, *, metric, n_jobs):
        asked.append((len(gaussians), n_jobs))
        return dissimilarity(gaussians, metric=metric, n_jobs=n_jobs)

    monkeypatch.setattr(held_pairs, "dissimilarity", counted)
    assert run("embed", *LONG, "--drop", "speaker", "--out", "page.html") == 0
    assert asked == [(36, -1)]


def test_embed_draws_sets_and_its_model_maps_new_ones(long, here, capsys):
    first = long["utterance"] < "u30"
    long[first].to_csv("old.csv", index=False)
    # New data with the columns in another order, and more of them.
    long[~first][["speaker", "f2", "kind", "f0", "utterance", "f1"]].to_csv("new.csv", index=False)
    words = ["--set-id", "utterance", "--target", "kind", "--groups", "speaker"]
    options = ["--set", "metric=hellinger", "--csv", "c.csv", "--save", "m.nf", "--out", "e.html"]
    assert run("embed", "old.csv", *words, *options) == 0
    out = capsys.readouterr().out
    assert "SetEmbedding drew 30 sets in 2 dimensions" in out and "Neighbors kept" in out
    page = (here / "e.html").read_text()
    assert "the Hellinger distance" in page and "The page stores 30 ellipses" in page
    placed = pd.read_csv("c.csv").set_index("set")
    assert run("transform", "m.nf", "old.csv", "--set-id", "utterance", "--out", "t.csv") == 0
    again = pd.read_csv("t.csv").set_index("set")
    assert np.allclose(again.loc[placed.index], placed, atol=1e-8)
    assert run("transform", "m.nf", "new.csv", "--set-id", "utterance", "--out", "n.csv") == 0
    new = pd.read_csv("n.csv").set_index("set")
    assert sorted(new.index) == [f"u{i}" for i in range(30, 36)]
    from nearfar import SetEmbedding

    table = read_sets("old.csv", by="utterance", target="kind", groups="speaker")
    fitted = SetEmbedding(2, metric="hellinger").fit(table.X)
    fresh = read_sets("new.csv", by="utterance", features=["f0", "f1", "f2"], need_target=False)
    assert np.allclose(new.loc[fresh.X.names], fitted.transform(fresh.X), atol=1e-8)
    query = ["new.csv", "--index", "old.csv", "--set-id", "utterance", "-k", "3"]
    capsys.readouterr()
    assert run("neighbors", "m.nf", *query) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 3 * 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "mvu"], "it embeds rows of a table, and the data are sets of vectors"),
        (["--method", "sets"], "there is no such embedding"),
        (["--neighbors", "4"], "set-embedding reads no neighbours"),
        (["--set", "metric=euclid"], "metric"),
        (["--color", "f0"], "sets are coloured by their labels"),
        (["--images", "1x3"], "--images is for rows"),
        (["--scale", "unit"], "auto, none or standard"),
    ],
)
def test_embed_says_what_cannot_be_done(long, here, words, message, capsys):
    assert run("embed", *LONG, "--drop", "speaker", *words) == 2
    assert message in capsys.readouterr().err


def test_models_of_sets_and_of_rows_are_not_confused(long, here, capsys):
    assert run("embed", *LONG, "--drop", "speaker", "--save", "m.nf") == 0
    assert run("transform", "m.nf", "long.csv", "--out", "t.csv") == 2
    assert "say with --set-id COL" in capsys.readouterr().err
    assert run("embed", "iris", "--method", "pca", "--save", "v.nf") == 0
    capsys.readouterr()
    words = ["long.csv", "--set-id", "utterance", "--out", "t.csv"]
    assert run("transform", "v.nf", *words) == 2
    assert "takes rows of a table, and long.csv holds sets" in capsys.readouterr().err
    assert run("embed", "iris", "--method", "set-embedding") == 2
    assert "it embeds sets of vectors" in capsys.readouterr().err


def test_embed_fit_transform_and_neighbors_open_a_file_once(here, sets, monkeypatch, capsys):
    sets.save(here / "sets.npz")
    np.savez("rows.npz", X=np.random.default_rng(0).normal(size=(40, 3)), y=[0, 1] * 20)
    load, opened = np.load, []

    def counted(file, *args, **options):
        name = Path(str(getattr(file, "name", file))).name
        opened.extend([name] * name.endswith(".npz"))  # not what is inside a model file
        return load(file, *args, **options)

    monkeypatch.setattr(np, "load", counted)
    for kind, method in (("sets", "set-embedding"), ("rows", "pca")):
        name = f"{kind}.npz"
        for words in (
            ["embed", name, "--method", method, "--save", "m.nf", "--force"],
            ["transform", "m.nf", name, "--out", "t.csv", "--force"],
        ):
            opened.clear()
            assert run(*words) == 0
            assert opened == [name]
        opened.clear()
        assert run("neighbors", "m.nf", name, "--index", name) == 0
        assert opened == [name, name]
    opened.clear()
    assert run("fit", "rows.npz", "--method", "lda", "--save", "f.nf") == 0
    assert run("fit", "sets.npz", "--method", "lda", "--save", "g.nf") == 2
    assert opened == ["rows.npz", "sets.npz"]
    assert "LDA takes vectors, and these are sets" in capsys.readouterr().err
