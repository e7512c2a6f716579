"""Declarations of the fitted attributes of a class, which model files must satisfy.

A class declares, for example, ``state = State({"components_": floats("q", "p"),
"mean_": floats("p")}, fitted="components_")``. The first attribute with a named size sets this
size, and all later ones must agree with it. The sizes of nested objects are connected by name:
``object_of(Gaussians, n="n", p="p")``. By convention, "n" is the number of training rows, "p" the
number of features, "q" the number of features after the map, and "c" the number of classes.

A subclass declares only the attributes that its base classes do not declare. Conditions that
cannot be declared are checked in ``_check_state(sizes)``, with :func:`check_that`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

Sizes = dict[str, int]


class Condition(NamedTuple):
    """Condition on an attribute: a test function, which also records sizes, and a description."""

    fits: Callable[[Any, Sizes], bool]
    description: str
    #: Whether the attribute is required.
    is_required: bool = True
    #: Classes of objects that the attribute can contain.
    types: tuple[type, ...] = ()


class State(NamedTuple):
    """Declaration of the attributes that an object of a class must have.

    Parameters
    ----------
    conditions : mapping
        Conditions on the fitted attributes, by attribute name.
    fitted : str, optional
        Attribute that exists only if the object is fitted. None means that the object is always
        fitted.
    rows : str, int or callable, optional
        Number of training rows that the object stores. It is a number (0 if only nested objects
        store rows), a function of the object, or the name of an attribute, whose value or length is
        used.
    fit_conditions : mapping
        Conditions that must hold even before ``fit``. They are for parameters that model files
        cannot always store.
    """

    conditions: Mapping[str, Condition] = {}
    fitted: str | None = None
    rows: str | int | Callable[[Any], int] | None = None
    fit_conditions: Mapping[str, Condition] = {}


def floats(*sizes: str | int, above: float = -math.inf) -> Condition:
    """Require a float array of this shape, with all values larger than ``above``."""
    if above == -math.inf:
        return _require_array("f", sizes, "numbers")
    return _require_array(
        "f", sizes, f"numbers above {above}", lambda value, _: (value > above).all()
    )


def table(rows: str, columns: str, *, half: bool = False) -> Condition:
    """Require a float array with at least one row; ``half`` also allows float16."""
    return _require_array(
        "f", (rows, columns), "a table of numbers", lambda value, _: len(value), half=half
    )


def unsigned(*sizes: str | int) -> Condition:
    """Require an array of unsigned integers of this shape."""
    return _require_array("u", sizes, "unsigned integers")


def indices(*sizes: str | int, low: int = 0, below: str | None = None) -> Condition:
    """Require an integer array with values of at least ``low`` and less than the size ``below``."""

    def is_in_range(value: Any, known: Sizes) -> bool:
        stop = math.inf if below is None else known[below]
        return not value.size or bool(value.min() >= low and value.max() < stop)

    bound = "" if below is None else f" and less than {below}"
    return _require_array("i", sizes, f"integers of at least {low}{bound}", is_in_range)


def labels(size: str) -> Condition:
    """Require a vector of labels of any type, with at least one entry."""
    return _require_array("biufUSO", (size,), "labels", lambda value, _: len(value))


def strings(size: str) -> Condition:
    """Require a vector of strings."""
    return _require_array("U", (size,), "texts")


def _require_array(
    kinds: str,
    sizes: Sequence[str | int],
    noun: str,
    is_valid: Callable[[Any, Sizes], Any] = lambda value, known: True,
    *,
    half: bool = False,
) -> Condition:
    def fits(value: Any, known: Sizes) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            return False
        # Reject float16, which the solvers do not accept.
        if kinds == "f" and value.dtype.itemsize < 4 and not half:
            return False
        has_shape = value.ndim == len(sizes) and all(
            map(matches_size, value.shape, sizes, repeat(known))
        )
        return has_shape and bool(is_valid(value, known))

    shape = ", ".join(str(size) for size in sizes)
    return Condition(fits, f"{noun} of shape ({shape}{',' * (len(sizes) == 1)})")


def matches_size(n: int, size: str | int, sizes: Sizes) -> bool:
    """Return True if n equals ``size``, a number or the name of a recorded size.

    If no size is recorded under this name, n is recorded.
    """
    return n == (sizes.setdefault(size, n) if isinstance(size, str) else size)


def integer_value(
    size: str | None = None, *, low: int = 0, max_size: str | None = None
) -> Condition:
    """Require an integer that equals ``size``, or lies between ``low`` and ``max_size``."""

    def fits(value: Any, known: Sizes) -> bool:
        if type(value) is not int or not low <= value < 2**31:
            return False
        is_small_enough = max_size is None or value <= known[max_size]
        return is_small_enough and (size is None or matches_size(value, size, known))

    description = f"the count {size}" if size else f"a count from {low}"
    return Condition(fits, description + (f" to {max_size}" if max_size else ""))


def number(low: float = -math.inf, high: float = math.inf, *, open_low: bool = False) -> Condition:
    """Require a finite float between inclusive bounds; ``open_low`` excludes ``low``."""

    def fits(value: Any, _: Sizes) -> bool:
        is_above = isinstance(value, float) and (value > low if open_low else value >= low)
        return is_above and value <= high and math.isfinite(value)

    lower_text = f" {'above' if open_low else 'from'} {low}" if low > -math.inf else ""
    return Condition(fits, f"a number{lower_text}{f' to {high}' if high < math.inf else ''}")


def choice(*texts: str) -> Condition:
    """Require one of several strings."""
    return Condition(
        lambda value, _: isinstance(value, str) and value in texts,
        " or ".join(repr(text) for text in texts),
    )


#: Any value that a file can store.
any_value = Condition(lambda value, _: True, "anything")
#: Any text.
text = Condition(lambda value, _: isinstance(value, str), "text")
#: True or False.
flag = Condition(lambda value, _: type(value) is bool, "True or False")
#: The shape of a tensor.
shape_value = Condition(lambda value, _: is_shape(value), "a tuple of positive integers")
#: The dtype of stored numbers.
float_type = Condition(
    lambda value, _: isinstance(value, np.dtype) and value in (np.float32, np.float64),
    "float32 or float64",
)


def is_shape(value: Any) -> bool:
    """Return True if the value is a valid tensor shape."""
    return (
        isinstance(value, tuple | list)
        and len(value) > 0
        and all(isinstance(n, int | np.integer) and n >= 1 for n in value)
    )


def object_of(*types: type, **sizes: str) -> Condition:
    """Require an object of one of the types.

    A keyword argument ``q="p"`` requires that the size q of this object equals the size p of the
    object that contains it.
    """

    def fits(value: Any, known: Sizes) -> bool:
        if not isinstance(value, types):
            return False
        inner_sizes = check_state(value) if sizes else {}
        return all(
            inner_size in inner_sizes and matches_size(inner_sizes[inner_size], outer_size, known)
            for inner_size, outer_size in sizes.items()
        )

    names = " or ".join(kind.__name__ for kind in types)
    relations = " and ".join(
        f"{inner_size} = {outer_size}" for inner_size, outer_size in sizes.items()
    )
    return Condition(fits, f"{names}{' with ' * bool(sizes)}{relations}", types=types)


def list_of(condition: Condition, size: str) -> Condition:
    """Require a list of length ``size`` whose items all meet a condition."""
    return Condition(
        lambda value, sizes: (
            type(value) is list
            and matches_size(len(value), size, sizes)
            and all(condition.fits(item, sizes) for item in value)
        ),
        f"a list of {size}, each {condition.description}",
        types=condition.types,
    )


def none_or(condition: Condition) -> Condition:
    """Allow None in addition to a condition."""
    return condition._replace(
        fits=lambda value, sizes: value is None or condition.fits(value, sizes),
        description=f"None or {condition.description}",
    )


def optional(condition: Condition) -> Condition:
    """Allow the attribute to be missing."""
    return condition._replace(is_required=False)


def get_state(kind: type) -> State | None:
    """Return the combined state declaration of a class and its base classes, or None."""
    combined = None
    for base in reversed(kind.__mro__):
        own_state = vars(base).get("state")
        if isinstance(own_state, State):
            combined = combined or State()
            combined = State(
                {**combined.conditions, **own_state.conditions},
                own_state.fitted or combined.fitted,
                combined.rows if own_state.rows is None else own_state.rows,
                {**combined.fit_conditions, **own_state.fit_conditions},
            )
    return combined


def check_state(item: Any) -> Sizes:
    """Return the sizes of an object's attributes. Invalid attributes raise a ``ValueError``."""
    state, sizes = get_state(type(item)), Sizes()
    if state is None:
        return sizes
    # Use vars, because reading a fitted attribute can start the solver of a learner.
    attributes = vars(item)
    check_conditions(attributes, state.fit_conditions, sizes)
    if state.fitted is None or state.fitted in attributes:
        check_conditions(attributes, state.conditions, sizes)
        item._check_state(sizes)
    return sizes


