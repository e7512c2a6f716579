import copy
import pickle
import sys
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context

from nearfar.summaries.neighbor_graph import NeighborGraph

TOY = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]])
# Rows 0, 1, 2 are identical, and so are rows 3 and 4.
DUPLICATES = np.array([[0.1, 0.7]] * 3 + [[2.3, 0.4]] * 2 + [[3.1, 0.9]])


def all_distances(X):
    return np.linalg.norm(X[:, None].astype(float) - X[None], axis=2)


def edge_lengths(graph, mode):
    """Return the undirected graph as a dense array, infinite where rows are not connected."""
    n = graph.n_samples
    lengths = np.full((n, n), np.inf)
    for i in range(n):
        for edge in range(graph.indptr[i], graph.indptr[i + 1]):
            lengths[i, graph.indices[edge]] = graph.distances[edge]
    join = np.minimum if mode == "union" else np.maximum
    return join(lengths, lengths.T)


def floyd_warshall(lengths):
    paths = lengths.copy()
    np.fill_diagonal(paths, 0)
    for via in range(len(paths)):
        paths = np.minimum(paths, paths[:, via, None] + paths[None, via])
    return paths


def stored(matrix):
    """Return stored entries, including zeros, as a dense array that is infinite elsewhere."""
    assert matrix.format == "csr" and matrix.has_canonical_format
    dense = np.full(matrix.shape, np.inf)
    entries = matrix.tocoo()
    dense[entries.row, entries.col] = entries.data
    return dense


def test_the_neighbors_are_the_nearest_rows():
    X = np.random.default_rng(0).normal(size=(60, 3))
    graph = NeighborGraph.from_points(X, n_neighbors=4)
    distances = all_distances(X)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(graph.neighbors, np.argsort(distances, axis=1)[:, :4])
    np.testing.assert_array_equal(graph.indptr, 4 * np.arange(61))
    np.testing.assert_allclose(graph.distances.reshape(60, 4), np.sort(distances)[:, :4])
    assert graph.n_samples == 60
    assert graph.is_exact is True


def test_the_radius_is_inclusive_and_lists_may_differ_in_length():
    graph = NeighborGraph.from_points(TOY, radius=2)
    assert np.diff(graph.indptr).tolist() == [2, 3, 1, 2, 2, 0]
    expected = edge_lengths(graph, "union")
    distances = all_distances(TOY)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_allclose(expected, np.where(distances <= 2, distances, np.inf))
    with pytest.raises(ValueError, match="numbers of neighbors, from 0 to 3,"):
        graph.neighbors  # noqa: B018


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_distances_are_float64_whatever_the_data(dtype):
    graph = NeighborGraph.from_points(TOY.astype(dtype), n_neighbors=2)
    assert graph.distances.dtype == np.float64
    assert graph.distances[5] == np.sqrt(5)


def test_geodesics_on_the_toy_set():
    paths = NeighborGraph.from_points(TOY, n_neighbors=2).geodesics()
    assert paths[0, 3] == pytest.approx(2.41421356, abs=1e-8)
    assert paths[0, 5] == pytest.approx(4.65028154, abs=1e-8)
    assert paths[2, 5] == pytest.approx(5.88634952, abs=1e-8)
    assert paths[1, 4] == pytest.approx(2, abs=1e-8)


@pytest.mark.parametrize("mode", ["union", "mutual"])
@pytest.mark.parametrize("n_neighbors", [1, 3, 29])
def test_geodesics_agree_with_floyd_warshall(mode, n_neighbors):
    X = np.random.default_rng(1).normal(size=(30, 2))
    X[20:25] = X[3]
    graph = NeighborGraph.from_points(X, n_neighbors=n_neighbors)
    paths = graph.geodesics(mode=mode)
    np.testing.assert_allclose(paths, floyd_warshall(edge_lengths(graph, mode)), rtol=1e-13)
    distances = all_distances(X)
    assert (paths >= distances * (1 - 1e-13)).all()
    if n_neighbors == 29:
        np.testing.assert_allclose(paths, distances, rtol=1e-13)


