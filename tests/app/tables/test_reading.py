"""The reader of all commands: rows or sets, from a file that is opened once."""

from pathlib import Path

import numpy as np
import pytest

from nearfar.app.cli import main
from nearfar.app.tables.reading import noun_of_file, read_data
from nearfar.datasets import make_sets
from nearfar.datasets.tables import DataFile


@pytest.fixture
def opened(monkeypatch):
    """Names of the files opened by NumPy."""
    names = []
    load = np.load

    def counted(file, *args, **kwargs):
        names.append(Path(getattr(file, "name", file)).name)
        return load(file, *args, **kwargs)

    monkeypatch.setattr(np, "load", counted)
    return names


@pytest.fixture
def sets_file(tmp_path):
    path = tmp_path / "sets.npz"
    make_sets(random_state=0).save(path)
    return path


@pytest.fixture
def rows_file(tmp_path):
    path = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    np.savez(path, X=rng.normal(size=(40, 3)), y=np.repeat(["a", "b"], 20))
    return path


def test_reader_says_what_it_read(sets_file, rows_file):
    assert read_data(sets_file).noun == "set"
    assert read_data(rows_file).noun == "row"
    assert read_data("wine").noun == "row"


def test_asking_and_reading_open_the_file_once(sets_file, rows_file, opened):
    for path, noun in ((sets_file, "set"), (rows_file, "row")):
        file = DataFile(path)
        assert noun_of_file(file) == noun
        assert read_data(file).noun == noun
    assert opened == ["sets.npz", "rows.npz"]


@pytest.mark.parametrize("name", ["sets", "rows"])
def test_compare_opens_an_npz_once(name, sets_file, rows_file, opened, tmp_path, capsys):
    path = {"sets": sets_file, "rows": rows_file}[name]
    method = {"sets": "bhattacharyya", "rows": "lda"}[name]
    out = str(tmp_path / "page.html")
    words = ["compare", str(path), "--repeats", "1", "--tuning", "k", "--in-process"]
    assert main([*words, "--methods", method, "--out", out]) == 0
    assert opened == [path.name]
