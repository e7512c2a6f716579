"""Gait cycles, sequence distances and rates compared with loops and published tables."""

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from nearfar import GTDA, PCA, GaborFeatures, GaitRecognizer, Sets, load, save
from nearfar.datasets import make_walkers
from nearfar.tensors import (
    averaged_gait_images,
    gait_period,
    rank_k_rates,
    sequence_distance,
    weighted_average_rate,
)

RNG = np.random.default_rng(0)
TABLES = Path(__file__).parents[1] / "data" / "gait_tables_3_9_and_3_10.csv"


@pytest.fixture(scope="module")
def walkers():
    return make_walkers(6, 2, shape=(32, 22), random_state=4)


# ---------------------------------------------------------------------- cycles


@pytest.mark.parametrize(("n_frames", "period"), [(10, 3), (9, 3), (3, 3), (5, 1)])
def test_averages_are_means_of_whole_cycles_from_the_first_frame_on(n_frames, period):
    frames = RNG.random((n_frames, 4, 3))
    found = averaged_gait_images(frames, period)
    assert len(found) == n_frames // period
    for i, image in enumerate(found):
        wanted = sum(frames[i * period + t] for t in range(period)) / period
        np.testing.assert_allclose(image, wanted)


def test_all_ones_give_ones_and_dtypes_are_kept():
    for dtype, wanted in ((bool, np.float64), (np.uint8, np.float64), (np.float32, np.float32)):
        found = averaged_gait_images(np.ones((8, 3, 2), dtype), 4)
        assert (found == 1).all() and found.dtype == wanted


def test_periods_of_walkers_are_found_whatever_they_carry():
    conditions = ["", "view", "briefcase", "clothing+shoe", "surface"]
    sequences, _, periods = make_walkers(
        8, 5, shape=(48, 33), random_state=1, conditions=conditions
    )
    off = np.abs([gait_period(frames) for frames in sequences] - periods)
    assert (off <= 1).all() and np.mean(off == 0) > 0.8


@pytest.mark.parametrize("period", [6, 9, 16, 25])
def test_two_steps_are_a_period(period):
    # The legs are apart twice per cycle. A trend and noise are added.
    t = np.arange(80)
    area = 5 + np.cos(4 * np.pi * t / period) + 0.02 * t + 0.05 * RNG.normal(size=80)
    assert abs(gait_period(np.ones((80, 4, 3)) * area[:, None, None]) - period) <= 1


def test_left_steps_unlike_right_ones_do_not_double_a_period():
    t = np.arange(80)
    area = np.cos(4 * np.pi * t / 20) + 0.5 * np.cos(2 * np.pi * t / 20)
    assert gait_period(area[:, None, None] * np.ones((80, 4, 3))) == 20


@pytest.mark.parametrize(
    "frames", [np.ones((12, 4, 3)), np.zeros((5, 4, 3)), RNG.random((3, 4, 3))]
)
def test_where_nothing_repeats_all_frames_are_one_cycle(frames):
    assert gait_period(frames) == len(frames)
    assert averaged_gait_images(frames).shape == (1, 4, 3)
    trend = np.arange(12.0)[:, None, None] * np.ones((12, 4, 3))
    assert gait_period(trend) == 12


def test_a_period_does_not_depend_on_units():
    frames = make_walkers(1, 1, shape=(32, 22))[0][0]
    wanted = gait_period(frames)
    assert gait_period(frames * 255.0) == gait_period(frames * 1e-8) == wanted


def test_bad_sequences_are_refused_in_words():
    with pytest.raises(ValueError, match="5 frames, fewer than a period of 6"):
        averaged_gait_images(np.ones((5, 2, 2)), 6)
    with pytest.raises(ValueError, match="period must be"):
        averaged_gait_images(np.ones((5, 2, 2)), 0)
    for bad in (np.ones(5), np.empty((0, 2, 2)), [["a"]]):
        with pytest.raises(ValueError, match="silhouettes must be numbers in an array of shape"):
            gait_period(bad)
    with pytest.raises(ValueError, match="silhouettes contains NaN"):
        gait_period(np.full((4, 2, 2), np.nan))


# ---------------------------------------------------------------------- distances and rates


def slow_distance(P, G):
    nearest = []
    for p in P:
        nearest.append(min(np.sqrt(((p - g) ** 2).sum()) for g in G))
    nearest.sort()
    middle = len(nearest) // 2
    return nearest[middle] if len(nearest) % 2 else (nearest[middle - 1] + nearest[middle]) / 2


