"""LMNN's options and variants: triplets, targets, reductions, passes, several metrics, kernels."""

import warnings

import numpy as np
import pytest
from conic import solved
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs, make_circles
from sklearn.exceptions import ConvergenceWarning
from test_lmnn import brute_loss, problem, published, random_psd, sdp_optimum

from nearfar import (
    LMNN,
    EnergyClassifier,
    Euclidean,
    KernelLMNN,
    KNNClassifier,
    MultiMetricLMNN,
    MultiPassLMNN,
    Triplets,
)
from nearfar.large_margin import triplet_loss
from nearfar.large_margin.impostors import find_impostors, find_target_neighbors
from nearfar.large_margin.many_metrics import ManyMetrics
from nearfar.large_margin.pair_lists import compute_listed_distances
from nearfar.large_margin.problem import LargeMargin
from nearfar.large_margin.projected_subgradient import WorkingSet
from nearfar.large_margin.triplet_loss import compute_full_loss, multiply_laplacian
from nearfar.large_margin.working_set import compute_map_shrinkage
from nearfar.mahalanobis.lmnn_run import make_initial_map
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import scale_uniformly, whiten_rows

IRIS = load_iris(return_X_y=True)
WINE = load_wine(return_X_y=True)
EXACT = {"tol": 1e-9}


# Targets and triplets


def test_given_targets_are_used_and_kept():
    X, y = problem(0)
    own = find_target_neighbors(X[:, :1], y, 2)  # Chosen by the first column alone.
    lmnn = published(**EXACT).fit(X, y, target_neighbors=own)
    np.testing.assert_array_equal(lmnn.target_neighbors_, own)
    assert lmnn.objective_ == pytest.approx(
        brute_loss(lmnn.get_mahalanobis_matrix(), X, y, own), rel=1e-9
    )
    assert lmnn.objective_ == pytest.approx(sdp_optimum(X, y, own), rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[:-1], r"shape \(36, k\)"),
        (lambda t: t.astype(float), "must be an integer array"),
        (lambda t: np.where(t == t[0, 0], 99, t), "row indices from 0 to 35"),
        (lambda t: np.full_like(t, -1), "at least one target"),
        (lambda t: np.arange(36)[:, None], "target of row 0 is row 0, itself"),
        (lambda t: np.r_[[[35, 34]], t[1:]], "target of row 0 is row 35, of another class"),
    ],
)
def test_targets_that_cannot_be(change, message):
    X, y = problem(0)
    y = np.sort(y)
    with pytest.raises(ValueError, match=message):
        LMNN().fit(X, y, target_neighbors=change(find_target_neighbors(X, y, 2)))


def triplet_brute(M, X, triplets, mu=0.5):
    def distance(a, b):
        return (X[a] - X[b]) @ M @ (X[a] - X[b])

    pull = sum(distance(a, b) for a, b in {(a, b) for a, b, _ in triplets.tolist()})
    push = sum(max(0.0, 1 + distance(a, b) - distance(a, c)) for a, b, c in triplets.tolist())
    return (1 - mu) * pull + mu * push


def test_triplets_are_used_exactly():
    X, y = problem(1)
    triplets = Triplets.from_labels(y, n_triplets=150, random_state=0)
    lmnn = LMNN(**EXACT).fit(X, supervision=triplets)
    M = lmnn.get_mahalanobis_matrix()
    assert lmnn.objective_ == pytest.approx(triplet_brute(M, X, triplets.indices), rel=1e-9)
    cp = pytest.importorskip("cvxpy")
    free = cp.Variable((4, 4), PSD=True)
    a, b, c = triplets.indices.T

    def squares(i, j):
        differences = X[i] - X[j]
        return np.einsum("ij,ik->ijk", differences, differences).reshape(len(i), -1)

    near = np.unique(triplets.indices[:, :2], axis=0)
    flat = cp.vec(free, order="C")
    hinges = cp.sum(cp.pos(1 + (squares(a, b) - squares(a, c)) @ flat))
    pulls = cp.sum(squares(near[:, 0], near[:, 1]) @ flat)
    task = cp.Problem(cp.Minimize(0.5 * pulls + 0.5 * hinges))
    solved(task)
    assert lmnn.objective_ == pytest.approx(task.value, rel=1e-4)
    assert lmnn.dual_bound_ <= task.value * (1 + 1e-6)
    assert lmnn.duality_gap_ < 0.03
    assert not hasattr(lmnn, "target_neighbors_")


def test_all_triplets_of_the_targets_give_the_fit_from_labels():
    X, y = problem(2)
    targets = find_target_neighbors(X, y, 2)
    every = [(i, j, k) for i in range(36) for j in targets[i] for k in np.flatnonzero(y != y[i])]
    by_triplets = published(**EXACT).fit(X, supervision=Triplets(every, n_samples=36))
    by_labels = published(n_neighbors=2, **EXACT).fit(X, y)
    assert by_triplets.objective_ == pytest.approx(by_labels.objective_, rel=1e-5)


