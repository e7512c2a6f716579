"""Formatting of names and numbers in messages, in the terminal and in reports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


def suggest_name(name: object, names: Iterable[object]) -> str:
    """Return a suggestion with a leading space, or an empty string if no name is close.

    >>> suggest_name("Clas", ["age", "class"])
    " Did you mean 'class'?"
    """
    by_lower = {str(candidate).lower(): str(candidate) for candidate in names}
    close = get_close_matches(str(name).lower(), by_lower, n=1)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""


def format_method_name(name: str) -> str:
    """Return the name of an estimator class as a method name of the command line.

    >>> [format_method_name(name) for name in ("HessianLLE", "MVEMClassifier", "LMNN")]
    ['hessian-lle', 'mvem-classifier', 'lmnn']
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def normalize_name(name: str) -> str:
    """Normalize a name for comparison: lower case, without hyphens, underscores and spaces.

    >>> {normalize_name(name) for name in ("Laplacian-Eigenmaps", "laplacian_eigenmaps")}
    {'laplacianeigenmaps'}
    """
    return re.sub(r"[-_\s]", "", name.lower())


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Return a suggestion of the three closest names, with a leading space.

    A common prefix of up to four characters increases the score, because typing errors are rare at
    the beginning of a name.

    >>> suggest_names("lmm", ["lda", "mmc", "mcml", "lmnn", "rca"])
    ' Did you mean lmnn, mmc or mcml?'
    """
    query, by_bare = (
        normalize_name(name),
        {normalize_name(candidate): candidate for candidate in names},
    )

    def score_similarity(key: str) -> float:
        n_common = next((i for i in range(4) if key[: i + 1] != query[: i + 1]), 4)
        return SequenceMatcher(None, key, query).ratio() + 0.1 * n_common

    close = [by_bare[key] for key in sorted(by_bare, key=score_similarity, reverse=True)[:3]]
    if not close:
        return ""
    return f" Did you mean {' or '.join(filter(None, [', '.join(close[:-1]), close[-1]]))}?"


def join_names(names: Iterable[object], limit: int = 20, *, quoted: bool = True) -> str:
    """Join names for a sentence; list at most ``limit`` and count the rest.

    >>> join_names(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    >>> join_names(["a", "b", "c"]), join_names(["a", "b", "c"], quoted=False)
    ("'a', 'b', 'c'", 'a, b and c')
    """
    texts = [f"'{name}'" if quoted else str(name) for name in names]
    ending = [f"{len(texts) - limit:,} more"] if len(texts) > limit else []
    # Quoted names form a plain list. Other names are part of a sentence and get an "and".
    if not ending and not quoted and len(texts) > 1:
        ending = [texts.pop()]
    return " and ".join([", ".join(texts[:limit]), *ending])


def capitalize_first(text: str) -> str:
    """Return the text with its first letter in upper case and the rest unchanged.

    Labels such as "raw Euclidean" are stored as they appear in the middle of a sentence. Use this
    function for tables and at the start of sentences.

    >>> capitalize_first("raw Euclidean"), capitalize_first("")
    ('Raw Euclidean', '')
    """
    return text[:1].upper() + text[1:]


def format_count(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun in the singular or plural.

    >>> format_count(1, "row"), format_count(2000, "row"), format_count(2, "class", "classes")
    ('1 row', '2,000 rows', '2 classes')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def format_tested(noun: str) -> str:
    """Return the plural noun for test items.

    Sets of vectors are "tested sets", because "test sets" would be ambiguous.

    >>> format_tested("row"), format_tested("set")
    ('test rows', 'tested sets')
    """
    return f"test {noun}s" if noun == "row" else f"tested {noun}s"


def format_percent(fraction: float) -> str:
    """Return a fraction in percent with one decimal.

    >>> format_percent(0.0213), format_percent(-0.00001)
    ('2.1%', '0.0%')
    """
    return f"{_format_signed(100 * fraction, 1)}%"


def format_small_percent(fraction: float) -> str:
    """Return a fraction in percent with at least one significant digit.

    >>> [format_small_percent(fraction) for fraction in (0.0041, 0.00042, 3e-9, 0.5)]
    ['0.4%', '0.04%', 'less than 0.0001%', '50%']
    """
    if abs(fraction) < 1e-6:
        return "less than 0.0001%"
    if abs(fraction) >= 0.0995:
        return f"{100 * fraction:,.0f}%"
    digits = max(1, -math.floor(math.log10(abs(100 * fraction))))
    return f"{100 * fraction:.{digits}f}%"


def format_interval(low: float, high: float, confidence: float = 0.95) -> str:
    """Return a confidence interval of a difference, in percentage points, with its level.

    >>> format_interval(-0.007, 0.068)
    '95% CI −0.7 to 6.8'
    """
    return f"{100 * confidence:g}% CI {format_points(low)} to {format_points(high)}"


def format_adjusted_p(p: float) -> str:
    """Return a p-value after Holm's adjustment in the form used in sentences.

    >>> format_adjusted_p(0.0123), format_adjusted_p(0.0001)
    ('adjusted p = 0.012', 'adjusted p < 0.001')
    """
    text = format_p_value(p)
    return f"adjusted p {text}" if text.startswith("<") else f"adjusted p = {text}"


def format_points(fraction: float, *, plus: bool = False) -> str:
    """Return a difference of fractions in percentage points, with a typographic minus sign.

    >>> format_points(-0.0123), format_points(0.0044), format_points(-0.0), format_points(0.0004)
    ('−1.2', '0.4', '0.0', '0.04')
    >>> format_points(0.0044, plus=True), format_points(0.0, plus=True)
    ('+0.4', '0.0')
    """
    is_small = 0 < abs(fraction) < 0.00095
    text = _format_signed(100 * fraction, 2 if is_small else 1)
    return f"+{text}" if plus and fraction > 0 and text.strip("0.") else text


def format_number(value: float, digits: int = 4) -> str:
    """Return a number with a few significant digits and thousands separators.

    >>> [format_number(value) for value in (72990.4, 77.0057, -0.000123456, 3.0e12)]
    ['72,990', '77.01', '-0.0001235', '3e+12']
    """
    rounded = float(f"{value:.{digits}g}")
    uses_exponent = rounded != 0 and not 1e-4 <= abs(rounded) < 1e9
    return f"{rounded:.{digits}g}" if uses_exponent else f"{rounded:,.10f}".rstrip("0").rstrip(".")


def format_p_value(p: float) -> str:
    """Return a p-value with three decimals, or four if three would hide that it exceeds 0.05.

    >>> format_p_value(0.0004), format_p_value(0.0312), format_p_value(0.0502)
    ('< 0.001', '0.031', '0.0502')
    """
    if p < 0.001:
        return "< 0.001"
    return f"{p:.4f}" if 0.05 < p < 0.0505 else f"{p:.3f}"


def format_seconds(seconds: float) -> str:
    """Return a duration in seconds with two significant digits.

    >>> format_seconds(0.0123), format_seconds(3.14159), format_seconds(1250.0)
    ('0.012 s', '3.1 s', '1,250 s')
    >>> format_seconds(0.0001), format_seconds(0.0)
    ('< 0.001 s', '0 s')
    """
    if seconds <= 0:
        return "0 s"
    if seconds < 0.0005:
        return "< 0.001 s"
    rounded = float(f"{seconds:.2g}")
    if rounded >= 10:
        return f"{seconds:,.0f} s"
    return f"{rounded:.{1 - math.floor(math.log10(rounded))}f} s"


def _format_signed(value: float, decimals: int) -> str:
    """Format a number with a typographic minus sign, but without a sign for zero."""
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")