def test_distance_is_the_median_of_the_least_and_not_symmetric():
    for n_probe in (3, 4):
        P, G = RNG.normal(size=(n_probe, 5, 2)), RNG.normal(size=(6, 5, 2))
        assert sequence_distance(P, G) == pytest.approx(slow_distance(P, G))
        assert sequence_distance(G, P) == pytest.approx(slow_distance(G, P))
        assert sequence_distance(P, G) != pytest.approx(sequence_distance(G, P), rel=1e-3)
        assert sequence_distance(P, P) == 0
        # The result is neither the mean nor the minimum of the nearest distances.
        least = np.array([[np.linalg.norm(p - g) for g in G] for p in P]).min(axis=1)
        assert sequence_distance(P, G) not in (least.mean(), least.min())


def test_sequences_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="P has 3 features per cycle, but G has 2"):
        sequence_distance(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="G must have shape"):
        sequence_distance(np.ones((2, 3)), np.ones((0, 3)))
    with pytest.raises(ValueError, match="P contains NaN"):
        sequence_distance([[np.nan]], [[1.0]])


def slow_rate(D, probes, gallery, k):
    hits = 0
    for row, probe in zip(D, probes, strict=True):
        own = min(d for d, subject in zip(row, gallery, strict=True) if subject == probe)
        before = set()
        for d, subject in zip(row, gallery, strict=True):
            if subject != probe and d <= own:
                before.add(subject)
        hits += len(before) < k
    return hits / len(probes)


def test_rates_count_subjects_and_ties_against_the_probe():
    D = RNG.integers(0, 6, size=(40, 12)).astype(float)
    gallery = np.array(list("aabbccddeeff"))[RNG.permutation(12)]
    probes = RNG.choice(gallery, 40)
    ranks = (1, 2, 3, 6)
    found = rank_k_rates(D, probes, gallery, ranks=ranks)
    assert found.tolist() == [slow_rate(D, probes, gallery, k) for k in ranks]
    assert found[-1] == 1 and (np.diff(found) >= 0).all()
    assert rank_k_rates(np.ones((3, 4)), [0, 1, 2], range(4)).tolist() == [0, 1]


def test_bad_rates_are_refused():
    with pytest.raises(
        ValueError, match=r"probe_ids contains 'eve', which gallery_ids does not contain"
    ):
        rank_k_rates([[1.0]], ["eve"], ["ann"])
    with pytest.raises(ValueError, match="a column for each of 2 gallery_ids"):
        rank_k_rates([[1.0]], ["ann"], ["ann", "bob"])
    with pytest.raises(ValueError, match="ranks must be an integer of at least 1"):
        rank_k_rates([[1.0]], ["ann"], ["ann"], ranks=(0,))
    with pytest.raises(ValueError, match="distances contains NaN"):
        rank_k_rates([[np.nan]], ["ann"], ["ann"])
    with pytest.raises(ValueError, match="same length as the last axis of rates"):
        weighted_average_rate([1.0, 2.0], [1])
    with pytest.raises(ValueError, match="sizes must be"):
        weighted_average_rate([1.0, 2.0], [0, 0])
    with pytest.raises(ValueError, match="rates contains NaN"):
        weighted_average_rate([1.0, np.nan], [1, 1])


# ---------------------------------------------------------------------- tables 3.9 and 3.10

# Table, method and probe set; printed rate; rate implied by the printed average.
MISPRINTS = {("3.10", "GTDA"): ("H", 47, 74), ("3.10", "2DLDA"): ("B", 93, 97)}


def published():
    with TABLES.open(newline="") as file:
        head, sizes, *rows = csv.reader(file)
    numbers = {}
    for table, method, *rates, average in rows:
        if average:
            numbers[table, method] = np.array(rates, float), float(average)
    return head[2:-1], np.array(sizes[2:-1], float), numbers


def test_averages_of_the_tables_are_weighted_by_the_sizes_of_probes():
    _, sizes, rows = published()
    assert len(rows) == 27 + 26 and sizes.sum() == 958
    for key, (rates, average) in rows.items():
        if key not in MISPRINTS:
            assert weighted_average_rate(rates, sizes) == pytest.approx(average, abs=6e-5), key
            assert abs(rates.mean() - average) > 0.1, "an average without sizes is another"


@pytest.mark.parametrize("key", MISPRINTS)
def test_two_rates_are_misprints(key):
    probes, sizes, rows = published()
    rates, average = rows[key]
    probe, printed, right = MISPRINTS[key]
    at = probes.index(probe)
    assert rates[at] == printed
    assert abs(weighted_average_rate(rates, sizes) - average) > 0.2
    rates[at] = right
    assert weighted_average_rate(rates, sizes) == pytest.approx(average, abs=6e-5)
    if probe == "B":  # C has the same size and printed rate, so either may be wrong.
        rates[at], rates[at + 1] = printed, right
        assert sizes[at] == sizes[at + 1]
        assert weighted_average_rate(rates, sizes) == pytest.approx(average, abs=6e-5)


# ---------------------------------------------------------------------- GaitRecognizer


