"""Checks of estimators whose samples are vectors, in addition to scikit-learn's checks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import make_blobs

from nearfar.base import LinearLearner
from nearfar.contract.outcomes import (
    Change,
    Check,
    SampleKind,
    compute_output,
    fit_once,
    get_expected_outcome,
)


@cache
def _generate() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    X, y = make_blobs(90, 5, centers=3, cluster_std=2.0, center_box=(-4, 4), random_state=3)
    # Use correlated features of different scales, so that a learned metric has an advantage.
    return X @ np.random.RandomState(0).normal(size=(5, 5)) * [1, 2, 0.5, 3, 1], y


def _make_data() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return 90 points from three classes, and their labels."""
    X, y = _generate()
    return X.copy(), y.copy()


def _freeze(X: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield read-only rows in C and Fortran order."""
    for array in (np.ascontiguousarray(X), np.asfortranarray(X)):
        array.setflags(write=False)
        yield array


def _list_checks(estimator: Any) -> list[Check]:
    """Return the checks that apply to estimators whose samples are vectors."""
    checks: list[Check] = [check_frames]
    checks.append(check_dtypes_of_rows if estimator.learner_tags.maps else check_dtypes_of_labels)
    if isinstance(estimator, LinearLearner):
        checks.append(check_distances_agree)
    if estimator.learner_tags.reads == "statistics" and hasattr(estimator, "partial_fit"):
        checks.append(check_batches)
    return checks


def check_dtypes_of_rows(learner: Any) -> None:
    """Check the dtypes of components and output, and the accuracy of float32 far from zero."""
    X, y = _make_data()
    X = X + 1e4
    exact = clone(learner).fit(X, y)
    reference = _compute_distances(exact.transform(X))
    for fit_dtype in (np.float32, np.float64):
        fitted = clone(learner).fit(X.astype(fit_dtype), y) if fit_dtype is np.float32 else exact
        if isinstance(learner, LinearLearner):
            assert fitted.components_.dtype == fit_dtype, "components_ must have the dtype of X"
        for dtype in (np.float32, np.float64):
            mapped = fitted.transform(X.astype(dtype))
            assert mapped.dtype == dtype, f"transform of {dtype.__name__} returned {mapped.dtype}"
            error = np.abs(_compute_distances(mapped) - reference).max() / reference.max()
            # float32 represents 1e4 with an error of 1e-3. The tolerance of iterative learners adds
            # to this error.
            limit = float(get_expected_outcome(learner, "dtypes_error", "0.02"))
            assert error < limit, f"distances off by {error:.1e} in {dtype.__name__}"


def check_dtypes_of_labels(estimator: Any) -> None:
    """Check that float32 and float64 give the same labels, except for points near a boundary."""
    X, y = _make_data()
    exact = fit_once(estimator, VECTORS)
    expected = exact.predict(X)
    from_float32 = clone(estimator).fit(X.astype(np.float32), y)
    for fitted, dtype in ((from_float32, np.float64), (exact, np.float32)):
        predicted = fitted.predict(X.astype(dtype))
        assert predicted.dtype == expected.dtype
        assert np.mean(predicted == expected) > 0.95, (
            f"only {np.mean(predicted == expected):.0%} agree"
        )


def check_frames(estimator: Any) -> None:
    """Check that data frames set the feature names, and that ``set_output`` returns frames."""
    try:
        import pandas as pd
    except ImportError:  # pandas is an optional dependency.
        return
    X, y = _make_data()
    frame = pd.DataFrame(X, columns=[f"feature {k}" for k in range(X.shape[1])])
    frame.index = pd.Index([f"row {k}" for k in range(len(X))])
    fitted = clone(estimator)
    if hasattr(fitted, "transform"):
        fitted.set_output(transform="pandas")
    fitted.fit(frame, pd.Series(y))
    assert list(fitted.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(
        compute_output(fitted, frame), compute_output(fit_once(estimator, VECTORS), X)
    )
    if hasattr(fitted, "transform"):
        mapped = fitted.transform(frame)
        assert isinstance(mapped, pd.DataFrame) and list(mapped.index) == list(frame.index)
        assert list(mapped.columns) == list(fitted.get_feature_names_out())
    try:
        compute_output(fitted, frame[frame.columns[::-1]])
    except ValueError:
        return
    raise AssertionError("columns in a different order were accepted")


def check_distances_agree(learner: Any) -> None:
    """Check that transform, Mahalanobis matrix, pair_distance and metric agree."""
    X, _ = _make_data()
    fitted = fit_once(learner, VECTORS)
    mapped = fitted.transform(X)
    expected = np.linalg.norm(mapped[:9] - mapped[9:18], axis=1)
    pairs = np.stack([X[:9], X[9:18]], axis=1)
    np.testing.assert_allclose(fitted.pair_distance(pairs), expected, rtol=1e-8)
    np.testing.assert_allclose(fitted.pair_score(pairs), -expected, rtol=1e-8)
    metric = fitted.get_metric()
    np.testing.assert_allclose([metric(a, b) for a, b in pairs], expected, rtol=1e-8)
    difference = pairs[:, 0] - pairs[:, 1]
    M = fitted.get_mahalanobis_matrix()
    squared = np.einsum("ij,jk,ik->i", difference, M, difference)
    np.testing.assert_allclose(np.sqrt(squared), expected, rtol=1e-7)
    shift = fitted.mean_ if hasattr(fitted, "mean_") else np.zeros(X.shape[1])
    np.testing.assert_allclose(mapped, (X - shift) @ fitted.components_.T, rtol=1e-8, atol=1e-8)
    for wrong in (pairs[0], pairs[:, :1], pairs[:, :, :2]):
        try:
            fitted.pair_distance(wrong)
        except ValueError as error:
            assert "pairs" in str(error)
        else:
            raise AssertionError(f"pairs of shape {wrong.shape} were accepted")


def check_batches(learner: Any) -> None:
    """Check that batches give the same result as one fit, and that fit discards earlier batches."""
    learner = clone(learner).set_params(**getattr(learner, "same_in_batches", {}))
    X, y = _make_data()
    order = np.argsort(y, kind="stable")  # Some classes appear only in late batches.
    X, y = X[order], y[order]
    in_one_fit = clone(learner).fit(X, y)
    in_batches = clone(learner)
    for start in range(0, len(X), 7):
        in_batches.partial_fit(X[start : start + 7], y[start : start + 7])
    if learner.learner_tags.maps:
        expected = _compute_distances(in_one_fit.transform(X))
        np.testing.assert_allclose(_compute_distances(in_batches.transform(X)), expected, 1e-6)
    else:
        np.testing.assert_array_equal(in_batches.predict(X), in_one_fit.predict(X))
    np.testing.assert_array_equal(
        compute_output(in_batches.fit(X, y), X), compute_output(in_one_fit, X)
    )


def _compute_distances(points: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(cdist(points.astype(float), points.astype(float)))


def _replace_value(X: NDArray[Any], value: float) -> NDArray[Any]:
    X = X.copy()
    X[3, 1] = value
    return X


def _embed(X: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of X in 100 dimensions with the same distances between rows."""
    axes, _ = np.linalg.qr(np.random.RandomState(1).normal(size=(100, X.shape[1])))
    return X @ axes.T


def _add_constants(X: NDArray[Any]) -> NDArray[Any]:
    return np.insert(X, [0, 2, X.shape[1]], [0.0, 0.1, 12345.678], axis=1)


# Each case consists of a function that changes (X, y, queries) and a flag. If the flag is True, the
# result must agree with the result for clean data.
_CASES: dict[str, tuple[Change, bool]] = {
    "nan": (lambda X, y, Q: (_replace_value(X, np.nan), y, Q), False),
    "inf": (lambda X, y, Q: (_replace_value(X, np.inf), y, Q), False),
    "empty": (lambda X, y, Q: (X[:0], y[:0], Q), False),
    "fewer_rows_than_features": (lambda X, y, Q: (_embed(X), y, _embed(Q)), True),
    "constant_columns": (lambda X, y, Q: (_add_constants(X), y, _add_constants(Q)), True),
    "duplicate_rows": (lambda X, y, Q: (np.vstack([X, X]), np.append(y, y), Q), True),
    "scale_1e-8": (lambda X, y, Q: (X * 1e-8, y, Q * 1e-8), True),
    "scale_1e8": (lambda X, y, Q: (X * 1e8, y, Q * 1e8), True),
    "strings_in_X": (lambda X, y, Q: (np.full(X.shape, "red"), y, Q), False),
    "wrong_ndim": (lambda X, y, Q: (X[:, 0], y, Q), False),
    "sparse": (lambda X, y, Q: (sparse.csr_array(X), y, Q), False),
}


VECTORS = SampleKind("vectors", _make_data, _freeze, _list_checks, _CASES)