def test_triplets_and_what_does_not_go_with_them():
    X, _ = problem(1)
    triplets = Triplets([[0, 1, 2]], n_samples=36)
    with pytest.raises(ValueError, match="no triplets"):
        LMNN().fit(X, supervision=Triplets(np.empty((0, 3), int), n_samples=36))
    with pytest.raises(
        ValueError,
        match="target_neighbors and validation_fraction > 0 cannot be combined with triplets",
    ):
        LMNN(validation_fraction=0.3).fit(X, supervision=triplets)
    with pytest.raises(ValueError, match="supervision must be Triplets; got"):
        LMNN().fit(X, supervision=[[0, 1, 2]])
    with pytest.raises(ValueError, match="36"):
        LMNN().fit(X[:-1], supervision=triplets)


# The solver


def test_the_working_set_gives_the_optimum_over_all_triplets():
    X, y = problem(3)
    found = published(n_neighbors=2, **EXACT).fit(X, y)
    everything = LargeMargin(X, y, found.target_neighbors_, 0.5)
    everything.pairs = None  # Dense blocks evaluate every hinge.
    assert found.objective_ == pytest.approx(everything.evaluate_exactly(found.components_).loss)


def test_a_list_that_is_called_complete_is():
    # This would fail if a bound on distances missed an impostor.
    rng = np.random.default_rng(0)
    X, y = problem(4, n=60)
    targets = find_target_neighbors(X, y, 3)
    said = 0
    for _ in range(100):
        first = rng.normal(size=(4, 4)) * 0.3
        task = LargeMargin(X, y, targets, 0.5)
        task.search(first)
        L = first + rng.normal(size=(4, 4)) * 10 ** rng.uniform(-4, -1)
        if task.is_complete(L):
            said += 1
            before = task.evaluate_exactly(L).loss
            task.search(L)
            assert task.evaluate_exactly(L).loss == pytest.approx(before, rel=1e-12)
    assert 10 < said < 100


def test_shrinkage_bounds_every_direction():
    rng = np.random.default_rng(0)
    before, now = rng.normal(size=(2, 5, 5))
    alpha = compute_map_shrinkage(before, now)
    directions = rng.normal(size=(10_000, 5))
    ratios = ((directions @ now.T) ** 2).sum(1) / ((directions @ before.T) ** 2).sum(1)
    assert 0 < alpha <= ratios.min() <= 3 * alpha + 1
    assert compute_map_shrinkage(np.diag([1.0, 0.0]), np.eye(2)) == 0.0
    assert compute_map_shrinkage(np.array([1.0, 2.0]), np.array([0.5, 2.0])) == 0.25


def test_a_sample_of_centres_comes_first_and_all_at_the_end():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 4500)
    X = rng.normal(size=(4500, 5)) + 2 * np.eye(3, 5)[y]
    lmnn = published().fit(X, y)
    objectives = lmnn.history_["objective"]
    assert objectives[0] < 0.6 * objectives[-1]  # 2,000 of 4,500 points.
    exact = LargeMargin(X, y, lmnn.target_neighbors_, 0.5)
    exact.search(lmnn.components_)
    assert lmnn.objective_ == pytest.approx(exact.evaluate_exactly(lmnn.components_).loss, rel=1e-6)
    assert lmnn.duality_gap_ < 0.03


def test_linear_changes_of_the_data_change_only_the_coordinates():
    # With the same targets M becomes A^-1 M A^-T.
    X, y = problem(5)
    A = np.random.default_rng(0).normal(size=(4, 4))
    plain = published(**EXACT).fit(X, y)
    bent = published(**EXACT).fit(X @ A, y, target_neighbors=plain.target_neighbors_)
    assert bent.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    back = A @ bent.get_mahalanobis_matrix() @ A.T
    np.testing.assert_allclose(back, plain.get_mahalanobis_matrix(), atol=2e-3 * back.max())


def test_impostors_among_some_rows_only():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(120, 3)), rng.integers(0, 3, 120)
    reach = rng.uniform(0.5, 3, 120)
    some = rng.permutation(120)[:50]
    found = find_impostors(Z, y, reach, max_pairs=10**6, among=some)
    near = ((Z[:, None] - Z) ** 2).sum(2) < reach[:, None]
    wanted = near & (y[:, None] != y) & np.isin(np.arange(120), some)
    pairs = np.zeros((120, 120), bool)
    pairs[found.centers, found.indices] = True
    np.testing.assert_array_equal(pairs, wanted)


def test_warm_start_goes_on():
    X, y = WINE
    lmnn = published(warm_start=True).fit(X, y)
    first, n_iter = lmnn.objective_, lmnn.n_iter_
    lmnn.fit(X, y)
    assert lmnn.n_iter_ < n_iter
    assert lmnn.objective_ <= first * (1 + 1e-4)
    cold = published().fit(X, y)
    assert cold.n_iter_ == clone(cold).fit(X, y).n_iter_


