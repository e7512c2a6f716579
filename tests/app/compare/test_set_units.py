"""Scale and ridge of all sets in every fold: when, that it is said, and that it is what is used."""

import time
from functools import partial

import numpy as np
import pytest

from nearfar import SetEmbedding, SetKNeighborsClassifier, Sets, compare
from nearfar.app.compare import pair_shelf, shared_pairs
from nearfar.app.compare.kinds import sets as kind_module
from nearfar.app.compare.kinds.choice import kind_of
from nearfar.app.compare.pair_shelf import FolderShelf, MemoryShelf
from nearfar.app.compare.question import Question
from nearfar.app.compare.set_methods import set_baselines, set_learners
from nearfar.app.compare.set_units import SetUnits
from nearfar.app.compare.shared_pairs import SharedPairs
from nearfar.app.compare.splits import Fold
from nearfar.datasets import make_sets
from nearfar.distributions import dissimilarity
from nearfar.distributions.dissimilarities import CostlyPairs

N = 120
SAID = "Scale and ridge of the Gaussians that methods share come from all"
QUICK = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}


def made_sets(n=N, dtype=np.float64):
    made = make_sets(n // 3, 3, 3, sizes=(20, 30), means=0.25, covariances=0.4, random_state=2)
    X = (made.X * np.geomspace(0.1, 10, 3)).astype(dtype)
    return Sets(X, made.offsets, made.labels)


@pytest.fixture(scope="module")
def sets():
    return made_sets()


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(kind_module, "MANY_SETS", 100)


def units_of(result):
    protocol = result.document["protocol"]
    return protocol["units"], protocol["units_differ"]


# ---------------------------------------------------------------------- the units


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_are_those_that_the_classifier_finds(dtype):
    made = made_sets(30, dtype)
    arrays = [np.column_stack([rows, np.full(len(rows), 7.0, dtype)]) for rows in made]
    arrays[3] = arrays[3][:1]  # a set of one vector has no variance
    sets = Sets.from_list(arrays, made.labels)
    random = np.random.default_rng(0)
    for size in (30, 24, 2):
        rows = np.sort(random.permutation(30)[:size])
        found = SetUnits(sets).of(rows)
        raw, scaled = (
            SetKNeighborsClassifier(1, standardize=yes).fit(sets[rows], sets.labels[rows])
            for yes in (False, True)
        )
        np.testing.assert_allclose(found.scale, scaled.scale_, rtol=1e-6)
        ridges = [raw.gaussians_.added_ridge, scaled.gaussians_.added_ridge]
        np.testing.assert_allclose(found.ridges, ridges, rtol=1e-6)


def test_units_differ_by_the_largest_share_of_any_of_them():
    """One set is wider in one feature: only without it are scale and ridge others."""
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(20, 2)) for _ in range(12)]
    arrays[5] = arrays[5] * [1.0, 30.0]
    sets = Sets.from_list(arrays)
    with_it, without = (Fold(0, 0, np.delete(np.arange(12), i), np.array([i])) for i in (0, 5))
    first, second = SetUnits(sets).differences([with_it, without])
    every = np.concatenate(arrays).std(axis=0)
    left = np.concatenate(arrays[:5] + arrays[6:]).std(axis=0)
    assert first < 0.1 < 0.8 < second == pytest.approx(np.abs(left / every - 1).max(), abs=0.3)
    # The ridge of standardized vectors differs most: of narrow sets it is a share of the scale.
    own = [
        np.median([np.var(a / scale, axis=0, ddof=1).mean() for a in some])
        for scale, some in ((every, arrays), (left, arrays[:5] + arrays[6:]))
    ]
    assert second == pytest.approx(max(np.abs(left / every - 1).max(), abs(own[1] / own[0] - 1)))


def test_units_that_are_not_known_are_never_the_same():
    """Most sets have a single vector: no variance is typical."""
    sets = Sets.from_list([np.eye(2)[: 1 + (i > 6)] + i for i in range(10)])
    folds = [Fold(0, 0, np.arange(1, 10), np.arange(1))]
    assert SetUnits(sets).differences(folds) == [np.inf]


# ---------------------------------------------------------------------- how often


