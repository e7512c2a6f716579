"""Traps that make a comparison meaningless, each on data made to fall into it."""

from time import process_time

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import KFold, StratifiedKFold

from nearfar.app.tables import copies, traps
from nearfar.app.tables.columns import choose_columns
from nearfar.app.tables.copies import duplicates
from nearfar.app.tables.traps import (
    check_target,
    id_like,
    small_classes,
    telling_columns,
    untrained_classes,
)

RNG = np.random.default_rng(0)


def integers(low, high, n):
    return np.random.default_rng(n).integers(low, high, n)


def bell(mean, spread, low, high, n):
    return np.clip(np.random.default_rng(n).normal(mean, spread, n), low, high).astype(int)


# The target


@pytest.mark.parametrize("n", [300, 2000, 20_000])
@pytest.mark.parametrize(
    "target",
    [
        lambda n: np.exp(np.random.default_rng(n).normal(12, 0.5, n)).astype(int),  # prices
        lambda n: np.exp(np.random.default_rng(n).normal(12, 0.5, n)) // 1000 * 1000,
        lambda n: integers(18, 90, n),  # ages, evenly
        lambda n: bell(45, 14, 18, 95, n),  # ages of adults
        lambda n: bell(30, 14, 0, 80, n),  # ages from 0
        lambda n: integers(1950, 2020, n),  # years
        lambda n: bell(70, 15, 0, 100, n),  # scores
        lambda n: np.random.default_rng(n).normal(size=n).round(1),
    ],
)
def test_amounts_are_refused(target, n):
    with pytest.raises(ValueError, match="The target 'price' is continuous .*cut it into classes"):
        check_target(target(n), "price")


@pytest.mark.parametrize(
    "target",
    [
        np.repeat(np.arange(68), 24),
        np.repeat(np.arange(1, 69), 10),
        np.repeat(np.arange(200), 3),
        np.repeat(np.arange(200.0), 2),
        np.repeat(np.arange(1001, 1201), 7),
        np.repeat(np.arange(68), RNG.integers(2, 170, 68)),
        np.repeat(np.arange(68), np.sort(RNG.integers(2, 170, 68))[::-1]),  # by size
        np.repeat(RNG.choice(5000, 200, replace=False), RNG.integers(2, 30, 200)),  # with gaps
        integers(1, 27, 500),  # letters
        [str(year) for year in integers(1950, 2020, 2000)],  # as text they are names
        [3, 5] * 4,
        [True, False] * 4,
        ["a", "b", "b", "a"],
        np.arange(20).repeat(2),
    ],
)
def test_classes_are_taken(target):
    classes, codes = check_target(target)
    np.testing.assert_array_equal(classes[codes], target)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ([1.0, 2.5, 1.0, 2.5], r"'kind' is continuous \(row 1 has 2.5\)"),
        ([f"name {i}" for i in range(30)], "every row has its own label"),
        (list(range(15)), "every row has its own label"),
        ([f"n{i // 2 if i < 10 else i}" for i in range(60)], "55 different labels in 60 rows, 50"),
        (["a"] * 5, "one class only, a;"),
        (["a", "a", "a", "b"], "several rows each"),
        (["a", None, "b", "b"], r"target 'kind' contains NaN or a missing value \(row 1\)"),
        ([1, np.nan, 2, 2], r"target 'kind' contains NaN \(row 1\)"),
        (np.array(["2020-01-01", "2020-01-02"] * 3, dtype="datetime64[D]"), "holds dates"),
        (np.array([1, "a", 1, "a"], dtype=object), "types int, str"),
    ],
)
def test_useless_targets_are_refused(target, words):
    with pytest.raises(ValueError, match=words):
        check_target(target, "kind")


def test_pandas_targets():
    pd = pytest.importorskip("pandas")
    for target in (
        pd.Series(["u", "v"] * 4),
        pd.Series(["u", "v"] * 4, dtype="category"),
        pd.Series(["u", "v"] * 4, dtype="string"),
        pd.Series([1, 2] * 4, dtype="Int64"),
        pd.Series([True, False] * 4, dtype="boolean"),
    ):
        assert check_target(target)[1].tolist() in ([0, 1] * 4, [1, 0] * 4)
    with pytest.raises(ValueError, match="continuous"):
        check_target(pd.Series([1.5, 2] * 4, dtype="Float64"))
    with pytest.raises(ValueError, match="dates"):
        check_target(pd.Series(pd.date_range("2020", periods=4, tz="UTC")))