def test_geodesics_of_some_sources_are_rows_of_all_geodesics():
    graph = NeighborGraph.from_points(np.random.default_rng(0).normal(size=(40, 2)), n_neighbors=3)
    np.testing.assert_array_equal(graph.geodesics([7, 0, 7]), graph.geodesics()[[7, 0, 7]])
    assert graph.geodesics(np.array([], int)).shape == (0, 40)


def test_there_is_no_path_between_components():
    X = np.concatenate([TOY, TOY + 100])
    graph = NeighborGraph.from_points(X, n_neighbors=2)
    n_components, labels = graph.connected_components()
    assert n_components == 2
    assert labels.tolist() == [0] * 6 + [1] * 6
    paths = graph.geodesics()
    np.testing.assert_array_equal(np.isinf(paths), labels[:, None] != labels)


def test_mutual_neighbors_may_leave_a_row_alone():
    graph = NeighborGraph.from_points([[0.0], [1.0], [3.0]], n_neighbors=1)
    assert graph.connected_components()[0] == 1
    n_components, labels = graph.connected_components(mode="mutual")
    assert (n_components, labels.tolist()) == (2, [0, 0, 1])
    assert graph.geodesics([2], mode="mutual").tolist() == [[np.inf, np.inf, 0]]


@pytest.mark.parametrize("mode", ["union", "mutual"])
@pytest.mark.parametrize("X", [TOY, DUPLICATES, TOY.repeat(3, axis=0)])
def test_symmetrized_joins_either_or_both(X, mode):
    graph = NeighborGraph.from_points(X, n_neighbors=2)
    matrix = graph.symmetrized(mode)
    assert isinstance(matrix, sparse.csr_array)
    np.testing.assert_array_equal(stored(matrix), edge_lengths(graph, mode))


def test_edges_between_identical_rows_are_kept():
    graph = NeighborGraph.from_points(DUPLICATES, n_neighbors=2)
    directed = stored(graph.to_sparse())
    assert (directed[[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]] == 0).all()
    assert np.isfinite(directed).sum() == 12
    for mode in ["union", "mutual"]:
        assert stored(graph.symmetrized(mode))[3, 4] == 0
    # Without its edges of length 0 the graph would fall into four parts.
    assert graph.connected_components("mutual")[1].tolist() == [0, 0, 0, 1, 1, 1]


def test_paths_lead_through_identical_rows():
    # Rows 0 and 1 are identical, only row 1 is connected to row 2, and row 3 equals row 2.
    graph = NeighborGraph([0, 1, 2, 3, 3], [1, 2, 3], [0.0, 1.5, 0.0])
    assert graph.connected_components()[0] == 1
    expected = [[0, 0, 1.5, 1.5], [0, 0, 1.5, 1.5], [1.5, 1.5, 0, 0], [1.5, 1.5, 0, 0]]
    assert graph.geodesics().tolist() == expected
    assert graph.geodesics([3]).tolist() == expected[3:]


def test_rows_that_are_all_identical_are_one_component():
    graph = NeighborGraph.from_points(np.ones((9, 2)), n_neighbors=8)
    assert graph.connected_components("mutual")[0] == 1
    assert (graph.geodesics() == 0).all()


def test_to_sparse_holds_the_directed_lists():
    graph = NeighborGraph.from_points(TOY, n_neighbors=2)
    matrix = graph.to_sparse()
    assert isinstance(matrix, sparse.csr_array)
    dense = stored(matrix)
    for i in range(6):
        assert set(np.flatnonzero(np.isfinite(dense[i]))) == set(graph.neighbors[i])
    np.testing.assert_array_equal(
        dense[np.arange(6)[:, None], graph.neighbors], graph.distances.reshape(6, 2)
    )
    matrix.data[:] = -1
    assert graph.distances.min() == 1


def test_the_graph_does_not_change():
    indptr, indices, distances = np.array([0, 1, 2]), np.array([1, 0]), np.array([2.0, 2.0])
    graph = NeighborGraph(indptr, indices, distances)
    distances[0] = 9
    assert graph.distances.tolist() == [2, 2]
    for array in [graph.indptr, graph.indices, graph.distances, graph.neighbors]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        graph.indices = indices


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_are_equal_and_read_only(copied):
    graph = NeighborGraph.from_points(TOY, n_neighbors=2)
    other = copied(graph)
    for name in ["indptr", "indices", "distances"]:
        np.testing.assert_array_equal(getattr(other, name), getattr(graph, name))
        assert not getattr(other, name).flags.writeable
    assert other.is_exact is True


