"""Reading tables as users have them, and what they are told."""

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

from nearfar.datasets import BUILT_IN, read_table

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 40
NUMBERS = RNG.normal(size=(N, 3)).round(3)
ANIMALS = RNG.choice(["cat", "dog", "owl"], N)


@pytest.fixture
def write(tmp_path):
    def write(name, content, encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write


def lines(columns, header, separator=",", end="\n"):
    rows = [header, *zip(*columns, strict=True)]
    return end.join(separator.join(map(str, row)) for row in rows) + end


def plain(header=("a", "b", "c", "class"), **how):
    return lines([*NUMBERS.T, ANIMALS], header, **how)


def said(table, *parts):
    return any(all(part in message for part in parts) for message in table.messages)


# Built-in datasets and NumPy files


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_datasets_have_names_of_columns_and_classes(name):
    table = read_table(name)
    assert table.name == name and table.target == "class"
    assert len(table.feature_names) == table.X.shape[1]
    assert len(table.class_names) == len(np.unique(table.y))


def test_digits_are_images_and_wine_is_scikit_learns():
    assert read_table("digits").image_shape == (8, 8)
    assert read_table("digits").X.shape == load_digits().data.shape
    np.testing.assert_array_equal(read_table("wine").X, load_wine().data)


def test_a_file_goes_before_the_built_in_dataset_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iris").mkdir()
    assert read_table("iris").X.shape == (150, 4)  # a directory does not
    (tmp_path / "wine").write_text("a,b\n")
    with pytest.raises(ValueError, match="hides the built-in dataset 'wine'"):
        read_table("wine")


@pytest.mark.parametrize(
    ("option", "words"),
    [({"groups": "a"}, "has no groups"), ({"target": "alcohol"}, "has its own classes")],
)
def test_built_in_datasets_have_no_other_columns(option, words):
    with pytest.raises(ValueError, match=words):
        read_table("wine", **option)


def test_npz_with_every_key(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(
        path,
        data=NUMBERS,
        labels=np.arange(N) % 2 * 2,
        groups=np.arange(N) // 4,
        time=np.arange(N)[::-1],
        feature_names=["u", "v", "w"],
        target_names=["no", "maybe", "yes"],
    )
    table = read_table(path)
    np.testing.assert_array_equal(table.X, NUMBERS)
    assert table.name == "a.npz" and table.target == "labels"
    assert table.feature_names == ["u", "v", "w"]
    assert table.class_names == ["no", "yes"]  # class 1 does not occur
    assert table.groups.tolist() == (np.arange(N) // 4).tolist()
    assert table.time.tolist() == np.arange(N)[::-1].tolist()
    assert said(table, "Groups: 'groups', 10 groups") and said(table, "Time: 'time'")


@pytest.mark.parametrize(
    ("shape", "image_shape"),
    [
        ((6, 4, 5), (4, 5)),
        ((6, 4, 5, 3), (4, 5, 3)),
        ((6, 4, 5, 1), (4, 5)),
        ((6, 3, 4, 5), None),
        ((6, 1, 5), None),
    ],
)
def test_images_are_flattened_and_said(tmp_path, shape, image_shape):
    X = RNG.integers(0, 255, shape).astype(np.uint8)
    np.savez(tmp_path / "a.npz", X=X, y=[0, 1] * 3)
    table = read_table(tmp_path / "a.npz")
    assert table.image_shape == image_shape and said(table, "flattened")
    assert table.X.dtype == np.float64
    np.testing.assert_array_equal(table.X, X.reshape(6, -1))


@pytest.mark.parametrize(
    ("shape", "read"), [((4, 5), (4, 5)), ((4, 5, 3), (4, 5, 3)), ((4, 5, 1), (4, 5))]
)
def test_images_beside_vectors_are_shown_and_are_not_features(tmp_path, shape, read):
    images = np.arange(6 * np.prod(shape)).reshape(6, *shape)
    y = np.array(["a", "b", "", "a", "b", "a"])
    np.savez(tmp_path / "a.npz", X=np.ones((6, 2)), y=y, images=images)
    table = read_table(tmp_path / "a.npz")
    assert table.X.shape == (5, 2) and table.tensor_shape is None
    np.testing.assert_array_equal(table.images, images.reshape(6, *read)[[0, 1, 3, 4, 5]])
    assert "images" not in " ".join(table.messages)


@pytest.mark.parametrize(
    "images", [np.ones((5, 4, 4)), np.ones((6, 4)), np.ones((6, 4, 4, 2)), np.full((6, 2, 2), "a")]
)
def test_images_that_do_not_fit_the_rows_are_refused(tmp_path, images):
    np.savez(tmp_path / "a.npz", X=np.ones((6, 2)), y=[0, 1] * 3, images=images)
    with pytest.raises(ValueError, match=r"'images' should hold one image per row, of shape \(6, "):
        read_table(tmp_path / "a.npz")


def test_image_shape_of_flat_rows_must_fit(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 6)), y=[0, 1, 0, 1], image_shape=(2, 3))
    assert read_table(tmp_path / "a.npz").image_shape == (2, 3)
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 6)), y=[0, 1, 0, 1], image_shape=(2, 2))
    with pytest.raises(ValueError, match=r"image_shape should be .* 6 numbers .* got \(2, 2\)"):
        read_table(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"arr_0": NUMBERS}, r"no key 'X' or 'data'. Its keys are: arr_0 \(40, 3\)"),
        ({"X": NUMBERS}, "has no labels"),
        ({"X": NUMBERS, "y": ANIMALS, "target": ANIMALS}, "several keys for y: 'y', 'target'"),
        ({"X": NUMBERS, "y": ANIMALS[1:]}, "'y' has 39 values for 40 rows"),
        (
            {"X": NUMBERS, "y": np.eye(N)},
            r"'y' should have one value per row; got shape \(40, 40\)",
        ),
        ({"X": NUMBERS, "y": ANIMALS.astype(object)}, "object array or a pickle"),
        ({"X": NUMBERS[:, 0], "y": ANIMALS}, r"got shape \(40,\).*reshape"),
        ({"X": NUMBERS[:0], "y": ANIMALS[:0]}, "has no rows"),
        ({"X": NUMBERS + 1j, "y": ANIMALS}, "complex numbers"),
        ({"X": NUMBERS.astype(str), "y": ANIMALS}, "got strings"),
        ({"X": NUMBERS, "y": ANIMALS, "feature_names": ["a"]}, "1 names for 3 columns"),
    ],
)
def test_bad_npz_says_what_is_wrong(tmp_path, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "a.npz")


