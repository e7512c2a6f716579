"""What is asked of ``compare``: the only list of its options."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Literal, Self

import joblib

from nearfar.app.compare.methods import Scale, Then, listed_methods
from nearfar.app.compare.splits import TUNINGS, Tuning
from nearfar.app.tables.columns import names_asked
from nearfar.app.tables.inputs import folds_given, noun_of
from nearfar.app.tables.reading import noun_of_file
from nearfar.datasets.tables import DataFile

#: What is predicted: a class, unless it is said that it is a number.
Task = Literal["classification", "regression"]
Conflicts = Literal["raise", "drop", "keep"]
#: Seconds, where neither these nor the repeats are given.
DEFAULT_BUDGET = 120.0
#: Rows; of fewer nothing can be said.
LEAST_SAMPLE = 50


@dataclass(frozen=True)
class Question:
    """The data and all options, checked; the command line and Python make it alike.

    :func:`nearfar.compare` says what the options mean. ``X`` is an opened file, or the data
    themselves; ``groups``, ``time``, ``report_by`` and ``test`` are then names of columns and of a
    file, or arrays. The options that only a file has are ``target``, ``labels``, ``set_id``,
    ``min_vectors``, ``vector``, ``ids``, ``images``, ``pairs`` and ``conflicts``.
    """

    X: Any
    y: Any = None
    target: str | None = None
    labels: str | None = None
    set_id: str | None = None
    min_vectors: int = 2
    vector: str | None = None
    ids: str | None = None
    images: tuple[int, ...] | None = None
    unlabelled: bool = False
    task: Task | None = None
    pairs: str | os.PathLike[str] | None = None
    conflicts: Conflicts = "raise"
    supervision: Any = None
    groups: Any = None
    time: Any = None
    test: Any = None
    report_by: Any = None
    methods: Any = None
    without: Any = ()
    sample: Any = "auto"
    cv: Any = None
    scoring: Any = None
    scale: Scale = "auto"
    then: Then = "auto"
    repeats: int | None = None
    time_budget: float | None = None
    tuning: Tuning | None = None
    min_gain: float = 0.05
    keep: Sequence[Any] = ()
    drop: Sequence[Any] = ()
    random_state: int = 0
    context: bool = True
    n_jobs: int | None = None
    isolate: bool = True
    journal: str | os.PathLike[str] | None = None
    show_rows: bool = True
    n_components: int = 2
    color: Any = None

    @classmethod
    def of(cls, given: dict[str, Any], **more: Any) -> Self:
        """The question in what was given, which may hold other things too."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: given[name] for name in known & set(given)} | more)

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.tuning not in (None, *TUNINGS):
            raise ValueError(f"tuning={self.tuning!r} must be one of {', '.join(TUNINGS)}.")
        if self.then not in ("auto", "lda", "none"):
            raise ValueError(f"then={self.then!r} must be one of auto, lda, none.")
        if self.task not in (None, "classification", "regression"):
            raise ValueError(
                f"task={self.task!r} must be 'classification' or 'regression'; None is the first."
            )
        plain = {
            "cv": folds_given(self.cv),  # a generator is read once
            "keep": names_asked(self.keep),
            "drop": names_asked(self.drop),
            "without": names_asked(listed_methods(self.without)),
            "repeats": None if self.repeats is None else int(self.repeats),
            "min_gain": float(self.min_gain),
            "random_state": int(self.random_state),
            "n_components": int(self.n_components),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def _check_numbers(self) -> None:
        """Refuse numbers that make no sense."""
        whole = "must be a whole number"
        for name, fits, words in (
            ("repeats", self.repeats is None or _is_whole(self.repeats, 1), f"{whole}, 1 or more"),
            (
                "time_budget",
                self.time_budget is None or (_is_number(self.time_budget) and self.time_budget > 0),
                "must be a number of seconds above 0",
            ),
            (
                "min_gain",
                _is_number(self.min_gain) and 0 <= self.min_gain < 1,
                "must be at least 0 and below 1: 0.05 is 5%",
            ),
            ("random_state", _is_whole(self.random_state, 0), f"{whole}, 0 or more"),
            (
                "n_jobs",
                self.n_jobs is None or (_is_whole(self.n_jobs) and self.n_jobs != 0),
                f"{whole} other than 0: -1 is one for each core",
            ),
            ("n_components", _is_whole(self.n_components, 1), f"{whole}, 1 or more"),
            (
                "sample",
                self.sample in ("auto", None) or _is_whole(self.sample, LEAST_SAMPLE),
                f"{whole} of {LEAST_SAMPLE} rows or more, 'auto', or None for all rows",
            ),
        ):
            if not fits:
                raise ValueError(f"{name}={getattr(self, name)!r} {words}.")

    @property
    def from_file(self) -> bool:
        """Whether the data are in a file; if not, they are given as they are."""
        return isinstance(self.X, DataFile)

    @cached_property
    def noun(self) -> str:
        """What is compared: "row" or "set"."""
        return noun_of_file(self.X, self.set_id) if self.from_file else noun_of(self.X)

    @property
    def of_pairs(self) -> bool:
        """Whether it is pairs that say what is alike."""
        return self.pairs is not None or self.supervision is not None

    @property
    def without_labels(self) -> bool:
        """Whether no labels are used."""
        return self.unlabelled or (not self.from_file and self.y is None)

    @property
    def draws_folds(self) -> bool:
        """Whether folds are ours to draw, again and of fewer rows; others are the user's own."""
        return self.cv is None or isinstance(self.cv, int)

    @property
    def budget(self) -> float | None:
        """Seconds; None is no limit."""
        if self.time_budget is None:
            return DEFAULT_BUDGET if self.repeats is None else None
        return float(self.time_budget)

    @property
    def cores(self) -> int:
        """That it may use: all, unless it was said how many."""
        return max(1, int(joblib.effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)))

    @property
    def workers(self) -> int:
        """Processes at once."""
        return self.cores if self.isolate else 1


def _is_whole(value: Any, least: float = -math.inf) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
