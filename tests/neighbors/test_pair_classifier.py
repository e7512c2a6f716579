"""PairClassifier: learners, thresholds, and use with scikit-learn."""

import pickle

import numpy as np
import pytest
import sklearn
from quick import quick
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA as PlainPCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics import fbeta_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import (
    LDA,
    LMNN,
    PCA,
    RCA,
    Chunklets,
    Euclidean,
    KernelLMNN,
    PairClassifier,
    Pairs,
    Quadruplets,
    Triplets,
    all_estimators,
    load,
    save,
)
from nearfar.base import ConstraintLearner, LearnerTags, LinearLearner
from nearfar.evaluation import PairKFold, pair_scores
from nearfar.neighbors.pair_classifier import find_best_threshold

X, Y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)
KNOWN = Pairs.from_labels(Y, n_similar=120, n_dissimilar=150, random_state=0)
PAIRS, SIGN = KNOWN.to_arrays(X)


class OfPairs(ConstraintLearner):
    """Learner that weights features by the differences of dissimilar relative to similar pairs."""

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "pairs"))
    parameters = {}

    def _draw_supervision(self, y):
        return Pairs.from_labels(y, random_state=0)

    def _learn(self, rows, guide):
        self.guide_ = guide
        spread = [
            np.mean((rows[pairs[:, 0]] - rows[pairs[:, 1]]) ** 2, axis=0)
            for pairs in (guide.similar, guide.dissimilar)
        ]
        self.components_ = np.diag(np.sqrt(spread[1] / spread[0]))


class OfQuadruplets(OfPairs):
    """The same learner for quadruplets."""

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "quadruplets"))
    supervision_class = Quadruplets

    def _learn(self, rows, guide):
        self.guide_ = guide
        self.components_ = np.eye(rows.shape[1])


def euclidean(pairs=PAIRS):
    return np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)


# ---------------------------------------------------------------------- learners


def test_alone_it_takes_the_euclidean_distance():
    same = PairClassifier().fit(PAIRS, SIGN)
    assert same.estimator_ is None
    np.testing.assert_allclose(same.decision_function(PAIRS), -euclidean())
    np.testing.assert_array_equal(
        same.predict(PAIRS), np.where(euclidean() <= same.threshold_, 1, -1)
    )
    assert same.score(PAIRS, SIGN) == pytest.approx(roc_auc_score(SIGN, -euclidean()))


def test_a_learner_of_pairs_gets_the_points_and_pairs():
    same = PairClassifier(OfPairs()).fit(PAIRS, SIGN)
    points, pairs = Pairs.from_arrays(PAIRS, SIGN)
    wanted = OfPairs().fit(points, supervision=pairs)
    assert same.estimator_.guide_ == pairs
    np.testing.assert_array_equal(same.estimator_.components_, wanted.components_)
    np.testing.assert_allclose(same.pair_distance(PAIRS), wanted.pair_distance(PAIRS))
    assert same.score(PAIRS, SIGN) > PairClassifier().fit(PAIRS, SIGN).score(PAIRS, SIGN)


def test_a_learner_of_chunklets_gets_those_that_similar_pairs_connect():
    same = PairClassifier(RCA()).fit(PAIRS, SIGN)
    points, pairs = Pairs.from_arrays(PAIRS, SIGN)
    wanted = RCA().fit(points, supervision=Chunklets.from_pairs(pairs))
    np.testing.assert_array_equal(same.estimator_.components_, wanted.components_)


def test_a_learner_of_comparisons_gets_similar_pairs_against_dissimilar_ones():
    same = PairClassifier(OfQuadruplets()).fit(PAIRS, SIGN)
    points, pairs = Pairs.from_arrays(PAIRS, SIGN)
    assert same.estimator_.guide_ == Quadruplets.from_pairs(pairs, random_state=0)
    by_triplets = PairClassifier(LMNN(max_iter=3, tol=1.0)).fit(PAIRS, SIGN)
    wanted = LMNN(max_iter=3, tol=1.0).fit(
        points, supervision=Triplets.from_pairs(pairs, random_state=0)
    )
    np.testing.assert_array_equal(by_triplets.estimator_.components_, wanted.components_)


@pytest.mark.parametrize(
    "learner", [Euclidean(), PCA(3), PlainPCA(3)], ids=["ours", "PCA", "theirs"]
)
def test_what_needs_no_supervision_gets_the_points(learner):
    same = PairClassifier(learner).fit(PAIRS, SIGN)
    points, _ = Pairs.from_arrays(PAIRS, SIGN)
    mapped = same.estimator_.transform(PAIRS.reshape(-1, 13)).reshape(len(PAIRS), 2, -1)
    np.testing.assert_allclose(same.pair_distance(PAIRS), euclidean(mapped), rtol=1e-9)
    assert len(points) == len(np.unique(PAIRS.reshape(-1, 13), axis=0))


