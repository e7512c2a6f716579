"""Cross-validation with supervision, and failures of scikit-learn's own function."""

import numpy as np
import pytest
import sklearn
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.model_selection import cross_validate as sklearn_cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LDA, RCA, Chunklets, KNNClassifier, Pairs, Quadruplets, Triplets
from nearfar.evaluation import cross_validate

WINE, WINE_Y = load_wine(return_X_y=True)
KNOWN = Chunklets.from_labels(WINE_Y, n_chunklets=25, chunklet_size=4, random_state=0)


class Recorder(ClassifierMixin, BaseEstimator):
    """An estimator that stores the arguments of each fit."""

    seen: list = []

    def fit(self, X, y, *, supervision=None):
        self.classes_ = np.unique(y)
        Recorder.seen.append((np.asarray(X).copy(), supervision))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


@pytest.fixture
def seen():
    Recorder.seen = []
    return Recorder.seen


@pytest.mark.parametrize("kind", ["pairs", "triplets", "quadruplets", "chunklets"])
def test_each_fold_gets_its_own_constraints_between_the_same_points(kind, seen):
    X = np.arange(40.0)[:, None]
    y = np.arange(40) % 2
    supervision = {
        "pairs": Pairs.from_labels(y, n_similar=60, n_dissimilar=60, random_state=0),
        "triplets": Triplets.from_labels(y, n_triplets=90, random_state=0),
        "quadruplets": Quadruplets.from_labels(y, n_quadruplets=90, random_state=0),
        "chunklets": Chunklets.from_labels(y, n_chunklets=10, chunklet_size=3, random_state=0),
    }[kind]
    cross_validate(Recorder(), X, y, supervision=supervision, cv=KFold(4))
    assert len(seen) == 4
    for rows, restricted in seen:
        assert restricted.n_samples == len(rows) == 30
        names = rows[:, 0].astype(int)  # the value of a row is its number in X
        if kind == "pairs":
            kept = {tuple(pair) for pair in names[restricted.similar].tolist()}
            whole = {tuple(pair) for pair in supervision.similar.tolist()}
            inside = {pair for pair in whole if set(pair) <= set(names.tolist())}
            assert kept == inside and 0 < len(kept) < len(whole)
        elif kind == "triplets":
            anchor, near, far = y[names[restricted.indices]].T
            assert (anchor == near).all() and (anchor != far).all()
        elif kind == "quadruplets":
            a, b, c, d = y[names[restricted.indices]].T
            assert (a == b).all() and (c != d).all()
            assert 0 < len(a) < 90
        else:
            np.testing.assert_array_equal(restricted.labels, supervision.labels[names])


def test_scores_equal_those_of_a_loop_by_hand():
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_validate(RCA(), WINE, WINE_Y, supervision=KNOWN, cv=folds)["test_score"]
    by_hand = []
    for train, test in folds.split(WINE, WINE_Y):
        rca = RCA().fit(WINE[train], supervision=KNOWN.labels[train])
        knn = KNNClassifier().fit(rca.transform(WINE[train]), WINE_Y[train])
        by_hand.append(knn.score(rca.transform(WINE[test]), WINE_Y[test]))
    np.testing.assert_allclose(scores, by_hand)
    assert scores.mean() > 0.9 > cross_validate(KNNClassifier(), WINE, WINE_Y)["test_score"].mean()


def test_without_supervision_it_is_scikit_learns():
    X, y = load_iris(return_X_y=True)
    folds = StratifiedKFold(4, shuffle=True, random_state=1)
    ours = cross_validate(KNNClassifier(LDA()), X, y, cv=folds, scoring=["accuracy", "f1_macro"])
    theirs = sklearn_cross_validate(
        KNNClassifier(LDA()), X, y, cv=folds, scoring=["accuracy", "f1_macro"]
    )
    for name in ("test_accuracy", "test_f1_macro"):
        np.testing.assert_allclose(ours[name], theirs[name])
    assert {"fit_time", "score_time"} <= set(ours)


def test_pipeline_routes_supervision_to_the_step_that_asks_for_it():
    with sklearn.config_context(enable_metadata_routing=True):
        rca = RCA().set_fit_request(supervision=True)
        knn = KNNClassifier().set_fit_request(supervision=False)
        pipeline = make_pipeline(StandardScaler(), rca, knn)
        result = cross_validate(
            pipeline, WINE, WINE_Y, supervision=KNOWN, cv=3, return_estimator=True
        )
    assert result["test_score"].mean() > 0.9
    for fitted in result["estimator"]:
        # The learner used the 25 chunklets (fewer in a fold), not the three classes.
        assert fitted[1].statistics_.n_classes > 3