def test_the_data_are_not_modified():
    X = np.random.default_rng(0).normal(size=(50, 3))
    before = X.copy()
    X.flags.writeable = False
    NeighborGraph.from_points(X, n_neighbors=3)
    NeighborGraph.from_points(X, radius=0.5)
    np.testing.assert_array_equal(X, before)


def test_memory_holds_no_square_array():
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    with config_context(working_memory=32):
        tracemalloc.start()
        try:
            graph = NeighborGraph.from_points(X, n_neighbors=5)
            graph.connected_components()
            graph.geodesics([0, 1])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # 20,000 x 20,000 booleans alone are 400 MB.
    assert peak < 60 * 2**20


@pytest.mark.parametrize("how", [{}, {"n_neighbors": 2, "radius": 1.0}])
def test_exactly_one_of_n_neighbors_and_radius(how):
    with pytest.raises(ValueError, match="exactly one of n_neighbors and radius; got"):
        NeighborGraph.from_points(TOY, **how)


def test_the_approximate_search_takes_no_radius():
    with pytest.raises(ValueError, match=r"approximate=True .* radius=1 "):
        NeighborGraph.from_points(TOY, radius=1, approximate=True)


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("n_neighbors", [0, 6, 1.5])
def test_n_neighbors_out_of_range(n_neighbors, approximate):
    if approximate:
        pytest.importorskip("faiss")
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 5"):
        NeighborGraph.from_points(TOY, n_neighbors=n_neighbors, approximate=approximate)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
def test_sparse_data_raise_an_error_that_names_truncated_svd(container):
    with pytest.raises(TypeError, match="TruncatedSVD"):
        NeighborGraph.from_points(container(TOY.astype(float)), n_neighbors=2)


def test_data_that_are_not_finite_raise():
    X = TOY.astype(float)
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        NeighborGraph.from_points(X, n_neighbors=2)


@pytest.mark.parametrize("method", ["symmetrized", "connected_components", "geodesics"])
def test_an_unknown_mode_raises(method):
    graph = NeighborGraph.from_points(TOY, n_neighbors=2)
    with pytest.raises(ValueError, match="mode must be 'union' or 'mutual'; got 'both'"):
        getattr(graph, method)(mode="both")


@pytest.mark.parametrize("sources", [[-1], [6], [0.0], 0, [[0]], [True]])
def test_sources_that_are_no_rows_raise(sources):
    graph = NeighborGraph.from_points(TOY, n_neighbors=2)
    with pytest.raises(ValueError, match="sources must be"):
        graph.geodesics(sources)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (([0, 1, 3], [1, 0], [1.0, 1.0]), "indptr must .*ascend from 0"),
        (([1, 1, 2], [1, 0], [1.0, 1.0]), "indptr must .*ascend from 0"),
        (([0, 3, 2], [1, 0], [1.0, 1.0]), "indptr must .*ascend from 0"),
        (([0, 1, 2], [1, 0], [1.0]), "must have the same length; got 1 and 2"),
        (([0, 1, 2], [1, 2], [1.0, 1.0]), "indices must be rows from 0 to 1; got 1 to 2"),
        (([0, 1, 2], [1, 1], [1.0, 1.0]), "as its own neighbor; row 1 does"),
        (([0, 2, 2], [1, 1], [1.0, 1.0]), "twice in one list"),
        (([0, 1, 2], [1, 0], [1.0, -1.0]), "distances must be finite and at least 0"),
        (([0, 1, 2], [1, 0], [1.0, np.nan]), "distances must be finite and at least 0"),
        (([0, 1, 2], [1.0, 0.0], [1.0, 1.0]), "indices must be a 1-d array of integers"),
        (([0, 1, 2], [1, 0], ["a", "b"]), "distances must be a 1-d array of numbers"),
    ],
)
def test_lists_that_make_no_graph_raise(lists, message):
    with pytest.raises(ValueError, match=message):
        NeighborGraph(*lists)