# Copies


def halves(n):
    rows = np.arange(n)
    return [(rows[: n // 2], rows[n // 2 :]), (rows[n // 2 :], rows[: n // 2])]


def test_copies_across_folds_are_counted_and_named():
    X = RNG.normal(size=(40, 3))
    X[30], X[31], X[5] = X[2], X[3], X[6]  # the last pair is on one side
    X[2, 1], X[30, 1] = np.nan, -np.nan  # other bits
    X[3, 0], X[31, 0] = 0.0, -0.0
    codes = np.arange(40) % 2
    codes[31] = 1 - codes[3]
    (trap,) = duplicates(X, codes, halves(40))
    assert trap.kind == "duplicates"
    assert trap.text.startswith("4 of 40 tested rows have an exact copy among their training rows")
    assert "30 = 2, 31 = 3, 2 = 30, 3 = 31)" in trap.text
    assert "2 of them with another label" in trap.text and "--groups" in trap.text


def test_no_copies_no_warning():
    X = RNG.normal(size=(40, 3))
    X[5] = X[6]  # never apart
    assert duplicates(X, np.arange(40) % 2, halves(40)) == []
    assert duplicates(load_wine().data, load_wine().target, halves(178)) == []


def test_duplicated_data_is_found_in_repeated_folds_and_each_row_counted_once():
    X, y = load_iris(return_X_y=True)
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    folds = [
        fold
        for seed in range(3)
        for fold in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y)
    ]
    (trap,) = duplicates(X, y, folds)
    count, total = (int(word) for word in trap.text.split(" tested")[0].split(" of "))
    # By comparing every pair.
    same = (X[:, None] == X[None]).all(axis=2)
    wanted = set()
    for train, test in folds:
        wanted |= set(test[same[np.ix_(test, train)].any(axis=1)].tolist())
    assert (count, total) == (len(wanted), 300) and trap.text.count(" = ") == 5


def test_copies_in_frames():
    pd = pytest.importorskip("pandas")
    data = pd.DataFrame({"a": RNG.normal(size=20), "b": ["u", "v", None, "w"] * 5})
    data = pd.concat([data, data.iloc[[2, 5]]], ignore_index=True)
    rows = np.arange(22)
    (trap,) = duplicates(data, rows % 2, [(rows[:20], rows[20:])])
    assert trap.text.startswith("2 of 2 tested rows have") and "20 = 2, 21 = 5" in trap.text
    data.loc[21, "b"] = "x"
    assert duplicates(data, rows % 2, [(rows[:20], rows[20:])])[0].text.startswith("1 of 2")


# Columns that tell


def tell(X, y, **how):
    return telling_columns(X, choose_columns(X, **how), y)


def test_a_copy_of_the_target_is_named_with_what_to_do():
    X, y = load_wine(return_X_y=True)
    X = np.column_stack([X[:, :4], np.array([7.0, 3.0, 5.0])[y], X[:, 4:]])
    names = [*"abcd", "leak", *"efghijklm"]
    (trap,) = tell(X, y, feature_names=names)
    assert trap.kind == "telling column" and "'leak' (100%) alone predicts" in trap.text
    assert "--drop 'leak'" in trap.text and "'a'" not in trap.text


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits, load_breast_cancer])
def test_easy_data_is_not_flagged(load):
    X, y = load(return_X_y=True)
    assert tell(X, y) == []


def test_a_copy_with_a_little_noise_or_gaps_is_found_and_a_worse_one_is_not():
    y = np.arange(3000) % 3
    noise = RNG.normal(size=(3000, 2))
    for wrong, found in ((10, True), (150, False)):
        copy = y + RNG.uniform(0, 0.4, 3000)
        copy[:wrong] = RNG.permutation(copy[:wrong])
        assert bool(tell(np.column_stack([noise, copy]), y)) == found
    gaps = np.where(y == 1, np.nan, y * 1e300)  # missing just where the class is 1
    assert "'column 2' (100%)" in tell(np.column_stack([noise, gaps]), y)[0].text


def test_a_rare_class_does_not_make_every_column_telling():
    y = (np.arange(2000) % 100 == 0).astype(int)
    X = RNG.normal(size=(2000, 5))
    assert tell(X, y) == []
    X[:, 2] = y
    assert "'column 2'" in tell(X, y)[0].text


