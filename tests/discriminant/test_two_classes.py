"""MPM and FDA: hyperplanes from the means and covariances of two sides."""

import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier

from nearfar import FDA, MPM

BOTH = pytest.mark.parametrize("kind", [MPM, FDA])


def two_classes(n=60, p=5, seed=0, share=0.4):
    random = np.random.default_rng(seed)
    y = (np.arange(n) >= (1 - share) * n).astype(int)
    X = random.standard_normal((n, p)) * np.where(y, 1.5, 1.0)[:, None]
    return X + y[:, None] * random.standard_normal(p), y


def test_mpm_is_the_conic_program_with_its_ridge():
    X, y = two_classes()
    machine = MPM(ridge=0.3, ridge_mode="absolute").fit(X, y)
    covariances = [np.cov(X[y == k].T, ddof=0) + 0.3 * np.eye(5) for k in (0, 1)]
    d = X[y == 1].mean(0) - X[y == 0].mean(0)
    w = cp.Variable(5)
    roots = [np.linalg.cholesky(S).T for S in covariances]
    program = cp.Problem(cp.Minimize(sum(cp.norm(R @ w) for R in roots)), [d @ w == 1])
    solved(program)
    assert np.isclose(machine.kappa_, 1 / program.value, rtol=1e-6)
    assert np.allclose(machine.coef_[0], w.value, atol=1e-5)
    assert np.isclose(machine.worst_case_accuracy_, machine.kappa_**2 / (1 + machine.kappa_**2))
    assert machine.objective_ == machine.kappa_
    # Both means are kappa standard deviations from the boundary.
    for k, sign in ((0, -1), (1, 1)):
        score = machine.decision_function(X[y == k]).mean()
        deviation = np.sqrt(machine.coef_[0] @ covariances[k] @ machine.coef_[0])
        assert np.isclose(sign * score, machine.kappa_ * deviation)


def test_fda_is_the_regression_of_labels_and_has_the_direction_of_lda():
    X, y = two_classes(share=0.2)
    machine = FDA(ridge=0).fit(X, y)
    peer = LinearRegression().fit(X, 2 * y - 1)
    assert np.allclose(machine.coef_[0], peer.coef_) and np.isclose(
        machine.intercept_[0], peer.intercept_
    )
    assert np.isclose(machine.objective_ * 12 * 48 / 60, peer.score(X, 2 * y - 1))
    lda = LinearDiscriminantAnalysis().fit(X, y).coef_[0]
    w = machine.coef_[0]
    assert np.isclose(w @ lda, np.linalg.norm(w) * np.linalg.norm(lda))
    # The Bayes rule is that of LDA: the divisors n and n - 2 only scale the scores.
    bayes = FDA(ridge=0, bias="bayes").fit(X, y)
    assert (bayes.predict(X) == LinearDiscriminantAnalysis().fit(X, y).predict(X)).all()


@BOTH
def test_the_relative_ridge_is_that_share_of_the_variance_within_classes(kind):
    X, y = two_classes()
    rows = np.concatenate([X[y == k] - X[y == k].mean(0) for k in (0, 1)])
    level = 0.2 * rows.var(axis=0).mean()
    relative, absolute = kind(ridge=0.2), kind(ridge=level, ridge_mode="absolute")
    assert np.allclose(relative.fit(X, y).coef_, absolute.fit(X, y).coef_)


@BOTH
def test_an_offset_moves_the_intercept_alone(kind):
    # With the intercept that the thesis prints for MPM, half of the labels would be wrong.
    X, y = two_classes(n=200, share=0.5)
    shift = np.full(5, 1e3)
    here, there = kind().fit(X, y), kind().fit(X + shift, y)
    assert (here.predict(X) == there.predict(X + shift)).all()
    assert here.score(X, y) > 0.75
    assert np.allclose(here.coef_, there.coef_)
    assert np.isclose(there.intercept_[0], here.intercept_[0] - here.coef_[0] @ shift)


