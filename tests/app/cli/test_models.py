"""From the answer to its use: what is fitted, saved, shown, and asked of new rows."""

import csv
import json
import shlex

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.pipeline import Pipeline

import nearfar
from nearfar.app import cli
from nearfar.app.cli import main
from nearfar.app.cli.again import fit_words, parts_of, same_again, without
from nearfar.app.compare.chain import Chosen, chosen_by_folds
from nearfar.app.compare.methods import baselines, learners

QUICK = ["--repeats", "1", "--tuning", "k", "--methods", "lda", "--no-context", "--in-process"]
WINE = ["wine.csv", "--target", "kind"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def table(here):
    frame = load_wine(as_frame=True).frame.rename(columns={"target": "kind"})
    frame["kind"] = np.array(["barolo", "grignolino", "barbera"])[frame["kind"]]
    frame.insert(0, "bottle", np.arange(len(frame)) + 1000)
    frame["colour"] = np.where(frame["hue"] > 1, "red", "white")
    frame.loc[3, "alcohol"] = None
    frame.to_csv("wine.csv", index=False)
    frame.drop(columns="kind").iloc[100:110].to_csv("new.csv", index=False)
    return frame


@pytest.fixture
def long(here):
    rng = np.random.default_rng(0)
    rows = [
        [f"u{u:02d}", "abc"[u % 3], *rng.normal(u % 3, 1 + u % 3, 2)]
        for u in range(30)
        for _ in range(12)
    ]
    frame = pd.DataFrame(rows, columns=["utterance", "kind", "f0", "f1"])
    frame.to_csv("long.csv", index=False)
    frame.drop(columns="kind").iloc[:60].to_csv("new.csv", index=False)
    return frame


def run(*words):
    return main([str(word) for word in words])


def parsed(*words):
    """The options of a command, as it gets them."""
    options = cli._parser().parse_args(words)
    options.argv = ["nearfar", *words]
    return options


def read(text):
    return list(csv.DictReader(text.splitlines()))


def commands_in(document):
    return [shlex.split(step["command"])[1:] for step in document["next"]]


# From the answer to the model


def test_the_commands_after_an_answer_make_the_same_model(table, here, capsys):
    assert run("compare", *WINE, *QUICK, "--json", "a.json", "--save", "model.nf") == 0
    out = capsys.readouterr().out
    assert "Saved: model.nf" in out and "Next:" in out
    assert run("compare", *WINE, *QUICK, "--json", "b.json") == 0
    out = capsys.readouterr().out
    document = json.loads((here / "b.json").read_text())
    fit, predict = commands_in(document)
    for step in document["next"]:
        assert step["text"] in out and step["command"] in out
    assert fit[0] == "fit" and fit[-2:] == ["--save", "model-2.nf"]  # model.nf is there
    assert predict == ["predict", "model-2.nf", "NEW.csv"]
    assert run(*fit) == 0
    (one, two) = (nearfar.load(name) for name in ("model.nf", "model-2.nf"))
    assert repr(one) == repr(two)
    rows = table.drop(columns="kind")
    np.testing.assert_array_equal(one[:-1].transform(rows), two[:-1].transform(rows))
    assert one.score(rows, table["kind"]) > 0.9


def test_a_saved_answer_is_what_most_folds_chose_fitted_to_all_rows(table, here, capsys):
    words = ["compare", *WINE, *QUICK, "--min-gain", "0", "--json", "a.json", "--save", "m.nf"]
    assert run(*words) == 0
    said = capsys.readouterr().err
    document = json.loads((here / "a.json").read_text())
    model = nearfar.load("m.nf")
    best = document["best"]
    entry = next(one for one in document["methods"] if one["name"] == best)
    assert model[-1].n_neighbors == int(np.median([r["k"] for r in entry["results"]]))
    assert len(model[-1]._codes) == 178
    assert ("learner" in model.named_steps) == (best == "lda")
    assert ("the baseline" in said) == (best == "reference")


def test_k_and_setting_of_the_folds_are_those_of_the_chain():
    one, (raw, other) = learners("lmnn")[0], baselines()[:2]
    labels = [setting.label for setting in one.settings]
    results = [
        {"fold": i, "setting": labels[i > 3], "k": k} for i, k in enumerate([3, 5, 5, 9, 1, 1])
    ]
    plain = [{"fold": i, "setting": other.settings[0].label, "k": 2 + i} for i in range(6)]
    document = {
        "best": "lmnn",
        "common_folds": [0, 1, 2, 4],
        "protocol": {"tuning": "full"},
        "methods": [
            {"name": "lmnn", "role": "learner", "results": results},
            {"name": other.name, "role": "baseline", "error": 0.3, "results": plain},
            {"name": raw.name, "role": "baseline", "error": 0.2, "results": plain},
            {
                "name": "reference",
                "role": "reference",
                "results": [r | {"baseline": other.name} for r in plain],
            },
        ],
    }
    chosen = chosen_by_folds(document, [one, other])
    assert (chosen.setting.label, chosen.k) == (labels[0], 5)
    chosen = chosen_by_folds(document | {"best": "reference"}, [one, other])
    assert (chosen.method.name, chosen.k) == ("standardized", 3)
    # Untuned no fold has chosen: it is the one with the fewest errors.
    untuned = document | {"best": "reference", "protocol": {"tuning": "k"}}
    assert chosen_by_folds(untuned, [one, raw, other]).method.name == "raw"
    assert chosen_by_folds(document | {"common_folds": []}, [one, other]) is None


def test_an_interrupted_comparison_saves_nothing(here, capsys, monkeypatch):
    from nearfar.app.compare.schedule import Schedule

    record = Schedule._record

    def stop(self, *rest):
        record(self, *rest)
        raise KeyboardInterrupt

    monkeypatch.setattr(Schedule, "_record", stop)
    assert run("compare", "iris", *QUICK, "--save", "m.nf") == 130
    assert (
        "Warning: no model was saved: " in capsys.readouterr().err and not (here / "m.nf").exists()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--save", "report.html"], "--save report.html is also the report"),
        (["--save", "wine.csv", "--force"], "--save wine.csv is also the data"),
        (["--save", "a.x", "--json", "a.x"], "--save a.x is also the file of --json"),
        (["--save", "no/m.nf"], "the folder no does not exist"),
        (["--save", "new.csv"], "new.csv exists. Choose another --save"),
    ],
)
def test_where_a_model_cannot_go_is_said_before_the_work(table, here, words, message, capsys):
    before = sorted(here.iterdir())
    assert run("compare", *WINE, *QUICK, *words) == 2
    assert message in capsys.readouterr().err
    assert sorted(here.iterdir()) == before


