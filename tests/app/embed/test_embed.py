"""``nearfar embed`` as a user runs it, its page, and what is said of an embedding."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_wine, make_swiss_roll
from sklearn.manifold import trustworthiness
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tensor_learners import stripes

pytest.importorskip("jinja2", reason="the page needs jinja2")

from nearfar import MVU, PCA, Isomap, VariationalMVU, load
from nearfar.app.cli import main
from nearfar.app.embed import embedding, methods, write_embedding
from nearfar.app.embed import facts as embedding_facts
from nearfar.app.progress import FitProgress, PlainFitProgress
from nearfar.app.tables.colors import colors
from nearfar.datasets import read_table
from nearfar.evaluation import neighborhood_intersection


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def roll(here):
    """A rolled sheet of 200 rows with an ID and the angle along it."""
    X, angle = make_swiss_roll(200, random_state=0)
    frame = pd.DataFrame(X, columns=["x", "y", "z"])
    frame.insert(0, "id", np.arange(200) + 7000)
    frame["angle"] = angle
    frame["half"] = np.where(angle > np.median(angle), "outer", "inner")
    frame.to_csv("roll.csv", index=False)
    return frame


ROLL = ["roll.csv", "--drop", "angle", "--drop", "half", "--neighbors", "5"]


def run(*words):
    return main(["embed", *(str(word) for word in words)])


class Page(HTMLParser):
    """A page taken apart: texts, the JSON of the points, attributes."""

    def __init__(self, path):
        super().__init__()
        self.words, self.scripts, self.elements, self.inside = [], [], [], []
        self.source = path.read_text("utf-8")
        self.feed(self.source)
        self.text = re.sub(r"\s+", " ", " ".join(self.words)).replace(" : ", ": ")

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.inside.append((tag, dict(attributes).get("id")))

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1][0] == tag:
            self.inside.pop()

    def handle_data(self, data):
        if not self.inside:
            self.words.append(data)
        elif self.inside[-1] == ("script", "points"):
            self.scripts.append(data)

    @property
    def points(self):
        return json.loads("".join(self.scripts))

    def array(self, key, kind):
        return np.frombuffer(base64.b64decode(self.points[key]), kind)

    def all(self, tag, **wanted):
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(k.rstrip("_")) == v for k, v in wanted.items())
        ]


# The command


def test_mvu_prints_and_writes_picture_certificate_quality_and_spectrum(roll, here, capsys):
    assert run(*ROLL, "--method", "mvu", "--color", "angle", "--csv", "places.csv") == 0
    out = "".join(capsys.readouterr())
    places = pd.read_csv("places.csv").to_numpy()
    mvu = MVU(n_neighbors=5).fit(roll[["x", "y", "z"]].to_numpy())
    np.testing.assert_allclose(places, mvu.embedding_, rtol=1e-9, atol=1e-9)
    page = Page(here / "embedding.html")
    for text in (out, page.text):
        assert "MVU unfolded 200 rows in 2 dimensions: they hold" in text
        assert "below the best possible variance" in text
        assert "Residual: " in text
        assert f"the data look {mvu.intrinsic_dim_}-dimensional" in text
        assert "Left out: column 'id': a different whole number in every row" in text
    kept = neighborhood_intersection(roll[["x", "y", "z"]], mvu.embedding_)
    assert f"{100 * kept:.1f}% are among its nearest in the picture" in out
    assert f"Neighbors kept       {kept:.3f}" in out
    ranked = trustworthiness(roll[["x", "y", "z"]], mvu.embedding_, n_neighbors=15)
    assert f"Trustworthiness      {ranked:.3f}" in out
    assert "Page: embedding.html" in out and "Coordinates: places.csv" in out


def test_the_page_holds_the_places_the_colours_and_the_edges(roll, here):
    assert run(*ROLL, "--method", "isomap", "--color", "angle") == 0
    page = Page(here / "embedding.html")
    points = page.points
    isomap = Isomap(n_neighbors=5).fit(roll[["x", "y", "z"]].to_numpy())
    drawn = page.array("places", "<f4").reshape(200, 2).astype(float)
    # But for a shift and one scale.
    half = np.ptp(isomap.embedding_, axis=0).max() / 2
    moved = isomap.embedding_ / half
    np.testing.assert_allclose(drawn - drawn.mean(0), moved - moved.mean(0), atol=1e-5)
    np.testing.assert_allclose(page.array("values", "<f4"), roll["angle"], rtol=1e-6)
    codes = page.array("codes", "u1")
    assert codes.max() == 15 and codes.min() == 0
    assert np.corrcoef(codes, roll["angle"])[0, 1] > 0.99
    edges = page.array("edges", "<u4").reshape(-1, 2)
    X = roll[["x", "y", "z"]].to_numpy()
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    near = np.argsort(distances, axis=1)[:, 1:6]
    expected = {tuple(sorted((i, int(j)))) for i in range(200) for j in near[i]}
    assert {tuple(sorted(map(int, pair))) for pair in edges} == expected
    # The ID comes first where one points, then the columns in use.
    assert points["columns"] == ["id", "x", "y", "z"] and points["n_ids"] == 1
    assert points["cells"][0][:2] == ["7000", "7001"]
    assert points["cells"][1][0] == f"{roll['x'][0]:.4g}"
    assert points["color"] == "angle"


def test_without_script_there_is_a_picture_with_words(roll, here):
    assert run("roll.csv", "--drop", "angle", "--method", "pca", "--components", "3") == 0
    page = Page(here / "embedding.html")
    still = page.all("svg", class_="still")[0]
    assert still["role"] == "img" and "200 rows in 3 dimensions" in still["aria-label"]
    dots = page.all("path", class_="dot s0")
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", dots[0]["d"])) == 200
    x, y = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", dots[0]["d"]), float).T
    assert x.min() >= 0 and x.max() <= 1000 and y.min() >= 0 and y.max() <= 620
    # What needs the script is hidden until it runs.
    assert "hidden" in page.all("canvas")[0]
    assert "hidden" in next(a for a in page.all("div") if a.get("id") == "tools")
    assert page.source.count("http://") + page.source.count("https://") == 0


def test_labels_colour_the_picture_and_are_no_feature(here):
    assert run("wine", "--method", "pca") == 0
    page = Page(here / "embedding.html")
    assert page.points["names"] == ["class_0", "class_1", "class_2"]
    assert page.array("codes", "u1").tolist() == load_wine().target.tolist()
    assert page.words[page.words.index("Features") + 1] == "13"


def test_a_target_is_guessed_by_name_but_y_beside_x_is_a_coordinate(here, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["x", "y"])
    frame.to_csv("points.csv", index=False)
    assert run("points.csv", "--method", "pca") == 0
    assert "points.csv: 60 rows, 2 features." in capsys.readouterr().err
    frame["class"] = rng.integers(0, 3, 60)
    frame.to_csv("points.csv", index=False)
    assert run("points.csv", "--method", "pca", "--force") == 0
    out = capsys.readouterr().err
    assert "Target: column 'class', guessed from its name." in out
    assert "60 rows, 2 features" in out
    # Where a target is needed, y is one as before.
    frame.drop(columns="class").to_csv("points.csv", index=False)
    assert read_table("points.csv").target == "y"


@pytest.mark.parametrize("method", sorted(methods.embedders()))
def test_every_embedding_draws_a_page(here, method):
    if methods.embedders()[method].learner_tags.input == "tensors":
        X, y = stripes(70)
        np.savez("roll.npz", X=X, y=y)
        name = "roll.npz"
    else:
        np.save("roll.npy", make_swiss_roll(70, random_state=1)[0])
        name = "roll.npy"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # warnings are words on the page, not noise
        assert run(name, "--method", method, "--csv", "places.npy") == 0
    places = np.load("places.npy")
    assert places.shape == (70, 2) and np.isfinite(places).all()
    text = Page(here / "embedding.html").text
    certified = method in ("mvu", "variational-mvu", "landmark-mvu")
    assert ("below the best possible" in text or "nothing proven" in text) == certified
    assert ("No certificate" in text) == (not certified)


def test_methods_are_found_however_they_are_written():
    names = ["HessianLLE", "hessian-lle", "hessian_lle", "hessianlle"]
    assert {methods.find_embedder(name).__name__ for name in names} == {"HessianLLE"}


def test_parameters_reach_the_learner(roll, here):
    words = ["--set", "constraints=equality", "--set", "tol=1e-4", "--set", "angles=False"]
    learner = methods.make_embedder("mvu", 3, 4, words[1::2])
    assert learner.get_params()["constraints"] == "equality"
    assert learner.get_params()["tol"] == 1e-4 and learner.get_params()["angles"] is False
    assert (learner.n_components, learner.n_neighbors) == (3, 4)


def test_more_than_three_components_go_into_the_table(here):
    assert run("wine", "--method", "pca", "--components", "5", "--csv", "c.csv") == 0
    table = pd.read_csv("c.csv")
    assert table.shape == (178, 5)
    scaled = StandardScaler().fit_transform(load_wine().data)
    np.testing.assert_allclose(table, PCA(5).fit(scaled).transform(scaled), atol=1e-9)
    assert Page(here / "embedding.html").points["q"] == 3


def test_columns_of_unlike_spread_are_standardised_and_said(here, capsys):
    run("wine", "--method", "pca", "--csv", "c.npy")
    assert "Standardised: the columns' standard deviations differ" in capsys.readouterr().err
    scaled = StandardScaler().fit_transform(load_wine().data)
    assert abs(np.load("c.npy")[:, 0].var() - PCA(1).fit(scaled).transform(scaled).var()) < 1e-9
    run("wine", "--method", "pca", "--csv", "c.npy", "--scale", "none", "--force")
    assert "Standardised" not in capsys.readouterr().err
    assert np.load("c.npy")[:, 0].var() > 9e4


def test_the_lines_of_python_repeat_the_embedding(roll, here):
    roll.loc[3, "x"] = None
    roll.to_csv("roll.csv", index=False)
    assert run(*ROLL, "--scale", "standard", "--method", "mvu", "--csv", "c.npy") == 0
    page = (here / "embedding.html").read_text("utf-8")
    code = re.search(r'<code id="code">(.*?)</code>', page, re.S)[1]
    names: dict = {}
    exec(code.replace("&#39;", "'").replace("&#34;", '"'), names)
    np.testing.assert_allclose(names["embedding"], np.load("c.npy"), atol=1e-8)


def test_missing_values_are_filled_in_and_said(roll, here, capsys):
    roll.loc[[3, 5], "x"] = None
    roll.to_csv("roll.csv", index=False)
    assert run(*ROLL, "--method", "pca") == 2  # pca has no neighbours
    assert run(*ROLL[:-2], "--method", "pca") == 0
    assert "2 missing values filled in: numbers by the median" in capsys.readouterr().err


def test_a_saved_model_places_new_rows(roll, here, capsys):
    assert run(*ROLL, "--method", "isomap", "--save", "roll.nf", "--csv", "c.csv") == 0
    assert "Saved: roll.nf" in capsys.readouterr().out
    roll.head(20).to_csv("new.csv", index=False)
    assert main(["transform", "roll.nf", "new.csv", "--out", "placed.csv"]) == 0
    placed, known = pd.read_csv("placed.csv"), pd.read_csv("c.csv")
    assert placed.shape == (20, 2)
    np.testing.assert_allclose(placed, known.head(20), atol=1e-6)
    assert load("roll.nf").named_steps["learner"].n_components == 2


def test_images_are_shown(here):
    digits = load_digits()
    frame = pd.DataFrame(digits.data[:60])
    frame["kind"] = digits.target[:60]
    frame.to_csv("digits.csv", index=False)
    words = ["digits.csv", "--target", "kind", "--images", "8x8", "--method", "pca"]
    assert run(*words) == 0
    points = Page(here / "embedding.html").points
    assert len(points["images"]) == 60
    assert all(image.startswith("data:image/png;base64,") for image in points["images"])
    assert points["columns"] == []
    assert run(*words, "--no-rows", "--force") == 0
    hidden = Page(here / "embedding.html")
    assert hidden.points["images"] == [] and "data:image/png" not in hidden.source


def test_rows_can_be_kept_out_of_the_page(roll, here):
    assert run(*ROLL, "--method", "isomap", "--no-rows") == 0
    page = Page(here / "embedding.html")
    assert page.points["columns"] == [] and "7123" not in page.source
    assert "contents of rows are not shown, as asked" in page.text


def test_nothing_is_overwritten_unless_asked(roll, here, capsys):
    for _ in range(2):
        assert run(*ROLL[:-2], "--method", "pca") == 0
    assert (here / "embedding-2.html").exists()
    capsys.readouterr()
    assert run("roll.csv", "--method", "pca", "--out", "embedding.html") == 2
    assert "embedding.html exists. Choose another --out, or add --force" in capsys.readouterr().err
    assert run("roll.csv", "--out", "a.html", "--csv", "roll.csv", "--force") == 2
    assert "--csv roll.csv is also the data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--method", "isomapp"],
            r"no such embedding\. Did you mean isomap, landmark-isomap or .*\? See",
        ),
        (["--method", "pca", "--neighbors", "3"], "--neighbors 3: pca reads no neighbours"),
        (["--color", "anglle"], "--color anglle: .* Did you mean 'angle'"),
        (["--color", "name"], "'name': it has 200 different texts, but marks can tell 60 apart"),
        (["--drop", "zz"], "drop: there is no column 'zz'"),
        (["--neighbors", "300"], r"--neighbors 300 must be less than .* 200\."),
        (
            ["--set", "slack_penality=1"],
            "mvu has no parameter 'slack_penality'. Did you mean 'slack_penalty'",
        ),
        (["--set", "slack_penalty"], "--set slack_penalty: write it as name=value"),
        (["--set", "n_neighbors=3"], "--set n_neighbors=3: say --neighbors 3"),
        (["--set", "constraints=none"], "constraints must be 'inequality' or"),
        (["--images", "9x9"], "81 numbers, but the rows of .* have 7"),
        (["--out", "a.png"], "--out a.png: the page is HTML"),
        (["--csv", "a.txt"], "the name must end with .csv"),
        (["--out", "no/a.html"], "the folder no does not exist"),
        (["--target", "kindd"], "--target kindd: roll.csv has no such column"),
    ],
)
def test_what_cannot_be_done_is_said(roll, here, capsys, words, said):
    roll["name"] = [f"row {chr(97 + i % 26)}{i}" for i in range(200)]
    roll.to_csv("roll.csv", index=False)
    assert run("roll.csv", *words) == 2
    error = capsys.readouterr().err
    assert re.search(said, error), error
    assert "Traceback" not in error
    assert not (here / "embedding.html").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n3,4\n", "tiny.csv has 2 rows; an embedding needs 3 at least"),
        ("a,b\n1,2\n3,4\n5,9\n", "--neighbors 5 must be less than the number of distinct rows"),
        ("a,b\n1,2\n1,2\n1,2\n1,2\n", "No column is left"),
    ],
)
def test_tables_that_are_too_small_are_refused_in_words(here, capsys, text, said):
    (here / "tiny.csv").write_text(text)
    assert run("tiny.csv") == 2
    assert said in capsys.readouterr().err


# What is warned of


def test_parts_and_duplicates_are_said_in_words(here, capsys):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(20, 3)), rng.normal(size=(20, 3)) + 50])
    np.save("parts.npy", np.concatenate([X, X[:3]]))
    assert run("parts.npy", "--neighbors", "4") == 0
    out = capsys.readouterr().err
    text = Page(here / "embedding.html").text
    for words in (out, text):
        assert "3 rows equal to an earlier one: share their places" in words
        assert "falls into 2 parts" in words
        assert "Increase --neighbors if the parts belong together" in words


def test_lock_up_is_said(here, capsys):
    # Six neighbours in three dimensions, all angles kept: nothing can move.
    X = make_swiss_roll(120, random_state=0)[0]
    np.save("roll.npy", X)
    words = ["roll.npy", "--neighbors", "8", "--set", "constraints=equality"]
    assert run(*words) == 0
    out = capsys.readouterr().err
    assert "Locked up: the edges let nothing move" in out
    assert "Lower --neighbors, or take --set constraints=inequality, l1 or squared." in out
    page = Page(here / "embedding.html")
    assert "Locked up" in page.words
    assert "the picture is that of PCA" in page.text


def test_flat_data_are_called_flat_not_locked():
    X = np.random.default_rng(0).uniform(size=(40, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no strictly feasible point
        mvu = MVU(constraints="equality", n_neighbors=6, tol=1e-4).fit(X)
    assert mvu.locked_up_
    assert "flat already" in embedding_facts.lock_up(mvu)


class Certified:
    """What the words look at."""

    def __init__(self, gap, residual=1e-7, **more):
        self.duality_gap_, self.primal_residual_ = gap, residual
        self.dual_bound_, self.objective_ = 1.0, 1.0 - gap
        self.__dict__.update({"constraints": "inequality", **more})


@pytest.mark.parametrize(
    ("gap", "kind", "said"),
    [
        (0.004, "settled", "At most 0.4% below the best possible variance. Proven"),
        (-1e-12, "settled", "Less than 0.0001% below the best possible variance"),
        (0.05, "near", "At most 5.0% below the best possible variance. Proven, but"),
        (0.4, "far", "too much to call the picture settled"),
        (1.7, "far", "Nothing proven about the best possible variance"),
        (np.inf, "far", "Nothing proven"),
    ],
)
def test_the_certificate_in_words(gap, kind, said):
    found = embedding_facts.certificate(Certified(gap))
    assert found["kind"] == kind
    assert said in found["text"]
    assert "Residual: " in found["text"]


def test_the_certificate_of_slack_and_of_the_least_variance():
    slack = embedding_facts.certificate(Certified(0.02, 0.3, constraints="squared"))["text"]
    assert "best possible objective, the variance less the price of slack" in slack
    assert "the worst squared length by 30%" in slack
    least = Certified(0.02, constraints="equality", objective="min")
    assert "above the least possible variance" in embedding_facts.certificate(least)["text"]


def test_a_spectrum_that_says_more_dimensions_warns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6)) * [9, 8, 7, 6, 0.01, 0.01]
    found = embedding_facts.spectrum(PCA(6).fit(X), 2)
    assert found["dimension"] == 4
    assert "the picture leaves out two coordinates that matter" in found["text"]
    assert abs(sum(found["shares"]) - 1) < 1e-9
    # Two of six known: their share of all variance, and no dimension made up.
    few = embedding_facts.spectrum(PCA(2).fit(X), 2)
    assert abs(few["drawn"] - sum(found["shares"][:2])) < 1e-12
    assert few["dimension"] is None
    isomap = embedding_facts.spectrum(Isomap(n_neighbors=10).fit(X), 2)
    assert "ask for more components" in isomap["text"]


def test_quality_of_many_rows_is_judged_on_some(monkeypatch):
    monkeypatch.setattr(embedding_facts, "_MOST_ROWS", 50)
    X = np.random.default_rng(0).normal(size=(80, 3))
    found = embedding_facts.quality(X, X[:, :2])
    assert found["n_rows"] == 50 and "a random 50 of 80 rows" in found["text"]
    assert embedding_facts.quality(X[:2], X[:2])["measures"] == []


# Colours


def test_colours_of_every_kind():
    assert colors([3, 1, 1], "k")["classes"] == ["1", "3"]
    assert colors(np.arange(30), "k")["kind"] == "numbers"
    assert colors(np.arange(30), "k", few=60)["kind"] == "classes"
    assert colors([True, False], "k")["classes"] == ["False", "True"]
    assert colors(["a10", "a9", None], "k")["classes"] == ["a9", "a10"]
    gaps = colors(np.array([1.5, None, 2.5], dtype=object), "k")
    assert gaps["kind"] == "numbers" and np.isnan(gaps["values"][1])
    assert colors(pd.Series([1, None, 2], dtype="Int64").to_numpy(), "k")["codes"].tolist() == [
        0,
        -1,
        1,
    ]
    with pytest.raises(ValueError, match="61 different texts"):
        colors([f"t{i}" for i in range(61)], "k")


def test_far_values_leave_shades_for_the_others(here):
    rng = np.random.default_rng(0)
    values = rng.uniform(size=300)
    values[0] = 1e6
    X = rng.normal(size=(300, 3))
    page = Page(write_embedding(PCA(2).fit(X), X, "a.html", color=values))
    assert len(set(page.array("codes", "u1"))) == 16
    assert "≥" in page.text


def test_hostile_texts_stay_texts(here):
    evil = "</script><script>window.hacked=1</script>"
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=[evil, "b"])
    labels = [evil, "<img src=x onerror=alert(1)>"] * 15
    path = write_embedding(PCA(2).fit(frame), frame, "a.html", color=labels, name=evil)
    page = Page(path)
    assert [a.get("type") for a in page.all("script")] == ["application/json", None]
    assert page.all("img") == []
    assert set(page.points["names"]) == {evil[:39] + "…", labels[1]}


# From Python


def test_write_embedding_takes_learners_pipelines_and_others(here):
    X, y = load_wine(return_X_y=True)
    chain = make_pipeline(StandardScaler(), Isomap(n_neighbors=10)).fit(X)
    page = Page(write_embedding(chain, X, "a.html", color=y, color_name="grower", name="wines"))
    assert "Isomap drew 178 rows" in page.text and page.points["color"] == "grower"
    assert page.points["cells"][0][0] == f"{X[0, 0]:.4g}"  # as they are, not scaled
    from sklearn.manifold import TSNE

    other = TSNE(init="pca", perplexity=20, max_iter=250).fit(X)
    text = Page(write_embedding(other, X, "b.html")).text
    assert "TSNE proves nothing about its result" in text
    one = PCA(1).fit(X)
    assert Page(write_embedding(one, X, "c.html")).points["q"] == 2


def test_write_embedding_refuses_what_does_not_fit(here):
    X = load_wine().data
    pca = PCA(2).fit(X)
    with pytest.raises(ValueError, match="color has 3 values for 178 rows"):
        write_embedding(pca, X, "a.html", color=[1, 2, 3])
    with pytest.raises(ValueError, match="image_shape=\\(3, 3\\) has 9 numbers"):
        write_embedding(pca, X, "a.html", image_shape=(3, 3))
    with pytest.raises(ValueError, match="not fitted"):
        write_embedding(PCA(2), X, "a.html")
    write_embedding(pca, X, "a.html")
    with pytest.raises(FileExistsError):
        write_embedding(pca, X, "a.html")


def test_very_many_rows_are_drawn_in_part(here, monkeypatch):
    monkeypatch.setattr("nearfar.app.embed.kinds.rows.MOST_POINTS", 100)
    X = np.random.default_rng(0).normal(size=(300, 3))
    page = Page(write_embedding(PCA(2).fit(X), X, "a.html"))
    assert page.points["n"] == 100 and "A random 100 of 300 rows" in page.text
    rows = page.array("rows", "<u4")
    assert len(set(rows.tolist())) == 100 and rows.max() < 300
    assert page.points["cells"][0][7] == f"{X[rows[7], 0]:.4g}"
    assert page.points["edges"] is None


# Progress and Ctrl-C


class Watcher(FitProgress):
    def __init__(self, stop_at=None):
        self.rows, self.stop_at = [], stop_at

    def step(self, row):
        self.rows.append(row)
        if len(self.rows) == self.stop_at:
            raise KeyboardInterrupt


def test_each_step_tells_gap_and_residual():
    X = make_swiss_roll(150, random_state=0)[0]
    for solver in ("low_rank", "interior_point"):
        learner, watcher = MVU(solver=solver, n_neighbors=4), Watcher()
        embedding.fit_watched(learner, X[:70], watcher)
        gaps = [row["gap"] for row in watcher.rows]
        assert len(gaps) > 3 and gaps[-1] < 1e-4 and gaps[-1] < gaps[0]
        assert all(row["residual"] >= 0 for row in watcher.rows)
        assert "callback" not in vars(learner)  # a function could not be saved
    watcher = Watcher()
    embedding.fit_watched(VariationalMVU(bound_iter=5, max_iter=7), X, watcher)
    assert [row["stage"] for row in watcher.rows[:1]] == ["unfolding"]
    assert {"flattening", "proving the bound"} < {row["stage"] for row in watcher.rows}
    assert all(row["n_iter"] <= row["of"] and row["residual"] >= 0 for row in watcher.rows)


def test_plain_lines_grow_rarer(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 2.5, 3.0, 6.0, 11.0])
    monkeypatch.setattr("nearfar.app.progress.monotonic", lambda: next(clock))
    progress = PlainFitProgress(sys.stdout)
    progress.begin("MVU", 1000, 1e-6)
    for gap in (0.5, 0.2, 0.1, 0.05, 0.001):
        progress.step({"gap": gap, "residual": 1e-3, "seconds": 0})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "Fitting MVU to 1,000 rows.",
        "  2 s: gap 20.0%, residual 1.0e-03",
        "  6 s: gap 5.0%, residual 1.0e-03",
    ]


def test_a_terminal_shows_a_bar_that_fills():
    rich = pytest.importorskip("rich.console")
    import io

    from nearfar.app.live import LiveFit

    bar = LiveFit()
    bar._console = rich.Console(file=io.StringIO(), force_terminal=True, width=120)
    bar.begin("MVU", 1000, 1e-6)
    shares = []
    for gap in (0.5, 1e-3, 1e-6):
        bar.step({"gap": gap, "residual": 1e-3, "seconds": 0})
        shares.append(bar._share)
    with bar._console.capture() as seen:
        bar._console.print(bar._line())
    bar.close()
    assert shares == pytest.approx([0.05, 0.5, 1.0], abs=0.01)
    assert "gap 1.0e-06, residual 1.0e-03" in seen.get()


def test_ctrl_c_writes_the_best_so_far(roll, here, capsys, monkeypatch):
    steps = []

    def step(self, row):
        steps.append(row)
        if len(steps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(PlainFitProgress, "step", step)
    assert run(*ROLL, "--csv", "c.npy") == 130
    err = capsys.readouterr().err
    assert "Interrupted: writing the best embedding so far. Press Ctrl-C again to skip this." in err
    page = Page(here / "embedding.html")
    assert "Stopped early" in page.words
    assert "The fit was stopped; this is the best it had found." in page.text
    assert np.isfinite(np.load("c.npy")).all()


def test_a_second_ctrl_c_ends(roll, here, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(PlainFitProgress, "step", interrupt)
    monkeypatch.setattr("nearfar.app.embed.facts.embedding_quality", interrupt)
    assert run(*ROLL) == 130
    assert "nearfar: interrupted" in capsys.readouterr().err
    assert not (here / "embedding.html").exists()


@pytest.mark.parametrize("solver", ["low_rank", "interior_point"])
def test_ctrl_c_before_the_first_step_leaves_nothing(solver, monkeypatch):
    from nearfar.solvers import unfolding_interior, unfolding_low_rank

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(unfolding_low_rank._Iterate, "measure", interrupt)
    monkeypatch.setattr(unfolding_interior._Path, "measure", interrupt)
    mvu = MVU(solver=solver)
    with pytest.raises(KeyboardInterrupt):
        mvu.fit(make_swiss_roll(60, random_state=0)[0])
    assert not hasattr(mvu, "embedding_")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupted_process_still_writes_its_page(here, default_signals):
    np.save("roll.npy", make_swiss_roll(3000, random_state=0)[0])
    command = [sys.executable, "-u", "-m", "nearfar", "embed", "roll.npy", "--set", "tol=1e-300"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 300
    for line in process.stdout:
        if " s: gap" in line:  # it is under way
            break
        assert time.monotonic() < deadline, line
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=300)[0]
    assert process.returncode == 130, rest
    assert "Interrupted: writing the best embedding so far" in rest
    assert "Stopped early" in Page(here / "embedding.html").words
