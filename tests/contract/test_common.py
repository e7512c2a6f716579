"""Common checks of every estimator of the library."""

import traceback
from unittest import SkipTest

import numpy as np
import pytest
from expected_failures import EXPECTED_FAILURES
from near_twins import INHERITED, INHERITED_OF_OURS, near_twins
from quick import quick
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import estimator_checks_generator

from nearfar import all_estimators
from nearfar.contract import iterate_checks

ESTIMATORS = [quick(name) for name in all_estimators()]
every_estimator = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__
)


def run(estimator, checks, expected_failures=()):
    """Run all checks in one test, because distributing one test per check would take as long."""
    failed = {}
    for check_name, check in checks:
        try:
            check(estimator)
        except SkipTest:
            continue
        except Exception:
            failed[check_name] = traceback.format_exc()
    messages = [
        f"{name}:\n{text}" for name, text in failed.items() if name not in expected_failures
    ]
    assert not messages, "\n".join(messages)


@every_estimator
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract(estimator):
    name = type(estimator).__name__
    named_checks = [
        (check.func.__name__, check) for _, check in estimator_checks_generator(estimator)
    ]
    assert named_checks  # of sets and tensors it only asks whether they can be cloned
    left_out = INHERITED if name in near_twins() else ()
    run(
        estimator,
        [(check_name, check) for check_name, check in named_checks if check_name not in left_out],
        EXPECTED_FAILURES.get(name, ()),
    )


@every_estimator
@pytest.mark.filterwarnings("ignore")
def test_nearfar_contract(estimator):
    left_out = INHERITED_OF_OURS if type(estimator).__name__ in near_twins() else ()
    run(estimator, [item for item in iterate_checks(estimator) if item[0] not in left_out])


@pytest.mark.slow
@pytest.mark.parametrize("name", near_twins())
@pytest.mark.filterwarnings("ignore")
def test_nearfar_contract_that_twins_inherit(name):
    estimator = quick(name)
    run(estimator, [item for item in iterate_checks(estimator) if item[0] in INHERITED_OF_OURS])


def test_all_failures_are_reported():
    def fails(estimator):
        raise AssertionError(f"{estimator} is refused")

    several = [("good", str), ("first", fails), ("second", fails)]
    with pytest.raises(AssertionError, match=r"(?s)^first:.*x is refused.*second:.*x is refused"):
        run("x", several)
    with pytest.raises(AssertionError, match="^first"):
        run("x", several, {"second": "why"})
    run("x", several, {"first": "why", "second": "why"})


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
