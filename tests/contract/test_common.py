"""The contract, for every learner that the rooms hold."""

import numpy as np
import pytest
from expected_failures import EXPECTED_FAILURES
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfar import (
    LMNN,
    EnergyClassifier,
    KNNClassifier,
    MinimumMahalanobisClassifier,
    MultiMetricLMNN,
    SpectralClustering,
    all_learners,
)
from nearfar.contract import checks

# Two fits instead of six, three starts instead of ten, and steps that end early show the same.
ROUGH = LMNN(tol=1e-2, max_iter=30)
QUICK = {
    "KernelLMNN": {"estimator": ROUGH},
    "MultiPassLMNN": {"estimator": ROUGH, "n_passes": 2},
    "PARDA": {"n_init": 3},
    "VariationalMVU": {"max_iter": 20, "bound_iter": 5},
    "LandmarkMVU": {"n_landmarks": 10, "bound_iter": 5},
}
LEARNERS = [
    cls(**QUICK.get(name, {}))
    for name, cls in all_learners().items()
    if cls.learner_tags.input == "vectors"
]


@parametrize_with_checks(
    [
        *LEARNERS,
        KNNClassifier(),
        EnergyClassifier(),
        MinimumMahalanobisClassifier(),
        MultiMetricLMNN(ROUGH, patience=2),
        SpectralClustering(),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES.get(type(estimator).__name__, {}),
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("learner", "check"),
    [
        pytest.param(learner, check, id=f"{type(learner).__name__}-{name}")
        for learner in LEARNERS
        for name, check in checks(learner)
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_nearfar_contract(learner, check):
    check(learner)


def test_at_most_two_expected_failures_a_learner():
    for learner, failures in EXPECTED_FAILURES.items():
        assert len(failures) <= 2, learner
        assert all(reason.strip() for reason in failures.values()), learner


@pytest.mark.parametrize("name", [type(learner).__name__ for learner in LEARNERS])
def test_digits_with_constant_pixels_give_no_nan(name):
    X, y = load_digits(return_X_y=True)
    assert (X.std(axis=0) == 0).sum() == 3
    learner = all_learners()[name](**QUICK.get(name, {})).fit(X[:400], y[:400])
    assert np.isfinite(learner.transform(X)).all()
    if learner.learner_tags.linear:
        assert np.isfinite(learner.get_mahalanobis_matrix()).all()
