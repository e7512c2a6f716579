"""What a kind of samples is to the checks, and what the table of bad input says of estimators."""

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
# What a case does to (X, y, queries).
Change = Callable[[Any, Any, Any], tuple[Any, Any, Any]]


@dataclass(frozen=True, eq=False)
class SampleKind:
    """Samples of one kind, in order and out of it.

    ``data`` gives samples of three classes that can be told apart, and their labels; ``frozen``
    samples in forms that can not be written to; ``own_checks`` what is asked of an estimator of
    this kind alone. ``cases`` are difficult input: what it does, and whether the result must equal
    that of the clean copy. ``label_cases`` are difficult labels; None those of classes, which most
    kinds have.
    """

    name: str
    data: Callable[[], tuple[Any, NDArray[np.intp]]]
    frozen: Callable[[Any], Iterable[Any]]
    own_checks: Callable[[Any], list[Check]]
    cases: dict[str, tuple[Change, bool]]
    label_cases: dict[str, tuple[Change, bool]] | None = None


def used(fitted: Any, X: Any) -> NDArray[Any]:
    """What an estimator is for: coordinates, shares of votes, labels, values or clusters."""
    tags = fitted.learner_tags
    others = ("predict",) if tags.role == "clusterer" else ("predict_proba", "predict")
    for name in ("transform",) if tags.maps else others:
        if hasattr(fitted, name):
            return np.asarray(getattr(fitted, name)(X))
    raise AssertionError(f"{type(fitted).__name__} has nothing to be used by")


@lru_cache(maxsize=4)
def shared_fit(estimator: Any, kind: SampleKind) -> Any:
    """A fit to all clean samples that checks of one estimator look at, and none of them changes."""
    return clone(estimator).fit(*kind.data())


@cache
def bad_input_table() -> dict[str, dict[str, str]]:
    """Sections of the committed table."""
    return tomllib.loads(files("nearfar.contract").joinpath("bad_input.toml").read_text("utf-8"))


def expected_outcome(
    estimator: Any, case: str, default: str | None = None, given: str | None = None
) -> str:
    """What the table says of an estimator and a case."""
    tags = estimator.learner_tags
    row: dict[str, str] = {}
    supervision = "supervised" if tags.supervised else "unsupervised"
    values = "values" if tags.learns_from == ("values",) else ""
    for section in (given or tags.input, supervision, values, tags.role, type(estimator).__name__):
        row |= bad_input_table().get(section, {})
    return row[case] if default is None else row.get(case, default)