def test_warm_start_of_another_shape_starts_anew():
    X, y = IRIS
    lmnn = published(warm_start=True).fit(X, y)
    lmnn.set_params(n_components=2).fit(X, y)
    assert lmnn.components_.shape == (2, 4)


# Early stopping


def test_early_stopping_keeps_the_map_with_the_fewest_errors():
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    lmnn = published(validation_fraction=0.3, patience=1, refit=False).fit(X, y)
    watched = lmnn.validation_errors_
    assert len(watched) >= 2
    trained = (lmnn.target_neighbors_ >= 0).any(axis=1)
    assert trained.sum() == 280
    knn = KNNClassifier().fit(lmnn.transform(X[trained]), y[trained])
    error = 1 - knn.score(lmnn.transform(X[~trained]), y[~trained])
    assert error == pytest.approx(min(watched))
    # The targets of training rows are training rows.
    targets = lmnn.target_neighbors_[trained]
    assert trained[targets[targets >= 0]].all()
    assert published().fit(*IRIS).validation_errors_ == []


def test_refit_trains_on_all_rows():
    X, y = IRIS
    lmnn = LMNN(validation_fraction=0.3, refit=True, random_state=0).fit(X, y)
    assert (lmnn.target_neighbors_ >= 0).all()
    assert lmnn.validation_errors_
    assert lmnn.n_iter_ <= 10 * len(lmnn.validation_errors_)


@pytest.mark.parametrize("fraction", [0.001, 0.9])
def test_too_little_to_watch_or_to_train(fraction):
    X, y = problem(0)
    rows = np.arange(6) if fraction == 0.9 else np.arange(36)
    with pytest.raises(ValueError, match="validation_fraction"):
        LMNN(validation_fraction=fraction, random_state=0).fit(X[rows], y[rows])


# Reductions and structure


def test_reductions_cut_a_square_map():
    X, y = WINE
    square = published().fit(X, y)
    A = square.components_
    Z = square.transform(X)
    _, _, axes = np.linalg.svd(Z - Z.mean(0), full_matrices=False)
    pca = published(n_components=3, reduction="pca").fit(X, y)
    cut = (axes[:3] @ A).T @ (axes[:3] @ A)
    np.testing.assert_allclose(pca.get_mahalanobis_matrix(), cut, atol=1e-8 * cut.max())
    _, singular, directions = np.linalg.svd(A)
    truncated = published(n_components=3, reduction="truncate").fit(X, y)
    cut = (directions[:3].T * singular[:3] ** 2) @ directions[:3]
    np.testing.assert_allclose(truncated.get_mahalanobis_matrix(), cut, atol=1e-8 * cut.max())
    learned = published(n_components=3).fit(X, y)
    assert square.objective_ <= learned.objective_ * (1 + 1e-6)
    assert learned.objective_ < min(pca.objective_, truncated.objective_)
    # The bound of the square problem is valid for every reduction.
    for lmnn in (learned, pca, truncated):
        assert lmnn.dual_bound_ <= square.objective_ * (1 + 1e-6)


def test_a_diagonal_map_is_the_best_of_its_kind():
    X, y = problem(6)
    lmnn = published(structure="diagonal", **EXACT).fit(X, y)
    M = lmnn.get_mahalanobis_matrix()
    np.testing.assert_array_equal(M, np.diag(np.diag(M)))
    cp = pytest.importorskip("cvxpy")
    free = cp.Variable(4, nonneg=True)
    pulls, gaps = np.zeros(4), []
    for i, row in enumerate(lmnn.target_neighbors_):
        for j in row:
            near = (X[i] - X[j]) ** 2
            pulls += near
            gaps += [near - (X[i] - X[k]) ** 2 for k in np.flatnonzero(y != y[i])]
    hinges = cp.sum(cp.pos(1 + np.stack(gaps) @ free))
    task = cp.Problem(cp.Minimize(0.5 * pulls @ free + 0.5 * hinges))
    solved(task)
    assert lmnn.objective_ == pytest.approx(task.value, rel=1e-4)
    assert lmnn.dual_bound_ <= task.value * (1 + 1e-6) and lmnn.duality_gap_ < 0.03


def test_a_diagonal_map_drops_what_is_constant():
    X, y = problem(6)
    X = np.column_stack([X, np.full(36, 7.0)])
    lmnn = LMNN(structure="diagonal").fit(X, y)
    assert lmnn.components_.shape == (5, 5) and lmnn.components_[4, 4] == 0
    with pytest.raises(ValueError, match="Omit n_components"):
        LMNN(structure="diagonal", n_components=2).fit(X, y)


# The thesis' solver


