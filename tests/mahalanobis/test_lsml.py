"""LSML compared with its program, written as a cone program and solved by another solver."""

import numpy as np
import pytest
from conic import solved
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from nearfar import LSML, KNNClassifier, Pairs, Quadruplets
from nearfar.solvers.log_det import log_det_bound

SCALES = np.array([1.0, 3.0, 10.0, 30.0])


def problem(seed, n=40, p=4, n_quadruplets=40):
    """Return points of two overlapping classes, comparisons (some wrong), and weights."""
    rng = np.random.RandomState(seed)
    y = rng.randint(2, size=n)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + 2 * y[:, None] * rng.normal(size=p)
    y[:4] = 1 - y[:4]
    drawn = Quadruplets.from_labels(y, n_quadruplets=n_quadruplets, random_state=seed)
    return X, drawn, rng.uniform(0.1, 3.0, size=n_quadruplets)


def isotropic(X):
    return np.eye(X.shape[1]) / X.var(axis=0).mean()


def distances(M, X, pairs):
    D = X[pairs[:, 0]] - X[pairs[:, 1]]
    return np.sqrt(np.einsum("ij,jk,ik->i", D, M, D))


def objective(M, prior, X, quadruplets, weights):
    over = distances(M, X, quadruplets[:, :2]) - distances(M, X, quadruplets[:, 2:])
    inside = M @ np.linalg.inv(prior)
    apart = np.trace(inside) - np.linalg.slogdet(inside)[1] - len(M)
    return np.average(np.maximum(over, 0) ** 2, weights=weights) + apart


def optimum(X, quadruplets, weights, prior):
    """Minimize; (√x - √y)₊² is the least x + t - 2s with s² ≤ x t and t ≤ y."""
    cp = pytest.importorskip("cvxpy")
    W = np.linalg.cholesky(prior).T
    p, n = X.shape[1], len(quadruplets)
    A = cp.Variable((p, p), symmetric=True)
    t, s = cp.Variable(n), cp.Variable(n)
    x, y = (
        np.einsum("ij,ik->ijk", V, V).reshape(n, -1) @ cp.vec(A, order="C")
        for V in ((X[quadruplets[:, k]] - X[quadruplets[:, k + 1]]) @ W.T for k in (0, 2))
    )
    cone = cp.SOC(x + t, cp.vstack([2 * s, x - t]), axis=0)
    share = weights / weights.sum()
    value = share @ (x + t - 2 * s) + cp.trace(A) - cp.log_det(A) - p
    program = cp.Problem(cp.Minimize(value), [cone, t <= y])
    return solved(program)


@pytest.mark.parametrize("scales", [1.0, SCALES], ids=["plain", "scaled columns"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_optimum_of_the_program(seed, weighted, scales):
    X, quadruplets, weights = problem(seed)
    X = X * scales
    lsml = LSML().fit(X, supervision=quadruplets, weights=weights if weighted else None)
    weights = weights if weighted else np.ones(len(weights))
    best = optimum(X, quadruplets.indices, weights, isotropic(X))
    assert best > 0.01
    assert lsml.objective_ == pytest.approx(best, rel=1e-4)
    assert best * (1 - 0.01) <= lsml.dual_bound_ <= best * (1 + 1e-5)
    M = lsml.get_mahalanobis_matrix()
    found = objective(M, isotropic(X), X, quadruplets.indices, weights)
    assert lsml.objective_ == pytest.approx(found, rel=1e-8)


def test_another_prior():
    X, quadruplets, weights = problem(7)
    X = X * SCALES
    prior = np.linalg.inv(np.cov(X.T, bias=True))
    best = optimum(X, quadruplets.indices, weights, prior)
    for given in ("covariance", prior):
        lsml = LSML(given).fit(X, supervision=quadruplets, weights=weights)
        assert lsml.objective_ == pytest.approx(best, rel=1e-4)


def test_the_gradient_is_that_of_the_loss():
    X, quadruplets, weights = problem(3)
    lsml = LSML()
    lsml._weights = weights
    loss = lsml._make_loss(X - X.mean(axis=0), quadruplets)
    rng = np.random.RandomState(0)
    B, step = np.eye(4) + 0.3 * rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    slope = (loss(B + 1e-6 * step)[0] - loss(B - 1e-6 * step)[0]) / 2e-6
    assert slope == pytest.approx(np.sum(loss(B)[1] * step), rel=1e-6)


def test_slopes_anywhere_give_a_bound():
    X, quadruplets, _ = problem(4)
    lsml = LSML(tol=1e-12).fit(X, supervision=quadruplets)
    best = lsml.objective_
    lsml._weights = None
    loss = lsml._make_loss((X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean()), quadruplets)
    rng = np.random.RandomState(1)
    for _ in range(50):
        B = rng.normal(size=(4, 4)) * rng.choice([0.1, 1.0, 10.0])
        assert 0 <= log_det_bound(*loss.compute_multipliers(B)) <= best


def test_weights_are_counts():
    X, quadruplets, _ = problem(5)
    counts = np.random.RandomState(0).randint(0, 4, size=40)
    repeated = Quadruplets(np.repeat(quadruplets.indices, counts, axis=0), n_samples=len(X))
    weighted = LSML(tol=1e-12).fit(X, supervision=quadruplets, weights=counts * 7.0)
    plain = LSML(tol=1e-12).fit(X, supervision=repeated)
    np.testing.assert_allclose(weighted.components_, plain.components_, atol=1e-6)
    # The weights must have an effect, see metric-learn#83.
    assert LSML().fit(X, supervision=quadruplets).objective_ != pytest.approx(plain.objective_)


def test_comparisons_that_hold_leave_the_prior():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [0.0, 9.0]])
    lsml = LSML("identity").fit(X, supervision=Quadruplets([[0, 1, 2, 3]], n_samples=4))
    np.testing.assert_allclose(lsml.get_mahalanobis_matrix(), np.eye(2), atol=1e-12)
    assert lsml.objective_ == lsml.duality_gap_ == 0


