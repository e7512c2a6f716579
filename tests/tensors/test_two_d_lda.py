"""TwoDLDA compared with loops, and its documented properties."""

import numpy as np
import pytest
from scipy import linalg

from nearfar import LDA, TwoDLDA


def images(shape=(12, 10), n_classes=10, n_each=6, seed=0):
    """Return smooth random images: class means plus smooth noise and a little white noise."""
    rng = np.random.default_rng(seed)
    kernels = [np.exp(-((np.arange(d)[:, None] - np.arange(d)) ** 2) / 6) for d in shape]

    def smooth(n):
        return kernels[0] @ rng.normal(size=(n, *shape)) @ kernels[1].T

    y = np.repeat(np.arange(n_classes), n_each)
    return smooth(n_classes)[y] + smooth(len(y)) + 0.2 * rng.normal(size=(len(y), *shape)), y


def traces(X, y, U, V):
    """Return D_b and D_w, computed in a loop over matrices."""
    mean, between, within = X.mean(axis=0), 0.0, 0.0
    for x, label in zip(X, y, strict=True):
        own = X[y == label].mean(axis=0)
        between += np.linalg.norm(U.T @ (own - mean) @ V) ** 2
        within += np.linalg.norm(U.T @ (x - own) @ V) ** 2
    return between, within


def one_map(X, y, V, q, ridge=1e-6):
    """Return the eigenvectors of inv(A_w) A_b for fixed V, by loops and a general eig."""
    d = X.shape[1]
    mean, A_b, A_w = X.mean(axis=0), np.zeros((d, d)), np.zeros((d, d))
    for x, label in zip(X, y, strict=True):
        own = X[y == label].mean(axis=0)
        A_b += (own - mean) @ V @ V.T @ (own - mean).T
        A_w += (x - own) @ V @ V.T @ (x - own).T
    A_w += ridge * np.trace(A_w) / d * np.eye(d)
    values, vectors = np.linalg.eig(np.linalg.solve(A_w, A_b))
    order = np.argsort(-values.real)[:q]
    return values.real[order].sum(), vectors.real[:, order]  # of length one


def same_columns(A, B):
    np.testing.assert_allclose(np.abs(np.sum(A * B, axis=0)), 1, rtol=1e-6)


def test_each_map_is_made_of_leading_eigenvectors():
    X, y = images(shape=(7, 6), n_classes=5)
    lda = TwoDLDA((3, 2), n_iter=2).fit(X, y)
    V = np.eye(6, 2)
    objectives, ratios = [], []
    for _ in range(2):
        objective, U = one_map(X, y, V, 3)
        objectives.append(objective)
        ratios.append(np.divide(*traces(X, y, U, V)))
        objective, V = one_map(X.transpose(0, 2, 1), y, U, 2)
        objectives.append(objective)
        ratios.append(np.divide(*traces(X, y, U, V)))
    same_columns(lda.factors_[0], U)
    same_columns(lda.factors_[1], V)
    np.testing.assert_allclose(lda.history_["objective"], objectives, rtol=1e-8)
    np.testing.assert_allclose(lda.history_["ratio"], ratios, rtol=1e-8)
    np.testing.assert_allclose(
        lda.transform(X),
        np.array([(U.T @ (x - X.mean(axis=0)) @ V).ravel() for x in X])
        * np.sign(np.outer(np.sum(U * lda.factors_[0], 0), np.sum(V * lda.factors_[1], 0)).ravel()),
        atol=1e-6 * np.abs(X).max(),
    )
    assert lda.n_iter_ == 2 and lda.n_components_ == (3, 2)


@pytest.mark.parametrize("dims", [(3, 3), (5, 4)])
def test_the_ratio_may_fall(dims):
    """An iteration may decrease the ratio of traces."""
    falls = 0
    for seed in range(10):
        ratios = TwoDLDA(dims, n_iter=15, init="random", random_state=seed).fit(*images()).history_
        ends = np.array(ratios["ratio"][1::2])
        falls += (np.diff(ends) < -1e-6 * ends[:-1]).any()
    assert falls > 0


def test_for_one_column_each_the_ratio_never_falls():
    """With one column each, the trace of the ratio is the ratio of traces."""
    X, y = images()
    for seed in range(10):
        lda = TwoDLDA((1, 1), n_iter=15, init="random", random_state=seed, ridge=0).fit(X, y)
        ratios = np.array(lda.history_["ratio"])
        assert (np.diff(ratios) >= -1e-9 * ratios[-1]).all()
        np.testing.assert_allclose(ratios, lda.history_["objective"], rtol=1e-7)


