"""Nearest rows under full metrics: float32 selects candidates only, float64 decides."""

import numpy as np
import pytest

from nearfar.summaries import local_rows
from nearfar.summaries.local_rows import LocalMetrics, LocalRows


def rows_of(kind, random):
    X = random.normal(size=(400, 4))
    if kind == "integers":
        X = np.round(2 * X)  # ties and identical rows
    if kind == "outlier":
        X[3] = 1e7  # float32 hardly distinguishes the other rows
    return X


@pytest.mark.parametrize("kind", ["gaussian", "integers", "outlier"])
@pytest.mark.parametrize("size", [1.0, 1e-45, 1e-30, 1e45])
def test_rows_are_those_of_differences(kind, size):
    random = np.random.default_rng(0)
    X = rows_of(kind, random)
    rows = LocalRows(X, np.zeros(400, dtype=np.intp), 1, np.ones(4))
    roots = random.normal(size=(30, 4, 4))
    full = size * (roots @ roots.transpose(0, 2, 1) + 1e-3 * np.eye(4))
    queries = rows.make_queries(X[:30], np.arange(30))
    distances, found = rows.find_nearest(queries, LocalMetrics(full=full), 6)
    for i, metric in enumerate(full):
        apart = np.delete(X, i, axis=0) - X[i]
        squares = np.einsum("ij,jk,ik->i", apart, metric, apart)
        others = np.delete(np.arange(400), i)
        order = np.lexsort((others, np.round(squares / size, 9)))[:6]
        np.testing.assert_array_equal(found[i], others[order])
        np.testing.assert_allclose(distances[i] ** 2, squares[order], rtol=1e-9)


def test_single_precision_serves_where_it_can(monkeypatch):
    random = np.random.default_rng(0)
    asked = []
    original = LocalRows.compute_squared_distances

    def squared_distances(self, queries, metrics, dtype=np.float64):
        asked.append(np.dtype(dtype).name)
        return original(self, queries, metrics, dtype)

    monkeypatch.setattr(LocalRows, "compute_squared_distances", squared_distances)
    metrics = LocalMetrics(full=np.tile(np.eye(4), (10, 1, 1)))
    for kind in ("gaussian", "outlier"):
        X = rows_of(kind, random)
        rows = LocalRows(X, np.zeros(400, dtype=np.intp), 1, np.ones(4))
        rows.find_nearest(rows.make_queries(X[:10]), metrics, 6)
    assert asked == ["float32", "float32", "float64"]
    assert local_rows._MAX_CANDIDATES * 6 < 400
