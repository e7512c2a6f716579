"""HDA, ODA and MODA, which have no closed solution, compared with their published objectives."""

import numpy as np
import pytest
from scipy import linalg, optimize
from scipy.spatial.distance import pdist
from sklearn.base import clone

from nearfar import (
    HDA,
    HLDA,
    LDA,
    MODA,
    ODA,
    ClassStatistics,
    MinimumMahalanobisClassifier,
)
from nearfar.discriminant.hda import make_volume_objective
from nearfar.solvers.gaussian_divergences import GaussianFamily
from nearfar.solvers.normalized_cut import cluster_by_normalized_cut

# ---------------------------------------------------------------------- data and oracles


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


def unequal(p=5, c=3, seed=0, sizes=(60, 80, 40)):
    """Return classes of different shapes and sizes."""
    means = np.random.default_rng(seed).normal(size=(c, p))
    return with_moments(means, [spread(p, 10 * seed + k) for k in range(c)], sizes, seed)


def equal(p=5, c=4, sizes=(30, 40, 50, 60)):
    """Return classes with the same covariance."""
    means = np.random.default_rng(0).normal(size=(c, p))
    return with_moments(means, [spread(p, 1)] * c, sizes)


def moments(X, y):
    labels = np.unique(y)
    q = np.array([(y == k).mean() for k in labels])
    m = np.array([X[y == k].mean(axis=0) for k in labels])
    S = np.array([np.cov(X[y == k].T, bias=True).reshape(X.shape[1], -1) for k in labels])
    return q, m, S


def scatters(X, y):
    q, m, S = moments(X, y)
    d = m - q @ m
    return (q[:, None] * d).T @ d, np.tensordot(q, S, axes=1)


def log_det(M):
    return np.linalg.slogdet(M)[1]


def span_distance(A, B):
    """Return the distance of the projectors onto the spans of the rows."""
    P, Q = (linalg.qr(rows.T, mode="economic")[0] for rows in (A, B))
    return np.linalg.norm(P @ P.T - Q @ Q.T)


def best_by_scipy(value, shape, n_starts=4):
    """Return the largest value of several searches with numeric gradients."""
    rng = np.random.default_rng(0)
    runs = [
        optimize.minimize(lambda u: -value(u.reshape(shape)), rng.normal(size=np.prod(shape)))
        for _ in range(n_starts)
    ]
    best = min(runs, key=lambda run: run.fun)
    return -best.fun, best.x.reshape(shape)


def gaussian_error(learner, X, y):
    """Return the training error of the Gaussian score, as in the demonstrations of Tao (2006)."""
    rule = MinimumMahalanobisClassifier(learner, rule="gaussian", ddof=0)
    return 1 - rule.fit(X, y).score(X, y)


# ---------------------------------------------------------------------- HDA


def jelinek(U, X, y):
    """Return J_J / n for rows U, as printed in Tao (2006)."""
    q, _, S = moments(X, y)
    between, _ = scatters(X, y)
    return log_det(U @ between @ U.T) - sum(
        share * log_det(U @ C @ U.T) for share, C in zip(q, S, strict=True)
    )


def kumar_andreou(U, kept, X, y):
    """Return the objective J_K of a square matrix with columns U, as printed, and its gradient."""
    q, _, S = moments(X, y)
    n, total = len(X), np.cov(X.T, bias=True)
    a, b = U[:, :kept], U[:, kept:]
    value = n * log_det(b.T @ total @ b) - 2 * n * np.linalg.slogdet(U)[1]
    gradient = -2 * n * np.linalg.inv(U).T
    gradient[:, kept:] += 2 * n * total @ b @ np.linalg.inv(b.T @ total @ b)
    for share, C in zip(q, S, strict=True):
        value += n * share * log_det(a.T @ C @ a)
        gradient[:, :kept] += 2 * n * share * C @ a @ np.linalg.inv(a.T @ C @ a)
    return value, gradient


