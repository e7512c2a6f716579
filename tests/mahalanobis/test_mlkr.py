"""MLKR: directions that the target depends on, the objective, and invalid targets."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from nearfar import MLKR

pytestmark = pytest.mark.filterwarnings("ignore:.*did not converge")


def sines(seed=0, n=300, p=8):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.geomspace(1, 100, p)
    direction = rng.normal(size=p)
    direction *= 1.5 / np.linalg.norm(direction)
    y = np.sin((X / np.geomspace(1, 100, p)) @ direction)
    return X, 5 + 2 * y, direction / np.geomspace(1, 100, p)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_components", [1, None])
def test_it_finds_the_one_direction_a_target_depends_on(seed, n_components):
    X, y, direction = sines(seed)
    model = MLKR(n_components).fit(X, y)
    units = np.geomspace(1, 100, 8)
    found = np.linalg.svd(model.components_ * units)[2][0]
    wanted = direction * units / np.linalg.norm(direction * units)
    assert abs(found @ wanted) > 0.99
    assert model.objective_ < 0.05 * len(X) * y.var()


def left_out_error(model, X, y):
    Z = X @ model.components_.T
    D = np.sum((Z[:, None] - Z) ** 2, axis=2)
    np.fill_diagonal(D, np.inf)
    P = np.exp(D.min(axis=1, keepdims=True) - D)
    return np.sum((y - P @ y / P.sum(axis=1)) ** 2)


def test_objective_is_the_leave_one_out_squared_error():
    X, y = load_diabetes(return_X_y=True)
    model = MLKR(2).fit(X, y)
    assert model.objective_ == pytest.approx(left_out_error(model, X, y), rel=1e-6)
    assert model.history_["objective"][-1] == pytest.approx(model.objective_, rel=1e-6)
    assert model.objective_ < 0.8 * len(X) * y.var()


def test_units_of_rows_and_numbers_change_nothing():
    X, y, _ = sines()
    reference = MLKR(1).fit(X, y)
    for other in (MLKR(1).fit(X * 1e-8, y), MLKR(1).fit(X, 1e6 * y - 1e7)):
        scale = np.abs(other.components_).max() / np.abs(reference.components_).max()
        np.testing.assert_allclose(
            np.abs(other.components_),
            scale * np.abs(reference.components_),
            atol=1e-3 * scale * np.abs(reference.components_).max(),
        )
    assert MLKR(1).fit(X, 10 * y).objective_ == pytest.approx(100 * reference.objective_, rel=1e-3)


def test_restarts_keep_the_best():
    X, y, _ = sines(3)
    one = MLKR(1, init="random", random_state=1).fit(X, y)
    assert (
        MLKR(1, init="random", random_state=1, n_init=3).fit(X, y).objective_
        <= (1 + 1e-9) * one.objective_
    )


@pytest.mark.parametrize("stop_at", [2, 60])
def test_an_interrupted_fit_leaves_a_map_of_the_right_shape(stop_at):
    X, y, _ = sines()
    model = MLKR(2, tol=0)

    def stop(iteration, state):
        if iteration == stop_at:
            raise KeyboardInterrupt

    model.callback = stop
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.components_.shape == (2, 8) and model.n_iter_ == stop_at


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([1.0, np.nan, 2.0, 3.0], r"y contains NaN \(row 1\)"),
        ([1.0, np.inf, 2.0, 3.0], r"y contains infinity \(row 1\)"),
        ([1.0, None, 2.0, 3.0], r"y contains NaN or a missing value \(row 1\)"),
        (["a", "b", "a", "b"], "y must contain numbers to predict"),
        ([1.0, 2.0, 3.0], "X has 4 rows and y has 3 values"),
        ([2.0, 2.0, 2.0, 2.0], "at least two different values in y"),
        (np.ones((4, 2)), "y should be a 1d array"),
        ([1 + 1j, 2, 3, 4], "complex"),
        (None, "requires y to be passed"),
    ],
)
def test_targets_that_are_no_numbers_are_refused(y, words):
    X = np.random.default_rng(0).normal(size=(4, 2))
    with pytest.raises(ValueError, match=words):
        MLKR().fit(X, y)


def test_difficult_data_give_finite_maps():
    X, y, _ = sines(n=40)
    wide = np.hstack([X, np.random.default_rng(0).normal(size=(40, 50))])
    for rows in (np.column_stack([X, np.ones(40), X[:, 0]]), wide):
        model = MLKR(max_iter=30).fit(rows, y)
        assert np.isfinite(model.components_).all() and np.isfinite(model.objective_)


def test_extreme_targets_are_refused():
    X, y = load_diabetes(return_X_y=True)
    for factor in (1e200, 1e-200):
        with pytest.raises(ValueError, match="y: the largest absolute value"):
            MLKR().fit(X[:30], y[:30] * factor)
