"""How the report writes numbers and texts of unknown origin."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from nearfar import words

MINUS = "−"
SPACE = "\u00a0"  # keeps a number and its unit on one line
NONE = "–"

# Control characters, halves of surrogate pairs, and marks that reverse the text around them.
_BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_LINE_ENDS = re.compile("[\u2028\u2029\x85]|\r\n?")


def number(value: Any) -> float | None:
    """``value`` as a finite float, or None.

    >>> number("0.5"), number(float("nan")), number(2)
    (None, None, 2.0)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def pair(value: Any) -> tuple[float, float] | None:
    """An interval with two finite ends, or None."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        return None
    low, high = number(value[0]), number(value[1])
    return None if low is None or high is None else (low, high)


def percent(value: Any) -> str:
    """A fraction in percent, one decimal.

    >>> percent(0.0213), percent(None)
    ('2.1%', '–')
    """
    found = number(value)
    return NONE if found is None else words.format_percent(found)


def points(value: Any, unit: bool = False) -> str:
    """A difference of fractions in points, with its sign.

    >>> points(-0.0123), points(0.004), points(-0.0001)
    ('−1.2', '+0.4', '−0.01')
    """
    found = number(value)
    if found is None:
        return NONE
    text = words.format_points(found, plus=True)
    return f"{text}{SPACE}points" if unit else text


def interval(value: Any, write: Any = percent) -> str:
    """Both ends of an interval, or nothing.

    >>> interval([0.012, 0.03]), interval([-0.02, 0.004], points)
    ('1.2 to 3.0%', '−2.0 to +0.4')
    """
    ends = pair(value)
    if ends is None:
        return ""
    low = write(ends[0]).removesuffix("%")
    return f"{low} to {write(ends[1])}"


def p_value(value: Any) -> str:
    """Return a p-value with three decimals, or four just above 0.05.

    >>> p_value(0.0031), p_value(1e-9)
    ('0.003', '< 0.001')
    """
    found = number(value)
    return NONE if found is None else words.format_p_value(found)


def seconds(value: Any) -> str:
    """Two significant digits, or whole seconds.

    >>> seconds(0.314), seconds(4), seconds(41.2), seconds(1234), seconds(0)
    ('0.31', '4.0', '41', '1,234', '0')
    """
    found = number(value)
    return NONE if found is None else words.format_seconds(found).removesuffix(" s")


def whole(value: Any) -> str:
    """A whole number."""
    found = number(value)
    return NONE if found is None else f"{found:,.0f}"


def megabytes(value: Any) -> str:
    """Whole megabytes, one decimal below ten."""
    found = number(value)
    if found is None:
        return NONE
    return f"{found:,.0f}" if found >= 9.95 else f"{found:.1f}"


def significant(value: Any, digits: int = 3) -> str:
    """A number of unknown size, in few characters.

    >>> significant(-12345.6), significant(0.00001234), significant(2)
    ('−12,300', '1.23e−05', '2')
    """
    found = number(value)
    if found is None:
        return NONE
    rounded = float(f"{found:.{digits}g}")
    wide = rounded != 0 and not 1e-4 <= abs(rounded) < 1e7
    text = f"{rounded:.{digits}g}" if wide else f"{rounded:,.10f}".rstrip("0").rstrip(".")
    return text.replace("-", MINUS)


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"]), listed(list("abcd"), limit=2)
    ('a, b and c', 'a, b and 2 more')
    """
    return words.join_names(names, limit, quoted=False)


def unbroken(text: str) -> str:
    """Return the text with numbers that stay on one line with their units.

    >>> unbroken("A gain of 1.2 points, 3.4%, in 5 s.").count(SPACE)
    2
    """
    return re.sub(r"(?<=\d) (?=(points|s|MB)(?!\w))", SPACE, text)


def cut(text: Any, limit: int = 80) -> str:
    """``text`` on one line, at most ``limit`` characters, without characters that mislead.

    >>> cut("a long text", 6), cut("two" + chr(10) + "lines"), cut("evil" + chr(0x202E))
    ('a lon…', 'two lines', 'evil�')
    """
    # The first cut spares the work on megabytes; the rest may only shorten.
    found = "" if text is None else str(text)[: 4 * limit + 100]
    found = _BAD.sub("�", " ".join(_LINE_ENDS.sub(" ", found).split()))
    return found if len(found) <= limit else found[: limit - 1].rstrip() + "…"


def cut_lines(text: Any, limit: int = 20_000) -> str:
    """Like `cut`, for text whose lines and indents matter."""
    found = "" if text is None else str(text)[: 2 * limit]
    found = _BAD.sub("�", _LINE_ENDS.sub("\n", found))
    return found if len(found) <= limit else found[: limit - 1] + "…"


def cut_list(texts: Iterable[Any] | None, limit: int, length: int = 400) -> list[str]:
    """The first ``limit`` texts, cut, and a line that counts the others."""
    every = list(texts or [])
    shown = [cut(text, length) for text in every[:limit]]
    if len(every) > limit:
        shown.append(f"… and {len(every) - limit:,} more.")
    return shown


def moment(text: Any) -> str:
    """An ISO time as people write it; anything else as it is.

    >>> moment("2026-11-15T12:00:00+00:00")
    '15 November 2026, 12:00 UTC'
    """
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        return cut(text, 40)
    zone = ""
    if when.tzinfo is not None:
        when, zone = when.astimezone(UTC), " UTC"
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"
