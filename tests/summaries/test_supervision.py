"""Pairs, triplets, quadruplets and chunklets: construction, checks, drawing, restriction."""

import copy
import pickle
import time
import tracemalloc
from itertools import combinations, permutations
from math import comb

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from scipy.stats import chisquare
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris
from sklearn.model_selection import KFold, cross_validate

from nearfar.state import check_state
from nearfar.summaries import drawing
from nearfar.summaries.supervision import Chunklets, Pairs, Quadruplets, Triplets, as_chunklets

LABELS = np.array(["b", "a", "c", "a", "b", "a", "d", "a", "b"])

PAIRS = Pairs([[0, 1], [4, 2]], [[0, 2], [3, 1], [0, 2]], n_samples=5)
TRIPLETS = Triplets([[0, 1, 2], [4, 3, 0]], n_samples=5)
QUADRUPLETS = Quadruplets([[0, 1, 2, 3], [4, 3, 4, 0]], n_samples=5)
CHUNKLETS = Chunklets([0, 0, -1, 7, 7])
ALL = [PAIRS, TRIPLETS, QUADRUPLETS, CHUNKLETS]

all_kinds = pytest.mark.parametrize("supervision", ALL, ids=lambda s: type(s).__name__)


def arrays_of(supervision):
    return [value for value in vars(supervision).values() if isinstance(value, np.ndarray)]


def unordered(pairs):
    return [tuple(sorted(pair)) for pair in pairs.tolist()]


def pairs_by_brute_force(y, same):
    return {(i, j) for i, j in combinations(range(len(y)), 2) if (y[i] == y[j]) == same}


def triplets_by_brute_force(y):
    return {
        (a, b, c) for a, b, c in permutations(range(len(y)), 3) if y[a] == y[b] and y[a] != y[c]
    }


def quadruplets_by_brute_force(y):
    within, between = pairs_by_brute_force(y, True), pairs_by_brute_force(y, False)
    return {(*near, *far) for near in within for far in between}


def ordered(quadruplets):
    return [(*sorted(row[:2]), *sorted(row[2:])) for row in quadruplets.tolist()]


# Construction and attributes


@all_kinds
def test_attributes_cannot_be_set_or_deleted(supervision):
    name = next(iter(vars(supervision)))
    with pytest.raises(AttributeError, match=f"immutable; cannot set '{name}'"):
        setattr(supervision, name, None)
    with pytest.raises(AttributeError, match="immutable; cannot set 'n_samples'"):
        supervision.n_samples = 3
    with pytest.raises(AttributeError, match="immutable; cannot set 'extra'"):
        supervision.extra = 3
    with pytest.raises(AttributeError, match=f"immutable; cannot delete '{name}'"):
        delattr(supervision, name)


@all_kinds
def test_arrays_are_read_only(supervision):
    assert arrays_of(supervision)
    for array in arrays_of(supervision):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_arrays_given_are_neither_kept_nor_frozen():
    given = np.array([[0, 1]])
    pairs = Pairs(given, [], n_samples=3)
    given[0, 1] = 2
    assert pairs.similar.tolist() == [[0, 1]]
    labels = np.array([0, 0, -1])
    chunklets = Chunklets(labels)
    labels[0] = 5
    assert chunklets.labels.tolist() == [0, 0, -1]


@all_kinds
@pytest.mark.parametrize("name", ["__len__", "shape", "__getitem__", "__iter__", "__array__"])
def test_nothing_about_them_looks_like_an_array(supervision, name):
    assert not hasattr(supervision, name)


@all_kinds
@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_are_equal_and_still_read_only(supervision, duplicate):
    twin = duplicate(supervision)
    assert type(twin) is type(supervision)
    assert twin == supervision
    assert not any(array.flags.writeable for array in arrays_of(twin))
    with pytest.raises(AttributeError):
        twin.n_samples = 3


def test_equality_compares_every_field():
    assert Pairs(PAIRS.similar, PAIRS.dissimilar, n_samples=5) == PAIRS
    assert Pairs(PAIRS.similar, PAIRS.dissimilar, n_samples=6) != PAIRS
    assert Pairs(PAIRS.similar[:1], PAIRS.dissimilar, n_samples=5) != PAIRS
    assert Pairs(PAIRS.similar, PAIRS.dissimilar[:1], n_samples=5) != PAIRS
    assert Triplets(TRIPLETS.indices, n_samples=5) == TRIPLETS
    assert Triplets(TRIPLETS.indices[::-1], n_samples=5) != TRIPLETS
    assert Quadruplets(QUADRUPLETS.indices, n_samples=5) == QUADRUPLETS
    assert Quadruplets(QUADRUPLETS.indices[::-1], n_samples=5) != QUADRUPLETS
    assert Chunklets([0, 0, -1, 7, 7]) == CHUNKLETS
    assert Chunklets([0, 0, -1, 8, 8]) != CHUNKLETS
    assert PAIRS != TRIPLETS
    assert PAIRS != "Pairs"


def test_they_have_no_hash():
    with pytest.raises(TypeError, match="unhashable"):
        hash(PAIRS)


def test_repr_counts():
    assert repr(PAIRS) == "Pairs(2 similar, 3 dissimilar, n_samples=5)"
    assert repr(TRIPLETS) == "Triplets(2 triplets, n_samples=5)"
    assert repr(QUADRUPLETS) == "Quadruplets(2 quadruplets, n_samples=5)"
    assert repr(CHUNKLETS) == "Chunklets(2 chunklets of 4 rows, n_samples=5)"


@pytest.mark.parametrize("nothing", [[], np.empty((0, 2)), np.empty((0, 2), int)])
def test_empty_lists_are_no_constraints(nothing):
    pairs = Pairs(nothing, [[0, 1]], n_samples=2)
    assert pairs.similar.shape == (0, 2)
    assert pairs.similar.dtype == np.intp
    assert Triplets([], n_samples=0).indices.shape == (0, 3)
    assert Quadruplets([], n_samples=0).indices.shape == (0, 4)
    assert Chunklets([]).n_samples == 0


def test_repeated_constraints_are_kept_as_weights():
    assert Pairs([[0, 1], [1, 0], [0, 1]], [], n_samples=2).similar.shape == (3, 2)
    assert Triplets([[0, 1, 2], [0, 1, 2]], n_samples=3).indices.shape == (2, 3)
    assert Quadruplets([[0, 1, 2, 3], [1, 0, 2, 3]], n_samples=4).indices.shape == (2, 4)


def test_integers_of_every_kind_are_taken():
    expected = Pairs([[0, 1], [1, 2]], [], n_samples=3)
    rows = np.array([[0, 1], [1, 2]])
    for given in (
        rows.astype(np.uint8),
        rows.astype(np.uint64),
        rows.astype(object),
        pd.DataFrame(rows),
        pd.DataFrame(rows).astype("Int64"),
    ):
        assert Pairs(given, [], n_samples=np.int64(3)) == expected


# Invalid input


