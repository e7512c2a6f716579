"""MMC: the convex program, its closed form, its bound, and KernelMMC."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy import linalg, optimize
from sklearn.datasets import load_digits, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning

from nearfar import MMC, KernelMMC, Pairs
from nearfar.mahalanobis import mmc as mmc_file

T6 = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], dtype=float)
T6_PAIRS = Pairs.from_labels([-1, -1, -1, 1, 1, 1])
SCALES = np.array([1.0, 3.0, 10.0, 30.0])
TIGHT = {"tol_gap_abs": 1e-7, "tol_gap_rel": 1e-7, "tol_feas": 1e-7}


def problem(seed, n_similar=60, n_dissimilar=80):
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
    sizes = {"n_similar": n_similar, "n_dissimilar": n_dissimilar}
    return X, Pairs.from_labels(y, random_state=seed, **sizes)


def differences(X, pairs):
    points, sign = pairs.to_arrays(X)
    d = points[:, 0] - points[:, 1]
    return d[sign > 0], d[sign < 0]


def conic_optimum(X, pairs, *, diagonal=False):
    """Maximize the mean distance of dissimilar pairs; similar ones have a mean square of 1."""
    near, far = differences(X / X.std(axis=0), pairs)  # The optimum does not depend on units.
    p = X.shape[1]
    if diagonal:
        a = cp.Variable(p, nonneg=True)
        squared, bounded = far**2 @ a, (near**2).mean(axis=0) @ a
    else:
        M = cp.Variable((p, p), PSD=True)
        squared = cp.sum(cp.multiply(far @ M, far), axis=1)
        bounded = cp.trace(near.T @ near / len(near) @ M)
    program = cp.Problem(cp.Maximize(cp.sum(cp.sqrt(squared)) / len(far)), [bounded <= 1])
    program.solve(solver="CLARABEL", **TIGHT)
    assert program.status == "optimal"
    return program.value


def brute(M, X, pairs):
    """Return the mean square of similar pairs, and mean length and square of dissimilar ones."""
    near, far = differences(X, pairs)
    squares = np.array([d @ M @ d for d in far])
    return np.mean([d @ M @ d for d in near]), np.sqrt(squares).mean(), squares.mean()


# The program


@pytest.mark.parametrize("scales", [np.ones(4), SCALES], ids=["plain", "scaled"])
@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_of_the_conic_program(seed, scales):
    X, pairs = problem(seed)
    X = X * scales
    mmc = MMC().fit(X, supervision=pairs)
    optimum = conic_optimum(X, pairs)
    assert mmc.objective_ == pytest.approx(optimum, rel=1e-4)
    assert optimum * (1 - 1e-6) <= mmc.dual_bound_ <= 1.01 * optimum
    assert 0 <= mmc.duality_gap_ < 1e-4
    near, far, _ = brute(mmc.get_mahalanobis_matrix(), X, pairs)
    assert near == pytest.approx(1) and far == pytest.approx(mmc.objective_)


@pytest.mark.parametrize("scales", [np.ones(4), SCALES], ids=["plain", "scaled"])
@pytest.mark.parametrize("seed", range(5))
def test_the_diagonal_optimum(seed, scales):
    X, pairs = problem(seed)
    X = X * scales
    mmc = MMC(structure="diagonal").fit(X, supervision=pairs)
    optimum = conic_optimum(X, pairs, diagonal=True)
    assert mmc.objective_ == pytest.approx(optimum, rel=1e-4)
    assert optimum * (1 - 1e-6) <= mmc.dual_bound_ <= 1.01 * optimum
    M = mmc.get_mahalanobis_matrix()
    np.testing.assert_array_equal(M, np.diag(np.diag(M)))
    assert brute(M, X, pairs)[:2] == pytest.approx((1, mmc.objective_))


def test_the_diagonal_of_the_logarithmic_form():
    # The minimum of s·a − log Σ √(d²·a) has s·a = 1/2, and twice it is the diagonal.
    X, pairs = problem(1)
    near, far = differences(X, pairs)
    s, squares = (near**2).sum(axis=0), far**2

    def h(b):
        a = b / s
        r = np.sqrt(np.maximum(squares @ a, 1e-24))
        return b.sum() - np.log(r.sum()), 1 - (squares / (2 * r[:, None])).sum(0) / r.sum() / s

    found = optimize.minimize(
        h, np.full(4, 0.1), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 4, tol=1e-14
    )
    assert found.x.sum() == pytest.approx(0.5, rel=1e-6)
    M = MMC(structure="diagonal", tol=1e-10).fit(X, supervision=pairs).get_mahalanobis_matrix()
    np.testing.assert_allclose(np.diag(M) / len(near), 2 * found.x / s, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_of_squares(seed):
    # The program printed in the survey, min <A, M_S> with <A, M_D> >= 1, has rank one.
    X, pairs = problem(seed)
    near, far = differences(X, pairs)
    values, vectors = linalg.eigh(near.T @ near, far.T @ far)
    mmc = MMC("squared").fit(X, supervision=pairs)
    assert mmc.components_.shape == (1, 4) and mmc.n_iter_ == 0
    assert mmc.objective_ == mmc.dual_bound_ and mmc.duality_gap_ == 0
    assert mmc.objective_ == pytest.approx(len(near) / len(far) / values[0])
    v = vectors[:, :1]
    M = mmc.get_mahalanobis_matrix()
    np.testing.assert_allclose(M / np.trace(M), v @ v.T / (v.T @ v), atol=1e-10)
    one = MMC("squared", structure="diagonal").fit(X, supervision=pairs)
    ratios = (far**2).mean(axis=0) / (near**2).mean(axis=0)
    assert one.objective_ == pytest.approx(ratios.max())
    assert np.flatnonzero(np.diag(one.components_)).tolist() == [np.argmax(ratios)]


def corners():
    """Return classes at the corners of a tetrahedron, which a line cannot separate as well."""
    places = 2 * np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    y = np.repeat([0, 1, 2, 3], 12)
    X = places[y] + np.random.default_rng(0).normal(size=(48, 3)) * 0.5
    return X, Pairs.from_labels(y, n_similar=60, n_dissimilar=80, random_state=0)


def test_with_squares_as_printed_it_is_another_metric():
    X, pairs = corners()
    squared, plain = (MMC(v).fit(X, supervision=pairs) for v in ("squared", "distance"))
    assert np.linalg.matrix_rank(plain.components_, tol=1e-2) > 1
    assert brute(squared.get_mahalanobis_matrix(), X, pairs)[1] < 0.95 * plain.objective_
    assert brute(plain.get_mahalanobis_matrix(), X, pairs)[2] < 0.95 * squared.objective_


def test_a_singular_metric_is_a_pseudo_metric():
    # The survey says that A ⪰ 0 makes distances negative; they are non-negative.
    X, pairs = problem(0)
    mmc = MMC("squared").fit(X, supervision=pairs)
    off = linalg.null_space(mmc.components_)[:, 0]
    metric = mmc.get_metric()
    assert metric(X[0], X[0] + off) == pytest.approx(0, abs=1e-9)
    D = np.array([[metric(a, b) for b in X[:12]] for a in X[:12]])
    assert D.min() >= 0
    assert (D[:, :, None] + D[None] - D[:, None, :].transpose(0, 2, 1) >= -1e-9).all()


def test_the_six_points_of_the_specification():
    n_s, n_d = 6, 9
    full = MMC().fit(T6, supervision=T6_PAIRS)
    # The survey uses sums with <A, M_S> <= 1; MMC uses means.
    assert full.objective_ * n_d / np.sqrt(n_s) == pytest.approx(10.7735308, abs=1e-6)
    np.testing.assert_allclose(
        full.get_mahalanobis_matrix() / n_s,
        [[0.2493085, 0.0239720], [0.0239720, 0.0023050]],
        atol=1e-6,
    )
    one = MMC(structure="diagonal").fit(T6, supervision=T6_PAIRS)
    assert one.objective_ * n_d / np.sqrt(n_s) == pytest.approx(10.5, abs=1e-6)
    np.testing.assert_allclose(np.diag(one.get_mahalanobis_matrix()) / n_s, [0.25, 0], atol=1e-6)
    squared = MMC("squared").fit(T6, supervision=T6_PAIRS)
    least = n_s / (n_d * squared.objective_)
    assert least == pytest.approx(0.0719603, abs=1e-7)
    np.testing.assert_allclose(
        squared.get_mahalanobis_matrix() / n_s * least,  # <A, M_D> = 1
        [[0.01794031, 0.00172503], [0.00172503, 0.00016587]],
        atol=1e-6,
    )


def test_a_linear_change_of_features_changes_nothing():
    X, pairs = problem(2)
    T = np.random.default_rng(0).normal(size=(4, 4))
    plain = MMC(tol=1e-10).fit(X, supervision=pairs)
    changed = MMC(tol=1e-10).fit(X @ T, supervision=pairs)
    assert changed.objective_ == pytest.approx(plain.objective_, rel=1e-8)
    inverse = np.linalg.inv(T)
    wanted = inverse @ plain.get_mahalanobis_matrix() @ inverse.T
    np.testing.assert_allclose(changed.get_mahalanobis_matrix(), wanted, rtol=1e-2, atol=1e-4)


# The descent


@pytest.mark.parametrize("init", ["identity", "pca", "lda", "within", "random", "array"])
@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_every_start_comes_to_the_same_end(init, structure):
    X, pairs = problem(3)
    wanted = MMC(structure=structure).fit(X, supervision=pairs).objective_
    start = np.diag([1.0, 2, 3, 4]) if init == "array" else init
    found = MMC(structure=structure, init=start).fit(X, supervision=pairs)
    assert found.objective_ == pytest.approx(wanted, rel=1e-4)


def test_a_start_that_has_lost_rank_is_left(monkeypatch):
    X, pairs = corners()
    line = np.zeros((3, 3))
    line[0] = [1.0, 0.5, 0]  # The gradient is zero in the other rows.
    best = MMC().fit(X, supervision=pairs)
    assert MMC(init=line).fit(X, supervision=pairs).objective_ == pytest.approx(
        best.objective_, rel=1e-4
    )
    monkeypatch.setattr(mmc_file, "escape", lambda *_, **__: None)
    trapped = MMC(init=line).fit(X, supervision=pairs)
    assert trapped.objective_ < 0.99 * best.objective_ and trapped.duality_gap_ > 0.01


def test_the_bound_holds_far_from_the_optimum():
    X, pairs = problem(4)
    optimum = conic_optimum(X, pairs)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        early = MMC(init="random", max_iter=1).fit(X, supervision=pairs)
    assert early.objective_ < optimum < early.dual_bound_
    assert early.duality_gap_ == pytest.approx(1 - early.objective_ / early.dual_bound_)


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_gradient(diagonal):
    X, pairs = problem(0)
    rng = np.random.default_rng(0)
    inner = mmc_file._MeanDistance(mmc_file.PairDifferences(X, pairs.dissimilar), diagonal=diagonal)
    L = rng.normal(size=4 if diagonal else (3, 4))
    error = optimize.check_grad(
        lambda flat: inner.evaluate_negative(flat.reshape(L.shape))[0],
        lambda flat: inner.evaluate_negative(flat.reshape(L.shape))[1].ravel(),
        L.ravel(),
    )
    assert error < 1e-6


def test_the_algorithm_of_the_works():
    X, pairs = problem(0)
    optimum = conic_optimum(X, pairs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # This solver converges slowly.
        slow = MMC(solver="projected_gradient", max_iter=150).fit(X, supervision=pairs)
    assert slow.objective_ == pytest.approx(optimum, rel=1e-3)
    assert slow.objective_ <= optimum * (1 + 1e-6) <= slow.dual_bound_ * (1 + 2e-6)
    assert (np.diff(slow.history_["objective"]) >= 0).all()
    assert brute(slow.get_mahalanobis_matrix(), X, pairs)[0] == pytest.approx(1, rel=1e-3)
    with pytest.raises(ValueError, match='does not support structure="diagonal"'):
        MMC(solver="projected_gradient", structure="diagonal").fit(X, supervision=pairs)
    with pytest.warns(ConvergenceWarning):
        MMC(solver="projected_gradient", max_iter=3).fit(X, supervision=pairs)


def test_the_objective_rises_and_is_told():
    X, pairs = problem(0)
    heard = []
    mmc = MMC(init="identity")
    mmc.callback = lambda _, state: heard.append(state["objective"])
    mmc.fit(X, supervision=pairs)
    assert heard == mmc.history_["objective"] and (np.diff(heard) >= 0).all()
    assert heard[-1] == pytest.approx(mmc.objective_)


@pytest.mark.parametrize("load", [load_wine, load_digits])
def test_labels_are_enough_and_the_gap_is_small(load):
    X, y = load(return_X_y=True)
    mmc = MMC().fit(X, y)
    assert mmc.duality_gap_ < 1e-4
    again = MMC(n_similar=500, n_dissimilar=700, random_state=1)
    same = Pairs.from_labels(y, n_similar=500, n_dissimilar=700, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some pixels are constant within a class.
        again.fit(X, y)
        np.testing.assert_array_equal(again.components_, MMC().fit(X, supervision=same).components_)


# Unbounded programs


def test_directions_that_similar_pairs_leave_empty():
    X, pairs = problem(0)
    X = np.column_stack([X, np.zeros(len(X))])
    rows = np.unique(pairs.similar)
    X[np.setdiff1d(np.arange(len(X)), rows), 4] = 1.0  # Differs in dissimilar pairs only.
    assert len(rows) < len(X)
    with pytest.warns(UserWarning, match="differ in only 4 directions"):
        mmc = MMC().fit(X, supervision=pairs)
    assert np.isfinite(mmc.components_).all() and mmc.duality_gap_ < 1e-4
    with pytest.warns(UserWarning, match="differ in only 4 directions"):
        MMC("squared", structure="diagonal").fit(X, supervision=pairs)


def test_what_is_off_the_data_has_no_length():
    X, pairs = problem(0)
    wide = X @ np.random.default_rng(1).normal(size=(4, 9))
    mmc = MMC().fit(wide, supervision=pairs)
    off = linalg.null_space(wide - wide.mean(axis=0))
    np.testing.assert_allclose(mmc.components_ @ off, 0, atol=1e-8)
    assert mmc.components_.shape == (4, 9)
    plain = MMC().fit(X, supervision=pairs)
    assert mmc.objective_ == pytest.approx(plain.objective_, rel=1e-6)


# KernelMMC


def test_with_a_linear_kernel_it_is_mmc():
    X, pairs = problem(1)
    linear = MMC(tol=1e-9).fit(X, supervision=pairs)
    kernel = KernelMMC("linear", n_directions=None, estimator=MMC(tol=1e-9))
    kernel.fit(X, supervision=pairs)
    assert kernel.n_directions_ == 4
    assert kernel.objective_ == pytest.approx(linear.objective_, rel=1e-8)
    Z = kernel.transform(X)
    distances = np.linalg.norm(Z[:20] - Z[20:40], axis=1)
    wanted = linear.pair_distance(np.stack([X[:20], X[20:40]], axis=1))
    np.testing.assert_allclose(distances, wanted, rtol=1e-3)
    assert kernel.dual_bound_ == kernel.estimator_.dual_bound_ and kernel.duality_gap_ < 1e-4
    closed = KernelMMC("linear", n_directions=None, estimator=MMC("squared"))
    Z = closed.fit(X, supervision=pairs).transform(X)
    wanted = MMC("squared").fit(X, supervision=pairs)
    np.testing.assert_allclose(
        np.abs(Z[:20] - Z[20:40]).ravel(),
        wanted.pair_distance(np.stack([X[:20], X[20:40]], axis=1)),
        rtol=1e-8,
    )


def test_a_kernel_given_as_a_matrix():
    X, pairs = problem(1)
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 10)
    given = KernelMMC("precomputed").fit(K, supervision=pairs)
    made = KernelMMC("rbf", gamma=0.1).fit(X, supervision=pairs)
    assert given.objective_ == pytest.approx(made.objective_, rel=1e-6)


def test_the_estimator_must_be_one():
    X, pairs = problem(1)
    with pytest.raises(TypeError, match="must be of class MMC; got KernelMMC"):
        KernelMMC(estimator=KernelMMC()).fit(X, supervision=pairs)


def test_interruption_leaves_a_map_in_the_space_of_a_kernel():
    X, pairs = problem(1)
    kernel = KernelMMC("linear")

    def stop(iteration, _):
        if iteration == 2:
            raise KeyboardInterrupt

    kernel.callback = stop
    with pytest.raises(KeyboardInterrupt):
        kernel.fit(X, supervision=pairs)
    assert np.isfinite(kernel.transform(X)).all() and kernel.estimator_.n_iter_ == 2
