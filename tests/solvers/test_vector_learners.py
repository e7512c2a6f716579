"""Learners of one mode: vectors and labels of ±1."""

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.svm import SVC, LinearSVC, NuSVC

from nearfar.solvers.fisher_direction import (
    Scores,
    compute_scale_and_intercept,
    find_fisher_direction,
)
from nearfar.solvers.hinge_program import solve_hinge_program, solve_hinge_program_locally
from nearfar.solvers.hyperplanes import lift_to_features, reduce_to_row_space
from nearfar.solvers.label_ridge import label_ridge
from nearfar.solvers.minimax_probability import find_minimax_direction
from nearfar.solvers.support_vectors import c_svm, compute_max_nu, nu_svm


def fixture():
    """F1 of the specification."""
    y = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
    random = np.random.default_rng(4)
    A, s = random.standard_normal((40, 6)), random.standard_normal(6)
    X = A + 0.6 * y[:, None] * s
    assert np.isclose(X.sum(), 10.243559589706, atol=1e-9)
    return X, y


def overlapping(n, L, seed=0, gap=0.4, share=0.5):
    random = np.random.default_rng(seed)
    y = np.where(np.arange(n) < share * n, 1.0, -1.0)
    return random.standard_normal((n, L)) + gap * y[:, None] * random.standard_normal(L), y


def hinge_objective(X, y, cost, w, b):
    return 0.5 * w @ w + cost @ np.maximum(0, 1 - y * (X @ w + b))


def conic_svm(X, y, cost):
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    program = cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(w) + cost @ cp.pos(1 - cp.multiply(y, X @ w + b)))
    )
    return solved(program), w.value


def moments(X, y):
    plus, minus = X[y > 0], X[y < 0]
    return (
        plus.mean(0),
        minus.mean(0),
        np.cov(plus.T, ddof=0).reshape(X.shape[1], -1),
        np.cov(minus.T, ddof=0).reshape(X.shape[1], -1),
    )


# ---------------------------------------------------------------------- C-SVM


def test_c_svm_of_the_fixture():
    X, y = fixture()
    plane = c_svm(X, y, np.ones(40))
    assert np.isclose(plane.objective, 12.32180750, atol=1e-8)
    assert np.isclose(plane.b, -0.108224, atol=1e-6)
    assert np.isclose(np.linalg.norm(plane.w), 1.698952, atol=1e-6)


