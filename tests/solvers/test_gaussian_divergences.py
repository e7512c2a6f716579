"""Divergences of projected Gaussians, the search over subspaces, and mixtures."""

import tracemalloc
import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from nearfar.solvers import subspaces
from nearfar.solvers.gaussian_divergences import (
    Bregman,
    GaussianFamily,
    KullbackLeibler,
    kullback_leibler,
    make_averaged_objective,
    make_normal_nodes,
    squared_difference,
)
from nearfar.solvers.mixtures import count_parameters, fit_figueiredo_jain
from nearfar.solvers.subspaces import (
    Interrupted,
    climb_subspace,
    draw_random_subspaces,
    find_orthonormal_basis,
    projector_distance,
    search_from_starts,
    search_subspace,
)

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _equal_draws_for_every_test():
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def gaussians(c=4, p=6, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(c, p, p))
    covariances = roots @ roots.transpose(0, 2, 1) / p + 0.3 * np.eye(p)
    return spread * rng.normal(size=(c, p)), covariances


def kl(m1, S1, m2, S2):
    """KL(1||2) from the textbook, with no code in common."""
    d = m1 - m2
    return 0.5 * (
        np.linalg.slogdet(S2)[1]
        - np.linalg.slogdet(S1)[1]
        + np.trace(np.linalg.solve(S2, S1))
        + d @ np.linalg.solve(S2, d)
        - len(d)
    )


def kl_matrix(U, means, covariances):
    c = len(means)
    D = np.zeros((c, c))
    for i in range(c):
        for j in range(c):
            if i != j:
                a, b = U.T @ covariances[i] @ U, U.T @ covariances[j] @ U
                D[i, j] = kl(means[i] @ U, a, means[j] @ U, b)
    return D


def kl_gradient(U, Si, Sj, mi, mj):
    """Equation 2.54 of the thesis, with its p×p matrices."""
    D = np.outer(mi - mj, mi - mj)
    Pi, Pj = np.linalg.inv(U.T @ Si @ U), np.linalg.inv(U.T @ Sj @ U)
    return Sj @ U @ Pj - Si @ U @ Pi + (Si + D) @ U @ Pj - Sj @ U @ Pj @ U.T @ (Si + D) @ U @ Pj


def numerical_gradient(f, U, h=1e-5):
    G = np.zeros_like(U)
    for index in np.ndindex(*U.shape):
        E = np.zeros_like(U)
        E[index] = h
        G[index] = (f(U + E) - f(U - E)) / (2 * h)
    return G


# The half power between Kullback-Leibler and squares: G'(x) = (1 + x/2)².
HALF_POWER = Bregman(
    lambda x: 2 / 3 * (1 + x / 2) ** 3, lambda p: 2 * (np.sqrt(p) - 1), lambda p: p**-0.5
)
BREGMAN_KL = Bregman(np.exp, np.log, lambda p: 1 / p)
BREGMAN_SQUARES = Bregman(lambda x: x**2 / 2, lambda p: p, np.ones_like)
DIVERGENCES = {
    "kl": kullback_leibler,
    "unnormalized": KullbackLeibler("unnormalized"),
    "l2": squared_difference,
    "bregman exp": BREGMAN_KL,
    "bregman squares": BREGMAN_SQUARES,
    "bregman half power": HALF_POWER,
}


# ---------------------------------------------------------------------- Kullback-Leibler


def test_kl_of_two_gaussians_known_by_hand():
    family = GaussianFamily([[0, 0], [1, 0]], [np.eye(2), np.diag([4.0, 1.0])])
    projected = family.project(np.array([[1.0], [0.0]]))
    D = kullback_leibler.values(projected)
    assert D[0, 1] == pytest.approx(0.4431472, abs=1e-7)
    assert D[1, 0] == pytest.approx(1.3068528, abs=1e-7)
    D = KullbackLeibler("unnormalized").values(projected)
    assert D[0, 1] == pytest.approx(1.8862944, abs=1e-7)
    assert D[1, 0] == pytest.approx(3.6137056, abs=1e-7)
    assert (np.diag(D) == 0).all()


