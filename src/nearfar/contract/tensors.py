"""Checks of estimators whose samples are tensors.

Scikit-learn's checks use 2-d arrays only, so they hardly test these estimators.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone

from nearfar.base import MultilinearLearner
from nearfar.contract.outcomes import (
    Change,
    Check,
    SampleKind,
    compute_output,
    get_expected_outcome,
)

# Shapes of test tensors of order two and three. All modes of a shape have different lengths.
_SHAPE = (4, 6)
_THIRD_ORDER_SHAPE = (4, 3, 2)


@cache
def _generate_cached_data() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    rng = np.random.RandomState(0)
    y = np.arange(60) % 3
    # Class means are matrices of rank one. The variance of the noise differs between columns.
    means = np.einsum("ci,cj->cij", rng.normal(size=(3, 4)), rng.normal(size=(3, 6)))
    noise = rng.normal(size=(60, *_SHAPE)) * np.linspace(0.3, 1.0, 6)
    return 2 * means[y] + noise, y


def _make_data() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return 60 matrices from three classes, and their labels."""
    X, y = _generate_cached_data()
    return X.copy(), y.copy()


def _freeze(X: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield read-only tensors in C and Fortran order."""
    for array in (np.ascontiguousarray(X), np.asfortranarray(X)):
        array.setflags(write=False)
        yield array


def _list_checks(estimator: Any) -> list[Check]:
    """Return the checks that apply to estimators whose samples are tensors."""
    checks: list[Check] = [check_flat_rows, check_shapes, check_one_sample, check_order_of_samples]
    if estimator.learner_tags.maps:
        checks.append(check_dtypes_of_tensors)
    if isinstance(estimator, MultilinearLearner):
        checks += [check_components_and_flatten, check_distances_of_tensors]
    return checks


def check_flat_rows(estimator: Any) -> None:
    """Check that flat rows and data frames with ``tensor_shape`` give the same results as tensors.

    Results must be bitwise equal for all memory orders.
    """
    X, y = _make_data()
    flat = X.reshape(len(X), -1)
    fitted_on_tensors = clone(estimator).fit(X, y)
    expected = compute_output(fitted_on_tensors, X)
    assert (
        fitted_on_tensors.tensor_shape_ == _SHAPE
        and fitted_on_tensors.n_features_in_ == flat.shape[1]
    )
    fitted_on_rows = clone(estimator).set_params(tensor_shape=_SHAPE).fit(flat, y)
    assert fitted_on_rows.tensor_shape_ == _SHAPE
    fortran_rows, fortran_tensors = np.asfortranarray(flat), np.asfortranarray(X)
    fitted_on_fortran_rows = clone(estimator).set_params(tensor_shape=_SHAPE).fit(fortran_rows, y)
    for fitted_estimator in (fitted_on_tensors, fitted_on_rows, fitted_on_fortran_rows):
        for samples in (X, flat, fortran_rows, fortran_tensors):
            np.testing.assert_array_equal(compute_output(fitted_estimator, samples), expected)
    try:
        import pandas as pd
    except ImportError:  # pandas is an optional dependency.
        return
    frame = pd.DataFrame(flat, columns=[f"pixel {k}" for k in range(flat.shape[1])])
    fitted_on_frame = clone(estimator).set_params(tensor_shape=_SHAPE).fit(frame, y)
    np.testing.assert_array_equal(compute_output(fitted_on_frame, frame), expected)


def check_shapes(estimator: Any) -> None:
    """Check that tensors of a shape other than in ``fit`` or ``tensor_shape`` raise an error."""
    X, y = _make_data()
    fitted_estimator = clone(estimator).fit(X, y)
    transposed_tensors = X.transpose(0, 2, 1)
    estimator_with_other_shape = clone(estimator).set_params(tensor_shape=(6, 4))
    estimator_with_invalid_shape = clone(estimator).set_params(tensor_shape=(5, 5))
    attempts: list[Callable[[], Any]] = [
        lambda: compute_output(fitted_estimator, transposed_tensors),
        lambda: compute_output(fitted_estimator, X[:, :, :-1]),
        lambda: compute_output(fitted_estimator, X.reshape(len(X), -1)[:, :-1]),
        lambda: estimator_with_other_shape.fit(X, y),
        lambda: estimator_with_invalid_shape.fit(X.reshape(len(X), -1), y),
    ]
    for attempt in attempts:
        try:
            attempt()
        except ValueError as error:
            assert "shape" in str(error) or "features" in str(error), f"unclear: {error}"
            continue
        raise AssertionError("tensors of a different shape were accepted")


def check_one_sample(estimator: Any) -> None:
    """Check that fit rejects a single sample, unless bad_input.toml allows it.

    The fitted estimator must accept a single sample.
    """
    X, y = _make_data()
    accepts_one_sample = get_expected_outcome(estimator, "one_sample", "refused") == "ok"
    try:
        clone(estimator).fit(X[:1], y[:1])
    except ValueError as error:
        assert re.search("1 sample|one class", str(error)) and not accepts_one_sample, (
            f"unclear: {error}"
        )
    else:
        assert accepts_one_sample, "fit must reject a single sample"
    assert len(compute_output(clone(estimator).fit(X, y), X[:1])) == 1


def check_order_of_samples(estimator: Any) -> None:
    """Check that the result does not depend on the order of the samples."""
    X, y = _make_data()
    order = np.random.RandomState(0).permutation(len(X))
    output = compute_output(clone(estimator).fit(X, y), X)
    shuffled_output = compute_output(clone(estimator).fit(X[order], y[order]), X)
    if estimator.learner_tags.maps:  # Maps are only unique up to a rotation.
        expected = _compute_distances(output)
        np.testing.assert_allclose(
            _compute_distances(shuffled_output), expected, atol=1e-4 * expected.max()
        )
    else:
        np.testing.assert_allclose(shuffled_output, output, atol=1e-4)


def check_components_and_flatten(learner: Any) -> None:
    """Check that ``components_`` agrees with ``transform``, and that ``flatten=False`` works.

    ``components_`` must be computed on access, and not stored.
    """
    X, y = _make_data()
    flat = X.reshape(len(X), -1)
    fitted_learner = clone(learner).fit(X, y)
    rows = flat - fitted_learner.mean_ if hasattr(fitted_learner, "mean_") else flat
    mapped_samples = fitted_learner.transform(X)
    tolerance = 1e-10 * np.abs(mapped_samples).max()
    np.testing.assert_allclose(rows @ fitted_learner.components_.T, mapped_samples, atol=tolerance)
    assert "components_" not in vars(fitted_learner), "components_ must not be stored"
    assert [len(U) for U in fitted_learner.factors_] == list(_SHAPE)
    if "flatten" in learner.get_params():
        unflattened_learner = clone(learner).set_params(flatten=False).fit(X, y)
        tensors = unflattened_learner.transform(X)
        assert tensors.shape == (len(X), *unflattened_learner.n_components_), (
            "flatten=False must return tensors"
        )
        np.testing.assert_array_equal(tensors.reshape(mapped_samples.shape), mapped_samples)
        assert len(unflattened_learner.get_feature_names_out()) == mapped_samples.shape[1]


def check_distances_of_tensors(learner: Any) -> None:
    """Check that pair distances and the metric equal Euclidean distances of mapped samples."""
    X, y = _make_data()
    fitted_learner = clone(learner).fit(X, y)
    mapped_samples = fitted_learner.transform(X)
    expected = np.linalg.norm(mapped_samples[:30] - mapped_samples[30:], axis=1)
    pairs = np.stack([X[:30], X[30:]], axis=1)
    tolerance = 1e-8 * expected.max()
    for pairs_layout in (pairs, pairs.reshape(30, 2, -1)):
        np.testing.assert_allclose(
            fitted_learner.pair_distance(pairs_layout), expected, atol=tolerance
        )
        np.testing.assert_allclose(
            fitted_learner.pair_score(pairs_layout), -expected, atol=tolerance
        )
        np.testing.assert_allclose(
            fitted_learner.get_metric()(*pairs_layout[0]), expected[0], atol=tolerance
        )
    for invalid_pairs in (X, pairs[:, :1], pairs[..., :-1]):
        try:
            fitted_learner.pair_distance(invalid_pairs)
        except ValueError as error:
            assert "pairs must have shape" in str(error), f"unclear: {error}"
            continue
        raise AssertionError(f"pairs of shape {invalid_pairs.shape} were accepted")


def check_dtypes_of_tensors(learner: Any) -> None:
    """Check that ``transform`` keeps the dtype, and is accurate for data far from the origin."""
    X, y = _make_data()
    X = X + 100
    expected = _compute_distances(clone(learner).fit(X, y).transform(X))
    for fit_dtype in (np.float32, np.float64):
        fitted_learner = clone(learner).fit(X.astype(fit_dtype), y)
        for dtype in (np.float32, np.float64):
            mapped_samples = fitted_learner.transform(X.astype(dtype))
            assert mapped_samples.dtype == dtype, (
                f"transform of {dtype.__name__} returned {mapped_samples.dtype}"
            )
            error = np.abs(_compute_distances(mapped_samples) - expected).max() / expected.max()
            assert error < 1e-2, f"distances off by {error:.1e} in {dtype.__name__}"


def _compute_distances(points: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(cdist(points.astype(float), points.astype(float)))


def _replace_value(X: NDArray[Any], value: float) -> NDArray[Any]:
    X = X.copy()
    X[3, 1, 2] = value
    return X


def _insert_constant_columns(X: NDArray[Any]) -> NDArray[Any]:
    return np.insert(X, [0, 2], [0.0, 12.5], axis=2)


def _add_blank_borders(X: NDArray[Any]) -> NDArray[Any]:
    return np.pad(X, ((0, 0), (1, 2), (1, 0)))


def _convert_to_bytes(X: NDArray[Any]) -> NDArray[np.uint8]:
    return np.rint(20 * X + 128).clip(0, 255).astype(np.uint8)


def _make_ragged(X: NDArray[Any]) -> list[NDArray[Any]]:
    return [sample[:-1] if i == 5 else sample for i, sample in enumerate(X)]


def _reshape_to_third_order(X: NDArray[Any]) -> NDArray[Any]:
    return X.reshape(len(X), *_THIRD_ORDER_SHAPE)


# Each case consists of a function that changes (X, y, queries) and a flag. If the flag is True, the
# result must agree with the result for clean data.
_CASES: dict[str, tuple[Change, bool]] = {
    "nan": (lambda X, y, Q: (_replace_value(X, np.nan), y, Q), False),
    "inf": (lambda X, y, Q: (_replace_value(X, np.inf), y, Q), False),
    "empty": (lambda X, y, Q: (X[:0], y[:0], Q), False),
    "order_one": (lambda X, y, Q: (X[:, 1], y, Q[:, 1]), False),
    "one_row": (lambda X, y, Q: (X[:, 0, 0], y, Q), False),
    "sparse": (lambda X, y, Q: (sparse.csr_array(X.reshape(len(X), -1)), y, Q), False),
    "strings_in_X": (lambda X, y, Q: (np.full(X.shape, "red"), y, Q), False),
    "third_order": (
        lambda X, y, Q: (_reshape_to_third_order(X), y, _reshape_to_third_order(Q)),
        False,
    ),
    "blank_borders": (
        lambda X, y, Q: (_add_blank_borders(X), y, _add_blank_borders(Q)),
        False,
    ),
    "mode_of_length_one": (lambda X, y, Q: (X.reshape(-1, 1, 24), y, Q.reshape(-1, 1, 24)), False),
    "bytes": (lambda X, y, Q: (_convert_to_bytes(X), y, _convert_to_bytes(Q)), False),
    "lists": (lambda X, y, Q: (X.tolist(), y, Q.tolist()), True),
    "ragged": (lambda X, y, Q: (_make_ragged(X), y, Q), False),
    "constant_entries": (
        lambda X, y, Q: (_insert_constant_columns(X), y, _insert_constant_columns(Q)),
        False,
    ),
    "duplicate_rows": (lambda X, y, Q: (np.concatenate([X, X]), np.append(y, y), Q), True),
    "integers": (lambda X, y, Q: (np.rint(9 * X).astype(int), y, np.rint(9 * Q)), False),
    "scale_1e-8": (lambda X, y, Q: (X * 1e-8, y, Q * 1e-8), True),
    "scale_1e8": (lambda X, y, Q: (X * 1e8, y, Q * 1e8), True),
}


TENSORS = SampleKind("tensors", _make_data, _freeze, _list_checks, _CASES)
