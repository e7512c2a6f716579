"""IFEM compared with classifiers fitted to tensors that are deflated in loops."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from nearfar import IFEM, LSSTM, TFDA


def data(n=40, shape=(5, 4), n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, *shape)) + 0.7 * rng.normal(size=(n_classes, *shape))[y], y


def outer(*vectors):
    product = np.ones(())
    for vector in vectors:
        product = np.multiply.outer(product, vector)
    return product


@pytest.mark.parametrize("estimator", [None, TFDA()])
@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 2), (6,)])
def test_classifiers_in_turn(estimator, shape):
    X, y = data(shape=shape)
    new = data(n=9, shape=shape, seed=5)[0]
    model = IFEM(estimator, n_components=3).fit(X, y)
    left, rest, scale = X.copy(), new.copy(), np.sqrt(np.mean(X**2))
    for r in range(3):
        weights = (LSSTM() if estimator is None else TFDA()).fit(left / scale, y).coef_[0]
        atom = (weights / np.linalg.norm(weights)).reshape(shape)
        ours = outer(*(U[:, r] for U in model.factors_))
        np.testing.assert_allclose(abs(np.sum(atom * ours)), 1, rtol=1e-6)
        for i in range(len(left)):
            score = np.sum(left[i] * ours)
            np.testing.assert_allclose(model.transform(X)[i, r], score, atol=1e-8)
            left[i] -= score * ours
            # The residual is orthogonal to the atom, which requires unit vectors.
            assert abs(np.sum(left[i] * ours)) < 1e-10
        for i in range(len(rest)):
            score = np.sum(rest[i] * ours)
            np.testing.assert_allclose(model.transform(new)[i, r], score, atol=1e-8)
            rest[i] -= score * ours
    Z = model.transform(X)
    squares = (Z**2).sum(axis=1) + (left.reshape(len(X), -1) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, (X.reshape(len(X), -1) ** 2).sum(axis=1))
    np.testing.assert_allclose(model.inverse_transform(Z) + left, X, atol=1e-8)


def test_features_are_nested_and_tensors_left_alone():
    X, y = data(n_classes=3, n=60)
    before = X.copy()
    many = IFEM(n_components=4).fit(X, y).transform(X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(IFEM(n_components=2).fit(X, y).transform(X), many[:, :2], atol=1e-9)
    assert IFEM(LSSTM(rank=2), n_components=3).fit(X, y).n_components_ == (3,)


@pytest.mark.parametrize("factor", [0.01, 2.0, 255.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_features_have_the_units_of_the_data(factor, n_classes):
    X, y = data(n=24, shape=(6, 5), n_classes=n_classes)
    found, scaled = (IFEM(n_components=3).fit(factor_ * X, y) for factor_ in (1.0, factor))
    expected = factor * found.transform(X)
    np.testing.assert_allclose(
        scaled.transform(factor * X), expected, atol=1e-6 * np.abs(expected).max()
    )


def test_bad_input_is_named():
    X, y = data()
    with pytest.raises(ValueError, match="IFEM: all samples in X are equal"):
        IFEM().fit(np.ones((6, 3, 3)) / 3, np.arange(6) % 2)
    with pytest.raises(ValueError, match="RidgeClassifier has no factors_"):
        IFEM(RidgeClassifier()).fit(X.reshape(len(X), -1), y)
    with pytest.raises(ValueError, match="estimator must be"):
        IFEM(3).fit(X, y)
    with pytest.warns(UserWarning, match="of 10 features were found"):
        IFEM().fit(X[:, :2, :1], y)
