"""Comparing distances by how well neighbors predict a number: compare, fit and predict."""

import csv
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor

from nearfar import LDA, MLKR, PCA, KNNRegressor, Pairs, compare
from nearfar.app.cli import main
from nearfar.app.compare.judgement import context_notes, judge, sentence
from nearfar.app.compare.methods import those_told
from nearfar.app.compare.splits import inner_splits, make_scheme
from nearfar.app.compare.value_folds import drawing_codes
from nearfar.app.compare.value_summary import WORDING
from nearfar.app.report import render
from nearfar.evaluation.inference import Estimate, estimate_from_rows
from nearfar.evaluation.measures import RelativeRMSE

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = 3.0 * X[:, 0] + 0.3 * RNG.normal(size=120) + 10.0
QUICK = {"task": "regression", "repeats": 1, "isolate": False, "verbose": False}


class Stretch(TransformerMixin, BaseEstimator):
    """Knows which column matters."""

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return np.asarray(X) * [10.0, 1.0, 1.0, 1.0]


@pytest.fixture(scope="module")
def found():
    return compare(X, Y, methods={"stretch": Stretch(), "pca": PCA()}, **QUICK)


# ---------------------------------------------------------------------- numbers


def test_the_unit_is_defined_once():
    y = RNG.normal(size=50) * 7 + 3
    measure = RelativeRMSE.from_targets(y)
    assert measure.unit == pytest.approx(np.std(y))
    assert measure.compute_relative_error(y, np.full(50, y.mean())) == pytest.approx(1.0)
    assert measure.compute_relative_error(y, y) == 0
    # Of any size.
    for size in (1e-200, 1e150):
        assert RelativeRMSE.from_targets(size * y).compute_relative_error(
            size * y, 0 * y
        ) == pytest.approx(measure.compute_relative_error(y, 0 * y))


def test_errors_are_those_of_scikit_learn(found):
    folds = KFold(5, shuffle=True, random_state=0)
    entry = next(m for m in found.document["methods"] if m["name"] == "stretch")
    ks = {r["fold"]: r["k"] for r in entry["results"]}
    errors = []
    for fold, (train, test) in enumerate(folds.split(X)):
        # The settings differ in their scaling, which the map undoes only up to columns of one size.
        setting = entry["results"][fold]["setting"]
        known, new = X[train], X[test]
        if setting.startswith("standardized"):
            mean, size = known.mean(axis=0), known.std(axis=0)
            known, new = (known - mean) / size, (new - mean) / size
        elif setting.startswith("unit"):
            known, new = (part / np.linalg.norm(part, axis=1)[:, None] for part in (known, new))
        stretched = [part * [10.0, 1.0, 1.0, 1.0] for part in (known, new)]
        peer = KNeighborsRegressor(ks[fold]).fit(stretched[0], Y[train])
        missed = peer.predict(stretched[1]) - Y[test]
        errors.append(np.sqrt(np.mean(missed**2)) / Y.std())
    assert entry["error"] == pytest.approx(np.mean(errors), abs=1e-9)
    assert entry["rmse"] == pytest.approx(entry["error"] * Y.std())


def test_context_is_that_of_scikit_learn(found):
    folds = KFold(5, shuffle=True, random_state=0)
    mean = next(m for m in found.document["methods"] if m["name"] == "mean")
    by_hand = [np.sqrt(np.mean((Y[b] - Y[a].mean()) ** 2)) for a, b in folds.split(X)]
    assert mean["error"] == pytest.approx(np.mean(by_hand) / Y.std())
    assert mean["role"] == "context" and mean["interval"][1] > 1.0  # it may be above 100 %
    names = {m["name"] for m in found.document["methods"] if m["role"] == "context"}
    assert names == {"mean", "ridge", "trees"}
    ridge = next(m for m in found.document["methods"] if m["name"] == "ridge")
    said = cross_val_predict(Ridge(1.0), X, Y, cv=folds)
    assert ridge["error"] == pytest.approx(np.sqrt(np.mean((said - Y) ** 2)) / Y.std(), rel=0.1)


def test_what_sees_the_column_is_recommended(found):
    answer = found.document["answer"]
    assert answer["verdict"] == "use" and found.best == "stretch"
    assert "% relative RMSE vs " in answer["text"]
    assert "rel. RMSE (95% CI)" in str(found) and "error (95% CI)" not in str(found)
    assert found.table.loc["stretch", "rmse"] > 0
    fitted = found.fit(X, Y)
    assert isinstance(fitted[-1], KNNRegressor)
    assert np.corrcoef(fitted.predict(X), Y)[0, 1] > 0.9