def slow_distances(gallery, ids, probes, period=None):
    """Return the distances of averaged images, in loops over sequences and subjects."""
    features = [averaged_gait_images(frames, period) for frames in gallery]
    D = []
    for frames in probes:
        P = averaged_gait_images(frames, period)
        D.append(
            [
                sequence_distance(
                    P, np.concatenate([f for f, i in zip(features, ids, strict=True) if i == who])
                )
                for who in np.unique(ids)
            ]
        )
    return np.array(D)


def test_distances_are_those_of_the_definition(walkers):
    sequences, ids, _ = walkers
    order = RNG.permutation(len(ids))
    shuffled = [sequences[k] for k in order]
    found = GaitRecognizer(lda=False).fit(shuffled, ids[order]).distances(sequences[:5])
    np.testing.assert_allclose(found, slow_distances(sequences, ids, sequences[:5]), atol=1e-10)


def test_predictions_ranks_and_rates_agree(walkers):
    sequences, ids, _ = walkers
    recognizer = GaitRecognizer(lda=False).fit(sequences[::2], ids[::2])
    D = recognizer.distances(sequences[1::2])
    ranked = recognizer.rank(sequences[1::2])
    np.testing.assert_array_equal(ranked[:, 0], recognizer.predict(sequences[1::2]))
    for row, order in zip(D, ranked, strict=True):
        assert (np.diff(row[order]) >= 0).all() and sorted(order) == list(range(6))
    rates = rank_k_rates(D, ids[1::2], recognizer.classes_, ranks=(1, 2))
    assert rates[0] == recognizer.score(sequences[1::2], ids[1::2])


def test_lda_is_shrunk_towards_the_mean_variance(walkers):
    sequences, ids, _ = walkers
    recognizer = GaitRecognizer(period=13).fit(sequences[::2], ids[::2])
    rows, owners = [], []
    for frames, who in zip(sequences[::2], ids[::2], strict=True):
        images = averaged_gait_images(frames, 13)
        rows.append(images.reshape(len(images), -1))
        owners += [who] * len(images)
    X = np.concatenate(rows)
    # Distances of means under the shrunk covariance, within the span of the rows.
    basis = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][: len(X) - 1]
    Z = (X - X.mean(axis=0)) @ basis.T
    within = sum(
        np.cov(Z[np.array(owners) == c].T, bias=True) * np.mean(np.array(owners) == c)
        for c in range(6)
    )
    share = 0.1 * np.trace(within) / X.shape[1]
    regular = 0.9 * within + share * np.eye(len(within))
    means = np.array([Z[np.array(owners) == c].mean(axis=0) for c in range(6)])
    wanted = np.sqrt(
        np.einsum(
            "cdi,ij,cdj->cd",
            *(means[:, None] - means,),
            np.linalg.inv(regular),
            *(means[:, None] - means,),
        )
    )
    mapped = recognizer._cycles
    starts = np.append(recognizer._starts, len(mapped))
    found = np.array([mapped[a:b].mean(axis=0) for a, b in pairwise(starts)])
    apart = np.linalg.norm(found[:, None] - found, axis=2)
    np.testing.assert_allclose(apart, wanted, rtol=1e-6)


class HalfSize(BaseEstimator):
    """A transformer that shrinks images and records its input."""

    def fit(self, X, y):
        self.seen_ = X.shape, np.asarray(y)
        return self

    def transform(self, X):
        return X[:, ::2, ::2]


@pytest.mark.parametrize("representation", ["agi", "gabor", "gabor_d", "gabor_s", "gabor_sd"])
def test_subspaces_are_given_the_representation_with_a_subject_for_each_cycle(
    walkers, representation
):
    sequences, _, _ = walkers
    recognizer = GaitRecognizer(representation, subspace=HalfSize(), lda=False, period=30)
    recognizer.fit(sequences[:4], ["b", "b", "a", "a"])
    shape, owners = recognizer.subspace_.seen_
    extra = {"agi": (), "gabor": (5, 8), "gabor_d": (5,), "gabor_s": (8,), "gabor_sd": ()}
    assert shape == (8, 32, 22, *extra[representation])
    assert owners.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    images = np.concatenate([averaged_gait_images(s, 30) for s in sequences[[2, 3, 0, 1]]])
    kind = {
        "gabor": "none",
        "gabor_d": "orientations",
        "gabor_s": "scales",
        "gabor_sd": "both",
    }.get(representation)
    if kind:
        images = GaborFeatures(kind, flatten=False).fit_transform(images)
    rows = images[:, ::2, ::2].reshape(8, -1)
    wanted = rows - rows.mean(axis=0)
    np.testing.assert_allclose(recognizer._cycles, wanted, atol=1e-5 * np.abs(wanted).max())


