"""Tests of ADAMENN against a loop over queries, written from its description."""

import numpy as np
import pytest

from nearfar import ADAMENNClassifier, KNNClassifier
from nearfar.local.adamenn import compute_chi_squared, compute_feature_weights


def draw_data(n=60, p=4, classes=2, seed=0, integers=False):
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=n)
    X = random.normal(size=(n, p)) * (1.0 + np.arange(p))
    X[:, 0] += 2 * y
    return (np.round(X), y) if integers else (X, y)


# ---------------------------------------------------------------------- the oracle


def sort_by_distance(D):
    """Sort rows by distance, then by index. Distances that differ by rounding are equal."""
    return np.lexsort((np.arange(len(D)), np.round(D, 9)))


def compute_relevances(z, rows, codes, J, w, k1, k2, slab, hidden):
    """Return the relevances at training row z, by counting."""
    near = [i for i in sort_by_distance(((rows - rows[z]) ** 2 * w).sum(axis=1)) if i not in hidden]
    P = np.bincount(codes[near[:k1]], minlength=J) / k1
    region = np.array(near[:k2])
    r = []
    for i in range(rows.shape[1]):
        far = np.abs(rows[region, i] - rows[z, i])
        inside = region[far <= np.sort(far)[slab - 1] + 1e-9]
        bar = (np.bincount(codes[inside], minlength=J) + 1) / (len(inside) + J)
        r.append(((P - bar) ** 2 / bar).sum())
    return np.array(r)


def compute_expected(
    X, y, x0, own=None, *, k0, k1, k2, slab, c, weighting, n_iter, region, exclude
):
    """Return the weights at one query."""
    rows, q = X / X.std(axis=0), x0 / X.std(axis=0)
    classes, codes = np.unique(y, return_inverse=True)
    p, left = rows.shape[1], {own} - {None}
    w = np.full(p, 1 / p)
    for step in range(n_iter):
        lists = w if region == "weighted" and step else np.full(p, 1 / p)
        near = [i for i in sort_by_distance(((rows - q) ** 2 * w).sum(axis=1)) if i not in left][
            :k0
        ]
        r = np.mean(
            [
                compute_relevances(
                    z,
                    rows,
                    codes,
                    len(classes),
                    lists,
                    k1,
                    k2,
                    slab,
                    left | ({z} if exclude else set()),
                )
                for z in near
            ],
            axis=0,
        )
        R = r.max() - r
        if weighting == "exponential":
            w = np.exp(c * R)
        else:
            w = R ** {"linear": 1, "quadratic": 2}[weighting] if R.max() > 0 else np.ones(p)
        w = w / w.sum()
    D = np.sqrt(((rows - q) ** 2 * w).sum(axis=1))
    return w, D, [i for i in sort_by_distance(D) if i not in left]


CASES = [
    {"classes": 2, "max_iter": 1},
    {"classes": 3, "max_iter": 3},
    {"classes": 2, "max_iter": 3, "region": "weighted"},
    {"classes": 3, "max_iter": 3, "region": "weighted", "exclude_self": True},
    {"classes": 3, "max_iter": 1, "exclude_self": True, "weighting": "linear"},
    {"classes": 2, "max_iter": 3, "weighting": "quadratic"},
    {"classes": 3, "max_iter": 3, "integers": True},
    {"classes": 3, "max_iter": 2, "integers": True, "region": "weighted"},
]


def case(options, seed=0):
    options = dict(options)
    X, y = draw_data(
        classes=options.pop("classes"), seed=seed, integers=options.pop("integers", False)
    )
    rule = ADAMENNClassifier(
        n_average_neighbors=12, n_region_neighbors=20, n_slab_neighbors=7, **options
    ).fit(X, y)
    same = {
        "k0": 12,
        "k1": 3,
        "k2": 20,
        "slab": 7,
        "c": rule.weight_scale,
        "weighting": rule.weighting,
    }
    same |= {"n_iter": rule.max_iter, "region": rule.region, "exclude": rule.exclude_self}
    return X, y, rule, same


