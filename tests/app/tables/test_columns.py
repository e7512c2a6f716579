"""Which columns are used, which are left out and why, and how they become numbers."""

import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer

from nearfar.app.tables.columns import choose_columns, columns_of
from nearfar.datasets import read_table

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 3))
CITY = np.array(["Rome", "Oslo", "Bern"])[np.arange(N) % 3]


def frame(**columns):
    """One measurement beside the columns in question."""
    return pd.DataFrame({"size": X[:, 0], **columns})


def reason(column, **how):
    return dict(choose_columns(frame(it=column), **how).dropped).get("it")


TEXTS = [f"the customer called and said a thing about order {i}" for i in range(N)]
DAYS = pd.date_range("2021-01-01", periods=N)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (np.arange(N), "a different whole number in every row, like an ID"),
        (RNG.permutation(N) * 17.0 + 5, "a different whole number in every row, like an ID"),
        (pd.array(range(N), dtype="Int64"), "a different whole number in every row, like an ID"),
        ([f"{i}" for i in range(N)], "a different whole number in every row, like an ID"),
        ([f"Smith {i}" for i in range(N)], "a different text in every row, like an ID or a name"),
        ([f"Smith {i // 2 if i < 40 else i}" for i in range(N)], "100 different texts in 120 rows"),
        (DAYS, "dates"),
        (DAYS.tz_localize("UTC"), "dates"),
        (DAYS.to_period("D"), "dates"),
        (DAYS.date, "dates"),
        (DAYS.astype(str), "dates"),
        (DAYS.strftime("%d.%m.%y %H:%M"), "dates"),
        (DAYS.strftime("%B %d, %Y"), "dates"),
        (DAYS.strftime("%d-%b-%Y"), "dates"),
        (DAYS.strftime("%m/%Y").str[3:] + DAYS.strftime("-%m"), "dates"),  # 2021-03
        (DAYS - DAYS[0], "durations"),
        (TEXTS, "free text"),
        ([f"k{i // 2}" for i in range(N)], None),
        ([None] * N, "empty"),
        ([np.nan] * N, "empty"),
        (["nan"] * N, "empty"),
        (["x"] * N, "the same value in every row"),
        ([4.0] * N, "the same value in every row"),
        ([4.0, np.nan] * (N // 2), "one value only"),
        ([["a", "b"]] * N, "lists, not one value a row"),
        ([[1] * (i % 5) for i in range(N)], "lists, not one value a row"),
        (["$1,200", "$95.50"] * (N // 2), None),
        (["1,430", "2,500", "12"] * (N // 3), "'1,430' may be 1430 or 1.430; write it with"),
        (["oops", *map(str, X[1:, 1])], "numbers but for 1 cell such as 'oops' (row 0)"),
        (X[:, 1], None),  # measurements differ in every row
        (np.round(X[:, 1] * 3), None),
        (["12-20", "20-30", "5-12"] * (N // 3), None),  # no dates
        (["mon", "tue", "may"] * (N // 3), None),
        (["1.2", "3.4"] * (N // 2), None),
        (np.arange(N) % 2 == 0, None),
        (["yes", None] * (N // 2), None),
        (pd.Categorical([1, 2, 3] * (N // 3)), None),
        ([1, "a", 2.5, True] * (N // 4), None),
    ],
)
def test_columns_are_left_out_with_their_reason(column, why):
    found = reason(column)
    assert found == why or (why and found.startswith(why))


def test_categories_of_more_than_a_hundred_levels_are_left_out():
    many = pd.DataFrame({"size": RNG.normal(size=500), "it": [f"k{i % 101}" for i in range(500)]})
    assert dict(choose_columns(many).dropped) == {"it": "a category with 101 levels"}
    many["it"] = [f"k{i % 100}" for i in range(500)]
    assert choose_columns(many).categorical == ("it",)


def test_whole_numbers_that_all_differ_are_kept_in_small_tables_and_tables_of_counts():
    assert choose_columns(pd.DataFrame({"age": np.arange(19)})).numeric == ("age",)
    counts = pd.DataFrame({f"gene {i}": RNG.permutation(10_000)[:N] for i in range(6)})
    chosen = choose_columns(counts.assign(row=np.arange(N)))
    assert chosen.numeric == tuple(counts.columns)
    assert [name for name, _ in chosen.dropped] == ["row"]


def test_keep_and_drop_override():
    data = frame(id=np.arange(N), city=CITY, text=TEXTS, when=DAYS)
    chosen = choose_columns(data, keep=["id", "text"], drop="city")
    assert chosen.numeric == ("size", "id") and chosen.categorical == ("text",)
    assert dict(chosen.dropped) == {"city": "dropped as asked", "when": "dates"}
    with pytest.raises(ValueError, match="'when' cannot be kept: dates"):
        choose_columns(data, keep=["when"])
    with pytest.raises(ValueError, match="drop: there is no column 'City'. Did you mean 'city'"):
        choose_columns(data, drop=["City"])
    with pytest.raises(ValueError, match="'id' cannot be kept and dropped"):
        choose_columns(data, keep=["id"], drop=["id"])


def test_nothing_left_lists_the_reasons():
    with pytest.raises(ValueError, match=r"'id' \(a different whole number.*'when' \(dates\)"):
        choose_columns(pd.DataFrame({"id": np.arange(N), "when": DAYS}))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(it=[np.inf] + [0.5] * (N - 1)), "'it' is infinite in row 0"),
        (frame(it=["0.5"] * 7 + ["-inf"] + ["0.7"] * (N - 8)), "'it' is infinite in row 7"),
        (frame(it=X[:, 1] + 1j), "'it' holds complex numbers"),
        (pd.DataFrame(X, columns=list("aab")), "several columns named 'a'"),
        (pd.DataFrame(X, columns=[1, "1", "b"]), "several columns named '1'"),
        (pd.DataFrame(X, columns=pd.MultiIndex.from_product([["a"], [*"xyz"]])), "several levels"),
        (pd.DataFrame(X[:0], columns=list("abc")), "no rows"),
    ],
)
def test_frames_that_cannot_be_used(data, words):
    with pytest.raises(ValueError, match=words):
        choose_columns(data)


# Into numbers


EXOTIC = pd.DataFrame(
    {
        "float": np.where(np.arange(N) == 3, np.nan, X[:, 0]),
        "int": pd.array([1, 2, None, 4] * (N // 4), dtype="Int64"),
        "flag": pd.array([True, None, False, True] * (N // 4), dtype="boolean"),
        "object flag": np.array([True, None, False, True] * (N // 4), dtype=object),
        "text number": [None if i == 5 else str(x) for i, x in enumerate(X[:, 1])],
        "plain flag": np.arange(N) % 2 == 0,
        "city": CITY,
        "string": pd.array(["u", None, "v", "w"] * (N // 4), dtype="string"),
        "object": np.array(["u", np.nan, None, "w"] * (N // 4), dtype=object),
        "category": pd.Categorical(["u", None, "v", "w"] * (N // 4)),
        "coded": pd.Categorical([3, 1, 2] * (N // 3)),
        "mixed": np.array([1, "a", 2.5, None] * (N // 4), dtype=object),
    }
)


def test_every_kind_of_column_becomes_dense_floats_without_a_warning():
    chosen = choose_columns(EXOTIC)
    assert chosen.numeric == tuple(EXOTIC.columns[:6]) and chosen.dropped == ()
    assert chosen.categorical == tuple(EXOTIC.columns[6:]) and chosen.missing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preprocessor = chosen.preprocessor()
        Z = preprocessor.fit_transform(chosen.select(EXOTIC))
    assert isinstance(Z, np.ndarray) and Z.dtype == np.float64 and np.isfinite(Z).all()
    # By hand: six numbers, then a column for each level, missing being one.
    np.testing.assert_array_equal(Z[4:, 0], X[4:, 0])
    assert Z[3, 0] == np.nanmedian(EXOTIC["float"])
    assert Z[5, 4] == pytest.approx(np.median(np.delete(X[:, 1], 5)))
    levels = [3, 4, 3, 4, 3, 4]
    origins = chosen.origins(preprocessor)
    assert [chosen.names[i] for i in origins[:6]] == list(EXOTIC.columns[:6])
    assert np.bincount(origins).tolist() == [1] * 6 + levels
    for i in range(6, 12):
        np.testing.assert_array_equal(Z[:, np.array(origins) == i].sum(axis=1), 1)
    np.testing.assert_array_equal(Z[:, [o == 6 for o in origins]][:, 2], CITY == "Rome")


def test_origins_point_to_the_column_that_changes_the_output():
    data = frame(city=CITY, weight=X[:, 1], flag=["a", "b"] * (N // 2))
    chosen = choose_columns(data)
    preprocessor = chosen.preprocessor().fit(data)
    origins = np.array(chosen.origins(preprocessor))
    Z = preprocessor.transform(data)
    for i, name in enumerate(chosen.names):
        changed = data.assign(**{name: 0.0 if i < len(chosen.numeric) else "new"})
        moved = np.any(preprocessor.transform(changed) != Z, axis=0)
        np.testing.assert_array_equal(moved, origins == i)


def test_folds_with_empty_columns_and_new_levels_work_without_a_warning():
    data = frame(gap=np.where(np.arange(N) < 60, np.nan, X[:, 1]), city=CITY)
    chosen = choose_columns(data)
    rows = chosen.select(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preprocessor = chosen.preprocessor().fit(rows[:60])
        Z = preprocessor.transform(rows[60:].assign(city="Paris"))
        preprocessor.transform(rows[60:].assign(city=np.nan).astype({"city": object}))
    assert Z.shape == (60, 5) and np.all(Z[:, 2:] == 0)


def test_fitting_is_left_to_each_fold():
    data = frame(gap=np.where(np.arange(N) % 2, np.nan, np.arange(N) * 0.5))
    chosen = choose_columns(data)
    first, second = (clone(chosen.preprocessor()).fit(rows) for rows in (data[:60], data[60:]))
    assert first.transform(data[1:2])[0, 1] == 14.5 and second.transform(data[1:2])[0, 1] == 44.5


def test_select_takes_other_tables_with_the_same_columns():
    chosen = choose_columns(frame(city=CITY, number=[str(x) for x in X[:, 1]]))
    new = pd.DataFrame(
        {"other": [1, 2], "number": [1, 2], "city": ["Rome", None], "size": ["1.5", 2]}
    )
    picked = chosen.select(new)
    assert picked.to_dict("list")["size"] == [1.5, 2.0] and list(picked.columns) == list(
        chosen.names
    )
    with pytest.raises(ValueError, match="X lacks 'size'. Did you mean 'Size'"):
        chosen.select(new.rename(columns={"size": "Size"}))
    with pytest.raises(ValueError, match="'number' should hold numbers; row 1 has 'two'"):
        chosen.select(new.assign(number=["1", "two"]))
    with pytest.raises(ValueError, match="'size' is infinite in row 0"):
        chosen.select(new.assign(size=[np.inf, 1]))
    with pytest.raises(ValueError, match="DataFrame with named columns; got ndarray"):
        chosen.select(X)


def test_names_that_are_no_text():
    data = pd.DataFrame({10: X[:, 0], 20: CITY})
    chosen = choose_columns(data)
    assert chosen.names == ("10", "20")
    assert chosen.preprocessor().fit_transform(chosen.select(data)).shape == (N, 4)


def test_the_output_is_an_array_whatever_scikit_learn_is_told():
    data = frame(city=CITY)
    gaps = np.where(X > 1, np.nan, X)
    with sklearn.config_context(transform_output="pandas"):
        for rows in (data, gaps):
            Z = clone(choose_columns(rows).preprocessor()).fit_transform(rows)
            assert type(Z) is np.ndarray


def test_input_is_not_changed():
    before = EXOTIC.copy(deep=True)
    chosen = choose_columns(EXOTIC)
    chosen.preprocessor().fit_transform(chosen.select(EXOTIC))
    pd.testing.assert_frame_equal(EXOTIC, before)


def test_the_preprocessor_can_be_saved_without_pickle():
    io = pytest.importorskip("skops.io")
    chosen = choose_columns(EXOTIC)
    rows = chosen.select(EXOTIC)
    preprocessor = chosen.preprocessor().fit(rows)
    content = io.dumps(preprocessor)
    unknown = io.get_untrusted_types(data=content)
    assert all(name.startswith(("sklearn.", "numpy.")) for name in unknown)
    again = io.loads(content, trusted=unknown)
    np.testing.assert_array_equal(again.transform(rows), preprocessor.transform(rows))


# Arrays


def test_arrays_pass_as_they_are():
    chosen = choose_columns(X)
    assert chosen.preprocessor() == "passthrough" and chosen.origins("passthrough") == [0, 1, 2]
    assert chosen.numeric == (0, 1, 2) and not chosen.missing
    assert chosen.names == ("column 0", "column 1", "column 2") and chosen.n_features == 3
    assert chosen.select(X) is X


def test_arrays_with_gaps_are_imputed():
    gaps = X.copy()
    gaps[2, 1] = np.nan
    gaps[:, 2] = np.nan
    chosen = choose_columns(gaps, feature_names=["a", "b", "c"])
    assert chosen.missing and isinstance(chosen.preprocessor(), SimpleImputer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = chosen.preprocessor().fit_transform(gaps)
    assert Z.shape == X.shape and Z[2, 1] == np.median(np.delete(X[:, 1], 2))


@pytest.mark.parametrize("drop", [["b"], [1], ["1"], "b"])
def test_columns_of_arrays_can_be_dropped(drop):
    chosen = choose_columns(X, feature_names=["a", "b", "c"], drop=drop)
    preprocessor = chosen.preprocessor()
    assert isinstance(preprocessor, ColumnTransformer) and chosen.names == ("a", "c")
    np.testing.assert_array_equal(preprocessor.fit_transform(X), X[:, [0, 2]])
    assert chosen.origins(preprocessor) == [0, 1]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.array([["a", "b"], ["c", "d"]]), "pass a pandas DataFrame"),
        (np.array([[1, "b"], [2, None]], dtype=object), "pass a pandas DataFrame"),
        (X[:, 0], r"got an array of shape \(120,\)"),
        (X[:, :0], r"got an array of shape \(120, 0\)"),
        (X + 1j, "complex"),
        (np.where(X[4, 1] == X, -np.inf, X), "'column 1' is infinite in row 4"),
    ],
)
def test_arrays_that_cannot_be_used(rows, words):
    with pytest.raises(ValueError, match=words):
        choose_columns(rows)


def test_sparse_arrays_are_refused():
    with pytest.raises(TypeError, match="TruncatedSVD"):
        choose_columns(sparse.csr_array(X))


def test_object_arrays_of_numbers_and_lists_are_taken():
    chosen = choose_columns(np.array([[1, None], [2.5, 3]], dtype=object))
    assert chosen.missing
    assert chosen.select([[1, 2], [3, 4]]).dtype == np.float64
    with pytest.raises(ValueError, match="X has 3 columns; expected 2"):
        chosen.select([[1, 2, 3]])


def test_missing_values_are_judged_on_all_rows():
    chosen = choose_columns(np.ones((4, 3)) * np.arange(4)[:, None], drop=["2"])
    later = np.zeros((2, 3))
    assert not chosen.knowing(later).missing
    later[0, 2] = np.nan  # not in use
    assert not chosen.knowing(later).missing
    later[0, 0] = np.nan
    assert chosen.knowing(later).missing


def test_nothing_to_keep_or_drop_may_be_none():
    assert choose_columns(np.eye(3), keep=None, drop=None).numeric == (0, 1, 2)


def test_a_reason_may_be_asked_not_to_quote_a_cell():
    cells = ["secret", *map(str, np.random.default_rng(0).normal(size=60))]
    frame = pd.DataFrame({"a": np.random.default_rng(1).normal(size=61), "b": cells})
    assert "secret" in choose_columns(frame).dropped[0][1]
    reason = choose_columns(frame, show_cells=False).dropped[0][1]
    assert reason == "numbers but for 1 cell (first: row 0)"


# Vectors in a column


VECTORS = RNG.normal(size=(N, 4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_column_of_vectors_is_what_is_used(dtype):
    frame = pd.DataFrame({"text": TEXTS, "v": list(VECTORS.astype(dtype)), "n": X[:, 0]})
    columns = choose_columns(frame)
    assert columns.names == ("v 0", "v 1", "v 2", "v 3") and columns.vector == "v"
    assert columns.dropped == (
        ("text", "beside the vectors in 'v'"),
        ("n", "beside the vectors in 'v'"),
    )
    assert columns.notes == ("Vectors: column 'v', 4 numbers per row, the only column of lists.",)
    rows = columns.select(frame.iloc[5:])
    assert rows.dtype == dtype
    np.testing.assert_array_equal(rows, VECTORS[5:].astype(dtype))
    assert columns.preprocessor() == "passthrough"


def test_vectors_as_lists_and_as_text():
    for cells in (VECTORS.tolist(), [str(row) for row in VECTORS.tolist()]):
        frame = pd.DataFrame({"v": cells})
        np.testing.assert_array_equal(choose_columns(frame).select(frame), VECTORS)


def test_a_dropped_column_of_vectors_leaves_the_others():
    frame = pd.DataFrame({"v": list(VECTORS), "n": X[:, 0]})
    columns = choose_columns(frame, drop=["v"])
    assert columns.names == ("n",) and columns.vector is None
    assert choose_columns(frame, drop=["v 1", "n"]).names == ("v 0", "v 2", "v 3")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": ["n"]}, "Column 'n' cannot be kept beside the vectors in 'v'; with drop 'v'"),
        ({"drop": ["w"]}, "drop: there is no column 'w'"),
    ],
)
def test_what_does_not_go_with_vectors(options, words):
    frame = pd.DataFrame({"v": list(VECTORS), "n": X[:, 0]})
    with pytest.raises(ValueError, match=words):
        choose_columns(frame, **options)


def test_bad_vectors_of_a_frame_are_named():
    frame = pd.DataFrame({"v": list(VECTORS)})
    columns = choose_columns(frame)
    broken = frame.copy()
    broken.at[3, "v"] = VECTORS[3, :2]
    with pytest.raises(
        ValueError, match="X: the vectors in column 'v' differ in length: row 3 has"
    ):
        columns.select(broken)
    with pytest.raises(ValueError, match="X lacks 'v', the vectors. It has 'w'"):
        columns.select(frame.rename(columns={"v": "w"}))
    with pytest.raises(ValueError, match="several columns of vectors, 'v', 'w'; leave out"):
        choose_columns(frame.assign(w=frame["v"]))
    broken.at[3, "v"] = np.array([1, 2, np.inf, 4])
    with pytest.raises(ValueError, match="Column 'v 2' is infinite in row 3"):
        choose_columns(broken)


# Arrays are not copied


def test_floats_are_taken_as_they_are_and_never_copied(tmp_path):
    for dtype in (np.float16, np.float32, np.float64):
        np.save(tmp_path / "a.npy", VECTORS.astype(dtype))
        mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
        rows = choose_columns(mapped).select(mapped)
        assert rows.dtype == dtype and np.shares_memory(rows, mapped)


def test_float16_that_sums_to_more_than_it_holds_is_finite():
    rows = np.full((1000, 100), 6e4, np.float16)
    assert not choose_columns(rows).missing
    rows[999, 3] = np.nan
    assert choose_columns(rows).missing
    rows[998, 3] = np.inf
    with pytest.raises(ValueError, match="Column 'column 3' is infinite in row 998"):
        choose_columns(rows)


def test_a_gap_in_a_column_that_is_dropped_is_none():
    rows = np.ones((50, 3))
    rows[7, 1] = np.nan
    assert choose_columns(rows).missing and not choose_columns(rows, drop=["column 1"]).missing


def test_float32_columns_of_a_frame_stay_so():
    frame = pd.DataFrame(VECTORS.astype(np.float32), columns=list("abcd"))
    assert set(choose_columns(frame).select(frame).dtypes) == {np.dtype(np.float32)}
    mixed = frame.assign(a=VECTORS[:, 0])
    assert set(choose_columns(mixed).select(mixed).dtypes) == {np.dtype(np.float64)}


# Numbers as people write them


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["$1,200", "$95.50", "-$3"], [1200, 95.5, -3]),
        (["$1,200", "$2,300", "$950"], [1200, 2300, 950]),
        (["1,430,000.00", "2,500.10", "12"], [1430000, 2500.1, 12]),
        (["1.234,5", "950,25", "3"], [1234.5, 950.25, 3]),
        (["12 %", "7%", "0.5 %"], [12, 7, 0.5]),
        (["1 200", "12 500", "3"], [1200, 12500, 3]),
        (["1\u00a0200,5", "12\u202f500", "3"], [1200.5, 12500, 3]),
        (["1'200.50 CHF", "3 CHF", "12 CHF"], [1200.5, 3, 12]),
        (["1,4300", "2,5", "3,25"], [1.43, 2.5, 3.25]),
        (["0,430", "2,500", "3"], [0.43, 2.5, 3]),
        (["1,200", None, "1,200,000"], [1200, np.nan, 1200000]),
        (["(1,200.50)", "3.25", "( 12)"], [-1200.5, 3.25, -12]),
        (["($1,200.50)", "$3.25", "$12"], [-1200.5, 3.25, 12]),
    ],
)
def test_written_numbers_are_numbers_and_said(cells, numbers):
    frame = pd.DataFrame({"price": cells * 10, "n": np.resize(X[:, 0], 30)})
    columns = choose_columns(frame)
    assert columns.numeric == ("price", "n") and columns.categorical == ()
    said = f"{cells[0]!r} as {numbers[0]:.12g}"
    assert columns.notes == (f"Column 'price': read as numbers: {said}.",)
    np.testing.assert_array_equal(columns.select(frame)["price"], numbers * 10)
    # New rows are read alike, also where they alone would leave it open.
    np.testing.assert_array_equal(columns.select(frame.iloc[:1])["price"], numbers[:1])


@pytest.mark.parametrize(
    "cells",
    [
        ["red", "blue", "green"],
        ["10-20", "20-30", "5-10"],
        ["$12", "€13", "£4"],  # no one quantity
        ["12 %", "13", "4"],
        ["1.2.3", "4.5.6", "7.8.9"],
        ["a 1,200", "b 2,300", "c 3"],
        ["(1)", "(2)", "(3)"],  # no amount is written so only where it is a loss
        ["(-1)", "(2", "3)"],
    ],
)
def test_what_is_no_written_number_stays_a_category(cells):
    frame = pd.DataFrame({"price": cells * 10, "n": np.resize(X[:, 0], 30)})
    columns = choose_columns(frame)
    assert columns.categorical == ("price",) and columns.notes == ()


def test_numbers_that_may_be_two_are_left_out_and_how_to_mend_it():
    frame = pd.DataFrame({"price": ["1,430", "2,500", "12"] * 10, "n": np.resize(X[:, 0], 30)})
    columns = choose_columns(frame)
    assert columns.dropped == (
        (
            "price",
            "'1,430' may be 1430 or 1.430; write it with a decimal point and without a mark of "
            "thousands",
        ),
    )
    hidden = choose_columns(frame, show_cells=False)
    assert hidden.dropped == (("price", "thousands, or decimal commas"),)
    clear = choose_columns(frame.assign(price=["1,430.5", "2,500", "12"] * 10))
    known = columns_of(clear.preprocessor().fit(clear.select(frame)))
    with pytest.raises(ValueError, match=r"Column 'price' should hold numbers: '1,430' may be"):
        known.select(frame)


def test_a_reason_hides_the_cell_that_was_read_as_a_number():
    frame = pd.DataFrame({"price": ["$1,200", "$3"] * 15, "n": np.resize(X[:, 0], 30)})
    assert choose_columns(frame, show_cells=False).notes == ("Column 'price': read as numbers.",)


def test_thousands_with_points_in_a_file_with_decimal_commas(tmp_path):
    rows = ["1.234,5;x;1", "0,5;y;2"] * 15
    (tmp_path / "a.csv").write_text("a;class;c\n" + "\n".join(rows))
    table = read_table(tmp_path / "a.csv")
    assert choose_columns(table.X).select(table.X)["a"].tolist()[:2] == [1234.5, 0.5]
    text = (tmp_path / "a.csv").read_text().replace("1.234,5", "1.234")
    (tmp_path / "a.csv").write_text(text)
    table = read_table(tmp_path / "a.csv")
    assert choose_columns(table.X).select(table.X)["a"].tolist()[:2] == [1234, 0.5]