@pytest.mark.slow
def test_python_gets_the_chain_too(table):
    options = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}
    X, y = table.drop(columns="kind"), table["kind"]
    result = nearfar.compare(X, y, methods="lda", **options)
    chain = result.pipeline()
    assert isinstance(chain, Pipeline) and not hasattr(chain[-1], "classes_")
    model = result.fit(X, y)
    assert model.score(X, y) > 0.9 and model[-1].n_neighbors == chain[-1].n_neighbors
    assert result.document["next"][0]["command"] == "model = result.fit(X, y)"
    embedded = nearfar.compare(X, methods="lle", **options | {"tuning": None})
    assert embedded.fit(X).transform(X).shape == (178, 2)
    images, labels = load_digits().images[:100], load_digits().target[:100]
    drawn = nearfar.compare(images, labels, methods="lda", **options).fit(images, labels)
    assert drawn.score(images.reshape(100, 64), labels) > 0.8


# Commands made of others


def test_the_same_again_is_a_command_to_copy():
    words = [
        "my data.csv",
        "--target",
        "kind",
        "--time-budget",
        "9",
        "--without=lmnn",
        "--out",
        "a.html",
    ]
    options = parsed("compare", *words, "--repeats=3", "--force", "--seed", "4")
    planned = {"tuning": "k", "repeats": 1, "rows": 8000, "left_out": ["trees"], "seed": 4}
    again = same_again(options, {"protocol": {"planned": planned}})
    assert shlex.join(again) == (
        "nearfar compare 'my data.csv' --target kind --seed 4 --sample 8000 --repeats 1 --tuning k "
        "--without lmnn,trees"
    )
    parsed(*again[1:])


