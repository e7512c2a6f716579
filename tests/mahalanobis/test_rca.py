"""RCA compared with its closed form, known results and the problems that it solves."""

import numpy as np
import pytest
from conic import solved
from scipy import linalg
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits, load_iris, load_wine

from nearfar import LDA, RCA, Chunklets, Pairs

# A toy dataset with known results.
X6 = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], dtype=float)
Y6 = np.array([-1, -1, -1, 1, 1, 1])
C6 = np.array([[2 / 9, -1 / 18], [-1 / 18, 11 / 9]])
ROOT6 = np.array([[2.13239089, 0.06806796], [0.06806796, 0.90716755]])


def known_groups(n=90, p=4, n_groups=8, seed=0):
    """Return points, and a chunklet for about half of them."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(n_groups, size=n)
    groups[: 2 * n_groups] = np.tile(np.arange(n_groups), 2)
    groups[rng.permutation(np.arange(2 * n_groups, n))[: n // 3]] = -1
    X = (rng.normal(size=(n, p)) + 2 * rng.normal(size=(n_groups + 1, p))[groups]) @ rng.normal(
        size=(p, p)
    )
    return X, groups


def chunklet_covariance(X, groups):
    """Return C over the chunklets of at least two points, and their total covariance."""
    parts = [X[groups == g] for g in np.unique(groups[groups >= 0])]
    parts = [part for part in parts if len(part) > 1]
    n = sum(map(len, parts))
    within = sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts) / n
    return within, np.cov(np.concatenate(parts).T, bias=True)


def inverse_root(C):
    values, vectors = np.linalg.eigh(C)
    return vectors / np.sqrt(values) @ vectors.T


def span_distance(A, B):
    P, Q = (linalg.qr(rows.T, mode="economic")[0] for rows in (A, B))
    return np.linalg.norm(P @ P.T - Q @ Q.T)


# Closed form


def test_anchors_of_the_survey():
    rca = RCA().fit(X6, Y6)
    np.testing.assert_allclose(rca.components_, ROOT6, atol=1e-8)
    np.testing.assert_allclose(rca.get_mahalanobis_matrix(), np.linalg.inv(C6), rtol=1e-12)
    np.testing.assert_allclose(rca.statistics_.covariance(), C6, atol=1e-14)


def test_minus_one_is_a_class_in_y_and_no_chunklet_in_supervision():
    np.testing.assert_allclose(RCA().fit(X6, supervision=[0, 0, 0, 5, 5, 5]).components_, ROOT6)
    right = RCA().fit(X6[3:], supervision=[0, 0, 0]).components_
    np.testing.assert_allclose(RCA().fit(X6, supervision=Y6).components_, right)
    assert not np.allclose(right, ROOT6)


@pytest.mark.parametrize("seed", range(4))
def test_components_are_the_symmetric_inverse_root(seed):
    X, groups = known_groups(seed=seed)
    C, _ = chunklet_covariance(X, groups)
    rca = RCA().fit(X, supervision=groups)
    np.testing.assert_allclose(rca.components_, inverse_root(C), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(rca.components_, rca.components_.T, atol=1e-13)
    np.testing.assert_allclose(rca.mean_, X[groups >= 0].mean(axis=0))


@pytest.mark.parametrize("n_components", [None, 1, 3])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_chunklets_have_the_identity_as_covariance_after_the_map(n_components, offset):
    X, groups = known_groups()
    X = X + offset
    Z = RCA(n_components).fit(X, supervision=groups).transform(X)
    C, _ = chunklet_covariance(Z, groups)
    np.testing.assert_allclose(C, np.eye(len(C)), atol=1e-10 if offset == 0 else 1e-7)


def test_each_class_is_one_chunklet():
    X, y = load_wine(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    from_labels = RCA().fit(X, names).components_
    np.testing.assert_array_equal(RCA().fit(X, supervision=y).components_, from_labels)
    np.testing.assert_allclose(
        from_labels, inverse_root(chunklet_covariance(X, y)[0]), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("n_components", [None, 2])
@pytest.mark.parametrize(
    "form",
    [
        list,
        np.asarray,
        lambda g: g.astype(np.int8),
        Chunklets,
        lambda g: Chunklets.from_groups(
            [np.flatnonzero(g == k) for k in range(8)], n_samples=len(g)
        ),
    ],
    ids=["list", "array", "small integers", "Chunklets", "from groups"],
)
def test_chunklets_may_be_given_in_any_form(form, n_components):
    X, groups = known_groups()
    expected = RCA(n_components).fit(X, supervision=groups).components_
    found = RCA(n_components).fit(X, supervision=form(groups)).components_
    np.testing.assert_array_equal(found, expected)


def test_numbers_of_the_chunklets_do_not_matter():
    X, groups = known_groups()
    names = np.random.default_rng(0).permutation(1000)[:8]
    renamed = np.where(groups >= 0, names[groups], -1)
    np.testing.assert_allclose(
        RCA().fit(X, supervision=renamed).components_,
        RCA().fit(X, supervision=groups).components_,
        rtol=1e-10,
        atol=1e-12,
    )


@pytest.mark.parametrize("n_components", [None, 2])
def test_distances_do_not_depend_on_a_linear_change_of_the_features(n_components):
    X, groups = known_groups()
    rng = np.random.default_rng(1)
    mixed = X @ rng.normal(size=(4, 4)) * [1e-3, 1, 1e3, 10] + 5
    plain, other = (
        pdist(RCA(n_components).fit(data, supervision=groups).transform(data))
        for data in (X, mixed)
    )
    np.testing.assert_allclose(other, plain, rtol=1e-7)


def test_units_twelve_orders_apart_do_not_matter_to_distances():
    X, y = load_wine(return_X_y=True)
    units = np.logspace(-6, 6, 13)
    np.testing.assert_allclose(
        pdist(RCA().fit(X * units, y).transform(X * units)),
        pdist(RCA().fit(X, y).transform(X)),
        rtol=1e-6,
    )


# Points that are left out


def test_points_in_no_chunklet_are_not_used():
    X, groups = known_groups()
    known = groups >= 0
    expected = RCA().fit(X[known], supervision=groups[known])
    moved = X.copy()
    moved[~known] = 1e9
    found = RCA().fit(moved, supervision=groups)
    np.testing.assert_array_equal(found.components_, expected.components_)
    np.testing.assert_array_equal(found.mean_, expected.mean_)


@pytest.mark.parametrize("n_components", [None, 2])
def test_chunklets_of_one_point_are_neither_used_nor_counted(n_components):
    X, groups = known_groups()
    alone = np.full((5, 4), 100.0) * np.arange(1, 6)[:, None]
    more = np.concatenate([alone[:2], X, alone[2:]])
    numbers = np.concatenate([[100, 101], groups, [102, 103, 104]])
    np.testing.assert_allclose(
        RCA(n_components).fit(more, supervision=numbers).components_,
        RCA(n_components).fit(X, supervision=groups).components_,
        rtol=1e-8,
        atol=1e-10,
    )
    # Including them would make C smaller and the components larger.
    within, _ = chunklet_covariance(more, numbers)
    diluted = within * (groups >= 0).sum() / ((groups >= 0).sum() + 5)
    if n_components is None:
        found = RCA().fit(more, supervision=numbers).components_
        assert np.abs(found - inverse_root(diluted)).max() > 1e-3


def test_supervision_is_read_rather_than_y():
    X, groups = known_groups()
    expected = RCA().fit(X, supervision=groups).components_
    y = np.random.default_rng(0).integers(3, size=len(X))
    np.testing.assert_array_equal(RCA().fit(X, y, supervision=groups).components_, expected)
    assert not np.allclose(RCA().fit(X, y).components_, expected)


# Optimality


def test_no_other_metric_has_a_larger_log_determinant_under_the_same_bound():
    X, groups = known_groups()
    C, _ = chunklet_covariance(X, groups)
    B = RCA().fit(X, supervision=groups).get_mahalanobis_matrix()
    bound = np.trace(B @ C)
    np.testing.assert_allclose(bound, 4.0)  # Then B = (K / N) C^-1 with K = N.
    np.testing.assert_allclose(B, np.linalg.inv(C) * bound / 4, rtol=1e-8)
    best = np.linalg.slogdet(B)[1]
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(B)
    for k in range(200):
        G = np.eye(4) + (0.01 if k % 2 else 1.0) * rng.normal(size=(4, 4))
        other = root @ G @ G.T @ root.T
        other *= bound / np.trace(other @ C)
        assert np.linalg.slogdet(other)[1] <= best + 1e-12


@pytest.mark.parametrize("q", [1, 2, 3])
def test_fewer_components_maximise_total_over_inner_volume(q):
    X, groups = known_groups()
    C, total = chunklet_covariance(X, groups)
    A = RCA(q).fit(X, supervision=groups).components_

    def value(A):
        return np.linalg.slogdet(A @ total @ A.T)[1] - np.linalg.slogdet(A @ C @ A.T)[1]

    best = value(A)
    np.testing.assert_allclose(best, np.log(linalg.eigvalsh(total, C)[-q:]).sum(), rtol=1e-9)
    rng = np.random.default_rng(0)
    for k in range(200):
        spread = np.abs(A).max() * (0.02 if k % 2 else 10.0)
        assert value(A + spread * rng.normal(size=A.shape)) <= best + 1e-12


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("q", [1, 2])
def test_fewer_components_are_those_of_lda_when_classes_are_chunklets(load, q):
    X, y = load(return_X_y=True)
    rca, lda = RCA(q).fit(X, supervision=y), LDA(q).fit(X, y)
    assert span_distance(rca.components_, lda.components_) < 1e-7
    np.testing.assert_allclose(pdist(rca.transform(X)), pdist(lda.transform(X)), rtol=1e-6)


def test_all_components_asked_for_give_the_distances_of_the_whole():
    X, groups = known_groups()
    np.testing.assert_allclose(
        RCA(4).fit(X, supervision=groups).get_mahalanobis_matrix(),
        RCA().fit(X, supervision=groups).get_mahalanobis_matrix(),
        rtol=1e-8,
    )


# Singular covariances


def wide(n=20, p=30):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    return rng.normal(size=(n, p)) * np.logspace(-2, 2, p) + rng.normal(size=(4, p))[y], y


@pytest.mark.parametrize("n_components", [None, 3])
@pytest.mark.parametrize("shrinkage", ["auto", 0.1])
def test_wide_data_give_finite_components(n_components, shrinkage):
    X, y = wide()
    rca = RCA(n_components, shrinkage=shrinkage).fit(X, y)
    assert rca.components_.shape == (n_components or 19, 30)
    assert np.isfinite(rca.components_).all()
    C, total = chunklet_covariance(X, y)
    if shrinkage == "auto":
        C = 0.999 * C + 0.001 * total
    else:
        C = 0.9 * C + 0.1 * np.trace(C) / 30 * np.eye(30)
    A = rca.components_
    np.testing.assert_allclose(A @ C @ A.T, np.eye(len(A)), atol=1e-7)


def test_embedded_data_give_the_distances_of_the_small_space():
    X, groups = known_groups(n=40)
    rng = np.random.default_rng(1)
    Q, _ = linalg.qr(rng.normal(size=(60, 4)), mode="economic")
    embedded = X @ Q.T + rng.normal(size=60)
    rca = RCA().fit(embedded, supervision=groups)
    assert rca.components_.shape == (4, 60)
    known = groups >= 0
    np.testing.assert_allclose(
        pdist(rca.transform(embedded[known])),
        pdist(RCA().fit(X, supervision=groups).transform(X[known])),
        rtol=1e-7,
    )


def test_constant_features_get_no_weight():
    X, groups = known_groups()
    padded = np.insert(X, [0, 2], [0.1 + 1e7, -3.3], axis=1)
    rca = RCA().fit(padded, supervision=groups)
    assert rca.components_.shape == (4, 6)
    np.testing.assert_allclose(rca.components_[:, [0, 3]], 0, atol=1e-14)
    expected = RCA().fit(X, supervision=groups).get_mahalanobis_matrix()
    np.testing.assert_allclose(
        rca.get_mahalanobis_matrix()[np.ix_([1, 2, 4, 5], [1, 2, 4, 5])], expected, rtol=1e-8
    )


def test_collinear_features_give_finite_components():
    X, groups = known_groups()
    doubled = np.column_stack([X, X[:, 0] + X[:, 1]])
    rca = RCA().fit(doubled, supervision=groups)
    assert rca.components_.shape == (4, 5)
    np.testing.assert_allclose(
        pdist(rca.transform(doubled)), pdist(RCA().fit(X, supervision=groups).transform(X))
    )


def test_a_feature_that_varies_between_chunklets_only_is_finite():
    X, groups = known_groups()
    X = np.column_stack([X, groups])
    rca = RCA().fit(X, supervision=groups)
    assert np.isfinite(rca.components_).all()
    C, total = chunklet_covariance(X, groups)
    A = rca.components_
    np.testing.assert_allclose(A @ (0.999 * C + 0.001 * total) @ A.T, np.eye(5), atol=1e-8)


@pytest.mark.parametrize("g", [0.0, 0.3, 1.0])
def test_shrinkage_is_the_closed_form(g):
    X, groups = known_groups()
    C, _ = chunklet_covariance(X, groups)
    shrunk = (1 - g) * C + g * np.trace(C) / 4 * np.eye(4)
    found = RCA(shrinkage=g).fit(X, supervision=groups).components_
    np.testing.assert_allclose(found, inverse_root(shrunk), rtol=1e-8, atol=1e-10)


# Batches


@pytest.mark.parametrize("size", [7, 30])
@pytest.mark.parametrize("n_components", [None, 2])
def test_a_chunklet_may_continue_from_batch_to_batch(size, n_components):
    X, groups = known_groups()
    rca = RCA(n_components)
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        if (groups[rows] >= 0).any():
            rca.partial_fit(X[rows], supervision=groups[rows])
    whole = RCA(n_components).fit(X, supervision=groups)
    np.testing.assert_allclose(rca.components_, whole.components_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(rca.mean_, whole.mean_)


def test_a_lone_point_counts_as_soon_as_its_chunklet_has_another():
    X, groups = known_groups()
    rca = RCA().partial_fit(X, supervision=groups)
    rca.partial_fit(X[:1] + 50, supervision=[77])
    before = rca.components_.copy()
    np.testing.assert_allclose(before, RCA().fit(X, supervision=groups).components_, atol=1e-10)
    rca.partial_fit(X[1:2] - 50, supervision=[77])
    whole = np.concatenate([X, X[:1] + 50, X[1:2] - 50]), np.concatenate([groups, [77, 77]])
    expected = RCA().fit(whole[0], supervision=whole[1]).components_
    np.testing.assert_allclose(rca.components_, expected, rtol=1e-8, atol=1e-10)
    assert not np.allclose(rca.components_, before)


def test_labels_in_batches_give_what_one_fit_gives():
    X, y = load_wine(return_X_y=True)
    rca = RCA()
    for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), 6):
        rca.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(
        rca.get_mahalanobis_matrix(), RCA().fit(X, y).get_mahalanobis_matrix(), rtol=1e-6
    )


def test_a_batch_after_a_fit_goes_on_and_a_fit_starts_anew():
    X, groups = known_groups()
    rca = RCA().fit(X[:50], supervision=groups[:50])
    rca.partial_fit(X[50:], supervision=groups[50:])
    whole = RCA().fit(X, supervision=groups).components_
    np.testing.assert_allclose(rca.components_, whole, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(rca.fit(X, supervision=groups).components_, whole)


def test_inputs_are_not_modified():
    X, groups = known_groups()
    given = X.copy(), groups.copy()
    X.flags.writeable = groups.flags.writeable = False
    RCA().fit(X, supervision=groups).transform(X)
    np.testing.assert_array_equal(X, given[0])
    np.testing.assert_array_equal(groups, given[1])


# Fitted attributes


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("units", [(1, 1, 1, 1), (1, 3, 10, 30)])
def test_information_is_the_optimum_of_its_program(seed, units):
    cvxpy = pytest.importorskip("cvxpy")
    X, groups = known_groups(seed=seed)
    X = X * units
    C, _ = chunklet_covariance(X, groups)
    # Use units in which C has a unit diagonal, because the solver's tolerance is absolute.
    scale = np.sqrt(np.diag(C))
    B = cvxpy.Variable((4, 4), PSD=True)
    bound = cvxpy.trace(B @ (C / np.outer(scale, scale))) <= 4
    program = cvxpy.Problem(cvxpy.Maximize(cvxpy.log_det(B)), [bound])
    solved(program)
    rca = RCA().fit(X, supervision=groups)
    wanted = program.value / 2 - np.log(scale).sum()
    np.testing.assert_allclose(rca.information_, wanted, atol=1e-5)
    np.testing.assert_allclose(rca.information_, -np.linalg.slogdet(C)[1] / 2, atol=1e-9)


def test_information_of_units_far_apart_keeps_its_digits():
    X, y = load_wine(return_X_y=True)
    units = np.logspace(-6, 6, 13)
    found = RCA().fit(X * units, y).information_ + np.log(units).sum()
    np.testing.assert_allclose(found, RCA().fit(X, y).information_, atol=1e-7)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_components": 2},
        {"n_pca_components": 3},
        {"n_pca_components": 3, "n_components": 2},
        {"shrinkage": 0.2},
        {"shrinkage": 0.2, "n_pca_components": 3},
    ],
)
@pytest.mark.parametrize("data", ["regular", "wide", "collinear", "constant"])
def test_covariance_is_what_was_whitened(parameters, data):
    X, y = wide() if data == "wide" else known_groups()
    if data == "collinear":
        X = np.column_stack([X, X[:, 0] - X[:, 1], y])
    if data == "constant":
        X = np.insert(X, 1, 3.3, axis=1)
    rca = RCA(**parameters).fit(X, supervision=y)
    A, C = rca.components_, rca.covariance_
    np.testing.assert_allclose(A @ C @ A.T, np.eye(len(A)), atol=1e-6)
    V = linalg.qr(A.T, mode="economic")[0]
    wanted = -np.linalg.slogdet(V.T @ C @ V)[1] / 2
    np.testing.assert_allclose(rca.information_, wanted, atol=1e-5)


def test_covariance_and_information_follow_batches():
    X, groups = known_groups()
    rca = RCA().partial_fit(X[:50], supervision=groups[:50])
    rca.partial_fit(X[50:], supervision=groups[50:])
    whole = RCA().fit(X, supervision=groups)
    np.testing.assert_allclose(rca.covariance_, chunklet_covariance(X, groups)[0], rtol=1e-9)
    np.testing.assert_allclose(rca.information_, whole.information_, atol=1e-9)


@pytest.mark.parametrize("n_pca_components", [1, 3, 4])
def test_principal_components_come_before_whitening(n_pca_components):
    X, groups = known_groups()
    C, total = chunklet_covariance(X, groups)
    P = np.linalg.eigh(total)[1][:, ::-1][:, :n_pca_components].T
    wanted = inverse_root(P @ C @ P.T) @ P
    rca = RCA(n_pca_components=n_pca_components).fit(X, supervision=groups)
    np.testing.assert_allclose(rca.get_mahalanobis_matrix(), wanted.T @ wanted, rtol=1e-7)
    with pytest.raises(ValueError, match="n_pca_components=5 is more than the 4 directions"):
        RCA(n_pca_components=5).fit(X, supervision=groups)


# Bugs of other libraries


def test_redundant_features_and_singular_covariances_give_no_nan():
    # metric-learn#202, and NaN on digits because of constant pixels.
    X, y = load_digits(return_X_y=True)
    X = np.column_stack([X, X[:, :5] @ np.arange(10).reshape(5, 2)])
    rca = RCA().fit(X, y)
    assert np.isfinite(rca.components_).all() and np.isfinite(rca.information_)


def test_unknown_labels_and_gaps_in_the_numbers():
    # metric-learn#260 and #275.
    X, groups = known_groups()
    gaps = np.where(groups >= 0, 7 * groups + 3, -1)
    known = groups >= 0
    wanted = RCA().fit(X[known], groups[known]).components_
    np.testing.assert_allclose(RCA().fit(X, supervision=gaps).components_, wanted, rtol=1e-9)


def test_fits_repeat_to_the_last_bit():
    X, groups = known_groups()
    first, second = (RCA().fit(X, supervision=groups).components_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_rows_of_no_chunklet_must_be_finite_too(value, method):
    X, groups = known_groups()
    X[np.flatnonzero(groups < 0)[0], 2] = value
    with pytest.raises(ValueError, match="Input X contains"):
        getattr(RCA(), method)(X, supervision=groups)


# Errors


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: RCA().fit(X6), "RCA requires y to be passed"),
        (lambda: RCA().fit(X6, Y6[:5]), "X has 6 rows and y has 5 labels"),
        (
            lambda: RCA().fit(X6, supervision=[0, 0, 1, 1]),
            r"supervision was made for 4 samples but X has 6 rows. .*restrict\(indices\)",
        ),
        (
            lambda: RCA().fit(X6, supervision=Chunklets([0, 0])),
            "supervision was made for 2 samples but X has 6 rows",
        ),
        (
            lambda: RCA().fit(X6, supervision=[-1] * 6),
            "supervision puts no point into a chunklet",
        ),
        (lambda: RCA().fit(X6, supervision=[-2, 0, 0, 1, 1, 1]), r"row 0: -2 is below -1"),
        (
            lambda: RCA().fit(X6, supervision=Pairs([[0, 1]], [[0, 2]], n_samples=6)),
            r"supervision should be Chunklets or an integer vector; got Pairs\(1 similar",
        ),
        (
            lambda: RCA().fit(X6, supervision=[0, 1, 2, 3, -1, -1]),
            "RCA needs a chunklet or class of y with at least two points",
        ),
        (
            lambda: RCA().fit(X6, np.arange(6)),
            "RCA needs a chunklet or class of y with at least two",
        ),
        (
            lambda: RCA(3).fit(X6, Y6),
            "n_components=3 is more than the 2 directions in which the points in chunklets vary",
        ),
        (lambda: RCA(0).fit(X6, Y6), "RCA: n_components must be None, or an integer of at least 1"),
        (lambda: RCA(shrinkage=-0.1).fit(X6, Y6), "RCA: shrinkage must be a number from 0 to 1"),
        (lambda: RCA().fit(np.ones((6, 2)), Y6), "Every feature of X is constant"),
        (
            lambda: RCA(shrinkage=0.5).fit(
                np.repeat(np.eye(3), 2, axis=0), np.repeat([0, 1, 2], 2)
            ),
            r"no within-class scatter\. Use shrinkage='auto'",
        ),
    ],
)
def test_errors_say_what_would_do(work, message):
    with pytest.raises(ValueError, match=message):
        work()


def test_too_few_points_so_far_is_no_error_until_something_is_asked_for():
    rca = RCA().partial_fit(X6[:2], supervision=[0, 1])
    with pytest.raises(ValueError, match="at least two points"):
        rca.components_  # noqa: B018
    rca.partial_fit(X6[2:], supervision=[0, 1, 1, 0])
    whole = RCA().fit(X6, supervision=[0, 1, 0, 1, 1, 0])
    np.testing.assert_allclose(rca.components_, whole.components_)


def test_a_batch_without_chunklets_is_passed_over():
    rng = np.random.default_rng(0)
    X, chunklets = rng.normal(size=(30, 3)), np.repeat([0, 1, 2], 10)
    rca = RCA().partial_fit(X[:4], supervision=[-1] * 4)
    rca.partial_fit(X, supervision=chunklets)
    np.testing.assert_allclose(rca.components_, RCA().fit(X, supervision=chunklets).components_)
