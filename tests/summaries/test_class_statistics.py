"""ClassStatistics compared with two passes in long double, for rows in any order and batches."""

import copy
import pickle
import time
import tracemalloc
from functools import reduce

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from nearfar import ClassStatistics

BOUND = 1e-10


# ---------------------------------------------------------------------- reference


class Reference:
    """Compute means, then deviations, in two passes in long double."""

    def __init__(self, X, y, w=None):
        rows = np.asarray(X).astype(np.longdouble)
        y = np.asarray(y)
        w = (np.ones(len(rows)) if w is None else np.asarray(w)).astype(np.longdouble)
        self.classes = np.unique(y[w > 0])
        self.weights, self.means, self.scatters, self.counts = [], [], [], []
        for label in self.classes:
            mine = (y == label) & (w > 0)
            mean, scatter = two_passes(rows[mine], w[mine])
            self.weights.append(w[mine].sum())
            self.means.append(mean)
            self.scatters.append(scatter)
            self.counts.append(mine.sum())
        self.weights, self.means = np.array(self.weights), np.array(self.means)
        self.mean, self.total = two_passes(rows[w > 0], w[w > 0])
        self.within = sum(self.scatters)
        centered = self.means - self.mean
        self.between = (self.weights[:, None] * centered).T @ centered


def two_passes(rows, w):
    mean = (w[:, None] * rows).sum(axis=0) / w.sum()
    deviations = rows - mean
    return mean, (w[:, None] * deviations).T @ deviations


def error(found, expected):
    expected = np.asarray(expected, dtype=np.longdouble)
    assert found.shape == expected.shape
    size = np.sqrt((expected**2).sum())
    return float(np.sqrt(((found - expected) ** 2).sum()) / size)


def assert_matches(statistics, X, y, w=None, bound=BOUND):
    expected = Reference(X, y, w)
    np.testing.assert_array_equal(statistics.classes, expected.classes)
    np.testing.assert_array_equal(statistics.counts, expected.counts)
    assert error(statistics.weights, expected.weights) < bound
    deviation = np.sqrt(np.diag(expected.within / expected.weights.sum()).max())
    # A mean is accurate to the rounding of the values themselves.
    rounding = np.finfo(np.float64).eps * np.abs(X).max()
    assert np.abs(statistics.means - expected.means).max() <= bound * deviation + 2 * rounding
    assert np.abs(statistics.mean - expected.mean).max() <= bound * deviation + 2 * rounding
    assert error(statistics.within_scatter(), expected.within) < bound
    assert error(statistics.total_scatter(), expected.total) < bound
    if len(expected.classes) > 1:
        assert error(statistics.between_scatter(), expected.between) < bound
    variances = np.diag(expected.total) / expected.weights.sum()
    assert error(statistics.total_variances(), variances) < bound
    if not statistics.pooled:
        for label, scatter, count in zip(
            expected.classes, expected.scatters, expected.counts, strict=True
        ):
            if count > 1:
                assert error(statistics.scatter(label), scatter) < bound


# ---------------------------------------------------------------------- data and batchings


def sample(seed=0, n=120, p=5, c=3, apart=1e6, offset=0.0, sizes=None):
    """Return correlated features of standard deviation about 1, with distant class means."""
    rng = np.random.default_rng(seed)
    y = rng.integers(c, size=n) if sizes is None else np.repeat(np.arange(len(sizes)), sizes)
    y[: len(np.unique(y))] = np.unique(y)
    y = rng.permutation(y)
    mixing = np.eye(p) + 0.3 * rng.normal(size=(p, p)) / np.sqrt(p)
    return rng.normal(size=(len(y), p)) @ mixing + apart * rng.normal(size=(c, p))[y] + offset, y


def in_batches(X, y, size, **options):
    statistics = ClassStatistics(**options)
    for start in range(0, len(X), size):
        statistics.partial_fit(X[start : start + size], y[start : start + size])
    return statistics


def pieces(X, y, **options):
    rng = np.random.default_rng(7)
    cuts = np.sort(rng.choice(np.arange(1, len(X)), 6, replace=False))
    return [
        ClassStatistics(**options).partial_fit(X[rows], y[rows])
        for rows in np.split(np.arange(len(X)), cuts)
    ]


