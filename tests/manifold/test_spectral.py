"""Spectral step and embeddings, compared with reference implementations that share no code."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn import manifold as sk
from sklearn.cluster import SpectralClustering as ScikitSpectralClustering
from sklearn.datasets import load_digits, make_circles, make_moons, make_s_curve, make_swiss_roll
from sklearn.decomposition import PCA as ScikitPCA
from sklearn.decomposition import KernelPCA as ScikitKernelPCA
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import adjusted_rand_score

import nearfar
from nearfar import (
    LLE,
    LPP,
    MDS,
    MVU,
    NPE,
    ClassicalMDS,
    EigenEmbedding,
    HessianLLE,
    Isomap,
    KernelPCA,
    LandmarkIsomap,
    LandmarkMVU,
    LaplacianEigenmaps,
    NeighborGraph,
    RandomProjection,
    SpectralClustering,
    VariationalMVU,
)
from nearfar.solvers import shortest_paths, spectral_step
from nearfar.solvers.barycentric import (
    compute_barycentric_weights,
    compute_interpolating_weights,
    reconstruction_matrix,
    weight_matrix,
)
from nearfar.solvers.shortest_paths import compute_all_shortest_paths
from nearfar.solvers.spectral_step import (
    compute_negative_share,
    double_center,
    leading_spectrum,
    smallest_eigenpairs,
)
from nearfar.summaries.neighbor_graph import connect_queries, find_distinct_rows, link_components

T6 = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], float)
GRAPH_METHODS = [Isomap, LandmarkIsomap, LLE, HessianLLE, LaplacianEigenmaps, LPP, NPE]
EMBEDDINGS = [ClassicalMDS, MDS, KernelPCA, *GRAPH_METHODS, EigenEmbedding]


def roll(n, noise=0.05, seed=1):
    X, t = make_swiss_roll(n, noise=noise, random_state=seed)
    return X, np.column_stack([(t * np.sqrt(1 + t**2) + np.arcsinh(t)) / 2, X[:, 1]])


def same_up_to_signs(A, B, atol=1e-6):
    assert A.shape == B.shape
    signs = np.sign((A * B).sum(axis=0))
    np.testing.assert_allclose(A, B * signs, atol=atol * np.abs(B).max())


def cosines(A, B):
    """Return cosines of the angles between two column spans, all 1 if the spans are equal."""
    return linalg.svdvals(linalg.orth(A).T @ linalg.orth(B))


# ---------------------------------------------------------------------- the spectral step


def test_double_centring_is_that_with_the_centring_matrix():
    D = squareform(np.random.default_rng(0).uniform(size=28))
    H = np.eye(8) - 1 / 8
    np.testing.assert_allclose(double_center(D), -0.5 * H @ D @ H, atol=1e-15)
    same = double_center(D, in_place=True)
    assert same is D


def test_first_eigenvalues_and_share_of_a_matrix():
    values = np.array([5.0, 3, 1, -2, -1])
    Q = linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    result = leading_spectrum(Q * values @ Q.T, 2)
    np.testing.assert_allclose(result.values, [5, 3])
    assert result.negative_share == pytest.approx(3 / 12)
    assert compute_negative_share(np.array([1.0, 1e-18, -1e-18])) == 0
    assert (np.abs(result.vectors).max(axis=0) == result.vectors.max(axis=0)).all()
    nothing = leading_spectrum(np.zeros((4, 4)), 2)
    assert not nothing.values.any() and nothing.negative_share == 0


def test_lanczos_finds_what_the_dense_solver_finds(monkeypatch):
    rng = np.random.default_rng(0)
    D = cdist(*[rng.normal(size=(400, 4))] * 2, "cityblock")
    B = double_center(D**2)
    exact = leading_spectrum(B, 3)
    monkeypatch.setattr(spectral_step, "_DENSE", 100)
    result = leading_spectrum(B, 3)
    np.testing.assert_allclose(result.values, exact.values)
    np.testing.assert_allclose(result.vectors, exact.vectors, atol=1e-8)
    # Distances of another norm are not Euclidean. The estimate is accurate to 20%.
    assert exact.negative_share > 0.1
    assert result.negative_share == pytest.approx(exact.negative_share, rel=0.2)


@pytest.mark.parametrize("broken", [False, True])
def test_smallest_eigenpairs_of_a_sparse_matrix(broken, monkeypatch):
    X, _ = roll(400)
    W = NeighborGraph.from_points(X, n_neighbors=8).symmetrized()
    L = sparse.csr_array(csgraph.laplacian(W))
    if broken:  # The dense solver takes over.

        def fails(*arguments, **options):
            raise RuntimeError("Factor is exactly singular")

        monkeypatch.setattr(spectral_step, "splu", fails)
    constant = np.full(400, 1 / 20)
    values, vectors = smallest_eigenpairs(L, 3, constant)
    expected, axes = linalg.eigh(L.toarray())
    np.testing.assert_allclose(values, expected[1:4], rtol=1e-8)
    same_up_to_signs(vectors, axes[:, 1:4], 1e-7)
    np.testing.assert_allclose(constant @ vectors, 0, atol=1e-12)


def test_smallest_eigenpairs_that_cannot_be_found_raise_in_words(monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("Factor is exactly singular")

    monkeypatch.setattr(spectral_step, "splu", fails)
    monkeypatch.setattr(spectral_step, "_MAX_DENSE_FALLBACK", 100)
    with pytest.raises(ValueError, match="n_neighbors"):
        LLE().fit(roll(400)[0])


# ---------------------------------------------------------------------- shortest paths


def dense_paths(lengths):
    """Floyd-Warshall, where zeros are edges."""
    paths = np.full(lengths.shape, np.inf)
    entries = lengths.tocoo()
    paths[entries.row, entries.col] = entries.data
    np.fill_diagonal(paths, 0)
    for via in range(len(paths)):
        paths = np.minimum(paths, paths[:, via, None] + paths[None, via])
    return paths


@pytest.mark.parametrize("kind", ["roll", "two rolls", "identical rows", "wide"])
def test_elimination_finds_the_shortest_paths(kind, monkeypatch):
    monkeypatch.setattr(shortest_paths, "_MIN_NODES", 1)
    X, _ = roll(200)
    if kind == "two rolls":
        X = np.vstack([X[:100], X[100:] + 1e3])
    if kind == "identical rows":
        X[1::2] = X[::2]
    if kind == "wide":
        X = np.random.default_rng(0).normal(size=(200, 20))
    lengths = NeighborGraph.from_points(X, n_neighbors=4).symmetrized()
    plan = shortest_paths._plan_elimination(lengths)
    assert (plan is None) == (kind == "wide")
    paths, order = compute_all_shortest_paths(lengths)
    expected = dense_paths(lengths)
    assert sorted(order) == list(range(200))
    np.testing.assert_allclose(paths, expected[np.ix_(order, order)], rtol=1e-12)
    assert np.isinf(paths).any() == (kind == "two rolls" or not np.isfinite(expected).all())


# ---------------------------------------------------------------------- links and distinct rows


def test_links_are_those_of_the_shortest_tree():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(8, 2)) + 30 * rng.normal(size=2) for _ in range(6)])
    graph = NeighborGraph.from_points(X, n_neighbors=2)
    n_parts, labels = graph.connected_components()
    assert n_parts > 3
    with pytest.warns(UserWarning, match=f"falls into {n_parts} parts"):
        linked = link_components(graph, X)
    assert linked.connected_components()[0] == 1
    added = len(linked.indices) - len(graph.indices)
    assert added == 2 * (n_parts - 1)
    # Kruskal's algorithm on the smallest distances between components.
    D = cdist(X, X)
    between = np.array(
        [
            [D[np.ix_(labels == a, labels == b)].min() for b in range(n_parts)]
            for a in range(n_parts)
        ]
    )
    tree = csgraph.minimum_spanning_tree(between).sum()
    before, after = graph.symmetrized().sum() / 2, linked.symmetrized().sum() / 2
    assert after - before == pytest.approx(tree)


def test_a_connected_graph_stays_what_it_is():
    X, _ = roll(100)
    graph = NeighborGraph.from_points(X, n_neighbors=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert link_components(graph, X) is graph


@pytest.mark.parametrize("method", [*GRAPH_METHODS, EigenEmbedding])
def test_clusters_apart_are_linked_with_a_warning_or_refused(method):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(30, 3)), 1e3 + rng.normal(size=(30, 3))])
    with pytest.warns(UserWarning, match="falls into 2 parts. Added 1 edge to connect"):
        learner = method().fit(X)
    assert np.isfinite(learner.transform(X + 0.01)).all()
    with pytest.raises(ValueError, match=r"falls into 2 parts.*30.*n_neighbors"):
        method(on_disconnected="raise").fit(X)


def test_distinct_rows_keep_their_order():
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -0.0], [0.0, 1.0], [2.0, 2.0]])
    kept, where = find_distinct_rows(X)
    assert kept.tolist() == [0, 1, 4] and where.tolist() == [0, 1, 0, 1, 2]


def test_joined_rows_are_those_of_the_graph_with_the_query_in_it():
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(50, 2)), rng.normal(size=(5, 2))
    D = cdist(X, X)
    reach = np.sort(D, axis=1)[:, 4]
    result = connect_queries(X, queries, n_neighbors=4, reach=reach).toarray()
    for query, row in zip(queries, result, strict=True):
        with_query = NeighborGraph.from_points(np.vstack([X, query]), n_neighbors=4)
        expected = with_query.symmetrized()[[50]].toarray()[0, :50]
        np.testing.assert_allclose(row, expected, atol=1e-12)


@pytest.mark.parametrize("method", [*GRAPH_METHODS, EigenEmbedding, MDS])
def test_identical_rows_share_a_place_and_change_nothing(method):
    X, _ = roll(120)
    once, twice = method().fit(X), method().fit(np.vstack([X, X[:40]]))
    mapped = twice.transform(np.vstack([X, X[:40]]))
    np.testing.assert_array_equal(mapped[:40], mapped[120:])
    np.testing.assert_array_equal(twice.transform(X + 0.01), once.transform(X + 0.01))


# ---------------------------------------------------------------------- classical scaling


@pytest.mark.filterwarnings("ignore:ClassicalMDS. only 2 of")
def test_scaling_of_the_toy_set_has_the_known_eigenvalues():
    for learner in (
        ClassicalMDS(5).fit(T6),
        ClassicalMDS(5, metric="precomputed").fit(cdist(T6, T6)),
    ):
        # Distances that were not squared would give other eigenvalues.
        expected = [10.88600094, 6.61399906, 0, 0, 0]
        np.testing.assert_allclose(learner.eigenvalues_, expected, atol=1e-7)
        assert learner.negative_share_ == pytest.approx(0, abs=1e-12)
        np.testing.assert_allclose(cdist(*[learner.embedding_] * 2), cdist(T6, T6), atol=1e-7)


@pytest.mark.parametrize("shape", [(60, 5), (20, 50)])
def test_scaling_of_euclidean_distances_is_pca(shape):
    X = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1) + 5
    pca = ScikitPCA(3).fit(X)
    for learner, rows in (
        (ClassicalMDS(3), X),
        (ClassicalMDS(3, metric="precomputed"), cdist(X, X)),
    ):
        same_up_to_signs(learner.fit_transform(rows), pca.transform(X))
        np.testing.assert_allclose(learner.eigenvalues_ / (len(X) - 1), pca.explained_variance_)
    new = np.random.default_rng(1).normal(size=(7, shape[1]))
    same_up_to_signs(learner.transform(cdist(new, X)), pca.transform(new))
    same_up_to_signs(ClassicalMDS(3).fit(X).transform(new), pca.transform(new))


def test_what_scaling_loses_is_the_sum_of_squares_of_the_other_eigenvalues():
    D = cdist(*[np.random.default_rng(0).normal(size=(30, 6))] * 2, "cityblock")
    B = double_center(D**2)
    values = linalg.eigvalsh(B)[::-1]
    learner = ClassicalMDS(4, metric="precomputed").fit(D)
    loss = np.linalg.norm(learner.embedding_ @ learner.embedding_.T - B) ** 2
    assert loss == pytest.approx((values[4:] ** 2).sum())
    assert learner.negative_share_ == pytest.approx(-values[values < 0].sum() / abs(values).sum())


@pytest.mark.parametrize("rays", [3, 10])
def test_the_negative_eigenvalue_of_a_star_is_reported(rays):
    star = np.full((rays + 1, rays + 1), 2.0)
    star[0] = star[:, 0] = 1
    np.fill_diagonal(star, 0)
    learner = ClassicalMDS(rays - 1, metric="precomputed").fit(star)
    # The rays are at right angles, and no center has distance 1 to all of them. With n = rays + 1
    # the trace is (2 rays + 4 rays (rays - 1)) / 2n, and the rays contribute 2 (rays - 1).
    n = rays + 1
    negative = 2 * (rays - 1) - (2 * rays + 4 * rays * (rays - 1)) / (2 * n)
    assert negative > 0.1
    np.testing.assert_allclose(learner.eigenvalues_, 2)
    expected = negative / (2 * (rays - 1) + negative)
    assert learner.negative_share_ == pytest.approx(expected)
    with pytest.warns(UserWarning, match="only .* have a positive eigenvalue"):
        full = ClassicalMDS(rays, metric="precomputed").fit(star)
    assert not full.embedding_[:, -1].any()
    assert not full.transform(star)[:, -1].any()


def test_scaling_places_a_point_of_the_space_at_its_distances():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(40, 3)), rng.normal(size=(6, 3))
    learner = ClassicalMDS(3, metric="precomputed").fit(cdist(X, X))
    np.testing.assert_allclose(
        cdist(learner.transform(cdist(new, X)), learner.embedding_), cdist(new, X), rtol=1e-8
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda D: D[:, :-1], "square"),
        (lambda D: D - 1, "negative"),
        (lambda D: D + np.eye(len(D)), "diagonal"),
        (lambda D: D + np.triu(D), "symmetric"),
    ],
)
def test_distances_that_are_none_are_refused(change, message):
    D = cdist(*[np.random.default_rng(0).normal(size=(9, 2))] * 2)
    with pytest.raises(ValueError, match=message):
        ClassicalMDS(metric="precomputed").fit(change(D))


# ---------------------------------------------------------------------- isomap


def test_isomap_is_that_of_scikit_learn():
    X, _ = roll(700)
    ours, theirs = Isomap(3, n_neighbors=8).fit(X[:600]), sk.Isomap(n_components=3, n_neighbors=8)
    theirs.fit(X[:600])
    same_up_to_signs(ours.embedding_, theirs.embedding_)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.kernel_pca_.eigenvalues_)
    same_up_to_signs(ours.transform(X[600:]), theirs.transform(X[600:]))


def test_isomap_gives_training_rows_their_own_place_and_few_what_many_get():
    X, _ = roll(400)
    learner = Isomap(n_neighbors=8).fit(X[:300])
    atol = 1e-9 * np.abs(learner.embedding_).max()
    np.testing.assert_allclose(learner.transform(X[:300]), learner.embedding_, atol=atol)
    np.testing.assert_allclose(learner.transform(X[:20]), learner.embedding_[:20], atol=atol)
    many = learner.transform(X[200:])
    np.testing.assert_allclose(learner.transform(X[300:310]), many[100:110], atol=atol)


def test_isomap_on_all_neighbours_is_scaling():
    X = np.random.default_rng(0).normal(size=(40, 4))
    same_up_to_signs(Isomap(3, n_neighbors=39).fit_transform(X), ClassicalMDS(3).fit_transform(X))


def test_isomap_unrolls():
    X, flat = roll(1500)
    learner = Isomap(n_neighbors=8).fit(X)
    assert abs(np.corrcoef(learner.embedding_[:, 0], flat[:, 0])[0, 1]) > 0.99
    assert learner.residual_variance_ < 0.01
    D = pdist(flat)
    r = np.corrcoef(pdist(learner.embedding_), D)[0, 1]
    assert r > 0.99


def test_isomap_on_a_ring_has_many_eigenvalues_and_negative_ones():
    angles = 2 * np.pi * np.arange(100) / 100
    ring = np.column_stack([np.cos(angles), np.sin(angles)])
    learner = Isomap(6, n_neighbors=2).fit(ring)
    paths = np.minimum(np.arange(100), 100 - np.arange(100)) * 2 * np.sin(np.pi / 100)
    B = double_center(linalg.circulant(paths) ** 2)
    shares = np.sort(linalg.eigvalsh(B))[::-1][:6] / np.trace(B)
    np.testing.assert_allclose(learner.eigenvalues_ / np.trace(B), shares)
    np.testing.assert_allclose(shares[:2], 0.608, atol=1e-3)
    values = linalg.eigvalsh(B)
    assert values.min() / np.trace(B) == pytest.approx(-0.152, abs=1e-3)
    assert learner.negative_share_ == pytest.approx(compute_negative_share(values))
    assert learner.negative_share_ > 0.2


def test_isomap_beyond_the_dense_solver_is_the_same(monkeypatch):
    X, _ = roll(500)
    exact = Isomap(n_neighbors=8).fit(X)
    monkeypatch.setattr(spectral_step, "_DENSE", 100)
    result = Isomap(n_neighbors=8).fit(X)
    np.testing.assert_allclose(result.embedding_, exact.embedding_, atol=1e-8)
    assert result.negative_share_ == pytest.approx(exact.negative_share_, rel=0.25)


def test_landmarks_that_are_all_rows_make_isomap():
    X, _ = roll(250)
    all_rows = LandmarkIsomap(n_neighbors=8, n_landmarks=250).fit(X[:200])
    exact = Isomap(n_neighbors=8).fit(X[:200])
    np.testing.assert_allclose(all_rows.embedding_, exact.embedding_, atol=1e-8)
    np.testing.assert_allclose(all_rows.transform(X), exact.transform(X), atol=1e-8)


def test_landmarks_come_near_isomap_and_get_their_own_place():
    X, _ = roll(1500)
    exact, few = Isomap(n_neighbors=10).fit(X), LandmarkIsomap(n_neighbors=10, n_landmarks=150)
    few.fit(X)
    assert procrustes(exact.embedding_, few.embedding_)[2] < 1e-3
    assert len(few.landmarks_) == 150 and (np.diff(few.landmarks_) > 0).all()
    # Covers both ways to compute the paths.
    for some in (X[few.landmarks_[:9]], X[few.landmarks_]):
        mapped = few.transform(some)
        np.testing.assert_allclose(mapped, few.embedding_[few.landmarks_[: len(some)]], atol=1e-9)
    np.testing.assert_allclose(few.transform(X), few.embedding_, atol=1e-9)
    with pytest.raises(ValueError, match="n_landmarks=2"):
        LandmarkIsomap(n_landmarks=2).fit(X)
    other = LandmarkIsomap(n_neighbors=10, n_landmarks=150, random_state=1).fit(X)
    assert not np.array_equal(other.landmarks_, few.landmarks_)


# ---------------------------------------------------------------------- locally linear


def test_weights_of_the_toy_set():
    weights = compute_barycentric_weights(T6, T6[[3]], np.array([[1, 4]]))
    np.testing.assert_allclose(weights, [[0.5, 0.5]])


def test_weights_sum_to_one_and_do_not_change_when_all_moves():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    graph = NeighborGraph.from_points(X, n_neighbors=6)
    W = weight_matrix(X, graph.indptr, graph.indices)
    np.testing.assert_allclose(W.sum(axis=1), 1)
    turn = linalg.qr(rng.normal(size=(3, 3)))[0]
    moved = weight_matrix(1e6 * X @ turn + 4e6, graph.indptr, graph.indices)
    np.testing.assert_allclose(moved.toarray(), W.toarray(), atol=1e-6)
    E = reconstruction_matrix(W).toarray()
    np.testing.assert_allclose(E @ np.ones(60), 0, atol=1e-12)
    assert linalg.eigvalsh(E).min() > -1e-12


def test_weights_minimise_what_they_say():
    rng = np.random.default_rng(0)
    points, query = rng.normal(size=(5, 3)), rng.normal(size=3)
    D2 = ((points - query) ** 2).sum(axis=1)

    def value(w, penalties):
        return ((query - w @ points) ** 2).sum() + (penalties * w**2).sum()

    for function, penalties in (
        (compute_barycentric_weights, np.full(5, 1e-3 * D2.sum())),
        (compute_interpolating_weights, 1e-3 * 5 * D2),
    ):
        w = function(points, query[None], np.arange(5)[None])[0]
        for _ in range(50):
            step = rng.normal(size=5)
            step -= step.mean()
            assert value(w + 1e-3 * step, penalties) > value(w, penalties)


def test_weights_of_new_points_come_to_one_as_they_come_near_a_row():
    X = np.random.default_rng(0).normal(size=(30, 2))
    neighbors = np.argsort(cdist(X[[7]], X))[:, :6]
    for distance in (1e-3, 1e-6, 1e-9, 0.0):
        w = compute_interpolating_weights(X, X[[7]] + distance, neighbors)[0]
        np.testing.assert_allclose(w, [1, 0, 0, 0, 0, 0], atol=100 * distance)


@pytest.mark.parametrize("n", [250, 600])
def test_lle_is_that_of_scikit_learn(n):
    X, _ = roll(n)
    ours = LLE(n_neighbors=12).fit(X)
    theirs = sk.LocallyLinearEmbedding(n_neighbors=12, eigen_solver="dense").fit(X)
    same_up_to_signs(ours.embedding_, np.sqrt(n) * theirs.embedding_, 1e-4)
    assert ours.eigenvalues_.sum() == pytest.approx(theirs.reconstruction_error_, rel=1e-4)
    np.testing.assert_allclose(ours.embedding_.T @ ours.embedding_ / n, np.eye(2), atol=1e-8)
    np.testing.assert_allclose(ours.embedding_.mean(axis=0), 0, atol=1e-8)


@pytest.mark.parametrize("n", [300, 600])
def test_hessian_lle_is_that_of_scikit_learn_for_six_neighbours(n):
    # With more neighbors, scikit-learn counts everything nonlinear as curvature, not only t², which
    # gives another matrix. If a row is nobody's neighbor, as with 250 rows, one of scikit-learn's
    # coordinates is zero except at this row.
    X, _ = roll(n)
    assert len(np.unique(NeighborGraph.from_points(X, n_neighbors=6).indices)) == n
    ours = HessianLLE(n_neighbors=6).fit(X)
    theirs = sk.LocallyLinearEmbedding(n_neighbors=6, method="hessian", eigen_solver="dense")
    constant = np.ones((n, 1))  # scikit-learn mixes it into coordinates with small eigenvalues.
    theirs = np.hstack([constant, theirs.fit_transform(X)])
    assert cosines(np.hstack([constant, ours.embedding_]), theirs).min() > 1 - 1e-6
    np.testing.assert_allclose(ours.embedding_.mean(axis=0), 0, atol=1e-8)


def test_hessian_lle_is_that_of_its_authors():
    X, _ = roll(200)
    graph = NeighborGraph.from_points(X, n_neighbors=9)
    S = np.zeros((200, 200))
    for near in graph.neighbors:
        U = linalg.svd(X[near] - X[near].mean(axis=0), full_matrices=False)[0]
        u, v = U[:, 0], U[:, 1]
        basis = []
        for column in (np.ones(9), u, v, u * u, u * v, v * v):  # Gram-Schmidt
            for before in basis:
                column = column - (before @ column) * before
            basis.append(column / np.linalg.norm(column))
        for row in basis[3:]:
            S[np.ix_(near, near)] += np.outer(row, row)
    values, vectors = linalg.eigh(S)
    learner = HessianLLE(n_neighbors=9).fit(X)
    np.testing.assert_allclose(learner.eigenvalues_, values[1:3], rtol=1e-6)
    same_up_to_signs(learner.embedding_, np.sqrt(200) * vectors[:, 1:3], 1e-5)


def test_hessian_lle_lays_a_sheet_with_a_hole_flat():
    rng = np.random.default_rng(0)
    flat = rng.uniform(size=(900, 2)) * [4, 2] - [2, 1]
    flat = flat[np.abs(flat).max(axis=1) > 0.5]
    X = np.column_stack([np.sin(flat[:, 0]), np.cos(flat[:, 0]), flat[:, 1]])
    learner = HessianLLE().fit(X[:600])
    both = flat[:600] - flat[:600].mean(axis=0)
    fit, *_ = np.linalg.lstsq(learner.embedding_, both, rcond=None)
    assert np.linalg.norm(both - learner.embedding_ @ fit) < 0.01 * np.linalg.norm(both)
    new = flat[600:] - flat[:600].mean(axis=0)
    assert np.linalg.norm(new - learner.transform(X[600:]) @ fit) < 0.03 * np.linalg.norm(new)


def test_hessian_lle_needs_enough_neighbours():
    with pytest.raises(
        ValueError, match=r"n_neighbors=5 is too small: .* more than q\(q\+3\)/2 = 5"
    ):
        HessianLLE(2, n_neighbors=5).fit(roll(100)[0])


def test_an_embedding_that_is_not_unique_is_said_to_be_none():
    # In three groups, rows list only each other as neighbors, though paths from the middle lead to
    # them. Any coordinate that is constant on each group costs nothing.
    rng = np.random.default_rng(0)
    corners = [[np.cos(a), np.sin(a)] for a in (0, 2, 4)]
    groups = np.vstack([10 * np.array(c) + 0.1 * rng.normal(size=(8, 2)) for c in corners])
    ways = np.vstack([np.outer(np.linspace(0.1, 9.5, 30), c) for c in corners])
    X = np.vstack([groups, ways])
    with pytest.warns(UserWarning, match="LLE: the embedding is not unique"):
        LLE(1).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LLE(2).fit(X)
        square = rng.uniform(size=(300, 2))
        HessianLLE().fit(square)
        LLE().fit(square)


@pytest.mark.parametrize("method", [LLE, HessianLLE])
def test_new_points_of_local_methods_are_rebuilt_from_their_neighbours(method):
    X, flat = roll(1000, noise=0)
    learner = method(n_neighbors=12).fit(X[:900])
    np.testing.assert_allclose(learner.transform(X[:900]), learner.embedding_, atol=1e-10)
    near = learner.transform(X[:900] + 1e-7)
    np.testing.assert_allclose(near, learner.embedding_, atol=1e-4)
    # Along the sheet, where the embedding is smooth, the points are at the expected coordinates.
    nearest = np.argsort(cdist(flat[900:], flat[:900]), axis=1)[:, :6]
    off = learner.transform(X[900:]) - learner.embedding_[nearest].mean(axis=1)
    assert np.median(np.linalg.norm(off, axis=1)) < 0.1


# ---------------------------------------------------------------------- Laplacian eigenmaps


def heat(X, k, tau=None):
    """Return the weights of the graph, row by row."""
    D = cdist(X, X)
    lists = np.argsort(D, axis=1, kind="stable")[:, 1 : k + 1]
    joined = np.zeros(D.shape, bool)
    for i, row in enumerate(lists):
        joined[i, row] = joined[row, i] = True
    np.fill_diagonal(joined, False)
    tau = np.median(D[joined] ** 2) if tau is None else tau
    return np.where(joined, np.exp(-(D**2) / tau), 0.0)


def test_eigenmaps_of_the_toy_set_have_the_known_eigenvalues():
    learner = LaplacianEigenmaps(5, n_neighbors=5, width=2).fit(T6)
    expected = [0.62745703, 1.00275594, 1.1336603, 1.53630002, 1.69982671]
    np.testing.assert_allclose(learner.eigenvalues_, expected, atol=1e-7)


@pytest.mark.parametrize("n", [200, 500])
def test_eigenmaps_solve_the_generalised_problem(n):
    X, _ = roll(n)
    learner = LaplacianEigenmaps(3, n_neighbors=6).fit(X)
    W = heat(X, 6)
    D = np.diag(W.sum(axis=1))
    values, vectors = linalg.eigh(D - W, D)
    np.testing.assert_allclose(learner.eigenvalues_, values[1:4], rtol=1e-7)
    same_up_to_signs(learner.embedding_, vectors[:, 1:4])
    Y = learner.embedding_
    np.testing.assert_allclose(Y.T @ D @ Y, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(Y.T @ D @ np.ones(n), 0, atol=1e-8)
    energy = 0.5 * (W[:, :, None] * (Y[:, None] - Y) ** 2).sum(axis=(0, 1))
    np.testing.assert_allclose(energy, learner.eigenvalues_)


def test_eigenmaps_are_those_of_scikit_learn():
    X, _ = roll(300)
    ours = LaplacianEigenmaps(n_neighbors=8, weights="uniform").fit(X)
    W = (heat(X, 8) > 0).astype(float)
    theirs = sk.SpectralEmbedding(affinity="precomputed", random_state=0).fit_transform(W)
    scale = np.linalg.norm(ours.embedding_) / np.linalg.norm(theirs)
    same_up_to_signs(ours.embedding_, theirs * scale)


def test_eigenmaps_place_new_points_by_the_formula():
    X, _ = roll(330)
    X, new = X[:300], X[300:]
    learner = LaplacianEigenmaps(n_neighbors=6).fit(X)
    reach = np.sort(cdist(X, X), axis=1)[:, 6]
    D = cdist(new, X)
    kth = np.sort(D, axis=1)[:, [5]]
    K = np.where((kth >= D) | (reach >= D), np.exp(-(D**2) / learner.width_), 0)
    # The kernel of the formula, with its means and the eigenvectors of the symmetric problem.
    sums = heat(X, 6).sum(axis=1)
    kernel = K / 300 / np.sqrt(np.outer(K.mean(axis=1), sums / 300))
    v = learner.embedding_ * np.sqrt(sums)[:, None]
    expected = kernel @ v / (1 - learner.eigenvalues_) / np.sqrt(K.sum(axis=1))[:, None]
    np.testing.assert_allclose(learner.transform(new), expected, rtol=1e-8)
    np.testing.assert_array_equal(learner.transform(X), learner.embedding_)


def test_eigenmaps_refuse_new_points_for_eigenvalues_that_cannot_be_inverted():
    learner = LaplacianEigenmaps(2, n_neighbors=5, width=2).fit(T6)
    np.testing.assert_array_equal(learner.transform(T6), learner.embedding_)
    with pytest.raises(ValueError, match="component 1 is 1.003,.*n_components=1 or less"):
        learner.transform(T6 + 0.1)


def test_as_many_eigenvalues_are_zero_as_there_are_parts():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(20, 2)) + shift for shift in (0, 50, 100)])
    W = heat(X, 4)
    D = np.diag(W.sum(axis=1))
    assert (linalg.eigvalsh(D - W, D) < 1e-10).sum() == 3
    with pytest.warns(UserWarning, match="3 parts"):
        learner = LaplacianEigenmaps(3, n_neighbors=4).fit(X)
    # The links have the smallest possible weight, so two eigenvalues are small but not zero.
    assert (learner.eigenvalues_[:2] > 1e-10).all()
    assert (learner.eigenvalues_[:2] < 1e-4).all()
    assert learner.eigenvalues_[2] > 1e-2


# ---------------------------------------------------------------------- kernel PCA


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear", "precomputed"])
def test_kernel_pca_is_that_of_scikit_learn(kernel):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(80, 3)), rng.normal(size=(9, 3))
    rows, queries = X, new
    if kernel == "precomputed":
        rows, queries = np.exp(-cdist(X, X)), np.exp(-cdist(new, X))
    ours = KernelPCA(3, kernel=kernel, gamma=0.3, coef0=1).fit(rows)
    theirs = ScikitKernelPCA(3, kernel=kernel, gamma=0.3, coef0=1).fit(rows)
    same_up_to_signs(ours.embedding_, theirs.transform(rows))
    same_up_to_signs(ours.transform(queries), theirs.transform(queries))
    np.testing.assert_allclose(ours.transform(rows), ours.embedding_, atol=1e-9)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_)
    assert ours.negative_share_ == pytest.approx(0, abs=1e-10)


def test_kernel_pca_reports_a_kernel_that_is_none():
    X = np.random.default_rng(0).normal(size=(60, 3))
    K = np.tanh(X @ X.T - 1)
    H = np.eye(60) - 1 / 60
    share = compute_negative_share(linalg.eigvalsh(H @ K @ H))
    assert share > 0.01
    learner = KernelPCA(kernel="sigmoid", gamma=1, coef0=-1).fit(X)
    assert learner.negative_share_ == pytest.approx(share)


def test_kernel_pca_of_fewer_directions_than_components_has_zeros():
    X = np.random.default_rng(0).normal(size=(30, 1))
    with pytest.warns(UserWarning, match="only 1 of n_components=2"):
        learner = KernelPCA(kernel="linear").fit(X)
    assert learner.transform(X).shape == (30, 2)
    assert not learner.transform(X)[:, 1].any()


# ---------------------------------------------------------------------- linear maps


@pytest.mark.parametrize("method", [LPP, NPE])
def test_linear_maps_solve_their_generalised_problem(method):
    X = np.random.default_rng(0).normal(size=(100, 5)) * [1, 2, 3, 4, 5] + 100
    learner = method(4, n_neighbors=6).fit(X)
    Z, n = X - X.mean(axis=0), len(X)
    if method is LPP:
        W = heat(X, 6)
        D = np.diag(W.sum(axis=1))
        A, B = Z.T @ (D - W) @ Z, Z.T @ D @ Z
    else:
        graph = NeighborGraph.from_points(X, n_neighbors=6)
        R = np.eye(n) - weight_matrix(X, graph.indptr, graph.indices).toarray()
        A, B = Z.T @ R.T @ R @ Z / n, Z.T @ Z / n
    values, vectors = linalg.eigh(A, B)
    # The first one is not constant, so it is kept.
    np.testing.assert_allclose(learner.eigenvalues_, values[:4])
    same_up_to_signs(learner.components_.T, vectors[:, :4])
    np.testing.assert_allclose(
        learner.components_ @ B @ learner.components_.T, np.eye(4), atol=1e-9
    )


def test_linear_maps_lie_above_what_any_map_could_reach():
    # The linear problem is the nonlinear one with a constraint: Poincaré's inequalities hold.
    X, _ = roll(300)
    assert (LPP(2).fit(X).eigenvalues_ >= LaplacianEigenmaps(2).fit(X).eigenvalues_).all()
    assert (NPE(2).fit(X).eigenvalues_ >= LLE(2).fit(X).eigenvalues_ - 1e-12).all()


@pytest.mark.parametrize("method", [LPP, NPE])
def test_linear_maps_of_features_in_unlike_units(method):
    X = np.random.default_rng(0).normal(size=(100, 4))
    X[:, 3] += X[:, 0]
    units = np.array([1e-6, 1, 1e3, 1e7])
    learner = method(4, n_neighbors=40).fit(X * units)
    assert np.linalg.matrix_rank(learner.components_ * units) == 4


def test_isomap_with_an_outlier_still_gives_training_rows_their_own_place():
    X = np.vstack([np.random.default_rng(0).normal(size=(100, 3)), [[1e5, 0, 0]]])
    learner = Isomap().fit(X)
    assert np.abs(learner.transform(X) - learner.embedding_).max() < 1e-3


@pytest.mark.parametrize("method", [LPP, NPE])
def test_linear_maps_of_fewer_rows_than_features(method):
    X = np.random.default_rng(0).normal(size=(30, 100))
    learner = method().fit(X)
    assert np.isfinite(learner.transform(X)).all()
    assert method(pca=0.5).fit(X).components_.shape == (2, 100)
    with pytest.raises(ValueError, match=r"n_components=31.*29 direction"):
        method(31).fit(X)


# ---------------------------------------------------------------------- spectral clustering


def test_clusters_of_any_shape_are_found_and_new_points_join_them():
    for make in (make_moons, make_circles):
        options = {"factor": 0.5} if make is make_circles else {}
        X, y = make(600, noise=0.05, random_state=0, **options)
        clusters = SpectralClustering(2).fit(X[:300])
        assert adjusted_rand_score(clusters.labels_, y[:300]) == 1
        assert adjusted_rand_score(clusters.predict(X[300:]), y[300:]) > 0.98
        np.testing.assert_array_equal(clusters.predict(X[:300]), clusters.labels_)


def test_clusters_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(60, 2)) + shift for shift in ([0, 0], [3.5, 0], [0, 4])])
    ours = SpectralClustering(3, n_neighbors=8).fit(X)
    theirs = ScikitSpectralClustering(3, affinity="precomputed", random_state=0).fit(heat(X, 8))
    assert adjusted_rand_score(ours.labels_, theirs.labels_) > 0.95
    assert len(np.unique(ours.labels_)) == 3


def test_coordinates_of_clusters_are_unit_rows_of_the_leading_eigenvectors():
    X, _ = roll(200)
    clusters = SpectralClustering(4, n_neighbors=6).fit(X)
    W = heat(X, 6)
    roots = np.sqrt(W.sum(axis=1))
    values, vectors = linalg.eigh(W / np.outer(roots, roots))
    np.testing.assert_allclose(clusters.eigenvalues_, values[:-5:-1])
    V = vectors[:, :-5:-1]
    same_up_to_signs(clusters.transform(X), V / np.linalg.norm(V, axis=1, keepdims=True))


def test_parts_of_the_graph_are_clusters():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(20, 2)) + 100 * k for k in range(3)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clusters = SpectralClustering(3, n_neighbors=5).fit(X)
        assert adjusted_rand_score(clusters.labels_, np.repeat([0, 1, 2], 20)) == 1
        np.testing.assert_allclose(clusters.eigenvalues_, 1)
        more = SpectralClustering(4, n_neighbors=5).fit(X)
        assert len(np.unique(more.labels_)) == 4
        assert adjusted_rand_score(more.labels_, np.repeat([0, 1, 2], 20)) > 0.7
    with pytest.warns(UserWarning, match="3 parts"):
        fewer = SpectralClustering(2, n_neighbors=5).fit(X)
    assert len(np.unique(fewer.labels_)) == 2
    with pytest.raises(ValueError, match="3 parts"):
        SpectralClustering(2, n_neighbors=5, on_disconnected="raise").fit(X)
    with pytest.raises(ValueError, match="n_clusters=9"):
        SpectralClustering(9).fit(X[:9])


# ---------------------------------------------------------------------- stress


def test_stress_of_flat_data_is_zero_and_new_points_are_exact():
    rng = np.random.default_rng(0)
    X = np.pad(rng.normal(size=(60, 2)), ((0, 0), (0, 3)))
    X = X @ linalg.qr(rng.normal(size=(5, 5)))[0]
    mds = MDS().fit(X[:50])
    assert mds.stress_ < 1e-6
    np.testing.assert_allclose(
        cdist(mds.transform(X[50:]), mds.embedding_), cdist(X[50:], X[:50]), atol=1e-4
    )


def test_stress_is_no_worse_than_that_of_scikit_learn():
    X = load_digits().data[:80]
    mds = MDS(tol=1e-9).fit(X)
    D = pdist(X)
    raw = ((pdist(mds.embedding_) - D) ** 2).sum()
    _, best = sk.smacof(squareform(D), n_init=4, random_state=0, eps=1e-9, normalized_stress=False)
    assert raw < 1.02 * best
    assert mds.stress_ == pytest.approx(np.sqrt(raw / (pdist(mds.embedding_) ** 2).sum()), rel=1e-6)
    # A training row that is moved a little returns: it is stationary given the others.
    moved = mds.transform(X + 1e-6)
    assert np.median(np.linalg.norm(moved - mds.embedding_, axis=1)) < 0.05 * np.median(D)


@pytest.mark.skipif(int(sklearn.__version__.split(".")[1]) < 7, reason="it stops too early there")
def test_order_of_distances_is_all_that_non_metric_scaling_needs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    metric, order = MDS().fit(X[:40]), MDS(metric_mds=False).fit(X[:40])
    assert order.stress_ < metric.stress_
    D, E = pdist(X[:40]), pdist(order.embedding_)
    rank = np.corrcoef(np.argsort(np.argsort(D)), np.argsort(np.argsort(E)))[0, 1]
    assert rank > 0.9
    new = cdist(order.transform(X[40:]), order.embedding_)
    assert np.corrcoef(new.ravel(), cdist(X[40:], X[:40]).ravel())[0, 1] > 0.8


@pytest.mark.parametrize("metric", [True, False])
def test_new_points_have_the_least_stress_to_those_in_place(metric):
    rng = np.random.default_rng(0)
    X = 7 * rng.normal(size=(50, 3))
    mds = MDS(metric_mds=metric).fit(X[:40])
    expected = cdist(X[40:], X[:40])
    if not metric:
        isotonic = IsotonicRegression(out_of_bounds="clip")
        isotonic.fit(pdist(X[:40]), pdist(mds.embedding_))
        expected = isotonic.predict(expected.ravel()).reshape(expected.shape)

    def stress(Y):
        return ((cdist(Y, mds.embedding_) - expected) ** 2).sum(axis=1)

    placed = mds.transform(X[40:])
    for step in ([0.1, 0], [-0.1, 0], [0, 0.1], [0, -0.1]):
        assert (stress(placed + step) > stress(placed)).all()


# ---------------------------------------------------------------------- random projections


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["orthogonal", "gaussian", "sparse"])
def test_random_projections_keep_squared_lengths_on_average(kind):
    x = np.random.default_rng(0).normal(size=(2, 40))
    x /= np.linalg.norm(x[0] - x[1])
    spreads = []
    for q in (4, 16):
        squares = []
        for seed in range(144):
            learner = RandomProjection(q, matrix_type=kind, random_state=seed).fit(x)
            squares.append(learner.pair_distance(x[None])[0] ** 2)
        assert np.mean(squares) == pytest.approx(1, abs=5 * np.std(squares) / 12)
        spreads.append(np.std(squares))
    assert spreads[1] < 0.7 * spreads[0]


def test_random_projections_are_as_long_as_the_bound_says():
    X = np.random.default_rng(0).normal(size=(60, 2000))
    learner = RandomProjection(eps=0.5).fit(X)
    expected = int(4 * np.log(60) / (0.5**2 / 2 - 0.5**3 / 3))
    assert learner.components_.shape == (expected, 2000)
    gram = learner.components_ @ learner.components_.T
    np.testing.assert_allclose(gram, np.eye(expected) * 2000 / expected, atol=1e-9)
    ratios = pdist(learner.transform(X), "sqeuclidean") / pdist(X, "sqeuclidean")
    assert (np.abs(ratios - 1) < 0.5).all()
    exact = RandomProjection().fit(X[:, :30])
    np.testing.assert_allclose(pdist(exact.transform(X[:, :30])), pdist(X[:, :30]))
    with pytest.raises(
        ValueError, match="n_components=31 must not exceed the number of features of X, which is 30"
    ):
        RandomProjection(31).fit(X[:, :30])


# ---------------------------------------------------------------------- EigenEmbedding


@pytest.mark.parametrize(
    ("method", "learner"),
    [
        ("mds", ClassicalMDS(3)),
        ("isomap", Isomap(3)),
        ("laplacian_eigenmaps", LaplacianEigenmaps(3)),
        ("lle", LLE(3)),
        ("spectral_clustering", SpectralClustering(3, n_neighbors=5)),
    ],
)
def test_every_row_of_the_frame_is_the_learner_of_its_name(method, learner):
    X, _ = roll(450)
    frame = EigenEmbedding(3, method=method).fit(X[:400])
    learner.fit(X[:400])
    atol = 1e-5 if method == "lle" else 1e-7
    same_up_to_signs(frame.embedding_, learner.transform(X[:400]), atol)
    same_up_to_signs(frame.transform(X[400:]), learner.transform(X[400:]), atol)


@pytest.mark.parametrize("solution", [1, 2])
@pytest.mark.parametrize("method", ["mds", "isomap", "laplacian_eigenmaps", "spectral_clustering"])
def test_the_formula_gives_training_rows_their_own_place(method, solution):
    # A grid, where many neighbors tie.
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    for X in (roll(150)[0], grid):
        frame = EigenEmbedding(method=method, solution=solution, n_neighbors=6).fit(X)
        atol = 1e-9 * np.abs(frame.embedding_).max()
        np.testing.assert_allclose(frame.transform(X), frame.embedding_, atol=atol)


def test_the_first_solution_is_the_best_approximation():
    X, _ = roll(150)
    frame = EigenEmbedding(2, method="spectral_clustering", solution=1).fit(X)
    W = heat(X, 5)
    roots = np.sqrt(W.sum(axis=1))
    normalized = W / np.outer(roots, roots)
    error = np.linalg.norm(frame.embedding_ @ frame.embedding_.T - normalized) ** 2
    values = np.sort(np.abs(linalg.eigvalsh(normalized)))
    # Compare with all positive semidefinite matrices of rank 2.
    assert error == pytest.approx((normalized**2).sum() - (frame.eigenvalues_**2).sum())
    assert frame.eigenvalues_[0] == pytest.approx(values[-1])
    second = EigenEmbedding(2, method="laplacian_eigenmaps", solution=2).fit(X)
    first = EigenEmbedding(2, method="laplacian_eigenmaps", solution=1).fit(X)
    np.testing.assert_allclose(first.embedding_, second.embedding_ * np.sqrt(first.eigenvalues_))


def test_the_frame_on_all_rows_and_what_it_refuses():
    frame = EigenEmbedding(2, n_neighbors=None, width=2).fit(T6)
    np.testing.assert_allclose(1 - frame.eigenvalues_, [0.62745703, 1.00275594], atol=1e-7)
    with pytest.raises(ValueError, match="not positive"):
        frame.transform(T6)
    with pytest.raises(ValueError, match="solution=1"):
        EigenEmbedding(method="lle", solution=1).fit(T6)


def test_lle_and_eigenmaps_agree_on_a_closed_curve():
    angles = np.sort(np.random.default_rng(0).uniform(0, 2 * np.pi, 400))
    angles = 2 * np.pi * np.arange(400) / 400 + 0.001 * angles
    curve = np.column_stack([np.cos(angles), np.sin(angles), 0.3 * np.sin(2 * angles)])
    a, b = LLE(n_neighbors=6).fit(curve), LaplacianEigenmaps(n_neighbors=6).fit(curve)
    assert cosines(a.embedding_, b.embedding_).min() > 0.99


# ---------------------------------------------------------------------- all embeddings


@pytest.mark.parametrize("method", EMBEDDINGS)
def test_scale_and_shift_change_nothing_but_the_scale(method):
    X, _ = roll(150)
    reference = method().fit(X).transform(X[:50])
    for factor in (2.0**-27, 2.0**27):
        mapped = method().fit(factor * X).transform(factor * X[:50])
        mapped *= np.linalg.norm(reference) / np.linalg.norm(mapped)
        np.testing.assert_allclose(mapped, reference, atol=1e-5 * np.abs(reference).max())


@pytest.mark.parametrize("method", EMBEDDINGS)
def test_float32_in_float32_out(method):
    X = roll(150)[0].astype(np.float32)
    learner = method().fit(X)
    assert learner.transform(X).dtype == np.float32
    if hasattr(learner, "embedding_"):
        assert learner.embedding_.dtype == np.float32


@pytest.mark.parametrize("method", [*GRAPH_METHODS, EigenEmbedding])
def test_too_few_rows_are_refused_by_name(method):
    X = np.random.default_rng(0).normal(size=(4, 3))
    with pytest.raises(ValueError, match="n_neighbors"):
        method(1, n_neighbors=4).fit(X)
    with pytest.raises(ValueError, match="n_components"):
        method(4, n_neighbors=3).fit(X)
    repeated = np.repeat(X[:2], 20, axis=0)
    with pytest.raises(ValueError, match="distinct rows"):
        method(1, n_neighbors=3).fit(repeated)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", EMBEDDINGS)
def test_numbers_whose_squares_overflow_are_refused(method):
    with pytest.raises(ValueError, match=r"overflow|Rescale"):
        method().fit(1e200 * roll(60)[0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "method",
    [
        *(Isomap, LandmarkIsomap, LLE, HessianLLE, LaplacianEigenmaps, EigenEmbedding, LPP, NPE),
        *(MDS, MVU, VariationalMVU, LandmarkMVU, SpectralClustering),
    ],
)
def test_numbers_whose_squares_underflow_are_refused(method):
    with pytest.raises(ValueError, match=r"X: the largest absolute value .* underflow"):
        method().fit(1e-170 * roll(60)[0])


def test_kernel_pca_does_not_mind_where_the_origin_is():
    X, _ = roll(60)
    here, there = KernelPCA().fit(X), KernelPCA().fit(X + 1e8)
    np.testing.assert_allclose(there.transform(X + 1e8), there.embedding_, atol=1e-9)
    np.testing.assert_allclose(there.embedding_, here.embedding_, atol=1e-5)


def test_no_reference_begins_as_a_list_would():
    """Sphinx would render "A. Author" at the beginning of a reference as a list item."""
    root = Path(nearfar.__file__).parent
    files = [*root.glob("manifold/*.py"), root / "evaluation/quality.py"]
    files += [root / "datasets/sensor_networks.py", root / "manifold/bad_edges.py"]
    for file in files:
        assert not re.findall(r"\.\. \[\d+\] [A-Z]\. ", file.read_text()), file


@pytest.mark.parametrize("method", EMBEDDINGS)
def test_a_fit_that_fails_leaves_nothing_behind(method):
    X, _ = roll(100)
    learner = method().fit(X)
    with pytest.raises(ValueError, match="n_components"):
        learner.set_params(n_components=200).fit(X)
    with pytest.raises(ValueError, match="not fitted"):
        learner.transform(X)


@pytest.mark.parametrize("method", [LLE, LaplacianEigenmaps, HessianLLE, LPP, NPE])
@pytest.mark.filterwarnings("ignore:LLE. the embedding is not unique")
def test_no_array_of_n_by_n(method):
    import tracemalloc

    X, _ = roll(3000)
    tracemalloc.start()
    method().fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 3000**2 / 2


def test_hessian_lle_of_a_row_that_is_nobodys_neighbor():
    X, t = make_s_curve(400, random_state=0)
    graph = NeighborGraph.from_points(X, n_neighbors=7)
    assert len(np.setdiff1d(np.arange(400), graph.indices)) == 1
    hessian_lle = HessianLLE(n_neighbors=7).fit(X)
    Y = hessian_lle.embedding_
    assert hessian_lle.eigenvalues_[0] > 1e-8
    assert np.abs(Y).max() < 3
    surface = np.column_stack([t - t.mean(), X[:, 1] - X[:, 1].mean()])
    residual = surface - Y @ np.linalg.lstsq(Y, surface, rcond=None)[0]
    assert np.linalg.norm(residual) < 0.05 * np.linalg.norm(surface)


@pytest.mark.filterwarnings("ignore:.*eigenvalue")
def test_eigenvalues_of_coordinates_that_are_zero_are_zero():
    X = np.array([[5, 1], [5 + 1e-8, 1e-8], [5 + 1e-8, 0]])
    kernel_pca = KernelPCA(2, kernel="linear").fit(X)
    assert kernel_pca.eigenvalues_[0] > 0.6
    assert kernel_pca.eigenvalues_[1] == 0
    line = np.linspace(0, 1, 20)[:, None] * [1.0, 2.0, 3.0] + 7
    for learner in (KernelPCA(3, kernel="linear"), ClassicalMDS(3), Isomap(3, n_neighbors=4)):
        learner.fit(line)
        assert learner.eigenvalues_[0] > 0
        is_zero = learner.eigenvalues_[1:] <= 1e-20 * learner.eigenvalues_[0]
        assert is_zero.all(), learner
    # Negative eigenvalues of an indefinite kernel are kept.
    K = np.diag([3.0, -1.0, -2.0, -2.0])
    assert KernelPCA(3, kernel="precomputed").fit(K).eigenvalues_[-1] < -0.1


@pytest.mark.parametrize("method", [LLE, HessianLLE, NPE])
def test_a_regularization_below_rounding_is_named(method):
    X = np.random.default_rng(0).integers(0, 3, size=(40, 2)).astype(float)
    X[:, 1] = np.arange(40)
    try:
        assert np.isfinite(method(1, n_neighbors=6, reg=1e-300).fit(X).transform(X)).all()
    except ValueError as error:
        assert "reg=1e-300 is too small" in str(error)
        assert not isinstance(error, np.linalg.LinAlgError)
