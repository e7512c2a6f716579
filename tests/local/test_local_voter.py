"""Tests of the behavior that all classifiers with a local metric share."""

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV

from nearfar import LDA, all_estimators
from nearfar.base.local_voter import LocalClassifier, compute_deviations
from nearfar.summaries.local_rows import LocalMetrics, LocalRows

X, y = load_wine(return_X_y=True)
CLASSIFIERS = {
    name: cls for name, cls in all_estimators().items() if issubclass(cls, LocalClassifier)
}
for_all_classifiers = pytest.mark.parametrize("name", sorted(CLASSIFIERS))


@for_all_classifiers
def test_one_query_at_a_time_small_blocks_and_threads_give_the_same(name, monkeypatch):
    rule = CLASSIFIERS[name]().fit(X[::2], y[::2])
    queries = X[1::2][:12]
    distances, found = rule.kneighbors(queries)
    for row, query in enumerate(queries):
        alone = rule.kneighbors(query[None])
        assert alone[1][0].tolist() == found[row].tolist()
        np.testing.assert_allclose(alone[0][0], distances[row], rtol=1e-7)
    with sklearn.config_context(working_memory=1e-3):
        small = rule.kneighbors(queries)
    monkeypatch.setattr(type(rule), "max_queries_per_block", 5)
    for blocks in (small, rule.set_params(n_jobs=2).kneighbors(queries)):
        np.testing.assert_array_equal(blocks[1], found)
        np.testing.assert_allclose(blocks[0], distances, rtol=1e-7)
    shares = rule.predict_proba(queries)
    assert rule.classes_[shares.argmax(axis=1)].tolist() == rule.predict(queries).tolist()


@for_all_classifiers
def test_metrics_are_in_the_units_of_the_rows(name):
    scale = np.linspace(0.5, 100, X.shape[1])
    plain = CLASSIFIERS[name]().fit(X, y).metric_at(X[:4])
    scaled = CLASSIFIERS[name]().fit(X * scale, y).metric_at(X[:4] * scale)
    assert plain.shape == (4, 13, 13)
    back = scaled * np.outer(scale, scale)
    units = np.outer(X.std(axis=0), X.std(axis=0))
    np.testing.assert_allclose(back * units, plain * units, atol=1e-6 * np.abs(plain * units).max())
    np.testing.assert_array_equal(plain, plain.transpose(0, 2, 1))


@for_all_classifiers
def test_a_learner_maps_first_and_constant_columns_count_for_nothing(name):
    rule = CLASSIFIERS[name](LDA()).fit(X, y)
    assert rule.metric_at(X[:2]).shape == (2, 2, 2)
    assert rule.score(X, y) > 0.95
    with_constant = np.column_stack([X, np.full(len(X), 7.1)])
    rule = CLASSIFIERS[name]().fit(with_constant, y)
    assert rule.deviations_[-1] == 0
    assert rule.kneighbors(with_constant[:3])[1].shape == (3, rule.n_neighbors)


@for_all_classifiers
def test_grid_and_settings_suit_small_folds(name):
    grid = CLASSIFIERS[name].grid(X[:60], y[:60])
    assert all(isinstance(values, list) and values for values in grid.values())
    tiny = {key: values[-1:] for key, values in grid.items()}
    GridSearchCV(CLASSIFIERS[name](), tiny, cv=2, error_score="raise").fit(X[::3], y[::3])
    for setting in CLASSIFIERS[name].settings:
        CLASSIFIERS[name](**setting)._check_parameters()


@for_all_classifiers
def test_identical_rows_come_in_the_order_of_their_numbers(name):
    again = np.concatenate([X[:50], X[60:110], X[:50], X[60:110]])
    labels = np.concatenate([y[:50], y[60:110]] * 2)
    distances, found = CLASSIFIERS[name](n_neighbors=4).fit(again, labels).kneighbors(again[:20])
    equal = np.isclose(distances[:, :-1], distances[:, 1:], rtol=0, atol=0)
    assert equal.sum() >= 10
    assert (found[:, 1:] > found[:, :-1])[equal].all()