def test_the_losses_of_rows_vary_as_the_root_does():
    # The jackknife shares no code with the first-order losses.
    y, said = RNG.normal(size=200), RNG.normal(size=200)
    measure = RelativeRMSE.from_targets(y)
    losses = measure.compute_losses(y, said)
    assert losses.mean() == pytest.approx(float(measure.compute_relative_error(y, said)))
    without = [
        measure.compute_relative_error(np.delete(y, i), np.delete(said, i)) for i in range(200)
    ]
    jackknife = np.sqrt(199 / 200 * np.sum((np.array(without) - np.mean(without)) ** 2))
    plain = estimate_from_rows(losses, unit=0.0).standard_error
    assert plain == pytest.approx(jackknife, rel=0.03)
    assert estimate_from_rows(losses).standard_error > plain
    assert measure.compute_losses(y, y).tolist() == [0.0] * 200


def test_a_fixed_test_set_has_its_own_unit_and_an_interval():
    more = 100.0 + Y[:60]
    result = compare(
        X, Y, test=(X[:60] + 0.1, more), methods={"s": Stretch()}, context=False, **QUICK
    )
    assert result.document["protocol"]["measure_note"].count("the test rows") == 2
    entry = next(m for m in result.document["methods"] if m["name"] == "s")
    assert entry["error"] * np.std(more) == pytest.approx(100, rel=0.05)
    assert entry["interval"][0] < entry["error"] < entry["interval"][1]
    with pytest.raises(ValueError, match="3 in every row of the test set"):
        compare(X, Y, test=(X[:60], np.full(60, 3.0)), **QUICK)


def test_equal_methods_are_not_told_apart():
    same = compare(X, Y, methods={"pca": PCA()}, scale="standard", context=False, **QUICK)
    assert same.document["answer"]["verdict"] != "use"


# ---------------------------------------------------------------------- folds


def test_folds_are_plain_by_groups_and_in_time():
    codes = drawing_codes(Y)
    plain = make_scheme(codes, repeats=1, stratified=False)
    for fold, (train, test) in zip(
        plain.folds, KFold(5, shuffle=True, random_state=0).split(X), strict=True
    ):
        assert sorted(fold.test) == sorted(test) and sorted(fold.train) == sorted(train)
    assert plain.words == "1 × 5-fold, shuffled, seed 0" and "stratified" not in plain.code.lower()
    groups = np.arange(120) // 4
    grouped = make_scheme(codes, repeats=1, groups=groups, stratified=False)
    assert "group-wise, shuffled" in grouped.words
    for fold in grouped.folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        for a, b in inner_splits("full", codes[fold.train], groups[fold.train], stratified=False):
            assert not set(groups[fold.train][a]) & set(groups[fold.train][b])
    time = np.arange(120)[::-1]
    for fold in make_scheme(codes, repeats=1, time=time, stratified=False).folds:
        assert time[fold.train].max() < time[fold.test].min()


def test_samples_have_the_sizes_of_the_target():
    y = RNG.exponential(size=2000)
    rows = make_scheme(drawing_codes(y), repeats=1, sample=100, stratified=False).rows
    assert len(rows) == 100
    assert np.bincount(drawing_codes(y)[rows]).tolist() == [10] * 10


# ---------------------------------------------------------------------- who takes part


def test_learners_that_need_classes_are_left_out_with_a_sentence():
    result = compare(X, Y, methods=[PCA(), "lda"], context=False, tuning="k", **QUICK)
    text = "Left out: LDA: it learns from labels, and the target is a number."
    assert text in result.document["data"]["messages"]
    assert "lda" not in {m["name"] for m in result.document["methods"]}
    with pytest.raises(ValueError, match="LDA: it learns from labels, and the target is a number"):
        compare(X, Y, methods=[LDA()], **QUICK)
    with pytest.raises(ValueError, match="mine: it learns from labels"):
        compare(X, Y, methods={"mine": LogisticRegression()}, **QUICK)


def test_a_room_is_run_as_far_as_it_can_be():
    kept, said = those_told("mahalanobis", "values", "the target is a number")
    assert "MLKR" in kept and "Euclidean" in kept and "LMNN" not in kept
    assert any("LMNN" in text for text in said)
    kept, said = those_told("mahalanobis", "labels", "the target has classes")
    assert "LMNN" in kept and "MLKR" not in kept
    assert said == ["Left out: MLKR: it learns from values, and the target has classes."]
    assert those_told("discriminant", "labels", "")[1] == []
    with pytest.raises(ValueError, match=r"MLKR: it learns from values.*--task regression"):
        compare(X, Y > 10, methods="mlkr", verbose=False)


