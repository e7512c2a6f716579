"""PCA compared with scikit-learn, and the properties that define it."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA as SklearnPCA

from nearfar import PCA, ClassStatistics


def correlated(n, p, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + offset


def assert_same_up_to_sign(found, expected, atol):
    assert found.shape == expected.shape
    signs = np.sign(np.sum(found * expected, axis=1))
    np.testing.assert_allclose(found * signs[:, None], expected, rtol=0, atol=atol)


def reconstruction_error(X, mean, rows):
    """Return the squared distance of X to the plane through the mean spanned by the rows."""
    Q, _ = linalg.qr(rows.T, mode="economic")
    centered = X - mean
    return float(np.sum((centered - centered @ Q @ Q.T) ** 2))


TALL = {
    "iris": load_iris().data,
    "wine": load_wine().data,
    "random": correlated(200, 12),
    "offset": correlated(200, 6, offset=1e6),
}
WIDE = {
    "random": correlated(15, 40),
    "digits": load_digits().data[:30],
    "offset": correlated(12, 30, offset=1e5),
}


@pytest.mark.parametrize("name", TALL)
@pytest.mark.parametrize("n_components", [1, 3, None])
def test_tall_data_give_scikit_learns_components(name, n_components):
    X = TALL[name]
    ours = PCA(n_components).fit(X)
    # The default of scikit-learn for tall data subtracts raw moments, which loses ten digits here.
    theirs = SklearnPCA(n_components, svd_solver="full").fit(X)
    assert_same_up_to_sign(ours.components_, theirs.components_, atol=1e-7)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(
        ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-8
    )
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("n_components", [1, 5, None])
def test_wide_data_give_scikit_learns_components(name, n_components):
    X = WIDE[name]
    ours = PCA(n_components).fit(X)
    assert ours.statistics_.is_factored
    # n points span n - 1 directions. scikit-learn adds one without variance.
    theirs = SklearnPCA(n_components or len(X) - 1, svd_solver="full").fit(X)
    assert_same_up_to_sign(ours.components_, theirs.components_, atol=1e-6)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(
        ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-8
    )


def test_features_of_very_different_units_are_all_kept():
    X = load_breast_cancer().data  # The variances range from 7e-6 to 3e5.
    ours, theirs = PCA().fit(X), SklearnPCA(svd_solver="full").fit(X)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-6)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.999, 1.0, np.float32(0.9)])
@pytest.mark.parametrize("name", ["iris", "wine", "random"])
def test_a_share_keeps_as_many_directions_as_it_needs(share, name):
    X = TALL[name]
    variances = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    shares = np.cumsum(variances) / variances.sum()
    needed = 1 + int(np.sum(shares < share - 1e-12))
    pca = PCA(share).fit(X)
    assert len(pca.components_) == needed
    if share < 1:
        assert needed == SklearnPCA(float(share)).fit(X).n_components_


def test_one_as_an_integer_is_one_direction_and_as_a_float_all():
    assert PCA(1).fit(TALL["iris"]).components_.shape == (1, 4)
    assert PCA(1.0).fit(TALL["iris"]).components_.shape == (4, 4)


@pytest.mark.parametrize("X", [TALL["wine"], WIDE["random"]], ids=["tall", "wide"])
def test_whitened_coordinates_have_the_identity_as_covariance(X):
    ours = PCA(whiten=True).fit(X)
    Z = ours.transform(X)
    np.testing.assert_allclose(np.cov(Z.T), np.eye(Z.shape[1]), atol=1e-8)
    theirs = SklearnPCA(Z.shape[1], whiten=True, svd_solver="full").fit_transform(X)
    assert_same_up_to_sign(Z.T, theirs.T, atol=1e-7)


def test_whitened_distances_are_mahalanobis_distances():
    X = TALL["wine"]
    pairs = X[np.random.default_rng(0).integers(len(X), size=(20, 2))]
    difference = pairs[:, 0] - pairs[:, 1]
    precision = np.linalg.inv(np.cov(X.T))
    expected = np.sqrt(np.einsum("ni,ij,nj->n", difference, precision, difference))
    np.testing.assert_allclose(PCA(whiten=True).fit(X).pair_distance(pairs), expected, rtol=1e-8)


@pytest.mark.parametrize("X", [TALL["random"], WIDE["random"]], ids=["tall", "wide"])
def test_no_other_directions_have_more_variance_or_a_smaller_error(X):
    rng = np.random.default_rng(0)
    pca = PCA(3).fit(X)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-12)
    variance = pca.transform(X).var(axis=0).sum()
    smallest = reconstruction_error(X, X.mean(axis=0), pca.components_)
    for k in range(200):
        # Half of them are near the optimum, where an error would show first.
        spread = 0.03 if k % 2 else 10.0
        other = pca.components_ + spread * rng.normal(size=pca.components_.shape)
        Q, _ = linalg.qr(other.T, mode="economic")
        assert (X @ Q).var(axis=0).sum() <= variance
        assert reconstruction_error(X, X.mean(axis=0), Q.T) >= smallest


def test_the_error_that_remains_is_the_variance_left_out():
    X = TALL["wine"]
    pca = PCA(4).fit(X)
    Z = pca.transform(X)
    rebuilt = Z @ pca.components_ + pca.mean_
    left_out = np.linalg.eigvalsh(np.cov(X.T))[:-4].sum() * (len(X) - 1)
    np.testing.assert_allclose(np.sum((X - rebuilt) ** 2), left_out, rtol=1e-8)


def test_coordinates_are_uncorrelated_and_solutions_nested():
    X = TALL["random"]
    covariance = np.cov(PCA().fit_transform(X).T)
    np.testing.assert_allclose(covariance - np.diag(np.diag(covariance)), 0, atol=1e-10)
    few, many = PCA(3).fit(X).components_, PCA(6).fit(X).components_
    np.testing.assert_allclose(many[:3], few, atol=1e-10)


def test_distances_are_kept_when_every_direction_is():
    X = TALL["random"]
    pairs = X[np.random.default_rng(0).integers(len(X), size=(20, 2))]
    expected = np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
    np.testing.assert_allclose(PCA().fit(X).pair_distance(pairs), expected)


@pytest.mark.parametrize("shape", [(50, 6), (6, 50)], ids=["tall", "wide"])
@pytest.mark.parametrize("whiten", [False, True])
def test_constant_columns_play_no_part(shape, whiten):
    X = correlated(*shape)
    padded = np.insert(X, [0, 2, 4], [0.1 + 1e7, 0.0, -3.3], axis=1)
    ours, plain = PCA(whiten=whiten).fit(padded), PCA(whiten=whiten).fit(X)
    constant = np.ptp(padded, axis=0) == 0
    assert not ours.components_[:, constant].any()
    np.testing.assert_allclose(ours.components_[:, ~constant], plain.components_, atol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_, plain.explained_variance_, rtol=1e-9)


def test_directions_without_variance_are_left_out():
    X = correlated(60, 4)
    X = np.column_stack([X, X[:, 0] - 2 * X[:, 1]])
    assert PCA().fit(X).components_.shape == (4, 5)
    np.testing.assert_allclose(PCA().fit(X).explained_variance_ratio_.sum(), 1.0)


@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize("X", [TALL["wine"], WIDE["digits"]], ids=["tall", "wide"])
def test_batches_give_what_one_fit_gives(X, size):
    whole, batched = PCA(3).fit(X), PCA(3)
    for start in range(0, len(X), size):
        batched.partial_fit(X[start : start + size])
    np.testing.assert_allclose(batched.components_, whole.components_, atol=1e-9)
    np.testing.assert_allclose(batched.explained_variance_, whole.explained_variance_)
    np.testing.assert_allclose(batched.mean_, whole.mean_)


def test_a_batch_after_a_fit_goes_on():
    X = TALL["wine"]
    pca = PCA(2).fit(X[:100])
    before = pca.components_.copy()
    pca.partial_fit(X[100:])
    assert not np.allclose(pca.components_, before)
    np.testing.assert_allclose(pca.components_, PCA(2).fit(X).components_, atol=1e-9)


def test_labels_are_ignored():
    X = TALL["iris"]
    y = load_iris().target
    np.testing.assert_array_equal(PCA().fit(X, y).components_, PCA().fit(X).components_)


def test_an_integer_weight_equals_so_many_copies():
    X = TALL["iris"]
    w = np.random.default_rng(0).integers(0, 4, size=len(X))
    weighted, repeated = PCA().fit(X, sample_weight=w), SklearnPCA().fit(np.repeat(X, w, axis=0))
    assert_same_up_to_sign(weighted.components_, repeated.components_, atol=1e-10)
    np.testing.assert_allclose(weighted.explained_variance_, repeated.explained_variance_)


@pytest.mark.parametrize("total", [1e-6, 1.0, 1.5])
def test_weights_that_sum_to_little_give_the_variance_by_weight(total):
    X = TALL["iris"]
    pca = PCA().fit(X, sample_weight=np.full(len(X), total / len(X)))
    expected = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    np.testing.assert_allclose(pca.explained_variance_, expected, rtol=1e-9)


def test_signs_do_not_depend_on_the_order_of_the_rows():
    X = TALL["wine"]
    np.testing.assert_allclose(
        PCA().fit(X).components_, PCA().fit(X[::-1].copy()).components_, atol=1e-8
    )


@pytest.mark.parametrize(
    ("learner", "X", "message"),
    [
        (PCA(5), TALL["iris"], r"n_components=5 is more than the 4 directions .* n_components=4"),
        (PCA(15), WIDE["random"], r"n_components=15 is more than the 14 directions"),
        (PCA(0), TALL["iris"], "PCA: n_components must be"),
        (PCA(1.5), TALL["iris"], "PCA: n_components must be"),
        (PCA(0.0), TALL["iris"], "PCA: n_components must be"),
        (PCA(True), TALL["iris"], "PCA: n_components must be"),
        (PCA(whiten="yes"), TALL["iris"], "PCA: whiten must be True or False"),
        (PCA(), np.ones((5, 3)), "Every feature of X is constant"),
        (PCA(), TALL["iris"][:1], "minimum of 2 is required by PCA"),
        (PCA(), 1e200 * TALL["iris"], r"X: .* overflow. Rescale X"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_errors_say_what_would_do(learner, X, message):
    with pytest.raises(ValueError, match=message):
        learner.fit(X)


def test_batches_of_another_width_are_refused():
    pca = PCA().partial_fit(TALL["iris"])
    with pytest.raises(ValueError, match="X has 3 features, but PCA is expecting 4"):
        pca.partial_fit(TALL["iris"][:, :3])
    np.testing.assert_array_equal(pca.components_, PCA().fit(TALL["iris"]).components_)


@pytest.mark.parametrize("shape", [(300, 5), (12, 20)])
def test_float32_keeps_features_in_small_units(shape):
    units = np.resize([2e4, 10.0, 1.0, 1e-2, 1e-2], shape[1])
    X = (np.random.default_rng(0).normal(size=shape) * units).astype(np.float32)
    found = PCA(whiten=True).fit(X)
    expected = PCA(whiten=True).fit(X.astype(np.float64))
    assert len(found.components_) == min(shape[0] - 1, shape[1])
    np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-4)
    # Rows and statistics that were accumulated in float32 give the same.
    statistics = ClassStatistics(pooled=True).partial_fit(X)
    assert len(PCA().solve(statistics)) == len(found.components_)


def test_float32_drops_copies_of_features_in_any_units():
    X = np.random.default_rng(0).normal(size=(300, 3)) * [2e4, 1.0, 1e-2]
    X = np.hstack([X, 3 * X]).astype(np.float32)
    expected = PCA().fit(X.astype(np.float64)).components_
    assert expected.shape == (3, 6)
    np.testing.assert_allclose(PCA().fit(X).components_, expected, atol=1e-5)
    found = PCA().solve(ClassStatistics(pooled=True).partial_fit(X))
    np.testing.assert_allclose(found, expected, atol=1e-3)
