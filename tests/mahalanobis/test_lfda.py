"""LFDA compared with its definition by loops, and singular scatter matrices."""

import tracemalloc

import numpy as np
import pytest
from scipy import linalg
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris, load_wine

from nearfar import LDA, LFDA, KNNClassifier
from nearfar.mahalanobis.lfda import compute_local_scatters

EMBEDDINGS = ("weighted", "orthonormalized", "plain")


def classes_of_clusters(n=60, p=4, seed=0):
    """Return three classes of different sizes; the first has two clusters."""
    rng = np.random.default_rng(seed)
    clusters = rng.choice(4, size=n, p=[0.3, 0.3, 0.3, 0.1])
    X = rng.normal(size=(n, p)) * np.linspace(1, 2, p) + 4 * rng.normal(size=(4, p))[clusters]
    return X, np.array([0, 1, 0, 2])[clusters]


def definition(X, y, k):
    """Return the local scatters, pair by pair (Sugiyama 2007, equations 10 to 14)."""
    n, p = X.shape
    scales = np.ones(n)
    for i in range(n):
        others = sorted(np.linalg.norm(X[i] - X[j]) for j in range(n) if y[j] == y[i] and j != i)
        if others:
            scales[i] = others[min(k, len(others)) - 1]
    within, between = np.zeros((p, p)), np.zeros((p, p))
    for i in range(n):
        for j in range(n):
            difference = X[i] - X[j]
            product = np.outer(difference, difference) / 2
            if y[i] == y[j]:
                size = np.sum(y == y[i])
                affinity = np.exp(-(difference @ difference) / (scales[i] * scales[j]))
                within += affinity / size * product
                between += affinity * (1 / n - 1 / size) * product
            else:
                between += product / n
    return within, between


def distances(learner, X):
    return pdist(learner.transform(X))


# The definition


