"""Tests of DANN against a loop over queries, known values, limits and iterations."""

import warnings

import numpy as np
import pytest
from dann_oracle import compute_metric, compute_metric_at, compute_scatters
from scipy.stats import multivariate_normal
from sklearn.datasets import load_wine, make_classification

from nearfar import DANNClassifier, KNNClassifier
from nearfar.summaries.local_scatters import choose_window_size

T6 = np.array([[0.0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]])
T6_LABELS = np.array([-1, -1, -1, 1, 1, 1])
THREE = load_wine(return_X_y=True)
TWO = make_classification(
    150, 5, n_informative=3, n_redundant=1, n_clusters_per_class=2, random_state=3
)


@pytest.mark.parametrize("n_iter", [1, 3])
@pytest.mark.parametrize("weights", ["tricube", "uniform"])
@pytest.mark.parametrize(("X", "y"), [TWO, THREE], ids=["two classes", "three"])
def test_metrics_neighbors_and_votes_are_those_of_a_loop(X, y, weights, n_iter):
    known, new = np.arange(len(X)) % 3 > 0, np.arange(len(X)) % 6 == 0
    said = {"epsilon": 0.8, "max_iter": n_iter, "shrinkage": 0.02, "weights": weights}
    dann = DANNClassifier(n_metric_neighbors=45, **said).fit(X[known], y[known])
    scale = X[known].std(axis=0)
    rows, codes, queries = X[known] / scale, y[known], X[new] / scale
    metrics = [compute_metric_at(rows, codes, query, 45, **said) for query in queries]
    found = dann.metric_at(X[new]) * np.outer(scale, scale)
    size = np.abs(metrics).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(found / size, metrics / size, atol=1e-8)
    distances, neighbors = dann.kneighbors(X[new])
    for i, metric in enumerate(metrics):
        apart = rows - queries[i]
        squares = np.einsum("ij,jk,ik->i", apart, metric, apart)
        order = np.argsort(squares, kind="stable")[:5]
        assert neighbors[i].tolist() == order.tolist()
        np.testing.assert_allclose(distances[i], np.sqrt(squares[order]), rtol=1e-7)
    votes = np.array([np.bincount(codes[near], minlength=3) for near in neighbors])
    clear = np.sort(votes, axis=1)[:, -1] > np.sort(votes, axis=1)[:, -2]
    assert clear.sum() > 15
    assert dann.predict(X[new])[clear].tolist() == votes[clear].argmax(axis=1).tolist()


@pytest.mark.parametrize("n_iter", [1, 2])
def test_left_out_rows_make_no_part_of_their_metrics(n_iter):
    X, y = TWO[0][:60], TWO[1][:60]
    dann = DANNClassifier(n_neighbors=1, n_metric_neighbors=60, max_iter=n_iter).fit(X, y)
    rows, wrong = X / X.std(axis=0), 0
    for i in range(60):
        others = np.delete(np.arange(60), i)
        metric = compute_metric_at(rows[others], y[others], rows[i], 59, max_iter=n_iter)
        apart = rows[others] - rows[i]
        wrong += y[others[((apart @ metric) * apart).sum(axis=1).argmin()]] != y[i]
    assert dann.leave_one_out_error() == wrong / 60


def test_anchors_on_six_points():
    dann = DANNClassifier(
        n_neighbors=1, n_metric_neighbors=6, weights="uniform", shrinkage=0.0, standardize=False
    ).fit(T6, T6_LABELS)
    wanted = [[33.48870392, 2.98929845], [2.98929845, 1.09512485]]
    np.testing.assert_allclose(dann.metric_at([[2, 2], [0, 9]]), [wanted, wanted], rtol=1e-8)
    rows = dann._rows()
    queries = rows.make_queries(np.array([[2.0, 2.0]]))
    window = rows.find_window(queries, type(dann._metrics(rows, queries)).euclidean(1, 2), 6)
    np.testing.assert_allclose(
        window.compute_tricube_weights()[0],
        [0, 0.1294729, 0.27014565, 0.87319054, 0.1294729, 0.66992188],
        atol=1e-8,
    )


