"""Closed-form variants of LDA, each compared with a direct implementation of the publication."""

import math

import numpy as np
import pytest
from scipy import linalg, stats
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits, load_iris, load_wine, make_circles
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier

from nearfar import (
    APAC,
    DLDA,
    HLDA,
    LDA,
    ClassStatistics,
    FractionalStepLDA,
    KernelDA,
    MinimumMahalanobisClassifier,
    WeightedLDA,
)
from nearfar.app.compare.methods import DEFAULT, learners
from nearfar.discriminant.apac import compute_accuracy_weights
from nearfar.discriminant.fractional_step_lda import remove_dimensions
from nearfar.discriminant.pairwise import compute_distance_weights, solve_weighted_pairs

SOLVERS = ["eigen", "pca", "whiten", "gsvd", "pinv", "null", "qr", "ridge"]
EVERYWHERE = [solver for solver in SOLVERS if solver != "null"]


# ---------------------------------------------------------------------- data and oracles


def make_clusters(n=150, p=6, c=4, seed=0, apart=1.5):
    """Return correlated classes of different sizes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(c, size=n, p=np.arange(1, c + 1) / np.arange(1, c + 1).sum())
    y[: 2 * c] = np.tile(np.arange(c), 2)
    mixing = rng.normal(size=(p, p))
    return (rng.normal(size=(n, p)) + apart * rng.normal(size=(c, p))[y]) @ mixing, y


def wide(n=24, p=60, c=4, seed=0):
    """Return fewer rows than features."""
    return make_clusters(n, p, c, seed)


def with_moments(means, covariances, n, seed=0):
    """Return rows whose classes have exactly these means and covariances (divisor n)."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for k, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        Z = rng.normal(size=(n if np.isscalar(n) else n[k], len(mean)))
        Z -= Z.mean(axis=0)
        Z = Z @ np.linalg.inv(np.linalg.cholesky(Z.T @ Z / len(Z))).T
        rows.append(Z @ np.linalg.cholesky(covariance).T + mean)
        labels += [k] * len(Z)
    return np.vstack(rows), np.array(labels)


def spread(p, seed):
    A = np.random.default_rng(seed).normal(size=(p, p))
    return A @ A.T / p + 0.2 * np.eye(p)


def moments(X, y):
    """Return frequencies, means and covariances (divisor n) of the classes."""
    labels = np.unique(y)
    q = np.array([(y == k).mean() for k in labels])
    m = np.array([X[y == k].mean(axis=0) for k in labels])
    S = np.array([np.cov(X[y == k].T, bias=True).reshape(X.shape[1], -1) for k in labels])
    return q, m, S


def scatters(X, y):
    """Return S_b and S_w divided by n."""
    q, m, S = moments(X, y)
    d = m - q @ m
    return (q[:, None] * d).T @ d, np.tensordot(q, S, axes=1)


def generalized(S1, S2, q):
    values, vectors = linalg.eigh(S1, S2)
    return values[::-1][:q], vectors[:, ::-1][:, :q].T


def span_distance(A, B):
    """Return the distance of the projectors onto the spans of the rows."""
    P, Q = (linalg.qr(rows.T, mode="economic")[0] for rows in (A, B))
    return np.linalg.norm(P @ P.T - Q @ Q.T)


def assert_rows_up_to_sign(found, expected, atol=1e-8):
    assert found.shape == expected.shape
    signs = np.sign(np.sum(found * expected, axis=1))[:, None]
    np.testing.assert_allclose(found * signs, expected, rtol=0, atol=atol * np.abs(expected).max())


# ---------------------------------------------------------------------- solvers of LDA


