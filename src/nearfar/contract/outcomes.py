"""Sample types for the checks, and the expected outcomes listed in bad_input.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

Check = Callable[[Any], None]
# Function that changes (X, y, queries) to create a case of difficult input.
Change = Callable[[Any, Any, Any], tuple[Any, Any, Any]]


@dataclass(frozen=True, eq=False)
class SampleKind:
    """Test data and checks for one type of samples.

    ``data`` returns samples of separable classes and their labels. ``frozen`` returns the samples
    in read-only forms. ``type_checks`` returns the checks for this type only. ``cases`` are
    difficult inputs: the change, and whether the result must equal that of the clean data.
    ``label_cases`` are difficult labels; None selects the common cases for class labels.
    """

    name: str
    data: Callable[[], tuple[Any, NDArray[np.intp]]]
    frozen: Callable[[Any], Iterable[Any]]
    type_checks: Callable[[Any], list[Check]]
    cases: dict[str, tuple[Change, bool]]
    label_cases: dict[str, tuple[Change, bool]] | None = None


def compute_output(fitted: Any, X: Any) -> NDArray[Any]:
    """Return the main output of a fitted estimator, for example coordinates or probabilities."""
    tags = fitted.learner_tags
    methods = ("predict",) if tags.role == "clusterer" else ("predict_proba", "predict")
    for name in ("transform",) if tags.maps else methods:
        if hasattr(fitted, name):
            return np.asarray(getattr(fitted, name)(X))
    raise AssertionError(f"{type(fitted).__name__} must have transform or predict")


@lru_cache(maxsize=4)
def fit_once(estimator: Any, kind: SampleKind) -> Any:
    """Return the estimator fitted to all clean samples.

    All checks share the fitted estimator and must not change it.
    """
    return clone(estimator).fit(*kind.data())


@cache
def read_bad_input_table() -> dict[str, dict[str, str]]:
    """Return the sections of bad_input.toml."""
    return tomllib.loads(files("nearfar.contract").joinpath("bad_input.toml").read_text("utf-8"))


def get_expected_outcome(
    estimator: Any, case: str, default: str | None = None, input_type: str | None = None
) -> str:
    """Return the expected outcome of a case for an estimator."""
    tags = estimator.learner_tags
    row: dict[str, str] = {}
    supervision = "supervised" if tags.supervised else "unsupervised"
    values = "values" if tags.supervision == ("values",) else ""
    section_type = input_type or tags.input
    for section in (section_type, supervision, values, tags.role, type(estimator).__name__):
        row |= read_bad_input_table().get(section, {})
    return row[case] if default is None else row.get(case, default)