def test_the_repr_says_how_large_the_graph_is():
    graph = NeighborGraph.from_points(TOY, n_neighbors=2)
    assert repr(graph) == "NeighborGraph(n_samples=6, n_edges=12, is_exact=True)"


def test_without_faiss_the_error_names_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install 'nearfar\[ann\]'"):
        NeighborGraph.from_points(TOY, n_neighbors=2, approximate=True)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (1e8, 1), (0, 1e-30), (1e8, 1e30)])
def test_the_approximate_search_finds_nearly_all_neighbors(offset, scale, kind):
    pytest.importorskip("faiss")
    X = (np.random.default_rng(0).normal(size=(2000, 10)) + offset) * scale
    exact = NeighborGraph.from_points(X, n_neighbors=10)
    found = NeighborGraph.from_points(X, n_neighbors=10, approximate=kind, random_state=0)
    assert found.is_exact is False
    hits = [
        len(np.intersect1d(a, b)) for a, b in zip(exact.neighbors, found.neighbors, strict=True)
    ]
    assert np.mean(hits) / 10 > 0.9
    # recall_ is measured on a sample.
    assert abs(found.recall_ - np.mean(hits) / 10) < 0.03
    assert exact.recall_ is None
    assert (found.neighbors != np.arange(2000)[:, None]).all()
    rows = np.arange(2000)[:, None]
    expected = np.linalg.norm(X[found.neighbors] - X[rows], axis=2)
    np.testing.assert_allclose(found.distances.reshape(2000, 10), expected, rtol=1e-14)
    assert (np.diff(expected, axis=1) >= 0).all()


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_equal_seeds_give_equal_approximate_graphs(kind):
    pytest.importorskip("faiss")
    # Neither index finds all neighbors of these data.
    X = np.random.default_rng(0).normal(size=(1500, 8 if kind == "ivf" else 30))

    def indices(seed):
        graph = NeighborGraph.from_points(X, n_neighbors=30, approximate=kind, random_state=seed)
        return graph.indices

    first = indices(3)
    np.testing.assert_array_equal(indices(3), first)
    assert (indices(4) != first).any()


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_copies_of_a_row_are_found_by_the_approximate_search(kind):
    pytest.importorskip("faiss")
    X = np.repeat(np.random.default_rng(0).normal(size=(8, 3)), 60, axis=0)
    graph = NeighborGraph.from_points(X, n_neighbors=20, approximate=kind, random_state=0)
    assert graph.distances.max() == 0
    assert graph.neighbors.shape == (480, 20)


def test_threads_of_faiss_are_as_before():
    faiss = pytest.importorskip("faiss")
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        X = np.random.default_rng(0).normal(size=(300, 3))
        NeighborGraph.from_points(X, n_neighbors=2, approximate=True, random_state=0)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


def test_an_approximate_search_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="approximate must be .* got 'lsh'"):
        NeighborGraph.from_points(TOY, n_neighbors=2, approximate="lsh")
    with pytest.raises(ValueError, match="recall_ must be from 0 to 1, or None; got 2"):
        NeighborGraph([0, 1, 2], [1, 0], [1.0, 1.0], False, 2)


def test_half_precision_gives_the_graph_of_the_same_numbers():
    X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float16)
    half, full = (NeighborGraph.from_points(x, n_neighbors=4) for x in (X, X.astype(float)))
    np.testing.assert_array_equal(half.indices, full.indices)
    np.testing.assert_array_equal(half.distances, full.distances)


def test_the_approximate_search_of_few_rows_is_complete():
    pytest.importorskip("faiss")
    graph = NeighborGraph.from_points(TOY, n_neighbors=5, approximate=True, random_state=0)
    exact = NeighborGraph.from_points(TOY, n_neighbors=5)
    np.testing.assert_array_equal(graph.indices, exact.indices)


def test_lists_that_differ_give_a_symmetric_graph_with_the_smaller_distance():
    graph = NeighborGraph([0, 1, 2], [1, 0], [1.0, 2.0])
    np.testing.assert_array_equal(graph.symmetrized().toarray(), [[0, 1], [1, 0]])
