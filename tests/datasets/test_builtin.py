"""The registry of built-in datasets: its facts are those of the data."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets

from nearfar.datasets import BUILT_IN, BuiltIn, Table, builtin, read_table
from nearfar.datasets.builtin import find_sklearn_loader

by_name = pytest.mark.parametrize("name", BUILT_IN)


@by_name
def test_the_facts_are_those_of_the_data(name):
    dataset = BUILT_IN[name]
    table = dataset.load()
    assert dataset.name == name == table.name
    assert table.X.shape == (dataset.n_rows, dataset.n_columns)
    assert len(np.unique(table.y)) == len(table.class_names) == dataset.n_classes


@by_name
def test_the_texts_are_single_lines(name):
    dataset = BUILT_IN[name]
    for text in (dataset.description, dataset.task, dataset.origin, dataset.license):
        assert text and text == " ".join(text.split()) and not text.endswith(".")
    assert len(dataset.description) <= 40  # so that `nearfar datasets` fits into 80 columns


def test_the_order_is_that_of_the_registry():
    assert list(BUILT_IN) == ["clothes", "digits", "wine", "iris", "breast_cancer"]


def test_an_entry_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        BUILT_IN["wine"].n_rows = 1


def test_each_load_returns_a_new_table():
    BUILT_IN["iris"].load().X[:] = 0
    assert BUILT_IN["iris"].load().X.any()


@pytest.mark.parametrize("name", [n for n, one in BUILT_IN.items() if one.sklearn_loader])
def test_the_loader_of_scikit_learn_returns_the_same_rows(name):
    X, y = getattr(datasets, BUILT_IN[name].sklearn_loader)(return_X_y=True)
    table = read_table(name)
    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, y)
    assert find_sklearn_loader(table) == f"load_{name}"


def test_digits_are_images_and_wine_is_not():
    assert BUILT_IN["digits"].has_images and not BUILT_IN["wine"].has_images
    assert BUILT_IN["digits"].load().tensor_shape == (8, 8)
    assert BUILT_IN["wine"].load().tensor_shape is None


def test_other_tables_have_no_loader_in_scikit_learn(tmp_path):
    (tmp_path / "labels.txt").write_text("\n".join("ab" * 89))
    assert find_sklearn_loader(read_table("wine", labels=tmp_path / "labels.txt")) is None
    assert find_sklearn_loader(Table("wine", np.ones((2, 2)))) is None
    # A folder of pictures of that name:
    folder = Table("wine", np.ones((2, 2)), target="class", source="read_table('./wine')")
    assert find_sklearn_loader(folder) is None


def test_one_more_entry_is_read_by_its_name(monkeypatch):
    def load():
        return Table("pair", np.eye(2), np.array([0, 1]), "class", class_names=["a", "b"])

    entry = BuiltIn("pair", "two points", 2, 2, 2, "separate them", "nobody", "none", load)
    monkeypatch.setitem(BUILT_IN, "pair", entry)
    table = read_table("pair")
    assert table.X.tolist() == [[1, 0], [0, 1]] and table.class_names == ["a", "b"]
    assert table.source == "read_table('pair')" and find_sklearn_loader(table) is None
    monkeypatch.setitem(BUILT_IN, "pair", replace(entry, sklearn_loader="load_pair"))
    assert find_sklearn_loader(table) == "load_pair"
    with pytest.raises(ValueError, match=r"Did you mean 'pair'\? Built-in datasets: .*, pair\."):
        read_table("pairr")


def test_the_module_alone_imports_neither_numpy_nor_scikit_learn():
    code = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("builtin", sys.argv[1])
module = sys.modules["builtin"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(len(module.BUILT_IN) > 3, *sorted({"numpy", "sklearn"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", code, str(Path(builtin.__file__))]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True"]


def test_clothes_are_vectors_with_thumbnails_in_at_most_one_megabyte():
    table = read_table("clothes")
    assert table.tensor_shape is None and table.images.shape == (1200, 28, 28)
    assert table.images.dtype == np.uint8 and table.images.min() == 0 and table.images.max() == 255
    assert np.bincount(table.y).tolist() == [120] * 10
    stored = Path(builtin.__file__).parent / "data" / "clothes.npz"
    assert stored.stat().st_size <= 1_000_000


def test_each_thumbnail_of_clothes_belongs_to_its_row():
    # The pixels, which the vectors do not contain, predict the labels of the rows they stand by.
    table = read_table("clothes")
    pixels = table.images.reshape(len(table.y), -1) / 255.0
    centers = np.stack([pixels[:600][table.y[:600] == c].mean(axis=0) for c in range(10)])
    distances = ((pixels[600:, None] - centers) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == table.y[600:]).mean() > 0.6
