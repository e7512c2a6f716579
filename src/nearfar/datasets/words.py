"""Names and numbers in messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """`` Did you mean 'class'?`` with a space before it, or nothing.

    >>> did_you_mean("Clas", ["age", "class"])
    " Did you mean 'class'?"
    """
    by_lower = {str(known).lower(): str(known) for known in names}
    close = get_close_matches(str(name).lower(), by_lower, n=1)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""


def listed(names: Iterable[object], limit: int = 20) -> str:
    """Quoted names, the first few of many.

    >>> listed(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    quoted = [f"'{name}'" for name in names]
    more = f" and {len(quoted) - limit} more" if len(quoted) > limit else ""
    return ", ".join(quoted[:limit]) + more


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "row"), count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
