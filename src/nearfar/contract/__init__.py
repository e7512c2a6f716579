"""The contract of a learner as checks: what the common tests and ``check_learner`` run.

Each check takes an unfitted learner of vectors and raises an ``AssertionError`` that says what it
expected. A learner from outside passes all of them like one of our own. For learners of sets see
:mod:`nearfar.contract.sets`.
"""

from __future__ import annotations

import pickle
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from nearfar.base import Estimator, Learner, LinearLearner
from nearfar.contract.sets import check_sets

Check = Callable[[Learner], None]


def check_learner(learner: Estimator, expected_failures: dict[str, str] | None = None) -> None:
    """Run the whole contract on an estimator of your own; raises where it fails.

    Scikit-learn's checks, ours and the table of bad input; or, for sets and tensors, those that
    take the place of scikit-learn's.

    Parameters
    ----------
    learner : Estimator
        Unfitted.
    expected_failures : dict, optional
        Names of scikit-learn's checks that may fail, each with its reason.

    Examples
    --------
    >>> from nearfar import Euclidean, check_learner
    >>> check_learner(Euclidean())
    """
    if learner.learner_tags.input == "sets":
        check_sets(learner)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(
            learner, expected_failed_checks=expected_failures or {}, on_skip=None, on_fail="raise"
        )
    for _, run in checks(learner):
        run(learner)


def checks(learner: Learner) -> Iterator[tuple[str, Check]]:
    """Name and function of every check of ours that applies to the learner."""
    general: list[Check] = [
        check_declared_parameters,
        check_not_fitted,
        check_failed_fit,
        check_dtypes,
        check_pandas,
        check_clone_and_pickle,
        check_deterministic,
        check_inputs_unchanged,
        check_kinds_of_labels,
        check_class_missing_from_a_fold,
    ]
    if isinstance(learner, LinearLearner):
        general.append(check_one_distance)
    if learner.learner_tags.reads == "statistics":
        general.append(check_batches)
    for function in general:
        yield function.__name__.removeprefix("check_"), function
    for case in bad_input_table()["supervised"]:
        yield f"bad_input-{case}", partial(check_bad_input, case=case)


# ---------------------------------------------------------------------- behaviour


def check_declared_parameters(learner: Learner) -> None:
    """Every parameter is declared, its default is allowed, nonsense raises and names it."""
    names = list(learner.get_params(deep=False))
    assert set(names) == set(learner.parameters), "parameters and __init__ name different things"
    learner._check_parameters()
    X, y = _data()
    for name in names:
        try:
            clone(learner).set_params(**{name: _Nonsense()}).fit(X, y)
        except ValueError as error:
            assert name in str(error), f"the error does not name {name}: {error}"
        else:
            raise AssertionError(f"{name}=<nonsense> was accepted")


def check_not_fitted(learner: Learner) -> None:
    """Using an unfitted learner says so."""
    try:
        clone(learner).transform(_data()[0])
    except NotFittedError:
        return
    raise AssertionError("transform before fit must raise NotFittedError")


def check_failed_fit(learner: Learner) -> None:
    """A fit that fails leaves no map of an earlier one behind."""
    X, y = _data()
    fitted = clone(learner).fit(X, y)
    empty = X[:0], y[:0]
    infinite = np.where(X.max() == X, np.inf, X), y
    for bad in (empty, infinite):
        try:
            fitted.fit(*bad)
        except ValueError:
            pass
        else:
            raise AssertionError("fit took rows that it must refuse")
        try:
            fitted.transform(X)
        except NotFittedError:
            continue
        raise AssertionError("after a fit that failed, transform must raise NotFittedError")