@pytest.mark.slow
def test_the_last_line_of_a_run_with_a_budget_gives_the_same_numbers(here, capsys):
    words = ["compare", "iris", "--methods", "lda", "--no-context", "--in-process"]
    # A budget that no machine needs: how much is tuned is found out, and nothing is cut short.
    assert run(*words, "--time-budget", "600", "--repeats", "1", "--json", "a.json") == 0
    again = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    assert again[:6] == ["nearfar", *words[:5]] and "--time-budget" not in again
    assert run(*again[1:], "--json", "b.json") == 0
    one, two = (json.loads((here / f"{name}.json").read_text()) for name in "ab")
    assert one["status"] == two["status"] == "complete"
    assert one["folds"] == two["folds"] and one["protocol"]["planned"] == two["protocol"]["planned"]
    for key in ("name", "error", "interval", "folds_done"):
        assert [m[key] for m in one["methods"]] == [m[key] for m in two["methods"]]


def test_options_are_found_with_their_values():
    options = parsed("compare", "a", "--keep", "b", "--unlabeled", "--json=c")
    assert parts_of(options.parser, options.argv[2:]) == [
        (None, ["a"]),
        ("--keep", ["--keep", "b"]),
        ("--unlabeled", ["--unlabeled"]),
        ("--json", ["--json=c"]),
    ]
    assert without(options.parser, options.argv, ["--keep", "--json"]) == [
        "nearfar",
        "compare",
        "a",
        "--unlabeled",
    ]


def test_the_line_of_fit_means_one_setting_and_no_other(here):
    options = parsed(
        "compare", "a.csv", "--target", "t", "--drop", "x", "--scale", "auto", "--seed", "3"
    )
    (method,) = learners("lmnn")
    for setting in method.settings:
        words = fit_words(options, Chosen(method, setting, 4), "fit")
        assert words[:7] == ["nearfar", "fit", "a.csv", "--target", "t", "--drop", "x"]
        again = parsed(*words[1:], "--save", "m.nf")
        assert again.k == 4 and again.scale in ("none", "standard", "unit")
        from nearfar.app.compare.use import with_parameters
        from nearfar.app.embed.methods import read_settings

        (found,) = learners("lmnn", again.scale)
        given = read_settings(again.settings)
        if given:
            found = with_parameters(found, given)
        assert len(found.settings) == 1
        assert repr(found.settings[0].scale) == repr(setting.scale)
        assert repr(found.settings[0].estimator) == repr(setting.estimator)
    whitened = fit_words(options, Chosen(baselines()[3], baselines()[3].settings[0], 1), "fit")
    assert whitened[-4:] == ["--method", "whitened", "-k", "1"]


# fit


def test_fit_takes_parameters_components_and_k(table, here, capsys):
    words = ["--method", "LMNN", "--components", "3", "--set", "max_iter=5", "-k", "4"]
    assert run("fit", *WINE, *words, "--scale", "standard", "--save", "m.nf") == 0
    assert "LMNN: standardized, " in capsys.readouterr().err
    model = nearfar.load("m.nf")
    learner = model.named_steps["learner"]
    assert (learner.n_components, learner.max_iter, model[-1].n_neighbors) == (3, 5, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--method", "lda", "--set", "ridg=1"],
            "lda has no parameter 'ridg'. Did you mean 'ridge'",
        ),
        (["--method", "lda", "--set", "ridge"], "write it as name=value"),
        (["--method", "lda", "--set", "n_components=1"], "say --components 1"),
        (["--method", "lda", "--set", "ridge=-1"], "ridge"),
        (["--method", "raw", "--components", "1"], "raw is a standard distance without parameters"),
        (["--method", "discriminant"], "that is a family; name one of it"),
        (["--method", "lda", "-k", "500"], "there are 178 rows"),
        (["--method", "energy-classifier", "-k", "3"], "no neighbors vote"),
    ],
)
def test_what_fit_cannot_do_is_said(table, here, words, message, capsys):
    assert run("fit", *WINE, *words, "--save", "m.nf") == 2
    assert message in capsys.readouterr().err and not (here / "m.nf").exists()


# predict, neighbors, show