def check_conditions(
    attributes: Mapping[str, Any], conditions: Mapping[str, Condition], sizes: Sizes
) -> None:
    """Raise a ``ValueError`` for the first attribute that is missing or invalid."""
    for name, condition in conditions.items():
        if name in attributes or condition.is_required:
            known = dict(sizes)
            if name not in attributes or not condition.fits(attributes[name], sizes):
                raise ValueError(
                    f"{name} must be {condition.description}"
                    f"{_describe_value(attributes, name, known)}."
                )


def check_that(condition: Any, message: str) -> None:
    """Raise a ``ValueError`` unless the condition holds."""
    if not condition:
        raise ValueError(message)


def count_stored_rows(item: Any) -> int | None:
    """Return the number of training rows that an object stores, or None if it is not declared."""
    state = get_state(type(item))
    if state is None or state.rows is None:
        return None
    if state.fitted is not None and state.fitted not in vars(item):
        return 0
    if callable(state.rows):
        return state.rows(item)
    rows = vars(item)[state.rows] if isinstance(state.rows, str) else state.rows
    return rows if isinstance(rows, int) else len(rows)


def _describe_value(attributes: Mapping[str, Any], name: str, known: Sizes) -> str:
    known_text = (
        f", where {', '.join(f'{n} = {size}' for n, size in known.items())}" if known else ""
    )
    if name not in attributes:
        return f"{known_text}; it is missing"
    value = attributes[name]
    if isinstance(value, np.ndarray):
        span = f" from {value.min()} to {value.max()}" if value.dtype == int and value.size else ""
        return f"{known_text}; found {value.dtype} of shape {value.shape}{span}"
    value_text = (
        repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    )
    return f"{known_text}; found {value_text if len(value_text) <= 60 else f'{value_text[:57]}...'}"