def check_dtypes(learner: Learner) -> None:
    """Components follow fit's X, transform its own X; float32 is accurate under an offset."""
    X, y = _data()
    X = X + 1e4
    exact = clone(learner).fit(X, y)
    reference = _distances(exact.transform(X))
    for fit_dtype in (np.float32, np.float64):
        fitted = clone(learner).fit(X.astype(fit_dtype), y)
        if isinstance(learner, LinearLearner):
            assert fitted.components_.dtype == fit_dtype, "components_ must have the dtype of X"
        for dtype in (np.float32, np.float64):
            mapped = fitted.transform(X.astype(dtype))
            assert mapped.dtype == dtype, f"transform of {dtype.__name__} gave {mapped.dtype}"
            error = np.abs(_distances(mapped) - reference).max() / reference.max()
            # float32 holds 1e4 to 1e-3; iterative learners add what their tolerance allows.
            limit = float(expected_outcome(learner, "dtypes_error", "0.02"))
            assert error < limit, f"distances off by {error:.1e} in {dtype.__name__}"


def check_pandas(learner: Learner) -> None:
    """Frames in give names; ``set_output`` gives frames out."""
    try:
        import pandas as pd
    except ImportError:  # pandas is an extra
        return
    X, y = _data()
    frame = pd.DataFrame(X, columns=[f"feature {k}" for k in range(X.shape[1])])
    frame.index = pd.Index([f"row {k}" for k in range(len(X))])
    fitted = clone(learner).set_output(transform="pandas").fit(frame, pd.Series(y))
    assert list(fitted.feature_names_in_) == list(frame.columns)
    mapped = fitted.transform(frame)
    assert isinstance(mapped, pd.DataFrame) and list(mapped.index) == list(frame.index)
    assert list(mapped.columns) == list(fitted.get_feature_names_out())
    np.testing.assert_array_equal(mapped.to_numpy(), clone(learner).fit(X, y).transform(X))
    try:
        fitted.transform(frame[frame.columns[::-1]])
    except ValueError:
        return
    raise AssertionError("columns in another order must raise")


def check_clone_and_pickle(learner: Learner) -> None:
    """A clone is unfitted and equal; a pickle maps alike."""
    X, y = _data()
    copy = clone(learner)
    assert repr(copy) == repr(learner)
    fitted = copy.fit(X, y)
    loaded = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))


def check_deterministic(learner: Learner) -> None:
    """The same fit twice, and a fit after another fit, give equal bits."""
    X, y = _data()
    first, second = clone(learner).fit(X, y), clone(learner).fit(X[::-1], y[::-1]).fit(X, y)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))


def check_inputs_unchanged(learner: Learner) -> None:
    """Read-only arrays do, in either memory order, and nothing is written to."""
    X, y = _data()
    X, y = X + 3.0, y.copy()
    for array in (np.ascontiguousarray(X), np.asfortranarray(X)):
        kept = array.copy()
        array.setflags(write=False)
        y.setflags(write=False)
        fitted = clone(learner).fit(array, y)
        mapped = fitted.transform(array)
        np.testing.assert_array_equal(array, kept)
        assert not np.shares_memory(mapped, array), "transform must not return its input"


def check_kinds_of_labels(learner: Learner) -> None:
    """Strings, booleans, categoricals and nullable labels give what integers give."""
    X, y = _data()
    reference = clone(learner).fit(X, y).transform(X)
    kinds: list[Any] = [np.array(["a", "b", "c"])[y], np.array(["a", "b", "c"], dtype=object)[y]]
    try:
        import pandas as pd
    except ImportError:
        pass
    else:
        kinds += [
            pd.Series(np.array(["x", "y", "z"])[y], dtype="category"),
            pd.Categorical(np.array(["x", "y", "z"])[y]),
            pd.Series(y, dtype="Int64"),
            pd.Series(np.array(["x", "y", "z"])[y], dtype="string"),
        ]
    for labels in kinds:
        np.testing.assert_array_equal(clone(learner).fit(X, labels).transform(X), reference)
    two = y < 2
    np.testing.assert_array_equal(
        clone(learner).fit(X[two], y[two] == 1).transform(X),
        clone(learner).fit(X[two], y[two]).transform(X),
    )


def check_class_missing_from_a_fold(learner: Learner) -> None:
    """A fold without one of the classes fits, whatever type announces that class."""
    X, y = _data()
    two = y != 1
    assert np.isfinite(clone(learner).fit(X[two], y[two]).transform(X)).all()
    try:
        import pandas as pd
    except ImportError:
        return
    labels = pd.Series(y, dtype="category")  # still knows the absent class
    np.testing.assert_array_equal(
        clone(learner).fit(X[two], labels[two]).transform(X),
        clone(learner).fit(X[two], y[two]).transform(X),
    )