@pytest.mark.parametrize("C", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize(("n", "L", "gap"), [(80, 5, 0.4), (30, 60, 0.2), (60, 4, 2.0)])
def test_c_svm_proves_its_optimum_at_all_costs(n, L, gap, C):
    X, y = overlapping(n, L, gap=gap)
    cost = np.full(n, C)
    plane = c_svm(X, y, cost)
    assert np.isclose(hinge_objective(X, y, cost, plane.w, plane.b), plane.objective, rtol=1e-9)
    assert plane.gap + 1e-12 * plane.objective >= 0 and plane.gap <= 1e-8 * plane.objective
    # The bound is that of a feasible dual point, computed here from its definition.
    assert plane.dual.min() >= 0 and plane.dual.max() <= C * (1 + 1e-12)
    assert abs(plane.dual @ y) <= 1e-9 * max(plane.dual.sum(), 1e-300)
    pull = (plane.dual * y) @ X
    assert np.isclose(plane.dual.sum() - 0.5 * pull @ pull, plane.objective, rtol=1e-7)


@pytest.mark.parametrize(("n", "L"), [(50, 6), (20, 40)])
def test_c_svm_with_costs_of_the_samples_is_the_conic_program(n, L):
    X, y = overlapping(n, L, seed=2, share=0.3)
    cost = np.random.default_rng(1).uniform(0.05, 2, n)
    cost[::7] = 0
    plane = c_svm(X, y, cost)
    value, w = conic_svm(X, y, cost)
    assert np.isclose(plane.objective, value, rtol=1e-6)
    assert plane.objective <= value * (1 + 1e-8)
    assert np.allclose(plane.w, w, atol=2e-4)
    assert not plane.dual[::7].any()


def test_libsvm_agrees_and_liblinear_solves_another_problem():
    X, y = overlapping(80, 10)
    X = X + 3
    cost = np.ones(80)
    plane = c_svm(X, y, cost)
    machine = SVC(kernel="linear", tol=1e-6).fit(X, y)
    theirs = hinge_objective(X, y, cost, machine.coef_[0], machine.intercept_[0])
    assert plane.objective <= theirs * (1 + 1e-9)
    assert np.isclose(plane.objective, theirs, rtol=1e-5)
    other = LinearSVC(loss="hinge", max_iter=100_000, random_state=0).fit(X, y)
    penalised = hinge_objective(X, y, cost, other.coef_[0], other.intercept_[0])
    assert penalised > plane.objective * 1.004


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("gap", [0.3, 1.5])
def test_rows_far_from_their_margin_may_be_left_out(gap, C):
    X, y = overlapping(900, 6, gap=gap, share=0.3)
    given = (y[:, None] * np.column_stack([X, np.ones(900)]), np.ones(900), np.full(900, C))
    given += (np.append(np.ones(6), 0.0), np.zeros(7))
    whole = solve_hinge_program(*given)
    far_off = np.random.default_rng(0).standard_normal(900)  # a guess that tells nothing
    for short in (None, 1 - given[0] @ whole.x, far_off):
        result = solve_hinge_program_locally(*given, short)
        assert np.isclose(result.objective, whole.objective, rtol=1e-9)
        assert np.allclose(result.x, whole.x, atol=1e-4)
        assert -1e-12 <= result.gap / whole.objective <= 1e-9
        # The bound is one for all rows.
        assert result.dual.min() >= 0 and result.dual.max() <= C * (1 + 1e-12)
        pull = result.dual @ given[0]
        assert abs(pull[-1]) <= 1e-8 * result.dual.sum()
        assert np.isclose(result.dual.sum() - 0.5 * pull[:6] @ pull[:6], result.bound, rtol=1e-7)


def test_complementary_slackness():
    X, y = overlapping(60, 5)
    plane = c_svm(X, y, np.ones(60))
    assert np.allclose(plane.w, (plane.dual * y) @ X, atol=1e-6)
    margins = y * (X @ plane.w + plane.b)
    assert (plane.dual[margins > 1 + 1e-4] < 1e-4).all()
    assert (plane.dual[margins < 1 - 1e-4] > 1 - 1e-4).all()


def test_norms_of_other_vectors_go_into_samples_or_into_costs():
    X, y = overlapping(40, 5)
    eta, c = 2.5, 0.7
    absorbed = c_svm(X / np.sqrt(eta), y, np.full(40, c)).w / np.sqrt(eta)
    assert np.allclose(absorbed, c_svm(X, y, np.full(40, c / eta)).w, atol=1e-6)
    # To forget eta is another solution.
    assert not np.allclose(absorbed, c_svm(X, y, np.full(40, c)).w, atol=1e-2)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_the_samples_change_nothing(scale):
    X, y = overlapping(40, 5)
    w = c_svm(X, y, np.ones(40)).w
    scaled = c_svm(scale * X + 5 * scale, y, np.full(40, scale**-2.0))
    assert np.allclose(scale * scaled.w, w, atol=1e-6)


def test_samples_that_are_all_the_same_give_the_majority():
    X, y = np.ones((10, 3)), np.where(np.arange(10) < 7, 1.0, -1.0)
    plane = c_svm(X, y, np.ones(10))
    assert np.allclose(plane.w, 0) and np.isclose(plane.b, 1, atol=1e-4)


# ---------------------------------------------------------------------- nu-SVM


def test_nu_svm_of_the_fixture():
    X, y = fixture()
    plane = nu_svm(X, y, 0.5)
    assert np.isclose(plane.objective, -0.01273180, atol=1e-8)
    assert np.isclose(np.linalg.norm(plane.w), 0.159573, atol=1e-6)
    # rho and b are not unique: the specification's pair is worth the same.
    excess = np.maximum(0, 0.145555 - y * (X @ plane.w + 0.024172)).mean()
    theirs = 0.5 * plane.w @ plane.w + excess - 0.5 * 0.145555
    assert np.isclose(theirs, plane.objective, atol=1e-6)


@pytest.mark.parametrize("nu", [0.3, 0.6, 0.8])
def test_nu_svm_is_that_of_libsvm_after_recovering_its_scale(nu):
    X, y = overlapping(60, 5, gap=0.8)
    plane = nu_svm(X, y, nu)
    machine = NuSVC(nu=nu, kernel="linear", tol=1e-6).fit(X, y)
    rho = nu / np.abs(machine.dual_coef_).sum()
    w, b = rho * machine.coef_[0], rho * machine.intercept_[0]
    theirs = 0.5 * w @ w + np.maximum(0, rho - y * (X @ w + b)).mean() - nu * rho
    assert np.isclose(plane.objective, theirs, rtol=1e-4)
    assert plane.objective <= theirs + 1e-9
    assert np.allclose(plane.w, w, atol=1e-3)
    # Unscaled it is another point of the problem, and a worse one.
    w, b = machine.coef_[0], machine.intercept_[0]
    assert 0.5 * w @ w + np.maximum(0, 1 - y * (X @ w + b)).mean() - nu > plane.objective + 1e-3
    # The property that gives nu its name.
    margins = y * (X @ plane.w + plane.b)
    assert np.mean(margins < plane.margin - 1e-6) <= nu <= np.mean(margins < plane.margin + 1e-6)


def test_nu_svm_is_the_conic_program_with_weights():
    X, y = overlapping(40, 4, gap=1.0)
    v = np.random.default_rng(0).uniform(0.5, 2, 40)
    plane = nu_svm(X, y, 0.4, v)
    w, b, rho = cp.Variable(4), cp.Variable(), cp.Variable(nonneg=True)
    short = cp.pos(rho - cp.multiply(y, X @ w + b))
    program = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + (v / v.sum()) @ short - 0.4 * rho))
    solved(program)
    assert np.isclose(plane.objective, program.value, atol=1e-7)
    assert np.allclose(plane.w, w.value, atol=1e-4)


