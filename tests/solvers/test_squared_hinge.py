"""Newton's method for squared hinges: optimality, and starts from anywhere."""

import numpy as np
import pytest

from nearfar.solvers.squared_hinge import solve_squared_hinge


def made(n=50, seed=0):
    random = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    X = random.standard_normal((n, 3)) + 0.5 * y[:, None]
    return np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2)), y


@pytest.mark.parametrize("tau", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("seed", range(3))
def test_conditions_of_the_optimum_hold(tau, seed):
    K, y = made(seed=seed)
    beta, b = solve_squared_hinge(K, y, tau)
    alpha, slack = y * beta, 1 - y * (K @ beta + b)
    assert beta.sum() == pytest.approx(0, abs=1e-10 * np.abs(beta).sum())
    assert alpha == pytest.approx(np.maximum(slack, 0) / tau, abs=1e-9 * np.abs(alpha).max())


def test_every_start_ends_at_the_same_point():
    K, y = made()
    want = solve_squared_hinge(K, y, 0.1)
    random = np.random.default_rng(0)
    # One without a loss anywhere, one with all of it, one at the end.
    for beta, b in ((100 * y, 0.0), (-5 * y, 9.0), (random.standard_normal(50), 0.0), want):
        got = solve_squared_hinge(K, y, 0.1, (beta, b))
        assert got.beta == pytest.approx(want.beta, abs=1e-8)
        assert got.intercept == pytest.approx(want.intercept, abs=1e-8)


def test_a_kernel_of_low_rank_with_hardly_a_ridge():
    K, y = made()
    K = np.outer(y, y) + 0.1
    beta, b = solve_squared_hinge(K, y, 1e-12)
    assert np.isfinite(beta).all()
    assert np.all(y * (K @ beta + b) > 0.99)


@pytest.mark.parametrize("labels", ["even", "of one class in the quarter"])
def test_a_start_from_a_quarter_of_the_rows_ends_where_any_start_does(labels):
    K, y = made(440)
    if labels != "even":
        y[::4] = 1.0
    want = solve_squared_hinge(K, y, 0.1, (np.zeros(440), 0.0))
    got = solve_squared_hinge(K, y, 0.1)
    np.testing.assert_allclose(got.beta, want.beta, atol=1e-8 * np.abs(want.beta).max())
    assert got.intercept == pytest.approx(want.intercept, abs=1e-8)
    # The conditions of the optimum, which share nothing with the steps.
    slack = np.maximum(1 - y * (K @ got.beta + got.intercept), 0)
    np.testing.assert_allclose(y * got.beta, slack / 0.1, atol=1e-8)
    assert abs(got.beta.sum()) < 1e-8