def test_pipeline_fit_with_metadata_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), RCA().set_fit_request(supervision=True))
        mapped = pipeline.fit(WINE, supervision=KNOWN).transform(WINE)
    scaled = StandardScaler().fit_transform(WINE)
    np.testing.assert_allclose(mapped, RCA().fit(scaled, supervision=KNOWN).transform(scaled))


def test_naive_slicing_1_indices_that_outlive_their_rows_are_refused():
    # scikit-learn passes the object to each fold unchanged, so its indices refer to other rows.
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.raises(ValueError, match=r"178 samples but X has 14\d rows.*cross_validate"),
    ):
        sklearn_cross_validate(
            KNNClassifier(RCA()).set_fit_request(supervision=True),
            WINE,
            WINE_Y,
            params={"supervision": KNOWN},
            error_score="raise",
        )


def test_naive_slicing_2_an_array_of_as_many_pairs_as_rows_is_sliced_like_rows(seen):
    # scikit-learn would slice an array of pairs by row index, without an error.
    X, y = np.arange(40.0)[:, None], np.arange(40) % 2
    pairs = Pairs.from_labels(y, n_similar=40, n_dissimilar=1, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        recorder = Recorder().set_fit_request(supervision=True)
        sklearn_cross_validate(recorder, X, y, cv=KFold(4), params={"supervision": pairs.similar})
        mangled = [len(given) for _, given in seen]
        seen.clear()
        sklearn_cross_validate(recorder, X, y, cv=KFold(4), params={"supervision": pairs})
    assert mangled == [30, 30, 30, 30]  # a quarter of the pairs lost, the rest renumbered wrongly
    assert all(given is pairs for _, given in seen)  # the class is never sliced


def test_vector_of_chunklets_slices_like_labels():
    with sklearn.config_context(enable_metadata_routing=True):
        theirs = sklearn_cross_validate(
            KNNClassifier(RCA()).set_fit_request(supervision=True),
            WINE,
            WINE_Y,
            cv=3,
            params={"supervision": KNOWN.labels},
        )["test_score"]
    ours = cross_validate(RCA(), WINE, WINE_Y, supervision=KNOWN.labels, cv=3)["test_score"]
    np.testing.assert_allclose(ours, theirs)


def test_supervision_of_another_length_is_refused_at_once():
    with pytest.raises(ValueError, match="178 samples but X has 150 rows"):
        cross_validate(RCA(), *load_iris(return_X_y=True), supervision=KNOWN)


def test_groups_frames_and_parallel_folds():
    pd = pytest.importorskip("pandas")
    groups = np.arange(len(WINE)) % 6
    frame = pd.DataFrame(WINE).add_prefix("f")
    one = cross_validate(
        RCA(), frame, pd.Series(WINE_Y), supervision=KNOWN, groups=groups, cv=GroupKFold(3)
    )
    # Use multiprocessing, which forks where possible: other workers import everything again.
    with parallel_config(backend="multiprocessing"):
        two = cross_validate(
            RCA(), WINE, WINE_Y, supervision=KNOWN, groups=groups, cv=GroupKFold(3), n_jobs=2
        )
    np.testing.assert_allclose(one["test_score"], two["test_score"])


@pytest.mark.parametrize("routing", [False, True])
def test_settings_of_the_user_hold_inside_the_folds(routing):
    def settings(estimator, X, y):
        return sklearn.get_config()["working_memory"]

    class Watch(Recorder):
        def fit(self, X, y):
            Recorder.seen.append(sklearn.get_config()["enable_metadata_routing"])
            return super().fit(X, y)

    Recorder.seen = []
    with sklearn.config_context(enable_metadata_routing=routing, working_memory=7):
        cross_validate(Watch(), WINE, WINE_Y, cv=3)
        scores = cross_validate(KNNClassifier(), WINE, WINE_Y, cv=3, n_jobs=2, scoring=settings)[
            "test_score"
        ]
    assert Recorder.seen[::2] == [routing] * 3
    assert (scores == 7).all()
