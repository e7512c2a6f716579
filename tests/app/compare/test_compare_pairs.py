"""compare by pairs: distances ranked by the AUC of held-out pairs, folds by rows."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.metrics import auc
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar import LDA, RCA, KNNClassifier, PairClassifier, Pairs, Triplets, compare
from nearfar.app.compare.driver import answer
from nearfar.app.compare.judgement import Judgement, judge, sentence
from nearfar.app.compare.methods import find_estimator
from nearfar.app.compare.pair_folds import PairProblem, error_rates, ranking_error, restricted
from nearfar.app.compare.pair_methods import FORMS, pair_learners
from nearfar.app.compare.pair_splits import inner_pair_splits, pair_scheme
from nearfar.app.compare.pair_summary import WORDING, roc_at
from nearfar.app.compare.question import Question
from nearfar.app.compare.shown import wrong_pairs
from nearfar.app.report import render
from nearfar.datasets.tables import DataFile
from nearfar.evaluation.inference import Estimate, estimate_from_folds

pytest.importorskip("jinja2", reason="the report needs jinja2")

QUICK = {"repeats": 1, "isolate": False, "verbose": False, "tuning": "k", "cv": 2}


class Within(TransformerMixin, BaseEstimator):
    """Each feature over its spread in alike pairs."""

    def fit(self, X, y=None, *, supervision=None):
        apart = X[supervision.similar[:, 0]] - X[supervision.similar[:, 1]]
        self.components_ = np.diag(1 / np.sqrt((apart**2).mean(axis=0)))
        self.n_fitted_ = len(X)
        return self

    def transform(self, X):
        return X @ self.components_.T


class Useless(Within):
    """The last feature alone."""

    def fit(self, X, y=None, *, supervision=None):
        self.components_ = np.eye(X.shape[1])[-1:]
        return self


def telling(n=240, noise=6, seed=0):
    """Rows of three kinds, told apart by two features among many that are as wide."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    places = np.array([[0, 0], [1.2, 2.4], [2.4, 0]])[y]
    X = np.hstack([places + 0.4 * rng.normal(size=(n, 2)), rng.normal(size=(n, noise))])
    return X, y


def drawn(y, n=600, seed=0):
    return Pairs.from_labels(y, n_similar=n, n_dissimilar=n, random_state=seed)


def by_name(result):
    return {method["name"]: method for method in result.document["methods"]}


def ends_of(pairs):
    kinds = np.repeat([1, 0], [len(pairs.similar), len(pairs.dissimilar)])
    return np.vstack([pairs.similar, pairs.dissimilar]), kinds


@pytest.fixture(scope="module")
def data():
    X, y = telling()
    return X, drawn(y, 900)


@pytest.fixture(scope="module")
def found(data):
    X, pairs = data
    options = QUICK | {"repeats": 3, "cv": None, "tuning": "holdout"}
    methods = {"within": Within(), "useless": Useless()}
    return compare(X, supervision=pairs, methods=methods, **options)


# ---------------------------------------------------------------------- folds


def test_no_row_is_on_both_sides_and_pairs_across_are_counted(data):
    pairs = data[1]
    ends, codes = ends_of(pairs)
    scheme = pair_scheme(pairs, repeats=2, seed=1)
    lost = []
    for fold in scheme.folds:
        assert not set(ends[fold.train].ravel()) & set(ends[fold.test].ravel())
        assert set(codes[fold.test]) == {0, 1}
        lost.append(len(ends) - len(fold.train) - len(fold.test))
    note = next(text for text in scheme.notes if text.startswith("Pairs across"))
    assert f"of 1,800 pairs {np.mean(lost):,.0f} on average" in note
    tested = set(np.concatenate([fold.test for fold in scheme.folds]).tolist())
    assert f"; {1800 - len(tested):,} are never tested." in note
    shares = [
        len(np.unique(ends[fold.test])) / len(np.unique(ends[fold.train])) for fold in scheme.folds
    ]
    assert scheme.test_share == pytest.approx(np.mean(shares))
    assert scheme.test_share > 3 * np.mean([len(f.test) / len(f.train) for f in scheme.folds])