@pytest.mark.parametrize("solver", ["pca", "whiten", "gsvd", "pinv"])
@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_solvers_agree_with_plain_lda_while_the_within_scatter_is_regular(solver, n_components):
    X, y = make_clusters()
    found = LDA(n_components, solver=solver).fit(X, y)
    plain = LDA(n_components).fit(X, y)
    assert span_distance(found.components_, plain.components_) < 1e-8
    np.testing.assert_allclose(found.eigenvalues_, plain.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(found.objective_, plain.objective_, rtol=1e-9)


@pytest.mark.parametrize("data", [make_clusters(), wide()], ids=["tall", "wide"])
def test_gsvd_is_the_published_algorithm(data):
    X, y = data
    c, n = len(np.unique(y)), len(X)
    q, m, _ = moments(X, y)
    Hb = np.sqrt(n * q)[:, None] * (m - X.mean(axis=0))
    Hw = X - m[y]
    K = np.vstack([Hb, Hw])
    P, R, Qt = np.linalg.svd(K, full_matrices=False)
    t = np.linalg.matrix_rank(K)
    _, _, Vt = np.linalg.svd(P[:c, :t])
    U = (Qt[:t].T / R[:t]) @ Vt[: c - 1].T
    lda = LDA(solver="gsvd").fit(X, y)
    assert span_distance(lda.components_, U.T) < 1e-7
    # LDA uses covariances instead of scatter sums, hence the factor √n.
    total = lda.components_ @ (Hb.T @ Hb + Hw.T @ Hw) @ lda.components_.T
    np.testing.assert_allclose(total, n * np.eye(c - 1), atol=1e-7 * n)


def test_gsvd_knows_infinite_quotients():
    X, y = wide()
    lda = LDA(solver="gsvd").fit(X, y)
    assert np.isinf(lda.eigenvalues_).all() and lda.objective_ == np.inf
    shares = LDA(solver="gsvd", scatter_pair="between_total").fit(X, y)
    np.testing.assert_allclose(shares.eigenvalues_, 1.0)
    assert np.isinf(
        LDA(solver="gsvd", scatter_pair="total_within", criterion="J2").fit(X, y).objective_
    )


@pytest.mark.parametrize("solver", ["pca", "whiten"])
@pytest.mark.parametrize("n_pca_components", [None, 10])
def test_principal_components_come_first(solver, n_pca_components):
    X, y = wide()
    c = 4
    kept = len(X) - c if n_pca_components is None else n_pca_components
    pca = SklearnPCA(kept, svd_solver="full").fit(X)
    Z = pca.transform(X)
    between, within = scatters(Z, y)
    if solver == "pca":
        _, rows = generalized(between, within, c - 1)
    else:
        values, vectors = linalg.eigh(within, between + within)  # The *smallest* come first.
        assert values[0] < values[-1]
        rows = vectors[:, : c - 1].T
    lda = LDA(solver=solver, n_pca_components=n_pca_components).fit(X, y)
    assert_rows_up_to_sign(lda.components_, rows @ pca.components_, atol=1e-7)


def test_pca_then_lda_is_a_pipeline_of_scikit_learn():
    X, y = load_digits(return_X_y=True)
    X, y = X[::3], y[::3]
    Z = SklearnPCA(20, svd_solver="full").fit_transform(X)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(Z, y).transform(Z)
    ours = LDA(solver="pca", n_pca_components=20).fit_transform(X, y)
    for a, b in zip(ours.T, theirs.T, strict=True):
        assert abs(np.corrcoef(a, b)[0, 1]) > 1 - 1e-9


@pytest.mark.parametrize("data", [make_clusters(), wide()], ids=["tall", "wide"])
def test_pinv_has_the_eigenvectors_of_the_pseudo_inverse(data):
    X, y = data
    between, within = scatters(X, y)
    values, vectors = np.linalg.eig(np.linalg.pinv(within, rcond=1e-10, hermitian=True) @ between)
    order = np.argsort(-values.real)[:3]
    lda = LDA(solver="pinv").fit(X, y)
    assert span_distance(lda.components_, vectors[:, order].real.T) < 1e-6
    np.testing.assert_allclose(lda.eigenvalues_, values.real[order], rtol=1e-7)
    np.testing.assert_allclose(lda.components_ @ within @ lda.components_.T, np.eye(3), atol=1e-8)


def test_null_space_lda_maps_each_class_to_a_point():
    X, y = wide()
    between, within = scatters(X, y)
    lda = LDA(solver="null").fit(X, y)
    U = lda.components_
    np.testing.assert_allclose(U @ U.T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(U @ within @ U.T, 0, atol=1e-12 * np.trace(within))
    assert np.linalg.eigvalsh(U @ between @ U.T)[0] > 1e-3
    Z = lda.transform(X)
    for label in range(4):
        assert np.ptp(Z[y == label], axis=0).max() < 1e-8
    # Discriminative common vectors: one row per class, minus its projection onto range(S_w).
    R = linalg.orth(within, rcond=1e-10)
    q, _, _ = moments(X, y)
    common = np.array([X[y == k][0] - R @ (R.T @ X[y == k][0]) for k in range(4)])
    common -= q @ common
    values, vectors = np.linalg.eigh((q[:, None] * common).T @ common)
    assert_rows_up_to_sign(U, vectors[:, ::-1][:, :3].T, atol=1e-7)
    np.testing.assert_allclose(lda.eigenvalues_, values[::-1][:3], rtol=1e-8)


def test_null_space_lda_needs_a_null_space():
    X, y = make_clusters()
    with pytest.raises(
        ValueError, match=r"solver='null' needs.*with fewer rows.*Use solver='eigen'"
    ):
        LDA(solver="null").fit(X, y)
    # A copied feature adds a direction without variance, but the means do not differ there either.
    with pytest.raises(
        ValueError, match="solver='null' needs directions in which the class means differ"
    ):
        LDA(solver="null").fit(np.hstack([X, X[:, :1]]), y)


def test_null_space_of_a_feature_that_tells_the_classes_is_found_in_dense_statistics():
    X, y = load_iris(return_X_y=True)
    X = np.column_stack([X, y])
    lda = LDA(solver="null").fit(X, y)
    assert not lda.statistics_.is_factored
    np.testing.assert_allclose(lda.components_, [[0, 0, 0, 0, 1]], atol=1e-6)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_qr_is_lda_in_the_span_of_the_means(n_components):
    X, y = make_clusters()
    q, m, _ = moments(X, y)
    _, within = scatters(X, y)
    Hb = (np.sqrt(q)[:, None] * (m - X.mean(axis=0))).T
    Q, R, _ = linalg.qr(Hb, mode="economic", pivoting=True)
    Q, R = Q[:, :3], R[:3]
    values, vectors = np.linalg.eig(np.linalg.inv(R @ R.T) @ (Q.T @ within @ Q))
    smallest = np.argsort(values.real)[:n_components]
    U = (Q @ vectors[:, smallest].real).T
    lda = LDA(n_components, solver="qr").fit(X, y)
    assert span_distance(lda.components_, U) < 1e-8
    np.testing.assert_allclose(lda.eigenvalues_, 1 / values.real[smallest], rtol=1e-8)
    # "qr" is an approximation. Where the span of the means is not enough, LDA must be better.
    assert lda.objective_ < LDA(n_components).fit(X, y).objective_


def test_ridge_of_two_classes_is_ridge_regression():
    X, y = make_clusters(c=2)
    for level in (1e-3, 0.5, 20.0):
        theirs = Ridge(alpha=len(X) * level).fit(X, y).coef_
        ours = LDA(solver="ridge", ridge=level).fit(X, y).components_
        assert span_distance(ours, theirs[None]) < 1e-9


@pytest.mark.parametrize("data", [make_clusters(), wide()], ids=["tall", "wide"])
def test_ridge_adds_to_the_within_scatter(data):
    X, y = data
    between, within = scatters(X, y)
    C = within + 0.3 * np.eye(len(within))
    values, rows = generalized(between, C, 3)
    lda = LDA(solver="ridge", ridge=0.3).fit(X, y)
    np.testing.assert_allclose(lda.eigenvalues_, values, rtol=1e-8)
    assert_rows_up_to_sign(lda.components_, rows, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_dense_and_factored_statistics_agree(solver):
    X, y = wide()
    factored, dense = (
        ClassStatistics(pooled=True, storage=storage).partial_fit(X, y)
        for storage in ("auto", "dense")
    )
    assert factored.is_factored and not dense.is_factored
    rows = [LDA(solver=solver).solve(statistics) for statistics in (factored, dense)]
    np.testing.assert_allclose(pdist(X @ rows[0].T), pdist(X @ rows[1].T), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("data", [make_clusters(), wide()], ids=["tall", "wide"])
def test_batches_give_what_one_fit_gives(solver, data):
    X, y = data
    if solver == "null" and X.shape[0] > X.shape[1]:
        pytest.skip("has no null space")
    whole, parts = LDA(solver=solver).fit(X, y), LDA(solver=solver)
    for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), 5):
        parts.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(
        pdist(parts.transform(X)), pdist(whole.transform(X)), rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("solver", EVERYWHERE)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_solvers_take_any_scale(solver, scale):
    X, y = load_wine(return_X_y=True)
    X = X / X.std(axis=0)
    ridge = {"ridge": 0.01 * scale**2} if solver == "ridge" else {}
    plain = LDA(solver=solver, **({"ridge": 0.01} if ridge else {})).fit(X, y)
    scaled = LDA(solver=solver, **ridge).fit(X * scale, y)
    np.testing.assert_allclose(scaled.components_ * scale, plain.components_, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("solver", [*EVERYWHERE, "dlda", "apac", "weighted", "steps", "hlda"])
def test_hard_data_give_finite_maps_or_clear_errors(solver):
    kinds = {
        "dlda": DLDA(),
        "apac": APAC(),
        "weighted": WeightedLDA(),
        "steps": FractionalStepLDA(),
        "hlda": HLDA(),
    }
    rng = np.random.default_rng(0)
    X, y = make_clusters(40, 5, 3)
    hard = {
        "one row a class": (rng.normal(size=(4, 3)), np.arange(4)),
        "equal means": (np.tile(rng.normal(size=(8, 4)), (3, 1)), np.repeat([0, 1, 2], 8)),
        "two equal classes": (np.vstack([X, X[y == 0]]), np.append(y, [9] * int((y == 0).sum()))),
        "classes of equal rows": (np.repeat(np.eye(4)[:3], 3, axis=0), np.repeat([0, 1, 2], 3)),
        "collinear": (np.hstack([X, X @ rng.normal(size=(5, 4))]), y),
        "tiny and huge": (X * np.array([1e-8, 1, 1e8, 1e4, 1e-4]), y),
        "constant": (np.hstack([np.full((len(X), 2), 7.0), X]), y),
        "offset": (X + 1e7, y),
        "huge": (X * 1e160, y),
    }
    for name, (rows, labels) in hard.items():
        learner = kinds.get(solver) or LDA(solver=solver)
        try:
            mapped = learner.fit(rows, labels).transform(rows)
        except ValueError as error:
            text = str(error)
            assert any(
                hint in text
                for hint in ("use", "Use", "means are equal", "rescale", "within-class")
            ), (name, text)
        else:
            assert np.isfinite(mapped).all(), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "svd"}, "solver must be 'eigen' or 'pca'"),
        (
            {"solver": "gsvd", "criterion": "J3"},
            r"solver='gsvd' supports only the criteria J1 and J2, but criterion='J3'",
        ),
        ({"solver": "gsvd", "shrinkage": 0.1}, r"shrinkage=0.1 is not supported by solver='gsvd'"),
        (
            {"solver": "pca", "n_pca_components": 99},
            r"n_pca_components=99 is more than the 6 directions",
        ),
        ({"solver": "ridge", "ridge": 0.0}, "ridge must be a number above 0"),
        ({"solver": "gsvd", "n_components": 4}, r"at most n_classes - 1 = 3 directions"),
    ],
)
def test_bad_options_of_lda_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LDA(**options).fit(*make_clusters())


