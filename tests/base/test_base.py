"""What every learner shares, beyond the contract."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from nearfar import LDA, LMNN, PCA, RCA, Euclidean, all_learners, check_learner
from nearfar.base import LearnerTags, LinearLearner
from nearfar.labels import encode_labels
from nearfar.parameters import array, boolean, check_parameter, integer, none, one_of, real


def test_all_learners_finds_the_rooms():
    assert {"Euclidean", "LDA", "LMNN", "PCA", "RCA"} <= set(all_learners())


class HalvingLearner(LinearLearner):
    """Learner outside the package that halves all distances."""

    learner_tags = LearnerTags(reads="supervision", supervised=False)
    parameters = {}

    def fit(self, X, y=None):
        rows = self._check_X(X, reset=True)
        self.components_ = 0.5 * np.eye(rows.shape[1], dtype=rows.dtype)
        return self


class InPlaceLearner(HalvingLearner):
    def transform(self, X):
        rows = self._check_X(X, reset=False)
        rows *= 0.5
        return rows


class InconsistentLearner(HalvingLearner):
    def transform(self, X):
        return 3 * super().transform(X)


def test_check_learner_accepts_a_learner_from_outside():
    check_learner(HalvingLearner())


def test_check_learner_catches_a_learner_that_writes_into_its_input():
    with pytest.raises((AssertionError, ValueError)):
        check_learner(InPlaceLearner())


def test_check_learner_catches_a_map_that_is_not_components():
    with pytest.raises(AssertionError):
        check_learner(InconsistentLearner())


def test_check_learner_catches_nan_on_constant_columns():
    class Standardizes(LinearLearner):
        learner_tags = LearnerTags(reads="supervision", supervised=False)
        parameters = {}

        def fit(self, X, y=None):
            rows = self._check_X(X, reset=True, min_samples=2)
            with np.errstate(divide="ignore"):
                self.components_ = np.diag(1 / rows.std(axis=0)).astype(rows.dtype)
            return self

    with pytest.raises(AssertionError, match="constant_columns"):
        from nearfar.contract import check_bad_input

        check_bad_input(Standardizes(), case="constant_columns")


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (0, [integer(1)]),
        (True, [integer(0)]),
        (1.0, [integer(1)]),
        (float("nan"), [real()]),
        (1.5, [real(0, 1)]),
        (0.0, [real(0, open_low=True)]),
        ("c", [one_of("a", "b")]),
        (1, [boolean]),
        ("x", [none, array]),
    ],
)
def test_wrong_values_are_refused_by_name(value, allowed):
    with pytest.raises(ValueError, match="Thing: size must be"):
        check_parameter("Thing", "size", value, allowed)


def test_numpy_scalars_are_numbers():
    check_parameter("Thing", "size", np.int32(3), [integer(1)])
    check_parameter("Thing", "share", np.float32(0.5), [real(0, 1)])


def test_parameters_are_checked_at_fit_not_before():
    learner = LMNN(push_weight=3)
    with pytest.raises(
        ValueError, match=r"LMNN: push_weight must be a number above 0 and at most 1; got 3"
    ):
        learner.fit(np.eye(4), [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, None, 1], "row 1"),
        ([0.0, np.nan, 1.0], "Input y contains NaN"),
        ([0.0, np.inf, 1.0], "Input y contains infinity"),
        ([0.5, 0.25, 1.5], "continuous"),
        ([[0, 1], [1, 0]], "1d array"),
        ([1, "a", 2], "mixes labels of types int, str"),
        (None, "requires y"),
    ],
)
def test_labels_that_are_none(y, message):
    with pytest.raises(ValueError, match=message):
        encode_labels(np.array(y, dtype=object) if y and "a" in y else y)


@pytest.mark.parametrize(
    "y",
    [
        [3, 1, 3, -7],
        np.array([3, 1, 3], dtype=np.uint8),
        [10**12, 5, 10**12],
        ["b", "a", "b"],
        [True, False, True],
        [1.0, 2.0, 1.0],
    ],
)
def test_codes_are_those_of_unique(y):
    classes, codes = encode_labels(y)
    wanted_classes, wanted_codes = np.unique(y, return_inverse=True)
    np.testing.assert_array_equal(classes, wanted_classes)
    np.testing.assert_array_equal(codes, wanted_codes)


def test_nullable_labels_with_a_gap_raise():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="row 2"):
        encode_labels(pd.Series([1, 2, None], dtype="Int64"))
    with pytest.raises(ValueError, match="row 0"):
        encode_labels(pd.Categorical([None, "a"]))


def test_metric_outlives_the_learner():
    X = np.random.default_rng(0).normal(size=(20, 3))
    learner = LDA(n_components=1).fit(X, np.arange(20) % 2)
    metric, components = learner.get_metric(), learner.components_.copy()
    learner.fit(X * 5, np.arange(20) % 2)
    assert metric(X[0], X[1]) == pytest.approx(abs(components @ (X[0] - X[1]))[0])
    assert metric(X[0], X[1], squared=True) == pytest.approx(metric(X[0], X[1]) ** 2)


def test_metric_takes_points_as_scipy_does_and_names_those_of_another_length():
    X = np.random.default_rng(0).normal(size=(20, 3))
    metric = LDA(n_components=1).fit(X, np.arange(20) % 2).get_metric()
    wanted = metric(X[0], X[1])
    assert wanted > 0
    assert metric(X[:1], X[1:2]) == metric(X[0].tolist(), tuple(X[1])) == metric(X[0], X[1:2])
    assert metric(X[:1], X[1:2]) == wanted
    np.testing.assert_allclose(cdist(X[:1], X[1:2], metric), [[wanted]])
    for u, v, message in (
        (X[0, :2], X[1], r"u should be one point of 3 features; got shape \(2,\)"),
        (X[0], X[:2], r"v should be one point of 3 features; got shape \(2, 3\)"),
        (X[0], 1.0, r"v should be one point of 3 features; got shape \(\)"),
    ):
        with pytest.raises(ValueError, match=message):
            metric(u, v)


def test_transform_of_many_rows_copies_no_n_by_p():
    import tracemalloc

    X = np.ones((100_000, 50)) * np.arange(100_000)[:, None]
    learner = LDA().fit(X[:50] + np.eye(50), np.arange(50) % 2)
    tracemalloc.start()
    learner.transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.3 * X.nbytes


def test_euclidean_changes_nothing():
    X = np.random.default_rng(0).normal(size=(5, 3))
    learner = Euclidean().fit(X)
    np.testing.assert_array_equal(learner.transform(X), X)
    np.testing.assert_array_equal(learner.components_, np.eye(3))
    np.testing.assert_array_equal(learner.get_mahalanobis_matrix(), np.eye(3))


def test_a_batch_or_fit_that_fails_leaves_no_trace():
    X, y = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2
    spoilt = X.copy()
    spoilt[0, 0] = np.nan
    lda = LDA()
    with pytest.raises(ValueError, match="NaN"):
        lda.partial_fit(spoilt, y)
    with pytest.raises(NotFittedError):
        lda.transform(X)
    lda.partial_fit(X[:, :3], y)  # of another width: nothing was seen before
    with pytest.raises(ValueError, match="one class"):
        lda.fit(X, 0 * y)
    with pytest.raises(NotFittedError):
        lda.transform(X)


def test_threads_may_share_a_learner_that_still_has_to_solve():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 20)), rng.integers(0, 5, 300)
    reference = LDA().fit(X, y).transform(X)
    for _ in range(20):
        lda = LDA().partial_fit(X, y)
        with ThreadPoolExecutor(4) as pool:
            for mapped in pool.map(lda.transform, [X] * 8):
                np.testing.assert_allclose(mapped, reference, atol=1e-8)
        lda.partial_fit(X, y + 5)
        assert len(lda.classes_) == 10


@pytest.mark.parametrize("learner", [LDA(), RCA(), PCA(whiten=True)])
def test_float32_keeps_nearly_collinear_features_apart(learner):
    rng = np.random.RandomState(0)
    y = rng.randint(0, 2, 2000)
    X = rng.normal(size=(2000, 1)) + 1e-3 * rng.normal(size=(2000, 10))
    X[:, 0] += 4e-3 * y
    X[:, 1] -= 4e-3 * y
    X = X.astype(np.float32)
    for fitted in (clone(learner).fit(X, y), clone(learner).partial_fit(X, y)):
        exact = clone(learner).fit(X.astype(np.float64), y)
        assert fitted.components_.shape == exact.components_.shape
        pairs = np.stack([X[:50], X[50:100]], axis=1)
        np.testing.assert_allclose(
            fitted.pair_distance(pairs), exact.pair_distance(pairs), rtol=1e-3
        )


def test_huge_unsigned_labels():
    classes, codes = encode_labels(np.array([1, 0, 1], dtype=np.uint64) + 2**63)
    assert classes.tolist() == [2**63, 2**63 + 1]
    assert codes.tolist() == [1, 0, 1]


def make_three_classes():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 4)) + np.repeat(np.eye(3, 4) * 4, 20, axis=0), np.repeat(
        ["a", "b", "c"], 20
    )


@pytest.mark.parametrize("name", ["LDA", "MODA", "RCA", "MGMKLD"])
def test_classes_may_be_named_in_the_first_batch(name):
    X, y = make_three_classes()
    learner = all_learners()[name]()
    learner.partial_fit(X[:40], y[:40], ["d", "c", "b", "a"])  # two of them come later or never
    before = clone(learner).fit(X[:40], y[:40])
    np.testing.assert_allclose(learner.components_, before.components_)
    assert learner.statistics_.classes.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=r"'e', which is not among classes=\['a', 'b', 'c', 'd'\]"):
        learner.partial_fit(X[40:], np.repeat(["c", "e"], 10))
    assert learner.statistics_.classes.tolist() == ["a", "b"]
    learner.partial_fit(X[40:], y[40:])
    assert learner.statistics_.classes.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="classes must be the same in every batch"):
        learner.partial_fit(X, y, ["a", "b", "c"])


def test_classes_named_late_must_hold_what_was_seen_and_fit_forgets_them():
    X, y = make_three_classes()
    lda = LDA().partial_fit(X[:40], y[:40])
    with pytest.raises(ValueError, match="'b', which is not among"):
        lda.partial_fit(X[40:], y[40:], classes=["a", "c"])
    lda.partial_fit(X[40:], y[40:])  # a refused batch announces nothing
    lda.partial_fit(X, y, classes=["a", "b", "c"]).fit(X, np.repeat(["d", "e", "f"], 20))
    assert lda.partial_fit(X[:20], ["g"] * 20).statistics_.n_classes == 4


def test_learners_without_labels_ignore_named_classes():
    X, _ = make_three_classes()
    for learner in PCA(), Euclidean():
        assert learner.partial_fit(X, None, [1, 2]).transform(X).shape[0] == 60


def test_classes_of_dask_batches_are_checked_too():
    dask_array = pytest.importorskip("dask.array")
    X, y = make_three_classes()
    rows, labels = dask_array.from_array(X, chunks=(20, 4)), dask_array.from_array(y, chunks=20)
    with pytest.raises(ValueError, match="'c', which is not among"):
        LDA().partial_fit(rows, labels, classes=["a", "b"])


@pytest.mark.parametrize("learner", [LDA(), LMNN(max_iter=2), Euclidean(), RCA()])
def test_extreme_values_of_X_are_refused(learner):
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    for factor, message in ((1e120, "overflow"), (1e-120, "underflow")):
        with pytest.raises(ValueError, match=f"X.*{message}"):
            clone(learner).fit(X * factor, y)
        with pytest.raises(ValueError, match="X.*column 1.*underflow"):
            clone(learner).fit(X * [1, 1e-120, 1], y)
    single = (X * 1e-35).astype(np.float32)
    with pytest.raises(ValueError, match="X.*underflow.*convert it to float64"):
        clone(learner).fit(single, y)
    fitted = clone(learner).fit(X * [1, 0, 1], y)  # A column of zeros is accepted.
    with pytest.raises(ValueError, match="X: the largest absolute value is .* overflow"):
        fitted.transform(X * 1e120)
    assert np.isfinite(fitted.transform(X * 1e-120)).all()


def test_hidden_values_and_objects_of_X_are_refused():
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    hidden = np.ma.masked_greater(X, 1.0)
    huge = X.astype(object)
    huge[0, 0] = 10**400
    fitted = LDA().fit(np.ma.masked_array(X), y)  # Nothing is masked.
    for bad, kind in ((hidden, ValueError), (list(hidden), ValueError), (huge, ValueError)):
        for call in (lambda bad=bad: LDA().fit(bad, y), lambda bad=bad: fitted.transform(bad)):
            with pytest.raises(kind, match=r"\bX\b"):
                call()
    for bad in ({"a": 1}, (row for row in X)):
        with pytest.raises(TypeError, match="^X: "):
            LDA().fit(bad, y)
    with pytest.raises(ValueError, match="y is a masked array"):
        LDA().fit(X, np.ma.masked_equal(y, 0))