def test_kl_against_draws():
    means, covariances = gaussians(2, 3, seed=1)
    U = RNG.normal(size=(3, 2))
    a = stats.multivariate_normal(means[0] @ U, U.T @ covariances[0] @ U)
    b = stats.multivariate_normal(means[1] @ U, U.T @ covariances[1] @ U)
    draws = a.rvs(400_000, random_state=0)
    result = kullback_leibler.values(GaussianFamily(means, covariances).project(U))[0, 1]
    assert np.mean(a.logpdf(draws) - b.logpdf(draws)) == pytest.approx(result, rel=0.01)


@pytest.mark.parametrize("q", [1, 3, 6])
def test_all_pairs_at_once_equal_the_textbook_formula(q):
    means, covariances = gaussians(5, 6)
    U = RNG.normal(size=(6, q))
    D = kullback_leibler.values(GaussianFamily(means, covariances).project(U))
    np.testing.assert_allclose(D, kl_matrix(U, means, covariances), atol=1e-12)


def test_collected_gradient_equals_the_sum_over_pairs():
    means, covariances = gaussians(5, 8)
    U, W = RNG.normal(size=(8, 3)), RNG.normal(size=(5, 5))
    slow = sum(
        W[i, j] * kl_gradient(U, covariances[i], covariances[j], means[i], means[j])
        for i in range(5)
        for j in range(5)
        if i != j
    )
    projected = GaussianFamily(means, covariances).project(U)
    np.testing.assert_allclose(kullback_leibler.gradient(projected, W), slow, atol=1e-11)


def test_weights_on_the_diagonal_change_nothing():
    means, covariances = gaussians()
    U, W = RNG.normal(size=(6, 2)), np.ones((4, 4))
    projected = GaussianFamily(means, covariances).project(U)
    for divergence in DIVERGENCES.values():
        np.testing.assert_allclose(
            divergence.gradient(projected, W),
            divergence.gradient(projected, W - np.eye(4)),
            atol=1e-12,
        )


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("q", [1, 2, 3])
def test_gradients_by_finite_differences(name, q):
    divergence = DIVERGENCES[name]
    means, covariances = gaussians(3, 5, seed=q)
    family = GaussianFamily(means, covariances)
    U, W = find_orthonormal_basis(RNG.normal(size=(5, q))), RNG.normal(size=(3, 3))

    def value(U):
        return float(np.sum(W * divergence.values(family.project(U))))

    expected = numerical_gradient(value, U)
    result = divergence.gradient(family.project(U), W)
    np.testing.assert_allclose(result, expected, atol=1e-7 * np.abs(expected).max())


def test_kl_does_not_change_under_any_invertible_map_of_the_subspace():
    # The thesis claims it for orthogonal ones (claim 2.1); it holds for all.
    means, covariances = gaussians(4, 6)
    family = GaussianFamily(means, covariances)
    U, B = RNG.normal(size=(6, 3)), RNG.normal(size=(3, 3))
    D = kullback_leibler.values(family.project(U))
    np.testing.assert_allclose(kullback_leibler.values(family.project(U @ B)), D, atol=1e-10)
    A, b = RNG.normal(size=(6, 6)), RNG.normal(size=6)
    mapped_family = GaussianFamily(means @ A.T + b, A @ covariances @ A.T)
    mapped_projection = mapped_family.project(np.linalg.inv(A).T @ U)
    np.testing.assert_allclose(kullback_leibler.values(mapped_projection), D, atol=1e-10)
    # The square of densities has a unit: only rotations leave it alone.
    Q = find_orthonormal_basis(B)
    squares = squared_difference.values(family.project(U))
    np.testing.assert_allclose(
        squared_difference.values(family.project(U @ Q)), squares, atol=1e-12
    )
    assert not np.allclose(squared_difference.values(family.project(2 * U)), squares, rtol=0.1)


def test_the_gradient_is_orthogonal_to_the_subspace():
    means, covariances = gaussians(4, 6)
    U = RNG.normal(size=(6, 2))
    projected = GaussianFamily(means, covariances).project(U)
    G = kullback_leibler.gradient(projected, RNG.normal(size=(4, 4)))
    assert np.abs(U.T @ G).max() < 1e-10