def test_a_learner_with_a_kernel_is_taken_through_its_map():
    kernel = KernelLMNN(estimator=LMNN(max_iter=5, tol=1.0)).fit(X, Y)
    assert not isinstance(kernel, LinearLearner)
    same = PairClassifier(kernel, prefit=True).fit(PAIRS, SIGN)
    mapped = kernel.transform(PAIRS.reshape(-1, 13)).reshape(len(PAIRS), 2, -1)
    np.testing.assert_allclose(same.pair_distance(PAIRS), euclidean(mapped), rtol=1e-9)
    assert same.score(PAIRS, SIGN) > 0.9


@pytest.mark.parametrize("routing", [False, True])
def test_a_pipeline_hands_pairs_to_its_last_step(routing):
    raw = load_wine().data
    pairs, sign = KNOWN.to_arrays(raw)
    with sklearn.config_context(enable_metadata_routing=routing):
        same = PairClassifier(make_pipeline(StandardScaler(), OfPairs())).fit(pairs, sign)
    points, indices = Pairs.from_arrays(pairs, sign)
    scaler = StandardScaler().fit(points)
    wanted = OfPairs().fit(scaler.transform(points), supervision=indices)
    scaled = scaler.transform(pairs.reshape(-1, 13)).reshape(pairs.shape)
    np.testing.assert_allclose(same.pair_distance(pairs), wanted.pair_distance(scaled))
    alone = PairClassifier(make_pipeline(OfPairs())).fit(pairs, sign)
    np.testing.assert_allclose(
        alone.pair_distance(pairs), OfPairs().fit(points, supervision=indices).pair_distance(pairs)
    )


def test_a_learner_of_labels_alone_raises_and_may_come_fitted():
    with pytest.raises(
        ValueError, match=r"LDA needs labels, which cannot be derived from pairs.*prefit"
    ):
        PairClassifier(LDA()).fit(PAIRS, SIGN)
    lda = LDA().fit(X, Y)
    same = PairClassifier(lda, prefit=True).fit(PAIRS, SIGN)
    assert same.estimator_ is lda
    assert same.score(PAIRS, SIGN) > 0.95
    with pytest.raises(NotFittedError):
        PairClassifier(LDA(), prefit=True).fit(PAIRS, SIGN)


GUIDED = [
    name
    for name, kind in all_estimators(role="map", input="vectors").items()
    if {"pairs", "triplets", "quadruplets", "chunklets"} & set(kind.learner_tags.supervision)
]


@pytest.mark.parametrize("name", GUIDED)
@pytest.mark.filterwarnings("ignore")
def test_every_learner_of_pairs_or_what_they_give_is_taken(name, tmp_path):
    same = PairClassifier(quick(name)).fit(PAIRS[::3], SIGN[::3])
    assert same.score(PAIRS[1::3], SIGN[1::3]) > 0.65
    learned = pair_scores(same.estimator_, PAIRS, SIGN)["roc_auc"]
    assert learned == pytest.approx(same.score(PAIRS, SIGN))
    save(same, tmp_path / "m.nf")
    np.testing.assert_array_equal(load(tmp_path / "m.nf").predict(PAIRS), same.predict(PAIRS))


def test_the_learner_given_is_not_touched():
    learner = OfPairs()
    PairClassifier(learner).fit(PAIRS, SIGN)
    assert not hasattr(learner, "components_")


# ---------------------------------------------------------------------- thresholds


def by_brute_force(distances, alike, worth):
    """Return the best value over thresholds between all distances."""
    levels = np.unique(distances)
    tried = np.concatenate([[-1.0], levels, (levels[1:] + levels[:-1]) / 2])
    return max(worth(distances <= threshold, alike) for threshold in tried)


def rate(called, wanted):
    return np.mean(called[wanted])


WORTHS = {
    "accuracy": ({}, lambda called, alike: np.mean(called == alike)),
    "f_beta": ({}, lambda called, alike: fbeta_score(alike, called, beta=1, zero_division=0)),
    "f_2": (
        {"strategy": "f_beta", "beta": 2.0},
        lambda called, alike: fbeta_score(alike, called, beta=2, zero_division=0),
    ),
    "max_tpr": (
        {"min_rate": 0.7},
        lambda called, alike: rate(called, alike) if rate(~called, ~alike) >= 0.7 else -1,
    ),
    "max_tnr": (
        {"min_rate": 0.7},
        lambda called, alike: rate(~called, ~alike) if rate(called, alike) >= 0.7 else -1,
    ),
}