def test_principal_components_of_single_rows_are_refused():
    X = np.random.default_rng(0).normal(size=(4, 6))
    with pytest.raises(ValueError, match="Every class has only one row, so solver='pca'"):
        LDA(solver="pca").fit(X, np.arange(4))


# ---------------------------------------------------------------------- DLDA


@pytest.mark.parametrize("data", [make_clusters(), wide()], ids=["tall", "wide"])
def test_dlda_with_all_directions_spans_the_differences_of_the_means(data):
    X, y = data
    _, m, _ = moments(X, y)
    assert span_distance(DLDA().fit(X, y).components_, m[1:] - m[0]) < 1e-8


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_dlda_follows_its_published_steps(n_components):
    X, y = make_clusters()
    between, within = scatters(X, y)
    values, Y = np.linalg.eigh(between)
    Z = Y[:, -3:] / np.sqrt(values[-3:])
    E, V = np.linalg.eigh(Z.T @ within @ Z)  # Smallest first.
    U = (Z @ V[:, :n_components] / np.sqrt(E[:n_components])).T
    dlda = DLDA(n_components).fit(X, y)
    assert_rows_up_to_sign(dlda.components_, U, atol=1e-8)
    np.testing.assert_allclose(dlda.eigenvalues_, 1 / E[:n_components], rtol=1e-9)


