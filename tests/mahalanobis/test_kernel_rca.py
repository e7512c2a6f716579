"""KernelRCA compared with the formulas of the survey, linear RCA and fits in batches."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_circles
from sklearn.metrics.pairwise import pairwise_kernels

from nearfar import RCA, Chunklets, KernelRCA, KNNClassifier, Pairs
from nearfar.mahalanobis.kernel_rca import Contrasts

X6 = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], dtype=float)
Y6 = np.array([-1, -1, -1, 1, 1, 1])
KERNELS = {
    "linear": {},
    "rbf": {"gamma": 0.2},
    "poly": {"gamma": 0.2, "degree": 2, "coef0": 1},
    "laplacian": {"gamma": 0.2},
    "cosine": {},
}


def known_groups(n_groups=9, seed=0):
    """Return points in chunklets of two to six, numbered with gaps, and points in none."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(5 * np.arange(n_groups) + 2, rng.integers(2, 7, size=n_groups))
    groups = rng.permutation(np.append(groups, [-1] * 6))
    return rng.normal(size=(len(groups), 3)) + 2 * rng.normal(size=(100, 3))[groups], groups


def centering(groups):
    H = np.eye(len(groups))
    for g in np.unique(groups):
        H -= np.outer(groups == g, groups == g) / np.sum(groups == g)
    return H


def formula(k, X, groups, ridge, A, B):
    """Return the learned kernel by its definition, with an explicit inverse and the ridge."""
    X, groups = X[groups >= 0], groups[groups >= 0]
    n, H = len(X), centering(groups)
    Y = H @ np.linalg.inv(np.eye(n) + k(X, X) @ H / ridge)
    return n / ridge * k(A, B) - n / ridge**2 * k(A, X) @ Y @ k(X, B)


def kernel(name):
    return lambda A, B: pairwise_kernels(A, B, metric=name, **KERNELS[name])


# The learned kernel


def test_anchor_of_the_survey():
    # The reference adds eps to C; KernelRCA adds the ridge to n C.
    rca = KernelRCA("linear", ridge=0.1 * 6).fit(X6, Y6)
    np.testing.assert_allclose(rca.learned_kernel(X6)[1, 3], 6.38353765, atol=1e-8)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_learned_kernel_is_the_formula_for_any_points(name):
    X, groups = known_groups()
    new = np.random.default_rng(1).normal(size=(7, 3))
    rca = KernelRCA(name, **KERNELS[name], ridge=0.4).fit(X, supervision=groups)
    wanted = formula(kernel(name), X, groups, 0.4, new, X[:11])
    np.testing.assert_allclose(rca.learned_kernel(new, X[:11]), wanted, rtol=1e-7, atol=1e-8)
    square = rca.learned_kernel(new)
    np.testing.assert_allclose(square, formula(kernel(name), X, groups, 0.4, new, new), rtol=1e-7)
    assert np.linalg.eigvalsh(square)[0] > -1e-8 * np.abs(square).max()
    pairs = np.stack([new[:-1], new[1:]], axis=1)
    squares = np.diag(square)[:-1] + np.diag(square)[1:] - 2 * np.diag(square, 1)
    np.testing.assert_allclose(rca.pair_distance(pairs), np.sqrt(squares), rtol=1e-7)
    np.testing.assert_allclose(rca.pair_score(pairs), -np.sqrt(squares), rtol=1e-7)