def test_predict_tells_labels_shares_and_who_decided(table, here, capsys):
    assert run("fit", *WINE, "--method", "lda", "-k", "3", "--save", "m.nf") == 0
    assert "their IDs from 'bottle'" in capsys.readouterr().out
    assert run("predict", "m.nf", "new.csv") == 0
    rows = read(capsys.readouterr().out)
    model, new = nearfar.load("m.nf"), pd.read_csv("new.csv")
    assert [row["label"] for row in rows] == model.predict(new).tolist()
    shares = [[float(row[f"share {name}"]) for name in model.classes_] for row in rows]
    np.testing.assert_allclose(shares, model.predict_proba(new))
    assert [row["bottle"] for row in rows] == [str(1100 + i) for i in range(10)]
    # The rows are in the model: each is its own nearest, by its number on the bottle.
    assert [row["neighbors"].split()[0] for row in rows] == [str(1100 + i) for i in range(10)]
    for name, reader in (
        ("p.csv", pd.read_csv),
        ("p.tsv", pd.read_table),
        ("p.parquet", pd.read_parquet),
    ):
        assert run("predict", "m.nf", "new.csv", "--out", name) == 0
        assert reader(name)["label"].tolist() == [row["label"] for row in rows]
    assert run("predict", "m.nf", "new.csv", "--csv", "q.csv") == 0
    assert run("predict", "m.nf", "new.csv", "--out", "q.csv") == 2
    assert "q.csv exists. Choose another --out" in capsys.readouterr().err


def test_predict_counts_its_errors_and_names_what_it_does_not_know(table, here, capsys):
    assert run("fit", *WINE, "--method", "lda", "--save", "m.nf") == 0
    table["price"] = 1.0
    table.loc[0, "kind"] = "barbera"
    table.loc[1, "kind"] = None
    table.to_csv("all.csv", index=False)
    capsys.readouterr()
    assert run("predict", "m.nf", "all.csv", "--out", "p.csv") == 0
    said = capsys.readouterr()
    assert "Columns that the model does not use: 'price'." in said.err
    assert " of 177 labels differ from 'kind' in the file" in said.out


def test_neighbors_are_those_of_the_model_unless_there_is_an_index(table, here, capsys):
    assert run("fit", *WINE, "--method", "lda", "--save", "m.nf") == 0
    capsys.readouterr()
    assert run("neighbors", "m.nf", "new.csv", "-k", "2") == 0
    of_model = read(capsys.readouterr().out)
    assert [row["id"] for row in of_model if row["rank"] == "1"] == [
        str(1100 + i) for i in range(10)
    ]
    kinds = table.set_index("bottle")["kind"]
    assert [row["row_label"] for row in of_model] == [kinds[int(row["id"])] for row in of_model]
    assert run("neighbors", "m.nf", "new.csv", "--index", "wine.csv", "-k", "2") == 0
    of_index = read(capsys.readouterr().out)
    assert [row["row"] for row in of_index] == [row["row"] for row in of_model]
    assert run("neighbors", "m.nf", "new.csv", "-k", "179") == 2
    assert "must be at most 178, the number of rows of the model" in capsys.readouterr().err
    for method, kept in (("isomap", True), ("pca", False)):
        assert run("embed", *WINE, "--method", method, "--save", "e.nf", "--force") == 0
        capsys.readouterr()
        assert run("neighbors", "e.nf", "new.csv", "-k", "1") == (0 if kept else 2)
        said = capsys.readouterr()
        if kept:
            assert [row["row"] for row in read(said.out)] == [str(100 + i) for i in range(10)]
        else:
            assert "e.nf does not contain its training rows. Name the file" in said.err


def test_show_tells_what_a_model_is(table, here, capsys):
    assert run("fit", *WINE, "--method", "lda", "-k", "3", "--save", "m.nf") == 0
    capsys.readouterr()
    assert run("show", "m.nf") == 0
    out = capsys.readouterr().out
    for part in (
        f"m.nf ({(here / 'm.nf').stat().st_size:,} bytes)",
        "LDA (standardized, k = 3)",
        "conversion of columns to numbers (13 numeric, 1 categorical)",
        "StandardScaler()",
        "ridge=0.001",
        "n_neighbors=3",
        "wine.csv, 178 rows",
        "178, from the column 'bottle'",
        "at least 178 training rows are in the file",
        "14: alcohol, ",
        "3 of 'kind': barbera, barolo and grignolino",
        f"nearfar {nearfar.__version__}",
    ):
        assert part in out


