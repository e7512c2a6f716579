"""Tests of the quasiconformal distance against a loop over queries and identities."""

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_moons

from nearfar import QuasiconformalClassifier

THREE = load_wine(return_X_y=True)
TWO = make_moons(120, noise=0.35, random_state=0)


def compute_posterior(rows, codes, query, k, n_classes, smoothing=1.0):
    near = np.argsort(((rows - query) ** 2).sum(axis=1), kind="stable")[:k]
    counts = np.bincount(codes[near], minlength=n_classes)
    return (counts + smoothing) / (k + smoothing * n_classes)


def compute_posteriors(rows, codes, k, n_classes, smoothing=1.0):
    """Return the posteriors of training rows, each estimated from the other rows."""
    everyone = np.arange(len(rows))
    return np.array(
        [
            compute_posterior(
                rows[everyone != i], codes[everyone != i], rows[i], k, n_classes, smoothing
            )
            for i in everyone
        ]
    )


def compute_distances(rows, codes, query, k, covariance, exact=True, smoothing=1.0):
    """D from the kernel's own formula, c(x)^2 - 2 c(x) c(x0) K + c(x0)^2."""
    n_classes = codes.max() + 1
    here = compute_posterior(rows, codes, query, k, n_classes, smoothing)
    # Of equally probable classes, the one with the nearest row leads.
    near = codes[np.argsort(((rows - query) ** 2).sum(axis=1), kind="stable")]
    leader = next(code for code in near if here[code] == here.max())
    c = (1 - compute_posteriors(rows, codes, k, n_classes, smoothing)[:, leader]) / here[leader]
    c0 = (1 - here[leader]) / here[leader]
    apart = rows - query
    squares = np.einsum("ij,ij->i", apart @ np.linalg.inv(covariance), apart)
    if exact:
        return c**2 - 2 * c * c0 * np.exp(-squares / 2) + c0**2
    return ((here[leader] - (1 - c * here[leader])) / here[leader]) ** 2 + c * c0 * squares


def compute_covariance(rows, rho=1e-3):
    found = np.cov(rows.T, bias=True)
    return (1 - rho) * found + rho * np.trace(found) / len(found) * np.eye(len(found))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("X", "y"), [TWO, THREE], ids=["two classes", "three"])
def test_distances_and_votes_are_those_of_a_loop(X, y, exact):
    known, new = np.arange(len(X)) % 2 == 0, np.arange(len(X)) % 6 == 1
    rule = QuasiconformalClassifier(n_posterior_neighbors=8, exact=exact).fit(X[known], y[known])
    scale = X[known].std(axis=0)
    rows, codes = X[known] / scale, y[known]
    np.testing.assert_allclose(
        rule.posterior_, compute_posteriors(rows, codes, 8, codes.max() + 1), atol=1e-12
    )
    covariance = compute_covariance(rows)
    D = rule.distance_at(X[new])
    distances, found = rule.kneighbors(X[new])
    metrics = rule.metric_at(X[new]) * np.outer(scale, scale)
    for i, query in enumerate(X[new] / scale):
        wanted = compute_distances(rows, codes, query, 8, covariance, exact)
        np.testing.assert_allclose(D[i], wanted, atol=1e-8)
        order = np.argsort(np.round(wanted, 10), kind="stable")
        np.testing.assert_allclose(distances[i], wanted[order[:5]], atol=1e-8)
        clear = np.diff(wanted[order[:6]]) > 1e-9
        for place in range(5):
            if clear[place] and (place == 0 or clear[place - 1]):
                assert found[i, place] == order[place]
        here = compute_posterior(rows, codes, query, 8, codes.max() + 1).max()
        part = ((1 - here) / here) ** 2 * np.linalg.inv(covariance)
        np.testing.assert_allclose(metrics[i], part, atol=1e-8)


def test_left_out_rows_are_in_no_posterior():
    X, y = TWO[0][:40], TWO[1][:40]
    for k in (5, 39):  # with 39, the list has all other rows and no replacement
        rule = QuasiconformalClassifier(n_neighbors=3, n_posterior_neighbors=k).fit(X, y)
        rows = X / X.std(axis=0)
        covariance = compute_covariance(rows)
        distances, found = rule._nearest(None, 3)
        for i in range(40):
            others = np.delete(np.arange(40), i)
            wanted = compute_left_out_distances(rows[others], y[others], rows[i], k, covariance)
            np.testing.assert_allclose(distances[i], np.sort(wanted)[:3], atol=1e-9)
            assert i not in found[i]


