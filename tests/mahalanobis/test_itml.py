"""ITML compared with the constrained program of the paper, solved by another solver."""

import numpy as np
import pytest
from conic import solved
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from nearfar import ITML, KNNClassifier, Pairs
from nearfar.solvers.log_det import log_det_bound, log_det_divergence

SCALES = np.array([1.0, 3.0, 10.0, 30.0])


def problem(seed, n=40, p=4):
    """Return points of two overlapping classes, and pairs of both kinds, some of them wrong."""
    rng = np.random.RandomState(seed)
    y = rng.randint(2, size=n)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + 2 * y[:, None] * rng.normal(size=p)
    y[:4] = 1 - y[:4]
    return X, Pairs.from_labels(y, n_similar=15, n_dissimilar=15, random_state=seed)


def squared(M, X, pairs):
    D = X[pairs[:, 0]] - X[pairs[:, 1]]
    return np.einsum("ij,jk,ik->i", D, M, D)


def divergence(M, prior):
    inside = M @ np.linalg.inv(prior)
    return np.trace(inside) - np.linalg.slogdet(inside)[1] - len(M)


def objective(M, prior, X, pairs, bounds, gamma):
    """Return the objective by its definition, with the optimal slacks."""

    def phi(t):
        return t - np.log(t) - 1

    near = np.maximum(squared(M, X, pairs.similar) / bounds[0], 1)
    far = np.minimum(squared(M, X, pairs.dissimilar) / bounds[1], 1)
    return divergence(M, prior) + gamma * (phi(near).sum() + phi(far).sum())


def isotropic(X):
    return np.eye(X.shape[1]) / X.var(axis=0).mean()


def optimum(X, pairs, bounds, gamma, prior):
    """Solve the program of the paper, in coordinates in which the prior is the identity."""
    cp = pytest.importorskip("cvxpy")
    W = np.linalg.cholesky(prior).T
    p = X.shape[1]
    A = cp.Variable((p, p), symmetric=True)
    value = cp.trace(A) - cp.log_det(A) - p
    constraints = []
    for some, bound, sign in ((pairs.similar, bounds[0], 1), (pairs.dissimilar, bounds[1], -1)):
        V = (X[some[:, 0]] - X[some[:, 1]]) @ W.T
        slack = cp.Variable(len(V))
        value += gamma * cp.sum(slack - cp.log(slack) - 1)
        outer = np.einsum("ij,ik->ijk", V, V).reshape(len(V), -1) / bound
        constraints.append(sign * (outer @ cp.vec(A, order="C") - slack) <= 0)
    program = cp.Problem(cp.Minimize(value), constraints)
    return solved(program)


@pytest.mark.parametrize("scales", [1.0, SCALES], ids=["plain", "scaled columns"])
@pytest.mark.parametrize("seed", range(5))
def test_optimum_of_the_program_with_slacks(seed, scales):
    X, pairs = problem(seed)
    X = X * scales
    gamma = [1.0, 0.1, 10.0, 1.0, 0.01][seed]
    itml = ITML(gamma).fit(X, supervision=pairs)
    best = optimum(X, pairs, itml.bounds_, gamma, isotropic(X))
    assert itml.objective_ == pytest.approx(best, rel=1e-4)
    assert best * (1 - 0.01) <= itml.dual_bound_ <= best * (1 + 1e-6)
    assert itml.duality_gap_ == pytest.approx(1 - itml.dual_bound_ / itml.objective_)
    M = itml.get_mahalanobis_matrix()
    assert itml.objective_ == pytest.approx(
        objective(M, isotropic(X), X, pairs, itml.bounds_, gamma), rel=1e-8
    )


@pytest.mark.parametrize("prior", ["covariance", "identity", "array"])
def test_priors_are_metrics_of_X(prior):
    X, pairs = problem(7)
    X = X * SCALES
    given = {
        "covariance": np.linalg.inv(np.cov(X.T, bias=True)),
        "identity": np.eye(4),
        "array": np.diag(1 / SCALES) + 0.1,
    }[prior]
    itml = ITML(prior=given if prior == "array" else prior).fit(X, supervision=pairs)
    best = optimum(X, pairs, itml.bounds_, 1.0, given)
    assert itml.objective_ == pytest.approx(best, rel=1e-4)