@pytest.fixture
def counted(monkeypatch):
    """Pairs of which a costly term was computed, by the sets they were among."""
    pairs = []
    terms = CostlyPairs.compute_terms

    def counting(self, rows, wanted):
        n, m = len(self._pairs.A), len(self._pairs.B)
        new = sum(m - a - 1 if self._b_is_a else m for a in range(rows.start, rows.stop))
        pairs.extend((term, n, m, new) for term in wanted)
        return terms(self, rows, wanted)

    monkeypatch.setattr(CostlyPairs, "compute_terms", counting)
    return pairs


def test_the_default_comparison_computes_all_pairs_once(sets, counted):
    """Of each of its four ways to make Gaussians, whatever the methods, folds and repeats."""
    # A bag of words has no pairs, and takes long.
    options = QUICK | {"repeats": 2, "tuning": "holdout", "without": ["bag-of-words"]}
    found = compare(sets, **options)
    assert len(found.document["folds"]) == 10 and len(found.document["methods"]) == 11
    assert all((n, m) == (N, N) for _, n, m, _ in counted)
    for term in ("riemann", "quad_mean", "log_mean"):
        assert sum(new for one, *_, new in counted if one == term) == 4 * (N * (N - 1) // 2)


def test_cheap_pairs_are_computed_once_too(sets, monkeypatch):
    rows = []

    def counting(A, B=None, metric=""):
        rows.append((len(A), len(B), metric))
        return dissimilarity(A, B, metric)

    monkeypatch.setattr(shared_pairs, "dissimilarity", counting)
    compare(sets, methods=["jeffreys", "riemann"], **QUICK | {"repeats": 2, "tuning": "full"})
    assert all(m == N for _, m, metric in rows if metric == "jeffreys")
    assert sum(n for n, _, metric in rows if metric == "jeffreys") == 4 * N


def test_gaussians_are_made_once_for_all_folds(sets, gaussians_made, monkeypatch):
    # No picture, which has Gaussians of its own.
    monkeypatch.setattr(kind_module, "picture_of_sets", lambda *a, **k: None)
    compare(sets, methods=["riemann", "jeffreys"], **QUICK | {"tuning": "full"})
    assert gaussians_made == 4 * [N]


def test_when_room_is_short_most_of_what_lasts_stays(monkeypatch, tmp_path):
    """Room for two of three, which are read in turn: if the oldest left, nothing would be kept."""
    blocks = [(slice(0, 10), 0)]
    for name in ("MAX_BYTES", "MAX_FILE_BYTES"):
        monkeypatch.setattr(pair_shelf, name, 2 * 800 + 100)
    for shelf in (MemoryShelf(), FolderShelf(str(tmp_path))):
        calls = []

        def work(rows, box, calls=calls):
            calls.append(box)
            return [np.ones((10, 10))]

        for _ in range(4):
            for box in ("all1-a", "all1-b", "all1-c"):
                shelf.blocks(box, "name", (1, 10, 10), blocks, partial(work, box=box))
                time.sleep(0.02)
        assert 3 < len(calls) <= 8  # of twelve


# ---------------------------------------------------------------------- what is used

WAYS = [{}, {"standardize": True}, {"standardize": True, "ridge": 0.1}, {"shrinkage": "oas"}]


@pytest.mark.parametrize("metric", ["riemann", "bhattacharyya_riemann", "jeffreys", "kl", "mean"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_distances_are_those_of_the_ordinary_estimator_fitted_to_all_sets(sets, way, metric):
    pairs, knn = SharedPairs(sets), SetKNeighborsClassifier(1, metric=metric, **way)
    setting = set_learners({"mine": knn})[0].settings[0]
    knn.fit(sets, sets.labels)
    D = dissimilarity(knn.gaussians_, knn.gaussians_, metric)
    train, test = np.arange(30, N), np.arange(30)
    fold = pairs.fold(train, test, [setting], common_units=True)
    for known, new in ((train, test), (train[::2], train[1::2])):  # outside and inside
        found = fold.given(setting, known, new).distances
        np.testing.assert_allclose(found, D[np.ix_(new, known)], rtol=1e-7, atol=1e-9)
    # Of one split inside, nothing but its own pairs would be computed otherwise.
    fold = pairs.fold(train, test, [setting], 1, common_units=True)
    found = fold.given(setting, train[::2], train[1::2]).distances
    np.testing.assert_allclose(found, D[np.ix_(train[1::2], train[::2])], rtol=1e-7, atol=1e-9)


def test_embeddings_are_of_the_same_pairs(sets):
    pairs, embedding = SharedPairs(sets), SetEmbedding(4, standardize=True)
    setting = set_learners({"mine": embedding})[0].settings[0]
    whole = SetKNeighborsClassifier(1, standardize=True).fit(sets, sets.labels)
    D = dissimilarity(whole.gaussians_)
    train, test = np.arange(30, N), np.arange(30)
    given = pairs.fold(train, test, [setting], common_units=True).given(setting, train, test)
    alone = embedding._make_embedder().set_params(metric="precomputed")
    np.testing.assert_allclose(given.known, alone.fit_transform(D[30:, 30:]), atol=1e-6)
    np.testing.assert_allclose(given.new, alone.transform(D[:30, 30:]), atol=1e-6)


def test_what_is_fitted_for_use_has_the_units_that_were_compared(sets, monkeypatch):
    made = []
    pairs = CostlyPairs.__init__

    def noted(self, A, B=None):
        made.append(A)
        pairs(self, A, B)

    monkeypatch.setattr(CostlyPairs, "__init__", noted)
    result = compare(sets, methods=["bhattacharyya-riemann"], **QUICK)
    assert result.best == "bhattacharyya-riemann" and units_of(result)[1] is not None
    model = result.pipeline()[-1]
    given = model.get_params()
    assert (given["standardize"], given["ridge"], given["shrinkage"]) == (True, "auto", None)
    fitted = result.fit(sets, sets.labels)[-1].gaussians_
    [compared] = made
    assert np.array_equal(fitted.means, compared.means)
    assert np.array_equal(fitted.covariances, compared.covariances)
    assert fitted.added_ridge == compared.added_ridge


def test_errors_are_nearly_those_of_units_of_the_training_sets(sets, monkeypatch):
    options = QUICK | {"tuning": "holdout", "without": ["bag-of-words"]}
    common = compare(sets, **options)
    assert units_of(common)[1] is not None
    monkeypatch.setattr(kind_module, "MANY_SETS", N + 1)
    apart = compare(sets, **options)
    assert units_of(apart) == ("", None)
    before, after = (
        {m["name"]: m["error"] for m in one.document["methods"]} for one in (apart, common)
    )
    assert all(abs(before[name] - after[name]) <= 2.5 / N for name in before)
    assert before != after  # it is not that nothing happened


def test_the_reference_is_in_the_same_units(sets):
    _, scaled = set_baselines()
    pairs, setting = SharedPairs(sets), scaled.settings[0]
    train, test = np.arange(30, N), np.arange(30)
    D = pairs.fold(train, test, [setting], common_units=True).given(setting, train, test).distances
    means = np.array([rows.mean(axis=0) for rows in sets]) / sets.X.std(axis=0)
    expected = np.linalg.norm(means[test][:, None] - means[train], axis=2)
    np.testing.assert_allclose(D, expected, rtol=1e-9)


def test_a_fold_is_charged_for_its_own_pairs(sets):
    pairs, knn = SharedPairs(sets), SetKNeighborsClassifier(metric="hellinger", standardize=True)
    method = set_learners({"mine": knn})[0]
    for train, test in ((np.arange(20, N), np.arange(20)), (np.arange(100), np.arange(100, N))):
        fold = pairs.fold(train, test, method.settings, common_units=True)
        told = fold.given(method.settings[0], train, test)
        [whole] = fold._whole_seconds.values()
        own = whole * 20 * 100 / (N * (N - 1) / 2)
        spent = fold.charged[next(key for key in fold.charged if "test" in key)]
        assert spent == pytest.approx(own) and told.predict_seconds >= own


# ---------------------------------------------------------------------- what is said of it


def test_it_is_said_with_the_number_that_was_measured(sets, tmp_path):
    result = compare(sets, methods=["riemann"], **QUICK)
    text, differ = units_of(result)
    most = 0.0
    scale = partial(np.std, axis=0)
    for fold in result.document["folds"]:
        train = np.delete(np.arange(N), fold["test"])
        part = sets[train]
        most = max(most, np.abs(scale(part.X) / scale(sets.X) - 1).max())
        for yes in (False, True):
            own, whole = (
                SetKNeighborsClassifier(standardize=yes).fit(some, some.labels).gaussians_
                for some in (part, sets)
            )
            most = max(most, abs(own.added_ridge / whole.added_ridge - 1))
    assert differ == pytest.approx(most, rel=1e-6) and 0 < most < 0.05
    assert text.startswith(f"{SAID} {N} sets, without their labels, so that all folds share")
    told = float(text.split("at most ")[1].split("%")[0])
    assert 0 <= told - 100 * most <= 0.1
    assert text in str(result)
    page = result.to_html(tmp_path / "page.html").read_text()
    assert text in page
    assert "from all sets\n# in the comparison" in result.code


def test_of_sets_that_were_drawn_it_is_said_so(sets):
    text, _ = units_of(compare(sets, methods=["riemann"], sample=105, **QUICK))
    assert text.startswith(f"{SAID} 105 sets that were drawn, without")


def wide_group(sets):
    """One of six groups has vectors of another unit."""
    groups = np.repeat(np.arange(6), N // 6)
    X = np.where(np.repeat(groups == 2, sets.sizes)[:, None], 10.0, 1.0) * sets.X
    return Sets(X, sets.offsets, np.arange(N) % 3), {"groups": groups}


def few(sets):
    return sets[:99], {}


def in_time(sets):
    return sets, {"time": np.arange(N)}


def one_test_set(sets):
    return sets, {"cv": [(np.arange(100), np.arange(100, N))]}


def other_sets_in_each_fold(sets):
    return sets, {
        "cv": [(np.arange(110), np.arange(110, N)), (np.arange(100), np.arange(100, 110))]
    }


def a_ridge_in_the_units_of_the_vectors(sets):
    return sets, {"methods": [SetKNeighborsClassifier(metric="riemann", ridge=0.5)]}


def no_dear_pairs(sets):
    return sets, {"methods": ["jeffreys"]}


CASES = [
    wide_group,
    few,
    in_time,
    one_test_set,
    other_sets_in_each_fold,
    a_ridge_in_the_units_of_the_vectors,
    no_dear_pairs,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_where_it_is_not_so_it_is_not_said(sets, case, tmp_path, monkeypatch):
    """And folds are what they are where no number of sets is many."""
    given, options = case(sets)
    methods = {"methods": ["bhattacharyya-riemann"]}
    run = partial(compare, given, **QUICK | methods | options)
    result = run()
    assert units_of(result) == ("", None)
    assert SAID not in str(result)
    assert "Scale and ridge of the Gaussians" not in result.to_html(tmp_path / "a.html").read_text()
    assert "Inside, scale and ridge of Gaussians" in result.code
    monkeypatch.setattr(kind_module, "MANY_SETS", 10**9)
    again = run()
    assert result.document["held_out"]["predicted"] == again.document["held_out"]["predicted"]


def test_without_room_for_all_pairs_each_fold_has_its_own(sets, monkeypatch, counted):
    monkeypatch.setattr(shared_pairs, "MAX_BYTES", 8 * (3 * N * N + 9 * N) - 1)
    result = compare(sets, methods=["riemann"], **QUICK)
    assert units_of(result) == ("", None)
    assert counted and all((n, m) != (N, N) for _, n, m, _ in counted)


def test_a_repeat_that_may_follow_has_a_say(sets, monkeypatch):
    """What is begun is not changed: all repeats for which there may be time are looked at."""
    options = {"X": sets, "y": sets.labels, "methods": ["riemann"], "random_state": 3}

    def scheme(n, **more):
        kind = kind_of(Question.of(options | more))
        kind.read()
        kind.prepare()
        return kind.splits(n)

    first, every = scheme(1).units_differ, scheme(5).units_differ
    assert first < every < 0.05
    monkeypatch.setattr(kind_module, "TOLERANCE", (first + every) / 2)
    assert scheme(1).units_differ is None
    assert scheme(1, repeats=1).units_differ == first


@pytest.mark.process
def test_processes_come_to_the_same(sets):
    options = QUICK | {"methods": ["riemann", "set-embedding", "jeffreys"], "tuning": "holdout"}
    found = [compare(sets, **options | {"isolate": isolate}) for isolate in (False, True)]
    errors = [{m["name"]: m["error"] for m in one.document["methods"]} for one in found]
    assert errors[0] == errors[1] and units_of(found[0]) == units_of(found[1]) != ("", None)
