"""nearfar.compare from data to answer: its rules, its traps, its workers."""

import base64
import json
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from nearfar import LDA, RCA, compare
from nearfar.app.compare.driver import answer
from nearfar.app.compare.methods import learners
from nearfar.app.compare.question import Question
from nearfar.app.compare.schedule import Schedule
from nearfar.app.tables.images import data_uri, pictures
from nearfar.app.tables.inputs import as_table
from nearfar.base import LearnerTags, LinearLearner
from nearfar.datasets.tables import DataFile

QUICK = {"cv": 3, "repeats": 1, "tuning": "k", "context": False, "isolate": False, "verbose": False}
FIVE = QUICK | {"cv": 5}


class First(TransformerMixin, BaseEstimator):
    """The first column: as quick as a learner can be."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X)[:, :1]


def methods_of(result):
    return {method["name"]: method for method in result.document["methods"]}


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return compare(
        X,
        y,
        methods={"lda": LDA(), "rca": RCA()},
        repeats=2,
        context=False,
        isolate=False,
        verbose=False,
    )


# What comes out


def test_the_document_is_plain_data(wine):
    text = json.dumps(wine.document, allow_nan=False)
    assert json.loads(text) == wine.document


def test_the_reference_is_the_best_baseline_inside_each_training_fold(wine):
    rows = methods_of(wine)
    baselines = [rows[name] for name in ("raw", "standardized", "cosine", "whitened")]
    for fold, result in enumerate(rows["reference"]["results"]):
        inner = [row["results"][fold]["inner_error"] for row in baselines]
        chosen = baselines[int(np.argmin(inner))]
        assert result["baseline"] == chosen["name"]
        assert result["error"] == chosen["results"][fold]["error"]


def test_the_reference_is_not_chosen_by_its_test_error():
    # Choosing the baseline with the lowest test error in each fold would be optimistic.
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), rng.integers(0, 2, 60)
    rows = methods_of(compare(X, y, methods=["lda"], **QUICK))
    per_fold = np.array(
        [
            [result["error"] for result in rows[name]["results"]]
            for name in ("raw", "standardized", "cosine", "whitened")
        ]
    )
    reference = [result["error"] for result in rows["reference"]["results"]]
    assert np.mean(reference) > per_fold.min(axis=0).mean()


def test_nested_selection_picks_by_inner_error_and_counts_the_outer(wine):
    rows = methods_of(wine)
    candidates = [rows["reference"], rows["lda"], rows["rca"]]
    errors, chosen = [], []
    for fold in range(10):
        inner = [row["results"][fold]["inner_error"] for row in candidates]
        best = candidates[int(np.argmin(inner))]
        chosen.append(best["name"])
        errors.append(best["results"][fold]["error"])
    nested = wine.document["nested"]
    assert nested["error"] == pytest.approx(np.mean(errors))
    assert nested["chosen"] == {name: chosen.count(name) for name in set(chosen)}


def test_a_classifier_without_a_distance_stands_for_context():
    from sklearn.linear_model import LogisticRegression

    X, y = load_wine(return_X_y=True)
    methods = {"logit": LogisticRegression(), "lda": LDA()}
    result = compare(X, y, methods=methods, **QUICK | {"tuning": "holdout"})
    logit = methods_of(result)["logit"]
    assert logit["role"] == "context" and logit["p_holm"] is None
    # Scaling is tuned for it as for a learner.
    assert "standardized" in {r["setting"] for r in logit["results"]}
    assert all(r["inner_error"] is not None and r["k"] is None for r in logit["results"])
    assert "logit" not in result.document["nested"]["chosen"]


def test_differences_are_paired_and_corrected(wine):
    rows = methods_of(wine)
    errors = {
        name: np.array([result["error"] for result in rows[name]["results"]])
        for name in ("reference", "lda")
    }
    difference = errors["lda"] - errors["reference"]
    assert rows["lda"]["difference"] == pytest.approx(difference.mean())
    share = np.mean([f["n_test"] / f["n_train"] for f in wine.document["folds"]])
    one_row = np.mean([1 / f["n_test"] for f in wine.document["folds"]])
    variance = max(difference.var(ddof=1), one_row**2)
    half = 2.2621571628 * np.sqrt((0.1 + share) * variance)  # t, 9 degrees
    assert rows["lda"]["difference_interval"] == pytest.approx(
        [difference.mean() - half, difference.mean() + half]
    )


def test_the_table_and_the_folds_are_frames(wine):
    assert isinstance(wine.table, pd.DataFrame) and wine.table.loc["lda", "folds_done"] == 10
    assert len(wine.folds) == 10 * len(wine.table)
    assert wine.best in ("reference", "lda", "rca")


def test_it_shows_itself(wine):
    text = str(wine)
    assert (
        text.endswith(f"\n\n{wine.answer}") and "Standardized Euclidean" in text and "10/10" in text
    )
    html = wine._repr_html_()
    assert "<table>" in html and wine.answer.split(":")[0] in html


def test_names_of_the_user_are_escaped_in_a_notebook():
    X, y = load_iris(return_X_y=True)
    result = compare(X, y, methods={"<b>x</b>": LDA()}, **QUICK)
    assert "<b>x</b>" not in result._repr_html_()


def test_files_are_not_overwritten(wine, tmp_path):
    path = wine.to_json(tmp_path / "a.json")
    assert json.loads(path.read_text())["best"] == wine.best
    with pytest.raises(FileExistsError, match="a.json exists"):
        wine.to_json(path)
    wine.to_json(path, force=True)
    report = wine.to_html(tmp_path / "a.html")
    with pytest.raises(FileExistsError):
        wine.to_html(report)


@pytest.fixture
def few_k(monkeypatch):
    """k up to 4: the lines are as long, and scikit-learn has a quarter of the work."""
    for module in ("folds", "lines"):
        monkeypatch.setattr(f"nearfar.app.compare.{module}.MAX_K", 4)


def run_lines(code, **names):
    """Run printed lines; what they print, as a number."""
    lines = code.replace("print(", "printed.append(")
    space = {"printed": [], **names}
    exec(compile(lines, "lines", "exec"), space)
    return float(space["printed"][-1])


@pytest.mark.by_turns(2)
@pytest.mark.usefixtures("few_k")
@pytest.mark.parametrize("tuning", ["full", "holdout"])
def test_the_printed_lines_of_a_grid_give_the_same_error(tuning):
    same_error(tuning)


def test_the_printed_lines_give_the_same_error():
    assert "range(1, 16)" in same_error("k").code


def same_error(tuning):
    X, y = load_wine(return_X_y=True)
    result = compare(
        X,
        y,
        methods=["lda"],
        repeats=1,
        cv=2,
        tuning=tuning,
        min_gain=0.0,
        context=False,
        isolate=False,
        verbose=False,
    )
    error = methods_of(result)[result.best]["error"]
    assert run_lines(result.code, X=X, y=y) == pytest.approx(error, abs=1e-12)
    return result


@pytest.mark.usefixtures("few_k")
def test_the_printed_lines_have_the_folds_in_time_that_were_asked_for():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    y[:40] = 1  # a first fold, of four, that is left out
    options = {"cv": 4, "tuning": "holdout", "methods": ["lda"], "min_gain": 0.0}
    result = compare(X, y, **QUICK | options, time=np.arange(len(X)))
    assert "3 folds in time" in str(result)
    error = methods_of(result)[result.best]["error"]
    printed = run_lines(result.code, X=X, y=y, time=np.arange(len(X)))
    assert printed == pytest.approx(error, abs=1e-12)


def messy(n=200):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n) * 100})
    frame["c"] = np.where(rng.random(n) < 0.5, "u", "v")
    frame["id"] = np.arange(n)
    frame["kind"] = np.where(frame["a"] + 0.3 * rng.normal(size=n) > 0, "yes", "no")
    frame.loc[::17, "a"] = np.nan
    frame["group"] = np.arange(n) // 4
    frame["day"] = rng.permutation(n) // 3
    return frame


@pytest.mark.by_turns(4)
@pytest.mark.usefixtures("few_k")
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"groups": "group"},
        {"time": "day"},
        {"test": "test.csv"},
        {"test": "test.csv", "groups": "group"},
    ],
)
def test_the_printed_lines_run_as_they_are_on_a_file(extra, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    messy().to_csv("messy.csv", index=False)
    messy(80).assign(group=lambda frame: frame["group"] + 1000).to_csv("test.csv", index=False)
    options = {key: value for key, value in QUICK.items() if key != "verbose"}
    options |= {"tuning": "holdout", "min_gain": 0.0, "target": "kind", **extra}
    if "test" not in extra and "time" not in extra:
        options["cv"] = 2
    drop = [] if {"groups", "time"} & set(extra) else ["group", "day"]
    result = answer(Question(DataFile("messy.csv"), methods=["lda"], drop=drop, **options))
    error = methods_of(result)[result.best]["error"]
    assert run_lines(result.code) == pytest.approx(error, abs=1e-12)


@pytest.mark.usefixtures("few_k")
def test_the_printed_lines_of_own_folds():
    from sklearn.model_selection import ShuffleSplit

    frame = messy().drop(columns=["group", "day"])
    y = frame.pop("kind").to_numpy()
    cv = ShuffleSplit(3, random_state=0)
    result = compare(frame, y, methods=["lda"], **(QUICK | {"cv": cv}))
    # Untuned, the lines are of the standard distance to be kept, if no learner is recommended.
    roles = {"baseline"} if result.best == "reference" else {"learner"}
    error = min(m["error"] for m in methods_of(result).values() if m["role"] in roles)
    assert run_lines(result.code, X=frame, y=y, cv=cv) == pytest.approx(error, abs=1e-12)


# Kinds of data


def test_images_are_kept_as_images():
    X = np.random.default_rng(0).random((40, 4, 4))
    result = compare(X, np.arange(40) % 2, methods=["lda"], **QUICK)
    assert result.document["data"]["image_shape"] == [4, 4]
    assert all(uri.startswith("data:image/png") for uri in result.document["images"].values())
    assert result.document["rows"]["values"] == {}


def test_large_images_leave_a_small_document():
    # Noise, which no compression makes smaller.
    X = np.random.default_rng(0).random((30, 40, 64, 3), dtype=np.float32)
    result = compare(X, np.arange(30) % 2, methods={"first": First()}, **QUICK | {"cv": 2})
    images = result.document["images"]
    assert 15 <= len(images) <= 30
    assert sum(map(len, images.values())) < 30 * 4 / 3 * (20 * 32 * 3 + 150)
    size = base64.b64decode(images[next(iter(images))].partition(",")[2])[16:24]
    assert struct.unpack(">II", size) == (32, 20)


def test_pictures_stay_within_their_bytes_and_share_a_scale():
    rows = np.random.default_rng(0).random((500, 28 * 28))
    found = pictures(rows, (28, 28), 100_000)
    assert 50 < len(found) < 500 and sum(map(len, found)) <= 100_000
    assert pictures(np.array([[1.0, 3.0]]), (1, 2), 999) == [data_uri([[0, 255]])]
    assert pictures(np.array([[np.nan, 1e308, -1e308]]), (1, 3), 999) == [data_uri([[0, 255, 0]])]
    assert pictures(np.array([[1.0, 5.0, 3.0, 7.0]]), (1, 2, 2), 999) == [data_uri([[0, 255]])]


def test_rows_can_be_kept_out():
    options = {key: value for key, value in QUICK.items() if key != "verbose"}
    result = answer(Question(DataFile("iris"), methods=["lda"], show_rows=False, **options))
    assert result.document["rows"] is None and result.document["images"] is None


def test_no_cell_is_in_a_document_without_rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
    frame["odd"] = [f"{value:.6f}" for value in rng.normal(size=120)]
    frame.loc[7, "odd"] = "PRIVATE odd"
    frame["name"] = [f"PRIVATE name {i}" for i in range(120)]
    frame["level"] = np.where(np.arange(120) % 3, "PRIVATE u", "PRIVATE v")
    result = compare(frame, np.arange(120) % 2, methods=["lda"], show_rows=False, **QUICK)
    dropped = dict(result.document["data"]["dropped"])
    assert dropped["odd"] == "numbers but for 1 cell (first: row 7)"
    assert "PRIVATE" not in json.dumps(result.document)
    shown = compare(frame, np.arange(120) % 2, methods=["lda"], **QUICK)
    assert "PRIVATE odd" in dict(shown.document["data"]["dropped"])["odd"]


def test_only_rows_that_the_report_shows_are_kept():
    pytest.importorskip("jinja2")
    from nearfar.app.report import render

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 3)), np.arange(2000) % 2
    document = compare(X, y, methods=["lda"], **FIVE).document
    values = document["rows"]["values"]
    assert len(values) < 700
    every = {str(i): [f"{value:.4g}" for value in row] for i, row in enumerate(X)}
    full = document | {"rows": document["rows"] | {"values": every}}
    assert render(full) == render(document)


def test_a_fixed_test_set_gives_an_interval_over_its_rows():
    X, y = load_wine(return_X_y=True)
    train = np.arange(178) % 3 > 0
    test = (X[~train], y[~train])
    result = compare(X[train], y[train], test=test, methods=["lda"], **QUICK)
    assert len(result.document["folds"]) == 1
    row = methods_of(result)["lda"]
    assert row["difference_interval"][0] < row["difference"] < row["difference_interval"][1]
    # By hand: paired losses of the rows.
    held = result.document["held_out"]
    true = np.array(held["true"])
    wrong = {name: np.array(held["predicted"][name]) != true for name in ("lda", "reference")}
    losses = wrong["lda"].astype(float) - wrong["reference"]
    assert row["difference"] == pytest.approx(losses.mean())
    n = len(losses)  # and two rows more, one each way
    half = 2.0 * np.sqrt(losses.var(ddof=1) / n + 2 / n**2)
    assert row["difference_interval"][1] - row["difference"] == pytest.approx(half, rel=0.01)


def test_unbalanced_classes_get_the_balanced_error():
    rng = np.random.default_rng(0)
    y = np.r_[np.zeros(180, int), np.ones(20, int)]
    X = rng.normal(size=(200, 3)) + y[:, None]
    result = compare(X, y, methods=["lda"], **QUICK | {"context": True})
    assert result.document["protocol"]["measure"] == "balanced error"
    assert methods_of(result)["majority"]["error"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.random.default_rng(0).random(60)}, "continuous"),
        ({"y": np.zeros(60)}, "class"),
        ({"y": None}, "y is None"),
        ({"y": np.arange(59) % 2}, "60 rows, but y has 59"),
        ({"X": np.zeros((0, 3)), "y": []}, "row|empty|label"),
        ({"X": np.zeros(60)}, "shape"),
        ({"groups": np.arange(59)}, "groups has 59"),
        ({"groups": [None] * 60}, "groups has a missing value in row 0"),
        ({"repeats": 0}, "repeats=0"),
        ({"repeats": 1.5}, "repeats=1.5"),
        ({"time_budget": -1}, "time_budget=-1"),
        ({"min_gain": 5}, "min_gain=5"),
        ({"tuning": "much"}, "tuning='much'"),
        ({"random_state": None}, "random_state=None"),
        ({"scale": "huge"}, "scale='huge'"),
        ({"scoring": "nonsense"}, "scoring='nonsense'"),
        ({"scoring": ["accuracy", "f1"]}, "of type list; expected one scorer"),
        ({"y": np.arange(60) % 3, "scoring": "f1"}, "Pass scoring='f1_macro'"),
        ({"y": 3}, "y must hold a value for each of 60 rows; got 3"),
        ({"y": np.ma.masked_array(np.arange(60) % 2, np.arange(60) == 4)}, "y is masked in row 4"),
        ({"time": ["soon"] * 60}, "neither a number nor a date in row 0: 'soon'"),
        ({"time_budget": "5"}, "time_budget='5'"),
        ({"min_gain": "5"}, "min_gain='5'"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"methods": {}}, "methods is empty"),
        ({"methods": []}, "methods is empty"),
        ({"methods": [LDA]}, "is the class LDA; give an object"),
        ({"methods": {" ": LDA()}}, "names must be text"),
        ({"test": np.zeros((5, 3))}, r"test must be a pair \(X, y\); got ndarray"),
        ({"test": (np.zeros((5, 3)),)}, "got tuple of 1"),
        ({"cv": 1}, "cv=1 must be 2 or more"),
        ({"cv": True}, "cv=True must be"),
        ({"cv": "many"}, "cv='many' must be"),
        ({"cv": []}, "cv is empty"),
        ({"cv": [np.arange(60)]}, "fold 0 must be a pair"),
        ({"cv": [("a", "b")]}, "fold 0 must hold row numbers"),
        ({"methods": "nonsense"}, "no method 'nonsense'"),
        ({"test": (np.zeros((5, 2)), np.zeros(5))}, "test data have 2 features"),
    ],
)
def test_what_cannot_be_compared_is_said(change, message):
    rng = np.random.default_rng(0)
    arguments = {"X": rng.normal(size=(60, 3)), "y": np.arange(60) % 2, **QUICK} | change
    with pytest.raises(ValueError, match=message):
        compare(arguments.pop("X"), arguments.pop("y"), **arguments)


@pytest.mark.parametrize(
    ("methods", "names"),
    [
        (LDA(), ["lda"]),
        ([LDA(), LDA(n_components=1), "rca"], ["lda", "lda 2", "rca"]),
        ((StandardScaler(),), ["standard-scaler"]),
        ("lda, rca", ["lda", "rca"]),
    ],
)
def test_learners_may_come_without_names(methods, names):
    assert [method.name for method in learners(methods)] == names


def test_times_may_be_dates_or_text():
    rng = np.random.default_rng(0)
    days = rng.permutation(200)
    dates = np.datetime64("2024-01-01") + days
    for time_ in (
        dates,
        [str(day) for day in dates],
        [f"{day}T12:00:00+02:00" for day in dates],
        dates.astype(object),
        days.astype(object),
        [str(day) for day in days],  # as text, 10 would come before 9
        pd.Series(days, dtype="Int64"),
    ):
        numbers = as_table(np.zeros((200, 2)), days % 2, time=time_).time
        assert numbers.dtype.kind in "if"
        assert np.argsort(numbers).tolist() == np.argsort(days).tolist()


def test_own_folds_are_asked_for_once():
    X, y = load_iris(return_X_y=True)
    given = list(KFold(3, shuffle=True, random_state=1).split(X))
    masks = ((np.isin(np.arange(150), a), np.isin(np.arange(150), b)) for a, b in given)
    for cv in (iter(given), masks):
        result = compare(X, y, methods={"first": First()}, **(QUICK | {"cv": cv}))
        assert [f["test"] for f in result.document["folds"]] == [b.tolist() for _, b in given]
    # A splitter without a seed gives others each time it is asked.
    result = compare(X, y, methods={"first": First()}, **(QUICK | {"cv": KFold(3, shuffle=True)}))
    held = result.document["held_out"]
    rows = [row for fold in result.document["folds"] for row in fold["test"]]
    assert held["rows"] == rows
    wrong = np.array(held["true"]) != held["predicted"]["raw"]
    assert methods_of(result)["raw"]["error"] == pytest.approx(wrong.mean())


def test_masked_cells_are_missing():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), np.arange(80) % 2
    telling = X.copy()
    telling[:, 0] = 1000 * y
    masked = np.ma.masked_array(telling, mask=np.zeros_like(X, bool))
    masked[:70, 0] = np.ma.masked
    missing = np.where(masked.mask, np.nan, telling)
    options = {"methods": {"first": First()}, **QUICK}
    rows = methods_of(compare(masked, y, **options))
    assert rows["raw"]["error"] == methods_of(compare(missing, y, **options))["raw"]["error"]
    assert rows["raw"]["error"] > 0.2


def test_a_value_missing_only_in_the_test_rows_is_imputed():
    X, y = load_wine(return_X_y=True)
    train = np.arange(178) % 3 > 0
    X[0, 0] = np.nan
    test = (X[~train], y[~train])
    result = compare(X[train], y[train], test=test, methods={"first": First()}, **QUICK)
    assert {method["status"] for method in result.document["methods"]} == {"done"}
    assert "SimpleImputer" in result.code


def test_a_bad_cell_of_the_test_data_is_named_by_its_own_row():
    frame = messy().drop(columns=["id", "group", "day"])
    y = frame.pop("kind")
    bad = frame[:20].astype({"b": object})
    bad.loc[3, "b"] = "oops"
    with pytest.raises(ValueError, match="In the test data: Column 'b' .* row 3 has 'oops'"):
        compare(frame, y, test=(bad, y[:20]), **QUICK)


def test_numbers_of_numpy_are_numbers():
    X, y = load_iris(return_X_y=True)
    numbers = {"random_state": np.int64(3), "repeats": np.int64(1), "cv": np.int64(2)}
    numbers |= {"min_gain": np.float32(0.05), "time_budget": np.float32(100)}
    options = QUICK | numbers | {"keep": None, "drop": None}
    document = compare(X, y, methods={"first": First()}, **options).document
    assert json.loads(json.dumps(document))["protocol"]["seed"] == 3
    assert len(document["folds"]) == 2


def test_a_document_is_written_though_every_plain_distance_fails():
    X, y = load_iris(return_X_y=True)

    def small_only(estimator, X, y):
        if len(y) > 10:
            raise RuntimeError("too many rows")
        return float(np.mean(estimator.predict(X) == y))

    result = compare(X, y, methods=["lda"], scoring=small_only, **QUICK)
    assert {method["status"] for method in result.document["methods"]} == {"failed"}
    assert result.code == "" and "too many rows" in result.answer
    assert json.loads(json.dumps(result.document, allow_nan=False)) == result.document


def test_the_protocol_of_a_fixed_test_set_speaks_of_no_folds():
    X, y = load_wine(return_X_y=True)
    train = np.arange(178) % 3 > 0
    test = (X[~train], y[~train])
    result = compare(X[train], y[train], test=test, methods={"first": First()}, **QUICK)
    protocol = result.document["protocol"]
    texts = [protocol["scheme"], protocol["tuning_note"], *protocol["notes"], *protocol["plan"]]
    assert not any("fold" in text for text in texts)
    assert protocol["notes"][-1] == "The same settings again: tuning='k', random_state=0."


def test_classes_that_are_never_trained_on_are_warned_about():
    X, y = load_iris(return_X_y=True)
    old = y < 2
    result = compare(X[old], y[old], test=(X, y), methods={"first": First()}, **QUICK)
    assert "untrained class" in [w["kind"] for w in result.document["warnings"]]


def test_a_changed_learner_does_not_go_on_from_the_results_before(tmp_path):
    X, y = load_iris(return_X_y=True)

    def run(learner, scoring=None):
        path = tmp_path / "a.journal"
        options = QUICK | {"time_budget": 1e-3}
        methods = {"mine": learner}
        return compare(X, y, methods=methods, scoring=scoring, journal=path, **options)

    def kind(column):
        class Mine(First):
            def transform(self, X):
                return X[:, column : column + 1]

        return Mine

    def changed():
        class Mine(First):
            def transform(self, X):
                return -X[:, :2]

        return Mine

    def score(estimator, X, y):
        return float(np.mean(estimator.predict(X) == y))

    run(kind(0)())
    run(kind(0)())  # the same code, a new class
    with pytest.raises(ValueError, match="another comparison"):
        run(changed()())
    with pytest.raises(ValueError, match="another comparison"):
        run(kind(0)(), score)


def test_sparse_data_are_refused_with_a_way_out():
    X = sparse.csr_matrix(np.eye(60))
    with pytest.raises(TypeError, match="TruncatedSVD"):
        compare(X, np.arange(60) % 2, **QUICK)


def test_infinite_values_are_refused_before_anything_runs():
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[7, 1] = np.inf
    with pytest.raises(ValueError, match="inf"):
        compare(X, np.arange(60) % 2, **QUICK)


# Traps


def test_random_folds_on_grouped_data_would_be_wildly_optimistic():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    y = (np.arange(40) % 2)[groups]  # a label for each group, at random
    X = rng.normal(size=(40, 6))[groups] + 0.1 * rng.normal(size=(400, 6))
    naive = compare(X, y, methods=["lda"], **QUICK)
    honest = compare(X, y, methods=["lda"], groups=groups, **QUICK)
    assert methods_of(naive)["reference"]["error"] < 0.05
    assert methods_of(honest)["reference"]["error"] > 0.35
    notes = honest.document["protocol"]["notes"]
    assert any("Groups: 40; none is on both sides" in note for note in notes)


def test_duplicated_rows_are_warned_about():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 4)), rng.integers(0, 2, 100)
    result = compare(np.vstack([X, X]), np.r_[y, y], methods=["lda"], **QUICK)
    assert methods_of(result)["raw"]["error"] < 0.3  # labels are random: it remembers the copies
    assert [w["kind"] for w in result.document["warnings"]] == ["duplicates"]
    assert not compare(X, y, methods=["lda"], **QUICK).document["warnings"]


def test_an_id_column_is_left_out():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.arange(200), "a": rng.normal(size=200)})
    y = np.repeat([0, 1], 100)  # rows come sorted by class: the number tells it
    result = compare(frame, y, methods=["lda"], **QUICK)
    assert result.document["data"]["dropped"][0][0] == "id"
    assert methods_of(result)["reference"]["error"] > 0.35
    kept = compare(frame, y, methods=["lda"], keep=["id"], **QUICK)
    assert methods_of(kept)["reference"]["error"] < 0.05


def test_a_copy_of_the_target_is_named():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "outcome": rng.integers(0, 3, 200)})
    y = frame["outcome"].map({0: "x", 1: "y", 2: "z"})
    result = compare(frame, y, methods=["lda"], **QUICK)
    texts = [w["text"] for w in result.document["warnings"] if w["kind"] == "telling column"]
    assert len(texts) == 1 and "outcome" in texts[0]
    without = compare(frame, y, methods=["lda"], drop=["outcome"], **QUICK)
    assert not without.document["warnings"]


def test_small_classes_are_named():
    X = np.random.default_rng(0).normal(size=(63, 3))
    y = np.r_[["big"] * 30, ["large"] * 30, ["tiny"] * 3]
    result = compare(X, y, methods=["lda"], **FIVE)
    assert "tiny" in result.document["warnings"][0]["text"]


# Workers


class Slow(LDA):
    def fit(self, X, y=None):
        time.sleep(600)


class Crash(LDA):
    def fit(self, X, y=None):
        os.kill(os.getpid(), signal.SIGSEGV)


class Refuse(LDA):
    def fit(self, X, y=None):
        print("chatter on standard output")
        raise ValueError("I do not like\nthis data.")


class Hungry(LinearLearner):
    learner_tags = LearnerTags(reads="supervision")

    def fit(self, X, y=None):
        rows = self._check_X(X, reset=True)
        np.ones(50_000_000)  # 400 MB, gone at once
        self.components_ = np.eye(rows.shape[1])
        return self


@pytest.fixture(scope="module")
def isolated():
    X, y = load_iris(return_X_y=True)
    methods = {"lda": LDA(), "crash": Crash(), "refuse": Refuse(), "hungry": Hungry()}
    options = QUICK | {"isolate": True, "cv": 2}
    return methods_of(compare(X, y, methods=methods, **options))


def test_a_method_that_hangs_is_killed_at_the_deadline():
    X, y = load_iris(return_X_y=True)
    began = time.monotonic()
    options = QUICK | {"isolate": True, "time_budget": 4, "cv": 2}
    result = compare(X, y, methods={"slow": Slow()}, **options)
    assert time.monotonic() - began < 100  # it would sleep for 600
    slow = methods_of(result)["slow"]
    assert (slow["status"], slow["folds_done"]) == ("unfinished", 0)
    assert result.document["status"] == "time budget reached"
    assert any("slow did not finish" in note.lower() for note in result.document["answer"]["notes"])


def test_a_crash_is_a_row_with_a_reason(isolated):
    rows = isolated
    assert rows["crash"]["status"] == "failed" and "SIGSEGV" in rows["crash"]["reason"]
    assert rows["refuse"]["reason"] == "ValueError: I do not like this data."


def test_peak_memory_is_that_of_the_method(isolated):
    rows = isolated
    assert 380 < rows["hungry"]["peak_mb"] < 450
    assert rows["lda"]["peak_mb"] < 100


def test_what_runs_elsewhere_gives_the_same_numbers(isolated):
    X, y = load_iris(return_X_y=True)
    here = methods_of(compare(X, y, methods={"lda": LDA()}, **(QUICK | {"cv": 2})))
    for name in ("lda", "raw", "reference"):
        assert here[name]["error"] == isolated[name]["error"]


@pytest.mark.slow  # test_pool.py has two such processes instead of six
def test_processes_that_are_not_forked_do_the_same(monkeypatch):
    monkeypatch.setattr("nearfar.app.compare.pool._FORKS", False)
    X, y = load_iris(return_X_y=True)
    methods = {"lda": LDA(), "crash": Crash()}
    options = QUICK | {"cv": 2}
    spawned = methods_of(compare(X, y, methods=methods, **options | {"isolate": True}))
    here = methods_of(compare(X, y, methods={"lda": LDA()}, **options))
    assert spawned["lda"]["error"] == here["lda"]["error"]
    assert "SIGSEGV" in spawned["crash"]["reason"]


SCRIPT = """
import sys
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris
from nearfar import compare

