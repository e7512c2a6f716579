"""compare without labels: a picture that cannot be read is not recommended, and it is said why."""

import json

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_swiss_roll

from nearfar import Isomap, compare
from nearfar.app.compare.judgement import judge
from nearfar.app.compare.picture import dot_words, picture_quality
from nearfar.app.report import render
from nearfar.evaluation.inference import Estimate

QUICK = {"repeats": 1, "isolate": False, "verbose": False}


class Unrolls(TransformerMixin, BaseEstimator):
    """A roll laid flat: the length along its spiral, and its height."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        angle = np.hypot(X[:, 0], X[:, 2])  # the radius of this spiral is its angle
        return np.c_[angle * angle / 2, X[:, 1]]


class Dot(Unrolls):
    """The same places, so all neighbors kept, but one row that was fitted lies far away."""

    def fit_transform(self, X, y=None):
        placed = self.fit(X).transform(X)
        placed[len(X) // 2] = 1e6
        return placed


class DotOfNewRows(Unrolls):
    """Only a new row is thrown far away."""

    def fit_transform(self, X, y=None):
        return self.fit(X).transform(X)

    def transform(self, X):
        placed = super().transform(X)
        placed[-1] = 1e6 if len(X) < 100 else placed[-1]
        return placed


class Points(Unrolls):
    """The roll laid flat, then drawn together to one of a few places, each with its order kept."""

    def transform(self, X):
        placed = super().transform(X)
        corner = np.digitize(placed[:, 0], [30, 60, 80])
        return 1e-5 * placed + np.c_[corner % 2, corner // 2]


@pytest.fixture(scope="module")
def roll():
    return make_swiss_roll(330, noise=0.05, random_state=1)[0]


def by_name(result):
    return {method["name"]: method for method in result.document["methods"]}


def said(result):
    """What is said in the terminal and on the page, each."""
    page = render(result.document).replace("&#39;", "'").replace("\u00a0", " ")
    return str(result), page


@pytest.mark.parametrize("dot", [Dot(), DotOfNewRows()])
def test_a_dot_with_an_outlier_is_not_among_the_best(roll, dot):
    result = compare(roll, methods={"dot": dot, "flat": Unrolls()}, **QUICK)
    found, answer = by_name(result), result.document["answer"]
    assert found["dot"]["kept"] > found["pca"]["kept"] + 0.2  # it would be
    assert result.best == "flat" and answer["verdict"] == "use"
    assert not found["dot"]["recommended"] and found["flat"]["recommended"]
    assert "dot" not in answer["text"]
    # It was tried all the same: Holm's correction is for both.
    assert 0 < found["dot"]["p"] < found["dot"]["p_holm"]
    assert found["flat"]["p_holm"] == pytest.approx(2 * min(found[n]["p"] for n in ("dot", "flat")))
    why = "its picture is a dot with outliers: 99.7% of the rows lie within 0.1% of its width"
    assert found["dot"]["picture_fault"] == why
    assert any(note.startswith(found["dot"]["label"]) and why in note for note in answer["notes"])
    for text in said(result):
        assert why in " ".join(text.split())


def test_where_all_others_are_dots_pca_is_kept(roll):
    result = compare(roll, methods={"dot": Dot()}, **QUICK)
    answer = result.document["answer"]
    assert result.best == "pca" and answer["verdict"] == "keep"
    assert answer["text"].startswith("Keep PCA: ")
    assert answer["text"].endswith("No other method produces a readable picture.")
    json.dumps(result.document, allow_nan=False)
    assert "not recommended" in said(result)[1]


def test_a_spectral_method_that_spends_its_axes_on_outliers_is_not_recommended():
    X = np.exp(1.5 * np.random.default_rng(0).normal(size=(600, 6)))
    result = compare(X, methods=["laplacian-eigenmaps"], scale="none", **QUICK)
    found = by_name(result)["laplacian-eigenmaps"]
    assert result.best == "pca" and not found["recommended"]
    assert found["kept"] > by_name(result)["pca"]["kept"] + 0.05
    assert found["picture_core"] < 0.05
    assert found["picture_trust"] < by_name(result)["pca"]["picture_trust"] - 0.05
    assert "its picture is a dot with outliers" in str(result)


def test_a_few_points_show_false_neighbors(roll):
    result = compare(roll, methods={"points": Points()}, **QUICK)
    found = by_name(result)["points"]
    assert found["kept"] > by_name(result)["pca"]["kept"] + 0.1
    assert result.best == "pca" and "a dot" not in str(result)
    assert found["picture_trust"] < by_name(result)["pca"]["picture_trust"] - 0.1
    assert "shows false neighbors more often than that of PCA" in found["picture_fault"]


def test_pca_of_data_with_a_far_row_is_kept_and_said_to_be_a_dot():
    X = np.random.default_rng(0).normal(size=(200, 5))
    X[5] = 1e4
    result = compare(X, methods={"dot": Dot()}, scale="none", **QUICK)
    assert result.best == "pca" and by_name(result)["pca"]["recommended"]
    notes = result.document["answer"]["notes"]
    assert any(
        note.startswith("Read the picture of PCA with care: its picture is a dot") for note in notes
    )


def test_a_good_picture_gets_no_such_words(roll):
    result = compare(roll, methods=["isomap", "laplacian-eigenmaps", "variational-mvu"], **QUICK)
    for method in result.document["methods"]:
        assert method["picture_fault"] is None
        assert method["picture_core"] > 0.3
        assert 0.7 < method["picture_trust"] <= 1 and 0.7 < method["picture_continuity"] <= 1
    assert result.best != "pca"
    for text in said(result):
        for words in ("a dot", "one dot", "not recommended", "readable", "parts"):
            assert words not in text
    assert result.table.loc["isomap", "picture_trust"] > result.table.loc["pca", "picture_trust"]


def test_one_fold_of_five_that_is_not_drawn_does_not_decide(roll):
    class Sometimes(Dot):
        """A dot where a row that one fold alone holds out is not among the fitted."""

        def fit_transform(self, X, y=None):
            known = np.isclose(X, roll[left]).all(axis=1).any()
            return self.fit(X).transform(X) if known else super().fit_transform(X)

    first = compare(roll, methods={"flat": Unrolls()}, **QUICK).document["pictures"]
    left = first["rows"][0]  # fitted in the first fold
    result = compare(roll, methods={"mine": Sometimes()}, **QUICK)
    found = by_name(result)["mine"]
    assert sum(each["picture_dot"] is not None for each in found["results"]) == 1
    assert found["picture_fault"] is None and result.best == "mine"


def test_who_is_barred_counts_among_the_tries_and_is_not_chosen():
    errors = {"a": 0.1, "b": 0.2}
    differences = {name: Estimate(error - 0.4, 0.01, 20) for name, error in errors.items()}
    both, one, none = (
        judge(0.4, errors, differences, barred=barred) for barred in ((), ("a",), ("a", "b"))
    )
    assert (both.method, one.method, none.method) == ("a", "b", None)
    assert both.comparands["b"] == one.comparands["b"]
    assert not one.comparands["a"].recommended and one.comparands["a"].stands_out
    assert none.verdict == "inconclusive" and set(none.comparands) == {"a", "b"}


# The measure


def test_the_measure_does_not_depend_on_scale_place_or_order():
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=(150, 3)), axis=0)
    X[7] = 900
    found = picture_quality(X, X[:, :2], X[:, :2], 5)
    assert found["picture_dot"] == [pytest.approx(149 / 150), 0.01]
    # What cannot be made out is chance, though rows and ranks are in order.
    assert found["picture_trust"] < 0.85
    order = rng.permutation(150)
    for scale in (1e-200, 1e-9, 1e9, 1e200):
        moved = scale * X[order, :2]
        other = picture_quality(X[order], moved, moved, 5)
        assert other["picture_dot"] == found["picture_dot"]
        assert other["picture_trust"] == pytest.approx(found["picture_trust"], abs=0.1)


def test_the_measure_of_odd_pictures():
    X = np.random.default_rng(0).normal(size=(40, 3))
    same = picture_quality(X, np.ones((40, 2)), np.ones((40, 2)), 5)
    assert same["picture_core"] == 0 and same["picture_dot"] == [1.0, 0.0]
    assert dot_words(same["picture_dot"]).startswith("its picture is one dot")
    assert picture_quality(X, X[:, :1], X[:, :1], 5)["picture_dot"] is None  # a line
    few = picture_quality(X[:8], X[:8, :2], X[:8, :2], 5)
    assert few["picture_trust"] is None and few["picture_dot"] is None
    far = np.concatenate([X[:20, :2], X[:20, :2] + 1000])  # two clusters are no dot
    assert picture_quality(far, far, far, 5)["picture_dot"] is None


# Graphs in parts


def arcs():
    """Two halves of a curve that two axes do not hold, far apart."""
    t = np.linspace(0, 5, 240)
    X = np.c_[np.cos(t), np.sin(t), np.cos(2 * t), np.sin(2 * t), np.cos(3 * t), np.sin(3 * t)]
    return np.c_[X, np.where(t < 2.5, 0, 8)]


@pytest.mark.parametrize("some", [["one"], ["one", "two"]])
def test_a_graph_in_parts_is_said_first_at_the_recommendation(some):
    methods = {"one": Isomap(n_neighbors=6), "two": Isomap(n_neighbors=6)}
    result = compare(arcs(), methods={name: methods[name] for name in some}, **QUICK)
    assert result.best in methods
    notes = result.document["answer"]["notes"][: len(some)]
    assert [by_name(result)[name]["recommended"] for name in some] == [True] * len(some)
    for name, note in zip(some, notes, strict=True):
        label = by_name(result)[name]["label"]
        assert note.startswith(f"The neighbor graph of {label} falls into 2 parts. ")
        for text in said(result):
            assert note in " ".join(text.split())


def test_a_graph_in_one_part_gets_no_such_words(roll):
    result = compare(roll, methods={"one": Isomap(n_neighbors=5)}, **QUICK)
    assert result.best == "one"
    assert not any("parts" in note for note in result.document["answer"]["notes"])


def test_a_graph_in_parts_of_what_is_not_recommended_is_a_warning_only():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [3, 2, 1e-3]
    X[60:, 0] += 100
    result = compare(X, methods=["isomap"], cv=3, scale="none", **QUICK)
    assert result.best == "pca"
    assert any("falls into 2 parts" in w["text"] for w in result.document["warnings"])
    assert not any("parts" in note for note in result.document["answer"]["notes"])
