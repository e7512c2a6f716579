"""Numbers as people write them: with thousands, currencies, percent signs and decimal commas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

#: Share of the cells that must be numbers in one way of writing.
_MOST = 0.8
_LOOKED_AT = 200
_MISSING = {"", "nan", "na", "n/a", "n.a.", "none", "null", "<na>", "-", "--", "?"}
_SPACES = " \u00a0\u202f'’"
_UNIT = r"(?P<{}>[$€£¥]|US\$|USD|EUR|GBP|CHF|JPY)?"
_CELL = re.compile(
    rf"(?P<sign>[+\-−]?)\s*{_UNIT.format('before')}\s*(?P<inner>[+\-−]?)(?P<number>\d[\d.,{_SPACES}]*?)"
    rf"\s*{_UNIT.format('after')}\s*(?P<percent>%?)"
)
#: Less than nothing, as accountants write it.
_LOSS = re.compile(r"\(\s*(?P<inside>[^()+\-−]*)\)")
#: Digits with each mark of decimals, and with thousands of three behind the first.
_GRAMMAR = {
    mark: re.compile(
        rf"(\d+|[1-9]\d{{0,2}}([{other}]\d{{3}})+|[1-9]\d{{0,2}}([{_SPACES}]\d{{3}})+)([{mark}]\d+)?"
    )
    for mark, other in ((".", ","), (",", "."))
}
#: Who writes these has a decimal point.
_POINTED = {"$", "£", "US$", "USD", "GBP"}


@dataclass(frozen=True)
class Writing:
    """How the numbers of a column are written.

    Attributes
    ----------
    decimal : {".", ","} or None
        The mark of decimals; None where it could be either.
    example : str
        A cell that is no plain number.
    """

    decimal: Literal[".", ","] | None
    example: str

    @property
    def read(self) -> str:
        """The example, and the number that it is.

        >>> Writing(",", "1,4300").read
        "'1,4300' as 1.43"
        """
        return f"{self.example!r} as {_value(self.example, self.decimal or '.'):.12g}"

    @property
    def doubt(self) -> str:
        """Why it cannot be said what the numbers are, and what would do."""
        digits = re.sub(r"[^\d.,]", "", self.example)
        whole, parts = re.sub(r"[.,]", "", digits), re.split(r"[.,]", digits)
        return (
            f"{self.example!r} may be {whole} or {parts[0]}.{''.join(parts[1:])}; write it with a "
            "decimal point and without a mark of thousands"
        )


def writing_of(cells: Any) -> Writing | None:
    """How the numbers of a column are written, or None where they are none.

    Parameters
    ----------
    cells : iterable
        Those that are not missing.

    Examples
    --------
    >>> writing_of(["$1,200", "$95.50"])
    Writing(decimal='.', example='$1,200')
    >>> writing_of(["1,430", "2,500"]).doubt
    "'1,430' may be 1430 or 1.430; write it with a decimal point and without a mark of thousands"
    >>> writing_of(["red", "blue"]) is None
    True
    """
    texts = list(dict.fromkeys(str(cell).strip() for cell in cells))
    texts = [text for text in texts if text.lower() not in _MISSING]
    if not texts or not _mostly(texts[:_LOOKED_AT]) or all(map(_LOSS.fullmatch, texts)):
        return None
    split = [_split(text) for text in texts]
    found = [parts for parts in split if parts is not None]
    if len(found) < _MOST * len(texts) or len({(unit, percent) for _, unit, percent in found}) > 1:
        return None  # of several units, 12 % beside 12, they are no one quantity
    fits = {
        mark: [bool(grammar.fullmatch(number)) for number, _, _ in found]
        for mark, grammar in _GRAMMAR.items()
    }
    counts = {mark: sum(fitting) for mark, fitting in fits.items()}
    if max(counts.values()) < _MOST * len(texts):
        return None
    example = next((text for text in texts if not _is_plain(text) and _split(text)), texts[0])
    if counts["."] != counts[","]:
        return Writing("." if counts["."] > counts[","] else ",", example)
    marked = [number for number, _, _ in found if re.search(r"[.,]", number)]
    if not marked or found[0][1] in _POINTED:
        return Writing(".", example)
    return Writing(None, next(text for text in texts if re.search(r"[.,]", text)))


def numbers_of(column: Any, decimal: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The cells as floats, and which are none although they are filled.

    >>> import pandas as pd
    >>> numbers_of(pd.Series(["1.234,5 €", None, "red"]), ",")
    (array([1234.5,    nan,    nan]), array([False, False,  True]))
    """
    codes, texts = column.astype(object).where(column.notna(), None).factorize()
    values = np.array([_value(str(text), decimal) for text in texts] + [np.nan])
    odd = np.array(
        [
            np.isnan(value) and str(text).strip().lower() not in _MISSING
            for text, value in zip(texts, values[:-1], strict=True)
        ]
        + [False]
    )
    return values[codes], odd[codes]


def _value(text: str, decimal: str) -> float:
    text = text.strip()
    parts = _split(text)
    if parts is None or not _GRAMMAR[decimal].fullmatch(parts[0]):
        return float(text) if _is_plain(text) else np.nan
    number = re.sub(rf"[{_SPACES}]", "", parts[0])
    number = number.replace("," if decimal == "." else ".", "").replace(decimal, ".")
    negative = _LOSS.fullmatch(text) or re.match(r"[^\d]*[-−]", text)
    return -float(number) if negative else float(number)


def _split(text: str) -> tuple[str, str, str] | None:
    """Digits with their marks, the unit, and the percent sign."""
    found = _cell(text)
    if found is None or (found["before"] and found["after"]):
        return None
    return found["number"].strip(), found["before"] or found["after"] or "", found["percent"]


def _cell(text: str) -> re.Match[str] | None:
    loss = _LOSS.fullmatch(text)
    return _CELL.fullmatch(text if loss is None else loss["inside"].rstrip())


def _is_plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _mostly(texts: list[str]) -> bool:
    return sum(_cell(text) is not None for text in texts) >= _MOST * len(texts)
