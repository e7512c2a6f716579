"""Pair learners with invalid supervision, one kind of pairs, or another kind of supervision."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import (
    ITML,
    MMC,
    POLA,
    Chunklets,
    KernelMMC,
    KernelPOLA,
    KNNClassifier,
    LogisticMetric,
    Pairs,
    Triplets,
)

X, Y = load_iris(return_X_y=True)
PAIRS = Pairs.from_labels(Y, n_similar=80, n_dissimilar=120, random_state=0)
NONE = np.empty((0, 2), int)
LEARNERS = [
    MMC(),
    MMC(structure="diagonal"),
    MMC("squared"),
    LogisticMetric(),
    LogisticMetric("eigenspace"),
    POLA(),
    KernelMMC("linear"),
    KernelPOLA("linear"),
]
BOTH_KINDS = [one for one in LEARNERS if "POLA" not in type(one).__name__]


def named(learners):
    return pytest.mark.parametrize("learner", learners, ids=str)


@named(LEARNERS)
def test_no_pair_at_all(learner):
    with pytest.raises(ValueError, match="supervision contains no pairs"):
        clone(learner).fit(X, supervision=Pairs(NONE, NONE, n_samples=150))


@named(BOTH_KINDS)
def test_one_kind_where_both_are_needed(learner):
    with pytest.raises(ValueError, match=r"no dissimilar pair \(80 similar, 0 dissimilar\)"):
        clone(learner).fit(X, supervision=Pairs(PAIRS.similar, NONE, n_samples=150))
    with pytest.raises(ValueError, match=r"no similar pair \(0 similar, 120 dissimilar\)"):
        clone(learner).fit(X, supervision=Pairs(NONE, PAIRS.dissimilar, n_samples=150))
    with pytest.raises(ValueError, match="no similar pair"):  # Each class has one row.
        clone(learner).fit(X, np.arange(150))


@named(LEARNERS)
def test_supervision_of_another_kind_or_for_other_rows(learner):
    with pytest.raises(ValueError, match="supervision must be Pairs; got Triplets"):
        clone(learner).fit(X, supervision=Triplets.from_labels(Y, n_triplets=9))
    with pytest.raises(ValueError, match="supervision must be Pairs; got Chunklets"):
        clone(learner).fit(X, supervision=Chunklets(Y))
    with pytest.raises(ValueError, match="made for 150 samples but X has 140 rows"):
        clone(learner).fit(X[:140], supervision=PAIRS)
    with pytest.raises(ValueError, match="requires y to be passed"):
        clone(learner).fit(X)


@named(LEARNERS)
def test_a_pair_said_both_ways(learner):
    with pytest.raises(ValueError, match="cannot be both|said both ways|both similar"):
        Pairs([[0, 1]], [[1, 0]], n_samples=150)
    both = Pairs(
        np.vstack([PAIRS.similar, PAIRS.dissimilar[:9]]),
        PAIRS.dissimilar,
        n_samples=150,
        conflicts="keep",
    )
    fitted = clone(learner).fit(X, supervision=both)
    assert np.isfinite(fitted.transform(X)).all() and fitted.transform(X).std() > 0


@named(BOTH_KINDS)
def test_every_similar_pair_of_zero_length(learner):
    rows = np.vstack([X, X])
    equal = np.column_stack([np.arange(150), np.arange(150, 300)])
    with pytest.raises(ValueError, match=r"Every similar pair .*zero length \(150 pairs"):
        clone(learner).fit(rows, supervision=Pairs(equal, PAIRS.dissimilar, n_samples=300))
    with pytest.raises(ValueError, match=r"Every dissimilar pair .*zero length \(150 pairs"):
        clone(learner).fit(rows, supervision=Pairs(PAIRS.similar, equal, n_samples=300))


@named(LEARNERS)
def test_dissimilar_pairs_of_zero_length_are_left_out(learner):
    rows = np.vstack([X, X[:3]])
    equal = np.column_stack([np.arange(3), np.arange(150, 153)])
    clean = Pairs(PAIRS.similar, PAIRS.dissimilar, n_samples=153)
    noisy = Pairs(PAIRS.similar, np.vstack([PAIRS.dissimilar, equal]), n_samples=153)
    with pytest.warns(UserWarning, match="3 of 123 dissimilar pairs have zero length") as heard:
        found = clone(learner).fit(rows, supervision=noisy)
    assert len(heard) == 1
    wanted = clone(learner).fit(rows, supervision=clean)
    np.testing.assert_array_equal(found.transform(X), wanted.transform(X))


@named([POLA(), KernelPOLA("linear")])
def test_nothing_but_equal_points(learner):
    rows = np.vstack([X, X])
    equal = np.column_stack([np.arange(150), np.arange(150, 300)])
    with pytest.raises(ValueError, match="zero length"):
        clone(learner).fit(rows, supervision=Pairs(NONE, equal, n_samples=300))
    with pytest.raises(ValueError, match="zero length"):
        clone(learner).fit(rows, supervision=Pairs(equal, NONE, n_samples=300))


@named(LEARNERS)
def test_rows_in_no_pair_are_allowed_but_checked(learner):
    rows = np.vstack([X, X.mean(axis=0) + np.random.default_rng(0).normal(size=(20, 4))])
    pairs = Pairs(PAIRS.similar, PAIRS.dissimilar, n_samples=170)
    assert np.isfinite(clone(learner).fit(rows, supervision=pairs).transform(rows)).all()
    rows[160, 1] = np.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        clone(learner).fit(rows, supervision=pairs)


@named(LEARNERS)
def test_supervision_is_read_where_labels_come_too(learner):
    alone = clone(learner).fit(X, supervision=PAIRS)
    beside = clone(learner).fit(X, Y[::-1], supervision=PAIRS)
    np.testing.assert_array_equal(alone.transform(X), beside.transform(X))


@named(LEARNERS)
def test_one_seed_one_result(learner):
    first, again = (clone(learner).fit(X, Y).transform(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)


@named([MMC(), LogisticMetric(), POLA()])
def test_fewer_rows_than_features_and_repeated_columns(learner):
    rng = np.random.default_rng(0)
    wide = np.hstack([X[::10], X[::10], rng.normal(size=(15, 30))])  # 15 rows, repeated columns.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Similar pairs do not vary in some directions.
        fitted = clone(learner).fit(wide, Y[::10])
        assert np.isfinite(fitted.transform(wide)).all()
        lone = np.append(Y[::10][:-1], 7)  # A class with one row.
        assert np.isfinite(clone(learner).fit(wide, lone).transform(wide)).all()


@named([MMC(), LogisticMetric(), POLA(max_epochs=5)])
@pytest.mark.filterwarnings("ignore")
def test_in_a_pipeline_before_neighbours(learner):
    knn = make_pipeline(StandardScaler(), KNNClassifier(clone(learner)))
    assert knn.fit(X, Y).score(X, Y) > 0.9


@pytest.mark.parametrize("kind", [MMC, ITML, KernelMMC])
def test_pairs_passed_as_X_are_recognized(kind):
    random = np.random.default_rng(0)
    signs = np.where(np.arange(60) % 2, 1, -1)
    with pytest.raises(
        ValueError, match=r"looks like pairs of points.*PairClassifier.*supervision="
    ):
        kind().fit(random.normal(size=(60, 2, 3)), signs)
    index_pairs = np.array([random.choice(50, 2, replace=False) for _ in signs])
    with pytest.raises(ValueError, match=r"pairs of row indices.*supervision=.*PairClassifier"):
        kind().fit(index_pairs, signs)
    # Two features are accepted: as floats, with equal values in a row, or with different ranges.
    kind().fit(index_pairs.astype(float), signs)
    kind().fit(np.vstack([index_pairs, [[3, 3]]]), np.append(signs, 1))
    kind().fit(index_pairs + [0, 200], signs)