@pytest.mark.parametrize(
    ("similar", "dissimilar", "message"),
    [
        ([[0, 1], [2, 2.5]], [], r"similar row 1: 2\.5 is not an integer"),
        (np.array([[0.0, 1.0]]), [], r"similar row 0: 0\.0 is not an integer"),
        ([], [[0, 1], ["a", 2]], "dissimilar row 1: 'a' is not an integer"),
        (np.eye(2, dtype=bool), [], "similar row 0: True is not an integer"),
        ([[0, 1], [1, None]], [], "similar row 1: None is not an integer"),
        ([0, 1], [], r"similar should have shape \(m, 2\); got shape \(2,\)"),
        ([], [[0, 1, 2]], r"dissimilar should have shape \(m, 2\); got shape \(1, 3\)"),
        ([[]], [], r"similar should have shape \(m, 2\); got shape \(1, 0\)"),
        (np.empty((0, 3), int), [], r"similar should have shape \(m, 2\); got shape \(0, 3\)"),
        (None, [], r"similar should have shape \(m, 2\); got shape \(\)"),
        (
            [[0, 1], [1, 2], [0]],
            [],
            r"similar row 2: all rows must have the same length; .* shape \(m, 2\)",
        ),
        (
            [[0, 1], [1, 2], [2, 3], [4, 120]],
            [],
            "similar row 3: index 120 is out of range for n_samples=100",
        ),
        ([], [[0, 1], [-1, 2]], "dissimilar row 1: index -1 is out of range for n_samples=100"),
        ([[0, 100]], [], "similar row 0: index 100 is out of range"),
        (
            np.array([[0, 1], [2**63 + 5, 1]], np.uint64),
            [],
            "similar row 1: 9223372036854775813 is outside the range of integers",
        ),
        ([[0, 10**30]], [], f"similar row 0: {10**30} is outside the range of integers"),
        (
            [[0, 1], [7, 7]],
            [],
            "similar row 1: index 7 occurs twice; all indices of a row must differ",
        ),
        ([], [[3, 3]], "dissimilar row 0: index 3 occurs twice"),
        (
            [[0, 1], [4, 9]],
            [[1, 2], [0, 4], [4, 9]],
            r"similar row 1 and dissimilar row 2: the pair \(4, 9\) cannot be both",
        ),
        (
            [[0, 1], [4, 9]],
            [[9, 4], [0, 4]],
            r"similar row 1 and dissimilar row 0: the pair \(4, 9\) cannot be both",
        ),
    ],
)
def test_bad_pairs_raise_with_argument_and_row(similar, dissimilar, message):
    with pytest.raises(ValueError, match=message):
        Pairs(similar, dissimilar, n_samples=100)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([[0, 1, 2], [0, 1, 5]], "indices row 1: index 5 is out of range for n_samples=5"),
        ([[0, 1]], r"indices should have shape \(m, 3\); got shape \(1, 2\)"),
        ([[0, 1, 2.5]], "indices row 0: 2.5 is not an integer"),
        ([[0, 1, 2], [3, 3, 1]], "indices row 1: index 3 occurs twice"),  # anchor == near
        ([[0, 1, 2], [3, 1, 3]], "indices row 1: index 3 occurs twice"),  # anchor == far
        ([[0, 1, 2], [3, 1, 1]], "indices row 1: index 1 occurs twice"),  # near == far
        (
            [[1, 2, 3], [0, 1, 2], [3, 4, 0], [0, 2, 1]],
            "indices rows 1 and 3 contradict each other",
        ),
    ],
)
def test_bad_triplets_raise_with_argument_and_row(indices, message):
    with pytest.raises(ValueError, match=message):
        Triplets(indices, n_samples=5)


def test_triplets_that_only_look_opposite_are_taken():
    # Exchanging the anchor is not a contradiction, and neither is a cycle of anchors.
    rows = [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 3]]
    assert Triplets(rows, n_samples=4).indices.tolist() == rows


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([[0, 1, 2, 5]], "indices row 0: index 5 is out of range for n_samples=5"),
        ([[0, 1, 2]], r"indices should have shape \(m, 4\); got shape \(1, 3\)"),
        ([[0, 1, 2, 2.5]], "indices row 0: 2.5 is not an integer"),
        ([[0, 1, 2, 3], [3, 3, 1, 2]], "indices row 1: index 3 is paired with itself"),
        ([[0, 1, 2, 3], [0, 1, 4, 4]], "indices row 1: index 4 is paired with itself"),
        ([[0, 1, 2, 3], [0, 1, 0, 1]], r"row 1: the pair \(0, 1\) is compared with itself"),
        ([[0, 1, 2, 3], [4, 1, 1, 4]], r"row 1: the pair \(1, 4\) is compared with itself"),
        (
            [[1, 2, 3, 4], [0, 1, 2, 3], [0, 4, 1, 2], [3, 2, 0, 1]],
            "indices rows 1 and 3 contradict each other",
        ),
        ([[0, 1, 0, 2], [0, 2, 1, 0]], "indices rows 0 and 1 contradict each other"),
    ],
)
def test_bad_quadruplets_raise_with_argument_and_row(indices, message):
    with pytest.raises(ValueError, match=message):
        Quadruplets(indices, n_samples=5)


def test_quadruplets_that_only_look_opposite_are_taken():
    # Two pairs that share a point are a triplet. Cycles of comparisons are allowed.
    rows = [[0, 1, 0, 2], [0, 1, 2, 3], [2, 3, 0, 2], [1, 2, 0, 3]]
    assert Quadruplets(rows, n_samples=4).indices.tolist() == rows


# Pairs that are both similar and dissimilar


BOTH_WAYS = ([[0, 1], [2, 3], [1, 0], [4, 5]], [[3, 2], [0, 4], [1, 0], [0, 2]])


def test_pairs_said_both_ways_raise_are_dropped_or_kept():
    with pytest.raises(
        ValueError, match=r'cannot be both .*; pass conflicts="drop" to Pairs to omit such'
    ):
        Pairs(*BOTH_WAYS, n_samples=6)
    dropped = Pairs(*BOTH_WAYS, n_samples=6, conflicts="drop")
    assert dropped.similar.tolist() == [[4, 5]]
    assert dropped.dissimilar.tolist() == [[0, 4], [0, 2]]
    assert dropped.n_conflicts == 0
    kept = Pairs(*BOTH_WAYS, n_samples=6, conflicts="keep")
    assert (kept.similar.tolist(), kept.dissimilar.tolist()) == BOTH_WAYS
    assert kept.n_conflicts == 2
    with pytest.raises(ValueError, match="Pairs: conflicts must be 'raise' or 'drop' or 'keep'"):
        Pairs(*BOTH_WAYS, n_samples=6, conflicts="ignore")


def test_conflicts_that_were_kept_stay_in_copies_and_parts():
    kept = Pairs(*BOTH_WAYS, n_samples=6, conflicts="keep")
    assert copy.deepcopy(kept) == pickle.loads(pickle.dumps(kept)) == kept
    assert check_state(kept) == {}
    part = kept.restrict([3, 2, 0])
    assert part.similar.tolist() == [[1, 0]]
    assert part.dissimilar.tolist() == [[0, 1], [2, 1]]
    assert part.n_conflicts == 1


