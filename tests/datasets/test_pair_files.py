"""Pairs and comparisons from files as people have them."""

import numpy as np
import pandas as pd
import pytest

from nearfar import Pairs, Quadruplets
from nearfar.datasets import read_pairs, read_quadruplets

IDS = ["ann", "bob", "eve", "joe", "zoë"]
WANTED = Pairs([[0, 1], [2, 3]], [[0, 4]], n_samples=5)


@pytest.fixture
def file(tmp_path):
    def write(text, name="judged.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
        return path

    return write


# ---------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    "text",
    [
        "left,right,same\n0,1,1\n2,3,1\n0,4,0\n",
        "0,1,1\n2,3,1\n0,4,-1\n",
        "0;1;true\n2;3;True\n0;4;FALSE\n",
        "0\t1\tsame\n2\t3\tSame\n0\t4\tdifferent\n",
        "LEFT, Right , same\n\n0, 1, +1\n\n\n2, 3, 1\n0, 4, -1",
        "first,second,verdict\n0,1,1\n2,3,1\n0,4,0\n",
        "id1,id2,same\n0,1,1\n2,3,1\n0,4,0\n",
        ",same,left,right,who\n0,1,0,1,kim\n1,1,2,3,lee\n2,0,0,4,kim\n",
        '"left";"right";"same"\n"0";"1";"1"\n"2";"3";"1"\n"0";"4";"0"\n',
        "0.0,1.0,1.0\r\n2.0,3.0,1.0\r\n0.0,4.0,0.0\r\n",
        "0,1,1,a note\n2,3,1\n0,4,0,,,\n,,\n",
    ],
    ids=[
        *("names", "none", "semicolons", "tabs", "blanks", "other-names", "names-like-verdicts"),
        *("any-order", "quoted", "spreadsheet", "ragged"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_pairs_of_row_numbers(file, text, encoding):
    assert read_pairs(file(text, encoding=encoding), n_samples=5) == WANTED
    assert read_pairs(file(text, encoding=encoding)) == WANTED  # the largest row is the last


@pytest.mark.parametrize(
    "text",
    [
        "left,right,same\nann,bob,true\neve,joe,true\nann,zoë,false\n",
        "ann,bob,same\neve,joe,same\nann,zoë,different\n",
        "person,other,same\nann,bob,1\neve,joe,1\nann,zoë,0\n",
        "ann; bob ;1\neve;joe;1\nann;zoë;-1\n",
    ],
)
def test_pairs_of_ids(file, text):
    assert read_pairs(file(text), ids=IDS) == WANTED
    assert read_pairs(file(text), ids=pd.Series(IDS, dtype="string"), n_samples=5) == WANTED
    with pytest.warns(UserWarning, match="judged.csv is not UTF-8 and is read as Latin-1"):
        assert read_pairs(file(text, encoding="latin-1"), ids=np.array(IDS)) == WANTED


@pytest.mark.parametrize(
    "ids", [[7, 11, 12, 30, 40], np.array([7.0, 11, 12, 30, 40]), ["7", "11", "12", "30", "40"]]
)
def test_ids_that_are_numbers(file, ids):
    assert read_pairs(file("7,11,1\n12,30,1\n7,40,0\n"), ids=ids) == WANTED
    if isinstance(ids[0], str):
        with pytest.raises(ValueError, match=r"judged.csv, line 1: no row has the ID '007'"):
            read_pairs(file("007,11,1\n"), ids=ids)
    else:
        assert read_pairs(file("007,11.0,1\n12,30,1\n7,40,0\n"), ids=ids) == WANTED


@pytest.mark.parametrize(
    "same", [[1, 1, 0], [1, 1, -1], [True, True, False], ["same"] * 2 + ["Different"]]
)
def test_pairs_of_parquet(tmp_path, same):
    path = tmp_path / "judged.parquet"
    names = {"left": [0, 2, 0], "right": [1, 3, 4]}
    pd.DataFrame({"who": list("kkl"), **names, "same": same}).to_parquet(path)
    assert read_pairs(path) == WANTED
    by_id = {key: [IDS[row] for row in rows] for key, rows in names.items()}
    pd.DataFrame({**by_id, "verdict": same}).to_parquet(path)
    assert read_pairs(path, ids=IDS) == WANTED
    with pytest.raises(ValueError, match="judged.parquet, row 1: no row has the ID 'joe'"):
        read_pairs(path, ids=["ann", "bob", "eve", "jo", "zoë"])


def test_whole_numbers_beside_a_gap_are_floats_in_parquet(tmp_path):
    path = tmp_path / "judged.pq"
    frame = pd.DataFrame({"left": [0, 2, 0], "right": [1, 3, None], "same": [1, 1, 0]})
    frame.to_parquet(path)
    with pytest.raises(ValueError, match="judged.pq, row 2: the number of a row is missing"):
        read_pairs(path)
    assert read_pairs_of(frame.fillna({"right": 4}), path) == WANTED


def read_pairs_of(frame, path):
    frame.to_parquet(path)
    return read_pairs(path)


def test_the_order_of_the_file_is_kept_and_a_pair_may_come_again(file):
    found = read_pairs(file("3,2,1\n1,0,1\n2,3,1\n"))
    assert found.similar.tolist() == [[3, 2], [1, 0], [2, 3]]
    assert found.dissimilar.shape == (0, 2)


def test_pairs_said_both_ways(file):
    path = file("left,right,same\n\nann,bob,1\neve,joe,1\nbob,ann,0\nann,zoë,0\n")
    message = (
        r"judged.csv, line 5: 'ann' and 'bob' are marked as different, but line 3 says the "
        r'opposite. Pass conflicts="drop" to drop such pairs'
    )
    with pytest.raises(ValueError, match=message):
        read_pairs(path, ids=IDS)
    dropped = read_pairs(path, ids=IDS, conflicts="drop")
    assert dropped == Pairs([[2, 3]], [[0, 4]], n_samples=5)
    kept = read_pairs(path, ids=IDS, conflicts="keep")
    assert kept.n_conflicts == 1
    with pytest.raises(ValueError, match="line 2: '0' and '1' are marked as the same, but line 1"):
        read_pairs(file("1,0,0\n0,1,1\n"))
    with pytest.raises(ValueError, match="read_pairs: conflicts must be 'raise' or 'drop'"):
        read_pairs(path, ids=IDS, conflicts="ask")


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("ann,bob,1\nann,tom,1\n", {"ids": IDS}, "judged.csv, line 2: no row has the ID 'tom'"),
        ("ann,tom,1\nann,bob,1\n", {"ids": IDS}, "line 1: no row has the ID 'tom'"),
        ("tom,tim,same\nann,bob,same\n", {"ids": IDS}, "line 1: no row has the ID 'tom'"),
        ("77,78,1\nann,bob,1\n", {"ids": IDS}, "line 1: no row has the ID '77'"),
        ("ann,,1\n", {"ids": IDS}, "line 1: the ID of a row is missing"),
        ("0,1,1\n0,5,1\n", {"n_samples": 5}, "line 2: row 5 does not exist: n_samples=5"),
        ("0,1,1\n0,-2,1\n", {}, "line 2: '-2' is not a row number. Rows are numbered from 0"),
        (
            "0,1,1\n0,b,1\n",
            {},
            "line 2: 'b' is not a row number. If the file refers to rows by ID, pass ids",
        ),
        ("0,1,1\n0,1.5,1\n", {}, "line 2: '1.5' is not a row number"),
        (
            "left,right,same\n\n0,1,maybe\n",
            {},
            "line 3: 'maybe' does not say whether the rows are the same",
        ),
        ("0,1,1\n\n2,3,\n", {}, "line 3: an empty cell does not say whether"),
        ("0,1,2\n", {}, "line 1: '2' does not say"),
        (
            "0,1,1\n2,3,0\n1,3,-1\n",
            {},
            "line 3: the cell contains '-1', but line 2 has '0'. With both 0 and -1",
        ),
        (
            "0,1,1\n2,3\n",
            {},
            r"line 2: found 2 cell\(s\), '2, 3'. Expected 3 \(left, right, same\)",
        ),
        ("0 1 1\n2 3 0\n", {}, r"line 1: found 1 cell\(s\), '0 1 1'. Expected 3 .* by commas"),
        ("0,1,1\n3,3,0\n", {}, "line 2: '3' is paired with itself"),
        ("left,right,same\n", {}, "judged.csv has a header, but no line below it"),
        ("x,y\n0,1\n", {}, r"line 1: found 2 cell\(s\), 'x, y'. Expected 3"),
        ("", {}, "judged.csv is empty"),
        (
            '0,1,1\n2,"3,1\n0,4,0\n',
            {},
            "judged.csv, line 2 cannot be read.*unclosed quotation mark",
        ),
        (
            '0,1,1\n2,"3\n4",1\n',
            {},
            "judged.csv, line 2: a cell spans several lines",
        ),
        ("0,1,1\n", {"n_samples": -1}, "read_pairs: n_samples must be an integer of at least 0"),
        ("0,1,1\n", {"ids": IDS, "n_samples": 4}, "n_samples=4, but ids has 5 values"),
        (
            "0,1,1\n",
            {"ids": ["a", "b", "a"]},
            "ids must be unique, but rows 0 and 2 both have 'a'",
        ),
        ("0,1,1\n", {"ids": ["a", None, "c"]}, "ids is missing in row 1"),
        (
            "0,1,1\n",
            {"ids": [["a", "b"]]},
            r"ids should have shape \(n_samples,\); got shape \(1, 2\)",
        ),
    ],
)
def test_what_cannot_be_read_is_told_with_file_line_and_value(file, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_pairs(file(text), **options)


def test_files_that_are_none(file, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"The file .*none.csv does not exist"):
        read_pairs(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="judged.csv is not a text file"):
        read_pairs(file(b"\0\1\2\3 binary"))
    with pytest.raises(ValueError, match="judged.parquet is damaged or not a Parquet file"):
        read_pairs(file("0,1,1\n", name="judged.parquet"))
    path = tmp_path / "two.parquet"
    pd.DataFrame({"left": [0], "right": [1]}).to_parquet(path)
    with pytest.raises(
        ValueError, match=r"two.parquet has 2 column\(s\), 'left', 'right'. Expected 3"
    ):
        read_pairs(path)


# ---------------------------------------------------------------------- comparisons


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a,b,c,d\n0,1,2,3\n4,0,4,1\n", {"n_samples": 5}),
        ("0;1;2;3\n\n4;0;4;1\n", {}),
        ("near,near,far,far,who\n0,1,2,3,kim\n4,0,4,1,lee\n", {}),
        ("who\td\tc\tb\ta\nkim\t3\t2\t1\t0\nlee\t1\t4\t0\t4\n", {}),
        ("ann,bob,eve,joe\nzoë,ann,zoë,bob\n", {"ids": IDS}),
        ("A,B,C,D\nann,bob,eve,joe\nzoë,ann,zoë,bob\n", {"ids": IDS}),
    ],
)
def test_quadruplets(file, text, options):
    wanted = Quadruplets([[0, 1, 2, 3], [4, 0, 4, 1]], n_samples=5)
    assert read_quadruplets(file("﻿" + text), **options) == wanted