@pytest.mark.parametrize("n_components", [1, 2])
def test_hda_maximises_the_volume_of_the_means(n_components):
    X, y = unequal()
    hda = HDA(n_components).fit(X, y)
    np.testing.assert_allclose(hda.objective_, jelinek(hda.components_, X, y), rtol=1e-9)
    best, U = best_by_scipy(lambda U: jelinek(U, X, y), (n_components, 5))
    np.testing.assert_allclose(hda.objective_, best, rtol=1e-6)
    assert span_distance(hda.components_, U) < 1e-3
    assert hda.objectives_per_init_.max() <= hda.objective_ + 1e-9


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("n_components", [1, 2, 4])  # More than n_classes - 1 is allowed.
def test_hda_by_likelihood_solves_the_square_problem(n_components):
    X, y = unequal()
    n, total = len(X), np.cov(X.T, bias=True)
    hda = HDA(n_components, criterion="kumar_andreou").fit(X, y)
    rng = np.random.default_rng(0)
    start = rng.normal(size=25)

    def objective(u):
        value, gradient = kumar_andreou(u.reshape(5, 5), n_components, X, y)
        return value, gradient.ravel()

    assert optimize.check_grad(lambda u: objective(u)[0], lambda u: objective(u)[1], start) < 1e-2
    runs = [
        optimize.minimize(objective, rng.normal(size=25), jac=True, method="BFGS") for _ in range(6)
    ]
    best = min(runs, key=lambda run: run.fun)
    np.testing.assert_allclose(n * (log_det(total) - hda.objective_), best.fun, rtol=1e-7)
    U = best.x.reshape(5, 5)[:, :n_components]
    assert span_distance(hda.components_, U.T) < 1e-3
    # The optimum is a minimum. Maximizing gives another subspace.
    square = np.linalg.qr(np.hstack([hda.components_.T, rng.normal(size=(5, 5 - n_components))]))[0]
    assert kumar_andreou(square, n_components, X, y)[0] >= best.fun - 1e-6


@pytest.mark.parametrize("criterion", ["jelinek", "kumar_andreou"])
def test_hda_of_equal_covariances_is_lda(criterion):
    X, y = equal()
    hda, lda = HDA(2, criterion=criterion).fit(X, y), LDA(2).fit(X, y)
    assert span_distance(hda.components_, lda.components_) < 1e-5
    np.testing.assert_allclose(np.abs(hda.components_), np.abs(lda.components_), atol=1e-4)
    expected = np.log(lda.eigenvalues_ if criterion == "jelinek" else 1 + lda.eigenvalues_).sum()
    np.testing.assert_allclose(hda.objective_, expected, rtol=1e-9)


@pytest.mark.parametrize("with_within", [False, True])
def test_gradient_of_the_volume_ratio(with_within):
    X, y = unequal(p=4)
    q, m, S = moments(X, y)
    objective = make_volume_objective(GaussianFamily(m, S), q, includes_within=with_within)
    U = np.random.default_rng(0).normal(size=(4, 2))
    _, gradient = objective(U)
    numeric = optimize.approx_fprime(U.ravel(), lambda u: objective(u.reshape(4, 2))[0], 1e-7)
    np.testing.assert_allclose(gradient.ravel(), numeric, atol=1e-5)
    np.testing.assert_allclose(U.T @ gradient, 0, atol=1e-10)  # The value does not change along U.
    B = np.array([[2.0, 1.0], [-1.0, 3.0]])
    np.testing.assert_allclose(objective(U @ B)[0], objective(U)[0], rtol=1e-10)


def test_hda_knows_its_limits():
    X, y = unequal()
    with pytest.raises(ValueError, match=r"n_components=3 is too large: HDA has at most"):
        HDA(3).fit(X, y)
    assert HDA(3, criterion="kumar_andreou").fit(X, y).components_.shape == (3, 5)
    # With means on a line, there is one direction for any number of classes.
    line = np.outer([0, 1, 2.0], [1, 2, 3, 4, 5])
    X, y = with_moments(line, [spread(5, k) for k in range(3)], 40)
    assert HDA().fit(X, y).components_.shape == (1, 5)
    X, y = with_moments(np.zeros((2, 3)), [np.eye(3), np.diag([1, 9.0, 1])], 50)
    with pytest.raises(ValueError, match=r"class means are equal, .* Use criterion='kumar"):
        HDA().fit(X, y)


# ---------------------------------------------------------------------- ODA


def decell_mayekar(U, X, y, weights=None):
    """Return the trace form for rows U, as printed, without computing divergences."""
    q, m, S = moments(X, y)
    total = 0.0
    for i in range(len(q)):
        for j in range(len(q)):
            if i != j:
                A = S[j] + np.outer(m[i] - m[j], m[i] - m[j])
                term = np.trace(np.linalg.solve(U @ S[i] @ U.T, U @ A @ U.T)) - len(U)
                total += term * (1 if weights is None else weights[i] * weights[j])
    return total


