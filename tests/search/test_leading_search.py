"""Neighbors in leading coordinates, compared with one search per number of coordinates."""

import numpy as np
import pytest

from nearfar.search import block_search
from nearfar.search.block_search import bound_kth_smallest
from nearfar.search.exact_search import kneighbors
from nearfar.search.leading_search import find_leading_neighbors


def gaussian(random):
    return random.normal(size=(300, 9)) * np.geomspace(3, 0.1, 9)


def integers(random):
    return random.integers(0, 3, size=(300, 9)).astype(float)  # ties and identical rows


def far_away(random):
    return 1e6 + random.normal(size=(300, 9)) * np.geomspace(1e-3, 1e3, 9)


def outlier(random):
    X = random.normal(size=(300, 9))
    X[7] = 1e5  # Single precision can hardly distinguish the others.
    return X


def constant(random):
    return np.zeros((40, 9))


@pytest.mark.parametrize("make", [gaussian, integers, far_away, outlier, constant])
@pytest.mark.parametrize("parts", [16, 512])
def test_as_a_search_for_each_number(make, parts, monkeypatch):
    monkeypatch.setattr(block_search, "_MIN_CHUNKS", parts)
    X, numbers = make(np.random.default_rng(0)), [1, 2, 3, 5, 8]
    for n_threads in (1, 2):
        for asked in (np.arange(len(X)), np.array([5, 1, 39])):
            found = find_leading_neighbors(X, numbers, asked, n_neighbors=4, n_threads=n_threads)
            for q, near in zip(numbers, found, strict=True):
                wanted = kneighbors(np.ascontiguousarray(X[:, :q]), n_neighbors=4)[1]
                np.testing.assert_array_equal(near, wanted[asked])


@pytest.mark.parametrize("n", [1, 100, 129, 1000, 3000])
def test_the_bound_holds_and_is_close(n):
    squares = np.random.default_rng(0).random((50, n)).astype(np.float32)
    ordered = np.sort(squares, axis=1)
    for k in {1, min(5, n), min(40, n), n}:
        bound = bound_kth_smallest(squares, k)
        assert (bound >= ordered[:, k - 1]).all()
        assert (bound <= ordered[:, min(n, 2 * k + 8) - 1]).all()


def test_too_many_neighbors_are_refused():
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 2"):
        find_leading_neighbors(np.eye(3), [1], np.arange(3), n_neighbors=3)
