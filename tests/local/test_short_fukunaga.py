"""Tests of the metric of Short and Fukunaga against a loop over queries, and special cases."""

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_moons

from nearfar import ShortFukunagaClassifier

WINE = load_wine(return_X_y=True)
MOONS = make_moons(120, noise=0.3, random_state=0)


def compute_metric(rows, codes, query, n_metric_neighbors, epsilon):
    """Return the metric of one query by definition, for standardized features."""
    far = np.sqrt(((rows - query) ** 2).sum(axis=1))
    near = np.argsort(far, kind="stable")[:n_metric_neighbors]
    counts = np.bincount(codes[near], minlength=2)
    # Of equally frequent classes, those with the nearest rows count.
    ranks = [[*codes[near], code].index(code) for code in range(len(counts))]
    one, two = np.lexsort((ranks, -counts))[:2]
    metric = epsilon * np.eye(rows.shape[1])
    if counts[two]:
        v = rows[near][codes[near] == one].mean(axis=0) - rows[near][codes[near] == two].mean(
            axis=0
        )
        metric += np.outer(v, v) / (v @ v)
    return metric


@pytest.mark.parametrize(("X", "y"), [WINE, MOONS], ids=["three classes", "two"])
@pytest.mark.parametrize("left_out", [False, True])
def test_metrics_neighbors_and_votes_are_those_of_a_loop(X, y, left_out):
    rule = ShortFukunagaClassifier(n_metric_neighbors=40, epsilon=0.2).fit(X, y)
    rows = X / X.std(axis=0)
    distances, found = rule._nearest(None, 5) if left_out else rule.kneighbors(X)
    if not left_out:
        units = np.outer(X.std(axis=0), X.std(axis=0))
        wanted = [compute_metric(rows, y, row, 40, 0.2) for row in rows]
        np.testing.assert_allclose(rule.metric_at(X) * units, wanted, atol=1e-8)
    wrong = 0
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i) if left_out else np.arange(len(X))
        metric = compute_metric(rows[others], y[others], rows[i], 40, 0.2)
        apart = rows[others] - rows[i]
        squares = ((apart @ metric) * apart).sum(axis=1)
        order = np.argsort(squares, kind="stable")[:5]
        assert others[order].tolist() == found[i].tolist()
        np.testing.assert_allclose(distances[i], np.sqrt(squares[order].clip(0)), atol=1e-7)
        votes = [y[others[order[:k]]] for k in (5, 4, 3, 2, 1)]
        counts = [np.sort(np.bincount(some, minlength=2)) for some in votes]
        last = next(k for k, count in enumerate(counts) if count[-1] > count[-2])
        wrong += np.bincount(votes[last]).argmax() != y[i]
    if left_out:
        assert rule.leave_one_out_error() == wrong / len(X)
    else:
        assert np.mean(rule.predict(X) != y) == wrong / len(X)


def test_a_window_of_one_class_or_of_equal_means_is_euclidean():
    X = np.array([[0.0, 0], [0, 2], [2, 0], [2, 2], [40, 0], [41, 0]])
    rule = ShortFukunagaClassifier(
        n_neighbors=1, n_metric_neighbors=4, epsilon=0.5, standardize=False
    )
    at = rule.fit(X, [0, 1, 1, 0, 1, 1]).metric_at([[1, 1], [40, 0]])
    np.testing.assert_allclose(at[0], 0.5 * np.eye(2), atol=1e-12)  # both means are (1, 1)
    far = rule.set_params(n_metric_neighbors=2).fit(X, [0, 0, 0, 0, 1, 1]).metric_at([[40.0, 0]])
    np.testing.assert_array_equal(far[0], 0.5 * np.eye(2))


def test_more_rows_than_there_are_make_no_metric():
    with pytest.raises(
        ValueError, match=r"n_metric_neighbors=121 is larger than .* \(n_samples=120\)"
    ):
        ShortFukunagaClassifier(n_metric_neighbors=121).fit(*MOONS)


def test_predictions_do_not_depend_on_the_names_of_classes():
    random = np.random.RandomState(0)
    y = np.arange(36) % 3
    X = random.normal(size=(36, 4)) + random.normal(size=(3, 4))[y]
    queries = random.normal(size=(60, 4))
    found = ShortFukunagaClassifier().fit(X, y)
    for names in np.array([[2, 0, 1], [1, 2, 0], [0, 2, 1]]):
        renamed = ShortFukunagaClassifier().fit(X, names[y])
        np.testing.assert_array_equal(renamed.predict(queries), names[found.predict(queries)])
        assert renamed.leave_one_out_error() == found.leave_one_out_error()