@pytest.mark.parametrize(
    ("n_components", "priors"),
    [
        (1, "uniform"),
        (2, "empirical"),
        (4, "uniform"),
        pytest.param(1, "empirical", marks=pytest.mark.slow),
        pytest.param(2, "uniform", marks=pytest.mark.slow),
        pytest.param(4, "empirical", marks=pytest.mark.slow),
    ],
)
def test_oda_maximises_the_trace_form(priors, n_components):
    X, y = unequal()
    weights = moments(X, y)[0] if priors == "empirical" else None
    oda = ODA(n_components, priors=priors).fit(X, y)
    reached = decell_mayekar(oda.components_, X, y, weights)
    np.testing.assert_allclose(oda.objective_, reached, rtol=1e-8)
    best, _ = best_by_scipy(
        lambda U: decell_mayekar(U, X, y, weights), (n_components, 5), n_starts=3
    )
    np.testing.assert_allclose(oda.objective_, best, rtol=1e-6)
    assert oda.divergences_.shape == (3, 3)


def test_average_divergence_of_equal_covariances_is_lda():
    X, y = equal()
    oda, lda = ODA(2, priors="empirical").fit(X, y), LDA(2).fit(X, y)
    assert span_distance(oda.components_, lda.components_) < 1e-5
    # Σ q_i q_j KL is the trace criterion J1. J is twice that.
    np.testing.assert_allclose(oda.objective_, 2 * lda.eigenvalues_.sum(), rtol=1e-9)


def test_uniform_sum_of_equal_covariances_is_lda_with_equal_priors():
    X, y = equal()
    _, m, _ = moments(X, y)
    _, within = scatters(X, y)
    d = m - m.mean(axis=0)
    _, vectors = linalg.eigh(d.T @ d, within)
    oda = ODA(2).fit(X, y)
    assert span_distance(oda.components_, vectors[:, ::-1][:, :2].T) < 1e-4
    assert span_distance(oda.components_, LDA(2).fit(X, y).components_) > 1e-3


def test_two_classes_of_one_covariance_give_the_fisher_direction():
    C = spread(4, 3)
    u = np.array([1.0, -2, 0.5, 1])
    X, y = with_moments([np.zeros(4), u], [C, C], 30)
    oda = ODA(1).fit(X, y)
    assert span_distance(oda.components_, np.linalg.solve(C, u)[None]) < 1e-5
    np.testing.assert_allclose(oda.objective_, 2 * u @ np.linalg.solve(C, u), rtol=1e-9)


def test_divergences_of_two_known_gaussians():
    covariances = [np.array([[2, 0.5], [0.5, 1]]), np.array([[1, -0.3], [-0.3, 3]])]
    X, y = with_moments([np.zeros(2), np.array([1.0, -1])], covariances, 50)
    oda = ODA(2).fit(X, y)
    expected = [[0, 1.092756619133], [1.974302781947, 0]]
    np.testing.assert_allclose(oda.divergences_, expected, atol=1e-9)
    np.testing.assert_allclose(oda.objective_, 2 * 3.067059401080, rtol=1e-9)
    # The unweighted form for one direction, as in the tables of Tao (2006).
    line = decell_mayekar(np.array([[1.0, 2.0]]), X, y)
    np.testing.assert_allclose(line, 0.362711864407, atol=1e-11)


@pytest.mark.slow
def test_the_best_line_for_two_classes_about_one_mean():
    # As in figure 2.4 of Tao (2006): LDA fails, the others are near the best error in 1-D.
    angle = np.pi / 6
    R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    long = R @ np.diag([11.13, 1]) @ R.T
    errors = {name: [] for name in ("LDA", "HDA", "HLDA", "ODA")}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = np.vstack([rng.normal(size=(500, 2)), rng.multivariate_normal([0, 0], long, 500)])
        y = np.repeat([0, 1], 500)
        for learner in (LDA(1), HDA(1), HLDA(1), ODA(1)):
            errors[type(learner).__name__].append(gaussian_error(learner, X, y))
    mean = {name: np.mean(values) for name, values in errors.items()}
    assert mean["LDA"] > 0.26
    assert abs(mean["ODA"] - 0.239) < 0.01 and abs(mean["HLDA"] - 0.240) < 0.01
    assert mean["ODA"] < mean["HDA"] < mean["LDA"]


