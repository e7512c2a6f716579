"""What LMNN decides by itself: impostors, passes, when to stop; and that all of it is seen."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from test_lmnn import problem, published
from test_lmnn_nearest import brute_loss, optimum

from nearfar import LMNN, KNNClassifier, MultiMetricLMNN, MultiPassLMNN, Triplets
from nearfar.large_margin import problem as solver
from nearfar.large_margin.held_out import Watch, mean_errors
from nearfar.large_margin.impostors import target_neighbors
from nearfar.mahalanobis.lmnn_defaults import decided, splits_of

IRIS = load_iris(return_X_y=True)
#: To the end, so that passes alone are at work.
WHOLE = {"validation_fraction": 0.0}


@pytest.mark.parametrize(
    ("n", "p", "settings", "wanted"),
    [
        (400, 20, {}, ((3, 10, None), 2, 0.0, 1)),
        (299, 20, {}, ((3, 10, None), 2, 0.2, 5)),
        (1000, 100, {}, ((3, 10, None), 2, 0.2, 3)),
        (3000, 300, {}, ((3, 10, None), 2, 0.2, 1)),
        (299, 20, {"refit": False}, ((3, 10, None), 2, 0.2, 1)),
        (24, 20, {}, ((3, 10, None), 2, 0.0, 1)),  # too few to hold any out
        (299, 20, {"n_components": 5}, ((3, 10, None), 2, 0.0, 1)),  # few numbers to learn
        (299, 20, {"n_components": 5, "reduction": "pca"}, ((3, 10, None), 2, 0.2, 5)),
        (299, 20, {"structure": "diagonal"}, ((3, 10, None), 2, 0.0, 1)),
        (299, 20, {"solver": "projected_subgradient"}, ((None,), 1, 0.0, 1)),
        (20_001, 20, {}, ((3, 10, None), 1, 0.0, 1)),
        (299, 20, {"n_impostors": 7, "n_passes": 4, **WHOLE}, ((7,), 4, 0.0, 1)),
        (299, 20, {"validation_fraction": 0.3}, ((3, 10, None), 2, 0.3, 1)),
    ],
)
def test_what_is_decided(n, p, settings, wanted):
    codes = np.arange(n) % 3
    assert decided(LMNN(**settings), codes, p, given=False) == wanted
    # Targets that are given are kept, and nothing is held out.
    given = decided(LMNN(**settings), codes, p, given=True)
    assert given.n_passes == settings.get("n_passes", 1)
    assert given.validation_fraction == settings.get("validation_fraction", 0.0)


def test_every_row_is_held_out_once_where_rows_are_few():
    codes = np.repeat([0, 1, 2], [30, 30, 1])
    choice = decided(LMNN(), codes, 20, given=False)
    splits = splits_of(codes, choice, 0)
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
    # The second targets are neighbours by the first metric, and no longer those of the rows.
    first = published(n_impostors=3, tol=1e-4).fit(X, y)
    assert (targets == target_neighbors(first.transform(X), y, 3)).mean() > 0.95
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
    # A warm start begins where the last fit ended.
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
    targets = target_neighbors(first.transform(X), y, 3)
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
    # Three directions in which classes differ, thirty with noise, and two rows for each.
    rng = np.random.default_rng(0)
    y = np.arange(266) % 3
    X = rng.normal(size=(266, 33)) + 4 * np.eye(3, 33)[y]
    X, y, Q, q = X[:66], y[:66], X[66:], y[66:]
    lmnn = LMNN().fit(X, y)
    assert lmnn.validation_fraction_ == 0.2
    assert lmnn.n_iter_ <= 100
    # Of each pass the start and up to five looks, the best of which the next pass starts from.
    assert 2 <= len(lmnn.validation_errors_) <= 12
    assert (lmnn.target_neighbors_ >= 0).all()
    errors = [
        1 - KNNClassifier().fit(m.transform(X), y).score(m.transform(Q), q)
        for m in (lmnn, published().fit(X, y))
    ]
    assert errors[0] < errors[1]


def test_looks_are_averaged_and_what_has_ended_stays():
    watches = [Watch(lambda L: float(L[0]), 9, keep=True) for _ in range(2)]
    for watch, numbers in zip(watches, ([0.5, 0.1], [0.3, 0.3, 0.2]), strict=True):
        for number in numbers:
            watch.look(np.array([number]))
    np.testing.assert_allclose(mean_errors(watches), [0.4, 0.2, 0.15])
    assert [L[0] for L in watches[1].maps] == [0.3, 0.3, 0.2]


def test_a_fit_that_stops_early_on_a_sample_of_centres_is_judged_on_all(monkeypatch):
    # The mistake to catch: an objective over the centres of the first stage.
    monkeypatch.setattr(solver, "FEW_CENTERS", 40)
    X, y = IRIS
    with pytest.warns(UserWarning, match="did not converge"):
        lmnn = published(max_iter=2).fit(X, y)
    M, targets = lmnn.get_mahalanobis_matrix(), lmnn.target_neighbors_
    assert lmnn.objective_ == pytest.approx(brute_loss(M, X, y, targets, None), rel=1e-6)


@pytest.mark.parametrize("relative", [MultiPassLMNN, MultiMetricLMNN])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_relatives_go_over_one_pass_and_start_from_the_work(relative):
    X, y = problem(0)
    with pytest.raises(ValueError, match=rf"{relative.__name__}: .* got n_passes=2 inside"):
        relative(LMNN(n_passes=2)).fit(X, y)
    fitted = relative(LMNN(max_iter=5), validation_fraction=0.3).fit(X, y)
    inner = fitted.passes_[0] if relative is MultiPassLMNN else fitted.estimator_
    assert (inner.n_impostors_, inner.n_passes_, inner.validation_fraction_) == (None, 1, 0.0)


def test_what_does_not_go_together():
    X, y = problem(1)
    with pytest.raises(ValueError, match="targets are not chosen anew; got n_passes=2"):
        LMNN(n_passes=2).fit(X, supervision=Triplets([[0, 1, 2]], n_samples=36))
    for settings, what in (({"n_impostors": 3}, "n_impostors"), ({"n_passes": 2}, "n_passes")):
        with pytest.raises(ValueError, match=f"does not do {what}"):
            LMNN(solver="projected_subgradient", **settings).fit(X, y)
    with pytest.raises(ValueError, match="counts all impostors; got n_impostors=2 inside"):
        MultiMetricLMNN(LMNN(n_impostors=2), rule="energy").fit(X, y)
    for name in ("n_impostors", "n_passes", "validation_fraction"):
        with pytest.raises(ValueError, match=name):
            LMNN(**{name: "all"}).fit(X, y)