def test_npz_with_several_keys_for_labels_takes_the_one_that_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", X=NUMBERS, y=ANIMALS, target=np.arange(N) % 2)
    assert read_table(tmp_path / "a.npz", target="target").y.tolist() == [0, 1] * (N // 2)


def test_npz_keys_can_be_named(tmp_path):
    np.savez(tmp_path / "a.npz", X=NUMBERS, y=ANIMALS, kind=np.arange(N) % 2, who=np.arange(N) % 5)
    table = read_table(tmp_path / "a.npz", target="kind", groups="who")
    assert table.y.tolist() == (np.arange(N) % 2).tolist() and table.groups_name == "who"
    with pytest.raises(ValueError, match="--groups whom: .* Did you mean 'who'"):
        read_table(tmp_path / "a.npz", groups="whom")


def test_without_need_of_a_target_no_row_of_an_npz_is_left_out(tmp_path):
    np.savez(tmp_path / "a.npz", X=NUMBERS, y=np.where(np.arange(N) == 3, np.nan, 1.0))
    assert len(read_table(tmp_path / "a.npz", need_target=False).X) == N
    assert len(read_table(tmp_path / "a.npz").X) == N - 1


def test_float32_stays(tmp_path):
    np.savez(tmp_path / "a.npz", X=NUMBERS.astype(np.float32), y=ANIMALS)
    assert read_table(tmp_path / "a.npz").X.dtype == np.float32


@pytest.mark.parametrize("name", ["cut.npz", "cut.npy", "text.npy", "empty.npz", "cut.parquet"])
def test_damaged_files_raise_a_clear_error(tmp_path, name):
    if name.endswith("npy"):
        np.save(tmp_path / name, NUMBERS)
    elif name.endswith("npz"):
        np.savez(tmp_path / name, X=NUMBERS)
    else:
        pytest.importorskip("pyarrow")
        pd.DataFrame(NUMBERS, columns=list("abc")).to_parquet(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    cut = {"text.npy": b"hello, not an array", "empty.npz": b""}.get(
        name, content[: len(content) // 2]
    )
    (tmp_path / name).write_bytes(cut)
    with pytest.raises(ValueError, match=f"{name} is damaged or no"):
        read_table(tmp_path / name, need_target=False)


def test_object_arrays_are_not_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.abort, ())

    np.save(tmp_path / "a.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="not opened. Save numbers as floats"):
        read_table(tmp_path / "a.npy")


def test_numpy_files_and_built_in_datasets_need_no_pandas(tmp_path):
    np.savez(tmp_path / "a.npz", X=NUMBERS, y=ANIMALS)
    np.save(tmp_path / "a.npy", NUMBERS)
    (tmp_path / "labels.txt").write_text("\n".join(ANIMALS))
    (tmp_path / "labels.csv").write_text("n,label\n" + "\n".join(f"1,{a}" for a in ANIMALS))
    (tmp_path / "a.csv").write_text(plain())
    code = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from nearfar.datasets import BUILT_IN, read_table
for name in BUILT_IN:
    read_table(name)
print(read_table("a.npz").y[0], read_table("a.npy", labels="labels.txt").y[0],
      read_table("a.npy", labels="labels.csv").y[0], read_table("a.npy", need_target=False).y)
try:
    read_table("a.csv")
except ImportError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first = ANIMALS[0]
    assert run.stdout.splitlines() == [
        f"{first} {first} {first} None",
        "pandas is not installed; run: pip install 'nearfar[app]'",
    ]


# Text tables


@pytest.mark.parametrize("header", ["class", "Target", "LABEL", "y"])
def test_the_target_is_guessed_from_its_name_and_said(write, header):
    table = read_table(write("a.csv", plain(("a", "b", "c", header))))
    assert table.target == header and table.y.tolist() == ANIMALS.tolist()
    assert f"Target: column '{header}', guessed from its name." in table.messages
    assert list(table.X.columns) == ["a", "b", "c"]
    np.testing.assert_array_equal(table.X, NUMBERS)


@pytest.mark.parametrize(
    ("header", "target", "words"),
    [
        (
            ("a", "b", "c", "classes"),
            None,
            "The target column of a.csv is not known.*'c', 'classes'",
        ),
        (("a", "b", "y", "class"), None, "several columns that could be the target: 'y', 'class'"),
        (("a", "y", "y", "c"), None, "several columns that could be the target"),
        (("a", "b", "c", "Species"), "species", "no such column. Did you mean 'Species'"),
        (("a", "b", "c", "Species"), "specie", "no such column. Did you mean 'Species'"),
        (("a", "b", "b", "c"), "b", "two columns with that name"),
    ],
)
def test_an_unclear_target_is_asked_for(write, header, target, words):
    with pytest.raises(ValueError, match=words):
        read_table(write("a.csv", plain(header)), target=target)


def test_at_most_twenty_columns_are_listed(write):
    names = [f"n{i}" for i in range(50)]
    with pytest.raises(ValueError, match="'n19' and 30 more"):
        read_table(write("a.csv", lines([[0.5, 1.5]] * 50, names)))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.TXT"])
def test_separators_and_line_ends(write, separator, end, name):
    table = read_table(write(name, plain(separator=separator, end=end)))
    np.testing.assert_array_equal(table.X, NUMBERS)


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("header", [True, False])
def test_decimal_commas(write, separator, header):
    cells = [[str(x).replace(".", ",") for x in column] for column in NUMBERS.T]
    text = lines([*cells, ANIMALS], ("a", "b", "c", "class"), separator)
    text = text if header else text.partition("\n")[2]
    table = read_table(write("a.csv", text), target=None if header else "3")
    np.testing.assert_array_equal(table.X, NUMBERS)
    assert said(table, "decimal commas")


@pytest.mark.parametrize(
    ("encoding", "message"),
    [("utf-8", ""), ("utf-8-sig", ""), ("utf-16", ""), ("latin-1", "read as Latin-1")],
)
def test_encodings(write, encoding, message):
    table = read_table(write("a.csv", plain(("größe", "b", "c", "class")), encoding))
    assert table.X.columns[0] == "größe"
    assert said(table, "Latin-1") == bool(message)


def test_row_numbers_of_pandas_are_left_out_and_said(tmp_path):
    frame = pd.DataFrame(NUMBERS, columns=list("abc")).assign(y=ANIMALS)
    frame.to_csv(tmp_path / "a.csv")
    table = read_table(tmp_path / "a.csv")
    assert list(table.X.columns) == ["a", "b", "c"] and said(table, "'Unnamed: 0'")
    pd.read_csv(tmp_path / "a.csv").to_csv(tmp_path / "b.csv")  # once more
    assert list(read_table(tmp_path / "b.csv").X.columns) == ["a", "b", "c"]
    assert read_table(tmp_path / "a.csv", groups="Unnamed: 0").groups.tolist() == list(range(N))


def test_row_names_of_r_do_not_shift_the_columns(write):
    body = "".join(
        f'"{i}",{x[0]},{x[1]},"{a}"\n'
        for i, (x, a) in enumerate(zip(NUMBERS, ANIMALS, strict=True))
    )
    table = read_table(write("a.csv", '"u","v","class"\n' + body))
    np.testing.assert_array_equal(table.X[["u", "v"]], NUMBERS[:, :2])
    assert table.y.tolist() == ANIMALS.tolist()


def test_separators_at_the_end_of_each_line_do_not_shift_the_columns(write):
    text = plain().replace("\n", ",\n").replace("class,", "class") + ",,,,\n,,,,\n"
    table = read_table(write("a.csv", text))
    np.testing.assert_array_equal(table.X, NUMBERS)
    assert said(table, "Dropped 2 empty rows at the end")


def test_a_file_without_header_names_columns_by_position(write):
    body = plain().partition("\n")[2]
    path = write("a.csv", body)
    with pytest.raises(ValueError, match="--target 'column 3' .the last column.*'column 0'"):
        read_table(path)
    for target in ("column 3", "3"):
        table = read_table(path, target=target)
        np.testing.assert_array_equal(table.X, NUMBERS)
        assert table.target == "column 3" and said(table, "first line contains data")


def test_a_file_of_numbers_only_has_no_header(write):
    body = lines([*NUMBERS.T, np.arange(N) % 2], "abcd").partition("\n")[2]
    table = read_table(write("a.csv", body), target="3")
    assert len(table.X) == N and table.y.tolist() == (np.arange(N) % 2).tolist()


def test_rows_that_run_like_names_are_data(write):
    assert len(read_table(write("a.csv", "1,2,3\n4,5,6\n7,8,3\n"), target="2").X) == 3


@pytest.mark.parametrize(
    "names",
    [
        ["0", "1", "2", "class"],  # as pandas writes an array
        ["2001", "2002", "2003", "class"],
        ["class", *(str(400 + 2.5 * i) for i in range(10))],  # wavelengths
    ],
)
def test_numbers_can_be_names(write, names):
    spectrum = "class" in names[0]
    columns = [ANIMALS, *RNG.normal(size=(10, N))] if spectrum else [*NUMBERS.T, ANIMALS]
    table = read_table(write("a.csv", lines(columns, names)))
    assert len(table.X) == N and [*table.X.columns] == [n for n in names if n != "class"]


def test_question_marks_and_words_among_numbers_are_missing_and_said(write):
    age = [f" {x} " for x in NUMBERS[:, 0]]
    age[3], age[4], height = "?", "NA", [str(x) for x in NUMBERS[:, 1]]
    height[7] = "None"
    kind = ["None" if a == "owl" else a for a in ANIMALS]
    text = lines([age, height, kind], (" age", "height ", "class"), ", ")
    table = read_table(write("a.csv", text))
    assert list(table.X.columns) == ["age", "height"]
    assert table.X.dtypes.map(lambda dtype: dtype.kind).tolist() == ["f", "f"]
    assert np.argwhere(table.X.isna().to_numpy()).tolist() == [[3, 0], [4, 0], [7, 1]]
    assert said(table, "1 cell with '?'") and said(table, "'height'", "'None'")
    assert set(table.y) == {"None", "cat", "dog"}  # a class may be called so


def test_a_word_among_few_numbers_is_a_level(write):
    table = read_table(write("a.csv", lines([NUMBERS[:, 0], ["0", "1", "none", "2"] * 10], "ay")))
    assert set(table.y) == {"0", "1", "2", "none"} and len(table.X) == N


def test_repeated_names_are_told_apart(write):
    table = read_table(write("a.csv", plain(("a", "a", "a.1", "y"))))
    assert len(set(table.X.columns)) == 3 and said(table, "2 columns are named 'a'")
    np.testing.assert_array_equal(table.X, NUMBERS)


def test_rows_without_target_are_left_out_and_counted(write):
    animals = ANIMALS.copy().astype(object)
    animals[[2, 5]] = ["", "?"]
    text = lines([*NUMBERS.T, animals, np.arange(N)], ("a", "b", "c", "class", "t"))
    table = read_table(write("a.csv", text), time="t")
    rest = np.delete(np.arange(N), [2, 5])
    assert said(table, "Dropped 2 rows without a label (row 2, 5)")
    np.testing.assert_array_equal(table.X, NUMBERS[rest])
    assert table.time.tolist() == rest.tolist() and list(table.X.index) == list(range(N - 2))


def test_whole_labels_beside_a_gap_stay_whole(write):
    table = read_table(write("a.csv", "a,b,y\n1,2,0\n2,3,1\n3,4,\n4,5,1\n"))
    assert table.y.tolist() == [0, 1, 1] and table.y.dtype.kind == "i"


def test_groups_and_time_leave_the_features_and_are_said(write):
    days = [f"2021-03-{1 + i % 28:02}" for i in range(N)]
    text = lines([*NUMBERS.T, ANIMALS, np.arange(N) % 4, days], ("a", "b", "c", "y", "who", "day"))
    path = write("a.csv", text)
    table = read_table(path, groups="who", time="day")
    assert list(table.X.columns) == ["a", "b", "c"]
    assert said(table, "Groups: 'who', 4 groups") and said(table, "Time: 'day'")
    assert np.argsort(table.time, kind="stable").tolist() == sorted(range(N), key=lambda i: days[i])
    with pytest.raises(ValueError, match="cannot be both the target and the groups"):
        read_table(path, groups="y")
    with pytest.raises(ValueError, match="--time dy: .* Did you mean 'day'"):
        read_table(path, time="dy")


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["2", "10", "1"], [2, 0, 1]),
        (["0.5", "-1", "1e3"], [1, 0, 2]),
        (["2021-03-02", "2020-12-31 23:59", "2021-03-01"], [1, 2, 0]),
        (["02.03.2021", "31.12.2020", "05.02.2021"], [1, 2, 0]),  # days first
        (["12/31/2020", "02/01/2021", "01/05/2021"], [0, 2, 1]),  # months first
        (["2020-01-01T00:00:00Z", "2020-01-01T00:30:00+01:00", "2019-12-31T00:00:00Z"], [2, 1, 0]),
        (["3 Mar 2020", "1 Apr 2019", "9 Feb 2020"], [1, 2, 0]),
    ],
)
def test_times_sort(write, cells, order):
    text = lines([[1.5, 2.5, 3.5], ["u", "v", "u"], cells], ("a", "y", "t"))
    table = read_table(write("a.csv", text), time="t")
    assert np.argsort(table.time).tolist() == order and table.time.dtype.kind in "if"


