"""Tests of kernel alignment and alignment weights against formulas and conic programs."""

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from scipy import linalg
from scipy.spatial.distance import cdist

from nearfar.kernels import (
    alignment,
    alignment_weights,
    center_kernel,
    ideal_kernel,
    idealize,
    target_alignment,
    target_kernel,
)

T6 = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], float)
Y6 = np.array([-1, -1, -1, 1, 1, 1])
LINEAR6 = T6 @ T6.T
NARROW6 = np.exp(-cdist(T6, T6, "sqeuclidean") / 2)


def kernels_and_labels(n=30, classes=2, seed=0):
    random = np.random.default_rng(seed)
    y = np.sort(random.integers(classes, size=n))
    random.shuffle(y)
    X = random.standard_normal((n, 5)) + np.eye(classes, 5)[y]
    squares = cdist(X, X, "sqeuclidean")
    return [X @ X.T, np.exp(-squares / 2), np.exp(-squares / 20), (1 + X @ X.T) ** 2], y


def parts(kernels, y, centered):
    """Return b and Q, computed from whole matrices."""
    n, m = len(kernels[0]), len(y)
    H, Hl = ((np.eye(k) - (1 / k if centered else 0)) for k in (n, m))
    T = Hl @ target_kernel(y) @ Hl
    whole = [H @ K @ H for K in kernels]
    b = np.array([np.sum(K[:m, :m] * T) for K in whole])
    return b, np.array([[np.sum(K * L) for L in whole] for K in whole]), T


def largest(b, Q, mu, limits):
    R = linalg.sqrtm(Q).real
    return solved(cp.Problem(cp.Maximize(b @ mu), [cp.norm(R @ mu) <= 1, *limits]))


# ---------------------------------------------------------------------- one kernel


def test_anchors_of_six_points():
    ideal = ideal_kernel(Y6)
    assert target_alignment(LINEAR6, Y6) == pytest.approx(0.28406085, abs=1e-7)
    assert alignment(LINEAR6, ideal) == pytest.approx(0.64427227, abs=1e-7)
    assert alignment(idealize(LINEAR6, Y6, 2.0), ideal) == pytest.approx(0.71434824, abs=1e-7)
    centred = T6 - T6.mean(axis=0)
    assert target_alignment(centred @ centred.T, Y6) == pytest.approx(0.69347733, abs=1e-7)
    assert center_kernel(LINEAR6) == pytest.approx(centred @ centred.T)


def test_alignment_is_a_cosine():
    kernels, y = kernels_and_labels()
    for K in kernels:
        assert alignment(K, K) == pytest.approx(1)
        assert alignment(K, -K) == pytest.approx(-1)
        assert alignment(3 * K, kernels[0]) == pytest.approx(alignment(K, kernels[0]))
        assert 0 <= target_alignment(K, y) <= 1
        sign = 2.0 * y - 1
        plain = sign @ K @ sign / (len(y) * np.linalg.norm(K))
        assert target_alignment(K, y) == pytest.approx(plain)
        own = alignment(center_kernel(K), center_kernel(target_kernel(y)))
        assert target_alignment(K, y, centered=True) == pytest.approx(own)
        assert alignment(K, target_kernel(y), centered=True) == pytest.approx(own)


def test_target_of_many_classes_is_a_kernel():
    y = np.array([0, 1, 2, 3, 1, 1])
    T = target_kernel(y)
    assert linalg.eigvalsh(T)[0] >= -1e-12
    assert T[1, 4] == 1 and T[0, 1] == pytest.approx(-1 / 3)
    sign = np.array([1.0, -1, -1])
    assert np.array_equal(target_kernel([1, 0, 0]), np.outer(sign, sign))
    K = kernels_and_labels(6)[0][1]
    assert target_alignment(K, y) == pytest.approx(alignment(K, T))


def test_without_centring_a_constant_kernel_is_aligned_with_unbalanced_classes():
    y = [0] * 27 + [1] * 3
    assert target_alignment(np.ones((30, 30)), y) == pytest.approx(0.64)
    with pytest.raises(ValueError, match="constant"):
        target_alignment(np.ones((30, 30)), y, centered=True)