def test_the_best_iteration_is_kept():
    X, y = images()
    last = TwoDLDA((5, 4), n_iter=12, init="random").fit(X, y)
    best = TwoDLDA((5, 4), n_iter=12, init="random", selection="best").fit(X, y)
    ends = last.history_["ratio"][1::2]
    assert last.n_iter_ == 12
    assert best.history_["ratio"] == last.history_["ratio"]
    assert best.n_iter_ == int(np.argmax(ends)) + 1 < 12
    np.testing.assert_allclose(np.divide(*traces(X, y, *best.factors_)), max(ends), rtol=1e-8)


def test_matrices_of_one_column_are_vectors():
    """U is the projection of LDA, up to the lengths of its columns."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = rng.normal(size=(60, 5)) + rng.normal(size=(4, 5))[y]
    ours = TwoDLDA((3, 1), ridge=0).fit(X[:, :, None], y)
    U = LDA().fit(X, y).components_.T
    same_columns(ours.factors_[0], U / np.linalg.norm(U, axis=0))
    np.testing.assert_allclose(ours.factors_[1], [[1.0]])


def test_only_matrices_are_taken():
    X, y = images(shape=(4, 6))
    for other in (X.reshape(len(X), 4, 3, 2), X.reshape(len(X), -1)):
        with pytest.raises(ValueError, match="order 2.; the samples of X have shape .* Use GTDA"):
            TwoDLDA().fit(other, y)
    assert TwoDLDA(tensor_shape=(4, 6)).fit(X.reshape(len(X), -1), y).tensor_shape_ == (4, 6)


def test_dimensions():
    X, y = images()
    two = y < 2
    # Two classes have one difference of means, whose rank limits the components.
    a, b = TwoDLDA().fit(X[two], y[two]).n_components_
    assert a == b
    with pytest.raises(ValueError, match=r"with 2 classes: a mode can have at most 1 times"):
        TwoDLDA((3, 2)).fit(X[two], y[two])
    with pytest.raises(ValueError, match="does not fit tensors of shape"):
        TwoDLDA((13, 2)).fit(X, y)
    spread = np.concatenate([X - X.mean(axis=0)], axis=0)
    values = linalg.eigvalsh(np.einsum("nij,nkj->ik", spread, spread))[::-1]
    n = int(np.argmax(np.cumsum(values) / values.sum() >= 0.97)) + 1
    assert TwoDLDA().fit(X, y).n_components_[0] == n


def test_blank_borders_and_points():
    X, y = images(shape=(6, 5), n_classes=4)
    framed = np.pad(X, ((0, 0), (1, 2), (2, 0)), constant_values=7.0)
    plain, padded = TwoDLDA((3, 3)).fit(X, y), TwoDLDA((3, 3)).fit(framed, y)
    # Starts differ, but blank rows and columns have no weight.
    assert np.abs(padded.factors_[0][[0, 7, 8]]).max() < 1e-8
    assert padded.transform(framed).shape == plain.transform(X).shape
    with pytest.raises(ValueError, match="TwoDLDA: the scatter within classes is singular"):
        TwoDLDA((3, 3), ridge=0).fit(framed, y)
    for seed in range(6):  # Dependent rows leave rounding errors instead of zeros.
        images_of, y_of = images(shape=(6, 5), n_classes=4, seed=seed)
        depends = np.einsum("i,nij->nj", np.arange(1.0, 7), images_of)[:, None]
        with pytest.raises(ValueError, match="TwoDLDA: the scatter within classes is singular"):
            TwoDLDA((3, 3), ridge=0).fit(np.concatenate([images_of, depends], axis=1), y_of)
    with pytest.raises(ValueError, match="TwoDLDA: all samples in X are equal"):
        TwoDLDA().fit(np.ones((6, 3, 3)), y[:6] * 0 + np.arange(6) % 2)
    points = np.repeat(X[::6], 2, axis=0)
    found = TwoDLDA((2, 2)).fit(points, np.repeat(np.arange(4), 2))
    assert np.isfinite(found.factors_[0]).all() and np.isfinite(found.factors_[1]).all()