def test_nu_svm_collapses_where_classes_overlap_too_much():
    X, y = overlapping(60, 3, gap=0.1)
    plane = nu_svm(X, y, 0.2)
    assert plane.margin < 1e-10 and np.linalg.norm(plane.w) < 1e-8


def test_infeasible_nu_is_named():
    X, y = overlapping(40, 3, share=0.2)
    assert np.isclose(compute_max_nu(y), 0.4)
    with pytest.raises(ValueError, match=r"nu=0.5 is infeasible.*at most 0.4"):
        nu_svm(X, y, 0.5)
    assert nu_svm(X, y, 0.4).margin > 0


# ---------------------------------------------------------------------- ridge


def test_label_ridge_of_the_fixture():
    X, y = fixture()
    plane = label_ridge(X, y, 1.0)
    assert np.isclose(plane.objective, 8.58246667, atol=1e-8)
    assert np.isclose(plane.b, -0.006378, atol=1e-6)
    assert np.isclose(np.linalg.norm(plane.w), 0.577114, atol=1e-6)


@pytest.mark.parametrize(("n", "L"), [(40, 6), (15, 50)])
@pytest.mark.parametrize("weighted", [False, True])
def test_label_ridge_is_ridge_regression_and_the_system_of_the_machine(n, L, weighted):
    X, y = overlapping(n, L, share=0.3)
    gamma = 0.4
    v = np.random.default_rng(0).uniform(0.2, 3, n) if weighted else np.ones(n)
    plane = label_ridge(X, y, gamma, v if weighted else None)
    peer = Ridge(alpha=1 / gamma).fit(X, y, sample_weight=v)
    assert np.allclose(plane.w, peer.coef_, atol=1e-9) and np.isclose(plane.b, peer.intercept_)
    # Equality constraints y(w·x + b) = 1 - e, with multipliers.
    omega = np.outer(y, y) * (X @ X.T) + np.diag(1 / (gamma * v))
    system = np.block([[np.zeros((1, 1)), y[None]], [y[:, None], omega]])
    solution = np.linalg.solve(system, np.append(0.0, np.ones(n)))
    assert np.allclose(plane.w, (solution[1:] * y) @ X, atol=1e-9)
    assert np.isclose(plane.b, solution[0])


