import sys
import tracemalloc
from functools import cache

import numpy as np
import pytest
from scipy.spatial import cKDTree
from sklearn import config_context

import nearfar.search.block_search as block_search
import nearfar.search.candidates as candidates
import nearfar.search.exact_search as exact_search
import nearfar.search.faiss_search as faiss_search
from nearfar.search.exact_search import kneighbors, radius_neighbors

TOY = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], dtype=float)


def all_distances(X, queries=None):
    """Compute all distances by differences in float64, with an infinite distance to itself."""
    X = X.astype(np.float64)
    Q = X if queries is None else queries.astype(np.float64)
    distances = np.array([np.linalg.norm(X - q, axis=1) for q in Q])
    if queries is None:
        np.fill_diagonal(distances, np.inf)
    return distances


def brute_kneighbors(X, queries=None, *, n_neighbors):
    distances = all_distances(X, queries)
    indices = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
    return np.take_along_axis(distances, indices, axis=1), indices


def brute_radius_neighbors(X, queries=None, *, radius):
    distances = all_distances(X, queries)
    order = np.argsort(distances, axis=1, kind="stable")
    lists = [row[d[row] <= radius] for row, d in zip(order, distances, strict=True)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists])])
    within = [d[row] for row, d in zip(lists, distances, strict=True)]
    return indptr, np.concatenate(lists), np.concatenate(within)