def test_the_projected_subgradient_comes_close_on_a_tame_problem():
    X, y = problem(0)
    X = X / X.std(axis=0)
    old = LMNN(solver="projected_subgradient", max_iter=3000, tol=1e-7).fit(X, y)
    optimum = sdp_optimum(X, y, old.target_neighbors_)
    assert optimum * (1 - 1e-6) <= old.objective_ <= 1.01 * optimum
    assert old.objective_ == pytest.approx(
        brute_loss(old.get_mahalanobis_matrix(), X, y, old.target_neighbors_), rel=1e-9
    )


@pytest.mark.slow
def test_it_stalls_on_scaled_columns_and_the_bound_shows_it():
    X, y = problem(0, scales=(1, 3, 10, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        old = published(solver="projected_subgradient", max_iter=2000).fit(X, y)
    ours = published().fit(X, y)
    assert old.objective_ > 1.02 * ours.objective_
    assert old.duality_gap_ > 0.02 > ours.duality_gap_


def test_the_updated_gradient_is_that_from_scratch():
    # Checked along a sequence of steps.
    X, y = problem(1)
    targets = find_target_neighbors(X, y, 3)
    task = WorkingSet(X, y, targets, 0.5)
    rng = np.random.default_rng(0)
    M = random_psd(rng, 4)
    task.search(M)
    _, active = task.evaluate(M)
    G = task.compute_gradient(active)
    for _ in range(30):
        M = M + 0.1 * random_psd(rng, 4)
        task.search(M)
        _, now = task.evaluate(M)
        G, active = G + task.compute_gradient_change(active, now), now
        np.testing.assert_allclose(
            G, task.compute_gradient(now), rtol=1e-9, atol=1e-9 * np.abs(G).max()
        )


@pytest.mark.parametrize(
    "options", [{"structure": "diagonal"}, {"n_components": 2}, {"supervision": True}]
)
def test_what_the_projected_subgradient_does_not_do(options):
    X, y = problem(0)
    guide = {}
    if options.pop("supervision", None):
        guide["supervision"] = Triplets([[0, 1, 2]], n_samples=36)
    with pytest.raises(ValueError, match="does not support"):
        LMNN(solver="projected_subgradient", **options).fit(X, y, **guide)


# Several passes


def test_one_pass_is_lmnn_to_the_bit():
    X, y = WINE
    one, lmnn = MultiPassLMNN(n_passes=1).fit(X, y), published().fit(X, y)
    np.testing.assert_array_equal(one.components_, lmnn.components_)
    np.testing.assert_array_equal(one.transform(X), lmnn.transform(X))


def test_a_second_pass_takes_targets_of_the_first_metric():
    X, y = WINE
    two = MultiPassLMNN(n_passes=2).fit(X, y)
    first = published().fit(X, y)
    Z = first.transform(X)
    np.testing.assert_array_equal(two.target_neighbors_, find_target_neighbors(Z, y, 3))
    assert (two.target_neighbors_ != first.target_neighbors_).any()
    second = published().fit(Z, y)
    np.testing.assert_allclose(two.components_, second.components_ @ first.components_)


@pytest.mark.slow
def test_validation_chooses_the_passes():
    X, y = WINE
    lmnn = MultiPassLMNN(max_passes=3).fit(X, y)
    errors = lmnn.validation_errors_
    assert 0 not in errors[1:-1]
    assert len(errors) == 4 or errors[-1] == 0  # Before the first pass and after each pass.
    assert lmnn.n_passes_ == 1 + int(np.argmin(errors[1:]))
    assert lmnn.passes_[0].target_neighbors_.shape[0] == len(X)
    # The held-out rows are the same every time.
    assert MultiPassLMNN(max_passes=3).fit(X, y).validation_errors_ == errors
    with pytest.raises(TypeError, match="must be an LMNN"):
        MultiPassLMNN(Euclidean()).fit(X, y)


def test_the_energy_rule_goes_around_several_passes():
    X, y = WINE
    rule = EnergyClassifier(MultiPassLMNN(LMNN(n_neighbors=2, push_weight=0.3), n_passes=2))
    rule.fit(X[::2], y[::2])
    assert (rule.n_neighbors_, rule.push_weight_) == (2, 0.3)
    assert rule.score(X[1::2], y[1::2]) > 0.9


# Several metrics


def many_brute(L, X, y, cells, targets, mu=0.5):
    """Return the loss by its definition, with the metric of the second point."""

    def distance(i, j):
        difference = L[cells[j]] @ (X[i] - X[j])
        return difference @ difference

    loss = 0.0
    for i, row in enumerate(targets):
        for j in row[row >= 0]:
            loss += (1 - mu) * distance(i, j)
            for k in np.flatnonzero(y != y[i]):
                loss += mu * max(0.0, 1 + distance(i, j) - distance(i, k))
    return loss


def many(seed=0, n=36):
    X, y = problem(seed, n=n)
    targets = find_target_neighbors(X, y, 2)
    return X, y, targets, ManyMetrics(X, y, targets, y, 0.5)


def test_many_metrics_follow_the_definition_and_finite_differences():
    X, y, targets, task = many()
    L = 0.3 * np.random.default_rng(0).normal(size=(3, 4, 4))
    task.search(L)
    found = task.evaluate(L, 0.0)
    assert found.loss == pytest.approx(many_brute(L, X, y, y, targets), rel=1e-10)
    numeric = np.empty_like(L)
    for index in np.ndindex(*L.shape):
        step = np.zeros_like(L)
        step[index] = 1e-6
        up, down = (many_brute(L + s, X, y, y, targets) for s in (step, -step))
        numeric[index] = (up - down) / 2e-6
    np.testing.assert_allclose(
        task.compute_gradient(found.laplacian_v), numeric, atol=1e-6 * np.abs(numeric).max()
    )
    # Using the metric of the first point gives a different loss.
    wrong = many_brute(L[[1, 2, 0]], X, y, y, targets)
    assert abs(found.loss - wrong) > 1e-3 * wrong


def test_equal_metrics_give_the_single_loss():
    X, y, targets, task = many(1)
    L = 0.3 * np.random.default_rng(1).normal(size=(4, 4))
    same = np.repeat(L[None], 3, axis=0)
    task.search(same)
    assert task.evaluate(same, 0.0).loss == pytest.approx(
        brute_loss(L.T @ L, X, y, targets), rel=1e-12
    )


def test_one_cell_is_lmnn():
    X, y = IRIS
    settings = published(tol=1e-8)
    one = MultiMetricLMNN(settings, partition=np.zeros(150, int), validation_fraction=0).fit(X, y)
    lmnn = clone(settings).fit(X, y)
    assert one.objective_ == pytest.approx(lmnn.objective_, rel=1e-5)
    np.testing.assert_array_equal(one.predict(X), KNNClassifier(settings).fit(X, y).predict(X))


def test_many_metrics_reach_the_optimum_of_the_semidefinite_program():
    cp = pytest.importorskip("cvxpy")
    X, y = problem(2)
    found = MultiMetricLMNN(published(n_neighbors=2, tol=1e-9), validation_fraction=0).fit(X, y)
    targets = find_target_neighbors(X, y, 2)
    metrics = [cp.Variable((4, 4), PSD=True) for _ in range(3)]
    flat = cp.hstack([cp.vec(M, order="C") for M in metrics])

    def row(i, j):
        out = np.zeros((3, 16))
        out[y[j]] = np.outer(X[i] - X[j], X[i] - X[j]).ravel()
        return out.ravel()

    near = [(i, j) for i in range(36) for j in targets[i]]
    pulls = sum(row(i, j) for i, j in near)
    gaps = [row(i, j) - row(i, k) for i, j in near for k in np.flatnonzero(y != y[i])]
    hinges = cp.sum(cp.pos(1 + np.stack(gaps) @ flat))
    task = cp.Problem(cp.Minimize(0.5 * pulls @ flat + 0.5 * hinges))
    solved(task)
    assert task.value * (1 - 1e-6) <= found.objective_ <= task.value * (1 + 1e-3)
    assert found.dual_bound_ <= task.value * (1 + 1e-6)
    assert found.duality_gap_ < 0.03
    single = published(n_neighbors=2).fit(X, y)
    assert found.objective_ < single.objective_


def test_neighbours_are_measured_by_the_metric_of_the_training_point():
    X, y = WINE
    found = MultiMetricLMNN(LMNN(tol=1e-2), validation_fraction=0).fit(X[::2], y[::2])
    distances, nearest = found.kneighbors(X[1::2], n_neighbors=4)
    rows, queries = X[::2], X[1::2]
    full = np.empty((len(queries), len(rows)))
    for j, row in enumerate(rows):
        L = found.components_[found.regions_[j]]
        full[:, j] = np.linalg.norm((queries - row) @ L.T, axis=1)
    np.testing.assert_array_equal(nearest, np.argsort(full, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(distances, np.sort(full, axis=1)[:, :4], rtol=1e-6)


def test_leave_one_out_leaves_itself_out():
    X, y = problem(3)
    found = MultiMetricLMNN(LMNN(n_neighbors=1, tol=1e-2), validation_fraction=0).fit(X, y)
    wrong = 0
    for i in range(36):
        full = [np.linalg.norm(found.components_[y[j]] @ (X[i] - X[j])) for j in range(36)]
        full[i] = np.inf
        wrong += y[int(np.argmin(full))] != y[i]
    assert found.leave_one_out_error() == pytest.approx(wrong / 36)


@pytest.mark.parametrize("cells", ["labels", "kmeans"])
def test_energies_are_differences_of_the_loss(cells):
    X, y = problem(4)
    old, new = np.arange(30), np.arange(30, 36)
    options = {"partition": cells, "n_regions": 2, "random_state": 0, "validation_fraction": 0}
    found = MultiMetricLMNN(LMNN(n_neighbors=2), rule="energy", **options).fit(X[old], y[old])
    L, targets = found.components_, find_target_neighbors(X[old], y[old], 2)
    before = many_brute(L, X[old], y[old], found.regions_, targets)
    energies = found.energies(X[new])
    for t, point in enumerate(X[new]):
        for c in range(3):
            if cells == "labels":
                cell = c
            else:
                cell = int(np.argmin(((found._centroids - point) ** 2).sum(1)))
            near = [
                np.sum((L[found.regions_[j]] @ (point - X[j])) ** 2) if y[j] == c else np.inf
                for j in old
            ]
            own = np.argsort(near, kind="stable")[:2]
            after = many_brute(
                L,
                np.vstack([X[old], point]),
                np.r_[y[old], c],
                np.r_[found.regions_, cell],
                np.vstack([targets, own]),
            )
            assert energies[t, c] == pytest.approx(after - before, rel=1e-8)
    np.testing.assert_array_equal(found.predict(X[new]), energies.argmin(axis=1))


def test_cells_of_k_means_lower_the_loss_on_circles():
    # The 100%, 21% and 0% of the thesis could not be reproduced, but the loss decreases.
    X, y = make_circles(60, factor=0.95, random_state=0)
    X = 10 * X
    losses = [
        MultiMetricLMNN(
            LMNN(n_neighbors=1),
            partition="kmeans",
            n_regions=n,
            validation_fraction=0,
            random_state=0,
        )
        .fit(X, y)
        .objective_
        for n in (1, 2, 6)
    ]
    assert losses[1] <= losses[0] * (1 + 1e-4)
    assert losses[2] < 0.99 * losses[0]


def test_held_out_rows_stop_it_in_time():
    X, y = WINE
    found = MultiMetricLMNN(random_state=0).fit(X, y)
    assert found.validation_errors_
    # All rows vote, including held-out rows.
    assert len(found.regions_) == 178
    assert set(found.kneighbors(X, n_neighbors=178)[1][0]) == set(range(178))
    with pytest.raises(ValueError, match="one non-negative integer for each of the 178 rows"):
        MultiMetricLMNN(partition=[0, 1]).fit(X, y)
    with pytest.raises(ValueError, match="n_neighbors=500"):
        found.kneighbors(X, n_neighbors=500)


@pytest.mark.slow
def test_all_rows_are_fitted_again_for_as_many_iterations():
    X, y = WINE
    shy, again = (MultiMetricLMNN(refit=refit).fit(X, y) for refit in (False, True))
    assert shy.validation_errors_ == again.validation_errors_
    best = 10 * int(np.argmin(shy.validation_errors_))
    assert again.n_iter_ == best > 0
    # The single map is also fitted to all rows.
    np.testing.assert_array_equal(again.estimator_.components_, published().fit(X, y).components_)
    assert len(shy.estimator_.target_neighbors_) == 125


def test_a_single_map_that_stops_early_is_stopped_by_the_same_rows():
    X, y = WINE
    found = MultiMetricLMNN(LMNN(validation_fraction=0.1, random_state=7), refit=False).fit(X, y)
    single = found.estimator_
    assert single.validation_errors_
    held = (single.target_neighbors_ < 0).all(axis=1)
    assert held.sum() == 53  # 30% are held out once.
    # Both use the same held-out rows: the best single map is the start of the others.
    assert found.validation_errors_[0] == min(single.validation_errors_)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("rule", ["knn", "energy"])
@pytest.mark.parametrize("fraction", [0, 0.3])
@pytest.mark.parametrize("alone", [-1, 9])
@pytest.mark.filterwarnings("ignore:Class")
def test_a_class_of_one_point_has_a_metric_too(alone, fraction, rule):
    X, y = IRIS
    X, y = X[::2], y[::2].copy()
    y[0] = alone
    found = MultiMetricLMNN(
        LMNN(tol=1e-3), rule=rule, validation_fraction=fraction, patience=1
    ).fit(X, y)
    assert found.components_.shape == (4, 4, 4)
    assert np.isfinite(found.components_).all()
    # The point is never held out, so its metric is not regularized by early stopping.
    assert (found._codes == np.searchsorted(found.classes_, alone)).sum() == 1
    assert found.dual_bound_ == 0
    assert found.score(X, y) > 0.9


def test_cells_without_a_row_leave_no_trace():
    X, y = IRIS
    cells = np.full(len(X), 4)
    cells[7] = 9
    found = MultiMetricLMNN(LMNN(tol=1e-3), partition=cells, rule="energy", patience=1).fit(X, y)
    assert len(found.components_) == len(found._centroids) == 2
    assert sorted(np.unique(found.regions_)) == [0, 1]
    # Four distinct points, six cells.
    X, y = np.repeat(X[::40], 10, axis=0), np.repeat([0, 0, 1, 1], 10)
    with pytest.warns(UserWarning, match="distinct clusters"):
        found = MultiMetricLMNN(partition="kmeans", n_regions=6, rule="energy").fit(X, y)
    assert len(found.components_) == len(found._centroids) == 4
    assert found.score(X, y) == 1


def test_few_training_points_vote_together():
    X, y = IRIS
    few = [0, 1, 50, 51]
    with pytest.warns(UserWarning, match="fewer than n_neighbors"):
        found = MultiMetricLMNN(LMNN(n_neighbors=9), validation_fraction=0).fit(X[few], y[few])
    assert found.kneighbors(X)[1].shape == (len(X), 4)
    assert set(found.predict(X)) == {0, 1}
    with pytest.raises(ValueError, match="n_neighbors=5 must be from 1 to 4, the number"):
        found.kneighbors(X, 5)


# Kernels


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_units_and_offsets_change_no_kernel(kernel):
    X, y = IRIS
    X = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)
    settings = {"kernel": kernel, "estimator": LMNN(tol=1e-3)}
    mapped = KernelLMNN(**settings).fit(X, y).transform(X)
    again = KernelLMNN(**settings).fit(1024 * (X + 16), y).transform(1024 * (X + 16))
    wanted, found = (np.linalg.norm(Z[1:] - Z[:-1], axis=1) for Z in (mapped, again))
    np.testing.assert_allclose(found, wanted, rtol=1e-2)


def test_names_and_directions_of_a_kernel():
    X, y = load_iris(return_X_y=True)
    found = KernelLMNN(estimator=LMNN(n_components=2, tol=1e-3)).fit(X, y)
    assert found.n_directions_ == 15  # A tenth of the rows.
    assert found.get_feature_names_out().tolist() == ["kernellmnn0", "kernellmnn1"]
    X[:] = 0  # The estimator stores its own copy of the rows.
    assert np.abs(found.transform(IRIS[0])).max() > 0.1


def test_a_linear_kernel_gives_lmnn():
    X, y = IRIS
    X = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)  # This avoids ties among targets.
    settings = published(tol=1e-8)
    kernel = KernelLMNN("linear", n_directions=None, estimator=settings).fit(X, y)
    lmnn = clone(settings).fit(X, y)
    np.testing.assert_array_equal(kernel.target_neighbors_, lmnn.target_neighbors_)
    assert kernel.objective_ == pytest.approx(lmnn.objective_, rel=1e-5)
    new = X[:20] + 0.1
    pairs = [
        np.linalg.norm(Z[:10] - Z[10:], axis=1) for Z in (m.transform(new) for m in (kernel, lmnn))
    ]
    np.testing.assert_allclose(pairs[0], pairs[1], rtol=0.05)


def test_coefficients_map_kernel_values():
    X, y = IRIS
    X = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)
    found = KernelLMNN("rbf", gamma=0.5, n_directions=8).fit(X, y)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(2))
    centered = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    Z = centered @ found.coefficients_.T
    mapped = found.transform(X)
    np.testing.assert_allclose(Z - Z.mean(0), mapped - mapped.mean(0), atol=1e-6 * np.abs(Z).max())
    given = KernelLMNN("precomputed", n_directions=8).fit(K, y)
    np.testing.assert_array_equal(given.target_neighbors_, found.target_neighbors_)
    assert given.objective_ == pytest.approx(found.objective_, rel=1e-3)


