"""compare without labels: embeddings ranked by the neighbors of held-out rows that they keep."""

import json
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_swiss_roll
from sklearn.model_selection import KFold

import nearfar
from nearfar import PCA, Isomap, compare
from nearfar.app.cli import main
from nearfar.app.compare.driver import answer
from nearfar.app.compare.embeddings import MEASURED, neighbors_counted
from nearfar.app.compare.question import Question
from nearfar.app.compare.schedule import Schedule
from nearfar.app.report import render
from nearfar.datasets.tables import DataFile
from nearfar.evaluation import held_out_quality, rank_trustworthiness
from nearfar.evaluation.quality import compute_intersections

QUICK = {"repeats": 1, "isolate": False, "verbose": False}


class Mine(TransformerMixin, BaseEstimator):
    """The first two columns, but for what subclasses do."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X)[:, :2]


class Raises(Mine):
    def fit(self, X, y=None):
        raise ValueError("no unfolding\ntoday")


class Sleeps(Mine):
    def fit(self, X, y=None):
        time.sleep(1000)


class Leaves(Mine):
    def fit(self, X, y=None):
        import os

        os._exit(3)


class Remembers(Mine):
    """Perfect on the rows it is fitted to, and knows nothing of others."""

    def fit_transform(self, X, y=None):
        self.fitted_ = True
        return np.asarray(X)

    def transform(self, X):
        return np.random.default_rng(0).normal(size=np.shape(X))


class Counts(Mine):
    fits = 0

    def fit(self, X, y=None):
        Counts.fits += 1
        return self


@pytest.fixture(scope="module")
def roll():
    return make_swiss_roll(330, noise=0.05, random_state=1)


@pytest.fixture(scope="module")
def rolled(roll):
    """A comparison on the roll."""
    X, angle = roll
    methods = ["isomap", "variational-mvu", "lle"]
    return compare(X, methods=methods, color=angle, **QUICK)


def plane(n=200):
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    return (rng.uniform(size=(n, 5)) * [4, 3, 1e-3, 1e-3, 1e-3]) @ turn


def by_name(result):
    return {method["name"]: method for method in result.document["methods"]}


# The measure


def kept_by_hand(known, there, new, placed, n_neighbors):
    """Sets and loops."""
    shares = []
    for x, y in zip(new, placed, strict=True):
        near = [
            set(np.argsort(np.linalg.norm(points - one, axis=1), kind="stable")[:n_neighbors])
            for points, one in ((known, x), (there, y))
        ]
        shares.append(len(near[0] & near[1]) / n_neighbors)
    return np.mean(shares)


def test_held_out_measures_by_hand():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(60, 4)), rng.normal(size=(20, 4))
    Y, placed = X[:, :2], new[:, :2]
    found = held_out_quality(X, Y, new, placed, n_neighbors=6)
    assert found["intersection"] == pytest.approx(kept_by_hand(X, Y, new, placed, 6))
    pairs = {"continuity": ([], []), "trust": ([], [])}
    excess = 0
    for x, y in zip(new, placed, strict=True):
        a, b = np.linalg.norm(X - x, axis=1), np.linalg.norm(Y - y, axis=1)
        for name, near in (("continuity", np.argsort(a)[:6]), ("trust", np.argsort(b)[:6])):
            pairs[name][0].extend(a[near])
            pairs[name][1].extend(b[near])
        ranks = np.argsort(np.argsort(a)) + 1
        excess += np.maximum(ranks[np.argsort(b)[:6]] - 6, 0).sum()
    for name, (a, b) in pairs.items():
        assert found[name] == pytest.approx(np.dot(a, b) ** 2 / np.dot(a, a) / np.dot(b, b))
    worst = 20 * np.sum(np.arange(60 - 5, 61) - 6)  # the six last ranks
    assert found["rank_trust"] == pytest.approx(1 - excess / worst)


def test_held_out_measures_are_one_where_nothing_is_lost():
    X = np.random.default_rng(0).normal(size=(80, 3))
    found = held_out_quality(X[:60], 2 * X[:60], X[60:], 2 * X[60:], n_neighbors=5)
    assert found == pytest.approx(dict.fromkeys(found, 1.0))


def test_shares_of_fitted_rows_leave_out_the_row_itself():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[:12] = X[0]  # more copies than neighbors
    Y = np.random.default_rng(1).normal(size=(50, 2))
    for counts in ((4,), (4, 9)):
        found = compute_intersections(X, Y, counts, np.arange(50))
        some = compute_intersections(X, Y, counts, np.arange(20, 50))
        assert set(found) == set(counts)
    others = [
        kept_by_hand(np.delete(X, i, 0), np.delete(Y, i, 0), X[[i]], Y[[i]], 9)
        for i in range(20, 50)
    ]
    assert some[9] == pytest.approx(np.mean(others))
    assert rank_trustworthiness(X, X, 4) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X_new": np.zeros((5, 2))}, "X has 3 columns but X_new has 2"),
        ({"Y_new": np.zeros((5, 3))}, "Y has 2 columns but Y_new has 3"),
        ({"Y_new": np.zeros((4, 2))}, "X_new has 5 rows but Y_new has 4"),
        ({"X_new": np.full((5, 3), np.nan)}, "NaN"),
        ({"n_neighbors": 30}, "less than the number of rows, 30"),
    ],
)
def test_held_out_measures_refuse_what_does_not_fit(change, message):
    given = {"X": np.eye(30, 3), "Y": np.eye(30, 2), "X_new": np.zeros((5, 3))}
    with pytest.raises(ValueError, match=message):
        held_out_quality(**given | {"Y_new": np.zeros((5, 2))} | change)


def test_the_number_of_a_method_is_that_of_its_folds_by_hand(roll):
    X = roll[0][:100]
    result = compare(X, methods="isomap", cv=4, **QUICK)
    shares = []
    for train, test in KFold(4, shuffle=True, random_state=np.random.RandomState(0)).split(X):
        learner = Isomap()
        there = learner.fit_transform(X[train])
        shares.append(kept_by_hand(X[train], there, X[test], learner.transform(X[test]), 5))
    assert result.document["protocol"]["n_neighbors"] == 5
    assert by_name(result)["isomap"]["kept"] == pytest.approx(np.mean(shares))
    assert by_name(result)["isomap"]["difference"] == pytest.approx(
        by_name(result)["isomap"]["kept"] - by_name(result)["pca"]["kept"]
    )


# The ranking, where it is known


def test_unfolding_a_roll_keeps_more_than_flattening_it(rolled):
    found = by_name(rolled)
    assert found["variational-mvu"]["kept"] > found["pca"]["kept"] + 0.1
    assert found["isomap"]["kept"] > found["pca"]["kept"] + 0.05
    assert rolled.best in ("variational-mvu", "isomap")
    assert rolled.document["answer"]["verdict"] in ("use", "inconclusive")
    assert found[rolled.best]["difference_interval"][0] > 0
    assert found["variational-mvu"]["gap"] < 0.2 and found["isomap"]["gap"] is None
    assert found["random-projection"]["role"] == "baseline"
    order = [method["kept"] for method in rolled.document["methods"]]
    assert order == sorted(order, reverse=True)


def test_on_a_plane_pca_is_as_good_as_any():
    result = compare(plane(), methods=["isomap", "mvu"], cv=3, **QUICK)
    assert by_name(result)["pca"]["kept"] > 0.97
    assert result.best == "pca" and result.document["answer"]["verdict"] == "keep"
    assert result.answer.startswith("Keep PCA: it keeps ")


def test_what_remembers_its_rows_gains_nothing_by_it(roll):
    result = compare(roll[0], methods={"cheat": Remembers()}, cv=3, **QUICK)
    found = by_name(result)["cheat"]
    assert found["kept_fitted"] == 1.0
    assert found["kept"] < 0.1 < by_name(result)["pca"]["kept"]
    assert result.best == "pca"
    assert any("For a picture of these rows" in note for note in result.document["answer"]["notes"])


def test_twins_cannot_be_told_apart(roll):
    twins = {"one": Isomap(), "two": Isomap(n_neighbors=5)}
    result = compare(roll[0], methods=twins, **QUICK)
    answer = result.document["answer"]
    assert answer["verdict"] == "inconclusive" and result.best in twins
    assert "but it is not clearly better than" in answer["text"] and "one" in answer["text"]
    assert all(by_name(result)[name]["recommended"] for name in twins)
    assert not by_name(result)["pca"]["recommended"]


def test_a_lucky_draw_is_seen_and_not_recommended():
    rng = np.random.default_rng(0)
    turns = np.linspace(0, 4 * np.pi, 200)  # a coil, whose long axis PCA sees last
    X = np.c_[9 * np.cos(turns), 9 * np.sin(turns), 0.8 * turns + 0.01 * rng.normal(size=200)]
    methods = {"mine": Mine()}
    found = {}
    for seed in range(6):
        result = compare(X, methods=methods, random_state=seed, cv=3, **QUICK)
        found[seed] = by_name(result)["random-projection"]
        assert result.best in ("pca", "mine") and not found[seed]["recommended"]
        notes = " ".join(result.document["answer"]["notes"])
        best = max(by_name(result)[name]["kept"] for name in ("pca", "mine"))
        assert ("depends on its random draw" in notes) == (found[seed]["kept"] > best)
    assert any(one["difference_interval"][0] > 0 for one in found.values())


def test_one_fold_is_no_guide(roll):
    folds = [(np.arange(220), np.arange(220, 330))]
    result = compare(roll[0], methods="isomap", cv=folds, **QUICK)
    assert result.document["answer"]["verdict"] == "inconclusive"
    assert "one fold cannot settle it" in result.answer
    assert by_name(result)["isomap"]["p_holm"] is None


def test_neighbors_counted_grow_with_the_rows():
    assert [neighbors_counted(n)[0] for n in (16, 250, 500, 10_000)] == [5, 5, 10, 15]
    assert all(max(neighbors_counted(n)[1]) < n for n in (7, 16, 60, 500))


def test_equal_seeds_give_equal_numbers(roll):
    first, again, other = (
        compare(roll[0][:120], methods="lle", random_state=seed, **QUICK) for seed in (3, 3, 4)
    )
    numbers = [[m["kept"] for m in r.document["methods"]] for r in (first, again, other)]
    assert numbers[0] == numbers[1] != numbers[2]


# What goes wrong


def test_failures_are_rows(roll):
    methods = {"bad": Raises(), "gone": Leaves(), "flat": Mine()}
    result = compare(roll[0][:150], methods=methods, repeats=1, n_jobs=2, verbose=False)
    found = by_name(result)
    assert found["bad"]["status"] == "failed"
    assert found["bad"]["reason"] == "ValueError: no unfolding today"
    assert found["gone"]["status"] == "failed" and "exit code 3" in found["gone"]["reason"]
    assert found["flat"]["folds_done"] == found["pca"]["folds_done"] == 5
    assert found["flat"]["peak_mb"] is not None and found["bad"]["kept"] is None
    assert result.best == "pca" and result.complete
    assert "bad failed: ValueError: no unfolding today" in str(result)
    assert "no unfolding today" in render(result.document)


def test_the_deadline_ends_what_hangs(roll):
    began = time.monotonic()
    result = compare(
        roll[0][:60], methods={"slow": Sleeps()}, repeats=1, time_budget=3, verbose=False
    )
    assert time.monotonic() - began < 100  # it would sleep for 1000
    slow = by_name(result)["slow"]
    assert slow["status"] == "unfinished" and slow["kept"] is None
    assert result.document["status"] == "time budget reached" and not result.complete
    assert "slow unfinished: no fold was completed in time" in str(result)
    assert "The time budget was reached" in render(result.document)


def test_an_interrupted_comparison_goes_on(roll, tmp_path, monkeypatch):
    X = roll[0][:100]
    options = {"methods": {"mine": Counts()}, "journal": tmp_path / "j", **QUICK}
    record, done = Schedule._record, []

    def stop(self, run, fold, value):
        record(self, run, fold, value)
        done.append(run.method.name)
        if len(done) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(Schedule, "_record", stop)
    part = compare(X, **options)
    assert part.document["status"] == "interrupted" and not part.complete
    monkeypatch.undo()
    before, Counts.fits = done.count("mine"), 0
    assert 0 < before < 5
    whole = compare(X, **options)
    assert whole.complete and not (tmp_path / "j").exists()
    assert Counts.fits == 5 - before
    plain = compare(X, **options | {"journal": None})
    assert [m["kept"] for m in whole.document["methods"]] == [
        m["kept"] for m in plain.document["methods"]
    ]


def test_a_journal_of_other_methods_is_refused(roll, tmp_path, monkeypatch):
    X, options = roll[0][:60], {"journal": tmp_path / "j", **QUICK}

    def stop(self, run, fold, value):
        raise KeyboardInterrupt

    monkeypatch.setattr(Schedule, "_record", stop)
    compare(X, methods={"a": Mine()}, **options)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="of another comparison"):
        compare(X, methods={"b": Mine()}, **options)


ROLL = make_swiss_roll(60, random_state=0)[0]


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (ROLL[:2], {}, "2 rows; embeddings are compared on 20 or more"),
        (np.ones((50, 3)), {}, "All rows are equal"),
        (np.repeat(ROLL[:5], 20, axis=0), {}, "Only 5 of the 100 rows are different"),
        (np.where(ROLL > 20, np.inf, ROLL), {}, "infinit"),
        (np.array([["a", "b"]] * 50), {}, "number|text|strings"),
        (ROLL[:, 0], {}, "shape"),
        (ROLL[:, :1], {}, "1 column to use"),
        (ROLL, {"n_components": 4}, "3 columns to use"),
        (ROLL, {"n_components": 0}, "n_components=0"),
        (ROLL, {"methods": "lda"}, "learns from labels"),
        (ROLL, {"methods": "isomapp"}, "Did you mean isomap"),
        (ROLL, {"methods": []}, "methods is empty"),
        (ROLL, {"methods": {"k": Isomap}}, "give an object"),
        (ROLL, {"methods": {"k": KFold()}}, "no fit with a transform"),
        (ROLL, {"methods": {"pca": PCA(2)}}, "which is taken"),
        (ROLL, {"scale": "log"}, "scale='log'"),
        (ROLL, {"groups": np.arange(60)}, "groups needs labels"),
        (ROLL, {"scoring": "f1_macro"}, "scoring needs labels"),
        (ROLL, {"color": np.arange(59)}, "color must have a value for each of 60 rows"),
        (ROLL, {"color": "angle"}, "no such column"),
        (ROLL, {"cv": 1}, "cv=1"),
        (ROLL, {"cv": [(np.arange(4), np.arange(4, 60))]}, "4 training rows"),
    ],
)
def test_bad_input_is_told_in_words(X, options, message):
    with pytest.raises(ValueError, match=message):
        compare(X, **QUICK | options)


def test_missing_values_are_filled_and_said(roll):
    X = roll[0][:80].copy()
    X[3, 1] = np.nan
    result = compare(X, methods={"mine": Mine()}, **QUICK)
    assert [warning["kind"] for warning in result.document["warnings"]] == ["missing values"]
    assert result.complete and by_name(result)["pca"]["kept"] > 0.3


def test_color_with_labels_is_refused(roll):
    with pytest.raises(ValueError, match="without labels"):
        compare(roll[0], np.arange(330) % 2, color=roll[1], verbose=False)


def test_a_graph_in_pieces_is_said_in_words(roll):
    X = np.concatenate([roll[0][:60], 500 + roll[0][60:120]])
    result = compare(X, methods=["isomap"], cv=2, **QUICK)
    said = [w["text"] for w in result.document["warnings"] if "Isomap" in w["kind"]]
    assert len(said) == 1 and "falls into 2 parts" in said[0]
    assert said[0] in render(result.document).replace("&#39;", "'")


def test_columns_of_unequal_spread_are_standardized(roll):
    X = roll[0][:100] * [1, 1000, 1]
    scaled, raw = (
        compare(X, methods={"mine": Mine()}, scale=scale, **QUICK) for scale in ("auto", "none")
    )
    assert "standardized" in scaled.document["protocol"]["scaling"]
    assert "as they are" in raw.document["protocol"]["scaling"]
    assert any(w["kind"] == "scale" for w in raw.document["warnings"])
    assert by_name(scaled)["pca"]["kept"] != by_name(raw)["pca"]["kept"]


# The result, its lines and its report


def run_lines(code, **names):
    """Run printed lines; what they print, as a number."""
    space = {"printed": [], **names}
    exec(compile(code.replace("print(", "printed.append("), "lines", "exec"), space)
    return float(space["printed"][-1]), space["embedding"]


@pytest.mark.slow
def test_lines_for_an_array_give_the_share_of_the_best(rolled, roll):
    share, embedding = run_lines(rolled.code, X=roll[0])
    assert share == pytest.approx(by_name(rolled)[rolled.best]["kept"], abs=1e-12)
    assert embedding.shape == (330, 2)


def test_lines_for_a_file_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 3)) * [1, 50, 3], columns=["a", "b", "c"])
    frame["kind"] = np.where(np.arange(80) % 3, "u", "v")
    frame["class"] = np.arange(80) % 2
    frame.loc[5, "a"] = np.nan
    frame.to_csv("t.csv", index=False)
    options = {"unlabelled": True, "repeats": 1, "isolate": False}
    result = answer(Question(DataFile("t.csv"), methods="isomap", **options))
    data = result.document["data"]
    assert data["features"] == ["a", "b", "c", "kind"]
    assert data["dropped"] == [["class", "colours the pictures"]]
    assert result.document["colour"]["names"] == ["0", "1"]
    share, _ = run_lines(result.code)
    assert share == pytest.approx(by_name(result)[result.best]["kept"], abs=1e-12)


def test_lines_for_a_built_in_dataset_and_many_held_out_rows(monkeypatch):
    monkeypatch.setattr("nearfar.app.compare.embeddings.MEASURED", 20)
    monkeypatch.setattr("nearfar.app.compare.kinds.embeddings.MEASURED", 20)
    assert MEASURED > 20
    options = {"unlabelled": True, "repeats": 1, "isolate": False}
    result = answer(Question(DataFile("wine"), methods="pca", **options))
    assert [m["name"] for m in result.document["methods"]] == ["pca", "random-projection"]
    share, _ = run_lines(result.code)
    assert share == pytest.approx(by_name(result)["pca"]["kept"], abs=1e-12)


def test_the_result_shows_itself(rolled):
    assert list(rolled.table.index) == [m["name"] for m in rolled.document["methods"]]
    assert rolled.table.loc["isomap", "kept"] > 0.5
    folds = rolled.folds
    assert len(folds) == 5 * 5 and set(folds["fold"]) == set(range(5))
    mean = folds.groupby("method")["kept"].mean()
    assert mean["lle"] == pytest.approx(rolled.table.loc["lle", "kept"])
    assert max(map(len, str(rolled).split("\n\n")[2].splitlines()[:6])) <= 80
    assert rolled.answer in str(rolled) and "Isomap" in rolled._repr_html_()
    json.dumps(rolled.document, allow_nan=False)


def test_the_report_shows_leaderboard_pictures_spectra_and_lines(rolled):
    page = render(rolled.document)
    for word in ("which embedding?", "Leaderboard", "Fitted", "≤", "VariationalMVU", "Rings are"):
        assert word in page
    assert page.count('class="picture"') == 5
    assert page.count("<circle") > 5 * 320
    assert rolled.code.splitlines()[-1].replace("'", "&#39;") in page
    assert "nothing is tuned" in page and "two axes" in page
    assert "<script src" not in page and "http" not in page.replace("http-equiv", "")


def test_a_report_without_rows_shows_no_values(roll):
    frame = pd.DataFrame(roll[0], columns=list("abc")).iloc[:90]
    words = np.where(np.arange(90) % 2, "secretword", "otherword")
    options = {"methods": {"mine": Mine()}, **QUICK}
    shown = compare(frame, color=words, **options)
    hidden = compare(frame, color=words, show_rows=False, **options)
    assert "secretword" in render(shown.document)
    assert "secretword" not in render(hidden.document) + json.dumps(hidden.document)
    hidden = compare(frame, color="b", show_rows=False, **options)
    assert hidden.document["colour"]["ends"] is None
    assert hidden.document["data"]["features"] == ["a", "c"]


def test_names_in_a_report_are_escaped(roll):
    color = pd.Series(np.where(np.arange(60) % 2, "<b>x", "y"), name="<i>")
    result = compare(roll[0][:60], methods={"<u>m": Mine()}, color=color, **QUICK)
    page = render(result.document)
    assert "<b>x" not in page and "<i>" not in page and "<u>m" not in page
    assert "&lt;b&gt;x" in page and "&lt;u&gt;m" in page


def test_the_command_line(roll, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(roll[0], columns=list("abc")).assign(angle=roll[1])
    frame.to_csv("roll.csv", index=False)
    words = ["compare", "roll.csv", "--unlabeled", "--in-process", "--repeats", "1"]
    words += ["--methods", "isomap", "--color", "angle", "--json", "n.json"]
    assert main([*words, "--code"]) == 0
    printed, said = capsys.readouterr()
    assert "embeddings are compared" in said and "→ Isomap" in printed
    assert "read_table('roll.csv', need_target=False)" in printed
    assert "Report: report.html" in printed
    page = (tmp_path / "report.html").read_text("utf-8")
    found = json.loads((tmp_path / "n.json").read_text())
    assert found["kind"] == "embeddings" and found["colour"]["name"] == "angle"
    # Neither the folder of the data nor that of the library.
    for place in (str(tmp_path), nearfar.__path__[0]):
        assert place not in page and place not in json.dumps(found)
    assert list(tmp_path.glob("*.journal")) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wine", "--color", "angle"], "add --unlabeled"),
        (["wine", "--components", "3"], "add --unlabeled"),
        (["wine", "--unlabeled", "--groups", "a"], "--groups needs labels"),
        (["wine", "--unlabeled", "--tuning", "k"], "--tuning needs labels"),
        (["wine", "--unlabeled", "--color", "alcool"], "Did you mean 'alcohol'"),
        (["wine", "--unlabeled", "--methods", "lmnn"], "learns from labels"),
    ],
)
def test_the_command_line_says_what_does_not_go_together(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
