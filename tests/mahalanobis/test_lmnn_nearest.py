"""LMNN with only the nearest impostors: still convex, with a proven bound."""

import warnings

import numpy as np
import pytest
from conic import solved
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from test_lmnn import all_pairs, problem, published

from nearfar import LMNN, MultiMetricLMNN
from nearfar.large_margin.impostors import find_nearest_impostors, find_target_neighbors
from nearfar.large_margin.listed_loss import compute_listed_loss
from nearfar.large_margin.nearest_table import NearestTable
from nearfar.large_margin.pair_lists import (
    compute_listed_distances,
    make_pair_list,
    rank_by_distance,
)
from nearfar.large_margin.problem import LargeMargin


def brute_loss(M, X, y, targets, nearest, mu=0.5):
    """Return the loss by its definition, point by point."""
    difference = X[:, None] - X
    D = np.einsum("ijp,pq,ijq->ij", difference, M, difference)
    loss = 0.0
    for i, row in enumerate(targets):
        others = np.sort(D[i, y != y[i]])[:nearest]
        for j in row[row >= 0]:
            loss += (1 - mu) * D[i, j] + mu * np.maximum(0, 1 + D[i, j] - others).sum()
    return loss


def optimum(X, y, targets, nearest, mu=0.5):
    """Solve with a conic solver: the sum of the largest hinges of each point and target."""
    cp = pytest.importorskip("cvxpy")
    M = cp.Variable((X.shape[1], X.shape[1]), PSD=True)
    loss = 0
    for i, row in enumerate(targets):
        away = X[i] - X[y != y[i]]
        for j in row[row >= 0]:
            near = np.outer(X[i] - X[j], X[i] - X[j])
            gaps = np.stack([(near - np.outer(a, a)).ravel() for a in away])
            hinges = cp.pos(1 + gaps @ cp.vec(M, order="C"))
            loss += (1 - mu) * cp.trace(near @ M) + mu * cp.sum_largest(hinges, nearest)
    task = cp.Problem(cp.Minimize(loss))
    return solved(task)


