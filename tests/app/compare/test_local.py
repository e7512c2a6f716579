"""Rules with a metric for each row in a comparison: names, scaling, k, and what they weigh."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import report_documents
from sklearn.datasets import load_wine
from sklearn.pipeline import Pipeline

import nearfar
from nearfar import (
    DANNClassifier,
    FriedmanClassifier,
    KNNClassifier,
    ShortFukunagaClassifier,
    compare,
)
from nearfar.app.cli import main
from nearfar.app.compare import folds, methods
from nearfar.app.compare import summary as summaries
from nearfar.app.compare.comparison import footnotes, times_text
from nearfar.app.compare.explaining import explain_chain, joint_shares
from nearfar.app.compare.folds import predict_all_k
from nearfar.app.compare.methods import find_estimator, learners, reduced
from nearfar.app.report import render
from nearfar.app.tables.columns import choose_columns

QUICK = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}


def frame(n=90):
    """Wine with a category that became of a column."""
    wine = load_wine(as_frame=True)
    rows = wine.data.iloc[::2].iloc[:n, [0, 6, 9, 12]].reset_index(drop=True)
    rows["tint"] = np.where(rows["color_intensity"] > 5, "dark", "light")
    return rows, np.array(["a", "b", "c"])[wine.target[::2][:n]]


@pytest.fixture(scope="module")
def document():
    rows, labels = frame()
    return compare(rows, labels, methods=["dann", "short-fukunaga"], **QUICK).document


# ------------------------------------------------------------------ names and scaling


@pytest.mark.parametrize("name", ["dann", "DANN", "dann-classifier", "DANNClassifier"])
def test_the_last_word_of_a_classifier_may_be_left_out(name):
    assert find_estimator(name) is DANNClassifier
    assert find_estimator("short_fukunaga") is ShortFukunagaClassifier
    assert find_estimator("lda") is nearfar.LDA  # and of others none is added


def test_a_room_is_a_family():
    names = [one.name for one in learners("local")]
    assert {"dann-classifier", "short-fukunaga-classifier", "mvem-classifier"} <= set(names)


class Several(DANNClassifier):
    """One class, two methods."""

    also_called = {"wide": {"epsilon": 7.0}, "narrow": {"epsilon": 0.1}}
    settings = ({"epsilon": 3.0}, {"shrinkage": 0.3})


def test_some_estimators_are_several_methods(monkeypatch):
    known = methods.known_estimators()
    monkeypatch.setattr(methods, "known_estimators", lambda: known | {"Several": Several})
    found = {one.name: one for one in learners("wide,several")}
    assert list(found) == ["wide", "several"]
    given = [one.estimator for one in found["wide"].settings]
    # Settings that differ only in what the name fixes are one.
    assert {(one.epsilon, one.shrinkage) for one in given} == {(7.0, 1e-3), (7.0, 0.3)}
    assert found["wide"].label == "wide"
    with pytest.raises(ValueError, match="There is no method 'narow'. Did you mean narrow"):
        find_estimator("narow")


def test_machete_and_scythe_are_modes_of_one_class():
    found = {
        one.name: [s.estimator.variant for s in one.settings] for one in learners("machete,scythe")
    }
    assert set(found["machete"]) == {"machete"}
    assert set(found["scythe"]) == {"scythe"}
    assert find_estimator("Machete") is FriedmanClassifier


def test_scaling_is_outside_and_tuned_as_for_all():
    (method,) = learners("dann")
    assert [one.estimator.standardize for one in method.settings] == [False] * 4
    labels = [one.label for one in method.settings]
    assert labels[:2] == ["standardized", "raw"]
    assert not any("standardize=" in label for label in labels)
    assert method.role == "learner"
    # An object is compared as it is.
    (method,) = learners({"mine": DANNClassifier(standardize=True)})
    assert method.settings[0].estimator.standardize


def test_many_columns_are_reduced_first_as_for_what_iterates():
    (method,) = reduced(learners("dann"), 784, 5000)
    assert method.settings[0].label == "standardized, 64 principal axes"


# ------------------------------------------------------------------ who votes, for each k


class Shrinking(ShortFukunagaClassifier):
    """Who is near depends on n_neighbors: with it the metric changes."""

    nested = False

    def _metrics(self, rows, queries):
        self.epsilon, before = 0.01 * self.n_neighbors, self.epsilon
        try:
            return super()._metrics(rows, queries)
        finally:
            self.epsilon = before


@pytest.fixture
def problem():
    rows, labels = frame(60)
    classes, codes = np.unique(labels, return_inverse=True)
    X = rows.drop(columns="tint").to_numpy()
    measure = nearfar.evaluation.measures.choose_measure(
        None, classes, np.bincount(codes), (X[:4], codes[:4])
    )
    return folds.Problem(X, classes, codes.astype(np.intp), "passthrough", measure)


@pytest.mark.parametrize("kind", [ShortFukunagaClassifier, Shrinking, FriedmanClassifier])
def test_for_each_k_those_vote_that_the_classifier_finds(problem, kind):
    setting = methods.Setting("", "passthrough", kind(standardize=False))
    train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    found = predict_all_k(problem, setting, train, test)
    assert found.ks == list(range(1, 16))
    for k in (1, 4, 15):
        alone = kind(n_neighbors=k, standardize=False).fit(problem.X[train], problem.codes[train])
        np.testing.assert_array_equal(found.codes[:, k - 1], alone.predict(problem.X[test]))
        shares = alone.predict_proba(problem.X[test])
        np.testing.assert_allclose(found.shares(k - 1)[:, alone.classes_], shares)


def test_a_vote_of_the_first_of_more_would_be_another(problem):
    # Else the test above could not fail.
    train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    fifteen = Shrinking(n_neighbors=15, standardize=False).fit(
        problem.X[train], problem.codes[train]
    )
    four = Shrinking(n_neighbors=4, standardize=False).fit(problem.X[train], problem.codes[train])
    first = fifteen.kneighbors(problem.X[test])[1][:, :4]
    assert (first != four.kneighbors(problem.X[test])[1]).any()


# ------------------------------------------------------------------ categories


def test_a_category_has_the_share_of_the_steps_that_rows_take():
    rng = np.random.default_rng(0)
    number, level = rng.normal(size=200), rng.integers(0, 2, size=200)
    rows = np.column_stack([number, level, 1 - level]).astype(float)
    # Dear along (1, 1), where no row can go; along (1, -1) nothing is charged.
    M = np.array([[[1.0, 0, 0], [0, 1e6, 1e6], [0, 1e6, 1e6]]])
    alone = np.einsum("qjj->qj", M) * rows.var(axis=0)
    alone /= alone.sum()
    assert alone[0, 1:].sum() > 0.999  # by single columns it would be all
    found = joint_shares(alone, M, rows, ["x", "level", "level"])
    np.testing.assert_allclose(found, [[1.0, 0.0]], atol=1e-9)


def test_shares_of_a_metric_without_such_pairs_are_sums():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 4))
    M = np.stack([np.diag(rng.uniform(size=4)) for _ in range(3)])
    alone = np.einsum("qjj->qj", M) * rows.var(axis=0)
    alone /= alone.sum(axis=1, keepdims=True)
    found = joint_shares(alone, M, rows, ["a", "b", "b", "c"])
    np.testing.assert_allclose(found, np.stack([alone[:, 0], alone[:, 1:3].sum(1), alone[:, 3]], 1))


def test_the_mean_step_by_hand():
    rng = np.random.default_rng(2)
    levels = np.eye(3)[rng.integers(0, 3, size=300)]
    rows = np.column_stack([rng.normal(size=300), levels])
    A = rng.normal(size=(4, 4))
    M = A @ A.T
    ends = rng.integers(0, 300, size=(2, 200_000))
    steps = rows[ends[0]] - rows[ends[1]]
    costs = [
        np.mean(np.einsum("ij,jk,ik->i", steps[:, own], M[np.ix_(own, own)], steps[:, own]))
        for own in ([0], [1, 2, 3])
    ]
    alone = np.diag(M) * rows.var(axis=0)
    found = joint_shares(alone[None] / alone.sum(), M[None], rows, ["x", "y", "y", "y"])
    np.testing.assert_allclose(found[0], np.array(costs) / sum(costs), atol=0.01)


def test_a_chain_with_a_category_is_explained_by_its_columns():
    rows, labels = frame()
    (dann,) = learners("dann")
    steps = dann.settings[0].steps(choose_columns(rows).preprocessor())
    fitted = Pipeline(steps).fit(rows, labels)
    why = explain_chain(fitted, rows[:5])
    assert why.feature_names == list(rows)
    np.testing.assert_allclose(
        why.contributions.sum(axis=2), why.distances**2, rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(why.relevance.sum(axis=1), 1.0)
    assert why.overall is not None
    assert explain_chain(fitted, rows[:5], overall=False).overall is None


# ------------------------------------------------------------------ what the report is told


def test_which_features_matter_where(document):
    found = document["local"]["dann-classifier"]
    rows, labels = frame()
    assert found["features"] == list(rows)
    assert sum(one["n"] for one in found["classes"]) == found["n_rows"]
    for one in (found["overall"], *(each["shares"] for each in found["classes"])):
        assert sum(one) == pytest.approx(1.0)
    means = np.array([each["shares"] for each in found["classes"]])
    sizes = np.array([each["n"] for each in found["classes"]])
    np.testing.assert_allclose(sizes @ means / sizes.sum(), found["overall"])
    truth = dict(zip(document["held_out"]["rows"], document["held_out"]["true"], strict=True))
    test = set(document["held_out"]["rows"][: found["n_rows"]])
    classes = document["data"]["classes"]
    wrong = [truth[one["row"]] != one["predicted"] for one in found["rows"]]
    assert wrong == sorted(wrong, reverse=True)  # errors first
    assert 0 < len(found["rows"]) <= folds.SHOWN_EXPLAINED
    for one in found["rows"]:
        assert one["row"] in test
        assert len(one["voters"]) == found["k"]
        for voter in one["voters"]:
            assert voter["row"] not in test  # of the training rows of this fold
            assert voter["label"] == labels[voter["row"]]
            assert voter["agrees"] == (voter["label"] == classes[one["predicted"]])
            assert sum(voter["parts"]) == pytest.approx(voter["distance"] ** 2)
        agree = sum(voter["agrees"] for voter in one["voters"][: one["n_deciding"]])
        assert str(agree) in one["vote"] or "nearest neighbor" in one["vote"]
    json.dumps(document)  # plain data
    kept = next(entry for entry in document["methods"] if entry["name"] == "dann-classifier")
    assert "local" not in kept["results"][0]  # not twice


def test_what_a_prediction_costs_is_measured_against_plain_neighbors(document):
    entries = {entry["name"]: entry for entry in document["methods"]}
    assert entries["dann-classifier"]["times_plain"] > 0
    assert entries["standardized"]["times_plain"] is None
    lines = [line for line in footnotes(document) if line.startswith("Prediction time")]
    assert len(lines) == 1
    assert "DANNClassifier " in lines[0]
    assert [times_text(t) for t in (0.3, 1.4, 1.6, 9.96, 1234.0)] == [
        *("hardly longer", "hardly longer", "about twice as long"),
        *("about 10 times as long", "about 1,000 times as long"),
    ]
    entries["dann-classifier"]["times_plain"] = 23.2
    assert "predicting takes about 20 times as long as with standard k-NN" in render(document)
    entries["dann-classifier"]["times_plain"] = 0.4
    assert "predicting takes hardly longer than with standard k-NN" in render(document)


def test_the_quickest_folds_tell_what_a_prediction_costs():
    # Other work makes a fold slower, never quicker: the median would tell of the machine.
    def row(times, neighbors):
        settings = [SimpleNamespace(neighbors=neighbors)]
        results = {i: {"search_seconds": t} for i, t in enumerate(times)}
        return SimpleNamespace(results=results, method=SimpleNamespace(settings=settings))

    plain, own = row([0.001, 0.02, 0.02], False), row([0.06, 0.02, 0.03, None], True)
    summary = SimpleNamespace(rows={"plain": plain}, plainest="plain")
    kind = next(c for c in vars(summaries).values() if hasattr(c, "_times_plain"))
    assert kind._times_plain(summary, own) == pytest.approx(20)
    assert kind._times_plain(summary, plain) is None
    assert kind._times_plain(summary, row([None], True)) is None


def test_learners_with_one_metric_have_no_such_section():
    found = report_documents.wine()
    assert 'id="local"' not in render(found)
    assert not [line for line in footnotes(found) if line.startswith("Prediction time")]


def test_the_page_shows_no_rows_where_none_may_be_shown(document):
    page = render(document)
    assert 'id="local"' in page
    assert page.count('<details class="explained"') == sum(
        len(one["rows"]) for one in document["local"].values()
    )
    assert "Not drawn:" not in page
    hidden = render(document | {"rows": None, "images": None})
    assert '<details class="explained"' not in hidden
    assert 'class="plain shares"' in hidden


def test_the_page_names_the_rules_that_it_does_not_draw(document, monkeypatch):
    monkeypatch.setattr("nearfar.app.report.local.PANELS", 0)
    labels = {one["name"]: one["label"] for one in document["methods"]}
    said = render(document).partition("Not drawn: ")[2].partition(".</p>")[0]
    assert set(said.split(", ")) == {labels[one] for one in document["local"]}


@pytest.mark.parametrize("show_rows", [True, False])
def test_what_is_kept_of_a_fold_has_no_rows_where_none_may_be_shown(problem, show_rows):
    problem.show_rows = show_rows
    setting = methods.Setting("", "passthrough", DANNClassifier(standardize=False))
    method = methods.Method("dann", "DANN", "learner", (setting,))
    train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    found = folds.run_fold(problem, method, train, test, "k", draw=True)["local"]
    assert bool(found["rows"]) == show_rows
    assert found["features"] == ["x0", "x1", "x2", "x3"]
    assert folds.run_fold(problem, method, train, test, "k").get("local") is None


def test_errors_come_first_and_then_classes_in_turn():
    true = np.array([0, 0, 0, 0, 1, 1, 2])
    predicted = np.array([0, 0, 1, 0, 1, 1, 2])
    assert folds._rows_to_explain(predicted, true) == [2, 0, 4, 6, 1, 5, 3]


# ------------------------------------------------------------------ from the command line


def test_fit_predict_neighbors_and_explain_take_the_room(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows, labels = frame()
    pd.concat([rows, pd.Series(labels, name="kind")], axis=1).to_csv("t.csv", index=False)
    rows[:6].to_csv("new.csv", index=False)
    fit = ["fit", "t.csv", "--target", "kind", "--scale", "standard", "-k", "3", "--set"]
    assert main([*fit, "epsilon=2.0", "--method", "dann", "--save", "dann.nf"]) == 0
    model = nearfar.load("dann.nf")
    assert isinstance(model[-1], DANNClassifier)
    assert not model[-1].standardize
    assert main(["predict", "dann.nf", "new.csv", "--out", "labels.csv"]) == 0
    told = pd.read_csv("labels.csv")
    np.testing.assert_array_equal(told["label"], model.predict(rows[:6]))
    assert main(["neighbors", "dann.nf", "new.csv", "-k", "3", "--out", "near.csv"]) == 0
    near = pd.read_csv("near.csv")["row"].to_numpy().reshape(6, 3)
    given = [" ".join(map(str, line)) for line in near]
    np.testing.assert_array_equal(told["neighbors"].astype(str), given)
    capsys.readouterr()
    assert main(["explain", "dann.nf", "new.csv", "--row", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"row 2 is '{told['label'][2]}' by ")
    assert "over all rows" in said


@pytest.mark.slow
def test_a_comparison_by_the_name_of_the_room(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows, labels = frame(45)
    pd.concat([rows.iloc[:, :2], pd.Series(labels, name="kind")], axis=1).to_csv(
        "t.csv", index=False
    )
    run = ["compare", "t.csv", "--target", "kind", "--methods", "local", "--repeats", "1"]
    assert main([*run, "--tuning", "k", "--no-context", "--in-process"]) == 0
    said = capsys.readouterr().out
    assert "DANNClassifier" in said
    assert "Prediction time relative to standard k-NN: " in said


def test_plain_neighbors_are_no_rule_of_their_own():
    assert KNNClassifier.nested
