"""Generalized means of divergences: GADA, MGMD and MGMKLD, with mixtures and with kernels."""

import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from nearfar import (
    GADA,
    HDA,
    LDA,
    MGMD,
    MGMKLD,
    ClassStatistics,
    KernelMGMKLD,
    MultimodalKernelMGMKLD,
    MultimodalMGMKLD,
)
from nearfar.datasets import (
    make_class_separation,
    make_five_classes,
    make_multimodal,
    make_unequal_covariances,
)
from nearfar.discriminant.gada import make_generalized_mean
from nearfar.discriminant.mgmd import make_convex_combination, make_difference_of_logs
from nearfar.discriminant.multimodal_mgmkld import choose_mixture_dimension, find_clusters
from nearfar.solvers.gaussian_divergences import (
    Bregman,
    GaussianFamily,
    KullbackLeibler,
    kullback_leibler,
    make_averaged_objective,
)
from nearfar.solvers.subspaces import Interrupted, find_orthonormal_basis, projector_distance
from nearfar.summaries.class_gaussians import fit_class_gaussians


def gaussian_score_error(Z, y):
    """Return the training error of the score (z-m)'inv(S)(z-m) + ln|S|, without priors."""
    scores = []
    for label in np.unique(y):
        law = stats.multivariate_normal(
            Z[y == label].mean(axis=0), np.cov(Z[y == label].T, bias=True)
        )
        scores.append(-2 * law.logpdf(Z))
    return float(np.mean(np.unique(y)[np.argmin(scores, axis=0)] != y))


def nearest_neighbor_error(Z, y, Zt, yt):
    return float(np.mean(y[np.argmin(cdist(Zt, Z), axis=1)] != yt))


def span(learner):
    return find_orthonormal_basis(learner.components_.T)


def classes(c=4, n=60, p=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(c), n)
    roots = 0.6 * rng.normal(size=(c, p, p)) / np.sqrt(p) + np.eye(p)
    X = np.einsum("ij,ijk->ik", rng.normal(size=(c * n, p)), roots[y])
    return X + rng.normal(size=(c, p))[y], y


