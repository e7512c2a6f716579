"""Descents over maps of many columns: samples, rows that are added, threads."""

import numpy as np
import pytest

from nearfar import LMNN
from nearfar.large_margin import problem as solver
from nearfar.large_margin.impostors import find_target_neighbors
from nearfar.large_margin.listed_loss import Screen, compute_listed_loss
from nearfar.large_margin.pair_lists import compute_listed_distances, make_pair_list
from nearfar.large_margin.problem import LargeMargin, Progress
from nearfar.large_margin.sampled_descent import compute_sampled_loss, draw_center_sample
from nearfar.large_margin.triplet_loss import compute_full_loss


def noisy(n, d, n_classes=4, seed=0):
    """Classes that differ along three directions, the rest is noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, d))
    X[:, :3] += 2.5 * rng.normal(size=(n_classes, 3))[y]
    return X, y


@pytest.fixture
def all_wide(monkeypatch):
    """Every map counts as wide, so that a small one shows what wide ones do."""
    monkeypatch.setattr(solver, "WIDE", 1)
    monkeypatch.setattr(solver, "MIN_SAMPLED_CENTERS", 100)
    monkeypatch.setattr(solver, "FIRST_ROWS", 4)
    monkeypatch.setattr(solver, "MORE_ROWS", 3)


def test_a_map_that_begins_with_few_rows_ends_at_the_same_optimum(all_wide, monkeypatch):
    X, y = noisy(300, 12)
    settings = {"n_impostors": None, "n_passes": 1, "tol": 1e-8, "max_iter": 4000}
    thin = LMNN(**settings).fit(X, y)
    assert thin.components_.shape == (12, 12)
    monkeypatch.setattr(solver, "WIDE", 10**9)
    whole = LMNN(**settings).fit(X, y)
    assert len(whole.history_["objective"]) != len(thin.history_["objective"])
    assert thin.objective_ == pytest.approx(whole.objective_, rel=1e-5)
    M, wanted = (found.get_mahalanobis_matrix() for found in (thin, whole))
    assert np.abs(M - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_wide_diagonal_map_ends_at_the_optimum_without_the_columns_it_left_out(monkeypatch):
    X, y = noisy(300, 40)
    monkeypatch.setattr(solver, "WIDE_DIAGONAL", 1)
    monkeypatch.setattr(solver, "MIN_SAMPLED_CENTERS", 100)
    # Too much is left out at first: what is missed must come back.
    monkeypatch.setattr("nearfar.large_margin.sampled_descent.NEGLIGIBLE", 0.9)
    settings = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0, "tol": 1e-8}
    sampled = LMNN(structure="diagonal", **settings).fit(X, y)
    monkeypatch.setattr(solver, "WIDE_DIAGONAL", 10**9)
    plain = LMNN(structure="diagonal", **settings).fit(X, y)
    assert sampled.n_iter_ > 160
    assert sampled.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    factors = np.diag(sampled.components_)
    assert 3 < np.count_nonzero(factors) < 40
    # Convex in the squares: no column could gain, those that are used gain nothing.
    Z, rows = X * factors, np.arange(len(X))[:, None]
    near = ((Z[:, None] - Z[sampled.target_neighbors_]) ** 2).sum(axis=2)
    far = ((Z[:, None] - Z[None]) ** 2).sum(axis=2)
    active = (1 + near[:, :, None] > far[:, None]) & (y[:, None] != y)[:, None]
    pulls = 0.5 + 0.5 * active.sum(axis=2)
    slope = np.einsum("ik,ikp->p", pulls, (X[rows] - X[sampled.target_neighbors_]) ** 2)
    slope -= np.einsum("il,ilp->p", 0.5 * active.sum(axis=1), (X[:, None] - X[None]) ** 2)
    scale = np.einsum("ik,ikp->p", pulls, (X[rows] - X[sampled.target_neighbors_]) ** 2)
    assert (slope / scale).min() > -0.02
    assert np.abs((slope / scale)[factors > 0]).max() < 0.02


def test_the_sampled_loss_is_an_estimate_of_the_whole():
    X, y = noisy(2000, 8)
    targets = find_target_neighbors(X, y, 3)
    task = LargeMargin(X, y, targets, 0.5)
    L = np.diag(np.linspace(0.2, 0.6, 8))
    whole = compute_full_loss(X @ L.T, y, targets, 0.5).loss / len(X)
    samples = [draw_center_sample(task, seed) for seed in range(12)]
    losses = [compute_sampled_loss(task, sample, L).loss / sample.n_centers for sample in samples]
    error = np.std(losses) / np.sqrt(len(losses))
    assert abs(np.mean(losses) - whole) < 4 * error
    assert error < 0.05 * whole


def whole_losses(monkeypatch, *, drawn_anew):
    """The loss over all centres on the way of a descent that begins with samples, or with one."""
    monkeypatch.setattr(solver, "WIDE", 1 if drawn_anew else 10**9)
    monkeypatch.setattr(solver, "MIN_SAMPLED_CENTERS", 100)
    monkeypatch.setattr(solver, "FIRST_STAGE_CENTERS", 60)
    X, y = noisy(500, 40)
    targets = find_target_neighbors(X, y, 3)
    task = LargeMargin(X, y, targets, 0.5)
    progress = Progress(np.eye(40))
    maps = []
    progress.watch = lambda L: maps.append(L) or False
    task.solve(progress, max_iter=240, tol=1e-3)
    looked = [*maps[9:160:50], *maps[160::20]] if drawn_anew else maps[::3]
    return np.array([compute_full_loss(X @ L.T, y, targets, 0.5).loss for L in looked])


def test_sampled_steps_lower_the_whole_loss_and_nothing_explodes_after_them(monkeypatch):
    losses = whole_losses(monkeypatch, drawn_anew=True)
    assert np.all(np.diff(losses) < 0.02 * losses[:-1])
    # Up to the tolerance of the descent, within which it is chance where it ends.
    assert losses[-1] < (1 + 1e-3) * losses[3] and losses[3] < losses[0]
    # The optimum of a single sample of centres lets in the impostors of all others: by that way,
    # which narrow maps still go, the whole loss rises. So the lines above would see it.
    astray = whole_losses(monkeypatch, drawn_anew=False)
    assert np.max(np.diff(astray) / astray[:-1]) > 0.1
    assert astray.max() > 1.3 * astray[0] and astray.max() > 3 * losses[0]


def test_threads_agree(all_wide, monkeypatch):
    monkeypatch.setattr("nearfar.large_margin.working_set.THREADED_ROWS", 1)
    monkeypatch.setattr("nearfar.large_margin.listed_loss.THREADED_SIZE", 1)
    monkeypatch.setattr("nearfar.large_margin.triplet_loss.THREADED_SIZE", 1)
    monkeypatch.setattr("nearfar.large_margin.pair_lists.THREADED_SIZE", 1)
    X, y = noisy(120, 8)
    one, two, again = (
        LMNN(n_impostors=None, n_passes=1, tol=1e-8, max_iter=3000, n_jobs=jobs).fit(X, y)
        for jobs in (1, 2, 2)
    )
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-6)
    assert np.array_equal(two.components_, again.components_)


def test_impostors_among_some_rows_count_for_all_of_them():
    X, y = noisy(60, 4)
    targets = find_target_neighbors(X, y, 2)
    among = np.arange(0, 60, 2)
    found = compute_full_loss(X, y, targets, 0.4, among=among, weight=2.0)
    loss, gradient = 0.0, np.zeros((4, 4))
    for i, near in enumerate(targets):
        for j in near:
            pull = X[i] - X[j]
            loss += 0.6 * pull @ pull
            gradient += 0.6 * np.outer(pull, pull)
            for other in among[y[among] != y[i]]:
                push = X[i] - X[other]
                if 1 + pull @ pull - push @ push > 0:
                    loss += 0.8 * (1 + pull @ pull - push @ push)
                    gradient += 0.8 * (np.outer(pull, pull) - np.outer(push, push))
    assert found.loss == pytest.approx(loss)
    assert np.allclose(X.T @ found.laplacian_v, gradient)


def test_start_from_class_means_alone_gets_the_rows_that_are_missing():
    # Four clusters, of which opposite ones are alike: the means differ along a third axis only.
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], size=(300, 2))
    y = (signs.prod(axis=1) > 0).astype(int)
    X = np.hstack([3 * signs, 0.5 * y[:, None], np.zeros((300, 2))]) + rng.normal(size=(300, 5))
    learner = LMNN(n_components=3, init="lda", n_impostors=None, n_passes=1).fit(X, y)
    other = LMNN(n_components=3, init="within", n_impostors=None, n_passes=1).fit(X, y)
    assert np.linalg.matrix_rank(learner.components_, tol=1e-6) > 1
    assert learner.objective_ == pytest.approx(other.objective_, rel=1e-3)


@pytest.mark.parametrize("nearest", [None, 2])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_pairs_that_are_known_to_be_far_change_nothing(monkeypatch, nearest, n_threads):
    monkeypatch.setattr("nearfar.large_margin.listed_loss.THREADED_SIZE", 1)
    X, y = noisy(300, 6)
    targets = find_target_neighbors(X, y, 3)
    L = np.diag(np.linspace(0.4, 0.9, 6))
    pairs = make_pair_list([np.nonzero(y[:, None] != y)], 300)
    screen = Screen(pairs, X @ L.T)
    measured = []
    original = compute_listed_distances
    monkeypatch.setattr(
        "nearfar.large_margin.listed_loss.compute_listed_distances",
        lambda Z, first, *more: measured.append(len(first)) or original(Z, first, *more),
    )
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(6):
        L = L + 0.003 * rng.normal(size=L.shape)
        wanted = compute_listed_loss(X @ L.T, targets, pairs, 0.5, 0.1, nearest=nearest)
        measured.clear()
        found = compute_listed_loss(
            X @ L.T,
            targets,
            pairs,
            0.5,
            0.1,
            nearest=nearest,
            n_threads=n_threads,
            screen=screen,
        )
        shares.append(sum(measured) / len(pairs.indices))
        assert found.loss == pytest.approx(wanted.loss, rel=1e-12)
        assert (found.n_active, found.slopes) == (wanted.n_active, pytest.approx(wanted.slopes))
        np.testing.assert_allclose(found.laplacian_v, wanted.laplacian_v, atol=1e-9)
    assert shares[0] >= 1 and max(shares[1:4]) < 0.8
    # What moves far is not relied on.
    far = 3 * L[::-1]
    wanted = compute_listed_loss(X @ far.T, targets, pairs, 0.5, 0.1, nearest=nearest)
    found = compute_listed_loss(X @ far.T, targets, pairs, 0.5, 0.1, nearest=nearest, screen=screen)
    assert found.loss == pytest.approx(wanted.loss, rel=1e-12) and screen.is_worn
    assert not screen.fits(pairs, X @ far.T)


def test_a_centre_without_targets_makes_no_nan_of_what_is_complete():
    X, y = noisy(40, 3)
    y[0] = 9  # alone in its class
    problem = LargeMargin(X, y, find_target_neighbors(X, y, 2), 0.5)
    L = np.diag([1.0, 1.0, 0.0])  # nothing is known of distances from those under this map
    problem.search(L)
    with np.errstate(invalid="raise"):
        assert not problem.is_complete(L / 9)
