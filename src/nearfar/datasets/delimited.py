"""Delimited text as users have it: CSV, TSV and their relatives, read into a frame.

What had to be decided (names, decimal commas, encodings) is said in ``messages``.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.datasets.vector_columns import are_vectors
from nearfar.extras import require
from nearfar.words import count

# pandas also reads "None" as missing, which would silently remove a class of that name.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "<NA>", "#N/A", "NULL", "null")
_MISSING_AMONG_NUMBERS = ("none", "-", "--", ".", "missing", "n.a.", "#div/0!", "#value!", "#ref!")
#: Thousands with points.
_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?"
_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}


def read_delimited(path: Path, messages: list[str]) -> tuple[Any, set[str]]:
    """A frame from CSV, TSV or text, and the column names that came twice."""
    pd = require("pandas", "app")
    text = decode(path, messages)
    head = head_of(text)
    separator = separator_of(head)
    rows = _sample(head, separator, 200)
    if len(rows[0]) == 1:
        wide = [row for other in _SEPARATORS for row in _sample(head, other, 50) if len(row) > 1]
        found = f"its first line has one cell, '{rows[0][0][:60]}'"
        found += f", later ones have {len(wide[0])}" if wide else ", and so have the others"
        raise ValueError(
            f"{path.name} is no table: {found}. The first line should hold the column names, "
            "separated by commas, semicolons or tabs."
        )
    headerless = _first_row_is_data(rows)
    if headerless:
        names = [f"column {i}" for i in range(len(rows[0]))]
        messages.append(
            f"The first line holds data, no names: columns are called 'column 0' to '{names[-1]}'."
        )
    else:
        names = [name.strip() for name in rows[0]]
        if len(rows) == 1:
            raise ValueError(f"{path.name} has a header of {len(names)} columns and no rows.")
    names = _check_widths(path, text, separator, names, rows, headerless, messages)
    names, repeated = _unique_names(names, messages)
    comma = separator != "," and _has_decimal_commas(rows[1:])
    if comma:
        messages.append("Numbers are read with decimal commas.")
    data = io.BytesIO(text.encode())
    del text  # as long as the file
    try:
        frame = pd.read_csv(
            data,
            sep=separator,
            header=None if headerless else 0,
            names=names,
            index_col=False,
            decimal="," if comma else ".",
            na_values=list(MISSING),
            keep_default_na=False,
            skipinitialspace=True,
            low_memory=False,
        )
        del data
    except ValueError as error:  # pandas' ParserError is one
        hint = " Is a quotation mark left open?" if "inside string" in str(error) else ""
        raise ValueError(f"{path.name} cannot be read as a table: {error}.{hint}") from error
    _tidy_text(pd, frame, comma, messages)
    filled = np.flatnonzero(frame.notna().any(axis=1))
    last = int(filled[-1]) + 1 if len(filled) else 0
    if last < len(frame):
        messages.append(f"{count(len(frame) - last, 'empty row')} at the end left out.")
        frame = frame.iloc[:last]
    if len(frame) == 0:
        raise ValueError(f"{path.name} has {len(names)} columns and no filled row.")
    return frame, repeated


def decode(path: Path, messages: list[str]) -> str:
    """Text of a file in the encoding it is found to have."""
    raw = path.read_bytes()
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = raw.decode("utf-16", errors="replace")
    elif b"\0" in raw[:4096]:
        raise ValueError(f"{path.name} is no text file; is its ending right?")
    else:
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
            messages.append(f"{path.name} is not in UTF-8; it is read as Latin-1.")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise ValueError(f"{path.name} is empty.")
    if re.match(r"\s*<(!doctype|html)", text[:200], re.IGNORECASE):
        raise ValueError(f"{path.name} is a web page, no table.")
    return text


def head_of(text: str) -> list[str]:
    """The first lines; more than rows are looked at, since quoted cells may hold line ends."""
    return [f"{line}\n" for line in text.split("\n", 1000)[:1000]]


def _sample(head: Sequence[str], separator: str, limit: int) -> list[list[str]]:
    """The first rows, blank lines skipped."""
    reader = csv.reader(head, delimiter=separator, skipinitialspace=True)
    try:
        return list(islice((row for row in reader if row), limit))
    except csv.Error as error:
        raise ValueError(
            f"Line {reader.line_num} cannot be read: {error}. Is a quotation mark left open?"
        ) from error


def separator_of(head: Sequence[str]) -> str:
    """What separates the cells of most lines into equally many."""
    # Decimal commas and commas in text are common, semicolons and tabs inside a name are not.
    best, best_share = ",", 0.0
    for separator in _SEPARATORS:
        widths = [len(row) for row in _sample(head, separator, 50)]
        if widths and widths[0] > 1:
            share = sum(width in (widths[0], widths[0] + 1) for width in widths) / len(widths)
            if share > max(best_share, 0.9):
                return separator
            if share > best_share:
                best, best_share = separator, share
    return best


def _first_row_is_data(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a file has no header.

    Its first line must be numbers, or at least half of them with a text that comes again in the
    same column ("5.1,3.5,1.4,0.2,setosa"). Numbers can be names, though: 0, 1, 2, ... as pandas
    writes them, years or wavelengths. They run in steps of one, or eight and more of them rise,
    and the next line does not.
    """
    first = rows[0]
    numbers = as_numbers(first)
    if len(numbers) < max(1, len(first) / 2):
        return False
    words = [(i, cell) for i, cell in enumerate(first) if cell.strip() and not as_numbers([cell])]
    again = any(cell in (row[i] for row in rows[1:] if i < len(row)) for i, cell in words)
    if len(numbers) < len(first) and not again:
        return False
    return not _runs(numbers) or (len(rows) > 1 and _runs(as_numbers(rows[1])))