def test_an_affine_map_of_the_rows_maps_the_metric():
    # eps multiplies S_w^-1, so this is exact with the same neighbors and without shrinkage.
    random = np.random.default_rng(0)
    X, y = random.normal(size=(90, 5)) + np.arange(90)[:, None] % 3, np.arange(90) % 3
    T = random.normal(size=(5, 5)) + 3 * np.eye(5)
    said = {
        "n_metric_neighbors": len(X),
        "shrinkage": 0.0,
        "standardize": False,
        "weights": "uniform",
    }
    here = DANNClassifier(**said).fit(X, y).metric_at(X[:5])
    there = DANNClassifier(**said).fit(X @ T, y).metric_at(X[:5] @ T)
    back = np.linalg.inv(T)
    np.testing.assert_allclose(there, back @ here @ back.T, rtol=1e-8)


def test_epsilon_from_a_direction_to_the_covariance_within():
    X, y = THREE
    rows = X / X.std(axis=0)
    said = {"n_metric_neighbors": len(X), "weights": "uniform", "shrinkage": 0.0}
    within, between = compute_scatters(rows, y, np.ones(len(X)))
    units = np.outer(X.std(axis=0), X.std(axis=0))
    large = DANNClassifier(epsilon=1e9, **said).fit(X, y).metric_at(X[:1])[0] * units
    np.testing.assert_allclose(large / 1e9, np.linalg.inv(within), rtol=1e-5, atol=1e-6)
    small = DANNClassifier(epsilon=1e-12, **said).fit(X, y).metric_at(X[:1])[0] * units
    values = np.linalg.eigvalsh(small)
    assert (values[:-2] < 1e-9 * values[-1]).all()  # rank 2 of 3 classes
    assert values[-2] > 1e-3 * values[-1]
    inverse = np.linalg.inv(within)
    np.testing.assert_allclose(small, inverse @ between @ inverse, rtol=1e-6, atol=1e-8)


def test_with_large_epsilon_and_full_shrinkage_it_is_k_nn():
    X, y = TWO
    dann = DANNClassifier(epsilon=1e12, shrinkage=1.0, n_metric_neighbors=len(X)).fit(X, y)
    knn = KNNClassifier(n_neighbors=5).fit(X / X.std(axis=0), y)
    found, wanted = dann.kneighbors(X[:50])[1], knn.kneighbors(X[:50] / X.std(axis=0))[1]
    np.testing.assert_array_equal(found, wanted)


