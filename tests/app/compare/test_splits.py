"""Folds: groups together, the past before the future, the same first folds for more repeats."""

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold, RepeatedStratifiedKFold

from nearfar.app.compare.splits import UNKNOWN_GROUP, inner_splits, make_scheme

CODES = np.arange(120) % 3


def test_folds_are_those_of_scikit_learn():
    scheme = make_scheme(CODES, repeats=2)
    theirs = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0).split(CODES, CODES)
    for fold, (train, test) in zip(scheme.folds, theirs, strict=True):
        assert np.array_equal(fold.train, train) and np.array_equal(fold.test, test)
    assert scheme.test_share == pytest.approx(0.25)


@pytest.mark.parametrize("groups", [None, np.arange(120) // 4])
def test_more_repeats_begin_with_the_same_folds(groups):
    few = make_scheme(CODES, repeats=1, groups=groups).folds
    many = make_scheme(CODES, repeats=4, groups=groups).folds
    assert len(many) == 4 * len(few)
    for one, other in zip(few, many, strict=False):
        assert np.array_equal(one.test, other.test)
    assert not np.array_equal(many[0].test, many[5].test)


def test_no_group_is_on_both_sides_and_it_is_said():
    groups = np.random.default_rng(0).integers(0, 20, 120)
    scheme = make_scheme(CODES, repeats=3, groups=groups)
    for fold in scheme.folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
    assert "none is on both sides of any of the 15 folds (checked)" in scheme.notes[-1]


def test_few_groups_are_split_once():
    # Five groups can be put into five folds in one way only: repeats would count them again.
    scheme = make_scheme(CODES, repeats=5, groups=np.arange(120) % 5)
    assert len(scheme.folds) == 5 and "split once" in scheme.notes[0]


def test_folds_that_tear_a_group_apart_are_refused():
    with pytest.raises(ValueError, match="Group 3 is trained on and tested"):
        own = list(KFold(4, shuffle=True, random_state=0).split(CODES))
        make_scheme(CODES, repeats=1, groups=np.full(120, 3), cv=own)


def test_own_folds_are_taken():
    groups = np.arange(120) // 10
    scheme = make_scheme(CODES, repeats=1, groups=groups, cv=GroupKFold(4))
    assert len(scheme.folds) == scheme.n_splits == 4
    own = [(np.arange(60), np.arange(60, 120))]
    assert make_scheme(CODES, repeats=1, cv=own).folds[0].test[0] == 60
    repeated = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=1)
    scheme = make_scheme(CODES, repeats=1, cv=repeated)
    assert (scheme.n_splits, [fold.repeat for fold in scheme.folds]) == (3, [0, 0, 0, 1, 1, 1])


def test_the_past_predicts_the_future():
    time = np.random.default_rng(0).integers(0, 30, 120)  # many rows share a moment
    scheme = make_scheme(CODES, repeats=1, time=time)
    assert len(scheme.folds) == 5
    for fold in scheme.folds:
        assert time[fold.train].max() < time[fold.test].min()
        for part, held in inner_splits("full", CODES[fold.train], None, time[fold.train]):
            order = time[fold.train]
            assert order[part].max() < order[held].min()


def test_time_with_groups_leaves_tested_groups_out_of_training():
    time, groups = np.arange(120.0), np.arange(120) % 40
    scheme = make_scheme(CODES, repeats=1, time=time, groups=groups)
    for fold in scheme.folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        inside = inner_splits("full", CODES[fold.train], groups[fold.train], time[fold.train])
        for part, held in inside:
            assert not set(groups[fold.train][part]) & set(groups[fold.train][held])


def test_a_past_of_one_class_is_left_out_and_said():
    codes = np.r_[np.zeros(50, int), CODES[:70]]
    scheme = make_scheme(codes, repeats=1, time=np.arange(120.0))
    assert len(scheme.folds) == 3 and "2 of 5 folds left out" in scheme.notes[0]
    with pytest.raises(ValueError, match="the classes follow one another"):
        make_scheme(np.repeat([0, 1], [115, 5]), repeats=1, time=np.arange(120.0))


def test_a_test_file_without_groups_is_not_called_checked():
    groups = np.r_[np.arange(100) // 5, np.full(20, UNKNOWN_GROUP)]
    scheme = make_scheme(CODES, repeats=1, n_test_rows=20, groups=groups)
    assert "cannot be checked" in scheme.notes[-1]
    groups[-20:] = np.arange(100, 120)
    assert "(checked)" in make_scheme(CODES, repeats=1, n_test_rows=20, groups=groups).notes[-1]


def test_a_fixed_test_set_is_one_fold():
    scheme = make_scheme(CODES, repeats=5, n_test_rows=20)
    assert len(scheme.folds) == 1
    assert scheme.folds[0].test.tolist() == list(range(100, 120))


def test_fewer_units_than_folds_make_fewer_folds_and_it_is_said():
    scheme = make_scheme(np.repeat(np.arange(10), 3), repeats=1)
    assert scheme.n_splits == 3 and "3 folds instead of 5" in scheme.notes[0]
    scheme = make_scheme(CODES, repeats=1, groups=np.arange(120) % 4)
    assert scheme.n_splits == 4 and "Only 4 groups" in scheme.notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.zeros(120)}, "All rows are of one group"),
        ({"cv": [(np.arange(60), np.arange(50, 120))]}, "both trained on and tested"),
        ({"cv": [(np.arange(60), np.arange(60, 130))]}, "outside 0 to 119"),
        ({"cv": [(np.arange(0), np.arange(60))]}, "0 training"),
        ({"cv": [(np.arange(0, 120, 3), np.arange(1, 120, 3))]}, "single class"),
        ({"time": np.zeros(120)}, "no fold"),
        ({"repeats": 0}, "repeats=0"),
    ],
)
def test_folds_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        make_scheme(CODES, **{"repeats": 1} | options)


@pytest.mark.parametrize("tuning", ["full", "holdout", "k"])
@pytest.mark.parametrize(
    ("codes", "groups"),
    [
        (CODES, None),
        (CODES, np.arange(120) // 3),
        (np.r_[CODES, 3], None),  # a class of one row
        (np.arange(6) // 2, None),  # classes of two
        (np.arange(10) % 2, np.zeros(10)),  # a single group
    ],
)
def test_inner_splits_exist_whatever_the_classes(tuning, codes, groups):
    splits = inner_splits(tuning, codes, groups)
    assert 1 <= len(splits) <= 3
    for part, held in splits:
        assert not set(part) & set(held)
        assert len(np.unique(codes[part])) > 1
        if groups is not None and len(np.unique(groups)) > 1:
            assert not set(groups[part]) & set(groups[held])
