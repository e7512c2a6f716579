"""Tests of EasyMKL against its quadratic program."""

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from scipy import linalg
from scipy.spatial.distance import cdist

from nearfar.kernels import easy_mkl_weights


def made(n=40, classes=2):
    random = np.random.default_rng(0)
    y = np.arange(n) % classes
    X = random.standard_normal((n, 4)) + np.eye(classes, 4)[y]
    squares = cdist(X, X, "sqeuclidean")
    return [X @ X.T, np.exp(-squares / 2), np.exp(-squares / 20), (1 + X @ X.T) ** 2], y


def by_program(kernels, y, regularization):
    units = [K / np.sqrt(np.outer(K.diagonal(), K.diagonal())) for K in kernels]
    values, V = linalg.eigh(sum(K[: len(y), : len(y)] for K in units) / len(units))
    R = np.sqrt(np.maximum(values, 0))[:, None] * V.T
    weights = np.zeros(len(units))
    for label in np.unique(y)[1:] if len(np.unique(y)) == 2 else np.unique(y):
        sign = np.where(y == label, 1.0, -1.0)
        gamma = cp.Variable(len(y), nonneg=True)
        squares = (1 - regularization) * cp.sum_squares(R @ cp.multiply(sign, gamma))
        problem = cp.Problem(
            cp.Minimize(squares + regularization * cp.sum_squares(gamma)),
            [cp.sum(gamma[sign > 0]) == 1, cp.sum(gamma[sign < 0]) == 1],
        )
        solved(problem)
        z = sign * gamma.value
        weights += [z @ K[: len(y), : len(y)] @ z for K in units]
    return weights / weights.sum()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("regularization", [0.0, 0.1, 0.7, 1.0])
def test_weights_are_those_of_the_program(regularization, classes):
    kernels, y = made(classes=classes)
    got = easy_mkl_weights(kernels, y, regularization)
    assert got == pytest.approx(by_program(kernels, y, regularization), abs=1e-5)
    assert got.sum() == pytest.approx(1) and got.min() >= 0


def test_points_without_a_label_and_kernels_of_a_function():
    kernels, y = made()
    want = by_program(kernels, y[:25], 0.1)
    assert easy_mkl_weights(kernels, y[:25]) == pytest.approx(want, abs=1e-5)
    assert easy_mkl_weights(lambda i: kernels[i], y[:25]) == pytest.approx(want, abs=1e-5)


def test_scales_of_kernels_do_not_matter():
    kernels, y = made()
    scaled = [K * s for K, s in zip(kernels, (1e-3, 1.0, 50.0, 7.0), strict=True)]
    assert easy_mkl_weights(scaled, y) == pytest.approx(easy_mkl_weights(kernels, y))


def test_a_point_of_length_zero_has_nothing_in_common():
    kernels, y = made()
    K = kernels[0].copy()
    K[3] = K[:, 3] = 0.0
    assert np.isfinite(easy_mkl_weights([K, kernels[1]], y)).all()


def test_bad_input():
    kernels, y = made()
    with pytest.raises(ValueError, match="regularization must be a number from 0 to 1"):
        easy_mkl_weights(kernels, y, 1.5)
    with pytest.raises(ValueError, match="Set regularization above 0"):
        easy_mkl_weights([kernels[0]], y, 0.0)
    with pytest.raises(ValueError, match="no kernel separates the classes of y"):
        easy_mkl_weights([np.ones((40, 40))], y)


@pytest.mark.parametrize("regularization", [0.1, 1.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes_of_one_mean_do_not_differ_whatever_rounding_says(classes, regularization):
    # All classes have the same points, so their means are equal except for rounding.
    for seed in range(8):
        points = np.random.default_rng(seed).standard_normal((13, 4))
        X, y = np.tile(points, (classes, 1)), np.repeat(np.arange(classes), 13)
        squares = cdist(X, X, "sqeuclidean")
        kernels = [np.ones((len(y), len(y))), np.exp(-squares / 2), (1 + X @ X.T) ** 2]
        with pytest.raises(ValueError, match="no kernel separates the classes of y"):
            easy_mkl_weights(kernels, y, regularization)
        # A small distance counts: the means differ by a millionth of the points' norm.
        moved = X + 1e-6 * (y[:, None] == 1)
        assert easy_mkl_weights([moved @ moved.T], y, 1.0) == pytest.approx([1])
