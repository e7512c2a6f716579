"""Earth mover's distance, dynamic time warping and bags of words, over sets."""

import pickle
import sys

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from nearfar import BagOfWords, Sets
from nearfar.datasets import make_sets
from nearfar.distributions import dtw_distances, emd_distances, exponential_kernel

SETS = make_sets(4, 3, 3, sizes=(3, 9), random_state=0)


def compute_neighbor_error(D, y):
    knn = KNeighborsClassifier(1, metric="precomputed")
    return 1 - cross_val_score(knn, D, y, cv=LeaveOneOut()).mean()


# ---------------------------------------------------------------------- earth mover's distance


@pytest.fixture
def ot():
    return pytest.importorskip("ot")


def test_emd_of_one_feature_is_that_of_scipy(ot):
    sets = make_sets(3, 2, 1, sizes=(1, 8), random_state=1)
    expected = [[wasserstein_distance(a[:, 0], b[:, 0]) for b in sets] for a in sets]
    assert emd_distances(sets) == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.parametrize("power", [1, 2, 3.5])
def test_emd_of_sets_of_one_size_is_the_best_assignment(ot, power):
    sets = make_sets(3, 2, 4, sizes=(7, 7), random_state=2)
    D = emd_distances(sets, power=power)
    for i, a in enumerate(sets):
        for j, b in enumerate(sets):
            cost = cdist(a, b) ** power
            best = cost[linear_sum_assignment(cost)].mean() ** (1 / power)
            assert D[i, j] == pytest.approx(best, abs=1e-7)


def test_emd_is_symmetric_and_zero_on_the_diagonal_and_a_metric(ot):
    D = emd_distances(SETS)
    assert np.array_equal(D, D.T) and not D.diagonal().any()
    assert (D[:, None] <= D[:, :, None] + D[None] + 1e-9).all()


def test_emd_of_new_sets_to_old_is_a_block(ot):
    D = emd_distances(SETS)
    assert emd_distances(SETS[:5], SETS[5:]) == pytest.approx(D[:5, 5:], abs=1e-9)
    assert np.array_equal(emd_distances(SETS, n_jobs=2), D)
    assert np.array_equal(emd_distances(list(SETS)), D)


def test_emd_of_a_moved_set_is_how_far_it_moved(ot):
    rows = np.random.default_rng(0).normal(size=(12, 3))
    for scale in (1e-8, 1.0, 1e8):
        D = emd_distances([scale * rows, scale * (rows + [3, 0, 4])])
        assert D[0, 1] == pytest.approx(5 * scale, rel=1e-6)


def test_emd_ignores_order_and_repetition(ot):
    rows = np.random.default_rng(0).normal(size=(6, 2))
    D = emd_distances([rows, rows[::-1], np.repeat(rows, 3, axis=0), rows[:1]])
    assert np.abs(D[:3, :3]).max() < 1e-9
    assert D[0, 3] == pytest.approx(cdist(rows, rows[:1]).mean())
    squares = emd_distances([rows], [rows[:1]], power=2)
    assert squares == pytest.approx(np.sqrt((cdist(rows, rows[:1]) ** 2).mean()))


def test_signatures_are_weighted_centres(ot):
    # Two tight clusters of 6 and 2 vectors against one point each.
    heap = np.concatenate([np.full((6, 1), 0.0), np.full((2, 1), 4.0)])
    heap += 1e-9 * np.arange(8)[:, None]
    D = emd_distances([heap, [[0.0]]], n_clusters=2, random_state=0)
    assert D[0, 1] == pytest.approx(1.0, abs=1e-6)
    exact = emd_distances(SETS)
    rough = emd_distances(SETS, n_clusters=2, random_state=0)
    assert np.array_equal(rough, emd_distances(SETS, n_clusters=2, random_state=0))
    assert not np.array_equal(rough, exact)
    assert np.corrcoef(rough.ravel(), exact.ravel())[0, 1] > 0.9
    assert np.array_equal(emd_distances(SETS, n_clusters=9), exact)


