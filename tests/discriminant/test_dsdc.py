"""DSDC compared with eigenproblems, a root found by bisection, and J3 of LDA."""

import numpy as np
import pytest
from scipy import linalg, optimize
from sklearn.datasets import load_digits, load_wine

from nearfar import DSDC, LDA
from nearfar.solvers.eigen import difference_weight


def classes(n=120, p=12, c=6, seed=0):
    """Return correlated classes of different sizes."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.repeat(np.arange(c), 3), rng.integers(c, size=n - 3 * c)]
    mixing = rng.normal(size=(p, p))
    return (rng.normal(size=(n, p)) + 1.5 * rng.normal(size=(c, p))[y]) @ mixing, y


def scatters(X, y):
    """Return S_b and S_w divided by n, computed row by row."""
    between, within = (np.zeros((X.shape[1], X.shape[1])) for _ in range(2))
    mean = X.mean(axis=0)
    for row, label in zip(X, y, strict=True):
        own = X[y == label].mean(axis=0)
        between += np.outer(own - mean, own - mean) / len(X)
        within += np.outer(row - own, row - own) / len(X)
    return between, within


def best_ratio(between, within, q):
    """Return the z at which the q largest eigenvalues of S_b - z S_w sum to zero."""

    def largest(z):
        return np.linalg.eigvalsh(between - z * within)[-q:].sum()

    top = linalg.eigh(between, within, eigvals_only=True)[-1]
    return optimize.brentq(largest, 0, 1.01 * top, xtol=1e-13)


def projector(rows):
    return rows.T @ rows


@pytest.mark.parametrize("within_weight", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("n", [120, 20])
def test_a_number_gives_eigenvectors_of_the_difference(within_weight, n):
    """Also with few rows, where S_w is singular and is not regularized."""
    X, y = classes(n=n, p=12, c=4)
    X, y = (X, y) if n > 100 else (np.hstack([X, X[:, :5] @ np.ones((5, 13))]), y)
    between, within = scatters(X, y)
    dsdc = DSDC(2, within_weight=within_weight).fit(X, y)
    values, vectors = np.linalg.eigh(between - within_weight * within)
    np.testing.assert_allclose(dsdc.eigenvalues_, values[::-1][:2], rtol=1e-8)
    np.testing.assert_allclose(projector(dsdc.components_), projector(vectors[:, -2:].T), atol=1e-7)
    assert dsdc.within_weight_ == within_weight


@pytest.mark.parametrize("q", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_the_rules(q, seed):
    X, y = classes(seed=seed)
    between, within = scatters(X, y)
    fisher = linalg.eigh(between, within, eigvals_only=True)[::-1]
    weights = {
        "trace_ratio": best_ratio(between, within, q),
        "max_eig": fisher[0],
        "sum_eig": fisher[:q].sum(),
    }
    for rule, within_weight in weights.items():
        dsdc = DSDC(q, within_weight=rule).fit(X, y)
        np.testing.assert_allclose(dsdc.within_weight_, within_weight, rtol=1e-8)
        np.testing.assert_allclose(
            difference_weight(rule, between, within, q, 1e-12), within_weight
        )
        again = DSDC(q, within_weight=dsdc.within_weight_).fit(X, y)
        np.testing.assert_allclose(
            projector(again.components_), projector(dsdc.components_), atol=1e-8
        )
    # As in the example of Tao (2006): equal for one direction, very different for several.
    if q == 1:
        np.testing.assert_allclose(weights["trace_ratio"], fisher[0], rtol=1e-8)
    else:
        assert weights["trace_ratio"] < fisher[0] < weights["sum_eig"]
        assert weights["sum_eig"] > 1.5 * weights["trace_ratio"]


def test_the_trace_ratio_falls_with_the_number_of_directions():
    X, y = classes()
    found = [DSDC(q).fit(X, y).within_weight_ for q in range(1, 6)]
    assert (np.diff(found) < 0).all()


def test_with_the_largest_eigenvalue_nothing_is_positive():
    """Then every further direction reduces the criterion."""
    X, y = classes()
    dsdc = DSDC(12, within_weight="max_eig").fit(X, y)
    size = abs(dsdc.eigenvalues_[-1])
    assert abs(dsdc.eigenvalues_[0]) < 1e-8 * size
    assert (dsdc.eigenvalues_[1:] < -1e-4 * size).all()
    assert DSDC(1, within_weight=0.99 * dsdc.within_weight_).fit(X, y).eigenvalues_[0] > 0


def test_the_rules_fill_the_map_with_what_hardly_varies():
    """The trace ratio of digits is that of one direction; eight others hardly vary."""
    X, y = load_digits(return_X_y=True)
    Z = {
        within_weight: DSDC(within_weight=within_weight).fit(X, y).transform(X).var(axis=0)
        for within_weight in (0.1, "trace_ratio")
    }
    assert (Z[0.1] > 0.3 * X.var(axis=0).max()).all()
    assert (np.sort(Z["trace_ratio"])[:8] < 0.03 * X.var(axis=0).max()).all()


def test_it_is_the_third_criterion_of_lda():
    X, y = load_wine(return_X_y=True)
    for within_weight in (0.3, "trace_ratio", "max_eig", "sum_eig"):
        dsdc, lda = (
            DSDC(3, within_weight=within_weight).fit(X, y),
            LDA(3, criterion="J3", within_weight=within_weight).fit(X, y),
        )
        np.testing.assert_array_equal(dsdc.components_, lda.components_)
        np.testing.assert_array_equal(dsdc.transform(X), lda.transform(X))
    assert DSDC().fit(X, y).components_.shape == (2, 13)


def test_batches_give_what_one_fit_gives():
    X, y = load_digits(return_X_y=True)
    whole, parts = DSDC(5).fit(X, y), DSDC(5)
    for start in range(0, len(X), 300):
        parts.partial_fit(X[start : start + 300], y[start : start + 300])
    np.testing.assert_allclose(parts.within_weight_, whole.within_weight_, rtol=1e-9)
    np.testing.assert_allclose(
        projector(parts.components_), projector(whole.components_), atol=1e-7
    )


def test_constants_and_scale_change_nothing():
    X, y = classes()
    plain = DSDC(3).fit(X, y)
    for moved in (X + 50, X * 1e-8, X * 1e8, -X):
        other = DSDC(3).fit(moved, y)
        np.testing.assert_allclose(other.within_weight_, plain.within_weight_, rtol=1e-8)
        np.testing.assert_allclose(
            projector(other.components_), projector(plain.components_), atol=1e-6
        )


def test_directions_of_equal_value_have_an_order():
    """With few rows, directions without scatter have equal ratios. Rounding must not mix them."""
    X, y = classes(n=12, p=30, c=4)
    Q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 30)))
    Z, turned = DSDC().fit_transform(X, y), DSDC().fit_transform(X @ Q, y)
    np.testing.assert_allclose(np.abs(turned), np.abs(Z), atol=1e-6 * np.abs(Z).max())
    J4 = LDA(criterion="J4").fit_transform(X, y)
    np.testing.assert_array_equal(J4, Z)
    assert (np.diff(Z.var(axis=0)) < 0).all()


def test_classes_that_are_points_and_directions_that_are_not_there():
    X = np.repeat(np.eye(3) * [4, 2, 1], 2, axis=0)
    y = np.repeat(np.arange(3), 2)
    values = np.linalg.eigvalsh(scatters(X, y)[0])[::-1]
    # Without within-class scatter, S_b decides for any number. The automatic choices mix in 0.1% of
    # the total scatter.
    np.testing.assert_allclose(
        DSDC(2, within_weight=9.0).fit(X, y).eigenvalues_, values[:2], rtol=1e-9
    )
    assert np.isclose(DSDC().fit(X, y).within_weight_, 1000)
    with pytest.raises(ValueError, match="n_components=3 is too large: DSDC has at most the 2"):
        DSDC(3).fit(X, y)
    with pytest.raises(ValueError, match="DSDC needs at least 2 classes"):
        DSDC().fit(X, np.zeros(6))
    with pytest.raises(ValueError, match="within_weight must be a number"):
        DSDC(within_weight="best").fit(X, y)