def test_a_nearly_constant_kernel_keeps_its_digits():
    """The formula with row sums would lose all significant digits."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    squares = cdist(X, X, "sqeuclidean")
    wide = 1e-7 * squares
    got = alignment(np.exp(-wide), X @ X.T, centered=True)
    exact = alignment(center_kernel(np.expm1(-wide)), X @ X.T, centered=True)
    assert got == pytest.approx(exact, abs=1e-6)
    K, L = np.exp(-wide), X @ X.T
    n, r, s = 40, np.exp(-wide).sum(0), (X @ X.T).sum(0)
    moments = [
        np.sum(A * B) - 2 * a @ b / n + a.sum() * b.sum() / n**2
        for A, B, a, b in ((K, L, r, s), (K, K, r, r), (L, L, s, s))
    ]
    cosine = moments[0] / np.sqrt(np.abs(moments[1] * moments[2]))
    assert abs(cosine - exact) > 1e-4


# ---------------------------------------------------------------------- weights


def test_anchor_of_two_kernels():
    result = alignment_weights([LINEAR6, NARROW6], Y6, centered=False)
    assert result.value == pytest.approx(2.66342846, abs=1e-7)
    assert result.alignment == pytest.approx(0.44390474, abs=1e-7)
    assert result.weights == pytest.approx([0.00467504, 0.3358185], abs=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("labelled", [30, 18])
@pytest.mark.parametrize("centered", [True, False])
def test_weights_reach_the_optimum_of_the_conic_program(centered, labelled, classes):
    kernels, y = kernels_and_labels(classes=classes)
    y = y[:labelled]
    b, Q, T = parts(kernels, y, centered)
    mu = cp.Variable(4)
    result = alignment_weights(kernels, y, centered=centered)
    assert result.value == pytest.approx(largest(b, Q, mu, [mu >= 0]), rel=1e-6)
    assert (result.weights >= 0).all()
    assert result.value == pytest.approx(b @ result.weights, rel=1e-9)
    assert result.weights @ Q @ result.weights == pytest.approx(1)
    assert result.gap == pytest.approx(0, abs=1e-9)
    if labelled == 30:
        assert result.alignment == pytest.approx(
            alignment(result.kernel, target_kernel(y), centered=centered)
        )
        best = max(target_alignment(K, y, centered) for K in kernels)
        assert result.alignment >= best - 1e-12
    # Mode "independent".
    own = alignment_weights(kernels, y, kernel_family="independent", centered=centered)
    unit = own.weights * np.sqrt(np.diag(Q))
    assert unit / unit.sum() == pytest.approx(
        (b / np.sqrt(np.diag(Q))) / (b / np.sqrt(np.diag(Q))).sum()
    )
    assert own.weights @ Q @ own.weights == pytest.approx(1)
    assert own.value <= own.bound == pytest.approx(result.value)
    # Mode "signed".
    signed = alignment_weights(kernels, y, kernel_family="signed", centered=centered)
    K = sum(mu[i] * kernel for i, kernel in enumerate(kernels))
    assert signed.value == pytest.approx(largest(b, Q, mu, [(K + K.T) / 2 >> 0]), rel=1e-5)
    assert signed.bound >= signed.value >= result.value * (1 - 1e-9)
    assert linalg.eigvalsh(signed.kernel)[0] >= -1e-9 * np.trace(signed.kernel)
    # Mode "free".
    free = alignment_weights(None, y, kernel_family="free", centered=centered, n_points=30)
    assert free.value == pytest.approx(np.linalg.norm(T)) and free.alignment == 1
    assert free.value == pytest.approx(np.sum(free.kernel[:labelled, :labelled] * T))
    assert np.linalg.norm(free.kernel) == pytest.approx(1) and free.value >= signed.value


@pytest.mark.parametrize("centered", [True, False])
def test_closed_form_of_directions(centered):
    kernels, y = kernels_and_labels()
    y = y[:20]
    K = center_kernel(kernels[1]) if centered else kernels[1]
    V = linalg.eigh(K)[1][:, ::-1][:, :6]
    b, Q, _ = parts([np.outer(v, v) for v in V.T], y, centered)
    assert pytest.approx(np.eye(6), abs=1e-9) == Q
    mu = cp.Variable(6)
    result = alignment_weights(
        [kernels[1]], y, kernel_family="rank_one", centered=centered, n_directions=6
    )
    assert result.value == pytest.approx(largest(b, Q, mu, [mu >= 0]), rel=1e-6)
    assert result.weights == pytest.approx(b / np.linalg.norm(b))


def test_copies_and_constant_kernels_do_no_harm():
    kernels, y = kernels_and_labels()
    result = alignment_weights(kernels, y)
    more = [*kernels, 2 * kernels[1], np.ones((30, 30))]
    again = alignment_weights(more, y)
    assert again.value == pytest.approx(result.value)
    assert again.weights[-1] == 0


def test_a_function_gives_the_same_and_few_kernels_are_kept():
    kernels, y = kernels_and_labels()
    kernels = [*kernels, kernels[0] + kernels[1], np.eye(30), kernels[2] ** 2, kernels[1] ** 3]
    calls = []

    def made(i):
        calls.append(i)
        return kernels[i]

    result = alignment_weights(made, y)
    assert result.weights == pytest.approx(alignment_weights(np.array(kernels), y).weights)
    assert len(calls) < 8 * 8


def test_kernels_that_know_nothing_of_the_labels_raise():
    y = [0, 1] * 5
    with pytest.raises(ValueError, match="no kernel is aligned with y"):
        alignment_weights([np.ones((10, 10))], y)
    with pytest.raises(ValueError, match="no kernel is aligned with y"):
        alignment_weights([np.ones((10, 10))], y, centered=False)


# ---------------------------------------------------------------------- ideal kernels


def test_idealized_distances_are_shifted_across_classes_alone():
    kernels, y = kernels_and_labels(classes=3)
    K = kernels[1]
    for gamma in (0.0, 0.7):
        got = idealize(K, y, gamma)
        distances = [np.add.outer(np.diag(M), np.diag(M)) - 2 * M for M in (K, got)]
        assert distances[1] - distances[0] == pytest.approx(gamma * (y[:, None] != y))


def test_alignment_rises_for_every_gamma():
    """The condition on gamma in the survey always holds, as products with K* are nonnegative."""
    for seed in range(5):
        kernels, y = kernels_and_labels(12, 3, seed)
        ideal = ideal_kernel(y)
        for K in kernels:
            assert np.sum(K * ideal) >= 0
            steps = [alignment(idealize(K, y, gamma), ideal) for gamma in (0, 1e-4, 0.1, 10)]
            assert np.all(np.diff(steps) > 0)
    assert alignment(idealize(3 * ideal, y, 1.0), ideal) == pytest.approx(1)