# ---------------------------------------------------------------------- MPM


def test_mpm_of_the_fixture():
    X, y = fixture()
    m_plus, m_minus, S_plus, S_minus = moments(X, y)
    result = find_minimax_direction(m_plus - m_minus, S_plus, S_minus)
    assert np.isclose(result.kappa, 1.17437168, atol=1e-8)
    assert np.isclose(result.kappa**2 / (1 + result.kappa**2), 0.579682, atol=1e-6)
    b = result.kappa * result.deviations[0] - result.w @ m_plus
    assert np.isclose(b, -0.024914, atol=1e-6)
    assert np.isclose(np.linalg.norm(result.w), 0.506102, atol=1e-6)
    assert np.isclose(np.mean(np.sign(X @ result.w + b) != y), 0.10)


@pytest.mark.parametrize("seed", range(5))
def test_mpm_is_the_conic_program_and_its_dual(seed):
    X, y = overlapping(50, 5, seed=seed, share=0.3)
    X[y > 0] *= np.linspace(0.2, 2, 5)
    m_plus, m_minus, S_plus, S_minus = moments(X, y)
    d = m_plus - m_minus
    result = find_minimax_direction(d, S_plus, S_minus)
    roots = [np.linalg.cholesky(S).T for S in (S_plus, S_minus)]
    w = cp.Variable(5)
    program = cp.Problem(cp.Minimize(sum(cp.norm(R @ w) for R in roots)), [d @ w == 1])
    solved(program)
    assert np.isclose(1 / program.value, result.kappa, rtol=1e-6)
    assert 1 / result.kappa <= program.value * (1 + 1e-9)
    assert np.allclose(result.w, w.value, atol=1e-4)
    u, v, level = cp.Variable(5), cp.Variable(5), cp.Variable()
    dual = cp.Problem(
        cp.Maximize(level),
        [level * d == roots[0].T @ u + roots[1].T @ v, cp.norm(u) <= 1, cp.norm(v) <= 1],
    )
    solved(dual)
    assert np.isclose(dual.value, 1 / result.kappa, rtol=1e-6)
    # Both classes touch their bound.
    b = result.kappa * result.deviations[0] - result.w @ m_plus
    assert np.isclose(result.w @ m_plus + b, result.kappa * np.sqrt(result.w @ S_plus @ result.w))
    assert np.isclose(
        result.w @ m_minus + b, -result.kappa * np.sqrt(result.w @ S_minus @ result.w)
    )


def test_mpm_is_the_limit_of_reweighting():
    X, y = overlapping(60, 6, seed=9)
    m_plus, m_minus, S_plus, S_minus = moments(X, y)
    d, beta, gamma = m_plus - m_minus, 1.0, 1.0
    for _ in range(200):
        w = np.linalg.solve(S_plus / beta + S_minus / gamma, d)
        w /= w @ d
        beta, gamma = np.sqrt(w @ S_plus @ w), np.sqrt(w @ S_minus @ w)
    result = find_minimax_direction(d, S_plus, S_minus)
    assert np.isclose(result.kappa, 1 / (beta + gamma), rtol=1e-9)
    assert np.allclose(result.w, w, atol=1e-6)


def test_mpm_of_one_feature_and_of_equal_covariances():
    result = find_minimax_direction(np.array([3.0]), np.array([[4.0]]), np.array([[0.25]]))
    assert np.isclose(result.kappa, 3 / 2.5) and np.isclose(result.w[0], 1 / 3)
    # The boundary lies kappa deviations from both means.
    plus, minus = 5.0, 2.0
    b = result.kappa * result.deviations[0] - result.w[0] * plus
    assert np.isclose(-b / result.w[0], plus - result.kappa * 2.0)
    assert np.isclose(-b / result.w[0], minus + result.kappa * 0.5)
    S = np.cov(np.random.default_rng(0).standard_normal((4, 30)))
    d = np.arange(1.0, 5)
    result = find_minimax_direction(d, S, S)
    w = np.linalg.solve(S, d)
    assert np.isclose(result.w @ w, np.linalg.norm(result.w) * np.linalg.norm(w))


