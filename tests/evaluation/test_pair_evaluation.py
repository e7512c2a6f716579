"""Scores of pairs and comparisons, and folds that share no points."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LDA, PairClassifier, Pairs, Quadruplets, Triplets
from nearfar.evaluation import PairKFold, comparison_accuracy, pair_scores

X, Y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)
KNOWN = Pairs.from_labels(Y, n_similar=200, n_dissimilar=250, random_state=0)
PAIRS, SIGN = KNOWN.to_arrays(X)
LEARNED = LDA().fit(X, Y)


# ---------------------------------------------------------------------- pairs


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn_and_of_trying_every_threshold(seed):
    rng = np.random.default_rng(seed)
    alike = np.append([True, False], rng.random(30) < 0.4)
    distances = rng.integers(0, 20, 32) / 4 + 0.5 * ~alike  # with ties
    pairs = np.stack([np.zeros(32), distances], axis=1)[:, :, None]
    found = pair_scores(None, pairs, np.where(alike, 1, -1))
    assert found["roc_auc"] == pytest.approx(roc_auc_score(alike, -distances))
    assert found["average_precision"] == pytest.approx(average_precision_score(alike, -distances))
    best = max(np.mean((distances <= t) == alike) for t in [-1, *distances])
    assert found["best_accuracy"] == pytest.approx(best)
    fpr, tpr, _ = roc_curve(alike, -distances, drop_intermediate=False)
    equal = brentq(lambda x: 1 - x - np.interp(x, fpr, tpr), 0, 1)
    assert found["equal_error_rate"] == pytest.approx(equal, abs=1e-9)


def test_pairs_that_are_told_apart_and_such_that_are_the_wrong_way_round():
    pairs = np.array([[[0.0], [1.0]], [[0.0], [2.0]], [[0.0], [3.0]]])
    assert pair_scores(None, pairs, [1, 1, -1]) == {
        "roc_auc": 1.0,
        "average_precision": 1.0,
        "best_accuracy": 1.0,
        "equal_error_rate": 0.0,
    }
    wrong = pair_scores(None, pairs, [-1, 1, 1])
    assert (wrong["roc_auc"], wrong["equal_error_rate"]) == (0.0, 1.0)
    equal = pair_scores(None, pairs[[0, 0, 0, 0]], [1, -1, 1, -1])
    assert (equal["roc_auc"], equal["equal_error_rate"], equal["best_accuracy"]) == (0.5, 0.5, 0.5)


def test_whatever_has_learned_a_distance_is_scored():
    wanted = pair_scores(LEARNED, PAIRS, SIGN)
    assert wanted["roc_auc"] > pair_scores(None, PAIRS, SIGN)["roc_auc"]
    classifier = PairClassifier(LEARNED, prefit=True).fit(PAIRS, SIGN)
    assert pair_scores(classifier, PAIRS, SIGN) == wanted
    assert classifier.score(PAIRS, SIGN) == pytest.approx(wanted["roc_auc"])
    assert pair_scores(LEARNED, KNOWN, X=X) == wanted  # by row numbers
    chain = make_pipeline(StandardScaler().fit(X), LEARNED)
    assert pair_scores(chain, PAIRS, SIGN)["roc_auc"] == pytest.approx(wanted["roc_auc"])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((PAIRS, None), {}, "y is missing"),
        ((PAIRS, SIGN[1:]), {}, r"y should have shape \(450,\)"),
        ((PAIRS, SIGN * 2), {}, "y row 0: 2 is neither"),
        ((PAIRS[:3], SIGN[:3]), {}, "Found 3 similar and 0 dissimilar pairs"),
        ((KNOWN,), {}, "X is missing. Pairs hold row indices"),
        ((KNOWN, SIGN), {"X": X}, "y must not be passed with Pairs.* Pass X and omit y"),
        ((KNOWN,), {"X": X[1:]}, "made for 178 samples but X has 177 rows"),
        ((PAIRS[:, 0], SIGN), {}, r"pairs should have shape \(m, 2, p\)"),
        ((np.where(PAIRS > 2, np.nan, PAIRS), SIGN), {}, "is not finite"),
    ],
)
def test_bad_pairs_raise(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        pair_scores(LEARNED, *arguments, **options)


# ---------------------------------------------------------------------- comparisons


@pytest.mark.parametrize("kind", [Triplets, Quadruplets])
@pytest.mark.parametrize("learner", [None, LEARNED], ids=["plain", "learned"])
def test_comparisons_are_counted_as_by_a_loop(kind, learner):
    some = kind.from_labels(Y, random_state=0)
    Z = X if learner is None else learner.transform(X)
    kept = 0
    for row in some.indices.tolist():
        a, b, c, d = row if kind is Quadruplets else (*row[:2], row[0], row[2])
        kept += np.linalg.norm(Z[a] - Z[b]) < np.linalg.norm(Z[c] - Z[d])
    share = comparison_accuracy(learner, some, X=X)
    assert share == pytest.approx(kept / len(some.indices))
    assert comparison_accuracy(learner, some.to_arrays(X)) == share


def test_equal_distances_count_half():
    rows = [[[0.0], [1.0], [-1.0]], [[0.0], [1.0], [2.0]]]
    assert comparison_accuracy(None, rows) == 0.75


@pytest.mark.parametrize(
    ("comparisons", "message"),
    [
        (np.zeros((0, 3, 2)), "comparisons is empty"),
        (np.zeros((4, 2, 2)), r"shape \(m, 3, p\) or \(m, 4, p\), or be Triplets or Quadruplets"),
        (np.zeros((4, 3)), r"got shape \(4, 3\)"),
        (np.full((1, 4, 2), np.nan), "comparisons row 0: nan is not finite"),
        (Triplets([[0, 1, 2]], n_samples=3), "X is missing. Triplets hold row indices"),
    ],
)
def test_bad_comparisons_raise(comparisons, message):
    with pytest.raises(ValueError, match=message):
        comparison_accuracy(None, comparisons)


# ---------------------------------------------------------------------- folds


def sides(fold, pairs):
    """Return the points of the training pairs and of the test pairs."""
    return (set(map(tuple, pairs[rows].reshape(-1, pairs.shape[2]))) for rows in fold)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("n_splits", [2, 5])
def test_no_point_is_on_both_sides_and_every_pair_is_somewhere(n_splits, shuffle):
    data, labels = load_iris(return_X_y=True)  # with equal rows, which are one point
    pairs, sign = Pairs.from_labels(labels, random_state=0).to_arrays(data)
    seen = np.zeros(len(pairs), int)
    folds = PairKFold(n_splits, shuffle=shuffle, random_state=0 if shuffle else None)
    assert folds.get_n_splits() == n_splits
    count = 0
    for fold in folds.split(pairs, sign):
        train, test = fold
        here, there = sides(fold, pairs)
        assert not here & there
        assert len(train) + len(test) + fold.n_dropped == len(pairs)
        # Dropped pairs have a point on each side.
        for row in np.setdiff1d(np.arange(len(pairs)), np.append(train, test)):
            a, b = map(tuple, pairs[row])
            assert not {a, b} <= here
            assert not {a, b} <= there
        seen[test] += 1
        count += 1
    assert count == n_splits
    assert seen.max() == 1


def test_rows_of_pairs_and_points_of_pairs_are_folded_alike():
    n_splits = 4
    for fold in PairKFold(n_splits, random_state=3).split(KNOWN):
        assert sorted([*fold.train, *fold.test]) == list(range(178))
        train, test = KNOWN.restrict(fold.train), KNOWN.restrict(fold.test)
        sizes = [len(some.similar) + len(some.dissimilar) for some in (train, test)]
        assert sum(sizes) + fold.n_dropped == 450
        assert abs(len(fold.test) - 178 / n_splits) < 2


def test_rows_in_no_pair_are_training_rows():
    pairs = Pairs([[0, 1], [2, 3]], [[4, 5], [6, 7]], n_samples=20)
    tested = []
    for fold in PairKFold(2, random_state=0).split(pairs):
        assert set(range(8, 20)) <= set(fold.train.tolist())
        tested += fold.test.tolist()
    assert sorted(tested) == list(range(8))


def test_pairs_that_share_no_point_are_all_used():
    points = np.random.default_rng(0).normal(size=(60, 2, 3))
    folds = list(PairKFold(5, random_state=0).split(points))
    assert [fold.n_dropped for fold in folds] == [0] * 5
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(60))
    assert [len(fold.test) for fold in folds] == [12] * 5


def test_chains_of_points_stay_together_and_folds_are_even():
    rng = np.random.default_rng(1)
    chains = [list(range(k, k + 5)) for k in range(0, 100, 5)]
    similar = [[a, b] for chain in chains for a, b in pairwise(chain)]
    pairs = Pairs(rng.permutation(similar), [], n_samples=100)
    for fold in PairKFold(4, random_state=1).split(pairs):
        assert fold.n_dropped == 0
        assert len(fold.test) == 25


def test_the_share_of_pairs_dropped_is_as_documented():
    k = 5
    y = np.arange(400) % 4
    pairs = Pairs.from_labels(y, n_similar=2000, n_dissimilar=2000, random_state=0)
    dropped = [fold.n_dropped / 4000 for fold in PairKFold(k, random_state=0).split(pairs)]
    np.testing.assert_allclose(dropped, 2 * (k - 1) / k**2, atol=0.03)


def test_groups_of_rows_stay_on_one_side():
    groups = np.array(list("abcdefghij"))[np.arange(178) % 10]
    for fold in PairKFold(5, random_state=0).split(KNOWN, groups=groups):
        train, test = (set(np.unique(KNOWN_ROWS[np.isin(KNOWN_ROWS, rows)])) for rows in fold)
        assert not {groups[row] for row in train} & {groups[row] for row in test}
        assert len({groups[row] for row in test}) == 2


KNOWN_ROWS = np.vstack([KNOWN.similar, KNOWN.dissimilar])


def test_the_seed_decides_the_folds():
    def tests(seed):
        return [fold.test.tolist() for fold in PairKFold(3, random_state=seed).split(KNOWN)]

    assert tests(0) == tests(0) != tests(1)
    plain = [fold.test.tolist() for fold in PairKFold(3, shuffle=False).split(KNOWN)]
    assert plain == [fold.test.tolist() for fold in PairKFold(3, shuffle=False).split(KNOWN)]
    assert "n_splits=3" in repr(PairKFold(3))


def test_folds_over_pairs_alone_are_optimistic():
    # The labels are random, so a learner can only memorize points.
    rng = np.random.default_rng(0)
    points, y = rng.normal(size=(60, 40)), rng.integers(0, 2, 60)
    pairs, sign = Pairs.from_labels(y, n_similar=600, n_dissimilar=600, random_state=0).to_arrays(
        points
    )

    class Remembers(PairClassifier):
        """Learn which points are often similar to others, and separate them from the rest."""

        def fit(self, pairs, y):
            X, known = Pairs.from_arrays(pairs, y)
            sides = np.zeros((len(X), len(X)))
            for sign, rows in ((1, known.similar), (-1, known.dissimilar)):
                sides[rows[:, 0], rows[:, 1]] = sides[rows[:, 1], rows[:, 0]] = sign
            leading = np.linalg.eigh(sides)[1][:, -1]
            self.estimator_ = LDA(shrinkage=0.5).fit(X, leading > 0)
            self.threshold_, self.n_features_in_ = 1.0, pairs.shape[2]
            return self

    honest = cross_val_score(Remembers(), pairs, sign, cv=PairKFold(5, random_state=0)).mean()
    naive = cross_val_score(
        Remembers(), pairs, sign, cv=KFold(5, shuffle=True, random_state=0)
    ).mean()
    assert naive > 0.8
    assert abs(honest - 0.5) < 0.15


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PairKFold(1), "PairKFold: n_splits must be an integer of at least 2; got 1"),
        (lambda: PairKFold(shuffle="yes"), "shuffle must be True or False"),
        (lambda: PairKFold(random_state="x"), "random_state must be"),
        (
            lambda: list(PairKFold(5).split(Pairs([[0, 1]], [[1, 2]], n_samples=9))),
            "n_splits=5 is more than the 3 points in pairs",
        ),
        (
            lambda: list(PairKFold(2).split(Pairs([[0, 1]], [[1, 2], [2, 0]], n_samples=3))),
            r"Fold \d of n_splits=2: none of the 3 pairs is in the (test|training) set, "
            r"and \d pairs",
        ),
        (lambda: list(PairKFold().split(PAIRS[:, 0])), r"pairs should have shape \(m, 2, p\)"),
        (lambda: list(PairKFold().split(PAIRS, groups=SIGN)), "groups can only be used with Pairs"),
        (
            lambda: list(PairKFold().split(KNOWN, groups=[1, 2])),
            "groups has 2 entries for 178 rows",
        ),
    ],
)
def test_bad_folds_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()
