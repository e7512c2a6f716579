"""Tests of kernel learners against conic programs, and inside other estimators."""

import cvxpy as cp
import numpy as np
import pytest
from conic import solved
from scipy import linalg
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris, make_moons
from sklearn.metrics import pairwise
from sklearn.svm import SVC

from nearfar import (
    AlignmentKernelLearner,
    AverageKernelLearner,
    EasyMKL,
    MarginKernelLearner,
)

LEARNERS = [AlignmentKernelLearner, AverageKernelLearner, EasyMKL, MarginKernelLearner]
NAMED = [
    "linear",
    ("poly", {"degree": 2, "gamma": 0.3}),
    ("rbf", {"gamma": 0.2, "columns": [0, 1]}),
    ("rbf", {"gamma": 0.4}),
]


def made(n=36, classes=2, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return random.standard_normal((n, 3)) + 1.2 * np.eye(classes, 3)[y], y


X, Y = made()


def kernels_of(A, B, mean):
    A, B = A - mean, B - mean
    return [
        A @ B.T,
        pairwise.polynomial_kernel(A, B, degree=2, gamma=0.3, coef0=1),
        pairwise.rbf_kernel(A[:, :2], B[:, :2], gamma=0.2),
        pairwise.rbf_kernel(A, B, gamma=0.4),
    ]


def root_of(K):
    values, V = linalg.eigh(K)
    return np.sqrt(np.maximum(values, 0))[:, None] * V.T


def least_margin(kernels, signs, C, total):
    """Solve theorem B with cvxpy; return the value and the weights, which are multipliers."""
    n = len(signs)
    alpha, t = cp.Variable(n, nonneg=True), cp.Variable()
    limits = [
        cp.sum_squares(root_of(K[:n, :n]) @ cp.multiply(signs, alpha)) / np.trace(K) <= t
        for K in kernels
    ]
    problem = cp.Problem(
        cp.Maximize(2 * cp.sum(alpha) - total * t), [signs @ alpha == 0, alpha <= C, *limits]
    )
    value = solved(problem)
    traces = np.array([np.trace(K) for K in kernels])
    return value, np.array([limit.dual_value for limit in limits]).ravel() / traces


@pytest.mark.parametrize("n_labels", [36, 24])
def test_margin_learner_is_the_program_of_its_kernels(n_labels):
    kernels = kernels_of(X, X, X.mean(axis=0))
    signs = np.where(Y[:n_labels] == 1, 1.0, -1.0)
    value, weights = least_margin(kernels, signs, 2.0, len(X))
    more = {} if n_labels == 36 else {"unlabeled": X[24:]}
    learner = MarginKernelLearner(NAMED, C=2.0, tol=1e-5).fit(X[:n_labels], Y[:n_labels], **more)
    assert learner.bound_ - 1e-6 <= value <= learner.objective_ * (1 + 1e-6)
    assert learner.objective_ == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(learner.weights_, weights, atol=2e-2 * weights.max())
    assert learner.weights_ @ [np.trace(K) for K in kernels] == pytest.approx(36)
    # The bound can be computed from alpha alone.
    z = signs * learner.alpha_
    forms = [z @ K[:n_labels, :n_labels] @ z / np.trace(K) for K in kernels]
    assert 2 * learner.alpha_.sum() - 36 * max(forms) == pytest.approx(learner.bound_, rel=1e-6)
    assert learner.n_iter_ == len(learner.history_["gap"])


@pytest.mark.parametrize("classes", [2, 3])
def test_alignment_learner_is_the_program_of_its_kernels(classes):
    X, y = made(classes=classes)
    center = np.eye(36) - 1 / 36
    kernels = [center @ K @ center for K in kernels_of(X, X, X.mean(axis=0))]
    T = np.where(y[:, None] == y, 1.0, -1 / (classes - 1))
    mu = cp.Variable(4, nonneg=True)
    stack = np.array([K.ravel() / np.linalg.norm(K) for K in kernels])
    problem = cp.Problem(cp.Maximize((stack @ T.ravel()) @ mu), [cp.norm(stack.T @ mu) <= 1])
    solved(problem)
    learner = AlignmentKernelLearner(NAMED).fit(X, y)
    assert learner.objective_ == pytest.approx(problem.value, rel=1e-6)
    expected = mu.value / [np.linalg.norm(K) for K in kernels]
    result = learner.weights_ / learner.weights_.max()
    np.testing.assert_allclose(result, expected / expected.max(), atol=1e-3)
    assert 0 <= learner.duality_gap_ < 1e-9


def test_easy_mkl_is_its_program_and_static_weights_are_those_of_matrices():
    kernels = [
        K / np.sqrt(np.outer(K.diagonal(), K.diagonal())) for K in kernels_of(X, X, X.mean(axis=0))
    ]
    signs, gamma = np.where(Y == 1, 1.0, -1.0), cp.Variable(36, nonneg=True)
    distance = cp.sum_squares(root_of(sum(kernels) / 4) @ cp.multiply(signs, gamma))
    problem = cp.Problem(
        cp.Minimize(0.8 * distance + 0.2 * cp.sum_squares(gamma)),
        [cp.sum(gamma[signs > 0]) == 1, cp.sum(gamma[signs < 0]) == 1],
    )
    solved(problem)
    learner = EasyMKL(NAMED, regularization=0.2).fit(X, Y)
    assert learner.objective_ == pytest.approx(problem.value, rel=1e-5)
    assert learner.bound_ <= problem.value * (1 + 1e-6)
    z = signs * gamma.value
    expected = np.array([z @ K @ z for K in kernels])
    np.testing.assert_allclose(learner.weights_, expected / expected.sum(), atol=1e-5)
    np.testing.assert_allclose(EasyMKL.weights_of(kernels, Y, 0.2), learner.weights_, atol=1e-9)


def test_average_has_kernels_of_equal_trace():
    kernels = kernels_of(X, X, X.mean(axis=0))
    learner = AverageKernelLearner(NAMED).fit(X, Y)
    np.testing.assert_allclose(learner.weights_ * [np.trace(K) for K in kernels], 9.0)
    expected = sum(36 / 4 / np.trace(K) * K for K in kernels)
    np.testing.assert_allclose(learner.kernel(X), expected, rtol=1e-10)


MODES = [
    *(cls(NAMED, n_directions=None) for cls in LEARNERS),
    MarginKernelLearner(NAMED, norm=2.0, n_directions=None),
    MarginKernelLearner(NAMED, C=None, dual_ridge=0.5, n_directions=None),
    *(
        cls(NAMED, kernel_family=mode, n_directions=None)
        for cls in (AlignmentKernelLearner, MarginKernelLearner)
        for mode in ("signed", "rank_one")
    ),
    AlignmentKernelLearner(NAMED, kernel_family="independent", n_directions=None),
    AlignmentKernelLearner(NAMED, kernel_family="rank_one", centered=False, n_directions=None),
]


@pytest.mark.parametrize("learner", MODES, ids=str)
def test_new_points_have_the_kernel_and_its_distances(learner):
    X, y = made(30, 3)
    Z = made(8, 3, seed=1)[0]
    learner.fit(X, y)
    # The learned kernel is the weighted sum of the base kernels.
    for A, B in ((X, X), (Z, X), (Z, Z)):
        parts = [w * learner.base_kernel(i, A, B) for i, w in enumerate(learner.weights_)]
        np.testing.assert_allclose(learner.kernel(A, B), sum(parts), atol=1e-8)
    K = learner.kernel(X)
    assert linalg.eigvalsh(K)[0] > -1e-7 * np.trace(K)
    assert np.trace(K) == pytest.approx(30) or getattr(learner, "norm", 1.0) != 1.0

    def squared(K, rows, columns):
        return rows[:, None] + columns - 2 * K

    # With all directions, distances between training points are exact. A new point has a component
    # outside their span, which adds the same amount to all its distances.
    T, Q = learner.transform(X), learner.transform(Z)
    exact = squared(K, K.diagonal(), K.diagonal())
    np.testing.assert_allclose(cdist(T, T, "sqeuclidean"), exact, atol=1e-6)
    beyond = squared(learner.kernel(Z, X), learner.kernel(Z).diagonal(), K.diagonal())
    outside = beyond - cdist(Q, T, "sqeuclidean")
    if learner.get_params().get("kernel_family") == "rank_one":  # no component outside the span
        np.testing.assert_allclose(outside, 0, atol=1e-6)
    np.testing.assert_allclose(outside, outside[:, :1] + np.zeros(30), atol=1e-5)
    # Distances between points in the span are exact.
    both = np.vstack([X[:5], X[3:8]])
    again = learner.transform(both)
    expected = squared(learner.kernel(both), *2 * (learner.kernel(both).diagonal(),))
    np.testing.assert_allclose(cdist(again, again, "sqeuclidean"), expected, atol=1e-6)


@pytest.mark.parametrize("cls", [AlignmentKernelLearner, MarginKernelLearner])
def test_eigenvectors_of_new_points_are_those_of_training_points_there(cls):
    learner = cls(["rbf"], kernel_family="rank_one", n_directions=5).fit(X, Y)
    gamma = 1 / np.median((squares := cdist(X, X, "sqeuclidean"))[squares > 0])
    K = np.exp(-gamma * squares)
    if cls is AlignmentKernelLearner:
        center = np.eye(36) - 1 / 36
        K = center @ K @ center
    V = linalg.eigh(K)[1][:, ::-1][:, :5]
    for i in range(5):
        np.testing.assert_allclose(learner.base_kernel(i, X), np.outer(V[:, i], V[:, i]), atol=1e-8)
    assert learner.weights_.sum() == pytest.approx(36)
    assert learner.kernel_names_[4] == "direction 4"


@pytest.mark.parametrize("cls", [AlignmentKernelLearner, MarginKernelLearner])
def test_free_matrices_have_no_kernel_for_new_points_and_say_so(cls):
    learner = cls(kernel_family="free").fit(X, Y, unlabeled=X)
    assert learner.objective_ == pytest.approx(learner.bound_, rel=1e-6)
    assert len(learner.weights_) == 0 and not hasattr(learner, "transduction_")
    for use in (learner.kernel, learner.transform):
        with pytest.raises(
            ValueError, match='kernel_family="free" .* no kernel values for other points'
        ):
            use(X)


@pytest.mark.parametrize("cls", LEARNERS)
def test_a_machine_takes_the_kernel(cls):
    X, y = load_iris(return_X_y=True)
    learner = cls().fit(X[::2], y[::2])
    machine = SVC(kernel=learner.kernel).fit(X[::2], y[::2])
    same = SVC(kernel="precomputed").fit(learner.kernel(X[::2]), y[::2])
    np.testing.assert_array_equal(machine.predict(X), same.predict(learner.kernel(X, X[::2])))
    assert machine.score(X[1::2], y[1::2]) > 0.9


@pytest.mark.parametrize("cls", LEARNERS)
def test_rows_without_labels_get_them(cls):
    X, y = make_moons(120, noise=0.1, random_state=0)
    names = np.array(["down", "up"])[y]
    learner = cls().fit(X[:60], names[:60], unlabeled=X[60:])
    assert np.mean(learner.transduction_ == names[60:]) > 0.9
    # Traces include the unlabeled rows.
    assert np.trace(learner.kernel(X)) == pytest.approx(120)
    assert not hasattr(cls().fit(X[:60], names[:60]), "transduction_")


def test_transduction_of_margins_is_that_of_their_machine():
    X, y = made(60, 3)
    learner = MarginKernelLearner(NAMED, C=5.0, tol=1e-6).fit(X[:40], y[:40], unlabeled=X[40:])
    one = [
        SVC(C=5.0, kernel="precomputed", tol=1e-8)
        .fit(learner.kernel(X[:40]), np.where(y[:40] == k, 1, -1))
        .decision_function(learner.kernel(X[40:], X[:40]))
        for k in range(3)
    ]
    assert np.mean(np.argmax(one, axis=0) == learner.transduction_) > 0.94


def test_views_one_of_which_is_noise():
    X, y = make_moons(200, noise=0.1, random_state=0)
    noise = np.random.default_rng(0).standard_normal((200, 4))
    views = [("rbf", {"columns": [0, 1]}), ("rbf", {"columns": [2, 3, 4, 5]})]
    for learner in (AlignmentKernelLearner(views), EasyMKL(views)):
        weights = learner.fit(np.column_stack([X, noise]), y).weights_
        assert weights[0] > weights[1]


def test_columns_by_name():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    by_name = AlignmentKernelLearner(["linear", ("rbf", {"columns": ["c", "a"]})]).fit(frame, Y)
    by_index = AlignmentKernelLearner(["linear", ("rbf", {"columns": [0, 2]})]).fit(X, Y)
    np.testing.assert_array_equal(by_name.weights_, by_index.weights_)
    assert by_name.kernel_names_[1].endswith(" of a, c")
    SVC(kernel=by_name.kernel).fit(frame, Y).predict(frame)  # no warning about names


@pytest.mark.filterwarnings("error")
def test_arrays_may_come_without_names():
    pd = pytest.importorskip("pandas")
    learner = AverageKernelLearner(NAMED).fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y)
    np.testing.assert_array_equal(
        learner.kernel(X), AverageKernelLearner(NAMED).fit(X, Y).kernel(X)
    )


