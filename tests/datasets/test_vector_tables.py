"""Tables with a vector in each row, as embeddings are stored."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar.datasets import read_sets, read_table
from nearfar.datasets.array_files import suggest_option
from nearfar.datasets.tables import DataFile

RNG = np.random.default_rng(0)
N, P = 30, 5
X = RNG.normal(size=(N, P))
KIND = np.resize(["ah", "oh", "uh"], N)
TEXT = [f"text number {i}" for i in range(N)]


def said(table, *parts):
    return any(all(part in message for part in parts) for message in table.messages)


def arrow_column(kind, values=X):
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    rows = [list(row) for row in values]
    if kind == "large":
        return pa.array(rows, pa.large_list(pa.float64()))
    return pa.array(rows, pa.list_(pa.from_numpy_dtype(np.dtype(kind))))


@pytest.fixture
def parquet(tmp_path):
    def write(vectors, name="a.parquet", **more):
        table = pa.table({"text": TEXT, "label": KIND, "embedding": vectors, **more})
        pq.write_table(table, tmp_path / name, row_group_size=7)
        return tmp_path / name

    return write


# Parquet


@pytest.mark.parametrize("kind", ["fixed", "large", "float64", "float32", "float16"])
def test_a_column_of_lists_is_the_vectors(parquet, kind):
    values = X.astype(kind) if kind.startswith("float") else X
    path = parquet(arrow_column(kind, values))
    assert not DataFile(path).has_sets
    table = read_table(path)
    assert table.X.dtype == values.dtype
    np.testing.assert_array_equal(table.X, values)
    assert table.y.tolist() == KIND.tolist() and table.vector == "embedding"
    assert table.feature_names[:2] == ["embedding 0", "embedding 1"]
    assert said(table, "column 'embedding', 5 numbers per row, the only", "'text' is not used")
    assert table.unused["text"].tolist() == TEXT


def test_a_column_that_is_asked_for_is_not_called_a_guess(parquet):
    table = read_table(parquet(arrow_column("float32")), vector="embedding")
    assert said(table, "column 'embedding', 5 numbers per row; 'text'")
    assert "vector='embedding'" in table.source


def test_whole_numbers_are_floats_and_gaps_are_missing(parquet):
    rows = [[1, 2, None], *([[3, 4, 5]] * (N - 1))]
    table = read_table(parquet(pa.array(rows, pa.list_(pa.int8()))))
    assert table.X.dtype == np.float64 and np.isnan(table.X[0, 2]) and table.X[1, 2] == 5


def test_several_columns_of_lists_are_asked_about(parquet):
    path = parquet(arrow_column("float32"), other=arrow_column("float32", 2 * X))
    with pytest.raises(
        ValueError, match=r"several columns with lists of numbers: 'embedding', 'other'.*--vector"
    ):
        read_table(path)
    np.testing.assert_allclose(read_table(path, vector="other").X, 2 * X, rtol=1e-6)


def test_lists_of_words_and_of_unequal_lengths_are_no_vectors(parquet):
    tokens = pa.array([list(range(i % 4)) for i in range(N)])
    words = pa.array([["a", "b"]] * N)
    table = read_table(parquet(arrow_column("float32"), tokens=tokens, words=words))
    assert table.vector == "embedding"
    path = parquet(tokens, number=X[:, 0])
    assert list(read_table(path).X.columns) == ["text", "embedding", "number"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [[1.0, 2.0]] * 4 + [[1.0]] + [[1.0, 2.0]] * (N - 5),
            "'embedding' differ in length: row 4 has 1 number, most have 2",
        ),
        (
            [[1.0, 2.0]] * 4 + [None] * 2 + [[1.0, 2.0]] * (N - 6),
            r"'embedding' has no vector in 2 rows \(first: row 4\)",
        ),
        ([[]] * N, "'embedding' are empty"),
    ],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_vectors_that_are_none_are_named(parquet, rows, words, fixed):
    sizes = {len(row) for row in rows if row is not None}
    if fixed and (len(sizes) > 1 or sizes == {0}):
        pytest.skip("not of one length")
    kind = pa.list_(pa.float32(), 2) if fixed else pa.list_(pa.float32())
    with pytest.raises(ValueError, match=words):
        read_table(parquet(pa.array(rows, kind)))


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ("text", r"--vector text: this column of a.parquet does not contain lists.*'embedding'"),
        ("embeding", r"--vector embeding: a.parquet has no such column. Did you mean 'embedding'"),
    ],
)
def test_another_column_is_refused(parquet, vector, words):
    with pytest.raises(ValueError, match=words):
        read_table(parquet(arrow_column("float32")), vector=vector)


def test_vector_false_leaves_the_column_where_it_is(parquet):
    table = read_table(parquet(arrow_column("float32")), vector=False)
    assert list(table.X.columns) == ["text", "embedding"] and table.vector is None


def test_vectors_alone_and_an_index_of_pandas(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"v": list(X)}, index=pd.Index(TEXT, name="who")).to_parquet(path)
    table = read_table(path, need_target=False, ids="who")
    assert table.X.shape == (N, P) and table.ids.tolist() == TEXT


def test_rows_without_a_label_lose_their_vector_too(parquet):
    table = pa.table({"embedding": arrow_column("float32"), "text": TEXT})
    labels = [None, *KIND[1:]]
    path = parquet(arrow_column("float32"))
    pq.write_table(table.append_column("label", pa.array(labels)), path)
    found = read_table(path, ids="text")
    assert found.X.shape == (N - 1, P) and found.ids[0] == TEXT[1]


def test_only_lists_of_lists_are_sets(tmp_path):
    path = tmp_path / "a.parquet"
    lists = pa.array([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0]]] * 5)
    pq.write_table(pa.table({"vectors": lists, "label": ["a", "b"] * 5}), path)
    assert DataFile(path).has_sets and read_sets(path).X.shape == (10, 2)
    with pytest.raises(
        ValueError, match="--vector vectors is only for tables with one row per vector"
    ):
        read_sets(path, vector="vectors")


def test_vectors_of_a_long_table_make_sets(parquet, tmp_path):
    clip = np.resize(np.repeat(["c1", "c2", "c3"], 2), N)
    clip = np.array([f"{a}{b}" for a, b in zip(clip, KIND, strict=True)])
    path = parquet(arrow_column("float32"), clip=clip)
    table = read_sets(path, by="clip")
    assert table.X.n_features == P and table.X.n_vectors == N
    np.testing.assert_allclose(table.X[0][0], X[0], rtol=1e-6)
    with pytest.raises(ValueError, match="--set-id clop: a.parquet has no such column. Did you"):
        read_sets(path, by="clop")


# Text


@pytest.mark.parametrize("between", [", ", " ", ","])
def test_brackets_in_text_are_vectors(tmp_path, between):
    path = tmp_path / "a.csv"
    cells = ["[" + between.join(map(str, row)) + "]" for row in X]
    pd.DataFrame({"label": KIND, "v": cells, "text": TEXT}).to_csv(path, index=False)
    table = read_table(path)
    np.testing.assert_array_equal(table.X, X)
    assert said(table, "column 'v', 5 numbers per row, the only column of lists")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (
            "[1 2 ... 3 4]",
            r"does not contain a vector of numbers in row 0: '\[1 2 \.\.\. 3 4\]'. "
            "The vector was truncated",
        ),
        ("[1, 2, x]", None),
        ("[[1, 2], [3, 4]]", None),
        ("(1, 2)", None),
    ],
)
def test_what_is_no_vector_in_text(tmp_path, cell, words):
    path = tmp_path / "a.csv"
    pd.DataFrame({"a": X[:, 0], "v": [cell] * N, "label": KIND}).to_csv(path, index=False)
    if words is None:
        assert list(read_table(path).X.columns) == ["a", "v"]
    else:
        with pytest.raises(ValueError, match=words):
            read_table(path)


def test_a_bad_cell_among_vectors_in_text_is_named(tmp_path):
    path = tmp_path / "a.csv"
    cells = ["[1, 2]"] * 150
    cells[120] = "[1, b]"
    pd.DataFrame({"v": cells, "label": np.resize(KIND, 150)}).to_csv(path, index=False)
    with pytest.raises(
        ValueError, match=r"a.csv: column 'v' does not contain a vector of numbers in row 120"
    ):
        read_table(path)


# Folders


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for name, rows in (("b", slice(10, N)), ("a", slice(0, 10))):
        frame = pd.DataFrame({"label": KIND[rows], "v": list(X[rows])})
        frame.to_parquet(folder / f"{name}.parquet")
    (folder / "_SUCCESS").write_text("")
    table = read_table(folder)
    np.testing.assert_array_equal(table.X, X)
    assert table.name == "parts" and table.y.tolist() == KIND.tolist()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"a": [1, 2], "label": ["x", "y"]}, "b.parquet: column 'a' has type int64, but double"),
        ({"label": ["x", "y"]}, "b.parquet does not have the column 'a', which a.parquet has"),
        ({"a": [1.0], "label": ["x"], "c": [1]}, "b.parquet has a column 'c', which a.parquet"),
    ],
)
def test_files_of_a_folder_must_agree(tmp_path, other, words):
    pd.DataFrame({"a": [0.5, 1.5], "label": ["x", "y"]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame(other).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path)


def test_a_folder_without_parquet_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        ValueError, match="is a directory without Parquet files or images. Pass one"
    ):
        read_table(tmp_path)


# NumPy


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npy_is_mapped_and_keeps_its_type(tmp_path, dtype):
    np.save(tmp_path / "a.npy", X.astype(dtype))
    table = read_table(tmp_path / "a.npy", need_target=False)
    assert isinstance(table.X.base, np.memmap) and table.X.dtype == dtype
    with pytest.raises(ValueError, match="--vector v: a.npy stores a single array"):
        read_table(tmp_path / "a.npy", vector="v")


def test_keys_of_an_npz_that_are_not_used_are_named(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(
        path,
        X=X,
        y=KIND,
        speaker=np.arange(N) // 3,
        date=np.arange(N),
        id=np.array(TEXT),
        mood=KIND,
        feature_names=list("abcde"),
        codebook=np.zeros((2, 3)),
    )
    table = read_table(path)
    assert said(table, "Unused keys: 'speaker' (--groups speaker?), 'date' (--time date?)")
    assert said(table, "'id' (--id id?), 'mood', 'codebook' (2, 3)", "can be used with --target")
    assert not said(table, "feature_names")
    table = read_table(path, groups="speaker", time="date", ids="id", target="mood")
    assert table.groups_name == "speaker" and table.time_name == "date" and table.ids[3] == TEXT[3]
    assert said(table, "Unused keys: 'y', 'codebook' (2, 3).")
    with pytest.raises(ValueError, match="--groups speker: a.npz has no such key. Did you mean"):
        read_table(path, groups="speker")
    with pytest.raises(ValueError, match="'id' cannot be both the groups and the id"):
        read_table(path, groups="id", ids="id")


def test_an_npz_whose_keys_are_all_used_says_nothing(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=KIND)
    assert read_table(tmp_path / "a.npz").messages == []


def test_a_key_may_be_the_vectors_and_one_of_two_labels_named(tmp_path):
    np.savez(tmp_path / "a.npz", emb=X, y=KIND, labels=KIND[::-1])
    with pytest.raises(ValueError, match="several keys for y.*--target"):
        read_table(tmp_path / "a.npz", vector="emb")
    table = read_table(tmp_path / "a.npz", vector="emb", target="labels")
    np.testing.assert_array_equal(table.X, X)
    assert table.y.tolist() == KIND[::-1].tolist() and said(table, "'y'")


@pytest.mark.parametrize(
    ("name", "option"),
    [("Speaker", "groups"), ("subject_id", "groups"), ("ID", "id"), ("labels", "target")],
)
def test_names_say_what_a_key_is_made_for(name, option):
    assert suggest_option(name) == option
    assert suggest_option("height") is None


# Ids


def test_ids_are_no_feature_and_stay_with_their_rows(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcde")).assign(who=TEXT, label=KIND)
    frame.loc[4, "label"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)
    table = read_table(tmp_path / "a.csv", ids="who")
    assert list(table.X.columns) == list("abcde")
    assert table.ids.tolist() == TEXT[:4] + TEXT[5:] and said(
        table, "ID: 'who', not used as a feature."
    )


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (
            [*TEXT[:-1], TEXT[2]],
            "'who' must be unique, but 'text number 2' occurs in rows 2 and 29",
        ),
        ([*TEXT[:-1], None], r"the ID 'who' is missing in 1 row \(first: row 29\)"),
    ],
)
def test_ids_must_be_there_and_unique(tmp_path, ids, words):
    frame = pd.DataFrame(X, columns=list("abcde")).assign(who=ids, label=KIND)
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "a.csv", ids="who")


def test_built_in_datasets_have_neither(tmp_path):
    with pytest.raises(ValueError, match="--id a: the built-in dataset 'wine' has no id"):
        read_table("wine", ids="a")
    with pytest.raises(
        ValueError, match="--vector a: the built-in dataset 'wine' has no column of vectors"
    ):
        read_table("wine", vector="a")


def test_text_in_brackets_is_never_copied_many_times(tmp_path):
    import tracemalloc

    path, rng = tmp_path / "a.csv", np.random.default_rng(0)
    lines = [f'"{rng.normal(size=100).tolist()}",{i % 3}\n' for i in range(300)]
    path.write_text("emb,kind\n" + "".join(lines))
    read_table(path, target="kind")  # imports are not counted
    tracemalloc.start()
    read_table(path, target="kind")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4.5 * path.stat().st_size  # 6.3 with all lines at once, as wide characters
