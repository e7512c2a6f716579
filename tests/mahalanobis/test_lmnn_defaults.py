"""The "auto" settings of LMNN: impostors, passes and early stopping."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from test_lmnn import problem, published
from test_lmnn_nearest import brute_loss, optimum

from nearfar import LMNN, KNNClassifier, MultiMetricLMNN, MultiPassLMNN, Triplets
from nearfar.large_margin import problem as solver
from nearfar.large_margin.held_out import Watch, average_errors
from nearfar.large_margin.impostors import find_target_neighbors
from nearfar.mahalanobis import lmnn_run
from nearfar.mahalanobis.lmnn_defaults import count_directions, resolve_auto, split_for_validation
from nearfar.mahalanobis.lmnn_run import Run, count_leave_one_out_errors

IRIS = load_iris(return_X_y=True)
#: To the end, so that passes alone are at work.
WHOLE = {"validation_fraction": 0.0}


@pytest.mark.parametrize(
    ("n", "p", "settings", "wanted"),
    [
        (300, 20, {}, ((3, 10, None), 2, 0.0, 1, True)),
        (300, 20, {"n_impostors": 5}, ((5,), 2, 0.0, 1, True)),
        (300, 20, {"n_passes": 2}, ((3, 10, None), 2, 0.0, 1, False)),  # n_passes is explicit.
        (300, 20, {"validation_fraction": 0.0}, ((3, 10, None), 2, 0.0, 1, False)),
        (299, 20, {}, ((3, 10, None), 2, 0.2, 5, False)),
        (1000, 100, {}, ((3, 10, None), 2, 0.2, 3, False)),
        (3000, 300, {}, ((3, 10, None), 2, 0.2, 1, False)),
        (299, 20, {"refit": False}, ((3, 10, None), 2, 0.2, 1, False)),
        (24, 20, {}, ((3, 10, None), 2, 0.0, 1, False)),  # Too few rows to hold any out.
        (299, 20, {"n_components": 5}, ((3, 10, None), 2, 0.0, 1, False)),  # The map is small.
        (299, 20, {"n_components": 5, "reduction": "pca"}, ((3, 10, None), 2, 0.2, 5, False)),
        (400, 20, {"structure": "diagonal"}, ((3, 10, None), 2, 0.0, 1, False)),
        (400, 20, {"solver": "projected_subgradient"}, ((None,), 1, 0.0, 1, False)),
        (20_001, 20, {}, ((3, 10, None), 1, 0.0, 1, False)),
        (299, 20, {"n_impostors": 7, "n_passes": 4, **WHOLE}, ((7,), 4, 0.0, 1, False)),
        (299, 20, {"validation_fraction": 0.3}, ((3, 10, None), 2, 0.3, 1, False)),
    ],
)
def test_what_is_decided(n, p, settings, wanted):
    codes = np.arange(n) % 3
    assert resolve_auto(LMNN(**settings), codes, p, has_targets=False) == wanted
    # Given targets are kept, and no rows are held out.
    given = resolve_auto(LMNN(**settings), codes, p, has_targets=True)
    assert given.n_passes == settings.get("n_passes", 1)
    assert given.validation_fraction == settings.get("validation_fraction", 0.0)
    assert not given.compares_passes


def test_few_is_said_of_directions_and_not_of_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5))
    wide = X @ rng.normal(size=(5, 12)) + 7.0
    assert count_directions(X) == count_directions(wide) == 5
    assert count_directions(wide.astype(np.float32)) == 5
    assert count_directions(np.hstack([X, np.ones((100, 9))])) == 5
    assert count_directions(X[:4] @ rng.normal(size=(5, 12))) == 3
    lmnn = LMNN().fit(wide, np.arange(100) % 2)
    assert lmnn.validation_fraction_ == 0.0


def test_every_row_is_held_out_once_where_rows_are_few():
    codes = np.repeat([0, 1, 2], [30, 30, 1])
    choice = resolve_auto(LMNN(), codes, 20, has_targets=False)
    splits = split_for_validation(codes, choice, 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([h for _, h in splits])), np.arange(61))
    for trained, held in splits:
        assert not np.intersect1d(trained, held).size and len(trained) + len(held) == 61


def test_the_certificate_is_that_of_the_last_pass():
    X, y = problem(0)
    lmnn = LMNN(n_impostors=3, tol=1e-9, **WHOLE).fit(X, y)
    assert (lmnn.n_impostors_, lmnn.n_passes_, lmnn.validation_fraction_) == (3, 2, 0.0)
    targets = lmnn.target_neighbors_
    M = lmnn.get_mahalanobis_matrix()
    assert lmnn.objective_ == pytest.approx(brute_loss(M, X, y, targets, 3), rel=1e-9)
    best = optimum(X, y, targets, 3)
    assert best * (1 - 1e-6) <= lmnn.objective_ <= best * 1.001
    assert lmnn.dual_bound_ <= best * (1 + 1e-6)
    # The targets of the second pass are neighbors by the first metric, not those of the rows.
    first = published(n_impostors=3, tol=1e-4).fit(X, y)
    assert (targets == find_target_neighbors(first.transform(X), y, 3)).mean() > 0.95
    assert (targets != first.target_neighbors_).any()


def test_passes_are_those_of_the_work():
    X, y = IRIS
    ours = published(n_passes=3).fit(X, y)
    theirs = MultiPassLMNN(n_passes=3).fit(X, y)
    assert (ours.target_neighbors_ == theirs.target_neighbors_).mean() > 0.95
    assert ours.objective_ == pytest.approx(theirs.objective_, rel=0.02)
    again = published(tol=1e-8).fit(X, y, target_neighbors=ours.target_neighbors_)
    assert ours.objective_ == pytest.approx(again.objective_, rel=1e-4)


def test_history_and_callback_go_over_all_passes():
    X, y = IRIS
    lmnn = LMNN(n_impostors=3, **WHOLE)
    heard = []
    lmnn.callback = lambda number, state: heard.append(number)
    lmnn.fit(X, y)
    assert heard == list(range(1, lmnn.n_iter_ + 1))
    assert {len(column) for column in lmnn.history_.values()} == {lmnn.n_iter_}
    assert (np.diff(lmnn.history_["seconds"]) >= 0).all()
    # A warm start begins at the map of the last fit.
    first = lmnn.history_["objective"][0]
    lmnn.set_params(warm_start=True).fit(X, y)
    assert lmnn.history_["objective"][0] < first


def test_ctrl_c_in_the_second_pass_leaves_the_map_so_far():
    X, y = IRIS
    first = published(n_impostors=3, tol=1e-4).fit(X, y)
    lmnn = LMNN(n_impostors=3, **WHOLE)

    def stop(number, state):
        if number == first.n_iter_ + 2:
            raise KeyboardInterrupt

    lmnn.callback = stop
    with pytest.raises(KeyboardInterrupt):
        lmnn.fit(X, y)
    assert lmnn.n_iter_ == first.n_iter_ + 2
    targets = find_target_neighbors(first.transform(X), y, 3)
    reached, before = (
        brute_loss(m.get_mahalanobis_matrix(), X, y, targets, 3) for m in (lmnn, first)
    )
    assert reached <= 1.05 * before


def test_more_impostors_count_where_three_make_the_map_vanish():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.integers(0, 2, 120)
    lmnn = LMNN().fit(X, y)
    assert lmnn.n_impostors_ in (10, None)
    three = LMNN(n_impostors=3, n_passes=2).fit(X, y)
    nothing = 0.5 * 3 * 3 * 120
    assert three.objective_ > 0.98 * nothing


def test_few_rows_stop_it_in_time():
    # Classes differ in three directions, thirty contain noise, and there are two rows for each.
    rng = np.random.default_rng(0)
    y = np.arange(266) % 3
    X = rng.normal(size=(266, 33)) + 4 * np.eye(3, 33)[y]
    X, y, Q, q = X[:66], y[:66], X[66:], y[66:]
    lmnn = LMNN().fit(X, y)
    assert lmnn.validation_fraction_ == 0.2
    assert lmnn.n_iter_ <= 100
    # Each pass has the initial check and up to five more; the next pass starts from the best.
    assert 2 <= len(lmnn.validation_errors_) <= 12
    assert (lmnn.target_neighbors_ >= 0).all()
    errors = [
        1 - KNNClassifier().fit(m.transform(X), y).score(m.transform(Q), q)
        for m in (lmnn, published().fit(X, y))
    ]
    assert errors[0] < errors[1]


def two_of_six(n, seed=3):
    """Return six discrete columns; a row is positive if exactly two of them are zero.

    No column or combination is more important than others, and many rows are duplicates.
    """
    rng = np.random.default_rng(seed)
    grid = np.indices((3, 3, 2, 3, 4, 2)).reshape(6, -1).T.astype(float)
    X = np.vstack([grid] * 3)[rng.permutation(3 * len(grid))][:n]
    return X / X.std(axis=0), ((X == 0).sum(axis=1) == 2).astype(int)


def noisy(n, seed=0):
    """Return two columns in which four classes differ, and six with larger noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    X = rng.normal(size=(n, 8)) * np.repeat([1.0, 2.0], [2, 6])
    X[:, :2] += 2.5 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[y]
    return X, y