def test_more_dimensions_never_lower_a_divergence_and_blocks_add():
    means, covariances = gaussians(3, 6)
    family = GaussianFamily(means, covariances)
    U = RNG.normal(size=(6, 4))
    values = [kullback_leibler.values(family.project(U[:, :q])) for q in (1, 2, 3, 4)]
    assert all((b - a > -1e-12).all() for a, b in pairwise(values))
    covariances[:, :3, 3:] = covariances[:, 3:, :3] = 0
    family = GaussianFamily(means, covariances)
    U, V = np.eye(6)[:, :2], np.eye(6)[:, 3:5]
    joint_divergences = kullback_leibler.values(family.project(np.hstack([U, V])))
    block_divergences = [kullback_leibler.values(family.project(block)) for block in (U, V)]
    np.testing.assert_allclose(joint_divergences, sum(block_divergences), atol=1e-12)


def test_a_large_common_offset_costs_no_digits():
    means, covariances = gaussians(4, 6)
    U = RNG.normal(size=(6, 2))
    D = kullback_leibler.values(GaussianFamily(means, covariances).project(U))
    far = kullback_leibler.values(GaussianFamily(means + 1e6, covariances).project(U))
    np.testing.assert_allclose(far, D, rtol=1e-8, atol=1e-8)


def test_symmetric_sums_are_the_pairwise_objective_of_parda():
    # J_ij = tr(Φ_i Q_ij) + tr(Φ_j Q_ji) - 2q, and its gradient from symmetric weights 2a.
    means, covariances = gaussians(4, 7)
    U = RNG.normal(size=(7, 3))
    a = np.abs(RNG.normal(size=(4, 4)))
    a = np.triu(a, 1) + np.triu(a, 1).T
    projected = GaussianFamily(means, covariances).project(U)
    D = kullback_leibler.values(projected)
    J, gradient = np.zeros((4, 4)), np.zeros_like(U)
    for i in range(4):
        for j in range(i + 1, 4):
            u = np.outer(means[i] - means[j], means[i] - means[j])
            Aij, Aji = u + covariances[j], u + covariances[i]
            Pi, Pj = (np.linalg.inv(U.T @ covariances[k] @ U) for k in (i, j))
            J[i, j] = np.trace(Pi @ U.T @ Aij @ U) + np.trace(Pj @ U.T @ Aji @ U) - 6
            gradient += a[i, j] * (
                2 * Aij @ U @ Pi
                - 2 * covariances[i] @ U @ Pi @ (U.T @ Aij @ U) @ Pi
                + 2 * Aji @ U @ Pj
                - 2 * covariances[j] @ U @ Pj @ (U.T @ Aji @ U) @ Pj
            )
    np.testing.assert_allclose(np.triu(2 * (D + D.T), 1), J, atol=1e-11)
    np.testing.assert_allclose(kullback_leibler.gradient(projected, 2 * a), gradient, atol=1e-11)


def test_decell_and_mayekar_average_twice_the_divergences():
    means, covariances = gaussians(4, 6)
    U = RNG.normal(size=(6, 2))
    total = -4 * 3 * 2.0
    for i in range(4):
        inner = sum(
            covariances[j] + np.outer(means[i] - means[j], means[i] - means[j])
            for j in range(4)
            if j != i
        )
        total += np.trace(np.linalg.solve(U.T @ covariances[i] @ U, U.T @ inner @ U))
    D = kullback_leibler.values(GaussianFamily(means, covariances).project(U))
    assert total == pytest.approx(2 * D.sum())


def test_published_divergences_of_figure_2_5_are_unnormalised():
    # With equal means, 1.1451 and 1.1043 fit one ratio of variances, 1.6395, in that convention.
    family = GaussianFamily(np.zeros((2, 1)), [[[1.6395]], [[1.0]]])
    D = KullbackLeibler("unnormalized").values(family.project(np.ones((1, 1))))
    assert D[0, 1] == pytest.approx(1.1451, abs=5e-5)
    assert D[1, 0] == pytest.approx(1.1043, abs=5e-5)


