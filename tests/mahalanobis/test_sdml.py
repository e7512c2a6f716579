"""SDML compared with its program, solved by another solver, and with the graphical lasso."""

import numpy as np
import pytest
from conic import solved
from sklearn.covariance import graphical_lasso
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from nearfar import SDML, Pairs

SCALES = np.array([1.0, 3.0, 10.0, 30.0])


def problem(seed, n=40, p=4):
    rng = np.random.RandomState(seed)
    y = rng.randint(2, size=n)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + 2 * y[:, None] * rng.normal(size=p)
    return X, Pairs.from_labels(y, n_similar=30, n_dissimilar=20, random_state=seed)


def linear_term(X, pairs, balance, prior="isotropic"):
    """Return M0⁻¹ + balance K for standardized features, pair by pair."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    K = np.zeros((X.shape[1],) * 2)
    for some, sign in ((pairs.similar, 1), (pairs.dissimilar, -1)):
        for i, j in some:
            K += sign * np.outer(Z[i] - Z[j], Z[i] - Z[j])
    K /= len(pairs.similar) + len(pairs.dissimilar)
    if not isinstance(prior, str):
        inverse = np.linalg.inv(prior * np.outer(X.std(axis=0), X.std(axis=0)))
    else:
        inverse = np.eye(len(K)) if prior == "isotropic" else np.corrcoef(X.T)
    return inverse + balance * K


def standardised(sdml, X):
    return sdml.get_mahalanobis_matrix() * np.outer(X.std(axis=0), X.std(axis=0))


def objective(M, S, sparsity):
    off = np.abs(M).sum() - np.abs(np.diag(M)).sum()
    return np.sum(M * S) - np.linalg.slogdet(M)[1] + sparsity * off


def optimum(S, sparsity):
    cp = pytest.importorskip("cvxpy")
    M = cp.Variable(S.shape, symmetric=True)
    off = cp.sum(cp.abs(cp.multiply(M, 1 - np.eye(len(S)))))
    program = cp.Problem(cp.Minimize(cp.trace(M @ S) - cp.log_det(M) + sparsity * off))
    return solved(program)


@pytest.mark.parametrize("scales", [1.0, SCALES], ids=["plain", "scaled columns"])
@pytest.mark.parametrize("seed", range(5))
def test_optimum_of_the_program(seed, scales):
    X, pairs = problem(seed)
    X = X * scales
    sparsity = [0.01, 0.1, 0.3, 0.01, 0.05][seed]
    sdml = SDML(sparsity=sparsity).fit(X, supervision=pairs)
    S = linear_term(X, pairs, sdml.balance_)
    best = optimum(S, sparsity)
    assert abs(sdml.objective_ - best) < 1e-4 * max(1, abs(best))
    assert best - 0.01 * max(1, abs(best)) <= sdml.dual_bound_ <= best + 1e-6
    M = standardised(sdml, X)
    assert objective(M, S, sparsity) == pytest.approx(sdml.objective_, abs=1e-8)


@pytest.mark.parametrize("prior", ["covariance", "array"])
def test_other_priors(prior):
    X, pairs = problem(8)
    X = X * SCALES
    given = np.diag(SCALES**-2) + 0.001 if prior == "array" else prior
    sdml = SDML(0.05, sparsity=0.05, prior=given).fit(X, supervision=pairs)
    best = optimum(linear_term(X, pairs, 0.05, given), 0.05)
    assert abs(sdml.objective_ - best) < 1e-4 * max(1, abs(best))


def test_the_graphical_lasso_of_scikit_learn():
    X, y = load_wine(return_X_y=True)
    pairs = Pairs.from_labels(y, random_state=0)
    sdml = SDML(0.1, sparsity=0.1).fit(X, supervision=pairs)
    _, precision = graphical_lasso(linear_term(X, pairs, 0.1), 0.1, tol=1e-6, max_iter=1000)
    np.testing.assert_allclose(standardised(sdml, X), precision, atol=1e-3)
    # The zeros are exact and in the right places.
    zero = np.abs(standardised(sdml, X)) < 1e-12
    assert zero.sum() > 20 and np.abs(precision[zero]).max() < 1e-3


def test_without_sparsity_it_is_an_inverse():
    X, pairs = problem(1)
    sdml = SDML(0.1, sparsity=0.0).fit(X, supervision=pairs)
    S = linear_term(X, pairs, 0.1)
    np.testing.assert_allclose(standardised(sdml, X), np.linalg.inv(S), rtol=1e-8)
    assert sdml.objective_ == pytest.approx(objective(np.linalg.inv(S), S, 0.0))
    near = SDML(0.1, sparsity=1e-7, tol=1e-12).fit(X, supervision=pairs)
    assert near.objective_ == pytest.approx(sdml.objective_, abs=1e-4)


def test_much_sparsity_leaves_a_diagonal():
    X, pairs = problem(2)
    sdml = SDML(0.1, sparsity=100.0).fit(X, supervision=pairs)
    S = linear_term(X, pairs, 0.1)
    np.testing.assert_allclose(standardised(sdml, X), np.diag(1 / np.diag(S)), atol=1e-9)
    assert sdml.duality_gap_ < 1e-9


def test_too_large_a_balance_names_the_largest_that_works():
    X, y = load_iris(return_X_y=True)
    pairs = Pairs.from_labels(y, random_state=0)
    with pytest.raises(ValueError, match="balance=0.5 the problem is unbounded") as error:
        SDML(0.5).fit(X, supervision=pairs)
    largest = float(str(error.value).split()[-1].rstrip("."))
    least = np.linalg.eigvalsh(linear_term(X, pairs, 1.0) - np.eye(4))[0]
    assert largest == pytest.approx(-1 / least, rel=0.01) and largest < -1 / least
    SDML(largest).fit(X, supervision=pairs)
    assert SDML().fit(X, supervision=pairs).balance_ == pytest.approx(-0.9 / least)
    # With similar pairs alone, any balance is valid.
    similar = Pairs(pairs.similar, [], n_samples=150)
    assert SDML().fit(X, supervision=similar).balance_ == 0.5
    assert np.isfinite(SDML(1e6).fit(X, supervision=similar).components_).all()


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
@pytest.mark.parametrize("prior", ["isotropic", "covariance"])
def test_defaults_work_where_others_fail(load, prior):
    X, y = load(return_X_y=True)
    sdml = SDML(prior=prior).fit(X, y)
    assert np.isfinite(sdml.components_).all() and sdml.duality_gap_ < 1e-4


def test_constant_and_redundant_features_and_few_rows():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(12, 20))
    X[:, 3] = X[:, 2]
    X[:, 5] = 7.0
    y = np.repeat([0, 1], 6)
    for settings in ({}, {"prior": "covariance"}, {"prior": "covariance", "sparsity": 0.0}):
        sdml = SDML(**settings).fit(X, y)
        assert np.isfinite(sdml.components_).all() and not sdml.components_[:, 5].any()
        assert sdml.components_.any() and np.isfinite(sdml.objective_)
    with pytest.raises(ValueError, match="prior of full rank"):
        SDML(prior=np.diag(np.r_[0.0, np.ones(19)])).fit(X, y)
    with pytest.raises(ValueError, match=r"prior must have shape \(20, 20\)"):
        SDML(prior=np.eye(3)).fit(X, y)
    one = SDML().fit(X[:, :1], y)
    assert one.components_.shape == (1, 1) and one.duality_gap_ == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_free_of_units(factor):
    X, pairs = problem(6)
    plain, other = (SDML().fit(X * f, supervision=pairs) for f in (1.0, factor))
    np.testing.assert_allclose(other.components_ * factor, plain.components_, rtol=1e-6)


def test_bad_supervision():
    X = np.random.RandomState(0).normal(size=(6, 2))
    X[1] = X[0]
    with pytest.raises(ValueError, match="SDML learns from pairs, but supervision contains no"):
        SDML().fit(X, supervision=Pairs([], [], n_samples=6))
    with pytest.raises(
        ValueError, match="Every similar pair in supervision has zero length .1 pairs"
    ):
        SDML().fit(X, supervision=Pairs([[0, 1]], [[2, 3]], n_samples=6))
    with pytest.raises(ValueError, match="made for 7 samples but X has 6"):
        SDML().fit(X, supervision=Pairs([[0, 1]], [], n_samples=7))
    with pytest.raises(ValueError, match="supervision must be Pairs; got list"):
        SDML().fit(X, supervision=[[0, 1]])
    with pytest.warns(UserWarning, match="1 of 2 dissimilar pairs have zero length") as caught:
        SDML().fit(X, supervision=Pairs([[2, 3]], [[0, 1], [0, 4]], n_samples=6))
    assert len(caught) == 1


def test_pairs_said_both_ways_and_pairs_of_equal_points_cost_slack_only():
    X, pairs = problem(9)
    X[1] = X[0]
    similar = np.vstack([[[0, 1]], pairs.dissimilar[:2], pairs.similar])
    both = Pairs(similar, pairs.dissimilar, n_samples=len(X), conflicts="keep")
    learned = SDML().fit(X, supervision=both)
    assert np.isfinite(learned.components_).all() and learned.duality_gap_ < 1e-4
