"""Reader for delimited text (CSV, TSV, text) that returns a DataFrame.

Decisions made while reading (column names, decimal commas, encodings) are appended to
``messages``.
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

from nearfar.datasets.vector_columns import is_vector_column
from nearfar.extras import import_optional
from nearfar.words import format_count

# Strings that are read as missing values. Unlike in pandas, "None" is not in the list, because it
# can be the name of a class.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "<NA>", "#N/A", "NULL", "null")
# Strings that are read as missing values only in columns of numbers.
_MISSING_AMONG_NUMBERS = ("none", "-", "--", ".", "missing", "n.a.", "#div/0!", "#value!", "#ref!")
#: Regular expression for numbers with points as thousands separators, such as 1.234,5.
_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?"
_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}


def read_delimited(path: Path, messages: list[str]) -> tuple[Any, set[str]]:
    """Return a CSV, TSV or text file as a DataFrame, and the set of repeated column names."""
    pd = import_optional("pandas", "app")
    text = decode(path, messages)
    head = get_first_lines(text)
    separator = find_separator(head)
    rows = _read_sample(head, separator, 200)
    if len(rows[0]) == 1:
        wide_rows = [
            row
            for candidate in _SEPARATORS
            for row in _read_sample(head, candidate, 50)
            if len(row) > 1
        ]
        problem = f"its first line has one cell, '{rows[0][0][:60]}'"
        problem += (
            f", but a later line has {len(wide_rows[0])}"
            if wide_rows
            else ", as do the other lines"
        )
        raise ValueError(
            f"{path.name} is not a table: {problem}. The first line should contain the column "
            "names, separated by commas, semicolons or tabs."
        )
    is_headerless = _first_row_is_data(rows)
    if is_headerless:
        names = [f"column {i}" for i in range(len(rows[0]))]
        messages.append(
            "The first line contains data, not names: the columns are named 'column 0' to "
            f"'{names[-1]}'."
        )
    else:
        names = [name.strip() for name in rows[0]]
        if len(rows) == 1:
            raise ValueError(f"{path.name} has a header with {len(names)} columns, but no rows.")
    names = _check_widths(path, text, separator, names, rows, is_headerless, messages)
    names, repeated = _make_names_unique(names, messages)
    has_commas = separator != "," and _has_decimal_commas(rows[1:])
    if has_commas:
        messages.append("Numbers are read with decimal commas.")
    data = io.BytesIO(text.encode())
    del text  # Free the memory, which is as much as the size of the file.
    try:
        frame = pd.read_csv(
            data,
            sep=separator,
            header=None if is_headerless else 0,
            names=names,
            index_col=False,
            decimal="," if has_commas else ".",
            na_values=list(MISSING),
            keep_default_na=False,
            skipinitialspace=True,
            low_memory=False,
        )
        del data
    except ValueError as error:  # ValueError includes pandas' ParserError.
        hint = " Check for an unclosed quotation mark." if "inside string" in str(error) else ""
        raise ValueError(f"{path.name} cannot be read as a table: {error}.{hint}") from error
    _tidy_text(pd, frame, has_commas, messages)
    filled_rows = np.flatnonzero(frame.notna().any(axis=1))
    last = int(filled_rows[-1]) + 1 if len(filled_rows) else 0
    if last < len(frame):
        messages.append(f"Dropped {format_count(len(frame) - last, 'empty row')} at the end.")
        frame = frame.iloc[:last]
    if len(frame) == 0:
        raise ValueError(f"{path.name} has {len(names)} columns, but all rows are empty.")
    return frame, repeated


def decode(path: Path, messages: list[str]) -> str:
    """Return the text of a file, decoded as UTF-16 (with BOM), UTF-8 or else Latin-1."""
    raw = path.read_bytes()
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = raw.decode("utf-16", errors="replace")
    elif b"\0" in raw[:4096]:
        raise ValueError(f"{path.name} is not a text file. Check its extension.")
    else:
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
            messages.append(f"{path.name} is not UTF-8 and is read as Latin-1.")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise ValueError(f"{path.name} is empty.")
    if re.match(r"\s*<(!doctype|html)", text[:200], re.IGNORECASE):
        raise ValueError(f"{path.name} is a web page, not a table.")
    return text


def get_first_lines(text: str) -> list[str]:
    """Return the first 1000 lines.

    These are more lines than the 200 rows that are examined, because quoted cells may contain line
    breaks.
    """
    return [f"{line}\n" for line in text.split("\n", 1000)[:1000]]


def _read_sample(head: Sequence[str], separator: str, limit: int) -> list[list[str]]:
    """Return the first rows, without blank lines."""
    reader = csv.reader(head, delimiter=separator, skipinitialspace=True)
    try:
        return list(islice((row for row in reader if row), limit))
    except csv.Error as error:
        raise ValueError(
            f"Line {reader.line_num} cannot be read: {error}. Check for an unclosed quotation mark."
        ) from error


def find_separator(head: Sequence[str]) -> str:
    """Return the separator that splits most lines into the same number of cells."""
    # Tabs and semicolons are tried first: commas in numbers and text are common, but tabs and
    # semicolons in cells are rare.
    best, best_fraction = ",", 0.0
    for separator in _SEPARATORS:
        widths = [len(row) for row in _read_sample(head, separator, 50)]
        if widths and widths[0] > 1:
            fraction = sum(width in (widths[0], widths[0] + 1) for width in widths) / len(widths)
            if fraction > max(best_fraction, 0.9):
                return separator
            if fraction > best_fraction:
                best, best_fraction = separator, fraction
    return best


def _first_row_is_data(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if the file has no header.

    The first line is data if all its cells are numbers, or if at least half of them are and one of
    its texts occurs again in the same column ("5.1,3.5,1.4,0.2,setosa").

    Numbers can be column names, too: 0, 1, 2, ... as pandas writes them, years or wavelengths.
    Therefore the first line is a header if its numbers increase in steps of one (at least three
    numbers), or if eight or more numbers increase or decrease, unless the next line does the same.
    """
    first = rows[0]
    numbers = parse_numbers(first)
    if len(numbers) < max(1, len(first) / 2):
        return False
    texts = [
        (i, cell) for i, cell in enumerate(first) if cell.strip() and not parse_numbers([cell])
    ]
    occurs_again = any(cell in (row[i] for row in rows[1:] if i < len(row)) for i, cell in texts)
    if len(numbers) < len(first) and not occurs_again:
        return False
    return not _is_progression(numbers) or (
        len(rows) > 1 and _is_progression(parse_numbers(rows[1]))
    )