def test_blocks_of_pairs_give_what_all_at_once_give(monkeypatch):
    means, covariances = gaussians(7, 5)
    U, W = RNG.normal(size=(5, 2)), RNG.normal(size=(7, 7))
    projected = GaussianFamily(means, covariances).project(U)
    D, G = kullback_leibler.values(projected), kullback_leibler.gradient(projected, W)
    monkeypatch.setattr("nearfar.solvers.gaussian_divergences._MAX_ELEMENTS", 20)
    projected = GaussianFamily(means, covariances).project(U)
    np.testing.assert_allclose(kullback_leibler.values(projected), D, atol=1e-13)
    np.testing.assert_allclose(kullback_leibler.gradient(projected, W), G, atol=1e-12)


def test_factored_covariances_need_no_square_matrices():
    c, p, q, n = 20, 600, 4, 15
    rng = np.random.default_rng(0)
    Z, means = rng.normal(size=(c, n, p)), rng.normal(size=(c, p))
    U = find_orthonormal_basis(rng.normal(size=(p, q)))
    thin = GaussianFamily(means, lambda U: Z.transpose(0, 2, 1) @ (Z @ U) / n + 0.1 * U)
    objective = make_averaged_objective(
        thin, kullback_leibler, lambda D: (D.sum(), np.ones_like(D))
    )
    objective(U)
    tracemalloc.start()
    value, gradient = objective(U)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < c * p * p * 8 / 20
    dense = GaussianFamily(means, Z.transpose(0, 2, 1) @ Z / n + 0.1 * np.eye(p))
    expected, slope = make_averaged_objective(
        dense, kullback_leibler, lambda D: (D.sum(), np.ones_like(D))
    )(U)
    assert value == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-10 * np.abs(slope).max())


def test_a_singular_projection_warns_and_stays_finite():
    means, covariances = gaussians(3, 4)
    covariances[1] = np.diag([1.0, 0, 0, 0])
    projected = GaussianFamily(means, covariances).project(np.eye(4)[:, :2])
    with pytest.warns(RuntimeWarning, match="Use shrinkage"):
        D = kullback_leibler.values(projected)
    assert (
        np.isfinite(D).all()
        and np.isfinite(kullback_leibler.gradient(projected, np.ones((3, 3)))).all()
    )


# ---------------------------------------------------------------------- other divergences


def densities(family, U):
    projected = family.project(U)
    return [
        stats.norm(float(m[0]), float(np.sqrt(P[0, 0])))
        for m, P in zip(projected.means, projected.covariances, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "G", "xi"),
    [
        ("kl", np.exp, np.log),
        ("bregman exp", np.exp, np.log),
        ("l2", lambda x: x**2 / 2, lambda p: p),
        ("bregman squares", lambda x: x**2 / 2, lambda p: p),
        ("bregman half power", lambda x: 2 / 3 * (1 + x / 2) ** 3, lambda p: 2 * (np.sqrt(p) - 1)),
    ],
)
def test_bregman_divergences_against_their_integral(name, G, xi):
    means, covariances = gaussians(3, 4)
    family = GaussianFamily(means, covariances)
    U = find_orthonormal_basis(RNG.normal(size=(4, 1)))
    D = DIVERGENCES[name].values(family.project(U))
    laws = densities(family, U)

    def gap(x, i, j):
        p, r = (np.maximum(laws[k].pdf(x), 1e-300) for k in (i, j))
        return G(xi(r)) - G(xi(p)) - p * (xi(r) - xi(p))

    for i, j in ((0, 1), (1, 0), (2, 0)):
        integral = integrate.quad(gap, -12, 12, args=(i, j), epsabs=1e-11, limit=400)[0]
        assert D[i, j] == pytest.approx(integral, rel=1e-5, abs=1e-8)
        assert D[i, j] > 0
    assert (name in ("l2", "bregman squares")) == np.allclose(D, D.T, rtol=1e-6)


def test_quadrature_agrees_with_closed_forms_in_several_dimensions():
    means, covariances = gaussians(3, 6)
    family = GaussianFamily(means, covariances)
    off = ~np.eye(3, dtype=bool)
    for q, tolerance in ((2, 1e-6), (3, 0.02), (4, 0.05)):
        projected = family.project(find_orthonormal_basis(RNG.normal(size=(6, q))))
        exact = kullback_leibler.values(projected)
        np.testing.assert_allclose(BREGMAN_KL.values(projected), exact, atol=1e-10)
        exact = squared_difference.values(projected)[off]
        np.testing.assert_allclose(BREGMAN_SQUARES.values(projected)[off], exact, rtol=tolerance)


