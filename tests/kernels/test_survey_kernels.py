"""Formulas for learned kernels that are misprinted in the survey, compared with correct ones."""

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from scipy import linalg
from scipy.spatial.distance import cdist

from nearfar.kernels import (
    alignment,
    alignment_weights,
    ideal_kernel,
    idealize,
    margin_value,
    margin_weights,
    target_alignment,
    target_kernel,
)

RANDOM = np.random.default_rng(0)
Y = np.arange(16) % 2
SIGN = 2.0 * Y - 1
X = RANDOM.standard_normal((16, 3)) + 0.8 * Y[:, None]
LINEAR = X @ X.T
NARROW = np.exp(-cdist(X, X, "sqeuclidean") / 2)


def test_the_hyperplane_is_farthest_from_the_closest_points():
    """For separable classes, no other direction and intercept have a larger margin."""
    apart = X + 3 * SIGN[:, None]
    w, b = cp.Variable(3), cp.Variable()
    limits = [cp.multiply(SIGN, apart @ w + b) >= 1]
    squared = solved(cp.Problem(cp.Minimize(cp.sum_squares(w)), limits))
    assert margin_value(apart @ apart.T, Y) == pytest.approx(squared, rel=1e-5)
    best = np.min(SIGN * (apart @ w.value + b.value)) / np.linalg.norm(w.value)
    assert best == pytest.approx(margin_value(apart @ apart.T, Y) ** -0.5, rel=1e-4)
    for other in np.random.default_rng(1).standard_normal((50, 3)):
        f = apart @ other / np.linalg.norm(other)
        room = (f[Y == 1].min() - f[Y == 0].max()) / 2  # with the best intercept for this direction
        assert room <= best + 1e-9


def test_a_penalty_of_c_times_the_slacks_is_a_box_of_half():
    w, b, slack = cp.Variable(3), cp.Variable(), cp.Variable(16, nonneg=True)
    for C in (0.3, 2.0):
        cost = cp.sum_squares(w) + C * cp.sum(slack)
        printed = solved(cp.Problem(cp.Minimize(cost), [cp.multiply(SIGN, X @ w + b) >= 1 - slack]))
        assert printed == pytest.approx(margin_value(LINEAR, Y, C / 2), rel=1e-5)
        assert printed < 0.95 * margin_value(LINEAR, Y, C)  # the survey states that they are equal
    # Equation 33 has no penalty, so its solution is w = 0.
    assert solved(cp.Problem(cp.Minimize(cp.sum_squares(w)))) == pytest.approx(0)


def test_multipliers_are_zero_beside_the_margin():
    """The survey prints that all multipliers are positive; off the margin they are zero."""
    result = margin_weights([LINEAR, NARROW], Y, C=10.0, tol=1e-6)
    assert (result.alpha == 0).any() and (result.alpha > 0).any()


def test_the_functional_is_convex_in_the_kernel_for_it_is_linear_given_alpha():
    for C, dual_ridge in ((1.0, 0.0), (None, 0.5)):
        ends = [margin_value(K, Y, C, dual_ridge) for K in (LINEAR, NARROW)]
        for share in (0.25, 0.5, 0.75):
            between = margin_value(share * LINEAR + (1 - share) * NARROW, Y, C, dual_ridge)
            assert between <= share * ends[0] + (1 - share) * ends[1] + 1e-9
    # The survey argues with convexity in alpha, but the functional is concave in alpha.
    G = np.outer(SIGN, SIGN) * NARROW
    a, b = RANDOM.uniform(size=(2, 16))
    value = [2 * v.sum() - v @ G @ v for v in (a, (a + b) / 2, b)]
    assert value[1] > (value[0] + value[2]) / 2


def test_the_largest_t_is_infinite():
    """Theorem E prints max t, but every t above the functional is feasible."""
    n, C = 8, 1.0
    K, sign = NARROW[:n, :n], SIGN[:n]
    G = np.outer(sign, sign) * K
    t, regularization = cp.Variable(), cp.Variable()
    nu, delta = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
    right = cp.reshape(1 + nu - delta + regularization * sign, (n, 1), order="C")
    corner = cp.reshape(t - 2 * C * cp.sum(delta), (1, 1), order="C")
    block = cp.bmat([[G, right], [right.T, corner]])
    limits = [(block + block.T) / 2 >> 0]
    least = solved(cp.Problem(cp.Minimize(t), limits))
    assert least == pytest.approx(margin_value(K, Y[:n], C), rel=1e-5)
    largest = cp.Problem(cp.Maximize(t), limits)
    largest.solve(solver=cp.CLARABEL)
    assert largest.status == cp.UNBOUNDED


