"""MDML compared with a conic solver, loops over triplets, and known optima."""

import warnings

import numpy as np
import pytest
from conic import solved
from scipy.spatial.distance import pdist
from sklearn.exceptions import ConvergenceWarning

from nearfar import LMNN, MDML, all_estimators
from nearfar.large_margin.impostors import find_target_neighbors
from nearfar.large_margin.mode_metrics import ModeMetrics

cp = pytest.importorskip("cvxpy")


def vectors_and_tensors():
    rng = np.random.default_rng(12)
    y = np.arange(24) % 3
    noise, mu = rng.standard_normal((24, 4)), rng.standard_normal((3, 4))
    X = noise + 1.2 * mu[y]
    noise, mu = rng.standard_normal((24, 4, 3)), rng.standard_normal((3, 4, 3))
    T = noise + mu[y]
    np.testing.assert_allclose([X.sum(), T.sum()], [-21.938748926, 19.094512169])
    return X, T, y


def triplets_of(T, y, k):
    """Return all triplets (i, j, l), with targets by Euclidean distance, in a loop over points."""
    flat, found = T.reshape(len(T), -1), []
    for i in range(len(T)):
        same = [j for j in range(len(T)) if j != i and y[j] == y[i]]
        same.sort(key=lambda j: np.sum((flat[i] - flat[j]) ** 2))
        found += [(i, j, m) for j in same[:k] for m in range(len(T)) if y[m] != y[i]]
    return np.array(found)


def mapped(T, matrices):
    for mode, W in enumerate(matrices):
        T = np.moveaxis(np.tensordot(T, W, (mode + 1, 1)), -1, mode + 1)
    return T


def objective(T, matrices, triplets, push):
    """Return the objective, computed in loops over pairs and hinges."""
    Z = mapped(T, matrices)

    def square(i, j):
        return np.sum((Z[i] - Z[j]) ** 2)

    pull = sum(square(i, j) for i, j in {(i, j) for i, j, _ in triplets})
    return pull + push * sum(max(0, 1 + square(i, j) - square(i, m)) for i, j, m in triplets)


def program(P, triplets, push):
    """Solve the semidefinite program of one mode. P contains (L, q) matrices, others mapped."""
    n, d = len(P), P.shape[1]
    S = cp.Variable((d, d), PSD=True)
    first, second = np.triu_indices(n, 1)
    gaps = P[first] - P[second]
    outer = np.einsum("tiq,tjq->tij", gaps, gaps).reshape(len(first), -1)
    where = np.zeros((n, n), int)
    where[first, second] = where[second, first] = np.arange(len(first))
    D = outer @ cp.vec(S, order="C")
    i, j, m = triplets.T
    pulled = np.unique(where[i, j] + len(first) * i) % len(first)
    hinges = cp.pos(1 + D[where[i, j]] - D[where[i, m]])
    problem = cp.Problem(cp.Minimize(cp.sum(D[pulled]) + push * cp.sum(hinges)))
    return solved(problem), S.value


