"""LogisticMetric: likelihood, both structures, bound, and separable pairs."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy import optimize
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning

from nearfar import LogisticMetric, Pairs
from nearfar.mahalanobis import logistic_metric

SCALES = np.array([1.0, 3.0, 10.0, 30.0])
TIGHT = {"tol_gap_abs": 1e-6, "tol_gap_rel": 1e-6, "tol_feas": 1e-6}
IRIS = load_iris(return_X_y=True)


def problem(seed, **sizes):
    X, y = make_classification(
        60,
        4,
        n_informative=3,
        n_redundant=0,
        n_classes=3,
        n_clusters_per_class=1,
        class_sep=0.7,
        random_state=seed,
    )
    sizes = {"n_similar": 60, "n_dissimilar": 80} | sizes
    return X, Pairs.from_labels(y, random_state=seed, **sizes)


def axes_of(X, *, center=True):
    rows = X - X.mean(axis=0) if center else X
    return np.linalg.eigh(rows.T @ rows)[1][:, ::-1]


def conic_optimum(X, pairs, l2=1e-3, axes=None):
    points, s = pairs.to_arrays(X)
    d = points[:, 0] - points[:, 1]
    d = d / np.sqrt((d**2).sum(axis=1).mean())
    mu = cp.Variable(nonneg=True)
    if axes is None:
        M = cp.Variable((X.shape[1], X.shape[1]), PSD=True)
        squared, size = cp.sum(cp.multiply(d @ M, d), axis=1), cp.sum_squares(M)
    else:
        gamma = cp.Variable(axes.shape[1], nonneg=True)
        squared, size = (d @ axes) ** 2 @ gamma, cp.sum_squares(gamma)
    loss = cp.sum(cp.logistic(cp.multiply(s, squared - mu)))
    program = cp.Problem(cp.Minimize(loss + l2 / 2 * size))
    program.solve(solver="CLARABEL", **TIGHT)
    assert program.status == "optimal"
    return program.value


def brute(metric, X, pairs, l2=1e-3):
    """Return the objective by its definition."""
    M, total, lengths = metric.get_mahalanobis_matrix(), 0.0, []
    for kind, s in ((pairs.similar, 1), (pairs.dissimilar, -1)):
        for i, j in kind:
            d = X[i] - X[j]
            lengths.append(d @ d)
            total += np.logaddexp(0, s * (d @ M @ d - metric.mu_))
    return total + l2 / 2 * np.mean(lengths) ** 2 * (M**2).sum()


@pytest.mark.parametrize("scales", [np.ones(4), SCALES], ids=["plain", "scaled"])
@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_of_the_conic_program(seed, scales):
    X, pairs = problem(seed)
    X = X * scales
    metric = LogisticMetric().fit(X, supervision=pairs)
    optimum = conic_optimum(X, pairs)
    assert metric.objective_ == pytest.approx(optimum, rel=1e-4)
    assert 0.99 * optimum <= metric.dual_bound_ <= optimum * (1 + 1e-5)
    assert metric.objective_ == pytest.approx(brute(metric, X, pairs), rel=1e-9)
    assert metric.mu_ >= 0 and not hasattr(metric, "gamma_")


@pytest.mark.parametrize("scales", [np.ones(4), SCALES], ids=["plain", "scaled"])
@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_along_axes(seed, scales):
    X, pairs = problem(seed)
    X = X * scales
    metric = LogisticMetric("eigenspace").fit(X, supervision=pairs)
    optimum = conic_optimum(X, pairs, axes=axes_of(X))
    assert metric.objective_ == pytest.approx(optimum, rel=1e-4)
    assert 0.99 * optimum <= metric.dual_bound_ <= optimum * (1 + 1e-5)
    # The features of a pair are (d·v)²; the survey prints M instead of the axes.
    assert metric.objective_ == pytest.approx(brute(metric, X, pairs), rel=1e-9)
    V = axes_of(X)
    wanted = V @ np.diag(metric.gamma_) @ V.T
    np.testing.assert_allclose(metric.get_mahalanobis_matrix(), wanted, rtol=1e-6, atol=1e-9)
    assert (metric.gamma_ >= 0).all()


def test_features_with_the_metric_in_the_middle_as_printed_are_others():
    # As printed in the survey, all axes have the same feature d'Md, and M is on both sides.
    X, pairs = problem(0)
    metric = LogisticMetric("eigenspace").fit(X, supervision=pairs)
    d = np.diff(pairs.to_arrays(X)[0], axis=1)[:, 0]
    squared = metric.pair_distance(pairs.to_arrays(X)[0]) ** 2
    right = (d @ axes_of(X)) ** 2
    np.testing.assert_allclose(right @ metric.gamma_, squared, rtol=1e-8)
    M = metric.get_mahalanobis_matrix()
    printed = np.einsum("ij,jk,ik->i", d, M, d)[:, None].repeat(4, axis=1)
    assert np.abs(printed @ metric.gamma_ - squared).max() > 0.1 * squared.max()


@pytest.mark.parametrize("structure", ["full", "eigenspace"])
def test_a_stronger_penalty(structure):
    X, pairs = problem(1)
    axes = axes_of(X) if structure == "eigenspace" else None
    metric = LogisticMetric(structure, l2=10.0).fit(X, supervision=pairs)
    optimum = conic_optimum(X, pairs, l2=10.0, axes=axes)
    assert metric.objective_ == pytest.approx(optimum, rel=1e-4)
    assert 0.99 * optimum <= metric.dual_bound_ <= optimum * (1 + 1e-5)


@pytest.mark.parametrize("structure", ["full", "eigenspace"])
def test_without_a_penalty(structure):
    X, pairs = problem(2)
    axes = axes_of(X) if structure == "eigenspace" else None
    metric = LogisticMetric(structure, l2=0.0, tol=1e-9).fit(X, supervision=pairs)
    optimum = conic_optimum(X, pairs, l2=0.0, axes=axes)
    assert metric.objective_ == pytest.approx(optimum, rel=1e-4)
    assert 0 <= metric.dual_bound_ <= optimum * (1 + 1e-6)
    assert not metric.separable_


def test_the_bound_holds_far_from_the_optimum():
    X, pairs = problem(3)
    optimum = conic_optimum(X, pairs)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        early = LogisticMetric(max_iter=1).fit(X, supervision=pairs)
    assert early.dual_bound_ < optimum < early.objective_


@pytest.mark.parametrize("structure", ["full", "eigenspace"])
def test_gradients(structure):
    X, pairs = problem(0)
    X = X / np.sqrt(np.mean((X[pairs.similar[:, 0]] - X[pairs.similar[:, 1]]) ** 2))
    every = np.vstack([pairs.similar, pairs.dissimilar])
    sign = np.repeat([1.0, -1.0], [60, 80])
    rows = logistic_metric.PairDifferences(X, every)
    if structure == "full":
        inner = logistic_metric._Full(rows, sign, 0.3, rows.scatter() / 140)
    else:
        inner = logistic_metric._Axes(rows, sign, 0.3, axes_of(X))
    point = np.abs(np.random.default_rng(0).normal(size=len(inner.make_start())))
    error = optimize.check_grad(
        lambda p: inner.evaluate(p)[0], lambda p: inner.evaluate(p)[1], point
    )
    scale = np.linalg.norm(inner.evaluate(point)[1])
    assert error < 1e-5 * scale


def test_the_likelihood_is_convex_in_the_metric():
    X, pairs = problem(0)
    rng = np.random.default_rng(0)

    def value(M, mu):
        points, s = pairs.to_arrays(X)
        d = points[:, 0] - points[:, 1]
        return np.logaddexp(0, s * (np.einsum("ij,jk,ik->i", d, M, d) - mu)).sum()

    for _ in range(20):
        A, B = (a @ a.T for a in rng.normal(size=(2, 4, 4)))
        mu, nu = rng.uniform(0, 3, 2)
        t = rng.uniform()
        middle = value(t * A + (1 - t) * B, t * mu + (1 - t) * nu)
        assert middle <= t * value(A, mu) + (1 - t) * value(B, nu) + 1e-9


# Probabilities


def test_near_points_are_the_more_likely_alike():
    # The survey prints the opposite sign, with which Pr(similar) would increase with the distance.
    X, y = IRIS
    metric = LogisticMetric().fit(X, y)
    points, sign = Pairs.from_labels(y, n_similar=200, n_dissimilar=200, random_state=5).to_arrays(
        X
    )
    likely = metric.predict_pair_proba(points)
    squared = metric.pair_distance(points) ** 2
    np.testing.assert_allclose(likely, 1 / (1 + np.exp(squared - metric.mu_)), rtol=1e-10)
    order = np.argsort(squared)
    assert (np.diff(likely[order]) <= 0).all()
    assert ((likely > 0.5) == (sign > 0)).mean() > 0.9
    printed = 1 / (1 + np.exp(-(squared - metric.mu_)))
    assert ((printed > 0.5) == (sign > 0)).mean() < 0.1


def test_probabilities_are_calibrated_where_people_disagree():
    # Pairs drawn from the model itself. Some are labeled twice, with different labels.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    every = np.array([(i, j) for i in range(80) for j in range(i)])
    d2 = ((X[every[:, 0]] - X[every[:, 1]]) ** 2 @ np.array([2.0, 0.5, 0.0])).ravel()
    similar, dissimilar = [], []
    for _ in range(2):
        alike = rng.uniform(size=len(every)) < 1 / (1 + np.exp(d2 - 2.0))
        similar.append(every[alike])
        dissimilar.append(every[~alike])
    pairs = Pairs(np.vstack(similar), np.vstack(dissimilar), n_samples=80, conflicts="keep")
    assert pairs.n_conflicts > 100
    metric = LogisticMetric().fit(X, supervision=pairs)
    assert metric.mu_ == pytest.approx(2, abs=0.2)
    np.testing.assert_allclose(metric.get_mahalanobis_matrix(), np.diag([2, 0.5, 0]), atol=0.2)
    assert not metric.separable_


# Axes of all rows


def test_rows_in_no_pair_say_where_the_axes_are():
    X, pairs = problem(1)
    more = np.random.default_rng(0).normal(size=(200, 4)) @ np.diag([9.0, 3, 1, 0.3])
    whole = np.vstack([X, more])
    widened = Pairs(pairs.similar, pairs.dissimilar, n_samples=len(whole))
    metric = LogisticMetric("eigenspace", n_components=2).fit(whole, supervision=widened)
    V = axes_of(whole)[:, :2]
    assert metric.components_.shape == (2, 4) and metric.gamma_.shape == (2,)
    np.testing.assert_allclose(
        metric.get_mahalanobis_matrix(), V @ np.diag(metric.gamma_) @ V.T, atol=1e-9
    )
    optimum = conic_optimum(whole, widened, axes=V)
    assert metric.objective_ == pytest.approx(optimum, rel=1e-4)
    alone = LogisticMetric("eigenspace", n_components=2).fit(X, supervision=pairs)
    assert abs(alone.objective_ - metric.objective_) > 1e-3 * metric.objective_


def test_the_moment_about_zero_has_the_mean_first():
    X, pairs = problem(1)
    X = X + [50.0, 0, 0, 0]
    V = axes_of(X, center=False)
    about_zero = LogisticMetric("eigenspace", center=False).fit(X, supervision=pairs)
    np.testing.assert_allclose(
        about_zero.get_mahalanobis_matrix(), V @ np.diag(about_zero.gamma_) @ V.T, atol=1e-8
    )
    assert abs(V[0, 0]) > 0.99
    optimum = conic_optimum(X, pairs, axes=V)
    assert about_zero.objective_ == pytest.approx(optimum, rel=1e-4)
    centered = LogisticMetric("eigenspace").fit(X, supervision=pairs)
    assert abs(centered.objective_ - about_zero.objective_) > 1e-3 * centered.objective_


# Fewer rows


def test_a_rectangle_is_between_the_square_and_its_leading_directions():
    X, pairs = problem(4)
    square = LogisticMetric().fit(X, supervision=pairs)
    flat = LogisticMetric(n_components=2).fit(X, supervision=pairs)
    assert flat.components_.shape == (2, 4)
    assert flat.objective_ == pytest.approx(brute(flat, X, pairs), rel=1e-9)
    assert flat.dual_bound_ <= square.objective_ <= flat.objective_
    _, lengths, axes = np.linalg.svd(square.components_)
    cut = LogisticMetric(n_components=2).fit(X, supervision=pairs)
    cut.components_ = lengths[:2, None] * axes[:2]
    cut.mu_ = square.mu_
    assert flat.objective_ <= brute(cut, X, pairs)
    whole = LogisticMetric(n_components=4).fit(X, supervision=pairs)
    np.testing.assert_array_equal(whole.components_, square.components_)
    narrow = np.column_stack([X[:, 0], X[:, 0], X[:, 1]])  # The rows vary in two directions.
    padded = LogisticMetric(n_components=3).fit(narrow, supervision=pairs)
    assert padded.components_.shape == (3, 3) and not padded.components_[2].any()
    for structure in ("full", "eigenspace"):
        with pytest.raises(ValueError, match="n_components=5 is more than the 4 features"):
            LogisticMetric(structure, n_components=5).fit(X, supervision=pairs)


# Separable pairs


def can_be_parted(X, pairs, axes):
    """Return True if in some direction no pair gets worse and one improves (linear program)."""
    points, s = pairs.to_arrays(X)
    W = np.column_stack([((points[:, 0] - points[:, 1]) @ axes) ** 2, -np.ones(len(s))])
    A = s[:, None] * W
    found = optimize.linprog(A.sum(axis=0), A_ub=A, b_ub=np.zeros(len(s)), bounds=(0, 1))
    assert found.status == 0
    return found.fun < -1e-7


def test_separable_is_what_a_linear_program_says():
    said = []
    for seed in range(12):
        X, pairs = problem(seed, n_similar=3 + seed // 2, n_dissimilar=3 + seed // 2)
        metric = LogisticMetric("eigenspace").fit(X, supervision=pairs)
        assert metric.separable_ == can_be_parted(X, pairs, axes_of(X)), seed
        said.append(metric.separable_)
        if metric.separable_:  # A full matrix separates them too.
            assert LogisticMetric().fit(X, supervision=pairs).separable_
    assert 2 < sum(said) < 10


def test_separable_pairs_have_a_finite_metric():
    X, y = make_blobs(60, 3, centers=2, center_box=(-20, 20), random_state=0)
    metric = LogisticMetric().fit(X, y)
    assert metric.separable_ and np.isfinite(metric.components_).all()
    assert metric.duality_gap_ < 1e-3
    # A weaker penalty gives a larger map.
    longer = LogisticMetric(l2=1e-5).fit(X, y)
    assert longer.mu_ > metric.mu_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free = LogisticMetric(l2=0.0, max_iter=50).fit(X, y)
    assert free.separable_ and np.isfinite(free.components_).all() and free.objective_ < 1e-2


@pytest.mark.parametrize("structure", ["full", "eigenspace"])
def test_directions_that_similar_pairs_leave_empty_have_no_maximum(structure):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    X = np.column_stack([X, np.zeros(40)])
    X[-3:, 2] = 5.0
    pairs = Pairs(
        rng.permutation(30).reshape(15, 2), [[0, 1], [2, 3], [4, 38], [5, 39]], n_samples=40
    )
    metric = LogisticMetric(structure).fit(X, supervision=pairs)
    if structure == "full":
        assert metric.separable_
    elif metric.separable_:  # The axes are not exactly the features.
        assert can_be_parted(X, pairs, axes_of(X))
    assert np.isfinite(metric.components_).all()
