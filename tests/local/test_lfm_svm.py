"""Tests of LFM-SVM against a loop over queries, written from its description."""

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.svm import SVC

from nearfar import KNNClassifier, LFMSVMClassifier
from nearfar.solvers.kernel_machine import Kernel, KernelMachine


def draw_data(n=90, p=3, classes=2, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, p)) * (1.0 + np.arange(p))
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2 / 4, [0.7, 1.8][: classes - 1])
    return X, y


# ---------------------------------------------------------------------- the oracle


def kernel(name, gamma, u, v):
    """Return the value of a kernel between two points, and its gradient in v."""
    if name == "linear":
        return u @ v, u
    if name == "poly":
        return (gamma * u @ v + 1) ** 3, 3 * (gamma * u @ v + 1) ** 2 * gamma * u
    value = np.exp(-gamma * ((u - v) ** 2).sum())
    return value, -2 * gamma * value * (v - u)


class Machine:
    """Evaluate an SVM term by term."""

    def __init__(self, rows, positive, name, C, gamma):
        self.name, self.gamma = name, gamma
        self.svc = SVC(C=C, kernel=name, gamma=self.gamma, coef0=1.0).fit(rows, positive)
        self.rows, self.C = rows, C
        alpha = np.abs(self.svc.dual_coef_[0])
        free = alpha < C * (1 - 1e-8)
        self.free = self.svc.support_[free] if free.any() else self.svc.support_

    def f(self, x):
        terms = [kernel(self.name, self.gamma, s, x)[0] for s in self.svc.support_vectors_]
        return self.svc.dual_coef_[0] @ terms + self.svc.intercept_[0]

    def slope(self, x):
        terms = [kernel(self.name, self.gamma, s, x)[1] for s in self.svc.support_vectors_]
        return self.svc.dual_coef_[0] @ np.array(terms)

    def boundary(self, x0):
        x, sign = x0, np.sign(self.f(x0))
        for _ in range(40):
            g, f = self.slope(x), self.f(x)
            step = min(1.5 * abs(f) / np.linalg.norm(g), 0.25 * np.sqrt(len(x)))
            new = x - sign * step * g / np.linalg.norm(g)
            if self.f(new) * sign < 0:
                a, b = x, new
                break
            x = new
        else:
            other = [z for z in self.rows if self.f(z) * sign < 0]
            a, b = x0, min(other, key=lambda z: np.linalg.norm(z - x0))
        return a + brentq(lambda t: self.f(a + t * (b - a)), 0, 1, xtol=1e-15, rtol=1e-15) * (b - a)


def compute_expected(X, y, queries, name, C, weight_scale=10.0):
    """Return boundary points and weights for standardized features, query by query."""
    middle, scale = np.median(X, axis=0), X.std(axis=0)
    rows, Q = (X - middle) / scale, (queries - middle) / scale
    gamma = 1 / rows.var(axis=0).sum()
    machines, points, weights = {}, [], []
    for q in Q:
        far = np.linalg.norm(rows - q, axis=1)
        near = np.argsort(far, kind="stable")[:15]
        by = sorted(set(y), key=lambda c: (-(y[near] == c).sum(), far[y == c].min()))
        pair = tuple(sorted(by[:2]))
        inside = np.isin(y, pair)
        if pair not in machines:
            machines[pair] = Machine(rows[inside], y[inside] == pair[1], name, C, gamma)
        machine = machines[pair]
        S = machine.rows[machine.free]
        D = np.mean(
            [
                min(np.linalg.norm(z - s) for s, i in zip(S, machine.free, strict=True) if i != k)
                for k, z in enumerate(machine.rows)
            ]
        )
        d = machine.boundary(q)
        n = np.abs(machine.slope(d))
        A = max(0, D - np.linalg.norm(S - q, axis=1).min())
        w = np.exp(weight_scale * A * n / np.linalg.norm(n))
        points.append(d * scale + middle)
        weights.append(w / w.sum())
    return np.array(points), np.array(weights)