def test_the_chi_squared_distance_of_posteriors_has_its_limit_in_the_metric():
    # P(j|x) = P(j|x0) (1 + (mu_j - mubar)' S^-1 (x - x0)): a plus; the survey prints a minus.
    random = np.random.default_rng(2)
    means = np.array([[0.0, 0], [1, 0.5], [-0.5, 1]])
    cov = np.array([[1.0, 0.3], [0.3, 0.6]])

    def posterior(x):
        each = np.array([multivariate_normal(mean, cov).pdf(x) for mean in means])
        return each / each.sum()

    x0, step = np.array([0.2, 0.3]), random.normal(size=2)
    at = posterior(x0)
    mean = at @ means
    B = sum(share * np.outer(m - mean, m - mean) for share, m in zip(at, means, strict=True))
    inverse = np.linalg.inv(cov)
    errors, signs = [], []
    for size in (1e-1, 1e-2, 1e-3):
        u = size * step
        chi = ((posterior(x0 + u) - at) ** 2 / at).sum()
        errors.append(abs(chi / (u @ inverse @ B @ inverse @ u) - 1))
        taylor = at * (1 + (means - mean) @ inverse @ u)
        minus = at * (1 - (means - mean) @ inverse @ u)
        signs.append(abs(posterior(x0 + u) - taylor).max() / abs(posterior(x0 + u) - minus).max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-2
    assert signs[2] < 1e-2


def test_iterations_need_not_converge():
    # The survey says "iterate until convergence". Here, two sets of neighbors alternate forever,
    # because with equal weights a set of neighbors determines the next metric.
    X = np.random.default_rng(88).integers(-4, 5, (10, 2)).astype(float)
    y, query, sigma, sets = np.arange(10) % 2, np.zeros(2), np.eye(2), []
    for _ in range(12):
        far = np.einsum("ij,jk,ik->i", X, sigma, X)
        near = np.argsort(far, kind="stable")[:5]
        assert not sets or np.sort(far)[5] - np.sort(far)[4] > 1e-3  # not a rounding effect
        sets.append(frozenset(near))
        sigma = compute_metric(*compute_scatters(X[near], y[near], np.ones(5)), 1.0, 1e-3)
    assert sets[-1] == sets[-3] != sets[-2] == sets[-4]
    said = {"n_metric_neighbors": 5, "weights": "uniform", "standardize": False}
    stopped = DANNClassifier(max_iter=1000, **said).fit(X, y).metric_at([query])[0]
    wanted = compute_metric_at(X, y, query, 5, max_iter=1000, weights="uniform")
    np.testing.assert_allclose(stopped, wanted, rtol=1e-8)


def test_a_window_far_smaller_than_the_data_keeps_its_digits():
    # Uncentered sums lose 12 digits of these numbers; the metric must not.
    random = np.random.default_rng(0)
    one = random.normal(size=(40, 2))
    y = (one[:, 0] > 0).astype(int)
    X = np.concatenate([one * 1e-6, [[0.5, 1.0]] + one * 1e-6])
    said = {"n_metric_neighbors": 40, "standardize": False}
    far = DANNClassifier(**said).fit(X, np.tile(y, 2)).metric_at(X[:3])
    alone = DANNClassifier(**said).fit(one, y).metric_at(one[:3]) * 1e12
    scaled = [compute_metric_at(one, y, query, 40) for query in one[:3]]
    size = np.abs(alone).max()
    # eps S_w^-1 and S_w^-1 S_b S_w^-1 both scale with the inverse square of the unit.
    np.testing.assert_allclose(far / size, alone / size, atol=1e-8)
    np.testing.assert_allclose(alone / size, np.array(scaled) * 1e12 / size, atol=1e-8)


def test_duplicates_single_rows_and_windows_of_one_class():
    X = np.repeat([[0.0, 0], [1, 0], [5, 5]], 20, axis=0)
    y = np.repeat([0, 1, 1], 20)
    for m in (
        4,
        20,
        40,
        60,
    ):  # h = 0, and identical rows within each class: zero within-class scatter
        dann = DANNClassifier(n_metric_neighbors=m).fit(X, y)
        assert np.isfinite(dann.metric_at(X[::20])).all()
        assert dann.score(X, y) == 1
    lone = DANNClassifier(n_neighbors=1, n_metric_neighbors=30).fit(TWO[0], [7, *TWO[1][1:]])
    assert lone.predict(TWO[0][:1]).tolist() == [7]
    one = DANNClassifier(n_metric_neighbors=30).fit(TWO[0], np.zeros(150, int))
    assert set(one.predict(TWO[0]).tolist()) == {0}
    same = DANNClassifier(n_neighbors=1, n_metric_neighbors=5).fit(
        np.ones((6, 2)), [0, 1, 0, 1, 0, 1]
    )
    assert same.kneighbors(np.ones((1, 2)))[1].tolist() == [[0]]


def test_more_features_than_rows_say_that_shrinkage_does_it():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(30, 60)), np.arange(30) % 2
    with pytest.warns(
        UserWarning, match=r"n_metric_neighbors=30 points are too few for 60 features and 2 classes"
    ):
        dann = DANNClassifier(shrinkage=0.1).fit(X, y)
    assert np.isfinite(dann.kneighbors(X)[0]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DANNClassifier().fit(*THREE)


def test_bad_sizes_are_named():
    with pytest.raises(
        ValueError, match=r"n_metric_neighbors=151 is larger than .* \(n_samples=150\)"
    ):
        DANNClassifier(n_metric_neighbors=151).fit(*TWO)
    with pytest.raises(ValueError, match="epsilon must be a number above 0"):
        DANNClassifier(epsilon=0.0).fit(*TWO)


def test_default_size():
    assert choose_window_size(178, 13, 3) == 160
    assert choose_window_size(8000, 16, 26) == 1600
    assert choose_window_size(40, 13, 3) == 40
    assert choose_window_size(200, 2, 2) == 50


def test_queries_too_far_for_floating_point_numbers_are_refused():
    random = np.random.default_rng(0)
    y = np.arange(36) % 3
    X = random.normal(size=(36, 4)) + 2 * random.normal(size=(3, 4))[y]
    with pytest.raises(ValueError, match="distances between rows of X overflow"):
        DANNClassifier().fit(X, y).predict(X * 1e99)