def left_out_wrong(Z, y, *, drawn):
    """Return which rows of two classes their three nearest other rows misclassify.

    Ties go to the first rows. With ``drawn``, return the fraction of all choices among ties that
    misclassify the row.
    """
    D = ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.fill_diagonal(D, np.inf)
    if not drawn:
        nearest = np.argsort(D, axis=1, kind="stable")[:, :3]
        return ((y[nearest].sum(axis=1) >= 2) != y).astype(float)
    wrong = np.zeros(len(Z))
    for i, distances in enumerate(D.round(9)):
        third = np.sort(distances)[2]
        nearer, level = np.flatnonzero(distances < third), np.flatnonzero(distances == third)
        choices = combinations(level, 3 - len(nearer))
        wrong[i] = np.mean([(y[[*nearer, *some]].sum() >= 2) != y[i] for some in choices])
    return wrong


def knn_error(learner, X, y, Q, q):
    knn = KNNClassifier().fit(X @ learner.components_.T, y)
    return 1 - knn.score(Q @ learner.components_.T, q)


def stripes(n, seed=0):
    """Return stripes of two classes, and a distant third class spread along the same axis.

    Pulling the third class together makes the stripes narrower.
    """
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 8, n), rng.uniform(0, 1, n), np.zeros(n)])
    y = np.floor(X[:, 0]).astype(int) % 2
    far = np.arange(n) % 4 == 0
    X[far] = rng.normal(size=(far.sum(), 3)) * [100, 1, 1] + [0, 0, 30]
    return X, np.where(far, 2, y)


