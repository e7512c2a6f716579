"""MinimumMahalanobisClassifier compared with loops and with scikit-learn."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import APAC, DLDA, LDA, LMNN, PCA, MinimumMahalanobisClassifier
from nearfar.neighbors.minimum_mahalanobis import pool_covariances
from nearfar.summaries.class_statistics import ClassStatistics


def unequal(n=200, p=3, c=3, seed=0):
    """Return classes of different size and volume."""
    rng = np.random.default_rng(seed)
    y = rng.choice(c, size=n, p=np.arange(1, c + 1) / np.arange(1, c + 1).sum())
    X = rng.normal(size=(n, p)) * (1.0 + 1.5 * y)[:, None] + 2 * rng.normal(size=(c, p))[y]
    return X @ rng.normal(size=(p, p)), y


def scores_by_loops(X, y, queries, rule, ddof):
    scores = np.empty((len(queries), len(np.unique(y))))
    for k, label in enumerate(np.unique(y)):
        own = X[y == label]
        mean = own.mean(axis=0)
        C = (own - mean).T @ (own - mean) / (len(own) - ddof)
        for i, query in enumerate(queries):
            square = (query - mean) @ np.linalg.inv(C) @ (query - mean)
            scores[i, k] = np.sqrt(square)
            if rule != "mahalanobis":
                scores[i, k] = square + np.log(np.linalg.det(C))
            if rule == "posterior":
                scores[i, k] -= 2 * np.log(len(own) / len(X))
    return scores


@pytest.mark.parametrize("rule", ["mahalanobis", "gaussian", "posterior"])
@pytest.mark.parametrize("ddof", [0.0, 1.0])
def test_rules_are_their_formulas(rule, ddof):
    X, y = unequal()
    queries = np.random.default_rng(1).normal(size=(50, 3)) * 5
    wanted = scores_by_loops(X, y, queries, rule, ddof)
    classifier = MinimumMahalanobisClassifier(rule=rule, ddof=ddof).fit(X, y)
    np.testing.assert_array_equal(classifier.predict(queries), wanted.argmin(axis=1))
    # Up to a constant that is equal for all classes.
    difference = -classifier.decision_function(queries) - wanted
    np.testing.assert_allclose(difference, difference[0, 0], atol=1e-8 * np.abs(wanted).max())
    if rule == "mahalanobis":
        np.testing.assert_allclose(difference, 0, atol=1e-9)


def test_two_classes_have_one_decision():
    X, y = unequal(c=2)
    rule = MinimumMahalanobisClassifier().fit(X, y)
    wanted = scores_by_loops(X, y, X, "mahalanobis", 1)
    np.testing.assert_allclose(rule.decision_function(X), wanted[:, 0] - wanted[:, 1], atol=1e-9)
    np.testing.assert_array_equal(rule.predict(X), (rule.decision_function(X) > 0).astype(int))


def test_it_is_not_quadratic_discriminant_analysis():
    X, y = unequal(n=600)
    wide = MinimumMahalanobisClassifier().fit(X, y).predict(X)
    qda = QuadraticDiscriminantAnalysis().fit(X, y).predict(X)
    assert np.mean(wide != qda) > 0.05
    # The widest class attracts points of the others.
    assert np.mean(wide == 2) > np.mean(qda == 2)


def test_posterior_is_quadratic_discriminant_analysis():
    X, y = unequal()
    queries = np.random.default_rng(1).normal(size=(300, 3)) * 5
    qda = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, y)
    # The divisor of scikit-learn depends on its version.
    ddof = float(np.allclose(qda.covariance_[0], np.cov(X[y == 0].T)))
    ours = MinimumMahalanobisClassifier(rule="posterior", ddof=ddof).fit(X, y)
    np.testing.assert_array_equal(ours.predict(queries), qda.predict(queries))
    difference = ours.decision_function(queries) - 2 * qda.decision_function(queries)
    np.testing.assert_allclose(difference, difference[0, 0], atol=1e-7)


def test_posterior_with_one_covariance_is_linear_discriminant_analysis():
    X, y = unequal()
    queries = np.random.default_rng(1).normal(size=(300, 3)) * 5
    lda = LinearDiscriminantAnalysis(solver="svd").fit(X, y)
    ours = MinimumMahalanobisClassifier(rule="posterior", pooling=1.0, ddof=1).fit(X, y)
    np.testing.assert_array_equal(ours.predict(queries), lda.predict(queries))


def rda_by_loops(X, y, pooling, shrinkage):
    """Equations 2.18 and 2.19 with scatter *sums*."""
    W = [np.cov(X[y == k].T, bias=True) * (y == k).sum() for k in np.unique(y)]
    found = []
    for k, label in enumerate(np.unique(y)):
        C = (1 - pooling) * W[k] + pooling * sum(W)
        C = C / ((1 - pooling) * (y == label).sum() + pooling * len(y))
        p = len(C)
        found.append((1 - shrinkage) * C + shrinkage * np.trace(C) / p * np.eye(p))
    return np.array(found)


@pytest.mark.parametrize("pooling", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 1.0])
def test_regularised_discriminant_analysis(pooling, shrinkage):
    X, y = unequal()
    rule = MinimumMahalanobisClassifier(
        rule="posterior", pooling=pooling, shrinkage=shrinkage, ddof=0
    ).fit(X, y)
    covariances = np.linalg.inv(rule.precisions_)
    np.testing.assert_allclose(covariances, rda_by_loops(X, y, pooling, shrinkage), rtol=1e-8)
    if pooling == 1:
        np.testing.assert_allclose(covariances[0], covariances[2], rtol=1e-8)
    if shrinkage == 1:
        level = covariances[0, 0, 0]
        np.testing.assert_allclose(covariances[0], level * np.eye(3), atol=1e-9 * level)


def test_covariances_divided_twice_would_be_noticed():
    X, y = unequal()
    statistics = ClassStatistics().partial_fit(X, y)
    found = pool_covariances(statistics, 0.3)
    np.testing.assert_allclose(found, rda_by_loops(X, y, 0.3, 0.0), rtol=1e-9)
    S = [statistics.covariance(k) for k in range(3)]
    n = statistics.weights
    printed = (0.7 * S[0] + 0.3 * sum(S)) / (0.7 * n[0] + 0.3 * n.sum())
    assert np.abs(found[0] / printed).min() > 10


def test_linear_changes_of_the_space_alter_nothing():
    X, y = unequal()
    A = np.random.default_rng(2).normal(size=(3, 3)) * [1e-6, 1, 1e6]
    for rule in ("mahalanobis", "gaussian", "posterior"):
        plain = MinimumMahalanobisClassifier(rule=rule).fit(X, y)
        other = MinimumMahalanobisClassifier(rule=rule).fit(X @ A + 5, y)
        np.testing.assert_array_equal(plain.predict(X), other.predict(X @ A + 5))


# ---------------------------------------------------------------------- the published protocol


def unshuffled_folds(y, n_folds=10):
    """Fold k is the k-th tenth of every class, in file order."""
    fold = np.empty(len(y), dtype=int)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        fold[rows] = np.arange(len(rows)) * n_folds // len(rows)
    return fold


@pytest.mark.parametrize(
    ("learner", "mean", "deviation"),
    [
        (PCA(2), 2.6, 3.4),
        (DLDA(2), 4.6, 4.5),
        (LDA(2, solver="whiten"), 2.0, 4.5),
        (APAC(2), 2.0, 4.5),
    ],
    ids=["PCA", "DLDA", "WLDA", "aPAC"],
)
def test_iris_as_in_table_4_2(learner, mean, deviation):
    X, y = load_iris(return_X_y=True)
    # The file that was common in 2011 has two wrong rows, which scikit-learn has corrected.
    X = X.copy()
    X[34] = X[37] = [4.9, 3.1, 1.5, 0.1]
    fold = unshuffled_folds(y)
    errors = []
    for k in range(10):
        rule = MinimumMahalanobisClassifier(learner).fit(X[fold != k], y[fold != k])
        errors.append(100 * (1 - rule.score(X[fold == k], y[fold == k])))
    # The thesis truncates to one decimal instead of rounding.
    assert -1e-9 < np.mean(errors) - mean < 0.1
    assert -1e-3 < np.std(errors, ddof=1) - deviation < 0.1


# ---------------------------------------------------------------------- difficult data


@pytest.mark.parametrize("rule", ["mahalanobis", "gaussian", "posterior"])
def test_singular_classes(rule):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(43, 5)), np.repeat([0, 1, 2, 3], [30, 9, 3, 1])
    X[y == 1, 2] = 4.0  # Constant within this class only.
    classifier = MinimumMahalanobisClassifier(rule=rule).fit(X, y)
    assert np.isfinite(classifier.decision_function(X)).all()
    # Regular covariances are not changed.
    C = np.cov(X[y == 0].T)
    np.testing.assert_allclose(classifier.precisions_[0], np.linalg.inv(C), rtol=1e-8)
    # A class with one row gets the pooled covariance, here with divisor n.
    m = np.array([X[y == k].mean(axis=0) for k in range(4)])
    S = (X - m[y]).T @ (X - m[y]) / len(X)
    np.testing.assert_allclose(classifier.precisions_[3], np.linalg.inv(S), rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"covariance of class 1 is singular: the class has 9 rows"
    ):
        MinimumMahalanobisClassifier(rule=rule, shrinkage=0.0).fit(X, y)


def test_fewer_rows_than_features():
    X, y = load_digits(return_X_y=True)
    few = MinimumMahalanobisClassifier(rule="gaussian").fit(X[:40], y[:40])
    assert np.isfinite(few.decision_function(X)).all()
    rda = MinimumMahalanobisClassifier(rule="posterior", pooling=0.5, shrinkage=0.5)
    assert rda.fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.8


@pytest.mark.parametrize("options", [{}, {"shrinkage": 0.1}], ids=["auto", "number"])
def test_constant_columns_and_scales_change_no_prediction(options):
    X, y = load_wine(return_X_y=True)
    plain = MinimumMahalanobisClassifier(**options).fit(X[::2], y[::2]).predict(X)
    constant = np.insert(X, [0, 5], [0.1, 1e5], axis=1)
    for other in (X * 1e-8, X * 1e8, *([constant] if not options else [])):
        again = MinimumMahalanobisClassifier(**options).fit(other[::2], y[::2]).predict(other)
        np.testing.assert_array_equal(again, plain)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((6, 2)), [0, 1, 0, 1, 0, 1], "Every feature of X is constant"),
        (np.ones((1, 2)), [0], r"X has 1 sample\(s\)"),
        (np.full((6, 2), np.nan), [0, 1, 0, 1, 0, 1], "contains NaN"),
    ],
)
def test_bad_input_is_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        MinimumMahalanobisClassifier().fit(X, y)


# ---------------------------------------------------------------------- as an estimator


def test_it_works_around_learners_and_in_searches():
    X, y = load_wine(return_X_y=True)
    around = MinimumMahalanobisClassifier(make_pipeline(StandardScaler(), LDA())).fit(X, y)
    assert around.means_.shape == (3, 2) and around.precisions_.shape == (3, 2, 2)
    assert around.score(X, y) > 0.99
    guided = MinimumMahalanobisClassifier(LMNN(n_components=2, tol=1e-2, max_iter=20))
    assert guided.fit(X, y).n_features_in_ == 13
    grid = {"estimator__n_components": [1, 2], "rule": ["mahalanobis", "gaussian"]}
    search = GridSearchCV(MinimumMahalanobisClassifier(LDA()), grid, cv=3).fit(X, y)
    assert search.best_params_["estimator__n_components"] == 2
    again = pickle.loads(pickle.dumps(around))
    np.testing.assert_array_equal(again.predict(X), around.predict(X))
    assert repr(clone(around)) == repr(around)


def test_labels_of_any_kind():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    rule = MinimumMahalanobisClassifier().fit(X, names)
    assert rule.predict(X[:1]).tolist() == ["setosa"]
    assert rule.classes_.tolist() == ["setosa", "versicolor", "virginica"]