@pytest.mark.parametrize(
    ("classes", "name", "C"),
    [(2, "rbf", 1.0), (3, "rbf", 10.0), (2, "linear", 1.0), (3, "poly", 1.0), (2, "poly", 0.1)],
)
def test_points_weights_neighbours_and_votes_are_those_of_a_loop(classes, name, C):
    X, y = draw_data(classes=classes)
    queries = draw_data(n=12, seed=1)[0] * 1.3
    rule = LFMSVMClassifier(kernel=name, C=C).fit(X, y)
    points, weights = compute_expected(X, y, queries, name, C)
    found, there = rule.boundary_points(queries)
    assert there.all()
    np.testing.assert_allclose(found, points, atol=1e-8)
    np.testing.assert_allclose(rule.weights_at(queries), weights, atol=1e-8)
    assert (weights.max(axis=1) > 1.1 / 3).any()
    distances, near = rule.kneighbors(queries)
    for i, x0 in enumerate(queries):
        D = np.sqrt((weights[i] * ((X - x0) / X.std(axis=0)) ** 2).sum(axis=1))
        assert near[i].tolist() == np.argsort(D)[:5].tolist()
        np.testing.assert_allclose(distances[i], D[near[i]], atol=1e-8)
        votes = np.bincount(y[near[i]])
        if (votes == votes.max()).sum() == 1:
            assert rule.predict(queries[i : i + 1]) == votes.argmax()


def test_boundary_points_lie_on_it_and_gradients_are_slopes():
    X, y = draw_data()
    for kernel_name in ("rbf", "poly", "linear"):
        rule = LFMSVMClassifier(kernel=kernel_name, C=10.0).fit(X, y)
        rows = rule._rows()
        points, found = rule.boundary_points(X)
        assert found.all()
        Z = rows.make_queries(points).standard
        assert np.abs(rule.svc_.decision_function(Z)).max() < 1e-9
        slopes = rule.svc_.gradients(Z)[1]
        for i in range(3):
            step = np.eye(3)[i] * 1e-6
            rise = rule.svc_.decision_function(Z + step) - rule.svc_.decision_function(Z - step)
            np.testing.assert_allclose(slopes[:, i], rise / 2e-6, atol=1e-6)


@pytest.mark.parametrize("few", [12, 300])
def test_who_does_not_arrive_looks_towards_the_nearest_on_the_other_side(few):
    """The search must not depend on how many of the nearest points are on the same side."""
    random = np.random.default_rng(few)
    rows = random.normal(size=(600, 2))
    positive = np.arange(600) < few
    rows[positive, 0] += 4
    machine = KernelMachine.fit(rows, positive, 1.0, Kernel("rbf", 0.5, 3, 1.0))
    far = 60 * random.normal(size=(40, 2))  # far beyond any gradient step
    far = far[np.abs(machine.gradients(far)[1]).max(axis=1) == 0]
    points, found = machine.find_boundary(far, rows)
    sides = np.array([np.sign(machine.decision_function(x[None])[0]) for x in rows])
    beyond = rows[sides == -np.sign(machine.intercept)]
    assert found.all() and len(far) > 20
    for x, point in zip(far, points, strict=True):
        end = beyond[np.linalg.norm(beyond - x, axis=1).argmin()]
        share = np.linalg.norm(point - x) / np.linalg.norm(end - x)
        assert 0 < share < 1
        np.testing.assert_allclose(point, x + share * (end - x), atol=1e-9)
    np.testing.assert_allclose(machine.decision_function(points), 0, atol=1e-10)


def test_the_normal_of_a_linear_machine_is_its_own():
    X, y = draw_data()
    rule = LFMSVMClassifier(kernel="linear").fit(X, y)
    svc = SVC(kernel="linear").fit((X - np.median(X, axis=0)) / X.std(axis=0), y)
    normal = np.abs(svc.coef_[0]) / np.linalg.norm(svc.coef_[0])
    weights = rule.weights_at(X)
    # log w_i - log w_j = a (n_i - n_j), with the same a for all features of a query.
    logs = np.log(weights) - np.log(weights).mean(axis=1, keepdims=True)
    rest = normal - normal.mean()
    a = logs @ rest / (rest @ rest)
    np.testing.assert_allclose(logs, a[:, None] * rest, atol=1e-6)
    assert (a >= -1e-9).all() and a.max() > 1