def test_a_function_may_be_the_kernel():
    X, groups = known_groups()
    named = KernelRCA("rbf", gamma=0.2, ridge=0.4).fit(X, supervision=groups)
    own = KernelRCA(lambda a, b: np.exp(-0.2 * np.sum((a - b) ** 2)), ridge=0.4)
    own.fit(X, supervision=groups)
    np.testing.assert_allclose(own.learned_kernel(X[:5]), named.learned_kernel(X[:5]), rtol=1e-8)
    pairs = np.stack([X[:5], X[5:10]], axis=1)
    np.testing.assert_allclose(own.pair_distance(pairs), named.pair_distance(pairs), rtol=1e-7)


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_the_linear_kernel_is_linear_rca_with_the_ridge(ridge, offset):
    X, groups = known_groups()
    known = groups >= 0
    scatter = X[known].T @ centering(groups[known]) @ X[known]
    M = np.linalg.inv((scatter + ridge * np.eye(3)) / known.sum())
    rca = KernelRCA("linear", ridge=ridge).fit(X + offset, supervision=groups)
    difference = X[:10] - X[10:20]
    wanted = np.sqrt(np.einsum("ij,jk,ik->i", difference, M, difference))
    pairs = np.stack([X[:10], X[10:20]], axis=1) + offset
    np.testing.assert_allclose(rca.pair_distance(pairs), wanted, rtol=1e-8 if offset == 0 else 1e-6)
    Z = rca.transform(X + offset)
    assert Z.shape == (len(X), 3)
    found = np.linalg.norm(Z[:10] - Z[10:20], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-8 if offset == 0 else 1e-6)


def test_without_the_ridge_as_printed_it_is_another_kernel():
    # Correction to the survey: "the inverse of C" is the inverse of C with the ridge, because C may
    # be singular, and k on the right-hand side is the kernel before learning. The bracket is a
    # projection.
    X, groups = known_groups()
    known = groups >= 0
    H = centering(groups[known])
    X[:, 2] = X[:, 0]  # This makes C singular.
    C = X[known].T @ H @ X[known] / known.sum()
    assert np.linalg.matrix_rank(C) < 3
    rca = KernelRCA("linear", ridge=0.5).fit(X, supervision=groups)
    wanted = X @ np.linalg.inv(C + 0.5 / known.sum() * np.eye(3)) @ X.T
    np.testing.assert_allclose(rca.learned_kernel(X), wanted, rtol=1e-7, atol=1e-8)
    for printed in (X @ np.linalg.pinv(C) @ X.T, X @ X.T):
        assert np.abs(printed - wanted).max() > 1e-2 * np.abs(wanted).max()
    sizes = (groups[known][:, None] == groups[known]).sum(axis=1)
    same = (groups[known][:, None] == groups[known]) / sizes
    np.testing.assert_allclose(np.eye(len(same)) - 2 * same + same, H, atol=1e-12)


def test_a_small_ridge_and_the_linear_kernel_give_rca():
    X, groups = known_groups()
    Z = KernelRCA("linear", ridge=1e-9).fit(X, supervision=groups).transform(X)
    W = RCA().fit(X, supervision=groups).transform(X)
    np.testing.assert_allclose(
        np.linalg.norm(Z[1:] - Z[:-1], axis=1), np.linalg.norm(W[1:] - W[:-1], axis=1), rtol=1e-7
    )
    few = KernelRCA("linear", ridge=1e-9, n_components=2).fit(X, supervision=groups)
    W = RCA(2).fit(X, supervision=groups).transform(X)
    Z = few.transform(X)
    np.testing.assert_allclose(
        np.linalg.norm(Z[1:] - Z[:-1], axis=1), np.linalg.norm(W[1:] - W[:-1], axis=1), rtol=1e-6
    )


def test_the_factor_is_that_of_a_symmetric_matrix_of_the_right_rank():
    X, groups = known_groups()
    rca = KernelRCA(gamma=0.2, ridge=0.4).fit(X, supervision=groups)
    rows, codes = rca._rows, rca._codes
    H = centering(codes)
    np.testing.assert_allclose(H @ H, H, atol=1e-12)
    Y = H @ np.linalg.inv(np.eye(len(rows)) + kernel("rbf")(rows, rows) @ H / 0.4)
    np.testing.assert_allclose(rca.factor_ @ rca.factor_.T, Y, atol=1e-10)
    assert rca.factor_.shape[1] == np.linalg.matrix_rank(H) == len(rows) - 9


def test_contrasts_are_an_orthonormal_basis_of_differences():
    codes = np.repeat([0, 1, 2, 3], [3, 1, 5, 2])
    contrasts = Contrasts(codes)
    U = contrasts.apply(np.eye(len(codes))).T
    np.testing.assert_allclose(U.T @ U, np.eye(7), atol=1e-14)
    np.testing.assert_allclose(U @ U.T, centering(codes), atol=1e-14)
    np.testing.assert_allclose(contrasts.expand(np.eye(7)), U, atol=1e-14)


