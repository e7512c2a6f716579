"""Formulas for local metrics that are misprinted in the survey, compared with correct ones."""

import numpy as np
import pytest
from scipy.linalg import eigh, inv, sqrtm

from nearfar import DANNClassifier

X = np.array([[0.0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]])
Y = np.array([-1, -1, -1, 1, 1, 1])
NEGATIVE, POSITIVE = X[:3], X[3:]
MEANS = np.array([NEGATIVE.mean(axis=0), POSITIVE.mean(axis=0)])
WITHIN = (np.cov(NEGATIVE.T, bias=True) + np.cov(POSITIVE.T, bias=True)) / 2
BETWEEN = np.cov(MEANS.T, bias=True)


def test_discriminant_features_are_eigenvectors():
    def ratio(v):
        return (v @ BETWEEN @ v) / (v @ WITHIN @ v)

    leading = eigh(BETWEEN, WITHIN)[1][:, -1]
    assert ratio(leading) == pytest.approx(np.trace(inv(WITHIN) @ BETWEEN))  # of rank one
    # The coordinates S_w x separate the classes less well.
    assert max(ratio(row) for row in WITHIN) < 0.99 * ratio(leading)


def test_the_metric_needs_its_last_factor():
    root = inv(np.real(sqrtm(WITHIN)))
    printed = root @ (root @ BETWEEN @ root + np.eye(2))
    assert np.abs(printed - printed.T).max() > 0.1
    whole = printed @ root
    options = {"weights": "uniform", "shrinkage": 0.0, "standardize": False}
    dann = DANNClassifier(n_neighbors=1, n_metric_neighbors=6, **options).fit(X, Y)
    np.testing.assert_allclose(dann.metric_at(X[:1])[0], whole, rtol=1e-8)
    np.testing.assert_allclose(
        whole, [[33.48870392, 2.98929845], [2.98929845, 1.09512485]], atol=1e-7
    )


# Three Gaussian classes with the same covariance.
MU = np.array([[0.0, 0], [1, 0.5], [-0.5, 1]])
COVARIANCE = np.array([[3.0, 0.3], [0.3, 0.5]])
X0, WAY = np.array([0.2, 0.1]), np.array([0.6, -0.8])


def posteriors(x):
    logs = [-0.5 * (x - m) @ np.linalg.solve(COVARIANCE, x - m) for m in MU]
    return np.exp(logs) / np.exp(logs).sum()


def middle():
    return posteriors(X0) @ MU


def test_the_expansion_has_a_plus():
    errors = {1: [], -1: []}
    for step in (1e-2, 1e-3):
        slope = (MU - middle()) @ np.linalg.solve(COVARIANCE, step * WAY)
        for sign, found in errors.items():
            found.append(np.abs(posteriors(X0 + step * WAY) - posteriors(X0) * (1 + sign * slope)))
    (plus, plus_smaller), (minus, minus_smaller) = errors[1], errors[-1]
    assert plus_smaller.max() < 0.02 * plus.max()  # of second order
    assert minus_smaller.max() > 0.05 * minus.max()  # of first order, so the expansion is wrong


def test_scatters_stand_for_covariances():
    P, step = posteriors(X0), 1e-4
    between = (P[:, None] * (MU - middle())).T @ (MU - middle())
    chi = ((posteriors(X0 + step * WAY) - P) ** 2 / P).sum()

    def by(within):
        inverse = inv(within)
        return step**2 * WAY @ inverse @ between @ inverse @ WAY

    assert by(COVARIANCE) == pytest.approx(chi, rel=1e-3)
    assert by(COVARIANCE @ COVARIANCE) != pytest.approx(chi, rel=0.1)  # S_w^-1/2 = Sigma^-1
