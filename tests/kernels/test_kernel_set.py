"""Tests of the error messages for matrices that are not kernels."""

import numpy as np
import pytest

from nearfar.kernels import (
    alignment,
    alignment_weights,
    center_kernel,
    easy_mkl_weights,
    idealize,
    margin_value,
    margin_weights,
    target_kernel,
)
from nearfar.kernels.kernel_set import KernelSet, check_kernel, make_kernel_set

Y = np.arange(12) % 2
GOOD = np.random.default_rng(0).standard_normal((12, 12))
GOOD = GOOD @ GOOD.T
LEARNERS = [margin_weights, alignment_weights, easy_mkl_weights]


def changed(i, j, value, both=True):
    K = GOOD.copy()
    K[i, j] = value
    if both:
        K[j, i] = value
    return K


BAD = {
    "symmetric": (changed(2, 5, 7.0, both=False), r"\[(2, 5|5, 2)\] is"),
    "indefinite": (GOOD - 5 * np.eye(12), r"smallest eigenvalue is -4\.9\d+.*repair_kernel"),
    "zero": (np.zeros((12, 12)), "not be zero; its trace is 0"),
    "nan": (changed(1, 3, np.nan), r"finite; .*\[1, 3\] is nan"),
    "infinite": (changed(4, 4, np.inf), r"finite; .*\[4, 4\] is inf"),
    "shape": (GOOD[:, :5], "square matrix; got shape"),
    "text": ([["a", "b"], ["c", "d"]], "matrix of numbers"),
}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_kernel_is_named(learner, kind):
    K, words = BAD[kind]
    with pytest.raises(ValueError, match=r"kernels\[1\] must.*" + words):
        learner([GOOD, K], Y)
    with pytest.raises(ValueError, match=r"kernels\(1\) must.*" + words):
        learner(lambda i: [GOOD, K][i], Y)


@pytest.mark.parametrize("kind", BAD)
def test_a_single_matrix_is_checked_too(kind):
    K, words = BAD[kind]
    for function in (margin_value, lambda K, y: idealize(K, y, 1.0)):
        with pytest.raises(ValueError, match="K must.*" + words):
            function(K, Y)


@pytest.mark.parametrize("learner", LEARNERS)
def test_sizes_and_labels(learner):
    with pytest.raises(
        ValueError, match=r"same size; kernels\[0\] has 12 points, but kernels\[1\]"
    ):
        learner([GOOD, GOOD[:5, :5]], Y)
    with pytest.raises(ValueError, match="13 labels, but the kernels have 12 points"):
        learner([GOOD], np.append(Y, 1))
    with pytest.raises(ValueError, match="at least 2 classes"):
        learner([GOOD], np.zeros(12, int))
    with pytest.raises(ValueError, match="kernels is empty"):
        learner([], Y)
    with pytest.raises(ValueError, match=r"list of matrices.*got an array of shape \(12, 12\)"):
        learner(GOOD, Y)
    with pytest.raises(ValueError, match="kernels is None"):
        learner(None, Y)
    with pytest.raises(ValueError, match="continuous"):
        learner([GOOD], np.linspace(0, 1, 12))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"C": 0.0}, "C must be None, or a number above 0"),
        ({"dual_ridge": -1.0}, "dual_ridge must be a number from 0 to"),
        ({"trace": 0.0}, "trace must be"),
        ({"kernel_family": "best"}, "kernel_family must be"),
        ({"norm": 0.5}, "norm must be a number of at least 1"),
        (
            {"norm": 2.0, "kernel_family": "signed"},
            'norm can be set only with kernel_family="nonneg"',
        ),
        ({"n_directions": 2}, 'n_directions can be set only with kernel_family="rank_one"'),
        ({"n_points": 20}, 'n_points can be set only with kernel_family="free"'),
        ({"tol": 0.0}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"kernel_family": "free"}, "kernels must be None"),
        ({"kernel_family": "rank_one"}, "of one kernel, but kernels has 2"),
    ],
)
def test_parameters_of_margin_weights(wrong, words):
    with pytest.raises(ValueError, match=words):
        margin_weights([GOOD, np.eye(12)], Y, **wrong)


@pytest.mark.parametrize("learner", [margin_weights, alignment_weights])
def test_parameters_of_modes(learner):
    with pytest.raises(ValueError, match="at most the number of points, 12; got 13"):
        learner([GOOD], Y, kernel_family="rank_one", n_directions=13)
    with pytest.raises(ValueError, match="n_points must be at least the number of labels in y, 12"):
        learner(None, Y, kernel_family="free", n_points=3)
    with pytest.raises(ValueError, match="linearly independent"):
        margin_weights([GOOD, 2 * GOOD], Y, kernel_family="signed")
    with pytest.raises(ValueError, match="needs two classes; y has 3"):
        margin_weights(None, np.arange(12) % 3, kernel_family="free")


def test_other_functions():
    with pytest.raises(ValueError, match="same shape"):
        alignment(GOOD, np.eye(3))
    with pytest.raises(ValueError, match="L is zero"):
        alignment(GOOD, np.zeros((12, 12)))
    with pytest.raises(ValueError, match="finite"):
        center_kernel([[np.nan]])
    with pytest.raises(ValueError, match="at least 2 classes"):
        target_kernel(["a", "a"])
    with pytest.raises(ValueError, match="gamma must be a number of at least 0"):
        idealize(GOOD, Y, -1.0)
    with pytest.raises(ValueError, match="one label per point"):
        margin_value(GOOD, Y[:5])


def test_rounding_and_large_kernels_are_taken():
    X = np.random.default_rng(1).standard_normal((600, 3))
    K = X @ X.T
    assert check_kernel(K + 1e-13 * np.arange(600)) == pytest.approx(np.trace(K))
    assert check_kernel(K.astype(np.float32)) == pytest.approx(np.trace(K), rel=1e-4)
    with pytest.raises(ValueError, match="smallest eigenvalue is at most -"):
        check_kernel(K - np.eye(600))


def test_a_negative_eigenvalue_that_hides_is_found_by_the_method():
    n = 1200
    y = np.arange(n) % 2
    # Its smallest eigenvalue is -2; that of any 300 of its points is 0.25.
    sign = 2.0 * y - 1
    K = np.eye(n) - 3 / n * np.outer(sign, sign)
    make_kernel_set([K], n)
    with pytest.raises(ValueError, match=r"kernels\[0\] must be positive semi-definite"):
        margin_weights([K, np.eye(n)], y, C=1.0)


def test_a_set_of_ones_own():
    """A subclass needs to implement only `rows`."""

    class Widths(KernelSet):
        def __init__(self, squares):
            self.squares, self.n_kernels, self.n_points = squares, 3, len(squares)

        def rows(self, i, block):
            return np.exp(self.squares[block] / -(10.0**i))

    X = np.random.default_rng(0).standard_normal((12, 3))
    squares = np.sum((X[:, None] - X) ** 2, axis=2)
    kernels = [np.exp(squares / -(10.0**i)) for i in range(3)]
    for learner in LEARNERS:
        own, given = learner(Widths(squares), Y), learner(kernels, Y)
        own, given = (getattr(result, "weights", result) for result in (own, given))
        assert own == pytest.approx(given, abs=1e-9)