def test_a_plain_sum_masks_close_classes():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 100)
    X = rng.normal(size=(300, 2)) + np.array([[0, -2.2], [0, 2.2], [12, 0]])[y]
    assert gaussian_error(ODA(1), X, y) > 0.2


# ---------------------------------------------------------------------- MODA


def modes(seed=0):
    """Return two clusters per class, one class between the clusters of the other (figure 2.6)."""
    rng = np.random.default_rng(seed)
    centers = np.array([[-7, 0], [7, 0], [0, 2], [0, 6]])
    return rng.normal(size=(120, 2)) + np.repeat(centers, 30, axis=0), np.repeat([0, 1], 60)


def test_one_cluster_a_class_is_oda():
    X, y = unequal()
    moda, oda = MODA(2).fit(X, y), ODA(2).fit(X, y)
    np.testing.assert_array_equal(moda.components_, oda.components_)
    assert moda.objective_ == oda.objective_
    assert moda.cluster_classes_.tolist() == [0, 1, 2]


def test_moda_compares_clusters_of_different_classes_only():
    rng = np.random.default_rng(0)
    parts = np.repeat([0, 1, 2, 3], 30)  # Far enough apart to be found exactly.
    X = rng.normal(size=(120, 2)) + np.array([[-20, 0], [20, 0], [0, 5], [0, 40]])[parts]
    moda = MODA(1, n_clusters=2).fit(X, parts // 2)
    _, m, S = moments(X, parts)
    U, total = moda.components_, 0.0
    for k in range(4):
        for l in range(4):  # noqa: E741
            if k // 2 != l // 2:
                A = S[l] + np.outer(m[k] - m[l], m[k] - m[l])
                total += np.trace(np.linalg.solve(U @ S[k] @ U.T, U @ A @ U.T)) - 1
    np.testing.assert_allclose(moda.objective_, total, rtol=1e-8)
    assert moda.cluster_classes_.tolist() == [0, 0, 1, 1]
    assert moda.divergences_.shape == (4, 4)
    assert moda.classes_.tolist() == [0, 1]


@pytest.mark.slow
def test_moda_parts_classes_with_several_modes():
    errors = np.array(
        [
            [gaussian_error(learner, *modes(seed)) for seed in range(8)]
            for learner in (LDA(1), HLDA(1), MODA(1, n_clusters=2))
        ]
    ).mean(axis=1)
    np.testing.assert_allclose(errors, [0.100, 0.099, 0.029], atol=0.015)


def test_moda_takes_any_labels_and_weights():
    X, y = modes()
    names = np.array(["right", "left"])[y]
    moda = MODA(1, n_clusters=2).fit(X, names)
    assert moda.classes_.tolist() == ["left", "right"]
    assert moda.cluster_classes_.tolist() == [0, 0, 1, 1]
    twice = MODA(1, n_clusters=2).fit(X, names, sample_weight=np.full(120, 2.0))
    np.testing.assert_allclose(twice.components_, moda.components_, rtol=1e-6)
    # A cluster with zero weight is ignored.
    gone = MODA(1, n_clusters=2).fit(X, y, sample_weight=np.repeat([1.0, 1, 1, 0], 30))
    assert gone.cluster_classes_.tolist() == [0, 0, 1]


def test_clusters_are_found_in_small_classes_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(31, 3))
    y = np.repeat([0, 1, 2, 3], [1, 2, 8, 20])
    moda = MODA(2, n_clusters=3).fit(X, y)
    assert np.bincount(moda.cluster_classes_).tolist() == [1, 1, 3, 3]
    assert np.isfinite(moda.components_).all()


def test_clusters_need_all_rows_at_once():
    X, y = modes()
    with pytest.raises(ValueError, match=r"n_clusters=2: .* needs all rows at once\. Use fit"):
        MODA(n_clusters=2).partial_fit(X, y)
    with pytest.raises(ValueError, match="was fitted with n_clusters above 1"):
        MODA(n_clusters=2).fit(X, y).set_params(n_clusters=1).partial_fit(X, y)
    # A new fit without clusters discards the earlier one.
    moda = MODA(1, n_clusters=2).fit(X, y).set_params(n_clusters=1).fit(X, y)
    np.testing.assert_array_equal(moda.components_, MODA(1).fit(X, y).components_)


