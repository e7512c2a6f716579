"""float16 and memory-mapped rows are searched without a copy."""

import tracemalloc

import numpy as np
import pytest
from sklearn import config_context

from nearfar import LDA, KNNClassifier, KNNRegressor
from nearfar.persistence import load, save


def mapped(path, dtype, n=20_000, p=100):
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(path, "w+", dtype, shape=(n, p))
    X[:] = rng.normal(size=X.shape) + 2
    return X, rng.integers(0, 3, n)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("knn", [KNNClassifier(), KNNRegressor()])
def test_rows_are_neither_copied_nor_widened(knn, dtype, tmp_path):
    X, y = mapped(tmp_path / "X.npy", dtype)
    queries = np.array(X[:30])
    with config_context(working_memory=1):
        tracemalloc.start()
        try:
            knn.fit(X, y).predict(queries)
            distances, indices = knn.kneighbors(queries, 1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (indices[:, 0] == np.arange(30)).all() and (distances == 0).all()
    # The rows take 4 MB in float16 and 8 MB in float32; labels and codes about 200 kB each.
    assert peak < 3 * 2**20


def test_float16_rows_have_the_neighbours_of_their_values():
    rng = np.random.default_rng(0)
    X, queries = (rng.normal(size=(n, 6)).astype(np.float16) for n in (300, 40))
    y = rng.integers(0, 3, 300)
    half, full = KNNClassifier().fit(X, y), KNNClassifier().fit(X.astype(np.float64), y)
    for a, b in zip(half.kneighbors(queries), full.kneighbors(queries.astype(float)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert half.leave_one_out_error() == full.leave_one_out_error()
    np.testing.assert_array_equal(half.predict(X), full.predict(X))
    relevances = [knn.explain(queries).relevance for knn in (half, full)]
    np.testing.assert_allclose(*relevances, rtol=1e-12)


def test_a_model_file_keeps_float16(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 4)).astype(np.float16), rng.integers(0, 2, 50)
    knn = KNNClassifier().fit(X, y)
    save(knn, tmp_path / "knn.nearfar")
    again = load(tmp_path / "knn.nearfar")
    assert again._points.dtype == np.float16
    np.testing.assert_array_equal(again.predict(X), knn.predict(X))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_float16_rows_that_are_not_finite_are_named(value):
    X = np.full((300, 4), 60_000, np.float16)  # The sum of these values overflows float16.
    y = np.arange(300) % 2
    knn = KNNClassifier().fit(X, y)
    X[7, 2] = value
    found = "NaN" if np.isnan(value) else "infinity"
    with pytest.raises(ValueError, match=f"Input X contains {found} in sample 7"):
        KNNClassifier().fit(X, y)
    with pytest.raises(ValueError, match=f"Input X contains {found} in sample 7"):
        knn.predict(X)


def test_behind_a_learner_float16_becomes_what_it_needs():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)).astype(np.float16), rng.integers(0, 2, 60)
    half = KNNClassifier(LDA()).fit(X, y)
    full = KNNClassifier(LDA()).fit(X.astype(np.float64), y)
    np.testing.assert_array_equal(half.predict(X), full.predict(X.astype(np.float64)))
