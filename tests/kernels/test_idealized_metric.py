"""Tests of IdealizedMetric against conic solvers and its stated properties."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from conic import solved

from nearfar import (
    IdealizedMetric,
    KernelIdealizedMetric,
    KernelLMNN,
    KernelMMC,
    KernelPOLA,
    Pairs,
)

T6 = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [2.0, 1.0], [3.0, 0.0], [3.0, 3.0]])
T6_Y = np.array([0, 0, 0, 1, 1, 1])
NAMES = ("free", "constrained")


def all_pairs(y):
    pairs = np.array(list(itertools.combinations(range(len(y)), 2)))
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    return Pairs(similar=pairs[same], dissimilar=pairs[~same], n_samples=len(y))


def contrary(seed, n=24, p=3, n_pairs=40):
    """Return pairs for which the solution B can have negative eigenvalues."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, p))
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    pairs = pairs[random.permutation(len(pairs))[:n_pairs]]
    d = X[pairs[:, 0]] - X[pairs[:, 1]]
    alike = d[:, 0] ** 2 > d[:, 1] ** 2
    return X, Pairs(similar=pairs[alike], dissimilar=pairs[~alike], n_samples=n)


def primal(X, pairs, C_similar, C_dissimilar, nu, base=None, cone=False):
    """Return the minimum over B and γ, from a conic solver."""
    p = X.shape[1]
    B, gamma = cp.Variable((p, p), symmetric=True), cp.Variable(nonneg=True)
    M = np.eye(p) if base is None else base

    def gains(some):
        d = X[some[:, 0]] - X[some[:, 1]]
        before = np.einsum("ij,jk,ik->i", d, M, d)
        return cp.sum(cp.multiply(d @ B, d), axis=1) - before

    far = cp.sum(cp.pos(gamma - gains(pairs.dissimilar))) / len(pairs.dissimilar)
    near = cp.sum(cp.pos(gains(pairs.similar))) / len(pairs.similar)
    value = 0.5 * cp.sum_squares(B) + C_similar * near + C_dissimilar * (far - nu * gamma)
    problem = cp.Problem(cp.Minimize(value), [B >> 0] if cone else [])
    return solved(problem), B.value, float(gamma.value)


def certificate(metric, X, pairs, C_similar, C_dissimilar, nu, cone=False):
    """Return the dual objective of alpha, a lower bound for all B."""
    n_similar, n_dissimilar = len(pairs.similar), len(pairs.dissimilar)
    alpha, signs = metric.alpha_, np.repeat([-1.0, 1.0], [n_similar, n_dissimilar])
    some = np.vstack([pairs.similar, pairs.dissimilar])
    d = X[some[:, 0]] - X[some[:, 1]]
    bounds = np.repeat(
        [C_similar / n_similar, C_dissimilar / n_dissimilar], [n_similar, n_dissimilar]
    )
    assert (alpha >= 0).all() and (alpha <= bounds * (1 + 1e-12)).all()
    assert alpha[n_similar:].sum() >= C_dissimilar * nu * (1 - 1e-12)
    T = np.einsum("i,ij,ik->jk", signs * alpha, d, d)
    values, vectors = np.linalg.eigh(T)
    if cone:
        T = (vectors * np.maximum(values, 0)) @ vectors.T
    return float(signs * np.sum(d**2, axis=1) @ alpha - 0.5 * np.sum(T**2)), T


def test_the_anchor():
    metric = IdealizedMetric(tol=1e-10).fit(T6, supervision=all_pairs(T6_Y))
    assert metric.objective_ == pytest.approx(83 / 99, abs=1e-7)
    expected = [[1.48484848, 0.12121212], [0.12121212, 0.75757576]]
    np.testing.assert_allclose(metric.matrix_, expected, atol=1e-4)
    np.testing.assert_allclose(metric.get_mahalanobis_matrix(), metric.matrix_, atol=1e-12)


def test_the_average_is_over_the_pairs_of_each_kind():
    # With sums instead of means, the result would be far from the known value.
    metric = IdealizedMetric(C_similar=6.0, C_dissimilar=9.0).fit(T6, supervision=all_pairs(T6_Y))
    assert abs(metric.objective_ - 83 / 99) > 1