@pytest.mark.parametrize("q", [1, 2, 3])
def test_quadrature_does_not_saturate_for_distant_gaussians(q):
    means = np.zeros((3, 4))
    means[1, :q], means[2, 0] = 60.0, -90.0
    covariances = [np.eye(4), 2 * np.eye(4), np.diag([1.0, 2.0, 3.0, 1.0])]
    projected = GaussianFamily(means, covariances).project(np.eye(4)[:, :q])
    expected = kullback_leibler.values(projected)
    assert expected[expected > 0].min() > 700
    np.testing.assert_allclose(BREGMAN_KL.values(projected), expected, rtol=1e-9)
    weights = np.ones((3, 3))
    np.testing.assert_allclose(
        BREGMAN_KL.gradient(projected, weights),
        kullback_leibler.gradient(projected, weights),
        rtol=1e-9,
        atol=1e-7,
    )
    assert np.isfinite(HALF_POWER.values(projected)).all()


def test_nodes_have_the_moments_of_the_normal():
    for q in (1, 2, 3, 5):
        nodes, weights = make_normal_nodes(q)
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(weights @ nodes, 0, atol=1e-12)
        np.testing.assert_allclose((nodes.T * weights) @ nodes, np.eye(q), atol=1e-10)


# ---------------------------------------------------------------------- subspaces


def trace_objective(A):
    return lambda U: (float(np.trace(np.linalg.solve(U.T @ U, U.T @ A @ U))), _trace_gradient(A, U))


def _trace_gradient(A, U):
    inverse = np.linalg.inv(U.T @ U)
    return 2 * (A @ U @ inverse - U @ inverse @ (U.T @ A @ U) @ inverse)


def spectrum(p=12, seed=0):
    Q = find_orthonormal_basis(np.random.default_rng(seed).normal(size=(p, p)))
    values = np.arange(p, 0, -1.0)
    return (Q * values) @ Q.T, Q, values


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("orthonormalize", [True, False])
def test_search_finds_the_extreme_eigenvectors(maximize, orthonormalize):
    A, Q, values = spectrum()
    result = search_subspace(
        trace_objective(A),
        RNG.normal(size=(12, 3)),
        maximize=maximize,
        orthonormalize=orthonormalize,
    )
    expected = Q[:, :3] if maximize else Q[:, -3:]
    total = values[:3].sum() if maximize else values[-3:].sum()
    assert result.converged
    assert result.objective == pytest.approx(total, rel=1e-9)
    accuracy = 1e-9 if orthonormalize else 1e-4
    assert projector_distance(expected, find_orthonormal_basis(result.U)) < accuracy
    steps = result.history
    assert len(steps["objective"]) == len(steps["step"]) == len(steps["seconds"]) == result.n_iter
    gains = np.diff(steps["objective"])
    assert (gains >= -1e-12).all() if maximize else (gains <= 1e-12).all()


def test_objectives_that_only_rotations_leave_alone_are_kept_to_orthonormal_matrices():
    # Of the matrix itself tr(U'AU) has no maximum.
    A, Q, values = spectrum()
    result = search_subspace(
        lambda U: (float(np.sum(U * (A @ U))), 2 * A @ U), RNG.normal(size=(12, 3))
    )
    assert result.objective == pytest.approx(values[:3].sum(), rel=1e-9)
    assert projector_distance(Q[:, :3], result.U) < 1e-9


def test_gradient_through_the_orthonormal_basis_is_exact_for_any_function_of_it():
    C = RNG.normal(size=(6, 3))
    point = subspaces._MinimizedObjective(
        lambda Q: (float(np.sum(C * Q**2)), 2 * C * Q), (6, 3), sign=1.0, orthonormalize=True
    )
    U = RNG.normal(size=(6, 3))
    expected = numerical_gradient(lambda V: point(V.ravel())[0], U)
    np.testing.assert_allclose(point(U.ravel())[1].reshape(6, 3), expected, atol=1e-8)