@pytest.mark.parametrize("k", [1, 3, 7, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_local_scatters_are_sums_over_pairs(k, seed):
    X, y = classes_of_clusters(seed=seed)
    found = compute_local_scatters(X + 100, y, k)
    for ours, wanted in zip(found, definition(X, y, k), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-9)


def test_blocks_give_what_one_block_gives(monkeypatch):
    X, y = classes_of_clusters()
    whole = compute_local_scatters(X, y, 7)
    monkeypatch.setattr("nearfar.mahalanobis.lfda._BLOCK", 1)  # Blocks of 16 rows.
    for ours, wanted in zip(compute_local_scatters(X, y, 7), whole, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("q", [None, 2])
def test_rows_are_generalised_eigenvectors(embedding, q):
    X, y = classes_of_clusters()
    within, between = definition(X, y, 7)
    values, vectors = linalg.eigh(between, within / len(X))
    values, V = values[::-1] / len(X), vectors[:, ::-1].T
    keep = slice(q)
    wanted = {
        "plain": V[keep],
        "weighted": np.sqrt(values[keep])[:, None] * V[keep],
        "orthonormalized": linalg.qr(V[keep].T, mode="economic")[0].T,
    }[embedding]
    lfda = LFDA(q, embedding=embedding).fit(X, y)
    np.testing.assert_allclose(lfda.eigenvalues_, values[keep], rtol=1e-9)
    found = lfda.components_
    signs = np.sign(np.sum(found * wanted, axis=1, keepdims=True))
    np.testing.assert_allclose(found, signs * wanted, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(lfda.mean_, X.mean(axis=0))


def test_clusters_of_one_class_stay_apart_and_classes_are_told():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 0], 50)
    X = rng.normal(size=(150, 2)) * [5, 1] + np.repeat([[0, -6], [0, 0], [0, 6]], 50, axis=0)
    direction = LFDA(1).fit(X, y).components_[0]
    assert abs(direction[1]) > 5 * abs(direction[0])
    assert KNNClassifier(LFDA(1)).fit(X, y).leave_one_out_error() < 0.05
    assert KNNClassifier(LDA(1)).fit(X, y).leave_one_out_error() > 0.2


def test_more_directions_than_classes():
    X, y = load_wine(return_X_y=True)
    assert LFDA().fit(X, y).components_.shape == (13, 13)


# Invariances


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_units_change_no_neighbour(embedding, factor):
    X, y = load_iris(return_X_y=True)
    plain = LFDA(2, embedding=embedding).fit(X, y)
    scaled = LFDA(2, embedding=embedding).fit(factor * X, y)
    unit = factor if embedding == "orthonormalized" else 1.0
    np.testing.assert_allclose(
        distances(scaled, factor * X), unit * distances(plain, X), rtol=1e-7, atol=1e-9 * unit
    )


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_rotations_offsets_and_empty_dimensions_do_not_matter(embedding):
    X, y = classes_of_clusters()
    rng = np.random.default_rng(1)
    Q = linalg.qr(rng.normal(size=(70, 4)), mode="economic")[0]
    wanted = distances(LFDA(2, embedding=embedding).fit(X, y), X)
    for other in (X @ linalg.qr(rng.normal(size=(4, 4)))[0] + 1e4, X @ Q.T + 3.0):
        found = distances(LFDA(2, embedding=embedding).fit(other, y), other)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_fits_repeat_to_the_last_bit():
    X, y = classes_of_clusters()
    np.testing.assert_array_equal(LFDA().fit(X, y).components_, LFDA().fit(X, y).components_)


def test_names_of_the_classes_do_not_matter():
    X, y = classes_of_clusters()
    names = np.array(["x", "a", "k"])[y]
    np.testing.assert_allclose(
        distances(LFDA().fit(X, names), X), distances(LFDA().fit(X, y), X), rtol=1e-7
    )


# Singular scatters


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_redundant_and_constant_features_are_harmless(embedding):
    # metric-learn's LFDA fails or returns NaN here (metric-learn#202).
    X, y = classes_of_clusters()
    more = np.column_stack([X, X[:, 0] - 2 * X[:, 1], X[:, 2], np.full(len(X), 7.7)])
    left, singular, _ = linalg.svd(more - more.mean(axis=0), full_matrices=False)
    regular = (left * singular)[:, :4]  # The distances are the same.
    found = distances(LFDA(2, embedding=embedding).fit(more, y), more)
    wanted = distances(LFDA(2, embedding=embedding).fit(regular, y), regular)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert LFDA(embedding=embedding).fit(more, y).components_.shape == (4, 7)
    with pytest.raises(ValueError, match="n_components=5 is more than the 4 directions"):
        LFDA(5).fit(more, y)


def test_a_feature_that_never_varies_in_a_class_counts_and_is_finite():
    X, y = classes_of_clusters()
    lfda = LFDA(1).fit(np.column_stack([X, y]), y)
    weight = np.abs(lfda.components_[0])
    assert np.isfinite(weight).all() and weight.argmax() == 4


@pytest.mark.parametrize("copies", [2, 7, 20])
def test_points_with_equal_neighbours_only_are_finite(copies):
    X, y = classes_of_clusters(30)
    X, y = np.repeat(X, copies, axis=0), np.repeat(y, copies)
    lfda = LFDA().fit(X, y)
    assert lfda.components_.shape == (4, 4) and np.isfinite(lfda.components_).all()
    within, _ = compute_local_scatters(X, y, 7)
    if copies > 7:  # Every scale is zero, so distinct points have no affinity.
        np.testing.assert_allclose(within, 0, atol=1e-9)


def test_classes_of_one_row_have_nothing_to_hold_together():
    X, y = classes_of_clusters()
    assert np.isfinite(LFDA().fit(X, np.append(y[:-1], 9)).components_).all()
    assert np.isfinite(LFDA().fit(X[:6], np.arange(6)).components_).all()


def test_constant_data_raise():
    with pytest.raises(ValueError, match="Every feature of X is constant"):
        LFDA().fit(np.ones((6, 2)), [0, 0, 0, 1, 1, 1])


def test_there_is_no_array_of_all_pairs():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8000, 3)), np.arange(8000) % 2
    LFDA().fit(X[:100], y[:100])
    tracemalloc.start()
    LFDA().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4000**2 * 8 / 2  # Half of the pairs of one class.
