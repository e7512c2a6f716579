"""TensorGraphEmbedding compared with sums over pairs, GTDA, GTA and graphs from loops."""

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from nearfar import GTA, GTDA, TensorGraphEmbedding
from nearfar.tensors import multi_mode_dot, unfold

SHAPES = [(7,), (5, 4), (4, 3, 3)]


def tensors(shape=(5, 4), n=40, c=4, seed=0):
    """Return classes of unequal sizes with unequal noise and means about 2 sd apart."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.repeat(np.arange(c), 3), rng.integers(c, size=n - 3 * c)]
    scales = np.exp(rng.normal(size=shape))
    return 2 * rng.normal(size=(c, *shape))[y] * scales + rng.normal(size=(n, *shape)) * scales, y


def projectors(learner):
    return [U @ U.T for U in learner.factors_]


def over_pairs(X, weights, factors):
    """Return the objective by its definition."""
    Z = [multi_mode_dot(T, factors, transpose=True) for T in X]
    return sum(
        weights[i, j] * ((Z[i] - Z[j]) ** 2).sum() for i in range(len(X)) for j in range(len(X))
    )


def is_fixed_point(X, weights, learner, atol=1e-5):
    """Check that each factor spans the leading eigenvectors of its matrix, a sum over pairs."""
    for mode, U in enumerate(learner.factors_):
        T = [multi_mode_dot(x, learner.factors_, skip=mode, transpose=True) for x in X]
        R = sum(
            weights[i, j] * (D := unfold(T[i] - T[j], mode)) @ D.T
            for i in range(len(X))
            for j in range(len(X))
        )
        V = np.linalg.eigh(R)[1][:, ::-1][:, : U.shape[1]]
        np.testing.assert_allclose(U @ U.T, V @ V.T, atol=atol)


def lda_weights(y):
    sizes = np.bincount(y)[y]
    same = y[:, None] == y
    return 1 / len(y) - same / sizes, same / sizes


# ---------------------------------------------------------------------- weights of LDA


def test_weights_of_lda_sum_to_the_scatters():
    X, y = tensors((6,))
    b, s = lda_weights(y)
    squares = cdist(X, X) ** 2
    means = np.array([X[y == label].mean(axis=0) for label in range(4)])
    within = ((X - means[y]) ** 2).sum()
    between = ((means[y] - X.mean(axis=0)) ** 2).sum()
    np.testing.assert_allclose((s * squares).sum(), 2 * within)
    np.testing.assert_allclose((b * squares).sum(), 2 * between)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("within_weight", [0.0, 0.1, 1.0])
def test_weights_of_lda_give_gtda(shape, within_weight):
    X, y = tensors(shape)
    kept = tuple(
        max(1, min(3, d - 2)) for d in shape
    )  # Four classes have three differences of means.
    gtda = GTDA(kept, within_weight=within_weight, tol=1e-9).fit(X, y)
    b, s = lda_weights(y)
    settings = {"within_weight": within_weight, "tol": 1e-9}
    for embedding in (
        TensorGraphEmbedding(kept, graph="lda", **settings).fit(X, y),
        TensorGraphEmbedding(kept, graph="given", **settings).fit(X, graphs=(b, s)),
        TensorGraphEmbedding(kept, graph="given", **settings).fit(
            X, y, graphs=(sparse.csr_array(b), sparse.coo_array(s))
        ),
    ):
        for ours, theirs in zip(projectors(embedding), projectors(gtda), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        np.testing.assert_allclose(
            embedding.history_["objective"][-1], 2 * gtda.history_["objective"][-1], rtol=1e-8
        )
        np.testing.assert_allclose(embedding.mean_, gtda.mean_, atol=1e-12)


def test_no_array_of_all_pairs_is_formed_for_classes():
    """With five thousand samples, an n × n array would take 200 MB."""
    import tracemalloc

    X, y = tensors((3, 3), n=5000)
    tracemalloc.start()
    TensorGraphEmbedding((2, 2), graph="lda").fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


# ---------------------------------------------------------------------- the objective


@pytest.mark.parametrize("shape", SHAPES)
def test_the_objective_is_a_sum_over_pairs_that_no_step_lowers(shape):
    X, _ = tensors(shape, n=25)
    rng = np.random.default_rng(1)
    b, s = (np.abs(rng.normal(size=(25, 25))) for _ in range(2))  # not symmetric
    kept = tuple(max(1, d - 2) for d in shape)
    found = TensorGraphEmbedding(
        kept, graph="given", within_weight=0.5, tol=1e-9, max_iter=500
    ).fit(X, graphs=(b, s))
    objective = np.array(found.history_["objective"])
    assert (np.diff(objective) >= -1e-9 * np.abs(objective).max()).all()
    weights = b - 0.5 * s
    np.testing.assert_allclose(objective[-1], over_pairs(X, weights, found.factors_), rtol=1e-9)
    is_fixed_point(X, weights, found)
    assert found.converged_


def test_equal_weights_are_the_variance():
    """The embedding is then equal to GTA."""
    X, _ = tensors((5, 4))
    n = len(X)
    found = TensorGraphEmbedding((3, 2), graph="given").fit(
        X, graphs=(np.full((n, n), 1 / n), np.zeros((n, n)))
    )
    gta = GTA((3, 2)).fit(X)
    for ours, theirs in zip(projectors(found), projectors(gta), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


# ---------------------------------------------------------------------- graphs by loops


def nearest(D, k, allowed):
    """Return 1 for pairs in which one is among the k nearest allowed samples of the other."""
    joined = np.zeros(D.shape, bool)
    for i in range(len(D)):
        among = [j for j in np.argsort(D[i], kind="stable") if j != i and allowed[i, j]]
        joined[i, among[:k]] = True
    return joined | joined.T


def lpp_graphs(X, y, k):
    D = cdist(X.reshape(len(X), -1), X.reshape(len(X), -1))
    joined = nearest(D, k, np.ones_like(D))
    s = np.where(joined, np.exp(-(D**2) / np.median(D[joined] ** 2)), 0)
    degrees = s.sum(axis=1)
    return np.outer(degrees, degrees) / degrees.sum(), s


def npe_graphs(X, y, k):
    rows = X.reshape(len(X), -1)
    n = len(rows)
    D = cdist(rows, rows)
    W = np.zeros((n, n))
    for i in range(n):
        near = np.argsort(D[i], kind="stable")[1 : k + 1]
        G = (rows[near] - rows[i]) @ (rows[near] - rows[i]).T
        w = np.linalg.solve(G + 1e-3 * np.trace(G) * np.eye(k), np.ones(k))
        W[i, near] = w / w.sum()
    return np.full((n, n), 1 / n), W + W.T - W.T @ W


def isomap_graphs(X, y, k):
    rows = X.reshape(len(X), -1)
    n = len(rows)
    D = cdist(rows, rows)
    paths = np.where(nearest(D, k, np.ones_like(D)), D, np.inf)
    np.fill_diagonal(paths, 0)
    for j in range(n):  # Floyd and Warshall
        paths = np.minimum(paths, paths[:, [j]] + paths[[j]])
    assert np.isfinite(paths).all()
    H = np.eye(n) - 1 / n
    inner = -H @ paths**2 @ H / 2
    return np.full((n, n), 1 / n), n * inner / np.trace(inner)


def mfa_graphs(X, y, k):
    D = cdist(X.reshape(len(X), -1), X.reshape(len(X), -1))
    same = y[:, None] == y
    return nearest(D, k, ~same).astype(float), nearest(D, k, same).astype(float)


GRAPHS = {"lpp": lpp_graphs, "npe": npe_graphs, "isomap": isomap_graphs, "mfa": mfa_graphs}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_graphs_are_those_of_the_table(name, shape):
    X, y = tensors(shape, n=30, c=3)
    k = 14 if name == "isomap" else 4
    b, s = GRAPHS[name](X, y, k)
    kept = tuple(max(1, d - 2) for d in shape)
    settings = {"within_weight": 0.3, "tol": 1e-9, "max_iter": 500}
    ours = TensorGraphEmbedding(kept, graph=name, n_neighbors=k, **settings).fit(X, y)
    given = TensorGraphEmbedding(kept, graph="given", **settings).fit(X, graphs=(b, s))
    np.testing.assert_allclose(ours.history_["objective"], given.history_["objective"], rtol=1e-6)
    for P, Q in zip(projectors(ours), projectors(given), strict=True):
        np.testing.assert_allclose(P, Q, atol=1e-5)
    is_fixed_point(X, b - 0.3 * s, ours, atol=1e-4)


def test_identical_samples_count_once_where_neighbours_are_sought():
    X, y = tensors(n=30)
    for graph in ("lpp", "npe", "mfa"):
        once = TensorGraphEmbedding((3, 2), graph=graph).fit(X, y)
        twice = TensorGraphEmbedding((3, 2), graph=graph).fit(
            np.concatenate([X, X]), np.append(y, y)
        )
        for P, Q in zip(projectors(once), projectors(twice), strict=True):
            np.testing.assert_allclose(P, Q, atol=1e-6)


def test_units_change_nothing():
    X, y = tensors(n=30)
    for graph in ("lpp", "npe", "isomap", "mfa", "lda"):
        one = TensorGraphEmbedding((3, 2), graph=graph, n_neighbors=9).fit(X, y)
        for moved in (X * 1e-6, X * 1e6, X + 1000):
            other = TensorGraphEmbedding((3, 2), graph=graph, n_neighbors=9).fit(moved, y)
            for P, Q in zip(projectors(one), projectors(other), strict=True):
                np.testing.assert_allclose(P, Q, atol=1e-4)


def test_parts_of_the_graph_are_linked_for_paths():
    X, _ = tensors(n=20)
    X[10:] += 100
    with pytest.warns(UserWarning, match="falls into . parts"):
        TensorGraphEmbedding((2, 2), graph="isomap", n_neighbors=3).fit(X)


# ---------------------------------------------------------------------- invalid input


def test_bad_input_is_named():
    X, _ = tensors()
    n = len(X)
    ones = np.ones((n, n))
    cases = [
        ("lda", {}, "requires y to be passed"),
        ("mfa", {}, "requires y to be passed"),
        ("lpp", {"graphs": (ones, ones)}, "graphs needs graph='given'; got graph='lpp'"),
        ("given", {}, r"graph='given' needs graphs=\(b, s\)"),
        ("given", {"graphs": ones}, r"graphs must be a pair \(b, s\)"),
        ("given", {"graphs": (ones, ones[:-1])}, r"graphs: s has shape \(39, 40\)"),
        ("given", {"graphs": (ones * np.nan, ones)}, "graphs: b contains NaN"),
        ("given", {"graphs": (ones, sparse.csr_array(ones * np.inf))}, "graphs: s contains NaN"),
        ("given", {"graphs": ([["red"]], ones)}, "graphs: b must contain numbers"),
    ]
    for graph, arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            TensorGraphEmbedding(graph=graph).fit(X, **arguments)
    with pytest.raises(ValueError, match="only one class"):
        TensorGraphEmbedding(graph="mfa").fit(X, np.zeros(n))
    with pytest.raises(ValueError, match="n_neighbors=40 must be less than the number of distinct"):
        TensorGraphEmbedding(n_neighbors=40).fit(X)
    with pytest.raises(ValueError, match="all samples in X are equal"):
        TensorGraphEmbedding(graph="lda").fit(np.ones((4, 3, 3)), [0, 0, 1, 1])


def test_given_graphs_are_not_changed():
    X, _ = tensors()
    b, s = np.ones((40, 40)), np.eye(40)
    for array in (b, s):
        array.setflags(write=False)
    TensorGraphEmbedding((2, 2), graph="given").fit(X, graphs=(b, s))
    assert (b == 1).all() and (s == np.eye(40)).all()