def test_vectors_give_the_semidefinite_program():
    X, _, y = vectors_and_tensors()
    triplets = triplets_of(X, y, 2)
    assert len(triplets) == 768
    value, metric = program(X[:, :, None], triplets, 1.0)
    np.testing.assert_allclose(value, 124.5663, atol=1e-3)
    model = MDML(2, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(model.objective_, value, rtol=1e-5)
    np.testing.assert_allclose(model.metrics_[0], metric, atol=1e-2)
    values = np.linalg.eigvalsh(model.metrics_[0])
    np.testing.assert_allclose(values, [0, 0.2632, 0.2846, 0.4163], atol=5e-3)
    # LMNN solves the same program, divided by 1 + c.
    published = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
    lmnn = LMNN(2, push_weight=0.5, tol=1e-9, **published).fit(X, y)
    np.testing.assert_allclose(2 * lmnn.objective_, model.objective_, rtol=1e-5)
    assert 2 * lmnn.dual_bound_ <= model.objective_ * (1 + 1e-6)
    np.testing.assert_allclose(
        MDML(2, tol=1e-9).fit(X[:, :, None, None], y).objective_, value, rtol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("push", [1.0, 0.2])
def test_no_mode_gains_by_a_conic_solver(push):
    _, T, y = vectors_and_tensors()
    triplets = triplets_of(T, y, 2)
    model = MDML(2, push_weight=push, tol=1e-9).fit(T, y)
    W = [U.T for U in model.factors_]
    np.testing.assert_allclose(objective(T, W, triplets, push), model.objective_, rtol=1e-6)
    for mode in range(2):
        others = [np.eye(len(V.T)) if k == mode else V for k, V in enumerate(W)]
        P = np.moveaxis(mapped(T, others), mode + 1, 1)
        value, _ = program(P.reshape(24, P.shape[1], -1), triplets, push)
        assert model.objective_ <= value * (1 + 3e-4)


def test_all_modes_together_end_below_one_after_another():
    """Objectives: identity 836.410, alternating programs 42.4576, flat tensors 6.584."""
    _, T, y = vectors_and_tensors()
    triplets = triplets_of(T, y, 2)
    np.testing.assert_allclose(
        objective(T, [np.eye(4), np.eye(3)], triplets, 1.0), 836.410, atol=1e-3
    )
    model = MDML(2).fit(T, y)
    assert 6.584 < model.objective_ < 42.4576
    assert model.converged_ and model.n_iter_ < 20 * model.max_iter
    # Other starts may end elsewhere. Alternation has two known ends, 42.466 and 59.257.
    rng = np.random.default_rng(0)
    other = MDML(2, init=[rng.normal(size=(4, 4)), rng.normal(size=(3, 3))]).fit(T, y)
    assert other.objective_ < 59.3
    flat = MDML(2, tol=1e-8).fit(T.reshape(24, 12), y)
    np.testing.assert_allclose(flat.objective_, 6.584, atol=5e-3)


def test_modes_in_turn_stall():
    """Alternating programs as in Tao's thesis never increase the objective, but stop too early."""
    _, T, y = vectors_and_tensors()
    triplets = triplets_of(T, y, 2)
    W, values = [np.eye(4), np.eye(3)], [836.410]
    for step in range(6):
        mode = step % 2
        others = [np.eye(V.shape[1]) if k == mode else V for k, V in enumerate(W)]
        P = np.moveaxis(mapped(T, others), mode + 1, 1).reshape(24, W[mode].shape[1], -1)
        value, S = program(P, triplets, 1.0)
        eigenvalues, axes = np.linalg.eigh(S)
        W[mode] = np.sqrt(np.maximum(eigenvalues, 0))[:, None] * axes.T
        values.append(value)
    assert (np.diff(values) <= 1e-4).all()
    assert MDML(2).fit(T, y).objective_ < values[-1] + 1e-3


def test_distances_are_those_of_the_kronecker_product():
    _, T, y = vectors_and_tensors()
    model = MDML(2, flatten=False).fit(T, y)
    Z = model.transform(T)
    assert Z.shape == (24, *model.n_components_)
    metric = np.kron(*model.metrics_)
    gap = (T[0] - T[1]).ravel()
    square = np.sum((Z[0] - Z[1]) ** 2)
    np.testing.assert_allclose(square, gap @ metric @ gap, rtol=1e-6)
    # In each mode it is a trace, with the other modes mapped.
    D = (T[0] - T[1]) @ model.factors_[1]
    np.testing.assert_allclose(np.trace(D.T @ model.metrics_[0] @ D), square, rtol=1e-6)
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), metric, atol=1e-6 * metric.max())
    sizes = [np.sum(U**2) / U.shape[1] for U in model.factors_]
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=1e-6)


def problem_of(T, y, push_weight=0.5, k=2):
    targets = find_target_neighbors(T.reshape(len(T), -1), y, k)
    return ModeMetrics(T, T.shape[1:], y, targets, push_weight)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (3, 2, 4)])
def test_gradients_by_differences(shape):
    rng = np.random.default_rng(0)
    T, y = rng.normal(size=(20, *shape)), np.arange(20) % 3
    problem = problem_of(T, y)
    problem.smoothing = 0.1
    L = rng.normal(size=sum(d * d for d in shape))
    problem.search(L)
    found = problem.evaluate(L)
    step = 1e-5
    for i in range(len(L)):
        up, down = (problem.evaluate(L + s * step * np.eye(len(L))[i]).loss for s in (1, -1))
        np.testing.assert_allclose(
            problem.compute_gradient(found.laplacian_v)[i],
            (up - down) / (2 * step),
            rtol=1e-4,
            atol=1e-4 * np.abs(found.laplacian_v).max(),
        )
    # G is the gradient in the metric of a mode. The gradient in W is 2 W G.
    parts, place = problem.split_modes(L), 0
    for mode, W in enumerate(parts):
        wanted = 2 * W @ problem.compute_mode_slope(L, mode)
        part = found.laplacian_v[place : place + W.size].reshape(W.shape)
        np.testing.assert_allclose(part, wanted, atol=1e-8 * np.abs(wanted).max())
        place += W.size


def test_pair_sums_by_the_laplacian_and_as_printed():
    """Pair sums follow from a Laplacian. Equation (4.58), printed without squares, is zero."""
    rng = np.random.default_rng(1)
    P, s = rng.normal(size=(9, 4, 3)), rng.random((9, 9))
    direct = sum(s[a, b] * (P[a] - P[b]) @ (P[a] - P[b]).T for a in range(9) for b in range(9))
    both = s + s.T
    laplacian = np.diag(both.sum(axis=1)) - both
    np.testing.assert_allclose(np.einsum("ab,aiq,bjq->ij", laplacian, P, P), direct)
    printed = sum(P[a] - P[b] for a in range(9) for b in range(9))
    assert np.abs(printed).max() < 1e-12 < np.abs(direct).max()