def check_one_distance(learner: Learner) -> None:
    """Transform, matrix, pairs and metric all speak of one distance."""
    X, y = _data()
    fitted = clone(learner).fit(X, y)
    mapped = fitted.transform(X)
    wanted = np.linalg.norm(mapped[:9] - mapped[9:18], axis=1)
    pairs = np.stack([X[:9], X[9:18]], axis=1)
    np.testing.assert_allclose(fitted.pair_distance(pairs), wanted, rtol=1e-8)
    np.testing.assert_allclose(fitted.pair_score(pairs), -wanted, rtol=1e-8)
    metric = fitted.get_metric()
    np.testing.assert_allclose([metric(a, b) for a, b in pairs], wanted, rtol=1e-8)
    difference = pairs[:, 0] - pairs[:, 1]
    M = fitted.get_mahalanobis_matrix()
    squared = np.einsum("ij,jk,ik->i", difference, M, difference)
    np.testing.assert_allclose(np.sqrt(squared), wanted, rtol=1e-7)
    shift = fitted.mean_ if hasattr(fitted, "mean_") else np.zeros(X.shape[1])
    np.testing.assert_allclose(mapped, (X - shift) @ fitted.components_.T, rtol=1e-8, atol=1e-8)
    for wrong in (pairs[0], pairs[:, :1], pairs[:, :, :2]):
        try:
            fitted.pair_distance(wrong)
        except ValueError as error:
            assert "pairs" in str(error)
        else:
            raise AssertionError(f"pairs of shape {wrong.shape} were accepted")


def check_batches(learner: Learner) -> None:
    """Batches of any size give what one fit gives; new classes may appear; fit starts anew."""
    learner = clone(learner).set_params(**getattr(learner, "same_in_batches", {}))
    X, y = _data()
    order = np.argsort(y, kind="stable")  # the last class appears late
    X, y = X[order], y[order]
    whole = clone(learner).fit(X, y)
    parts = clone(learner)
    for start in range(0, len(X), 7):
        parts.partial_fit(X[start : start + 7], y[start : start + 7])
    np.testing.assert_allclose(_distances(parts.transform(X)), _distances(whole.transform(X)), 1e-6)
    np.testing.assert_array_equal(parts.fit(X, y).transform(X), whole.transform(X))


# ---------------------------------------------------------------------- bad input


@cache
def bad_input_table() -> dict[str, dict[str, str]]:
    """Sections of the committed table."""
    return tomllib.loads(files(__name__).joinpath("bad_input.toml").read_text("utf-8"))


def expected_outcome(learner: Learner, case: str, default: str | None = None) -> str:
    """What the table says of a learner and a case."""
    table = bad_input_table()
    general = table["supervised" if learner.learner_tags.supervised else "unsupervised"]
    row = general | table.get(type(learner).__name__, {})
    return row[case] if default is None else row.get(case, default)


def check_bad_input(learner: Learner, case: str) -> None:
    """The learner does with a case what the table says."""
    X, y = _data()
    train, test = slice(0, 60), slice(60, None)
    queries, labels = X[test], y[train]
    change, clean = _CASES[case]
    bad_X, bad_y, bad_queries = change(X[train].copy(), labels.copy(), queries)
    expected = expected_outcome(learner, case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if expected != "ok":
            try:
                clone(learner).fit(bad_X, bad_y)
            except (ValueError, TypeError) as error:
                assert isinstance(error, TypeError) == (case == "sparse"), f"wrong type: {error!r}"
                found = re.search(expected, str(error))
                assert found, f"{case}: expected /{expected}/, got: {error}"
                return
            raise AssertionError(f"{case}: expected an error like /{expected}/")
        fitted = clone(learner).fit(bad_X, bad_y)
        mapped = fitted.transform(bad_queries)
        assert np.isfinite(mapped).all(), f"{case}: transform is not finite"
        if clean:
            reference = clone(learner).fit(X[train], labels)
            # Both vote over the same training rows, so that duplicates do not vote twice.
            rows = fitted.transform(bad_X[: len(labels)])
            agree = _predict(rows, labels, mapped) == _predict(
                reference.transform(X[train]), labels, reference.transform(queries)
            )
            share = float(expected_outcome(learner, f"{case}_agreement", "0.99"))
            assert agree.mean() >= share, f"{case}: only {agree.mean():.0%} of predictions agree"


Change = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], tuple[Any, Any, Any]]


