"""Checks of estimators whose samples are pairs of points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from nearfar.contract.outcomes import Change, Check, SampleKind, compute_output


@cache
def _generate() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    random = np.random.RandomState(0)
    labels = np.arange(40) % 2
    # The classes differ in one of five features. The features have different scales.
    X = random.normal(size=(40, 5)) * [1, 2, 0.5, 3, 1]
    X[:, 0] += 8 * labels
    rows = np.array([random.choice(40, size=2, replace=False) for _ in range(90)])
    rows = np.unique(np.sort(rows, axis=1), axis=0)
    rows = rows[random.permutation(len(rows))]
    return X[rows], np.where(labels[rows[:, 0]] == labels[rows[:, 1]], 1, -1)


def _make_data() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return pairs of points and their signs (+1 similar, -1 dissimilar)."""
    pairs, signs = _generate()
    return pairs.copy(), signs.copy()


def _freeze(pairs: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield read-only pairs in C and Fortran order."""
    for array in (np.ascontiguousarray(pairs), np.asfortranarray(pairs)):
        array.setflags(write=False)
        yield array


def _list_checks(estimator: Any) -> list[Check]:
    """Return the checks that apply to estimators whose samples are pairs."""
    return [check_order_in_a_pair, check_threshold, check_lists_and_types]


def check_order_in_a_pair(estimator: Any) -> None:
    """Check that the order within a pair does not matter, and that equal points are similar."""
    pairs, signs = _make_data()
    fitted = clone(estimator).fit(pairs, signs)
    scores = fitted.decision_function(pairs)
    np.testing.assert_allclose(fitted.decision_function(pairs[:, ::-1]), scores, rtol=1e-9)
    assert (fitted.decision_function(pairs[:, [0, 0]]) >= scores.max() - 1e-9).all()


def check_threshold(estimator: Any) -> None:
    """Check that scores and threshold determine the labels, and that ``score`` is the ROC AUC."""
    pairs, signs = _make_data()
    fitted = clone(estimator).fit(pairs, signs)
    assert fitted.classes_.tolist() == [-1, 1]
    scores = fitted.decision_function(pairs)
    expected = np.where(scores >= -fitted.threshold_, 1, -1)
    np.testing.assert_array_equal(fitted.predict(pairs), expected)
    assert np.mean(expected == signs) > 0.8
    assert np.isclose(fitted.score(pairs, signs), roc_auc_score(signs, scores))
    for threshold, label in ((-scores.min(), 1), (-1.0, -1)):
        assert fitted.set_threshold(threshold).threshold_ == threshold
        np.testing.assert_array_equal(fitted.predict(pairs), np.full(len(signs), label))
    fitted.calibrate_threshold(pairs, signs)
    np.testing.assert_array_equal(fitted.predict(pairs), expected)


def check_lists_and_types(estimator: Any) -> None:
    """Check that lists, tuples and other numeric types give the same result."""
    pairs, signs = _make_data()
    expected = compute_output(clone(estimator).fit(pairs, signs), pairs)
    for form, labels in (
        (pairs.tolist(), signs.tolist()),
        (tuple(map(tuple, pairs)), signs.astype(float)),
        (pairs.astype(object), signs.astype(object)),
    ):
        np.testing.assert_array_equal(
            compute_output(clone(estimator).fit(form, labels), form), expected
        )
    narrow = pairs.astype(np.float32)
    output = compute_output(clone(estimator).fit(narrow, signs), narrow)
    assert np.mean(output == expected) > 0.95


def _replace_value(pairs: NDArray[Any], value: float) -> NDArray[Any]:
    pairs = pairs.copy()
    pairs[4, 1, 2] = value
    return pairs


def _make_case(
    change: Callable[[NDArray[Any]], Any], *, clean: bool = False, queries: bool = True
) -> tuple[Change, bool]:
    """Return a test case in which ``change`` is applied to the training pairs.

    If ``queries`` is True, it is also applied to the queries.
    """

    def apply(pairs: Any, y: Any, new: Any) -> tuple[Any, Any, Any]:
        changed_pairs = change(pairs)
        return (
            changed_pairs,
            np.resize(y, np.shape(changed_pairs)[0]),
            change(new) if queries else new,
        )

    return apply, clean


def _make_label_case(change: Callable[[NDArray[Any]], Any]) -> tuple[Change, bool]:
    """Return a test case in which ``change`` is applied to the signs of the pairs."""
    return (lambda pairs, y, new: (pairs, change(y), new)), False


# Each case consists of a function that changes (pairs, y, queries) and a flag. If the flag is True,
# the result must agree with the result for clean data.
_CASES: dict[str, tuple[Change, bool]] = {
    "nan": _make_case(lambda a: _replace_value(a, np.nan)),
    "inf": _make_case(lambda a: _replace_value(a, np.inf)),
    "empty": _make_case(lambda a: a[:0]),
    "flat_rows": _make_case(lambda a: a.reshape(len(a), -1)),
    "three_points": _make_case(lambda a: a[:, [0, 1, 1]]),
    "strings_in_pairs": _make_case(lambda a: np.full(a.shape, "red")),
    "sparse": _make_case(lambda a: sparse.csr_array(a[:, 0])),
    "constant_columns": _make_case(
        lambda a: np.insert(a, [0, 2, 5], [0.0, 0.1, 12345.678], axis=2), clean=True
    ),
    "duplicate_pairs": _make_case(lambda a: np.concatenate([a, a]), queries=False, clean=True),
    "integers": _make_case(lambda a: np.rint(10 * a).astype(np.int64)),
    "a_point_with_itself": (
        lambda a, y, new: (np.concatenate([a, a[:2, [0, 0]]]), np.append(y, [1, 1]), new),
        False,
    ),
    "scale_1e-8": _make_case(lambda a: 1e-8 * a, clean=True),
    "scale_1e8": _make_case(lambda a: 1e8 * a, clean=True),
}
_LABEL_CASES: dict[str, tuple[Change, bool]] = {
    "only_similar_signs": _make_label_case(np.ones_like),
    "only_dissimilar_signs": _make_label_case(lambda y: -np.ones_like(y)),
    "zeros_and_ones": _make_label_case(lambda y: (y > 0).astype(int)),
    "missing_signs": _make_label_case(lambda y: np.append([None], y[1:])),
    "names": _make_label_case(lambda y: np.where(y > 0, "same", "different")),
    "too_few_signs": _make_label_case(lambda y: y[:-1]),
    "no_signs": _make_label_case(lambda y: None),
}


PAIRS = SampleKind("pairs", _make_data, _freeze, _list_checks, _CASES, _LABEL_CASES)