@pytest.mark.parametrize("options", CASES)
def test_weights_neighbours_and_votes_are_those_of_a_loop(options):
    X, y, rule, same = case(options)
    queries = X[:8] + (0 if options.get("integers") else 0.3)
    weights, (distances, found) = rule.weights_at(queries), rule.kneighbors(queries)
    for i, x0 in enumerate(queries):
        w, D, near = compute_expected(X, y, x0, **same)
        np.testing.assert_allclose(weights[i], w, atol=1e-8)
        np.testing.assert_allclose(distances[i], D[found[i]], atol=1e-8)
        assert found[i].tolist() == near[:3]
        votes = np.bincount(y[near[:3]])
        if (votes == votes.max()).sum() == 1:
            assert rule.predict(queries[i : i + 1]) == votes.argmax()


@pytest.mark.parametrize("options", CASES)
def test_left_out_a_row_takes_no_part_in_its_own_weights(options):
    X, y, rule, same = case(options)
    rows = rule._rows()
    (weights,) = rule._by_block(rows, None, lambda b: (rule._metrics(rows, b).get_diagonals(),))
    _, found = rule._nearest(None, 3)
    for i in range(0, len(X), 5):
        w, _, near = compute_expected(X, y, X[i], own=i, **same)
        np.testing.assert_allclose(weights[i], w, atol=1e-8)
        assert found[i].tolist() == near[:3]


def test_lists_of_all_rows_can_lose_one():
    X, y = draw_data(n=12)
    rule = ADAMENNClassifier(
        n_average_neighbors=12, n_region_neighbors=12, n_slab_neighbors=12, n_posterior_neighbors=12
    ).fit(X, y)
    rows = rule._rows()
    (weights,) = rule._by_block(rows, None, lambda b: (rule._metrics(rows, b).get_diagonals(),))
    sizes = {"k0": 11, "k1": 11, "k2": 11, "slab": 11}
    for i in range(12):
        w, _, _ = compute_expected(
            X, y, X[i], own=i, **sizes, c=5.0, weighting="exponential", n_iter=1,
            region="euclidean", exclude=False,
        )  # fmt: skip
        np.testing.assert_allclose(weights[i], w, atol=1e-8)


def test_without_weight_on_relevance_it_is_k_nn():
    X, y = draw_data(n=120, classes=3)
    scale = X[:80].std(axis=0)
    rule = ADAMENNClassifier(n_neighbors=5, weight_scale=0.0).fit(X[:80], y[:80])
    plain = KNNClassifier(n_neighbors=5).fit(X[:80] / scale, y[:80])
    np.testing.assert_allclose(rule.weights_at(X[80:]), 0.25)
    np.testing.assert_array_equal(rule.kneighbors(X[80:])[1], plain.kneighbors(X[80:] / scale)[1])


@pytest.mark.parametrize("weighting", ["exponential", "linear", "quadratic"])
def test_equal_relevance_is_no_preference(weighting):
    means = np.array([[0.3, 0.3, 0.3], [0.1 + 0.2, 0.3, 0.3], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(compute_feature_weights(means, weighting, 5.0), 1 / 3)
    # Copies of one column are equally relevant.
    X, y = draw_data()
    rule = ADAMENNClassifier(weighting=weighting).fit(X[:, [0, 0, 0]], y)
    np.testing.assert_allclose(rule.weights_at(X[:, [0, 0, 0]]), 1 / 3)


def test_smoothing_is_of_the_slab_alone():
    # The slab has one class, the neighborhood another: without smoothing this divides by zero.
    found = compute_chi_squared(np.array([[1.0, 0.0]]), np.array([[[0, 4], [4, 0]]]))
    np.testing.assert_allclose(found, [[(5 / 6) ** 2 * (6 + 6 / 5), (1 / 6) ** 2 * (6 / 5 + 6)]])


def test_noise_weighs_less_and_weights_add_up():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 6)), np.arange(200) % 2
    X[:, 0] += 4 * y
    weights = ADAMENNClassifier().fit(X, y).weights_at(X)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    # If all rows have the same class, all features are equally relevant.
    assert weights[:, 0].mean() > 1.2 * weights[:, 1:].mean(axis=0).max()
    # The softmax must not overflow for large exponents.
    strong = ADAMENNClassifier(weight_scale=1e6).fit(X, y).weights_at(X)
    assert np.isfinite(strong).all()
    np.testing.assert_allclose(strong.sum(axis=1), 1)


