"""Checks of estimators whose samples are sets of vectors, see :class:`~nearfar.Sets`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from nearfar.contract.outcomes import (
    Change,
    Check,
    SampleKind,
    compute_output,
    get_expected_outcome,
)
from nearfar.summaries.sets import Sets


@cache
def _generate() -> tuple[Sets, NDArray[np.intp]]:
    random = np.random.RandomState(0)
    y = np.arange(60) % 3
    # Classes differ in their means and covariances.
    means = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 1.0], [0.0, 2.0, -1.0]])
    shapes = random.normal(size=(3, 3, 3)) + 2 * np.eye(3)
    sizes = random.randint(8, 30, size=60)
    arrays = [
        random.normal(size=(t, 3)) @ shapes[k] + means[k] for t, k in zip(sizes, y, strict=True)
    ]
    return Sets.from_list(arrays), y


def _make_data() -> tuple[Sets, NDArray[np.intp]]:
    """Return 60 sets of vectors from three classes, and the label of each set."""
    sets, y = _generate()
    return sets, y.copy()


def _freeze(sets: Sets) -> Iterator[list[NDArray[Any]]]:
    """Yield a list of read-only arrays, one per set."""
    arrays = [np.array(rows) for rows in sets]
    for rows in arrays:
        rows.setflags(write=False)
    yield arrays


def _list_checks(estimator: Any) -> list[Check]:
    """Return the checks that apply to estimators whose samples are sets."""
    checks: list[Check] = [check_input_types, check_order_invariance]
    return checks + [check_dtypes_of_sets] if hasattr(estimator, "transform") else checks


def check_input_types(estimator: Any) -> None:
    """Check that Sets, lists and arrays give equal results, and that Sets can be split."""
    sets, y = _make_data()
    expected = compute_output(clone(estimator).fit(sets, y), sets)
    rows = list(sets)
    objects = np.empty(len(rows), dtype=object)
    objects[:] = rows
    for samples in (rows, tuple(rows), objects, [array.tolist() for array in rows]):
        np.testing.assert_array_equal(
            compute_output(clone(estimator).fit(samples, y), samples), expected
        )
    equal = np.stack([array[:6] for array in rows])
    np.testing.assert_array_equal(
        compute_output(clone(estimator).fit(equal, y), equal),
        compute_output(clone(estimator).fit(list(equal), y), list(equal)),
    )
    train, test, labels, _ = train_test_split(sets, y, random_state=0, stratify=y)
    assert isinstance(train, Sets)
    assert len(compute_output(clone(estimator).fit(train, labels), test)) == len(test)


def check_order_invariance(estimator: Any) -> None:
    """Check that the order of sets does not matter, nor the order of vectors in a set.

    Estimators of sequences, for which the order of vectors matters, are listed in bad_input.toml.
    """
    sets, y = _make_data()
    train, test = sets[:40], sets[40:]
    expected = compute_output(clone(estimator).fit(train, y[:40]), test)
    if get_expected_outcome(estimator, "order_in_sets", "ignored") == "ignored":
        reversed_sets = [rows[::-1] for rows in train]
        output = compute_output(
            clone(estimator).fit(reversed_sets, y[:40]), [rows[::-1] for rows in test]
        )
        _assert_equal_output(estimator, output, expected)
    order = np.random.RandomState(0).permutation(40)
    output = compute_output(clone(estimator).fit(train[order], y[order]), test)
    _assert_equal_output(estimator, output, expected)


def check_dtypes_of_sets(estimator: Any) -> None:
    """Check that ``transform`` returns the dtype of its input."""
    sets, y = _make_data()
    expected = pdist(clone(estimator).fit(sets, y).transform(sets))
    narrow = Sets(sets.X.astype(np.float32), sets.offsets)
    for train in (sets, narrow):
        fitted = clone(estimator).fit(train, y)
        for new in (sets, narrow):
            mapped = fitted.transform(new)
            assert mapped.dtype == new.X.dtype, f"transform returned {mapped.dtype}"
            error = np.abs(pdist(mapped.astype(float)) - expected).max() / expected.max()
            assert error < 1e-3, f"distances off by {error:.1e}"


def _assert_equal_output(estimator: Any, output: NDArray[Any], expected: NDArray[Any]) -> None:
    """Assert that results are equal, except for rotations of a map or the order of clusters."""
    if estimator.learner_tags.role == "clusterer":
        output, expected = (np.equal.outer(labels, labels) for labels in (output, expected))
    elif estimator.learner_tags.role == "map":
        output, expected = pdist(output), pdist(expected)
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-8)


_Arrays = list[NDArray[Any]]


def _replace_set(arrays: _Arrays, k: int, rows: Any) -> list[Any]:
    return [*arrays[:k], rows, *arrays[k + 1 :]]


def _replace_value(arrays: _Arrays, value: float) -> _Arrays:
    arrays[4][1, 2] = value
    return arrays


def _make_case(change: Callable[[_Arrays], Any], *, queries: bool = False) -> tuple[Change, bool]:
    """Return a test case in which ``change`` is applied to the training sets.

    If ``queries`` is True, it is also applied to the queries.
    """

    def apply(sets: Any, y: Any, new: Any) -> tuple[Any, Any, Any]:
        changed_sets = change([np.array(rows) for rows in sets])
        labels = y[: len(changed_sets)] if isinstance(changed_sets, list) else y
        return changed_sets, labels, change([np.array(rows) for rows in new]) if queries else new

    return apply, False


# Each case is a function that changes (sets, y, queries). Results are not compared with the results
# for clean data.
_CASES: dict[str, tuple[Change, bool]] = {
    "empty": _make_case(lambda a: []),
    "empty_set": _make_case(lambda a: _replace_set(a, 5, np.empty((0, 3)))),
    "nan": _make_case(lambda a: _replace_value(a, np.nan)),
    "inf": _make_case(lambda a: _replace_value(a, np.inf)),
    "other_width": _make_case(lambda a: _replace_set(a, 6, np.ones((4, 2)))),
    "all_of_other_width": _make_case(lambda a: [rows[:, :0] for rows in a]),
    "one_vector_flat": _make_case(lambda a: _replace_set(a, 7, a[7][0])),
    "text": _make_case(lambda a: _replace_set(a, 8, [["a", "b", "c"]])),
    "a_number": _make_case(lambda a: 3),
    "one_vector_in_a_set": _make_case(lambda a: _replace_set(a, 5, a[5][:1]), queries=True),
    "one_vector_in_all": _make_case(lambda a: [rows[:1] for rows in a], queries=True),
    "equal_sets": _make_case(lambda a: [*a[:15], *a[:15], *a[30:]]),
    "vectors_repeated": _make_case(
        lambda a: [np.repeat(rows[:1], 4, axis=0) for rows in a], queries=True
    ),
    "constant_feature": _make_case(
        lambda a: [np.insert(r, 1, 5.0, axis=1) for r in a], queries=True
    ),
    "integers": _make_case(lambda a: [np.rint(10 * r).astype(np.int64) for r in a], queries=True),
    "fewer_vectors_than_features": _make_case(
        lambda a: [np.tile(rows[:4], (1, 10)) for rows in a], queries=True
    ),
    "scale_1e-8": _make_case(lambda a: [1e-8 * rows for rows in a], queries=True),
    "scale_1e8": _make_case(lambda a: [1e8 * rows for rows in a], queries=True),
    "far_from_zero": _make_case(lambda a: [rows + 1e6 for rows in a], queries=True),
}


SETS = SampleKind("sets", _make_data, _freeze, _list_checks, _CASES)
