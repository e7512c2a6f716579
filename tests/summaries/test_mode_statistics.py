"""ModeStatistics compared with einsum over centered tensors, for samples in any batches."""

import copy
import pickle
import tracemalloc
from functools import reduce

import numpy as np
import pytest

from nearfar import ClassStatistics, ModeStatistics
from nearfar.state import check_state
from nearfar.summaries.mode_statistics import FULL_SIZE

BOUND = 1e-10
LETTERS = "pqrs"


# ---------------------------------------------------------------------- reference


def projected(X, mode, factors):
    """Multiply each tensor by the transposed factors of all modes except one."""
    if factors is None:
        return X
    modes = LETTERS[: X.ndim - 1]
    into, operands = modes, []
    for k, U in enumerate(factors):
        if k != mode and U is not None:
            into = into.replace(modes[k], modes[k].upper())
            operands.append((modes[k] + modes[k].upper(), U))
    spec = ",".join(["n" + modes, *[letters for letters, _ in operands]]) + "->n" + into
    return np.einsum(spec, X, *[U for _, U in operands])


def sum_of_squares(T, mode):
    """Return the sum of mat(T) mat(T)ᵀ over the unfoldings of all tensors."""
    first = LETTERS[: T.ndim - 1]
    second = first.replace(first[mode], "z")
    return np.einsum(f"n{first},n{second}->{first[mode]}z", T, T)


def reference(X, y, mode, factors=None):
    """Compute the within and between scatter of a mode in two passes in long double."""
    X = np.asarray(X, np.longdouble)
    factors = None if factors is None else [None if U is None else U + 0 for U in factors]
    grand = X.mean(axis=0)
    within = between = 0
    for label in np.unique(y):
        mine = X[y == label]
        mean = mine.mean(axis=0)
        within = within + sum_of_squares(projected(mine - mean, mode, factors), mode)
        spread = projected((mean - grand)[None], mode, factors)
        between = between + len(mine) * sum_of_squares(spread, mode)
    return within, between


def assert_close(found, expected, bound=BOUND, scale=None):
    expected = np.asarray(expected, np.longdouble)
    assert found.shape == expected.shape and found.dtype == np.float64
    size = np.sqrt((expected**2).sum()) if scale is None else scale
    assert float(np.abs(found - expected).max()) <= bound * float(size)


def assert_matches(statistics, X, y, factors=None, bound=BOUND):
    for mode in range(X.ndim - 1):
        within, between = reference(X, y, mode, factors)
        # With one class the between scatter is 0, so compare with the scale of the total.
        size = np.sqrt((within**2).sum()) + np.sqrt((between**2).sum())
        found = statistics.within_scatter(mode, factors)
        assert_close(found, within, bound)
        np.testing.assert_allclose(found, found.T, rtol=0, atol=1e-13 * float(size))
        assert_close(statistics.between_scatter(mode, factors), between, bound, size)
        assert_close(statistics.total_scatter(mode, factors), within + between, bound)


# ---------------------------------------------------------------------- data and batchings

SHAPES = [(7,), (3, 5), (4, 2, 3), (2, 3, 2, 4)]


