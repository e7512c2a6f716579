"""LMNN compared with closed forms, brute force, finite differences and a conic solver."""

import tracemalloc
import warnings

import numpy as np
import pytest
from conic import solved
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score

from nearfar import LMNN, KNNClassifier
from nearfar.large_margin.impostors import find_impostors, find_target_neighbors
from nearfar.large_margin.listed_loss import compute_listed_loss
from nearfar.large_margin.pair_lists import PairList
from nearfar.large_margin.problem import LargeMargin, Progress
from nearfar.large_margin.triplet_loss import compute_full_loss

# A toy dataset with known results.
TOY = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], dtype=float)
TOY_Y = np.array([-1, -1, -1, 1, 1, 1])


def published(*args, **options):
    """Return an LMNN as in the thesis: all impostors, one pass, no early stopping."""
    of_the_work = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
    return LMNN(*args, **of_the_work | options)


def brute_loss(M, X, y, targets, mu=0.5, margin=1.0):
    """Return the loss by its definition, triplet by triplet."""

    def distance(a, b):
        return (X[a] - X[b]) @ M @ (X[a] - X[b])

    loss = 0.0
    for i, row in enumerate(targets):
        for j in row[row >= 0]:
            loss += (1 - mu) * distance(i, j)
            for k in np.flatnonzero(y != y[i]):
                loss += mu * max(0.0, margin + distance(i, j) - distance(i, k))
    return loss


def problem(seed, n=36, p=4, scales=(1, 1, 1, 1)):
    rng = np.random.default_rng(seed)
    X, y = make_blobs(n, p, centers=3, cluster_std=2.5, random_state=seed, center_box=(-3, 3))
    return (X @ rng.normal(size=(p, p))) * scales, y


def random_psd(rng, p):
    A = rng.normal(size=(p, p))
    return A.T @ A


def all_pairs(y):
    n = len(y)
    centers, others = np.nonzero(y[:, None] != y)
    return PairList(
        np.concatenate([[0], np.cumsum(np.bincount(centers, minlength=n))]),
        others.astype(np.int32),
    )


def test_toy_anchors():
    lmnn = published(n_neighbors=1, tol=1e-12).fit(TOY, TOY_Y)
    np.testing.assert_array_equal(lmnn.target_neighbors_.ravel(), [1, 0, 0, 4, 3, 3])
    # With mu = 1/2 the objective is half of pull + push.
    assert brute_loss(np.eye(2), TOY, TOY_Y, lmnn.target_neighbors_) * 2 == pytest.approx(16.0)
    assert lmnn.objective_ * 2 == pytest.approx(3.51866434, rel=1e-6)
    np.testing.assert_allclose(
        lmnn.get_mahalanobis_matrix(),
        [[0.33333333, 0.07175015], [0.07175015, 0.01544425]],
        atol=1e-5,
    )


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("rows", [2, 4])
def test_both_losses_equal_the_definition(mu, rows):
    X, y = problem(0)
    targets = find_target_neighbors(X, y, 3)
    L = 0.3 * np.random.default_rng(1).normal(size=(rows, 4))
    wanted = brute_loss(L.T @ L, X, y, targets, mu)
    assert compute_full_loss(X @ L.T, y, targets, mu).loss == pytest.approx(wanted, rel=1e-12)
    listed = compute_listed_loss(X @ L.T, targets, all_pairs(y), mu)
    assert listed.loss == pytest.approx(wanted, rel=1e-12)
    assert listed.n_active == compute_full_loss(X @ L.T, y, targets, mu).n_active


@pytest.mark.parametrize("rows", [2, 4])
def test_gradient_equals_finite_differences(rows):
    X, y = problem(1, n=24)
    targets = find_target_neighbors(X, y, 3)
    L = 0.3 * np.random.default_rng(2).normal(size=(rows, 4))
    analytic = 2 * compute_full_loss(X @ L.T, y, targets, 0.5).laplacian_v.T @ X
    listed = 2 * compute_listed_loss(X @ L.T, targets, all_pairs(y), 0.5).laplacian_v.T @ X
    numeric = np.empty_like(L)
    for index in np.ndindex(*L.shape):
        step = np.zeros_like(L)
        step[index] = 1e-6
        up, down = (brute_loss((L + s).T @ (L + s), X, y, targets) for s in (step, -step))
        numeric[index] = (up - down) / 2e-6
    np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())
    np.testing.assert_allclose(listed, analytic, rtol=1e-10, atol=1e-10)


