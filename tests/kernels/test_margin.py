"""Tests of margin functionals and weights against scikit-learn's SVC and conic programs."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from scipy import linalg, optimize
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from nearfar.kernels import margin_value, margin_weights, vc_confidence
from nearfar.kernels.margin_value import compute_primal_value

T6 = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]], float)
Y6 = np.array([-1, -1, -1, 1, 1, 1])
LINEAR6 = T6 @ T6.T
NARROW6 = np.exp(-cdist(T6, T6, "sqeuclidean") / 2)
KINDS = [(None, 0.0), (1.0, 0.0), (None, 0.5), (0.3, 0.2)]


def rows(n=24, classes=2, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return random.standard_normal((n, 4)) + 0.8 * np.eye(classes, 4)[y], y


def kernels_of(X):
    squares = cdist(X, X, "sqeuclidean")
    return [X @ X.T, np.exp(-squares / 2), np.exp(-squares / 16), (1 + X @ X.T) ** 2]


def signs_of(y):
    labels = np.unique(y)
    return [
        np.where(y == label, 1.0, -1.0) for label in (labels[1:] if len(labels) == 2 else labels)
    ]


def root(K):
    values, V = linalg.eigh(K)
    good = values > 1e-10 * values[-1]
    return np.sqrt(values[good])[:, None] * V[:, good].T


def program(kernels, y, C, dual_ridge, c, p=1.0):
    """Solve theorem B. With p > 1, the dual norm of the forms replaces their maximum."""
    n, traces = len(y), [np.trace(K) for K in kernels]
    alphas = [cp.Variable(n, nonneg=True) for _ in signs_of(y)]
    t = cp.Variable(len(kernels))
    limits = [
        sum(
            cp.sum_squares(root(K[:n, :n]) @ cp.multiply(sign, alpha))
            for sign, alpha in zip(signs_of(y), alphas, strict=True)
        )
        / trace
        <= t[i]
        for i, (K, trace) in enumerate(zip(kernels, traces, strict=True))
    ]
    rest = [sign @ alpha == 0 for sign, alpha in zip(signs_of(y), alphas, strict=True)]
    if C is not None:
        rest += [alpha <= C for alpha in alphas]
    gain = sum(2 * cp.sum(alpha) - dual_ridge * cp.sum_squares(alpha) for alpha in alphas)
    size = cp.max(t) if p == 1 else cp.pnorm(cp.pos(t), p / (p - 1))
    problem = cp.Problem(cp.Maximize(gain - c * size), limits + rest)
    return solved(problem), np.array([np.sum(limit.dual_value) for limit in limits]) / traces


def conic(kernels, y, C, dual_ridge, c, rank=None):
    """Solve the matrix inequality of theorem A over the span of the kernels, or all matrices."""
    n, N = len(y), rank or len(kernels[0])
    if kernels is None:
        K = cp.Variable((N, N), PSD=True)
        limits = []
    else:
        mu = cp.Variable(len(kernels))
        K = sum(mu[i] * kernel for i, kernel in enumerate(kernels))
        limits = [(K + K.T) / 2 >> 0]
    limits.append(cp.trace(K) == c)
    values = []
    for sign in signs_of(y):
        t, regularization = cp.Variable(), cp.Variable()
        nu, delta = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
        right = cp.reshape(1 + nu - delta + regularization * sign, (n, 1), order="C")
        corner = t - 2 * (C or 0.0) * cp.sum(delta)
        G = cp.multiply(np.outer(sign, sign), K[:n, :n]) + dual_ridge * np.eye(n)
        block = cp.bmat([[G, right], [right.T, cp.reshape(corner, (1, 1), order="C")]])
        limits += [(block + block.T) / 2 >> 0] + ([delta == 0] if C is None else [])
        values.append(t)
    return solved(cp.Problem(cp.Minimize(sum(values)), limits))


def proven(found, kernels, y, dual_ridge, c, p=1.0):
    """Return the bound, computed from alpha and the kernels alone."""
    n = len(y)
    alphas = np.atleast_2d(found.alpha)
    forms = np.zeros(len(kernels))
    for sign, alpha in zip(signs_of(y), alphas, strict=True):
        assert abs(sign @ alpha) <= 1e-9 * alpha.sum()
        z = sign * alpha
        forms += [z @ K[:n, :n] @ z / np.trace(K) for K in kernels]
    size = forms.max() if p == 1 else np.linalg.norm(forms, p / (p - 1))
    return 2 * alphas.sum() - dual_ridge * np.sum(alphas**2) - c * size


# ---------------------------------------------------------------------- one kernel


def test_anchors_of_six_points():
    assert margin_value(LINEAR6, Y6) == pytest.approx(20 / 9, rel=1e-6)
    assert margin_value(LINEAR6, Y6, 1.0) == pytest.approx(2.2, rel=1e-6)
    assert margin_value(LINEAR6, Y6, dual_ridge=1.0) == pytest.approx(1.16923077, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_value_is_twice_the_dual_objective_of_svc(classes):
    X, y = rows(60, classes)
    for C in (0.1, 10.0):
        for K in kernels_of(X)[:2]:
            twice = 0.0
            for sign in signs_of(y):
                machine = SVC(C=C, kernel="precomputed", tol=1e-8).fit(K, sign)
                a = machine.dual_coef_[0]
                inner = a @ K[np.ix_(machine.support_, machine.support_)] @ a
                twice += 2 * np.abs(a).sum() - inner
            assert margin_value(K, y, C) == pytest.approx(twice, rel=1e-5)


@pytest.mark.parametrize(("C", "dual_ridge"), KINDS)
def test_value_is_that_of_the_primal_program(C, dual_ridge):
    X, y = rows()
    R, sign = root(np.exp(-cdist(X, X, "sqeuclidean") / 2)), signs_of(y)[0]
    w, b, s = cp.Variable(len(R)), cp.Variable(), cp.Variable(len(y), nonneg=True)
    # The loss of a slack: 2Cs, s²/dual_ridge, or s²/dual_ridge that continues with slope 2C.
    if C is None:
        loss, limits = (cp.sum_squares(s) / dual_ridge, []) if dual_ridge else (0.0, [s == 0])
    elif dual_ridge == 0:
        loss, limits = 2 * C * cp.sum(s), []
    else:
        u, v = cp.Variable(len(y), nonneg=True), cp.Variable(len(y), nonneg=True)
        loss, limits = cp.sum_squares(u) / dual_ridge + 2 * C * cp.sum(v), [s == u + v]
    limits.append(cp.multiply(sign, R.T @ w + b) >= 1 - s)
    primal = solved(cp.Problem(cp.Minimize(cp.sum_squares(w) + loss), limits))
    assert margin_value(R.T @ R, y, C, dual_ridge) == pytest.approx(primal, rel=1e-5)


def test_scaling_and_the_distance_of_hulls():
    X, y = rows(seed=3)
    K = np.exp(-cdist(X, X, "sqeuclidean") / 2)
    for C, dual_ridge in KINDS:
        scaled = margin_value(K, y, None if C is None else 3 * C, dual_ridge / 3) / 3
        assert margin_value(3 * K, y, C, dual_ridge) == pytest.approx(scaled, rel=1e-5)
    R = root(K)
    first, second = (cp.Variable(n, nonneg=True) for n in np.bincount(y))
    apart = cp.sum_squares(R[:, y == 0] @ first - R[:, y == 1] @ second)
    squared = solved(cp.Problem(cp.Minimize(apart), [cp.sum(first) == 1, cp.sum(second) == 1]))
    assert margin_value(K, y) == pytest.approx(4 / squared, rel=1e-5)


def test_inseparable_rows_have_no_hard_margin():
    X, y = rows(60)
    with pytest.raises(ValueError, match="hulls intersect. Set C"):
        margin_value(X @ X.T, y)
    with pytest.raises(ValueError, match="hulls intersect. Set C"):
        margin_weights([X @ X.T, 1 + X @ X.T], y, C=None)
    copies = np.vstack([X, X])
    K = np.exp(-cdist(copies, copies, "sqeuclidean"))
    with pytest.raises(ValueError, match="does not separate"):
        margin_value(K, np.append(y, 1 - y))


def test_confidence_term():
    assert vc_confidence(1000, 3, 0.05) == pytest.approx(
        np.sqrt((3 * (np.log(2000 / 3) + 1) - np.log(0.05 / 4)) / 1000)
    )
    for wrong in ({"n": 0}, {"h": 0}, {"h": 3000}, {"eta": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            vc_confidence(**{"n": 1000, "h": 3, "eta": 0.05, **wrong})


# ---------------------------------------------------------------------- weights

ANCHORS = [
    (None, 0.0, 5.36369948, [0, 1]),
    (1.0, 0.0, 5.19110527, [0.05000909, 0.69161064]),
    (None, 1.0, 2.70390409, [0.07854527, 0.51563749]),
]


@pytest.mark.parametrize(("C", "dual_ridge", "value", "weights"), ANCHORS)
def test_anchors_of_two_kernels(C, dual_ridge, value, weights):
    result = margin_weights([LINEAR6, NARROW6], Y6, C=C, dual_ridge=dual_ridge, trace=6, tol=1e-7)
    assert result.value == pytest.approx(value, rel=1e-6)
    assert result.weights == pytest.approx(weights, abs=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("C", "dual_ridge"), KINDS)
def test_weights_reach_the_optimum_of_the_conic_program(C, dual_ridge, classes):
    X, y = rows(20, classes)
    kernels = kernels_of(X)
    optimum, weights = program(kernels, y, C, dual_ridge, 20.0)
    result = margin_weights(kernels, y, C=C, dual_ridge=dual_ridge, tol=1e-5)
    assert result.bound <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= result.value
    assert result.value == pytest.approx(optimum, rel=1e-4)
    assert result.bound == pytest.approx(proven(result, kernels, y, dual_ridge, 20.0), rel=1e-9)
    assert result.weights @ [np.trace(K) for K in kernels] == pytest.approx(20)
    assert result.weights == pytest.approx(weights, abs=0.15 * np.abs(weights).max())
    # Compute the functional of the learned kernel in another way.
    assert margin_value(result.kernel, y, C, dual_ridge) == pytest.approx(result.value, rel=1e-4)
    assert np.all(result.alpha >= 0) and (C is None or result.alpha.max() <= C)
    values, bounds = ([step[k] for step in result.history] for k in ("value", "bound"))
    assert np.all(np.diff(values) <= 0) and np.all(np.diff(bounds) >= 0)


def test_weights_read_as_variables_would_not_do():
    """The weights are the multipliers of the forms; the forms themselves are far from them."""
    X, y = rows(20)
    kernels = kernels_of(X)
    result = margin_weights(kernels, y, tol=1e-5)
    z = signs_of(y)[0] * result.alpha
    forms = np.array([z @ K @ z / np.trace(K) for K in kernels])
    wrong = forms / (forms @ [np.trace(K) for K in kernels]) * 20
    assert margin_value(sum(w * K for w, K in zip(wrong, kernels, strict=True)), y, 1.0) > (
        1.01 * result.value
    )


@pytest.mark.parametrize(("classes", "labelled"), [(2, 20), (3, 14)])
@pytest.mark.parametrize("p", [1.1, 2.0, 4.0])
@pytest.mark.parametrize(("C", "dual_ridge"), [(1.0, 0.0), (None, 0.5)])
def test_norms_reach_the_optimum_of_the_conic_program(p, C, dual_ridge, classes, labelled):
    X, y = rows(20, classes)
    kernels, y = kernels_of(X), y[:labelled]
    optimum, _ = program(kernels, y, C, dual_ridge, 20.0, p)
    result = margin_weights(kernels, y, C=C, dual_ridge=dual_ridge, norm=p, tol=2e-5)
    assert result.bound * (1 - 1e-6) <= optimum <= result.value * (1 + 1e-6)
    assert result.value == pytest.approx(optimum, rel=1e-4)
    assert result.bound == pytest.approx(proven(result, kernels, y, dual_ridge, 20.0, p), rel=1e-8)
    sizes = result.weights * [np.trace(K) for K in kernels]
    assert np.linalg.norm(sizes, p) == pytest.approx(20)
    learned = result.kernel[:labelled, :labelled]
    assert margin_value(learned, y, C, dual_ridge) == pytest.approx(result.value, rel=1e-4)


@pytest.mark.parametrize(("C", "dual_ridge"), [(1.0, 0.0), (None, 0.5), (None, 0.0)])
@pytest.mark.parametrize("labelled", [14, 8])
def test_signed_weights_reach_the_optimum_over_the_span(C, dual_ridge, labelled):
    X, y = rows(14, seed=1)
    kernels, y = kernels_of(X)[:3], y[:labelled]
    optimum = conic(kernels, y, C, dual_ridge, 14.0)
    result = margin_weights(
        kernels, y, C=C, dual_ridge=dual_ridge, kernel_family="signed", tol=5e-4
    )
    assert result.bound * (1 - 1e-5) <= optimum <= result.value * (1 + 1e-5)
    assert result.value == pytest.approx(optimum, rel=1e-3)
    assert result.weights @ [np.trace(K) for K in kernels] == pytest.approx(14)
    assert linalg.eigvalsh(result.kernel)[0] >= -1e-9 * 14
    # The bound that alpha alone proves is the minimum of its plane over the cone.
    z = np.zeros(14)
    z[:labelled] = signs_of(y)[0] * result.alpha
    mu = cp.Variable(3)
    K = sum(mu[i] * kernel for i, kernel in enumerate(kernels))
    plane = 2 * result.alpha.sum() - dual_ridge * result.alpha @ result.alpha
    plane -= sum(mu[i] * (z @ kernel @ z) for i, kernel in enumerate(kernels))
    proof = solved(cp.Problem(cp.Minimize(plane), [(K + K.T) / 2 >> 0, cp.trace(K) == 14]))
    assert result.bound * (1 - 1e-5) <= proof <= optimum * (1 + 1e-5)
    # With S of the cuts, no program is needed: all kernels have the same multiple of the trace.
    S = result.psd_cuts @ result.psd_cuts.T
    multiples = [(z @ kernel @ z + np.sum(S * kernel)) / np.trace(kernel) for kernel in kernels]
    assert multiples == pytest.approx([multiples[0]] * 3, rel=1e-2)
    if (result.weights < -1e-3).any():
        assert result.value < margin_weights(kernels, y, C=C, dual_ridge=dual_ridge, tol=1e-5).bound


def test_points_without_a_label_count_by_their_trace():
    X, y = rows(24)
    kernels, y = kernels_of(X), y[:15]
    for C, dual_ridge in KINDS[1:3]:
        optimum, _ = program(kernels, y, C, dual_ridge, 10.0)
        result = margin_weights(
            np.array(kernels), y, C=C, dual_ridge=dual_ridge, trace=10, tol=1e-5
        )
        assert result.value == pytest.approx(optimum, rel=1e-4)
        assert result.bound == pytest.approx(proven(result, kernels, y, dual_ridge, 10.0), rel=1e-9)
        assert result.kernel.shape == (24, 24) and np.trace(result.kernel) == pytest.approx(10)


@pytest.mark.parametrize(("C", "dual_ridge"), [(None, 0.0), (0.02, 0.0), (1.0, 0.3), (None, 1.0)])
def test_free_kernel_is_the_closed_form(C, dual_ridge):
    y = np.array([0, 1, 1, 0, 1, 1, 1])
    # Without C and dual_ridge, the conic solver is inaccurate, but the value is known.
    optimum = (
        4 * 5 * 2 / (7 * 5)
        if C is None and dual_ridge == 0
        else conic(None, y, C, dual_ridge, 5.0, 9)
    )
    result = margin_weights(
        None, y, C=C, dual_ridge=dual_ridge, kernel_family="free", trace=5, n_points=9
    )
    assert result.value == pytest.approx(optimum, rel=1e-6)
    assert result.gap == pytest.approx(0, abs=1e-9)
    assert result.weights is None
    # The solution repeats the labels and is zero for other points.
    assert not result.kernel[7:].any() and np.linalg.matrix_rank(result.kernel) == 1
    assert np.trace(result.kernel) == pytest.approx(5)
    other = margin_weights(
        [np.eye(9), np.ones((9, 9)) + np.eye(9)], y, C=C, dual_ridge=dual_ridge, trace=5
    )
    assert result.value <= other.value


def test_signed_weights_of_several_classes():
    X, y = rows(15, 3, seed=1)
    kernels = kernels_of(X)[:3]
    for C, dual_ridge, labelled in ((1.0, 0.0, 15), (None, 0.5, 10)):
        optimum = conic(kernels, y[:labelled], C, dual_ridge, 15.0)
        result = margin_weights(
            kernels, y[:labelled], C=C, dual_ridge=dual_ridge, kernel_family="signed", tol=5e-4
        )
        assert result.bound * (1 - 1e-5) <= optimum <= result.value * (1 + 1e-5)
        assert result.value == pytest.approx(optimum, rel=1e-3)
        assert linalg.eigvalsh(result.kernel)[0] >= -1e-9 * 15


@pytest.mark.parametrize(("C", "dual_ridge"), KINDS)
@pytest.mark.parametrize(("classes", "labelled"), [(2, 16), (3, 11)])
def test_directions_of_one_kernel(C, dual_ridge, classes, labelled):
    X, y = rows(16, classes)
    y = y[:labelled]
    K = np.exp(-cdist(X, X, "sqeuclidean") / 4)
    V = linalg.eigh(K)[1][:, ::-1][:, :8]
    optimum, _ = program([np.outer(v, v) for v in V.T], y, C, dual_ridge, 16.0)
    result = margin_weights(
        K, y, C=C, dual_ridge=dual_ridge, kernel_family="rank_one", n_directions=8, tol=5e-5
    )
    assert result.value == pytest.approx(optimum, rel=1e-4)
    assert result.bound <= optimum * (1 + 1e-6)
    assert np.abs(np.sum(result.directions * V, axis=0)) == pytest.approx(np.ones(8))
    assert result.kernel == pytest.approx(
        (result.directions * result.weights) @ result.directions.T
    )


def test_one_kernel_is_scaled_to_the_trace():
    X, y = rows()
    K = X @ X.T
    result = margin_weights([K], y, trace=3)
    assert result.weights == pytest.approx([3 / np.trace(K)])
    assert len(result.history) == 1


def test_intercept_serves_the_learned_kernel():
    X, y = rows(60, seed=2)
    kernels = kernels_of(X)
    result = margin_weights(kernels, y, C=1.0, tol=1e-5)
    sign = signs_of(y)[0]
    decision = result.kernel @ (sign * result.alpha) + result.intercept
    machine = SVC(C=1.0, kernel="precomputed", tol=1e-6).fit(result.kernel, y)
    assert decision == pytest.approx(machine.decision_function(result.kernel), abs=0.05)


def test_kernels_may_come_from_a_function_and_as_float32():
    X, y = rows(30)
    kernels = kernels_of(X)
    given = margin_weights(kernels, y)
    asked = []

    def made(i):
        asked.append(i)
        return kernels[i]

    assert margin_weights(made, y).weights == pytest.approx(given.weights, abs=1e-9)
    assert max(asked) == 4  # the call that raises IndexError
    single = [K.astype(np.float32) for K in kernels]
    assert margin_weights(single, y).value == pytest.approx(given.value, rel=1e-3)


def test_a_limit_of_rounds_is_told_and_still_proven():
    X, y = rows(40)
    kernels = kernels_of(X)
    for norm in (1.0, 1.5):
        with pytest.warns(ConvergenceWarning, match="after 2 rounds, at a gap of"):
            result = margin_weights(kernels, y, max_iter=2, tol=1e-7, norm=norm)
        best = margin_weights(kernels, y, norm=norm, tol=1e-4)
        assert result.bound <= best.value and best.bound <= result.value


def test_inputs_are_not_changed():
    X, y = rows(30)
    kernels = kernels_of(X)
    for K in kernels:
        K.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        margin_value(kernels[0], y, 1.0, 0.1)
        margin_weights(kernels, y, C=1.0, dual_ridge=0.1)
        margin_weights(kernels, y, C=None, dual_ridge=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("C", "dual_ridge"), [(1.0, 0.0), (None, 1.0)])
def test_a_thousand_rows_are_proven(C, dual_ridge):
    X, y = rows(1000)
    kernels = kernels_of(X)
    result = margin_weights(kernels, y, C=C, dual_ridge=dual_ridge)
    assert 0 <= result.gap <= 1e-3
    assert result.bound == pytest.approx(proven(result, kernels, y, dual_ridge, 1000.0), rel=1e-9)


@pytest.mark.parametrize("C", [None, 0.3, 5.0])
def test_the_intercept_of_squared_hinges_makes_the_objective_least(C):
    random = np.random.default_rng(0)
    for n in (2, 9, 60):
        y = np.where(np.arange(n) % 3 == 1, 1.0, -1.0)
        f, dual_ridge = random.normal(size=n) + 0.3 * y, 0.7
        value, b = compute_primal_value(f, 2.0, y, C, dual_ridge)

        def at(b, f=f, y=y):
            slack = 1 - y * (f + b)
            a = np.clip(slack / 0.7, 0, C)
            return 2.0 + a @ (2 * slack - 0.7 * a)

        result = optimize.minimize_scalar(at, bounds=(-9, 9), options={"xatol": 1e-10})
        assert value == pytest.approx(at(b)) and value <= result.fun * (1 + 1e-12)