def test_emd_serves_classifiers(ot):
    sets = make_sets(6, 3, 3, means=4.0, sizes=(5, 9), random_state=0)
    D = emd_distances(sets)
    assert compute_neighbor_error(D, sets.labels) < 0.2
    machine = SVC(C=10, kernel="precomputed").fit(exponential_kernel(D), sets.labels)
    assert machine.score(exponential_kernel(D), sets.labels) > 0.9


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((SETS, [[[1.0, 2.0]]]), {}, "B has vectors with 2 features, but A has 3"),
        ((SETS,), {"power": 0.5}, "power must be"),
        ((SETS,), {"n_clusters": 0}, "n_clusters must be"),
        (([[[np.nan]]],), {}, "Set 0 holds nan"),
        (([],), {}, r"X has 0 set\(s\)"),
    ],
)
def test_emd_refuses(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        emd_distances(*arguments, **options)


@pytest.mark.parametrize(
    ("function", "module", "extra"),
    [(emd_distances, "ot", "ot"), (dtw_distances, "tslearn", "dtw")],
)
def test_missing_libraries_name_the_extra(monkeypatch, function, module, extra):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'nearfar\[{extra}\]'"):
        function(SETS)


# ---------------------------------------------------------------------- dynamic time warping


def compute_dtw(x, z, window=None):
    """Dynamic time warping, step by step."""
    best = np.full((len(x) + 1, len(z) + 1), np.inf)
    best[0, 0] = 0
    for i in range(len(x)):
        for j in range(len(z)):
            # The band is around the way from corner to corner.
            if window is None or abs(i - j) <= window:
                before = min(best[i, j], best[i, j + 1], best[i + 1, j])
                best[i + 1, j + 1] = before + ((x[i] - z[j]) ** 2).sum()
    return np.sqrt(best[-1, -1])


def test_dtw_is_the_best_path():
    pytest.importorskip("tslearn")
    expected = np.array([[compute_dtw(a, b) for b in SETS] for a in SETS])
    D = dtw_distances(SETS)
    assert pytest.approx(expected, abs=1e-9) == D
    assert np.array_equal(D, D.T) and not D.diagonal().any()
    assert dtw_distances(SETS[:5], SETS[5:]) == pytest.approx(expected[:5, 5:], abs=1e-9)
    even = make_sets(2, 2, 2, sizes=(8, 8), random_state=0)
    bounded = np.array([[compute_dtw(a, b, window=1) for b in even] for a in even])
    assert dtw_distances(even, window=1) == pytest.approx(bounded, abs=1e-9)
    assert (bounded > dtw_distances(even) + 1e-3).any()


def test_dtw_sees_the_order_that_sets_forget():
    pytest.importorskip("tslearn")
    pytest.importorskip("ot")
    rise = np.linspace(0, 1, 12)[:, None]
    slow = np.repeat(rise, 2, axis=0)
    sets = [rise, slow, rise[::-1]]
    D = dtw_distances(sets)
    assert D[0, 1] < 1e-9 < 1 < D[0, 2]
    assert emd_distances(sets).max() < 1e-9
    with pytest.raises(ValueError, match="window must be"):
        dtw_distances(sets, window=-1)
    with pytest.raises(ValueError, match="B has vectors with 3 features"):
        dtw_distances(sets, SETS)


# ---------------------------------------------------------------------- bags of words


def make_blobs(counts, seed=0):
    """A set with so many vectors at each of the corners of a triangle."""
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    rows = np.repeat(corners, counts, axis=0)
    return rows + 0.1 * np.random.default_rng(seed).normal(size=rows.shape)


def test_histograms_count_the_nearest_words():
    counts = np.array([[4, 0, 6], [1, 1, 2], [0, 5, 0]])
    sets = [make_blobs(row, seed) for seed, row in enumerate(counts)]
    model = BagOfWords(3, weighting="count", random_state=0).fit(sets)
    corner = cdist(model.words_, [[0, 0], [10, 0], [0, 10]]).argmin(axis=1)
    assert sorted(corner) == [0, 1, 2]
    assert np.array_equal(model.transform(sets), counts[:, corner])
    shares = clone(model).set_params(weighting="share").fit(sets).transform(sets)
    assert shares == pytest.approx((counts / counts.sum(axis=1, keepdims=True))[:, corner])
    roots = clone(model).set_params(weighting="root").fit(sets).transform(sets)
    assert roots**2 == pytest.approx(shares)


def test_words_are_the_means_of_their_vectors():
    rows = make_blobs([30, 20, 10])
    words = BagOfWords(3, random_state=0).fit([rows]).words_
    nearest = cdist(rows, words).argmin(axis=1)
    for k, word in enumerate(words):
        assert word == pytest.approx(rows[nearest == k].mean(axis=0))


def test_repeated_vectors_count_as_often_as_they_occur():
    rows = np.repeat([[0.0], [1.0]], [9, 1], axis=0)
    assert BagOfWords(1).fit([rows[:5], rows[5:]]).words_ == pytest.approx(np.array([[0.1]]))


def test_order_within_a_set_does_not_matter():
    model = BagOfWords(5, random_state=0).fit(SETS)
    turned = [rows[::-1] for rows in SETS]
    assert np.array_equal(model.transform(turned), model.transform(SETS))
    assert np.array_equal(model.transform(SETS[[3, 1]]), model.transform(SETS)[[3, 1]])
    # Nor does that of the training sets.
    again = BagOfWords(5, random_state=0).fit(SETS[::-1])
    assert again.words_ == pytest.approx(model.words_)


def test_histograms_have_the_dtype_of_their_sets():
    narrow = Sets(SETS.X.astype(np.float32), SETS.offsets)
    model = BagOfWords(5, random_state=0).fit(SETS)
    assert model.transform(narrow).dtype == np.float32
    assert model.transform(narrow) == pytest.approx(model.transform(SETS))


def test_units_of_features_do_not_matter_when_scaled():
    units = np.array([1e-6, 1.0, 1e6])
    other = Sets(SETS.X * units, SETS.offsets)
    plain = BagOfWords(4, random_state=0).fit_transform(SETS)
    assert np.array_equal(BagOfWords(4, random_state=0).fit_transform(other), plain)
    rough = BagOfWords(4, standardize=False, random_state=0)
    assert not np.array_equal(rough.fit_transform(other), rough.fit_transform(SETS))


def test_constant_features_and_few_vectors_are_no_trouble():
    rows = np.array([[1.0, 5.0], [2.0, 5.0], [1.0, 5.0]])
    model = BagOfWords(10).fit([rows])
    assert model.words_ == pytest.approx(np.array([[1.0, 5.0], [2.0, 5.0]]))
    assert model.transform([rows, rows[1:2]]) == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1]]))