def merged_as_tree(parts):
    while len(parts) > 1:
        pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
        parts = [pair[0].merge(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def shuffled(X, y, **options):
    order = np.random.default_rng(5).permutation(len(X))
    return in_batches(X[order], y[order], 11, **options)


def sorted_by_class(X, y, **options):
    order = np.argsort(y, kind="stable")
    return in_batches(X[order], y[order], 9, **options)


BATCHINGS = {
    "one batch": lambda X, y, **o: ClassStatistics(**o).partial_fit(X, y),
    "batches of 1": lambda X, y, **o: in_batches(X, y, 1, **o),
    "batches of 7": lambda X, y, **o: in_batches(X, y, 7, **o),
    "random order": shuffled,
    "sorted by class": sorted_by_class,
    "merged as a tree": lambda X, y, **o: merged_as_tree(pieces(X, y, **o)),
    "merged from the left": lambda X, y, **o: reduce(ClassStatistics.merge, pieces(X, y, **o)),
    "merged from the right": lambda X, y, **o: reduce(
        ClassStatistics.merge, pieces(X, y, **o)[::-1]
    ),
}

# Few rows are stored as rows, many as matrices. In between, both occur at once.
SHAPES = {
    "dense": {"n": 120, "p": 5},
    "factored": {"n": 30, "p": 40},
    "crossing": {"n": 60, "p": 18},
    "mixed": {"p": 12, "sizes": [50, 6, 25]},
}

every_batching = pytest.mark.parametrize("batching", BATCHINGS)
every_shape = pytest.mark.parametrize("shape", SHAPES)
both_forms = pytest.mark.parametrize("pooled", [False, True], ids=["by class", "pooled"])
both_stores = pytest.mark.parametrize("storage", ["auto", "dense"])


# ---------------------------------------------------------------------- accuracy


@every_batching
@every_shape
@both_forms
@both_stores
def test_far_classes_match_two_passes_however_the_rows_come(batching, shape, pooled, storage):
    X, y = sample(**SHAPES[shape], apart=1e6)
    statistics = BATCHINGS[batching](X, y, pooled=pooled, storage=storage)
    assert_matches(statistics, X, y)


@every_batching
@both_forms
def test_a_common_offset_costs_nothing(batching, pooled):
    X, y = sample(n=120, p=6, apart=1.0, offset=1e6)
    assert_matches(BATCHINGS[batching](X, y, pooled=pooled), X, y)


def test_raw_second_moments_would_fail_the_bound():
    X, y = sample(n=120, p=5, apart=1e6)
    expected = Reference(X, y)
    for label, scatter in zip(expected.classes, expected.scatters, strict=True):
        rows = X[y == label]
        mean = rows.mean(axis=0)
        raw = rows.T @ rows - len(rows) * np.outer(mean, mean)
        assert error(raw, scatter) > 1e4 * BOUND


@pytest.mark.parametrize("seed", range(12))
def test_random_batchings_with_weights_match_two_passes(seed):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 15))
    X, y = sample(seed, n=int(rng.integers(20, 120)), p=p, c=int(rng.integers(1, 6)))
    w = rng.exponential(size=len(X)) * (rng.random(len(X)) > 0.1)
    options = {
        "pooled": bool(rng.integers(2)),
        "storage": ["auto", "dense"][rng.integers(2)],
    }
    parts = [ClassStatistics(**options) for _ in range(4)]
    for rows in np.array_split(rng.permutation(len(X)), int(rng.integers(1, 12))):
        parts[rng.integers(4)].partial_fit(X[rows], y[rows], w[rows])
    assert_matches(merged_as_tree(parts), X, y, w)


def test_rows_are_kept_while_fewer_than_features_then_become_a_matrix():
    X, y = sample(n=40, p=10, c=1)
    statistics = ClassStatistics()
    for k in range(9):
        statistics.partial_fit(X[k : k + 1], y[k : k + 1])
        assert statistics.is_factored
    for k in range(9, 40):
        statistics.partial_fit(X[k : k + 1], y[k : k + 1])
        assert not statistics.is_factored
        assert_matches(statistics, X[: k + 1], y[: k + 1])


def test_merging_two_factored_ones_may_become_dense():
    X, y = sample(n=16, p=10, c=1)
    first, second = (ClassStatistics().partial_fit(X[k : k + 8], y[k : k + 8]) for k in (0, 8))
    assert first.is_factored and second.is_factored
    assert not first.merge(second).is_factored
    assert_matches(first.merge(second), X, y)


def test_dense_storage_keeps_no_rows():
    X, y = sample(n=6, p=10)
    assert ClassStatistics().partial_fit(X, y).is_factored
    assert not ClassStatistics(storage="dense").partial_fit(X, y).is_factored


@both_forms
def test_merging_dense_with_factored(pooled):
    X, y = sample(n=60, p=12, c=2)
    few = ClassStatistics(pooled=pooled).partial_fit(X[:5], y[:5])
    many = ClassStatistics(pooled=pooled).partial_fit(X[5:], y[5:])
    assert few.is_factored and not many.is_factored
    assert_matches(few.merge(many), X, y)
    assert_matches(many.merge(few), X, y)


@pytest.mark.parametrize("fill", ["C", "F", "strided", "reversed"])
@both_forms
def test_memory_layout_does_not_matter(fill, pooled):
    X, y = sample(n=120, p=6)
    layouts = {
        "C": X,
        "F": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "reversed": np.ascontiguousarray(X[::-1])[::-1],
    }
    assert_matches(ClassStatistics(pooled=pooled).partial_fit(layouts[fill], y), X, y)


# ---------------------------------------------------------------------- labels


@both_forms
def test_new_classes_may_appear_later(pooled):
    X, y = sample(n=90, p=4, c=5)
    order = np.argsort(-y, kind="stable")  # the largest label first
    statistics = ClassStatistics(pooled=pooled)
    seen = []
    for rows in np.array_split(order, 10):
        statistics.partial_fit(X[rows], y[rows])
        seen.extend(y[rows])
        assert statistics.classes.tolist() == sorted(set(seen))
    assert statistics.n_classes == 5
    assert_matches(statistics, X, y)