def as_numbers(cells: Sequence[str]) -> list[float]:
    """What of the cells is a number, with a decimal point or comma."""
    found = []
    for cell in cells:
        with suppress(ValueError):
            found.append(float(cell.strip().replace(",", ".")))
    return found


def _runs(numbers: Sequence[float]) -> bool:
    steps = np.diff(numbers)
    if len(steps) < 7:
        return len(steps) >= 2 and bool(np.all(steps == 1))
    return bool(np.all(steps > 0) or np.all(steps < 0))


def _check_widths(
    path: Path,
    text: str,
    separator: str,
    names: list[str],
    rows: Sequence[Sequence[str]],
    headerless: bool,
    messages: list[str],
) -> list[str]:
    """Names for every column of the rows; rows with too many cells raise."""
    width = len(names)
    if not headerless and all(len(row) == width + 1 for row in rows[1:]):
        # Row names as R writes them have no name; nor has what stands behind a last separator.
        behind = all(not row[-1].strip() for row in rows[1:])
        names = [*names, ""] if behind else ["", *names]
        width += 1
    if '"' in text:
        reader = csv.reader(_lines(text), delimiter=separator, skipinitialspace=True)
        widths = [(reader.line_num, len(row)) for row in reader if row]
    else:
        lines = enumerate(_lines(text), start=1)
        widths = [(number, line.count(separator) + 1) for number, line in lines if line != "\n"]
    short = []
    for line, found in widths[0 if headerless else 1 :]:
        if found > width:
            raise ValueError(
                f"{path.name}, line {line}: {found} cells where the first line has {width}. "
                "The first line should hold the column names, and a text with "
                f"{_SEPARATORS[separator]} in it needs quotation marks."
            )
        if found < width:
            short.append(line)
    if short:
        messages.append(
            f"{count(len(short), 'line')} with fewer than {width} cells (first: line {short[0]}); "
            "the rest of them counts as missing."
        )
    return names


def _lines(text: str) -> Iterator[str]:
    """One line after the other: a copy of all of a large file would be too much."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _unique_names(names: Sequence[str], messages: list[str]) -> tuple[list[str], set[str]]:
    """A name for each column, no two the same, and the names that came twice."""
    names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    if not repeated:
        return names, repeated
    unique: list[str] = []
    for name in names:
        new, number = name, 0
        while new in unique or (number and new in names):
            number += 1
            new = f"{name}.{number}"
        unique.append(new)
    for name in sorted(repeated):
        new = unique[names.index(name, names.index(name) + 1)]
        messages.append(f"{names.count(name)} columns are named '{name}'; the second is '{new}'.")
    return unique, repeated


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(bool(re.fullmatch(r"[+-]?\d+,\d+([eE][+-]?\d+)?", cell)) for cell in cells)
    points = sum(bool(re.fullmatch(r"[+-]?\d+\.\d+([eE][+-]?\d+)?", cell)) for cell in cells)
    return commas > points


def _tidy_text(pd: Any, frame: Any, comma: bool, messages: list[str]) -> None:
    """Strip cells, make '?' a missing value, and turn what is then numbers into numbers."""
    marks = 0
    for name in frame.columns:
        if pd.api.types.infer_dtype(frame[name], skipna=True) != "string":
            continue
        if are_vectors(frame[name]):
            continue  # they make most of a file, and are read as what they are
        column = frame[name].str.strip()
        unknown = column == "?"
        marks += int(unknown.sum())
        column = column.mask(unknown | (column == ""))
        if comma and column.str.fullmatch(_THOUSANDS).any():
            frame[name] = column  # 1.234 is no 1.234 where 0,5 is a half
            continue
        words = column.str.lower().isin(_MISSING_AMONG_NUMBERS)
        rest = column.mask(words)
        numbers = pd.to_numeric(rest.str.replace(",", ".") if comma else rest, errors="coerce")
        # With few different numbers they may be levels, and the word another one.
        if numbers.notna().sum() == rest.notna().sum() and (
            numbers.nunique() > 10 or (numbers.notna().any() and not words.any())
        ):
            column = numbers
            if words.any():
                example = frame[name][words].iloc[0].strip()
                messages.append(f"Column '{name}': '{example}' among numbers counts as missing.")
        frame[name] = column
    if marks:
        messages.append(f"{count(marks, 'cell')} with '?' read as missing.")