@pytest.mark.parametrize("cone", [False, True], ids=NAMES)
@pytest.mark.parametrize(
    ("C_similar", "C_dissimilar", "nu"), [(1, 1, 0.5), (5, 0.3, 0.2), (20, 20, 1.0)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_optimum_of_a_conic_solver(cone, C_similar, C_dissimilar, nu, seed):
    X, pairs = contrary(seed)
    settings = {"C_dissimilar": C_dissimilar, "nu": nu, "psd": "constrain" if cone else "none"}
    metric = IdealizedMetric(C_similar, **settings).fit(X, supervision=pairs)
    value, B, gamma = primal(X, pairs, C_similar, C_dissimilar, nu, cone=cone)
    assert metric.objective_ == pytest.approx(value, rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(metric.matrix_, B, atol=1e-3 * np.abs(B).max())
    if nu < 1:  # with nu = 1, all sufficiently large margins are optimal
        assert metric.ideal_weight_ == pytest.approx(gamma, abs=1e-3 * max(1, gamma))
    # The bound and B can be computed from alpha alone.
    bound, T = certificate(metric, X, pairs, C_similar, C_dissimilar, nu, cone=cone)
    assert bound <= value + 1e-9 * abs(value)
    assert bound == pytest.approx(metric.objective_, rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(metric.matrix_, T, atol=1e-3 * np.abs(B).max())


def test_another_distance_before():
    X, pairs = contrary(2)
    base = np.diag([2.0, 0.5, 0.0])
    metric = IdealizedMetric(base_metric=base, psd="none").fit(X, supervision=pairs)
    assert metric.objective_ == pytest.approx(primal(X, pairs, 1, 1, 0.5, base)[0], rel=1e-6)


def test_what_the_works_call_a_metric_need_not_be_one():
    X, pairs = contrary(0)
    free = IdealizedMetric(20, C_dissimilar=20, psd="none").fit(X, supervision=pairs)
    assert np.linalg.eigvalsh(free.matrix_)[0] < -1
    assert free.negative_share_ > 0.1
    projected = IdealizedMetric(20, C_dissimilar=20).fit(X, supervision=pairs)
    values, vectors = np.linalg.eigh(free.matrix_)
    clipped = (vectors * np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(projected.matrix_, clipped, atol=1e-8)
    np.testing.assert_allclose(free.get_mahalanobis_matrix(), clipped, atol=1e-8)
    with pytest.raises(ValueError, match=r"eigenvalue -\d.* not define a metric.*constrain"):
        IdealizedMetric(20, C_dissimilar=20, psd="raise").fit(X, supervision=pairs)
    best = IdealizedMetric(20, C_dissimilar=20, psd="constrain").fit(X, supervision=pairs)
    assert best.negative_share_ == 0
    # Setting negative eigenvalues to zero does not give the best positive semi-definite matrix.
    spoilt = _objective(projected.matrix_, X, pairs, 20, 20, 0.5)
    assert best.objective_ < spoilt - 1e-3 * abs(spoilt)


def _objective(B, X, pairs, C_similar, C_dissimilar, nu):
    def gains(some):
        d = X[some[:, 0]] - X[some[:, 1]]
        return np.einsum("ij,jk,ik->i", d, B, d) - np.sum(d**2, axis=1)

    near, far = gains(pairs.similar), gains(pairs.dissimilar)
    values = [
        C_similar * np.maximum(near, 0).mean()
        + C_dissimilar * (np.maximum(gamma - far, 0).mean() - nu * gamma)
        for gamma in np.append(np.maximum(far, 0), 0)
    ]
    return 0.5 * np.sum(B**2) + min(values)


@pytest.mark.parametrize("nu", [0.25, 0.4, 0.8])
def test_nu_bounds_the_share_beyond_the_margin(nu):
    random = np.random.default_rng(4)
    y = np.arange(40) % 2
    X = random.normal(size=(40, 3)) + 2 * y[:, None] * [1, 0, 0]
    pairs = all_pairs(y)
    metric = IdealizedMetric(20, C_dissimilar=20, nu=nu, psd="none").fit(X, supervision=pairs)
    assert metric.ideal_weight_ > 0
    d = X[pairs.dissimilar[:, 0]] - X[pairs.dissimilar[:, 1]]
    gains = np.einsum("ij,jk,ik->i", d, metric.matrix_, d) - np.sum(d**2, axis=1)
    alpha = metric.alpha_[len(pairs.similar) :]
    step = 1e-4 * metric.ideal_weight_
    assert np.mean(gains < metric.ideal_weight_ - step) <= nu
    assert np.mean(alpha > 1e-6 * alpha.max()) >= nu - 1 / len(alpha)


def test_fewer_pairs_than_entries_of_the_matrix():
    random = np.random.default_rng(5)
    X = random.normal(size=(12, 9))
    pairs = Pairs(
        similar=[[0, 1], [2, 3], [4, 5]], dissimilar=[[0, 6], [1, 7], [8, 9]], n_samples=12
    )
    metric = IdealizedMetric(psd="none").fit(X, supervision=pairs)
    assert metric.objective_ == pytest.approx(primal(X, pairs, 1, 1, 0.5)[0], rel=1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_units_change_the_prices_alone(scale):
    X, pairs = contrary(3)
    one = IdealizedMetric(1.0, psd="none").fit(X, supervision=pairs)
    # Dividing X by a unit equals multiplying the penalties by its square. γ scales as X squared.
    other = IdealizedMetric(scale**-2, C_dissimilar=scale**-2, psd="none").fit(
        scale * X, supervision=pairs
    )
    np.testing.assert_allclose(other.matrix_, one.matrix_, atol=1e-4 * np.abs(one.matrix_).max())
    assert other.ideal_weight_ == pytest.approx(scale**2 * one.ideal_weight_, rel=1e-4)


@pytest.mark.parametrize("psd", ["none", "constrain"])
def test_the_linear_kernel_is_the_explicit_metric(psd):
    X, pairs = contrary(1)
    plain = IdealizedMetric(2.0, psd=psd).fit(X, supervision=pairs)
    kernel = KernelIdealizedMetric("linear", C_similar=2.0, psd=psd).fit(X, supervision=pairs)
    assert kernel.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    some = np.random.default_rng(0).normal(size=(5, 3))
    ours, theirs = (
        np.linalg.norm(learner.transform(some)[:, None] - learner.transform(some), axis=2)
        for learner in (kernel, plain)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-3 * theirs.max())
    L = plain.components_
    expected = some @ L.T @ L @ some.T
    atol = 1e-3 * np.abs(expected).max()
    np.testing.assert_allclose(kernel.learned_kernel(some), expected, atol=atol)


def test_the_formula_of_the_kernel_for_new_points():
    X, pairs = contrary(6, n=15, n_pairs=25)
    settings = {"gamma": 0.3, "C_similar": 0.01, "C_dissimilar": 0.01, "n_directions": None}
    metric = KernelIdealizedMetric("rbf", **settings).fit(X, supervision=pairs)
    assert metric.negative_share_ < 1e-6  # otherwise the formula does not hold
    new = np.random.default_rng(1).normal(size=(4, 3))
    K = np.exp(-0.3 * np.sum((new[:, None] - X) ** 2, axis=2))
    some = np.vstack([pairs.similar, pairs.dissimilar])
    signs = np.repeat([-1.0, 1.0], [len(pairs.similar), len(pairs.dissimilar)])
    gaps = K[:, some[:, 0]] - K[:, some[:, 1]]
    expected = (gaps * (signs * metric.alpha_)) @ gaps.T
    atol = 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(metric.learned_kernel(new), expected, atol=atol)
    distances = np.linalg.norm(metric.transform(new)[:1] - metric.transform(new), axis=1) ** 2
    shown = expected[0, 0] + np.diag(expected) - 2 * expected[0]
    np.testing.assert_allclose(distances, shown, atol=4 * atol)


def test_bad_arguments_are_named():
    X, pairs = contrary(0)
    for settings, words in (
        ({"nu": 1.5}, "nu"),
        ({"base_metric": np.eye(2)}, r"base_metric must be .* shape \(3, 3\)"),
        ({"base_metric": np.diag([1.0, 1.0, -1.0])}, "smallest eigenvalue is -1"),
        ({"base_metric": np.triu(np.ones((3, 3)))}, "symmetric"),
    ):
        with pytest.raises(ValueError, match=words):
            IdealizedMetric(**settings).fit(X, supervision=pairs)
    for kind, other in (("similar", "dissimilar"), ("dissimilar", "similar")):
        given = {kind: getattr(pairs, kind), other: np.empty((0, 2), int)}
        with pytest.raises(ValueError, match=f"no {other} pair"):
            IdealizedMetric().fit(X, supervision=Pairs(**given, n_samples=len(X)))
    wide = np.random.default_rng(0).normal(size=(30, 120))
    with pytest.raises(ValueError, match="at most 109 features"):
        IdealizedMetric(psd="constrain").fit(wide, np.arange(30) % 2)


def test_no_positive_direction_is_said():
    # All pairs differ only along the feature that the original distance ignores.
    X = np.array([[0.0, 0.0], [5.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    pairs = Pairs(similar=[[0, 1]], dissimilar=[[0, 2]], n_samples=4)
    with pytest.raises(ValueError, match="no positive eigenvalue"):
        IdealizedMetric(10, base_metric=np.diag([0.0, 1.0])).fit(X, supervision=pairs)


@pytest.mark.parametrize("learner", [KernelIdealizedMetric, KernelPOLA, KernelMMC, KernelLMNN])
def test_who_lacks_labels_is_the_one_that_was_fitted(learner):
    guide = learner.learner_tags.supervision[1]
    message = f"^{learner.__name__} requires y to be passed.*learns from labels or {guide}"
    with pytest.raises(ValueError, match=message):
        learner().fit(T6)
