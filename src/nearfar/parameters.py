"""Declarations of allowed parameter values, and the function that checks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np


class Allowed(NamedTuple):
    """Allowed type of parameter values: a test, and its description for messages."""

    accepts: Callable[[Any], bool]
    description: str


def integer(low: int | None = None, high: int | None = None) -> Allowed:
    """Allow integers between inclusive bounds. Booleans are not accepted as integers."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Integral) or isinstance(value, bool | np.bool_):
            return False
        number = int(value)
        return (low is None or number >= low) and (high is None or number <= high)

    return Allowed(accepts, "an integer" + _bounds(low, high))


def real(low: float | None = None, high: float | None = None, *, open_low: bool = False) -> Allowed:
    """Allow finite real numbers between inclusive bounds; ``open_low`` excludes the lower one."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
            return False
        number = float(value)
        above = low is None or (number > low if open_low else number >= low)
        return bool(np.isfinite(number)) and above and (high is None or number <= high)

    return Allowed(accepts, "a number" + _bounds(low, high, open_low))


def one_of(*choices: str) -> Allowed:
    """Allow one of several strings."""
    return Allowed(
        lambda value: isinstance(value, str) and value in choices,
        " or ".join(repr(choice) for choice in choices),
    )


def instance(*types: type, description: str) -> Allowed:
    """Allow instances of the given types."""
    return Allowed(lambda value: isinstance(value, types), description)


def having(*methods: str, description: str) -> Allowed:
    """Allow objects that have the given methods."""
    return Allowed(lambda value: all(hasattr(value, name) for name in methods), description)


none = Allowed(lambda value: value is None, "None")
boolean = instance(bool, np.bool_, description="True or False")
array = Allowed(lambda value: _is_numeric(value), "an array of numbers")
random_state = Allowed(
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
    except (TypeError, ValueError):  # Text, or rows of different lengths.
        return False
    return True


def check_parameter(owner: str, name: str, value: Any, allowed: Sequence[Allowed]) -> None:
    """Raise a ``ValueError`` with the allowed values if ``value`` is not allowed.

    >>> check_parameter("LMNN", "n_neighbors", 0, [integer(1)])
    Traceback (most recent call last):
    ...
    ValueError: LMNN: n_neighbors must be an integer of at least 1; got 0.
    """
    # A plain loop is the fastest way, which matters for partial_fit with thousands of batches.
    for kind in allowed:
        if kind.accepts(value):
            return
    wanted = ", or ".join(kind.description for kind in allowed)
    shown = " ".join(repr(value).split())  # The repr of an array can have several lines.
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    raise ValueError(f"{owner}: {name} must be {wanted}; got {shown}.")


def _bounds(low: float | None, high: float | None, open_low: bool = False) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f" above {low}" if open_low else f" of at least {low}"
    if low is None:
        return f" of at most {high}"
    return f" above {low} and at most {high}" if open_low else f" from {low} to {high}"