@pytest.mark.parametrize(
    "names",
    [np.array(["wolf", "a", "a longer name"]), np.array([7, -1, 1000]), np.array([2.0, 0.0, 1.0])],
    ids=["strings", "integers", "floats"],
)
def test_labels_of_every_kind_are_sorted_and_found(names):
    X, codes = sample(n=60, p=3)
    y = names[codes]
    statistics = in_batches(X, y, 7)
    assert_matches(statistics, X, y)
    for label in names.tolist():
        np.testing.assert_allclose(
            statistics.covariance(label), np.cov(X[y == label].T, bias=True), rtol=1e-6
        )


def test_boolean_labels():
    X, codes = sample(n=30, p=3, c=2)
    statistics = ClassStatistics().partial_fit(X, codes == 1)
    assert statistics.classes.dtype == bool
    assert statistics.counts.tolist() == [(codes == 0).sum(), (codes == 1).sum()]


def test_without_labels_all_rows_are_of_class_zero():
    X, _ = sample(n=30, p=3)
    statistics = ClassStatistics().partial_fit(X)
    assert statistics.classes.tolist() == [0]
    assert_matches(statistics, X, np.zeros(30, dtype=int))


def test_labels_without_a_common_order_are_refused_and_change_nothing():
    X, y = sample(n=30, p=3)
    statistics = ClassStatistics().partial_fit(X, y)
    with pytest.raises(ValueError, match=r"y mixes labels of types int, str"):
        statistics.partial_fit(X, np.array(["a", "b", "c"])[y])
    assert_matches(statistics, X, y)
    other = ClassStatistics().partial_fit(X, np.array(["a", "b", "c"])[y])
    with pytest.raises(ValueError, match=r"y mixes labels of types int, str"):
        statistics.merge(other)


# ---------------------------------------------------------------------- weights


@every_shape
@both_forms
def test_an_integer_weight_equals_so_many_copies(shape, pooled):
    X, y = sample(**SHAPES[shape])
    w = np.random.default_rng(3).integers(0, 4, size=len(X))
    weighted = ClassStatistics(pooled=pooled).partial_fit(X, y, w)
    assert_matches(weighted, X, y, w)
    repeated = Reference(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert error(weighted.within_scatter(), repeated.within) < BOUND
    assert error(weighted.between_scatter(), repeated.between) < BOUND
    assert error(weighted.weights, repeated.weights) < BOUND


@every_shape
@both_forms
def test_rows_of_weight_zero_are_no_rows(shape, pooled):
    X, y = sample(**SHAPES[shape])
    w = np.random.default_rng(3).random(len(X))
    w[::3] = 0
    w[y == 1] = 0  # this class must not appear
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y, w)
    without = ClassStatistics(pooled=pooled).partial_fit(X[w > 0], y[w > 0], w[w > 0])
    assert statistics.classes.tolist() == [0, 2]
    np.testing.assert_array_equal(statistics.counts, without.counts)
    np.testing.assert_array_equal(statistics.within_scatter(), without.within_scatter())
    np.testing.assert_array_equal(statistics.means, without.means)
    assert_matches(statistics, X, y, w)


@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e30, 1e100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@both_forms
def test_the_scale_of_the_weights_does_not_matter(scale, dtype, pooled):
    X, y = sample(n=60, p=3, apart=1.0)
    X = X.astype(dtype)
    w = np.random.default_rng(0).random(60) + 0.1
    expected = Reference(X, y, w)
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y, scale * w)
    covariance = expected.within / expected.weights.sum()
    assert error(statistics.covariance(), covariance) < (BOUND if dtype == np.float64 else 1e-6)


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("p", [4, 60], ids=["dense", "factored"])
def test_covariance_of_a_class_is_that_of_numpy(ddof, p):
    X, y = sample(n=50, p=p, apart=3.0)
    statistics = ClassStatistics().partial_fit(X, y)
    for label in range(3):
        expected = np.cov(X[y == label].T, ddof=ddof)
        np.testing.assert_allclose(statistics.covariance(label, ddof=ddof), expected, atol=1e-12)
        ridged = expected + 0.5 * np.eye(p)
        np.testing.assert_allclose(
            statistics.covariance(label, ddof=ddof, ridge=0.5), ridged, atol=1e-12
        )
        shrunk = 0.7 * expected + 0.3 * np.trace(expected) / p * np.eye(p) + 0.5 * np.eye(p)
        np.testing.assert_allclose(
            statistics.covariance(label, ddof=ddof, ridge=0.5, shrinkage=0.3), shrunk, atol=1e-12
        )


@both_forms
def test_pooled_covariance_takes_ddof_off_every_class(pooled):
    X, y = sample(n=50, p=4, apart=3.0)
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
    scatter = sum(np.cov(X[y == k].T, bias=True) * (y == k).sum() for k in range(3))
    np.testing.assert_allclose(statistics.covariance(), scatter / 50, atol=1e-12)
    np.testing.assert_allclose(statistics.covariance(ddof=1), scatter / 47, atol=1e-12)
    shrunk = 0.8 * scatter / 47 + 0.2 * np.trace(scatter / 47) / 4 * np.eye(4)
    np.testing.assert_allclose(statistics.covariance(ddof=1, shrinkage=0.2), shrunk, atol=1e-12)