def test_dlda_rows_lie_in_the_range_of_the_between_scatter():
    X, y = wide()
    _, m, _ = moments(X, y)
    Q = linalg.orth((m - m.mean(axis=0)).T)
    U = DLDA(2).fit(X, y).components_
    np.testing.assert_allclose(U @ Q @ Q.T, U, atol=1e-9 * np.abs(U).max())


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_dlda_and_lda_by_qr_are_one_method(n_components):
    X, y = make_clusters(seed=3)
    ours, other = DLDA(n_components).fit(X, y), LDA(n_components, solver="qr").fit(X, y)
    assert span_distance(ours.components_, other.components_) < 1e-9


def test_dlda_is_not_lda_where_features_are_correlated():
    X, y = make_clusters()
    assert span_distance(DLDA().fit(X, y).components_, LDA().fit(X, y).components_) > 0.1


# ---------------------------------------------------------------------- weighted pairs


def weighted_oracle(X, y, omega, n_components):
    """Compute the criterion with loops and a symmetric root of S_w."""
    q, m, _ = moments(X, y)
    _, within = scatters(X, y)
    root = np.linalg.inv(linalg.sqrtm(within).real)
    J = np.zeros_like(within)
    for i in range(len(q)):
        for j in range(i + 1, len(q)):
            d = root @ (m[i] - m[j])
            J += q[i] * q[j] * omega(np.linalg.norm(d)) * np.outer(d, d)
    values, vectors = np.linalg.eigh(J)
    return values[::-1][:n_components], (root @ vectors[:, ::-1][:, :n_components]).T