def test_quadruplets_of_parquet(tmp_path):
    path = tmp_path / "compared.parquet"
    frame = pd.DataFrame([["ann", "bob", "eve", "joe"]], columns=list("abcd"))
    frame.to_parquet(path)
    assert read_quadruplets(path, ids=IDS).indices.tolist() == [[0, 1, 2, 3]]
    frame[list("dcba")].to_parquet(path)
    assert read_quadruplets(path, ids=IDS).indices.tolist() == [[0, 1, 2, 3]]


def test_names_of_columns_that_are_ids_too_are_said(file):
    path = file("a,b,c,d\nb,a,d,c\n")
    with pytest.warns(UserWarning, match="judged.csv: line 1 is read as column names"):
        assert read_quadruplets(path, ids=list("abcd")).indices.tolist() == [[1, 0, 3, 2]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0,1,2,3\n0,1,2,9\n", {"n_samples": 5}, "judged.csv, line 2: row 9 does not exist"),
        ("ann,bob,eve,tom\n", {"ids": IDS}, "line 1: no row has the ID 'tom'"),
        (
            "0,1,2,3\n0,1,2\n",
            {},
            r"line 2: found 3 cell\(s\), '0, 1, 2'. Expected 4 \(a, b, c, d\)",
        ),
        ("0,1,2,3\n1,2,4,4\n", {}, "line 2: '4' is paired with itself"),
        ("0,1,2,3\n2,2,4,1\n", {}, "line 2: '2' is paired with itself"),
        ("0,1,2,3\n\n1,2,2,1\n", {}, "line 3: the pair of '1' and '2' is compared with itself"),
        (
            "a,b,c,d\n0,1,2,3\n4,1,2,3\n3,2,0,1\n",
            {},
            "line 4: '3' and '2' are marked as nearer than '0' and '1', but line 2 says",
        ),
    ],
)
def test_comparisons_that_cannot_be_are_told_with_file_line_and_value(file, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_quadruplets(file(text), **options)