def test_points_said_both_ways_raise_are_dropped_or_kept():
    points = np.array([[[0.0], [1.0]], [[2.0], [3.0]], [[1.0], [0.0]], [[0.0], [2.0]]])
    sign = [1, 1, -1, -1]
    with pytest.raises(
        ValueError, match=r"rows 0 \(sign \+1\) and 2 \(sign -1\).*Pairs.from_arrays"
    ):
        Pairs.from_arrays(points, sign)
    X, dropped = Pairs.from_arrays(points, sign, conflicts="drop")
    assert X.ravel().tolist() == [0, 1, 2, 3]
    assert dropped == Pairs([[2, 3]], [[0, 2]], n_samples=4)
    X, kept = Pairs.from_arrays(points, sign, conflicts="keep")
    assert kept == Pairs([[0, 1], [2, 3]], [[1, 0], [0, 2]], n_samples=4, conflicts="keep")
    with pytest.raises(ValueError, match="Pairs.from_arrays: conflicts must be"):
        Pairs.from_arrays(points, sign, conflicts=None)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, -1, -2], "labels row 3: -2 is below -1"),
        ([0, 1.5], "labels row 1: 1.5 is not an integer"),
        ([0.0, 1.0], "labels row 0: 0.0 is not an integer"),
        ([True, False], "labels row 0: True is not an integer"),
        (["a", "b"], "labels row 0: 'a' is not an integer"),
        (pd.Series([1, None], dtype="Int64"), "labels row 1: <NA> is not an integer"),
        ([[0, 1]], r"labels should have shape \(m,\); got shape \(1, 2\)"),
        (
            [[0, 1], [2]],
            r"labels row 1: all rows must have the same length; labels should have shape \(m,\)",
        ),
        (3, r"labels should have shape \(m,\); got shape \(\)"),
    ],
)
def test_bad_chunklet_labels_raise_with_argument_and_row(labels, message):
    with pytest.raises(ValueError, match=message):
        Chunklets(labels)
    with pytest.raises(ValueError, match=message.replace("labels", "supervision")):
        as_chunklets(labels)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], [4, 5, 1]], "index 1 is in chunklet 0 and again in chunklet 1"),
        ([[0, 1], [4, 5, 4]], "index 4 is in chunklet 1 and again in chunklet 1"),
        ([[0, 1], [4, 10]], r"groups\[1\] row 1: index 10 is out of range for n_samples=10"),
        ([[0, 1], [4, 5.5]], r"groups\[1\] row 1: 5.5 is not an integer"),
        ([[0, 1], []], r"groups\[1\] is empty"),
        ([0, 0, 1], r"groups\[0\] should have shape \(m,\); got shape \(\)"),
    ],
)
def test_bad_groups_raise_with_index_and_chunklets(groups, message):
    with pytest.raises(ValueError, match=message):
        Chunklets.from_groups(groups, n_samples=10)


@pytest.mark.parametrize("n_samples", [-1, 2.0, True, None, "3"])
def test_n_samples_must_be_a_count(n_samples):
    for make in (
        lambda: Pairs([], [], n_samples=n_samples),
        lambda: Triplets([], n_samples=n_samples),
        lambda: Quadruplets([], n_samples=n_samples),
        lambda: Chunklets.from_groups([], n_samples=n_samples),
    ):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 0; got"):
            make()


@pytest.mark.parametrize("count", [-1, 2.0, True])
def test_counts_to_draw_must_be_counts(count):
    for make, name in (
        (Pairs, "n_similar"),
        (Pairs, "n_dissimilar"),
        (Triplets, "n_triplets"),
        (Quadruplets, "n_quadruplets"),
        (Chunklets, "n_chunklets"),
    ):
        with pytest.raises(
            ValueError, match=f"from_labels: {name} must be an integer of at least 0"
        ):
            make.from_labels(LABELS, **{name: count})
    with pytest.raises(ValueError, match="chunklet_size must be an integer of at least 2"):
        Chunklets.from_labels(LABELS, n_chunklets=1, chunklet_size=1)


@all_kinds
def test_another_number_of_rows_raises_and_says_what_to_do(supervision):
    supervision.check_n_samples(5)
    message = (
        "supervision was made for 5 samples but X has 4 rows. scikit-learn's own "
        r"cross-validation does not restrict index-based supervision; use "
        r"nearfar\.evaluation\.cross_validate\(\.\.\., supervision=\.\.\.\) or "
        r"supervision\.restrict\(indices\)"
    )
    with pytest.raises(ValueError, match=message):
        supervision.check_n_samples(4)
    with pytest.raises(ValueError, match=message):
        supervision.to_arrays(np.zeros((4, 2)))


# Drawing from labels


def test_all_pairs_are_taken_once_when_the_cap_allows():
    pairs = Pairs.from_labels(LABELS)
    similar, dissimilar = unordered(pairs.similar), unordered(pairs.dissimilar)
    assert set(similar) == pairs_by_brute_force(LABELS, same=True)
    assert set(dissimilar) == pairs_by_brute_force(LABELS, same=False)
    assert len(similar) + len(dissimilar) == comb(len(LABELS), 2)
    assert pairs.n_samples == len(LABELS)


def test_all_triplets_are_taken_once_when_the_cap_allows():
    triplets = [tuple(row) for row in Triplets.from_labels(LABELS).indices.tolist()]
    assert len(triplets) == len(set(triplets))
    assert set(triplets) == triplets_by_brute_force(LABELS)


def test_all_quadruplets_are_taken_once_when_the_cap_allows():
    possible = quadruplets_by_brute_force(LABELS)
    drawn = ordered(Quadruplets.from_labels(LABELS, n_quadruplets=len(possible)).indices)
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == possible


def test_a_class_of_one_is_far_only():
    alone = {2, 6}
    anchors, near, far = Triplets.from_labels(LABELS).indices.T
    assert not alone & set(anchors.tolist())
    assert not alone & set(near.tolist())
    assert alone <= set(far.tolist())


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.4, 0.9, 1.0])
def test_drawn_constraints_are_distinct_and_as_many_as_asked(fraction):
    y = np.random.default_rng(0).integers(0, 4, 60)
    within, between = pairs_by_brute_force(y, True), pairs_by_brute_force(y, False)
    n_similar, n_dissimilar = int(fraction * len(within)), int(fraction * len(between))
    pairs = Pairs.from_labels(y, n_similar=n_similar, n_dissimilar=n_dissimilar, random_state=1)
    assert len(pairs.similar) == len(set(unordered(pairs.similar)) & within) == n_similar
    assert len(pairs.dissimilar) == len(set(unordered(pairs.dissimilar)) & between) == n_dissimilar

    possible = triplets_by_brute_force(y)
    n_triplets = int(fraction * len(possible))
    drawn = Triplets.from_labels(y, n_triplets=n_triplets, random_state=1).indices.tolist()
    assert len(drawn) == len({tuple(row) for row in drawn} & possible) == n_triplets

    y = y[:20]
    possible = quadruplets_by_brute_force(y)
    n_quadruplets = int(fraction * len(possible))
    drawn = Quadruplets.from_labels(y, n_quadruplets=n_quadruplets, random_state=1).indices
    assert len(drawn) == len(set(ordered(drawn)) & possible) == n_quadruplets