def sample(shape, n=50, c=3, seed=0, offset=0.0, apart=1.0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    mixing = np.eye(np.prod(shape)) + 0.4 * rng.normal(size=(np.prod(shape),) * 2)
    X = (rng.normal(size=(n, np.prod(shape))) @ mixing).reshape(n, *shape)
    return X + apart * rng.normal(size=(c, *shape))[y] + offset, y


def some_factors(shape, seed=1):
    """Return factors that are neither orthonormal nor square, one wider than its mode."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(d, q)) for d, q in zip(shape, (2, 3, 1, 5), strict=False)]


def in_batches(X, y, size, **options):
    statistics = ModeStatistics(**options)
    for start in range(0, len(X), size):
        statistics.partial_fit(X[start : start + size], y[start : start + size])
    return statistics


def pieces(X, y, **options):
    cuts = np.sort(np.random.default_rng(7).choice(np.arange(1, len(X)), 6, replace=False))
    return [
        ModeStatistics(**options).partial_fit(X[rows], y[rows])
        for rows in np.split(np.arange(len(X)), cuts)
    ]


def reordered(X, y, order, **options):
    return in_batches(X[order], y[order], 11, **options)


BATCHINGS = {
    "one batch": lambda X, y, **o: ModeStatistics(**o).partial_fit(X, y),
    "batches of 1": lambda X, y, **o: in_batches(X, y, 1, **o),
    "batches of 9": lambda X, y, **o: in_batches(X, y, 9, **o),
    "random order": lambda X, y, **o: reordered(
        X, y, np.random.default_rng(5).permutation(len(X)), **o
    ),
    "sorted by class": lambda X, y, **o: reordered(X, y, np.argsort(y, kind="stable"), **o),
    "merged": lambda X, y, **o: reduce(ModeStatistics.merge, pieces(X, y, **o)),
    "merged backwards": lambda X, y, **o: reduce(ModeStatistics.merge, pieces(X, y, **o)[::-1]),
}

every_batching = pytest.mark.parametrize("batching", BATCHINGS)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
both_stores = pytest.mark.parametrize("storage", ["full", "modes"])


# ---------------------------------------------------------------------- what it tells


@every_batching
@every_shape
@both_stores
def test_scatters_of_the_modes_are_those_of_centred_tensors(batching, shape, storage):
    X, y = sample(shape)
    statistics = BATCHINGS[batching](X, y, storage=storage)
    assert statistics.is_full == (storage == "full")
    assert_matches(statistics, X, y)
    np.testing.assert_allclose(statistics.mean, X.mean(axis=0), rtol=0, atol=1e-12)
    means = [X[y == label].mean(axis=0) for label in range(3)]
    np.testing.assert_allclose(statistics.means, means, rtol=0, atol=1e-12)
    np.testing.assert_allclose(statistics.variances(), X.var(axis=0), rtol=1e-10)
    assert statistics.counts.tolist() == np.bincount(y).tolist() == statistics.weights.tolist()
    assert statistics.classes.tolist() == [0, 1, 2]
    assert statistics.tensor_shape == shape and statistics.total_weight == 50


@every_batching
@every_shape
def test_after_a_projection_of_the_other_modes(batching, shape):
    X, y = sample(shape)
    statistics = BATCHINGS[batching](X, y)
    assert_matches(statistics, X, y, some_factors(shape))


@pytest.mark.parametrize("n", [8, 200], ids=["kept as samples", "summed"])
def test_some_modes_may_stay_as_they_are(n):
    X, y = sample((4, 2, 3), n=n, c=2)
    statistics = ModeStatistics().partial_fit(X, y)
    U = some_factors((4, 2, 3))
    for factors in ([None, U[1], None], [U[0], None, None], [None, None, U[2]], [None] * 3):
        assert_matches(statistics, X, y, factors)
    # The factor of the mode itself is ignored.
    np.testing.assert_array_equal(
        statistics.within_scatter(1, [U[0], None, U[2]]),
        statistics.within_scatter(1, [U[0], np.full((2, 2), np.nan), U[2]]),
    )
    np.testing.assert_array_equal(statistics.within_scatter(-1), statistics.within_scatter(2))


@both_stores
def test_between_scatter_is_known_after_factors_in_either_storage(storage):
    X, y = sample((4, 2, 3))
    factors = some_factors((4, 2, 3))
    statistics = ModeStatistics(storage=storage).partial_fit(X, y)
    for mode in range(3):
        expected = reference(X, y, mode, factors)[1]
        assert_close(statistics.between_scatter(mode, factors), expected)


def test_a_full_moment_is_class_statistics_of_flat_rows():
    X, y = sample((3, 5), n=80)
    statistics = ModeStatistics().partial_fit(X, y)
    flat = ClassStatistics(pooled=True).partial_fit(X.reshape(80, 15), y)
    moment = flat.within_scatter().reshape(3, 5, 3, 5)
    U = some_factors((3, 5))
    by_hand = np.einsum("aibj,ir,jr->ab", moment, U[1], U[1])
    np.testing.assert_allclose(statistics.within_scatter(0, U), by_hand, rtol=1e-10)
    by_hand = np.einsum("iajb,ir,jr->ab", moment, U[0], U[0])
    np.testing.assert_allclose(statistics.within_scatter(1, U), by_hand, rtol=1e-10)


def test_mistakes_would_be_caught():
    """Scatter about the overall mean, or with another order of vec(X), exceeds the bounds."""
    X, y = sample((3, 5), n=80)
    within, _ = reference(X, y, 0, some_factors((3, 5)))
    around_all, _ = reference(X, np.zeros(80), 0, some_factors((3, 5)))
    turned = X.reshape(80, 5, 3).transpose(0, 2, 1)
    other_order, _ = reference(turned, y, 0, some_factors((3, 5)))
    for wrong in (around_all, other_order):
        with pytest.raises(AssertionError):
            assert_close(wrong.astype(float), within, bound=1e-2)


def test_without_labels_all_are_of_one_class():
    X, _ = sample((3, 5))
    statistics = ModeStatistics().partial_fit(X)
    assert statistics.classes.tolist() == [0]
    assert_matches(statistics, X, np.zeros(len(X)))
    assert np.all(statistics.between_scatter(0) == 0)


@both_stores
def test_new_classes_may_appear_with_every_batch(storage):
    X, y = sample((3, 4), n=60, c=6)
    order = np.argsort(-y, kind="stable")
    statistics = in_batches(X[order], np.array(list("abcdef"))[y[order]], 10, storage=storage)
    assert statistics.classes.tolist() == list("abcdef")
    assert_matches(statistics, X, y)


# ---------------------------------------------------------------------- precision


@both_stores
@every_batching
def test_neither_an_offset_nor_far_classes_cost_digits(batching, storage):
    X, y = sample((3, 4), offset=1e6, apart=1e4)
    statistics = BATCHINGS[batching](X, y, storage=storage)
    assert_matches(statistics, X, y, bound=1e-9)
    if storage == "full":
        assert_matches(statistics, X, y, some_factors((3, 4)), bound=1e-9)


@both_stores
def test_float32_with_an_offset(storage):
    X, y = sample((3, 4), n=300, offset=1e4)
    narrow = X.astype(np.float32)
    statistics = in_batches(narrow, y, 40, storage=storage)
    assert statistics.precision == np.finfo(np.float32).eps
    assert_matches(statistics, narrow, y, bound=1e-5)
    raw = narrow.reshape(300, -1)
    raw = raw.T @ raw - 300 * np.outer(raw.mean(axis=0), raw.mean(axis=0))
    lost = np.einsum("aibi->ab", raw.reshape(3, 4, 3, 4))
    with pytest.raises(AssertionError):  # sums of uncentered products would lose these digits
        assert_close(lost.astype(float), reference(narrow, np.zeros(300), 0)[0], bound=1e-2)


@both_stores
@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e30])
def test_scales_whose_squares_leave_the_range_of_float32(storage, scale):
    X, y = sample((3, 4), n=100)
    scaled = (X * scale).astype(np.float32)
    statistics = ModeStatistics(storage=storage).partial_fit(scaled, y)
    exact = scaled.astype(np.float64) / scale
    within, _ = reference(exact, y, 1)
    assert_close(statistics.within_scatter(1) / scale**2, within, bound=1e-5)


@both_stores
def test_blank_borders_and_constants(storage):
    X, y = sample((4, 3), n=80)
    X = np.pad(X, ((0, 0), (1, 1), (0, 2)), constant_values=12.5)
    for dtype in (np.float64, np.float32):
        statistics = in_batches(X.astype(dtype), y, 30, storage=storage)
        within = statistics.within_scatter(0)
        assert np.all(within[[0, -1]] == 0) and np.all(within[:, [0, -1]] == 0)
        assert_matches(statistics, X, y, bound=1e-5)


def test_any_dtype_and_memory_order():
    X, y = sample((3, 4), n=60)
    whole = np.rint(20 * X)
    expected = ModeStatistics().partial_fit(whole, y).within_scatter(0)
    frozen = np.asfortranarray(whole)
    frozen.setflags(write=False)
    for given in (frozen, whole.astype(np.int16), whole.astype(np.int16).tolist()):
        found = ModeStatistics().partial_fit(given, y).within_scatter(0)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    images = np.random.default_rng(0).integers(0, 256, size=(40, 3, 4), dtype=np.uint8)
    assert_matches(ModeStatistics().partial_fit(images, y[:40]), images.astype(float), y[:40])


# ---------------------------------------------------------------------- what is kept


def test_the_full_moment_up_to_so_many_entries():
    rng = np.random.default_rng(0)
    assert FULL_SIZE == 4096
    small = ModeStatistics().partial_fit(rng.normal(size=(3, 64, 64)))
    large = ModeStatistics().partial_fit(rng.normal(size=(3, 64, 65)))
    assert small.is_full and not large.is_full
    assert ModeStatistics(storage="full").partial_fit(rng.normal(size=(3, 64, 65))).is_full


@pytest.mark.parametrize("shape", [(40, 30, 6), (60, 50)], ids=["modes alone", "kept as samples"])
def test_no_matrix_of_all_entries_is_formed_of_few_or_large_tensors(shape):
    X = np.random.default_rng(0).normal(size=(30, *shape))
    factors = [np.linalg.qr(np.eye(d)[:, :2] + 0.1)[0] for d in shape]
    y = np.arange(30) % 3
    tracemalloc.start()
    statistics = ModeStatistics().partial_fit(X[:10], y[:10]).partial_fit(X[10:], y[10:])
    statistics.within_scatter(0)
    if statistics.is_full:
        statistics.within_scatter(0, factors)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    entries = np.prod(shape)
    assert peak < min(8 * entries**2 / 4, 40e6)
    assert_matches(statistics, X, y)


@both_stores
def test_copies_and_pickles_go_on_by_themselves(storage):
    X, y = sample((3, 4), n=60)
    one = ModeStatistics(storage=storage).partial_fit(X[:30], y[:30])
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert_matches(other.partial_fit(X[30:], y[30:]), X, y)
        assert one.counts.sum() == 30
        check_state(other)
    check_state(one)


@both_stores
def test_merging_changes_neither(storage):
    X, y = sample((3, 4), n=60)
    one = ModeStatistics(storage=storage).partial_fit(X[:20], y[:20])
    other = ModeStatistics(storage=storage).partial_fit(X[20:], y[20:])
    before = one.within_scatter(0), other.within_scatter(0)
    for both in (one.merge(other), other.merge(one)):
        assert_matches(both, X, y)
        both.partial_fit(X, y)
    np.testing.assert_array_equal(one.within_scatter(0), before[0])
    np.testing.assert_array_equal(other.within_scatter(0), before[1])
    empty = ModeStatistics(storage=storage)
    for same in (one.merge(empty), empty.merge(one)):
        assert same.tensor_shape == (3, 4) and same.is_full == (storage == "full")
        np.testing.assert_array_equal(same.within_scatter(0), before[0])
        same.partial_fit(X[20:], y[20:])
        assert_matches(same, X, y)
    assert repr(empty.merge(empty)) == "ModeStatistics(no samples)"


def test_it_says_what_it_holds():
    X, y = sample((3, 4), n=60)
    assert repr(ModeStatistics()) == "ModeStatistics(no samples)"
    full = ModeStatistics().partial_fit(X, y)
    assert repr(full) == "ModeStatistics(full second moment: 3 classes, 60 samples of shape 3×4)"
    modes = ModeStatistics(storage="modes").partial_fit(X, y)
    assert repr(modes) == "ModeStatistics(modes alone: 3 classes, 60 samples of shape 3×4)"


# ---------------------------------------------------------------------- bad input

X34, Y34 = sample((3, 4), n=60)


def with_value(value):
    X = X34[:10].copy()
    X[3, 1, 2] = value
    return X


BAD = {
    "NaN": (lambda: (with_value(np.nan), Y34[:10]), "NaN in sample 3"),
    "infinity": (lambda: (with_value(np.inf), Y34[:10]), "infinity in sample 3"),
    "overflow": (lambda: (1e308 * np.sign(X34[:10]), Y34[:10]), "rescale"),
    "other shape": (
        lambda: (X34[:10].transpose(0, 2, 1), Y34[:10]),
        "shape 4×3.*of shape 3×4",
    ),
    "flat rows": (lambda: (X34[:10].reshape(10, 12), Y34[:10]), "shape 12.*of shape 3×4"),
    "one axis": (lambda: (X34[:10, 0, 0], Y34[:10]), "1D array"),
    "no samples": (lambda: (X34[:0], Y34[:0]), "0 sample"),
    "fewer labels": (lambda: (X34[:10], Y34[:9]), "10 samples but y has 9"),
    "missing label": (lambda: (X34[:2], [None, 1]), "missing"),
    "labels of two kinds": (lambda: (X34[:10], ["a"] * 10), "no common order"),
    "text": (lambda: (np.full((2, 3, 4), "red"), [0, 1]), "convert string"),
}


@both_stores
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("n", [8, 60], ids=["kept as samples", "summed"])
def test_a_refused_batch_says_why_and_leaves_no_trace(bad, storage, n):
    make, message = BAD[bad]
    statistics = ModeStatistics(storage=storage).partial_fit(X34[:n], Y34[:n])
    before = pickle.dumps(statistics)
    with pytest.raises(ValueError, match=message):
        statistics.partial_fit(*make())
    assert pickle.dumps(statistics) == before


@both_stores
def test_a_refused_first_batch_leaves_none_either(storage):
    statistics = ModeStatistics(storage=storage)
    with pytest.raises(ValueError, match="NaN in sample 3"):
        statistics.partial_fit(with_value(np.nan), Y34[:10])
    assert repr(statistics) == "ModeStatistics(no samples)"
    statistics.partial_fit(X34.transpose(0, 2, 1), Y34)  # rejected samples do not fix the shape
    assert statistics.tensor_shape == (4, 3)


@both_stores
def test_a_large_batch_with_one_bad_value_leaves_no_trace(storage):
    """The batch is so large that NaN is detected in the sums, without a separate pass."""
    X = np.random.default_rng(0).normal(size=(700, 20, 10))
    y = np.arange(700) % 4
    statistics = ModeStatistics(storage=storage).partial_fit(X, y)
    before = [statistics.within_scatter(mode) for mode in (0, 1)]
    X[555, 3, 3] = np.nan
    with pytest.raises(ValueError, match="NaN in sample 555"):
        statistics.partial_fit(X, y + 2)
    assert statistics.classes.tolist() == [0, 1, 2, 3] and statistics.counts.sum() == 700
    for mode in (0, 1):
        np.testing.assert_array_equal(statistics.within_scatter(mode), before[mode])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.within_scatter(2), "mode must be from -2 to 1; got 2"),
        (lambda s: s.between_scatter(-3), "mode must be from -2 to 1; got -3"),
        (lambda s: s.within_scatter(0, [np.eye(3)]), "each of the 2 modes; got 1 entries"),
        (
            lambda s: s.within_scatter(0, [None, np.eye(3)]),
            r"factors\[1\] must have shape \(4, q\)",
        ),
        (lambda s: s.between_scatter(0, [None, np.ones(4)]), r"factors\[1\] must have shape"),
        (
            lambda s: s.merge(ModeStatistics().partial_fit(X34.transpose(0, 2, 1))),
            "same shape; got 3×4 and 4×3",
        ),
        (lambda s: s.merge(ModeStatistics(storage="modes").partial_fit(X34)), "same storage"),
    ],
)
def test_questions_that_make_no_sense_say_so(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(ModeStatistics().partial_fit(X34, Y34))


def test_modes_alone_say_what_they_cannot_tell():
    statistics = ModeStatistics(storage="modes").partial_fit(X34, Y34)
    with pytest.raises(
        ValueError, match="factors requires full statistics.*4,096 entries.*storage='full'"
    ):
        statistics.within_scatter(0, [None, np.eye(4)])
    # With a single mode, factors have no effect and are allowed.
    rows = ModeStatistics(storage="modes").partial_fit(X34[:, 0], Y34)
    assert_matches(rows, X34[:, 0], Y34, [np.eye(4)])


def test_empty_statistics_and_unknown_storage_say_so():
    for ask in ("mean", "means", "classes", "counts", "weights", "is_full"):
        with pytest.raises(ValueError, match="no samples yet"):
            getattr(ModeStatistics(), ask)
    with pytest.raises(ValueError, match="no samples yet"):
        ModeStatistics().within_scatter(0)
    with pytest.raises(ValueError, match="'auto', 'full' or 'modes'; got 'dense'"):
        ModeStatistics(storage="dense")
    with pytest.raises(ValueError, match="shape 3×0, which have no entries"):
        ModeStatistics().partial_fit(np.zeros((2, 3, 0)))