def random_rows(kind, n=400, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return rng.normal(size=(n, 7))
    if kind == "float32":
        return rng.normal(size=(n, 60)).astype(np.float32)
    if kind == "float32 offset":
        return (rng.normal(size=(n, 3)) + 1e6).astype(np.float32)
    if kind == "offset":
        return rng.normal(size=(n, 40)) + 1e6
    if kind == "integers":
        return rng.integers(0, 3, size=(n, 4)).astype(float)
    if kind == "tenths":  # exact ties that rounding breaks
        return rng.integers(0, 4, size=(n, 5)) * 0.1 + 1000
    if kind == "bits":
        return rng.integers(0, 2, size=(n, 12)).astype(float)
    if kind == "far row":
        return np.vstack([rng.normal(size=(n - 1, 4)), np.full((1, 4), 1e12)])
    if kind == "tight clusters":
        return rng.normal(size=(10, 3)).repeat(n // 10, axis=0) * 1e6 + rng.normal(size=(n, 3))
    if kind == "tight clusters, float32":
        return (random_rows("tight clusters", n, seed) / 1e4).astype(np.float32)
    if kind == "float16":
        return (rng.normal(size=(n, 20)) * 10).astype(np.float16)
    if kind == "far offset":
        return rng.normal(size=(n, 12)) + 1e8
    if kind == "ever nearer":  # Each row is closer to the last rows than the one before.
        return np.linspace(9, 0, n)[:, None] ** 2 * rng.uniform(1, 1.001, size=(n, 6))
    if kind == "tiny":
        return rng.normal(size=(n, 3)) * 1e-161
    if kind == "signed zeros":
        return rng.choice([0.0, -0.0, 1.0], size=(n, 2))
    if kind == "one feature":
        return rng.normal(size=(n, 1))
    assert kind == "Fortran order"
    return np.asfortranarray(rng.normal(size=(n, 33)).round(1))


KINDS = [
    "normal",
    "float32",
    "float32 offset",
    "offset",
    "integers",
    "tenths",
    "bits",
    "far row",
    "tight clusters",
    "tight clusters, float32",
    "float16",
    "far offset",
    "ever nearer",
    "tiny",
    "signed zeros",
    "one feature",
    "Fortran order",
]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.fixture(
    params=[
        "all rows at once",
        "some queries at once",
        "one block of rows",
        "small blocks of rows",
        "faiss",
        "faiss in parts",
    ]
)
def blocks(request, monkeypatch):
    """Select the search: all rows at once, one block, small blocks with a threshold, or faiss."""
    if request.param == "some queries at once":
        monkeypatch.setattr(exact_search, "_MAX_CANDIDATES", 12)
        monkeypatch.setattr(exact_search, "_MAX_CANDIDATES_PER_NEIGHBOR", 1)
        monkeypatch.setattr(exact_search, "_MAX_DISTANCES_PER_BLOCK", 400 * 7)
    elif request.param.endswith("of rows"):
        monkeypatch.setattr(exact_search, "_MAX_ROWS_OF_SMALL_X", 0)
    if request.param.startswith("faiss"):
        pytest.importorskip("faiss")
        monkeypatch.setattr(exact_search, "choose_search", lambda *args, **kwargs: "faiss")
        if request.param == "faiss in parts":
            monkeypatch.setattr(faiss_search, "_MAX_BYTES_PER_BLOCK", 1)
    if request.param == "small blocks of rows":
        monkeypatch.setattr(block_search, "_MAX_ROWS_PER_BLOCK", 24)
        monkeypatch.setattr(block_search, "_MIN_SAMPLE", 16)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("n_neighbors", [1, 5, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_kneighbors_equal_a_stable_sort_of_all_distances(kind, n_neighbors, blocks):
    X = random_rows(kind)
    X.flags.writeable = False
    expected = (part[:, :n_neighbors] for part in all_neighbors(kind))
    assert_same(kneighbors(X, n_neighbors=n_neighbors), expected)


@cache  # The result is the same for all blocks and numbers of neighbors.
def all_neighbors(kind):
    # C order, because NumPy adds the squares in another order for Fortran order.
    return brute_kneighbors(np.ascontiguousarray(random_rows(kind)), n_neighbors=400)


@pytest.mark.parametrize("kind", KINDS)
def test_kneighbors_of_queries_equal_a_stable_sort_of_all_distances(kind, blocks):
    X = np.ascontiguousarray(random_rows(kind))
    queries = np.vstack([np.ascontiguousarray(random_rows(kind, 50, seed=1)), X[:5], X[:5]])
    expected = brute_kneighbors(X, queries, n_neighbors=9)
    assert_same(kneighbors(X, queries, n_neighbors=9), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_radius_neighbors_equal_a_stable_sort_of_all_distances(kind):
    X = np.ascontiguousarray(random_rows(kind))
    distances = all_distances(X)
    # A radius that equals one of the distances tests that it is inclusive.
    radius = np.partition(distances[np.isfinite(distances)], 4000)[4000]
    assert_same(radius_neighbors(X, radius=radius), brute_radius_neighbors(X, radius=radius))


def test_kneighbors_agree_with_a_kd_tree():
    X = np.random.default_rng(0).normal(size=(1000, 4))
    queries = np.random.default_rng(1).normal(size=(200, 4))
    distances, indices = kneighbors(X, queries, n_neighbors=8)
    tree_distances, tree_indices = cKDTree(X).query(queries, k=8)
    np.testing.assert_array_equal(indices, tree_indices)
    np.testing.assert_allclose(distances, tree_distances, rtol=1e-13)


def test_radius_neighbors_agree_with_a_kd_tree():
    X = np.random.default_rng(0).normal(size=(500, 3))
    indptr, indices, _ = radius_neighbors(X, X[:100], radius=0.7)
    for i, expected in enumerate(cKDTree(X).query_ball_point(X[:100], 0.7)):
        assert sorted(indices[indptr[i] : indptr[i + 1]]) == sorted(expected)


def test_neighbors_on_the_toy_set():
    distances, indices = kneighbors(TOY, n_neighbors=2)
    assert indices.tolist() == [[1, 2], [0, 3], [0, 1], [1, 4], [3, 1], [3, 4]]
    np.testing.assert_allclose(distances[2], [2, np.sqrt(5)], rtol=1e-15)


@pytest.mark.parametrize("kind", ["normal", "integers", "float32"])
def test_all_other_rows_may_be_asked_for(kind):
    X = random_rows(kind, n=80)
    assert_same(kneighbors(X, n_neighbors=79), brute_kneighbors(X, n_neighbors=79))
    queries = X[:3]
    assert_same(
        kneighbors(X, queries, n_neighbors=80), brute_kneighbors(X, queries, n_neighbors=80)
    )


def test_one_query():
    X = random_rows("bits")
    assert_same(kneighbors(X, X[7:8], n_neighbors=20), brute_kneighbors(X, X[7:8], n_neighbors=20))


def test_a_query_far_from_all_rows():
    X = random_rows("normal")
    queries = np.full((1, 7), 1e9)
    assert_same(kneighbors(X, queries, n_neighbors=3), brute_kneighbors(X, queries, n_neighbors=3))


def test_float32_rows_and_float64_queries():
    X, queries = random_rows("float32"), random_rows("float32", 20, seed=1).astype(np.float64) / 3
    assert_same(kneighbors(X, queries, n_neighbors=3), brute_kneighbors(X, queries, n_neighbors=3))


def test_a_row_is_left_out_by_its_index_and_its_duplicates_are_not():
    X = np.array([[1.0, 2.0], [5.0, 5.0], [1.0, 2.0]]) + 0.1
    distances, indices = kneighbors(X, n_neighbors=1)
    assert indices[[0, 2], 0].tolist() == [2, 0]
    assert distances[[0, 2], 0].tolist() == [0.0, 0.0]
    # As queries, rows are their own nearest neighbors, or the duplicate with the smaller index is.
    assert kneighbors(X, X, n_neighbors=1)[1][:, 0].tolist() == [0, 1, 0]


def test_distances_far_from_the_origin_keep_their_digits():
    # On this grid, adding a power of two is exact.
    grid = np.round(random_rows("normal") * 2**10) / 2**10
    near, far = kneighbors(grid, n_neighbors=5), kneighbors(grid + 2.0**20, n_neighbors=5)
    assert_same(near, far)


@pytest.mark.slow
def test_a_thousand_copies_of_one_row():
    X = random_rows("normal", 3000)
    X[1000:2000] = X[0]
    distances, indices = kneighbors(X, n_neighbors=4)
    assert (distances[1000:2000] == 0).all()
    assert indices[0].tolist() == [1000, 1001, 1002, 1003]
    assert indices[1001].tolist() == [0, 1000, 1002, 1003]
    assert (indices[1003:2000] == [0, 1000, 1001, 1002]).all()
    assert_same((distances, indices), brute_kneighbors(X, n_neighbors=4))


def test_identical_rows_and_queries_are_searched_again_only_once(monkeypatch):
    X = np.repeat(random_rows("integers", 20), 300, axis=0)
    measured = []

    def counting(X, Q, columns, rows, original=exact_search.compute_pair_distances):
        measured.append(len(rows))
        return original(X, Q, columns, rows)

    monkeypatch.setattr(exact_search, "compute_pair_distances", counting)
    kneighbors(X, n_neighbors=5, search="blocks")
    # For one query of each distinct row, the first 6 identical rows.
    assert sum(measured) == 6 * len(np.unique(X, axis=0))


def test_of_rows_that_are_all_identical_few_pairs_are_measured(monkeypatch):
    measured = []

    def counting(X, Q, columns, rows, original=exact_search.compute_pair_distances):
        measured.append(len(rows))
        return original(X, Q, columns, rows)

    monkeypatch.setattr(exact_search, "compute_pair_distances", counting)
    indices = kneighbors(np.ones((3000, 30)), n_neighbors=5)[1]
    assert (indices[6:] == np.arange(5)).all()
    assert sum(measured) == 6


def test_ordinary_data_are_searched_once(monkeypatch):
    def fail(*args):
        raise AssertionError("searched again")

    monkeypatch.setattr(exact_search, "_find_nearest_within", fail)
    for kind in ["normal", "offset", "far row", "float32"]:
        X = random_rows(kind)
        queries = X[:-1]  # The far row itself needs the second search.
        kneighbors(X, queries, n_neighbors=5)


def test_without_the_second_search_ties_would_come_out_wrong(monkeypatch):
    monkeypatch.setattr(exact_search, "_MAX_ROWS_OF_SMALL_X", 0)
    X = random_rows("bits")
    monkeypatch.setattr(
        exact_search, "compute_reach", lambda norms, *args: np.full(len(norms), -1.0)
    )
    found = kneighbors(X, n_neighbors=5)[1]
    assert (found != brute_kneighbors(X, n_neighbors=5)[1]).any()


def test_at_once_without_room_for_rounding_neighbours_would_be_missed(monkeypatch):
    X = random_rows("tight clusters")
    assert_same(kneighbors(X, n_neighbors=5), brute_kneighbors(X, n_neighbors=5))
    monkeypatch.setattr(
        exact_search, "compute_reach_of_nearest", lambda norms, squared, *args: squared
    )
    found = kneighbors(X, n_neighbors=5)[1]
    assert (found != brute_kneighbors(X, n_neighbors=5)[1]).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_reach_covers_the_rounding_of_the_expanded_form(dtype):
    rng = np.random.default_rng(0)
    for p in [1, 3, 40, 400]:
        for scale in [1e-3, 1.0, 1e3]:
            centers = rng.normal(size=(6, p)).repeat(20, axis=0)
            X = (centers + scale * rng.normal(size=(120, p))).astype(dtype)
            norms = (X * X).sum(axis=1)
            expanded = norms[:, None] - 2 * (X @ X.T) + norms
            exact = np.linalg.norm((X[:, None] - X[None]).astype(np.float64), axis=2)
            for i in range(len(X)):
                own = np.full(len(X), norms[i], np.float64)
                reach = exact_search.compute_reach(own, exact[i], p, np.dtype(dtype))
                assert (expanded[i] <= reach).all()


@pytest.mark.parametrize("kind", ["normal", "integers", "tight clusters", "float32"])
def test_working_memory_does_not_change_the_result(kind):
    X = random_rows(kind, n=3000)
    nearest = kneighbors(X, n_neighbors=6)
    within = radius_neighbors(X, radius=1.0)
    with config_context(working_memory=1):
        assert_same(kneighbors(X, n_neighbors=6), nearest)
        assert_same(radius_neighbors(X, radius=1.0), within)


@pytest.mark.parametrize("kind", ["normal", "bits", "float16", "tight clusters"])
def test_threads_do_not_change_the_result(kind, monkeypatch):
    monkeypatch.setattr(exact_search, "_MIN_THREAD_FLOPS", 0)
    monkeypatch.setattr(exact_search, "_MAX_QUERIES_PER_BLOCK", 37)
    X = random_rows(kind, n=600)
    one = kneighbors(X, n_neighbors=7, n_threads=1)
    assert_same(kneighbors(X, n_neighbors=7, n_threads=1), one)
    assert_same(kneighbors(X, n_neighbors=7, n_threads=2), one)
    assert_same(kneighbors(X, n_neighbors=7, n_threads=3), one)


def test_without_faiss_the_error_names_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"faiss is not installed; run: pip install"):
        kneighbors(random_rows("normal"), n_neighbors=3, search="faiss")


def test_more_ties_than_candidates_come_by_index(blocks):
    # 300 rows at the same distance from the query, in different directions.
    X = np.vstack([np.eye(300), 2 * np.eye(300)])[np.random.default_rng(0).permutation(600)]
    distances, indices = kneighbors(X, np.zeros((3, 300)), n_neighbors=20)
    assert (distances == 1).all()
    assert (indices == np.flatnonzero(X.sum(axis=1) == 1)[:20]).all()


def test_a_query_is_searched_again_only_if_rounding_leaves_a_doubt(monkeypatch):
    again = []

    def counting(X, Q, *args, original=exact_search._find_nearest_within):
        again.append(len(Q))
        return original(X, Q, *args)

    monkeypatch.setattr(exact_search, "_find_nearest_within", counting)
    monkeypatch.setattr(exact_search, "_MAX_ROWS_OF_SMALL_X", 0)
    rng = np.random.default_rng(0)
    kneighbors(rng.normal(size=(3000, 200)), n_neighbors=10)
    # Clusters that float32 cannot resolve need only float64 products.
    X = random_rows("tight clusters")
    assert_same(kneighbors(X, n_neighbors=5), brute_kneighbors(X, n_neighbors=5))
    assert again == []
    kneighbors(random_rows("bits"), n_neighbors=5)
    assert again != []


def test_of_few_rows_what_may_be_nearest_is_measured_and_nothing_searched_again(monkeypatch):
    measured = []

    def counting(X, Q, columns, rows, original=exact_search.compute_pair_distances):
        measured.append(len(rows))
        return original(X, Q, columns, rows)

    monkeypatch.setattr(exact_search, "compute_pair_distances", counting)
    monkeypatch.setattr(exact_search, "_iterate_proposal_methods", lambda *args: iter([]))
    for kind in ("normal", "float32", "offset", "bits", "tenths"):
        X = random_rows(kind)
        assert_same(kneighbors(X, n_neighbors=5), brute_kneighbors(X, n_neighbors=5))
    measured.clear()
    kneighbors(random_rows("normal", 3000), n_neighbors=5)
    assert 6 * 3000 <= sum(measured) < 9 * 3000


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_memory_mapped_rows_are_not_copied(tmp_path, dtype):
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", dtype, shape=(20_000, 120))
    X[:] = np.random.default_rng(0).normal(size=X.shape) + 3
    queries = np.array(X[:40])
    with config_context(working_memory=1):
        tracemalloc.start()
        try:
            _, indices = kneighbors(X, queries, n_neighbors=5)
            radius_neighbors(X, queries, radius=9.0)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert indices[:, 0].tolist() == list(range(40))
    # A float32 copy alone would take 9.6 MB.
    assert peak < 5 * 2**20


@pytest.mark.parametrize("kind", ["normal", "integers", "signed zeros", "Fortran order", "float16"])
def test_identical_rows_follow_each_other(kind):
    X = np.asfortranarray(random_rows(kind, 60)[np.random.default_rng(0).integers(0, 60, 200)])
    order, starts = candidates.find_identical_rows(X)
    sets = np.split(order, np.flatnonzero(starts)[1:])
    expected = {}
    for row, values in enumerate(X):
        expected.setdefault(values.tobytes(), []).append(row)
    assert sorted(rows.tolist() for rows in sets) == sorted(expected.values())


def test_rows_of_equal_hash_are_compared(monkeypatch):
    class NoWeights:
        def integers(self, *args, size, dtype):
            return np.zeros(size, dtype)

    monkeypatch.setattr(candidates.np.random, "default_rng", lambda seed: NoWeights())
    X = np.array([[1.0], [1.0], [2.0], [1.0]])
    order, starts = candidates.find_identical_rows(X)
    assert (order.tolist(), starts.tolist()) == ([0, 1, 2, 3], [True, False, True, True])


@pytest.mark.parametrize("kind", ["normal", "duplicates"])
def test_memory_stays_within_blocks(kind):
    n = 20_000
    X = np.random.default_rng(0).normal(size=(n, 30))
    if kind == "duplicates":
        X = X[:, :4].round(1)  # Ties and duplicates cause a second search.
    with config_context(working_memory=32):
        tracemalloc.start()
        try:
            kneighbors(X, n_neighbors=5)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # 20,000 x 20,000 booleans alone would take 400 MB.
    assert peak < 60 * 2**20


def test_memory_of_radius_neighbors_stays_within_blocks():
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    with config_context(working_memory=32):
        tracemalloc.start()
        try:
            radius_neighbors(X, X[:4000], radius=0.05)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 50 * 2**20


@pytest.mark.parametrize("n_neighbors", [0, -1, 6, 2.0, True, None, "2"])
def test_n_neighbors_out_of_range(n_neighbors):
    with pytest.raises(ValueError, match=r"n_neighbors must be an integer from 1 to 5 .* got "):
        kneighbors(TOY, n_neighbors=n_neighbors)


def test_n_neighbors_of_queries_may_be_all_rows_and_no_more():
    assert kneighbors(TOY, TOY, n_neighbors=6)[1].shape == (6, 6)
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 6 .* got 7"):
        kneighbors(TOY, TOY, n_neighbors=7)


def test_one_row_has_no_neighbors():
    with pytest.raises(ValueError, match=r"n_neighbors=1 needs at least 2 rows.* X has 1 row"):
        kneighbors(TOY[:1], n_neighbors=1)
    indptr, indices, distances = radius_neighbors(TOY[:1], radius=1)
    assert (indptr.tolist(), indices.size, distances.size) == ([0, 0], 0, 0)


@pytest.mark.parametrize("radius", [-0.1, np.nan, None, "1", True])
def test_radius_out_of_range(radius):
    with pytest.raises(ValueError, match="radius must be a nonnegative number; got"):
        radius_neighbors(TOY, radius=radius)


def test_radius_zero_finds_duplicates_only():
    X = np.array([[0.1, 0.7], [0.3, 0.2], [0.1, 0.7]]) + 1e6
    indptr, indices, distances = radius_neighbors(X, radius=0)
    assert (indptr.tolist(), indices.tolist()) == ([0, 1, 1, 2], [2, 0])
    assert distances.tolist() == [0, 0]


@pytest.mark.parametrize("radius", [1e3, 1e200, np.inf])
def test_a_large_radius_finds_all_other_rows(radius):
    expected = brute_kneighbors(TOY, n_neighbors=5)
    indptr, indices, distances = radius_neighbors(TOY, radius=radius)
    assert indptr.tolist() == [0, 5, 10, 15, 20, 25, 30]
    assert_same((distances.reshape(6, 5), indices.reshape(6, 5)), expected)


@pytest.mark.parametrize("X", [TOY * 1e160, TOY * 5e307])
def test_squared_distances_that_overflow_raise(X):
    with pytest.raises(ValueError, match="Squared distances overflow"):
        kneighbors(X, n_neighbors=2)


@pytest.mark.parametrize("X", [TOY * 2.0**500, (TOY * 1e20).astype(np.float32)])
def test_large_values_that_do_not_overflow_are_fine(X):
    # The squares of the second do not fit into float32, which the products use.
    assert_same(kneighbors(X, n_neighbors=2), brute_kneighbors(X, n_neighbors=2))