def test_bounds_are_percentiles_of_squared_distances_under_the_prior():
    X, pairs = problem(3)
    itml = ITML().fit(X, supervision=pairs)
    i, j = np.triu_indices(len(X), 1)
    wanted = np.percentile(squared(isotropic(X), X, np.column_stack([i, j])), [5, 95])
    np.testing.assert_allclose(itml.bounds_, wanted)
    # Bounds on distances that are not squared would be another problem.
    plain = ITML(bounds=np.sqrt(wanted)).fit(X, supervision=pairs)
    assert abs(plain.objective_ / itml.objective_ - 1) > 0.05


def test_given_bounds_are_kept_and_met_with_a_large_gamma():
    X = np.random.RandomState(0).normal(size=(10, 3))
    pairs = Pairs([[0, 1]], [[2, 3]], n_samples=10)
    itml = ITML(1e5, bounds=(0.5, 40.0), tol=1e-12).fit(X, supervision=pairs)
    M = itml.get_mahalanobis_matrix()
    assert squared(M, X, pairs.similar) <= 0.5 * 1.01
    assert squared(M, X, pairs.dissimilar) >= 40 * 0.99
    assert itml.bounds_.tolist() == [0.5, 40.0]


def test_pairs_that_are_where_they_should_be_leave_the_prior():
    X = np.random.RandomState(0).normal(size=(10, 3))
    pairs = Pairs([[0, 1]], [[2, 3]], n_samples=10)
    itml = ITML(bounds=(1e3, 1e3 + 1), prior="identity")
    itml.fit(X, supervision=Pairs([[0, 1]], [], n_samples=10))
    np.testing.assert_allclose(itml.get_mahalanobis_matrix(), np.eye(3), atol=1e-12)
    assert itml.objective_ == itml.dual_bound_ == itml.duality_gap_ == 0
    assert ITML(bounds=(1e3, 1e3 + 1)).fit(X, supervision=pairs).objective_ > 0


@pytest.mark.parametrize("kind", ["similar", "dissimilar"])
def test_one_kind_of_pairs_is_enough(kind):
    X, pairs = problem(1)
    some = {"similar": [], "dissimilar": [], kind: getattr(pairs, kind)}
    itml = ITML().fit(X, supervision=Pairs(**some, n_samples=len(X)))
    prior, M = isotropic(X), itml.get_mahalanobis_matrix()
    before, after = (squared(A, X, some[kind]).mean() for A in (prior, M))
    assert after < before if kind == "similar" else after > before
    assert itml.duality_gap_ < 1e-4


def test_gradient_by_finite_differences():
    X, pairs = problem(2)
    itml = ITML()
    loss = itml._make_loss(X - X.mean(axis=0), pairs)
    rng = np.random.RandomState(0)
    B, step = np.eye(4) + 0.3 * rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    for term in (loss, log_det_divergence):
        slope = (term(B + 1e-6 * step)[0] - term(B - 1e-6 * step)[0]) / 2e-6
        assert slope == pytest.approx(np.sum(term(B)[1] * step), rel=1e-6)


def test_any_multipliers_give_a_bound():
    X, pairs = problem(4)
    itml = ITML(tol=1e-12)
    best = itml.fit(X, supervision=pairs).objective_
    points = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean())
    loss = itml._make_loss(points, pairs)
    rng = np.random.RandomState(1)
    for _ in range(50):
        B = rng.normal(size=(4, 4)) * rng.choice([0.1, 1.0, 10.0])
        assert 0 <= log_det_bound(*loss.compute_multipliers(B)) <= best


def test_directions_without_data_keep_the_prior():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(12, 40))
    y = np.repeat([0, 1], 6)
    itml = ITML().fit(X, y)
    M = itml.get_mahalanobis_matrix()
    _, _, axes = np.linalg.svd(X - X.mean(axis=0), full_matrices=True)
    outside = axes[11:]
    scale = 11 / X.var(axis=0).sum()  # The rows vary in 11 directions.
    np.testing.assert_allclose(outside @ M @ outside.T, scale * np.eye(29), atol=1e-9 * scale)
    assert np.abs(axes[:11] @ M @ outside.T).max() < 1e-9 * scale
    assert itml.duality_gap_ < 1e-4


def test_redundant_and_constant_features_and_singular_priors_are_finite():
    X, pairs = problem(5)
    wide = np.column_stack([X, X[:, 0], X[:, 1] - X[:, 2], np.full(len(X), 3.0)])
    for prior in ("isotropic", "identity", "covariance"):
        itml = ITML(prior=prior).fit(wide, supervision=pairs)
        assert np.isfinite(itml.components_).all() and itml.duality_gap_ < 1e-3
    # The Mahalanobis distance, the last one, does not change with copied features.
    plain = ITML(prior="covariance").fit(X, supervision=pairs)
    assert itml.components_.shape == (4, 7)
    np.testing.assert_allclose(
        squared(itml.get_mahalanobis_matrix(), wide, pairs.similar),
        squared(plain.get_mahalanobis_matrix(), X, pairs.similar),
        rtol=1e-2,
    )
    rank_one = np.zeros((4, 4))
    rank_one[0, 0] = 1.0
    itml = ITML(prior=rank_one).fit(X, supervision=pairs)
    assert itml.components_.shape == (1, 4) and not itml.components_[:, 1:].any()


