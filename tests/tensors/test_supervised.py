"""Supervised tensor learning: LSSTM, STM, NuSTM, TMPM, TFDA, and the loop over modes below them."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from scipy.optimize import check_grad
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.svm import SVC, NuSVC

from nearfar import FDA, GTDA, LSSTM, MPM, STM, TFDA, TMPM, NuSTM
from nearfar.solvers import joint_hinge
from nearfar.solvers.alternating_modes import (
    CPWeights,
    alternate,
    compute_inverse_root,
    compute_other_gram,
    contract_terms,
    find_low_rank_start,
    make_cp_weights,
)
from nearfar.solvers.joint_hinge import descend_jointly, stationarity_gap
from nearfar.solvers.label_ridge import label_ridge
from nearfar.solvers.smoothed_hinges import SmoothedHinges
from nearfar.solvers.support_vectors import c_svm, nu_svm
from nearfar.solvers.two_sides import fda, mpm
from nearfar.tensors import contract_except, rank_one

SHAPE = (5, 4, 3)
ALL = pytest.mark.parametrize("kind", [LSSTM, STM, NuSTM, TMPM, TFDA])
LONG = {"max_iter": 400, "tol": 1e-13}


def fixture():
    """Return the reference data: two classes of tensors."""
    y = np.where(np.arange(60) % 2 == 0, 1.0, -1.0)
    random = np.random.default_rng(3)
    noise, signal = random.standard_normal((60, *SHAPE)), random.standard_normal(SHAPE)
    X = noise + 0.5 * y[:, None, None, None] * signal
    assert np.isclose(X.sum(), 47.217179052724, atol=1e-9)
    return X, y


def unit(seed, shape=SHAPE):
    random = np.random.default_rng(seed)
    vectors = [random.standard_normal(d) for d in shape]
    return [v / np.linalg.norm(v) for v in vectors]


def columns(vectors):
    return [v[:, None] for v in vectors]


def matrices(n=40, shape=(6, 5), seed=0, gap=0.4):
    random = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return random.standard_normal((n, *shape)) + gap * y[:, None, None] * random.standard_normal(
        shape
    ), y


def hinge_objective(X, y, C, machine):
    w, f = machine.coef_[0], machine.decision_function(X)
    return 0.5 * w @ w + C * np.maximum(0, 1 - y * f).sum()


# ---------------------------------------------------------------------- the fixture

LEARNERS = {
    "TMPM": (lambda Z, y: mpm(Z, y, 0.0), 1, [2.52270, 2.01489, 1.81434, 1.70181]),
    "TMPM with a ridge": (lambda Z, y: mpm(Z, y, 0.1), 1, [2.31309, 1.87857, 1.61070]),
    "TFDA": (lambda Z, y: fda(Z, y, 0.0), 1, [0.05760, 0.05341, 0.05051, 0.04955]),
    "LSSTM": (lambda Z, y: label_ridge(Z, y, 1.0), -1, [4.19260, 6.08430, 7.44609, 7.81460]),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_starts_end_in_the_optima_of_the_fixture_and_never_step_back(name):
    X, y = fixture()
    learn, sign, optima = LEARNERS[name]
    for seed in (0, 3, 4, 11, 12):
        found = alternate(X, lambda Z: learn(Z, y), columns(unit(seed)), max_iter=400, tol=1e-13)
        near = np.abs(np.array(optima) - found.plane.objective)
        assert near.min() < 1e-5, found.plane.objective
        steps = sign * np.diff(found.objectives)
        assert steps.min() > -1e-9 * abs(found.plane.objective)


@pytest.mark.slow
def test_tmpm_has_several_optima_against_the_claim():
    # The thesis states that TMPM is convex and has no local minima. Only each step is convex.
    X, y = fixture()
    kappas = [TMPM(ridge=0, init=unit(seed), **LONG).fit(X, y).kappa_ for seed in range(12)]
    assert max(kappas) - min(kappas) > 0.3
    assert np.isclose(max(kappas), 2.52270, atol=1e-5)
    # Each result is optimal in every single mode, but not globally.
    worst = TMPM(ridge=0, init=unit(int(np.argmin(kappas))), **LONG).fit(X, y)
    u = [U[:, 0] / np.linalg.norm(U) for U in worst.factors_]
    for mode in range(3):
        step = mpm(contract_except(X, u, mode), y, 0.0)
        assert np.isclose(step.objective, worst.kappa_, rtol=1e-6)
    best = TMPM(ridge=0, init="random", n_init=8, **LONG).fit(X, y)
    assert np.isclose(best.kappa_, 2.52270, atol=1e-5)


@pytest.mark.parametrize(("C", "best"), [(1.0, 0.70299), (0.05, 0.47741)])
def test_the_default_stm_reaches_the_best_known_and_is_stationary(C, best):
    X, y = fixture()
    machine = STM(C).fit(X, y)
    assert best - 1e-3 <= machine.objective_ <= 1.003 * best
    assert machine.stationarity_gap_ < 1e-6 and machine.converged_
    assert np.isclose(machine.objective_, hinge_objective(X, y, C, machine), rtol=1e-8)
    assert machine.objective_ <= machine.history_["joint"][-1] + 1e-9


def test_plain_alternation_stalls_where_no_single_mode_can_go_on():
    X, y = fixture()
    cost = np.ones(60)
    gaps, ends = [], []
    for seed in range(4):
        machine = STM(init=unit(seed), refine=None, max_iter=60, tol=1e-9).fit(X, y)
        ends.append(machine.objective_)
        gaps.append(machine.stationarity_gap_)
        assert (
            np.diff(machine.history_["objective"]).max() <= 1e-9
        )  # The objective never increases.
        u = [U[:, 0] / np.linalg.norm(U) for U in machine.factors_]
        for mode in range(3):
            step = c_svm(contract_except(X, u, mode), y, cost)
            assert machine.objective_ <= step.objective * (
                1 + 1e-3
            )  # No single mode can improve it.
    assert len(np.unique(np.round(ends, 3))) == 4 and min(ends) > 0.71
    assert np.median(gaps) > 0.5
    # From the same starts, the joint method reaches few optima, including the best.
    joint = [STM(init=unit(seed)).fit(X, y).objective_ for seed in range(4)]
    assert min(joint) < 0.70299 * 1.003 and len(np.unique(np.round(joint, 2))) < 4


def test_all_factors_together_find_the_best_known_from_random_starts():
    X, y = fixture()
    ends = [
        descend_jointly(X, y, np.ones(60), make_cp_weights(columns(unit(seed))), 0.0).objectives[-1]
        for seed in range(10)
    ]
    assert sum(end < 0.70299 + 2e-3 for end in ends) >= 4
    assert min(ends) > 0.70299 - 1e-3


def test_starts_differ_from_one_another():
    X, y = fixture()
    one = [TMPM(ridge=0, init="random", random_state=seed).fit(X, y).kappa_ for seed in range(12)]
    seed = int(np.argmin(one))  # A seed with a bad first start.
    several = TMPM(ridge=0, init="random", random_state=seed, n_init=6).fit(X, y)
    assert several.kappa_ > min(one) + 0.3


@pytest.mark.slow
def test_nu_stm_of_the_fixture():
    X, y = fixture()
    machine = NuSTM(0.7).fit(X, y)
    assert -0.5778 <= machine.objective_ < -0.57
    assert np.all(np.diff(machine.history_["objective"]) < 1e-9)
    # rho is positive, and nu bounds the fraction of margin errors.
    margins = y * machine.decision_function(X)
    assert np.mean(margins < machine.rho_ - 1e-6) <= 0.7 <= np.mean(margins < machine.rho_ + 1e-6)
    # Random starts give W = 0 at a small nu. The path from the largest nu does not.
    assert NuSTM(0.3).fit(X, y).objective_ < -0.03
    for seed in (3, 5):  # Seeds whose first sweep gives W = 0.
        machine = NuSTM(0.3, init=unit(seed)).fit(X, y)
        assert machine.rho_ > 0 and machine.objective_ < -0.02


# ---------------------------------------------------------------------- order one, full rank


def test_vectors_give_the_learners_of_vectors():
    X, y = matrices(shape=(8, 1))
    X = X[:, :, 0]
    svc = SVC(kernel="linear", tol=1e-7).fit(X, y)
    stm = STM().fit(X, y)
    assert np.allclose(stm.coef_, svc.coef_, atol=1e-3)
    assert stm.objective_ <= hinge_objective(X, y, 1.0, svc) * (1 + 1e-9)
    nu = NuSTM(0.6).fit(X, y)
    peer = NuSVC(nu=0.6, kernel="linear", tol=1e-7).fit(X, y)
    rho = 0.6 / np.abs(peer.dual_coef_).sum()
    assert np.allclose(nu.coef_, rho * peer.coef_, atol=1e-3)
    ridge = Ridge(alpha=1 / 0.3).fit(X, y)
    ls = LSSTM(0.3).fit(X, y)
    assert np.allclose(ls.coef_[0], ridge.coef_) and np.isclose(ls.intercept_[0], ridge.intercept_)
    tmpm, vectors = TMPM().fit(X, y), MPM().fit(X, y)
    assert np.allclose(tmpm.coef_, vectors.coef_) and np.isclose(tmpm.kappa_, vectors.kappa_)
    assert np.allclose(tmpm.intercept_, vectors.intercept_)
    for bias in ("least_squares", "midpoint", "bayes", "literal"):
        tfda, vectors = TFDA(bias=bias).fit(X, y), FDA(bias=bias).fit(X, y)
        assert np.allclose(tfda.coef_, vectors.coef_)
        assert np.allclose(tfda.intercept_, vectors.intercept_)
        assert np.isclose(tfda.objective_, vectors.objective_)
    assert stm.n_iter_ == ls.n_iter_ == tmpm.n_iter_ == 1


@ALL
def test_modes_of_length_one_change_nothing(kind):
    X, y = matrices(shape=(6, 1), gap=0.8)
    flat, long = kind().fit(X[:, :, 0], y), kind().fit(X.reshape(len(X), 6, 1, 1), y)
    assert np.allclose(flat.decision_function(X[:, :, 0]), long.decision_function(X[..., None]))


def test_matrices_of_full_rank_are_vectors():
    X, y = matrices()
    flat = X.reshape(len(X), -1)
    ls = LSSTM(0.5, rank=5).fit(X, y)
    ridge = Ridge(alpha=2.0).fit(flat, y)
    assert np.allclose(ls.coef_[0], ridge.coef_, atol=1e-6)
    assert np.isclose(ls.intercept_[0], ridge.intercept_, atol=1e-6)
    stm = STM(0.1, rank=5).fit(X, y)
    svc = SVC(kernel="linear", C=0.1, tol=1e-7).fit(flat, y)
    assert np.isclose(stm.objective_, hinge_objective(flat, y, 0.1, svc), rtol=1e-5)
    assert np.allclose(stm.coef_, svc.coef_, atol=1e-3)
    tmpm, vectors = TMPM(rank=5).fit(X, y), MPM().fit(flat, y)
    assert np.isclose(tmpm.kappa_, vectors.kappa_, rtol=1e-6)
    tfda, fisher = TFDA(0.1, rank=5).fit(X, y), FDA(0.1).fit(flat, y)
    assert np.isclose(tfda.objective_, fisher.objective_, rtol=1e-6)
    assert np.allclose(tfda.coef_, fisher.coef_, atol=1e-3 * np.abs(fisher.coef_).max())
    nu, vectors = NuSTM(0.7, rank=5).fit(X, y), nu_svm(flat, y, 0.7)
    assert np.isclose(nu.objective_, vectors.objective, rtol=1e-4)


def test_a_higher_rank_is_no_worse_and_never_steps_back():
    X, y = fixture()
    ends = []
    for rank in (1, 2, 3):
        machine = LSSTM(rank=rank, n_init=3, max_iter=300).fit(X, y)
        steps = np.diff(machine.history_["objective"])
        assert steps.max() < 1e-9
        W = sum(rank_one([U[:, r] for U in machine.factors_]) for r in range(rank))
        assert np.allclose(W.ravel(), machine.coef_[0])
        value = 0.5 * np.sum(W**2) + 0.5 * np.sum((y - machine.decision_function(X)) ** 2)
        assert np.isclose(value, machine.objective_)
        ends.append(machine.objective_)
    assert ends[0] > ends[1] > ends[2]


# ---------------------------------------------------------------------- algebra of the loop


def test_the_mode_step_has_the_norm_of_the_whole_tensor():
    random = np.random.default_rng(0)
    factors = [random.standard_normal((d, 2)) for d in SHAPE]
    X = random.standard_normal((7, *SHAPE))
    W = CPWeights(np.ones(2), factors).tensor()
    for mode in range(3):
        G = compute_other_gram(factors, mode)
        assert np.isclose(np.trace(factors[mode] @ G @ factors[mode].T), np.sum(W**2))
        Z = contract_terms(X, factors, mode)
        scores = np.einsum("nlr,lr->n", Z, factors[mode])
        assert np.allclose(scores, np.einsum("nabc,abc->n", X, W))
        root = compute_inverse_root(G)
        assert np.allclose(root @ root.T @ G, np.eye(2))
    # Linearly dependent terms reduce the number of unknowns and cause no singular matrix.
    twice = [np.repeat(U[:, :1], 2, axis=1) for U in factors]
    assert compute_inverse_root(compute_other_gram(twice, 0)).shape == (2, 1)


@ALL
def test_neither_the_first_vector_nor_lengths_of_the_start_matter(kind):
    X, y = matrices()
    kind = {NuSTM: lambda **k: NuSTM(0.7, **k), STM: lambda **k: STM(refine=None, **k)}.get(
        kind, kind
    )
    start = unit(1, (6, 5))
    with pytest.warns(ConvergenceWarning):
        wanted = kind(init=start, max_iter=3).fit(X, y).coef_
    for other in ([unit(2, (6, 5))[0], start[1]], [start[0], -7 * start[1]]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = kind(init=other, max_iter=3).fit(X, y).coef_
        assert np.allclose(found, wanted, atol=1e-5 * np.abs(wanted).max() + 1e-6)


@ALL
def test_another_basis_and_an_offset_change_nothing_but_names(kind):
    X, y = matrices(gap=0.8)
    start = unit(4, (6, 5))
    Q = np.linalg.qr(np.random.default_rng(5).standard_normal((6, 6)))[0]
    turned = np.einsum("ab,nbc->nac", Q, X) + np.arange(5.0)
    settings = {"init": start, "max_iter": 4}
    moved = {"init": [Q @ start[0], start[1]], "max_iter": 4}
    if kind is STM:
        settings["refine"] = moved["refine"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here, there = kind(**settings).fit(X, y), kind(**moved).fit(turned, y)
    assert np.isclose(here.objective_, there.objective_, rtol=1e-5)
    wanted = here.decision_function(X)
    assert np.allclose(there.decision_function(turned), wanted, atol=1e-4 * np.abs(wanted).max())
    assert np.allclose(
        np.einsum("ab,bc->ac", Q, here.coef_.reshape(6, 5)),
        there.coef_.reshape(6, 5),
        atol=1e-4 * np.abs(here.coef_).max(),
    )


def test_the_variance_of_the_scores_is_that_of_every_mode():
    X, y = fixture()
    u = unit(0)
    variances = []
    for mode in range(3):
        Z = contract_except(X, u, mode)[y > 0]
        variances.append(u[mode] @ np.cov(Z.T, ddof=0) @ u[mode])
    assert np.ptp(variances) < 1e-12  # The supremum over modes in the thesis has no effect.


def test_a_ridge_for_each_mode_would_lower_kappa():
    X, y = fixture()

    def by_trace(Z):
        return mpm(Z, y, 0.3 * np.trace(np.cov(Z.T, ddof=0)) / Z.shape[1])

    falls = []
    for seed in range(10):
        found = alternate(X, by_trace, columns(unit(seed)), max_iter=20)
        falls.append(np.diff(found.objectives).min())
    assert min(falls) < -1e-3


def test_forgetting_the_length_of_the_others_is_another_criterion():
    X, y = matrices(shape=(6, 4))
    u = [2.0 * v for v in unit(0, (6, 4))]  # Length two, not normalized.
    C, objectives = np.full(40, 0.1), []
    for _ in range(4):
        for mode in range(2):
            plane = c_svm(contract_except(X, u, mode), y, C)
            u[mode] = plane.w
            W = rank_one(u)
            f = np.einsum("nab,ab->n", X, W) + plane.b
            objectives.append(0.5 * np.sum(W**2) + C @ np.maximum(0, 1 - y * f))
    honest = STM(0.1, refine=None, init=u).fit(X, y)
    assert np.diff(objectives).max() > 1e-4 or objectives[-1] > honest.objective_ * 1.01


def test_the_printed_stopping_rule_stops_at_once():
    before, after = unit(0, (50, 40, 30)), unit(1, (50, 40, 30))
    printed = sum(v @ u / (v @ v) - 1 for u, v in zip(before, after, strict=True))
    assert printed < 1e-6  # Uncorrelated vectors.
    repaired = max(1 - abs(u @ v) for u, v in zip(before, after, strict=True))
    assert repaired > 0.5
    X, y = fixture()
    assert TMPM(init=unit(0)).fit(X, y).n_iter_ > 5


def test_tfda_is_the_limit_of_lsstm():
    X, y = fixture()
    one = TFDA(ridge=0, init=unit(2), **LONG).fit(X, y).coef_[0]
    other = LSSTM(1e9, init=unit(2), **LONG).fit(X, y).coef_[0]
    assert np.isclose(one @ other, np.linalg.norm(one) * np.linalg.norm(other), rtol=1e-8)
    assert np.allclose(one, other, rtol=1e-4)  # Least squares also determines the length.


def test_tfda_is_gtda_of_one_vector_a_mode():
    # With the largest ratio as within_weight, the largest eigenvalue of the difference is 0 there.
    X, y = fixture()
    tfda = TFDA(ridge=0, **LONG).fit(X, y)
    u = [U[:, 0] / np.linalg.norm(U) for U in tfda.factors_]
    for mode in range(3):
        Z = contract_except(X, u, mode)
        within = sum((y == s).sum() * np.cov(Z[y == s].T, ddof=0) for s in (1, -1))
        d = Z[y > 0].mean(0) - Z[y < 0].mean(0)
        within_weight = 15 * d @ np.linalg.solve(within, d)
        values, vectors = np.linalg.eigh(15 * np.outer(d, d) - within_weight * within)
        assert abs(values[-1]) < 1e-9 * within_weight * np.trace(within)
        assert np.isclose(abs(vectors[:, -1] @ u[mode]), 1, atol=1e-8)
    gtda = GTDA(1, within_weight="max_eig", ridge=0, max_iter=400, tol=1e-12).fit(X, y)
    for U, v in zip(gtda.factors_, u, strict=True):
        assert np.isclose(abs(U[:, 0] @ v), 1, atol=1e-6)


def test_the_intercept_is_that_of_the_last_mode_and_survives_an_offset():
    X, y = matrices(n=80, gap=0.8)
    for kind in (LSSTM, TMPM, TFDA):
        here, there = kind().fit(X, y), kind().fit(X + 50, y)
        assert np.mean(here.predict(X) == there.predict(X + 50)) == 1
        assert there.score(X + 50, y) > 0.8  # The intercept printed in the thesis would give 0.5.


def test_balanced_factors_and_their_tensor():
    weights = CPWeights(np.array([2.0, -0.5]), [np.eye(3)[:, :2], np.eye(4)[:, :2]])
    held = weights.balance_factors()
    assert np.allclose(held[0] @ held[1].T, weights.tensor())
    assert np.allclose(np.linalg.norm(held[0], axis=0), np.linalg.norm(held[1], axis=0))
    assert np.isclose(weights.inner(weights), np.sum(weights.tensor() ** 2))
    assert np.allclose(make_cp_weights(held).tensor(), weights.tensor())
    D = np.random.default_rng(0).standard_normal((5, 4, 3))
    assert [U.shape for U in find_low_rank_start(D, 2, np.random.RandomState(0))] == [
        (5, 2),
        (4, 2),
        (3, 2),
    ]


# ---------------------------------------------------------------------- the joint minimization


@pytest.mark.parametrize("shape", [(6, 5), (5, 4, 3), (7,)])
@pytest.mark.parametrize("rank", [1, 2])
def test_gradient_of_the_smoothed_hinges(shape, rank):
    random = np.random.default_rng(0)
    X, y = random.standard_normal((20, *shape)), np.where(np.arange(20) % 3, 1.0, -1.0)
    start = make_cp_weights([random.standard_normal((d, rank)) for d in shape])
    flat = X.reshape(20, -1)
    cost = random.uniform(0.2, 2, 20)
    problem = SmoothedHinges(flat, y, cost, flat.mean(0), 2.0, start)
    point = np.append(np.concatenate([U.ravel() for U in start.balance_factors()]), 0.3)
    error = check_grad(
        lambda x: problem.value_and_gradient(x, 0.3)[0],
        lambda x: problem.value_and_gradient(x, 0.3)[1],
        point,
    )
    assert error < 1e-5
    narrow = problem.value_and_gradient(point, 1e-9)[0] * cost.sum()
    assert np.isclose(narrow, problem.value(point), rtol=1e-6)


@pytest.mark.parametrize(("shape", "rank"), [((6, 5), 1), ((6, 5), 2), ((5, 4, 3), 2)])
def test_second_derivatives_of_the_smoothed_hinges(shape, rank):
    random = np.random.default_rng(1)
    X, y = random.standard_normal((300, *shape)), np.where(np.arange(300) % 3, 1.0, -1.0)
    start = make_cp_weights([random.standard_normal((d, rank)) for d in shape])
    flat, cost, width = X.reshape(300, -1), random.uniform(0.2, 2, 300), 0.7
    problem = SmoothedHinges(flat, y, cost, flat.mean(0), 2.0, start)
    point = np.append(np.concatenate([U.ravel() for U in start.balance_factors()]), 0.3)
    W, short = problem.compute_shortfalls(point)
    slope = -cost * y * np.clip(short, 0, width) / width
    gradient, G = problem.gradient(point, W, slope)
    inside = (short > 0) & (short < width)
    J = problem.score_gradients(point, inside)
    H = problem.curvature(point, G) + J.T @ (cost[inside, None] / width * J)
    for v in random.standard_normal((3, len(point))):
        step = 1e-6 * v
        ends = [problem.value_and_gradient(point + s, width)[1] for s in (step, -step)]
        assert np.allclose(H @ v, (ends[0] - ends[1]) * cost.sum() / 2e-6, rtol=1e-5, atol=1e-5)
    # Samples far from the margin enter as a constant and a linear term, which is exact.
    subset, is_linear, is_zero = problem.select_near_corner(short, width, 0.0)
    assert (
        0 < len(subset.y) < 300 and (short[is_linear] > width).all() and (short[is_zero] < 0).all()
    )
    value, other = problem.value_and_gradient(point, width)
    assert np.isclose(subset.value_and_gradient(point, width)[0], value)
    assert np.allclose(subset.value_and_gradient(point, width)[1], other)
    assert np.allclose(other * cost.sum(), gradient)


@pytest.mark.parametrize(("rank", "C"), [(1, 1.0), (1, 0.01), (2, 0.1)])
def test_many_samples_end_at_a_stationary_point_that_a_conic_program_cannot_better(rank, C):
    random = np.random.default_rng(5)
    shape, y = (9, 8), np.where(np.arange(600) % 2, 1.0, -1.0)
    u, v = (random.standard_normal((d, 2)) for d in shape)
    X = random.standard_normal((600, *shape)) + 0.15 * y[:, None, None] * (u @ v.T)
    machine = STM(C, rank=rank).fit(X, y)
    assert machine.stationarity_gap_ < 1e-6 * machine.objective_
    assert np.isclose(machine.objective_, hinge_objective(X, y, C, machine), rtol=1e-9)
    plain = STM(C, rank=rank, refine=None).fit(X, y)
    assert machine.objective_ <= plain.objective_ * (1 + 1e-6)
    # Scores are linear near the point: no joint step may decrease the objective.
    factors, W = machine.factors_, machine.coef_[0].reshape(shape)
    rows = [contract_terms(X, factors, mode).reshape(600, -1) for mode in (0, 1)]
    J = np.column_stack([*rows, np.ones(600)])
    by_W = [(W @ factors[1]).ravel(), (W.T @ factors[0]).ravel(), [0.0]]
    step = cp.Variable(J.shape[1])
    short = 1 - y * machine.decision_function(X)
    loss = C * cp.sum(cp.pos(short - cp.multiply(y, J @ step))) + np.concatenate(by_W) @ step
    program = cp.Problem(cp.Minimize(loss + 50 * cp.sum_squares(step)))
    solved(program)
    assert program.value >= C * np.maximum(short, 0).sum() * (1 - 1e-7)


def test_beyond_newton_the_widths_lead_to_nearly_the_same(monkeypatch):
    X, y = fixture()
    start = make_cp_weights(columns(unit(0)))
    exact = descend_jointly(X, y, np.ones(60), start, 0.0)
    monkeypatch.setattr(joint_hinge, "_MAX_NEWTON_UNKNOWNS", 0)
    other = descend_jointly(X, y, np.ones(60), start, 0.0)
    assert exact.widths == [1, 0.1, 0] and other.widths[-1] == 1e-4
    assert exact.objectives[-1] <= other.objectives[-1] <= exact.objectives[-1] * 1.01
    # If the exact method fails, narrower corners follow.
    monkeypatch.setattr(joint_hinge, "_MAX_NEWTON_UNKNOWNS", 600)
    monkeypatch.setattr(joint_hinge, "solve_exact_hinges", lambda *_: None)
    rounded = descend_jointly(X, y, np.ones(60), start, 0.0)
    assert rounded.widths == other.widths and len(rounded.objectives) == 5
    assert exact.objectives[-1] <= rounded.objectives[-1] <= exact.objectives[-1] * 1.001


def test_the_stationarity_gap_is_zero_at_the_optimum_of_vectors_only():
    X, y = matrices(shape=(8, 1))
    X, cost = X[:, :, 0], np.ones(40)
    plane = c_svm(X, y, cost)
    optimum = make_cp_weights([plane.w[:, None]])
    assert stationarity_gap(X, y, cost, optimum, plane.b) < 1e-4
    off = make_cp_weights([plane.w[:, None] + 0.1])
    assert stationarity_gap(X, y, cost, off, plane.b) > 0.1
    # Without samples at the corner it is the gradient.
    random = np.random.default_rng(0)
    W, b = make_cp_weights([random.standard_normal((8, 1))]), 0.1
    w = W.tensor()
    pulling = y * (X @ w + b) < 1
    by_w, by_b = w - (y[pulling] @ X[pulling]), -y[pulling].sum()
    assert np.isclose(stationarity_gap(X, y, cost, W, b), np.hypot(np.linalg.norm(by_w), by_b))


def test_a_sum_of_squared_lengths_would_be_another_model():
    X, y = fixture()
    found = descend_jointly(X, y, np.ones(60), make_cp_weights(columns(unit(0))), 0.0)
    held = found.weights.balance_factors()
    product = np.prod([np.sum(U**2) for U in held])
    assert np.isclose(found.weights.inner(found.weights), product)
    assert not np.isclose(0.5 * product, 0.5 * sum(np.sum(U**2) for U in held))