def test_symmetric_matching_and_angles_are_those_of_loops(walkers):
    sequences, ids, _ = walkers
    gallery, probes = sequences[::2], sequences[1::2]
    settings = {"lda": False, "period": 14, "matching": "symmetric_mean_min", "metric": "angle"}
    found = GaitRecognizer(**settings).fit(gallery, ids[::2]).distances(probes)
    images = [averaged_gait_images(s, 14).reshape(-1, 32 * 22) for s in gallery]
    mean = np.concatenate(images).mean(axis=0)

    def angle(p, g):
        p, g = p - mean, g - mean
        return np.arccos(np.clip(p @ g / np.linalg.norm(p) / np.linalg.norm(g), -1, 1))

    for k, frames in enumerate(probes):
        P = averaged_gait_images(frames, 14).reshape(-1, 32 * 22)
        for j, G in enumerate(images):
            A = np.array([[angle(p, g) for g in G] for p in P])
            wanted = (A.min(axis=1).mean() + A.min(axis=0).mean()) / 2
            assert found[k, j] == pytest.approx(wanted, abs=1e-7)


def test_sets_of_flat_frames_and_lists_say_the_same(walkers):
    sequences, ids, _ = walkers
    unequal = [frames[: 60 + k] for k, frames in enumerate(sequences)]
    flat = Sets.from_list([frames.reshape(len(frames), -1) for frames in unequal])
    wanted = GaitRecognizer("gabor_sd", lda=False).fit(unequal, ids).distances(unequal)
    shaped = GaitRecognizer("gabor_sd", lda=False, tensor_shape=(32, 22)).fit(flat, ids)
    np.testing.assert_array_equal(shaped.distances(flat), wanted)
    np.testing.assert_array_equal(shaped.distances(unequal), wanted)
    assert shaped.tensor_shape_ == (32, 22)


def test_it_tells_walkers_apart_and_is_saved(walkers, tmp_path):
    sequences, ids, _ = walkers
    names = np.array(["ann", "bob", "cid", "dan", "eve", "fay"])[ids]
    recognizer = GaitRecognizer().fit(sequences[::2], names[::2])
    assert recognizer.score(sequences[1::2], names[1::2]) >= 5 / 6
    pytest.importorskip("skops")
    file = tmp_path / "gait.nf"
    save(recognizer, file)
    again = load(file)
    np.testing.assert_array_equal(again.distances(sequences), recognizer.distances(sequences))


def test_subspaces_of_tensors_go_into_model_files(walkers, tmp_path):
    pytest.importorskip("skops")
    sequences, ids, _ = walkers
    recognizer = GaitRecognizer(subspace=GTDA((6, 5))).fit(sequences[::2], ids[::2])
    assert recognizer.subspace_.n_components_ == (6, 5)
    assert recognizer.score(sequences[1::2], ids[1::2]) >= 5 / 6
    save(recognizer, tmp_path / "gait.nf")
    again = load(tmp_path / "gait.nf")
    np.testing.assert_array_equal(again.distances(sequences), recognizer.distances(sequences))


def test_a_vector_learner_may_be_the_subspace_of_flat_frames():
    sequences, ids, _ = make_walkers(4, 2, shape=(16, 11))
    flat = Sets.from_list([frames.reshape(len(frames), -1) for frames in sequences])
    recognizer = GaitRecognizer(subspace=PCA(5)).fit(flat[::2], ids[::2])
    assert recognizer.score(flat[1::2], ids[1::2]) >= 0.5


def test_bad_walks_are_named(walkers):
    sequences, ids, _ = walkers
    recognizer = GaitRecognizer(period=30)
    short = [*sequences[:3], sequences[3][:20]]
    with pytest.raises(ValueError, match="Sequence 3: silhouettes has 20 frames, fewer than"):
        recognizer.fit(short, ids[:4])
    other = [*sequences[:2], sequences[2].swapaxes(1, 2)]
    with pytest.raises(ValueError, match=r"Sequence 2 has frames of shape \(22, 32\)"):
        recognizer.fit(other, ids[:3])
    narrow = [*sequences[:2], sequences[2][:, :, :-1]]
    with pytest.raises(ValueError, match="Set 2 has vectors of 672 features"):
        recognizer.fit(narrow, ids[:3])
    with pytest.raises(ValueError, match=r"have shape \(32, 11\) with 352 features"):
        recognizer.fit(sequences, ids).distances(sequences[:, :, :, :11])
    with pytest.raises(ValueError, match="only one gait cycle.*lda=False"):
        GaitRecognizer(period=70).fit(sequences[::2], ids[::2])
    with pytest.raises(ValueError, match="needs frames of shape .height, width.*tensor_shape"):
        GaitRecognizer("gabor").fit([s.reshape(70, -1) for s in sequences], ids)
    holes = sequences[:3].astype(float)
    holes[1, 4] = np.nan
    with pytest.raises(ValueError, match="Set 1 holds nan"):
        recognizer.fit(holes, ids[:3])