def p_value_of_uniformity(draw, possible, size):
    """Test by chi-square that all subsets of a size are equally likely."""
    number = {subset: k for k, subset in enumerate(combinations(sorted(possible), size))}
    counts = np.zeros(len(number))
    for _ in range(25 * len(number)):
        counts[number[tuple(sorted(draw()))]] += 1
    return chisquare(counts).pvalue


@pytest.mark.parametrize("size", [2, 3])
def test_every_set_of_similar_pairs_is_equally_likely(size):
    y, rng = [0, 1, 0, 1, 0, 2, 0], np.random.RandomState(0)  # 7 pairs; 2 by redraw, 3 by shuffle

    def draw():
        return unordered(
            Pairs.from_labels(y, n_similar=size, n_dissimilar=0, random_state=rng).similar
        )

    assert p_value_of_uniformity(draw, pairs_by_brute_force(y, True), size) > 1e-3


def test_every_set_of_dissimilar_pairs_is_equally_likely():
    y, rng = [0, 1, 0, 1, 2], np.random.RandomState(0)  # 8 pairs

    def draw():
        return unordered(
            Pairs.from_labels(y, n_similar=0, n_dissimilar=2, random_state=rng).dissimilar
        )

    assert p_value_of_uniformity(draw, pairs_by_brute_force(y, False), 2) > 1e-3


def test_every_set_of_triplets_is_equally_likely():
    y, rng = [0, 1, 0, 2, 1], np.random.RandomState(0)  # 12 triplets

    def draw():
        drawn = Triplets.from_labels(y, n_triplets=2, random_state=rng).indices.tolist()
        return [tuple(row) for row in drawn]

    assert p_value_of_uniformity(draw, triplets_by_brute_force(y), 2) > 1e-3


def test_every_set_of_quadruplets_is_equally_likely():
    y, rng = [0, 1, 0, 1], np.random.RandomState(0)  # 8 quadruplets

    def draw():
        return ordered(Quadruplets.from_labels(y, n_quadruplets=2, random_state=rng).indices)

    assert p_value_of_uniformity(draw, quadruplets_by_brute_force(y), 2) > 1e-3


def test_quadruplets_too_many_to_number_are_drawn_the_same_way(monkeypatch):
    y, rng = [0, 1, 0, 1], np.random.RandomState(0)
    monkeypatch.setattr(drawing, "_MAX_RANK", 7)

    def draw():
        return ordered(Quadruplets.from_labels(y, n_quadruplets=2, random_state=rng).indices)

    assert p_value_of_uniformity(draw, quadruplets_by_brute_force(y), 2) > 1e-3


def test_drawn_pairs_come_in_no_order():
    # Pairs must not be sorted by class, because online learners read them in order.
    y = np.repeat([0, 1], 500)
    classes = y[Pairs.from_labels(y, n_similar=400, random_state=0).similar[:, 0]]
    assert 120 < np.count_nonzero(np.diff(classes)) < 280


def test_the_seed_decides_the_draw():
    y = np.arange(1000) % 7

    def drawn(seed):
        return [
            Pairs.from_labels(y, n_similar=20, n_dissimilar=20, random_state=seed),
            Triplets.from_labels(y, n_triplets=20, random_state=seed),
            Quadruplets.from_labels(y, n_quadruplets=20, random_state=seed),
            Chunklets.from_labels(y, n_chunklets=20, random_state=seed),
        ]

    assert drawn(3) == drawn(3)
    assert all(a != b for a, b in zip(drawn(3), drawn(4), strict=True))


@pytest.mark.parametrize(("n_classes", "cap"), [(2, 1_000), (11, 2_200), (300, 100_000)])
def test_default_cap_grows_with_the_classes_within_limits(n_classes, cap):
    y = np.arange(n_classes * 100) % n_classes
    pairs = Pairs.from_labels(y, random_state=0)
    assert len(pairs.similar) == len(pairs.dissimilar) == cap
    assert len(Triplets.from_labels(y, random_state=0).indices) == cap
    assert len(Quadruplets.from_labels(y, random_state=0).indices) == cap


def test_labels_without_pairs_of_a_kind_give_none():
    one_class = Pairs.from_labels(["x"] * 4)
    assert (len(one_class.similar), len(one_class.dissimilar)) == (6, 0)
    all_different = Pairs.from_labels(list("abcd"))
    assert (len(all_different.similar), len(all_different.dissimilar)) == (0, 6)
    assert len(Triplets.from_labels(["x"] * 4).indices) == 0
    assert len(Triplets.from_labels(list("abcd")).indices) == 0
    assert len(Quadruplets.from_labels(["x"] * 4).indices) == 0
    assert len(Quadruplets.from_labels(list("abcd")).indices) == 0


def test_extreme_imbalance_is_drawn_exactly():
    # Only 299,994 + 3 of 5e9 pairs are between classes, too few for rejection sampling.
    n = 100_000
    y = np.zeros(n, int)
    rare = [5, 77_777, 99_999]
    y[rare] = [1, 1, 2]
    started = time.process_time()
    pairs = Pairs.from_labels(y, n_similar=5_000, n_dissimilar=10**6, random_state=0)
    triplets = Triplets.from_labels(y, n_triplets=5_000, random_state=0).indices
    assert time.process_time() - started < 30  # takes 0.1 s; rejection sampling would take hours
    assert len(set(unordered(pairs.dissimilar))) == len(pairs.dissimilar) == 3 * (n - 3) + 2
    assert np.all(y[pairs.dissimilar[:, 0]] != y[pairs.dissimilar[:, 1]])
    assert len(set(unordered(pairs.similar))) == 5_000
    assert np.all(y[pairs.similar[:, 0]] == y[pairs.similar[:, 1]])
    assert np.all(y[triplets[:, 0]] == y[triplets[:, 1]])
    assert np.all(y[triplets[:, 0]] != y[triplets[:, 2]])
    assert len(np.unique(triplets, axis=0)) == 5_000

    few = Pairs.from_labels(y, n_similar=0, n_dissimilar=3_000, random_state=0).dissimilar
    # Each rare row is in about a third of the dissimilar pairs.
    share = [np.count_nonzero(few == row) for row in rare]
    assert all(900 < count < 1_100 for count in share)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 1_000])
def test_a_million_rows_take_little_time_and_memory(n_classes):
    y = np.random.default_rng(0).integers(0, n_classes, 1_000_000)
    for make in (
        lambda: Pairs.from_labels(y, random_state=0),
        lambda: Triplets.from_labels(y, random_state=0),
        lambda: Quadruplets.from_labels(y, random_state=0),
        lambda: Chunklets.from_labels(y, n_chunklets=1_000, random_state=0),
    ):
        tracemalloc.start()
        started = time.process_time()
        make()
        seconds = time.process_time() - started
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert seconds < 30  # takes 0.4 s; enumerating pairs of rows would take days
        assert peak < 100e6


