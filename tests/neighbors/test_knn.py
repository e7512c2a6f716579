"""KNNClassifier and its treatment of ties."""

import numpy as np
import pytest
from quick import quick
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_predict, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from nearfar import LDA, LMNN, PCA, RCA, KNNClassifier, all_learners
from nearfar.base.voter import compute_vote_fractions, find_nearest, vote, vote_by_k


def shrinking_vote(labels):
    """Return the vote of Weinberger (2007) for one query, with labels sorted by distance."""
    for k in range(len(labels), 0, -1):
        values, counts = np.unique(labels[:k], return_counts=True)
        winners = values[counts == counts.max()]
        if len(winners) == 1:
            return winners[0]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8])
def test_vote_shrinks_k_until_one_class_leads(k):
    codes = np.random.default_rng(k).integers(0, 4, size=(500, k))
    wanted = [shrinking_vote(row) for row in codes]
    np.testing.assert_array_equal(vote(codes, 4, "shrink"), wanted)
    shares = compute_vote_fractions(codes, 4, "shrink")
    np.testing.assert_array_equal(shares.argmax(axis=1), wanted)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    by_k = vote_by_k(codes, 4)
    assert by_k.shape == (500, k)
    np.testing.assert_array_equal(by_k[:, -1], wanted)


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_the_nearest_are_those_of_a_stable_sort(levels):
    """Values with few levels give many ties, also at the k-th place."""
    random = np.random.default_rng(levels)
    for n, k in [(1, 1), (5, 5), (40, 1), (40, 3), (40, 10), (40, 11), (300, 15)]:
        D = random.integers(0, levels, size=(50, n)).astype(float)
        D[random.random(D.shape) < 0.2] = np.inf
        D[0], D[1, : n // 2] = np.inf, np.nan
        order = np.argsort(D, axis=1, kind="stable")[:, :k]
        distances, found = find_nearest(D, k)
        np.testing.assert_array_equal(found, order)
        np.testing.assert_array_equal(distances, np.take_along_axis(D, order, axis=1))


def test_a_tie_goes_to_the_nearer_class_and_not_to_the_smaller_label():
    # Both classes have two votes. Dropping the farthest neighbor decides for class 1. The test
    # catches an arbitrary choice, such as the smallest label.
    codes = np.array([[1, 0, 1, 0]])
    assert vote(codes, 2, "shrink")[0] == 1
    assert vote(codes, 2, "first")[0] == 0


@pytest.mark.parametrize("k", [1, 3, 4])
def test_first_is_the_rule_of_scikit_learn(k):
    X, y = load_digits(return_X_y=True)
    X = X + np.random.default_rng(0).normal(scale=1e-3, size=X.shape)  # No two distances are equal.
    theirs = KNeighborsClassifier(k).fit(X[:900], y[:900])
    ours = KNNClassifier(n_neighbors=k, ties="first").fit(X[:900], y[:900])
    np.testing.assert_array_equal(ours.predict(X[900:]), theirs.predict(X[900:]))
    np.testing.assert_allclose(ours.predict_proba(X[900:]), theirs.predict_proba(X[900:]))


@pytest.mark.parametrize("k", [1, 3, 4])
def test_leave_one_out_error_equals_refitting_n_times(k):
    X, y = load_iris(return_X_y=True)
    X, y = X[::2], y[::2]
    knn = KNNClassifier(n_neighbors=k).fit(X, y)
    predicted = cross_val_predict(KNNClassifier(n_neighbors=k), X, y, cv=LeaveOneOut())
    assert knn.leave_one_out_error() == pytest.approx(np.mean(predicted != y))
    # This catches a point that votes for itself.
    assert KNNClassifier(n_neighbors=1).fit(X, y).score(X, y) == 1.0
    assert KNNClassifier(n_neighbors=1).fit(X, y).leave_one_out_error() > 0


def test_duplicates_vote_in_leave_one_out():
    X = np.repeat([[0.0], [10.0]], 2, axis=0)
    assert KNNClassifier(n_neighbors=1).fit(X, [0, 0, 1, 1]).leave_one_out_error() == 0
    assert KNNClassifier(n_neighbors=1).fit(X, [0, 1, 0, 1]).leave_one_out_error() == 1


@pytest.mark.by_turns(2)
@pytest.mark.parametrize(
    "name", [name for name, cls in all_learners().items() if cls.learner_tags.input == "vectors"]
)
def test_any_learner_goes_first(name):
    X, y = (array[::2] for array in load_wine(return_X_y=True))
    learner = quick(name)
    knn = KNNClassifier(learner).fit(X, y)
    inside = KNNClassifier().fit(learner.fit(X, y).transform(X), y)
    np.testing.assert_array_equal(knn.predict(X), inside.predict(learner.transform(X)))
    assert knn.n_features_in_ == 13


def test_pipeline_and_grid_search():
    X, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LDA(), KNNClassifier())
    assert cross_val_score(pipeline, X, y, cv=5).mean() > 0.95
    grid = {"estimator": [PCA(2), RCA()], "n_neighbors": [1, 5]}
    search = GridSearchCV(KNNClassifier(), grid, cv=3).fit(X, y)
    assert isinstance(search.best_params_["estimator"], RCA)
    nested = {"estimator__push_weight": [0.3, 0.5]}
    search = GridSearchCV(KNNClassifier(LMNN(max_iter=20, tol=1e-2)), nested, cv=2).fit(X, y)
    assert search.best_score_ > 0.9