def test_unclear_order_of_day_and_month_is_said(write):
    table = read_table(write("a.csv", "a,y,t\n1,u,01/01/2020\n2,v,03/04/2020\n"), time="t")
    assert said(table, "'03/04/2020' are read as month first")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["2020-01-01", "soon", "2020-01-02"], "is not a number or date in row 1: 'soon'"),
        (["1", "", "3"], "missing in 1 row .first: row 1"),
        (["1", "inf", "3"], "is not a number or date in row 1: 'inf'"),
    ],
)
def test_bad_times_name_the_first_row(write, cells, words):
    text = lines([[1.5, 2.5, 3.5], ["u", "v", "u"], cells], ("a", "y", "t"))
    with pytest.raises(ValueError, match=words):
        read_table(write("a.csv", text), time="t")


def test_rows_without_a_group_are_refused(write):
    path = write("a.csv", "a,y,g\n1,u,\n2,,k\n3,v,\n")
    with pytest.raises(
        ValueError, match="a.csv: the groups .g. are missing in 2 rows .first: row 0"
    ):
        read_table(path, groups="g")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", " \n\n", "a.csv is empty"),
        ("a.csv", "a,b,y\n", "a header with 3 columns, but no rows"),
        ("a.csv", "a,b,y\n,,\n", "all rows are empty"),
        ("a.csv", "a\n1\n2\n", "one cell, 'a', as do the other lines"),
        ("a.csv", "Results\na,b,y\n1,2,u\n", "one cell, 'Results', but a later line has 3"),
        ("a.csv", "a b y\n1 2 u\n", "separated by commas, semicolons or tabs"),
        ("a.csv", "a,b,y\n1,2,u\n3,4,v,5\n", "line 3 has 4 cells, but the first line has 3"),
        ("a.csv", 'a,b,y\n1,"2,u\n3,4,v\n', "unclosed quotation mark"),
        ("a.csv", "<!DOCTYPE html><html></html>", "web page"),
        ("a.csv", b"PK\x03\x04\0\0\0", "is not a text file"),
        ("a.csv", "id,y\n", "no rows"),
        ("a.csv", "y,g\nu,1\nv,2\n", "no feature columns"),
        ("a.csv", "a,b,y\n1,2,\n3,4,?\n", "the target 'y' is missing in every row"),
        ("a.xlsx", "x", "Save the sheet as CSV"),
        ("a.pkl", "x", "Pickles can run code"),
        ("a.dat", "x", "extension '.dat' is not supported. Supported: .csv"),
    ],
)
def test_unreadable_files_say_why(write, name, content, words):
    groups = "g" if "y,g" in str(content) else None
    with pytest.raises(ValueError, match=words):
        read_table(write(name, content), groups=groups)