def make_rows_and_metrics(n=60, b=7, p=4, seed=0):
    random = np.random.default_rng(seed)
    given = random.integers(0, 3, (n, p)).astype(float)  # many ties
    rows = LocalRows(given, np.zeros(n, np.intp), 1, np.array([0.7, 1.3, 0.9, 2.1])[:p])
    factors = random.normal(size=(b, p, p))
    full = LocalMetrics(full=factors @ factors.transpose(0, 2, 1))
    weights = random.uniform(0, 2, (b, p))
    few = LocalMetrics(weights=weights, directions=random.normal(size=(b, 2, p)))
    return rows, given[:b], [full, LocalMetrics(weights=weights), few]


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_search_is_that_of_all_differences(kind):
    rows, queries, metrics = make_rows_and_metrics()
    metric = metrics[kind]
    distances, found = rows.find_nearest(rows.make_queries(queries), metric, 9)
    window = rows.find_window(rows.make_queries(queries), metric, 9)
    for i, matrix in enumerate(metric.to_matrices()):
        apart = (rows.X - queries[i]) / rows.scale
        squares = [float(u @ matrix @ u) for u in apart]
        order = np.argsort(np.round(squares, 10), kind="stable")[:9]
        assert found[i].tolist() == order.tolist()
        np.testing.assert_allclose(distances[i] ** 2, np.array(squares)[order], atol=1e-12)
        assert window.indices[i].tolist() == sorted(order)
        np.testing.assert_allclose(window.radius[i], squares[order[-1]], atol=1e-12)
    np.testing.assert_allclose(
        metric.get_diagonals(), np.einsum("ijj->ij", metric.to_matrices()), atol=1e-12
    )
    assert (
        np.linalg.norm(metric.to_matrices(), 2, axis=(1, 2)) <= metric.bound_eigenvalues() + 1e-12
    ).all()


def test_products_in_blocks_are_the_same(monkeypatch):
    rows, queries, metrics = make_rows_and_metrics()
    at_once = rows.compute_squared_distances(rows.make_queries(queries), metrics[0])[0]
    monkeypatch.setattr("nearfar.summaries.local_rows._MAX_PRODUCT_BYTES", 500)
    blocks = rows.compute_squared_distances(rows.make_queries(queries), metrics[0])[0]
    np.testing.assert_allclose(blocks, at_once, atol=1e-12)


def test_far_rows_do_not_hide_near_ones():
    # Rounding errors of products of 1e5 are larger than the distances between rows near the query.
    random = np.random.default_rng(1)
    given = np.concatenate([random.normal(size=(40, 3)) * 1e-4, [[1e5, 1e5, -1e5]]])
    rows = LocalRows(given, np.zeros(41, np.intp), 1, np.ones(3))
    metric = LocalMetrics(full=np.tile(np.eye(3), (2, 1, 1)))
    _, found = rows.find_nearest(rows.make_queries(given[:2]), metric, 5)
    wanted = np.argsort(((given - given[:2, None]) ** 2).sum(axis=2), axis=1)[:, :5]
    np.testing.assert_array_equal(found, wanted)


def test_deviations():
    some = np.column_stack([[0.0, 2, 4], [0.1, 0.1, 0.1]])
    np.testing.assert_allclose(compute_deviations(some), [np.sqrt(8 / 3), 0])
    assert compute_deviations(np.full((7, 1), 0.1))[0] == 0
    with pytest.raises(ValueError, match="overflow"):
        compute_deviations(np.array([[1e200], [-1e200]]))


@for_all_classifiers
def test_explanations_add_up(name):
    rule = CLASSIFIERS[name]().fit(X, y)
    why = rule.explain(X[:9])
    distances, found = rule.kneighbors(X[:9])
    np.testing.assert_array_equal(why.neighbors, found)
    np.testing.assert_allclose(why.relevance.sum(axis=1), 1)
    np.testing.assert_array_equal(why.labels, rule.predict(X[:9]))
    if getattr(rule, "is_metric", True):
        np.testing.assert_allclose(why.contributions.sum(axis=2), distances**2, atol=1e-9)
        variances = X.var(axis=0)
        costs = np.einsum("ijj->ij", rule.metric_at(X[:9])) * variances
        shares = costs / costs.sum(axis=1, keepdims=True)
        if (
            name == "FriedmanClassifier"
        ):  # its relevance is the mean over cuts with different metrics
            n_cuts = len(rule.region_sizes()) - 1
            shares = np.mean([rule.relevance_at(X[:9], step) for step in range(n_cuts)], axis=0)
        np.testing.assert_allclose(why.relevance, shares, atol=1e-9)
    assert why.overall is not None
    assert rule.explain(X[:2], overall=False).overall is None
    after = CLASSIFIERS[name](LDA()).fit(X, y).explain(X[:2], overall=False)
    assert after.feature_names == ["lda0", "lda1"]


def test_both_ways_to_weigh_by_the_tri_cube_agree():
    rows, queries, metrics = make_rows_and_metrics()
    for own in (None, np.arange(7)):
        asked = rows.make_queries(queries, own)
        dense, radius, _ = rows.compute_tricube_weights(asked, metrics[0], 20)
        window = rows.find_window(asked, metrics[0], 20)
        np.testing.assert_allclose(radius, window.radius, rtol=1e-9)
        wanted = rows.moments.make_dense_weights(window.indices, window.compute_tricube_weights())
        np.testing.assert_allclose(dense, wanted, atol=1e-9)
