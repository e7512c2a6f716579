"""Quality measures of embeddings, compared with loops, closed forms and scikit-learn."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import make_swiss_roll
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.manifold import Isomap, trustworthiness

from nearfar.evaluation import (
    embedding_quality,
    local_continuity,
    local_trust,
    neighborhood_intersection,
    out_of_sample_consistency,
    procrustes_error,
    rank_trustworthiness,
)


def nearest(points, k):
    distances = cdist(points, points)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def by_the_definition(X, Y, k, neighbors_of):
    """Return 1 - min_s sum (s b - a)² / sum a², with the minimum found by least squares."""
    near = nearest(neighbors_of, k)
    a = [np.linalg.norm(X[i] - X[j]) for i in range(len(X)) for j in near[i]]
    b = [np.linalg.norm(Y[i] - Y[j]) for i in range(len(X)) for j in near[i]]
    residual = np.linalg.lstsq(np.c_[b], np.array(a), rcond=None)[1][0]
    return 1 - residual / np.sum(np.square(a))


@pytest.fixture
def pair():
    random = np.random.default_rng(0)
    X = random.normal(size=(70, 3))
    return X, X[:, :2] * [1, 0.3] + 0.2 * random.normal(size=(70, 2))


@pytest.mark.parametrize("k", [1, 5, 69])
def test_continuity_and_trust_are_best_fits_over_neighbour_pairs(pair, k):
    X, Y = pair
    np.testing.assert_allclose(local_continuity(X, Y, k), by_the_definition(X, Y, k, X))
    np.testing.assert_allclose(local_trust(X, Y, k), by_the_definition(X, Y, k, Y))


@pytest.mark.parametrize("k", [1, 5, 69])
def test_intersection_counts_common_neighbours(pair, k):
    X, Y = pair
    shared = [len(set(p) & set(q)) for p, q in zip(nearest(X, k), nearest(Y, k), strict=True)]
    assert neighborhood_intersection(X, Y, k) == pytest.approx(sum(shared) / (70 * k))


def test_the_two_are_not_one(pair):
    X, Y = pair
    assert local_continuity(X, Y, 5) == pytest.approx(local_trust(Y, X, 5))
    assert abs(local_continuity(X, Y, 5) - local_trust(X, Y, 5)) > 0.05


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_rotations_and_scales_are_perfect(scale):
    X = np.random.default_rng(0).normal(size=(50, 3))
    Q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    Y = scale * X @ Q + 3 * scale
    assert local_continuity(X, Y, 6) == pytest.approx(1, abs=1e-12)
    assert local_trust(X, Y, 6) == pytest.approx(1, abs=1e-12)
    assert neighborhood_intersection(X, Y, 6) == 1
    assert rank_trustworthiness(X, Y, 6) == 1
    assert procrustes_error(X, Y, by="similarity") < 1e-7


def test_scale_of_the_output_plays_no_part(pair):
    X, Y = pair
    for measure in (local_continuity, local_trust):
        assert measure(X, 1e6 * Y, 7) == pytest.approx(measure(X, Y, 7), rel=1e-12)


def test_outputs_that_coincide_have_no_continuity():
    X = np.random.default_rng(0).normal(size=(20, 3))
    assert local_continuity(X, np.zeros((20, 2)), 3) == 0
    assert local_trust(X, np.zeros((20, 2)), 3) == 0
    assert local_continuity(np.zeros((20, 2)), np.zeros((20, 2)), 3) == 1


def test_few_stretched_pairs_decide_continuity_unless_left_out():
    X = np.linspace(0, 1, 400)[:, None]
    Y = X.copy()
    Y[200:] += 10  # a tear: 6 of 1600 pairs
    assert local_continuity(X, Y, 4) < 0.1
    assert local_continuity(X, Y, 4, without_stretched=0.01) > 0.999
    assert embedding_quality(X, Y, 4)["continuity_without_stretched"] > 0.999


def test_a_short_cut_is_seen_by_trust_alone():
    X = np.linspace(-1, 1, 101)[:, None]
    folded = np.abs(X) + 1e-3 * (X > 0)
    assert local_trust(X, folded, 4) < 0.2
    # Continuity decreases only at the fold.
    assert local_continuity(X, folded, 4) > 0.9
    assert neighborhood_intersection(X, folded, 4) < 0.6


@pytest.mark.parametrize("k", [3, 10])
def test_ranks_are_those_of_scikit_learn(pair, k):
    X, Y = pair
    assert rank_trustworthiness(X, Y, k) == pytest.approx(trustworthiness(X, Y, n_neighbors=k))
    assert abs(rank_trustworthiness(X, Y, k) - local_trust(X, Y, k)) > 0.01


def test_swiss_rolls_have_the_published_sizes():
    """Published values of a single draw: true sheet 1.000, 1.000, 0.998; Isomap 0.936, 0.946,
    0.855; PCA 0.827, 0.642, 0.353, which depends on the orientation of the axes in the draw."""
    X, t = make_swiss_roll(1000, random_state=0)
    flat = np.c_[(t * np.sqrt(1 + t**2) + np.arcsinh(t)) / 2, X[:, 1]]
    true = embedding_quality(X, flat)
    assert true["continuity"] > 0.99 and true["trust"] > 0.998 and true["intersection"] > 0.98
    unrolled = embedding_quality(X, Isomap(n_neighbors=8).fit_transform(X))
    for name, published in [("continuity", 0.936), ("trust", 0.946), ("intersection", 0.855)]:
        assert unrolled[name] == pytest.approx(published, abs=0.02)
    draws = []
    for seed in range(8):
        X, _ = make_swiss_roll(1000, random_state=seed)
        draws.append(embedding_quality(X, SklearnPCA(2).fit_transform(X)))
    for name, published in [("continuity", 0.827), ("trust", 0.642), ("intersection", 0.353)]:
        values = [draw[name] for draw in draws]
        assert min(values) - 0.03 < published < max(values) + 0.03


def test_blocks_change_nothing(pair):
    from sklearn import config_context

    X, Y = pair
    whole = embedding_quality(X, Y, 5), rank_trustworthiness(X, Y, 5)
    with config_context(working_memory=1e-3):
        assert whole == (embedding_quality(X, Y, 5), rank_trustworthiness(X, Y, 5))


def test_no_array_of_all_pairs_at_twenty_thousand_rows():
    import tracemalloc

    X = np.random.default_rng(0).normal(size=(20_000, 2)).astype(np.float32)
    tracemalloc.start()
    embedding_quality(X, X, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6  # all pairs of floats would be 3.2 GB


def test_procrustes_error_in_closed_form():
    U = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    stretched = U * [1, 3]
    # No rotation helps, so the error is that of the second axis.
    assert procrustes_error(U, stretched, relative=False) == pytest.approx(np.sqrt(8))
    # The best scale is sum σ / |V|² = 8 / 20.
    left = np.linalg.norm(U - 0.4 * stretched) / np.linalg.norm(U)
    assert procrustes_error(U, stretched, by="similarity") == pytest.approx(left)
    assert procrustes_error(U, stretched, by="linear") < 1e-12
    assert procrustes_error(U, np.c_[U, np.zeros(4)]) < 1e-12
    assert procrustes_error(U, U[:, ::-1] * [-1, 1]) < 1e-12  # reflections are allowed


def test_procrustes_error_beats_random_rotations():
    random = np.random.default_rng(0)
    U, V = random.normal(size=(2, 20, 3))
    U, V = U - U.mean(axis=0), V - V.mean(axis=0)
    best = procrustes_error(U, V, relative=False)
    for _ in range(300):
        Q, _ = np.linalg.qr(random.normal(size=(3, 3)))
        assert np.linalg.norm(U - V @ Q) >= best


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: local_continuity(X, X[1:]), "X has 20 rows but Y has 19"),
        (lambda X: local_trust(X, X, 20), "n_neighbors=20"),
        (lambda X: neighborhood_intersection(X, X, 0), "n_neighbors must be"),
        (lambda X: local_continuity(X * np.nan, X), "X contains NaN"),
        (lambda X: local_continuity(X, X * np.nan), "Y contains NaN"),
        (lambda X: local_continuity(X, X, 3, without_stretched=1.0), "without_stretched=1"),
        (lambda X: rank_trustworthiness(X, X, 10), "less than half"),
        (lambda X: procrustes_error(X, X, by="magic"), "by must be"),
        (lambda X: procrustes_error(X * 0, X), "All rows of U are equal"),
        (lambda X: out_of_sample_consistency(None, X, n_held_out=19), "n_held_out=19"),
    ],
)
def test_misuse_is_named(call, message):
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match=message):
        call(X)


class OneSided:
    """An embedding that places new points with a known error."""

    def __init__(self, error):
        self.error = error

    def get_params(self, deep=True):
        return {"error": self.error}

    def fit(self, X):
        self.embedding_ = X + 0.01 * np.random.default_rng(len(X)).normal(size=X.shape)
        self.seed = int(abs(X[0, 0]) * 1e6)
        return self

    def transform(self, X):
        return X + self.error * np.random.default_rng(self.seed).normal(size=X.shape)


def test_consistency_grows_with_the_error_of_new_points():
    X = np.random.default_rng(0).normal(size=(400, 2))
    ratios = [
        out_of_sample_consistency(OneSided(error), X, n_trials=4, random_state=0)["ratio"]
        for error in (0.01, 0.1)
    ]
    assert ratios[1] / ratios[0] == pytest.approx(10, rel=0.15)


def test_consistency_is_the_harmonic_mean_and_repeats():
    X = np.random.default_rng(0).normal(size=(100, 2))
    found = out_of_sample_consistency(OneSided(0.1), X, n_trials=3, random_state=1)
    assert found["ratio"] == pytest.approx(1 / np.mean(found["fitted"] / found["new"]))
    again = out_of_sample_consistency(OneSided(0.1), X, n_trials=3, random_state=1)
    np.testing.assert_array_equal(found["ratios"], again["ratios"])


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e150])
def test_no_measure_depends_on_the_scale(scale):
    random = np.random.RandomState(0)
    X, Y = random.standard_normal((40, 4)), random.standard_normal((40, 2))
    wanted = embedding_quality(X, Y, 6)
    for name, value in embedding_quality(scale * X, Y, 6).items():
        assert value == pytest.approx(wanted[name], rel=1e-9)
    assert local_trust(X, scale * Y, 6) == pytest.approx(wanted["trust"], rel=1e-9)
