"""Declarations of the fitted attributes of a class, which ``persistence`` checks.

A class declares, for example, ``state = State({"components_": floats("q", "p"),
"mean_": floats("p")}, fitted="components_")``. The first attribute with a named size sets this
size, and all later ones must agree with it. The sizes of nested objects are connected by name:
``object_of(Gaussians, n="n", p="p")``. By convention, "n" is the number of training rows, "p" the
number of features, "q" the number of features after the map, and "c" the number of classes.

A subclass declares only the attributes that its base classes do not declare. Conditions that
cannot be declared are checked in ``_check_state(sizes)``, with :func:`need`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

Sizes = dict[str, int]


class Word(NamedTuple):
    """Condition on an attribute: a test, which also records sizes, and its description."""

    fits: Callable[[Any, Sizes], bool]
    description: str
    #: Whether the attribute is required.
    needed: bool = True
    #: Classes of objects that the attribute can contain.
    types: tuple[type, ...] = ()


class State(NamedTuple):
    """Declaration of the attributes that an object of a class must have.

    Parameters
    ----------
    words : mapping
        Conditions on the fitted attributes, by attribute name.
    fitted : str, optional
        Attribute that exists only if the object is fitted. None if it is always fitted.
    rows : str, int or callable, optional
        Number of training rows that can be read from the object: the name of an attribute (its
        length, or its value), a number (0 if only nested objects have rows), or a function.
    needs : mapping
        Conditions that also hold before ``fit``, for parameters that a file cannot always store.
    """

    words: Mapping[str, Word] = {}
    fitted: str | None = None
    rows: str | int | Callable[[Any], int] | None = None
    needs: Mapping[str, Word] = {}


# ---------------------------------------------------------------------- arrays


def floats(*sizes: str | int, above: float = -math.inf) -> Word:
    """Require a float array of this shape, with all values larger than ``above``."""
    if above == -math.inf:
        return _array("f", sizes, "numbers")
    return _array("f", sizes, f"numbers above {above}", lambda value, _: (value > above).all())


def table(rows: str, columns: str, *, half: bool = False) -> Word:
    """Require a float array with at least one row; ``half`` also allows float16."""
    return _array(
        "f", (rows, columns), "a table of numbers", lambda value, _: len(value), half=half
    )


def unsigned(*sizes: str | int) -> Word:
    """Require an array of unsigned integers of this shape."""
    return _array("u", sizes, "unsigned integers")


def indices(*sizes: str | int, low: int = 0, below: str | None = None) -> Word:
    """Require an integer array with values from ``low``, and less than the size ``below``."""

    def within(value: Any, known: Sizes) -> bool:
        stop = math.inf if below is None else known[below]
        return not value.size or bool(value.min() >= low and value.max() < stop)

    bound = "" if below is None else f" and less than {below}"
    return _array("i", sizes, f"integers of at least {low}{bound}", within)


def labels(size: str) -> Word:
    """Require a vector of labels of any type, with at least one entry."""
    return _array("biufUSO", (size,), "labels", lambda value, _: len(value))


def texts(size: str) -> Word:
    """Require a vector of strings."""
    return _array("U", (size,), "texts")


def _array(
    kinds: str,
    sizes: Sequence[str | int],
    called: str,
    also: Callable[[Any, Sizes], Any] = lambda value, known: True,
    *,
    half: bool = False,
) -> Word:
    def fits(value: Any, known: Sizes) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            return False
        # Solvers do not accept float16.
        if kinds == "f" and value.dtype.itemsize < 4 and not half:
            return False
        same = value.ndim == len(sizes) and all(map(agrees, value.shape, sizes, repeat(known)))
        return same and bool(also(value, known))

    shape = ", ".join(str(size) for size in sizes)
    return Word(fits, f"{called} of shape ({shape}{',' * (len(sizes) == 1)})")


def agrees(n: int, size: str | int, known: Sizes) -> bool:
    """Return True if n equals the recorded size; record a named size the first time."""
    return n == (known.setdefault(size, n) if isinstance(size, str) else size)


# ---------------------------------------------------------------------- single values


def whole(size: str | None = None, *, low: int = 0, most: str | None = None) -> Word:
    """Require an integer that equals the named size, or lies between ``low`` and ``most``."""

    def fits(value: Any, known: Sizes) -> bool:
        if type(value) is not int or not low <= value < 2**31:
            return False
        enough = most is None or value <= known[most]
        return enough and (size is None or agrees(value, size, known))

    called = f"the count {size}" if size else f"a count from {low}"
    return Word(fits, called + (f" to {most}" if most else ""))


def number(low: float = -math.inf, high: float = math.inf, *, open_low: bool = False) -> Word:
    """Require a finite float between inclusive bounds; ``open_low`` excludes the lower one."""

    def fits(value: Any, _: Sizes) -> bool:
        above = isinstance(value, float) and (value > low if open_low else value >= low)
        return above and value <= high and math.isfinite(value)

    least = f" {'above' if open_low else 'from'} {low}" if low > -math.inf else ""
    return Word(fits, f"a number{least}{f' to {high}' if high < math.inf else ''}")


def choice(*texts: str) -> Word:
    """Require one of several strings."""
    return Word(
        lambda value, _: isinstance(value, str) and value in texts,
        " or ".join(repr(text) for text in texts),
    )


#: Any value that a file can store.
anything = Word(lambda value, _: True, "anything")
#: Any text.
text = Word(lambda value, _: isinstance(value, str), "text")
#: True or False.
flag = Word(lambda value, _: type(value) is bool, "True or False")
#: The shape of a tensor.
shape_word = Word(lambda value, _: is_shape(value), "a tuple of positive integers")
#: The dtype of stored numbers.
float_type = Word(
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


# ---------------------------------------------------------------------- parts and lists


def object_of(*types: type, **sizes: str) -> Word:
    """Require an object of one of the types; ``q="p"`` means that its size q equals size p here."""

    def fits(value: Any, known: Sizes) -> bool:
        if not isinstance(value, types):
            return False
        inner = check_state(value) if sizes else {}
        return all(
            theirs in inner and agrees(inner[theirs], ours, known) for theirs, ours in sizes.items()
        )

    names = " or ".join(kind.__name__ for kind in types)
    agree = " and ".join(f"{theirs} = {ours}" for theirs, ours in sizes.items())
    return Word(fits, f"{names}{' with ' * bool(sizes)}{agree}", types=types)


def list_of(word: Word, size: str) -> Word:
    """Require a list of length ``size`` whose items all meet a condition."""
    return Word(
        lambda value, sizes: (
            type(value) is list
            and agrees(len(value), size, sizes)
            and all(word.fits(item, sizes) for item in value)
        ),
        f"a list of {size}, each {word.description}",
        types=word.types,
    )


def none_or(word: Word) -> Word:
    """Allow None in addition to a condition."""
    return word._replace(
        fits=lambda value, sizes: value is None or word.fits(value, sizes),
        description=f"None or {word.description}",
    )


def optional(word: Word) -> Word:
    """Allow the attribute to be missing."""
    return word._replace(needed=False)


# ---------------------------------------------------------------------- reading


def state_of(kind: type) -> State | None:
    """Return the combined declaration of a class and its bases, or None if there is none."""
    whole = None
    for base in reversed(kind.__mro__):
        said = vars(base).get("state")
        if isinstance(said, State):
            whole = whole or State()
            whole = State(
                {**whole.words, **said.words},
                said.fitted or whole.fitted,
                whole.rows if said.rows is None else said.rows,
                {**whole.needs, **said.needs},
            )
    return whole


def check_state(item: Any) -> Sizes:
    """Return the sizes of an object's attributes; raise a ``ValueError`` if one is invalid."""
    state, sizes = state_of(type(item)), Sizes()
    if state is None:
        return sizes
    # Use vars: reading a fitted attribute would make a learner with statistics solve.
    held = vars(item)
    check_words(held, state.needs, sizes)
    if state.fitted is None or state.fitted in held:
        check_words(held, state.words, sizes)
        item._check_state(sizes)
    return sizes


