"""LDA with criteria J1 to J4, compared with scikit-learn, scipy's eigh and known identities."""

from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import linalg
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError

from nearfar import LDA
from nearfar.solvers.eigen import trace_ratio

PAIRS = ["between_within", "between_total", "total_within"]


# ---------------------------------------------------------------------- data and oracles


def clusters(n=150, p=6, c=4, seed=0, apart=1.5):
    """Return correlated classes of different sizes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(c, size=n, p=np.arange(1, c + 1) / np.arange(1, c + 1).sum())
    y[: 2 * c] = np.tile(np.arange(c), 2)
    mixing = rng.normal(size=(p, p))
    return (rng.normal(size=(n, p)) + apart * rng.normal(size=(c, p))[y]) @ mixing, y


def scatters(X, y, w=None):
    """Return S_b, S_w and S_t divided by n, computed in two passes in long double."""
    X = X.astype(np.longdouble)
    w = (np.ones(len(X)) if w is None else w).astype(np.longdouble)
    w = w / w.sum()
    mean = w @ X
    own = np.empty_like(X)
    for label in np.unique(y):
        mine = y == label
        own[mine] = w[mine] @ X[mine] / w[mine].sum()
    within = ((X - own) * w[:, None]).T @ (X - own)
    between = ((own - mean) * w[:, None]).T @ (own - mean)
    return tuple(np.asarray(S, dtype=np.float64) for S in (between, within, between + within))


def of_pair(pair, between, within):
    scatter = {"between": between, "within": within, "total": between + within}
    return tuple(scatter[name] for name in pair.split("_"))


def generalized(S1, S2, q):
    """Return the q leading eigenvalues, and eigenvectors (rows) normalized by S2."""
    values, vectors = linalg.eigh(S1, S2)
    return values[::-1][:q], vectors[:, ::-1][:, :q].T


def leading(S, q):
    values, vectors = np.linalg.eigh(S)
    return values[::-1][:q], vectors[:, ::-1][:, :q].T


def ratio(U, S1, S2):
    """Return the trace ratio of the rows of U."""
    return np.trace(U @ S1 @ U.T) / np.trace(U @ S2 @ U.T)


def best_ratio(S1, S2, q):
    """Return the z at which the q largest eigenvalues of S1 - z S2 sum to zero, by bisection."""
    low, high = 0.0, linalg.eigh(S1, S2, eigvals_only=True)[-1] + 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if np.linalg.eigvalsh(S1 - middle * S2)[-q:].sum() > 0:
            low = middle
        else:
            high = middle
    return low


def assert_rows_up_to_sign(found, expected, atol=1e-8):
    assert found.shape == expected.shape
    signs = np.sign(np.sum(found * expected, axis=1))[:, None]
    np.testing.assert_allclose(found * signs, expected, rtol=0, atol=atol * np.abs(expected).max())


def span_distance(A, B):
    """Return the distance of the projectors onto the spans of the rows."""
    P, Q = (linalg.qr(rows.T, mode="economic")[0] for rows in (A, B))
    return np.linalg.norm(P @ P.T - Q @ Q.T)


def orthonormal(rng, q, p):
    return linalg.qr(rng.normal(size=(p, q)), mode="economic")[0].T


def varying_digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[::3], y[::3]
    return X[:, np.ptp(X, axis=0) > 0], y


DATA = {
    "iris": load_iris(return_X_y=True),
    "wine": load_wine(return_X_y=True),
    "digits": varying_digits(),
    "random": clusters(),
}

every_set = pytest.mark.parametrize("name", DATA)
every_pair = pytest.mark.parametrize("pair", PAIRS)


# ---------------------------------------------------------------------- J1 and J2


@every_set
def test_j1_gives_the_directions_of_scikit_learn(name):
    X, y = DATA[name]
    ours = LDA().fit(X, y).components_
    q = len(np.unique(y)) - 1
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :q].T
    ours, theirs = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (ours, theirs))
    assert_rows_up_to_sign(ours, theirs, atol=1e-6)


@every_set
@pytest.mark.parametrize("n_components", [1, 2, None])
def test_j1_gives_the_generalised_eigenvectors(name, n_components):
    X, y = DATA[name]
    between, within, _ = scatters(X, y)
    lda = LDA(n_components).fit(X, y)
    q = n_components or len(np.unique(y)) - 1
    values, rows = generalized(between, within, q)
    np.testing.assert_allclose(lda.eigenvalues_, values, rtol=1e-8)
    assert_rows_up_to_sign(lda.components_, rows, atol=1e-6)
    np.testing.assert_allclose(lda.objective_, values.sum(), rtol=1e-8)
    np.testing.assert_allclose(lda.mean_, X.mean(axis=0), atol=1e-10)


@every_set
@pytest.mark.parametrize("criterion", ["J1", "J2"])
def test_classes_have_the_identity_as_pooled_covariance_after_the_map(name, criterion):
    X, y = DATA[name]
    Z = LDA(criterion=criterion).fit(X, y).transform(X)
    _, within, _ = scatters(Z, y)
    np.testing.assert_allclose(within, np.eye(len(within)), atol=1e-9)


@every_set
def test_the_pairs_share_directions_and_map_eigenvalues(name):
    X, y = DATA[name]
    between, within, _ = scatters(X, y)
    first = LDA().fit(X, y)
    l = first.eigenvalues_  # noqa: E741
    maps = {"between_within": l, "between_total": l / (1 + l), "total_within": 1 + l}
    for pair, expected in maps.items():
        lda = LDA(scatter_pair=pair).fit(X, y)
        values, rows = generalized(*of_pair(pair, between, within), len(l))
        np.testing.assert_allclose(lda.eigenvalues_, expected, rtol=1e-12)
        np.testing.assert_allclose(lda.eigenvalues_, values, rtol=1e-7)
        np.testing.assert_array_equal(lda.components_, first.components_)
        assert span_distance(lda.components_, rows) < 1e-6


@every_set
@every_pair
def test_j2_has_the_solution_of_j1_and_its_own_value(name, pair):
    X, y = DATA[name]
    S1, S2 = of_pair(pair, *scatters(X, y)[:2])
    lda = LDA(criterion="J2", scatter_pair=pair).fit(X, y)
    np.testing.assert_array_equal(lda.components_, LDA(scatter_pair=pair).fit(X, y).components_)
    U = lda.components_
    value = np.linalg.slogdet(U @ S1 @ U.T)[1] - np.linalg.slogdet(U @ S2 @ U.T)[1]
    np.testing.assert_allclose(lda.objective_, value, rtol=1e-8)


@pytest.mark.parametrize("criterion", ["J1", "J2"])
@every_pair
def test_no_other_map_has_a_larger_value(criterion, pair):
    X, y = DATA["random"]
    S1, S2 = of_pair(pair, *scatters(X, y)[:2])
    lda = LDA(2, criterion=criterion, scatter_pair=pair).fit(X, y)
    rng = np.random.default_rng(0)

    def value(U):
        first, second = U @ S1 @ U.T, U @ S2 @ U.T
        if criterion == "J1":
            return np.trace(np.linalg.solve(second, first))
        return np.linalg.slogdet(first)[1] - np.linalg.slogdet(second)[1]

    best = value(lda.components_)
    np.testing.assert_allclose(lda.objective_, best, rtol=1e-9)
    size = np.abs(lda.components_).max()
    for k in range(200):
        spread = size * (0.02 if k % 2 else 10.0)
        assert value(lda.components_ + spread * rng.normal(size=(2, 6))) <= best


def test_j1_is_the_mean_divergence_between_gaussians_of_one_covariance():
    X, y = DATA["random"]
    _, within, _ = scatters(X, y)
    lda = LDA(2).fit(X, y)
    U = lda.components_
    q = [(y == k).mean() for k in range(4)]
    m = [U @ X[y == k].mean(axis=0) for k in range(4)]
    precision = np.linalg.inv(U @ within @ U.T)
    divergence = sum(
        q[i] * q[j] * 0.5 * (m[i] - m[j]) @ precision @ (m[i] - m[j])
        for i, j in permutations(range(4), 2)
    )
    np.testing.assert_allclose(lda.objective_, divergence, rtol=1e-10)


def test_two_gaussians_give_fishers_direction():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(5, 5))
    sigma, gap = mixing.T @ mixing, rng.normal(size=5)
    y = np.repeat([0, 1], [60_000, 40_000])
    X = rng.normal(size=(100_000, 5)) @ mixing + np.outer(y, gap)
    found = LDA().fit(X, y).components_[0]
    expected = np.linalg.solve(sigma, gap)
    cosine = found @ expected / np.linalg.norm(found) / np.linalg.norm(expected)
    assert abs(cosine) > 0.999


def test_distances_after_the_map_are_those_of_the_classical_classifier():
    X, y = DATA["wine"]
    _, within, _ = scatters(X, y)
    means = np.array([X[y == k].mean(axis=0) for k in range(3)])
    Z, centers = LDA().fit(X, y).transform(X), LDA().fit(X, y).transform(means)
    # Up to the part of the distance that is equal for all classes.
    gaps = cdist(X, means, "mahalanobis", VI=np.linalg.inv(within)) ** 2
    np.testing.assert_allclose(
        np.diff(cdist(Z, centers) ** 2, axis=1), np.diff(gaps, axis=1), atol=1e-6
    )


def test_the_divisor_of_the_covariances_is_the_number_of_rows():
    X, y = clusters(n=60, c=4, p=6)  # With classes of equal size, the test would show nothing.
    q = 2  # Below c - 1, the span depends on more than the means.
    _, within, total = scatters(X, y)
    unbiased = sum((y == k).mean() * np.cov(X[y == k].T, ddof=1) for k in range(4))

    def smallest_after_whitening(S, whole):
        return linalg.eigh(S, whole)[1][:, :q].T

    ours = LDA(q).fit(X, y).components_
    assert span_distance(ours, smallest_after_whitening(within, total)) < 1e-7
    trap = smallest_after_whitening(unbiased, np.cov(X.T))
    assert span_distance(ours, trap) > 1e-3


# ---------------------------------------------------------------------- J3


@every_set
@every_pair
@pytest.mark.parametrize("within_weight", [0.0, 0.7, 3.0, -0.5])
def test_j3_with_a_number_gives_eigenvectors_of_the_difference(name, pair, within_weight):
    X, y = DATA[name]
    S1, S2 = of_pair(pair, *scatters(X, y)[:2])
    q = 2
    lda = LDA(q, criterion="J3", scatter_pair=pair, within_weight=within_weight).fit(X, y)
    values, rows = leading(S1 - within_weight * S2, q)
    np.testing.assert_allclose(lda.eigenvalues_, values, rtol=1e-8, atol=1e-9 * np.trace(S1))
    np.testing.assert_allclose(lda.objective_, values.sum(), rtol=1e-8, atol=1e-9 * np.trace(S1))
    np.testing.assert_allclose(lda.components_ @ lda.components_.T, np.eye(q), atol=1e-12)
    assert span_distance(lda.components_, rows) < 1e-6


@pytest.mark.parametrize("name", ["iris", "wine", "random"])
@every_pair
@pytest.mark.parametrize("n_components", [1, 2])
def test_j3_chooses_its_weight_by_rule(name, pair, n_components):
    X, y = DATA[name]
    S1, S2 = of_pair(pair, *scatters(X, y)[:2])
    fisher, _ = generalized(S1, S2, n_components)
    weights = {
        "max_eig": fisher[0],
        "sum_eig": fisher.sum(),
        "trace_ratio": best_ratio(S1, S2, n_components),
    }
    assert weights["trace_ratio"] <= weights["sum_eig"] * (1 + 1e-12)
    for rule, within_weight in weights.items():
        lda = LDA(n_components, criterion="J3", scatter_pair=pair, within_weight=rule).fit(X, y)
        values, rows = leading(S1 - within_weight * S2, n_components)
        np.testing.assert_allclose(
            lda.eigenvalues_, values, atol=1e-7 * within_weight * np.trace(S2)
        )
        assert span_distance(lda.components_, rows) < 1e-5


@pytest.mark.parametrize("name", ["iris", "wine", "random"])
def test_with_the_largest_eigenvalue_as_weight_the_difference_is_negative(name):
    X, y = DATA[name]
    between, within, _ = scatters(X, y)
    p = X.shape[1]
    lda = LDA(p, criterion="J3", within_weight="max_eig").fit(X, y)
    size = np.abs(lda.eigenvalues_).max()
    assert abs(lda.eigenvalues_[0]) < 1e-8 * size
    assert (lda.eigenvalues_[1:] < 1e-8 * size).all()
    within_weight = generalized(between, within, 1)[0][0]
    assert np.linalg.eigvalsh(between - within_weight * within)[-1] < 1e-8 * size
    # With any smaller weight, an eigenvalue is positive.
    below = LDA(1, criterion="J3", within_weight=0.99 * within_weight).fit(X, y)
    assert below.eigenvalues_[0] > 0


# ---------------------------------------------------------------------- J4


def test_the_trace_ratio_never_falls():
    for seed in range(10):
        X, y = clusters(n=80, p=12, c=5, seed=seed)
        between, within, _ = scatters(X, y)
        for q in (1, 2, 4):
            ratios = [
                ratio(trace_ratio(between, within, q, max_iter=k).T, between, within)
                for k in range(8)
            ]
            assert (np.diff(ratios) >= -1e-12 * ratios[-1]).all()
            assert ratios[-1] > ratios[0]
            final = ratio(trace_ratio(between, within, q).T, between, within)
            np.testing.assert_allclose(final, best_ratio(between, within, q), rtol=1e-10)


@pytest.mark.parametrize("name", ["iris", "wine", "random"])
@every_pair
def test_one_direction_of_j4_has_the_largest_generalised_eigenvalue(name, pair):
    X, y = DATA[name]
    S1, S2 = of_pair(pair, *scatters(X, y)[:2])
    values, rows = generalized(S1, S2, 1)
    lda = LDA(1, criterion="J4", scatter_pair=pair).fit(X, y)
    np.testing.assert_allclose(lda.objective_, values[0], rtol=1e-8)
    assert span_distance(lda.components_, rows) < 1e-5


@pytest.mark.parametrize("name", ["iris", "wine", "digits", "random"])
def test_j4_beats_other_orthonormal_maps_and_is_the_same_for_all_pairs(name):
    X, y = DATA[name]
    between, within, _ = scatters(X, y)
    first = LDA(2, criterion="J4").fit(X, y).components_
    np.testing.assert_allclose(first @ first.T, np.eye(2), atol=1e-12)
    rng = np.random.default_rng(0)
    for pair in PAIRS:
        S1, S2 = of_pair(pair, between, within)
        lda = LDA(2, criterion="J4", scatter_pair=pair).fit(X, y)
        assert span_distance(lda.components_, first) < 1e-6
        best = ratio(lda.components_, S1, S2)
        np.testing.assert_allclose(lda.objective_, best, rtol=1e-8)
        np.testing.assert_allclose(best, best_ratio(S1, S2, 2), rtol=1e-8)
        for k in range(200):
            U = orthonormal(rng, 2, X.shape[1])
            if k % 2:
                U = linalg.qr((first + 0.02 * U).T, mode="economic")[0].T
            assert ratio(U, S1, S2) <= best * (1 + 1e-12)


def test_j3_with_the_trace_ratio_is_j4():
    X, y = DATA["random"]
    J3, J4 = (LDA(2, criterion=name).fit(X, y) for name in ("J3", "J4"))
    np.testing.assert_array_equal(J3.components_, J4.components_)
    assert abs(J3.objective_) < 1e-8 * np.abs(J3.eigenvalues_).max()


def test_collinear_features_bring_no_empty_direction_into_j4():
    X, y = DATA["iris"]
    mixing = np.column_stack([np.eye(4), [1.0, 1.0, 0.0, 0.0]])
    Q, R = linalg.qr(mixing.T, mode="economic")  # X @ mixing lies in the span of Q.
    plain = LDA(2, criterion="J4").fit(X @ R.T, y)
    ours = LDA(2, criterion="J4").fit(X @ mixing, y)
    np.testing.assert_allclose(ours.objective_, plain.objective_, rtol=1e-8)
    assert span_distance(ours.components_, plain.components_ @ Q.T) < 1e-6


# ---------------------------------------------------------------------- n_components


@pytest.mark.parametrize("criterion", ["J1", "J2"])
def test_more_than_one_less_than_the_classes_is_refused(criterion):
    X, y = DATA["iris"]
    with pytest.raises(
        ValueError,
        match=rf"n_components=3 is too large: criterion {criterion} has at most "
        r"n_classes - 1 = 2 directions",
    ):
        LDA(3, criterion=criterion).fit(X, y)
    assert LDA(criterion=criterion).fit(X, y).components_.shape == (2, 4)


def test_more_than_the_features_is_refused_for_that_reason():
    X, y = clusters(n=100, p=2, c=5)
    with pytest.raises(ValueError, match=r"at most the 2 directions in which the classes vary"):
        LDA(3).fit(X, y)
    assert LDA().fit(X, y).components_.shape == (2, 2)


@pytest.mark.parametrize("criterion", ["J3", "J4"])
def test_rotations_may_have_as_many_directions_as_the_data(criterion):
    X, y = DATA["iris"]
    assert LDA(criterion=criterion).fit(X, y).components_.shape == (2, 4)
    rows = LDA(4, criterion=criterion).fit(X, y).components_
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-12)
    with pytest.raises(ValueError, match=r"at most the 4 directions in which X varies\."):
        LDA(5, criterion=criterion).fit(X, y)


# ---------------------------------------------------------------------- invariance


@every_set
def test_distances_of_j1_do_not_depend_on_a_linear_change_of_the_features(name):
    X, y = DATA[name]
    X, y = X[::5], y[::5]
    if name == "digits":
        X = X[:, X.std(axis=0) > 2]
    rng = np.random.default_rng(0)
    p = X.shape[1]
    mixing = np.linalg.qr(rng.normal(size=(p, p)))[0] @ np.diag(rng.uniform(0.1, 10, p))
    mixed = X @ mixing @ np.linalg.qr(rng.normal(size=(p, p)))[0] + rng.normal(size=p)
    expected = pdist(LDA().fit_transform(X, y))
    np.testing.assert_allclose(pdist(LDA().fit_transform(mixed, y)), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["iris", "wine", "random"])
def test_units_of_the_features_do_not_matter_to_j1(name):
    X, y = DATA[name]
    units = np.logspace(-6, 6, X.shape[1])
    expected = pdist(LDA().fit_transform(X, y))
    np.testing.assert_allclose(pdist(LDA().fit_transform(X * units, y)), expected, rtol=1e-6)


def test_units_of_the_features_matter_to_j4():
    X, y = DATA["iris"]
    scaled = LDA(criterion="J4").fit(X * [100, 1, 1, 1], y)
    assert abs(scaled.objective_ / LDA(criterion="J4").fit(X, y).objective_ - 1) > 1e-3


@pytest.mark.parametrize("criterion", ["J1", "J4"])
def test_constant_features_get_no_weight(criterion):
    X, y = DATA["iris"]
    padded = np.insert(X, [0, 2], [0.1 + 1e7, -3.3], axis=1)
    lda = LDA(criterion=criterion).fit(padded, y)
    assert not lda.components_[:, [0, 3]].any()
    np.testing.assert_allclose(
        lda.components_[:, [1, 2, 4, 5]],
        LDA(criterion=criterion).fit(X, y).components_,
        atol=1e-9,
    )


def test_classes_a_million_deviations_apart_are_still_normalised():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 40)
    mixing = rng.normal(size=(6, 6))
    X = (rng.normal(size=(160, 6)) + 1e6 * rng.normal(size=(4, 6))[y]) @ mixing
    _, within, _ = scatters(X, y)
    for criterion in ("J1", "J2"):
        A = LDA(criterion=criterion).fit(X, y).components_
        np.testing.assert_allclose(A @ within @ A.T, np.eye(3), atol=1e-8)


@pytest.mark.parametrize("criterion", ["J3", "J4"])
def test_rotations_stay_accurate_for_classes_far_apart(criterion):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = rng.normal(size=(120, 4)) @ rng.normal(size=(4, 4)) + 1e5 * rng.normal(size=(3, 4))[y]
    between, within, _ = scatters(X, y)
    found = LDA(1, criterion=criterion).fit(X, y).components_
    np.testing.assert_allclose(
        ratio(found, between, within), generalized(between, within, 1)[0][0], rtol=1e-6
    )


# ---------------------------------------------------------------------- fewer rows than features


def wide(n=12, p=30, c=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    X = rng.normal(size=(n, p)) + rng.normal(size=(c, p))[y]
    return X * np.exp(2 * rng.normal(size=p)), y  # Features with different units.


@pytest.mark.parametrize("criterion", ["J1", "J2", "J4"])
def test_wide_data_are_separated_without_scatter_inside_the_classes(criterion):
    X, y = wide()
    lda = LDA(criterion=criterion).fit(X, y)
    assert lda.statistics_.is_factored
    assert np.isfinite(lda.components_).all()
    Z = lda.transform(X)
    inside = max(pdist(Z[y == k]).max() for k in range(3))
    outside = min(cdist(Z[y == i], Z[y == j]).min() for i, j in combinations(range(3), 2))
    assert inside < 1e-6 * outside
    # If S_w is zero, it is replaced by 0.1% of S_t = S_b.
    between, within, _ = scatters(X, y)
    if criterion == "J1":
        np.testing.assert_allclose(lda.eigenvalues_, 1000.0, rtol=1e-6)
    U = lda.components_
    assert np.trace(U @ within @ U.T) < 1e-9 * np.trace(U @ between @ U.T)


@every_pair
@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_j4_of_wide_data_uses_the_mixture_it_documents(pair, n_components):
    X, y = wide()
    between, within, total = scatters(X, y)
    mixed = 0.999 * within + 0.001 * total
    Q = linalg.orth(total)
    S1, S2 = of_pair(pair, Q.T @ between @ Q, Q.T @ mixed @ Q)
    lda = LDA(n_components, criterion="J4", scatter_pair=pair).fit(X, y)
    expected = best_ratio(S1, S2, n_components)
    np.testing.assert_allclose(lda.objective_, expected, rtol=1e-6)
    np.testing.assert_allclose(ratio(lda.components_ @ Q, S1, S2), expected, rtol=1e-6)


@pytest.mark.parametrize("criterion", ["J1", "J2", "J3", "J4"])
def test_embedded_data_give_the_solution_of_the_small_space(criterion):
    X, y = clusters(n=40, p=5, c=3)
    rng = np.random.default_rng(1)
    Q = orthonormal(rng, 5, 60)
    embedded = X @ Q + rng.normal(size=60)
    small, large = (LDA(criterion=criterion).fit(data, y) for data in (X, embedded))
    assert large.statistics_.is_factored
    np.testing.assert_allclose(
        pdist(large.transform(embedded)), pdist(small.transform(X)), rtol=1e-7
    )
    np.testing.assert_allclose(large.eigenvalues_, small.eigenvalues_, rtol=1e-6, atol=1e-8)


def test_a_feature_that_tells_the_classes_apart_alone_is_found():
    X, y = DATA["iris"]
    X = X.copy()
    X[:, 3] = y  # Without within-class scatter.
    lda = LDA().fit(X, y)
    assert np.isfinite(lda.components_).all()
    direction = np.abs(lda.components_[0]) / np.linalg.norm(lda.components_[0])
    np.testing.assert_allclose(direction, [0, 0, 0, 1], atol=1e-8)


# ---------------------------------------------------------------------- shrinkage


@pytest.mark.parametrize("g", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize("data", [clusters(), wide()], ids=["tall", "wide"])
def test_shrinkage_is_the_closed_form(g, data):
    X, y = data
    p = X.shape[1]
    between, within, _ = scatters(X, y)
    C = (1 - g) * within + g * np.trace(within) / p * np.eye(p)
    q = len(np.unique(y)) - 1
    values, rows = generalized(between, C, q)
    lda = LDA(shrinkage=g).fit(X, y)
    np.testing.assert_allclose(lda.eigenvalues_, values, rtol=1e-8)
    assert_rows_up_to_sign(lda.components_, rows, atol=1e-7)
    np.testing.assert_allclose(lda.components_ @ C @ lda.components_.T, np.eye(q), atol=1e-9)


@pytest.mark.parametrize("data", [clusters(), wide()], ids=["tall", "wide"])
def test_shrinkage_in_j4_is_the_closed_form(data):
    X, y = data
    p = X.shape[1]
    between, within, _ = scatters(X, y)
    C = 0.7 * within + 0.3 * np.trace(within) / p * np.eye(p)
    lda = LDA(2, criterion="J4", shrinkage=0.3).fit(X, y)
    np.testing.assert_allclose(lda.objective_, ratio(lda.components_, between, C), rtol=1e-8)
    np.testing.assert_allclose(lda.objective_, best_ratio(between, C, 2), rtol=1e-8)


def test_no_shrinkage_and_auto_agree_while_the_scatter_is_regular():
    X, y = DATA["wine"]
    none, auto = (LDA(shrinkage=g).fit(X, y).components_ for g in (0.0, "auto"))
    np.testing.assert_allclose(none, auto, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("criterion", ["J3", "J4"])
def test_an_unbounded_trace_ratio_is_refused(criterion):
    X, y = wide()
    with pytest.raises(ValueError, match=r"trace ratio is unbounded\. Use shrinkage='auto'"):
        LDA(criterion=criterion, shrinkage=0.0).fit(X, y)


@pytest.mark.parametrize("criterion", ["J1", "J2"])
def test_classes_of_equal_points_need_auto_shrinkage(criterion):
    X, y = np.repeat(np.eye(4)[:3], 3, axis=0), np.repeat([0, 1, 2], 3)
    with pytest.raises(ValueError, match=r"no within-class scatter\. Use shrinkage='auto'"):
        LDA(criterion=criterion, shrinkage=0.2).fit(X, y)
    assert LDA(criterion=criterion).fit(X, y).components_.shape == (2, 4)


# ---------------------------------------------------------------------- batches


@pytest.fixture
def solves(monkeypatch):
    """Count how often LDA solves."""
    calls = []
    solve = LDA.solve

    def counted(self, statistics):
        calls.append(statistics)
        return solve(self, statistics)

    monkeypatch.setattr(LDA, "solve", counted)
    return calls


def test_batches_are_solved_once_and_only_when_needed(solves):
    X, y = DATA["wine"]
    order = np.random.default_rng(0).permutation(len(X))
    lda = LDA()
    for rows in np.array_split(order, 5):
        assert lda.partial_fit(X[rows], y[rows]) is lda
    assert lda.n_features_in_ == 13
    assert not solves
    lda.transform(X)
    assert len(solves) == 1
    lda.components_, lda.eigenvalues_, lda.classes_, lda.mean_, lda.objective_  # noqa: B018
    lda.get_mahalanobis_matrix()
    assert len(solves) == 1
    lda.partial_fit(X, y).partial_fit(X, y)
    assert len(solves) == 1
    lda.eigenvalues_  # noqa: B018
    assert len(solves) == 2


@pytest.mark.parametrize("criterion", ["J1", "J4"])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_batches_give_what_one_fit_gives(criterion, size):
    X, y = DATA["wine"]
    order = np.random.default_rng(0).permutation(len(X))
    lda = LDA(criterion=criterion)
    for start in range(0, len(X), size):
        rows = order[start : start + size]
        lda.partial_fit(X[rows], y[rows])
    whole = LDA(criterion=criterion).fit(X, y)
    np.testing.assert_allclose(lda.components_, whole.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(lda.eigenvalues_, whole.eigenvalues_, rtol=1e-8, atol=1e-8)


def test_a_batch_after_a_fit_goes_on_and_a_fit_starts_anew():
    X, y = DATA["wine"]
    lda = LDA().fit(X[::2], y[::2])
    lda.partial_fit(X[1::2], y[1::2])
    whole = LDA().fit(X, y)
    np.testing.assert_allclose(lda.components_, whole.components_, rtol=1e-6, atol=1e-8)
    lda.fit(X[::2], y[::2])
    np.testing.assert_array_equal(lda.components_, LDA().fit(X[::2], y[::2]).components_)


def test_a_new_class_brings_a_new_direction():
    X, y = DATA["wine"]
    lda = LDA().partial_fit(X[y < 2], y[y < 2])
    assert lda.components_.shape == (1, 13)
    lda.partial_fit(X[y == 2], y[y == 2])
    assert lda.classes_.tolist() == [0, 1, 2]
    assert lda.components_.shape == (2, 13)


def test_one_class_so_far_is_no_error_until_something_is_asked_for():
    X, y = DATA["iris"]
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    lda = LDA().partial_fit(X[y == 0], names[y == 0])
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"at least 2 classes, but .* only one class \('setosa'\)"
        ):
            lda.components_  # noqa: B018
    with pytest.raises(ValueError, match="only one class"):
        lda.transform(X)
    # Attributes of the failed solve must not be used as a result.
    lda.partial_fit(X[y == 1], names[y == 1])
    assert lda.classes_.tolist() == ["setosa", "versicolor"]
    lda.partial_fit(X[y == 2], names[y == 2])
    assert lda.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(lda.components_, LDA().fit(X, names).components_, atol=1e-9)


def test_nothing_is_learned_before_the_first_batch():
    lda = LDA()
    assert not hasattr(lda, "components_")
    with pytest.raises(NotFittedError):
        lda.transform(DATA["iris"][0])


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("criterion", ["J1", "J4"])
@pytest.mark.parametrize("data", [DATA["wine"], wide(n=15)], ids=["tall", "wide"])
def test_an_integer_weight_equals_so_many_copies(criterion, data):
    X, y = data
    w = np.random.default_rng(0).integers(0, 4, size=len(X))
    weighted = LDA(criterion=criterion).fit(X, y, sample_weight=w)
    repeated = LDA(criterion=criterion).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(
        pdist(weighted.transform(X)), pdist(repeated.transform(X)), rtol=1e-5, atol=1e-8
    )


def test_fractional_weights_weigh_scatters():
    X, y = DATA["random"]
    w = np.random.default_rng(0).exponential(size=len(X))
    between, within, _ = scatters(X, y, w)
    values, rows = generalized(between, within, 3)
    for scale in (1.0, 1e-3):  # The scale of the weights has no effect.
        lda = LDA().fit(X, y, sample_weight=scale * w)
        np.testing.assert_allclose(lda.eigenvalues_, values, rtol=1e-9)
        assert_rows_up_to_sign(lda.components_, rows, atol=1e-8)


def test_a_class_of_weight_zero_does_not_exist():
    X, y = DATA["iris"]
    lda = LDA().fit(X, y, sample_weight=(y != 1).astype(float))
    assert lda.classes_.tolist() == [0, 2]
    np.testing.assert_array_equal(lda.components_, LDA().fit(X[y != 1], y[y != 1]).components_)


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "LDA: n_components must be None, or an integer of at least 1"),
        ({"criterion": "J5"}, "LDA: criterion must be 'J1' or 'J2' or 'J3' or 'J4'; got 'J5'"),
        ({"scatter_pair": "within-between"}, "LDA: scatter_pair must be"),
        ({"within_weight": "best"}, "LDA: within_weight must be a number"),
        ({"shrinkage": 1.5}, "LDA: shrinkage must be a number from 0 to 1"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LDA(**options).fit(*DATA["iris"])


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda X, y: LDA().fit(X), "requires y to be passed"),
        (lambda X, y: LDA().fit(X, y[:-1]), "X has 150 rows and y has 149 labels"),
        (lambda X, y: LDA().fit(X, 0 * y), r"at least 2 classes, but y has only one class \(0\)"),
        (lambda X, y: LDA().fit(0 * X, y), "Every feature of X is constant"),
        (
            lambda X, y: LDA().fit(X, y, sample_weight=-1.0 - y),
            "sample_weight must not be negative",
        ),
        (lambda X, y: LDA().fit(X, y, sample_weight=0 * y), "every sample_weight is zero"),
        (
            lambda X, y: LDA().fit(X, y).partial_fit(X, y.astype(str)),
            "y mixes labels of types int, str",
        ),
    ],
)
def test_bad_input_is_named(work, message):
    with pytest.raises(ValueError, match=message):
        work(*DATA["iris"])


@pytest.mark.parametrize("solver", ["eigen", "pca", "whiten", "gsvd", "pinv", "qr", "ridge"])
def test_float32_keeps_features_in_small_units(solver):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = (rng.normal(size=(300, 4)) + rng.normal(size=(3, 4))[y]) * [2e4, 10.0, 1.0, 1e-2]
    X = X.astype(np.float32)
    found = LDA(solver=solver, n_components=2).fit(X, y)
    expected = LDA(solver=solver, n_components=2).fit(X.astype(np.float64), y)
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-4)


@pytest.mark.parametrize("solver", ["pca", "whiten", "pinv"])
def test_units_do_not_change_solvers_that_keep_all_directions(solver):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 4)) + rng.normal(size=(3, 4))[y]
    expected = LDA(solver=solver).fit(X, y).eigenvalues_
    found = LDA(solver=solver).fit(X * [1e4, 1.0, 1e-1, 2e-3], y).eigenvalues_
    np.testing.assert_allclose(found, expected, rtol=1e-3)