@every_shape
@both_forms
def test_within_and_between_add_up_to_total(shape, pooled):
    X, y = sample(**SHAPES[shape], apart=2.0)
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
    centered = X - X.mean(axis=0)
    total = statistics.within_scatter() + statistics.between_scatter()
    np.testing.assert_allclose(total, centered.T @ centered, atol=1e-9)


def test_between_scatter_is_a_sum_over_pairs_of_classes():
    X, y = sample(n=70, p=5, c=4, apart=2.0)
    statistics = ClassStatistics().partial_fit(X, y)
    q = [(y == k).mean() for k in range(4)]
    m = [X[y == k].mean(axis=0) for k in range(4)]
    pairs = sum(
        q[i] * q[j] * np.outer(m[i] - m[j], m[i] - m[j]) for i in range(4) for j in range(i + 1, 4)
    )
    np.testing.assert_allclose(statistics.between_scatter() / 70, pairs, rtol=0, atol=1e-12)


@every_shape
def test_sigma_dot_is_the_covariance_times_a_thin_matrix(shape):
    X, y = sample(**SHAPES[shape], apart=5.0)
    B = np.random.default_rng(1).normal(size=(X.shape[1], 3))
    statistics = ClassStatistics().partial_fit(X, y)
    options = {"ddof": 1, "ridge": 0.2, "shrinkage": 0.4}
    for given in ({}, options):
        products = statistics.sigma_dot(B, **given)
        assert products.shape == (3, *B.shape)
        for k in range(3):
            sigma = np.cov(X[y == k].T, ddof=given.get("ddof", 0))
            if given:
                level = 0.4 * np.trace(sigma) / len(sigma) + 0.2
                sigma = 0.6 * sigma + level * np.eye(len(sigma))
            np.testing.assert_allclose(products[k], sigma @ B, atol=1e-10)


@every_shape
@both_forms
def test_within_dot_is_the_within_scatter_times_a_thin_matrix(shape, pooled):
    X, y = sample(**SHAPES[shape])
    B = np.random.default_rng(1).normal(size=(X.shape[1], 2))
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
    assert error(statistics.within_dot(B), Reference(X, y).within @ B) < 1e-9