def check_words(held: Mapping[str, Any], words: Mapping[str, Word], sizes: Sizes) -> None:
    """Raise a ``ValueError`` for the first attribute that is missing or invalid."""
    for name, word in words.items():
        if name in held or word.needed:
            known = dict(sizes)
            if name not in held or not word.fits(held[name], sizes):
                raise ValueError(f"{name} must be {word.description}{_found(held, name, known)}.")


def need(condition: Any, otherwise: str) -> None:
    """Raise a ``ValueError`` unless the condition holds."""
    if not condition:
        raise ValueError(otherwise)


def n_training_rows(item: Any) -> int | None:
    """Return the number of training rows that an object contains; None if it is not declared."""
    state = state_of(type(item))
    if state is None or state.rows is None:
        return None
    if state.fitted is not None and state.fitted not in vars(item):
        return 0
    if callable(state.rows):
        return state.rows(item)
    rows = vars(item)[state.rows] if isinstance(state.rows, str) else state.rows
    return rows if isinstance(rows, int) else len(rows)


def _found(held: Mapping[str, Any], name: str, known: Sizes) -> str:
    where = f", where {', '.join(f'{n} = {size}' for n, size in known.items())}" if known else ""
    if name not in held:
        return f"{where}; it is missing"
    value = held[name]
    if isinstance(value, np.ndarray):
        span = f" from {value.min()} to {value.max()}" if value.dtype == int and value.size else ""
        return f"{where}; found {value.dtype} of shape {value.shape}{span}"
    shown = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return f"{where}; found {shown if len(shown) <= 60 else f'{shown[:57]}...'}"