def test_more_triplets_than_integers_raise():
    with pytest.raises(ValueError, match="y has 4000000 rows, with more triplets than 64-bit"):
        Triplets.from_labels(np.arange(4_000_000) % 2, n_triplets=5)


def test_ranks_of_pairs_decode_where_floats_round():
    ranks = np.arange(5_000)
    i, j = drawing._unrank_pair(ranks)
    assert (
        list(zip(i.tolist(), j.tolist(), strict=True))
        == [(a, b) for b in range(1, 101) for a in range(b)][:5_000]
    )
    # Test around triangular numbers that float64 cannot represent.
    for j0 in (94_906_267, 10**9 + 7, 2 * 10**9 + 1):
        start = j0 * (j0 - 1) // 2
        i, j = drawing._unrank_pair(np.array([start - 1, start, start + 1]))
        assert i.tolist() == [j0 - 2, 0, 1]
        assert j.tolist() == [j0 - 1, j0, j0]


def test_without_a_number_every_class_is_a_chunklet():
    assert Chunklets.from_labels(LABELS).labels.tolist() == [1, 0, 2, 0, 1, 0, 3, 0, 1]


@pytest.mark.parametrize("chunklet_size", [2, 3, 5])
def test_chunklets_from_labels_are_disjoint_and_within_a_class(chunklet_size):
    y = np.random.default_rng(0).integers(0, 5, 200)
    room = int(np.sum(np.bincount(y) // chunklet_size))
    for asked in (0, 1, 17, room, 10_000):
        labels = Chunklets.from_labels(
            y, n_chunklets=asked, chunklet_size=chunklet_size, random_state=0
        ).labels
        numbers, counts = np.unique(labels[labels >= 0], return_counts=True)
        assert numbers.tolist() == list(range(min(asked, room)))
        assert np.all(counts == chunklet_size)
        assert all(len(set(y[labels == number])) == 1 for number in numbers)


def test_chunklets_are_drawn_from_everywhere():
    y, rng = np.repeat([0, 1], [5, 4]), np.random.RandomState(0)
    hits = np.zeros((9, 9))
    for _ in range(3_000):
        a, b = np.flatnonzero(Chunklets.from_labels(y, n_chunklets=1, random_state=rng).labels == 0)
        hits[a, b] += 1
    # Each class can hold two chunklets, so it gets half of the draws, uniformly over pairs.
    of_five, of_four = hits[:5, :5][np.triu_indices(5, 1)], hits[5:, 5:][np.triu_indices(4, 1)]
    assert of_five.sum() + of_four.sum() == 3_000
    expected = np.repeat([150.0, 250.0], [10, 6])
    assert chisquare(np.concatenate([of_five, of_four]), expected).pvalue > 1e-3


@pytest.mark.parametrize("make", [Pairs, Triplets, Quadruplets, Chunklets])
@pytest.mark.parametrize(
    ("y", "unknown"),
    [
        (np.array([-1, 2, 2, -1, 3, 3, 2]), -1),
        (np.array([-1.0, 2, 2, -1, 3, 3, 2]), -1),
        ([-1, "b", "b", -1, "c", "c", "b"], -1),
        (["?", "b", "b", "?", "c", "c", "b"], "?"),
        ([None, "b", "b", np.nan, "c", "c", "b"], np.nan),
        (np.array([np.nan, 2, 2, np.nan, 3, 3, 2]), np.nan),
        (pd.Series([None, 2, 2, None, 3, 3, 2], dtype="Int64"), pd.NA),
        (pd.Series(["?", "b", "b", "?", "c", "c", "b"], dtype="category"), "?"),
    ],
)
def test_rows_of_unknown_label_take_part_in_nothing(make, y, unknown):
    known = [1, 2, 4, 5, 6]
    some = make.from_labels(y, unknown=unknown, random_state=0)
    assert some.n_samples == 7
    assert some.restrict(known) == make.from_labels(list("bbccb"), random_state=0)
    if make is Chunklets:
        assert some.labels[[0, 3]].tolist() == [-1, -1]
        two = Chunklets.from_labels(y, n_chunklets=2, unknown=unknown, random_state=0).labels
        assert two[[0, 3]].tolist() == [-1, -1]
        assert sorted(two[known].tolist()) == [-1, 0, 0, 1, 1]
    else:  # restriction to known rows loses nothing
        assert sum(map(len, arrays_of(some))) == sum(map(len, arrays_of(some.restrict(known))))


@pytest.mark.parametrize("make", [Pairs, Triplets, Quadruplets, Chunklets])
def test_labels_that_are_all_unknown_or_still_missing_raise(make):
    with pytest.raises(ValueError, match="Every label of y is -1"):
        make.from_labels([-1, -1], unknown=-1)
    for y in ([-1, 0, None, 1], np.array([-1, 0, np.nan, 1])):
        with pytest.raises(ValueError, match=r"NaN.*\(row 2\)"):
            make.from_labels(y, unknown=-1)
    # Unless unknown=-1 is passed, -1 is an ordinary label.
    assert make.from_labels([-1, -1, 0, 0]) == make.from_labels([0, 0, 1, 1])


@pytest.mark.parametrize("make", [Pairs, Triplets, Quadruplets, Chunklets])
def test_labels_of_any_kind_are_taken_and_missing_ones_raise(make):
    codes = [0, 1, 0, 2, 1]
    expected = make.from_labels(codes)
    for y in (
        np.array(list("xyz"))[codes],
        pd.Series(list("xyz"))[codes].astype("category"),
        pd.Series(codes, dtype="Int64"),
    ):
        assert make.from_labels(y) == expected
    with pytest.raises(ValueError, match=r"missing value \(row 1\)"):
        make.from_labels(["a", None, "b"])


# Triplets of neighbors


def triplets_of_neighbors_by_loops(X, y, n_near, n_far):
    rows = []
    for i in range(len(X)):
        order = np.argsort(np.linalg.norm(X - X[i], axis=1), kind="stable").tolist()
        near = [j for j in order if j != i and y[j] == y[i]][:n_near]
        far = [j for j in order if y[j] != y[i]][:n_far]
        rows += [[i, a, b] for a in near for b in far]
    return rows


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_triplets_of_neighbors_are_those_of_a_loop(dtype):
    X, y = load_iris(return_X_y=True)
    X = X[::2].astype(dtype)
    triplets = Triplets.from_neighbors(X, np.array(list("xyz"))[y[::2]], n_near=2, n_far=4)
    assert triplets.n_samples == len(X)
    assert triplets.indices.tolist() == triplets_of_neighbors_by_loops(
        X.astype(float), y[::2], 2, 4
    )


def test_small_classes_give_fewer_neighbors_with_a_warning():
    X, y = np.arange(7.0)[:, None] ** 2, np.array(["a", "a", "b", "b", "b", "b", "c"])
    with pytest.warns(UserWarning) as caught:
        triplets = Triplets.from_neighbors(X, y, n_near=2, n_far=4)
    assert triplets.indices.tolist() == triplets_of_neighbors_by_loops(X, y, 2, 4)
    near, far = (str(warning.message) for warning in caught)
    assert "n_near=2, but rows of a and c have fewer neighbors in their class" in near
    assert "n_far=4, but only 3 rows are in classes other than b" in far
    with pytest.warns(UserWarning, match="only 0 rows are in classes other than 5"):
        assert len(Triplets.from_neighbors(X, [5] * 7).indices) == 0


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        ([[0.0], [1.0]], [0, 1, 1], {}, "X has 2 rows but y has 3 labels"),
        ([[0.0], [np.nan]], [0, 1], {}, "Input X contains NaN"),
        ([[0.0], [1.0]], [0, None], {}, "missing value"),
        ([[0.0], [1.0]], [0, 1], {"n_near": 0}, "n_near must be an integer of at least 1; got 0"),
        ([[0.0], [1.0]], [0, 1], {"n_far": 1.5}, "n_far must be an integer of at least 1; got 1.5"),
    ],
)
def test_bad_input_to_triplets_of_neighbors_raises(X, y, options, message):
    with pytest.raises(ValueError, match=message):
        Triplets.from_neighbors(X, y, **options)


