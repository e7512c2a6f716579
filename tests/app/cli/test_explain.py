"""``nearfar explain``: why a row gets its label."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import nearfar
from nearfar import KNNClassifier
from nearfar.app.cli import main
from nearfar.app.compare.explaining import column_names, explain_chain, told
from nearfar.app.report.explanation import explained_view, render_explanation


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table with an id, a category and a gap, and models of it."""
    folder = tmp_path_factory.mktemp("explain")
    frame = load_wine(as_frame=True).frame.rename(columns={"target": "kind"})
    frame["kind"] = np.array(["barolo", "grignolino", "barbera"])[frame["kind"]]
    frame.insert(0, "bottle", [f"b{i}" for i in range(len(frame))])
    frame["colour"] = np.where(frame["hue"] > 1, "red", "white")
    frame.loc[3, "alcohol"] = None
    frame.iloc[10:].to_csv(folder / "wine.csv", index=False)
    frame.iloc[:10].drop(columns="kind").to_csv(folder / "new.csv", index=False)
    one = ["--scale", "standard"]  # and nothing is left to tune
    more = {
        "lda": one,
        "cosine": [],
        "whitened": [],
        "mvem-classifier": [*one, "--set", "neighborhood=8", "--set", "ridge=0.1"],
        "short-fukunaga-classifier": [*one, "--set", "epsilon=0.1"],
    }
    for method, options in more.items():
        fit = ["fit", str(folder / "wine.csv"), "--target", "kind", "--id", "bottle", "-k", "4"]
        save = ["--method", method, "--save", str(folder / f"{method}.nf")]
        assert main([*fit, *save, *options]) == 0
    return folder


@pytest.fixture
def here(made, monkeypatch, tmp_path):
    monkeypatch.chdir(made)
    return tmp_path


def run(*words):
    return main(["explain", *map(str, words)])


@pytest.mark.parametrize("model", ["lda", "cosine", "whitened", "short-fukunaga-classifier"])
def test_a_row_in_a_few_lines(here, capsys, model):
    assert run(f"{model}.nf", "new.csv", "--row", 3) == 0
    told = capsys.readouterr().out
    assert told.startswith("row 3 is 'barolo' by ")
    assert ("over all rows" in told) == (model == "short-fukunaga-classifier")
    assert "The label in the file" not in told  # it has none
    voters = told.split("squared distance:\n")[1].splitlines()
    assert len(voters) == 4
    assert all(line.startswith("  b") for line in voters)


def test_by_id_with_what_the_file_says_and_that_a_row_finds_itself(here, capsys):
    assert run("lda.nf", "wine.csv", "--row", "b73", "--id", "bottle") == 0
    told = capsys.readouterr().out
    assert told.startswith("row 'b73' is 'grignolino' by ")
    assert "The label in the file is 'grignolino'.\nThe nearest voter has a distance of 0: " in told


def test_names_of_classes_are_those_of_the_data(here, capsys):
    save = here / "model.nf"
    assert main(["fit", "wine", "--method", "raw", "-k", "1", "--save", str(save)]) == 0
    capsys.readouterr()
    assert run(save, "wine", "--row", 3) == 0
    assert "is 'class_0' by its nearest neighbor; proline carries" in capsys.readouterr().out


def test_contributions_add_up_and_a_category_is_one_feature(here, capsys):
    assert run("lda.nf", "new.csv", "--row", 3, "--out", here / "why.csv") == 0
    frame = pd.read_csv(here / "why.csv")
    assert frame["feature"].nunique() == 14  # with 'colour', which became two columns
    assert set(frame["neighbor"].str[0]) == {"b"}
    sums = frame.groupby("neighbor")["contribution"].sum()
    distances = frame.groupby("neighbor")["distance"].first()
    np.testing.assert_allclose(sums, distances**2, rtol=1e-6)
    np.testing.assert_allclose(frame["relevance"].sum() / len(distances), 1.0)


def test_a_chain_is_explained_as_the_classifier_around_the_learner_is(here):
    # The chain keeps scaled rows and a map of them; the classifier probes the whole way.
    rows = pd.read_csv("wine.csv").drop(columns=["bottle", "kind", "colour"]).dropna()
    labels = pd.read_csv("wine.csv").loc[rows.index, "kind"]
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from nearfar.app.compare.explaining import keep_for_explaining

    steps = make_pipeline(StandardScaler(), nearfar.LDA(), KNNClassifier(n_neighbors=3))
    chain = steps.fit(rows.to_numpy(), labels)
    keep_for_explaining(chain, rows.to_numpy())
    found = explain_chain(chain, rows.to_numpy()[:9], list(rows))
    around = KNNClassifier(make_pipeline(StandardScaler(), nearfar.LDA()), n_neighbors=3)
    wanted = around.fit(rows, labels).explain(rows[:9])
    np.testing.assert_array_equal(found.neighbors, wanted.neighbors)
    np.testing.assert_allclose(found.relevance, wanted.relevance, rtol=1e-6)
    np.testing.assert_allclose(found.contributions, wanted.contributions, rtol=1e-5, atol=1e-8)
    assert found.feature_names == wanted.feature_names
    assert column_names(chain, 2, ["a", "a"]) == ["a (0)", "a (1)"]
    assert column_names(chain, 2, None) == ["x0", "x1"]