def test_pairs_that_share_no_row_are_all_used():
    numbers = np.arange(400).reshape(-1, 2)
    scheme = pair_scheme(Pairs(numbers[:100], numbers[100:], n_samples=400), repeats=1)
    assert all(len(fold.train) + len(fold.test) == 200 for fold in scheme.folds)
    assert "Pairs across folds: none, so that every pair is used in every fold." in scheme.notes
    assert not any("never tested" in note for note in scheme.notes)


def test_few_pairs_make_fewer_folds_and_it_is_said():
    _, y = telling(60)
    few = pair_scheme(drawn(y, 130), repeats=1)
    assert few.n_splits < 5
    assert any(text.startswith(f"{few.n_splits} folds instead of 5") for text in few.notes)
    many = pair_scheme(drawn(telling(300)[1], 2000), repeats=1)
    assert many.n_splits == 5 and not any("instead of" in text for text in many.notes)


def test_copies_of_rows_stay_on_one_side():
    X, y = telling(150)
    X, y = np.vstack([X, X]), np.hstack([y, y])
    pairs = drawn(y, 1500)
    ends, _ = ends_of(pairs)
    result = compare(X, supervision=pairs, methods={"within": Within()}, **QUICK)
    for fold in result.document["folds"]:
        held = set(ends[fold["test"]].ravel() % 150)
        scheme = pair_scheme(pairs, repeats=1, cv=2, same=np.arange(300) % 150)
        train = scheme.folds[fold["fold"]].train
        assert not held & set(ends[train].ravel() % 150)
    notes = result.document["protocol"]["notes"]
    assert any("none, nor a copy of one, is on both sides" in note for note in notes)
    assert "same = same_rows(X)" in result.code


def test_inner_splits_keep_the_rule_and_are_none_of_too_few():
    pairs = drawn(telling()[1], 500)
    ends, codes = ends_of(pairs)
    for tuning, many in (("full", 3), ("holdout", 1), ("k", 1)):
        inside = inner_pair_splits(tuning, ends, codes)
        assert len(inside) == many
        for train, test in inside:
            assert not set(ends[train].ravel()) & set(ends[test].ravel())
    assert inner_pair_splits("full", ends[[0, 1, -1]], codes[[0, 1, -1]]) == []


def test_a_learner_sees_rows_of_its_pairs_and_rows_in_none():
    ends, codes = np.array([[0, 1], [1, 4], [2, 3]]), np.array([1, 0, 0])
    rows, pairs = restricted(ends, codes, np.array([0, 1]), np.array([5, 7]))
    assert rows.tolist() == [0, 1, 4, 5, 7]
    assert pairs.similar.tolist() == [[0, 1]] and pairs.dissimilar.tolist() == [[1, 2]]
    assert pairs.n_samples == 5


# ---------------------------------------------------------------------- numbers


def area_by_loops(alike, different):
    wins = [1.0 if a < b else 0.5 if a == b else 0.0 for a, b in product(alike, different)]
    return np.mean(wins)


def test_areas_and_error_rates_are_those_of_loops(found, data):
    X, pairs = data
    ends, codes = ends_of(pairs)
    entry = by_name(found)["raw"]
    areas = []
    for fold, result in zip(found.document["folds"], entry["results"], strict=True):
        test = np.array(fold["test"])
        d = np.linalg.norm(X[ends[test, 0]] - X[ends[test, 1]], axis=1)
        areas.append(area_by_loops(d[codes[test] == 1], d[codes[test] == 0]))
        assert result["error"] == pytest.approx(1 - areas[-1])
        held = set(ends[test].ravel())
        train = [i for i in range(len(ends)) if not held & set(ends[i])]
        # Rows of dropped pairs are trained on with nobody, so that only the kept pairs count.
        known = np.linalg.norm(X[ends[:, 0]] - X[ends[:, 1]], axis=1)[train]
        unit = np.median(known)
        cut = result["threshold"] * unit
        rates = error_rates(d, codes[test], cut)
        assert result["missed"] == pytest.approx(rates["missed"], abs=0.02)
    assert entry["auc"] == pytest.approx(np.mean(areas))
    low, high = entry["interval"]
    assert low < entry["auc"] < high <= 1


def test_error_rates_by_hand():
    d, kinds = np.array([1.0, 2.0, 3.0, 1.5, 4.0]), np.array([1, 1, 1, 0, 0])
    assert error_rates(d, kinds, 2.0) == {"missed": 1 / 3, "false_alike": 0.5}
    assert error_rates(d, kinds, 0.5) == {"missed": 1.0, "false_alike": 0.0}
    assert error_rates(d[:3], kinds[:3], 2.0)["false_alike"] is None


