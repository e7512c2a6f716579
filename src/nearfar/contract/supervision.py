"""Checks of learners that accept supervision other than labels: difficult supervision."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from nearfar.contract.outcomes import compute_output, get_expected_outcome
from nearfar.contract.vectors import VECTORS
from nearfar.summaries.supervision import Chunklets, Pairs, Quadruplets, Supervision, Triplets

_Points = NDArray[np.float64]
_Codes = NDArray[np.intp]
# Number of similar pairs in the test cases: enough to learn from, and few enough to be fast.
_N_SIMILAR = 60
# Number of dissimilar pairs in the test cases: enough to learn from, and few enough to be fast.
_N_DISSIMILAR = 80
# Number of rows that are copied in test cases with identical points.
_N_COPIES = 5


class _Constructors(NamedTuple):
    """Two constructors of one type of supervision: one from labels, and one without constraints."""

    from_labels: Callable[[_Codes], Supervision]
    empty: Callable[[int], Supervision]


def _draw_pairs(y: _Codes) -> Pairs:
    return Pairs.from_labels(
        y, n_similar=_N_SIMILAR, n_dissimilar=_N_DISSIMILAR, random_state=np.random.RandomState(0)
    )


def _make_empty(width: int) -> NDArray[np.intp]:
    return np.empty((0, width), np.intp)


_CONSTRUCTORS = {
    "pairs": _Constructors(
        _draw_pairs, lambda n: Pairs(_make_empty(2), _make_empty(2), n_samples=n)
    ),
    "triplets": _Constructors(
        lambda y: Triplets.from_labels(y, n_triplets=90, random_state=0),
        lambda n: Triplets(_make_empty(3), n_samples=n),
    ),
    "quadruplets": _Constructors(
        lambda y: Quadruplets.from_labels(y, n_quadruplets=90, random_state=0),
        lambda n: Quadruplets(_make_empty(4), n_samples=n),
    ),
    "chunklets": _Constructors(Chunklets, lambda n: Chunklets(np.full(n, -1))),
}


def _find_supervision(estimator: Any) -> str | None:
    """Return the type of supervision that an estimator accepts in addition to labels, or None.

    The result is also None if the samples are not vectors.
    """
    if estimator.learner_tags.input != "vectors":
        return None
    return next(
        (kind for kind in _CONSTRUCTORS if kind in estimator.learner_tags.supervision), None
    )


def _use_other_type(X: _Points, y: _Codes, kind: str) -> tuple[_Points, Any]:
    return X, _CONSTRUCTORS["triplets" if kind == "pairs" else "pairs"].from_labels(y)


def _add_nan_row(X: _Points, y: _Codes, kind: str) -> tuple[_Points, Any]:
    """Add a row of NaN that the supervision does not refer to."""
    supervision = _CONSTRUCTORS[kind].from_labels(y)
    if isinstance(supervision, Chunklets):
        supervision = Chunklets(np.append(supervision.labels, -1))
    elif isinstance(supervision, Pairs):
        supervision = Pairs(supervision.similar, supervision.dissimilar, n_samples=len(X) + 1)
    elif isinstance(supervision, Triplets | Quadruplets):
        supervision = type(supervision)(supervision.indices, n_samples=len(X) + 1)
    return np.vstack([X, np.full(X.shape[1], np.nan)]), supervision


def _append_copies(X: _Points) -> tuple[_Points, NDArray[np.intp]]:
    """Append copies of the first points, and return the pairs of equal points."""
    n = len(X)
    equal = np.column_stack([np.arange(_N_COPIES), np.arange(n, n + _N_COPIES)])
    return np.vstack([X, X[:_N_COPIES]]), equal


def _make_equal_similar(X: _Points, y: _Codes, kind: str) -> tuple[_Points, Any]:
    rows, equal = _append_copies(X)
    return rows, Pairs(equal, _draw_pairs(y).dissimilar, n_samples=len(rows))


def _make_equal_dissimilar(X: _Points, y: _Codes, kind: str) -> tuple[_Points, Any]:
    rows, equal = _append_copies(X)
    pairs = _draw_pairs(y)
    return rows, Pairs(pairs.similar, np.vstack([pairs.dissimilar, equal]), n_samples=len(rows))


def _make_conflicts(X: _Points, y: _Codes, kind: str) -> tuple[_Points, Any]:
    pairs = _draw_pairs(y)
    similar = np.vstack([pairs.similar, pairs.dissimilar[:_N_COPIES, ::-1]])
    return X, Pairs(similar, pairs.dissimilar, n_samples=len(X), conflicts="keep")


def _separate_classes(X: _Points, y: _Codes, kind: str) -> tuple[_Points, Any]:
    """Move the classes so far apart that a metric of any scale classifies all pairs correctly."""
    return X + 1e3 * X.std() * y[:, None], _CONSTRUCTORS[kind].from_labels(y)


def _contradict(X: _Points, y: _Codes, kind: str) -> tuple[_Points, Any]:
    """Draw supervision from permuted labels, so that no metric can satisfy it."""
    return X, _CONSTRUCTORS[kind].from_labels(np.random.RandomState(1).permutation(y))


_Case = Callable[[_Points, _Codes, str], tuple[_Points, Any]]
_CASES: dict[str, _Case] = {
    "no_supervision": lambda X, y, kind: (X, _CONSTRUCTORS[kind].empty(len(X))),
    "supervision_for_other_rows": lambda X, y, kind: (X[:-3], _CONSTRUCTORS[kind].from_labels(y)),
    "supervision_of_another_type": _use_other_type,
    "nan_in_an_unused_row": _add_nan_row,
    "separable": _separate_classes,
    "contradictory": _contradict,
}
_PAIR_CASES: dict[str, _Case] = {
    "only_similar_pairs": lambda X, y, kind: (
        X,
        Pairs(_draw_pairs(y).similar, _make_empty(2), n_samples=len(X)),
    ),
    "only_dissimilar_pairs": lambda X, y, kind: (
        X,
        Pairs(_make_empty(2), _draw_pairs(y).dissimilar, n_samples=len(X)),
    ),
    "similar_pairs_of_zero_length": _make_equal_similar,
    "dissimilar_pairs_of_zero_length": _make_equal_dissimilar,
    "conflicting_pairs": _make_conflicts,
}


def list_supervision_cases(estimator: Any) -> list[str]:
    """Return the names of the test cases that apply to an estimator."""
    kind = _find_supervision(estimator)
    if kind is None:
        return []
    return [*_CASES, *(_PAIR_CASES if kind == "pairs" else ())]


def check_bad_supervision(estimator: Any, case: str) -> None:
    """Check that fitting with difficult supervision has the outcome listed in bad_input.toml."""
    kind = _find_supervision(estimator)
    assert kind is not None
    X, y = VECTORS.data()
    rows, supervision = (_CASES | _PAIR_CASES)[case](X, y, kind)
    expected = get_expected_outcome(estimator, case, input_type=_get_section(kind))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted = clone(estimator).fit(rows, supervision=supervision)
        except ValueError as error:
            assert expected != "ok", f"{case}: expected a fit, got: {error}"
            assert re.search(expected, str(error)), f"{case}: expected /{expected}/, got: {error}"
            return
    assert expected == "ok", f"{case}: expected an error like /{expected}/"
    assert np.isfinite(compute_output(fitted, X)).all(), f"{case}: the result is not finite"
    if case == "dissimilar_pairs_of_zero_length":
        messages = [
            str(warning.message) for warning in caught if "zero length" in str(warning.message)
        ]
        expected_text = f"{_N_COPIES} of {_N_DISSIMILAR + _N_COPIES} dissimilar pairs"
        assert len(messages) == 1 and expected_text in messages[0], (
            f"{case}: expected one warning: {expected_text}"
        )


def _get_section(kind: str) -> str:
    """Return the section of bad_input.toml for this supervision."""
    return f"supervised_by_{kind}"