def test_the_whole_space_needs_no_search():
    A, _, values = spectrum(4)
    result = search_subspace(trace_objective(A), RNG.normal(size=(4, 4)))
    assert result.converged and result.n_iter == 0
    assert result.objective == pytest.approx(values.sum())


def test_search_says_when_it_ran_out_of_steps():
    A, _, _ = spectrum(40)
    result = search_subspace(trace_objective(A), RNG.normal(size=(40, 3)), max_iter=3)
    assert not result.converged and result.n_iter == 3


def test_search_comes_back_from_where_the_objective_does_not_exist():
    A, Q, values = spectrum()
    inner = trace_objective(A)
    start = find_orthonormal_basis(Q[:, 1:3] + 0.2 * RNG.normal(size=(12, 2)))
    calls = [0]

    def objective(U):
        calls[0] += 1
        if calls[0] == 2:
            raise np.linalg.LinAlgError("no factor")
        if calls[0] == 3:
            return np.nan, U
        return inner(U)

    result = search_subspace(objective, start)
    assert result.objective == pytest.approx(values[:2].sum())
    with pytest.raises(ValueError, match="not finite at the start"):
        search_subspace(lambda U: (np.nan, U), start)


def test_projector_distance_knows_neither_signs_nor_rotations():
    U = find_orthonormal_basis(RNG.normal(size=(8, 3)))
    turned = U @ find_orthonormal_basis(RNG.normal(size=(3, 3)))
    assert projector_distance(U, turned) < 1e-14
    assert np.linalg.norm(U - turned) > 0.1  # what the thesis compares
    V = find_orthonormal_basis(RNG.normal(size=(8, 3)))
    expected = np.linalg.norm(U @ U.T - V @ V.T)
    assert projector_distance(U, V) == pytest.approx(expected)
    close = find_orthonormal_basis(U + 1e-10 * V)
    assert 1e-11 < projector_distance(U, close) < 1e-9  # no digits lost


def test_the_best_of_several_starts_is_kept_with_all_values():
    # -cos(3t) on a circle of directions: local maxima.
    def objective(U):
        x, y = U[:, 0]
        angle = np.arctan2(y, x)
        r2 = x * x + y * y
        value = np.cos(4 * angle) + 0.3 * np.cos(2 * angle)
        slope = -4 * np.sin(4 * angle) - 0.6 * np.sin(2 * angle)
        return float(value), slope * np.array([[-y], [x]]) / r2

    starts = [np.array([[0.1], [1.0]]), np.array([[1.0], [0.1]])]
    result = search_from_starts(objective, starts)
    assert result.objectives == pytest.approx([0.7, 1.3])
    assert result.objective == pytest.approx(1.3)
    # Equal ends: the first is kept, whatever the rounding.
    repeated = search_from_starts(objective, [starts[1], starts[1] * [[1.0], [1.01]]])
    first = search_subspace(objective, starts[1])
    np.testing.assert_array_equal(repeated.U, first.U)
    with pytest.raises(ValueError, match="`starts` is empty"):
        search_from_starts(objective, [])


@pytest.mark.parametrize("solver", [search_subspace, climb_subspace])
def test_an_interrupt_carries_the_best_state(solver):
    A, _, _ = spectrum()
    inner = trace_objective(A)
    calls = [0]

    def objective(U):
        calls[0] += 1
        if calls[0] == 8:
            raise KeyboardInterrupt
        return inner(U)

    start = find_orthonormal_basis(RNG.normal(size=(12, 3)))
    with pytest.raises(KeyboardInterrupt) as caught:
        solver(objective, start)
    assert isinstance(caught.value, Interrupted)
    result = caught.value.search
    assert result.objective == pytest.approx(inner(result.U)[0])
    assert result.objective > inner(start)[0]
    calls[0] = 0
    starts = list(draw_random_subspaces(3, 12, 3, np.random.RandomState(0)))
    with pytest.raises(Interrupted) as caught:
        search_from_starts(objective, starts, solver=solver)
    assert len(caught.value.search.objectives) == 1