def apac_weight(d):
    return math.erf(d / (2 * math.sqrt(2))) / (2 * d * d)


@pytest.mark.parametrize(
    ("learner", "omega"),
    [(APAC, apac_weight), (WeightedLDA, lambda d: d**-8.0)],
    ids=["apac", "weighted"],
)
@pytest.mark.parametrize("n_components", [1, 2])
def test_weighted_pairs_are_the_published_criterion(learner, omega, n_components):
    X, y = make_clusters(n=300, seed=1)
    values, rows = weighted_oracle(X, y, omega, n_components)
    found = learner(n_components).fit(X, y)
    np.testing.assert_allclose(found.eigenvalues_, values, rtol=1e-8)
    assert_rows_up_to_sign(found.components_, rows, atol=1e-7)


def test_constant_weights_give_lda():
    X, y = make_clusters()
    lda = LDA(2).fit(X, y)
    flat = WeightedLDA(2, power=0).fit(X, y)
    np.testing.assert_allclose(flat.components_, lda.components_, atol=1e-9)
    np.testing.assert_allclose(flat.eigenvalues_, lda.eigenvalues_, rtol=1e-9)
    statistics = ClassStatistics(pooled=True).partial_fit(X, y)
    values, _ = solve_weighted_pairs("ones", statistics, 2, "auto", np.ones_like)
    np.testing.assert_allclose(values, lda.eigenvalues_, rtol=1e-9)


@pytest.mark.parametrize("learner", [APAC, WeightedLDA, FractionalStepLDA])
@pytest.mark.parametrize("data", [make_clusters(), wide(), load_wine(return_X_y=True)])
def test_with_all_directions_any_weights_are_lda(learner, data):
    X, y = data
    weighted, plain = learner().fit(X, y), LDA().fit(X, y)
    assert span_distance(weighted.components_, plain.components_) < 1e-8
    np.testing.assert_allclose(
        pdist(weighted.transform(X)), pdist(plain.transform(X)), rtol=1e-7, atol=1e-9
    )


def test_the_weight_of_apac():
    d = np.array([1.0, 2.0])
    np.testing.assert_allclose(compute_accuracy_weights(d), [0.1914625, 0.0853362], atol=5e-8)
    # ω d² is one half minus the Bayes error. With the misprint 1/(2d), it is not.
    d = np.geomspace(1e-3, 30, 40)
    gain = compute_accuracy_weights(d) * d**2
    np.testing.assert_allclose(gain, 0.5 - stats.norm.cdf(-d / 2), rtol=1e-10, atol=1e-15)
    # The series near zero agrees with the formula.
    around = np.array([0.9999e-4, 1.0001e-4])
    assert abs(np.diff(compute_accuracy_weights(around) * around))[0] < 1e-9
    assert np.isfinite(compute_accuracy_weights(np.array([0.0, 1e-300, 1e-200]))).all()


def test_classes_with_equal_means_weigh_no_infinity():
    weights = compute_distance_weights(np.array([[0, 0, 5], [0, 0, 5], [5, 5, 0.0]]), 8)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights[0, 1] / weights[0, 2], 1e16)
    assert not compute_distance_weights(np.zeros((3, 3)), 8).any()


