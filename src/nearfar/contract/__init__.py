"""Common checks of all estimators, run by the tests and by ``check_learner``.

Each check takes an unfitted estimator and raises an ``AssertionError`` that states the expected
behavior. Third-party estimators are checked like the estimators of nearfar. This module has the
checks that all estimators share. The modules named after a sample type (vectors, sets, tensors,
pairs) have test data of that type, difficult input, and the checks that apply to that type only.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from nearfar.base import Estimator, NeighborsClassifier
from nearfar.contract.outcomes import (
    Change,
    Check,
    SampleKind,
    compute_output,
    fit_once,
    get_expected_outcome,
)
from nearfar.contract.pairs import PAIRS
from nearfar.contract.sets import SETS
from nearfar.contract.supervision import check_bad_supervision, list_supervision_cases
from nearfar.contract.tensors import TENSORS
from nearfar.contract.vectors import VECTORS

KINDS = {kind.name: kind for kind in (VECTORS, SETS, TENSORS, PAIRS)}


def check_learner(learner: Estimator, expected_failures: dict[str, str] | None = None) -> None:
    """Check that an estimator follows the conventions of nearfar and scikit-learn.

    The function runs scikit-learn's ``check_estimator``, the checks of nearfar, and a table of
    difficult inputs. It raises an error at the first check that fails. For estimators of sets and
    tensors, scikit-learn's checks cover very little.

    Parameters
    ----------
    learner : Estimator
        Unfitted estimator to check.
    expected_failures : dict, optional
        Names of scikit-learn checks that are allowed to fail, each with a reason.

    Examples
    --------
    >>> from nearfar import Euclidean, check_learner
    >>> check_learner(Euclidean())
    """
    # Import here, because the import takes half a second and would slow down listing the public
    # names.
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(
            learner, expected_failed_checks=expected_failures or {}, on_skip=None, on_fail="raise"
        )
        for _, run in iterate_checks(learner):
            run(learner)


def iterate_checks(estimator: Estimator) -> Iterator[tuple[str, Check]]:
    """Yield the name and function of every nearfar check that applies to the estimator."""
    input_type = estimator.learner_tags.input
    yield from _iterate_type_checks(estimator, input_type)
    if input_type != "vectors" and get_tags(estimator).input_tags.two_d_array:
        # The estimator also accepts vectors.
        for name, check in _iterate_type_checks(estimator, "vectors"):
            yield f"vectors-{name}", check


def _iterate_type_checks(estimator: Estimator, input_type: str) -> Iterator[tuple[str, Check]]:
    kind = KINDS[input_type]
    tags = estimator.learner_tags
    shared: list[Callable[..., None]] = [
        check_declared_parameters,
        check_not_fitted,
        check_failed_fit,
        check_clone_and_pickle,
        check_deterministic,
        check_inputs_unchanged,
    ]
    if tags.role == "regressor":
        shared.append(check_regressor)
    uses_classes = kind.label_cases is None and tags.supervision != ("values",)
    if uses_classes:
        shared.append(check_label_types)
    if input_type != "vectors":  # scikit-learn's own checks cover vectors.
        shared += [check_slices, check_model_selection]
        if hasattr(estimator, "transform"):
            shared += [check_fit_transform, check_names_and_frames]
    if tags.supervised and uses_classes:
        shared.append(check_missing_class)
    if tags.role == "classifier" and uses_classes:
        shared.append(check_classifier)
    if tags.role == "clusterer":
        shared.append(check_clusterer)
    for function in shared:
        yield function.__name__.removeprefix("check_"), partial(function, kind=kind)
    for check in kind.type_checks(estimator):
        yield check.__name__.removeprefix("check_"), check
    for case in _get_cases(kind):
        yield f"bad_input-{case}", partial(check_bad_input, case=case, kind=kind)
    for case in list_supervision_cases(estimator):
        yield f"bad_supervision-{case}", partial(check_bad_supervision, case=case)


def _get_cases(kind: SampleKind) -> dict[str, tuple[Change, bool]]:
    return (LABEL_CASES if kind.label_cases is None else kind.label_cases) | kind.cases


def check_declared_parameters(estimator: Any, kind: SampleKind) -> None:
    """Check that parameters are declared, defaults are allowed, and invalid values are rejected."""
    names = list(estimator.get_params(deep=False))
    assert set(names) == set(estimator.parameters), "parameters does not match __init__"
    estimator._check_parameters()
    X, y = kind.data()
    for name in names:
        error = _catch_error(lambda: clone(estimator).set_params(**{name: _Nonsense()}).fit(X, y))  # noqa: B023
        assert isinstance(error, ValueError), f"{name}=<nonsense> was accepted"
        assert name in str(error), f"the error does not name {name}: {error}"


def check_not_fitted(estimator: Any, kind: SampleKind) -> None:
    """Check that an unfitted estimator raises NotFittedError."""
    _assert_not_fitted(clone(estimator), kind, "before fit")


def check_failed_fit(estimator: Any, kind: SampleKind) -> None:
    """Check that a failed fit removes the results of an earlier fit."""
    X, y = kind.data()
    fitted = deepcopy(fit_once(estimator, kind))
    for case in ("empty", "nan"):
        bad_X, bad_y, _ = kind.cases[case][0](X, y, X)
        error = _catch_error(lambda: fitted.fit(bad_X, bad_y))  # noqa: B023
        assert isinstance(error, ValueError), f"fit must raise a ValueError for: {case}"
        _assert_not_fitted(fitted, kind, "after a failed fit")


def check_clone_and_pickle(estimator: Any, kind: SampleKind) -> None:
    """Check that a clone has equal parameters, and that a pickled copy gives equal results."""
    X, _ = kind.data()
    assert repr(clone(estimator)) == repr(estimator)
    fitted = fit_once(estimator, kind)
    loaded = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(compute_output(loaded, X), compute_output(fitted, X))


def check_deterministic(estimator: Any, kind: SampleKind) -> None:
    """Check that refitting gives bitwise equal results, even after a fit to other data."""
    X, y = kind.data()
    first, second = fit_once(estimator, kind), clone(estimator).fit(X[::-1], y[::-1]).fit(X, y)
    np.testing.assert_array_equal(compute_output(first, X), compute_output(second, X))


def check_inputs_unchanged(estimator: Any, kind: SampleKind) -> None:
    """Check that read-only input is accepted and that no input is changed."""
    X, y = kind.data()
    original_y = y.copy()
    y.setflags(write=False)
    before = [np.array(sample) for sample in X]
    for form in kind.frozen(X):
        output = compute_output(clone(estimator).fit(form, y), form)
        assert all((a == b).all() for a, b in zip(form, before, strict=True)), "X was changed"
        if isinstance(form, np.ndarray):
            assert not np.shares_memory(output, form), "the result must not share memory with X"
    np.testing.assert_array_equal(y, original_y)


def check_slices(estimator: Any, kind: SampleKind) -> None:
    """Check that the result for a sample does not depend on other samples in the same call."""
    queries = _split_samples(kind)[2]
    fitted = _fit_reference(estimator, kind)
    outputs = compute_output(fitted, queries)
    is_odd = np.arange(len(outputs)) % 2 == 1
    for key in (slice(3, 9), is_odd, np.array([7, 2, 2, 5]), slice(4, 5)):
        tolerance = 1e-9 * max(1.0, float(np.abs(outputs).max()))
        np.testing.assert_allclose(
            compute_output(fitted, queries[key]), outputs[key], rtol=1e-7, atol=tolerance
        )


def check_label_types(estimator: Any, kind: SampleKind) -> None:
    """Check that string, boolean, categorical and nullable labels work like integer labels."""
    X, y = kind.data()
    X, y = X[::2], y[::2]  # Half of the samples are enough and make the many fits faster.
    names = np.array(["x", "y", "z"])
    label_variants: list[Any] = [names[y], names.astype(object)[y]]
    if "values" in estimator.learner_tags.supervision:
        label_variants = [y.astype(float), y.astype(object), y.tolist()]  # Targets must be numbers.
    elif estimator.learner_tags.supervised:
        try:
            import pandas as pd
        except ImportError:  # pandas is an optional dependency.
            pass
        else:
            label_variants += [
                pd.Series(names[y], dtype="category"),
                pd.Categorical(names[y]),
                pd.Series(y, dtype="Int64"),
                pd.Series(names[y], dtype="string"),
            ]
    else:
        label_variants = label_variants[:1]  # Labels are ignored.
    reference = clone(estimator).fit(X, y)
    for labels in label_variants:
        fitted = clone(estimator).fit(X, labels)
        if estimator.learner_tags.role == "classifier":
            predicted, codes = fitted.predict(X).tolist(), reference.predict(X).tolist()
            label_of_code = dict(zip(y.tolist(), list(labels), strict=True))
            assert predicted == [label_of_code[code] for code in codes], "predicted labels differ"
        else:
            np.testing.assert_array_equal(compute_output(fitted, X), compute_output(reference, X))
    if estimator.learner_tags.supervised:
        first_classes = np.flatnonzero(y < 2)
        predicted = [
            compute_output(clone(estimator).fit(X[first_classes], binary_labels), X)
            for binary_labels in (y[first_classes] == 1, y[first_classes])
        ]
        np.testing.assert_array_equal(predicted[0], predicted[1].astype(predicted[0].dtype))


def check_missing_class(estimator: Any, kind: SampleKind) -> None:
    """Check that training data may lack one of the classes, also with categorical labels."""
    X, y = kind.data()
    kept_rows = np.flatnonzero(y != 1)
    output = compute_output(clone(estimator).fit(X[kept_rows], y[kept_rows]), X)
    assert np.isfinite(output).all()
    try:
        import pandas as pd
    except ImportError:
        return
    labels = pd.Series(y, dtype="category")  # The missing class is still a category.
    np.testing.assert_array_equal(
        compute_output(clone(estimator).fit(X[kept_rows], labels[kept_rows]), X), output
    )


def check_model_selection(estimator: Any, kind: SampleKind) -> None:
    """Check that cross-validation, Pipeline and GridSearchCV work, and check the accuracy."""
    X, y = kind.data()
    if estimator.learner_tags.role == "classifier":
        model, prefix = clone(estimator), ""
    elif hasattr(estimator, "transform"):
        model = make_pipeline(clone(estimator), StandardScaler(), KNeighborsClassifier(3))
        prefix = f"{type(estimator).__name__.lower()}__"
    else:
        return
    scores = cross_val_score(model, X, y, cv=3, error_score="raise")
    min_accuracy = float(get_expected_outcome(estimator, "model_selection_score", "0.8"))
    assert scores.mean() > min_accuracy, f"accuracy is only {scores.mean():.0%}"
    grid = {f"{prefix}{name}": [value] for name, value in estimator.get_params(deep=False).items()}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.predict(X)) == len(y)


def check_classifier(estimator: Any, kind: SampleKind) -> None:
    """Check that labels, probabilities, neighbors and the training error are consistent."""
    _, y, queries, truth = _split_samples(kind)
    fitted = _fit_reference(estimator, kind)
    predicted = fitted.predict(queries)
    assert set(predicted) <= set(fitted.classes_.tolist())
    assert fitted.score(queries, truth) == np.mean(predicted == truth)
    if hasattr(fitted, "predict_proba"):
        probabilities = fitted.predict_proba(queries)
        assert (
            probabilities.shape == (len(predicted), len(fitted.classes_))
            and (probabilities >= 0).all()
        )
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        np.testing.assert_array_equal(fitted.classes_[probabilities.argmax(axis=1)], predicted)
    if hasattr(fitted, "leave_one_out_error"):
        assert 0 <= fitted.leave_one_out_error() <= 1
    if isinstance(fitted, NeighborsClassifier):
        distances, neighbors = fitted.kneighbors(queries)
        assert (np.diff(distances, axis=1) >= 0).all() and np.isfinite(distances).all()
        assert all(len(set(row)) == len(row) for row in neighbors.tolist())
        nearest, first = fitted.kneighbors(queries, 1)
        np.testing.assert_array_equal(first, neighbors[:, :1])
        np.testing.assert_allclose(nearest, distances[:, :1], rtol=1e-6, atol=1e-9)
        if fitted.votes:
            # Compare only samples whose neighbors all have the same label, which excludes ties.
            votes = y[neighbors]
            is_unanimous = (votes == votes[:, :1]).all(axis=1)
            np.testing.assert_array_equal(votes[is_unanimous, 0], predicted[is_unanimous])


def check_regressor(estimator: Any, kind: SampleKind) -> None:
    """Check that numeric targets of any type work, and that predictions beat the mean."""
    X, y, queries, truth = _split_samples(kind)
    values, targets = 1.5 * y - 0.25, 1.5 * truth - 0.25
    fitted = clone(estimator).fit(X, values)
    predicted = fitted.predict(queries)
    assert predicted.shape == targets.shape and predicted.dtype == np.float64
    assert fitted.score(queries, targets) > 0
    for variant in (values.astype(np.float32), values.astype(object), values.tolist()):
        np.testing.assert_allclose(
            clone(estimator).fit(X, variant).predict(queries), predicted, rtol=1e-6
        )
    scores = cross_val_score(clone(estimator), X, values, cv=3, error_score="raise")
    assert scores.mean() > 0
    for bad_value, expected_text in (("red", "numbers"), (np.inf, "infinity"), (None, "missing")):
        bad_values = values.astype(object)
        bad_values[4] = bad_value
        error = _catch_error(lambda: clone(estimator).fit(X, bad_values))  # noqa: B023
        assert isinstance(error, ValueError), f"a value {bad_value!r} was accepted"
        assert "y" in str(error) and expected_text in str(error), f"a value {bad_value!r}: {error}"


def check_clusterer(estimator: Any, kind: SampleKind) -> None:
    """Check that clusters are numbered from 0 and that predict agrees on training samples."""
    X, _ = kind.data()
    fitted = fit_once(estimator, kind)
    labels = fitted.labels_
    assert labels.shape == (len(X),) and labels.dtype.kind == "i"
    assert set(labels.tolist()) == set(range(labels.max() + 1))
    np.testing.assert_array_equal(clone(estimator).fit_predict(X), labels)
    if hasattr(fitted, "predict"):
        np.testing.assert_array_equal(fitted.predict(X), labels)


def check_fit_transform(estimator: Any, kind: SampleKind) -> None:
    """Check that ``fit_transform`` and ``transform`` agree."""
    X, y = kind.data()
    fitted = clone(estimator)
    first = fitted.fit_transform(X, y)
    np.testing.assert_allclose(fitted.transform(X), first, rtol=0, atol=1e-8 * np.ptp(first))


def check_names_and_frames(estimator: Any, kind: SampleKind) -> None:
    """Check the feature names of the output, and that ``set_output`` returns data frames."""
    X, y = kind.data()
    fitted = fit_once(estimator, kind)
    names = fitted.get_feature_names_out()
    mapped = fitted.transform(X)
    assert mapped.ndim == 2 and len(names) == mapped.shape[1]
    try:
        import pandas as pd
    except ImportError:
        return
    frame = clone(estimator).set_output(transform="pandas").fit(X, y).transform(X)
    assert isinstance(frame, pd.DataFrame) and list(frame.columns) == list(names)
    np.testing.assert_array_equal(frame.to_numpy(), mapped)


LABEL_CASES: dict[str, tuple[Change, bool]] = {
    "one_class": (lambda X, y, Q: (X, np.zeros_like(y), Q), False),
    "one_sample_in_a_class": (lambda X, y, Q: (X, np.append(y[:-1], 7), Q), False),
    "missing_labels": (lambda X, y, Q: (X, np.append([None], y[1:]), Q), False),
    "continuous_labels": (lambda X, y, Q: (X, y + 0.5, Q), False),
    "too_few_labels": (lambda X, y, Q: (X, y[:-1], Q), False),
    "no_labels": (lambda X, y, Q: (X, None, Q), False),
}


def check_bad_input(estimator: Any, case: str, kind: SampleKind | None = None) -> None:
    """Check that fit, transform and predict have the outcomes listed in bad_input.toml."""
    kind = kind or KINDS[estimator.learner_tags.input]
    X, y, queries, _ = _split_samples(kind)
    change, compares = _get_cases(kind)[case]
    bad_X, bad_y, bad_queries = change(X, y.copy(), queries)
    expected = get_expected_outcome(estimator, case, input_type=kind.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if expected == "ok":
            fitted = clone(estimator).fit(bad_X, bad_y)
            assert np.isfinite(compute_output(fitted, bad_queries)).all(), (
                f"{case}: the result is not finite"
            )
            if compares:
                # Both predictions use the same training rows, so that duplicate rows do not vote
                # twice.
                labels = _predict_labels(fitted, bad_X[: len(y)], y, bad_queries)
                expected_labels = _predict_labels(_fit_reference(estimator, kind), X, y, queries)
                agreement = _compute_agreement(estimator, labels, expected_labels)
                min_agreement = float(get_expected_outcome(estimator, f"{case}_agreement", "0.99"))
                assert agreement >= min_agreement, (
                    f"{case}: only {agreement:.0%} of predictions agree"
                )
            return
        attempts = [lambda: clone(estimator).fit(bad_X, bad_y)]
        if case in kind.cases:
            attempts.append(lambda: compute_output(_fit_reference(estimator, kind), bad_X))
        for attempt in attempts:
            error = _catch_error(attempt)
            assert error is not None, f"{case}: expected an error like /{expected}/"
            error_types = TypeError if case == "sparse" else (ValueError, TypeError)
            assert isinstance(error, error_types), f"{case}: wrong type: {error!r}"
            matches = re.search(expected, str(error))
            assert matches, f"{case}: expected /{expected}/, got: {error}"


def _predict_labels(fitted: Any, X: Any, y: NDArray[Any], queries: Any) -> NDArray[Any]:
    """Return the predictions for queries. A transformer uses a vote of the 3 nearest neighbors."""
    if not fitted.learner_tags.maps:
        return np.asarray(fitted.predict(queries))
    points = fitted.transform(X)
    nearest = np.argsort(cdist(fitted.transform(queries), points), axis=1, kind="stable")[:, :3]
    votes = np.apply_along_axis(np.bincount, 1, y[nearest], minlength=y.max() + 1)
    return np.asarray(votes.argmax(axis=1))


def _compute_agreement(estimator: Any, predicted: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the fraction of equal predictions, or the adjusted Rand index of clusters."""
    if estimator.learner_tags.role == "regressor":
        return float(np.mean(np.isclose(predicted, expected)))
    if estimator.learner_tags.role == "clusterer":
        return float(adjusted_rand_score(expected, predicted))
    return float(np.mean(predicted == expected))


class _Nonsense:
    """A value that no parameter accepts."""

    def __repr__(self) -> str:
        return "<nonsense>"


def _split_samples(kind: SampleKind) -> tuple[Any, NDArray[np.intp], Any, NDArray[np.intp]]:
    """Return training samples and labels, and test samples and labels."""
    X, y = kind.data()
    n = 2 * len(y) // 3
    return X[:n], y[:n], X[n:], y[n:]


@lru_cache(maxsize=4)
def _fit_reference(estimator: Any, kind: SampleKind) -> Any:
    """Return the estimator fitted to the clean training samples. All checks share this fit."""
    X, y, _, _ = _split_samples(kind)
    return clone(estimator).fit(X, y)


def _catch_error(attempt: Callable[[], Any]) -> Exception | None:
    """Return the ValueError or TypeError that the attempt raises, or None."""
    try:
        attempt()
    except (ValueError, TypeError) as error:
        return error
    return None


def _assert_not_fitted(estimator: Any, kind: SampleKind, when: str) -> None:
    try:
        compute_output(estimator, kind.data()[0])
    except NotFittedError:
        return
    raise AssertionError(f"{when}, the estimator must raise NotFittedError")