def test_the_curve_has_the_area_of_the_folds(found):
    drawn_ = found.document["pairs"]["methods"]["within"]
    first = [r["error"] for r in by_name(found)["within"]["results"][:5]]
    assert len(found.document["folds"]) == 15
    heights = np.array(drawn_["roc"])
    area = auc(0.01 * np.arange(len(heights)), heights)
    assert area == pytest.approx(1 - np.mean(first), abs=0.01)
    assert (np.diff(heights) >= 0).all() and heights[-1] == 1


def test_a_curve_at_places_between_its_steps():
    kinds, d = np.array([1, 1, 0, 0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert roc_at(np.array([0, 0.2, 0.5, 0.7, 1]), kinds, d).tolist() == [0.5, 0.5, 1, 1, 1]


def test_the_reference_is_the_best_plain_distance(found):
    methods = by_name(found)
    plain = ("raw", "standardized", "cosine", "whitened")
    assert {m for m in methods if methods[m]["role"] == "baseline"} == set(plain)
    assert methods["reference"]["role"] == "reference"


def test_a_threshold_weighs_a_rare_kind():
    X, y = telling(120)
    even = PairProblem(X, drawn(y, 100), "passthrough")
    rare = PairProblem(
        X, Pairs.from_labels(y, n_similar=20, n_dissimilar=200, random_state=0), "passthrough"
    )
    assert even.strategy == "accuracy" and rare.strategy == "f_beta"


# ---------------------------------------------------------------------- sentences


def test_a_clear_gain_is_recommended_in_words_of_pairs(found):
    text = found.answer
    assert found.document["answer"]["verdict"] == "use" and found.best == "within"
    entry, reference = by_name(found)["within"], by_name(found)["reference"]
    assert text.startswith(
        f"Use Within: {100 * entry['auc']:.1f}% AUC of held-out pairs vs "
        f"{100 * reference['auc']:.1f}% for the best standard distance, a gain of "
    )
    assert f"{len(found.document['folds'][0]['test'])}" and "pairs." in text
    told = str(found) + render(found.document)
    for never in ("mistaken", "mistake", "k-NN", "votes", "classified", "labels are all"):
        assert never not in told, never
    assert "AUC of held-out pairs in percent, gain over the baseline in" in str(found)
    assert "percentage points. 3 × 5-fold by rows" in str(found)


def test_without_a_gain_the_plain_distance_is_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    picked = rng.integers(0, 400, size=(6000, 2))
    picked = picked[picked[:, 0] != picked[:, 1]]
    apart = np.linalg.norm(X[picked[:, 0]] - X[picked[:, 1]], axis=1)
    near = apart + rng.normal(0, 0.1, len(apart)) < np.median(apart)
    pairs = Pairs(picked[near], picked[~near], n_samples=400, conflicts="drop")
    options = QUICK | {"tuning": "holdout", "cv": None}
    result = compare(X, supervision=pairs, methods={"useless": Useless()}, **options)
    answer_ = result.document["answer"]
    assert answer_["verdict"] == "keep" and result.best == "reference"
    assert "AUC of held-out pairs" in answer_["text"]
    assert "no learned distance is better, and the best, Useless, has" in answer_["text"]
    assert "points less" in answer_["text"] and "excluded" in answer_["text"]


def said(found, **changes):
    options = {
        "labels": {"a": "A"},
        "reference_label": "raw Euclidean",
        "say": WORDING,
        "n_rows": 500,
        "fit_seconds": {"a": 0.25},
        "n_train": 400,
        "min_gain": 0.05,
        "nested_error": None,
        "noun": "pair",
    }
    return sentence(found, **options | changes)


@pytest.mark.parametrize("gain", [0.0, 0.001, 0.03, -0.02])
@pytest.mark.parametrize("spread", [0.0005, 0.02])
def test_every_sentence_is_in_shares_that_are_to_be_large(gain, spread):
    """Whatever the verdict: AUCs, not what they lack, and nothing of rows or errors."""
    base = 0.1
    differences = {"a": Estimate(-gain, spread, 24)}
    found_ = judge(base, {"a": base - gain}, differences, min_gain=0.05)
    text = said(found_)
    assert ("90.0%" in text and "AUC of held-out pairs" in text) or found_.verdict == "inconclusive"
    assert "10.0%" not in text
    for never in ("makes", "error", "mistake", "rows", "the lowest", "points more)"):
        assert never not in text, (never, text)


def test_perfect_ranks_are_said_only_where_they_are():
    none = judge(0.0, {"a": 0.0}, {"a": Estimate(0.0, 0.001, 24)})
    assert "it ranks every held-out pair correctly" in said(none)
    some = judge(0.01, {"a": 0.012}, {"a": Estimate(0.002, 0.001, 24)})
    assert some.verdict == "keep" and "every held-out pair" not in said(some)
    nothing = said(Judgement("inconclusive", None, 0.1))
    assert nothing.startswith("Inconclusive: no learned distance was tested")


def test_rca_takes_part_where_no_pair_contradicts_groups():
    _, y = telling(60)
    sound = drawn(y, 40)
    names, notes = pair_learners(None, sound)
    assert "rca" in [method.name for method in names]
    assert any("No pair says otherwise" in note for note in notes)
    i, j = sound.similar[0]
    groups = [[i, j], [j, 59 if j != 59 else 58]]
    broken = Pairs(groups, [[groups[0][0], groups[1][1]]], n_samples=60)
    names, notes = pair_learners(None, broken)
    assert "rca" not in [method.name for method in names]
    assert any("RCA, which learns from groups, is left out: rows" in note for note in notes)
    assert not any("No pair says otherwise" in note for note in notes)
    with pytest.raises(ValueError, match="these pairs make none"):
        pair_learners(RCA(), broken)
    one = Pairs([[0, 1], [1, 2]], [[0, 3]], n_samples=4)
    assert any("into one group" in note for note in pair_learners(None, one)[1])


def test_a_family_gives_those_that_learn_from_pairs():
    _, y = telling(60)
    found, notes = pair_learners("mahalanobis", drawn(y, 40))
    names = [method.name for method in found]
    assert len(notes) == 1 and notes[0].startswith("Left out of mahalanobis: ")
    assert all(name in notes[0] for name in ("NCA", "MCML", "MLKR", "LFDA", "pairs do not tell"))
    assert {"mmc", "rca", "logistic-metric"} <= set(names)
    assert "euclidean" not in names
    assert all(set(FORMS) & set(find_estimator(name).learner_tags.supervision) for name in names)
    with pytest.raises(ValueError, match="No learner of discriminant learns from pairs"):
        pair_learners("discriminant", drawn(y, 40))


def test_rows_in_no_pair_are_said_and_are_none_of_the_test(data):
    X, pairs = data
    X = np.vstack([X, X[:10] + 0.01])
    more = Pairs(pairs.similar, pairs.dissimilar, n_samples=len(X))
    result = compare(X, supervision=more, methods={"within": Within()}, **QUICK)
    lines = []
    question = Question(X, supervision=more, methods={"within": Within()}, **quick())
    answer(question, progress=Lines(lines))
    assert "10 rows in no pair take part in training, unjudged." in lines
    assert "of 240 of 250 rows" in str(result)
    assert not any("in no pair" in line for line in said_before(data))


class Lines(nearfar.app.progress.Progress):
    def __init__(self, lines):
        self.lines = lines

    def say(self, line):
        self.lines.append(line)


def quick(**more):
    return {key: value for key, value in QUICK.items() if key != "verbose"} | more


def said_before(data, **more):
    lines = []
    options = {"methods": {"within": Within()}} | quick(**more)
    answer(Question(data[0], supervision=data[1], **options), progress=Lines(lines))
    return lines


def test_a_sample_says_how_many_pairs(data):
    X, pairs = data
    options = QUICK | {"sample": 1000}
    result = compare(X, supervision=pairs, methods={"within": Within()}, **options)
    assert "on 1,000 of 1,800 pairs" in result.answer
    assert result.document["protocol"]["n_rows_used"] == 1000
    used = {i for fold in result.document["folds"] for i in fold["test"]}
    assert len(used) <= 1000


# ---------------------------------------------------------------------- warnings


def warned(X, pairs, **more):
    result = compare(X, supervision=pairs, methods={"within": Within()}, **QUICK | more)
    return {w["kind"]: w["text"] for w in result.document["warnings"]}


def test_what_would_mislead_is_warned_of_and_only_then(data):
    X, pairs = data
    assert warned(X, pairs) == {}
    twice = Pairs(
        np.vstack([pairs.similar, pairs.similar[:7, ::-1]]), pairs.dissimilar, n_samples=len(X)
    )
    assert warned(X, twice)["repeated pairs"].startswith("7 pairs repeat others")
    both = Pairs(
        pairs.similar,
        np.vstack([pairs.dissimilar, pairs.similar[:1]]),
        n_samples=len(X),
        conflicts="keep",
    )
    assert warned(X, both)["contradictions"].startswith("1 pair is said to be alike and")
    hub = Pairs(
        np.vstack([pairs.similar, [[0, i] for i in range(3, 240, 3)] * 5]),
        pairs.dissimilar,
        n_samples=len(X),
    )
    assert warned(X, hub)["one row"].startswith("Row 0 is in 4")
    copied = X.copy()
    i, j = pairs.dissimilar[0]
    copied[i] = copied[j]
    found_ = warned(copied, pairs)
    assert (
        set(found_) == {"equal rows"}
        and "1 pair said to be different has two" in found_["equal rows"]
    )


def test_alike_pairs_of_copies_make_numbers_too_good():
    X, y = telling(200)
    X[100:] = X[:100]
    y[100:] = y[:100]
    own = np.column_stack([np.arange(100), np.arange(100, 200)])
    pairs = drawn(y, 600)
    more = Pairs(np.vstack([pairs.similar, own]), pairs.dissimilar, n_samples=200, conflicts="drop")
    result = compare(X, supervision=more, methods={"within": Within()}, **QUICK)
    assert "duplicates" in {w["kind"] for w in result.document["warnings"]}
    assert result.document["answer"]["notes"][0] == (
        "Read the warnings first: if they are right, the results above are too optimistic."
    )


# ---------------------------------------------------------------------- pairs all get wrong


def test_pairs_that_were_judged_wrongly_are_found():
    _, y = telling(150)
    X = 3.0 * np.eye(3)[y] + np.random.default_rng(0).normal(size=(150, 3)) / 4
    pairs = drawn(y, 1200)
    alike, different = pairs.similar.copy(), pairs.dissimilar.copy()
    swapped = {tuple(sorted(pair)) for pair in (*alike[:60].tolist(), *different[:60].tolist())}
    wrong = Pairs(
        np.vstack([alike[60:], different[:60]]),
        np.vstack([different[60:], alike[:60]]),
        n_samples=150,
    )
    options = QUICK | {"tuning": "holdout"}
    result = compare(X, supervision=wrong, methods={"within": Within()}, **options)
    found_ = result.document["pairs"]
    told = {tuple(sorted(one["rows"])) for one in found_["wrong"]}
    assert found_["n_wrong"] >= 5
    assert len(told & swapped) > 0.8 * len(told)
    assert found_["n_tested"] == sum(fold["n_test"] for fold in result.document["folds"])
    # Each is on the wrong side by its distances.
    for one in found_["wrong"]:
        assert all((ratio > 1) == one["alike"] for ratio in one["ratios"].values())
    # The farthest are of one kind: of the other kind as many are shown, with their contents.
    shown = [one for kind in (True, False) for one in wrong_pairs(found_, kind)]
    assert len({one["alike"] for one in shown}) == 2
    known = set(result.document["rows"]["values"])
    assert {str(row) for one in shown for row in one["rows"]} == known
    text = render(result.document)
    assert f"{found_['n_wrong']:,} of {found_['n_tested']:,} held-out pairs" in text


# ---------------------------------------------------------------------- the page


def test_the_page_shows_distances_curves_thresholds_and_features(found):
    page = render(found.document)
    for heading in (
        "Distances of alike and of different pairs",
        "ROC curves",
        "Pairs that every method gets wrong",
        "What the distance weighs",
        "Thresholds",
    ):
        assert heading in page
    assert page.count('class="mirrored"') == 2 and page.count('class="roc best"') == 1
    assert "of what the baseline lacks of an AUC of 100%" in page
    for never in ("Class sizes", "Neighbors before", "Errors by class", ">k</th>"):
        assert never not in page


def test_no_contents_of_rows_where_none_are_wanted(data):
    X, pairs = data
    frame = pd.DataFrame(X).add_prefix("f")
    result = compare(
        frame, supervision=pairs, methods={"within": Within()}, show_rows=False, **QUICK
    )
    assert result.document["rows"] is None
    page = render(result.document)
    assert "The contents of rows are not shown, as asked" in page
    shown = compare(frame, supervision=pairs, methods={"within": Within()}, **QUICK)
    assert "The contents of rows are not shown" not in render(shown.document)


def test_a_page_of_nothing_says_so():
    page = render({"format": 1, "kind": "pairs", "data": {"unit": "pair"}})
    for text in ("No distances are known", "There is no curve", "Nothing is known of single pairs"):
        assert text in page


# ---------------------------------------------------------------------- going on, repeating, using


def test_an_interrupted_run_goes_on_from_its_journal(data, tmp_path, monkeypatch):
    X, pairs = data
    methods, path = {"within": Within()}, tmp_path / "a.journal"
    whole = compare(X, supervision=pairs, methods=methods, **QUICK)
    run_fold, calls = PairProblem.run_fold, []

    def stops(self, method, **task):
        calls.append(method.name)
        if len(calls) > 8:
            raise KeyboardInterrupt
        return run_fold(self, method, **task)

    monkeypatch.setattr(PairProblem, "run_fold", stops)
    part = compare(X, supervision=pairs, methods=methods, journal=path, **QUICK)
    assert part.document["status"] == "interrupted" and path.exists()
    monkeypatch.setattr(PairProblem, "run_fold", run_fold)
    again = compare(X, supervision=pairs, methods=methods, journal=path, **QUICK)
    assert again.complete and not path.exists()
    assert {n: m["auc"] for n, m in by_name(again).items()} == {
        n: m["auc"] for n, m in by_name(whole).items()
    }
    other = Pairs(pairs.similar[1:], pairs.dissimilar, n_samples=len(X))
    part = compare(X, supervision=pairs, methods=methods, journal=path, **QUICK)
    path.write_text("")
    assert part.complete and compare(X, supervision=other, methods=methods, **QUICK).complete


@pytest.mark.slow
@pytest.mark.parametrize("tuning", ["full", "k"])
def test_the_printed_lines_give_the_same_area(data, tuning):
    X, pairs = data
    options = QUICK | {"tuning": tuning, "min_gain": 0.0}
    for methods in ({"within": [Within()]}, {"useless": Useless()}):
        result = compare(X, supervision=pairs, methods=methods, **options)
        names = {"X": X, "pairs": pairs, "Within": Within, "printed": []}
        code = result.code.replace("print(", "printed.append(")
        code = "\n".join(line for line in code.splitlines() if "test_compare_pairs" not in line)
        exec(compile(code, "lines", "exec"), names)
        if result.best == "reference" and tuning == "k":
            continue  # untuned, the reference is not chosen
        assert names["printed"][-1] == pytest.approx(by_name(result)[result.best]["auc"])


def test_what_is_recommended_is_fitted_calibrated_and_kept(data, tmp_path):
    X, pairs = data
    frame = pd.DataFrame(X).add_prefix("f")
    options = QUICK | {"repeats": 2, "cv": None, "tuning": "holdout"}
    result = compare(frame, supervision=pairs, methods=["rca"], **options)
    assert result.best == "rca"
    model = result.fit(frame, pairs)
    classifier = model[-1]
    assert isinstance(classifier, PairClassifier)
    Z = model[:-1].transform(frame) if len(model.steps) > 1 else frame.to_numpy()
    ends, codes = ends_of(pairs)
    called = classifier.predict(np.asarray(Z)[ends])
    assert np.mean((called == 1) == (codes == 1)) > 0.8
    pytest.importorskip("skops", reason="model files need skops")
    nearfar.save(model, tmp_path / "m.nf")
    again = nearfar.load(tmp_path / "m.nf")
    assert again[-1].threshold_ == classifier.threshold_
    np.testing.assert_array_equal(again[-1].predict(np.asarray(Z)[ends]), called)
    with pytest.raises(ValueError, match="supervision is None"):
        result.fit(frame)


def test_processes_give_what_one_process_gives(data):
    X, pairs = data
    alone = compare(X, supervision=pairs, methods=["rca"], **QUICK)
    apart = compare(X, supervision=pairs, methods=["rca"], **QUICK | {"isolate": True, "n_jobs": 2})
    assert by_name(apart)["rca"]["auc"] == pytest.approx(by_name(alone)["rca"]["auc"], abs=1e-9)
    json.dumps(apart.document, allow_nan=False)


def test_learners_inside_a_pipeline_are_told_too(data):
    X, pairs = data
    chain = make_pipeline(StandardScaler(), Within())
    result = compare(X, supervision=pairs, methods={"chain": chain}, **QUICK)
    assert by_name(result)["chain"]["status"] == "done"


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"groups": np.zeros(240)}, "groups is for labels or embeddings"),
        ({"time": np.arange(240)}, "time is for labels"),
        ({"test": (np.ones((2, 8)), [0, 1])}, "test is for labels"),
        ({"scoring": "f1_macro"}, "scoring is for labels"),
        ({"report_by": np.zeros(240)}, "report_by is for labels"),
        ({"color": np.zeros(240)}, "color is for labels"),
        ({"n_components": 3}, "n_components is for embeddings"),
        ({"cv": [([0, 1], [2, 3])]}, "cv must be a number of folds"),
        ({"methods": [LDA()]}, "LDA learns from labels, which pairs do not give"),
        ({"methods": [KNNClassifier()]}, "predicts labels, and here are pairs"),
        ({"supervision": Triplets([[0, 1, 2]], n_samples=240)}, "supervision must be Pairs"),
        ({"supervision": [[0, 1]]}, "supervision must be Pairs"),
        ({"supervision": Pairs([[0, 1]], [[1, 2]], n_samples=9)}, "9 samples but X has 240"),
        ({"supervision": Pairs([[0, 1]], [], n_samples=240)}, "All 1 pairs are alike"),
        ({"supervision": Pairs([], [[0, 1]], n_samples=240)}, "some must be alike"),
        ({"supervision": Pairs([], [], n_samples=240)}, "There are no pairs"),
        (
            {"supervision": Pairs([[0, 1], [1, 2]], [[1, 3], [2, 4]], n_samples=240)},
            "2 pairs alike and 2 different are too few",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(data, given, words):
    X, pairs = data
    with pytest.raises(ValueError, match=words):
        compare(X, **{"supervision": pairs} | QUICK | given)


def test_a_file_needs_no_labels_and_uses_none(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, pairs = data
    _, y = telling()
    frame = pd.DataFrame(X).add_prefix("f").assign(label=[f"kind {one}" for one in y])
    frame.to_csv("rows.csv", index=False)
    ends, codes = ends_of(pairs)
    table = pd.DataFrame({"left": ends[:, 0], "right": ends[:, 1], "same": codes})
    table.to_csv("pairs.csv", index=False)
    question = Question(
        DataFile("rows.csv"), pairs="pairs.csv", methods={"within": Within()}, **quick()
    )
    result = answer(question)
    assert "label" not in result.document["data"]["features"]
    messages = result.document["data"]["messages"]
    assert any("'label' is no feature and not used" in text for text in messages)
    frame.drop(columns="label").to_csv("rows.csv", index=False)
    messages = answer(question).document["data"]["messages"]
    assert not any("is no feature" in text for text in messages)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(150, 500), (80, 1500)])
