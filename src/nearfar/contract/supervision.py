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
# Numbers of pairs and copied rows in the cases: enough to learn from, and few enough to be fast.
_N_SIMILAR, _N_DISSIMILAR, _N_COPIES = 60, 80, 5


class _Guide(NamedTuple):
    """Constructors of one class of supervision: from labels, and empty for n rows."""

    of_labels: Callable[[_Codes], Supervision]
    none: Callable[[int], Supervision]


def _pairs(y: _Codes) -> Pairs:
    return Pairs.from_labels(
        y, n_similar=_N_SIMILAR, n_dissimilar=_N_DISSIMILAR, random_state=np.random.RandomState(0)
    )


def _empty(width: int) -> NDArray[np.intp]:
    return np.empty((0, width), np.intp)


_GUIDES = {
    "pairs": _Guide(_pairs, lambda n: Pairs(_empty(2), _empty(2), n_samples=n)),
    "triplets": _Guide(
        lambda y: Triplets.from_labels(y, n_triplets=90, random_state=0),
        lambda n: Triplets(_empty(3), n_samples=n),
    ),
    "quadruplets": _Guide(
        lambda y: Quadruplets.from_labels(y, n_quadruplets=90, random_state=0),
        lambda n: Quadruplets(_empty(4), n_samples=n),
    ),
    "chunklets": _Guide(Chunklets, lambda n: Chunklets(np.full(n, -1))),
}


def _guide_of(estimator: Any) -> str | None:
    """Return the supervision that an estimator of vectors accepts besides labels, or None."""
    if estimator.learner_tags.input != "vectors":
        return None
    return next((kind for kind in _GUIDES if kind in estimator.learner_tags.learns_from), None)


# ---------------------------------------------------------------------- cases


def _other_kind(X: _Points, y: _Codes, guide: str) -> tuple[_Points, Any]:
    return X, _GUIDES["triplets" if guide == "pairs" else "pairs"].of_labels(y)


def _with_nan_apart(X: _Points, y: _Codes, guide: str) -> tuple[_Points, Any]:
    """Add a row of NaN that does not occur in the supervision."""
    said = _GUIDES[guide].of_labels(y)
    if isinstance(said, Chunklets):
        said = Chunklets(np.append(said.labels, -1))
    elif isinstance(said, Pairs):
        said = Pairs(said.similar, said.dissimilar, n_samples=len(X) + 1)
    elif isinstance(said, Triplets | Quadruplets):
        said = type(said)(said.indices, n_samples=len(X) + 1)
    return np.vstack([X, np.full(X.shape[1], np.nan)]), said


def _copied(X: _Points) -> tuple[_Points, NDArray[np.intp]]:
    """Append copies of the first points, and return the pairs of equal points."""
    n = len(X)
    equal = np.column_stack([np.arange(_N_COPIES), np.arange(n, n + _N_COPIES)])
    return np.vstack([X, X[:_N_COPIES]]), equal


def _similar_of_zero_length(X: _Points, y: _Codes, guide: str) -> tuple[_Points, Any]:
    rows, equal = _copied(X)
    return rows, Pairs(equal, _pairs(y).dissimilar, n_samples=len(rows))


def _dissimilar_of_zero_length(X: _Points, y: _Codes, guide: str) -> tuple[_Points, Any]:
    rows, equal = _copied(X)
    said = _pairs(y)
    return rows, Pairs(said.similar, np.vstack([said.dissimilar, equal]), n_samples=len(rows))


def _said_both_ways(X: _Points, y: _Codes, guide: str) -> tuple[_Points, Any]:
    said = _pairs(y)
    both = np.vstack([said.similar, said.dissimilar[:_N_COPIES, ::-1]])
    return X, Pairs(both, said.dissimilar, n_samples=len(X), conflicts="keep")


def _separable(X: _Points, y: _Codes, guide: str) -> tuple[_Points, Any]:
    """Move the classes so far apart that a metric of any scale classifies all pairs correctly."""
    return X + 1e3 * X.std() * y[:, None], _GUIDES[guide].of_labels(y)


def _contradictory(X: _Points, y: _Codes, guide: str) -> tuple[_Points, Any]:
    """Draw supervision from permuted labels, which no metric can satisfy."""
    return X, _GUIDES[guide].of_labels(np.random.RandomState(1).permutation(y))


_Case = Callable[[_Points, _Codes, str], tuple[_Points, Any]]
_CASES: dict[str, _Case] = {
    "no_supervision_at_all": lambda X, y, guide: (X, _GUIDES[guide].none(len(X))),
    "supervision_for_other_rows": lambda X, y, guide: (X[:-3], _GUIDES[guide].of_labels(y)),
    "supervision_of_another_kind": _other_kind,
    "nan_in_a_row_of_no_supervision": _with_nan_apart,
    "separable": _separable,
    "contradictory": _contradictory,
}
_PAIR_CASES: dict[str, _Case] = {
    "only_similar_pairs": lambda X, y, guide: (
        X,
        Pairs(_pairs(y).similar, _empty(2), n_samples=len(X)),
    ),
    "only_dissimilar_pairs": lambda X, y, guide: (
        X,
        Pairs(_empty(2), _pairs(y).dissimilar, n_samples=len(X)),
    ),
    "similar_pairs_of_zero_length": _similar_of_zero_length,
    "dissimilar_pairs_of_zero_length": _dissimilar_of_zero_length,
    "pairs_said_both_ways": _said_both_ways,
}


def list_supervision_cases(estimator: Any) -> list[str]:
    """Return the names of the cases that apply to an estimator."""
    guide = _guide_of(estimator)
    if guide is None:
        return []
    return [*_CASES, *(_PAIR_CASES if guide == "pairs" else ())]


def check_bad_supervision(estimator: Any, case: str) -> None:
    """Check that a learner has the outcome listed in bad_input.toml for a case of supervision."""
    guide = _guide_of(estimator)
    assert guide is not None
    X, y = VECTORS.data()
    rows, said = (_CASES | _PAIR_CASES)[case](X, y, guide)
    expected = get_expected_outcome(estimator, case, given=_section(guide))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            fitted = clone(estimator).fit(rows, supervision=said)
        except ValueError as error:
            assert expected != "ok", f"{case}: expected a fit, got: {error}"
            assert re.search(expected, str(error)), f"{case}: expected /{expected}/, got: {error}"
            return
    assert expected == "ok", f"{case}: expected an error like /{expected}/"
    assert np.isfinite(compute_output(fitted, X)).all(), f"{case}: the result is not finite"
    if case == "dissimilar_pairs_of_zero_length":
        told = [str(one.message) for one in heard if "zero length" in str(one.message)]
        wanted = f"{_N_COPIES} of {_N_DISSIMILAR + _N_COPIES} dissimilar pairs"
        assert len(told) == 1 and wanted in told[0], f"{case}: expected one warning: {wanted}"


def _section(guide: str) -> str:
    """Return the section of bad_input.toml for this supervision."""
    return f"guided_by_{guide}"