@both_forms
def test_factored_statistics_never_make_a_square_matrix(pooled):
    p = 4000
    X, y = sample(n=20, p=20, c=2)
    X = np.tile(X, (1, p // 20))
    B = np.ones((p, 2))

    def work():
        statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
        statistics.within_dot(B)
        statistics.total_variances()
        statistics.project(B).within_scatter()
        if not pooled:
            statistics.sigma_dot(B, ridge=1.0, shrinkage=0.1)

    assert peak_memory(work) < 0.1 * p * p * 8


def test_factors_of_classes_multiply_to_their_scatters():
    X, y = sample(n=20, p=30, c=3)
    named = np.array(["c", "a", "b"])[y]  # the order of the classes differs from that of the rows
    statistics = ClassStatistics().partial_fit(X, named)
    for label, H in zip(statistics.classes, statistics.class_factors(), strict=True):
        rows = X[named == label] - X[named == label].mean(axis=0)
        np.testing.assert_allclose(H.T @ H, rows.T @ rows, atol=1e-10)
    with pytest.raises(ValueError, match="are dense"):
        ClassStatistics(storage="dense").partial_fit(X, y).class_factors()


@both_forms
def test_factors_multiply_to_the_scatters(pooled):
    X, y = sample(n=20, p=30)
    statistics = in_batches(X, y, 7, pooled=pooled)
    expected = Reference(X, y)
    H = statistics.within_factor()
    assert H.shape == (20, 30)
    assert error(H.T @ H, expected.within) < BOUND
    H = statistics.between_factor()
    assert H.shape == (3, 30)
    assert error(H.T @ H, expected.between) < BOUND
    H = statistics.total_factor()
    assert error(H.T @ H, expected.total) < BOUND


def test_factors_survive_merging_and_selecting():
    X, y = sample(n=24, p=40, c=4)
    merged = merged_as_tree(pieces(X, y))
    H = merged.within_factor()
    assert error(H.T @ H, Reference(X, y).within) < BOUND
    H = merged.select(np.array([False, True, True, False])).within_factor()
    middle = (y == 1) | (y == 2)
    assert error(H.T @ H, Reference(X[middle], y[middle]).within) < BOUND


@every_shape
@both_forms
def test_projected_statistics_are_those_of_the_projected_rows(shape, pooled):
    X, y = sample(**SHAPES[shape], apart=10.0, offset=100.0)
    B = np.random.default_rng(1).normal(size=(X.shape[1], 3))
    image = ClassStatistics(pooled=pooled).partial_fit(X, y).project(B)
    assert image.n_features == 3
    assert_matches(image, X @ B, y)
    # Project a projection, then add more rows.
    C = np.random.default_rng(2).normal(size=(3, 2))
    assert_matches(image.project(C), X @ B @ C, y)
    more, labels = sample(5, n=20, p=3, apart=10.0)
    assert_matches(
        copy.deepcopy(image).partial_fit(more, labels),
        np.concatenate([X @ B, more]),
        np.concatenate([y, labels]),
    )


@both_forms
def test_projections_of_two_samples_merge(pooled):
    X, y = sample(n=60, p=8, apart=10.0, offset=100.0)
    B = np.random.default_rng(1).normal(size=(8, 3))
    first, second = (
        ClassStatistics(pooled=pooled).partial_fit(X[rows], y[rows]).project(B)
        for rows in (slice(30), slice(30, 60))
    )
    assert_matches(first.merge(second), X @ B, y)


def test_projection_keeps_the_digits_under_an_offset():
    X, y = sample(n=60, p=4, apart=1.0, offset=1e8)
    B = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    image = ClassStatistics().partial_fit(X, y).project(B)
    expected = Reference(X.astype(np.longdouble) @ B, y)
    assert error(image.between_scatter(), expected.between) < BOUND
    assert error(image.within_scatter(), expected.within) < BOUND


@every_shape
def test_selected_classes_are_as_if_alone(shape):
    X, y = sample(**SHAPES[shape])
    chosen = ClassStatistics().partial_fit(X, y).select(np.array([True, False, True]))
    kept = y != 1
    assert_matches(chosen, X[kept], y[kept])
    chosen.partial_fit(X, y)  # continues, with the omitted class as a new class
    assert_matches(chosen, np.concatenate([X[kept], X]), np.concatenate([y[kept], y]))


@pytest.mark.parametrize("p", [3, 50], ids=["dense", "factored"])
def test_pooled_statistics_drop_classes_of_one_row_only(p):
    X, y = sample(n=40, p=p, c=2)
    X = np.concatenate([X[:1] + 5.0, X, X[:1] - 5.0])
    y = np.concatenate([[-1], y, [9]])
    statistics = ClassStatistics(pooled=True).partial_fit(X, y)
    kept = (y >= 0) & (y < 9)
    assert_matches(statistics.select(statistics.counts > 1), X[kept], y[kept])
    with pytest.raises(ValueError, match="pooled scatter cannot be split"):
        statistics.select(np.array([True, True, False, True]))


@pytest.mark.parametrize("n_classes", [3, 300], ids=["long runs", "short runs"])
@pytest.mark.parametrize("form", ["as it is", "by columns", "weighed"])
@both_forms
def test_rows_beyond_one_block(n_classes, form, pooled):
    rng = np.random.default_rng(0)
    y = np.minimum(rng.geometric(2 / n_classes, 20_000), n_classes)
    X = rng.normal(size=(20_000, 5)) + 1e6 * y[:, None] + np.arange(5)
    w = rng.integers(0, 3, 20_000) / 2 if form == "weighed" else None
    rows = np.asfortranarray(X) if form == "by columns" else X
    statistics = ClassStatistics(pooled=pooled).partial_fit(rows, y, w)
    assert_matches(statistics, X, y, w, bound=1e-9)


# ---------------------------------------------------------------------- float32


@pytest.mark.parametrize("offset", [0.0, 1e3])
@every_shape
@both_forms
def test_float32_rows_are_accurate_also_under_an_offset(offset, shape, pooled):
    X, y = sample(**SHAPES[shape], apart=3.0, offset=offset)
    X = X.astype(np.float32)
    statistics = in_batches(X, y, 50, pooled=pooled)
    assert statistics.precision == np.finfo(np.float32).eps
    assert_matches(statistics, X, y, bound=2e-6)


def test_many_float32_rows_are_accurate():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(50_000, 4)) + 1000).astype(np.float32)
    expected = X.astype(np.float64)
    expected -= expected.mean(axis=0)
    covariance = ClassStatistics().partial_fit(X).covariance()
    assert error(covariance, expected.T @ expected / len(X)) < 2e-6


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e25, 1e-25, 1e-20])
@both_forms
def test_squares_outside_the_range_of_float32_are_taken_in_float64(scale, pooled):
    X, y = sample(n=60, p=4, apart=3.0)
    X = (X * [1, 1, scale, scale]).astype(np.float32)
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
    covariance = statistics.covariance()
    expected = Reference(X, y).within / 60
    unit = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(
        covariance / np.outer(unit, unit), expected / np.outer(unit, unit), atol=2e-6
    )


def test_an_underflow_is_noticed_where_the_deviations_cancel():
    X = np.zeros((41, 2), dtype=np.float32)
    X[1::2], X[2::2] = 1e-25, -1e-25
    covariance = ClassStatistics().partial_fit(X).covariance()
    np.testing.assert_allclose(covariance, np.cov(X.T.astype(np.float64), bias=True), rtol=1e-6)


@both_forms
def test_float32_rows_may_follow_float64_rows(pooled):
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(50, 3)) + 1e5
    coarse = np.rint(3 * rng.normal(size=(200, 3)) + 1e5).astype(np.float32)
    y = np.zeros(250, dtype=int)
    statistics = ClassStatistics(pooled=pooled).partial_fit(exact, y[:50])
    statistics.partial_fit(coarse, y[50:])
    # The coarse rows are integers, so only the shift could be rounded.
    assert_matches(statistics, np.concatenate([exact, coarse]), y, bound=1e-9)