# Coordinates


@pytest.mark.parametrize("name", ["rbf", "poly", "laplacian"])
def test_coordinates_keep_the_distances_of_the_chunklets_and_lose_what_is_off_their_span(name):
    X, groups = known_groups()
    rca = KernelRCA(name, **KERNELS[name], ridge=0.4).fit(X, supervision=groups)
    members = X[groups >= 0]
    Z = rca.transform(members)
    pairs = np.stack([members[1:], members[:-1]], axis=1)
    np.testing.assert_allclose(
        np.linalg.norm(Z[1:] - Z[:-1], axis=1), rca.pair_distance(pairs), rtol=1e-6
    )
    new = np.random.default_rng(1).normal(size=(6, 3))
    pairs = np.stack([new[1:], new[:-1]], axis=1)
    squares = np.sum(np.diff(rca.transform(new), axis=0) ** 2, axis=1)
    # Differences of feature vectors, minus their projections onto those of the members.
    k = kernel(name)
    C = np.eye(len(members)) - 1 / len(members)
    inverse = np.linalg.pinv(C @ k(members, members) @ C, rcond=1e-10, hermitian=True)
    gap = k(new, members)[1:] - k(new, members)[:-1]
    plain = np.diag(k(new, new))[1:] + np.diag(k(new, new))[:-1] - 2 * np.diag(k(new, new), 1)
    off = plain - np.einsum("ij,jk,ik->i", gap, C @ inverse @ C, gap)
    wanted = rca.pair_distance(pairs) ** 2 - len(members) / 0.4 * off
    np.testing.assert_allclose(squares, wanted, rtol=1e-4, atol=1e-5)


def test_rings_are_told_apart():
    X, y = make_circles(300, noise=0.08, factor=0.6, random_state=0)
    known = Chunklets.from_labels(y, n_chunklets=12, chunklet_size=10, random_state=0)
    rca = KernelRCA(n_components=5).fit(X, supervision=known)
    assert KNNClassifier().fit(rca.transform(X), y).leave_one_out_error() < 0.05


# Batches


def in_order(learner, X, groups, order):
    for g in order:
        yield learner.partial_fit(X[groups == g], supervision=groups[groups == g])