def test_rows_sorted_by_class_do_not_hide_a_copy_behind_constant_columns():
    y = np.repeat(np.arange(3), 100)
    X = np.zeros((300, 60))
    X[:, 5] = np.nan
    X[:, 50] = y * 2.0
    (trap,) = tell(X, y)
    assert trap.text.startswith("Column 'column 50' (100%)")


def test_telling_categories_in_frames():
    pd = pytest.importorskip("pandas")
    y = np.arange(200) % 3
    data = pd.DataFrame({"a": RNG.normal(size=200), "city": np.array(["R", "O", "B"])[y]})
    data["other"] = RNG.choice(["u", "v"], 200)
    (trap,) = tell(data, y)
    assert "'city' (100%)" in trap.text and "'other'" not in trap.text


def test_many_telling_columns_give_one_warning():
    y = np.arange(100) % 2
    (trap,) = tell(y[:, None] + RNG.uniform(0, 0.3, (100, 12)), y)
    assert trap.text.startswith("Each of 'column 0'") and "and 7 more" in trap.text


def test_many_columns_are_quick():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2000))
    y = rng.integers(0, 5, 5000)
    X[:, 7] = y + rng.uniform(0, 0.5, 5000)
    columns = choose_columns(X)
    start = process_time()
    (trap,) = telling_columns(X, columns, y)
    assert process_time() - start < 20  # 0.4 s; only what is far slower is caught
    assert trap.text.startswith("Column 'column 7' (100%)")