@pytest.mark.parametrize("cls", LEARNERS)
def test_bad_input(cls):
    with pytest.raises(ValueError, match="unlabeled: .*2 features"):
        cls().fit(X, Y, unlabeled=X[:, :2])
    with pytest.raises(ValueError, match="unlabeled: .*NaN"):
        cls().fit(X, Y, unlabeled=np.full((2, 3), np.nan))
    with pytest.raises(ValueError, match="unknown kernel 'gauss'"):
        cls(["gauss"]).fit(X, Y)
    with pytest.raises(ValueError, match="do not vary"):
        cls(["linear"]).fit(np.ones((4, 2)), [0, 0, 1, 1])
    learner = cls(NAMED).fit(X, Y)
    with pytest.raises(ValueError, match="i must be the index of a kernel, from 0 to 3; got 4"):
        learner.base_kernel(4, X)
    with pytest.raises(ValueError, match="3 features"):
        learner.kernel(X, X[:, :2])


def test_bad_input_of_programs():
    twice = np.vstack([X, X])
    with pytest.raises(ValueError, match="hard margin, but the kernel does not separate"):
        MarginKernelLearner(C=None).fit(twice, np.append(Y, 1 - Y))
    with pytest.raises(ValueError, match='norm can be set only with kernel_family="nonneg"'):
        MarginKernelLearner(norm=2.0, kernel_family="signed").fit(X, Y)
    with pytest.raises(ValueError, match="no kernel is aligned with y"):
        AlignmentKernelLearner(["linear"]).fit([[1.0], [-1.0], [1.0], [-1.0]], [0, 0, 1, 1])
    with pytest.raises(ValueError, match="linearly independent"):
        MarginKernelLearner(["linear", "linear"], kernel_family="signed").fit(X, Y)
    with pytest.raises(ValueError, match="Set regularization above 0"):
        EasyMKL(["linear"], regularization=0.0).fit(twice, np.append(Y, 1 - Y))