def test_circles_are_told_apart_by_a_kernel_and_not_by_a_map():
    X, y = make_circles(300, noise=0.15, factor=0.6, random_state=0)
    X = np.column_stack([X, np.random.default_rng(0).normal(size=(300, 4))])
    train, test = np.arange(200), np.arange(200, 300)
    linear = KNNClassifier(published()).fit(X[train], y[train]).score(X[test], y[test])
    kernel = KernelLMNN("poly", degree=2, n_directions=30)
    bent = KNNClassifier(kernel).fit(X[train], y[train]).score(X[test], y[test])
    assert bent > linear + 0.02


@pytest.mark.parametrize(
    ("kernel", "change", "message"),
    [
        ("precomputed", lambda K: K[:, :-1], "square"),
        ("precomputed", lambda K: np.triu(K), "not symmetric"),
        ("precomputed", lambda K: np.ones_like(K), "all training points to the same point"),
    ],
)
def test_kernels_that_cannot_be(kernel, change, message):
    X, y = problem(0)
    with pytest.raises(ValueError, match=message):
        KernelLMNN(kernel).fit(change(X @ X.T), y)


# Identities


def test_the_laplacian_gathers_outer_products():
    # Holds for any weights, including negative and asymmetric ones.
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(12, 3)), rng.normal(size=(12, 12))
    wanted = sum(W[a, b] * np.outer(X[a] - X[b], X[a] - X[b]) for a in range(12) for b in range(12))
    found = X.T @ multiply_laplacian(sparse.csr_array(W), X)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_large_sums_over_pairs_are_threaded(n_threads, monkeypatch):
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(50, 3)), rng.normal(size=(50, 50))
    W = sparse.csr_array(np.where(W > 1, W, 0.0))
    first, second = np.nonzero(rng.random((50, 50)) < 0.2)
    wanted = multiply_laplacian(W, X), compute_listed_distances(X, first, second)
    monkeypatch.setattr(triplet_loss, "THREADED_SIZE", 1)
    monkeypatch.setattr("nearfar.large_margin.pair_lists.THREADED_SIZE", 1)
    np.testing.assert_allclose(multiply_laplacian(W, X, n_threads), wanted[0], atol=1e-12)
    np.testing.assert_array_equal(compute_listed_distances(X, first, second, n_threads), wanted[1])


