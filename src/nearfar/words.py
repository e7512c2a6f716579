"""Formatting of names and numbers in messages, in the terminal and in reports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """Return a suggestion with a leading space, or an empty string if no name is close.

    >>> did_you_mean("Clas", ["age", "class"])
    " Did you mean 'class'?"
    """
    by_lower = {str(known).lower(): str(known) for known in names}
    close = get_close_matches(str(name).lower(), by_lower, n=1)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""


def hyphened(name: str) -> str:
    """Return the method name of a class on the command line.

    >>> hyphened("HessianLLE"), hyphened("MVEMClassifier"), hyphened("LMNN")
    ('hessian-lle', 'mvem-classifier', 'lmnn')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def bare(name: str) -> str:
    """Normalize a name for comparison: lower case, without hyphens, underscores and spaces.

    >>> bare("Laplacian-Eigenmaps") == bare("laplacian_eigenmaps") == bare("LaplacianEigenmaps")
    True
    """
    return re.sub(r"[-_\s]", "", name.lower())


def nearest_names(name: str, names: Iterable[str]) -> str:
    """Return a suggestion of the three closest names, with a leading space.

    A common prefix of up to four characters counts extra, because typing errors are rare there.

    >>> nearest_names("lmm", ["lda", "mmc", "mcml", "lmnn", "rca"])
    ' Did you mean lmnn, mmc or mcml?'
    """
    asked, by_bare = bare(name), {bare(known): known for known in names}

    def likeness(key: str) -> float:
        begin = next((i for i in range(4) if key[: i + 1] != asked[: i + 1]), 4)
        return SequenceMatcher(None, key, asked).ratio() + 0.1 * begin

    close = [by_bare[key] for key in sorted(by_bare, key=likeness, reverse=True)[:3]]
    if not close:
        return ""
    return f" Did you mean {' or '.join(filter(None, [', '.join(close[:-1]), close[-1]]))}?"


def listed(names: Iterable[object], limit: int = 20, *, quoted: bool = True) -> str:
    """Join names for a sentence; list at most ``limit`` and count the rest.

    >>> listed(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], quoted=False)
    ("'a', 'b', 'c'", 'a, b and c')
    """
    every = [f"'{name}'" if quoted else str(name) for name in names]
    last = [f"{len(every) - limit:,} more"] if len(every) > limit else []
    # Quoted names form a plain list. Other names are part of a sentence and get an "and".
    if not last and not quoted and len(every) > 1:
        last = [every.pop()]
    return " and ".join([", ".join(every[:limit]), *last])


def capitalize_first(text: str) -> str:
    """Return the text with its first letter in upper case and the rest unchanged.

    Labels such as "raw Euclidean" are stored as they stand in the middle of a sentence. Tables and
    the starts of sentences use this function.

    >>> capitalize_first("raw Euclidean"), capitalize_first("")
    ('Raw Euclidean', '')
    """
    return text[:1].upper() + text[1:]


def count(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun in the singular or plural.

    >>> count(1, "row"), count(2000, "row"), count(2, "class", "classes")
    ('1 row', '2,000 rows', '2 classes')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def tested(noun: str) -> str:
    """Return the plural noun for test items; "test sets" would be ambiguous for sets of vectors.

    >>> tested("row"), tested("set")
    ('test rows', 'tested sets')
    """
    return f"test {noun}s" if noun == "row" else f"tested {noun}s"


def percent(fraction: float) -> str:
    """Return a fraction in percent with one decimal.

    >>> percent(0.0213), percent(-0.00001)
    ('2.1%', '0.0%')
    """
    return f"{_signed(100 * fraction, 1)}%"


def small_percent(share: float) -> str:
    """Return a fraction in percent with at least one significant digit.

    >>> small_percent(0.0041), small_percent(0.00042), small_percent(3e-9), small_percent(0.5)
    ('0.4%', '0.04%', 'less than 0.0001%', '50%')
    """
    if abs(share) < 1e-6:
        return "less than 0.0001%"
    if abs(share) >= 0.0995:
        return f"{100 * share:,.0f}%"
    digits = max(1, -math.floor(math.log10(abs(100 * share))))
    return f"{100 * share:.{digits}f}%"


def interval_text(low: float, high: float, confidence: float = 0.95) -> str:
    """Return a confidence interval of a difference, in percentage points, with its level.

    >>> interval_text(-0.007, 0.068)
    '95% CI −0.7 to 6.8'
    """
    return f"{100 * confidence:g}% CI {points(low)} to {points(high)}"


def adjusted_p_text(p: float) -> str:
    """Return a p-value after Holm's adjustment as it stands in a sentence.

    >>> adjusted_p_text(0.0123), adjusted_p_text(0.0001)
    ('adjusted p = 0.012', 'adjusted p < 0.001')
    """
    text = p_text(p)
    return f"adjusted p {text}" if text.startswith("<") else f"adjusted p = {text}"


def points(fraction: float, *, plus: bool = False) -> str:
    """Return a difference of fractions in percentage points, with a typographic minus sign.

    >>> points(-0.0123), points(0.0044), points(-0.0), points(0.0004)
    ('−1.2', '0.4', '0.0', '0.04')
    >>> points(0.0044, plus=True), points(0.0, plus=True)
    ('+0.4', '0.0')
    """
    small = 0 < abs(fraction) < 0.00095
    text = _signed(100 * fraction, 2 if small else 1)
    return f"+{text}" if plus and fraction > 0 and text.strip("0.") else text


def amount(value: float, digits: int = 4) -> str:
    """Return a number with a few significant digits and thousands separators.

    >>> amount(72990.4), amount(77.0057), amount(-0.000123456), amount(3.0e12)
    ('72,990', '77.01', '-0.0001235', '3e+12')
    """
    rounded = float(f"{value:.{digits}g}")
    wide = rounded != 0 and not 1e-4 <= abs(rounded) < 1e9
    return f"{rounded:.{digits}g}" if wide else f"{rounded:,.10f}".rstrip("0").rstrip(".")


def p_text(p: float) -> str:
    """Return a p-value with three decimals, or four if three would hide that it exceeds 0.05.

    >>> p_text(0.0004), p_text(0.0312), p_text(0.0502)
    ('< 0.001', '0.031', '0.0502')
    """
    if p < 0.001:
        return "< 0.001"
    return f"{p:.4f}" if 0.05 < p < 0.0505 else f"{p:.3f}"


def seconds_text(seconds: float) -> str:
    """Return a duration in seconds with two significant digits.

    >>> seconds_text(0.0123), seconds_text(3.14159), seconds_text(1250.0)
    ('0.012 s', '3.1 s', '1,250 s')
    >>> seconds_text(0.0001), seconds_text(0.0)
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


def _signed(value: float, decimals: int) -> str:
    """Format a number with a typographic minus sign, but without a sign for zero."""
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")