T6 = np.array([[0.0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]]), np.array([-1, -1, -1, 1, 1, 1])


def test_t6_by_hand():
    # All six points are in the region, slab and posterior. The class fractions are (1/2, 1/2), and
    # (4/8, 4/8) if smoothed, so no feature is relevant and the neighbors are the Euclidean ones.
    rule = ADAMENNClassifier(
        n_average_neighbors=6, n_posterior_neighbors=6, n_region_neighbors=6, n_slab_neighbors=6
    ).fit(*T6)
    np.testing.assert_array_equal(rule.relevances_, 0)
    np.testing.assert_allclose(rule.weights_at(T6[0]), 0.5)
    # With n_posterior_neighbors=1, P is the class of the point itself: (1/2)^2 / (1/2), twice.
    rule = ADAMENNClassifier(
        n_average_neighbors=6, n_posterior_neighbors=1, n_region_neighbors=6, n_slab_neighbors=6
    ).fit(*T6)
    np.testing.assert_allclose(rule.relevances_, 1.0)
    # Slabs of two: along feature 0 the two nearest to (0, 0) are both 0 and of its class; along
    # feature 1 rows 0, 1 and 4 tie at 0: (1 - 3/5)^2 (5/3 + 5/2).
    rule = ADAMENNClassifier(
        n_average_neighbors=6, n_posterior_neighbors=1, n_region_neighbors=6, n_slab_neighbors=2
    ).fit(*T6)
    np.testing.assert_allclose(
        rule.relevances_[0], [0.25**2 * (4 / 3 + 4), 0.4**2 * (5 / 3 + 5 / 2)]
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"n_region_neighbors": 61},
            "n_region_neighbors=61 is larger than the number of training points",
        ),
        ({"n_region_neighbors": 60, "exclude_self": True}, "n_region_neighbors=60 is larger"),
        ({"n_average_neighbors": 61}, "n_average_neighbors=61 is larger"),
        ({"n_posterior_neighbors": 61}, "n_posterior_neighbors=61 is larger"),
        (
            {"n_region_neighbors": 5, "n_posterior_neighbors": 6},
            r"n_posterior_neighbors=6 .* \(n_region_neighbors=5\)",
        ),
        (
            {"n_region_neighbors": 5, "n_slab_neighbors": 6},
            r"n_slab_neighbors=6 .* \(n_region_neighbors=5\)",
        ),
        ({"n_neighbors": 61}, "n_neighbors=61 is larger"),
    ],
)
def test_sizes_that_there_are_not(options, words):
    with pytest.raises(ValueError, match=words):
        ADAMENNClassifier(**options).fit(*draw_data())


def test_few_rows_duplicates_and_a_class_of_one():
    X = np.repeat([[0.0, 1, 2], [3, 1, 0]], 4, axis=0)
    for region in ("euclidean", "weighted"):
        rule = ADAMENNClassifier(max_iter=2, region=region).fit(X, [0] * 7 + [1])
        assert np.isfinite(rule.weights_at(X)).all()
        assert rule.predict([[0.0, 1, 2]]) == 0
        assert 0 <= rule.leave_one_out_error() <= 1
    few = ADAMENNClassifier(n_neighbors=1, n_posterior_neighbors=1).fit(np.eye(3, 20), [0, 1, 1])
    assert few.predict(np.eye(3, 20)).tolist() == [0, 1, 1]
