"""Dissimilarities between Gaussians, what they are and are not, and their kernels."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, linalg, stats
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris, load_wine
from sklearn.svm import SVC

from nearfar import Gaussians
from nearfar.distributions import (
    dissimilarity,
    exponential_kernel,
    metric_closure,
    metric_report,
    quantile_width,
    repair_kernel,
)
from nearfar.distributions.dissimilarities import METRICS
from nearfar.solvers.spectral_step import double_center

SYMMETRIC = [name for name in METRICS if not name.endswith("kl")]
AFFINE = [name for name in METRICS if name != "mean"]
SIX = ["jeffreys", "bhattacharyya", "hellinger", "riemann", "jeffreys_riemann"]
SIX += ["bhattacharyya_riemann"]
J, B, H, R, JR, BR = SIX


def draw_gaussians(n, p, seed=0, spread=1.0, dof=None):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(n, p, dof or p + 2)) * np.exp(spread * rng.normal(size=(n, 1, 1)))
    return Gaussians(rng.normal(size=(n, p)), roots @ roots.transpose(0, 2, 1) / p)


def make_line(means, variances):
    """Gaussians in one dimension."""
    return Gaussians(np.reshape(means, (-1, 1)), np.reshape(variances, (-1, 1, 1)))


def compute_expected(m1, S1, m2, S2):
    """All of them for one pair, by textbook formulas and general-purpose routines."""
    p, u = len(m1), m1 - m2
    P1, P2, mean = linalg.inv(S1), linalg.inv(S2), (S1 + S2) / 2

    def kl(m, S, k, T):
        TS = linalg.solve(T, S)
        return 0.5 * (TS.trace() + (k - m) @ linalg.solve(T, k - m) - p - np.log(linalg.det(TS)))

    d_b = u @ linalg.solve(mean, u) / 8
    d_b += 0.5 * np.log(linalg.det(mean) / np.sqrt(linalg.det(S1) * linalg.det(S2)))
    half = linalg.inv(linalg.sqrtm(S1))
    between = half @ S2 @ half
    d_r = linalg.norm(linalg.logm((between + between.T) / 2))
    found = {
        "kl": kl(m1, S1, m2, S2),
        J: kl(m1, S1, m2, S2) + kl(m2, S2, m1, S1),
        B: d_b,
        H: np.sqrt(2 - 2 * np.exp(-d_b)),
        R: d_r,
        JR: np.sqrt(u @ (P1 + P2) @ u) + d_r,
        BR: np.sqrt(u @ linalg.inv(mean) @ u) + d_r,
        "mean": linalg.norm(u),
    }
    for name in ("kl", J, B):
        found[f"sqrt_{name}"] = np.sqrt(found[name])
    return found


# ---------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.filterwarnings("ignore:logm result")
def test_every_measure_equals_its_definition(p):
    A, C = draw_gaussians(6, p, 1), draw_gaussians(4, p, 2)
    found = dissimilarity(A, C, METRICS)
    for i, first in enumerate(A):
        for j, second in enumerate(C):
            for name, value in compute_expected(*first, *second).items():
                assert found[name][i, j] == pytest.approx(value, rel=1e-9), name


GOLDEN = [
    (
        ([0, 0], [[2, 0.5], [0.5, 1]], [1, -1], [[1, -0.3], [-0.3, 3]]),
        {
            "kl": 1.092756619133,
            J: 3.067059401080,
            B: 0.295376750669,
            H: 0.715190691319,
            R: 1.542699508966,
            JR: 3.401220201732,
            BR: 2.655110491463,
        },
    ),
    (
        ([1, 0], [[2, 0.5], [0.5, 1]], [-1, 2], [[1, -0.3], [-0.3, 3]]),
        {
            J: 8.2482081492,
            B: 0.7594235734,
            H: 1.0315657225,
            R: 1.5426995090,
            JR: 5.2597408945,
            BR: 3.7675214740,
        },
    ),
    (
        ([0], [[1]], [2], [[4]]),
        {
            J: 3.625,
            B: 0.3115717757,
            H: 0.7317170933,
            R: 1.3862943611,
            JR: 3.6223623386,
            BR: 2.6512054252,
        },
    ),
    (
        ([0], [[1]], [3], [[4]]),
        {
            J: 6.75,
            B: 0.561571775657,
            H: 0.927025397109,
            R: 1.386294361120,
            JR: 4.740396327370,
            BR: 3.283660957221,
        },
    ),
    (([0.3], [[1.7]], [-1.1], [[0.4]]), {H: 0.7723032052}),
]


def test_pyriemann_has_the_same_numbers():
    distance = pytest.importorskip("pyriemann.utils.distance")
    S = draw_gaussians(12, 4).covariances
    found = dissimilarity(Gaussians(np.zeros((12, 4)), S), metric=[R, J, B])
    np.testing.assert_allclose(found[R], distance.pairwise_distance(S), atol=1e-7)
    theirs = distance.pairwise_distance(S, metric="kullback_sym")
    np.testing.assert_allclose(found[J], theirs, atol=1e-7)
    theirs = distance.pairwise_distance(S, metric="logdet")  # the root of twice d_B
    np.testing.assert_allclose(np.sqrt(2 * found[B]), theirs, atol=1e-6)


@pytest.mark.parametrize(("pair", "values"), GOLDEN)
def test_golden_values(pair, values):
    m1, S1, m2, S2 = pair
    found = dissimilarity(Gaussians([m1], [S1]), Gaussians([m2], [S2]), list(values))
    for name, value in values.items():
        assert found[name][0, 0] == pytest.approx(value, rel=1e-9), name
    if "kl" in values:
        back = dissimilarity(Gaussians([m2], [S2]), Gaussians([m1], [S1]), "kl")
        assert back[0, 0] == pytest.approx(1.974302781947, rel=1e-11)


def test_divergences_are_integrals_of_densities():
    gaussians = make_line([0.3, -1.1], [1.7, 0.4])
    p, q = (stats.norm(m, np.sqrt(v)) for m, v in ((0.3, 1.7), (-1.1, 0.4)))

    def integral(f):
        return integrate.quad(f, -20, 20, epsabs=1e-12)[0]

    rho = integral(lambda x: np.sqrt(p.pdf(x) * q.pdf(x)))
    apart = integral(lambda x: (np.sqrt(p.pdf(x)) - np.sqrt(q.pdf(x))) ** 2)
    kl = integral(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)))
    lk = integral(lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)))
    assert rho == pytest.approx(0.7017738796)
    found = dissimilarity(gaussians, metric=[B, H, "kl", J])
    assert np.exp(-found[B][0, 1]) == pytest.approx(rho, rel=1e-9)
    assert found[H][0, 1] ** 2 == pytest.approx(apart, rel=1e-9)
    np.testing.assert_allclose(found["kl"], [[0, kl], [lk, 0]], rtol=1e-9)
    assert found[J][0, 1] == pytest.approx(kl + lk, rel=1e-9)


def test_closed_forms_agree_with_monte_carlo():
    gaussians = draw_gaussians(2, 3, 4, spread=0.3)
    p, q = (stats.multivariate_normal(m, S) for m, S in gaussians)
    found = dissimilarity(gaussians, metric=["kl", B])
    x = p.rvs(200_000, random_state=0)
    ratio = q.logpdf(x) - p.logpdf(x)
    for estimate, value in ((-ratio, found["kl"][0, 1]), (np.exp(ratio / 2), None)):
        error = 4 * estimate.std() / np.sqrt(len(x))
        expected = np.exp(-found[B][0, 1]) if value is None else value
        assert abs(estimate.mean() - expected) < error


def test_special_cases():
    rng = np.random.default_rng(0)
    means, other = rng.normal(size=(5, 3)), draw_gaussians(5, 3).covariances
    # D6: multiples of one matrix.
    scales = np.array([1.0, 3.0, 0.1])
    multiples = Gaussians(np.zeros((3, 3)), scales[:, None, None] * other[0])
    expected = np.sqrt(3) * np.abs(np.log(scales[:, None] / scales))
    np.testing.assert_allclose(dissimilarity(multiples, metric=R), expected, atol=1e-13)
    # D7: one mean, or one covariance.
    centered = dissimilarity(Gaussians(np.ones((5, 3)), other), metric=[R, JR, BR, J, B])
    np.testing.assert_array_equal(centered[JR], centered[R])
    np.testing.assert_array_equal(centered[BR], centered[R])
    alike = dissimilarity(Gaussians(means, np.stack([other[0]] * 5)), metric=SIX)
    mahalanobis = cdist(means, means, "mahalanobis", VI=linalg.inv(other[0]))
    np.testing.assert_allclose(alike[BR], mahalanobis, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(alike[JR], np.sqrt(2) * mahalanobis, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(alike[J], mahalanobis**2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(alike[B], mahalanobis**2 / 8, rtol=1e-9, atol=1e-12)
    # D8: the identity.
    plain = Gaussians(means, np.stack([np.eye(3)] * 5))
    K_E = np.exp(-cdist(means, means) / 2)
    np.testing.assert_allclose(exponential_kernel(dissimilarity(plain), 2.0), K_E, atol=1e-12)
    K_JR = exponential_kernel(dissimilarity(plain, metric=JR), 2.0 * np.sqrt(2))
    np.testing.assert_allclose(K_JR, K_E, atol=1e-12)


@pytest.mark.parametrize("name", AFFINE)
def test_affine_maps_change_nothing(name):
    gaussians = draw_gaussians(8, 4)
    rng = np.random.default_rng(1)
    T, b = np.diag([1e-3, 1, 10, 1e4]) @ rng.normal(size=(4, 4)), rng.normal(size=4)
    moved = Gaussians(gaussians.means @ T.T + b, T @ gaussians.covariances @ T.T)
    np.testing.assert_allclose(
        dissimilarity(moved, metric=name), dissimilarity(gaussians, metric=name), rtol=1e-7
    )


def test_the_riemannian_distance_is_that_of_inverses():
    gaussians = draw_gaussians(8, 4)
    inverses = Gaussians(gaussians.means, np.linalg.inv(gaussians.covariances))
    np.testing.assert_allclose(
        dissimilarity(inverses, metric=R), dissimilarity(gaussians, metric=R), rtol=1e-10
    )


def test_inequalities_between_the_measures():
    found = dissimilarity(draw_gaussians(30, 3), metric=SIX)
    off = ~np.eye(30, dtype=bool)
    # D9: by convexity of the inverse the mean term of d_JR is at least √2 times that of d_BR.
    assert (found[JR] - found[R] >= np.sqrt(2) * (found[BR] - found[R]) - 1e-12).all()
    assert (found[JR][off] > found[BR][off]).all() and found[H].max() <= np.sqrt(2)


@pytest.mark.parametrize("name", METRICS)
def test_square_matrices_are_symmetric_with_zero_diagonal(name):
    gaussians = Gaussians.concatenate([draw_gaussians(70, 3), draw_gaussians(70, 3)[:2]])
    D = dissimilarity(gaussians, metric=name)
    assert (np.diag(D) == 0).all() and (D >= 0).all()
    if name in SYMMETRIC:
        np.testing.assert_array_equal(D, D.T)
    else:
        assert np.abs(D - D.T).max() > 1e-3
    assert D[0, 70] < 1e-6 and D[1, 71] < 1e-6  # the same Gaussians twice
    np.testing.assert_array_equal(dissimilarity(gaussians, gaussians, name), D)
    rectangular = dissimilarity(gaussians, gaussians[5:9], metric=name)
    np.testing.assert_allclose(rectangular, D[:, 5:9], rtol=1e-10, atol=1e-6)


def test_a_wide_ridge_leaves_the_means():
    gaussians = draw_gaussians(5, 3)
    wide = Gaussians(gaussians.means, gaussians.covariances + 1e12 * np.eye(3))
    found = 1e6 * dissimilarity(wide)
    np.testing.assert_allclose(found, cdist(gaussians.means, gaussians.means), atol=1e-2)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("p", [3, 30])
def test_the_automatic_ridge_makes_units_of_all_data_irrelevant(scale, p):
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(t, p)) + rng.normal(size=p) for t in (4, 9, 6, 1, 5)]
    found, scaled = (
        dissimilarity(Gaussians.from_sets([s * rows for rows in sets]), metric=AFFINE)
        for s in (1.0, scale)
    )
    for name in AFFINE:
        np.testing.assert_allclose(scaled[name], found[name], rtol=1e-9)


def test_the_order_of_objects_is_theirs_only():
    gaussians = draw_gaussians(12, 3)
    order = np.random.default_rng(0).permutation(12)
    D = dissimilarity(gaussians)
    np.testing.assert_allclose(dissimilarity(gaussians[order]), D[np.ix_(order, order)], rtol=1e-10)


def test_anchors_of_the_double_centred_matrix():
    D = dissimilarity(make_line([0, 2, 5], [1, 4, 1]))
    np.testing.assert_allclose(D[[0, 0, 1], [1, 2, 2]], [2.65120543, 5, 3.28366096], atol=1e-8)
    report = metric_report(D)
    assert report.largest_eigenvalue == pytest.approx(12.6083318, abs=1e-7)
    assert report.smallest_eigenvalue == pytest.approx(0, abs=1e-12)
    assert report.is_euclidean and report.is_metric
    far = dissimilarity(make_line([0, 10, 20], [1, 400, 1]))
    np.testing.assert_allclose(far[[0, 0, 1], [1, 2, 2]], [6.6976891, 20, 6.6976891], atol=1e-7)
    report = metric_report(far)
    assert report.largest_eigenvalue == pytest.approx(200)
    assert report.smallest_eigenvalue == pytest.approx(-36.7606405, abs=1e-7)
    assert not report.is_metric


def test_sets_of_one_vector_repeated_are_as_far_apart_as_these():
    sets = [np.tile([1.0, 2.0], (3, 1)), np.tile([4.0, 6.0], (5, 1))]
    gaussians = Gaussians.from_sets(sets, ridge=4.0)
    assert dissimilarity(gaussians)[0, 1] == pytest.approx(5 / 2, rel=1e-12)  # E7


# ---------------------------------------------------------------------- numerics


# Made by these matrices of integers, which floating point holds exactly, with 80 digits.
def make_integer_pair():
    i = np.arange(1, 8)
    V = np.vander(i, 6, increasing=True).astype(float)
    W = np.vander(i[::-1] - 4, 6, increasing=True).astype(float)
    means = np.array([[1.0, 2, 3, 4, 5, 6], [3.0, 2, 1, 0, 1, 2]])
    return Gaussians(means, np.stack([V.T @ V, W.T @ W + np.diag([0, 0, 0, 0, 0, 1.0])]))


EXACT = {
    J: 304454.87039569,
    B: 7.7798037988408,
    H: 1.4139178942236,
    R: 19.060253050646,
    JR: 31.884563190756,
    BR: 21.000564508764,
    "kl": 152083.23096875,
}


def test_ill_conditioned_pairs_keep_their_digits():
    gaussians = make_integer_pair()
    assert np.prod(np.linalg.cond(gaussians.covariances)) > 1e15
    found = dissimilarity(gaussians, metric=list(EXACT))
    for name, value in EXACT.items():
        assert found[name][0, 1] == pytest.approx(value, rel=1e-9), name


def make_ill_conditioned(p, *digits):
    rng = np.random.default_rng(0)
    turns = [np.linalg.qr(rng.normal(size=(p, p)))[0] for _ in digits]
    stack = [(Q * 10.0 ** -np.linspace(0, d, p)) @ Q.T for Q, d in zip(turns, digits, strict=True)]
    stack = np.stack([(S + S.T) / 2 for S in stack])
    return Gaussians(rng.normal(size=(len(digits), p)), stack)


@pytest.mark.parametrize("digits", [(12, 10), (7.5, 7.5), (15, 0), (14, 14)], ids=str)
def test_no_condition_number_breaks_a_measure(digits):
    pair = make_ill_conditioned(8, *digits)
    one, two = dissimilarity(pair, metric=METRICS), dissimilarity(pair[::-1], metric=METRICS)
    for name in SYMMETRIC:
        assert np.isfinite(one[name]).all() and one[name][0, 1] > 0
        assert one[name][0, 1] == pytest.approx(two[name][0, 1], rel=1e-6)
    # The mistake: the least eigenvalue of the whitened covariance is noise, its size and sign those
    # of the processor, where the least singular value of the product of factors keeps its digits.
    if digits == (14, 14):
        L = np.linalg.cholesky(pair.covariances)
        inverse = linalg.solve_triangular(L[0], np.eye(8), lower=True)
        noise = np.linalg.eigvalsh(inverse @ pair.covariances[1] @ inverse.T).min()
        least = linalg.svdvals(inverse @ L[1]).min() ** 2
        assert least == pytest.approx(1.9e-13, rel=0.05) and abs(noise - least) > 100 * least


def test_well_and_ill_conditioned_pairs_mix():
    mixed = Gaussians.concatenate([draw_gaussians(6, 8), make_ill_conditioned(8, 13, 4, 11)])
    found = dissimilarity(mixed, metric=METRICS)
    for i, j in [(0, 1), (0, 6), (7, 2), (7, 6), (6, 8), (8, 6)]:
        alone = dissimilarity(mixed[[i, j]], metric=METRICS)
        for name in METRICS:
            assert found[name][i, j] == pytest.approx(alone[name][0, 1], rel=1e-4), name


def test_alike_ill_conditioned_pairs_keep_their_digits():
    # Among round ones; inner products of such matrices with their inverses lose 12 digits, and so
    # does a factor of their mean. Four times a matrix has exactly twice its factor.
    S = make_ill_conditioned(8, 12).covariances
    stack = np.concatenate([S, 4 * S, np.stack([np.eye(8)] * 6)])
    found = dissimilarity(Gaussians(np.zeros((8, 8)), stack), metric=["kl", J, B])
    np.testing.assert_allclose(found[B][0, 1], 8 / 2 * np.log(1.25), rtol=1e-11)
    kl, lk = (8 / 2 * (c - 1 - np.log(c)) for c in (1 / 4, 4))
    np.testing.assert_allclose(found["kl"][[0, 1], [1, 0]], [kl, lk], rtol=1e-9)
    np.testing.assert_allclose(found[J][[0, 1], [1, 0]], kl + lk, rtol=1e-9)


def test_units_cost_no_digits():
    gaussians = draw_gaussians(10, 5)
    units = np.array([1e-8, 1e-3, 1, 1e4, 1e8])
    moved = Gaussians(gaussians.means * units, gaussians.covariances * np.outer(units, units))
    for name in AFFINE:
        np.testing.assert_allclose(
            dissimilarity(moved, metric=name), dissimilarity(gaussians, metric=name), rtol=1e-10
        )


def test_close_pairs_keep_their_digits():
    # d_B = 1e-12/8: the Hellinger distance by 1 - exp would be wrong in the fourth digit.
    found = dissimilarity(make_line([0, 1e-6], [1, 1]), metric=[H, B, J])
    assert found[B][0, 1] == pytest.approx(1.25e-13, rel=1e-6)
    assert found[H][0, 1] == pytest.approx(5e-7, rel=1e-6)
    assert found[J][0, 1] == pytest.approx(1e-12, rel=1e-6)


def test_the_hellinger_distance_saturates_and_does_not_overflow():
    found = dissimilarity(make_line([0, 1e6], [1, 1]), metric=[H, B])
    assert found[H][0, 1] == np.sqrt(2) and found[B][0, 1] == pytest.approx(1e12 / 8)


# ---------------------------------------------------------------------- low rank


def draw_thin_gaussians(n=12, p=60, r=5, seed=0, ridge=0.7):
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, p, r)) * rng.uniform(0.1, 3, size=(n, 1, r))
    factors[1, :, 1:] = 0  # of rank one
    factors[2] = 0
    factors[3] = factors[4] @ rng.normal(size=(r, r))  # one subspace twice
    factors[5, :, :2] = factors[6, :, :2]  # subspaces that meet
    return Gaussians(rng.normal(size=(n, p)) + 50, factors=factors, ridge=ridge)


@pytest.mark.parametrize("name", METRICS)
def test_low_rank_and_dense_paths_agree(name):
    for ridge in (0.7, np.random.default_rng(1).uniform(0.1, 9, 12)):
        thin = draw_thin_gaussians(ridge=ridge)
        dense = Gaussians(thin.means, thin.covariances)
        D = dissimilarity(dense, metric=name)
        np.testing.assert_allclose(dissimilarity(thin, metric=name), D, rtol=1e-9, atol=1e-9)
        rectangular = dissimilarity(thin, thin[3:8], name)
        np.testing.assert_allclose(rectangular, D[:, 3:8], rtol=1e-9, atol=1e-5)


def test_ranks_may_differ():
    a, b = draw_thin_gaussians(7), draw_thin_gaussians(9, r=8, seed=3, ridge=0.2)
    for name in METRICS:
        expected = dissimilarity(a, Gaussians(b.means, b.covariances), name)
        np.testing.assert_allclose(
            dissimilarity(a, b, name, method="low_rank"), expected, rtol=1e-9
        )


def test_most_generalised_eigenvalues_are_one():
    thin = draw_thin_gaussians()
    values = linalg.eigh(thin.covariances[0], thin.covariances[7], eigvals_only=True)
    assert np.isclose(values, 1, atol=1e-9).sum() >= 60 - 2 * 5  # D19


def test_near_duplicates_of_low_rank_are_near():
    thin = draw_thin_gaussians()
    strong = Gaussians(thin.means, factors=thin.factors * 1e4, ridge=0.7)
    twice = Gaussians.concatenate([strong, strong])
    D = dissimilarity(twice)
    assert np.abs(D[np.arange(12), 12 + np.arange(12)]).max() < 1e-8
    dense = dissimilarity(Gaussians(strong.means, strong.covariances))
    np.testing.assert_allclose(D[:12, :12], dense, rtol=1e-6)


@pytest.mark.parametrize(("t", "p", "rank"), [(20, 3, 2), (40, 8, 7), (30, 2, 1)])
def test_covariances_that_rounding_makes_definite_are_refused(t, p, rank):
    # Half of such covariances have a Cholesky factor; its last entry is rounding.
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        rows = [rng.normal(size=(t, rank)) @ rng.normal(size=(rank, p)) for _ in range(2)]
        try:
            dissimilarity(Gaussians.from_sets(rows, ridge=0.0))
        except ValueError as error:
            assert "Use a larger ridge, or shrinkage" in str(error)
            refused += 1
    assert refused >= 58
    assert np.isfinite(dissimilarity(make_ill_conditioned(8, 15, 0))).all()


def test_factors_without_columns_are_spheres():
    none = Gaussians([[0.0, 0.0], [3.0, 4.0]], factors=np.empty((2, 2, 0)), ridge=4.0)
    for method in ("auto", "low_rank", "dense"):
        assert dissimilarity(none, method=method)[0, 1] == pytest.approx(2.5)
    np.testing.assert_array_equal(none.covariances, [4 * np.eye(2)] * 2)


def test_a_ridge_that_is_lost_in_rounding_is_refused():
    thin = draw_thin_gaussians()
    with pytest.raises(ValueError, match="numerically singular.*Pass a larger ridge"):
        dissimilarity(Gaussians(thin.means, factors=thin.factors * 1e9, ridge=0.7))


def test_the_path_is_chosen_and_may_be_forced():
    thin = draw_thin_gaussians()
    np.testing.assert_allclose(dissimilarity(thin, method="dense"), dissimilarity(thin), rtol=1e-9)
    dense = Gaussians(thin.means, thin.covariances)
    with pytest.raises(ValueError, match='method="low_rank" needs'):
        dissimilarity(dense, method="low_rank")
    np.testing.assert_allclose(dissimilarity(thin, dense), dissimilarity(thin), atol=1e-6)


# ---------------------------------------------------------------------- the engine


@pytest.mark.parametrize("make", [draw_thin_gaussians, lambda: draw_gaussians(150, 3)])
def test_threads_and_several_at_once_change_nothing(make):
    gaussians = make()
    found = dissimilarity(gaussians, metric=METRICS)
    threads = dissimilarity(gaussians, metric=METRICS, n_jobs=2)
    for name in METRICS:
        np.testing.assert_allclose(found[name], threads[name], rtol=1e-12, atol=1e-12)
        again = dissimilarity(gaussians, metric=METRICS, n_jobs=2)[name]
        np.testing.assert_array_equal(again, threads[name])
        alone = dissimilarity(gaussians, metric=name)
        np.testing.assert_allclose(alone, found[name], rtol=1e-12, atol=1e-12)


def test_the_result_for_a_new_object_does_not_depend_on_its_batch():
    old, new = draw_gaussians(40, 3), draw_gaussians(9, 3, 7)
    together = dissimilarity(new, old)
    for k in range(9):
        np.testing.assert_allclose(dissimilarity(new[k : k + 1], old)[0], together[k], rtol=1e-12)
    np.testing.assert_allclose(dissimilarity(old, new), together.T, rtol=1e-10)


def test_kl_keeps_its_direction_in_every_shape():
    a, b = draw_gaussians(7, 2), draw_gaussians(3, 2, 5)
    wide, tall = dissimilarity(b, a, ["kl", R]), dissimilarity(a, b, ["kl", R])
    expected = compute_expected(*a[4], *b[1])["kl"], compute_expected(*b[1], *a[4])["kl"]
    assert tall["kl"][4, 1] == pytest.approx(expected[0])
    assert wide["kl"][1, 4] == pytest.approx(expected[1])


def test_memory_is_the_result_and_little_more():
    import tracemalloc

    gaussians = draw_gaussians(1000, 2)
    tracemalloc.start()
    D = dissimilarity(gaussians, metric=B)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < D.nbytes * 1.5 + 8e6


@pytest.mark.parametrize("make", [draw_thin_gaussians, lambda: draw_gaussians(25, 3)])
def test_dask_blocks_hold_the_same_numbers(make):
    pytest.importorskip("dask.array")
    gaussians = make()
    names = ["kl", BR, H, "mean"]
    whole = dissimilarity(gaussians, metric=names)
    lazy = dissimilarity(gaussians, metric=names, chunks=7)
    for name in names:
        assert lazy[name].chunks[0][0] == 7
        np.testing.assert_allclose(lazy[name].compute(), whole[name], rtol=1e-10, atol=1e-12)
    D = dissimilarity(gaussians, chunks=10).compute()
    np.testing.assert_array_equal(D, D.T)
    np.testing.assert_allclose(D, whole[BR], rtol=1e-10)
    new = dissimilarity(gaussians[:4], gaussians, chunks=3).compute()
    np.testing.assert_allclose(new, whole[BR][:4], rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("make", [draw_thin_gaussians, lambda: draw_gaussians(25, 3)])
def test_dask_blocks_go_to_another_process_and_hold_the_same_numbers(make):
    """As a scheduler sends them: each task by itself, as bytes."""
    pytest.importorskip("dask.array")
    cloudpickle = pytest.importorskip("cloudpickle")
    gaussians = make()
    names = ["kl", BR, B]
    whole = dissimilarity(gaussians, metric=names)
    lazy = dissimilarity(gaussians, metric=names, chunks=9)
    new = dissimilarity(gaussians[:4], gaussians, names, chunks=20)
    for name in names:
        sent = [cloudpickle.loads(cloudpickle.dumps(blocks[name])) for blocks in (lazy, new)]
        found = [blocks.compute(scheduler="synchronous") for blocks in sent]
        np.testing.assert_allclose(found[0], whole[name], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found[1], whole[name][:4], rtol=1e-9, atol=1e-6)


@pytest.mark.slow  # the test before sends the same blocks as bytes, without a cluster
def test_two_worker_processes_compute_the_same_numbers(tmp_path):
    distributed = pytest.importorskip("distributed")
    stacks = [draw_gaussians(25, 3), draw_thin_gaussians()]
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(tmp_path),
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = set(client.run(os.getpid).values())
        lazy = [dissimilarity(some, metric=["kl", BR, B], chunks=9) for some in stacks]
        lazy += [dissimilarity(some[:4], some, ["kl", BR, B], chunks=20) for some in stacks]
        found = client.gather([client.compute(blocks) for blocks in lazy])
    assert len(workers) == 2 and os.getpid() not in workers
    for k, some in enumerate(stacks):
        for name, whole in dissimilarity(some, metric=["kl", BR, B]).items():
            np.testing.assert_allclose(found[k][name], whole, rtol=1e-10, atol=1e-12)
            new = found[len(stacks) + k][name]
            np.testing.assert_allclose(new, whole[:4], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[[0.0]]],), "A must be Gaussians; got list. Use Gaussians.from_sets"),
        ((np.zeros((2, 2)),), "A must be Gaussians; got ndarray"),
        ((make_line([0], [1]), draw_gaussians(2, 2)), "A has 1 features, but B has 2"),
        ((make_line([0], [1]), None, "jefreys"), "Did you mean 'jeffreys'"),
        ((make_line([0], [1]), None, []), "at least one"),
        ((make_line([0, 1], [1, 0]),), "Gaussian 1 is not positive definite"),
        ((make_line([0], [1])[:0],), "A is empty. At least one Gaussian"),
        ((make_line([0, 1e200], [1e-200, 1e-200]),), "too large for floating-point"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_bad_input_is_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        dissimilarity(*arguments)


def test_one_gaussian_has_a_matrix():
    assert dissimilarity(make_line([0], [1])).tolist() == [[0.0]]


# ---------------------------------------------------------------------- metrics, or not


@pytest.mark.parametrize("name", [H, R])
def test_the_true_metrics_keep_the_triangle_inequality(name):
    for p in (1, 2, 4):
        report = metric_report(dissimilarity(draw_gaussians(30, p), metric=name))
        assert report.n_triples == 30 * 29 * 28 and report.is_exhaustive  # above 20000 (D10)
        assert report.is_metric and report.triangle_violations == 0


CERTIFICATES = [  # L, S: d_BR, by way of the middle; d_JR, by way of the middle
    (100, 100, 100, 23.28229126658, 141.42135623731, 109.70909658319),
    (10, 3, 10, 9.26829238920, 14.14213562373, 13.74422996113),
    (8, 3, 8, 7.85407882683, 11.31370849898, 11.43482888437),
]


@pytest.mark.parametrize(("L", "S", "br", "br_by", "jr", "jr_by"), CERTIFICATES)
def test_a_broad_gaussian_is_a_shortcut(L, S, br, br_by, jr, jr_by):
    """The works call d_BR and d_JR metrics. They are not (D11)."""
    found = dissimilarity(make_line([0, L / 2, L], [1, S, 1]), metric=[BR, JR])
    for name, direct, by in ((BR, br, br_by), (JR, jr, jr_by)):
        D = found[name]
        assert D[0, 2] == pytest.approx(direct, rel=1e-11)
        assert D[0, 1] + D[1, 2] == pytest.approx(by, rel=1e-11)
        report = metric_report(D)
        assert report.is_metric == (direct <= by)
        if direct > by:
            assert report.worst_triple == (0, 1, 2)
            assert report.triangle_violations == pytest.approx(1 / 3)
            assert report.largest_violation == pytest.approx(direct - by)


def test_divergences_break_the_triangle_inequality():
    found = dissimilarity(make_line([0, 1, 2], [1, 1, 1]), metric=[J, B])
    assert found[J][0, 2] == pytest.approx(4) and found[J][0, 1] == pytest.approx(1)
    assert found[B][0, 2] == pytest.approx(0.5) and found[B][0, 1] == pytest.approx(0.125)
    roots = dissimilarity(draw_gaussians(30, 2), metric=["sqrt_jeffreys", "sqrt_bhattacharyya"])
    for D in roots.values():
        assert metric_report(D).triangle_violations > 0.01


def test_families_on_which_the_corrected_measures_are_metrics():
    gaussians = draw_gaussians(25, 3)
    alike = Gaussians(gaussians.means, np.stack([gaussians.covariances[0]] * 25))
    centered = Gaussians(np.zeros((25, 3)), gaussians.covariances)
    for some in (alike, centered):
        for D in dissimilarity(some, metric=[BR, JR]).values():
            assert metric_report(D).is_metric  # D12


SIX_ON_A_LINE = ([0, 50, 100, 25, 75, 50], [1, 1, 1, 1000, 1000, 1000])


def test_kernels_of_the_corrected_measures_are_indefinite():
    found = dissimilarity(make_line(*SIX_ON_A_LINE), metric=[BR, JR])  # D15
    report = metric_report(found[BR], width=80.252)
    assert report.kernel_smallest_eigenvalue == pytest.approx(-0.3140, abs=5e-5)
    assert report.smallest_eigenvalue == pytest.approx(-2912.4, abs=0.05)
    assert report.largest_eigenvalue == pytest.approx(5000.1, abs=0.05)
    jr = metric_report(found[JR], width=31.92)
    assert jr.kernel_smallest_eigenvalue == pytest.approx(-0.1251, abs=5e-5)
    assert not report.is_metric and not report.is_euclidean


def test_the_kernel_of_the_jeffreys_divergence_is_indefinite():
    D = dissimilarity(make_line([-2.1, -1.1, -1.2], [4.4, 0.2, 1.1]), metric=J)  # D14
    smallest = np.linalg.eigvalsh(exponential_kernel(D, 10.0))[0]
    assert smallest == pytest.approx(-0.0572, abs=5e-5)


def test_the_riemannian_kernel_is_indefinite_from_three_dimensions_on():
    s = 15 / np.sqrt(6)
    axes = [((i, j, 1), 2 * s, -s) for i in range(4) for j in range(4)]
    axes += [(v, -2 * s, s) for i in range(4) for v in ((1, 0, -i), (0, 1, -i))]
    stack = []
    for axis, along, across in axes:
        v = np.array(axis) / np.linalg.norm(axis)
        stack.append(np.exp(across) * np.eye(3) + (np.exp(along) - np.exp(across)) * np.outer(v, v))
    D = dissimilarity(Gaussians(np.zeros((24, 3)), np.stack(stack)), metric=R)
    width = 10 * np.median(D[np.triu_indices(24, 1)])
    report = metric_report(D, width)  # D16
    assert report.kernel_smallest_eigenvalue == pytest.approx(-6.76e-4, rel=0.1)
    assert report.is_metric
    centered = double_center(D)  # of distances that are not squared
    assert np.linalg.eigvalsh(centered)[0] == pytest.approx(-0.573, abs=2e-3)


def test_a_metric_need_not_be_euclidean():
    star = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0.0]])  # D17
    report = metric_report(star)
    assert report.is_metric and not report.is_euclidean
    assert report.smallest_eigenvalue == pytest.approx(-0.25)
    assert report.negative_share == pytest.approx(0.25 / 4.25)


def test_hellinger_is_euclidean_and_its_kernel_positive():
    for p in (1, 3):
        D = dissimilarity(draw_gaussians(40, p), metric=[H, B])
        for width in (0.01, 0.5, 30.0):
            report = metric_report(D[H], width)
            assert report.kernel_smallest_eigenvalue > -1e-10 * 40  # D13
            assert report.smallest_eigenvalue > -1e-12 * 40 and report.negative_share < 1e-6
        assert np.linalg.eigvalsh(exponential_kernel(D[B], 1.0))[0] > -1e-10 * 40


TABLE = {  # % of n³ triples that violate, and negative mass, for d_BR, d_JR, d_J, d_B, d_H
    "iris": ([0.0002, 0.002, 29.9, 29.9, 0], [0.009, 0.007, 0.207, 0.206, 0]),
    "wine": ([9.6, 16.0, 29.4, 27.8, 0], [0.283, 0.236, 0.402, 0.407, 0]),
    "wine, scaled": ([0, 0, 12.8, 13.4, 0], [0.033, 0.032, 0.205, 0.211, 0]),
    "new_thyroid": ([0.36, 3.4, 25.6, 21.7, 0], [0.094, 0.182, 0.366, 0.317, 0]),
    "new_thyroid, scaled": ([0.001, 0.07, 23.2, 22.9, 0], [0.014, 0.020, 0.309, 0.315, 0]),
    "glass": ([0, 0.004, 21.3, 21.2, 0], [0.028, 0.029, 0.216, 0.202, 0]),
}
REAL = {"iris": load_iris().data, "wine": load_wine().data}
# Both from the UCI repository: Quinlan 1986, https://doi.org/10.24432/C5D010; German 1987,
# https://doi.org/10.24432/C5WW2P.
REAL |= np.load(Path(__file__).parents[1] / "data" / "thyroid_and_glass.npz")


@pytest.mark.parametrize("data", TABLE)
def test_the_report_on_real_neighbourhoods(data):
    X = REAL[data.partition(",")[0]]
    X = (X - X.mean(axis=0)) / X.std(axis=0) if "scaled" in data else X
    found = dissimilarity(Gaussians.from_neighborhoods(X, 8, 1.0), metric=[BR, JR, J, B, H])
    reports = [metric_report(D) for D in found.values()]
    shares = [100 * r.triangle_violations * r.n_triples / r.n**3 for r in reports]
    np.testing.assert_allclose(shares, TABLE[data][0], atol=0.05)
    # Glass has neighbours equally far.
    atol = 1.1e-3 if data == "glass" else 6e-4
    np.testing.assert_allclose([r.negative_share for r in reports], TABLE[data][1], atol=atol)
    if data == "iris":
        assert 0 < shares[0] < shares[1] < 0.003


def test_sampled_triples_estimate_the_share():
    D = dissimilarity(draw_gaussians(60, 2), metric=J)
    exact = metric_report(D)
    sampled = metric_report(D, max_triples=100_000, random_state=1)
    assert not sampled.is_exhaustive and sampled.n_triples == 100_000
    assert metric_report(D, max_triples=60 * 59 * 58) == exact
    assert sampled.triangle_violations == pytest.approx(exact.triangle_violations, abs=0.01)
    assert 0 < sampled.largest_violation <= exact.largest_violation
    i, k, j = sampled.worst_triple
    assert D[i, j] - D[i, k] - D[k, j] == pytest.approx(sampled.largest_violation)
    counted = sum(
        D[i, j] > D[i, k] + D[k, j] for i in range(60) for j in range(60) for k in range(60)
    )
    assert exact.triangle_violations * exact.n_triples == pytest.approx(counted)


def test_the_closure_is_the_largest_metric_below():
    from scipy.sparse.csgraph import shortest_path

    D = dissimilarity(draw_gaussians(40, 2), metric=J)
    closed = metric_closure(D)
    np.testing.assert_allclose(closed, shortest_path(D), rtol=1e-12)
    assert metric_report(closed).is_metric and (closed <= D).all()
    metric = dissimilarity(draw_gaussians(40, 2), metric=R)
    np.testing.assert_allclose(metric_closure(metric), metric, rtol=1e-12)
    # Objects at distance 0 are joined, not apart.
    zero = metric_closure([[0, 0, 3.0], [0, 0, 9.0], [3.0, 9.0, 0]])
    assert zero[1, 2] == 3


@pytest.mark.parametrize(
    ("D", "message"),
    [
        ([[0, 1.0]], "square"),
        ([[0, 1.0], [2.0, 0]], r"symmetric; D\[0, 1\] is 1.0"),
        ([[0, -1.0], [-1.0, 0]], r"at least 0; D\[0, 1\]"),
        ([[0, np.nan], [np.nan, 0]], "finite"),
        ([[1.0, 1.0], [1.0, 0]], "diagonal"),
        ([1.0], "matrix"),
    ],
)
def test_bad_matrices_are_refused(D, message):
    for function in (metric_report, metric_closure):
        with pytest.raises(ValueError, match=message):
            function(D)


def test_a_report_of_equal_objects():
    report = metric_report(np.zeros((4, 4)))
    assert report.is_metric and report.is_euclidean
    assert "4 objects" in str(report)
    # Where most are the same, their distances are rounding and no measure of size.
    few = draw_gaussians(5, 20, 1)
    many = few[np.repeat(np.arange(5), [25, 4, 1, 1, 1])]
    for name in (H, R, "mean"):
        D = dissimilarity(many, metric=name)
        report = metric_report(D)
        assert report.is_metric, name
        assert 0.1 * D.max() < report.kernel_width <= D.max()
    assert not metric_report(
        dissimilarity(make_line([0] * 9 + [50, 100], [1] * 9 + [100, 1]))
    ).is_metric


def test_single_precision_may_be_symmetric_but_for_its_rounding():
    D = dissimilarity(draw_gaussians(6, 2)).astype(np.float32)
    D[0, 1] = np.nextafter(D[0, 1], np.float32(9))
    assert metric_report(D).n == 6
    with pytest.raises(ValueError, match="symmetric"):
        metric_report(D.astype(np.float64))


# ---------------------------------------------------------------------- kernels


def test_widths_are_quantiles_of_pairs():
    D = dissimilarity(draw_gaussians(30, 2))
    pairs = D[np.triu_indices(30, 1)]
    for q in (0.1, 0.5, 0.9):
        assert quantile_width(D, q) == pytest.approx(np.quantile(np.repeat(pairs, 2), q))
    assert quantile_width(D[:4]) == pytest.approx(np.quantile(D[:4], 0.5))
    some = quantile_width(D, n_pairs=1000, random_state=0)
    assert some == quantile_width(D, n_pairs=1000, random_state=0)
    assert some == pytest.approx(quantile_width(D), rel=0.2)
    with pytest.raises(ValueError, match="quantile of D is 0"):
        quantile_width(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="one object"):
        quantile_width([[0.0]])


def test_kernels_are_exponentials_of_dissimilarities():
    D = dissimilarity(draw_gaussians(9, 2))
    np.testing.assert_allclose(exponential_kernel(D, 3.0), np.exp(-D / 3))
    np.testing.assert_array_equal(exponential_kernel(D), exponential_kernel(D, quantile_width(D)))
    with pytest.raises(ValueError, match="Pass the width of the training kernel"):
        exponential_kernel(D[:3])
    with pytest.raises(ValueError, match="width must be"):
        exponential_kernel(D, 0.0)


def make_indefinite():
    return exponential_kernel(dissimilarity(make_line(*SIX_ON_A_LINE)), 80.252)


def test_clipping_gives_the_nearest_positive_kernel():
    K = make_indefinite()
    repair = repair_kernel(K)
    values = np.linalg.eigvalsh(K)
    assert repair.smallest_eigenvalue == pytest.approx(-0.3140, abs=5e-5)
    assert repair.negative_share == pytest.approx(-values[values < 0].sum() / abs(values).sum())
    assert np.linalg.eigvalsh(repair.kernel)[0] > -1e-13
    lost = np.sqrt(np.sum(values[values < 0] ** 2))
    assert np.linalg.norm(repair.kernel - K) == pytest.approx(lost)
    assert repair.change == pytest.approx(lost / np.linalg.norm(K))
    # Rows of old objects among the new get what the old ones have.
    np.testing.assert_allclose(repair.rows(K[2:4]), repair.kernel[2:4], atol=1e-13)


def test_shifting_keeps_all_but_the_diagonal():
    K = make_indefinite()
    repair = repair_kernel(K, "shift")
    np.testing.assert_allclose(repair.kernel - K, -np.linalg.eigvalsh(K)[0] * np.eye(6), atol=1e-13)
    assert abs(np.linalg.eigvalsh(repair.kernel)[0]) < 1e-13
    np.testing.assert_array_equal(repair.rows(K[:2]), K[:2])


def test_a_positive_kernel_is_left_alone():
    K = exponential_kernel(dissimilarity(draw_gaussians(20, 2), metric=H))
    for method in ("clip", "shift"):
        repair = repair_kernel(K, method)
        np.testing.assert_array_equal(repair.kernel, K)
        assert repair.change == repair.negative_share == 0
        np.testing.assert_array_equal(repair.rows(K[:3]), K[:3])
    with pytest.raises(ValueError, match=r"shape \(m, 20\)"):
        repair.rows(K[:, :3])
    with pytest.raises(ValueError, match="symmetric"):
        repair_kernel([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="method must be"):
        repair_kernel(K, "flip")


@pytest.mark.parametrize("name", SIX)
def test_kernels_serve_a_support_vector_machine(name):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    # Classes differ in the covariance only.
    sets = [rng.normal(size=(30, 2)) @ [[1, 0.9 * c], [0, 1]] for c in y]
    gaussians = Gaussians.from_sets(sets)
    train, test = np.arange(50), np.arange(50, 80)
    D = dissimilarity(gaussians[train], metric=name)
    width = quantile_width(D)
    repair = repair_kernel(exponential_kernel(D, width))
    machine = SVC(kernel="precomputed").fit(repair.kernel, y[train])
    new = dissimilarity(gaussians[test], gaussians[train], name)
    assert machine.score(repair.rows(exponential_kernel(new, width)), y[test]) > 0.8