def test_the_plain_distance_is_kept_where_the_learned_one_is_worse():
    X, y = stripes(800)
    X, y, Q, q = X[:400], y[:400], X[400:], y[400:]
    learned = LMNN(n_passes=2).fit(X, y)
    kept = LMNN().fit(X, y)
    assert (learned.n_passes_, kept.n_passes_) == (2, 0)
    factor = kept.components_[0, 0]
    np.testing.assert_array_equal(kept.components_, factor * np.eye(3))
    assert np.log2(factor) == np.round(np.log2(factor))
    plain = 1 - KNNClassifier().fit(X, y).score(Q, q)
    # Which of the worse maps is found depends on the path: their errors are 5 to 10 points higher.
    assert knn_error(kept, X, y, Q, q) == plain < knn_error(learned, X, y, Q, q) - 0.02
    # Targets and loss are those of the Euclidean distance, and the bound is for its problem.
    np.testing.assert_array_equal(kept.target_neighbors_, find_target_neighbors(X, y, 3))
    M, n_impostors = kept.get_mahalanobis_matrix(), kept.n_impostors_
    loss = brute_loss(M, X, y, kept.target_neighbors_, n_impostors)
    assert kept.objective_ == pytest.approx(loss, rel=1e-9)
    solved = published(n_impostors=n_impostors).fit(X, y)
    assert kept.dual_bound_ <= solved.objective_ <= kept.objective_
    assert kept.n_iter_ == len(kept.history_["objective"]) > 0


def test_the_learned_distance_stays_where_it_is_better():
    X, y = noisy(700)
    X, y, Q, q = X[:300], y[:300], X[300:], y[300:]
    lmnn, both = LMNN().fit(X, y), LMNN(n_passes=2).fit(X, y)
    assert lmnn.n_passes_ == 2
    np.testing.assert_array_equal(lmnn.components_, both.components_)
    assert knn_error(lmnn, X, y, Q, q) < 1 - KNNClassifier().fit(X, y).score(Q, q) - 0.05


@pytest.mark.parametrize(
    ("errors", "passes"),
    [
        ([9, 8, 7], 2),
        ([9, 7, 7], 2),
        ([7, 7, 7], 2),
        ([9, 7, 8], 1),
        ([7, 8, 7], 2),
        ([7, 8, 9], 0),
    ],
)
def test_it_goes_back_to_the_pass_with_the_fewest_errors(monkeypatch, errors, passes):
    said = iter(errors)
    monkeypatch.setattr(Run, "count_errors", lambda self, L=None: next(said))
    X, y = IRIS
    lmnn = LMNN(tol=1e-8).fit(X, y)
    assert next(said, None) is None
    assert lmnn.n_passes_ == passes
    first = published(n_impostors=3, tol=1e-8).fit(X, y)
    if passes < 2:
        np.testing.assert_array_equal(lmnn.target_neighbors_, first.target_neighbors_)
    if passes == 1:  # As exact as a fit with a single pass.
        assert lmnn.objective_ == pytest.approx(first.objective_, rel=1e-4)
    M, targets = lmnn.get_mahalanobis_matrix(), lmnn.target_neighbors_
    assert lmnn.objective_ == pytest.approx(brute_loss(M, X, y, targets, 3), rel=1e-6)
    assert lmnn.dual_bound_ <= lmnn.objective_


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("most", [10**6, 50])
def test_errors_of_rows_are_those_of_leaving_each_out(monkeypatch, most, drawn):
    monkeypatch.setattr(lmnn_run, "MAX_ROWS_COMPARED", most)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    X[120:160], y[120:140] = X[80:120], y[80:100]  # Duplicates, some with equal labels.
    wrong = left_out_wrong(X, y, drawn=drawn)
    asked = np.linspace(0, 199, min(most, 200)).astype(int)
    tied = (wrong > 0) & (wrong < 1)  # One of two duplicates is the third neighbor.
    assert tied.any() == drawn
    found = count_leave_one_out_errors(X, y, 3, randomizes_ties=drawn)
    assert abs(found - wrong[asked].sum()) <= tied[asked].sum() / 2
    # Fewer rows than neighbors.
    assert count_leave_one_out_errors(X[:3], np.array([0, 0, 2]), 5, randomizes_ties=drawn) == 1.0