def spared(X, y, size=2000, **options):
    """Add rows like a learner: in float64 until the rows show that float32 is accurate enough."""
    statistics = ClassStatistics(exact=True, **options)
    classes, codes = np.unique(y, return_inverse=True)
    for start in range(0, len(X), size):
        some = slice(start, start + size)
        statistics.add(X[some], classes, codes[some], sparing=True)
    return statistics


def within(X, y):
    """Compute moments in two passes in float64, which is more accurate than float32 rows."""
    rows = X.astype(np.float64)
    for label in np.unique(y):
        rows[y == label] -= rows[y == label].mean(axis=0)
    return rows.T @ rows


def of_contrasts(scatter):
    """Return the scatter of the differences of adjacent features."""
    D = np.eye(len(scatter))[:-1] - np.eye(len(scatter))[1:]
    return D @ scatter @ D.T


@both_forms
def test_batches_are_multiplied_in_float32_where_no_digits_depend_on_it(pooled):
    X, y = sample(n=6000, p=70, apart=3.0, offset=100.0)
    X = X.astype(np.float32)
    statistics = spared(X, y, pooled=pooled)
    assert statistics.is_rounded
    assert error(statistics.within_scatter(), within(X, y)) < 2e-6
    assert not ClassStatistics(pooled=pooled, exact=True).partial_fit(X, y).is_rounded


@pytest.mark.parametrize("first", [0, 4000], ids=["from the first row", "after other rows"])
@both_forms
def test_batches_with_digits_to_lose_are_multiplied_in_float64(first, pooled):
    X, y = sample(n=6000, p=70, apart=0.0)
    common = np.random.default_rng(1).normal(size=(6000 - first, 1))
    X[first:] += 1000 * common
    X = X.astype(np.float32)
    statistics = spared(X, y, pooled=pooled)
    assert statistics.is_rounded == (first > 2000)
    expected = of_contrasts(within(X, y))
    assert error(of_contrasts(statistics.within_scatter()), expected) < 1e-5


# ---------------------------------------------------------------------- degenerate data


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@every_batching
@pytest.mark.parametrize("p", [4, 200], ids=["dense", "factored"])
@both_forms
def test_a_constant_column_has_exactly_no_variance(dtype, batching, p, pooled):
    X, y = sample(n=60, p=p, apart=3.0, offset=1e3)
    X[:, 1] = 0.1 + 1e8
    X[:, 2] = np.pi * (y + 1)  # constant in each class
    statistics = BATCHINGS[batching](X.astype(dtype), y, pooled=pooled)
    assert statistics.total_variances()[1] == 0
    assert not statistics.total_scatter()[1].any()
    assert not statistics.within_scatter()[2].any()
    assert not statistics.within_scatter()[:, 2].any()
    assert statistics.between_scatter()[2, 2] > 1


def test_a_class_of_one_row_has_no_scatter():
    statistics = ClassStatistics().partial_fit([[1e6, 2.0], [3.0, 4.0]], ["a", "b"])
    assert not statistics.within_scatter().any()
    np.testing.assert_array_equal(statistics.means, [[1e6, 2.0], [3.0, 4.0]])


# ---------------------------------------------------------------------- memory and threads


def peak_memory(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@both_forms
def test_rows_are_never_copied_as_a_whole(pooled):
    rng = np.random.default_rng(0)
    X = rng.random((200_000, 64))
    y = rng.integers(5, size=len(X))
    peak = peak_memory(lambda: ClassStatistics(pooled=pooled).partial_fit(X, y))
    assert peak < 0.15 * X.nbytes


@both_forms
@pytest.mark.parametrize("layout", ["F", "strided"])
def test_not_even_rows_that_are_not_contiguous(pooled, layout):
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.random((40_000, 64))) if layout == "F" else rng.random((40_000, 128))
    X = X if layout == "F" else X[:, ::2]
    y = rng.integers(2, size=len(X))
    peak = peak_memory(lambda: ClassStatistics(pooled=pooled).partial_fit(X, y))
    assert peak < 0.3 * X.nbytes


def test_many_classes_of_few_rows_and_many_features_stay_small():
    rng = np.random.default_rng(0)
    X = rng.random((68 * 40, 1024))
    y = np.repeat(np.arange(68), 40)
    found = []
    peak = peak_memory(lambda: found.append(ClassStatistics().partial_fit(X, y)))
    assert peak < 400e6
    assert found[0].is_factored
    assert error(found[0].scatter(67), Reference(X[-40:], y[-40:]).within) < BOUND


@both_forms
@pytest.mark.parametrize(("n", "p"), [(80_000, 8), (3_000, 300)])
def test_the_number_of_threads_does_not_matter(pooled, n, p):
    rng = np.random.default_rng(0)
    X, y = rng.random((n, p)) + 10, rng.integers(2, size=n)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
            found.append((statistics.within_scatter(), statistics.means))
    assert error(found[0][0], found[1][0]) < 1e-12
    assert error(found[0][1], found[1][1]) < 1e-12


# ---------------------------------------------------------------------- objects


@every_shape
@both_forms
def test_inputs_are_not_modified(shape, pooled):
    X, y = sample(**SHAPES[shape])
    w = np.random.default_rng(0).random(len(X))
    given = [array.copy() for array in (X, y, w)]
    for array in (X, y, w):
        array.flags.writeable = False
    B = np.ones((X.shape[1], 2))
    B.flags.writeable = False
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y, w)
    statistics.partial_fit(X.astype(np.float32), y, w)
    statistics.within_dot(B)
    statistics.project(B)
    for array, before in zip((X, y, w), given, strict=True):
        np.testing.assert_array_equal(array, before)