def test_loss_is_convex_in_the_matrix_and_not_in_the_map():
    X, y = problem(2, n=24)
    targets = find_target_neighbors(X, y, 2)
    rng = np.random.default_rng(0)

    def loss(M):
        return brute_loss(M, X, y, targets)

    for _ in range(10):
        M, N, t = random_psd(rng, 4), random_psd(rng, 4), rng.uniform()
        assert loss(t * M + (1 - t) * N) <= t * loss(M) + (1 - t) * loss(N) + 1e-9
    # The loss is not convex in L: L and -L give the same metric, and their midpoint is zero.
    L = published(n_neighbors=2).fit(X, y).components_
    assert loss(np.zeros((4, 4))) > 1.01 * loss(L.T @ L)


def test_margin_scales_the_matrix():
    X, y = problem(3, n=24)
    targets = find_target_neighbors(X, y, 2)
    M = random_psd(np.random.default_rng(0), 4)
    assert brute_loss(5 * M, X, y, targets, margin=5) == pytest.approx(
        5 * brute_loss(M, X, y, targets, margin=1)
    )


def sdp_optimum(X, y, targets, mu=0.5):
    cp = pytest.importorskip("cvxpy")
    M = cp.Variable((X.shape[1], X.shape[1]), PSD=True)
    pulls, gaps = 0.0, []
    for i, row in enumerate(targets):
        for j in row[row >= 0]:
            a = np.outer(X[i] - X[j], X[i] - X[j])
            pulls = pulls + a
            gaps += [a - np.outer(X[i] - X[k], X[i] - X[k]) for k in np.flatnonzero(y != y[i])]
    flat = np.stack([g.ravel() for g in gaps])
    hinges = cp.sum(cp.pos(1 + flat @ cp.vec(M, order="C")))
    task = cp.Problem(cp.Minimize((1 - mu) * cp.trace(pulls @ M) + mu * hinges))
    return solved(task)


@pytest.mark.parametrize("seed", range(3))
def test_objective_reaches_the_optimum_of_the_semidefinite_program(seed):
    X, y = problem(seed)
    scaled, _ = problem(seed, scales=(1, 3, 10, 30))
    lmnn = published(tol=1e-10).fit(X, y)
    optimum = sdp_optimum(X, y, lmnn.target_neighbors_)
    assert optimum * (1 - 1e-6) <= lmnn.objective_ <= optimum * (1 + 1e-5)
    assert lmnn.dual_bound_ <= optimum * (1 + 1e-6)
    assert lmnn.duality_gap_ <= 0.03
    # The reported objective is that of the reported map.
    assert lmnn.objective_ == pytest.approx(
        brute_loss(lmnn.get_mahalanobis_matrix(), X, y, lmnn.target_neighbors_), rel=1e-9
    )
    # The step rule of the thesis (section 3.4) stalls on badly scaled columns.
    other = published(tol=1e-10).fit(scaled, y)
    optimum = sdp_optimum(X, y, other.target_neighbors_)
    assert optimum * (1 - 1e-6) <= other.objective_ <= optimum * (1 + 1e-5)
    assert other.dual_bound_ <= optimum * (1 + 1e-6)
    assert other.duality_gap_ <= 0.03
    # The defaults come within 1e-4.
    for rows in (X, scaled):
        quick = published().fit(rows, y)
        assert quick.objective_ <= sdp_optimum(X, y, quick.target_neighbors_) * (1 + 1e-4)
        assert quick.duality_gap_ <= 0.03


def test_a_map_that_lost_rank_escapes_from_its_saddle():
    X, y = problem(4)
    square = published().fit(X, y)
    # The best map of one row, padded with zeros, is stationary in L but not optimal in M.
    thin = published(n_components=1).fit(X, y)
    assert thin.objective_ > 1.01 * square.objective_
    task = LargeMargin(X, y, square.target_neighbors_, 0.5)
    stuck = np.zeros((4, 4))
    stuck[0] = thin.components_[0]
    task.search(stuck)
    best = Progress(stuck)
    assert task._escape(best, 1e-7)
    assert brute_loss(best.L.T @ best.L, X, y, square.target_neighbors_) < thin.objective_
    # No escape direction exists at the optimum.
    task.smoothing = 0.01
    task.search(square.components_)
    assert not task._escape(Progress(square.components_), 1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_rounded_hinges_stay_close_and_have_the_right_slope(smoothing):
    X, y = problem(1)
    targets = find_target_neighbors(X, y, 3)
    L = 0.3 * np.random.default_rng(2).normal(size=(4, 4))
    sharp = compute_full_loss(X @ L.T, y, targets, 0.5)
    round_ = compute_full_loss(X @ L.T, y, targets, 0.5, smoothing)
    listed = compute_listed_loss(X @ L.T, targets, all_pairs(y), 0.5, smoothing)
    assert listed.loss == pytest.approx(round_.loss, rel=1e-12)
    assert 0 <= round_.loss - sharp.loss <= 0.5 * smoothing / 8 * round_.n_active
    direction = np.random.default_rng(3).normal(size=(4, 4))
    losses = [
        compute_full_loss(X @ (L + t * direction).T, y, targets, 0.5, smoothing).loss
        for t in (1e-6, -1e-6)
    ]
    slope = np.sum(2 * round_.laplacian_v.T @ X * direction)
    assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-5)