# Restriction to some rows


def restricted_by_brute_force(rows, kept):
    place = {row: k for k, row in enumerate(kept)}
    return [[place[i] for i in row] for row in rows.tolist() if all(i in place for i in row)]


@pytest.mark.parametrize("seed", range(5))
def test_restrict_drops_and_renumbers(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 40)
    kept = rng.permutation(40)[: rng.integers(0, 41)]
    pairs = Pairs.from_labels(y, n_similar=60, n_dissimilar=60, random_state=seed)
    triplets = Triplets.from_labels(y, n_triplets=200, random_state=seed)
    small = pairs.restrict(kept)
    assert small.n_samples == len(kept)
    assert small.similar.tolist() == restricted_by_brute_force(pairs.similar, kept)
    assert small.dissimilar.tolist() == restricted_by_brute_force(pairs.dissimilar, kept)
    quadruplets = Quadruplets.from_labels(y, n_quadruplets=300, random_state=seed)
    assert quadruplets.restrict(kept).n_samples == len(kept)
    assert quadruplets.restrict(kept).indices.tolist() == restricted_by_brute_force(
        quadruplets.indices, kept
    )
    fewer = triplets.restrict(kept)
    assert fewer.n_samples == len(kept)
    assert fewer.indices.tolist() == restricted_by_brute_force(triplets.indices, kept)
    labels = Chunklets.from_labels(y, n_chunklets=12, random_state=seed).labels
    assert as_chunklets(labels).restrict(kept).labels.tolist() == labels[kept].tolist()


def test_restricted_pairs_name_the_same_points():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    kept = rng.permutation(30)[:20]
    pairs = Pairs.from_labels(y)
    among = np.isin(np.vstack([pairs.similar, pairs.dissimilar]), kept).all(axis=1)
    for got, expected in zip(
        pairs.restrict(kept).to_arrays(X[kept]), pairs.to_arrays(X), strict=True
    ):
        np.testing.assert_array_equal(got, expected[among])


@all_kinds
def test_restrict_takes_masks_lists_and_nothing(supervision):
    mask = np.array([True, False, True, True, True])
    by_index = supervision.restrict(np.flatnonzero(mask))
    assert by_index.n_samples == 4
    assert supervision.restrict(mask) == by_index
    assert supervision.restrict(mask.tolist()) == by_index
    assert supervision.restrict(pd.Series(mask)) == by_index
    assert supervision.restrict([]).n_samples == 0
    assert supervision.restrict(range(5)) == supervision


@all_kinds
@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 3, 1, 3], r"indices\[1\] and indices\[3\] are both 3; indices must be distinct"),
        ([0, 5], "indices row 1: index 5 is out of range for n_samples=5"),
        ([0, -1], "indices row 1: index -1 is out of range for n_samples=5"),
        ([0, 1.0], "indices row 1: 1.0 is not an integer"),
        ([[0, 1]], r"indices should have shape \(m,\)"),
        ([True, False], r"boolean mask of shape \(2,\); it should have shape \(5,\)"),
    ],
)
def test_bad_indices_raise(supervision, indices, message):
    with pytest.raises(ValueError, match=message):
        supervision.restrict(indices)


# Points instead of indices


def test_to_arrays_gives_the_points_and_signs():
    X = np.arange(10.0).reshape(5, 2)
    points, sign = PAIRS.to_arrays(X)
    assert sign.tolist() == [1, 1, -1, -1, -1]
    np.testing.assert_array_equal(points[1], X[[4, 2]])
    np.testing.assert_array_equal(points[3], X[[3, 1]])
    assert points.shape == (5, 2, 2)
    np.testing.assert_array_equal(TRIPLETS.to_arrays(X), X[[[0, 1, 2], [4, 3, 0]]])
    np.testing.assert_array_equal(QUADRUPLETS.to_arrays(X), X[[[0, 1, 2, 3], [4, 3, 4, 0]]])
    first, second = CHUNKLETS.to_arrays(X)
    np.testing.assert_array_equal(first, X[:2])
    np.testing.assert_array_equal(second, X[3:])


@all_kinds
def test_to_arrays_takes_frames_keeps_the_dtype_and_refuses_the_rest(supervision):
    X = np.arange(10, dtype=np.float32).reshape(5, 2)
    got = supervision.to_arrays(pd.DataFrame(X))
    assert got[0].dtype == np.float32
    with pytest.raises(ValueError, match="Input X contains NaN"):
        supervision.to_arrays(np.full((5, 2), np.nan))
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        supervision.to_arrays(sparse.csr_matrix(X))
    with pytest.raises(ValueError, match="2D"):
        supervision.to_arrays(X[:, 0])


def test_without_members_there_are_no_chunklet_arrays():
    assert Chunklets([-1, -1]).to_arrays([[1.0], [2.0]]) == []


def test_pairs_return_from_arrays():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), rng.integers(0, 3, 12)
    points, sign = Pairs.from_labels(y).to_arrays(X)
    shuffled = rng.permutation(len(sign))
    points, sign = points[shuffled], sign[shuffled]
    X_back, pairs = Pairs.from_arrays(points, sign)
    np.testing.assert_array_equal(X_back, np.unique(X, axis=0))
    again, sign_again = pairs.to_arrays(X_back)
    order = np.argsort(-sign, kind="stable")
    np.testing.assert_array_equal(again, points[order])
    np.testing.assert_array_equal(sign_again, sign[order])


def test_triplets_return_from_arrays():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 3)), rng.integers(0, 3, 8)
    points = Triplets.from_labels(y).to_arrays(X)
    X_back, triplets = Triplets.from_arrays(points)
    assert len(X_back) == len(np.unique(points.reshape(-1, 3), axis=0))
    np.testing.assert_array_equal(triplets.to_arrays(X_back), points)


def test_quadruplets_return_from_arrays():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 3)), rng.integers(0, 3, 8)
    points = Quadruplets.from_labels(y).to_arrays(X)
    X_back, quadruplets = Quadruplets.from_arrays(points)
    # A point that occurs in both pairs is one row.
    assert len(X_back) == len(np.unique(points.reshape(-1, 3), axis=0))
    np.testing.assert_array_equal(quadruplets.to_arrays(X_back), points)