@every_shape
@both_forms
def test_merge_select_and_project_leave_their_arguments_alone(shape, pooled):
    X, y = sample(**SHAPES[shape])
    half = len(X) // 2
    first = ClassStatistics(pooled=pooled).partial_fit(X[:half], y[:half])
    second = ClassStatistics(pooled=pooled).partial_fit(X[half:], y[half:] + 1)
    before = pickle.dumps(first), pickle.dumps(second)
    merged = first.merge(second)
    merged.partial_fit(X, y)
    merged.merge(first)
    for made in (
        first.select(np.ones(first.n_classes, dtype=bool)),
        first.merge(ClassStatistics(pooled=pooled)),
        ClassStatistics(pooled=pooled).merge(first),
    ):
        made.partial_fit(X + 1, y)
    first.project(np.eye(X.shape[1])).partial_fit(X, y)
    assert (pickle.dumps(first), pickle.dumps(second)) == before


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))],
    ids=["deepcopy", "pickle"],
)
@every_shape
@both_forms
def test_copies_are_equal_and_independent(duplicate, shape, pooled):
    X, y = sample(**SHAPES[shape])
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
    twin = duplicate(statistics)
    np.testing.assert_array_equal(twin.means, statistics.means)
    np.testing.assert_array_equal(twin.within_scatter(), statistics.within_scatter())
    twin.partial_fit(X + 1, y)
    assert_matches(statistics, X, y)
    assert_matches(twin, np.concatenate([X, X + 1]), np.concatenate([y, y]))


def test_merging_with_nothing_changes_nothing():
    X, y = sample(n=30, p=3)
    statistics = ClassStatistics().partial_fit(X, y)
    assert_matches(statistics.merge(ClassStatistics()), X, y)
    assert_matches(ClassStatistics().merge(statistics), X, y)


def test_repr_says_what_is_held():
    X, y = sample(n=30, p=3)
    assert repr(ClassStatistics(pooled=True).partial_fit(X, y)) == (
        "ClassStatistics(pooled, dense: 3 classes, 3 features, 30 rows)"
    )
    assert "by class, factored: 0 classes" in repr(ClassStatistics())


# ---------------------------------------------------------------------- errors


def small(**options):
    return ClassStatistics(**options).partial_fit(
        [[0.0, 1.0], [2.0, 0.0], [3.0, 3.0]], ["a", "a", "b"]
    )


@pytest.mark.parametrize(
    ("work", "kind", "message"),
    [
        (
            lambda: ClassStatistics(storage="sparse"),
            ValueError,
            "storage must be 'auto' or 'dense'",
        ),
        (
            lambda: small().partial_fit([[1.0, 2.0, 3.0]], ["a"]),
            ValueError,
            "X has 3 features, but these statistics have 2",
        ),
        (
            lambda: ClassStatistics().partial_fit([[1.0], [2.0]], ["a"]),
            ValueError,
            "X has 2 rows but y has 1 labels",
        ),
        (
            lambda: ClassStatistics().partial_fit([[1.0], [2.0]], sample_weight=[1, -2]),
            ValueError,
            r"sample_weight must not be negative; the weight of row 1 is -2\.0",
        ),
        (
            lambda: ClassStatistics().partial_fit([[1.0], [2.0]], sample_weight=[1, 2, 3]),
            ValueError,
            r"sample_weight\.shape == \(3,\), expected \(2,\)",
        ),
        (
            lambda: ClassStatistics().partial_fit([[1.0], [2.0]], sample_weight=[1, np.nan]),
            ValueError,
            "sample_weight contains NaN",
        ),
        (
            lambda: ClassStatistics().partial_fit([[1.0], [np.inf]]),
            ValueError,
            "X contains infinity",
        ),
        (
            lambda: ClassStatistics().partial_fit([[1.0], [2.0]], ["a", None]),
            ValueError,
            r"y contains NaN or a missing value \(row 1\)",
        ),
        (
            lambda: small(pooled=True).covariance("a"),
            ValueError,
            "Pooled statistics have no covariances of single classes",
        ),
        (
            lambda: small(pooled=True).scatter("a"),
            ValueError,
            "Pooled statistics have no covariances of single classes",
        ),
        (
            lambda: small(pooled=True).sigma_dot(np.eye(2)),
            ValueError,
            "Pooled statistics have no covariances of single classes",
        ),
        (
            lambda: small().merge(small(pooled=True)),
            ValueError,
            "Pooled statistics can be merged with pooled statistics only",
        ),
        (
            lambda: small().merge(ClassStatistics().partial_fit([[1.0]])),
            ValueError,
            "the same number of features; got 2 and 1",
        ),
        (
            lambda: small().covariance("c"),
            KeyError,
            r"Class 'c' not found; the classes are \['a', 'b'\]",
        ),
        (
            lambda: small().covariance("b", ddof=1),
            ValueError,
            "ddof=1 is too large for a total weight of 1. Use ddof=0",
        ),
        (
            lambda: small().covariance(ddof=1.5),
            ValueError,
            r"ddof=1\.5 is too large for a total weight of 3. Use ddof=0",
        ),
        (
            lambda: small().sigma_dot(np.eye(2), ddof=2),
            ValueError,
            "ddof=2 is too large for a total weight of",
        ),
        (
            lambda: small(storage="dense").within_factor(),
            ValueError,
            "These statistics are dense, so they have no factors",
        ),
    ],
)
def test_errors_say_what_was_found(work, kind, message):
    with pytest.raises(kind, match=message):
        work()