def compute_left_out_distances(rows, codes, query, k, covariance):
    here = compute_posterior(rows, codes, query, min(k, len(rows)), 2)
    leader = here.argmax()
    c = (1 - compute_posteriors(rows, codes, min(k, len(rows) - 1), 2)[:, leader]) / here[leader]
    c0 = (1 - here[leader]) / here[leader]
    apart = rows - query
    squares = np.einsum("ij,ij->i", apart @ np.linalg.inv(covariance), apart)
    return (c - c0) ** 2 + 2 * c * c0 * (1 - np.exp(-squares / 2))


def test_signed_identity_and_a_constant_posterior():
    X, y = TWO
    rule = QuasiconformalClassifier(n_posterior_neighbors=len(X) - 1, smoothing=1e9).fit(X, y)
    # c is (nearly) constant, so the order is that of the Mahalanobis distance.
    rows = X / X.std(axis=0)
    squares = [
        np.einsum("ij,ij->i", (rows - q) @ np.linalg.inv(compute_covariance(rows)), rows - q)
        for q in rows[:20]
    ]
    wanted = np.argsort(squares, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(rule.kneighbors(X[:20])[1], wanted)
    # c(x) = c(x0) + (P(j|x0) - P(j|x)) / P(j|x0), with its sign.
    at, here = np.random.default_rng(0).uniform(0.1, 0.9, (2, 50))
    np.testing.assert_allclose((1 - at) / here, (1 - here) / here + (here - at) / here)


def test_without_smoothing_all_pure_rows_would_be_at_distance_zero():
    # Without smoothing, the formula puts all rows of a pure neighborhood at distance zero.
    X = np.concatenate([np.linspace(0, 1, 20), np.linspace(5, 6, 20)])[:, None]
    y = np.repeat([0, 1], 20)
    query, covariance = np.array([0.5]), compute_covariance(np.tile(X, 2))[:1, :1]
    literal = compute_distances(X, y, query, 5, covariance, smoothing=0.0)
    assert (literal[:20] == 0).all()
    rule = QuasiconformalClassifier(n_posterior_neighbors=5, standardize=False).fit(X, y)
    distances, found = rule.kneighbors([[0.51]])
    assert (distances > 0).all()
    assert set(found[0].tolist()) <= {7, 8, 9, 10, 11, 12}
    with pytest.raises(ValueError, match="smoothing must be a number above 0"):
        QuasiconformalClassifier(smoothing=0).fit(X, y)


def test_rows_beyond_the_reach_of_the_kernel_are_still_in_order():
    # K underflows, so D is equal for rows with equal posteriors. The nearest row must come first.
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2)) * 0.01
    X[60:] += 1
    y = np.arange(120) // 60
    rule = QuasiconformalClassifier(n_posterior_neighbors=5, standardize=False).fit(X, y)
    rule.precision_ = np.eye(2) * 1e8
    found = rule.kneighbors([[0.0, 0.0]])[1][0]
    wanted = np.argsort((X[:60] ** 2).sum(axis=1))[:5]
    assert found.tolist() == wanted.tolist()
    one = QuasiconformalClassifier(n_posterior_neighbors=5).fit(X, np.zeros(120))
    assert one.kneighbors(X[:9])[1][:, 0].tolist() == list(range(9))


def test_bad_sizes_are_named():
    with pytest.raises(
        ValueError, match=r"n_posterior_neighbors=120 must be below .* \(n_samples=120\)"
    ):
        QuasiconformalClassifier(n_posterior_neighbors=120).fit(*TWO)


def test_spherical_is_the_median_distance():
    X, y = TWO
    rule = QuasiconformalClassifier(covariance="spherical", standardize=False).fit(X, y)
    apart = [((X[i] - X[j]) ** 2).sum() for i in range(len(X)) for j in range(i)]
    np.testing.assert_allclose(rule.precision_, np.eye(2) / np.median(apart))


def test_predictions_do_not_depend_on_the_names_of_classes():
    random = np.random.RandomState(1)
    y = np.arange(36) % 3
    X = random.normal(size=(36, 4)) + random.normal(size=(3, 4))[y]
    queries = random.normal(size=(200, 4))
    found = QuasiconformalClassifier().fit(X, y)
    for names in np.array([[2, 0, 1], [1, 2, 0], [0, 2, 1]]):
        renamed = QuasiconformalClassifier().fit(X, names[y])
        np.testing.assert_array_equal(renamed.predict(queries), names[found.predict(queries)])
        assert renamed.leave_one_out_error() == found.leave_one_out_error()