def test_many_vectors_go_by_batches():
    random = np.random.default_rng(0)
    sets = [random.normal(size=(11_000, 2)) + 5 * k for k in range(2)]
    H = BagOfWords(4, random_state=0).fit_transform(sets)
    assert H.sum(axis=1) == pytest.approx(1) and (H[0] * H[1]).sum() < 0.01


def test_words_serve_pipelines_and_searches():
    sets = make_sets(10, random_state=0)
    model = make_pipeline(BagOfWords(20, random_state=0), SVC(C=10))
    assert cross_val_score(model, sets, sets.labels).mean() > 0.8
    search = GridSearchCV(model, {"bagofwords__n_words": [1, 20]}, cv=3).fit(sets, sets.labels)
    assert search.best_params_ == {"bagofwords__n_words": 20}
    assert (search.predict(list(sets)) == search.predict(sets)).all()


def test_words_keep_the_contract_of_estimators():
    pytest.importorskip("pandas")
    model = BagOfWords(4, random_state=3)
    with pytest.raises(NotFittedError):
        model.transform(SETS)
    H = model.fit(SETS).transform(SETS)
    assert np.array_equal(clone(model).fit_transform(SETS), H)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).transform(SETS), H)
    assert model.get_feature_names_out().tolist() == [f"bagofwords{k}" for k in range(4)]
    assert list(model.set_output(transform="pandas").transform(SETS).columns) == [
        f"bagofwords{k}" for k in range(4)
    ]
    with pytest.raises(ValueError, match="X has vectors with 1 features, but .* fitted with 3"):
        model.transform([[[1.0]]])
    with pytest.raises(ValueError, match="Set 0 holds nan"):
        model.fit([[[np.nan]]])
    assert not hasattr(model, "words_")  # a fit that fails leaves nothing behind


@pytest.mark.parametrize(
    "options", [{"n_words": 0}, {"weighting": "tfidf"}, {"standardize": "yes"}, {"n_init": 0}]
)
def test_words_refuse_bad_parameters(options):
    with pytest.raises(ValueError, match=f"BagOfWords: {next(iter(options))} must be"):
        BagOfWords(**options).fit(SETS)
