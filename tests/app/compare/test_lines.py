"""The printed lines of scikit-learn: they run, and give the error of the comparison."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler

from nearfar import LDA, compare
from nearfar.app.compare.driver import answer
from nearfar.app.compare.question import Question
from nearfar.datasets.tables import DataFile, read_table

QUICK = {"tuning": "k", "context": False, "isolate": False, "cv": 2, "repeats": 1, "min_gain": 0.0}


pytestmark = pytest.mark.usefixtures("few_k")


@pytest.fixture
def few_k(monkeypatch):
    """k up to 4: the lines are as long, and scikit-learn has a quarter of the work."""
    for module in ("folds", "lines"):
        monkeypatch.setattr(f"nearfar.app.compare.{module}.MAX_K", 4)


class Weighted(TransformerMixin, BaseEstimator):
    """Columns times weights; its text cuts long lists."""

    def __init__(self, weights=()):
        self.weights = weights

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X) * np.asarray(self.weights)


def error_of(result):
    """Of the recommended learner; without one, untuned, of the standard distance to be kept."""
    roles = {"baseline"} if result.best == "reference" else {"learner"}
    return min(m["error"] for m in result.document["methods"] if m["role"] in roles)


def run_lines(code, **names):
    """Run printed lines; what they print, as a number."""
    space = {"printed": [], **names}
    exec(compile(code.replace("print(", "printed.append("), "lines", "exec"), space)
    return float(space["printed"][-1])


def made(n_columns, n=120, noise=3.0):
    """Only the first two columns matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_columns))
    y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
    X[:, 2:] *= noise
    return X, y


@pytest.mark.slow
def test_lines_for_sixty_columns():
    X, y = made(60)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(60)])
    frame["k"] = np.where(np.arange(120) % 3, "u", "v")
    frame.loc[5, "c3"] = np.nan
    result = compare(frame, y, methods=[LDA()], verbose=False, **QUICK)
    assert len(result.document["data"]["features"]) == 61
    assert run_lines(result.code, X=frame, y=y) == pytest.approx(error_of(result), abs=1e-12)


def test_lines_for_a_learner_with_a_long_parameter():
    X, y = made(40, noise=100.0)
    weights = [1.0, 1.0, *[0.0] * 38]
    for given in (weights, np.array(weights)):
        options = QUICK | {"cv": 4, "scale": "none"}
        result = compare(X, y, methods={"w": Weighted(given)}, verbose=False, **options)
        assert result.best == "w"
        code = result.code.replace("from test_lines import Weighted", "")
        error = run_lines(code, X=X, y=y, Weighted=Weighted)
        assert error == pytest.approx(error_of(result), abs=1e-12)


def test_lines_for_a_learner_with_a_function():
    X, y = made(10, n=240, noise=100.0)
    chain = make_pipeline(FunctionTransformer(np.arctan), MinMaxScaler((0, 2)), LDA())
    result = compare(X, y, methods={"p": chain}, verbose=False, **QUICK | {"cv": 4})
    assert result.best == "p"
    assert run_lines(result.code, X=X, y=y) == pytest.approx(error_of(result), abs=1e-12)


@pytest.mark.parametrize(
    ("scoring", "words"),
    [
        (make_scorer(accuracy_score), "make_scorer(accuracy_score"),
        (lambda e, X, y: float(np.mean(e.predict(X) == y)), "<function <lambda>>"),
    ],
)
def test_lines_name_a_scorer_that_they_cannot_write(scoring, words):
    X, y = made(4)
    result = compare(X, y, methods=[LDA()], scoring=scoring, verbose=False, **QUICK)
    assert f"# scoring: the scorer that was given, {words}" in result.code
    error = run_lines(result.code, X=X, y=y, scoring=scoring)
    assert error == pytest.approx(error_of(result), abs=1e-12)


def test_lines_for_an_array_with_a_column_dropped_by_name():
    name = read_table("iris").feature_names[2]
    result = answer(Question(DataFile("iris"), methods=[LDA()], drop=[name], **QUICK))
    assert len(result.document["data"]["features"]) == 3
    assert run_lines(result.code) == pytest.approx(error_of(result), abs=1e-12)


@pytest.mark.slow
def test_lines_for_groups_and_a_test_set():
    X, y = made(6, n=150)
    groups = np.arange(90) // 6
    options = {key: value for key, value in QUICK.items() if key != "cv"} | {"tuning": "full"}
    test = (X[90:], y[90:])
    result = compare(X[:90], y[:90], groups=groups, test=test, verbose=False, **options)
    names = {"X": X[:90], "y": y[:90], "groups": groups, "X_test": X[90:], "y_test": y[90:]}
    assert run_lines(result.code, **names) == pytest.approx(error_of(result), abs=1e-12)