def test_equal_points_of_a_tuple_stay_different_rows():
    a, b = [0.0, 1.0], [2.0, 3.0]
    X, pairs = Pairs.from_arrays([[b, a], [a, a]], [1, -1])
    assert X.tolist() == [a, a, b]
    assert pairs == Pairs([[2, 0]], [[0, 1]], n_samples=3)
    X, triplets = Triplets.from_arrays([[a, a, b], [a, b, b], [b, b, b]])
    assert X.tolist() == [a, a, b, b, b]
    assert triplets == Triplets([[0, 1, 2], [0, 2, 3], [2, 3, 4]], n_samples=5)
    X, quadruplets = Quadruplets.from_arrays([[a, a, a, b], [a, b, b, a], [b, b, b, b]])
    assert quadruplets.to_arrays(X).tolist() == [[a, a, a, b], [a, b, b, a], [b, b, b, b]]
    assert Quadruplets(quadruplets.indices, n_samples=len(X)) == quadruplets  # all checks pass


@pytest.mark.parametrize("make", [Pairs, Triplets, Quadruplets])
def test_iris_which_has_equal_rows_returns_from_arrays(make):
    X, y = load_iris(return_X_y=True)
    assert len(np.unique(X, axis=0)) < len(X)
    made = make.from_labels(y, random_state=0)
    (twin, other) = np.flatnonzero((X[101] == X).all(axis=1))  # a pair of equal rows
    if make is Pairs:
        made = Pairs(np.vstack([made.similar, [[twin, other]]]), made.dissimilar, n_samples=150)
        points, sign = made.to_arrays(X)
        X_back, again = make.from_arrays(points, sign)
        np.testing.assert_array_equal(again.to_arrays(X_back)[0], points)
        return
    tail = [twin, 0] if make is Quadruplets else [0]
    indices = np.vstack([made.indices, [[twin, other, *tail], [other, twin, *tail]]])
    points = make(indices, n_samples=150).to_arrays(X)
    X_back, again = make.from_arrays(points)
    np.testing.assert_array_equal(again.to_arrays(X_back), points)
    assert len(X_back) <= len(X)


def test_chunklets_return_from_arrays():
    chunks = [np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[5.0, 6.0], [0.0, 0.0], [1.0, 2.0]])]
    X, chunklets = Chunklets.from_arrays(chunks)
    assert chunklets.labels.tolist() == [0, 0, 1, 1, 1]
    for got, expected in zip(chunklets.to_arrays(X), chunks, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_zero_and_minus_zero_are_one_point():
    X, pairs = Pairs.from_arrays([[[0.0], [1.0]], [[-0.0], [2.0]]], [1, -1])
    assert X.ravel().tolist() == [0, 1, 2]
    assert pairs == Pairs([[0, 1]], [[0, 2]], n_samples=3)


TWO_PAIRS = [[[0.0, 1.0], [2.0, 3.0]], [[0.0, 1.0], [4.0, 5.0]]]


@pytest.mark.parametrize(
    ("pairs", "sign", "message"),
    [
        (TWO_PAIRS[0], [1, 1], r"pairs should have shape \(m, 2, p\); got shape \(2, 2\)"),
        (np.zeros((4, 3, 2)), [1] * 4, r"pairs should have shape \(m, 2, p\); got shape \(4, 3, 2"),
        (
            [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0]]],
            [1, 1],
            "pairs row 1: all rows must have the same length",
        ),
        (TWO_PAIRS, [1], r"sign should have shape \(2,\), one entry per pair; got .*\(1,\)"),
        (TWO_PAIRS, [1, 0], "sign row 1: 0 is neither"),
        (TWO_PAIRS, [2.5, 1], "sign row 0: 2.5 is neither"),
        (TWO_PAIRS, [1, np.nan], "sign row 1: nan is neither"),
        (TWO_PAIRS, ["a", "b"], "sign row 0: a is neither"),
        ([TWO_PAIRS[0], [[0.0, np.inf], [1.0, 1.0]]], [1, 1], "pairs row 1: inf is not finite"),
        (
            [TWO_PAIRS[1], TWO_PAIRS[0][::-1], TWO_PAIRS[0]],
            [-1, -1, 1],
            r"pairs rows 2 \(sign \+1\) and 1 \(sign -1\) are the same two points",
        ),
    ],
)
def test_bad_arrays_of_pairs_raise_with_row(pairs, sign, message):
    with pytest.raises(ValueError, match=message):
        Pairs.from_arrays(pairs, sign)


@pytest.mark.parametrize(
    ("triplets", "message"),
    [
        (TWO_PAIRS, r"triplets should have shape \(m, 3, p\); got shape \(2, 2, 2\)"),
        ([[[0.0], [1.0], [np.nan]]], "triplets row 0: nan is not finite"),
        ([[[0.0], [1.0], [2.0]], [[0.0], [2.0], [1.0]]], "triplets rows 0 and 1 contradict"),
    ],
)
def test_bad_arrays_of_triplets_raise_with_row(triplets, message):
    with pytest.raises(ValueError, match=message):
        Triplets.from_arrays(triplets)


@pytest.mark.parametrize(
    ("quadruplets", "message"),
    [
        (TWO_PAIRS, r"quadruplets should have shape \(m, 4, p\); got shape \(2, 2, 2\)"),
        ([[[0.0], [1.0], [2.0], [np.inf]]], "quadruplets row 0: inf is not finite"),
        (
            [[[0.0], [1.0], [2.0], [3.0]], [[3.0], [2.0], [0.0], [1.0]]],
            "quadruplets rows 0 and 1 contradict",
        ),
    ],
)
def test_bad_arrays_of_quadruplets_raise_with_row(quadruplets, message):
    with pytest.raises(ValueError, match=message):
        Quadruplets.from_arrays(quadruplets)


@pytest.mark.parametrize(
    ("chunklets", "message"),
    [
        ([], "chunklets is empty"),
        ([[[0.0]], np.empty((0, 1))], r"chunklets\[1\] is empty"),
        ([[[0.0]], [[0.0, 1.0]]], r"chunklets\[1\] has 2 features, but chunklets\[0\] has 1"),
        ([[[0.0]], [[1.0], [np.nan]]], r"chunklets\[1\] row 1: nan is not finite"),
        ([[0.0, 1.0]], r"chunklets\[0\] should have shape \(m, p\); got shape \(2,\)"),
    ],
)
def test_bad_arrays_of_chunklets_raise(chunklets, message):
    with pytest.raises(ValueError, match=message):
        Chunklets.from_arrays(chunklets)


def test_as_chunklets_takes_the_object_and_the_vector():
    assert as_chunklets(CHUNKLETS) is CHUNKLETS
    for vector in (
        [0, 0, -1, 7, 7],
        np.array([0, 0, -1, 7, 7], np.int8),
        pd.Series([0, 0, -1, 7, 7], index=list("abcde")),
        pd.Series([0, 0, -1, 7, 7], dtype="Int64"),
    ):
        assert as_chunklets(vector) == CHUNKLETS
    with pytest.raises(ValueError, match="should be Chunklets or an integer vector; got Pairs"):
        as_chunklets(PAIRS)