def test_mpm_with_swapped_labels_turns_round():
    X, y = overlapping(40, 4, share=0.3)
    m_plus, m_minus, S_plus, S_minus = moments(X, y)
    one = find_minimax_direction(m_plus - m_minus, S_plus, S_minus)
    other = find_minimax_direction(m_minus - m_plus, S_minus, S_plus)
    assert np.isclose(one.kappa, other.kappa) and np.allclose(one.w, -other.w)


def test_worst_case_of_mpm():
    X, y = overlapping(200, 3, gap=0.7)
    m_plus, m_minus, S_plus, S_minus = moments(X, y)
    result = find_minimax_direction(m_plus - m_minus, S_plus, S_minus)
    kappa, (sigma, _) = result.kappa, result.deviations
    b = kappa * sigma - result.w @ m_plus
    # The law of two points with these moments that is hardest: one of them on the boundary.
    share = 1 / (1 + kappa**2)
    scores = result.w @ m_plus + b + sigma * np.array([-kappa, 1 / kappa])
    weights = np.array([share, 1 - share])
    assert np.isclose(weights @ scores, result.w @ m_plus + b)
    assert np.isclose(weights @ (scores - weights @ scores) ** 2, sigma**2)
    assert np.isclose(scores[0], 0, atol=1e-9)
    assert np.isclose(share, 1 - kappa**2 / (1 + kappa**2))
    # Of Gaussian classes: as many standard deviations from both means.
    assert np.isclose(norm.cdf(-(result.w @ m_plus + b) / sigma), norm.cdf(-kappa))


def test_a_class_without_spread():
    d, S = np.array([1.0, 2.0]), np.diag([1.0, 3.0])
    result = find_minimax_direction(d, S, np.zeros((2, 2)))
    assert np.isclose(result.kappa, np.sqrt(d @ np.linalg.solve(S, d)))
    assert np.isclose(find_minimax_direction(d, np.zeros((2, 2)), S).kappa, result.kappa)


def test_singular_covariances_need_a_ridge_which_bounds_kappa():
    X, y = overlapping(10, 20)
    m_plus, m_minus, S_plus, S_minus = moments(X, y)
    eye = np.eye(20)
    values = [
        find_minimax_direction(m_plus - m_minus, S_plus + rho * eye, S_minus + rho * eye).kappa
        for rho in (1e-2, 1e-4, 1e-6)
    ]
    # Like one over the root of the ridge.
    assert np.allclose(np.diff(np.log10(values)), 1.0, atol=0.1)


# ---------------------------------------------------------------------- FDA


def test_fda_of_the_fixture_is_least_squares():
    X, y = fixture()
    m_plus, m_minus, S_plus, S_minus = moments(X, y)
    d, n = m_plus - m_minus, len(X)
    centred = X - X.mean(0)
    total = centred.T @ centred
    w, ratio = find_fisher_direction(d, total)
    assert np.isclose(ratio, 0.05793917, atol=1e-8)
    assert np.isclose(ratio, (w @ d) ** 2 / (w @ total @ w))
    # The total and the within scatter give one direction.
    within = 20 * S_plus + 20 * S_minus
    assert np.allclose(total, within + 10 * np.outer(d, d))
    other, inner = find_fisher_direction(d, within)
    assert np.isclose(ratio, inner / (1 + 10 * inner))
    assert np.allclose(w / np.linalg.norm(w), other / np.linalg.norm(other))
    # Regression of the labels.
    slope = np.linalg.lstsq(np.column_stack([X, np.ones(n)]), y, rcond=None)[0]
    assert np.allclose(slope[:-1], 20 * w)
    residual = y - np.column_stack([X, np.ones(n)]) @ slope
    assert np.isclose(1 - residual @ residual / n, 10 * ratio)
    scores = Scores((20, 20), (w @ m_plus, w @ m_minus), (w @ S_plus @ w, w @ S_minus @ w))
    a, b = compute_scale_and_intercept(scores, "least_squares", float(np.linalg.norm(w)))
    assert np.allclose(a * w, slope[:-1]) and np.isclose(b, slope[-1])