def test_a_refused_batch_leaves_the_statistics_as_they_were():
    statistics = small()
    before = pickle.dumps(statistics)
    for bad in ([[1.0]], [[np.nan, 1.0]]):
        with pytest.raises(ValueError, match="features|NaN"):
            statistics.partial_fit(bad, ["c"])
    with pytest.raises(ValueError, match="negative"):
        statistics.partial_fit([[1.0, 1.0]], ["c"], [-1])
    assert pickle.dumps(statistics) == before


def test_pooled_rows_of_interleaved_classes_keep_their_labels():
    # The order by class starts with the first row and ends with the last, like a slice.
    X = np.array([[0.0, 0], [10, 1], [2, 0], [10, 3]])
    statistics = ClassStatistics(pooled=True).partial_fit(X, [0, 1, 0, 1])
    np.testing.assert_array_equal(statistics.means, [[1, 0], [10, 2]])


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_is_refused_and_leaves_the_statistics_as_they_were(pooled, bad):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 2, 60)
    statistics = ClassStatistics(pooled=pooled).partial_fit(X, y)
    before = statistics.within_scatter()
    spoilt = X.copy()
    spoilt[7, 2] = bad
    with pytest.raises(ValueError, match="Input X contains"):
        statistics.partial_fit(spoilt, y + 1)
    assert statistics.classes.tolist() == [0, 1]
    np.testing.assert_array_equal(statistics.within_scatter(), before)
    np.testing.assert_array_equal(statistics.counts, np.bincount(y))


def test_sums_that_overflow_are_refused_and_leave_the_statistics_as_they_were():
    statistics = ClassStatistics().partial_fit(np.eye(3), [0, 0, 1])
    before = statistics.means
    with pytest.raises(ValueError, match="overflow"), np.errstate(over="ignore"):
        statistics.partial_fit([[1e308, 0, 0], [-1e308, 0, 0], [1e308, 1, 0]], [2, 2, 2])
    np.testing.assert_array_equal(statistics.means, before)


@pytest.mark.slow
def test_many_small_batches_of_many_classes_take_linear_time():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 20)), np.arange(1000) % 100

    def taken(n):
        statistics = ClassStatistics()
        started = time.process_time()
        for row in range(n):
            statistics.partial_fit(X[row : row + 1], y[row : row + 1])
        return time.process_time() - started, statistics

    few, _ = taken(250)
    many, statistics = taken(1000)
    assert many < 10 * few  # four times the rows; a factor of 16 would be quadratic
    whole = ClassStatistics().partial_fit(X, y)
    np.testing.assert_allclose(statistics.within_scatter(), whole.within_scatter(), atol=1e-9)
    # A class without rows in the batch must not grow.
    assert all(len(second.rows) == 10 for second in statistics._seconds)


def test_thousands_of_classes_cost_no_more_than_their_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(15_000, 20)), np.arange(15_000) % 5_000

    def taken(n):
        started = time.process_time()
        statistics = ClassStatistics().partial_fit(X[:n], y[:n] % (n // 3))
        return time.process_time() - started, statistics

    few, _ = taken(1_500)
    many, statistics = taken(15_000)
    assert many < 40 * few  # ten times the rows and classes; a factor of 100 would be quadratic
    np.testing.assert_allclose(statistics.means[7], X[7::5_000].mean(axis=0))


# ---------------------------------------------------------------------- many features


@pytest.mark.by_turns(2)
@both_forms
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_batches_of_many_features_match_two_passes_whenever_they_are_read(pooled, dtype):
    """Wide moments sum triangles only; reading, copying and merging must complete them."""
    X, y = sample(n=1000, p=260, c=2, apart=1.0)
    X = X.astype(dtype)
    bound = BOUND if dtype == np.float64 else 1e-5
    statistics = in_batches(X[:560], y[:560], 140, pooled=pooled)
    assert not statistics.is_factored
    assert error(statistics.within_scatter(), Reference(X[:560], y[:560]).within) < bound
    statistics.partial_fit(X[560:800], y[560:800])
    loaded = pickle.loads(pickle.dumps(statistics))
    rest = ClassStatistics(pooled=pooled, storage="dense").partial_fit(X[800:], y[800:])
    expected = Reference(X, y)
    for both in (loaded.merge(rest), rest.merge(loaded), loaded.partial_fit(X[800:], y[800:])):
        assert error(both.within_scatter(), expected.within) < bound
        B = np.linalg.qr(np.random.default_rng(0).normal(size=(260, 3)))[0]
        assert error(both.within_dot(B), expected.within @ B) < 10 * bound
        assert error(both.project(B).within_scatter(), B.T @ expected.within @ B) < 10 * bound
