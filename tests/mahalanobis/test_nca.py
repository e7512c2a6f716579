"""NCA: objective and initial maps compared with scikit-learn, neighbor lists, wrong labels."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis

import nearfar.mahalanobis.nca as module
from nearfar import NCA, KNNClassifier
from nearfar.solvers.soft_neighbors import soft_neighbors

WINE = load_wine(return_X_y=True)
IRIS = load_iris(return_X_y=True)
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*did not converge:sklearn.exceptions.ConvergenceWarning"
)


def objective(model, X, y, kind="sum"):
    return soft_neighbors(model.components_, X, y, objective=kind)[0]


@pytest.mark.parametrize("n_components", [2, None])
def test_it_does_no_worse_than_scikit_learn_from_the_same_start(n_components):
    X, y = WINE
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    start = np.eye(n_components or 13, 13) / 2
    theirs = NeighborhoodComponentsAnalysis(n_components, init=start, max_iter=100).fit(X, y)
    ours = NCA(n_components, init=start).fit(X, y)
    assert ours.objective_ > 0.99 * objective(theirs, X, y)


@pytest.mark.parametrize("kind", ["sum", "log"])
@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_objective_is_that_of_the_map(kind, l2):
    X, y = IRIS
    model = NCA(objective=kind, l2=l2).fit(X, y)
    unit = X.var(axis=0).sum() / 4
    penalty = l2 * len(X) * unit * np.sum(model.components_**2)
    wanted = objective(model, X, y, kind) - penalty
    assert model.objective_ == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert model.history_["objective"][-1] == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert model.n_iter_ == len(model.history_["objective"])


@pytest.mark.parametrize("kind", ["sum", "log"])
def test_with_a_penalty_it_stops_where_the_slope_is_nothing(kind):
    X, y = WINE
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = NCA(2, objective=kind, l2=0.01, tol=1e-10, max_iter=2000).fit(X, y)
    _, gradient = soft_neighbors(model.components_, X, y, objective=kind)
    drag = 2 * 0.01 * len(X) * model.components_
    assert np.abs(gradient - drag).max() < 2e-3 * np.abs(drag).max()


def test_neighbours_are_right_more_often():
    X, y = load_breast_cancer(return_X_y=True)
    train, test = np.arange(569) % 3 > 0, np.arange(569) % 3 == 0
    plain = KNNClassifier().fit(X[train], y[train]).score(X[test], y[test])
    learned = KNNClassifier(NCA(l2=0.01)).fit(X[train], y[train]).score(X[test], y[test])
    assert learned > plain


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sum", "log"])
def test_lists_of_neighbours_lose_little_of_the_full_objective(kind):
    X, y = load_digits(return_X_y=True)
    X, y = X[:500], y[:500]
    full = NCA(8, objective=kind, l2=1e-3).fit(X, y)
    some = NCA(8, objective=kind, l2=1e-3, n_neighbors=40).fit(X, y)
    lost = full.objective_ - some.objective_
    assert lost < 0.01 * (abs(full.objective_) if kind == "sum" else len(X))
    wanted = objective(some, X, y, kind)
    unit = X.var(axis=0).sum() / np.linalg.matrix_rank(X - X.mean(axis=0))
    wanted -= 1e-3 * len(X) * unit * np.sum(some.components_**2)
    assert some.objective_ == pytest.approx(wanted, rel=1e-4)  # Over all neighbors, not lists.


@pytest.mark.slow
def test_lists_lose_at_most_a_hundredth_on_digits():
    X, y = load_digits(return_X_y=True)
    full, some = NCA(10).fit(X, y), NCA(10, n_neighbors=100).fit(X, y)
    assert some.objective_ > 0.99 * full.objective_


def test_large_data_start_from_a_subset_and_use_lists(monkeypatch):
    monkeypatch.setattr(module, "_ALL_UP_TO", 300)
    monkeypatch.setattr(module, "_SUBSET", 200)
    monkeypatch.setattr(module, "_NEIGHBORS", 30)
    X, y = make_blobs(600, 6, centers=4, cluster_std=4.0, random_state=0)
    X = X * [1, 5, 1, 5, 1, 5]
    lists = []
    original = module.kneighbors

    def seen(Z, *rest, **options):
        lists.append((len(Z), options["n_neighbors"]))
        return original(Z, *rest, **options)

    monkeypatch.setattr(module, "kneighbors", seen)
    model = NCA().fit(X, y)
    assert lists and all(one == (600, 30) for one in lists)
    lists.clear()
    full = NCA(n_neighbors=None).fit(X, y)
    assert not lists
    assert model.objective_ > 0.97 * full.objective_


def test_lists_without_the_own_class_get_one_for_logarithms():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(40, 2)), rng.normal(size=(3, 2)) * 5 + 30])
    y = np.array([0] * 40 + [1] * 3)
    X[42] = X[0] + 0.01  # In the middle of another class.
    model = NCA(objective="log", n_neighbors=4, l2=0.01).fit(X, y)
    assert np.isfinite(model.objective_)
    lists = np.array([[1, 2], [0, 2], [0, 1], [0, 1]])
    Z = np.array([[0.0], [1.0], [2.0], [9.0], [8.0]])
    lists = np.vstack([lists, [3, 2]])
    module._add_own_class(lists, Z, np.array([0, 0, 1, 1, 1]))
    assert lists.tolist() == [[1, 2], [0, 2], [0, 4], [0, 4], [3, 2]]


def test_restarts_keep_the_best():
    X, y = WINE
    one = NCA(1, init="random", random_state=3).fit(X, y)
    many = NCA(1, init="random", random_state=3, n_init=4).fit(X, y)
    assert many.objective_ >= one.objective_
    again = NCA(1, init="random", random_state=3, n_init=4).fit(X, y)
    np.testing.assert_array_equal(many.components_, again.components_)


def test_a_warm_start_goes_on():
    X, y = WINE
    with pytest.warns(ConvergenceWarning, match="NCA did not converge in 3 iterations"):
        model = NCA(2, max_iter=3, l2=1e-3, warm_start=True).fit(X, y)
    first = model.objective_
    model.set_params(max_iter=100).fit(X, y)
    assert model.objective_ > first
    cold = NCA(2, l2=1e-3).fit(X, y)
    assert model.history_["objective"][0] > cold.history_["objective"][0]


def test_an_interrupted_fit_leaves_the_best_so_far():
    X, y = WINE
    model = NCA(2, n_init=3)

    def stop(iteration, state):
        if iteration == 5:
            raise KeyboardInterrupt

    model.callback = stop
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.n_iter_ == 5 and np.isfinite(model.transform(X)).all()


def test_threads_agree():
    X, y = load_digits(return_X_y=True)
    X, y = X[:550], y[:550]
    one, two = NCA(3, l2=1e-2).fit(X, y), NCA(3, l2=1e-2, n_jobs=2).fit(X, y)
    assert two.objective_ == pytest.approx(one.objective_, rel=1e-3)


def test_units_change_no_neighbour():
    X, y = IRIS
    reference = NCA(l2=0.01).fit(X, y)
    for scale in (1e-8, 1e8, [1e-3, 1, 1e3, 1]):
        other = NCA(l2=0.0 if np.ndim(scale) else 0.01).fit(X * scale, y)
        if np.ndim(scale):  # The penalty weights all features equally.
            reference = NCA().fit(X, y)
        wanted = np.linalg.norm(reference.transform(X)[:, None] - reference.transform(X), axis=2)
        found = other.transform(X * scale)
        found = np.linalg.norm(found[:, None] - found, axis=2)
        np.testing.assert_allclose(found, wanted, atol=1e-3 * wanted.max())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X: np.column_stack([X, np.ones(len(X)), X[:, 0]]),
        lambda X: np.hstack([X, np.random.default_rng(0).normal(size=(len(X), 80))]),
    ],
    ids=["constant and duplicated columns", "fewer rows than features"],
)
@pytest.mark.parametrize("kind", ["sum", "log"])
def test_singular_data_give_finite_maps(spoil, kind):
    X, y = IRIS
    X, y = spoil(X[::3]), y[::3]
    model = NCA(objective=kind).fit(X, y)
    assert np.isfinite(model.components_).all() and np.isfinite(model.objective_)
    assert model.components_.shape[1] == X.shape[1]


def test_a_class_of_one_counts_nothing():
    X, y = IRIS
    y = np.append(y[:-1], 7)
    model = NCA().fit(X, y)
    assert model.objective_ <= 149
    assert np.isfinite(NCA(objective="log").fit(X, y).objective_)
    with pytest.raises(ValueError, match="NCA needs a class with at least two points"):
        NCA().fit(X[:5], np.arange(5))
    with pytest.raises(ValueError, match="NCA needs at least 2 classes"):
        NCA().fit(X, np.zeros(150))


def test_too_many_components_are_refused():
    with pytest.raises(ValueError, match="n_components=9 is more than the 4 features"):
        NCA(9).fit(*IRIS)


@pytest.mark.filterwarnings("ignore")
def test_the_number_of_components_is_the_one_requested():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(7, 11)), [0, 1, 0, 1, 0, 1, 0]
    shapes = [NCA(q, init=i).fit(X, y).components_.shape for q in (9, 11) for i in ("auto", "pca")]
    assert shapes == [(9, 11)] * 2 + [(11, 11)] * 2
    # A square map has a row for each of the 6 directions in which 7 rows vary.
    square, padded = NCA().fit(X, y).components_, NCA(11).fit(X, y).components_
    np.testing.assert_allclose(padded, np.vstack([square, np.zeros((5, 11))]), atol=1e-12)
    X = rng.normal(size=(40, 3)) * [1, 0, 1]  # a constant feature
    assert NCA(3).fit(X, np.arange(40) % 2).components_.shape == (3, 3)