def test_groups_are_numbered_in_their_order():
    chunklets = Chunklets.from_groups([[4, 5, 6], np.array([1, 0])], n_samples=8)
    assert chunklets.labels.tolist() == [1, 1, -1, -1, 0, 0, 0, -1]
    assert Chunklets.from_groups([], n_samples=2).labels.tolist() == [-1, -1]


# Why supervision is not an array: behavior in scikit-learn's cross-validation


class Recorder(BaseEstimator):
    """An estimator that stores the arguments of fit."""

    def __init__(self, check=False):
        self.check = check

    def fit(self, X, y=None, supervision=None):
        if self.check:
            supervision.check_n_samples(len(X))
        self.X_, self.supervision_ = X, supervision
        return self

    def score(self, X, y=None):
        return 0.0


def folds(estimator, X, supervision, routing):
    """Return the estimators that scikit-learn fits on two halves of X."""
    with sklearn.config_context(enable_metadata_routing=routing):
        if routing:
            estimator = estimator.set_fit_request(supervision=True)
        return cross_validate(
            estimator,
            X,
            cv=KFold(2),
            params={"supervision": supervision},
            return_estimator=True,
            error_score="raise",
        )["estimator"]


routings = pytest.mark.parametrize("routing", [False, True], ids=["plain", "routed"])
X_SIX = np.arange(6.0).reshape(6, 1)
SIX_PAIRS = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]])  # as many pairs as samples


@routings
def test_scikit_learn_mangles_a_plain_array_of_pairs_without_a_word(routing):
    first, _ = folds(Recorder(), X_SIX, SIX_PAIRS, routing)
    # The first fold is fitted to rows 3, 4 and 5 and gets the last three pairs. Their indices
    # refer to all of X, so they are out of range.
    assert first.X_.ravel().tolist() == [3, 4, 5]
    assert first.supervision_.tolist() == [[3, 4], [4, 5], [3, 5]]
    with pytest.raises(IndexError):
        first.X_[first.supervision_]
    # With the pairs in another order there is no error: all indices are in range, but refer to
    # other points than those of the pairs.
    first, _ = folds(Recorder(), X_SIX, SIX_PAIRS[::-1], routing)
    wrong = {tuple(pair) for pair in first.X_[first.supervision_].reshape(-1, 2).tolist()}
    meant = {tuple(pair) for pair in SIX_PAIRS[:3].astype(float).tolist()}
    assert first.supervision_.max() < len(first.X_)
    assert not wrong & meant
    # restrict() gives the correct pairs of this fold.
    right = Pairs(SIX_PAIRS[::-1], [], n_samples=6).restrict([3, 4, 5])
    kept, _ = right.to_arrays(first.X_)
    assert kept.reshape(-1, 2).tolist() == [[3, 5], [4, 5], [3, 4]]


@routings
@pytest.mark.parametrize(
    "supervision",
    [
        Pairs(SIX_PAIRS, [], n_samples=6),
        Triplets.from_labels([0, 0, 0, 1, 1, 1]),
        Quadruplets.from_labels([0, 0, 0, 1, 1, 1]),
        Chunklets([0, 0, -1, 1, 1, -1]),
    ],
    ids=lambda s: type(s).__name__,
)
def test_scikit_learn_never_slices_supervision_and_the_length_check_catches_it(
    supervision, routing
):
    for fold in folds(Recorder(), X_SIX, supervision, routing):
        assert len(fold.X_) == 3
        assert (
            fold.supervision_ == supervision
        )  # not restricted, although only half of the rows are given
    with pytest.raises(ValueError, match="made for 6 samples but X has 3 rows"):
        folds(Recorder(check=True), X_SIX, supervision, routing)


@routings
def test_scikit_learn_slices_the_vector_of_chunklets_as_restrict_does(routing):
    labels = np.array([0, 0, -1, 1, 1, -1])
    first, second = folds(Recorder(), X_SIX, labels, routing)
    assert as_chunklets(first.supervision_) == Chunklets(labels).restrict([3, 4, 5])
    assert as_chunklets(second.supervision_) == Chunklets(labels).restrict([0, 1, 2])


# From pairs


def some_pairs(seed, n=14):
    y = np.random.default_rng(seed).integers(0, 4, n)
    return Pairs.from_labels(y, n_similar=9, n_dissimilar=12, random_state=seed)


@pytest.mark.parametrize("seed", range(4))
def test_comparisons_from_pairs_are_all_there_are(seed):
    pairs = some_pairs(seed)
    near, far = pairs.similar.tolist(), pairs.dissimilar.tolist()
    quadruplets = Quadruplets.from_pairs(pairs)
    assert quadruplets.indices.tolist() == [[*a, *b] for a in near for b in far]
    assert Quadruplets(quadruplets.indices, n_samples=14) == quadruplets
    triplets = Triplets.from_pairs(pairs)
    wanted = [
        (a, b, d)
        for a, b in [*near, *(pair[::-1] for pair in near)]
        for c, d in [*far, *(pair[::-1] for pair in far)]
        if a == c
    ]
    assert sorted(map(tuple, triplets.indices.tolist())) == sorted(wanted)
    assert Triplets(triplets.indices, n_samples=14) == triplets
    few = Triplets.from_pairs(pairs, n_triplets=5, random_state=0)
    assert few == Triplets.from_pairs(pairs, n_triplets=5, random_state=0)
    assert len({tuple(row) for row in few.indices.tolist()} & set(wanted)) == 5
    assert len(Quadruplets.from_pairs(pairs, n_quadruplets=7, random_state=0).indices) == 7


def test_comparisons_leave_out_pairs_said_both_ways_and_may_be_none():
    kept = Pairs([[0, 1], [2, 3]], [[1, 0], [2, 4]], n_samples=5, conflicts="keep")
    assert kept.without_conflicts() == Pairs([[2, 3]], [[2, 4]], n_samples=5)
    assert Quadruplets.from_pairs(kept).indices.tolist() == [[2, 3, 2, 4]]
    assert Triplets.from_pairs(kept).indices.tolist() == [[2, 3, 4]]
    for pairs in (Pairs([[0, 1]], [], n_samples=3), Pairs([], [[0, 1]], n_samples=3)):
        assert Quadruplets.from_pairs(pairs).indices.shape == (0, 4)
        assert Triplets.from_pairs(pairs).indices.shape == (0, 3)


def test_chunklets_from_pairs_are_what_similar_pairs_connect():
    pairs = Pairs([[7, 2], [9, 5], [2, 4], [7, 4]], [[2, 9]], n_samples=11)
    chunklets = Chunklets.from_pairs(pairs)
    assert chunklets.labels.tolist() == [-1, -1, 0, -1, 0, 1, -1, 0, -1, 1, -1]
    assert Chunklets.from_pairs(Pairs([], [[0, 1]], n_samples=2)).labels.tolist() == [-1, -1]