def test_few_rows_tell_nothing():
    assert tell(np.arange(10.0)[:, None], np.arange(10) // 5) == []


# Small classes and IDs


def test_classes_that_are_only_tested_are_named():
    codes = np.array([0, 0, 1, 1, 2, 2])
    as_groups = [(np.arange(2, 6), np.arange(2)), (np.array([0, 1, 4, 5]), np.arange(2, 4))]
    (trap,) = untrained_classes(["a", "b", "c"], codes, as_groups)
    assert trap.text.startswith("Classes 'a', 'b' are tested") and "4 of 4 tests" in trap.text
    whole = [(np.array([0, 2, 4]), np.array([1, 3, 5]))]
    assert untrained_classes(["a", "b", "c"], codes, whole) == []


def test_small_classes_are_named():
    (trap,) = small_classes(["cat", "dog", "owl"], [50, 3, 1], 5)
    assert trap.kind == "small class"
    assert trap.text.startswith("2 classes: 'dog' (3 rows), 'owl' (1 row) have fewer rows than")
    assert small_classes(["cat", "dog"], [5, 5], 5) == []
    (trap,) = small_classes(np.arange(30), np.ones(30, int), 5)
    assert "and 20 more" in trap.text


def test_whole_numbers_different_in_every_row_are_named():
    X = RNG.normal(size=(50, 4))
    X[:, 2] = RNG.permutation(90_000)[:50]
    (trap,) = id_like(X, list("abcd"))
    assert trap.kind == "id" and "'c' holds a different whole number" in trap.text
    assert "--drop 'c'" in trap.text
    X[0, 2] = X[1, 2]
    assert id_like(X) == []
    X[:, 2] = np.nan
    assert id_like(X) == []


def test_counts_and_small_arrays_are_no_ids():
    counts = np.column_stack([RNG.permutation(10_000)[:50] for _ in range(6)])
    assert id_like(counts) == []
    (trap,) = id_like(np.column_stack([counts, np.arange(50)]))
    assert "'column 6'" in trap.text and "'column 0'" not in trap.text
    assert id_like(np.arange(19.0)[:, None]) == []
    assert id_like(load_digits().data) == []


# Near copies


def folds_of(n, n_splits=5):
    return list(KFold(n_splits, shuffle=True, random_state=0).split(np.zeros(n)))


def jittered(n, p, n_copies, size=1e-6, dtype=np.float64):
    """Rows of which the first so many are nearly those that follow."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * np.logspace(0, 3, p)
    X[:n_copies] = X[n_copies : 2 * n_copies] * (1 + size * rng.normal(size=(n_copies, p)))
    return X.astype(dtype)


@pytest.mark.parametrize("as_frame", [False, True])
def test_near_copies_in_other_folds_are_counted(as_frame):
    X, folds = jittered(400, 6, 20), folds_of(400)
    fold = np.empty(400, int)
    for k, (_, test) in enumerate(folds):
        fold[test] = k
    across = [i for i in range(20) if fold[i] != fold[i + 20]]
    [trap] = copies.near_copies(pd.DataFrame(X) if as_frame else X, folds)
    assert trap.kind == "duplicates"
    assert trap.text.startswith(f"{2 * len(across)} of 400 tested rows have a nearly exact copy")
    assert f"rows {across[0]} ≈ {across[0] + 20}," in trap.text and "--groups" in trap.text


def test_a_pair_is_enough_and_copies_on_one_side_are_none():
    X = jittered(300, 30, 1)
    train, test = np.arange(1, 300), np.array([0])
    [trap] = copies.near_copies(X, [(train, test)])
    assert trap.text.startswith("1 of 1 tested row")
    both = np.array([0, 1])
    assert copies.near_copies(X, [(np.arange(2, 300), both)]) == []


def test_exact_copies_are_none_and_do_not_hide_near_ones():
    X = jittered(300, 5, 10)
    exact = np.vstack([X[20:], X[20:]])
    assert copies.near_copies(exact, folds_of(len(exact))) == []
    many = np.vstack([X, np.repeat(X[:1], 50, axis=0)])
    assert len(copies.near_copies(many, folds_of(len(many)))) == 1


@pytest.mark.parametrize("n_each", [2, 8])
def test_near_copies_are_seen_though_every_row_has_some(n_each):
    rng = np.random.default_rng(0)
    base = rng.normal(size=(150, 10))
    X = np.vstack([base + 1e-6 * rng.normal(size=base.shape) for _ in range(n_each)])
    assert len(copies.near_copies(X, folds_of(len(X)))) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.normal(size=(20_000, 1)),
        lambda rng: rng.normal(size=(3000, 2)),
        lambda rng: rng.normal(size=(3000, 3)).round(2),
        lambda rng: np.exp(2 * rng.normal(size=(3000, 5))),
        lambda rng: np.sin(rng.uniform(0, 9, (8000, 1)) * np.arange(1, 8)),  # a curve
        lambda rng: np.column_stack([rng.integers(0, 2, (3000, 10)), rng.normal(size=3000)]),
        lambda rng: rng.integers(0, 3, (2000, 4)).astype(float),
        lambda rng: np.ones((100, 3)),
        lambda rng: rng.normal(size=(10, 3)),
    ],
)
def test_chance_is_no_near_copy(make):
    X = make(np.random.default_rng(3))
    assert copies.near_copies(X, folds_of(len(X))) == []


def test_another_gap_or_another_category_is_no_near_copy():
    X = jittered(300, 5, 10)
    X[:10, 2] = np.nan
    assert copies.near_copies(X, folds_of(300)) == []
    X[10:20, 2] = np.nan
    assert len(copies.near_copies(X, folds_of(300))) == 1
    frame = pd.DataFrame(jittered(300, 5, 10)).assign(kind=["a"] * 10 + ["b"] * 290)
    assert copies.near_copies(frame, folds_of(300)) == []


def test_a_column_that_hardly_ever_varies_counts():
    X = np.column_stack([jittered(9000, 5, 10), np.zeros(9000)])
    X[:10, 5] = 1  # in no sample
    assert copies.near_copies(X, [(np.arange(10, 9000), np.arange(10))]) == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_many_rows_some_are_looked_at_and_said(dtype):
    X = jittered(20_000, 12, 5000, 1e-5, dtype)
    [trap] = copies.near_copies(X, folds_of(20_000))
    assert " of 5,000 tested rows that were looked at, of 20,000, have a nearly" in trap.text
    again = copies.near_copies(X, folds_of(20_000))
    assert again == [trap]


def test_same_rows_do_not_depend_on_the_hash(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (500, 3)).astype(np.float32)
    X[X == 2] = np.nan
    X[0] = -0.0
    expected = copies.same_rows(X)
    firsts = np.unique(expected, return_index=True)[1]
    assert np.all(np.diff(firsts) > 0)
    np.testing.assert_array_equal(X[firsts][expected], np.abs(X))
    monkeypatch.setattr(traps, "hash", lambda content: 0, raising=False)
    np.testing.assert_array_equal(copies.same_rows(X), expected)


def test_large_tables_are_looked_through_quickly():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 40))
    codes = rng.integers(0, 5, len(X))
    folds = folds_of(len(X))
    began = process_time()
    same = copies.same_rows(X)
    assert copies.duplicates(X, codes, folds, same=same) == []
    assert copies.near_copies(X, folds, same=same) == []
    assert process_time() - began < 6  # about 1 on a quiet machine