def parse_numbers(cells: Sequence[str]) -> list[float]:
    """Convert cells to floats, with a decimal point or comma. Cells with other text are skipped."""
    numbers = []
    for cell in cells:
        with suppress(ValueError):
            numbers.append(float(cell.strip().replace(",", ".")))
    return numbers


def _is_progression(numbers: Sequence[float]) -> bool:
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
    is_headerless: bool,
    messages: list[str],
) -> list[str]:
    """Return a name for every column of the rows. Raises if a row has too many cells."""
    width = len(names)
    if not is_headerless and all(len(row) == width + 1 for row in rows[1:]):
        # The rows have one cell more than the header. Either the first column contains row names,
        # which R writes without a column name, or every row ends with a separator.
        has_empty_end = all(not row[-1].strip() for row in rows[1:])
        names = [*names, ""] if has_empty_end else ["", *names]
        width += 1
    if '"' in text:
        reader = csv.reader(_iterate_lines(text), delimiter=separator, skipinitialspace=True)
        widths = [(reader.line_num, len(row)) for row in reader if row]
    else:
        lines = enumerate(_iterate_lines(text), start=1)
        widths = [(number, line.count(separator) + 1) for number, line in lines if line != "\n"]
    short_lines = []
    for line, n_cells in widths[0 if is_headerless else 1 :]:
        if n_cells > width:
            raise ValueError(
                f"{path.name}, line {line} has {n_cells} cells, but the first line has {width}. "
                "The first line should contain the column names, and text that contains "
                f"{_SEPARATORS[separator]} needs quotation marks."
            )
        if n_cells < width:
            short_lines.append(line)
    if short_lines:
        messages.append(
            f"{format_count(len(short_lines), 'line')} with fewer than {width} cells (first: line "
            f"{short_lines[0]}); the other cells are missing values."
        )
    return names


def _iterate_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text one at a time. A list of all lines would need twice the memory."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _make_names_unique(names: Sequence[str], messages: list[str]) -> tuple[list[str], set[str]]:
    """Return a unique name for each column, and the set of repeated names."""
    names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    if not repeated:
        return names, repeated
    unique: list[str] = []
    for name in names:
        unique_name, number = name, 0
        while unique_name in unique or (number and unique_name in names):
            number += 1
            unique_name = f"{name}.{number}"
        unique.append(unique_name)
    for name in sorted(repeated):
        unique_name = unique[names.index(name, names.index(name) + 1)]
        messages.append(
            f"{names.count(name)} columns are named '{name}'; the second is '{unique_name}'."
        )
    return unique, repeated


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(bool(re.fullmatch(r"[+-]?\d+,\d+([eE][+-]?\d+)?", cell)) for cell in cells)
    points = sum(bool(re.fullmatch(r"[+-]?\d+\.\d+([eE][+-]?\d+)?", cell)) for cell in cells)
    return commas > points


def _tidy_text(pd: Any, frame: Any, has_commas: bool, messages: list[str]) -> None:
    """Strip text cells, treat '?' as a missing value, and convert numeric columns to numbers."""
    n_marks = 0
    for name in frame.columns:
        if pd.api.types.infer_dtype(frame[name], skipna=True) != "string":
            continue
        if is_vector_column(frame[name]):
            continue  # Cells with vectors are long and slow to strip. They are parsed later.
        column = frame[name].str.strip()
        unknown = column == "?"
        n_marks += int(unknown.sum())
        column = column.mask(unknown | (column == ""))
        if has_commas and column.str.fullmatch(_THOUSANDS).any():
            # If the comma is the decimal separator, 1.234 may mean 1234, so the column stays text.
            frame[name] = column
            continue
        is_marker = column.str.lower().isin(_MISSING_AMONG_NUMBERS)
        values = column.mask(is_marker)
        numbers = pd.to_numeric(
            values.str.replace(",", ".") if has_commas else values, errors="coerce"
        )
        # A column with up to 10 distinct numbers may be categorical. A word for missing values may
        # then be one of its categories, so the column is not converted.
        if numbers.notna().sum() == values.notna().sum() and (
            numbers.nunique() > 10 or (numbers.notna().any() and not is_marker.any())
        ):
            column = numbers
            if is_marker.any():
                example = frame[name][is_marker].iloc[0].strip()
                messages.append(
                    f"Column '{name}': '{example}' among numbers is read as a missing value."
                )
        frame[name] = column
    if n_marks:
        messages.append(f"{format_count(n_marks, 'cell')} with '?' read as missing values.")