def equal_shapes(c=4, n=40, p=6, seed=0):
    """Return classes with exactly the same covariance."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, p)) @ rng.normal(size=(p, p))
    rows -= rows.mean(axis=0)
    means = 2 * rng.normal(size=(c, p))
    return (means[:, None] + rows).reshape(-1, p), np.repeat(np.arange(c), n)


# ---------------------------------------------------------------------- averages


def off_diagonal(c):
    return ~np.eye(c, dtype=bool)


def pairs_of(priors):
    weights = np.where(off_diagonal(len(priors)), np.outer(priors, priors), 0.0)
    return weights / weights.sum()


PRIORS = np.array([0.1, 0.2, 0.3, 0.4])
MEANS = {
    "arithmetic": "arithmetic",
    "geometric": "geometric",
    "harmonic": "harmonic",
    "power -2": -2.0,
    "power 3": 3.0,
    "own": (np.sqrt, lambda x: 0.5 / np.sqrt(x), np.square),
}


def positive(c=4, seed=0):
    D = np.random.default_rng(seed).uniform(0.2, 3, size=(c, c))
    np.fill_diagonal(D, 0.0)
    return D


def check_derivatives(average, D):
    _, slopes = average(D)
    for index in zip(*np.nonzero(off_diagonal(len(D))), strict=True):
        E = np.zeros_like(D)
        E[index] = 1e-6
        numeric = (average(D + E)[0] - average(D - E)[0]) / 2e-6
        assert slopes[index] == pytest.approx(numeric, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", MEANS)
def test_generalised_means_and_their_derivatives(name):
    weights = pairs_of(PRIORS)
    average = make_generalized_mean(weights, MEANS[name])
    D = positive()
    check_derivatives(average, D)
    used, w = D[weights > 0], weights[weights > 0]
    wanted = {
        "arithmetic": w @ used,
        "geometric": np.exp(w @ np.log(used)),
        "harmonic": 1 / (w @ (1 / used)),
        "power -2": (w @ used**-2) ** -0.5,
        "power 3": (w @ used**3) ** (1 / 3),
        "own": (w @ np.sqrt(used)) ** 2,
    }[name]
    assert average(D)[0] == pytest.approx(wanted)


def test_power_means_grow_with_their_exponent_and_agree_when_all_is_equal():
    weights, D = pairs_of(PRIORS), positive()
    values = [
        make_generalized_mean(weights, r)(D)[0] for r in (-8.0, -2.0, -1.0, 0.0, 1.0, 2.0, 8.0)
    ]
    assert (np.diff(values) > 0).all()
    equal = np.where(off_diagonal(4), 1.7, 0.0)
    for r in (-2.0, 0.0, 1.0):
        assert make_generalized_mean(weights, r)(equal)[0] == pytest.approx(1.7)


@pytest.mark.parametrize("eta", [0.0, 8.0, 12.0])
def test_difference_of_logs_and_its_derivatives(eta):
    average = make_difference_of_logs(PRIORS, off_diagonal(4), eta)
    D = positive()
    check_derivatives(average, D)
    used, qq = D[off_diagonal(4)], np.outer(PRIORS, PRIORS)[off_diagonal(4)]
    assert average(D)[0] == pytest.approx(np.log(used).sum() - eta * np.log(qq @ used))


def test_the_second_criterion_knows_no_scale():
    D = positive()
    for factor, same in ((12.0, True), (11.0, False)):
        average = make_difference_of_logs(PRIORS, off_diagonal(4), factor)
        assert (abs(average(5 * D)[0] - average(D)[0]) < 1e-10) == same
    # E sums to 1. With alpha=1, L is the mean of the logarithms of E up to a constant.
    qq = np.outer(PRIORS, PRIORS) * off_diagonal(4)
    constants = []
    for seed in range(3):
        D = positive(seed=seed)
        E = qq * D / np.sum(qq * D)
        assert E.sum() == pytest.approx(1)
        mean = np.log(E[off_diagonal(4)]).mean()
        constants.append(make_convex_combination(PRIORS, off_diagonal(4), 1.0)(D)[0] - mean)
    assert np.ptp(constants) < 1e-12


def test_alpha_is_eta_over_the_number_of_pairs_and_not_what_was_printed():
    c, alpha = 4, 0.37
    priors, pairs = np.full(c, 1 / c), off_diagonal(c)
    exact = [make_convex_combination(priors, pairs, alpha)(positive(seed=s))[0] for s in range(12)]
    Z = (c - 1) / c
    printed = alpha * c * (c - 1) * Z / (c * (c - 1) * (1 - alpha) + alpha * Z)
    assert printed == pytest.approx(0.425, abs=5e-4)

    def affine_residual(eta):
        other = [
            make_difference_of_logs(priors, pairs, eta)(positive(seed=s))[0] for s in range(12)
        ]
        fit = np.polyfit(other, exact, 1)
        return np.abs(np.polyval(fit, other) - exact).max()

    assert affine_residual(alpha * c * (c - 1)) < 1e-12
    assert affine_residual(printed) > 1e-2


def test_a_vanished_divergence_leaves_values_and_derivatives_finite():
    D = positive()
    D[0, 1] = D[1, 0] = 0
    for average in (
        make_generalized_mean(pairs_of(PRIORS), "geometric"),
        make_generalized_mean(pairs_of(PRIORS), -20.0),
        make_difference_of_logs(PRIORS, off_diagonal(4), 8.0),
    ):
        for divergences in (D, 0 * D):
            value, slopes = average(divergences)
            assert np.isfinite(value) and np.isfinite(slopes).all()


# ---------------------------------------------------------------------- objective and optimum


def family_of(X, y):
    statistics = ClassStatistics().partial_fit(X, y)
    return fit_class_gaussians(statistics, "auto")


@pytest.mark.parametrize("convention", ["exact", "unnormalized"])
@pytest.mark.parametrize("eta", [0.0, 8.0, 12.0])
def test_objective_of_a_fit_by_hand_and_its_gradient(eta, convention):
    X, y = classes()
    fit = MGMKLD(2, equality_weight=eta, kl_convention=convention).fit(X, y)
    U = fit.components_.T
    laws = []
    for k in range(4):
        Z = X[y == k] @ U
        laws.append((Z.mean(axis=0), np.cov(Z.T, bias=True)))
    D = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            d, S = laws[i][0] - laws[j][0], laws[j][1]
            twice = np.log(np.linalg.det(S) / np.linalg.det(laws[i][1]))
            twice += np.trace(np.linalg.solve(S, laws[i][1])) + d @ np.linalg.solve(S, d)
            D[i, j] = (twice - 2) / 2 if convention == "exact" else twice
    np.fill_diagonal(D, 0)
    np.testing.assert_allclose(fit.divergences_, D, atol=1e-9)
    used = D[off_diagonal(4)]
    wanted = np.log(used).sum() - eta * np.log(used.sum() / 16)
    assert fit.objective_ == pytest.approx(wanted, abs=1e-8)

    gaussians = family_of(X, y)
    average = make_difference_of_logs(np.full(4, 0.25), off_diagonal(4), eta)
    objective = make_averaged_objective(gaussians.family, KullbackLeibler(convention), average)
    U = np.random.default_rng(1).normal(size=(6, 2))
    _, gradient = objective(U)
    assert np.abs(U.T @ gradient).max() < 1e-10
    for index in ((0, 0), (3, 1), (5, 0)):
        E = np.zeros_like(U)
        E[index] = 1e-5
        numeric = (objective(U + E)[0] - objective(U - E)[0]) / 2e-5
        assert gradient[index] == pytest.approx(numeric, abs=1e-7)
    # At the solution, the gradient is zero.
    V = np.linalg.lstsq(gaussians.basis, fit.components_.T, rcond=None)[0]
    assert np.linalg.norm(objective(find_orthonormal_basis(V))[1]) < 1e-6


def test_no_random_subspace_is_better():
    X, y = classes()
    fit = MGMKLD(2).fit(X, y)
    gaussians = family_of(X, y)
    average = make_difference_of_logs(np.full(4, 0.25), off_diagonal(4), fit.equality_weight_)
    objective = make_averaged_objective(gaussians.family, kullback_leibler, average)
    rng = np.random.default_rng(0)
    best = max(objective(rng.normal(size=(6, 2)))[0] for _ in range(500))
    assert best < fit.objective_


@pytest.mark.parametrize("q", [1, 2, 3])
def test_the_arithmetic_mean_with_one_covariance_is_lda(q):
    X, y = equal_shapes()
    lda = LDA(q).fit(X, y)
    gada = GADA(q, mean="arithmetic").fit(X, y)
    assert projector_distance(span(lda), span(gada)) < 1e-6
    # The sum of π_i π_j KL is tr((U'S_wU)^-1 U'S_bU) for any U.
    Z = 1 - np.sum((np.bincount(y) / len(y)) ** 2)
    assert gada.objective_ * Z == pytest.approx(lda.objective_, rel=1e-8)


def test_all_means_are_lda_for_two_classes_of_one_covariance():
    X, y = equal_shapes(c=2)
    lda = LDA().fit(X, y)
    for other in (
        GADA(),
        GADA(mean="harmonic"),
        MGMKLD(),
        MGMKLD(equality_weight=0),
        MGMD(alpha=0.3),
    ):
        assert projector_distance(span(lda), span(other.fit(X, y))) < 1e-6


def test_between_scatter_is_a_sum_over_pairs():
    X, y = classes(c=3)
    y[:20] = 2
    statistics = ClassStatistics().partial_fit(X, y)
    pi, m = statistics.weights / statistics.total_weight, statistics.means
    pairs = sum(
        pi[i] * pi[j] * np.outer(m[i] - m[j], m[i] - m[j]) for i in range(3) for j in range(i)
    )
    between = statistics.between_scatter() / statistics.total_weight
    np.testing.assert_allclose(between, pairs, atol=1e-12)


def test_two_divergences_are_equal_where_the_second_criterion_is_best():
    # Wherever there is a direction of equal variance: one class wider here, the other there.
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 2)) * s for s in ([1, 3], [2, 1])])
    y = np.repeat([0, 1], 200)
    X[y == 1] += [0.5, 0.5]
    fit = MGMKLD(1, equality_weight=2).fit(X, y)
    assert fit.divergences_[0, 1] == pytest.approx(fit.divergences_[1, 0], rel=1e-5)


def test_solutions_are_not_nested():
    # Counterexample: the columns of a larger solution do not solve the smaller problem.
    X, y, _, _ = make_five_classes(random_state=0)
    one, two = MGMKLD(1).fit(X, y), MGMKLD(2).fit(X, y)
    inside = span(two) @ (span(two).T @ span(one))
    assert np.linalg.norm(span(one) - inside) > 0.05


def test_more_directions_than_classes_and_the_whole_space():
    X, y = classes()
    assert MGMKLD(5).fit(X, y).components_.shape == (5, 6)
    whole = MGMKLD(6).fit(X, y)
    assert whole.components_.shape == (6, 6)
    pooled = ClassStatistics().partial_fit(whole.transform(X), y).covariance()
    np.testing.assert_allclose(pooled, np.eye(6), atol=1e-8)
    with pytest.raises(ValueError, match=r"n_components=7 is too large.*6 directions"):
        MGMKLD(7).fit(X, y)


def test_the_conventions_have_different_optima():
    X, y, _, _ = make_five_classes(random_state=1)
    exact = MGMKLD(1).fit(X, y)
    other = MGMKLD(1, kl_convention="unnormalized").fit(X, y)
    assert projector_distance(span(exact), span(other)) > 1e-3
    # Without a logarithm, they agree.
    exact = GADA(2, mean="arithmetic").fit(X, y)
    other = GADA(2, mean="arithmetic", kl_convention="unnormalized").fit(X, y)
    assert projector_distance(span(exact), span(other)) < 1e-6
    assert other.objective_ == pytest.approx(2 * exact.objective_ + 2)


def test_mgmkld_is_mgmd_with_that_divergence():
    X, y = classes()
    np.testing.assert_array_equal(MGMKLD(2).fit(X, y).components_, MGMD(2).fit(X, y).components_)
    given = MGMD(2, divergence=kullback_leibler).fit(X, y)
    np.testing.assert_array_equal(given.components_, MGMKLD(2).fit(X, y).components_)


def test_any_generator_can_be_given():
    X, y = make_class_separation(random_state=0)
    by_name = GADA(1, divergence="l2", mean="arithmetic", n_init=2).fit(X, y)
    squares = Bregman(lambda x: x**2 / 2, lambda p: p, np.ones_like)
    by_generator = GADA(1, divergence=squares, mean="arithmetic", n_init=2).fit(X, y)
    assert by_generator.objective_ == pytest.approx(by_name.objective_, rel=1e-4)
    assert projector_distance(span(by_name), span(by_generator)) < 1e-3
    half = Bregman(
        lambda x: 2 / 3 * (1 + x / 2) ** 3, lambda p: 2 * (np.sqrt(p) - 1), lambda p: p**-0.5
    )
    assert (GADA(1, divergence=half, n_init=2).fit(X, y).divergences_[off_diagonal(3)] > 0).all()


def test_priors_count():
    X, y = classes()
    y[:40] = 3
    for learner in (GADA(1), MGMKLD(1)):
        own = learner.fit(X, y)
        np.testing.assert_allclose(own.priors_, np.bincount(y) / len(y))
        components = own.components_
        equal = learner.set_params(priors="uniform").fit(X, y)
        np.testing.assert_allclose(equal.priors_, 0.25)
        assert not np.allclose(components, equal.components_, atol=1e-3)


# ---------------------------------------------------------------------- eta


@pytest.mark.parametrize(("c", "eta"), [(2, 1), (3, 5), (4, 8), (5, 10), (10, 20)])
def test_default_eta_is_that_of_the_published_experiments(c, eta):
    X, y = classes(c=c, n=20, p=4)
    fit = MGMKLD(1, n_init=1).fit(X, y)
    assert fit.equality_weight_ == eta
    assert fit.equality_weight_ < c * (c - 1)  # 2c is not below this for two and three classes.


def test_eta_beyond_the_number_of_pairs_raises():
    X, y = classes(c=3)
    with pytest.raises(ValueError, match=r"equality_weight=6\.5 is above 6"):
        MGMKLD(equality_weight=6.5).fit(X, y)
    assert MGMKLD(equality_weight=6).fit(X, y).equality_weight_ == 6
    with pytest.raises(ValueError, match="equality_weight and alpha are both set"):
        MGMKLD(equality_weight=1, alpha=0.5).fit(X, y)


def test_alpha_zero_is_the_geometric_mean_and_alpha_one_the_normalised_one():
    X, y = classes()
    y[:30] = 3  # With unequal priors, equality_weight=0 is another criterion.
    geometric, first = GADA(2).fit(X, y), MGMKLD(2, alpha=0).fit(X, y)
    assert projector_distance(span(geometric), span(first)) < 1e-6
    assert np.log(geometric.objective_) == pytest.approx(first.objective_)
    second, supremum = MGMKLD(1, alpha=1).fit(X, y), MGMKLD(1, equality_weight=12).fit(X, y)
    assert projector_distance(span(second), span(supremum)) < 1e-4
    assert second.equality_weight_ == 12


# ---------------------------------------------------------------------- class separation


def mean_errors(make, learners, n_seeds=6):
    """Return errors over several datasets. Two starts find the same optimum as five."""
    errors = {name: [] for name in learners}
    for seed in range(n_seeds):
        X, y = make(seed)
        for name, learner in learners.items():
            if "n_init" in learner.get_params():
                learner.set_params(n_init=2)
            errors[name].append(gaussian_score_error(learner.fit(X, y).transform(X), y))
    return {name: np.mean(values) for name, values in errors.items()}


@pytest.mark.slow
def test_close_classes_are_not_merged_for_a_far_one():
    errors = mean_errors(
        lambda seed: make_class_separation(random_state=seed),
        {
            "LDA": LDA(1),
            "0": MGMKLD(1, equality_weight=0),
            "1": MGMKLD(1, equality_weight=1),
            "5": MGMKLD(1, equality_weight=5),
        },
    )
    assert errors["LDA"] > 0.25
    assert errors["5"] < 0.04
    assert errors["5"] < errors["1"] < errors["0"] < 0.08


@pytest.mark.slow
def test_unequal_covariances_are_seen():
    learners = {
        "LDA": LDA(1),
        "0": MGMKLD(1, equality_weight=0),
        "1": MGMKLD(1),
        "2": MGMKLD(1, equality_weight=2),
    }
    errors = mean_errors(lambda seed: make_unequal_covariances(random_state=seed), learners)
    assert errors["0"] == pytest.approx(0.239, abs=0.02)
    assert errors["1"] == pytest.approx(0.239, abs=0.02)
    assert errors["LDA"] > errors["1"] + 0.03
    # The second criterion alone merges the classes, since it only needs equal divergences.
    assert errors["2"] > 0.45


@pytest.mark.slow
def test_both_at_once():
    errors = mean_errors(
        lambda seed: make_class_separation(equal_covariances=False, random_state=seed),
        {"LDA": LDA(1), "MGMKLD": MGMKLD(1, equality_weight=5)},
        n_seeds=10,
    )
    assert errors["MGMKLD"] < 0.11 < 0.14 < errors["LDA"]


@pytest.mark.slow
def test_published_levels_on_the_calibrated_five_class_generator():
    lda, gain = np.zeros(3), []
    n_groups = 20
    for group in range(n_groups):
        X, y, Xt, yt = make_five_classes(random_state=group)
        statistics = ClassStatistics().partial_fit(X, y)
        errors = []
        for q in (1, 2, 3):
            L = LDA(q).solve(statistics)
            errors.append(nearest_neighbor_error(X @ L.T, y, Xt @ L.T, yt))
        lda += np.array(errors) / n_groups
        L = MGMKLD(1, equality_weight=10, n_init=2).solve(statistics)
        gain.append(errors[0] - nearest_neighbor_error(X @ L.T, y, Xt @ L.T, yt))
    np.testing.assert_allclose(lda, [0.297, 0.155, 0.110], atol=0.03)
    assert np.mean(gain) >= 0.02


def test_printed_variances_do_not_give_the_published_errors():
    errors = []
    for group in range(6):
        X, y, Xt, yt = make_five_classes(variances="literal", random_state=group)
        L = LDA(1).fit(X, y).components_
        errors.append(nearest_neighbor_error(X @ L.T, y, Xt @ L.T, yt))
    assert np.mean(errors) > 0.4  # Published: 0.297. A direct implementation found 0.457.


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("q", [1, 2, 5])  # LDA has fewer than 5 directions.
@pytest.mark.parametrize("learner", [MGMKLD(), HDA(criterion="kumar_andreou")], ids=repr)
def test_starts_belong_to_the_classes_and_not_to_the_features(learner, q):
    # With other coordinates and labels, each start ends at the same optimum, not only the best.
    X, y = classes()
    turn = find_orthonormal_basis(np.random.default_rng(1).normal(size=(6, 6))) * [
        1,
        2,
        30,
        0.1,
        1,
        7,
    ]
    fit = clone(learner).set_params(n_components=q).fit(X, y)
    other = clone(fit).fit(X @ turn, np.array([3, 0, 2, 1])[y])
    np.testing.assert_allclose(other.objectives_per_init_, fit.objectives_per_init_, rtol=1e-8)


@pytest.mark.slow
def test_starts_find_the_better_optimum():
    # The start from LDA ends at 8.4869. Uniformly random starts reach 8.6181 in 28% of the draws.
    # This seed reaches it on any processor, and about two of three other seeds do.
    X, y = classes()
    lda = MGMKLD(2, init="lda").fit(X, y)
    random = MGMKLD(2, init="random", n_init=40).fit(X, y)
    found = MGMKLD(2).fit(X, y)
    assert found.objective_ == pytest.approx(random.objective_, rel=1e-8)
    assert found.objective_ > lda.objective_ + 0.1


def test_starts_of_classes_alike():
    # If classes differ only in their means, all starts find them. If they do not differ at all,
    # there is no error.
    X, y = equal_shapes(p=30)
    fit = MGMKLD(2).fit(X, y)
    np.testing.assert_allclose(fit.objectives_per_init_, fit.objective_, rtol=1e-6)
    same = np.tile(X[:40], (3, 1))
    assert np.isfinite(MGMKLD(2).fit(same, np.repeat([0, 1, 2], 40)).components_).all()


def test_starts_with_few_rows_are_those_of_the_matrices():
    rng = np.random.default_rng(0)
    covariances = rng.normal(size=(3, 7, 9))
    covariances = covariances @ covariances.transpose(0, 2, 1)
    means, weights = rng.normal(size=(3, 7)), rng.normal(size=(2, 3))
    dense = GaussianFamily(means, covariances)
    thin = GaussianFamily(means, lambda U: covariances @ U)
    np.testing.assert_allclose(thin.compute_traces(), dense.compute_traces())
    for one, two in zip(thin.combine(*weights), dense.combine(*weights), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-12)
    centered = means - means.mean(axis=0)
    expected = sum(a * np.outer(m, m) for a, m in zip(weights[0], centered, strict=True))
    np.testing.assert_allclose(dense.combine(*weights)[0], expected)


def test_starts_end_at_one_optimum_on_the_calibrated_data_only():
    X, y, _, _ = make_five_classes(random_state=0)
    ends = MGMKLD(2, init="random", n_init=8).fit(X, y).objectives_per_init_
    assert np.sum(ends > ends.max() - 1e-3) >= 7
    X, y, _, _ = make_five_classes(variances="literal", random_state=0)
    ends = MGMKLD(2, init="random", n_init=8).fit(X, y).objectives_per_init_
    assert np.sum(ends > ends.max() - 1e-3) < 7


def test_generator_has_the_moments_of_its_model():
    X, y, Xt, yt = make_five_classes(4000, 10, variances=(0.5, 3.0), random_state=0)
    assert X.shape == (20000, 20) and Xt.shape == (50, 20) and len(yt) == 50
    assert np.abs(X[y == 1].mean(axis=0)).max() < 0.2
    heights = [X[y == k].mean(axis=0) for k in range(5)]
    assert np.ptp(heights[0]) < 0.3 and abs(heights[2][:10].mean()) < 0.1
    assert np.ptp(heights[4][[0, 1, 2, 3, 4, 10, 11, 12, 13, 14]]) < 0.3
    # The trace is 20 * (7 * 0.5 + 3), up to the random loadings.
    traces = [np.trace(np.cov(X[y == k].T)) for k in range(5)]
    assert np.mean(traces) == pytest.approx(130, rel=0.1)
    # Training and test rows come from the same group.
    assert np.abs(X[y == 0].mean(axis=0) - Xt[yt == 0].mean(axis=0)).max() < 5
    with pytest.raises(ValueError, match="variances must be"):
        make_five_classes(variances="printed")


# ---------------------------------------------------------------------- few rows, odd input


def test_singular_class_covariances_raise_with_advice_or_are_shrunk():
    X, y = classes(c=3, n=5, p=8)
    with pytest.raises(ValueError, match=r"class 0 \(5 rows, 8 features\) is singular.*shrinkage"):
        MGMKLD(2, shrinkage=0.0).fit(X, y)
    auto = MGMKLD(2, n_init=1).fit(X, y)
    assert auto.shrinkage_ == 0.3 and np.isfinite(auto.components_).all()
    number = MGMKLD(2, n_init=1, shrinkage=0.1).fit(X, y)
    assert number.shrinkage_ == 0.1 and np.isfinite(number.divergences_).all()
    assert MGMKLD(2).fit(*classes()).shrinkage_ == 0


def test_without_shrinkage_the_objective_has_no_bound():
    # Along a direction in which one class does not vary, its divergence is unbounded.
    X, y = classes(c=3, n=5, p=8)
    options = {"n_init": 1, "max_iter": 100, "equality_weight": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        values = [MGMKLD(1, shrinkage=g, **options).fit(X, y).objective_ for g in (1e-2, 1e-5)]
    assert values[1] > values[0] + 5


def test_number_of_shrinkage_is_towards_the_identity_of_equal_trace():
    X, y = classes(c=3, n=30, p=4)
    statistics = ClassStatistics().partial_fit(X, y)
    gaussians = fit_class_gaussians(statistics, 0.2)
    T = gaussians.basis
    level = np.trace(statistics.covariance()) / 4
    for k, label in enumerate(statistics.classes):
        wanted = T.T @ (0.8 * statistics.covariance(label) + 0.2 * level * np.eye(4)) @ T
        np.testing.assert_allclose(gaussians.family.dot(np.eye(4))[k], wanted, atol=1e-10)
    pooled = 0.8 * statistics.covariance() + 0.2 * level * np.eye(4)
    np.testing.assert_allclose(T.T @ pooled @ T, np.eye(4), atol=1e-10)


def test_thin_classes_give_what_square_matrices_give():
    # 30 features and 6 rows per class: covariances are stored as rows.
    X, y = classes(c=6, n=6, p=30)
    thin = ClassStatistics().partial_fit(X, y)
    square = ClassStatistics(storage="dense").partial_fit(X, y)
    one, other = fit_class_gaussians(thin, "auto"), fit_class_gaussians(square, "auto")
    U = np.random.default_rng(0).normal(size=(30, 2))
    ends = [
        kullback_leibler.values(g.family.project(np.linalg.lstsq(g.basis, U, rcond=None)[0]))
        for g in (one, other)
    ]
    assert thin.is_factored and not square.is_factored
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


@pytest.mark.parametrize("learner", [GADA(), MGMD(), MGMKLD(), MultimodalMGMKLD(), KernelMGMKLD()])
def test_classes_of_one_row_and_of_copies_of_one(learner):
    X, y = classes(c=3, n=20, p=5)
    X = np.vstack([X, X[:1] + 1, X[5:6] - 1, X[5:6] - 1])
    y = np.append(y, [7, 8, 8])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapped = learner.fit(X, y).transform(X)
    assert np.isfinite(mapped).all() and mapped.shape[1] == 4
    # With one row per class, all classes have the pooled covariance.
    assert np.isfinite(learner.fit(X[:6], np.arange(6)).transform(X)).all()


def test_fewer_rows_than_features_and_constant_features():
    X, y = load_digits(return_X_y=True)
    X, y = X[:60], y[:60]
    for learner in (GADA(2, n_init=1), MGMKLD(2, n_init=1), MultimodalMGMKLD(2, n_init=1)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(learner.fit(X, y).transform(X)).all()


def test_identical_classes_stay_finite():
    X, _ = classes(c=1)
    y = np.repeat([0, 1], len(X))
    for learner in (GADA(1), MGMKLD(1), MGMKLD(1, kl_convention="unnormalized")):
        fit = learner.fit(np.vstack([X, X]), y)
        assert np.isfinite(fit.components_).all() and np.isfinite(fit.objective_)


def test_units_of_features_do_not_matter():
    X, y = classes()
    scale = 10.0 ** np.arange(-3, 3)
    plain, scaled = MGMKLD(2).fit(X, y), MGMKLD(2).fit(X * scale, y)
    here, there = plain.transform(X), scaled.transform(X * scale)
    np.testing.assert_allclose(cdist(there, there), cdist(here, here), atol=1e-6)
    assert scaled.objective_ == pytest.approx(plain.objective_)


# ---------------------------------------------------------------------- the fit


def test_batches_give_the_same_map_to_many_digits():
    X, y, _, _ = make_five_classes(random_state=3)
    whole = MGMKLD(3).fit(X, y)
    parts = MGMKLD(3)
    for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), 7):
        parts.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(parts.components_, whole.components_, atol=1e-9)


def test_the_output_has_unit_pooled_covariance_and_ordered_axes():
    X, y = classes()
    Z = MGMKLD(3).fit_transform(X, y)
    statistics = ClassStatistics().partial_fit(Z, y)
    np.testing.assert_allclose(statistics.covariance(), np.eye(3), atol=1e-9)
    between = statistics.between_scatter()
    np.testing.assert_allclose(between, np.diag(np.diag(between)), atol=1e-6)
    assert (np.diff(np.diag(between)) <= 1e-9).all()


def test_a_given_start_is_used():
    X, y = classes()
    fit = MGMKLD(2).fit(X, y)
    again = MGMKLD(2, init=fit.components_, n_init=1).fit(X, y)
    assert again.n_iter_ <= 3
    np.testing.assert_allclose(again.components_, fit.components_, atol=1e-6)
    with pytest.raises(ValueError, match=r"init must have shape \(2, 6\)"):
        MGMKLD(2, init=np.eye(3)).fit(X, y)
    with pytest.raises(ValueError, match="independent rows"):
        MGMKLD(2, init=np.ones((2, 6))).fit(X, y)
    assert len(MGMKLD(2, init="lda").fit(X, y).objectives_per_init_) == 1
    assert len(MGMKLD(2, init="random", n_init=3).fit(X, y).objectives_per_init_) == 3


def test_the_published_loop_ends_below_the_optimum():
    X, y, _, _ = make_five_classes(random_state=0)
    good = MGMKLD(2, n_init=1, init="random").fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        slow = MGMKLD(2, n_init=1, init="random", solver="steepest", max_iter=300).fit(X, y)
    objectives = slow.history_["objective"]
    assert objectives[-1] > objectives[0]  # The objective increases.
    assert slow.objective_ < good.objective_ - 0.01
    assert slow.components_.shape == (2, 20)


def test_running_out_of_steps_warns():
    X, y, _, _ = make_five_classes(random_state=0)
    with pytest.warns(ConvergenceWarning, match="MGMKLD did not converge in 2 iterations"):
        MGMKLD(2, max_iter=2).fit(X, y)


@pytest.mark.parametrize("cls", [MGMKLD, MultimodalMGMKLD, KernelMGMKLD])
def test_ctrl_c_leaves_the_best_map_so_far(cls, monkeypatch):
    X, y, _, _ = make_five_classes(40, 1, random_state=0)
    real, calls = KullbackLeibler.gradient, [0]

    def interrupted(self, projected, weights):
        calls[0] += 1
        if calls[0] == 12:
            raise KeyboardInterrupt
        return real(self, projected, weights)

    monkeypatch.setattr(KullbackLeibler, "gradient", interrupted)
    learner = cls()
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X, y)
    monkeypatch.undo()
    assert np.isfinite(learner.transform(X)).all()
    assert len(getattr(learner, "estimator_", learner).history_["objective"]) > 0
    # If there is no result yet, the learner is not fitted.
    monkeypatch.setattr(
        KullbackLeibler, "values", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    learner = cls()
    with pytest.raises(KeyboardInterrupt) as caught:
        learner.fit(X, y)
    assert not isinstance(caught.value, Interrupted)
    assert not hasattr(learner, "components_") and not hasattr(learner, "coefficients_")


def test_verbose_prints(capsys):
    X, y, _, _ = make_five_classes(random_state=0)
    MGMKLD(2, n_init=1, verbose=1).fit(X, y)
    assert "objective" in capsys.readouterr().out


# ---------------------------------------------------------------------- mixtures


def test_one_cluster_a_class_is_mgmkld():
    X, y = classes()
    plain, mixed = MGMKLD(2).fit(X, y), MultimodalMGMKLD(2, max_clusters=1).fit(X, y)
    np.testing.assert_allclose(mixed.components_, plain.components_, atol=1e-8)
    assert mixed.objective_ == pytest.approx(plain.objective_)
    np.testing.assert_array_equal(mixed.n_clusters_, 1)


@pytest.mark.slow
def test_classes_of_two_clusters_with_another_between():
    errors = mean_errors(
        lambda seed: make_multimodal(random_state=seed),
        {
            "LDA": LDA(1),
            "MGMKLD": MGMKLD(1),
            "0": MultimodalMGMKLD(1, equality_weight=0, n_init=2),
            "1": MultimodalMGMKLD(1, equality_weight=1, n_init=2),
        },
        n_seeds=6,
    )
    # Published errors: LDA 0.100, M-MGMKLD 0.025 and 0.026.
    assert errors["LDA"] > 0.08
    assert errors["0"] < 0.05 and errors["1"] < 0.05


def test_identical_halves_add_identical_terms_only():
    means = np.array([[0.0, 0.0], [3.0, 1.0], [3.0, 1.0]])
    covariances = np.stack([np.eye(2), np.diag([2.0, 1.0]), np.diag([2.0, 1.0])])
    U = np.array([[1.0], [0.5]])
    D = kullback_leibler.values(GaussianFamily(means, covariances).project(U))
    owner = np.array([0, 1, 1])
    pairs = owner[:, None] != owner
    split = make_difference_of_logs(np.array([0.5, 0.25, 0.25]), pairs, 1.0)(D)[0]
    two = D[:2, :2]
    whole = make_difference_of_logs(np.array([0.5, 0.5]), off_diagonal(2), 1.0)(two)[0]
    assert split - whole == pytest.approx(np.log(two[0, 1]) + np.log(two[1, 0]))


def test_clusters_have_priors_and_statistics():
    X, y = make_multimodal(random_state=0)
    fit = MultimodalMGMKLD(1).fit(X, y)
    np.testing.assert_array_equal(fit.n_clusters_, [2, 2])
    np.testing.assert_array_equal(fit.cluster_classes_, [0, 0, 1, 1])
    np.testing.assert_allclose(fit.cluster_priors_, 0.25, atol=0.03)
    np.testing.assert_allclose(fit.cluster_priors_.sum(), 1)
    means = fit.cluster_statistics_.means
    np.testing.assert_allclose(np.sort(means[:2, 0]), [-7, 7], atol=0.6)
    np.testing.assert_allclose(np.sort(means[2:, 1]), [2, 6], atol=0.6)
    assert fit.equality_weight_ == 4  # 2c, although there are eight pairs.
    uneven = MultimodalMGMKLD(1, priors="uniform").fit(X[:90], y[:90])
    by_class = np.bincount(uneven.cluster_classes_, uneven.cluster_priors_)
    np.testing.assert_allclose(by_class, 0.5)
    with pytest.raises(ValueError, match="equality_weight=9 is above 8"):
        MultimodalMGMKLD(1, equality_weight=9).fit(X, y)


def test_mixtures_are_fitted_in_few_dimensions():
    # In all 256 dimensions of an image, every cluster of a class with 600 rows would be dissolved.
    assert choose_mixture_dimension(600, "full") == 10
    assert choose_mixture_dimension(60, "full") == 6
    assert choose_mixture_dimension(19, "full") == 0
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 256))
    rows[:100, 0] += 12
    shares = find_clusters(
        rows,
        max_clusters=10,
        dimension="auto",
        covariance_type="full",
        min_cluster_size=3,
        random=np.random.RandomState(0),
    )
    assert shares.shape[1] == 2
    np.testing.assert_allclose(shares[:100].mean(axis=0).max(), 1, atol=0.05)
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_clusters_of_too_few_rows_are_dissolved():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(12, 2)) + 20])
    options = {"max_clusters": 6, "dimension": 2, "covariance_type": "full"}
    two = find_clusters(rows, min_cluster_size=5, random=np.random.RandomState(0), **options)
    assert two.shape[1] == 2
    one = find_clusters(rows, min_cluster_size=13, random=np.random.RandomState(0), **options)
    np.testing.assert_array_equal(one, np.ones((72, 1)))


# ---------------------------------------------------------------------- kernels


def square_features(X):
    """Return the explicit features of the kernel <x, z>²."""
    p = X.shape[1]
    i, j = np.triu_indices(p)
    return X[:, i] * X[:, j] * np.where(i == j, 1.0, np.sqrt(2))


def test_kernel_moments_equal_those_of_explicit_features():
    X, y = classes(c=3, n=15, p=3)
    features, K = square_features(X), (X @ X.T) ** 2
    rng = np.random.default_rng(0)
    Lambda = rng.normal(size=(45, 2))
    U = features.T @ Lambda
    for k in range(3):
        Ki, n = K[:, y == k], 15
        H = np.eye(n) - 1 / n
        wanted = U.T @ np.cov(features[y == k].T, bias=True) @ U
        np.testing.assert_allclose(Lambda.T @ Ki @ H @ H @ Ki.T @ Lambda / n, wanted, rtol=1e-8)
        np.testing.assert_allclose(Lambda.T @ Ki.mean(axis=1), U.T @ features[y == k].mean(axis=0))


def test_kernel_solution_is_that_of_explicit_features():
    X, y = classes(c=3, n=60, p=3)
    explicit = MGMKLD(2).fit(square_features(X), y)
    options = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 0.0}
    kernel = KernelMGMKLD(n_directions=None, estimator=MGMKLD(2), **options).fit(X, y)
    assert kernel.n_directions_ == 6
    assert kernel.objective_ == pytest.approx(explicit.objective_, rel=1e-6)
    new = np.random.default_rng(1).normal(size=(10, 3))
    ours, theirs = kernel.transform(new), explicit.transform(square_features(new))
    np.testing.assert_allclose(cdist(ours, ours), cdist(theirs, theirs), atol=1e-4)


def test_linear_kernel_is_the_linear_method():
    X, y = classes()
    linear = MGMKLD(2).fit(X, y)
    kernel = KernelMGMKLD(kernel="linear", n_directions=None, estimator=MGMKLD(2)).fit(X, y)
    ends = kernel.estimator_.objectives_per_init_
    np.testing.assert_allclose(ends, linear.objectives_per_init_, rtol=1e-8)
    given = KernelMGMKLD(kernel="precomputed", n_directions=None, estimator=MGMKLD(2))
    given.fit(X @ X.T, y)
    mapped = given.transform(X @ X.T)
    np.testing.assert_allclose(mapped, kernel.transform(X), atol=1e-6)
    # The coefficients map centered kernel values.
    centered = X - X.mean(axis=0)
    np.testing.assert_allclose(centered @ centered.T @ kernel.coefficients_.T, mapped, atol=1e-6)


def test_what_is_orthogonal_to_all_samples_changes_no_divergence():
    rng = np.random.default_rng(0)
    basis = find_orthonormal_basis(rng.normal(size=(9, 9)))
    X, y = classes(c=3, n=30, p=5)
    X = X @ basis[:, :5].T  # The samples lie in a subspace.
    means = np.stack([X[y == k].mean(axis=0) for k in range(3)])
    covariances = np.stack([np.cov(X[y == k].T, bias=True) for k in range(3)])
    family = GaussianFamily(means, covariances)
    U = basis[:, :5] @ rng.normal(size=(5, 2))
    more = U + basis[:, 5:] @ rng.normal(size=(4, 2))
    np.testing.assert_allclose(
        kullback_leibler.values(family.project(more)),
        kullback_leibler.values(family.project(U)),
        atol=1e-10,
    )


def test_directions_of_the_kernel_are_cut():
    # With all directions, the objective is unbounded. The default is a fifth of the smallest class.
    X, y = load_iris(return_X_y=True)
    assert KernelMGMKLD().fit(X, y).n_directions_ == 10
    few = KernelMGMKLD(estimator=MGMKLD(3)).fit(X[40:110], y[40:110])  # Two classes have ten rows.
    assert few.n_directions_ == 3
    with pytest.raises(ValueError, match="singular"):
        KernelMGMKLD(n_directions=None, estimator=MGMKLD(shrinkage=0.0)).fit(X, y)


def test_landmarks_span_the_directions():
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    few = KernelMGMKLD(n_landmarks=60).fit(X, y)
    assert few.coefficients_.shape[1] == pytest.approx(60, abs=2)
    assert (
        nearest_neighbor_error(few.transform(X[::2]), y[::2], few.transform(X[1::2]), y[1::2]) < 0.1
    )


def test_kernel_of_mixtures():
    X, y = make_multimodal(random_state=0)
    both = MultimodalKernelMGMKLD(
        kernel="linear", n_directions=None, estimator=MultimodalMGMKLD(1)
    ).fit(X, y)
    np.testing.assert_array_equal(both.estimator_.n_clusters_, [2, 2])
    # With a linear kernel it is MultimodalMGMKLD, except for the coordinates of the clustering.
    plain = MultimodalMGMKLD(1).fit(X, y)
    assert both.objective_ == pytest.approx(plain.objective_, rel=0.05)
    with pytest.raises(
        TypeError, match="estimator must be a MultimodalMGMKLD or None, but got MGMKLD"
    ):
        MultimodalKernelMGMKLD(estimator=MGMKLD()).fit(X, y)