def test_the_printed_intercept_of_mpm_is_the_opposite():
    X, y = two_classes(n=200, share=0.5)
    machine = MPM().fit(X + 100, y)
    w, mean = machine.coef_[0], (X[y == 1] + 100).mean(0)
    covariances = [np.cov(X[y == k].T, ddof=0) for k in (1, 0)]
    level = 0.1 * np.mean(
        np.concatenate([X[y == k] - X[y == k].mean(0) for k in (0, 1)]).var(axis=0)
    )
    sigma = [np.sqrt(w @ (S + level * np.eye(5)) @ w) for S in covariances]
    printed = w @ mean - sigma[0] / sum(sigma)
    assert np.isclose(machine.intercept_[0], -printed)
    assert np.mean(((X + 100) @ w + printed > 0) == y) == 0.5


@BOTH
def test_swapped_labels_turn_the_hyperplane(kind):
    X, y = two_classes()
    one, other = kind().fit(X, y), kind().fit(X, 1 - y)
    assert np.allclose(one.coef_, -other.coef_) and np.allclose(one.intercept_, -other.intercept_)
    assert np.isclose(one.objective_, other.objective_)


def test_equal_covariances_give_one_direction():
    X, y = two_classes(n=100, share=0.5)
    X[y == 1] = X[y == 0] + np.arange(5)  # The second class is a shifted copy of the first.
    w, v = MPM(ridge=0).fit(X, y).coef_[0], FDA(ridge=0).fit(X, y).coef_[0]
    assert np.isclose(w @ v, np.linalg.norm(w) * np.linalg.norm(v))


@BOTH
def test_fewer_rows_than_features_solves_in_their_span(kind):
    X, y = two_classes(n=20, p=50)
    machine = kind(ridge=0.5, ridge_mode="absolute").fit(X, y)
    assert machine.statistics_.is_factored
    # The same result with p×p matrices: repeated rows make the statistics dense.
    many = kind(ridge=0.5, ridge_mode="absolute").fit(np.tile(X, (6, 1)), np.tile(y, 6))
    assert not many.statistics_.is_factored
    scale = 6 if kind is FDA else 1  # The ratio of FDA has the sum of squares in its denominator.
    assert np.isclose(machine.objective_, scale * many.objective_)
    assert np.allclose(machine.coef_, many.coef_, atol=1e-8)


@BOTH
def test_twelve_thousand_features_without_a_matrix_of_them(kind):
    X, y = two_classes(n=40, p=12_288)
    tracemalloc.start()
    machine = kind().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_288**2 * 8 / 20  # 5% of a p×p matrix.
    assert machine.score(X, y) == 1.0


@BOTH
@pytest.mark.parametrize("rule", ["ovo", "ovr"])
def test_several_classes_are_problems_of_two_sides(kind, rule):
    X, y = load_iris(return_X_y=True)
    X, y = X[::2][:60], y[::2][:60]  # 25, 25 and 10 rows per class.
    machine = kind(multi_class=rule).fit(X, y)
    wrapper = {"ovo": OneVsOneClassifier, "ovr": OneVsRestClassifier}[rule]
    peer = wrapper(kind()).fit(X, y)
    assert np.allclose(machine.decision_function(X), peer.decision_function(X), atol=1e-6)
    assert (machine.predict(X) == peer.predict(X)).all()
    assert machine.coef_.shape == (3, 4) and len(machine.objective_) == 3


@BOTH
def test_batches_give_what_one_fit_gives(kind):
    X, y = load_iris(return_X_y=True)
    parts = kind()
    for rows in np.array_split(np.arange(150), 7):
        parts.partial_fit(X[rows], y[rows])
    whole = kind().fit(X, y)
    assert np.allclose(parts.coef_, whole.coef_)
    assert np.allclose(parts.intercept_, whole.intercept_)
    # Integer weights are equivalent to copies.
    weight = np.arange(150) % 3
    weighted = kind().fit(X, y, sample_weight=weight)
    copies = kind().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert np.allclose(weighted.coef_, copies.coef_)