def test_intervals_hold_where_there_is_no_difference(n, m):
    """Two halves of the features that say the same: by rows 1 % of 200, by pairs 7 to 12 %."""
    missed = {"rows": 0, "pairs": 0}
    for seed in range(100):
        rng = np.random.default_rng(seed)
        y, places = rng.integers(0, 6, n), rng.normal(size=(6, 3))
        halves = [places[y] + rng.normal(size=(n, 3)) for _ in range(2)]
        pairs = Pairs.from_labels(y, n_similar=m, n_dissimilar=m, random_state=seed)
        ends, codes = ends_of(pairs)
        d = [np.linalg.norm(half[ends[:, 0]] - half[ends[:, 1]], axis=1) for half in halves]
        scheme = pair_scheme(pairs, repeats=5, seed=seed)
        gains = [
            ranking_error(codes[f.test], d[0][f.test]) - ranking_error(codes[f.test], d[1][f.test])
            for f in scheme.folds
        ]
        by_pairs = np.mean([len(f.test) / len(f.train) for f in scheme.folds])
        for name, share in (("rows", scheme.test_share), ("pairs", by_pairs)):
            low, high = estimate_from_folds(gains, share).interval()
            missed[name] += not low <= 0 <= high
    assert missed["rows"] <= 5
    assert missed["rows"] < missed["pairs"]
