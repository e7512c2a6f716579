"""Tests of DANNSubspace against a loop over rows, and of sub-DANN."""

import numpy as np
import pytest
from dann_oracle import compute_scatters, compute_weights
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier

from nearfar import DANNClassifier, DANNSubspace, KNNClassifier
from nearfar.local.dann_subspace import list_candidates

THREE = load_wine(return_X_y=True)
TWO = THREE[0][:130, :5], THREE[1][:130]


def compute_inverse_root(within, rho):
    p = len(within)
    within = (1 - rho) * within + rho * np.trace(within) / p * np.eye(p)
    values, axes = np.linalg.eigh(within)
    return axes @ np.diag(values**-0.5) @ axes.T


def compute_subspace(X, y, m, sphere, rho=1e-3):
    """Return the Mahalanobis matrices of the first q directions, and the eigenvalues."""
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    p, total, root = X.shape[1], 0, np.eye(X.shape[1])
    if sphere == "global":
        root = compute_inverse_root(compute_scatters(rows, y, np.ones(len(X)))[0], rho)
    sphered = rows @ root
    for query in sphered:
        d = np.sqrt(((sphered - query) ** 2).sum(axis=1))
        near = np.argsort(d, kind="stable")[:m]
        w = compute_weights(d[near], "tricube")
        within, between = compute_scatters(sphered[near], y[near], w)
        local = compute_inverse_root(within, rho) if sphere == "local" else np.eye(p)
        total = total + local @ between @ local / len(X)
    values, axes = np.linalg.eigh(total)
    return values[::-1], (axes[:, ::-1].T @ root) / X.std(axis=0)


@pytest.mark.parametrize("sphere", ["global", "local", "none"])
@pytest.mark.parametrize(("X", "y"), [TWO, THREE], ids=["two classes", "three"])
def test_map_is_that_of_a_loop(X, y, sphere):
    learner = DANNSubspace(3, n_metric_neighbors=60, sphere=sphere).fit(X, y)
    values, directions = compute_subspace(X, y, 60, sphere)
    np.testing.assert_allclose(learner.eigenvalues_, values[:3], rtol=1e-8, atol=1e-10)
    signs = np.sign((learner.components_ * directions[:3]).sum(axis=1))
    wanted = directions[:3] * signs[:, None] * X.std(axis=0)
    np.testing.assert_allclose(learner.components_ * X.std(axis=0), wanted, atol=1e-6)


def test_auto_has_the_least_error_of_five_neighbors():
    X, y = THREE
    learner = DANNSubspace().fit(X, y)
    assert learner.errors_[:, 0].tolist() == [1, 2, 3, 5, 8, 13]
    every = DANNSubspace(13).fit(X, y)
    for q, error in learner.errors_:
        mapped = every.transform(X)[:, : int(q)]
        knn = KNNClassifier(n_neighbors=5).fit(mapped, y)
        assert knn.leave_one_out_error() == error
    best = learner.errors_[learner.errors_[:, 1].argmin(), 0]
    assert len(learner.components_) == best
    assert list_candidates(1) == [1]
    assert list_candidates(7) == [1, 2, 3, 5]


def test_auto_asks_some_of_many_rows(monkeypatch):
    """The sample is always the same, and its neighbors are searched among all rows."""
    monkeypatch.setattr("nearfar.local.dann_subspace._MAX_SAMPLE", 12)
    X, y = THREE
    some, again = DANNSubspace().fit(X, y), DANNSubspace().fit(X, y)
    np.testing.assert_array_equal(some.errors_, again.errors_)
    mapped = DANNSubspace(13).fit(X, y).transform(X)
    asked = np.random.default_rng(0).permutation(len(X))[:12]
    for q, error in some.errors_:
        wrong = 0
        for row in asked:
            others = np.delete(np.arange(len(X)), row)
            knn = KNNClassifier(n_neighbors=5).fit(mapped[others, : int(q)], y[others])
            wrong += knn.predict(mapped[[row], : int(q)])[0] != y[row]
        assert error == wrong / 12


def test_sub_dann_survives_noise():
    X, y = THREE
    noise = np.random.default_rng(0).normal(size=(len(X), 20))
    noisy = np.column_stack([X / X.std(axis=0), noise])
    rule = DANNClassifier(DANNSubspace()).fit(noisy[::2], y[::2])
    plain = KNeighborsClassifier(5).fit(noisy[::2], y[::2])
    assert rule.score(noisy[1::2], y[1::2]) >= plain.score(noisy[1::2], y[1::2])
    assert rule.score(noisy[1::2], y[1::2]) > 0.9


def test_small_windows_blocks_and_threads_give_the_same(monkeypatch):
    X, y = THREE
    once = DANNSubspace(2, n_metric_neighbors=50).fit(X, y)
    threads = DANNSubspace(2, n_metric_neighbors=50, n_jobs=2).fit(X, y)
    np.testing.assert_allclose(threads.components_, once.components_, rtol=1e-8)
    monkeypatch.setattr(
        "nearfar.summaries.local_scatters._MAX_RELATIVE_ERROR", 0.0
    )  # all from differences
    exact = DANNSubspace(2, n_metric_neighbors=50).fit(X, y)
    np.testing.assert_allclose(exact.components_, once.components_, rtol=1e-8)


def test_duplicates_and_bad_sizes():
    X = np.repeat([[0.0, 0], [1, 0], [5, 5]], 20, axis=0)
    y = np.repeat([0, 1, 1], 20)
    for m in (3, 30):
        learner = DANNSubspace(1, n_metric_neighbors=m).fit(X, y)
        assert np.isfinite(learner.components_).all()
    with pytest.raises(
        ValueError, match="n_components=3 must be at most the number of features, 2"
    ):
        DANNSubspace(3).fit(X, y)
    with pytest.raises(
        ValueError, match=r"n_metric_neighbors=61 must be at most .* \(n_samples=60\)"
    ):
        DANNSubspace(n_metric_neighbors=61).fit(X, y)