def test_lists_of_impostors_are_whole():
    """The objective covers all triplets, although only few pairs are listed."""
    rng = np.random.default_rng(4)
    y = np.arange(90) % 3
    T = rng.normal(size=(90, 5, 4)) + 2 * rng.normal(size=(3, 5, 4))[y]
    model = MDML(3).fit(T, y)
    W = [U.T for U in model.factors_]
    wanted = objective(T, W, triplets_of(T, y, 3), 1.0)
    np.testing.assert_allclose(model.objective_, wanted, rtol=1e-5)


def test_too_little_push_is_no_metric():
    _, T, y = vectors_and_tensors()
    with pytest.warns(UserWarning, match="push_weight=1e-06 the optimal metrics are zero"):
        model = MDML(2, push_weight=1e-6).fit(T, y)
    assert model.objective_ <= 1e-6 * len(triplets_of(T, y, 2)) * (1 + 1e-4)
    assert np.isfinite(model.transform(T)).all()


def test_fewer_components_and_given_starts():
    _, T, y = vectors_and_tensors()
    model = MDML(2, n_components=2).fit(T, y)
    assert model.n_components_ == (2, 2) and model.transform(T).shape == (24, 4)
    assert MDML(2, n_components=(3, 1)).fit(T, y).transform(T).shape == (24, 3)
    given = [np.eye(2, 4), np.ones((2, 3))]
    assert MDML(2, n_components=2, init=given).fit(T, y).n_components_ == (2, 2)
    with pytest.raises(
        ValueError, match=r"init must contain finite arrays of shapes \[\(4, 4\).* got shapes"
    ):
        MDML(2, init=given).fit(T, y)
    with pytest.raises(ValueError, match="is zero in all directions in which X varies"):
        MDML(2, init=[np.zeros((4, 4)), np.eye(3)]).fit(T, y)


def test_blank_borders_and_offsets():
    _, T, y = vectors_and_tensors()
    framed = np.full((24, 6, 5), 7.0)
    framed[:, 1:-1, 1:-1] += T
    plain, model = MDML(2, tol=1e-8).fit(T, y), MDML(2, tol=1e-8).fit(framed, y)
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-3)
    assert model.n_components_ == (4, 3)
    assert np.abs(model.metrics_[0][[0, 5]]).max() < 1e-12
    rounded = MDML(2, tol=1e-8).fit(framed.astype(np.float32), y)
    assert rounded.factors_[0].dtype == np.float32
    np.testing.assert_allclose(rounded.objective_, plain.objective_, rtol=1e-2)


def test_bad_input_is_named():
    _, T, y = vectors_and_tensors()
    with pytest.raises(ValueError, match="MDML: all samples in X are equal"):
        MDML().fit(np.ones((6, 3, 3)) / 3, np.arange(6) % 2)
    with pytest.raises(ValueError, match="MDML needs a class with at least two points"):
        MDML().fit(T[:3], [0, 1, 2])
    with pytest.warns(UserWarning, match="fewer than n_neighbors \\+ 1"):
        MDML(3).fit(T[:10], [0] * 8 + [1] * 2)
    with pytest.raises(ValueError, match="push_weight must be a number above 0"):
        MDML(push_weight=0).fit(T, y)
    with pytest.raises(ValueError, match=r"X: the largest absolute value is .*overflow"):
        MDML().fit(T * 1e200, y)
    with pytest.warns(ConvergenceWarning, match="MDML did not converge in 1 iterations"):
        MDML(2, max_iter=1).fit(T, y)
    with pytest.raises(AttributeError, match="metrics_"):
        _ = MDML().metrics_


def test_what_compare_tries_fits_small_images():
    """The settings that compare tries must not request too many components of small images."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    T = rng.normal(size=(30, 6, 5)) + 2 * rng.normal(size=(3, 6, 5))[y]
    maps = all_estimators(role="map", input="tensors")
    tried = [(cls, setting) for cls in maps.values() for setting in cls.settings]
    assert (MDML, {"push_weight": 0.1}) in tried
    for cls, setting in tried:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Fewer features than requested.
            assert np.isfinite(cls(**setting).fit(T, y).transform(T)).all()


def test_float32_keeps_channels_in_small_units():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3, 4)) * np.array([2e4, 10.0, 1.0])[:, None]
    X[:, 2] += 3 * y[:, None]
    X = X.astype(np.float32)
    found, expected = MDML().fit(X, y), MDML().fit(X.astype(np.float64), y)
    assert found.factors_[0].shape == (3, 3)
    for metric, other in zip(found.metrics_, expected.metrics_, strict=True):
        np.testing.assert_allclose(metric, other, atol=1e-4 * np.abs(other).max())


@pytest.mark.parametrize("exponent", [-300, -100, 100, 300])
def test_extreme_units_give_the_same_metric(exponent):
    _, T, y = vectors_and_tensors()
    plain, scaled = MDML(2).fit(T, y), MDML(2).fit(np.ldexp(T, exponent), y)
    np.testing.assert_allclose(scaled.objective_, plain.objective_, rtol=1e-2)
    one, other = plain.transform(T), scaled.transform(np.ldexp(T, exponent))
    distances = [pdist(mapped.reshape(len(T), -1)) for mapped in (one, other)]
    assert np.corrcoef(*distances)[0, 1] > 0.99
