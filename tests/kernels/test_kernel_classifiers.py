"""Tests of SVMs on learned and stretched kernels against scikit-learn."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.metrics import pairwise
from sklearn.svm import SVC

from nearfar import (
    AlignmentKernelLearner,
    AverageKernelLearner,
    ConformalSVC,
    Euclidean,
    MarginKernelLearner,
    MKLClassifier,
)

X, Y = load_wine(return_X_y=True)
X = X / X.std(axis=0)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("learner", [None, MarginKernelLearner(), AverageKernelLearner()], ids=str)
def test_decisions_are_those_of_a_machine_on_the_learned_kernel(learner, classes):
    some = np.isin(Y, range(classes))
    X_, y = X[some], Y[some]
    own = (AlignmentKernelLearner() if learner is None else learner).fit(X_[::2], y[::2])
    machine = SVC(C=3.0, kernel="precomputed").fit(own.kernel(X_[::2]), y[::2])
    classifier = MKLClassifier(learner, C=3.0).fit(X_[::2], y[::2])
    expected = machine.decision_function(own.kernel(X_, X_[::2]))
    np.testing.assert_allclose(classifier.decision_function(X_), expected, atol=1e-6)
    np.testing.assert_array_equal(classifier.predict(X_), machine.predict(own.kernel(X_, X_[::2])))
    np.testing.assert_array_equal(classifier.weights_, own.weights_)
    assert classifier.kernel_names_ == own.kernel_names_


def test_only_learners_of_kernels_are_taken():
    with pytest.raises(ValueError, match="estimator must be None, or a kernel learner"):
        MKLClassifier(Euclidean()).fit(X, Y)
    with pytest.raises(ValueError, match="no kernel values for other points"):
        MKLClassifier(AlignmentKernelLearner(kernel_family="free")).fit(X, Y)


def stretched(Z, centers, width, size=1.0):
    return (
        np.exp(-pairwise.euclidean_distances(Z, centers, squared=True) / (2 * width**2)).sum(axis=1)
        / size
    )


@pytest.mark.parametrize("n_rounds", [0, 1, 2])
@pytest.mark.parametrize("data", ["moons", "iris"])
def test_conformal_machine_step_by_step(data, n_rounds):
    if data == "moons":
        X, y = make_moons(120, noise=0.25, random_state=0)
    else:
        X, y = load_iris(return_X_y=True)
    gamma = 1 / X[::2].var(axis=0).sum()
    result = ConformalSVC(C=2.0, width=0.7, n_rounds=n_rounds).fit(X[::2], y[::2])
    K, c = pairwise.rbf_kernel(X[::2], gamma=gamma), np.ones(len(X[::2]))
    across, other = pairwise.rbf_kernel(X, X[::2], gamma=gamma), np.ones(len(X))
    machine = SVC(C=2.0, kernel="precomputed").fit(K, y[::2])
    for _ in range(n_rounds):
        centers = X[::2][machine.support_]
        size = np.sqrt(np.mean(stretched(X[::2], centers, 0.7) ** 2))
        c, other = stretched(X[::2], centers, 0.7, size), stretched(X, centers, 0.7, size)
        machine = SVC(C=2.0, kernel="precomputed").fit(K * np.outer(c, c), y[::2])
    expected = machine.decision_function(across * np.outer(other, c))
    np.testing.assert_allclose(result.decision_function(X), expected, atol=1e-6)
    np.testing.assert_array_equal(result.support_, machine.support_)


def test_width_is_that_between_support_vectors():
    X, y = make_moons(120, noise=0.25, random_state=0)
    plain = ConformalSVC(n_rounds=0).fit(X, y)
    centers = X[plain.support_]
    apart = pdist(centers)
    assert ConformalSVC().fit(X, y).width_ == pytest.approx(np.median(apart), rel=0.01)


@pytest.mark.parametrize("classifier", [MKLClassifier(), ConformalSVC()], ids=str)
def test_one_class_is_the_answer(classifier):
    classifier.fit(X[:9], ["a"] * 9)
    assert classifier.predict(X[:3]).tolist() == ["a"] * 3
