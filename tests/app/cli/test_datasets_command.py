"""``nearfar datasets``: the list, one dataset, and JSON."""

import json
from dataclasses import replace

import pytest

from nearfar.app.cli import main
from nearfar.datasets import BUILT_IN


@pytest.mark.parametrize("columns", [80, 100])
def test_the_list_has_one_aligned_line_per_dataset(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["datasets"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "rows", "columns", "classes", "what", "it", "is"]
    start = head.index("what it is")
    for line, one in zip(lines, BUILT_IN.values(), strict=False):
        assert len(line) <= columns
        assert line[:start].split() == [
            one.name,
            f"{one.n_rows:,}",
            str(one.n_columns),
            str(one.n_classes),
        ]
        assert line[start:] == one.description  # not cut
    assert lines[len(BUILT_IN)] == ""
    assert [line.partition("nearfar ")[2] for line in lines[-2:]] == [
        "compare wine",
        "datasets wine",
    ]


@pytest.mark.parametrize("name", BUILT_IN)
def test_one_dataset_has_origin_and_license(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["datasets", name]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    one = BUILT_IN[name]
    for text in (one.description, one.task, one.origin, one.license, f"nearfar compare {name}"):
        assert text in words
    assert ("one per row" in words) == one.has_images


def test_json_has_the_same_facts_without_the_functions(capsys):
    assert main(["datasets", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == list(BUILT_IN)
    for one in found:
        assert replace(BUILT_IN[one["name"]], **one) == BUILT_IN[one["name"]]
    assert main(["datasets", "wine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found[list(BUILT_IN).index("wine")]
    assert "load" not in found[0]


def test_an_unknown_dataset_is_an_error_with_a_suggestion(capsys):
    assert main(["datasets", "wien"]) == 2
    err = capsys.readouterr().err
    assert "There is no built-in dataset 'wien'. Did you mean 'wine'?" in err
    assert "Built-in datasets: clothes, digits, wine" in err