def test_where_others_are_equally_near_the_first_come_first_or_the_order_is_drawn():
    X, y = two_of_six(400)
    assert (
        count_leave_one_out_errors(X, y, 3, randomizes_ties=False)
        == left_out_wrong(X, y, drawn=False).sum()
    )
    wrong = left_out_wrong(X, y, drawn=True)
    spread = np.sqrt((wrong * (1 - wrong)).sum() / 5)
    assert spread > 1  # Ties decide for many rows.
    found = count_leave_one_out_errors(X, y, 3, randomizes_ties=True)
    assert abs(found - wrong.sum()) < 4 * spread
    # Neither rounding nor a rotation changes the result.
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))
    for Z in (X @ Q, 0.1 * X + 7.0):
        assert count_leave_one_out_errors(Z, y, 3, randomizes_ties=True) == found


def test_looks_are_averaged_and_what_has_ended_stays():
    watches = [Watch(lambda L: float(L[0]), 9, keeps_maps=True) for _ in range(2)]
    for watch, numbers in zip(watches, ([0.5, 0.1], [0.3, 0.3, 0.2]), strict=True):
        for number in numbers:
            watch.check(np.array([number]))
    np.testing.assert_allclose(average_errors(watches), [0.4, 0.2, 0.15])
    assert [L[0] for L in watches[1].maps] == [0.3, 0.3, 0.2]


def test_a_fit_that_stops_early_on_a_sample_of_centres_is_judged_on_all(monkeypatch):
    # This would fail if the objective were summed over the points of the first stage only.
    monkeypatch.setattr(solver, "FIRST_STAGE_CENTERS", 40)
    X, y = IRIS
    with pytest.warns(UserWarning, match="did not converge"):
        lmnn = published(max_iter=2).fit(X, y)
    M, targets = lmnn.get_mahalanobis_matrix(), lmnn.target_neighbors_
    assert lmnn.objective_ == pytest.approx(brute_loss(M, X, y, targets, None), rel=1e-6)


@pytest.mark.parametrize("relative", [MultiPassLMNN, MultiMetricLMNN])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_relatives_go_over_one_pass_and_start_from_the_work(relative):
    X, y = problem(0)
    with pytest.raises(ValueError, match=rf"{relative.__name__}: .* got n_passes=2"):
        relative(LMNN(n_passes=2)).fit(X, y)
    fitted = relative(LMNN(max_iter=5), validation_fraction=0.3).fit(X, y)
    inner = fitted.passes_[0] if relative is MultiPassLMNN else fitted.estimator_
    assert (inner.n_impostors_, inner.n_passes_, inner.validation_fraction_) == (None, 1, 0.0)


def test_what_does_not_go_together():
    X, y = problem(1)
    with pytest.raises(ValueError, match="learns from triplets in one pass; got n_passes=2"):
        LMNN(n_passes=2).fit(X, supervision=Triplets([[0, 1, 2]], n_samples=36))
    for settings, what in (({"n_impostors": 3}, "n_impostors"), ({"n_passes": 2}, "n_passes")):
        with pytest.raises(ValueError, match=f"does not support {what}"):
            LMNN(solver="projected_subgradient", **settings).fit(X, y)
    with pytest.raises(ValueError, match="n_impostors=None; got n_impostors=2"):
        MultiMetricLMNN(LMNN(n_impostors=2), rule="energy").fit(X, y)
    for name in ("n_impostors", "n_passes", "validation_fraction"):
        with pytest.raises(ValueError, match=name):
            LMNN(**{name: "all"}).fit(X, y)