@pytest.mark.parametrize("n", [60, 1200])
def test_normalised_cut_finds_clusters_of_any_shape(n):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, n)
    truth = np.arange(n) % 2
    radius = np.where(truth, 5.0, 1.0) + 0.1 * rng.normal(size=n)
    rings = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    found = cluster_by_normalized_cut(rings, 2, np.random.RandomState(0))
    assert max(np.mean(found == truth), np.mean(found != truth)) == 1.0


def test_normalised_cut_of_few_distinct_points():
    random = np.random.RandomState(0)
    assert cluster_by_normalized_cut(np.zeros((9, 2)), 3, random).tolist() == [0] * 9
    found = cluster_by_normalized_cut(np.repeat([[0.0], [1.0]], 10, axis=0), 3, random)
    assert len(np.unique(found)) == 2
    assert cluster_by_normalized_cut(np.array([[1.0, 2.0]]), 2, random).tolist() == [0]


# ---------------------------------------------------------------------- all of them


SEARCHES = [HDA(2), HDA(2, criterion="kumar_andreou"), ODA(2), MODA(2)]
every_search = pytest.mark.parametrize("learner", SEARCHES, ids=lambda learner: repr(learner))


@pytest.mark.by_turns(2)
@every_search
def test_dense_and_factored_statistics_agree(learner):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 4)), np.arange(90) % 3
    X[y == 1] *= [1, 2, 3, 1]
    X = X @ linalg.qr(rng.normal(size=(40, 4)), mode="economic")[0].T + rng.normal(size=40)
    rows = [
        learner.solve(ClassStatistics(storage=storage).partial_fit(X, y))
        for storage in ("auto", "dense")
    ]
    np.testing.assert_allclose(pdist(X @ rows[0].T), pdist(X @ rows[1].T), rtol=1e-4, atol=1e-5)


@every_search
def test_the_map_has_unit_covariance_within_classes(learner):
    X, y = unequal()
    Z = learner.fit(X, y).transform(X)
    between, within = scatters(Z, y)
    np.testing.assert_allclose(within, np.eye(2), atol=1e-8)
    assert abs(between[0, 1]) < 1e-8 and between[0, 0] > between[1, 1]


@pytest.mark.by_turns(2)
@every_search
def test_units_of_the_features_change_nothing(learner):
    X, y = unequal()
    units = np.array([1e-3, 1, 20, 1e4, 0.5])
    plain = learner.fit(X, y).components_
    other = learner.fit(X * units, y).components_ * units
    assert span_distance(plain, other) < 1e-4


@every_search
@pytest.mark.filterwarnings("ignore")
def test_singular_classes_stay_finite_or_raise_with_advice(learner):
    learner = clone(learner).set_params(max_iter=10)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 20)), np.arange(30) % 3  # 10 rows per class.
    assert np.isfinite(learner.fit(X, y).transform(X)).all()
    assert learner.shrinkage_ > 0
    plain = type(learner)(2, shrinkage=0.0)
    with pytest.raises(ValueError, match=r"singular, .* Use shrinkage='auto' or a number above 0"):
        plain.fit(X, y)
    X[y == 1] = X[0]  # All rows of this class are equal.
    assert np.isfinite(learner.fit(X, y).transform(X)).all()


@pytest.mark.by_turns(2)
@every_search
@pytest.mark.filterwarnings("ignore")
def test_hard_data_give_finite_maps_or_clear_errors(learner):
    learner = clone(learner).set_params(max_iter=25)
    rng = np.random.default_rng(0)
    X, y = unequal()
    hard = {
        "one row a class": (rng.normal(size=(4, 3)), np.arange(4)),
        "equal classes": (np.tile(rng.normal(size=(8, 4)), (3, 1)), np.repeat([0, 1, 2], 8)),
        "classes of equal rows": (np.repeat(np.eye(4)[:3], 3, axis=0), np.repeat([0, 1, 2], 3)),
        "collinear": (np.hstack([X, X @ rng.normal(size=(5, 4))]), y),
        "tiny and huge": (X * np.array([1e-8, 1, 1e8, 1e4, 1e-4]), y),
        "constant": (np.hstack([np.full((len(X), 2), 7.0), X]), y),
        "offset": (X + 1e7, y),
        "wide": (X[::9] @ rng.normal(size=(5, 50)), y[::9]),
    }
    for name, (rows, labels) in hard.items():
        try:
            mapped = learner.fit(rows, labels).transform(rows)
        except ValueError as error:
            assert "Use criterion='kumar_andreou'" in str(error) or "too large" in str(error), (
                name,
                error,
            )
        else:
            assert np.isfinite(mapped).all(), name
