"""What is given up for time, and in which order; samples of rows; the second stage."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification

from nearfar import LDA, compare
from nearfar.app.compare.plan import Plan, choose_plan, foretell, row_steps, total_seconds
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.splits import make_scheme, sample_rows

FITS = {"full": 10, "holdout": 4, "k": 2}
ROWS = row_steps(100_000, 2000)


def chosen(left, prices, **options):
    """The plan for methods whose fits cost so many seconds on 1,000 rows."""

    def seconds(name, rows, tuning):
        return prices[name] * FITS[tuning] * (100_000 if rows is None else rows) / 1000

    given = {"n_jobs": 1, "repeats": (5, 4, 3, 2, 1), "rows": ROWS, "tunings": tuple(FITS)}
    return choose_plan(list(prices), seconds, left=left, **(given | options))


def test_repeats_go_first_then_rows_then_tuning_then_the_dearest():
    prices = {"plain": 0.01, "lda": 0.1, "lmnn": 0.89}  # 1,000 s for a repeat of all rows
    may_go = {"lda", "lmnn"}
    assert chosen(5000, prices) == Plan("full", 5, None)
    assert chosen(2999, prices) == Plan("full", 2, None)
    assert chosen(999, prices) == Plan("full", 1, 64_000)
    assert chosen(100, prices) == Plan("full", 1, 8000)
    assert chosen(20, prices) == Plan("full", 1, 2000)
    assert chosen(19, prices) == Plan("holdout", 1, 2000)
    assert chosen(4, prices, may_go=may_go) == Plan("k", 1, 2000)
    # Without the dearest there is time for more of everything else again.
    assert chosen(3.9, prices, may_go=may_go) == Plan("full", 1, 2000, ("lmnn",))
    assert chosen(3.9, prices) == Plan("k", 1, 2000)  # nothing may go: it is tried all the same
    assert chosen(0.1, prices, may_go=may_go) == Plan("holdout", 1, 2000, ("lmnn", "lda"))


def test_what_the_user_fixed_is_not_given_up():
    prices = {"lda": 0.1, "lmnn": 0.9}
    assert chosen(10, prices, rows=(None,)) == Plan("k", 1, None)
    assert chosen(10, prices, rows=(None,), tunings=("full",)).tuning == "full"
    assert chosen(100, prices, repeats=(3,)) == Plan("full", 3, 2000)


def test_a_method_alone_cannot_use_two_cores():
    prices = {"lmnn": 1.0}
    assert chosen(999, prices, n_jobs=2, repeats=(1,)).rows == 64_000
    assert chosen(1001, prices, n_jobs=2, repeats=(1,)).rows is None


def test_shared_work_is_counted_once():
    assert total_seconds([("pairs", 10.0)] * 3) == pytest.approx(13.0)
    assert total_seconds([(None, 10.0)] * 3) == 30.0
    assert total_seconds([("pairs", np.inf), ("pairs", 1.0)]) == np.inf
    prices = dict.fromkeys("abc", 0.5)
    alone = chosen(100, prices, families=lambda name: None)
    shared = chosen(100, prices, families=lambda name: "pairs")
    assert (alone.rows, shared.rows) == (4000, 8000)


def test_foretelling_follows_the_last_two_pilots():
    assert foretell([(500, 1.0), (1000, 2.0)], 4000) == pytest.approx(8.0)
    assert foretell([(500, 1.0), (1000, 1.0)], 4000) == pytest.approx(4.0)  # at least linear
    assert foretell([(500, 1.0), (1000, 9.0)], 4000) == pytest.approx(9 * 16.0)  # at most squares
    assert foretell([(1000, 3.0)], 1000) == 3.0
    # Far away the search for neighbors is quadratic, whatever few rows show.
    assert foretell([(500, 1.0), (1000, 1.0)], 80_000) > 8 * 10**1.6


# Samples


def test_a_sample_has_the_shares_of_the_classes_and_grows():
    codes = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], [6000, 3000, 990, 10]))
    small, large = sample_rows(codes, 1000, seed=3), sample_rows(codes, 4000, seed=3)
    assert np.bincount(codes[small]).tolist() == [600, 300, 99, 5]
    assert set(small) <= set(large) and len(large) == 4001 and (np.diff(small) > 0).all()
    assert sample_rows(codes, 1000, seed=3).tolist() == small.tolist()
    assert sample_rows(codes, 1000, seed=4).tolist() != small.tolist()


def test_whole_groups_are_drawn_where_they_are_many():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(1000), 10))
    codes = groups % 3
    rows = sample_rows(codes, 1000, groups=groups)
    kept = np.unique(groups[rows])
    assert len(rows) == 1000 and len(kept) == 100
    assert np.isin(groups, kept).sum() == len(rows)  # none was torn apart
    assert np.bincount(codes[rows]).min() > 300


def test_of_few_groups_all_take_part():
    groups = np.repeat(np.arange(12), 1000)
    codes = np.tile([0, 0, 0, 1], 3000)
    rows = sample_rows(codes, 1200, groups=groups)
    assert np.bincount(groups[rows]).tolist() == [100] * 12
    assert np.bincount(codes[rows]).tolist() == [900, 300]


def test_folds_of_a_sample_are_in_the_numbers_of_all_rows():
    codes = np.arange(5000) % 5
    groups = np.arange(5000) // 4
    for options in ({}, {"groups": groups}, {"time": np.arange(5000.0)}):
        scheme = make_scheme(codes, repeats=1, sample=1000, **options)
        used = np.unique(np.concatenate([np.r_[f.train, f.test] for f in scheme.folds]))
        assert np.isin(used, scheme.rows).all() and abs(len(scheme.rows) - 1000) < 20
        assert scheme.words.endswith(f"on {len(scheme.rows):,} of 5,000 rows")
        assert make_scheme(codes, repeats=1, sample=5000, **options).rows is None
    fold = make_scheme(codes, repeats=1, sample=1000, n_test_rows=500).folds[0]
    assert (len(fold.train), len(fold.test)) == (900, 100) and fold.test.min() >= 4500
    given = [(np.arange(4000), np.arange(4000, 5000))]
    assert make_scheme(codes, repeats=1, sample=1000, cv=given).rows is None  # as they are


# A whole comparison

QUICK = {"methods": {"lda": LDA()}, "context": False, "isolate": False, "verbose": False}


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(
        3000, 8, n_informative=6, n_classes=3, class_sep=1.5, random_state=0, shuffle=True
    )
    return X * np.logspace(-1, 1, 8), y


def test_a_sample_that_is_asked_for_is_said(rows):
    options = QUICK | {"repeats": 1, "cv": 2}
    first = compare(*rows, sample=300, tuning="holdout", **options)
    again = compare(*rows, sample=300, tuning="holdout", **options)
    document = first.document
    assert document["protocol"]["n_rows_used"] == 300 and document["data"]["n_rows"] == 3000
    assert document["protocol"]["planned"] == {
        "tuning": "holdout",
        "repeats": 1,
        "rows": 300,
        "left_out": [],
        "seed": 0,
    }
    assert "on 300 of 3,000 rows" in first.answer
    assert "300 of 3,000" not in compare(*rows, tuning="k", **options).answer
    errors = [[m["error"] for m in each.document["methods"]] for each in (first, again)]
    assert errors[0] == errors[1]
    scope = {"X": rows[0], "y": rows[1]}
    exec(first.code.replace("print(", "found = ("), scope)  # the printed lines give the same
    best = next(m for m in document["methods"] if m["name"] == first.best)
    assert scope["found"] == pytest.approx(best["error"], abs=1e-12)
    assert scope["search"].n_features_in_ == 8


def test_rows_are_cut_when_the_pilot_says_so_and_all_are_fitted_once(rows, monkeypatch):
    # As if each fit took a second for 5,000 rows: all rows would take 52 s, and 48 may be filled.
    monkeypatch.setattr(Schedule, "seconds", lambda self, run, n_train: n_train / 5000)
    monkeypatch.setattr(Schedule, "_extend", lambda self: False)  # more repeats show nothing more
    result = compare(*rows, time_budget=60, random_state=1, **QUICK)
    planned = result.document["protocol"]["planned"]
    assert planned["rows"] == 2000 and planned["tuning"] == "full"
    assert any(
        "2,000 of 3,000 rows are drawn" in line for line in result.document["protocol"]["plan"]
    )
    found = result.document["all_rows"]
    assert (found["n_train"], found["n_test"]) == (2400, 600)
    assert {"reference", "learner"} == set(found["results"])
    assert "On all rows (one split, 2,400 for training and 600 held out), LDA has" in result.answer
    same = compare(
        *rows, sample=2000, repeats=planned["repeats"], tuning="full", random_state=1, **QUICK
    )
    errors = [
        {m["name"]: m["results"] for m in each.document["methods"]} for each in (result, same)
    ]
    for name, folds in errors[0].items():
        assert [f["error"] for f in folds] == [f["error"] for f in errors[1][name]], name
    assert same.document["all_rows"] is None  # a sample that was asked for is what was asked for


def test_all_rows_are_fitted_by_workers_too(rows, monkeypatch):
    monkeypatch.setattr(Schedule, "seconds", lambda self, run, n_train: n_train / 5000)
    # No repeat more: the time is for the second stage.
    monkeypatch.setattr(Schedule, "_extend", lambda self: False)
    result = compare(*rows, time_budget=60, n_jobs=1, **(QUICK | {"isolate": True}))
    found = result.document["all_rows"]
    if result.document["status"] == "complete":  # not on a machine that is far too busy
        assert "reason" not in found or "left" in found["reason"], found
        assert "did not end" not in result.answer


def test_a_gain_that_is_gone_on_all_rows_is_not_recommended(monkeypatch):
    from nearfar.app.compare import driver

    def confirmed(schedule, finalists):
        plain, learner = ({"label": f.method.label, "error": 0.1} for f in finalists)
        return {"n_train": 2400, "n_test": 600, "results": {"reference": plain, "learner": learner}}

    options = QUICK | {"sample": 1500, "repeats": 1, "tuning": "holdout"}
    y = np.arange(3000) % 3
    X = np.random.default_rng(0).normal(size=(3000, 60))
    X[:, :3] += 1.7 * np.eye(3)[y]
    before = compare(X, y, **options)
    monkeypatch.setattr(driver, "confirm", confirmed)
    after = compare(X, y, **options)
    assert before.document["answer"]["verdict"] == "use"
    assert after.document["answer"]["verdict"] == "inconclusive" and after.best == "reference"
    assert ", but not on all rows." in after.answer
    assert "10.0%" in after.answer


def test_untuned_a_gain_is_that_over_the_best_plain_distance(monkeypatch):
    from nearfar.app.compare import driver
    from nearfar.app.report import render

    y = np.arange(1500) % 3
    X = np.random.default_rng(0).normal(size=(1500, 60))
    X[:, :3] += 1.7 * np.eye(3)[y]
    X[:, :3] *= 1.2
    options = QUICK | {"repeats": 1, "tuning": "k"}
    found = compare(X + 5, y, **options)
    rows = {m["name"]: m for m in found.document["methods"]}
    plain = [m for m in rows.values() if m["role"] == "baseline"]
    best = min(plain, key=lambda m: m["error"])
    label, error, own = best["label"], best["error"], rows["lda"]["error"]
    assert error < rows["reference"]["error"] - 0.05
    assert found.document["answer"]["verdict"] == "use"
    assert (
        f"vs {100 * error:.1f}% for {label}, the standard distance with the lowest" in found.answer
    )
    assert f"a gain of {100 * (error - own):.1f} points" in found.answer
    assert f"{100 * rows['lda']['gain']:.1f} points" not in found.answer
    page = render(found.document).replace("\u00a0", " ")
    assert (
        f"Gain over {label}" in page
        and "in the table are relative to standardized Euclidean" in page
    )
    # A gain that is clear and not worth having is none.
    shares = [1 - own / one for one in (error, rows["reference"]["error"])]
    wanting = compare(X + 5, y, min_gain=float(np.mean(shares)), **options)
    assert wanting.document["answer"]["verdict"] == "inconclusive"
    assert f"not clearly better than {label}" in wanting.answer

    # Where the gain is gone on all rows, what is kept is what was fitted to them.
    def confirmed(schedule, finalists):
        plain, learner = ({"label": f.method.label, "error": 0.1} for f in finalists)
        return {"n_train": 1200, "n_test": 300, "results": {"reference": plain, "learner": learner}}

    monkeypatch.setattr(driver, "confirm", confirmed)
    gone = compare(X + 5, y, sample=1400, **options)
    assert ", but not on all rows." in gone.answer
    kept = [m for m in gone.document["methods"] if m["role"] == "baseline"]
    assert gone.answer.endswith(f"keep {min(kept, key=lambda m: m['error'])['label']}.")
    assert not gone.answer.endswith("standardized.")


def test_what_is_left_out_is_said_by_name(monkeypatch):
    prices = {"lda": 0.01, "dear": 100.0}
    monkeypatch.setattr(
        Schedule, "seconds", lambda self, run, n: prices.get(run.method.name, 0.001)
    )
    monkeypatch.setattr(Schedule, "_extend", lambda self: False)  # more repeats show nothing more
    X, y = load_iris(return_X_y=True)
    methods = {"lda": LDA(), "dear": LDA(1)}
    result = compare(X, y, time_budget=30, repeats=1, **(QUICK | {"methods": methods}))
    rows = {m["name"]: m for m in result.document["methods"]}
    assert rows["dear"]["status"] == "left out" and rows["dear"]["error"] is None
    assert result.document["protocol"]["planned"]["left_out"] == ["dear"]
    assert any(note.startswith("dear was left out") for note in result.document["answer"]["notes"])
    assert any(line.startswith("Left out: dear") for line in result.document["protocol"]["plan"])
    same = compare(X, y, without="dear", repeats=1, **(QUICK | {"methods": methods}))
    assert {m["name"] for m in same.document["methods"]} == set(rows) - {"dear"}
    with pytest.raises(ValueError, match="without='deer'.*Did you mean dear"):
        compare(X, y, without="deer", **(QUICK | {"methods": methods}))
    with pytest.raises(ValueError, match="nothing is left to compare"):
        compare(X, y, without=["lda", "dear"], **(QUICK | {"methods": methods}))


@pytest.mark.parametrize("sample", [10, 0, -5, "many", 200.5, True])
def test_a_sample_that_makes_no_sense_is_refused(sample):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="sample="):
        compare(X, y, sample=sample, **QUICK)


# Equal tuning


def test_untuned_nobody_chooses_among_settings():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = rng.normal(size=(400, 30))
    X[:, 0] = 30 * y + rng.normal(size=400)  # raw distances see the one column that tells
    options = QUICK | {"methods": {"lda": LDA()}, "repeats": 1}
    untuned = compare(X, y, tuning="k", **options)
    tuned = compare(X, y, tuning="holdout", **options)
    rows = [{m["name"]: m for m in each.document["methods"]} for each in (untuned, tuned)]
    assert rows[0]["raw"]["error"] < rows[0]["standardized"]["error"]
    # The reference is at its first setting as the learner is, not the best of four.
    assert rows[0]["reference"]["error"] == rows[0]["standardized"]["error"]
    assert rows[1]["reference"]["error"] == rows[1]["raw"]["error"]
    assert {fold["setting"] for fold in rows[0]["lda"]["results"]} == {"standardized"}
    assert "at its first setting" in untuned.answer
    assert "at its first setting" not in tuned.answer
    notes = untuned.document["answer"]["notes"]
    assert any("scaled like the learners at their first setting" in note for note in notes)
    assert not any("selected within" in note for note in notes)
    assert any(
        "Of the standard distances, raw Euclidean has the lowest error" in note for note in notes
    )
    assert not any("has the lowest error" in note for note in tuned.document["answer"]["notes"])
    assert any("selected within" in note for note in tuned.document["answer"]["notes"])
    # LDA does better than the standardized distance, and no better than the raw one.
    assert rows[0]["lda"]["error"] < rows[0]["reference"]["error"]
    assert untuned.document["answer"]["verdict"] == "inconclusive"
    assert "not clearly better than raw Euclidean" in untuned.answer
    # What is kept is what the answer names.
    assert "keep raw Euclidean" in untuned.answer
    assert "scale" not in untuned.pipeline().named_steps  # raw
    assert "'scale': ['passthrough']" in untuned.code and "Standard" not in untuned.code


def test_the_first_setting_of_lmnn_is_its_default_whatever_the_size():
    from nearfar import LMNN
    from nearfar.app.compare.methods import learners

    for size in ((360, 90), (5000, 90)):
        first = learners("lmnn", size=size)[0].settings[0].estimator
        assert first.get_params() == LMNN().get_params()


def test_wide_data_are_reduced_inside_each_fold_for_what_iterates():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(75, 140)), np.arange(75) % 3
    X[:, :3] += 4 * np.eye(3)[y]
    how = {"methods": ["lda", "lmnn"], "repeats": 1, "tuning": "k", "cv": 2}
    result = compare(X, y, **(QUICK | how))
    rows = {m["name"]: m for m in result.document["methods"]}
    chosen = {name: rows[name]["results"][0]["setting"] for name in ("lda", "lmnn")}
    assert chosen["lda"] == "standardized" and "principal axes" in chosen["lmnn"]
    assert rows["lmnn"]["error"] is not None
    weights = result.document["weights"]["lmnn"]["folds"][0]
    assert len(weights) == 140 and sum(weights[:3]) > sum(weights[3:6])


def test_learners_that_have_the_option_take_principal_axes_themselves():
    from nearfar import HDA, LMNN, NCA
    from nearfar.app.compare.methods import learners, reduced
    from nearfar.app.compare.use import with_parameters

    given = [
        LMNN(),
        NCA(n_components=80),
        LMNN(n_pca_components=100),
        LMNN(structure="diagonal"),
        HDA(),
    ]
    found = [one.settings[0] for one in reduced(learners(given), 768, 5000)]
    assert [one.estimator.get_params().get("n_pca_components") for one in found] == [
        64,
        80,
        100,
        None,
        None,
    ]
    assert [isinstance(one.reduce, str) for one in found] == [True, True, True, False, False]
    assert found[0].label == "standardized, 64 principal axes"
    lmnn = reduced(learners("lmnn"), 768, 5000)[0]
    labels = [
        with_parameters(lmnn, some).settings[0].label
        for some in ({"tol": 0.1}, {"n_pca_components": 9})
    ]
    assert labels == [
        "standardized, tol=0.1, 64 principal axes",
        "standardized, n_pca_components=9",
    ]