def test_a_matrix_of_trace_and_norm_one_has_rank_one():
    """Equation 43 requires both, but no combination of the base kernels has both."""
    result = alignment_weights([LINEAR, NARROW], Y, centered=False)
    assert np.linalg.norm(result.kernel) == pytest.approx(1)
    assert np.trace(result.kernel) > 1.1
    for share in np.linspace(0, 1, 11):
        K = share * LINEAR / np.trace(LINEAR) + (1 - share) * NARROW / np.trace(NARROW)
        assert np.trace(K) == pytest.approx(1) and np.linalg.norm(K) < 0.9
    # The target has both, and is the best of all matrices; its rank is one.
    T = np.outer(SIGN, SIGN) / 16
    assert np.trace(T) == pytest.approx(1) and np.linalg.norm(T) == pytest.approx(1)


def test_the_most_aligned_of_all_matrices_has_nothing_for_points_without_a_label():
    n, known = 8, 5
    K = cp.Variable((n, n), PSD=True)
    product = cp.sum(cp.multiply(target_kernel(Y[:known]), K[:known, :known]))
    value = solved(cp.Problem(cp.Maximize(product), [cp.norm(K, "fro") <= 1]))
    result = alignment_weights(None, Y[:known], kernel_family="free", centered=False, n_points=n)
    assert result.value == pytest.approx(value, rel=1e-6) == known
    assert result.kernel == pytest.approx(K.value, abs=1e-4)
    assert not result.kernel[known:].any()


def test_the_program_bounds_the_whole_kernel_and_alignment_the_part_with_labels():
    known = 9
    kernels, y = [LINEAR, NARROW], Y[:known]
    whole = alignment_weights(kernels, y, centered=False)
    part = alignment_weights([K[:known, :known] for K in kernels], y, centered=False)
    seen = [
        target_alignment(
            sum(w * K[:known, :known] for w, K in zip(f.weights, kernels, strict=True)), y
        )
        for f in (whole, part)
    ]
    assert part.alignment == pytest.approx(seen[1])
    assert whole.alignment < 0.9 * seen[0]  # so the value is not an alignment
    assert seen[0] <= seen[1]


def test_the_norm_of_the_target_is_the_number_of_points():
    """The survey prints m, the number of features (here 3), which gives alignments above 1."""
    T = target_kernel(Y)
    assert np.sum(T * T) == 16**2
    assert np.sum(T * T) / (X.shape[1] * np.linalg.norm(T)) > 1
    assert linalg.eigvalsh(T)[0] == pytest.approx(
        0, abs=1e-12
    )  # positive semi-definite, but not positive definite


def test_alignment_rises_where_the_condition_says_that_it_need_not():
    """It also increases for an indefinite matrix that has a negative product with K*."""
    ideal = ideal_kernel(Y)
    indefinite = NARROW - 0.8 * ideal
    product = float(np.sum(indefinite * ideal))
    assert linalg.eigvalsh(indefinite)[0] < 0 > product
    gamma = -0.5 * product / np.sum(ideal)  # half of what the condition requires
    assert alignment(indefinite + gamma / 2 * ideal, ideal) > alignment(indefinite, ideal)
    # For kernels, the product is never negative, so the condition always holds.
    assert np.sum(LINEAR * ideal) > 0
    assert alignment(idealize(LINEAR, Y, 1e-3), ideal) > alignment(LINEAR, ideal)


def test_kernels_with_negative_eigenvalues_of_rounding_are_taken():
    """A conic modeler rejects such a kernel, because its quadratic form is not convex."""
    K = LINEAR - 1e-9 * np.trace(LINEAR) * np.eye(16)
    assert not cp.quad_form(cp.Variable(16), np.outer(SIGN, SIGN) * K).is_convex()
    result = margin_weights([K, NARROW], Y, C=1.0, tol=1e-5)
    other = margin_weights([LINEAR, NARROW], Y, C=1.0, tol=1e-5)
    assert result.value == pytest.approx(other.value, rel=1e-4)