def masked(seed=0):
    """Return two close classes and one far away (as in figure 2.7 of Tao, 2006)."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], 100)
    return rng.normal(size=(300, 2)) + np.array([[0, -2.2], [0, 2.2], [12, 0]])[y], y


def test_weights_undo_class_masking():
    errors = {}
    for learner in (LDA(1), APAC(1), WeightedLDA(1), FractionalStepLDA(1), HLDA(1)):
        rule = MinimumMahalanobisClassifier(learner, rule="gaussian", ddof=0)
        error = np.mean([1 - rule.fit(*masked(s)).score(*masked(s)) for s in range(5)])
        errors[type(learner).__name__] = error
    expected = {"LDA": 0.29, "APAC": 0.26, "WeightedLDA": 0.20, "FractionalStepLDA": 0.035}
    expected["HLDA"] = 0.29
    for name, error in expected.items():
        assert abs(errors[name] - error) < 0.03, (name, errors[name])


# ---------------------------------------------------------------------- fractional steps


def fractional_oracle(X, y, kept, power, n_steps, alpha, original=False):
    """Compute table 2.1 of Tao (2006) from the samples, in all dimensions."""
    _, within = scatters(X, y)
    X = X @ np.linalg.inv(linalg.sqrtm(within).real)
    labels, L = np.unique(y), X.shape[1]
    m0 = np.array([X[y == k].mean(axis=0) for k in labels])
    U = np.eye(L)
    for k in range(L, kept, -1):
        for step in range(n_steps):
            A = np.diag([1.0] * (k - 1) + [alpha**step])
            Y = X @ U @ A
            m = np.array([Y[y == label].mean(axis=0) for label in labels])
            S = np.zeros((k, k))
            for i in range(len(labels)):
                for j in range(len(labels)):
                    if i != j:
                        d = np.linalg.norm((m0 if original else m)[i] - (m0 if original else m)[j])
                        S += d**-power * np.outer(m[i] - m[j], m[i] - m[j])
            U = U @ np.linalg.eigh(S)[1][:, ::-1]
        U = U[:, :-1]
    return (np.linalg.inv(linalg.sqrtm(within).real) @ U).T


@pytest.mark.parametrize("kept", [1, 2])
def test_fractional_steps_follow_the_published_table(kept):
    X, y = make_clusters(n=200, p=5, c=4, seed=2)
    found = FractionalStepLDA(kept, n_steps=12, power=4).fit(X, y)
    expected = fractional_oracle(X, y, kept, 4, 12, 0.5)
    assert span_distance(found.components_, expected) < 1e-6
    _, within = scatters(X, y)
    U = found.components_
    np.testing.assert_allclose(U @ within @ U.T, np.eye(kept), atol=1e-9)


def test_distances_of_the_original_means_would_make_the_steps_pointless():
    X, y = masked()
    printed = fractional_oracle(X, y, 1, 8, 30, 0.5, original=True)
    weighted = WeightedLDA(1).fit(X, y).components_
    ours = FractionalStepLDA(1).fit(X, y).components_
    assert span_distance(printed, weighted) < 0.05  # The weights never change.
    assert span_distance(printed, ours) > 0.1


def test_fractional_steps_of_means_that_coincide():
    means = np.array([[0.0, 0], [0, 0], [3, 0], [0, 4]])
    U = remove_dimensions(means, 1, 8, 30, 0.5)
    assert np.isfinite(U).all()
    np.testing.assert_allclose(U.T @ U, [[1]])


# ---------------------------------------------------------------------- HLDA


def hlda_oracle(X, y, n_components):
    q, m, S = moments(X, y)
    root = np.linalg.inv(linalg.sqrtm(np.tensordot(q, S, axes=1)).real)
    J = np.zeros_like(S[0])
    for i in range(len(q)):
        for j in range(i + 1, len(q)):
            a, b = q[i] / (q[i] + q[j]), q[j] / (q[i] + q[j])
            A = root @ (a * S[i] + b * S[j]) @ root
            half = np.linalg.inv(linalg.sqrtm(A).real)
            d = half @ root @ (m[i] - m[j])
            logs = linalg.logm(A) - a * linalg.logm(root @ S[i] @ root)
            logs = (logs - b * linalg.logm(root @ S[j] @ root)).real
            J += q[i] * q[j] * (np.outer(d, d) + logs / (a * b))
    values, vectors = np.linalg.eigh((J + J.T) / 2)
    return values[::-1][:n_components], (root @ vectors[:, ::-1][:, :n_components]).T


@pytest.mark.parametrize("n_components", [1, 3, 5])  # More than n_classes - 1 is allowed.
def test_hlda_is_the_chernoff_criterion(n_components):
    covariances = [spread(5, seed) for seed in range(3)]
    X, y = with_moments(np.random.default_rng(0).normal(size=(3, 5)), covariances, [60, 80, 30])
    values, rows = hlda_oracle(X, y, n_components)
    hlda = HLDA(n_components).fit(X, y)
    np.testing.assert_allclose(hlda.eigenvalues_, values, rtol=1e-8)
    assert_rows_up_to_sign(hlda.components_, rows, atol=1e-6)


def test_hlda_of_equal_covariances_is_lda():
    means = np.random.default_rng(0).normal(size=(4, 6))
    X, y = with_moments(means, [spread(6, 1)] * 4, [30, 40, 50, 60])
    assert span_distance(HLDA().fit(X, y).components_, LDA().fit(X, y).components_) < 1e-7


def test_hlda_sees_classes_of_one_mean():
    X, y = with_moments(np.zeros((2, 3)), [np.eye(3), np.diag([1, 9.0, 1])], 50)
    row = HLDA(1).fit(X, y).components_[0]
    np.testing.assert_allclose(np.abs(row) / np.linalg.norm(row), [0, 1, 0], atol=1e-7)


# ---------------------------------------------------------------------- KernelDA


def kernel_oracle(K, y, ridge):
    """Compute equations 2.27 to 2.32 with a centered kernel: features of the training rows."""
    n = len(K)
    C = np.eye(n) - 1 / n
    K = C @ K @ C
    W = (y[:, None] == y[None, :]) / np.bincount(y)[y]
    M = np.full((n, n), 1 / n)
    Kb, Kt = K @ (W - M) @ (W - M).T @ K, K @ (np.eye(n) - M) @ K
    nonzero = np.linalg.eigvalsh(K)
    rank = (nonzero > 1e-10 * nonzero.max()).sum()
    mu = ridge * np.trace(Kt) / rank
    values, vectors = linalg.eigh(Kb, Kt + mu * np.eye(n))
    kept = len(np.unique(y)) - 1
    return values[::-1][:kept], K @ vectors[:, ::-1][:, :kept], Kb, Kt


@pytest.mark.parametrize("options", [{}, {"kernel": "poly", "degree": 2, "coef0": 0.0}])
@pytest.mark.parametrize("ridge", [1e-6, 1e-2])
def test_kernel_da_is_the_published_quotient(options, ridge):
    X, y = make_clusters(n=40, p=3, c=3, seed=4)
    X /= X.std()
    da = KernelDA(gamma=0.7, ridge=ridge, **options).fit(X, y)
    difference = X[:, None] - X[None, :]
    K = np.exp(-0.7 * (difference**2).sum(axis=2)) if not options else (0.7 * X @ X.T) ** 2
    values, features, _, _ = kernel_oracle(K, y, ridge)
    np.testing.assert_allclose(da.eigenvalues_, values, rtol=1e-5)
    for ours, theirs in zip(da.transform(X).T, features.T, strict=True):
        assert abs(np.corrcoef(ours, theirs)[0, 1]) > 1 - 1e-6


def test_kernel_matrices_are_scatters_in_feature_space():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.repeat([0, 1, 2], 10)
    i, j = np.triu_indices(3)
    features = X[:, i] * X[:, j] * np.where(i == j, 1, np.sqrt(2))
    _, _, Kb, Kt = kernel_oracle((X @ X.T) ** 2, y, 1e-6)
    between, within = scatters(features, y)
    centered = features - features.mean(axis=0)
    for ours, scatter in ((Kb, between), (Kt, between + within)):
        np.testing.assert_allclose(ours / 30, centered @ scatter @ centered.T, atol=1e-9)
    # With a tiny ridge, the method is LDA on these features.
    da = KernelDA(kernel="poly", degree=2, gamma=1.0, coef0=0.0, ridge=1e-14).fit(X, y)
    lda = LDA().fit(features, y)
    np.testing.assert_allclose(pdist(da.transform(X)), pdist(lda.transform(features)), rtol=1e-5)


def test_linear_kernel_is_lda():
    X, y = make_clusters()
    da = KernelDA(kernel="linear", ridge=1e-14).fit(X, y)
    lda = LDA().fit(X, y)
    np.testing.assert_allclose(pdist(da.transform(X)), pdist(lda.transform(X)), rtol=1e-6)
    fisher = lda.eigenvalues_
    np.testing.assert_allclose(da.eigenvalues_, fisher / (1 + fisher), rtol=1e-8)


def test_kernel_da_parts_circles_and_takes_given_kernels():
    X, y = make_circles(300, noise=0.08, factor=0.5, random_state=0)
    da = KernelDA(gamma=2.0).fit(X[::2], y[::2])
    knn = KNeighborsClassifier(3).fit(da.transform(X[::2]), y[::2])
    assert knn.score(da.transform(X[1::2]), y[1::2]) > 0.97
    K = np.exp(-2.0 * ((X[:, None] - X[None, ::2]) ** 2).sum(axis=2))
    given = KernelDA(kernel="precomputed").fit(K[::2], y[::2])
    np.testing.assert_allclose(
        pdist(given.transform(K[1::2])), pdist(da.transform(X[1::2])), rtol=1e-5, atol=1e-8
    )


def test_landmarks_stand_for_all_rows():
    X, y = make_circles(600, noise=0.08, factor=0.5, random_state=0)
    few = KernelDA(n_landmarks=60).fit(X, y)
    assert few.coefficients_.shape == (1, 60)
    z = few.transform(X)[:, 0]
    assert max(np.mean((z > np.median(z)) == y), np.mean((z < np.median(z)) == y)) > 0.97
    # Scatters use all rows. With all rows as landmarks, the result is that without landmarks.
    all_of_them = KernelDA(n_landmarks=600).fit(X, y)
    np.testing.assert_array_equal(all_of_them.transform(X), KernelDA().fit(X, y).transform(X))
    again = KernelDA(n_landmarks=60, random_state=1).fit(X, y)
    assert not np.array_equal(again._rows, few._rows)


# ---------------------------------------------------------------------- all of them


CLOSED = [LDA, DLDA, APAC, WeightedLDA, FractionalStepLDA]


@pytest.mark.parametrize("learner", CLOSED)
def test_more_directions_than_class_differences_are_refused(learner):
    with pytest.raises(ValueError, match=r"n_components=4 is too large.*n_classes - 1 = 3"):
        learner(4).fit(*make_clusters())


@pytest.mark.parametrize("learner", [*CLOSED, HLDA])
@pytest.mark.parametrize("data", [make_clusters(), wide()], ids=["tall", "wide"])
def test_dense_statistics_give_what_factored_ones_give(learner, data):
    X, y = data
    pooled = learner.pooled_statistics
    rows = [
        learner().solve(ClassStatistics(pooled=pooled, storage=s).partial_fit(X, y))
        for s in ("auto", "dense")
    ]
    np.testing.assert_allclose(pdist(X @ rows[0].T), pdist(X @ rows[1].T), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("learner", [*CLOSED, HLDA])
def test_renamed_and_reordered_labels_change_nothing(learner):
    X, y = make_clusters()
    names = np.array(["d", "a", "c", "b"])
    plain, renamed = learner(2).fit(X, y), learner(2).fit(X, names[y])
    np.testing.assert_allclose(plain.components_, renamed.components_, atol=1e-8)


@pytest.mark.parametrize("learner", [LDA, APAC, WeightedLDA, FractionalStepLDA, HLDA])
def test_units_of_the_features_change_nothing(learner):
    X, y = make_clusters()
    units = np.array([1e-3, 1, 20, 1e4, 0.5, 3])
    plain, other = learner(2).fit(X, y), learner(2).fit(X * units, y)
    assert_rows_up_to_sign(other.components_ * units, plain.components_, atol=1e-7)


def test_the_family_is_compared_by_its_name():
    found = {method.label for method in learners("discriminant")}
    assert {cls.__name__ for cls in [*CLOSED, HLDA, KernelDA]} <= found
    assert "LMNN" not in found
    both = [method.name for method in learners("Mahalanobis, apac")]
    assert "apac" in both and "lmnn" in both
    assert len(DEFAULT) == 3
