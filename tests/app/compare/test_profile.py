"""What is told of the columns, and what is kept back."""

import json

import numpy as np
import pytest

from nearfar import compare
from nearfar.app.compare.document import contents
from nearfar.app.compare.profile import MOST_COLUMNS, MOST_ROWS, profile
from nearfar.app.tables.columns import choose_columns
from nearfar.datasets.table import Table

pandas = pytest.importorskip("pandas")


def frame():
    random = np.random.default_rng(0)
    n = 200
    numbers = random.normal(size=n)
    numbers[:10] = np.nan
    levels = np.array(["red", "green", "blue", "a", "b", "c", "d", "e"], dtype=object)
    color = np.concatenate([np.repeat(levels, 20), np.repeat(["red"], 40)])
    color[:5] = None
    return pandas.DataFrame({"size": numbers, "colour": color, "whole": np.arange(n) % 3})


def of(X, **options):
    columns = choose_columns(X)
    found = profile(columns.select(X), columns, **{"show_values": True} | options)
    return {one["name"]: one for one in found["columns"]}, found


def test_numbers_have_counts_range_and_what_is_missing():
    X = frame()
    found, _ = of(X)
    assert found["size"]["missing"] == pytest.approx(10 / 200)
    assert sum(found["size"]["counts"]) == 190
    assert found["size"]["range"] == [X["size"].min(), X["size"].max()]
    assert found["size"]["treated"] == "filled with the median of the training rows"
    edges = np.linspace(*found["size"]["range"], len(found["size"]["counts"]) + 1)
    assert found["size"]["counts"] == np.histogram(X["size"].dropna(), edges)[0].tolist()
    # Nothing is missing here, so nothing is filled in.
    assert found["whole"]["missing"] == 0 and found["whole"]["treated"] == ""
    assert found["whole"]["counts"] == [67, 67, 66]


def test_levels_are_the_largest_and_the_others_are_counted():
    found, _ = of(frame())
    color = found["colour"]
    assert color["levels"][0] == "red" and color["counts"][0] == 55
    assert color["n_levels"] == 8 and len(color["levels"]) == 6
    assert sum(color["counts"]) + color["others"] == 195
    assert color["treated"] == "9 columns of zeros and ones, one of them for missing"


def test_where_rows_are_not_shown_no_value_is_kept():
    found, whole = of(frame(), show_values=False)
    text = json.dumps(whole)
    assert not [word for word in ("red", "green", "range", "median:") if f'"{word}"' in text]
    assert found["colour"]["levels"] is None and "range" not in found["size"]
    assert "median" not in found["size"]
    # Shapes and shares stay.
    assert sum(found["size"]["counts"]) == 190 and found["size"]["missing"] > 0


def test_many_rows_are_drawn_from_and_many_columns_counted():
    random = np.random.default_rng(0)
    X = random.normal(size=(MOST_ROWS + 500, MOST_COLUMNS + 4)).astype(np.float32)
    X[-1, 0] = np.nan
    found, whole = of(X)
    assert whole["more"] == 4 and len(found) == MOST_COLUMNS
    assert whole["sampled"] and sum(found["column 1"]["counts"]) == MOST_ROWS
    # What is missing is counted in all rows: it must not be said of a sample that there is none.
    assert found["column 0"]["missing"] == pytest.approx(1 / len(X))


def test_a_range_that_overflows_and_an_empty_column_break_nothing():
    X = np.array([[-1.7e308, np.nan], [1.7e308, np.nan], [0.0, np.nan], [1.0, np.nan]])
    found, _ = of(X)
    assert sum(found["column 0"]["counts"]) == 4
    assert found["column 1"]["counts"] == [] and found["column 1"]["missing"] == 1.0


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("show_rows", [True, False])
def test_a_document_holds_values_of_columns_only_if_rows_may_be_shown(show_rows, labelled):
    X, y = frame(), np.arange(200) % 2
    options = {"repeats": 1, "isolate": False, "verbose": False, "context": False}
    asked = {"methods": "lda", "tuning": "k"} if labelled else {"methods": "isomap"}
    result = compare(X, y if labelled else None, show_rows=show_rows, **options, **asked)
    found = result.document["data"]["profile"]
    assert [one["name"] for one in found["columns"]] == ["size", "whole", "colour"]
    assert ('"red"' in json.dumps(found)) == show_rows
    assert ('"range"' in json.dumps(found)) == show_rows


def test_images_have_no_profile_of_their_pixels():
    random = np.random.default_rng(0)
    options = {"repeats": 1, "isolate": False, "verbose": False, "context": False, "tuning": "k"}
    result = compare(random.random((60, 4, 4)), np.arange(60) % 2, methods="lda", **options)
    assert result.document["data"]["profile"] is None


def test_a_shown_row_says_what_is_missing():
    rows = pandas.DataFrame({"size": [1.5, np.nan, 2.0] * 3, "colour": ["red", None, "nan"] * 3})
    table = Table("rows", rows, np.array(list("aba") * 3))
    values = contents([0, 1, 2], rows, choose_columns(rows), table)["rows"]["values"]
    assert values == {"0": ["1.5", "red"], "1": ["missing", "missing"], "2": ["2", "nan"]}
