"""MCML compared with a conic solver, its optimality conditions, and invalid input."""

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from sklearn.datasets import load_iris, load_wine

from nearfar import MCML
from nearfar.solvers.soft_neighbors import soft_neighbors

WINE = load_wine(return_X_y=True)


def conic_optimum(X, y):
    """Solve the program of the paper: log-sum-exp of distances, which are linear in M."""
    n, p = X.shape
    M = cp.Variable((p, p), PSD=True)
    value = 0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        own = [j for j in others if y[j] == y[i]]
        if not own:
            continue
        distances = {j: cp.sum(cp.multiply(np.outer(X[i] - X[j], X[i] - X[j]), M)) for j in others}
        value += cp.log_sum_exp(cp.hstack([-distances[j] for j in others]))
        value += sum(distances[j] for j in own) / len(own) - np.log(len(own))
    program = cp.Problem(cp.Minimize(value))
    return solved(program)


def problem(seed):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], [6, 5, 4])
    X = rng.normal(size=(15, 3)) + 0.8 * rng.normal(size=(3, 3))[y]
    return X, y


@pytest.mark.parametrize("seed", range(5))
def test_objective_is_the_optimum_of_the_convex_program(seed):
    X, y = problem(seed)
    best = conic_optimum(X, y)
    for scales in map(np.array, ([1.0, 1.0, 1.0], [1.0, 3.0, 30.0], [10.0, 1.0, 30.0])):
        model = MCML().fit(X * scales, y)
        assert model.objective_ == pytest.approx(best, rel=1e-4)
        assert model.optimality_ < 1e-4
        value, _ = soft_neighbors(model.components_, X * scales, y, objective="collapse")
        assert model.objective_ == pytest.approx(value, rel=1e-6)


def test_wine_is_solved_to_a_millionth():
    X, y = WINE
    best = MCML(tol=0, max_iter=3000).fit(X, y)
    assert best.optimality_ < 1e-6
    assert MCML().fit(X, y).objective_ < (1 + 1e-6) * best.objective_


def test_optimality_says_when_it_stopped_early():
    X, y = WINE
    with pytest.warns(match="MCML did not converge in 5 iterations"):
        early = MCML(max_iter=5).fit(X, y)
    assert early.optimality_ > 100 * MCML().fit(X, y).optimality_
    scaled = MCML(max_iter=5)
    with pytest.warns(match="did not converge"):
        scaled.fit(X * 1e6, y)
    assert scaled.optimality_ == pytest.approx(early.optimality_, rel=1e-3)


def test_a_start_of_low_rank_gets_the_ranks_that_it_needs():
    X, y = WINE
    best = MCML().fit(X, y).objective_
    thin = np.zeros((13, 13))
    thin[0] = MCML(n_components=1).fit(X, y).components_[0]
    assert MCML(init=thin).fit(X, y).objective_ == pytest.approx(best, rel=1e-4)


def test_fewer_components_are_the_leading_ones():
    X, y = WINE
    full, two = MCML().fit(X, y), MCML(2).fit(X, y)
    assert two.objective_ == pytest.approx(full.objective_, rel=1e-9)
    Z = full.transform(X)
    np.testing.assert_allclose(Z.T @ Z, np.diag(np.diag(Z.T @ Z)), atol=1e-6 * (Z.T @ Z).max())
    np.testing.assert_allclose(np.abs(two.transform(X)), np.abs(Z[:, :2]), atol=1e-6 * Z.max())
    with pytest.raises(ValueError, match="n_components=14 is more than the 13 features"):
        MCML(14).fit(X, y)


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_difficult_data_give_finite_maps():
    X, y = load_iris(return_X_y=True)
    X, y = X[::5], y[::5]
    wide = np.hstack([X, np.random.default_rng(0).normal(size=(len(X), 40))])
    for rows in (np.column_stack([X, np.ones(len(X)), X[:, 0]]), wide):
        model = MCML(max_iter=50).fit(rows, y)
        assert np.isfinite(model.components_).all() and np.isfinite(model.optimality_)
    alone = MCML().fit(X, np.append(y[:-1], 7))
    assert np.isfinite(alone.objective_)
    with pytest.raises(ValueError, match="MCML needs a class with at least two points"):
        MCML().fit(X[:4], [0, 1, 2, 3])