@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_free_of_units(factor):
    X, pairs = problem(6)
    plain, other = (ITML().fit(X * f, supervision=pairs) for f in (1.0, factor))
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)
    np.testing.assert_allclose(other.components_ * factor, plain.components_, rtol=1e-6)


def test_it_helps_neighbours_on_iris_and_repeats_itself():
    X, y = load_iris(return_X_y=True)
    wide = np.column_stack([X, 10 * np.random.RandomState(0).normal(size=(150, 2))])
    plain = KNNClassifier().fit(wide[::2], y[::2]).score(wide[1::2], y[1::2])
    learned = KNNClassifier(ITML()).fit(wide[::2], y[::2]).score(wide[1::2], y[1::2])
    assert learned > plain + 0.2
    first, second = (ITML().fit(wide, y).components_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_the_gap_is_small_on_raw_data_with_wild_scales(load):
    X, y = load(return_X_y=True)
    itml = ITML().fit(X, y)
    assert itml.duality_gap_ < 1e-4
    assert itml.n_iter_ < 100  # Without the preconditioner by the pull it takes hundreds.


def test_bad_supervision():
    X = np.random.RandomState(0).normal(size=(6, 2))
    X[1] = X[0]
    X[3] = X[2]
    with pytest.raises(ValueError, match="ITML learns from pairs, but supervision contains no"):
        ITML().fit(X, supervision=Pairs([], [], n_samples=6))
    with pytest.raises(
        ValueError, match="Every similar pair in supervision has zero length .2 pairs"
    ):
        ITML().fit(X, supervision=Pairs([[0, 1], [2, 3]], [[0, 4]], n_samples=6))
    with pytest.raises(ValueError, match="made for 7 samples but X has 6"):
        ITML().fit(X, supervision=Pairs([[0, 1]], [], n_samples=7))
    with pytest.raises(ValueError, match="supervision must be Pairs; got ndarray"):
        ITML().fit(X, supervision=np.zeros((3, 2)))
    with pytest.warns(UserWarning, match="1 of 2 dissimilar pairs have zero length") as caught:
        itml = ITML().fit(X, supervision=Pairs([[0, 4]], [[2, 3], [0, 5]], n_samples=6))
    assert len(caught) == 1
    without = ITML().fit(X, supervision=Pairs([[0, 4]], [[0, 5]], n_samples=6))
    np.testing.assert_array_equal(itml.components_, without.components_)
    with pytest.raises(
        ValueError, match="Every pair in supervision is dissimilar and has zero length"
    ):
        ITML().fit(X, supervision=Pairs([], [[2, 3]], n_samples=6))


@pytest.mark.parametrize("bounds", [(1.0,), (0.0, 1.0), (2.0, 1.0), (1.0, np.inf), "wide"])
def test_bad_bounds(bounds):
    X, pairs = problem(0)
    with pytest.raises(ValueError, match="bounds must be"):
        ITML(bounds=bounds).fit(X, supervision=pairs)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (np.eye(3), r"prior must have shape \(4, 4\); got \(3, 3\)"),
        (-np.eye(4), "prior must be positive semi-definite"),
        (np.triu(np.ones((4, 4))), "prior must be symmetric"),
        (np.zeros((4, 4)), "prior is zero"),
        (np.full((4, 4), np.nan), "prior contains NaN"),
        ("euclidean", "prior must be 'isotropic' or"),
    ],
)
def test_bad_priors(prior, message):
    X, pairs = problem(0)
    with pytest.raises(ValueError, match=message):
        ITML(prior=prior).fit(X, supervision=pairs)


def test_pairs_said_both_ways_and_pairs_of_equal_points_cost_slack_only():
    X, pairs = problem(9)
    X[1] = X[0]
    similar = np.vstack([[[0, 1]], pairs.dissimilar[:2], pairs.similar])
    both = Pairs(similar, pairs.dissimilar, n_samples=len(X), conflicts="keep")
    learned = ITML().fit(X, supervision=both)
    assert np.isfinite(learned.components_).all() and learned.duality_gap_ < 1e-4
