"""Targets that are numbers: what is refused, what is read, and what is warned of."""

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from nearfar.app.tables.columns import choose_columns
from nearfar.app.tables.numeric_target import (
    check_numbers,
    far_values,
    few_values,
    telling_numbers,
)
from nearfar.app.tables.traps import check_target


@pytest.mark.parametrize(
    "y",
    [
        [1, 2, 4],
        np.array([1.0, 2.0, 4.0], np.float32),
        ["1", "2", "4"],
        [Decimal(1), Decimal(2), Decimal(4)],
        pd.Series([1, 2, 4], dtype="Int64"),
        np.array([1, 2.0, 4], dtype=object),
    ],
)
def test_numbers_of_every_make_are_read(y):
    values, notes = check_numbers(y)
    assert values.dtype == np.float64 and values.tolist() == [1, 2, 4] and notes == []


def test_written_numbers_are_read_and_said():
    values, notes = check_numbers(["1.234,5 €", "12,0 €"], "Preis")
    assert values.tolist() == [1234.5, 12.0]
    assert notes == ["The target 'Preis' is read as numbers: '1.234,5 €' as 1234.5."]


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([1.0, np.nan, 2.0, np.nan], "'t' is missing in row 1; leave 2 such rows out"),
        (pd.Series([1, None, 3], dtype="Int64"), "'t' is missing in row 1; leave 1 such row out"),
        ([1.0, 2.0, np.inf], "'t' is infinite in row 2"),
        ([3.0, 3.0, 3.0], "'t' is 3 in every row"),
        (["low", "high"], "holds text, 'low' in row 0, but regression needs numbers"),
        (["1", "2", "3", "4", "5", "many"], "should hold numbers; row 5 has 'many'"),
        (["1,430", "2,500"], "'1,430' may be 1430 or 1.430"),
        ([True, False], "holds true and false"),
        ([date(2020, 1, 1), date(2020, 1, 2)], "holds dates"),
        (["2020-01-01", "2020-01-02"], "holds dates"),
        (np.array(["2020-01-01", "2020-01-02"], "M8[D]"), "holds dates"),
        ([[1.0, 2.0], [2.0, 3.0]], "one number a row; got shape (2, 2)"),
    ],
)
def test_what_is_no_number_is_named(y, said):
    with pytest.raises(ValueError) as caught:
        check_numbers(y, "t")
    assert said in str(caught.value)


def test_a_continuous_target_names_the_option_but_not_of_sets():
    y = np.linspace(0.5, 9.7, 40)
    with pytest.raises(ValueError, match="add --task regression"):
        check_target(y)
    with pytest.raises(ValueError) as caught:
        check_target(y, noun="set")
    assert "--task" not in str(caught.value) and "Name another column" in str(caught.value)


def test_classes_in_disguise_are_warned_of():
    assert few_values(np.arange(100.0) % 4, "y")
    assert not few_values(np.arange(100.0), "y")  # many
    assert not few_values(np.arange(100.0) % 4 / 3, "y")  # no whole numbers


def test_few_rows_that_decide_are_warned_of():
    y = np.append(np.arange(1.0, 400.0), [1e5, 2e5])
    assert "The logarithm" in far_values(y, "y")[0].text
    assert "The logarithm" not in far_values(y - 2, "y")[0].text  # it has none
    assert far_values(np.random.default_rng(0).normal(size=400), "y") == []


def test_a_copy_of_the_target_is_warned_of_and_a_good_feature_is_not():
    rng = np.random.default_rng(0)
    y = rng.normal(size=500)
    X = np.column_stack([rng.normal(size=500), np.exp(y), y + 0.3 * rng.normal(size=500)])
    (trap,) = telling_numbers(X, choose_columns(X), y)
    assert trap.kind == "telling column" and "Column 'column 1'" in trap.text
    assert telling_numbers(X[:, [0, 2]], choose_columns(X[:, [0, 2]]), y) == []