@pytest.mark.parametrize("model", ["lda", "short-fukunaga-classifier"])
def test_the_page_tells_the_same(here, capsys, model):
    page = here / "why.html"
    assert run(f"{model}.nf", "wine.csv", "--id", "bottle", "--row", "b73", "--out", page) == 0
    said = capsys.readouterr().out.split(".\n")[0]
    text = page.read_text("utf-8")
    head, _, rest = said.partition("; ")
    assert f"R{head[1:]};".replace("'", "&#39;") in text
    assert rest.replace(" %", "\u00a0%") in text
    assert "As the file says" in text
    assert text.count('class="bars parts"') == 4
    assert ("over all training rows" in text) == (model != "lda")
    assert run(f"{model}.nf", "wine.csv", "--row", 3, "--out", page) == 2
    assert "exists. Choose another --out, or add --force" in capsys.readouterr().err


def test_what_the_page_must_not_hide():
    explained = {
        "label": "a",
        "features": ["x", "y"],
        "others": None,
        "here": [0.6, 0.4],
        "overall": [0.5, 0.5],
        "one_metric": False,
        "n_deciding": 1,
        "names": ["row 4", "<b>"],
        "voters": [
            {"row": 4, "label": "a", "agrees": True, "distance": 1.0, "parts": [1.5, -0.5]},
            {"row": 5, "label": "b", "agrees": False, "distance": 3.0, "parts": [1.0, 0.0]},
        ],
    }
    view = explained_view(explained)
    assert view["negative"]
    assert view["shrunk"]
    assert not view["adds_up"]  # 9 is not 1
    document = {
        "name": "t.csv",
        "created": "2026-01-01T00:00:00+00:00",
        "versions": {},
        "model": "m.nf",
        "method": "DANN",
        "setting": "",
        "fitted_to": "t.csv",
        "n_rows": 10,
        "target": "kind",
        "sentence": "row 1 is 'a' by its nearest neighbor; x carries 60% of the metric here",
        "true": "b",
        "command": "nearfar explain m.nf t.csv --row 1",
        "explained": explained,
    }
    page = render_explanation(document)
    assert "Not as the file says" in page
    assert "The file says b." in page
    assert "&lt;b&gt;" in page
    assert "do not add up" in page
    assert "with them the vote is tied" in page
    assert "take back some of what others add" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lda.nf", "new.csv", "--row", "10"], "new.csv has 10 rows, numbered from 0 to 9"),
        (["lda.nf", "new.csv", "--row", "-1"], "--row -1: new.csv has 10 rows"),
        (["lda.nf", "new.csv", "--row", "b3"], "b3 is not a number. Name the column"),
        (
            ["lda.nf", "new.csv", "--row", "b33", "--id", "bottle"],
            "new.csv has no row with this value in 'bottle'. Did you mean 'b3'?",
        ),
        (["lda.nf", "new.csv", "--row", "b3", "--id", "botle"], "Did you mean 'bottle'?"),
        (["lda.nf", "new.csv", "--row", "1", "--out", "x.png"], "the name must end with .html"),
        (["lda.nf", "new.csv", "--row", "1", "--out", "new.csv", "--force"], "is also the data"),
        (["mvem-classifier.nf", "new.csv", "--row", "1"], "MVEMClassifier cannot explain which"),
        (["lda.nf", "iris", "--row", "1"], "has no column names"),
    ],
)
def test_what_cannot_be_done_is_said(here, capsys, words, said):
    assert run(*words) == 2
    assert said in capsys.readouterr().err


def test_columns_that_are_missing_are_named(here, capsys):
    pd.read_csv("new.csv").drop(columns="hue").to_csv(here / "few.csv", index=False)
    assert run("lda.nf", here / "few.csv", "--row", 1) == 2
    assert "lacks 'hue', which the model was fitted on" in capsys.readouterr().err


def test_models_that_predict_no_classes_or_keep_too_little(here, capsys, monkeypatch):
    from nearfar.app.compare import explaining

    monkeypatch.setattr(explaining, "MOST_KEPT", 100)
    fit = ["fit", "wine.csv", "--target", "kind", "--method", "lda", "--components", "2"]
    fit += ["-k", "3", "--scale", "none"]
    assert main([*fit, "--save", str(here / "small.nf")]) == 0
    assert run(here / "small.nf", "new.csv", "--row", 1) == 2
    assert "keeps only mapped rows" in capsys.readouterr().err
    fit = ["fit", "wine.csv", "--target", "alcohol", "--task", "regression", "--method", "raw"]
    assert main([*fit, "-k", "3", "--save", str(here / "value.nf")]) == 0
    assert run(here / "value.nf", "new.csv", "--row", 1) == 2
    assert "does not predict labels" in capsys.readouterr().err


def test_told_has_the_voters_that_a_tie_left_out():
    knn = KNNClassifier(n_neighbors=4).fit([[0.0, 0], [1, 0], [3, 0], [4, 0]], list("abba"))
    row = told(knn.explain([[0.1, 0.0]]), 0)
    assert row["n_deciding"] == 3
    assert [voter["agrees"] for voter in row["voters"]] == [False, True, True, False]