def test_mlkr_is_what_is_compared():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = compare(X[:60], Y[:60], context=False, tuning="k", **QUICK)
    roles = {m["name"]: m["role"] for m in result.document["methods"]}
    assert [name for name, role in roles.items() if role == "learner"] == ["mlkr"]
    assert result.best == "mlkr"  # one column of four matters


def test_regressors_by_neighbors_are_learners_and_others_context():
    methods = {"near": KNNRegressor(Stretch()), "line": Ridge()}
    result = compare(X, Y, methods=methods, context=False, tuning="k", **QUICK)
    entries = {m["name"]: m for m in result.document["methods"]}
    assert entries["near"]["role"] == "learner" and entries["line"]["role"] == "context"
    assert all(r["k"] is not None for r in entries["near"]["results"])


# ---------------------------------------------------------------------- what is said


def estimate(gain, error=0.001):
    return Estimate(-gain, error, 24.0)


@pytest.mark.parametrize(
    ("base", "gain", "error", "said"),
    [
        (0.8, 0.2, 0.01, "Use L: 60.0% relative RMSE vs 80.0% for the best standard"),
        (0.8, -0.02, 0.001, "the best, L, has 82.0% (2.0 points more). Any gain is excluded"),
        (0.8, 0.0, 0.0005, "the best, L, has 80.0% (the same)"),
        (0.8, 0.1, 0.2, "Inconclusive: L has 10.0 points less relative RMSE than "),
        (1.2, 0.3, 0.01, "Use L: 90.0% relative RMSE vs 120.0%"),
        (0.0, 0.0, 0.0, "it predicts every held-out row exactly"),
    ],
)
def test_sentences_speak_of_relative_rmse(base, gain, error, said):
    judged = judge(base, {"l": base - gain}, {"l": estimate(gain, error)}, min_gain=0.05)
    text = sentence(
        judged,
        labels={"l": "L"},
        reference_label="plain",
        say=WORDING,
        n_rows=100,
        fit_seconds={"l": 1.0},
        n_train=80,
        min_gain=0.05,
        nested_error=None,
    )
    assert said in text and "mistake" not in text and "as many" not in text