def test_far_from_the_boundary_all_features_count_alike():
    X, y = draw_data()
    rule = LFMSVMClassifier().fit(X, y)
    far = X + np.array([0.0, 0, 1e3])
    np.testing.assert_allclose(rule.weights_at(far), 1 / 3)
    plain = KNNClassifier(n_neighbors=5).fit(X / X.std(axis=0), y)
    np.testing.assert_array_equal(rule.kneighbors(far)[1], plain.kneighbors(far / X.std(axis=0))[1])
    np.testing.assert_allclose(LFMSVMClassifier(weight_scale=0.0).fit(X, y).weights_at(X), 1 / 3)
    # A negative A reverses the order of the weights.
    unclipped = LFMSVMClassifier(clip=False, weight_scale=0.1).fit(X, y).weights_at(X)
    assert (unclipped.argmin(axis=1) != rule.weights_at(X).argmin(axis=1)).any()


def test_the_published_mean_distance_turns_it_into_k_nn():
    # Most training points are support vectors at distance zero from themselves, which makes D so
    # small that almost no query is nearer to a support vector.
    random = np.random.default_rng(0)
    X, y = random.normal(size=(400, 10)), np.arange(400) % 2
    X[:, :2] += np.outer(2 * y - 1, [1.5, 0.8])
    shares = []
    for leave_one_out in (False, True):
        rule = LFMSVMClassifier(leave_one_out=leave_one_out).fit(X[:200], y[:200])
        weights = rule.weights_at(X[200:])
        shares.append(np.mean(np.ptp(weights, axis=1) > 1e-12))
    literal, left_out = shares
    assert literal < 0.1 and left_out > 0.4
    rows = rule._rows().standard
    S = rows[rule.svc_.support[rule.svc_.unbounded]]
    assert LFMSVMClassifier(leave_one_out=False).fit(X[:200], y[:200]).D_[0] == pytest.approx(
        np.mean([np.linalg.norm(S - z, axis=1).min() for z in rows])
    )


def test_no_unbounded_support_vector_and_no_boundary():
    X, y = draw_data()
    # With a tiny C, all dual variables are at their bound, and all points are on one side.
    rule = LFMSVMClassifier(C=1e-6).fit(X[:60], np.arange(60) < 20)
    assert len(rule.svc_.unbounded) == len(rule.svc_.vectors)
    np.testing.assert_allclose(rule.weights_at(X).sum(axis=1), 1)
    same = LFMSVMClassifier().fit(np.zeros((20, 2)), np.arange(20) < 5)
    assert same.n_without_boundary_ == 20
    points, found = same.boundary_points(np.ones((3, 2)))
    assert not found.any() and (points == 1).all()
    np.testing.assert_array_equal(same.weights_at(np.ones((3, 2))), 0.5)
    one = LFMSVMClassifier().fit(X, np.zeros(len(X)))
    assert one.n_without_boundary_ == len(X) and one.svcs_ == []
    assert LFMSVMClassifier().fit(X, y).n_without_boundary_ == 0


def test_classes_of_one_row_duplicates_and_more_features_than_rows():
    X, y = draw_data(classes=3)
    lonely = y.copy()
    lonely[0] = 9
    rule = LFMSVMClassifier().fit(X, lonely)
    assert len(rule.svcs_) == len(rule.D_) == 6
    with pytest.raises(AttributeError, match="svcs_"):
        rule.svc_  # noqa: B018
    assert np.isfinite(rule.weights_at(X)).all()
    assert 0 <= rule.leave_one_out_error() <= 1
    twice = LFMSVMClassifier().fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert np.isfinite(twice.weights_at(X)).all()
    wide = LFMSVMClassifier(n_neighbors=1).fit(np.eye(4, 30), [0, 1, 0, 1])
    assert wide.predict(np.eye(4, 30)).tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="n_neighbors=5 is larger"):
        LFMSVMClassifier().fit(np.eye(4, 30), [0, 1, 0, 1])


def test_distances_that_overflow_name_gamma_and_a_large_degree_is_refused():
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = np.arange(30) % 2
    with pytest.raises(ValueError, match="degree must be an integer from 1 to 1000"):
        LFMSVMClassifier(kernel="poly", degree=10**30).fit(X, y)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="gamma"):
        LFMSVMClassifier(gamma=1e150).fit(X, y).predict(X)
