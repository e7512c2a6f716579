"""The work of a fold is what scikit-learn's GridSearchCV does, and what is kept of it is right."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LDA, LMNN, KNNClassifier
from nearfar.app.compare.folds import Problem, pilot, predict_all_k, run_fold
from nearfar.app.compare.methods import (
    Method,
    Setting,
    baselines,
    context_methods,
    find_estimator,
    learners,
)
from nearfar.evaluation.measures import choose_measure


def problem_of(X, y, scoring=None):
    classes, codes = np.unique(y, return_inverse=True)
    return Problem(
        X, classes, codes, "passthrough", choose_measure(scoring, classes, np.bincount(codes))
    )


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return problem_of(X, y), np.arange(0, 178, 2), np.arange(1, 178, 2)


def test_tuning_chooses_what_grid_search_chooses(wine):
    problem, train, test = wine
    for method in [*learners(["lda"]), baselines()[3]]:
        found = run_fold(problem, method, train, test, "full")
        pipeline = Pipeline(
            [("scale", "passthrough"), ("learner", "passthrough"), ("knn", KNNClassifier())]
        )
        grid = [
            {"scale": [s.scale], "learner": [s.estimator], "knn__n_neighbors": list(range(1, 16))}
            for s in method.settings
        ]
        cv = StratifiedKFold(3, shuffle=True, random_state=0)
        search = GridSearchCV(pipeline, grid, cv=cv).fit(problem.X[train], problem.codes[train])
        assert found["k"] == search.best_params_["knn__n_neighbors"]
        assert found["inner_error"] == pytest.approx(1 - search.best_score_, abs=1e-12)
        score = search.score(problem.X[test], problem.codes[test])
        assert found["error"] == pytest.approx(1 - score, abs=1e-12)


def test_every_k_is_that_of_the_classifier(wine):
    problem, train, test = wine
    setting = Setting("", StandardScaler(), LDA())
    found = predict_all_k(problem, setting, train, test)
    for k in (1, 4, 15):
        chain = Pipeline([*setting.steps("passthrough"), ("knn", KNNClassifier(n_neighbors=k))])
        theirs = chain.fit(problem.X[train], problem.codes[train]).predict(problem.X[test])
        assert np.array_equal(found.codes[:, k - 1], theirs)


def test_neighbors_are_rows_of_the_whole_data_and_of_the_training_part(wine):
    problem, train, test = wine
    result = run_fold(problem, baselines()[1], train, test, "k", details=True, draw=True)
    neighbors = np.array(result["neighbors"])
    assert neighbors.shape == (len(test), 5) and set(neighbors.ravel()) <= set(train)
    assert np.mean(np.array(result["predicted"]) != problem.codes[test]) == pytest.approx(
        result["error"]
    )
    assert len(result["map"]["x"]) == len(test)


def test_test_rows_are_seen_by_no_fit(wine):
    problem, train, test = wine
    method = learners(["lda"])[0]
    before = run_fold(problem, method, train, test, "full", details=True)
    X = problem.X.copy()
    X[test] = np.random.default_rng(0).permutation(X[test])
    after = run_fold(Problem(X, *problem_rest(problem)), method, train, test, "full", details=True)
    for key in ("k", "setting", "inner_error", "weights"):
        assert before[key] == after[key]
    assert before["predicted"] != after["predicted"]


def problem_rest(problem):
    return problem.classes, problem.codes, problem.prepare, problem.measure


def test_weights_are_shares_of_the_squared_distance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1, 100, 0.01]
    y = (X[:, 0] + 0.1 * rng.normal(size=300) > 0).astype(int)
    problem = problem_of(X, y)
    for learner, scale in ((LMNN(), "standard"), (LDA(), "none"), (LDA(), "standard")):
        method = learners({"mine": learner}, scale)[0]
        weights = run_fold(problem, method, np.arange(250), np.arange(250, 300), "k")["weights"]
        assert sum(weights) == pytest.approx(1)
        assert weights[0] == max(weights)
        if isinstance(learner, LDA):
            assert weights[0] > 0.95


def test_weights_of_one_unit_do_not_depend_on_it():
    X, y = load_iris(return_X_y=True)
    rows = np.arange(0, 150, 2), np.arange(1, 150, 2)
    method = learners({"lda": LDA()}, "none")[0]
    first = run_fold(problem_of(X, y), method, *rows, "k")["weights"]
    second = run_fold(problem_of(X * [1, 10, 100, 0.1], y), method, *rows, "k")["weights"]
    assert first == pytest.approx(second, rel=1e-6)


def test_classifiers_for_context_need_no_k(wine):
    problem, train, test = wine
    majority, logistic, trees = context_methods()
    assert run_fold(problem, majority, train, test, "full")["k"] is None
    assert run_fold(problem, logistic, train, test, "full")["error"] < 0.1
    assert run_fold(problem, trees, train, test, "full")["inner_error"] is None


class Stubborn(LDA):
    def fit(self, X, y=None):
        warnings.warn("went nowhere", ConvergenceWarning, stacklevel=1)
        return super().fit(X, y)


def test_convergence_warnings_are_kept(wine):
    method = learners({"stubborn": Stubborn()}, "none")[0]
    result = run_fold(*wine[:1], method, *wine[1:], "k")
    assert result["warnings"] == ["ConvergenceWarning: went nowhere"]


@pytest.mark.parametrize(
    ("scoring", "metric"),
    [
        ("balanced_accuracy", lambda y, p: 1 - balanced_accuracy_score(y, p)),
        ("f1_macro", lambda y, p: 1 - f1_score(y, p, average="macro")),
    ],
)
def test_measures_are_those_of_scikit_learn(scoring, metric):
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    classes = np.array(["a", "b", "c"])
    measure = choose_measure(scoring, classes, np.bincount(true))
    found = measure.compute_error(classes, true, predicted, lambda: None)
    assert found == pytest.approx(metric(true, predicted))


def test_scorers_of_probabilities_are_served():
    X, y = load_iris(return_X_y=True)
    problem = problem_of(X, y, "roc_auc_ovr")
    train, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    method = learners({"logistic2": LogisticRegression(max_iter=1000)}, "none")[0]
    found = run_fold(problem, method, train, test, "k")["error"]
    fitted = LogisticRegression(max_iter=1000).fit(X[train], y[train])
    score = roc_auc_score(y[test], fitted.predict_proba(X[test]), multi_class="ovr")
    assert found == pytest.approx(1 - score)
    assert 0 <= run_fold(problem, baselines()[0], train, test, "k")["error"] < 0.1


def test_losses_without_a_best_value_of_one_are_refused():
    with pytest.raises(ValueError, match="is a negated loss"):
        choose_measure("neg_log_loss", np.array(["a", "b"]), np.array([1, 1]))


def test_errors_are_balanced_only_when_classes_are_unbalanced():
    classes = np.array(["a", "b"])
    assert choose_measure(None, classes, np.array([30, 90])).name == "error"
    measure = choose_measure(None, classes, np.array([29, 90]))
    assert measure.name == "balanced error"
    assert "b has 90 rows" in measure.note and "a has 29" in measure.note
    with pytest.raises(ValueError, match="'nonsense' is not a scikit-learn scorer"):
        choose_measure("nonsense", classes, np.array([1, 1]))


# Methods


def test_learners_get_as_many_settings_as_there_are_baselines():
    assert len(baselines()) == 4
    for method in learners():
        assert len(method.settings) == 4
        assert method.settings[0].label == "standardized"


def test_own_settings_come_before_more_scalings():
    method = learners({"mine": [LMNN(n_neighbors=k) for k in (1, 2, 3, 4)]})[0]
    assert [s.label for s in method.settings] == [
        f"standardized, n_neighbors={k}" if k != 3 else "standardized" for k in (1, 2, 3, 4)
    ]
    assert [s.label for s in learners({"m": LDA()}, "unit")[0].settings] == ["unit norm"]


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("lmn", "no method 'lmn'. Did you mean .?lmnn"),
        ({"a": LDA}, "is the class LDA; give an object"),
        ({"a": 3}, "has no fit"),
        ({"a": [LDA()] * 5}, "5 settings; give 1 to 4"),
        ({"raw": LDA()}, "which a baseline has"),
        ({1: LDA()}, "names must be text"),
    ],
)
def test_methods_that_cannot_be(methods, message):
    with pytest.raises(ValueError, match=message):
        learners(methods)


def test_methods_of_other_packages_come_by_entry_point(monkeypatch):
    class Point:
        name = "Stubborn"

        def load(self):
            return Stubborn

    monkeypatch.setattr("nearfar.app.compare.methods.entry_points", lambda group: [Point()])
    assert find_estimator("stubborn") is Stubborn


def test_a_broken_package_of_others_is_said_and_left_out(monkeypatch):
    class Point:
        name = "Broken"

        def load(self):
            raise ImportError("no such thing")

    monkeypatch.setattr("nearfar.app.compare.methods.entry_points", lambda group: [Point()])
    with pytest.warns(UserWarning, match="'Broken' of another package cannot be loaded"):
        assert find_estimator("lda") is LDA


def test_a_setting_that_fails_leaves_the_others(wine):
    problem, train, test = wine
    good, bad = Setting("good", StandardScaler(), LDA()), Setting("bad", "passthrough", Refuse())
    alone = run_fold(problem, Method("a", "a", "learner", (good,)), train, test, "full")
    for tuning, settings in (("full", (good, bad)), ("full", (bad, good)), ("k", (bad, good))):
        method = Method("a", "a", "learner", settings)
        result = run_fold(problem, method, train, test, tuning)
        assert result["setting"] == "good"
        assert result["warnings"] == ["Setting 'bad' failed: ValueError: I do not like this."]
        assert pilot(problem, method, train, test, 50) > 0
        if tuning == "full":
            assert result["error"] == alone["error"]
    with pytest.raises(ValueError, match="I do not\\slike this"):
        run_fold(problem, Method("a", "a", "learner", (bad, bad)), train, test, "full")
    with pytest.raises(ValueError, match="I do not\\slike this"):
        pilot(problem, Method("a", "a", "learner", (bad,)), train, test, 50)


class Refuse(LDA):
    def fit(self, X, y=None):
        raise ValueError("I do not\nlike this.")


class Constant(ClassifierMixin, BaseEstimator):
    """Keeps nothing of what it was fitted on."""

    classes_ = property(lambda self: np.arange(3))

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.ones(len(X), int)

    def predict_proba(self, X):
        return np.eye(3)[self.predict(X)]


def test_a_classifier_that_learns_nothing_predicts_all_the_same(wine):
    problem, train, test = wine
    method = learners({"it": Constant()})[0]
    expected = np.mean(problem.codes[test] != 1)
    assert run_fold(problem, method, train, test, "k")["error"] == pytest.approx(expected)
    probabilities = problem_of(problem.X, problem.codes, "roc_auc_ovr")
    assert run_fold(probabilities, method, train, test, "k")["error"] == pytest.approx(0.5)


@pytest.mark.parametrize("k", [2, 3, 4, 6])
def test_the_error_by_the_plain_vote_is_that_of_scikit_learn(k):
    X, y = load_iris(return_X_y=True)
    X = X + np.random.default_rng(0).normal(size=X.shape)  # no two rows equally far, many ties
    problem = problem_of(X, y)
    train, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    raw = baselines()[0]
    found = run_fold(problem, raw, train, test, "k", fixed=(raw.settings[0].label, k))
    theirs = KNeighborsClassifier(k).fit(X[train], y[train])
    assert found["error_plain_vote"] == pytest.approx(1 - theirs.score(X[test], y[test]))
    ours = KNNClassifier(n_neighbors=k).fit(X[train], y[train])
    assert found["error"] == pytest.approx(1 - ours.score(X[test], y[test]))


def test_the_plain_vote_gives_its_own_probabilities():
    X, y = load_iris(return_X_y=True)
    X = X + np.random.default_rng(0).normal(size=X.shape)
    problem = problem_of(X, y, "roc_auc_ovr")
    train, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    raw = baselines()[0]
    found = run_fold(problem, raw, train, test, "k", fixed=(raw.settings[0].label, 4))
    shares = KNeighborsClassifier(4).fit(X[train], y[train]).predict_proba(X[test])
    theirs = roc_auc_score(y[test], shares, multi_class="ovr")
    assert found["error_plain_vote"] == pytest.approx(1 - theirs)


def test_what_does_not_vote_has_no_plain_vote(wine):
    problem, train, test = wine
    found = run_fold(problem, context_methods(0)[0], train, test, "k")
    assert found["error_plain_vote"] is None