def test_notes_of_context_are_by_task():
    from nearfar.app.compare.wording import Wording

    values = context_notes([("Trees", 0.5)], WORDING, "MLKR")[0]
    assert values.startswith(
        "Trees has 50.0% relative RMSE, clearly less than MLKR. If you need only values,"
    )
    labels = context_notes([("Trees", 0.05)], Wording("error"), "LDA")[0]
    assert labels.startswith(
        "Trees has 5.0% error, clearly less than LDA. If you need only labels,"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"supervision": Pairs([[0, 1]], [[0, 2]], n_samples=120)}, "leave one out"),
        ({"scoring": "accuracy"}, "scoring is for classes"),
        ({"report_by": np.arange(120)}, "report_by is for classes"),
        ({"task": "ranking"}, "task='ranking' must be"),
        ({"color": "a"}, "color"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        compare(X, Y, **QUICK | given)


def test_a_target_is_needed_and_never_guessed():
    with pytest.raises(ValueError, match="y is None"):
        compare(X, task="regression", verbose=False)
    with pytest.raises(ValueError, match="add --task regression"):
        compare(X, Y, verbose=False)


# ---------------------------------------------------------------------- lines and pages


@pytest.mark.parametrize(
    "given",
    [
        {},
        pytest.param({"groups": np.arange(120) // 3}, marks=pytest.mark.slow),
        pytest.param({"time": np.arange(120)}, marks=pytest.mark.slow),
    ],
)
def test_the_lines_give_the_same_error(given, capsys):
    few = {name: values[:60] for name, values in given.items()}
    result = compare(
        X[:60], Y[:60], methods={"s": Stretch()}, context=False, tuning="k", **few, **QUICK
    )
    # Untuned, the lines are of the standard distance to be kept, if no learner is recommended.
    roles = {"baseline"} if result.best == "reference" else {"learner"}
    errors = [m["error"] for m in result.document["methods"] if m["role"] in roles]
    code = result.code.replace(", memory=mkdtemp()", "").replace("from test_compare", "# from test")
    exec(code, {"X": X[:60], "y": Y[:60], "Stretch": Stretch, **few})
    assert float(capsys.readouterr().out) == pytest.approx(min(errors), abs=1e-6)


def test_the_page_shows_values_and_no_classes(found):
    page = render(found.document)
    for text in ("Predicted against true", "Errors by the size of the target", "predicts worst"):
        assert text in page
    for text in ("Confusion", "class_name", "classified wrongly", "Class sizes", "classifiers"):
        assert text not in page
    assert page.count('class="said"') == 2 * 120
    sizes = found.document["values"]["sizes"]
    assert sum(part["n"] for part in sizes) == 120 and len(sizes) == 5
    # The parts together are the whole.
    parts = found.document["values"]["by_size"]["stretch"]
    squares = sum(p["n"] * one["error"] ** 2 for p, one in zip(sizes, parts, strict=True)) / 120
    held = found.document["held_out"]
    missed = np.array(held["predicted"]["stretch"]) - np.array(held["true"])
    assert squares == pytest.approx(np.mean(missed**2) / Y.var())
    worst = found.document["values"]["worst"]
    least = [min(abs(v - one["true"]) for v in one["predicted"].values()) for one in worst]
    assert least == sorted(least, reverse=True)


def test_no_rows_keeps_values_out():
    frame = pd.DataFrame(X, columns=list("abcd"))
    result = compare(
        frame, Y, methods={"pca": PCA()}, context=False, tuning="k", show_rows=False, **QUICK
    )
    document = json.dumps(result.document)
    assert repr(float(Y.max())) not in document and repr(float(Y[5])) not in document
    page = render(result.document)
    assert "as asked (--no-rows)" in page and 'class="said"' not in page
    assert "lowest" in page and f"{Y.max():.6g}" not in page


def test_images_and_few_values_have_pages():
    images = RNG.normal(size=(60, 4, 4))
    y = images.mean(axis=(1, 2)).round(1)
    result = compare(images, y, methods={"pca": PCA()}, context=False, tuning="k", **QUICK)
    assert "data:image/png" in render(result.document)


# ---------------------------------------------------------------------- the command line


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.insert(0, "id", [f"P{i:03d}" for i in range(120)])
    frame["price"] = [f"${1000 * value:,.2f}" for value in Y]
    frame.to_csv("t.csv", index=False)
    frame.head(3).assign(id=["N0", "N1", "N2"]).to_csv("new.csv", index=False)
    return tmp_path


def test_fit_and_predict_give_values_and_neighbors(table, capsys):
    words = ["--target", "price", "--task", "regression", "--id", "id", "--method", "mlkr"]
    words += ["--scale", "none", "-k", "3"]
    assert main(["fit", "t.csv", *words, "--save", "m.nf"]) == 0
    out, err = capsys.readouterr()
    assert "The target 'price' is read as numbers" in err and "their IDs from 'id'" in out
    assert main(["predict", "m.nf", "new.csv", "--id", "id"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [line["id"] for line in lines] == ["N0", "N1", "N2"]
    for row, line in enumerate(lines):
        assert line["neighbors"].split()[0] == f"P{row:03d}"  # the row itself was trained on
        numbers = [int(name[1:]) for name in line["neighbors"].split()]
        assert float(line["value"]) == pytest.approx(1000 * Y[numbers].mean(), rel=1e-4)
    assert main(["predict", "m.nf", "new.csv", "--id", "id", "--out", "p.csv"]) == 0
    out = capsys.readouterr().out
    assert "Wrote the values of 3 rows" in out and "RMSE with respect to 'price' in the file" in out
    assert main(["show", "m.nf"]) == 0
    assert "a number: 'price'" in capsys.readouterr().out
    assert main(["neighbors", "m.nf", "new.csv", "--id", "id", "-k", "1"]) == 0


def test_compare_on_the_command_line(table, capsys):
    words = ["--target", "price", "--repeats", "1", "--in-process", "--tuning", "k"]
    words += ["--methods", "pca", "--id", "id"]
    assert main(["compare", "t.csv", *words, "--no-context"]) != 0
    assert "continuous" not in capsys.readouterr().err  # text in every row is no number yet
    assert main(["compare", "t.csv", *words, "--task", "regression", "--no-context", "--code"]) == 0
    out = capsys.readouterr().out
    assert "Predict the values of new rows" in out and "--task regression" in out
    assert "y = check_numbers(y)[0]" in out
    assert "Predicted against true" in (table / "report.html").read_text("utf-8")
    assert (
        main(
            ["fit", "t.csv", "--target", "price", "--task", "regression", "--method", "lda"]
            + ["--save", "x.nf"]
        )
        != 0
    )
    assert "LDA: it learns from labels" in capsys.readouterr().err


def test_mlkr_takes_values():
    assert "values" in MLKR.learner_tags.supervision