def test_learner_given_is_not_touched():
    X, y = load_iris(return_X_y=True)
    learner = LDA()
    KNNClassifier(learner).fit(X, y)
    assert not hasattr(learner, "statistics_")


def test_frames_and_string_labels():
    pd = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    knn = KNNClassifier(LDA()).fit(X, pd.Series(names, dtype="category"))
    assert knn.predict(X.iloc[:2]).tolist() == ["setosa", "setosa"]
    assert list(knn.feature_names_in_) == list(X.columns)


def test_offset_costs_no_neighbour():
    X, y = load_iris(return_X_y=True)
    near, _ = KNNClassifier().fit(X[::2], y[::2]).kneighbors(X[1::2])
    far, _ = KNNClassifier().fit(X[::2] + 2.0**20, y[::2]).kneighbors(X[1::2] + 2.0**20)
    np.testing.assert_allclose(far, near, atol=1e-8)


@pytest.mark.parametrize(
    ("knn", "message"),
    [
        (KNNClassifier(n_neighbors=9), r"n_neighbors=9 is larger than .* \(n_samples=4\)"),
        (KNNClassifier(n_neighbors=0), "n_neighbors must be an integer of at least 1; got 0"),
        (KNNClassifier(ties="random"), "ties must be 'shrink' or 'first'; got 'random'"),
        (KNNClassifier(estimator=3), "estimator must be None, or a learner with fit and transform"),
    ],
)
def test_errors_name_the_argument(knn, message):
    with pytest.raises(ValueError, match=message):
        knn.fit(np.eye(4), [0, 0, 1, 1])


def test_supervision_needs_a_learner():
    with pytest.raises(ValueError, match="supervision is passed to estimator"):
        KNNClassifier().fit(np.eye(4), [0, 0, 1, 1], supervision=[0, 0, 1, 1])


@pytest.mark.parametrize(
    ("transformer", "X", "error", "message"),
    [
        (OneHotEncoder(), [[0], [1], [2], [3]], TypeError, "transform returned a sparse matrix"),
        (
            StandardScaler(),
            [[0.0], [1.0], [np.nan], [3.0]],
            ValueError,
            "output of StandardScaler.transform contains NaN",
        ),
    ],
)
def test_what_a_transformer_returns_is_checked(transformer, X, error, message):
    with pytest.raises(error, match=message):
        KNNClassifier(transformer).fit(X, [0, 0, 1, 1])


def test_integers_from_a_transformer_will_do():
    X = np.array([[0], [1], [8], [9]])
    knn = KNNClassifier(OrdinalEncoder(dtype=int), n_neighbors=1).fit(X, [0, 0, 1, 1])
    assert knn.predict(X).tolist() == [0, 0, 1, 1]


def test_a_fit_that_failed_is_no_fit():
    knn = KNNClassifier(n_neighbors=9)
    with pytest.raises(ValueError, match="n_neighbors=9"):
        knn.fit(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(NotFittedError):
        knn.predict(np.eye(4))