@pytest.mark.parametrize("nearest", [1, 3, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("form", ["list", "table"])
def test_the_loss_and_its_gradient(nearest, smoothing, form):
    X, y = problem(0)
    targets = find_target_neighbors(X, y, 2)
    targets[3:5, 1] = targets[9] = -1
    L = 0.3 * np.random.default_rng(1).normal(size=(4, 4))
    table = NearestTable(all_pairs(y), targets, nearest)

    def loss(L):
        Z = X @ L.T
        if form == "table":
            return table.loss(table.measure(Z), Z, 0.4, smoothing)
        return compute_listed_loss(Z, targets, all_pairs(y), 0.4, smoothing, nearest=nearest)

    if smoothing == 0:
        assert loss(L).loss == pytest.approx(brute_loss(L.T @ L, X, y, targets, nearest, 0.4))
    step = np.random.default_rng(2).normal(size=L.shape)
    slope = (loss(L + 1e-6 * step).loss - loss(L - 1e-6 * step).loss) / 2e-6
    assert slope == pytest.approx(np.sum(step * (2 * loss(L).laplacian_v.T @ X)), rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("nearest", [2, 6])
@pytest.mark.parametrize("some", [0, 1, 40, None])
def test_a_table_of_hinges_is_the_list(dtype, nearest, some):
    # Lists of different lengths; some are empty or shorter than n_impostors.
    rng = np.random.default_rng(0)
    X, y = problem(0)
    targets = find_target_neighbors(X, y, 3)
    targets[::7, 2] = -1
    every = all_pairs(y)
    kept = np.sort(rng.choice(len(every.indices), some or 0, replace=False))
    if some is None:
        kept = np.flatnonzero(rng.random(len(every.indices)) < 0.3)
    pairs = make_pair_list([(every.centers[kept], every.indices[kept])], len(X))
    table = NearestTable(pairs, targets, nearest)
    for scale in (0.3, 0.5):  # The second call reuses the state of the first.
        Z, V = (scale * X).astype(dtype), rng.normal(size=(len(X), 2)).astype(dtype)
        wanted = compute_listed_loss(Z, targets, pairs, 0.4, 0.1, V, nearest)
        found = table.loss(table.measure(Z), V, 0.4, 0.1)
        assert found.laplacian_v.dtype == dtype
        np.testing.assert_allclose(
            found.laplacian_v,
            wanted.laplacian_v,
            rtol=1e-5,
            atol=2e-4 if dtype == np.float32 else 1e-10,
        )
        assert found[0::2] == pytest.approx(wanted[0::2])
        assert found.slopes == pytest.approx(wanted.slopes)
        by_center = [
            np.sort(ranks)
            for ranks in np.split(
                compute_listed_distances(Z, pairs.centers, pairs.indices), pairs.indptr[1:-1]
            )
        ]
        last = [ranks[nearest - 1] if len(ranks) >= nearest else np.inf for ranks in by_center]
        np.testing.assert_allclose(table.find_last_distances(table.measure(Z).distances), last)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("nearest", [1, 2, 5])
@pytest.mark.filterwarnings("ignore:With n_impostors")
def test_it_reaches_the_optimum_and_the_bound_is_below_it(seed, nearest):
    X, y = make_blobs(30, 4, centers=3, cluster_std=1.3, random_state=seed, center_box=(-3, 3))
    lmnn = published(min(nearest, 2), n_impostors=nearest, tol=1e-9).fit(X, y)
    best = optimum(X, y, lmnn.target_neighbors_, nearest)
    assert lmnn.objective_ == pytest.approx(
        brute_loss(lmnn.get_mahalanobis_matrix(), X, y, lmnn.target_neighbors_, nearest), rel=1e-9
    )
    # The loss has kinks, which are not rounded, where impostors change their order.
    assert best * (1 - 1e-6) <= lmnn.objective_ <= best * 1.001
    assert lmnn.dual_bound_ <= best * (1 + 1e-6)
    # At the zero map the nearest impostors are not defined, and the bound is poor.
    zero = best >= 0.999 * 0.5 * 30 * min(nearest, 2) * nearest
    assert zero or lmnn.dual_bound_ > 0.8 * best
    assert not zero or nearest < 5


def test_a_map_that_is_all_but_zero_is_warned_of():
    X, y = problem(2, n=30)
    with pytest.warns(UserWarning, match="n_impostors=1 the learned map is close to zero"):
        lmnn = published(2, n_impostors=1).fit(X, y)
    assert lmnn.objective_ == pytest.approx(optimum(X, y, lmnn.target_neighbors_, 1), rel=1e-3)
    assert np.isfinite(lmnn.components_).all()


def test_with_enough_impostors_it_is_lmnn():
    X, y = problem(3)
    every, some = (published(n_impostors=m, tol=1e-9).fit(X, y) for m in (None, 36))
    assert some.objective_ == pytest.approx(every.objective_, rel=1e-6)


def test_points_deep_in_another_class_weigh_less():
    # Two classes side by side along x, with some points far inside the other class.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * [0.5, 5]
    y = np.repeat([0, 1], 150)
    X[y == 1, 0] += 2
    X[:30, 0] += 2
    X[150:180, 0] -= 2

    def weight_of_x(**settings):
        M = LMNN(n_passes=1, **settings).fit(X, y).get_mahalanobis_matrix()
        return M[0, 0] / M[1, 1]

    assert weight_of_x(n_impostors=5) > 1.4 * weight_of_x(n_impostors=None)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("crowded", [False, True])
def test_the_nearest_of_each_point_are_found(crowded, at_once, monkeypatch):
    monkeypatch.setattr("nearfar.large_margin.impostors._FEW_POINTS", 300 if at_once else 0)
    rng = np.random.default_rng(0)
    Z, codes = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    Z[50:60] = Z[100:110]  # This creates ties.
    reach = rng.uniform(0.2, 1.0, 300) * (20 if crowded else 0.5)
    reach[7] = -np.inf
    pairs, radius = find_nearest_impostors(Z, codes, reach, 4)
    D = ((Z[:, None] - Z) ** 2).sum(axis=2)
    D[codes[:, None] == codes] = np.inf
    for i in range(300):
        mine = pairs.indices[pairs.indptr[i] : pairs.indptr[i + 1]]
        within = np.sort(D[i][D[i] < reach[i]])
        np.testing.assert_allclose(np.sort(D[i, mine]), within[:4], rtol=1e-9)
        wanted = within[3] if len(within) >= 4 else reach[i]
        assert radius[i] == pytest.approx(wanted)


@pytest.mark.parametrize("n_each", [(3, 4, 5), (1, 1, 900), ()])
def test_order_of_nearness(n_each):
    centers = np.repeat(np.arange(0, 2 * len(n_each), 2), n_each)
    distances = np.random.default_rng(0).integers(0, 5, len(centers)).astype(float)
    rank = rank_by_distance(centers, distances)
    for center in np.unique(centers):
        mine = centers == center
        assert sorted(rank[mine]) == list(range(mine.sum()))
        assert (np.diff(distances[mine][np.argsort(rank[mine])]) >= 0).all()


def test_a_list_that_lacks_a_near_pair_is_not_called_complete():
    X, y = make_blobs(80, 3, centers=2, cluster_std=3, random_state=0)
    targets = find_target_neighbors(X, y, 3)
    loss = LargeMargin(X, y, targets, 0.5, nearest=1)
    L = 0.5 * np.eye(3)
    loss.search(L)
    assert loss.is_complete(L)
    told = []
    for shrunk in np.linspace(0, 0.2, 41):
        other = 0.5 * np.diag([1.0, 1.0, np.exp(-shrunk)])
        told.append(loss.is_complete(other))
        if told[-1]:
            M = other.T @ other
            assert loss.evaluate_exactly(other).loss == pytest.approx(
                brute_loss(M, X, y, targets, 1)
            )
    assert 1 < sum(told) < 41  # A search is needed sometimes, but not always.


def test_several_metrics_count_the_nearest_too():
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        few, every = (
            MultiMetricLMNN(LMNN(n_impostors=m, max_iter=50), validation_fraction=0).fit(X, y)
            for m in (1, None)
        )
    assert few.objective_ < every.objective_
    assert few.score(X, y) > 0.95


def test_bad_numbers_of_impostors():
    X, y = load_iris(return_X_y=True)
    for bad in (0, -1, 2.5, "all"):
        with pytest.raises((ValueError, TypeError), match="n_impostors"):
            LMNN(n_impostors=bad).fit(X, y)
