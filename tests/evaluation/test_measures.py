"""Tests of the error measures, and of the rejection of unusable scorers."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, get_scorer, log_loss, make_scorer

from nearfar.evaluation.measures import choose_measure

THREE = np.array(["a", "b", "c"])
NUMBERS = np.array([0, 1, 2])
TRUE = np.array([0, 0, 1, 1, 2, 2])
GUESS = np.array([0, 1, 1, 1, 2, 0])


def choose(scoring, classes=NUMBERS, **options):
    return choose_measure(scoring, classes, np.full(len(classes), 2), **options)


@pytest.mark.parametrize(
    ("scoring", "classes", "message"),
    [
        ("f1", NUMBERS, "failed for the 3 classes '0', '1', '2'.*Pass scoring='f1_macro'"),
        ("roc_auc", THREE, "Pass scoring='roc_auc_ovr'"),
        ("f1", THREE[:2], "failed for the 2 classes.*'f1_macro', or make_scorer.*pos_label='b'"),
        (["accuracy", "f1"], NUMBERS, "of type list; expected one scorer"),
        ({"a": "accuracy"}, NUMBERS, "of type dict"),
        (5, NUMBERS, "scoring=5"),
        ("nonsense", NUMBERS, "is not a scikit-learn scorer"),
        ("neg_log_loss", NUMBERS, "is a negated loss"),
        ("mutual_info_score", NUMBERS, "returns 1.099 for perfect predictions"),
        (make_scorer(log_loss, response_method="predict_proba"), NUMBERS, "best value is 1"),
        (
            make_scorer(accuracy_score, response_method="decision_function"),
            NUMBERS,
            "The nearest-neighbor classifier .*decision_function",
        ),
        (lambda e, X, y: 1 / 0, NUMBERS, "division by zero"),
        (lambda e, X, y: "high", NUMBERS, "could not convert"),
        (lambda e, X, y: float("nan"), NUMBERS, "returns nan for perfect predictions"),
        (
            lambda e, X, y: e.predict(X[:2]).size,
            NUMBERS,
            "predictions for 2 rows, but .*the 6 rows",
        ),
    ],
)
def test_a_scorer_that_cannot_judge_is_refused(scoring, classes, message):
    with pytest.raises(ValueError, match=message):
        choose(scoring, classes)


@pytest.mark.parametrize(
    "scoring", ["f1_macro", "roc_auc_ovr", "matthews_corrcoef", "top_k_accuracy", "precision_macro"]
)
def test_scorers_of_scikit_learn_judge_as_they_do_there(scoring):
    shares = np.eye(3)[GUESS] * 0.6 + 0.4 / 3
    error = choose(scoring).compute_error(NUMBERS, TRUE, GUESS, lambda: shares)

    class Known:
        classes_ = NUMBERS
        _estimator_type = "classifier"

        def fit(self, X, y):
            return self

        def predict(self, X):
            return GUESS

        def predict_proba(self, X):
            return shares

        def __sklearn_tags__(self):
            from sklearn.linear_model import LogisticRegression

            return LogisticRegression().__sklearn_tags__()

    assert error == pytest.approx(1 - get_scorer(scoring)(Known(), np.zeros((6, 1)), TRUE))


def test_a_scorer_of_ones_own_sees_the_rows():
    weights = np.array([[1.0], [5.0], [1.0], [1.0], [1.0], [1.0]])

    def weighted(estimator, X, y):
        return np.average(estimator.predict(X) == y, weights=X[:, 0])

    measure = choose(weighted, sample=(weights, TRUE))
    assert measure.name == "1 - weighted"
    assert measure.compute_error(NUMBERS, TRUE, GUESS, lambda: None, weights) == pytest.approx(0.6)


def test_a_scorer_is_tried_on_rows_of_the_data():
    asked = []

    def scorer(estimator, X, y):
        asked.append(X)
        return 1.0

    rows = np.arange(12.0).reshape(6, 2)
    choose(scorer, sample=(rows, TRUE))
    assert asked[0] is rows


def test_a_made_scorer_is_named_by_its_function():
    measure = choose(make_scorer(f1_score, average="macro"))
    assert measure.name == "1 - f1_score"
    assert measure.compute_error(NUMBERS, TRUE, TRUE, lambda: None) == 0.0
