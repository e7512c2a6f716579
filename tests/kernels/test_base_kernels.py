"""Tests of BaseKernels against the kernels of scikit-learn, and of parsing errors."""

import numpy as np
import pytest
from sklearn.metrics import pairwise

from nearfar.kernels import BaseKernels

rng = np.random.default_rng(0)
X = rng.standard_normal((37, 5)) * [1, 2, 0.5, 3, 1] + 100
Z = rng.standard_normal((11, 5)) + 100
ABOUT = X.mean(axis=0)
NAMES = ["a", "b", "c", "d", "e"]

ASKED = [
    "linear",
    "cosine",
    ("poly", {"degree": 4, "gamma": 0.2, "coef0": 0.5, "columns": [1, 3]}),
    ("laplacian", {"gamma": 0.3, "columns": ["e"]}),
    ("rbf", {"gamma": 0.05}),
    ("rbf", {"gamma": 0.1}),
    ("rbf", {"gamma": 0.1, "columns": [0]}),
]


def by_scikit_learn(A, B):
    A, B = A - ABOUT, B - ABOUT
    return [
        A @ B.T,
        pairwise.cosine_similarity(A, B),
        pairwise.polynomial_kernel(A[:, [1, 3]], B[:, [1, 3]], degree=4, gamma=0.2, coef0=0.5),
        pairwise.laplacian_kernel(A[:, [4]], B[:, [4]], gamma=0.3),
        pairwise.rbf_kernel(A, B, gamma=0.05),
        pairwise.rbf_kernel(A, B, gamma=0.1),
        pairwise.rbf_kernel(A[:, [0]], B[:, [0]], gamma=0.1),
    ]


@pytest.mark.parametrize("unit_diagonal", [False, True])
def test_values_are_those_of_scikit_learn(unit_diagonal):
    base = BaseKernels(ASKED, X, NAMES, unit_diagonal)
    among = base.build_kernel_set(X)
    for i, (expected, own, others) in enumerate(
        zip(by_scikit_learn(Z, X), by_scikit_learn(X, X), by_scikit_learn(Z, Z), strict=True)
    ):
        if unit_diagonal:
            expected = expected / np.sqrt(np.outer(others.diagonal(), own.diagonal()))
            own = own / np.sqrt(np.outer(own.diagonal(), own.diagonal()))
        np.testing.assert_allclose(base.values(i, Z, X), expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(among.rows(i, slice(3, 9)), own[3:9], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(among.diagonals()[i], own.diagonal(), rtol=1e-10)
        assert among.traces[i] == pytest.approx(own.trace())
    weights = np.arange(7.0)
    expected = sum(w * base.values(i, Z, X) for i, w in enumerate(weights))
    np.testing.assert_allclose(base.compute_weighted_sum(weights, Z, X), expected, rtol=1e-10)


def test_auto_is_ten_kernels_that_units_and_shifts_do_not_change():
    base, other = BaseKernels("auto", X), BaseKernels("auto", 1e6 * (X - 50))
    median = np.median(
        (squares := pairwise.euclidean_distances(X - ABOUT, squared=True))[squares > 1e-9]
    )
    np.testing.assert_allclose(base.gammas[3:], 2.0 ** np.arange(-3, 4) / median)
    np.testing.assert_allclose(base.gammas[1:3], 1 / X.var(axis=0).sum())
    assert base.kinds.tolist() == ["linear", "poly", "poly", *["rbf"] * 7]
    for i in range(1, 10):
        np.testing.assert_allclose(
            base.values(i, Z, X), other.values(i, 1e6 * (Z - 50), 1e6 * (X - 50)), rtol=1e-8
        )


def test_widths_share_one_matrix_and_others_keep_none():
    base = BaseKernels("auto", X)
    (squares,) = base.build_kernel_set(X)._distances.values()
    assert squares.shape == (37, 37)
    assert not BaseKernels("features", X).build_kernel_set(X)._distances


def test_features_have_one_kernel_each():
    base = BaseKernels("features", X, NAMES)
    assert len(base) == 5
    assert [name.split(" of ")[1] for name in base.names] == NAMES
    np.testing.assert_array_equal(base.columns, np.eye(5))


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ([], 'kernels must be "auto", "features" or a list of kernels with .*; got \\[\\]'),
        ("gauss", "names from linear, poly, rbf, laplacian, cosine; got 'gauss'"),
        (
            [np.eye(3)],
            r"got an array of shape \(3, 3\)\. For matrices, use nearfar.kernels.margin_weig",
        ),
        (["gauss"], "kernels\\[0\\]: unknown kernel 'gauss'; expected one of linear, poly"),
        (["rbf", 3], "kernels\\[1\\] must be the name of a kernel, or a pair"),
        ([("rbf", 0.1)], "kernels\\[0\\] must be the name of a kernel, or a pair"),
        ([("rbf", {"sigma": 1})], "unknown option 'sigma' of rbf; expected one of gamma, columns"),
        ([("rbf", {"gamma": -1})], "gamma must be a number above 0; got -1"),
        ([("poly", {"coef0": -1.0})], "coef0 must be a number of at least 0; got -1.0"),
        ([("poly", {"degree": 2.5})], "degree must be an integer of at least 1; got 2.5"),
        ([("rbf", {"columns": ["z"]})], "unknown column 'z'; X has a, b, c, d, e"),
        ([("rbf", {"columns": [5]})], "indices from 0 to 4; got 5"),
        ([("rbf", {"columns": [True]})], "indices from 0 to 4; got True"),
        ([("rbf", {"columns": []})], "columns must list at least one column"),
    ],
)
def test_what_makes_no_kernel_is_refused(kernels, words):
    with pytest.raises(ValueError, match=words):
        BaseKernels(kernels, X, NAMES)


def test_names_need_names():
    with pytest.raises(ValueError, match="unknown column 'a'; X has no feature names"):
        BaseKernels([("rbf", {"columns": ["a"]})], X)


def test_kernels_that_are_zero_or_overflow_are_refused():
    constant = np.column_stack([X, np.full(len(X), 7.0)])
    base = BaseKernels(["rbf", ("linear", {"columns": [5]})], constant)
    with pytest.raises(ValueError, match="kernels\\[1\\] \\(linear of x5\\) .* do not vary"):
        base.build_kernel_set(constant)
    with pytest.raises(ValueError, match="too large for kernels"):
        BaseKernels("auto", 1e200 * X)