def test_climbing_shortens_steps_and_never_descends():
    A, _, values = spectrum()
    start = RNG.normal(size=(12, 2))
    result = climb_subspace(trace_objective(A), start, step=1.0, max_iter=400, tol=1e-12)
    assert (np.diff(result.history["objective"]) > 0).all()
    assert result.objective == pytest.approx(values[:2].sum(), rel=1e-4)
    # A short path by default: at most max_iter steps of length 0.01.
    short = climb_subspace(trace_objective(A), start)
    assert 0 < projector_distance(find_orthonormal_basis(start), short.U) < np.sqrt(2) * 1.01
    down = climb_subspace(trace_objective(A), start, maximize=False, max_iter=50)
    assert (np.diff(down.history["objective"]) < 0).all()


def test_climbing_as_published_takes_every_step():
    # Shrink 1: no step is refused; the stopping rule is an absolute change.
    objective = trace_objective(np.diag([3.0, 2.0, 1.0]))
    result = climb_subspace(
        objective,
        np.array([[0.1], [1.0], [1.0]]),
        orthonormalize=False,
        normalize=False,
        step=1e-3,
        shrink=1.0,
        tol=1e-6,
        max_iter=10,
    )
    assert result.n_iter == 10 and not result.converged
    assert np.linalg.norm(result.U) > np.linalg.norm([0.1, 1, 1])  # steps only add to the norm


def test_climbing_stops_by_the_monitored_value():
    A, _, _ = spectrum()
    start = RNG.normal(size=(12, 2))
    still = climb_subspace(trace_objective(A), start, monitor=lambda: 1.0)
    assert still.converged and still.n_iter == 1


# ---------------------------------------------------------------------- mixtures


def three_clusters(n=100, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=(n, 2)) + m for m in ([0, 0], [6, 0], [0, 6])])


@pytest.mark.parametrize("seed", range(6))
def test_mixtures_find_three_clusters_from_twelve(seed):
    X = three_clusters(seed=seed)
    result = fit_figueiredo_jain(X, max_components=12, random_state=np.random.RandomState(seed))
    assert result.n_components == 3 and not result.fallback
    order = np.argsort(result.means @ [1.0, 3.0])
    np.testing.assert_allclose(result.means[order], [[0, 0], [6, 0], [0, 6]], atol=0.5)
    np.testing.assert_allclose(result.weights, 1 / 3, atol=0.05)
    # Responsibilities are the posterior probabilities of that mixture.
    densities = np.stack(
        [
            w * stats.multivariate_normal(m, S).pdf(X)
            for w, m, S in zip(result.weights, result.means, result.covariances, strict=True)
        ],
        axis=1,
    )
    posterior = densities / densities.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.responsibilities, posterior, atol=1e-8)
    n, k, half = len(X), 3, 5 / 2
    length = half * np.log(n * result.weights).sum() + k / 2 * np.log(n)
    length -= np.log(densities.sum(axis=1)).sum()
    assert result.message_length == pytest.approx(length)


def test_in_high_dimension_every_full_component_is_annihilated():
    # N/2 = 430 parameters against 300 rows: without the safeguard nothing would be left.
    assert count_parameters(40, "full") / 2 == 430
    X = np.random.default_rng(0).normal(size=(300, 40))
    result = fit_figueiredo_jain(X, random_state=np.random.RandomState(0))
    assert result.fallback and result.n_components == 1
    np.testing.assert_allclose(result.means[0], X.mean(axis=0))
    spherical = fit_figueiredo_jain(
        X, covariance_type="spherical", random_state=np.random.RandomState(0)
    )
    assert not spherical.fallback


@pytest.mark.parametrize("covariance_type", ["full", "diagonal", "spherical"])
def test_one_cluster_is_one_component(covariance_type):
    X = np.random.default_rng(1).normal(size=(300, 3))
    result = fit_figueiredo_jain(
        X, covariance_type=covariance_type, random_state=np.random.RandomState(0)
    )
    assert result.n_components == 1


def test_mixtures_of_equal_rows_and_of_two_points_stay_finite():
    for X in (np.ones((30, 2)), np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = fit_figueiredo_jain(X, random_state=np.random.RandomState(0))
        assert np.isfinite(result.covariances).all() and np.isfinite(result.message_length)
