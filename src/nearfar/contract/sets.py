"""The contract of learners of sets of vectors as checks.

Scikit-learn's checks know tables only. These are for estimators that take :class:`~nearfar.Sets`:
learners with ``transform``, classifiers and clusterings with ``predict``.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar.summaries.sets import Sets

SetCheck = Callable[[Any], None]


def check_sets(estimator: Any) -> None:
    """Run all of them; raises an ``AssertionError`` that says what was expected."""
    for _, run in set_checks(estimator):
        run(estimator)


def set_checks(estimator: Any) -> Iterator[tuple[str, SetCheck]]:
    """Name and function of every check that applies to an estimator of sets."""
    general: list[SetCheck] = [
        check_declared_parameters,
        check_not_fitted,
        check_failed_fit,
        check_clone_and_pickle,
        check_deterministic,
        check_inputs_unchanged,
        check_kinds_of_input,
        check_slices,
        check_order_plays_no_part,
        check_cross_validation,
        check_pipeline_and_grid_search,
    ]
    if hasattr(estimator, "transform"):
        general += [check_training_sets_again, check_dtypes, check_names_and_frames]
    if is_classifier(estimator):
        general += [check_kinds_of_labels, check_bad_labels]
    for function in general:
        yield function.__name__.removeprefix("check_"), function
    for case in _BAD:
        yield f"bad_input-{case}", partial(check_bad_sets, case=case)
    for case in _ODD:
        yield f"odd_input-{case}", partial(check_odd_sets, case=case)


# ---------------------------------------------------------------------- behaviour


def check_declared_parameters(estimator: Any) -> None:
    """Every parameter is declared, its default is allowed, nonsense raises and names it."""
    names = list(estimator.get_params(deep=False))
    assert set(names) == set(estimator.parameters), "parameters and __init__ name different things"
    sets, y = set_data()
    for name in names:
        try:
            clone(estimator).set_params(**{name: _Nonsense()}).fit(sets, y)
        except ValueError as error:
            assert name in str(error), f"the error does not name {name}: {error}"
        else:
            raise AssertionError(f"{name}=<nonsense> was accepted")


def check_not_fitted(estimator: Any) -> None:
    """Using an unfitted estimator says so."""
    _refuses(clone(estimator), "before fit")


def check_failed_fit(estimator: Any) -> None:
    """A fit that fails leaves nothing of an earlier one behind."""
    sets, y = set_data()
    fitted = clone(estimator).fit(sets, y)
    for bad in ([], [np.full((3, sets.n_features), np.nan)]):
        try:
            fitted.fit(bad, y[: len(bad)])
        except ValueError:
            pass
        else:
            raise AssertionError("fit took sets that it must refuse")
        _refuses(fitted, "after a fit that failed")


def check_clone_and_pickle(estimator: Any) -> None:
    """A clone is unfitted and equal; a pickle maps alike."""
    sets, y = set_data()
    copy = clone(estimator)
    assert repr(copy) == repr(estimator)
    fitted = copy.fit(sets, y)
    loaded = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(_used(loaded, sets), _used(fitted, sets))


def check_deterministic(estimator: Any) -> None:
    """The same fit twice, and a fit after another fit, give equal bits."""
    sets, y = set_data()
    first = clone(estimator).fit(sets, y)
    second = clone(estimator).fit(sets[::-1], y[::-1]).fit(sets, y)
    np.testing.assert_array_equal(_used(first, sets), _used(second, sets))


def check_inputs_unchanged(estimator: Any) -> None:
    """Nothing is written to what was given."""
    sets, y = set_data()
    arrays = [np.array(rows) for rows in sets]
    kept = [rows.copy() for rows in arrays]
    labels = y.copy()
    for rows in arrays:
        rows.setflags(write=False)
    y.setflags(write=False)
    _used(clone(estimator).fit(arrays, y), arrays)
    assert all((a == b).all() for a, b in zip(arrays, kept, strict=True))
    np.testing.assert_array_equal(y, labels)


def check_kinds_of_input(estimator: Any) -> None:
    """Sets, lists, arrays of arrays and arrays of three axes say the same."""
    sets, y = set_data()
    wanted = _used(clone(estimator).fit(sets, y), sets)
    rows = list(sets)
    boxed = np.empty(len(rows), dtype=object)
    boxed[:] = rows
    for kind in (rows, tuple(rows), boxed, [array.tolist() for array in rows]):
        np.testing.assert_array_equal(_used(clone(estimator).fit(kind, y), kind), wanted)
    equal = np.stack([array[:6] for array in rows])
    np.testing.assert_array_equal(
        _used(clone(estimator).fit(equal, y), equal),
        _used(clone(estimator).fit(list(equal), y), list(equal)),
    )


def check_slices(estimator: Any) -> None:
    """What is said of a set does not depend on the others that come with it."""
    sets, y = set_data()
    train, test = sets[:40], sets[40:]
    fitted = clone(estimator).fit(train, y[:40])
    whole = _used(fitted, test)
    odd = np.arange(len(test)) % 2 == 1
    for key in (slice(3, 9), odd, np.array([7, 2, 2, 5]), slice(4, 5)):
        np.testing.assert_allclose(_used(fitted, test[key]), whole[key], rtol=1e-7, atol=1e-9)


def check_order_plays_no_part(estimator: Any) -> None:
    """Neither that of the vectors in a set nor that of the sets."""
    sets, y = set_data()
    train, test = sets[:40], sets[40:]
    wanted = _used(clone(estimator).fit(train, y[:40]), test)
    turned = [rows[::-1] for rows in train]
    found = _used(clone(estimator).fit(turned, y[:40]), [rows[::-1] for rows in test])
    _assert_alike(estimator, found, wanted)
    order = np.random.RandomState(0).permutation(40)
    found = _used(clone(estimator).fit(train[order], y[order]), test)
    _assert_alike(estimator, found, wanted)


def check_cross_validation(estimator: Any) -> None:
    """``cross_val_score`` and ``train_test_split`` take sets for X."""
    sets, y = set_data()
    model = _classifier(estimator)
    for kind in (sets, list(sets)):
        scores = cross_val_score(model, kind, y, cv=3, error_score="raise")
        assert scores.mean() > 0.8, f"only {scores.mean():.0%} are right"
    train, test, a, b = train_test_split(sets, y, random_state=0, stratify=y)
    assert isinstance(train, Sets) and len(test) == len(b)
    assert clone(model).fit(train, a).score(test, b) > 0.7


def check_pipeline_and_grid_search(estimator: Any) -> None:
    """Parameters can be searched, within a Pipeline too."""
    sets, y = set_data()
    model = _classifier(estimator)
    name = "" if model is estimator else f"{type(estimator).__name__.lower()}__"
    grid = {f"{name}standardize": [False, True]} if "standardize" in estimator.parameters else {}
    search = GridSearchCV(clone(model), grid, cv=2, error_score="raise").fit(sets, y)
    assert len(search.predict(sets)) == len(y)
    assert search.best_score_ > 0.8


def check_training_sets_again(estimator: Any) -> None:
    """``fit_transform`` and ``transform`` agree, and new sets land near."""
    sets, y = set_data()
    fitted = clone(estimator)
    first = fitted.fit_transform(sets, y)
    np.testing.assert_allclose(fitted.transform(sets), first, rtol=0, atol=1e-8 * np.ptp(first))


def check_dtypes(estimator: Any) -> None:
    """``transform`` returns the dtype of its sets."""
    sets, y = set_data()
    wanted = pdist(clone(estimator).fit(sets, y).transform(sets))
    narrow = Sets(sets.X.astype(np.float32), sets.offsets)
    for train in (sets, narrow):
        fitted = clone(estimator).fit(train, y)
        for new in (sets, narrow):
            mapped = fitted.transform(new)
            assert mapped.dtype == new.X.dtype, f"transform gave {mapped.dtype}"
            error = np.abs(pdist(mapped.astype(float)) - wanted).max() / wanted.max()
            assert error < 1e-3, f"distances off by {error:.1e}"


def check_names_and_frames(estimator: Any) -> None:
    """Features have names; ``set_output`` gives frames out."""
    sets, y = set_data()
    fitted = clone(estimator).fit(sets, y)
    names = fitted.get_feature_names_out()
    mapped = fitted.transform(sets)
    assert len(names) == mapped.shape[1]
    try:
        import pandas as pd
    except ImportError:  # pandas is an extra
        return
    for kind in (sets, list(sets)):
        frame = clone(estimator).set_output(transform="pandas").fit(kind, y).transform(kind)
        assert isinstance(frame, pd.DataFrame) and list(frame.columns) == list(names)
        np.testing.assert_array_equal(frame.to_numpy(), mapped)


def check_kinds_of_labels(estimator: Any) -> None:
    """Labels of any type come back as they are."""
    sets, y = set_data()
    wanted = clone(estimator).fit(sets, y).predict(sets)
    for names in (np.array(["a", "b", "c"]), np.array(["a", "b", "c"], dtype=object)):
        found = clone(estimator).fit(sets, names[y])
        np.testing.assert_array_equal(found.predict(sets), names[wanted])
        shares = found.predict_proba(sets)
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        np.testing.assert_array_equal(found.classes_[shares.argmax(axis=1)], names[wanted])


def check_bad_labels(estimator: Any) -> None:
    """Missing, continuous, absent and too few labels raise."""
    sets, y = set_data()
    for bad in (None, y[:-1], y + 0.5, np.append([None], y[1:])):
        try:
            clone(estimator).fit(sets, bad)
        except ValueError:
            continue
        raise AssertionError(f"labels like {bad if bad is None else bad[:3]} were accepted")


# ---------------------------------------------------------------------- bad input


def check_bad_sets(estimator: Any, case: str) -> None:
    """Fit and use refuse a case with a message that names the set, or what is wrong."""
    sets, y = set_data()
    bad, message = _BAD[case]
    arrays = [np.array(rows) for rows in sets]
    fitted = clone(estimator).fit(sets, y)
    given = bad(arrays)
    for attempt in (lambda: clone(estimator).fit(given, y), lambda: _used(fitted, given)):
        try:
            attempt()
        except (ValueError, TypeError) as error:
            assert re.search(message, str(error)), f"{case}: expected /{message}/, got: {error}"
            continue
        raise AssertionError(f"{case}: expected an error like /{message}/")


def check_odd_sets(estimator: Any, case: str) -> None:
    """Unusual sets are taken, and give finite results."""
    sets, y = set_data()
    given = _ODD[case]([np.array(rows) for rows in sets])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _used(clone(estimator).fit(given, y), given)
    assert np.isfinite(found).all(), f"{case}: the result is not finite"


Arrays = list[NDArray[Any]]


def _replaced(arrays: Arrays, k: int, rows: Any) -> list[Any]:
    return [*arrays[:k], rows, *arrays[k + 1 :]]


def _with(arrays: Arrays, value: float) -> Arrays:
    arrays[4][1, 2] = value
    return arrays


_BAD: dict[str, tuple[Callable[[Arrays], Any], str]] = {
    "no_sets": (lambda a: [], "no sets|0 set|0 sample|empty|Expected 2D"),
    "empty_set": (lambda a: _replaced(a, 5, np.empty((0, 3))), "Set 5 is empty"),
    "nan": (lambda a: _with(a, np.nan), "Set 4 holds nan"),
    "inf": (lambda a: _with(a, np.inf), "Set 4 holds inf"),
    "other_width": (lambda a: _replaced(a, 6, np.ones((4, 2))), "Set 6 has vectors of 2 features"),
    "all_of_other_width": (lambda a: [rows[:, :0] for rows in a], "0 features"),
    "one_vector_flat": (lambda a: _replaced(a, 7, a[7][0]), r"Set 7 has shape \(3,\)"),
    "text": (lambda a: _replaced(a, 8, [["a", "b", "c"]]), "Set 8 is not an array of numbers"),
    "a_number": (lambda a: 3, "Sets|Expected 2D"),
}
_ODD: dict[str, Callable[[Arrays], Any]] = {
    "one_vector_in_a_set": lambda a: _replaced(a, 5, a[5][:1]),
    "one_vector_in_all": lambda a: [rows[:1] for rows in a],
    "equal_sets": lambda a: [*a[:30], *a[:30]],
    "vectors_repeated": lambda a: [np.repeat(rows[:1], 4, axis=0) for rows in a],
    "constant_feature": lambda a: [np.insert(rows, 1, 5.0, axis=1) for rows in a],
    "integers": lambda a: [np.rint(10 * rows).astype(np.int64) for rows in a],
    "fewer_vectors_than_features": lambda a: [np.tile(rows[:4], (1, 10)) for rows in a],
    "scale_1e-8": lambda a: [1e-8 * rows for rows in a],
    "scale_1e8": lambda a: [1e8 * rows for rows in a],
    "far_from_zero": lambda a: [rows + 1e6 for rows in a],
}


# ---------------------------------------------------------------------- helpers


class _Nonsense:
    """A value no parameter may take; scikit-learn's clone leaves it alone."""

    def __repr__(self) -> str:
        return "<nonsense>"