@pytest.mark.parametrize("name", WORTHS)
@pytest.mark.parametrize("seed", range(8))
def test_no_threshold_is_better_than_the_one_found(name, seed):
    options, worth = WORTHS[name]
    options = {"strategy": name} | options
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    alike = np.append([True, False], rng.random(n) < rng.random())
    # The distances have ties and zeros, and some similar pairs are far apart.
    distances = rng.integers(0, 12, n + 2) / 4 + 0.5 * ~alike * rng.integers(0, 2)
    found = find_best_threshold(distances, alike, **options)
    assert worth(distances <= found, alike) == pytest.approx(
        by_brute_force(distances, alike, worth)
    )


def test_a_threshold_lies_between_the_distances_it_parts():
    distances, alike = np.array([0.0, 1.0, 2.0, 4.0]), np.array([True, True, False, False])
    assert find_best_threshold(distances, alike, "accuracy") == 1.5
    assert (
        find_best_threshold(distances, ~alike, "max_tnr", min_rate=0.0) == -1.0
    )  # No pair is similar.
    near = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert find_best_threshold(near, np.array([True, False]), "accuracy") == 1.0
    tiny = np.array([0.0, 5e-324])
    assert find_best_threshold(tiny, np.array([True, False]), "accuracy") == 0.0


def test_of_equal_cuts_the_one_that_also_finds_most_of_the_others_is_taken():
    distances, alike = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([1, 1, 0, 0, 0], bool)
    assert find_best_threshold(distances, alike, "max_tpr", min_rate=0.3) == 2.5
    assert find_best_threshold(distances, alike, "max_tnr", min_rate=0.5) == 2.5


def test_thresholds_are_set_and_calibrated_on_other_pairs():
    same = PairClassifier().fit(PAIRS[::2], SIGN[::2])
    first = same.threshold_
    same.calibrate_threshold(PAIRS[1::2], SIGN[1::2], strategy="max_tnr", min_rate=0.9)
    called = same.predict(PAIRS[1::2])
    assert np.mean(called[SIGN[1::2] == 1] == 1) >= 0.9
    assert same.threshold_ != first
    assert same.get_params()["strategy"] == "accuracy"  # Parameters do not change.
    assert same.calibrate_threshold(PAIRS[::2], SIGN[::2]).threshold_ == first
    assert same.set_threshold(2).threshold_ == 2.0
    np.testing.assert_array_equal(same.predict(PAIRS), np.where(euclidean() <= 2, 1, -1))


def test_strategies_of_the_constructor_hold():
    same = PairClassifier(strategy="max_tpr", min_rate=0.95).fit(PAIRS, SIGN)
    assert np.mean(same.predict(PAIRS)[SIGN == -1] == -1) >= 0.95
    wide = PairClassifier(strategy="f_beta", beta=5.0).fit(PAIRS, SIGN)
    narrow = PairClassifier(strategy="f_beta", beta=0.2).fit(PAIRS, SIGN)
    assert wide.threshold_ > narrow.threshold_


# ---------------------------------------------------------------------- use with scikit-learn


def test_it_is_chosen_and_tuned_like_any_classifier():
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(PairClassifier(OfPairs()), PAIRS, SIGN, cv=folds, error_score="raise")
    for (train, test), score in zip(folds.split(PAIRS, SIGN), scores, strict=True):
        by_hand = PairClassifier(OfPairs()).fit(PAIRS[train], SIGN[train])
        assert score == pytest.approx(
            roc_auc_score(SIGN[test], -by_hand.pair_distance(PAIRS[test]))
        )
    for scoring in ("roc_auc", "accuracy", "average_precision", "f1"):
        found = cross_val_score(PairClassifier(RCA()), PAIRS, SIGN, cv=folds, scoring=scoring)
        assert found.mean() > 0.6
    search = GridSearchCV(
        PairClassifier(RCA()),
        {"estimator__shrinkage": [0.0, 1.0], "strategy": ["accuracy", "f_beta"]},
        cv=PairKFold(3, random_state=0),
        error_score="raise",
    ).fit(PAIRS, SIGN)
    assert search.score(PAIRS, SIGN) > 0.8
    assert search.predict(PAIRS[:2]).shape == (2,)