def test_no_push_left_means_no_leave_one_out_error():
    # Specification T11.
    X, y = make_blobs(60, 3, centers=3, cluster_std=0.5, random_state=0)
    lmnn = published(push_weight=0.99).fit(X, y)
    Z = 3 * lmnn.transform(X)  # Beyond the margin no hinge is active.
    targets = find_target_neighbors(Z, y, 3)
    assert compute_full_loss(Z, y, targets, 1.0).loss == 0
    assert KNNClassifier().fit(Z, y).leave_one_out_error() == 0


def test_distances_by_the_map_and_by_the_matrix_agree():
    # Specification T13.
    X, y = WINE
    lmnn = published().fit(X, y)
    M = lmnn.get_mahalanobis_matrix()
    assert np.linalg.eigvalsh(M)[0] >= -1e-12 * np.abs(M).max()
    differences = X[:50] - X[50:100]
    by_matrix = np.sqrt(np.einsum("ij,jk,ik->i", differences, M, differences))
    pairs = np.stack([X[:50], X[50:100]], axis=1)
    np.testing.assert_allclose(lmnn.pair_distance(pairs), by_matrix, rtol=1e-9)


# Coordinates


@pytest.fixture
def faces():
    """Return fewer rows than features, with features of different scales."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 50)) * np.geomspace(0.1, 10, 50)
    return X, np.repeat(np.arange(3), 10)


@pytest.mark.parametrize("coordinates", [whiten_rows, scale_uniformly])
@pytest.mark.parametrize("kind", ["few rows", "collinear", "constant"])
def test_coordinates_see_the_span_of_the_rows_and_nothing_else(faces, kind, coordinates):
    X, y = faces
    if kind == "collinear":
        X = X[:, :6] @ np.random.default_rng(1).normal(size=(6, 9))
    elif kind == "constant":
        X = X[:, :6] * [1, 1, 0, 1, 0, 1]
    statistics = ClassStatistics(pooled=True, exact=True).add(X, np.arange(3), y)
    into, points = coordinates(X, statistics)
    centered = X - X.mean(axis=0)
    np.testing.assert_allclose(centered @ into, points, atol=1e-9 * np.abs(points).max())
    # The rows are represented exactly ...
    back = np.linalg.pinv(into.T)
    np.testing.assert_allclose(points @ back.T, centered, atol=1e-9)
    # ... and directions orthogonal to all rows have zero weight.
    if coordinates is whiten_rows or kind == "few rows":
        off = np.random.default_rng(2).normal(size=X.shape[1])
        off -= np.linalg.pinv(centered) @ (centered @ off)
        np.testing.assert_allclose(off @ into, 0, atol=1e-9 * np.abs(into).max())


def test_with_few_rows_the_identity_is_the_euclidean_distance(faces):
    X, y = faces
    statistics = ClassStatistics(pooled=True, exact=True).add(X, np.arange(3), y)
    into, points = whiten_rows(X, statistics)
    centered = X - X.mean(axis=0)
    for init in ("identity", np.eye(50)):
        first = make_initial_map(LMNN(init=init), statistics, into, None, stops_early=False)
        gram = (points @ first.T) @ (points @ first.T).T
        np.testing.assert_allclose(gram, centered @ centered.T, atol=1e-9 * gram.max())


@pytest.mark.filterwarnings("ignore:LMNN did not converge")
def test_stopping_early_stays_near_the_given_distance_where_rows_are_few():
    # Ten directions separate the classes; sixty contain noise of a tenth of their size.
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 12)
    signal = 2 * rng.normal(size=(8, 10))[y] + rng.normal(size=(96, 10))
    X = np.hstack([signal, 0.1 * rng.normal(size=(96, 60))])
    lmnn = published(1, validation_fraction=0.3, max_iter=20).fit(X, y)
    M = lmnn.get_mahalanobis_matrix()
    # In whitened coordinates, noise would be as large as the signal from the first steps.
    assert np.trace(M[10:, 10:]) / 60 < 3 * np.trace(M[:10, :10]) / 10


def test_subgradients_do_not_stop_early():
    with pytest.raises(ValueError, match="does not support early stopping"):
        LMNN(solver="projected_subgradient", validation_fraction=0.3).fit(*WINE)