@cache
def _made() -> tuple[Sets, NDArray[np.intp]]:
    random = np.random.RandomState(0)
    y = np.arange(60) % 3
    # Classes differ in their means and in how they spread.
    means = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 1.0], [0.0, 2.0, -1.0]])
    shapes = random.normal(size=(3, 3, 3)) + 2 * np.eye(3)
    sizes = random.randint(8, 30, size=60)
    arrays = [
        random.normal(size=(t, 3)) @ shapes[k] + means[k] for t, k in zip(sizes, y, strict=True)
    ]
    return Sets.from_list(arrays), y


def set_data() -> tuple[Sets, NDArray[np.intp]]:
    """Sixty sets of three classes, and their labels."""
    sets, y = _made()
    return sets, y.copy()


def _used(fitted: Any, sets: Any) -> NDArray[Any]:
    """What an estimator says of sets."""
    if hasattr(fitted, "transform"):
        return np.asarray(fitted.transform(sets))
    return np.asarray(fitted.predict_proba(sets))


def _refuses(estimator: Any, when: str) -> None:
    sets, _ = set_data()
    try:
        _used(estimator, sets)
    except NotFittedError:
        return
    raise AssertionError(f"{when}, use must raise NotFittedError")


def _classifier(estimator: Any) -> Any:
    """The estimator, or neighbours after it."""
    if is_classifier(estimator):
        return estimator
    return make_pipeline(estimator, StandardScaler(), KNeighborsClassifier(3))


def _assert_alike(estimator: Any, found: NDArray[Any], wanted: NDArray[Any]) -> None:
    """Equal; or, for maps, whose axes are free to turn, of equal distances."""
    if hasattr(estimator, "transform"):
        found, wanted = pdist(found), pdist(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
