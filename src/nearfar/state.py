"""Words for what a class has learned, said beside the class and read by ``persistence``.

A class says ``state = State({"components_": floats("q", "p"), "mean_": floats("p")},
fitted="components_")``. A size with a name is read where the name comes first, and must be the
same wherever it comes again, in the state of a part too: ``object_of(Gaussians, n="n", p="p")``.
By custom "n" counts training rows, "p" features, "q" features after the map, "c" classes. A
subclass says only what comes on top of its bases. What words cannot say goes into
``_check_state(sizes)``, with :func:`need`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

Sizes = dict[str, int]


class Word(NamedTuple):
    """What an attribute must be: a test, which reads sizes off, and its description."""

    fits: Callable[[Any, Sizes], bool]
    description: str
    #: Whether it must be there.
    needed: bool = True
    #: Classes that it names.
    types: tuple[type, ...] = ()


class State(NamedTuple):
    """What an object of a class must hold.

    Parameters
    ----------
    words : mapping
        What was learned, by attribute.
    fitted : str, optional
        The attribute without which nothing was learned; None if there is always something.
    rows : str, int or callable, optional
        Which attribute has one entry (or counts one) for each training row that can be read from
        the object; a number of rows, 0 where only its parts have some; or a function of the object.
    needs : mapping
        What must be so before anything was learned, too: parameters that a file cannot hold
        whatever their value.
    """

    words: Mapping[str, Word] = {}
    fitted: str | None = None
    rows: str | int | Callable[[Any], int] | None = None
    needs: Mapping[str, Word] = {}


# ---------------------------------------------------------------------- arrays


def floats(*sizes: str | int, above: float = -math.inf) -> Word:
    """Real numbers in an array of such a shape, all above a bound if one is given."""
    if above == -math.inf:
        return _array("f", sizes, "numbers")
    return _array("f", sizes, f"numbers above {above}", lambda value, _: (value > above).all())


def table(rows: str, columns: str, *, half: bool = False) -> Word:
    """Real numbers in at least one row, ``half`` floats too if they are searched as they are."""
    return _array(
        "f", (rows, columns), "a table of numbers", lambda value, _: len(value), half=half
    )


def unsigned(*sizes: str | int) -> Word:
    """Bits in an array of such a shape."""
    return _array("u", sizes, "unsigned integers")


def indices(*sizes: str | int, low: int = 0, below: str | None = None) -> Word:
    """Integers from ``low`` up, below a size if one is named."""

    def within(value: Any, known: Sizes) -> bool:
        stop = math.inf if below is None else known[below]
        return not value.size or bool(value.min() >= low and value.max() < stop)

    bound = "" if below is None else f" to below {below}"
    return _array("i", sizes, f"integers from {low}{bound}", within)


def labels(size: str) -> Word:
    """One class or name after another, of any kind, at least one."""
    return _array("biufUSO", (size,), "labels", lambda value, _: len(value))


def texts(size: str) -> Word:
    """One name after another."""
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
        if kinds == "f" and value.dtype.itemsize < 4 and not half:  # no solver takes half floats
            return False
        same = value.ndim == len(sizes) and all(map(agrees, value.shape, sizes, repeat(known)))
        return same and bool(also(value, known))

    shape = ", ".join(str(size) for size in sizes)
    return Word(fits, f"{called} of shape ({shape}{',' * (len(sizes) == 1)})")


def agrees(n: int, size: str | int, known: Sizes) -> bool:
    """Whether a size is as it was read before; the first time it is noted."""
    return n == (known.setdefault(size, n) if isinstance(size, str) else size)


# ---------------------------------------------------------------------- single values


def whole(size: str | None = None, *, low: int = 0, most: str | None = None) -> Word:
    """An integer: a size, or from ``low`` to a size."""

    def fits(value: Any, known: Sizes) -> bool:
        if type(value) is not int or not low <= value < 2**31:
            return False
        enough = most is None or value <= known[most]
        return enough and (size is None or agrees(value, size, known))

    called = f"the count {size}" if size else f"a count from {low}"
    return Word(fits, called + (f" to {most}" if most else ""))


def number(low: float = -math.inf, high: float = math.inf, *, open_low: bool = False) -> Word:
    """A finite number between bounds, both included unless ``open_low``."""

    def fits(value: Any, _: Sizes) -> bool:
        above = isinstance(value, float) and (value > low if open_low else value >= low)
        return above and value <= high and math.isfinite(value)

    least = f" {'above' if open_low else 'from'} {low}" if low > -math.inf else ""
    return Word(fits, f"a number{least}{f' to {high}' if high < math.inf else ''}")


def choice(*texts: str) -> Word:
    """One of a few texts."""
    return Word(
        lambda value, _: isinstance(value, str) and value in texts,
        " or ".join(repr(text) for text in texts),
    )


#: Whatever a file can hold.
anything = Word(lambda value, _: True, "anything")
#: Any text.
text = Word(lambda value, _: isinstance(value, str), "text")
#: True or False.
flag = Word(lambda value, _: type(value) is bool, "True or False")
#: The shape of a tensor.
shape_word = Word(lambda value, _: is_shape(value), "a tuple of positive integers")
#: What numbers are kept in.
float_type = Word(
    lambda value, _: isinstance(value, np.dtype) and value in (np.float32, np.float64),
    "float32 or float64",
)


def is_shape(value: Any) -> bool:
    """Whether it may be the shape of a tensor."""
    return (
        isinstance(value, tuple | list)
        and len(value) > 0
        and all(isinstance(n, int | np.integer) and n >= 1 for n in value)
    )


# ---------------------------------------------------------------------- parts and lists


def object_of(*types: type, **sizes: str) -> Word:
    """An object of one of the types; ``q="p"`` says that its size q is the size p here."""

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
    """A list of so many of a kind."""
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
    """None, or a word."""
    return word._replace(
        fits=lambda value, sizes: value is None or word.fits(value, sizes),
        description=f"None or {word.description}",
    )


def optional(word: Word) -> Word:
    """A word for what may be missing."""
    return word._replace(needed=False)


# ---------------------------------------------------------------------- reading


def state_of(kind: type) -> State | None:
    """What a class and its bases say together; None if they say nothing."""
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
    """The sizes of what an object holds; raises a ``ValueError`` if it is not as its class says."""
    state, sizes = state_of(type(item)), Sizes()
    if state is None:
        return sizes
    # Through vars: asked for what it has not learned yet, a statistics learner would solve.
    held = vars(item)
    check_words(held, state.needs, sizes)
    if state.fitted is None or state.fitted in held:
        check_words(held, state.words, sizes)
        item._check_state(sizes)
    return sizes


def check_words(held: Mapping[str, Any], words: Mapping[str, Word], sizes: Sizes) -> None:
    """Raise a ``ValueError`` at the first thing that is missing or not as its word says."""
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
    """How many training rows can be read from an object itself; None if its class does not say."""
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