class Mine(TransformerMixin, BaseEstimator):
    "Not importable: defined in a script, and no guard around what follows."
    def fit(self, X, y=None):
        self.fitted_ = True
        return self
    def transform(self, X):
        return X * 2.0

X, y = load_iris(return_X_y=True)
result = compare(X, y, methods={"mine": Mine()}, repeats=1, tuning="k", context=False, n_jobs=2,
                 cv=2)
print(result.document["methods"][0]["status"], len(result.document["methods"]))
print({m["name"]: m["status"] for m in result.document["methods"]}["mine"])
"""


@pytest.mark.slow
def test_a_script_without_a_guard_may_define_its_own_learner(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    assert done.stdout.split()[-1] == "done", done.stderr
    assert "Plan:" in done.stderr


def test_an_interrupted_run_gives_what_there_is_and_goes_on(tmp_path, monkeypatch, capsys):
    X, y = load_iris(return_X_y=True)
    journal = tmp_path / "run.journal"
    record = Schedule._record

    def stop_after(self, run, fold, value):
        record(self, run, fold, value)
        if sum(len(r.results) for r in self.runs.values()) == 12:
            raise KeyboardInterrupt

    def run():
        options = FIVE | {"repeats": 2, "verbose": True}
        return compare(X, y, methods={"lda": LDA()}, journal=journal, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Schedule, "_record", stop_after)
        assert run().document["status"] == "interrupted"
    lines = journal.read_text().splitlines()
    assert len(lines) == 13
    # Half a line, as when the power fails, costs that fold only.
    journal.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])
    done = []
    monkeypatch.setattr(Schedule, "_record", lambda *all: (done.append(1), record(*all)))
    capsys.readouterr()
    second = run()
    assert second.document["status"] == "complete" and len(done) == 50 - 11
    assert "  50/50 folds" in capsys.readouterr().err
    assert not journal.exists()
    rows, anew = methods_of(second), methods_of(run())
    assert sum(row["folds_done"] for row in rows.values()) == 60 and rows.keys() == anew.keys()
    assert all(rows[name]["error"] == anew[name]["error"] for name in rows)


def test_a_journal_of_another_comparison_is_refused(tmp_path):
    X, y = load_iris(return_X_y=True)
    journal = tmp_path / "run.journal"
    journal.write_text('{"nearfar_journal": 2, "fingerprint": "x", "plan": {}}\n')
    with pytest.raises(ValueError, match="another comparison"):
        compare(X, y, methods=["lda"], journal=journal, **QUICK)
    journal.write_text("hello")
    with pytest.raises(ValueError, match="not a journal"):
        compare(X, y, methods=["lda"], journal=journal, **QUICK)


class Unscaled(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.full((len(X), 2), np.nan)


def test_a_learner_that_gives_nan_fails_with_a_sentence():
    X, y = load_iris(return_X_y=True)
    rows = methods_of(compare(X, y, methods={"nan": Unscaled()}, **QUICK))
    assert rows["nan"]["reason"] == "ValueError: transform gave NaN or infinity."


def test_every_method_may_fail_and_there_is_still_a_document():
    X, y = load_iris(return_X_y=True)
    result = compare(X, y, methods={"refuse": Refuse()}, **QUICK)
    answer = result.document["answer"]
    assert (
        answer["verdict"] == "inconclusive" and "no learned distance was tested" in answer["text"]
    )
    assert any("I do not like" in note for note in answer["notes"])
    assert isinstance(str(result), str)


def test_a_pipeline_and_a_classifier_may_be_compared():
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline

    X, y = load_iris(return_X_y=True)
    methods = {
        "pipe": make_pipeline(StandardScaler(), LDA()),
        "knn": KNeighborsClassifier(7),
    }
    rows = methods_of(compare(X, y, methods=methods, **QUICK))
    assert rows["pipe"]["error"] < 0.1 and rows["knn"]["error"] < 0.1
    assert rows["knn"]["results"][0]["k"] is None and rows["pipe"]["results"][0]["k"] is not None