def _scores(w, X, y):
    plus, minus = X[y > 0] @ w, X[y < 0] @ w
    return Scores((len(plus), len(minus)), (plus.mean(), minus.mean()), (plus.var(), minus.var()))


@pytest.mark.parametrize("bias", ["least_squares", "bayes", "midpoint"])
def test_biases_do_not_depend_on_the_length_of_w_or_on_an_offset(bias):
    X, y = overlapping(60, 4, share=0.2)
    w = find_fisher_direction(X[y > 0].mean(0) - X[y < 0].mean(0), np.cov(X.T))[0]

    def labels(w, X):
        a, b = compute_scale_and_intercept(_scores(w, X, y), bias, float(np.linalg.norm(w)))
        return np.sign(a * (X @ w) + b)

    assert (labels(w, X) == labels(7 * w, X)).all()
    assert (labels(w, X) == labels(w, X + 100)).all()


def test_the_printed_bias_has_the_wrong_sign_of_the_prior():
    X, y = overlapping(200, 4, share=0.1, gap=0.5)
    w = find_fisher_direction(X[y > 0].mean(0) - X[y < 0].mean(0), np.cov(X.T))[0]
    errors = {}
    for bias in ("least_squares", "literal"):
        a, b = compute_scale_and_intercept(_scores(w, X, y), bias, float(np.linalg.norm(w)))
        errors[bias] = np.mean(np.sign(a * (X @ w) + b) != y)
    assert errors["least_squares"] < 0.15 and errors["literal"] > 0.4
    # And it depends on the length of w, which no eigenvector fixes: the printed formula as it is.
    n_plus, n_minus = 20, 180
    means = n_plus * X[y > 0].mean(0) + n_minus * X[y < 0].mean(0)
    cuts = [(n_minus - n_plus - means @ (c * w)) / 200 / c for c in (1.0, 10.0)]
    assert not np.isclose(*cuts)


def test_bayes_bias_is_the_rule_of_two_gaussians():
    scores = Scores((30.0, 10.0), (2.0, 0.0), (1.5, 1.5))
    a, b = compute_scale_and_intercept(scores, "bayes", 1.0)
    s = np.linspace(-2, 4, 7)
    deviation = np.sqrt(1.5)
    odds = np.log(0.75 * norm.pdf(s, 2, deviation)) - np.log(0.25 * norm.pdf(s, 0, deviation))
    assert np.allclose(a * s + b, odds)


def test_fda_maximises_the_symmetric_divergence_of_equal_gaussians():
    d, S = np.array([1.0, -0.5, 2.0]), np.cov(np.random.default_rng(1).standard_normal((3, 40)))
    w, _ = find_fisher_direction(d, S)

    def divergence(w):
        gap, variance = w @ d, w @ S @ w
        return 2 * (gap**2 / (2 * variance))  # KL one way and the other

    best = divergence(w)
    assert np.isclose(best, (w @ d) ** 2 / (w @ S @ w))
    for v in np.random.default_rng(2).standard_normal((200, 3)):
        assert divergence(v) <= best + 1e-12


# ---------------------------------------------------------------------- the span


def test_row_space_changes_no_inner_product():
    Z = np.random.default_rng(0).standard_normal((7, 30))
    short, basis = reduce_to_row_space(Z)
    assert short.shape == (7, 7)
    assert np.allclose(short @ short.T, Z @ Z.T) and np.allclose(basis.T @ basis, np.eye(7))
    w = np.arange(7.0)
    assert np.allclose(Z @ lift_to_features(basis, w), short @ w)
    assert reduce_to_row_space(Z.T)[1] is None