@pytest.mark.parametrize("name", ["linear", "rbf"])
@pytest.mark.parametrize("seed", range(3))
def test_chunklet_by_chunklet_equals_one_fit_after_each(name, seed):
    X, groups = known_groups(seed=seed)
    order = np.random.default_rng(seed).permutation(np.unique(groups[groups >= 0]))
    new = X[:12]
    parts = KernelRCA(name, gamma=0.2, ridge=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count, learner in enumerate(in_order(parts, X, groups, order), 1):
            seen = np.isin(groups, order[:count])
            whole = KernelRCA(name, gamma=0.2, ridge=0.3).fit(X[seen], supervision=groups[seen])
            wanted = whole.learned_kernel(new)
            error = np.abs(learner.learned_kernel(new) - wanted).max()
            assert error < 1e-8 * np.abs(wanted).max()
    Z, W = parts.transform(new), whole.transform(new)
    np.testing.assert_allclose(
        np.linalg.norm(Z[1:] - Z[:-1], axis=1), np.linalg.norm(W[1:] - W[:-1], axis=1), rtol=1e-6
    )


def test_the_block_inverse_of_the_survey_as_printed_is_wrong_and_ours_is_right():
    X, groups = known_groups()
    A, B = X[groups == 2], X[groups == 7]
    k, eps = kernel("rbf"), 0.3
    HA, HB = centering(np.zeros(len(A))), centering(np.zeros(len(B)))
    YA = HA @ np.linalg.inv(np.eye(len(A)) + k(A, A) @ HA / eps)
    KAB = k(A, B)
    P = np.eye(len(B)) + k(B, B) @ HB / eps - KAB.T @ YA @ KAB @ HB / eps**2
    right = np.vstack([-YA @ KAB @ HB / eps, HB])
    left = np.hstack([-KAB.T @ YA / eps, np.eye(len(B))])
    corrected = np.zeros((len(A) + len(B),) * 2)
    corrected[: len(A), : len(A)] = YA
    printed = corrected + np.vstack([YA @ KAB @ HB / eps, HB]) @ np.linalg.inv(P) @ left
    corrected = corrected + right @ np.linalg.inv(P) @ left
    rca = KernelRCA(gamma=0.2, ridge=eps).partial_fit(A, supervision=np.zeros(len(A), int))
    rca.partial_fit(B, supervision=np.ones(len(B), int))
    Y = rca.factor_ @ rca.factor_.T
    np.testing.assert_allclose(Y, corrected, atol=1e-12)
    assert np.abs(Y - printed).max() > 1e-3


def test_a_chunklet_that_goes_on_is_computed_anew_and_says_so():
    X, groups = known_groups()
    half = np.arange(len(X)) < len(X) // 2
    rca = KernelRCA(gamma=0.2, ridge=0.3).partial_fit(X[half], supervision=groups[half])
    with pytest.warns(UserWarning, match="chunklets of earlier batches have more points"):
        rca.partial_fit(X[~half], supervision=groups[~half])
    whole = KernelRCA(gamma=0.2, ridge=0.3).fit(X, supervision=groups)
    np.testing.assert_allclose(rca.learned_kernel(X), whole.learned_kernel(X), rtol=1e-8)


def test_chunklets_of_one_are_neither_used_nor_counted_until_they_go_on():
    X, groups = known_groups()
    lone = np.where(np.arange(len(X)) == np.flatnonzero(groups < 0)[0], 99, groups)
    wanted = KernelRCA(gamma=0.2, ridge=0.3).fit(X, supervision=groups)
    rca = KernelRCA(gamma=0.2, ridge=0.3).fit(X, supervision=lone)
    np.testing.assert_allclose(rca.learned_kernel(X), wanted.learned_kernel(X), rtol=1e-9)
    Z, W = rca.transform(X), wanted.transform(X)
    np.testing.assert_allclose(
        np.linalg.norm(Z[1:] - Z[:-1], axis=1), np.linalg.norm(W[1:] - W[:-1], axis=1), rtol=1e-6
    )
    assert rca.n_points_ == wanted.n_points_ == np.sum(groups >= 0)
    more = X[groups < 0][1:3]
    with pytest.warns(UserWarning, match="chunklets of earlier batches have more points"):
        rca.partial_fit(more, supervision=[99, 99])
    everything = np.concatenate([X, more]), np.append(lone, [99, 99])
    whole = KernelRCA(gamma=0.2, ridge=0.3).fit(everything[0], supervision=everything[1])
    np.testing.assert_allclose(rca.learned_kernel(X), whole.learned_kernel(X), rtol=1e-8)


def test_a_batch_with_a_chunklet_of_one_prints_nothing(capfd):
    X, groups = known_groups()
    rca = KernelRCA(gamma=0.2, ridge=0.3).fit(X, supervision=groups)
    before = rca.learned_kernel(X)
    rca.partial_fit(X[:1] + 1.0, supervision=[99])
    np.testing.assert_allclose(rca.learned_kernel(X), before, rtol=1e-12)
    assert capfd.readouterr() == ("", "")


def test_what_the_first_rows_chose_stays():
    X, groups = known_groups()
    order = np.unique(groups[groups >= 0])
    rca = KernelRCA()
    *_, rca = in_order(rca, X, groups, order)
    first = KernelRCA().fit(X[groups == order[0]], supervision=groups[groups == order[0]])
    assert (rca.gamma_, rca.ridge_) == (first.gamma_, first.ridge_)
    whole = KernelRCA(gamma=rca.gamma_, ridge=rca.ridge_).fit(X, supervision=groups)
    wanted = whole.learned_kernel(X)
    np.testing.assert_allclose(rca.learned_kernel(X), wanted, atol=1e-8 * np.abs(wanted).max())


def test_a_batch_without_chunklets_is_passed_over():
    X, groups = known_groups()
    rca = KernelRCA().partial_fit(X[:3], supervision=[-1, -1, -1])
    assert not rca.__sklearn_is_fitted__()
    rca.partial_fit(X, supervision=groups)
    before = rca.factor_
    rca.partial_fit(X[:3], supervision=[-1, -1, -1])
    assert rca.factor_ is before


# Invariances


@pytest.mark.parametrize("name", ["linear", "rbf", "laplacian"])
@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_units_change_no_distance(name, factor):
    X, groups = known_groups()
    pairs = np.stack([X[1:], X[:-1]], axis=1)
    plain = KernelRCA(name).fit(X, supervision=groups)
    scaled = KernelRCA(name).fit(factor * X, supervision=groups)
    wanted = plain.pair_distance(pairs)
    np.testing.assert_allclose(scaled.pair_distance(factor * pairs), wanted, rtol=1e-6)


def test_supervision_is_read_rather_than_y_and_fits_repeat():
    X, groups = known_groups()
    y = np.arange(len(X)) % 3
    found = KernelRCA().fit(X, y, supervision=groups).transform(X)
    np.testing.assert_array_equal(KernelRCA().fit(X, supervision=groups).transform(X), found)


def test_redundant_constant_and_repeated_data_are_finite():
    # See metric-learn#202; the covariances are singular.
    X, y = load_wine(return_X_y=True)
    X = np.column_stack([X, X[:, 0], np.ones(len(X)), X[:, 1] + X[:, 2]])[::2]
    X, y = np.concatenate([X, X[:20]]), np.append(y[::2], y[::2][:20])
    for name in ("linear", "rbf"):
        rca = KernelRCA(name).fit(X, y)
        assert np.isfinite(rca.transform(X)).all()
        assert np.isfinite(rca.learned_kernel(X)).all()


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: KernelRCA().fit(X6), "KernelRCA requires y to be passed"),
        (lambda: KernelRCA().fit(X6, supervision=[0, 0]), "made for 2 samples but X has 6 rows"),
        (lambda: KernelRCA().fit(X6, supervision=[-1] * 6), "puts no point into a chunklet"),
        (lambda: KernelRCA().fit(X6, supervision=np.arange(6)), "at least two points"),
        (lambda: KernelRCA().fit(X6, np.arange(6)), "at least two points"),
        (
            lambda: KernelRCA().fit(X6, supervision=Pairs([[0, 1]], [[0, 2]], n_samples=6)),
            "supervision should be Chunklets or an integer vector; got Pairs",
        ),
        (
            lambda: KernelRCA().fit(np.repeat(X6, 2, axis=0), np.repeat(np.arange(6), 2)),
            "In every chunklet all points are equal",
        ),
        (lambda: KernelRCA(ridge=0.0).fit(X6, Y6), "ridge must be a number above 0, or 'auto'"),
        (lambda: KernelRCA("precomputed").fit(X6, Y6), "kernel must be 'linear' or 'rbf'"),
        (lambda: KernelRCA(n_components=7).fit(X6, Y6), "n_components=7 is more than the 5"),
        (
            lambda: KernelRCA(lambda a, b: -a @ b, ridge=0.1).fit(X6, Y6),
            "not positive semi-definite, and ridge=0.1 is too small",
        ),
        (
            lambda: KernelRCA().partial_fit(X6, Y6).partial_fit(X6, list("aaabbb")),
            "Pass either labels or chunklets in all batches",
        ),
        (lambda: KernelRCA().fit(X6, Y6).pair_distance(X6), "pairs must have shape"),
        (
            lambda: KernelRCA().fit(
                np.where(np.arange(6)[:, None] == 5, np.nan, X6), supervision=[0, 0, 1, 1, 1, -1]
            ),
            "Input X contains NaN",
        ),
    ],
)
def test_errors_say_what_would_do(work, message):
    with pytest.raises(ValueError, match=message):
        work()


def test_equal_points_with_a_ridge_give_the_kernel_itself():
    X, y = np.repeat(X6, 2, axis=0), np.repeat(np.arange(6), 2)
    rca = KernelRCA("linear", ridge=2.0).fit(X, y)
    np.testing.assert_allclose(rca.learned_kernel(X6), 12 / 2 * X6 @ X6.T, atol=1e-12)