def test_contradictory_comparisons_leave_residuals():
    X = np.random.RandomState(0).normal(size=(6, 2))
    cycle = Quadruplets([[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 0, 1]], n_samples=6)
    lsml = LSML().fit(X, supervision=cycle)
    assert np.isfinite(lsml.components_).all() and lsml.duality_gap_ < 1e-4
    assert lsml.objective_ > 0


def test_directions_without_data_redundant_and_constant_features():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(12, 40))
    X[:, 3], X[:, 5] = X[:, 2], 7.0
    y = np.repeat([0, 1], 6)
    for prior in ("isotropic", "identity", "covariance"):
        lsml = LSML(prior).fit(X, y)
        assert np.isfinite(lsml.components_).all() and lsml.duality_gap_ < 1e-4
    X, quadruplets, _ = problem(6)
    more = np.insert(X, 2, 5.0, axis=1)
    plain, padded = (LSML().fit(A, supervision=quadruplets) for A in (X, more))
    assert padded.objective_ == pytest.approx(plain.objective_, rel=1e-6)


@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_free_of_units(factor):
    X, quadruplets, _ = problem(6)
    plain, other = (LSML().fit(X * f, supervision=quadruplets) for f in (1.0, factor))
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)
    np.testing.assert_allclose(other.components_ * factor, plain.components_, rtol=1e-6)


def test_it_helps_neighbours_on_iris_and_repeats_itself():
    X, y = load_iris(return_X_y=True)
    wide = np.column_stack([X, 10 * np.random.RandomState(0).normal(size=(150, 2))])
    plain = KNNClassifier().fit(wide[::2], y[::2]).score(wide[1::2], y[1::2])
    learned = KNNClassifier(LSML("covariance")).fit(wide[::2], y[::2])
    assert learned.score(wide[1::2], y[1::2]) > plain + 0.1
    first, second = (LSML().fit(wide, y).components_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_the_gap_is_small_on_raw_data_with_wild_scales(load):
    X, y = load(return_X_y=True)
    lsml = LSML().fit(X, y)
    assert lsml.duality_gap_ < 1e-4 and lsml.n_iter_ < 50


def test_bad_supervision():
    X = np.random.RandomState(0).normal(size=(6, 2))
    X[1] = X[0]
    with pytest.raises(ValueError, match="LSML needs quadruplets; supervision contains none"):
        LSML().fit(X, supervision=Quadruplets(np.empty((0, 4), int), n_samples=6))
    with pytest.raises(ValueError, match="made for 7 samples but X has 6"):
        LSML().fit(X, supervision=Quadruplets([[0, 1, 2, 3]], n_samples=7))
    with pytest.raises(ValueError, match="supervision must be Quadruplets; got Pairs"):
        LSML().fit(X, supervision=Pairs([[0, 2]], [], n_samples=6))
    with pytest.raises(ValueError, match="one of the two pairs has zero length"):
        LSML().fit(X, supervision=Quadruplets([[0, 1, 2, 3]], n_samples=6))
    both = Quadruplets([[2, 3, 0, 1], [2, 4, 3, 5]], n_samples=6)
    with pytest.warns(UserWarning, match="in 1 of 2 quadruplets the last two points") as caught:
        lsml = LSML().fit(X, supervision=both, weights=[5.0, 1.0])
    assert len(caught) == 1
    alone = LSML().fit(X, supervision=Quadruplets([[2, 4, 3, 5]], n_samples=6))
    np.testing.assert_array_equal(lsml.components_, alone.components_)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"weights must have shape \(40,\)"),
        (-np.ones(40), "non-negative"),
        (np.zeros(40), "not all zero"),
        (np.full(40, np.nan), "finite"),
        (["a"] * 40, "weights must be numbers"),
    ],
)
def test_bad_weights(weights, message):
    X, quadruplets, _ = problem(0)
    with pytest.raises(ValueError, match=message):
        LSML().fit(X, supervision=quadruplets, weights=weights)


def test_weights_without_quadruplets():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="weights were passed without quadruplets"):
        LSML().fit(X, y, weights=np.ones(150))