def test_final_search_leaves_no_impostor_out():
    # This would fail if the objective were summed over a working set that misses active triplets.
    X, y = load_iris(return_X_y=True)
    lmnn = published(tol=1e-5, max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        lmnn.fit(X, y)
    truth = compute_full_loss(lmnn.transform(X), y, lmnn.target_neighbors_, 0.5)
    assert lmnn.objective_ == pytest.approx(truth.loss, rel=1e-9)
    assert lmnn.n_active_ == truth.n_active


def test_dense_blocks_and_lists_of_pairs_give_the_same_optimum(monkeypatch):
    X, y = load_iris(return_X_y=True)
    listed = published(tol=1e-9).fit(X, y)
    original = LargeMargin.__init__

    def crowded(self, *args, **options):
        original(self, *args, **options)
        self.max_pairs = 10

    monkeypatch.setattr(LargeMargin, "__init__", crowded)
    dense = published(tol=1e-9).fit(X, y)
    assert dense.objective_ == pytest.approx(listed.objective_, rel=1e-4)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("offset", [0, 1e6])
def test_impostor_search_equals_brute_force(n_threads, offset):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(150, 6)) + offset
    Z[10] = Z[20]
    y = rng.integers(0, 4, 150)
    reach = rng.uniform(2, 9, 150)
    reach[7] = -np.inf
    found = find_impostors(Z, y, reach, max_pairs=10**6, n_threads=n_threads)
    squared = ((Z[:, None] - Z) ** 2).sum(axis=2)
    wanted = (squared < reach[:, None]) & (y[:, None] != y)
    pairs = np.zeros((150, 150), dtype=bool)
    pairs[found.centers, found.indices] = True
    np.testing.assert_array_equal(pairs, wanted)
    assert wanted.sum() > 100
    assert find_impostors(Z, y, reach, max_pairs=wanted.sum() // 2) is None


def test_targets_are_the_nearest_of_the_class_and_ties_go_to_the_smaller_index():
    X = np.array([[0.0], [1], [-1], [5], [5], [9], [0.1]])
    y = np.array([0, 0, 0, 0, 0, 1, 1])
    targets = find_target_neighbors(X, y, 2)
    np.testing.assert_array_equal(targets[0], [1, 2])
    np.testing.assert_array_equal(targets[3], [4, 1])
    np.testing.assert_array_equal(targets[5], [6, -1])


def test_linear_changes_of_the_features_change_nothing_with_fixed_targets():
    X, y = problem(4)
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))
    plain = published(tol=1e-10).fit(X, y)
    turned = published(tol=1e-10).fit(X @ rotation + 1000, y)
    np.testing.assert_array_equal(plain.target_neighbors_, turned.target_neighbors_)
    assert turned.objective_ == pytest.approx(plain.objective_, rel=1e-4)


def test_push_bounds_the_leave_one_out_errors():
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    for _ in range(5):
        L = rng.normal(size=(4, 4)) * rng.uniform(0.2, 3)
        for k in (1, 3):
            targets = find_target_neighbors(X @ L.T, y, k)
            push = compute_full_loss(X @ L.T, y, targets, 1.0).loss
            errors = len(y) * KNNClassifier(n_neighbors=k).fit(X @ L.T, y).leave_one_out_error()
            nearest = len(y) * KNNClassifier(n_neighbors=1).fit(X @ L.T, y).leave_one_out_error()
            assert errors <= push + 1e-9
            assert nearest <= push / k + 1e-9


def test_half_and_half_square_stretches_the_axis_that_matters():
    # Expected for k=1: square roots of the diagonal of 1.52 ± 0.02 and 2.19 ± 0.13.
    rng = np.random.default_rng(0)
    roots = []
    for _ in range(3):
        X = rng.uniform(0, 10, size=(1000, 2))
        M = published(n_neighbors=1).fit(X, X[:, 1] > 5).get_mahalanobis_matrix()
        roots.append(np.sqrt(np.diag(M)))
    first, second = np.mean(roots, axis=0)
    assert 1.4 < first < 1.65
    assert 1.9 < second < 2.5
    assert second > 1.2 * first