@BOTH
def test_blocks_of_dask(kind):
    da = pytest.importorskip("dask.array")
    X, y = load_iris(return_X_y=True)
    lazy = kind().fit(da.from_array(X, chunks=(40, 4)), da.from_array(y, chunks=40))
    assert np.allclose(lazy.coef_, kind().fit(X, y).coef_)
    assert (lazy.predict(X) == kind().fit(X, y).predict(X)).all()


def test_ten_digits():
    X, y = load_digits(return_X_y=True)
    ovo = MPM().fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    ovr = MPM(multi_class="ovr").fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    assert ovo > 0.95 and ovo > ovr + 0.03


# ---------------------------------------------------------------------- difficult input


@BOTH
def test_one_class(kind):
    X, _ = two_classes()
    with pytest.raises(ValueError, match="needs at least 2 classes, but y has only one class"):
        kind().fit(X, np.zeros(60))


@BOTH
@pytest.mark.parametrize("sizes", [(1, 30), (1, 1)])
def test_classes_of_one_sample(kind, sizes):
    X, _ = two_classes()
    y = np.repeat([0, 1], sizes)
    machine = kind().fit(X[: len(y)], y)
    assert np.isfinite(machine.coef_).all() and np.isfinite(machine.objective_)
    assert (machine.predict(X[: len(y)]) == y).all() or sizes == (1, 30)


@BOTH
def test_equal_means_give_the_majority_and_a_warning(kind):
    X = np.random.default_rng(0).standard_normal((20, 3))
    X = np.concatenate([X, X, X])
    y = np.repeat([0, 1], [20, 40])
    with pytest.warns(UserWarning, match="same mean.*the larger class"):
        machine = kind().fit(X, y)
    assert (machine.predict(X) == 1).all() and machine.objective_ == 0
    constant = np.ones((10, 3))
    with pytest.warns(UserWarning, match="same mean"):
        machine = kind().fit(constant, np.repeat([0, 1], [7, 3]))
    assert (machine.predict(constant) == 0).all()


@BOTH
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_singular_covariance_without_a_ridge_names_it(kind, dtype):
    for seed in range(10):  # With some seeds, rounding makes the matrix regular, on any processor.
        X, y = two_classes(n=200, p=5, seed=seed)
        X = np.column_stack([X, X @ np.arange(1.0, 6)]).astype(dtype)
        for unit in (1.0, np.array([1e-4, 1, 1, 1, 1, 1e5], dtype)):
            with pytest.raises(ValueError, match="ridge=0 .* singular.*Use a larger ridge"):
                kind(ridge=0).fit(X * unit, y)
        assert np.isfinite(kind(ridge=1e-3).fit(X, y).coef_).all()


def test_units_of_features_make_no_covariance_singular():
    X, y = two_classes(n=200, p=5)
    units = np.array([1e-9, 1e-4, 1, 1e4, 1e9])
    for kind in (MPM, FDA):
        machine, other = kind(ridge=0).fit(X, y), kind(ridge=0).fit(X * units, y)
        assert np.allclose(other.coef_ * units, machine.coef_, rtol=1e-6)


def test_few_rows_leave_nothing_within_classes_and_something_in_all():
    for seed in range(10):
        X, y = two_classes(n=6, p=20, seed=seed)
        with pytest.raises(ValueError, match="Use a larger ridge"):
            MPM(ridge=0).fit(X, y)
        # The total scatter is regular in the span of the rows: regression of the labels.
        assert np.allclose(FDA(ridge=0).fit(X, y).decision_function(X), 2 * y - 1)


@BOTH
def test_a_clone_and_a_file_know_what_was_learned(kind, tmp_path):
    from nearfar import load, save

    X, y = load_iris(return_X_y=True)
    for rows in (slice(None), slice(100)):  # Several problems, then one.
        machine = clone(kind()).fit(X[rows], y[rows])
        save(machine, tmp_path / "model.nearfar", force=True)
        again = load(tmp_path / "model.nearfar")
        assert (again.decision_function(X) == machine.decision_function(X)).all()