@pytest.mark.parametrize(
    "estimator",
    [None, RCA(), PCA(2), make_pipeline(StandardScaler(), RCA())],
    ids=["plain", "RCA", "PCA", "pipeline"],
)
def test_model_files_and_pickles_keep_it(estimator, tmp_path):
    same = PairClassifier(estimator).fit(PAIRS, SIGN).set_threshold(1.25)
    save(same, tmp_path / "m.nf")
    for twin in (load(tmp_path / "m.nf"), pickle.loads(pickle.dumps(same))):
        assert twin.threshold_ == 1.25
        np.testing.assert_array_equal(twin.decision_function(PAIRS), same.decision_function(PAIRS))
        np.testing.assert_array_equal(twin.predict(PAIRS), same.predict(PAIRS))


def test_model_files_keep_a_learner_that_came_fitted(tmp_path):
    same = PairClassifier(LDA().fit(X, Y), prefit=True).fit(PAIRS, SIGN)
    save(same, tmp_path / "m.nf")
    np.testing.assert_array_equal(load(tmp_path / "m.nf").predict(PAIRS), same.predict(PAIRS))


def test_the_registry_finds_it_by_what_it_takes():
    assert "PairClassifier" in all_estimators(input="pairs")


def test_iris_with_its_equal_rows():
    data, labels = load_iris(return_X_y=True)
    pairs, sign = Pairs.from_labels(labels, random_state=0).to_arrays(data)
    twins = data[[[101, 142]]]
    same = PairClassifier(RCA()).fit(np.vstack([pairs, twins]), np.append(sign, 1))
    assert same.predict(twins).tolist() == [1]
    assert same.score(pairs, sign) > 0.9


# ---------------------------------------------------------------------- bad input


def both_ways():
    return np.concatenate([PAIRS, PAIRS[:1, ::-1]]), np.append(SIGN, -SIGN[0])


def test_pairs_said_both_ways_raise_where_they_are_learned_from():
    pairs, sign = both_ways()
    with pytest.raises(
        ValueError,
        match=r"cannot be both similar and dissimilar; pass conflicts=.*Pairs.from_arrays",
    ):
        PairClassifier(OfPairs()).fit(pairs, sign)
    # A threshold alone accepts contradictory pairs.
    for model in (
        PairClassifier(),
        PairClassifier(PCA(3)),
        PairClassifier(LDA().fit(X, Y), prefit=True),
    ):
        assert 0 < model.fit(pairs, sign).score(pairs, sign) < 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda c: c.predict(PAIRS[:, :, :4]),
            "pairs has points with 4 features, but .* expecting 13",
        ),
        (
            lambda c: c.predict(PAIRS[0]),
            r"pairs should have shape \(m, 2, p\); got shape \(2, 13\)",
        ),
        (lambda c: c.score(PAIRS, SIGN[:-1]), r"y should have shape \(270,\)"),
        (lambda c: c.score(PAIRS[:3], [1, 1, 1]), r"y has only one class \(1\)"),
        (lambda c: c.calibrate_threshold(PAIRS, -np.ones(270)), r"y has only one class \(-1\)"),
        (
            lambda c: c.calibrate_threshold(PAIRS, SIGN, strategy="best"),
            "strategy must be 'accuracy'",
        ),
        (lambda c: c.calibrate_threshold(PAIRS, SIGN, beta=0.0), "beta must be a number above 0"),
        (
            lambda c: c.calibrate_threshold(PAIRS, SIGN, strategy="max_tnr"),
            r"strategy='max_tnr' needs min_rate, but got None\. Pass the fraction of similar pairs",
        ),
        (lambda c: c.calibrate_threshold(PAIRS, SIGN, min_rate=1.5), "min_rate must be None, or"),
        (lambda c: c.set_threshold("far"), "threshold must be a number; got 'far'"),
        (lambda c: c.set_threshold(np.nan), "threshold must be a number; got nan"),
        (
            lambda c: c.set_params(strategy="max_tpr").fit(PAIRS, SIGN),
            "needs min_rate, .* dissimilar pairs",
        ),
        (lambda c: c.fit(PAIRS, (SIGN > 0) * 1), r"y row \d+: 0 is neither \+1 nor -1.*2 \* y - 1"),
        (
            lambda c: c.fit(1e200 * PAIRS, SIGN),
            r"pairs: the largest absolute value is .* overflow",
        ),
    ],
)
def test_bad_input_raises_in_words(call, message):
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match=message),
    ):
        call(PairClassifier().fit(PAIRS, SIGN))


def test_nothing_works_before_fit():
    for call in (
        lambda c: c.predict(PAIRS),
        lambda c: c.set_threshold(1.0),
        lambda c: c.calibrate_threshold(PAIRS, SIGN),
        lambda c: c.score(PAIRS, SIGN),
    ):
        with pytest.raises(NotFittedError):
            call(PairClassifier())