def test_show_tells_the_kernels_of_a_learned_one(here, capsys):
    X, y = load_wine(return_X_y=True)
    machine = nearfar.MKLClassifier(nearfar.AlignmentKernelLearner()).fit(X[::3], y[::3])
    mapped = nearfar.KernelLMNN(kernel=nearfar.AlignmentKernelLearner()).fit(X[::6], y[::6])
    for model, learner in ((machine, machine.estimator_), (mapped, mapped.kernel_)):
        nearfar.save(Pipeline([("model", model)]), "m.nf", force=True)
        assert run("show", "m.nf") == 0
        largest = int(np.argmax(learner.shares_))
        said = f"{learner.kernel_names_[largest]} {100 * learner.shares_[largest]:.0f}%"
        assert f"{'Kernels:':<15} {said}" in capsys.readouterr().out
    nearfar.save(nearfar.LDA().fit(X, y), "m.nf", force=True)
    assert run("show", "m.nf") == 0
    assert "Kernels" not in capsys.readouterr().out


def test_show_prints_the_same_facts_as_json(table, here, capsys):
    assert run("fit", *WINE, "--method", "lda", "-k", "3", "--save", "m.nf") == 0
    capsys.readouterr()
    assert run("show", "m.nf", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    says = nearfar.persistence.describe("m.nf")
    expected = {
        "file": "m.nf",
        "bytes": (here / "m.nf").stat().st_size,
        "created": says["created"],
        "method": "LDA",
        "kernels": [],
        "data": "wine.csv",
        "unit": "row",
        "n_rows": 178,
        "training_rows_stored": 178,
        "id_column": "bottle",
        "n_ids": 178,
        "n_features": 14,
        "features": [name for name in table.columns if name not in ("bottle", "kind")],
        "shape": None,
        "target": "kind",
        "classes": ["barbera", "barolo", "grignolino"],
        "predicts": "class",
        "threshold": None,
        "versions": says["versions"],
    }
    assert {key: facts[key] for key in expected} == expected
    assert set(facts) == {*expected, "setting", "steps"} and "k = 3" in facts["setting"]
    steps = {step["name"]: step["estimator"] for step in facts["steps"]}
    assert list(steps) == ["prepare", "scale", "learner", "knn"]
    assert steps["learner"].startswith("LDA(") and "n_neighbors=3" in steps["knn"]


def test_show_describes_a_map_that_stores_no_rows_and_predicts_nothing(here, capsys):
    X, y = load_wine(return_X_y=True)
    nearfar.save(nearfar.LMNN().fit(X, y), "m.nf")
    assert run("show", "m.nf") == 0
    out = capsys.readouterr().out
    assert "none: the file does not contain training rows" in out and "at least" not in out
    for head in ("Method", "Training data", "Stored IDs", "Predicts", "Threshold"):
        assert f"{head}:" not in out
    assert run("show", "m.nf", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["training_rows_stored"] == 0 and facts["n_features"] == 13
    for key in ("method", "data", "n_rows", "id_column", "target", "predicts"):
        assert facts[key] is None


def test_show_describes_models_of_numbers_pairs_and_images(here, capsys):
    X, _ = load_wine(return_X_y=True)
    rows = pd.DataFrame(X[:, :4], columns=list("abcd")).assign(price=X[:, 12])
    rows.to_csv("rows.csv", index=False)
    words = ["rows.csv", "--target", "price", "--task", "regression", "--method", "raw"]
    assert run("fit", *words, "--save", "number.nf") == 0
    ends = np.arange(160).reshape(-1, 2)
    pairs = pd.DataFrame(ends, columns=["left", "right"]).assign(same=np.arange(80) % 2)
    pairs.to_csv("pairs.csv", index=False)
    words = ["rows.csv", "--drop", "price", "--pairs", "pairs.csv", "--method", "raw"]
    assert run("fit", *words, "--save", "pairs.nf") == 0
    digits = load_digits()
    np.savez("images.npz", X=digits.images[:100], y=digits.target[:100])
    assert run("fit", "images.npz", "--method", "raw", "-k", "1", "--save", "images.nf") == 0
    for name, predicts, text in (
        ("number", "number", "a number: 'price'"),
        ("pairs", "same or different", "whether two rows are the same or different"),
        ("images", "class", "64: 8 × 8"),
    ):
        capsys.readouterr()
        assert run("show", f"{name}.nf", "--json") == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["predicts"] == predicts
        assert (facts["threshold"] is not None) == (name == "pairs")
        assert (facts["classes"] is not None) == (name == "images")
        assert facts["shape"] == ([8, 8] if name == "images" else None)
        assert run("show", f"{name}.nf") == 0
        out = capsys.readouterr().out
        assert text in out
        limit = f"distance of at most {facts['threshold'] or 0:.4g} are the same"
        assert (limit in out) == (name == "pairs")


def test_a_file_without_notes_is_used_all_the_same(table, here, capsys):
    """Files of before have no ids and no names of classes, or are written by Python."""
    assert run("fit", *WINE, "--method", "lda", "--save", "m.nf") == 0
    model = nearfar.load("m.nf")
    old = {"method": "lda", "data": "wine.csv", "target": "kind"}
    for notes in (old, None, {"ids": ["a"], "classes": [1], "features": 3, "n_rows": "x"}):
        nearfar.save(model, "old.nf", force=True, metadata=notes)
        capsys.readouterr()
        assert run("predict", "old.nf", "new.csv") == 0
        rows = read(capsys.readouterr().out)
        assert rows[0]["neighbors"].split()[0] == "100"
        assert rows[0]["label"] in ("barolo", "grignolino", "barbera")
        assert run("neighbors", "old.nf", "new.csv") == 0
        assert run("show", "old.nf") == 0
        assert "barbera, barolo and grignolino" in capsys.readouterr().out


def test_a_file_keeps_as_many_ids_as_it_can():
    from types import SimpleNamespace

    from nearfar.app.compare.use import model_notes

    def notes(n):
        data = {"name": "a.csv", "target": "t", "classes": ["a"], "features": ["x"]}
        kind = SimpleNamespace(
            describe=lambda: data,
            table=SimpleNamespace(noun="row"),
            training=lambda: (range(n), None),
            ids=lambda: ("id", range(n)),
        )
        return model_notes(kind, Chosen(baselines()[0], baselines()[0].settings[0], 3))

    assert notes(3)["ids"] == ["0", "1", "2"]
    many = notes(200_000)
    assert "ids" not in many and many["features"] == ["x"] and many["n_rows"] == 200_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "map.nf", "new.csv"], "map.nf holds a PCA, which cannot predict labels"),
        (["predict", "knn.nf", "new.csv"], "holds a KNNClassifier, not a pipeline"),
        (["predict", "wine.csv", "new.csv"], "not a nearfar model file"),
        (["predict", "nowhere.nf", "new.csv"], "nowhere.nf"),
        (["predict", "m.nf", "nowhere.csv"], "nowhere.csv"),
        (["predict", "m.nf", "less.csv"], "less.csv lacks 'alcohol', 'hue', which the model"),
        (["predict", "m.nf", "none.csv"], "no rows"),
        (["predict", "m.nf", "text.csv"], "Column 'hue' should hold numbers; row 2 has 'much'"),
        (["predict", "m.nf", "iris"], "iris has no column names"),
        (["predict", "m.nf", "new.csv", "--out", "p.xlsx"], ".csv, .tsv or .parquet"),
        (["predict", "m.nf", "new.csv", "--set-id", "bottle"], "takes rows of a table"),
        (
            ["transform", "energy.nf", "new.csv", "--out", "t.csv"],
            "which cannot transform rows. Use nearfar predict",
        ),
        (["neighbors", "energy.nf", "new.csv"], "which cannot transform rows. Use nearfar predict"),
        (["show", "wine.csv"], "not a nearfar model file"),
    ],
)
def test_a_wrong_model_or_table_is_said_in_a_sentence(models, words, message, capsys):
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
    assert not (models / "p.csv").exists() and not (models / "t.csv").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Models of several kinds, made once."""
    folder = tmp_path_factory.mktemp("models")
    X, y = load_wine(return_X_y=True, as_frame=True)
    frame = X.assign(kind=y, bottle=np.arange(178) + 1000)
    frame.to_csv(folder / "wine.csv", index=False)
    new = frame.drop(columns="kind").head(4)
    new.to_csv(folder / "new.csv", index=False)
    new.head(0).to_csv(folder / "none.csv", index=False)
    new.drop(columns=["alcohol", "hue"]).to_csv(folder / "less.csv", index=False)
    new.astype(object).assign(hue=["1", "2", "much", "3"]).to_csv(folder / "text.csv", index=False)
    data = [str(folder / "wine.csv"), "--target", "kind"]
    for name, method in (("m.nf", "lda"), ("energy.nf", "energy-classifier")):
        assert (
            run("fit", *data, "--method", method, "--scale", "none", "--save", folder / name) == 0
        )
    nearfar.save(nearfar.KNNClassifier().fit(X, y), folder / "knn.nf")
    words = ["--method", "pca", "--save", folder / "map.nf", "--out", folder / "e.html"]
    assert run("embed", *data, *words) == 0
    return folder


@pytest.fixture
def models(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


# Sets, and embeddings


def test_sets_are_fitted_and_predicted(long, here, capsys):
    words = ["long.csv", "--set-id", "utterance", "--target", "kind"]
    assert run("fit", *words, "--method", "hellinger", "--save", "m.nf") == 0
    assert run("predict", "m.nf", "new.csv", "--set-id", "utterance", "--out", "p.csv") == 0
    found = pd.read_csv("p.csv")
    assert found["set"].tolist() == [f"u{i:02d}" for i in range(5)]
    assert [text.split()[0] for text in found["neighbors"]] == found["set"].tolist()
    capsys.readouterr()
    assert run("neighbors", "m.nf", "new.csv", "--set-id", "utterance", "-k", "1") == 0
    assert [row["id"] for row in read(capsys.readouterr().out)] == found["set"].tolist()
    assert run("predict", "m.nf", "new.csv") == 2
    assert "takes sets of vectors, and new.csv holds rows" in capsys.readouterr().err
    assert run("fit", *words, "--method", "embedding-svm", "--save", "s.nf") == 2
    assert "has a step SVC that a model file cannot hold" in capsys.readouterr().err
    svm = ["--methods", "embedding-svm", "--repeats", "1", "--tuning", "k", "--in-process"]
    assert run(
        "compare", *words, *svm, "--min-gain", "0", "--save", "s.nf", "--json", "s.json"
    ) in (0, 2)
    if json.loads((here / "s.json").read_text())["best"] != "reference":
        assert "no model was saved: SetEmbedding + SVM has a step SVC" in capsys.readouterr().err
        assert not (here / "s.nf").exists()
    more = ["--methods", "hellinger", "--repeats", "1", "--in-process", "--no-context"]
    assert run("compare", *words, *more, "--json", "a.json") == 0
    fit, predict = commands_in(json.loads((here / "a.json").read_text()))
    assert predict == ["predict", "model.nf", "NEW.csv", "--set-id", "utterance"]
    assert run(*fit) == 0 and run(*predict[:2], "new.csv", *predict[3:]) == 0


def test_the_commands_after_embeddings_place_new_rows(table, here, capsys):
    words = ["compare", *WINE, "--unlabeled", "--methods", "lle", "--repeats", "1", "--in-process"]
    assert run(*words, "--components", "3", "--no-context", "--json", "a.json") == 0
    embed, transform = commands_in(json.loads((here / "a.json").read_text()))
    assert embed[:2] == ["embed", "wine.csv"] and "--components" in embed
    assert run(*embed) == 0 and run(*transform[:2], "new.csv", *transform[3:]) == 0
    assert pd.read_csv("placed.csv").shape == (10, 3)


# Help


@pytest.mark.parametrize(
    "command", ["compare", "fit", "embed", "predict", "transform", "neighbors"]
)
def test_help_is_in_groups_and_every_option_is_explained(command, capsys):
    parser = parsed("compare", "a").commands.choices[command]
    for action in parser._actions:
        assert action.help, action.option_strings
    with pytest.raises(SystemExit):
        main([command, "--help-all"])
    out = capsys.readouterr().out
    wanted = {"compare": ["methods", "protocol"], "fit": ["method"], "embed": ["method"]}
    for head in ["data", *wanted.get(command, []), "output"]:
        assert f"\n{head}:\n" in out
    known = {name for action in parser._actions for name in action.option_strings}
    assert {"--output", "--input", "--query"}.isdisjoint(known)
    assert "--out" in known or command == "fit"