def test_raw_wine_falls_from_thirty_percent_to_below_seven():
    X, y = load_wine(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    plain = 1 - cross_val_score(KNNClassifier(), X, y, cv=folds).mean()
    learned = 1 - cross_val_score(KNNClassifier(published()), X, y, cv=folds).mean()
    assert 0.27 <= plain <= 0.33
    assert learned < 0.07


def test_digits_with_constant_pixels_give_no_nan():
    X, y = load_digits(return_X_y=True)
    assert np.ptp(X[:150], axis=0).min() == 0
    lmnn = published(tol=1e-3).fit(X[:150], y[:150])
    assert np.isfinite(lmnn.components_).all()
    assert np.isfinite(lmnn.transform(X)).all()


def test_rectangular_map_keeps_few_dimensions():
    X, y = load_wine(return_X_y=True)
    with warnings.catch_warnings():
        # A solver that always replaces its list of impostors would cycle here.
        warnings.simplefilter("error", ConvergenceWarning)
        square, thin = published().fit(X, y), published(n_components=2).fit(X, y)
    assert thin.components_.shape == (2, 13)
    assert thin.objective_ >= square.objective_ * (1 - 1e-3)
    assert KNNClassifier(published(n_components=2)).fit(X, y).leave_one_out_error() < 0.05


def test_components_beyond_the_rank_are_zero():
    X, y = problem(5)
    X = np.column_stack([X, X[:, 0]])
    lmnn = published(n_components=5).fit(X, y)
    assert lmnn.components_.shape == (5, 5)
    assert np.linalg.matrix_rank(lmnn.components_) == 4


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("init", ["identity", "pca", "within", "array"])
def test_every_start_reaches_the_same_optimum(init):
    X, y = problem(6)
    best = published(tol=1e-10).fit(X, y).objective_
    if init == "array":
        init = np.random.default_rng(0).normal(size=(4, 4))
    assert published(init=init, tol=1e-10).fit(X, y).objective_ == pytest.approx(best, rel=1e-4)


def test_separated_classes_without_impostors():
    X = np.concatenate([np.arange(8.0), 1e4 + np.arange(8.0)])[:, None] * [1.0, 1.0]
    X = X + np.random.default_rng(0).normal(size=X.shape)
    y = np.repeat([0, 1], 8)
    knn = KNNClassifier(published()).fit(X, y)
    assert np.isfinite(knn.estimator_.components_).all()
    assert knn.leave_one_out_error() == 0


def test_a_singleton_class_has_no_targets_and_pushes_all_the_same():
    X, y = problem(7)
    y = y.copy()
    y[0] = 9
    with pytest.warns(UserWarning, match="Class 9 has 1 points"):
        lmnn = published().fit(X, y)
    assert (lmnn.target_neighbors_[0] == -1).all()
    assert lmnn.objective_ == pytest.approx(
        brute_loss(lmnn.get_mahalanobis_matrix(), X, y, lmnn.target_neighbors_), rel=1e-9
    )


def test_identical_points_of_different_classes_are_harmless():
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 3)), 2, axis=0)
    lmnn = published(n_neighbors=2).fit(X, np.tile([0, 1], 10))
    assert np.isfinite(lmnn.components_).all()
    assert np.isfinite(lmnn.objective_)


def test_all_classes_of_one_point_are_refused():
    with pytest.raises(ValueError, match="only 1 sample"):
        published().fit(np.eye(4), [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 5}, "n_components=5 is more than the 4 features"),
        ({"init": np.eye(3)}, r"init must have shape \(4, 4\); got \(3, 3\)"),
        ({"init": np.full((4, 4), np.nan)}, "init contains NaN"),
        ({"push_weight": 0}, "push_weight must be a number above 0"),
    ],
)
def test_errors_name_the_parameter(parameters, message):
    X, y = problem(0)
    with pytest.raises(ValueError, match=message):
        published(**parameters).fit(X, y)


def test_stopping_early_warns_and_says_so():
    X, y = problem(0)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        lmnn = published(max_iter=2).fit(X, y)
    assert lmnn.n_iter_ == 2


def test_history_has_an_entry_for_each_iteration():
    X, y = problem(0)
    lmnn = published().fit(X, y)
    assert {len(column) for column in lmnn.history_.values()} == {lmnn.n_iter_}
    assert lmnn.history_["objective"][-1] < lmnn.history_["objective"][0]