def test_short_lines_are_said(write):
    table = read_table(write("a.csv", "a,b,y\n1,2,u\n3,4,v\n5\n"))
    assert len(table.X) == 2 and said(table, "1 line with fewer than 3 cells (first: line 4)")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("https://example.org/a.csv", "does not read URLs"),
        ("s3://bucket/a.parquet", "does not read URLs"),
        ("", "Expected the path of a file or the name of a built-in dataset"),
        ("brest_cancer", "Did you mean 'breast_cancer'"),
        ("a_file.cvs", "Did you mean 'a_file.csv'"),
        ("folder", "is a directory"),
    ],
)
def test_bad_sources(tmp_path, monkeypatch, source, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a_file.csv").touch()
    with pytest.raises(ValueError, match=words):
        read_table(source)


def test_without_need_of_a_target_every_row_and_column_stays(write):
    table = read_table(write("a.csv", "a,b,class\n1,2,u\n3,4,\n"), need_target=False)
    assert list(table.X.columns) == ["a", "b", "class"] and len(table.X) == 2
    assert table.y is None and table.target is None


# Parquet


def test_parquet_keeps_types_and_says_the_index(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(NUMBERS, columns=list("abc")).assign(
        y=ANIMALS, day=pd.date_range("2020", periods=N)[::-1]
    )
    frame["n"] = pd.array([1, None] * (N // 2), dtype="Int64")
    frame.set_index("day").to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert list(table.X.columns) == ["a", "b", "c", "n"] and said(table, "index 'day' is not used")
    table = read_table(tmp_path / "a.parquet", time="day")
    assert np.argsort(table.time).tolist() == list(range(N))[::-1]
    assert table.y.tolist() == ANIMALS.tolist()


# Labels in a file of their own


@pytest.mark.parametrize("name", ["l.txt", "l.csv", "h.txt", "h.csv", "l.npy", "l.npz", "s.csv"])
def test_labels_from_a_file(tmp_path, write, name):
    np.save(tmp_path / "a.npy", NUMBERS)
    if name == "l.npy":
        np.save(tmp_path / name, ANIMALS)
    elif name == "l.npz":
        np.savez(tmp_path / name, labels=ANIMALS)
    elif name == "s.csv":
        pd.Series(ANIMALS, name="kind").to_csv(tmp_path / name)
    else:
        header = "kind\n" if name[0] == "h" else ""
        write(name, header + "\n".join(ANIMALS) + "\n\n")
    table = read_table(tmp_path / "a.npy", labels=tmp_path / name)
    assert table.y.tolist() == ANIMALS.tolist() and table.target == name


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["1", "2", "10"], [1, 2, 10]),
        (["007", "7", "8"], ["007", "7", "8"]),
        (["1.5", "2", "3"], [1.5, 2.0, 3.0]),
        (["a b", "c, d", "e"], ["a b", "c, d", "e"]),
    ],
)
def test_labels_of_a_text_file_are_numbers_where_all_are(tmp_path, write, cells, labels):
    np.save(tmp_path / "a.npy", NUMBERS[:3])
    table = read_table(tmp_path / "a.npy", labels=write("l.txt", "\n".join(cells)))
    assert table.y.tolist() == labels


def test_empty_labels_leave_rows_out(tmp_path, write):
    np.save(tmp_path / "a.npy", NUMBERS)
    animals = ANIMALS.tolist()
    animals[1] = ""
    for name in ("l.txt", "l.csv"):
        table = read_table(tmp_path / "a.npy", labels=write(name, "\n".join(animals)))
        np.testing.assert_array_equal(table.X, np.delete(NUMBERS, 1, axis=0))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("\n".join(ANIMALS[1:]), "has 39 labels for 40 rows"),
        ("label\n" + "\n".join(ANIMALS[1:]), "has 39 labels for 40 rows"),
        # The first line may be a name: which of the two counts is meant cannot be known.
        ("kind\n" + "\n".join(ANIMALS[2:]), r"39 labels \(or 38 and the header 'kind'\) for 40"),
        ("u,v\n" + "a,b\n" * N, "l.csv has several columns that could be the labels"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, write, content, words):
    np.save(tmp_path / "a.npy", NUMBERS)
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "a.npy", labels=write("l.csv", content))


@pytest.mark.parametrize("header", ["", "label\n"])
def test_the_line_end_of_the_last_label_is_no_label(tmp_path, write, header):
    np.save(tmp_path / "a.npy", NUMBERS)
    content = header + "\n".join(ANIMALS[1:]) + "\n"
    with pytest.raises(ValueError, match="l.txt has 39 labels for 40 rows"):
        read_table(tmp_path / "a.npy", labels=write("l.txt", content))


def test_a_column_like_the_target_beside_a_label_file_is_said(write):
    table = read_table(write("a.csv", plain()), labels=write("l.txt", "\n".join(ANIMALS)))
    assert "class" in table.X.columns and said(table, "'class' is used as a feature")
    path = write("l.csv", lines([ANIMALS, ANIMALS[::-1]], ("u", "v")))
    assert read_table(write("a.csv", plain()), labels=path, target="v").y[0] == ANIMALS[-1]
