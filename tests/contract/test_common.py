"""The contract, for every estimator that the rooms hold."""

import warnings

import numpy as np
import pytest
from expected_failures import EXPECTED_FAILURES
from near_twins import INHERITED, INHERITED_OF_OURS, near_twins
from quick import quick
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import estimator_checks_generator

from nearfar import all_estimators
from nearfar.contract import checks

ESTIMATORS = [quick(name) for name in all_estimators()]


def scikit_learn_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sets and tensors are not for them
        for estimator in ESTIMATORS:
            name = type(estimator).__name__
            for _, check in estimator_checks_generator(estimator):
                called = check.func.__name__
                if name in near_twins() and called in INHERITED:
                    continue
                reason = EXPECTED_FAILURES.get(name, {}).get(called)
                marks = [pytest.mark.xfail(reason=reason)] if reason else []
                yield pytest.param(estimator, check, id=f"{name}-{called}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(scikit_learn_checks()))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def our_checks():
    for estimator in ESTIMATORS:
        name = type(estimator).__name__
        for called, check in checks(estimator):
            seen_before = name in near_twins() and called in INHERITED_OF_OURS
            marks = [pytest.mark.slow] if seen_before else []
            yield pytest.param(estimator, check, id=f"{name}-{called}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(our_checks()))
@pytest.mark.filterwarnings("ignore")
def test_nearfar_contract(estimator, check):
    check(estimator)


def test_at_most_two_expected_failures_an_estimator():
    for name, failures in EXPECTED_FAILURES.items():
        assert len(failures) <= 2, name
        assert all(reason.strip() for reason in failures.values()), name


@pytest.mark.parametrize("name", sorted(all_estimators(input="vectors")))
@pytest.mark.filterwarnings("ignore")
def test_digits_with_constant_pixels_give_no_nan(name):
    X, y = load_digits(return_X_y=True)
    assert (X.std(axis=0) == 0).sum() == 3
    estimator = quick(name).fit(X[:100], y[:100])
    new = X[:150]  # the training rows, and others
    found = estimator.transform(new) if hasattr(estimator, "transform") else estimator.predict(new)
    assert np.isfinite(found).all()
    if hasattr(estimator, "get_mahalanobis_matrix"):
        assert np.isfinite(estimator.get_mahalanobis_matrix()).all()