def _with(X: NDArray[Any], value: float) -> NDArray[Any]:
    X[3, 1] = value
    return X


def _wide(X: NDArray[Any]) -> NDArray[Any]:
    """An isometric copy in 100 dimensions."""
    axes, _ = np.linalg.qr(np.random.RandomState(1).normal(size=(100, X.shape[1])))
    return X @ axes.T


def _with_constants(X: NDArray[Any]) -> NDArray[Any]:
    return np.insert(X, [0, 2, X.shape[1]], [0.0, 0.1, 12345.678], axis=1)


# Case: what it does to (X, y, queries), and whether the result must equal that of the clean copy.
_CASES: dict[str, tuple[Change, bool]] = {
    "nan": (lambda X, y, Q: (_with(X, np.nan), y, Q), False),
    "inf": (lambda X, y, Q: (_with(X, np.inf), y, Q), False),
    "empty": (lambda X, y, Q: (X[:0], y[:0], Q), False),
    "one_class": (lambda X, y, Q: (X, np.zeros_like(y), Q), False),
    "one_sample_in_a_class": (lambda X, y, Q: (X, np.append(y[:-1], 7), Q), False),
    "fewer_rows_than_features": (lambda X, y, Q: (_wide(X), y, _wide(Q)), True),
    "constant_columns": (lambda X, y, Q: (_with_constants(X), y, _with_constants(Q)), True),
    "duplicate_rows": (lambda X, y, Q: (np.vstack([X, X]), np.append(y, y), Q), True),
    "scale_1e-8": (lambda X, y, Q: (X * 1e-8, y, Q * 1e-8), True),
    "scale_1e8": (lambda X, y, Q: (X * 1e8, y, Q * 1e8), True),
    "strings_in_X": (lambda X, y, Q: (np.full(X.shape, "red"), y, Q), False),
    "wrong_ndim": (lambda X, y, Q: (X[:, 0], y, Q), False),
    "sparse": (lambda X, y, Q: (sparse.csr_array(X), y, Q), False),
    "missing_labels": (lambda X, y, Q: (X, np.append([None], y[1:]), Q), False),
    "continuous_labels": (lambda X, y, Q: (X, y + 0.5 * X[:, 0], Q), False),
    "too_few_labels": (lambda X, y, Q: (X, y[:-1], Q), False),
    "no_labels": (lambda X, y, Q: (X, None, Q), False),
}


# ---------------------------------------------------------------------- helpers


class _Nonsense:
    """A value no parameter may take; scikit-learn's clone leaves it alone."""

    def __repr__(self) -> str:
        return "<nonsense>"


@cache
def _blobs() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    X, y = make_blobs(90, 5, centers=3, cluster_std=2.0, center_box=(-4, 4), random_state=3)
    # Correlated features of unlike spread: something to learn.
    return X @ np.random.RandomState(0).normal(size=(5, 5)) * [1, 2, 0.5, 3, 1], y


def _data() -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    X, y = _blobs()
    return X.copy(), y.copy()


def _distances(points: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(cdist(points.astype(float), points.astype(float)))


def _predict(points: NDArray[Any], labels: NDArray[Any], queries: NDArray[Any]) -> NDArray[Any]:
    nearest = np.argsort(cdist(queries, points), axis=1, kind="stable")[:, :3]
    votes = np.apply_along_axis(np.bincount, 1, labels[nearest], minlength=labels.max() + 1)
    return np.asarray(votes.argmax(axis=1))
