"""Class statistics of rows in many blocks and windows, compared with two passes."""

import numpy as np
import pytest

from nearfar import ClassStatistics
from nearfar.summaries import class_additions
from nearfar.summaries.row_moments import Products, balance_block_size


def scatters(X, y, w):
    """Compute the mean, then the deviations, of each class in long double."""
    found = []
    for label in np.unique(y):
        rows, weights = X[y == label].astype(np.longdouble), w[y == label, None]
        deviations = rows - (weights * rows).sum(axis=0) / weights.sum()
        found.append((weights * deviations).T @ deviations)
    return found


def laid_out(X, layout):
    if layout == "by columns":
        return np.asfortranarray(X)
    if layout == "every second":
        return np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2]
    return X


@pytest.fixture
def small_blocks(monkeypatch):
    """Use blocks of 7 rows, and windows of two blocks per class."""
    monkeypatch.setattr(Products, "choose_block_rows", lambda self, X: 7)
    monkeypatch.setattr(class_additions, "_WINDOW_BLOCKS", 2)
    monkeypatch.setattr(class_additions, "_MAX_TASK_ROWS", 20)


@pytest.mark.parametrize("layout", ["as it is", "by columns", "every second"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
@pytest.mark.parametrize("pooled", [False, True], ids=["by class", "pooled"])
@pytest.mark.parametrize("n", [1, 13, 14, 15, 200])
def test_blocks_and_windows_give_what_two_passes_give(
    small_blocks, n, pooled, weighed, dtype, layout
):
    rng = np.random.default_rng(n)
    X = laid_out((rng.normal(size=(n, 3)) + 20.0).astype(dtype), layout)
    y = rng.choice([0, 1, 5], p=[0.8, 0.15, 0.05], size=n)  # some windows have no rows of a class
    w = rng.uniform(0.5, 2.0, n) if weighed else np.ones(n)
    statistics = ClassStatistics(pooled=pooled, storage="dense", exact=True)
    statistics.partial_fit(X, y, w if weighed else None)
    expected = scatters(X, y, w)
    np.testing.assert_allclose(statistics.within_scatter(), sum(expected), rtol=1e-12, atol=1e-11)
    for label in [] if pooled else np.unique(y):
        scatter = expected[int(np.searchsorted(np.unique(y), label))]
        np.testing.assert_allclose(statistics.scatter(label), scatter, rtol=1e-12, atol=1e-11)
    for label, mean in zip(statistics.classes, statistics.means, strict=True):
        mine = y == label
        mean_of_rows = np.average(X[mine].astype(np.float64), axis=0, weights=w[mine])
        np.testing.assert_allclose(mean, mean_of_rows, rtol=1e-13)


@pytest.mark.parametrize("n_rows", [1, 9, 10, 11, 19, 20, 21, 95, 100])
def test_blocks_are_of_one_size_and_none_is_short(n_rows):
    size = balance_block_size(n_rows, 10)
    n_blocks = -(-n_rows // size)
    assert min(n_rows, 10) <= size < 20
    assert n_rows - (n_blocks - 1) * size > size - n_blocks  # the last one too


@pytest.mark.parametrize("pooled", [False, True], ids=["by class", "pooled"])
def test_a_batch_of_less_than_two_blocks_is_one_task(small_blocks, pooled, monkeypatch):
    tasks = []

    def counted(function, lots, n_threads):
        lots = list(lots)
        tasks.append(len(lots))
        return map(function, lots)

    monkeypatch.setattr(class_additions, "map_in_order", counted)
    y = np.arange(13) % 2
    ClassStatistics(pooled=pooled).partial_fit(np.random.default_rng(0).normal(size=(13, 2)), y)
    assert tasks == [1]