def test_interrupted_fit_leaves_the_best_state(monkeypatch):
    from nearfar.large_margin import working_set as module

    calls = 0
    original = module.compute_listed_loss

    def interrupted(*args):
        nonlocal calls
        calls += 1
        if calls > 12:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(module, "compute_listed_loss", interrupted)
    X, y = problem(0)
    lmnn = published()
    with pytest.raises(KeyboardInterrupt):
        lmnn.fit(X, y)
    assert lmnn.n_iter_ >= 1
    start = published(max_iter=1)
    monkeypatch.setattr(module, "compute_listed_loss", original)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start.fit(X, y)
    targets = find_target_neighbors(X, y, 3)
    reached, first = (brute_loss(m.get_mahalanobis_matrix(), X, y, targets) for m in (lmnn, start))
    assert reached <= first * (1 + 1e-9)


def test_verbose_prints_progress(capsys):
    X, y = problem(0)
    published(verbose=1).fit(X, y)
    assert "LMNN: iteration" in capsys.readouterr().out


def test_threads_change_no_objective():
    X, y = load_iris(return_X_y=True)
    one, two = published().fit(X, y), published(n_jobs=2).fit(X, y)
    assert two.objective_ == pytest.approx(one.objective_, rel=1e-6)


@pytest.mark.slow
def test_ten_thousand_points_stay_below_a_gigabyte():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 10_000)
    X = rng.normal(size=(10_000, 50)) + rng.normal(size=(10, 50))[y]
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        published(max_iter=25).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e9


def test_the_start_has_the_best_scale_for_its_direction():
    X, y = problem(8)
    targets = find_target_neighbors(X, y, 3)
    rng = np.random.default_rng(0)
    for _ in range(5):
        L = rng.normal(size=(4, 4)) * 10 ** rng.uniform(-3, 3)
        L = LargeMargin(X, y, targets, 0.5).rescale(L)
        best = compute_full_loss(X @ L.T, y, targets, 0.5).loss
        others = [
            compute_full_loss(X @ (t * L).T, y, targets, 0.5).loss for t in (0.5, 0.97, 1.03, 2)
        ]
        assert best <= min(others)


def test_impostors_within_the_rounding_of_float32_are_found():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(400, 60)), rng.integers(0, 2, 400)
    other = np.array([rng.choice(np.flatnonzero(y != label)) for label in y])
    reach = ((Z - Z[other]) ** 2).sum(axis=1) * (1 + 1e-12)
    found = find_impostors(Z, y, reach, max_pairs=10**6)
    pairs = set(zip(found.centers.tolist(), found.indices.tolist(), strict=True))
    assert all((i, j) in pairs for i, j in enumerate(other.tolist()))


def test_the_scale_of_the_start_plays_no_part():
    X, y = problem(9)
    first = [
        published(init=scale * np.eye(4)).fit(X, y).history_["objective"][0]
        for scale in (1e-5, 1, 1e5)
    ]
    np.testing.assert_allclose(first, first[1], rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_outlying_row_is_no_obstacle(seed, dtype):
    rng = np.random.RandomState(seed)
    X, y = rng.normal(size=(300, 10)), rng.randint(0, 3, 300)
    X[:, :3] += 3 * np.eye(3)[y]
    X[0] = 3000
    knn = KNNClassifier(published()).fit(X.astype(dtype), y)
    assert knn.leave_one_out_error() < 0.1


def test_a_start_that_maps_everything_to_one_point_is_refused():
    X, y = problem(0)
    with pytest.raises(ValueError, match="init maps all rows of X to one point"):
        published(init=np.zeros((4, 4))).fit(X, y)


@pytest.mark.parametrize("n_components", [23, 25, 29, 40])
@pytest.mark.parametrize("options", [{}, {"validation_fraction": 0.0}])
@pytest.mark.filterwarnings("ignore")
def test_more_components_than_rows_leave_rows_of_zeros(n_components, options):
    X, y = np.random.default_rng(0).normal(size=(30, 40)), np.arange(30) % 2
    lmnn = LMNN(n_components=n_components, max_iter=30, **options).fit(X, y)
    assert lmnn.components_.shape == (n_components, 40)
    assert np.linalg.matrix_rank(lmnn.components_) <= 29


@pytest.mark.parametrize("options", [{}, {"validation_fraction": 0.0}, {"structure": "diagonal"}])
def test_classes_without_impostors_need_one_iteration(options):
    X, y = make_blobs(30, centers=[[0, 0, 0], [1, 1, 1]], cluster_std=0.1, random_state=0)
    lmnn = LMNN(**options).fit(X, y)
    assert {len(column) for column in lmnn.history_.values()} == {lmnn.n_iter_}
    assert lmnn.n_iter_ >= 1
