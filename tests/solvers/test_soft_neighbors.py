"""Soft neighbours against loops from the definition, scikit-learn and finite differences."""

import numpy as np
import pytest
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from nearfar.solvers.soft_neighbors import SoftNeighbors, soft_neighbors

OBJECTIVES = ("sum", "log", "collapse", "regression")
# The six points of the survey, section 3.2.
T6 = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [2.0, 1.0], [3.0, 0.0], [3.0, 3.0]])
T6_Y = [0, 0, 0, 1, 1, 1]


def problem(n=60, p=5, r=3, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + offset
    return 0.6 * rng.normal(size=(r, p)), X, rng.integers(0, 4, n), rng.normal(size=n)


def by_loops(L, X, y, objective, lists=None):
    """The definition, point by point."""
    value = 0.0
    for i in range(len(X)):
        candidates = [j for j in range(len(X)) if j != i] if lists is None else list(lists[i])
        D = np.array([np.sum((L @ (X[i] - X[j])) ** 2) for j in candidates])
        logs = -D - np.log(np.sum(np.exp(-(D - D.min())))) + D.min()
        if objective == "regression":
            value += (y[i] - np.exp(logs) @ y[candidates]) ** 2
            continue
        is_own_class = np.array([y[j] == y[i] for j in candidates])
        if objective == "sum":
            value += np.exp(logs[is_own_class]).sum()
        elif is_own_class.any():
            if objective == "log":
                value += np.log(np.exp(logs[is_own_class]).sum())
            else:
                value += np.mean(np.log(1 / is_own_class.sum()) - logs[is_own_class])
    return value


def targets(objective, y, values):
    return values if objective == "regression" else y


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_values_equal_the_definition(objective):
    L, X, y, values = problem()
    y[7] = 9  # alone in its class
    t = targets(objective, y, values)
    result, _ = soft_neighbors(L, X, t, objective=objective)
    assert result == pytest.approx(by_loops(L, X, t, objective), rel=1e-10)


def test_anchors_of_the_survey():
    value, gradient = soft_neighbors(np.eye(2), T6, T6_Y)
    assert value == pytest.approx(4.84025272, abs=1e-6)
    expected = [[2.40093395, 1.07584129], [1.07584129, -0.96555748]]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    value, gradient = soft_neighbors(np.eye(2), T6, T6_Y, objective="log")
    assert value == pytest.approx(-1.45213908, abs=1e-6)
    expected = [[3.03558178, 2.05603838], [2.05603838, -1.20427231]]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_the_gradient_as_printed_is_another():
    # Fix 11 of the survey: the inner sum is over the class of i, printed is that of j.
    D = np.sum((T6[:, None] - T6) ** 2, axis=2)
    np.fill_diagonal(D, np.inf)
    P = np.exp(-D) / np.exp(-D).sum(axis=1, keepdims=True)
    is_same_class = np.equal.outer(T6_Y, T6_Y)
    right = (P * is_same_class).sum(axis=1)

    def slope(W):
        differences = T6[:, None] - T6
        return 2 * np.einsum("ij,ija,ijb->ab", W, differences, differences)

    _, gradient = soft_neighbors(np.eye(2), T6, T6_Y)
    np.testing.assert_allclose(gradient, slope(right[:, None] * P - P * is_same_class), atol=1e-10)
    # For each j the points of its own class: every j is among them, and all of P is taken off.
    printed = slope(right[:, None] * P - P)
    assert np.abs(gradient - printed).max() > 1


def test_the_problem_of_nca_is_not_concave_in_the_metric():
    # Fix 12: half-way between two metrics the objective is below both.
    near, half, far = (
        soft_neighbors(np.diag(np.sqrt([0.4 * share, 11.0 * share])), T6, T6_Y)[0]
        for share in (0.0, 0.5, 1.0)
    )
    assert half < min(near, far) - 0.2


@pytest.mark.parametrize("objective", ["sum", "log", "regression"])
def test_values_over_lists_equal_the_definition(objective):
    L, X, y, values = problem()
    rng = np.random.default_rng(1)
    lists = np.array([rng.permutation(np.delete(np.arange(60), i))[:9] for i in range(60)])
    t = targets(objective, y, values)
    result, _ = soft_neighbors(L, X, t, objective=objective, neighbors=lists)
    assert result == pytest.approx(by_loops(L, X, t, objective, lists), rel=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("listed", [False, True])
def test_gradients_equal_finite_differences(objective, listed):
    L, X, y, values = problem(offset=3.0)
    y[7] = 9
    rng = np.random.default_rng(1)
    lists = np.array([rng.permutation(np.delete(np.arange(60), i))[:9] for i in range(60)])
    lists = lists if listed else None
    t = targets(objective, y, values)

    def value(L):
        return soft_neighbors(L, X, t, objective=objective, neighbors=lists)[0]

    _, gradient = soft_neighbors(L, X, t, objective=objective, neighbors=lists)
    numeric = np.empty_like(L)
    for entry in np.ndindex(*L.shape):
        step = np.zeros_like(L)
        step[entry] = 1e-5
        numeric[entry] = (value(L + step) - value(L - step)) / 2e-5
    np.testing.assert_allclose(gradient, numeric, atol=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_lists_of_all_others_are_all_others(objective):
    L, X, y, values = problem()
    t = targets(objective, y, values)
    lists = np.array([np.delete(np.arange(60), i) for i in range(60)])
    result = soft_neighbors(L, X, t, objective=objective, neighbors=lists)
    expected = soft_neighbors(L, X, t, objective=objective)
    assert result[0] == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(result[1], expected[1], atol=1e-10 * np.abs(expected[1]).max())


@pytest.mark.parametrize("rows", [2, 5])
def test_value_and_gradient_equal_those_of_scikit_learn(rows):
    L, X, y, _ = problem(n=300, r=rows)
    theirs = NeighborhoodComponentsAnalysis()
    theirs.n_iter_ = 1
    value, gradient = theirs._loss_grad_lbfgs(L.ravel(), X, y[:, None] == y, 1.0)
    result = soft_neighbors(L, X, y)
    assert result[0] == pytest.approx(value, rel=1e-8)
    expected = gradient.reshape(L.shape)
    np.testing.assert_allclose(result[1], expected, atol=1e-8 * np.abs(expected).max())


def test_labels_may_come_in_any_order_and_be_names():
    L, X, y, _ = problem()
    names = np.array(["d", "a", "c", "b"])[y]
    np.testing.assert_allclose(soft_neighbors(L, X, names)[1], soft_neighbors(L, X, y)[1])


def test_a_map_of_zero_chooses_evenly():
    _, X, y, values = problem()
    zero = np.zeros((2, 5))
    sizes = np.bincount(y)[y]
    assert soft_neighbors(zero, X, y)[0] == pytest.approx(np.sum(sizes - 1) / 59)
    leave_one_out_means = (values.sum() - values) / 59
    result = soft_neighbors(zero, X, values, objective="regression")[0]
    assert result == pytest.approx(np.sum((values - leave_one_out_means) ** 2))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_turning_the_map_changes_nothing(objective):
    L, X, y, values = problem()
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))
    t = targets(objective, y, values)
    a = soft_neighbors(L, X, t, objective=objective)[0]
    assert soft_neighbors(turn @ L, X, t, objective=objective)[0] == pytest.approx(a, rel=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("scale", [1e3, 1e6])
@pytest.mark.parametrize("listed", [False, True])
def test_it_stays_finite_where_distances_underflow(objective, scale, listed):
    L, X, y, values = problem()
    lists = np.array([np.delete(np.arange(60), i) for i in range(60)]) if listed else None
    t = targets(objective, y, values)
    value, gradient = soft_neighbors(scale * L, X, t, objective=objective, neighbors=lists)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    if objective == "sum":  # the nearest alone decides
        D = np.linalg.norm((X[:, None] - X) @ L.T, axis=2)
        np.fill_diagonal(D, np.inf)
        assert value == pytest.approx(np.sum(y[D.argmin(axis=1)] == y), abs=1e-6)


def test_where_squares_overflow_the_value_is_the_worst():
    L, X, y, _ = problem()
    for objective, worst in (("sum", -np.inf), ("log", -np.inf), ("collapse", np.inf)):
        value, gradient = soft_neighbors(1e160 * L, X, y, objective=objective)
        assert value == worst and np.isfinite(gradient).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_single_precision_has_six_digits_or_is_left(objective, n_threads):
    L, X, y, values = problem(n=700)
    t = targets(objective, y, values)
    if objective != "regression":
        order = np.argsort(t, kind="stable")
        X, t = X[order], t[order]
    for scale in (1.0, 300.0):
        expected = SoftNeighbors(X, t, objective, precision="double").evaluate(scale * L)
        engine = SoftNeighbors(X, t, objective, n_threads=n_threads)
        result = engine.evaluate(scale * L)
        assert result[0] == pytest.approx(expected[0], rel=1e-5)
        # Sums of rounded weights: 2.6e-5 was seen with the kernels of an older processor.
        np.testing.assert_allclose(result[1], expected[1], atol=6e-5 * np.abs(expected[1]).max())
        assert engine.value(scale * L) == pytest.approx(result[0], rel=1e-7)


def test_equal_threads_give_equal_bits():
    L, X, _, values = problem(n=500)
    engine = SoftNeighbors(X, values, "regression", n_threads=2)
    assert engine.evaluate(L)[1].tobytes() == engine.evaluate(L)[1].tobytes()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_gradient_in_the_metric_is_that_of_the_map(objective):
    L, X, y, values = problem()
    t = targets(objective, y, values)
    order = np.argsort(t, kind="stable") if objective != "regression" else np.arange(60)
    engine = SoftNeighbors(X[order], t[order], objective, precision="double")
    G = engine.metric_gradient(L)
    np.testing.assert_allclose(G, G.T, atol=1e-9 * np.abs(G).max())
    _, gradient = engine.evaluate(L)
    np.testing.assert_allclose(2 * L @ G, gradient, atol=1e-9 * np.abs(gradient).max())


def test_memory_is_that_of_blocks():
    import tracemalloc

    L, X, y, _ = problem(n=4000)
    order = np.argsort(y, kind="stable")
    engine = SoftNeighbors(X[order], y[order], "sum")
    tracemalloc.start()
    engine.evaluate(L)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4000**2  # one byte for each pair would be more
