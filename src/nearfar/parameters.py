"""Declarations of allowed parameter values, and the function that checks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np


class AllowedValues(NamedTuple):
    """Allowed values of a parameter: a test function, and a description for messages."""

    accepts: Callable[[Any], bool]
    description: str


def integer(low: int | None = None, high: int | None = None) -> AllowedValues:
    """Allow integers between inclusive bounds. Booleans are not accepted as integers."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Integral) or isinstance(value, bool | np.bool_):
            return False
        number = int(value)
        return (low is None or number >= low) and (high is None or number <= high)

    return AllowedValues(accepts, "an integer" + _describe_bounds(low, high))


def real(
    low: float | None = None, high: float | None = None, *, open_low: bool = False
) -> AllowedValues:
    """Allow finite real numbers between inclusive bounds; ``open_low`` excludes ``low``."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        number = float(value)
        above = low is None or (number > low if open_low else number >= low)
        return bool(np.isfinite(number)) and above and (high is None or number <= high)

    return AllowedValues(accepts, "a number" + _describe_bounds(low, high, open_low))


def one_of(*choices: str) -> AllowedValues:
    """Allow one of several strings."""
    return AllowedValues(
        lambda value: isinstance(value, str) and value in choices,
        " or ".join(repr(choice) for choice in choices),
    )


def instance(*types: type, description: str) -> AllowedValues:
    """Allow instances of the given types."""
    return AllowedValues(lambda value: isinstance(value, types), description)


def object_with(*methods: str, description: str) -> AllowedValues:
    """Allow objects that have the given methods."""
    return AllowedValues(lambda value: all(hasattr(value, name) for name in methods), description)


none = AllowedValues(lambda value: value is None, "None")
boolean = instance(bool, np.bool_, description="True or False")
array = AllowedValues(lambda value: _is_numeric(value), "an array of numbers")
random_state = AllowedValues(
    lambda value: (
        value is None
        or isinstance(value, np.random.RandomState)
        or (isinstance(value, Integral) and 0 <= int(value) < 2**32)
    ),
    "None, a non-negative integer or a numpy RandomState",
)


def _is_numeric(value: Any) -> bool:
    if not isinstance(value, np.ndarray | list | tuple):
        return False
    try:
        np.asarray(value, dtype=np.float64)
    # NumPy raises an error for text and for rows of different lengths.
    except (TypeError, ValueError):
        return False
    return True


def check_parameter(owner: str, name: str, value: Any, allowed: Sequence[AllowedValues]) -> None:
    """Raise a ``ValueError`` with the allowed values if ``value`` is not allowed.

    >>> check_parameter("LMNN", "n_neighbors", 0, [integer(1)])
    Traceback (most recent call last):
    ...
    ValueError: LMNN: n_neighbors must be an integer of at least 1; got 0.
    """
    # A plain loop is fastest, which matters for partial_fit with thousands of batches.
    for values in allowed:
        if values.accepts(value):
            return
    expected = ", or ".join(values.description for values in allowed)
    value_text = " ".join(repr(value).split())  # The repr of an array can have several lines.
    value_text = value_text if len(value_text) <= 60 else f"{value_text[:57]}..."
    raise ValueError(f"{owner}: {name} must be {expected}; got {value_text}.")


def _describe_bounds(low: float | None, high: float | None, open_low: bool = False) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f" above {low}" if open_low else f" of at least {low}"
    if low is None:
        return f" of at most {high}"
    return f" above {low} and at most {high}" if open_low else f" from {low} to {high}"
